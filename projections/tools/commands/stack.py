"""--stack: the names of tables, queues, functions and the bucket, as the deployment gave them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from projections.errors import UsageError
from projections.tools.commands.options import document_of, find_rules

__all__ = ["Deployed", "deployed", "stack_option"]

F = TypeVar("F", bound=Callable[..., Any])

_TABLE = "TableName"
_LEDGER = "LedgerTableName"


def stack_option(function: F) -> F:
    return click.option(
        "--stack",
        metavar="NAME",
        envvar="STACK_NAME",
        help="The deployed stack: what is not named by other options is taken from its outputs. [default: $STACK_NAME]",
    )(function)


class Deployed:
    """Names of what is deployed: from an option, else from the stack, else from the environment of the functions."""

    def __init__(self, outputs: dict[str, str]) -> None:
        self._outputs = outputs

    def name(self, option: str | None, output: str, variable: str = "") -> str | None:
        return option or self._outputs.get(output) or (os.environ.get(variable) if variable else None) or None

    def tables(self, option: Sequence[str], rules: str | None) -> tuple[str, ...]:
        """What --table says, or would say."""
        found = {name.removeprefix(_TABLE): real for name, real in self._outputs.items() if name.startswith(_TABLE)}
        if option or not found:
            return tuple(option)
        if list(found) == [""]:
            return (found[""],)
        from projections.language.program import Program
        from projections.tools.deployment.needs import Deployment

        program = Program.from_document(document_of(find_rules(rules)))
        return tuple(f"{one.name}={found[one.suffix]}" for one in Deployment("", program).tables if one.suffix in found)

    def ledger(self, option: str | None) -> str | None:
        return self.name(option, _LEDGER)


def deployed(stack: str | None, region: str | None) -> Deployed:
    """What the stack says, if one is named. Raises UsageError if it is none of ours, Misconfigured if there is none."""
    if not stack:
        return Deployed({})
    from projections.stores.aws import client
    from projections.stores.stack import outputs

    found = outputs(client("cloudformation", region=region), stack)
    if _LEDGER not in found:
        raise UsageError(
            f"stack {stack}: it has no output {_LEDGER}, so it is no deployment of projections. Name another"
        )
    return Deployed(found)

"""--stack: names of tables, queues, functions and the bucket, and the rules, as they are deployed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from projections.cli.options import document_of, find_rules
from projections.errors import Misconfigured, RulesError, UsageError
from projections.terminal import print_line

if TYPE_CHECKING:
    from projections.aws.stack import Stack

__all__ = ["Chosen", "Deployed", "deployed", "stack_option"]

F = TypeVar("F", bound=Callable[..., Any])

_TABLE = "TableName"
_LEDGER = "LedgerTableName"
_FUNCTIONS = ("StreamFunctionAlias", "StreamFunctionName")
"""The outputs that name the stream's function. A stack that is deployed gradually has the alias, which is what runs."""


def stack_option(function: F) -> F:
    return click.option(
        "--stack",
        metavar="NAME",
        envvar="STACK_NAME",
        help="Deployed stack: its rules, and its resources that other options do not name, are used. "
        "[default: $STACK_NAME]",
    )(function)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The rules that a command uses, in canonical form, and whether they are those that the stack's functions run.

    `note` says how a local rule file differs from the deployed rules, or why it was not compared with them; `about_option`
    if that file was named with --rules.
    """

    document: Mapping[str, Any]
    deployed: bool = False
    note: str = ""
    about_option: bool = False


class Deployed:
    """What is deployed: from an option, else from the stack, else from the environment of the functions."""

    def __init__(self, stack: Stack | None, region: str | None) -> None:
        self.stack = stack
        self._region = region
        self._outputs: Mapping[str, str] = stack.outputs if stack else {}

    def name(self, option: str | None, output: str, variable: str = "") -> str | None:
        return option or self._outputs.get(output) or (os.environ.get(variable) if variable else None) or None

    def tables(self, option: Sequence[str], document: Mapping[str, Any]) -> tuple[str, ...]:
        """What --table says, or would say."""
        found = {name.removeprefix(_TABLE): real for name, real in self._outputs.items() if name.startswith(_TABLE)}
        if option or not found:
            return tuple(option)
        if list(found) == [""]:
            return (found[""],)
        from projections.deploy.needs import Deployment
        from projections.language.program import Program

        needs = Deployment("", Program.from_document(document))
        return tuple(f"{one.name}={found[one.suffix]}" for one in needs.tables if one.suffix in found)

    def ledger(self, option: str | None) -> str | None:
        return self.name(option, _LEDGER)

    def document(self, option: str | None, *, writes: bool) -> Mapping[str, Any]:
        """Return the rules that a command uses, as `rules` does, and print what there is to note of a local file."""
        chosen = self.rules(option, "refuse" if writes else "use")
        if chosen.note:
            print_line(f"note: {chosen.note}.", err=True)
        return chosen.document

    def rules(self, option: str | None, another: Literal["refuse", "use", "ignore"]) -> Chosen:
        """Return the deployed rules; without a stack, those of --rules, $RULES or the rule file here.

        If --rules names a file that differs from the deployed rules, `another` decides: a command that writes refuses it, a
        command that only reads uses it, and `status` ignores it. Raises UsageError, and RulesError with every mistake in the
        file.
        """
        if self.stack is None:
            return Chosen(document_of(find_rules(option)))
        try:
            document = self._packaged()
        except Misconfigured as error:
            if option is None:
                raise UsageError(
                    f"stack {self.stack.name}: the deployed rules could not be read: {error}. Allow lambda:GetFunction, or "
                    "name the file of the deployed rules with --rules FILE"
                ) from None
            note = f"{option} was not compared with the rules that stack {self.stack.name} runs: {error}"
            return Chosen(document_of(find_rules(option)), note=note, about_option=True)
        if option is None:
            return Chosen(document, True, self._local_note(document))
        path = find_rules(option)
        local = document_of(path)
        difference = _difference(local, document)
        if not difference:
            return Chosen(document, True)
        differs = f"{path} differs from the rules that stack {self.stack.name} runs ({difference})"
        if another == "refuse":
            raise UsageError(f"{differs}. Deploy it first, or omit --rules to use the deployed rules")
        if another == "use":
            return Chosen(local, False, f"{differs}. This command uses {path}", about_option=True)
        return Chosen(document, True, differs, about_option=True)

    def _local_note(self, document: Mapping[str, Any]) -> str:
        """Return how a rule file that $RULES names, or that is here, differs from the deployed rules."""
        assert self.stack is not None
        try:
            path = find_rules()
        except UsageError:
            return ""  # there is none
        try:
            difference = _difference(document_of(path), document)
        except RulesError as error:
            mistakes = "1 mistake" if len(error.problems) == 1 else f"{len(error.problems)} mistakes"
            difference = f"it has {mistakes}: see `projections check {path}`"
        if not difference:
            return ""
        return (
            f"{path} differs from the rules that stack {self.stack.name} runs ({difference}). "
            "This command uses the deployed rules"
        )

    def _packaged(self) -> Mapping[str, Any]:
        """Return the canonical rules in the package of the stream's function. Raises Misconfigured."""
        from projections.aws.clients import client
        from projections.aws.functions import packaged_file
        from projections.language.program import Program

        function = next((self._outputs[name] for name in _FUNCTIONS if name in self._outputs), None)
        if function is None:
            raise Misconfigured(f"the stack has no output {_FUNCTIONS[-1]}")
        path, content = packaged_file(client("lambda", region=self._region), function, "RULES_FILE", "rules.json")
        try:
            document: dict[str, Any]
            if path.endswith(".json"):
                document = json.loads(content)
            else:
                from projections.language.loader import loads

                document = loads(content.decode(), f"{path} of {function}").canonical()
            Program.from_document(document)
        except (RulesError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise Misconfigured(
                f"function {function}: {path} was compiled by another version of dynamodb-projections "
                f"({type(error).__name__}: {error}). Use that version, or deploy the stack again with this one"
            ) from error
        return document


def deployed(stack: str | None, region: str | None) -> Deployed:
    """What the stack says, if one is named. Raises UsageError if it is none of ours, Misconfigured if there is none."""
    if not stack:
        return Deployed(None, region)
    from projections.aws.clients import client
    from projections.aws.stack import described_stack

    found = described_stack(client("cloudformation", region=region), stack)
    if _LEDGER not in found.outputs:
        raise UsageError(
            f"stack {stack}: it has no output {_LEDGER}, so it is no deployment of projections. Name another"
        )
    return Deployed(found, region)


def _difference(local: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """Return how rules differ from those that are deployed, as `new: a; changed: b`; nothing if they are the same."""
    from projections.language.program import Program

    one, other = Program.from_document(local), Program.from_document(document)
    here, there = ({name: rule.fingerprint for name, rule in program.rules.items()} for program in (one, other))
    kinds = {
        "new": here.keys() - there.keys(),
        "changed": {name for name in here.keys() & there.keys() if here[name] != there[name]},
        "missing": there.keys() - here.keys(),
        "retired": {name for name, _ in set(one.retired.items()) ^ set(other.retired.items())},
    }
    return "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names)

"""AWS apart from the items of DynamoDB: clients, queues, buckets, metrics, functions, stacks; the wiring of functions.

The functions below are public, see docs/api.md. They import what they need when they are called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from projections.engine.stages import Outcome
    from projections.engine.store import Store
    from projections.language.ruleset import RuleSet

    class LambdaContext(Protocol):
        """The part of Lambda's context object that handlers use."""

        def get_remaining_time_in_millis(self) -> int: ...

    LambdaHandler = Callable[[Any, LambdaContext], dict[str, Any]]

__all__ = ["store", "stream_handler"]


def store(
    rules: RuleSet,
    tables: Mapping[str, str],
    ledger: str | None,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
    threads: int = 16,
) -> Store:
    """Return a store of live tables, for the operations. Raises UsageError if a table does not exist or match the rules.

    `tables` has the real name of each table by the logical name that the rules give it, `main` if they set `table:`. Without
    a `ledger`, before anything is deployed, `verify` compares the items alone. `threads` limits concurrent requests.
    """
    from projections.aws.live_tables import connect_to
    from projections.errors import UsageError

    if tables.keys() != set(rules.tables):
        raise UsageError(f"tables names {', '.join(sorted(tables))}; the rules have {', '.join(sorted(rules.tables))}")
    names = dict(tables) if ledger is None else {**tables, "ledger": ledger}
    return connect_to(rules.program, names, endpoint_url, region, threads=threads).store


def stream_handler(
    settings: Mapping[str, str] | None = None, *, observe: Callable[[Outcome], None] | None = None
) -> LambdaHandler:
    """Return a Lambda handler of DynamoDB stream records, for a Lambda module of one's own.

    `settings` replace the environment variables of the same names, which `projections.aws.wiring.VARIABLES` lists:
    `TABLE_NAME` or `TABLES`, `LEDGER_TABLE_NAME` and `RULES_FILE` are required. `observe` is called with the outcome of
    each invocation: `counts` for metrics, `rejected` records, and the reason if the batch `failed`. The event source mapping
    needs ReportBatchItemFailures. Raises Misconfigured, which names the variable, and RulesError.
    """
    import os

    from projections.aws.wiring import VARIABLES, stream_from_environment
    from projections.errors import Misconfigured

    if unknown := sorted((settings or {}).keys() - VARIABLES.keys()):
        raise Misconfigured(
            f"there is no setting {', '.join(unknown)}. The settings are {', '.join(sorted(VARIABLES))}."
        )
    handle = stream_from_environment({**os.environ, **(settings or {})}, observe=observe).handle
    return lambda event, context: handle(event, lambda: context.get_remaining_time_in_millis() / 1000)

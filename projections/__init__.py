"""Materialized views for DynamoDB, maintained by rules.

What this package exports is public, and so are `projections.aws` and `projections.testing`: see docs/api.md. All other
modules may change with every version. They are loaded when they are first used.

Packages, from the ground up. Each imports only from those above it in this list:

- `language`: key templates, patterns, rule models, loader, findings. Knows no AWS.
- `engine`: stream record → change → plan of effects → ledger, copies, indexes. Talks to a `Store` only.
- `stores`: DynamoDB and memory, answering alike.
- `operations`: backfill, verify, redrive, status, audit, worker.
- `aws`: clients, queues, buckets, metrics; the wiring of the deployed functions. The last package that is deployed.
- `local`: event source mapping, queues and replay on this machine.
- `access`: planned queries, run on a store or with a client.
- `deploy`: template, the functions' package, and whether a template fits rules.
- `inspect`: rehearsals, explanations, costs, differences and graphs of rules, as data.
- `init`: projects, and rules proposed from a sample of a table.
- `testing`: the pytest plugin, the oracle, the simulation.
- `dev`: rules on a live stream, reloaded as they change.
- `console`: a local, read-only page on live tables.
- `cli`: the commands, and all that is printed.
"""

TYPE_CHECKING = False  # as type checkers take a variable of this name for true: to import `typing` would cost more
if TYPE_CHECKING:
    from projections import aws, testing
    from projections.access.answers import Answer
    from projections.access.item_reader import ItemReader, ReadItem, Waited
    from projections.access.ranking import Positions, Ranked, Ranking, ScoreCount, ScoreSum
    from projections.api import (
        BackfillResult,
        RedriveResult,
        VerifyResult,
        apply,
        ask,
        backfill,
        explain_item,
        from_dict,
        lint,
        load,
        loads,
        ranking,
        reader,
        redrive,
        status,
        verify,
    )
    from projections.engine.store import Store
    from projections.errors import (
        Misconfigured,
        Problem,
        ProjectionsError,
        RulesError,
        StoreError,
        Transient,
        UsageError,
    )
    from projections.inspect.explain.item_facts import ItemExplanation
    from projections.language.findings.kinds import Finding
    from projections.language.ruleset import RuleSet
    from projections.operations.health import LedgerStatus
    from projections.operations.verify.drift import Drift

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "BackfillResult",
    "Drift",
    "Finding",
    "ItemExplanation",
    "ItemReader",
    "LedgerStatus",
    "Misconfigured",
    "Positions",
    "Problem",
    "ProjectionsError",
    "Ranked",
    "Ranking",
    "ReadItem",
    "RedriveResult",
    "RuleSet",
    "RulesError",
    "ScoreCount",
    "ScoreSum",
    "Store",
    "StoreError",
    "Transient",
    "UsageError",
    "VerifyResult",
    "Waited",
    "__version__",
    "apply",
    "ask",
    "aws",
    "backfill",
    "explain_item",
    "from_dict",
    "lint",
    "load",
    "loads",
    "ranking",
    "reader",
    "redrive",
    "status",
    "testing",
    "verify",
]

_ELSEWHERE = {
    "Answer": "access.answers",
    "Drift": "operations.verify.drift",
    "Finding": "language.findings.kinds",
    "ItemExplanation": "inspect.explain.item_facts",
    "LedgerStatus": "operations.health",
    **dict.fromkeys(("ItemReader", "ReadItem", "Waited"), "access.item_reader"),
    **dict.fromkeys(("Positions", "Ranked", "Ranking", "ScoreCount", "ScoreSum"), "access.ranking"),
    "RuleSet": "language.ruleset",
    "Store": "engine.store",
    **dict.fromkeys(
        ("Misconfigured", "Problem", "ProjectionsError", "RulesError", "StoreError", "Transient", "UsageError"),
        "errors",
    ),
}
"""The module of each name that is not in `api`."""


if not TYPE_CHECKING:  # else type checkers would take every name for one that exists

    def __getattr__(name):
        """Load an exported name when it is first used, so that importing the package loads nothing else."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        if name in ("aws", "testing"):
            return import_module(f"{__name__}.{name}")
        exported = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'api')}"), name)
        globals()[name] = exported
        return exported

    def __dir__():
        return sorted({*globals(), *__all__})

"""The functions of the public Python API, which `projections` exports: see docs/api.md.

Each is a thin layer over the packages below. Operations take a store and rules, and return frozen data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from projections.errors import Problem, RulesError, UsageError
from projections.language.ruleset import RuleSet

if TYPE_CHECKING:
    from projections.access.answers import Answer
    from projections.access.item_reader import ItemReader
    from projections.access.ranking import Ranking
    from projections.engine.registry import RegistrySnapshot
    from projections.engine.rejections import Rejected
    from projections.engine.store import Store
    from projections.inspect.explain.item_facts import ItemExplanation
    from projections.language.findings.kinds import Finding
    from projections.language.program import Program
    from projections.operations.backfill.runner import Runner
    from projections.operations.health import LedgerStatus
    from projections.operations.verify.drift import Drift

__all__ = [
    "BackfillResult",
    "RedriveResult",
    "VerifyResult",
    "apply",
    "ask",
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
    "verify",
]

_LEDGER = "ledger"

_CANONICAL = ("tables", "entities", "projections", "guard_prefix", "retired")
"""The parts of canonical rules, which are always there."""


# Rules


def load(path: str | Path) -> RuleSet:
    """Load the rules of a YAML or JSON file. Raises RulesError, whose `problems` are all mistakes in it."""
    from projections.language.loader import text_of

    if not isinstance(path, str | Path):
        raise UsageError(
            f"the path of the rule file is {path!r}. Pass text or a Path; for a mapping, use `projections.from_dict`"
        )
    return replace(loads(text_of(path), str(path)), path=Path(path))


def loads(text: str, file: str = "<rules>") -> RuleSet:
    """Load the rules of a YAML or JSON text; `file` is its name in messages. Raises RulesError as `load` does."""
    from projections.language import loader
    from projections.language.access.plan import queries_of

    rules = loader.loads(text, file)
    return RuleSet(rules.document(), text=text, file=file, queries=queries_of(rules), writes=rules.writes)


def from_dict(rules: Mapping[str, Any], file: str = "<python>") -> RuleSet:
    """Make rules of the mapping that a rule file would contain, of plain Python values.

    It is checked as a rule file is. Raises RulesError, whose problems have a path, and 0 for line and column.
    """
    from projections.language.values import json_of

    if wrong := list(_not_plain(rules, "")):
        raise RulesError([Problem(file, 0, 0, path, reason) for path, reason in wrong])
    try:
        return replace(loads(json_of(rules), file), lines=False)
    except RulesError as error:
        raise RulesError([replace(problem, line=0, column=0) for problem in error.problems]) from None


def _not_plain(value: object, path: str) -> Iterable[tuple[str, str]]:
    """The path of each value that a rule file cannot contain, and what it is."""
    if isinstance(value, Mapping):
        for name, nested in value.items():
            if not isinstance(name, str):
                yield path or "(top)", f"the name {name!r} is not text"
            else:
                yield from _not_plain(nested, f"{path}.{name}".removeprefix("."))
    elif isinstance(value, list | tuple):
        for number, nested in enumerate(value):
            yield from _not_plain(nested, f"{path}[{number}]")
    elif isinstance(value, float | Decimal) and not math.isfinite(value):
        yield path or "(top)", f"{value} is not a number"
    elif not isinstance(value, str | int | float | Decimal | None):
        yield path or "(top)", f"expected text, a number, a boolean, a list or a mapping, found {type(value).__name__}"


def lint(rules: RuleSet) -> tuple[Finding, ...]:
    """Return what may be wrong with rules that can be used, in the order of the file: what `projections check` prints."""
    from projections.language.review import review_text

    findings = review_text(rules.text, rules.file, rules.path).findings
    return findings if rules.lines else tuple(replace(finding, line=0, column=0) for finding in findings)


# Queries


def ask(store: Store, rules: RuleSet, name: str, parameters: Mapping[str, Any] | None = None) -> Answer:
    """Return the answer of a query of the rule file: iterate over its items, or take it by pages.

    As in `list(ask(store, rules, "comments", {"postId": "p1"}))`. `parameters` are plain values by name; the bounds of
    `range: x` are `x.from`, `x.to` and `x.prefix`. Nothing is read until items are taken. Raises UsageError for other
    parameters, and if no request returns all items of the answer.
    """
    from projections.access.answers import answer_to, reader_of
    from projections.language.access import planner

    planned = planner.plan(rules.program.model, rules.query(name))
    return answer_to(rules.program, planned, parameters or {}, reader_of(store))


def ranking(store: Store, rules: RuleSet, rule: str, board: Mapping[str, Any]) -> Ranking:
    """Return the ranking of a board, by a rule of the kind `rank`: its methods read the ledger.

    As in `ranking(store, rules, "scores", {"game": "chess"}).rank(2100)`. `board` has plain values for the variables in the
    key of the rule's `into`. With a query that lists the board, `positions` and `random` return items. Reads the registry.
    Raises UsageError for another rule, or other variables.
    """
    from projections.access.ranking import ranking_of

    return ranking_of(rules.program, store, rule, board, rules.queries)


def reader(
    rules: RuleSet | Mapping[str, Any],
    dynamodb: Any,
    *,
    tables: Mapping[str, str] | str | None = None,
    ledger: str | None = None,
) -> ItemReader:
    """Return a reader of items for an application. Its keys and items are in the form of `dynamodb`.

    `rules` may be canonical rules, as `projections check --json` prints them, which need no YAML. `dynamodb` is a
    table, resource or client of boto3, or a store. For a resource or client, `tables` has the real name of each table by its
    logical name, or the name of the only one. `ledger` is the name of the ledger table, for `own` and `wait`. Reads nothing.
    Raises UsageError.

    >>> from projections.testing import Scenario
    >>> rules = loads('''
    ... table: {key: [PK, SK]}
    ... entities:
    ...   Post: {key: {PK: "POST#{postId}", SK: METADATA}}
    ...   Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
    ... projections:
    ...   likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
    ... ''')
    >>> posts = Scenario(rules).given({"PK": "POST#p1", "SK": "METADATA", "likeCount": 0})
    >>> reader(rules, posts.store).read({"PK": "POST#p1", "SK": "METADATA"})
    {'PK': 'POST#p1', 'SK': 'METADATA', 'likeCount': Decimal('0')}
    """
    from projections.access.item_reader import ItemReader, session_of

    program = _program(rules)
    return ItemReader(program, session_of(program, dynamodb, tables, ledger))


def _program(rules: object) -> Program:
    """Raises UsageError."""
    from projections.language.program import Program

    if isinstance(rules, RuleSet):
        return rules.program
    if not isinstance(rules, Mapping):
        raise UsageError(f'the rules are {rules!r}. Pass projections.load("rules.yaml")')
    if missing := [name for name in _CANONICAL if name not in rules]:
        raise UsageError(
            f"the rules are not in canonical form: they have no {', '.join(missing)}. "
            "Pass projections.from_dict(rules), or `document` of `projections check --json`"
        )
    return Program.from_document(rules)


# Operations


def _select(rules: RuleSet, terms: Iterable[str]) -> tuple[str, ...]:
    from projections.language.ruleset import selected

    return selected(rules.program.model, terms)


@dataclass(frozen=True, slots=True)
class BackfillResult:
    """What a backfill did, or with `dry_run` would do.

    `complete` is false if it stopped early: the next call continues it. `rules` has the state of each rule afterwards,
    `counts` what was read and written, `by_rule` what was created, changed, deleted by each rule. `failed` (by encoded
    key, with reasons), `rejected` and `withheld` (deletions that need `allow_delete`) have the first 20 items.
    """

    complete: bool
    rules: Mapping[str, str]
    counts: Mapping[str, int]
    by_rule: Mapping[str, Mapping[str, int]]
    failed: Mapping[str, str]
    rejected: tuple[Rejected, ...]
    withheld: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether it is complete and there is nothing to look at."""
        return self.complete and not (self.failed or self.rejected or self.withheld)


def apply(
    store: Store,
    rules: RuleSet,
    *,
    retire: Mapping[str, str] | None = None,
    hold: bool = False,
    segments: int = 4,
    max_writes: int | None = None,
    allow_delete: bool = False,
    restart: bool = False,
    dry_run: bool = False,
) -> BackfillResult:
    """Register new and changed rules, fill them from the items that the tables contain, and publish them.

    The application may write meanwhile, and rules that do not change publish as before. `retire` says whether to `remove` or
    to `keep` the values of rules that the file lacks. With `hold`, filled versions are not published. `max_writes` limits
    the writes per second. Raises Misconfigured, also for rules whose fate is not said.
    """
    from projections.operations.backfill.runner import Runner, backfill_with_threads

    operation = backfill_with_threads(rules.program, store, segments=segments, rate=max_writes, dry=dry_run)
    runner = Runner(operation)
    if dry_run:
        snapshot, _ = operation.registry.preview(rules.program, retire, hold=hold)
        phases, complete = runner.rehearse(operation.unrecorded_run(snapshot, segments)), not runner.failed
    else:
        run = operation.apply(
            rules.program, retire, hold=hold, segments=segments, allow_delete=allow_delete, restart=restart
        )
        run = runner.work(run) if run is not None else None
        phases, complete = (operation.report(run), run.done) if run is not None else ({}, True)
        snapshot = operation.registry.read_or_create()
    return _result(snapshot, phases, runner, complete=complete)


def backfill(
    store: Store,
    rules: RuleSet,
    *,
    segments: int = 4,
    max_writes: int | None = None,
    allow_delete: bool = False,
    restart: bool = False,
) -> BackfillResult:
    """Refresh everything that depends on the items of the tables, under all versions in the registry.

    For a stream that was off for longer than it keeps records. It publishes no version that is not published. Raises
    Misconfigured.
    """
    from projections.operations.backfill.runner import Runner, backfill_with_threads

    operation = backfill_with_threads(rules.program, store, segments=segments, rate=max_writes)
    runner = Runner(operation)
    run = runner.work(operation.begin(promotes=False, segments=segments, allow_delete=allow_delete, restart=restart))
    snapshot = operation.registry.read_or_create()
    return _result(snapshot, operation.report(run), runner, complete=run.done)


def _result(
    snapshot: RegistrySnapshot, phases: Mapping[str, Counter[str]], runner: Runner, *, complete: bool
) -> BackfillResult:
    from projections.operations.backfill.backfill_runs import unpublished_gaps

    by_rule: dict[str, Counter[str]] = {}
    counts: Counter[str] = Counter()
    for name, number in (pair for counted in phases.values() for pair in counted.items()):
        what, _, rule = name.partition("|")
        (by_rule.setdefault(rule, Counter()) if rule else counts)[what] += number
    return BackfillResult(
        complete,
        {name: known.state for name, known in snapshot.versions.items()},
        dict(counts),
        {name: dict(counted) for name, counted in by_rule.items()},
        {**runner.failed, **unpublished_gaps(snapshot)},
        tuple(runner.rejected),
        tuple(runner.withheld),
    )


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What a verification found; after a repair, what is left.

    `drifts` are differences, `busy` what kept changing while it was examined, `left_over` attributes that no rule corrects
    any more. `gaps` has the versions of rules with `ledger: lanes` that may have missed changes, with the reasons. `read`
    counts the items read by table. After a repair, `repaired` counts by kind what was repaired, and
    `failed`, `rejected` (with reasons) and `withheld` have the first encoded keys of what was not.
    """

    drifts: tuple[Drift, ...]
    busy: tuple[Drift, ...]
    left_over: tuple[Drift, ...]
    read: Mapping[str, int]
    repaired: Mapping[str, int]
    failed: Mapping[str, str]
    rejected: Mapping[str, str]
    withheld: tuple[str, ...]
    gaps: Mapping[str, str]

    @property
    def ok(self) -> bool:
        """Whether there is no drift and no gap, and everything was repaired that was to be."""
        return not (self.drifts or self.gaps or self.failed or self.rejected)


def verify(
    store: Store,
    rules: RuleSet,
    *,
    only: Iterable[str] = (),
    sample: float | None = None,
    repair: bool = False,
    allow_delete: bool = False,
    patience: float = 20.0,
    segments: int = 4,
) -> VerifyResult:
    """Compare the stored values with what the rules make of the items, while the application writes.

    `only` selects some of the rules, as `--select` does.

    `sample` is the share of the tables to read, as 0.01. What differs is examined again after `patience` seconds, since a
    change may be on its way. Writes only with `repair`. All drift is returned at once: for tables with millions of
    differences use the command. Raises Misconfigured, and UsageError if there is nothing to repair yet.
    """
    from projections.operations.verify.repair import verify_and_repair

    if sample is not None and not 0 < sample <= 1:
        raise UsageError(f"sample is {sample}. It is a share of the tables: above 0, and 1 at most")
    with verify_and_repair(
        rules.program,
        store,
        ledger=_has_ledger(store),
        only=_select(rules, only),
        sample=sample,
        repair=repair,
        allow_delete=allow_delete,
        patience=patience,
        segments=segments,
    ) as done:
        verification, repaired = done.verification, done.repair
        return VerifyResult(
            tuple(verification.drifts()),
            tuple(verification.busy()),
            tuple(verification.left_over()),
            dict(verification.counts),
            dict(repaired.counts) if repaired is not None else {},
            dict(repaired.failed) if repaired is not None else {},
            dict(repaired.rejected) if repaired is not None else {},
            tuple(done.withheld),
            dict(verification.scope.gaps),
        )


def _has_ledger(store: Store) -> bool:
    from projections.errors import Misconfigured

    try:
        store.schema(_LEDGER)
    except Misconfigured:
        return False
    return True


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """What a redrive did: how many `items` were refreshed and parents pushed, and what is left.

    `left` has the reasons by the position of each message that was not redriven. All others may be deleted.
    """

    items: int
    pushes: int
    left: Mapping[int, tuple[str, ...]]

    @property
    def ok(self) -> bool:
        """Whether all messages were redriven."""
        return not self.left


def redrive(
    store: Store,
    rules: RuleSet,
    messages: Iterable[str | bytes],
    *,
    tables: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> RedriveResult:
    """Refresh the items that messages are about: bodies of the quarantine or of dead letters, or discarded batches.

    Images in messages are not written: each item is read again. `tables` has the real name of each table, which is in the
    ARNs of discarded records; without it, the logical names. Raises UsageError if other rules are active.
    """
    from projections.engine.running import at_once
    from projections.operations.dry import DryStore
    from projections.operations.failed_messages import Reader
    from projections.operations.message_redrive import Redrive

    program = rules.program
    reader = Reader(program.tables, tables or {name: name for name in program.tables})
    work = Redrive(program, DryStore(store) if dry_run else store, run=at_once(10))
    answers = work.work(reader.text(text, f"message {number}") for number, text in enumerate(messages))
    reasons_by_message = {
        number: tuple(f"{about}: {text}" if about else text for about, texts in answer.left.items() for text in texts)
        for number, answer in enumerate(answers)
        if answer.left
    }
    return RedriveResult(work.items, work.pushes, reasons_by_message)


def status(store: Store, rules: RuleSet) -> LedgerStatus:
    """Return what the ledger records: which rules are active, how far backfills are, and what to do about it."""
    from projections.operations.health import ledger

    return ledger(rules.program, store, datetime.now(UTC))


def explain_item(store: Store, rules: RuleSet, key: str) -> ItemExplanation:
    """Return where each derived value of an item comes from, and its differences. Raises UsageError for an invalid key.

    `key` is as in `projections explain --item`: `PK=POST#p1,SK=METADATA`, or encoded, `main|POST#p1|METADATA`.
    """
    from projections.inspect.explain.item import item_explanation, read_key

    return item_explanation(rules.program, store, read_key(rules.program, key))

"""A batch of stream records on its way: decode → admit → plan → commit → publish → forget.

    decode    records as Lambda passes them → `Decoded`: per item in the order of their versions (`records`)
    admit     the registry → `Admitted`: may these rules be applied now? Else the whole batch is delivered again (`batch`)
    plan      records → `Plan`, pure (`plan`)
    commit    changes of contributions → `Result`s: the ledger, many source items per transaction (`batch`, `ledger`)
    publish   results → `Published`: the targets show what the groups hold (`batch`, `publishing`)
    forget    the entries no longer name what was published (`batch`, `publishing`)
    others    copies, index attributes, releases, heals, embeds: one conditional write each, in any order (`batch`)

Invariants:

- Nothing is planned before the rules are admitted: a record that old rules ignore may matter to the active ones.
- A record is reported as failed, rejected or done; never two of these without the earlier records of its item.
- A batch is applied as a whole first, because that takes the fewest requests. If that fails with an error that names no
  record, each record is applied alone, so that one bad record does not stop the shard. Repeated writes are duplicates.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from projections.engine.batch import Admitted, Aggregation, ItemWrites, Setup
from projections.engine.budget import Budget, Refresh
from projections.engine.embeds import Push
from projections.engine.groups import Generations
from projections.engine.guards import Guards
from projections.engine.plan import Plan, plan
from projections.engine.records import Record, decode, decode_all
from projections.engine.registry import FILLING, LIVE, Registry, RegistrySnapshot, RuleState
from projections.engine.rejections import Rejected
from projections.engine.report import Outcome, Report
from projections.engine.rivals import left_to
from projections.engine.running import UNLIMITED, Deadline, OutOfTime, Run, in_few_pieces, one_by_one
from projections.engine.store import Store
from projections.errors import Misconfigured, StoreError
from projections.language.program import Program

__all__ = ["OUTDATED", "Outcome", "Processor", "full_collections"]

OUTDATED = (
    "the active rules are not the rules of this function: deploy the active rules, or run `projections backfill` with the "
    "rules of this function to activate them"
)

_LARGE = 100
"""Records from which a batch is large."""


class _Collections:
    """Postpones full garbage collections. Safe for threads; the first who enters saves the setting, the last restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._threshold = gc.get_threshold()

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """While a large batch is processed: each would take some tenths of a second. Young objects are still collected."""
        with self._lock:
            if not self._users:
                self._threshold = gc.get_threshold()
                gc.set_threshold(*self._threshold[:2], 1_000_000)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    gc.set_threshold(*self._threshold)


full_collections = _Collections()


class Processor:
    """Applies rules to batches of stream records.

    `tables` maps table names in stream ARNs to logical names. `labels` gives each logical table's stream label for records
    whose ARN has none; `fixed_label` replaces the label of all records (for emulators whose ARN is not stable). `quarantine`
    takes what is rejected; without it, rejected records are reported as failed. `run` runs independent requests (at once, in
    Lambda). `clock` gives seconds since 1970. `tasks` takes the pages of a push that are left after the first, and refreshes
    of items whose changes exceed `budget`, with the seconds they should wait; without it everything is done at once. `pace`
    is called with the number of writes before every few writes to children, and may wait. `new_rules` is the state in which
    rules start where the registry is empty. `generations` remembers groups and value counters that were seen.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        tables: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        fixed_label: str = "",
        quarantine: Callable[[Sequence[Rejected]], None] | None = None,
        run: Run[Any] = one_by_one,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        margin: float = 1.0,
        tasks: Callable[[Push | Refresh, float], None] | None = None,
        budget: Budget | None = None,
        pace: Callable[[int], None] = lambda writes: None,
        new_rules: RuleState = LIVE,
        generations: Generations | None = None,
    ) -> None:
        self._margin = margin
        self._setup = Setup(
            program=program,
            store=store,
            tables=dict(tables),
            labels=dict(labels or {}),
            fixed_label=fixed_label,
            quarantine=quarantine,
            run=in_few_pieces(run),
            clock=clock,
            sleep=sleep,
            chance=chance,
            tasks=tasks,
            budget=budget or Budget(0),
            pace=pace,
            generations=generations or Generations(),
            registry=Registry(program, store, new_rules),
        )

    def process(self, records: Sequence[Any], *, remaining: Callable[[], float]) -> Outcome:
        """Apply a batch. `remaining` gives the seconds until the invocation is stopped.

        Raises `errors.Misconfigured` if the tables cannot be used at all; nothing else.
        """
        setup = self._setup
        deadline = Deadline(remaining, margin=self._margin, sleep=setup.sleep, chance=setup.chance)
        batch = _Batch(setup, deadline)
        batch.report.counters.add("records", len(records))
        try:
            with full_collections.postponed() if len(records) >= _LARGE else nullcontext():
                batch.process(records)
        except OutOfTime as error:
            batch.report.give_up(records, str(error))
        return batch.report.outcome(setup.quarantine, batch.freshness())


class _Batch:
    """One batch, from stage to stage."""

    def __init__(self, setup: Setup, deadline: Deadline) -> None:
        self._setup = setup
        self._deadline = deadline
        self._snapshot: RegistrySnapshot | None = None
        self.report = Report()

    def freshness(self) -> dict[str, tuple[float, float]]:
        """Return the ages of the oldest and the newest change for each rule that publishes.

        Counts the rules that publish only after their backfill. Clocks differ: no age is negative.
        """
        found: dict[str, tuple[float, float]] = {}
        filling: set[str] = set()
        times = self.report.times
        if self._snapshot is None or not times:
            return found
        now = self._setup.clock()
        for rule in self._setup.program.variants:
            made = times.get(rule.source.name)
            if made is None:
                continue
            if not self._snapshot.publishes(rule):
                if self._snapshot.state(rule) == FILLING:
                    filling.add(rule.name)
                continue
            oldest, newest = max(0.0, now - made[0]), max(0.0, now - made[1])
            before = found.get(rule.name, (oldest, newest))
            found[rule.name] = max(before[0], oldest), min(before[1], newest)
        self.report.counters.add("filling", len(filling))
        return found

    def process(self, records: Sequence[Any]) -> None:
        """Take the records through all stages. Raises OutOfTime, Misconfigured."""
        decoded = decode_all(self._deadline.checked(records), self._decode)
        self.report.rejected.extend(decoded.rejected)
        admitted = self._admit(records)
        if admitted is not None and not self._process_together(admitted, decoded.records):
            self._process_singly(admitted, decoded.records)

    def _decode(self, record: Any) -> Record:
        setup = self._setup
        return decode(record, setup.tables, setup.program.tables, setup.labels, setup.fixed_label)

    def _admit(self, records: Sequence[Any]) -> Admitted | None:
        """Return what the stages work with. None if the rules are not active, or if the registry cannot be read now.

        Then all records are reported as failed, also those that were rejected: by rules that may not be active.
        """
        setup = self._setup
        reason = OUTDATED
        try:
            snapshot = self._deadline.retry(setup.registry.admit)
            if not snapshot.outdated(setup.program):
                self._snapshot = snapshot
                guards = Guards(setup.program, snapshot.identity)
                return Admitted(setup, snapshot, guards, self._deadline, self.report)
        except Misconfigured:
            raise
        except StoreError as error:
            reason = f"the registry could not be read or written: {error}"
        self.report.give_up(records, reason)
        return None

    def _plan(self, admitted: Admitted, records: Sequence[Record], deadline: Deadline) -> Plan:
        snapshot = admitted.snapshot
        made = plan(self._setup.program, records, admitted.guards, snapshot.settles, deadline, snapshot.mixed)
        if made.rivals:
            self.report.counters.add("rival", sum(n for (_, replaced), n in made.rivals.items() if replaced))
            left = left_to(self._setup.store, made.rivals, self._setup.clock())
            if not left <= admitted.guards.leaves:
                admitted.guards.leaves |= left
                made = plan(self._setup.program, records, admitted.guards, snapshot.settles, deadline, snapshot.mixed)
        self.report.rejected.extend(made.rejected)
        self.report.saw(made.times)
        self.report.healing.update(made.healing)
        return made

    def _steps(self, admitted: Admitted, made: Plan) -> Iterator[Callable[[], object]]:
        """Yield what a plan asks for, in order."""
        if not made.idle:
            yield partial(Aggregation(admitted).apply, made.changes)
            yield from ItemWrites(admitted).steps(made)

    def _process_together(self, admitted: Admitted, records: Sequence[Record]) -> bool:
        """Apply the records as a whole. Return False if that fails with an error that names no record."""
        try:
            made = self._plan(admitted, records, self._deadline)
            self.report.counters.add("ignored", made.ignored)
            for step in self._steps(admitted, made):
                step()
        except (Misconfigured, OutOfTime):
            raise
        except Exception as error:
            self.report.unexpected(error)
            return False
        return True

    def _process_singly(self, admitted: Admitted, records: Sequence[Record]) -> None:
        """Apply each record alone, and each of its steps: what cannot be done for one is rejected, the others are done.

        For what must not happen: values that a rule or the store cannot process, a request of ours that DynamoDB refuses.
        """
        for record in records:
            if self._deadline.over:
                self.report.fail([record.sequence], str(self._deadline.out_of_time))
                continue
            try:
                made = self._plan(admitted, [record], UNLIMITED)
            except Exception as error:
                self.report.unusable(record, error)
                continue
            for step in self._steps(admitted, made):
                try:
                    step()
                except Misconfigured:
                    raise
                except Exception as error:
                    self.report.unusable(record, error)

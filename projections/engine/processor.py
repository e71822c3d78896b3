"""A batch of stream records on its way: decode → admit → plan → commit → publish → forget.

    decode    records as Lambda passes them → `Decoded`: per item in the order of their versions (`records`)
    admit     the registry → `Batch`: which versions of rules functions work with, and which are published
    plan      records → `Plan`, pure (`plan`)
    commit    changes of contributions → `Result`s: the ledger, many source items per transaction (`stages`, `ledger`)
    publish   the targets of results show what the groups hold (`stages`, `publishing`)
    forget    the entries no longer name what was published (`stages`, `publishing`)
    others    copies, index attributes, releases, heals, embeds: one conditional write each, in any order (`stages`)

Invariants:

- The registry is read in each invocation, and again where the ledger or an item shows that it has changed (`Reload`): then
  the whole batch is done anew. Changes that were committed before are duplicates.
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
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

from projections.engine.budget import Budget, Refresh
from projections.engine.changes import difference
from projections.engine.embeds import Push
from projections.engine.groups import spread
from projections.engine.guards import Guards
from projections.engine.lanes import Handover, is_overtaken
from projections.engine.ledger_items import SHARD_COUNT, Target, group_key
from projections.engine.plan import Plan, plan
from projections.engine.records import Record, decode, decode_all
from projections.engine.registry import REGISTRY, Registry, RegistrySnapshot
from projections.engine.rejections import Rejected
from projections.engine.rivals import Overwrites, left_to
from projections.engine.running import UNLIMITED, Deadline, OutOfTime, Reload, Run, in_few_pieces, one_by_one
from projections.engine.stages import Batch, Outcome, Report
from projections.engine.store import ItemKey, Store
from projections.engine.value_counters import ValueCounters
from projections.errors import Misconfigured, StoreError
from projections.language.program import Program
from projections.language.rules import public_name

_MOST_RELOADS = 5
"""How often a batch is done anew because the registry has changed."""

_LARGE = 100
"""Records from which a batch is large."""

_WARY = 100
"""Lone records after one whose groups had changed since they were read: to send its transaction again took 4 units."""


class _Collections:
    """Postpones full garbage collections. Safe for threads; the first who enters saves the setting, the last restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._threshold = gc.get_threshold()

    @contextmanager
    def postpone(self) -> Iterator[None]:
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
    """Applies the rules in the registry to batches of stream records. `packaged` begin an empty registry.

    `tables` maps table names in stream ARNs to logical names. `fixed_label` replaces the stream label in the ARNs of all
    records (for emulators whose ARN is not stable). `quarantine` takes what is rejected; without it, rejected records are
    reported as failed. `run` runs independent requests (at once, in Lambda). `clock` gives seconds since 1970. `tasks` takes
    the pages of a push that are left after the first, and refreshes of items whose changes exceed `budget`, with the seconds
    they should wait; without it everything is done at once. `pace` is called with the number of writes before every few
    writes to children, and may wait. `filled`: the tables were empty when the registry was, so the packaged rules are active
    at once. `values` remembers value counters that were seen.
    """

    def __init__(
        self,
        packaged: Program,
        store: Store,
        *,
        tables: Mapping[str, str],
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
        filled: bool = True,
        values: ValueCounters | None = None,
    ) -> None:
        self._store = store
        self._tables = dict(tables)
        self._label = fixed_label
        self._quarantine = quarantine
        self._clock = clock
        self._deadline = partial(Deadline, margin=margin, sleep=sleep, chance=chance)
        self._registry = Registry(packaged, store, filled=filled, now=clock)
        self._handover = Handover(store, self._registry, clock)
        self._overwrites = Overwrites(clock)
        self._last: Batch | None = None
        self._wary = 0
        """How many lone records are committed without their groups having been read before."""
        self._batch = partial(
            Batch,
            store=store,
            handover=self._handover,
            run=in_few_pieces(run),
            clock=clock,
            tasks=tasks,
            budget=budget or Budget(0),
            pace=pace,
            values=values or ValueCounters(),
        )

    def process(self, records: Sequence[Any], *, remaining: Callable[[], float], shard: str = "") -> Outcome:
        """Apply a batch. `remaining` gives the seconds until the invocation is stopped, `shard` is the ID of the stream's
        shard, empty if the event source does not send it.

        Raises `errors.Misconfigured` if the tables cannot be used at all; nothing else.
        """
        deadline, report, batch = self._deadline(remaining), Report(), None
        first: list[RegistrySnapshot] = []
        try:
            with full_collections.postpone() if len(records) >= _LARGE else nullcontext():
                for _ in range(_MOST_RELOADS):
                    report = Report()
                    report.counters.add("records", len(records))
                    try:
                        batch = self._apply(records, shard, first, deadline, report)
                        break
                    except Reload as reload:
                        deadline.retry(partial(self._registry.overtake, reload))
                else:
                    report.give_up(records, "the registry keeps changing")
        except OutOfTime as error:
            report.give_up(records, str(error))
        except Misconfigured:
            raise
        except StoreError as error:
            report.give_up(records, f"the registry could not be read or written: {error}")
        report.note_stale(self._registry.marked)
        self._registry.marked.clear()
        if batch is not None:
            gaps = {version.name for version in batch.snapshot.maintained if version.gap}
            report.counters.add("gaps", len(gaps.union(batch.gaps, batch.split.uncounted)))
        freshness = self._freshness(batch) if batch is not None and report.times else {}
        return report.outcome(self._quarantine, freshness)

    def _apply(
        self, records: Sequence[Any], shard: str, first: list[RegistrySnapshot], deadline: Deadline, report: Report
    ) -> Batch | None:
        """Apply a batch by the registry as it is now. Raises Reload, and StoreError if the registry cannot be read.

        `first` gets the registry that the invocation read first. Returns None if the batch must be left to a later one.
        """
        likely = self._likely_groups(records)
        items = deadline.retry(partial(self._store.get_many, [REGISTRY, *likely.values()])) if likely else {}
        snapshot, program = deadline.retry(partial(self._registry.current, items.get(REGISTRY)))
        if not first:
            first.append(snapshot)
        elif is_overtaken(first[0], snapshot):
            report.give_up(records, "a version of a rule with `ledger: lanes` was registered meanwhile")
            return None
        decode_one = partial(decode, tables=self._tables, schemas=program.tables, fixed_label=self._label)
        decoded = decode_all(deadline.check_each(records), decode_one)
        batch = self._batch(
            program=program,
            snapshot=snapshot,
            guards=Guards(program, snapshot.identity, snapshot.promotions, snapshot.replaced),
            deadline=deadline,
            report=report,
            documents=self._registry.documents,
            split=self._handover.split(program, snapshot, shard, decoded.records, deadline),
            read={each: group for each, key in likely.items() if SHARD_COUNT not in (group := items.get(key, {}))},
        )
        report.rejected.extend(decoded.rejected)
        if decoded.rejected:
            batch.note_gaps(program.lanes, "a record could not be read")
        if not self._process_together(batch, decoded.records):
            self._process_singly(batch, decoded.records)
        if batch.ledger.transactions.has_missed:
            self._wary = _WARY
        self._last = batch
        return batch

    def _likely_groups(self, records: Sequence[Any]) -> dict[Target, ItemKey]:
        """Return the groups that a lone record probably changes, by the rules of the last batch, to read with the registry.

        If another function changes one before the commit, the transaction is sent twice: costly with many records, or if it
        happens often.
        """
        if self._last is None or len(records) != 1:
            return {}
        if self._wary:
            self._wary -= 1
            return {}
        program = self._last.program
        with suppress(Exception):  # reported by the plan
            record = decode(records[0], self._tables, program.tables, self._label)
            before, after = (program.evaluate(record.key, image).contributions for image in (record.old, record.new))
            targets = self._last.publisher.publishing_rules(difference(before, after))
            single = [each for each in targets if each[0] not in program.lanes and spread(program, each) == 1]
            return {target: group_key(*target) for target in single}
        return {}

    def _plan(self, batch: Batch, records: Sequence[Record], deadline: Deadline) -> Plan:
        report, guards, snapshot = batch.report, batch.guards, batch.snapshot
        make = partial(plan, batch.program, records, guards, deadline, snapshot.removed, snapshot.standby, batch.split)
        made = make()
        if made.rivals:
            report.counters.add("rival", sum(n for (_, replaced), n in made.rivals.items() if replaced))
            ledgers = left_to(self._store, made.rivals, self._clock())
            if not ledgers <= guards.leaves:
                guards.leaves |= ledgers
                made = make()
        report.rejected.extend(made.rejected)
        report.saw(made.times)
        report.healing.update(made.healing)
        left = {key for key in made.overwritten if batch.tasks is not None and self._overwrites.exceeds(key)}
        uncounted = {write.key for write in made.indexes}.union(key for _, key in made.pulls)
        report.counters.add("healed", len(left.union(made.overwritten.keys() & uncounted)))
        for key in left:
            batch.leave_item(made.overwritten[key], self._overwrites)
        return made.without(left) if left else made

    def _steps(self, batch: Batch, made: Plan) -> Iterator[Callable[[], object]]:
        """Yield what a plan asks for, in order."""
        if not made.idle:
            yield partial(batch.apply_changes, made.changes, made.parts, made.later)
            yield from batch.other_writes(made)

    def _process_together(self, batch: Batch, records: Sequence[Record]) -> bool:
        """Apply the records as a whole. Return False if that fails with an error that names no record."""
        try:
            made = self._plan(batch, records, batch.deadline)
            batch.report.counters.add("ignored", made.ignored)
            for step in self._steps(batch, made):
                step()
        except (Misconfigured, OutOfTime, Reload):
            raise
        except Exception as error:
            batch.report.note_unexpected(error)
            return False
        return True

    def _process_singly(self, batch: Batch, records: Sequence[Record]) -> None:
        """Apply each record alone, and each of its steps: what cannot be done for one is rejected, the others are done.

        For what must not happen: values that a rule or the store cannot process, a request of ours that DynamoDB refuses.
        """
        for record in records:
            if batch.deadline.over:
                batch.report.fail([record.sequence], str(batch.deadline.out_of_time))
                continue
            if batch.split.lane is not None and batch.report.repeats:  # a later record would make it a duplicate
                batch.report.fail([record.sequence], "an earlier record of the shard has to be applied first")
                continue
            try:
                made = self._plan(batch, [record], UNLIMITED)
            except Exception as error:
                batch.report.unusable(record, error)
                batch.note_unusable(error)
                continue
            for step in self._steps(batch, made):
                try:
                    step()
                except (Misconfigured, Reload):
                    raise
                except Exception as error:
                    batch.report.unusable(record, error)
                    batch.note_unusable(error)

    def _freshness(self, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return the ages of the oldest and the newest change for each rule that publishes.

        Counts the rules with a filling version. Clocks differ: no age is negative.
        """
        ages: dict[str, tuple[float, float]] = {}
        filling: set[str] = set()
        now = self._clock()
        for rule in batch.program.variants:
            made = batch.report.times.get(rule.source.name)
            if made is None:
                continue
            name = public_name(rule.name)
            if not batch.snapshot.publishes(rule):
                if batch.snapshot.state(rule) == "filling":
                    filling.add(name)
                continue
            oldest, newest = max(0.0, now - made[0]), max(0.0, now - made[1])
            before = ages.get(name, (oldest, newest))
            ages[name] = max(before[0], oldest), min(before[1], newest)
        batch.report.counters.add("filling", len(filling))
        return ages

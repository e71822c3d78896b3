"""A batch of stream records from decoding to the answer: gather, decide, apply."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from projections.engine.copies import Copier, CopyHeal, CopyWrite
from projections.engine.effort import Effort, Run, one_by_one
from projections.engine.groups import Generations
from projections.engine.indexes import IndexWrite, write_index
from projections.engine.ledger import Change, Ledger
from projections.engine.ledger_items import Entry, Target, entry_key, recent_element
from projections.engine.plan import Plan, Rejected, plan
from projections.engine.publishing import Publisher
from projections.engine.records import Record, decode, unsound
from projections.engine.store import Equal, ItemKey, Store, Update, Value
from projections.engine.tally import Tally
from projections.errors import BadInput, ConditionFailed, InvalidRequest, StoreError, Transient
from projections.language.keys import encode_key
from projections.language.program import Program

__all__ = ["Outcome", "Processor", "Rejected"]

TOMBSTONE_SECONDS = 7 * 24 * 3600
"""How long the entry of a removed item is kept: well beyond the 24 hours for which a stream holds its records."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch.

    `failed` is the lowest sequence number to be delivered again, None if everything was done. `rejected` is what no
    delivery will ever achieve. `counts` are for metrics.
    """

    failed: str | None
    failed_reason: str | None
    rejected: tuple[Rejected, ...]
    counts: Mapping[str, int]


class Processor:
    """Applies batches of stream records under a program of rules.

    `tables` maps table names in stream ARNs to logical names. `labels` gives each logical table's stream label where it is
    known for certain. `quarantine` takes what is rejected; without it, rejected records are reported as failed. `run`
    runs independent requests (at once, in Lambda). `clock` gives seconds since 1970.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        tables: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        quarantine: Callable[[Sequence[Rejected]], None] | None = None,
        run: Run[Any] = one_by_one,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        margin: float = 1.0,
    ) -> None:
        self._program = program
        self._store = store
        self._tables = dict(tables)
        self._labels = dict(labels or {})
        self._quarantine = quarantine
        self._run = run
        self._clock = clock
        self._sleep = sleep
        self._chance = chance
        self._margin = margin
        self._generations = Generations()

    def process(self, records: Sequence[Any], *, remaining: Callable[[], float]) -> Outcome:
        """Applies a batch. `remaining` gives the seconds until the invocation is stopped.

        Raises `errors.Misconfigured` if the tables cannot be used at all; nothing else.
        """
        effort = Effort(remaining, margin=self._margin, sleep=self._sleep, chance=self._chance)
        batch = _Batch(self, effort)
        decoded = batch.decode(records)
        made = batch.plan(decoded)
        batch.rejected.extend(made.rejected)
        batch.tally.add("records", len(records))
        batch.tally.add("ignored", made.ignored)
        batch.apply(made)
        return batch.outcome()


class _Batch:
    """One batch on its way: what failed, what was rejected, what was done."""

    def __init__(self, processor: Processor, effort: Effort) -> None:
        self._processor = processor
        self._program = processor._program
        self._store = processor._store
        self._run = processor._run
        self._effort = effort
        self.failures: dict[str, str] = {}
        self.rejected: list[Rejected] = []
        self.tally = Tally()

    def decode(self, records: Sequence[Any]) -> list[Record]:
        decoded = []
        schemas = self._program.tables
        for record in records:
            try:
                decoded.append(decode(record, self._processor._tables, schemas, self._processor._labels))
            except BadInput as reason:
                change = record.get("dynamodb") if isinstance(record, Mapping) else None
                sequence = change.get("SequenceNumber") if isinstance(change, Mapping) else None
                self.rejected.append(
                    Rejected(None, str(reason), sequence=sequence if isinstance(sequence, str) else None)
                )
        return decoded

    def plan(self, records: list[Record]) -> Plan:
        """Plans a batch. Values that no table can hold may break a rule; then they are looked for, one by one.

        They are not looked for at first, because DynamoDB never sends them, and looking costs more than planning.
        """
        try:
            return plan(self._program, records)
        except Exception:
            sound = []
            for record in records:
                problem = unsound(record) or self._unplannable(record)
                if problem is None:
                    sound.append(record)
                else:
                    key = encode_key(record.key)
                    self.rejected.append(Rejected(None, problem, key, record.sequence, record.key.table, record.event))
            return plan(self._program, sound)

    def _unplannable(self, record: Record) -> str | None:
        try:
            plan(self._program, [record])
        except Exception as error:
            return f"the rules cannot be evaluated on this item: {type(error).__name__}: {error}; please report this"
        return None

    def apply(self, made: Plan) -> None:
        self._ledger(made.changes)
        pieces: list[Callable[[], None]] = []
        copier = Copier(self._program, self._store, self.tally)
        pieces += [partial(self._copy, copier, copy) for copy in made.copies]
        pieces += [partial(self._index, write) for write in made.indexes]
        self._run(pieces)
        self._run([partial(self._heal_copy, copier, heal) for heal in _distinct(made.copy_heals)])
        publisher = self._publisher()
        for target, error in publisher.heal(made.heals, self._effort).items():
            self._failed([made.heals[target]], error, rule=target[0], key=target[1])

    def _publisher(self) -> Publisher:
        return Publisher(self._program, self._store, self._processor._generations, run=self._run, tally=self.tally)

    # Aggregates: commit, publish, and only then forget what was to be published.

    def _ledger(self, waves: Sequence[Sequence[Change]]) -> None:
        processor = self._processor
        ledger = Ledger(
            self._program,
            self._store,
            run=self._run,
            chance=processor._chance,
            generations=processor._generations,
            tally=self.tally,
        )
        publisher = self._publisher()
        failed: set[str] = set()
        for wave in waves:
            changes = []
            for change in wave:
                if change.source in failed:  # an earlier change of the same item has to come first
                    self._fail(change.sequences, "an earlier change of the same item failed")
                else:
                    changes.append(change)
            ledger.commit(changes, self._effort)
            for change in changes:
                if change.state == "failed":
                    failed.add(change.source)
                    self._fail(change.sequences, str(change.error))
                self.tally.add({"applied": "applied", "duplicate": "duplicates"}.get(change.state, "failed"))
                for rule, reason in change.rejected:
                    table = change.source.partition("|")[0]
                    self.rejected.append(Rejected(rule, reason, change.source, change.sequences[-1], table))
            done = [change for change in changes if change.state != "failed"]
            if done:
                self._publish(done, publisher)

    def _publish(self, changes: Sequence[Change], publisher: Publisher) -> None:
        try:
            owing = self._owing(changes)
        except Transient as error:
            for change in changes:
                self._fail(change.sequences, str(error))
            return
        targets = {target for change in changes for target in change.touched}
        failures = publisher.publish(targets, self._effort)
        for target, failure in failures.items():
            sequences = [change.sequences[0] for change in changes if target in change.touched]
            self._failed(sequences, failure, rule=target[0], key=target[1])
        self._run([partial(self._forget, change, entry, failures) for change, entry in owing])

    def _owing(self, changes: Sequence[Change]) -> list[tuple[Change, Entry]]:
        """The changes whose entries remember targets to be published, with those entries as they are before publishing."""
        owing = [c for c in changes if c.retracted or not c.goal or (c.entry is not None and c.entry.recent)]
        if not owing:
            return []
        items = self._store.get_many([entry_key(change.source) for change in owing])
        found = []
        for change in owing:
            item = items.get(entry_key(change.source))
            if item is not None:
                entry = Entry.read(item)
                change.touched |= entry.targets
                found.append((change, entry))
        return found

    def _forget(self, change: Change, entry: Entry, failures: Mapping[Target, StoreError]) -> None:
        """Takes published targets out of `recent`, if the entry is still as it was before they were published."""
        published = {recent_element(target) for target in change.touched - failures.keys()} & entry.recent
        ended = not entry.contributions and published == entry.recent
        if not published and not ended:
            return
        expiry: Value = {"N": str(int(self._processor._clock()) + TOMBSTONE_SECONDS)}
        update = Update(
            entry_key(change.source),
            set={"ttl": expiry} if ended else {},
            discard={"recent": {"SS": sorted(published)}} if published else {},
            condition=Equal(("revision",), {"N": str(entry.revision)}),
        )
        try:
            self._effort.check()
            self._store.write(update)
        except ConditionFailed:
            return  # committed to since; whoever did that publishes and forgets
        except StoreError as error:
            self._failed(change.sequences[:1], error, rule=None, key=change.source)

    # Copies and indexes.

    def _copy(self, copier: Copier, copy: CopyWrite) -> None:
        self._attempt(partial(copier.write, copy, self._effort), copy.sequence, copy.rule.name, copy.source)

    def _heal_copy(self, copier: Copier, heal: CopyHeal) -> None:
        self._attempt(partial(copier.heal, heal, self._effort), heal.sequence, heal.rule.name, encode_key(heal.target))

    def _index(self, write: IndexWrite) -> None:
        def apply() -> None:
            if write_index(self._store, write):
                self.tally.add("indexed")

        self._attempt(apply, write.sequence, ", ".join(write.rules), encode_key(write.key))

    def _attempt(self, work: Callable[[], None], sequence: str, rule: str, key: str) -> None:
        attempt = 0
        while True:
            try:
                self._effort.check()
                return work()
            except Transient as error:
                attempt += 1
                try:
                    self._effort.pause(attempt)
                except Transient:
                    return self._failed([sequence], error, rule=rule, key=key)
            except InvalidRequest as error:
                return self._failed([sequence], error, rule=rule, key=key)

    # The answer.

    def _failed(self, sequences: Iterable[str], error: StoreError, *, rule: str | None, key: str) -> None:
        if isinstance(error, InvalidRequest):
            for sequence in sequences:
                self.rejected.append(Rejected(rule, str(error), key, sequence, key.partition("|")[0]))
        else:
            self._fail(sequences, str(error))

    def _fail(self, sequences: Iterable[str], reason: str) -> None:
        for sequence in sequences:
            self.failures.setdefault(sequence, reason)

    def outcome(self) -> Outcome:
        quarantine = self._processor._quarantine
        rejected = list(dict.fromkeys(self.rejected))
        if rejected:
            reason = (
                "no quarantine queue is configured (QUARANTINE_QUEUE_URL); a record was rejected: " + rejected[0].reason
            )
            try:
                if quarantine is not None:
                    quarantine(rejected)
            except StoreError as error:
                reason, quarantine = f"the quarantine could not be written: {error}", None
            if quarantine is None:
                self._fail([r.sequence for r in rejected if r.sequence is not None], reason)
                if any(r.sequence is None for r in rejected):
                    self._fail([""], reason)  # no sequence number to name: the whole batch
        lowest = min(self.failures, key=lambda sequence: (len(sequence), sequence), default=None)
        self.tally.add("rejected", len(rejected))
        return Outcome(
            failed=lowest,
            failed_reason=self.failures[lowest] if lowest is not None else None,
            rejected=tuple(rejected),
            counts=self.tally.counts,
        )


def _distinct(heals: Iterable[CopyHeal]) -> list[CopyHeal]:
    """One heal per copy: all sources named, each with the newest version shown, and the first sequence number that asked."""
    found: dict[ItemKey, CopyHeal] = {}
    for heal in heals:
        known = found.setdefault(heal.target, heal)
        newest = {source: max(at, known.sources.get(source, "")) for source, at in heal.sources.items()}
        found[heal.target] = replace(known, sources={**known.sources, **newest})
    return list(found.values())

"""The outcome of a batch: which records failed, which were rejected, what was counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from projections.engine.records import WHOLE_BATCH, Record, sequence_of
from projections.engine.rejections import (
    INTERNAL,
    Rejected,
    distinct,
    internal,
    is_internal,
    rejected_by,
    sequence_order,
    trace_of,
)
from projections.errors import InvalidRequest, StoreError, Transient
from projections.language.keys import encode_key


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a batch.

    `failed` is the lowest sequence number to be delivered again (or WHOLE_BATCH), None if everything was done. `rejected`
    are the records that no delivery can apply; those `repeated` are not sent to the quarantine again. `counts` are for
    metrics. `internal` are the traces of unexpected exceptions of the whole batch that did not occur again when each record
    was applied alone; where they did, they are in `rejected`. `freshness` has, by rule, the ages in seconds of the oldest
    and of the newest change that it read, at the end of the batch.
    """

    failed: str | None
    failed_reason: str | None
    rejected: tuple[Rejected, ...]
    counts: Mapping[str, int]
    internal: tuple[str, ...] = ()
    freshness: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    repeated: tuple[Rejected, ...] = ()
    healing: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Of heals, by rule, reason and attributes: how many there were, and the encoded key of one target."""


class Report:
    """Gathers failures and rejections of records, by their sequence numbers. Safe for the threads of a batch."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.rejected: list[Rejected] = []
        self._failures: dict[str, str] = {}
        self._internal: list[str] = []
        self.times: dict[str, tuple[float, float]] = {}
        """By entity: when the oldest and the newest change of its items was made."""
        self.healing: dict[str, tuple[int, str]] = {}

    def give_up(self, records: Sequence[Any], reason: str) -> None:
        """Report all records, as Lambda passed them, as failed and none as rejected: they are delivered again."""
        self.rejected.clear()
        sequences = [sequence for sequence in map(sequence_of, records) if sequence is not None]
        self.fail(sequences or [WHOLE_BATCH], reason)

    def fail(self, sequences: Iterable[str], reason: str) -> None:
        """Report records to be delivered again."""
        for sequence in sequences:
            self._failures.setdefault(sequence, reason)

    def refuse(
        self,
        sequences: Iterable[str],
        error: StoreError,
        *,
        rule: str | None,
        key: str,
        target: str | None = None,
        source: str | None = None,
    ) -> None:
        """Report records whose write failed: as rejected if DynamoDB refuses it (`rejected_by`), else as failed."""
        if isinstance(error, InvalidRequest):
            for sequence in sequences:
                self.rejected.append(rejected_by(error, rule, key, sequence, target=target, source=source))
        else:
            self.fail(sequences, str(error))

    def unusable(self, record: Record, error: Exception) -> None:
        """Report a record at which a stage raised any error."""
        if isinstance(error, Transient):
            return self.fail([record.sequence], str(error))
        key = encode_key(record.key)
        if is_internal(error):
            self.rejected.append(internal(error, key, record.sequence, event=record.event))
        else:
            self.rejected.append(Rejected(None, str(error), key, record.sequence, record.key.table, record.event))
        return None

    def unexpected(self, error: Exception) -> None:
        """Note an error of the batch as a whole, if it is an internal one. The record that causes it is found alone."""
        if is_internal(error):
            self._internal.append(trace_of(error))

    def saw(self, times: Mapping[str, tuple[float, float]]) -> None:
        """Note when changes were made, by entity."""
        for entity, (first, last) in times.items():
            before = self.times.get(entity, (first, last))
            self.times[entity] = min(before[0], first), max(before[1], last)

    def outcome(
        self,
        quarantine: Callable[[Sequence[Rejected]], None] | None,
        freshness: Mapping[str, tuple[float, float]] | None = None,
    ) -> Outcome:
        """Pass what was rejected to the quarantine, and return the outcome.

        Rejected records that the quarantine does not take are reported as failed: no record is lost.
        """
        found = distinct(self.rejected) if self.rejected else []
        rejected = [one for one in found if not one.repeated]
        repeated = tuple(one for one in found if one.repeated)
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
                self.fail([r.sequence for r in rejected if r.sequence is not None], reason)
                if any(r.sequence is None for r in rejected):
                    self.fail([WHOLE_BATCH], reason)
        first = self._first_failure()
        self.counters.add("rejected", len(rejected))
        self.counters.add("repeated", len(repeated))
        at_records = sum(one.fault == INTERNAL for one in rejected)
        traces = () if at_records else tuple(self._internal)
        self.counters.add("internal", at_records or len(traces))
        return Outcome(
            failed=first,
            failed_reason=self._failures[first] if first is not None else None,
            rejected=tuple(rejected),
            repeated=repeated,
            counts=self.counters.counts,
            internal=traces,
            freshness=freshness or {},
            healing=self.healing if self.counters.counts["healed"] else {},  # the record of a heal requires another one
        )

    def _first_failure(self) -> str | None:
        return min(self._failures, key=sequence_order, default=None)


COUNTS = (
    "records",
    "ignored",
    "applied",
    "duplicates",
    "deferred",
    "failed",
    "transactions",
    "published",
    "copies",
    "indexed",
    "healed",
    "rival",
    "released",
    "embedded",
    "pulled",
    "rejected",
    "repeated",
    "filling",
    "cut",
    "internal",
)
"""What an invocation counts. docs/metrics.md describes each."""


class Counters:
    """Counts by the names in COUNTS, all of them from the start."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(COUNTS, 0)
        self._lock = threading.Lock()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)

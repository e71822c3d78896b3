"""The loop of a session: read the streams, deliver, do the tasks, reload the rule file, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from projections.aws.streams import StreamGone, StreamReader, is_dynamodb_local
from projections.dev.active_rules import ActiveRules
from projections.dev.delivery import Reporter, Totals
from projections.dev.followed import Followed
from projections.dev.projector import Projector
from projections.dev.rules_file import RulesFile
from projections.dev.target import Target, stream_of
from projections.engine.guards import Guards, Identity
from projections.engine.records import stream_label
from projections.engine.registry import Registry
from projections.engine.rivals import rivals
from projections.errors import Misconfigured, Transient, UsageError
from projections.language.program import Program
from projections.local.event_source import Batch, Discard
from projections.local.tables import QUIET, QUIET_AT_AWS
from projections.terminal import styled

__all__ = ["Options", "Session"]


@dataclass(frozen=True, slots=True)
class Options:
    """How to run. `latest` skips records that are in the streams already. `backfill` None: where one is needed."""

    latest: bool = True
    until_idle: bool = False
    backfill: bool | None = None
    batch_size: int | None = None


class Session:
    """One run of the loop. `stop`, from a signal handler, ends it after the current delivery."""

    def __init__(
        self, target: Target, file: RulesFile, program: Program, streams: Any, report: Reporter, options: Options
    ) -> None:
        self._target = target
        self._file = file
        self._streams = streams
        self._report = report
        self._options = options
        self._pace = _AT_EMULATORS if target.emulated else _AT_AWS
        self._stopped = threading.Event()
        self._projector = Projector(target.live, program)
        self._rules = ActiveRules(target, file, self._projector, report, options.backfill)
        self._followed: dict[str, Followed] = {}
        self._paused: dict[str, float] = {}
        self._failures = 0
        self._lost = False
        self._lost_reported = False
        self._warned = False
        self._discovered = 0.0
        self._backfill_later = False

    @property
    def totals(self) -> Totals:
        return self._projector.totals

    def stop(self) -> None:
        """Stop. In a backfill, raises KeyboardInterrupt, which ends it after the current pages."""
        self._stopped.set()
        if self._rules.backfilling:
            raise KeyboardInterrupt

    def run(self) -> None:
        """Run until stopped or, with `until_idle`, idle. Raises Misconfigured and UsageError if it cannot continue."""
        latest = self._options.latest
        for logical in self._projector.program.tables:
            self._follow(logical, latest=latest)  # before the backfill, so that it misses no write
        self._use_labels()
        self._warn_of_guards()
        self._backfill_later = self._rules.begin(stream_first=not latest)
        if not self._stopped.is_set():
            self._report_start(latest)
        self._loop()
        if self._backfill_later:
            text = styled("[yellow]Items older than the stream were not read: run `projections backfill`[/]")
            self._report.note(text, "backfill missing")
        self._report.totals(self.totals, last=True)

    def _warn_of_guards(self) -> None:
        """Warn if the first items of a table have guards of another ledger."""
        program, store = self._projector.program, self._projector.store
        snapshot = Registry(program, store).read()
        guards = Guards(program, snapshot.identity if snapshot is not None else Identity("", ()))
        found: set[str] = set()
        for table, schema in program.tables.items():
            for image in store.scan(table, limit=100).items:
                names = [guards.rule(name) for name in image if guards.is_guard(name)]
                found |= {guards.other_ledger(name, schema.key(table, image), image) for name in names}
        self._warn_of(sorted(found - {""}), "its items have guards")

    def _warn_of_rivals(self) -> None:
        """Warn once of other ledgers that replace guards of this one."""
        if self._projector.rivalled and not self._warned:
            self._warn_of([one.ledger for one in rivals(self._projector.store)], "guards are replaced by those")

    def _warn_of(self, ledgers: Sequence[str], why: str) -> None:
        if ledgers:
            self._warned = True
            text = (
                f"another ledger maintains this table, or did: {why} of {', '.join(ledgers)}. If a stack or another "
                "`projections dev` still does, stop one of them, or use a table of your own"
            )
            self._report.note(styled("[yellow]{}[/]", text), "other ledger", ledgers=list(ledgers))

    def _report_start(self, latest: bool) -> None:
        names = self._target.live.names
        tables = [names[logical] for logical in self._projector.program.tables]
        since = "from now on" if latest else "from the stream's beginning"
        end = "until idle" if self._options.until_idle else "press Ctrl-C to stop"
        text = styled("[bold]following {}[/] at {} {}, ledger ", ", ".join(tables), self._target.endpoint, since)
        self._report.note(
            text + f"{names['ledger']}; {end}",
            "following",
            tables=tables,
            ledger=names["ledger"],
            endpoint=self._target.endpoint,
            latest=latest,
            rules=list(self._projector.program.rules),
        )
        if any(is_dynamodb_local(followed.reader.arn) for followed in self._followed.values()):
            units = (
                "DynamoDB Local reports too few units for transactions, and only the minute of a change, so its age begins "
                "when it was read; MiniStack and AWS report the right numbers"
            )
            self._report.note(styled("[dim]{}[/]", units), "units", reason=units)

    def _loop(self) -> None:
        busy_until = reported_at = time.monotonic()
        reported = 0
        while not self._stopped.is_set():
            if self._file.changed():
                self._rules.reload()
            busy = self._read()
            busy = self._deliver() or busy
            busy = self._task() or busy
            now = time.monotonic()
            if busy:
                busy_until = now
            elif now - busy_until > self._pace.quiet and self._nothing_left():
                if self._backfill_later:
                    self._backfill_later = False
                    self._backfill()
                    busy_until = time.monotonic()
                elif self._options.until_idle:
                    return
            if self.totals.records != reported and now - reported_at > self._pace.totals and not self._stopped.is_set():
                self._report.totals(self.totals, last=False)
                reported, reported_at = self.totals.records, now
            if not busy:
                self._stopped.wait(self._pace.poll)

    def _nothing_left(self) -> bool:
        return not len(self._projector.queue) and not any(one.waiting for one in self._followed.values())

    # Streams

    def _follow(self, logical: str, *, latest: bool) -> None:
        arn = stream_of(self._target.live.client, self._target.live.names[logical])
        self._followed[logical] = followed = Followed(
            StreamReader(self._streams, arn),
            latest=latest,
            batch_size=self._options.batch_size,
            on_failure=partial(self._discarded, logical),
        )
        followed.discover()
        self._projector.labels[logical] = stream_label(arn)

    def _use_labels(self) -> None:
        self._projector.use(self._projector.program, self._projector.store)

    def _read(self) -> bool:
        """Read more of all streams. Return whether there was anything."""
        if self._lost:
            self._reopen()
            return not self._lost
        try:
            found = 0
            looks = time.monotonic() - self._discovered > self._pace.discover
            for followed in self._followed.values():
                if looks:
                    followed.discover()
                found += followed.poll()
                if followed.ended:
                    raise StreamGone(f"the stream {followed.reader.arn} is disabled")
            if looks:
                self._discovered = time.monotonic()
        except StreamGone:
            self._lost = True
            return True
        except Transient as error:
            if self._failures == 0:
                self._report.trouble(str(error))
            self._failures += 1
            self._stopped.wait(min(5.0, 0.5 * 2**self._failures))
            return False
        self._failures = 0
        return found > 0

    def _reopen(self) -> None:
        """Wait until a table that was deleted exists again, then follow its new stream and backfill.

        Raises UsageError at AWS and with `until_idle`, where the table is not expected to come back.
        """
        try:
            arns = {name: stream_of(self._target.live.client, self._target.live.names[name]) for name in self._followed}
        except UsageError as error:
            if self._options.until_idle or not self._target.emulated:
                raise
            if not self._lost_reported:
                self._report.note(styled("[yellow]{}; waiting for it[/]", error), "waiting", reason=str(error))
            self._lost_reported = True
            self._stopped.wait(1.0)
            return
        self._lost = self._lost_reported = False
        self._target.restore()
        for logical, arn in arns.items():
            if arn != self._followed[logical].reader.arn:
                self._follow(logical, latest=False)
                text = styled("[yellow]{} has a new stream: {}[/]", logical, arn)
                self._report.note(text, "new stream", table=logical, stream=arn)
        self._use_labels()
        self._backfill()

    def _backfill(self) -> None:
        try:
            self._rules.backfill(self._projector.program)
        except Misconfigured:
            self._lose()

    def _lose(self) -> None:
        """Treat the error being handled as a deleted table. Raises it again if no table was deleted."""
        if not self._target.lacks_tables():
            raise
        self._lost = True

    # Deliveries

    def _deliver(self) -> bool:
        """Deliver one batch of each table. Return whether there was any."""
        found = False
        for logical, followed in self._followed.items():
            if self._lost or self._paused.get(logical, 0.0) > time.monotonic():
                continue
            batch = followed.next_batch()
            if batch is not None:
                found = True
                self._invoke(logical, followed, batch)
        return found

    def _invoke(self, logical: str, followed: Followed, batch: Batch) -> None:
        try:
            invocation = self._projector.invoke(logical, batch)
        except Misconfigured as error:
            followed.finish(batch, error=error)
            self._lose()
            return
        self._report.delivered(invocation.delivery)
        self._warn_of_rivals()
        followed.finish(batch, invocation.answer, invocation.error)
        if invocation.delivery.failed is not None:
            self._paused[logical] = time.monotonic() + min(5.0, 0.25 * 2**batch.attempt)

    def _task(self) -> bool:
        try:
            delivery = None if self._lost else self._projector.work()
        except Misconfigured:
            self._lose()
            return False
        if delivery is not None:
            self._report.task(delivery)
        return delivery is not None

    def _discarded(self, logical: str, discard: Discard) -> None:
        self.totals.discarded += len(discard.records)
        schema = self._projector.program.tables[logical]
        for record in discard.records:
            key = schema.key(logical, record["dynamodb"]["Keys"])
            self._report.discarded(key, record["eventName"], self._projector.reason)


@dataclass(frozen=True, slots=True)
class _Pace:
    """Seconds between polls, between searches for new shards, without records until idle, and between totals."""

    poll: float
    discover: float
    quiet: float
    totals: float = 15.0


_AT_EMULATORS = _Pace(poll=0.2, discover=1.0, quiet=QUIET)
_AT_AWS = _Pace(poll=0.5, discover=10.0, quiet=QUIET_AT_AWS)
"""All readers of a shard together may call GetRecords 5 times a second; a deployed function calls it 4 times."""

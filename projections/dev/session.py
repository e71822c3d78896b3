"""The loop of a session: read the streams, deliver, do the tasks, reload the rule file, until it is stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from projections.aws.streams import StreamGone, StreamReader, is_dynamodb_local
from projections.dev.active_rules import ActiveRules, RulesFile
from projections.dev.followed import Followed
from projections.dev.projector import Projector, Reporter, Totals
from projections.dev.target import Target, stream_of
from projections.engine.guards import Guards, Identity
from projections.engine.records import stream_label
from projections.engine.registry import Registry
from projections.engine.rivals import rivals
from projections.errors import Transient, UsageError
from projections.inspect.explain.words import key_words
from projections.language.program import Program
from projections.local.event_source import Record
from projections.local.tables import QUIET
from projections.terminal import styled

__all__ = ["Session"]

POLL_SECONDS = 0.2
DISCOVER_SECONDS = 1.0
"""Between searches for new shards."""


class Session:
    """One run of the loop. `stop`, from a signal handler, ends it after the current delivery.

    `latest` skips records that are in the streams already.
    """

    def __init__(
        self,
        target: Target,
        file: RulesFile,
        program: Program,
        streams: Any,
        report: Reporter,
        *,
        latest: bool,
        until_idle: bool,
    ) -> None:
        self._target = target
        self._file = file
        self._streams = streams
        self._report = report
        self._latest = latest
        self._until_idle = until_idle
        self._stopped = threading.Event()
        self._projector = Projector(target.live, program)
        self._rules = ActiveRules(target, file, self._projector, report)
        self._followed: dict[str, Followed] = {}
        self._paused: dict[str, float] = {}
        self._failures = 0
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
        for logical in self._projector.program.tables:
            self._follow(logical)  # before the backfill, so that it misses no write
        self._projector.use(self._projector.program, self._projector.store)
        self._warn_of_guards()
        self._backfill_later = self._rules.begin(stream_first=not self._latest)
        if not self._stopped.is_set():
            self._report_start()
        self._loop()
        if self._backfill_later:
            text = styled("[yellow]Items older than the stream were not read: run `projections backfill`[/]")
            self._report.note(text)
        self._report.note(styled("[bold]{}.[/]", self.totals.words()))

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

    def _warn_of(self, ledgers: Sequence[str], why: str) -> None:
        if ledgers:
            self._warned = True
            text = (
                f"another ledger maintains this table, or did: {why} of {', '.join(ledgers)}. If a stack or another "
                "`projections dev` still does, stop one of them, or use a table of your own"
            )
            self._report.note(styled("[yellow]{}[/]", text))

    def _report_start(self) -> None:
        names = self._target.live.names
        tables = ", ".join(names[logical] for logical in self._projector.program.tables)
        since = "from now on" if self._latest else "from the stream's beginning"
        end = "until idle" if self._until_idle else "press Ctrl-C to stop"
        text = styled("[bold]following {}[/] at {} {}, ledger ", tables, self._target.endpoint, since)
        self._report.note(text + f"{names['ledger']}; {end}")
        if any(is_dynamodb_local(followed.reader.arn) for followed in self._followed.values()):
            units = "DynamoDB Local reports too few units for transactions; MiniStack reports the right numbers"
            self._report.note(styled("[dim]{}[/]", units))

    def _loop(self) -> None:
        busy_until = time.monotonic()
        while not self._stopped.is_set():
            if self._file.changed():
                self._rules.reload()
            busy = self._read()
            busy = self._deliver() or busy
            busy = self._task() or busy
            now = time.monotonic()
            if busy:
                busy_until = now
            elif now - busy_until > QUIET and self._nothing_left():
                if self._backfill_later:
                    self._backfill_later = False
                    self._rules.backfill(self._projector.program)
                    busy_until = time.monotonic()
                elif self._until_idle:
                    return
            if not busy:
                self._stopped.wait(POLL_SECONDS)

    def _nothing_left(self) -> bool:
        return not len(self._projector.queue) and not any(one.waiting for one in self._followed.values())

    def _follow(self, logical: str) -> None:
        arn = stream_of(self._target.live.client, self._target.live.names[logical])
        reader, discarded = StreamReader(self._streams, arn), partial(self._discarded, logical)
        self._followed[logical] = Followed(reader, latest=self._latest, batch_size=None, on_failure=discarded)
        self._followed[logical].discover()
        self._projector.labels[logical] = stream_label(arn)

    def _read(self) -> bool:
        """Read more of all streams. Return whether there was anything."""
        try:
            found = 0
            looks = time.monotonic() - self._discovered > DISCOVER_SECONDS
            for followed in self._followed.values():
                if looks:
                    followed.discover()
                found += followed.poll()
                if followed.ended:
                    raise StreamGone(f"the stream {followed.reader.arn} is disabled")
            if looks:
                self._discovered = time.monotonic()
        except StreamGone as error:
            raise UsageError(f"{error}. Restart the command when the table has a stream again") from None
        except Transient as error:
            if self._failures == 0:
                self._report.note(styled("[yellow]{}; will be retried[/]", error))
            self._failures += 1
            self._stopped.wait(min(5.0, 0.5 * 2**self._failures))
            return False
        self._failures = 0
        return found > 0

    def _deliver(self) -> bool:
        """Deliver one batch of each table. Return whether there was any."""
        found = False
        for logical, followed in self._followed.items():
            if self._paused.get(logical, 0.0) > time.monotonic() or (batch := followed.next_batch()) is None:
                continue
            found = True
            invocation = self._projector.invoke(logical, batch)
            self._report.delivered(invocation.delivery)
            if self._projector.rivalled and not self._warned:
                self._warn_of([one.ledger for one in rivals(self._projector.store)], "guards are replaced by those")
            followed.finish(batch, invocation.answer, invocation.error)
            if invocation.delivery.failed is not None:
                self._paused[logical] = time.monotonic() + min(5.0, 0.25 * 2**batch.attempt)
        return found

    def _task(self) -> bool:
        delivery = self._projector.work()
        if delivery is not None:
            self._report.delivered(delivery, task=True)
        return delivery is not None

    def _discarded(self, logical: str, records: Sequence[Record], error: BaseException | None) -> None:
        self.totals.discarded += len(records)
        schema = self._projector.program.tables[logical]
        for record in records:
            key = key_words(schema.key(logical, record["dynamodb"]["Keys"]))
            reason = self._projector.reason
            self._report.note(styled("          [red]discarded[/]  {} {}: {}", record["eventName"], key, reason))

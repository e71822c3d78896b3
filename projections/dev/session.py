"""A session: rules on a live stream, activated when it begins and when the file changes, each time with a backfill."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from projections.aws.streams import StreamGone, StreamReader
from projections.dev.projector import Delivery, Projector, Reporter, Totals
from projections.dev.target import Followed, Target, stream_of
from projections.engine.guards import Guards, Identity
from projections.engine.registry import Registry
from projections.errors import Misconfigured, Transient, UsageError
from projections.inspect.diff.difference import difference
from projections.inspect.explain.words import key_words
from projections.language.including import Watched
from projections.language.program import Program
from projections.language.review import review
from projections.local.event_replay import QUIET
from projections.local.event_source import Record
from projections.operations.backfill.backfill_runs import Backfill, unpublished_gaps
from projections.operations.backfill.runner import Runner
from projections.terminal import count, markup, units

POLL_SECONDS = 0.2
DISCOVER_SECONDS = 1.0
"""Between searches for new shards."""


class Session:
    """One run of the loop. `stop`, from a signal handler, ends it after the current delivery."""

    def __init__(
        self, target: Target, file: Watched, program: Program, streams: Any, report: Reporter, *, until_idle: bool
    ) -> None:
        self._target = target
        self._file = file
        self._streams = streams
        self._report = report
        self._until_idle = until_idle
        self._stopped = threading.Event()
        self._projector = Projector(target.live, program)
        self._backfilling = False
        self._followed: dict[str, Followed] = {}
        self._paused: dict[str, float] = {}
        self._failures = 0
        self._discovered = 0.0

    def stop(self) -> None:
        """Stop. In a backfill, raises KeyboardInterrupt, which ends it after the current pages."""
        self._stopped.set()
        if self._backfilling:
            raise KeyboardInterrupt

    def run(self) -> Totals:
        """Run until stopped or idle. Return the totals. Raises Misconfigured and UsageError if it cannot continue."""
        live = self._target.live
        names = [live.names[logical] for logical in self._projector.program.tables]
        for logical, name in zip(self._projector.program.tables, names, strict=True):
            reader = StreamReader(self._streams, stream_of(live.client, name))
            self._followed[logical] = Followed(reader, latest=True, on_failure=partial(self._discard, logical))
            self._followed[logical].discover()  # before the backfill, so that it misses no write
        self._warn_of_guards()
        self.begin()
        if not self._stopped.is_set():
            text = markup("[bold]following {}[/] at {} from now on", ", ".join(names), live.client.meta.endpoint_url)
            end = "until idle" if self._until_idle else "press Ctrl-C to stop"
            self._report.note(text + f", ledger {live.names['ledger']}; {end}")
        self._loop()
        self._report.note(markup("[bold]{}.[/]", self._projector.totals.words()))
        return self._projector.totals

    def _warn_of_guards(self) -> None:
        """Warn if the first items of a table have guards of another ledger."""
        program, store = self._projector.program, self._projector.store
        snapshot = Registry(program, store).read()
        guards = Guards(program, snapshot.identity if snapshot is not None else Identity("", ()))
        ledgers: set[str] = set()
        for table, schema in program.tables.items():
            for image in store.scan(table, limit=100).items:
                names = [guards.rule(name) for name in image if guards.is_guard(name)]
                ledgers |= {guards.other_ledger(name, schema.key(table, image), image) for name in names}
        if others := sorted(ledgers - {""}):
            text = (
                f"another ledger maintains this table, or did: its items have guards of {', '.join(others)}. If a stack or "
                "another `projections dev` still does, stop one of them, or use a table of your own"
            )
            self._report.note(markup("[yellow]{}[/]", text))

    def _loop(self) -> None:
        busy_until = time.monotonic()
        while not self._stopped.is_set():
            if self._file.has_changed():
                self._reload()
            busy = self._read()
            busy = self._deliver() or busy
            if (done := self._projector.work()) is not None:
                self._report.report_delivery(done, task=True)
                busy = True
            if busy:
                busy_until = time.monotonic()
                continue
            waiting = len(self._projector.queue) or any(followed.waiting for followed in self._followed.values())
            if self._until_idle and not waiting and time.monotonic() - busy_until > QUIET:
                return
            self._stopped.wait(POLL_SECONDS)

    def _read(self) -> bool:
        """Read more of all streams. Return whether there was anything."""
        try:
            number_read = 0
            looks = time.monotonic() - self._discovered > DISCOVER_SECONDS
            for followed in self._followed.values():
                if looks:
                    followed.discover()
                number_read += followed.poll()
                if followed.ended:
                    raise StreamGone(f"the stream {followed.reader.arn} is disabled")
            if looks:
                self._discovered = time.monotonic()
        except StreamGone as error:
            raise UsageError(f"{error}. Restart the command when the table has a stream again") from None
        except Transient as error:
            if self._failures == 0:
                self._report.note(markup("[yellow]{}; will be retried[/]", error))
            self._failures += 1
            self._stopped.wait(min(5.0, 0.5 * 2**self._failures))
            return False
        self._failures = 0
        return number_read > 0

    def _deliver(self) -> bool:
        """Deliver one batch of each table. Return whether there was any."""
        any_due, window = False, bool(self._projector.program.lanes)
        for logical, followed in self._followed.items():
            if self._paused.get(logical, 0.0) > time.monotonic() or not (batch := followed.next_batch(window=window)):
                continue
            any_due = True
            answer, error, delivery = self._projector.invoke(logical, batch)
            self._report.report_delivery(delivery)
            followed.finish(batch, answer, error)
            if delivery.failed is not None:
                self._paused[logical] = time.monotonic() + min(5.0, 0.25 * 2**batch.attempt)
        return any_due

    def _discard(self, logical: str, records: Sequence[Record], error: BaseException | None) -> None:
        self._projector.totals.discarded += len(records)
        schema = self._projector.program.tables[logical]
        for record in records:
            key = key_words(schema.key(logical, record["dynamodb"]["Keys"]))
            reason = self._projector.reason
            self._report.note(markup("          [red]discarded[/]  {} {}: {}", record["eventName"], key, reason))

    # New and changed rules publish nothing before they are filled, so a backfill fills them at once. It also deletes items
    # that rules no longer create, and a removed rule is retired.

    def begin(self) -> None:
        """Activate the rules, and project the items that the tables hold: the stream of earlier writes is not read."""
        self._report.findings(review(self._file.path).findings)
        self._backfill(self._with_removed(self._projector.program))

    def _reload(self) -> None:
        """Activate the rules of the changed file. If they are invalid or do not fit, the old rules stay active."""
        name, old = self._file.path.name, self._projector.program
        result = review(self._file.path)
        if result.rules is None:
            self._report.findings(result.findings)
            self._refuse(f"{name} has mistakes")
            return
        program = Program.from_document(result.rules.document())
        if program.tables.keys() != old.tables.keys():
            self._refuse("the rules now name other tables. Restart the command for these tables")
            return
        program = self._with_removed(program)
        if {**program.document, "retired": old.document["retired"]} == old.document:
            self._report.note(markup("[dim]{} was saved without a change of the rules[/]", name))
            return
        if wrong := self._target.fit(program):
            self._refuse("; ".join(wrong))
            return
        self._report.report_change(difference(old.document, program.document), name)
        self._report.findings(result.findings)
        try:
            self._backfill(program)
        except (UsageError, Misconfigured) as error:
            self._refuse(str(error))

    def _refuse(self, reason: str) -> None:
        self._report.note(markup("[red]The old rules stay active:[/] {}", reason))

    def _backfill(self, program: Program) -> None:
        """Activate rules and project the items that the tables hold. An interrupted backfill continues next time."""
        store = self._projector.store_for(program)
        backfill = Backfill(
            program,
            store,
            now=lambda: datetime.now(UTC),
            run=self._projector.run,
            pace=lambda writes: None,
            quarantine=self._projector.reject,
        )
        before, started = self._projector.meter.write_units, time.monotonic()
        self._backfilling = True
        try:
            versions = backfill.registry.register(program).versions.values()
            waiting = [version.name for version in versions if version.state != "active"]
            run = backfill.begin(versions=waiting, allow_delete=True)
            self._projector.use(program, store)
            runner = Runner(backfill)
            run = runner.work(run)
        except KeyboardInterrupt:
            stopped = "the backfill is not complete; it continues in the next session"
            self._report.note(markup("[yellow]{}[/]", stopped))
            return
        finally:
            self._backfilling = False
        for name, reason in unpublished_gaps(backfill.registry.read_or_create()).items():
            self._report.note(markup("[yellow]{}: {}[/]", name, reason))
        delivery = self._projector.delivery(before, store=store)
        read = backfill.report(run).get("items", Counter())["items"]
        self._report.note(
            f"backfill: {count(read, 'item')} read, {count(delivery.writes, 'write')} and "
            f"{count(delivery.ledger_writes, 'write')} to the ledger (its progress is recorded there), "
            f"{units(delivery.write_units, 'write unit')}, {time.monotonic() - started:.1f} s"
            + ("" if run.done else markup(". [red]It is not complete.[/]"))
        )
        for key, reason in runner.failed.items():
            self._report.note(markup("[red]failed[/] {}", f"{key}: {reason}"))
        if delivery.rejected:
            self._report.report_delivery(Delivery(rejected=delivery.rejected))

    def _with_removed(self, program: Program) -> Program:
        """Return the program with removed rules retired: what they wrote is removed."""
        snapshot = Registry(program, self._projector.store).read()
        lacking = snapshot.lacking(program) if snapshot is not None else []
        gone = [name for name in lacking if name not in program.retired]
        if not gone:
            return program
        retire = f"`retired: {{{', '.join(f'{name}: remove' for name in gone)}}}`"
        text = (
            f"{', '.join(gone)}: removed from the file, so its values are removed. Before you apply it elsewhere, add"
        )
        self._report.note(markup("[yellow]{} {} or `keep`[/]", text, retire))
        retired = {**program.document["retired"], **dict.fromkeys(gone, "remove")}
        return Program.from_document({**program.document, "retired": retired})

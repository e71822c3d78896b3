"""The active rules of a session: activated when it begins and when the file changes, with a backfill on emulators."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from projections.dev.delivery import Delivery, Reporter
from projections.dev.projector import Projector
from projections.dev.rules_file import RulesFile
from projections.dev.target import Target
from projections.engine.registry import FILLING, LIVE, Registry
from projections.errors import Misconfigured, UsageError
from projections.inspect.diff.difference import difference
from projections.language.findings import Finding
from projections.language.program import Program
from projections.language.review import review
from projections.local.functions import WRITES_PER_SECOND
from projections.operations.backfill.backfill import Backfill, Done
from projections.operations.backfill.progress import Progress, Run
from projections.operations.backfill.runner import Runner
from projections.operations.pacing import Pacer
from projections.terminal import count, styled, units

__all__ = ["ActiveRules"]

REPORT_SECONDS = 3.0
"""Between two lines about a backfill that is running."""

WAIT_AT_AWS = 60.0
"""Seconds for which functions with the old rules may still run."""


class ActiveRules:
    """Activates rules in the registry that deployed functions read, too.

    New and changed rules publish nothing before a backfill, so on an emulator one runs at once, unless `backfill` is False;
    it also deletes items that rules create no longer, and a removed rule is retired. At AWS `backfill` must be set, because
    tables may be large, and functions with other rules deployed.
    """

    def __init__(
        self, target: Target, file: RulesFile, projector: Projector, report: Reporter, backfill: bool | None
    ) -> None:
        self._target = target
        self._file = file
        self._projector = projector
        self._report = report
        self._wanted = backfill
        self._warned: set[tuple[str, str, str]] = set()
        self._removed: set[str] = set()
        self.backfilling = False

    def begin(self, *, stream_first: bool) -> bool:
        """Activate the rules. With `stream_first` and an empty ledger, return True if a backfill is left for later.

        Raises UsageError if, at AWS, the user has to decide.
        """
        program = self._projector.program
        self._findings(review(self._file.path).findings)
        store = self._projector.store
        snapshot = Registry(program, store).read()
        if snapshot is None:
            held = any(store.scan(name, limit=1).items for name in program.tables)
            if held and self._undecided:
                raise UsageError(
                    "these tables hold items that no rule has read. Pass --backfill to read them all (`projections backfill "
                    "--dry-run` estimates the cost), or --no-backfill"
                )
            wanted = held and self._wanted is not False
            if wanted and not stream_first:
                self.backfill(program)
            else:
                Registry(program, store, LIVE).read_or_create()
            return wanted and stream_first
        if snapshot.program != program.fingerprint and self._undecided:
            raise UsageError(
                "other rules are active on these tables, and deployed functions that have them would stop. Use tables of "
                "your own, or pass --backfill or --no-backfill to activate these rules"
            )
        program = self._with_removed(program, [name for name in snapshot.rules if "@" not in name])
        unfinished = Progress(store).run()
        if (
            Registry(program, store).preview() != snapshot
            or any(one.state != LIVE for one in snapshot.rules.values())
            or (unfinished is not None and not unfinished.done)
        ):
            self.backfill(program)
        return False

    def reload(self) -> None:
        """Activate the rules of the changed file. If they are invalid or do not fit, the old rules stay active."""
        name, old = self._file.path.name, self._projector.program
        found = review(self._file.path)
        if found.rules is None:
            self._findings(found.findings)
            self._report.refused(f"{name} has mistakes")
            return
        program = Program.from_document(found.rules.canonical())
        if program.tables.keys() != old.tables.keys():
            self._report.refused("the rules now name other tables. Restart the command for these tables")
            return
        program = self._with_removed(program, old.rules)
        if program.document == old.document:
            self._report.note(styled("[dim]{} was saved without a change of the rules[/]", name), "rules same")
            return
        if wrong := self._target.fit(program):
            self._report.refused("; ".join(wrong))
            return
        self._report.changed(difference(old.document, program.document), name)
        self._findings(found.findings)
        if self._undecided:
            self._report.refused("on AWS, changed rules require --backfill or --no-backfill")
            return
        try:
            self.backfill(program)
        except (UsageError, Misconfigured) as error:
            self._report.refused(str(error))

    def backfill(self, program: Program) -> None:
        """Activate rules and project the items that the tables hold. An interrupted backfill continues next time."""
        store = self._projector.store_for(program)
        if self._wanted is False or self._undecided:
            registry = Registry(program, store)
            snapshot = (
                registry.read_or_create() if self._undecided else registry.activate()
            )  # undecided: already active
            self._projector.use(program, store)
            filling = [name for name, one in snapshot.rules.items() if one.state == FILLING]
            if filling:
                text = styled("[yellow]{}: nothing is published before a backfill[/]", ", ".join(filling))
                self._report.note(text, "filling", rules=filling)
            return
        emulated = self._target.emulated
        backfill = Backfill(
            program,
            store,
            now=lambda: datetime.now(UTC),
            run=self._projector.run,
            pace=(lambda writes: None) if emulated else Pacer(WRITES_PER_SECOND),
            quarantine=self._projector.reject,
        )
        before, started = self._projector.spent(), time.monotonic()
        self.backfilling = True
        try:
            run = backfill.begin(wait=0.0 if emulated else WAIT_AT_AWS, allow_delete=emulated)
            self._projector.use(program, store)
            runner = Runner(backfill, report=self._progress(started), report_wait=self._wait)
            run = runner.work(run)
        except KeyboardInterrupt:
            stopped = "the backfill is not complete; it continues in the next session"
            self._report.note(styled("[yellow]{}[/]", stopped), "backfill stopped")
            return
        finally:
            self.backfilling = False
        delivery = self._projector.delivery(before, store=store)
        read = backfill.report(run).get("items", Counter())["items"]
        self._report.note(
            f"backfill: {count(read, 'item')} read, {count(delivery.writes, 'write')} and "
            f"{count(delivery.ledger_writes, 'write')} to the ledger (its progress is recorded there), "
            f"{units(delivery.write_units, 'write unit')}, {time.monotonic() - started:.1f} s"
            + ("" if run.done else styled(". [red]It is not complete.[/]")),
            "backfill",
            complete=run.done,
            read=read,
            writes=delivery.writes,
            ledgerWrites=delivery.ledger_writes,
            writeUnits=delivery.write_units,
            failed=runner.failed,
        )
        for key, reason in runner.failed.items():
            self._report.note(
                styled("[red]failed[/] {}", f"{key}: {reason}"), "backfill failed", key=key, reason=reason
            )
        if delivery.rejected:
            self._report.delivered(Delivery(rejected=delivery.rejected))

    def _progress(self, reported: float) -> Callable[[Run, Done], None]:
        read: dict[tuple[str, str, int], int] = {}

        def page(run: Run, done: Done) -> None:
            nonlocal reported
            segment = done.segment
            read[segment.phase, segment.table, segment.number] = segment.counts.get("items", 0)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                items = sum(number for (phase, _, _), number in read.items() if phase == segment.phase)
                text = styled("[dim]backfill: {}, {:,} read so far[/]", segment.phase, items)
                self._report.note(text, "backfilling", phase=segment.phase, read=items)

        return page

    @property
    def _undecided(self) -> bool:
        """Whether the user has to decide about a backfill, and has not."""
        return not self._target.emulated and self._wanted is None

    def _wait(self, seconds: float) -> None:
        text = f"waiting {seconds:.0f} s until functions with the old rules have ended"
        self._report.note(styled("[dim]{}[/]", text), "waiting", seconds=round(seconds, 1))

    def _with_removed(self, program: Program, before: Iterable[str]) -> Program:
        """Return the program with removed rules retired, on an emulator: what they wrote is removed."""
        if not self._target.emulated:
            return program
        names = {name.partition("@")[0] for name in before} | self._removed
        gone = sorted(name for name in names if name not in program.rules and name not in program.retired)
        if not gone:
            return program
        if fresh := [name for name in gone if name not in self._removed]:
            retire = f"`retired: {{{', '.join(f'{name}: remove' for name in fresh)}}}`"
            text = f"{', '.join(fresh)}: removed from the file, so its values are removed. Before you deploy, add"
            self._report.note(styled("[yellow]{} {} or `keep`[/]", text, retire), "removed", rules=fresh)
            self._removed.update(fresh)
        retired = {**program.document["retired"], **dict.fromkeys(gone, "remove")}
        return Program.from_document({**program.document, "retired": retired})

    def _findings(self, found: Sequence[Finding]) -> None:
        """Report errors, and warnings that were not reported before."""
        fresh = []
        for one in found:
            mark = (one.code, one.path, one.reason)
            if one.severity == "error" or (one.severity == "warning" and mark not in self._warned):
                fresh.append(one)
                self._warned.add(mark)
        self._report.findings(fresh)

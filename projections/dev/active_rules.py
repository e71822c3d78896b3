"""The active rules of a session: activated when it begins and when the file changes, with a backfill."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from projections.dev.projector import Delivery, Projector, Reporter
from projections.dev.target import Target
from projections.engine.registry import LIVE, Registry
from projections.errors import Misconfigured, UsageError
from projections.inspect.diff.difference import difference
from projections.language.findings.kinds import Finding
from projections.language.including import Watched
from projections.language.program import Program
from projections.language.review import review
from projections.operations.backfill.backfill import Backfill
from projections.operations.backfill.progress import Progress
from projections.operations.backfill.runner import Runner
from projections.terminal import count, styled, units

__all__ = ["ActiveRules", "RulesFile"]


class RulesFile:
    """The rule file and the files that it includes, checked for changes by their times and sizes.

    A change is reported when the files have stayed the same for two looks: editors write in more than one step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched = Watched(path)
        self._known = self._seen = self._watched.stamp()

    def changed(self) -> bool:
        """Return whether a file differs from the last reported state, and all are the same as at the last call."""
        stamp = self._watched.stamp()
        settled = stamp is not None and stamp == self._seen and stamp != self._known
        self._seen = stamp
        if settled:
            self._watched.refresh()
            self._known = self._seen = self._watched.stamp()
        return settled


class ActiveRules:
    """Activates rules in the registry.

    New and changed rules publish nothing before a backfill, so one runs at once; it also deletes items that rules create no
    longer, and a removed rule is retired.
    """

    def __init__(self, target: Target, file: RulesFile, projector: Projector, report: Reporter) -> None:
        self._target = target
        self._file = file
        self._projector = projector
        self._report = report
        self._warned: set[tuple[str, str, str]] = set()
        self._removed: set[str] = set()
        self.backfilling = False

    def begin(self, *, stream_first: bool) -> bool:
        """Activate the rules. With `stream_first` and an empty ledger, return True if a backfill is left for later."""
        program = self._projector.program
        self._findings(review(self._file.path).findings)
        store = self._projector.store
        snapshot = Registry(program, store).read()
        if snapshot is None:
            held = any(store.scan(name, limit=1).items for name in program.tables)
            if held and not stream_first:
                self.backfill(program)
            else:
                Registry(program, store, LIVE).read_or_create()
            return held and stream_first
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
            self._refused(f"{name} has mistakes")
            return
        program = Program.from_document(found.rules.canonical())
        if program.tables.keys() != old.tables.keys():
            self._refused("the rules now name other tables. Restart the command for these tables")
            return
        program = self._with_removed(program, old.rules)
        if program.document == old.document:
            self._report.note(styled("[dim]{} was saved without a change of the rules[/]", name))
            return
        if wrong := self._target.fit(program):
            self._refused("; ".join(wrong))
            return
        self._report.changed(difference(old.document, program.document), name)
        self._findings(found.findings)
        try:
            self.backfill(program)
        except (UsageError, Misconfigured) as error:
            self._refused(str(error))

    def _refused(self, reason: str) -> None:
        self._report.note(styled("[red]The old rules stay active:[/] {}", reason))

    def backfill(self, program: Program) -> None:
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
        before, started = self._projector.spent(), time.monotonic()
        self.backfilling = True
        try:
            run = backfill.begin(wait=0.0, allow_delete=True)
            self._projector.use(program, store)
            runner = Runner(backfill)
            run = runner.work(run)
        except KeyboardInterrupt:
            stopped = "the backfill is not complete; it continues in the next session"
            self._report.note(styled("[yellow]{}[/]", stopped))
            return
        finally:
            self.backfilling = False
        delivery = self._projector.delivery(before, store=store)
        read = backfill.report(run).get("items", Counter())["items"]
        self._report.note(
            f"backfill: {count(read, 'item')} read, {count(delivery.writes, 'write')} and "
            f"{count(delivery.ledger_writes, 'write')} to the ledger (its progress is recorded there), "
            f"{units(delivery.write_units, 'write unit')}, {time.monotonic() - started:.1f} s"
            + ("" if run.done else styled(". [red]It is not complete.[/]"))
        )
        for key, reason in runner.failed.items():
            self._report.note(styled("[red]failed[/] {}", f"{key}: {reason}"))
        if delivery.rejected:
            self._report.delivered(Delivery(rejected=delivery.rejected))

    def _with_removed(self, program: Program, before: Iterable[str]) -> Program:
        """Return the program with removed rules retired: what they wrote is removed."""
        names = {name.partition("@")[0] for name in before} | self._removed
        gone = sorted(name for name in names if name not in program.rules and name not in program.retired)
        if not gone:
            return program
        if fresh := [name for name in gone if name not in self._removed]:
            retire = f"`retired: {{{', '.join(f'{name}: remove' for name in fresh)}}}`"
            text = f"{', '.join(fresh)}: removed from the file, so its values are removed. Before you deploy, add"
            self._report.note(styled("[yellow]{} {} or `keep`[/]", text, retire))
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

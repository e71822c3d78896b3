"""Which rules are in force: at the beginning, and when the file changes; what the tables hold is made right at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from projections.dev.delivery import Delivery, Teller
from projections.dev.place import Place
from projections.dev.projector import Projector
from projections.dev.rules_file import RulesFile
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
from projections.terminal import count, styled

__all__ = ["InForce"]

SAY_SECONDS = 3.0
"""Between two lines about a backfill that goes on."""

WAIT_AT_AWS = 60.0
"""Seconds that functions with the old rules may still run."""


class InForce:
    """Puts rules in force, by the registry that deployed functions obey too.

    New and changed rules would publish nothing before a backfill, so on an emulator one is done at once, unless `backfill`
    is False; it also deletes what rules make no more, and a rule that vanished is retired. At AWS none of this happens
    without a word: tables may be large, and functions with other rules deployed.
    """

    def __init__(
        self, place: Place, file: RulesFile, projector: Projector, teller: Teller, backfill: bool | None
    ) -> None:
        self._place = place
        self._file = file
        self._projector = projector
        self._tell = teller
        self._wanted = backfill
        self._warned: set[tuple[str, str, str]] = set()
        self._vanished: set[str] = set()
        self.backfilling = False

    def begin(self, *, stream_first: bool) -> bool:
        """At the beginning. With `stream_first`, on an empty ledger, the backfill is left until later: then True.

        Raises UsageError where, at AWS, somebody has to decide.
        """
        program = self._projector.program
        self._findings(review(self._file.path).findings)
        store = self._projector.store
        snapshot = Registry(program, store).read()
        if snapshot is None:
            held = any(store.scan(name, limit=1).items for name in program.tables)
            if held and self._undecided:
                raise UsageError(
                    "these tables hold items that no rule has seen. Say --backfill, and they are read and made right "
                    "(`projections backfill --dry-run` says what that costs), or --no-backfill"
                )
            wanted = held and self._wanted is not False
            if wanted and not stream_first:
                self.backfill(program)
            else:
                Registry(program, store, LIVE).read_or_create()
            return wanted and stream_first
        if snapshot.program != program.fingerprint and self._undecided:
            raise UsageError(
                "other rules are in force on these tables, and deployed functions that have them would stop. Use tables of "
                "your own; or say --backfill or --no-backfill, and these rules take over"
            )
        program = self._without_vanished(program, [name for name in snapshot.rules if "@" not in name])
        unfinished = Progress(store).run()
        if (
            Registry(program, store).preview() != snapshot
            or any(one.state != LIVE for one in snapshot.rules.values())
            or (unfinished is not None and not unfinished.done)
        ):
            self.backfill(program)
        return False

    def reload(self) -> None:
        """The file has changed. With mistakes in it, or where it does not fit the tables, the old rules stay."""
        name, old = self._file.path.name, self._projector.program
        found = review(self._file.path)
        if found.rules is None:
            self._findings(found.findings)
            self._tell.refused(f"{name} has mistakes")
            return
        program = Program.from_document(found.rules.canonical())
        if program.tables.keys() != old.tables.keys():
            self._tell.refused("they are for other tables; start again for these")
            return
        program = self._without_vanished(program, old.rules)
        if program.document == old.document:
            self._tell.note(styled("[dim]{} was saved, and means the same[/]", name), "rules same")
            return
        if wrong := self._place.fit(program):
            self._tell.refused("; ".join(wrong))
            return
        self._tell.changed(difference(old.document, program.document), name)
        self._findings(found.findings)
        if self._undecided:
            self._tell.refused("at AWS they are put in force only if --backfill or --no-backfill was said")
            return
        try:
            self.backfill(program)
        except (UsageError, Misconfigured) as error:
            self._tell.refused(str(error))

    def backfill(self, program: Program) -> None:
        """Puts rules in force and makes right what the tables hold already. May be interrupted, and goes on next time."""
        store = self._projector.store_for(program)
        if self._wanted is False or self._undecided:
            registry = Registry(program, store)
            snapshot = (
                registry.read_or_create() if self._undecided else registry.activate()
            )  # undecided: in force already
            self._projector.use(program, store)
            filling = [name for name, one in snapshot.rules.items() if one.state == FILLING]
            if filling:
                text = styled("[yellow]{}: incomplete, and so not published, before a backfill[/]", ", ".join(filling))
                self._tell.note(text, "filling", rules=filling)
            return
        emulated = self._place.emulated
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
            runner = Runner(backfill, told=self._progress(started), waiting=self._waits)
            run = runner.work(run)
        except KeyboardInterrupt:
            self._tell.note(styled("[yellow]the backfill is not complete; it goes on next time[/]"), "backfill stopped")
            return
        finally:
            self.backfilling = False
        delivery = self._projector.delivery(before, store=store)
        read = backfill.report(run).get("items", Counter())["items"]
        self._tell.note(
            f"backfill: {read:,} items read, {count(delivery.writes, 'write')}, {delivery.write_units:g} write units, "
            f"{time.monotonic() - started:.1f} s" + ("" if run.done else styled(". [red]It is not complete.[/]")),
            "backfill",
            complete=run.done,
            read=read,
            writes=delivery.writes,
            writeUnits=delivery.write_units,
            failed=runner.failed,
        )
        for key, reason in runner.failed.items():
            self._tell.note(styled("[red]failed[/] {}", f"{key}: {reason}"), "backfill failed", key=key, reason=reason)
        if delivery.rejected:
            self._tell.delivered(Delivery(rejected=delivery.rejected))

    def _progress(self, said: float) -> Callable[[Run, Done], None]:
        """Says now and then how far a long backfill is."""
        read: dict[tuple[str, str, int], int] = {}

        def told(run: Run, done: Done) -> None:
            nonlocal said
            segment = done.segment
            read[segment.phase, segment.table, segment.number] = segment.counts.get("items", 0)
            if time.monotonic() - said > SAY_SECONDS:
                said = time.monotonic()
                items = sum(count for (phase, _, _), count in read.items() if phase == segment.phase)
                text = styled("[dim]backfill: {}, {:,} read so far[/]", segment.phase, items)
                self._tell.note(text, "backfilling", phase=segment.phase, read=items)

        return told

    @property
    def _undecided(self) -> bool:
        """Whether nobody has said if there is to be a backfill, where that is not for us to decide."""
        return not self._place.emulated and self._wanted is None

    def _waits(self, seconds: float) -> None:
        text = f"waiting {seconds:.0f} s, until functions that know the old rules have ended"
        self._tell.note(styled("[dim]{}[/]", text), "waiting", seconds=round(seconds, 1))

    def _without_vanished(self, program: Program, before: Iterable[str]) -> Program:
        """On an emulator a rule that is gone without a word takes with it what it wrote."""
        if not self._place.emulated:
            return program
        names = {name.partition("@")[0] for name in before} | self._vanished
        gone = sorted(name for name in names if name not in program.rules and name not in program.retired)
        if not gone:
            return program
        if fresh := [name for name in gone if name not in self._vanished]:
            words = f"`retired: {{{', '.join(f'{name}: remove' for name in fresh)}}}`"
            self._tell.note(
                styled(
                    "[yellow]{}: gone, so what it wrote is removed. Before you deploy, say {} in the rules, or `keep`[/]",
                    ", ".join(fresh),
                    words,
                ),
                "vanished",
                rules=fresh,
            )
            self._vanished.update(fresh)
        retired = {**program.document["retired"], **dict.fromkeys(gone, "remove")}
        return Program.from_document({**program.document, "retired": retired})

    def _findings(self, found: Sequence[Finding]) -> None:
        """Mistakes, and warnings that were not told yet."""
        fresh = []
        for one in found:
            mark = (one.code, one.path, one.reason)
            if one.severity == "error" or (one.severity == "warning" and mark not in self._warned):
                fresh.append(one)
                self._warned.add(mark)
        self._tell.findings(fresh)

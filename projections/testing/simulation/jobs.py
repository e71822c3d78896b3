"""The jobs of operators: refreshes, backfills, applied rules, roll backs, recounts, verifications; and their processes.

Each job is done in pieces. A piece is an invocation like any other: it may die, be repeated, overlap with its repetition, or
stop between a read and the write that depends on it. A checkpoint after each piece states where to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from projections.engine.embeds import SETTLE_SECONDS, Push
from projections.engine.ledger_items import Target
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry
from projections.engine.rejections import Rejected
from projections.engine.running import Deadline, Run
from projections.engine.store import Image, ItemKey, Store
from projections.engine.value_counters import ValueCounters
from projections.errors import Transient
from projections.operations.backfill import backfill_runs as operation
from projections.operations.backfill import runner
from projections.operations.backfill.backfill_runs import Overtaken
from projections.operations.dry import Cautious
from projections.operations.failed_messages import FailedMessage
from projections.operations.tasks import Tasks
from projections.operations.verify.repair import Repair
from projections.operations.verify.scanning import Scratch
from projections.operations.verify.verification import Verification
from projections.operations.verify.verify_scope import Scope
from projections.testing.simulation.workers import Invocation

if TYPE_CHECKING:
    from projections.testing.simulation.rule_versions import RuleVersion


@dataclass(eq=False)
class OperatorProcess:
    """A process of operators with the registry as it was when it started. It does pieces of one job."""

    version: InitVar[RuleVersion]
    store: Store
    invocation: InitVar[Invocation]
    _: KW_ONLY
    run: Run[Any]
    chance: Callable[[], float]
    now: Callable[[], datetime]
    filled: InitVar[bool]
    values: InitVar[ValueCounters]
    tasks: Tasks | None
    quarantine: Callable[[Sequence[Rejected]], None]
    page: int

    def __post_init__(self, version: RuleVersion, invocation: Invocation, filled: bool, values: ValueCounters) -> None:
        self.packaged = version.program
        self.resume(invocation)
        self.registry = Registry(version.program, self.store, filled=filled, now=self.clock)
        self.snapshot, self.program = self.registry.current()
        self.refresher = Refresher(
            self.program, self.store, self.snapshot, values=values, run=self.run, clock=self.clock, chance=self.chance
        )

    def clock(self) -> float:
        return self.now().timestamp()

    def resume(self, invocation: Invocation) -> None:
        """Begin another piece in the same process, which keeps the registry as it has read it."""
        self.deadline = Deadline(invocation.remaining, sleep=invocation.sleep, chance=self.chance)
        self.sleep = invocation.sleep

    def backfill(self) -> operation.Backfill:
        return operation.Backfill(
            self.packaged,
            self.store,
            now=self.now,
            run=self.run,
            page=self.page,
            quarantine=self.quarantine,
            named=lambda: f"{int(self.chance() * 10**15):015d}",  # decided by the seed of the history
            chance=self.chance,
        )

    def push(self, push: Push) -> None:
        """Do a whole push, or its first page if a task can do the rest."""
        embedder = self.refresher.embedder
        embedder.raise_fence(push)
        page: Push | None = push
        while page is not None:
            more, _ = embedder.push_page(page, self.deadline)
            following = embedder.following(page, more)
            if following is None:
                break
            page, later = following
            if self.tasks is not None:
                self.tasks(page, SETTLE_SECONDS if later else 0.0)
                break
            if later:
                self.sleep(SETTLE_SECONDS)

    def require_refreshed(self) -> None:
        """Quarantine rejected items. Raises Transient if any item has to be refreshed again."""
        self.quarantine(list(self.refresher.rejected))
        if self.refresher.failed:
            raise Transient(f"not refreshed: {self.refresher.failed}")


class Checkpoint(NamedTuple):
    """Where a job continues: a phase, its subject, and the position of its scan."""

    phase: str
    about: Any = None
    after: Any = None

    def __str__(self) -> str:
        return " ".join(str(part) for part in self if part is not None)


BEGIN = Checkpoint("begin")
DONE = Checkpoint("done")


class Job:
    """One operation. It does not continue before the time `ready`, in seconds since 1970."""

    name = "job"

    def __init__(self, version: RuleVersion) -> None:
        self.version = version
        self.checkpoint = BEGIN
        self.ready = 0.0
        self.busy = False
        """Whether a piece is under way and its result is awaited."""
        self.values = ValueCounters()
        self.process: OperatorProcess | None = None
        """The process that did the last piece."""
        self.registry: Image | None = None
        """The registry as that process has read it."""
        self.detached = False
        """Whether it is a process from before other rules were applied. It is never started again."""

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        """Do the piece that begins at a checkpoint; return the checkpoint after it."""
        raise NotImplementedError

    def restart(self) -> None:
        """Start again."""
        self.checkpoint, self.values, self.process = BEGIN, ValueCounters(), None

    def detach(self) -> Job:
        """Return the job in its current process, which continues when the job itself starts again."""
        detached = copy(self)
        detached.detached, detached.busy = True, False
        return detached


class Refresh(Job):
    """A refresh of some items by their keys, with known old images, as a redrive or a repair does it."""

    name = "refresh"

    def __init__(
        self,
        version: RuleVersion,
        keys: Sequence[ItemKey],
        known: Mapping[ItemKey, Sequence[Image]],
        message: FailedMessage | None = None,
    ) -> None:
        super().__init__(version)
        self._keys = keys
        self._known = known
        self._removed = [key for key, (_, removed) in message.newest.items() if removed] if message is not None else []
        self._told = message.records if message is not None else {}

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        if self._told and process.snapshot.left_to_lanes:
            process.registry.note_gaps(dict.fromkeys(process.snapshot.left_to_lanes, "a batch was discarded"))
        for push in process.refresher.keys(self._keys, process.deadline, self._known, self._removed, self._told):
            process.push(push)
        process.require_refreshed()
        return DONE


class Backfill(Job):
    """A backfill by the real operation: in pieces of this job, or as tasks that the worker does."""

    name = "backfill"

    def __init__(self, version: RuleVersion, *, queued: bool, restart: bool, **options: Any) -> None:
        super().__init__(version)
        self._queued = queued
        self._restart = restart
        self._options = options

    def versions(self, process: OperatorProcess) -> Collection[str] | None:
        """The versions to fill, or to promote; None for all that are filling."""
        return None

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        backfill = process.backfill()
        if checkpoint == BEGIN:
            restart, self._restart = self._restart, False
            run = backfill.begin(versions=self.versions(process), restart=restart, allow_delete=True, **self._options)
            if self._queued and process.tasks is not None:
                runner.send_tasks(backfill, run, process.tasks)
                return DONE
            return Checkpoint("pages", run.name)
        newest = backfill.progress.run()
        if newest is None or newest.name != checkpoint.about:
            raise Overtaken
        if newest.done:
            return DONE
        left = [segment for segment in backfill.segments(newest) if not segment.done]
        if not left:
            backfill.forward(newest)
            return checkpoint
        done = backfill.page(newest, left[int(process.chance() * len(left))], process.deadline)
        if done.page.failed:
            raise Transient("not all of a page could be done")
        return checkpoint


class Apply(Backfill):
    """A rule file is applied: its new versions are registered, filled and promoted."""

    name = "apply"

    def versions(self, process: OperatorProcess) -> Collection[str] | None:
        versions = process.registry.register(self.version.program).versions.values()
        return [version.name for version in versions if version.state != "active"]


class RollBack(Backfill):
    """A version that stands by is promoted."""

    name = "roll back"

    def versions(self, process: OperatorProcess) -> Collection[str] | None:
        standby = [version.name for version in process.snapshot.versions.values() if version.state == "standby"]
        return [standby[int(process.chance() * len(standby))]] if standby else []

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        if checkpoint == BEGIN and not self.versions(process):
            return DONE
        return super().work(checkpoint, process)


class CleanUp(Backfill):
    """A backfill that counts nothing again: it removes what entries need no more."""

    name = "clean-up"

    def versions(self, process: OperatorProcess) -> Collection[str] | None:
        return ()


class Recount(Backfill):
    """A rule is counted again."""

    name = "recount"

    def __init__(self, version: RuleVersion, rule: str, **options: Any) -> None:
        super().__init__(version, **options)
        self._rule = rule

    def versions(self, process: OperatorProcess) -> Collection[str] | None:
        snapshot, versions = process.registry.recount([self._rule])
        if not versions:  # the rule is held meanwhile: what may be damaged is removed, as `verify --repair` does
            process.registry.remove(version.name for version in snapshot.of(self._rule))
        return [version.name for version in versions.values()]


class Verify(Job):
    """`verify --repair` of all tables, in one process."""

    name = "verify"

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        scope = Scope(process.program, process.snapshot)
        with Scratch() as scratch:
            options: dict[str, Any] = {"threads": 1, "sleep": process.sleep, "run": process.run}
            verification = Verification(scope, process.store, scratch, patience=0, page=process.page, **options)
            verification.all()
            store = Cautious(process.store, deletes=True)
            options = {"sleep": process.sleep, "run": process.run, "clock": process.clock, "chance": process.chance}
            repair = Repair(scope, process.packaged, store, verification.candidates, process.backfill(), **options)
            repair.all()
            if repair.failed:
                raise Transient(f"not repaired: {repair.failed}")
        return DONE


def groups_of(items: Collection[Image]) -> list[Target]:
    """Return the groups on a page of the ledger."""
    groups: dict[Target, None] = {}
    for item in items:
        kind, _, rest = item["pk"]["S"].partition("|")
        if kind == "G":
            rule, _, target = rest.partition("|")
            groups[rule, item["key"]["S"] if "key" in item else target] = None
    return list(groups)

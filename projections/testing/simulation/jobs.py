"""The jobs of operators: refreshes, rebuilds of groups, backfills, verifications, and the process in which each runs.

Each job is done in pieces. A piece is an invocation like any other: it may die, be repeated, overlap with its repetition, or
stop between a read and the write that depends on it. A checkpoint after each piece states where to continue.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from projections.engine import rebuild
from projections.engine.embeds import SETTLE_SECONDS, Push
from projections.engine.groups import Generations
from projections.engine.ledger_items import Entry, Target
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry, RuleState
from projections.engine.rejections import Rejected
from projections.engine.running import Deadline, Run
from projections.engine.store import Image, ItemKey, Store
from projections.errors import Transient
from projections.language.keys import decode_key
from projections.local.event_replay import LEDGER
from projections.operations.backfill import backfill_runs as operation
from projections.operations.backfill import runner
from projections.operations.backfill.backfill_runs import Overtaken
from projections.operations.dry import Cautious
from projections.operations.failed_messages import FailedMessage
from projections.operations.fenced import RESERVED, Fenced
from projections.operations.tasks import Tasks
from projections.operations.verify.repair import Repair
from projections.operations.verify.scanning import Scratch
from projections.operations.verify.verification import Verification
from projections.operations.verify.verify_scope import Scope
from projections.testing.simulation.workers import Invocation

if TYPE_CHECKING:
    from projections.testing.simulation.rule_versions import RuleVersion


def lease_name(chance: Callable[[], float]) -> str:
    """Return a random name for a lease or a run, decided by the seed of the history."""
    return f"{int(chance() * 10**15):015d}"


class OperatorProcess:
    """A process of operators with the rules and the registry snapshot it was started with. It does pieces of one job."""

    def __init__(
        self,
        version: RuleVersion,
        store: Store,
        invocation: Invocation,
        *,
        run: Run[Any],
        chance: Callable[[], float],
        now: Callable[[], datetime],
        new_rules: RuleState,
        generations: Generations,
        tasks: Tasks | None,
        quarantine: Callable[[Sequence[Rejected]], None],
        page: int,
    ) -> None:
        self.program = version.program
        self.store = store
        self.deadline = Deadline(invocation.remaining, sleep=invocation.sleep, chance=chance)
        self.generations = generations
        self.chance = chance
        self.now = now
        self.named = partial(lease_name, chance)
        self.tasks = tasks
        self.run = run
        self.sleep = invocation.sleep
        self._quarantine = quarantine
        self.page = page
        self.snapshot = Registry(version.program, store, new_rules).admit()
        self.outdated = self.snapshot.is_outdated(version.program)
        self.fenced = Fenced(store, self.snapshot, "job", clock=self.clock, named=self.named)
        """A store that checks the lease, for jobs whose operation does not make one itself."""
        self.refresher = Refresher(
            version.program,
            self.fenced,
            self.snapshot,
            generations=generations,
            run=run,
            clock=self.clock,
            chance=chance,
            reserved=RESERVED,
        )

    def clock(self) -> float:
        return self.now().timestamp()

    def resume(self, invocation: Invocation) -> None:
        """Begin another piece in the same process, which keeps its registry snapshot."""
        self.deadline = Deadline(invocation.remaining, sleep=invocation.sleep, chance=self.chance)
        self.sleep = invocation.sleep

    def do(self, job: Job, checkpoint: Checkpoint) -> Checkpoint:
        """Do the piece of a job that begins at a checkpoint; return the checkpoint after it."""
        after = job.work(checkpoint, self)
        self.fenced.close()
        return after

    def entries(self, after: Any) -> tuple[dict[ItemKey, Entry], Any]:
        """Return the entries on a page of the ledger, by the key of their source, and where the scan continues."""
        page = self.store.scan(LEDGER, limit=4 * self.page, after=after)
        entries = {
            decode_key(item["key"]["S"] if "key" in item else item["pk"]["S"][2:]): Entry.read(item)
            for item in page.items
            if item["pk"]["S"].startswith("E|")
        }
        return entries, page.after

    def backfill(self) -> operation.Backfill:
        return operation.Backfill(
            self.program,
            self.store,
            now=self.now,
            run=self.run,
            page=self.page,
            quarantine=self._quarantine,
            named=self.named,
            chance=self.chance,
            sleep=self.sleep,
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
        self._quarantine(list(self.refresher.rejected))
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
"""Of a backfill, which makes rules active, even if they were replaced."""
DONE = Checkpoint("done")

OUTDATED = Checkpoint("outdated")
"""Of a piece whose rules are not the active ones any more."""


class Job:
    """One operation. It does not continue before the time `ready`, in seconds since 1970."""

    name = "job"

    def __init__(self, version: RuleVersion) -> None:
        self.version = version
        self.checkpoint = self.first()
        self.ready = 0.0
        self.busy = False
        """Whether a piece is under way and its result is awaited."""
        self.generations = Generations()
        self.process: OperatorProcess | None = None
        """The process that did the last piece."""
        self.detached = False
        """Whether it is a process with rules that were replaced since. It is never started again."""

    def first(self) -> Checkpoint:
        raise NotImplementedError

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        """Do the piece that begins at a checkpoint; return the checkpoint after it."""
        raise NotImplementedError

    def restart(self, version: RuleVersion) -> bool:
        """Start again under other rules; return whether there is anything to do under them."""
        self.version, self.checkpoint, self.generations, self.process = version, self.first(), Generations(), None
        return True

    def detach(self) -> Job:
        """Return the job in its current process, which continues when the job itself starts again under other rules."""
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

    def first(self) -> Checkpoint:
        return Checkpoint("keys")

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        for push in process.refresher.keys(self._keys, process.deadline, self._known, self._removed, self._told):
            process.push(push)
        process.require_refreshed()
        return DONE


class Rebuild(Job):
    """A rebuild of a group in a new generation."""

    name = "rebuild"

    def __init__(self, version: RuleVersion, target: Target) -> None:
        super().__init__(version)
        self.target = target

    def first(self) -> Checkpoint:
        return Checkpoint("close")

    def restart(self, version: RuleVersion) -> bool:
        super().restart(version)
        return any(rule.name == self.target[0] for rules in version.program.ledger_rules.values() for rule in rules)

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        phase, generation, after = checkpoint
        if phase == "close":
            program = process.program  # the job may have started again under other rules
            return Checkpoint(
                "entries",
                rebuild.close(
                    process.fenced, program, self.target, process.generations, process.deadline, process.clock
                ),
            )
        process.generations.at_least(self.target, generation)
        if phase == "entries":
            rule, target = self.target
            entries, after = process.entries(after)
            keys = [key for key, entry in entries.items() if target in entry.contributions.get(rule, {})]
            process.refresher.sources(dict.fromkeys(keys), process.deadline)
            process.require_refreshed()
            return Checkpoint("entries", generation, after) if after is not None else Checkpoint("reopen", generation)
        if phase == "reopen":
            rebuild.reopen(process.fenced, self.target, generation)
            return Checkpoint("publish", generation)
        if phase == "publish":
            process.refresher.publish([self.target], process.deadline)
            process.require_refreshed()
            return Checkpoint("sweep", generation)
        rebuild.sweep(process.fenced, self.target, generation)
        return DONE


class Backfill(Job):
    """A backfill by the real operation: in pieces of this job, or as tasks that the worker does.

    A backfill of some rules continues with all rules.
    """

    name = "backfill"

    def __init__(
        self, version: RuleVersion, *, rules: Sequence[str], queued: bool, restart: bool, **options: Any
    ) -> None:
        super().__init__(version)
        self._rules = rules
        self._queued = queued
        self._restart = restart
        self._options = options

    def first(self) -> Checkpoint:
        return BEGIN

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        backfill = process.backfill()
        if checkpoint == BEGIN:
            (rules, self._rules), (restart, self._restart) = (self._rules, ()), (self._restart, False)
            run = backfill.begin(rules=rules, restart=restart, allow_delete=True, **self._options)
            if self._queued and process.tasks is not None:
                runner.send_tasks(backfill, run, process.tasks)
                return DONE
            return Checkpoint("pages", run.name)
        newest = backfill.progress.run()
        if newest is None or newest.name != checkpoint.about:
            raise Overtaken
        if newest.done:
            return self.first() if newest.rules else DONE
        if newest.ready > process.now().timestamp():
            self.ready = newest.ready
            return checkpoint
        left = [segment for segment in backfill.segments(newest) if not segment.done]
        if not left:
            backfill.forward(newest)
            return checkpoint
        done = backfill.page(newest, left[int(process.chance() * len(left))], process.deadline)
        backfill.release()
        if done.failed:
            raise Transient("not all of a page could be done")
        return checkpoint


class Verify(Job):
    """`verify --repair` of all tables, in one process."""

    name = "verify"

    def first(self) -> Checkpoint:
        return Checkpoint("verify")

    def work(self, checkpoint: Checkpoint, process: OperatorProcess) -> Checkpoint:
        scope = Scope(process.program, process.snapshot)
        with Scratch() as scratch:
            options: dict[str, Any] = {"threads": 1, "sleep": process.sleep, "run": process.run}
            verification = Verification(scope, process.store, scratch, patience=0, page=process.page, **options)
            verification.all()
            store = Cautious(process.store, deletes=True)
            options |= {"clock": process.clock, "chance": process.chance, "named": process.named}
            repair = Repair(scope, store, verification.candidates, **options)
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

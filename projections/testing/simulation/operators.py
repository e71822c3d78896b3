"""The actions of operators in a history (operations, other rules, outages, restores), and their jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field
from functools import partial
from random import Random
from typing import Any

from projections.engine.ledger_items import rule_of_link
from projections.engine.registry import Registry
from projections.engine.rejections import Rejected
from projections.engine.running import Reload
from projections.engine.store import Image
from projections.engine.value_counters import ValueCounters
from projections.errors import Transient, UsageError
from projections.local.event_source import Batch
from projections.operations.backfill.backfill_runs import Overtaken
from projections.operations.backfill.progress import Progress
from projections.operations.failed_messages import Reader
from projections.testing.simulation.database import Database
from projections.testing.simulation.deployment import Deployment
from projections.testing.simulation.external_writes import damage
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.history_checks import HistoryChecks
from projections.testing.simulation.jobs import (
    BEGIN,
    DONE,
    Apply,
    Backfill,
    Checkpoint,
    CleanUp,
    Job,
    OperatorProcess,
    Recount,
    Refresh,
    RollBack,
    Verify,
    groups_of,
)
from projections.testing.simulation.rule_versions import RuleVersion, RuleVersions
from projections.testing.simulation.scheduler import Scheduler
from projections.testing.simulation.trace import Trace
from projections.testing.simulation.workers import Invocation


@dataclass(eq=False)
class JobRunner:
    """Runs the pieces of jobs as invocations, in any order."""

    plan: FaultPlan
    rng: InitVar[Random]
    deployment: Deployment
    scheduler: Scheduler
    quarantine: Callable[[Sequence[Rejected]], None]
    jobs: list[Job] = field(default_factory=list, init=False)

    def __post_init__(self, rng: Random) -> None:
        self._random = rng.random

    def later(self, job: Job) -> Job:
        """Let a job wait until no invocation is under way that began before."""
        job.ready = self.scheduler.time() + self.scheduler.time_out
        return job

    def run_piece(self) -> bool:
        """Begin a piece of a job, if one can continue."""
        time = self.scheduler.time()
        jobs = [job for job in self.jobs if not job.busy and job.ready <= time]
        if not jobs:
            return False
        job = jobs[int(self._random() * len(jobs))]
        if self._random() < 0.3:
            job.values = ValueCounters()  # by another process
        job.busy = True
        invocation = self.scheduler.invocation(job.version, partial(self._finish, job), job.name)
        self.scheduler.begin(invocation, partial(self._work, job, job.checkpoint, invocation), f"{job.checkpoint}")
        return True

    def _work(self, job: Job, checkpoint: Checkpoint, invocation: Invocation) -> Checkpoint | None:
        """Return the checkpoint after a piece of a job; None if it has to be repeated."""
        process = job.process
        try:
            if process is not None and (job.detached or self._random() < self.plan.outlive):
                process.resume(invocation)
                invocation.registry = job.registry
                return job.work(checkpoint, process)
            process = OperatorProcess(
                invocation.version,
                self.deployment.store,
                invocation,
                run=self.deployment.run(),
                chance=self._random,
                now=self.scheduler.now,
                filled=not self.plan.fill,
                values=job.values,
                tasks=self.deployment.tasks,
                quarantine=self.quarantine,
                page=self.plan.scan_page,
            )
            job.process, job.registry = process, invocation.registry
            return job.work(checkpoint, process)
        except Overtaken:
            return DONE
        except Reload as reload:
            assert process is not None
            with suppress(Transient):
                process.registry.overtake(reload)
            return None
        except (Transient, UsageError):  # a usage error: another backfill began at the same time
            return None

    def _finish(self, job: Job, checkpoint: Checkpoint | None, error: Exception | None) -> None:
        job.busy = False
        if job not in self.jobs:
            return
        if job.detached and (checkpoint is None or checkpoint is DONE):
            self.jobs.remove(job)  # it ended with an error, or it is done
            return
        if checkpoint is None:
            job.process = None
            if self._random() < 0.1:
                job.restart()
            return
        job.checkpoint = checkpoint
        if checkpoint is DONE:
            self.jobs.remove(job)

    # Other rules

    def detach(self) -> None:
        """Let some processes continue with what they know, whatever is deployed next. None begins a backfill then."""
        for job in [job for job in self.jobs if not job.detached and job.process is not None]:
            if self._random() < self.plan.outlive and job.checkpoint != BEGIN:
                self.jobs.append(job.detach())


_Action = Callable[[], Job | None]


@dataclass(eq=False)
class Operators:
    """Begins the actions of operators when they are due, and their jobs."""

    plan: FaultPlan
    versions: RuleVersions
    rng: Random
    database: Database
    deployment: Deployment
    scheduler: Scheduler
    runner: JobRunner
    checks: HistoryChecks
    trace: Trace
    _backup: list[Image] = field(default_factory=list, init=False)
    """The ledger, as it was backed up."""

    def __post_init__(self) -> None:
        self._random = self.rng.random
        self._actions = self._schedule()
        """Each action with the number of writes of the application that are left then. The last one comes first."""
        self._swept = False

    def _schedule(self) -> list[tuple[int, _Action]]:
        plan, versions, random = self.plan, self.versions, self._random
        actions: list[_Action] = [self._refresh] * plan.refreshes
        actions += [self._recount] * plan.recounts
        actions += [lambda: RollBack(self.deployment.version, **self._options(), fills=False)] * plan.swaps
        actions += [self._backfill] * plan.backfills + [self._verify] * plan.verifies
        if plan.fill or versions.change:
            actions.append(self._apply_last)
        scheduled = [(int(random() * (plan.writes + 1)), action) for action in actions]
        # records that are lost, or a ledger that goes back: rules that keep what expired cannot know if an item did
        if not plan.fill and versions.between is None and not versions.keep_expired:
            pairs: list[tuple[bool, _Action, _Action]] = [
                (plan.outage, self._switch_off, self._switch_on),
                (plan.restore, self._back_up, self._restore),
            ]
            for happens, first, second in pairs:
                if happens:
                    late, early = sorted(int(random() * (plan.writes + 1)) for _ in range(2))
                    scheduled += [(early + (early == late), first), (late, second)]
        if versions.between is not None:  # deployed before the last ones
            left = scheduled[-1][0]
            scheduled.append((left + int(random() * (plan.writes + 1 - left)), self._apply_between))
        return sorted(scheduled, key=lambda pair: pair[0])

    def act(self, writes_left: int) -> None:
        """Begin the actions that are due."""
        while self._actions and self._actions[-1][0] >= writes_left:
            _, action = self._actions.pop()
            job = action()
            if job is not None:
                self.runner.jobs.append(job)

    # Operations

    def _refresh(self) -> Job:
        """Refresh some items: those that exist, that were removed, or that never existed."""
        database, rng = self.database, self.rng
        possible = [key for kind in self.versions.pools.kinds.values() for key, _ in kind.keys[:3]]
        keys = [*database.items, *database.items, *database.gone, *possible]
        chosen = [keys[int(rng.random() * len(keys))] for _ in range(rng.choice((1, 1, 2, 4)))]
        known = {key: [database.gone[key]] for key in chosen if key in database.gone}
        return Refresh(self.deployment.version, chosen, known)

    def _recount(self) -> Job | None:
        """Count a rule again, perhaps after one of its groups was damaged."""
        database, rng = self.database, self.rng
        snapshot = Registry(self.deployment.version.program, database.store).read()
        active = {version.name: rule for rule, version in snapshot.active.items()} if snapshot is not None else {}
        targets = [target for target in groups_of(database.ledger()) if target[0] in active]
        if not targets:
            return None
        target = rng.choice(targets)
        if rng.random() < self.plan.damage and (words := damage(database.store, target, rng)) is not None:
            self.trace.note(f"damage: {words}")
            self.checks.damaged = True
        return Recount(self.deployment.version, active[target[0]], **self._options())

    def _options(self) -> dict[str, Any]:
        """The options of a backfill."""
        return {
            "queued": self.plan.queue and self._random() < 0.5,
            "restart": self._random() < 0.2,
            "segments": 1 + int(3 * self._random()),
        }

    def _backfill(self) -> Job:
        return Backfill(self.deployment.version, **self._options())

    def _verify(self) -> Job:
        return Verify(self.deployment.version)

    def discard(self, batch: Batch) -> None:
        """Redrive a batch that its mapping has discarded, from the bucket."""
        tables = self.versions.application.tables
        discarded = {"DDBStreamBatchInfo": {}, "payload": json.dumps({"Records": batch.records})}
        message = Reader(tables, {name: name for name in tables}).value(discarded, "the bucket")
        assert message.unusable is None, message.unusable
        job = Refresh(self.deployment.version, list(message.items), message.items, message)
        # a redrive begins after the function's timeout: an abandoned invocation may work until then
        self.runner.jobs.append(self.runner.later(job))

    def resume(self) -> bool:
        """Begin jobs that complete what crashed or abandoned processes left; return whether there are jobs."""
        runner, last, store = self.runner, self.versions.last, self.database.store
        snapshot = Registry(last.program, store).read()
        options = {**self._options(), "queued": False}
        if snapshot is None:
            return False
        gaps = [version.rule for version in snapshot.active.values() if version.gap]
        versions, run = snapshot.versions.values(), Progress(store).run()
        begun = any(v.unfinished or v.state in ("filling", "leaving") for v in versions)
        begun = begun or (not run.done if run else bool(self.versions.change))  # a lost ledger has no run
        # a run that had read the ledger when their rule left has gone on: the next one deletes them
        links = {*map(rule_of_link, self.database.ledger())} - {None, *snapshot.active}
        if not self.checks.is_applied(snapshot):
            runner.jobs.append(Apply(last, **options))
        elif gaps:
            runner.jobs.append(Recount(last, gaps[0], **options))
        elif begun or (links and not self._swept):
            self._swept = not begun
            runner.jobs.append(Backfill(last, **options))
        return bool(runner.jobs)

    def pass_days(self) -> None:
        """Let so much time pass that the streams have no record left, and begin a clean-up of entries."""
        hours = 26 if self._random() < 0.3 else 8 * 24
        self.scheduler.steps = self.scheduler.step_at(self.scheduler.time() + hours * 3600)
        self.database.begin_streams(f" {self.scheduler.steps}")
        self.trace.note("days pass")
        self.runner.jobs += [CleanUp(self.deployment.version, **self._options()), self._refresh()]
        if self.plan.recounts and (recount := self._recount()) is not None:
            self.runner.jobs.append(recount)

    # The stream and the ledger

    def _switch_off(self) -> None:
        self.database.switch_off()
        self.trace.note("the stream is switched off")

    def _switch_on(self) -> Job:
        self.database.switch_on()
        self.trace.note("the stream is switched on again")
        return self.runner.later(Backfill(self.deployment.version, **{**self._options(), "restart": True}))

    def _back_up(self) -> None:
        self._backup = self.database.ledger()
        self.trace.note("the ledger is backed up")

    def _restore(self) -> Job:
        """Restore the ledger under its name. It does not exist meanwhile, so all invocations fail."""
        self.scheduler.kill_all("the ledger does not exist")
        runner = self.runner
        runner.jobs = [job for job in runner.jobs if not job.detached]
        for job in runner.jobs:
            job.restart()
        self.database.restore(self._backup)
        self.checks.damaged = True  # guards are ahead of their groups
        self.checks.forgotten |= not self._backup
        self.trace.note("the ledger is restored")
        return self._verify() if self._random() < 0.7 else self._backfill()

    # Other rules

    def _apply(self, version: RuleVersion, words: str) -> Job:
        self.runner.detach()
        self.deployment.deploy(version, self.plan.warm)
        self.trace.note(words)
        return Apply(version, **self._options())

    def _apply_between(self) -> Job:
        """Apply rules that will be replaced, before they are active or after."""
        assert self.versions.between is not None
        return self._apply(self.versions.between, f"the rules change: {self.versions.change}")

    def _apply_last(self) -> Job:
        """Apply other rules, or the first ones again, or fill the rules of an empty registry."""
        words = "the rules change again" if self.versions.between is not None else "the rules change"
        return self._apply(self.versions.last, f"{words}: {self.versions.change}")

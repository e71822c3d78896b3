"""The actions of operators in a history (operations, deployments of other rules, outages, restores), and their jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from projections.engine import rebuild
from projections.engine.groups import Generations
from projections.engine.ledger_items import Target
from projections.engine.registry import Registry, Replaced
from projections.engine.rejections import Rejected
from projections.engine.store import Image
from projections.errors import Misconfigured, Transient, UsageError
from projections.local.event_source import Batch
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
    OUTDATED,
    Backfill,
    Checkpoint,
    Job,
    OperatorProcess,
    Rebuild,
    Refresh,
    Verify,
    groups_of,
)
from projections.testing.simulation.rule_versions import RuleVersions
from projections.testing.simulation.scheduler import Scheduler
from projections.testing.simulation.trace import Trace
from projections.testing.simulation.workers import Invocation


class JobRunner:
    """Runs the pieces of jobs as invocations, in any order. A job whose rules were replaced starts again with others."""

    def __init__(
        self,
        plan: FaultPlan,
        rng: Random,
        deployment: Deployment,
        scheduler: Scheduler,
        quarantine: Callable[[Sequence[Rejected]], None],
    ) -> None:
        self._plan = plan
        self._random = rng.random
        self._deployment = deployment
        self._scheduler = scheduler
        self._quarantine = quarantine
        self.jobs: list[Job] = []
        self.gave_up = False
        """Whether a process died, timed out or failed: it may have left a rebuild that is not complete."""

    def later(self, job: Job) -> Job:
        """Let a job wait until no invocation is under way that began before."""
        job.ready = self._scheduler.time() + self._scheduler.time_out
        return job

    def run_piece(self) -> bool:
        """Begin a piece of a job, if one can continue."""
        time = self._scheduler.time()
        jobs = [job for job in self.jobs if not job.busy and job.ready <= time]
        if not jobs:
            return False
        job = jobs[int(self._random() * len(jobs))]
        if self._random() < 0.3:
            job.generations = Generations()  # by another process
        job.busy = True
        invocation = self._scheduler.invocation(job.version, partial(self._finish, job), job.name)
        self._scheduler.begin(invocation, partial(self._work, job, job.checkpoint, invocation), f"{job.checkpoint}")
        return True

    def _work(self, job: Job, checkpoint: Checkpoint, invocation: Invocation) -> Checkpoint | None:
        """Return the checkpoint after a piece of a job; None if it has to be repeated."""
        try:
            process = job.process
            if process is not None and (job.detached or self._random() < self._plan.outlive):
                process.resume(invocation)
                return process.do(job, checkpoint)
            process = OperatorProcess(
                invocation.version,
                self._deployment.store,
                invocation,
                run=self._deployment.run(),
                chance=self._random,
                now=self._scheduler.now,
                new_rules=self._plan.new_rules,
                generations=job.generations,
                tasks=self._deployment.tasks,
                quarantine=self._quarantine,
                page=self._plan.scan_page,
            )
            if process.outdated and checkpoint != BEGIN:
                return OUTDATED
            if job.version is invocation.version:  # else the job has started again under other rules
                job.process = process
            return process.do(job, checkpoint)
        except Replaced:
            return OUTDATED
        except Misconfigured:  # the rule file of an earlier process may lack a rule that was added since
            if invocation.version is self._deployment.version:
                raise
            return OUTDATED
        except (Transient, UsageError):  # a usage error: another backfill began at the same time
            return None

    def _finish(self, job: Job, checkpoint: Checkpoint | None, error: Exception | None) -> None:
        job.busy = False
        if job not in self.jobs:
            return
        if checkpoint is None or checkpoint is OUTDATED:
            self.gave_up = True
        if job.detached and (checkpoint is None or checkpoint in (OUTDATED, DONE, BEGIN)):
            self.jobs.remove(job)  # it ended with an error, or it is done: nobody activates replaced rules again
            return
        if checkpoint is OUTDATED:
            if not job.restart(self._deployment.version):
                self.jobs.remove(job)
            return
        if checkpoint is None:
            job.process = None
            if self._random() < 0.1:
                job.restart(job.version)
            return
        job.checkpoint = checkpoint
        if checkpoint is DONE:
            self.jobs.remove(job)

    # Other rules

    def detach(self) -> None:
        """Let some processes continue with what they know, whatever is deployed next. None begins a backfill then."""
        for job in [job for job in self.jobs if not job.detached and job.process is not None]:
            if self._random() < self._plan.outlive and job.checkpoint != BEGIN:
                self.jobs.append(job.detach())

    def restart_backfills(self) -> None:
        """Start backfills again with the rules that are deployed now."""
        for job in self.jobs:
            if isinstance(job, Backfill) and not job.detached:
                job.restart(self._deployment.version)
                self.later(job)  # a process that activates the former rules may still be at work


_Action = Callable[[], Job | None]


class Operators:
    """Begins the actions of operators when they are due, and their jobs."""

    def __init__(
        self,
        plan: FaultPlan,
        versions: RuleVersions,
        rng: Random,
        database: Database,
        deployment: Deployment,
        scheduler: Scheduler,
        runner: JobRunner,
        checks: HistoryChecks,
        trace: Trace,
    ) -> None:
        self._plan = plan
        self._versions = versions
        self._rng = rng
        self._random = rng.random
        self._database = database
        self._deployment = deployment
        self._scheduler = scheduler
        self._runner = runner
        self._checks = checks
        self._trace = trace
        self._backup: list[Image] = []
        """The ledger, as it was backed up."""
        self._awaited: Job | None = None
        """The backfill that has to begin before the next action."""
        self._actions = self._schedule()
        """Each action with the number of writes of the application that are left then. The last one comes first."""

    def _schedule(self) -> list[tuple[int, _Action]]:
        plan, versions, random = self._plan, self._versions, self._random
        actions: list[_Action] = [self._refresh] * plan.refreshes
        actions += [self._rebuild] * plan.rebuilds
        actions += [self._backfill] * plan.backfills
        actions += [self._verify] * plan.verifies
        if plan.fill or versions.change:
            actions.append(self._deploy_last)
        scheduled = [(int(random() * (plan.writes + 1)), action) for action in actions]
        if not plan.fill and not versions.change and not versions.keep_expired:
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
            scheduled.append((left + int(random() * (plan.writes + 1 - left)), self._deploy_between))
        return sorted(scheduled, key=lambda pair: pair[0])

    def act(self, writes_left: int) -> None:
        """Begin the actions that are due."""
        while self._actions and self._actions[-1][0] >= writes_left and not self._waits():
            _, action = self._actions.pop()
            job = action()
            if job is not None:
                self._runner.jobs.append(job)

    def _waits(self) -> bool:
        """Whether the backfill that makes rules active has yet to begin."""
        job = self._awaited
        return job is not None and job in self._runner.jobs and job.checkpoint == BEGIN

    # Operations

    def _refresh(self) -> Job:
        """Refresh some items: those that exist, that were removed, or that never existed."""
        database, rng = self._database, self._rng
        possible = [key for kind in self._versions.pools.kinds.values() for key, _ in kind.keys[:3]]
        keys = [*database.items, *database.items, *database.gone, *possible]
        chosen = [keys[int(rng.random() * len(keys))] for _ in range(rng.choice((1, 1, 2, 4)))]
        known = {key: [database.gone[key]] for key in chosen if key in database.gone}
        return Refresh(self._deployment.version, chosen, known)

    def _rebuild(self) -> Job | None:
        """Rebuild a group that exists, or one without contributions; often one that is being rebuilt already."""
        program, rng = self._deployment.version.program, self._rng
        rules = {rule.name: rule for rules in program.ledger_rules.values() for rule in rules}
        targets: list[Target] = [job.target for job in self._runner.jobs if isinstance(job, Rebuild)]
        if not targets or rng.random() < 0.5:
            targets = groups_of(self._database.ledger())
        if not targets or rng.random() < 0.1:
            items = [program.recognise(key, image) for key, image in self._database.items.items()]
            evaluated = [program.contributions(item).contributions for item in items]
            targets += [(rule, target) for by_rule in evaluated for rule, held in by_rule.items() for target in held]
        targets = [target for target in targets if target[0] in rules]
        if not targets:
            return None
        target = rng.choice(targets)
        if rng.random() < self._plan.damage:
            words = damage(self._database.store, target, rng, keeps=rules[target[0]].expired == "keep")
            if words is not None:
                self._trace.note(f"damage: {words}")
                self._checks.damaged = True
        return Rebuild(self._deployment.version, target)

    def _backfill(self, *, resumes: bool = False, restarts: bool = False) -> Job:
        """Backfill all rules, or one rule first."""
        version = self._deployment.version
        if version is self._versions.between and not self._versions.retires:
            version = self._versions.last  # which could not become active after the others
        random, rules = self._random, version.program.rules
        queued = self._plan.queue and random() < 0.5 and not resumes
        return Backfill(
            version,
            rules=[list(rules)[int(random() * len(rules))]] if not queued and random() < 0.2 else [],
            queued=queued,
            restart=random() < 0.2 or restarts,
            segments=1 + int(3 * random()),
            wait=self._scheduler.time_out,
        )

    def _verify(self) -> Job:
        return Verify(self._deployment.version)

    def discard(self, batch: Batch) -> None:
        """Redrive a batch that its mapping has discarded, from the bucket."""
        tables = self._versions.application.tables
        discarded = {"DDBStreamBatchInfo": {}, "payload": json.dumps({"Records": batch.records})}
        message = Reader(tables, {name: name for name in tables}).value(discarded, "the bucket")
        assert message.unusable is None, message.unusable
        job = Refresh(self._deployment.version, list(message.items), message.items, message)
        # a redrive begins after the function's timeout: an abandoned invocation may work until then
        self._runner.jobs.append(self._runner.later(job))

    def resume(self) -> bool:
        """Begin jobs that complete what crashed or abandoned processes left; return whether there are jobs."""
        runner, last = self._runner, self._versions.last
        left, runner.gave_up = list(rebuild.notes(self._database.store)) if runner.gave_up else [], False
        jobs = [Rebuild(last, note.target) for note in left]
        runner.jobs += [job for job in jobs if job.restart(last)]
        run = Progress(self._database.store).run()
        if run is not None and not run.done:
            runner.jobs.append(self._backfill(resumes=True))
        return bool(runner.jobs)

    # The stream and the ledger

    def _switch_off(self) -> None:
        self._database.switch_off()
        self._trace.note("the stream is switched off")

    def _switch_on(self) -> Job:
        self._database.switch_on()
        self._trace.note("the stream is switched on again")
        return self._runner.later(self._backfill(restarts=True))

    def _back_up(self) -> None:
        self._backup = self._database.ledger()
        self._trace.note("the ledger is backed up")

    def _restore(self) -> Job:
        """Restore the ledger under its name. It does not exist meanwhile, so all invocations fail."""
        self._scheduler.kill_all("the ledger does not exist")
        runner, version = self._runner, self._deployment.version
        runner.jobs = [job for job in runner.jobs if not job.detached and job.restart(version)]
        self._database.restore(self._backup)
        self._checks.damaged = True  # guards are ahead of their groups
        self._trace.note("the ledger is restored")
        return self._verify() if self._random() < 0.7 else self._backfill()

    # Other rules

    def _deploy_between(self) -> Job | None:
        """Deploy rules that will be replaced or rolled back, before they become active, or after."""
        versions, plan = self._versions, self._plan
        assert versions.between is not None
        self._checks.activate(self._deployment.version)
        self._runner.detach()
        self._checks.begin_provisional()
        self._deployment.deploy(versions.between, plan.warm)
        self._trace.note(f"the rules change: {versions.change}")
        if versions.retires:
            self._runner.restart_backfills()
        if not versions.retires or self._random() < (0.3 if plan.then == "changed again" else 0.7):
            return None
        job = self._runner.later(self._backfill())
        if plan.then == "changed again" and self._random() < 0.8:
            self._awaited = job
        return job

    def _deploy_last(self) -> Job | None:
        """Deploy other rules, or the first ones again, or begin the backfill of rules that are filling."""
        versions, runner, warm = self._versions, self._runner, 0
        if versions.between is None:
            self._checks.activate(self._deployment.version)
        runner.detach()
        if versions.between is not None:
            # No process begins with rules that were never active, and those under way have ended.
            snapshot = Registry(versions.between.program, self._database.store).read()
            known = snapshot is not None and snapshot.program == versions.between.program.fingerprint
            warm = self._plan.warm if known else 0
            runner.jobs = [
                job
                for job in runner.jobs
                if job.detached or (known and job.checkpoint != BEGIN) or job.restart(versions.last)
            ]
            self._trace.note(
                "the rules change again" if self._plan.then == "changed again" else "the rules are rolled back"
            )
        elif versions.change:
            warm = self._plan.warm
            self._trace.note(f"the rules change: {versions.change}")
        self._deployment.deploy(versions.last, warm)
        runner.restart_backfills()
        jobs = [self._backfill() for _ in range(1 + (self._random() < 0.3))]
        for job in jobs:
            runner.later(job)
        runner.jobs += jobs[1:]
        return jobs[0]

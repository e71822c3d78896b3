"""The jobs of operators that are under way, done piece by piece beside the functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from projections.engine.groups import Generations
from projections.engine.registry import Replaced
from projections.engine.rejections import Rejected
from projections.errors import Misconfigured, Transient, UsageError
from projections.testing.simulation.deployment import Deployment
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.jobs import BEGIN, DONE, OUTDATED, Backfill, Checkpoint, Job
from projections.testing.simulation.operator_process import OperatorProcess
from projections.testing.simulation.scheduler import Scheduler
from projections.testing.simulation.workers import Invocation

__all__ = ["JobRunner"]


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
        if job.detached and (checkpoint is None or checkpoint is OUTDATED or checkpoint is DONE):
            self.jobs.remove(job)  # it ended with an error, or it is done
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
        """Let some processes continue with what they know, whatever is deployed next."""
        for job in self.jobs[:]:
            if not job.detached and job.process is not None and self._random() < self._plan.outlive:
                self.jobs.append(job.detach())

    def restart_backfills(self) -> None:
        """Start backfills again with the rules that are deployed now."""
        for job in self.jobs:
            if isinstance(job, Backfill) and not job.detached:
                job.restart(self._deployment.version)
                self.later(job)  # a process that activates the former rules may still be at work

"""The deployed functions of one history: their packages, their processes, and the task queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from projections.aws.wiring import StreamHandler
from projections.engine.budget import Budget
from projections.engine.copies import CopyWrite
from projections.engine.embeds import SETTLE_SECONDS
from projections.engine.processor import Processor
from projections.engine.rejections import Rejected
from projections.engine.running import Deadline, Pacer, Run, one_by_one
from projections.local.event_source import Batch
from projections.operations.tasks import BackfillTask, Tasks
from projections.operations.worker import WorkerHandler
from projections.testing.simulation.database import Database
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.scheduler import SETTLED, Scheduler
from projections.testing.simulation.workers import Finish, Invocation, SteppedStore, at_once, carry_out

if TYPE_CHECKING:
    from projections.testing.simulation.rule_versions import RuleVersion


@dataclass(slots=True)
class _Message:
    body: str
    visible: int
    """The first step at which it can be received."""


class TaskQueue:
    """Messages by id: standard SQS, that is any order, sometimes twice, again if not done in time.

    The history sets `now`, its current step.
    """

    def __init__(self, rng: Random) -> None:
        self.now = 0
        self._rng = rng
        self._messages: dict[str, _Message] = {}
        self._sent = 0

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        """Send messages, as an invocation does: it stops before and after, and may meet a fault."""
        carry_out("send", bodies, lambda: self._take(bodies, delays))

    def _take(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        for body, seconds in zip(bodies, delays, strict=True):
            self._sent += 1
            visible = self.now + int(SETTLED * seconds / SETTLE_SECONDS) + 1
            self._messages[str(self._sent)] = _Message(body, visible)

    @property
    def next(self) -> int | None:
        """The step at which the next message can be received, None if the queue is empty."""
        return min((message.visible for message in self._messages.values()), default=None)

    def receive(self) -> dict[str, Any] | None:
        """Return an event with a few visible messages in any order, or None. Most of them are hidden afterwards."""
        visible = [name for name, message in self._messages.items() if message.visible <= self.now]
        if not visible:
            return None
        chosen = self._rng.sample(visible, self._rng.randint(1, min(3, len(visible))))
        for name in chosen:
            if self._rng.random() < 0.9:
                self._messages[name].visible = self.now + 100_000
        return {"Records": [{"messageId": name, "body": self._messages[name].body} for name in chosen]}

    def finish(self, event: dict[str, Any], answer: Any) -> None:
        """Remove the messages that were done. Those that failed, or all without an answer, can be received again."""
        failed = None if answer is None else {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        for record in event["Records"]:
            name = record["messageId"]
            if failed is None or name in failed or "" in failed:
                if name in self._messages:
                    self._messages[name].visible = self.now
            else:
                self._messages.pop(name, None)


class _Process:
    """A process of the stream function, which serves one invocation after the other."""

    handler: StreamHandler
    invocation: Invocation
    run: Run[Any]

    def __init__(self, version: RuleVersion) -> None:
        self.version = version


class _Worker(WorkerHandler):
    """A worker. A page of a backfill reads the registry for itself: the tasks after it go on by what the worker has read."""

    invocation: Invocation

    def backfill_page(self, task: BackfillTask, deadline: Deadline) -> BackfillTask | None:
        known = self.invocation.registry
        try:
            return super().backfill_page(task, deadline)
        finally:
            self.invocation.registry = known


class _Budget(Budget):
    """A budget that some changes exceed, whatever they cost, and the copies of some items, also if there is only one."""

    def __init__(self, plan: FaultPlan, chance: Callable[[], float], of_copies: Callable[[], float]) -> None:
        super().__init__(per_minute=plan.defer, cheap=0, wait=0)
        self._plan = plan
        self._chance = chance
        self._of_copies = of_copies

    def affords_copies(self, copy: CopyWrite) -> bool:
        return self._of_copies() >= self._plan.defer_copies

    def charge(self, costs: Mapping[str, int]) -> bool:
        return self._chance() >= self._plan.defer


@dataclass(eq=False)
class Deployment:
    """The stream function and the worker, with the package that is deployed now, or was before."""

    version: RuleVersion
    plan: FaultPlan
    rng: InitVar[Random]
    database: InitVar[Database]
    scheduler: Scheduler
    quarantine: Callable[[Sequence[Rejected]], None]
    _before: list[RuleVersion] = field(default_factory=list, init=False)
    """The packages that were deployed before."""
    _idle: list[_Process] = field(default_factory=list, init=False)
    """Warm processes."""

    def __post_init__(self, rng: Random, database: Database) -> None:
        self._random = rng.random
        self._of_copies = Random(rng.getstate()[1][2]).random  # a generator of its own, as for the plan
        self._mappings = database.mappings
        self.store = SteppedStore(database.store, database.lagging, lambda: self.plan.page)
        self.queue = TaskQueue(rng)
        self.tasks = Tasks(lambda: self.queue) if self.plan.queue else None
        self._warm = 0
        """How many invocations may still have a package that was deployed before."""

    def deploy(self, version: RuleVersion, warm: int) -> None:
        """Deploy another package. `warm` invocations may still have one before."""
        self._before.append(self.version)
        self.version, self._warm = version, warm

    def run(self) -> Run[Any]:
        """Return how an invocation runs independent pieces of work: at once or one after the other."""
        return at_once if self._random() < self.plan.threads else one_by_one

    def deliver(self, batch: Batch, finish: Finish, *, shardless: bool) -> tuple[Invocation, Callable[[], Any]]:
        """Return an invocation of the stream function with a batch, and its work. `shardless`: without the shard's ID."""
        invocation = self._invocation(finish)
        process = invocation.instance = self._process(invocation.version)
        process.invocation, process.run = invocation, self.run()
        event = {name: part for name, part in batch.event().items() if not (shardless and name == "shardId")}
        return invocation, partial(process.handler.handle, event, invocation.remaining)

    def work(self, event: dict[str, Any]) -> tuple[Invocation, Callable[[], Any]]:
        """Return an invocation of the worker with tasks of the queue, and its work."""
        invocation = self._invocation(lambda answer, error: self.queue.finish(event, answer))
        worker = _Worker(
            invocation.version.program,
            self.store,
            tasks=Tasks(lambda: self.queue),
            quarantine=self.quarantine,
            pacer=Pacer(1e9, clock=lambda: 0.0),
            run=self.run(),
            sleep=invocation.sleep,
            chance=self._random,
            filled=not self.plan.fill,
            now=self.scheduler.now,
        )
        worker.invocation = invocation
        return invocation, partial(worker.handle, event, invocation.remaining)

    def keep_process(self, invocation: Invocation) -> None:
        """Keep the process of an invocation for others."""
        if self.plan.reuse and invocation.instance is not None:
            self._idle.append(invocation.instance)

    def _invocation(self, finish: Finish) -> Invocation:
        version = self.version
        if self._warm and self._random() < 0.5:
            self._warm -= 1
            version = self._before[int(self._random() * len(self._before))]
        return self.scheduler.invocation(version, finish)

    def _process(self, version: RuleVersion) -> _Process:
        """Return a warm process of the function, or a new one."""
        idle = [process for process in self._idle if process.version is version] if self.plan.reuse else []
        if idle and self._random() < self.plan.reuse:
            process = idle[int(self._random() * len(idle))]
            self._idle.remove(process)
            return process
        process = _Process(version)
        processor = Processor(
            version.program,
            self.store,
            tables={table: table for table in self._mappings},
            quarantine=self.quarantine,
            sleep=lambda seconds: process.invocation.sleep(seconds),
            chance=self._random,
            clock=self.scheduler.time,
            run=lambda pieces: process.run(pieces),
            tasks=self.tasks,
            budget=_Budget(self.plan, self._random, self._of_copies),
            filled=not self.plan.fill,
        )
        process.handler = StreamHandler(processor, quarantine=self.quarantine)
        return process

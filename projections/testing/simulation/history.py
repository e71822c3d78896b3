"""One history: an application writes, its stream is delivered, invocations of the real engine overlap, die and repeat.

One integer decides everything. The scheduler carries out the engine's calls of the store one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, TypeAlias

from greenlet import getcurrent

from projections.engine import entry_refresh, ledger, registry
from projections.engine.guards import Identity
from projections.engine.rejections import Rejected
from projections.engine.store import Image, ItemKey, Write
from projections.errors import UsageError
from projections.language.program import Program
from projections.local.event_replay import schemas
from projections.local.event_source import Batch, EventSourceMapping
from projections.operations.backfill import backfill_runs, runner
from projections.testing.pools import Pools
from projections.testing.simulation.application_writes import Application, come_between
from projections.testing.simulation.database import Database
from projections.testing.simulation.deployment import Deployment
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.history_checks import HistoryChecks
from projections.testing.simulation.item_writer import ItemWriter
from projections.testing.simulation.operators import JobRunner, Operators
from projections.testing.simulation.rule_versions import RuleVersion, RuleVersions, edit_again, edit_rules, roll_back
from projections.testing.simulation.scheduler import Faults, FunctionRaised, Scheduler
from projections.testing.simulation.trace import Trace, short_number
from projections.testing.simulation.workers import Invocation, Thread

_CHANGES = 48
"""Different changes of one rule file, each computed when it is first used."""
_SECOND_CHANGES = 4
"""Different second changes after each of them, where rules change twice."""

_MOST_PROGRAMS = 300
"""Programs of registries that are kept."""

_Versions: TypeAlias = Mapping[str, tuple[Mapping[str, Any], bool]]
"""By name: the document of a version of a rule, and whether it is published."""


class Setup:
    """The rule file, its changes, and fixed values of the fault plan, for any number of histories.

    `without` names operations that the application does not do. `fixed` are values of the fault plan that are not drawn.
    `attacker` makes the `attack` of a history's application, by its writer and the seed.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        without: frozenset[str] = frozenset(),
        fixed: Mapping[str, Any] | None = None,
        attacker: Callable[[ItemWriter, int], Callable[[], str]] = lambda writer, seed: lambda: "",
    ) -> None:
        version = RuleVersion(document)
        self._alone = RuleVersions(version, version, version.program, Pools(version.program))
        self._changed: dict[tuple[object, ...], RuleVersions] = {}
        """By the words of a change, and what follows it."""
        self._assembled: dict[tuple[Any, ...], tuple[_Versions, Program]] = {}
        self.schemas = schemas(version.program)
        self.without = without
        self._fixed = fixed or {}
        self.attacker = attacker

    def plan(self, rng: Random) -> FaultPlan:
        return FaultPlan.draw(rng, self._fixed)

    def versions(self, plan: FaultPlan, rng: Random) -> RuleVersions:
        """The rules of one history."""
        if not plan.change:
            return self._alone
        number = int(rng.random() * _CHANGES)
        words = f"change {number}" + (" of entities" if plan.entities else "")
        versions = self._once((words,), lambda: edit_rules(self._alone, Random(words), entities=plan.entities))
        if plan.then == "rolled back" and versions.change:
            rng.random()
            return self._once((words, plan.then), lambda: roll_back(versions))
        if plan.then == "changed again" and versions.change:
            second = int(rng.random() * _SECOND_CHANGES)
            return self._once((words, second), lambda: edit_again(versions, Random(f"change {number} and {second}")))
        return versions

    def _once(self, place: tuple[object, ...], make: Callable[[], RuleVersions]) -> RuleVersions:
        if place not in self._changed:
            self._changed[place] = make()
        return self._changed[place]

    def assemble(self, packaged: Program, versions: _Versions) -> Program:
        """Return the program of versions of rules, compiled once for all histories."""
        place = packaged, *((name, id(document), published) for name, (document, published) in versions.items())
        if place not in self._assembled:
            if len(self._assembled) >= _MOST_PROGRAMS:
                self._assembled.clear()
            self._assembled[place] = versions, Program.assembled(packaged, versions)  # which keeps the documents
        return self._assembled[place][1]

    def play(self, seed: int, *, trace: bool = False) -> Outcome:
        return History(self, seed, Trace(kept=trace)).play()


RESTLESS = 60_000
"""Steps without a fault or a write after which a history is considered as endless."""


@dataclass(slots=True)
class Outcome:
    """How a history ended. It passed if there are no `problems`."""

    seed: int
    problems: list[str]
    writes: int
    records: int
    deliveries: int
    calls: int
    faults: int
    change: str
    """How the rules changed, empty if they did not."""
    trace: Sequence[str]


class History:
    """One history, which can be played once."""

    def __init__(self, setup: Setup, seed: int, trace: Trace) -> None:
        self._setup = setup
        self._seed = seed
        self._trace = trace
        rng = Random(seed)
        self._random = rng.random
        self._plan = plan = setup.plan(rng)
        self._versions = versions = setup.versions(plan, rng)
        self._faults = Faults(plan, rng, trace)
        self._scheduler = scheduler = Scheduler(
            plan, rng, self._faults, trace, race=self._race, ended=self._note_end, died=self._note_death
        )
        self._database = database = Database(
            setup.schemas,
            versions.application,
            plan,
            rng,
            indexed=versions.indexed,
            choose=self._faults.choose,
            step=lambda: scheduler.steps,
            time=scheduler.time,
            lanes=versions.lanes,
            observe=self._observe,
        )
        self._checks = HistoryChecks(plan, versions, database)
        writer = ItemWriter(
            versions.application, versions.rules, versions.pools, database.store, rng, database.items, database.made
        )
        recounts = plan.recounts or plan.discard or plan.shardless or plan.verifies or plan.backfills or plan.outage
        # what has expired is nowhere but in the groups that lanes count
        forgets = versions.forgets_expired and (versions.change or recounts or plan.restore)
        without = setup.without | plan.without | ({"expire"} if forgets or not versions.expires else frozenset())
        self._application = Application(writer, without, setup.attacker(writer, seed), Random(f"{seed} apart"))
        self._deployment = Deployment(versions.first, plan, rng, database, scheduler, self._quarantine)
        self._runner = JobRunner(plan, rng, self._deployment, scheduler, self._refuse)
        self._operators = Operators(
            plan, versions, rng, database, self._deployment, scheduler, self._runner, self._checks, trace
        )
        scheduler.time_out = rng.choice((0.1, 1.0, 10.0))
        self._left = plan.writes

    def play(self) -> Outcome:
        with _engine_of(self._setup, self._plan, self._versions, self._scheduler.time_out):
            self._play()
        checks, scheduler = self._checks, self._scheduler
        return Outcome(
            self._seed,
            checks.problems,
            writes=self._plan.writes,
            records=len(self._database.records),
            deliveries=scheduler.started,
            calls=scheduler.calls,
            faults=self._plan.faults - self._faults.left,
            change=self._versions.change,
            trace=self._trace.lines,
        )

    def _play(self) -> None:
        scheduler, checks = self._scheduler, self._checks
        try:
            ended = self._settle()
            if ended and self._versions.lanes and self._random() < 0.5:
                self._left, self._faults.left = 1 + int(10 * self._random()), self._plan.faults
                self._operators.pass_days()
                ended = self._settle()
            if ended and self._random() < 0.2:
                # A second mapping, or a stream that is read again from its beginning: nothing may change.
                self._database.rewind()
                self._trace.note("all records are delivered again")
                ended = self._settle()
        except FunctionRaised as raised:
            ended = False
            checks.problems = [str(raised)]
        finally:
            for invocation in list(scheduler.invocations):
                scheduler.kill(invocation)
        if ended:
            checks.check_end(self._application.writer)
        elif not checks.problems:
            checks.problems = ["the history does not end: writes of the engine cause each other"]

    # What happens next

    def _settle(self) -> bool:
        """Run until nothing is left to do, also for operators; return whether that point was reached."""
        ended = self._run()
        while ended and self._operators.resume():
            ended = self._run()
        return ended

    def _run(self) -> bool:
        """Run until nothing is left to do; return whether that point was reached."""
        random, scheduler, steps = self._random, self._scheduler, 0
        while True:
            if self._left or self._faults.left:
                steps = 0
            elif (steps := steps + 1) > RESTLESS:
                return False
            scheduler.steps += 1
            thread = scheduler.next_thread()
            if thread is not None:
                scheduler.step(thread)
            elif self._left and random() < 0.5:
                self._write()
            elif not self._begin():
                if self._left:
                    self._write()
                elif not scheduler.invocations:
                    due = [scheduler.step_at(job.ready) for job in self._runner.jobs]
                    if self._deployment.queue.next is not None:
                        due.append(self._deployment.queue.next)
                    if not due:
                        return True
                    scheduler.steps = max(scheduler.steps, min(due))
                elif (thread := scheduler.runnable()) is not None:
                    scheduler.step(thread)
                else:
                    scheduler.skip()

    def _write(self) -> None:
        while True:
            self._left -= 1
            self._scheduler.calling = None
            done = self._application.write()
            if done in ("read", "nothing"):
                self._trace.note(done, "application")
            if not self._left or self._random() >= self._plan.burst:
                return

    def _begin(self) -> bool:
        """Begin an invocation of a function or a piece of a job; return whether there was anything to begin."""
        scheduler, queue = self._scheduler, self._deployment.queue
        self._operators.act(self._left)
        if self._runner.jobs and self._random() < 0.3 and self._runner.run_piece():
            return True
        if sum([invocation.of_function for invocation in scheduler.invocations]) >= self._plan.invocations:
            return self._runner.run_piece()
        queue.now = scheduler.steps
        if queue.next is not None and self._random() < 0.5 and self._work():
            return True
        name = self._database.any_stream()
        if self._deliver(name, self._database.mappings[name]):
            return True
        return (queue.next is not None and self._work()) or self._runner.run_piece()

    def _deliver(self, name: str, mapping: EventSourceMapping) -> bool:
        """Deliver a batch of a stream, or discard it; return whether there was one."""
        if self._faults.left:
            self._faults.of_stream(self._database.streams[name], mapping)
        shards = mapping.runnable()
        if not shards:
            return False
        batch = mapping.next_batch(shards[int(self._random() * len(shards))] if len(shards) > 1 else shards[0])
        numbers = ", ".join(map(short_number, batch.records))
        if batch.records and self._faults.happens(self._plan.discard):
            self._trace.note(f"the batch {numbers} is discarded")
            mapping.finish(batch, {"state": {}, "batchItemFailures": []})
            self._operators.discard(batch)
            return True
        rate = self._plan.shardless
        shardless = batch.window and rate > 0 and self._faults.happens(rate)
        invocation, work = self._deployment.deliver(batch, partial(_finish, mapping, batch), shardless=shardless)
        self._scheduler.begin(invocation, work, f"receives from {name}: {numbers}")
        return True

    def _work(self) -> bool:
        """Begin an invocation of the worker, if a task is due."""
        event = self._deployment.queue.receive()
        if event is None:
            return False
        invocation, work = self._deployment.work(event)
        bodies = ", ".join(record["body"] for record in event["Records"])
        self._scheduler.begin(invocation, work, f"receives tasks: {bodies}")
        return True

    # What the parts report

    def _observe(self, key: ItemKey, before: Image | None, after: Image | None, record: Mapping[str, Any]) -> None:
        invocation = self._scheduler.calling
        if invocation is None:
            self._checks.harm.note_write(key, before, after)
        else:
            self._checks.engine_wrote(
                key,
                before,
                after,
                invocation,
                answered=not self._scheduler.answer_lost,
                tampered=self._application.writer.tampering,
            )
        self._trace.change(invocation.name if invocation is not None else "application", record)

    def _race(self, write: Write) -> None:
        without = self._setup.without
        come_between(
            self._application.writer,
            write.key,
            changes_kind=self._plan.change_kind and "change_kind" not in without,
            adopts=self._plan.adopt and "adopt" not in without,
        )

    def _note_end(self, invocation: Invocation) -> None:
        self._checks.problems += self._checks.harm.check_end(invocation)
        self._deployment.keep_process(invocation)

    def _note_death(self, invocation: Invocation) -> None:
        self._checks.harm.forget(invocation)

    def _quarantine(self, rejected: Sequence[Rejected]) -> None:
        """The quarantine of the functions."""
        self._faults.of_quarantine()
        self._checks.rejected.extend(rejected)

    def _refuse(self, rejected: Sequence[Rejected]) -> None:
        """The quarantine of jobs."""
        if rejected:
            self._faults.of_quarantine()
            self._checks.refused.update(dict.fromkeys(rejected))


def _finish(mapping: EventSourceMapping, batch: Batch, answer: Any, error: Exception | None) -> None:
    with suppress(ValueError):  # the shard was read again from an earlier record since: the answer matters no more
        mapping.finish(batch, answer, error)


class _AtOnce(ThreadPoolExecutor):
    """Runs each piece of work when it is submitted: in the thread of an invocation."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **options))
        except Exception as error:
            future.set_exception(error)
        return future


@contextmanager
def _engine_of(setup: Setup, plan: FaultPlan, rules: RuleVersions, time_out: float) -> Iterator[None]:
    """Let the engine be as a plan has it, and give new ledgers an identity that is not random.

    No invocation lasts longer than `time_out`: that bounds the handover to lanes.
    """
    older, newer = (rules.first.program, rules.newer) if plan.old else (None, ())

    def assemble(packaged: Program, versions: _Versions) -> Program:
        thread = getcurrent()
        reads = packaged is older and isinstance(thread, Thread) and thread.invocation.of_function
        if reads and any(document in newer for document, _ in versions.values()):
            raise UsageError("the package is too old")
        return setup.assemble(packaged, versions)

    changes: list[tuple[Any, str, Any]] = [
        (entry_refresh, "COMMIT_SECONDS", time_out),
        (registry, "HANDOVER_SECONDS", int(3 * time_out) + 2),  # times are whole seconds
        (ledger, "MOST_ACTIONS", plan.actions),
        (registry, "new_identity", lambda: Identity("test", (b"secret of the simulation",))),
        (registry, "Program", SimpleNamespace(assembled=assemble)),
        (runner, "ThreadPoolExecutor", _AtOnce),
        *([(backfill_runs, "STANDBY_SECONDS", 0.0)] if plan.removes else []),
    ]
    with ExitStack() as undo:
        for module, name, value in changes:
            undo.callback(setattr, module, name, getattr(module, name))
            setattr(module, name, value)
        yield

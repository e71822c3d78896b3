"""One history: an application writes, a mapping delivers, invocations of the real engine overlap, die and repeat.

One integer decides everything. What the engine asks of the store, the scheduler grants call by call.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from projections.aws.wiring import StreamHandler
from projections.engine import ledger, rebuild, registry
from projections.engine.groups import Generations
from projections.engine.ledger_items import Target
from projections.engine.processor import SETTLE_SECONDS, Processor, Rejected
from projections.engine.registry import FILLING, LIVE, PROVISIONAL, Registry, Replaced, RuleState
from projections.engine.running import Run, one_by_one
from projections.engine.store import Delete, Image, ItemKey, Store, Write
from projections.errors import Misconfigured, Transient, UsageError
from projections.language.keys import encode_key
from projections.local.event_source import Batch, Settings, Stream
from projections.local.event_source import Mapping as EventSourceMapping
from projections.local.tables import LEDGER
from projections.operations.backfill.progress import Progress
from projections.operations.pacing import Pacer
from projections.operations.redrive.letters import Reader
from projections.operations.tasks import Tasks
from projections.operations.worker import WorkerHandler
from projections.stores.memory import MemoryStore
from projections.testing.simulation.application import Application
from projections.testing.simulation.checks import Ended, Lived
from projections.testing.simulation.damage import damage
from projections.testing.simulation.harm import Harm
from projections.testing.simulation.jobs import (
    BEGIN,
    DONE,
    Backfill,
    Bench,
    Job,
    Place,
    Rebuild,
    Refresh,
    Verify,
    groups_of,
    lease_name,
)
from projections.testing.simulation.queue import SETTLED, TaskQueue
from projections.testing.simulation.trace import Trace
from projections.testing.simulation.traces import traces
from projections.testing.simulation.workers import (
    CONFLICT,
    LOST,
    THROTTLED,
    Finish,
    Invocation,
    SteppedStore,
    Thread,
    at_once,
)

if TYPE_CHECKING:
    from projections.testing.simulation.rule_versions import RuleVersion
    from projections.testing.simulation.setup import Setup

__all__ = ["History", "Outcome"]

SECONDS = 60.0
"""What an invocation has at first."""
_BEGINNING = 1_735_700_000.0
RESTLESS = 60_000
"""Steps without a fault or a write after which a history is taken never to come to rest."""


MOST_RACES = 8
"""Writes of the application in a history at most that come right before one of the engine."""


OUTDATED = Place("outdated")
"""Other rules are in force than a piece was started with."""


class _TimeOutError(Exception):
    """The mapping waits no longer for an answer."""


class _DeadError(Exception):
    """The process of an invocation is gone."""


class _RaisedError(Exception):
    """The function raised something: its history ends here."""


@dataclass(slots=True)
class Outcome:
    """How a history ended. It is fine if there are no `problems`."""

    seed: int
    problems: list[str]
    writes: int = 0
    records: int = 0
    deliveries: int = 0
    calls: int = 0
    faults: int = 0
    change: str = ""
    """How the rules changed in its middle, if they did."""
    trace: Sequence[str] = ()


@dataclass(slots=True)
class _World:
    """What has happened so far, kept by listening to the streams."""

    items: dict[ItemKey, Image] = field(default_factory=dict)
    made: dict[str, dict[ItemKey, None]] = field(default_factory=dict)
    expired: list[Mapping[str, Any]] = field(default_factory=list)
    gone: dict[ItemKey, Image] = field(default_factory=dict)
    """Items that were removed, as they were then."""
    records: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class _Instance:
    """A process of the function, which serves one invocation after the other."""

    handler: StreamHandler

    def __init__(self, version: RuleVersion) -> None:
        self.version = version
        self.invocation: Invocation | None = None
        self.run: Run[Any] = one_by_one

    def sleep(self, seconds: float) -> None:
        assert self.invocation is not None
        self.invocation.sleep(seconds)


class History:
    """One run. Not to be played twice."""

    def __init__(self, setup: Setup, seed: int, trace: Trace | None = None) -> None:
        self._setup = setup
        self._seed = seed
        self._trace = trace
        self._rng = rng = Random(seed)
        self._random = rng.random
        self._plan = setup.plan(rng)
        self._versions = versions = setup.versions(self._plan, rng)
        self._version = self._before = versions.first
        """The rules deployed now, and those before them."""
        self._warm = 0
        """How many invocations may still have the rules before."""
        self._world = _World()
        self._who = ""
        self._invocation: Invocation | None = None
        """Whose call of the store is carried out; None where the application writes."""
        self._store = MemoryStore(
            setup.schemas,
            # somewhere in a history the numbers get one digit longer, as those of AWS do
            first_sequence=10**21 - rng.randrange(1, 200),
            streams=list(versions.application.tables),
            on_record=self._record,
        )
        self._stepped = SteppedStore(self._store, self._lagging, lambda: self._plan.page)
        self._queue = TaskQueue(rng)
        self._past: deque[tuple[int, ItemKey, Image | None]] = deque()
        """Steps of late, with what each changed and how it was before; where indexes are read."""
        self._settings = settings = Settings(batch_size=self._plan.batch, report_batch_item_failures=True, bisect=True)
        self._streams = {
            name: Stream(f"{name}", shards=self._plan.shards) for name in versions.application.tables if name != LEDGER
        }
        self._mappings = {
            name: EventSourceMapping(stream, settings, choose=self._choose) for name, stream in self._streams.items()
        }
        expires = versions.expires or (self._plan.expire_tried and versions.rolled_back)
        self._application = Application(
            versions.application,
            versions.rules,
            versions.pools,
            self._store,
            rng,
            self._world.items,
            self._world.made,
            setup.without | self._plan.without | (frozenset() if expires and not self._holds else {"expire"}),
        )
        self._lived = Lived(self._store)
        self._harm = Harm(versions.ownership)
        self._lost = False
        """Whether the answer of the call that is carried out is lost."""
        self._jobs: list[Job] = []
        self._planned = self._schedule()
        """What operators will do, each with the number of writes left then; the last comes first."""
        self._awaited: Job | None = None
        """The backfill that they await before they go on."""
        self._damaged = False
        self._since: set[ItemKey] | None = None
        """Items that were written since rules were deployed that will be rolled back or replaced; None before that."""
        self._unsettled: set[str] = set()
        """Items that expired since then, with their encoded keys."""
        self._unclear = False
        """Whether one of them was written under rules that were never in force: its contributions are not determined."""
        self._off = False
        """Whether the stream is switched off: nobody hears of what is written."""
        self._outages = 0
        self._saved: list[Image] = []
        """The ledger, as it was backed up."""
        self._wait = rng.choice((0.1, 1.0, 10.0))
        """Seconds after which an invocation ends for certain: its function's time-out."""
        self._gave_up = False
        """Whether an operator's process died, was taken for dead, or stopped with an error: it may have left a rebuild."""
        self._invocations: list[Invocation] = []
        self._instances: list[_Instance] = []
        """Processes of the function that are warm, and idle."""
        self._steps = 0
        self._last: Thread | None = None
        self._hub: greenlet = getcurrent()
        self._left = self._plan.writes
        self._races = MOST_RACES
        self._faults = self._plan.faults
        self._outcome = Outcome(seed, [], change=versions.change)
        self._rejected: list[Rejected] = []
        self._refused: dict[Rejected, None] = {}
        """What refreshes could not do."""

    def play(self) -> Outcome:
        with _engine_of(self._plan.actions):
            return self._played()

    def _played(self) -> Outcome:
        self._hub = getcurrent()
        try:
            restful = self._run()
            while restful and self._resumed():
                restful = self._run()
            if restful and self._random() < 0.2:
                # A second mapping, or a stream read again from its beginning: all of it changes nothing.
                for name, mapping in self._mappings.items():
                    for shard in self._streams[name].shards:
                        mapping.rewind(shard)
                self._note("everything is delivered again")
                restful = self._run()
        except _RaisedError as raised:
            restful = False
            self._outcome.problems = [str(raised)]
        finally:
            for invocation in list(self._invocations):
                self._kill(invocation)
        outcome = self._outcome
        if restful:
            ended = Ended(
                self._world.items,
                self._store.items(LEDGER),
                self._world.expired,
                self._world.records,
                self._rejected,
                tuple(self._refused),
                tuple(version.program for version in self._versions.all),
                self._harm.genuine,
                self._unsettled if self._versions.rolled_back else (),
                self._versions.rolled_back and self._unclear,
                self._application.touched | self._application.own if self._delivers_all else None,
                self._outages > 0,
            )
            outcome.problems += self._versions.last.checks.problems(ended)
            outcome.problems += self._left_behind()
            outcome.problems += self._harm.left_over(
                self._world.items,
                self._application.touched,
                self._versions.last.program,
                unheard=self._outages > 0,
            )
        elif not outcome.problems:
            outcome.problems = ["the history does not come to rest: writes of ours keep each other going"]
        outcome.writes = self._plan.writes
        outcome.records = len(self._world.records)
        outcome.faults = self._plan.faults - self._faults
        outcome.trace = self._trace.lines if self._trace is not None else ()
        return outcome

    # The scheduler

    def _run(self) -> bool:
        """Until nothing is left to do. Whether that point was reached."""
        random, plan, steps = self._random, self._plan, 0
        while True:
            if self._left or self._faults:
                steps = 0
            elif (steps := steps + 1) > RESTLESS:
                return False
            self._steps += 1
            last = self._last
            if last is not None and random() < plan.again and not last.dead and not last.awaits:
                self._step(last)
                continue
            thread = self._runnable() if self._invocations and random() < plan.working else None
            if thread is not None:
                self._step(thread)
            elif self._left and random() < 0.5:
                self._write()
            elif not self._deliver():
                if self._left:
                    self._write()
                elif not self._invocations:
                    due = [] if self._queue.next is None else [self._queue.next]
                    due += [ceil((job.ready - _BEGINNING) * SETTLED / SETTLE_SECONDS) for job in self._jobs]
                    if not due:
                        return True
                    self._steps = max(self._steps, min(due))
                elif (thread := self._runnable()) is not None:
                    self._step(thread)
                else:
                    self._steps = min(invocation.frozen for invocation in self._invocations)

    def _runnable(self) -> Thread | None:
        """Any thread that can go on; None if all stand still."""
        invocations = [one for one in self._invocations if one.frozen <= self._steps]
        if not invocations:
            return None
        invocation = invocations[int(self._random() * len(invocations))] if len(invocations) > 1 else invocations[0]
        threads = invocation.threads
        if len(threads) > 1:
            threads = [thread for thread in threads if not thread.awaits]
            return threads[int(self._random() * len(threads))]
        return threads[0]

    def _write(self) -> None:
        while True:
            self._left -= 1
            self._who, self._invocation = "application", None
            done = self._application.write()
            if self._trace is not None and done in ("read", "nothing"):
                self._trace.add("application", done)
            if not self._left or self._random() >= self._plan.burst:
                return

    def _deliver(self) -> bool:
        """Begin an invocation, if there is anything to deliver, or a piece of what operators do."""
        while self._planned and self._planned[-1][0] >= self._left and not self._waits():
            self._start(self._planned.pop()[1])
        if self._jobs and self._random() < 0.3 and self._operate():
            return True
        if sum([invocation.of_function for invocation in self._invocations]) >= self._plan.invocations:
            return self._operate()
        self._queue.now = self._steps
        if self._queue.next is not None and self._random() < 0.5 and self._work():
            return True
        name = next(iter(self._mappings))
        if len(self._mappings) > 1:
            names = list(self._mappings)
            start = int(self._random() * len(names))
            names = names[start:] + names[:start]
            name = next((one for one in names if self._mappings[one].runnable()), names[0])
        mapping = self._mappings[name]
        if self._faults and self._disturb(name, mapping):
            return True
        lanes = mapping.runnable()
        if not lanes:
            return (self._queue.next is not None and self._work()) or self._operate()
        lane = lanes[int(self._random() * len(lanes))] if len(lanes) > 1 else lanes[0]
        batch = mapping.next_batch(lane)
        if self._faults and self._random() < self._plan.discard and self._given_up(mapping, batch):
            return True
        invocation = self._invocation_of(partial(self._finished, mapping, batch))
        instance = invocation.instance = self._instance(invocation.version)
        instance.invocation = invocation
        instance.run = at_once if self._random() < self._plan.threads else one_by_one
        work = partial(instance.handler.handle, batch.event(), invocation.remaining)
        self._begin(invocation, work, f"gets {name}: " + ", ".join(_number(record) for record in batch.records))
        return True

    def _instance(self, version: RuleVersion) -> _Instance:
        """A warm process of the function, or a new one."""
        idle = [one for one in self._instances if one.version is version] if self._plan.reuse else []
        if idle and self._random() < self._plan.reuse:
            instance = idle[int(self._random() * len(idle))]
            self._instances.remove(instance)
            return instance
        instance = _Instance(version)
        processor = Processor(
            version.program,
            self._stepped,
            tables={table: table for table in self._mappings},
            quarantine=self._quarantine,
            sleep=instance.sleep,
            chance=self._random,
            clock=self._time,
            run=lambda pieces: instance.run(pieces),
            tasks=Tasks(lambda: self._queue) if self._plan.queue else None,
            new_rules=self._new_rules,
        )
        instance.handler = StreamHandler(processor, quarantine=self._quarantine)
        return instance

    def _work(self) -> bool:
        """Begin an invocation of the worker, if a task is due."""
        event = self._queue.receive()
        if event is None:
            return False
        invocation = self._invocation_of(lambda answer, error: self._queue.finish(event, answer))
        invocation.chain = self._queue.chain_of(event)
        worker = WorkerHandler(
            invocation.version.program,
            self._stepped,
            send=Tasks(lambda: self._queue),
            quarantine=self._quarantine,
            pacer=Pacer(1e9, clock=lambda: 0.0),
            run=at_once if self._random() < self._plan.threads else one_by_one,
            sleep=invocation.sleep,
            chance=self._random,
            new_rules=self._new_rules,
            now=self._now,
            named=partial(lease_name, self._random),
        )
        work = partial(worker.handle, event, invocation.remaining)
        self._begin(invocation, work, "gets tasks: " + ", ".join(record["body"] for record in event["Records"]))
        return True

    def _invocation_of(self, finish: Finish) -> Invocation:
        version = self._version
        if self._warm and self._random() < 0.5:
            self._warm -= 1
            version = self._before
        return self._numbered(version, finish)

    def _numbered(self, version: RuleVersion, finish: Finish, what: str = "invocation") -> Invocation:
        self._outcome.deliveries += 1
        invocation = Invocation(self._outcome.deliveries, version, finish, SECONDS, what)
        invocation.freeze = self._sleeps
        invocation.born = self._time()
        return invocation

    def _time(self) -> float:
        """Seconds since 1970. It passes with the steps, but never reaches the time-out of an invocation under way."""
        time = self._steps * SETTLE_SECONDS / SETTLED
        times = [invocation.born + 0.99 * self._wait for invocation in self._invocations]
        return min([_BEGINNING + time, *times])

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._time(), UTC)

    @property
    def _holds(self) -> bool:
        """Whether an expiry may find rules that keep what has expired and are not active: only active rules settle it."""
        return self._plan.fill and any(rule.expired == "keep" for rule in self._versions.rules)

    @property
    def _delivers_all(self) -> bool:
        """Whether the same rules are given every record: then the last values of a parent that is gone are known."""
        plan = self._plan
        others = (plan.fill, plan.outage, plan.restore, plan.discard, plan.refreshes, plan.backfills, plan.verifies)
        return not self._versions.change and not any(others)

    @property
    def _new_rules(self) -> RuleState:
        return FILLING if self._plan.fill else LIVE

    def _begin(self, invocation: Invocation, work: Callable[[], Any], what: str) -> None:
        thread = Thread(self._hub, invocation, work)
        invocation.threads.append(thread)
        self._invocations.append(invocation)
        self._note(what, invocation)
        self._step(thread)

    def _step(self, thread: Thread) -> None:
        """Let a thread go on to its next stop, unless something happens to it."""
        invocation = thread.invocation
        fault: str | None = None
        what = thread.at[0]
        if self._faults and what != "starts":
            fault = self._fault(thread)
            if fault == "dies":
                self._note("dies", invocation)
                self._kill(invocation)
                if not invocation.abandoned:
                    invocation.finish(None, _DeadError("the process died"))
                return
        if what == "asks":
            if self._plan.race and thread.at[1] == "write" and thread.at[2].key.table != LEDGER:
                self._race(thread.at[2])
            self._outcome.calls += 1
            self._invocation = invocation
            self._lost = fault == LOST
            self._who = invocation.name
        if self._trace is not None:
            self._trace.call(invocation.name, thread.at, fault)
        if invocation.frozen > self._steps:
            return
        self._last = thread
        thread.switch(fault)
        if thread.dead:
            self._last = None
            if thread.awaited_by is None:
                self._ended(invocation, thread)

    def _race(self, write: Write) -> None:
        """Now and then the application is faster than the engine, which has decided what to write."""
        rate = self._plan.race * (2 if isinstance(write, Delete) else 1)
        if self._races and self._random() < rate:
            self._races -= 1
            self._who, self._invocation = "application", None
            without = self._setup.without
            self._application.come_between(
                write.key,
                turns=self._plan.turn and "turn" not in without,
                inhabits=self._plan.inhabit and "inhabit" not in without,
            )

    def _ended(self, invocation: Invocation, thread: Thread) -> None:
        self._invocations.remove(invocation)
        self._outcome.problems += self._harm.ended(invocation)
        if self._plan.reuse and invocation.instance is not None:
            self._instances.append(invocation.instance)
        error = thread.failure
        if error is not None:
            # The handler raises for no record's sake, and nothing here is misconfigured.
            raise _RaisedError(f"the function raised {type(error).__name__}: {error}") from error
        answer = thread.result
        if invocation.of_function:
            self._note(f"answers {answer['batchItemFailures'] or 'that all is done'}", invocation)
        if not invocation.abandoned:
            invocation.finish(answer, None)

    def _finished(self, mapping: EventSourceMapping, batch: Batch, answer: Any, error: Exception | None) -> None:
        try:
            mapping.finish(batch, answer, error)
        except ValueError:
            return  # the shard has been read again from further back in the meantime: nobody waits for this answer

    def _sleeps(self, invocation: Invocation, seconds: float) -> None:
        invocation.frozen = max(invocation.frozen, self._steps + int(SETTLED * seconds / SETTLE_SECONDS) + 1)
        self._last = None

    def _kill(self, invocation: Invocation) -> None:
        self._harm.died(invocation)
        if invocation in self._invocations:
            self._invocations.remove(invocation)
        for thread in list(invocation.threads):
            thread.throw()
        invocation.threads.clear()
        self._last = None

    def _resumed(self) -> bool:
        """Whoever began something and died, or went on when nobody waited for it any more, has left it to be finished."""
        left, self._gave_up = list(rebuild.notes(self._store)) if self._gave_up else [], False
        jobs = [Rebuild(self._versions.last, note.target) for note in left]
        self._jobs += [job for job in jobs if job.begun_again(self._versions.last)]
        run = Progress(self._store).run()
        if run is not None and not run.done:
            self._jobs.append(self._backfill(resumes=True))
        return bool(self._jobs)

    def _left_behind(self) -> Iterator[str]:
        """What a backfill, if there was to be one, has left undone."""
        versions = self._versions
        last = versions.last.program
        if not self._plan.fill and not versions.change:
            return
        run = Progress(self._store).run()
        if run is None or not run.done or run.rules or run.program != last.fingerprint:
            yield f"the backfill has not come to its end: {run}"
        elif versions.change:
            touched = self._application.touched | self._application.own
            before = [version.program for version in (versions.first, versions.between) if version is not None]
            yield from traces(before, last, self._world.items, touched)
            rules = Registry(last, self._store).read_or_create().rules
            if tried := [name for name, one in rules.items() if one.state == PROVISIONAL]:
                yield f"{', '.join(tried)}: the registry still says that this was tried"

    # What operators do

    def _schedule(self) -> list[tuple[int, Callable[[], Job | None]]]:
        plan = self._plan
        starts: list[Callable[[], Job | None]] = [self._refresh] * plan.refreshes
        starts += [self._rebuild] * plan.rebuilds
        starts += [self._backfill] * plan.backfills
        starts += [self._verify] * plan.verifies
        if plan.fill or self._versions.change:
            starts.append(self._deploy)
        planned = [(int(self._random() * (plan.writes + 1)), start) for start in starts]
        if (
            not plan.fill
            and not self._versions.change
            and not any(rule.expired == "keep" for rule in self._versions.rules)
        ):
            for happens, first, second in (
                (plan.outage, self._switch_off, self._switch_on),
                (plan.restore, self._back_up, self._restore),
            ):
                if happens:
                    late, early = sorted(int(self._random() * (plan.writes + 1)) for _ in range(2))
                    planned += [(early + (early == late), first), (late, second)]
        if self._versions.between is not None:  # before that
            left = planned[-1][0]
            planned.append((left + int(self._random() * (plan.writes + 1 - left)), self._try))
        return sorted(planned, key=lambda one: one[0])

    def _waits(self) -> bool:
        """Whether operators first see rules come into force before they do anything else."""
        return self._awaited is not None and self._awaited in self._jobs and self._awaited.place == BEGIN

    def _start(self, begin: Callable[[], Job | None]) -> None:
        job = begin()
        if job is not None:
            self._jobs.append(job)

    def _refresh(self) -> Job | None:
        """Some items: those that exist, that were removed, or that never were."""
        world, rng = self._world, self._rng
        places = [key for kind in self._versions.pools.kinds.values() for key, _ in kind.keys[:3]]
        keys = [*world.items, *world.items, *world.gone, *places]
        chosen = [keys[int(rng.random() * len(keys))] for _ in range(rng.choice((1, 1, 2, 4)))]
        known = {key: [world.gone[key]] for key in chosen if key in world.gone}
        return Refresh(self._version, chosen, known)

    def _rebuild(self) -> Job | None:
        """A group that there is, or one that nothing has contributed to yet; often the one that is being rebuilt."""
        program, rng = self._version.program, self._rng
        rules = {rule.name: rule for rules in program.ledger_rules.values() for rule in rules}
        targets: list[Target] = [job.target for job in self._jobs if isinstance(job, Rebuild)]
        if not targets or rng.random() < 0.5:
            targets = groups_of(self._store.items(LEDGER))
        if not targets or rng.random() < 0.1:
            items = [program.recognise(key, image) for key, image in self._world.items.items()]
            given = [program.contributions(item).contributions for item in items]
            targets += [(rule, target) for one in given for rule, held in one.items() for target in held]
        targets = [target for target in targets if target[0] in rules]
        if not targets:
            return None
        target = rng.choice(targets)
        if rng.random() < self._plan.damage:
            words = damage(self._store, target, rng, keeps=rules[target[0]].expired == "keep")
            if words is not None:
                self._note(f"damage: {words}")
                self._damaged = True
        return Rebuild(self._version, target)

    def _backfill(self, *, resumes: bool = False, restarts: bool = False) -> Job:
        """Of all rules, or at first of one."""
        version = self._version
        if version is self._versions.between and not self._versions.retires:
            version = self._versions.last  # for after the other it could not be put in force again
        random, rules = self._random, version.program.rules
        queued = self._plan.queue and random() < 0.5 and not resumes
        return Backfill(
            version,
            rules=[list(rules)[int(random() * len(rules))]] if not queued and random() < 0.2 else [],
            queued=queued,
            restart=random() < 0.2 or restarts,
            segments=1 + int(3 * random()),
            wait=self._wait,
        )

    def _verify(self) -> Job:
        return Verify(self._version)

    def _switch_off(self) -> None:
        self._off = True
        self._note("the stream is switched off")

    def _switch_on(self) -> Job:
        """The stream has a new label, and its numbers begin anew. What was not delivered of the old one is lost."""
        self._off = False
        self._outages += 1
        self._store.begin_stream(f"2025-02-{self._outages:02}T00:00:00.000", 10**20 * (1 + self._rng.randrange(8)))
        for name in self._streams:
            self._streams[name] = stream = Stream(name, shards=self._plan.shards)
            self._mappings[name] = EventSourceMapping(stream, self._settings, choose=self._choose)
        self._note("the stream is switched on again")
        job = self._backfill(restarts=True)
        job.ready = self._time() + self._wait
        return job

    def _back_up(self) -> None:
        self._saved = self._store.items(LEDGER)
        self._note("the ledger is backed up")

    def _restore(self) -> Job:
        """The ledger as it was, under its old name. Nobody can use it meanwhile: who is at work fails."""
        for invocation in list(self._invocations):
            self._kill(invocation)
            if not invocation.abandoned:
                invocation.finish(None, _DeadError("there is no ledger"))
        self._jobs = [job for job in self._jobs if not job.outlives and job.begun_again(self._version)]
        for item in self._store.items(LEDGER):
            self._store.remove(ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"]))
        for item in self._saved:
            self._store.put(LEDGER, item)
        self._damaged = True  # it knows less than the guards say
        self._note("the ledger is restored")
        return Verify(self._version) if self._random() < 0.7 else self._backfill()

    def _outlived(self) -> None:
        """Some processes of operators go on with what they knew, whatever is deployed or put in force."""
        for job in self._jobs[:]:
            if not job.outlives and job.bench is not None and self._random() < self._plan.outlive:
                self._jobs.append(job.left_behind())

    def _try(self) -> Job | None:
        """Rules are deployed that will be replaced or rolled back: before anybody puts them in force, or after."""
        versions = self._versions
        assert versions.between is not None
        self._used()
        self._outlived()
        self._since = set()
        self._version, self._warm = versions.between, self._plan.warm
        self._note(f"the rules change: {versions.change}")
        if versions.retires:
            self._backfill_again()
        if not versions.retires or self._random() < (0.3 if self._plan.then == "on" else 0.7):
            return None
        job = self._backfill()
        job.ready = self._time() + self._wait
        if self._plan.then == "on" and self._random() < 0.8:
            self._awaited = job
        return job

    def _used(self) -> None:
        """The rules that are deployed have been in force, since somebody used them."""
        Registry(self._version.program, self._store, self._new_rules).read_or_create()
        self._lived.look()

    def _deploy(self) -> Job | None:
        """Other rules, or those that fill, are put in force, or those of before again."""
        versions = self._versions
        if versions.between is None:
            self._used()
        self._outlived()
        self._before, self._version = self._version, versions.last
        if versions.between is not None:
            # Nobody begins with rules any more that were never in force; who has begun is waited for.
            snapshot = Registry(versions.between.program, self._store).read()
            known = snapshot is not None and snapshot.program == versions.between.program.fingerprint
            self._warm = self._plan.warm if known else 0
            self._jobs = [
                job
                for job in self._jobs
                if job.outlives or (known and job.place != BEGIN) or job.begun_again(versions.last)
            ]
            self._note("the rules change again" if self._plan.then == "on" else "the rules are rolled back")
        elif versions.change:
            self._warm = self._plan.warm
            self._note(f"the rules change: {versions.change}")
        self._backfill_again()
        jobs = [self._backfill() for _ in range(1 + (self._random() < 0.3))]
        for job in jobs:
            job.ready = self._time() + self._wait
        self._jobs += jobs[1:]
        return jobs[0]

    def _backfill_again(self) -> None:
        """Backfills under way begin again with the rules that are deployed now."""
        for job in self._jobs:
            if isinstance(job, Backfill) and not job.outlives:
                job.begun_again(self._version)
                job.ready = self._time() + self._wait  # who puts the rules before in force may still be at it

    def _given_up(self, mapping: EventSourceMapping, batch: Batch) -> bool:
        """A batch that the mapping gives up goes to a bucket, and is redriven from there."""
        self._faults -= 1
        tables = self._versions.application.tables
        discarded = {"DDBStreamBatchInfo": {}, "payload": json.dumps({"Records": batch.records})}
        letter = Reader(tables, {name: name for name in tables}).value(discarded, "the bucket")
        assert letter.useless is None, letter.useless
        self._note("given up are " + ", ".join(_number(record) for record in batch.records))
        mapping.finish(batch, {"batchItemFailures": []})
        job = Refresh(self._version, list(letter.items), letter.items, letter)
        # nobody redrives before the function's time-out: who was given up may still be at work until then
        job.ready = self._time() + self._wait
        self._jobs.append(job)
        return True

    def _operate(self) -> bool:
        """Begin a piece of a job, if any can go on."""
        time = self._time()
        jobs = [job for job in self._jobs if not job.busy and job.ready <= time]
        if not jobs:
            return False
        job = jobs[int(self._random() * len(jobs))]
        if self._random() < 0.3:
            job.generations = Generations()  # by another process
        job.busy = True
        invocation = self._numbered(job.version, partial(self._advanced, job), job.name)
        self._begin(invocation, partial(self._piece, job, job.place, invocation), f"{job.place}")
        return True

    def _piece(self, job: Job, place: Place, invocation: Invocation) -> Place | None:
        """The place after a piece of a job; None if it has to be repeated."""
        try:
            if job.bench is not None and (job.outlives or self._random() < self._plan.outlive):
                job.bench.goes_on(invocation)
                return job.bench.does(job, place)
            bench = Bench(
                invocation.version,
                self._stepped,
                invocation,
                run=at_once if self._random() < self._plan.threads else one_by_one,
                chance=self._random,
                now=self._now,
                new_rules=self._new_rules,
                generations=job.generations,
                tasks=Tasks(lambda: self._queue) if self._plan.queue else None,
                quarantine=self._refuse,
                page=self._plan.scanned,
            )
            if bench.outdated and place != BEGIN:
                return OUTDATED
            if job.version is invocation.version:  # else it began again under other rules meanwhile
                job.bench = bench
            return bench.does(job, place)
        except Replaced:
            return OUTDATED
        except Misconfigured:  # the rule file of a former process may say nothing of a rule that was added since
            if invocation.version is self._version:
                raise
            return OUTDATED
        except (Transient, UsageError):  # a usage error is that another backfill began at the same time
            return None

    def _advanced(self, job: Job, place: Place | None, error: Exception | None) -> None:
        job.busy = False
        if job not in self._jobs:
            return
        if place is None or place is OUTDATED:
            self._gave_up = True
        if job.outlives and (place is None or place is OUTDATED or place is DONE):
            self._jobs.remove(job)  # it ends with an error, or it is done
            return
        if place is OUTDATED:
            if not job.begun_again(self._version):
                self._jobs.remove(job)
            return
        if place is None:
            job.bench = None
            if self._random() < 0.1:
                job.begun_again(job.version)
            return
        job.place = place
        if place is DONE:
            self._jobs.remove(job)

    # Faults

    def _fault(self, thread: Thread) -> str | None:
        plan, random, invocation = self._plan, self._random, thread.invocation
        fault = None
        if random() < plan.die:
            fault = "dies"
        elif random() < plan.hurry:
            invocation.seconds = min(invocation.seconds, 1.02 if random() < 0.5 else 0.5)
            self._note("its time is running out", invocation)
        elif not invocation.abandoned and random() < plan.abandon:
            self._note("is taken for dead, and goes on", invocation)
            invocation.abandoned = True
            if random() < 0.7:
                self._freeze(invocation)
            invocation.finish(None, _TimeOutError("the invocation timed out"))
        elif random() < plan.freeze:
            self._freeze(invocation)
        elif thread.at[0] == "asks":
            name = thread.at[1]
            if random() < plan.throttle:
                fault = THROTTLED
            elif name == "transact" and random() < plan.conflict:
                fault = CONFLICT
            elif name in ("write", "transact", "send") and random() < plan.lose:
                fault = LOST
            else:
                return None
        else:
            return None
        self._faults -= 1
        return fault

    def _freeze(self, invocation: Invocation) -> None:
        invocation.frozen = self._steps + int(5 * 200.0 ** self._random())
        self._last = None
        self._note("stands still", invocation)

    def _disturb(self, name: str, mapping: EventSourceMapping) -> bool:
        """Now and then a shard is split, or read again from further back."""
        random, plan = self._random, self._plan
        if random() < plan.split:
            shards = [shard for shard in self._streams[name].shards.values() if not shard.closed]
            shard = shards[int(random() * len(shards))]
            self._streams[name].split(shard.id, into=1 if random() < 0.5 else 2)
            self._note(f"{shard.id[:28]} is split")
            self._faults -= 1
        if random() < plan.rewind:
            shards = list(self._streams[name].shards.values())
            shard = shards[int(random() * len(shards))]
            if shard.records:
                record = shard.records[int(random() * len(shard.records))]
                mapping.rewind(shard.id, int(record["dynamodb"]["SequenceNumber"]))
                self._note(f"{shard.id[:28]} is read again from …{record['dynamodb']['SequenceNumber'][-4:]}")
                self._faults -= 1
        return False

    def _choose(self, question: str, courses: int) -> int:
        if question == "deliver a batch again that succeeded":
            if self._faults and self._random() < self._plan.redeliver:
                self._faults -= 1
                return 1
            return 0
        return int(self._random() * courses)

    def _quarantine(self, rejected: Sequence[Rejected]) -> None:
        if self._faults and self._random() < self._plan.quarantine_down:
            self._faults -= 1
            raise Transient("the quarantine cannot be reached")
        self._rejected.extend(rejected)

    def _refuse(self, rejected: Sequence[Rejected]) -> None:
        """The quarantine of what is not delivered in records."""
        if rejected and self._faults and self._random() < self._plan.quarantine_down:
            self._faults -= 1
            raise Transient("the quarantine cannot be reached")
        self._refused.update(dict.fromkeys(rejected))

    # What the streams say

    def _record(self, table: str, record: dict[str, Any]) -> None:
        world, program = self._world, self._versions.application
        change = record["dynamodb"]
        key = program.tables[table].key(table, change["Keys"])
        image = change.get("NewImage")
        if image is None:
            del world.items[key]
            world.gone[key] = change["OldImage"]
            if "userIdentity" in record:
                world.expired.append(record)
                if self._since is not None:
                    self._unsettled.add(encode_key(key))
                    self._unclear = self._unclear or key in self._since
        else:
            world.items[key] = image
            item = program.recognise(key, image)
            if item is not None and item.entity.owned_by_rules:
                world.made.setdefault(item.entity.name, {})[key] = None
        before = change.get("OldImage")
        if self._since is not None:
            self._since.add(key)
        if self._invocation is None:
            self._harm.applied(key, before, image)
        else:
            restored = before is None and self._harm.restores(key, image or {})
            self._outcome.problems += self._harm.written(key, before, image, self._invocation, answered=not self._lost)
        if self._invocation is not None and not restored:
            self._outcome.problems += self._invocation.version.checks.written(
                key,
                before,
                image,
                tampered=self._application.tampering or self._damaged or self._versions.regards,
                lived=self._lived.look(),
            )
        if self._versions.indexed:
            self._past.append((self._steps, key, before))
        world.records[change["SequenceNumber"]] = record
        if not self._off:
            self._streams[table].append(record)
        if self._trace is not None:
            self._trace.change(self._who, record)

    def _lagging(self, table: str) -> Store:
        """The table as its indexes may still show it: as it was within the last few steps."""
        if self._random() >= self._plan.lag:
            return self._store
        while self._past and self._past[0][0] < self._steps - SETTLED:
            self._past.popleft()
        then = self._steps - int(SETTLED * self._random())
        items: dict[ItemKey, Image | None] = {
            key: item for key, item in self._world.items.items() if key.table == table
        }
        for step, key, before in reversed(self._past):
            if step >= then and key.table == table:
                items[key] = before
        past = MemoryStore({table: self._store.schema(table)}, streams=())
        for image in items.values():
            if image is not None:
                past.seed(table, image)
        return past

    def _note(self, what: str, invocation: Invocation | None = None) -> None:
        if self._trace is not None:
            self._trace.add(invocation.name if invocation is not None else "the world", what)


def _number(record: Mapping[str, Any]) -> str:
    return f"…{record['dynamodb']['SequenceNumber'][-4:]}"


@contextmanager
def _engine_of(actions: int) -> Iterator[None]:
    """A ledger that puts fewer actions into a transaction than DynamoDB takes, and splits what has more; its id is known."""
    usual, new_id = ledger.MOST_ACTIONS, registry.new_ledger_id
    ledger.MOST_ACTIONS, registry.new_ledger_id = actions, lambda: "simulated"
    try:
        yield
    finally:
        ledger.MOST_ACTIONS, registry.new_ledger_id = usual, new_id

"""One history: an application writes, a mapping delivers, invocations of the real engine overlap, die and repeat.

One integer decides everything. What the engine asks of the store, the scheduler grants call by call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

from projections.engine.effort import one_by_one
from projections.engine.processor import SETTLE_SECONDS, Processor, Rejected
from projections.engine.store import Image, ItemKey, Store
from projections.errors import Transient
from projections.language.embeds import EmbedRule
from projections.language.program import Program
from projections.language.rules import CopyRule
from projections.operations.pacing import Pacer
from projections.operations.tasks import Tasks
from projections.operations.wiring import StreamHandler
from projections.operations.worker import WorkerHandler
from projections.stores.memory import MemoryStore
from projections.tools.event_source import Batch, Settings, Stream
from projections.tools.event_source import Mapping as EventSourceMapping
from projections.tools.simulation.application import Application
from projections.tools.simulation.checks import Checks, Ended
from projections.tools.simulation.odds import Odds
from projections.tools.simulation.pools import Pools
from projections.tools.simulation.queue import SETTLED, TaskQueue
from projections.tools.simulation.trace import Trace
from projections.tools.simulation.workers import (
    CONFLICT,
    LOST,
    THROTTLED,
    Finish,
    Invocation,
    SteppedStore,
    Thread,
    at_once,
)
from projections.tools.tables import LEDGER, schemas

__all__ = ["History", "Outcome", "Scene"]

SECONDS = 60.0
"""What an invocation has at first."""
RESTLESS = 60_000
"""Steps without a fault or a write after which a history is taken never to come to rest."""


class _TimeOutError(Exception):
    """The mapping waits no longer for an answer."""


class _DeadError(Exception):
    """The process of an invocation is gone."""


class _RaisedError(Exception):
    """The function raised something: its history ends here."""


class Scene:
    """What all histories of one rule file share."""

    def __init__(
        self,
        document: Mapping[str, Any],
        without: frozenset[str] = frozenset(),
        odds: Callable[[Random], Odds] = Odds.draw,
    ) -> None:
        self.document = document
        self.program = Program.from_document(document)
        self.pools = Pools(self.program)
        self.schemas = schemas(self.program)
        self.checks = Checks(self.program, document)
        self.without = without
        self.odds = odds
        self.indexed = any(
            isinstance(rule, EmbedRule) and rule.children.index is not None for rule in self.program.rules.values()
        )
        copies = [rule.name for rule in self.program.rules.values() if isinstance(rule, CopyRule)]
        self.copy_guards = [self.program.guard(name) for name in copies]

    def play(self, seed: int, *, trace: bool = False) -> Outcome:
        return History(self, seed, Trace() if trace else None).play()


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
    trace: Sequence[str] = ()


@dataclass(slots=True)
class _World:
    """What has happened so far, kept by listening to the streams."""

    items: dict[ItemKey, Image] = field(default_factory=dict)
    made: dict[str, dict[ItemKey, None]] = field(default_factory=dict)
    guarded: dict[ItemKey, None] = field(default_factory=dict)
    """Items that have borne a copy's guard since they were inserted."""
    expired: list[Mapping[str, Any]] = field(default_factory=list)
    records: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class History:
    """One run. Not to be played twice."""

    def __init__(self, scene: Scene, seed: int, trace: Trace | None = None) -> None:
        self._scene = scene
        self._seed = seed
        self._trace = trace
        self._rng = rng = Random(seed)
        self._random = rng.random
        self._odds = scene.odds(rng)
        self._world = _World()
        self._who = ""
        self._invocation: Invocation | None = None
        """Whose call of the store is carried out; None where the application writes."""
        self._store = MemoryStore(
            scene.schemas,
            # somewhere in a history the numbers get one digit longer, as those of AWS do
            first_sequence=10**21 - rng.randrange(1, 200),
            streams=list(scene.program.tables),
            on_record=self._record,
        )
        self._stepped = SteppedStore(self._store, self._lagging, lambda: self._odds.page)
        self._queue = TaskQueue(rng)
        self._past: deque[tuple[int, ItemKey, Image | None]] = deque()
        """Steps of late, with what each changed and how it was before; where indexes are read."""
        settings = Settings(batch_size=self._odds.batch, report_batch_item_failures=True, bisect=True)
        self._streams = {
            name: Stream(f"{name}", shards=self._odds.shards) for name in scene.program.tables if name != LEDGER
        }
        self._mappings = {
            name: EventSourceMapping(stream, settings, choose=self._choose) for name, stream in self._streams.items()
        }
        self._application = Application(
            scene.program,
            scene.pools,
            self._store,
            rng,
            self._world.items,
            self._world.made,
            scene.without,
        )
        self._invocations: list[Invocation] = []
        self._steps = 0
        self._last: Thread | None = None
        self._hub: greenlet = getcurrent()
        self._left = self._odds.writes
        self._faults = self._odds.faults
        self._outcome = Outcome(seed, [])
        self._rejected: list[Rejected] = []

    def play(self) -> Outcome:
        self._hub = getcurrent()
        try:
            restful = self._run()
            if restful and self._taken_back():
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
            )
            outcome.problems += self._scene.checks.problems(ended)
        elif not outcome.problems:
            outcome.problems = ["the history does not come to rest: writes of ours keep each other going"]
        outcome.writes = self._odds.writes
        outcome.records = len(self._world.records)
        outcome.faults = self._odds.faults - self._faults
        outcome.trace = self._trace.lines if self._trace is not None else ()
        return outcome

    # The scheduler

    def _run(self) -> bool:
        """Until nothing is left to do. Whether that point was reached."""
        random, odds, steps = self._random, self._odds, 0
        while True:
            if self._left or self._faults:
                steps = 0
            elif (steps := steps + 1) > RESTLESS:
                return False
            self._steps += 1
            last = self._last
            if last is not None and random() < odds.again and not last.dead and not last.awaits:
                self._step(last)
                continue
            thread = self._runnable() if self._invocations and random() < odds.working else None
            if thread is not None:
                self._step(thread)
            elif self._left and random() < 0.5:
                self._write()
            elif not self._deliver():
                if self._left:
                    self._write()
                elif not self._invocations:
                    if self._queue.next is None:
                        return True
                    self._steps = max(self._steps, self._queue.next)
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
            if not self._left or self._random() >= self._odds.burst:
                return

    def _deliver(self) -> bool:
        """Begin an invocation, if there is anything to deliver."""
        if len(self._invocations) >= self._odds.invocations:
            return False
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
            return self._queue.next is not None and self._work()
        lane = lanes[int(self._random() * len(lanes))] if len(lanes) > 1 else lanes[0]
        batch = mapping.next_batch(lane)
        invocation = self._invocation_of(partial(self._finished, mapping, batch))
        processor = Processor(
            self._scene.program,
            self._stepped,
            tables={table: table for table in self._mappings},
            quarantine=self._quarantine,
            sleep=invocation.sleep,
            chance=self._random,
            clock=lambda: 1_735_700_000.0,
            run=at_once if self._random() < self._odds.threads else one_by_one,
            tasks=Tasks(lambda: self._queue) if self._odds.queue else None,
        )
        handler = StreamHandler(processor, quarantine=self._quarantine)
        work = partial(handler.handle, batch.event(), invocation.remaining)
        self._begin(invocation, work, f"gets {name}: " + ", ".join(_number(record) for record in batch.records))
        return True

    def _work(self) -> bool:
        """Begin an invocation of the worker, if a task is due."""
        event = self._queue.receive()
        if event is None:
            return False
        invocation = self._invocation_of(lambda answer, error: self._queue.finish(event, answer))
        worker = WorkerHandler(
            self._scene.program,
            self._stepped,
            send=Tasks(lambda: self._queue),
            quarantine=self._quarantine,
            pacer=Pacer(1e9, clock=lambda: 0.0),
            run=at_once if self._random() < self._odds.threads else one_by_one,
            sleep=invocation.sleep,
            chance=self._random,
        )
        work = partial(worker.handle, event, invocation.remaining)
        self._begin(invocation, work, "gets tasks: " + ", ".join(record["body"] for record in event["Records"]))
        return True

    def _invocation_of(self, finish: Finish) -> Invocation:
        self._outcome.deliveries += 1
        invocation = Invocation(self._outcome.deliveries, finish, SECONDS)
        invocation.freeze = self._sleeps
        return invocation

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
            self._outcome.calls += 1
            self._invocation = invocation
            self._who = f"invocation {invocation.number}"
        if self._trace is not None:
            self._trace.call(f"invocation {invocation.number}", thread.at, fault)
        if invocation.frozen > self._steps:
            return
        self._last = thread
        thread.switch(fault)
        if thread.dead:
            self._last = None
            if thread.awaited_by is None:
                self._ended(invocation, thread)

    def _ended(self, invocation: Invocation, thread: Thread) -> None:
        self._invocations.remove(invocation)
        error = thread.failure
        if error is not None:
            # The handler raises for no record's sake, and nothing here is misconfigured.
            raise _RaisedError(f"the function raised {type(error).__name__}: {error}") from error
        answer = thread.result
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
        if invocation in self._invocations:
            self._invocations.remove(invocation)
        for thread in list(invocation.threads):
            thread.throw()
        invocation.threads.clear()
        self._last = None

    def _taken_back(self) -> bool:
        """The application takes away what it put under keys of copies and what never became one, as only it may do.

        Nothing in such an item says which source to ask, and it might be meant: no rule touches it.
        """
        program, world = self._scene.program, self._world
        self._who, self._invocation = "application", None
        found = []
        for key, image in world.items.items():
            item = program.recognise(key, image)
            if item is not None and item.entity.copied and key not in world.guarded:
                found.append(key)
        for key in found:
            self._store.remove(key)
        return bool(found)

    # Faults

    def _fault(self, thread: Thread) -> str | None:
        odds, random, invocation = self._odds, self._random, thread.invocation
        fault = None
        if random() < odds.die:
            fault = "dies"
        elif random() < odds.hurry:
            invocation.seconds = min(invocation.seconds, 1.02 if random() < 0.5 else 0.5)
            self._note("its time is running out", invocation)
        elif not invocation.abandoned and random() < odds.abandon:
            self._note("is taken for dead, and goes on", invocation)
            invocation.abandoned = True
            if random() < 0.7:
                self._freeze(invocation)
            invocation.finish(None, _TimeOutError("the invocation timed out"))
        elif random() < odds.freeze:
            self._freeze(invocation)
        elif thread.at[0] == "asks":
            name = thread.at[1]
            if random() < odds.throttle:
                fault = THROTTLED
            elif name == "transact" and random() < odds.conflict:
                fault = CONFLICT
            elif name in ("write", "transact", "send") and random() < odds.lose:
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
        random, odds = self._random, self._odds
        if random() < odds.split:
            shards = [shard for shard in self._streams[name].shards.values() if not shard.closed]
            shard = shards[int(random() * len(shards))]
            self._streams[name].split(shard.id, into=1 if random() < 0.5 else 2)
            self._note(f"{shard.id[:28]} is split")
            self._faults -= 1
        if random() < odds.rewind:
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
            if self._faults and self._random() < self._odds.redeliver:
                self._faults -= 1
                return 1
            return 0
        return int(self._random() * courses)

    def _quarantine(self, rejected: Sequence[Rejected]) -> None:
        if self._faults and self._random() < self._odds.quarantine_down:
            self._faults -= 1
            raise Transient("the quarantine cannot be reached")
        self._rejected.extend(rejected)

    # What the streams say

    def _record(self, table: str, record: dict[str, Any]) -> None:
        world, program = self._world, self._scene.program
        change = record["dynamodb"]
        key = program.tables[table].key(table, change["Keys"])
        image = change.get("NewImage")
        if image is None:
            del world.items[key]
            world.guarded.pop(key, None)
            if "userIdentity" in record:
                world.expired.append(record)
        else:
            world.items[key] = image
            if any(guard in image for guard in self._scene.copy_guards):
                world.guarded[key] = None
            item = program.recognise(key, image)
            if item is not None and item.entity.owned_by_rules:
                world.made.setdefault(item.entity.name, {})[key] = None
        if self._invocation is not None:
            self._outcome.problems += self._scene.checks.written(
                key, change.get("OldImage"), image, tampered=self._application.tampering
            )
        if self._scene.indexed:
            self._past.append((self._steps, key, change.get("OldImage")))
        world.records[change["SequenceNumber"]] = record
        self._streams[table].append(record)
        if self._trace is not None:
            self._trace.change(self._who, record)

    def _lagging(self, table: str) -> Store:
        """The table as its indexes may still show it: as it was within the last few steps."""
        if self._random() >= self._odds.lag:
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
            self._trace.add(f"invocation {invocation.number}" if invocation is not None else "the world", what)


def _number(record: Mapping[str, Any]) -> str:
    return f"…{record['dynamodb']['SequenceNumber'][-4:]}"

"""Which thread of which invocation makes the next step, and what goes wrong meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, InitVar, dataclass, field
from datetime import UTC, datetime
from math import ceil
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent

from projections.engine.embeds import SETTLE_SECONDS
from projections.engine.store import Delete, Write
from projections.errors import Transient
from projections.local.event_replay import LEDGER
from projections.local.event_source import EventSourceMapping, Stream
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.trace import Trace, short_number
from projections.testing.simulation.workers import CONFLICT, LOST, THROTTLED, Finish, Invocation, Thread

if TYPE_CHECKING:
    from projections.testing.simulation.rule_versions import RuleVersion


SETTLED = 200
"""Steps of a history that take `SETTLE_SECONDS`. No index lags by more."""

DIES = "dies"
"""The fault of a thread whose process ends."""


class _TimeOutError(Exception):
    """The event source mapping does not wait any longer for an answer."""


class Faults:
    """Random faults at the rates of a plan; `left` is how many there may still be."""

    def __init__(self, plan: FaultPlan, rng: Random, trace: Trace) -> None:
        self._plan = plan
        self._random = rng.random
        self._trace = trace
        self.left = plan.faults

    def of_thread(self, thread: Thread, step: int) -> str | None:
        """Apply a fault to the invocation of a thread; return one that the thread itself has to see."""
        plan, random, invocation = self._plan, self._random, thread.invocation
        fault = None
        if random() < plan.die:
            fault = DIES
        elif random() < plan.out_of_time:
            invocation.seconds = min(invocation.seconds, 1.02 if random() < 0.5 else 0.5)
            self._trace.note("has almost no time left", invocation.name)
        elif not invocation.abandoned and random() < plan.abandon:
            self._trace.note("is abandoned by its event source, and continues", invocation.name)
            invocation.abandoned = True
            if random() < 0.7:
                self._freeze(invocation, step)
            invocation.finish(None, _TimeOutError("the invocation timed out"))
        elif random() < plan.freeze:
            self._freeze(invocation, step)
        elif thread.at[0] == "asks":
            name = thread.at[1]
            if random() < plan.throttle:
                fault = THROTTLED
            elif name == "transact" and random() < plan.conflict:
                fault = CONFLICT
            elif name in ("write", "transact", "send") and random() < plan.lose_answer:
                fault = LOST
            else:
                return None
        else:
            return None
        self.left -= 1
        return fault

    def _freeze(self, invocation: Invocation, step: int) -> None:
        invocation.frozen = step + int(5 * 200.0 ** self._random())
        self._trace.note("freezes", invocation.name)

    def of_stream(self, stream: Stream, mapping: EventSourceMapping) -> None:
        """Sometimes split a shard, or deliver a part of one again."""
        random, plan = self._random, self._plan
        if random() < plan.split:
            shards = [shard for shard in stream.shards.values() if not shard.closed]
            shard = shards[int(random() * len(shards))]
            stream.split(shard.id, into=1 if random() < 0.5 else 2)
            self._trace.note(f"{shard.id[:28]} is split")
            self.left -= 1
        if random() < plan.rewind:
            shards = list(stream.shards.values())
            shard = shards[int(random() * len(shards))]
            if shard.records:
                record = shard.records[int(random() * len(shard.records))]
                mapping.rewind(shard.id, int(record["dynamodb"]["SequenceNumber"]))
                self._trace.note(f"{shard.id[:28]} is read again from record {short_number(record)}")
                self.left -= 1

    def happens(self, rate: float) -> bool:
        """Return whether a fault happens of which this is the probability."""
        happens = self.left > 0 and self._random() < rate
        self.left -= happens
        return happens

    def choose(self, question: str, courses: int) -> int:
        """Decide what an event source mapping may do in several ways."""
        if question != "deliver a batch again that succeeded":
            return int(self._random() * courses)
        return int(self.happens(self._plan.redeliver))

    def of_quarantine(self) -> None:
        """Raises Transient if the quarantine cannot be reached."""
        if self.happens(self._plan.quarantine_down):
            raise Transient("the quarantine cannot be reached")


SECONDS = 60.0
"""The time that an invocation has at first."""

BEGINNING = 1_735_700_000.0
"""The time of the first step, in seconds since 1970."""

MOST_RACES = 8
"""The most writes of the application in a history that come right before one of the engine."""


class ProcessDied(Exception):
    """The process of an invocation is gone."""


class FunctionRaised(Exception):
    """A function raised an exception, which ends its history."""


@dataclass(eq=False)
class Scheduler:
    """Runs threads one at a time, each up to its next stop, and applies faults to them.

    `race` is called for a write of the engine right before it is carried out, `ended` and `died` after an invocation.
    """

    plan: FaultPlan
    rng: InitVar[Random]
    faults: Faults
    trace: Trace
    _: KW_ONLY
    race: Callable[[Write], None]
    ended: Callable[[Invocation], None]
    died: Callable[[Invocation], None]
    _last: Thread | None = field(default=None, init=False)
    invocations: list[Invocation] = field(default_factory=list, init=False)
    calling: Invocation | None = field(default=None, init=False)
    """The invocation whose call of the store is carried out; None while the application writes."""
    answer_lost: bool = field(default=False, init=False)
    """Whether the answer of that call is lost."""

    def __post_init__(self, rng: Random) -> None:
        self._random = rng.random
        self._hub = getcurrent()
        self._races = MOST_RACES if self.plan.race else 0
        self.steps = 0
        self.time_out = 0.0
        """Seconds after which an invocation has certainly ended."""
        self.started = 0
        """Invocations so far."""
        self.calls = 0
        """Calls of the store so far."""

    # Time

    def time(self) -> float:
        """Return the seconds since 1970. They never reach the timeout of an invocation under way."""
        time = self.steps * SETTLE_SECONDS / SETTLED
        times = [invocation.born + 0.99 * self.time_out for invocation in self.invocations]
        return min([BEGINNING + time, *times])

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.time(), UTC)

    @staticmethod
    def step_at(time: float) -> int:
        """Return the first step at or after a time."""
        return ceil((time - BEGINNING) * SETTLED / SETTLE_SECONDS)

    def _sleep(self, invocation: Invocation, seconds: float) -> None:
        invocation.frozen = max(invocation.frozen, self.steps + int(SETTLED * seconds / SETTLE_SECONDS) + 1)
        self._last = None

    # Invocations

    def invocation(self, version: RuleVersion, finish: Finish, what: str = "invocation") -> Invocation:
        """Return a new invocation, which has not begun."""
        self.started += 1
        invocation = Invocation(self.started, version, finish, SECONDS, what)
        invocation.freeze = self._sleep
        invocation.born = self.time()
        return invocation

    def begin(self, invocation: Invocation, work: Callable[[], Any], what: str) -> None:
        """Run the first thread of an invocation up to its first stop."""
        thread = Thread(self._hub, invocation, work)
        invocation.threads.append(thread)
        self.invocations.append(invocation)
        self.trace.note(what, invocation.name)
        self.step(thread)

    def kill(self, invocation: Invocation) -> None:
        self.died(invocation)
        if invocation in self.invocations:
            self.invocations.remove(invocation)
        for thread in list(invocation.threads):
            thread.throw()
        invocation.threads.clear()
        self._last = None

    def kill_all(self, reason: str) -> None:
        """Kill all invocations, and report each one to its event source."""
        for invocation in list(self.invocations):
            self.kill(invocation)
            if not invocation.abandoned:
                invocation.finish(None, ProcessDied(reason))

    # Threads

    def next_thread(self) -> Thread | None:
        """Return the thread that continues now; None where something else may happen before."""
        random, plan, last = self._random, self.plan, self._last
        if last is not None and random() < plan.same_thread and not last.dead and not last.awaits:
            return last
        return self.runnable() if self.invocations and random() < plan.any_thread else None

    def runnable(self) -> Thread | None:
        """Return any thread that can continue; None if all are frozen."""
        invocations = [invocation for invocation in self.invocations if invocation.frozen <= self.steps]
        if not invocations:
            return None
        invocation = invocations[int(self._random() * len(invocations))] if len(invocations) > 1 else invocations[0]
        threads = invocation.threads
        if len(threads) > 1:
            threads = [thread for thread in threads if not thread.awaits]
            return threads[int(self._random() * len(threads))]
        return threads[0]

    def skip(self) -> None:
        """Go to the step at which the first frozen invocation can continue."""
        self.steps = min(invocation.frozen for invocation in self.invocations)

    def step(self, thread: Thread) -> None:
        """Let a thread continue to its next stop, unless a fault prevents it. Raises FunctionRaised."""
        invocation = thread.invocation
        fault: str | None = None
        what = thread.at[0]
        if self.faults.left and what != "starts":
            fault = self.faults.of_thread(thread, self.steps)
            if fault == DIES:
                self.trace.note("crashes", invocation.name)
                self.kill(invocation)
                if not invocation.abandoned:
                    invocation.finish(None, ProcessDied("the process died"))
                return
        if what == "asks":
            if self._races and thread.at[1] == "write" and thread.at[2].key.table != LEDGER:
                self._races_with(thread.at[2])
            self.calls += 1
            self.calling = invocation
            self.answer_lost = fault == LOST
        self.trace.call(invocation.name, thread.at, fault)
        if invocation.frozen > self.steps:
            self._last = None
            return
        self._last = thread
        thread.switch(fault)
        if thread.dead:
            self._last = None
            if thread.awaited_by is None:
                self._end(invocation, thread)

    def _races_with(self, write: Write) -> None:
        """Sometimes let the application write first, after the engine has decided what to write."""
        if self._random() < self.plan.race * (2 if isinstance(write, Delete) else 1):
            self._races -= 1
            self.calling = None
            self.race(write)

    def _end(self, invocation: Invocation, thread: Thread) -> None:
        self.invocations.remove(invocation)
        self.ended(invocation)
        if thread.failure is not None:
            # Handlers raise for no record, and nothing is misconfigured here.
            error = thread.failure
            raise FunctionRaised(f"the function raised {type(error).__name__}: {error}") from error
        if invocation.of_function:
            failures = thread.result["batchItemFailures"]
            text = f"returns failures {failures}" if failures else "returns without failures"
            self.trace.note(text, invocation.name)
        if not invocation.abandoned:
            invocation.finish(thread.result, None)

"""Faults of one history: what happens to invocations, streams and the quarantine, until a number of faults is used up."""

from __future__ import annotations

from random import Random

from projections.errors import Transient
from projections.local.event_source import Mapping as EventSourceMapping
from projections.local.event_source import Stream
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.trace import Trace, short_number
from projections.testing.simulation.workers import CONFLICT, LOST, THROTTLED, Invocation, Thread

__all__ = ["DIES", "Faults"]

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
            self._trace.note("has almost no time left", invocation)
        elif not invocation.abandoned and random() < plan.abandon:
            self._trace.note("is abandoned by its event source, and continues", invocation)
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
        self._trace.note("freezes", invocation)

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

    def discards_batch(self) -> bool:
        """Return whether the mapping gives up a batch before it delivers it."""
        if self.left and self._random() < self._plan.discard:
            self.left -= 1
            return True
        return False

    def choose(self, question: str, courses: int) -> int:
        """Decide what an event source mapping may do in several ways."""
        if question != "deliver a batch again that succeeded":
            return int(self._random() * courses)
        if self.left and self._random() < self._plan.redeliver:
            self.left -= 1
            return 1
        return 0

    def of_quarantine(self) -> None:
        """Raises Transient if the quarantine cannot be reached."""
        if self.left and self._random() < self._plan.quarantine_down:
            self.left -= 1
            raise Transient("the quarantine cannot be reached")

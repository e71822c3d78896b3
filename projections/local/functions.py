"""The deployed functions in this process: the stream function, the worker, and the task queue between them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from projections.aws.wiring import StreamHandler
from projections.engine.processor import Processor
from projections.engine.rejections import Rejected
from projections.engine.running import Pacer, Run, one_by_one
from projections.engine.stages import Outcome
from projections.engine.store import Store
from projections.language.program import Program
from projections.operations.tasks import Tasks
from projections.operations.worker import WorkerHandler

SECONDS = 60.0
"""The timeout of an invocation, as in the template."""

WRITES_PER_SECOND = 500
MESSAGES = 10
"""The maximum number of messages in an event from SQS."""


class LocalQueue:
    """A queue of delayed messages; `clock` gives seconds. Safe for threads.

    Received messages are removed: there is one receiver, which sends again what it could not do.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._messages: dict[str, tuple[str, float]] = {}
        """By ID: the body, and when it is due."""
        self._sent = 0
        self._lock = threading.Lock()

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        now = self._clock()
        with self._lock:
            for body, seconds in zip(bodies, delays, strict=True):
                self._sent += 1
                self._messages[f"local-{self._sent}"] = body, now + seconds

    @property
    def next_due(self) -> float | None:
        """The time by the clock at which the next message can be received, or None."""
        with self._lock:
            return min((due for _, due in self._messages.values()), default=None)

    def receive(self) -> dict[str, Any] | None:
        """Return an event as SQS gives it to a function, None if no message is due."""
        now = self._clock()
        with self._lock:
            names = [name for name, (_, due) in self._messages.items() if due <= now][:MESSAGES]
            bodies = {name: self._messages.pop(name)[0] for name in names}
        records = [{"messageId": name, "body": body, "eventSource": "aws:sqs"} for name, body in bodies.items()]
        return {"Records": records} if records else None

    def __len__(self) -> int:
        return len(self._messages)


class Functions:
    """The functions of `handlers/` in this process: `stream` processes an event of records, `work` does tasks that are due.

    `tables` maps table names in stream ARNs to logical names. `quarantine` gets the rejected records of both functions.
    `sleep` is used for pauses between retries and for the pace of pushes.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        tables: Mapping[str, str],
        quarantine: Callable[[Sequence[Rejected]], None],
        observe: Callable[[Outcome], None] | None = None,
        run: Run[Any] = one_by_one,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        queue: LocalQueue | None = None,
        filled: bool = True,
        writes_per_second: float = WRITES_PER_SECOND,
    ) -> None:
        self.queue = LocalQueue() if queue is None else queue
        self._clock = clock
        tasks = Tasks(lambda: self.queue)
        pacer = Pacer(writes_per_second, clock=clock, sleep=sleep)
        processor = Processor(
            program,
            store,
            tables=tables,
            quarantine=quarantine,
            run=run,
            clock=clock,
            sleep=sleep,
            chance=chance,
            tasks=tasks,
            pace=pacer,
            filled=filled,
        )
        self._stream = StreamHandler(processor, quarantine=quarantine, observe=observe, pacer=pacer)
        self._worker = WorkerHandler(
            program,
            store,
            tasks=tasks,
            quarantine=quarantine,
            pacer=pacer,
            run=run,
            sleep=sleep,
            chance=chance,
            filled=filled,
            now=lambda: datetime.fromtimestamp(clock(), UTC),
        )

    def stream(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer of the stream function. Raises Misconfigured if the tables cannot be used."""
        return self._stream.handle(event, self._remaining())

    def work(self) -> bool:
        """Do the tasks that are due, and return whether there were any. Tasks that fail are queued again.

        Raises Misconfigured if the tables cannot be used.
        """
        event = self.queue.receive()
        if event is None:
            return False
        failed = {message["messageId"] for message in event["Records"]}
        try:
            answer = self._worker.handle(event, self._remaining())
            failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        finally:
            again = [message["body"] for message in event["Records"] if message["messageId"] in failed]
            self.queue.send(again, [RETRY_SECONDS] * len(again))
        return True

    def _remaining(self) -> Callable[[], float]:
        """Return the seconds left of an invocation that begins now."""
        end = self._clock() + SECONDS
        return lambda: end - self._clock()


RETRY_SECONDS = 2.0
"""Seconds until a failed task is repeated. The deployed queue waits longer, because it serves more than one person."""

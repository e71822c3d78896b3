"""The deployed functions in this process: the stream's handler, the worker, and the task queue between them."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from projections.engine.effort import Run, one_by_one
from projections.engine.processor import Outcome, Processor, Rejected
from projections.engine.registry import LIVE
from projections.engine.store import Store
from projections.language.program import Program
from projections.operations.pacing import Pacer
from projections.operations.tasks import Tasks
from projections.operations.wiring import StreamHandler
from projections.operations.worker import WorkerHandler

__all__ = ["Functions", "LocalQueue"]

SECONDS = 60.0
"""What an invocation has, as the template gives it."""

WRITES_PER_SECOND = 500
MESSAGES = 10
"""Of one receive, as SQS gives them to a function."""


@dataclass(slots=True)
class _Message:
    body: str
    due: float


class LocalQueue:
    """Messages held back for as long as their sender said; `clock` gives seconds. Safe for threads.

    What is received is gone: there is one receiver, and it sends again what it could not do.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._messages: dict[str, _Message] = {}
        self._sent = 0
        self._lock = threading.Lock()

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        now = self._clock()
        with self._lock:
            for body, seconds in zip(bodies, delays, strict=True):
                self._sent += 1
                self._messages[f"local-{self._sent}"] = _Message(body, now + seconds)

    @property
    def next_due(self) -> float | None:
        """When the next message can be received, by the clock; None if there is none."""
        with self._lock:
            return min((message.due for message in self._messages.values()), default=None)

    def receive(self) -> dict[str, Any] | None:
        """An event as a function gets it from SQS, None if nothing is due."""
        now = self._clock()
        with self._lock:
            due = [name for name, message in self._messages.items() if message.due <= now][:MESSAGES]
            taken = [(name, self._messages.pop(name)) for name in due]
        records = [{"messageId": name, "body": message.body, "eventSource": "aws:sqs"} for name, message in taken]
        return {"Records": records} if records else None

    def __len__(self) -> int:
        return len(self._messages)


class Functions:
    """What `handlers/` deploys, wired for this process: `stream` takes an event of records, `work` does a task that is due.

    `tables` maps table names in stream ARNs to logical names. `quarantine` takes what rules refuse, from both functions.
    `sleep` is used for pauses between retries and for the pace of pushes.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        tables: Mapping[str, str],
        quarantine: Callable[[Sequence[Rejected]], None],
        labels: Mapping[str, str] | None = None,
        observe: Callable[[Outcome], None] | None = None,
        run: Run[Any] = one_by_one,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        queue: LocalQueue | None = None,
        new_rules: str = LIVE,
    ) -> None:
        self.queue = LocalQueue() if queue is None else queue
        tasks = Tasks(lambda: self.queue)
        pacer = Pacer(WRITES_PER_SECOND, sleep=sleep)
        processor = Processor(
            program,
            store,
            tables=tables,
            labels=labels,
            quarantine=quarantine,
            run=run,
            clock=clock,
            sleep=sleep,
            chance=chance,
            tasks=tasks,
            pace=pacer,
            new_rules=new_rules,
        )
        self._stream = StreamHandler(processor, quarantine=quarantine, observe=observe, pacer=pacer)
        self._worker = WorkerHandler(
            program,
            store,
            send=tasks,
            quarantine=quarantine,
            pacer=pacer,
            run=run,
            sleep=sleep,
            chance=chance,
            new_rules=new_rules,
            now=lambda: datetime.fromtimestamp(clock(), UTC),
        )

    def stream(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """The answer of the stream's handler. Raises Misconfigured if the tables cannot be used at all."""
        end = time.monotonic() + SECONDS
        return self._stream.handle(event, lambda: end - time.monotonic())

    def work(self) -> bool:
        """Does the tasks that are due, if any; says whether there were. What cannot be done yet is queued again.

        Raises Misconfigured if the tables cannot be used at all.
        """
        event = self.queue.receive()
        if event is None:
            return False
        end = time.monotonic() + SECONDS
        failed = {message["messageId"] for message in event["Records"]}
        try:
            answer = self._worker.handle(event, lambda: end - time.monotonic())
            failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
        finally:
            again = [message["body"] for message in event["Records"] if message["messageId"] in failed]
            self.queue.send(again, [RETRY_SECONDS] * len(again))
        return True


RETRY_SECONDS = 2.0
"""After which a task that failed is tried again. The deployed queue waits longer, for it serves more than one person."""

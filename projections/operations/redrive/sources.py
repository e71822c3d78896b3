"""Sources of failed messages: queues, buckets and files. Messages that were redriven are removed; the others stay.

If the process dies, all messages stay: SQS delivers them again after their visibility timeout, and objects have no mark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any, Protocol

from projections.errors import InvalidRequest, StoreError
from projections.operations.redrive.messages import FailedMessage, Reader
from projections.operations.redrive.redrive import Answer, Redrive

__all__ = ["BucketSource", "FileSource", "MessageSource", "Outcome", "QueueSource", "SourceOutcome", "redrive_all"]

HELD_SECONDS = 300
"""The visibility timeout of messages that are being redriven."""

_MESSAGES = 100
"""Messages taken at a time: as many as the items that are refreshed together."""

_OBJECTS = 5
"""Objects taken at a time: each may have 6 MB of records."""


class MessageSource(Protocol):
    """A source of failed messages, with its `name` for people. Each message is taken once, in no particular order."""

    name: str

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        """Return some messages, at most so many, each with a handle; none at the end."""
        ...

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        """Remove messages that were redriven at the time `now`."""
        ...

    def close(self) -> None:
        """Release the messages that were taken and are not done."""
        ...


class MessageQueue(Protocol):
    """A queue to receive messages from: `aws.queues.Queue`."""

    def receive(self, seconds: int, *, wait: int = 2) -> list[Any]: ...

    def delete(self, messages: Sequence[Any]) -> None: ...

    def release(self, messages: Sequence[Any]) -> None: ...


class QueueSource:
    """The messages of a queue. Redriven ones are deleted."""

    def __init__(self, name: str, queue: MessageQueue, reader: Reader) -> None:
        self.name = name
        self._queue = queue
        self._reader = reader
        self._held: dict[str, Any] = {}

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        taken: dict[str, Any] = {}
        while len(taken) < min(most, _MESSAGES):
            received = self._queue.receive(HELD_SECONDS, wait=0 if taken else 2)
            if not received:
                break
            for one in received:
                if one.id not in self._held:  # otherwise its visibility timeout is over: it was taken before
                    taken[one.id] = one
                self._held[one.id] = one
        return [(self._reader.text(one.body, f"message {one.id}"), one) for one in islice(taken.values(), most)]

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        self._queue.delete([received for _, received in messages])
        for _, received in messages:
            self._held.pop(received.id, None)

    def close(self) -> None:
        with suppress(StoreError):  # SQS delivers them again after their visibility timeout
            self._queue.release(list(self._held.values()))
        self._held.clear()


class Objects(Protocol):
    """A bucket to read objects from: `aws.buckets.Bucket`."""

    def pending(self, prefix: str = "") -> Iterator[str]: ...

    def read(self, key: str) -> bytes: ...

    def mark(self, key: str, note: str) -> None: ...


class BucketSource:
    """The objects of a bucket under a prefix. Redriven ones are marked, and nothing is deleted: see `aws.buckets`."""

    def __init__(self, name: str, bucket: Objects, prefix: str, reader: Reader) -> None:
        self.name = name
        self._bucket = bucket
        self._reader = reader
        self._keys = bucket.pending(prefix)

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        return [(self._message(key), key) for key in islice(self._keys, min(most, _OBJECTS))]

    def _message(self, key: str) -> FailedMessage:
        try:
            return self._reader.text(self._bucket.read(key), key)
        except InvalidRequest as error:
            return FailedMessage(key, unusable=f"it cannot be read: {error}")

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        for message, key in messages:
            note = {"redriven": now.isoformat(timespec="seconds"), "items": len(message.items)}
            self._bucket.mark(key, json.dumps(note))

    def close(self) -> None:
        return None


class FileSource:
    """Messages that were read from a file, which is not changed."""

    def __init__(self, name: str, messages: Iterable[FailedMessage]) -> None:
        self.name = name
        self._messages = iter(messages)

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        return [(message, None) for message in islice(self._messages, min(most, _OBJECTS))]

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        return None

    def close(self) -> None:
        return None


@dataclass(slots=True)
class SourceOutcome:
    """The number of redriven messages of one source, and the answers to those that stay."""

    done: int = 0
    left: list[Answer] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The outcome of a redrive by the names of its sources. `stopped` if there may be more than the maximum."""

    sources: dict[str, SourceOutcome] = field(default_factory=dict)
    stopped: bool = False

    @property
    def remains(self) -> bool:
        return self.stopped or any(one.left for one in self.sources.values())


def redrive_all(
    sources: Sequence[MessageSource],
    redrive: Redrive,
    *,
    now: Callable[[], datetime],
    most: int | None = None,
    keep: bool = False,
    report: Callable[[MessageSource, Sequence[Answer]], None] = lambda source, answers: None,
) -> Outcome:
    """Redrive the messages of all sources, at most `most`. With `keep` none is removed.

    Raises what a store raises. Then, too, redriven messages are removed, and all others stay.
    """
    outcome = Outcome({source.name: SourceOutcome() for source in sources})
    left = float("inf") if most is None else most
    for source in sources:
        counted = outcome.sources[source.name]
        try:
            while taken := source.take(int(min(left, 1_000))):
                answers = redrive.work(message for message, _ in taken)
                done = [pair for pair, answer in zip(taken, answers, strict=True) if not answer.left]
                if done and not keep:
                    source.done(done, now())
                counted.done += len(done)
                report(source, answers)
                counted.left += [
                    replace(answer, message=replace(answer.message, items={}, newest={}))
                    for answer in answers
                    if answer.left
                ]
                left -= len(taken)
                if not left:
                    outcome.stopped = True
                    return outcome
        finally:
            source.close()
    return outcome

"""Boxes that letters lie in: queues, buckets, files. What was redriven is taken out; what was not stays as it was.

Whoever dies leaves every letter where it is: a message comes back after its visibility time, an object is not marked.
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
from projections.operations.redrive.letters import Letter, Reader
from projections.operations.redrive.redrive import Answer, Redrive

__all__ = ["Box", "Bucketful", "Counted", "Files", "Messages", "Outcome", "work_off"]

HELD_SECONDS = 300
"""For so long nobody else receives a message that is being redriven."""

_LETTERS = 100
"""Messages taken at a time: as many items as are refreshed together."""

_OBJECTS = 5
"""Objects taken at a time: each may hold 6 MB of records."""


class Box(Protocol):
    """A box of letters, `name` for people. Each letter is taken out of it once in its life, in no particular order."""

    name: str

    def take(self, most: int) -> list[tuple[Letter, Any]]:
        """Some letters, at most so many, each with a handle; none at the end."""
        ...

    def done(self, letters: Sequence[tuple[Letter, Any]], now: datetime) -> None:
        """These were redriven, `now`."""
        ...

    def close(self) -> None:
        """Nothing more is taken: what was taken and is not done may be taken by others."""
        ...


class Inbox(Protocol):
    """What messages are taken from: `stores.queues.Queue`."""

    def receive(self, seconds: int, *, wait: int = 2) -> list[Any]: ...

    def delete(self, messages: Sequence[Any]) -> None: ...

    def release(self, messages: Sequence[Any]) -> None: ...


class Messages:
    """A queue. What is done is deleted."""

    def __init__(self, name: str, queue: Inbox, reader: Reader) -> None:
        self.name = name
        self._queue = queue
        self._reader = reader
        self._held: dict[str, Any] = {}

    def take(self, most: int) -> list[tuple[Letter, Any]]:
        taken: dict[str, Any] = {}
        while len(taken) < min(most, _LETTERS):
            messages = self._queue.receive(HELD_SECONDS, wait=0 if taken else 2)
            if not messages:
                break
            for message in messages:
                if message.id not in self._held:  # else it stayed, and its time was over
                    taken[message.id] = message
                self._held[message.id] = message
        return [(self._reader.text(one.body, f"message {one.id}"), one) for one in islice(taken.values(), most)]

    def done(self, letters: Sequence[tuple[Letter, Any]], now: datetime) -> None:
        self._queue.delete([message for _, message in letters])
        for _, message in letters:
            self._held.pop(message.id, None)

    def close(self) -> None:
        with suppress(StoreError):  # they come back by themselves
            self._queue.release(list(self._held.values()))
        self._held.clear()


class Objects(Protocol):
    """What objects are taken from: `stores.buckets.Bucket`."""

    def pending(self, prefix: str = "") -> Iterator[str]: ...

    def read(self, key: str) -> bytes: ...

    def mark(self, key: str, note: str) -> None: ...


class Bucketful:
    """The objects of a bucket under a prefix. What is done is marked, and nothing deleted: see `stores.buckets`."""

    def __init__(self, name: str, bucket: Objects, prefix: str, reader: Reader) -> None:
        self.name = name
        self._bucket = bucket
        self._reader = reader
        self._keys = bucket.pending(prefix)

    def take(self, most: int) -> list[tuple[Letter, Any]]:
        return [(self._letter(key), key) for key in islice(self._keys, min(most, _OBJECTS))]

    def _letter(self, key: str) -> Letter:
        try:
            return self._reader.text(self._bucket.read(key), key)
        except InvalidRequest as error:
            return Letter(key, useless=f"it cannot be read: {error}")

    def done(self, letters: Sequence[tuple[Letter, Any]], now: datetime) -> None:
        for letter, key in letters:
            note = {"redriven": now.isoformat(timespec="seconds"), "items": len(letter.items)}
            self._bucket.mark(key, json.dumps(note))

    def close(self) -> None:
        return None


class Files:
    """Letters that somebody has read from files, which are left as they are."""

    def __init__(self, name: str, letters: Iterable[Letter]) -> None:
        self.name = name
        self._letters = iter(letters)

    def take(self, most: int) -> list[tuple[Letter, Any]]:
        return [(letter, None) for letter in islice(self._letters, min(most, _OBJECTS))]

    def done(self, letters: Sequence[tuple[Letter, Any]], now: datetime) -> None:
        return None

    def close(self) -> None:
        return None


@dataclass(slots=True)
class Counted:
    """Of one box: letters that were redriven, and the answers to those that stay."""

    done: int = 0
    left: list[Answer] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """By the boxes' names what became of their letters. `stopped` if there may be more than were to be taken."""

    boxes: dict[str, Counted] = field(default_factory=dict)
    stopped: bool = False

    @property
    def remains(self) -> bool:
        return self.stopped or any(one.left for one in self.boxes.values())


def work_off(
    boxes: Sequence[Box],
    redrive: Redrive,
    *,
    now: Callable[[], datetime],
    most: int | None = None,
    keep: bool = False,
    told: Callable[[Box, Sequence[Answer]], None] = lambda box, answers: None,
) -> Outcome:
    """Redrives the letters of all boxes, at most so many of them. With `keep` none is taken out of its box.

    Raises what a store raises; then, too, letters that are done are out of their boxes, and all others are in.
    """
    outcome = Outcome({box.name: Counted() for box in boxes})
    left = float("inf") if most is None else most
    for box in boxes:
        counted = outcome.boxes[box.name]
        try:
            while taken := box.take(int(min(left, 1_000))):
                answers = redrive.work(letter for letter, _ in taken)
                done = [pair for pair, answer in zip(taken, answers, strict=True) if not answer.left]
                if done and not keep:
                    box.done(done, now())
                counted.done += len(done)
                told(box, answers)
                counted.left += [
                    replace(answer, letter=replace(answer.letter, items={}, newest={}))
                    for answer in answers
                    if answer.left
                ]
                left -= len(taken)
                if not left:
                    outcome.stopped = True
                    return outcome
        finally:
            box.close()
    return outcome

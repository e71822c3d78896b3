"""How long to try: the time that remains, and pauses that grow and scatter; and many updates tried as long as that."""

from __future__ import annotations

import gc
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from projections.engine.store import Store, Update, rounds
from projections.errors import StoreError, Transient

__all__ = ["UNLIMITED", "Effort", "OutOfTime", "Run", "full_collections", "in_few_pieces", "one_by_one", "write_all"]

_AT_ONCE = 25
"""Updates in a piece of work: as many as a batch of statements takes (BatchExecuteStatement)."""

_MOST_PIECES = 64

_BETWEEN_CHECKS = 64
"""Pieces of computing between two looks at the time: some milliseconds of work."""

T = TypeVar("T")
Run = Callable[[Sequence[Callable[[], T]]], list[T]]
"""Runs independent pieces of work, at once or one after another, and gives their results in order."""


def one_by_one(pieces: Sequence[Callable[[], T]]) -> list[T]:
    """Runs pieces of work one after another."""
    return [piece() for piece in pieces]


def in_few_pieces(run: Run[Any]) -> Run[Any]:
    """Return a `run` that hands on at most 64 pieces: each costs a thread pool more than a small piece of work does."""

    def few(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(pieces) <= _MOST_PIECES:
            return run(pieces)
        told = run([partial(one_by_one, pieces[start::_MOST_PIECES]) for start in range(_MOST_PIECES)])
        results: list[Any] = [None] * len(pieces)
        for start, some in enumerate(told):
            results[start::_MOST_PIECES] = some
        return results

    return few


class OutOfTime(Transient):
    """The invocation ends soon; what is left is reported for retry."""


class Effort:
    """The time an invocation has, in seconds, less a margin in which its answer is written.

    Pauses follow "full jitter" (Exponential Backoff And Jitter, AWS Architecture Blog, 2015).
    """

    def __init__(
        self,
        remaining: Callable[[], float],
        *,
        margin: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._remaining = remaining
        self._margin = margin
        self._sleep = sleep
        self._chance = chance

    @property
    def over(self) -> bool:
        return self._remaining() <= self._margin

    @property
    def left(self) -> float:
        """Seconds until no further piece of work should begin."""
        return self._remaining() - self._margin

    @property
    def out_of_time(self) -> OutOfTime:
        """Why work is not begun any more."""
        return OutOfTime("the invocation's time is nearly up")

    def check(self) -> None:
        """Raises OutOfTime if no further piece of work should begin."""
        if self.over:
            raise self.out_of_time

    def checked(self, some: Iterable[T]) -> Iterator[T]:
        """Yield what is given, and raise OutOfTime if no further piece of work should begin."""
        for number, one in enumerate(some):
            if not number % _BETWEEN_CHECKS:
                self.check()
            yield one

    def pause(self, attempt: int) -> None:
        """Waits before attempt number `attempt` (from 1) is repeated. Raises OutOfTime if the time would not suffice."""
        seconds = self._chance() * min(2.0, 0.02 * 2 ** min(attempt, 10))
        if self._remaining() - seconds <= self._margin:
            raise self.out_of_time
        self._sleep(seconds)

    def retry(self, work: Callable[[], T], *, tries: int | None = None) -> T:
        """Return what `work` returns. While it raises Transient, call it again after a pause, at most `tries` times in all.

        Raises the last Transient when tries or time are up, OutOfTime only if nothing failed before; other errors at once.
        """
        reason: Transient | None = None
        attempt = 0
        while True:
            try:
                self.check()
                return work()
            except Transient as error:
                if reason is None or not isinstance(error, OutOfTime):
                    reason = error
            attempt += 1
            if attempt == tries:
                raise reason
            try:
                self.pause(attempt)
            except OutOfTime:
                raise reason from None


UNLIMITED = Effort(lambda: math.inf)
"""For work that nobody waits for."""


class _Collections:
    """Postpones full garbage collections. Safe for threads; the first who enters saves the setting, the last restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._threshold = gc.get_threshold()

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """While a large batch is processed: each would take some tenths of a second. Young objects are still collected."""
        with self._lock:
            if not self._users:
                self._threshold = gc.get_threshold()
                gc.set_threshold(*self._threshold[:2], 1_000_000)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    gc.set_threshold(*self._threshold)


full_collections = _Collections()


def write_all(
    store: Store, writes: Sequence[Update], effort: Effort, run: Run[list[StoreError | None]]
) -> list[StoreError | None]:
    """Each update on its own, as `Store.write_each` makes them, and again while it is throttled and there is time.

    The answers are position by position: None where it is done, else ConditionFailed, InvalidRequest or Transient. Updates
    of one item may be made in any order: a batch takes none twice, and they should not wait for each other.
    """
    slices = [
        places[start : start + _AT_ONCE] for places in rounds(writes) for start in range(0, len(places), _AT_ONCE)
    ]
    told = run([partial(_write_some, store, [writes[place] for place in places], effort) for places in slices])
    answers: list[StoreError | None] = [None] * len(writes)
    for places, some in zip(slices, told, strict=True):
        for place, answer in zip(places, some, strict=True):
            answers[place] = answer
    return answers


def _write_some(store: Store, writes: Sequence[Update], effort: Effort) -> list[StoreError | None]:
    answers: list[StoreError | None] = [None] * len(writes)
    left = list(range(len(writes)))

    def write_left() -> None:
        told: Sequence[StoreError | None]
        try:
            told = store.write_each([writes[place] for place in left])
        except Transient as error:
            told = [error] * len(left)
        for place, answer in zip(left, told, strict=True):
            answers[place] = answer
        left[:] = [place for place in left if isinstance(answers[place], Transient)]
        if left:
            raise Transient(str(answers[left[0]]))

    try:
        effort.retry(write_left)
    except Transient as error:
        for place in left:
            answers[place] = answers[place] or error
    return answers

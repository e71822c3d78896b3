"""The time that an invocation has, the pace of writes, running independent pieces of work within both, and counting it."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from projections.engine.store import Update, rounds
from projections.errors import StoreError, Transient

_BETWEEN_CHECKS = 64
"""Pieces of computing between two checks of the time: some milliseconds of work."""

MOST_TRIES = 20
"""How often work is tried while others keep changing what it read."""

T = TypeVar("T")


class OutOfTime(Transient):
    """The invocation ends soon; what is left is reported for retry."""


class Deadline:
    """The time that an invocation has left, in seconds, less a margin for writing its answer.

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
        self.sleep = sleep
        self.chance = chance
        # processes that start from one snapshot share the state of `random`, and tokens must never be equal
        self._token_chance = random.SystemRandom().random if chance is random.random else chance

    @classmethod
    def after(
        cls,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> Deadline:
        """Return the deadline that is so many seconds from now, without a margin."""
        end = clock() + seconds
        return cls(lambda: end - clock(), margin=0.0, sleep=sleep, chance=chance)

    def until(self, end: float, clock: Callable[[], float]) -> Deadline:
        """Return this deadline, or one at the second `end` of a clock, whichever comes first."""
        return Deadline(
            lambda: min(self._remaining(), end + self._margin - clock()),
            margin=self._margin,
            sleep=self.sleep,
            chance=self.chance,
        )

    @property
    def over(self) -> bool:
        return self._remaining() <= self._margin

    @property
    def left(self) -> float:
        """Seconds until no further piece of work should begin."""
        return self._remaining() - self._margin

    @property
    def out_of_time(self) -> OutOfTime:
        """Return the reason to begin no further piece of work."""
        return OutOfTime("the invocation's time is nearly up")

    def check(self) -> None:
        """Raises OutOfTime if no further piece of work should begin."""
        if self.over:
            raise self.out_of_time

    def check_each(self, values: Iterable[T]) -> Iterator[T]:
        """Yield what is given, and raise OutOfTime if no further piece of work should begin."""
        for number, value in enumerate(values):
            if not number % _BETWEEN_CHECKS:
                self.check()
            yield value

    def token(self) -> str:
        """Return a text that no other call returns, in any process."""
        return f"{int(self._token_chance() * 2**52):013x}"

    def pause(self, attempt: int) -> None:
        """Wait before attempt number `attempt` (from 1) is repeated. Raises OutOfTime if the time would not suffice."""
        seconds = self.chance() * min(2.0, 0.02 * 2 ** min(attempt, 10))
        if self._remaining() - seconds <= self._margin:
            raise self.out_of_time
        self.sleep(seconds)

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


UNLIMITED = Deadline(lambda: math.inf)
"""For work without a time limit."""


def tries(reason: str, deadline: Deadline = UNLIMITED) -> Iterator[None]:
    """Yield for each try of work that others keep making fail by changing what it read. Raise Transient after enough."""
    for _ in range(MOST_TRIES):
        deadline.check()
        yield
    raise Transient(reason)


class Pacer:
    """Limits the rate of writes: writes that begin now delay the next ones by the time that the rate allows for them.

    The first caller does not wait, so a small push is done at once. The rate is that of one function instance. A push is
    one chain of pages, so it is also the maximum of one push. Safe for threads.
    """

    def __init__(
        self,
        per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._free = clock()
        self._left: Callable[[], float] = lambda: float("inf")
        self._lock = threading.Lock()

    def within(self, seconds_left: Callable[[], float]) -> None:
        """Limit all waits from now on to the seconds that `left` returns."""
        self._left = seconds_left

    def __call__(self, writes: int) -> None:
        """Wait until so many writes may be made. Raises OutOfTime, without a wait, if there is not enough time."""
        if not writes:
            return
        with self._lock:
            now = self._clock()
            begin = max(now, self._free)
            if begin > now and begin - now > self._left():
                raise OutOfTime(
                    "the pace of pushes (PUSH_WRITES_PER_SECOND) leaves no writes before the invocation ends"
                )
            self._free = begin + writes / self._per_second
        if begin > now:
            self._sleep(begin - now)


_AT_ONCE = 25
"""Updates in a piece of work: as many as a batch of statements takes (BatchExecuteStatement)."""

_MOST_PIECES = 64

Run = Callable[[Sequence[Callable[[], T]]], list[T]]
"""Runs independent pieces of work, at once or one after another, and gives their results in order."""


def slices(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` of these, in order. Each is read when it is asked for."""
    iterator = iter(values)
    while part := list(islice(iterator, size)):
        yield part


def one_by_one(pieces: Sequence[Callable[[], T]]) -> list[T]:
    """Runs pieces of work one after another."""
    return [piece() for piece in pieces]


def at_once(threads: int) -> Run[Any]:
    """Return a `run` with threads. It waits for all pieces of work, also if one raises: none may go on after an answer."""
    pool = ThreadPoolExecutor(threads)

    def run(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(pieces) < 2:
            return [piece() for piece in pieces]
        futures = [pool.submit(piece) for piece in pieces]
        wait(futures)
        return [future.result() for future in futures]

    return run


def in_few_pieces(run: Run[Any]) -> Run[Any]:
    """Return a `run` that hands on at most 64 pieces: each costs a thread pool more than a small piece of work does."""

    def few(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(pieces) <= _MOST_PIECES:
            return run(pieces)
        answers = run([partial(one_by_one, pieces[start::_MOST_PIECES]) for start in range(_MOST_PIECES)])
        results: list[Any] = [None] * len(pieces)
        for start, part in enumerate(answers):
            results[start::_MOST_PIECES] = part
        return results

    return few


def send_all(
    send: Callable[[Sequence[Update]], Sequence[T | StoreError]],
    writes: Sequence[Update],
    deadline: Deadline,
    run: Run[list[T | StoreError]],
) -> list[T | StoreError]:
    """Each update on its own, as `send` makes them, and again while it is throttled and there is time.

    `send` is `Store.write_each` or `Store.update_each`. The answers are position by position, with Transient for what was
    not done in time. Updates of one item may be made in any order: a batch takes none twice, and they should not wait for
    each other.
    """
    parts = [part for places in rounds(writes) for part in slices(places, _AT_ONCE)]
    results = run([partial(_send_some, send, [writes[place] for place in places], deadline) for places in parts])
    answers: dict[int, T | StoreError] = {}
    for places, part in zip(parts, results, strict=True):
        answers.update(zip(places, part, strict=True))
    return [answers[place] for place in range(len(writes))]


def _send_some(
    send: Callable[[Sequence[Update]], Sequence[T | StoreError]], writes: Sequence[Update], deadline: Deadline
) -> list[T | StoreError]:
    answers: dict[int, T | StoreError] = {}
    remaining = list(range(len(writes)))

    def send_remaining() -> None:
        received: Sequence[T | StoreError]
        try:
            received = send([writes[place] for place in remaining])
        except Transient as error:
            received = [error] * len(remaining)
        answers.update(zip(remaining, received, strict=True))
        remaining[:] = [place for place in remaining if isinstance(answers[place], Transient)]
        if remaining:
            raise Transient(str(answers[remaining[0]]))

    try:
        deadline.retry(send_remaining)
    except Transient as error:
        for place in remaining:
            answers.setdefault(place, error)
    return [answers[place] for place in range(len(writes))]


class Reload(BaseException):
    """The ledger or an item shows that the registry has changed since it was read. The work is done anew.

    `epoch` is that of an entry, or of the promotion in a guard of `rule`, which shows it. It is not an error of one item or
    one piece of work, so no handler of such errors may catch it: therefore it is not an Exception.
    """

    def __init__(self, epoch: int, rule: str = "") -> None:
        super().__init__(f"the registry has changed: its epoch is {epoch} or later")
        self.epoch = epoch
        self.rule = rule


COUNTS = (
    "records",
    "ignored",
    "applied",
    "duplicates",
    "deferred",
    "failed",
    "transactions",
    "published",
    "copies",
    "indexed",
    "healed",
    "rival",
    "released",
    "embedded",
    "pulled",
    "rejected",
    "repeated",
    "filling",
    "gaps",
    "cut",
    "internal",
)
"""What an invocation counts. docs/metrics.md describes each."""


class Counters:
    """Counts by the names in COUNTS, all of them from the start."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(COUNTS, 0)
        self._lock = threading.Lock()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)

"""Running independent pieces of work, at once or one after another, and many updates among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from projections.engine.deadline import Deadline
from projections.engine.store import Store, Update, rounds
from projections.errors import StoreError, Transient

__all__ = ["Run", "at_once", "in_few_pieces", "one_by_one", "slices", "write_all"]

_AT_ONCE = 25
"""Updates in a piece of work: as many as a batch of statements takes (BatchExecuteStatement)."""

_MOST_PIECES = 64

T = TypeVar("T")
Run = Callable[[Sequence[Callable[[], T]]], list[T]]
"""Runs independent pieces of work, at once or one after another, and gives their results in order."""


def slices(some: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` of these, in order. Each is read when it is asked for."""
    left = iter(some)
    while part := list(islice(left, size)):
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
        told = run([partial(one_by_one, pieces[start::_MOST_PIECES]) for start in range(_MOST_PIECES)])
        results: list[Any] = [None] * len(pieces)
        for start, some in enumerate(told):
            results[start::_MOST_PIECES] = some
        return results

    return few


def write_all(
    store: Store, writes: Sequence[Update], deadline: Deadline, run: Run[list[StoreError | None]]
) -> list[StoreError | None]:
    """Each update on its own, as `Store.write_each` makes them, and again while it is throttled and there is time.

    The answers are position by position: None where it is done, else ConditionFailed, InvalidRequest or Transient. Updates
    of one item may be made in any order: a batch takes none twice, and they should not wait for each other.
    """
    parts = [part for places in rounds(writes) for part in slices(places, _AT_ONCE)]
    told = run([partial(_write_some, store, [writes[place] for place in places], deadline) for places in parts])
    answers: list[StoreError | None] = [None] * len(writes)
    for places, some in zip(parts, told, strict=True):
        for place, answer in zip(places, some, strict=True):
            answers[place] = answer
    return answers


def _write_some(store: Store, writes: Sequence[Update], deadline: Deadline) -> list[StoreError | None]:
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
        deadline.retry(write_left)
    except Transient as error:
        for place in left:
            answers[place] = answers[place] or error
    return answers

"""Time and memory as tables grow: `python -m benchmarks.growth [--sources N] [--targets N …]`. Both must stay flat.

Emulators take milliseconds for an event and would hide the engine. So the store is one in memory, with DynamoDB's
conditions, in a process of its own (`benchmarks.apart`): the engine's CPU and memory are those of its own process, which
includes writing and reading the messages between the two. Each number of targets is a process of its own, too.

After a thousand, ten thousand, … source items are counted, batches of 1000 are measured: new likes, unlikes of likes spread
over all there are, and these liked again and delivered twice; the best of a few. A batch is about 100 targets, or all.

Then the whole function with botocore, HTTP answered by a stub: it must not hold more after many events than after few.
The store takes 2 KB for a source item: 10⁶ of them take 2 GB, and some minutes for each number of targets.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from benchmarks.apart import StoreApart, deadline
from benchmarks.cpu import ours
from benchmarks.figures import Figure, lines
from benchmarks.workload import TABLE, like, likes, program, removed
from projections.aws.wiring import collect_seldom
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.store import Image, ItemKey
from projections.language.program import LEDGER_SCHEMA

__all__ = ["SOURCES", "TARGETS", "Grown", "Held", "figures", "grow", "measure", "stubbed"]

SOURCES = 1_000_000
TARGETS = (1, 100, 10_000, 100_000)

_BATCH = 1000
_TARGETS_OF_A_BATCH = 100
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Grown:
    """What events take once so many source items were counted onto so many targets.

    Microseconds of the engine's CPU per event, the best of a few batches: of new likes, of unlikes of old ones, of likes
    delivered again; of the store's CPU per new like. Megabytes that the two processes hold.
    """

    sources: int
    targets: int
    new: float
    gone: float
    again: float
    store: float
    megabytes: float
    store_megabytes: float


@dataclass(frozen=True, slots=True)
class Held:
    """Of the whole function with HTTP stubbed: microseconds of CPU per event, and megabytes after so many events."""

    events: int
    microseconds: float
    megabytes: float


Measured: TypeAlias = list[Grown] | list[Held]


class _Growing:
    """A table of posts and the likes of them, which are ever more."""

    def __init__(self, store: StoreApart, targets: int) -> None:
        rules = program()
        self._store = store
        self._targets = targets
        self._width = min(targets, _TARGETS_OF_A_BATCH)
        self._number = 0
        store.fill(TABLE, ({**_post(post), "title": {"S": "T"}} for post in range(targets)))
        Registry(rules, store).read_or_create()
        self._processor = Processor(rules, store, tables={TABLE: TABLE})

    def likes(self, users: Iterable[int]) -> list[dict[str, Any]]:
        """Each later than all before."""
        found = []
        for user in users:
            found.append(like(self._number, user=user, post=self.post(user)))
            self._number += 1
        return found

    def unlikes(self, users: Iterable[int]) -> list[dict[str, Any]]:
        found = [removed(record) for record in self.likes(users)]
        self._number += 3_000_000  # what comes next is later
        return found

    def old(self, sources: int) -> list[int]:
        """As many users as a batch has, spread over all there are, who like as many posts as any batch is about."""
        blocks, found = sources // _BATCH, []
        for number in range(_BATCH):
            slot = number % self._width
            if self._targets == self._width:  # all blocks like the same posts
                found.append(number * blocks // _BATCH * _BATCH + number)
            else:
                found.append(slot * blocks // self._width * _BATCH + number)
        assert len({self.post(user) for user in found}) == self._width
        return found

    def warm_up(self) -> None:
        """A batch that leaves nothing but what the ledger keeps of items that are gone."""
        nobody = range(10**9, 10**9 + _BATCH)
        for records in (self.likes(nobody), self.unlikes(nobody)):
            self.spent(records)

    def post(self, user: int) -> int:
        """The post that a user likes: users of one batch like as many posts as a batch is about."""
        return (user // _BATCH * self._width + user % self._width) % self._targets

    def spent(self, records: list[dict[str, Any]]) -> float:
        """Microseconds of CPU per event of a batch."""
        started = time.process_time()
        outcome = self._processor.process(records, remaining=lambda: 900.0)
        spent = time.process_time() - started
        assert outcome.failed is None, outcome.failed_reason
        return spent / len(records) * 1e6

    def check(self, sources: int) -> None:
        """Of some posts: that they show as many likes as there were, none of them twice."""
        wanted = dict.fromkeys(range(min(self._targets, 100)), 0)
        for user in range(sources):
            if (post := self.post(user)) in wanted:
                wanted[post] += 1
        keys = {ItemKey(TABLE, f"POST#{post}", "METADATA"): post for post in wanted}
        shown = {keys[key]: image for key, image in self._store.get_many(list(keys)).items()}
        assert {post: int(image["likeCount"]["N"]) for post, image in shown.items() if wanted[post]} == {
            post: count for post, count in wanted.items() if count
        }


def _post(post: int) -> Image:
    return {"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}}


def grow(sources: int, targets: int) -> list[Grown]:
    """Counts likes by ever more users. Measured in this process, at powers of ten from a thousand and at the end."""
    found: list[Grown] = []
    with StoreApart({**program().tables, "ledger": LEDGER_SCHEMA}) as store:
        growing = _Growing(store, targets)
        growing.warm_up()
        last: list[tuple[float, float]] = []
        mark = _BATCH
        for first in range(0, sources, _BATCH):
            records = growing.likes(range(first, first + _BATCH))
            before = store.deadline().seconds
            spent = growing.spent(records)
            last = [*last[-9:], (spent, (store.deadline().seconds - before) / _BATCH * 1e6)]
            seen = first + _BATCH
            if seen == mark or seen >= sources:
                mark *= 10
                found.append(_measured(growing, store, seen, targets, last))
        growing.check(found[-1].sources)
    return found


def _measured(
    growing: _Growing, store: StoreApart, sources: int, targets: int, last: list[tuple[float, float]]
) -> Grown:
    old = growing.old(sources)
    gone, again = [], []
    for _ in range(_ROUNDS):
        gone.append(growing.spent(growing.unlikes(old)))
        likes = growing.likes(old)
        growing.spent(likes)
        again.append(growing.spent(likes))
    del likes
    gc.collect()
    new, stored = map(min, zip(*last, strict=True))
    held = deadline().megabytes, store.deadline().megabytes
    return Grown(sources, targets, new, min(gone), min(again), stored, *held)


def stubbed(events: int) -> list[Held]:
    """The whole function on ever more events, none of which it has seen before. Measured in this process."""
    process, found, mark = ours(), list[Held](), _BATCH
    process(likes(_BATCH, 10, first=events))
    seen = since = 0
    started = time.process_time()
    while seen < events:
        process(likes(_BATCH, 10, first=seen))
        seen += _BATCH
        if seen == mark or seen >= events:
            mark *= 10
            spent = time.process_time() - started
            gc.collect()
            found.append(Held(seen, spent / (seen - since) * 1e6, deadline().megabytes))
            started, since = time.process_time(), seen
    return found


def measure(sources: int, targets: Iterable[int] = TARGETS) -> Iterator[Measured]:
    """Each in a process of its own, which looks for garbage as seldom as the deployed handler does."""
    for each in targets:
        yield _apart(partial(grow, sources, each))
    yield _apart(partial(stubbed, sources))


def _apart(piece: Callable[[], Measured]) -> Measured:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), collect_seldom) as pool:
        return pool.submit(piece).result()


_OF_GROWN: Mapping[str, Mapping[str, Callable[[Grown], float]]] = {
    "microseconds of the engine's CPU per event": {
        "new likes": lambda one: one.new,
        "unlikes of old likes": lambda one: one.gone,
        "likes delivered again": lambda one: one.again,
    },
    "megabytes the engine's process holds": {"": lambda one: one.megabytes},
    "megabytes the store's process holds, not the engine's": {"": lambda one: one.store_megabytes},
    "microseconds of the store's CPU per event": {"new likes": lambda one: one.store},
}
_OF_HELD: Mapping[str, Callable[[Held], float]] = {
    "microseconds of CPU per event": lambda one: one.microseconds,
    "megabytes the process holds": lambda one: one.megabytes,
}


def figures(found: Iterable[Measured]) -> list[Figure]:
    """The columns are the numbers of source items."""
    each = [one for some in found for one in some]
    grown = [one for one in each if isinstance(one, Grown)]
    held = [one for one in each if isinstance(one, Held)]
    return [
        Figure("growth", unit, f"{case}, {_targets(one.targets)}".removeprefix(", "), f"{one.sources:,}", value(one))
        for unit, cases in _OF_GROWN.items()
        for case, value in cases.items()
        for one in grown
    ] + [
        Figure("growth, whole function, HTTP stubbed", unit, "new likes, 10 targets", f"{one.events:,}", value(one))
        for unit, value in _OF_HELD.items()
        for one in held
    ]


def _targets(count: int) -> str:
    return "1 target" if count == 1 else f"{count:,} targets"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth")
    parser.add_argument("--sources", type=int, default=SOURCES, metavar="N", help="source items (1,000,000)")
    parser.add_argument("--targets", type=int, nargs="+", default=TARGETS, metavar="N", help="targets of the rule")
    given = parser.parse_args()
    print(*lines(figures(measure(given.sources, given.targets))), sep="\n")


if __name__ == "__main__":
    main()

"""Leaderboards that change at random: units for each change, items for each rank, and that ranks equal sorting.

`python -m benchmarks.rank [--memory N] [--local N] [--sums N]`: N scores in the memory store, on DynamoDB Local, or on one
board of the memory store with a `sum`, where each change of a score also changes its amount. Stream records go through
the engine in batches, as Lambda passes them. After each round of changes, with no record on its way, ranks, percentiles,
counts and scores at positions are compared with sorting at a sample of scores; in the memory store also at all scores and
positions of one board. Then all counters of all groups are compared with the scores: all ranks equal sorting.

On DynamoDB Local, all scores are whole numbers on one board. In the memory store, 50 % are. 30 % are on a board of both
signs and two decimals, and 20 % on 50 boards of lap times, of which the least is the best and many are equal.

A million scores in the memory store take 2.3 GB of memory and 8 minutes of CPU.

Units are those that DynamoDB charges: two for each action of a transaction, four for the first group of a board if it has
more than 1 KB. No other item has more, which is checked. With sums, any group may have up to 2 KB.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any

from benchmarks.figures import Figure, lines
from projections.access.ranking import Ranking, ranking_of
from projections.aws.clients import client
from projections.aws.live_tables import create_table
from projections.engine.ledger_items import LEDGER, group_key
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.running import at_once, slices
from projections.engine.store import Image, all_items
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.ranks import range_of
from projections.language.values import item_size, number_text
from projections.stores.dynamodb import DynamoDBStore
from projections.stores.memory import MemoryStore
from tests import emulators

__all__ = ["Boards", "figures", "local", "memory"]

DIGITS = 8
RULES = f"""
table: {{key: [PK, SK]}}
entities:
  Score: {{key: {{PK: "BOARD#{{board}}", SK: "PLAYER#{{playerId}}"}}}}
  Board: {{key: {{PK: "BOARD#{{board}}", SK: META}}}}
projections:
  ranks: {{from: Score, rank: {{into: Board, by: score, digits: {DIGITS}}}}}
  balances: {{from: Score, rank: {{into: Board, by: balance, digits: {DIGITS}, decimals: 2}}}}
  laps: {{from: Score, rank: {{into: Board, by: lap, digits: {DIGITS}, decimals: 3, order: asc}}}}
"""
MOST: int = 10**DIGITS - 1
LEVELS = DIGITS // 2
BATCH = 1000
_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/main/stream/2026-01-01T00:00:00.000"
_KB = 1024

NEW, SMALL, ANY, GONE, BACK = (
    "a new score",
    "a score that changes in its last two digits",
    "a score that changes",
    "removed",
    "a removed score that returns",
)


@dataclass
class Spent:
    """What the ledger's requests cost: write units, and items read."""

    writes: int = 0
    reads: int = 0
    requests: int = 0

    def take(self) -> Spent:
        taken = Spent(self.writes, self.reads, self.requests)
        self.writes = self.reads = self.requests = 0
        return taken


class Metered:
    """A store that counts what its requests cost."""

    def __init__(self, store: Any, *, sums: bool = False) -> None:
        self.inner = store
        self.sums = sums
        self.spent = Spent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def transact(self, writes: Sequence[Any]) -> None:
        self.inner.transact(writes)
        self.spent.writes += 2 * len(writes)
        large = [write.key for write in writes if self.sums or write.key.partition.endswith(":")]
        self.spent.writes += 2 * sum(item_size(item) > _KB for item in self.inner.get_many(large).values())

    def write(self, write: Any) -> Any:
        self.spent.writes += 1
        return self.inner.write(write)

    def write_each(self, writes: Sequence[Any]) -> Any:
        self.spent.writes += len(writes)
        return self.inner.write_each(writes)

    def get_many(self, keys: Sequence[Any]) -> Any:
        self.spent.reads += len(keys)
        self.spent.requests += 1
        return self.inner.get_many(keys)


# Boards. Scores are whole numbers of steps: of hundredths, for a board with two decimals.


def _whole(chance: Random) -> int:
    """Return a score: most are spread over the whole range, some crowd at its low end, some are tied."""
    dice = chance.random()
    if dice < 0.6:
        return chance.randrange(MOST + 1)
    if dice < 0.9:
        return min(MOST, int(chance.expovariate(1 / 50_000)))
    return chance.randrange(100) * 10**6


def _signed(chance: Random) -> int:
    return _whole(chance) * chance.choice((1, -1))


def _lap(chance: Random) -> int:
    """Return a time of 40 to 60 seconds: half of them are equal to many others."""
    return chance.randrange(40_000, 60_000) if chance.random() < 0.5 else chance.randrange(800, 1200) * 50


@dataclass(frozen=True)
class Board:
    """One board: its rule, and how its scores are drawn."""

    name: str
    rule: str = "ranks"
    attribute: str = "score"
    draw: Callable[[Random], int] = _whole
    decimals: int = 0
    lowest: int = 0
    descending: bool = True

    @property
    def version(self) -> str:
        return f"{self.rule}.1"

    def score(self, steps: int) -> Decimal:
        return Decimal(steps).scaleb(-self.decimals)

    def target(self) -> str:
        return f"main|BOARD#{self.name}|META"

    def group(self, prefix: int, level: int) -> str:
        """Return the name of the group of scores whose first digits, two for each level, are those of this number."""
        digits = f"{prefix % 100**level:0{2 * level}d}" if level else ""
        scale = f"{DIGITS}.{self.decimals}" if self.decimals else str(DIGITS)
        return f"{self.target()}|%={scale}:{'-' if prefix < 0 and level else ''}{digits}"

    def due(self, digits: str, scores: Sequence[int]) -> Counter[str]:
        """Return the counters of the group of scores with these first digits, from all scores, the least first."""
        level = len(digits.removeprefix("-")) // 2
        step = 100 ** (LEVELS - level)
        if level:
            first = int(digits.removeprefix("-")) * step - (100**LEVELS if digits.startswith("-") else 0)
            scores = scores[bisect_left(scores, first) : bisect_left(scores, first + step)]
        part = step // 100
        return Counter(f"{'-' if level == 0 and score < 0 else ''}{score // part % 100:02d}" for score in scores)


WHOLE = Board("b")
SIGNED = Board("signed", "balances", "balance", _signed, 2, -MOST)
LAPS = tuple(Board(f"lap-{number}", "laps", "lap", _lap, 3, descending=False) for number in range(50))
_EACH = (*[WHOLE] * 250, *[SIGNED] * 150, *LAPS, *LAPS)
MIXED = tuple(_EACH[place * 77 % len(_EACH)] for place in range(len(_EACH)))


@dataclass
class Boards:
    """Boards, their scores as they should be, and the engine that counts them.

    `boards` has the board of each of the first players; of those that follow, it is the same again.
    """

    store: Metered
    chance: Random
    boards: Sequence[Board] = (WHOLE,)
    batch: int = BATCH
    run: Any = None
    report: Callable[[str], None] = lambda line: None
    scores: list[int] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    units: dict[str, list[int]] = field(default_factory=dict)
    """By kind of change: how many there were, and their write units."""
    seconds: float = 0.0
    reads: Spent = field(default_factory=Spent)
    compared: int = 0
    """Ranks, counts and scores at positions that were compared with sorting."""

    def __post_init__(self) -> None:
        text = RULES.replace(f"digits: {DIGITS}", f"digits: {DIGITS}, sum: amount") if self.store.sums else RULES
        self.program = Program.from_document(loads(text).document())
        self._amounts: dict[int, Decimal] = {}
        self._draw = Random(9)
        Registry(self.program, self.store).read_or_create()
        run = {"run": self.run} if self.run is not None else {}
        self._processor = Processor(self.program, self.store, tables={"main": "main"}, **run)
        self._number = self._checks = 0
        self._removed: list[int] = []
        self._records: list[dict[str, Any]] = []

    @property
    def in_memory(self) -> bool:
        return isinstance(self.store.inner, MemoryStore)

    def _board(self, player: int) -> Board:
        return self.boards[player % len(self.boards)]

    # Changes

    def fill(self, count: int) -> None:
        """New scores."""
        self._apply(NEW, (self._added() for _ in range(count)))

    def _added(self) -> tuple[int, int | None, int | None]:
        player = len(self.scores)
        self.scores.append(self._board(player).draw(self.chance))
        return player, None, self.scores[player]

    def change(self, kind: str, count: int) -> None:
        """So many changes of one kind, of players at random."""
        change = self._returned if kind == BACK else partial(self._changed, kind)
        self._apply(kind, (change() for _ in range(count)))

    def _changed(self, kind: str) -> tuple[int, int | None, int | None]:
        while True:
            player = self.chance.randrange(len(self.scores))
            old = self.scores[player]
            if player in self.gone or (kind == SMALL and old % 100 == 99):
                continue
            if kind == GONE:
                self.gone.add(player)
                self._removed.append(player)
                return player, old, None
            self.scores[player] = (
                self.chance.randrange(old + 1, old // 100 * 100 + 100)
                if kind == SMALL
                else self._board(player).draw(self.chance)
            )
            return player, old, self.scores[player]

    def _returned(self) -> tuple[int, int | None, int | None]:
        place = self.chance.randrange(len(self._removed))
        self._removed[place], self._removed[-1] = self._removed[-1], self._removed[place]
        player = self._removed.pop()
        self.gone.remove(player)
        self.scores[player] = self._board(player).draw(self.chance)
        return player, None, self.scores[player]

    def _apply(self, kind: str, changes: Iterator[tuple[int, int | None, int | None]]) -> None:
        found = self.units.setdefault(kind, [0, 0])
        self.store.spent.take()
        for change in changes:
            self._records.append(self._record(*change))
            found[0] += 1
            if len(self._records) == self.batch:
                self._process()
        self._process()
        found[1] += self.store.spent.take().writes

    def _process(self) -> None:
        started = time.perf_counter()
        if self._records:
            outcome = self._processor.process(self._records, remaining=lambda: 900.0)
            assert outcome.failed is None, outcome.failed_reason
            assert not outcome.rejected, outcome.rejected
        self.seconds += time.perf_counter() - started
        self._records = []

    def _record(self, player: int, old: int | None, new: int | None) -> dict[str, Any]:
        self._number += 1
        board = self._board(player)
        keys = {"PK": {"S": f"BOARD#{board.name}"}, "SK": {"S": f"PLAYER#{player}"}}
        change = {
            "Keys": keys,
            "SequenceNumber": str(10**20 + self._number),
            "SizeBytes": 60,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        images = {name: {**keys, board.attribute: {"N": number_text(board.score(steps))}}
                  for name, steps in (("OldImage", old), ("NewImage", new)) if steps is not None}  # fmt: skip
        for name in images if self.store.sums else ():
            if name == "NewImage":
                self._amounts[player] = Decimal(self._draw.randrange(1, 1_000_000)).scaleb(-2)
            images[name]["amount"] = {"N": number_text(self._amounts[player])}
        return {
            "eventID": str(self._number),
            "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
            "eventSource": "aws:dynamodb",
            "dynamodb": {**change, **images},
            "eventSourceARN": _ARN,
        }

    # Checks

    def check(self, samples: int) -> None:
        """Compare answers with sorting at a sample of scores, then all counters with all scores."""
        current: dict[Board, list[int]] = {board: [] for board in self.boards}
        for player, score in enumerate(self.scores):
            if player not in self.gone:
                current[self._board(player)].append(score)
        for scores in current.values():
            scores.sort()
        reads = requests = asked = 0
        played = [(board, scores) for board, scores in current.items() if scores]
        for board, scores in played:
            share = -(-samples * len(scores) // len(self.scores))
            ranking = self._ranking(board)
            some = [self.chance.choice(scores) for _ in range(share)] + [board.lowest, MOST]
            self.store.spent.take()
            for score in some:
                self._check_rank(ranking, board, scores, score)
            spent = self.store.spent.take()
            reads, requests, asked = reads + spent.reads, requests + spent.requests, asked + len(some)
            for _ in range(-(-share // 4)):
                self._check_at(ranking, board, scores, self.chance.randrange(len(scores)) + 1)
                self._check_between(ranking, board, scores)
        self.reads = Spent(0, reads // asked, requests // asked)
        if self.in_memory:
            smallest = sorted(played, key=lambda one: len(one[1]))
            self._check_whole(*smallest[self._checks % len(smallest)])
        self._check_all(current)
        self._checks += 1

    def _ranking(self, board: Board) -> Ranking:
        return ranking_of(self.program, self.store, board.rule, {"board": board.name})

    def _check_rank(self, ranking: Ranking, board: Board, scores: Sequence[int], score: int) -> None:
        low, high = bisect_left(scores, score), bisect_right(scores, score)
        better = len(scores) - high if board.descending else low
        one = ranking.rank(board.score(score))
        assert (one.rank, one.equal, one.total) == (1 + better, high - low, len(scores)), (board, score)
        assert one.percentile == Decimal(100 * (len(scores) - better)) / len(scores)
        self.compared += 1

    def _check_at(self, ranking: Ranking, board: Board, scores: Sequence[int], position: int) -> None:
        at = ranking.at(position)
        assert at is not None
        assert at.score == board.score(scores[-position if board.descending else position - 1]), (board, position)
        self.compared += 1

    def _check_between(self, ranking: Ranking, board: Board, scores: Sequence[int]) -> None:
        low, high = sorted(self.chance.choices(scores, k=2))
        count = ranking.between(board.score(low), board.score(high)).count
        assert count == bisect_right(scores, high) - bisect_left(scores, low), (board, low, high)
        if self.store.sums:
            between = {player for player, score in enumerate(self.scores) if low <= score <= high} - self.gone
            due = sum(self._amounts[player] for player in between if self._board(player) == board)
            assert ranking.sum_between(board.score(low), board.score(high)).sum == due, (board, low, high)
        self.compared += 1

    def _check_whole(self, board: Board, scores: Sequence[int]) -> None:
        """Compare the ranks of all scores of a board, and the scores at all positions."""
        ranking = self._ranking(board)
        for score in dict.fromkeys(scores):
            self._check_rank(ranking, board, scores, score)
        for position in range(1, len(scores) + 1):
            self._check_at(ranking, board, scores, position)

    def _check_all(self, current: dict[Board, list[int]]) -> None:
        """Compare every counter of every group with the scores."""
        boards = {f"G|{board.version}|{board.target()}": board for board in current}
        found: Counter[tuple[Board, int]] = Counter()
        self.groups = self.largest = 0
        for item in self._stored(current):
            of, digits = range_of(item["pk"]["S"])
            board = boards[of]
            size = item_size(item)
            assert size <= _KB or (size <= 2 * _KB and (self.store.sums or not digits)), item
            self.groups += 1
            self.largest = max(self.largest, size)
            counted = {name[1:]: int(value["N"]) for name, value in item.items() if name.startswith("=")}
            due = board.due(digits, current[board])
            assert +Counter(counted) == due, item
            assert int(item["n"]["N"]) == due.total(), item
            found[board, len(digits.removeprefix("-")) // 2] += due.total()
        due_of_all = {(board, level): len(scores) for board, scores in current.items() for level in range(LEVELS)}
        assert found == Counter(due_of_all), "a group is missing"

    def _stored(self, current: dict[Board, list[int]]) -> Iterator[Image]:
        """Yield all groups; on DynamoDB Local, where a scan takes too long, those of current scores."""
        if self.in_memory:
            for item in all_items(partial(self.store.scan, LEDGER)):
                if item["pk"]["S"].startswith("G|"):
                    yield item
            return
        for board, scores in current.items():
            for level in range(LEVELS):
                prefixes = dict.fromkeys(score // 100 ** (LEVELS - level) for score in scores)
                for some in slices(list(prefixes), 1000):
                    keys = [group_key(board.version, board.group(prefix, level)) for prefix in some]
                    yield from self.store.get_many(keys).values()


def memory(
    count: int, *, batch: int = BATCH, seed: int = 1, report: Callable[[str], None] = lambda line: None
) -> Boards:
    """Return boards in the memory store."""
    program = Program.from_document(loads(RULES).document())
    store = MemoryStore({**program.tables, LEDGER: LEDGER_SCHEMA})
    boards = Boards(Metered(store), Random(seed), MIXED, batch, report=report)
    with _collecting_seldom():
        return _played(boards, count, rounds=4, kinds=(SMALL, ANY, GONE, BACK))


def sums(count: int, *, batch: int = BATCH, seed: int = 1) -> Boards:
    """Return a board with sums in the memory store."""
    program = Program.from_document(loads(RULES).document())
    store = MemoryStore({**program.tables, LEDGER: LEDGER_SCHEMA})
    boards = Boards(Metered(store, sums=True), Random(seed), batch=batch)
    with _collecting_seldom():
        return _played(boards, count, rounds=1, kinds=(SMALL, ANY, GONE))


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Collect garbage among what is new only. To look at all scores again and again takes a third of the time or more."""
    before = gc.get_threshold()
    gc.set_threshold(50_000, 10, 1_000_000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def local(endpoint: str, count: int, *, batch: int = BATCH, seed: int = 1) -> Boards:
    """Return a board on DynamoDB Local."""
    dynamodb = client(endpoint_url=endpoint, max_pool_connections=10)
    program = Program.from_document(loads(RULES).document())
    schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
    names = {name: f"rank-{name}" for name in schemas}
    for name, schema in schemas.items():
        create_table(dynamodb, names[name], schema, stream=False)
    store = DynamoDBStore(dynamodb, names, schemas)
    boards = Boards(Metered(store), Random(seed), batch=batch, run=at_once(10))
    return _played(boards, count, rounds=2, kinds=(SMALL, ANY, GONE))


def _played(boards: Boards, count: int, *, rounds: int, kinds: Sequence[str]) -> Boards:
    """Fill boards, and change scores in rounds; compare them with sorting after each."""
    started = time.perf_counter()

    def check(after: str, samples: int) -> None:
        compared, begun = boards.compared, time.perf_counter()
        boards.check(min(count, samples))
        took = time.perf_counter()
        boards.report(
            f"{begun - started:,.0f} s: {after}. {boards.compared - compared:,} answers and {boards.groups:,} groups equal "
            f"sorting ({took - begun:,.0f} s, {peak():.2f} GB)"
        )

    boards.fill(count)
    check(f"{count:,} scores", 4000)
    for number in range(1, rounds + 1):
        for kind in kinds:
            boards.change(kind, max(1, count // 60))
        check(f"round {number} of {rounds}, {len(kinds) * max(1, count // 60):,} changes", 2000)
    return boards


def peak() -> float:
    """Return the most memory that this process had, in GB."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e9 if sys.platform == "darwin" else 1e9 / 1024)


def figures(name: str, boards: Boards) -> Iterator[Figure]:
    """Yield the figures of boards."""
    count = len(boards.scores)
    way = f"{name}, {count:,}"
    for kind, (changes, units) in boards.units.items():
        yield Figure("ranks", f"write units, in batches of {boards.batch}", kind, way, units / changes)
    yield Figure("ranks", "items read", "a rank", way, boards.reads.reads)
    yield Figure("ranks", "requests", "a rank", way, boards.reads.requests)
    changed = sum(changes for changes, _ in boards.units.values())
    yield Figure("ranks", "changes a second, with the store", "all", way, changed / boards.seconds)
    yield Figure("ranks", "groups", "all", way, boards.groups)
    yield Figure("ranks", "bytes", "the largest group", way, boards.largest)
    yield Figure("ranks", "answers compared with sorting", "all", way, boards.compared)
    if boards.in_memory:
        yield Figure("ranks", "GB of memory", "at most", way, peak())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank")
    parser.add_argument("--memory", type=int, metavar="N", help="scores in the memory store (1,000,000)")
    parser.add_argument("--local", type=int, metavar="N", help="scores on DynamoDB Local (200,000)")
    parser.add_argument("--sums", type=int, metavar="N", help="scores on a board with sums")
    parser.add_argument("--batch", type=int, default=BATCH, metavar="N", help=f"records of a batch ({BATCH})")
    given = parser.parse_args()
    if given.memory is None and given.local is None and given.sums is None:
        given.memory, given.local = 1_000_000, 200_000
    found: list[Figure] = []
    if given.local:
        with emulators.running(emulators.dynamodb_local) as endpoint:
            found += figures("DynamoDB Local", local(endpoint, given.local, batch=given.batch))
        print("\n".join(lines(found)), flush=True)
    if given.memory:
        report = partial(print, flush=True)
        found += figures("memory", memory(given.memory, batch=given.batch, report=report))
        print("\n".join(lines(found)), flush=True)
    if given.sums:
        found += figures("memory, with sums", sums(given.sums, batch=given.batch))
        print("\n".join(lines(found)), flush=True)


if __name__ == "__main__":
    main()

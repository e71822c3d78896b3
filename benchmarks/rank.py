"""Leaderboards that change at random: units for each change, items for each rank, and that ranks equal sorting.

`python -m benchmarks.rank [--memory N] [--local N]`. Stream records go through the engine in batches, as Lambda passes them.
After each round of changes, with no record on its way, ranks, percentiles, counts and scores at positions are compared
with sorting at a sample of scores. Then all counters of all groups are compared with the scores: all ranks equal sorting.

A million scores take 18 GB in the memory store, and about ten minutes.

Units are those that DynamoDB charges: two for each action of a transaction, since no item exceeds 1 KB, which is checked.
"""

from __future__ import annotations

import argparse
import time
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from random import Random
from typing import Any

from benchmarks.figures import Figure, lines
from projections.access.ranks import Ranking, ranking_of
from projections.aws.clients import client
from projections.aws.tables import create_table
from projections.engine.ledger_items import LEDGER, group_key
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.running import at_once, slices
from projections.engine.store import Image
from projections.language.digits import range_of
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.ranks import RankRule
from projections.stores.dynamodb import DynamoDBStore
from projections.stores.limits import item_size
from projections.stores.memory import MemoryStore
from tests import emulators

__all__ = ["Board", "figures", "local", "memory"]

DIGITS = 8
RULES = f"""
table: {{key: [PK, SK]}}
entities:
  Score: {{key: {{PK: "BOARD#{{board}}", SK: "PLAYER#{{playerId}}"}}}}
  Board: {{key: {{PK: "BOARD#{{board}}", SK: META}}}}
projections:
  ranks: {{from: Score, rank: {{into: Board, by: score, digits: {DIGITS}}}}}
"""
MOST = 10**DIGITS - 1
BATCH = 1000
_ARN = "arn:aws:dynamodb:us-east-1:123456789012:table/main/stream/2026-01-01T00:00:00.000"
_MOST_BYTES = 1024

NEW, SMALL, ANY, GONE = "a new score", "a score that changes in its last two digits", "a score that changes", "removed"


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

    def __init__(self, store: Any) -> None:
        self.inner = store
        self.spent = Spent()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def transact(self, writes: Sequence[Any]) -> None:
        self.spent.writes += 2 * len(writes)
        self.inner.transact(writes)

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


@dataclass
class Board:
    """One board: its scores as they should be, and the engine that counts them."""

    store: Metered
    chance: Random
    batch: int = BATCH
    run: Any = None
    scores: list[int] = field(default_factory=list)
    units: dict[str, list[int]] = field(default_factory=dict)
    """By kind of change: how many there were, and their write units."""
    seconds: float = 0.0
    reads: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        self.program = Program.from_document(loads(RULES).canonical())
        Registry(self.program, self.store).read_or_create()  # type: ignore[arg-type]
        run = {"run": self.run} if self.run is not None else {}
        self._processor = Processor(self.program, self.store, tables={"main": "main"}, **run)  # type: ignore[arg-type]
        self._number = 0
        self.gone: set[int] = set()

    # Changes

    def score(self) -> int:
        """A score: most are spread over the whole range, some crowd at its low end, some are tied."""
        dice = self.chance.random()
        if dice < 0.6:
            return self.chance.randrange(MOST + 1)
        if dice < 0.9:
            return min(MOST, int(self.chance.expovariate(1 / 50_000)))
        return self.chance.randrange(100) * 10**6

    def fill(self, count: int) -> None:
        """New scores."""
        self._apply(NEW, ((len(self.scores), None, self._added()) for _ in range(count)))

    def _added(self) -> int:
        self.scores.append(self.score())
        return self.scores[-1]

    def change(self, kind: str, count: int) -> None:
        """So many changes of one kind, of players at random."""
        self._apply(kind, (self._changed(kind) for _ in range(count)))

    def _changed(self, kind: str) -> tuple[int, int | None, int | None]:
        while True:
            player = self.chance.randrange(len(self.scores))
            old = self.scores[player]
            if player in self.gone or (kind == SMALL and old % 100 == 99):
                continue
            if kind == GONE:
                self.gone.add(player)
                return player, old, None
            self.scores[player] = (
                self.chance.randrange(old + 1, old // 100 * 100 + 100) if kind == SMALL else self.score()
            )
            return player, old, self.scores[player]

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

    _records: list[dict[str, Any]] = field(default_factory=list)

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
        keys = {"PK": {"S": "BOARD#b"}, "SK": {"S": f"PLAYER#{player}"}}
        change = {
            "Keys": keys,
            "SequenceNumber": str(10**20 + self._number),
            "SizeBytes": 60,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        }
        images = {name: {**keys, "score": {"N": str(value)}} for name, value in (("OldImage", old), ("NewImage", new))
                  if value is not None}  # fmt: skip
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
        ranking = ranking_of(self.program, self.store, "ranks", {"board": "b"})  # type: ignore[arg-type]
        current = sorted(score for player, score in enumerate(self.scores) if player not in self.gone)
        self.store.spent.take()
        asked = [self.chance.choice(current) for _ in range(samples)] + [0, MOST]
        for score in asked:
            low, high = bisect_left(current, score), bisect_right(current, score)
            one = ranking.rank(score)
            assert (one.rank, one.equal, one.total) == (1 + len(current) - high, high - low, len(current)), score
            assert one.percentile == Decimal(100 * high) / len(current)
        spent = self.store.spent.take()
        self.reads = Spent(0, spent.reads // len(asked), spent.requests // len(asked))
        for _ in range(samples // 4):
            self._check_position(ranking, current)
        self._check_all(current)

    def _check_position(self, ranking: Ranking, current: Sequence[int]) -> None:
        position = self.chance.randrange(len(current)) + 1
        at = ranking.at(position)
        assert at is not None
        assert at.score == current[-position], position
        percentile = Decimal(self.chance.randrange(1, 1001)) / 10
        least = int((percentile * len(current) / 100).to_integral_value(ROUND_CEILING))
        at = ranking.at_percentile(percentile)
        assert at is not None
        assert at.score == current[least - 1], percentile
        low, high = sorted(self.chance.choices(current, k=2))
        assert ranking.between(low, high).count == bisect_right(current, high) - bisect_left(current, low)

    def _check_all(self, current: Sequence[int]) -> None:
        """Compare every counter of every group with the scores."""
        rule = self.program.rules["ranks"]
        assert isinstance(rule, RankRule)
        due: dict[str, Counter[str]] = {}
        for score in current:
            parts = rule.scale.parts(Decimal(score))
            for level, part in enumerate(parts):
                due.setdefault("".join(parts[:level]), Counter())[part] += 1
        self.groups = self.largest = 0
        for prefix, item in self._stored(due):
            self.groups += 1
            self.largest = max(self.largest, item_size(item))
            counted = {name[1:]: int(value["N"]) for name, value in item.items() if name.startswith("=")}
            assert +Counter(counted) == due.pop(prefix, Counter()), prefix
        assert not due
        assert self.largest <= _MOST_BYTES, self.largest

    def _stored(self, due: Mapping[str, object]) -> Iterator[tuple[str, Image]]:
        """Yield all groups with their digits; on DynamoDB Local, where a scan takes too long, those of current scores."""
        if isinstance(self.store.inner, MemoryStore):
            for item in self.store.items(LEDGER):
                if item["pk"]["S"].startswith("G|"):
                    yield range_of(item["pk"]["S"])[1], item
            return
        keys = {group_key("ranks", f"main|BOARD#b|META|%={DIGITS}:{prefix}"): prefix for prefix in due}
        for some in slices(list(keys), 1000):
            for key, item in self.store.get_many(some).items():
                yield keys[key], item


def memory(count: int, *, batch: int = BATCH, seed: int = 1) -> Board:
    """Return a board in the memory store."""
    program = Program.from_document(loads(RULES).canonical())
    store = MemoryStore({**program.tables, LEDGER: LEDGER_SCHEMA})
    return _played(Board(Metered(store), Random(seed), batch), count)


def local(endpoint: str, count: int, *, batch: int = BATCH, seed: int = 1) -> Board:
    """Return a board on DynamoDB Local."""
    dynamodb = client(endpoint_url=endpoint, max_pool_connections=10)
    program = Program.from_document(loads(RULES).canonical())
    schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
    names = {name: f"rank-{name}" for name in schemas}
    for name, schema in schemas.items():
        create_table(dynamodb, names[name], schema, stream=False)
    store = DynamoDBStore(dynamodb, names, schemas)
    return _played(Board(Metered(store), Random(seed), batch, at_once(10)), count)


def _played(board: Board, count: int) -> Board:
    """Fill a board, and change a tenth of it in rounds; compare it with sorting after each."""
    board.fill(count)
    board.check(min(count, 2000))
    for _ in range(2):
        for kind in (SMALL, ANY, GONE):
            board.change(kind, max(1, count // 60))
        board.check(min(count, 1000))
    return board


def figures(name: str, board: Board) -> Iterator[Figure]:
    """Yield the figures of a board."""
    count = len(board.scores)
    way = f"{name}, {count:,}"
    for kind, (changes, units) in board.units.items():
        yield Figure("ranks", f"write units, in batches of {board.batch}", kind, way, units / changes)
    yield Figure("ranks", "items read", "a rank", way, board.reads.reads)
    yield Figure("ranks", "requests", "a rank", way, board.reads.requests)
    changed = sum(changes for changes, _ in board.units.values())
    yield Figure("ranks", "changes a second, with the store", "all", way, changed / board.seconds)
    yield Figure("ranks", "groups", "all", way, board.groups)
    yield Figure("ranks", "bytes", "the largest group", way, board.largest)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rank")
    parser.add_argument("--memory", type=int, default=1_000_000, metavar="N", help="scores in the memory store")
    parser.add_argument("--local", type=int, default=200_000, metavar="N", help="scores on DynamoDB Local")
    parser.add_argument("--batch", type=int, default=BATCH, metavar="N", help=f"records of a batch ({BATCH})")
    given = parser.parse_args()
    found: list[Figure] = []
    if given.local:
        with emulators.running(emulators.dynamodb_local) as endpoint:
            found += figures("DynamoDB Local", local(endpoint, given.local, batch=given.batch))
        print("\n".join(lines(found)), flush=True)
    if given.memory:
        found += figures("memory", memory(given.memory, batch=given.batch))
        print("\n".join(lines(found)), flush=True)


if __name__ == "__main__":
    main()

"""What `projections diff` says a backfill costs is what a backfill asks of a store, unit by unit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from projections.engine.store import Image, ItemKey, Page, Write
from projections.inspect.diff.backfill import cost
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import wire
from projections.operations.backfill.backfill import PAGE, Backfill
from projections.operations.backfill.runner import Runner
from projections.stores.memory import MemoryStore

ITEMS = 1000

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Like: {key: {PK: "LIKE#{likeId}", SK: LIKE}, index_key: {GSI1PK: "POST#{postId}"}}
  Part: {key: {PK: "POST#{postId}", SK: "PART#{partId}"}}
  Post: {key: {PK: "POST#{postId}", SK: META}}
  Copy: {key: {PK: "COPY#{likeId}", SK: META}}
  ByPost: {key: {PK: "BY#{postId}", SK: META}}
  Stats: {key: {PK: "STATS#{postId}", SK: META}%s}
projections:
"""

RULES = {
    "count": "{from: Like, aggregate: {into: Post, set: {n: count, s: sum(v), a: avg(v)}}}",
    "extreme": "{from: Like, aggregate: {into: Post, set: {n: max(number(v))}}}",
    "extremes of one value": "{from: Like, aggregate: {into: Post, set: {n: max(number(v)), m: min(number(v))}}}",
    "extremes of two values": "{from: Like, aggregate: {into: Post, set: {n: max(number(v)), m: min(number(w))}}}",
    "first and last": "{from: Like, aggregate: {into: Post, set: {f: 'first(v, w)', l: 'last(v, w)', m: 'last(w, w)'}}}",
    "values": "{from: Like, aggregate: {into: Post, set: {n: distinct(likeId), s: values(likeId)}}}",
    "derived": "{from: Like, aggregate: {into: Stats, set: {n: count, m: max(number(v))}}}",
    "shards": "{from: Like, aggregate: {into: Post, shards: 4, set: {n: count}}}",
    "top": "{from: Like, top: {into: Post, as: l, by: v, limit: 3, attributes: [v]}}",
    "latest": "{from: Like, latest: {into: Post, by: v, attributes: [v]}}",
    "guarded copy": "{from: Like, copy: {into: Copy, attributes: [v]}}",
    "claimed copy": "{from: Like, copy: {into: ByPost, attributes: [v]}}",
    "embed through an index": '{from: Post, embed: {into: Like, match: {postId: "{postId}"}, attributes: {t: title}}}',
    "embed in a collection": '{from: Post, embed: {into: Part, match: {postId: "{postId}"}, attributes: {t: title}}}',
    "embed by list": '{from: Post, embed: {into: Like, match: {posts: "{postId}"}, as: all, attributes: [title]}}',
}


class Metered(MemoryStore):
    """A memory store that counts request units: of consistent reads of 4 KB, and writes of 1 KB."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.reads = self.writes = 0

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        self.reads += 1
        return super().get(key, attributes)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        self.reads += len(keys)
        return super().get_many(keys)

    def query(self, *arguments: Any, **settings: Any) -> Page:
        self.reads += 1
        return super().query(*arguments, **settings)

    def write(self, write: Write) -> None:  # `write_each` calls it too
        self.writes += 1
        super().write(write)

    def transact(self, writes: Sequence[Write]) -> None:
        self.writes += 2 * len(writes)
        super().transact(writes)


def measured(rule: str, targets: int) -> tuple[Program, int, int]:
    """Reads (scans apart) and writes of a backfill of 1000 items, for which nothing is there yet."""
    head = HEAD % (", derived: true" if "into: Stats" in rule else "")
    program = Program.from_document(loads(f"{head}  rule: {rule}\n").canonical())
    store = Metered({**program.tables, "ledger": LEDGER_SCHEMA})
    for number in range(targets):
        seed(store, PK=f"POST#{number}", SK="META", title="x")
    for number in range(ITEMS):
        post = str(number % targets)
        if "into: Part" in rule:
            seed(store, PK=f"POST#{post}", SK=f"PART#{number}")
        else:
            seed(store, PK=f"LIKE#{number}", SK="LIKE", postId=post, posts=[post], v=number, w=-number)
    backfill = Backfill(program, store, now=lambda: datetime.fromtimestamp(1_700_000_000, UTC))
    runner = Runner(backfill, clock=lambda: 1_800_000_000.0)
    runner.work(backfill.begin(segments=1, wait=0.0, allow_delete=True))
    assert (runner.failed, runner.rejected) == ({}, {})
    return program, store.reads, store.writes


def seed(store: MemoryStore, **item: Any) -> None:
    store.seed("main", {name: wire(value) for name, value in item.items()})


BOOKS = 120
"""The most units that keeping the books of a backfill of two pages takes: registry, progress, leases."""


@pytest.mark.parametrize("targets", [1, 10, 100, pytest.param(1000, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", RULES)
def test_cost_of_a_backfill_is_that_of_diff(name: str, targets: int) -> None:
    """Only what several transactions or pages share costs more than said: two units for each of them, six with shards.

    Each transaction checks the lease of the process: two units.
    A parent that children in two pages have is read twice.
    """
    program, reads, writes = measured(RULES[name], targets)
    expected_reads, expected_writes = cost(program.typed, "rule").units(targets)
    shared = 0 if targets == ITEMS else min(targets, 100)
    pages = ITEMS // PAGE
    assert expected_reads <= reads <= expected_reads + BOOKS + 2 * shared * (pages - 1)
    transactions = 5 * ITEMS // 99
    each = 6 if name == "shards" else 2
    assert expected_writes <= writes <= expected_writes + BOOKS + each * shared * (pages - 1) + 4 * transactions


def test_a_rank_costs_at_most_a_group_for_each_two_digits() -> None:
    """Scores that are close to each other share groups; groups of one transaction are written once."""
    rule = "{from: Like, rank: {into: Post, by: v * 99991, digits: 8}}"
    program, reads, writes = measured(rule, 1)
    expected_reads, expected_writes = cost(program.typed, "rule").units(1)
    assert expected_reads <= reads <= expected_reads + BOOKS
    assert expected_writes / 2 < writes < expected_writes + BOOKS


def test_an_index_costs_a_write_to_the_item_and_one_to_each_index() -> None:
    """The store does not count those of the indexes; AWS does."""
    program, reads, writes = measured('{from: Like, index: {GSI1SK: "{v}"}}', 1)
    assert reads < BOOKS
    assert ITEMS <= writes < ITEMS + BOOKS
    assert cost(program.typed, "rule").units(1) == (0, 2 * ITEMS)


def test_dollars_are_those_of_a_million_items() -> None:
    program, *_ = measured(RULES["count"], 1)
    assert cost(program.typed, "rule").dollars(1000) == pytest.approx((5000 * 0.125 + 5000 * 0.625) / 1000)
    assert str(cost(program.typed, "rule")) == (
        "per 1,000 Like items: 3,000 + 2T reads, 2,000 + 3T writes; $1.63 to $3.75 per million items"
    )

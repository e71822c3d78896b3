"""Expiries in batches that Lambda discarded: each is counted once, whatever became of the key since."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from projections.engine.ledger_items import MOST_EXPIRIES, entry_key
from projections.engine.publishing import TOMBSTONE_SECONDS
from projections.engine.store import ItemKey
from projections.language.keys import encode_key
from projections.operations.failed_messages import FailedMessage, Reader
from projections.operations.message_redrive import Answer, Redrive
from tests.engine.scene import Scene, dies

HEAD = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Site: {key: {PK: "SITE#{site}", SK: S}}
  Visit: {key: {PK: "VISIT#{visitor}", SK: V}, expires: true}
projections:
"""
VISITS = """
  visits:
    from: Visit
    expired: keep
    aggregate: {into: Site, set: {visits: count, seconds: sum(seconds), longest: max(number(seconds))}}
"""
VISIT = ItemKey("main", "VISIT#ann", "V")
DAY = 24 * 3600

Record = dict[str, Any]


def site() -> Scene:
    """A site with one visit that the ledger has recorded."""
    w = Scene(VISITS, HEAD)
    w.put("SITE#1", "S")
    visit(w, 1)
    w.settle()
    return w


def visit(w: Scene, seconds: int, **attributes: Any) -> None:
    w.put(VISIT.partition, "V", **{"site": "1", "seconds": seconds, **attributes})


def expire(w: Scene) -> None:
    w.remove(VISIT.partition, "V", by_ttl=True)


def shown(w: Scene) -> tuple[int, int, int]:
    item = w.item("SITE#1", "S") or {}
    return item["visits"], item["seconds"], item["longest"]


def discarded(w: Scene, records: Sequence[Record]) -> FailedMessage:
    reader = Reader(w.program.tables, {name: name for name in w.program.tables})
    return reader.value({"DDBStreamBatchInfo": {}, "payload": json.dumps({"Records": records})}, "here")


def redriven(w: Scene, *batches: Sequence[Record], days: float = 0, **settings: Any) -> list[Answer]:
    now = batches[0][0]["dynamodb"]["ApproximateCreationDateTime"] + days * DAY
    redrive = Redrive(w.program, w.store, sleep=lambda seconds: None, now=lambda: now, **settings)
    return redrive.work([discarded(w, batch) for batch in batches])


def lost(w: Scene) -> list[Record]:
    records = w.records()
    w.lose()
    return records


@pytest.mark.parametrize("seconds", [1, 4])
def test_an_expiry_counts_though_the_key_was_written_anew_before_it_was_redriven(seconds: int) -> None:
    w = site()
    expire(w)
    records = lost(w)
    visit(w, seconds)
    w.settle()
    assert shown(w) == (1, seconds, seconds)
    for _ in range(2):
        (answer,) = redriven(w, records)
        assert answer.left == {}
        assert shown(w) == (2, 1 + seconds, seconds)
    expire(w)
    w.settle()
    assert shown(w) == (2, 1 + seconds, seconds)


def test_visits_that_came_and_went_within_discarded_batches_all_count() -> None:
    w = site()
    expire(w)
    visit(w, 4)
    expire(w)
    records = lost(w)
    visit(w, 2)
    w.settle()
    (answer,) = redriven(w, records)
    assert answer.left == {}
    assert shown(w) == (3, 7, 4)


def test_an_expiry_that_is_redriven_late_does_not_replace_what_a_newer_one_of_the_same_place_has_left() -> None:
    w = Scene("  last: {from: Visit, expired: keep, latest: {into: Site, by: at, attributes: [seconds]}}\n", HEAD)
    w.put("SITE#1", "S")
    visit(w, 1, at="noon")
    w.settle()
    expire(w)
    records = lost(w)
    visit(w, 2, at="noon")
    expire(w)
    w.settle()
    assert (w.item("SITE#1", "S") or {})["seconds"] == 2
    (answer,) = redriven(w, records)
    assert answer.left == {}
    assert (w.item("SITE#1", "S") or {})["seconds"] == 2


def test_of_a_key_that_keeps_expiring_only_so_many_expiries_are_remembered_and_an_older_one_is_reported() -> None:
    w = site()
    expire(w)
    records = lost(w)
    for seconds in range(MOST_EXPIRIES + 1):
        visit(w, seconds)
        w.settle()
        expire(w)
        w.settle()
    entry = w.store.get(entry_key(encode_key(VISIT))) or {}
    assert len(entry["expiries"]["SS"]) == MOST_EXPIRIES
    before = shown(w)
    (answer,) = redriven(w, records)
    assert list(answer.left) == [encode_key(VISIT)]
    assert "the last 8 expiries under a key, for 6 days). It was not counted now" in answer.left[encode_key(VISIT)][0]
    assert shown(w) == before


@pytest.mark.parametrize("again", [False, True], ids=["gone", "written anew"])
def test_an_expiry_of_which_the_ledger_may_have_forgotten_everything_is_reported(again: bool) -> None:
    w = site()
    expire(w)
    records = w.records()
    w.settle()
    w.store.remove(entry_key(encode_key(VISIT)))  # as DynamoDB's TTL does
    if again:
        visit(w, 4)
        w.settle()
    before = shown(w)
    (answer,) = redriven(w, records, days=TOMBSTONE_SECONDS / DAY)
    assert list(answer.left) == [encode_key(VISIT)]
    assert shown(w) == before


def test_an_expiry_is_kept_while_the_rule_fills() -> None:
    w = Scene(VISITS, HEAD, filled=False)
    w.put("SITE#1", "S")
    visit(w, 3)
    w.settle()
    expire(w)
    records = lost(w)
    (answer,) = redriven(w, records)
    assert answer.left == {}
    w.registry().fill(["visits.1"])
    w.registry().promote(["visits.1"])
    w.backfill()
    assert shown(w) == (1, 3, 3)


MANY = VISITS.replace("from: Visit", "from: Visit\n    each: {site: sites, most: 10000}")


def many(w: Scene) -> list[str]:
    """A visit to more sites than a transaction holds."""
    sites = [f"{number:03}" for number in range(120)]
    for name in sites:
        w.put(f"SITE#{name}", "S")
    visit(w, 1, sites=sites)
    w.settle()
    return sites


def visits(w: Scene, sites: Sequence[str]) -> list[int]:
    return [(w.item(f"SITE#{name}", "S") or {})["visits"] for name in sites]


@pytest.mark.parametrize("anew", [False, True], ids=["gone", "written anew"])
@pytest.mark.parametrize("writes", range(8))
def test_an_expiry_of_more_than_a_transaction_counts_once_though_the_redrive_was_killed(
    anew: bool, writes: int
) -> None:
    w = Scene(MANY, HEAD)
    sites = many(w)
    expire(w)
    records = lost(w)
    if anew:
        visit(w, 4, sites=sites[:3])
        w.settle()
    assert dies(w, writes, lambda: redriven(w, records))
    redriven(w, records)
    assert visits(w, sites) == [2 if anew and name in sites[:3] else 1 for name in sites]


@pytest.mark.parametrize("writes", [1, 2])
def test_an_expiry_that_functions_left_halfway_is_ended_after_the_key_was_written_anew(writes: int) -> None:
    w = Scene(MANY, HEAD)
    sites = many(w)
    expire(w)
    records = w.records()
    assert dies(w, writes, w.settle)
    w.lose()
    visit(w, 4, sites=sites)
    w.settle()
    redriven(w, records)
    assert visits(w, sites) == [2] * len(sites)
    assert "~" not in (w.store.get(entry_key(encode_key(VISIT))) or {})["contributions"]["S"]


def test_values_on_an_item_of_another_kind_are_removed_by_a_discarded_record_alone() -> None:
    head = """
table: {key: [PK, SK]}
entities:
  Book: {key: {PK: "BOOK#{book}", SK: B}, match: {kind: book}}
  Loan: {key: {PK: "BOOK#{book}", SK: "LOAN#{loan}"}}
projections:
"""
    w = Scene("  loans: {from: Loan, aggregate: {into: Book, set: {loans: count}}}\n", head)
    w.put("BOOK#1", "B", kind="book")
    w.put("BOOK#1", "LOAN#1")
    w.settle()
    book = w.item("BOOK#1", "B", guards=True) or {}
    w.put("BOOK#1", "B", **{**book, "kind": "film"})
    records = lost(w)
    w.put("BOOK#1", "LOAN#2")
    w.settle()
    assert (w.item("BOOK#1", "B") or {})["loans"] == 1
    redriven(w, records)
    assert w.item("BOOK#1", "B", guards=True) == {"PK": "BOOK#1", "SK": "B", "kind": "film"}


def test_a_removal_that_is_redriven_late_takes_nothing_from_a_later_item_under_the_key() -> None:
    w = site()
    w.remove(VISIT.partition, "V")
    records = lost(w)
    visit(w, 4)
    w.settle()
    expire(w)
    expired = lost(w)
    redriven(w, records)
    assert shown(w) == (1, 4, 4)
    redriven(w, expired)
    assert shown(w) == (1, 4, 4)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_a_removed_item_does_not_come_back_beside_the_marks_of_an_expiry_that_functions_left_halfway(
    order: Sequence[int],
) -> None:
    w = Scene(MANY, HEAD)
    sites = many(w)
    expire(w)
    batches = [w.records()]
    assert dies(w, 1, w.settle)
    w.lose()
    visit(w, 4, sites=sites)
    batches.append(lost(w))
    w.remove(VISIT.partition, "V")
    batches.append(lost(w))
    for number in order:
        redriven(w, batches[number])
    assert visits(w, sites) == [1] * len(sites)

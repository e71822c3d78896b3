"""Refreshing beside live traffic, after deaths, and against stores that fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.engine.guards import at_of
from projections.engine.store import ItemKey
from tests.engine.scene import COUNT, Scene, before, changed, deadline, dies, settled, work_off
from tests.engine.world import World

POINTS = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
  Point: {key: {PK: "POINT#{point}", SK: P}, expires: true}
projections:
"""
MEASURES = "{n: count, low: min(number(v))}"
EACH = "{tag: tags, most: 10000}"
KEPT = f"  tags: {{from: Point, expired: keep, each: {EACH}, aggregate: {{into: Tag, set: {MEASURES}}}}}\n"


# What a scan saw may be old.


def unliked() -> tuple[Scene, Any]:
    w = Scene(COUNT)
    w.put("POST#1", "METADATA")
    w.like(1, 1)
    old = w.scanned()
    w.remove("USER#1", "LIKE#1")
    return w, old


def test_an_old_image_is_not_believed_where_there_is_an_entry() -> None:
    w = settled()
    old = w.scanned()
    w.remove("USER#a", "LIKE#1")
    w.put("POST#1", "COMMENT#0", userId="b", GSI2PK="AUTHOR#b", GSI2SK="0", text="edited", at=70)
    w.settle()
    w.refresher().refresh_scanned(old, deadline())
    w.settle()
    assert w.differences() == []
    assert w.contributed("USER#a|LIKE#1") == {}


def test_an_old_image_is_not_believed_where_an_entry_appears_meanwhile() -> None:
    w, old = unliked()
    before(w, "transact", w.settle)
    refresher = w.refresher()
    refresher.refresh_scanned(old, deadline())
    assert w.contributed("USER#1|LIKE#1") == {}
    refresher.publish([("likes.1", "main|POST#1|METADATA")], deadline())
    assert w.post() == {"likeCount": 0}


def test_an_old_image_without_an_entry_is_put_right_by_the_record_on_its_way() -> None:
    w, old = unliked()
    w.refresher().refresh_scanned(old, deadline())
    assert w.contributed("USER#1|LIKE#1") != {}
    w.settle()
    assert (w.contributed("USER#1|LIKE#1"), w.post()) == ({}, {"likeCount": 0})


@pytest.mark.parametrize("method", ["get_many", "transact"])
def test_an_entry_that_moves_between_is_read_again(method: str) -> None:
    """After the entry was read, or after the item was; the change that came between is kept, and none is counted twice."""
    w = settled()
    w.put("POST#1", "COMMENT#1", userId="a", GSI2PK="AUTHOR#a", GSI2SK="1", text="lost", at=80)
    w.lose()

    def edited() -> None:
        w.put("POST#1", "COMMENT#1", userId="a", GSI2PK="AUTHOR#a", GSI2SK="1", text="came between", at=90)
        w.settle()

    before(w, method, edited, call=1 if method == "get_many" else 0)
    refresher = w.refresh(ItemKey("main", "POST#1", "COMMENT#1"))
    assert refresher.failed == {}
    w.settle()
    assert w.differences() == []
    assert w.post()["recent"][0]["text"] == "came between"


# Items that are gone.


def test_what_a_gone_item_contributed_is_taken_back_and_its_entry_expires() -> None:
    w = settled()
    w.remove("USER#b", "LIKE#1")
    w.lose()
    w.refresh(ItemKey("main", "USER#b", "LIKE#1"))
    assert w.post()["likeCount"] == 2
    entry = w.entry("USER#b|LIKE#1")
    assert entry is not None
    assert (entry["contributions"], "recent" in entry) == ("{}", False)
    assert entry["ttl"] == 1_000_000_000 + 7 * 24 * 3600


@pytest.mark.parametrize(("by_ttl", "n"), [(True, 2), (False, 1)])
def test_of_an_item_that_may_have_expired_the_contribution_stays_until_its_record_tells(by_ttl: bool, n: int) -> None:
    w = Scene(KEPT, POINTS)
    w.put("POINT#1", "P", v=7, tags=["a"])
    w.put("POINT#2", "P", v=9, tags=["a"])
    w.settle()
    w.remove("POINT#1", "P", by_ttl=by_ttl)
    w.refresh(ItemKey("main", "POINT#1", "P"))
    assert w.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "n": 2, "low": 7}
    w.settle()
    assert w.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "n": n, "low": 7 if by_ttl else 9}
    assert w.contributed("POINT#1|P") == {}


def test_of_an_item_that_is_known_to_be_removed_the_contribution_is_taken_back() -> None:
    w = Scene(KEPT, POINTS)
    for point in (1, 2):
        w.put(f"POINT#{point}", "P", v=point, tags=["a"])
    w.settle()
    w.remove("POINT#1", "P")
    w.lose()
    keys = [ItemKey("main", f"POINT#{point}", "P") for point in (1, 2)]
    w.refresher().keys(keys, deadline(), removed=keys)  # it was put again, the other
    assert w.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "n": 1, "low": 2}
    assert w.contributed("POINT#1|P") == {}


@pytest.mark.parametrize("back", [False, True], ids=["gone", "put back"])
def test_an_expiry_that_is_halfway_through_is_kept_once(back: bool) -> None:
    """Of what the entry keeps already nothing is added again when the record comes again."""
    w = Scene(KEPT, POINTS)
    tags = [f"t{number:03}" for number in range(250)]
    w.put("POINT#1", "P", v=7, tags=tags)
    w.settle()
    w.remove("POINT#1", "P", by_ttl=True)
    batch = w.records()
    w.lose()
    assert dies(w, 1, lambda: w.worker().process(batch, remaining=lambda: 900))
    entry = w.entry("POINT#1|P") or {}
    assert 0 < len(json.loads(entry["kept"])["tags.1"]) < 250
    assert "expiries" not in entry
    if back:
        w.put("POINT#1", "P", v=3, tags=tags)
    refresher = w.refresh(ItemKey("main", "POINT#1", "P"))
    assert (refresher.failed, refresher.rejected) == ({}, {})
    assert w.worker().process(batch, remaining=lambda: 900).failed is None
    w.settle()
    for tag in tags:
        item = w.item(f"TAG#{tag}", "STATS")
        assert item == {"PK": f"TAG#{tag}", "SK": "STATS", "n": 1 + back, "low": 3 if back else 7}


# What an entry owes.


@pytest.mark.parametrize("scan", [False, True])
def test_a_publication_that_is_owed_is_made_and_then_forgotten(scan: bool) -> None:
    """A worker died after its commit: nobody knows that the target it took something from was not published."""
    w = settled()
    w.put("USER#b", "LIKE#1", postId="none")  # bad input: contributes nothing any more
    batch = w.records()
    w.lose()
    assert dies(w, 1, lambda: w.worker().process(batch, remaining=lambda: 900))
    assert (w.entry("USER#b|LIKE#1") or {})["recent"]
    assert w.post()["likeCount"] == 3
    key = ItemKey("main", "USER#b", "LIKE#1")
    if scan:
        w.refresher().refresh_scanned({key: w.store.get(key) or {}}, deadline())
    else:
        w.refresh(key)
    assert w.post()["likeCount"] == 2
    assert "recent" not in (w.entry("USER#b|LIKE#1") or {})


# What fails.


def test_what_can_never_be_written_is_told_and_the_rest_is_done() -> None:
    w = settled()
    w.put("USER#d", "LIKE#1", postId="none")
    w.put("USER#d", "LIKE#2")
    w.put("POST#1", "METADATA", **{**w.post(), "type": "PostMeta", "likeCount": "many"})
    w.lose()
    refresher = w.refresher()
    refresher.keys([ItemKey("main", "USER#d", "LIKE#1"), ItemKey("main", "USER#d", "LIKE#2")], deadline())
    ((told),) = refresher.rejected
    assert (told.rule, told.key, told.table) == ("likes", "main|USER#d|LIKE#1", "main")
    assert "postId" in told.reason
    assert w.post(2)["likeCount"] == 4


# Pushes that no record asked for.


def test_a_renewed_push_is_newer_than_all_before_and_older_than_any_record_to_come() -> None:
    w = settled()
    embedder, rule, parent = w.refresher().embedder, w.program.rules["author"], "main|USER#a|PROFILE"
    w.put("USER#a", "PROFILE", name="Renamed", email="a@example.com")
    w.settle()
    fence = fence_of(w)
    first = embedder.renew(rule, parent)  # type: ignore[arg-type]
    assert fence < first.version
    embedder.raise_fence(first)
    second = embedder.renew(rule, parent)  # type: ignore[arg-type]
    assert first.version < second.version
    w.put("USER#a", "PROFILE", name="Again", email="a@example.com")
    w.settle()
    assert second.version < fence_of(w)
    assert [at_of(child["~author"]) for child in w.store.items("main") if "~author" in child] == [fence_of(w)] * 3
    work_off(w.refresher(), [first, second])  # late
    assert w.differences() == []


def fence_of(w: Scene) -> str:
    (fence,) = w.ledger("F|author|main|USER#a")
    return str(fence["version"])


def test_a_renewed_push_reaches_children_that_show_the_newest_version_wrongly() -> None:
    """Which is what a push that was lost, or an application that wrote over them, leaves."""
    w = settled()
    for number in range(3):
        key = ItemKey("main", "POST#1", f"COMMENT#{number}")
        w.store.put("main", changed(w.store.get(key) or {}, userName="wrong"))
    w.lose()
    w.refresh(ItemKey("main", "USER#a", "PROFILE"))
    assert w.differences() == []
    w.settle()
    w.put("USER#a", "PROFILE", name="Later", email="a@example.com")
    w.settle()
    assert w.differences() == []


COPY_HEAD = """
table: {key: [PK, SK]}
entities:
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Seen: {key: {PK: "SEEN#{userId}#{postId}", SK: X}}
"""
SEEN = "projections:\n  seen: {from: Like, copy: {into: Seen, attributes: [stars]}}\n"


def destroyed() -> tuple[World, list[dict[str, Any]]]:
    """A source whose copy the application has deleted, and the record of that, which nobody has heard of yet."""
    w = World(SEEN, COPY_HEAD)
    w.like(1, 1, stars=5)
    w.settle()
    w.remove("SEEN#1#1", "X")
    return w, w.store.stream("main")[-1:]


def test_a_source_that_is_removed_while_its_copy_is_made_again_leaves_no_copy() -> None:
    """Its removal found no copy to delete. What healing made is compared again before anything else happens."""
    w, record = destroyed()

    def remove() -> None:
        w.remove("USER#1", "LIKE#1")
        w.deliver(w.store.stream("main")[-1:])

    before(w, "write", remove)
    w.deliver(record)
    assert w.item("SEEN#1#1", "X") is None


def test_a_source_that_changes_while_its_copy_is_made_again_has_its_newest_copy() -> None:
    w, record = destroyed()
    before(w, "write", lambda: w.like(1, 1, stars=6))
    w.deliver(record)
    assert (w.item("SEEN#1#1", "X") or {})["stars"] == 6

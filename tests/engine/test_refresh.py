"""Refreshing: whatever became of an item's records, everything that depends on it becomes what it says today."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from projections.engine.store import Image, ItemKey
from tests.engine.scene import COUNT, Scene, changed, deadline, dies, populate, settled, without

# A page as a scan gave it.


def test_a_table_whose_records_nobody_saw_is_made_right() -> None:
    w = Scene()
    populate(w)
    w.lose()
    assert len(w.differences()) > 10
    refresher = w.backfill()
    assert (refresher.failed, refresher.rejected) == ({}, {})
    w.settle()  # what was created has records of its own: a copy is a source of tags
    assert w.differences() == []


def test_the_stream_finds_what_a_refresh_did_and_counts_nothing_twice() -> None:
    w = Scene()
    populate(w)
    w.backfill()
    w.settle()
    assert w.differences() == []
    assert w.backfill().counters.counts["applied"] == 0


def test_where_all_is_right_nothing_is_written_and_little_is_read() -> None:
    w = settled()
    refresher = w.refresher()
    w.store.calls.clear()
    stored = w.store.items("main"), w.store.items("ledger")
    refresher.refresh_scanned(w.scanned(), deadline())
    assert (w.store.items("main"), w.store.items("ledger")) == stored
    assert w.store.calls["transact"] == w.store.calls["update"] == w.store.calls["delete"] == 0
    assert w.store.calls["get_many"] <= 8
    assert w.store.calls["get"] == 0


def test_nothing_that_is_counted_is_published_by_a_scan_but_what_is_taken_back_is() -> None:
    """Each group is published once, at the end; but what an entry owes would be forgotten by then."""
    w = Scene(COUNT)
    w.put("POST#1", "METADATA")
    w.put("POST#2", "METADATA")
    w.like(1, 1, postId="1")
    w.settle()
    w.remove("USER#1", "LIKE#1")
    w.like(2, 2)
    w.lose()
    refresher = w.refresher()
    refresher.refresh_scanned(w.scanned(), deadline())
    assert [w.post(1), w.post(2)] == [{"likeCount": 1}, {"likeCount": 0}]
    refresher.sources({ItemKey("main", "USER#1", "LIKE#1"): None}, deadline())
    assert [w.post(1), w.post(2)] == [{"likeCount": 0}, {"likeCount": 0}]


# One item, in each role that it can have.

Damage = Callable[[Scene], tuple[ItemKey, Sequence[Image]]]
DAMAGES: dict[str, Damage] = {}
META = ItemKey("main", "POST#1", "METADATA")


def damage(role: Damage) -> Damage:
    DAMAGES[role.__name__] = role
    return role


@damage
def a_source_appeared(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.put("USER#d", "LIKE#1")
    return ItemKey("main", "USER#d", "LIKE#1"), []


@damage
def a_source_changed(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.put("POST#1", "COMMENT#0", userId="a", GSI2PK="AUTHOR#a", GSI2SK="0", text="edited", at=70, userName="A")
    return ItemKey("main", "POST#1", "COMMENT#0"), []


@damage
def a_source_is_gone(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.remove("POST#1", "COMMENT#2")
    return ItemKey("main", "POST#1", "COMMENT#2"), []


@damage
def a_claim_moved(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.put("USER#b", "PROFILE", name="B", email="a-new@example.com")
    return ItemKey("main", "USER#b", "PROFILE"), []


@damage
def a_copied_source_changed(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.put("USER#a", "POST#1", title="edited", status="draft", tags=["red", "1"])
    return ItemKey("main", "USER#a", "POST#1"), []


@damage
def a_copied_source_is_gone(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    """Only what it was tells where its copy stands."""
    key = ItemKey("main", "USER#a", "POST#2")
    was = w.store.get(key)
    w.store.remove(key)
    return key, [was] if was else []


@damage
def a_copy_was_overwritten(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.store.put("main", changed(w.store.get(META) or {}, title="overwritten"))
    return META, []


@damage
def a_copy_was_replaced(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    """Without a guard only what it was tells whose copy it is."""
    was = w.store.get(META) or {}
    w.put("POST#1", "METADATA", type="PostMeta", title="replaced")
    return META, [was]


@damage
def a_copy_was_deleted(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    was = w.store.get(META) or {}
    w.store.remove(META)
    return META, [was]


@damage
def a_copy_outlived_its_source(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.remove("USER#a", "POST#3")
    return ItemKey("main", "POST#3", "METADATA"), []


@damage
def a_target_was_overwritten(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.store.put("main", changed(w.store.get(META) or {}, likeCount=99, recent=[]))
    return META, []


@damage
def a_target_has_a_guard_from_the_future(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    image = w.store.get(META) or {}
    text = image["~likes"]["S"]
    guard = {"S": f"{text[:8]}z{text[9:]}"}
    w.store.put("main", {**changed(image, likeCount=99), "~likes": guard})
    return META, []


@damage
def a_derived_item_was_deleted(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.remove("TAG#red", "STATS")
    return ItemKey("main", "TAG#red", "STATS"), []


@damage
def a_claimed_copy_was_deleted(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.remove("EMAIL#a@example.com", "OWNER")
    return ItemKey("main", "EMAIL#a@example.com", "OWNER"), []


@damage
def a_claimed_copy_was_overwritten(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.put("EMAIL#a@example.com", "OWNER", type="Email", userId="nobody")
    return ItemKey("main", "EMAIL#a@example.com", "OWNER"), []


@damage
def an_index_attribute_was_overwritten(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.store.put("main", changed(w.store.get(META) or {}, GSI1SK="elsewhere"))
    return META, []


@damage
def a_child_lost_what_its_parent_gave(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    key = ItemKey("main", "POST#1", "COMMENT#1")
    w.store.put("main", without(w.store.get(key) or {}, "userName"))
    return key, []


@damage
def a_child_changed_its_parent(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    key = ItemKey("main", "POST#1", "COMMENT#1")
    w.store.put("main", changed(w.store.get(key) or {}, userId="b", GSI2PK="AUTHOR#b"))
    return key, []


@damage
def a_parent_changed(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.put("USER#a", "PROFILE", name="Renamed", email="a@example.com")
    return ItemKey("main", "USER#a", "PROFILE"), []


@damage
def a_parent_is_gone(w: Scene) -> tuple[ItemKey, Sequence[Image]]:
    w.remove("USER#a", "PROFILE")
    return ItemKey("main", "USER#a", "PROFILE"), []


@pytest.mark.parametrize("role", DAMAGES)
def test_an_item_is_refreshed_in_every_role(role: str) -> None:
    """Its record is lost; afterwards all is right, and stays so when the stream tells of what was written."""
    w = settled()
    key, known = DAMAGES[role](w)
    w.lose()
    assert w.differences()
    refresher = w.refresh(key, *known)
    assert (refresher.failed, refresher.rejected) == ({}, {})
    w.settle()
    assert w.differences() == []
    stored = w.store.items("main")
    w.refresh(key, *known)
    w.settle()
    guards = [[without(image, "~author") for image in images] for images in (stored, w.store.items("main"))]
    assert guards[0] == guards[1], "once more changes nothing, but a push that is renewed"


@pytest.mark.parametrize("role", DAMAGES)
def test_a_refresh_that_dies_anywhere_may_be_repeated(role: str) -> None:
    for writes in range(100):
        w = settled()
        key, known = DAMAGES[role](w)
        w.lose()
        if not dies(w, writes, partial(w.refresh, key, *known)):
            assert writes > 0
            return
        w.refresh(key, *known)
        w.settle()
        assert w.differences() == [], writes
    raise AssertionError("it never ends")


def test_a_group_that_counts_claims_it_has_lost_keeps_nobody_waiting() -> None:
    """Where the copy is gone, too, there is nothing to delete. `verify` finds such a group; a recount mends it."""
    w = settled()
    member = next(
        item for item in w.store.items("ledger") if "a@example.com" in item["pk"]["S"] and item["pk"]["S"][0] == "M"
    )
    w.store.remove(ItemKey("ledger", member["pk"]["S"], member["sk"]["S"]))
    target = ItemKey("main", "EMAIL#a@example.com", "OWNER")
    for _ in range(2):  # the copy goes, as no claim is left
        w.remove(target.partition, target.sort or "") if w.store.get(target) is not None else None
        refresher = w.refresh(target)
        assert (refresher.failed, refresher.rejected) == ({}, {})
        assert w.store.get(target) is None

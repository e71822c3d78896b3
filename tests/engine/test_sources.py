"""Rules with several sources: each variant has its own conditions, and all of them contribute to the same groups."""

from __future__ import annotations

from typing import Any

import pytest

import projections
from projections.engine.store import ItemKey
from projections.language.keys import encode_key
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import plain_item
from projections.local.items import wire_item
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Oracle
from projections.testing.scenario import Scenario

HEAD = """
tables:
  media: {key: [PK, SK], ttl: expiresAt}
  press: {key: [PK, SK], ttl: expiresAt}
entities:
  Author: {table: media, key: {PK: "AUTHOR#{author}", SK: PROFILE}}
  Video: {table: media, key: {PK: "WORK#{workId}", SK: W}, expires: true}
  Article: {table: press, key: {PK: "WORK#{workId}", SK: W}}
projections:
"""
WORKS = """
  works:
    from:
      Video: {bind: {author: "{uploader}"}, where: {hidden: [false, {exists: false}]}}
      Article: {each: {author: authors}, where: {status: [published]}}
    expired: EXPIRED
    aggregate: {into: Author, set: {works: count, views: sum(views), best: max(number(views))}}
"""
PICKED = """
  newest:
    from: [Video, Article]
    expired: retract
    top: {into: Author, as: newest, by: at, order: ORDER, limit: 3, attributes: [title]}
"""


def scenario(rules: str, expired: str = "retract", order: str = "desc") -> Scenario:
    text = HEAD + rules.replace("EXPIRED", expired).replace("ORDER", order)
    return Scenario(projections.loads(text)).given({"PK": "AUTHOR#ann", "SK": "PROFILE"}, table="media")


def video(number: int = 1, **attributes: Any) -> dict[str, Any]:
    return {"PK": f"WORK#{number}", "SK": "W", "uploader": "ann", "author": "ann", **attributes}


def article(number: int = 1, **attributes: Any) -> dict[str, Any]:
    return {
        "PK": f"WORK#{number}",
        "SK": "W",
        "authors": ["ann", "ben"],
        "status": "published",
        "author": "ann",
        **attributes,
    }


def author(world: Scenario) -> dict[str, Any]:
    item = world.item({"PK": "AUTHOR#ann", "SK": "PROFILE"}, table="media") or {}
    return {name: value for name, value in item.items() if name not in ("PK", "SK")}


def test_items_with_the_same_key_in_two_tables_are_two_sources() -> None:
    world = scenario(WORKS)
    world.put(video(views=3), table="media").put(article(views=4), table="press")
    assert author(world) == {"works": 2, "views": 7, "best": 4}
    entries = {item["pk"]["S"] for item in world.store.items("ledger") if item["pk"]["S"].startswith("E|")}
    assert len(entries) == 2
    world.delete(article(), table="press")
    assert author(world) == {"works": 1, "views": 3, "best": 3}


def test_each_source_has_its_own_condition_and_elements() -> None:
    world = scenario(WORKS)
    world.put(video(1, views=3, hidden=True, status="published"), table="media")
    world.put(video(2, views=5, authors=["ann", "cat"]), table="media")
    world.put(article(3, views=4, hidden=True), table="press")
    world.put(article(4, views=9, status="draft"), table="press")
    assert author(world) == {"works": 2, "views": 9, "best": 5}


def test_expired_applies_to_the_items_of_all_sources() -> None:
    world = scenario(WORKS, "keep")
    world.put(video(views=3), table="media").put(article(views=4), table="press")
    world.settle()
    world.expire(video(), table="media").expire(article(), table="press")
    assert author(world) == {"works": 2, "views": 7, "best": 4}
    expired = [("works", wired(video(views=3)), "media"), ("works", wired(article(views=4)), "press")]
    assert differences(world, expired) == []


def wired(item: dict[str, Any]) -> dict[str, Any]:
    return dict(wire_item(item, "item"))


def differences(world: Scenario, settled: Any = ()) -> list[Any]:
    items = {table: world.store.items(table) for table in world.program.tables}
    return Oracle(world.program.document).compare(items, settled)


@pytest.mark.parametrize(
    ("order", "titles"), [("desc", ["Press 2", "Press 1", "Media 9"]), ("asc", ["Media 1", "Media 9", "Press 1"])]
)
def test_ties_are_broken_by_the_table_first(order: str, titles: list[str]) -> None:
    world = scenario(PICKED, order=order)
    for number in (9, 1):
        world.put(video(number, at=5, title=f"Media {number}"), table="media")
    for number in (1, 2):
        world.put(article(number, at=5, title=f"Press {number}"), table="press")
    assert [one["title"] for one in author(world)["newest"]] == titles
    assert differences(world) == []


# --- operations ---


def filled(rules: str = WORKS) -> tuple[MemoryStore, projections.RuleSet]:
    """Tables with items that no function has processed."""
    text = HEAD + rules.replace("EXPIRED", "retract").replace("ORDER", "desc")
    rule_set = projections.loads(text)
    store = MemoryStore({**rule_set.program.tables, "ledger": LEDGER_SCHEMA})
    store.put("media", wired({"PK": "AUTHOR#ann", "SK": "PROFILE"}))
    store.put("media", wired(video(views=3, title="Tea", at=1)))
    store.put("press", wired(article(views=4, title="Salt", at=2)))
    return store, rule_set


def plain_author(store: MemoryStore) -> dict[str, Any]:
    item = store.get(ItemKey("media", "AUTHOR#ann", "PROFILE"))
    assert item is not None
    return {n: value for n, value in plain_item(item).items() if n not in ("PK", "SK") and not n.startswith("~")}


@pytest.mark.parametrize("source", ["Video", "Article"])
def test_a_fill_scans_the_tables_of_all_sources_and_verify_finds_a_lost_entry_of_any(source: str) -> None:
    store, rules = filled()
    assert projections.apply(store, rules).ok
    assert plain_author(store) == {"works": 2, "views": 7, "best": 4}
    table = {"Video": "media", "Article": "press"}[source]
    key = encode_key(ItemKey(table, "WORK#1", "W"))
    lost = [item for item in store.items("ledger") if item["pk"]["S"] == f"E|{key}"]
    assert len(lost) == 1
    store.remove(ItemKey("ledger", lost[0]["pk"]["S"], lost[0]["sk"]["S"]))
    found = projections.verify(store, rules, only=["works"], patience=0)
    assert key in {drift.source for drift in found.drifts}
    assert projections.verify(store, rules, repair=True, patience=0).ok
    assert projections.verify(store, rules).ok
    assert plain_author(store) == {"works": 2, "views": 7, "best": 4}


def test_removing_a_source_retracts_what_its_items_contributed() -> None:
    store, rules = filled()
    projections.apply(store, rules)
    text = HEAD + WORKS.replace("EXPIRED", "retract").replace(
        "      Article: {each: {author: authors}, where: {status: [published]}}\n", ""
    )
    fewer = projections.loads(text)
    assert projections.apply(store, fewer).ok
    assert plain_author(store) == {"works": 1, "views": 3, "best": 3}
    assert projections.verify(store, fewer).ok


# --- the language ---


def fingerprint(form: str, rest: str = "", *, kind: str = "aggregate: {into: Author, set: {works: count}}") -> str:
    text = HEAD.replace(", expires: true", "") + f"  works: {{from: {form}, {rest}{kind}}}\n"
    return Program.from_document(projections.loads(text).document).rules["works"].fingerprint


@pytest.mark.parametrize("form", ["[Video]", "{Video: {}}"])
def test_one_source_in_a_list_or_mapping_is_the_same_rule(form: str) -> None:
    assert fingerprint(form) == fingerprint("Video")

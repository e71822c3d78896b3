"""A small table under rules of every kind, ways to damage it, and a verification of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from projections.cli.verify import difference
from projections.engine.registry import Registry
from projections.engine.store import Image, ItemKey, Store
from projections.operations.verify.drift import Drift
from projections.operations.verify.repair import verify_and_repair
from projections.operations.verify.scanning import Scratch
from projections.operations.verify.verification import Verification
from projections.operations.verify.verify_scope import Scope
from projections.testing.oracle import Oracle
from tests.engine.world import World, wires

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}, ttl: expiresAt}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  ByName: {key: {PK: "NAME#{name}", SK: USER}}
  Seen: {key: {PK: "SEEN#{userId}#{postId}", SK: X}}
  Visit: {key: {PK: "VISIT#{visitId}", SK: V}, expires: true}
"""
TAG = '  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}\n'
RULES = {
    "likes": "{from: Like, aggregate: {into: Post, set: {likeCount: count, best: max(number(stars)), mean: avg(stars)}}}",
    "sharded": "{from: Like, aggregate: {into: Post, shards: 4, set: {starSum: sum(stars)}}}",
    "newest": "{from: Like, top: {into: Post, as: newest, by: stars, limit: 2, attributes: [userId, stars]}}",
    "tags": "{from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}",
    "tagUsers": "{from: User, each: {tag: tags}, aggregate: {into: Tag, set: {users: count}}}",
    "names": "{from: User, copy: {into: ByName, attributes: [userId, city]}}",
    "seen": "{from: Like, copy: {into: Seen, attributes: [stars]}}",
    "listed": '{from: Post, index: {GSI1PK: "BY#{owner}", GSI1SK: "{postId}"}}',
    "author": '{from: User, embed: {into: Like, match: {userId: "{userId}"}, attributes: {userCity: city}}}',
    "visits": "{from: Visit, expired: keep, aggregate: {into: Post, set: {visits: count, longest: max(number(seconds))}}}",
}


def rules_text(names: Collection[str] = (), held: Collection[str] = ()) -> str:
    """The rules as a file has them."""
    chosen = {name: text for name, text in RULES.items() if not names or name in names}
    texts = {name: f"{{hold: true, {text[1:]}" if name in held else text for name, text in chosen.items()}
    return "".join(f"  {name}: {text}\n" for name, text in texts.items())


def world_of(names: Collection[str] = (), held: Collection[str] = (), **settings: Any) -> World:
    text = rules_text(names, held)
    return World(text, HEAD + (TAG if "into: Tag" in text else "") + "projections:\n", **settings)


def filled(names: Collection[str] = (), held: Collection[str] = (), **settings: Any) -> World:
    """A table that came to be under the rules: everything is right."""
    world = world_of(names, held, **settings)
    fill(world)
    world.settle()
    if "visits" in world.program.rules:
        world.remove("VISIT#4", "V", by_ttl=True)
        world.settle()
    return world


def fill(world: World) -> None:
    for post in range(4):
        world.put(f"POST#{post}", "METADATA", owner=f"u{post % 2}", tags=["a", f"t{post}"])
    for user in range(6):
        world.put(f"USER#{user}", "PROFILE", name=f"n{user // 2}", city=f"c{user}", tags=["a"])
        for post in range(user % 5):
            world.like(user, post, stars=user * 10 + post)
    for visit in range(5):
        world.put(f"VISIT#{visit}", "V", postId="1", seconds=visit)


# Damage without stream records


def lost(world: World, change: Callable[[], Any]) -> None:
    """A change by the application whose records are lost."""
    world.settle()
    change()
    world.position = len(world.store.stream("main"))


def edit(world: World, partition: str, sort: str, remove: Collection[str] = (), **attributes: Any) -> None:
    """Change attributes of an item without a stream record."""
    key = ItemKey("main", partition, sort)
    image = {name: value for name, value in (world.store.get(key) or {}).items() if name not in remove}
    world.store.seed("main", {**world.program.tables["main"].wire(key), **image, **wires(attributes)})


def ledger_items(world: World, prefix: str) -> list[Image]:
    return [item for item in world.store.items("ledger") if item["pk"]["S"].startswith(prefix)]


def ledger_edit(world: World, prefix: str, sort: str = "", **attributes: Any) -> None:
    """Changes attributes of the one item of the ledger whose key begins like this."""
    (item,) = [item for item in ledger_items(world, prefix) if item["sk"]["S"].startswith(sort)]
    world.store.put("ledger", {**item, **attributes})


def ledger_lose(world: World, prefix: str, sort: str = "") -> None:
    """Deletes items of the ledger whose keys begin like this."""
    for item in ledger_items(world, prefix):
        if item["sk"]["S"].startswith(sort):
            world.store.remove(ItemKey("ledger", item["pk"]["S"], item["sk"]["S"]))


# Verification


@contextmanager
def verified(
    world: World,
    store: Store | None = None,
    rules: Collection[str] = (),
    begin: Any = Verification.all,
    **settings: Any,
) -> Iterator[Verification]:
    """A verification, as it ended."""
    store = store or world.store
    registry = Registry(world.program, store)
    snapshot = registry.read()
    scope = Scope(registry.program(snapshot) if snapshot is not None else world.program, snapshot, rules)
    with Scratch() as scratch:
        one = Verification(scope, store, scratch, **{"threads": 1, "patience": 0.0, "page": 7, **settings})
        begin(one)
        yield one


def drifts(world: World, store: Store | None = None, rules: Collection[str] = (), **settings: Any) -> list[Drift]:
    """All drift; nothing may be busy."""
    with verified(world, store, rules, **settings) as one:
        assert list(one.busy()) == []
        return list(one.drifts())


def assert_sides_differ(found: Collection[Drift]) -> None:
    """No printed line states two equal things: `is X, should be X`, or the same value on all sides."""
    for drift in found:
        text = difference(drift)
        sides = re.fullmatch(r"is (.*), should be (.*)", text) or re.match(r"item: (.*), group: (.*?)[,;(]", text)
        sides = sides or re.match(r"group: (.*), entries: (.*?)[,;(]", text)
        assert sides is None or len(set(sides.groups())) > 1 or "should be" in text.partition(sides[0])[2], text
        assert "is absent, should be absent" not in text


Brief = tuple[str, str, str, str | None, str, str, str | None]
"""Drift as tests write it down: kind, rule, target, attribute, actual and expected as JSON, source."""


def of(
    kind: str,
    rule: str,
    target: str,
    attribute: str | None = None,
    actual: Any = None,
    expected: Any = None,
    source: str | None = None,
) -> Brief:
    said, wanted = (json.dumps(value, sort_keys=True) for value in (actual, expected))
    return kind, rule, target.removeprefix("main|"), attribute, said, wanted, source and source.removeprefix("main|")


def brief(found: Collection[Drift]) -> set[Brief]:
    return {of(d.kind, d.rule, d.target, d.attribute, d.actual, d.expected, d.source) for d in found}


def repaired(
    world: World, store: Store | None = None, *, deletes: bool = True, rules: Collection[str] = ()
) -> list[Drift]:
    """Verifies, repairs, and verifies again; gives what is left."""
    settings: dict[str, Any] = {"allow_delete": deletes, "only": rules, "patience": 0.0, "segments": 1}
    with verify_and_repair(world.program, store or world.store, repair=True, **settings) as done:
        if done.repair is not None:
            assert (done.repair.failed, done.repair.rejected) == ({}, {})
        return list(done.verification.drifts())


def assert_right(world: World) -> None:
    settled = [
        (rule.name, record["dynamodb"]["OldImage"])
        for record in world.store.stream("main")
        if "userIdentity" in record
        for rule in world.program.rules.values()
        if rule.expired == "keep"
    ]
    assert Oracle(world.program.document).compare({"main": world.store.items("main")}, settled) == []

"""Verification: every kind of drift is found with all that belongs to it, repaired, and then nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from projections.engine.guards import Guards, Identity
from projections.engine.store import ItemKey
from projections.operations.verify.repair import Repair, verify_and_repair
from tests.engine.world import World
from tests.operations.backfill.stage import Stage
from tests.operations.verify_scene import (
    Brief,
    assert_right,
    assert_sides_differ,
    brief,
    drifts,
    edit,
    filled,
    ledger_edit,
    ledger_items,
    ledger_lose,
    lost,
    of,
    repaired,
    verified,
)

POST, LIKE, USER = "POST#1|METADATA", "USER#3|LIKE#1", "USER#3|PROFILE"
"""Three users like this post, with 21, 31 and 41 stars."""

FIRST = "1700000000.000000000000001"

Damage = Callable[[World], Any]
PLANTS: dict[str, tuple[Damage, set[Brief]]] = {}
"""By what is wrong: how it came to be so, and the drift that is to be found."""


def plant(name: str, *found: Brief) -> Callable[[Damage], Damage]:
    def take(damage: Damage) -> Damage:
        PLANTS[name] = damage, set(found)
        return damage

    return take


def in_likes(stars: int) -> dict[str, Any]:
    """Return the contributions of a like under one rule."""
    return {"contributions": 1, "mean": stars, "mean (number of values)": 1, "best": [stars]}


def picked(stars: int, hashed: str) -> dict[str, Any]:
    return {"value": stars, "hash": hashed}


def claim(hashed: str) -> dict[str, Any]:
    return {"contributions": 1, "claims": [{"hash": hashed}]}


NEWEST = [{"userId": "4", "stars": 41}, {"userId": "3", "stars": 31}]
FENCE = "2025-01-01T00:00:00.000/0000000000000000000100000000000000000011"
H31, H41, H91 = "a3f55a569083809d", "50e7e5536f3707e1", "af0ea0814ecc04aa"


# Entries: what items contribute, where records were lost


@plant(
    "a like without a stream record",
    of("entry missing", "likes", POST, None, None, in_likes(91), "USER#9|LIKE#1"),
    of("entry missing", "sharded", POST, None, None, {"contributions": 1, "starSum": 91}, "USER#9|LIKE#1"),
    of(
        "entry missing", "newest", POST, None, None, {"contributions": 1, "members": [picked(91, H91)]}, "USER#9|LIKE#1"
    ),
    of("copy missing", "seen", "SEEN#9#1|X", None, None, {"stars": 91}, "USER#9|LIKE#1"),
)
def _(world: World) -> None:
    lost(world, lambda: world.like(9, 1, stars=91))


@plant(
    "an unlike without a stream record",
    of("entry extra", "likes", POST, None, in_likes(31), None, LIKE),
    of("entry extra", "sharded", POST, None, {"contributions": 1, "starSum": 31}, None, LIKE),
    of("entry extra", "newest", POST, None, {"contributions": 1, "members": [picked(31, H31)]}, None, LIKE),
    of("copy extra", "seen", "SEEN#3#1|X", None, {"stars": 31}, None, LIKE),
)
def _(world: World) -> None:
    lost(world, lambda: world.remove("USER#3", "LIKE#1"))


# The ledger itself


@plant(
    "a damaged entry",
    of(
        "entry stale",
        "sharded",
        POST,
        None,
        {"contributions": 2, "starSum": 7},
        {"contributions": 1, "starSum": 31},
        LIKE,
    ),
)
def _(world: World) -> None:
    (entry,) = ledger_items(world, f"E|main|{LIKE}")
    text = entry["contributions"]["S"].replace('{"=starSum":"31","n":1}', '{"=starSum":"7","n":2}')
    ledger_edit(world, f"E|main|{LIKE}", contributions={"S": text})


@plant(
    "an entry that is lost",
    of("entry missing", "likes", POST, None, None, in_likes(31), LIKE),
    of("entry missing", "sharded", POST, None, None, {"contributions": 1, "starSum": 31}, LIKE),
    of("entry missing", "newest", POST, None, None, {"contributions": 1, "members": [picked(31, H31)]}, LIKE),
)
def _(world: World) -> None:
    ledger_lose(world, f"E|main|{LIKE}")


@plant(
    "a total of a group",
    of("group", "likes", POST, "contributions", 12, 3),
    of("value", "likes", POST, "likeCount", 3, None),
)
def _(world: World) -> None:
    ledger_edit(world, "G|likes.1|main|POST#1", n={"N": "12"})


@plant(
    "a group that is lost",
    of("group", "likes", POST, "contributions", 0, 3),
    of("group", "likes", POST, "mean", 0, 93),
    of("group", "likes", POST, "mean (number of values)", 0, 3),
    of("value", "likes", POST, "likeCount", 3, None),
    of("value", "likes", POST, "mean", 31, None),
    of("guard", "likes", POST, "~likes", {"at": FIRST}, None),
)
def _(world: World) -> None:
    ledger_lose(world, "G|likes.1|main|POST#1")


@plant(
    "a shard of a group",
    of("group", "sharded", POST, "starSum", 93.5, 93),
    of("value", "sharded", POST, "starSum", 93, None),
)
def _(world: World) -> None:
    for part in ledger_items(world, "G|sharded.1|main|POST#1"):
        if "=starSum" in part:
            world.store.put("ledger", {**part, "=starSum": {"N": "93.5"}})


@plant("a group that holds text", of("group", "visits", POST, "contributions", "x", 5))
def _(world: World) -> None:
    ledger_edit(world, "G|visits.1|main|POST#1", "00", n={"S": "x"})


@plant(
    "a member that is lost",
    of("member missing", "likes", POST, "best", None, 41, "USER#4|LIKE#1"),
    of("value", "likes", POST, "best", 41, None),
)
def _(world: World) -> None:
    ledger_lose(world, "M|likes.1|main|POST#1", "best|n250241")


@plant(
    "a member without an entry",
    of("member extra", "likes", POST, "best", 77, None, "USER#7|LIKE#1"),
    of("value", "likes", POST, "best", 41, None),
)
def _(world: World) -> None:
    member = ledger_items(world, "M|likes.1|main|POST#1")[0]
    key = {"sk": {"S": "best|n250277!main|USER#7|LIKE#1"}, "s": {"S": "main|USER#7|LIKE#1"}}
    world.store.put("ledger", {**member, **key, "o": {"S": "n250277!"}, "v": {"N": "77"}})


@plant(
    "a member with other attributes",
    of(
        "member stale",
        "newest",
        POST,
        "members",
        picked(41, "0fad5349e36083aa"),
        picked(41, "50e7e5536f3707e1"),
        "USER#4|LIKE#1",
    ),
    of("value", "newest", POST, "newest", NEWEST, None),
)
def _(world: World) -> None:
    ledger_edit(world, "M|newest.1|main|POST#1", "pick|n250241", a={"M": {"userId": {"S": "44"}}})


# What is published


@plant("a published value", of("value", "likes", POST, "likeCount", 99, 3))
def _(world: World) -> None:
    edit(world, "POST#1", "METADATA", likeCount=99)


@plant(
    "a guard from the future", of("guard", "likes", POST, "~likes", {"at": "1700000000.000000000000099"}, {"at": FIRST})
)
def _(world: World) -> None:
    edit_guard(world, "POST#1", "METADATA", "~likes", at="1700000000.000000000000099", n=3)


@plant("a guard of another ledger", of("guard", "seen", "SEEN#3#1|X", "~seen", "invalid", {"by": f"main|{LIKE}"}, LIKE))
def _(world: World) -> None:
    key = ItemKey("main", "SEEN#3#1", "X")
    foreign = Guards(world.program, Identity("else", (b"another",))).stamp("seen", key, "2999/1", by=f"main|{LIKE}")
    world.store.seed("main", {**(world.store.get(key) or {}), "~seen": foreign})


@plant("an attribute that is not a guard", of("guard", "likes", POST, "~likes", "invalid", {"at": FIRST}))
def _(world: World) -> None:
    edit(world, "POST#1", "METADATA", **{"~likes": "by hand"})


@plant("a derived item that is gone", of("target missing", "tags", "TAG#t1|STATS", None, None, {"posts": 1}))
def _(world: World) -> None:
    lost(world, lambda: world.remove("TAG#t1", "STATS"))


@plant(
    "a derived item of nothing",
    of("value", "tags", "TAG#zzz|STATS", "posts", 3, 0),
    of("value", "tagUsers", "TAG#zzz|STATS", "users", None, 0),
    of("target extra", "tags", "TAG#zzz|STATS", None, {"posts": 3}),
    of("target extra", "tagUsers", "TAG#zzz|STATS", None, {}),
    of("guard", "tags", "TAG#zzz|STATS", "~tags", {"at": FIRST}, {"at": "1700000000.000000000000000"}),
)
def _(world: World) -> None:
    edit(world, "TAG#zzz", "STATS", posts=3)
    edit_guard(world, "TAG#zzz", "STATS", "~tags", at=FIRST, n=3, created=True)


@plant(
    "an item of the application under the key of a derived one",
    of("value", "tags", "TAG#zzz|STATS", "posts", 3, 0),
    of("value", "tagUsers", "TAG#zzz|STATS", "users", None, 0),
)
def _(world: World) -> None:
    edit(world, "TAG#zzz", "STATS", posts=3)


# Copies


@plant("a copy that is gone", of("copy missing", "seen", "SEEN#3#1|X", None, None, {"stars": 31}, LIKE))
def _(world: World) -> None:
    lost(world, lambda: world.remove("SEEN#3#1", "X"))


@plant("a copy of nothing", of("copy extra", "seen", "SEEN#8#8|X", None, {"stars": 8}, None, "USER#8|LIKE#8"))
def _(world: World) -> None:
    edit(world, "SEEN#8#8", "X", stars=8)
    edit_guard(world, "SEEN#8#8", "X", "~seen", at="2026/1", by="main|USER#8|LIKE#8", created=True)


@plant("an adopted copy of nothing", of("copy extra", "seen", "SEEN#8#8|X", None, {"stars": 8}, None, "USER#8|LIKE#8"))
def _(world: World) -> None:
    edit(world, "SEEN#8#8", "X", stars=8, own=True)
    edit_guard(world, "SEEN#8#8", "X", "~seen", at="2026/1", by="main|USER#8|LIKE#8")


@plant(
    "a copy that names another source",
    of("guard", "seen", "SEEN#3#1|X", "~seen", {"by": "main|USER#4|LIKE#1"}, {"by": f"main|{LIKE}"}, LIKE),
)
def _(world: World) -> None:
    edit_guard(world, "SEEN#3#1", "X", "~seen", at="2026/1", by="main|USER#4|LIKE#1", created=True)


@plant("a copy without a guard", of("guard", "seen", "SEEN#3#1|X", "~seen", None, {"by": f"main|{LIKE}"}, LIKE))
def _(world: World) -> None:
    edit(world, "SEEN#3#1", "X", remove=["~seen"])


@plant(
    "a claimed copy that is gone",
    of("target missing", "names", "NAME#n1|USER", None, None, {"userId": "2", "city": "c2"}, "USER#2|PROFILE"),
)
def _(world: World) -> None:
    lost(world, lambda: world.remove("NAME#n1", "USER"))


@plant(
    "a claimed copy of the wrong source",
    of("value", "names", "NAME#n1|USER", "userId", "3", "2", "USER#2|PROFILE"),
    of("value", "names", "NAME#n1|USER", "city", "c3", "c2", "USER#2|PROFILE"),
)
def _(world: World) -> None:
    edit(world, "NAME#n1", "USER", userId="3", city="c3")


# Index attributes, children


@plant(
    "index attributes",
    of("index", "listed", POST, "GSI1PK", "BY#u7", "BY#u1", POST),
    of("index", "listed", POST, "GSI1SK", None, "1", POST),
)
def _(world: World) -> None:
    edit(world, "POST#1", "METADATA", remove=["GSI1SK"], GSI1PK="BY#u7")


@plant("an embedded attribute", of("embed", "author", LIKE, "userCity", "x", "c3", USER))
def _(world: World) -> None:
    edit(world, "USER#3", "LIKE#1", userCity="x")


@plant(
    "a parent whose change has no stream record",
    of("embed", "author", "USER#3|LIKE#0", "userCity", "c3", "moved", USER),
    of("embed", "author", "USER#3|LIKE#1", "userCity", "c3", "moved", USER),
    of("embed", "author", "USER#3|LIKE#2", "userCity", "c3", "moved", USER),
    of("entry stale", "names", "NAME#n1|USER", None, claim("438a7ad266dc2e1f"), claim("70a9a83cac62e03d"), USER),
)
def _(world: World) -> None:
    edit(world, "USER#3", "PROFILE", city="moved")


@plant("a child's guard from the future", of("guard", "author", LIKE, "~author", {"at": "2999/1"}, {"at": FENCE}, USER))
def _(world: World) -> None:
    edit_guard(world, "USER#3", "LIKE#1", "~author", at="2999/1", by=f"main|{USER}")


def edit_guard(world: World, partition: str, sort: str, name: str, *, created: bool = False, **fields: Any) -> None:
    """Gives an item a valid guard, and the mark of items that a rule created if it is to be one."""
    key, guards = ItemKey("main", partition, sort), world.guards()
    mark = {guards.mark: guards.mark_of(key)} if created else {}
    stamp = guards.stamp if "by" in fields else guards.stamp_group
    world.store.seed("main", {**(world.store.get(key) or {}), **mark, name: stamp(guards.rule(name), key, **fields)})


@pytest.mark.parametrize("name", PLANTS)
def test_drift_is_found_and_repaired(name: str) -> None:
    world = filled()
    assert drifts(world) == []
    damage, expected = PLANTS[name]
    damage(world)
    before = world.store.items("main"), world.store.items("ledger")
    found = drifts(world)
    assert brief(found) == expected
    assert_sides_differ(found)
    assert (world.store.items("main"), world.store.items("ledger")) == before, "verification only reads"
    assert repaired(world) == []
    world.settle()
    assert drifts(world) == []
    assert_right(world)


DAMAGED_LEDGER = [
    "a total of a group",
    "a group that is lost",
    "a damaged entry",
    "an entry that is lost",
    "a member without an entry",
]


@pytest.mark.parametrize("name", DAMAGED_LEDGER)
def test_a_damaged_ledger_never_changes_an_item_that_is_right(name: str) -> None:
    """Which side is wrong is said, and a repair writes the ledger."""
    world = filled()
    items = {item["PK"]["S"] + item["SK"]["S"]: item for item in world.store.items("main")}
    PLANTS[name][0](world)
    for drift in drifts(world):
        assert drift.wrong in (("group",), ("entry",)), drift
        if drift.kind == "value":
            assert (drift.expected, "source" in drift.sides) == (None, False)
    assert repaired(world) == []
    for item in world.store.items("main"):
        before = items[item["PK"]["S"] + item["SK"]["S"]]
        assert {n: v for n, v in item.items() if n[0] != "~"} == {n: v for n, v in before.items() if n[0] != "~"}


@pytest.mark.parametrize(("before", "after"), [("Post", "Hour"), ("Day", "Hour"), ("Hour", "Post")])
def test_settled_amounts_under_targets_of_another_version_are_not_drift(before: str, after: str) -> None:
    head = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Visit: {key: {PK: "VISIT#{visit}", SK: V}, expires: true}
  Post: {key: {PK: "POST#{day}", SK: METADATA}}
  Day: {key: {PK: "DAY#{day}", SK: S}, derived: true}
  Hour: {key: {PK: "HOUR#{day}", SK: S}, derived: true}
projections:
  days: {from: Visit, expired: retract, aggregate: {into: Day, set: {n: count}}}
  hours: {from: Visit, expired: retract, aggregate: {into: Hour, set: {n: count}}}
"""
    views = "  views: {from: Visit, expired: keep, aggregate: {into: Post, set: {views: count}}}\n"
    stage = Stage(head + views.replace("Post", before))
    stage.put("POST#d", "METADATA")
    for visit in ("VISIT#1", "VISIT#2"):
        stage.put(visit, "V", day="d")
    stage.settle()
    stage.remove("VISIT#1", "V", by_ttl=True)
    stage.settle()
    moved = stage.under(head + views.replace("Post", after))
    moved.filled()
    moved.settle()
    assert drifts(moved) == []


# Items of the application


OWN: dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]] = {
    "a derived item": ("TAG#zzz", "STATS", {"posts": 3}, {"posts": 0, "users": 0}),
    "a derived item with a note": ("TAG#zzz", "STATS", {"note": "own"}, {"note": "own", "posts": 0, "users": 0}),
    "a copy": ("SEEN#8#8", "X", {"stars": 8}, {"stars": 8}),
    "a claimed copy": ("NAME#zzz", "USER", {"userId": "7"}, {"userId": "7"}),
}
"""Items that the application put under keys of items that rules create, and what is on them after a repair."""


@pytest.mark.parametrize("name", OWN)
def test_repair_never_deletes_an_item_of_the_application(name: str) -> None:
    world = filled()
    partition, sort, attributes, after = OWN[name]
    edit(world, partition, sort, **attributes)
    assert repaired(world) == []
    world.settle()
    assert world.item(partition, sort) == {"PK": partition, "SK": sort, **after}
    assert drifts(world) == []


@pytest.mark.parametrize(
    ("at", "guard"),
    [
        (("TAG#zzz", "STATS"), {"at": FIRST, "n": 3}),
        (("SEEN#8#8", "X"), {"at": "2026/1", "by": "main|USER#8|LIKE#8"}),
        (("NAME#zzz", "USER"), {"at": FIRST, "by": "main|USER#7|PROFILE", "n": 1}),
    ],
    ids=["derived item", "copy", "claimed copy"],
)
@pytest.mark.parametrize("created", [True, False])
def test_repair_removes_only_what_the_rule_set_where_the_application_wrote(
    at: tuple[str, str], guard: dict[str, Any], created: bool
) -> None:
    world = filled()
    rule = {"TAG#zzz": "tags", "SEEN#8#8": "seen", "NAME#zzz": "names"}[at[0]]
    edit(world, *at, note="own", posts=3, stars=8, userId="7")
    edit_guard(world, *at, f"~{rule}", created=created, **guard)
    assert repaired(world) == []
    item = world.item(*at) or {}
    assert item["note"] == "own"
    assert item.get({"tags": "posts", "seen": "stars", "names": "userId"}[rule]) in (None, 0)
    assert drifts(world) == []


KINDS_OF_ITEMS = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Song: {key: {PK: "SONG#{song}", SK: S}, match: {type: song}}
  Play: {key: {PK: "PLAY#{play}", SK: P}, match: {type: play}}
  Label: {key: {PK: "LABEL#{song}", SK: L}, match: {type: label}}
  ByTitle: {key: {PK: "TITLE#{title}", SK: T}, match: {type: title}}
  Genre: {key: {PK: "GENRE#{genre}", SK: G}, match: {type: genre}, derived: true}
projections:
  plays: {from: Play, aggregate: {into: Song, set: {playCount: count}}}
  latest: {from: Play, top: {into: Song, as: latest, by: at, limit: 1, attributes: [at]}}
  labels: {from: Song, copy: {into: Label, attributes: [title]}}
  titles: {from: Song, copy: {into: ByTitle, attributes: [song]}}
  genres: {from: Song, each: {genre: genres}, aggregate: {into: Genre, set: {songs: count}}}
  listed: {from: Song, index: {GSI1PK: SONGS, GSI1SK: "{title}"}}
"""
SONG = {"type": "song", "song": "1", "title": "Air", "genres": ["slow", "old"]}
FOREIGN: dict[tuple[str, str], dict[str, Any]] = {
    ("LABEL#1", "L"): {"type": "sticker", "title": "own"},
    ("TITLE#Air", "T"): {"type": "award", "song": "none"},
    ("GENRE#slow", "G"): {"type": "list", "songs": [1, 2]},
    ("SONG#2", "S"): {"type": "poem", "playCount": "many", "GSI1PK": "POEMS"},
}


def songs() -> World:
    world = World(KINDS_OF_ITEMS, "# all of it:\n")
    for at, attributes in FOREIGN.items():
        edit(world, *at, **attributes)
    edit(world, "SONG#1", "S", **SONG)
    for play, song in enumerate("1122"):
        edit(world, f"PLAY#{play}", "P", type="play", song=song, at=play)
    return world


def repair_of(world: World) -> Repair:
    with verify_and_repair(world.program, world.store, repair=True, allow_delete=True, patience=0.0) as done:
        assert done.repair is not None
        return done.repair


def test_keys_that_are_occupied_are_reported_and_not_written() -> None:
    """Nothing of the stream was delivered: a repair writes everything else, and leaves these items as they are."""
    world = songs()
    shown = {at: {"PK": at[0], "SK": at[1], **attributes} for at, attributes in FOREIGN.items()}
    label = of("occupied", "labels", "LABEL#1|L", None, shown["LABEL#1", "L"], None, "SONG#1|S")
    expected = {
        label,
        of("occupied", "titles", "TITLE#Air|T", None, shown["TITLE#Air", "T"], None),
        of("occupied", "genres", "GENRE#slow|G", None, shown["GENRE#slow", "G"], None),
    }
    with verified(world) as one:
        found = brief(list(one.drifts()))
        known = {drift for drift in found if drift[0] == "occupied"}
        assert known == {label}, "the others are known when the ledger has their entries"
    repair = repair_of(world)
    assert repair.failed == {}
    assert {reason.partition(":")[0] for reason in repair.rejected.values()} == {"occupied"}
    assert brief(drifts(world)) == expected
    assert repair_of(world).rejected.keys() == {"main|LABEL#1|L", "main|TITLE#Air|T", "main|GENRE#slow|G"}
    for at, item in shown.items():
        assert world.item(*at, guards=True) == item
    assert (world.item("SONG#1", "S") or {})["playCount"] == 2
    assert world.item("GENRE#old", "G") == {"PK": "GENRE#old", "SK": "G", "type": "genre", "songs": 1}
    world.settle()
    assert brief(drifts(world)) == expected


def test_keys_that_are_free_again_are_no_finding_after_the_stream() -> None:
    world = songs()
    repair_of(world)
    world.settle()
    for at in FOREIGN:
        world.remove(*at)
    world.settle()
    assert drifts(world) == []
    assert world.item("LABEL#1", "L") == {"PK": "LABEL#1", "SK": "L", "type": "label", "title": "Air"}
    assert world.item("TITLE#Air", "T") == {"PK": "TITLE#Air", "SK": "T", "type": "title", "song": "1"}
    assert world.item("GENRE#slow", "G") == {"PK": "GENRE#slow", "SK": "G", "type": "genre", "songs": 1}


def test_of_an_item_and_a_ledger_that_are_both_wrong_the_group_shows_what_should_be() -> None:
    """With the group compared, and without: an entry that is wrong as its group is."""
    world = filled()
    ledger_edit(world, "G|likes.1|main|POST#1", n={"N": "12"})
    edit(world, "POST#1", "METADATA", likeCount=99)
    found = {drift.kind: drift for drift in drifts(world) if drift.rule == "likes"}
    assert (found["value"].sides, found["value"].expected) == ({"item": 99, "group": 12}, None)
    assert found["value"].wrong == ("group",)
    assert (found["group"].expected, found["group"].wrong) == (3, ("group",))
    world = filled()
    lost(world, lambda: world.like(9, 1, stars=91))
    edit(world, "POST#1", "METADATA", starSum=1, best=1)
    found = {drift.attribute or "": drift for drift in drifts(world) if drift.kind == "value"}
    assert (found["starSum"].sides, found["starSum"].expected) == ({"item": 1, "group": 93}, None)
    assert found["starSum"].wrong == ("group", "entry")


def test_damage_elsewhere_in_a_group_leaves_no_doubt_about_a_value() -> None:
    """A member is lost, and an entry that the group has: both say nothing against the group's count."""
    world = filled(["likes"])
    ledger_lose(world, "M|likes.1|main|POST#1", "best|n250241")
    ledger_lose(world, f"E|main|{LIKE}")
    edit(world, "POST#1", "METADATA", likeCount=99)
    found = [(drift.kind, drift.attribute, drift.expected, drift.wrong) for drift in drifts(world)]
    lost_entry, lost_member, *values = sorted(found, key=str)
    assert (lost_entry[0], lost_entry[3]) == ("entry missing", ("entry",))
    assert (lost_member[0], lost_member[3]) == ("member missing", ("group",))
    assert values == [("value", "best", None, ("group", "entry")), ("value", "likeCount", 3, ("item",))]
    assert repaired(world) == []
    assert_right(world)


# What rules left, and correct no more


def left_over(world: World) -> set[tuple[str, str, str]]:
    """Return what is reported as left over: rule, item, attributes. It is not drift."""
    with verified(world) as one:
        assert list(one.drifts()) == []
        return {(one.rule, one.target, str(one.actual)) for one in one.left_over()}


def healthy_songs() -> World:
    world = World(KINDS_OF_ITEMS, "# all of it:\n")
    world.put("SONG#1", "S", **SONG)
    for play in range(3):
        world.put(f"PLAY#{play}", "P", type="play", song="1", at=play)
    world.settle()
    assert left_over(world) == set()
    return world


def test_values_that_stay_on_an_item_of_another_kind_are_reported() -> None:
    """The change of its kind was not heard of, and the value was changed before."""
    world = healthy_songs()
    edit(world, "SONG#1", "S", type="poem", playCount=9)
    lost(world, lambda: world.remove("LABEL#1", "L"))
    lost(world, lambda: world.remove("TITLE#Air", "T"))
    repaired(world)
    found = left_over(world)
    assert ("plays", "main|SONG#1|S", "{'playCount': 9}") in found
    assert {rule for rule, _, _ in found} == {"plays", "latest"}
    edit(world, "SONG#1", "S", remove=["playCount", "latest", "~plays", "~latest"])
    assert left_over(world) == set()


def test_values_that_stay_are_reported_only_for_rules_that_are_verified() -> None:
    world = healthy_songs()
    edit(world, "SONG#1", "S", type="poem", playCount=9)
    with verified(world, rules=["latest"]) as one:
        assert {drift.rule for drift in one.left_over()} == {"latest"}


@pytest.mark.parametrize("lost_too", [(), ("type",)])
def test_a_copy_that_lost_its_guard_and_its_source_is_reported(lost_too: tuple[str, ...]) -> None:
    """With the attribute that `match` reads or without it: only the mark shows that a rule created it."""
    world = healthy_songs()
    edit(world, "LABEL#1", "L", remove=["~labels", *lost_too])
    lost(world, lambda: world.remove("SONG#1", "S"))
    repaired(world)
    assert {(rule, target) for rule, target, _ in left_over(world)} == {("labels", "main|LABEL#1|L")}


def test_a_copy_that_lost_only_what_match_reads_is_drift_without_its_source_too() -> None:
    world = healthy_songs()
    edit(world, "LABEL#1", "L", remove=["type"])
    assert [(drift.kind, drift.attribute) for drift in drifts(world)] == [("copy stale", "type")]
    lost(world, lambda: world.remove("SONG#1", "S"))
    assert "copy extra" in {drift.kind for drift in drifts(world)}
    repaired(world)
    assert drifts(world) == []
    assert world.item("LABEL#1", "L") is None


def test_a_copy_that_lost_its_guard_is_drift_while_its_source_is_there() -> None:
    world = healthy_songs()
    edit(world, "LABEL#1", "L", remove=["~labels"])
    assert [drift.kind for drift in drifts(world)] == ["guard"]
    assert repaired(world) == []
    assert left_over(world) == set()

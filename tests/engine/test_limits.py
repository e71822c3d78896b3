"""DynamoDB's limits: met by splitting where that is exact, else rejected in words that say which limit and what to change.

Whatever is rejected, the other items of its batch and the other rules of its record are applied.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest

from projections.engine.store import ItemKey, Update, Write
from projections.stores.limits import ITEM_BYTES, TRANSACTION_BYTES, item_size
from projections.testing.oracle import Oracle
from tests.engine.scene import Scene, before
from tests.engine.world import World

LIKES = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
TAGS = "  tags: {from: Post, each: {tag: tags, most: 10000}, aggregate: {into: Tag, set: {posts: count}}}\n"
LINES = """
  lines:
    from: Post
    each: {line: lines, most: 10000}
    bind: {tag: "{postId}"}
    latest: {into: Tag, by: line.n, order: asc, attributes: [big]}
  total: {from: Post, bind: {tag: all}, aggregate: {into: Tag, set: {all: count}}}
"""
COPY = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Twin: {key: {PK: "TWIN#{twin}", SK: X}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
  tags: {from: Post, each: {tag: tags, most: 10000}, aggregate: {into: Tag, set: {posts: count}}}
"""
GUARDED = '  twin: {from: Post, bind: {twin: "{postId}"}, copy: {into: Twin, attributes: all}}\n'
CLAIMED = '  twin: {from: Post, bind: {twin: "{alias}"}, copy: {into: Twin, attributes: all}}\n'


def bytes_of(writes: list[Write] | Any) -> int:
    return sum(item_size({**write.set, **write.add, **write.discard}) for write in writes if isinstance(write, Update))


def rejected(world: World) -> dict[tuple[str | None, str | None], str]:
    return {(one.rule, one.key): one.reason for one in world.rejected}


# Elements of one item


def test_an_item_with_more_elements_than_most_is_rejected_by_its_rule_until_it_has_fewer() -> None:
    world = World("  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n" + LIKES)
    world.put("POST#1", "METADATA", tags=[f"t{number:03}" for number in range(100)] * 2)
    world.like(1, 1)
    world.settle()
    assert (world.item("TAG#t099", "STATS") or {})["posts"] == 1
    world.put("POST#1", "METADATA", tags=[f"t{number:03}" for number in range(101)])
    world.settle()
    assert rejected(world) == {
        (
            "tags",
            "main|POST#1|METADATA",
        ): '"tags" has 101 elements, and `each` takes at most 100 of one item: raise `most` in '
        "`each` (up to 10,000), or divide the item into several"
    }
    assert world.item("TAG#t099", "STATS") is None
    assert world.post(1)["likeCount"] == 1
    world.put("POST#1", "METADATA", tags=["t100"])
    world.settle()
    assert (world.item("TAG#t100", "STATS") or {})["posts"] == 1


# Met by splitting


def test_an_item_of_more_than_100_actions_shares_its_batch_with_small_ones() -> None:
    world = World(TAGS + LIKES)
    world.put("POST#1", "METADATA", tags=[f"t{number}" for number in range(250)])
    world.put("POST#2", "METADATA", tags=["t0"])
    world.like(1, 2)
    world.settle()
    assert max(map(len, world.store.transactions)) == 100
    assert world.item("TAG#t0", "STATS") == {"PK": "TAG#t0", "SK": "STATS", "posts": 2}
    assert len(world.ledger("G|tags.1|")) == 250
    assert world.post(2)["likeCount"] == 1
    world.remove("POST#1", "METADATA")
    world.settle()
    assert world.item("TAG#t0", "STATS") == {"PK": "TAG#t0", "SK": "STATS", "posts": 1}
    assert world.item("TAG#t249", "STATS") is None
    assert world.rejected == []


@pytest.mark.parametrize("lines", [50, 130])
def test_more_than_4_mb_of_one_item_are_several_transactions(lines: int) -> None:
    """Each element carries what is listed of it: fifty times 90 KB do not fit into one transaction."""
    world = World(LINES)
    world.put("POST#1", "METADATA", big="x" * 90_000, lines=[{"n": n} for n in range(lines)])
    world.put("POST#2", "METADATA", big="y", lines=[{"n": 1}])
    world.settle()
    assert len(world.ledger("M|")) == lines + 1
    assert all(bytes_of(writes) < TRANSACTION_BYTES for writes in world.store.transactions)
    assert world.item("TAG#1", "STATS") == {"PK": "TAG#1", "SK": "STATS", "big": "x" * 90_000, "all": 0}
    assert world.item("TAG#all", "STATS") == {"PK": "TAG#all", "SK": "STATS", "all": 2}
    assert world.rejected == []


def test_more_than_4_mb_of_many_items_are_several_transactions_at_the_first_try() -> None:
    world = World("  last: {from: Like, latest: {into: Post, by: at, attributes: {lastText: text}}}\n")
    world.put("POST#1", "METADATA")
    for user in range(30):
        world.like(user, 1, at=user, text="x" * 200_000)
    world.deliver()
    assert all(bytes_of(writes) < TRANSACTION_BYTES for writes in world.store.transactions)
    assert world.store.calls["transact"] == 2
    assert world.post()["lastText"] == "x" * 200_000


@pytest.mark.parametrize("late", [False, True], ids=["after its insert", "before its insert"])
def test_an_expiry_of_more_than_100_targets_is_kept_by_each_once(late: bool) -> None:
    """Also where an insert that was given up is delivered again when the expiry is halfway through."""
    head = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
  Point: {key: {PK: "POINT#{point}", SK: P}, expires: true}
projections:
"""
    measures = "{n: count, low: min(number(v))}"
    each = "{tag: tags, most: 10000}"
    rule = f"  tags: {{from: Point, expired: keep, each: {each}, aggregate: {{into: Tag, set: {measures}}}}}\n"
    world = World(rule, head)
    world.put("POINT#1", "P", v=7, tags=[f"t{number:03}" for number in range(250)])
    inserted = world.records()
    if late:
        world.position += len(inserted)
    else:
        world.settle()
    world.remove("POINT#1", "P", by_ttl=True)
    batch = world.records()
    before(world, "transact", Mock(side_effect=KeyboardInterrupt), call=2)  # the function dies halfway
    with pytest.raises(KeyboardInterrupt):
        world.deliver()
    if late:
        assert world.worker().process(inserted, remaining=lambda: 900).failed is None
    world.worker().process(batch, remaining=lambda: 900)
    world.settle()
    for number in range(250):
        item = world.item(f"TAG#t{number:03}", "STATS")
        assert item == {"PK": f"TAG#t{number:03}", "SK": "STATS", "n": 1, "low": 7}
    (entry,) = world.ledger("E|")
    assert (entry["contributions"], len(json.loads(entry["kept"])["tags.1"])) == ("{}", 250)
    assert len(world.ledger("M|")) == 250, "what is kept has its members"
    assert world.rejected == []


# Rejected


def test_contributions_of_more_than_half_an_entry() -> None:
    """The rule contributes nothing, the item's other rules do."""
    total = "  total: {from: Post, bind: {tag: all}, aggregate: {into: Tag, set: {all: count}}}\n"
    world = World(TAGS + LIKES + total)
    world.put("POST#1", "METADATA", tags=[f"t{number:05}" + "x" * 250 for number in range(1500)])
    world.put("POST#2", "METADATA", tags=["a"])
    world.like(1, 2)
    world.settle()
    assert rejected(world) == {
        ("tags", "main|POST#1|METADATA"): "contributions to 1,500 targets take 432,011 bytes; the limit of one item is "
        "190,000 bytes: divide the item into several, or exclude some of its elements with a `where`"
    }
    entry = json.loads(world.ledger("E|main|POST#1|")[0]["contributions"])
    assert entry == {"total.1": {"main|TAG#all|STATS": {"n": 1}}}
    assert [group for group in world.ledger("G|tags.1") if "TAG#a|" not in group["pk"]] == []
    assert world.item("TAG#all", "STATS") == {"PK": "TAG#all", "SK": "STATS", "posts": 0, "all": 2}
    assert world.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "posts": 1, "all": 0}
    assert world.post(2)["likeCount"] == 1
    assert all(image["PK"]["S"] != "TAG#t00000" + "x" * 250 for image in world.store.items("main"))
    world.put("POST#1", "METADATA", tags=["a"])
    world.settle()
    assert world.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "posts": 2, "all": 0}, (
        "once it fits, it counts"
    )


@pytest.mark.deep
def test_an_entry_has_room_for_what_an_item_contributes_before_and_after_a_change() -> None:
    """All targets of the former image are in `recent` until they are published, beside as many of the new one."""
    world = World(TAGS)
    for version in "ab":
        world.put("POST#1", "METADATA", tags=[f"{version}{number:04}" for number in range(5100)])
        world.settle()
    ((_, contributions),) = ((one["pk"], one["contributions"]) for one in world.ledger("E|"))
    assert len(contributions) > 150_000
    assert world.rejected == []


def test_where_an_entry_has_room_for_one_version_the_published_one_gets_it_from_the_next_backfill_on() -> None:
    world = World(TAGS)
    world.put("POST#1", "METADATA", tags=[f"a{number:0200}" for number in range(600)])
    world.settle()
    other = world.under(TAGS.replace("posts: count", "items: count"))
    for carry_out, version in ((other.apply, "tags.1"), (other.carry_out, "tags.2")):
        carry_out()
        (entry,) = world.ledger("E|")
        assert json.loads(entry["contributions"]).keys() == {version}
    assert world.item(f"TAG#a{0:0200}", "STATS") == {"PK": f"TAG#a{0:0200}", "SK": "STATS", "items": 1}


def test_a_target_of_more_than_400_kb() -> None:
    world = World("  top: {from: Like, top: {into: Post, as: t, by: at, limit: 3, attributes: [big]}}\n" + LIKES)
    world.put("POST#1", "METADATA", body="x" * (ITEM_BYTES - 10_000))
    for user in range(4):
        world.like(user, 1, at=user, big="x" * 5_000)
        world.settle()
    assert world.post()["likeCount"] == 4
    assert world.post()["t"] == [{"big": "x" * 5_000}], "what fitted last"
    ((what, reason),) = rejected(world).items()
    assert what == ("top", "main|POST#1|METADATA")
    assert reason.startswith("an item can have at most 400 KB: the target would have more; ")
    assert 'lower its "limit"' in reason


WIDE = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Note: {key: {PK: "NOTE#{noteId}", SK: N}}
projections:
"""
BESIDE = """
  again: {from: Note, compute: {set: {again: text}}}
  size: {from: Note, compute: {set: {bytes: length / 2}}}
  listed: {from: Note, index: {GSI1PK: "KIND#{kind}", GSI1SK: "{bytes|default(none)}"}}
"""


def test_a_computed_attribute_that_does_not_fit_does_not_stop_other_rules_of_its_item() -> None:
    scene = Scene(BESIDE, WIDE)
    long = {"kind": "a", "length": 8, "text": "x" * (ITEM_BYTES // 2)}
    scene.put("NOTE#1", "N", **long)
    scene.settle()
    right = {"PK": "NOTE#1", "SK": "N", **long, "bytes": 4, "GSI1PK": "KIND#a", "GSI1SK": "4"}
    assert scene.item("NOTE#1", "N") == right
    ((what, reason),) = rejected(scene).items()
    assert what == ("again", "main|NOTE#1|N")
    assert reason.startswith("an item can have at most 400 KB: the target would have more; ")
    scene.store.calls.clear()
    scene.refresh(ItemKey("main", "NOTE#1", "N"))
    assert scene.store.calls["update"] == 1, "one refused write, and not the same again"
    scene.put("NOTE#1", "N", **long)
    scene.lose()
    scene.refresh(ItemKey("main", "NOTE#1", "N"))
    assert scene.item("NOTE#1", "N") == right
    scene.put("NOTE#1", "N", **{**long, "text": "short"})
    scene.settle()
    assert scene.item("NOTE#1", "N") == {**right, "text": "short", "again": "short"}


@pytest.mark.parametrize("first", [True, False], ids=["once first", "once last"])
@pytest.mark.parametrize("fits", [True, False], ids=["another rule does not fit", "what it reads does not fit"])
def test_value_set_once_does_not_follow_from_what_is_not_written_yet(first: bool, fits: bool) -> None:
    """Each rule writes alone. What a rule with `once` sets stays for ever, so it waits for what it reads."""
    size, again = ("length / 2", "text") if fits else ("text", "length")
    once = '  final: {from: Note, compute: {set: {final: "coalesce(bytes, 0)"}, once: true}}\n'
    if not fits:
        once = "  final: {from: Note, compute: {set: {final: '{bytes|default(none)|truncate(5)}'}, once: true}}\n"
    others = f"  size: {{from: Note, compute: {{set: {{bytes: {size}}}}}}}\n"
    others += f"  again: {{from: Note, compute: {{set: {{again: {again}}}}}}}\n"
    scene = Scene(once + others if first else others + once, WIDE)
    scene.put("NOTE#1", "N", length=8, text="x" * (ITEM_BYTES // 2))
    scene.settle()
    note = scene.item("NOTE#1", "N") or {}
    if fits:
        assert (note["final"], note["bytes"], "again" in note) == (4, 4, False)
        assert {rule for rule, _ in rejected(scene)} == {"again"}
        return
    assert (note["again"], "bytes" in note, "final" in note) == (8, False, False)
    assert {rule for rule, _ in rejected(scene)} == {"size", "final"}
    scene.put("NOTE#1", "N", **{**{k: v for k, v in note.items() if k not in ("PK", "SK")}, "text": "short"})
    scene.settle()
    assert (scene.item("NOTE#1", "N") or {})["final"] == "short"


NEWEST = "  newest: {from: Like, top: {into: Post, as: newest, by: at, limit: 100, attributes: [text]}}\n"


@pytest.mark.parametrize("order", ["forwards", "backwards"])
def test_a_list_is_cut_at_32_kb_whatever_the_history(order: str) -> None:
    world = World(NEWEST)
    world.put("POST#1", "METADATA", body="b" * 300_000)
    for user in range(100) if order == "forwards" else reversed(range(100)):
        world.like(user, 1, at=user, text=f"{user:02}" + "x" * 3_298)
        if user % 10 == 5:
            world.settle()
    world.settle()
    assert [element["text"][:2] for element in world.post()["newest"]] == [str(user) for user in range(99, 90, -1)]
    assert world.rejected == []
    assert Oracle(world.program.document).compare({"main": world.store.items("main")}) == []
    body = {"body": {"S": "b" * 370_000}}
    world.store.write(Update(ItemKey("main", "POST#1", "METADATA"), set=body))  # the application's own update
    world.settle()
    world.remove("USER#99", "LIKE#1")
    world.settle()
    assert [element["text"][:2] for element in world.post()["newest"]] == [str(user) for user in range(98, 89, -1)]


def test_a_list_whose_first_element_exceeds_32_kb_is_empty() -> None:
    world = World(NEWEST)
    world.put("POST#1", "METADATA")
    world.like(1, 1, at=1, text="short")
    world.like(2, 1, at=2, text="x" * 32_756)
    world.settle()
    assert len(world.post()["newest"]) == 1, "exactly 32 KB"
    world.like(2, 1, at=2, text="x" * 32_757)
    outcome = world.deliver()
    assert world.post()["newest"] == []
    assert outcome.counts["cut"] == 1
    assert Oracle(world.program.document).compare({"main": world.store.items("main")}) == []
    world.remove("USER#2", "LIKE#1")
    outcome = world.deliver()
    assert world.post()["newest"] == [{"text": "short"}]
    assert outcome.counts["cut"] == 0


@pytest.mark.parametrize(
    "rule",
    [
        "  r: {from: Like, top: {into: Post, as: t, by: at, limit: 2, attributes: {a: text, b: text}}}\n",
        "  r: {from: Like, latest: {into: Post, by: at, attributes: {a: text, b: text}}}\n",
        "  r: {from: Like, bind: {tag: '{postId}'}, copy: {into: Tag, attributes: {a: text, b: text}}}\n",
    ],
    ids=["top", "latest", "claimed copy"],
)
def test_the_attributes_that_a_rule_keeps_of_an_item_are_limited(rule: str) -> None:
    world = World(rule)
    world.put("POST#1", "METADATA")
    world.like(1, 1, at=1, text="x" * 149_999)
    world.like(2, 1, at=2, text="x" * 150_000)
    world.settle()
    assert rejected(world) == {
        ("r", "main|USER#2|LIKE#1"): "the attributes to keep have 300,002 bytes, the limit is 300,000; list fewer "
        "attributes in the rule, or exclude such items with a `where`"
    }
    (member,) = world.ledger("M|")
    assert member["s"] == "main|USER#1|LIKE#1"
    assert Oracle(world.program.document).compare({"main": world.store.items("main")}) == []


NESTED = {
    "top": ("{from: Reply, top: {into: Post, as: shown, by: at, limit: 3, attributes: [text, tree]}}", 30),
    "latest": ("{from: Reply, latest: {into: Post, by: at, attributes: {shown: tree}}}", 31),
    "last": ("{from: Reply, aggregate: {into: Post, set: {shown: 'last(tree, at)'}}}", 31),
    "list": ("{from: Reply, embed: {into: Post, match: {replies: '{r}'}, as: shown, attributes: [text, tree]}}", 30),
    "map": (
        "{from: Reply, embed: {into: Post, match: {replies: '{r}'}, as: shown, form: map, attributes: [text, tree]}}",
        30,
    ),
    "copy": ("{from: Reply, copy: {into: Copy, attributes: [tree]}}", 32),
    "claim": ("{from: Reply, copy: {into: Claim, attributes: [tree]}}", 31),
    "embed": ("{from: Reply, embed: {into: Child, match: {r: '{r}'}, attributes: {shown: tree}}}", 32),
}
NESTED_HEAD = """
table: {key: [PK, SK]}
entities:
  Reply: {key: {PK: "R", SK: "REPLY#{r}"}}
  Post: {key: {PK: "P", SK: POST}}
  Copy: {key: {PK: "COPY#{r}", SK: C}}
  Claim: {key: {PK: "CLAIM#{text}", SK: C}}
  Child: {key: {PK: "CHILD#{r}", SK: C}}
projections:
  rule: """


@pytest.mark.parametrize("kind", NESTED)
def test_a_nested_attribute_stops_its_own_item_only(kind: str) -> None:
    """What an item contributes may have the levels that DynamoDB allows where the rule keeps it; the others apply."""
    rule, most = NESTED[kind]
    w = Scene(rule + "\n", NESTED_HEAD)
    w.put("P", "POST", replies=["1", "2", "3"], postId="p")
    w.put("CHILD#1", "C")
    w.put("CHILD#2", "C")

    def tree(levels: int) -> Any:
        return "x" if levels == 1 else {"a": tree(levels - 1)}

    w.put("R", "REPLY#1", at=1, text="one", tree=tree(most))
    w.settle()
    assert w.rejected == []
    assert w.differences() == []
    if most == 32:
        return  # an item of the application has no more
    w.put("R", "REPLY#2", at=2, text="two", tree=tree(most + 1))
    w.settle()
    (found,) = w.rejected
    assert found.key == "main|R|REPLY#2"
    assert f"{most + 1} levels" in found.reason
    w.put("R", "REPLY#3", at=3, text="three", tree="y")
    w.put("R", "REPLY#1", at=1, text="one", tree="z")
    w.settle()
    assert w.differences() == []
    assert len(w.rejected) == 1


def test_a_key_that_is_too_large() -> None:
    world = World(TAGS + LIKES)
    world.put("POST#1", "METADATA", tags=["x" * 2045])
    world.put("POST#2", "METADATA", tags=["x" * 2044])
    world.like(1, 1)
    world.settle()
    assert rejected(world) == {
        ("tags", "main|POST#1|METADATA"): 'key attribute "PK" would have 2049 bytes, the limit is 2048; '
        "shorten it with truncate(n)"
    }
    assert world.item("TAG#" + "x" * 2044, "STATS") is not None
    assert world.post()["likeCount"] == 1


def test_the_longest_keys_of_source_and_target_have_room_in_the_ledger() -> None:
    rule = "  top: {from: Like, top: {into: Post, as: first, by: at, limit: 2, order: asc, attributes: [userId]}}\n"
    world = World(rule + LIKES)
    post, long = "p" * 1019, "u" * 2042
    world.put(f"POST#{post}", "METADATA")
    for user in (f"{long}1", f"{long}2"):
        world.put(f"USER#{user}", f"LIKE#{post}", at="t" * 510)
    world.settle()
    item = world.item(f"POST#{post}", "METADATA")
    assert item is not None
    assert item["likeCount"] == 2
    assert {first["userId"] for first in item["first"]} == {f"{long}1", f"{long}2"}
    world.remove(f"USER#{long}1", f"LIKE#{post}")
    world.settle()
    item = world.item(f"POST#{post}", "METADATA")
    assert item is not None
    assert item["first"] == [{"userId": f"{long}2"}]
    assert len(world.ledger("M|")) == 1
    assert world.rejected == []


def test_text_too_long_to_be_ordered_by() -> None:
    world = World("  low: {from: Like, aggregate: {into: Post, set: {low: min(text(text)), n: count}}}\n" + LIKES)
    world.put("POST#1", "METADATA")
    world.like(1, 1, text="x" * 511)
    world.like(2, 1, text="y")
    world.like(3, 1, text=" " * 255 + "z")
    world.like(4, 1, text=" " * 255)
    world.settle()
    assert world.post() == {"low": " " * 255, "n": 2, "likeCount": 4}
    assert Oracle(world.program.document).compare({"main": world.store.items("main")}) == []
    found = rejected(world)
    assert found.keys() == {("low", "main|USER#1|LIKE#1"), ("low", "main|USER#3|LIKE#1")}
    assert all("exceeds 512 bytes; order by something shorter" in reason for reason in found.values())


def test_a_number_of_too_many_digits_from_one_item() -> None:
    world = World("  total: {from: Like, aggregate: {into: Post, set: {total: sum(a * b), n: count}}}\n" + LIKES)
    world.put("POST#1", "METADATA")
    world.like(1, 1, a=Decimal("1.0000000000000000000001"), b=Decimal("1.0000000000000000000001"))
    world.like(2, 1, a=Decimal("1E120"), b=Decimal("1E120"))
    world.like(3, 1, a=2, b=3)
    world.settle()
    assert world.post() == {"total": 6, "n": 1, "likeCount": 3}
    found = rejected(world)
    assert found.keys() == {("total", "main|USER#1|LIKE#1"), ("total", "main|USER#2|LIKE#1")}
    by_item = {target: reason for (_, target), reason in found.items()}
    assert "digits after the decimal point" in by_item["main|USER#1|LIKE#1"]
    assert 'expression "a * b": the result does not fit a DynamoDB number' in by_item["main|USER#2|LIKE#1"]


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("1E+60", "61 digits before"),
        ("9E+125", "126 digits before"),
        ("-1000000000000000000", "19 digits before"),
        ("0.00000000001", "11 digits after"),
    ],
)
@pytest.mark.parametrize("function", ["sum", "avg"])
def test_a_hostile_amount_affects_no_other_item(function: str, value: str, found: str) -> None:
    rule = "  total: {from: Like, aggregate: {into: Post, set: {total: FUNCTION(w), n: count}}}\n"
    world = World(rule.replace("FUNCTION", function) + LIKES)
    world.put("POST#1", "METADATA")
    for user, amount in enumerate([value, "999999999999999999.9999999999", "-999999999999999999.9999999999", "0.3"]):
        world.like(user, 1, w=Decimal(amount))
        world.settle()
    assert world.post() == {"total": 0.3 if function == "sum" else 0.1, "n": 3, "likeCount": 4}
    ((what, reason),) = rejected(world).items()
    assert what == ("total", "main|USER#0|LIKE#1")
    assert reason.startswith('"total" is ')
    assert f"which has {found} the decimal point; sum and avg take at most 18 digits before and 10 after it: " in reason
    world.like(0, 1, w=3)
    world.settle()
    assert world.post()["n"] == 4, "the next version of the item is evaluated again"


@pytest.mark.parametrize("rule", [GUARDED, CLAIMED])
def test_a_copy_of_more_attributes_than_an_expression_can_name(rule: str) -> None:
    world = World(rule, COPY)
    many = {f"a{number:03}": number for number in range(800)}
    world.put("POST#1", "METADATA", alias="1", tags=["a"], **many)
    world.put("POST#2", "METADATA", alias="2", tags=["a"], title="x")
    world.settle()
    assert world.item("TWIN#1", "X") is None
    assert world.item("TWIN#2", "X") == {
        "PK": "TWIN#2", "SK": "X", "alias": "2", "tags": ["a"], "title": "x"
    }  # fmt: skip
    assert world.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "posts": 2}
    ((what, reason),) = rejected(world).items()
    assert what[0] == "twin"
    assert reason.startswith(
        "an expression can have at most 4 KB and 300 operators: the target has too many attributes for one write"
    )
    assert "list the attributes that are needed" in reason


def test_a_copy_that_is_larger_than_its_source_could_be() -> None:
    rule = '  twin: {from: Post, bind: {twin: "{postId}"}, copy: {into: Twin, attributes: all, values: {again: "{fat}"}}}\n'
    world = World(rule, COPY)
    world.put("POST#1", "METADATA", fat="x" * (ITEM_BYTES // 2), tags=["a"])
    world.put("POST#2", "METADATA", fat="y", tags=["a"])
    world.settle()
    assert world.store.get(ItemKey("main", "TWIN#1", "X")) is None
    assert world.item("TWIN#2", "X") is not None
    assert world.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "posts": 2}
    ((what, reason),) = rejected(world).items()
    assert what == ("twin", "main|POST#1|METADATA")
    assert reason.startswith("an item can have at most 400 KB: the target would have more; ")

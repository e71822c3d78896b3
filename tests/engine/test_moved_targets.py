"""What another version of a rule recorded and wrote, also in another entity: while both are maintained, and afterwards."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.engine.scene import dies
from tests.engine.world import World

POSTS = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
TAGS = "  likes: {from: Like, bind: {tag: '{topic}'}, aggregate: {into: Tag, set: {likeCount: count}}}\n"
BOARDS = TAGS.replace("into: Tag", "into: Board")
CLAIMS = "  likes: {from: Like, bind: {tag: '{topic}'}, copy: {into: Name, attributes: [topic]}}\n"
HEAD = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Board: {key: {PK: "BOARD#{tag}", SK: STATS}}
  Name: {key: {PK: "NAME#{tag}", SK: STATS}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, match: {type: Tag}, derived: true}
  Topic: {key: {PK: "TOPIC#{tag}", SK: STATS}, derived: true}
projections:
  tags: {from: Like, bind: {tag: "{topic}"}, aggregate: {into: Tag, set: {n: count}}}
  topics: {from: Like, where: {again: [{exists: true}]}, bind: {tag: "{topic}"}, aggregate: {into: Topic, set: {n: count}}}
"""
QUIET = HEAD.replace("tags: {from: Like, ", "tags: {from: Like, where: {again: [{exists: true}]}, ")
"""Of which no rule contributes to a Tag on its own."""
WRITTEN = {"PK": "POST#1", "SK": "METADATA", "title": "t"}


def world(rules: str, head: str = HEAD) -> World:
    w = World(rules, head)
    w.put("POST#1", "METADATA", title="t")
    w.like(1, 1, topic="x")
    return w


def test_what_a_version_recorded_and_never_published_leaves_no_trace() -> None:
    w = world(TAGS)
    w.settle()
    new = w.under(POSTS, HEAD)
    new.registry().register(new.program)
    w.like(1, 1, topic="y")
    w.settle()
    assert len(w.ledger("G|likes.2|main|POST#1|")) == 1
    assert w.item("POST#1", "METADATA", guards=True) == WRITTEN
    w.apply()
    assert w.registry().read_or_create().active["likes"].name == "likes.1"
    assert w.ledger("G|likes.2|") == []
    assert w.item("POST#1", "METADATA", guards=True) == WRITTEN
    assert (w.item("TAG#y", "STATS") or {})["likeCount"] == 1


@pytest.mark.parametrize("rules", [TAGS, CLAIMS], ids=["derived", "claimed"])
@pytest.mark.parametrize("published", [True, False])
def test_an_item_of_the_application_outlives_a_rule_that_makes_its_targets_elsewhere(
    published: bool, rules: str
) -> None:
    w = world(POSTS)
    if published:
        w.settle()
        assert w.post() == {"title": "t", "likeCount": 1}
    w.under(rules, HEAD).apply()
    w.like(1, 1, topic="y")
    w.settle()
    assert w.item("POST#1", "METADATA") == WRITTEN
    made = {TAGS: {"PK": "TAG#y", "SK": "STATS", "type": "Tag", "likeCount": 1, "n": 1}}
    made[CLAIMS] = {"PK": "NAME#y", "SK": "STATS", "topic": "y"}
    assert w.item(made[rules]["PK"], "STATS") == made[rules]
    assert w.item("TAG#x", "STATS") is None


@pytest.mark.parametrize("shown", ["count", "top"])
def test_what_a_rule_sets_by_now_is_the_applications_on_items_of_another_entity(shown: str) -> None:
    w = world(POSTS)
    w.settle()
    count = BOARDS.replace("likeCount: count", "title: count")
    top = BOARDS.split("aggregate")[0] + "top: {into: Board, as: title, by: topic, limit: 1, attributes: [topic]}}\n"
    w.under({"count": count, "top": top}[shown], HEAD).apply()
    w.put("BOARD#y", "STATS")
    w.like(1, 1, topic="y")
    w.settle()
    assert w.post() == {"title": "t"}
    assert w.item("BOARD#y", "STATS") == {
        "PK": "BOARD#y",
        "SK": "STATS",
        "title": {"count": 1, "top": [{"topic": "y"}]}[shown],
    }


@pytest.mark.parametrize("rules", [POSTS, TAGS.replace("into: Tag", "into: Topic")], ids=["made by no rule", "derived"])
def test_an_item_that_a_version_never_published_on_is_not_deleted_with_it(rules: str) -> None:
    w = world(rules, QUIET)
    w.settle()
    w.put("TAG#y", "STATS", type="Settings", colour="red")
    new = w.under(TAGS, QUIET)
    new.registry().register(new.program)
    w.like(1, 1, topic="y")
    w.settle()
    w.apply()
    w.remove("USER#1", "LIKE#1")
    w.settle()
    assert w.item("TAG#y", "STATS") == {"PK": "TAG#y", "SK": "STATS", "type": "Settings", "colour": "red"}


def test_an_item_that_only_the_former_version_made_is_deleted_after_the_switch() -> None:
    w = world(TAGS, QUIET)
    w.settle()
    new = w.under(POSTS, QUIET)
    new.apply(promotes=False)
    assert (w.item("TAG#x", "STATS") or {})["likeCount"] == 1
    new.apply(allow_delete=True)
    assert w.item("TAG#x", "STATS") is None
    assert w.post() == {"title": "t", "likeCount": 1}


def test_what_the_published_version_counts_on_a_copy_under_a_new_match_does_not_outlive_it() -> None:
    """The version for items of the new `match` is not published yet, and sets the same attribute."""
    rules = (
        "  notes: {from: Draft, copy: {into: Note, attributes: [text]}}\n"
        "  remarks: {from: Remark, aggregate: {into: Note, set: {remarkCount: count}}}\n"
    )
    entities = """  Draft: {key: {PK: "USER#{userId}", SK: "DRAFT#{noteId}"}, id: noteId}
  Note: {key: {PK: "NOTE#{noteId}", SK: TEXT}}
  Remark: {key: {PK: "NOTE#{noteId}", SK: "REMARK#{number}"}}
"""
    head = HEAD.replace("projections:", f"{entities}projections:")
    w = World(rules, head)
    w.put("USER#1", "PROFILE")
    w.settle()
    new = w.under(rules, head.replace("SK: TEXT}}", "SK: TEXT}, match: {variety: new}}"))
    new.registry().register(new.program)
    w.put("USER#1", "DRAFT#7", text="a")
    w.put("NOTE#7", "REMARK#1")
    w.settle()
    assert w.item("NOTE#7", "TEXT") == {"PK": "NOTE#7", "SK": "TEXT", "text": "a", "variety": "new", "remarkCount": 1}
    w.remove("USER#1", "DRAFT#7")
    w.settle()
    assert w.item("NOTE#7", "TEXT") is None


SHOP = """
table: {key: [PK, SK]}
entities:
  Maker: {key: {PK: "MAKER#{maker}", SK: CARD}}
  Item: {key: {PK: "MAKER#{maker}", SK: "ITEM#{item}"}, id: item}
  Page: {key: {PK: "PAGE#{item}", SK: TEXT}, match: {kind: page}}
  Slug: {key: {PK: "SLUG#{slug}", SK: OWNER}, match: {kind: slug}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, match: {kind: tag, form: 2}, derived: true}
projections:
  cities: {from: Maker, bind: {tag: "{city}"}, aggregate: {into: Tag, set: {makers: count}}}
"""
UNMATCHED = SHOP.replace(", match: {kind: page}", "").replace(", match: {kind: slug}", "").replace(", form: 2", "")
PAGE, SLUG, TAGGED = {"PK": "PAGE#1", "SK": "TEXT"}, {"PK": "SLUG#s", "SK": "OWNER"}, {"PK": "TAG#t", "SK": "STATS"}
OWNED = {"title": "A", "slug": "s", "tag": "t"}
TITLE, ALL = "copy: {into: %s, attributes: [title]}", "copy: {into: %s, attributes: all}"
RENAMED = "copy: {into: Page, attributes: {title: title, heading: title}}"
COUNTED = "aggregate: {into: Tag, set: {n: count}}"
CHANGES = {  # the rule of then and of now, the entities of now, and what its target has by then
    "guarded, narrowed": (ALL % "Page", TITLE % "Page", SHOP, {**PAGE, "kind": "page", "title": "A"}),
    "claimed, narrowed": (ALL % "Slug", TITLE % "Slug", SHOP, {**SLUG, "kind": "slug", "title": "A"}),
    "guarded, widened": (RENAMED, ALL % "Page", SHOP, {**PAGE, "kind": "page", **OWNED}),
    "claimed, widened": (TITLE % "Slug", ALL % "Slug", SHOP, {**SLUG, "kind": "slug", **OWNED}),
    "latest": (TITLE % "Slug", "latest: {into: Slug, by: title, attributes: [tag]}", SHOP, SLUG),
    "aggregate": (TITLE % "Slug", "aggregate: {into: Slug, set: {n: count}}", SHOP, SLUG),
    "guarded, without match": (TITLE % "Page", TITLE % "Page", UNMATCHED, {**PAGE, "title": "A"}),
    "claimed, without match": (TITLE % "Slug", TITLE % "Slug", UNMATCHED, {**SLUG, "title": "A"}),
    "derived, with less of match": (COUNTED, COUNTED, UNMATCHED, {**TAGGED, "kind": "tag", "n": 1, "makers": 0}),
}


@pytest.mark.parametrize("dead_after", [99, 1], ids=["at once", "resumed"])
@pytest.mark.parametrize(("then", "now", "head", "shown"), CHANGES.values(), ids=CHANGES)
def test_a_created_item_has_what_the_version_of_now_gives_it_and_goes_with_its_source(
    then: str, now: str, head: str, shown: dict[str, Any], dead_after: int
) -> None:
    for title in ("A", "B", None):
        w = World(f"  one: {{from: Item, {then}}}\n", SHOP)
        w.put("MAKER#m", "ITEM#1", **OWNED)
        w.settle()
        other = w.under(f"  one: {{from: Item, {now}}}\n", head)
        assert dies(w, dead_after, partial(other.apply, allow_delete=True)) == (dead_after == 1)
        if title == "B":
            w.put("MAKER#m", "ITEM#1", **OWNED | {"title": "B"})
        elif title is None:
            w.remove("MAKER#m", "ITEM#1")
        w.settle()
        other.apply(allow_delete=True)
        w.settle()
        made = None if title is None or shown is SLUG else {**shown, **({"title": title} if "title" in shown else {})}
        assert w.item(shown["PK"], shown["SK"]) == made, title
        w.remove("MAKER#m", "ITEM#1")
        w.settle()
        assert w.item(shown["PK"], shown["SK"]) is None


def test_a_claimed_copy_of_all_with_another_condition_keeps_nothing_of_a_source_that_it_excludes() -> None:
    now, rules = [1_700_000_000.0], f"  one: {{from: Item, {ALL % 'Slug'}}}\n"
    w = World(rules, SHOP, clock=lambda: now[0])
    w.put("MAKER#m", "ITEM#1", slug="s", title="A")
    w.put("MAKER#n", "ITEM#2", slug="s", at=1)
    w.put("MAKER#n", "ITEM#3", slug="r", at=1)
    w.settle()
    other = w.under(rules.replace("{from: Item", "{from: Item, where: {at: [{exists: true}]}"), SHOP)
    other.apply(allow_delete=True)
    w.settle()
    assert w.item(*SLUG.values()) == {**SLUG, "kind": "slug", "slug": "s", "at": 1}
    now[0] += 9 * 86_400  # the former version is dropped
    other.apply(allow_delete=True)
    w.remove("MAKER#n", "ITEM#3")
    w.settle()
    assert w.item("SLUG#r", "OWNER") is None


@pytest.mark.parametrize("now", ["{maker: '{maker}', editor: '{maker}'}", "{makers: '{maker}'}, as: people"])
def test_a_child_without_parent_by_now_keeps_nothing_that_the_former_version_embedded(now: str) -> None:
    rules = "  one: {from: Maker, embed: {into: Item, match: {maker: '{maker}'}, attributes: [name, city]}}\n"
    w = World(rules, SHOP)
    w.put("MAKER#m", "ITEM#1")
    w.put("MAKER#m", "CARD", name="N", city="C")
    w.settle()
    assert w.item("MAKER#m", "ITEM#1") == {"PK": "MAKER#m", "SK": "ITEM#1", "name": "N", "city": "C"}
    w.under(rules.replace("{maker: '{maker}'}", now).replace(", city", ""), SHOP).apply(allow_delete=True)
    w.settle()
    assert w.item("MAKER#m", "ITEM#1", guards=True) == {"PK": "MAKER#m", "SK": "ITEM#1"}


@pytest.mark.parametrize("match", ["{kind: [page, memo]}", "{kind: [{exists: true}]}"])
def test_an_item_of_the_application_by_now_keeps_what_a_wider_match_reads(match: str) -> None:
    w = World(f"  one: {{from: Item, {TITLE % 'Page'}}}\n", SHOP)
    w.put("MAKER#m", "ITEM#1", **OWNED)
    w.settle()
    w.put("PAGE#1", "TEXT", **(w.item("PAGE#1", "TEXT", guards=True) or {}), own=1)
    w.settle()
    now = "  one: {from: Item, aggregate: {into: Page, set: {n: count}}}\n"
    w.under(now, SHOP.replace("{kind: page}", match)).apply(allow_delete=True)
    w.settle()
    assert w.item("PAGE#1", "TEXT") == {**PAGE, "kind": "page", "own": 1, "n": 1}


def test_an_item_that_the_application_gave_another_kind_outlives_its_source() -> None:
    memo = "  Memo: {key: {PK: 'PAGE#{item}', SK: TEXT}, match: {kind: memo}}\nprojections:"
    two = "  two: {from: Item, where: {at: [2]}, copy: {into: Memo, attributes: [at]}}\n"
    w = World(f"  one: {{from: Item, {TITLE % 'Page'}}}\n{two}", SHOP.replace("projections:", memo))
    w.put("MAKER#m", "ITEM#1", **OWNED)
    w.settle()
    before = len(w.store.stream("main"))
    w.put("PAGE#1", "TEXT", **{**(w.item("PAGE#1", "TEXT", guards=True) or {}), "kind": "memo"})
    w.put("MAKER#m", "ITEM#1", **OWNED, at=2)
    change, source = w.store.stream("main", before)
    w.position = before + 2
    for late in (source, change):
        w.deliver([late])
    w.settle()
    w.remove("MAKER#m", "ITEM#1")
    w.settle()
    assert w.item("PAGE#1", "TEXT") == {**PAGE, "kind": "memo"}

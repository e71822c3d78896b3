"""Rules that change on tables full of data: what is new fills, what changed takes effect, what is gone leaves no trace."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from projections.access.ranking import ranking_of
from projections.engine.store import ItemKey, Update
from projections.errors import Misconfigured
from tests.operations.backfill.stage import ALL, AUTHOR, LIKES, LISTED, NAMES, SIGHT, TAGS, Stage, before, lived
from tests.operations.verify_scene import drifts

STRICT = LIKES.replace("{from: Like,", "{from: Like, where: {stars: [{numeric: ['>=', 30]}]},")


def test_a_rule_that_is_added_fills_while_the_others_stay_live() -> None:
    stage = lived(LIKES)
    after = stage.under(LIKES + TAGS)
    seen: list[tuple[Any, bool]] = []

    def meanwhile() -> None:
        after.like(len(seen) + 50, 1, stars=1)
        after.settle()
        seen.append((after.post(1)["likeCount"], after.item("TAG#a", "STATS") is not None))

    count = stage.post(1)["likeCount"]
    after.filled(meanwhile)
    assert [likes for likes, _ in seen] == list(range(count + 1, count + 1 + len(seen)))
    assert not seen[0][1]
    assert after.states() == {"likes.1": "active", "tags.1": "active"}
    after.right()


# Changed rules.


def test_a_changed_rule_is_published_when_it_is_filled_and_its_former_version_until_then() -> None:
    stage = lived(LIKES)
    counts = stage.post(1)["likeCount"], sum(user % 5 > 1 and user * 10 + 1 >= 30 for user in range(6))
    after = stage.under(STRICT)
    seen: list[Any] = []

    def meanwhile() -> None:
        seen.append(after.post(1)["likeCount"] - len(seen))
        after.like(len(seen) + 50, 1, stars=99)
        after.settle()

    after.filled(meanwhile)
    assert seen == sorted(seen, reverse=True)
    assert set(seen) == set(counts)
    assert after.states() == {"likes.1": "standby", "likes.2": "active"}
    after.right()
    back = after.under(LIKES)
    report = back.filled(fills=False)
    assert back.states() == {"likes.1": "active", "likes.2": "standby"}
    assert "items" not in report or not report["items"], "a roll back reads no source items"
    back.right()


def test_functions_of_an_older_package_run_the_rules_of_the_registry() -> None:
    old = lived(LIKES)
    new = old.under(STRICT)
    new.filled()
    for stars in (50, 5):
        old.like(stars, 1, stars=stars)
    old.position = new.position
    old.settle()
    new.right()


@pytest.mark.parametrize(
    ("method", "call"), [("transact", 0), ("get_many", 0), ("get_many", 1), *(("write", call) for call in range(6))]
)
def test_writes_of_an_old_function_that_began_before_are_corrected(method: str, call: int) -> None:
    """It read the registry, then the rules were applied."""
    old = lived(ALL)
    new = old.under(ALL.replace(LIKES, STRICT).replace("userId, city]", "userId]"))
    backfill = new.backfill()
    runs: list[Any] = []
    before(old, method, lambda: runs.append(new.apply(backfill)), call)
    for user in range(3):
        old.like(user, 1, stars=20 * user)
        old.put(f"USER#{user}", "PROFILE", name="n9", city="new")
        old.remove("USER#4", f"LIKE#{user}")
    old.processor.process(old.records(), remaining=lambda: 60.0)
    old.lose()  # whether it failed or not: it is not delivered again
    (run,) = runs
    new.position = old.position
    new.work(backfill, run)
    new.settle()
    new.right()


def test_attributes_that_a_changed_rule_writes_no_more_are_removed() -> None:
    stage = lived(ALL)
    changed = ALL.replace("likeCount: count, best: max(number(stars))", "loved: count").replace("GSI1", "GSI2")
    after = stage.under(
        changed.replace("attributes: [stars]", "values: {seen: x}").replace("userCity: city", "in: city")
    )
    after.filled()
    post, like, seen = (
        after.item("POST#1", "METADATA", guards=True),
        after.item("USER#4", "LIKE#1"),
        after.item("SEEN#4#1", "X"),
    )
    assert post is not None
    assert post.keys() == {"PK", "SK", "owner", "tags", "loved", "~likes", "GSI2PK", "GSI2SK"}
    assert like is not None
    assert like.keys() == {"PK", "SK", "stars", "in"}
    assert seen == {"PK": "SEEN#4#1", "SK": "X", "seen": "x"}
    after.right()
    assert after.published() == set(after.program.rules)


def test_what_application_and_rules_own_now_stays_as_it_is() -> None:
    """`best` is written by another rule from now on."""
    stage = lived(LIKES)
    best = stage.post(1)["best"]
    changed = LIKES.replace(", best: max(number(stars))", "")
    after = stage.under(changed + "  stars: {from: Like, aggregate: {into: Post, set: {best: max(number(stars))}}}\n")
    seen: list[Any] = []
    after.filled(lambda: seen.append(after.post(1)["best"]))
    assert set(seen) == {best}
    after.right()


@pytest.mark.parametrize("claimed", [False, True])
def test_copies_under_keys_that_a_changed_rule_makes_no_more_are_deleted_where_that_is_allowed(claimed: bool) -> None:
    entities = """
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Seen: {key: {PK: "SEEN#{userId}#{postId}", SK: X}}
projections:
  seen: {from: Like, copy: {into: Seen, attributes: [stars]}}
"""
    if claimed:  # one of the likes of a post
        entities = entities.replace("SEEN#{userId}#{postId}", "SEEN#{postId}")
    stage = lived(entities)
    old = {item["PK"]["S"] for item in stage.store.items("main") if item["PK"]["S"].startswith("SEEN")}
    assert old
    stage.put("SEEN#other", "Y", mine=1)  # and whatever is the application's
    after = stage.under(entities.replace("SEEN#", "VIEW#"))
    after.filled(allow_delete=False)
    assert {item["PK"]["S"] for item in after.store.items("main")} >= old
    assert after.states() == {"seen.1": "standby" if claimed else "leaving", "seen.2": "active"}
    after.filled()
    assert not {item["PK"]["S"] for item in after.store.items("main")} & old
    assert after.item("SEEN#other", "Y") is not None
    assert after.states() == {"seen.2": "active"} | ({"seen.1": "standby"} if claimed else {})
    after.right()


# Roll backs.


def test_a_roll_back_leaves_nothing_of_the_other_versions() -> None:
    """Each kind in another version, and a copy that is new."""
    rules = LIKES + TAGS + NAMES + LISTED + AUTHOR
    stage = lived(rules)
    before = {name for item in stage.store.items("main") for name in item}
    changed = (
        STRICT.replace("best: max(number(stars))", "worst: min(number(stars))")
        + TAGS.replace("each: {tag: tags}", 'each: {one: tags}, bind: {tag: "NEW{one}"}')
        + NAMES.replace("[userId, city]", "{userId: userId, town: city}")
        + LISTED.replace("GSI1SK", "GSI2SK").replace("GSI1PK", "GSI2PK")
        + AUTHOR.replace("userCity: city", "userTown: city")
    )
    newer = stage.under(changed + SIGHT)
    newer.filled()
    chance = random.Random(5)
    for _ in range(40):
        newer.act(chance)
        newer.settle()
    newer.right()
    assert {"userTown", "GSI2PK", "~seen"} <= {name for item in newer.store.items("main") for name in item}
    back = newer.under(rules, "{seen: remove}")
    back.filled(allow_delete=False)
    assert any(item["PK"]["S"].startswith("SEEN") for item in back.store.items("main")), "deletions were not allowed"
    back.filled()
    assert {name for item in back.store.items("main") for name in item} <= before
    assert not [item for item in back.store.items("main") if item["PK"]["S"].startswith("SEEN")]
    back.right()


def test_a_rule_that_is_held_leaves_what_it_published() -> None:
    stage = lived(LIKES)
    value = stage.post(1)["likeCount"]
    after = stage.under(LIKES.replace("from: Like,", "from: Like, hold: true,"))
    after.filled()
    after.like(40, 1, stars=3)
    after.settle()
    assert after.post(1)["likeCount"] == value
    back = after.under(LIKES)
    back.filled()
    assert back.post(1)["likeCount"] == value + 1
    back.right()


# Retired rules.


@pytest.mark.parametrize("fate", ["keep", "remove"])
def test_a_retired_rule(fate: str) -> None:
    stage = lived(ALL)
    retired = ", ".join(f"{name}: {fate}" for name in ("likes", "tags", "names", "seen", "listed"))
    after = stage.under(AUTHOR, f"{{{retired}}}")
    after.filled()
    post, copy, tag = (
        after.item("POST#1", "METADATA", guards=True),
        after.item("NAME#n1", "USER"),
        after.item("TAG#a", "STATS"),
    )
    assert post is not None
    assert after.states() == {"author.1": "active"}
    if fate == "keep":
        assert {"likeCount", "best", "GSI1PK", "~likes"} <= post.keys()
        assert copy is not None
        assert tag is not None
        return
    assert post.keys() == {"PK", "SK", "owner", "tags"}
    assert copy is tag is after.item("SEEN#4#1", "X") is None
    assert all(json.loads(entry["contributions"]) == {} for entry in after.ledger("E|"))


def test_an_item_of_the_application_stays_though_the_retired_rule_was_last_to_make_others() -> None:
    """That version never came to publish: the guard is from the one before."""
    stage = lived(LIKES + TAGS)
    elsewhere = '  likes: {from: Like, bind: {tag: "{postId}"}, aggregate: {into: Tag, set: {likeCount: count}}}\n'
    stage.under(elsewhere + TAGS).apply(stage.backfill())
    after = stage.under(TAGS, "{likes: remove}")
    after.filled(restart=True)
    assert after.item("POST#1", "METADATA", guards=True) == {
        "PK": "POST#1", "SK": "METADATA", "owner": "u1", "tags": ["a", "t1"]
    }  # fmt: skip
    after.right()


def test_an_embed_goes_together_with_the_index_rule_that_found_its_children() -> None:
    cities = '  cities: {from: User, embed: {into: Post, match: {owner: "{userId}"}, attributes: {city: city}}}\n'
    stage = Stage(LIKES + cities + '  by: {from: Post, index: {GSI1PK: "BY#{owner}", GSI1SK: "{postId}"}}\n')
    stage.put("USER#1", "PROFILE", city="Rome")
    stage.put("POST#1", "METADATA", owner="1")
    stage.settle()
    assert stage.item("POST#1", "METADATA")["city"] == "Rome"
    after = stage.under(LIKES, "{cities: remove, by: remove}")
    after.filled()
    item = after.item("POST#1", "METADATA", guards=True)
    assert item.keys() == {"PK", "SK", "owner", "likeCount", "~likes"}


MADE = """
entities:
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Tag: {key: {PK: "TAG#{topic}", SK: STATS}, derived: true}
projections:
  again: {from: Like, where: {again: [{exists: true}]}, aggregate: {into: Tag, set: {again: count}}}
"""
FIRST = "  first: {from: Like, aggregate: {into: Tag, set: {firstCount: count}}}\n"
SECOND = "  second: {from: Like, aggregate: {into: Tag, set: {secondCount: count}}}\n"


def liked(rules: str) -> Stage:
    stage = Stage(MADE + rules)
    stage.put("USER#1", "LIKE#1", topic="x")
    stage.settle()
    return stage


def test_where_two_rules_made_an_item_neither_is_forgotten_until_it_may_be_deleted() -> None:
    """Meanwhile another rule comes to hold it."""
    after = liked(FIRST + SECOND).under(MADE, "{first: remove, second: remove}")
    after.filled(allow_delete=False)
    assert after.states() == {"again.1": "active", "first.1": "leaving", "second.1": "leaving"}
    after.put("USER#2", "LIKE#2", topic="x", again=True)
    after.settle()
    after.filled(restart=True)
    assert after.states() == {"again.1": "active"}
    assert (after.item("TAG#x", "STATS", guards=True) or {}).keys() == {"PK", "SK", "again", "~again", "~"}
    after.right()


def test_what_a_rule_set_goes_though_its_items_are_of_another_kind_by_now() -> None:
    kinds = MADE.replace(", derived", ", match: {type: Old}, derived")
    stage = Stage(kinds + FIRST)
    stage.put("USER#1", "LIKE#1", topic="x")
    stage.settle()
    after = stage.under(kinds.replace("Old", "New") + FIRST.replace("firstCount", "count"))
    after.filled(occupied=["main|TAG#x|STATS"])
    assert after.item("TAG#x", "STATS") == {"PK": "TAG#x", "SK": "STATS", "type": "New", "count": 1, "again": 0}
    after.right()


def test_a_constant_of_a_rolled_back_copy_of_all_attributes_goes_where_the_application_added_to_the_copy() -> None:
    whole = SIGHT.replace("attributes: [stars]", "attributes: all")
    stage = Stage(whole.replace("all}", "all, values: {seenFrom: app}}"))
    stage.like(1, 1, stars=3)
    stage.settle()
    stage.store.write(Update(ItemKey("main", "SEEN#1#1", "X"), set={"remark": {"S": "mine"}}))
    back = stage.under(whole)
    back.remove("USER#1", "LIKE#1")
    back.settle()
    back.filled()
    assert back.item("SEEN#1#1", "X") == {"PK": "SEEN#1#1", "SK": "X", "remark": "mine"}


def test_a_copy_goes_with_its_rule_and_whatever_others_wrote_on_it() -> None:
    entities = """
entities:
  Post: {key: {PK: "BLOG#{postId}", SK: P}}
  PostMeta: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
"""
    copy = "  byId: {from: Post, copy: {into: PostMeta, attributes: [title]}}\n"
    likes = "  likes: {from: Like, aggregate: {into: PostMeta, set: {likeCount: count}}}\n"
    stage = Stage(entities + copy + likes)
    stage.put("BLOG#1", "P", title="t")
    stage.put("POST#2", "METADATA", own=1)
    for post in (1, 2):
        stage.like(1, post)
    stage.filled()
    assert stage.post(1) == {"title": "t", "likeCount": 1}
    after = stage.under(entities + likes, "{byId: remove}")
    after.filled(allow_delete=False)
    assert after.item("POST#1", "METADATA") is not None
    assert after.states() == {"byId.1": "leaving", "likes.1": "active"}
    report = after.filled()
    assert report["targets"]["deleted|byId"] == 1
    assert after.item("POST#1", "METADATA") is None
    assert after.post(2) == {"own": 1, "likeCount": 1}
    after.right()


def test_writes_of_the_application_during_a_retirement_stay() -> None:
    stage = lived(LIKES + LISTED)
    after = stage.under(TAGS, "{likes: remove, listed: remove}")
    changes = iter(range(1000))

    def meanwhile() -> None:
        after.put(f"POST#{next(changes) % 4}", "METADATA", mine=1, owner="u", tags=["a"])
        after.settle()

    original = after.store.write

    def write(update: Any) -> None:
        if "~likes" in getattr(update, "remove", ()) and next(changes) % 2:
            meanwhile()
        original(update)

    after.store.write = write  # type: ignore[method-assign]
    after.filled(meanwhile)
    for post in range(4):
        assert after.post(post).keys() <= {"mine", "owner", "tags"}
    after.right()


# Mistakes.


def test_a_removed_rule_without_an_entry_in_retired_is_an_error() -> None:
    stage = lived(ALL)
    with pytest.raises(
        Misconfigured, match=r"likes: this rule is active, and the rule file does not contain it.*retired"
    ):
        stage.under(TAGS + NAMES + SIGHT + LISTED + AUTHOR).filled()


@pytest.mark.parametrize("shards", [1, 3])
def test_scores_that_expired_count_in_the_version_that_kept_them_only_and_flags_in_all(shards: int) -> None:
    rules = f"""# entities:
table: {{key: [PK, SK], ttl: ttl}}
entities:
  Score: {{key: {{PK: "BOARD#{{board}}", SK: "PLAYER#{{p}}"}}, expires: true}}
  Board: {{key: {{PK: "BOARD#{{board}}", SK: META}}}}
projections:
  r: {{from: Score, expired: keep, rank: {{into: Board, by: points, digits: DIGITS, shards: {shards}}}}}
  seen: {{from: Score, expired: keep, flag: {{into: Board, shards: {shards}, set: {{seen: DIGITS}}}}}}
"""
    stage = Stage(rules.replace("DIGITS", "6"))
    for board, sort in ("x", "PLAYER#a"), ("x", "PLAYER#b"), ("x", "PLAYER#c"), ("y", "PLAYER#a"), ("y", "META"):
        stage.put(f"BOARD#{board}", sort, points=5)
    stage.settle()
    stage.remove("BOARD#x", "PLAYER#a", by_ttl=True)
    stage.remove("BOARD#y", "PLAYER#a", by_ttl=True)
    stage.settle()
    found = []
    for digits in (4, 6, 4, 6):
        stage = stage.under(rules.replace("DIGITS", str(digits)))
        stage.filled()
        rank = ranking_of(stage.program, stage.store, "r", {"board": "x"}).rank(5)
        found.append((rank.rank, rank.equal, rank.total, stage.item("BOARD#y", "META").get("seen")))
        assert drifts(stage) == []
    assert found == [(1, 2, 2, 4), (1, 3, 3, 6)] * 2
    stage.remove("BOARD#x", "PLAYER#b", by_ttl=True)
    stage.settle()
    assert ranking_of(stage.program, stage.store, "r", {"board": "x"}).rank(5).total == 3

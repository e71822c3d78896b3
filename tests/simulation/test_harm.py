"""The oracle of what belongs to the application, against writes made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from projections.language.keys import ItemKey
from projections.language.loader import loads
from projections.language.program import Program
from projections.local.items import wire_item
from projections.testing.simulation.harm import Harm, Ownership

RULES = """
table: { key: [PK, SK] }
entities:
  User: { key: { PK: "U#{user}", SK: U }, match: { type: user } }
  Post: { key: { PK: "P#{post}", SK: P } }
  Note: { key: { PK: "N#{note}", SK: N } }
  Tag: { key: { PK: "T#{tag}", SK: T }, match: { type: tag }, derived: true }
  Whole: { key: { PK: "W#{note}", SK: W } }
projections:
  posts: { from: Post, aggregate: { into: User, set: { posts: count } } }
  tags: { from: Post, aggregate: { into: Tag, set: { count: count } } }
  whole: { from: Note, copy: { into: Whole, attributes: all } }
"""
PROGRAM = Program.from_document(loads(RULES, "rules.yaml").document())
USER = ItemKey("main", "U#1", "U")
TAG = ItemKey("main", "T#1", "T")
NOTE = ItemKey("main", "N#1", "N")
WHOLE = ItemKey("main", "W#1", "W")
CREATED = {"count": 1, "guard_tags": {"at": "1", "n": 1, "d": "abcdefgh", "s": "stuvwxyz"}, "guard_": "ijklmnop"}
"""What the rule sets on an item that it creates: the last one is the mark."""


@pytest.fixture
def harm() -> Harm:
    return Harm(Ownership([PROGRAM]))


def image(key: ItemKey, **attributes: Any) -> dict[str, Any]:
    content = {name.replace("guard_", "~"): value for name, value in attributes.items()}
    return dict(wire_item({"PK": key.partition, "SK": key.sort, **content}, "test"))


def found(harm: Harm, key: ItemKey, before: Any, after: Any) -> list[str]:
    return list(harm.check_write(key, before, after, "engine"))


def test_rule_may_set_its_own_attributes(harm: Harm) -> None:
    before, after = image(USER, type="user", posts=7), image(USER, type="user", posts=1, guard_posts={"n": 1})
    harm.note_write(USER, None, before)
    assert found(harm, USER, before, after) == []


def test_changed_attribute_of_the_application_is_harm(harm: Harm) -> None:
    before = image(USER, type="user", name="Ann")
    harm.note_write(USER, None, before)
    assert found(harm, USER, before, image(USER, type="user", name="Bob"))
    assert found(harm, USER, before, image(USER, type="user"))
    assert found(harm, USER, before, image(USER, name="Ann"))


def test_write_to_an_item_of_another_kind_is_harm(harm: Harm) -> None:
    before = image(USER, type="robot", posts="mine")
    harm.note_write(USER, None, before)
    assert found(harm, USER, before, image(USER, type="robot", posts=1))
    assert found(harm, USER, image(USER, type="robot"), image(USER, type="robot", posts=1))


def test_published_value_may_be_removed_when_the_item_leaves_its_entity(harm: Harm) -> None:
    first = image(USER, type="user")
    published = image(USER, type="user", posts=1, guard_posts={"n": 1})
    left = image(USER, type="robot", posts=1, guard_posts={"n": 1})
    harm.note_write(USER, None, first)
    assert found(harm, USER, first, published) == []
    harm.note_write(USER, published, left)
    assert list(harm.leftovers({USER: left}, (), PROGRAM))
    assert found(harm, USER, left, image(USER, type="robot")) == []
    assert list(harm.leftovers({USER: image(USER, type="robot")}, (), PROGRAM)) == []


def test_value_that_the_application_set_with_another_kind_is_its_own(harm: Harm) -> None:
    first = image(USER, type="user")
    published = image(USER, type="user", posts=1, guard_posts={"n": 1})
    left = image(USER, type="robot", posts="mine", guard_posts={"n": 1})
    harm.note_write(USER, None, first)
    assert found(harm, USER, first, published) == []
    harm.note_write(USER, published, left)
    assert found(harm, USER, left, image(USER, type="robot"))


def test_deletion_of_an_item_of_the_application_is_harm(harm: Harm) -> None:
    item = image(TAG, type="tag")
    harm.note_write(TAG, None, item)
    assert found(harm, TAG, item, None)


def test_created_item_may_be_deleted(harm: Harm) -> None:
    item = image(TAG, type="tag", **CREATED)
    assert found(harm, TAG, None, item) == []
    assert found(harm, TAG, item, None) == []
    assert list(harm.check_end("engine")) == []


def test_created_item_that_was_put_back_with_its_guard_is_a_created_item(harm: Harm) -> None:
    item = image(TAG, type="tag", **CREATED)
    assert found(harm, TAG, None, item) == []
    harm.note_write(TAG, item, None)
    harm.note_write(TAG, None, item)
    assert found(harm, TAG, item, None) == []


def test_item_with_the_guard_of_another_item_is_the_applications(harm: Harm) -> None:
    other = TAG._replace(partition="T#2")
    assert found(harm, TAG, None, image(TAG, type="tag", **CREATED)) == []
    clone = image(other, type="tag", **CREATED)
    harm.note_write(other, None, clone)
    assert found(harm, other, clone, None)


def test_deleted_attribute_has_to_be_restored(harm: Harm) -> None:
    created = image(TAG, type="tag", **CREATED)
    annotated = {**created, "note": {"S": "mine"}}
    for restores in (True, False):
        assert found(harm, TAG, None, created) == []
        harm.note_write(TAG, created, annotated)
        assert found(harm, TAG, annotated, None) == []
        restored = image(TAG, type="tag", note="mine")
        if restores:
            assert harm.restores(TAG, restored)
            assert found(harm, TAG, None, restored) == []
        assert bool(list(harm.check_end("engine"))) is not restores


def test_process_that_died_restores_nothing(harm: Harm) -> None:
    created = image(TAG, type="tag", **CREATED)
    annotated = {**created, "note": {"S": "mine"}}
    assert found(harm, TAG, None, created) == []
    harm.note_write(TAG, created, annotated)
    assert found(harm, TAG, annotated, None) == []
    harm.forget("engine")
    assert list(harm.check_end("engine")) == []


def test_item_that_exists_must_not_be_marked_as_created(harm: Harm) -> None:
    before, after = image(TAG, type="tag"), image(TAG, type="tag", **CREATED)
    harm.note_write(TAG, None, before)
    assert found(harm, TAG, before, after)


def test_copy_of_all_attributes_keeps_what_its_source_never_had(harm: Harm) -> None:
    source = image(NOTE, text="a", note="of the source")
    harm.note_write(NOTE, None, source)
    adopted = image(WHOLE, text="mine", own="mine", note="mine")
    harm.note_write(WHOLE, None, adopted)
    assert found(harm, WHOLE, adopted, image(WHOLE, text="a", own="mine")) == []
    assert found(harm, WHOLE, image(WHOLE, text="a", own="mine"), image(WHOLE, text="a"))


def test_copy_of_all_attributes_removes_what_a_rule_set_on_its_source(harm: Harm) -> None:
    source, computed = image(NOTE, text="a"), image(NOTE, text="a", length=1)
    harm.note_write(NOTE, None, source)
    list(harm.check_write(NOTE, source, computed, "engine"))
    overwritten = image(WHOLE, text="a", length=9)
    harm.note_write(WHOLE, None, overwritten)
    assert found(harm, WHOLE, overwritten, image(WHOLE)) == []

"""Embeds of several parents: lists and maps, links, and that a slow writer never restores what an older parent gave."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from projections.engine import embed_lists, plan
from projections.engine.embed_lists import ListEmbedder
from projections.engine.embeds import Embedder
from projections.engine.refresh import Refresher
from projections.engine.running import Deadline
from projections.engine.store import AllOf, ItemKey, Update
from projections.language.embeds import MOST_REFERENCES, ListEmbedRule
from projections.language.keys import encode_key
from projections.language.rules import LIST_BYTES
from projections.language.values import size, wire
from tests.engine.scene import before
from tests.engine.world import COURSES, World

LIST = """
  teachers:
    from: User
    where: {banned: [{exists: false}]}
    embed: {into: Course, match: {teacherIds: "{userId}"}, as: teachers, attributes: {name: name, picture: avatar}}
"""
MAP = LIST.replace("attributes:", "form: map, missing: id, attributes:")
COURSE = ItemKey("main", "COURSE#1", "INFO")


def world(rules: str = LIST, **settings: Any) -> World:
    return World(rules, COURSES, **settings)


def course(w: World, *teachers: Any, number: int = 1, **attributes: Any) -> None:
    w.put(f"COURSE#{number}", "INFO", teacherIds=list(teachers), **attributes)


def user(w: World, name: str, **attributes: Any) -> None:
    w.put(f"USER#{name[0].lower()}", "PROFILE", name=name, **attributes)


def teachers(w: World, number: int = 1) -> Any:
    item = w.item(f"COURSE#{number}", "INFO")
    return None if item is None else item.get("teachers")


def links(w: World) -> list[tuple[str, str]]:
    """Parent and child of each link."""
    return sorted((one["pk"].rpartition("|")[0].partition("USER#")[2], one["child"]) for one in w.ledger("L|"))


def embedder(w: World) -> ListEmbedder:
    return Embedder(w.program, w.store, w.guards()).lists


def rule(w: World) -> ListEmbedRule:
    found = w.program.embeds["teachers"]
    assert isinstance(found, ListEmbedRule)
    return found


def test_child_has_its_parents_in_the_order_of_its_references() -> None:
    w = world()
    user(w, "Ann", avatar="a.png")
    user(w, "Bob")
    course(w, "b", "a", "b")
    w.settle()
    assert teachers(w) == [{"id": "b", "name": "Bob"}, {"id": "a", "name": "Ann", "picture": "a.png"}]
    user(w, "Anna")
    w.settle()
    assert teachers(w) == [{"id": "b", "name": "Bob"}, {"id": "a", "name": "Anna"}]
    course(w, "a", "b")
    w.settle()
    assert teachers(w) == [{"id": "a", "name": "Anna"}, {"id": "b", "name": "Bob"}]


def test_parents_that_are_missing_or_excluded_are_left_out_or_keep_their_reference() -> None:
    for rules, initial, after in (
        (LIST, [{"id": "a", "name": "Ann"}], [{"id": "z", "name": "Zoe"}]),
        (MAP, {"a": {"name": "Ann"}, "b": {}, "z": {}}, {"a": {}, "b": {}, "z": {"name": "Zoe"}}),
    ):
        w = world(rules)
        user(w, "Ann")
        user(w, "Bob", banned=True)
        course(w, "a", "b", "z")
        w.settle()
        assert teachers(w) == initial
        w.remove("USER#a", "PROFILE")
        user(w, "Zoe")
        w.settle()
        assert teachers(w) == after


def test_parent_without_attributes_is_not_missing() -> None:
    w = world()
    w.put("USER#a", "PROFILE")
    course(w, "a", "b")
    w.settle()
    assert teachers(w) == [{"id": "a"}]
    w.remove("USER#a", "PROFILE")
    w.settle()
    assert teachers(w) == []


def test_child_without_references_has_no_list_and_one_with_none_an_empty_one() -> None:
    w = world()
    course(w)
    w.settle()
    assert teachers(w) == []
    w.put("COURSE#1", "INFO", teachers=["forged"])
    w.settle()
    assert teachers(w) is None
    assert w.item("COURSE#1", "INFO", guards=True) == {"PK": "COURSE#1", "SK": "INFO"}


@pytest.mark.parametrize("value", ["a", [{"x": 1}], {"a": 1}, True], ids=["text", "list of maps", "map", "boolean"])
def test_references_of_another_type_are_rejected_once(value: Any) -> None:
    w = world()
    user(w, "Ann")
    course(w, "a")
    w.settle()
    w.put("COURSE#1", "INFO", teacherIds=value)
    w.settle()
    assert teachers(w) is None
    (rejected,) = w.rejected
    assert "teacherIds" in rejected.reason
    assert rejected.rule == "teachers"


def test_only_the_first_references_count_and_a_list_ends_before_it_is_too_large() -> None:
    w = world(LIST.replace("as: teachers,", "as: teachers, missing: id,"))
    course(w, *(f"u{number}" for number in range(MOST_REFERENCES + 5)))
    outcome = w.deliver()
    assert [one["id"] for one in teachers(w)] == [f"u{number}" for number in range(MOST_REFERENCES)]
    assert outcome.counts["cut"] == 1
    assert len(links(w)) == MOST_REFERENCES
    for number in range(40):
        w.put(f"USER#u{number}", "PROFILE", name="x" * 1000)
    w.settle()
    value = wire(teachers(w))
    assert LIST_BYTES - 1100 < size(value) <= LIST_BYTES
    assert len(teachers(w)) == 32


def test_links_follow_the_references() -> None:
    w = world()
    course(w, "a", "b")
    w.settle()
    assert links(w) == [("a", encode_key(COURSE)), ("b", encode_key(COURSE))]
    course(w, "b", "c")
    w.settle()
    assert [parent for parent, _ in links(w)] == ["b", "c"]
    w.remove("COURSE#1", "INFO")
    w.settle()
    assert links(w) == []


def test_push_deletes_links_to_children_that_do_not_reference_the_parent() -> None:
    w = world()
    course(w, "a")
    w.settle()
    embedder(w)._link(rule(w), [encode_key(ItemKey("main", "USER#b", "PROFILE"))], encode_key(COURSE), after(), ())
    user(w, "Bob")
    w.settle()
    assert [parent for parent, _ in links(w)] == ["a"]


def test_push_goes_over_all_children_page_by_page() -> None:
    w = world()
    for number in range(250):
        course(w, "a", "b", number=number)
    w.settle()
    user(w, "Ann")
    w.settle()
    assert [number for number in range(250) if teachers(w, number) != [{"id": "a", "name": "Ann"}]] == []


def test_values_and_guards_that_the_application_changes_are_healed() -> None:
    w = world()
    user(w, "Ann")
    course(w, "a")
    w.settle()
    before = w.store.get(COURSE)
    assert before is not None
    for change in (
        {"teachers": {"S": "mine"}},
        {"~teachers": {"S": "mine"}},
        {"teachers": {"L": []}, "remark": {"S": "x"}},
    ):
        w.store.put("main", {**(w.store.get(COURSE) or {}), **change})
        w.settle()
        assert teachers(w) == [{"id": "a", "name": "Ann"}]
    user(w, "Anna")
    w.settle()
    w.store.put("main", before)  # with its old guard
    w.settle()
    assert teachers(w) == [{"id": "a", "name": "Anna"}]


def test_item_that_leaves_its_entity_loses_list_and_links() -> None:
    w = World(LIST, COURSES.replace("SK: INFO}", "SK: INFO}, match: {kind: course}"))
    user(w, "Ann")
    course(w, "a", kind="course")
    w.settle()
    assert teachers(w)
    w.store.put("main", {**(w.store.get(COURSE) or {}), "kind": {"S": "talk"}})
    w.settle()
    assert teachers(w) is None
    assert links(w) == []


def test_scan_writes_what_is_missing_and_nothing_else() -> None:
    w = world()
    user(w, "Ann")
    course(w, "a")
    w.settle()
    snapshot = w.registry().read_or_create()
    refresher = Refresher(w.program, w.store, snapshot)

    def scan() -> int:
        w.store.calls.clear()
        refresher.refresh_scanned({COURSE: w.store.get(COURSE) or {}}, after())
        assert not refresher.failed
        assert not refresher.rejected
        return w.store.calls["update"]

    assert scan() == 0
    guard = (w.store.get(COURSE) or {})["~teachers"]
    (link,) = (ItemKey("ledger", one["pk"], one["sk"]) for one in w.ledger("L|"))
    w.store.remove(link)
    scan()
    assert [parent for parent, _ in links(w)] == ["a"]
    assert (w.store.get(COURSE) or {})["~teachers"] != guard
    refresher.keys([COURSE], after())  # as a redrive does: nothing is known about its records
    assert (w.store.get(COURSE) or {})["~teachers"] != guard


# Races: a writer is interrupted between reading and writing


def after() -> Deadline:
    return Deadline.after(60)


def interrupted(w: World, meanwhile: Callable[[], object]) -> None:
    """Let something happen once, just before the next list is written: after its writer has read child and parents."""
    left = [meanwhile]

    def once() -> None:
        if left:
            left.pop()()

    before(w, "write", once, when=lambda one: one.key == COURSE)
    before(w, "write_each", once, when=lambda some: any(one.key == COURSE for one in some))


def taken(w: World) -> list[Any]:
    """The records of a change of the name to Alf, not delivered yet."""
    user(w, "Ann")
    course(w, "a")
    w.settle()
    user(w, "Alf")
    passed = w.records()
    w.position += len(passed)
    return passed


def test_slow_writer_does_not_restore_an_older_parent_if_the_list_was_right_meanwhile() -> None:
    """The name changes and changes back: a push that found the list right, and left its guard, would lose to the pull."""
    w = world()
    passed = taken(w)

    def back() -> None:
        user(w, "Ann")
        w.deliver()

    interrupted(w, back)
    w.deliver(passed)  # reads Alf, and comes to write after the push of Ann
    w.settle()
    assert teachers(w) == [{"id": "a", "name": "Ann"}]


def test_slow_writer_does_not_take_a_later_guard_for_the_one_that_it_read() -> None:
    """The application puts the item again, so its guards begin to count again."""
    w = world()
    passed = taken(w)

    def again() -> None:
        user(w, "Ann")
        w.deliver()
        course(w, "a")
        w.deliver()

    interrupted(w, again)
    w.deliver(passed)
    w.settle()
    assert teachers(w) == [{"id": "a", "name": "Ann"}]


def test_parent_that_changes_while_a_new_child_reads_it_finds_the_child() -> None:
    w = world()
    user(w, "Ann")
    w.settle()
    course(w, "a")

    def changed() -> None:
        user(w, "Anna")
        records = w.records()
        w.deliver(records)
        w.position += len(records)

    passed = w.records()
    w.position += len(passed)
    interrupted(w, changed)
    w.deliver(passed)
    assert teachers(w) == [{"id": "a", "name": "Anna"}]


def test_link_that_was_written_again_is_not_deleted() -> None:
    w = world()
    user(w, "Ann")
    course(w, "a")
    w.settle()
    lists, old = embedder(w), w.ledger("L|")
    held = {name: wire(value) for name, value in old[0].items()}
    lists._link(rule(w), [encode_key(ItemKey("main", "USER#a", "PROFILE"))], encode_key(COURSE), after(), ())
    lists._unlink(rule(w), "", ItemKey("ledger", old[0]["pk"], old[0]["sk"]), held, ())
    assert len(w.ledger("L|")) == 1


def test_list_of_references_that_changed_meanwhile_is_not_written() -> None:
    w = world()
    user(w, "Ann")
    user(w, "Bob")
    course(w, "a")
    written: list[Any] = []
    interrupted(w, lambda: w.store.put("main", {**(w.store.get(COURSE) or {}), "teacherIds": wire(["b"])}))
    w.deliver()
    written.append(teachers(w))
    assert written == [[{"id": "b", "name": "Bob"}]]


def test_update_is_conditional() -> None:
    w = world()
    course(w, "a")
    w.settle()
    updates: list[Update] = []
    write = w.store.write
    w.store.write = lambda one: updates.append(one) or write(one)  # type: ignore
    embedder(w).pull(rule(w), COURSE, after(), added=())
    (update,) = updates
    assert all(name in str(update.condition) for name in ("teacherIds", "~teachers", "PK"))


# Defects that few histories of the simulation show


@contextmanager
def late_links() -> Iterator[None]:
    link, count = ListEmbedder._link, ListEmbedder._count
    late: list[Any] = []

    def written(self: Any, name: str, wanted: Any) -> None:
        count(self, name, wanted)
        while late:
            link(self, *late.pop())

    with (
        patch.object(ListEmbedder, "_link", lambda self, *of: late.append(of)),
        patch.object(ListEmbedder, "_count", written),
    ):
        yield


@contextmanager
def one_page() -> Iterator[None]:
    original = Embedder.following
    with patch.object(Embedder, "following", lambda self, push, more: original(self, push, None)):
        yield


@contextmanager
def kept_when_gone() -> Iterator[None]:
    original = plan.push_reason
    with patch.object(plan, "push_reason", lambda rule, old, new, changed: new and original(rule, old, new, changed)):
        yield


def always(*_: object) -> AllOf:
    return AllOf(())


DEFECTS: dict[str, tuple[Callable[[], Any], Callable[[], None]]] = {
    "a list that is right keeps its guard": (
        lambda: patch.object(embed_lists, "_is_due", lambda wanted, *_, **__: not wanted.right),
        test_slow_writer_does_not_restore_an_older_parent_if_the_list_was_right_meanwhile,
    ),
    "guards have no token": (
        lambda: patch.object(Deadline, "token", lambda self: "same"),
        test_slow_writer_does_not_take_a_later_guard_for_the_one_that_it_read,
    ),
    "links are written after the list": (
        late_links,
        test_parent_that_changes_while_a_new_child_reads_it_finds_the_child,
    ),
    "links are deleted without a condition": (
        lambda: patch.object(embed_lists, "Equal", always),
        test_link_that_was_written_again_is_not_deleted,
    ),
    "the references are not in the condition": (
        lambda: patch.object(embed_lists, "as_read", always),
        test_list_of_references_that_changed_meanwhile_is_not_written,
    ),
    "parents that are gone are not pushed": (kept_when_gone, test_parent_without_attributes_is_not_missing),
    "a push ends with its first page": (one_page, test_push_goes_over_all_children_page_by_page),
}


@pytest.mark.parametrize(("defect", "test"), DEFECTS.values(), ids=DEFECTS)
def test_defect_fails_the_test_that_is_about_it(defect: Callable[[], Any], test: Callable[[], None]) -> None:
    with defect(), pytest.raises(AssertionError):
        test()

"""Rules do no harm: what the application wrote stays, whatever the rules do to the same items."""

from __future__ import annotations

from typing import Any

import pytest

from projections.engine.application import ApplicationItems
from projections.engine.guards import Guards
from projections.engine.store import Delete, Image, ItemKey, Purpose, Update, Write
from projections.language.values import plain_item
from projections.operations.dry import Cautious
from projections.operations.verify.repair import verify_and_repair
from tests.engine.scene import Scene, before
from tests.engine.world import World, wires
from tests.operations.verify_scene import drifts, repaired

HEAD = """
table:
  key: [PK, SK]
  indexes: {GSI1: [GSI1PK, GSI1SK]}
entities:
  Reader: {key: {PK: "READER#{readerId}", SK: CARD}, match: {kind: reader}}
  Loan: {key: {PK: "READER#{readerId}", SK: "LOAN#{bookId}"}, match: {kind: loan}}
  Book: {key: {PK: "BOOK#{bookId}", SK: DATA}, match: {kind: book}}
  Spine: {key: {PK: "SPINE#{bookId}", SK: LABEL}, match: {kind: spine}}
  Mail: {key: {PK: "MAIL#{mail}", SK: ENTRY}, match: {kind: mail}}
  Shelf: {key: {PK: "SHELF#{shelf}", SK: STATS}, match: {kind: shelf}, derived: true}
projections:
"""
KINDS = HEAD.replace(", derived: true", "")
RULES = """
  loans: {from: Loan, aggregate: {into: Book, set: {loanCount: count, days: sum(days)}}}
  longest: {from: Loan, top: {into: Book, as: longest, by: days, limit: 2, attributes: [readerId]}}
  spine: {from: Book, copy: {into: Spine, attributes: [title]}}
  mail: {from: Reader, copy: {into: Mail, attributes: [readerId, name]}}
  shelves: {from: Book, each: {shelf: shelves}, aggregate: {into: Shelf, set: {books: count}}}
  listed: {from: Book, index: {GSI1PK: BOOKS, GSI1SK: "{title}"}}
  borrower: {from: Reader, embed: {into: Loan, match: {readerId: "{readerId}"}, attributes: {readerName: name}}}
"""

BOOK, SPINE, MAIL, SHELF = ("BOOK#7", "DATA"), ("SPINE#7", "LABEL"), ("MAIL#ida@x", "ENTRY"), ("SHELF#north", "STATS")
READER, LOAN = ("READER#ida", "CARD"), ("READER#ida", "LOAN#7")
CREATED = {"spine": SPINE, "mail": MAIL, "shelves": SHELF}
"""By rule that creates items, the key of the item that it creates in `library`."""

Key = tuple[str, str]


def put_reader(w: Scene, **attributes: Any) -> None:
    w.put(*READER, kind="reader", **{"name": "Ida", "mail": "ida@x", **attributes})


def put_book(w: Scene, **attributes: Any) -> None:
    w.put(*BOOK, kind="book", **{"title": "Atlas", "shelves": ["north"], **attributes})


def put_loan(w: Scene, **attributes: Any) -> None:
    w.put(*LOAN, kind="loan", **{"days": 14, **attributes})


def put_sources(w: Scene) -> None:
    put_reader(w)
    put_book(w)
    put_loan(w)


def remove_sources(w: Scene) -> None:
    for at in (LOAN, BOOK, READER):
        w.remove(*at)


def library(rules: str = RULES, head: str = HEAD) -> Scene:
    """A reader with a loan of a book, and everything that the rules make of them."""
    w = Scene(rules, head)
    put_sources(w)
    w.settle()
    assert w.differences() == []
    return w


def image(w: Scene, at: Key) -> Image | None:
    return w.store.get(ItemKey("main", *at))


def change(w: Scene, at: Key, remove: tuple[str, ...] = (), **attributes: Any) -> None:
    """The application changes attributes of an item as it is now."""
    held = image(w, at) or {}
    kept = {name: value for name, value in held.items() if name not in remove}
    w.store.put("main", {**w.program.tables["main"].wire(ItemKey("main", *at)), **kept, **wires(attributes)})


def plain(w: Scene, at: Key) -> dict[str, Any] | None:
    """An item without its key and guards."""
    item = w.item(*at)
    return None if item is None else {name: value for name, value in item.items() if name not in ("PK", "SK")}


def written(w: Scene) -> list[ItemKey]:
    """A list that all writes to the application's items from now on are added to, by key."""
    found: list[ItemKey] = []
    single, many, together = w.store.write, w.store.write_each, w.store.transact

    def note(writes: Any) -> None:
        found.extend(one.key for one in writes if one.key.table == "main")

    def write(one: Write) -> Image | None:
        note([one])
        return single(one)

    def write_each(some: list[Update]) -> Any:
        note(some)
        return many(some)

    def transact(some: list[Write]) -> None:
        note(some)
        return together(some)

    w.store.write, w.store.write_each, w.store.transact = write, write_each, transact  # type: ignore
    return found


# Deletion


@pytest.mark.parametrize("rule", CREATED)
def test_an_attribute_added_between_look_and_deletion_is_restored(rule: str) -> None:
    w = library()
    at = CREATED[rule]
    constants = {"kind": (plain(w, at) or {})["kind"]}
    remove_sources(w)
    deletes = ItemKey("main", *at)
    edits = lambda: change(w, at, note="fragile")  # noqa: E731
    before(w, "write", edits, when=lambda one: isinstance(one, Delete) and one.key == deletes)
    w.settle()
    assert kept(plain(w, at)) == {**constants, "note": "fragile"}
    assert w.differences() == []


def test_what_a_deletion_took_is_restored_although_the_pace_of_a_task_leaves_no_time() -> None:
    w = library()
    left = iter([1])
    paced = Cautious(w.store, deletes=True, pace=lambda writes: next(left))
    key, guards = ItemKey("main", *SHELF), Guards(w.program, w.registry().read_or_create().identity)
    seen = image(w, SHELF) or {}
    change(w, SHELF, note="fragile")
    ApplicationItems(w.program, paced, guards).delete(w.program.entities["Shelf"], key, seen, Purpose("delete"))
    assert plain(w, SHELF) == {"kind": "shelf", "note": "fragile"}


def test_nothing_is_restored_over_an_item_that_the_application_puts_after_the_deletion() -> None:
    w = library()
    original = w.store.write

    def write(one: Write) -> Image | None:
        if not (isinstance(one, Delete) and one.key == ItemKey("main", *SPINE)):
            return original(one)
        del w.store.write  # type: ignore[method-assign]
        change(w, SPINE, note="fragile")
        removed = original(one)
        w.put(*SPINE, kind="box", volume=3)
        return removed

    w.remove(*BOOK)
    w.store.write = write  # type: ignore[method-assign]
    w.settle()
    assert plain(w, SPINE) == {"kind": "box", "volume": 3}


@pytest.mark.parametrize("rule", CREATED)
def test_a_created_item_with_an_attribute_of_the_application_stays(rule: str) -> None:
    w = library()
    at = CREATED[rule]
    kind = (plain(w, at) or {})["kind"]
    change(w, at, note="fragile")
    w.settle()
    remove_sources(w)
    w.settle()
    left = plain(w, at) or {}
    assert (left.get("kind"), left.get("note")) == (kind, "fragile")
    assert left.keys() <= {"kind", "note", "books"}, "only zeros of the rule may be left"
    assert w.differences() == []
    assert repaired(w) == []
    assert plain(w, at) == left


def test_claimed_copy_of_all_attributes_removes_nothing_from_an_item_of_the_application() -> None:
    """Nothing records which attributes were copied."""
    w = Scene(RULES.replace("into: Mail, attributes: [readerId, name]", "into: Mail, attributes: all"), HEAD)
    w.put(*MAIL, kind="mail", note="mine")
    put_reader(w, name="Ida")
    w.settle()
    copied = {"kind": "mail", "note": "mine", "name": "Ida", "mail": "ida@x"}
    assert plain(w, MAIL) == copied
    w.remove(*READER)
    w.settle()
    assert plain(w, MAIL) == copied
    assert w.differences() == []


def test_mark_and_guard_of_a_copy_of_all_attributes_leave_an_item_that_is_the_applications_by_now() -> None:
    w = library(RULES.replace("into: Spine, attributes: [title]", "into: Spine, attributes: all"))
    change(w, SPINE, note="fragile")
    change(w, SPINE, remove=("kind",))
    w.settle()
    assert (image(w, SPINE) or {}).keys() == {"PK", "SK", "note"}


@pytest.mark.parametrize("created", [True, False], ids=["created by the rule", "of the application"])
def test_retracted_claim_that_is_published_late_is_removed_again(created: bool) -> None:
    """The item has no guard that shows that the publish is old: the record of the publish leads to the correction."""
    w = Scene(RULES, HEAD)
    if not created:
        w.put(*MAIL, kind="mail")
    put_reader(w)
    w.settle()
    change(w, MAIL, note="mine", remove=("~mail",))
    published: list[Update] = []
    original = w.store.write

    def write(one: Write) -> Image | None:
        if isinstance(one, Update) and one.key == ItemKey("main", *MAIL):
            published.append(one)
        return original(one)

    w.store.write = write  # type: ignore[method-assign]
    w.settle()
    w.remove(*READER)
    w.settle()
    change(w, MAIL, remove=("~mail", "readerId", "name"))
    w.settle()
    expected = {"kind": "mail", "note": "mine"}
    assert plain(w, MAIL) == expected
    original(published[0])
    assert (plain(w, MAIL) or {})["readerId"] == "ida"
    w.settle()
    assert kept(plain(w, MAIL)) == expected
    assert w.differences() == []


@pytest.mark.parametrize("rule", CREATED)
@pytest.mark.parametrize("attributes", [{}, {"note": "by hand"}], ids=["bare", "with a note"])
def test_an_adopted_item_is_never_deleted(rule: str, attributes: dict[str, Any]) -> None:
    w = Scene(RULES, HEAD)
    at, kind = CREATED[rule], {"spine": "spine", "mail": "mail", "shelves": "shelf"}[rule]
    w.put(*at, kind=kind, **attributes)
    w.settle()
    put_sources(w)
    w.settle()
    assert w.differences() == []
    remove_sources(w)
    w.settle()
    assert {**kept(plain(w, at))} == {"kind": kind, **attributes}
    w.backfill()
    w.settle()
    assert repaired(w) == []
    w.settle()
    assert {**kept(plain(w, at))} == {"kind": kind, **attributes}


def kept(item: dict[str, Any] | None) -> dict[str, Any]:
    """What is on an item but for zeros that a rule publishes."""
    assert item is not None
    return {name: value for name, value in item.items() if (name, value) != ("books", 0)}


@pytest.mark.parametrize("rule", CREATED)
def test_an_item_that_the_application_replaces_is_its_own_from_then_on(rule: str) -> None:
    w = library()
    at = CREATED[rule]
    kind = (plain(w, at) or {})["kind"]
    w.put(*at, kind=kind, colour="red")  # whole, without the guard that marked it as created
    w.settle()
    remove_sources(w)
    w.settle()
    assert kept(plain(w, at)) == {"kind": kind, "colour": "red"}


# Items of another kind

OTHERS: dict[Key, dict[str, Any]] = {
    BOOK: {"kind": "magazine", "loanCount": 99, "GSI1PK": "MAGAZINES", "GSI1SK": "1", "longest": "issue 4"},
    SPINE: {"kind": "bone", "title": "L5"},
    MAIL: {"kind": "parcel", "readerId": "nobody", "name": {"first": "N"}},
    SHELF: {"kind": "cliff", "books": "none"},
    LOAN: {"kind": "loan-request", "readerName": ["I", "d", "a"], "days": 2},
}


def occupied_library() -> Scene:
    """Items of other kinds under all keys that rules write to, some of their attributes called like the rules'."""
    w = Scene(RULES, HEAD)
    for at, attributes in OTHERS.items():
        w.put(*at, **attributes)
    w.settle()
    return w


def put_other_sources(w: Scene) -> None:
    """Sources whose targets are the keys in OTHERS, but for the book's own copies and shelves: see `put_second_book`."""
    put_reader(w)
    w.put("READER#olga", "LOAN#7", kind="loan", days=5)
    w.put("BOOK#8", "DATA", kind="book", title="Globe", shelves=["north", "south"])


def assert_untouched(w: Scene, keys: list[ItemKey]) -> None:
    for at, attributes in OTHERS.items():
        assert plain(w, at) == attributes
        assert not [name for name in image(w, at) or {} if name.startswith("~")]
        assert ItemKey("main", *at) not in keys


def test_publishes_and_claims_do_not_write_to_items_of_another_kind() -> None:
    w = occupied_library()
    put_other_sources(w)
    w.settle()
    assert_untouched(w, [])
    assert {one.rule for one in w.rejected if one.reason.startswith("occupied:")} == {"mail", "shelves"}
    assert plain(w, ("SHELF#south", "STATS")) == {"kind": "shelf", "books": 1}


def test_guarded_copies_do_not_write_to_items_of_another_kind() -> None:
    w = occupied_library()
    put_book(w)  # the application replaces the magazine
    w.settle()
    assert plain(w, SPINE) == OTHERS[SPINE]
    assert {one.rule for one in w.rejected if one.reason.startswith("occupied:")} == {"spine", "shelves"}
    put_book(w, title="Atlas, second edition")
    w.remove(*BOOK)
    w.settle()
    assert plain(w, SPINE) == OTHERS[SPINE]
    assert plain(w, SHELF) == OTHERS[SHELF]


def test_index_rules_do_not_write_to_an_item_that_changes_its_kind_before_the_write() -> None:
    w = Scene(RULES, HEAD)
    put_book(w)
    before(
        w,
        "write",
        lambda: w.put(*BOOK, **OTHERS[BOOK], title="Atlas"),
        when=lambda one: isinstance(one, Update) and "GSI1PK" in one.set,
    )
    w.settle()
    assert plain(w, BOOK) == {**OTHERS[BOOK], "title": "Atlas"}


def test_index_rules_do_not_create_an_item_that_is_deleted_before_the_write() -> None:
    index = "  listed: {from: Loan, index: {GSI1PK: LOANS, GSI1SK: '{bookId}'}}\n"
    w = Scene(index, KINDS.replace(", match: {kind: loan}", ""))  # or its kind would be a condition, too
    put_loan(w)
    before(w, "write", lambda: w.remove(*LOAN))
    w.settle()
    assert w.item(*LOAN) is None


def test_neither_push_nor_pull_writes_to_children_of_another_kind() -> None:
    w = occupied_library()
    put_reader(w)
    w.settle()
    w.put("READER#ida", "LOAN#9", kind="loan", days=1)
    put_reader(w, name="Ida B.")
    w.settle()
    assert (plain(w, ("READER#ida", "LOAN#9")) or {})["readerName"] == "Ida B."
    change(w, LOAN, days=3)  # its record makes no pull either
    w.settle()
    assert plain(w, LOAN) == {**OTHERS[LOAN], "days": 3}


def test_a_child_that_changes_its_kind_during_a_push_is_not_written() -> None:
    w = library()
    put_reader(w, name="Ida B.")
    before(
        w,
        "write_each",
        lambda: w.put(*LOAN, **OTHERS[LOAN]),
        when=lambda some: ItemKey("main", *LOAN) in [one.key for one in some],
    )
    w.settle()
    assert plain(w, LOAN) == OTHERS[LOAN]


def test_healing_does_not_write_to_items_of_another_kind() -> None:
    w = library()
    for at, attributes in OTHERS.items():  # each replaces an item that bears valid guards
        w.put(*at, **attributes)
    w.settle()
    assert_untouched(w, [])


@pytest.mark.parametrize("settled", [True, False], ids=["after the stream", "records lost"])
def test_backfill_and_repair_do_not_write_to_items_of_another_kind(settled: bool) -> None:
    w = occupied_library()
    put_other_sources(w)
    if settled:
        w.settle()
    else:
        w.lose()
    keys = written(w)
    w.backfill()
    assert_untouched(w, keys)
    assert {drift.kind for drift in drifts(w)} == {"occupied"}
    left = repair_as_far_as_possible(w)
    assert {(drift.kind, drift.rule) for drift in left} == {("occupied", "mail"), ("occupied", "shelves")}
    assert_untouched(w, keys)


def repair_as_far_as_possible(w: Scene) -> list[Any]:
    with verify_and_repair(w.program, w.store, repair=True, allow_delete=True, patience=0.0, segments=1) as done:
        assert done.repair is not None
        assert all(reason.startswith("occupied:") for reason in done.repair.rejected.values())
        return list(done.verification.drifts())


@pytest.mark.parametrize("leaves", ["removed", "of the kind"])
@pytest.mark.parametrize("rule", CREATED)
def test_the_item_of_a_rule_appears_when_the_key_becomes_free(rule: str, leaves: str) -> None:
    w = Scene(RULES, HEAD)
    at, kind = CREATED[rule], {"spine": "spine", "mail": "mail", "shelves": "shelf"}[rule]
    w.put(*at, kind="squatter", age=4)
    put_sources(w)
    w.settle()
    assert plain(w, at) == {"kind": "squatter", "age": 4}
    expected = {
        "spine": {"kind": kind, "title": "Atlas"},
        "mail": {"kind": kind, "readerId": "ida", "name": "Ida"},
        "shelves": {"kind": kind, "books": 1},
    }[rule]
    if leaves == "removed":
        w.remove(*at)
    else:
        change(w, at, kind=kind)
        expected["age"] = 4
    w.settle()
    assert plain(w, at) == expected
    assert w.differences() == []
    assert drifts(w) == []


@pytest.mark.parametrize("rule", CREATED)
def test_nothing_appears_when_the_key_becomes_free_after_the_source_went(rule: str) -> None:
    w = Scene(RULES, HEAD)
    at = CREATED[rule]
    w.put(*at, kind="squatter")
    put_sources(w)
    w.settle()
    remove_sources(w)
    w.settle()
    w.remove(*at)
    w.settle()
    assert plain(w, at) is None


# Kinds that change


def test_a_claim_that_is_retracted_before_the_record_of_an_item_that_left_its_kind_leaves_the_guard_to_that_record() -> (
    None
):
    w = Scene(RULES, HEAD)
    w.put(*MAIL, kind="mail")
    put_reader(w)
    w.settle()
    assert (plain(w, MAIL) or {})["readerId"] == "ida"
    first = len(w.records())
    change(w, MAIL, kind="parcel")
    w.remove(*READER)
    left, removed = w.records()[first:]
    w.deliver([removed])
    w.deliver([left])
    w.settle()
    assert plain(w, MAIL) == {"kind": "parcel"}


@pytest.mark.parametrize("measure", ["days: max(number(days))", "spent: sum(days)"])
def test_a_promotion_before_the_record_of_an_item_that_left_its_kind_leaves_the_guard_to_that_record(
    measure: str,
) -> None:
    w = library()
    change(w, BOOK, kind="magazine", pages="by hand")
    w.under(RULES.replace("days: sum(days)", measure), HEAD).apply()
    w.under(RULES.replace("days: sum(days)", "pages: sum(days)"), HEAD).apply(promotes=False)
    w.settle()
    assert plain(w, BOOK) == {"kind": "magazine", "title": "Atlas", "shelves": ["north"], "pages": "by hand"}


@pytest.mark.parametrize("remove", [World.apply, lambda w, fates: w.registry().register(w.program, fates)])
def test_what_a_former_version_had_set_is_the_applications_when_the_rule_is_removed(remove: Any) -> None:
    w = library().under(RULES.replace("days: sum(", "pages: sum(").replace("[title]", "[shelves]"), HEAD)
    w.apply()
    for at in (BOOK, SPINE):
        change(w, at, days="mine", title="mine")
    w.settle()
    change(w, BOOK, shelves=["south"])
    put_loan(w, days=15)
    w.deliver()  # and their values are written after the removal is known
    after = w.under("".join(line for line in RULES.splitlines(True) if line[2:7] not in ("loans", "spine")), HEAD)
    remove(after, {"loans": "remove", "spine": "remove"})
    after.settle()
    for at in (BOOK, SPINE):
        assert {"days": "mine", "title": "mine"}.items() <= (plain(w, at) or {}).items()


def test_the_guards_of_a_version_that_functions_cannot_read_stay_although_the_version_before_leaves() -> None:
    w = library()
    new = w.under(RULES.replace("attributes: [title]", "attributes: [title, shelves]"), HEAD)
    new.registry().register(new.program)
    new.registry()._mark_stale(["spine.2"])
    spine = image(w, SPINE) or {}
    change(w, SPINE, kind="bone")
    w.settle()
    w.carry_out()
    assert (image(w, SPINE) or {})["~spine"] == spine["~spine"]
    assert w.registry().read_or_create().versions["spine.1"].state == "leaving"


def test_a_key_that_changes_its_kind_forwards_and_back() -> None:
    w = library()
    for number in range(3):
        change(w, BOOK, kind="magazine", issue=number)
        w.settle()
        assert plain(w, BOOK) == {"kind": "magazine", "title": "Atlas", "shelves": ["north"], "issue": number}
        assert [name for name in image(w, BOOK) or {} if name.startswith("~")] == []
        assert plain(w, SPINE) is None
        assert plain(w, SHELF) is None
        assert w.differences() == []
        change(w, BOOK, kind="book")
        put_loan(w, days=15 + number)
        w.settle()
        assert (plain(w, BOOK) or {})["days"] == 15 + number
        assert (plain(w, BOOK) or {})["GSI1PK"] == "BOOKS"
        assert plain(w, SPINE) == {"kind": "spine", "title": "Atlas"}
        assert plain(w, SHELF) == {"kind": "shelf", "books": 1}
        assert w.differences() == []
    assert drifts(w) == []


def test_there_and_back_within_one_batch_loses_nothing() -> None:
    w = library()
    change(w, BOOK, kind="magazine", issue=4)
    change(w, BOOK, kind="book", remove=("issue",))
    change(w, LOAN, kind="lent")
    change(w, LOAN, kind="loan")
    w.settle()
    assert (plain(w, BOOK) or {})["loanCount"] == 1
    assert w.differences() == []
    assert drifts(w) == []


def test_a_late_record_of_an_item_that_left_and_came_back_and_left_takes_nothing_away() -> None:
    """It knows only what rules had set by then; the record of the second leaving knows the rest."""
    w = library()
    change(w, SPINE, remove=("kind",))
    left = w.records()
    put_book(w, title="Globe")  # the rule gives the copy its kind back
    w.deliver(w.records()[len(left) :])
    assert plain(w, SPINE) == {"kind": "spine", "title": "Globe"}
    change(w, SPINE, kind="map")
    w.deliver(left)
    assert plain(w, SPINE) == {"kind": "map", "title": "Globe"}
    w.settle()
    assert image(w, SPINE) == {**w.program.tables["main"].wire(ItemKey("main", *SPINE)), **wires({"kind": "map"})}


def test_an_attribute_that_the_application_gives_with_the_new_kind_stays() -> None:
    w = library()
    change(w, BOOK, kind="magazine", loanCount=1000, GSI1SK="by hand")
    w.settle()
    held = plain(w, BOOK) or {}
    assert (held["loanCount"], held["GSI1SK"]) == (1000, "by hand")
    assert held.keys().isdisjoint(("days", "longest"))


def test_a_redrive_removes_what_rules_set_on_an_item_that_is_of_another_kind_by_now() -> None:
    w = library()
    book = image(w, BOOK) or {}
    change(w, BOOK, kind="magazine")
    w.lose()
    w.refresh(ItemKey("main", *BOOK), book, image(w, BOOK) or {})
    w.settle()
    assert plain(w, BOOK) == {"kind": "magazine", "title": "Atlas", "shelves": ["north"]}
    assert drifts(w) == []


@pytest.mark.parametrize("again", ["delivery", "redrive"])
def test_an_item_that_was_put_whole_over_another_kind_keeps_every_value(again: str) -> None:
    """It lost the guards that the book had, so nothing on it is the rules', whatever equals what they had set."""
    w = library()
    held, first = plain(w, BOOK) or {}, len(w.records())
    book = image(w, BOOK) or {}
    own = {"kind": "magazine", "loanCount": held["loanCount"], "GSI1PK": "BOOKS", "GSI1SK": held["GSI1SK"]}
    w.put(*BOOK, **own)
    records = w.records()[first:]
    w.settle()
    assert plain(w, BOOK) == own
    if again == "delivery":
        w.deliver(records)
    else:
        unguarded = {name: value for name, value in book.items() if not name.startswith(w.program.guard_prefix)}
        w.refresh(ItemKey("main", *BOOK), unguarded, book, image(w, BOOK) or {})
    w.settle()
    assert plain(w, BOOK) == own
    assert drifts(w) == []


@pytest.mark.parametrize("values", [{"GSI1PK": "QUOTES"}, {"GSI1SK": "by hand"}, {"GSI1PK": None}])
@pytest.mark.parametrize("guarded", [True, False])
def test_attributes_of_one_index_are_removed_together_or_not_at_all(guarded: bool, values: dict[str, Any]) -> None:
    """The application gave one of them with the new kind, so the other one, which equals the rule's, is its own too."""
    w = library() if guarded else library(RULES[RULES.index("  listed:") : RULES.index("  borrower:")], KINDS)
    gone = tuple(name for name, value in values.items() if value is None)
    change(w, BOOK, gone, kind="magazine", **{name: value for name, value in values.items() if value is not None})
    own = {"GSI1PK": "BOOKS", "GSI1SK": "Atlas", **values}
    w.settle()
    held = plain(w, BOOK) or {}
    assert {name: held.get(name) for name in own} == own
    assert "loanCount" not in held
    assert drifts(w) == []


def test_attributes_that_one_rule_computes_are_removed_together_or_not_at_all() -> None:
    w = library("  told: {from: Book, compute: {set: {label: '{title|upper}', kept: '{title|lower}'}}}\n", KINDS)
    change(w, BOOK, kind="magazine", label="by hand")
    w.settle()
    held = plain(w, BOOK) or {}
    assert (held["label"], held["kept"]) == ("by hand", "atlas")


SUFFIX = HEAD.replace("match: {kind: book}", 'match: {kind: [{suffix: "-book"}]}')


@pytest.mark.parametrize("kind", ["audio-book", "-book"])
def test_a_match_that_no_condition_can_express_is_published_exactly(kind: str) -> None:
    w = Scene(RULES, SUFFIX)
    w.put(*BOOK, kind=kind, title="Atlas")
    w.put("BOOK#8", "DATA", kind="audio-book-case", title="Globe", loanCount="a case has none")
    put_loan(w)
    w.put("READER#ida", "LOAN#8", kind="loan", days=3)
    w.settle()
    assert (plain(w, BOOK) or {})["loanCount"] == 1
    assert (plain(w, BOOK) or {})["days"] == 14
    assert plain(w, ("BOOK#8", "DATA")) == {
        "kind": "audio-book-case", "title": "Globe", "loanCount": "a case has none",
    }  # fmt: skip
    assert w.differences() == []
    assert drifts(w) == []


def test_a_target_that_no_condition_can_recognise_is_not_written_if_its_kind_changes_after_the_look() -> None:
    w = Scene(RULES, SUFFIX)
    w.put(*BOOK, kind="audio-book", title="Atlas")
    w.settle()
    put_loan(w)
    before(
        w,
        "write",
        lambda: w.put(*BOOK, kind="audio-tape", title="Atlas", loanCount=5),
        when=lambda one: isinstance(one, Update) and one.key == ItemKey("main", *BOOK),
    )
    w.settle()
    assert "write" not in vars(w.store)
    assert plain(w, BOOK) == {"kind": "audio-tape", "title": "Atlas", "loanCount": 5}


@pytest.mark.parametrize("kind", [["signed", "book"], {"book", "rare"}, ["book"]], ids=["list", "set", "one"])
def test_a_match_on_a_list_is_published_exactly(kind: Any) -> None:
    w = Scene(RULES, HEAD)
    w.put(*BOOK, kind=kind, title="Atlas", shelves=["north"])
    w.put("BOOK#8", "DATA", kind=["signed", "poster"], loanCount=8)
    put_reader(w)
    put_loan(w)
    w.put("READER#ida", "LOAN#8", kind="loan", days=1)
    w.settle()
    held = plain(w, BOOK) or {}
    assert (held["loanCount"], held["days"], held["GSI1PK"]) == (1, 14, "BOOKS")
    assert plain(w, ("BOOK#8", "DATA")) == {"kind": ["signed", "poster"], "loanCount": 8}
    assert w.differences() == []
    w.remove(*LOAN)
    w.settle()
    assert (plain(w, BOOK) or {})["loanCount"] == 0
    assert drifts(w) == []


# Guards as input

MALFORMED: dict[str, Any] = {
    "a text": {"S": "0001.000000000000009"},
    "a number": {"N": "7"},
    "null": {"NULL": True},
    "true": {"BOOL": True},
    "bytes": {"B": "AAE="},
    "a list of guards": {"L": [{"M": {"at": {"S": "9"}}}]},
    "the digest alone": {"S": "{digest}"},
    "a text from the future": {"S": "{digest}" + "z" * 32},
    "an empty map": {"M": {}},
    "no digest": {"M": {"at": {"S": "9999/1"}, "n": {"N": "4"}, "c": {"BOOL": True}}},
    "a digest that is a number": {"M": {"at": {"S": "9999/1"}, "d": {"N": "12345678"}}},
    "another digest": {"M": {"at": {"S": "9999/1"}, "d": {"S": "AAAAAAAA"}, "c": {"BOOL": True}}},
    "a version that is a map": {"M": {"at": {"M": {"S": {"S": "x"}}}, "d": {"S": "{digest}"}}},
    "a source that is no key": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "by": {"S": "%%%|||"}}},
    "a source in no table": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "by": {"S": "attic|BOOK#7|DATA"}}},
    "a source without a sort key": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "by": {"S": "main|BOOK#7"}}},
    "a source that is a list": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "by": {"L": []}}},
    "a negative number": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "n": {"N": "-1"}}},
    "a number of 38 digits": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "n": {"N": "9" * 38}}},
    "a number as text": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "n": {"S": "1"}}},
    "creation as text": {"M": {"at": {"S": "1"}, "d": {"S": "{digest}"}, "by": {"S": "main|X|Y"}, "c": {"S": "true"}}},
    "an empty version": {"M": {"at": {"S": ""}, "d": {"S": "{digest}"}}},
}
GUARDED = {"loans": BOOK, "longest": BOOK, "spine": SPINE, "mail": MAIL, "shelves": SHELF, "borrower": LOAN}
PAIRS = [
    pytest.param(shape, rule, marks=[pytest.mark.deep] if (number + other) % 3 else [])
    for number, shape in enumerate(MALFORMED)
    for other, rule in enumerate(GUARDED)
]


def with_guard(w: Scene, rule: str, guard: Any) -> None:
    """The application gives an item a guard; {digest} in it stands for the valid one."""
    at = GUARDED[rule]
    digest = w.guards().digest(rule, ItemKey("main", *at))
    fields = guard.get("M")
    if "S" in guard:
        guard = {"S": guard["S"].replace("{digest}", digest)}
    elif fields is not None and fields.get("d") == {"S": "{digest}"}:
        guard = {"M": {**fields, "d": {"S": digest}}}
    w.store.put("main", {**(image(w, at) or {}), f"~{rule}": guard})


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("shape", "rule"), PAIRS)
def test_a_malformed_guard_is_replaced(shape: str, rule: str, lost: bool) -> None:
    w = library()
    with_guard(w, rule, MALFORMED[shape])
    w.lose() if lost else w.settle()
    assert w.rejected == []
    assert lost or (valid(w, rule) and w.differences() == [])
    put_loan(w, days=21)
    put_book(w, title="Atlas II", shelves=["north", "east"])
    put_reader(w, name="Ida C.")
    w.settle()
    assert w.rejected == []
    assert w.differences() == []
    if lost:
        repaired(w)
        w.settle()
    assert drifts(w) == []
    assert valid(w, rule)


def valid(w: Scene, rule: str) -> bool:
    at = GUARDED[rule]
    return w.guards().read(rule, ItemKey("main", *at), image(w, at)) is not None


@pytest.mark.parametrize("rule", CREATED)
@pytest.mark.parametrize("shape", [name for name, guard in MALFORMED.items() if "c" in guard.get("M", {})])
def test_a_guard_that_the_application_wrote_marks_no_item_as_created(shape: str, rule: str) -> None:
    """Even with the digest of the item: then what says that it is created is not what a rule writes."""
    w = Scene(RULES, HEAD)
    at, kind = CREATED[rule], {"spine": "spine", "mail": "mail", "shelves": "shelf"}[rule]
    w.put(*at, kind=kind)
    with_guard(w, rule, MALFORMED[shape])
    w.settle()
    put_sources(w)
    w.settle()
    put_book(w, title="Atlas II")
    put_reader(w, name="Ida C.")
    w.settle()
    remove_sources(w)
    w.settle()
    assert kept(plain(w, at)) == {"kind": kind}


OF_CLONES: dict[Key, dict[str, Any]] = {
    BOOK: {"loanCount": 0, "days": 0, "longest": []},
    SPINE: {},
    MAIL: {},
    SHELF: {"books": 0},
    LOAN: {},
}
"""By what is cloned, what rules change on the clone: a copy of nothing is an item of the application, and left as it is.
A child without a parent keeps what it holds."""


@pytest.mark.parametrize("at", OF_CLONES, ids=lambda at: at[0])
def test_a_clone_that_is_put_three_times_shows_what_is_its_own(at: Key) -> None:
    w = library()
    held = image(w, at) or {}
    key = at[0].rpartition("#")[0] + "#clone", at[1]
    for number in range(3):
        clone = {**held, **wires({"PK": key[0], "SK": key[1], "note": number})}
        w.store.put("main", clone)
        w.settle()
        shown = {**{name: value for name, value in plain_item(clone).items() if name[0] != "~"}, **OF_CLONES[at]}
        assert w.item(*key) == shown
        assert plain(w, BOOK) is not None
        assert drifts(w) == []
    remove_sources(w)
    w.settle()
    assert (plain(w, key) or {})["note"] == 2, "no rule deletes what the application put there"


def test_a_clone_of_a_created_item_is_not_deleted_with_it() -> None:
    w = library()
    for number in range(3):
        w.store.put("main", {**(image(w, SHELF) or {}), "PK": {"S": f"SHELF#{number}"}})
    w.settle()
    remove_sources(w)
    w.settle()
    assert plain(w, SHELF) is None
    assert [kept(plain(w, (f"SHELF#{number}", "STATS"))) for number in range(3)] == [{"kind": "shelf"}] * 3
    assert w.differences() == []

"""The conditions that the engine puts on application items, on all stores: guards, kinds, and what a deletion returns.

Memory decides what is right; it is compared with the emulators for single writes and for statements of `write_each`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from backends import SCHEMAS, backend, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table import each
from test_contract import attribute, key, n, s

from projections.engine.application import kind_as_read, kind_condition
from projections.engine.guards import Guards, Identity
from projections.engine.store import AllOf, Condition, Delete, Equal, Exists, Store, Update, Value
from projections.errors import ConditionFailed
from projections.language.loader import loads
from projections.language.program import Program
from projections.stores.condition_expressions import holds
from tests.engine.test_kinds import KEY, MATCHES, entity, image, items

EXISTS = Exists(("PK",))
RULES = """
table: {key: [PK, SK]}
entities:
  Doc: {key: {PK: "DOC#{id}", SK: D}}
  Tag: {key: {PK: "DOC#{id}", SK: "TAG#{tag}"}}
  Named: {key: {PK: "TAG#{tag}", SK: D}}
projections:
  r: {from: Tag, aggregate: {into: Doc, set: {tags: count}}}
  claim: {from: Tag, copy: {into: Named, attributes: [x]}}
"""
PROGRAM = Program.from_document(loads(RULES).document())
GUARDS = Guards(PROGRAM, Identity("test", (b"secret",)), {"r": 1})
BY, AT = "main|DOC#2|D", "0000000001.000000000000007"
_runs = count(1)


# Deletions


def test_a_deletion_returns_the_item_that_it_removed(store: Store, p: str) -> None:
    guarded = {GUARDS.mark: GUARDS.mark_of(KEY), "~r": GUARDS.stamp("r", KEY, AT)}
    held = {"text": s("m"), "number": n("1.50"), **guarded, "tags": {"SS": ["a", "b"]}}
    assert store.write(Update(key(p), set=held)) is None
    removed = store.write(Delete(key(p), AllOf((EXISTS, Equal(("text",), s("m"))))))
    assert plain(removed) == plain({"PK": s(p), "SK": s("s"), **held})
    assert store.get(key(p)) is None


def test_a_deletion_returns_what_was_added_since_the_item_was_read(store: Store, p: str) -> None:
    store.write(Update(key(p), set={"text": s("m")}))
    read = store.get(key(p)) or {}
    store.write(Update(key(p), set={"added": s("since")}))
    removed = store.write(Delete(key(p), AllOf((EXISTS, Equal(("text",), read["text"])))))
    assert removed is not None
    assert removed["added"] == s("since")


# Guards

DIGEST = GUARDS.digest("r", KEY)
STAMPED = GUARDS.stamp("r", KEY, "9", by=BY)
SHAPES: dict[str, Value | None] = {
    "missing": None,
    "text": s("0001"),
    "number": n(7),
    "null": {"NULL": True},
    "list": {"L": [s("d"), s("at")]},
    "set": {"SS": ["at", "d"]},
    "empty map": {"M": {}},
    "no digest": {"M": {"at": s("9")}},
    "digest of another item": {"M": {"d": s("AAAAAAAA"), "at": s("9")}},
    "digest as number": {"M": {"d": n(5), "at": s("9")}},
    "digest as list": {"M": {"d": {"L": [s(DIGEST)]}, "at": s("9")}},
    "no version": {"M": {"d": s(DIGEST)}},
    "version as number": {"M": {"d": s(DIGEST), "at": n(0)}},
    "version as map": {"M": {"d": s(DIGEST), "at": {"M": {"at": s("0")}}}},
    "source as list": {"M": {"d": s(DIGEST), "at": s("9"), "by": {"L": []}}},
    "edited": {"M": {**STAMPED["M"], "at": s("0")}},
    "no checksum": {"M": {name: value for name, value in STAMPED["M"].items() if name != "s"}},
    "checksum as map": {"M": {**STAMPED["M"], "s": {"M": {}}}},
    "older": GUARDS.stamp("r", KEY, "0000000001.000000000000006", by=BY, n=3),
    "equal": GUARDS.stamp("r", KEY, AT, by=BY, n=3),
    "newer": GUARDS.stamp("r", KEY, "0000000001.000000000000010", by=BY, n=3),
    "older, of another source": GUARDS.stamp("r", KEY, "0", by="main|DOC#3|D"),
    "least": GUARDS.stamp("r", KEY, "0", by=BY),
    "newer, of another source": GUARDS.stamp("r", KEY, "9", by="main|DOC#3|D"),
}
GROUPS: dict[str, Value] = {
    "group, older": GUARDS.stamp_group("r", KEY, "0000000001.000000000000006", 10**15),
    "group, equal, of fewer": GUARDS.stamp_group("r", KEY, AT, -5),
    "group, equal, of more": GUARDS.stamp_group("r", KEY, AT, 10**15),
    "group, newer": GUARDS.stamp_group("r", KEY, "0000000001.000000000000064", 3),
    "group, of an older promotion": GUARDS.stamp_group("r", KEY, "0000000000.000000000000010", 3),
    "group, of a newer promotion": GUARDS.stamp_group("r", KEY, "0000000002.000000000000001", 3),
    "group, of another item": GUARDS.stamp_group("r", KEY._replace(partition="DOC#9"), "9999999999.9", 3),
    "group, of another ledger": Guards(PROGRAM, Identity("zzzz", (b"",))).stamp_group("r", KEY, "1.1", 3),
    "digest alone": s(DIGEST),
    "other texts after the digest": s(f"{DIGEST}~~"),
}
SHAPES |= GROUPS
OLDER = GUARDS.older(PROGRAM.recorded["r"], KEY, GUARDS.stamp_group("r", KEY, AT, 0))
CONDITIONS: dict[str, Condition] = {
    "older": OLDER,
    "older or foreign": GUARDS.older_or_foreign("r", KEY, BY, AT),
    "as read": GUARDS.as_read("r", {"~r": GUARDS.stamp("r", KEY, "0", by=BY)}),
    "missing as read": GUARDS.as_read("r", {}),
    "nested": AllOf((AllOf((EXISTS, AllOf(()))), AllOf((AllOf((OLDER,)),)))),
}


def test_texts_of_guards_compare_as_the_versions_of_their_groups() -> None:
    """Whatever the number of contributions; another kind of rule replaces no guard of a newer promotion."""
    verdicts = {
        name: [holds(CONDITIONS[kind], {"~r": shape}) for kind in ("older", "older or foreign")]
        for name, shape in GROUPS.items()
    }
    assert {name.removeprefix("group, "): verdict for name, verdict in verdicts.items()} == {
        "older": [True, True],
        "equal, of fewer": [False, True],
        "equal, of more": [False, True],
        "newer": [False, True],
        "of an older promotion": [True, True],
        "of a newer promotion": [False, False],
        "of another item": [True, True],
        "of another ledger": [True, True],
        "digest alone": [True, True],
        "other texts after the digest": [True, True],
    }
    assert {len(shape["S"].encode()) for name, shape in GROUPS.items() if "group" in name} == {40}


def holding(shape: Value | None) -> dict[str, Value]:
    return {"a": s("1")} if shape is None else {"a": s("1"), "~r": shape}


@each(shape=SHAPES, condition=CONDITIONS)
def test_a_guard_lets_a_write_pass_as_in_memory(
    store: Store, p: str, shape: Value | None, condition: Condition
) -> None:
    held = holding(shape)
    expected = holds(condition, {"PK": s(p), "SK": s("s"), **held})
    store.write(Update(key(p), set=held))
    write = Update(key(p), set={"hit": s("x")}, condition=AllOf((EXISTS, condition)))
    if expected:
        store.write(write)
    else:
        with pytest.raises(ConditionFailed) as failed:
            store.write(write)
        assert plain(failed.value.item) == plain({"PK": s(p), "SK": s("s"), **held})
    assert attribute(store, key(p), "hit") == (("S", "x") if expected else None)


@each(shape=SHAPES)
def test_a_guard_is_written_only_as_it_was_read(store: Store, p: str, shape: Value | None) -> None:
    """The condition compares the value as it was read, whatever it is."""
    store.write(Update(key(p), set=holding(shape)))
    condition = AllOf((EXISTS, GUARDS.as_read("r", store.get(key(p)))))
    store.write(Update(key(p), set={"~r": GUARDS.stamp("r", KEY, AT)}, condition=condition))
    with pytest.raises(ConditionFailed):
        store.write(Update(key(p), set={"~r": s("again")}, condition=condition))


# Kinds


@pytest.mark.deep
@each(name={name: name for name in MATCHES})
def test_the_kind_of_an_item_is_judged_as_in_memory(store: Store, p: str, name: str) -> None:
    """Items with values at the edges of a prefix, and of other types, for single writes and for statements."""
    condition = kind_condition(entity(name)[1], KEY)
    if condition is None:
        return
    condition = AllOf((EXISTS, condition))
    edges: list[Value | None] = [
        None,
        *map(s, ("", "b", "bi", "bill", "Bill", "bi\U0010ffff", "bi\U0010ffff\U0010ffff", "bi\uffff", "bj", "x", "D")),
        *map(n, (2, 3, "3.0", 7, "8.99", 9, -1)),
        {"L": [s("bill")]},
        {"SS": ["bill", "x"]},
        {"NS": ["3", "7"]},
        {"B": "YmlsbA=="},
        {"M": {"type": s("bill")}},
        {"M": {"0": s("bill")}},
        {"BOOL": True},
        {"NULL": True},
    ]
    held = [{attr: edge} for attr in ("type", "meta") for edge in edges if edge is not None]
    held += [{}, {"type": s("bill"), "other": n(1)}, {"meta.type": s("bill")}, {"meta.type": s("x"), "id": s("bill")}]
    places = [key(p, f"{number:03}") for number in range(len(held))]
    for at, attributes in zip(places, held, strict=True):
        store.write(Update(at, set={**attributes, "a": n(1)}))
    expected = [holds(condition, {"PK": s(p), **attributes}) for attributes in held]
    singles = [written(store, Update(at, set={"hit": n(1)}, condition=condition)) for at in places]
    assert list(zip(held, singles, strict=True)) == list(zip(held, expected, strict=True))
    answers = store.write_each([Update(at, set={"hit": n(2)}, condition=condition) for at in places])
    assert list(zip(held, [one is None for one in answers], strict=True)) == list(zip(held, expected, strict=True))


def written(store: Store, update: Update) -> bool:
    try:
        store.write(update)
    except ConditionFailed:
        return False
    return True


@pytest.fixture(scope="module")
def local(request: pytest.FixtureRequest) -> Iterator[Store]:
    with backend("dynamodb-local", request) as store:
        yield store


guards = st.sampled_from([*SHAPES.values()])


@pytest.mark.deep
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    some=st.lists(st.tuples(items, guards), min_size=1, max_size=6),
    name=st.sampled_from([*MATCHES]),
    guard=st.sampled_from([*CONDITIONS.values()]),
)
def test_dynamodb_local_agrees_on_kinds_with_guards(
    local: Store, some: list[tuple[dict[str, Any], Value | None]], name: str, guard: Condition
) -> None:
    """As the engine combines them: an update of unread items, and one of items as they were read."""
    of, p = entity(name)[1], f"kinds-{next(_runs)}"
    places, held = [key(p, str(number)) for number in range(len(some))], list[dict[str, Value]]()
    for at, (attributes, shape) in zip(places, some, strict=True):
        whole = {each: value for each, value in image(attributes).items() if each not in SCHEMAS["app"].key_attributes}
        held.append({**whole, **holding(shape)})
        local.write(Update(at, set=held[-1]))
    compiled = kind_condition(of, KEY)
    conditions = [] if compiled is None else [AllOf((EXISTS, compiled, guard))]
    conditions.append(AllOf((EXISTS, *kind_as_read((of,), held[0]), guard)))
    for condition in conditions:
        expected = [holds(condition, {"PK": s(p), **one}) for one in held]
        writes = [Update(at, set={"hit": n(1)}, condition=condition) for at in places]
        assert [written(local, write) for write in writes] == expected
        assert [answer is None for answer in local.write_each(writes)] == expected

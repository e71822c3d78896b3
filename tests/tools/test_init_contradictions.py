"""Rules that most items agree with: what is proposed, with which counter-evidence, and what is not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import init_tables
import pytest
from init_tables import INDEXED, Item, item, proposed
from pattern_tables import PATTERNS, Grown

from projections.init import contradictions
from projections.init.infer import infer
from projections.init.proposal import Proposal, Rule, Sample, Table
from projections.init.rule_file import rule_file
from projections.language.loader import loads
from projections.language.values import having
from projections.testing.oracle import Oracle

Key = tuple[str, ...]


def of_state(found: Proposal, state: str) -> list[Rule]:
    return [rule for rule in found.rules if rule.state == state]


def uncertain(found: Proposal, attribute: str) -> Rule:
    (rule,) = [
        rule
        for rule in of_state(found, "uncertain")
        if rule.contradiction and rule.contradiction.attribute == attribute
    ]
    return rule


def key_of(one: Item, table: Table) -> Key:
    return tuple(str(next(iter(one[name].values()))) for name in table.key_names)


def live(found: Proposal, rule: Rule, items: Sequence[Item]) -> dict[Key, Item]:
    """The items with this rule alone, live, as the oracle computes them."""
    text = rule_file(replace(found, rules=[replace(rule, doubt="", contradiction=None)]))
    canonical = loads(text.replace("hold: true", "hold: false")).document()
    (table,) = canonical["tables"]
    expected = Oracle(canonical).expect({table: items}).items
    return {key_of(one, found.table): dict(one) for one in expected.values()}


def predicted(rule: Rule) -> tuple[int, int, int]:
    found = rule.contradiction
    assert found is not None
    return found.changes, found.adds, found.removes


def values(one: Item, names: Sequence[str]) -> list[object]:
    return [contradictions.identity(having(one.get(name))) for name in names]


def happens(found: Proposal, rule: Rule, items: Sequence[Item]) -> tuple[int, int, int]:
    """How many items' attribute the rule changes, adds and removes, according to the oracle."""
    assert rule.contradiction is not None
    names, after = rule.contradiction.attribute.split(" and "), live(found, rule, items)
    pairs = [(values(one, names), values(after[key_of(one, found.table)], names)) for one in items]
    differing = [(a, b) for a, b in pairs if a != b]
    added = sum(set(a) == {None} for a, _ in differing)
    removed = sum(set(b) == {None} for _, b in differing)
    return len(differing) - added - removed, added, removed


# --- tables without relations ---


def unrelated(seed: int) -> list[Item]:
    """Parents and children whose attributes have nothing to do with each other: small numbers, constants, few dates."""
    chance = random.Random(seed)
    words = ["size", "price", "weight", "level", "grade", "rank", "score", "colour", "due", "opened", "title", "stars"]

    def maker() -> Callable[[], Any]:
        constant, most, share = chance.randint(0, 5), chance.choice([1, 2, 3, 5, 12, 500]), chance.choice([0.3, 0.6])
        few = [chance.choice(["red", "blue", "green"]) for _ in range(3)]
        return chance.choice(
            [
                lambda: constant,
                lambda: chance.randint(0, most),
                lambda: round(chance.random() * 100, 2),
                lambda: chance.choice(few),
                lambda: f"2026-0{chance.randint(1, 9)}-{chance.randint(10, 12)}",
                lambda: f"2026-01-0{chance.randint(1, 3)}T10:00:00Z",
                lambda: 0 if chance.random() < 0.85 else chance.randint(1, 4),
                lambda: min(9, int(chance.expovariate(share))),
            ]
        )

    items = []
    for kind in chance.sample(["SHELF", "ROOM", "TEAM", "BATCH"], 2):
        own = {name: maker() for name in chance.sample(words, 6)}
        children = [
            (child, {name: maker() for name in chance.sample(words, 5)}, chance.choice([2, 4, 8]))
            for child in chance.sample(["BOOK", "DESK", "SEAT", "PART"], 2)
        ]
        for number in range(chance.choice([6, 12, 12, 40])):
            partition = f"{kind}#{kind[0].lower()}{number}"
            items.append(item(PK=partition, SK="META", **{name: make() for name, make in own.items()}))
            for child, attributes, most in children:
                for position in range(chance.randint(0, most)):
                    values = {name: make() for name, make in attributes.items()}
                    items.append(item(PK=partition, SK=f"{child}#{child[0].lower()}{number}x{position}", **values))
    return items


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 60), marks=pytest.mark.deep)], ids=["few", "many"])
def test_attributes_without_a_relation_give_no_rules(seeds: range) -> None:
    """Each table has about 100 candidates: nearly all agree with some items by chance."""
    related = 0
    for seed in seeds:
        found = infer(INDEXED, Sample(unrelated(seed), True))
        related += len({one.key["PK"] for one in found.entities}) < len(found.entities)
        assert [(seed, rule.state, rule.evidence) for rule in found.rules if rule.state != "possible"] == []
    assert related >= 0.9 * len(seeds)


# --- tables of the patterns, with errors ---


def broken(value: Mapping[str, Any], chance: random.Random) -> dict[str, Any]:
    ((kind, content),) = value.items()
    if kind == "N":
        return {"N": str(Decimal(content) + chance.choice([-1, 1, 2, 5]))}
    return {"S": f"Stale {content[:5]}"} if kind == "S" else {kind: content[:-1]}


def with_errors(grown: Grown, found: Proposal, rule: Rule, attribute: str) -> tuple[list[Item], set[Key]] | None:
    """The items with about one of ten values broken, and the keys of these items; None where too few have a value."""
    items: list[Item] = copy.deepcopy(grown.items)
    stripped = [{name: value for name, value in one.items() if name != attribute} for one in items]
    computed = {key for key, one in live(found, rule, stripped).items() if attribute in one}
    usable = [one for one in items if one.get(attribute, {}).get("L") != [] and attribute in one]
    usable = [one for one in usable if key_of(one, grown.table) in computed]
    chance = random.Random(f"{grown.name} {attribute}")
    if len(usable) < 12:
        return None
    chosen = chance.sample(usable, max(1, len(usable) // 10))
    for one in chosen:
        one[attribute] = broken(one[attribute], chance)
    return items, {key_of(one, grown.table) for one in chosen}


def recall(pattern: str) -> Iterator[tuple[str, str, bool]]:
    """Yield (rule, attribute, found) for each attribute whose rule is found without errors: whether it is found with some
    errors, which are the counter-evidence. The oracle agrees with the effect.
    """
    grown = Grown(pattern)
    clean = proposed(grown.items, grown.table)
    for rule in of_state(clean, "held"):
        for attribute in rule.attributes:
            tried = with_errors(grown, clean, rule, attribute)
            if tried is None:
                continue
            items, keys = tried
            found = infer(grown.table, Sample(items, True))
            same = [
                one
                for one in of_state(found, "uncertain")
                if one.contradiction and one.into == rule.into and attribute in one.attributes
                if one.body["from"] == rule.body["from"]
                if {example["key"] for example in one.contradiction.examples} == {" ".join(key) for key in keys}
            ]
            for one in same:
                assert predicted(one) == happens(found, one, items), (pattern, one)
            yield rule.name, attribute, bool(same)


MISSED = {"visitors": {"visitorsOfDay visits"}}
"""By pattern, rules and attributes that are not found: 14 items with few different small numbers may agree by chance."""


@pytest.mark.parametrize(
    "pattern", [name if name == "chat" else pytest.param(name, marks=pytest.mark.deep) for name in PATTERNS]
)
def test_values_of_a_pattern_with_errors_are_found_with_exactly_these_errors(
    pattern: str, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    monkeypatch.setattr(contradictions, "_MOST_EXAMPLES", 1000)
    found = list(recall(pattern))
    record_property("measured", f"{pattern}: {sum(one for *_, one in found)} of {len(found)} broken rules found")
    assert {f"{rule} {attribute}" for rule, attribute, one in found if not one} == MISSED.get(pattern, set())


# --- what is said ---


def classes(count: int = 16) -> list[Item]:
    """Classes with bookings, whose values are right."""
    chance = random.Random(5)
    items = []
    for number in range(count):
        partition = f"CLASS#c{number:02d}"
        paid = [Decimal(chance.randint(100, 9999)) / 100 for _ in range(chance.randint(1, 7))]
        items += [item(PK=partition, SK=f"BOOKING#b{number}x{n}", paid=one) for n, one in enumerate(paid)]
        own = {"title": f"Class {number}", "bookingCount": len(paid), "revenue": sum(paid)}
        items.append(item(PK=partition, SK="INFO", **own))
    return items


def infos(items: Sequence[Item]) -> list[Item]:
    return [one for one in items if one["SK"]["S"] == "INFO"]


def test_an_uncertain_rule_is_a_comment_with_its_counter_evidence_and_effect() -> None:
    items = classes(12)
    for one in infos(items)[:2]:
        one["bookingCount"] = {"N": str(int(one["bookingCount"]["N"]) + 2)}
    found = proposed(items)
    rule = uncertain(found, "bookingCount")
    assert rule.evidence == "bookingCount is the number of Booking items in 10 of 12 Class items"
    assert rule.contradiction is not None
    assert rule.contradiction.differences == [
        f"CLASS#c0{number} INFO: stored {one['bookingCount']['N']}, computed {int(one['bookingCount']['N']) - 2}"
        for number, one in enumerate(infos(items)[:2])
    ]
    assert rule.contradiction.effect == "Published, it would change bookingCount of 2 Class items"
    assert predicted(rule) == happens(found, rule, items) == (2, 0, 0)
    text = rule_file(found)
    assert rule.name not in loads(text).projections
    assert f"  # {rule.name}:\n  #   from: Booking\n  #   hold: true\n" in text
    assert "2 contradict it." in text
    assert "c00" not in text


def test_values_of_parents_without_children_are_counted_in_the_effect() -> None:
    items = [*classes(), item(PK="CLASS#new", SK="INFO", title="x")]
    infos(items)[0]["revenue"] = {"N": "1.125"}
    found = proposed(items)
    assert predicted(uncertain(found, "revenue")) == happens(found, uncertain(found, "revenue"), items) == (1, 1, 0)


def test_stale_copies_are_listed_and_not_in_the_file() -> None:
    items = init_tables.social()
    stale = [one for one in items if "userName" in one][:3]
    for one in stale:
        one["userName"] = {"S": "Former Person"}
    found = proposed(items)
    rule = uncertain(found, "userName")
    assert rule.contradiction is not None
    assert {one["stored"] for one in rule.contradiction.examples} == {'"Former Person"'}
    assert "Former" not in rule_file(found)
    assert predicted(rule) == happens(found, rule, items) == (3, 0, 0)


def test_a_counter_that_most_items_contradict_is_not_proposed() -> None:
    items = classes()
    for one in infos(items)[:12]:
        one["bookingCount"] = {"N": "77"}
    assert [one for one in proposed(items).rules if "bookingCount" in one.attributes] == []


# --- parts of tables ---


def test_in_a_part_of_a_table_partitions_that_were_read_to_their_end_are_compared_exactly() -> None:
    items = classes()
    infos(items)[3]["bookingCount"] = {"N": "40"}
    last = [one for one in items if one["PK"]["S"] == "CLASS#c15"]
    items = [one for one in items if one not in last[:-1]]
    found = proposed(items, complete=False, cut=frozenset({"CLASS#c15"}))
    rule = uncertain(found, "bookingCount")
    assert rule.contradiction is not None
    assert (rule.contradiction.right, rule.contradiction.judged, rule.contradiction.unseen) == (14, 15, 1)
    assert rule.contradiction.effect == (
        "1 Class item could not be compared: items that the value depends on may be outside the sample. "
        "Published, it would change bookingCount of at least 1 Class item"
    )


def test_children_outside_the_sample_do_not_contradict_a_counter() -> None:
    """A stored number may be greater than the children in the sample, but not less."""
    items = classes()
    (rule,) = [one for one in of_state(proposed(items[::2], complete=False), "held") if "bookingCount" in str(one.body)]
    assert "is not less than the number of Booking items in the sample" in rule.evidence
    chosen = next(one for one in infos(items[::2]) if sum(b["PK"] == one["PK"] and "paid" in b for b in items[::2]))
    chosen["bookingCount"] = {"N": "0"}
    assert [one for one in proposed(items[::2], complete=False).rules if "bookingCount" in str(one.body)] == []


def test_a_number_that_is_less_than_the_children_in_the_sample_is_wrong_in_any_part_of_a_table() -> None:
    items = classes()
    last = infos(items)[-1]
    last["bookingCount"] = {"N": "0"}
    found = uncertain(proposed(items, complete=False, cut=frozenset({"CLASS#c15"})), "bookingCount")
    assert found.contradiction is not None
    assert (found.contradiction.right, found.contradiction.judged, found.contradiction.unseen) == (15, 16, 0)


def test_a_copy_states_which_attributes_differ() -> None:
    table, items = init_tables.copies()
    for one in [one for one in items if one["SK"]["S"] == "METADATA"][:2]:
        one["title"] = {"S": "Former title"}
    (rule,) = [one for one in proposed(items, table).rules if one.kind == "copy"]
    assert rule.evidence.endswith("; they differ in title of 2")


# --- keys of indexes ---


def tickets() -> list[Item]:
    """Tickets of customers; open ones are in an index."""
    chance = random.Random(9)
    items = []
    for number in range(40):
        status = chance.choice(["open", "open", "closed", "waiting"])
        own = {"status": status, "due": f"2026-03-{chance.randint(10, 28)}", "agentId": f"a{chance.randint(1, 5)}"}
        keys = {"GSI1PK": f"OPEN#{own['agentId']}", "GSI1SK": f"{own['due']}#t{number:02d}"} if status == "open" else {}
        items.append(item(PK=f"TICKET#t{number:02d}", SK="INFO", **own, **keys))
    return items


SPARSE = {"GSI1PK": "OPEN#{agentId}", "GSI1SK": "{due}#{ticketId}"}


def test_sparse_index_keys_are_found_with_their_condition() -> None:
    found = proposed(tickets())
    (rule,) = of_state(found, "held")
    assert rule.body == {"from": "Ticket", "where": {"status": ["open"]}, "index": SPARSE}
    assert live(found, rule, tickets()) == {key_of(one, INDEXED): one for one in tickets()}


def test_sparse_index_keys_that_are_wrong_on_few_items_are_uncertain() -> None:
    items = tickets()
    some = [one for one in items if one["status"] == {"S": "open"}]
    some[0]["status"] = {"S": "closed"}  # the keys remain
    some[1]["GSI1PK"] = {"S": "OPEN#a9"}
    del some[2]["GSI1PK"], some[2]["GSI1SK"]
    found = proposed(items)
    (rule,) = of_state(found, "uncertain")
    assert rule.body == {"from": "Ticket", "where": {"status": ["open"]}, "index": SPARSE}
    assert predicted(rule) == happens(found, rule, items) == (1, 1, 1)
    assert rule.contradiction is not None
    assert {one["key"] for one in rule.contradiction.examples} == {f"{one['PK']['S']} INFO" for one in some[:3]}


def test_keys_of_an_index_that_are_stale_in_few_items_are_an_uncertain_rule() -> None:
    items = init_tables.social()
    for one in [one for one in items if one["SK"]["S"].startswith("COMMENT")][:3]:
        one["GSI1PK"] = {"S": "someone-else"}
    rule = uncertain(proposed(items), "GSI1PK and GSI1SK")
    assert rule.body == {"from": "Comment", "index": {"GSI1PK": "AUTHOR#{userId}", "GSI1SK": "{createdAt}"}}
    assert predicted(rule) == (3, 0, 0)
    assert not rule.refused


# --- dirty data ---

ODD: list[dict[str, Any]] = [
    *({"N": text} for text in ("1E+30", "-0", "3.00", "9" * 38)),
    *({"S": ""}, {"S": "x"}, {"NULL": True}, {"BOOL": False}, {"M": {}}, {"SS": ["a"]}, {"B": "YQ=="}),
    *({"L": []}, {"L": [{"S": "a"}]}, {"L": [{"M": {}}]}, {"L": [{"M": {"text": {"N": "1"}, "deep": {"M": {}}}}]}),
]


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 16), marks=pytest.mark.deep)], ids=["few", "many"])
def test_effects_are_exact_on_tables_with_odd_values(seeds: range) -> None:
    """Attributes are missing, or have values of other types. No uncertain rule is active."""
    tables = [(INDEXED, init_tables.social(8)), init_tables.shop(), (INDEXED, classes(10)), (INDEXED, tickets())]
    checked = 0
    for seed in seeds:
        table, clean = tables[seed % len(tables)]
        chance, items = random.Random(seed), copy.deepcopy(clean)
        for one in items:
            for name in [name for name in one if name not in table.key_names and chance.random() < 0.05]:
                one[name] = copy.deepcopy(chance.choice(ODD))
                if chance.random() < 0.3:
                    del one[name]
        found = proposed(items, table)
        assert set(loads(rule_file(found)).projections) == {rule.name for rule in of_state(found, "held")}
        for rule in of_state(found, "uncertain"):
            assert rule.doubt
            if not rule.refused:
                checked += 1
                assert predicted(rule) == happens(found, rule, items), (seed, rule)
    assert checked >= len(seeds)

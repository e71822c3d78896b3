"""Rules that most items agree with: what is proposed, with which counter-evidence, and what is not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from init_tables import INDEXED, Item, item
from pattern_tables import PATTERNS, Grown

from projections.init.inference import contradictions
from projections.init.inference.infer import infer
from projections.init.inference.proposal import Proposal, Rule
from projections.init.prove import proven
from projections.init.rule_file import rule_file
from projections.init.table import Sample, Table
from projections.language.loader import loads
from projections.testing.oracle import Oracle

Key = tuple[str, ...]


def proposal(items: Sequence[Item], table: Table = INDEXED, *, complete: bool = True, **sample: Any) -> Proposal:
    return proven(infer(table, Sample(items, complete, **sample)))


def of_state(found: Proposal, state: str) -> list[Rule]:
    return [rule for rule in found.rules if rule.state == state]


def uncertain(found: Proposal, attribute: str) -> Rule:
    (rule,) = [
        rule
        for rule in of_state(found, "uncertain")
        if rule.contradiction and rule.contradiction.attribute == attribute
    ]
    return rule


def attributes_of(rule: Rule) -> list[str]:
    body = rule.body[rule.kind]
    return [body["as"]] if rule.kind == "top" else list(body["set"] if rule.kind == "aggregate" else body["attributes"])


def key_of(one: Item, table: Table) -> Key:
    return tuple(str(next(iter(one[name].values()))) for name in table.key_names)


def live(found: Proposal, rule: Rule, items: Sequence[Item]) -> dict[Key, Item]:
    """The items with this rule alone, live, as the oracle computes them."""
    text = rule_file(replace(found, rules=[replace(rule, doubt="", contradiction=None)]))
    canonical = loads(text.replace("mode: shadow", "mode: live")).canonical()
    (table,) = canonical["tables"]
    expected = Oracle(canonical).expected({table: items}).items
    return {key_of(one, found.table): dict(one) for one in expected.values()}


def predicted(rule: Rule) -> tuple[int, int, int]:
    found = rule.contradiction
    assert found is not None
    return found.changes, found.adds, found.removes


def happens(found: Proposal, rule: Rule, items: Sequence[Item]) -> tuple[int, int, int]:
    """How many items' attribute the rule changes, adds and removes, according to the oracle."""
    assert rule.contradiction is not None
    name, after = rule.contradiction.attribute, live(found, rule, items)
    pairs = [(one.get(name), after[key_of(one, found.table)].get(name)) for one in items]
    differing = [(a, b) for a, b in pairs if contradictions.identity(a) != contradictions.identity(b)]
    added = sum(a is None for a, _ in differing)
    removed = sum(b is None for _, b in differing)
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


@pytest.mark.parametrize(
    "seeds", [range(12), pytest.param(range(12, 200), marks=pytest.mark.deep)], ids=["few", "many"]
)
def test_attributes_without_a_relation_give_no_rules(seeds: range) -> None:
    """Each table has about 100 candidates: nearly all agree with some items by chance."""
    related = 0
    for seed in seeds:
        found = infer(INDEXED, Sample(unrelated(seed), True))
        related += bool(found.relations)
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
    clean = proposal(grown.items, grown.table)
    for rule in of_state(clean, "shadow"):
        for attribute in attributes_of(rule):
            tried = with_errors(grown, clean, rule, attribute)
            if tried is None:
                continue
            items, keys = tried
            found = infer(grown.table, Sample(items, True))
            same = [
                one
                for one in of_state(found, "uncertain")
                if one.contradiction and (one.into, one.contradiction.attribute) == (rule.into, attribute)
                if one.body["from"] == rule.body["from"]
                if {tuple(example.key.values()) for example in one.contradiction.examples} == keys
            ]
            for one in same:
                assert predicted(one) == happens(found, one, items), (pattern, one)
            yield rule.name, attribute, bool(same)


MISSED = {"organizations": {"orgUsersOfOrg seats"}, "visitors": {"visitorsOfDay visits"}}
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

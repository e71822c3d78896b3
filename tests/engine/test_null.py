"""An attribute of type NULL is a missing one: rules derive the same with it as without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

import projections
from projections.engine.store import Image, Value
from projections.errors import BadInput
from projections.language.embeds import ListEmbedRule
from projections.language.entity import Item
from projections.language.loader import load
from projections.language.program import Program
from projections.language.values import valued
from projections.stores.memory import MemoryStore
from projections.testing.scenario import Scenario
from projections.testing.simulation.item_writer import ItemWriter
from projections.testing.simulation.pools import FOREIGN, Pools
from projections.testing.simulation.rule_versions import RuleVersion, RuleVersions, changed

NULL: Value = {"NULL": True}
RULES = sorted((Path(__file__).parents[1] / "simulation/rules").glob("*.yaml"))


def indifferent(part: Any) -> Any:
    """Return rules whose patterns ask for a value, or for none, instead of asking what is stored."""
    if isinstance(part, Mapping):
        return {key: inner if key == "anything-but" else indifferent(inner) for key, inner in part.items()}
    if not isinstance(part, list):
        return part
    found: list[Any] = []
    for one in part:
        if one == {"exists": True}:
            found.append({"anything-but": ["a text that no item has"]})
        elif one is None or one == {"exists": False}:
            found += [None, {"exists": False}]
        else:
            found.append(indifferent(one))
    return found


def versions(path: Path) -> Iterator[Program]:
    """Yield the rules of a file, and random changes of them."""
    version = RuleVersion(load(path).canonical())
    alone = RuleVersions(version, version, version.program, Pools(version.program))
    for words in ("", *map(str, range(4))):
        chosen = changed(alone, Random(words), entities=False) if words else alone
        for one in chosen.all:
            yield Program.from_document(indifferent(one.document))


def with_nulls(image: Image, names: list[str], lists: bool, rng: Random) -> dict[str, Any]:
    """Return an item or map with NULL for some names that it lacks, also in its maps, and between elements of lists."""
    found = {name: _with(value, names, rng) for name, value in image.items()} if lists else dict(image)
    return {**found, **{name: NULL for name in names if name not in image and rng.random() < 0.6}}


def _with(value: Value, names: list[str], rng: Random) -> Value:
    ((kind, content),) = value.items()
    if kind == "M":
        return {"M": with_nulls(content, names, True, rng)}
    if kind != "L":
        return value
    elements = [_with(one, names, rng) for one in content]
    if rng.random() < 0.5:
        elements.insert(rng.randint(0, len(elements)), NULL)
    return {"L": elements}


def without(value: Any) -> Any:
    """Return what was derived without NULLs in the lists and maps that were copied."""
    if isinstance(value, Mapping):
        return {key: without(one) for key, one in value.items() if one != NULL}
    if isinstance(value, list | tuple):
        return [without(one) for one in value if one != NULL]
    return value


def derived(program: Program, item: Item) -> list[Any]:
    """Return all that rules derive from an item. Members have their attributes instead of digests of them."""
    evaluated = program.contributions(item)
    contributed = {
        (rule, target): {slot: sorted(given) if slot == "+" else given for slot, given in contribution.items()}
        for rule, targets in evaluated.contributions.items()
        for target, contribution in targets.items()
    }
    return [
        contributed,
        without(evaluated.payloads),
        evaluated.problems,
        *(_of(rule.copies, item) for rule in program.copy_rules.get(item.entity.name, ())),
        *(_of(rule.desired, item) for rule in program.item_rules.get(item.entity.name, ())),
        *(
            _of(call, item)
            for rule in program.embeds_from.get(item.entity.name, ())
            for call in (rule.embedded, rule.matched_by)
        ),
        *(
            _of(rule.references if isinstance(rule, ListEmbedRule) else rule.reference, item)
            for rule in program.embeds_into.get(item.entity.name, ())
        ),
    ]


def _of(call: Any, item: Item) -> Any:
    try:
        return without(call(item))
    except BadInput as problem:
        return str(problem)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_derive_the_same_from_items_with_nulls_as_without_them(path: Path) -> None:
    rng = Random(path.stem)
    compared = 0
    for program in versions(path):
        pools = Pools(program)
        writer = ItemWriter(program, tuple(program.rules.values()), pools, MemoryStore({}), Random(path.stem), {}, {})
        for kind in writer.kind_list:
            read = [*kind.attributes, *pools._elements[kind.entity.name], FOREIGN]
            derived_names = program.derived_attributes(kind.entity.name)
            fixed = {*derived_names, *kind.entity.schema.key_attributes, *kind.index_key}
            steps = [step for name in read for step in name.split(".")]
            names = [name for name in dict.fromkeys([*steps, *kind.variables]) if name not in fixed]
            for key, variables in kind.keys * 4:
                image = without(writer.new(kind, key, variables))
                other = with_nulls(image, names, True, rng)
                one, two = program.recognise(key, image), program.recognise(key, other)
                assert (one and one.entity) is (two and two.entity)
                if one is not None and two is not None:
                    assert derived(program, one) == derived(program, two), (image, other)
                    compared += valued(other) != other
    assert compared > 20


RULES_OF_A_SHOP = """
table: { key: [PK, SK], indexes: { GSI1: [GSI1PK, GSI1SK] } }
entities:
  Order: { key: { PK: "CUSTOMER#{customer}", SK: "ORDER#{order}" }, id: order }
  Customer: { key: { PK: "CUSTOMER#{customer}", SK: PROFILE } }
  ById: { key: { PK: "ORDER#{order}", SK: ORDER } }
projections:
  totals: { from: Order, aggregate: { into: Customer, set: { orders: count, spent: sum(total), mean: avg(total) } } }
  newest: { from: Order, top: { into: Customer, as: newest, by: at, limit: 2, attributes: [at, note] } }
  byId: { from: Order, copy: { into: ById, attributes: all } }
  shown: { from: Customer, compute: { set: { shown: "coalesce(nick, name)" } } }
  first: { from: Customer, compute: { set: { firstName: name }, once: true } }
  listed: { from: Order, index: { GSI1PK: "STATUS#{status|default(new)}", GSI1SK: "{at}" } }
"""
CUSTOMER = {"PK": "CUSTOMER#c", "SK": "PROFILE"}
ORDER = {"PK": "CUSTOMER#c", "SK": "ORDER#1"}


def test_a_null_that_the_application_writes_to_an_attribute_of_a_rule_is_overwritten() -> None:
    played = Scenario(projections.loads(RULES_OF_A_SHOP))
    played.put({**CUSTOMER, "name": "Ann", "nick": None})
    played.put({**ORDER, "total": 5, "at": 1, "note": None, "status": None})
    played.update({**CUSTOMER, "spent": None, "shown": None, "newest": None})
    played.update({**ORDER, "GSI1PK": "x", "GSI1SK": "y"})
    played.update({"PK": "ORDER#1", "SK": "ORDER", "total": None})
    customer = {"name": "Ann", "nick": None, "orders": 1, "spent": 5, "mean": 5, "newest": [{"at": 1}]}
    order = {"total": 5, "at": 1, "GSI1PK": "STATUS#new", "GSI1SK": "1"}
    played.then(
        {**CUSTOMER, **customer, "shown": "Ann", "firstName": "Ann"},
        {**ORDER, **order, "note": None, "status": None},
        {"PK": "ORDER#1", "SK": "ORDER", **order},
    )
    assert played.quarantined == []


def test_a_value_that_becomes_null_is_removed_where_it_was_copied() -> None:
    played = Scenario(projections.loads(RULES_OF_A_SHOP))
    played.put({**CUSTOMER, "name": "Ann", "nick": "Annie"})
    played.put({**ORDER, "total": 5, "at": 1, "note": "now"})
    played.update({**ORDER, "total": None, "at": None, "note": None})
    played.update({**CUSTOMER, "nick": None, "firstName": None})
    customer = played.item(CUSTOMER) or {}
    assert (customer["shown"], customer["firstName"]) == ("Ann", "Ann")
    assert (customer["orders"], customer["spent"], customer["newest"], "mean" in customer) == (1, 0, [], False)
    assert played.item({"PK": "ORDER#1", "SK": "ORDER"}) == {"PK": "ORDER#1", "SK": "ORDER"}
    assert "GSI1PK" not in (played.item(ORDER) or {})

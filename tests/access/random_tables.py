"""Random tables, items and queries, and the answers by reading all items."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any

from projections.language.keys import ItemKey
from projections.language.program import Program
from projections.local.items import wire_item

NOW = datetime(2026, 5, 20, tzinfo=UTC)

SORT_KEYS = ("I#{b}", "{b}", "I#{t}#{b}", "{t}#{b}", "I#{b}#{c}", "N#{k}#{b}")
TIMES = ("T#{t|date(%Y-%m)}", "A#{a}#T#{t|date(%Y-%m-%d)}")
BUCKETS = ("K#{b|bucket(3)}", "S#{s}#K#{b|bucket(2)}")
TIMES_IN_BUCKETS = "K#{b|bucket(2)}#T#{t|date(%Y-%m)}"
PLAIN = ("ALL", "S#{s}", "B#{b}", "A#{a}#S#{s}", "M#{m|lower}", "{m}")
INDEX_PARTITIONS = (*PLAIN, *TIMES, *TIMES, *BUCKETS, *BUCKETS, TIMES_IN_BUCKETS)
INDEX_SORTS = ("{t}#{b}", "N#{n|pad(3)}#{b}", "{n|invert(3)}#{b}", "I#{b}", "{s}#{t}", "{m}")
WHERES: tuple[Mapping[str, Any], ...] = (
    {},
    {},
    {"s": ["x"]},
    {"s": ["x", "y"]},
    {"n": [{"exists": True}]},
    {"n": [{"numeric": [">=", 5]}]},
    {"s": ["x"], "n": [{"exists": True}]},
    {"m": [{"prefix": "M"}], "t": [{"exists": True}]},
    {"$or": [{"s": ["x"]}, {"n": [{"numeric": ["<", 3]}]}]},
)


def rules(random: Random) -> dict[str, Any]:
    """Return a random rule file: entities that may share partitions, indexes, index rules, a copy."""
    sort = random.choice(SORT_KEYS)
    other = random.choice([one for one in ("J#{b}", "PROFILE", "{b}#J", "I#{b}#J#{c}#x") if one != sort])
    entities: dict[str, Any] = {"E": {"key": {"PK": "E#{a}", "SK": sort}, "match": {"kind": "E"}}}
    entities["F"] = {"key": {"PK": random.choice(["E#{a}", "F#{a}"]), "SK": other}, "match": {"kind": "F"}}
    for entity in entities.values():
        variables = "".join(entity["key"].values())
        required = [name for name in "tnsm" if random.random() < 0.4 and "{" + name + "}" not in variables]
        if required:
            entity["required"] = required
    indexes: dict[str, Any] = {
        "GSI1": {"partition": ["G1PK"], "sort": ["G1SK"], **_projection(random, ["uid", "kind", "s", "n"])},
        "GSI2": {"partition": ["s"], "sort": {"n": "N"}, **_projection(random, ["uid", "kind", "m", "t"])},
        "GSI3": ["SK", "PK"],
        "GSI4": {"partition": ["s", "m"], "sort": {"t": "S", "n": "N"}},
        "LSI1": {"local": True, "sort": ["t"]},
    }
    projections: dict[str, Any] = {}
    for entity in random.choice((("E",), ("E", "F"))):
        projections[f"index{entity}"] = {"from": entity, **_index(random)}
    if random.random() < 0.4:
        entities["C"] = {"key": {"PK": "C#{b}", "SK": "{a}#{t}"}, "match": {"kind": "C"}}
        entities["E"]["id"] = "b"
        attributes = ["uid", *random.sample(["s", "n", "m"], random.randint(0, 3))]
        projections["copy"] = {"from": "E", "copy": {"into": "C", "attributes": attributes}}
        if random.random() < 0.5:
            projections["copy"]["where"] = {"s": ["x"]}
    return {"table": {"key": ["PK", "SK"], "indexes": indexes}, "entities": entities, "projections": projections}


def _projection(random: Random, most: list[str]) -> dict[str, Any]:
    # `match` tests `kind`: an index that does not project it answers no query.
    choice = random.choice(["all", "all", "keys_only", ["uid"], ["uid", "kind"], most])
    return {"projection": choice}


def _index(random: Random) -> dict[str, Any]:
    def keys() -> dict[str, str]:
        return {"G1PK": random.choice(INDEX_PARTITIONS), "G1SK": random.choice(INDEX_SORTS)}

    if random.random() < 0.5:
        where = random.choice(WHERES)
        return {"index": keys(), **({"where": where} if where else {})}
    cases = [{"where": {"s": [value]}, **keys()} for value in random.sample(["x", "y", "z"], random.randint(1, 2))]
    return {"index": [*cases, *([keys()] if random.random() < 0.3 else [])]}


def items(random: Random, document: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """Return items of E and F, each with its entity's variables as attributes, some attributes missing, and a `uid`."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    offset = random.choice(["Z", "Z", "+02:00", "-05:00", "+14:00", "-12:00"])
    for _ in range(count):
        name = random.choice(["E", "E", "F"])
        entity = document["entities"][name]
        values = {
            "a": random.choice(["1", "2"]),
            "b": random.choice(["p", "q", "r1", "r2"]) if "id" not in entity else f"id{len(found)}",
            "c": random.choice(["u", "v"]),
            "k": random.choice(["5", "50", "7"]),
            "t": _time(random) + offset,
            "n": random.randint(0, 120),
            "s": random.choice("xyz"),
            "m": random.choice(["Ma", "ma", "Mb", "other"]),
        }
        texts = " ".join(entity["key"].values())
        key = {part: _filled(text, values) for part, text in entity["key"].items()}
        image: dict[str, Any] = {**key, "kind": name}
        for attribute, value in values.items():
            always = attribute in "ab" or attribute in entity.get("required", ())
            if "{" + attribute + "}" not in texts and (always or random.random() < 0.85):
                image[attribute] = value
        found[key["PK"], key["SK"]] = image
    for number, image in enumerate(found.values()):
        image["uid"] = number
    return list(found.values())


def _time(random: Random) -> str:
    """Return a time without offset, often near the beginning or the end of a month."""
    month = random.randint(1, 5)
    last = {2: 28, 5: 18}.get(month, 30)
    return f"2026-0{month}-{random.choice([1, 11, 15, last]):02d}T{random.choice(['00:30', '10:00', '23:30'])}:00"


def _filled(template: str, values: Mapping[str, Any]) -> str:
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template


def query(random: Random, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a random query as a rule file has it."""
    found: dict[str, Any] = {"find": random.choice(["E", "E", "E", "F", ["E", "F"]])}
    names = ["a", "b", "s", "m", "m|lower", "c", "t"]
    by = random.sample(names, random.choice([0, 0, 1, 1, 1, 2]))
    if by and len({name.split("|")[0] for name in by}) == len(by):
        found["by"] = by
    if where := random.choice(WHERES):
        found["where"] = where
    if random.random() < 0.5 and isinstance(found["find"], str):
        bounded = random.choice(["t", "t", "n", "b", "m", "k"])
        if bounded not in {name.split("|")[0] for name in by}:
            found["range"] = bounded
    if random.random() < 0.6:
        direction = random.choice(["", " desc"])
        named = random.choice(["t", "n", "n", "b", "s", "m"])
        found["order"] = (named + direction) if isinstance(found["find"], str) else random.choice(["asc", "desc"])
    if random.random() < 0.4:
        found["attributes"] = ["uid"]
    if random.random() < 0.5:
        found["limit"] = random.randint(1, 4)
    return found


def fitting_query(random: Random, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query that begins with the keys of a path, so that many of them are answered exactly."""
    name = random.choice(["E", "E", "F"])
    rule = document["projections"].get(f"index{name}")
    keys: Mapping[str, Any] = dict(zip(("P", "S"), document["entities"][name]["key"].values(), strict=True))
    where: dict[str, Any] = {}
    if rule is not None and random.random() < 0.7:
        case = random.choice(rule["index"]) if isinstance(rule["index"], list) else rule["index"]
        keys = {"P": case["G1PK"], "S": case["G1SK"]}
        where = {**rule.get("where", {}), **case.get("where", {})}
    found: dict[str, Any] = {"find": name}
    fields = re.findall(r"{(\w+)((?:\|[^{}]*)?)}", keys["P"])
    sorted_by = re.findall(r"{(\w+)((?:\|[^{}]*)?)}", keys["S"])
    by = [field for field, pipes in fields if "bucket" not in pipes and "date" not in pipes and field not in where]
    if by:
        found["by"] = by
    if any("date" in pipes for _, pipes in fields):
        found["range"] = "t"
    elif sorted_by and random.random() < 0.5 and sorted_by[0][0] not in by:
        found["range"] = sorted_by[0][0]
    for needed in {field for field, _ in (*fields, *sorted_by)} - {*by, found.get("range"), *where}:
        if random.random() < 0.8 and needed in "tnsm":
            where[needed] = [{"exists": True}]
    if random.random() < 0.3:
        where["s"] = random.choice([["x", "y"], ["x", "z"], ["y"]])
    if sorted_by and random.random() < 0.7:
        found["order"] = sorted_by[0][0] + random.choice(["", " desc"])
    if random.random() < 0.6:
        found["attributes"] = ["uid"]
    return {**found, **({"where": where} if where else {}), "limit": random.randint(1, 4)}


def parameters(
    random: Random, asked: Mapping[str, Any], table: Sequence[Mapping[str, Any]], variables: Any
) -> dict[str, Any]:
    """Return values of the parameters that occur in the table, and bounds."""
    given: dict[str, Any] = {}
    for name in asked.get("by", ()):
        plain = name.split("|")[0]
        held = [value for item in table if (value := variables(item, plain)) is not None]
        given[plain] = random.choice(held) if held else "p"
        if "|" in name and random.random() < 0.5:
            given[plain] = str(given[plain]).upper()
    if bounded := asked.get("range"):
        held = sorted({value for item in table if (value := variables(item, bounded)) is not None}, key=str)
        ends = sorted(random.choices(held or ["p"], k=2), key=lambda one: (isinstance(one, str), one))
        if bounded == "t" and held and random.random() < 0.5:  # a date, or the beginning of one
            ends = [end[: random.choice([4, 7, 10, 13, 16, 19])] for end in ends]
        if bounded == "t" or random.random() < 0.6:
            given[f"{bounded}.from"] = ends[0]
        if random.random() < 0.6:
            given[f"{bounded}.to"] = ends[1]
    return given


def variables_of(program: Program) -> Callable[[Mapping[str, Any], str], Any]:
    """Return a function for the value of a variable or attribute of an item."""

    def variables(item: Mapping[str, Any], name: str) -> Any:
        if name in item:
            return item[name]
        found = program.recognise(ItemKey("main", item["PK"], item["SK"]), wire_item(item, ""))
        return None if found is None else found.variables.get(name)

    return variables


_SHORT = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?")
"""An upper bound that includes all that begins with it."""


@dataclass
class BruteForce:
    """The answer by reading all items. `variables` returns the value of a variable or attribute of an item."""

    table: Sequence[Mapping[str, Any]]
    variables: Any

    def answer(self, asked: Mapping[str, Any], given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        entities = [asked["find"]] if isinstance(asked["find"], str) else asked["find"]
        found = [item for item in self.table if item["kind"] in entities and self._fits(asked, given, item)]
        order = asked.get("order", "").split()
        if order and order[0] not in ("asc", "desc"):
            found.sort(key=lambda item: self.variables(item, order[0]), reverse="desc" in order)
        return found

    def _fits(self, asked: Mapping[str, Any], given: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
        for name in asked.get("by", ()):
            plain, _, pipe = name.partition("|")
            held, wanted = self.variables(item, plain), given[plain]
            if held is None or (str(held).lower() != str(wanted).lower() if pipe else str(held) != str(wanted)):
                return False
        if not self.matches(asked.get("where", {}), item):
            return False
        order = asked.get("order", "").split()
        for name in (asked.get("range"), *order[:1]):
            if name not in (None, "asc", "desc") and self.variables(item, name) is None:
                return False
        if bounded := asked.get("range"):
            value = self.variables(item, bounded)
            low, high = given.get(f"{bounded}.from"), given.get(f"{bounded}.to")
            if type(low) not in (type(value), type(None)) or type(high) not in (type(value), type(None)):
                return False
            if low is not None and value < low:
                return False
            if high is not None and value > high and not (_SHORT.fullmatch(str(high)) and str(value).startswith(high)):
                return False
        return True

    def matches(self, pattern: Mapping[str, Any], item: Mapping[str, Any]) -> bool:
        for name, wanted in pattern.items():
            if name == "$or":
                if not any(self.matches(branch, item) for branch in wanted):
                    return False
            elif not any(self._alternative(one, self.variables(item, name)) for one in wanted):
                return False
        return True

    @staticmethod
    def _alternative(one: Any, value: Any) -> bool:
        if isinstance(one, str):
            return bool(value == one)
        ((operator, argument),) = one.items()
        if operator == "exists":
            return (value is not None) == argument
        if value is None or (operator == "numeric") != isinstance(value, int | Decimal):
            return False
        if operator == "prefix":
            return str(value).startswith(argument)
        sign, bound = argument
        return bool({">=": value >= bound, "<": value < bound}[sign])

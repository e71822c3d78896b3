"""Aggregates of children that parents have as attributes, which the application maintains itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache, partial, reduce
from itertools import combinations
from typing import Any

from projections.errors import BadInput
from projections.init.inference.proposal import Attribute, Relation, Rule
from projections.init.inference.relations import Link
from projections.init.inference.rows import Row, scalar
from projections.init.inference.words import lower_camel, normal, pascal, plural, singular, words
from projections.language.arithmetic import Expression
from projections.language.measures import Measure
from projections.language.syntax import PATH
from projections.language.values import CONTEXT, Image, Value, lookup, number_text

__all__ = ["count_rules", "idea_rules", "measured", "named_by", "related_twice", "rule_body"]

_AGREE = 0.9
_LEAST_PARENTS = 3
_MOST_NUMBERS = 6
_FUNCTIONS: Mapping[str, Any] = {
    "sum": lambda numbers: reduce(CONTEXT.add, numbers, Decimal(0)),
    "max": max,
    "min": min,
}


def count_rules(links: Sequence[Link], complete: bool, skipped: set[tuple[str, str]]) -> Iterator[Rule]:
    """Yield a rule for each relation whose parents have attributes that are aggregates of the children, or are named so.

    `skipped` are (parent, attribute) that other rules have; those found here are added.
    """
    several = related_twice(links)
    for link in sorted(links, key=lambda link: (bool(link.relation.bind), -link.relation.seen)):
        if not _is_one_to_many(link):
            continue
        found: dict[str, tuple[str, str]] = {}
        for attribute in link.parent.entity.attributes:
            place = (link.relation.parent, attribute.name)
            number = attribute.type == "N" and PATH.fullmatch(attribute.name)
            if number and place not in skipped and is_called_count(attribute.name, link):
                skipped.add(place)
                found[attribute.name] = ("count", _count_evidence(link, attribute.name, complete))
        if complete:
            found |= dict(_equal(link, skipped))
        if found:
            yield _rule(link, found, several)


def idea_rules(links: Sequence[Link], rules: Sequence[Rule]) -> Iterator[Rule]:
    """Yield counts that the parents have no attribute for: possible rules."""
    counted = {(rule.body["from"], rule.body["aggregate"]["into"]) for rule in rules if "aggregate" in rule.body}
    several = related_twice(links)
    for link in links:
        relation = link.relation
        if (relation.child, relation.parent) in counted or not _is_one_to_many(link) or relation.bind:
            continue
        attribute = lower_camel(relation.child) + "Count"
        if any(one.name == attribute for one in link.parent.entity.attributes):
            continue
        doubt = f"{relation.parent} items do not have this attribute today"
        yield _rule(link, {attribute: ("count", _relation_evidence(link))}, several, doubt)


def _rule(link: Link, found: Mapping[str, tuple[str, str]], several: set[tuple[str, str]], doubt: str = "") -> Rule:
    relation = link.relation
    by = "" if (relation.child, relation.parent) not in several else named_by(relation)
    name = f"{lower_camel(plural(relation.child))}Of{relation.parent}{by}"
    body = rule_body(link, "aggregate", {"into": relation.parent, "set": {a: how for a, (how, _) in found.items()}})
    return Rule(name, body, "; ".join(dict.fromkeys(evidence for _, evidence in found.values())), doubt)


def named_by(relation: Relation) -> str:
    """Return a suffix that distinguishes relations between the same entities: `ByAuthorId`."""
    return "".join("By" + pascal(name) for variable, name in relation.binding.items() if name != variable)


def related_twice(links: Sequence[Link]) -> set[tuple[str, str]]:
    """Return (child, parent) of entities with several relations."""
    counts = Counter((link.relation.child, link.relation.parent) for link in links)
    return {pair for pair, count in counts.items() if count > 1}


def rule_body(link: Link, kind: str, action: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule from the children of a relation into its parents."""
    body: dict[str, Any] = {"from": link.relation.child}
    if link.relation.bind:
        body["bind"] = link.relation.bind
    if link.child.entity.expires:
        body["expired"] = "retract"
    return {**body, kind: dict(action)}


def _relation_evidence(link: Link) -> str:
    relation = link.relation
    return f"{relation.seen} of {relation.of} {relation.child} items belong to a {relation.parent} in the sample"


def _is_one_to_many(link: Link) -> bool:
    """Return whether a parent may have several children: the child's key has further variables."""
    named = set(link.relation.binding.values())
    return any(variable.name not in named for variable in link.child.entity.variables)


def is_called_count(attribute: str, link: Link) -> bool:
    """Return whether an attribute is named as the number of these children: likeCount, num_likes, totalLikes, likes."""
    names = set()
    for stem in {normal(singular(link.relation.child)), normal(singular(words(link.relation.child)[-1]))}:
        names |= {f"{stem}{word}" for word in ("count", "counter", "total", "num")}
        for many in {normal(plural(stem)), stem + "s"}:  # generated names have plurals such as `categorys`
            names |= {many, *(f"{many}{word}" for word in ("count", "counter", "total"))}
            names |= {
                f"{word}{many}" for word in ["n", "no", "nb", "num", "number", "numberof", "total", "count", "countof"]
            }
    return normal(attribute) in names


def _count_evidence(link: Link, attribute: str, complete: bool) -> str:
    relation, children = link.relation, link.children
    with_it = [(row, len(children[number])) for number, row in enumerate(link.parent.rows) if attribute in row.item]
    of = f"of {len(with_it)} {relation.parent} items"
    if complete:
        same = sum(row.text(attribute) == str(count) for row, count in with_it)
        return f"{attribute} is the number of {relation.child} items in {same} {of}"
    possible = sum(Decimal(row.item[attribute].get("N", -1)) >= count for row, count in with_it)
    return (
        f"{attribute} has the name of a counter, and is not less than the number of {relation.child} items in the sample in "
        f"{possible} {of}; {_relation_evidence(link)}"
    )


# By value, if the sample is the whole table


def _equal(link: Link, skipped: set[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield attributes of parents that equal an aggregate of their children."""
    children = link.children
    variables = {variable.name for variable in link.parent.entity.variables}
    for attribute in link.parent.entity.attributes:
        place = (link.relation.parent, attribute.name)
        usable = _comparable(attribute) and PATH.fullmatch(attribute.name) and attribute.name not in variables
        if place in skipped or not usable:
            continue
        pairs = [
            (row, children[n]) for n, row in enumerate(link.parent.rows) if attribute.name in row.item and children[n]
        ]
        if min(len(pairs), len({row.text(attribute.name) for row, _ in pairs})) < _LEAST_PARENTS:
            continue
        for measure in _measures(link, attribute.type):
            same = sum(row.text(attribute.name) == _amount(measure, some) for row, some in pairs)
            if same >= _AGREE * len(pairs) and _needs_all(measure, [some for _, some in pairs if len(some) > 1]):
                skipped.add(place)
                what = f"{attribute.name} is {measure} of the {link.relation.child} items"
                yield attribute.name, (measure, f"{what} in {same} of {len(pairs)} {link.relation.parent} items")
                break


def _comparable(attribute: Attribute) -> bool:
    return attribute.type == "N" or (attribute.type == "S" and attribute.form in ("time", "date", "ulid"))


def _needs_all(measure: str, several: Sequence[Sequence[Row]]) -> bool:
    """Return whether a measure of several children differs from that of the first or last one alone."""
    return (
        sum({_amount(measure, rows[:1]), _amount(measure, rows[-1:])} != {_amount(measure, rows)} for rows in several)
        >= 2
    )


def _measures(link: Link, type_: str) -> Iterator[str]:
    attributes = [one for one in link.child.entity.attributes if one.type == type_ and PATH.fullmatch(one.name)]
    if type_ == "N":
        names = [one.name for one in attributes[:_MOST_NUMBERS]]
        yield "count"
        yield from (f"sum({name})" for name in names)
        yield from (f"sum({one} * {other})" for one, other in combinations(names, 2))
    typed = "number" if type_ == "N" else "text"
    for name in [one.name for one in attributes if _comparable(one)][:_MOST_NUMBERS]:
        yield from (f"{function}({typed}({name}))" for function in ("max", "min"))


def _amount(measure: str, rows: Sequence[Row]) -> str | None:
    value = measured(measure, [row.item for row in rows])
    return scalar({"it": value}, "it") if value is not None else None


def measured(measure: str, items: Sequence[Image]) -> Value | None:
    """Return a measure of items; None if a value is missing or of another type, or if it has no value without items."""
    if measure == "count":
        return {"N": str(len(items))}
    function, expression = _parsed(measure)
    assert expression is not None
    try:
        values = [expression.evaluate(partial(lookup, item)) for item in items]
    except BadInput:
        return None
    if None in values or (not items and function != "sum"):
        return None
    found = _FUNCTIONS[function](values)
    return {"S": found} if isinstance(found, str) else {"N": number_text(found)}


@cache
def _parsed(measure: str) -> tuple[str, Expression | None]:
    parsed = Measure.parse("it", measure)
    return parsed.function, parsed.expression

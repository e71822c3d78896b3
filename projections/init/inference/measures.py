"""Counters and other aggregates of children that parents seem to carry already, kept by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import combinations
from typing import Any

from projections.init.inference.proposal import Attribute, Relation, Rule
from projections.init.inference.relations import Link
from projections.init.inference.rows import Row
from projections.init.inference.words import lower_camel, normal, pascal, plural, singular, words
from projections.language.syntax import PATH
from projections.language.values import number_text

__all__ = ["count_rules", "idea_rules", "named_by", "related_twice", "rule_body"]

_AGREE = 0.9
_LEAST_PARENTS = 3
_MOST_NUMBERS = 6

Amount = Callable[[Sequence[Row]], str | None]


def count_rules(links: Sequence[Link], complete: bool, skipped: set[tuple[str, str]]) -> Iterator[Rule]:
    """A rule for each relation whose parents have attributes that are, or are called like, aggregates of the children.

    `skipped` are (parent, attribute) that other rules have; those found here are added.
    """
    several = related_twice(links)
    for link in sorted(links, key=lambda link: (bool(link.relation.bind), -link.relation.seen)):
        if not _is_one_to_many(link):
            continue
        found: dict[str, tuple[str, str]] = {}
        for attribute in _numbers(link.parent.entity.attributes):
            place = (link.relation.parent, attribute.name)
            if place not in skipped and is_called_count(attribute.name, link):
                skipped.add(place)
                found[attribute.name] = ("count", _count_evidence(link, attribute.name, complete))
        if complete:
            found |= dict(_equal(link, skipped))
        if found:
            yield _rule(link, found, several)


def idea_rules(links: Sequence[Link], rules: Sequence[Rule]) -> Iterator[Rule]:
    """Counts that no attribute is there for yet: possible, and nobody said that they are wanted."""
    counted = {(rule.body["from"], rule.body["aggregate"]["into"]) for rule in rules if "aggregate" in rule.body}
    several = related_twice(links)
    for link in links:
        relation = link.relation
        if (relation.child, relation.parent) in counted or not _is_one_to_many(link) or relation.bind:
            continue
        attribute = lower_camel(relation.child) + "Count"
        if any(one.name == attribute for one in link.parent.entity.attributes):
            continue
        doubt = f"{relation.parent} items have no such attribute today; it is one you could have"
        yield _rule(link, {attribute: ("count", _relation_evidence(link))}, several, doubt)


def _rule(link: Link, found: Mapping[str, tuple[str, str]], several: set[tuple[str, str]], doubt: str = "") -> Rule:
    relation = link.relation
    by = "" if (relation.child, relation.parent) not in several else named_by(relation)
    name = f"{lower_camel(plural(relation.child))}Of{relation.parent}{by}"
    body = rule_body(link, "aggregate", {"into": relation.parent, "set": {a: how for a, (how, _) in found.items()}})
    return Rule(name, body, "; ".join(dict.fromkeys(evidence for _, evidence in found.values())), doubt)


def named_by(relation: Relation) -> str:
    """What tells this relation from others between the same entities: `ByAuthorId`."""
    names = [name for variable, name in relation.binding.items() if name != variable]
    return "".join("By" + pascal(name) for name in names)


def related_twice(links: Sequence[Link]) -> set[tuple[str, str]]:
    """(child, parent) of entities between which there are several relations."""
    counts = Counter((link.relation.child, link.relation.parent) for link in links)
    return {pair for pair, count in counts.items() if count > 1}


def rule_body(link: Link, kind: str, action: Mapping[str, Any]) -> dict[str, Any]:
    """A rule from the children of a relation into its parents."""
    body: dict[str, Any] = {"from": link.relation.child}
    if link.relation.bind:
        body["bind"] = link.relation.bind
    if link.child.entity.expires:
        body["expired"] = "retract"
    return {**body, kind: dict(action)}


def _relation_evidence(link: Link) -> str:
    relation = link.relation
    return f"{relation.seen} of {relation.of} {relation.child} items belong to a {relation.parent} of the sample"


def _is_one_to_many(link: Link) -> bool:
    """A child whose key tells no more than the parent's is the same thing again, not one of many."""
    named = set(link.relation.binding.values())
    return any(variable.name not in named for variable in link.child.entity.variables)


def _numbers(attributes: Sequence[Attribute]) -> list[Attribute]:
    return [one for one in attributes if one.type == "N" and PATH.fullmatch(one.name)]


def is_called_count(attribute: str, link: Link) -> bool:
    """Whether an attribute is called the number of these children: likeCount, num_likes, totalLikes, likes."""
    name = normal(attribute)
    stems = {normal(singular(link.relation.child)), normal(singular(words(link.relation.child)[-1]))}
    counts = set()
    for stem in stems:
        counts |= {f"{stem}{word}" for word in ("count", "counter", "total", "num")}
        for many in {normal(plural(stem)), stem + "s"}:  # whoever names attributes by a program writes `categorys`
            counts |= {many, *(f"{many}{word}" for word in ("count", "counter", "total"))}
            counts |= {
                f"{word}{many}" for word in ("n", "no", "nb", "num", "number", "numberof", "total", "count", "countof")
            }
    return name in counts


def _count_evidence(link: Link, attribute: str, complete: bool) -> str:
    children = link.children
    with_it = [(row, len(children[number])) for number, row in enumerate(link.parent.rows) if attribute in row.item]
    if complete:
        same = sum(row.text(attribute) == str(count) for row, count in with_it)
        relation = link.relation
        return (
            f"{attribute} is the number of {relation.child} items in {same} of {len(with_it)} {relation.parent} items"
        )
    possible = sum(_number(row, attribute) >= count for row, count in with_it)
    return (
        f"{attribute} is called so, and is not less than the {link.relation.child} items sampled in {possible} of "
        f"{len(with_it)} {link.relation.parent} items; {_relation_evidence(link)}"
    )


def _number(row: Row, name: str) -> Decimal:
    text = row.item.get(name, {}).get("N")
    return Decimal(text) if text is not None else Decimal(-1)


# --- by value, where the sample is the whole table ---


def _equal(link: Link, skipped: set[tuple[str, str]]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Attributes of parents that equal an aggregate of their children."""
    children = link.children
    variables = {variable.name for variable in link.parent.entity.variables}
    for attribute in link.parent.entity.attributes:
        place = (link.relation.parent, attribute.name)
        if place in skipped or not _comparable(attribute) or not PATH.fullmatch(attribute.name):
            continue
        if attribute.name in variables:
            continue
        with_it = [(row, children[n]) for n, row in enumerate(link.parent.rows) if attribute.name in row.item]
        telling = [(row, some) for row, some in with_it if some]
        if len(telling) < _LEAST_PARENTS or len({row.text(attribute.name) for row, _ in telling}) < _LEAST_PARENTS:
            continue
        several = [some for _, some in telling if len(some) > 1]
        for how, amount in _amounts(link, attribute.type):
            same = sum(row.text(attribute.name) == amount(some) for row, some in telling)
            if same >= _AGREE * len(telling) and _tells(several, amount):
                skipped.add(place)
                what = f"{attribute.name} is {how} of the {link.relation.child} items of it"
                yield attribute.name, (how, f"{what} in {same} of {len(telling)} {link.relation.parent} items")
                break


def _comparable(attribute: Attribute) -> bool:
    return attribute.type == "N" or (attribute.type == "S" and attribute.form in ("time", "date", "ulid"))


def _tells(several: Sequence[Sequence[Row]], amount: Amount) -> bool:
    """Whether a function says something about several children that the first of them does not say alone."""
    return sum(amount(rows) != amount(rows[:1]) or amount(rows) != amount(rows[-1:]) for rows in several) >= 2


def _amounts(link: Link, type_: str) -> Iterator[tuple[str, Amount]]:
    names = [one.name for one in link.child.entity.attributes if one.type == type_ and PATH.fullmatch(one.name)]
    if type_ == "N":
        yield "count", lambda rows: str(len(rows))
        for name in names[:_MOST_NUMBERS]:
            yield f"sum({name})", lambda rows, name=name: _sum(rows, [name])  # type: ignore[misc]
        for one, other in combinations(names[:_MOST_NUMBERS], 2):
            both = [one, other]
            yield f"sum({one} * {other})", lambda rows, both=both: _sum(rows, both)  # type: ignore[misc]
    ordered = [one.name for one in link.child.entity.attributes if one.name in names and _comparable(one)]
    typed = "number" if type_ == "N" else "text"
    for name in ordered[:_MOST_NUMBERS]:
        yield f"max({typed}({name}))", lambda rows, name=name: _extreme(rows, name, max)  # type: ignore[misc]
        yield f"min({typed}({name}))", lambda rows, name=name: _extreme(rows, name, min)  # type: ignore[misc]


def _sum(rows: Sequence[Row], names: Sequence[str]) -> str | None:
    total = Decimal(0)
    for row in rows:
        product = Decimal(1)
        for name in names:
            if "N" not in row.item.get(name, {}):
                return None
            product *= Decimal(row.item[name]["N"])
        total += product
    return number_text(total)


def _extreme(rows: Sequence[Row], name: str, which: Callable[..., Any]) -> str | None:
    numbers = [Decimal(row.item[name]["N"]) for row in rows if "N" in row.item.get(name, {})]
    texts = [str(row.item[name]["S"]) for row in rows if "S" in row.item.get(name, {})]
    if len(numbers) == len(rows):
        return number_text(which(numbers))
    return which(texts) if len(texts) == len(rows) else None

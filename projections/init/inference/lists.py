"""Lists of parents that have the first few of their children, as a `top` rule keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from projections.init.inference.contradictions import Case, Verdict, contradiction, doubt, judged
from projections.init.inference.family import Family
from projections.init.inference.measures import rule_body
from projections.init.inference.proposal import Attribute, Rule
from projections.init.inference.rows import Row
from projections.init.inference.words import ORDERED, lower_camel
from projections.init.table import Table
from projections.language.syntax import PATH
from projections.language.values import Image

__all__ = ["list_rules"]

_MOST_ORDERS = 4
_MOST_ELEMENTS = 100
_BY_CHANCE = 0.05


def list_rules(families: Sequence[Family], table: Table, skipped: set[tuple[str, str]]) -> Iterator[Rule]:
    """Yield a rule for each list of maps that has the first children by an order, in all items or in most. `skipped` are
    (parent, attribute) that other rules have; those found here are added.
    """
    tries = sum(len(list(_bodies(family, one))) for family in families for one in family.link.parent.entity.attributes)
    for family in families:
        for attribute in family.link.parent.entity.attributes:
            place = (family.link.relation.parent, attribute.name)
            if place in skipped or not any(family.seen):
                continue
            found = [(_judged(family, attribute.name, body, tries), body) for body in _bodies(family, attribute)]
            usable = [one for one in found if one[0].accepted or (one[0].all_right and one[0].by_chance <= _BY_CHANCE)]
            if usable:
                skipped.add(place)
                verdict, body = max(usable, key=lambda one: one[0].rank)
                yield _rule(family, attribute.name, verdict, body, table)


def _rule(family: Family, attribute: str, verdict: Verdict, body: dict[str, object], table: Table) -> Rule:
    relation = family.link.relation
    order = f"{'least' if body.get('order') == 'asc' else 'greatest'} {body['by']}"
    evidence = (
        f"{attribute} has the {relation.child} items with the {order}, up to {body['limit']}, in {verdict.right} of "
        f"{len(verdict.cases)} {relation.parent} items"
    )
    if all(len(children) <= int(str(body["limit"])) for children in family.children):
        evidence += f"; none of them has more {relation.child} items, so the limit may be greater"
    rule = Rule(f"{lower_camel(attribute)}Of{relation.parent}", rule_body(family.link, "top", body), evidence)
    if verdict.all_right:
        return rule
    every = _cases(family, attribute, body)
    unseen = sum(attribute in row.item for row in family.parents) - len(verdict.cases)
    found = contradiction(verdict, every, family.link.parent, attribute, table, unseen=unseen)
    return replace(rule, doubt=doubt(found), contradiction=found)


def _bodies(family: Family, attribute: Attribute) -> Iterator[dict[str, object]]:
    """Yield the rules that could write a list of maps: the names in its elements are attributes of the children."""
    link = family.link
    if (
        (attribute.type, attribute.elements) != ("L", "M")
        or not PATH.fullmatch(attribute.name)
        or "." in attribute.name
    ):
        return
    lists = [row.item[attribute.name]["L"] for row in family.parents if "L" in row.item.get(attribute.name, {})]
    counts = Counter(name for elements in lists for one in elements for name in one.get("M", {}))
    total = sum(map(len, lists))
    names = sorted(name for name, count in counts.items() if 2 * count >= total or count > 2)
    known = {one.name for one in link.child.entity.attributes} | {one.name for one in link.child.entity.variables}
    if not names or not known.issuperset(names) or not all(PATH.fullmatch(name) and "." not in name for name in names):
        return
    lengths = Counter(map(len, lists))
    limit = max((length for length, count in lengths.items() if count > 1), default=max(lengths))
    orders = [one.name for one in link.child.entity.attributes if one.form in ORDERED or one.type == "N"]
    orders = [name for name in orders if PATH.fullmatch(name) and "." not in name]
    for by in sorted(orders, key=lambda name: name not in names)[:_MOST_ORDERS]:
        for order in ("desc", "asc") if 0 < limit <= _MOST_ELEMENTS else ():
            form: dict[str, object] = {"into": link.relation.parent, "as": attribute.name, "by": by}
            yield {**form, **({"order": order} if order == "asc" else {}), "limit": limit, "attributes": names}


def _judged(family: Family, attribute: str, body: dict[str, object], tries: int) -> Verdict:
    return judged([case for case in _cases(family, attribute, body) if case.stored is not None], tries)


def _cases(family: Family, attribute: str, body: dict[str, object]) -> list[Case]:
    by, limit, names = str(body["by"]), int(str(body["limit"])), body["attributes"]
    assert isinstance(names, list)
    found = []
    for row, children, seen in zip(family.parents, family.children, family.seen, strict=True):
        if seen:
            first = family.ordered(by, children, descending=body.get("order") != "asc")[:limit]
            found.append(Case(row, row.item.get(attribute), {"L": [{"M": _element(one, names)} for one in first]}))
    return found


def _element(row: Row, names: Sequence[str]) -> Image:
    values = {name: row.item.get(name, {"S": row.variables[name]} if name in row.variables else None) for name in names}
    return {name: value for name, value in values.items() if value is not None}

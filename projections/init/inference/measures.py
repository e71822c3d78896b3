"""Aggregates of children that parents have as attributes, which the application maintains itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from functools import partial, reduce
from itertools import combinations
from typing import Any

from projections.errors import BadInput
from projections.init.inference.contradictions import (
    Case,
    Verdict,
    contradiction,
    doubt,
    float_error,
    identity,
    judged,
    others,
)
from projections.init.inference.family import Family, parsed, path_of
from projections.init.inference.proposal import Attribute, Relation, Rule
from projections.init.inference.relations import Link
from projections.init.inference.rows import scalar
from projections.init.inference.words import ORDERED, lower_camel, normal, pascal, plural, singular, words
from projections.init.table import Table
from projections.language.measures import Measure
from projections.language.one_form import path_text
from projections.language.ordering import encode_order
from projections.language.rules import rounded
from projections.language.syntax import PATH, an
from projections.language.values import CONTEXT, Image, Value, lookup, number_text

__all__ = [
    "contradicted_rules",
    "count_rules",
    "idea_rules",
    "measured",
    "named_by",
    "related_twice",
    "rule_body",
    "tries_of",
]

_LEAST_PARENTS = 3
_MOST_NUMBERS = 6
_MOST_ORDERS = 2
_MOST_DIGITS = 6
_DIFFERING = 0.2
_MOSTLY = 0.75
_OBVIOUS = ("count", "sum(", "max(", "min(")
_BY_CHANCE = 0.05
"""The greatest probability of agreement by chance of other measures that hold on all items: there are many of them."""


def count_rules(families: Sequence[Family], skipped: set[tuple[str, str]], tries: int) -> Iterator[Rule]:
    """Yield a rule for each relation whose parents have attributes that are aggregates of the children in all items.

    `skipped` are (parent, attribute) that other rules have; those found here are added. `tries` is the number of candidates.
    """
    several = related_twice([family.link for family in families])
    for family in _in_order(families):
        link = family.link
        found: dict[str, tuple[str, str]] = {}
        for attribute in link.parent.entity.attributes:
            place = (link.relation.parent, attribute.name)
            if (
                place not in skipped
                and is_counter(attribute, link)
                and (evidence := _count_evidence(family, attribute.name))
            ):
                skipped.add(place)
                found[attribute.name] = ("count", evidence)
        for attribute in link.parent.entity.attributes:
            place = (link.relation.parent, attribute.name)
            if place not in skipped and (certain := _certain(family, attribute, tries)):
                skipped.add(place)
                found[attribute.name] = certain
        if found:
            yield _rule(link, found, several)


def contradicted_rules(
    families: Sequence[Family], table: Table, skipped: set[tuple[str, str]], tries: int
) -> Iterator[Rule]:
    """Yield a rule for each attribute of parents that is an aggregate of their children in most items, as a comment with the
    items that contradict it. `skipped` is as in `count_rules`.
    """
    several = related_twice([family.link for family in families])
    best: dict[tuple[str, str], tuple[Family, str, Verdict, str]] = {}
    for family in _in_order(families):
        for attribute in family.link.parent.entity.attributes:
            place = (family.link.relation.parent, attribute.name)
            if place in skipped:
                continue
            for measure, verdict, note in _verdicts(family, attribute, tries):
                if (
                    verdict.accepted
                    and not verdict.all_right
                    and (place not in best or verdict.rank > best[place][2].rank)
                ):
                    best[place] = (family, measure, verdict, note)
    for place, (family, measure, verdict, note) in best.items():
        skipped.add(place)
        yield _contradicted(family, place[1], measure, verdict, note, table, several)
    yield from _misnamed(families, skipped, several)


def _contradicted(
    family: Family,
    attribute: str,
    measure: str,
    verdict: Verdict,
    note: str,
    table: Table,
    several: set[tuple[str, str]],
) -> Rule:
    relation = family.link.relation
    judged_exactly = any(family.seen)
    every = _every(family, attribute, measure) if judged_exactly else verdict.cases
    known = sum(case.stored is not None for case in every) if judged_exactly else len(every) - verdict.right
    found = contradiction(
        verdict,
        every,
        family.link.parent,
        attribute,
        table,
        unseen=sum(attribute in row.item for row in family.parents) - known,
        note=note,
    )
    of = f"{verdict.right} of {len(verdict.cases)} {relation.parent} items"
    evidence = f"{attribute} is {_said(measure, relation)} in {of}"
    if not judged_exactly:
        evidence = (
            f"{attribute} has the name of a counter, and is not less than the number of {relation.child} items in the "
            f"sample in {of} that have any"
        )
    return replace(_rule(family.link, {attribute: (measure, evidence)}, several, doubt(found)), contradiction=found)


def _misnamed(
    families: Sequence[Family], skipped: set[tuple[str, str]], several: set[tuple[str, str]]
) -> Iterator[Rule]:
    """Yield the counters by name that too many items contradict: possible rules."""
    for family in _in_order(families):
        link, counts = family.link, family.published("count")
        for attribute in link.parent.entity.attributes:
            place = (link.relation.parent, attribute.name)
            if place in skipped or not is_counter(attribute, link):
                continue
            skipped.add(place)
            with_it = [(row, n) for n, row in enumerate(family.parents) if attribute.name in row.item]
            if any(family.seen[n] for _, n in with_it):
                cases = [Case(row, row.item[attribute.name], counts[n]) for row, n in with_it if family.seen[n]]
                right = f"{sum(map(_agrees, cases))} of {len(cases)}"
                known = f"equals the number of {link.relation.child} items in only {right}"
            else:
                less = sum(_less(row.item[attribute.name], counts[n]) for row, n in with_it)
                known = (
                    f"is less than the number of {link.relation.child} items in the sample in {less} of {len(with_it)}"
                )
            why = f"{attribute.name} has the name of a counter, but {known} {link.relation.parent} items"
            yield _rule(link, {attribute.name: ("count", _relation_evidence(link))}, several, why)


def tries_of(families: Sequence[Family]) -> int:
    """Return the number of candidates that are compared: pairs of an attribute of parents and a measure of children."""
    return sum(
        len(list(_measures(family.link, attribute)))
        for family in families
        for attribute in family.link.parent.entity.attributes
        if _usable(family, attribute)
    )


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
        why = f"{relation.parent} items do not have this attribute today"
        yield _rule(link, {attribute: ("count", _relation_evidence(link))}, several, why)


def _rule(link: Link, found: Mapping[str, tuple[str, str]], several: set[tuple[str, str]], why: str = "") -> Rule:
    relation = link.relation
    by = "" if (relation.child, relation.parent) not in several else named_by(relation)
    name = f"{lower_camel(plural(relation.child))}Of{relation.parent}{by}"
    body = rule_body(link, "aggregate", {"into": relation.parent, "set": {a: how for a, (how, _) in found.items()}})
    return Rule(name, body, "; ".join(dict.fromkeys(evidence for _, evidence in found.values())), why)


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
    return f"{relation.seen} of {relation.of} {relation.child} items belong to {an(relation.parent)} in the sample"


def _is_one_to_many(link: Link) -> bool:
    """Return whether a parent may have several children: the child's key has further variables."""
    named = set(link.relation.binding.values())
    return any(variable.name not in named for variable in link.child.entity.variables)


def is_counter(attribute: Attribute, link: Link) -> bool:
    """Return whether an attribute is a number that is named as the number of these children."""
    number = attribute.type == "N" and PATH.fullmatch(attribute.name) is not None
    return number and is_called_count(attribute.name, link)


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


def _count_evidence(family: Family, attribute: str) -> str:
    """Return why an attribute named as a counter may be one, empty if an item contradicts it."""
    relation, counts = family.link.relation, family.published("count")
    with_it = [(row, n) for n, row in enumerate(family.parents) if attribute in row.item]
    exact = [Case(row, row.item[attribute], counts[n]) for row, n in with_it if family.seen[n]]
    others = [(row, n) for row, n in with_it if not family.seen[n]]
    if not all(map(_agrees, exact)) or any(_less(row.item[attribute], counts[n]) for row, n in others):
        return ""
    if exact:
        more = f"; {len(others)} more could not be compared" if others else ""
        every = f"{len(exact)} of {len(exact)} {relation.parent} items"
        return (
            f"{attribute} is the number of {relation.child} items in {every}{more}{_others(family, attribute, 'count')}"
        )
    of = f"of {len(with_it)} {relation.parent} items"
    return (
        f"{attribute} has the name of a counter, and is not less than the number of {relation.child} items in the sample in "
        f"{len(with_it)} {of}; {_relation_evidence(family.link)}"
    )


def _others(family: Family, attribute: str, measure: str) -> str:
    every = _every(family, attribute, measure)
    return others(every, family.link.relation.parent, attribute, least=not all(family.seen))


def _agrees(case: Case) -> bool:
    return case.agrees


def _less(stored: Value, counted: Value | None) -> bool:
    """Return whether a stored number is less than a count, or is no number."""
    try:
        return counted is None or Decimal(stored.get("N", "-1")) < Decimal(counted["N"])
    except ArithmeticError:
        return True


# By value, where all children of a parent are in the sample


def _in_order(families: Sequence[Family]) -> list[Family]:
    usable = [family for family in families if _is_one_to_many(family.link)]
    return sorted(usable, key=lambda family: (bool(family.link.relation.bind), -family.link.relation.seen))


def _usable(family: Family, attribute: Attribute) -> bool:
    variables = {variable.name for variable in family.link.parent.entity.variables}
    named = PATH.fullmatch(attribute.name) and "." not in attribute.name and attribute.name not in variables
    return bool(named) and attribute.type in ("N", "S") and attribute.form != "ttl"


def _certain(family: Family, attribute: Attribute, tries: int) -> tuple[str, str] | None:
    """Return the measure that equals an attribute in all items that can be compared, and its evidence."""
    if not any(family.seen) or not _usable(family, attribute):
        return None
    relation = family.link.relation
    for measure, verdict, _ in _verdicts(family, attribute, tries):
        if not verdict.all_right or not _enough(family, verdict):
            continue
        if not measure.startswith(_OBVIOUS) and verdict.by_chance > _BY_CHANCE:
            continue
        of = f"{verdict.right} of {verdict.right} {relation.parent} items"
        return (
            measure,
            f"{attribute.name} is {_said(measure, relation)} in {of}{_others(family, attribute.name, measure)}",
        )
    return None


def _enough(family: Family, verdict: Verdict) -> bool:
    """Return whether there are enough different values to propose a measure that holds on all items."""
    with_children = {id(row) for row, children in zip(family.parents, family.children, strict=True) if children}
    cases = [case for case in verdict.cases if id(case.row) in with_children]
    return min(len(cases), len({identity(case.stored) for case in cases})) >= _LEAST_PARENTS


def _said(measure: str, relation: Relation) -> str:
    return f"the number of {relation.child} items" if measure == "count" else f"{measure} of the {relation.child} items"


def _verdicts(family: Family, attribute: Attribute, tries: int) -> Sequence[tuple[str, Verdict, str]]:
    """Return (measure, verdict, note) of measures that agree with most of the stored values."""
    if attribute.name not in family.verdicts:
        family.verdicts[attribute.name] = list(_compared(family, attribute, tries))
    return family.verdicts[attribute.name]


def _compared(family: Family, attribute: Attribute, tries: int) -> Iterator[tuple[str, Verdict, str]]:
    if not _usable(family, attribute):
        return
    if not any(family.seen):
        yield from _lower_bounds(family, attribute)
        return
    for measure in _measures(family.link, attribute):
        named = measure == "count" and is_counter(attribute, family.link)
        for variant in _rounded_variants(family, attribute.name, measure):
            cases = _cases(family, attribute.name, variant)
            may_be_near = measure.startswith(("sum(", "avg("))
            if not cases or (not may_be_near and 2 * sum(map(_agrees, cases)) < len(cases)):
                continue
            near, note = _nearness(family, attribute.name, variant, cases)
            verdict = judged(cases, tries, named=named, near=near)
            if verdict.share < 0.5 or not (measure == "count" or _needs_all(family, variant)):
                continue
            if parsed(variant).by is None or not _repeats_its_parent(family, attribute.name, variant):
                yield variant, verdict, note if verdict.near else ""


def _lower_bounds(family: Family, attribute: Attribute) -> Iterator[tuple[str, Verdict, str]]:
    """Yield the verdict on a counter by its name, from children that are not all in the sample: of the parents with children
    there, most have a number that is not less. Without children, nothing could contradict it.
    """
    if not is_counter(attribute, family.link):
        return
    counts = family.published("count")
    cases = []
    for row, counted in zip(family.parents, counts, strict=True):
        stored = row.item.get(attribute.name)
        if stored is not None and counted != {"N": "0"}:
            cases.append(Case(row, stored, counted if _less(stored, counted) else stored))
    right = sum(map(_agrees, cases))
    note = f"Not all {family.link.relation.child} items were read, so the computed values may be too small"
    yield "count", Verdict(cases, right, 0, len(cases) >= _LEAST_PARENTS and right >= _MOSTLY * len(cases)), note


def _cases(family: Family, attribute: str, measure: str) -> list[Case]:
    """Return the parents that can be judged: they have the attribute, all their children are in the sample, and the measure
    has a value. An extreme or an average without children has none; applications store many things then.
    """
    return [case for case in _every(family, attribute, measure) if None not in (case.stored, case.computed)]


def _every(family: Family, attribute: str, measure: str) -> list[Case]:
    """Return the parents whose value is known, and those with a number that is less than the children in the sample."""
    return [
        Case(row, row.item.get(attribute), value)
        for row, value, seen in zip(family.parents, family.published(measure), family.seen, strict=True)
        if seen or (measure == "count" and attribute in row.item and _less(row.item[attribute], value))
    ]


def _rounded_variants(family: Family, attribute: str, measure: str) -> Iterator[str]:
    """Yield a measure, and for sums and averages that have more digits than nearly all stored values the rounded ones."""
    yield measure
    if not measure.startswith(("sum(", "avg(")):
        return
    stored = sorted(
        _digits(row.item[attribute])
        for row, seen in zip(family.parents, family.seen, strict=True)
        if seen and "N" in row.item.get(attribute, {})
    )
    if not stored:
        return
    computed = max((_digits(value) for value in family.published(measure) if value is not None), default=0)
    for digits in sorted({stored[int(len(stored) * 0.75)], stored[-1]}):
        if digits <= _MOST_DIGITS and digits < computed:
            yield f"{measure[:-1]}, {digits})"


def _digits(value: Value) -> int:
    """Return the number of digits after the decimal point."""
    text = scalar({"it": value}, "it") or ""
    return len(text.partition(".")[2])


def _nearness(
    family: Family, attribute: str, measure: str, cases: Sequence[Case]
) -> tuple[Callable[[Value, Value], bool] | None, str]:
    """Return which differences are due to rounding only, and a sentence on it."""
    function, digits = parsed(measure).function, parsed(measure).digits
    if function not in ("sum", "avg"):
        return None, ""
    if digits is None:
        return float_error, (
            "Some differ only by a floating-point error: rules calculate in decimal, "
            + ("and publish an average with up to 38 digits" if function == "avg" else "without rounding")
        )
    unit = Decimal(1).scaleb(-digits)

    def near(stored: Value, computed: Value) -> bool:
        return "N" in stored and abs(Decimal(stored["N"]) - Decimal(computed["N"])) <= unit

    exact = dict(zip(map(id, family.parents), family.published(_unrounded(measure)), strict=True))
    off = [
        (Decimal(case.stored["N"]), Decimal(number["N"]))
        for case in cases
        if case.stored and case.computed and not case.agrees and near(case.stored, case.computed)
        if (number := exact[id(case.row)]) is not None
    ]

    def rounds(rounding: str) -> bool:
        return all(stored == number.quantize(unit, rounding=rounding) for stored, number in off)

    how = (
        "the application seems to round half up, rules round half to even"
        if rounds(ROUND_HALF_UP)
        else "the application seems to cut off digits, rules round half to even"
        if rounds(ROUND_DOWN)
        else "the application seems to round in another way; rules round half to even"
    )
    return near, f"Some differ only in the last digit: {how}"


def _unrounded(measure: str) -> str:
    return measure.rpartition(",")[0] + ")"


def _needs_all(family: Family, measure: str) -> bool:
    """Return whether a measure of several children differs from that of the first or last one alone."""
    computed = parsed(measure)
    several = [children for children in family.children if len(children) > 1]
    least = max(2, _DIFFERING * len(several))
    found = 0
    for children in several:
        whole = identity(family.of(computed, children))
        if {identity(family.of(computed, children[:1])), identity(family.of(computed, children[-1:]))} != {whole}:
            found += 1
            if found >= least:
                return True
    return False


def _repeats_its_parent(family: Family, attribute: str, measure: str) -> bool:
    """Return whether the children that a `first` or `last` does not show have the value of the parent as well."""
    shown = parsed(measure).expression
    assert shown is not None
    others = [
        identity(row.item.get(path_of(shown))) == identity(parent.item[attribute])
        for parent, children in zip(family.parents, family.children, strict=True)
        if attribute in parent.item
        for row in family.not_shown(parsed(measure), children)
    ]
    return 2 * sum(others) >= len(others)


def _measures(link: Link, attribute: Attribute) -> Iterator[str]:
    kind = attribute.type
    attributes = [one for one in link.child.entity.attributes if PATH.fullmatch(one.name) and "." not in one.name]
    same = [path_text(one.name) for one in attributes if one.type == kind and one.form != "ttl"][:_MOST_NUMBERS]
    if kind == "N":
        yield "count"
        yield from (f"sum({name})" for name in same)
        yield from (f"sum({one} * {other})" for one, other in combinations(same, 2))
        yield from (f"avg({name})" for name in same)
    typed = "number" if kind == "N" else "text"
    for name in [path_text(one.name) for one in attributes if one.type == kind and _comparable(one)][:_MOST_NUMBERS]:
        yield from (f"{function}({typed}({name}))" for function in ("max", "min"))
    orders = [path_text(one.name) for one in attributes if one.form in ORDERED][:_MOST_ORDERS]
    for by in orders:
        yield from (f"{function}({name}, {by})" for name in same if name != by for function in ("last", "first"))


def _comparable(attribute: Attribute) -> bool:
    return attribute.type == "N" or (attribute.type == "S" and attribute.form in ORDERED)


def measured(measure: str, items: Sequence[Image]) -> Value | None:
    """Return a measure of items; None if a value is missing or of another type, or if it has no value without items."""
    if measure == "count":
        return {"N": str(len(items))}
    of = parsed(measure)
    assert of.expression is not None
    if of.by is not None:
        return _picked(of, items)
    try:
        values: list[Any] = [of.expression.evaluate(partial(lookup, item)) for item in items]
    except BadInput:
        return None
    if None in values or (not items and of.function != "sum"):
        return None
    if of.function in ("sum", "avg"):
        total = reduce(CONTEXT.add, values, Decimal(0))
        return {"N": rounded(total, len(items) if of.function == "avg" else 1, of.digits)}
    found = max(values) if of.function == "max" else min(values)
    return {"S": found} if isinstance(found, str) else {"N": number_text(found)}


def _picked(measure: Measure, items: Sequence[Image]) -> Value | None:
    """Return what a `first` or `last` shows; None if its order is not unique."""
    assert measure.by is not None
    assert measure.expression is not None
    try:
        orders = [encode_order(lookup(item, path_of(measure.by)) or {}) for item in items]
    except BadInput:
        return None
    if not items or len(set(orders)) < len(orders):
        return None
    order = max(orders) if measure.function == "last" else min(orders)
    return lookup(items[orders.index(order)], path_of(measure.expression))

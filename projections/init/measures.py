"""Aggregates of children that parents have as attributes, which the application maintains itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce

from projections.init.contradictions import Case, Verdict, contradiction, identity, judged
from projections.init.proposal import Attribute, Relation, Rule, Sample, Table
from projections.init.relations import Link, named_by, related_twice, rule_body
from projections.init.rows import lower_camel, normal, plural, singular, words
from projections.language.one_form import path_text
from projections.language.syntax import PATH, an
from projections.language.values import CONTEXT, Image, Value, number_text

_LEAST_PARENTS = 3
_MOST_NUMBERS = 6
_DIFFERING = 0.2


class Family:
    """The parents and children of a relation, and the measures of the children as a rule would publish them."""

    def __init__(self, link: Link, table: Table, sample: Sample) -> None:
        self.link = link
        self.parents = link.parent.rows
        self.children = [[row.item for row in link.children[number]] for number in range(len(self.parents))]
        partition = table.key[0][0]
        together = _with_its_parent(link, partition)
        self.seen = [
            sample.complete or (together and sample.has_all_of(str(next(iter(row.item[partition].values())))))
            for row in self.parents
        ]
        """For each parent, whether all its children are in the sample."""
        self._published: dict[str, list[Value]] = {}
        self._verdicts: dict[str, list[tuple[str, Verdict]]] = {}

    def published(self, measure: str) -> list[Value]:
        """Return the value of a measure for each parent."""
        if measure not in self._published:
            self._published[measure] = [measured(measure, children) for children in self.children]
        return self._published[measure]

    def cases(self, attribute: str, measure: str) -> list[Case]:
        """Return the parents whose value is known, and those with a number that is less than the children in the sample."""
        return [
            Case(row, row.item.get(attribute), value)
            for row, value, seen in zip(self.parents, self.published(measure), self.seen, strict=True)
            if seen or (not measure and attribute in row.item and _less(row.item[attribute], value))
        ]

    def verdicts(self, attribute: Attribute, tries: int) -> list[tuple[str, Verdict]]:
        """Return the measures that agree with at least half of the stored values, each with its verdict."""
        if attribute.name not in self._verdicts:
            self._verdicts[attribute.name] = list(self._compared(attribute, tries))
        return self._verdicts[attribute.name]

    def _compared(self, attribute: Attribute, tries: int) -> Iterator[tuple[str, Verdict]]:
        if not any(self.seen):
            return
        for measure in self.measures(attribute):
            cases = [case for case in self.cases(attribute.name, measure) if case.stored is not None]
            if not cases or 2 * sum(case.agrees for case in cases) < len(cases):
                continue
            if not measure or self._needs_all(measure):
                yield measure, judged(cases, tries, named=not measure and is_counter(attribute, self.link))

    def measures(self, attribute: Attribute) -> Iterator[str]:
        """Yield the measures that an attribute of parents may have: "" for the count, or the name of a summed attribute."""
        if not _is_number(attribute) or attribute.name in self.link.parent.entity.variables:
            return
        yield ""
        yield from [one.name for one in self.link.child.entity.attributes if _is_number(one)][:_MOST_NUMBERS]

    def _needs_all(self, measure: str) -> bool:
        """Return whether a measure of several children differs from that of the first or last one alone."""
        several = [children for children in self.children if len(children) > 1]
        differing = 0
        for children in several:
            whole, first, last = (identity(measured(measure, some)) for some in (children, children[:1], children[-1:]))
            differing += not first == last == whole
        return differing >= max(2, _DIFFERING * len(several))


def measured(name: str, items: Sequence[Image]) -> Value:
    """Return the number of items, or the sum of an attribute as a rule publishes it. Other types do not count."""
    if not name:
        return {"N": str(len(items))}
    numbers = [Decimal(item[name]["N"]) for item in items if "N" in item.get(name, {})]
    return {"N": number_text(reduce(CONTEXT.add, numbers, Decimal(0)))}


def _with_its_parent(link: Link, partition: str) -> bool:
    """Return whether all children have the partition key of their parent."""
    template = link.parent.entity.key[partition]
    for variable, name in link.relation.binding.items():
        template = template.replace("{" + variable + "}", "{\0" + name + "}")
    return template.replace("\0", "") == link.child.entity.key[partition]


def count_rules(families: Sequence[Family], skipped: set[tuple[str, str]]) -> Iterator[Rule]:
    """Yield a rule for each relation whose parents have attributes that are aggregates of the children in all items.

    `skipped` are (parent, attribute) that other rules have; those found here are added.
    """
    several, tries = related_twice([family.link for family in families]), _tries(families)
    for family in _in_order(families):
        attributes = family.link.parent.entity.attributes
        found: dict[str, tuple[str, str]] = {}
        for attribute in sorted(attributes, key=lambda one: not is_counter(one, family.link)):
            place = (family.link.relation.parent, attribute.name)
            if place in skipped:
                continue
            counter = is_counter(attribute, family.link) and _counted(family, attribute.name)
            certain = ("", counter) if counter else _certain(family, attribute, tries)
            if certain:
                skipped.add(place)
                found[attribute.name] = certain
        if found:
            yield _rule(family.link, found, several)


def contradicted_rules(families: Sequence[Family], table: Table, skipped: set[tuple[str, str]]) -> Iterator[Rule]:
    """Yield a rule for each attribute of parents that is an aggregate of their children in most items, as a comment with the
    items that contradict it. `skipped` is as in `count_rules`.
    """
    several, tries = related_twice([family.link for family in families]), _tries(families)
    best: dict[tuple[str, str], tuple[Family, str, Verdict]] = {}
    for family in _in_order(families):
        for attribute in family.link.parent.entity.attributes:
            place = (family.link.relation.parent, attribute.name)
            for measure, verdict in family.verdicts(attribute, tries) if place not in skipped else ():
                if verdict.accepted and (place not in best or verdict.share > best[place][2].share):
                    best[place] = (family, measure, verdict)
    for place, (family, measure, verdict) in best.items():
        skipped.add(place)
        parent, name = place
        every = family.cases(name, measure)
        with_it = sum(name in row.item for row in family.parents)
        unseen = with_it - sum(case.stored is not None for case in every)
        found = contradiction(verdict, every, parent, name, table, unseen=unseen)
        of = f"{verdict.right} of {len(verdict.cases)} {parent} items"
        rule = _rule(
            family.link, {name: (measure, f"{name} is {_said(measure, family.link.relation)} in {of}")}, several
        )
        yield replace(rule, doubt=found.doubt, contradiction=found)


def _tries(families: Sequence[Family]) -> int:
    """Return the number of candidates that are compared: pairs of an attribute of parents and a measure of children."""
    return sum(len(list(one.measures(each))) for one in families for each in one.link.parent.entity.attributes)


def _rule(link: Link, found: Mapping[str, tuple[str, str]], several: set[tuple[str, str]]) -> Rule:
    relation = link.relation
    by = "" if (relation.child, relation.parent) not in several else named_by(relation)
    name = f"{lower_camel(plural(relation.child))}Of{relation.parent}{by}"
    body = rule_body(
        link, "aggregate", {"into": relation.parent, "set": {a: _measure(m) for a, (m, _) in found.items()}}
    )
    return Rule(name, body, "; ".join(dict.fromkeys(evidence for _, evidence in found.values())))


def is_counter(attribute: Attribute, link: Link) -> bool:
    """Return whether an attribute is a number that is named as the number of these children: likeCount, num_likes, likes."""
    if attribute.type != "N" or not PATH.fullmatch(attribute.name):
        return False
    names = set()
    for stem in {normal(singular(link.relation.child)), normal(singular(words(link.relation.child)[-1]))}:
        names |= {f"{stem}{word}" for word in ("count", "counter", "total", "num")}
        for many in {normal(plural(stem)), stem + "s"}:  # generated names have plurals such as `categorys`
            names |= {many, *(f"{many}{word}" for word in ("count", "counter", "total"))}
            names |= {
                f"{word}{many}" for word in ["n", "no", "nb", "num", "number", "numberof", "total", "count", "countof"]
            }
    return normal(attribute.name) in names


def _counted(family: Family, attribute: str) -> str:
    """Return why an attribute named as a counter may be one, empty if an item contradicts it."""
    relation, counts = family.link.relation, family.published("")
    with_it = [(row, n) for n, row in enumerate(family.parents) if attribute in row.item]
    exact = [Case(row, row.item[attribute], counts[n]) for row, n in with_it if family.seen[n]]
    if not all(case.agrees for case in exact) or any(_less(row.item[attribute], counts[n]) for row, n in with_it):
        return ""
    if exact:
        rest = len(with_it) - len(exact)
        more = f"; {rest} more could not be compared" if rest else ""
        every = f"{len(exact)} of {len(exact)} {relation.parent} items"
        return f"{attribute} is {_said('', relation)} in {every}{more}"
    return (
        f"{attribute} has the name of a counter, and is not less than the number of {relation.child} items in the sample in "
        f"{len(with_it)} of {len(with_it)} {relation.parent} items; {relation.seen} of {relation.of} {relation.child} items "
        f"belong to {an(relation.parent)} in the sample"
    )


def _less(stored: Value, counted: Value) -> bool:
    """Return whether a stored number is less than a count, or is no number."""
    try:
        return Decimal(stored.get("N", "-1")) < Decimal(counted["N"])
    except ArithmeticError:
        return True


def _in_order(families: Sequence[Family]) -> list[Family]:
    """Return the families whose parents may have several children: the child's key has further variables."""
    usable = [
        family
        for family in families
        if set(family.link.child.entity.variables) - set(family.link.relation.binding.values())
    ]
    return sorted(usable, key=lambda family: (bool(family.link.relation.bind), -family.link.relation.seen))


def _is_number(attribute: Attribute) -> bool:
    named = PATH.fullmatch(attribute.name) is not None and "." not in attribute.name
    return named and attribute.type == "N" and attribute.form != "ttl"


def _certain(family: Family, attribute: Attribute, tries: int) -> tuple[str, str] | None:
    """Return the measure that equals an attribute in all items that can be compared, and its evidence."""
    relation = family.link.relation
    with_children = {id(row) for row, children in zip(family.parents, family.children, strict=True) if children}
    for measure, verdict in family.verdicts(attribute, tries):
        stored = [identity(case.stored) for case in verdict.cases if id(case.row) in with_children]
        if verdict.all_right and len(set(stored)) >= _LEAST_PARENTS:
            of = f"{verdict.right} of {verdict.right} {relation.parent} items"
            return measure, f"{attribute.name} is {_said(measure, relation)} in {of}"
    return None


def _said(measure: str, relation: Relation) -> str:
    return f"{_measure(measure)} of the {relation.child} items" if measure else f"the number of {relation.child} items"


def _measure(name: str) -> str:
    return f"sum({path_text(name)})" if name else "count"

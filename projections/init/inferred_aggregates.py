"""Aggregates of children that parents have as attributes, which the application maintains itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import reduce

from projections.init.contradictions import Case, identity, judge
from projections.init.inferred_relations import Candidate, Link
from projections.init.proposal import Attribute, Sample, Table
from projections.init.rows import normal, plural, singular, words
from projections.language.spelling import path_text
from projections.language.syntax import PATH, an
from projections.language.values import CONTEXT, Image, Value, number_text

_LEAST_PARENTS = 3
_MOST_NUMBERS = 6
_DIFFERING = 0.2


class Family:
    """The parents and children of a relation."""

    def __init__(self, link: Link, table: Table, sample: Sample) -> None:
        self.link = link
        self.parents = link.parent.rows
        self.children = [[row.item for row in rows] for rows in link.children]
        partition = table.key[0][0]
        together = _with_its_parent(link, partition)
        self.seen = [
            sample.complete or (together and sample.has_all_of(str(next(iter(row.item[partition].values())))))
            for row in self.parents
        ]
        """For each parent, whether all its children are in the sample."""
        numbers = [attribute.name for attribute in link.child.entity.attributes if _is_number(attribute)]
        self.published = {
            measure: [value_of(measure, children) for children in self.children]
            for measure in ("", *numbers[:_MOST_NUMBERS])
        }
        """The value of each measure for each parent: "" is the count, others are the names of summed attributes."""

    def measures(self, attribute: Attribute) -> list[str]:
        """Return the measures that an attribute of parents may have."""
        usable = _is_number(attribute) and attribute.name not in self.link.parent.entity.variables
        return list(self.published) if usable else []

    def candidates(self, attribute: Attribute, tries: int) -> Iterator[Candidate]:
        """Yield the measures that agree with all stored values of an attribute that are known, or with most of them.

        A counter by its name may have no known value: then no number is less than the children in the sample.
        """
        relation = self.link.relation
        with_it = sum(attribute.name in row.item for row in self.parents)
        for measure in self.measures(attribute):
            every = self._cases(attribute.name, measure)
            cases = [case for case in every if case.stored is not None]
            named = not measure and is_counter(attribute, self.link)
            verdict = judge(cases, tries, named=named)
            unseen = with_it - len(cases)
            certain = verdict.right == len(cases) and (named or (verdict.right > 0 and self._varies(cases)))
            if not (certain or verdict.accepted) or (measure and not self._needs_all(measure)):
                continue
            form = f"sum({path_text(measure)})" if measure else "count"
            what = f"{form} of the {relation.child} items" if measure else f"the number of {relation.child} items"
            evidence = f"{attribute.name} is {what} in {verdict.right} of {len(cases)} {relation.parent} items"
            if certain and unseen:
                evidence += f"; {unseen} more could not be compared"
            if not cases:
                evidence = (
                    f"{attribute.name} has the name of a counter, and is not less than the number of {relation.child} items "
                    f"in the sample in {with_it} of {with_it} {relation.parent} items; {relation.seen} of {relation.of} "
                    f"{relation.child} items belong to {an(relation.parent)} in the sample"
                )
            yield Candidate("aggregate", self.link, attribute.name, form, evidence, certain, verdict, every, unseen)

    def _cases(self, attribute: str, measure: str) -> list[Case]:
        """Return the parents whose value is known, and those with a number that is less than the children in the sample."""
        return [
            Case(row, row.item.get(attribute), value)
            for row, value, seen in zip(self.parents, self.published[measure], self.seen, strict=True)
            if seen or (not measure and attribute in row.item and _less(row.item[attribute], value))
        ]

    def _varies(self, cases: Sequence[Case]) -> bool:
        """Return whether parents with children have several values."""
        with_children = {id(row) for row, children in zip(self.parents, self.children, strict=True) if children}
        return len({identity(case.stored) for case in cases if id(case.row) in with_children}) >= _LEAST_PARENTS

    def _needs_all(self, measure: str) -> bool:
        """Return whether a measure of several children differs from that of the first or last one alone."""
        several = [children for children in self.children if len(children) > 1]
        differing = 0
        for children in several:
            whole, first, last = (identity(value_of(measure, part)) for part in (children, children[:1], children[-1:]))
            differing += not first == last == whole
        return differing >= max(2, _DIFFERING * len(several))


def measure_candidates(links: Sequence[Link], table: Table, sample: Sample) -> Iterator[Candidate]:
    """Yield the attributes of parents that may be aggregates of their children."""
    families = [Family(link, table, sample) for link in links]
    tries = sum(len(family.measures(each)) for family in families for each in family.link.parent.entity.attributes)
    for family in sorted(families, key=lambda family: (bool(family.link.relation.bind), -family.link.relation.seen)):
        # Parents may have several children if the child's key has further variables.
        if set(family.link.child.entity.variables) - set(family.link.relation.binding.values()):
            attributes = family.link.parent.entity.attributes
            for attribute in sorted(attributes, key=lambda attribute: not is_counter(attribute, family.link)):
                yield from family.candidates(attribute, tries)


def value_of(name: str, items: Sequence[Image]) -> Value:
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


def _less(stored: Value, counted: Value) -> bool:
    """Return whether a stored number is less than a count, or is no number."""
    try:
        return Decimal(stored.get("N", "-1")) < Decimal(counted["N"])
    except ArithmeticError:
        return True


def _is_number(attribute: Attribute) -> bool:
    named = PATH.fullmatch(attribute.name) is not None and "." not in attribute.name
    return named and attribute.type == "N" and attribute.form != "ttl"

"""Relations between items, and attributes that follow from related items, which the application maintains itself: counters
and sums of children in their parent, attributes of a parent in its children, and of an item in its copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from itertools import product
from typing import Any, NamedTuple

from projections.init.contradictions import Case, Verdict, add_contradiction, identity, judge
from projections.init.proposal import Attribute, Rule, Sample, Table
from projections.init.rows import (
    Group,
    Row,
    few_words,
    group_by,
    lower_camel,
    normal,
    plural,
    scalar,
    singular,
    small_numbers,
    words,
)
from projections.language.spelling import path_text
from projections.language.syntax import an
from projections.language.values import CONTEXT, Image, Value, number_text, same

_LEAST = 3
_SHARE = 0.5
_MOST_CHOICES = 4
_MOST_NUMBERS = 6
_MOST_CONDITIONS = 16
_DIFFERING = 0.2
_AGREE = 0.8
_COPIED = 0.6


@dataclass(frozen=True)
class Link:
    """Items of `child` reference an item of `parent`: `binding` maps each variable of the parent's key to the name of the
    child's variable or attribute. `pairs` are child and parent in the sample; `of` so many children have a reference.
    """

    child: Group
    parent: Group
    binding: Mapping[str, str]
    pairs: Sequence[tuple[Row, Row]]
    of: int

    @property
    def names(self) -> tuple[str, str]:
        """The names of both entities."""
        return self.child.entity.name, self.parent.entity.name

    @property
    def bind(self) -> dict[str, str]:
        """The `bind` of a rule."""
        return {variable: "{" + name + "}" for variable, name in self.binding.items() if variable != name}

    def body(self, kind: str, action: Mapping[str, Any]) -> dict[str, Any]:
        """Return a rule from the children into their parents."""
        body: dict[str, Any] = {"from": self.child.entity.name}
        if self.bind:
            body["bind"] = self.bind
        if self.child.entity.expires:
            body["expired"] = "retract"
        return {**body, kind: {"into": self.parent.entity.name, **action}}


def links_of(groups: Sequence[Group], complete: bool) -> list[Link]:
    """Return the relations that the sample confirms. In a complete sample, most children have their parent."""
    confirmed = []
    for child, parent in product(groups, groups):
        if child is parent or not parent.entity.variables:
            continue
        for binding in _bindings(child, parent):
            link = _link(child, parent, binding)
            least = _LEAST if complete or link.bind else 1
            # Several variables may agree with some parent by chance, which is improbable for a key of one variable.
            share = _SHARE if complete else 0 if len(binding) == 1 else _SHARE / 2
            if link.of and len(link.pairs) >= max(min(least, link.of), share * link.of):
                confirmed.append(link)
    return sorted(confirmed, key=lambda link: -len(link.pairs))


def _link(child: Group, parent: Group, binding: Mapping[str, str]) -> Link:
    variables = parent.entity.variables
    known: dict[tuple[str | None, ...], Row] = {
        tuple(row.variables[name] for name in variables): row for row in parent.rows
    }
    named = [(row, tuple(row.text(binding[name]) for name in variables)) for row in child.rows]
    pairs = [(row, known[key]) for row, key in named if key in known]
    return Link(child, parent, binding, pairs, sum(None not in key for _, key in named))


def _bindings(child: Group, parent: Group) -> Iterator[dict[str, str]]:
    """Yield, for each variable of the parent's key, candidates of the child."""
    choices = []
    for variable in parent.entity.variables:
        values = {row.variables[variable] for row in parent.rows}
        names = list(_names(child, parent, variable, values))
        if not names:
            return
        choices.append(names[:_MOST_CHOICES])
    for names_ in product(*choices):
        if len(set(names_)) == len(names_):
            yield dict(zip(parent.entity.variables, names_, strict=True))


def _names(child: Group, parent: Group, variable: str, values: set[str]) -> Iterator[str]:
    """Yield the same name first, then similar names, or names like the parent's, with values of the parent's key."""
    own = child.entity.variables
    attributes = [each.name for each in child.entity.attributes if each.type in ("S", "N")]
    if variable in own or (variable in attributes and variable.lower() != "id"):
        yield variable
    elif normal(variable) in ("id", "pk", "key"):
        variable = parent.entity.name + "Id"
    for name in dict.fromkeys([*own, *attributes]):
        if name != variable and _may_reference(name, variable, parent, values):
            texts = {text for row in child.rows if (text := row.text(name)) is not None}
            if len(texts & values) >= min(2, len(texts)) and texts & values:
                yield name


def _may_reference(name: str, variable: str, parent: Group, values: set[str]) -> bool:
    """Return whether a name may reference the parent. If its key has several variables, the names must match."""
    parts = words(name)
    if not parts:
        return False
    if normal(name).endswith((normal(variable), normal(parent.entity.name))):
        return True
    return len(parent.entity.variables) == 1 and parts[-1] in ("id", "by", "ref", "key") and not small_numbers(values)


# Attributes that follow from related items


@dataclass(frozen=True)
class Candidate:
    """An attribute that may follow from related items: of a parent from its children (`aggregate`), or of a child from its
    parent (`embed`). `form` is its value as a rule has it. `certain`: no item contradicts it. `every` are the cases of all
    items that the rule would write to; `unseen` items have the attribute and could not be compared.
    """

    kind: str
    link: Link
    attribute: str
    form: str | Mapping[str, Any]
    evidence: str
    certain: bool
    verdict: Verdict
    every: Sequence[Case]
    unseen: int

    @property
    def entity(self) -> str:
        """The entity that has the attribute."""
        return self.link.names[self.kind == "aggregate"]


def related_rules(groups: Sequence[Group], table: Table, sample: Sample) -> Iterator[Rule]:
    """Yield a rule for each copy, one for the certain attributes of each relation, and one as a comment for each other
    attribute.

    An attribute has one writer: a copy, or the first certain candidate, or that with the largest share.
    """
    links = links_of(groups, sample.complete)
    copies = copy_rules(links, table)
    yield from copies.values()
    copied = set(map(frozenset, copies))
    links = [link for link in links if frozenset(link.names) not in copied]
    taken = {(rule.into, name) for rule in copies.values() for name in rule.attributes}
    candidates = [*measure_candidates(links, table, sample), *embed_candidates(links, table, sample.complete)]
    best: dict[tuple[str, str], Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: -2 if candidate.certain else -candidate.verdict.share):
        if (candidate.entity, candidate.attribute) not in taken:
            best.setdefault((candidate.entity, candidate.attribute), candidate)
    by_rule = group_by(best.values(), lambda each: (id(each.link), each.kind, each.certain or each.attribute))
    for together in by_rule.values():
        yield _rule(together, table)


def _rule(candidates: Sequence[Candidate], table: Table) -> Rule:
    """Return the rule of these attributes of one relation."""
    first, link = candidates[0], candidates[0].link
    child, parent = link.names
    values = {candidate.attribute: candidate.form for candidate in candidates}
    if first.kind == "aggregate":
        name, body = f"{lower_camel(plural(child))}Of{parent}", link.body("aggregate", {"set": values})
    else:
        name = f"{lower_camel(parent)}In{child}"
        match = {attribute: "{" + variable + "}" for variable, attribute in link.binding.items()}
        body = {"from": parent, "embed": {"into": child, "match": match, "attributes": values}}
    rule = Rule(name, body, "; ".join(candidate.evidence for candidate in candidates))
    return rule if first.certain else add_contradiction(rule, first.verdict, first.every, table, unseen=first.unseen)


class Measure(NamedTuple):
    """The count of items, or the sum of their attribute `name`: of all items, or of those whose `attribute` is `word`; with
    `excluded`, of those that have another word.
    """

    name: str = ""
    attribute: str = ""
    word: str | bool = ""
    excluded: bool = False

    def of(self, items: Sequence[Image]) -> Value:
        """Return the value of these items."""
        return value_of(self.name, self.select(items))

    def select(self, items: Sequence[Image]) -> Sequence[Image]:
        """Return the items that the measure counts."""
        if not self.attribute:
            return items
        values = ((item, scalar(item, self.attribute)) for item in items)
        return [item for item, value in values if value is not None and (value == self.word) != self.excluded]

    @property
    def form(self) -> str | Mapping[str, Any]:
        """Return the measure as a rule has it."""
        if not self.attribute:
            return f"sum({path_text(self.name)})" if self.name else "count"
        where = {self.attribute: [{"anything-but": [self.word]} if self.excluded else self.word]}
        return {"sum": path_text(self.name), "where": where} if self.name else {"count": {"where": where}}

    def text(self, child: str) -> str:
        """Return the measure in words."""
        word = str(self.word).lower() if isinstance(self.word, bool) else self.word
        those = f" whose {self.attribute} is {'not ' if self.excluded else ''}{word}" if self.attribute else ""
        what = f"{child} items{those}"
        return f"sum({path_text(self.name)}) of the {what}" if self.name else f"the number of {what}"


def measures_of(group: Group) -> list[Measure]:
    """Return the measures that attributes of parents may have: those of all items first."""
    numbers = [attribute.name for attribute in group.entity.attributes if attribute.type == "N"]
    names = ["", *numbers[:_MOST_NUMBERS]]
    conditions = [
        (attribute, word, excluded)
        for attribute, every in few_words(group)
        if len(every) > 1
        for word, excluded in product(sorted(every, key=str), (False, True))
        if not excluded or len(every) > 2
    ]
    conditional = [Measure(name, *condition) for condition in conditions[:_MOST_CONDITIONS] for name in names]
    return [*map(Measure, names), *conditional]


class Family:
    """The parents and children of a relation."""

    def __init__(self, link: Link, table: Table, sample: Sample) -> None:
        self.link = link
        self.parents = link.parent.rows
        children = group_by(link.pairs, lambda pair: id(pair[1]))
        self.children = [[child.item for child, _ in children.get(id(row), [])] for row in self.parents]
        partition = table.key_names[0]
        together = all(child.item[partition] == parent.item[partition] for child, parent in link.pairs)
        self.seen = [
            sample.complete or (together and sample.has_all_of(str(next(iter(row.item[partition].values())))))
            for row in self.parents
        ]
        """For each parent, whether all its children are in the sample."""
        self.published = {
            measure: [measure.of(children) for children in self.children] for measure in measures_of(link.child)
        }
        """The value of each measure for each parent."""

    def measures(self, attribute: Attribute) -> list[Measure]:
        """Return the measures that an attribute of parents may have."""
        usable = attribute.type == "N" and attribute.name not in self.link.parent.entity.variables
        return list(self.published) if usable else []

    def candidates(self, attribute: Attribute, tries: Mapping[bool, int]) -> Iterator[Candidate]:
        """Yield the measures that agree with all stored values of an attribute that are known, or with most of them.

        `tries` are the candidates of the table without a condition (False), and all of them (True). A counter by its name
        may have no known value: then no number is less than the children in the sample.
        """
        child, parent = self.link.names
        with_it = sum(attribute.name in row.item for row in self.parents)
        for measure in self.measures(attribute):
            every = self._cases(attribute.name, measure)
            cases = [case for case in every if case.stored is not None]
            named = measure == Measure() and is_counter(attribute, self.link)
            verdict = judge(cases, tries[bool(measure.attribute)], named=named)
            unseen = with_it - len(cases)
            certain = verdict.right == len(cases) and (named or (verdict.right > 0 and self._varies(cases)))
            if not (certain or verdict.accepted) or (measure.name and not self._needs_all(measure)):
                continue
            evidence = f"{attribute.name} is {measure.text(child)} in {verdict.right} of {len(cases)} {parent} items"
            if certain and unseen:
                evidence += f"; {unseen} more could not be compared"
            if not cases:
                evidence = (
                    f"{attribute.name} has the name of a counter, and is not less than the number of {child} items in the "
                    f"sample; {len(self.link.pairs)} of {self.link.of} {child} items belong to {an(parent)} in the sample"
                )
            yield Candidate(
                "aggregate", self.link, attribute.name, measure.form, evidence, certain, verdict, every, unseen
            )

    def _cases(self, attribute: str, measure: Measure) -> list[Case]:
        """Return the parents whose value is known, and those with a number that is less than the children in the sample."""
        return [
            Case(row, row.item.get(attribute), value)
            for row, value, seen in zip(self.parents, self.published[measure], self.seen, strict=True)
            if seen
            or (
                not measure.name
                and attribute in row.item
                and Decimal(row.item[attribute].get("N", "-1")) < Decimal(value["N"])
            )
        ]

    def _varies(self, cases: Sequence[Case]) -> bool:
        """Return whether parents with children have several values."""
        with_children = {id(row) for row, children in zip(self.parents, self.children, strict=True) if children}
        return len({identity(case.stored) for case in cases if id(case.row) in with_children}) >= _LEAST

    def _needs_all(self, measure: Measure) -> bool:
        """Return whether a measure of several children differs from that of the first or last one alone."""
        several = [part for children in self.children if len(part := measure.select(children)) > 1]
        differing = 0
        for children in several:
            whole, first, last = (
                identity(value_of(measure.name, part)) for part in (children, children[:1], children[-1:])
            )
            differing += not first == last == whole
        return differing >= max(2, _DIFFERING * len(several))


def measure_candidates(links: Sequence[Link], table: Table, sample: Sample) -> Iterator[Candidate]:
    """Yield the attributes of parents that may be aggregates of their children."""
    families = [Family(link, table, sample) for link in links]
    every = [
        part for family in families for each in family.link.parent.entity.attributes for part in family.measures(each)
    ]
    # Conditions make many candidates; a measure of all items is as probable without them as with them.
    tries = {False: sum(not measure.attribute for measure in every), True: len(every)}
    for family in sorted(families, key=lambda family: bool(family.link.bind)):
        # Parents may have several children if the child's key has further variables.
        if set(family.link.child.entity.variables) - set(family.link.binding.values()):
            attributes = family.link.parent.entity.attributes
            for attribute in sorted(attributes, key=lambda attribute: not is_counter(attribute, family.link)):
                yield from family.candidates(attribute, tries)


def value_of(name: str, items: Sequence[Image]) -> Value:
    """Return the number of items, or the sum of an attribute as a rule publishes it. Other types do not count."""
    if not name:
        return {"N": str(len(items))}
    numbers = [Decimal(item[name]["N"]) for item in items if "N" in item.get(name, {})]
    return {"N": number_text(reduce(CONTEXT.add, numbers, Decimal(0)))}


def is_counter(attribute: Attribute, link: Link) -> bool:
    """Return whether an attribute is named as the number of these children: likeCount, num_likes, likes."""
    child = link.child.entity.name
    stems = {normal(singular(child)), normal(singular(words(child)[-1]))}
    many = "|".join({name for stem in stems for name in (normal(plural(stem)), stem + "s")})  # as in `categorys`
    after = "(?:count|counter|total)"
    before = "(?:n|no|nb|num|number|numberof|total|count|countof)"
    pattern = rf"(?:{'|'.join(stems)})(?:{after}|num)|{before}?(?:{many})|(?:{many}){after}"
    return re.fullmatch(pattern, normal(attribute.name)) is not None


def embed_candidates(links: Sequence[Link], table: Table, complete: bool) -> Iterator[Candidate]:
    """Yield the attributes of children that may repeat an attribute of their parent."""
    pairs = [(link, own, theirs) for link in links for own, theirs in _similar_attributes(link, table)]
    for link, own, theirs in pairs:
        every = [Case(child, child.item.get(own), parent.item.get(theirs)) for child, parent in link.pairs]
        cases = [case for case in every if None not in (case.stored, case.computed)]
        verdict, certain = judge(cases, len(pairs)), judge(cases, 1).certain
        if certain or verdict.accepted:
            with_it = sum(own in row.item for row in link.child.rows)
            orphans = 0 if complete else with_it - sum(own in row.item for row, _ in link.pairs)
            child, parent = link.names
            evidence = f"{own} is the {theirs} of its {parent} in {verdict.right} of {len(cases)} {child} items"
            yield Candidate("embed", link, own, theirs, evidence, certain, verdict, every, orphans)


def _similar_attributes(link: Link, table: Table) -> Iterator[tuple[str, str]]:
    """Yield (child's attribute, parent's attribute) of one type where the names allow a repetition: `name` as `name`,
    `userName` or `author_name`.
    """
    never = table.index_names.union(link.binding.values())
    keys = table.index_names.union(link.parent.entity.variables)
    for own in link.child.entity.attributes:
        if own.name in never or own.type not in ("S", "N", "BOOL"):
            continue
        for theirs in link.parent.entity.attributes:
            name = normal(theirs.name)
            if theirs.name not in keys and theirs.type == own.type and name and normal(own.name).endswith(name):
                yield own.name, theirs.name


# Copies


def copy_rules(links: Sequence[Link], table: Table) -> dict[tuple[str, str], Rule]:
    """Return a rule for each pair of entities whose items have the same attributes under different keys."""
    rules: dict[tuple[str, str], Rule] = {}
    for link in links:
        # The source is the child here: its values form the key of the target.
        source, target = link.names
        if any(target == other for _, other in rules) or not _one_to_one(link):
            continue
        shared, differing = _shared_attributes(link, table)
        own = [each for each in link.parent.entity.attributes if each.name not in table.index_names]
        smaller = len(link.parent.entity.attributes) <= len(link.child.entity.attributes)
        if not smaller or len(shared) < 2 or len(shared) < _COPIED * len(own):
            continue
        evidence = (
            f"{len(link.pairs)} of {len(link.parent.rows)} {target} items belong to one {source} each "
            f"and repeat {len(shared)} of their {len(own)} attributes"
        )
        if differing:
            evidence += f"; they differ in {', '.join(f'{name} of {count}' for name, count in differing.items())}"
        why = (
            f"a copy rule creates and deletes its items: when it is published, `apply --allow-delete` would delete each "
            f"{target} without its {source}, and only this rule may write these attributes"
        )
        rules[link.names] = Rule(
            f"{lower_camel(source)}As{target}", link.body("copy", {"attributes": shared}), evidence, why
        )
    return rules


def _one_to_one(link: Link) -> bool:
    parents = [id(parent) for _, parent in link.pairs]
    share = len(link.pairs) >= _AGREE * min(len(link.child.rows), len(link.parent.rows))
    return len(parents) >= _LEAST and len(set(parents)) == len(parents) and share


def _shared_attributes(link: Link, table: Table) -> tuple[list[str], dict[str, int]]:
    """Return the names of shared attributes, and in how many pairs one of them differs."""
    names = {each.name for each in link.child.entity.attributes} & {each.name for each in link.parent.entity.attributes}
    repeated = []
    differing: dict[str, int] = {}
    for name in sorted(names - table.index_names):
        values = [(a.item[name], b.item[name]) for a, b in link.pairs if name in a.item and name in b.item]
        equal = sum(same(source_value, target_value) for source_value, target_value in values)
        if len(values) >= _LEAST and equal >= _AGREE * len(values):
            repeated.append(name)
            differing |= {name: len(values) - equal} if equal < len(values) else {}
    return repeated, differing

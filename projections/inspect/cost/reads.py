"""What rules read of their sources: what decides whether they apply, where to, and what they write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.inspect.cost.workload import EDIT, Flow
from projections.inspect.rehearsal.rehearse import Rehearsal
from projections.language import canonical
from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.patterns import Pattern
from projections.language.program import Program
from projections.language.syntax import root
from projections.language.templates import Template

__all__ = ["Reads", "Shapes", "carried", "fixed_targets", "reads_of", "roots"]


@dataclass(frozen=True, slots=True)
class Reads:
    """Dotted paths: `where` decides whether a rule applies, `target` where to, `values` what it writes.

    `forms` has the forms that templates and expressions need: a pipe's name, `number`, or `text`.
    """

    where: frozenset[str]
    target: frozenset[str]
    values: frozenset[str]
    forms: Mapping[str, tuple[str, int]]

    def changed_by(self, edited: frozenset[str] | None) -> bool:
        """Whether an edit of these attributes (None: of all) may change what the rule makes of an item."""
        return edited is None or any(root(path) in edited for path in self.where | self.target | self.values)


def reads_of(program: Program, rule: canonical.Rule) -> Reads:
    where = {*_names(rule.where)}
    target: set[str] = set()
    values: set[str] = set()
    forms: dict[str, tuple[str, int]] = {}
    variables = {name for pattern in program.entities[rule.source].patterns for name in pattern.names}

    def formed(path: str, form: tuple[str, int]) -> None:
        if path not in forms or _demand(form, path in variables) > _demand(forms[path], path in variables):
            forms[path] = form

    def templates(texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            for field in Template.parse(text).fields:
                if field.expression is not None:
                    yield from calculated(field.expression)
                    continue
                if field.pipes:
                    width = int(field.pipes[0].arguments[0]) if field.pipes[0].name in ("pad", "invert") else 0
                    formed(field.name, (field.pipes[0].name, width))
                yield field.name

    def expression(text: str) -> Iterator[str]:
        for factor in Expression.parse(text, "value").factors:
            formed(factor.path, ("text" if factor.as_text else "number", 0))
            yield factor.path

    def computed(text: str) -> Iterator[str]:
        yield from calculated(Expression.parse(text, "value"))

    def calculated(parsed: Expression) -> Iterator[str]:
        for path in parsed.calculated:
            formed(path, ("number", 0))
        for factor in parsed.factors:
            if factor.as_text:
                formed(factor.path, ("text", 0))
        yield from parsed.names

    def picked(sources: Mapping[str, str]) -> Iterator[str]:
        for text in sources.values():
            source = attribute_source(text)
            if isinstance(source, Template):
                yield from templates([text])
            else:
                yield from computed(text) if source.path is None else (source.path,)

    match rule:
        case canonical.Index():
            types = {n: kind for keys in program.tables[program.entities[rule.source].table].indexes.values()
                     for part in keys for n, kind in part}  # fmt: skip
            for case in rule.cases:
                where.update(_names(case.where))
                values.update(templates(case.set.values()))
                single = [Template.parse(text).single for name, text in case.set.items() if types[name] == "N"]
                for name in filter(None, single):
                    formed(name, ("number", 0))
        case canonical.Aggregate():
            for measure in rule.set.values():
                values.update(_names(measure.where))
                if measure.by is not None:  # of `first` and `last`, which take any value
                    values.update([str(measure.expression), measure.by])
                elif measure.expression:
                    values.update(expression(measure.expression))
        case canonical.Rank():
            values.update(expression(rule.by))
        case canonical.Top() | canonical.Latest():
            values.update([rule.by, *picked(rule.attributes)])
        case canonical.Copy():
            values.update(picked(rule.attributes or {}))
            values.update(templates(value for value in rule.values.values() if isinstance(value, str)))
        case canonical.Compute():
            for one in (case for cases in rule.set.values() for case in cases):
                where.update(_names(one.where))
                if one.kind != "constant":
                    values.update(templates([one.value]) if one.kind == "template" else computed(one.value))
        case canonical.Embed():
            values.update(picked(rule.attributes))
            target.update(templates(rule.match.values()))
    if not isinstance(rule, canonical.Index | canonical.Compute | canonical.Embed):
        target.update(templates(rule.bind.values()))
        target.update(n for p in program.entities[rule.into].patterns for n in p.names if n not in rule.bind)
    if rule.each:
        target.add(rule.each.path)
    return Reads(frozenset(where), frozenset(target), frozenset(values), forms)


def _demand(form: tuple[str, int], variable: bool) -> int:
    """Return how much a form asks of a value that has several uses: the more demanding form fits the others as well.

    A number has a date. A variable of a key is a text, which cannot be calculated with.
    """
    return {"text": 0, "number": 0 if variable else 2}.get(form[0], 1)


class Shapes:
    """What items look like for the rules of a program: the attributes and variables that rules read, and in which form."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.rules = program.typed.rules
        self.variants = list(program.typed.variants())
        """Each rule with its name, once for each of its sources."""
        self.reads = {(name, rule.source): reads_of(program, rule) for name, rule in self.variants}
        self.variables = {name: [v for p in e.patterns for v in p.names] for name, e in program.entities.items()}
        self.everywhere = {v for names in self.variables.values() for v in names}
        self.numeric = {v for entity in program.entities.values() for v in entity.numeric}
        self.forms = self._all_forms()
        self.rehearsed: dict[tuple[Any, ...], Rehearsal] = {}
        """Batches that were rehearsed already, by what is assumed of them."""

    def _all_forms(self) -> dict[tuple[str, str], tuple[str, int]]:
        """The forms that values need, by entity and path; what rules carry from item to item has them from the start."""
        forms: dict[tuple[str, str], tuple[str, int]] = {}
        for name, rule in self.variants:
            for path, form in self.reads[name, rule.source].forms.items():
                known = forms.get((rule.source, path))
                variable = path in self.everywhere
                more = known is not None and _demand(form, variable) > _demand(known, variable)
                if known is None or more or (form[1] and not 0 < known[1] <= form[1]):
                    forms[rule.source, path] = form
        for _, rule in self.variants:
            for by in _orders(rule):  # whatever comes later is in front
                forms.setdefault((rule.source, by), ("date", 0))
        for _ in self.rules:
            for _, rule in self.variants:
                for attribute, text in _sources(rule).items():
                    if (rule.into, attribute) in forms:
                        for path in _passed(text):
                            forms.setdefault((rule.source, path), forms[rule.into, attribute])
        for (_, path), form in list(forms.items()):
            if path in self.everywhere:  # a variable has one form wherever it occurs
                forms.setdefault(("", path), form)
        return forms

    def decided_by(self, flow: Flow) -> frozenset[str]:
        """The rules that apply or not, according to an edit: by what it changes, or by what rules carry on of that."""
        if flow.kind != EDIT:
            return frozenset()
        names = set(self.editable(flow))
        for _ in self.rules:
            for rule in self.rules.values():
                passed = {name: {root(path) for path in _passed(text)} for name, text in _sources(rule).items()}
                names |= {name for name, paths in passed.items() if not names.isdisjoint(paths)}
        return frozenset(
            name for (name, _), reads in self.reads.items() if any(root(path) in names for path in reads.where)
        )

    def computed_from(self, entity: str, edited: frozenset[str]) -> frozenset[str]:
        """Return attributes of an item with those that `compute` rules set from them."""
        rules = [rule for rule in self.rules.values() if isinstance(rule, canonical.Compute) and rule.source == entity]
        while rules:
            more = {name for rule in rules for name in rule.set if not edited.isdisjoint(_computing(rule, name))}
            if more <= edited:
                break
            edited |= more
        return edited

    def editable(self, flow: Flow) -> frozenset[str]:
        """The attributes that an edit changes, without variables of the key."""
        names = flow.attributes
        if names is None:
            names = frozenset(root(path) for path in self.paths(flow.entity)) or frozenset({"note"})
        return names - set(self.variables[flow.entity])

    def paths(self, entity: str) -> list[str]:
        """The attributes of an entity that rules read and the application writes."""
        found: set[str] = set()
        for name, rule in self.variants:
            if rule.source == entity:
                reads = self.reads[name, rule.source]
                found |= {
                    path
                    for path in reads.where | reads.target | reads.values
                    if not rule.each or root(path) != rule.each.variable
                }
            if isinstance(rule, canonical.Embed) and rule.into == entity:
                found.update(rule.match)
        derived = self.program.derived_attributes(entity)
        left = {*derived, *self.program.entities[entity].schema.key_attributes, *self.variables[entity]}
        return sorted(path for path in found if root(path) not in left)


def carried(rule: canonical.Rule) -> Mapping[str, str]:
    """Attributes of the target with the paths of the source that they are carried over from."""
    parsed = {name: attribute_source(text).path for name, text in _sources(rule).items()}
    return {name: path for name, path in parsed.items() if path is not None}


def roots(source: str) -> frozenset[str]:
    """The attributes that the source of an attribute reads."""
    return frozenset(root(path) for path in attribute_source(source).names)


def _passed(source: str) -> set[str]:
    """The paths whose values may be the value of an attribute with this source."""
    parsed = attribute_source(source)
    return set() if isinstance(parsed, Template) else set(parsed.names) - parsed.calculated


def _orders(rule: canonical.Rule) -> list[str]:
    """The paths by which a rule orders the items that it shows."""
    if isinstance(rule, canonical.Top | canonical.Latest):
        return [rule.by]
    return [one.by for one in rule.set.values() if one.by] if isinstance(rule, canonical.Aggregate) else []


def _computing(rule: canonical.Compute, name: str) -> set[str]:
    """The attributes that decide on the value of a computed attribute."""
    found = {path for case in rule.set[name] for path in _names(case.where)} | {*_names(rule.where)}
    for case in rule.set[name]:
        if case.kind != "constant":
            parsed = Template.parse(case.value) if case.kind == "template" else Expression.parse(case.value, "value")
            found |= {*parsed.names}
    return {root(path) for path in found}


def _sources(rule: canonical.Rule) -> Mapping[str, str]:
    """Attributes of the target with their sources."""
    if isinstance(rule, canonical.Compute):
        return {name: one.value for name, cases in rule.set.items() for one in cases if one.kind != "constant"}
    if isinstance(rule, canonical.Index | canonical.Aggregate | canonical.Rank):
        return {}
    if isinstance(rule, canonical.Embed) and rule.listed is not None:  # in elements, which no rule reads by path
        return {}
    return rule.attributes or {}


def _names(pattern: Mapping[str, Any] | None) -> tuple[str, ...]:
    return Pattern.parse(pattern).names if pattern else ()


def fixed_targets(program: Program, rule: canonical.Rule) -> int | None:
    """Return how many targets a rule has at all, if its key has no variables, or buckets alone; else None."""
    numbers = [_fixed_targets(program, one) for one in rule.variants]
    known = [number for number in numbers if number is not None]
    return max(known) if len(known) == len(numbers) else None


def _fixed_targets(program: Program, rule: canonical.Rule) -> int | None:
    total = 1
    for name in {name for pattern in program.entities[rule.into].patterns for name in pattern.names}:
        text = rule.bind.get(name, f"{{{name}}}")
        found = re.fullmatch(r"\{[\w.-]+\|bucket\((\d+)\)\}", text)
        if found is None and Template.parse(text).fields:
            return None
        total *= int(found[1]) if found else 1
    return total

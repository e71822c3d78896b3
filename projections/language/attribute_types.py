"""The types of attributes, numbers or text: inferred from rules that write them, and from their use in rules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TypeAlias

from projections.language.arithmetic import Expression
from projections.language.findings.reads import expressions, reads, tests
from projections.language.kinds import AnyProjection, AnyRules, Result, once
from projections.language.patterns.implication import compares_as_number
from projections.language.patterns.tree import compared_type
from projections.language.syntax import steps

Node: TypeAlias = tuple[str, str]
"""(entity, attribute or dotted path)."""

_TIMES = frozenset(["at", "time", "date", "timestamp", "epoch", "created", "updated", "expires", "ttl", "year"])
"""Names of times as numbers, whose number of digits does not change."""


class Types:
    """Types of attributes. Each answer is a reason in words, or None if the type is unknown."""

    def __init__(self, rules: AnyRules) -> None:
        self._rules = rules

    def number(self, entity: str, name: str) -> str | None:
        """Return why an attribute, or a variable of the key, is certainly a number."""
        return self._numbers.get((entity, name), (None, ""))[0]

    def function(self, entity: str, name: str) -> str:
        """Return the function that computes a number, as `Result` has it."""
        return self._numbers.get((entity, name), (None, ""))[1]

    def used_as_number(self, entity: str, name: str) -> str | None:
        """Return why an attribute seems to be a number: a rule adds it up, ranks, compares or pads it.

        The variables and attributes of a copy are what those of its source are.
        """
        return self._used.get((entity, name)) or next(self._used_at_origin(entity, name, (entity,)), None)

    def _used_at_origin(self, entity: str, name: str, seen: tuple[str, ...]) -> Iterator[str]:
        for rule in self._rules.projections.values():
            if rule.action.makes_items and rule.into == entity and rule.source not in seen:
                path = _copied(rule, name)
                if path is not None and (why := self._used.get((rule.source, path))):
                    yield why
                elif path is not None:
                    yield from self._used_at_origin(rule.source, path, (*seen, rule.source))

    def is_time(self, entity: str, name: str) -> bool:
        """Return whether an attribute seems to be a time, whose numbers have the same number of digits."""
        last = steps(name)[-1]
        by_name = last.lower() in _TIMES or last.endswith(("At", "Time", "Date", "_at"))
        return by_name or (entity, name) in self._times

    def is_whole(self, entity: str, name: str) -> bool:
        """Return whether `pad` can take a number: as far as rules show, it is neither a fraction nor negative."""
        return (entity, name) not in self._fractions and self.function(entity, name) not in ("avg", "negative")

    def calculated(self, entity: str, name: str) -> str | None:
        """Return which rule reads an attribute in a calculation, or ranks it, where text is bad input."""
        return self._calculated.get((entity, name))

    def text(self, entity: str, name: str) -> str | None:
        """Return why an attribute is certainly text."""
        return self._texts.get((entity, name))

    # What rules write.

    @cached_property
    def _numbers(self) -> dict[Node, tuple[str, str]]:
        numbers = dict(self._declared())
        for node, result, name in self._results("N"):
            numbers[node] = f"rule {name} {result.how}", result.function
        while more := {node: why for node, why in self._passed_on(numbers) if node not in numbers}:
            numbers.update(more)
        return numbers

    def _declared(self) -> Iterator[tuple[Node, tuple[str, str]]]:
        """Yield the attributes of keys of type N, the variables in them, and what `match` compares with numbers."""
        for name, entity in self._rules.entities.items():
            types = self._rules.table_of(name).attribute_types
            numbers = [(attribute, attribute) for attribute, kind in types.items() if kind == "N"]
            numbers += [
                (template.single, attribute)
                for attribute, template in entity.key.items()
                if types[attribute] == "N" and template.single is not None
            ]
            for attribute, key in numbers:
                yield (name, attribute), (f"{key} is a key of type N", "")
            for attribute in entity.conditions.names:
                if compares_as_number(entity.conditions, attribute):
                    yield (name, attribute), ("`match` requires a number", "")

    def _results(self, kind: str) -> Iterator[tuple[Node, Result, str]]:
        """Yield the attributes of a type that rules write, each with its rule."""
        for name, rule in self._rules.projections.items():
            for attribute, result in rule.action.results(self._rules, rule).items():
                if result.type == kind and result.how:
                    yield (rule.into, attribute), result, name

    def _passed_on(self, known: dict[Node, tuple[str, str]]) -> Iterator[tuple[Node, tuple[str, str]]]:
        """Yield numbers that a rule copies."""
        for rule in self._rules.projections.values():
            for target, carried in rule.action.carried.items():
                path = carried.path
                if path is not None and all((source, path) in known for source in rule.sources):
                    yield (rule.into, target), known[rule.source, path]
            if rule.action.copies_all:
                for (entity, attribute), why in known.items():
                    if entity == rule.source:
                        yield (rule.into, attribute), why

    # How rules use what the application writes.

    @cached_property
    def _calculated(self) -> dict[Node, str]:
        calculated: dict[Node, str] = {}
        for each in expressions(self._rules):
            texts = {factor.path for factor in each.expression.factors if factor.from_text or factor.as_text}
            names = each.expression.names if each.numeric else each.expression.calculated
            for name in (name for name in names if name not in texts):
                calculated.setdefault((each.entity, name), f"rule {each.rule} calculates with it")
        return calculated

    @cached_property
    def _used(self) -> dict[Node, str]:
        used: dict[Node, str] = {}
        for name, rule in self._rules.projections.items():
            for part in rule.action.complete(self._rules, rule).parts():
                for factor in part.value.factors if part.use and isinstance(part.value, Expression) else ():
                    if not factor.from_text:
                        for source in rule.sources:
                            used.setdefault((source, factor.path), f"rule {name} {part.use}")
        for tested in tests(self._rules):
            for alternative in tested.test.alternatives:
                if compared_type(alternative) == "N":
                    used.setdefault((tested.entity, tested.test.name), f"rule {tested.rule} compares it as a number")
        for read in reads(self._rules):
            if read.field is not None and any(pipe.name in ("pad", "invert") for pipe in read.field.pipes):
                used.setdefault((read.entity, read.name), f"rule {read.rule} pads it")
        return used

    @cached_property
    def _fractions(self) -> frozenset[Node]:
        """The attributes that a rule accepts as fractions only."""
        return frozenset(
            (source, factor.path)
            for rule in self._rules.projections.values()
            for part in rule.action.parts()
            if part.fraction and isinstance(part.value, Expression)
            for factor in part.value.factors
            for source in rule.sources
        )

    @cached_property
    def _times(self) -> frozenset[Node]:
        return frozenset(
            (read.entity, read.name)
            for read in reads(self._rules)
            if read.field is not None and any(pipe.name == "date" for pipe in read.field.pipes)
        )

    @cached_property
    def _texts(self) -> dict[Node, str]:
        texts: dict[Node, str] = {}
        for name, entity in self._rules.entities.items():
            for attribute, kind in self._rules.table_of(name).attribute_types.items():
                if kind == "S":
                    texts[name, attribute] = f"{attribute} is a key of type S"
            for attribute, value in entity.conditions.constants.items():
                if isinstance(value, str):
                    texts[name, attribute] = "`match` requires it"
        for node, result, name in self._results("S"):
            texts[node] = f"rule {name} {result.how}"
        return texts


@once
def types_of(rules: AnyRules) -> Types:
    """Return the types of attributes under rules."""
    return Types(rules)


def is_number(rules: AnyRules, entity: str, name: str) -> bool:
    """Return whether the items of an entity have only numbers in an attribute."""
    return types_of(rules).number(entity, name) is not None


def _copied(rule: AnyProjection, name: str) -> str | None:
    """Return the name that the source has for a name of a copy; None if it has another text, or if there is none."""
    if (template := rule.bind.get(name)) is not None:
        return template.single if template.single is not None and template.fields[0].plain else None
    carried = rule.action.carried
    return carried[name].path if name in carried else name

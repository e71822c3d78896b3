"""The types of attributes, numbers or text: inferred from rules that write them, and from their use in rules."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import cached_property
from typing import TypeAlias

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import AttributeSource
from projections.language.findings.rule_facts import Facts
from projections.language.forms import Constant
from projections.language.measures import PICKED, TYPED
from projections.language.models import Aggregate, Compute, Copy, Projection, Rank, extreme_type
from projections.language.patterns.tree import Equals, compared_type
from projections.language.syntax import steps
from projections.language.templates import Template

Node: TypeAlias = tuple[str, str]
"""(entity, attribute or dotted path)."""

_TIMES = frozenset(["at", "time", "date", "timestamp", "epoch", "created", "updated", "expires", "ttl", "year"])
"""Names of times as numbers, whose number of digits does not change."""


class Numbers:
    """Types of attributes. Each answer is a reason in words, or None if the type is unknown."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts

    def number(self, entity: str, name: str) -> str | None:
        """Return why an attribute, or a variable of the key, is certainly a number."""
        found = self._written.get((entity, name))
        return found[0] if found is not None else None

    def source(self, entity: str, source: AttributeSource) -> str | None:
        """Return why the source of an attribute is certainly a number."""
        if source.type == "N":
            return "it is computed as a number"
        return self.number(entity, source.path) if source.path is not None else None

    def function(self, entity: str, name: str) -> str:
        """Return the function that computes a number: `count`, `sum`, `avg`, `negative` (a sum below 0), or None."""
        return self._written.get((entity, name), ("", ""))[1]

    def used_as_number(self, entity: str, name: str) -> str | None:
        """Return why an attribute seems to be a number: a rule adds it up or compares it, and it is not a time."""
        last = steps(name)[-1]
        if (entity, name) in self._times or last.lower() in _TIMES or last.endswith(("At", "Time", "Date", "_at")):
            return None
        return self._used.get((entity, name))

    def calculated(self, entity: str, name: str) -> str | None:
        """Return which rule reads an attribute in a calculation, or ranks it, where text is bad input."""
        return self._calculated.get((entity, name))

    def text(self, entity: str, name: str) -> str | None:
        """Return why an attribute is certainly text."""
        return self._texts.get((entity, name))

    # What rules write.

    @cached_property
    def _written(self) -> dict[Node, tuple[str, str]]:
        found = dict(self._declared())
        for name, rule in self._facts.projections.items():
            found.update(self._computed(name, rule))
        while True:
            more = {node: why for node, why in self._passed_on(found) if node not in found}
            if not more:
                return found
            found.update(more)

    def _declared(self) -> Iterator[tuple[Node, tuple[str, str]]]:
        """Yield the attributes of keys of type N, and the variables in them."""
        for name, entity in self._facts.rules.entities.items():
            types = self._facts.table(name).attribute_types
            for attribute, kind in types.items():
                if kind == "N":
                    yield (name, attribute), (f"{attribute} is a key of type N", "")
            for attribute, template in entity.key.items():
                single = template.single
                if types[attribute] == "N" and single is not None:
                    yield (name, single), (f"{attribute} is a key of type N", "")

    def _computed(self, name: str, rule: Projection) -> Iterator[tuple[Node, tuple[str, str]]]:
        action = rule.action
        if isinstance(action, Aggregate):
            for attribute, measure in action.set.items():
                expression = measure.expression
                extreme = measure.function in TYPED
                if measure.function in (*PICKED, "counts", "values"):
                    continue  # see _carried; a map and a set are no numbers
                if measure.function == "distinct":
                    yield (rule.into, attribute), (f"rule {name} makes it a number of values", "count")
                elif not extreme or extreme_type(self._facts.rules, rule, measure) == "N":
                    negative = expression is not None and expression.is_negative and measure.function != "avg"
                    function = "negative" if negative else measure.function
                    words = {"count": "a count", "sum": "a sum", "avg": "an average"}
                    what = words.get(measure.function, "a number")
                    yield (rule.into, attribute), (f"rule {name} makes it {what}", function)
        elif isinstance(action, Compute):
            for attribute, cases in action.set.items():
                if all(_is_number(case.value) for case in cases):
                    yield (rule.into, attribute), (f"rule {name} computes it as a number", "computed")
        for attribute, source in action.carried.items():
            if source.type == "N":
                yield (rule.into, attribute), (f"rule {name} computes it as a number", "computed")
        if isinstance(action, Copy):
            for attribute, value in action.values.items():
                if isinstance(value, Constant) and value.is_number:
                    yield (rule.into, attribute), (f"rule {name} makes it {value.value}", "")

    def _passed_on(self, known: dict[Node, tuple[str, str]]) -> Iterator[tuple[Node, tuple[str, str]]]:
        """Yield numbers that a rule copies."""
        for rule in self._facts.projections.values():
            for target, carried in rule.action.carried.items():
                path = carried.path
                if path is not None and all((source, path) in known for source in rule.sources):
                    yield (rule.into, target), known[rule.source, path]
            if isinstance(rule.action, Copy) and rule.action.copies_all:
                for (entity, attribute), why in known.items():
                    if entity == rule.source:
                        yield (rule.into, attribute), why

    # How rules use what the application writes.

    @cached_property
    def _calculated(self) -> dict[Node, str]:
        found: dict[Node, str] = {}
        for one in self._facts.expressions:
            texts = {factor.path for factor in one.expression.factors if factor.from_text or factor.as_text}
            names = one.expression.names if one.numeric else one.expression.calculated
            for name in (name for name in names if name not in texts):
                found.setdefault((one.entity, name), f"rule {one.rule} calculates with it")
        return found

    @cached_property
    def _used(self) -> dict[Node, str]:
        found: dict[Node, str] = {}
        for name, rule in self._facts.projections.items():
            action = rule.action
            if isinstance(action, Aggregate):
                for measure in action.set.values():
                    expression = measure.expression
                    extreme = measure.function in TYPED
                    if (
                        expression is None
                        or measure.function in PICKED
                        or (extreme and extreme_type(self._facts.rules, rule, measure) != "N")
                    ):
                        continue
                    for factor in expression.factors:
                        if not factor.from_text:
                            how = "compares it as a number" if extreme else "adds it up"
                            for source in rule.sources:
                                found.setdefault((source, factor.path), f"rule {name} {how}")
            elif isinstance(action, Rank):
                for factor in action.by.factors:
                    if not factor.from_text:
                        for source in rule.sources:
                            found.setdefault((source, factor.path), f"rule {name} ranks it")
        for tested in self._facts.tests:
            for one in tested.test.alternatives:
                if compared_type(one) == "N" or (isinstance(one, Equals) and isinstance(one.value, Decimal)):
                    node = (tested.entity, tested.test.name)
                    found.setdefault(node, f"rule {tested.rule} compares it as a number")
        for read in self._facts.reads:
            if read.field is not None and any(pipe.name in ("pad", "invert") for pipe in read.field.pipes):
                found.setdefault((read.entity, read.name), f"rule {read.rule} pads it")
        return found

    @cached_property
    def _times(self) -> frozenset[Node]:
        return frozenset(
            (read.entity, read.name)
            for read in self._facts.reads
            if read.field is not None and any(pipe.name == "date" for pipe in read.field.pipes)
        )

    @cached_property
    def _texts(self) -> dict[Node, str]:
        found: dict[Node, str] = {}
        for name, entity in self._facts.rules.entities.items():
            for attribute, kind in self._facts.table(name).attribute_types.items():
                if kind == "S":
                    found[name, attribute] = f"{attribute} is a key of type S"
            for attribute, value in entity.conditions.document.items():
                if isinstance(value, str):
                    found[name, attribute] = "`match` requires it"
        for name, rule in self._facts.projections.items():
            templates = rule.action.templates if isinstance(rule.action, Copy) else {}
            for attribute, source in {**templates, **rule.action.carried}.items():
                if isinstance(source, Template):
                    found[rule.into, attribute] = f"rule {name} makes it of a template"
        return found


def _is_number(value: Template | Expression | Constant) -> bool:
    """Return whether the value of a case is always a number."""
    return value.is_number if isinstance(value, Constant) else value.type == "N"

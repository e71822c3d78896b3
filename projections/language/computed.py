"""Compiled rules of kind `compute`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from projections.errors import BadInput
from projections.language.arithmetic import Expression
from projections.language.entity import Item, Refused, Resolve, ignore, resolver
from projections.language.keys import Image
from projections.language.patterns import Pattern
from projections.language.rules import Condition, Evaluate, ItemRule
from projections.language.syntax import root
from projections.language.templates import Template
from projections.language.values import Value, having, wire


@dataclass(frozen=True, slots=True)
class ComputeRule(ItemRule):
    """Attributes of the source item, each computed by the first of its cases that matches."""

    values: tuple[tuple[str, tuple[tuple[Condition | None, Evaluate], ...]], ...]
    once: bool
    """Whether it sets attributes only where they are absent, and never changes or removes them."""

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return tuple(name for name, _ in self.values)

    def desired(self, item: Item, refused: Refused = ignore, stored: Item | None = None) -> dict[str, Value | None]:
        values = self.without(stored or item)
        resolve = resolver(item)
        if not self.fits(resolve, refused):
            return values
        for name, cases in self.values:
            if having(values[name]) is None:
                case, computed = self._compute(cases, resolve)
                if computed is not None:
                    values[name] = computed
                else:
                    refused(("set", name, *case), resolve)
        return values

    def _compute(
        self, cases: Iterable[tuple[Condition | None, Evaluate]], resolve: Resolve
    ) -> tuple[tuple[int, ...], Value | None]:
        """Return the number of the case that applies, if one does, and its value; for bad input, no value."""
        for number, (where, evaluate) in enumerate(cases):
            try:
                if where is None or where(resolve):
                    return (number,), evaluate(resolve)
            except BadInput:
                return (number,), None
        return (), None

    def without(self, item: Item) -> dict[str, Value | None]:
        return {name: item.image.get(name) if self.once else None for name, _ in self.values}

    @property
    def removes(self) -> bool:
        return not self.once


def compile_rule(
    common: Mapping[str, Any], where: Mapping[str, Any] | None, document: Mapping[str, Any]
) -> ComputeRule:
    """Return the rule of a canonical document. `common` has the fields of all rules."""
    key = common["source"].schema.key_attributes
    once: bool = document["once"]
    reads = set(Pattern.parse(where).names if where else ())
    values = []
    for name, cases in document["set"].items():
        evaluated = []
        for case in cases:
            evaluate, names = _compile_case(case)
            pattern = Pattern.parse(case["where"]) if "where" in case else None
            reads.update(names, pattern.names if pattern else ())
            evaluated.append((pattern.compile() if pattern else None, evaluate))
        values.append((name, tuple(evaluated)))
    roots = {root(path) for path in reads} - set(key)
    return ComputeRule(
        **common,
        values=tuple(values),
        once=once,
        reads=frozenset(roots.union(document["set"] if once else ())),  # a value is set only where there is none
    )


def _compile_case(case: Mapping[str, Any]) -> tuple[Evaluate, tuple[str, ...]]:
    """Return a function for the value of a case, and the names that it reads."""
    if "constant" in case:
        constant = wire(case["constant"])
        return lambda resolve: constant, ()
    if "{" in case["value"]:
        template = Template.parse(case["value"])
        return template.compile_value(), template.names
    expression = Expression.parse(case["value"], "value")
    return expression.compile_value(), expression.names

"""The rules that are rehearsed: their conditions follow `--matching`, and their targets follow `--targets`.

All else (templates, expressions, keys of copies, references of children) is evaluated as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Any

from projections.inspect.cost.generated import EDITED, ELEMENT, FLOW, KEPT, Values
from projections.inspect.cost.reads import Reads, Shapes, fixed_targets
from projections.inspect.cost.workload import Assumptions
from projections.language import canonical
from projections.language.arithmetic import Expression
from projections.language.computed import ComputeRule
from projections.language.entity import Resolve
from projections.language.measures import ROUNDED, VALUES
from projections.language.patterns import Exists, Pattern, Test
from projections.language.program import Program
from projections.language.ranks import RankRule
from projections.language.rules import AggregateRule, Condition, Evaluate, IndexRule, Measure, Rule
from projections.language.syntax import root
from projections.language.values import CONTEXT

__all__ = ["DIGITS", "RehearsedRules", "whole_number"]

_MOST, _LEAST = Decimal(10) ** 17, Decimal("1e-10")
"""Bounds of what sums take: quotients are rounded, so that generated values are not bad input."""

DIGITS = 4
"""Decimal places at which fractions are distinguished."""


def whole_number(number: float, below: float) -> int:
    """Return the number rounded up if its fraction is larger than `below`, else rounded down."""
    return int(round(number, DIGITS)) + (round(number % 1, DIGITS) % 1 > below)


class RehearsedRules:
    """`program` has the rules of the original with generated conditions and targets.

    `sizes` are the changes of each flow. `toggled` has, by the number of a flow, the rules that its edits make apply
    (`joining`) or no longer apply. `below` in [0, 1) decides which way a broken number of matching items is rounded.
    """

    def __init__(
        self,
        shapes: Shapes,
        assumed: Assumptions,
        values: Values,
        sizes: Sequence[int],
        toggled: Mapping[int, frozenset[str]],
        below: float,
        *,
        joining: bool,
    ) -> None:
        self._shapes = shapes
        self._original = shapes.program
        self._assumed = assumed
        self._values = values
        self._sizes = sizes
        self._toggled = toggled
        self._below = below
        self._joining = joining
        self.targets = self._all_targets(sum(sizes))
        """How many targets a rule has, where it does not have one for each event."""
        self.program = self._rehearsed()

    def _all_targets(self, events: int) -> dict[str, int]:
        """How many targets a rule has where it does not have one for each event."""
        found = {}
        for name, rule in self._shapes.rules.items():
            if rule.recorded:
                numbers = [self._assumed.targets_of(name), fixed_targets(self._original, rule)]
                known = [round(number) for number in numbers if number is not None]
                if known:
                    elements = max(self.elements(name, source) for source in rule.sources)
                    found[name] = max(1, min(*known, events * elements))
        return found

    def elements(self, rule: str, source: str) -> int:
        """Return the contributions of an item of one source; for an embed, the references of a child."""
        one = self._shapes.rules[rule]
        several = any(each.each is not None for each in one.variants if each.source == source)
        several = several or (isinstance(one, canonical.Embed) and one.listed is not None)
        return max(1, round(self._assumed.elements_of(rule))) if several else 1

    def _rehearsed(self) -> Program:
        program = Program.from_document(self._original.document)
        variants = []
        for rule, (name, written) in zip(program.variants, self._shapes.variants, strict=True):
            reads = self._shapes.reads[name, written.source]
            changes: dict[str, Any] = {"where": self._where(rule, written, reads)}
            if rule.recorded:
                names = dict.fromkeys(variable for pattern in rule.into.patterns for variable in pattern.names)
                changes["bind"] = tuple((variable, self._bound(rule, reads, variable)) for variable in names)
            if isinstance(rule, IndexRule):
                changes["cases"] = ((None, rule.cases[0][1]),)
            if isinstance(rule, ComputeRule):
                assert isinstance(written, canonical.Compute)
                changes["values"] = tuple(
                    (name, self._cases(rule.source.name, written.set[name], cases)) for name, cases in rule.values
                )
            if isinstance(rule, AggregateRule):
                assert isinstance(written, canonical.Aggregate)
                changes["measures"] = tuple(
                    self._measure(rule, measure, written.set[measure.name]) for measure in rule.measures
                )
            if isinstance(rule, RankRule):
                assert isinstance(written, canonical.Rank)
                changes["evaluate"] = self._score(rule, Expression.parse(written.by).names)
            variants.append(replace(rule, **changes))
        program.variants = tuple(variants)
        program.rules = {rule.name: rule for rule in reversed(variants)}
        program.rules = {name: program.rules[name] for name in self._original.rules}
        return program

    def _own(self, entity: str, resolve: Resolve) -> int:
        return max((self._values.number(resolve(variable)) for variable in self._shapes.variables[entity]), default=-1)

    def _where(self, rule: Rule, written: canonical.Rule, reads: Reads) -> Callable[[Resolve], bool]:
        derived = self._original.derived_attributes(rule.source.name)
        names = sorted(name for name in reads.where if name not in self._shapes.variables[rule.source.name])
        patterns = (
            [written.where, *(case.where for case in written.cases)]
            if isinstance(written, canonical.Index)
            else [written.where]
        )
        needed = sorted(_needed(patterns, derived))

        def applies(resolve: Resolve) -> bool:
            if not _present(needed, resolve):
                return False
            number = self._own(rule.source.name, resolve)
            if not self._matches(rule.name, number):
                return False
            if number // KEPT % 10 or rule.name not in self._toggled.get(number // FLOW % 1000, ()):
                return True
            return self._joining == any(self._values.edited(resolve(name), name in derived) for name in names)

        return applies

    def _matches(self, rule: str, number: int) -> bool:
        share = self._assumed.share(rule)
        if share >= 1 or number < 0:
            return True
        flow, place = number // FLOW % 1000, number % FLOW
        size = self._sizes[flow - 1] if 0 < flow <= len(self._sizes) else self.targets.get(rule, 1)
        return place < whole_number(size * share, self._below)

    def _bound(self, rule: Rule, reads: Reads, variable: str) -> Callable[[Resolve], str]:
        names = sorted(name for name in reads.target if name not in self._shapes.variables[rule.source.name])

        def bound(resolve: Resolve) -> str:
            number = self._own(rule.source.name, resolve)
            if rule.each is not None:
                number = self._values.number(resolve(rule.each.variable))
            else:
                number += EDITED * any(self._values.edited(resolve(name)) for name in names)
            return self._values.text(variable, self.target(rule.name, rule.source.name, number))

        return bound

    def target(self, rule: str, source: str, number: int) -> int:
        targets = self.targets.get(rule)
        if targets is None:
            return number - number // KEPT % 10 * KEPT
        place = number % FLOW * self.elements(rule, source) + number // ELEMENT + number // EDITED % 10
        return place % targets

    def _score(self, rule: RankRule, names: Sequence[str]) -> Callable[[Resolve], Decimal | None]:
        """Return scores at random over the whole range, another one where any value in the expression is another one."""

        def score(resolve: Resolve) -> Decimal | None:
            values = [resolve(name) for name in names]
            if None in values:
                return None
            text = f"{self._own(rule.source.name, resolve)} {values}"
            number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
            return Decimal(number % 10**rule.scale.digits).scaleb(-rule.scale.decimals)

        return score

    def _cases(
        self, entity: str, written: Sequence[canonical.Computed], cases: Sequence[tuple[Condition | None, Evaluate]]
    ) -> tuple[tuple[Condition | None, Evaluate], ...]:
        """The cases of a computed attribute whose values follow from others, or the first case where there are none.

        Conditions hold as soon as the item has the values of rules that they need.
        """
        derived = self._original.derived_attributes(entity)
        found: list[tuple[Condition | None, Evaluate]] = []
        for one, (_, evaluate) in zip(written, cases, strict=True):
            if one.kind != "constant":
                needed = sorted(_needed([one.where], derived))
                found.append((partial(_present, needed) if needed else None, evaluate))
        return tuple(found) or ((None, cases[0][1]),)

    def _measure(self, rule: AggregateRule, measure: Measure, written: canonical.Measure) -> Measure:
        where = self._counted(written.where) if measure.where else None
        if measure.evaluate is None or measure.function not in (*ROUNDED, *VALUES):
            return replace(measure, where=where)
        if measure.function in VALUES:
            evaluate = self._listed(rule, measure, written)
        else:
            evaluate = partial(_fitting, measure.evaluate)
        return replace(measure, where=where, evaluate=evaluate)

    def _listed(
        self, rule: AggregateRule, measure: Measure, written: canonical.Measure
    ) -> Callable[[Resolve], Decimal | str | None]:
        """Return values as there are in the measure, or so many different ones as are assumed."""
        assert measure.evaluate is not None
        most, evaluate = self._assumed.values_of(rule.name), measure.evaluate
        names = Expression.parse(str(written.expression), "value").names

        def one_of_several(resolve: Resolve) -> Decimal | str | None:
            value = evaluate(resolve)
            if most is None or value is None:
                return value
            number = (
                self._own(rule.source.name, resolve)
                if rule.each is None
                else self._values.number(resolve(rule.each.variable))
            )
            place = number % FLOW // self.targets.get(rule.name, 1) + any(
                self._values.edited(resolve(n)) for n in names
            )
            return f"value {place % most:05}" if isinstance(value, str) else Decimal(place % most)

        return one_of_several

    def _counted(self, pattern: Mapping[str, Any] | None) -> Callable[[Resolve], bool]:
        names = Pattern.parse(pattern or {}).names
        return lambda resolve: not any(self._values.edited(resolve(name)) for name in names)


def _fitting(evaluate: Callable[[Resolve], Decimal | str | None], resolve: Resolve) -> Decimal | None:
    value = evaluate(resolve)
    if not isinstance(value, Decimal):
        return None
    return CONTEXT.remainder(value, _MOST).quantize(_LEAST, context=CONTEXT)


def _present(needed: Sequence[str], resolve: Resolve) -> bool:
    return all(resolve(name) is not None for name in needed)


def _needed(patterns: Sequence[Mapping[str, Any] | None], derived: Container[str]) -> set[str]:
    """Return the names in patterns that rules write, without which none of the patterns holds."""
    parsed = [Pattern.parse(pattern) for pattern in patterns if pattern]
    names = {name for pattern in parsed for name in pattern.names if root(name) in derived}
    absent = {
        condition.name
        for pattern in parsed
        for condition in pattern.conditions
        if isinstance(condition, Test) and Exists(False) in condition.alternatives
    }
    return names - absent

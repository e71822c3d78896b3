"""The rules that are rehearsed: their conditions follow `--matching`, and their targets follow `--targets`.

All else (templates, expressions, keys of copies, references of children) is evaluated as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from projections.inspect.cost.generated import EDITED, ELEMENT, FLOW, KEPT, Values
from projections.inspect.cost.reads import Reads, Shapes, fixed_targets
from projections.inspect.cost.workload import Assumptions
from projections.language import canonical
from projections.language.arithmetic import Expression
from projections.language.computed import ComputeRule
from projections.language.entity import Resolve
from projections.language.patterns import Exists, Pattern, Test
from projections.language.program import Program
from projections.language.ranks import RankRule
from projections.language.rules import AggregateRule, IndexRule, Rule

__all__ = ["DIGITS", "RehearsedRules", "whole_number"]

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
                changes["values"] = tuple((attribute, ((None, cases[0][1]),)) for attribute, cases in rule.values)
            if isinstance(rule, AggregateRule):
                assert isinstance(written, canonical.Aggregate)
                changes["measures"] = tuple(
                    replace(m, where=self._counted(written.set[m.name].where)) if m.where else m for m in rule.measures
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
        needed = [n for n in names if n.split(".", 1)[0] in derived and not _may_be_absent(written, n)]

        def applies(resolve: Resolve) -> bool:
            if any(resolve(name) is None for name in needed):
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

    def _counted(self, pattern: Mapping[str, Any] | None) -> Callable[[Resolve], bool]:
        names = Pattern.parse(pattern or {}).names
        return lambda resolve: not any(self._values.edited(resolve(name)) for name in names)


def _may_be_absent(rule: canonical.Rule, name: str) -> bool:
    """Whether a condition of a rule holds where an attribute is absent."""
    patterns = [rule.where, *(case.where for case in rule.cases)] if isinstance(rule, canonical.Index) else [rule.where]
    return any(
        isinstance(condition, Test) and condition.name == name and Exists(False) in condition.alternatives
        for pattern in patterns
        for condition in (Pattern.parse(pattern).conditions if pattern else ())
    )

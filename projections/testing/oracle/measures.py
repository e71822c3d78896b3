"""The measures of `aggregate`: what one source item adds, and what all of them come to."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from projections.language.keys import Value
from projections.testing.oracle.patterns import pattern
from projections.testing.oracle.scope import Scope
from projections.testing.oracle.values import EXACT, Missing, Unfit, addable, mean, number, plain, storable

__all__ = ["Amount", "Measure", "order", "ordered"]

Amount: TypeAlias = Decimal | str

_PATH = r"'[^']*'|\"[^\"]*\"|[^\s()*'\"]+"
_FACTOR = re.compile(rf"\s*(-?)\s*(?:(number|text)\s*\(\s*({_PATH})\s*\)|({_PATH}))\s*(?:\*|$)")
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")


def order(amount: Amount) -> tuple[int, Decimal, str]:
    """Sorts all numbers before all texts."""
    return (0, amount, "") if isinstance(amount, Decimal) else (1, Decimal(0), amount)


def ordered(value: str) -> str:
    """A text to order by. Raises Unfit if it is longer than a member's key takes, where blanks, ! and " count twice."""
    if len(value.encode()) + sum(character <= '"' for character in value) > 510:
        raise Unfit(f"too long to order by: {value[:80]!r}")
    return value


class Measure:
    """One attribute of an `aggregate`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._function = document["function"]
        self._factors = _factors(document["expression"])
        self._fits = pattern(document["where"])

    def amount(self, scope: Scope) -> Amount | None:
        """Return the amount that the source adds, None if it adds nothing. Raises Unfit."""
        if not self._fits(scope.get):
            return None
        if self._function == "count":
            return Decimal(1)
        try:
            amount = self._evaluate(scope)
        except Missing:
            return None
        if isinstance(amount, str) and self._function in ("sum", "avg"):
            raise Unfit(f"not a number: {amount!r}")
        if isinstance(amount, Decimal) and not storable(amount):
            raise Unfit(f"beyond 38 digits: {amount}")
        return amount if self._function in ("min", "max") else self.within(amount)

    def within(self, amount: Amount) -> Amount:
        """The amount of one source, or of all its elements to one target. Raises Unfit if it is too long to be added."""
        if self._function in ("sum", "avg") and isinstance(amount, Decimal) and not addable(amount):
            raise Unfit(f"more than 18 digits before or 10 after the decimal point: {amount}")
        return amount

    def _evaluate(self, scope: Scope) -> Amount:
        values = [factor.value(scope) for factor in self._factors]  # what is missing comes before what does not fit
        if self._factors[0].conversion == "text":
            if "S" not in values[0]:
                raise Unfit(f"not a text: {values[0]}")
            return ordered(str(values[0]["S"]))
        result = Decimal(1)
        for factor, value in zip(self._factors, values, strict=True):
            amount = _converted(value) if factor.conversion else number(value)
            result = EXACT.multiply(result, EXACT.minus(amount) if factor.negated else amount)
        return result

    def result(self, amounts: Sequence[Amount | None]) -> Value | None:
        """The value of the attribute, None for an absent one."""
        present = [amount for amount in amounts if amount is not None]
        if self._function in ("min", "max"):
            if not present:
                return None
            found = min(present, key=order) if self._function == "min" else max(present, key=order)
            return {"S": found} if isinstance(found, str) else {"N": plain(found)}
        total = Decimal(0)
        for amount in present:
            assert isinstance(amount, Decimal)
            total = EXACT.add(total, amount)
        if self._function == "avg":
            return {"N": plain(mean(total, len(present)))} if present else None
        return {"N": plain(total)}


@dataclass(frozen=True, slots=True)
class _Factor:
    """One factor of a product: a constant or a path, perhaps negated, perhaps in `number(…)` or `text(…)`."""

    negated: bool
    conversion: str | None
    text: str

    def value(self, scope: Scope) -> Value:
        if _NUMBER.fullmatch(self.text):
            return {"N": self.text}
        return scope.need(self.text.strip("'\""))


def _factors(expression: str | None) -> list[_Factor]:
    found = _FACTOR.finditer(expression) if expression is not None else ()
    return [_Factor(m[1] == "-", m[2], m[3] or m[4]) for m in found]


def _converted(value: Value) -> Decimal:
    """`number(path)`: a number, or a text that is one."""
    if "N" in value:
        return number(value)
    if "S" in value and _NUMBER.fullmatch(value["S"].strip()):
        return Decimal(value["S"].strip())
    raise Unfit(f"not a number: {value}")

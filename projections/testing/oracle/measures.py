"""The measures of `aggregate`: what one source item adds, and what all of them come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from projections.language.keys import Value
from projections.testing.oracle.expressions import Expression
from projections.testing.oracle.patterns import pattern
from projections.testing.oracle.scope import Scope
from projections.testing.oracle.values import EXACT, Missing, Unfit, addable, mean, plain, storable

__all__ = ["Amount", "Measure", "order", "ordered"]

Amount: TypeAlias = Decimal | str


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
        self._expression = Expression.parse(document["expression"]) if document["expression"] else None
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
        assert self._expression is not None
        if self._expression.is_text:
            return ordered(str(self._expression.value(scope)["S"]))
        return self._expression.number(scope)

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

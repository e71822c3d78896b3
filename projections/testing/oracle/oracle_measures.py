"""The measures of `aggregate`: what one source item adds, and what all of them come to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, NamedTuple, TypeAlias, TypeVar

from projections.language.keys import Value
from projections.testing.oracle.oracle_expressions import Expression, pattern
from projections.testing.oracle.scalar import EXACT, Missing, Scope, Unfit, addable, mean, number, plain, size, storable

Amount: TypeAlias = Decimal | str
T = TypeVar("T")


class Picked(NamedTuple):
    """A value that `first` or `last` may show, with what orders it."""

    by: tuple[int, Decimal, str]
    value: Value | None


MEMBER_BYTES = 300_000
LIST_BYTES = 32_768
"""The most bytes of a published list, map or set."""
MOST_VALUES = 100
_HALF_EVEN = Context(prec=80, rounding=ROUND_HALF_EVEN)


def order(amount: Amount) -> tuple[int, Decimal, str]:
    """Sorts all numbers before all texts."""
    return (0, amount, "") if isinstance(amount, Decimal) else (1, Decimal(0), amount)


def sortable(value: str) -> str:
    """A text to order by. Raises Unfit if it is longer than a member's key takes, where blanks, ! and " count twice."""
    if len(value.encode()) + sum(character <= '"' for character in value) > 510:
        raise Unfit(f"too long to order by: {value[:80]!r}")
    return value


def rank(value: Value) -> tuple[int, Decimal, str]:
    """What a value is ordered by. Raises Unfit."""
    return order(sortable(value["S"])) if "S" in value else order(number(value))


class Measure:
    """One attribute of an `aggregate`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._function = next(name for name in document if name not in ("where", "round", "by"))
        expression = document[self._function]
        self._expression = None if expression is True else Expression.parse(expression)
        self._digits = document.get("round")
        self._by = document.get("by")
        self._path = "" if expression is True else expression.strip()
        self._fits = pattern(document.get("where"))

    def amount(self, scope: Scope) -> Amount | Picked | None:
        """Return the amount that the source adds, None if it adds nothing. Raises Unfit."""
        if not self._fits(scope.stored_value):
            return None
        if self._by is not None:
            by = scope.get(self._by)
            if by is None:
                return None
            value = scope.get(self._path)
            if value is not None and size(value) > MEMBER_BYTES - 300:
                raise Unfit("more than a member holds")
            return Picked(rank(by), value)
        if self._function == "count":
            return Decimal(1)
        expression = self._expression
        assert expression is not None
        amount: Amount
        try:
            amount = sortable(str(expression.value(scope)["S"])) if expression.is_text else expression.number(scope)
        except Missing:
            return None
        if isinstance(amount, str) and self._function in ("sum", "avg"):
            raise Unfit(f"not a number: {amount!r}")
        if isinstance(amount, Decimal) and not storable(amount):
            raise Unfit(f"beyond 38 digits: {amount}")
        return self.within(amount)

    @property
    def adds(self) -> bool:
        """Whether amounts are added up."""
        return self._function in ("count", "sum", "avg")

    def within(self, amount: Amount) -> Amount:
        """The amount of one source, or of all its elements to one target. Raises Unfit if it is too long to be added."""
        if self._function in ("sum", "avg") and isinstance(amount, Decimal) and not addable(amount):
            raise Unfit(f"more than 18 digits before or 10 after the decimal point: {amount}")
        return amount

    def result(self, parts: Sequence[tuple[Amount | Picked | None, tuple[str, str], float]]) -> Value | None:
        """The value of the attribute, None for an absent one, from amounts with their sources and positions in them."""
        if self._by is not None:
            picked = {(pick.by, source, position): pick for pick, source, position in parts if isinstance(pick, Picked)}
            choose = min if self._function == "first" else max
            return picked[choose(picked)].value if picked else None
        present = [amount for amount, _, _ in parts if amount is not None and not isinstance(amount, Picked)]
        if self._function in ("distinct", "counts", "values"):
            return self._of_values(present)
        if self._function in ("min", "max"):
            if not present:
                return None
            extreme = min(present, key=order) if self._function == "min" else max(present, key=order)
            return {"S": extreme} if isinstance(extreme, str) else {"N": plain(extreme)}
        total = Decimal(0)
        for amount in present:
            assert isinstance(amount, Decimal)
            total = EXACT.add(total, amount)
        if self._function == "avg":
            return {"N": plain(self._round(mean(total, len(present))))} if present else None
        return {"N": plain(self._round(total))}

    def _of_values(self, present: Sequence[Amount]) -> Value | None:
        """The number of different values, how often each of the first occurs, or the first of them."""
        numbers: dict[Amount, int] = {}
        for amount in sorted(present, key=order):
            if amount != "":
                numbers[amount] = numbers.get(amount, 0) + 1
        if self._function == "distinct":
            return {"N": str(len(numbers))}
        if self._function == "values":
            kind = "SS" if any(isinstance(amount, str) for amount in numbers) else "NS"
            texts = [_text(amount) for amount in numbers]
            return longest(texts[:MOST_VALUES], lambda elements: {kind: elements}) if numbers else None
        listed = [(_text(amount), {"N": str(times)}) for amount, times in numbers.items() if amount != "*"]
        shown = longest(listed[:MOST_VALUES], lambda pairs: {"M": dict(pairs)})["M"]
        rest = sum(numbers.values()) - sum(int(times["N"]) for times in shown.values())
        return {"M": {**shown, "*": {"N": str(rest)}} if rest else shown}

    def _round(self, number: Decimal) -> Decimal:
        """A result to the digits after the point that are shown, half-even."""
        return number if self._digits is None else number.quantize(Decimal(1).scaleb(-self._digits), context=_HALF_EVEN)


def _text(amount: Amount) -> str:
    return amount if isinstance(amount, str) else plain(amount)


def longest(elements: list[T], make: Callable[[list[T]], Value]) -> Value:
    """What is made of the first elements, of as many as `LIST_BYTES` permit."""
    values = (make(elements[:many]) for many in range(len(elements), -1, -1))
    return next(value for value in values if size(value) <= LIST_BYTES)

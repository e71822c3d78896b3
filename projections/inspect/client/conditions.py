"""Python conditions from patterns: `where` of a query and `match` of an entity."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from projections.inspect.client.keys import number
from projections.inspect.client.naming import literal
from projections.language.patterns import (
    Affix,
    Alternative,
    AnythingBut,
    Compares,
    Condition,
    Either,
    Equals,
    Exists,
    Named,
    Numeric,
    Operand,
    Test,
)
from projections.language.syntax import root, steps

__all__ = ["Names", "at", "value_literal", "written"]


class Names:
    """How generated code reads the names of an entity from `item`. `variables` has the expressions of key variables."""

    def __init__(self, variables: dict[str, str]) -> None:
        self.variables = variables
        self.used: set[str] = set()
        """The key variables that were read."""

    def value(self, name: str, *, sure: bool = False) -> str:
        """Return the expression of a value. Without `sure`, it is None or `_ABSENT` for an item without it."""
        if name in self.variables:
            self.used.add(name)
            own = self.variables[name]
            return own if own.startswith("item[") else f"item.get({literal(name)}, {own})"
        if len(steps(name)) > 1:
            return at("item", name)
        return f"item[{literal(root(name))}]" if sure else f"item.get({literal(root(name))})"

    def stored(self, name: str) -> str | None:
        """Return the condition that an item has a value or NULL; None if all have."""
        if name in self.variables:
            return None
        return f"{self.value(name)} is not _ABSENT" if len(steps(name)) > 1 else f"{literal(root(name))} in item"

    def present(self, name: str) -> str | None:
        """Return the condition that an item has a value; None if all have."""
        if name in self.variables:
            return None
        value = self.value(name)
        return f"{value} not in (None, _ABSENT)" if len(steps(name)) > 1 else f"{value} is not None"


def at(item: str, name: str) -> str:
    """Return the expression of the value at a path."""
    return f"_at({', '.join([item, *map(literal, steps(name))])})"


def value_literal(value: Any) -> str:
    """Return a scalar of a pattern in Python source."""
    match value:
        case None | bool():
            return repr(value)
        case str():
            return literal(value)
        case Decimal():
            return number(str(value))
    raise TypeError(type(value))


def written(condition: Condition, names: Names) -> str:
    """Return a condition of a pattern as Python source, which can be joined with others by `and`."""
    if isinstance(condition, Either):
        branches = [_both([written(one, names) for one in branch]) for branch in condition.branches]
        return f"({' or '.join(branches)})"
    found = list(_test(condition, names))
    return found[0] if len(found) == 1 else f"({' or '.join(found)})"


def _both(conditions: list[str]) -> str:
    return conditions[0] if len(conditions) == 1 else f"({' and '.join(conditions)})"


def _test(test: Test, names: Names) -> Iterator[str]:
    """Yield conditions of which one must hold."""
    alternatives = test.alternatives
    present, stored = names.present(test.name), names.stored(test.name)
    if Exists(True) in alternatives:
        yield "True" if stored is None or Exists(False) in alternatives else stored
        return
    if Exists(False) in alternatives:
        yield "False" if stored is None else _absent(test.name, names)
    null = any(isinstance(one, Equals) and one.value is None for one in alternatives)
    value = at("item", test.name) if null and test.name not in names.variables else names.value(test.name)
    yield from _scalars([one for one in alternatives if not isinstance(one, AnythingBut | Compares | Exists)], value)
    for one in alternatives:
        if isinstance(one, Compares):
            bounds = [f"({literal(sign)}, {_operand(other, names)})" for sign, other in one.bounds]
            yield f"_compares({', '.join([value, *bounds])})"
    for one in alternatives:
        if isinstance(one, AnythingBut):
            excluded = " or ".join(_scalars(list(one.excluded), value))
            yield f"({present} and not ({excluded}))" if present else f"not ({excluded})"


def _operand(operand: Operand, names: Names) -> str:
    return names.value(operand.name) if isinstance(operand, Named) else value_literal(operand)


def _absent(name: str, names: Names) -> str:
    return f"{names.value(name)} is _ABSENT" if len(steps(name)) > 1 else f"{literal(root(name))} not in item"


def _scalars(alternatives: list[Alternative], value: str) -> Iterator[str]:
    equal = [value_literal(one.value) for one in alternatives if isinstance(one, Equals)]
    if equal:
        yield f"_is({', '.join([value, *equal])})"
    for one in alternatives:
        if isinstance(one, Affix):
            yield f"_any_text({value}, lambda text: {_affix(one)})"
        elif isinstance(one, Numeric):
            yield f"_any_number({value}, lambda number: {_bounds(one)})"


def _affix(one: Affix) -> str:
    text = literal(one.text.casefold() if one.ignore_case else one.text)
    subject = "text.casefold()" if one.ignore_case else "text"
    method = {"prefix": "startswith", "suffix": "endswith"}.get(one.operator)
    return f"{subject}.{method}({text})" if method else f"{subject} == {text}"


def _bounds(one: Numeric) -> str:
    terms = [f"number {'==' if sign == '=' else sign} {number(str(bound))}" for sign, bound in one.bounds]
    return " and ".join(terms)

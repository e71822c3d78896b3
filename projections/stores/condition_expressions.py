"""Conditions: evaluated on an item in memory, and compiled to DynamoDB's expressions.

Both use the same tree, so that the stores agree. Expressions are compiled once per shape (names and structure, without the
values), because the engine repeats few shapes many times.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Equal,
    Exists,
    Missing,
    NotEqual,
    Path,
    Update,
)
from projections.language.values import Image, Value, same

ORDERED = frozenset("SNB")
"""The types that have an order; DynamoDB refuses `<` on others."""


def paths(condition: Condition | None) -> Iterator[Path]:
    """Yield the paths in a condition, with repetitions; none for None."""
    match condition:
        case None:
            return
        case AllOf(conditions) | AnyOf(conditions):
            for each in conditions:
                yield from paths(each)
        case _:
            yield condition.path


# In memory


def holds(condition: Condition, item: Image | None) -> bool:
    """Return whether a condition holds for a stored item, which is None if it does not exist."""
    match condition:
        case AllOf(conditions):
            return all(holds(each, item) for each in conditions)
        case AnyOf(conditions):
            return any(holds(each, item) for each in conditions)
    stored = value_at(item, condition.path)
    match condition:
        case Exists():
            return stored is not None
        case Missing():
            return stored is None
        case Equal():
            return stored is not None and same(stored, condition.value)
        case NotEqual():
            return stored is None or not same(stored, condition.value)
        case Below():
            return stored is not None and _less(stored, condition.value)
        case Above():
            return stored is not None and _less(condition.value, stored)


def operands(condition: Condition) -> list[tuple[Value, bool]]:
    """Return the values in a condition, in the order of its expression, each with whether the comparison needs an order."""
    if isinstance(condition, AllOf | AnyOf):
        return [operand for each in condition.conditions for operand in operands(each)]
    if isinstance(condition, Exists | Missing):
        return []
    return [(condition.value, isinstance(condition, Below | Above))]


def value_at(item: Image | None, path: Path) -> Value | None:
    """Return the value at a path into an item and its maps; None if it is absent."""
    value = None if item is None else item.get(path[0])
    for name in path[1:]:
        if value is None or "M" not in value:
            return None
        value = value["M"].get(name)
    return value


def _less(lower: Value, upper: Value) -> bool:
    for kind in ORDERED:
        if kind in lower:
            return kind in upper and comparable(kind, lower[kind]) < comparable(kind, upper[kind])
    return False


def comparable(kind: str, text: str) -> Any:
    """Return a key that sorts as DynamoDB does: text by code points, which is the order of its UTF-8 bytes."""
    return text if kind == "S" else Decimal(text) if kind == "N" else b64decode(text)


# As expressions

Shape: TypeAlias = tuple[Any, ...]
"""A condition without its values: (type, path) or (type, shapes); hashable."""


@dataclass(frozen=True, slots=True, eq=False)
class Expressions:
    """The texts of one write. Values are numbered `:0`, `:1`, … in the order set, add, discard, condition."""

    update: str
    condition: str
    names: Mapping[str, str]
    operators: int


def take_apart(condition: Condition, values: list[Value]) -> Shape:
    """Return the shape of a condition, and add its values to `values` in the order of its expression."""
    kind = type(condition)  # not isinstance(), nor a generator: this takes a tenth of the time of a batch
    if kind is AllOf or kind is AnyOf:
        return kind, tuple([take_apart(each, values) for each in condition.conditions])  # type: ignore[union-attr]
    if kind is not Exists and kind is not Missing:
        values.append(condition.value)  # type: ignore[union-attr]
    return kind, condition.path  # type: ignore[union-attr]


def express(update: Update | None, condition: Condition | None) -> tuple[Expressions, list[Value]]:
    """Return the expressions of an update, of a delete if `update` is None; and its values as they are numbered."""
    if update is None:
        values: list[Value] = []
        return _compile((), (), (), (), take_apart(condition, values) if condition else ()), values
    values = [*update.set.values(), *update.add.values(), *update.discard.values()]
    tree = take_apart(condition, values) if condition else ()
    texts = _compile(tuple(update.set), tuple(update.remove), tuple(update.add), tuple(update.discard), tree)
    return texts, values


@lru_cache(maxsize=4096)
def _compile(
    set_: tuple[str, ...], remove: tuple[str, ...], add: tuple[str, ...], discard: tuple[str, ...], condition: Shape
) -> Expressions:
    text = _Text()
    clauses = []
    if set_:
        clauses.append("SET " + ",".join(f"{text.name(name)}={text.value()}" for name in set_))
    if remove:
        clauses.append("REMOVE " + ",".join(map(text.name, remove)))
    if add:
        clauses.append("ADD " + ",".join(f"{text.name(name)} {text.value()}" for name in add))
    if discard:
        clauses.append("DELETE " + ",".join(f"{text.name(name)} {text.value()}" for name in discard))
    return Expressions(" ".join(clauses), text.condition(condition) if condition else "", text.names, text.operators)


@lru_cache(maxsize=1024)
def projection(attributes: tuple[str, ...]) -> tuple[str, Mapping[str, str]]:
    """Return the projection expression for some attributes, and its names."""
    names = {f"#p{number}": name for number, name in enumerate(dict.fromkeys(attributes))}
    return ",".join(names), names


class _Text:
    """Compiles expressions that share their placeholders."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.operators = 0
        self._placeholders: dict[str, str] = {}
        self._values = 0

    def name(self, name: str) -> str:
        placeholder = self._placeholders.get(name)
        if placeholder is None:
            placeholder = self._placeholders[name] = f"#{len(self.names)}"
            self.names[placeholder] = name
        return placeholder

    def value(self) -> str:
        self._values += 1
        return f":{self._values - 1}"

    def condition(self, tree: Shape) -> str:
        kind, argument = tree
        if kind in (AllOf, AnyOf):
            return self._join(argument, " AND " if kind is AllOf else " OR ")
        self.operators += 1
        path = ".".join(map(self.name, argument))
        if kind in COMPARISONS:
            return f"{path}{COMPARISONS[kind]}{self.value()}"
        return f"attribute_exists({path})" if kind is Exists else f"attribute_not_exists({path})"

    def _join(self, trees: Sequence[Shape], word: str) -> str:
        if not trees:  # DynamoDB has no constants: this is always false
            name = self.name("~")
            never = f"(attribute_exists({name}) AND attribute_not_exists({name}))"
            return never if word == " OR " else f"(NOT {never})"
        self.operators += len(trees) - 1
        parts = [self.condition(tree) for tree in trees]
        return parts[0] if len(parts) == 1 else f"({word.join(parts)})"


COMPARISONS: Mapping[Any, str] = {Equal: "=", NotEqual: "<>", Below: "<", Above: ">"}

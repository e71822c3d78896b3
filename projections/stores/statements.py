"""Updates as PartiQL statements: 25 of them are one request (BatchExecuteStatement), each on its own.

Texts are compiled once per shape, as expressions are; all values are parameters, in the order SET, key, condition. Only
documented syntax is used: `IS MISSING` where expressions have `attribute_not_exists`, one keyword for each attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Equal,
    Exists,
    NotEqual,
    Path,
    Schema,
    Update,
    Value,
)
from projections.stores.conditions import Shape, operands, shape

__all__ = ["BATCH_BYTES", "BATCH_STATEMENTS", "parameters", "require_items", "statement"]

BATCH_STATEMENTS = 25
BATCH_BYTES = 1024 * 1024
"""Ours: AWS names no limit for a batch (DynamoDB Local takes 10 MB), and what is smaller is sooner answered and repeated."""
STATEMENT_BYTES = 8192


def require_items(schema: Schema, update: Update) -> None:
    """Raises ValueError unless the update requires that its item exists: a PartiQL UPDATE never creates one."""
    name = schema.partition[0]
    if not _requires(update.condition, Exists((name,))):
        raise ValueError(
            f"the update of {update.key} does not require that its item exists; add Exists(({name!r},)) to its condition"
        )


def _requires(condition: Condition | None, term: Exists) -> bool:
    if isinstance(condition, AllOf):
        return any(_requires(each, term) for each in condition.conditions)
    return condition == term


def statement(table: str, schema: Schema, update: Update) -> str | None:
    """The text of an update on the table of this name; None if it cannot be said so."""
    if update.add or update.discard or not (update.set or update.remove):
        return None
    return _compiled(
        table, schema.key_attributes, tuple(update.set), tuple(update.remove), _needed(update.condition, schema)
    )


def parameters(schema: Schema, update: Update) -> list[Value]:
    """The values of the statement's question marks."""
    found = [*update.set.values(), *schema.wire(update.key).values()]
    if update.condition is not None:
        found += [value for value, _ in operands(update.condition)]
    return found


def _needed(condition: Condition | None, schema: Schema) -> Shape:
    """The shape of the condition, flat at the top, without what UPDATE requires anyway: that the item exists."""
    tree = shape(condition)
    terms = tree[1] if tree and tree[0] is AllOf else (tree,)
    return tuple(term for term in terms if term != (Exists, (schema.partition[0],)))


@lru_cache(maxsize=4096)
def _compiled(
    table: str, key: tuple[str, ...], set_: tuple[str, ...], remove: tuple[str, ...], terms: Shape
) -> str | None:
    changes = [f"SET {_name(name)}=?" for name in set_] + [f"REMOVE {_name(name)}" for name in remove]
    where = [f"{_name(name)}=?" for name in key] + [_condition(term) for term in terms]
    text = f"UPDATE {_name(table)} {' '.join(changes)} WHERE {' AND '.join(where)}"
    return text if len(text.encode("utf-8", "surrogatepass")) <= STATEMENT_BYTES else None


def _condition(tree: Shape) -> str:
    kind, argument = tree
    if kind is AllOf or kind is AnyOf:
        parts = [_condition(each) for each in argument] or _CONSTANT
        return f"({(' AND ' if (kind is AllOf) == bool(argument) else ' OR ').join(parts)})"
    path = _path(argument)
    if kind is NotEqual:  # what is missing is unequal to nothing in PartiQL, where expressions have it unequal to all
        return f"({path} IS MISSING OR {path}<>?)"
    if kind in _COMPARISONS:
        return f"{path}{_COMPARISONS[kind]}?"
    return f"{path} IS NOT MISSING" if kind is Exists else f"{path} IS MISSING"


_COMPARISONS: Mapping[Any, str] = {Equal: "=", Below: "<", Above: ">"}
_CONSTANT = ['"~" IS MISSING', '"~" IS NOT MISSING']
"""Nothing is both, all is either; PartiQL here has no constants."""


def _path(path: Path) -> str:
    return ".".join(map(_name, path))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

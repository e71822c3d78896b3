"""Updates as PartiQL statements: BatchExecuteStatement takes 25 of them in one request, each independent of the others.

Texts are compiled once per shape, like expressions; all values are parameters, in the order SET, key, condition. Only
documented syntax is used: `IS MISSING` for `attribute_not_exists`, and one keyword for each attribute.
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
"""Our own limit: AWS documents none for a batch (DynamoDB Local takes 10 MB), and smaller requests are faster to retry."""
STATEMENT_BYTES = 8192


def require_items(schema: Schema, update: Update) -> None:
    """Raise ValueError if an update does not require that its item exists: a PartiQL UPDATE never creates an item."""
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
    """Return the text of an update on the table of this name; None if PartiQL cannot express it."""
    if update.add or update.discard or not (update.set or update.remove):
        return None
    return _compiled(
        table, schema.key_attributes, tuple(update.set), tuple(update.remove), _needed(update.condition, schema)
    )


def parameters(schema: Schema, update: Update) -> list[Value]:
    """Return the values of a statement's question marks."""
    found = [*update.set.values(), *schema.wire(update.key).values()]
    if update.condition is not None:
        found += [value for value, _ in operands(update.condition)]
    return found


def _needed(condition: Condition | None, schema: Schema) -> Shape:
    """Return the shape of a condition, flat at the top, without the term that the item exists, which UPDATE implies."""
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
    if kind is NotEqual:  # in PartiQL, `<>` is not true of a missing attribute; in expressions it is
        return f"({path} IS MISSING OR {path}<>?)"
    if kind in _COMPARISONS:
        return f"{path}{_COMPARISONS[kind]}?"
    return f"{path} IS NOT MISSING" if kind is Exists else f"{path} IS MISSING"


_COMPARISONS: Mapping[Any, str] = {Equal: "=", Below: "<", Above: ">"}
_CONSTANT = ['"~" IS MISSING', '"~" IS NOT MISSING']
"""Joined with AND they are false, with OR true: DynamoDB's PartiQL has no constants."""


def _path(path: Path) -> str:
    return ".".join(map(_name, path))


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

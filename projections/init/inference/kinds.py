"""The type attribute of a table, whose value is the kind of an item."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from projections.init.inference.rows import Row, attributes_of, grouped, jaccard
from projections.init.inference.words import is_shouting, normal

__all__ = ["set_kinds", "type_attribute"]

_NAMES = (
    *("entitytype", "typename", "entity", "itemtype", "recordtype", "entityname", "modelname", "doctype"),
    *("documenttype", "objecttype", "discriminator", "edbe", "et", "type", "kind", "model", "class", "object"),
)
"""Names of type attributes in lower case without separators, the most probable first. `type` may be a type of product."""

_PRESENT = 0.7
_PURE = 0.8
_LIKE = 0.7
_MOST = 60


def type_attribute(rows: Sequence[Row]) -> str | None:
    """Return the name of the attribute, or None. It has few values, and keys or other attributes depend on it."""
    names = {name for row in rows for name in row.attributes if normal(name) in _NAMES}
    ordered = sorted(names, key=lambda name: (_NAMES.index(normal(name)), name))
    return next((name for name in ordered if _discriminates(rows, name)), None)


def set_kinds(rows: Sequence[Row], attribute: str | None) -> None:
    """Set the kind of each row to the value of its type attribute."""
    for row in rows:
        row.kind = _value(row, attribute) if attribute is not None else None


def _value(row: Row, name: str) -> str | None:
    text = row.item.get(name, {}).get("S")
    return text if text and len(text) <= 64 else None


def _discriminates(rows: Sequence[Row], name: str) -> bool:
    with_it = [row for row in rows if _value(row, name)]
    values = Counter(_value(row, name) for row in with_it)
    if len(with_it) < _PRESENT * len(rows) or not 2 <= len(values) <= min(_MOST, max(2, len(with_it) // 2)):
        return False
    shapes = grouped(with_it, _shape)
    pure = sum(Counter(_value(row, name) for row in same).most_common(1)[0][1] for same in shapes.values())
    if len(shapes) > 1 and pure >= _PURE * len(with_it):
        return True
    by_value = grouped(with_it, lambda row: _value(row, name)).values()
    sets = [attributes_of(same) for same in by_value]
    likeness = [jaccard(one - {name}, other - {name}) for one, other in combinations(sets, 2)]
    return bool(likeness) and sum(likeness) / len(likeness) <= _LIKE


def _shape(row: Row) -> object:
    return row.glue, tuple(text if is_shouting(text) else "" for text in row.parts.values())

"""What DynamoDB charges for one request: write units and read units, of the table and of its indexes.

Source: "Read/write capacity mode" and "Global secondary indexes" in DynamoDB's developer guide; the same as MiniStack and
DynamoDB Local report (tests/tools/test_rehearsal.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from projections.engine.store import Image, Schema
from projections.stores.limits import item_size

__all__ = ["TRANSACTIONAL", "Units", "read_units", "write_units", "written"]

WRITE_UNIT_BYTES = 1024
READ_UNIT_BYTES = 4096

TRANSACTIONAL = 2
"""Each action of a transaction costs as much as so many single writes."""


@dataclass(frozen=True, slots=True)
class Units:
    """Write units of one action: of the table, and of each index that it touches."""

    table: int
    indexes: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.table + sum(self.indexes.values())


def write_units(size: int) -> int:
    """Return the units of a write of an item of `size` bytes: 1 for each KB begun. Deleting an item that does not exist
    costs 1.
    """
    return max(1, -(-size // WRITE_UNIT_BYTES))


def read_units(size: int, *, consistent: bool = True) -> float:
    """Return the units of a read: 1 for each 4 KB begun, half as much if eventually consistent. Reading a missing item costs
    1.
    """
    units = max(1, -(-size // READ_UNIT_BYTES))
    return float(units) if consistent else units / 2


def written(before: Image | None, after: Image | None, schema: Schema) -> Units:
    """Return the cost of replacing `before` with `after`: the units of the larger one, and of every index entry that
    changes. An entry has only what the index projects, so it may be smaller than the item, or stay as it is.
    """
    table = write_units(max(item_size(image) if image is not None else 0 for image in (before, after)))
    indexes = {}
    for index in schema.indexes:
        units = _index(_entry(index, before, schema), _entry(index, after, schema))
        if units:
            indexes[index] = units
    return Units(table, indexes)


@dataclass(frozen=True, slots=True)
class _Entry:
    """An item as an index holds it: its key there, and all that is projected."""

    key: tuple[object, ...]
    image: Image


def _entry(index: str, image: Image | None, schema: Schema) -> _Entry | None:
    """Return the entry of an item in an index; None if the item lacks a key attribute of the index."""
    partition, sort = schema.indexes[index]
    keys = [name for name, _ in (*partition, *sort)]
    if image is None or any(name not in image for name in keys):
        return None
    return _Entry(tuple(str(image[name]) for name in keys), schema.entry(index, image))


def _index(before: _Entry | None, after: _Entry | None) -> int:
    """Return the units of an index entry: an entry that is added or removed costs one write, one whose key changes costs
    both.
    """
    sizes = [write_units(item_size(entry.image)) for entry in (before, after) if entry is not None]
    if before is None or after is None or before.key != after.key:
        return sum(sizes)
    return max(sizes) if before.image != after.image else 0

"""The description of a table and a sample of its items, the input of inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from projections.language.values import Image

__all__ = ["Pairs", "Sample", "Table"]

Pairs = tuple[tuple[str, str], ...]
"""Attributes with their types, as (("PK", "S"),)."""


@dataclass(frozen=True)
class Table:
    """A table as DescribeTable and DescribeTimeToLive return it. `indexes` are (partition, sort); `bytes` and `items` are
    DynamoDB's counts, up to six hours old. `stream` is the view type of its stream, None if that is off. `projected` has
    the indexes that do not return all attributes, with `keys_only` or the attributes that they return besides keys.
    """

    name: str
    key: Pairs
    indexes: Mapping[str, tuple[Pairs, Pairs]] = field(default_factory=dict)
    ttl: str | None = None
    stream: str | None = None
    items: int = 0
    bytes: int = 0
    projected: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    """The indexes that have the partition key of the table."""

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.key)

    @property
    def index_names(self) -> frozenset[str]:
        """Key attributes of indexes that are not keys of the table."""
        return frozenset(
            name for keys in self.indexes.values() for part in keys for name, _ in part if name not in self.key_names
        )


@dataclass(frozen=True)
class Sample:
    """Items in wire form, binary values as base64. `complete`: these are all items of the table."""

    items: Sequence[Image]
    complete: bool = False
    cut: frozenset[str] | None = None
    """In a part of a table: the values of the partition key whose items may not all be in the sample; None if any may."""

    def has_all_of(self, partition: str) -> bool:
        """Return whether all items with this value of the partition key, as text, are in the sample."""
        return self.complete or (self.cut is not None and partition not in self.cut)

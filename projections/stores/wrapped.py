"""The base class of stores that observe or withhold the writes of another store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from projections.engine.store import Image, ItemKey, Page, Schema, Store, Value

__all__ = ["WrappedStore"]


class WrappedStore:
    """Passes reads on to a store. Subclasses define the writes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def schema(self, table: str) -> Schema:
        return self._store.schema(table)

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        return self._store.get(key, attributes)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        return self._store.get_many(keys)

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        return self._store.query(table, values, **options)

    def scan(self, table: str, **options: Any) -> Page:
        return self._store.scan(table, **options)

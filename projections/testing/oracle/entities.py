"""Tables and entities of a canonical document: how an item is recognised, and how the key of a target is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from projections.language.keys import Image, ItemKey, Value
from projections.testing.oracle.patterns import pattern
from projections.testing.oracle.templates import KeyTemplate
from projections.testing.oracle.values import Scope, Unfit, plain, steps, text, wire

__all__ = ["KEY_BYTES", "Entity", "Table"]

KEY_BYTES = {"partition": 2048, "sort": 1024}


class Table:
    """The key attributes of a table and of its indexes."""

    def __init__(self, name: str, document: Mapping[str, Any]) -> None:
        self.name = name
        self.separator: str = document["separator"]
        self.keys: list[tuple[str, str]] = [tuple(pair) for pair in (document["partition"], document["sort"]) if pair]
        self.indexes: list[set[str]] = []
        """The key attributes of each index."""
        self.index_keys: dict[str, tuple[str, int]] = {}
        """Index key attribute → its type and how many bytes it may have."""
        for index in document["indexes"].values():
            self.indexes.append({attribute for part in KEY_BYTES for attribute, _ in index[part]})
            for part, size in KEY_BYTES.items():
                for attribute, kind in index[part]:
                    smaller = min(size, self.index_keys.get(attribute, (kind, size))[1])
                    self.index_keys[attribute] = (kind, smaller)

    def key_of(self, item: Image) -> ItemKey:
        return ItemKey(self.name, *(_text(kind, item[name][kind]) for name, kind in self.keys))

    def attributes(self, key: ItemKey) -> dict[str, Value]:
        """The key attributes of the item with this key."""
        return {name: {kind: str(part)} for (name, kind), part in zip(self.keys, key[1:], strict=False)}


class Entity:
    """A kind of item."""

    def __init__(self, name: str, document: Mapping[str, Any], table: Table) -> None:
        self.name = name
        self.table = table
        self.derived: bool = document["derived"]
        self._key = [KeyTemplate(document["key"][attribute], kind, table.separator) for attribute, kind in table.keys]
        self._fits = pattern(document["match"]) if document["match"] else None
        scalars = {n: v for n, v in (document["match"] or {}).items() if not isinstance(v, dict | list)}
        self.constants: dict[str, Value] = {steps(n)[0]: wire(v) for n, v in scalars.items() if len(steps(n)) == 1}
        """What `match` says outright, and is therefore written on items that rules create."""

    def read(self, key: ItemKey) -> dict[str, Value] | None:
        """The key variables, None if the key is not of this entity."""
        if key.table != self.table.name:
            return None
        variables: dict[str, Value] = {}
        for template, part in zip(self._key, key[1:], strict=False):
            found = template.read(str(part))
            if found is None or any(_differ(variables.get(name), value) for name, value in found.items()):
                return None
            variables.update(found)
        return variables

    def fits(self, item: Image, variables: Mapping[str, Value]) -> bool:
        if self._fits is None:
            return True
        try:
            return self._fits(Scope(item, variables).stored)
        except Unfit:
            return False

    def key(self, need: Callable[[str], Value]) -> ItemKey:
        """The key of the item with these variables. Raises Unfit, and what `need` raises."""
        parts = [template.render(need) for template in self._key]
        for part, most in zip(parts, KEY_BYTES.values(), strict=False):
            if not 0 < len(part.encode()) <= most:
                raise Unfit(f"not the size of a key: {part[:80]!r}")
        return ItemKey(self.table.name, *parts)


def _differ(one: Value | None, other: Value) -> bool:
    """Whether a variable that stands twice in a key has two values. In a numeric and a text attribute the text counts."""
    if one is None or one == other:
        return False
    return "B" in one or "B" in other or text(one) != text(other)


def _text(kind: str, content: str) -> str:
    """A key attribute as text: 1.0 and 1 are one number."""
    return plain(Decimal(content)) if kind == "N" else content

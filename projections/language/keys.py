"""Keys: tables, the schema of their keys, and the key of one item."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from projections.language.values import Image, Value, number_text

__all__ = ["Image", "ItemKey", "Schema", "Value", "decode_key", "encode_key", "escape", "key_text"]


class ItemKey(NamedTuple):
    """The primary key of an item: logical table name, then the text of its partition key and of its sort key.

    Types come from the table's `Schema`: a number's text is in DynamoDB's normal form, a binary's in base64. The sort
    key is None on tables that have none.
    """

    table: str
    partition: str
    sort: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """The key attributes of a table, (name, type) each with type S, N or B, and those of its indexes.

    An index is (partition attributes, sort attributes): usually one and one, up to four each.
    """

    partition: tuple[str, str]
    sort: tuple[str, str] | None = None
    indexes: Mapping[str, tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    ttl: str | None = None

    @property
    def key_attributes(self) -> tuple[str, ...]:
        return (self.partition[0],) if self.sort is None else (self.partition[0], self.sort[0])

    def wire(self, key: ItemKey) -> dict[str, dict[str, Any]]:
        """The key as attributes in wire form."""
        name, kind = self.partition
        attributes = {name: {kind: key.partition}}
        if self.sort is not None:
            name, kind = self.sort
            attributes[name] = {kind: key.sort or ""}
        return attributes

    def key(self, table: str, image: Image) -> ItemKey:
        """The key of an item. Raises KeyError if the image lacks a key attribute or has it in another type."""
        name, kind = self.partition
        partition = key_text(kind, image[name][kind])
        if self.sort is None:
            return ItemKey(table, partition)
        name, kind = self.sort
        return ItemKey(table, partition, key_text(kind, image[name][kind]))


def key_text(kind: str, text: str) -> str:
    """The text of a key value in the form `ItemKey` has it: numbers normalized, so that 1.0 and 1 are one key."""
    return number_text(Decimal(text)) if kind == "N" else text


def encode_key(key: ItemKey) -> str:
    """A key as one text, reversible: `main|USER#1|PROFILE`; `|` and `%` inside the parts are written %7C and %25."""
    table, partition, sort = key
    text = f"{table}|{partition}" if sort is None else f"{table}|{partition}|{sort}"
    if "%" not in text and text.count("|") == (1 if sort is None else 2):  # nearly always
        return text
    return "|".join(escape(part) for part in key if part is not None)


def decode_key(text: str) -> ItemKey:
    """The key that `encode_key` wrote. Raises ValueError if the text is none."""
    table, *parts = (part.replace("%7C", "|").replace("%25", "%") for part in text.split("|"))
    if not 1 <= len(parts) <= 2:
        raise ValueError(f"not an encoded key: {text!r}")
    return ItemKey(table, *parts)


def escape(part: str) -> str:
    """One part of a text whose parts are joined by `|`."""
    if "%" in part or "|" in part:
        return part.replace("%", "%25").replace("|", "%7C")
    return part

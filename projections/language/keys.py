"""Keys: the schema of a table's keys, the key of one item, and checks of key values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from projections.errors import BadInput
from projections.language.values import EXACT, number_text, shown
from projections.language.values import Image as Image
from projections.language.values import Value as Value

PARTITION_KEY_BYTES = 2048
SORT_KEY_BYTES = 1024

_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")


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

    An index is (partition attributes, sort attributes): usually one and one, up to four each. `projected` has the attributes
    that an index lists besides keys; an index that is not in it has all. `local` indexes have the table's partition key.
    """

    partition: tuple[str, str]
    sort: tuple[str, str] | None = None
    indexes: Mapping[str, tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]] = field(default_factory=dict)
    ttl: str | None = None
    projected: Mapping[str, frozenset[str]] = field(default_factory=dict)
    local: frozenset[str] = frozenset()

    def key_names(self, index: str | None) -> tuple[str, ...]:
        """Return the key attributes of the table, and those of an index if one is named."""
        partition, sort = self.indexes[index] if index is not None else ((), ())
        return (*self.key_attributes, *(name for name, _ in (*partition, *sort)))

    def projected_names(self, index: str) -> frozenset[str] | None:
        """Return the attributes of an item that an index returns; None for all."""
        if index not in self.projected:
            return None
        return self.projected[index].union(self.key_names(index))

    def entry(self, index: str, image: Image) -> Image:
        """Return the attributes of an item that an index returns."""
        shown = self.projected_names(index)
        return image if shown is None else {name: value for name, value in image.items() if name in shown}

    @property
    def key_attributes(self) -> tuple[str, ...]:
        return (self.partition[0],) if self.sort is None else (self.partition[0], self.sort[0])

    def wire(self, key: ItemKey) -> dict[str, dict[str, Any]]:
        """Return a key as attributes in wire form."""
        name, kind = self.partition
        attributes = {name: {kind: key.partition}}
        if self.sort is not None:
            name, kind = self.sort
            attributes[name] = {kind: key.sort or ""}
        return attributes

    def key(self, table: str, image: Image) -> ItemKey:
        """Return the key of an item. Raises KeyError if the image lacks a key attribute or has it in another type."""
        name, kind = self.partition
        partition = image[name][kind]
        if kind == "N":
            partition = key_text(kind, partition)
        if self.sort is None:
            return ItemKey(table, partition)
        name, kind = self.sort
        sort = image[name][kind]
        return ItemKey(table, partition, key_text(kind, sort) if kind == "N" else sort)


def key_text(kind: str, text: str) -> str:
    """Return the text of a key value for `ItemKey`: numbers normalized, so that 1.0 and 1 are one key."""
    return number_text(Decimal(text)) if kind == "N" else text


def encode_key(key: ItemKey) -> str:
    """Return a key as one text, reversible: `main|USER#1|PROFILE`; `|` and `%` inside the parts are written %7C and %25."""
    table, partition, sort = key
    text = f"{table}|{partition}" if sort is None else f"{table}|{partition}|{sort}"
    if "%" not in text and text.count("|") == (1 if sort is None else 2):
        return text
    return "|".join([escape(part) for part in key if part is not None])


def decode_key(text: str) -> ItemKey:
    """Return the key that `encode_key` encoded. Raises ValueError for any other text."""
    parts = text.split("|")
    if not 2 <= len(parts) <= 3:
        raise ValueError(f"not an encoded key: {text!r}")
    return ItemKey(*(map(unescape, parts) if "%" in text else parts))


def escape(part: str) -> str:
    """Return one part of a text whose parts are joined by `|`."""
    if "%" in part or "|" in part:
        return part.replace("%", "%25").replace("|", "%7C")
    return part


def unescape(part: str) -> str:
    """Return the part that `escape` was given."""
    return part.replace("%7C", "|").replace("%25", "%") if "%" in part else part


def check_key(name: str, kind: str, text: str, most: int) -> str:
    """Return the text as a value of a key attribute. Raises BadInput if DynamoDB would reject it, or round it."""
    if kind == "N":
        if not _NUMBER.fullmatch(text):
            raise BadInput(f'key attribute "{name}" needs a number; it would be {shown({"S": text})}')
        try:
            return number_text(EXACT.create_decimal(text))
        except ArithmeticError:
            raise BadInput(
                f'key attribute "{name}": {shown({"S": text})} does not fit a DynamoDB number (38 significant digits and '
                f"magnitudes from 1E-130 to 9.99E+125)"
            ) from None
    if not text:
        raise BadInput(
            f'key attribute "{name}" would be empty, which DynamoDB rejects; exclude such items with a `where`'
        )
    if len(text) * 4 > most and (size := len(text.encode())) > most:
        raise BadInput(
            f'key attribute "{name}" would have {size} bytes, the limit is {most}; shorten it with truncate(n)'
        )
    return text


def check_target_key(name: str, kind: str, text: str, most: int) -> str:
    """Return the text as `check_key` does, for a key attribute of a target, of which a number has only one text.

    Two texts of one number, such as 7 and 07, would be two targets in the ledger and one item in the table. Raises BadInput.
    """
    normal = check_key(name, kind, text, most)
    if normal != text:
        raise BadInput(
            f'key attribute "{name}" is a number: {shown({"S": text})} is not in the form that DynamoDB returns, '
            f"{normal[:40]}; store it in that form or as a number"
        )
    return normal


RANGE = "|%="
"""In the name of a group of a `rank` rule, between the key of a board and a range of scores: see `language.ranks`.

No encoded key has it: there a `%` comes before 25 or 7C.
"""


def is_range(target: str) -> bool:
    """Return whether a target is a group of a `rank` rule, and not the key of an item."""
    return RANGE in target

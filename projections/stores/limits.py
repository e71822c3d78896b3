"""DynamoDB's limits of sizes, numbers, keys and operands, and what it charges for one request.

The limits are as measured on AWS's own engine (DynamoDB Local). The store in memory uses them, so that a test in memory
fails where AWS would. Valid values are returned in the form in which DynamoDB stores them: numbers normalized, sets
sorted, nothing shared with the caller. Equal short values are one object, because a value takes more memory than its
text. So nothing changes a value of a stored item in place.

Charges are write units and read units, of the table and of its indexes. Source: "Read/write capacity mode" and "Global
secondary indexes" in DynamoDB's developer guide; the same as MiniStack and DynamoDB Local report
(tests/tools/test_rehearsal.py).
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any, NamedTuple

from projections.engine.store import Condition, Image, ItemKey, Schema, Update, Value, Write
from projections.errors import InvalidRequest
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES
from projections.language.values import attribute_size, item_size, number_text, size
from projections.stores.condition_expressions import ORDERED, express, operands, paths

ITEM_BYTES = 400 * 1024
PAGE_BYTES = 1024 * 1024
TRANSACTION_ACTIONS = 100
TRANSACTION_BYTES = 4 * 1024 * 1024
EXPRESSION_BYTES = 4096
OPERATORS = 300
LEVELS = 32
NAME_BYTES = 65_535
DIGITS = 38

HALF = "a text has an unpaired surrogate, which UTF-8 cannot express"

_EXACT = Context(prec=400)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_SETS = {"SS", "NS", "BS"}
_SHORT = 16
_MOST_SHARED = 4096
_ADDABLE = _SETS | {"N"}


class ActionRefused(InvalidRequest):
    """The reason of one action in a transaction. Other errors are those of the whole request."""


# Values

_TEXTS: dict[str, dict[str, Any]] = {}
_NUMBERS: dict[str, dict[str, Any]] = {}


def _text_value(text: str) -> dict[str, Any]:
    """Return a string as a value."""
    if len(text) > _SHORT:
        return {"S": text}
    shared = _TEXTS.get(text)
    return _share(_TEXTS, text, {"S": text}) if shared is None else shared


def _number_value(text: str) -> dict[str, Any]:
    """Return a number in normal form as a value. Raises InvalidRequest."""
    if len(text) > _SHORT:
        return {"N": checked_number(text)}
    shared = _NUMBERS.get(text)
    return _share(_NUMBERS, text, {"N": checked_number(text)}) if shared is None else shared


def _share(values: dict[str, dict[str, Any]], text: str, value: dict[str, Any]) -> dict[str, Any]:
    """Return a value, and keep it for the next that has the same text."""
    if len(values) == _MOST_SHARED:
        values.clear()
    values[text] = value
    return value


def checked_value(value: Value, level: int = 1) -> dict[str, Any]:
    """Return a copy of a value as DynamoDB stores it. Raises InvalidRequest for invalid values.

    A list or map at the last level is refused even if it is empty. In conditions, levels are counted from 0.
    """
    if len(value) != 1:
        raise InvalidRequest(f"an attribute value has exactly one type, not {list(value)}")
    if "S" in value:  # first, because most values are strings
        return _text_value(value["S"])
    ((kind, content),) = value.items()
    match kind:
        case "BOOL":
            return {kind: content}
        case "N":
            return _number_value(content)
        case "M" | "L" if level >= LEVELS:
            raise InvalidRequest("Nesting Levels have exceeded supported limits")
        case "M":
            return {kind: {checked_name(name): checked_value(each, level + 1) for name, each in content.items()}}
        case "L":
            return {kind: [checked_value(each, level + 1) for each in content]}
        case "NS":
            return {kind: sorted(_distinct([checked_number(text) for text in content]), key=Decimal)}
        case "SS":
            return {kind: sorted(_distinct(content))}
        case "BS":
            return {kind: sorted(_distinct([_binary(text) for text in content]))}
        case "B":
            return {kind: _binary(content)}
        case "NULL":
            if content is not True:
                raise InvalidRequest("Null attribute value types must have the value of true")
            return {kind: True}
    raise InvalidRequest(f"{kind!r} is not a type of attribute values")


def checked_name(name: str) -> str:
    """Return the name of an attribute or of an element of a map. Raises InvalidRequest if DynamoDB refuses it."""
    if not name or (len(name) * 4 > NAME_BYTES and len(name.encode()) > NAME_BYTES):
        raise InvalidRequest(f"a name must have 1 to {NAME_BYTES:,} bytes, this one has {len(name.encode()):,}")
    return name


def _binary(text: str) -> str:
    try:
        if b64encode(b64decode(text)).decode() == text:
            return text
    except ValueError:
        pass
    raise InvalidRequest(f"binary must be base64: {text[:40]!r}")


def _distinct(elements: list[str]) -> list[str]:
    if not elements:
        raise InvalidRequest("a set may not be empty")
    if len(set(elements)) < len(elements):
        raise InvalidRequest(f"Input collection {elements} contains duplicates")
    return elements


def checked_number(text: str) -> str:
    """Return a number in normal form. Raises InvalidRequest beyond 38 digits or a magnitude from 1E-130 to 9.99…E+125."""
    if len(text) <= DIGITS and text.isdecimal() and text.isascii() and (text[0] != "0" or text == "0"):
        return text
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"A value provided cannot be converted into a number: {text!r}")
    return _normal_text(Decimal(text))


def _normal_text(number: Decimal) -> str:
    if not number:
        return "0"
    if number.adjusted() > 125:
        raise InvalidRequest("Number overflow. Attempting to store a number with magnitude larger than supported range")
    if number.adjusted() < -130:
        raise InvalidRequest(
            "Number underflow. Attempting to store a number with magnitude smaller than supported range"
        )
    text = number_text(number)
    if len(text) > DIGITS and len(text.lstrip("-").replace(".", "").strip("0")) > DIGITS:
        raise InvalidRequest("DynamoDB only supports precision up to 38 digits")
    return text


def add(before: Value | None, operand: Value) -> Value:
    """Return the result of ADD with a checked operand: a sum, never rounded, or a union."""
    ((kind, content),) = operand.items()
    if before is None:
        return operand
    if kind not in before:
        raise InvalidRequest("An operand in the update expression has an incorrect data type")
    if kind == "N":
        return _number_value(_normal_text(_EXACT.add(Decimal(before["N"]), Decimal(content))))
    return _set(kind, {*before[kind], *content})


def discard(before: Value | None, operand: Value) -> Value | None:
    """Return what remains of a set after DELETE of a checked operand; None if it is empty."""
    ((kind, content),) = operand.items()
    if before is None:
        return None
    if kind not in before:
        raise InvalidRequest("An operand in the update expression has an incorrect data type")
    remaining = set(before[kind]).difference(content)
    return _set(kind, remaining) if remaining else None


def _set(kind: str, elements: Collection[str]) -> Value:
    return {kind: sorted(elements, key=Decimal) if kind == "NS" else sorted(elements)}


# Keys


def checked_key(schema: Schema, key: ItemKey) -> ItemKey:
    """Return a key in normal form. Raises InvalidRequest if a part is empty, too long or not a number."""
    partition = _key_part(*schema.partition, key.partition, PARTITION_KEY_BYTES)
    sort = None if schema.sort is None else _key_part(*schema.sort, key.sort or "", SORT_KEY_BYTES)
    return key if partition is key.partition and sort is key.sort else ItemKey(key.table, partition, sort)


def _key_part(name: str, kind: str, text: str, most: int) -> str:
    if kind == "N":
        number = checked_number(text)
        return text if number == text else number
    if kind == "B":
        _binary(text)
    if not text:
        raise InvalidRequest(
            f"The AttributeValue for a key attribute cannot contain an empty string value. Key: {name}"
        )
    if len(text) * 4 > most and size({kind: text}) > most:
        raise ActionRefused(f"the key attribute {name} has {size({kind: text})} bytes, at most {most} are allowed")
    return text


def key_image(schema: Schema, key: ItemKey) -> dict[str, Value]:
    """Return a key in normal form as the first attributes of a stored item."""
    name, kind = schema.partition
    image: dict[str, Value] = {name: _key_value(kind, key.partition)}
    if schema.sort is not None:
        name, kind = schema.sort
        image[name] = _key_value(kind, key.sort or "")
    return image


def _key_value(kind: str, text: str) -> Value:
    return _text_value(text) if kind == "S" else checked_value({kind: text})


def key_sizes(schema: Schema) -> tuple[tuple[str, str, int], ...]:
    """Return the key attributes of indexes that are not in the table's key, with their types and maximum sizes."""
    sizes: dict[str, tuple[str, str, int]] = {}
    for partition, sort in schema.indexes.values():
        for attributes, most in ((partition, PARTITION_KEY_BYTES), (sort, SORT_KEY_BYTES)):
            for name, kind in attributes:
                if name not in schema.key_attributes:
                    sizes[name] = (name, kind, min(most, sizes.get(name, (name, kind, most))[2]))
    return tuple(sizes.values())


# Writes


class Checked(NamedTuple):
    """A valid write: its key in normal form, its operands as they are stored, and their size in bytes."""

    key: ItemKey
    operands: dict[str, Value]
    bytes: int


def check_write(schema: Schema, write: Write) -> Checked:
    """Return a checked write. Raises InvalidRequest for what DynamoDB refuses before it reads an item."""
    try:
        if write.condition is not None:
            _check_condition(write.condition)
        values: dict[str, Value] = {}
        total = _check_update(write, values) if isinstance(write, Update) else 0
        return Checked(checked_key(schema, write.key), values, total)
    except UnicodeEncodeError:
        raise InvalidRequest(HALF) from None


def _check_condition(condition: Condition) -> None:
    for value, ordered in operands(condition):
        if ordered and not value.keys() <= ORDERED:
            raise InvalidRequest(f"Incorrect operand type for operator or function; operand type: {list(value)}")
        checked_value(value, 0)
    for path in paths(condition):
        for name in path:
            checked_name(name)


def _check_update(update: Update, values: dict[str, Value]) -> int:
    names = (*update.set, *update.remove, *update.add, *update.discard)
    for name in names:
        checked_name(name)
    if len(set(names)) < len(names):
        raise InvalidRequest(f"Two document paths overlap with each other: {sorted(names)}")
    total = 0
    for operands_, kinds in ((update.set, None), (update.add, _ADDABLE), (update.discard, _SETS)):
        for name, operand in operands_.items():
            value = values[name] = checked_value(operand, 0)  # the last level is refused when it is stored
            if kinds is not None and not value.keys() <= kinds:
                raise InvalidRequest(f"Incorrect operand type for operator or function; operand type: {list(value)}")
            bytes_ = attribute_size(name, value)
            if bytes_ > ITEM_BYTES:
                raise InvalidRequest("Item size to update has exceeded the maximum allowed size")
            total += bytes_
    if len(names) > 100 or update.condition is not None:
        _check_texts(update)
    return total


def _check_texts(write: Update) -> None:
    texts, _ = express(write, write.condition)
    if max(len(texts.update), len(texts.condition)) > EXPRESSION_BYTES:
        raise InvalidRequest("Expression size has exceeded the maximum allowed size")
    if texts.operators > OPERATORS:
        raise InvalidRequest(f"The expression contains too many operators; operator count: {texts.operators}")


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
    """Return the units of a write of an item of `size` bytes: 1 for each KB begun, and 1 if there is no item to delete."""
    return max(1, -(-size // WRITE_UNIT_BYTES))


def read_units(size: int, *, consistent: bool = True) -> float:
    """Return the units of a read: 1 for each 4 KB begun, and for a missing item; half as much if eventually consistent."""
    units = max(1, -(-size // READ_UNIT_BYTES))
    return float(units) if consistent else units / 2


def cost_of(before: Image | None, after: Image | None, schema: Schema) -> Units:
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


class _Entry(NamedTuple):
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
    """Return the units of an index entry: to add or remove it costs one write, to change its key both."""
    sizes = [write_units(item_size(entry.image)) for entry in (before, after) if entry is not None]
    if before is None or after is None or before.key != after.key:
        return sum(sizes)
    return max(sizes) if before.image != after.image else 0

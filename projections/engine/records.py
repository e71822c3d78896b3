"""Stream records: from Lambda's event to what the engine works on."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from projections.errors import BadInput
from projections.language.keys import Image, ItemKey, Schema

__all__ = ["Record", "decode", "is_value", "stream_label", "unsound", "version_of"]


@dataclass(frozen=True, slots=True)
class Record:
    """One change of one item. `old` is None for an insertion, `new` for a removal; `expired` is a removal by TTL."""

    key: ItemKey
    old: Image | None
    new: Image | None
    version: str
    sequence: str
    expired: bool = False

    @property
    def event(self) -> str:
        return "INSERT" if self.old is None else "REMOVE" if self.new is None else "MODIFY"


def stream_label(arn: str) -> str:
    """The label at the end of a stream's ARN: its creation time, empty if the ARN has none."""
    return arn.rpartition("/stream/")[2] if "/stream/" in arn else ""


def version_of(label: str, sequence: str) -> str:
    """The version of an item that a record brings: text that sorts as (stream label, sequence number) does.

    Sequence numbers are decimal strings of varying length (21 to 40 digits), so they are padded; a stream that is
    switched on again starts its numbers anew, so its label (a time) comes first.
    """
    return f"{label}/{sequence:0>40}"


def decode(
    record: Any, tables: Mapping[str, str], schemas: Mapping[str, Schema], labels: Mapping[str, str] | None = None
) -> Record:
    """Reads one record of an event.

    `tables` maps table names in stream ARNs to logical names. `labels` gives the stream's label by logical table name
    where it is known for certain; otherwise it comes from the record. Raises BadInput, with what is wrong and what to do.
    """
    if not isinstance(record, dict) or not isinstance(record.get("dynamodb"), dict):
        raise BadInput('not a DynamoDB stream record: it has no "dynamodb" part')
    change = record["dynamodb"]
    sequence = change.get("SequenceNumber")
    if not isinstance(sequence, str) or not sequence.isascii() or not sequence.isdigit() or len(sequence) > 40:
        raise BadInput('not a DynamoDB stream record: "SequenceNumber" is no text of up to 40 digits')
    arn = record.get("eventSourceARN")
    if not isinstance(arn, str) or ":table/" not in arn:
        raise BadInput('not a DynamoDB stream record: "eventSourceARN" names no table')
    physical = arn.partition(":table/")[2].partition("/")[0]
    table = tables.get(physical)
    if table is None:
        known = ", ".join(sorted(tables))
        raise BadInput(f'the record is of table "{physical}", the rules are deployed for {known}; check TABLE_NAME')
    event = record.get("eventName")
    old, new = _image(change, "OldImage"), _image(change, "NewImage")
    needed = {"INSERT": (new,), "MODIFY": (old, new), "REMOVE": (old,)}.get(event if isinstance(event, str) else "")
    if needed is None:
        raise BadInput(f"unknown eventName {str(event)[:40]!r}: a stream record is INSERT, MODIFY or REMOVE")
    if None in needed:
        raise BadInput(
            f"a {event} record lacks the images it needs; set the stream's view type to NEW_AND_OLD_IMAGES "
            f"(it is {str(change.get('StreamViewType', 'not said'))[:40]})"
        )
    if event == "INSERT":
        old = None
    elif event == "REMOVE":
        new = None
    keys: Any = change.get("Keys") or new or old
    try:
        key = schemas[table].key(table, keys)
    except (KeyError, ValueError, ArithmeticError, TypeError, AttributeError):
        expected = " and ".join(
            f"{n} ({t})" for n, t in (schemas[table].partition, schemas[table].sort or ("", "")) if n
        )
        raise BadInput(f'the record\'s key is not that of table "{table}" in the rules, which is {expected}') from None
    identity = record.get("userIdentity")
    expired = (
        event == "REMOVE"
        and isinstance(identity, dict)
        and identity.get("type") == "Service"
        and identity.get("principalId") == "dynamodb.amazonaws.com"
    )
    label = (labels or {}).get(table) or stream_label(arn)
    return Record(key, old, new, version_of(label, sequence), sequence, expired)


_TYPES: Mapping[str, type] = {
    "S": str,
    "N": str,
    "B": str,
    "BOOL": bool,
    "NULL": bool,
    "SS": list,
    "NS": list,
    "BS": list,
    "L": list,
    "M": dict,
}


def _image(change: Mapping[str, Any], name: str) -> Image | None:
    image = change.get(name)
    if image is None:
        return None
    if not isinstance(image, dict):
        raise BadInput(f'"{name}" is no map of attributes')
    for attribute, value in image.items():
        if type(value) is dict and len(value) == 1:
            ((kind, content),) = value.items()
            expected = _TYPES.get(kind)
            if expected is not None and isinstance(content, expected):
                continue
        raise BadInput(f'"{name}": attribute "{attribute[:60]}" is not in DynamoDB\'s form, as {{"S": "text"}}')
    return image


def unsound(record: Record) -> str | None:
    """What is wrong with the values of a record, to their last element; None if DynamoDB could have sent them."""
    for image in (record.old, record.new):
        for name, value in (image or {}).items():
            if not is_value(value):
                return f'attribute "{name[:60]}" holds a value that is not in DynamoDB\'s form'
    return None


def is_value(value: Any) -> bool:
    """Whether this is an attribute value in DynamoDB's form, to its last element."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return isinstance(content, str)
        case "N":
            return _is_number(content)
        case "B":
            return _is_binary(content)
        case "BOOL":
            return isinstance(content, bool)
        case "NULL":
            return content is True
        case "M":
            return isinstance(content, dict) and all(map(is_value, content.values()))
        case "L":
            return isinstance(content, list) and all(map(is_value, content))
        case "SS" | "NS" | "BS":
            return isinstance(content, list) and bool(content) and all(is_value({kind[0]: inner}) for inner in content)
    return False


def _is_number(text: Any) -> bool:
    try:
        return isinstance(text, str) and Decimal(text).is_finite()
    except InvalidOperation:
        return False


def _is_binary(text: Any) -> bool:
    try:
        return isinstance(text, str) and b64decode(text, validate=True) is not None
    except ValueError:
        return False

"""Stream records: from Lambda's event to what the engine works on."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple, TypeGuard

from projections.engine.rejections import Rejected, internal
from projections.errors import BadInput
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES, Image, ItemKey, Schema, encode_key

WHOLE_BATCH = ""
"""In place of a sequence number: the whole batch failed. No record has it, so Lambda delivers all of them again."""

LATEST = 253_402_300_800
"""The time that records' times are before, in seconds since 1970: the year 10000, which Python's dates do not reach."""

_DEEPEST = 40
"""Levels of nesting. DynamoDB takes 32."""


class Record(NamedTuple):
    """One change of one item. `old` is None for an insertion, `new` for a removal; `expired` is a removal by TTL."""

    key: ItemKey
    old: Image | None
    new: Image | None
    version: str
    sequence: str
    expired: bool = False
    at: float | None = None
    """When the change was made, in seconds since 1970. DynamoDB gives whole seconds."""

    @property
    def label(self) -> str:
        """The label of the stream."""
        return self.version.rpartition("/")[0]

    @property
    def event(self) -> str:
        return "INSERT" if self.old is None else "REMOVE" if self.new is None else "MODIFY"


def stream_label(arn: str) -> str:
    """The label at the end of a stream's ARN: its creation time, empty if the ARN has none."""
    return arn.rpartition("/stream/")[2] if "/stream/" in arn else ""


def version_of(label: str, sequence: str) -> str:
    """Return the version that a record gives an item: text that sorts as (stream label, sequence number) does.

    Sequence numbers are decimal strings of varying length (21 to 40 digits), so they are padded; a stream that is
    enabled again restarts its numbers, so its label (a time) comes first.
    """
    return f"{label}/{sequence:0>40}"


class Content(NamedTuple):
    """What a record states: everything but its table."""

    event: str
    sequence: str
    old: Image | None
    new: Image | None


def content_of(record: Any) -> Content:
    """Return the content of a record. Raises BadInput, with what is wrong and what to do.

    An absent image may also be written as null or {}: no item is empty.
    """
    if not isinstance(record, dict) or not isinstance(record.get("dynamodb"), dict):
        raise BadInput('not a DynamoDB stream record: it has no "dynamodb" part')
    if record.get("eventSource", "aws:dynamodb") != "aws:dynamodb":
        raise BadInput(
            f'"eventSource" is {str(record["eventSource"])[:40]!r}: the record is not from a DynamoDB stream'
        )
    change = record["dynamodb"]
    sequence = change.get("SequenceNumber")
    if not is_sequence(sequence):
        raise BadInput('not a DynamoDB stream record: "SequenceNumber" must be a string of at most 40 digits')
    event = record.get("eventName")
    if event not in ("INSERT", "MODIFY", "REMOVE"):
        raise BadInput(f"unknown eventName {str(event)[:40]!r}: a stream record is INSERT, MODIFY or REMOVE")
    old, new = _image(change, "OldImage"), _image(change, "NewImage")
    lacks = "OldImage" if old is None and event != "INSERT" else "NewImage" if new is None and event != "REMOVE" else ""
    if lacks and change.get("StreamViewType") == "NEW_AND_OLD_IMAGES":
        raise BadInput(
            f"{event} without {lacks}, although its view type is NEW_AND_OLD_IMAGES: the record is not as DynamoDB wrote "
            "it; correct what copies or makes it"
        )
    if lacks:
        raise BadInput(
            f"{event} without {lacks}; set the stream's view type to NEW_AND_OLD_IMAGES "
            f"(it is {str(change.get('StreamViewType', 'not given'))[:40]})"
        )
    return Content(event, sequence, None if event == "INSERT" else old, None if event == "REMOVE" else new)


def decode(record: Any, tables: Mapping[str, str], schemas: Mapping[str, Schema], fixed_label: str = "") -> Record:
    """Return one record of an event.

    `tables` maps table names in stream ARNs to logical names. The stream's label is the one in the record's ARN, or
    `fixed_label`, for emulators whose ARN is not stable. Raises BadInput, with what is wrong and what to do, and the item if
    the record names it.
    """
    try:
        event, sequence, old, new = content_of(record)
        table, label = _table(record, tables)
        key = _key(record["dynamodb"], schemas[table], table, old, new)
    except BadInput as reason:
        reason.key = _named_key(record, tables, schemas)
        raise
    expired = event == "REMOVE" and is_expiry(record)
    version = version_of(fixed_label or label, sequence)
    return Record(key, old, new, version, sequence, expired, time_of(record["dynamodb"]))


def is_expiry(record: Mapping[str, Any]) -> bool:
    """Return whether DynamoDB's TTL made the change of a record."""
    identity = record.get("userIdentity")
    return (
        isinstance(identity, dict)
        and identity.get("type") == "Service"
        and identity.get("principalId") == "dynamodb.amazonaws.com"
    )


def _table(record: Mapping[str, Any], tables: Mapping[str, str]) -> tuple[str, str]:
    """Return the logical name of a record's table, and the label of its stream."""
    arn = record.get("eventSourceARN")
    if not isinstance(arn, str) or ":table/" not in arn:
        raise BadInput('not a DynamoDB stream record: "eventSourceARN" does not name a table')
    physical, label = _table_and_label(arn)
    table = tables.get(physical)
    if table is None:
        known = ", ".join(sorted(tables))
        raise BadInput(
            f'the record is of table "{physical[:60]}", the rules are deployed for {known}; check TABLE_NAME'
        )
    return table, label


def _named_key(record: Any, tables: Mapping[str, str], schemas: Mapping[str, Schema]) -> str | None:
    """Return the encoded key in the `Keys` of an unusable record, if it has one."""
    try:
        table, _ = _table(record, tables)
        keys = record["dynamodb"]["Keys"]
        return encode_key(_key({"Keys": keys}, schemas[table], table, keys)) if is_value({"M": keys}) else None
    except (BadInput, KeyError, TypeError, AttributeError):
        return None


def time_of(change: Mapping[str, Any]) -> float | None:
    """Return when a change was made; None if the record does not show it."""
    at = change.get("ApproximateCreationDateTime")
    if isinstance(at, int | float) and not isinstance(at, bool) and abs(at) < LATEST:
        return float(at)
    return None


class Decoded(NamedTuple):
    """The records of a batch, per item in the order of their versions, and those that cannot be read."""

    records: Sequence[Record]
    rejected: Sequence[Rejected] = ()


def decode_all(records: Iterable[Any], decode_one: Callable[[Any], Record]) -> Decoded:
    """Decode the records of an event. Raises what iterating over them raises."""
    decoded: list[Record] = []
    rejected: list[Rejected] = []
    for record in records:
        try:
            decoded.append(decode_one(record))
        except BadInput as reason:
            rejected.append(Rejected(None, str(reason), reason.key, sequence_of(record)))
        except Exception as error:
            rejected.append(internal(error, None, sequence_of(record)))
    return Decoded(in_order(decoded), rejected)


def in_order(records: Sequence[Record]) -> Sequence[Record]:
    """Return records so that no item's change comes before an older one of it, each once. A shard delivers them so."""
    newest: dict[ItemKey, str] = {}
    for record in records:
        if record.version <= newest.get(record.key, ""):
            break
        newest[record.key] = record.version
    else:
        return records
    return list({(each.key, each.version): each for each in sorted(records, key=lambda each: each.version)}.values())


def sequence_of(record: Any) -> str | None:
    """Return the sequence number of a record as Lambda passes it, None if it has none."""
    change = record.get("dynamodb") if isinstance(record, Mapping) else None
    sequence = change.get("SequenceNumber") if isinstance(change, Mapping) else None
    return sequence if is_sequence(sequence) else None


def is_sequence(text: Any) -> TypeGuard[str]:
    """Return whether this is a sequence number."""
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 40


@lru_cache(maxsize=64)
def _table_and_label(arn: str) -> tuple[str, str]:
    """Return the table that a stream's ARN names, and the stream's label."""
    return arn.partition(":table/")[2].partition("/")[0], stream_label(arn)


def _key(change: Mapping[str, Any], schema: Schema, table: str, *images: Image | None) -> ItemKey:
    """Return the key of the item. The images must have the same key, so that its values are checked as theirs are."""
    held = [image for image in images if image is not None]
    keys: Any = change.get("Keys") or held[-1]
    try:
        for name in schema.key_attributes:
            for image in held:
                if name not in image and name in keys:
                    raise BadInput(
                        f'an image without the key attribute "{name}": images have all attributes of the item'
                    )
                if image[name] != keys[name]:
                    raise BadInput(f'"{name}" differs between the record\'s images and its "Keys"')
        key = schema.key(table, keys)
    except (KeyError, ValueError, ArithmeticError, TypeError, AttributeError):
        expected = " and ".join(f"{n} ({kind})" for n, kind in (schema.partition, schema.sort or ("", "")) if n)
        raise BadInput(f'the record\'s key is not that of table "{table}" in the rules, which is {expected}') from None
    for text, most in zip(key[1:], (PARTITION_KEY_BYTES, SORT_KEY_BYTES), strict=True):
        if text is not None and not (0 < len(text) * 4 <= most or 0 < len(text.encode()) <= most):
            raise BadInput(f"a part of the record's key is empty or longer than the {most} bytes that DynamoDB allows")
    return key


def _image(change: Mapping[str, Any], name: str) -> Image | None:
    image = change.get(name)
    if image is None or image == {}:
        return None
    if not isinstance(image, dict):
        raise BadInput(f'"{name}" is not a map of attributes')
    for attribute, value in image.items():
        if type(value) is dict and len(value) == 1 and attribute.isascii():
            text = value.get("S")  # most values are strings
            if type(text) is str and text.isascii():
                continue
        if not is_value(value) or not _is_text(attribute):
            raise BadInput(
                f'"{name}": attribute "{attribute[:60]}" is not in DynamoDB\'s form, such as {{"S": "text"}}'
            )
    return image


def is_value(value: Any, level: int = 1) -> bool:
    """Return whether this is an attribute value in DynamoDB's form, with all its elements.

    Each value is checked: a number of a billion digits, or an unpaired surrogate, would otherwise fail in the first code
    that uses it, and not always with an error.
    """
    if type(value) is not dict or len(value) != 1:
        return False
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return _is_text(content)
        case "N":
            return _is_number(content)
        case "B":
            return _is_binary(content)
        case "BOOL":
            return isinstance(content, bool)
        case "NULL":
            return content is True
        case "M":
            return (
                level < _DEEPEST
                and isinstance(content, dict)
                and all(_is_text(name) and is_value(each, level + 1) for name, each in content.items())
            )
        case "L":
            return level < _DEEPEST and isinstance(content, list) and all(is_value(each, level + 1) for each in content)
        case "SS" | "NS" | "BS":
            return isinstance(content, list) and bool(content) and all(is_value({kind[0]: each}) for each in content)
    return False


def _is_text(text: Any) -> bool:
    if not isinstance(text, str):
        return False
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:  # an unpaired surrogate
        return False
    return True


def _is_number(text: Any) -> bool:
    """Return whether DynamoDB can hold the number: at most 38 digits, with a magnitude from 1E-130 to 9.99…E+125."""
    if not isinstance(text, str) or not text.isascii() or len(text) > 300:
        return False
    if len(text) <= 38 and text.isdecimal():
        return True
    try:
        number = Decimal(text)
    except InvalidOperation:
        return False
    if not number.is_finite() or text != text.strip() or "_" in text:
        return False
    digits = "".join(map(str, number.as_tuple().digits)).strip("0")
    return not digits or (len(digits) <= 38 and -130 <= number.adjusted() <= 125)


def _is_binary(text: Any) -> bool:
    try:
        return isinstance(text, str) and b64decode(text, validate=True) is not None
    except ValueError:
        return False

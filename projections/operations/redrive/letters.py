"""Letters: what was given up, in any of its forms, and the items it is about. No image in it is ever written anywhere.

Of what Lambda discarded, expiries are believed, and what an item that is gone contributed last, because no item tells of
that any more. So rules that keep what has expired count it as the record has it, if the ledger says that nobody has.

- A message of the quarantine (`operations.quarantine`): one item, the rule that could not use it, and why.
- What Lambda gives an on-failure destination. To a bucket it sends the records; to a queue or topic only where they were
  in a stream that forgets them after 24 hours, which names no item.
- Stream records, as in an event.
- A task of the queue of tasks, which ended among its dead letters.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, TypeGuard

from projections.engine.goals import DiscardedRecord
from projections.engine.records import is_sequence, is_value, stream_label, version_of
from projections.engine.store import Image, ItemKey
from projections.errors import BadInput
from projections.language.keys import Schema, decode_key
from projections.operations import tasks
from projections.operations.quarantine import complaint
from projections.operations.tasks import Task

__all__ = ["Letter", "Reader"]

_LIMITS = (2048, 1024)
"""Bytes of a partition key and of a sort key."""

_TTL = "dynamodb.amazonaws.com"


@dataclass(frozen=True, slots=True)
class Letter:
    """Something that was given up. `place` says where it lies, `reason` what was said of it then.

    `items` has the images that the records of each item bore; `newest` the order of its newest record, and whether that
    tells of a removal that was no expiry; `told` the records of each item that Lambda discarded. `useless` says why nothing
    can be done with it, and what to do instead.
    """

    place: str
    items: Mapping[ItemKey, Sequence[Image]] = field(default_factory=dict)
    newest: Mapping[ItemKey, tuple[tuple[int, str], bool]] = field(default_factory=dict)
    told: Mapping[ItemKey, Sequence[DiscardedRecord]] = field(default_factory=dict)
    task: Task | None = None
    reason: str = ""
    useless: str | None = None


class Reader:
    """Reads letters about the tables of one program. `names` are the real names of tables by their logical ones.

    `label` is the label of all streams, for emulators whose ARN is not stable.
    """

    def __init__(self, schemas: Mapping[str, Schema], names: Mapping[str, str], *, label: str = "") -> None:
        self._schemas = schemas
        self._label = label
        self._logical = {names[logical]: logical for logical in schemas}

    def text(self, text: str | bytes, place: str) -> Letter:
        """What a message or an object holds."""
        try:
            return self.value(json.loads(text), place)
        except (ValueError, RecursionError):
            return Letter(
                place, useless="it is no JSON, so nothing of ours wrote it. Look at it, and delete it by hand"
            )

    def value(self, value: Any, place: str) -> Letter:
        """The same, decoded."""
        try:
            return self._read(value, place)
        except BadInput as reason:
            said = value.get("reason") if isinstance(value, dict) else None
            return Letter(place, reason=str(said or ""), useless=str(reason))

    def _read(self, value: Any, place: str) -> Letter:
        if isinstance(value, list):
            return self._records(value, place)
        if not isinstance(value, dict):
            raise BadInput("it is nothing that was given up by this package or by Lambda")
        if value.get("Type") == "Notification" and isinstance(value.get("Message"), str):
            return self.text(value["Message"], place)  # by way of an SNS topic
        if "DDBStreamBatchInfo" in value:
            return self._discarded(value, place)
        if isinstance(value.get("Records"), list):
            return self._records(value["Records"], place)
        if "dynamodb" in value:
            return self._records([value], place)
        if value.keys() & {"push", "backfill"}:
            return Letter(place, task=tasks.read(json.dumps(value)))
        if value.keys() >= {"reason", "key"}:
            return self._quarantined(value, place)
        raise BadInput("it is nothing that was given up by this package or by Lambda")

    def _quarantined(self, message: Mapping[str, Any], place: str) -> Letter:
        text, rule = message["key"], message.get("rule")
        target, fault = message.get("target"), message.get("fault")
        reason = complaint(rule, message["reason"], key=text, target=target, fault=fault)
        if not isinstance(text, str):
            raise BadInput(
                "it names no item: what came was no usable stream record. Find out who sent it, and delete it by hand"
            )
        try:
            key = decode_key(text)
        except ValueError as error:
            raise BadInput(f"{error}. Only this package writes to its quarantine") from None
        return Letter(place, {self._checked(key): ()}, reason=reason)

    def _discarded(self, message: Mapping[str, Any], place: str) -> Letter:
        batch, context = message["DDBStreamBatchInfo"], message.get("requestContext")
        condition = context.get("condition", "") if isinstance(context, dict) else ""
        payload = message.get("payload")
        if isinstance(payload, str):
            try:
                event = json.loads(payload)
            except (ValueError, RecursionError):
                raise BadInput("its payload is no JSON, so Lambda did not write it") from None
            letter = self._read(event, place)
            records = event.get("Records", []) if isinstance(event, dict) else event
            return replace(letter, told=self._told(records), reason=condition)
        info = batch if isinstance(batch, dict) else {}
        raise BadInput(
            f"it says where {info.get('batchSize', 'some')} records were in their stream ({info.get('shardId')}, from "
            f"{info.get('startSequenceNumber')}), and names no items. `projections backfill` makes right what they meant; "
            "then delete it by hand. An S3 bucket as on-failure destination is given the records themselves"
        )

    def _records(self, records: Iterable[Any], place: str) -> Letter:
        items: dict[ItemKey, list[Image]] = {}
        newest: dict[ItemKey, tuple[tuple[int, str], bool]] = {}
        for record in records:
            key, change = self._key(record)
            images = items.setdefault(key, [])
            for name in ("OldImage", "NewImage"):
                image = change.get(name)
                if _is_image(image) and image not in images:
                    images.append(image)
            sequence = str(change.get("SequenceNumber", ""))
            at = (len(sequence), sequence)
            if key not in newest or newest[key][0] <= at:
                newest[key] = at, record.get("eventName") == "REMOVE" and not _expired(record)
        if not items:
            raise BadInput("it holds no records")
        return Letter(place, items, newest)

    def _told(self, records: Iterable[Any]) -> dict[ItemKey, list[DiscardedRecord]]:
        """Records that are as whole as a function needs them."""
        found: dict[ItemKey, list[DiscardedRecord]] = {}
        for record in records:
            key, change = self._key(record)
            event, sequence = record.get("eventName"), change.get("SequenceNumber")
            old, new = change.get("OldImage"), change.get("NewImage")
            old, new = (None if event == "INSERT" else old), (None if event == "REMOVE" else new)
            whole = (event == "INSERT" or _is_image(old)) and (event == "REMOVE" or _is_image(new))
            expired = event == "REMOVE" and _expired(record)
            if event not in ("INSERT", "MODIFY", "REMOVE") or not is_sequence(sequence) or not (whole or expired):
                continue
            at = change.get("ApproximateCreationDateTime")
            version = version_of(self._label or stream_label(str(record.get("eventSourceARN", ""))), sequence)
            seconds = float(at) if isinstance(at, int | float) and 0 <= at < 1e12 else 0.0
            found.setdefault(key, []).append(DiscardedRecord(version, old if whole else None, new, expired, seconds))
        return found

    def _key(self, record: Any) -> tuple[ItemKey, Mapping[str, Any]]:
        change = record.get("dynamodb") if isinstance(record, dict) else None
        if not isinstance(change, dict):
            raise BadInput('it holds something that is no DynamoDB stream record: it has no "dynamodb" part')
        physical = str(record.get("eventSourceARN", "")).partition(":table/")[2].partition("/")[0]
        logical = self._logical.get(physical)
        if logical is None:
            known = ", ".join(sorted(self._logical))
            raise BadInput(
                f'it is about table "{physical[:60]}", and the rules are told to work on {known}. Check --table'
            )
        schema = self._schemas[logical]
        try:
            key = schema.key(logical, change.get("Keys") or change.get("NewImage") or change.get("OldImage") or {})
        except (KeyError, ValueError, ArithmeticError, TypeError, AttributeError):
            expected = " and ".join(f"{n} ({kind})" for n, kind in (schema.partition, schema.sort or ("", "")) if n)
            raise BadInput(f'it holds a key that is not that of table "{logical}" in the rules, {expected}') from None
        return self._checked(key), change

    def _checked(self, key: ItemKey) -> ItemKey:
        """The key, if it can be one of a table of the rules. Raises BadInput."""
        schema = self._schemas.get(key.table)
        if schema is None:
            raise BadInput(f'it is about table "{key.table}", which the rules do not have. Check --rules')
        if (key.sort is None) != (schema.sort is None):
            raise BadInput(f'it names {key[1:]}, which is no key of table "{key.table}" in the rules')
        for text, attribute, most in zip(key[1:], (schema.partition, schema.sort), _LIMITS, strict=True):
            if attribute is None or text is None:
                continue
            try:
                right = 0 < len(text.encode()) <= most and (attribute[1] != "N" or Decimal(text).is_finite())
            except (ArithmeticError, UnicodeEncodeError):
                right = False
            if not right:
                raise BadInput(f'it names {text[:60]!r}, which cannot be a value of "{attribute[0]}"')
        return key


def _is_image(value: Any) -> TypeGuard[Image]:
    return isinstance(value, dict) and bool(value) and all(is_value(one) for one in value.values())


def _expired(record: Mapping[str, Any]) -> bool:
    identity = record.get("userIdentity")
    return isinstance(identity, dict) and identity.get("type") == "Service" and identity.get("principalId") == _TTL

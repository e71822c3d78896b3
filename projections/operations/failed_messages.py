"""Failed messages in all their forms, the items that they are about, and the queues, buckets and files that hold them.

Images in them are never written anywhere.

Only discarded records are evidence of two facts that no item shows any more: that an item expired, and what it contributed
last. Rules with `expired: keep` count it from the record, if the ledger shows that it was not counted.

- A quarantined record (`operations.quarantine`): one item, the rule that could not use it, and the reason.
- A batch that Lambda discarded. Lambda sends the records to a bucket. To a queue or topic it sends only their positions in
the stream, which deletes them after 24 hours, so such a message names no item.
- Stream records, as in an event.
- A dead letter.

Messages that were redriven are removed; the others stay. If the process dies, all messages stay: SQS delivers them again
after their visibility timeout, and objects have no mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from itertools import islice
from typing import Any, Protocol, TypeGuard

from projections.engine.goals import DiscardedRecord
from projections.engine.records import is_expiry, is_sequence, is_value, stream_label, time_of, version_of
from projections.engine.rejections import sequence_order
from projections.engine.store import Image, ItemKey
from projections.errors import BadInput, InvalidRequest, StoreError
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES, Schema, decode_key
from projections.operations import tasks
from projections.operations.quarantine import HELD_SECONDS, MessageQueue, complaint
from projections.operations.tasks import Task

_MESSAGES = 100
"""Messages taken at a time: as many as the items that are refreshed together."""

_OBJECTS = 5
"""Objects taken at a time: each may have 6 MB of records."""


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A failed message: its `place`, and the `reason` that it gives.

    `items` has the images in the records of each item; `newest` the order of its newest record, and whether that is a
    removal other than by TTL; `records` the records of each item that Lambda discarded. `lost` is the table of records of
    which it has the position only, and when the last was made, or 0. `unusable` is why nothing can be done with it, and what
    to do instead.
    """

    place: str
    items: Mapping[ItemKey, Sequence[Image]] = field(default_factory=dict)
    newest: Mapping[ItemKey, tuple[tuple[int, str], bool]] = field(default_factory=dict)
    records: Mapping[ItemKey, Sequence[DiscardedRecord]] = field(default_factory=dict)
    lost: tuple[str, float] | None = None
    task: Task | None = None
    reason: str = ""
    unusable: str | None = None


class Reader:
    """Reads messages about the tables of one program. `names` has the real names of tables by their logical names.

    `label` is the label of all streams, for emulators whose ARN is not stable.
    """

    def __init__(self, schemas: Mapping[str, Schema], names: Mapping[str, str], *, label: str = "") -> None:
        self._schemas = schemas
        self._label = label
        self._logical = {names[logical]: logical for logical in schemas}

    def text(self, text: str | bytes, place: str) -> FailedMessage:
        """Return the content of a message or an object."""
        try:
            return self.value(json.loads(text), place)
        except (ValueError, RecursionError):
            return FailedMessage(
                place, unusable="it is not JSON, so this package did not write it. Examine it, and delete it by hand"
            )

    def value(self, value: Any, place: str) -> FailedMessage:
        """Return the decoded content of a message or an object."""
        try:
            return self._read(value, place)
        except BadInput as reason:
            stated = value.get("reason") if isinstance(value, dict) else None
            return FailedMessage(place, reason=str(stated or ""), unusable=str(reason))

    def _read(self, value: Any, place: str) -> FailedMessage:
        if isinstance(value, list):
            return self._records(value, place)
        if not isinstance(value, dict):
            raise BadInput("neither this package nor Lambda wrote it")
        if value.get("Type") == "Notification" and isinstance(value.get("Message"), str):
            return self.text(value["Message"], place)  # by way of an SNS topic
        if "DDBStreamBatchInfo" in value:
            return self._discarded_batch(value, place)
        if isinstance(value.get("Records"), list):
            return self._records(value["Records"], place)
        if "dynamodb" in value:
            return self._records([value], place)
        if value.keys() & {"push", "backfill", "refresh"}:
            return FailedMessage(place, task=tasks.read(json.dumps(value)))
        if value.keys() >= {"reason", "key"}:
            return self._quarantined_message(value, place)
        raise BadInput("neither this package nor Lambda wrote it")

    def _quarantined_message(self, message: Mapping[str, Any], place: str) -> FailedMessage:
        text, rule = message["key"], message.get("rule")
        target, fault = message.get("target"), message.get("fault")
        reason = complaint(rule, message["reason"], key=text, target=target, fault=fault)
        if not isinstance(text, str):
            raise BadInput(
                "it names no item: the function received an invalid stream record. Find its sender, and delete it by hand"
            )
        try:
            key = decode_key(text)
        except ValueError as error:
            raise BadInput(f"{error}. Only this package writes to its quarantine") from None
        return FailedMessage(place, {self._check_key(key): ()}, reason=reason)

    def _discarded_batch(self, message: Mapping[str, Any], place: str) -> FailedMessage:
        batch, context = message["DDBStreamBatchInfo"], message.get("requestContext")
        condition = context.get("condition", "") if isinstance(context, dict) else ""
        payload = message.get("payload")
        if isinstance(payload, str):
            try:
                event = json.loads(payload)
            except (ValueError, RecursionError):
                raise BadInput("its payload is not JSON, so Lambda did not write it") from None
            records = event.get("Records", []) if isinstance(event, dict) else event
            return replace(self._read(event, place), records=self._discarded_records(records), reason=condition)
        info = batch if isinstance(batch, dict) else {}
        physical = str(info.get("streamArn", "")).partition(":table/")[2].partition("/")[0]
        unusable = (
            f"it has the position of {info.get('batchSize', 'some')} records in their stream ({info.get('shardId')}, from "
            f"{info.get('startSequenceNumber')}), and names no items. Run `projections backfill`, which corrects what these "
            "records changed, then delete it by hand. An S3 bucket as on-failure destination receives the records themselves"
        )
        table, last = self._logical.get(physical, ""), str(info.get("approximateArrivalOfLastRecord"))
        try:
            at = datetime.fromisoformat(last).timestamp()
        except ValueError:
            at = 0.0
        return FailedMessage(place, lost=(table, at) if table else None, reason=condition, unusable=unusable)

    def _records(self, records: Iterable[Any], place: str) -> FailedMessage:
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
            at = sequence_order(sequence)
            if key not in newest or newest[key][0] <= at:
                newest[key] = at, record.get("eventName") == "REMOVE" and not is_expiry(record)
        if not items:
            raise BadInput("it has no records")
        return FailedMessage(place, items, newest)

    def _discarded_records(self, records: Iterable[Any]) -> dict[ItemKey, list[DiscardedRecord]]:
        """Return the records of each item that have all that a function needs."""
        by_key: dict[ItemKey, list[DiscardedRecord]] = {}
        for record in records:
            key, change = self._key(record)
            event, sequence = record.get("eventName"), change.get("SequenceNumber")
            old, new = change.get("OldImage"), change.get("NewImage")
            old, new = (None if event == "INSERT" else old), (None if event == "REMOVE" else new)
            whole = (event == "INSERT" or _is_image(old)) and (event == "REMOVE" or _is_image(new))
            expired = event == "REMOVE" and is_expiry(record)
            if event not in ("INSERT", "MODIFY", "REMOVE") or not is_sequence(sequence) or not (whole or expired):
                continue
            version = version_of(self._label or stream_label(str(record.get("eventSourceARN", ""))), sequence)
            seconds = max(time_of(change) or 0.0, 0.0)
            by_key.setdefault(key, []).append(DiscardedRecord(version, old if whole else None, new, expired, seconds))
        return by_key

    def _key(self, record: Any) -> tuple[ItemKey, Mapping[str, Any]]:
        change = record.get("dynamodb") if isinstance(record, dict) else None
        if not isinstance(change, dict):
            raise BadInput('one of its records has no "dynamodb" part, so it is not a DynamoDB stream record')
        physical = str(record.get("eventSourceARN", "")).partition(":table/")[2].partition("/")[0]
        logical = self._logical.get(physical)
        if logical is None:
            known = ", ".join(sorted(self._logical))
            raise BadInput(
                f'it is about table "{physical[:60]}", which is not one of the tables of the rules: {known}. Check --table'
            )
        schema = self._schemas[logical]
        try:
            key = schema.key(logical, change.get("Keys") or change.get("NewImage") or change.get("OldImage") or {})
        except (KeyError, ValueError, ArithmeticError, TypeError, AttributeError):
            expected = " and ".join(f"{n} ({kind})" for n, kind in (schema.partition, schema.sort or ("", "")) if n)
            raise BadInput(f'its key is not that of table "{logical}" in the rules, {expected}') from None
        return self._check_key(key), change

    def _check_key(self, key: ItemKey) -> ItemKey:
        """Return a key that a table of the rules can have. Raises BadInput."""
        schema = self._schemas.get(key.table)
        if schema is None:
            raise BadInput(f'it is about table "{key.table}", which the rules do not have. Check --rules')
        if (key.sort is None) != (schema.sort is None):
            raise BadInput(f'it names {key[1:]}, which is not a key of table "{key.table}" in the rules')
        limits = (schema.partition, PARTITION_KEY_BYTES), (schema.sort, SORT_KEY_BYTES)
        for text, (attribute, most) in zip(key[1:], limits, strict=True):
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
    return isinstance(value, dict) and bool(value) and all(is_value(nested) for nested in value.values())


# Sources: see `operations.message_redrive.MessageSource`


class QueueSource:
    """The messages of a queue. Redriven ones are deleted."""

    def __init__(self, name: str, queue: MessageQueue, reader: Reader) -> None:
        self.name = name
        self._queue = queue
        self._reader = reader
        self._held: dict[str, Any] = {}

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        taken: dict[str, Any] = {}
        while len(taken) < min(most, _MESSAGES):
            received = self._queue.receive(HELD_SECONDS, wait=0 if taken else 2)
            if not received:
                break
            for message in received:
                if message.id not in self._held:  # otherwise its visibility timeout is over: it was taken before
                    taken[message.id] = message
                self._held[message.id] = message
        return [(self._reader.text(raw.body, f"message {raw.id}"), raw) for raw in islice(taken.values(), most)]

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        self._queue.delete([received for _, received in messages])
        for _, received in messages:
            self._held.pop(received.id, None)

    def close(self) -> None:
        with suppress(StoreError):  # SQS delivers them again after their visibility timeout
            self._queue.release(list(self._held.values()))
        self._held.clear()


class Objects(Protocol):
    """A bucket to read objects from: `aws.queues.Bucket`."""

    def pending(self, prefix: str = "") -> Iterator[str]: ...

    def read(self, key: str) -> bytes: ...

    def mark(self, key: str, note: str) -> None: ...


class BucketSource:
    """The objects of a bucket under a prefix. Redriven ones are marked, and nothing is deleted: see `aws.queues`."""

    def __init__(self, name: str, bucket: Objects, prefix: str, reader: Reader) -> None:
        self.name = name
        self._bucket = bucket
        self._reader = reader
        self._keys = bucket.pending(prefix)

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        return [(self._message(key), key) for key in islice(self._keys, min(most, _OBJECTS))]

    def _message(self, key: str) -> FailedMessage:
        try:
            return self._reader.text(self._bucket.read(key), key)
        except InvalidRequest as error:
            return FailedMessage(key, unusable=f"it cannot be read: {error}")

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        for message, key in messages:
            note = {"redriven": now.isoformat(timespec="seconds"), "items": len(message.items)}
            self._bucket.mark(key, json.dumps(note))

    def close(self) -> None:
        return None


class FileSource:
    """Messages that were read from a file, which is not changed."""

    def __init__(self, name: str, messages: Iterable[FailedMessage]) -> None:
        self.name = name
        self._messages = iter(messages)

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        return [(message, None) for message in islice(self._messages, min(most, _OBJECTS))]

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        return None

    def close(self) -> None:
        return None

"""DynamoDB Streams: the shards of a stream, and their records in the form of Lambda events."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import Misconfigured, Transient
from projections.stores.refusals import translate

MOST_RECORDS = 1000
"""The maximum of one GetRecords."""


class StreamGone(Misconfigured):
    """The stream no longer exists: its table was deleted, or it was disabled more than a day ago."""


class FoundShard(NamedTuple):
    """A shard as DescribeStream returns it. A closed shard gets no more records."""

    id: str
    parent: str | None
    closed: bool


class Stretch(NamedTuple):
    """The records of one read of a shard; `ended` if the shard is closed and these are its last records."""

    records: Sequence[dict[str, Any]]
    ended: bool


@dataclass(slots=True)
class _Place:
    """The position in a shard: an iterator while it is valid, else the last record."""

    iterator: str | None = None
    last: str | None = None


@dataclass(slots=True)
class StreamReader:
    """Reads the shards of one stream, each from its beginning or from now on. Not safe for threads.

    Raises Transient if a later call may succeed, StreamGone, and Misconfigured for everything else.
    """

    streams: Any
    arn: str
    _places: dict[str, _Place] = field(default_factory=dict)

    def shards(self) -> tuple[bool, list[FoundShard]]:
        """Return whether the stream is enabled, and its shards, parents first."""
        status, shards = self._call(lambda: describe(self.streams, self.arn))
        found_shards = [
            FoundShard(
                shard["ShardId"],
                shard.get("ParentShardId"),
                bool(shard.get("SequenceNumberRange", {}).get("EndingSequenceNumber")),
            )
            for shard in shards
        ]
        return status in ("ENABLED", "ENABLING"), found_shards

    def begin(self, shard: str, *, latest: bool = False) -> None:
        """Begin to read a shard at its first record, or with `latest` at records from now on."""
        place = self._places[shard] = _Place()
        if latest:
            place.iterator = self._iterator(shard, ShardIteratorType="LATEST")

    def read(self, shard: str) -> Stretch:
        """Return the next records of a shard, possibly none although there are more."""
        place = self._places[shard]
        iterator = place.iterator or self._resume(shard, place)
        try:
            answer = self._call(lambda: self.streams.get_records(ShardIterator=iterator, Limit=MOST_RECORDS))
        except _Stale:
            place.iterator = None  # iterators are valid for 15 minutes; a machine may sleep longer
            return Stretch((), False)
        records = [as_lambda_has_it(record, self.arn) for record in answer["Records"]]
        if records:
            place.last = records[-1]["dynamodb"]["SequenceNumber"]
        place.iterator = answer.get("NextShardIterator")
        return Stretch(records, place.iterator is None)

    def _resume(self, shard: str, place: _Place) -> str:
        if place.last is not None:
            try:
                return self._iterator(shard, ShardIteratorType="AFTER_SEQUENCE_NUMBER", SequenceNumber=place.last)
            except _Stale:
                place.last = None  # the next records are deleted: the stream keeps records for a day
        return self._iterator(shard, ShardIteratorType="TRIM_HORIZON")

    def _iterator(self, shard: str, **where: str) -> str:
        request = {"StreamArn": self.arn, "ShardId": shard, **where}
        iterator: str = self._call(lambda: self.streams.get_shard_iterator(**request))["ShardIterator"]
        return iterator

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code")
            if code in ("ExpiredIteratorException", "TrimmedDataAccessException"):
                raise _Stale(str(error)) from error
            if code == "ResourceNotFoundException":
                raise StreamGone(f"the stream {self.arn} does not exist any more") from error
            raise translate(error, error.operation_name, self.arn) from error
        except BotoCoreError as error:
            raise Transient(f"the stream {self.arn}: {error}") from error


class _Stale(Transient):
    """An iterator, or its position, is too old."""


def describe(streams: Any, arn: str) -> tuple[str, list[dict[str, Any]]]:
    """Return the status of a stream and all its shards, parents first. Raises botocore's errors."""
    shards: list[dict[str, Any]] = []
    request: dict[str, Any] = {"StreamArn": arn}
    while True:
        page = streams.describe_stream(**request)["StreamDescription"]
        shards += page["Shards"]
        if not page.get("LastEvaluatedShardId"):
            return page.get("StreamStatus", "ENABLED"), shards
        request["ExclusiveStartShardId"] = page["LastEvaluatedShardId"]


def as_lambda_has_it(record: Mapping[str, Any], arn: str) -> dict[str, Any]:
    """Return a record of the streams API as Lambda delivers it: as JSON, with its stream's ARN."""
    plain: dict[str, Any] = _jsonable(record)
    return plain | {"eventSourceARN": arn, "eventSource": "aws:dynamodb"}


def _jsonable(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return b64encode(value).decode()
        case datetime():
            return int(value.timestamp())
        case Mapping():
            return {name: _jsonable(element) for name, element in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_jsonable(element) for element in value]
    return value

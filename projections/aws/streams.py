"""DynamoDB Streams: the shards of a stream, and their records as Lambda would deliver them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import Misconfigured, StoreError, Transient
from projections.stores.dynamodb import translated

__all__ = ["FoundShard", "StreamGone", "StreamReader", "Stretch", "as_lambda_has_it", "describe"]

MOST_RECORDS = 1000
"""Of one GetRecords."""


class StreamGone(Misconfigured):
    """The stream is not there any more: its table was deleted, or it was switched off more than a day ago."""


@dataclass(frozen=True, slots=True)
class FoundShard:
    """A shard as DescribeStream shows it. A closed one gets no more records."""

    id: str
    parent: str | None
    closed: bool


@dataclass(frozen=True, slots=True)
class Stretch:
    """What was read of a shard in one call; `ended` if the shard is closed and this was the rest of it."""

    records: Sequence[dict[str, Any]]
    ended: bool


@dataclass(slots=True)
class _Place:
    """Where the reading of a shard goes on: by an iterator while it is good, else after the last record."""

    iterator: str | None = None
    last: str | None = None


@dataclass(slots=True)
class StreamReader:
    """Reads the shards of one stream, each from where it is told to begin. Not safe for threads.

    Raises Transient where a later call may succeed, StreamGone, and Misconfigured for everything else.
    """

    streams: Any
    arn: str
    _places: dict[str, _Place] = field(default_factory=dict)

    def shards(self) -> tuple[bool, list[FoundShard]]:
        """Whether the stream is switched on, and its shards, parents first."""
        status, shards = self._call(lambda: describe(self.streams, self.arn))
        found = [
            FoundShard(
                shard["ShardId"],
                shard.get("ParentShardId"),
                bool(shard.get("SequenceNumberRange", {}).get("EndingSequenceNumber")),
            )
            for shard in shards
        ]
        return status in ("ENABLED", "ENABLING"), found

    def begin(self, shard: str, *, latest: bool = False) -> None:
        """Where to begin with a shard: with its first record, or with what is written from now on."""
        place = self._places[shard] = _Place()
        if latest:
            place.iterator = self._iterator(shard, ShardIteratorType="LATEST")

    def read(self, shard: str) -> Stretch:
        """What follows in a shard that was begun; possibly nothing, though there is more."""
        place = self._places[shard]
        iterator = place.iterator or self._resumed(shard, place)
        try:
            answer = self._call(lambda: self.streams.get_records(ShardIterator=iterator, Limit=MOST_RECORDS))
        except _Stale:
            place.iterator = None  # iterators live for 15 minutes; a machine that slept comes back later
            return Stretch((), False)
        records = [as_lambda_has_it(record, self.arn) for record in answer["Records"]]
        if records:
            place.last = records[-1]["dynamodb"]["SequenceNumber"]
        place.iterator = answer.get("NextShardIterator")
        return Stretch(records, place.iterator is None)

    def _resumed(self, shard: str, place: _Place) -> str:
        if place.last is not None:
            try:
                return self._iterator(shard, ShardIteratorType="AFTER_SEQUENCE_NUMBER", SequenceNumber=place.last)
            except _Stale:
                place.last = None  # what followed is trimmed: the stream keeps records for a day
        return self._iterator(shard, ShardIteratorType="TRIM_HORIZON")

    def _iterator(self, shard: str, **where: str) -> str:
        request = {"StreamArn": self.arn, "ShardId": shard, **where}
        iterator: str = self._call(lambda: self.streams.get_shard_iterator(**request))["ShardIterator"]
        return iterator

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except ClientError as error:
            raise self._told(error) from error
        except BotoCoreError as error:
            raise Transient(f"the stream {self.arn}: {error}") from error

    def _told(self, error: ClientError) -> StoreError:
        code = error.response.get("Error", {}).get("Code")
        if code in ("ExpiredIteratorException", "TrimmedDataAccessException"):
            return _Stale(str(error))
        if code == "ResourceNotFoundException":
            return StreamGone(f"the stream {self.arn} is gone")
        return translated(error, error.operation_name, self.arn)


class _Stale(Transient):
    """An iterator, or the place it was to begin at, is too old."""


def describe(streams: Any, arn: str) -> tuple[str, list[dict[str, Any]]]:
    """The status of a stream and all its shards as DescribeStream has them, parents first. Raises botocore's errors."""
    shards: list[dict[str, Any]] = []
    request: dict[str, Any] = {"StreamArn": arn}
    while True:
        page = streams.describe_stream(**request)["StreamDescription"]
        shards += page["Shards"]
        if not page.get("LastEvaluatedShardId"):
            return page.get("StreamStatus", "ENABLED"), shards
        request["ExclusiveStartShardId"] = page["LastEvaluatedShardId"]


def as_lambda_has_it(record: Mapping[str, Any], arn: str) -> dict[str, Any]:
    """A record of the streams API as Lambda delivers it: JSON throughout, and with its stream's ARN."""
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

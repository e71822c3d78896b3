"""A stream and its shards. Records are ordered within a shard, and a closed shard is read before its children."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from projections.engine.records import is_sequence, time_of

__all__ = ["Record", "Shard", "Stream", "created_at", "item_hash", "sequence_number", "source_arn"]

Record: TypeAlias = Mapping[str, Any]
"""One stream record as Lambda delivers it."""

HASHES = 1 << 32


def sequence_number(record: Record) -> int:
    """Return the sequence number of a record as an integer, because it has 21 to 40 digits; 0 if it has none."""
    body = record.get("dynamodb")
    text = body.get("SequenceNumber") if isinstance(body, Mapping) else None
    return int(text) if is_sequence(text) else 0


def source_arn(record: Record) -> str:
    """Return the ARN of a record's stream; empty if the record does not have it."""
    return str(record.get("eventSourceARN", ""))


def created_at(record: Record) -> float | None:
    """Return the time of a change in epoch seconds; None if the record does not have it."""
    body = record.get("dynamodb")
    return time_of(body) if isinstance(body, Mapping) else None


def item_hash(record: Record) -> int:
    """Return a stable number in [0, 2³²) for a record's item."""
    body = record.get("dynamodb")
    keys = body.get("Keys") if isinstance(body, Mapping) else None
    return zlib.crc32(json.dumps([source_arn(record), keys], sort_keys=True, default=str).encode())


@dataclass
class Shard:
    """Part of a stream: the records of the items whose hash is in [low, high), while it is open."""

    id: str
    low: int = 0
    high: int = HASHES
    parent: str | None = None
    closed: bool = False
    records: list[Record] = field(default_factory=list)


class Stream:
    """The records of a stream. Its shards are split (or rolled over, as DynamoDB does every few hours) on request."""

    def __init__(self, arn: str, *, shards: int = 1) -> None:
        if shards < 1:
            raise ValueError("a stream has at least one shard")
        self.arn = arn
        self.shards: dict[str, Shard] = {}
        for number in range(shards):
            self._open(HASHES * number // shards, HASHES * (number + 1) // shards, None)

    @classmethod
    def followed(cls, arn: str) -> Stream:
        """Return a copy of a stream that exists elsewhere: its reader adds shards (`adopt`) and records."""
        stream = cls(arn)
        stream.shards.clear()
        return stream

    def adopt(self, shard: Shard) -> None:
        """Add a shard of a stream that exists elsewhere."""
        if shard.id in self.shards:
            raise ValueError(f"{shard.id} is known already")
        self.shards[shard.id] = shard

    def append(self, record: Record) -> Shard:
        """Append a record to the open shard of its item. The order of calls is the order of the stream."""
        place = item_hash(record)
        shard = next(s for s in self.shards.values() if not s.closed and s.low <= place < s.high)
        shard.records.append(record)
        return shard

    def split(self, shard_id: str, *, into: int = 2) -> tuple[Shard, ...]:
        """Close a shard and open its children; `into=1` is a roll-over, which DynamoDB does every few hours."""
        parent = self.shards[shard_id]
        if parent.closed:
            raise ValueError(f"{shard_id} is closed already")
        parent.closed = True
        width = parent.high - parent.low
        bounds = [parent.low + width * number // into for number in range(into + 1)]
        return tuple(self._open(bounds[number], bounds[number + 1], parent.id) for number in range(into))

    def _open(self, low: int, high: int, parent: str | None) -> Shard:
        number = len(self.shards)
        shard = Shard(f"shardId-{number:020}-{zlib.crc32(f'{self.arn}/{number}'.encode()):08x}", low, high, parent)
        self.shards[shard.id] = shard
        return shard

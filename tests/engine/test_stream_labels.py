"""The label of a record's stream, which comes first in its version."""

from __future__ import annotations

from typing import Any

from projections.engine.records import decode, version_of
from tests.engine.world import World

OLD, NEW = "2026-01-01T00:00:00.000", "2026-02-01T00:00:00.000"
LIKES = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"


def label_of(arn: str, **settings: Any) -> str:
    world = World(LIKES)
    world.like(1, 1)
    (record,) = world.records()
    record["eventSourceARN"] = arn
    change = decode(record, {"main": "main"}, world.program.tables, **settings)
    label, _, sequence = change.version.partition("/")
    assert change.version == version_of(label, record["dynamodb"]["SequenceNumber"]), sequence
    return label


def test_the_label_is_the_one_in_the_records_own_arn() -> None:
    assert label_of(f"arn:aws:dynamodb:eu-west-1:1:table/main/stream/{OLD}") == OLD
    assert label_of("arn:aws:dynamodb:eu-west-1:1:table/main") == ""


def test_a_fixed_label_replaces_all_labels() -> None:
    """For emulators that show another stream in each poll."""
    assert label_of(f"arn:aws:dynamodb:eu-west-1:1:table/main/stream/{OLD}", fixed_label=NEW) == NEW


def test_the_last_records_of_a_former_stream_do_not_hide_those_of_the_new_one() -> None:
    world = World(LIKES)
    world.store.stream_label = OLD
    world.store._next_sequence = 9 * 10**20
    world.put("POST#1", "METADATA")
    world.like(1, 1)
    world.like(2, 1)
    old = world.records()
    world.position += len(old)
    world.store.stream_label = NEW  # switched off and on: the numbers begin anew
    world.store._next_sequence = 10**20
    world.deliver(old)
    world.settle()
    world.remove("USER#1", "LIKE#1")
    world.remove("USER#2", "LIKE#1")
    world.settle()
    assert world.post() == {"likeCount": 0}

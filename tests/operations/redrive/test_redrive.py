"""A redrive refreshes the items of failed messages. A message that fails again stays in its source."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from projections.aws.queues import Message
from projections.engine.embeds import Push
from projections.engine.running import at_once
from projections.engine.store import ItemKey
from projections.errors import InvalidRequest, Transient, UsageError
from projections.operations.failed_messages import BucketSource, FailedMessage, QueueSource, Reader
from projections.operations.message_redrive import Answer, Outcome, Redrive, redrive_all
from projections.operations.quarantine import Quarantine
from projections.operations.tasks import Task, write
from tests.engine.scene import COUNT, Scene, dies, settled
from tests.engine.world import World

NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
DATED = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
"""
LISTED = """
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, total: sum(weight)}}}
  listed: {from: Post, index: {GSI1PK: "MONTH#{publishedAt|date(%Y-%m)}", GSI1SK: "{postId}"}}
"""


@dataclass
class Queue:
    """A queue in memory: received messages are hidden until they are released."""

    bodies: list[str] = field(default_factory=list)
    fails: Callable[[str], None] = lambda call: None

    def __post_init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.hidden: set[str] = set()
        self.send(self.bodies)

    def send(self, bodies: Sequence[str], delays: Sequence[float] = ()) -> None:
        self.fails("send")
        for body in bodies:
            self.messages[f"m{len(self.messages) + 1:04}"] = body

    def receive(self, seconds: int, *, wait: int = 2) -> list[Message]:
        self.fails("receive")
        found = [Message(name, body, name) for name, body in self.messages.items() if name not in self.hidden][:10]
        self.hidden.update(one.id for one in found)
        return found

    def delete(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.fails("delete")
            self.messages.pop(message.id, None)
            self.hidden.discard(message.id)

    def release(self, messages: Sequence[Message]) -> None:
        self.fails("release")
        self.hidden -= {message.id for message in messages}


class Sent(list[tuple[Task, float]]):
    def send(self, tasks: Sequence[tuple[Task, float]]) -> None:
        self.extend(tasks)


def reader(world: World) -> Reader:
    return Reader(world.program.tables, {name: name for name in world.program.tables})


def redrive(world: World, **settings: Any) -> Redrive:
    return Redrive(world.program, world.store, sleep=lambda seconds: None, **settings)


def message(*keys: ItemKey) -> FailedMessage:
    return FailedMessage("here", dict.fromkeys(keys, ()))


def one(world: World, *messages: FailedMessage, **settings: Any) -> list[Answer]:
    return redrive(world, **settings).work(messages)


def empty(world: World, queue: Queue, most: int | None = None, **settings: Any) -> Outcome:
    source = QueueSource("quarantine", queue, reader(world))
    return redrive_all([source], redrive(world, **settings), now=lambda: NOON, most=most)


def quarantined(rules: str = LISTED, head: str = DATED) -> tuple[Scene, Queue]:
    """A world whose handler has quarantined what it could not use."""
    queue = Queue()
    w = Scene(rules, head, quarantine=Quarantine(lambda: queue, lambda: NOON))
    return w, queue


def like(n: int) -> ItemKey:
    return ItemKey("main", f"USER#{n}", "LIKE#1")


# From quarantine to right.


def test_an_item_that_was_repaired_is_corrected_and_its_message_is_gone() -> None:
    w, queue = quarantined()
    w.put("POST#1", "METADATA", publishedAt="yesterday")
    w.like(1, 1, weight="heavy")
    w.settle()
    assert len(queue.messages) == 2
    w.put("POST#1", "METADATA", publishedAt="2026-01-05T12:00:00Z")
    w.like(1, 1, weight=5)
    w.lose()
    outcome = empty(w, queue)
    assert (outcome.sources["quarantine"].done, outcome.remains, queue.messages) == (2, False, {})
    assert w.differences() == []
    assert w.post()["GSI1PK"] == "MONTH#2026-01"


def test_a_rule_that_was_repaired_is_applied_and_the_message_is_gone() -> None:
    w, queue = quarantined()
    w.put("POST#1", "METADATA", publishedAt="5 January")
    w.settle()
    mended = w.under(LISTED.replace("MONTH#{publishedAt|date(%Y-%m)}", "ON#{publishedAt}"), DATED)
    assert empty(mended, queue).remains, "the registry has the rule as it was"
    assert len(queue.messages) == 1
    mended.registry().register(mended.program)
    assert not empty(mended, queue).remains
    assert (mended.post()["GSI1PK"], queue.messages) == ("ON#5 January", {})


def test_rejected_messages_stay_and_the_new_reason_is_reported() -> None:
    w, queue = quarantined()
    for post, date in enumerate(["yesterday", "tomorrow", "now"], 1):
        w.put(f"POST#{post}", "METADATA", publishedAt=date)
    w.settle()
    w.put("POST#2", "METADATA", publishedAt="2026-01-05T12:00:00Z")
    w.put("POST#3", "METADATA", publishedAt={"not": "a text"})
    w.lose()
    bodies = dict(queue.messages)
    outcome = empty(w, queue)
    assert queue.messages == {name: body for name, body in bodies.items() if "POST#2" not in body}
    assert queue.hidden == set(), "they can be looked at, and redriven, at once"
    (first, third) = outcome.sources["quarantine"].left
    assert first.message.reason.startswith("listed: ")
    assert "yesterday" in str(first.left["main|POST#1|METADATA"])
    assert third.left["main|POST#3|METADATA"] != [third.message.reason]
    assert outcome.remains


def test_a_batch_with_one_bad_item_refreshes_the_others_and_only_that_one_stays() -> None:
    w, queue = quarantined()
    for user in range(30):
        w.like(user, 1, weight="heavy")
    w.put("POST#1", "METADATA")
    w.settle()
    for user in range(30):
        w.like(user, 1, weight="still" if user == 17 else 1)
    w.lose()
    outcome = empty(w, queue, run=at_once(4))
    assert [list(answer.left) for answer in outcome.sources["quarantine"].left] == [["main|USER#17|LIKE#1"]]
    assert (w.post()["total"], w.differences()) == (29, [])


def test_an_old_image_is_never_replayed() -> None:
    w = Scene(COUNT)
    w.put("POST#1", "METADATA")
    w.like(1, 1)
    w.like(2, 1)
    old = w.records()
    w.lose()
    w.remove("USER#1", "LIKE#1")
    w.put("USER#2", "LIKE#1", postId="other")  # bad input by now
    w.lose()
    (answer,) = one(w, reader(w).value({"Records": old}, "here"))
    assert (w.post(), w.contributed("USER#1|LIKE#1")) == ({"likeCount": 0}, None)
    assert list(answer.left) == ["main|USER#2|LIKE#1"]


# From the bucket.


def test_a_discarded_batch_is_corrected_in_every_role() -> None:
    """Removed sources whose copies only their old images name, removed copies, removed parents."""
    w = settled()
    w.remove("USER#a", "POST#2")
    w.remove("POST#1", "METADATA")
    w.remove("USER#a", "PROFILE")
    w.remove("USER#b", "LIKE#3")
    w.remove("TAG#red", "STATS")
    w.put("USER#a", "POST#1", title="edited", status="draft", tags=["blue"])
    w.put("POST#3", "METADATA", type="PostMeta", title="overwritten")
    records = w.records()
    w.lose()
    assert len(w.differences()) > 5
    (answer,) = one(w, reader(w).value({"Records": records}, "here"))
    assert answer.left == {}
    w.settle()
    assert w.differences() == []


def test_a_removal_that_was_discarded_is_taken_back_and_an_expiry_keeps_what_it_contributed() -> None:
    head = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
  Point: {key: {PK: "POINT#{point}", SK: P}, expires: true}
projections:
"""
    w = Scene(
        "  tags: {from: Point, expired: keep, each: {tag: tags}, aggregate: {into: Tag, set: {n: count}}}\n", head
    )
    for point in (1, 2, 3):
        w.put(f"POINT#{point}", "P", tags=["a"])
    w.settle()
    w.remove("POINT#1", "P")
    w.remove("POINT#2", "P", by_ttl=True)
    records = w.records()
    w.lose()
    first, second = (reader(w).value([record], "here") for record in records)
    assert [answer.left for answer in one(w, first, second)] == [{}, {}]
    assert (w.item("TAG#a", "STATS") or {})["n"] == 2


# Pushes.


def test_children_are_pushed_to_here_or_by_the_worker() -> None:
    w = settled()
    w.put("USER#a", "PROFILE", name="Renamed", email="a@example.com")
    w.lose()
    parent = ItemKey("main", "USER#a", "PROFILE")
    sent = Sent()
    assert one(w, message(parent), send=sent)[0].left == {}
    assert [(task.parent, delay) for task, delay in sent if isinstance(task, Push)] == [("main|USER#a|PROFILE", 0.0)]
    assert {difference.attribute for difference in w.differences()} == {"userName"}
    slept: list[float] = []
    here = Redrive(w.program, w.store, sleep=slept.append)
    assert here.work([message(parent)])[0].left == {}
    assert (w.differences(), here.pushes) == ([], 1)
    assert slept == [5.0], "the index is looked through once more"


def test_a_push_that_fails_keeps_the_message_of_its_parent_and_no_other() -> None:
    w = settled()
    w.put("USER#a", "PROFILE", name="Renamed", email="a@example.com")
    w.put("USER#a", "LIKE#9")
    w.lose()

    def refuse(writes: Any) -> list[Any]:
        return [InvalidRequest("Item size has exceeded the maximum allowed size")] * len(writes)

    w.store.write_each = refuse  # type: ignore[method-assign]
    parent, other = one(w, message(ItemKey("main", "USER#a", "PROFILE")), message(ItemKey("main", "USER#a", "LIKE#9")))
    assert other.left == {}
    assert list(parent.left) == ["main|USER#a|PROFILE"]
    assert "author: main|POST#1|COMMENT#0: Item size" in parent.left["main|USER#a|PROFILE"][0]


def test_a_queue_that_takes_no_push_keeps_the_message() -> None:
    class Full(Sent):
        def send(self, tasks: Sequence[tuple[Task, float]]) -> None:
            raise Transient("the queue did not take it")

    w = settled()
    (answer,) = one(w, message(ItemKey("main", "USER#a", "PROFILE")), send=Full())
    assert answer.left == {"main|USER#a|PROFILE": ["the queue did not take it"]}


# Dead letters.


def dead(w: World) -> Push:
    push = Push("author", "main|USER#a|PROFILE", "9999")
    redrive(w)._refresher(lambda pieces: []).embedder.raise_fence(push)
    return push


def test_a_dead_push_is_sent_back_or_made_here() -> None:
    w = settled()
    w.put("USER#a", "PROFILE", name="Renamed", email="a@example.com")
    w.lose()
    push, sent = dead(w), Sent()
    queue = Queue([write(push)])
    assert not empty(w, queue, send=sent).remains
    assert (sent, queue.messages) == ([(push, 0.0)], {})
    assert {one.rule for one in w.differences()} == {"owner", "author"}
    queue = Queue([write(push)])
    assert not empty(w, queue).remains
    assert {one.rule for one in w.differences()} == {"owner"}, "which is not what the task was about"
    assert queue.messages == {}


# What stays, and what stops.


def test_a_ledger_without_rules_is_refused() -> None:
    w = Scene(COUNT)
    w.store.remove(ItemKey("ledger", "R", "."))
    with pytest.raises(UsageError, match="the ledger has no rules"):
        one(w, message(like(1)))


# Killed.


def test_it_may_be_killed_at_any_write_and_repeated() -> None:
    for writes in range(100):
        w, queue = quarantined()
        for user in range(3):
            w.put(f"POST#{user}", "METADATA", publishedAt="never")
            w.like(user, 1, weight="heavy")
        w.settle()
        for user in range(3):
            w.put(f"POST#{user}", "METADATA", publishedAt="2026-01-05T12:00:00Z")
            w.like(user, 1, weight=user)
        w.lose()
        if not dies(w, writes, partial(empty, w, queue)):
            assert writes > 5
            return
        queue.hidden.clear()  # their time is over
        assert not empty(w, queue).remains, writes
        assert (w.differences(), queue.messages) == ([], {}), writes
    raise AssertionError("it never ends")


# Boxes.


class Objects:
    def __init__(self, contents: dict[str, str]) -> None:
        self.contents = contents
        self.marks: dict[str, str] = {}

    def pending(self, prefix: str = "") -> Iterator[str]:
        return iter([key for key in self.contents if key.startswith(prefix) and key not in self.marks])

    def read(self, key: str) -> bytes:
        if not self.contents[key]:
            raise InvalidRequest("it is archived")
        return self.contents[key].encode()

    def mark(self, key: str, note: str) -> None:
        self.marks[key] = note


def test_objects_that_are_done_are_marked_and_no_others() -> None:
    w, _ = quarantined()
    for user in range(4):
        w.like(user, 1, weight="bad" if user == 1 else user)
    records = w.records()
    w.lose()
    objects = Objects(
        {f"a/{n}": json.dumps({"Records": [record]}) for n, record in enumerate(records)} | {"a/9": "", "b": "x"}
    )
    work = redrive(w)
    outcome = redrive_all([BucketSource("bucket", objects, "a/", reader(w))], work, now=lambda: NOON)
    assert list(objects.marks) == ["a/0", "a/2", "a/3"]
    assert json.loads(objects.marks["a/0"]) == {"redriven": "2026-01-05T12:00:00+00:00", "items": 1}
    assert [(answer.message.place, *answer.left) for answer in outcome.sources["bucket"].left] == [
        ("a/1", "main|USER#1|LIKE#1"),
        ("a/9", ""),
    ]
    again = redrive_all([BucketSource("bucket", objects, "a/", reader(w))], work, now=lambda: NOON)
    assert (again.sources["bucket"].done, len(again.sources["bucket"].left)) == (0, 2)

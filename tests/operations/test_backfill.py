"""Backfill: items that were there before the rules, rules that change, under an application that goes on writing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from projections.engine.effort import Effort
from projections.engine.registry import FILLING, LIVE, Registry
from projections.errors import Misconfigured, UsageError
from projections.operations.backfill import queued
from projections.operations.backfill.backfill import Backfill
from projections.operations.backfill.progress import Run
from projections.operations.backfill.runner import Runner
from projections.operations.caution import Cautious
from projections.operations.tasks import Tasks, read
from projections.tools.oracle import Oracle
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  ByName: {key: {PK: "NAME#{name}", SK: USER}}
  Seen: {key: {PK: "SEEN#{userId}#{postId}", SK: X}}
"""
TAG = '  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}\n'
LIKES = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, best: max(stars)}}}\n"
TAGS = "  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"
NAMES = "  names: {from: User, copy: {into: ByName, attributes: [userId, city]}}\n"
SEEN = "  seen: {from: Like, copy: {into: Seen, attributes: [stars]}}\n"
LISTED = '  listed: {from: Post, index: {GSI1PK: "BY#{owner}", GSI1SK: "{postId}"}}\n'
AUTHOR = '  author: {from: User, embed: {into: Like, match: {userId: "{userId}"}, attributes: {userCity: city}}}\n'
ALL = LIKES + TAGS + NAMES + SEEN + LISTED + AUTHOR


def world_of(rules: str, **settings: Any) -> World:
    return World(rules, HEAD + (TAG if "  tags:" in rules else "") + "projections:\n", **settings)


def fill(world: World, users: int = 6, posts: int = 4) -> None:
    """Items of before: the stream says nothing of them."""
    for post in range(posts):
        world.put(f"POST#{post}", "METADATA", owner=f"u{post % 2}", tags=["a", f"t{post}"])
    for user in range(users):
        world.put(f"USER#{user}", "PROFILE", name=f"n{user // 2}", city=f"c{user}")
        for post in range(user % (posts + 1)):
            world.like(user, post, stars=user * 10 + post)
    world.position = len(world.store.stream("main"))


def backfill_of(world: World, store: Any = None, **settings: Any) -> Backfill:
    return Backfill(
        world.program,
        store or Cautious(world.store, deletes=settings.pop("deletes", True)),
        world.store,
        now=lambda: datetime.fromtimestamp(1_700_000_000, UTC),
        **{"page": 5, **settings},
    )


def work_off(backfill: Backfill, run: Run, between: Callable[[], None] = lambda: None) -> Run:
    slept: list[float] = []
    runner = Runner(backfill, told=lambda run, done: between(), clock=lambda: 1_700_000_000.0, sleep=slept.append)
    run = runner.work(run)
    assert (runner.failed, runner.rejected) == ({}, {})
    return run


def assert_right(world: World) -> None:
    assert Oracle(world.program.document).compare({"main": world.store.items("main")}) == []


def again(world: World, rules: str, retired: str = "") -> World:
    """The same tables under other rules."""
    other = world_of(rules + retired)
    other.store, other.position = world.store, world.position
    other.processor = other.worker()
    return other


def test_a_table_with_data_and_no_ledger_under_live_writes() -> None:
    world = world_of(ALL, new_rules=FILLING)
    fill(world)
    backfill = backfill_of(world)
    pages = iter(range(10_000))

    def write() -> None:
        number = next(pages)
        world.like(number % 9, number % 4, stars=number)
        if number % 3 == 0:
            world.remove(f"USER#{number % 6}", f"LIKE#{number % 4}")
        if number % 5 == 0:
            world.put(f"USER#{number % 6}", "PROFILE", name=f"n{number % 4}", city=f"later{number}")
        if number % 2:
            world.settle()

    work_off(backfill, backfill.begin(segments=2, wait=0.0), write)
    world.settle()
    assert {one.state for one in Registry(world.program, world.store).standing().rules.values()} == {LIVE}
    assert_right(world)


def test_nothing_partial_is_published_while_a_rule_fills() -> None:
    world = world_of(LIKES, new_rules=FILLING)
    world.put("POST#1", "METADATA", likeCount=5000)  # by hand, until now
    for user in range(20):
        world.like(user, 1, stars=1)
    world.position = len(world.store.stream("main"))
    seen: list[Any] = []
    number = iter(range(100, 200))

    def live() -> None:
        world.like(next(number), 1, stars=2)
        world.settle()
        seen.append(world.post(1)["likeCount"])

    backfill = backfill_of(world)
    work_off(backfill, backfill.begin(segments=1), live)
    world.settle()
    likes = sum(item["SK"]["S"].startswith("LIKE#") for item in world.store.items("main"))
    assert world.post(1)["likeCount"] == likes
    assert set(seen) <= {5000, *range(20, 200)}
    assert all(a == 5000 or b >= a for a, b in pairwise(seen))
    assert seen[0] == 5000


def test_a_second_backfill_writes_nothing() -> None:
    world = world_of(ALL)
    fill(world)
    for restart in (False, True):
        backfill = backfill_of(world)
        run = work_off(backfill, backfill.begin(segments=2, restart=restart))
        world.settle()
    assert_right(world)
    counts = backfill.report(run)
    assert {name for counted in counts.values() for name, count in counted.items() if count} == {"items", "targets"}


def test_what_was_removed_while_the_stream_was_off_is_retracted_and_copies_go_only_if_that_is_allowed() -> None:
    world = world_of(ALL)
    fill(world)
    backfill = backfill_of(world)
    work_off(backfill, backfill.begin(segments=1))
    world.settle()
    for key in (("USER#4", "LIKE#1"), ("USER#4", "PROFILE"), ("USER#5", "PROFILE"), ("POST#3", "METADATA")):
        world.remove(*key)
    world.position = len(world.store.stream("main"))  # nobody hears of it
    backfill = backfill_of(world, deletes=False)
    run = work_off(backfill, backfill.begin(segments=1))
    world.settle()
    assert world.post(1)["likeCount"] == 2
    assert world.item("NAME#n2", "USER") is not None
    assert world.item("SEEN#4#1", "X") is not None
    assert sum(counted["withheld"] for counted in backfill.report(run).values()) >= 3
    backfill = backfill_of(world)
    work_off(backfill, backfill.begin(segments=1, allow_delete=True))
    world.settle()
    assert world.item("NAME#n2", "USER") is None
    assert world.item("SEEN#4#1", "X") is None
    assert world.item("TAG#t3", "STATS") is None
    assert_right(world)


def test_a_changed_rule_takes_effect_and_functions_with_the_old_one_stop() -> None:
    old = world_of(LIKES)
    fill(old)
    work_off(backfill_of(old), backfill_of(old).begin(segments=1))
    old.settle()
    new = again(old, LIKES.replace("{from: Like,", "{from: Like, where: {stars: [{numeric: ['>=', 30]}]},"))
    backfill = backfill_of(new)
    run = backfill.begin(segments=1, wait=60.0)
    assert run.ready == 1_700_000_060.0
    old.like(1, 1, stars=50)
    stopped = old.deliver()
    assert stopped.failed is not None
    assert "other rules are in force" in str(stopped.failed_reason)
    before = new.post(0)["likeCount"]

    def between() -> None:
        new.like(2, 2, stars=99)

    new.settle()
    assert new.post(1)["likeCount"] == old.post(1)["likeCount"]  # filling: as it was
    work_off(backfill, run, between)
    new.settle()
    assert new.post(0)["likeCount"] < before
    assert_right(new)
    back = again(new, LIKES)  # and back again, by the same way
    work_off(backfill_of(back), backfill_of(back).begin(segments=1))
    back.settle()
    assert_right(back)


@pytest.mark.parametrize("fate", ["keep", "remove"])
def test_a_retired_rule(fate: str) -> None:
    world = world_of(ALL)
    fill(world)
    work_off(backfill_of(world), backfill_of(world).begin(segments=1))
    world.settle()
    rules = ", ".join(f"{name}: {fate}" for name in ("likes", "tags", "names", "seen", "listed"))
    after = again(world, AUTHOR, f"retired: {{{rules}}}\n")
    backfill = backfill_of(after)
    work_off(backfill, backfill.begin(segments=2, allow_delete=True))
    after.settle()
    post, copy, tag = (
        after.item("POST#1", "METADATA", guards=True),
        after.item("NAME#n1", "USER"),
        after.item("TAG#a", "STATS"),
    )
    assert post is not None
    if fate == "keep":
        assert {"likeCount", "best", "GSI1PK", "~likes"} <= post.keys()
        assert copy is not None
        assert tag is not None
        return
    assert post.keys() == {"PK", "SK", "owner", "tags"}
    assert copy is tag is after.item("SEEN#4#1", "X") is None
    assert Registry(after.program, after.store).standing().rules.keys() == {"author"}
    assert all(json.loads(entry["contributions"]) == {} for entry in after.ledger("E|"))


def test_a_renamed_rule_leaves_no_gap() -> None:
    world = world_of(LIKES)
    fill(world)
    work_off(backfill_of(world), backfill_of(world).begin(segments=1))
    world.settle()
    count = world.post(1)["likeCount"]
    after = again(world, LIKES.replace("likes:", "applause:"), "retired: {likes: remove}\n")
    seen: list[Any] = []
    backfill = backfill_of(after)
    work_off(backfill, backfill.begin(segments=1), lambda: seen.append(after.post(1)["likeCount"]))
    after.settle()
    post = after.item("POST#1", "METADATA", guards=True)
    assert post is not None
    assert set(seen) == {count} == {post["likeCount"]}
    assert "~applause" in post
    assert "~likes" not in post


def test_a_rule_that_merely_vanished_is_an_error() -> None:
    world = world_of(ALL)
    fill(world)
    work_off(backfill_of(world), backfill_of(world).begin(segments=1))
    with pytest.raises(
        Misconfigured, match=r"likes: this rule is in force, and the rule file says nothing of it.*retired"
    ):
        backfill_of(again(world, TAGS + NAMES + SEEN + LISTED + AUTHOR)).begin()


def test_a_rule_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="no rule is called 'liks'; there are likes"):
        backfill_of(world_of(LIKES)).begin(rules=["liks"])


class Died(BaseException):
    pass


@pytest.mark.parametrize("deaths", range(1, 60, 7))
def test_a_run_that_dies_anywhere_is_gone_on_with(deaths: int) -> None:
    world = world_of(ALL, new_rules=FILLING)
    fill(world)

    class Mortal(Cautious):
        left = deaths

        def write(self, write: Any) -> None:
            self._count()
            super().write(write)

        def transact(self, writes: Any) -> None:
            self._count()
            super().transact(writes)

        def _count(self) -> None:
            Mortal.left -= 1
            if Mortal.left == 0:
                raise Died

    run = backfill_of(world).begin(segments=2)
    with suppress(Died):
        work_off(backfill_of(world, Mortal(world.store, deletes=True)), run)
    goes_on = backfill_of(world).begin(segments=2)
    assert goes_on.name == run.name or goes_on.phase == "items"
    work_off(backfill_of(world), goes_on)
    world.settle()
    assert_right(world)


def test_a_dry_run_writes_nothing_and_says_what_would_be_written() -> None:
    world = world_of(ALL, new_rules=FILLING)
    fill(world)
    before = world.store.items("main"), world.store.items("ledger")
    store = Cautious(world.store, deletes=False, writes=False)
    backfill = backfill_of(world, store, dry=True)
    counted = Runner(backfill).rehearse(backfill.rehearse((), 1))
    assert (world.store.items("main"), world.store.items("ledger")) == before
    likes = sum(user % 5 for user in range(6))
    assert counted["items"]["applied"] == likes + 4 + 6
    assert counted["items"]["copies"] == likes
    assert counted["items"]["indexed"] == 4
    assert counted["items"]["pulled"] == likes
    assert store.write_units > 0


class FakeQueue:
    """Messages in any order, some twice."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self.delays: list[float] = []

    def send(self, bodies: Any, delays: Any) -> None:
        self.bodies += bodies
        self.delays += delays

    def __iter__(self) -> Iterator[Any]:
        turn = 0
        while self.bodies:
            turn += 1
            body = self.bodies.pop(turn % len(self.bodies))
            yield read(body)
            if turn % 4 == 0 and turn < 40:
                yield read(body)  # delivered twice


def test_a_backfill_by_the_queue_with_messages_that_come_twice() -> None:
    world = world_of(ALL, new_rules=FILLING)
    fill(world)
    backfill, queue = backfill_of(world), FakeQueue()
    send = Tasks(lambda: queue)
    run = backfill.begin(segments=3, wait=60.0)
    queued.start(backfill, run, send)
    for task in queue:
        following = queued.work(backfill, task, Effort(lambda: 900.0), send)
        if following is not None:
            send.send([(following, 0.0)])
    ended = backfill.progress.run()
    assert ended is not None
    assert ended.phase == "done"
    assert 60.0 in queue.delays
    world.settle()
    assert_right(world)


def test_a_queued_backfill_goes_on_where_somebody_died_between_moving_on_and_sending() -> None:
    world = world_of(LIKES, new_rules=FILLING)
    fill(world)
    backfill, queue = backfill_of(world, page=100), FakeQueue()
    run = backfill.begin(segments=1, wait=0.0)
    queued.start(backfill, run, Tasks(lambda: queue))
    (body,) = queue.bodies
    queue.bodies.clear()

    class Deaf:
        def send(self, tasks: Any) -> None:
            raise Died

    with pytest.raises(Died):
        queued.work(backfill, read(body), Effort(lambda: 900.0), Deaf())  # type: ignore[arg-type]
    queue.bodies.append(body)  # it was never acknowledged
    for task in queue:
        queued.work(backfill, task, Effort(lambda: 900.0), Tasks(lambda: queue))  # type: ignore[arg-type]
    ended = backfill.progress.run()
    assert ended is not None
    assert ended.phase == "done"
    world.settle()
    assert_right(world)

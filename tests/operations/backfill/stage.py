"""Tables that hold items before the rules do, for tests of backfills; and what an application does meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from projections.engine.running import Deadline
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.backfill.progress import Run
from projections.operations.backfill.runner import Runner
from projections.testing.oracle import Oracle
from tests.engine.world import World

TABLE = "table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK], GSI2: [GSI2PK, GSI2SK]}}\n"
POST = '  Post: {key: {PK: "POST#{postId}", SK: METADATA}}\n'
LIKE = '  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}\n'
USER = '  User: {key: {PK: "USER#{userId}", SK: PROFILE}}\n'
BY_NAME = '  ByName: {key: {PK: "NAME#{name}", SK: USER}}\n'
SEEN = '  Seen: {key: {PK: "SEEN#{userId}#{postId}", SK: X}}\n'
TAG = '  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}\n'

LIKES = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, best: max(number(stars))}}}\n"
TAGS = "  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"
OWNERS = '  owners: {from: Post, bind: {tag: "{owner}"}, aggregate: {into: Tag, set: {owned: count}}}\n'
NAMES = "  names: {from: User, copy: {into: ByName, attributes: [userId, city]}}\n"
SIGHT = "  seen: {from: Like, copy: {into: Seen, attributes: [stars]}}\n"
LISTED = '  listed: {from: Post, index: {GSI1PK: "BY#{owner}", GSI1SK: "{postId}"}}\n'
AUTHOR = '  author: {from: User, embed: {into: Like, match: {userId: "{userId}"}, attributes: {userCity: city}}}\n'
ALL = LIKES + TAGS + NAMES + SIGHT + LISTED + AUTHOR
"""One of every kind: counted and greatest, derived items, claimed copies, guarded copies, index attributes, children."""

BEGINNING = 1_700_000_000.0


class Died(BaseException):
    """The process dies."""


class Clock:
    """Seconds that pass when somebody sleeps."""

    def __init__(self) -> None:
        self.now = BEGINNING
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class Stage(World):
    """A world whose application may write without anybody hearing of it, and whose rules may change."""

    def __init__(self, rules: str = ALL, retired: str = "", *, of: Stage | None = None, **settings: Any) -> None:
        entities = {"Tag": TAG, "Seen": SEEN, "ByName": BY_NAME}
        head = TABLE + "entities:\n" + POST + LIKE + USER
        head += "".join(entity for name, entity in entities.items() if f"into: {name}" in rules)
        if "entities:" in rules:  # a file of its own, with a table or without
            head = TABLE if "table:" not in rules else "# all of it:\n"
        else:
            rules = "projections:\n" + rules
        self.clock = of.clock if of is not None else Clock()
        super().__init__(
            rules + (f"retired: {retired}\n" if retired else ""), head, **{"clock": self.clock, **settings}
        )
        self.occupied: set[str] = set()
        """The items that backfills rejected because the key of what they make holds an item of another kind."""
        if of is not None:
            self.store, self.position = of.store, of.position
            self.processor = self.worker()

    def under(self, rules: str, retired: str = "") -> Stage:
        """The same tables under other rules."""
        return Stage(rules, retired, of=self, **self.settings)

    def fill(self, users: int = 6, posts: int = 4) -> None:
        """Items of before: the stream says nothing of them."""
        for post in range(posts):
            self.put(f"POST#{post}", "METADATA", owner=f"u{post % 2}", tags=["a", f"t{post}"])
        for user in range(users):
            self.put(f"USER#{user}", "PROFILE", name=f"n{user // 2}", city=f"c{user}")
            for post in range(user % (posts + 1)):
                self.like(user, post, stars=user * 10 + post)
        self.lose()

    def lose(self) -> None:
        """Drop all stream records since then."""
        self.position = len(self.store.stream("main"))

    def act(self, chance: random.Random, users: int = 6, posts: int = 4) -> None:
        """The application does something."""
        user, post = chance.randrange(users), chance.randrange(posts)
        match chance.randrange(9):
            case 0 | 1 | 2:
                self.like(user, post, stars=chance.randrange(100))
            case 3 | 4:
                self.remove(f"USER#{user}", f"LIKE#{post}")
            case 5:
                self.put(f"USER#{user}", "PROFILE", name=f"n{chance.randrange(4)}", city=f"c{chance.randrange(99)}")
            case 6:
                self.remove(f"USER#{user}", "PROFILE")
            case 7:
                tags = sorted({f"t{chance.randrange(4)}" for _ in range(2)})
                self.put(f"POST#{post}", "METADATA", owner=f"u{chance.randrange(3)}", tags=tags)
            case 8:
                self.remove(f"POST#{post}", "METADATA")

    # Backfills

    def backfill(self, **settings: Any) -> Backfill:
        given: dict[str, Any] = {"page": 5, **settings}
        store = given.pop("store", self.store)
        return Backfill(self.program, store, now=lambda: datetime.fromtimestamp(self.clock.now, UTC), **given)

    def runner(self, backfill: Backfill) -> Runner:
        return Runner(backfill, clock=self.clock, sleep=self.clock.sleep)

    def work(self, backfill: Backfill, run: Run, between: Callable[[], Any] = lambda: None) -> Run:
        """Works a run off to its end, its segments in turn; something happens after each page."""
        while not run.done:
            self.phase(backfill, run, between)
            run, _ = backfill.forward(run)
        return run

    def phase(self, backfill: Backfill, run: Run, between: Callable[[], Any] = lambda: None) -> None:
        """All pages of a run's phase."""
        while left := [segment for segment in backfill.segments(run) if not segment.done]:
            for segment in left:
                done = backfill.page(run, segment, deadline())
                assert done.page.failed == {}
                assert [one for one in done.page.rejected if not one.reason.startswith("occupied:")] == []
                self.occupied |= {one.key or "" for one in done.page.rejected}
                between()

    def apply(self, backfill: Backfill, **begin: Any) -> Run:
        """Registers the rules, and begins to fill those that are not published."""
        _, versions = backfill.registry.register(self.program)
        waiting = [version.name for version in versions.values() if version.state != "active"]
        return backfill.begin(**{"versions": waiting, "segments": 2, **begin})

    def filled(
        self, between: Callable[[], Any] = lambda: None, occupied: Collection[str] = (), **begin: Any
    ) -> dict[str, Any]:
        """The rules applied from beginning to end; what was counted by phase. `occupied` is what is to be found so."""
        backfill = self.backfill()
        run = self.work(backfill, self.apply(backfill, **{"allow_delete": True, **begin}), between)
        assert self.occupied == set(occupied)
        self.settle()
        return backfill.report(run)

    # What can be seen

    def states(self) -> dict[str, str]:
        """The state of each version, such as `likes.1`, without those that are gone."""
        versions = self.registry().read_or_create().versions.items()
        return {name: version.state for name, version in versions if version.state != "gone"}

    def published(self) -> set[str]:
        """The rules that are published."""
        return set(self.registry().read_or_create().active)

    def right(self) -> None:
        """Everything derived is as the oracle has it."""
        assert Oracle(self.program.document).compare({"main": self.store.items("main")}) == []

    def removed(self) -> list[str]:
        """The partition keys of all items that were ever deleted."""
        records = self.store.stream("main")
        return [r["dynamodb"]["Keys"]["PK"]["S"] for r in records if r["eventName"] == "REMOVE"]


def deadline() -> Deadline:
    return Deadline(lambda: 900.0, sleep=lambda seconds: None)


def before(stage: World, method: str, work: Callable[[], Any], call: int = 0) -> None:
    """Somebody does something just before a call of the store, and nothing at the calls this makes itself."""
    original, calls = getattr(stage.store, method), iter(range(1_000_000))

    def called(*arguments: Any, **options: Any) -> Any:
        if next(calls) == call:
            setattr(stage.store, method, original)
            work()
        return original(*arguments, **options)

    setattr(stage.store, method, called)


def lived(rules: str = ALL, **settings: Any) -> Stage:
    """Tables that these rules have maintained."""
    stage = Stage(rules, **settings)
    stage.fill()
    stage.filled()
    stage.right()
    return stage

"""What one write of an item can cost, and many such writes: changes beyond the budget of a rule wait for the worker."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from projections.engine.budget import Budget, Refresh
from projections.engine.rejections import Rejected
from projections.engine.running import Pacer
from projections.engine.store import ItemKey, Update, Write, all_items
from projections.errors import BadInput
from projections.local.functions import LocalQueue
from projections.operations.tasks import Tasks, read, write
from projections.operations.worker import Work, WorkerHandler
from projections.stores.limits import item_size, write_units
from tests.engine.world import CountingStore, World

HEAD = """
table: {key: [PK, SK], ttl: until}
entities:
  Doc: {key: {PK: "DOC#{docId}", SK: D}}
  Tag: {key: {PK: "TAG#{tag}", SK: T}, derived: true}
  Copy: {key: {PK: "COPY#{tag}", SK: "{docId}"}}
projections:
"""
PLAIN = HEAD.replace(", derived: true", "")
TAGS = "  tags: {from: Doc, each: {tag: tags}, aggregate: {into: Tag, set: {uses: count}}}\n"
COPIES = "  copies: {from: Doc, each: {tag: tags}, copy: {into: Copy, attributes: all}}\n"


class Units:
    """A store that counts the write units of requests: every item here has less than 1 KB, apart from entries."""

    def __init__(self, store: CountingStore) -> None:
        self._store = store
        self.units = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def transact(self, writes: Sequence[Write]) -> None:
        self.units += 2 * len(writes)
        self._store.transact(writes)

    def write_each(self, writes: Sequence[Any]) -> Any:
        self.units += len(writes)
        return self._store.write_each(writes)

    def write(self, write: Write) -> Any:
        before = self._store.get(write.key)
        try:
            return self._store.write(write)
        finally:
            images = (before, self._store.get(write.key)) if write.key.table == "main" else ()
            self.units += max([write_units(item_size(image)) for image in images if image], default=1)


class Scene:
    """A world with a task queue and a worker, whose clock the test sets."""

    def __init__(self, rules: str = TAGS, per_minute: float = 0, *, queue: bool = True, head: str = HEAD) -> None:
        self.now = 1_700_000_000.0
        self.queue = LocalQueue(self.clock)
        self.rejected: list[Rejected] = []
        self.seen: list[Work] = []
        tasks = Tasks(lambda: self.queue) if queue else None
        budget = Budget(per_minute, clock=self.clock)
        self.world = World(rules, head, tasks=tasks, budget=budget, clock=self.clock)
        self.store: Any = Units(self.world.store)
        self.world.store = self.store
        self.world.processor = self.world.worker()

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def put(self, doc: int, tags: Sequence[str], kind: str = "DOC", sort: str = "D") -> None:
        self.world.put(f"{kind}#{doc}", sort, tags=list(tags))

    def units(self, work: Callable[[], object]) -> int:
        before = self.store.units
        work()
        return int(self.store.units - before)

    def work(self, per_second: float = 500) -> list[str]:
        """Do the tasks that are due, with what they lead to; the messages that failed."""
        failed = []
        while (event := self.queue.receive()) is not None:
            worker = WorkerHandler(
                self.world.program,
                self.world.store,
                tasks=Tasks(lambda: self.queue),
                quarantine=self.rejected.extend,
                pacer=Pacer(per_second, clock=self.clock, sleep=self.sleep),
                sleep=self.sleep,
                observe=self.seen.append,
            )
            end = self.now + 60
            answer = worker.handle(event, lambda end=end: end - self.now)
            failed += [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]
        self.world.settle()
        return failed

    def uses(self, tag: str) -> int:
        return int((self.world.item(f"TAG#{tag}", "T") or {"uses": 0})["uses"])

    def counts(self, name: str) -> int:
        return int(sum(work.counts[name] for work in self.seen))


def tags(first: str, number: int = 100) -> list[str]:
    return [f"{first}{n:x}" for n in range(number)]


# One write


@pytest.mark.deep
@pytest.mark.parametrize(("elements", "before", "after"), [(100, 609, 609), (4000, 24_165, 0)])
def test_replacing_a_list_costs_a_bounded_number_of_write_units(elements: int, before: int, after: int) -> None:
    """`before`: as if there were no limit (1,208 times the units of a put of 20 KB). `after`: with the default of 100."""

    def replaced(rules: str) -> int:
        scene = Scene(rules, head=PLAIN)
        scene.put(1, tags("", elements))
        scene.world.settle()
        scene.put(1, tags("~", elements))
        return scene.units(lambda: scene.world.deliver())

    assert replaced(TAGS.replace("{tag: tags}", "{tag: tags, most: 10000}")) == before
    assert replaced(TAGS) == after


# Many writes


@pytest.mark.deep
def test_an_attack_costs_the_budget_at_once_and_one_refresh_for_each_item_later() -> None:
    """Eight items of 100 elements are replaced three times within a minute: 24 puts, of a unit each."""
    unlimited, limited = Scene(), Scene(per_minute=2000)

    def replace(scene: Scene, versions: str) -> None:
        for version in versions:
            for doc in range(8):
                scene.put(doc, tags(f"{doc}{version}"))
                scene.world.deliver()

    for scene in (unlimited, limited):
        replace(scene, "0")
        scene.now += 60
        scene.work()
        scene.now += 60
    assert unlimited.units(lambda: replace(unlimited, "abc")) == 24 * 709
    assert limited.units(lambda: replace(limited, "abc")) == 5 * 709  # 400 writes each
    limited.now += 60
    assert limited.units(limited.work) < 8 * 709 + 19 * 2 + 300  # one refresh each, and the newest version of each task
    for scene in (unlimited, limited):
        assert [scene.uses(f"{doc}c0") for doc in range(8)] == [1] * 8
        assert [scene.uses(f"{doc}{version}0") for doc in range(8) for version in "0ab"] == [0] * 24


def write_doc(scene: Scene, first: str, elements: int = 100, size: int = 380_000, **more: str) -> int:
    """Put an item whose copies have keys with `first`. Return whether they are left to the worker."""
    scene.world.put("DOC#1", "D", tags=tags(first, elements), body=first * size, **more)
    return scene.world.deliver().counts["deferred"]


def copies(scene: Scene) -> list[Any]:
    return [item for item in all_items(partial(scene.world.store.scan, "main")) if "COPY" in item["PK"]["S"]]


@pytest.mark.deep
def test_an_attack_with_copies_costs_one_refresh_of_the_item() -> None:
    """A put of 372 units, six times within a minute, each time with 100 other targets: their copies have as many units."""
    for per_minute, at_once, later in ((0, 37_200 + 5 * 2 * 37_200, 0), (10_000, 0, 37_200)):
        scene = Scene(COPIES, per_minute, head=PLAIN)
        assert scene.units(lambda scene=scene: [write_doc(scene, first) for first in "abcdef"]) == at_once  # type: ignore[misc]
        scene.now += 60
        assert scene.units(scene.work) == later
        assert [copy["body"]["S"][0] for copy in copies(scene)] == ["f"] * 100
        assert (len(scene.queue), len(scene.seen) > 1) == (0, per_minute > 0)  # a minute each, at 500 units a second


def test_copies_that_are_left_are_neither_old_nor_wrong() -> None:
    scene = Scene(COPIES, 90, head=PLAIN)
    assert write_doc(scene, "a", 10, 3000, secret="s") == 0  # 40 units, and 40 to remove them
    scene.world.store.write(Update(ItemKey("main", "COPY#a0", "1"), set={"note": {"S": "of the application"}}))
    scene.world.put("DOC#1", "D", tags=["a0"], body="late")
    late = scene.world.records()
    assert write_doc(scene, "a", 20, 3000) == 1
    scene.queue.send([write(Refresh("main|DOC#1|D", f"9/{9:040}", rule="copies", signature="x"))], [0])  # forged
    scene.now += 30
    assert scene.work() == []
    scene.world.worker().process(late, remaining=lambda: 900.0)  # a function that was paused with it
    assert [(len(copy["body"]["S"]), "secret" in copy) for copy in copies(scene)] == [(3000, False)] * 20
    assert write_doc(scene, "b", 40, 3000) == 1
    assert [copy.keys() & {"body", "secret", "note"} for copy in copies(scene)] == [{"note"}]


def test_the_budget_returns_within_a_minute_and_each_rule_has_its_own() -> None:
    again = TAGS.replace("tags: {", "more: {").replace("tag: tags", "tag: more").replace("uses", "marks")
    scene = Scene(TAGS + again, per_minute=60)
    scene.put(1, tags("a", 25))
    assert scene.world.deliver().counts["deferred"] == 0  # 50 writes
    scene.put(2, tags("b", 25))
    assert scene.world.deliver().counts["deferred"] == 1
    scene.world.put("DOC#3", "D", more=tags("c", 25))
    assert scene.world.deliver().counts["deferred"] == 0
    scene.now += 41
    scene.put(4, tags("d", 25))
    assert scene.world.deliver().counts["deferred"] == 0


# Never wrong


def test_a_small_change_after_a_deferred_one_is_deferred_too_and_a_refresh_makes_both() -> None:
    """It looks small in its record, but the entry lacks what was deferred."""
    scene = Scene(per_minute=1)
    scene.put(1, tags("a", 100))
    assert scene.world.deliver().counts["deferred"] == 1
    scene.put(1, [*tags("a", 99), "b"])
    assert scene.world.deliver().counts["deferred"] == 1
    scene.now += 30
    assert scene.work() == []
    assert (scene.uses("a62"), scene.uses("a63"), scene.uses("b")) == (1, 0, 1)
    assert scene.counts("refreshes") == 2
    assert len(scene.world.ledger("G|tags.1|")) == 100, "both tasks were one refresh"


def test_an_older_record_that_arrives_after_the_refresh_is_a_duplicate() -> None:
    scene = Scene(per_minute=1)
    scene.put(1, tags("a"))
    late = scene.world.records()
    scene.put(1, tags("b"))
    assert scene.world.deliver().counts["deferred"] == 1
    scene.now += 30
    assert scene.work() == []
    scene.world.settings["budget"] = Budget(0)
    outcome = scene.world.worker().process(late, remaining=lambda: 900.0)  # a function that was paused with it
    assert outcome.counts["duplicates"] == 1
    assert (scene.uses("a0"), scene.uses("b0")) == (0, 1)


@pytest.mark.parametrize("per_minute", [0, 30])
@pytest.mark.parametrize(
    ("by_ttl", "early", "again"),
    [(False, False, False), (True, False, False), (True, True, False), (False, False, True)],
)
def test_a_deferred_removal_means_the_same_to_a_rule_that_keeps_what_expired_and_is_added_meanwhile(
    by_ttl: bool, early: bool, again: bool, per_minute: float
) -> None:
    """`early`: registered before the removal. `again`: another item is put under the key and expires while it fills."""
    head, retract = HEAD.replace("SK: D}}", "SK: D}, expires: true}"), TAGS.replace("Doc", "Doc, expired: retract")
    scene = Scene(retract, per_minute, head=head)
    w = scene.world
    new = w.under(
        retract + TAGS.replace("tags: {from: Doc", "kept: {from: Doc, expired: keep").replace("uses", "ever"), head
    )
    if early:
        new.registry().register(new.program)
    scene.put(1, tags("a", 11))
    w.deliver()
    w.remove("DOC#1", "D", by_ttl=by_ttl)
    w.deliver()
    assert len(scene.queue) == (bool(per_minute) and not early), "once it expires, only its records show what to keep"
    if again:
        new.registry().register(new.program)
        scene.put(1, tags("a", 11))
        assert w.deliver().counts["deferred"] == 0
        w.remove("DOC#1", "D", by_ttl=True)
        w.deliver()
    scene.now += 60
    assert scene.work() == []
    new.apply()
    shown = {"uses": 0, "ever": 0, **(w.item("TAG#a0", "T") or {})}
    assert (shown["uses"], shown["ever"]) == (0, early or again)


# Messages


def test_a_refresh_that_the_ledger_did_not_sign_makes_no_record_a_duplicate() -> None:
    """Who can send to the queue, and do no more, gains nothing."""
    scene = Scene()
    scene.put(1, ["a"])
    scene.world.deliver()
    for signature in ("", "x" * 16, "é"):
        forged = Refresh("main|DOC#1|D", f"9/{9:040}", gone=True, signature=signature)
        scene.queue.send([write(forged)], [0])
    assert scene.work() == []
    assert scene.uses("a") == 1
    scene.put(1, ["b"])
    assert scene.world.deliver().counts["duplicates"] == 0
    assert (scene.uses("a"), scene.uses("b")) == (0, 1)


@pytest.mark.parametrize("fields", [
    {}, {"source": "x", "version": "a/1"}, {"source": "main|a|b", "version": "a/1"}, {"source": 1, "version": f"a/{1:040}"},
    {"source": "main|a|b", "version": f"a/{1:040}", "gone": 1}, {"source": "main|a|b", "version": f"a/{'9' * 41}"},
])  # fmt: skip
def test_a_forged_refresh_is_reported(fields: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="task"):
        read(json.dumps({"refresh": fields}))

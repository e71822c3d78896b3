"""The worker does the pages of pushes: in any order, twice, after a crash at any point, and at a known pace."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from projections.aws.queues import Queue
from projections.engine.embeds import Embedder, Push
from projections.engine.records import stream_label, version_of
from projections.engine.rejections import Rejected
from projections.engine.running import Pacer
from projections.engine.store import Update, Write
from projections.errors import BadInput, InvalidRequest, StoreError, Transient
from projections.operations import tasks
from projections.operations.tasks import Tasks, read, write
from projections.operations.worker import MARGIN_SECONDS, Work, WorkerHandler
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI1PK: "AUTHOR#{userId}"}}
projections:
"""
RULES = """
  author: {from: User, embed: {into: Comment, match: {userId: "{userId}"}, attributes: {userName: name}, on_delete: keep}}
"""
PAGE = 3
"""Children a page, here."""


class Stopped(BaseException):
    """The function dies."""


class Clock:
    """A clock that advances with sleeps, or by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Scene:
    """A world with comments, a queue, and workers."""

    def __init__(self, **users: int) -> None:
        self.queue: list[tuple[str, float]] = []
        self.tasks = Tasks(lambda: self)
        self.refusals: list[StoreError] = []
        self.quarantined: list[Rejected] = []
        self.seen: list[Work] = []
        self.clock = Clock()
        self.world = World(RULES, HEAD, tasks=self._first)
        self.users = users
        for user, comments in users.items():
            self.world.put(f"USER#{user}", "PROFILE", name="old")
            for number in range(comments):
                self.world.put(
                    "POST#1", f"COMMENT#{user}{number:03}", userId=user, GSI1PK=f"AUTHOR#{user}", GSI1SK=f"{number:03}"
                )
        self.world.settle()

    def _first(self, push: Push, seconds: float) -> None:
        """Of the stream's function: its page holds all children here, so nothing is left but a second pass."""

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.queue += zip(bodies, delays, strict=True)

    def rename(self, user: str, name: str = "new") -> Push:
        """A new name that has not reached any comment, and the task that makes it."""
        self.world.put(f"USER#{user}", "PROFILE", name=name)
        record = self.world.records()[-1]
        self.world.position = len(self.world.store.stream("main"))
        version = version_of(stream_label(record["eventSourceARN"]), record["dynamodb"]["SequenceNumber"])
        push = Push("author", f"main|USER#{user}|PROFILE", version)
        Embedder(self.world.program, self.world.store, self.world.guards()).raise_fence(push)
        return push

    def worker(self, **settings: Any) -> WorkerHandler:
        given: dict[str, Any] = {
            "tasks": self.tasks,
            "quarantine": self.quarantined.extend,
            "pacer": Pacer(1000, clock=self.clock, sleep=self.clock.sleep),
            "observe": self.seen.append,
            "sleep": self.clock.sleep,
            "chance": lambda: 0.5,
            "children_per_page": PAGE,
            **settings,
        }
        return WorkerHandler(self.world.program, self.world.store, **given)

    def handle(self, *bodies: str, seconds: float = 60.0, **settings: Any) -> list[str]:
        """One invocation; the identifiers of what failed. Messages are numbered from 1."""
        end = self.clock.now + seconds
        answer = self.worker(**settings).handle(event(*bodies), lambda: end - self.clock.now)
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def drain(self) -> None:
        """Workers take what is in the queue, the youngest first, all of it twice, again if they die, until it is empty."""
        for _ in range(100):
            if not self.queue:
                return
            body, _ = self.queue.pop()
            try:
                assert self.handle(body, body) == []
            except Stopped:
                self.queue.append((body, 0.0))
        raise AssertionError("the queue never empties")

    def names(self, user: str) -> list[Any]:
        items = [self.world.item("POST#1", f"COMMENT#{user}{n:03}") or {} for n in range(self.users[user])]
        return [item.get("userName") for item in items]


def event(*bodies: str) -> dict[str, Any]:
    return {"Records": [{"messageId": str(n), "body": body} for n, body in enumerate(bodies, 1)]}


def failing(scene: Scene, method: str, fault: Callable[[int], BaseException | None]) -> None:
    """Make a method of the store fail for the numbers of calls for which `fault` returns an error."""
    calls = iter(range(1_000_000))
    original = getattr(scene.world.store, method)

    def call(*arguments: Any, **options: Any) -> Any:
        error = fault(next(calls))
        if error is not None:
            raise error
        return original(*arguments, **options)

    setattr(scene.world.store, method, call)


# Messages.


@pytest.mark.parametrize(
    "body", ["", "x", "null", "[]", "{}", '{"push": 1}', '{"push": {}}', '{"push": {"rule": "r"}}', None, 5,
             '{"push": {"rule": "a", "parent": "b", "version": "c"}}', '{"other": {}}'],
)  # fmt: skip
def test_an_invalid_task_is_reported(body: object) -> None:
    with pytest.raises(BadInput, match="task"):
        read(body)


def test_a_forged_task_writes_nothing_but_what_the_parent_has() -> None:
    """A task names a parent and a page, and never a value. One who may send to the queue costs reads, and gains nothing."""
    scene = Scene(ann=3, bob=2)
    honest = Push("author", "main|USER#ann|PROFILE", "0")
    forged = [
        honest._replace(version="~" * 40),
        honest._replace(version="", again=True),
        honest._replace(after={"GSI1PK": {"S": "AUTHOR#bob"}, "PK": {"S": "POST#1"}}),
        honest._replace(parent="main|POST#1|COMMENT#ann000"),
        honest._replace(parent="main|USER#eve|PROFILE"),
        honest._replace(parent="ledger|R|R"),
        honest._replace(rule="other"),
    ]
    offer = json.dumps([{"userName": {"S": "ADMIN"}}, ["ann"]])
    bodies = [write(one) for one in forged]
    bodies += [json.dumps({"push": {**one._asdict(), "last": offer}}) for one in forged]
    for body in bodies:
        scene.handle(body)
    assert scene.names("ann") + scene.names("bob") == ["old"] * 5
    scene.queue.append((write(scene.rename("ann")), 0.0))
    scene.drain()
    assert scene.names("ann") == ["new"] * 3


def test_a_message_is_held_back_for_as_long_as_its_task_has_to_wait() -> None:
    requests: list[Any] = []

    class Sqs:
        def send_message_batch(self, **request: Any) -> dict[str, Any]:
            requests.append(request["Entries"])
            return {}

    client: Any = Sqs()
    push = Push("author", "main|USER#a|PROFILE", "1")
    Tasks(lambda: Queue(client, "https://queue")).send([(push, 0.0), (push, 4.2), (push, 5000.0)])
    assert [entry.get("DelaySeconds") for entry in requests[0]] == [None, 5, 900]


# Pages.


def test_all_pages_are_done_in_one_invocation_and_the_second_pass_waits_for_the_index() -> None:
    scene = Scene(ada=10)
    push = scene.rename("ada")
    assert scene.handle(write(push)) == []
    assert scene.names("ada") == ["new"] * 10
    ((body, delay),) = scene.queue
    assert (read(body).again, read(body).after, delay) == (True, None, 5.0)
    assert scene.seen[-1].counts == {
        "tasks": 1,
        "pages": 4,
        "pushes": 0,
        "refreshes": 0,
        "embedded": 10,
        "rejected": 0,
        "internal": 0,
    }
    scene.queue.clear()
    assert scene.handle(body) == []
    assert scene.queue == []
    assert scene.seen[-1].counts == {
        "tasks": 1,
        "pages": 4,
        "pushes": 1,
        "refreshes": 0,
        "embedded": 0,
        "rejected": 0,
        "internal": 0,
    }


def test_the_second_pass_reaches_what_the_index_did_not_show() -> None:
    scene = Scene(ada=1)
    push = scene.rename("ada")
    assert scene.handle(write(push)) == []
    scene.users["ada"] = 2
    scene.world.put("POST#1", "COMMENT#ada001", userId="ada", GSI1PK="AUTHOR#ada", GSI1SK="1", userName="stale")
    scene.drain()
    assert scene.names("ada") == ["new", "new"]


def test_pages_without_time_go_back_to_the_queue_and_the_message_is_done() -> None:
    """Each page takes its time here, so one invocation does some pages and another goes on where it ended."""
    scene = Scene(ada=10)
    push = scene.rename("ada")
    slow = Pacer(1, clock=scene.clock, sleep=scene.clock.sleep)  # three seconds a page
    assert scene.handle(write(push), seconds=MARGIN_SECONDS + 4, pacer=slow) == []
    assert scene.names("ada") == ["new"] * 6 + ["old"] * 4
    ((body, delay),) = scene.queue
    assert (read(body).version, read(body).after is not None, delay) == (push.version, True, 0.0)
    scene.drain()
    assert scene.names("ada") == ["new"] * 10


def lengths(scene: Scene, allowed: bool) -> list[int]:
    """Works off the queue as Lambda does; the lengths of its chains, which are cut after 16 unless that is allowed."""
    slow = Pacer(1, clock=scene.clock, sleep=scene.clock.sleep)  # two pages each time
    chains = dict.fromkeys([body for body, _ in scene.queue], 1)
    found = []
    while scene.queue:
        body, _ = scene.queue.pop()
        chain = chains.pop(body)
        if chain > 16 and not allowed:
            continue
        found.append(chain)
        assert scene.handle(body, seconds=MARGIN_SECONDS + 4, pacer=slow) == []
        chains |= dict.fromkeys([body for body, _ in scene.queue], chain + 1)
    return found


@pytest.mark.parametrize("allowed", [True, False])
def test_a_push_of_many_messages_needs_a_function_that_may_call_itself(allowed: bool) -> None:
    scene = Scene(ada=120)
    scene.queue.append((write(scene.rename("ada")), 0.0))
    assert max(lengths(scene, allowed)) == (40 if allowed else 16)  # two passes over 40 pages
    assert set(scene.names("ada")) == ({"new"} if allowed else {"new", "old"})


def test_a_chain_of_messages_is_bounded_and_continues_when_it_is_redriven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_HOPS", 4)
    scene = Scene(ada=40)
    slow = Pacer(1, clock=scene.clock, sleep=scene.clock.sleep)
    body = write(scene.rename("ada"))
    for hop in range(4):
        assert tasks.hop_of(body) == hop
        assert scene.handle(body, seconds=MARGIN_SECONDS + 4, pacer=slow) == []
        ((body, _),) = scene.queue
        scene.queue.clear()
    assert scene.handle(body, seconds=MARGIN_SECONDS + 4, pacer=slow) == ["1"]
    assert "stopped after 4 messages" in scene.seen[-1].failed["1"]
    assert tasks.hop_of(write(read(body))) == 0
    scene.queue.append((write(read(body)), 0.0))
    monkeypatch.undo()
    scene.drain()
    assert scene.names("ada") == ["new"] * 40


def test_tasks_take_turns() -> None:
    scene = Scene(ada=10, ben=2)
    slow = Pacer(1, clock=scene.clock, sleep=scene.clock.sleep)
    bodies = [write(scene.rename(user)) for user in ("ada", "ben")]
    assert scene.handle(*bodies, seconds=MARGIN_SECONDS + 4, pacer=slow) == []
    assert scene.names("ben") == ["new"] * 2
    assert scene.names("ada") == ["new"] * 3 + ["old"] * 7
    scene.drain()
    assert scene.names("ada") == ["new"] * 10


def test_without_time_for_a_single_page_a_message_fails_lest_it_goes_round_for_ever() -> None:
    scene = Scene(ada=1)
    assert scene.handle(write(scene.rename("ada")), seconds=MARGIN_SECONDS) == ["1"]
    assert scene.queue == []
    assert "time was up" in scene.seen[-1].failed["1"]


def test_a_rule_that_was_held_meanwhile_writes_nothing() -> None:
    """The rule was held, and applied, while a page was in the queue."""
    scene = Scene(ada=2)
    push = scene.rename("ada")
    scene.world = scene.world.under(RULES.replace("{from: User,", "{from: User, hold: true,"), HEAD)
    scene.world.registry().register(scene.world.program)
    assert scene.handle(write(push)) == []
    scene.drain()
    assert scene.names("ada") == ["old", "old"]


@pytest.mark.parametrize("method", ["get", "query", "write_each", "write"])
def test_a_crash_at_any_point_only_repeats_pages(method: str) -> None:
    """The function dies at every call of the store in turn; the message comes again, and so may what it sent already."""
    for crash in range(12):
        scene = Scene(ada=7)
        body = write(scene.rename("ada"))
        failing(scene, method, lambda call, crash=crash: Stopped() if call == crash else None)  # type: ignore[misc]
        try:
            scene.handle(body, seconds=MARGIN_SECONDS + 30)
        except Stopped:
            scene.queue.append((body, 0.0))
        scene.drain()
        assert scene.names("ada") == ["new"] * 7, (method, crash)


# Failures.


def test_what_keeps_failing_fails_its_own_message_only() -> None:
    scene = Scene(ada=4, ben=4)
    bodies = [write(scene.rename(user)) for user in ("ada", "ben")]
    original = scene.world.store.query

    def query(table: str, values: Any, **options: Any) -> Any:
        if values == [{"S": "AUTHOR#ada"}]:
            raise Transient("throttled")
        return original(table, values, **options)

    scene.world.store.query = query  # type: ignore[method-assign]
    assert scene.handle(*bodies) == ["1"]
    assert scene.names("ben") == ["new"] * 4
    assert scene.seen[-1].failed == {"1": "throttled"}


@pytest.mark.parametrize("body", ["", '{"Records": []}', write(Push("author", "main|USER#ada|PROFILE", "9", after=5))])
def test_a_message_that_is_no_task_fails_with_a_reason_and_others_are_done(body: str) -> None:
    scene = Scene(ada=4)
    assert scene.handle(body, write(scene.rename("ada"))) == ["1"]
    assert scene.names("ada") == ["new"] * 4
    assert scene.seen[-1].failed["1"]


def test_what_is_left_but_cannot_be_sent_makes_the_message_come_again() -> None:
    scene = Scene(ada=10)
    push = scene.rename("ada")
    scene.refusals = [Transient("the queue did not answer")]
    slow = Pacer(1, clock=scene.clock, sleep=scene.clock.sleep)
    assert scene.handle(write(push), seconds=MARGIN_SECONDS + 4, pacer=slow) == ["1"]
    assert "could not be sent" in scene.seen[-1].failed["1"]
    assert scene.handle(write(push)) == []
    scene.drain()
    assert scene.names("ada") == ["new"] * 10


def refusing(scene: Scene) -> None:
    """The store refuses the second comment, whatever is written there."""
    original = scene.world.store.write

    def write_one(update: Write) -> None:
        if isinstance(update, Update) and update.key.sort == "COMMENT#ada001":
            raise InvalidRequest("the item is too large")
        original(update)

    scene.world.store.write = write_one  # type: ignore[method-assign, assignment]


def test_a_child_that_can_never_be_written_is_quarantined_and_the_others_are_updated() -> None:
    scene = Scene(ada=4)
    push = scene.rename("ada")
    refusing(scene)
    assert scene.handle(write(push)) == []
    assert scene.names("ada") == ["new", "old", "new", "new"]
    (one,) = scene.quarantined
    assert (one.rule, one.key, one.table) == ("author", "main|POST#1|COMMENT#ada001", "main")
    assert scene.seen[-1].counts["rejected"] == 1


# The pace.


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_the_first_caller_does_not_wait_and_all_callers_keep_the_rate(clock: Clock) -> None:
    pacer = Pacer(100, clock=clock, sleep=clock.sleep)
    began = []
    for writes in (50, 100, 0, 25, 25):
        pacer(writes)
        began.append(clock.now)
    assert began == [0.0, 0.5, 0.5, 1.5, 1.75]


def test_a_push_keeps_the_pace() -> None:
    scene = Scene(ada=10)
    pacer = Pacer(2, clock=scene.clock, sleep=scene.clock.sleep)
    scene.handle(write(scene.rename("ada")), pacer=pacer)
    assert scene.clock.now == 4.5  # nine children before the last page
    assert json.loads(scene.queue[0][0])["push"]["again"]

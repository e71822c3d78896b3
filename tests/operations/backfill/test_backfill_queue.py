"""A backfill as tasks on a queue: messages come twice, late, out of order, and functions die at any point."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest

from projections.engine.embeds import Push
from projections.engine.rejections import Rejected
from projections.engine.running import Pacer
from projections.errors import Transient
from projections.operations.backfill import runner
from projections.operations.backfill.progress import Run
from projections.operations.tasks import BackfillTask, Tasks, write
from projections.operations.worker import Work, WorkerHandler
from tests.operations.backfill.stage import ALL, LIKES, Died, Stage, deadline


class Line:
    """A queue, and workers that take from it as chance has it."""

    def __init__(self, stage: Stage, seed: int = 0) -> None:
        self.stage = stage
        self.chance = random.Random(seed)
        self.messages: list[tuple[float, str]] = []
        self.quarantined: list[Rejected] = []
        self.seen: list[Work] = []
        self.tasks = Tasks(lambda: self)
        self.deaths = 0.0
        """How likely a worker dies when it sends."""

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        if self.chance.random() < self.deaths:
            raise Died
        now = self.stage.clock.now
        self.messages += [(now + delay, body) for body, delay in zip(bodies, delays, strict=True)]

    def worker(self, **settings: Any) -> WorkerHandler:
        given: dict[str, Any] = {
            "tasks": self.tasks,
            "quarantine": self.quarantined.extend,
            "pacer": Pacer(10_000, clock=self.stage.clock, sleep=self.stage.clock.sleep),
            "observe": self.seen.append,
            "sleep": self.stage.clock.sleep,
            "now": lambda: datetime.fromtimestamp(self.stage.clock.now, UTC),
            **settings,
        }
        return WorkerHandler(self.stage.program, self.stage.store, **given)

    def handle(self, *bodies: str, seconds: float = 60.0, **settings: Any) -> list[str]:
        """One invocation; the identifiers of what failed. Messages are numbered from 1."""
        end = self.stage.clock.now + seconds
        event = {"Records": [{"messageId": str(n), "body": body} for n, body in enumerate(bodies, 1)]}
        answer = self.worker(**settings).handle(event, lambda: end - self.stage.clock.now)
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]

    def begin(self, **options: Any) -> Run:
        backfill = self.stage.backfill()
        run = self.stage.apply(backfill, **{"segments": 3, **options})
        runner.send_tasks(backfill, run, self.tasks)
        return run

    def drain(self, twice: float = 0.0, between: Callable[[], Any] = lambda: None) -> None:
        """Workers take what is due in any order, `twice` as likely as that; what fails or dies comes again."""
        for _ in range(2000):
            if not self.messages:
                return
            due = [message for message in self.messages if message[0] <= self.stage.clock.now]
            if not due:
                self.stage.clock.now = min(at for at, _ in self.messages)
                continue
            message = self.chance.choice(due)
            if self.chance.random() >= twice:
                self.messages.remove(message)
            try:
                failed = self.handle(message[1])
            except Died:
                failed = ["1"]
            if failed and message not in self.messages:
                self.messages.append((self.stage.clock.now + 360.0, message[1]))
            between()
        raise AssertionError("the queue never empties")

    def run(self) -> Run:
        found = self.stage.backfill().progress.run()
        assert found is not None
        return found


def lined(rules: str = ALL, seed: int = 0) -> Line:
    stage = Stage(rules, filled=False)
    stage.fill()
    return Line(stage, seed)


@pytest.mark.parametrize("seed", range(6))
def test_messages_in_any_order_some_twice_and_live_writes(seed: int) -> None:
    line = lined(seed=seed)
    run = line.begin(segments=1 + seed % 4)

    def meanwhile() -> None:
        if line.chance.random() < 0.5:
            line.stage.act(line.chance)
        if line.chance.random() < 0.5:
            line.stage.settle()

    line.drain(twice=0.3, between=meanwhile)
    assert (line.run().name, line.run().phase) == (run.name, "done")
    assert line.stage.published() == set(line.stage.program.rules)
    line.stage.settle()
    line.stage.right()


@pytest.mark.parametrize("seed", range(6))
def test_functions_that_die_when_they_send_leave_nothing_undone(seed: int) -> None:
    line = lined(seed=seed)
    line.begin(segments=2)
    line.deaths = 0.4
    line.drain(twice=0.1)
    assert line.run().done
    line.stage.settle()
    line.stage.right()


def test_everything_is_counted_once_however_often_it_is_delivered() -> None:
    line = lined(seed=3)
    run = line.begin(segments=2)
    line.drain(twice=0.5)
    report = line.stage.backfill().report(line.run())
    likes = sum(user % 5 for user in range(6))
    assert report["items"]["entries"] == likes + 4 + 6
    assert run.name == line.run().name


def test_pages_and_pushes_take_turns() -> None:
    line = lined()
    line.begin(segments=1)
    (_, body) = line.messages.pop()
    push = write(Push("author", "main|USER#4|PROFILE", "9999|1"))
    done: list[str] = []
    original = line.stage.store.scan

    def scan(table: str, **options: Any) -> Any:
        done.append("page")
        return original(table, **options)

    query = line.stage.store.query

    def called(table: str, values: Any, **options: Any) -> Any:
        if values == [{"S": "USER#4"}]:
            done.append("push")
        return query(table, values, **options)

    line.stage.store.scan, line.stage.store.query = scan, called  # type: ignore[method-assign]
    assert line.handle(body, push, items_per_page=5) == []
    assert done[:2] == ["page", "push"]
    assert done.count("page") > 2


def test_a_page_that_fails_makes_its_message_come_again_and_is_not_passed_over() -> None:
    line = lined(LIKES)
    line.begin(segments=1)
    (_, body) = line.messages.pop()
    with patch.object(line.stage.store, "transact", side_effect=Transient("throttled")):
        assert line.handle(body) == ["1"]
    assert "a page could not be done, for example because of main|USER#" in line.seen[-1].failed["1"]
    assert line.run().phase == "items"
    line.messages.append((0.0, body))
    line.drain()
    line.stage.settle()
    line.stage.right()


def test_a_run_that_is_overtaken_in_the_middle_of_a_page_is_dropped() -> None:
    line = lined(LIKES)
    run = line.begin(segments=1)
    task = BackfillTask(run.name, "items", "main", 0)
    backfill = line.stage.backfill()
    look = backfill.progress.segment

    def segment(*arguments: Any) -> Any:
        line.stage.backfill().begin(segments=1, restart=True)
        return look(*arguments)

    backfill.progress.segment = segment  # type: ignore[method-assign]
    assert runner.do_task(backfill, task, deadline(), line.tasks) is None


@pytest.mark.parametrize("allowed", [False, True])
def test_a_function_deletes_only_what_its_run_may(allowed: bool) -> None:
    line = lined()
    line.stage.filled()
    line.stage.remove("USER#4", "LIKE#1")
    line.stage.lose()
    line.begin(allow_delete=allowed)
    line.drain()
    line.stage.settle()
    assert (line.stage.item("SEEN#4#1", "X") is None) == allowed


def test_to_begin_again_sends_what_is_left() -> None:
    """Messages were lost, or ended among the dead letters."""
    line = lined(LIKES)
    run = line.begin(segments=3)
    line.messages.clear()
    assert line.begin(segments=3) == run
    assert len(line.messages) == 3
    line.drain()
    assert line.run().done
    line.begin()
    assert line.run().name != run.name

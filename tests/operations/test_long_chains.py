"""The worker sends what is left of a task to its own queue: such chains come to their end, however long they are.

Lambda drops a message of about the sixteenth invocation in a row, unless the function's `RecursiveLoop` is "Allow".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from projections.engine.store import StoreError, Update
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.local.functions import Functions, LocalQueue
from projections.stores.memory import MemoryStore
from tests.tools.stream_records import record

CHILDREN = 25_000
WRITES_PER_SECOND = 25  # the least that the template allows
SECONDS_PER_REQUEST = 0.005
LONGEST_CHAIN = 16  # invocations through a queue after which Lambda would drop a message

RULES = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI1PK: "AUTHOR#{userId}"}}
projections:
  author: {from: User, embed: {into: Comment, match: {userId: "{userId}"}, attributes: {userName: name}, on_delete: keep}}
"""


class SlowStore(MemoryStore):
    """A store whose requests take time."""

    seconds = 0.0

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        self.seconds += SECONDS_PER_REQUEST
        return super().write_each(writes)

    def query(self, *arguments: Any, **settings: Any) -> Any:
        self.seconds += SECONDS_PER_REQUEST
        return super().query(*arguments, **settings)

    def scan(self, *arguments: Any, **settings: Any) -> Any:
        self.seconds += SECONDS_PER_REQUEST
        return super().scan(*arguments, **settings)


class Deployed:
    """The functions on a table of comments by one author. The clock goes on only as requests and pauses take time."""

    def __init__(self) -> None:
        self.program = Program.from_document(loads(RULES).document())
        self.store = SlowStore({**self.program.tables, "ledger": LEDGER_SCHEMA}, streams=())
        self.paused = 1_700_000_000.0
        self.invocations = 0
        self.rejected: list[Any] = []
        self.queue = LocalQueue(self.now)
        self.functions = Functions(
            self.program,
            self.store,
            tables={"app": "main"},
            quarantine=self.rejected.extend,
            clock=self.now,
            sleep=self.sleep,
            queue=self.queue,
            writes_per_second=WRITES_PER_SECOND,
        )
        self.user = {"PK": {"S": "USER#u1"}, "SK": {"S": "PROFILE"}, "name": {"S": "Ada"}}
        self.store.put("main", self.user)
        for number in range(CHILDREN):
            self.store.put(
                "main",
                {
                    "PK": {"S": f"POST#{number % 1000}"},
                    "SK": {"S": f"COMMENT#{number}"},
                    "userId": {"S": "u1"},
                    "GSI1PK": {"S": "AUTHOR#u1"},
                    "GSI1SK": {"S": f"{number:08}"},
                },
            )

    def now(self) -> float:
        return self.paused + self.store.seconds

    def sleep(self, seconds: float) -> None:
        self.paused += seconds

    def rename(self) -> None:
        """The author's first record arrives."""
        told = record(1)
        told["dynamodb"] |= {"Keys": {name: self.user[name] for name in ("PK", "SK")}, "NewImage": self.user}
        assert self.functions.stream({"Records": [told]}) == {"batchItemFailures": []}

    def work(self) -> None:
        """The worker's invocations until no message is left."""
        while (due := self.queue.next_due) is not None:
            self.paused += max(0.0, due - self.now())
            self.invocations += self.functions.work()

    def named(self) -> int:
        """How many comments show their author's name."""
        return sum(item.get("userName") == {"S": "Ada"} for item in self.store.items("main"))


@pytest.mark.deep
def test_a_push_to_many_children_comes_to_its_end() -> None:
    deployed = Deployed()
    deployed.rename()
    assert deployed.named() < CHILDREN
    deployed.work()
    assert deployed.named() == CHILDREN
    assert deployed.invocations > LONGEST_CHAIN
    assert deployed.invocations <= CHILDREN / (WRITES_PER_SECOND * 40) + 3  # none of a minute does next to nothing
    assert deployed.rejected == []

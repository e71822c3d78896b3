"""A store in memory in a process of its own, as DynamoDB is: its time and memory are told apart from the engine's."""

from __future__ import annotations

import multiprocessing
import resource
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from projections.engine.store import Image, ItemKey, Page, Schema, Update, Value, Write
from projections.errors import ConditionFailed, StoreError, TransactionCancelled
from projections.stores.memory import MemoryStore

__all__ = ["Deadline", "StoreApart", "deadline"]


@dataclass(frozen=True, slots=True)
class Deadline:
    """What a process has spent so far: CPU in seconds, and the memory it holds in MB."""

    seconds: float
    megabytes: float


def deadline() -> Deadline:
    """Of this process. Its memory is the resident set now; where the system does not tell (macOS), the largest ever."""
    status = Path("/proc/self/statm")
    if status.exists():
        resident = int(status.read_text().split()[1]) * resource.getpagesize()
    else:
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Deadline(time.process_time(), resident / 1e6)


class StoreApart:
    """A `Store` that asks a MemoryStore in another process, one call after the other. Not safe for threads."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self._schemas = dict(schemas)
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, self._schemas), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pipe.close()  # at which the other process ends
        self._process.join()

    def schema(self, table: str) -> Schema:
        return self._schemas[table]

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        found: Image | None = self._ask("get", key, attributes)
        return found

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        found: dict[ItemKey, Image] = self._ask("get_many", keys)
        return found

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        found: Page = self._ask("query", table, values, **options)
        return found

    def scan(self, table: str, **options: Any) -> Page:
        found: Page = self._ask("scan", table, **options)
        return found

    def write(self, write: Write) -> None:
        self._ask("write", write)

    def transact(self, writes: Sequence[Write]) -> None:
        self._ask("transact", writes)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        found: list[StoreError | None] = self._ask("write_each", writes)
        return found

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        found: list[Image | StoreError] = self._ask("update_each", writes)
        return found

    def fill(self, table: str, images: Iterable[Image]) -> None:
        """Stores items that were always there."""
        for image in images:
            self._ask("seed", table, image)

    def deadline(self) -> Deadline:
        """What the other process has spent."""
        found: Deadline = self._ask("deadline")
        return found

    def _ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        self._pipe.send((method, arguments, options))
        answer, error = self._pipe.recv()
        if error is None:
            return answer
        kind, told = error
        raise kind(told)


def _serve(pipe: Connection, schemas: Mapping[str, Schema]) -> None:
    """Answers until the other end is closed. An error goes as its class and what that is made of."""
    store = MemoryStore(schemas, streams=())
    while True:
        try:
            method, arguments, options = pipe.recv()
        except EOFError:
            return
        try:
            answer = deadline() if method == "deadline" else getattr(store, method)(*arguments, **options)
        except ConditionFailed as error:
            pipe.send((None, (ConditionFailed, error.item)))
        except TransactionCancelled as error:
            pipe.send((None, (TransactionCancelled, error.reasons)))
        except StoreError as error:
            pipe.send((None, (type(error), str(error))))
        else:
            pipe.send((answer, None))

"""Invocations under a scheduler: they stop before and after every call of the store.

Each invocation runs in greenlets, one for each thread that the function would have. A greenlet that comes to a call
switches to the scheduler, which later resumes it, perhaps with a fault, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from projections.engine.ledger_items import LEDGER
from projections.engine.registry import REGISTRY
from projections.engine.running import Reload
from projections.engine.store import Image, ItemKey, Page, Schema, Store, Update, Value, Write
from projections.errors import ConditionFailed, Reason, ReasonKind, StoreError, TransactionCancelled, Transient
from projections.stores.requests import require_items

if TYPE_CHECKING:
    from projections.testing.simulation.rule_versions import RuleVersion


T = TypeVar("T")

THROTTLED = "throttled"
"""The call is refused before it does anything."""
CONFLICT: ReasonKind = "conflict"
"""A transaction meets another one: cancelled."""
LOST = "answer lost"
"""The call is carried out, and its answer is lost."""


Finish = Callable[[Any, Exception | None], None]
"""Reports the answer of an invocation, or the error without one, to its event source."""


class Invocation:
    """One event given to a function, or one piece of an operator's work."""

    def __init__(
        self, number: int, version: RuleVersion, finish: Finish, seconds: float, what: str = "invocation"
    ) -> None:
        self.version = version
        """The rules of its package, or of the file that an operator applies."""
        self.registry: Image | None = None
        """The registry as it read it last."""
        self.finish = finish
        self.seconds = seconds
        """The time that is left."""
        self.name = f"{what} {number}"
        self.of_function = what == "invocation"
        self.freeze: Callable[[Invocation, float], None] = lambda invocation, seconds: None
        """Freezes it for about so many seconds."""
        self.abandoned = False
        """Whether its event source does not wait for it any longer, although it continues."""
        self.born = 0.0
        """When it began, in seconds since 1970."""
        self.frozen = 0
        """The step until which it is frozen, as a process without CPU time or with a slow network is."""
        self.threads: list[Thread] = []
        self.instance: Any = None
        """The process of the stream function that serves it, if any."""

    def remaining(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds -= seconds
        if seconds >= 1:
            self.freeze(self, seconds)
        pause("sleeps", None)


class Thread(greenlet):
    """One thread of an invocation. `at` is the stop where it is: (kind, name of the call, its arguments, its outcome)."""

    def __init__(self, scheduler: greenlet, invocation: Invocation, work: Callable[[], Any]) -> None:
        super().__init__(None, scheduler)
        self.scheduler = scheduler
        self.invocation = invocation
        self.work = work
        self.at: tuple[str, str, Any, Any] = ("starts", "", None, None)
        self.awaits = 0
        """The number of threads that it has started and waits for."""
        self.awaited_by: Thread | None = None
        self.result: Any = None
        self.failure: Exception | Reload | None = None

    def run(self, _: None = None) -> None:
        try:
            self.result = self.work()
        except GreenletExit:
            return  # the process is gone
        except (Exception, Reload) as error:
            self.failure = error
        self.invocation.threads.remove(self)
        if self.awaited_by is not None:
            self.awaited_by.awaits -= 1


def pause(what: str, subject: Any) -> Any:
    """Stop until the scheduler resumes the thread; return what it sends."""
    thread = getcurrent()
    assert isinstance(thread, Thread)
    thread.at = (what, "", subject, None)
    return thread.scheduler.switch()


def at_once(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
    """Run pieces of work as threads of a function: interleaved in any way, each to its end even if another fails."""
    if len(pieces) < 2:
        return [piece() for piece in pieces]
    thread = getcurrent()
    assert isinstance(thread, Thread)
    assert thread.awaited_by is None, "nested pieces of work would wait for each other in a pool of threads"
    started = []
    for piece in pieces:
        child = Thread(thread.scheduler, thread.invocation, piece)
        child.awaited_by = thread
        thread.invocation.threads.append(child)
        started.append(child)
    thread.awaits = len(started)
    thread.at = ("awaits", "", None, None)
    thread.scheduler.switch()
    for child in started:
        if child.failure is not None:
            raise child.failure
    return [child.result for child in started]


class SteppedStore:
    """A store whose calls can be interleaved with others, refused, or left without an answer."""

    def __init__(self, store: Store, lagging: Callable[[str], Store], most: Callable[[], int]) -> None:
        self._store = store
        self._lagging = lagging
        """Returns a table as its indexes show it."""
        self._most = most
        """Returns the number of items on a page; those of DynamoDB end at 1 MB."""

    def schema(self, table: str) -> Schema:
        return self._store.schema(table)

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        return carry_out("get", key, self._noting([key], lambda: self._store.get(key, attributes)))

    def _noting(self, keys: Sequence[ItemKey], call: Callable[[], T]) -> Callable[[], T]:
        """Return a call that notes the registry as it is then, if it reads or writes it."""

        def noting() -> T:
            result = call()
            thread = getcurrent()
            assert isinstance(thread, Thread)
            thread.invocation.registry = self._store.get(REGISTRY)
            return result

        return noting if REGISTRY in keys else call

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        return carry_out("get_many", keys, self._noting(keys, partial(self._store.get_many, keys)))

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        def call() -> Page:
            store = self._store if options.get("index") is None else self._lagging(table)
            if table != LEDGER and "limit" in options:
                return store.query(table, values, **{**options, "limit": min(options["limit"], self._most())})
            return store.query(table, values, **options)

        return carry_out("query", (table, values, options), call)

    def scan(self, table: str, **options: Any) -> Page:
        return carry_out("scan", (table, options), lambda: self._store.scan(table, **options))

    def write(self, write: Write) -> Image | None:
        return carry_out("write", write, self._noting([write.key], lambda: self._store.write(write)))

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        """Carry out the updates of one request separately: each may fail, and other calls may come between."""
        answers: list[StoreError | None] = []
        for write in writes:
            require_items(self._store.schema(write.key.table), write)
            try:
                self.write(write)
                answers.append(None)
            except ConditionFailed:
                answers.append(ConditionFailed())  # without the item, as on DynamoDB
            except StoreError as error:
                answers.append(error)
        return answers

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        """Carry out the updates of one request separately."""
        answers: list[Image | StoreError] = []
        for write in writes:
            try:
                (answer,) = carry_out("write", write, partial(self._store.update_each, [write]))
                answers.append(answer)
            except StoreError as error:
                answers.append(error)
        return answers

    def transact(self, writes: Sequence[Write]) -> None:
        keys = [write.key for write in writes]
        carry_out("transact", writes, self._noting(keys, lambda: self._store.transact(writes)))


def carry_out(name: str, subject: Any, call: Callable[[], T]) -> T:
    """Carry out one call, with a stop before and after it. Raises the faults that the scheduler sends."""
    thread = getcurrent()
    assert isinstance(thread, Thread)
    thread.at = ("asks", name, subject, None)
    fault = thread.scheduler.switch()
    if fault == THROTTLED:
        raise Transient("the store was throttled")
    if fault == CONFLICT:
        raise TransactionCancelled([Reason(CONFLICT), *[None] * (len(subject) - 1)])
    outcome: T | StoreError
    try:
        outcome = call()
    except StoreError as error:
        outcome = error
    thread.at = ("hears", name, subject, outcome)
    thread.scheduler.switch()
    if fault == LOST:
        raise Transient("the answer of the store was lost")
    if isinstance(outcome, StoreError):
        # The traceback of an error that is caught far away would keep this frame and all its objects alive.
        if isinstance(outcome, ConditionFailed | TransactionCancelled):
            outcome.__traceback__ = None
        raise outcome
    return outcome

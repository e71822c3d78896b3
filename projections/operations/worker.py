"""The worker: does tasks page by page, as long as the invocation has time.

It sends the rest back to the queue before it reports success. A crash at any point only repeats pages, and a repeated page
writes only what is missing. The tasks of one invocation take turns, so a push to millions does not delay small ones.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from projections.engine.budget import Refresh
from projections.engine.copier import Copier
from projections.engine.copies import units_of
from projections.engine.embed_lists import CHILDREN_PER_PAGE
from projections.engine.embeds import SETTLE_SECONDS, Embedder, Push
from projections.engine.guards import Guards
from projections.engine.records import WHOLE_BATCH
from projections.engine.registry import Registry, RegistrySnapshot
from projections.engine.rejections import INTERNAL, Rejected, of_child, rejected_by
from projections.engine.running import Counters, Deadline, OutOfTime, Pacer, Reload, Run, one_by_one
from projections.engine.store import Image, Store
from projections.errors import BadInput, InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.operations import tasks
from projections.operations.tasks import BackfillTask, Task, Tasks

if TYPE_CHECKING:
    from projections.operations.backfill.backfill_runs import Backfill
    from projections.operations.redaction import Redaction


MARGIN_SECONDS = 10.0
"""Before the end of the invocation: enough to finish the last page and to send the rest. No page begins then."""

_MOST_TRIES = 8
"""For one page, with pauses that grow to 2 seconds. Then its message fails, and SQS delivers it again later."""


@dataclass(frozen=True, slots=True)
class Work:
    """The outcome of an invocation: reasons of failed messages by id, rejected children, counts for metrics.

    The counts are of tasks received, pages done, pushes finished, items refreshed, children updated and items rejected.
    """

    failed: Mapping[str, str]
    rejected: tuple[Rejected, ...]
    counts: Mapping[str, int]


def redact(redaction: Redaction, work: Work) -> Work:
    """Return the outcome of tasks as it may be logged."""
    failed = {message: redaction.text(reason) for message, reason in work.failed.items()}
    return replace(work, failed=failed, rejected=tuple(map(redaction.redact_rejected, work.rejected)))


@dataclass(eq=False)
class WorkerHandler:
    """Processes events of the task queue; returns the messages that SQS has to deliver again.

    `quarantine` takes the children that can never be written, and `dismissed` is that of a backfill. `observe` is called
    with the outcome of each event. `run` runs the requests of a page.
    """

    packaged: Program
    store: Store
    _: KW_ONLY
    tasks: Tasks
    quarantine: Callable[[Sequence[Rejected]], None]
    pacer: Pacer
    dismissed: Callable[[Sequence[Rejected]], Sequence[Rejected]] = lambda rejected: ()
    observe: Callable[[Work], None] | None = None
    run: Run[list[StoreError | None]] = one_by_one
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random
    children_per_page: int = CHILDREN_PER_PAGE
    items_per_page: int | None = None
    filled: bool = True
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    rejected: list[Rejected] = field(default_factory=list, init=False)
    """Those of the present invocation."""

    def clock(self) -> float:
        """Return the seconds since 1970."""
        return self.now().timestamp()

    @cached_property
    def registry(self) -> Registry:
        return Registry(self.packaged, self.store, filled=self.filled, now=self.clock)

    @cached_property
    def _backfill(self) -> Backfill:
        from projections.operations.backfill.backfill_runs import Backfill  # most instances never do one
        from projections.operations.backfill.pages import PAGE

        return Backfill(
            self.packaged,
            self.store,
            now=self.now,
            run=self.run,
            page=self.items_per_page or PAGE,
            pace=self.pacer,
            quarantine=self.reject,
            dismissed=self.dismissed,
            chance=self.chance,
        )

    def backfill_page(self, task: BackfillTask, deadline: Deadline) -> BackfillTask | None:
        from projections.operations.backfill.runner import do_task

        return do_task(self._backfill, task, deadline, self.tasks)

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Quarantine children, and add them to the outcome of this invocation."""
        self.quarantine(rejected)
        self.rejected += rejected

    def handle(self, event: Any, remaining: Callable[[], float]) -> dict[str, Any]:
        """Process one event. `remaining` gives the seconds left. Raises Misconfigured, but never because of a message."""
        deadline = Deadline(remaining, margin=MARGIN_SECONDS, sleep=self.sleep, chance=self.chance)
        self.pacer.within(lambda: deadline.left)
        self.rejected = []
        work = _Invocation(self, deadline)
        work.receive(event)
        if work.admit():
            work.do()
        if self.observe:
            self.observe(work.outcome())
        return {"batchItemFailures": [{"itemIdentifier": message} for message in work.failed]}


@dataclass(slots=True)
class _Task:
    """A page to do next, and its message. `own` if the page is the one that the message names."""

    message: str
    work: Task
    own: bool = True
    hop: int = 0
    """The position of the message in its chain."""
    tries: int = 0
    trouble: str = ""
    """Why it was not done before the time was up."""


class _Invocation:
    def __init__(self, handler: WorkerHandler, deadline: Deadline) -> None:
        self._handler = handler
        self._deadline = deadline
        self._counters = Counters()
        self._embedder: Embedder
        self._guards: Guards
        self._snapshot: RegistrySnapshot
        self._program: Program
        self._refreshed: dict[tuple[str, str], str] = {}
        """By source and rule: the version up to which its records were left to refreshes that are done."""
        self._waiting: deque[_Task] = deque()
        self._counts = {"tasks": 0, "pages": 0, "pushes": 0, "refreshes": 0}
        self.failed: dict[str, str] = {}

    def admit(self) -> bool:
        """Read the registry. If that cannot be done, all tasks fail and are repeated."""
        if not self._waiting:
            return False
        try:
            self._snapshot, self._program = self._handler.registry.current()
        except Misconfigured:
            raise
        except StoreError as error:
            reason = f"the registry could not be read or written: {error}"
            self.failed.update((task.message, reason) for task in self._waiting)
            return False
        self._guards = Guards(
            self._program, self._snapshot.identity, self._snapshot.promotions, self._snapshot.replaced
        )
        self._embedder = Embedder(
            self._program,
            self._handler.store,
            self._guards,
            pace=self._handler.pacer,
            counters=self._counters,
            children_per_page=self._handler.children_per_page,
            run=self._handler.run,
        )
        return True

    def _read_again(self, task: _Task, reload: Reload) -> bool:
        """Read the registry again, and do a task anew. Return False if it cannot be read."""
        try:
            self._handler.registry.overtake(reload)
        except Transient as error:
            self._again(task, error)
            return True
        self._waiting.append(task)
        return self.admit()

    def do(self) -> None:
        while self._waiting and not self._deadline.over:
            task = self._waiting.popleft()
            try:
                following = self._page(task.work)
            except OutOfTime as error:
                task.trouble = str(error)
                self._waiting.append(task)
                break
            except Transient as error:
                self._again(task, error)
            except Reload as reload:
                if not self._read_again(task, reload):
                    break
            except Misconfigured:
                raise
            except StoreError as error:
                self._give_up(task, str(error))
            except Exception as error:
                self._give_up(task, f"the task cannot be done: {type(error).__name__}: {error}; please report this")
            else:
                if following is not None:
                    self._waiting.append(_Task(task.message, following, own=False, hop=task.hop))
        self._hand_on()

    def receive(self, event: Any) -> None:
        messages = event.get("Records") if isinstance(event, Mapping) else None
        if not isinstance(messages, list) or not all(isinstance(m, Mapping) and m.get("messageId") for m in messages):
            self.failed[WHOLE_BATCH] = "the event has no messages, so it is not from an SQS queue. Remove that trigger"
            return
        self._counts["tasks"] = len(messages)
        for message in messages:
            try:
                body = message.get("body")
                self._waiting.append(_Task(message["messageId"], tasks.read(body), hop=tasks.hop_of(body)))
            except BadInput as reason:
                self.failed[message["messageId"]] = str(reason)

    def _page(self, task: Task) -> Task | None:
        """Do one page, and return the next one. A next page that has to wait is sent at once."""
        if isinstance(task, BackfillTask):
            following = self._handler.backfill_page(task, self._deadline)
            self._counts["pages"] += 1
            return following
        if isinstance(task, Refresh):
            return self._refresh(task)
        return self._push_page(task)

    def _refresh(self, task: Refresh) -> Refresh | None:
        """Do a refresh: one is enough for all such tasks that were received with it. Return the task if copies are left."""
        is_signed = self._guards.is_signed
        tasks = [task, *(waiting.work for waiting in self._waiting if isinstance(waiting.work, Refresh))]
        about = (task.source, task.rule)
        signed = [job for job in tasks if about == (job.source, job.rule) and is_signed(job.text, job.signature)]
        done = max(signed, key=lambda job: job.version, default=Refresh(task.source, "", rule=task.rule))
        all_done = True
        if not done.version or done.version > self._refreshed.get(about, ""):
            all_done = self._write_copies(done) if done.rule else self._refresh_item(done)
            if all_done:
                self._refreshed[about] = done.version
        self._counts["pages"] += 1
        self._counts["refreshes"] += all_done
        return None if all_done else done

    def _write_copies(self, task: Refresh) -> bool:
        """Write the copies of an item as it is. Return False if there was time for some of them only."""
        handler, written = self._handler, self._counters.counts["copies"]

        def pace(copy: Image) -> None:
            handler.pacer(units_of(copy))

        copier = Copier(self._program, handler.store, self._guards, self._counters, pace)
        try:
            copier.write_left(task.rule, task.source, task.version, self._deadline)
        except InvalidRequest as error:
            handler.reject([rejected_by(error, task.rule, task.source)])
        except OutOfTime:
            if self._counters.counts["copies"] == written:
                raise
            return False
        return True

    def _refresh_item(self, task: Refresh) -> bool:
        from projections.engine.refresh import Refresher  # most instances never do one

        handler, key = self._handler, decode_key(task.source)
        refresher = Refresher(
            self._program,
            handler.store,
            self._snapshot,
            run=handler.run,
            clock=handler.clock,
            chance=handler.chance,
            counters=self._counters,
            commit_pace=handler.pacer,
        )
        removed, deferred = {key} if task.gone else set(), {key: task.version}
        if task.version:
            refresher.sources({key: None}, self._deadline, publish=True, removed=removed, deferred=deferred)
        else:  # overwritten again and again: in every role
            refresher.keys([key], self._deadline)
        if refresher.rejected:
            handler.reject(list(refresher.rejected))
        if refresher.failed:
            raise Transient("; ".join(refresher.failed.values()))
        return True

    def _push_page(self, push: Push) -> Push | None:
        next_page, hopeless = self._embedder.push_page(push, self._deadline)
        if hopeless:
            rejected = [of_child(push.rule, push.parent, key, reason) for key, reason in hopeless]
            self._handler.reject(rejected)
        following = self._embedder.following(push, next_page)
        if following is not None and following[1]:
            self._handler.tasks(following[0], SETTLE_SECONDS)
        self._counts["pages"] += 1
        self._counts["pushes"] += following is None
        return None if following is None or following[1] else following[0]

    def _again(self, task: _Task, error: Transient) -> None:
        task.tries += 1
        if task.tries == _MOST_TRIES:
            self._give_up(task, str(error))
            return
        self._waiting.append(task)
        try:
            self._deadline.pause(task.tries)
        except OutOfTime:
            return

    def _give_up(self, task: _Task, reason: str) -> None:
        """Fail a message. If pages of it were done, send the page where it stopped instead of repeating the message."""
        if not task.own:
            task.tries = 0
            self._send([task], SETTLE_SECONDS)
        else:
            self.failed[task.message] = reason

    def _hand_on(self) -> None:
        """Send the pages that are left. A message without a page done fails: sent again, it could go round for ever."""
        pending = list(self._waiting)
        idle = [task for task in pending if task.own and (task.tries or not self._counts["pages"])]
        for task in idle:
            trouble = f": {task.trouble}" if task.trouble else ""
            self.failed[task.message] = f"the invocation's time was up before a page could be done{trouble}"
        self._send([task for task in pending if task not in idle], 0.0)

    def _send(self, pending: Sequence[_Task], seconds: float) -> None:
        for task in pending:
            if task.hop >= tasks.MOST_HOPS:
                self.failed[task.message] = (
                    f"the task was stopped after {task.hop:,} messages. Run `projections redrive` to continue it, and raise "
                    "PushWritesPerSecond if it is too low for so many children"
                )
        pending = [task for task in pending if task.hop < tasks.MOST_HOPS]
        try:
            self._handler.tasks.send([(task.work, seconds) for task in pending], [task.hop + 1 for task in pending])
        except Misconfigured:
            raise
        except StoreError as error:
            for task in pending:
                self.failed[task.message] = f"the rest of the task could not be sent: {error}"

    def outcome(self) -> Work:
        rejected = tuple(self._handler.rejected)
        internal = sum(record.fault == INTERNAL for record in rejected)
        embedded = self._counters.counts["embedded"]
        counts = {**self._counts, "embedded": embedded, "rejected": len(rejected), "internal": internal}
        return Work(self.failed, rejected, counts)

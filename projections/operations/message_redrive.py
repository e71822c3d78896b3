"""Redrives failed messages: refreshes the items that they are about. Only their keys and expiries are used.

A message is answered when all of it is done and stored, with the pushes that it led to in the task queue: then it can be
deleted. It may be redriven twice, also by two processes at once.

A refresh does not correct what lanes count (`ledger: lanes`). So these versions get a gap, unless the records of a message
are certainly older.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, Protocol

from projections.engine.budget import Refresh
from projections.engine.embed_lists import Hopeless
from projections.engine.embeds import NOT_KEPT, SETTLE_SECONDS, Push
from projections.engine.goals import DiscardedRecord
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry
from projections.engine.rejections import internal_reason
from projections.engine.running import Counters, Deadline, Reload, Run, one_by_one
from projections.engine.store import Image, ItemKey, Store
from projections.engine.value_counters import ValueCounters
from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient, UsageError
from projections.language.entity import Entity
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.operations.failed_messages import FailedMessage
from projections.operations.quarantine import complaint
from projections.operations.tasks import BackfillTask, Task, TaskSender

_AT_ONCE = 100
"""Items refreshed together: as many as one request can read."""

_MOST_TRIES = 5

_BEFORE_FILL = 300
"""Seconds before the registration of a version from which a record is certainly older: its fill has read the item since."""

_DISCARDED = "records that Lambda had discarded were redriven, which lanes cannot count"

_SECONDS = 120.0
"""How long throttled requests are retried for the items refreshed together, and for each page of a push."""


@dataclass(slots=True)
class Answer:
    """The outcome of a message: done if nothing is `left`, which has reasons by item or task."""

    message: FailedMessage
    left: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, about: str, reason: str) -> None:
        reasons = self.left.setdefault(about, [])
        if reason not in reasons:
            reasons.append(reason)


@dataclass(eq=False)
class Redrive:
    """Redrives messages. `send` gets pushes and dead letters; without it, pushes are made here, however long they take.

    `run` runs refreshes of single items, `pace` is called before writes to children with their number. `items` counts
    refreshed items, `pushes` the pushes made or sent. `gaps` has the versions that may have missed records of the messages.
    """

    packaged: InitVar[Program]
    store: Store
    _: KW_ONLY
    send: TaskSender | None = None
    run: Run[Any] = one_by_one
    pace: Callable[[int], None] = lambda writes: None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    _values: ValueCounters = field(default_factory=ValueCounters, init=False)

    def __post_init__(self, packaged: Program) -> None:
        self._registry = Registry(packaged, self.store, filled=False, now=self.now)
        self.counters = Counters()
        self.items = 0
        self.pushes = 0
        self.gaps: set[str] = set()

    def work(self, messages: Iterable[FailedMessage]) -> list[Answer]:
        """Redrive messages. Raises UsageError if there is no registry, and Misconfigured."""
        if self._registry.read() is None:
            raise UsageError(
                "the ledger has no rules: no function has used it. Check that --ledger names the right table"
            )
        answers = [Answer(message) for message in messages]
        self._note_gaps([answer.message for answer in answers])
        contents = _together(message for message in (answer.message for answer in answers) if not message.unusable)
        problems: dict[ItemKey, list[str]] = {}
        keys = list(contents.known)
        for start in range(0, len(keys), _AT_ONCE):
            problems |= self._items(keys[start : start + _AT_ONCE], contents)
        self._note_gaps([answer.message for answer in answers])  # a fill may have ended meanwhile
        for answer in answers:
            message = answer.message
            if message.unusable:
                answer.keep("", message.unusable)
            elif message.task is not None:
                self._task(message.task, answer)
            for key in message.items:
                for reason in problems.get(key, ()):
                    answer.keep(encode_key(key), reason)
        return answers

    def _note_gaps(self, messages: Sequence[FailedMessage]) -> None:
        """Record a gap for the versions that lanes count, and to which the records of messages may belong."""
        snapshot, program = self._registry.current()
        gaps = set[str]()
        for version in snapshot.maintained:
            if version.lanes:
                sources = program.lanes[version.name].sources
                gaps.update(version.name for message in messages if _concerns(message, program, sources, version.since))
        if gaps:
            self._deadline().retry(partial(self._registry.note_gaps, dict.fromkeys(gaps, _DISCARDED)))
            self.gaps |= gaps

    # Items

    def _items(self, keys: Sequence[ItemKey], contents: _Contents) -> dict[ItemKey, list[str]]:
        """Refresh items together. If that fails, refresh each alone, to find out which one fails."""
        self.items += len(keys)
        refresher = self._refresher(self.run)
        try:
            pushes = self._refresh(refresher, keys, contents)
        except Misconfigured:
            raise
        except (Exception, Reload):
            pushes = None
        problems: dict[ItemKey, list[str]] = {}
        if pushes is None or refresher.failed or refresher.rejected:
            singly = self.run([partial(self._item, key, contents) for key in keys])
            pushes = [push for _, item_pushes, _ in singly for push in item_pushes]
            problems = {key: reasons for key, _, reasons in singly if reasons}
        for push, reason in self._push(pushes, refresher):
            problems.setdefault(decode_key(push.parent), []).append(reason)
        return problems

    def _refresh(self, refresher: Refresher, keys: Sequence[ItemKey], contents: _Contents) -> list[Push]:
        known = {key: contents.known[key] for key in keys}
        return refresher.keys(keys, self._deadline(), known, contents.removed, contents.records)

    def _item(self, key: ItemKey, contents: _Contents) -> tuple[ItemKey, list[Push], list[str]]:
        again: Reload | None = None
        for _ in range(_MOST_TRIES):
            try:
                if again is not None:
                    self._registry.overtake(again)
                refresher = self._refresher(one_by_one)
                pushes = self._refresh(refresher, [key], contents)
                break
            except Misconfigured:
                raise
            except Reload as reload:
                again = reload
            except Exception as error:
                return key, [], [_reason(error)]
        else:
            return key, [], [str(again)]
        reasons = [reason for _, reason in sorted(refresher.failed.items())]
        for item in refresher.rejected:
            reasons.append(complaint(item.rule, item.reason, key=encode_key(key), target=item.target, fault=item.fault))
        return key, pushes, list(dict.fromkeys(reasons))

    def _refresher(self, run: Run[Any]) -> Refresher:
        """Return a refresher that works by the registry as it is now."""
        snapshot, program = self._registry.current()
        parts = program, self.store, snapshot
        return Refresher(*parts, values=self._values, run=run, clock=self.now, pace=self.pace, counters=self.counters)

    def _deadline(self) -> Deadline:
        return Deadline.after(_SECONDS, clock=self.clock, sleep=self.sleep)

    # Pushes

    def _push(self, pushes: Sequence[Push], refresher: Refresher) -> Iterator[tuple[Push, str]]:
        """Make or send pushes. Yield those that failed, with the reason, and children that can never be written."""
        here: list[Push] = []
        for push in pushes:
            try:
                if not self._deadline().retry(partial(refresher.embedder.raise_fence, push)):
                    yield push, NOT_KEPT
                self.pushes += 1
                if self.send is not None:
                    self.send.send([(push, 0.0)])
                    continue
            except Misconfigured:
                raise
            except (Exception, Reload) as error:
                yield push, _reason(error)
                continue
            here.append(push)
        yield from self._pushed_here(here, refresher)

    def _pushed_here(self, pushes: Sequence[Push], refresher: Refresher) -> Iterator[tuple[Push, str]]:
        """Make pushes, and once more when the index has caught up: the first pass may not have seen all children."""
        again: list[Push] = []
        for push in pushes:
            try:
                yield from self._pages(push, refresher, again)
            except Misconfigured:
                raise
            except (Exception, Reload) as error:
                yield push, _reason(error)
        if again:
            self.sleep(SETTLE_SECONDS)
            yield from self._pushed_here(again, refresher)

    def _pages(self, push: Push, refresher: Refresher, again: list[Push]) -> Iterator[tuple[Push, str]]:
        """Push all pages of one pass. Add the second pass to `again`."""
        page: Push | None = push
        while page is not None:
            next_page, hopeless = self._deadline().retry(partial(self._page, page, refresher))
            for key, reason in hopeless:
                yield push, f"{push.rule}: {encode_key(key)}: {reason}"
            following = refresher.embedder.following(page, next_page)
            page = None
            if following is not None and following[1]:
                again.append(following[0])
            elif following is not None:
                page = following[0]

    def _page(self, push: Push, refresher: Refresher) -> tuple[Push | None, Hopeless]:
        return refresher.embedder.push_page(push, self._deadline())

    # Dead tasks

    def _task(self, task: Task, answer: Answer) -> None:
        if self.send is not None:
            try:
                self.send.send([(task, 0.0)])
                self.pushes += 1
            except (Transient, InvalidRequest) as error:
                answer.keep(_name(task), f"the task queue rejected it: {error}")
            return
        if isinstance(task, Refresh):
            answer.keep(_name(task), "only the worker does the refresh that it asks for: pass its queue with --queue")
            return
        if not isinstance(task, Push):
            answer.keep(
                _name(task),
                "only the worker processes pages of a backfill: pass its queue with --queue. Or run `projections "
                "backfill`, which continues that backfill, and delete this message yourself",
            )
            return
        self.pushes += 1
        for _, reason in self._pushed_here([task], self._refresher(self.run)):
            answer.keep(_name(task), reason)


def _concerns(message: FailedMessage, program: Program, sources: Sequence[Entity], since: int) -> bool:
    """Return whether a message has, or lacks, a record of an item of these entities that may be newer than a version."""
    if message.lost is not None:
        table, at = message.lost
        return table in {entity.table for entity in sources} and not 0 < at < since - _BEFORE_FILL
    for key in message.newest:  # of all items with records
        if not any(entity in sources for entity in program.entities_at(key)):
            continue
        times = [record.at for record in message.records.get(key, ())]
        if not times or not all(0 < at < since - _BEFORE_FILL for at in times):
            return True
    return False


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, StoreError | Reload) else internal_reason(error)


def _name(task: Task) -> str:
    if isinstance(task, BackfillTask):
        return f"backfill {task.run}"
    return task.parent if isinstance(task, Push) else task.source


class _Contents(NamedTuple):
    """All items of some messages with their images, those whose newest record is a removal, and the discarded records."""

    known: Mapping[ItemKey, Sequence[Image]]
    removed: frozenset[ItemKey]
    records: Mapping[ItemKey, Sequence[DiscardedRecord]]


def _together(messages: Iterable[FailedMessage]) -> _Contents:
    known: dict[ItemKey, list[Image]] = {}
    records: dict[ItemKey, list[DiscardedRecord]] = {}
    newest: dict[ItemKey, tuple[tuple[int, str], bool]] = {}
    for message in messages:
        for key, images in message.items.items():
            held = known.setdefault(key, [])
            held += [image for image in images if image not in held]
        for key, discarded in message.records.items():
            records.setdefault(key, []).extend(discarded)
        for key, last in message.newest.items():
            newest[key] = max(last, newest.get(key, last))
    return _Contents(known, frozenset(key for key, (_, removed) in newest.items() if removed), records)


class MessageSource(Protocol):
    """A source of failed messages, with its `name` for people. Each message is taken once, in no particular order."""

    name: str

    def take(self, most: int) -> list[tuple[FailedMessage, Any]]:
        """Return some messages, at most so many, each with a handle; none at the end."""
        ...

    def done(self, messages: Sequence[tuple[FailedMessage, Any]], now: datetime) -> None:
        """Remove messages that were redriven at the time `now`."""
        ...

    def close(self) -> None:
        """Release the messages that were taken and are not done."""
        ...


@dataclass(slots=True)
class SourceOutcome:
    """The number of redriven messages of one source, and the answers to those that stay."""

    done: int = 0
    left: list[Answer] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The outcome of a redrive by the names of its sources. `stopped` if there may be more than the maximum."""

    sources: dict[str, SourceOutcome] = field(default_factory=dict)
    stopped: bool = False

    @property
    def remains(self) -> bool:
        return self.stopped or any(source.left for source in self.sources.values())


def redrive_all(
    sources: Sequence[MessageSource],
    redrive: Redrive,
    *,
    now: Callable[[], datetime],
    most: int | None = None,
    keep: bool = False,
    report: Callable[[MessageSource, Sequence[Answer]], None] = lambda source, answers: None,
) -> Outcome:
    """Redrive the messages of all sources, at most `most`. With `keep` none is removed.

    Raises what a store raises. Then, too, redriven messages are removed, and all others stay.
    """
    outcome = Outcome({source.name: SourceOutcome() for source in sources})
    remaining = float("inf") if most is None else most
    for source in sources:
        counted = outcome.sources[source.name]
        try:
            while taken := source.take(int(min(remaining, 1_000))):
                answers = redrive.work(message for message, _ in taken)
                done = [pair for pair, answer in zip(taken, answers, strict=True) if not answer.left]
                if done and not keep:
                    source.done(done, now())
                counted.done += len(done)
                report(source, answers)
                counted.left += [
                    replace(answer, message=replace(answer.message, items={}, newest={}))
                    for answer in answers
                    if answer.left
                ]
                remaining -= len(taken)
                if not remaining:
                    outcome.stopped = True
                    return outcome
        finally:
            source.close()
    return outcome

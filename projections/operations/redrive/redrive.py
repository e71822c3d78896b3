"""Redriving letters: the items they are about are refreshed; nothing of what they say is believed but keys and expiries.

A letter is answered once everything about it is done and stored, the pushes it led to in the task queue included: whoever
gave it may then delete it. It may be redriven twice, or by two at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

from projections.engine.counters import Counters
from projections.engine.deadline import Deadline
from projections.engine.embeds import SETTLE_SECONDS, Push
from projections.engine.goals import DiscardedRecord
from projections.engine.groups import Generations
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry, RegistrySnapshot
from projections.engine.rejections import internal_reason
from projections.engine.running import Run, one_by_one
from projections.engine.store import Image, ItemKey, Store
from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient, UsageError
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.operations.fenced import RESERVED, Fenced
from projections.operations.quarantine import complaint
from projections.operations.redrive.letters import Letter
from projections.operations.tasks import Task

__all__ = ["Answer", "Redrive", "TaskSender", "in_force"]

_AT_ONCE = 100
"""Items refreshed together: as many as one request reads."""

_SECONDS = 120.0
"""How long is tried what is throttled, for the items refreshed together, and for each page of a push."""


class TaskSender(Protocol):
    """What takes tasks: `operations.tasks.Tasks`."""

    def send(self, tasks: Sequence[tuple[Task, float]]) -> None: ...


@dataclass(slots=True)
class Answer:
    """What became of a letter: done if nothing is `left`, reasons by the item (or task) they are about."""

    letter: Letter
    left: dict[str, list[str]] = field(default_factory=dict)

    def keep(self, about: str, reason: str) -> None:
        reasons = self.left.setdefault(about, [])
        if reason not in reasons:
            reasons.append(reason)


def in_force(program: Program, store: Store) -> RegistrySnapshot:
    """The registry, if these rules are in force in it. Raises UsageError, with what to do, if they are not."""
    snapshot = Registry(program, store).read()
    if snapshot is None:
        raise UsageError("the ledger knows of no rules: no function has worked with it. Is it the right one?")
    if snapshot.program != program.fingerprint:
        older = "older than" if snapshot.outdated(program) else "not"
        raise UsageError(
            f"these rules are {older} those in force. Name the file that is deployed with --rules, or put these in force "
            "first: deploy them, and run `projections backfill`"
        )
    return snapshot


class Redrive:
    """Redrives letters. `send` takes pushes and dead tasks; without it pushes are made here, as long as they take.

    `run` runs refreshes of single items at once, `pace` is told of writes to children before they are made. `items` counts
    what was refreshed, `pushes` what was pushed or sent. It writes under leases, unless it is
    `dry`: then its store writes nothing.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        send: TaskSender | None = None,
        run: Run[Any] = one_by_one,
        pace: Callable[[int], None] = lambda writes: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
        dry: bool = False,
    ) -> None:
        self._program = program
        self._store = store
        self._send = send
        self._run = run
        self._pace = pace
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._dry = dry
        self._fenced: Store = store
        self._generations = Generations()
        self.counters = Counters()
        self.items = 0
        self.pushes = 0

    def work(self, letters: Iterable[Letter]) -> list[Answer]:
        """Redrives letters. Raises UsageError if other rules are in force, Replaced if they change, and Misconfigured."""
        snapshot = in_force(self._program, self._store)
        if self._dry:
            return self._work(letters, snapshot)
        with Fenced(self._store, snapshot, "redrive", clock=self._now) as self._fenced:
            return self._work(letters, snapshot)

    def _work(self, letters: Iterable[Letter], snapshot: RegistrySnapshot) -> list[Answer]:
        answers = [Answer(letter) for letter in letters]
        told = _together(letter for letter in (answer.letter for answer in answers) if not letter.useless)
        problems: dict[ItemKey, list[str]] = {}
        keys = list(told.known)
        for start in range(0, len(keys), _AT_ONCE):
            problems |= self._items(keys[start : start + _AT_ONCE], told, snapshot)
        for answer in answers:
            letter = answer.letter
            if letter.useless:
                answer.keep("", letter.useless)
            elif letter.task is not None:
                self._task(letter.task, answer, snapshot)
            for key in letter.items:
                for reason in problems.get(key, ()):
                    answer.keep(encode_key(key), reason)
        return answers

    # Items

    def _items(self, keys: Sequence[ItemKey], told: _Told, snapshot: RegistrySnapshot) -> dict[ItemKey, list[str]]:
        """Refreshes items together. If anything fails, each for itself, so that it is known whose failure it is."""
        self.items += len(keys)
        refresher = self._refresher(snapshot, self._run)
        try:
            pushes = self._refreshed(refresher, keys, told)
        except Misconfigured:
            raise
        except Exception:
            pushes = None
        problems: dict[ItemKey, list[str]] = {}
        if pushes is None or refresher.failed or refresher.rejected:
            singly = self._run([partial(self._item, key, told, snapshot) for key in keys])
            pushes = [push for _, found, _ in singly for push in found]
            problems = {key: reasons for key, _, reasons in singly if reasons}
        for push, reason in self._pushed(pushes, refresher):
            problems.setdefault(decode_key(push.parent), []).append(reason)
        return problems

    def _refreshed(self, refresher: Refresher, keys: Sequence[ItemKey], told: _Told) -> list[Push]:
        known = {key: told.known[key] for key in keys}
        return refresher.keys(keys, self._deadline(), known, told.removed, told.records)

    def _item(self, key: ItemKey, told: _Told, snapshot: RegistrySnapshot) -> tuple[ItemKey, list[Push], list[str]]:
        refresher = self._refresher(snapshot, one_by_one)
        try:
            pushes = self._refreshed(refresher, [key], told)
        except Misconfigured:
            raise
        except Exception as error:
            return key, [], [_reason(error)]
        reasons = [reason for _, reason in sorted(refresher.failed.items())]
        for one in refresher.rejected:
            reasons.append(complaint(one.rule, one.reason, key=encode_key(key), target=one.target, fault=one.fault))
        return key, pushes, list(dict.fromkeys(reasons))

    def _refresher(self, snapshot: RegistrySnapshot, run: Run[Any]) -> Refresher:
        return Refresher(
            self._program,
            self._fenced,
            snapshot,
            generations=self._generations,
            run=run,
            clock=self._now,
            pace=self._pace,
            counters=self.counters,
            reserved=RESERVED,
        )

    def _deadline(self) -> Deadline:
        return Deadline.after(_SECONDS, clock=self._clock, sleep=self._sleep)

    # Pushes

    def _pushed(self, pushes: Sequence[Push], refresher: Refresher) -> Iterator[tuple[Push, str]]:
        """Makes pushes, or sends them. Gives those that failed, with the reason, and children that can never be written."""
        again: list[Push] = []
        for push in pushes:
            try:
                self._deadline().retry(partial(refresher.embedder.raise_fence, push))
                self.pushes += 1
                if self._send is not None:
                    self._send.send([(push, 0.0)])
                    continue
                yield from self._pages(push, refresher, again)
            except Misconfigured:
                raise
            except Exception as error:
                yield push, _reason(error)
        yield from self._second_passes(again, refresher)

    def _second_passes(self, again: Sequence[Push], refresher: Refresher) -> Iterator[tuple[Push, str]]:
        """An index may not have shown all children: it is looked through once more when it has settled."""
        if again:
            self._sleep(SETTLE_SECONDS)
        for push in again:
            try:
                yield from self._pages(push, refresher, [])
            except Misconfigured:
                raise
            except Exception as error:
                yield push, _reason(error)

    def _pages(self, push: Push, refresher: Refresher, again: list[Push]) -> Iterator[tuple[Push, str]]:
        """All pages of one pass; the second one goes to `again`."""
        page: Push | None = push
        while page is not None:
            more, hopeless = self._deadline().retry(partial(self._page, page, refresher))
            for key, reason in hopeless:
                yield push, f"{push.rule}: {encode_key(key)}: {reason}"
            following = refresher.embedder.following(page, more)
            page = None
            if following is not None and following[1]:
                again.append(following[0])
            elif following is not None:
                page = following[0]

    def _page(self, push: Push, refresher: Refresher) -> tuple[Push | None, list[tuple[ItemKey, str]]]:
        return refresher.embedder.push_page(push, self._deadline())

    # Dead letters of the task queue

    def _task(self, task: Task, answer: Answer, snapshot: RegistrySnapshot) -> None:
        if self._send is not None:
            try:
                self._send.send([(task, 0.0)])
                self.pushes += 1
            except (Transient, InvalidRequest) as error:
                answer.keep(_name(task), f"the task queue did not take it: {error}")
            return
        if not isinstance(task, Push):
            answer.keep(
                _name(task),
                "a page of a backfill is for the worker: name its queue with --queue, or run `projections backfill`, which "
                "goes on where that one stopped, and delete this by hand",
            )
            return
        refresher = self._refresher(snapshot, self._run)
        again: list[Push] = []
        try:
            self.pushes += 1
            for _, reason in [*self._pages(task, refresher, again), *self._second_passes(again, refresher)]:
                answer.keep(_name(task), reason)
        except Misconfigured:
            raise
        except Exception as error:
            answer.keep(_name(task), _reason(error))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, StoreError) else internal_reason(error)


def _name(task: Task) -> str:
    return task.parent if isinstance(task, Push) else f"backfill {task.run}"


class _Told(NamedTuple):
    """What letters say: all items with all their images, those that the newest record says were removed, and what Lambda
    discarded.
    """

    known: Mapping[ItemKey, Sequence[Image]]
    removed: frozenset[ItemKey]
    records: Mapping[ItemKey, Sequence[DiscardedRecord]]


def _together(letters: Iterable[Letter]) -> _Told:
    known: dict[ItemKey, list[Image]] = {}
    records: dict[ItemKey, list[DiscardedRecord]] = {}
    newest: dict[ItemKey, tuple[tuple[int, str], bool]] = {}
    for letter in letters:
        for key, images in letter.items.items():
            held = known.setdefault(key, [])
            held += [image for image in images if image not in held]
        for key, told in letter.told.items():
            records.setdefault(key, []).extend(told)
        for key, last in letter.newest.items():
            newest[key] = max(last, newest.get(key, last))
    return _Told(known, frozenset(key for key, (_, removed) in newest.items() if removed), records)

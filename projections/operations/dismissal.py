"""Dismissing quarantined messages that are not needed. Who dismissed a message, and why, is recorded first.

    pk   sk            what
    D    <message id>  a dismissed message: its item, the reason, by whom, when; kept for 90 days

The record is written before the message is deleted. If the process dies in between, both exist: the message is still in the
queue, and the same command dismisses it again under the same key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.rejections import GROUP, Rejected
from projections.engine.store import Image, ItemKey, Purpose, Store, Update, Value, all_items
from projections.language.keys import ItemKey as Key
from projections.language.keys import encode_key
from projections.operations.quarantine import HELD_SECONDS, MessageQueue, complaint

_PARTITION = "D"
_KEPT = timedelta(days=90)
_AGE = re.compile(r"([0-9]{1,6})\s?(s|min|h|d)")
_UNITS = {"s": "seconds", "min": "minutes", "h": "hours", "d": "days"}
_NAMES = ("rule", "key", "target", "fault", "reason")


def age(text: str) -> timedelta | None:
    """Return the age that a text such as `36h` gives, or None. Units are s, min, h and d."""
    match = _AGE.fullmatch(text)
    return timedelta(**{_UNITS[match[2]]: int(match[1])}) if match else None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message of the quarantine: its id and contents. An attribute that is missing or not text is None."""

    id: str
    rule: str | None
    key: str | None
    target: str | None
    fault: str | None
    reason: str | None
    time: datetime | None
    triggered_by: tuple[str, ...] = ()
    """Up to ten source items whose records led to the target or group at fault; `triggers` is their number."""
    triggers: int = 0

    @classmethod
    def read(cls, message: Any) -> Quarantined:
        """Read a message as received from the queue, with any body."""
        try:
            body = json.loads(message.body)
        except (ValueError, RecursionError):
            body = None
        held = body if isinstance(body, dict) else {}
        texts = {name: held[name] if isinstance(held.get(name), str) else None for name in _NAMES}
        led = held.get("triggeredBy")
        sources = tuple(source for source in led if isinstance(source, str)) if isinstance(led, list) else ()
        number = held.get("triggeredByCount")
        triggers = number if isinstance(number, int) else len(sources)
        return cls(message.id, **texts, time=_time(held.get("time")), triggered_by=sources, triggers=triggers)

    @property
    def cause(self) -> str:
        """Rule and item, target or group, without the reason."""
        where = self.key if self.target in (None, self.key) and self.fault != GROUP else ""
        return complaint(self.rule, where, key=self.key, target=self.target, fault=self.fault)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Selects messages: those of an item (`key` or `target`), of a rule, or older than an age. One of the three is set."""

    item: Key | None = None
    rule: str | None = None
    older: timedelta | None = None

    def takes(self, message: Quarantined, now: datetime) -> bool:
        """Return whether a message is selected. A message without a valid time is never old enough."""
        if self.item is not None:
            return encode_key(self.item) in (message.key, message.target)
        if self.older is not None:
            return message.time is not None and now - message.time > self.older
        return self.rule in (message.rule or "").split(", ")


@dataclass(frozen=True, slots=True)
class Decision:
    """Who dismisses, and why. `by` is an ARN, or a user of the operating system."""

    because: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Dismissed:
    """The record of a message that was dismissed. `quarantined` is the time in the message."""

    message: Quarantined
    decision: Decision


@dataclass(slots=True)
class _Opened:
    """A quarantine that is being read: received messages stay invisible to other receivers until they are released."""

    queue: MessageQueue
    held: dict[str, Any] = field(default_factory=dict)

    def pages(self) -> Iterator[list[Quarantined]]:
        while messages := self.queue.receive(HELD_SECONDS, wait=0 if self.held else 2):
            new = [message for message in messages if message.id not in self.held]
            self.held.update((message.id, message) for message in messages)
            if not new:  # their visibility timeout is over: all have been received
                return
            yield [Quarantined.read(message) for message in new]

    def delete(self, messages: Sequence[Quarantined]) -> None:
        self.queue.delete([self.held[message.id] for message in messages])
        for message in messages:
            del self.held[message.id]

    def release(self) -> None:
        self.queue.release(list(self.held.values()))


def quarantined_messages(queue: MessageQueue) -> Iterator[Quarantined]:
    """Yield the messages of a quarantine, and release them afterwards."""
    opened = _Opened(queue)
    try:
        for page in opened.pages():
            yield from page
    finally:
        opened.release()


def dismiss(
    queue: MessageQueue,
    store: Store,
    wanted: Wanted,
    decision: Decision | None,
    now: datetime,
    report: Callable[[Quarantined], None] = lambda message: None,
) -> tuple[int, int]:
    """Record and delete the selected messages. Without a decision, write and delete nothing.

    Return the number of selected and of other messages. `report` is called with each message that is done. Raise what queue
    and store raise: deleted messages are recorded then, and all others are released.
    """
    opened = _Opened(queue)
    done = others = 0
    try:
        for page in opened.pages():
            chosen = [message for message in page if wanted.takes(message, now)]
            others += len(page) - len(chosen)
            if decision is not None and chosen:
                for message in chosen:
                    store.write(_record(message, decision))
                opened.delete(chosen)
            done += len(chosen)
            for message in chosen:
                report(message)
    finally:
        opened.release()
    return done, others


def dismissed_messages(store: Store) -> list[Dismissed]:
    """Return the messages dismissed in the last 90 days, the newest first. Raise what a read raises."""
    messages = map(_read, all_items(partial(store.query, LEDGER, [{"S": _PARTITION}])))
    return sorted(messages, key=lambda message: message.decision.at, reverse=True)


def among(store: Store, rejected: Sequence[Rejected]) -> list[Rejected]:
    """Return the rejections of items and rules of which messages were dismissed in the last 90 days, for any reason."""
    if not rejected:
        return []
    rules: dict[str | None, set[str]] = {}
    for dismissal in dismissed_messages(store):
        rules.setdefault(dismissal.message.key, set()).update(_rules(dismissal.message.rule))
    return [item for item in rejected if item.key is not None and _rules(item.rule) <= rules.get(item.key, set())]


def _rules(names: str | None) -> set[str]:
    """Return the names of rules in a rejection; an empty one if no rule could use the item."""
    return set((names or "").split(", "))


def _record(message: Quarantined, decision: Decision) -> Update:
    values: dict[str, Value] = {
        "because": {"S": decision.because},
        "by": {"S": decision.by},
        "at": {"S": decision.at.isoformat()},
        "ttl": {"N": str(int((decision.at + _KEPT).timestamp()))},
    }
    values |= {name: {"S": text} for name in _NAMES if (text := getattr(message, name)) is not None}
    if message.time is not None:
        values["quarantined"] = {"S": message.time.isoformat()}
    why = Purpose("dismissal", (message.rule,) if message.rule is not None else (), message.key or "")
    return Update(ItemKey(LEDGER, _PARTITION, message.id), set=values, purpose=why)


def _read(item: Image) -> Dismissed:
    fields: Mapping[str, Any] = {name: value["S"] for name, value in item.items() if "S" in value}
    texts: Mapping[str, Any] = {name: fields.get(name) for name in _NAMES}
    message = Quarantined(fields["sk"], **texts, time=_time(fields.get("quarantined")))
    return Dismissed(message, Decision(fields["because"], fields["by"], datetime.fromisoformat(fields["at"])))


def _time(text: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo is not None else None

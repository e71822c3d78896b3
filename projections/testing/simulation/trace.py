"""A history as text: one line for each event."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.store import Delete, Image, ItemKey, Update
from projections.errors import ConditionFailed, TransactionCancelled
from projections.language.keys import encode_key
from projections.language.values import plain


class Trace:
    """Lines in the order of events; none unless `kept`, because writing them takes longer than the history itself."""

    def __init__(self, *, kept: bool) -> None:
        self.kept = kept
        self.lines: list[str] = []

    def note(self, what: str, who: str = "simulation") -> None:
        """Add an event of an invocation or the application, or one that none of them caused."""
        if self.kept:
            self.lines.append(f"{len(self.lines):5}  {who:<14} {what}")

    def call(self, who: str, at: tuple[str, str, Any, Any], fault: str | None) -> None:
        """Add the stop at which a thread is resumed."""
        if not self.kept:
            return
        what, name, subject, outcome = at
        if what == "asks":
            self.note(f"{name} {_subject(subject)}" + (f"  !! {fault}" if fault else ""), who)
        elif what == "hears" and outcome is not None:
            self.note(f"    {name} → {_outcome(outcome)}", who)
        elif what == "sleeps":
            self.note("sleeps", who)

    def change(self, who: str, record: Mapping[str, Any]) -> None:
        """Add a stream record."""
        if not self.kept:
            return
        change = record["dynamodb"]
        key = " / ".join(str(next(iter(value.values()))) for value in change["Keys"].values())
        old, new = change.get("OldImage"), change.get("NewImage")
        expired = " by TTL" if "userIdentity" in record else ""
        words = f"{short_number(record)} {record['eventName']}{expired} {key}"
        self.note(f"{words}  {_difference(old, new, change['Keys'])}", who)


def short_number(record: Mapping[str, Any]) -> str:
    """The end of a record's sequence number."""
    return f"…{record['dynamodb']['SequenceNumber'][-4:]}"


def _difference(old: Image | None, new: Image | None, keys: Image) -> str:
    if new is None:
        return ""
    if old is None:
        return image_text({name: value for name, value in new.items() if name not in keys})
    changed = {name: value for name, value in new.items() if old.get(name) != value}
    gone = [name for name in old if name not in new]
    return image_text(changed) + (f"  without {', '.join(gone)}" if gone else "")


def image_text(image: Image) -> str:
    return json.dumps({name: plain(value) for name, value in image.items()}, ensure_ascii=False, default=str)


def _subject(subject: Any) -> str:
    if isinstance(subject, ItemKey):
        return encode_key(subject)
    condition = ""
    if isinstance(subject, Update | Delete) and subject.condition:
        condition = f"  IF {_condition(subject.condition)}"
    if isinstance(subject, Delete):
        return f"{encode_key(subject.key)} DELETE{condition}"
    if isinstance(subject, Update):
        parts = [encode_key(subject.key)]
        if subject.set:
            parts.append("SET " + image_text(subject.set))
        if subject.remove:
            parts.append("REMOVE " + ", ".join(subject.remove))
        if subject.add:
            parts.append("ADD " + image_text(subject.add))
        if subject.discard:
            parts.append("DELETE " + image_text(subject.discard))
        return " ".join(parts) + condition
    if isinstance(subject, Sequence) and not isinstance(subject, str):
        return "".join(f"\n{'':24}{_subject(part)}" for part in subject)
    return str(subject)


def _condition(condition: Any) -> str:
    parts = getattr(condition, "conditions", None)
    if parts is not None:
        word = " and " if type(condition).__name__ == "AllOf" else " or "
        return "(" + word.join(map(_condition, parts)) + ")"
    path = ".".join(condition.path)
    value = getattr(condition, "value", None)
    return f"{type(condition).__name__.lower()} {path}" + (f" {json.dumps(plain(value))}" if value else "")


def _outcome(outcome: Any) -> str:
    if isinstance(outcome, ConditionFailed):
        return "condition failed, the item is " + ("absent" if outcome.item is None else image_text(outcome.item))
    if isinstance(outcome, TransactionCancelled):
        reasons = [
            "passed" if reason is None else reason.kind + (f" {image_text(reason.item)}" if reason.item else "")
            for reason in outcome.reasons
        ]
        return "cancelled: " + "; ".join(reasons)
    if isinstance(outcome, Exception):
        return f"{type(outcome).__name__}: {outcome}"
    if isinstance(outcome, Mapping):
        if outcome and isinstance(next(iter(outcome)), ItemKey):
            return "; ".join(f"{encode_key(key)} {image_text(image)}" for key, image in outcome.items()) or "nothing"
        return image_text(outcome) or "nothing"
    items = getattr(outcome, "items", None)
    return "; ".join(map(image_text, items)) if items is not None and not callable(items) else str(outcome)

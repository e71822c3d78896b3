"""What a stream record shows of its item, in words: for `replay --brief` and for `dev`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.inspect.explain.words import short
from projections.language.values import changed_attributes, plain, plain_words
from projections.local.items import different_words

if TYPE_CHECKING:
    from projections.engine.records import Record
    from projections.engine.store import Value

__all__ = ["happened", "value_text"]

_LONGEST = 24


def happened(record: Record, prefix: str) -> str:
    """Return what happened to the item of a record: `is created`, `is deleted`, or its changed attributes, without guards.

    `prefix` is that of guards.
    """
    if record.old is None or record.new is None:
        return "is created" if record.new is not None else "expires" if record.expired else "is deleted"
    old, new = record.old, record.new
    changed = set(changed_attributes(old, new))
    names = [name for name in (*new, *(name for name in old if name not in new)) if name in changed]
    parts = [_change(name, old.get(name), new.get(name)) for name in names if not name.startswith(prefix)]
    return ", ".join(parts) or ("only guards change" if changed else "is written without a change")


def _change(name: str, old: Value | None, new: Value | None) -> str:
    if new is None:
        return f"{name} is removed"
    if old is None:
        return f"{name}: {value_text(new, _LONGEST)}"
    before, after = value_text(old, _LONGEST), value_text(new, _LONGEST)
    if before == after:  # of another type, or different only in what is cut off
        before, after = different_words(old, new, _LONGEST)
    return f"{name}: {before} → {after}"


def value_text(value: Value, longest: int = 48) -> str:
    """Return a value on one line: strings and numbers as they are, others as JSON."""
    ((kind, _),) = value.items()
    text = str(value[kind]) if kind in ("S", "N") else plain_words(plain(value))
    return short(text, longest)

"""Guards: what they look like, the conditions on them, and when a record shows that a guarded value needs healing.

A guard is the attribute `~<rule>` of an item that a rule writes to: `{by: source key, at: version, n: contributions}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from projections.engine.store import AnyOf, Below, Condition, Equal, Image, Missing, NotEqual, Value
from projections.language.values import same

__all__ = ["as_read", "at_of", "by_of", "guard_value", "needs_healing", "older", "older_or_foreign"]


def guard_value(at: str, *, by: str | None = None, n: int | None = None) -> Value:
    """A guard in wire form."""
    fields: dict[str, Value] = {"at": {"S": at}}
    if by is not None:
        fields["by"] = {"S": by}
    if n is not None:
        fields["n"] = {"N": str(n)}
    return {"M": fields}


def _field(guard: Value | None, name: str) -> str:
    fields = guard.get("M") if guard is not None else None
    value = fields.get(name) if isinstance(fields, Mapping) else None
    text = value.get("S") if isinstance(value, Mapping) else None
    return text if isinstance(text, str) else ""


def at_of(guard: Value | None) -> str:
    """The version a guard names; empty, the least, if there is none."""
    return _field(guard, "at")


def by_of(guard: Value | None) -> str:
    """The encoded source key a guard names; empty if there is none."""
    return _field(guard, "by")


def older(guard: str, at: str) -> Condition:
    """The guard is absent or older than `at`."""
    return AnyOf((Missing((guard,)), Below((guard, "at"), {"S": at})))


def older_or_foreign(guard: str, by: str, at: str) -> Condition:
    """The guard is absent, another source's, or older than `at`: versions of different sources are never compared."""
    return AnyOf((Missing((guard,)), NotEqual((guard, "by"), {"S": by}), Below((guard, "at"), {"S": at})))


def as_read(guard: str, value: Value | None) -> Condition:
    """The guard is still what was read, whatever that says."""
    return Missing((guard,)) if value is None else Equal((guard,), value)


def needs_healing(guard: str, ours: Iterable[str], old: Image | None, new: Image | None) -> bool:
    """Whether the record of a target shows that what a rule published there may be wrong now.

    It appeared; it lost its guard; our values changed while the guard did not advance; the guard went backwards; or it
    changed together with attributes that are not ours (the application read the item, then put it back whole). `ours`
    names the rule's attributes. Removal is not judged here.
    """
    if new is None:
        return False
    if old is None:
        return True
    before, after = old.get(guard), new.get(guard)
    if after is None:
        return before is not None
    names = set(ours)
    if same(before, after):
        return any(not same(old.get(name), new.get(name)) for name in names)
    if before is not None and at_of(before) >= at_of(after):
        return True
    names.add(guard)
    return any(not same(old.get(name), new.get(name)) for name in old.keys() | new.keys() if name not in names)

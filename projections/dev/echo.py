"""Which records show our own writes: the stream of a table tells of them too."""

from __future__ import annotations

from projections.inspect.explain.records import RecordTold
from projections.language.program import Program
from projections.language.values import changed_attributes

__all__ = ["is_own"]


def is_own(program: Program, told: RecordTold) -> bool:
    """Whether an item that rules make was made, or nothing but what rules write changed, and none has to put it right."""
    record = told.record
    if record is None or told.entity is None:
        return False
    changed = changed_attributes(record.old, record.new)
    guarded = any(name.startswith(program.guard_prefix) for name in changed)
    owned = program.entities[told.entity].owned_by_rules
    if owned and guarded and record.old is None:
        return True  # and other rules may have something to add
    if any(rule.effect == "heals" for rule in told.rules):
        return False
    if owned and guarded:
        return True
    derived = program.derived_attributes(told.entity)
    return bool(changed) and all(name in derived or name.startswith(program.guard_prefix) for name in changed)

"""Why the record of a target makes a rule look at it again: the engine's predicates, answering with a reason.

Each function here has a predicate of the engine beside it and must agree with it always (tests/tools/test_explain.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from projections.engine.copies import heals_of
from projections.engine.embeds import needs_pull, reference_of
from projections.engine.guards import at_of, by_of, needs_healing
from projections.engine.store import Image
from projections.language.embeds import EmbedRule
from projections.language.keys import ItemKey, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, LedgerRule
from projections.language.scope import Item
from projections.language.values import same
from projections.tools.explain.words import encoded_words, key_words, version_words

__all__ = ["copy_reason", "group_reason", "healing_reason", "pull_reason"]


def healing_reason(guard: str, ours: Iterable[str], old: Image | None, new: Image | None) -> str | None:
    """As `guards.needs_healing`."""
    ours = tuple(ours)
    if new is None or not needs_healing(guard, ours, old, new):
        return None
    if old is None:
        return "it appeared"
    before, after = old.get(guard), new.get(guard)
    if after is None:
        return f"it lost its guard {guard}"
    if same(before, after):
        changed = ", ".join(name for name in sorted(ours) if not same(old.get(name), new.get(name)))
        return f"{changed} changed, but not by the rule: the guard {guard} stayed as it was"
    if before is not None and at_of(before) >= at_of(after):
        return (
            f"the guard {guard} did not advance: {version_words(at_of(before))}, then {version_words(at_of(after))}; "
            "something put an old state of the item back"
        )
    known = {*ours, guard}
    foreign = sorted(
        name for name in old.keys() | new.keys() if name not in known and not same(old.get(name), new.get(name))
    )
    return f"the guard {guard} changed together with {', '.join(foreign[:5])}: something put the whole item back"


def group_reason(program: Program, rule: LedgerRule, old: Item | None, new: Item | None) -> str | None:
    """Why the group of an item is published again, as `plan` decides it for a record of a target; None if it is not."""
    before = old.image if old is not None and old.entity is rule.into else None
    after = new.image if new is not None and new.entity is rule.into else None
    if before is None and after is None:
        return None
    if after is None:
        creates = isinstance(rule, CopyRule) or (rule.into.derived and not rule.into.copied)
        return "it was removed, and the rule alone decides whether it is there" if creates else None
    ours = rule.owned(before, after) if isinstance(rule, CopyRule) else rule.attributes
    return healing_reason(program.guard(rule.name), ours, before, after)


def copy_reason(program: Program, key: ItemKey, old: Item | None, new: Item | None) -> str | None:
    """As `copies.heals_of`: why a copy is compared with its source; None if it is not."""
    heals = heals_of(program, key, old, new, "")
    if not heals:
        return None
    rule, guard = heals[0].rule, program.guard(heals[0].rule.name)
    before = old.image if old is not None else None
    after = new.image if new is not None else None
    if after is None:
        return "it was removed: its source says whether it should be"
    reason = healing_reason(guard, rule.owned(before, after), before, after)
    if reason is None:
        named = [encoded_words(by_of(image[guard])) for image in (before, after) if image and guard in image]
        reason = (
            "it was put on an item that was no copy" if len(named) < 2 else f"it changed hands: {named[0]}, {named[1]}"
        )
    return reason


def pull_reason(rule: EmbedRule, guard: str, old: Item | None, new: Item | None) -> str | None:
    """As `embeds.needs_pull`: why a child asks its parent; None if it does not."""
    if new is None or not needs_pull(rule, guard, old, new):
        return None
    if old is None:
        return "it appeared"
    parent = reference_of(rule, new)[0]
    if (former := reference_of(rule, old)[0]) != parent:
        return f"its reference changed from {_named(former)} to {_named(parent)}"
    held = new.image.get(guard)
    if held is not None and (parent is None or by_of(held) != encode_key(parent)):
        return f"it references {_named(parent)}, its guard {guard} names {encoded_words(by_of(held)) or 'nobody'}"
    if parent is None:
        return "it references no parent, but has what a parent gives"
    moved = [name for name in rule.children.partition if not same(old.image.get(name), new.image.get(name))]
    if moved:
        return f"{', '.join(moved)}, by which its parent finds it, changed"
    return healing_reason(guard, rule.attributes, old.image, new.image)


def _named(key: ItemKey | None) -> str:
    return "no parent" if key is None else key_words(key)

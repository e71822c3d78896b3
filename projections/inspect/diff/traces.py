"""Items that a change of rules deletes, and values that no rule finds any more."""

from __future__ import annotations

from collections.abc import Iterator

from projections.inspect.diff.changes import Change
from projections.language.canonical import Compute, Copy, Document, Index
from projections.language.facts import creates

__all__ = ["deletions", "left_behind", "untouched"]


def untouched(old: Document, name: str) -> str:
    """Return why a backfill removes no value of a rule, whatever `retired` sets; an empty text if it does."""
    rule = old.rules[name]
    if isinstance(rule, Compute) and rule.once:
        return "its values stay, because it has `once`"
    if old.mode(name) == "disabled":
        return "its values stay, because it was disabled"
    return "it wrote none, because it was in shadow mode" if rule.mode == "shadow" else ""


def deletions(old: Document, new: Document, change: Change) -> Iterator[str]:
    """Yield the items of a rule that a backfill deletes."""
    if change.before is None or change.target_before is None or not creates(old, change.before):
        return
    if untouched(old, change.rule):
        return
    entity, made = change.target_before.entity, f"`{change.target_before}`"
    others = any(
        rule.into == entity and name != change.rule and not isinstance(rule, Index | Compute)
        for name, rule in new.rules.items()
    )
    if others and not isinstance(change.before, Copy):
        made += " that no other rule contributes to"
    parts = {part.name.partition(".")[0] for part in change.parts if not part.shared}
    if change.status == "retired" and change.fate == "remove":
        yield f"all {made}"
    elif change.status == "changed" and not left_behind(old, change):
        if change.moved or parts & {"into", "bind", "kind", "each"}:
            yield f"{made} under keys that the rule no longer creates"
        elif parts & {"where", "from"} or any(part.name.endswith(".match") for part in change.parts if part.shared):
            yield f"{made} of items that no longer contribute"


def left_behind(old: Document, change: Change) -> str:
    """Return what stays because no rule recognises it any more, or an empty text.

    Targets in ledger entries are always found. Guarded copies, and values on items of the application, are found by their
    entity only.
    """
    if change.before is None or change.target_before is None:
        return ""
    entity = change.target_before.entity
    unrecognised = {f"{entity}.key", f"{entity}.match", f"{entity}.table"} & {part.name for part in change.parts}
    if not unrecognised:
        return ""
    if not creates(old, change.before):
        return (
            f"Its values stay on items that are not recognised as {entity} any more."
            if change.kind not in ("index", "compute")
            else ""
        )
    if change.before.recorded:
        return ""
    return (
        f"Its copies are not recognised as {entity} any more, so a backfill does not find them. Rename the rule and add "
        f"`retired: {{{change.rule}: remove}}`, which deletes them, or delete them yourself."
    )

"""What becomes of items that rules made or wrote on, when the rules change: what is deleted, and what nobody finds."""

from __future__ import annotations

from collections.abc import Iterator

from projections.inspect.diff.changes import Change
from projections.language.canonical import Copy, Document, Index
from projections.language.facts import creates

__all__ = ["deletions", "left_behind"]


def deletions(old: Document, new: Document, change: Change) -> Iterator[str]:
    """The items that a rule made and that a backfill deletes."""
    if change.before is None or change.target_before is None or not creates(old, change.before):
        return
    entity, made = change.target_before.entity, f"`{change.target_before}`"
    others = any(
        rule.into == entity and name != change.rule and not isinstance(rule, Index) for name, rule in new.rules.items()
    )
    if others and not isinstance(change.before, Copy):
        made += " that no other rule contributes to"
    parts = {part.name.partition(".")[0] for part in change.parts if not part.shared}
    if change.status == "retired" and change.fate == "remove":
        yield f"all {made}"
    elif change.status == "changed" and not left_behind(old, change):
        if change.moved or parts & {"into", "bind", "kind", "each"}:
            yield f"{made} under keys that are not made any more"
        elif parts & {"where", "from"} or any(part.name.endswith(".match") for part in change.parts if part.shared):
            yield f"{made} of items that no longer contribute"


def left_behind(old: Document, change: Change) -> str:
    """What stays as it is because nothing recognises it any more; empty if there is nothing.

    A ledger knows the targets of its entries, whatever they are now. Other copies are found by what they are, and so are
    the values that rules keep on items of others.
    """
    if change.before is None or change.target_before is None:
        return ""
    entity = change.target_before.entity
    unrecognised = {f"{entity}.key", f"{entity}.match", f"{entity}.table"} & {part.name for part in change.parts}
    if not unrecognised:
        return ""
    if not creates(old, change.before):
        return f"What it wrote on items that are no {entity} any more stays there." if change.kind != "index" else ""
    if change.before.recorded:
        return ""
    return (
        f"Copies it made are no {entity} any more, so that nothing finds them: give the rule another name and say "
        f"`retired: {{{change.rule}: remove}}`, which deletes them, or delete them yourself."
    )

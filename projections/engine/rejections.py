"""Rejections as they are reported: each names the cause, and what only led there beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from projections.engine.embeds import Push
from projections.engine.ledger import Change
from projections.engine.limits import refusal
from projections.engine.plan import GROUP, ITEM, TARGET, Rejected
from projections.engine.store import ItemKey
from projections.errors import DamagedGroup, InvalidRequest
from projections.language.keys import encode_key

__all__ = ["distinct", "of_child", "refused", "rejected_by"]


def refused(change: Change, rule: str, reason: str, sequence: str | None = None) -> Rejected:
    """Return the rejection of a change that the ledger cannot hold for a rule: by the item, or by a target's group."""
    target = change.culprits.get(rule)
    return Rejected(
        rule,
        reason,
        change.source,
        sequence,
        _table(change.source),
        target=target,
        fault=ITEM if target is None else GROUP,
        triggered_by=() if target is None else (change.source,),
    )


def rejected_by(
    error: InvalidRequest,
    rule: str | None,
    key: str,
    sequence: str | None = None,
    *,
    target: str | None = None,
    source: str | None = None,
) -> Rejected:
    """Return the rejection of a write that DynamoDB refused. `source` is the item whose record led to it, if not `key`."""
    target = error.target or target
    fault = ITEM if target is None else GROUP if isinstance(error, DamagedGroup) else TARGET
    source = source or key
    led = (source,) if target is not None and source != target else ()
    return Rejected(rule, refusal(str(error)), key, sequence, _table(key), target=target, fault=fault, triggered_by=led)


def of_child(push: Push, key: ItemKey, reason: str, sequence: str | None = None) -> Rejected:
    """Return the rejection of a child that a push of its parent cannot update."""
    child = encode_key(key)
    return Rejected(
        push.rule, reason, child, sequence, key.table, target=child, fault=TARGET, triggered_by=(push.parent,)
    )


def distinct(rejected: Iterable[Rejected]) -> list[Rejected]:
    """Return each rejection once. What one target refuses several times is one, with all that led there.

    It keeps the lowest sequence number.
    """
    found: dict[Rejected, Rejected] = {}
    for one in rejected:
        same = replace(one, sequence=None, triggered_by=()) if one.target is not None and one.key == one.target else one
        known = found.get(same)
        if known is None:
            found[same] = one
        elif same is not one:
            lowest = min((known.sequence, one.sequence), key=lambda each: (len(each or ""), each or ""))
            led = tuple(dict.fromkeys(known.triggered_by + one.triggered_by))
            found[same] = replace(known, sequence=lowest, triggered_by=led)
    return list(found.values())


def _table(key: str) -> str:
    return key.partition("|")[0]

"""Refusals of DynamoDB: the limit that was exceeded, and what to change in the rules. Its messages are about requests."""

from __future__ import annotations

import re

__all__ = ["refusal"]

_LIMITS = (
    (
        ("Item size",),
        "an item can have at most 400 KB: {what} would have more; {instead}",
    ),
    (
        ("38 ", "magnitude", "overflow", "underflow"),
        "a number has 38 significant digits and a magnitude from 1E-130 to 9.99E+125: the totals of this rule would need "
        "more; round the values, or give very large and very small ones different targets",
    ),
    (
        ("Expression size", "too many operators"),
        "an expression can have at most 4 KB and 300 operators: {what} has too many attributes for one write; list the "
        "attributes that are needed, or keep them in one map",
    ),
    (
        ("payload size", "4MB", "4 MB"),
        "a transaction can have at most 4 MB: {what} would need more; list fewer attributes",
    ),
)
"""Words in a refusal, and the limit that they report."""

_ENTRY = (
    "the item's contribution, in its ledger entry,",
    'let "each" give fewer elements, or shorten the target\'s key',
)
_TARGET = "the target", 'let the rule write fewer or shorter attributes, or lower its "limit"'


def refusal(message: str, *, entry: bool = False) -> str:
    """Return a refusal in terms of rules, followed by DynamoDB's message. `entry`: it was of a commit to the ledger."""
    what, instead = _ENTRY if entry else _TARGET
    own = re.sub(r"^\w+ on .*?: \w+: ", "", message)  # without the names of tables
    for words, limit in _LIMITS:
        if any(word in own for word in words):
            return f"{limit.format(what=what, instead=instead)} ({message})"
    return message

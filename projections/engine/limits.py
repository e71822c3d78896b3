"""What DynamoDB's refusals mean: which limit was met, and what to change. Its own words are about requests, not rules."""

from __future__ import annotations

__all__ = ["refusal"]

_LIMITS = (
    (
        ("Item size",),
        "an item has 400 KB at most: {what} would have more; {instead}",
    ),
    (
        ("38 ", "magnitude", "overflow", "underflow"),
        "a number has 38 significant digits and a magnitude from 1E-130 to 9.99E+125: what the rule adds up here would "
        "need more; round the values, or tell very large and very small ones apart by the target's key",
    ),
    (
        ("Expression size", "too many operators"),
        "an expression has 4 KB and 300 operators: {what} has too many attributes for one write; copy the ones that are "
        "needed by name, or keep them together in a map",
    ),
    (
        ("payload size", "4MB", "4 MB"),
        "a transaction has 4 MB: {what} would need more; list fewer attributes",
    ),
)
"""Words in a refusal, and the limit they are about."""

_ENTRY = (
    "what the item contributes, in its ledger entry,",
    'let "each" give fewer elements, or shorten the target\'s key',
)
_TARGET = "the target", 'let the rule list fewer or shorter attributes, or lower its "limit"'


def refusal(message: str, *, entry: bool = False) -> str:
    """A refusal in the words of rules, with DynamoDB's own behind; `entry` says that a commit to the ledger met it."""
    what, instead = _ENTRY if entry else _TARGET
    for words, limit in _LIMITS:
        if any(word in message for word in words):
            return f"{limit.format(what=what, instead=instead)} ({message})"
    return message

"""What each kind of write is for, in words. The engine gives each write its purpose; nothing is guessed from keys here."""

from __future__ import annotations

from projections.engine.store import Purpose, Role, Write
from projections.language.keys import encode_key

__all__ = ["ROLES", "purpose_of"]

ROLES: dict[Role, str] = {
    "entry": "what a source item contributes, as of which version",
    "forget": "the pending publishes of the entry are removed",
    "group": "the totals of one target",
    "member": "one contribution in order, for min, max, top, latest and claims",
    "extreme": "the least or greatest value that has settled",
    "shards": "how many shards a group has",
    "rebuild": "a group is replaced by a new generation",
    "sweep": "contributions in order, of a generation that was replaced",
    "note": "which group is being rebuilt",
    "fence": "the newest version of a parent that is being pushed",
    "wait": "which source waits for a key that an item of another kind occupies",
    "registry": "which rules are in force, and in which state",
    "lease": "a command is running",
    "progress": "how far a backfill is",
    "audit": "the result of an audit, and where the next one begins",
    "secret": "the secret of hashes that replace keys in logs",
    "dismissal": "a quarantined message that a person dismissed",
    "publish": "what a group says, onto its target",
    "copy": "a copy of the source item",
    "embed": "a parent's attributes, in its child",
    "index": "key attributes of indexes, on the item itself",
    "release": "attributes that rules set, from an item that has left its entity",
    "restore": "attributes of the application that a deletion removed with a rule's item",
    "delete": "an item that a rule created, and that no source makes any more",
    "other": "a write of the application",
}
"""What each kind of write is for. Those from `entry` to `dismissal` are of the ledger."""


def purpose_of(write: Write) -> Purpose:
    """Return why a write that the engine made is made, and which item it is about: a source, target, parent, or itself."""
    purpose = write.purpose
    return purpose if purpose.about else purpose._replace(about=encode_key(write.key))

"""The purpose of each kind of write, in words. The engine gives each write its purpose; nothing is guessed from keys
here."""

from __future__ import annotations

from projections.engine.store import Purpose, Role, Write
from projections.language.keys import encode_key

__all__ = ["ROLES", "purpose_of"]

ROLES: dict[Role, str] = {
    "entry": "the contributions of a source item, and its version",
    "forget": "removes the completed publishes from the entry",
    "group": "the totals of one target",
    "member": "one contribution in order, for min, max, top, latest and claims",
    "counter": "how many contributions have one value, for distinct, counts and values",
    "extreme": "the least or greatest value of expired items",
    "shards": "the number of shards of a group",
    "rebuild": "replaces a group with a new generation",
    "sweep": "members of a generation that was replaced",
    "note": "the group that is being rebuilt",
    "fence": "the newest version of a parent that is being pushed",
    "link": "a child that references the parent among others",
    "wait": "the source that waits for a key that an item of another kind occupies",
    "registry": "the active rules and their states",
    "lease": "the lease of a running command",
    "progress": "the progress of a backfill",
    "audit": "the result of an audit, and the position of the next one",
    "secret": "the secret of hashes that replace keys in logs",
    "dismissal": "a quarantined message that a person dismissed",
    "publish": "the values of a group, on its target",
    "copy": "a copy of the source item",
    "embed": "a parent's attributes, in its child",
    "index": "key attributes of indexes, on the item itself",
    "compute": "computed attributes, on the item itself",
    "release": "removes attributes that rules set on an item that has left its entity",
    "restore": "restores attributes of the application that were deleted with a rule's item",
    "delete": "deletes an item that a rule created and that has no source any more",
    "other": "a write of the application",
}
"""The purpose of each kind of write. Those from `entry` to `dismissal` are writes to the ledger."""


def purpose_of(write: Write) -> Purpose:
    """Return why a write that the engine made is made, and which item it is about: a source, target, parent, or itself."""
    purpose = write.purpose
    return purpose if purpose.about else purpose._replace(about=encode_key(write.key))

"""Drift: one thing that is not stored as the rules say, with everything needed to understand it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["KINDS", "Drift"]

KINDS = {
    "entry missing": "the ledger does not know what an item contributes",
    "entry extra": "the ledger says that an item contributes what it does not",
    "entry stale": "the ledger says that an item contributes something else",
    "copy missing": "an item has no copy",
    "copy extra": "a copy of what is not there",
    "copy stale": "a copy shows something else than its source",
    "index": "an index attribute is not what the item's other attributes say",
    "embed": "a child shows something else than its parent",
    "value": "a published value is not what its group says",
    "guard": "a guard is missing, names another source, or is from the future and locks out what comes",
    "target missing": "an item that a rule creates is not there, though something contributes to it",
    "target extra": "an item that a rule creates is there, though nothing contributes to it",
    "occupied": "an item of another kind is under the key of an item that a rule creates",
    "group": "a total is not the sum of what the entries contribute",
    "member missing": "a group lacks a member that an entry contributes",
    "member extra": "a group has a member that no entry contributes",
    "member stale": "a group's member holds something else than the entry says",
    "rebuilding": "a rebuild of a group was begun and not ended, so that nothing of it is published",
}
"""Every kind, with what it means."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference. Values are plain JSON, None where there is nothing.

    `target` is the encoded key of the item that a rule writes to, `attribute` what is wrong of it, None if it is the whole;
    of a group, the measure. `source` is the encoded key of the item that is responsible, where one is. `at` is the version
    with which the rule wrote there last, None if it never did.
    """

    kind: str
    rule: str
    target: str
    attribute: str | None = None
    actual: Any = None
    expected: Any = None
    source: str | None = None
    at: str | None = None
    shadow: bool = False
    """Of a rule that publishes nothing: the value is someone else's."""

    def text(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    @classmethod
    def read(cls, text: str) -> Drift:
        """What `text` wrote."""
        return cls(**json.loads(text))

"""Flows: changes of items of one entity that are alike, so many of them in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["EDIT", "INSERT", "REMOVE", "Flow"]

INSERT, EDIT, REMOVE = "insert", "edit", "remove"


@dataclass(frozen=True, slots=True)
class Flow:
    """Changes of one kind: items that appear, that go, or of which some attributes change (None: any of them).

    `fresh` are items that have only just appeared, so that not all that rules will write is on them yet; `inside` says in
    which indexes they are by now, with which probability. Of others, `inside` is empty: they are in all that their rules
    put them into. `by` are the rules whose publishing made items appear.
    """

    entity: str
    kind: str
    attributes: frozenset[str] | None = None
    fresh: bool = False
    inside: tuple[tuple[str, float], ...] = ()
    by: tuple[str, ...] = ()

    @property
    def indexes(self) -> Mapping[str, float]:
        return dict(self.inside)

    def __str__(self) -> str:
        if self.kind == INSERT:
            return f"a new {self.entity}"
        if self.kind == REMOVE:
            return f"a removed {self.entity}"
        return f"an edit of {self.entity}" + (f".{', '.join(sorted(self.attributes))}" if self.attributes else "")

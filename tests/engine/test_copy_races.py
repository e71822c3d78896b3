"""Guarded copies that are healed while their sources change."""

from __future__ import annotations

from typing import Any

from tests.engine.scene import before
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK]}
entities:
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Seen: {key: {PK: "SEEN#{userId}#{postId}", SK: X}}
"""
SEEN = "projections:\n  seen: {from: Like, copy: {into: Seen, attributes: [stars]}}\n"


def destroyed() -> tuple[World, list[dict[str, Any]]]:
    """A source whose copy the application has deleted, and the record of that, which nobody has heard of yet."""
    w = World(SEEN, HEAD)
    w.like(1, 1, stars=5)
    w.settle()
    w.remove("SEEN#1#1", "X")
    return w, w.store.stream("main")[-1:]


def test_a_source_that_is_removed_while_its_copy_is_made_again_leaves_no_copy() -> None:
    """Its removal found no copy to delete. What healing made is compared again before anything else happens."""
    w, record = destroyed()

    def remove() -> None:
        w.remove("USER#1", "LIKE#1")
        w.deliver(w.store.stream("main")[-1:])

    before(w, "write", remove)
    w.deliver(record)
    assert w.item("SEEN#1#1", "X") is None


def test_a_source_that_changes_while_its_copy_is_made_again_has_its_newest_copy() -> None:
    w, record = destroyed()
    before(w, "write", lambda: w.like(1, 1, stars=6))
    w.deliver(record)
    assert (w.item("SEEN#1#1", "X") or {})["stars"] == 6

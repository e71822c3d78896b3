"""The protocol of `engine.embed_lists` as a small model: all interleavings of one child, one parent and their writers.

The application makes a few changes in a fixed order. Each leads to a writer: a push for the parent, a pull for the child,
in the order of the changes of each. One more writer repeats any of them, at any time and at any speed: a delivery that is
repeated, while the first is late. Each step of a writer is one request. At the end the list has to be right, and the link
has to be there if there is a reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.deep


class World(NamedTuple):
    """Tokens are numbers; `NONE` is the absence of a guard or link."""

    position: int  # changes that the application has made
    parent: int
    refers: bool
    shown: Any
    guard: int
    link: int
    fresh: int  # the next token
    writers: tuple[Writer, ...]
    started: tuple[bool, ...]
    repeated: bool


class Writer(NamedTuple):
    """`step` is the next request; the others are what it has read."""

    change: int
    step: str
    link: int = 0
    guard: int = 0
    refers: bool = False
    parent: int = 0
    linked: bool = False
    again: bool = False


NONE = 0
MUTANTS = (
    "the child is read after the parent",
    "a list that is right keeps its guard",
    "guards count and have no token",
    "the link is written last",
    "the link is deleted without a condition",
    "the link is read after the child",
    "the list is written without a condition",
)
SCRIPTS = (
    ("refer", "parent 1", "parent 0"),
    ("refer", "parent 1", "unrefer", "refer"),
    ("refer", "unrefer", "refer", "parent 1"),
    ("refer", "wipe", "parent 1", "parent 0"),
    ("refer", "parent 1", "parent 0", "wipe"),
    ("refer", "parent 1", "wipe", "parent 0"),
)
"""What the application does: `wipe` puts the child without the guard and the list."""


def right(world: World) -> Any:
    return world.parent if world.refers else None


def changed(world: World, change: str) -> World:
    world = world._replace(position=world.position + 1)
    if change.startswith("parent"):
        return world._replace(parent=int(change[-1]))
    if change == "wipe":
        return world._replace(guard=NONE, shown=None)
    return world._replace(refers=change == "refer")


def first(script: tuple[str, ...], change: int, mutant: str) -> Writer:
    begin = "parent" if mutant == "the child is read after the parent" else "child"
    if script[change].startswith("parent"):
        begin = "query"
    elif script[change] == "unrefer" and mutant != "the link is read after the child":
        begin = "old link"
    return Writer(change, begin)


def stepped(world: World, writer: Writer, name: str, mutant: str) -> tuple[World, Writer | None]:
    """Return the world after a request, and the writer with its next step; None at its end."""
    parent_first = mutant == "the child is read after the parent"
    begin = "parent" if parent_first else "child"
    match writer.step:
        case "query":
            return world, writer._replace(step=begin) if world.link != NONE else None
        case "old link":
            last = mutant == "the link is read after the child"
            return world, writer._replace(link=world.link, step="unlink" if last else begin)
        case "child":
            writer = writer._replace(guard=world.guard, refers=world.refers)
            unlinked = name == "refer" and world.refers and not writer.linked and mutant != "the link is written last"
            return world, writer._replace(step="link" if unlinked else "write" if parent_first else "parent")
        case "link":
            world = world._replace(link=world.fresh, fresh=world.fresh + 1)
            if mutant == "the link is written last":
                return world, None
            return world, writer._replace(linked=True, step="write" if parent_first else "parent")
        case "parent":
            return world, writer._replace(parent=world.parent, step="child" if parent_first else "write")
        case "write":
            return written(world, writer, name, mutant, begin)
        case "unlink":
            same = world.link == writer.link or mutant == "the link is deleted without a condition"
            return (world._replace(link=NONE) if same else world), None
    raise NotImplementedError(writer.step)


def written(world: World, writer: Writer, name: str, mutant: str, begin: str) -> tuple[World, Writer | None]:
    # the list that it has read is that of the guard
    is_right = world.guard == writer.guard and world.shown == (writer.parent if writer.refers else None)
    is_right = is_right and (writer.guard != NONE or not writer.refers)
    if not is_right or (writer.refers and mutant != "a list that is right keeps its guard"):
        unchanged = (world.guard, world.refers) == (writer.guard, writer.refers)
        if not unchanged and mutant != "the list is written without a condition":
            return world, writer._replace(step=begin)
        if writer.refers:
            guard = writer.guard + 1 if mutant == "guards count and have no token" else world.fresh
            world = world._replace(shown=writer.parent, guard=guard, fresh=world.fresh + 1)
        else:
            world = world._replace(shown=None, guard=NONE)
    if name == "refer" and writer.refers and mutant == "the link is written last":
        return world, writer._replace(step="link")
    if name == "unrefer" and not writer.refers:
        if mutant == "the link is read after the child":
            return world, writer._replace(step="old link")
        if writer.link != NONE:
            return world, writer._replace(step="unlink")
    return world, None


def following(world: World, script: tuple[str, ...], mutant: str) -> Iterator[World]:
    if world.position < len(script):
        yield changed(world, script[world.position])
    for change in range(world.position):
        writer = first(script, change, mutant)
        mine = script[change].startswith("parent")
        earlier = [one for one in range(change) if script[one].startswith("parent") == mine]
        in_order = all(world.started[one] for one in earlier) and not any(
            one.change in earlier and not one.again for one in world.writers
        )
        if not world.started[change] and in_order:
            started = tuple(one or place == change for place, one in enumerate(world.started))
            yield world._replace(writers=(*world.writers, writer), started=started)
        elif world.started[change] and not world.repeated:
            repeated = writer._replace(again=True)
            yield world._replace(writers=(*world.writers, repeated), repeated=True)
    for place, writer in enumerate(world.writers):
        others = world.writers[:place] + world.writers[place + 1 :]
        after, left = stepped(world, writer, script[writer.change], mutant)
        yield after._replace(writers=tuple(sorted((*others, left) if left is not None else others)))


def canonical(world: World, mutant: str) -> World:
    """Return the world with tokens renamed: only their equality matters, unless guards are counted."""
    if mutant == "guards count and have no token":
        return world
    names = {NONE: NONE}
    for token in (world.guard, world.link, *(t for one in world.writers for t in (one.guard, one.link))):
        names.setdefault(token, len(names))
    writers = (one._replace(guard=names[one.guard], link=names[one.link]) for one in world.writers)
    return world._replace(
        guard=names[world.guard], link=names[world.link], fresh=len(names), writers=tuple(sorted(writers))
    )


def wrong(script: tuple[str, ...], mutant: str = "") -> list[World]:
    """Return the final states that are wrong."""
    begin = World(0, 0, False, None, NONE, NONE, 1, (), (False,) * len(script), False)
    seen, queue, found = {begin}, [begin], []
    while queue:
        world = queue.pop()
        ways = [canonical(one, mutant) for one in following(world, script, mutant)]
        over = world.position == len(script) and all(world.started) and not world.writers
        if over and (world.shown != right(world) or (world.refers and world.link == NONE)):
            found.append(world)
        for one in ways:
            if one not in seen:
                seen.add(one)
                queue.append(one)
    return found


@pytest.mark.parametrize("script", SCRIPTS, ids=", ".join)
def test_every_interleaving_ends_with_the_right_list(script: tuple[str, ...]) -> None:
    assert wrong(script) == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_some_interleaving_of_a_weaker_protocol_ends_wrong(mutant: str) -> None:
    assert any(wrong(script, mutant) for script in SCRIPTS)

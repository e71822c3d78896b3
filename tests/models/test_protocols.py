"""The protocols of rule versions and of lanes hold in random histories. Each of their rules is needed: without it, one goes
wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import lanes
import pytest
import versions
from lanes import Document, Item, Process, World, drain

Mutants: TypeAlias = Mapping[str, tuple[int, Mapping[str, Any]]]
"""Rules that are left out, with the history that shows it."""

GROUPS: dict[str, Any] = {"keeps": False, "other": "", "old": False, "restores": False}
KEEPS: dict[str, Any] = {"keeps": True, "other": ""}
LONE = {**GROUPS, "posts": "p", "matches": ["all"], "spaces": "a", "writes": 6, "ahead": True}

OF_VERSIONS: Mutants = {
    "change the registry as read": (80, {}),
    "clear what the old version has set": (6, {}),
    "collect nothing of the future": (
        45,
        {
            "operators": ["apply", "apply", "collect", "collect", "remove", "promote"],
            "sleepy": 0.12,
            "other": "",
            "keeps": False,
        },
    ),
    "counters as assumed": (0, {}),
    "defer nothing that is kept": (39, {"keeps": True}),
    "epochs by the clock": (870, {**GROUPS, "restores": True, "operators": ["apply"], "changes": 12, "sleepy": 0.12}),
    "fence of copies": (8, {"other": "copy", "operators": ["apply"]}),
    "fence of entries": (1, {}),
    "fence of guards": (1, {}),
    "fill before the version is ready": (3, {}),
    "finish the promotion that was begun": (201, {"operators": ["apply", "promote", "promote"], "sleepy": 0.12}),
    "finish when all pages are done": (100, {}),
    "heal older promotions": (16, {}),
    "groups as read": (879, LONE),
    "keep what expired": (1, {}),
    "leave pages undone": (289, {"old": True, "keeps": False, "other": "", "operators": ["apply"]}),
    "leave what is gone": (
        392,
        {**KEEPS, "operators": ["apply", "repair"], "old": False, "sleepy": 0.12, "keys": [0, 1]},
    ),
    "mark stale versions": (0, {"old": True, "keeps": False, "other": ""}),
    "members after the group": (
        195,
        {"keeps": False, "other": "", "posts": "p", "operators": ["repair"], "writes": 12},
    ),
    "no registry when the time is over": (
        343,
        {
            "keeps": False,
            "other": "",
            "operators": ["apply"],
            "sleepy": 0.25,
            "matches": ["none", "all"],
            "changes": 3,
            "writes": 25,
            "old": False,
        },
    ),
    "note expiries": (13, {}),
    "promote restored versions anew": (129, {**GROUPS, "restores": True, "operators": ["apply", "promote"]}),
    "publish groups as commits left them": (579, LONE),
    "publish the active version": (0, {}),
    "remove attributes of former versions": (7, {"other": "index"}),
    "scan the copies": (9, {"other": "copy", "operators": ["apply"]}),
    "scan the targets": (34, {}),
    "take nothing over from stale versions": (
        129,
        {**KEEPS, "old": True, "matches": ["all"], "operators": ["apply"], "keys": [0, 1]},
    ),
    "take over before an expiry is added": (17, {"keeps": True, "matches": ["all"]}),
    "take over what is kept": (3, {}),
}

PLAIN: dict[str, Any] = {"keeps": False, "faults": 0.0, "parts": 1}

SLEEPY: dict[str, Any] = {
    "sleepy": 0.25, "keys": [0], "waits": [1], "keeps": False, "faults": 0.0, "begins": "lanes", "empty": False,
    "writes": 40, "operators": ["refresh"],
}  # fmt: skip

OF_LANES: Mutants = {
    "a batch without a shard is a gap": (123, {}),
    "an ended part leaves without its group": (3, {}),
    "an expiry changes nothing": (3, {}),
    "another stream is a gap": (6, {}),
    "clean an entry as it was read": (53, {}),
    "clean up after the last record": (75, {}),
    "compact up to the cut": (11, {}),
    "compare the first part": (22, {}),
    "count an ended part once": (1049, {}),
    "count in order": (141, {}),
    "count the rest if the lane is as seen": (106, {}),
    "end in time": (74, {"sleepy": 0.25, "waits": [25], "keys": [0]}),
    "forget lanes after their records": (85, {}),
    "hand over by the mark as read": (78, SLEEPY),
    "hand over once": (286, SLEEPY),
    "judge by the document alone": (4, {}),
    "know the stream at once": (496, {"events": ["restart"], "lanes": 1.0, "changes": 4}),
    "know what was discarded": (2420, {}),
    "leave nothing to tasks": (62, {"operators": ["apply"], "keeps": False, "sleepy": 0.12, "changes": 4}),
    "leave the part in the entry": (8, {}),
    "marks never fall": (12, SLEEPY),
    "note gaps before counting on": (927, {}),
    "one part for each lane": (42, {}),
    "order guards by promotion": (6, {}),
    "promote without a gap": (198, {"faults": 0.1, "operators": ["apply", "promote"], "lanes": 1.0}),
    "raise no entry past a newer version": (
        2403,
        {"sleepy": 0.12, "events": ["horizon"], "operators": ["apply", "recount"], "changes": 4, "keeps": False},
    ),
    "publish duplicates": (25, {"operators": ["refresh"], "sleepy": 0.06, "lanes": 1.0}),
    "publish what is newer": (63, {}),
    "read documents": (11, {}),
    "read the registry after the commits": (296, {}),
    "refreshes leave what lanes count": (4, {}),
    "the mark is the cut": (55, {}),
    "wait for the handover": (10, {}),
    "write what cancels out": (11, {}),
}

MODELS: Any = pytest.mark.parametrize("model", [versions, lanes], ids=["versions", "lanes"])
HISTORIES = int(os.environ.get("MODEL_HISTORIES", "2500"))


@pytest.mark.deep
@MODELS
def test_histories_end_as_the_source_items_say(model: Any) -> None:
    assert {seed: wrong for seed in range(HISTORIES) if (wrong := model.play(seed))} == {}


@pytest.mark.parametrize(
    ("model", "mutant"), [*((versions, each) for each in OF_VERSIONS), *((lanes, each) for each in OF_LANES)]
)
def test_each_rule_is_needed(model: Any, mutant: str) -> None:
    seed, aim = (OF_VERSIONS if model is versions else OF_LANES)[mutant]
    assert model.play(seed, mutant, aim=aim)
    assert not model.play(seed, aim=aim)


# Too rare for chance


@pytest.mark.parametrize("mutant", ["", "read the registry after the commit", "scan after the switch"])
def test_first_commit_of_a_group_during_a_switch_is_published(mutant: str) -> None:
    """The writer has read the registry before the switch, and commits a group that no scan has seen."""
    world = versions.World(1, mutant, GROUPS)
    document = versions.Document("group", "none", "A", ("count",))
    versions.drain(versions.register(versions.Process(world), document))
    versions.drain(versions.apply(versions.Process(world), document._replace(match="all"), hold=True))
    world.write(0, versions.Item("p", True, 1))
    late = versions.function(versions.Process(world), world.shards[0])
    promotion = versions.promote(versions.Process(world), 2)
    assert [next(late), next(late)][0] == "read the registry"
    if mutant == "scan after the switch":
        assert [next(promotion), next(promotion)][1] == "switch"
        versions.drain(late)
    versions.drain(promotion)
    versions.drain(late)
    assert (world.targets.get("Ap") is None) == bool(mutant)


def register(world: World, *, by_lanes: bool = True, only_vip: bool = False) -> int:
    drain(lanes.register(Process(world), Document(by_lanes, only_vip, False, 1)))
    return max(world.registry.versions)


def fill(world: World, number: int) -> None:
    """Fill and promote a version, and wait until shards are handed over."""
    drain(lanes.complete(Process(world), number))
    world.hour += lanes.HANDOVER + 1


def deliver(world: World, *numbers: int) -> None:
    shard = world.home[0]
    drain(lanes.function(Process(world), shard, [r for r in world.shards[shard] if r.sequence in numbers]))


def refresh_late(world: World) -> None:
    """A refresh that read the registry while the version filled goes on when lanes have counted."""
    world.items[0] = Item("p", True)
    number = register(world)
    late = lanes.refresh_later(Process(world), 0)
    assert [next(late), next(late)][1] == "read the entry"
    fill(world, number)
    world.write(0, Item("q", True))
    deliver(world, 1)
    drain(late)


def deliver_again(world: World, *, is_tried: bool = False) -> None:
    """A record is delivered again after the handover. It was tried with entries, or by a function without the version."""
    number = register(world) if is_tried else 0
    world.write(0, Item("p", True))
    if is_tried:
        deliver(world, 1)
    fill(world, number or register(world))
    world.write(2, Item("q", True))
    deliver(world, 2)
    deliver(world, 1, 2)


def lose_the_mark(world: World) -> None:
    """The mark of a shard is gone while its records can be delivered again."""
    fill(world, register(world))
    world.write(0, Item("p", True))
    deliver(world, 1)
    world.hour += 7
    world.write(2, Item("q", True))
    deliver(world, 2)
    deliver(world, 1, 2)


def pass_a_stuck_record(world: World) -> None:
    """A record cannot be processed now. A later one of its item, which lanes count, changes the entry of another version."""
    drain(lanes.complete(Process(world), register(world)))
    drain(lanes.fill(Process(world), register(world, by_lanes=False)))
    world.write(0, Item("p", True))
    world.hour += lanes.HANDOVER + 1
    world.write(0, Item("q", True))
    chances = iter([0.05, 0.05])
    world.rng.random = lambda: next(chances, 0.99)
    world.rng.choice = lambda options: options[0]
    world.rng.randrange = lambda *_: 0
    deliver(world, 1, 2)
    deliver(world, 1, 2)


def meet_a_newer_version(world: World) -> None:
    """A slow function begins anew by a registry with a version that was registered, and filled, after it got its batch."""
    drain(lanes.complete(Process(world), register(world, by_lanes=False, only_vip=True)))
    for key, item in ((0, Item("p", False)), (0, None), (2, Item("p", True))):
        world.write(key, item)
    records = world.shards[world.home[0]]
    late = lanes.function(Process(world), world.home[0], records[::2])
    assert [next(late), next(late)][1] == "read the entry"
    deliver(world, 1, 2, 3)
    fill(world, register(world))
    drain(late)


@pytest.mark.parametrize(
    ("mutant", "scenario"),
    [
        ("commit soon", refresh_late),
        ("give back what is older than a version", meet_a_newer_version),
        ("cut at the first record by lanes", deliver_again),
        ("keep marks", lose_the_mark),
        ("mark what is tried", partial(deliver_again, is_tried=True)),
        ("stop at a record that is stuck", pass_a_stuck_record),
    ],
)
def test_rule_is_needed_in_a_scenario(mutant: str, scenario: Callable[[World], None]) -> None:
    for each in ("", mutant):
        world = World(1, each, PLAIN)
        world.rng.random = lambda: 0.99
        scenario(world)
        assert bool(lanes.differences(world)) == bool(each)

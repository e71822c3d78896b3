"""The protocol of rule versions holds in random histories. Each of its rules is needed: without it, one goes wrong."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest
import versions

GROUPS: dict[str, Any] = {"keeps": False, "other": "", "old": False, "restores": False}
KEEPS: dict[str, Any] = {"keeps": True, "other": ""}
LONE = {**GROUPS, "posts": "p", "matches": ["all"], "spaces": "a", "writes": 6, "ahead": True}

MUTANTS: Mapping[str, tuple[int, Mapping[str, Any]]] = {
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
"""Rules that are left out, with the history that shows it."""


HISTORIES = int(os.environ.get("MODEL_HISTORIES", "5000"))


@pytest.mark.parametrize(("first", "histories"), [(0, 300), pytest.param(300, HISTORIES, marks=pytest.mark.deep)])
def test_histories_end_as_the_source_items_say(first: int, histories: int) -> None:
    assert {seed: wrong for seed in range(first, first + histories) if (wrong := versions.play(seed))} == {}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_rule_is_needed(mutant: str) -> None:
    seed, aim = MUTANTS[mutant]
    assert versions.play(seed, mutant, aim=aim)
    assert not versions.play(seed, aim=aim)


@pytest.mark.parametrize("mutant", ["", "read the registry after the commit", "scan after the switch"])
def test_first_commit_of_a_group_during_a_switch_is_published(mutant: str) -> None:
    """Too rare for chance: the writer has read the registry before the switch, and commits a group that no scan has seen."""
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

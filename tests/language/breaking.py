"""Breaks the data of valid rule files in one place, at random."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

Data = dict[str, Any]

_ACTIONS = ("copy", "aggregate", "top", "latest", "embed")
_WRONG = (7.5, [["x"]], True)


@dataclass(frozen=True)
class Broken:
    """Data with one mistake, and the part that has it."""

    data: Data
    section: str
    name: str
    how: str


def broken(random: Random, data: Data, section: str) -> Broken | None:
    """Return data with one mistake in a section, None if the drawn one is not possible there."""
    data = copy.deepcopy(data)
    name = random.choice(list(data[section]))
    way = random.choice(_WAYS)
    how = way(random, data, section, name)
    return Broken(data, section, name + "Twin" * (way is _duplicated), how) if how else None


def _mapping(random: Random, part: Data) -> Data:
    """Return the part, or its action."""
    action = next((part[name] for name in _ACTIONS if name in part), None)
    return action if isinstance(action, dict) and random.random() < 0.5 else part


def _deleted(random: Random, data: Data, section: str, name: str) -> str:
    form = _mapping(random, data[section][name])
    gone = next((one for one in ("from", "into", "key", "get", "find") if one in form), None)
    if gone is None:
        return ""
    del form[gone]
    return f"deleted {gone}"


def _renamed(form: Data, old: str, new: str) -> None:
    items = [(new if name == old else name, value) for name, value in form.items()]
    form.clear()
    form.update(items)


def _misspelt(random: Random, data: Data, section: str, name: str) -> str:
    form = _mapping(random, data[section][name])
    old = random.choice(list(form))
    at = random.randrange(1, len(old))
    new = old[:at] + old[at - 1] + old[at:]
    if len(old) < 4 or new in form:
        return ""
    _renamed(form, old, new)
    return f"misspelt {new}"


def _unknown(random: Random, data: Data, section: str, name: str) -> str:
    form = _mapping(random, data[section][name])
    old = random.choice(list(form))
    _renamed(form, old, "zzzzz")
    return f"unknown instead of {old}"


def _mistyped(random: Random, data: Data, section: str, name: str) -> str:
    form = _mapping(random, data[section][name])
    names = [one for one in form if one not in ("by", "derived", "expires", "consistent", "about")]
    if not names:
        return ""
    where, value = random.choice(names), random.choice(_WRONG)
    form[where] = value
    return f"{where}: {value}"


def _misreferred(random: Random, data: Data, section: str, name: str) -> str:
    form = _mapping(random, data[section][name])
    names = ["id"] if section == "entities" else [one for one in ("from", "into", "get", "find") if one in form]
    if not names:
        return ""
    where = names[0]
    form[where] = "Nowhere"
    return f"{where}: Nowhere"


def _duplicated(random: Random, data: Data, section: str, name: str) -> str:
    part = data[section][name]
    if section == "queries" or part.get("derived") or "rank" in part:  # a rank writes no attributes
        return ""
    data[section][name + "Twin"] = copy.deepcopy(part)
    return "duplicated"


_WAYS: tuple[Callable[[Random, Data, str, str], str], ...] = (
    *(_deleted, _misspelt, _unknown, _mistyped, _misreferred, _duplicated),
)

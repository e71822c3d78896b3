"""Two canonical documents → the rules that are new, changed, gone or retired, and in which of their parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from projections.inspect.lineage import key_text, target_of

__all__ = ["Change", "Part", "Status", "Target", "changes", "renamed", "target"]

Document = Mapping[str, Any]
Status = Literal["new", "changed", "vanished", "retired"]

_OF_TABLES = ("separator", "partition", "sort")


@dataclass(frozen=True, slots=True)
class Target:
    """What a rule writes to: an entity, and its key as templates over the source."""

    entity: str
    key: str

    def __str__(self) -> str:
        return f"{self.entity} {self.key}"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a rule that differs. `name` is as in the rule file, as `where`, `set.likeCount`, `Post.key`.

    `shared`: it is of an entity, a table, or the whole file, and every rule that it concerns has it.
    """

    name: str
    before: Any
    after: Any
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A rule that differs between two documents. `before` and `after` are its canonical forms, None where it is not."""

    rule: str
    status: Status
    before: Document | None
    after: Document | None
    target_before: Target | None
    target_after: Target | None
    parts: tuple[Part, ...] = ()
    fate: str | None = None
    """Of a retired rule: `keep` or `remove`."""

    @property
    def moved(self) -> bool:
        """It was there and still is, and writes to other items than before."""
        return None not in (self.target_before, self.target_after) and self.target_before != self.target_after

    @property
    def kind(self) -> str:
        return str((self.after or self.before or {})["kind"])


def target(document: Document, rule: str) -> Target:
    """What a rule writes to. Keys of a child are its own: an embed does not resolve them."""
    return Target(target_of(document["projections"][rule]), key_text(document, rule))


def changes(old: Document, new: Document) -> list[Change]:
    """The rules that differ: in the order of the new file, then those that are gone."""
    found = []
    for name, after in new["projections"].items():
        before = old["projections"].get(name)
        if before is None:
            found.append(Change(name, "new", None, after, None, target(new, name)))
        elif parts := tuple(_parts(old, new, before, after)):
            found.append(Change(name, "changed", before, after, target(old, name), target(new, name), parts))
    for name, before in old["projections"].items():
        if name not in new["projections"]:
            fate = new["retired"].get(name)
            status: Status = "vanished" if fate is None else "retired"
            found.append(Change(name, status, before, None, target(old, name), None, fate=fate))
    return found


def _parts(old: Document, new: Document, before: Document, after: Document) -> Iterator[Part]:
    yield from _different(before, after)
    if old["guard_prefix"] != new["guard_prefix"]:
        yield Part("guard_prefix", old["guard_prefix"], new["guard_prefix"], True)
    for one, other in dict.fromkeys(((before["from"], after["from"]), (target_of(before), target_of(after)))):
        if one == other:  # another entity is told already
            for field, value in old["entities"][one].items():
                if value != new["entities"][one][field]:
                    yield Part(f"{one}.{field}", value, new["entities"][one][field], True)
    tables = {old["entities"][name]["table"] for name in (before["from"], target_of(before))}
    for table in sorted(tables & new["tables"].keys()):
        for field in _OF_TABLES:
            if (one := old["tables"][table][field]) != (other := new["tables"][table][field]):
                yield Part(f"{table}.{field}", one, other, True)


_BY_ATTRIBUTE = ("set", "attributes", "values", "match", "bind")


def _different(before: Document, after: Document, path: str = "") -> Iterator[Part]:
    """The fields that differ; of those that hold attributes, each attribute for itself."""
    for name in dict.fromkeys((*before, *after)):
        one, other = before.get(name), after.get(name)
        if one == other:
            continue
        if not path and name in _BY_ATTRIBUTE and isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _different(one, other, f"{name}.")
        elif not path and name == "cases" and one and other and len(one) == len(other):
            for number, (mine, its) in enumerate(zip(one, other, strict=True)):
                place = "index." if len(one) == 1 else f"index[{number}]."
                yield from _different({"where": mine["where"]}, {"where": its["where"]}, place)
                yield from _different(mine["set"], its["set"], place)
        else:
            yield Part(path + name, one, other)


def renamed(old: Document, new: Document, found: list[Change]) -> list[tuple[str, str, bool]]:
    """Rules that are gone and new ones that may be the same under another name: (old name, new name, whether surely).

    Surely if nothing but the name differs; perhaps if kind, source and target are the same.
    """
    fresh = [change for change in found if change.status == "new"]
    pairs = []
    for gone in found:
        if gone.status not in ("vanished", "retired") or gone.before is None:
            continue
        same = [one for one in fresh if one.after == gone.before and not any(_ends(old, new, gone.before))]
        alike = [one for one in fresh if one.after is not None and _role(one.after) == _role(gone.before)]
        for one in (same or alike)[:1]:
            pairs.append((gone.rule, one.rule, bool(same)))
            fresh.remove(one)
    return pairs


def _ends(old: Document, new: Document, rule: Document) -> Iterator[str]:
    """The entities at the two ends of a rule that differ."""
    for name in (rule["from"], target_of(rule)):
        if old["entities"][name] != new["entities"].get(name):
            yield name


def _role(rule: Document) -> tuple[str, str, str]:
    return rule["kind"], rule["from"], target_of(rule)

"""Retirement: removing what a rule that is gone has written, by the rule as the registry remembers it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from projections.engine.guards import as_read
from projections.engine.store import (
    AllOf,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    Store,
    Update,
)
from projections.errors import ConditionFailed, Transient
from projections.language.program import Program

__all__ = ["Retirement"]

_MOST_TRIES = 20


class Retirement:
    """One retired rule. `definition` is what `Registry.definition` gives; `program` says what others own now.

    An item bears the rule's guard: its attributes and the guard are removed under the condition that the guard is as read,
    and a copy is deleted. Index attributes have no guard: they are removed if they are as read.
    """

    def __init__(self, name: str, definition: Mapping[str, Any], program: Program, store: Store) -> None:
        rule = definition["rule"]
        self.name = name
        self._program = program
        self._store = store
        self._kind: str = rule["kind"]
        self._guard: str = definition["guard_prefix"] + name
        self._prefix: str = definition["guard_prefix"]
        self._attributes = frozenset(_attributes(rule))
        self._tables = {entity["table"] for entity in definition["entities"].values()}
        into = definition["entities"].get(rule.get("into", ""), {})
        self._derived = bool(into.get("derived"))
        self._source: str = rule["from"]
        self._past = Program.from_document(
            {**program.document, **definition, "projections": {}, "retired": {}}
            if self._kind == "index"
            else program.document
        )

    def remove(self, images: Mapping[ItemKey, Image]) -> int:
        """Removes the rule's traces from items as they were read just now. Gives the number of items changed."""
        return sum(self._try(key, image) for key, image in images.items() if key.table in self._tables)

    def _try(self, key: ItemKey, image: Image | None) -> bool:
        for _ in range(_MOST_TRIES):
            if image is None:
                return False
            try:
                return self._remove(key, image)
            except ConditionFailed:  # changed since it was read
                image = self._store.get(key)
        raise Transient(f"{self.name}: an item kept changing while the rule's traces were removed")

    def _remove(self, key: ItemKey, image: Image) -> bool:
        if self._kind == "index":
            return self._remove_index(key, image)
        if self._guard not in image:
            return False
        exists = Exists((self._store.schema(key.table).partition[0],))
        condition: Condition = AllOf((exists, as_read(self._guard, image[self._guard])))
        others = [name for name in image if name.startswith(self._prefix) and name != self._guard]
        if self._kind == "copy" or (self._derived and not others):
            nobody = tuple(Missing((self._program.guard(name),)) for name in self._program.rules)
            self._store.write(Delete(key, AllOf((condition, *nobody)) if self._kind != "copy" else condition))
            return True
        gone = sorted((self._attributes - self._owned(key, image)) & image.keys())
        self._store.write(Update(key, remove=(*gone, self._guard), condition=condition))
        return True

    def _remove_index(self, key: ItemKey, image: Image) -> bool:
        item = self._past.recognise(key, image)
        if item is None or item.entity.name != self._source:
            return False
        gone = sorted((self._attributes - self._owned(key, image)) & image.keys())
        if not gone:
            return False
        self._store.write(Update(key, remove=tuple(gone), condition=_unchanged(image, gone)))
        return True

    def _owned(self, key: ItemKey, image: Image) -> frozenset[str]:
        """What the rules of today write on this item."""
        item = self._program.recognise(key, image)
        return self._program.derived_attributes(item.entity.name) if item is not None else frozenset()


def _unchanged(image: Image, names: Iterable[str]) -> Condition:
    return AllOf(tuple(Equal((name,), image[name]) for name in names))


def _attributes(rule: Mapping[str, Any]) -> Iterable[str]:
    """The attributes a rule of this canonical form writes; those of a copy go with the item."""
    kind = rule["kind"]
    if kind == "index":
        return [name for case in rule["cases"] for name in case["set"]]
    if kind == "aggregate":
        return list(rule["set"])
    if kind == "top":
        return [rule["as"]]
    if kind in ("latest", "embed"):
        return list(rule["attributes"])
    return []

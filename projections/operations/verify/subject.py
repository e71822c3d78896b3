"""Subjects of a verification: an item in one of its roles, or a group; and the subjects of items and of the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from projections.engine.copies import copies_of
from projections.engine.ledger_items import CLOSED, REBUILDING
from projections.engine.store import Image, ItemKey
from projections.language.keys import encode_key, is_range
from projections.operations.verify.scope import Scope

__all__ = [
    "CHILD",
    "COPY",
    "GROUP",
    "INDEX",
    "ITEM",
    "LEFT",
    "REBUILD",
    "SOURCE",
    "TARGET",
    "Subject",
    "group_of",
    "merged",
    "of_items",
    "of_ledger",
    "source_of",
    "subject_text",
]

SOURCE = "source"
"""An item and its entry."""

ITEM = "item"
"""An item whose content causes an error, so it cannot be compared."""

COPY = "copy"
"""A guarded copy, and the sources that make it or that its guard names."""

INDEX = "index"
"""An item and its index attributes."""

CHILD = "child"
"""An item and the attributes of its parents."""

TARGET = "target"
"""An item that a rule publishes to, and its group."""

REBUILD = "rebuild"
"""A group that is being rebuilt."""

LEFT = "left"
"""An item of another kind than its rules write to, and the values that they left on it."""

GROUP = "group"
"""A group and all entries that contribute to it."""


class Subject(NamedTuple):
    """A subject. `key` is the encoded key of an item, or of a group's target. An empty `rule` means all rules."""

    kind: str
    rule: str
    key: str
    sources: tuple[str, ...] = ()

    def text(self) -> str:
        """Return a text that is the same for equal subjects."""
        return subject_text(self.kind, self.rule, self.key, *self.sources)

    @classmethod
    def read(cls, text: str) -> Subject:
        """Read what `text` wrote."""
        kind, rule, key, *sources = json.loads(text)
        return cls(kind, rule, key, tuple(sources))


_quoted = json.encoder.encode_basestring


def subject_text(kind: str, rule: str, key: str, *sources: str) -> str:
    """Return the text of a subject without making one, because there are many."""
    more = f",{','.join(map(_quoted, sources))}" if sources else ""
    return f'["{kind}","{rule}",{_quoted(key)}{more}]'


def merged(texts: Iterable[str]) -> Subject:
    """Return one subject for several that differ in their sources."""
    subjects = [Subject.read(text) for text in texts]
    sources = {source for subject in subjects for source in subject.sources if source}
    return subjects[0]._replace(sources=tuple(sorted(sources)))


def of_items(scope: Scope, table: str, images: Iterable[Image]) -> Iterator[Subject]:
    """Yield a subject for each role of items of an application's table."""
    schema = scope.program.tables[table]
    for image in images:
        key = schema.key(table, image)
        try:
            yield from list(_of_item(scope, key, image))
        except Exception:
            yield Subject(ITEM, "", encode_key(key))


def _of_item(scope: Scope, at: ItemKey, image: Image) -> Iterator[Subject]:
    item = scope.program.recognise(at, image)
    if item is None:
        return
    entity, key = item.entity.name, encode_key(item.key)
    if entity in scope.recorded_from and not scope.offline:
        yield Subject(SOURCE, "", key)
    for rule in scope.copies_from.get(entity, ()):
        for target in copies_of(rule, item):
            yield Subject(COPY, rule.name, encode_key(target), (key,))
    copied = scope.copy_into.get(entity)
    guard = scope.guards.read(copied.name, item.key, image) if copied is not None else None
    if copied is not None and guard is not None and guard.by:
        yield Subject(COPY, copied.name, key, (guard.by,))
    if entity in scope.indexes:
        yield Subject(INDEX, "", key)
    if entity in scope.embeds_into:
        yield Subject(CHILD, "", key)
    if not scope.offline:
        for into in scope.published_into.get(entity, ()):
            yield Subject(TARGET, into.name, key)


def of_ledger(scope: Scope, images: Iterable[Image]) -> Iterator[Subject]:
    """Yield the sources of entries and the targets of groups. Sums of groups need all entries, and are not among them."""
    for image in images:
        kind = image["pk"]["S"][:2]
        if kind == "E|" and image["contributions"]["S"] != "{}":
            yield Subject(SOURCE, "", source_of(image))
        elif kind == "G|" and image["sk"]["S"].endswith("|00") and CLOSED not in image:
            rule, target = group_of(image)
            if rule in scope.published and not is_range(target):
                yield Subject(TARGET, rule, target)
            if rule in scope.grouped and REBUILDING in image:
                yield Subject(REBUILD, rule, target)


def source_of(entry: Image) -> str:
    """Return the encoded key of an entry's item."""
    text: str = entry["key"]["S"] if "key" in entry else entry["pk"]["S"][2:]
    return text


def group_of(group: Image) -> tuple[str, str]:
    """Return rule and target of an item of a group."""
    rule, _, target = group["pk"]["S"][2:].partition("|")
    return rule, group["key"]["S"] if "key" in group else target

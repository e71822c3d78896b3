"""The reasons why an item belongs to no entity: the most similar entities, and where they differ."""

from __future__ import annotations

from collections.abc import Iterator

from projections.inspect.explain.matching import unmet
from projections.language.entity import Entity, Item, values_to_recognise
from projections.language.keys import Image, ItemKey
from projections.language.program import Program
from projections.language.templates import KeyPattern

__all__ = ["nearest"]

MOST = 3
"""Maximum entities that are listed."""


def nearest(program: Program, key: ItemKey, image: Image) -> list[tuple[str, list[str]]]:
    """Return the entities with the most similar keys to an item's, each with the differences."""
    found = []
    for entity in program.entities.values():
        if entity.table == key.table:
            misfits = list(_misfits(entity, key, image))
            found.append((-_likeness(entity, key), len(misfits), entity.name, misfits))
    found.sort(key=lambda one: one[:2])
    return [(name, misfits) for _, _, name, misfits in found[:MOST]]


def _parts(entity: Entity, key: ItemKey) -> list[tuple[str, KeyPattern, str]]:
    texts = [text or "" for text in key[1:]]
    return list(zip(entity.schema.key_attributes, entity.patterns, texts, strict=False))


def _likeness(entity: Entity, key: ItemKey) -> int:
    """Return the similarity of a key: whole key attributes first, then leading characters."""
    total = 0
    for _, pattern, text in _parts(entity, key):
        if pattern.match(text) is not None:
            total += 1000
        else:
            prefix = pattern.literal_prefix
            total += next((n for n, (a, b) in enumerate(zip(prefix, text, strict=False)) if a != b), len(prefix))
    return total


def _misfits(entity: Entity, key: ItemKey, image: Image) -> Iterator[str]:
    variables: dict[str, str] = {}
    fits = True
    for attribute, pattern, text in _parts(entity, key):
        read = pattern.match(text)
        if read is None:
            fits = False
            yield f'{attribute} "{text}" does not match {pattern.text}{_hint(pattern, text)}'
            continue
        for name, value in read.items():
            if variables.setdefault(name, value) != value:
                fits = False
                yield f'{name} is "{variables[name]}" in one part of the key and "{value}" in the other'
    if fits and entity.pattern is not None:
        values = values_to_recognise(Item(entity, key, variables, image))
        others = image.keys() - set(entity.schema.key_attributes)
        yield from (f"match: {reason}" for reason in unmet(entity.pattern, values, others))


def _hint(pattern: KeyPattern, text: str) -> str:
    """Return a hint for the most common mistake: a separator too many or too few."""
    if not pattern.names or not text.startswith(pattern.literal_prefix):
        return ""
    theirs, ours = text.count(pattern.separator), pattern.text.count(pattern.separator)
    if theirs > ours:
        return f" (a variable cannot contain {pattern.separator}, except {{name*}})"
    return f" (it has {ours - theirs} {pattern.separator} too few)" if theirs < ours else ""

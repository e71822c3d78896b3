"""Guards and attributes of former rules, which must be gone when a backfill has activated other rules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from projections.engine.store import Image, ItemKey
from projections.language.computed import ComputeRule
from projections.language.keys import encode_key
from projections.language.program import Program

__all__ = ["traces"]


def traces(
    before: Sequence[Program],
    after: Program,
    items: Mapping[ItemKey, Image],
    touched: Collection[ItemKey],
) -> Iterator[str]:
    """Yield guards and attributes of rules that were changed, or retired with `remove`, except on items in `touched`.

    The first program of `before` was active. The others may have been provisional only: of these nothing stays unless it is
    listed as `keep`.
    """
    kept = [
        (before[0].guard(rule.name), rule.owned())
        for program in before
        for rule in program.rules.values()
        if rule.name not in after.rules and after.retired.get(rule.name) == "keep"
    ]
    for number, program in enumerate(before):
        yield from _of_program(program, after, items, touched, "remove" if number else "keep", kept)


def _of_program(
    before: Program,
    after: Program,
    items: Mapping[ItemKey, Image],
    touched: Collection[ItemKey],
    silence: str,
    kept: Sequence[tuple[str, Collection[str]]],
) -> Iterator[str]:
    for rule in before.rules.values():
        now = after.rules.get(rule.name)
        if rule.mode == "shadow" or (now is None and after.retired.get(rule.name, silence) != "remove"):
            continue
        if isinstance(rule, ComputeRule) and rule.once:
            continue  # what it set stays
        entity, guard = rule.into.name, before.guard(rule.name)
        moved = now is None or now.into.name != entity
        gone = set(rule.owned()) - after.derived_attributes(entity)
        for key, image in items.items():
            item = after.recognise(key, image)
            if item is None or item.entity.name != entity or key in touched:
                continue
            keep = {*item.entity.schema.key_attributes, *item.entity.constants, *before.entities[entity].constants}
            keep.update(*(names for other, names in kept if other in image))
            names = [name for name in image if (name in gone and name not in keep) or (moved and name == guard)]
            if names:
                yield f"{encode_key(key)}: {', '.join(names)} of the former rule {rule.name} still exists"

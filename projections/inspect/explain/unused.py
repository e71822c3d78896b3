"""Rules that no item of a replay fits, each with the reason: most often a name in the items is spelt in another way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from projections.engine.store import Image, ItemKey
from projections.inspect.explain.matching import nearest_entities, verdict
from projections.inspect.reads import Reads, reads_of
from projections.language.entity import Item
from projections.language.program import Program
from projections.language.rules import Rule
from projections.language.syntax import nearest, root
from projections.language.values import lookup

__all__ = ["Unused", "UnusedRule", "unused"]


@dataclass(frozen=True, slots=True)
class UnusedRule:
    """A rule that no item fits, and the reason."""

    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unused:
    """The rules that no item fits, and the items of no entity, each with the most similar entity."""

    rules: tuple[UnusedRule, ...] = ()
    items: tuple[tuple[ItemKey, str], ...] = ()


@dataclass(slots=True)
class _Misses:
    """The items of a rule's source entity, none of which fits: how many, their attributes, and why not."""

    items: int = 0
    attributes: set[str] = field(default_factory=set)
    present: set[str] = field(default_factory=set)
    reasons: Counter[tuple[str, ...]] = field(default_factory=Counter)


def unused(program: Program, images: Iterable[tuple[ItemKey, Image]]) -> Unused:
    """Return the rules that none of these images fits, and the items of no entity. Disabled rules are left out."""
    open_rules = [one for one in program.variants if not program.disabled(one.name)]
    read = {(name, one.source): reads_of(program.typed, one) for name, one in program.typed.variants()}
    fitted: set[str] = set()
    misses: dict[tuple[str, str], _Misses] = {}
    seen: set[tuple[ItemKey, str]] = set()
    strange: dict[ItemKey, str] = {}
    for key, image in images:
        item = program.recognise(key, image)
        if item is None:
            strange.setdefault(key, _nearest(program, key, image))
            continue
        for rule in open_rules:
            if rule.name in fitted or rule.source is not item.entity:
                continue
            judged = verdict(program, rule, item)
            if judged.applies or judged.bad:
                fitted.add(rule.name)
                continue
            one = misses.setdefault((rule.name, rule.source.name), _Misses())
            one.reasons[judged.reasons] += 1
            one.attributes.update(image)
            one.present.update(name for name in read[rule.name, rule.source.name].names if _has(item, name))
            if (key, rule.name) not in seen:
                seen.add((key, rule.name))
                one.items += 1
    rules = dict.fromkeys(one.name for one in open_rules)
    found = [
        UnusedRule(name, "; ".join(_reasons(program, name, open_rules, misses, read)))
        for name in rules
        if name not in fitted
    ]
    return Unused(tuple(found), tuple(strange.items()))


def _has(item: Item, name: str) -> bool:
    return name in item.variables or lookup(item.image, name) is not None


def _nearest(program: Program, key: ItemKey, image: Image) -> str:
    return next(
        (f"nearest is {name}: {'; '.join(why)}" for name, why in nearest_entities(program, key, image) if why), ""
    )


def _reasons(
    program: Program,
    name: str,
    rules: Iterable[Rule],
    misses: Mapping[tuple[str, str], _Misses],
    read: Mapping[tuple[str, str], Reads],
) -> Iterator[str]:
    absent = []
    for rule in rules:
        if rule.name != name:
            continue
        entity = rule.source.name
        one = misses.get((name, entity))
        if one is None:
            absent.append(entity)
            continue
        yield f"{one.items} {entity} {'item' if one.items == 1 else 'items'}: {'; '.join(one.reasons.most_common(1)[0][0])}"
        yield from _near(one, read[name, entity], program.entities[entity].schema.key_attributes)
    if absent:
        yield f"no item of {' or '.join(absent)}"


def _near(misses: _Misses, reads: Reads, keys: Iterable[str]) -> Iterator[str]:
    """Yield the names that all items lack, each with the most similar attribute that the rule does not read."""
    wanted = {root(name) for name in reads.names if name not in misses.present}
    free = misses.attributes - {root(name) for name in misses.present} - set(keys) - wanted
    for name in sorted(wanted - misses.attributes):
        if near := nearest(name, free):
            yield f"they have {near}, not {name}"

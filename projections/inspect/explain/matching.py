"""Whether a rule applies to an item, and why not; why an item belongs to no entity; rules that no item fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from projections.errors import BadInput
from projections.language.entity import Entity, Item, Resolve, values_to_recognise
from projections.language.keys import Image, ItemKey, Value
from projections.language.kinds import AnyProjection
from projections.language.patterns import Pattern
from projections.language.patterns.tree import Test
from projections.language.program import Program
from projections.language.rules import Rule
from projections.language.syntax import nearest, root
from projections.language.templates import Field, KeyPattern, Template
from projections.language.values import shown

MOST_ELEMENTS = 5
"""Elements of an `each` that are listed one by one."""

Place = tuple[str | int, ...]


class Verdict(NamedTuple):
    """Whether a rule applies to an item as its source, and why not. `bad`: it cannot be evaluated for the item.

    `lacks` has the names that the rule looked for, and that the item does not have.
    """

    applies: bool
    reasons: tuple[str, ...] = ()
    bad: bool = False
    lacks: frozenset[str] = frozenset()


def verdict(program: Program, rule: Rule, item: Item) -> Verdict:
    """Return whether a rule applies to an item of its source entity."""
    parts: list[tuple[Place, Resolve]] = []
    lacks: set[str] = set()

    def note(place: Place, resolve: Resolve) -> None:
        def note_missing(name: str, stored: bool = False, /) -> Value | None:
            value = resolve(name, stored)
            if value is None:
                lacks.add(name)
            return value

        parts.append((place, note_missing))

    try:
        if rule.applies(item, note):
            return Verdict(True, tuple(_incomplete(program, rule, parts)))
        return Verdict(False, tuple(_reasons(program, rule, parts)), lacks=frozenset(lacks))
    except BadInput as problem:
        return Verdict(False, (str(problem),), bad=True)


def _incomplete(program: Program, rule: Rule, parts: list[tuple[Place, Resolve]]) -> Iterator[str]:
    """Yield why a rule that applies leaves out some of its attributes: those of an index that lacks a value."""
    for place, resolve in parts if program.model.projections[rule.name].action.on_source else ():
        if place[-1] != "where":
            yield from _words(program, rule, place, resolve)


def _reasons(program: Program, rule: Rule, parts: list[tuple[Place, Resolve]]) -> Iterator[str]:
    each = rule.each.variable if rule.each is not None else ""
    for place, resolve in parts[:MOST_ELEMENTS] if each else parts:
        element = resolve(each) if each and place != ("each",) else None
        reasons = _words(program, rule, place, resolve)
        yield from reasons if element is None else [f"{each} = {shown(element)}: {'; '.join(reasons)}"]
    if each and len(parts) > MOST_ELEMENTS:
        yield f"and {len(parts) - MOST_ELEMENTS} more elements"


def _words(program: Program, rule: Rule, place: Place, resolve: Resolve) -> Iterator[str]:
    """Yield why one part of a rule does not apply."""
    typed = next(each for each in program.model.projections[rule.name].variants if each.source == rule.source.name)
    match place:
        case ("where",):
            yield from _where(typed.where, resolve, "where: ")
        case ("each",) if typed.each is not None:
            value = resolve(typed.each.path)
            yield f"each: {typed.each.path} {'is absent' if value is None else 'has no element to count'}"
        case ("into",):
            names = [name for pattern in rule.into.patterns for name in pattern.names]
            if missing := _missing(names, resolve):
                yield f"the key of {rule.into.name} needs {' and '.join(missing)}, which the item lacks"
        case ("set", name):
            yield f"{name} is absent: no case applies"
        case _:
            yield from _unmade(typed, place, resolve)


def _unmade(rule: AnyProjection, place: Place, resolve: Resolve) -> Iterator[str]:
    """Yield why `bind`, or a part of the action, has no value."""
    match place:
        case (int(number), *_):
            label = f"case {number + 1}: " if len(rule.action.cases) > 1 else ""
        case ("set", str(attribute), *_):
            label = f"{attribute} is absent: "
        case (name, *_):
            label = f"{name}: "
    begin = rule.place("bind") if place == ("bind",) else (rule.kind, *place)
    fields: list[Field] = []
    for value in (part.value for part in rule.parts() if part.place[: len(begin)] == begin):
        try:
            if isinstance(value, Pattern):
                yield from _where(value, resolve, f"{label}where: ")
                continue
            value.compile_value()(resolve)
        except BadInput as problem:
            yield f"{label}{problem}"
            continue
        fields += value.fields if isinstance(value, Template) else [Field(value.text, expression=value)]
    if lacking := _lacking(fields, resolve):
        yield label + lacking


def _lacking(fields: Sequence[Field], resolve: Resolve) -> str:
    """Return why some of these fields have no value."""
    lacks = dict.fromkeys(name for field in fields for name in _absent(field, resolve))
    why = [f"the item has no {' and no '.join(lacks)}"] if lacks else []
    return " and ".join([*why, *(f"{term} divides by zero" for term in dict.fromkeys(_without_value(fields, resolve)))])


def _absent(field: Field, resolve: Resolve) -> list[str]:
    """Return the names for lack of which a field has no value. Of `coalesce` alone, these are all."""
    lacks = _missing(field.needs, resolve)
    if lacks or field.needs or field.expression is None or field.absent is not None:
        return lacks
    return _missing(field.names, resolve) if _has_none(field, resolve) else []


def _without_value(fields: Iterable[Field], resolve: Resolve) -> Iterator[str]:
    """Yield the expressions that have no value although no name is missing."""
    for field in fields:
        if field.absent is None and _has_none(field, resolve) and not _absent(field, resolve):
            yield field.name


def _has_none(field: Field, resolve: Resolve) -> bool:
    try:
        return field.expression is not None and field.expression.compile_value()(resolve) is None
    except BadInput:
        return False


def _missing(names: Iterable[str], resolve: Resolve) -> list[str]:
    return [name for name in dict.fromkeys(names) if resolve(name) is None]


def _where(where: Pattern | None, resolve: Resolve, prefix: str) -> list[str]:
    return [prefix + reason for reason in unmet(where, resolve)] if where is not None else []


def unmet(pattern: Pattern, resolve: Resolve, attributes: Collection[str] = ()) -> Iterator[str]:
    """Yield the conditions of a pattern that do not hold, each with the item's value.

    An absent value is printed with the most similar of `attributes`, those that the item has.
    """
    for condition in pattern.unmet(resolve):
        if isinstance(condition, Test):
            others = "".join(f"; {name} {_seen(resolve(name))}" for name in condition.names[1:])
            value = resolve(condition.name)
            near = nearest(condition.name, set(attributes).difference(pattern.names)) if value is None else None
            has = f" (the item has {near})" if near else ""
            yield f"{condition.name} {_seen(value)}{has}; wanted: {condition}{others}"
        else:
            values = ", ".join(f"{name} {_seen(resolve(name))}" for name in condition.names)
            yield f"neither holds of {condition}: {values}"


def _seen(value: Value | None) -> str:
    """Return a value, or its type for lists, maps and binary values."""
    if value is None:
        return "is absent"
    return f"is {str(value['BOOL']).lower()}" if "BOOL" in value else f"is {shown(value)}"


MOST = 3
"""Maximum entities that are listed."""


def nearest_entities(program: Program, key: ItemKey, image: Image) -> list[tuple[str, list[str]]]:
    """Return the entities with the most similar keys to an item's, each with the differences."""
    candidates = []
    for entity in program.entities.values():
        if entity.table == key.table:
            misfits = list(_misfits(entity, key, image))
            candidates.append((-_likeness(entity, key), len(misfits), entity.name, misfits))
    candidates.sort(key=lambda entry: entry[:2])
    return [(name, misfits) for _, _, name, misfits in candidates[:MOST]]


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


class Unused(NamedTuple):
    """The rules that no item fits, and the items of no entity, each with the reason."""

    rules: tuple[tuple[str, str], ...] = ()
    items: tuple[tuple[ItemKey, str], ...] = ()


def find_unused(program: Program, images: Iterable[tuple[ItemKey, Image]]) -> Unused:
    """Return the rules that none of these images fits, and the items of no entity. Held rules are left out."""
    rules = [rule for rule in program.variants if not rule.held]
    fitted: set[str] = set()
    reasons: dict[tuple[str, str], Counter[str]] = {}
    seen: dict[tuple[str, str], set[ItemKey]] = {}
    strange: dict[ItemKey, str] = {}
    for key, image in images:
        item = program.recognise(key, image)
        if item is None:
            near = ((name, why) for name, why in nearest_entities(program, key, image) if why)
            strange.setdefault(key, next((f"nearest is {name}: {'; '.join(why)}" for name, why in near), ""))
            continue
        for rule in rules:
            if rule.name not in fitted and rule.source is item.entity:
                judged = verdict(program, rule, item)
                if judged.applies or judged.bad:
                    fitted.add(rule.name)
                place = rule.name, rule.source.name
                reasons.setdefault(place, Counter())["; ".join([*judged.reasons, *_respelt(judged, item)])] += 1
                seen.setdefault(place, set()).add(key)

    def why(name: str) -> Iterator[str]:
        sources = [rule.source.name for rule in rules if rule.name == name]
        for source in sources:
            if counts := reasons.get((name, source)):
                items = len(seen[name, source])
                yield f"{items} {source} {'item' if items == 1 else 'items'}: {counts.most_common(1)[0][0]}"
        if absent := [source for source in sources if (name, source) not in reasons]:
            yield f"no item of {' or '.join(absent)}"

    names = dict.fromkeys(rule.name for rule in rules if rule.name not in fitted)
    return Unused(tuple((name, "; ".join(why(name))) for name in names), tuple(strange.items()))


def _respelt(judged: Verdict, item: Item) -> Iterator[str]:
    """Yield the names that an item lacks, each with its most similar attribute."""
    own = item.image.keys() - set(item.entity.schema.key_attributes)
    for name in sorted({root(name) for name in judged.lacks} - own):
        if near := nearest(name, own):
            yield f"it has {near}, not {name}"

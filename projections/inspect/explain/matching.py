"""Whether a rule applies to an item, and why not; why an item belongs to no entity."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from projections.errors import BadInput
from projections.language import canonical
from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.computed import ComputeRule
from projections.language.embeds import EmbedRule
from projections.language.entity import Entity, Item, Resolve, resolver, values_to_recognise
from projections.language.keys import Image, ItemKey, Value
from projections.language.patterns import Pattern, Test
from projections.language.program import Program
from projections.language.rules import IndexRule, Rule
from projections.language.syntax import nearest
from projections.language.templates import Field, KeyPattern, Template
from projections.language.values import shown

__all__ = ["Verdict", "nearest_entities", "references", "unmet", "verdict"]


MOST_ELEMENTS = 5
"""Elements of an `each` that are listed one by one."""

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rule applies to an item as its source, and why not. `bad`: it cannot be evaluated for the item."""

    applies: bool
    reasons: tuple[str, ...] = ()
    bad: bool = False


def verdict(program: Program, rule: Rule, item: Item) -> Verdict:
    """Return whether a rule applies to an item of its source entity."""
    parts: list[tuple[Place, Resolve]] = []
    try:
        if rule.applies(item, lambda place, resolve: parts.append((place, resolve))):
            return Verdict(True, tuple(_incomplete(program, rule, parts)))
        return Verdict(False, tuple(_reasons(program, rule, parts)))
    except BadInput as problem:
        return Verdict(False, (str(problem),), bad=True)


def _incomplete(program: Program, rule: Rule, parts: list[tuple[Place, Resolve]]) -> Iterator[str]:
    """Yield why a rule that applies leaves out some of its attributes: those of an index that lacks a value."""
    for place, resolve in parts[-1:]:
        if isinstance(rule, IndexRule) and place[-1] == "set":
            yield from _words(program, rule, place, resolve)
    for place, resolve in parts:
        if isinstance(rule, ComputeRule):
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
    typed = next(one for one in program.typed.rules[rule.name].variants if one.source == rule.source.name)
    match typed, place:
        case _, ("where",):
            yield from _where(typed.where, resolve, "where: ")
        case canonical.Index(cases=cases), ("cases", int(number), part):
            prefix = f"case {number + 1}: " if len(cases) > 1 else ""
            if part == "where":
                yield from _where(cases[number].where, resolve, prefix + "where: ")
            else:
                yield f"{prefix}{_lacking(_fields(cases[number].set.values()), resolve)}"
        case canonical.Compute(set=computed), ("set", str(attribute)):
            yield f"{attribute} is absent: {_uncomputed(computed[attribute], resolve)}"
        case canonical.Embed(attributes=attributes), ("attributes",):
            parsed = {name: attribute_source(text) for name, text in attributes.items()}
            paths = [one.path for one in parsed.values() if one.path is not None]
            if paths:
                yield f"the item does not have {' or '.join(paths)}"
            for name, one in parsed.items():
                if one.path is None:
                    kind = "template" if isinstance(one, Template) else "expression"
                    why = _uncomputed([canonical.Computed(kind, one.text, None)], resolve)
                    yield f"{name} is absent: {why}"
        case _, ("each",) if typed.each is not None:
            value = resolve(typed.each.path)
            yield f"each: {typed.each.path} {'is absent' if value is None else 'has no element to count'}"
        case _, ("bind",):
            for variable, text in typed.bind.items():
                yield from _needs(f"{variable} of the target's key", [text], resolve)
        case _, ("into",):
            names = [name for pattern in rule.into.patterns for name in pattern.names]
            yield from _lacks(f"the key of {rule.into.name}", names, resolve)
        case canonical.Rank(by=by), ("by",):
            lacks = _missing(Expression.parse(by).names, resolve)
            yield f"the item has no {' and no '.join(lacks)}, so it has no score" if lacks else f"{by} has no value"
        case canonical.Top(by=by) | canonical.Latest(by=by), ("by",):
            yield from _lacks("`by`", [by], resolve)
        case canonical.Copy(values=values), ("values",):
            yield from _needs("`values`", [text for text in values.values() if isinstance(text, str)], resolve)
        case _:
            raise NotImplementedError(place)


def _uncomputed(cases: Sequence[canonical.Computed], resolve: Resolve) -> str:
    """Return why a computed attribute has no value."""
    try:
        for case in cases:
            if case.where is None or Pattern.parse(case.where).matches(resolve):
                return _valueless(case, resolve)
    except BadInput as problem:
        return str(problem)
    return "no case applies"


def _valueless(case: canonical.Computed, resolve: Resolve) -> str:
    if case.kind == "template":
        Template.parse(case.value).render(resolve)  # raises BadInput for a wrong value
        return _lacking(_fields([case.value]), resolve)
    expression = Expression.parse(case.value, "value")
    expression.compile_value()(resolve)
    return _lacking([Field(case.value, expression=expression)], resolve)


def _fields(templates: Iterable[str]) -> list[Field]:
    return [field for text in templates for field in Template.parse(text).fields]


def _lacking(fields: Sequence[Field], resolve: Resolve) -> str:
    """Return why some of these fields have no value."""
    lacks = dict.fromkeys(name for field in fields for name in _absent(field, resolve))
    why = [f"the item has no {' and no '.join(lacks)}"] if lacks else []
    return " and ".join([*why, *(f"{one} divides by zero" for one in dict.fromkeys(_undefined(fields, resolve)))])


def _absent(field: Field, resolve: Resolve) -> list[str]:
    """Return the names for lack of which a field has no value. Of `coalesce` alone, these are all."""
    lacks = _missing(field.needs, resolve)
    if lacks or field.needs or field.expression is None or field.absent is not None:
        return lacks
    return _missing(field.names, resolve) if _has_none(field, resolve) else []


def _undefined(fields: Iterable[Field], resolve: Resolve) -> Iterator[str]:
    """Yield the expressions that have no value although no name is missing."""
    for field in fields:
        if field.absent is None and _has_none(field, resolve) and not _absent(field, resolve):
            yield field.name


def _has_none(field: Field, resolve: Resolve) -> bool:
    try:
        return field.expression is not None and field.expression.compile_value()(resolve) is None
    except BadInput:
        return False


def _needs(what: str, templates: Sequence[str], resolve: Resolve) -> Iterator[str]:
    """Yield why templates have no value."""
    fields = _fields(templates)
    if missing := list(dict.fromkeys(name for field in fields for name in _absent(field, resolve))):
        yield f"{what} needs {' and '.join(missing)}, which the item lacks"
    for one in dict.fromkeys(_undefined(fields, resolve)):
        yield f"{what} needs {one}, which divides by zero"


def _lacks(what: str, names: Iterable[str], resolve: Resolve) -> Iterator[str]:
    if missing := _missing(names, resolve):
        yield f"{what} needs {' and '.join(missing)}, which the item lacks"


def _missing(names: Iterable[str], resolve: Resolve) -> list[str]:
    return [name for name in dict.fromkeys(names) if resolve(name) is None]


def _where(where: canonical.Pattern | None, resolve: Resolve, prefix: str) -> list[str]:
    return [prefix + reason for reason in unmet(Pattern.parse(where or {}), resolve)]


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
            yield f"neither holds of {condition}: {_values(condition.names, resolve)}"


def _values(names: Iterable[str], resolve: Resolve) -> str:
    return ", ".join(f"{name} {_seen(resolve(name))}" for name in names)


def _seen(value: Value | None) -> str:
    """Return a value, or its type for lists, maps and binary values."""
    if value is None:
        return "is absent"
    return f"is {str(value['BOOL']).lower()}" if "BOOL" in value else f"is {shown(value)}"


def references(rule: EmbedRule, child: Item) -> str | None:
    """Return why a child references no parent, or None."""
    names = [name for name, _ in rule.match]
    try:
        if rule.reference(child) is not None:
            return None
        resolve = resolver(child)
        if lacks := _missing(names, resolve):
            return f"it has no {' and no '.join(lacks)}"
        return f"no {rule.source.name} has such a key: {_values(names, resolve)}"
    except BadInput as problem:
        return str(problem)


MOST = 3
"""Maximum entities that are listed."""


def nearest_entities(program: Program, key: ItemKey, image: Image) -> list[tuple[str, list[str]]]:
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

"""The attributes of each entity that a rule file names, with their types in a generated module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from projections.language.access.numbers import is_number
from projections.language.access.plan import Plan
from projections.language.access.questions import WritePattern
from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.canonical import Aggregate, Compute, Computed, Copy, Document, Embed, Index, Latest, Rule, Top
from projections.language.measures import EXTREMES, PICKED, TYPED
from projections.language.patterns import Pattern
from projections.language.syntax import root, steps
from projections.language.templates import Template

__all__ = ["Attribute", "attributes_of"]

TYPES = {"S": "str", "N": "Decimal", "B": "bytes"}


@dataclass(frozen=True)
class Attribute:
    """An attribute: whether all items have it, and its type. `list_of` has the attributes of each element of a list."""

    type: str
    required: bool = False
    list_of: tuple[str, ...] = ()


def attributes_of(
    document: Document, entity: str, plans: Iterable[Plan], writes: Iterable[WritePattern], variables: Iterable[str]
) -> dict[str, Attribute]:
    """Return the attributes of an entity by name: keys, what marks it, what rules write, what rules and queries read."""
    declared = document.entities[entity]
    table = document.tables[declared.table]
    found = {name: Attribute(TYPES[kind], True) for name, kind in filter(None, (table.partition, table.sort))}
    for name, value in Pattern.parse(declared.match or {}).constants.items():
        if len(steps(name)) == 1:
            kind = {str: "str", bool: "bool", type(None): "None"}.get(type(value), "Decimal")
            found.setdefault(root(name), Attribute(kind, True))
    kinds = {name: kind for keys in table.indexes.values() for name, kind in (*keys.partition, *keys.sort)}
    for rule in document.rules.values():
        if rule.into == entity and rule.mode != "shadow":
            for name, attribute in _written(rule, kinds):
                found.setdefault(name, attribute)
    for name in declared.index_key:
        found.setdefault(name, Attribute(TYPES[kinds[name]]))
    unknown = [*declared.required, *_read(document, entity), *_asked(entity, plans)]
    unknown += [name for write in writes for step in write.steps if step.entity == entity for name in step.set]
    known = {*variables, ""}
    for path in unknown:
        name = root(path)
        if name not in found and path not in known:
            kind = TYPES[kinds[name]] if name in kinds else "Decimal" if is_number(document, entity, name) else "Any"
            found[name] = Attribute(kind)
    for name in declared.required:
        if name in found:
            found[name] = replace(found[name], required=True)
    return found


def _written(rule: Rule, kinds: Mapping[str, str]) -> Iterator[tuple[str, Attribute]]:
    match rule:
        case Aggregate():
            for name, measure in rule.set.items():
                text = measure.function in TYPED and str(measure.expression).startswith("text(")
                of = "str" if text else "Decimal"
                several = {"counts": "dict[str, Decimal]", "values": f"set[{of}]", **dict.fromkeys(PICKED, "Any")}
                yield name, Attribute(several.get(measure.function, of if measure.function in EXTREMES else "Decimal"))
        case Top():
            yield rule.list_name, Attribute("list", list_of=tuple(rule.attributes))
        case Index():
            for name in rule.written:
                yield name, Attribute(TYPES[kinds.get(name, "S")])
        case Compute():
            for name, cases in rule.set.items():
                types = {_computed_type(case) for case in cases}
                yield name, Attribute(types.pop() if len(types) == 1 else "Any")
        case Copy():
            for name in rule.written:
                text = isinstance(rule.values.get(name), str)
                yield name, Attribute("str" if text else _source_type((rule.attributes or {}).get(name)))
        case Embed(listed=listed) if listed is not None:
            names = () if listed.id is None else (listed.id, *rule.attributes)
            yield listed.list_name, Attribute("list" if names else "Any", list_of=names)
        case Latest() | Embed():
            for name, source in rule.attributes.items():
                yield name, Attribute(_source_type(source))


def _computed_type(case: Computed) -> str:
    if case.kind == "template":
        return "str"
    kind = Expression.parse(case.value, "value").type if case.kind == "expression" else None
    return _TYPES_OF_EXPRESSIONS[kind]


def _source_type(source: str | None) -> str:
    return _TYPES_OF_EXPRESSIONS[attribute_source(source).type if source is not None else None]


_TYPES_OF_EXPRESSIONS = {"N": "Decimal", "S": "str", None: "Any"}


def _read(document: Document, entity: str) -> Iterator[str]:
    """Yield the names that rules read of an entity's items."""
    yield from (name for text in document.entities[entity].index_key.values() for name in Template.parse(text).names)
    for _, rule in document.variants():
        if rule.source == entity:
            yield from Pattern.parse(rule.where or {}).names
            if rule.each is not None:
                yield rule.each.path
            yield from _read_by(rule)


def _read_by(rule: Rule) -> Iterator[str]:
    match rule:
        case Aggregate():
            for measure in rule.set.values():
                yield from Pattern.parse(measure.where or {}).names
                yield from Expression.parse(measure.expression, "value").names if measure.expression else ()
        case Compute():
            for one in (case for cases in rule.set.values() for case in cases):
                yield from Pattern.parse(one.where or {}).names
                if one.kind != "constant":
                    parsed = (
                        Template.parse(one.value) if one.kind == "template" else Expression.parse(one.value, "value")
                    )
                    yield from parsed.names
        case Index():
            for case in rule.cases:
                yield from Pattern.parse(case.where or {}).names
                yield from (name for text in case.set.values() for name in Template.parse(text).names)
        case Top() | Latest():
            yield rule.by
            yield from _names(rule.attributes)
        case Copy():
            yield from _names(rule.attributes or {})
        case Embed():
            yield from _names(rule.attributes)


def _names(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the names that the sources of attributes read."""
    for text in sources.values():
        yield from attribute_source(text).names


def _asked(entity: str, plans: Iterable[Plan]) -> Iterator[str]:
    """Yield the names that queries need of an entity's items."""
    for plan in plans:
        query = plan.asked
        if entity in query.entities:
            yield from (field.name for field in query.by)
            yield from query.where.names
            yield from filter(None, (query.range, query.order.name if query.order else None))
            yield from query.attributes or ()

"""Which attributes are numbers, as far as rules show it."""

from __future__ import annotations

from projections.language.attribute_sources import attribute_source
from projections.language.canonical import Aggregate, Copy, Document, Embed, Latest, Rule
from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.patterns import Pattern, Test, compared_type

__all__ = ["compares_as_number", "is_number"]


def is_number(document: Document, entity: str, name: str) -> bool:
    """Return whether the items of an entity have only numbers in an attribute."""
    declared = document.entities[entity]
    table = document.tables[declared.table]
    pairs = [table.partition, *([table.sort] if table.sort else [])]
    for keys in table.indexes.values():
        pairs += [*keys.partition, *keys.sort]
    if (name, "N") in pairs:
        return True
    if any("{" + name + "}" == declared.key.get(attribute) for attribute, kind in pairs if kind == "N"):
        return True
    for rule in document.rules.values():
        if isinstance(rule, Aggregate) and rule.into == entity and name in rule.set:
            measure = rule.set[name]
            if measure.function in PICKED:
                return _of_sources(document, rule, entity, str(measure.expression))
            if measure.function in VALUES:
                return measure.function == "distinct"
            return measure.function not in EXTREMES or not str(measure.expression).startswith("text(")
        if isinstance(rule, Copy | Latest | Embed) and rule.into == entity and name in (rule.attributes or {}):
            if name not in rule.written:  # it is in the elements of a list
                continue
            assert rule.attributes is not None
            source = attribute_source(rule.attributes[name])
            if source.type == "N":
                return True
            if isinstance(rule, Latest) and source.path is not None and entity not in rule.sources:
                return _of_sources(document, rule, entity, source.path)
    return compares_as_number(Pattern.parse(declared.match or {}), name)


def _of_sources(document: Document, rule: Rule, entity: str, path: str) -> bool:
    """Return whether the items of all sources, none of which is `entity`, have only numbers at a path."""
    return entity not in rule.sources and all(is_number(document, source, path) for source in rule.sources)


def compares_as_number(pattern: Pattern, name: str) -> bool:
    """Return whether every item that matches a pattern has a number in an attribute."""
    return any(
        isinstance(one, Test) and one.name == name and all(compared_type(a) == "N" for a in one.alternatives)
        for one in pattern.conditions
    )

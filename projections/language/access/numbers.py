"""Which attributes are numbers, as far as rules show it."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.canonical import Aggregate, Copy, Document, Embed, Index, Latest, Rank, Rule
from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.patterns import Pattern, Test, compared_type
from projections.language.templates import Field, Template

__all__ = ["compares_as_number", "is_number", "is_whole", "used_as_number"]


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


def used_as_number(document: Document, entity: str, name: str) -> str | None:
    """Return why an attribute is a number, if a rule that reads it rejects anything else; None if none does.

    The variables and attributes of a copy are what those of its source are.
    """
    return next(_uses(document, entity, name, ()), None)


def _uses(document: Document, entity: str, name: str, seen: tuple[str, ...]) -> Iterator[str]:
    for rule_name, rule in document.rules.items():
        if isinstance(rule, Copy) and rule.into == entity and rule.source not in (entity, *seen):
            path = _copied(rule, name)
            yield from _uses(document, rule.source, path, (*seen, entity)) if path is not None else ()
        if entity not in rule.sources:
            continue
        if isinstance(rule, Rank) and _reads(rule.by, name):
            yield f"rule {rule_name} ranks it"
        if isinstance(rule, Aggregate):
            added = (one.expression for one in rule.set.values() if one.function in ("sum", "avg"))
            if any(_reads(str(expression), name) for expression in added if expression):
                yield f"rule {rule_name} adds it up"
        for text in _texts(rule):
            if any(field.name == name and field.pipes[0].name in ("pad", "invert") for field in _piped(text)):
                yield f"rule {rule_name} pads it"


def _copied(rule: Copy, name: str) -> str | None:
    """Return the name that the source has for a name of the copy; None if it has another text, or if there is none."""
    if (text := rule.bind.get(name)) is not None:
        template = Template.parse(text)
        return template.single if template.single is not None and template.fields[0].plain else None
    return name if rule.attributes is None else rule.attributes.get(name, name)


def is_whole(document: Document, entity: str, name: str) -> bool:
    """Return whether `pad` can take a number: as far as rules show, it is neither a fraction nor negative."""
    for rule in document.rules.values():
        if isinstance(rule, Rank) and entity in rule.sources and rule.decimals and _reads(rule.by, name):
            return False
        if isinstance(rule, Aggregate) and rule.into == entity and name in rule.set:
            function, expression = rule.set[name].function, rule.set[name].expression
            if function == "avg" or (expression and Expression.parse(str(expression)).is_negative):
                return False
    return True


def _reads(expression: str, name: str) -> bool:
    factors = Expression.parse(expression).factors
    return any(factor.path == name and not factor.from_text for factor in factors)


def _texts(rule: Rule) -> Iterator[str]:
    yield from rule.bind.values()
    if isinstance(rule, Index):
        for case in rule.cases:
            yield from case.set.values()


def _piped(text: str) -> Iterator[Field]:
    return (field for field in Template.parse(text).fields if field.pipes and field.expression is None)


def _of_sources(document: Document, rule: Rule, entity: str, path: str) -> bool:
    """Return whether the items of all sources, none of which is `entity`, have only numbers at a path."""
    return entity not in rule.sources and all(is_number(document, source, path) for source in rule.sources)


def compares_as_number(pattern: Pattern, name: str) -> bool:
    """Return whether every item that matches a pattern has a number in an attribute."""
    return any(
        isinstance(one, Test) and one.name == name and all(compared_type(a) == "N" for a in one.alternatives)
        for one in pattern.conditions
    )

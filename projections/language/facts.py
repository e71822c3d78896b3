"""Facts derived from canonical rules: what a rule writes and how, who creates items, which indexes a rule feeds.

Each question is answered here once, for check, explain, diff, graph and replay. The engine asks the compiled rules
(`rules.Rule.creates`, `owned`), and the findings ask the rules as they were written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.canonical import (
    Aggregate,
    Compute,
    Computed,
    Constant,
    Copy,
    Document,
    Embed,
    Index,
    Latest,
    Measure,
    Rank,
    Rule,
    Top,
)
from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.patterns import Pattern, describe
from projections.language.patterns.implication import compares_as_number
from projections.language.syntax import root, steps
from projections.language.templates import Field, Template

EVERY = "*"
"""Stands for all attributes, where a rule copies all."""


# --- who creates and writes what ---


def copied(document: Document) -> frozenset[str]:
    """Return the entities whose items copy rules create."""
    return frozenset(rule.into for rule in document.rules.values() if isinstance(rule, Copy))


def creates(document: Document, rule: Rule) -> bool:
    """Return whether a rule's writes create its target item, and delete it when nothing contributes any more."""
    if isinstance(rule, Copy):
        return True
    if isinstance(rule, Rank):
        return False
    return rule.recorded and document.entities[rule.into].derived and rule.into not in copied(document)


def creators(document: Document) -> dict[str, str]:
    """Return the entities that exist only because of rules, with the first rule that creates their items."""
    found: dict[str, str] = {}
    for name, rule in document.rules.items():
        if creates(document, rule):
            found.setdefault(rule.into, name)
    return found


def indexes_fed(document: Document, rule: Rule) -> tuple[str, ...]:
    """Return the indexes whose key attributes an index rule writes."""
    if not isinstance(rule, Index):
        return ()
    indexes = document.tables[document.entities[rule.source].table].indexes
    return tuple(name for name, keys in indexes.items() if not keys.names.isdisjoint(rule.written))


def inputs(document: Document) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return for each rule the others that write, or create, what it reads, in the order of the file.

    Each has the attributes that it writes and the rule reads, none if it only creates the items.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, rule in document.rules.items():
        read = set(reads(document, rule))
        found[name] = {}
        for other, writer in document.rules.items():
            everything = (writer.into, EVERY) in read
            attributes = tuple(one for one in writer.written if everything or (writer.into, one) in read)
            created = writer.into in rule.sources and creates(document, writer)
            if other != name and (attributes or created):
                found[name][other] = attributes
    return found


def reads(document: Document, rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield the entity and the name of each attribute that a rule reads on items; `EVERY` if it copies all."""
    for one in rule.variants:
        source = document.entities[one.source]
        names = {*_in_patterns([source.match, one.where]), *_in_templates(one.bind.values()), *_in_action(rule)}
        if one.each is not None:
            names.add(one.each.path)
        if not isinstance(rule, Index | Compute | Embed):
            names.update(set(_in_templates(document.entities[rule.into].key.values())) - one.bind.keys())
        for name in names.difference(_in_templates(source.key.values())):
            if one.each is None or root(name) != one.each.variable:
                yield one.source, root(name)
    if isinstance(rule, Embed):
        for name in rule.match.keys() - set(_in_templates(document.entities[rule.into].key.values())):
            yield rule.into, root(name)


def _in_action(rule: Rule) -> Iterator[str]:
    match rule:
        case Copy():
            yield from [EVERY] if rule.attributes is None else _in_sources(rule.attributes)
            yield from _in_templates(value for value in rule.values.values() if isinstance(value, str))
        case Aggregate():
            for measure in rule.set.values():
                texts = [text for text in (measure.expression, measure.by) if text is not None]
                yield from (name for text in texts for name in Expression.parse(text, "extreme").names)
                yield from _in_patterns([measure.where])
        case Rank():
            yield from Expression.parse(rule.by).names
        case Top() | Latest():
            yield rule.by
            yield from _in_sources(rule.attributes)
        case Embed():
            yield from _in_templates(rule.match.values())
            yield from _in_sources(rule.attributes)
        case Index():
            for case in rule.cases:
                yield from _in_patterns([case.where])
                yield from _in_templates(case.set.values())
        case Compute():
            for computed in (one for cases in rule.set.values() for one in cases):
                yield from _in_patterns([computed.where])
                if computed.kind == "template":
                    yield from _in_templates([computed.value])
                elif computed.kind == "expression":
                    yield from Expression.parse(computed.value, "value").names


def _in_templates(texts: Iterable[str]) -> Iterator[str]:
    return (name for text in texts for name in Template.parse(text).names)


def _in_patterns(patterns: Iterable[Mapping[str, Any] | None]) -> Iterator[str]:
    return (name for pattern in patterns if pattern for name in Pattern.parse(pattern).names)


def _in_sources(attributes: Mapping[str, str]) -> Iterator[str]:
    return (name for text in attributes.values() for name in attribute_source(text).names)


@dataclass(frozen=True, slots=True)
class Origin:
    """The rule that writes an attribute, and how it makes the value, in the words of the rule file."""

    rule: str
    how: str


def origins(document: Document) -> dict[str, dict[str, Origin]]:
    """Return for each entity its derived attributes, with their origins."""
    found: dict[str, dict[str, Origin]] = {name: {} for name in document.entities}
    for name, rule in document.rules.items():
        for attribute, how in _written(document, rule):
            found[rule.into].setdefault(attribute, Origin(name, how))
        if creates(document, rule):
            for attribute, value in Pattern.parse(document.entities[rule.into].match or {}).constants.items():
                if len(steps(attribute)) == 1:
                    found[rule.into].setdefault(root(attribute), Origin(name, _constant(value)))
    return found


def _written(document: Document, rule: Rule) -> Iterator[tuple[str, str]]:
    source = " and ".join(rule.sources)
    match rule:
        case Copy():
            if rule.attributes is None:
                yield EVERY, f"{source}, all attributes"
            else:
                for target, path in rule.attributes.items():
                    yield target, source_text(path, source)
            for target, value in rule.values.items():
                yield target, _constant(value.value) if isinstance(value, Constant) else value
        case Aggregate():
            for target, measure in rule.set.items():
                yield target, measure_text(measure, source)
        case Index():
            for target in rule.written:
                templates = [case.set[target] for case in rule.cases if target in case.set]
                yield target, " or ".join(dict.fromkeys(templates))
        case Compute():
            for target, cases in rule.set.items():
                yield target, " or ".join(dict.fromkeys(computed_text(case) for case in cases))
        case Top():
            yield rule.list_name, f"{rule.limit} of {source} by {rule.by}"
        case Latest():
            for target, path in rule.attributes.items():
                made = " or ".join(source_text(path, one) for one in rule.sources)
                yield target, f"{made}, latest by {rule.by}"
        case Embed(listed=listed) if listed is not None:
            paths = ", ".join(rule.attributes.values())
            yield listed.list_name, f"{listed.form} of {source} ({paths}) by {listed.references}"
        case Embed():
            for target, path in rule.attributes.items():
                yield target, source_text(path, source)


def source_text(source: str, entity: str) -> str:
    """Return the source of an attribute in words: `User.name`, `qty * price of Order` or `{first} {last} of User`."""
    return f"{entity}.{source}" if attribute_source(source).path is not None else f"{source} of {entity}"


def computed_text(case: Computed) -> str:
    """Return what a case computes, in the words of the rule file."""
    return _constant(case.value) if case.kind == "constant" else str(case.value)


def _constant(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


# --- keys ---


def entity_key(document: Document, entity: str) -> str:
    """Return the key of an entity's items, such as `USER#{userId} · PROFILE`."""
    return " · ".join(document.entities[entity].key.values())


def key_text(document: Document, rule: Rule) -> str:
    """Return the key of a rule's target as templates over its source, such as `POST#{postId} · METADATA`."""
    texts = [" · ".join(resolved_key(document, one).values()) for one in rule.variants]
    return " or ".join(dict.fromkeys(texts))


def resolved_key(document: Document, rule: Rule) -> dict[str, str]:
    """Return the key of a rule's target, attribute by attribute, as templates over its source.

    Templates that differ between its sources are joined by "or".
    """
    found: dict[str, str] = {}
    for attribute, template in document.entities[rule.into].key.items():
        texts = [_bound(template, one.bind) for one in rule.variants]
        found[attribute] = " or ".join(dict.fromkeys(texts))
    return found


def _bound(template: str, bind: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\*?\}", lambda match: str(bind.get(match[1], match[0])), template)


# --- in words ---


def conditions(pattern: Mapping[str, Any] | None) -> str | None:
    """Return a pattern in words, such as `hidden is false or hidden is absent`; None if there is no pattern."""
    return describe(Pattern.parse(pattern)) if pattern else None


def where_text(rule: Rule) -> str | None:
    """Return the condition of a rule in words; those that differ between its sources each with the source."""
    texts = {one.source: conditions(one.where) for one in rule.variants}
    if len({*texts.values()}) == 1:
        return texts[rule.source]
    return "; ".join(f"{source}: {text or 'all items'}" for source, text in texts.items())


def measure_text(measure: Measure, source: str | None = None) -> str:
    """Return a measure in the words of the rule file, such as `max(stars) of Review where status is "published"`."""
    more = [str(one) for one in (measure.expression, measure.by, measure.round) if one is not None]
    text = f"{measure.function}({', '.join(more)})" if more else measure.function
    text += f" of {source}" if source else ""
    return f"{text} where {conditions(measure.where)}" if measure.where else text


# --- numbers ---


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

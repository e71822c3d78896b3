"""Facts about rules together: who creates items, which rules read what others write, keys and conditions in words.

A fact about one rule is a property of its action (`kinds`), and the engine asks the compiled rules (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from projections.language.arithmetic import Expression
from projections.language.forms import Constant
from projections.language.kinds import EVERY as EVERY
from projections.language.kinds.copy import constant_words
from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.models import Aggregate, Copy, Embed, Index, Latest, Projection, Rank, Rules, once
from projections.language.patterns import Pattern, describe
from projections.language.patterns.implication import compares_as_number
from projections.language.spelling import template_text
from projections.language.syntax import root, steps
from projections.language.templates import Field, Template

# --- who creates and writes what ---


@once
def copied(rules: Rules) -> frozenset[str]:
    """Return the entities whose items copy rules create."""
    return frozenset(rule.into for rule in rules.projections.values() if isinstance(rule.action, Copy))


def creates(rules: Rules, rule: Projection) -> bool:
    """Return whether a rule's writes create its target item, and delete it when nothing contributes any more."""
    if isinstance(rule.action, Copy):
        return True
    publishes = rule.action.recorded and rule.action.writes_items
    return publishes and rules.entities[rule.into].derived and rule.into not in copied(rules)


def creators(rules: Rules) -> dict[str, str]:
    """Return the entities that exist only because of rules, with the first rule that creates their items."""
    found: dict[str, str] = {}
    for name, rule in rules.projections.items():
        if creates(rules, rule):
            found.setdefault(rule.into, name)
    return found


def indexes_fed(rules: Rules, rule: Projection) -> tuple[str, ...]:
    """Return the indexes whose key attributes an index rule writes."""
    if not rule.action.makes_index_keys:
        return ()
    indexes = rules.table_of(rule.source).indexes
    return tuple(name for name, keys in indexes.items() if not keys.names.isdisjoint(rule.action.written))


def inputs(rules: Rules) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return for each rule the others that write, or create, what it reads, in the order of the file.

    Each has the attributes that it writes and the rule reads, none if it only creates the items.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, rule in rules.projections.items():
        read = set(reads(rules, rule))
        found[name] = {}
        for other, writer in rules.projections.items():
            everything = (writer.into, EVERY) in read
            attributes = tuple(one for one in writer.action.written if everything or (writer.into, one) in read)
            created = writer.into in rule.sources and creates(rules, writer)
            if other != name and (attributes or created):
                found[name][other] = attributes
    return found


def paths_read(rules: Rules, rule: Projection) -> set[str]:
    """Return the names that a rule with one source reads of its items; with `EVERY` if it copies all attributes."""
    names = {name for part in rule.parts() for name in part.value.names}
    if rule.each is not None:
        names.add(rule.each.path)
    if rule.action.makes_key:
        names.update(set(rules.entities[rule.into].variables) - rule.bind.keys())
    if isinstance(rule.action, Copy) and rule.action.copies_all:
        names.add(EVERY)
    return names


def reads(rules: Rules, rule: Projection) -> Iterator[tuple[str, str]]:
    """Yield the entity and the name of each attribute that a rule reads on items; `EVERY` if it copies all."""
    action, target = rule.action, rules.entities[rule.into]
    for one in rule.variants:
        source = rules.entities[one.source]
        for name in {*source.conditions.names, *paths_read(rules, one)}.difference(source.variables):
            if one.each is None or root(name) != one.each.variable:
                yield one.source, root(name)
    if isinstance(action, Embed):
        for name in action.match.keys() - {*target.variables}:
            yield rule.into, root(name)


@dataclass(frozen=True, slots=True)
class Origin:
    """The rule that writes an attribute, and how it makes the value, in the words of the rule file."""

    rule: str
    how: str


def origins(rules: Rules) -> dict[str, dict[str, Origin]]:
    """Return for each entity its derived attributes, with their origins."""
    found: dict[str, dict[str, Origin]] = {name: {} for name in rules.entities}
    for name, rule in rules.projections.items():
        for attribute, how in rule.action.origins(rule.sources):
            found[rule.into].setdefault(attribute, Origin(name, how))
        if creates(rules, rule):
            for attribute, value in rules.entities[rule.into].conditions.constants.items():
                if len(steps(attribute)) == 1:
                    found[rule.into].setdefault(root(attribute), Origin(name, constant_words(Constant(value))))
    return found


# --- keys ---


def entity_key(rules: Rules, entity: str) -> str:
    """Return the key of an entity's items, such as `USER#{userId} · PROFILE`."""
    return " · ".join(map(template_text, rules.entities[entity].key.values()))


def key_text(rules: Rules, rule: Projection) -> str:
    """Return the key of a rule's target as templates over its source, such as `POST#{postId} · METADATA`."""
    texts = [" · ".join(resolved_key(rules, one).values()) for one in rule.variants]
    return " or ".join(dict.fromkeys(texts))


def resolved_key(rules: Rules, rule: Projection) -> dict[str, str]:
    """Return the key of a rule's target, attribute by attribute, as templates over its source.

    Templates that differ between its sources are joined by "or".
    """
    found: dict[str, str] = {}
    for attribute, template in rules.entities[rule.into].key.items():
        texts = [_bound(template, one.bind) for one in rule.variants]
        found[attribute] = " or ".join(dict.fromkeys(texts))
    return found


def _bound(template: Template, bind: Mapping[str, Template]) -> str:
    return "".join(
        part if isinstance(part, str) else template_text(bind[part.name]) if part.name in bind else str(part)
        for part in template.parts
    )


# --- in words ---


def conditions(pattern: Pattern | None) -> str | None:
    """Return a pattern in words, such as `hidden is false or hidden is absent`; None if there is no pattern."""
    return describe(pattern) if pattern is not None else None


def where_text(rule: Projection) -> str | None:
    """Return the condition of a rule in words; those that differ between its sources each with the source."""
    texts = {one.source: conditions(one.where) for one in rule.variants}
    if len({*texts.values()}) == 1:
        return texts[rule.source]
    return "; ".join(f"{source}: {text or 'all items'}" for source, text in texts.items())


# --- numbers ---


def is_number(rules: Rules, entity: str, name: str) -> bool:
    """Return whether the items of an entity have only numbers in an attribute."""
    declared = rules.entities[entity]
    types = rules.table_of(entity).attribute_types
    if types.get(name) == "N":
        return True
    if any(types[attribute] == "N" and template.text == f"{{{name}}}" for attribute, template in declared.key.items()):
        return True
    for rule in rules.projections.values():
        action = rule.action
        if isinstance(action, Aggregate) and rule.into == entity and name in action.set:
            measure = action.set[name]
            if measure.function in PICKED:
                assert measure.expression is not None
                return _of_sources(rules, rule, entity, str(measure.expression.path))
            if measure.function in VALUES:
                return measure.function == "distinct"
            return measure.function not in EXTREMES or not (measure.expression and measure.expression.is_text)
        if not isinstance(action, Aggregate) and rule.into == entity and name in action.carried:
            source = action.carried[name]
            if source.type == "N":
                return True
            if isinstance(action, Latest) and source.path is not None and entity not in rule.sources:
                return _of_sources(rules, rule, entity, source.path)
    return compares_as_number(declared.conditions, name)


def used_as_number(rules: Rules, entity: str, name: str) -> str | None:
    """Return why an attribute is a number, if a rule that reads it rejects anything else; None if none does.

    The variables and attributes of a copy are what those of its source are.
    """
    return next(_uses(rules, entity, name, ()), None)


def _uses(rules: Rules, entity: str, name: str, seen: tuple[str, ...]) -> Iterator[str]:
    for rule_name, rule in rules.projections.items():
        action = rule.action
        if isinstance(action, Copy) and rule.into == entity and rule.source not in (entity, *seen):
            path = _copied(rule, action, name)
            yield from _uses(rules, rule.source, path, (*seen, entity)) if path is not None else ()
        if entity not in rule.sources:
            continue
        if isinstance(action, Rank) and _reads(action.by, name):
            yield f"rule {rule_name} ranks it"
        if isinstance(action, Aggregate):
            added = (one.expression for one in action.set.values() if one.function in ("sum", "avg"))
            if any(_reads(expression, name) for expression in added if expression is not None):
                yield f"rule {rule_name} adds it up"
        for template in _templates(rule):
            if any(field.name == name and field.pipes[0].name in ("pad", "invert") for field in _piped(template)):
                yield f"rule {rule_name} pads it"


def _copied(rule: Projection, copy: Copy, name: str) -> str | None:
    """Return the name that the source has for a name of the copy; None if it has another text, or if there is none."""
    if (template := rule.bind.get(name)) is not None:
        return template.single if template.single is not None and template.fields[0].plain else None
    return copy.carried[name].path if name in copy.carried else name


def is_whole(rules: Rules, entity: str, name: str) -> bool:
    """Return whether `pad` can take a number: as far as rules show, it is neither a fraction nor negative."""
    for rule in rules.projections.values():
        action = rule.action
        if isinstance(action, Rank) and entity in rule.sources and action.decimals and _reads(action.by, name):
            return False
        if isinstance(action, Aggregate) and rule.into == entity and name in action.set:
            function, expression = action.set[name].function, action.set[name].expression
            if function == "avg" or (expression is not None and expression.is_negative):
                return False
    return True


def _reads(expression: Expression, name: str) -> bool:
    return any(factor.path == name and not factor.from_text for factor in expression.factors)


def _templates(rule: Projection) -> Iterator[Template]:
    yield from rule.bind.values()
    if isinstance(rule.action, Index):
        for case in rule.action.cases:
            yield from case.set.values()


def _piped(template: Template) -> Iterator[Field]:
    return (field for field in template.fields if field.pipes and field.expression is None)


def _of_sources(rules: Rules, rule: Projection, entity: str, path: str) -> bool:
    """Return whether the items of all sources, none of which is `entity`, have only numbers at a path."""
    return entity not in rule.sources and all(is_number(rules, source, path) for source in rule.sources)

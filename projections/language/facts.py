"""Facts about rules together: who creates items, which rules read what others write, keys and conditions in words.

A fact about one rule is a property of its action (`kinds`), and the engine asks the compiled rules (`rules`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from projections.language.forms import Constant
from projections.language.kinds import EVERY as EVERY
from projections.language.kinds import AnyProjection, AnyRules, constant_words, once
from projections.language.patterns import Pattern, describe
from projections.language.spelling import template_text
from projections.language.syntax import root, steps
from projections.language.templates import Template

# --- who creates and writes what ---


@once
def copied(rules: AnyRules) -> frozenset[str]:
    """Return the entities whose items copy rules create."""
    return frozenset(rule.into for rule in rules.projections.values() if rule.action.makes_items)


def creates(rules: AnyRules, rule: AnyProjection) -> bool:
    """Return whether a rule's writes create its target item, and delete it when nothing contributes any more."""
    if rule.action.makes_items:
        return True
    publishes = rule.action.recorded and rule.action.writes_items
    return publishes and rules.entities[rule.into].derived and rule.into not in copied(rules)


def creators(rules: AnyRules) -> dict[str, str]:
    """Return the entities that exist only because of rules, with the first rule that creates their items."""
    found: dict[str, str] = {}
    for name, rule in rules.projections.items():
        if creates(rules, rule):
            found.setdefault(rule.into, name)
    return found


def indexes_fed(rules: AnyRules, rule: AnyProjection) -> tuple[str, ...]:
    """Return the indexes whose key attributes a rule writes on its source items."""
    indexes = rules.table_of(rule.source).indexes if rule.action.makes_index_keys else {}
    return tuple(name for name, keys in indexes.items() if not keys.names.isdisjoint(rule.action.written))


def inputs(rules: AnyRules) -> dict[str, dict[str, tuple[str, ...]]]:
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


def paths_read(rules: AnyRules, rule: AnyProjection) -> set[str]:
    """Return the names that a rule with one source reads of its items; with `EVERY` if it copies all attributes."""
    names = {name for part in rule.parts() for name in part.value.names}
    if rule.each is not None:
        names.add(rule.each.path)
    if rule.action.makes_key:
        names.update(set(rules.entities[rule.into].variables) - rule.bind.keys())
    if rule.action.copies_all:
        names.add(EVERY)
    return names


def reads(rules: AnyRules, rule: AnyProjection) -> Iterator[tuple[str, str]]:
    """Yield the entity and the name of each attribute that a rule reads on items; `EVERY` if it copies all."""
    for one in rule.variants:
        source = rules.entities[one.source]
        for name in {*source.conditions.names, *paths_read(rules, one)}.difference(source.variables):
            if one.each is None or root(name) != one.each.variable:
                yield one.source, root(name)
    for name in {*rule.action.matched}.difference(rules.entities[rule.into].variables):
        yield rule.into, root(name)


@dataclass(frozen=True, slots=True)
class Origin:
    """The rule that writes an attribute, and how it makes the value, in the words of the rule file."""

    rule: str
    how: str


def origins(rules: AnyRules) -> dict[str, dict[str, Origin]]:
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


def entity_key(rules: AnyRules, entity: str) -> str:
    """Return the key of an entity's items, such as `USER#{userId} · PROFILE`."""
    return " · ".join(map(template_text, rules.entities[entity].key.values()))


def key_text(rules: AnyRules, rule: AnyProjection) -> str:
    """Return the key of a rule's target as templates over its source, such as `POST#{postId} · METADATA`."""
    texts = [" · ".join(resolved_key(rules, one).values()) for one in rule.variants]
    return " or ".join(dict.fromkeys(texts))


def resolved_key(rules: AnyRules, rule: AnyProjection) -> dict[str, str]:
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


def where_text(rule: AnyProjection) -> str | None:
    """Return the condition of a rule in words; those that differ between its sources each with the source."""
    texts = {one.source: conditions(one.where) for one in rule.variants}
    if len({*texts.values()}) == 1:
        return texts[rule.source]
    return "; ".join(f"{source}: {text or 'all items'}" for source, text in texts.items())

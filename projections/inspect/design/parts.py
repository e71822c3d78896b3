"""Entities, indexes, and the writer of each attribute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from projections.inspect.access_patterns import AccessPattern
from projections.inspect.cost.reads import Shapes
from projections.inspect.design.model import Attributes, Entity, Index
from projections.language.access.presence import key_variables
from projections.language.access.questions import Query
from projections.language.canonical import Document, Embed
from projections.language.embeds import attributes_of_child, children_of
from projections.language.facts import EVERY, Origin, conditions, creators, indexes_fed, origins
from projections.language.keys import Image
from projections.language.models import Rules
from projections.language.ownership import EXISTS, REST, attribute_chains
from projections.language.patterns import Pattern
from projections.language.syntax import root
from projections.language.values import plain_item
from projections.stores.limits import item_size

__all__ = ["attributes", "entities", "indexes"]


def entities(document: Document, queries: Sequence[Query], samples: Mapping[str, Sequence[Image]]) -> Iterator[Entity]:
    """Yield the entities, each with its first sample item."""
    made = creators(document)
    for name, entity in document.entities.items():
        sample = next(iter(samples.get(name, ())), None)
        sizes = [one.expect.bytes for one in queries if one.entities == (name,) and one.expect.bytes is not None]
        yield Entity(
            name=name,
            table=entity.table,
            key=tuple(entity.key.items()),
            index_key=tuple(entity.index_key.items()),
            match=conditions(entity.match),
            rule=made.get(name),
            required=entity.required,
            expires=entity.expires,
            sample=None if sample is None else plain_item(sample),
            sample_bytes=None if sample is None else item_size(sample),
            expected_bytes=max(sizes, default=None),
        )


# --- indexes ---


def indexes(document: Document, patterns: Sequence[AccessPattern]) -> Iterator[Index]:
    """Yield the indexes of all tables."""
    finding = {
        name: children_of(document.to_document(), name).index
        for name, rule in document.rules.items()
        if isinstance(rule, Embed)
    }
    for table, declared in document.tables.items():
        here = [name for name, entity in document.entities.items() if entity.table == table]
        for name, keys in declared.indexes.items():
            reading = [one for one in patterns if any((read.table, read.index) == (table, name) for read in one.reads)]
            embeds = [rule for rule, index in finding.items() if index == name and _into(document, rule) in here]
            yield Index(
                table=table,
                name=name,
                partition=keys.partition,
                sort=keys.sort,
                projection=keys.projection,
                local=keys.local,
                queries=tuple(one.query.name for one in reading),
                embeds=tuple(embeds),
                rules=tuple(
                    rule
                    for rule, one in document.rules.items()
                    if one.source in here and name in indexes_fed(document, one)
                ),
                entities=tuple(one for one in here if not keys.names.isdisjoint(document.entities[one].index_key)),
                needed=_needed(document, table, name, reading, embeds),
            )


def _into(document: Document, rule: str) -> str:
    return document.rules[rule].into


def _needed(
    document: Document, table: str, index: str, patterns: Sequence[AccessPattern], embeds: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the attributes beside keys that queries and rules read of an index; None if a query returns all."""
    found: dict[str, None] = {}
    for one in patterns:
        asked = one.plan.asked
        if asked.attributes is None:
            return None
        tested = [*asked.where.names, *asked.parameters, *([asked.range] if asked.range else [])]
        for entity in one.plan.entities:
            tested += Pattern.parse(document.entities[entity].match or {}).names
        variables = {name for entity in one.plan.entities for name in key_variables(document, entity)}
        found |= dict.fromkeys(root(name) for name in [*asked.attributes, *tested] if name not in variables)
    for rule in embeds:
        found |= dict.fromkeys(attributes_of_child(document.to_document(), rule))
    declared = document.tables[table]
    keys = {name for name, _ in filter(None, (declared.partition, declared.sort))} | declared.indexes[index].names
    return tuple(name for name in found if name not in keys)


# --- attributes ---


def attributes(rules: Rules, document: Document, shapes: Shapes, queries: Sequence[Query]) -> Iterator[Attributes]:
    """Yield for each entity the attributes that the application writes, as far as the rule file names them, then those that
    rules write.
    """
    made, written, chains = creators(document), origins(document), attribute_chains(rules)
    for name, entity in document.entities.items():
        groups: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}
        if name in made:
            groups[made[name], chains[name, EXISTS]] = dict(entity.key)
        else:
            own = _own(document, name, shapes, queries, written[name])
            yield Attributes(name, None, dict.fromkeys(own, ""))
        for attribute, origin in written[name].items():
            chain = chains.get((name, REST if attribute == EVERY else attribute), (origin.rule,))
            groups.setdefault((origin.rule, chain), {})[attribute] = origin.how
        for (rule, chain), values in groups.items():
            yield Attributes(name, rule, values, chain, document.mode(rule))


def _own(
    document: Document, name: str, shapes: Shapes, queries: Sequence[Query], derived: Mapping[str, Origin]
) -> Iterator[str]:
    """Yield the attributes of an entity that the rule file names and no rule writes."""
    entity = document.entities[name]
    ttl = document.tables[entity.table].ttl
    asked = [one for query in queries if name in query.entities for one in _asked(query)]
    tested = Pattern.parse(entity.match or {}).names
    expiry = [ttl] if ttl and entity.expires else []
    variables = key_variables(document, name)
    free = [root(one) for one in (*entity.required, *tested, *expiry, *shapes.paths(name), *asked)]
    named = dict.fromkeys([*entity.key, *entity.index_key, *(one for one in free if one not in variables)])
    return (one for one in named if one not in derived)


def _asked(query: Query) -> tuple[str, ...]:
    """Return the names of a query."""
    names = (query.range, query.ordered_by)
    return (*query.parameters, *query.where.names, *(query.attributes or ()), *(one for one in names if one))

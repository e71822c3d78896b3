"""The table design as data: what the page shows, gathered from the rules and queries of a rule file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from projections.access.placeholders import request_count
from projections.inspect.access_patterns import AccessPattern, access_patterns
from projections.inspect.cost.change_costs import ITEM_BYTES
from projections.inspect.write_paths import search_index
from projections.language.access.paths import key_variables
from projections.language.access.plan import Query, queries_of
from projections.language.embeds import attributes_of_child
from projections.language.facts import (
    EXISTS,
    REST,
    Origin,
    attribute_chains,
    creators,
    indexes_fed,
    origins,
    paths_read,
)
from projections.language.forms import IndexKeys
from projections.language.kinds import EVERY
from projections.language.models import Rules
from projections.language.program import Program
from projections.language.questions import WritePattern
from projections.language.spelling import template_text
from projections.language.syntax import root
from projections.stores.limits import PAGE_BYTES, read_units

Status: TypeAlias = Literal["met", "not met", "decide", "accepted"]
"""`decide`: only a person can answer the question of the check."""


class Index(NamedTuple):
    """An index with what it serves and who writes its keys.

    `queries` read it; `embeds` are rules that find children through it. `rules` and `entities` (by `index_key`) write its
    keys. `needed` are the attributes beside keys that the queries and rules need of it, None if they need all.
    """

    table: str
    name: str
    keys: IndexKeys
    queries: tuple[str, ...]
    embeds: tuple[str, ...]
    rules: tuple[str, ...]
    entities: tuple[str, ...]
    needed: tuple[str, ...] | None


class Attributes(NamedTuple):
    """Attributes of an entity with one writer: `rule`, or None for the application.

    `values` has for each attribute how the rule makes it, in the words of the rule file. `chain` are the rules, one after
    the other, that run between the application's write and the attributes. A rule that is `held` writes nothing.
    """

    entity: str
    rule: str | None
    values: Mapping[str, str]
    chain: tuple[str, ...] = ()
    held: bool = False


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Read units of one page of a query. Without `items`, of each request that reads a page of 1 MB.

    `estimated` tells whether `expect` gives the size of an item, otherwise it is that of `ITEM_BYTES`. `chain` are the
    rules that must run before an item is found, and through a global `index` it is found only then.
    """

    query: str
    items: int | None
    bytes: int
    estimated: bool
    consistent: bool
    requests: int
    units: float
    per_second: float | None
    chain: tuple[str, ...]
    index: bool


class Check(NamedTuple):
    """One line of the checklist, with the facts that decide it, or the question that a person has to answer."""

    line: str
    status: Status
    details: tuple[str, ...] = ()


class Design(NamedTuple):
    title: str
    rules: Rules
    indexes: tuple[Index, ...]
    patterns: tuple[AccessPattern, ...]
    writes: Mapping[str, WritePattern]
    attributes: tuple[Attributes, ...]
    reads: tuple[ReadCost, ...]
    checks: tuple[Check, ...] = ()

    @property
    def creators(self) -> dict[str, str]:
        """The rule that creates the items of an entity, by entity; the application creates the others."""
        return creators(self.rules)


def gather_design(file: Rules, title: str) -> Design:
    """Return the table design of the valid rules of a file, without its checklist."""
    program = Program.from_document(file.document())
    rules = program.model
    patterns = access_patterns(rules, queries_of(file))
    queries = [pattern.query for pattern in patterns]
    writers = tuple(_attributes(rules, queries))
    return Design(
        title=title,
        rules=rules,
        indexes=tuple(_indexes(rules, patterns)),
        patterns=tuple(patterns),
        writes=file.writes,
        attributes=writers,
        reads=tuple(_read_cost(program, entry, _chain(program, entry, writers)) for entry in patterns if entry.reads),
    )


# --- indexes ---


def _indexes(rules: Rules, patterns: Sequence[AccessPattern]) -> Iterator[Index]:
    """Yield the indexes of all tables."""
    finding = {name: search_index(rules, name) for name in rules.projections}
    for table, declared in rules.tables.items():
        here = [name for name, entity in rules.entities.items() if entity.table == table]
        for name, keys in declared.indexes.items():
            reading = [
                pattern
                for pattern in patterns
                if any((read.table, read.index) == (table, name) for read in pattern.reads)
            ]
            embeds = [rule for rule, index in finding.items() if index == name and rules.projections[rule].into in here]
            yield Index(
                table=table,
                name=name,
                keys=keys,
                queries=tuple(pattern.query.name for pattern in reading),
                embeds=tuple(embeds),
                rules=tuple(
                    rule
                    for rule, reader in rules.projections.items()
                    if reader.source in here and name in indexes_fed(rules, reader)
                ),
                entities=tuple(
                    entity for entity in here if not keys.names.isdisjoint(rules.entities[entity].index_key)
                ),
                needed=_attributes_needed(rules, table, name, reading, embeds),
            )


def _attributes_needed(
    rules: Rules, table: str, index: str, patterns: Sequence[AccessPattern], embeds: Sequence[str]
) -> tuple[str, ...] | None:
    """Return the attributes beside keys that queries and rules read of an index; None if a query returns all."""
    names: dict[str, None] = {}
    for pattern in patterns:
        asked = pattern.plan.asked
        if asked.attributes is None:
            return None
        tested = [*asked.where.names, *asked.parameters, *([asked.range] if asked.range else [])]
        for entity in pattern.plan.entities:
            tested += rules.entities[entity].conditions.names
        variables = {name for entity in pattern.plan.entities for name in key_variables(rules, entity)}
        names |= dict.fromkeys(root(name) for name in [*asked.attributes, *tested] if name not in variables)
    for rule in embeds:
        names |= dict.fromkeys(attributes_of_child(rules.document(), rule))
    declared = rules.tables[table]
    keys = declared.indexes[index].names.union(declared.key_names)
    return tuple(name for name in names if name not in keys)


# --- attributes ---


def _attributes(rules: Rules, queries: Sequence[Query]) -> Iterator[Attributes]:
    """Yield for each entity the attributes that the application writes, as far as the rule file names them, then those that
    rules write.
    """
    made, written, chains = creators(rules), origins(rules), attribute_chains(rules)
    for name, entity in rules.entities.items():
        groups: dict[tuple[str, tuple[str, ...]], dict[str, str]] = {}
        if name in made:
            key = {attribute: template_text(template) for attribute, template in entity.key.items()}
            groups[made[name], chains[name, EXISTS]] = key
        else:
            own = _own(rules, name, queries, written[name])
            yield Attributes(name, None, dict.fromkeys(own, ""))
        for attribute, origin in written[name].items():
            chain = chains.get((name, REST if attribute == EVERY else attribute), (origin.rule,))
            groups.setdefault((origin.rule, chain), {})[attribute] = origin.how
        for (rule, chain), values in groups.items():
            yield Attributes(name, rule, values, chain, rules.projections[rule].hold)


def _own(rules: Rules, name: str, queries: Sequence[Query], derived: Mapping[str, Origin]) -> Iterator[str]:
    """Yield the attributes of an entity that the rule file names and no rule writes."""
    entity = rules.entities[name]
    ttl = rules.tables[entity.table].ttl
    asked = [asked_name for query in queries if name in query.entities for asked_name in _names_of(query)]
    tested = entity.conditions.names
    expiry = [ttl] if ttl and entity.expires else []
    variables = key_variables(rules, name)
    free = [root(path) for path in (*entity.required, *tested, *expiry, *_read_attributes(rules, name), *asked)]
    named = dict.fromkeys([*entity.key, *entity.index_key, *(path for path in free if path not in variables)])
    return (attribute for attribute in named if attribute not in derived)


def _read_attributes(rules: Rules, entity: str) -> list[str]:
    """Return the paths of an entity that rules read, sorted."""
    paths: set[str] = set()
    for _, rule in rules.variants():
        if rule.source == entity:
            element = rule.each.variable if rule.each else None
            paths |= {path for path in paths_read(rules, rule) if root(path) != element}
        if rule.into == entity:
            paths.update(rule.action.matched)
    return sorted(paths - {EVERY})


def _names_of(query: Query) -> tuple[str, ...]:
    """Return the names of a query."""
    names = (query.range, query.ordered_by)
    return (*query.parameters, *query.where.names, *(query.attributes or ()), *(name for name in names if name))


# --- read capacity ---


def _chain(program: Program, pattern: AccessPattern, attributes: Iterable[Attributes]) -> tuple[str, ...]:
    """Return the longest chain of rules before the keys that a query reads by are written."""
    keys = {
        (entity, name)
        for read in pattern.reads
        for entity in read.entities
        for name in program.tables[read.table].key_names(read.index)
    }
    chains = [group.chain for group in attributes if any((group.entity, name) in keys for name in group.values)]
    return max(chains, key=len, default=())


def _read_cost(program: Program, pattern: AccessPattern, chain: tuple[str, ...]) -> ReadCost:
    query, expected = pattern.query, pattern.query.expect
    size = expected.bytes if expected.bytes is not None else ITEM_BYTES
    known = [number for number in (expected.items, query.limit) if number is not None]
    items = 1 if pattern.reads[0].get else expected.scanned or min(known, default=None)
    requests = request_count(pattern.plan)
    page = PAGE_BYTES if items is None else min(items * size, PAGE_BYTES)
    units = requests * read_units(page, consistent=query.consistent)
    per_second = None if expected.per_second is None else expected.per_second * units
    return ReadCost(
        query=query.name,
        items=items,
        bytes=size,
        estimated=expected.bytes is not None,
        consistent=query.consistent,
        requests=requests,
        units=units,
        per_second=per_second,
        chain=chain,
        index=any(read.index not in (None, *program.tables[read.table].local) for read in pattern.reads),
    )

"""What rules require of a deployment: for each table its schema, filters, and the functions' operations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from projections.deploy.filters import Filters, filters, key_prefixes, leading_keys
from projections.engine.publishing import shares_calls
from projections.errors import UsageError
from projections.language.embeds import ListEmbedRule
from projections.language.entity import Entity
from projections.language.keys import Schema
from projections.language.program import Program

__all__ = ["MAIN", "Deployment", "TableNeeds", "entities_of"]

MAIN = "main"
"""The name of the only table of rules with `table:`."""

_INDEX_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


@dataclass(frozen=True, slots=True)
class TableNeeds:
    """What the rules require of one of the application's tables."""

    name: str
    """Its name in the rules."""
    suffix: str
    """The suffix of the names of its resources, empty for the only table."""
    schema: Schema
    filters: Filters
    updates: bool
    """Rules write to its items."""
    deletes: bool
    """Rules create and delete items in it: copies and derived items."""
    children: bool
    """It has children of embed rules, which a push updates in batches of statements."""
    searched: bool
    """A push queries it, or its indexes, for children; those of several parents are found in the ledger."""
    published: bool
    """Rules publish to its items in batches of statements."""
    queried: tuple[str, ...]
    """The indexes that a push queries."""
    leading: tuple[str, ...]
    """The partition keys of the items that rules read and write, as values of `dynamodb:LeadingKeys`."""
    unrestricted: str
    """Why a condition on partition keys is not possible, empty if it is."""


@dataclass(frozen=True)
class Deployment:
    """A deployment of rules.

    `existing`: all tables exist already, and the template creates none. `gradual`: a new version of the stream's function
    gets part of the batches first. `leading_keys`: the roles may write only items whose partition keys rules make or read.
    """

    file: str
    """The rule file, as the template's header names it."""
    program: Program
    existing: bool = False
    gradual: bool = False
    leading_keys: bool = False

    @cached_property
    def tables(self) -> tuple[TableNeeds, ...]:
        """The tables in the order of the rules. Raises UsageError for a name that AWS rejects."""
        suffixes = _suffixes(self.program.tables)
        return tuple(_needs(self.program, name, suffixes[name]) for name in self.program.tables)

    @cached_property
    def within(self) -> tuple[tuple[str, str, int], ...]:
        """Each rule with `within`: its name, a suffix for a logical id, and the seconds. Shadow rules publish nothing."""
        rules = self.program.rules
        names = [
            name for name, about in self.program.about.items() if "within" in about and rules[name].mode != "shadow"
        ]
        suffixes = _suffixes(dict.fromkeys(names))
        return tuple((name, suffixes[name], int(self.program.about[name]["within"])) for name in names)


def entities_of(program: Program, table: str) -> list[Entity]:
    """Return the entities of a table that any rule reads or writes."""
    used = {entity.name for rule in program.rules.values() for entity in (*rule.sources, rule.into)}
    return [entity for entity in program.entities.values() if entity.name in used and entity.table == table]


def _needs(program: Program, name: str, suffix: str) -> TableNeeds:
    schema, rules = program.tables[name], program.rules.values()
    for index in schema.indexes:
        if not _INDEX_NAME.fullmatch(index):
            raise UsageError(
                f'table {name}: invalid name of an index "{index}". It must have 3 to 255 letters, digits and _ . -'
            )
    targets = [rule.into for rule in rules if rule.writes_items and rule.into.table == name]
    children = [rule for rule in program.embeds.values() if rule.into.table == name]
    # The targets of removed rules are unknown.
    removed = "remove" in program.retired.values()
    prefixes = {e.name: key_prefixes(schema, e.patterns) for e in entities_of(program, name)}
    free = next((entity for entity, (partition, *_) in prefixes.items() if partition.anything), None)
    unrestricted = f"the partition key of {free} begins with a variable or is no text" if free is not None else ""
    if not prefixes:
        unrestricted = f"no rule reads or writes items of table {name}"
    if removed:
        unrestricted = "the keys of items from which a rule in `retired` is removed are unknown"
    return TableNeeds(
        name=name,
        suffix=suffix,
        schema=schema,
        filters=filters(schema, prefixes),
        updates=removed or bool(targets),
        deletes=removed or any(target.owned_by_rules for target in targets),
        children=bool(children),
        searched=any(not isinstance(rule, ListEmbedRule) for rule in children),
        published=any(
            rule.writes_items and shares_calls(rule) for rule in program.recorded.values() if rule.into.table == name
        ),
        queried=tuple(dict.fromkeys(rule.children.index for rule in children if rule.children.index)),
        leading=leading_keys([partition for partition, *_ in prefixes.values()]),
        unrestricted=unrestricted,
    )


def _suffixes(names: Mapping[str, object]) -> dict[str, str]:
    """Return suffixes for logical ids, of letters and digits: OrderLines for `order-lines`."""
    found: dict[str, str] = {}
    for name in names:
        words = re.findall(r"[A-Za-z0-9]+", name)
        suffix = "" if name == MAIN else "".join(word[0].upper() + word[1:] for word in words)
        number = 2
        while suffix in found.values():
            suffix, number = f"{suffix.rstrip('0123456789')}{number}", number + 1
        found[name] = suffix
    return found

"""Access paths: the ways to the items of an entity. One is the key of its table; each index that holds its items is another.

The key attributes of an index have their values from an index rule (one path for each of its cases), from the application
(`index_key`), from the key of the table, or they are attributes of the item itself (native). An index holds an item if the
item has all its key attributes, so a path has the conditions under which it does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from projections.language.canonical import Document, Index, once
from projections.language.patterns import Pattern
from projections.language.syntax import root
from projections.language.templates import Field, KeyPattern, Template

__all__ = ["TABLE", "KeyPart", "Path", "access_paths", "made_by_templates"]

TABLE = "table"
"""The name of the path of a table's own key, in `using`."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """One key attribute of a path, and how its value is made. `native`: it is an attribute that no template makes."""

    attribute: str
    kind: str
    template: Template
    native: bool = False


@dataclass(frozen=True)
class Path:
    """A way to the items of an entity that match `conditions` and none of `earlier`, and have the names in `needs`.

    `index` is None for the table. `rule` is the index rule that writes the keys. `projection` is `all`, or the
    attributes that the path returns.
    """

    entity: str
    index: str | None
    partition: tuple[KeyPart, ...]
    sort: tuple[KeyPart, ...]
    rule: str | None = None
    conditions: tuple[Pattern, ...] = ()
    earlier: tuple[Pattern, ...] = ()
    projection: frozenset[str] | None = None
    local: bool = False
    case: int = 0
    undeclared: tuple[str, ...] = ()
    """Key attributes that the application may or may not write on this entity: a variable of the key is not always an
    attribute, too."""

    @property
    def name(self) -> str:
        return self.index or TABLE

    @property
    def parts(self) -> tuple[KeyPart, ...]:
        return (*self.partition, *self.sort)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The names that all items that the path holds have."""
        if self.index is None:
            return ()
        return tuple(dict.fromkeys(name for part in self.parts for name in part.template.needs))

    @cached_property
    def suffices(self) -> tuple[str, ...]:
        """The names that an item must have so that the path holds it, apart from `uncertain`."""
        if self.index is None:
            return ()
        return tuple(dict.fromkeys(name for part in self.parts for name in part.template.suffices or ()))

    @cached_property
    def uncertain(self) -> Template | None:
        """A template that may have no value on an item that has all its names, such as `{a / b}`."""
        if self.index is None:
            return None
        return next((part.template for part in self.parts if part.template.suffices is None), None)

    def projects(self, name: str) -> bool:
        """Return whether the path returns an attribute."""
        return self.projection is None or root(name) in self.projection


@once
def access_paths(document: Document, entity: str) -> tuple[Path, ...]:
    """Return the paths to an entity's items: the table first, then its indexes in the order of the file."""
    return tuple(_paths(document, entity))


def _paths(document: Document, entity: str) -> Iterator[Path]:
    declared = document.entities[entity]
    table = document.tables[declared.table]
    key = {attribute: Template.parse(text) for attribute, text in declared.key.items()}
    pairs = [table.partition, *([table.sort] if table.sort else [])]
    first, *rest = [KeyPart(attribute, kind, key[attribute]) for attribute, kind in pairs]
    yield Path(entity, None, (first,), tuple(rest))
    written = {name: Template.parse(text) for name, text in declared.index_key.items()}
    variables = {name for template in key.values() for name in template.names}
    rules = [
        (name, rule)
        for name, rule in document.rules.items()
        if isinstance(rule, Index) and rule.source == entity and rule.mode != "shadow"
    ]
    made = made_by_templates(document, declared.table)
    no_rule: list[tuple[str | None, Index | None]] = [(None, None)]
    for index, keys in table.indexes.items():
        projection = None
        if keys.projection != "all":
            listed = () if isinstance(keys.projection, str) else keys.projection
            projection = frozenset({*listed, *keys.names, *key})
        feeding = [(name, rule) for name, rule in rules if not keys.names.isdisjoint(rule.written)]
        # Two rules may each write one half of the key of an index: only an item that both index is in it.
        for name, rule in feeding or no_rule:
            cases = [(case.where, case.set) for case in rule.cases] if rule is not None else [(None, {})]
            for number, (where, texts) in enumerate(cases):
                made_here = {attribute: Template.parse(text) for attribute, text in texts.items()}
                others = [other for other in feeding if other[0] != name]
                if others and not keys.names <= {*made_here, *written, *key}:
                    continue
                templates = {**key, **written, **made_here}
                own = {*written, *made_here}
                if keys.names.isdisjoint(own) and not made.isdisjoint(keys.names - key.keys()):
                    continue  # only other entities are in this index
                parts = [
                    KeyPart(attribute, kind, templates[attribute])
                    if attribute in templates
                    else KeyPart(attribute, kind, Template(attribute, (Field(attribute),)), native=True)
                    for attribute, kind in (*keys.partition, *keys.sort)
                ]
                both = [rule.where if rule is not None else None, where]
                yield Path(
                    entity,
                    index,
                    tuple(parts[: len(keys.partition)]),
                    tuple(parts[len(keys.partition) :]),
                    rule=name,
                    conditions=tuple(Pattern.parse(one) for one in both if one),
                    earlier=tuple(Pattern.parse(one or {}) for one, _ in cases[:number]),
                    projection=projection,
                    local=keys.local,
                    case=number,
                    undeclared=tuple(
                        part.attribute
                        for part in parts
                        if part.native and (part.attribute in variables or part.attribute in made)
                    ),
                )


@once
def made_by_templates(document: Document, table: str) -> frozenset[str]:
    """Return the attributes of a table that templates make: for an index rule, or by `index_key`."""
    found: set[str] = set()
    for rule in document.rules.values():
        if isinstance(rule, Index) and document.entities[rule.source].table == table:
            found.update(rule.written)
    for entity in document.entities.values():
        if entity.table == table:
            # `{at}` for the attribute `at` only declares that an entity has it: other entities may have it, too.
            found.update(name for name, text in entity.index_key.items() if text != f"{{{name}}}")
    return frozenset(found)


def pattern_of(template: Template, separator: str, variables: frozenset[str]) -> KeyPattern:
    """Return the texts that a template can make: `variables` (of the key) lack the separator, attributes may have it."""
    parts = tuple(
        Field(part.name, (), part.star or not part.plain or part.name not in variables)
        if isinstance(part, Field)
        else part
        for part in template.parts
    )
    return KeyPattern(Template(template.text, parts), separator)

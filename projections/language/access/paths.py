"""Access paths: the ways to the items of an entity. One is the key of its table; each index that holds its items is another.

The key attributes of an index have their values from an index rule (one path for each of its cases), from the application
(`index_key`), from the key of the table, or they are attributes of the item itself (native). An index holds an item if the
item has all its key attributes, so a path has the conditions under which it does.

From the same templates follows which names every item has, and which other items a key range holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from projections.language.access.plan import Buckets, Periods, Request, SortRange, Text
from projections.language.forms import Constant
from projections.language.models import Compute, Copy, Index, Projection, Rules, once
from projections.language.patterns import EVERYTHING, Pattern
from projections.language.syntax import root
from projections.language.templates import Field, KeyPattern, Template, overlap


@once
def key_variables(rules: Rules, entity: str) -> frozenset[str]:
    """Return the variables in the key of an entity."""
    return frozenset(rules.entities[entity].variables)


@once
def bare_variables(rules: Rules, entity: str) -> frozenset[str]:
    """Return the variables in the key of an entity whose values lack the separator: those without a star."""
    fields = (field for template in rules.entities[entity].key.values() for field in template.fields)
    return frozenset(field.name for field in fields if not field.star)


@once
def always_present(rules: Rules, entity: str) -> frozenset[str]:
    """Return the names that have a value on every item: key variables, `required`, and what a copy has from such names."""
    names = {*key_variables(rules, entity), *rules.entities[entity].required}
    for rule in rules.projections.values():
        action = rule.action
        if isinstance(action, Compute) and rule.source == entity and rule.publishes and rule.where is None:
            # one of the cases of an attribute, whichever applies, is a constant
            constant = (name for name, cases in action.set.items() if all(isinstance(c.value, Constant) for c in cases))
            names.update(name for name in constant if action.set[name][-1].where is None)
        if not isinstance(action, Copy) or rule.into != entity or not rule.publishes:
            continue
        source = always_present(rules, rule.source) if rule.source != entity else frozenset()
        if action.copies_all:
            names |= source - not_copied(rules, rule)
        names.update(target for target, attribute_source in action.carried.items() if attribute_source.path in source)
        for target, value in action.values.items():
            if isinstance(value, Constant) or source.issuperset(value.names):
                names.add(target)
    return frozenset(names)


def not_copied(rules: Rules, copy: Projection) -> frozenset[str]:
    """Return the names that do not have the source's value on a copy of all attributes.

    These are the variables of the source's key that may be no attributes, and what is in the key of the target, in its
    `match`, or written by rules.
    """
    source, target = rules.entities[copy.source], rules.entities[copy.into]
    return frozenset(
        {
            *(key_variables(rules, copy.source) - {*source.required}),
            *key_variables(rules, copy.into),
            *target.key,
            *target.index_key,
            *target.conditions.constants,
            *(name for rule in rules.projections.values() if rule.into == copy.into for name in rule.action.written),
        }
    )


TABLE = "table"
"""The name of the path of a table's own key, in `using`."""


class KeyPart(NamedTuple):
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
def access_paths(rules: Rules, entity: str) -> tuple[Path, ...]:
    """Return the paths to an entity's items: the table first, then its indexes in the order of the file."""
    return tuple(_paths(rules, entity))


def _paths(rules: Rules, entity: str) -> Iterator[Path]:
    declared = rules.entities[entity]
    table = rules.tables[declared.table]
    key = declared.key
    first, *rest = [KeyPart(attribute, kind, key[attribute]) for attribute, kind in table.key]
    yield Path(entity, None, (first,), tuple(rest))
    written = declared.index_key
    variables = key_variables(rules, entity)
    writers = [
        (name, rule, rule.action)
        for name, rule in rules.projections.items()
        if isinstance(rule.action, Index) and rule.source == entity and rule.publishes
    ]
    made = made_by_templates(rules, declared.table)
    no_rule: list[tuple[str | None, Projection | None, Index | None]] = [(None, None, None)]
    for index, keys in table.indexes.items():
        projection = None
        if keys.projection != "all":
            listed = () if isinstance(keys.projection, str) else keys.projection
            projection = frozenset({*listed, *keys.names, *key})
        feeding = [writer for writer in writers if not keys.names.isdisjoint(writer[2].written)]
        # Two rules may each write one half of the key of an index: only an item that both index is in it.
        for name, rule, action in feeding or no_rule:
            cases = [(case.where, case.set) for case in action.cases] if action is not None else [(None, {})]
            for number, (where, made_here) in enumerate(cases):
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
                    for attribute, kind in keys.attributes
                ]
                both = [rule.where if rule is not None else None, where]
                yield Path(
                    entity,
                    index,
                    tuple(parts[: len(keys.partition)]),
                    tuple(parts[len(keys.partition) :]),
                    rule=name,
                    conditions=tuple(pattern for pattern in both if pattern is not None),
                    earlier=tuple(pattern or EVERYTHING for pattern, _ in cases[:number]),
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
def made_by_templates(rules: Rules, table: str) -> frozenset[str]:
    """Return the attributes of a table that templates make: for an index rule, or by `index_key`."""
    attributes: set[str] = set()
    for rule in rules.projections.values():
        if isinstance(rule.action, Index) and rules.entities[rule.source].table == table:
            attributes.update(rule.action.written)
    for entity in rules.entities.values():
        if entity.table == table:
            # `{at}` for the attribute `at` only declares that an entity has it: other entities may have it, too.
            attributes.update(name for name, template in entity.index_key.items() if template.text != f"{{{name}}}")
    return frozenset(attributes)


def pattern_of(template: Template, separator: str, variables: frozenset[str]) -> KeyPattern:
    """Return the texts that a template can make: `variables` (of the key) lack the separator, attributes may have it."""
    parts = tuple(
        Field(part.name, (), part.star or not part.plain or part.name not in variables)
        if isinstance(part, Field)
        else part
        for part in template.parts
    )
    return KeyPattern(Template(template.text, parts), separator)


class Neighbour(NamedTuple):
    """Items that can be in a key range beside those that are asked for, if they have the attributes `native`."""

    name: str
    native: tuple[str, ...]


def neighbours(rules: Rules, request: Request, own: Path, bare: frozenset[str] = frozenset()) -> Iterator[Neighbour]:
    """Yield the entities, other than those of the request, whose items can be in its key range.

    `bare` are names of which the caller's values lack the separator.
    """
    table = rules.entities[own.entity].table
    separator = rules.tables[table].separator
    keys = [key for key in (*request.partition, *request.fixed) if key.kind == "S"]
    shapes = [(key.attribute, _shape(key.text, separator, bare)) for key in keys]
    neighbour_names: set[str] = set()
    for path, patterns in _paths_with_patterns(rules, table, request.index):
        name = path.entity
        if name in neighbour_names or (name in request.entities and name != own.entity):
            continue
        if name == own.entity and (path.rule, path.case) == (own.rule, own.case):
            continue
        if any(overlap(shape, patterns[attribute]) is None for attribute, shape in shapes):
            continue
        if request.sort is None or _in_range(request.sort, patterns, separator, bare):
            neighbour_names.add(name)
            native = dict.fromkeys(part.attribute for part in path.parts if part.native)
            shown = name if name != own.entity else f"other {name} items, by another case of {path.rule}"
            yield Neighbour(
                shown, tuple(attribute for attribute in native if attribute not in rules.entities[name].required)
            )


@once
def _paths_with_patterns(
    rules: Rules, table: str, index: str | None
) -> tuple[tuple[Path, Mapping[str, KeyPattern]], ...]:
    """Return the paths through an index, or the table, with the texts that each key attribute can have."""
    separator = rules.tables[table].separator
    paths = [
        path
        for name, entity in rules.entities.items()
        if entity.table == table
        for path in access_paths(rules, name)
        if path.index == index
    ]
    return tuple(
        (path, {part.attribute: pattern_of(part.template, separator, variables) for part in path.parts})
        for path in paths
        for variables in (bare_variables(rules, path.entity),)
    )


def sharing(rules: Rules, request: Request, own: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the neighbours that are certainly there, and for the others the assumption that they are not.

    A variable of a key lacks the separator: no item has a value with it, so it is assumed that the caller gives none.
    """
    bare = bare_variables(rules, own.entity)
    neighbouring = list(neighbours(rules, request, own, bare))
    absent: dict[tuple[str, ...], list[str]] = {}
    for neighbour in neighbouring:
        if neighbour.native:
            absent.setdefault(neighbour.native, []).append(neighbour.name)
    assumed = [f"{', '.join(names)} items lack {' or '.join(native)}" for native, names in absent.items()]
    if neighbouring != list(neighbours(rules, request, own)):
        separator = rules.tables[rules.entities[own.entity].table].separator
        assumed += [f"{name} has no {separator}" for name in _parameter_names(request) if name in bare]
    return tuple(neighbour.name for neighbour in neighbouring if not neighbour.native), tuple(assumed)


def _parameter_names(request: Request) -> Iterator[str]:
    """Yield the names of the caller's values in a request."""
    sort = () if request.sort is None else request.sort.prefix
    for text in (*(key.text for key in (*request.partition, *request.fixed)), sort):
        yield from (piece.name for piece in text if isinstance(piece, Field) and piece.plain)


def _in_range(sort: SortRange, patterns: Mapping[str, KeyPattern], separator: str, bare: frozenset[str]) -> bool:
    """Return whether a sort key with these texts can be in a range."""
    if sort.kind != "S":
        return True
    other = patterns[sort.attribute]
    if sort.until is not None:
        return _between(sort, other, separator, bare)
    literal = _shape(sort.prefix, separator, bare)
    if not literal.parts:
        return True
    longer = KeyPattern(Template("", (*literal.parts, Field("…", (), True))), separator)
    return overlap(literal, other) is not None or overlap(longer, other) is not None


def _between(sort: SortRange, other: KeyPattern, separator: str, bare: frozenset[str]) -> bool:
    """Return whether a text of a pattern can be in a range of keys with a common beginning."""
    assert sort.until is not None
    common = tuple(a for a, b in zip(sort.prefix, sort.until, strict=False) if a == b)
    shape = _shape(common, separator, bare)
    longer = KeyPattern(Template("", (*shape.parts, Field("…", (), True))), separator)
    if common and overlap(longer, other) is None and overlap(shape, other) is None:
        return False
    if common:
        return True
    (least,), (most,), own = sort.prefix, sort.until, other.literal_prefix
    assert isinstance(least, str)
    assert isinstance(most, str)
    below = own < least and not least.startswith(own)
    return not (below or (own > most and not (sort.rest and own.startswith(most)) and not most.startswith(own)))


def _shape(text: Text, separator: str, bare: frozenset[str]) -> KeyPattern:
    """Return the texts that the key of a request can have: a given value can be any text, unless it is in `bare`."""
    parts: list[str | Field] = []
    for number, piece in enumerate(text):
        if isinstance(piece, Buckets | Periods):
            parts.append(Field(f"{number}"))
        elif isinstance(piece, Field):
            parts.append(Field(f"{number}", (), not piece.plain or piece.name not in bare))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    return KeyPattern(Template("", tuple(parts)), separator)

"""Mistakes that concern rules, entities, tables and queries together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from projections.language.access.paths import TABLE
from projections.language.embeds import children_of, parent_patterns
from projections.language.forms import IndexKeys, syntax
from projections.language.measures import EXTREMES, PICKED, TYPED
from projections.language.models import (
    COMBINING,
    Aggregate,
    Compute,
    Copy,
    Embed,
    Entity,
    Index,
    Latest,
    Projection,
    Rank,
    Rules,
    Table,
    Top,
    declaration,
    extreme_type,
    is_claimed,
)
from projections.language.ownership import cycle_mistakes, ownership_mistakes
from projections.language.patterns import Pattern
from projections.language.patterns.tree import Equals, Exists, Test
from projections.language.questions import Query, WritePattern, WriteStep
from projections.language.syntax import LanguageError, Location, Mistake, no_entity, root, suggest
from projections.language.templates import KeyPattern, Template, by_field, overlap

ABSENT = Exists(False)

PROJECTED_ATTRIBUTES = 100
"""DynamoDB's limit of listed attributes of all indexes of a table; one that two indexes list counts twice."""


def table_mistakes(rules: Rules) -> Iterator[Mistake]:
    """Yield attributes declared with two types, and indexes that the table cannot have."""
    for name, table in rules.tables.items():
        place: Location = ("tables", name)
        types = dict(table.key)
        for index, keys in table.indexes.items():
            for attribute, kind in keys.attributes:
                if types.setdefault(attribute, kind) != kind:
                    message = (
                        f"{attribute} has type {kind} here and type {types[attribute]} before: write {{{attribute}: …}}"
                    )
                    yield Mistake((*place, "indexes", index), message)
            if keys.local:
                yield from _local(table, keys, (*place, "indexes", index))
        yield from _projected(table, (*place, "indexes"))


def _local(table: Table, keys: IndexKeys, place: Location) -> Iterator[Mistake]:
    """Yield mistakes of a local index, which sorts the items of the table's partitions by another attribute."""
    ((attribute, _),) = keys.sort
    names = table.key_names
    if len(names) == 1:
        message = "the table has no sort key, so it cannot have a local index: give it `partition` instead of `local`"
        yield Mistake((*place, "local"), message, at_key=True)
    if attribute in names:
        which = "partition key" if attribute == names[0] else "sort key"
        message = f"{attribute} is the {which} of the table: a local index sorts by another attribute"
        yield Mistake((*place, "sort"), message)


def _projected(table: Table, place: Location) -> Iterator[Mistake]:
    """Yield attributes that are projected in any case, and more of them than DynamoDB projects."""
    total = 0
    for index, keys in table.indexes.items():
        if isinstance(keys.projection, str):
            continue
        total += len(keys.projection)
        for name in keys.projection:
            if name in keys.names.union(table.key_names):
                message = f"{name} is a key attribute, and these are always projected: remove it"
                yield Mistake((*place, index, "projection", name), message)
    if total > PROJECTED_ATTRIBUTES:
        yield Mistake(
            place,
            f"all indexes of a table together can list {PROJECTED_ATTRIBUTES} attributes in `projection`, and these list "
            f"{total}: list fewer, or use `projection: all`",
            at_key=True,
        )


def entity_mistakes(rules: Rules) -> Iterator[Mistake]:
    """Yield the mistakes of each entity, then those of pairs of entities of one table."""
    sound: dict[str, list[str]] = {}
    for name, entity in rules.entities.items():
        place = ("entities", name)
        tables, table = rules.tables, entity.table
        if not table:
            yield Mistake(place, f"needs `table`: one of {', '.join(tables)}", at_key=True)
        elif table not in tables:
            yield Mistake((*place, "table"), f'unknown table "{table}"{suggest(table, tables)}')
        else:
            found = list(_key_mistakes(entity, tables[table], table, place))
            yield from found
            yield from _index_key_mistakes(entity, tables[table], table, place)
            if not found:
                sound.setdefault(table, []).append(name)
        if entity.id is not None and entity.id not in entity.variables:
            variables = entity.variables
            hint = suggest(entity.id, variables) or f": its variables are {', '.join(variables)}"
            yield Mistake((*place, "id"), f'the key has no variable "{entity.id}"{hint}')
    for table, names in sound.items():
        yield from _overlaps(rules, table, names)


def _key_mistakes(entity: Entity, table: Table, name: str, place: Location) -> Iterator[Mistake]:
    expected = dict(table.key)
    place = (*place, "key")
    lacking = [attribute for attribute in expected if attribute not in entity.key]
    for attribute in lacking:
        yield Mistake(place, f"{attribute} is missing: the key of table {name} is {', '.join(expected)}", at_key=True)
    for attribute, template in entity.key.items():
        if attribute not in expected:
            hint = suggest(attribute, lacking) or f": its key is {', '.join(expected)}"
            yield Mistake((*place, attribute), f"is not a key attribute of table {name}{hint}", at_key=True)
            continue
        found = syntax(partial(KeyPattern.parse, template.text, table.separator), (*place, attribute))
        yield from found
        if not found and expected[attribute] != "S" and not template.single:
            yield Mistake((*place, attribute), typed(attribute, expected[attribute]))


def typed(attribute: str, kind: str, computed: bool = False) -> str:
    """Return why an attribute that is not text cannot have this template; a number may be `computed`."""
    word = "a number (N)" if kind == "N" else "binary (B)"
    one = "variable or expression" if kind == "N" and computed else "variable"
    return f"{attribute} is {word}: its template must be one {one}, nothing else"


def _index_key_mistakes(entity: Entity, table: Table, name: str, place: Location) -> Iterator[Mistake]:
    types = table.attribute_types
    for attribute, template in entity.index_key.items():
        if attribute not in types or attribute in table.key_names:
            hint = suggest(attribute, sorted(types.keys() - set(table.key_names)))
            yield Mistake(
                (*place, "index_key", attribute),
                f"is not a key attribute of an index of table {name}{hint}",
                at_key=True,
            )
        elif types[attribute] != "S" and not template.single:
            yield Mistake((*place, "index_key", attribute), typed(attribute, types[attribute]))


def shared_key(rules: Rules, name: str, first: str, second: str) -> str:
    """Return a key that items of two entities of a table could have, in words; empty if they cannot."""
    table = rules.tables[name]
    witness = {}
    for attribute in table.key_names:
        patterns = (
            KeyPattern.parse(rules.entities[one].key[attribute].text, table.separator) for one in (first, second)
        )
        text = overlap(*patterns)
        if text is None:
            return ""
        witness[attribute] = text
    return ", ".join(f'{attribute} "{text}"' for attribute, text in witness.items())


def _overlaps(rules: Rules, table: str, names: list[str]) -> Iterator[Mistake]:
    """Yield entities whose items could be those of others: one mistake for an entity with several others."""
    beside: dict[str, dict[str, str]] = {name: {} for name in names}
    for first, second in _neighbours(rules, table, names):
        if key := _overlap(rules, table, first, second):
            beside[first][second] = beside[second][first] = key
    while any(beside.values()):
        name = max(reversed(names), key=lambda one: len(beside[one]))
        shared, beside[name] = beside[name], {}
        for other in shared:
            del beside[other][name]
        nearest, *also = others = list(shared)
        first, second = sorted((name, nearest), key=names.index)
        message = f"an item with {shared[nearest]} could be {first} or {second}"
        message += f" ({name} also shares keys with {' and '.join(also)})" if also else ""
        message += ": use different keys, or give both a `match` on one attribute with different values"
        yield Mistake(("entities", name), message, at_key=True, others=tuple(("entities", one) for one in others))


def _neighbours(rules: Rules, table: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of entities whose keys have literal prefixes that agree. Few pairs of many entities do."""
    found = rules.tables[table]
    prefixes = {
        name: [
            KeyPattern.parse(rules.entities[name].key[one].text, found.separator).literal_prefix
            for one in found.key_names
        ]
        for name in names
    }
    for first, second in combinations(names, 2):
        if all(a.startswith(b) or b.startswith(a) for a, b in zip(prefixes[first], prefixes[second], strict=True)):
            yield first, second


def _overlap(rules: Rules, name: str, first: str, second: str) -> str:
    """Return a key under which an item could be of both entities, in words; empty if there is none."""
    one, two = rules.entities[first], rules.entities[second]
    key = shared_key(rules, name, first, second)
    mine, other = listed_values(one.match), listed_values(two.match)
    if key and any(not mine[attribute] & other[attribute] for attribute in mine.keys() & other.keys()):
        return ""
    return key


def listed_values(pattern: Pattern | None) -> dict[str, set[tuple[type, Any]]]:
    """Return the names that a pattern limits to certain values, as (type, value); `ABSENT` for no value."""
    found: dict[str, set[tuple[type, Any]]] = {}
    for condition in pattern.conditions if pattern is not None else ():
        if isinstance(condition, Test) and all(
            isinstance(one, Equals) or one == ABSENT for one in condition.alternatives
        ):
            values: list[Any] = [one.value if isinstance(one, Equals) else ABSENT for one in condition.alternatives]
            found[condition.name] = {(type(value), value) for value in values}
    return found


_APART = ("queries", "writes", "retired")
"""Sections that no rule depends on."""


def analyse(rules: Rules, before: Collection[Mistake] = ()) -> list[Mistake]:
    """Return every semantic mistake in the rules. Parts with the mistakes `before` may be missing in `rules`."""
    found = [*table_mistakes(rules), *entity_mistakes(rules)]
    sound = {}
    for name, rule in rules.projections.items():
        place = ("projections", name)
        unknown = list(_unknown(rules, rule, place))
        found += unknown
        found += _constructs(rules, rule, place)
        if not unknown:
            sound[name] = rule
            found += _target(rules, rule, place)
            found += _extremes(rules, rule, place)
    related = rules.with_projections(sound)
    found += [*ownership_mistakes(related), *cycle_mistakes(related)]
    if all(one.path[:1] and one.path[0] in _APART for one in (*before, *found)):  # another correction may correct these
        found += [*_derived(rules), *_unusable_embeds(rules)]
    for name in rules.retired:
        if name in rules.projections:
            found.append(
                Mistake(("retired", name), "is still a rule: remove it here or under `projections`", at_key=True)
            )
    return [*found, *question_mistakes(rules)]


def unsupported(rules: Rules) -> list[Mistake]:
    """Return each use of a construct that this version does not support yet."""
    message = 'this version does not support "expired: keep" of a copy yet: remove the rule'
    return [
        Mistake(("projections", name, "expired"), message, at_key=True)
        for name, rule in rules.projections.items()
        if rule.expired == "keep" and isinstance(rule.action, Copy)
    ]


def _unusable_embeds(rules: Rules) -> Iterator[Mistake]:
    if not any(rule.kind == "embed" for rule in rules.projections.values()):
        return
    document = rules.document()
    for name, rule in rules.projections.items():
        if rule.kind == "embed":
            for question in (parent_patterns, children_of):
                try:
                    question(document, name)
                except LanguageError as error:
                    yield Mistake(("projections", name, "embed", "match"), error.message, at_key=True)


def _unknown(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    for source in rule.sources:
        if source not in rules.entities:
            yield replace(no_entity(source, rules.entities, (*place, "from", source)), at_key=True)
    if not rule.action.on_source and rule.into not in rules.entities:
        yield no_entity(rule.into, rules.entities, (*place, rule.kind, "into"))


def _constructs(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield constructs that a rule of this kind cannot have, or lacks."""
    action = rule.action
    if isinstance(action, Rank) and rule.mode == "shadow":
        message = "a rank rule cannot be in shadow mode: it writes nothing to the tables in any mode; remove this"
        yield Mistake((*place, "mode"), message, at_key=True)
    if len(rule.sources) > 1 and not action.combines:
        article = "an" if rule.kind[0] in "aei" else "a"
        target = ", each into an entity of its own" if rule.kind == "copy" else ""
        message = (
            f"{article} {rule.kind} rule has one source: write a rule for each of {' and '.join(rule.sources)}{target}. "
            f"Only {', '.join(COMBINING[:-1])} and {COMBINING[-1]} rules combine several sources"
        )
        yield Mistake((*place, "from"), message)
        return
    if not action.makes_key:
        a_kind = f"{'a' if rule.kind == 'compute' else 'an'} {rule.kind}"
        why = "its target is the source item itself" if action.on_source else "its `match` selects the children"
        for name, given in (("each", rule.each), ("bind", rule.bind)):
            if given:
                yield Mistake((*place, *rule.place(name)), f"{a_kind} rule cannot have `{name}`: {why}", at_key=True)
        if rule.expired is not None:
            instead_of = "use `on_delete`" if rule.kind == "embed" else "the item itself is deleted"
            yield Mistake((*place, "expired"), f"{a_kind} rule cannot have `expired`: {instead_of}", at_key=True)
        return
    sources = {name: rules.entities[name].expires for name in rule.sources if name in rules.entities}
    expiring = [name for name, expires in sources.items() if expires]
    if expiring and rule.expired is None:
        choices = "`retract`" if isinstance(action, Top | Latest) else "`keep` or `retract`"
        yield Mistake(place, f"items of {' and '.join(expiring)} expire: set `expired` to {choices}", at_key=True)
    if not expiring and len(sources) == len(rule.sources) and rule.expired is not None:
        entity = "the entity" if len(sources) == 1 else "one of the entities"
        message = f"items of {' and '.join(sources)} do not expire: add `expires: true` to {entity}, or remove this"
        yield Mistake((*place, "expired"), message, at_key=True)
    if rule.expired == "keep" and isinstance(action, Top | Latest):
        yield Mistake((*place, "expired"), f"{rule.kind} rules accept only `expired: retract`")
    if rule.expired == "keep" and isinstance(action, Aggregate):
        for attribute, measure in action.set.items():
            if measure.function in PICKED:
                message = (
                    f"{measure.function} cannot keep values of expired items: move it to a rule with `expired: retract`"
                )
                yield Mistake((*place, "aggregate", "set", attribute), message)


def _target(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield mistakes in what a rule writes, and in the key of its target."""
    table = rules.tables.get(rules.entities[rule.into].table)
    if table is None:
        return
    yield from _written(rules, rule, table, place)
    action = rule.action
    if isinstance(action, Index):
        yield from _index(action, table, place)
    if isinstance(action, Embed):
        yield from _listed(rules, action, table, place)
    if not action.makes_key:
        return
    variables = rules.entities[rule.into].variables
    for name, at in {name: variant.place("bind", name) for variant in rule.variants for name in variant.bind}.items():
        if name not in variables:
            hint = suggest(name, variables) or f": its variables are {', '.join(variables) or 'none'}"
            yield Mistake((*place, *at), f"the key of {rule.into} has no variable {{{name}}}{hint}", at_key=True)
    if isinstance(action, Copy):
        yield from _copy(rules, rule, action, place)


def _listed(rules: Rules, embed: Embed, table: Table, place: Location) -> Iterator[Mistake]:
    """Yield references of an embed with `as` that cannot be a list or set, and a list in place of its references."""
    if embed.as_ is None:
        return
    name = embed.references
    assert name is not None
    where = (*place, "embed", "match", name)
    if name in rules.entities[embed.into].variables:
        message = f"{{{name}}} is in the key of {embed.into}, so it cannot be a list or set of references"
        yield Mistake(where, f"{message}: name an attribute, or remove `as`", at_key=True)
    elif name in table.attribute_types:
        message = f"{name} is the key of an index, so it cannot be a list or set of references"
        yield Mistake(where, f"{message}: name another attribute, or remove `as`", at_key=True)
    if embed.as_ in {root(one) for one in embed.match}:
        message = f"the rule cannot write {embed.as_}, because `match` reads it: write another name"
        yield Mistake((*place, "embed", "as"), message)


def _copy(rules: Rules, rule: Projection, copy: Copy, place: Location) -> Iterator[Mistake]:
    if rule.into == rule.source:
        yield Mistake((*place, "copy", "into"), "the source and the target of a copy must be different entities")
    if not copy.model_fields_set & {"attributes", "values"}:
        yield Mistake((*place, "copy"), "copies nothing: add `attributes` or `values`", at_key=True)
    for name in copy.values:
        if name in copy.carried:
            yield Mistake((*place, "copy", "values", name), "is also listed in `attributes`", at_key=True)
    in_table = rules.entities[rule.source].table in rules.tables
    if copy.claimed is not None and in_table and copy.claimed != is_claimed(rules, rule):
        yield Mistake((*place, "copy", "claimed"), "follows from the keys: remove it", at_key=True)
    variables = rules.entities[rule.into].variables
    used = {root(inner) for name in variables for inner in (rule.bind[name].names if name in rule.bind else (name,))}
    if rule.each is not None and rule.each.variable not in used:
        message = (
            f"the key of {rule.into} does not include {{{rule.each.variable}}}: all elements would share one copy; use it "
            "in `bind`"
        )
        yield Mistake((*place, *rule.place("each")), message, at_key=True)


def _written(rules: Rules, rule: Projection, table: Table, place: Location) -> Iterator[Mistake]:
    """Yield attributes that rules cannot write, or not with this type."""
    types = table.attribute_types
    conditions = rules.entities[rule.into].conditions
    fixed = {root(name) for name in conditions.constants}
    recognised = {root(name) for name in conditions.names}
    for attribute, inner in rule.action.written.items():
        where = (*place, *inner)
        if "." in attribute:
            yield Mistake(where, _dotted(rule, attribute), at_key=True)
        elif attribute in table.key_names:
            yield Mistake(where, f"{attribute} is a key attribute of the table: rules cannot write it", at_key=True)
        elif attribute.startswith(rules.guard_prefix):
            message = (
                f"names that begin with {rules.guard_prefix} are reserved for guards: change the name or `guard_prefix`"
            )
            yield Mistake(where, message, at_key=True)
        elif attribute in fixed:
            yield Mistake(where, f"{attribute} is in `match` of {rule.into}: rules cannot write it", at_key=True)
        elif attribute in recognised and not isinstance(rule.action, Copy):
            node = f"{rule.into}.{attribute}"
            message = (
                f"circular dependency: {node} → {node}: `match` of {rule.into} reads what this rule writes, so the "
            )
            message += "rule would lose the item; let `match` read another attribute"
            yield Mistake(where, message, at_key=True)
        elif attribute in types:
            yield from _typed(rules, rule, attribute, types[attribute], where)


def _dotted(rule: Projection, attribute: str) -> str:
    """Return the message for an attribute to write whose name has a dot. In names to read, a dot leads into a map."""
    message = "rules write whole attributes, not parts of a map: name the attribute without a dot"
    parts = [part for part in attribute.split(".") if part]
    if not parts:
        return message
    whole = parts[0] + "".join(part[0].upper() + part[1:] for part in parts[1:])
    aggregate = isinstance(rule.action, Aggregate)
    instead = f"; for a map from values to numbers, write {parts[0]}: counts(…)" if aggregate else ""
    return f"{message}, such as {whole}{instead}"


def _extremes(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield measures that take one type and do not determine whether it is numbers or text."""
    action = rule.action
    if not isinstance(action, Aggregate) or any(rules.entities[one].table not in rules.tables for one in rule.sources):
        return
    for attribute, measure in action.set.items():
        if measure.function not in TYPED or extreme_type(rules, rule, measure) is not None:
            continue
        assert measure.expression is not None
        message = f"the type of {measure.expression.text.strip()} is unknown: write {declaration(measure)}"
        yield Mistake((*place, "aggregate", "set", attribute, measure.function), message)


def _typed(rules: Rules, rule: Projection, attribute: str, kind: str, where: Location) -> Iterator[Mistake]:
    """Yield results of the wrong type for the key of an index."""
    action = rule.action
    source = action.carried.get(attribute)
    if kind != "S" and isinstance(source, Template):
        yield Mistake(
            where, f"{attribute} is a key of type {kind}, and a template makes text: write a path or an expression"
        )
    elif isinstance(action, Top) or (isinstance(action, Embed) and action.as_ is not None):
        form = "map" if isinstance(action, Embed) and action.form == "map" else "list"
        yield Mistake(where, f"{attribute} is the key of an index and cannot hold a {form}")
    elif isinstance(action, Compute):
        yield Mistake(where, f"{attribute} is a key attribute of an index: set it with an `index` rule", at_key=True)
    elif isinstance(action, Aggregate):
        measure = action.set[attribute]
        if measure.function in PICKED:
            return
        if measure.function in ("counts", "values"):
            what = "map" if measure.function == "counts" else "set"
            yield Mistake(where, f"{attribute} is the key of an index and cannot hold a {what}")
        elif measure.function not in EXTREMES:
            if kind != "N":
                yield Mistake(
                    where,
                    f"{attribute} is a key of type {kind}, and {measure.function} is a number: declare the key with type N",
                )
        elif (type_ := extreme_type(rules, rule, measure)) not in (kind, None):
            what = "a number" if type_ == "N" else "text"
            found = f"{attribute} is a key of type {kind}, and this {measure.function} is {what}"
            yield Mistake(where, f"{found}: declare the key with type {type_}")
    elif isinstance(action, Copy) and attribute in action.values:
        value = action.values[attribute]
        if isinstance(value, Template):
            if kind != "S":
                yield Mistake(
                    where, f"{attribute} is a key of type {kind}, and a template makes text: copy it with `attributes`"
                )
        elif not (kind == "N" and value.is_number):
            yield Mistake(where, f"{attribute} is a key of type {kind}, and this constant has another type")


def _index(index: Index, table: Table, place: Location) -> Iterator[Mistake]:
    types = table.attribute_types
    indexed = sorted(types.keys() - set(table.key_names))
    for number, case in enumerate(index.cases):
        for attribute, template in case.set.items():
            where = (*place, "index", number, attribute)
            if attribute not in types:
                hint = suggest(attribute, indexed) or f": the keys of indexes are {', '.join(indexed) or 'none'}"
                yield Mistake(where, f"is not a key attribute of a declared index{hint}", at_key=True)
            elif types[attribute] != "S" and not _of_type(template, types[attribute]):
                yield Mistake(where, typed(attribute, types[attribute], computed=True))


def _of_type(template: Template, kind: str) -> bool:
    """Return whether a template can make a number or a binary value: only a path has the latter."""
    return template.alone if kind == "N" else template.single is not None


def _derived(rules: Rules) -> Iterator[Mistake]:
    """Yield derived entities that nothing creates."""
    making = [rule for rule in rules.projections.values() if rule.action.makes_key and rule.action.writes_items]
    created = {rule.into for rule in making}
    for name, entity in rules.entities.items():
        if entity.derived and name not in created:
            message = "no rule creates these items: add a copy or an aggregate into this entity, or remove `derived`"
            yield Mistake(("entities", name, "derived"), message, at_key=True)


TRANSACTION_ITEMS = 100


def question_mistakes(rules: Rules) -> Iterator[Mistake]:
    """Yield the mistakes of each query and write pattern, then numbers that two of them have."""
    for name, query in rules.queries.items():
        yield from _query(rules, query, ("queries", name))
    for name, write in rules.writes.items():
        if name in rules.queries:
            message = f"{name} is also a query: give them different names, because a client has one function for each"
            yield Mistake(("writes", name), message, at_key=True)
        yield from _write(rules, write, ("writes", name))
    numbered: dict[str, str] = {}
    for section, patterns in (("queries", rules.queries), ("writes", rules.writes)):
        for name, pattern in patterns.items():
            if pattern.id is not None and numbered.setdefault(pattern.id, name) != name:
                message = f"{pattern.id} is already the id of {numbered[pattern.id]}: give each access pattern its own"
                yield Mistake((section, name, "id"), message)


def _query(rules: Rules, query: Query, place: Location) -> Iterator[Mistake]:
    word = "get" if query.get is not None else "find"
    several = isinstance(query.find, list)
    unknown = [
        no_entity(name, rules.entities, (*place, word, position) if several else (*place, word))
        for position, name in enumerate(query.entities)
        if name not in rules.entities
    ]
    yield from unknown
    names = [by_field(text).name for text in query.by]
    for position, name in enumerate(names):
        if name in names[:position]:
            yield Mistake((*place, "by", position), f"{name} is listed twice")
        if name == query.range:
            yield Mistake((*place, "range"), f"{name} is also in `by`: a name has one value or a range")
    if query.get is not None and not query.by:
        yield Mistake(place, "a `get` needs `by`: the variables that identify the item", at_key=True)
    if unknown:
        return
    if query.get is not None and query.by and query.where is None:
        yield from _half_a_key(rules, query.get, names, place)
    tables = {rules.entities[name].table for name in query.entities}
    if len(tables) > 1:
        listed = ", ".join(f"{name} in {rules.entities[name].table}" for name in query.entities)
        yield Mistake((*place, word), f"entities of one query are in one table, these are not: {listed}")
    (table, *_) = tables
    indexes = rules.tables[table].indexes if table in rules.tables else {}
    if query.using is not None and query.using not in (TABLE, *indexes):
        hint = suggest(query.using, [TABLE, *indexes]) or f": use {', '.join([TABLE, *indexes])}"
        yield Mistake((*place, "using"), f'unknown index "{query.using}"{hint}')


def _half_a_key(rules: Rules, entity: str, names: list[str], place: Location) -> Iterator[Mistake]:
    """Yield a `get` that gives the partition key and not all of the sort key, which several items can have in common."""
    declared = rules.entities[entity]
    table = rules.tables.get(declared.table)
    partition = declared.key.get(table.key_names[0]) if table is not None else None
    variables = declared.variables
    lacking = [name for name in variables if name not in names]
    whole = not lacking or declared.id in names or not set(names) <= set(variables)
    if partition is not None and not whole and set(partition.names) <= set(names):
        given, more = " and ".join(names), " and ".join(lacking)
        message = f"several {entity} items can have the same {given}: add {more}, or write `find`"
        yield Mistake((*place, "by"), message)


def _write(rules: Rules, write: WritePattern, place: Location) -> Iterator[Mistake]:
    for position, step in enumerate(write.steps):
        yield from _step(rules, write, step, (*place, "items", position) if write.items else place)
    if write.transaction and len(write.steps) > TRANSACTION_ITEMS:
        message = f"a transaction has at most {TRANSACTION_ITEMS} items, this has {len(write.steps)}"
        yield Mistake((*place, "items"), message)


def _step(rules: Rules, write: WritePattern, step: WriteStep, place: Location) -> Iterator[Mistake]:
    if step.operation == "check" and not write.transaction:
        yield Mistake(
            (*place, "check"), "a check needs a transaction: add `transaction: true`, or remove it", at_key=True
        )
    if step.entity not in rules.entities:
        yield no_entity(step.entity, rules.entities, (*place, step.operation))
        return
    owner = next(
        (
            name
            for name, rule in rules.projections.items()
            if rule.into == step.entity and (isinstance(rule.action, Copy) or rules.entities[step.entity].derived)
        ),
        None,
    )
    if owner is not None and step.operation in ("put", "delete"):
        message = f"rule {owner} creates and deletes {step.entity}: the application must not {step.operation} it"
        yield Mistake((*place, step.operation), message)
    table = rules.tables.get(rules.entities[step.entity].table)
    for position, attribute in enumerate(step.set or ()):
        inner = (*place, "set", position)
        if table is not None and attribute in table.key_names:
            yield Mistake(inner, f"{attribute} is a key attribute of the table: an update cannot change it")
        for name, rule in rules.projections.items():
            if rule.into == step.entity and attribute in rule.action.written:
                yield Mistake(inner, f"rule {name} writes {step.entity}.{attribute}: the application must not set it")

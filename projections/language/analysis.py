"""Mistakes that concern rules, entities, tables and queries together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from itertools import combinations

from projections.language.access.paths import TABLE
from projections.language.facts import cycle_mistakes, ownership_mistakes
from projections.language.forms import IndexKeys, syntax
from projections.language.kinds import Result
from projections.language.kinds.index import typed
from projections.language.models import ACTIONS, Entity, Projection, Rules, Table
from projections.language.patterns import are_apart
from projections.language.questions import Query, WritePattern, WriteStep
from projections.language.syntax import Location, Mistake, an, no_entity, root, suggest
from projections.language.templates import KeyPattern, by_field, overlap

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
        key = shared_key(rules, table, first, second)
        if key and not are_apart(rules.entities[first].match, rules.entities[second].match):
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
    related = rules.with_projections(sound)
    found += [*ownership_mistakes(related), *cycle_mistakes(related)]
    if all(one.path[:1] and one.path[0] in _APART for one in (*before, *found)):  # another correction may correct these
        found += _derived(rules)
        for name, rule in rules.projections.items():
            found += rule.action.final_mistakes(rules, name)
    for name in rules.retired:
        if name in rules.projections:
            found.append(
                Mistake(("retired", name), "is still a rule: remove it here or under `projections`", at_key=True)
            )
    return [*found, *question_mistakes(rules)]


def _unknown(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    for source in rule.sources:
        if source not in rules.entities:
            yield no_entity(source, rules.entities, (*place, "from", source))._replace(at_key=True)
    if not rule.action.on_source and rule.into not in rules.entities:
        yield no_entity(rule.into, rules.entities, (*place, rule.kind, "into"))


def _constructs(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield constructs that a rule of this kind cannot have, or lacks."""
    action = rule.action
    if len(rule.sources) > 1 and not action.combines:
        target = ", each into an entity of its own" if action.makes_items else ""
        combining = [kind for kind, other in ACTIONS.items() if other.combines]
        message = (
            f"{an(rule.kind)} rule has one source: write a rule for each of {' and '.join(rule.sources)}{target}. "
            f"Only {', '.join(combining[:-1])} and {combining[-1]} rules combine several sources"
        )
        yield Mistake((*place, "from"), message)
        return
    if not action.makes_key:
        why, instead = action.without_key
        for name, part in (("each", rule.each), ("bind", rule.bind)):
            if part:
                message = f"{an(rule.kind)} rule cannot have `{name}`: {why}"
                yield Mistake((*place, *rule.place(name)), message, at_key=True)
        if rule.expired is not None:
            yield Mistake((*place, "expired"), f"{an(rule.kind)} rule cannot have `expired`: {instead}", at_key=True)
        return
    sources = {name: rules.entities[name].expires for name in rule.sources if name in rules.entities}
    expiring = [name for name, expires in sources.items() if expires]
    if expiring and rule.expired is None:
        choices = "`keep` or `retract`" if action.keeps_expired else "`retract`"
        yield Mistake(place, f"items of {' and '.join(expiring)} expire: set `expired` to {choices}", at_key=True)
    if not expiring and len(sources) == len(rule.sources) and rule.expired is not None:
        entity = "the entity" if len(sources) == 1 else "one of the entities"
        message = f"items of {' and '.join(sources)} do not expire: add `expires: true` to {entity}, or remove this"
        yield Mistake((*place, "expired"), message, at_key=True)
    if rule.expired == "keep" and not action.keeps_expired:
        yield Mistake((*place, "expired"), f"{rule.kind} rules accept only `expired: retract`")


def _target(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield mistakes in what a rule writes, and in the key of its target."""
    table = rules.tables.get(rules.entities[rule.into].table)
    if table is None:
        return
    yield from _written(rules, rule, table, place)
    if all(rules.entities[source].table in rules.tables for source in rule.sources):
        yield from (mistake._replace(path=(*place, *mistake.path)) for mistake in rule.action.mistakes(rules, rule))
    if not rule.action.makes_key:
        return
    variables = rules.entities[rule.into].variables
    for name, at in {name: variant.place("bind", name) for variant in rule.variants for name in variant.bind}.items():
        if name not in variables:
            hint = suggest(name, variables) or f": its variables are {', '.join(variables) or 'none'}"
            yield Mistake((*place, *at), f"the key of {rule.into} has no variable {{{name}}}{hint}", at_key=True)


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
        elif attribute in recognised and not rule.action.makes_items:
            node = f"{rule.into}.{attribute}"
            message = (
                f"circular dependency: {node} → {node}: `match` of {rule.into} reads what this rule writes, so the "
            )
            message += "rule would lose the item; let `match` read another attribute"
            yield Mistake(where, message, at_key=True)
        elif attribute in types:
            result = rule.action.results(rules, rule)[attribute]
            if result.type not in (types[attribute], None):
                yield Mistake(where, _mistyped(attribute, types[attribute], result), at_key=True)


def _mistyped(attribute: str, kind: str, result: Result) -> str:
    """Return why an attribute that is the key of an index cannot have a value of another type."""
    if result.type not in ("N", "S"):
        words = {
            "L": "list",
            "M": "map",
            "SS": "set",
            "NS": "set",
            "BOOL": "boolean",
            "NULL": "null",
            "B": "binary value",
        }
        return f"{attribute} is the key of an index and cannot hold a {words[result.type or '']}"
    number = "write a path or an expression, or " if result.type == "S" else ""
    message = f"{attribute} is a key of type {kind}, and this rule {result.how}"
    return f"{message}: {number}declare the key with type {result.type}"


def _dotted(rule: Projection, attribute: str) -> str:
    """Return the message for an attribute to write whose name has a dot. In names to read, a dot leads into a map."""
    message = "rules write whole attributes, not parts of a map: name the attribute without a dot"
    parts = [part for part in attribute.split(".") if part]
    if not parts:
        return message
    whole = parts[0] + "".join(part[0].upper() + part[1:] for part in parts[1:])
    instead = rule.action.instead_of_parts.format(parts[0])
    return f"{message}, such as {whole}{instead}"


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
            if rule.into == step.entity and (rule.action.makes_items or rules.entities[step.entity].derived)
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

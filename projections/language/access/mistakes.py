"""Mistakes in queries and write patterns."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.access.paths import TABLE
from projections.language.document import Rules, key_variables
from projections.language.entities import key_names
from projections.language.mistakes import Location, Mistake, no_entity
from projections.language.ownership import written
from projections.language.questions import Query, WritePattern, WriteStep
from projections.language.shapes import by_field
from projections.language.syntax import suggest
from projections.language.templates import Template

__all__ = ["question_mistakes"]

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
    tables = {rules.table_of(name) for name in query.entities}
    if len(tables) > 1:
        listed = ", ".join(f"{name} in {rules.table_of(name)}" for name in query.entities)
        yield Mistake((*place, word), f"entities of one query are in one table, these are not: {listed}")
    (table, *_) = tables
    indexes = rules.all_tables[table].indexes if table in rules.all_tables else {}
    if query.using is not None and query.using not in (TABLE, *indexes):
        hint = suggest(query.using, [TABLE, *indexes]) or f": use {', '.join([TABLE, *indexes])}"
        yield Mistake((*place, "using"), f'unknown index "{query.using}"{hint}')


def _half_a_key(rules: Rules, entity: str, names: list[str], place: Location) -> Iterator[Mistake]:
    """Yield a `get` that gives the partition key and not all of the sort key, which several items can have in common."""
    declared = rules.entities[entity]
    table = rules.all_tables.get(rules.table_of(entity) or "")
    partition = declared.key.get(key_names(table)[0], "") if table is not None else ""
    variables = key_variables(declared)
    lacking = [name for name in variables if name not in names]
    whole = not lacking or declared.id in names or not set(names) <= set(variables)
    if partition and not whole and set(Template.parse(partition).names) <= set(names):
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
            if rule.into == step.entity and (rule.kind == "copy" or rules.entities[step.entity].derived)
        ),
        None,
    )
    if owner is not None and step.operation in ("put", "delete"):
        message = f"rule {owner} creates and deletes {step.entity}: the application must not {step.operation} it"
        yield Mistake((*place, step.operation), message)
    table = rules.all_tables.get(rules.table_of(step.entity) or "")
    for position, attribute in enumerate(step.set or ()):
        inner = (*place, "set", position)
        if table is not None and attribute in key_names(table):
            yield Mistake(inner, f"{attribute} is a key attribute of the table: an update cannot change it")
        for name, rule in rules.projections.items():
            if rule.into == step.entity and attribute in written(rule):
                yield Mistake(inner, f"rule {name} writes {step.entity}.{attribute}: the application must not set it")

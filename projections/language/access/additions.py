"""Additions to a rule file that may answer a query, the smallest first.

They are only candidates: `proposals` offers those of which the planner proves that they answer the query exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from itertools import count
from typing import Any

from projections.language.access.attempt import known_of
from projections.language.access.paths import TABLE, Path, access_paths, key_variables, made_by_templates
from projections.language.access.plan import Plan, Query, query_form
from projections.language.attribute_types import is_number, types_of
from projections.language.facts import creators
from projections.language.forms import IndexKeys, cases_document, index_form
from projections.language.models import SINGLE, Index, Rules, Table
from projections.language.patterns import Pattern
from projections.language.patterns.implication import compares_as_number, implies, known_present
from projections.language.pipes import Pipe, date_arguments
from projections.language.syntax import LanguageError, root
from projections.language.templates import Field, Template

BUCKETS = 4
DIGITS = 10
MONTH = "date(%Y-%m)"
MOST_GLOBAL = 20

_TIME = re.compile(r"(?i)(?:.*(?:_at|date|time|timestamp)|at)$|.*At$")
_KEY_NAME = re.compile(r"(?i)(?:gsi|lsi|index|idx)?\d*_?(?:pk|sk|partition|sort|hash|range)\d*")


@dataclass(frozen=True, slots=True)
class Addition:
    """Data to merge into a rule file, with one sentence in the imperative. `query` is the query, which they may change."""

    sentence: str
    data: Mapping[str, Any]
    query: Query
    index: str | None = None
    """The index with free keys that it uses."""


def additions(rules: Rules, query: Query, plan: Plan) -> Iterator[Addition]:
    """Yield what may answer a query, the smallest first."""
    if plan.verdict != "filtered":
        yield from _conditions(rules, query)
        yield from _period(rules, query)
        yield from _declarations(rules, query)
    if query.using is not None:
        freed, words = replace(query, using=None), f"remove `using: {query.using}`"
        yield Addition(words, _query_data(freed), freed)
    yield from _wider_projections(rules, query)
    yield from _sort_keys(rules, query)
    shapes = list(_shapes(rules, query))
    for shape in shapes:
        yield from _on_existing(rules, query, shape)
    for shape in shapes:
        yield from _on_new(rules, query, shape)
    yield from _copies(rules, query)
    if query.consistent:
        words = "remove `consistent`, which neither global indexes nor derived values support"
        yield from _without(rules, replace(query, consistent=False), plan, words)
    elif query.using is not None:
        yield from _without(rules, freed, plan, words)


# --- changes of the query ---


def _query_data(query: Query) -> Mapping[str, Any]:
    return {"queries": {query.name: query_form(query)}}


def _without(rules: Rules, query: Query, plan: Plan, words: str) -> Iterator[Addition]:
    """Yield a query that demands less, alone and with what it needs."""
    yield Addition(words, _query_data(query), query)
    for addition in additions(rules, query, plan):
        yield replace(
            addition,
            sentence=f"{words}, and {addition.sentence}",
            data={**addition.data, **_query_data(addition.query)},
        )


def _conditions(rules: Rules, query: Query) -> Iterator[Addition]:
    """Yield the conditions with which an index holds every item of the answer."""
    for path in _paths(rules, query):
        if path.index is None or path.uncertain is not None:
            continue
        known = known_of(rules, query, path.entity)
        lacking: dict[str, Any] = {}
        for pattern in path.conditions:
            if not implies(known, pattern):
                lacking |= pattern.canonical
        tested = {root(name) for name in lacking}
        for name in path.suffices:
            if not known_present(known, name) and name not in tested:
                lacking[name] = [{"exists": True}]
        where = {**query.where.canonical, **lacking}
        if not lacking or not lacking.keys().isdisjoint(query.where.canonical):
            continue
        try:
            pattern = Pattern.parse(where)
        except LanguageError:
            continue
        narrowed = replace(query, where=pattern)
        words = f"if only the items in {path.index} are meant, add the condition to `where`"
        if names := [name for name in lacking if lacking[name] == [{"exists": True}]]:
            words += (
                f" (if all {path.entity} items have {' and '.join(names)}, add `required: [{', '.join(names)}]` to "
                f"{path.entity} instead of testing {' and '.join(names)})"
            )
        yield Addition(words, _query_data(narrowed), narrowed)


def _period(rules: Rules, query: Query) -> Iterator[Addition]:
    """Yield the range over a time whose periods are partitions."""
    if query.range is not None or query.get:
        return
    for path in _paths(rules, query):
        for part in path.partition:
            for field in part.template.fields:
                dated = field.expression is None and any(pipe.name == "date" for pipe in field.pipes)
                if dated and query.ordered_by in (None, field.name):
                    bounded = replace(query, range=field.name)
                    words = f"add `range: {field.name}`, because {path.name} has a partition for each period of {field.name}"
                    yield Addition(words, _query_data(bounded), bounded)


# --- additions to indexes that exist ---


def _declarations(rules: Rules, query: Query) -> Iterator[Addition]:
    """Yield the declaration that the application writes key attributes of an index."""
    for path in _paths(rules, query):
        variables = key_variables(rules, path.entity)
        if path.undeclared and variables.issuperset(path.undeclared):
            keys = {name: "{" + name + "}" for name in path.undeclared}
            names = " and ".join(path.undeclared)
            noun = "an attribute" if len(path.undeclared) == 1 else "attributes"
            yield Addition(
                f"let the application write {names} as {noun} of each {path.entity}, too, and declare "
                f"{'it' if noun == 'an attribute' else 'them'} with `index_key`, so that {path.index} holds these items",
                {"entities": {path.entity: {"index_key": keys}}},
                query,
            )


def _wider_projections(rules: Rules, query: Query) -> Iterator[Addition]:
    """Yield a wider projection of an index."""
    name = rules.entities[query.entities[0]].table
    table = rules.tables[name]
    for index in dict.fromkeys(path.index for path in _paths(rules, query)):
        if index is None or table.indexes[index].projection == "all":
            continue
        keys = table.indexes[index]
        listed = () if isinstance(keys.projection, str) else keys.projection
        wider = replace(keys, projection=_projection(rules, query, keys, listed))
        words = (
            f"project all attributes into {index}"
            if wider.projection == "all"
            else f"project {', '.join(name for name in wider.projection if name not in listed)} into {index}"
        )
        yield Addition(
            f"{words} (use another name if {index} exists already: DynamoDB cannot change a projection)",
            _table(rules, name, {index: index_form(wider)}),
            query,
        )


def _sort_keys(rules: Rules, query: Query) -> Iterator[Addition]:
    """Yield a sort key, of an index rule that has the right partitions, that begins with what the query sorts by."""
    named = _sorted_by(query)
    if named is None or len(query.entities) > 1:
        return
    for path in _paths(rules, query):
        if path.rule is None or len(path.sort) != 1 or path.sort[0].kind != "S":
            continue
        rule = rules.projections[path.rule]
        assert isinstance(rule.action, Index)
        attribute = path.sort[0].attribute
        old = rule.action.cases[path.case].set.get(attribute)
        separator = rules.tables[rules.entities[path.entity].table].separator
        fields = old.fields if old is not None else ()
        rest = [str(field) for field in fields if field.name != named]
        text = separator.join([_sort_text(rules, query, path.entity, named), *rest])
        cases = cases_document(rule.action.cases)
        cases[path.case][attribute] = text
        form: Any = cases if len(cases) > 1 or "where" in cases[0] else cases[0]
        yield Addition(
            f"begin the sort key of {path.index} with {named}", {"projections": {path.rule: {"index": form}}}, query
        )


# --- new keys ---


@dataclass(frozen=True)
class _Shape:
    """Keys that answer a query: the template of the partition and of the sort key for each entity.

    `plain` has the attribute that the items are sorted by, if a sort key of type N can have it.
    """

    partition: str
    sort: Mapping[str, str] = dataclass_field(default_factory=dict)
    plain: str | None = None
    words: str = ""


def _sorted_by(query: Query) -> str | None:
    """Return the name that the sort key must begin with."""
    parameters = {field.name for field in query.by}
    return query.ordered_by if query.ordered_by not in (None, *parameters) else query.range


def _shapes(rules: Rules, query: Query) -> Iterator[_Shape]:
    named = _sorted_by(query)
    if query.range not in (None, named):
        return  # no key has one attribute as its range and another as its order
    first = query.entities[0]
    separator = rules.tables[rules.entities[first].table].separator
    together = len(query.entities) > 1
    entities = "_".join(query.entities).upper()
    for prefix in (entities, f"{entities}_{query.name}".upper()):  # with the query if the first is in use
        parameters = [str(Field(field.name, field.pipes)) for field in query.by]
        if parameters:
            yield _shape(rules, query, separator.join([prefix, *parameters]), "")
        elif not together:
            named = query.range
            if named and looks_like_time(named) and not _number_known(rules, query, first, named):
                text = separator.join([prefix, _month(rules, first, named)])
                yield _shape(rules, query, text, "one partition for each month, with one request for each")
            spread = rules.entities[first].id or next(reversed(rules.entities[first].variables), None)
            if spread is not None:
                text = separator.join([prefix, f"{{{spread}|bucket({BUCKETS})}}"])
                yield _shape(
                    rules, query, text, f"{BUCKETS} buckets, which are read and merged, so that no partition is hot"
                )


def _month(rules: Rules, entity: str, name: str) -> str:
    """Return the template of a month, which reads the time as other templates of the rules do."""
    pipes = _date_pipes(rules, entity, name)
    if not pipes:
        return f"{{{name}|{MONTH}}}"
    declared = date_arguments(pipes[-1])[2]
    month = f"date(%Y-%m, from={declared})" if declared else MONTH
    return "{" + "|".join([name, *map(str, pipes[:-1]), month]) + "}"


def _date_pipes(rules: Rules, entity: str, name: str) -> tuple[Pipe, ...]:
    """Return the pipes, the last of which is `date`, with which a rule reads an attribute; none if no rule does."""
    for rule in rules.projections.values():
        cases = rule.action.cases if isinstance(rule.action, Index) else ()
        for template in (*rule.bind.values(), *(template for case in cases for template in case.set.values())):
            for field in template.fields if entity in rule.sources else ():
                if field.name == name and field.pipes and field.pipes[-1].name == "date":
                    return field.pipes
    return ()


def looks_like_time(name: str) -> bool:
    """Return whether an attribute is a time, as far as its name shows."""
    return _TIME.fullmatch(name) is not None


def _shape(rules: Rules, query: Query, partition: str, words: str) -> _Shape:
    named = _sorted_by(query)
    sort = {}
    for entity in query.entities:
        if named is not None:
            sort[entity] = _sort_text(rules, query, entity, named)
        else:
            separator = rules.tables[rules.entities[entity].table].separator
            names = [text for text in rules.entities[entity].variables if text not in query.parameters]
            sort[entity] = separator.join([entity.upper(), *("{" + name + "}" for name in names)])
    if named is not None and _unknown_type(rules, query, named):
        note = _as_text(named)
        words = f"{words}; {note}" if words else note
    return _Shape(partition, sort, named, words)


def _as_text(name: str) -> str:
    return f"{name} sorts as text; if it is a number, write {{{name}|pad({DIGITS})}}"


def _unknown_type(rules: Rules, query: Query, name: str) -> bool:
    """Return whether an attribute may be a number, as far as its name and the rules show."""
    (entity, *_) = query.entities
    return not (
        _number_known(rules, query, entity, name) or looks_like_time(name) or name in key_variables(rules, entity)
    )


def _sort_text(rules: Rules, query: Query, entity: str, name: str) -> str:
    return f"{{{name}|pad({DIGITS})}}" if _number_known(rules, query, entity, name) else "{" + name + "}"


def _number_known(rules: Rules, query: Query, entity: str, name: str) -> bool:
    """Return whether an attribute is a number, as far as rules show."""
    return (
        is_number(rules, entity, name)
        or compares_as_number(query.where, name)
        or types_of(rules).used_as_number(entity, name) is not None
    )


def _on_existing(rules: Rules, query: Query, shape: _Shape) -> Iterator[Addition]:
    """Yield index rules for global indexes of which the entities do not have the keys yet."""
    name = rules.entities[query.entities[0]].table
    table = rules.tables[name]
    for index, keys in table.indexes.items():
        used = [path for path in _paths(rules, query) if path.index == index]
        used = [path for path in used if path.rule or not keys.names.isdisjoint(rules.entities[path.entity].index_key)]
        made = made_by_templates(rules, name)
        native = any(key in table.key_names or (key not in made and not _KEY_NAME.fullmatch(key)) for key in keys.names)
        if keys.local or native or used or len(keys.partition) != 1 or len(keys.sort) > 1:
            continue
        written = _index_rules(rules, query, shape, keys)
        if written is not None:
            words = f"put {' and '.join(query.entities)} items into {index}, whose keys they do not use yet"
            yield Addition(_with(words, shape, written), written, query, index=index)


def _on_new(rules: Rules, query: Query, shape: _Shape) -> Iterator[Addition]:
    """Yield a new global index with its index rules."""
    name = rules.entities[query.entities[0]].table
    table = rules.tables[name]
    if sum(not keys.local for keys in table.indexes.values()) >= MOST_GLOBAL:
        return
    index, partition, sort = _free(rules, table)
    sorted_by = shape.plain is not None or len(query.entities) > 1
    entity, named = query.entities[0], shape.plain
    kinds = ["S", "N"] if named is not None and _number_known(rules, query, entity, named) else ["S"]
    if named is not None and not types_of(rules).is_whole(entity, named):
        kinds = ["N"]  # `pad` would reject some values
    for kind in kinds if sorted_by else [""]:
        keys = IndexKeys(((partition, "S"),), ((sort, kind),) if kind else ())
        keys = replace(keys, projection=_projection(rules, query, keys, ()))
        written = _index_rules(rules, query, shape, keys)
        if written is not None:
            words = f"add the index {index} with {' and '.join(query.entities)} items"
            data = {**_table(rules, name, {index: index_form(keys)}), **written}
            yield Addition(_with(words, shape, written), data, query)


def _with(words: str, shape: _Shape, written: Mapping[str, Any]) -> str:
    if "entities" in written:
        words += "; the application writes these keys, because they never change"
    return f"{words}: {shape.words}" if shape.words else words


def _index_rules(rules: Rules, query: Query, shape: _Shape, keys: IndexKeys) -> dict[str, Any] | None:
    """Return an index rule for each entity of a query, or a declaration if the application can write the keys.

    None if the key attributes have other types.
    """
    ((partition, kind),) = keys.partition
    if kind != "S":
        return None
    added: dict[str, Any] = {}
    declared: dict[str, Any] = {}
    for entity in query.entities:
        texts = {partition: shape.partition}
        for attribute, sort_kind in keys.sort:
            text = shape.sort[entity]
            if sort_kind == "S" and shape.plain is not None and not types_of(rules).is_whole(entity, shape.plain):
                return None
            if sort_kind == "N" and shape.plain is not None and _number_known(rules, query, entity, shape.plain):
                text = "{" + shape.plain + "}"
            elif sort_kind != "S":
                return None
            texts[attribute] = text
        if not query.where.conditions and _constant(rules, entity, texts):
            declared[entity] = {"index_key": texts}
            continue
        stem = query.name if len(query.entities) == 1 else f"{query.name}{entity}"
        form = {**_reading(rules, query, entity), "index": texts}
        added[_free_name(f"{stem}Index", {*rules.projections, *added})] = form
    return {**({"entities": declared} if declared else {}), **({"projections": added} if added else {})}


def _reading(rules: Rules, query: Query, entity: str) -> dict[str, Any]:
    """Return the parts of a rule that reads the items that a query asks for."""
    where = {"where": query.where.canonical} if query.where.conditions else {}
    return {"from": entity, **where, **({"expired": "retract"} if rules.entities[entity].expires else {})}


def _constant(rules: Rules, entity: str, texts: Mapping[str, str]) -> bool:
    """Return whether the application can write index keys with each new item, and they never change."""
    templates = [Template.parse(text) for text in texts.values()]
    variables = key_variables(rules, entity)
    return (
        entity not in creators(rules)
        and not any(field.pipes for template in templates for field in template.fields)
        and all(name in variables for template in templates for name in template.names)
    )


def _projection(rules: Rules, query: Query, keys: IndexKeys, listed: tuple[str, ...]) -> str | tuple[str, ...]:
    """Return the least projection with which an index returns what a query needs, beside `listed`."""
    if query.attributes is None:
        return "all"
    entities = [rules.entities[name] for name in query.entities]
    names = [*query.attributes, *query.where.names, *(field.name for field in query.by)]
    for entity in entities:
        names += entity.conditions.names
    own = {*keys.names, *(name for entity in entities for name in entity.key)}
    own |= frozenset.intersection(*(key_variables(rules, name) for name in query.entities))
    wanted = dict.fromkeys([*listed, *(root(name) for name in names)])
    needed = tuple(name for name in wanted if name not in own or name in listed)
    return needed or "keys_only"


def _free(rules: Rules, table: Table) -> tuple[str, str, str]:
    """Return the name of a new index and of its key attributes, in the style of the table."""
    lower = table.partition[0].islower()
    used = {
        name.upper() for name in (*table.indexes, *(name for keys in table.indexes.values() for name in keys.names))
    }
    used |= {name.upper() for rule in rules.projections.values() for name in rule.action.written}
    for number in count(1):
        names = f"GSI{number}", f"GSI{number}PK", f"GSI{number}SK"
        if used.isdisjoint(names):
            first, second, third = (name.lower() for name in names) if lower else names
            return first, second, third
    raise AssertionError("unreachable")


# --- a copy ---


def _copies(rules: Rules, query: Query) -> Iterator[Addition]:
    """Yield a copy under a key with the values that the caller gives."""
    (entity, *more) = query.entities
    declared = rules.entities[entity]
    table = rules.tables[declared.table]
    if more or not query.by or table.sort is None or {table.partition[1], table.sort[1]} != {"S"}:
        return
    if any(field.pipes for field in query.by) or query.range not in (None, _sorted_by(query)):
        return
    parameters = [field.name for field in query.by]
    into = _free_name(f"{entity}By{''.join(name[0].upper() + name[1:] for name in parameters)}", rules.entities)
    named = [name] if (name := _sorted_by(query)) else []
    if name is not None and not types_of(rules).is_whole(entity, name):
        return
    number = name is not None and _number_known(rules, query, entity, name)
    rest = [name for name in dict.fromkeys([*named, *rules.entities[entity].variables]) if name not in parameters]
    key = {
        table.partition[0]: table.separator.join([into.upper(), *("{" + name + "}" for name in parameters)]),
        table.sort[0]: table.separator.join("{" + name + "}" for name in rest) or into.upper(),
    }
    attributes = (
        "all" if query.attributes is None else [*dict.fromkeys([*query.attributes, *(named if number else [])])]
    )
    bind = {"bind": {name: f"{{{name}|pad({DIGITS})}}"}} if number else {}
    words = f"; {_as_text(name)}" if name is not None and _unknown_type(rules, query, name) else ""
    rule = {**_reading(rules, query, entity), **bind, "copy": {"into": into, "attributes": attributes}}
    place = {} if list(rules.tables) == [SINGLE] else {"table": declared.table}
    yield Addition(
        f"keep a copy of each {entity} under a key that is made of the values in `by`{words}",
        {
            "entities": {into: {**place, "key": key}},
            "projections": {_free_name(f"{query.name}Copy", rules.projections): rule},
        },
        query,
    )


# --- names and places ---


def _paths(rules: Rules, query: Query) -> Iterator[Path]:
    for entity in query.entities:
        for path in access_paths(rules, entity):
            if query.using in (None, path.name) and path.name != TABLE:
                yield path


def _table(rules: Rules, name: str, indexes: Mapping[str, Any]) -> dict[str, Any]:
    form = {"indexes": dict(indexes)}
    return {"table": form} if list(rules.tables) == [SINGLE] else {"tables": {name: form}}


def _free_name(name: str, names: Any) -> str:
    return name if name not in names else next(free for n in count(2) if (free := f"{name}{n}") not in names)

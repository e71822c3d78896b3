"""Mistakes that concern rules, entities, tables and queries together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from projections.language.access.paths import TABLE
from projections.language.document import Rules, declaration, each_variable, extreme_type, key_variables
from projections.language.embeds import children_of, parent_patterns
from projections.language.entities import attribute_types, entity_mistakes, key_names, table_mistakes, typed
from projections.language.measures import EXTREMES, PICKED, TYPED, Measure
from projections.language.mistakes import Location, Mistake, no_entity
from projections.language.models import Projection, Table
from projections.language.ownership import cycle_mistakes, ownership_mistakes, written
from projections.language.patterns import Pattern
from projections.language.questions import Query, WritePattern, WriteStep
from projections.language.shapes import by_field, cases
from projections.language.syntax import LanguageError, root, suggest
from projections.language.templates import Template

_SEVERAL = ("aggregate", "top", "latest", "rank")
"""The kinds of rules that can have several sources."""


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
    related = rules.model_copy(update={"projections": sound})
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
        if rule.expired == "keep" and rule.copy_
    ]


def _unusable_embeds(rules: Rules) -> Iterator[Mistake]:
    if not any(rule.kind == "embed" for rule in rules.projections.values()):
        return
    document = rules.canonical()
    for name, rule in rules.projections.items():
        if rule.kind == "embed":
            for question in (parent_patterns, children_of):
                try:
                    question(document, name)
                except LanguageError as error:
                    yield Mistake(("projections", name, "embed", "match"), error.message, at_key=True)


def _unknown(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    for position, source in enumerate(rule.sources):
        if source not in rules.entities:
            inner = () if isinstance(rule.from_, str) else (source,) if isinstance(rule.from_, dict) else (position,)
            mistake = no_entity(source, rules.entities, (*place, "from", *inner))
            yield replace(mistake, at_key=isinstance(rule.from_, dict))
    if rule.action is not None and rule.into not in rules.entities:
        yield no_entity(rule.into, rules.entities, (*place, rule.kind, "into"))


def _constructs(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield constructs that a rule of this kind cannot have, or lacks."""
    if rule.rank is not None and rule.mode == "shadow":
        message = "a rank rule cannot be in shadow mode: it writes nothing to the tables in any mode; remove this"
        yield Mistake((*place, "mode"), message, at_key=True)
    if len(rule.sources) > 1 and rule.kind not in _SEVERAL:
        article = "an" if rule.kind[0] in "aei" else "a"
        target = ", each into an entity of its own" if rule.kind == "copy" else ""
        message = (
            f"{article} {rule.kind} rule has one source: write a rule for each of {' and '.join(rule.sources)}{target}. "
            f"Only {', '.join(_SEVERAL[:-1])} and {_SEVERAL[-1]} rules combine several sources"
        )
        yield Mistake((*place, "from"), message)
        return
    itself = "its target is the source item itself"
    instead = {"index": itself, "compute": itself, "embed": "its `match` selects the children"}
    if rule.kind in instead:
        a_kind = f"{'a' if rule.kind == 'compute' else 'an'} {rule.kind}"
        for name, given in (("each", rule.each), ("bind", rule.bind)):
            if given:
                yield Mistake((*place, name), f"{a_kind} rule cannot have `{name}`: {instead[rule.kind]}", at_key=True)
        if rule.expired is not None:
            instead_of = "use `on_delete`" if rule.kind == "embed" else "the item itself is deleted"
            yield Mistake((*place, "expired"), f"{a_kind} rule cannot have `expired`: {instead_of}", at_key=True)
        return
    sources = {name: rules.entities[name].expires for name in rule.sources if name in rules.entities}
    expiring = [name for name, expires in sources.items() if expires]
    if expiring and rule.expired is None:
        choices = "`retract`" if rule.kind in ("top", "latest") else "`keep` or `retract`"
        yield Mistake(place, f"items of {' and '.join(expiring)} expire: set `expired` to {choices}", at_key=True)
    if not expiring and len(sources) == len(rule.sources) and rule.expired is not None:
        entity = "the entity" if len(sources) == 1 else "one of the entities"
        message = f"items of {' and '.join(sources)} do not expire: add `expires: true` to {entity}, or remove this"
        yield Mistake((*place, "expired"), message, at_key=True)
    if rule.expired == "keep" and rule.kind in ("top", "latest"):
        yield Mistake((*place, "expired"), f"{rule.kind} rules accept only `expired: retract`")
    if rule.expired == "keep" and rule.aggregate is not None:
        for attribute, form in rule.aggregate.set.items():
            function = Measure.parse(attribute, form).function
            if function in PICKED:
                message = f"{function} cannot keep values of expired items: move it to a rule with `expired: retract`"
                yield Mistake((*place, "aggregate", "set", attribute), message)


def _target(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield mistakes in what a rule writes, and in the key of its target."""
    table = rules.all_tables.get(rules.table_of(rule.into) or "")
    if table is None:
        return
    yield from _written(rules, rule, table, place)
    if rule.index is not None:
        yield from _index(rule, table, place)
        return
    if rule.embed is not None:
        yield from _listed(rules, rule, place)
        return
    if rule.kind == "compute":
        return
    variables = key_variables(rules.entities[rule.into])
    for name, at in {name: variant.place("bind") for variant in rule.variants for name in variant.bind}.items():
        if name not in variables:
            hint = suggest(name, variables) or f": its variables are {', '.join(variables) or 'none'}"
            yield Mistake((*place, *at, name), f"the key of {rule.into} has no variable {{{name}}}{hint}", at_key=True)
    if rule.copy_ is not None:
        yield from _copy(rule, variables, place)


def _listed(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield references of an embed with `as` that cannot be a list or set, and a list in place of its references."""
    assert rule.embed is not None
    if rule.embed.as_ is None:
        return
    name = rule.embed.references_name
    where = (*place, "embed", "match", name)
    table = rules.all_tables[rules.table_of(rule.into) or ""]
    if name in key_variables(rules.entities[rule.into]):
        message = f"{{{name}}} is in the key of {rule.into}, so it cannot be a list or set of references"
        yield Mistake(where, f"{message}: name an attribute, or remove `as`", at_key=True)
    elif name in attribute_types(table):
        message = f"{name} is the key of an index, so it cannot be a list or set of references"
        yield Mistake(where, f"{message}: name another attribute, or remove `as`", at_key=True)
    if rule.embed.as_ in {root(one) for one in rule.embed.match}:
        message = f"the rule cannot write {rule.embed.as_}, because `match` reads it: write another name"
        yield Mistake((*place, "embed", "as"), message)


def _copy(rule: Projection, variables: tuple[str, ...], place: Location) -> Iterator[Mistake]:
    assert rule.copy_ is not None
    if rule.into == rule.source:
        yield Mistake((*place, "copy", "into"), "the source and the target of a copy must be different entities")
    if not rule.copy_.model_fields_set & {"attributes", "values"}:
        yield Mistake((*place, "copy"), "copies nothing: add `attributes` or `values`", at_key=True)
    if isinstance(rule.copy_.attributes, list | dict):
        for name in rule.copy_.values:
            if name in rule.copy_.attributes:
                yield Mistake((*place, "copy", "values", name), "is also listed in `attributes`", at_key=True)
    each = each_variable(rule)
    used = {root(inner) for name in variables for inner in _bound(rule, name)}
    if each is not None and each not in used:
        message = (
            f"the key of {rule.into} does not include {{{each}}}: all elements would share one copy; use it in `bind`"
        )
        yield Mistake((*place, "each"), message, at_key=True)


def _bound(rule: Projection, variable: str) -> tuple[str, ...]:
    return tuple(Template.parse(rule.bind[variable]).names) if variable in rule.bind else (variable,)


def _written(rules: Rules, rule: Projection, table: Table, place: Location) -> Iterator[Mistake]:
    """Yield attributes that rules cannot write, or not with this type."""
    types = attribute_types(table)
    constants = Pattern.parse(rules.entities[rule.into].match or {}).constants
    fixed = {root(name) for name in constants}
    recognised = {root(name) for name in Pattern.parse(rules.entities[rule.into].match or {}).names}
    for attribute, inner in written(rule).items():
        where = (*place, *inner)
        if "." in attribute:
            yield Mistake(where, _dotted(rule, attribute), at_key=True)
        elif attribute in key_names(table):
            yield Mistake(where, f"{attribute} is a key attribute of the table: rules cannot write it", at_key=True)
        elif attribute.startswith(rules.guard_prefix):
            message = (
                f"names that begin with {rules.guard_prefix} are reserved for guards: change the name or `guard_prefix`"
            )
            yield Mistake(where, message, at_key=True)
        elif attribute in fixed:
            yield Mistake(where, f"{attribute} is in `match` of {rule.into}: rules cannot write it", at_key=True)
        elif attribute in recognised and rule.copy_ is None:
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
    instead = f"; for a map from values to numbers, write {parts[0]}: counts(…)" if rule.aggregate else ""
    return f"{message}, such as {whole}{instead}"


def _extremes(rules: Rules, rule: Projection, place: Location) -> Iterator[Mistake]:
    """Yield measures that take one type and do not determine whether it is numbers or text."""
    if rule.aggregate is None or any(rules.table_of(name) not in rules.all_tables for name in rule.sources):
        return
    for attribute, form in rule.aggregate.set.items():
        measure = Measure.parse(attribute, form)
        if measure.function not in TYPED or extreme_type(rules, rule, measure) is not None:
            continue
        assert measure.expression is not None
        inner = () if isinstance(form, str) else (measure.function,)
        message = f"the type of {measure.expression.text.strip()} is unknown: write {declaration(measure)}"
        yield Mistake((*place, "aggregate", "set", attribute, *inner), message)


def _typed(rules: Rules, rule: Projection, attribute: str, kind: str, where: Location) -> Iterator[Mistake]:
    """Yield results of the wrong type for the key of an index."""
    if kind != "S" and attribute in _made_of_templates(rule):
        yield Mistake(
            where, f"{attribute} is a key of type {kind}, and a template makes text: write a path or an expression"
        )
    elif rule.top is not None or (rule.embed is not None and rule.embed.as_ is not None):
        form = "map" if rule.embed is not None and rule.embed.form == "map" else "list"
        yield Mistake(where, f"{attribute} is the key of an index and cannot hold a {form}")
    elif rule.compute is not None:
        yield Mistake(where, f"{attribute} is a key attribute of an index: set it with an `index` rule", at_key=True)
    elif rule.aggregate is not None:
        measure = Measure.parse(attribute, rule.aggregate.set[attribute])
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
    elif rule.copy_ is not None and attribute in rule.copy_.values:
        value: Any = rule.copy_.values[attribute]
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(value, str) and kind != "S":
            yield Mistake(
                where, f"{attribute} is a key of type {kind}, and a template makes text: copy it with `attributes`"
            )
        elif not isinstance(value, str) and not (kind == "N" and number):
            yield Mistake(where, f"{attribute} is a key of type {kind}, and this constant has another type")


def _made_of_templates(rule: Projection) -> set[str]:
    """Return the attributes of which `attributes` gives a template."""
    action = rule.copy_ or rule.latest or rule.embed
    form = action.attributes if action is not None else {}
    return {name for name, text in form.items() if "{" in text} if isinstance(form, dict) else set()


def _index(rule: Projection, table: Table, place: Location) -> Iterator[Mistake]:
    types = attribute_types(table)
    indexed = sorted(types.keys() - set(key_names(table)))
    for inner, _, templates in cases(rule.index):
        for attribute, text in templates.items():
            where = (*place, "index", *inner, attribute)
            if attribute not in types:
                hint = suggest(attribute, indexed) or f": the keys of indexes are {', '.join(indexed) or 'none'}"
                yield Mistake(where, f"is not a key attribute of a declared index{hint}", at_key=True)
            elif types[attribute] != "S" and not _of_type(Template.parse(text), types[attribute]):
                yield Mistake(where, typed(attribute, types[attribute], computed=True))


def _of_type(template: Template, kind: str) -> bool:
    """Return whether a template can make a number or a binary value: only a path has the latter."""
    return template.alone if kind == "N" else template.single is not None


def _derived(rules: Rules) -> Iterator[Mistake]:
    """Yield derived entities that nothing creates."""
    created = {rule.into for rule in rules.projections.values() if rule.kind in ("copy", "aggregate", "top", "latest")}
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

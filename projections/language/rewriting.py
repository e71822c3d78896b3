"""Make the data of a rule file from the canonical document: the inverse of `document.typed`.

A tool that changes rules adds to these data, and loads the result as any rule file. So a change is checked as if a person
had written it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from projections.language.access.plan import Query
from projections.language.canonical import (
    About,
    Aggregate,
    Attributes,
    Compute,
    Computed,
    Constant,
    Copy,
    Document,
    Embed,
    Entity,
    Index,
    IndexKeys,
    Latest,
    Rank,
    Rule,
    Table,
    Top,
    duration_of,
)
from projections.language.contribution import ELEMENTS
from projections.language.syntax import key_text, written_path

SINGLE = "main"
"""The name of the table of a rule file that has `table:`."""


def written(document: Document) -> dict[str, Any]:
    """Return the data of a rule file that means this document. It has no queries."""
    single = list(document.tables) == [SINGLE]
    tables = {name: _table(table) for name, table in document.tables.items()}
    return {
        **({"table": tables[SINGLE]} if single else {"tables": tables}),
        "guard_prefix": document.guard_prefix,
        "entities": {name: _entity(entity) for name, entity in document.entities.items()},
        "projections": {
            name: {**_about(document.about_rule(name)), **rule_form(rule)} for name, rule in document.rules.items()
        },
        "retired": dict(document.retired),
    }


def _about(about: About) -> dict[str, Any]:
    form = {name: value for name, value in about.to_document().items() if name != "disabled"}
    if about.within is not None:
        form["within"] = duration_of(about.within)
    return {**form, "enabled": False} if about.disabled else form


def merged(data: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with an addition: mappings are merged, any other value replaces the old one."""
    found = dict(data)
    for name, value in addition.items():
        old = found.get(name)
        found[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return found


def _table(table: Table) -> dict[str, Any]:
    form: dict[str, Any] = {
        "key": dict([table.partition, *([table.sort] if table.sort else [])]),
        "indexes": {name: index_form(keys) for name, keys in table.indexes.items()},
        "separator": table.separator,
    }
    return {**form, "ttl": table.ttl} if table.ttl is not None else form


def index_form(keys: IndexKeys) -> Any:
    """Return an index as short as a rule file can have it."""
    plain = keys.projection == "all" and not keys.local and len(keys.partition) == 1 and len(keys.sort) < 2
    if plain:
        return _key((*keys.partition, *keys.sort))
    form: dict[str, Any] = {"local": True} if keys.local else {"partition": _key(keys.partition)}
    if keys.sort:
        form["sort"] = _key(keys.sort)
    if keys.projection != "all":
        form["projection"] = keys.projection if isinstance(keys.projection, str) else [*keys.projection]
    return form


def _key(pairs: Attributes) -> Any:
    return [name for name, _ in pairs] if all(kind == "S" for _, kind in pairs) else dict(pairs)


def _entity(entity: Entity) -> dict[str, Any]:
    form: dict[str, Any] = {"table": entity.table, "key": dict(entity.key), "index_key": dict(entity.index_key)}
    form |= {name: value for name in ("match", "id") if (value := getattr(entity, name)) is not None}
    if entity.required:
        form["required"] = [*entity.required]
    return {**form, "derived": entity.derived, "expires": entity.expires}


def rule_form(rule: Rule) -> dict[str, Any]:
    """Return a rule as a rule file has it."""
    parts = {one.source: _source_parts(one) for one in rule.variants}
    if len({str(part) for part in parts.values()}) == 1:
        form: dict[str, Any] = {"from": [*parts] if rule.other_sources else rule.source, **parts[rule.source]}
    else:
        form = {"from": parts}
    if rule.expired is not None:
        form["expired"] = rule.expired
    if rule.mode != "live":
        form["mode"] = rule.mode
    return {**form, rule.kind: _action(rule)}


def _source_parts(rule: Rule) -> dict[str, Any]:
    """Return `where`, `bind` and `each` of a rule with one source, as a rule file has them."""
    form: dict[str, Any] = {}
    if rule.where is not None:
        form["where"] = rule.where
    if rule.bind:
        form["bind"] = dict(rule.bind)
    if rule.each is not None:
        path = written_path(rule.each.path)
        ancestors = {"ancestors": path, "separator": rule.each.separator}
        form["each"] = {rule.each.variable: ancestors if rule.each.ancestors else path}
        if rule.each.most != ELEMENTS:
            form["each"]["most"] = rule.each.most
    return form


def query_form(query: Query) -> dict[str, Any]:
    """Return a query as a rule file has it."""
    names = query.entities[0] if len(query.entities) == 1 else [*query.entities]
    expect = {
        field.name: value for field in fields(query.expect) if (value := getattr(query.expect, field.name)) is not None
    }
    form: dict[str, Any] = {
        "id": query.id,
        "about": query.about,
        "get" if query.get else "find": names,
        "by": [str(field)[1:-1] for field in query.by],
        "range": query.range and written_path(query.range),
        "where": dict(query.where.document),
        "order": None if query.order is None else str(query.order),
        "limit": query.limit,
        "attributes": query.attributes and [*map(written_path, query.attributes)],
        "consistent": query.consistent,
        "using": query.using,
        "expect": expect,
    }
    return {name: value for name, value in form.items() if value}


def _computed(cases: tuple[Computed, ...]) -> Any:
    forms = []
    for case in cases:
        form = {"constant" if case.kind == "constant" else "value": case.value}
        forms.append(form if case.where is None else {**form, "where": case.where})
    if len(forms) > 1:
        return forms
    return forms[0]["value"] if [*forms[0]] == ["value"] else forms[0]


def _action(rule: Rule) -> Any:
    match rule:
        case Index():
            cases = [{**({"where": case.where} if case.where else {}), **case.set} for case in rule.cases]
            return cases if len(cases) > 1 or rule.cases[0].where else cases[0]
        case Compute():
            computed = {name: _computed(cases) for name, cases in rule.set.items()}
            return {"set": computed, **({"once": True} if rule.once else {})}
        case Copy():
            values = {name: one.value if isinstance(one, Constant) else one for name, one in rule.values.items()}
            attributes = "all" if rule.attributes is None else dict(rule.attributes)
            return {"into": rule.into, "attributes": attributes, "values": values}
        case Aggregate():
            measures = {
                name: {
                    one.function: True if one.expression is None else one.expression,
                    **{part: value for part in ("round", "by", "where") if (value := getattr(one, part)) is not None},
                }
                for name, one in rule.set.items()
            }
            return {"into": rule.into, "set": measures, "shards": rule.shards}
        case Rank():
            numbers = {"digits": rule.digits, "decimals": rule.decimals, "shards": rule.shards}
            return {"into": rule.into, "by": rule.by, "order": rule.order, **numbers}
        case Top():
            parts: dict[str, Any] = {"as": rule.list_name, "limit": rule.limit}
        case Latest():
            parts = {}
        case Embed(listed=listed) if listed is not None:
            return {
                "into": rule.into,
                "match": {key_text(name): text for name, text in rule.match.items()},
                "as": listed.list_name,
                "references": listed.references,
                "form": listed.form,
                **({"id": listed.id} if listed.id is not None else {}),
                "missing": listed.missing,
                "attributes": dict(rule.attributes),
            }
        case Embed():
            return {
                "into": rule.into,
                "match": {key_text(name): text for name, text in rule.match.items()},
                "attributes": dict(rule.attributes),
                "on_delete": rule.on_delete,
            }
    return {
        "into": rule.into,
        **parts,
        "by": written_path(rule.by),
        "order": rule.order,
        "attributes": dict(rule.attributes),
    }

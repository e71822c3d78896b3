"""Rules → the canonical document: plain JSON, everything defaulted, one way to say each thing.

`program` compiles it without pydantic, and its parts are what fingerprints are taken of: two rule files that mean the
same have the same document.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from projections.language.expressions import Measure
from projections.language.shapes import attribute_map, cases, index_attributes, key_attributes

if TYPE_CHECKING:
    from projections.language.models import Copy, Entity, Projection, Rules, Table

__all__ = ["FORMAT", "canonical"]

FORMAT = 1


def canonical(rules: Rules) -> dict[str, Any]:
    """The canonical document of rules without mistakes."""
    return {
        "format": FORMAT,
        "guard_prefix": rules.guard_prefix,
        "tables": {name: _table(table) for name, table in rules.all_tables.items()},
        "entities": {name: _entity(entity, rules.table_of(name)) for name, entity in rules.entities.items()},
        "projections": {name: _projection(rules, rule) for name, rule in rules.projections.items()},
        "retired": dict(rules.retired),
    }


def _table(table: Table) -> dict[str, Any]:
    partition, *sort = _pairs(key_attributes(table.key))
    indexes = {name: index_attributes(form) for name, form in table.indexes.items()}
    return {
        "partition": partition,
        "sort": sort[0] if sort else None,
        "indexes": {n: {"partition": _pairs(first), "sort": _pairs(second)} for n, (first, second) in indexes.items()},
        "ttl": table.ttl,
        "separator": table.separator,
    }


def _pairs(attributes: list[tuple[str, str]]) -> list[list[str]]:
    return [[name, kind] for name, kind in attributes]


def _entity(entity: Entity, table: str | None) -> dict[str, Any]:
    return {
        "table": table,
        "key": dict(entity.key),
        "match": entity.match,
        "id": entity.id,
        "derived": entity.derived,
        "expires": entity.expires,
        "index_key": dict(entity.index_key),
    }


def _projection(rules: Rules, rule: Projection) -> dict[str, Any]:
    return {
        "kind": rule.kind,
        "from": rule.from_,
        "where": rule.where,
        "bind": dict(rule.bind),
        "each": _each(rule),
        "expired": rule.expired,
        "mode": rule.mode,
        **_action(rules, rule),
    }


def _each(rule: Projection) -> dict[str, Any] | None:
    if rule.each is None:
        return None
    ((variable, form),) = rule.each.items()
    ancestors = isinstance(form, dict)
    return {
        "variable": variable,
        "path": form["ancestors"] if ancestors else form,
        "ancestors": ancestors,
        "separator": form.get("separator", "/") if ancestors else "/",
    }


def _action(rules: Rules, rule: Projection) -> dict[str, Any]:
    if rule.copy_ is not None:
        return _copy(rules, rule, rule.copy_)
    if rule.aggregate is not None:
        measures = {name: _measure(rules, rule, name, form) for name, form in rule.aggregate.set.items()}
        return {"into": rule.into, "set": measures, "shards": rule.aggregate.shards}
    if rule.index is not None:
        return {"cases": [{"where": where, "set": templates} for _, where, templates in cases(rule.index)]}
    action = rule.top or rule.latest or rule.embed
    assert action is not None  # the model has exactly one kind
    given = action.model_dump(by_alias=True)
    return {**given, "attributes": attribute_map(action.attributes)}


def _copy(rules: Rules, rule: Projection, copy: Copy) -> dict[str, Any]:
    from projections.language.binding import claimed  # it needs the models, which need this module

    return {
        "into": copy.into,
        "attributes": "all" if copy.attributes == "all" else attribute_map(copy.attributes),
        "values": {
            name: {"template": value} if isinstance(value, str) else {"constant": value}
            for name, value in copy.values.items()
        },
        "claimed": claimed(rules, rule),
    }


def _measure(rules: Rules, rule: Projection, name: str, form: Any) -> dict[str, Any]:
    """Of `min` and `max`, text is always `text(path)`, and all else a number."""
    from projections.language.extremes import extreme_type  # it needs the models, which need this module

    measure = Measure.parse(name, form)
    expression = measure.expression
    if expression is not None and measure.function in ("min", "max") and not expression.is_text:
        expression = expression.as_text() if extreme_type(rules, rule, measure) == "S" else expression
    return {
        "function": measure.function,
        "expression": None if expression is None else expression.text,
        "where": None if measure.where is None else measure.where.document,
    }

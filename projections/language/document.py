"""Make the canonical document from models: all defaults filled in, and one form for each meaning.

Its JSON is deployed, and fingerprints are computed from it: rule files with the same meaning have the same document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from projections.language import canonical, one_form
from projections.language.measures import TYPED, Measure
from projections.language.shapes import (
    attribute_map,
    cases,
    computed_cases,
    each_parts,
    index_attributes,
    is_local,
    key_attributes,
    projected,
)

if TYPE_CHECKING:
    from projections.language.models import Entity, Projection, Rules, Table

__all__ = ["typed"]


def typed(rules: Rules) -> canonical.Document:
    """Return the canonical document of rules without mistakes."""
    return canonical.Document(
        guard_prefix=rules.guard_prefix,
        tables={name: _table(table) for name, table in rules.all_tables.items()},
        entities={name: _entity(entity, rules.table_of(name) or "") for name, entity in rules.entities.items()},
        rules={name: _rule(rules, rule) for name, rule in rules.projections.items()},
        retired=dict(rules.retired),
        about=dict(_about(rules)),
    )


def _about(rules: Rules) -> Iterator[tuple[str, dict[str, canonical.About]]]:
    """Yield the descriptions of tables, entities and rules, as far as there are any."""
    tables = {name: canonical.About(table.description) for name, table in rules.all_tables.items()}
    entities = {name: canonical.About(entity.description) for name, entity in rules.entities.items()}
    said = {
        name: canonical.About(
            rule.description,
            rule.owner,
            tuple(dict.fromkeys(rule.tags)),
            not rule.enabled,
            canonical.seconds_of(rule.within) if rule.within is not None else None,
        )
        for name, rule in rules.projections.items()
    }
    for part, abouts in (("tables", tables), ("entities", entities), ("projections", said)):
        if given := {name: one for name, one in abouts.items() if one != canonical.NOTHING}:
            yield part, given


def _table(table: Table) -> canonical.Table:
    partition, *sort = key_attributes(table.key)
    indexes = {name: _index(table, form) for name, form in table.indexes.items()}
    return canonical.Table(partition, sort[0] if sort else None, indexes, table.ttl, table.separator)


def _index(table: Table, form: Any) -> canonical.IndexKeys:
    first, second = index_attributes(table.key, form)
    projection = projected(form)
    return canonical.IndexKeys(
        tuple(first),
        tuple(second),
        projection if isinstance(projection, str) else tuple(sorted(projection)),
        is_local(form),
    )


def _entity(entity: Entity, table: str) -> canonical.Entity:
    return canonical.Entity(
        table=table,
        key=one_form.templates(entity.key),
        match=one_form.pattern(entity.match),
        id=entity.id,
        derived=entity.derived,
        expires=entity.expires,
        index_key=one_form.templates(entity.index_key),
        required=tuple(entity.required or ()),
    )


def _rule(rules: Rules, rule: Projection) -> canonical.Rule:
    variants = sorted(rule.variants, key=lambda variant: variant.source)
    first, *others = (
        canonical.Source(one.source, one_form.pattern(one.where), one_form.templates(one.bind), _each(one))
        for one in variants
    )
    common: dict[str, Any] = {
        "source": first.source,
        "into": rule.into,
        "where": first.where,
        "bind": first.bind,
        "each": first.each,
        "other_sources": tuple(others),
        "expired": rule.expired,
        "mode": rule.mode if rule.enabled else "shadow",
    }
    if copy := rule.copy_:
        from projections.language.binding import claimed  # it needs the models, which need this module

        return canonical.Copy(
            **common,
            attributes=None if copy.attributes == "all" else one_form.sources(attribute_map(copy.attributes)),
            values={name: _value(value) for name, value in copy.values.items()},
            claimed=claimed(rules, variants[0]),
        )
    if rule.aggregate:
        measures = {name: _measure(rules, rule, name, form) for name, form in rule.aggregate.set.items()}
        return canonical.Aggregate(**common, set=measures, shards=rule.aggregate.shards)
    if top := rule.top:
        attributes = one_form.sources(attribute_map(top.attributes))
        return canonical.Top(
            **common, list_name=top.as_, by=top.by, limit=top.limit, order=top.order, attributes=attributes
        )
    if latest := rule.latest:
        attributes = one_form.sources(attribute_map(latest.attributes))
        return canonical.Latest(**common, by=latest.by, order=latest.order, attributes=attributes)
    if rank := rule.rank:
        numbers: dict[str, Any] = {"digits": rank.digits, "decimals": rank.decimals, "shards": rank.shards}
        return canonical.Rank(**common, by=one_form.expression(rank.by), order=rank.order, **numbers)
    if embed := rule.embed:
        attributes = one_form.sources(attribute_map(embed.attributes))
        match = one_form.templates(embed.match)
        if embed.as_ is None:
            return canonical.Embed(**common, match=match, attributes=attributes, on_delete=embed.on_delete)
        id_name = embed.id_name if embed.form == "list" else None
        listed = canonical.Listed(embed.as_, embed.references_name, embed.form, id_name, embed.missing)
        return canonical.Embed(**common, match=match, attributes=attributes, on_delete="remove", listed=listed)
    if compute := rule.compute:
        computed = {name: _computed(form) for name, form in compute.set.items()}
        return canonical.Compute(**common, set=computed, once=compute.once)
    return canonical.Index(
        **common,
        cases=tuple(
            canonical.Case(one_form.pattern(where), one_form.templates(keys)) for _, where, keys in cases(rule.index)
        ),
    )


def _value(value: Any) -> str | canonical.Constant:
    return one_form.template(value) if isinstance(value, str) else canonical.Constant(one_form.constant(value))


def _computed(form: Any) -> tuple[canonical.Computed, ...]:
    found = []
    for _, where, kind, content in computed_cases(form):
        value = (
            one_form.constant(content)
            if kind == "constant"
            else one_form.template(content)
            if kind == "template"
            else one_form.expression(content, "value")
        )
        found.append(canonical.Computed(kind, value, one_form.pattern(where)))
    return tuple(found)


def _each(rule: Projection) -> canonical.Each | None:
    if rule.each is None:
        return None
    variable, form, most = each_parts(rule.each)
    if isinstance(form, dict):
        return canonical.Each(variable, form["ancestors"], True, form.get("separator", "/"), most)
    return canonical.Each(variable, form, False, "/", most)


def _measure(rules: Rules, rule: Projection, name: str, form: Any) -> canonical.Measure:
    """Return a measure. Where text is possible, it is always `text(path)`; any other expression is a number."""
    from projections.language.extremes import extreme_type  # it needs the models, which need this module

    measure = Measure.parse(name, form)
    expression = measure.expression
    if expression is not None and measure.function in TYPED and not expression.is_text:
        expression = expression.as_text() if extreme_type(rules, rule, measure) == "S" else expression
    return canonical.Measure(
        function=measure.function,
        expression=None if expression is None else one_form.expression(expression.text, "extreme"),
        where=None if measure.where is None else one_form.pattern(measure.where.document),
        round=measure.digits,
        by=None if measure.by is None else one_form.expression(measure.by.text),
    )

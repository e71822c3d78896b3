"""A rule file as a model, and its canonical document: all defaults filled in, and one form for each meaning.

The JSON of the document is deployed, and fingerprints are computed from it: rule files with the same meaning have the same
document.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from projections.language import canonical, one_form
from projections.language.actions import Model
from projections.language.arithmetic import Expression
from projections.language.measures import TYPED, Measure
from projections.language.models import Entity, Name, Prefix, Projection, Table
from projections.language.patterns import Pattern
from projections.language.patterns.tree import Test, compared_type
from projections.language.questions import Query, WritePattern
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
from projections.language.templates import Template


class Rules(Model):
    """Projections for DynamoDB: tables, the entities in them, and the rules that derive data from data."""

    include: list[str] = Field(
        default=[],
        description="Files with further parts of these rules, relative to this file, such as `[users.yaml, "
        "orders/*.yaml]`, or the names of bundled rule files.",
    )
    table: Table | None = Field(default=None, description="The table, if there is only one.")
    tables: dict[Name, Table] = Field(default={}, description="Tables by name, if there are several.")
    guard_prefix: Prefix = Field(
        default="~",
        description="The beginning of the names of guards, the attributes that rules write beside derived values. "
        "Its first character is a sign.",
    )
    entities: Annotated[dict[Name, Entity], Field(min_length=1)] = Field(description="Kinds of items, by name.")
    projections: dict[Name, Projection] = Field(default={}, description="The rules, by name.")
    retired: dict[Name, Literal["keep", "remove"]] = Field(
        default={}, description="Rules that were removed: whether the values that they wrote stay."
    )
    queries: dict[Name, Query] = Field(default={}, description="The application's queries, by name.")
    writes: dict[Name, WritePattern] = Field(default={}, description="The application's writes, by name.")

    @model_validator(mode="after")
    def _tables_or_table(self) -> Rules:
        if self.table is None and not self.tables:
            raise PydanticCustomError("rule", "no table: add `table: {key: [PK, SK]}`")
        if self.table is not None and self.tables:
            raise PydanticCustomError("rule", "has both `table` and `tables`: move the table into `tables`")
        return self

    @property
    def all_tables(self) -> dict[str, Table]:
        """Tables by name; a single `table` is called main."""
        return {"main": self.table} if self.table is not None else self.tables

    def variants(self) -> Iterator[tuple[str, Projection]]:
        """Yield each rule with its name, once for each of its sources (`Projection.variants`)."""
        for name, rule in self.projections.items():
            for variant in rule.variants:
                yield name, variant

    def table_of(self, entity: str) -> str | None:
        """Return the name of an entity's table; None if `table` is required and missing."""
        tables = self.all_tables
        return self.entities[entity].table or (next(iter(tables)) if len(tables) == 1 else None)

    def typed(self) -> canonical.Document:
        """Return the canonical form of the rules, with all defaults. The rules must be valid."""
        return typed(self)

    def canonical(self) -> dict[str, Any]:
        """Return the canonical form as one plain JSON document."""
        return self.typed().to_document()


# --- the canonical document ---


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


# --- the variables of a target's key ---


def key_variables(entity: Entity) -> tuple[str, ...]:
    """The variables in an entity's key, in order."""
    return tuple(dict.fromkeys(name for text in entity.key.values() for name in Template.parse(text).names))


def each_variable(rule: Projection) -> str | None:
    """The variable that `each` binds."""
    return each_parts(rule.each)[0] if rule.each else None


def claimed(rules: Rules, rule: Projection) -> bool:
    """Return whether several source items can have the same target key, now or over time.

    They cannot if the target's key determines all variables of the source's key, or the variable that is its `id`. The
    variables of a key can be read back from it; a variable that `bind` makes, only if its template is reversible.
    """
    source = rules.entities[rule.source]
    separator = rules.all_tables[rules.table_of(rule.source) or ""].separator
    fields = [field for text in source.key.values() for field in Template.parse(text).fields]
    own = {field.name for field in fields} - {each_variable(rule)}
    bare = own - {field.name for field in fields if field.star}
    told: set[str] = set()
    for name in key_variables(rules.entities[rule.into]):
        told |= Template.parse(rule.bind[name]).recoverable(bare, separator) if name in rule.bind else {name}
    told &= own
    return source.id not in told and not told.issuperset(key_variables(source))


# --- the type of the values that `min` and `max` compare ---
#
# Numbers and text have no meaningful common order, so each measure takes one type. Values of the other are bad input.


def extreme_type(rules: Rules, rule: Projection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of a `min` or `max`: `N`, `S`, or None if it is unknown or not the same for all sources."""
    types = {_type_of(rules, variant, measure) for variant in rule.variants}
    return types.pop() if len(types) == 1 else None


def _type_of(rules: Rules, rule: Projection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of a `min` or `max` of the items of one source."""
    expression = measure.expression
    assert expression is not None
    if expression.is_text:
        return "S"
    path = expression.path
    if path is None:
        return "N"
    if path != each_variable(rule) and path in key_variables(rules.entities[rule.source]):
        return _of_variable(rules, rule.source, path)
    where = [rule.where, None if measure.where is None else measure.where.document]
    return "N" if any(_compared_as_number(pattern, path) for pattern in where) else None


def declaration(measure: Measure) -> str:
    """Return what to write if the type is unknown: `max(number(x)) to compare numbers, or …`."""
    expression = measure.expression
    assert isinstance(expression, Expression)
    written = expression.text.strip()
    number, text = (f"{measure.function}({kind}({written}))" for kind in ("number", "text"))
    return f"{number} to compare numbers, or {text} to compare text"


def _of_variable(rules: Rules, entity: str, variable: str) -> Literal["N", "S"] | None:
    """Return the type of a key variable; None for binary keys, which cannot be compared."""
    table = rules.all_tables[rules.table_of(entity) or ""]
    types: dict[str, Literal["N", "S"]] = {"N": "N", "S": "S"}
    for attribute, kind in key_attributes(table.key):
        if variable in Template.parse(rules.entities[entity].key[attribute]).names:
            return types.get(kind)
    return None


def _compared_as_number(pattern: Mapping[str, Any] | None, path: str) -> bool:
    """Return whether items match a pattern only if `path` is a number that is compared with others."""
    return any(
        isinstance(test, Test) and test.name == path and all(compared_type(one) == "N" for one in test.alternatives)
        for test in Pattern.parse(pattern or {}).conditions
    )

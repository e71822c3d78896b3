"""How the variables of a target's key get their values, and whether several sources can have the same target."""

from __future__ import annotations

from projections.language.models import Entity, Projection, Rules
from projections.language.shapes import each_parts
from projections.language.templates import Template

__all__ = ["claimed", "each_variable", "key_variables"]


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

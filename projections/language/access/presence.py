"""Which names have a value on every item of an entity."""

from __future__ import annotations

from projections.language.canonical import Compute, Computed, Constant, Copy, Document, once
from projections.language.patterns import Pattern
from projections.language.templates import Template

__all__ = ["always_present", "bare_variables", "key_variables", "not_copied"]


@once
def key_variables(document: Document, entity: str) -> frozenset[str]:
    """Return the variables in the key of an entity."""
    return frozenset(name for text in document.entities[entity].key.values() for name in Template.parse(text).names)


@once
def bare_variables(document: Document, entity: str) -> frozenset[str]:
    """Return the variables in the key of an entity whose values lack the separator: those without a star."""
    fields = (field for text in document.entities[entity].key.values() for field in Template.parse(text).fields)
    return frozenset(field.name for field in fields if not field.star)


@once
def always_present(document: Document, entity: str) -> frozenset[str]:
    """Return the names that have a value on every item: key variables, `required`, and what a copy has from such names."""
    found = {*key_variables(document, entity), *document.entities[entity].required}
    for rule in document.rules.values():
        if isinstance(rule, Compute) and rule.source == entity and rule.mode != "shadow" and rule.where is None:
            found.update(name for name, cases in rule.set.items() if _always(cases))
        if not isinstance(rule, Copy) or rule.into != entity or rule.mode == "shadow":
            continue
        source = always_present(document, rule.source) if rule.source != entity else frozenset()
        if rule.attributes is None:
            found |= source - not_copied(document, rule)
        found.update(target for target, path in (rule.attributes or {}).items() if path in source)
        for target, value in rule.values.items():
            if isinstance(value, Constant) or source.issuperset(Template.parse(value).names):
                found.add(target)
    return frozenset(found)


def _always(cases: tuple[Computed, ...]) -> bool:
    """Return whether a computed attribute has a value on every item: one of its cases, whichever applies, is a constant."""
    return cases[-1].where is None and all(case.kind == "constant" for case in cases)


def not_copied(document: Document, copy: Copy) -> frozenset[str]:
    """Return the names that do not have the source's value on a copy of all attributes.

    These are the variables of the source's key that may be no attributes, and what is in the key of the target, in its
    `match`, or written by rules.
    """
    source, target = document.entities[copy.source], document.entities[copy.into]
    return frozenset(
        {
            *(key_variables(document, copy.source) - {*source.required}),
            *key_variables(document, copy.into),
            *target.key,
            *target.index_key,
            *Pattern.parse(target.match or {}).constants,
            *(name for rule in document.rules.values() if rule.into == copy.into for name in rule.written),
        }
    )

"""Which names have a value on every item of an entity."""

from __future__ import annotations

from projections.language.canonical import Constant, Copy, Document
from projections.language.templates import Template

__all__ = ["always_present", "key_variables"]


def key_variables(document: Document, entity: str) -> frozenset[str]:
    """Return the variables in the key of an entity."""
    return frozenset(name for text in document.entities[entity].key.values() for name in Template.parse(text).names)


def always_present(document: Document, entity: str) -> frozenset[str]:
    """Return the names that have a value on every item: key variables, `required`, and what a copy has from such names."""
    found = {*key_variables(document, entity), *document.entities[entity].required}
    for rule in document.rules.values():
        if not isinstance(rule, Copy) or rule.into != entity or rule.mode == "shadow":
            continue
        source = always_present(document, rule.source) if rule.source != entity else frozenset()
        if rule.attributes is None:
            found |= source
        found.update(target for target, path in (rule.attributes or {}).items() if path in source)
        for target, value in rule.values.items():
            if isinstance(value, Constant) or source.issuperset(Template.parse(value).names):
                found.add(target)
    return frozenset(found)

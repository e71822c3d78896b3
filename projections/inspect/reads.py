"""What rules read of their sources: what decides whether they apply, where to, and what they write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from projections.language import canonical
from projections.language.access.paths import key_variables
from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.canonical import Document
from projections.language.facts import EVERY
from projections.language.patterns import Pattern
from projections.language.syntax import root
from projections.language.templates import Template


def reads_of(document: Document, rule: canonical.Rule) -> frozenset[str]:
    """Return the dotted paths that a rule reads of its first source; `EVERY` if it reads all attributes."""
    paths = {*_names(rule.where)}
    match rule:
        case canonical.Index():
            for case in rule.cases:
                paths.update(_names(case.where))
                paths.update(_templates(case.set.values()))
        case canonical.Aggregate():
            for measure in rule.set.values():
                paths.update(_names(measure.where))
                if measure.by is not None:  # of `first` and `last`, which take any value
                    paths.update([str(measure.expression), measure.by])
                elif measure.expression:
                    paths.update(_factors(measure.expression))
        case canonical.Rank():
            paths.update(_factors(rule.by))
        case canonical.Top() | canonical.Latest():
            paths.update([rule.by, *_sources(rule.attributes)])
        case canonical.Copy():
            paths.update([EVERY] if rule.attributes is None else _sources(rule.attributes))
            paths.update(_templates(value for value in rule.values.values() if isinstance(value, str)))
        case canonical.Compute():
            for value in (case for cases in rule.set.values() for case in cases):
                paths.update(_names(value.where))
                if value.kind != "constant":
                    template = value.kind == "template"
                    paths.update(
                        (Template.parse(value.value) if template else Expression.parse(value.value, "value")).names
                    )
        case canonical.Embed():
            paths.update(_sources(rule.attributes))
            paths.update(_templates(rule.match.values()))
    if not isinstance(rule, canonical.Index | canonical.Compute | canonical.Embed):
        paths.update(_templates(rule.bind.values()))
        paths.update(name for name in key_variables(document, rule.into) if name not in rule.bind)
    if rule.each:
        paths.add(rule.each.path)
    return frozenset(paths)


def is_changed(reads: frozenset[str], edited: frozenset[str]) -> bool:
    """Whether an edit of these attributes may change what a rule with these reads makes of an item."""
    return EVERY in edited or EVERY in reads or any(root(path) in edited for path in reads)


def read_attributes(document: Document, entity: str) -> list[str]:
    """Return the paths of an entity that rules read, sorted."""
    paths: set[str] = set()
    for _, rule in document.variants():
        if rule.source == entity:
            element = rule.each.variable if rule.each else None
            paths |= {path for path in reads_of(document, rule) if root(path) != element}
        if isinstance(rule, canonical.Embed) and rule.into == entity:
            paths.update(rule.match)
    return sorted(paths - {EVERY})


def _names(pattern: Mapping[str, Any] | None) -> tuple[str, ...]:
    return Pattern.parse(pattern).names if pattern else ()


def _templates(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from Template.parse(text).names


def _factors(text: str) -> Iterator[str]:
    return (factor.path for factor in Expression.parse(text, "value").factors)


def _sources(attributes: Mapping[str, str]) -> Iterator[str]:
    for text in attributes.values():
        yield from attribute_source(text).names

"""What rules read of their sources: what decides whether they apply, where to, and what they write."""

from __future__ import annotations

from projections.language.facts import paths_read
from projections.language.kinds import EVERY
from projections.language.models import Rules
from projections.language.syntax import root


def is_changed(reads: frozenset[str], edited: frozenset[str]) -> bool:
    """Whether an edit of these attributes may change what a rule with these reads makes of an item."""
    return EVERY in edited or EVERY in reads or any(root(path) in edited for path in reads)


def read_attributes(rules: Rules, entity: str) -> list[str]:
    """Return the paths of an entity that rules read, sorted."""
    paths: set[str] = set()
    for _, rule in rules.variants():
        if rule.source == entity:
            element = rule.each.variable if rule.each else None
            paths |= {path for path in paths_read(rules, rule) if root(path) != element}
        if rule.into == entity:
            paths.update(rule.action.matched)
    return sorted(paths - {EVERY})

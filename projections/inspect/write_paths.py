"""The writes of each rule, and the cost of a single change."""

from __future__ import annotations

from projections.language.embeds import children_of
from projections.language.facts import indexes_fed
from projections.language.kinds import WritePath
from projections.language.models import Rules, once


def path_of(rules: Rules, name: str) -> WritePath:
    """Return the path of a rule. A held rule does not publish."""
    rule = rules.projections[name]
    index = search_index(rules, name)
    each = f" for each element of {rule.each.path}" if rule.each else ""
    path = rule.action.write_path(each, indexes_fed(rules, rule) if index is None else (index,))
    if rule.publishes or not rule.action.writes_items:
        return path
    if not rule.action.recorded:
        return WritePath(path.name, "held: it writes nothing", 0)
    how = path.how.partition(", then ")[0] + "; held: it publishes nothing"
    lanes = path.lanes - 1 if path.lanes else None
    return WritePath(path.name, how, path.alone - 1, path.shared, lanes)


@once
def search_index(rules: Rules, name: str) -> str | None:
    """Return the index by which a rule finds the items that reference its source; None if it needs none."""
    return children_of(rules.document(), name).index if rules.projections[name].action.matched else None

"""Infer a proposal from a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from projections.init.inference.entities import understand
from projections.init.inference.guarded import doubted, guards_of, marked, without_guards
from projections.init.inference.indexes import index_rules
from projections.init.inference.kinds import set_kinds, type_attribute
from projections.init.inference.measures import Family, contradicted_rules, count_rules
from projections.init.inference.proposal import Proposal, Rule
from projections.init.inference.relations import links
from projections.init.inference.repeats import copy_rules, embed_rules
from projections.init.inference.rows import common_separator, rows_of
from projections.init.inference.words import pascal
from projections.init.table import Sample, Table
from projections.language.values import valued

__all__ = ["infer"]


def infer(table: Table, sample: Sample, separator: str | None = None) -> Proposal:
    """Return the rules that fit the items of a sample and their keys. Equal samples give equal proposals.

    Without `separator`, it is inferred as well.
    """
    guards: dict[int, tuple[str, ...]] = {}
    items = []
    for item in sample.items:
        items.append(valued(without_guards(item)))
        guards[id(items[-1])] = guards_of(item)
    sample = replace(sample, items=items)
    separator = separator or common_separator(sample.items, table)
    rows = rows_of(sample.items, table, separator)
    kind = type_attribute(rows)
    set_kinds(rows, kind)
    understood = understand(rows, table, separator, kind)
    for group in understood.groups:
        marked(group, guards)
    groups = sorted(understood.groups, key=lambda group: (len(group.entity.variables), -len(group.rows)))
    found = links(groups, sample.complete)
    copies = copy_rules(found, table)
    copied = {frozenset((link.relation.child, link.relation.parent)) for link, _ in copies}
    others = [one for one in found if frozenset((one.relation.child, one.relation.parent)) not in copied]
    taken = {
        (rule.body["copy"]["into"], name) for _, rule in copies for name in rule.body["copy"]["attributes"]
    }  # an attribute of a target has one writer
    families = [Family(link, table, sample) for link in others]
    rules: list[Rule] = [*count_rules(families, taken)]
    rules += embed_rules(others, table, sample.complete, taken)
    rules += contradicted_rules(families, table, taken)
    rules += index_rules(groups, table, separator)
    rules = _distinctly_named(doubted([*rules, *(rule for _, rule in copies)], groups))
    return Proposal(
        table,
        separator,
        [group.entity for group in groups],
        [one.relation for one in found],
        rules,
        understood.unknown,
        len(sample.items),
        sample.complete,
        sum(len(group.rows) for group in groups),
    )


def _distinctly_named(rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules with different names: a rule that is a comment gets the name of its attribute, if it must."""
    names = Counter(rule.name for rule in rules)
    taken = {rule.name for rule in rules if not rule.doubt}
    found = []
    for rule in rules:
        if rule.doubt:
            written = "".join(pascal(name) for name in rule.attributes)
            name = rule.name + written if names[rule.name] > 1 else rule.name
            while name in taken:
                name += "Again"
            taken.add(name)
            rule = replace(rule, name=name)
        found.append(rule)
    return found

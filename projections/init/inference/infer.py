"""Infer a proposal from a sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from projections.init.inference.entities import understand
from projections.init.inference.indexes import index_rules
from projections.init.inference.measures import Family, contradicted_rules, count_rules
from projections.init.inference.proposal import Proposal, Rule
from projections.init.inference.relations import links
from projections.init.inference.repeats import copy_rules, embed_rules
from projections.init.inference.rows import Group, common_separator, rows_of, set_kinds, type_attribute
from projections.init.inference.words import pascal
from projections.init.table import Sample, Table
from projections.language.values import Value, valued

__all__ = ["infer"]


def infer(table: Table, sample: Sample, separator: str | None = None) -> Proposal:
    """Return the rules that fit the items of a sample and their keys. Equal samples give equal proposals.

    Without `separator`, it is inferred as well.
    """
    guards: dict[int, list[str]] = {}
    items = []
    for item in sample.items:
        own = {name: value for name, value in item.items() if not _is_guard(name, value)}
        items.append(valued(own))
        guards[id(items[-1])] = [name[len(_PREFIX) :] for name in item.keys() - own.keys() if name != _PREFIX]
    sample = replace(sample, items=items)
    separator = separator or common_separator(sample.items, table)
    rows = rows_of(sample.items, table, separator)
    kind = type_attribute(rows)
    set_kinds(rows, kind)
    groups, unknown = understand(rows, table, separator, kind)
    for group in groups:
        _mark(group, guards)
    groups.sort(key=lambda group: (len(group.entity.variables), -len(group.rows)))
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
    rules += [rule for _, rule in copies]
    return Proposal(
        table,
        separator,
        [group.entity for group in groups],
        [one.relation for one in found],
        _distinctly_named(_doubted(rules, groups)),
        unknown,
        len(sample.items),
        sample.complete,
        sum(len(group.rows) for group in groups),
    )


# Guards: rules of this package maintain attributes of these items already. A guard has the name of its rule, and not the
# names of the attributes that the rule writes. The ledger has those, and a sample is read without it. So no attribute of an
# item with a guard is certainly the application's.

_PREFIX = "~"
"""Unless the rules set another one."""


def _is_guard(name: str, value: Value) -> bool:
    if name == _PREFIX:  # the mark of an item that a rule created
        return "S" in value
    held = value.get("M")
    return name.startswith(_PREFIX) and isinstance(held, Mapping) and {"d", "at", "s"} <= held.keys()


def _mark(group: Group, guards: Mapping[int, Sequence[str]]) -> None:
    """Note on an entity which rules have guards on its items. `guards` has them by the identity of items."""
    rules = tuple(sorted({rule for row in group.rows for rule in guards.get(id(row.item), ())}))
    if rules:
        note = (
            f"Rules that are deployed already maintain attributes of these items: {', '.join(rules)} (by their guards)."
        )
        group.entity = replace(group.entity, rules=rules, notes=(*group.entity.notes, note))


def _doubted(rules: Sequence[Rule], groups: Sequence[Group]) -> Iterator[Rule]:
    """Yield the rules, with a doubt on those that write to items with guards."""
    guarded = {group.entity.name: group.entity.rules for group in groups if group.entity.rules}
    for rule in rules:
        if rule.into in guarded and rule.kind != "index":
            doubt = (
                f"A deployed rule may maintain {', '.join(rule.attributes)} already: items of {rule.into} have guards of "
                f"{', '.join(guarded[rule.into])}. Compare it with the deployed rule file"
            )
            rule = replace(rule, doubt=f"{rule.doubt}. {doubt}" if rule.doubt else doubt)
        yield rule


def _distinctly_named(every: Iterable[Rule]) -> list[Rule]:
    """Return the rules with different names: a rule that is a comment gets the name of its attribute, if it must."""
    rules = list(every)
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

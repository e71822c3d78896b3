"""Guards in a sample: rules of this package maintain attributes of these items already.

A guard has the name of its rule, and not the names of the attributes that the rule writes. The ledger has those, and a
sample is read without it. So no attribute of an item with a guard is certainly the application's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projections.init.inference.entities import Group
from projections.init.inference.proposal import Rule
from projections.language.values import Image, Value

__all__ = ["doubted", "guards_of", "marked", "without_guards"]

_PREFIX = "~"
"""Unless the rules set another one."""


def _is_guard(name: str, value: Value) -> bool:
    if name == _PREFIX:  # the mark of an item that a rule created
        return "S" in value
    held = value.get("M")
    return name.startswith(_PREFIX) and isinstance(held, Mapping) and {"d", "at", "s"} <= held.keys()


def without_guards(item: Image) -> Image:
    """Return an item without guards and mark."""
    return {name: value for name, value in item.items() if not _is_guard(name, value)}


def guards_of(item: Image) -> tuple[str, ...]:
    """Return the rules that have guards on an item."""
    return tuple(name[len(_PREFIX) :] for name, value in item.items() if _is_guard(name, value) and name != _PREFIX)


def marked(group: Group, guards: Mapping[int, tuple[str, ...]]) -> None:
    """Note on an entity which rules have guards on its items. `guards` has them by the identity of items."""
    rules = tuple(sorted({rule for row in group.rows for rule in guards.get(id(row.item), ())}))
    if rules:
        note = (
            f"Rules that are deployed already maintain attributes of these items: {', '.join(rules)} (by their guards)."
        )
        group.entity = replace(group.entity, rules=rules, notes=(*group.entity.notes, note))


def doubted(rules: Sequence[Rule], groups: Sequence[Group]) -> list[Rule]:
    """Return the rules with a doubt on those that write to items with guards."""
    guarded = {group.entity.name: group.entity.rules for group in groups if group.entity.rules}
    found = []
    for rule in rules:
        if rule.into in guarded and rule.kind != "index":
            doubt = (
                f"A deployed rule may maintain {', '.join(rule.attributes)} already: items of {rule.into} have guards of "
                f"{', '.join(guarded[rule.into])}. Compare it with the deployed rule file"
            )
            rule = replace(rule, doubt=f"{rule.doubt}. {doubt}" if rule.doubt else doubt)
        found.append(rule)
    return found

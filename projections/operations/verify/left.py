"""Finds values that rules left on items that they no longer write to. One item shows them alone.

When an item changes its kind, the record of the change makes the engine remove what rules set on it. If the record was lost,
or the attributes have other values by then, they stay, with the guard of the rule. An item that a rule created and that lost
its guards and what `match` reads stays as well. In both cases it is not known whether the application uses these values.
"""

from __future__ import annotations

from projections.engine.application import ApplicationItems
from projections.engine.store import Image, ItemKey
from projections.language.entity import Entity, Item
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.operations.verify import showing
from projections.operations.verify.drift import LEFT_OVER, Drift
from projections.operations.verify.scope import Scope

__all__ = ["left_on"]


def left_on(scope: Scope, items: ApplicationItems, key: ItemKey, image: Image, item: Item | None) -> list[Drift]:
    """Return a drift for each rule that publishes and that left values on an item of another kind."""
    prefix, program = scope.program.guard_prefix, scope.program
    entity = item.entity if item is not None else None
    names = [
        name for name in image if name.startswith(prefix) and (entity is None or not _writes_to(program, name, entity))
    ]
    if not names or (entity is not None and names == [prefix]):
        return []
    found, guarded = [], False
    target = encode_key(key)
    kept = program.derived_attributes(item.entity.name) if item is not None else frozenset()
    for name in names:
        rule = program.rules.get(name.removeprefix(prefix))
        guard = scope.guards.parse(scope.guards.rule(name), key, image[name]) if name != prefix else None
        guarded = guarded or guard is not None
        if guard is None or rule is None or not rule.has_guard or not scope.writes(rule):
            continue
        if items.may_write(rule, rule.into, key, image):
            continue
        owned = frozenset(rule.owned())
        left = showing.item({n: image[n] for n in sorted(owned - kept - rule.into.constants.keys()) if n in image})
        if left:
            found.append(Drift(LEFT_OVER, rule.name, target, None, left, None, guard.by or None, guard.at or None))
    if item is None and not guarded and items.created(key, image):
        at = program.entities_at(key)
        makers = [rule for one in at for rule in program.ledger_rules_into.get(one.name, ()) if rule.creates]
        if makers and scope.writes(makers[0]):
            found.append(Drift(LEFT_OVER, makers[0].name, target, None, showing.item(image)))
    return found


def _writes_to(program: Program, guard: str, entity: Entity) -> bool:
    """Return whether the rule of a guard writes to an entity."""
    rule = program.rules.get(guard[len(program.guard_prefix) :])
    return rule is not None and rule.into is entity

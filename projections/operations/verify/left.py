"""What rules left on items that they do not write to any more, as an item alone shows it.

An item whose kind changed loses what rules set on it when its record is delivered. If the stream did not tell of the change,
or the attributes have other values by now, they stay, with the guard of the rule. An item that a rule created and that lost
its guards and what `match` reads stays as well. In both cases nobody can tell whether the application needs what is there.
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
    """What rules that publish left on an item of another kind."""
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
        guard = scope.guards.parse(image[name], key) if name != prefix else None
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
    """Whether the rule of a guard writes to an entity."""
    rule = program.rules.get(guard[len(program.guard_prefix) :])
    return rule is not None and rule.into is entity

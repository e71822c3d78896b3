"""Publishing what groups know onto their targets, and healing what the application overwrote.

A publish reads the group's version, then totals and members, and writes under the condition that the target's guard is
absent or older. Healing and refreshing write if the guard is as read, whatever it says, so that a guard from the future (a
cloned item, a restored ledger) cannot lock the truth out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from projections.engine.effort import Effort, Run, one_by_one
from projections.engine.groups import Generations, Group, read_groups, read_members
from projections.engine.guards import as_read, guard_value, older
from projections.engine.ledger_items import Target
from projections.engine.store import (
    AllOf,
    AnyOf,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    Store,
    Update,
    Value,
)
from projections.engine.tally import Tally
from projections.errors import ConditionFailed, InvalidRequest, StoreError, Transient
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, LedgerRule
from projections.language.values import same

__all__ = ["Publisher"]

_MOST_TRIES = 20


class Publisher:
    """Publishes groups onto targets. What fails is returned by target, never raised for one target's sake."""

    def __init__(
        self,
        program: Program,
        store: Store,
        generations: Generations,
        *,
        run: Run[Any] = one_by_one,
        tally: Tally | None = None,
    ) -> None:
        self._program = program
        self._store = store
        self._generations = generations
        self._run = run
        self._others = {
            entity: tuple(program.guard(rule.name) for rule in rules)
            for entity, rules in program.ledger_rules_into.items()
        }
        self._tally = tally or Tally()

    def publish(self, targets: Iterable[Target], effort: Effort) -> dict[Target, StoreError]:
        """Brings targets up to their groups, guard permitting. Gives the failures."""
        return self._each(targets, effort, self._publish_one)

    def heal(self, targets: Iterable[Target], effort: Effort) -> dict[Target, StoreError]:
        """Brings targets up to their groups whatever their guards say. Gives the failures."""
        return self._each(targets, effort, self._heal_one)

    def _each(
        self,
        targets: Iterable[Target],
        effort: Effort,
        work: Callable[[LedgerRule, Target, Group | None, Effort], None],
    ) -> dict[Target, StoreError]:
        known = [(rule, target) for target in sorted(set(targets)) if (rule := self._rule(target)) is not None]
        failures: dict[Target, StoreError] = {}
        try:
            effort.check()
            # Healing reads the guard first and the group after it, so it cannot use what is read here.
            groups: Mapping[Target, Group] = {}
            if work == self._publish_one:
                groups = read_groups(self._store, [target for _, target in known], self._generations)
        except Transient as error:
            return {target: error for _, target in known}

        def one(rule: LedgerRule, target: Target) -> None:
            attempt = 0
            while True:
                try:
                    effort.check()
                    return work(rule, target, groups.get(target), effort)
                except (Transient, InvalidRequest) as error:
                    attempt += 1
                    try:
                        if isinstance(error, InvalidRequest):
                            raise
                        effort.pause(attempt)
                    except StoreError:
                        failures[target] = error
                        return None

        self._run([partial(one, rule, target) for rule, target in known])
        return failures

    def _rule(self, target: Target) -> LedgerRule | None:
        rule = self._program.rules.get(target[0])
        return rule if isinstance(rule, LedgerRule) else None

    def _publish_one(self, rule: LedgerRule, target: Target, group: Group | None, effort: Effort) -> None:
        assert group is not None
        key = decode_key(target[1])
        try:
            self._write(rule, key, target, group, older(self._program.guard(rule.name), group.at), None)
        except ConditionFailed as failed:  # no such item, or published by someone with as new or newer knowledge
            if group.totals.n == 0 and failed.item is not None and _creates(rule) and not isinstance(rule, CopyRule):
                self._delete_empty(rule, key)  # the one who published the zeros may have died before deleting
            return
        self._tally.add("published")

    def _heal_one(self, rule: LedgerRule, target: Target, _group: Group | None, effort: Effort) -> None:
        key, guard = decode_key(target[1]), self._program.guard(rule.name)
        for _ in range(_MOST_TRIES):
            effort.check()
            item = self._store.get(key)
            if item is None and not _creates(rule):
                return
            if item is not None and not _creates(rule) and not self._fits(rule, key, item):
                return
            group = read_groups(self._store, [target], self._generations)[target]
            read = item.get(guard) if item is not None else None
            if item is None and group.totals.n == 0:
                return
            try:
                if self._write(rule, key, target, group, as_read(guard, read), item):
                    self._tally.add("healed")
                return
            except ConditionFailed as failed:
                if failed.item is None and not _creates(rule):
                    return
        raise Transient(f"{rule.name}: the guard of a target kept changing while it was healed")

    def _fits(self, rule: LedgerRule, key: ItemKey, image: Image) -> bool:
        """Whether an item is of the entity that the rule writes to, by key and `match`."""
        item = self._program.recognise(key, image)
        return item is not None and item.entity is rule.into

    def _write(
        self, rule: LedgerRule, key: ItemKey, target: Target, group: Group, condition: Condition, item: Image | None
    ) -> bool:
        """Writes what the group says unless `item` shows it already. Whether anything had to be written."""
        guard = self._program.guard(rule.name)
        exists = Exists((self._store.schema(key.table).partition[0],))
        members = read_members(self._store, rule, target[1], group)
        values = rule.published(group.totals, members)
        by = members["claim"][0].source if isinstance(rule, CopyRule) and members["claim"] else None
        stamp = guard_value(group.at, by=by, n=group.totals.n)
        if isinstance(rule, CopyRule):
            return self._write_claim(rule, key, values if by is not None else None, stamp, condition, item)
        n = group.totals.n
        creates = _creates(rule)
        wanted = {**rule.into.constants, **values, guard: stamp} if creates else {**values, guard: stamp}
        shown = item is not None and all(same(item.get(name), value) for name, value in wanted.items())
        if not shown:
            if (
                not creates
            ):  # what `match` says outright is checked; an item that changes its kind appears, and is healed
                kind = tuple(Equal((name,), value) for name, value in rule.into.constants.items())
                condition = AllOf((exists, *kind, condition))
            elif n == 0:  # zeros never create: creating and deleting would chase each other forever
                condition = AllOf((exists, condition))
            self._store.write(_update(key, wanted, condition))
        if creates and n == 0:
            self._delete_empty(rule, key)
        return not shown

    def _delete_empty(self, rule: LedgerRule, key: ItemKey) -> None:
        """Deletes a derived item if every rule's guard on it says that nothing contributes."""
        empty = tuple(
            AnyOf((Missing((guard,)), Equal((guard, "n"), {"N": "0"}))) for guard in self._others[rule.into.name]
        )
        exists = Exists((self._store.schema(key.table).partition[0],))
        with suppress(ConditionFailed):  # another rule contributes, or it is gone already
            self._store.write(Delete(key, AllOf((exists, *empty))))

    def _write_claim(
        self,
        rule: CopyRule,
        key: ItemKey,
        values: Mapping[str, Value | None] | None,
        stamp: Value,
        condition: Condition,
        item: Image | None,
    ) -> bool:
        """The least claim's copy; without a claim, no item."""
        guard = self._program.guard(rule.name)
        if values is None:  # only the rule makes such items: a heal deletes one that lost its guard, too
            ours = Exists((guard,)) if item is None else Exists((self._store.schema(key.table).partition[0],))
            self._store.write(Delete(key, AllOf((ours, condition))))
            return True
        stored = item
        if rule.attributes is None and stored is None:
            stored = self._store.get(key)
        gone = {name: None for name in rule.owned(stored) if name not in values}
        wanted = {**gone, **values, guard: stamp}
        if item is not None and all(same(item.get(name), value) for name, value in wanted.items()):
            return False
        self._store.write(_update(key, wanted, condition))
        return True


def _creates(rule: LedgerRule) -> bool:
    """Whether a publish may bring the target to life: a claimed copy, or a derived entity that no copy makes."""
    return isinstance(rule, CopyRule) or (rule.into.derived and not rule.into.copied)


def _update(key: ItemKey, values: Mapping[str, Value | None], condition: Condition) -> Update:
    return Update(
        key,
        set={name: value for name, value in values.items() if value is not None},
        remove=tuple(sorted(name for name, value in values.items() if value is None)),
        condition=condition,
    )

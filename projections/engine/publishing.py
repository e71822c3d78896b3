"""Publishing what groups know onto their targets, and healing what the application overwrote.

A publish reads the group's version, then totals and members, and writes under the condition that the target's guard is
absent or older. Healing and refreshing write if the guard is as read, whatever it says, so that a guard from the future (a
cloned item, a restored ledger) cannot lock the truth out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from projections.engine.effort import Effort, Run, one_by_one, write_all
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
from projections.language.program import Entity, Program
from projections.language.rules import CopyRule, LedgerRule, PickRule
from projections.language.values import same

__all__ = ["Publisher", "creates", "shares_calls"]

_MOST_TRIES = 20


class Publisher:
    """Publishes groups onto targets. What fails is returned by target, never raised for one target's sake.

    Of rules that do not publish now, and of groups that are being rebuilt, nothing is written.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        generations: Generations,
        *,
        run: Run[Any] = one_by_one,
        tally: Tally | None = None,
        publishes: Callable[[LedgerRule], bool] = lambda rule: True,
    ) -> None:
        self._program = program
        self._store = store
        self._generations = generations
        self._run = run
        self._publishes = publishes
        self._others = {
            entity: tuple(program.guard(rule.name) for rule in rules)
            for entity, rules in program.ledger_rules_into.items()
        }
        self._tally = tally or Tally()

    def publish(self, targets: Iterable[Target], effort: Effort) -> dict[Target, StoreError]:
        """Brings targets up to their groups, guard permitting. Gives the failures."""
        known = self._known(targets)
        failures: dict[Target, StoreError] = {}
        if not known:
            return failures
        try:
            effort.check()
            groups = read_groups(self._store, list(known), self._generations)
        except Transient as error:
            return dict.fromkeys(known, error)
        alone = {
            target: rule
            for target, rule in known.items()
            if not (shares_calls(rule) and rule.into.at(decode_key(target[1])))
        }
        self._run(
            [
                partial(self._try, target, partial(self._publish_one, rule, target, groups[target]), effort, failures)
                for target, rule in alone.items()
            ]
        )
        together = [target for target in known if target not in alone and not groups[target].rebuilding]
        self._publish_each({target: known[target] for target in together}, groups, effort, failures)
        return failures

    def heal(self, targets: Iterable[Target], effort: Effort) -> dict[Target, StoreError]:
        """Brings targets up to their groups whatever their guards say. Gives the failures."""
        known = self._known(targets)
        failures: dict[Target, StoreError] = {}
        if not known:
            return failures
        try:
            effort.check()
            keys = {target: decode_key(target[1]) for target in known}
            # another version of the rules may have recorded targets in a table that these do not know
            known_tables = (key for key in keys.values() if key.table in self._program.tables)
            items = self._store.get_many(list(dict.fromkeys(known_tables)))
            groups = read_groups(self._store, list(known), self._generations)  # after the guards
        except Transient as error:
            return dict.fromkeys(known, error)
        pieces = []
        for target, rule in known.items():
            first = (items.get(keys[target]), groups[target])
            pieces.append(
                partial(self._try, target, partial(self._heal_one, rule, target, [first], effort), effort, failures)
            )
        self._run(pieces)
        return failures

    def _known(self, targets: Iterable[Target]) -> dict[Target, LedgerRule]:
        """Targets with their rules, as far as there are such rules and they publish."""
        return {
            target: rule
            for target in sorted(set(targets))
            if (rule := self._rule(target)) is not None and self._publishes(rule)
        }

    def _try(
        self, target: Target, work: Callable[[], None], effort: Effort, failures: dict[Target, StoreError]
    ) -> None:
        attempt = 0
        while True:
            try:
                effort.check()
                return work()
            except (Transient, InvalidRequest) as error:
                attempt += 1
                try:
                    if isinstance(error, InvalidRequest):
                        raise
                    effort.pause(attempt)
                except StoreError:
                    failures[target] = error
                    return None

    def _rule(self, target: Target) -> LedgerRule | None:
        rule = self._program.rules.get(target[0])
        return rule if isinstance(rule, LedgerRule) else None

    def _publish_one(self, rule: LedgerRule, target: Target, group: Group) -> None:
        if group.rebuilding:
            return
        key = decode_key(target[1])
        try:
            self._write(rule, key, target, group, older(self._program.guard(rule.name), group.at), None)
        except ConditionFailed as failed:  # no such item, or published by someone with as new or newer knowledge
            if group.totals.n == 0 and failed.item is not None:
                self._delete_empty(rule, key)  # the one who published the zeros may have died before deleting
            return
        self._tally.add("published")

    def _publish_each(
        self,
        rules: Mapping[Target, LedgerRule],
        groups: Mapping[Target, Group],
        effort: Effort,
        failures: dict[Target, StoreError],
    ) -> None:
        """Targets that are there or are left alone, in few requests: what creates or deletes items needs its own."""
        writes = []
        for target, rule in rules.items():
            group, guard = groups[target], self._program.guard(rule.name)
            values = {**rule.published(group.totals, {}), guard: guard_value(group.at, by=None, n=group.totals.n)}
            key = decode_key(target[1])
            writes.append(_update(key, values, self._on_target(rule, key, older(guard, group.at))))
        for target, answer in zip(rules, write_all(self._store, writes, effort, self._run), strict=True):
            if answer is None:
                self._tally.add("published")
            elif not isinstance(answer, ConditionFailed):  # no such item, or published by one who knew as much
                failures[target] = answer

    def _on_target(self, rule: LedgerRule, key: ItemKey, condition: Condition) -> Condition:
        """The condition, and that there is an item of the kind that the rule writes to.

        What `match` says outright is checked; an item that changes its kind appears, and is healed.
        """
        schema = self._store.schema(key.table)
        constants = rule.into.constants.items()
        kind = tuple(Equal((name,), value) for name, value in constants if name not in schema.key_attributes)
        return AllOf((self._exists(key), *kind, condition))

    def _heal_one(
        self, rule: LedgerRule, target: Target, read: list[tuple[Image | None, Group]], effort: Effort
    ) -> None:
        """`read` holds item and group as they were read together with others, for the first try."""
        key, guard = decode_key(target[1]), self._program.guard(rule.name)
        for _ in range(_MOST_TRIES):
            effort.check()
            if read:
                item, group = read.pop()
            else:
                item = self._store.get(key)
                group = read_groups(self._store, [target], self._generations)[target]
            if group.rebuilding:
                return
            if item is None and not creates(rule):
                return
            held, home = item.get(guard) if item is not None else None, rule.into.at(key)
            if home and item is not None and not creates(rule) and not self._fits(rule, key, item):
                return
            if (item is None and group.totals.n == 0) or (held is None and not home):
                return
            try:
                if self._write(rule, key, target, group, as_read(guard, held), item):
                    self._tally.add("healed")
                return
            except ConditionFailed as failed:
                if failed.item is None and not creates(rule):
                    return
        raise Transient(f"{rule.name}: the guard of a target kept changing while it was healed")

    def _exists(self, key: ItemKey) -> Condition:
        return Exists((self._store.schema(key.table).partition[0],))

    def _fits(self, rule: LedgerRule, key: ItemKey, image: Image) -> bool:
        """Whether an item is of the entity that the rule writes to, by key and `match`."""
        item = self._program.recognise(key, image)
        return item is not None and item.entity is rule.into

    def _write(
        self, rule: LedgerRule, key: ItemKey, target: Target, group: Group, condition: Condition, item: Image | None
    ) -> bool:
        """Writes what the group says unless `item` shows it already. Whether anything had to be written."""
        if not rule.into.at(key):
            return self._write_elsewhere(rule, key, group, condition, item)
        guard = self._program.guard(rule.name)
        members = read_members(self._store, rule, target[1], group)
        values = rule.published(group.totals, members)
        by = members["claim"][0].source if isinstance(rule, CopyRule) and members["claim"] else None
        stamp = guard_value(group.at, by=by, n=group.totals.n)
        if isinstance(rule, CopyRule):
            return self._write_claim(rule, key, values if by is not None else None, stamp, condition, item)
        n, makes = group.totals.n, creates(rule)
        wanted = {**(rule.into.constants if makes else {}), **values, guard: stamp}
        shown = item is not None and all(same(item.get(name), value) for name, value in wanted.items())
        if not shown:
            if not makes:
                condition = self._on_target(rule, key, condition)
            elif n == 0:  # zeros never create: creating and deleting would chase each other forever
                condition = AllOf((self._exists(key), condition))
            self._store.write(_update(key, wanted, condition))
            self._tally.add("cut", int(isinstance(rule, PickRule) and rule.cut(members)))
        if makes and n == 0:
            self._delete_empty(rule, key)
        return not shown

    def _write_elsewhere(
        self, rule: LedgerRule, key: ItemKey, group: Group, condition: Condition, item: Image | None
    ) -> bool:
        """Under a key of another entity, which another version of the rule recorded: it owns no attribute there.

        What that version showed goes when it is retired. But from an item that only rules make and that bears its guard, the
        rule takes what it may have shown under the same names, and the guard says how much still contributes: such items go
        with the last contribution.
        """
        n, guard = group.totals.n, self._program.guard(rule.name)
        condition = AllOf((Exists((guard,)), condition))
        entities = self._program.entities_at(key)
        if isinstance(rule, CopyRule) and n == 0 and _all_are(entities, lambda entity: entity.copied):
            self._store.write(Delete(key, condition))
            return True
        if not _all_are(entities, _made):
            return False
        wanted: dict[str, Value | None] = {guard: guard_value(group.at, by=None, n=n)}
        if not isinstance(rule, CopyRule):
            others = set(self._store.schema(key.table).key_attributes)
            for entity in entities:
                others |= self._program.derived_attributes(entity.name) | entity.constants.keys()
            wanted |= {name: None for name in rule.attributes if name not in others}
        shown = item is not None and all(same(item.get(name), value) for name, value in wanted.items())
        if not shown:
            self._store.write(_update(key, wanted, condition))
        if n == 0:
            self._delete_empty(rule, key)
        return not shown

    def _delete_empty(self, rule: LedgerRule, key: ItemKey) -> None:
        """Deletes an item that only rules make if every rule's guard on it says that nothing contributes.

        Under a key of another entity, which another version of the rule recorded, it must bear the rule's guard: items that
        the rule never published on are none of its business.
        """
        home, guard = rule.into.at(key), self._program.guard(rule.name)
        entities = [rule.into] if home else self._program.entities_at(key)
        if not _all_are(entities, _made):
            return
        guards = {guard}.union(*(self._others.get(entity.name, ()) for entity in entities))
        empty = tuple(AnyOf((Missing((name,)), Equal((name, "n"), {"N": "0"}))) for name in sorted(guards))
        there = self._exists(key) if home else Exists((guard,))
        with suppress(ConditionFailed):  # another rule contributes, or it is gone already
            self._store.write(Delete(key, AllOf((there, *empty))))

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
            ours = Exists((guard,)) if item is None else self._exists(key)
            try:
                self._store.write(Delete(key, AllOf((ours, condition))))
            except ConditionFailed as failed:
                if failed.item is None:
                    return False
                raise
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


def creates(rule: LedgerRule) -> bool:
    """Whether a publish may bring the target to life: a claimed copy, or a derived entity that no copy makes."""
    return isinstance(rule, CopyRule) or _made(rule.into)


def _all_are(entities: Sequence[Entity], kind: Callable[[Entity], bool]) -> bool:
    """Whether any item that these may be is of a kind; False if it may be none of them."""
    return bool(entities) and all(map(kind, entities))


def _made(entity: Entity) -> bool:
    """Whether publishes make an entity's items: nobody else does."""
    return entity.derived and not entity.copied


def shares_calls(rule: LedgerRule) -> bool:
    """Whether publishes go together as batches of statements, which create nothing and read nothing first."""
    return not creates(rule) and not rule.member_queries


def _update(key: ItemKey, values: Mapping[str, Value | None], condition: Condition) -> Update:
    return Update(
        key,
        set={name: value for name, value in values.items() if value is not None},
        remove=tuple(sorted(name for name, value in values.items() if value is None)),
        condition=condition,
    )

"""Publishing what groups know onto their targets, and healing what the application overwrote.

A publish reads the group's version, then totals and members, and writes under the condition that the target's guard is
absent or older. Healing and refreshing write if the guard is as read, whatever it says, so that a guard from the future (a
cloned item, a restored ledger) cannot lock the truth out. Both write only to items of the target's kind; see
`engine.application`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from projections.engine.application import ApplicationItems, Release, occupied, purpose_of
from projections.engine.counters import Counters
from projections.engine.culprits import damaged_group
from projections.engine.deadline import Deadline
from projections.engine.groups import Generations, Group, read_groups, read_members
from projections.engine.guards import Guard, Guards
from projections.engine.ledger_items import Target, group_at
from projections.engine.running import Run, one_by_one, write_all
from projections.engine.store import Image, ItemKey, Store, Update, Value
from projections.errors import ConditionFailed, InvalidRequest, Occupied, StoreError, Transient
from projections.language.entity import Entity
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.rules import LedgerRule, Members
from projections.language.values import differing

__all__ = ["Publisher", "shares_calls", "unpublished"]

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
        guards: Guards,
        run: Run[Any] = one_by_one,
        counters: Counters | None = None,
        publishes: Callable[[LedgerRule], bool] = lambda rule: True,
    ) -> None:
        self._program = program
        self._store = store
        self._generations = generations
        self._guards = guards
        self._items = ApplicationItems(program, store, guards)
        self._run = run
        self._publishes = publishes
        self._counters = counters or Counters()

    def publish(self, targets: Iterable[Target], deadline: Deadline) -> dict[Target, StoreError]:
        """Brings targets up to their groups, guard permitting. Gives the failures."""
        known = self._known(targets)
        failures: dict[Target, StoreError] = {}
        if not known:
            return failures
        try:
            deadline.check()
            groups = read_groups(self._store, list(known), self._generations)
        except Transient as error:
            return dict.fromkeys(known, error)
        updates: dict[Target, Update] = {}
        for target, rule in known.items():
            if groups[target].damaged:
                failures[target] = damaged_group(groups[target].damaged)
            elif shares_calls(rule) and not groups[target].rebuilding:
                update = self._blind(rule, decode_key(target[1]), groups[target], {})
                if update is not None:
                    updates[target] = update
        alone = [target for target in known if target not in updates and not groups[target].withheld]
        self._run(
            [
                partial(
                    self._try,
                    target,
                    partial(self._publish_one, known[target], target, groups[target]),
                    deadline,
                    failures,
                )
                for target in alone
            ]
        )
        self._publish_each(known, updates, groups, deadline, failures)
        return failures

    def heal(self, targets: Iterable[Target], deadline: Deadline) -> dict[Target, StoreError]:
        """Brings targets up to their groups whatever their guards say. Gives the failures."""
        known = self._known(targets)
        failures: dict[Target, StoreError] = {}
        if not known:
            return failures
        try:
            deadline.check()
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
                partial(self._try, target, partial(self._heal_one, rule, target, [first], deadline), deadline, failures)
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
        self, target: Target, work: Callable[[], None], deadline: Deadline, failures: dict[Target, StoreError]
    ) -> None:
        try:
            deadline.retry(work)
        except (Transient, InvalidRequest) as error:
            failures[target] = error

    def _rule(self, target: Target) -> LedgerRule | None:
        return self._program.recorded.get(
            target[0]
        )  # none of a copy that was claimed once, and follows its source today

    def _blind(self, rule: LedgerRule, key: ItemKey, group: Group, members: Members) -> Update | None:
        """The update of an item that nobody has read; None if the item has to be read first."""
        if not rule.into.at(key):
            return None
        wanted = self._wanted(rule, key, group, members)
        if rule.claimed:
            wanted = {**{name: None for name in sorted(rule.owned()) if name not in wanted}, **wanted}
        older = self._guards.older(rule.name, key, group.at)
        return self._items.change(rule.into, key, wanted, older, purpose_of(rule))

    def _publish_one(self, rule: LedgerRule, target: Target, group: Group) -> None:
        key = decode_key(target[1])
        members = read_members(self._store, rule, target[1], group)
        n, item = group.totals.n, None
        update: Update | None = None
        # of a copy of all attributes, and of a claim that is gone, perhaps since its group was read, only the item tells
        # what is to be removed
        if not rule.claimed or (rule.claimant(members) and not rule.copies_all):
            update = self._blind(rule, key, group, members)
        if update is None:
            item = self._get(key)
        elif not rule.creates or group.at != group_at(group.generation, 1):  # else there is no item yet, as a rule
            try:
                self._store.write(update)
            except ConditionFailed as failed:
                item = failed.item
            else:
                if n == 0 and rule.creates:
                    self._delete_empty(rule, key)
                return self._counters.add("published")
        return self._publish_read(rule, target, group, members, item)

    def _get(self, key: ItemKey) -> Image | None:
        return self._store.get(key) if key.table in self._program.tables else None

    def _publish_each(
        self,
        rules: Mapping[Target, LedgerRule],
        updates: Mapping[Target, Update],
        groups: Mapping[Target, Group],
        deadline: Deadline,
        failures: dict[Target, StoreError],
    ) -> None:
        """Targets that are there or are left alone, in few requests: what creates or deletes items needs its own."""
        unsure: list[Target] = []
        answers = write_all(self._store, list(updates.values()), deadline, self._run)
        for target, answer in zip(updates, answers, strict=True):
            if answer is None:
                self._counters.add("published")
            elif not isinstance(answer, ConditionFailed):
                failures[target] = answer
            elif rules[target].into.pattern is not None:  # `match` may fit where no condition can say so
                unsure.append(target)
        if not unsure:  # no such item, or published by one who knew as much
            return
        try:
            deadline.check()
            items = self._store.get_many([decode_key(target[1]) for target in unsure])
        except Transient as error:
            failures.update(dict.fromkeys(unsure, error))
            return
        pieces = []
        for target in unsure:
            rule, key = rules[target], decode_key(target[1])
            item = items.get(key)
            guard = self._items.guard(rule, key, item)
            if self._items.is_of(rule.into, key, item) and (guard is None or guard.at < groups[target].at):
                work = partial(self._publish_read, rule, target, groups[target], {}, item)
                pieces.append(partial(self._try, target, work, deadline, failures))
        self._run(pieces)

    def _publish_read(
        self, rule: LedgerRule, target: Target, group: Group, members: Members, item: Image | None
    ) -> None:
        """Publishes onto an item that was read after its group."""
        for _ in range(_MOST_TRIES):
            try:
                if self._apply(rule, target, group, members, item, heals=False):
                    self._counters.add("published")
                return
            except ConditionFailed as failed:
                item = failed.item
        raise Transient(f"{rule.name}: a target kept changing while it was published")

    def _heal_one(
        self, rule: LedgerRule, target: Target, read: list[tuple[Image | None, Group]], deadline: Deadline
    ) -> None:
        """`read` holds item and group as they were read together with others, for the first try."""
        key = decode_key(target[1])
        for _ in range(_MOST_TRIES):
            deadline.check()
            if read:
                item, group = read.pop()
            else:
                item = self._get(key)
                group = read_groups(self._store, [target], self._generations)[target]
            if group.rebuilding or (item is None and not rule.creates):
                return
            if group.damaged:
                raise damaged_group(group.damaged)
            if item is None and group.totals.n == 0:
                return
            members = read_members(self._store, rule, target[1], group)
            try:
                if self._apply(rule, target, group, members, item, heals=True):
                    self._counters.add("healed")
                return
            except ConditionFailed:
                continue
        raise Transient(f"{rule.name}: the guard of a target kept changing while it was healed")

    def _wanted(self, rule: LedgerRule, key: ItemKey, group: Group, members: Members) -> dict[str, Value | None]:
        """What an item shows of a group, the guard included."""
        stamp = self._guards.stamp(key, group.at, by=rule.claimant(members), n=group.totals.n)
        return {**self._values(rule, group, members), self._guards.name(rule.name): stamp}

    def _values(self, rule: LedgerRule, group: Group, members: Members) -> Mapping[str, Value | None]:
        """What a rule publishes of a group."""
        if rule.cut(members):
            self._counters.add("cut")
        return rule.published(group.totals, members)

    def _apply(
        self, rule: LedgerRule, target: Target, group: Group, members: Members, item: Image | None, *, heals: bool
    ) -> bool:
        """Brings an item up to its group. Whether anything had to be written. Raises ConditionFailed, Occupied.

        The item was read before the group if this `heals`: then its guard may say anything. If it was read after the group,
        it is left alone where its guard is as new.
        """
        key, makes, n = decode_key(target[1]), rule.creates, group.totals.n
        contributed = rule.claimant(members) is not None if rule.claimed else n > 0
        if not rule.into.at(key):
            return item is not None and self._apply_elsewhere(rule, key, group, item, heals=heals)
        if item is None:
            if not makes or not contributed:
                return False
            self._items.create(key, {**rule.created_with, **self._wanted(rule, key, group, members)}, rule)
            return True
        guard = self._items.guard(rule, key, item)
        if not self._items.may_write(rule, rule.into, key, item):
            # The constants of an item that the rule created may be those of another version of its entity: then the guard
            # tells the retirement of that version what it may delete.
            former = guard is not None and self._items.created(key, item) and self._program.recognise(key, item) is None
            # A claim that is gone does not tell what it had published: the guard stays for the record of the item's leaving.
            unknown = rule.claimed and not contributed
            released = (
                guard is not None
                and not (former or unknown)
                and self._items.release(self._left(rule, key, group, members, item))
            )
            if makes and contributed:
                raise occupied(rule.into)
            return released
        newer = guard is not None and guard.at >= group.at and not heals
        if rule.claimed and not contributed:
            return not newer and self._retract_claim(rule, key, group, item, guard)
        if newer:  # the one who published the zeros may have died before deleting
            return makes and n == 0 and self._delete_empty(rule, key)
        wanted = self._wanted(rule, key, group, members)
        if rule.claimed:
            owned = self._guards.owned(rule, key, item)
            wanted = {**{name: None for name in sorted(owned) if name not in wanted}, **wanted}
        wanted = {**rule.created_with, **wanted}
        shown = not differing(item, wanted)
        if not shown:
            self._items.write(rule.into, key, wanted, rule, item)
        if makes and n == 0:
            self._delete_empty(rule, key)
        return not shown

    def _left(self, rule: LedgerRule, key: ItemKey, group: Group, members: Members, item: Image) -> Release:
        """What a rule published on an item that has left its entity, if the item still shows just that.

        Where no record tells, no more is known.
        """
        created = self._items.created(key, item)
        published = {**(rule.into.constants if created else {}), **rule.published(group.totals, members)}
        guard = self._guards.name(rule.name)
        values = {name: [(guard, value)] if value is not None else [] for name, value in published.items()}
        held = (guard, self._guards.mark) if created else (guard,)
        guards = {name: item[name] for name in held}
        return Release(key, rule.into, guards, values, after=item, whole=True, rules=(rule.name,))

    def _apply_elsewhere(self, rule: LedgerRule, key: ItemKey, group: Group, item: Image, *, heals: bool) -> bool:
        """Under a key of another entity, which another version of the rule recorded: it owns no attribute there.

        What that version showed goes when it is retired. But from an item that only rules make and that bears its guard, the
        rule takes what it may have shown under the same names, and the guard says how much still contributes: such items go
        with the last contribution.
        """
        n, guard = group.totals.n, self._items.guard(rule, key, item)
        if guard is None or (guard.at >= group.at and not heals):
            return False
        entities = self._program.entities_at(key)
        entity = next((one for one in entities if self._items.is_of(one, key, item)), None)
        if rule.claimed and n == 0 and entity is not None and _all_are(entities, lambda one: one.copied):
            if not self._items.created(key, item) or self._items.foreign(entity, item):
                return False
            self._items.delete(entity, key, item)
            return True
        if entity is None or not _all_are(entities, lambda one: one.created_by_publishes):
            return False
        stamp = self._guards.stamp(key, group.at, n=n)
        wanted: dict[str, Value | None] = {self._guards.name(rule.name): stamp}
        if not rule.claimed:
            others = set(self._store.schema(key.table).key_attributes)
            for one in entities:
                others |= self._program.derived_attributes(one.name) | one.constants.keys()
            wanted |= {name: None for name in rule.owned() if name not in others}
        shown = not differing(item, wanted)
        if not shown:
            self._items.write(entity, key, wanted, rule, item)
        if n == 0:
            self._delete_empty(rule, key, entity)
        return not shown

    def _delete_empty(self, rule: LedgerRule, key: ItemKey, entity: Entity | None = None) -> bool:
        """Deletes an item that rules created if every rule's guard on it says that nothing contributes, and nothing of the
        application is on it. Whether it was deleted.

        It is read after this rule's zeros were written: of several rules that do so at once, the last one sees all zeros.
        """
        entity = entity or rule.into
        item = self._get(key) if entity.created_by_publishes else None
        if item is None:
            return False
        rules = {one.name: one for one in self._program.ledger_rules_into.get(entity.name, ())} | {rule.name: rule}
        found = [guard for one in rules.values() if (guard := self._items.guard(one, key, item)) is not None]
        if any(guard.n != 0 for guard in found) or not self._items.created(key, item):
            return False
        if self._items.foreign(entity, item):
            return False
        try:
            self._items.delete(entity, key, item, rules=rules)
        except ConditionFailed:  # another rule contributes by now, or it is gone already
            return False
        return True

    def _retract_claim(self, rule: LedgerRule, key: ItemKey, group: Group, item: Image, guard: Guard | None) -> bool:
        """Without a claim: an item that the rule created goes; of any other only what the rule set, as its guard tells."""
        if self._items.created(key, item) and not self._items.foreign(rule.into, item):
            self._items.delete(rule.into, key, item, rules=(rule.name,))
            return True
        if guard is None:
            return False
        owned = set(rule.owned()) - rule.into.constants.keys()
        stamp = self._guards.stamp(key, group.at, n=0)
        wanted: dict[str, Value | None] = {**dict.fromkeys(sorted(owned)), self._guards.name(rule.name): stamp}
        if not differing(item, wanted):
            return False
        self._items.write(rule.into, key, wanted, rule, item)
        return True


def unpublished(failures: Mapping[Target, StoreError]) -> set[Target]:
    """The targets that have still to be published. Where an item of another kind is there, nothing is: its removal will be
    seen.
    """
    return {target for target, error in failures.items() if not isinstance(error, Occupied)}


def _all_are(entities: Sequence[Entity], kind: Callable[[Entity], bool]) -> bool:
    """Whether any item that these may be is of a kind; False if it may be none of them."""
    return bool(entities) and all(map(kind, entities))


def shares_calls(rule: LedgerRule) -> bool:
    """Whether publishes go together as batches of statements, which create nothing and read nothing first."""
    return not rule.creates and not rule.member_queries

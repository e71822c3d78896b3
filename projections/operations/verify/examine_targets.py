"""Examines the targets of groups: a target's guard is read before its group."""

from __future__ import annotations

from collections.abc import Sequence

from projections.engine.application import ApplicationItems
from projections.engine.groups import Generations, read_groups, read_members
from projections.engine.store import Image, ItemKey, Store
from projections.language.keys import decode_key, encode_key
from projections.language.rules import LedgerRule
from projections.operations.verify import published, showing
from projections.operations.verify.drift import Drift
from projections.operations.verify.finding import Finding, image_digest, occupied, recognised, state_text
from projections.operations.verify.scope import Scope
from projections.operations.verify.subject import Subject

__all__ = ["TargetExaminer"]


class TargetExaminer:
    """Examines targets and groups under a scope's rules."""

    def __init__(self, scope: Scope, store: Store, items: ApplicationItems) -> None:
        self._scope = scope
        self._program = scope.program
        self._store = store
        self._guards = scope.guards
        self._items = items

    def examine(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(dict.fromkeys(keys.values())))
        generations = Generations()
        groups = read_groups(self._store, [(subject.rule, subject.key) for subject in subjects], generations)
        found = {}
        for subject, key in keys.items():
            rule = self._scope.rule(subject.rule)
            assert rule is not None
            item, group = images.get(key), groups[subject.rule, subject.key]
            if not rule.into.at(key):
                found[subject] = Finding()  # recorded by another version of the rule, for another entity
                continue
            if item is not None and not rule.creates:
                known = recognised(self._program, key, item)
                if known is None or known.entity is not rule.into:
                    found[subject] = Finding()  # not an item that the rule writes to
                    continue
            if item is None and not rule.creates:
                found[subject] = Finding()
                continue
            members = read_members(self._store, rule, subject.key, group)
            guard = self._guards.read(rule.name, key, item)
            if item is not None and not self._items.may_write(rule, rule.into, key, item):
                drifts = []
                if group.totals.n and not group.withheld:
                    common = Drift("", rule.name, subject.key, shadow=self._scope.shadow(rule))
                    drifts = [occupied(common, item)]
            else:
                drifts = published.differences(self._scope, rule, key, item, group, members)
                empty = item is not None and rule.creates and group.totals.n == 0 and not self._scope.shadow(rule)
                if item is not None and empty and (drifts or self._scope.empty(rule.into.name, key, item)):
                    drifts += self._unwanted(rule, key, item, generations)
            held = item.get(self._program.guard(rule.name)) if item is not None else None
            state = state_text(held, [drift.text() for drift in drifts], group.at)
            at = guard.at if guard is not None else ""
            versions = (at, group.at) if drifts and at < group.at else ("", "")
            found[subject] = Finding(state, tuple(drifts), image_digest(item), *versions)
        return found

    def _unwanted(self, rule: LedgerRule, key: ItemKey, item: Image, generations: Generations) -> list[Drift]:
        """Return a drift for an item that rules created, to which no rule contributes, and which has nothing else."""
        target, rules = encode_key(key), self._scope.all_live_into(rule.into.name)
        if rules is None or self._items.foreign(rule.into, item):
            return []
        if not self._items.created(key, item):
            return []
        if rule.claimed:
            rules = (rule,)
        groups = read_groups(self._store, [(one.name, target) for one in rules], generations)
        if any(group.totals.n or group.withheld for group in groups.values()):
            return []
        names = rule.owned(item)
        guard = self._guards.read(rule.name, key, item)
        source, at = (guard.by or None, guard.at or None) if guard is not None else (None, None)
        return [Drift("target extra", rule.name, target, None, showing.item(item, names), None, source, at)]

    def examine_rebuilds(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        groups = read_groups(self._store, [(subject.rule, subject.key) for subject in subjects], Generations())
        found = {}
        for subject in subjects:
            group = groups[subject.rule, subject.key]
            drift = Drift("rebuilding", subject.rule, subject.key, at=group.at)
            found[subject] = Finding(group.at, (drift,) if group.rebuilding else ())
        return found

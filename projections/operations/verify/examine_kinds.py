"""Examines copies, children and targets: what shows a value is read before what it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from projections.engine.application import ApplicationItems
from projections.engine.copies import copies_of
from projections.engine.embed_lists import references_of
from projections.engine.embeds import Embedder, Fence, reference_of
from projections.engine.groups import Generations, read_groups, read_members
from projections.engine.ledger_items import fence_key
from projections.engine.store import Image, ItemKey, Store
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.rules import CopyRule, LedgerRule
from projections.operations.verify import showing, views
from projections.operations.verify.drift import (
    LEFT_OVER,
    Drift,
    Finding,
    image_digest,
    occupied,
    recognised,
    state_text,
)
from projections.operations.verify.scope import Scope, Subject

__all__ = ["ChildExaminer", "CopyExaminer", "TargetExaminer"]


class CopyExaminer:
    """Examines copies under a scope's rules."""

    def __init__(self, scope: Scope, store: Store, items: ApplicationItems) -> None:
        self._scope = scope
        self._program = scope.program
        self._store = store
        self._guards = scope.guards
        self._items = items

    def examine(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        targets = {subject: decode_key(subject.key) for subject in subjects}
        items = self._store.get_many(list(dict.fromkeys(targets.values())))
        sources: dict[Subject, list[str]] = {}
        for subject in subjects:
            guard = self._guards.read(subject.rule, targets[subject], items.get(targets[subject]))
            held = guard.by if guard is not None else ""
            sources[subject] = sorted({*subject.sources, held} - {""})
        keys = {source: decode_key(source) for some in sources.values() for source in some}
        images = self._store.get_many(list(keys.values()))
        found = {}
        for subject in subjects:
            rule = self._program.guarded_copies[subject.rule]
            made: tuple[str, Image] | None = None
            for source in sources[subject]:
                copies = copies_of(rule, recognised(self._program, keys[source], images.get(keys[source])))
                if targets[subject] in copies:
                    made = source, copies[targets[subject]]
                    break
            found[subject] = self._copy(rule, subject.key, items.get(targets[subject]), made)
        return found

    def _copy(self, rule: CopyRule, target: str, item: Image | None, made: tuple[str, Image] | None) -> Finding:
        shadow, name, key = self._scope.shadow(rule), self._program.guard(rule.name), decode_key(target)
        guard = self._guards.read(rule.name, key, item)
        held = item.get(name) if item is not None else None
        common = Drift("", rule.name, target, at=guard.at or None if guard is not None else None, shadow=shadow)
        drifts: list[Drift] = []
        names = rule.owned(item) if guard is None else self._guards.owned(rule, key, item)
        may_write = item is not None and self._items.may_write(rule, rule.into, key, item)
        if made is None:
            if item is not None and guard is not None and guard.by and guard.n != 0 and not shadow and may_write:
                drifts = [replace(common, kind="copy extra", actual=showing.item(item, names), source=guard.by)]
            elif item is not None and guard is None and not shadow and self._items.created(key, item):
                drifts = [replace(common, kind=LEFT_OVER, actual=showing.item(item, names))]
        elif item is not None and not may_write:
            drifts = [occupied(replace(common, source=made[0]), item)]
        elif item is None:
            drifts = [replace(common, kind="copy missing", expected=showing.item(made[1]), source=made[0])]
        else:
            source, wanted = made
            common = replace(common, kind="copy stale", source=source)
            drifts = views.wrong_values(
                common, item, {name: wanted.get(name) for name in sorted(names | wanted.keys())}
            )
            if not drifts and not shadow and (guard is None or guard.by != source):
                actual = showing.guard(held, guard, "by")
                drifts = [replace(common, kind="guard", attribute=name, actual=actual, expected={"by": source})]
        drifts = self._scope.attributed(rule, key, item, drifts)
        return Finding(state_text(held, showing.item(item or {}, names), made), tuple(drifts), image_digest(item))


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
                drifts = views.differences(self._scope, rule, key, item, group, members)
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
        if rules is None or self._items.foreign(rule.into, key, item):
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


class ChildExaminer:
    """Examines children under a scope's rules."""

    def __init__(self, scope: Scope, store: Store) -> None:
        self._scope = scope
        self._program = scope.program
        self._store = store
        self._guards = scope.guards
        self._embedder = Embedder(scope.program, store, scope.guards)

    def examine(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        children = {subject: recognised(self._program, key, images.get(key)) for subject, key in keys.items()}
        every = [
            (subject, child, rule)
            for subject, child in children.items()
            if child is not None
            for rule in self._scope.embeds_into.get(child.entity.name, ())
        ]
        pairs = [
            (subject, child, rule, reference_of(rule, child)[0])
            for subject, child, rule in every
            if not isinstance(rule, ListEmbedRule)
        ]
        fences = {(rule.name, key): fence_key(rule.name, encode_key(key)) for _, _, rule, key in pairs if key}
        raised = {} if self._scope.offline else self._store.get_many(list(dict.fromkeys(fences.values())))
        parents = self._store.get_many(list(dict.fromkeys(key for _, _, _, key in pairs if key)))
        found = dict.fromkeys(subjects, Finding())
        for subject, child, rule, key in pairs:
            fence = raised.get(fences[rule.name, key]) if key is not None else None
            one = self._child(rule, child, key, Fence.read(fence), parents.get(key) if key is not None else None)
            if one.drifts or not found[subject].drifts:
                found[subject] = _both(found[subject], one)
        for subject, child, rule in every:
            if isinstance(rule, ListEmbedRule):
                found[subject] = _both(found[subject], self._listed(rule, child))
        return found

    def _listed(self, rule: ListEmbedRule, child: Item) -> Finding:
        """Examine a child of several parents, and its links: a parent that has none would not push to it."""
        name, shadow = self._program.guard(rule.name), self._scope.shadow(rule)
        references = references_of(rule, child)[0]
        parents = self._store.get_many([one.key for one in references or () if one.key is not None])
        lists = self._embedder.lists
        wanted = lists.wanted(rule, child, references, parents, "")
        common = Drift("embed", rule.name, encode_key(child.key), shadow=shadow)
        drifts = views.wrong_values(common, child.image, {rule.list_name: wanted.values[rule.list_name]})
        if not shadow and not self._scope.offline:
            guard = self._guards.read(rule.name, child.key, child.image)
            if not drifts and (guard is None) != (references is None):
                actual = showing.guard(child.image.get(name), guard, "at")
                wanted_guard = showing.VALID if references is not None else None
                drifts.append(replace(common, kind="guard", attribute=name, actual=actual, expected=wanted_guard))
            drifts += [
                replace(common, kind="link", source=parent, expected=common.target)
                for parent in lists.unlinked(rule, child.key, references)
            ]
        drifts = self._scope.attributed(rule, child.key, child.image, drifts)
        return Finding(
            state_text(child.image.get(name), [drift.text() for drift in drifts], ""),
            tuple(drifts),
            image_digest(child.image),
        )

    def _child(
        self, rule: EmbedRule, child: Item, parent: ItemKey | None, fence: Fence, image: Image | None
    ) -> Finding:
        name, shadow = self._program.guard(rule.name), self._scope.shadow(rule)
        guard, by = (
            self._guards.read(rule.name, child.key, child.image),
            encode_key(parent) if parent is not None else None,
        )
        held, at = child.image.get(name), guard.at if guard is not None else ""
        own = guard is not None and guard.by == by
        if shadow and image is None and parent is not None and rule.on_delete == "keep":
            return Finding()
        wanted = self._embedder.wanted(rule, child, parent, fence, image)
        common = Drift("embed", rule.name, encode_key(child.key), at=at or None, source=by, shadow=shadow)
        drifts = views.wrong_values(
            common, child.image, {each: wanted[each] for each in rule.owned() if each in wanted}
        )
        state = state_text(held, [drift.text() for drift in drifts], fence.version)
        late = bool(drifts) and own and at < fence.version
        if not shadow:
            common = replace(common, kind="guard", attribute=name)
            if by is None:
                if held is not None and not drifts:
                    drifts.append(replace(common, actual=showing.guard(held, guard, "by")))
            elif own and at > fence.version:
                drifts.append(replace(common, actual={"at": at}, expected={"at": fence.version}))
            elif not own and not drifts and name in wanted:
                drifts.append(replace(common, actual=showing.guard(held, guard, "by"), expected={"by": by}))
        drifts = self._scope.attributed(rule, child.key, child.image, drifts)
        if late:
            return Finding(state, tuple(drifts), image_digest(child.image), at, fence.version, f"{rule.name}|{by}")
        return Finding(state, tuple(drifts), image_digest(child.image))


def _both(one: Finding, other: Finding) -> Finding:
    """Return one finding of two rules for a child."""
    if not one.drifts:
        return other
    if not other.drifts:
        return one
    late = one.push and other.push
    return Finding(
        f"{one.state} {other.state}",
        one.drifts + other.drifts,
        other.image,
        other.reached if late else "",
        other.known if late else "",
        other.push if late else "",
    )

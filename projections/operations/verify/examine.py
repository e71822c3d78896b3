"""Examines subjects: reads everything again, in the order in which the engine reads, and compares it exactly.

An entry is read before its item, a copy before its source, a child's guard before the fence and the fence before the parent,
a target's guard before its group. What is read later is at least as new, so a difference is drift or lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from projections.engine.application import ApplicationItems
from projections.engine.copies import copies_of
from projections.engine.embed_lists import references_of
from projections.engine.embeds import Embedder, Fence, reference_of
from projections.engine.groups import Group, read_groups, read_members
from projections.engine.guards import Guard
from projections.engine.indexes import index_attributes
from projections.engine.ledger_items import Entry, Target, entry_key, fence_key
from projections.engine.rejections import Failures
from projections.engine.store import Image, ItemKey, Store, Value
from projections.errors import BadInput
from projections.language.contribution import Contributions
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.rules import CopyRule, LedgerRule, Member
from projections.language.values import differing
from projections.operations.verify import showing
from projections.operations.verify.drift import LEFT_OVER, Drift, Finding, finding
from projections.operations.verify.scanning import patiently
from projections.operations.verify.verify_scope import (
    CHILD,
    COPY,
    INDEX,
    ITEM,
    LEFT,
    SOURCE,
    TARGET,
    Scope,
    Subject,
    left_on,
    roles,
)


class Examiner:
    """Examines subjects under a scope's rules, many at a time. Raises what the store raises."""

    def __init__(self, scope: Scope, store: Store, sleep: Callable[[float], None] = time.sleep) -> None:
        self._scope = scope
        self._sleep = sleep
        self._program = scope.program
        self._store = store
        self._items = ApplicationItems(scope.program, store, scope.guards)
        self._guards = scope.guards
        self._embedder = Embedder(scope.program, store, scope.guards)
        self._kinds: dict[str, Callable[[Sequence[Subject]], Mapping[Subject, Finding]]] = {
            SOURCE: self._sources,
            COPY: self._copies,
            INDEX: self._indexes,
            CHILD: self._children,
            TARGET: self._targets,
            ITEM: self._failing,
            LEFT: self._left_over,
        }

    def examine(self, subjects: Iterable[Subject]) -> dict[Subject, Finding]:
        """Return the finding for each subject as it is now."""
        by_kind: dict[str, list[Subject]] = {}
        for subject in dict.fromkeys(subjects):
            by_kind.setdefault(subject.kind, []).append(subject)
        findings: dict[Subject, Finding] = {}
        for kind, of_kind in by_kind.items():
            findings.update(self._apart(self._kinds[kind], of_kind))
        for subject, result in findings.items():
            if result.drifts:
                findings[subject] = replace(result, drifts=tuple(map(self._scope.with_sides, result.drifts)))
        return findings

    def _apart(
        self, examine: Callable[[Sequence[Subject]], Mapping[Subject, Finding]], subjects: Sequence[Subject]
    ) -> dict[Subject, Finding]:
        """Examine many subjects, and fewer at a time if that fails unexpectedly. One that fails alone is a finding."""
        findings: dict[Subject, Finding] = {}
        again = Failures().apart(subjects, lambda part: findings.update(patiently(partial(examine, part), self._sleep)))
        return findings | {subject: _error_finding(subject, error) for subject, error in again}

    def _read(self, subjects: Sequence[Subject]) -> list[tuple[Subject, ItemKey, Image | None]]:
        """Return each subject with its item."""
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(dict.fromkeys(keys.values())))
        return [(subject, key, images.get(key)) for subject, key in keys.items()]

    # Items that cannot be compared

    def _failing(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        """Examine each subject alone. An error becomes a finding."""
        findings = dict.fromkeys(subjects, Finding())
        for subject, key, image in self._read(subjects):
            try:
                if image is not None:
                    roles(self._scope, key, image)
                    self._program.evaluate(key, image)
            except Exception as error:
                findings[subject] = _error_finding(subject, error, image)
        return findings

    def _left_over(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        """Examine items for values that rules left on them."""
        findings = dict.fromkeys(subjects, Finding())
        for subject, key, image in self._read(subjects):
            if image is not None:
                drifts = left_on(self._scope, self._items, key, image, self._program.recognise(key, image))
                findings[subject] = finding(drifts, image)
        return findings

    # Entries

    def _sources(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        entries = self._store.get_many([entry_key(subject.key) for subject in subjects])
        findings = {}
        for subject, key, image in self._read(subjects):
            held = entries.get(entry_key(subject.key))
            findings[subject] = self._source(subject.key, Entry.read(held) if held is not None else None, key, image)
        return findings

    def _source(self, source: str, entry: Entry | None, key: ItemKey, image: Image | None) -> Finding:
        held = entry.contributions if entry is not None else {}
        goal = contributions_goal(self._scope, entry, key, image)
        drifts: list[Drift] = []
        for rule in sorted(self._scope.recorded & (held.keys() | goal.keys())):
            plainly = partial(showing.contribution, self._program.rules[rule])
            olds, news = held.get(rule, {}), goal.get(rule, {})
            for target in sorted(olds.keys() | news.keys()):
                old, new = olds.get(target) or None, news.get(target) or None
                if old != new:
                    kind = "entry missing" if old is None else "entry extra" if new is None else "entry stale"
                    at = entry.version or None if entry is not None else None
                    raw = [old or {}, new or {}]
                    drifts.append(Drift(kind, rule, target, None, plainly(old), plainly(new), source, at, raw=raw))
        revision = entry.revision if entry is not None else None
        return finding(drifts, None, revision, goal)

    # Index attributes

    def _indexes(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        findings = {}
        for subject, key, image in self._read(subjects):
            item = self._program.recognise(key, image)
            drifts: list[Drift] = []
            for rule in self._scope.indexes.get(item.entity.name, ()) if item is not None else ():
                assert item is not None
                unpublished = self._scope.is_unpublished(rule)
                common = Drift(rule.kind, rule.name, subject.key, source=subject.key, unpublished=unpublished)
                drifts += wrong_values(common, item.image, index_attributes(rule, item)[0])
            findings[subject] = finding(drifts, image)
        return findings

    # Copies

    def _copies(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        targets = {subject: decode_key(subject.key) for subject in subjects}
        items = self._store.get_many(list(dict.fromkeys(targets.values())))
        sources: dict[Subject, list[str]] = {}
        for subject in subjects:
            guard = self._guards.read(subject.rule, targets[subject], items.get(targets[subject]))
            held = guard.by if guard is not None else ""
            sources[subject] = sorted({*subject.sources, held} - {""})
        keys = {source: decode_key(source) for texts in sources.values() for source in texts}
        images = self._store.get_many(list(keys.values()))
        findings = {}
        for subject in subjects:
            rule = self._program.guarded_copies[subject.rule]
            made: tuple[str, Image] | None = None
            flaws: dict[str, str] = {}
            for source in sources[subject]:
                copies = copies_of(rule, self._program.recognise(keys[source], images.get(keys[source])), flaws)
                if targets[subject] in copies:
                    made = source, copies[targets[subject]]
                    break
            item = items.get(targets[subject])
            if made is None and flaws:  # the copy stays as it is until its source can be evaluated
                findings[subject] = _error_finding(subject, BadInput(flaws[rule.name]), item)
            else:
                findings[subject] = self._copy(rule, subject.key, item, made)
        return findings

    def _copy(self, rule: CopyRule, target: str, item: Image | None, made: tuple[str, Image] | None) -> Finding:
        unpublished, name, key = self._scope.is_unpublished(rule), self._program.guard(rule.name), decode_key(target)
        guard = self._guards.read(rule.name, key, item)
        held = item.get(name) if item is not None else None
        at = guard.at or None if guard is not None else None
        common = Drift("", rule.name, target, at=at, unpublished=unpublished)
        drifts: list[Drift] = []
        names = rule.owned(item) if guard is None else self._guards.owned_attributes(rule, key, item)
        may_write = item is not None and self._items.may_write(rule, rule.into, key, item)
        if made is None:
            if item is not None and guard is not None and guard.by and guard.n != 0 and not unpublished and may_write:
                drifts = [replace(common, kind="copy extra", actual=showing.item(item, names), source=guard.by)]
            elif item is not None and guard is None and not unpublished and self._guards.is_created(key, item):
                drifts = [replace(common, kind=LEFT_OVER, actual=showing.item(item, names))]
        elif item is not None and not may_write:
            drifts = [replace(common, kind="occupied", source=made[0], actual=showing.item(item))]
        elif item is None:
            drifts = [replace(common, kind="copy missing", expected=showing.item(made[1]), source=made[0])]
        else:
            source, wanted = made
            common = replace(common, kind="copy stale", source=source)
            drifts = wrong_values(common, item, {name: wanted.get(name) for name in sorted(names | wanted.keys())})
            if not drifts and not unpublished and (guard is None or guard.by != source):
                actual = showing.guard(held, guard, "by")
                drifts = [replace(common, kind="guard", attribute=name, actual=actual, expected={"by": source})]
        drifts = self._scope.with_ledger(rule, key, item, drifts)
        return finding(drifts, item, held, showing.item(item or {}, names), made)

    # Targets and groups

    def _targets(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        items = self._read(subjects)
        groups = self._read_groups([(subject.rule, subject.key) for subject in subjects])
        findings = {}
        for subject, key, item in items:
            rule, group = self._scope.rule(subject.rule), groups[subject.rule, subject.key]
            assert rule is not None
            known = self._program.recognise(key, item)
            is_target = rule.creates or (known is not None and known.entity is rule.into)
            if not is_target:
                findings[subject] = Finding()
                continue
            members = read_members(self._store, rule, subject.key)
            guard = self._guards.read(rule.name, key, item)
            if item is not None and not self._items.may_write(rule, rule.into, key, item):
                drifts = []
                if group.totals.n and not group.damaged:
                    actual, unpublished = showing.item(item), self._scope.is_unpublished(rule)
                    drifts = [Drift("occupied", rule.name, subject.key, actual=actual, unpublished=unpublished)]
            else:
                drifts = differences(self._scope, rule, key, item, group, members)
                empty = rule.creates and group.totals.n == 0 and not self._scope.is_unpublished(rule)
                if item is not None and empty and (drifts or self._scope.empty(rule.into.name, key, item)):
                    drifts += self._unwanted_item(rule, key, item)
            held = item.get(self._program.guard(rule.name)) if item is not None else None
            findings[subject] = finding(drifts, item, held, group.at)
            at = guard.at if guard is not None else ""
            if drifts and at < group.at:
                findings[subject] = replace(findings[subject], reached=at, known=group.at)
        return findings

    def _unwanted_item(self, rule: LedgerRule, key: ItemKey, item: Image) -> list[Drift]:
        """Return a drift for an item that rules created, to which no rule contributes, and which has nothing else."""
        target, rules = encode_key(key), self._scope.all_live_into(rule.into.name)
        if rules is None or self._items.foreign(rule.into, key, item) or not self._guards.is_created(key, item):
            return []
        if rule.claimed:
            rules = (rule,)
        groups = self._read_groups([(maker.name, target) for maker in rules])
        if any(group.totals.n or group.damaged for group in groups.values()):
            return []
        names = rule.owned(item)
        guard = self._guards.read(rule.name, key, item)
        source, at = (guard.by or None, guard.at or None) if guard is not None else (None, None)
        return [Drift("target extra", rule.name, target, None, showing.item(item, names), None, source, at)]

    def _read_groups(self, targets: Sequence[Target]) -> Mapping[Target, Group]:
        return read_groups(self._store, targets, self._scope.promotion)

    # Children

    def _children(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        children = {subject: self._program.recognise(key, image) for subject, key, image in self._read(subjects)}
        into = self._scope.embeds_into
        known = [(subject, child) for subject, child in children.items() if child is not None]
        every = [(subject, child, rule) for subject, child in known for rule in into.get(child.entity.name, ())]
        single = [each for each in every if not isinstance(each[2], ListEmbedRule)]
        pairs = [(subject, child, rule, reference_of(rule, child)[0]) for subject, child, rule in single]
        fences = {(rule.name, key): fence_key(rule.name, encode_key(key)) for _, _, rule, key in pairs if key}
        raised = {} if self._scope.offline else self._store.get_many(list(dict.fromkeys(fences.values())))
        parents = self._store.get_many(list(dict.fromkeys(key for _, _, _, key in pairs if key)))
        findings = dict.fromkeys(subjects, Finding())
        for subject, child, rule, key in pairs:
            fence = raised.get(fences[rule.name, key]) if key is not None else None
            result = self._child(rule, child, key, Fence.read(fence), parents.get(key) if key is not None else None)
            if result.drifts or not findings[subject].drifts:
                findings[subject] = _both(findings[subject], result)
        for subject, child, rule in every:
            if isinstance(rule, ListEmbedRule):
                findings[subject] = _both(findings[subject], self._list_finding(rule, child))
        return findings

    def _list_finding(self, rule: ListEmbedRule, child: Item) -> Finding:
        """Examine a child of several parents, and its links: a parent that has none would not push to it."""
        name, unpublished = self._program.guard(rule.name), self._scope.is_unpublished(rule)
        references = references_of(rule, child)[0]
        parents = self._store.get_many([parent.key for parent in references or () if parent.key is not None])
        lists = self._embedder.lists
        wanted = lists.wanted_attributes(rule, child, references, parents, "")
        common = Drift("embed", rule.name, encode_key(child.key), unpublished=unpublished)
        drifts = wrong_values(common, child.image, {rule.list_name: wanted.values[rule.list_name]})
        if not unpublished and not self._scope.offline:
            guard = self._guards.read(rule.name, child.key, child.image)
            if not drifts and (guard is None) != (references is None):
                actual = showing.guard(child.image.get(name), guard, "at")
                wanted_guard = showing.VALID if references is not None else None
                drifts.append(replace(common, kind="guard", attribute=name, actual=actual, expected=wanted_guard))
            drifts += [
                replace(common, kind="link", source=parent, expected=common.target)
                for parent in lists.missing_links(rule, child.key, references)
            ]
        drifts = self._scope.with_ledger(rule, child.key, child.image, drifts)
        return finding(drifts, child.image, child.image.get(name))

    def _child(
        self, rule: EmbedRule, child: Item, parent: ItemKey | None, fence: Fence, image: Image | None
    ) -> Finding:
        name, unpublished = self._program.guard(rule.name), self._scope.is_unpublished(rule)
        guard = self._guards.read(rule.name, child.key, child.image)
        by = encode_key(parent) if parent is not None else None
        held, at = child.image.get(name), guard.at if guard is not None else ""
        own = guard is not None and guard.by == by
        if unpublished and image is None and parent is not None and rule.on_delete == "keep":
            return Finding()
        wanted = self._embedder.wanted_attributes(rule, child, parent, fence, image)
        common = Drift("embed", rule.name, encode_key(child.key), at=at or None, source=by, unpublished=unpublished)
        drifts = wrong_values(common, child.image, {each: wanted[each] for each in rule.owned() if each in wanted})
        late = bool(drifts) and own and at < fence.version
        if not unpublished:
            common = replace(common, kind="guard", attribute=name)
            if by is None:
                if held is not None and not drifts:
                    drifts.append(replace(common, actual=showing.guard(held, guard, "by")))
            elif own and at > fence.version:
                drifts.append(replace(common, actual={"at": at}, expected={"at": fence.version}))
            elif not own and not drifts and name in wanted:
                drifts.append(replace(common, actual=showing.guard(held, guard, "by"), expected={"by": by}))
        drifts = self._scope.with_ledger(rule, child.key, child.image, drifts)
        result = finding(drifts, child.image, held, fence.version)
        return replace(result, reached=at, known=fence.version, push=f"{rule.name}|{by}") if late else result


def contributions_goal(scope: Scope, entry: Entry | None, key: ItemKey, image: Image | None) -> Contributions:
    """Return the contributions that the entry of a source item should have."""
    goal = dict(scope.program.evaluate(key, image).contributions)
    if image is None and entry is not None:  # it may have expired, and the record of that is still to come, or was lost
        rules, held = scope.program.rules, entry.contributions.items()
        goal |= {name: of for name, of in held if name in rules and rules[name].expired == "keep"}
    return goal


def _error_finding(subject: Subject, error: Exception, image: Image | None = None) -> Finding:
    text = f"{type(error).__name__}: {error}"
    return finding([Drift("error", subject.rule, subject.key, actual=text)], image)


def _both(first: Finding, second: Finding) -> Finding:
    """Return one finding of two rules for a child."""
    if not first.drifts:
        return second
    if not second.drifts:
        return first
    if not (first.push and second.push):
        second = replace(second, reached="", known="", push="")
    return replace(second, state=f"{first.state} {second.state}", drifts=first.drifts + second.drifts)


def differences(
    scope: Scope,
    rule: LedgerRule,
    key: ItemKey,
    item: Image | None,
    group: Group,
    members: Mapping[str, Sequence[Member]],
) -> list[Drift]:
    """Return the differences between an item and its group, which was read later. The item is of the target entity, or None.

    An item that should not exist is not reported here, because that depends on the groups of other rules, too.
    """
    if group.damaged:
        return []
    unpublished, makes, n = scope.is_unpublished(rule), rule.creates, group.totals.n
    values = rule.published(group.totals, members)
    guard, target = scope.guards.read(rule.name, key, item), encode_key(key)
    at = guard.at or None if guard is not None else None
    common = Drift("", rule.name, target, at=at, source=_source(rule, members), unpublished=unpublished)
    if makes and n == 0 and item is None:
        return []
    unclaimed = rule.claimed and rule.claimant(members) is None
    if unclaimed and (guard is None or guard.n == 0):
        return []  # not the rule's item, or the rest of one
    if item is None:
        return [replace(common, kind="target missing", expected=showing.item(values))] if makes else []
    if rule.claimed:
        owned = rule.owned(item) if guard is None else scope.guards.owned_attributes(rule, key, item)
        if unclaimed:
            owned = set(owned) - rule.into.constants.keys()
        values = {**{name: None for name in owned if name not in values}, **values}
    values = {**rule.created_with, **values}
    drifts = wrong_values(replace(common, kind="value"), item, values)
    if not unpublished:
        common = replace(common, kind="guard", attribute=scope.program.guard(rule.name))
        drifts += _guard(rule, common, item, guard, group, members, bool(drifts))
    return scope.with_ledger(rule, key, item, drifts)


def wrong_values(common: Drift, item: Image, desired: Mapping[str, Value | None]) -> list[Drift]:
    """Return a drift for each attribute that differs from the desired value; `common` has their common fields."""
    pairs = {name: showing.both(item.get(name), value) for name, value in differing(item, desired).items()}
    return [replace(common, attribute=name, actual=actual, expected=wanted) for name, (actual, wanted) in pairs.items()]


def _guard(
    rule: LedgerRule,
    common: Drift,
    item: Image,
    guard: Guard | None,
    group: Group,
    members: Mapping[str, Sequence[Member]],
    wrong: bool,
) -> Iterator[Drift]:
    """A guard with a future version is reported beside wrong values, another guard only if the values are correct."""
    held = item.get(common.attribute or "")
    if guard is not None and guard.at > group.at:
        yield replace(common, actual={"at": guard.at}, expected={"at": group.at})
    elif wrong:
        return
    elif guard is None:
        yield replace(common, actual=showing.guard(held, guard, "at"), expected={"at": group.at})
    elif (by := rule.claimant(members)) is not None and guard.by != by:
        yield replace(common, actual={"by": guard.by}, expected={"by": by})
    elif guard.at == group.at and guard.n != group.totals.n:
        yield replace(common, actual={"n": guard.n}, expected={"n": group.totals.n})


def _source(rule: LedgerRule, members: Mapping[str, Sequence[Member]]) -> str | None:
    """The source whose attributes are shown, where it is a single one."""
    if rule.carries and all(query.limit == 1 for query in rule.member_queries):
        return next((rows[0].source for rows in members.values() if rows), None)
    return None

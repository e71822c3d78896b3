"""Examining subjects: everything is read again, in the order in which the protocols read, and compared exactly.

An entry before its item; a copy before its source; a child's guard before the fence, and that before the parent; a target's
guard before its group. So what is read later is at least as new, and what seems to be wrong is wrong, or late.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b

from projections.engine.application import ApplicationItems
from projections.engine.copies import copies_of
from projections.engine.delta import unmarked
from projections.engine.embeds import Embedder, Fence, reference_of
from projections.engine.goals import goal_of
from projections.engine.groups import Generations, read_groups, read_members
from projections.engine.indexes import index_attributes
from projections.engine.ledger_items import Entry, entry_key, fence_key
from projections.engine.store import Image, ItemKey, Store
from projections.errors import Misconfigured, Transient
from projections.language.contribution import Contributions, canonical_text
from projections.language.embeds import EmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.rules import CopyRule, LedgerRule
from projections.operations.verify import published, showing
from projections.operations.verify.drift import LEFT_OVER, Drift
from projections.operations.verify.left import left_on
from projections.operations.verify.reading import Reading, bare
from projections.operations.verify.scanning import patiently
from projections.operations.verify.scope import Scope
from projections.operations.verify.subject import CHILD, COPY, INDEX, ITEM, LEFT, REBUILD, SOURCE, TARGET, Subject

__all__ = ["Examiner", "Finding", "contributions_goal"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What examining a subject showed: nothing wrong if there are no `drifts`.

    `state` is all that was compared, `image` stands for the whole item that is wrong: equal ones say that nothing happened
    in between. `reached` and `known` are versions: the one that is shown, and the one that should be; whoever shows by now
    what was known before is late, and not wrong. `push` names the push that a child may be waiting for.
    """

    state: str = ""
    drifts: tuple[Drift, ...] = ()
    image: str = ""
    reached: str = ""
    known: str = ""
    push: str = ""


class Examiner:
    """Examines subjects under a scope's rules, many at a time. Raises what the store raises."""

    def __init__(self, scope: Scope, store: Store, sleep: Callable[[float], None] = time.sleep) -> None:
        self._scope = scope
        self._sleep = sleep
        self._program = scope.program
        self._store = store
        self._guards = scope.guards
        self._items = ApplicationItems(scope.program, store, scope.guards)
        self._embedder = Embedder(scope.program, store, scope.guards)
        self._kinds: dict[str, Callable[[Sequence[Subject]], Mapping[Subject, Finding]]] = {
            SOURCE: self._sources,
            COPY: self._copies,
            INDEX: self._indexes,
            CHILD: self._children,
            TARGET: self._targets,
            REBUILD: self._rebuilds,
            ITEM: self._failing,
            LEFT: self._left,
        }

    def examine(self, subjects: Iterable[Subject]) -> dict[Subject, Finding]:
        """What is wrong with each subject as it is now."""
        by_kind: dict[str, list[Subject]] = {}
        for subject in dict.fromkeys(subjects):
            by_kind.setdefault(subject.kind, []).append(subject)
        found: dict[Subject, Finding] = {}
        for kind, some in by_kind.items():
            found.update(self._apart(self._kinds[kind], some))
        return {subject: self._sided(finding) for subject, finding in found.items()}

    def _sided(self, finding: Finding) -> Finding:
        if not finding.drifts:
            return finding
        return replace(finding, drifts=tuple(self._scope.sided(drift) for drift in finding.drifts))

    def _apart(
        self, examine: Callable[[Sequence[Subject]], Mapping[Subject, Finding]], subjects: Sequence[Subject]
    ) -> dict[Subject, Finding]:
        """Examine many subjects, fewer at a time where it fails unexpectedly. One that fails alone is a finding."""
        try:
            return dict(patiently(partial(examine, subjects), self._sleep))
        except (Misconfigured, Transient):
            raise
        except Exception as error:
            if len(subjects) == 1:
                return {subjects[0]: _failed(subjects[0], error)}
        middle = len(subjects) // 2
        return self._apart(examine, subjects[:middle]) | self._apart(examine, subjects[middle:])

    # Items that cannot be compared

    def _failing(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        """Subjects again, each for itself: whatever it raises becomes a finding."""
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        found = dict.fromkeys(subjects, Finding())
        for subject, key in keys.items():
            image = images.get(key)
            if image is None:
                continue
            try:
                Reading(self._scope, self._items).one(key, image)
            except Exception as error:
                found[subject] = _failed(subject, error, image)
        return found

    def _recognised(self, key: ItemKey, image: Image | None) -> Item | None:
        return self._program.recognise(key, image) if image is not None else None

    def _left(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        """Items with what rules left on them."""
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        found = dict.fromkeys(subjects, Finding())
        for subject, key in keys.items():
            if (image := images.get(key)) is not None:
                drifts = left_on(self._scope, self._items, key, image, self._recognised(key, image))
                found[subject] = Finding("", tuple(drifts), _image(image))
        return found

    # Entries

    def _sources(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        entries = self._store.get_many([entry_key(subject.key) for subject in subjects])
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        found = {}
        for subject in subjects:
            held = entries.get(entry_key(subject.key))
            entry = Entry.read(held) if held is not None else None
            found[subject] = self._source(subject.key, entry, keys[subject], images.get(keys[subject]))
        return found

    def _source(self, source: str, entry: Entry | None, key: ItemKey, image: Image | None) -> Finding:
        held = entry.contributions if entry is not None else {}
        goal = contributions_goal(self._scope, entry, self._recognised(key, image), gone=image is None)
        drifts: list[Drift] = []
        for rule in sorted(self._scope.booked & (held.keys() | goal.keys())):
            shown = partial(showing.contributed, self._program.rules[rule])
            olds, news = bare(unmarked(held.get(rule, {}))), bare(unmarked(goal.get(rule, {})))
            for target in sorted(olds.keys() | news.keys()):
                old, new = olds.get(target), news.get(target)
                if old != new:
                    kind = "entry missing" if old is None else "entry extra" if new is None else "entry stale"
                    at = entry.version or None if entry is not None else None
                    raw = [old or {}, new or {}]
                    drifts.append(Drift(kind, rule, target, None, shown(old), shown(new), source, at, raw=raw))
        revision = entry.revision if entry is not None else None
        return Finding(f"{revision} {canonical_text(goal)}", tuple(drifts))

    # Guarded copies

    def _copies(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
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
                copies = copies_of(rule, self._recognised(keys[source], images.get(keys[source])))
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
            drifts = [_occupied(replace(common, source=made[0]), item)]
        elif item is None:
            drifts = [replace(common, kind="copy missing", expected=showing.item(made[1]), source=made[0])]
        else:
            source, wanted = made
            common = replace(common, source=source)
            common = replace(common, kind="copy stale")
            drifts = published.wrong_values(
                common, item, {name: wanted.get(name) for name in sorted(names | wanted.keys())}
            )
            by = guard.by if guard is not None else None
            if not drifts and not shadow and by != source:
                drifts = [replace(common, kind="guard", attribute=name, actual=by, expected=source)]
        return Finding(_state(held, showing.item(item or {}, names), made), tuple(drifts), _image(item))

    # Index attributes

    def _indexes(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        found = {}
        for subject, key in keys.items():
            item = self._recognised(key, images.get(key))
            drifts: list[Drift] = []
            for rule in self._scope.indexes.get(item.entity.name, ()) if item is not None else ():
                assert item is not None
                common = Drift("index", rule.name, subject.key, source=subject.key, shadow=self._scope.shadow(rule))
                drifts += published.wrong_values(common, item.image, index_attributes(rule, item)[0])
            found[subject] = Finding(_state([drift.text() for drift in drifts]), tuple(drifts), _image(images.get(key)))
        return found

    # Children

    def _children(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        children = {subject: self._recognised(key, images.get(key)) for subject, key in keys.items()}
        pairs = [
            (subject, child, rule, reference_of(rule, child)[0])
            for subject, child in children.items()
            if child is not None
            for rule in self._scope.embeds_into.get(child.entity.name, ())
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
        return found

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
        drifts = published.wrong_values(
            common, child.image, {each: wanted[each] for each in rule.owned() if each in wanted}
        )
        state = _state(held, [drift.text() for drift in drifts], fence.version)
        late = bool(drifts) and own and at < fence.version
        if not shadow:
            common = replace(common, kind="guard", attribute=name)
            if by is None:
                if held is not None and not drifts:
                    drifts.append(replace(common, actual=guard.by if guard is not None else None))
            elif own and at > fence.version:
                drifts.append(replace(common, actual=at, expected=fence.version))
            elif not own and not drifts and name in wanted:
                drifts.append(replace(common, actual=guard.by if guard is not None else None, expected=by))
        if late:
            return Finding(state, tuple(drifts), _image(child.image), at, fence.version, f"{rule.name}|{by}")
        return Finding(state, tuple(drifts), _image(child.image))

    # Targets of groups

    def _targets(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
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
                found[subject] = Finding()  # recorded by another version of the rule, in another entity
                continue
            if item is not None and not rule.creates:
                known = self._recognised(key, item)
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
                    drifts = [_occupied(common, item)]
            else:
                drifts = published.differences(self._scope, rule, key, item, group, members)
                empty = item is not None and rule.creates and group.totals.n == 0 and not self._scope.shadow(rule)
                if item is not None and empty and (drifts or self._scope.empty(rule.into.name, key, item)):
                    drifts += self._unwanted(rule, key, item, generations)
            held = item.get(self._program.guard(rule.name)) if item is not None else None
            state = _state(held, [drift.text() for drift in drifts], group.at)
            at = guard.at if guard is not None else ""
            versions = (at, group.at) if drifts and at < group.at else ("", "")
            found[subject] = Finding(state, tuple(drifts), _image(item), *versions)
        return found

    def _unwanted(self, rule: LedgerRule, key: ItemKey, item: Image, generations: Generations) -> list[Drift]:
        """An item that rules created is too much if nothing contributes to it under any rule, and nothing else is on it."""
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

    # Groups that are being rebuilt

    def _rebuilds(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        groups = read_groups(self._store, [(subject.rule, subject.key) for subject in subjects], Generations())
        found = {}
        for subject in subjects:
            group = groups[subject.rule, subject.key]
            drift = Drift("rebuilding", subject.rule, subject.key, at=group.at)
            found[subject] = Finding(group.at, (drift,) if group.rebuilding else ())
        return found


def contributions_goal(scope: Scope, entry: Entry | None, item: Item | None, *, gone: bool) -> Contributions:
    """What the entry of a source item should hold. `gone` says that there is no item; None for `item` also if it is of no
    entity.
    """
    held = entry.contributions if entry is not None else {}
    evaluated = scope.program.contributions(item)
    expired = entry is not None and entry.expired
    return goal_of(scope.program, held, evaluated.contributions, gone, scope.publishes, expired=expired)


def _failed(subject: Subject, error: Exception, image: Image | None = None) -> Finding:
    text = f"{type(error).__name__}: {error}"
    return Finding(text, (Drift("error", subject.rule, subject.key, actual=text),), _image(image))


def _occupied(common: Drift, item: Image) -> Drift:
    """An item of another kind under the key of an item that a rule would create."""
    return replace(common, kind="occupied", actual=showing.item(item))


def _image(item: Image | None) -> str:
    """What stands for a whole item."""
    text = "" if item is None else json.dumps(item, sort_keys=True)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def _both(one: Finding, other: Finding) -> Finding:
    """What two rules say of one child."""
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


def _state(*parts: object) -> str:
    return json.dumps(parts, sort_keys=True, ensure_ascii=False, default=str)

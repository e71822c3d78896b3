"""Examines subjects: reads everything again, in the order in which the engine reads, and compares it exactly.

An entry is read before its item, a copy before its source, a child's guard before the fence and the fence before the parent,
a target's guard before its group. What is read later is at least as new, so a difference is drift or lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from projections.engine.application import ApplicationItems
from projections.engine.changes import unmarked
from projections.engine.goals import goal_of
from projections.engine.indexes import index_attributes
from projections.engine.ledger_items import Entry, entry_key
from projections.engine.store import Image, ItemKey, Store
from projections.errors import Misconfigured, Transient
from projections.language.contribution import Contributions, canonical_text
from projections.language.entity import Item
from projections.language.keys import decode_key
from projections.operations.verify import showing, views
from projections.operations.verify.drift import Drift, Finding, image_digest, recognised, state_text
from projections.operations.verify.examine_kinds import ChildExaminer, CopyExaminer, TargetExaminer
from projections.operations.verify.reading import Reading, bare
from projections.operations.verify.scanning import patiently
from projections.operations.verify.scope import (
    CHILD,
    COPY,
    INDEX,
    ITEM,
    LEFT,
    REBUILD,
    SOURCE,
    TARGET,
    Scope,
    Subject,
    left_on,
)

__all__ = ["Examiner", "contributions_goal"]


class Examiner:
    """Examines subjects under a scope's rules, many at a time. Raises what the store raises."""

    def __init__(self, scope: Scope, store: Store, sleep: Callable[[float], None] = time.sleep) -> None:
        self._scope = scope
        self._sleep = sleep
        self._program = scope.program
        self._store = store
        self._items = ApplicationItems(scope.program, store, scope.guards)
        targets = TargetExaminer(scope, store, self._items)
        self._kinds: dict[str, Callable[[Sequence[Subject]], Mapping[Subject, Finding]]] = {
            SOURCE: self._sources,
            COPY: CopyExaminer(scope, store, self._items).examine,
            INDEX: self._indexes,
            CHILD: ChildExaminer(scope, store).examine,
            TARGET: targets.examine,
            REBUILD: targets.examine_rebuilds,
            ITEM: self._failing,
            LEFT: self._left,
        }

    def examine(self, subjects: Iterable[Subject]) -> dict[Subject, Finding]:
        """Return the finding for each subject as it is now."""
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
        """Examine many subjects, and fewer at a time if that fails unexpectedly. One that fails alone is a finding."""
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
        """Examine each subject alone. An error becomes a finding."""
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

    def _left(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        """Examine items for values that rules left on them."""
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        found = dict.fromkeys(subjects, Finding())
        for subject, key in keys.items():
            if (image := images.get(key)) is not None:
                drifts = left_on(self._scope, self._items, key, image, recognised(self._program, key, image))
                found[subject] = Finding("", tuple(drifts), image_digest(image))
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
        goal = contributions_goal(self._scope, entry, recognised(self._program, key, image), gone=image is None)
        drifts: list[Drift] = []
        for rule in sorted(self._scope.recorded & (held.keys() | goal.keys())):
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

    # Index attributes

    def _indexes(self, subjects: Sequence[Subject]) -> dict[Subject, Finding]:
        keys = {subject: decode_key(subject.key) for subject in subjects}
        images = self._store.get_many(list(keys.values()))
        found = {}
        for subject, key in keys.items():
            item = recognised(self._program, key, images.get(key))
            drifts: list[Drift] = []
            for rule in self._scope.indexes.get(item.entity.name, ()) if item is not None else ():
                assert item is not None
                common = Drift(rule.kind, rule.name, subject.key, source=subject.key, shadow=self._scope.shadow(rule))
                drifts += views.wrong_values(common, item.image, index_attributes(rule, item)[0])
            state = state_text([drift.text() for drift in drifts])
            found[subject] = Finding(state, tuple(drifts), image_digest(images.get(key)))
        return found


def contributions_goal(scope: Scope, entry: Entry | None, item: Item | None, *, gone: bool) -> Contributions:
    """Return the contributions that the entry of a source item should have.

    `gone` if the item does not exist; `item` is also None if it is of no entity.
    """
    held = entry.contributions if entry is not None else {}
    evaluated = scope.program.contributions(item)
    return goal_of(scope.program, held, evaluated.contributions, gone)


def _failed(subject: Subject, error: Exception, image: Image | None = None) -> Finding:
    text = f"{type(error).__name__}: {error}"
    return Finding(text, (Drift("error", subject.rule, subject.key, actual=text),), image_digest(image))

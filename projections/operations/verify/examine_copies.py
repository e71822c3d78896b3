"""Examines guarded copies: a copy is read before its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from projections.engine.application import ApplicationItems
from projections.engine.copies import copies_of
from projections.engine.store import Image, Store
from projections.language.keys import decode_key
from projections.language.rules import CopyRule
from projections.operations.verify import published, showing
from projections.operations.verify.drift import LEFT_OVER, Drift
from projections.operations.verify.finding import Finding, image_digest, occupied, recognised, state_text
from projections.operations.verify.scope import Scope
from projections.operations.verify.subject import Subject

__all__ = ["CopyExaminer"]


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
            drifts = published.wrong_values(
                common, item, {name: wanted.get(name) for name in sorted(names | wanted.keys())}
            )
            if not drifts and not shadow and (guard is None or guard.by != source):
                actual = showing.guard(held, guard, "by")
                drifts = [replace(common, kind="guard", attribute=name, actual=actual, expected={"by": source})]
        drifts = self._scope.attributed(rule, key, item, drifts)
        return Finding(state_text(held, showing.item(item or {}, names), made), tuple(drifts), image_digest(item))

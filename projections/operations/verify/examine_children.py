"""Examines children of embed rules: a child's guard is read before the fence, and that before the parent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from projections.engine.embed_lists import references_of
from projections.engine.embeds import Embedder, Fence, reference_of
from projections.engine.ledger_items import fence_key
from projections.engine.store import Image, ItemKey, Store
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.operations.verify import published, showing
from projections.operations.verify.drift import Drift
from projections.operations.verify.finding import Finding, image_digest, recognised, state_text
from projections.operations.verify.scope import Scope
from projections.operations.verify.subject import Subject

__all__ = ["ChildExaminer"]


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
        drifts = published.wrong_values(common, child.image, {rule.list_name: wanted.values[rule.list_name]})
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
        drifts = published.wrong_values(
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

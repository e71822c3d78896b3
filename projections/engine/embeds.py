"""Embeds: pushing a parent's attributes to its children, and pulling them into a child that needs them.

- Push: when the parent's embedded attributes change, first raise its fence to the version, then update each child whose
  guard is older or that of another parent.
- Pull: when a child appears, changes its reference or needs healing, read its guard, then the fence, then the parent, and
  update the child at the fence's version if its guard is as it was read.

A pull needs a version for the child's guard, and the parent item has none. The fence, read before the parent, is a version
that the parent is at least as new as. With another version, such as that of the child's record, later pushes could find a
guard that is not older and skip the child, or earlier ones could replace newer values.

A page of a push reads the fence and then the parent, as a pull does, so its values are at least as new as its version. A
newer change overtakes an older push: the pages of the older one find a higher fence and stop.

With `on_delete: keep`, the fence also has the parent's offer (what it gives its children) as of its version. If the parent
is gone, or an item of another kind has its key, the children keep that, and the pages of a push go on with it. A child
without a guard of the rule then keeps its attributes, because the rule has no value for it. It gets a guard with `n` 0, at
the fence's version: without a guard, a late page of an older push would give it an older offer, and nothing would correct
that.

An offer that is too large for the fence is left out, and the record is rejected: its children get it, but none that appears
when the parent is gone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

from projections.engine.application import purpose_of
from projections.engine.embed_lists import ChildWriter, Hopeless, ListEmbedder, references_of
from projections.engine.guards import Guard, Guards, Healing, as_read, needs_healing
from projections.engine.ledger_items import fence_key
from projections.engine.running import Deadline, tries
from projections.engine.store import AllOf, AnyOf, Below, Condition, Missing, Purpose, Records, Update, Values
from projections.errors import BadInput, ConditionFailed, InvalidRequest
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import Image, ItemKey, Value, decode_key, encode_key
from projections.language.values import differing, same

SETTLE_SECONDS = 5.0
"""Seconds after a push through an index until it is queried again, for children that it did not show yet."""

_LARGE = 400_000
"""Bytes of an offer that is too large for an item, with its keys."""

NOT_KEPT = (
    "the attributes that its children get are too large to be kept for when it is gone: children that appear then get none. "
    "Embed fewer attributes, or set on_delete: remove"
)


class Push(NamedTuple):
    """A page of a push: the rule, the parent's encoded key, the version that began it, and where the page begins.

    `again` marks the second pass through an index, which may not have shown all children the first time. `last` is the
    parent's offer as of this version, as `last_offer` writes it: for the fence, if the rule keeps last values.
    """

    rule: str
    parent: str
    version: str
    after: Any = None
    again: bool = False
    last: str = ""


def reference_of(rule: EmbedRule, child: Item) -> tuple[ItemKey | None, str | None]:
    """Return the key of the parent that a child references, or None and why the reference is invalid.

    Of a child of several parents only the reason.
    """
    if isinstance(rule, ListEmbedRule):
        return None, references_of(rule, child)[1]
    try:
        return rule.reference(child), None
    except BadInput as problem:
        return None, str(problem)


Offer: TypeAlias = tuple[dict[str, Value], tuple[str | None, ...]]
"""The attributes that a parent gives its children, and the values that a child must have to get them."""


def last_offer(offer: Offer) -> str:
    """Return an offer as text, for the fence."""
    return json.dumps(offer, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


class Fence(NamedTuple):
    """The newest version of a parent that a push began with; and the offer of then, if the rule keeps last values."""

    version: str = ""
    last: Offer | None = None

    @classmethod
    def read(cls, item: Image | None) -> Fence:
        if item is None:
            return cls()
        values, texts = json.loads(item["last"]["S"]) if "last" in item else ({}, ())
        return cls(item["version"]["S"], (values, tuple(texts)) if "last" in item else None)


def offer_of(rule: EmbedRule, parent: Item | None) -> tuple[Offer, str | None]:
    """Return the offer of a parent: empty if it is gone, or the rule does not apply to it, or fails, with the reason."""
    try:
        return rule.offered(parent), None
    except BadInput as problem:
        return ({}, ()), str(problem)


def _values_for(rule: EmbedRule, child: Item, offer: Offer) -> dict[str, Value]:
    """The attributes that a child gets by the offer of the parent that it references."""
    values, texts = offer
    try:
        return values if values and rule.belongs(child, texts) else {}
    except BadInput:
        return {}


def _is_parent(rule: EmbedRule, parent: Item | None) -> bool:
    """Whether there is a parent: an item of the source's kind."""
    return parent is not None and parent.entity is rule.source


def _has_nothing(guard: Guard | None, version: str) -> bool:
    """Whether a guard shows that its child had no value when its parent was gone, and no push of a parent began since."""
    return guard is not None and guard.n == 0 and guard.at.partition("+")[0] == version.partition("+")[0]


def _references(rule: EmbedRule, child: Item) -> list[Condition]:
    """The conditions that the child references the same parent as when it was read."""
    return [as_read(name, value) for name, value in sorted(rule.read_by(child).items())]


def needs_pull(rule: EmbedRule, guards: Guards, old: Item | None, new: Item | None) -> Healing | None:
    """Return why a child may have wrong attributes of its parent, or may lack them, as its record shows; else None."""
    if new is None:
        return None
    if isinstance(rule, ListEmbedRule):
        return _list_needs_pull(rule, guards, old, new)
    if old is None:
        return "created"
    parent = reference_of(rule, new)[0]
    if reference_of(rule, old)[0] != parent or not _same_references(rule, old, new):
        return "reference changed"
    held = guards.read(rule.name, new.key, new.image)
    if held is None and guards.name(rule.name) in new.image:
        return guards.healing_without_guard(rule.name, new.key, old.image, new.image)
    if held is not None and (parent is None or held.by != encode_key(parent)):
        return "other parent"
    if parent is None:
        return "no parent" if any(each in new.image for each in rule.owned()) else None
    # a push does not write to a child whose kind, or whose key in the index, changed after the push read it
    if any(not same(old.image.get(each), new.image.get(each)) for each in rule.children.partition):
        return "index key changed"
    index = rule.into.schema.indexes.get(rule.children.index or "", ())
    if any(name in new.image and name not in old.image for part in index for name, _ in part):
        return "index key changed"  # a push did not find it there
    if any(not same(old.image.get(each), new.image.get(each)) for each in rule.into.match_attributes):
        return "kind changed"
    return needs_healing(guards, rule.name, new.key, rule.owned(), old.image, new.image)


def _list_needs_pull(rule: ListEmbedRule, guards: Guards, old: Item | None, new: Item) -> Healing | None:
    """Return why a child of several parents may have a wrong list, or may lack it, as its record shows; else None."""
    name = guards.name(rule.name)
    if references_of(rule, new)[0] is None:
        return "no parent" if rule.list_name in new.image or name in new.image else None
    if old is None:
        return "created"
    if not _same_references(rule, old, new):
        return "reference changed"
    if name in new.image and guards.read(rule.name, new.key, new.image) is None:
        return guards.healing_without_guard(rule.name, new.key, old.image, new.image)
    if any(not same(old.image.get(each), new.image.get(each)) for each in rule.into.match_attributes):
        return "kind changed"  # a push does not write to a child whose kind changed after the push read it
    held, holds = (guards.read(rule.name, new.key, item.image) for item in (old, new))
    if holds is not None and holds != held and not guards.follows(rule.name, new.key, held, holds):
        return None if held is None and guards.is_left(rule.name, new.key, old.image) else "guard invalid"
    return needs_healing(guards, rule.name, new.key, rule.owned(), old.image, new.image)


def _same_references(rule: EmbedRule, old: Item, new: Item) -> bool:
    before, after = rule.read_by(old), rule.read_by(new)
    return before.keys() == after.keys() and all(same(before[name], after[name]) for name in after)


class Embedder(ChildWriter):
    """Applies embeds to a store."""

    @cached_property
    def lists(self) -> ListEmbedder:
        """Applies embeds of several parents."""
        page, counters = self._children_per_page, self._counters
        where = self._program, self._store, self._guards
        return ListEmbedder(*where, pace=self._pace, counters=counters, children_per_page=page, run=self._run)

    def raise_fence(self, push: Push, records: Records = ()) -> bool:
        """Raise the fence of a parent because of these records, before its first child is written.

        Return whether it keeps the parent's offer, if it has to: one that is too large is left out.
        """
        version: Value = {"S": push.version}
        lower = AnyOf((Missing(("version",)), Below(("version",), version)))
        key, why = fence_key(push.rule, push.parent), Purpose("fence", (push.rule,), push.parent, records)
        fence = Update(key, set={"version": version}, condition=lower, purpose=why)
        try:
            try:
                last: Value = {"S": push.last}
                self._store.write(replace(fence, set={**fence.set, "last": last}) if push.last else fence)
            except InvalidRequest:
                if not push.last:
                    raise
                self._store.write(replace(fence, remove=("last",)))
                return False
        except ConditionFailed as failed:  # it is raised already
            held = Fence.read(failed.item)  # perhaps by this record, or by another version of the rule
            large = len(push.last.encode("utf-8", "surrogatepass")) > _LARGE
            return not large or held.version != push.version or held.last is not None
        return True

    def _fence(self, rule: str, parent: str) -> Fence:
        return Fence.read(self._store.get(fence_key(rule, parent)))

    def push_page(self, push: Push, deadline: Deadline, records: Records = ()) -> tuple[Push | None, Hopeless]:
        """Update one page of children. Return the next page, None at the end, and children that can never be updated.

        `records` are the sequence numbers of the records that the push follows from, if they are in this batch.
        Raise Transient if a child could not be updated now: the page has to be repeated, which writes only what is missing.
        """
        rule = self._program.embeds.get(push.rule)
        if rule is None or rule.held:
            return None, []  # a rule that was removed, or is not published now
        deadline.check()
        fence = self._fence(push.rule, push.parent)
        if fence.version > push.version:
            return None, []  # overtaken: the newer change has a push of its own
        if isinstance(rule, ListEmbedRule):
            after, refused = self.lists.push_page(rule, push.parent, push.after, deadline, records)
            return (push._replace(after=after) if after is not None else None), refused
        key = decode_key(push.parent)
        partition = rule.partition_of(key)
        if not partition:
            return None, []
        parent = self._program.recognise(key, self._store.get(key))
        if rule.on_delete == "keep" and not _is_parent(rule, parent):
            if fence.last is None:
                return None, []  # no offer is recorded
            offer, keeps = fence.last, True
        else:
            offer, keeps = offer_of(rule, parent)[0], False
        page = self._store.query(
            rule.into.table,
            partition,
            index=rule.children.index,
            prefix=rule.children.prefix or None,
            limit=self._children_per_page,
            # DynamoDB refuses attributes that are not projected into an index
            attributes=rule.telling if rule.children.index is None else None,
            after=push.after,
        )
        children = self._recognise_children(rule, page.items)
        why = purpose_of(rule, records)
        writes, unsure = self._updates(rule, key, fence.version, offer, children, why, keeps=keeps)
        hopeless, changed, transient = self._write_children(writes, lambda at: self._counters.add("embedded"))
        unsure += changed
        for child in unsure:  # it has changed since it was read, or no condition can express its kind
            try:
                self.pull(rule, child, deadline, records)
            except InvalidRequest as refused:
                hopeless.append((child, str(refused)))
        if transient is not None:
            raise transient
        if page.after is None:
            return None, hopeless
        return push._replace(after=page.after), hopeless

    def _updates(
        self,
        rule: EmbedRule,
        key: ItemKey,
        fence: str,
        offer: Offer,
        children: Iterable[Item],
        why: Purpose,
        *,
        keeps: bool,
    ) -> tuple[list[Update], list[ItemKey]]:
        """The updates of children that reference the parent and have an older guard; and children that have to be read.

        With `keeps` the parent is gone: then only children that have its guard are written.
        """
        by, nothing, name = encode_key(key), dict.fromkeys(rule.owned()), self._guards.name(rule.name)
        writes: list[Update] = []
        unsure: list[ItemKey] = []
        for child in children:
            guard = self._guards.read(rule.name, child.key, child.image)
            same_parent = guard is not None and guard.by == by
            if reference_of(rule, child)[0] != key or (guard is not None and same_parent and guard.at >= fence):
                continue
            if keeps and same_parent and _has_nothing(guard, fence):
                continue
            if keeps and not same_parent:
                if rule.children.index is not None:  # the index may not show the guard
                    unsure.append(child.key)
                continue
            stamp = self._guards.stamp(rule.name, child.key, fence, by=by)
            wanted = {**nothing, **_values_for(rule, child, offer), name: stamp}
            older = self._guards.older_or_foreign(rule.name, child.key, by, fence)
            condition = AllOf((*_references(rule, child), older))
            update = self._items.change(rule.into, child.key, wanted, condition, why)
            if update is not None:
                writes.append(update)
            else:
                unsure.append(child.key)
        return writes, unsure

    def following(self, push: Push, next_page: Push | None) -> tuple[Push, bool] | None:
        """Return the page after a page, and whether to wait for the index first; None at the end."""
        if next_page is not None:
            return next_page, False
        rule = self._program.embeds.get(push.rule)
        if rule is not None and rule.children.index is not None and not push.again:
            return push._replace(after=None, again=True), True
        return None

    def _recognise_children(self, rule: EmbedRule, items: Sequence[Any]) -> list[Item]:
        """The children among the items of a page. If an index lacks attributes that are needed, the items are read."""
        schema, recognised, unsure = rule.into.schema, [], []
        for image in items:
            key = schema.key(rule.into.table, image)
            item = self._program.recognise(key, image) if rule.projected else None
            if item is not None and item.entity is rule.into and all(rule.read_by(item).values()):
                recognised.append(item)
            elif rule.children.index is not None:
                unsure.append(key)
        for key, image in (self._store.get_many(unsure) if unsure else {}).items():
            item = self._program.recognise(key, image)
            if item is not None and item.entity is rule.into:
                recognised.append(item)
        return recognised

    def renew(self, rule: EmbedRule, parent: str) -> Push:
        """Return a push of the parent's present image, without a record: newer than all earlier pushes.

        Its version sorts after that of the fence and before those of later records. The parent is read after the fence, so
        that the offer of the push is at least as new.
        """
        base, _, count = self._fence(rule.name, parent).version.partition("+")
        push = Push(rule.name, parent, f"{base}+{int(count or 0) + 1:06d}")
        if rule.on_delete != "keep":
            return push
        key = decode_key(parent)
        item = self._program.recognise(key, self._store.get(key))
        return push._replace(last=last_offer(offer_of(rule, item)[0])) if _is_parent(rule, item) else push

    def refresh(
        self, children: Sequence[Item], deadline: Deadline, *, renew: bool = False
    ) -> list[tuple[EmbedRule, ItemKey, str]]:
        """Bring children, which were read just now, to their parents; with few requests for many children.

        `renew` is that of `ListEmbedder.refresh`.

        As in a pull, the fences are read after the guards of the children, and then the parents. Return the children that
        can never be updated, with the reason. Raise Transient.
        """
        wanting = [(rule, child) for child in children for rule in self._program.embeds_into.get(child.entity.name, ())]
        hopeless: list[tuple[EmbedRule, ItemKey, str]] = []
        lists: dict[str, tuple[ListEmbedRule, list[Item]]] = {}
        for rule, child in wanting:
            if isinstance(rule, ListEmbedRule):
                lists.setdefault(rule.name, (rule, []))[1].append(child)
        for listing, list_children in lists.values():
            refused = self.lists.refresh(listing, list_children, deadline, renew=renew)
            hopeless += [(listing, key, reason) for key, reason in refused]
        wanting = [(rule, child) for rule, child in wanting if not isinstance(rule, ListEmbedRule)]
        if not wanting:
            return hopeless
        deadline.check()
        parents = [(rule, child, reference_of(rule, child)[0]) for rule, child in wanting]
        fences = {(rule.name, key): fence_key(rule.name, encode_key(key)) for rule, _, key in parents if key}
        raised = self._store.get_many(list(dict.fromkeys(fences.values())))
        images = self._store.get_many(list(dict.fromkeys(key for _, _, key in parents if key is not None)))
        writes: list[tuple[EmbedRule, Item, Update]] = []
        for rule, child, key in parents:
            fence = Fence.read(raised.get(fences[rule.name, key])) if key is not None else Fence()
            image = images.get(key) if key is not None else None
            wanted = self.wanted_attributes(rule, child, key, fence, image)
            if differing(child.image, wanted):
                writes.append((rule, child, self._update_as_read(rule, child, wanted, purpose_of(rule))))
        answers = self._write_all([write for _, _, write in writes])
        again: list[tuple[EmbedRule, ItemKey]] = []
        for (rule, child, _), error in zip(writes, answers, strict=True):
            if error is None and rule.children.index is None:
                self._counters.add("pulled")
            elif isinstance(error, InvalidRequest):
                hopeless.append((rule, child.key, str(error)))
            else:  # it has changed since it was read, or its parent has, and the push did not find it
                again.append((rule, child.key))
        for rule, child_key in again:
            self.pull(rule, child_key, deadline)
        return hopeless

    def _update_as_read(self, rule: EmbedRule, child: Item, wanted: Values, why: Purpose) -> Update:
        """The update of a child whose reference, guard and kind are as they were read."""
        unchanged = AllOf((*_references(rule, child), self._guards.as_read(rule.name, child.image)))
        return self._items.change_as_read(rule.into, child.key, wanted, unchanged, why, child.image)

    def wanted_attributes(
        self, rule: EmbedRule, child: Item, reference: ItemKey | None, fence: Fence, image: Image | None
    ) -> Values:
        """Return the attributes that a child should have, with its guard. `image` is its parent's, read after the fence."""
        name = self._guards.name(rule.name)
        guard = self._guards.read(rule.name, child.key, child.image)
        if reference is None:
            if rule.on_delete == "keep" and guard is None and name not in child.image:
                return {}  # the rule has no value for it
            return self.without_parent(rule, child)
        by, nothing = encode_key(reference), dict.fromkeys(rule.owned())
        stamp = self._guards.stamp(rule.name, child.key, fence.version, by=by)
        parent = self._program.recognise(reference, image)
        if rule.on_delete == "keep" and not _is_parent(rule, parent):
            if guard is None or (guard.by == by and _has_nothing(guard, fence.version)):
                return self._without_value(rule, child, fence, by)
            if guard.by == by and (guard.at == fence.version or fence.last is None):
                return {name: child.image[name]} if guard.at <= fence.version else {name: stamp}
            return {**nothing, **(_values_for(rule, child, fence.last) if fence.last is not None else {}), name: stamp}
        return {**nothing, **_values_for(rule, child, offer_of(rule, parent)[0]), name: stamp}

    def _without_value(self, rule: EmbedRule, child: Item, fence: Fence, by: str) -> Values:
        """The guard of a child that the rule has no value for, so that late pushes do not write to it."""
        if not fence.version:  # there was no push
            return {}
        return {self._guards.name(rule.name): self._guards.stamp(rule.name, child.key, fence.version, by=by, n=0)}

    def pull(self, rule: EmbedRule, key: ItemKey, deadline: Deadline, records: Records = ()) -> None:
        """Bring a child to the present image of its parent, because of these records.

        Without a valid reference, the attributes are removed.
        """
        if isinstance(rule, ListEmbedRule):
            self.lists.pull(rule, key, deadline, records)
            return
        reason = f"{rule.name}: the guard of a child kept changing while its parent's attributes were pulled"
        for _ in tries(reason, deadline):
            child = self._program.recognise(key, self._store.get(key))
            if child is None or child.entity is not rule.into:
                return
            reference, fence, by = reference_of(rule, child)[0], Fence(), ""
            parent_image = None
            if reference is not None:
                by = encode_key(reference)
                fence = self._fence(rule.name, by)
                parent_image = self._store.get(reference)
            wanted = self.wanted_attributes(rule, child, reference, fence, parent_image)
            if not differing(child.image, wanted):
                return
            try:
                self._store.write(self._update_as_read(rule, child, wanted, purpose_of(rule, records)))
            except ConditionFailed:
                continue
            self._counters.add("pulled")
            if rule.children.index is None or not by or self._fence(rule.name, by).version == fence.version:
                return
            # The parent changed meanwhile, and its push may have queried the index before it showed this child: once more.

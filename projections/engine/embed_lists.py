"""Embeds of several parents: a child holds a list or set of references, and gets one list or map of what its parents give.

A *link* in the ledger, under the parent, names each child that references it: no index of the application can find them.

- Pull, for a record of a child: write the links of the references that the record added; then read the child, then all
  its parents, and write the list.
- Push, for a record of a parent: read a page of its links, then these children, then all parents of each; write the lists.

A list depends on several items, so no version of one parent tells how new it is, as in `engine.embeds`. Instead, each write
of a list sets a guard that was never there before (a counter and a token). It is conditional on the guard and on the
references as they were read before the parents, so no other list was written between reading and writing. The counter begins
again when a child loses its guard. So the token shows which guard it replaced: one that was repeated replaced another one.

Why the last list is right: the last change of a child, or of a parent that it references, leads to a pull or a push that
reads both after the change. It computes the right list, and its write succeeds, or is repeated after reading again. A
writer that read an older parent has read the child before that, and the guard that it read is gone. This requires:

- The parents are read after the child.
- A push or pull also writes a list that is right already, with a new guard. Otherwise a slower writer that read an older
  parent could still write.
- Links are written before the parents are read, so a parent that changes afterwards finds the child.

A backfill does not follow from a change, so it leaves lists and links that are right as they are.

A link may outlive its reference: then a push reads the child and writes nothing. A link is deleted if the child, read
after the link, does not reference the parent, and the link still has the token that was read: a later pull sets another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeAlias

from projections.engine.application import ApplicationItems, purpose_of
from projections.engine.guards import Guards, as_read
from projections.engine.ledger_items import LEDGER, link_key, links_key
from projections.engine.running import Counters, Deadline, Run, one_by_one, slices, tries
from projections.engine.store import AllOf, Delete, Equal, Purpose, Records, Store, Update, Values
from projections.errors import BadInput, ConditionFailed, InvalidRequest, StoreError, TransactionCancelled, Transient
from projections.language.embeds import EmbedRule, ListEmbedRule, Reference
from projections.language.entity import Item
from projections.language.keys import Image, ItemKey, Value, decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import public_name
from projections.language.values import differing

CHILDREN_PER_PAGE = 1000
"""How many children one page of a push reads and updates at most. A query returns at most 1 MB."""

CHILDREN_PER_LIST_PAGE = 100
"""How many if each has several parents, which are read, too."""

_AT_ONCE = 25
"""How many children one request updates: DynamoDB's limit of statements."""

_LINKS_AT_ONCE = 99
"""Links in a transaction: the most actions of one, without the condition check that an operator's store adds."""

_NO_LINKS: Mapping[ItemKey, Image] = {}

Hopeless: TypeAlias = list[tuple[ItemKey, str]]
"""Children that can never be updated, each with the reason."""


def references_of(rule: ListEmbedRule, child: Item) -> tuple[list[Reference] | None, str | None]:
    """Return the references of a child, or None, and why they are invalid, or why one of them is left out."""
    try:
        return rule.references(child), rule.unusable(child)
    except BadInput as problem:
        return None, str(problem)


def parents_of(rule: ListEmbedRule, child: Item | None) -> dict[str, None]:
    """Return the encoded keys of the parents that a child references, in order; none if the references are invalid."""
    references = references_of(rule, child)[0] if child is not None else None
    return {encode_key(reference.key): None for reference in references or () if reference.key is not None}


class Wanted(NamedTuple):
    """What a child should have: attributes with the guard; whether its list is cut; and whether it has it already."""

    values: Values
    cut: bool
    right: bool


class ChildWriter:
    """Writes to children. `pace` is called with a number of writes before they are made, and may wait."""

    def __init__(
        self,
        program: Program,
        store: Store,
        guards: Guards,
        *,
        pace: Callable[[int], None] = lambda writes: None,
        counters: Counters | None = None,
        children_per_page: int = CHILDREN_PER_PAGE,
        run: Run[list[StoreError | None]] = one_by_one,
    ) -> None:
        self._program = program
        self._store = store
        self._guards = guards
        self._items = ApplicationItems(program, store, guards)
        self._pace = pace
        self._counters = counters or Counters()
        self._children_per_page = children_per_page
        self._run = run

    def _write_all(self, writes: Sequence[Update]) -> Iterator[StoreError | None]:
        """Make updates of children. Return the answers, position by position."""
        return chain.from_iterable(self._run([partial(self._write_paced, part) for part in slices(writes, _AT_ONCE)]))

    def _write_children(
        self, writes: Sequence[Update], note: Callable[[int], None]
    ) -> tuple[Hopeless, list[ItemKey], Transient | None]:
        """Make updates of children, and call `note` with the position of each that is made. Return those that can never be
        made, those of children that have changed, and an error that passes.
        """
        hopeless, changed, transient = Hopeless(), list[ItemKey](), None
        for place, error in enumerate(self._write_all(writes)):
            if error is None:
                note(place)
            elif isinstance(error, InvalidRequest):
                hopeless.append((writes[place].key, str(error)))
            elif isinstance(error, Transient):
                transient = error
            else:
                changed.append(writes[place].key)
        return hopeless, changed, transient

    def _write_paced(self, writes: Sequence[Update]) -> list[StoreError | None]:
        self._pace(len(writes))
        return self._store.write_each(writes)

    def without_parent(self, rule: EmbedRule, child: Item) -> dict[str, Value | None]:
        """Return what a child without a parent should have: no values, and no guard, but for that of a former version of
        the rule, by which clearing finds what that had embedded.
        """
        name = self._guards.name(rule.name)
        guard = self._guards.read(rule.name, child.key, child.image)
        former = guard is not None and guard.promotion < self._guards.promotion(rule.name)
        held = child.image[name] if former and public_name(rule.name) in self._guards.replaced else None
        return {**dict.fromkeys(rule.owned()), name: held}


class ListEmbedder(ChildWriter):
    """Applies embeds of several parents to a store."""

    # What a child should have

    def wanted_attributes(
        self,
        rule: ListEmbedRule,
        child: Item,
        references: Sequence[Reference] | None,
        parents: Mapping[ItemKey, Image],
        token: str,
    ) -> Wanted:
        """Return what a child should have. `parents` holds the items of its references, read after the child."""
        name = self._guards.name(rule.name)
        if references is None:
            values = self.without_parent(rule, child)
            return Wanted(values, False, not differing(child.image, values))
        offered = [rule.given(child, reference, self._parent(reference.key, parents)) for reference in references]
        value, cut = rule.listed(references, offered)
        cut = cut or rule.has_more_references(child)
        guard = self._guards.read(rule.name, child.key, child.image)
        right = guard is not None and not guard.former and not differing(child.image, {rule.list_name: value})
        count = int(guard.at.partition(".")[0]) if guard is not None and _is_counted(guard.at) else 0
        at = self._guards.following(rule.name, child.key, guard.at if guard else "", f"{count + 1:09d}.{token}")
        stamp = self._guards.stamp(rule.name, child.key, at)
        return Wanted({rule.list_name: value, name: stamp}, cut, right)

    def _parent(self, key: ItemKey | None, parents: Mapping[ItemKey, Image]) -> Item | None:
        return self._program.recognise(key, parents.get(key)) if key is not None else None

    def _update(self, rule: ListEmbedRule, child: Item, values: Values, why: Purpose) -> Update:
        """The update of a child whose references, guard and kind are as they were read."""
        references = [as_read(name, value) for name, value in sorted(rule.read_by(child).items())]
        unchanged = AllOf((*references, self._guards.as_read(rule.name, child.image)))
        return self._items.change_as_read(rule.into, child.key, values, unchanged, why, child.image)

    def _read(self, key: ItemKey, rule: ListEmbedRule) -> Item | None:
        child = self._program.recognise(key, self._store.get(key))
        return child if child is not None and child.entity is rule.into else None

    def _parents(self, references: Iterable[Sequence[Reference] | None]) -> dict[ItemKey, Image]:
        keys = dict.fromkeys(each.key for of_child in references for each in of_child or () if each.key is not None)
        return self._store.get_many(list(keys)) if keys else {}

    # Links

    def _link(
        self, rule: ListEmbedRule, parents: Iterable[str], child: str, deadline: Deadline, records: Records
    ) -> None:
        """Write the links of parents to a child, with new tokens."""
        for parent in parents:
            self._store.write(_link_of(rule, parent, child, deadline, records))

    def _link_many(self, links: Sequence[Update]) -> None:
        """Write links together: a store of operators makes a transaction of each request to the ledger anyway."""
        for part in slices(links, _LINKS_AT_ONCE):
            try:
                self._store.transact(part)
            except TransactionCancelled:  # by another writer of one of them
                for link in part:
                    self._store.write(link)

    def _unlink(self, rule: ListEmbedRule, parent: str, link: ItemKey, image: Image, records: Records) -> None:
        """Delete a link, if it is as it was read: before the child was read, which does not reference the parent."""
        condition = Equal(("token",), image["token"])
        with suppress(ConditionFailed):
            self._store.write(Delete(link, condition, Purpose("link", (rule.name,), parent, records)))

    def missing_links(self, rule: ListEmbedRule, child: ItemKey, references: Sequence[Reference] | None) -> list[str]:
        """Return the encoded keys of a child's parents that have no link to it."""
        text = encode_key(child)
        links = {
            parent: link_key(rule.name, parent, text)
            for parent in dict.fromkeys(encode_key(each.key) for each in references or () if each.key is not None)
        }
        held = self._store.get_many(list(links.values())) if links else _NO_LINKS
        return [parent for parent, link in links.items() if link not in held]

    # Pull

    def pull(
        self,
        rule: ListEmbedRule,
        key: ItemKey,
        deadline: Deadline,
        records: Records = (),
        *,
        added: Collection[str] | None = None,
        removed: Collection[str] = (),
    ) -> None:
        """Bring a child to the present images of its parents, because of these records.

        `added` and `removed` have the encoded keys of the parents that the records add to its references, or remove from
        them; without `added`, all may lack a link.
        """
        text, linked = encode_key(key), set[str]()
        links = {parent: link_key(rule.name, parent, text) for parent in removed}
        held = self._store.get_many(list(links.values())) if links else _NO_LINKS
        child = self._bring(rule, key, deadline, records, added, linked)
        still = parents_of(rule, child)
        for parent, link in links.items():
            if parent not in still and link in held:
                self._unlink(rule, parent, link, held[link], records)

    def _bring(
        self,
        rule: ListEmbedRule,
        key: ItemKey,
        deadline: Deadline,
        records: Records,
        added: Collection[str] | None,
        linked: set[str],
    ) -> Item | None:
        """Write the links and the list of a child. Return the child as it was read; None if it is gone."""
        reason = f"{rule.name}: the guard of a child kept changing while its parents' attributes were pulled"
        for _ in tries(reason, deadline):
            child = self._read(key, rule)
            if child is None:
                break
            references = references_of(rule, child)[0]
            missing = [each for each in parents_of(rule, child) if added is None or each in added]
            missing = [each for each in missing if each not in linked]
            self._link(rule, missing, encode_key(key), deadline, records)
            linked.update(missing)
            wanted = self.wanted_attributes(rule, child, references, self._parents([references]), deadline.token())
            if not _is_due(wanted, references, renewed=True):
                return child
            try:
                self._store.write(self._update(rule, child, wanted.values, purpose_of(rule, records)))
            except ConditionFailed:
                continue
            self._count("pulled", wanted)
            return child
        return None

    def _count(self, name: str, wanted: Wanted) -> None:
        self._counters.add(name)
        if wanted.cut:
            self._counters.add("cut")

    # Push

    def push_page(
        self, rule: ListEmbedRule, parent: str, after: object, deadline: Deadline, records: Records
    ) -> tuple[object, Hopeless]:
        """Update one page of a parent's children. Raise Transient if one could not be updated now.

        Return where the next page begins, and the children that can never be updated.
        """
        deadline.check()
        partition: list[Value] = [{"S": links_key(rule.name, parent)}]
        limit = min(self._children_per_page, CHILDREN_PER_LIST_PAGE)
        page = self._store.query(LEDGER, partition, limit=limit, after=after)
        schema = self._store.schema(LEDGER)
        links = {decode_key(image["child"]["S"]): (schema.key(LEDGER, image), image) for image in page.items}
        images = self._store.get_many(list(links)) if links else {}
        children: list[Item] = []
        for key, (link, held) in links.items():
            child = self._program.recognise(key, images.get(key))
            if child is not None and child.entity is rule.into and parent in parents_of(rule, child):
                children.append(child)
            else:
                self._unlink(rule, parent, link, held, records)
        hopeless, again = self._write_each(rule, children, deadline, records, "embedded", set(links))
        for child_key in again:
            try:
                self._bring(rule, child_key, deadline, records, (), set())
            except InvalidRequest as refused:
                hopeless.append((child_key, str(refused)))
        return page.after, hopeless

    def _write_each(
        self,
        rule: ListEmbedRule,
        children: Sequence[Item],
        deadline: Deadline,
        records: Records,
        count: str,
        renewed: Collection[ItemKey],
    ) -> tuple[Hopeless, list[ItemKey]]:
        """Write the lists of children that were read just now; those that are right only if they are `renewed`.

        Return the children that can never be updated, with the reason, and those that have changed since. Raise Transient.
        """
        references = [references_of(rule, child)[0] for child in children]
        parents = self._parents(references)
        writes: list[tuple[Wanted, Update]] = []
        for child, child_references in zip(children, references, strict=True):
            wanted = self.wanted_attributes(rule, child, child_references, parents, deadline.token())
            if _is_due(wanted, child_references, renewed=child.key in renewed):
                writes.append((wanted, self._update(rule, child, wanted.values, purpose_of(rule, records))))
        updates = [update for _, update in writes]
        hopeless, again, transient = self._write_children(updates, lambda at: self._count(count, writes[at][0]))
        if transient is not None:
            raise transient
        return hopeless, again

    # Refresh

    def refresh(self, rule: ListEmbedRule, children: Sequence[Item], deadline: Deadline, *, renew: bool) -> Hopeless:
        """Bring children, which were read just now, to their parents. Return those that can never be updated.

        With `renew`, for records that were not processed, links and lists that are right are written too. Raise Transient.
        """
        deadline.check()
        texts = {child.key: encode_key(child.key) for child in children}
        links = {
            (child.key, parent): link_key(rule.name, parent, texts[child.key])
            for child in children
            for parent in parents_of(rule, child)
        }
        held = self._store.get_many(list(links.values())) if links and not renew else _NO_LINKS
        renewed = {child.key for child in children} if renew else set[ItemKey]()
        missing = [place for place, link in links.items() if link not in held]
        self._link_many([_link_of(rule, parent, texts[key], deadline, ()) for key, parent in missing])
        # a push did not find these, so a list of an older parent could still be written
        renewed.update(key for key, _ in missing)
        hopeless, again = self._write_each(rule, children, deadline, (), "pulled", renewed)
        for key in again:
            self.pull(rule, key, deadline)
        return hopeless


def _link_of(rule: ListEmbedRule, parent: str, child: str, deadline: Deadline, records: Records) -> Update:
    """The update that writes the link of a parent to a child, with a new token."""
    values: dict[str, Value] = {"child": {"S": child}, "token": {"S": deadline.token()}}
    why = Purpose("link", (rule.name,), parent, records)
    return Update(link_key(rule.name, parent, child), set=values, purpose=why)


def _is_due(wanted: Wanted, references: Sequence[Reference] | None, *, renewed: bool) -> bool:
    """Return whether to write a list: one that is right only for its new guard, which an item without references lacks."""
    return not wanted.right or (renewed and references is not None)


def _is_counted(at: str) -> bool:
    count = at.partition(".")[0]
    return count.isascii() and count.isdigit() and len(count) <= 18

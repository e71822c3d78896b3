"""Reduces pages of scans to facts, for every item of the application and of the ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from projections.engine.application import ApplicationItems
from projections.engine.changes import GENERATION, SETTLED, WIDE, generation_of
from projections.engine.copies import copies_of
from projections.engine.embeds import reference_of
from projections.engine.groups import is_amount
from projections.engine.indexes import index_attributes
from projections.engine.ledger_items import (
    CLOSED,
    COUNT,
    KEPT,
    REBUILDING,
    member_key,
    member_order,
    members_key,
    slot_in,
)
from projections.engine.store import Image, Value
from projections.engine.value_counters import count_of, counter_key
from projections.errors import BadInput
from projections.language.contribution import Contributed, Contributions, Evaluated, canonical_text
from projections.language.contribution import digest as payload_digest
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item, resolver
from projections.language.keys import ItemKey, encode_key, escape, is_range, key_text
from projections.language.rules import CopyRule, LedgerRule
from projections.language.values import canonical, decode_order, differing, encode_order, number_text
from projections.operations.verify.scanning import Page, Residues, digest, residues, slot_residues
from projections.operations.verify.scope import (
    CHILD,
    COPY,
    GROUP,
    INDEX,
    ITEM,
    LEFT,
    REBUILD,
    SOURCE,
    TARGET,
    Scope,
    group_of,
    left_on,
    source_of,
    subject_text,
)

GROUP_ROW, MEMBERS_ROW, TARGET_ROW, PARENT_ROW, FENCE_ROW, CHILD_ROW = range(6)
"""The roles of rows in views, in order: of a published target, then of a parent's children."""

_SUCCESSOR, _AMISS, _UNGUARDED, _DAMAGED = "successor", "amiss", "unguarded", "damaged"


class Reading:
    """Reads pages into facts. Safe for threads, because it has no state.

    If an item alone shows drift, the text of its subject is returned, to be examined.
    """

    def __init__(self, scope: Scope, judge: ApplicationItems) -> None:
        self._scope = scope
        self._judge = judge
        self._program = scope.program

    # The application's items

    def items(self, table: str, images: Sequence[Image]) -> tuple[Page, list[str]]:
        """Return the facts of a page of an application's table, and the texts of subjects to examine."""
        page, wrong, groups = Page(), list[str](), _Groups()
        schema = self._program.tables[table]
        for image in images:
            key = schema.key(table, image)
            try:
                self._read(key, image, page, wrong, groups)
            except Exception:  # what it has posted makes its other subjects candidates
                wrong.append(subject_text(ITEM, "", encode_key(key)))
        groups.view(self._scope, page)
        return page, wrong

    def one(self, key: ItemKey, image: Image) -> None:
        """Read one item in all its roles. Raises any error that its content causes."""
        self._read(key, image, Page(), [], _Groups())

    def _read(self, key: ItemKey, image: Image, page: Page, wrong: list[str], groups: _Groups) -> None:
        item = self._program.recognise(key, image)
        if item is not None:
            self._item(item, page, wrong, groups)
        elif self._program.guard_prefix in image:
            self._lost(key, image, page)
        if left_on(self._scope, self._judge, key, image, item):
            wrong.append(subject_text(LEFT, "", encode_key(key)))
        for rule in self._scope.parents.get(key.table, ()):
            if not isinstance(rule, ListEmbedRule):
                self._parent(rule, key, item, page)

    def _item(self, item: Item, page: Page, wrong: list[str], groups: _Groups) -> None:
        scope, entity, key = self._scope, item.entity.name, encode_key(item.key)
        if entity in scope.recorded_from:
            evaluated = self._program.contributions(item)
            mine = {rule: given for rule, given in evaluated.contributions.items() if rule in scope.recorded}
            if mine and scope.offline:
                groups.add(key, mine, evaluated)
            elif mine:
                text = subject_text(SOURCE, "", key)
                page.post("E|" + key, text, digest(canonical_text(mine)), 1)
        for copy in scope.copies_from.get(entity, ()):
            for target, attributes in copies_of(copy, item).items():
                self._copy(copy, encode_key(target), key, attributes, page, 1)
        made = scope.copy_into.get(entity)
        if made is not None:
            self._copied(made, item, key, page)
        for index in scope.indexes.get(entity, ()):
            desired = index_attributes(index, item)[0]
            if differing(item.image, desired):
                wrong.append(subject_text(INDEX, "", key))
                break
        for into in scope.published_into.get(entity, ()):
            self._published(into, item, key, page)
        for embed in scope.embeds_into.get(entity, ()):
            if isinstance(embed, ListEmbedRule):
                wrong.append(subject_text(CHILD, "", key))  # its parents are read with it
            else:
                self._child(embed, item, key, page, wrong)

    def _copy(self, rule: CopyRule, target: str, source: str, attributes: Image, page: Page, sign: int) -> None:
        by = "" if self._scope.shadow(rule) else source
        said = digest(f"{by}|{_image_text(attributes)}")
        page.post(f"C|{rule.name}|{target}", subject_text(COPY, rule.name, target, source), said, sign)

    def _copied(self, rule: CopyRule, item: Item, key: str, page: Page) -> None:
        guard = self._scope.guards.read(rule.name, item.key, item.image)
        by = guard.by if guard is not None and guard.n != 0 else ""
        if not by and guard is None:
            self._unguarded(rule, item.key, item.image, page)
        if by or self._scope.shadow(rule):
            guards, image = self._scope.guards, item.image
            owned = rule.owned(image) if guard is None else guards.owned(rule, item.key, image)
            shown = {name: value for name, value in item.image.items() if name in owned}
            self._copy(rule, key, by, shown, page, -1)

    def _unguarded(self, rule: CopyRule, key: ItemKey, image: Image, page: Page) -> None:
        """Post an item that the rule created and that has no valid guard: only a scan of all sources finds its source."""
        if self._scope.writes(rule) and self._scope.guards.created(key, image):
            text = encode_key(key)
            page.post(f"C|{rule.name}|{text}", subject_text(COPY, rule.name, text), digest(_UNGUARDED), -1)

    def _lost(self, key: ItemKey, image: Image, page: Page) -> None:
        """Post an item of no entity that a rule created: it may be a copy."""
        for rule in self._scope.copy_into.values():
            if not rule.into.at(key) or not self._scope.writes(rule):
                continue
            guard, text = self._scope.guards.read(rule.name, key, image), encode_key(key)
            if guard is None:
                self._unguarded(rule, key, image, page)
            elif guard.by and self._judge.may_write(rule, rule.into, key, image):  # it only lost what `match` reads
                subject = subject_text(COPY, rule.name, text, guard.by)
                page.post(f"C|{rule.name}|{text}", subject, digest(_UNGUARDED), -1)

    def _published(self, rule: LedgerRule, item: Item, key: str, page: Page) -> None:
        """View what an item shows of a rule, and whether all rules that create the item have no contributions."""
        names = rule.owned(item.image)
        guards = self._program.guard(rule.name), self._scope.guards.mark
        shown = {name: item.image[name] for name in (*names, *rule.created_with, *guards) if name in item.image}
        empty = self._scope.empty(item.entity.name, item.key, item.image)
        text = subject_text(TARGET, rule.name, key)
        page.view(_view(rule.name, key), TARGET_ROW, text, [shown, empty])

    def _parent(self, rule: EmbedRule, key: ItemKey, item: Item | None, page: Page) -> None:
        if item is not None and item.entity is rule.source:
            try:
                given = rule.embedded(item) or {}
                resolve = resolver(item)
                match = [render(resolve) for _, render in rule.match]
            except BadInput:
                given, match = {}, []
            content = [_image_text(given) if given else "", match]
        elif rule.partition_of(key):  # it exists, but is not a parent
            content = ["", []]
        else:
            return
        page.view(f"X|{rule.name}|{encode_key(key)}", PARENT_ROW, "", content)

    def _child(self, rule: EmbedRule, item: Item, key: str, page: Page, wrong: list[str]) -> None:
        shown = {name: item.image[name] for name in rule.owned() if name in item.image}
        guard = self._scope.guards.read(rule.name, item.key, item.image)
        text = subject_text(CHILD, "", key)
        parent = reference_of(rule, item)[0]
        if parent is None:
            if shown or (self._program.guard(rule.name) in item.image and not self._scope.shadow(rule)):
                wrong.append(text)
            return
        resolve = resolver(item)
        match = [_text(resolve(name)) for name, _ in rule.match]
        by, shadow = encode_key(parent), self._scope.shadow(rule)
        own = shadow or (guard is not None and guard.by == by)
        at = "" if shadow or guard is None else guard.at
        content = [_image_text(shown) if shown else "", match, own, at, rule.on_delete == "keep"]
        page.view(f"X|{rule.name}|{by}", CHILD_ROW, text, content)

    # The ledger

    def ledger(self, images: Sequence[Image]) -> tuple[Page, list[str]]:
        """Return the facts of a page of the ledger, and the texts of subjects to examine."""
        page, wrong = Page(), list[str]()
        members: dict[str, list[Image]] = {}
        for image in images:
            partition = image["pk"]["S"]
            kind = partition[:2]
            if kind == "E|":
                text = image["contributions"]["S"]
                if text != "{}":
                    self._entry(source_of(image), text, page)
            elif kind == "G|":
                self._group(image, page, wrong)
            elif kind == "M|":
                if partition[2:].partition("|")[0] in self._scope.grouped:
                    members.setdefault(partition, []).append(image)
            elif kind == "F|":
                self._fence(image, page)
        for partition, held in members.items():
            self._members(partition, held, page)
        return page, wrong

    def _entry(self, source: str, text: str, page: Page) -> None:
        scope = self._scope
        contributions: Contributions = json.loads(text)
        if contributions.keys() <= scope.recorded and '"~":' not in text and '"g":' not in text:
            said = text
        else:
            mine = {
                rule: told for rule, given in contributions.items() if rule in scope.recorded and (told := bare(given))
            }
            said = canonical_text(mine) if mine else ""
        if said:
            page.post("E|" + source, subject_text(SOURCE, "", source), digest(said), -1)
        for rule, given in contributions.items():
            if rule in scope.grouped:
                for target, contributed in given.items():
                    self._sums(rule, target, contributed, source, page)

    def _sums(self, rule: str, target: str, contributed: Contributed, source: str, page: Page) -> None:
        """Post what a contribution adds to its group, and its members."""
        generation = generation_of(contributed)
        a = b = 0
        for slot, amount in contributed.items():
            if slot == "+":
                for member, payload in amount.items():
                    sort = member_key(rule, target, generation, member, source).sort
                    order = member.partition("|")[2].partition(" ")[0]
                    more = digest(f"{sort}\n{source}\n{order}\n{payload}")
                    a, b = a + more[0], b + more[1]
            elif slot == "%":
                for value, number in amount.items():
                    more = residues(slot_residues(generation, counter_slot(value)), number)
                    a, b = a + more[0], b + more[1]
            elif slot != SETTLED and slot != GENERATION:
                more = residues(slot_residues(generation, slot), amount)
                a, b = a + more[0], b + more[1]
        page.post(members_key(rule, target), subject_text(GROUP, rule, target), (a, b), 1)

    def _group(self, image: Image, page: Page, wrong: list[str]) -> None:
        rule, target = group_of(image)
        if rule in self._scope.published and not is_range(target):
            kept = {name: value for name, value in image.items() if name not in ("pk", "key")}
            page.view(_view(rule, target), GROUP_ROW, subject_text(TARGET, rule, target), kept)
        if rule not in self._scope.grouped or "order" in image:
            return
        generation, _, shard = image["sk"]["S"].partition("|")
        account, text = members_key(rule, target), subject_text(GROUP, rule, target)
        first = int(shard) == 0
        if first and int(generation):
            page.post(account, text, digest(f"{_SUCCESSOR} {int(generation)}"), -1)
        if CLOSED in image:
            if first:
                page.post(account, text, digest(f"{_SUCCESSOR} {image[CLOSED]['N']}"), 1)
            return
        if REBUILDING in image:
            wrong.append(subject_text(REBUILD, rule, target))
        a = b = 0
        for slot, value in image.items():
            if "N" not in value and is_amount(slot):
                more = digest(f"{_DAMAGED} {slot}")
                a, b = a + more[0], b + more[1]
            elif slot == "n" or slot[0] in "=#%":
                more = residues(slot_residues(int(generation), slot), value["N"])
                a, b = a + more[0], b + more[1]
        page.post(account, text, (a, b), -1)

    def _members(self, partition: str, held: Sequence[Image], page: Page) -> None:
        """Post the members of a group on this page, and view the first ones of each query."""
        name, _, target = partition[2:].partition("|")
        text = subject_text(GROUP, name, target)
        for image in held:
            for residue, side in counter_postings(image) if COUNT in image else ((member_digest(image), -1),):
                page.post(partition, text, residue, side)
        rule = self._scope.rule(name)
        if rule is not None and name in self._scope.published:
            first = [{name: image[name] for name in image if name != "pk"} for image in _first(rule, held)]
            page.view("P" + partition[1:], MEMBERS_ROW, "", first)

    def _fence(self, image: Image, page: Page) -> None:
        rule, parent = group_of(image)
        page.view(f"X|{rule}|{parent}", FENCE_ROW, "", image["version"]["S"])


class _Groups:
    """The groups that the items of one page would have, if there is no ledger."""

    def __init__(self) -> None:
        self._amounts: dict[tuple[str, str], dict[str, Decimal]] = {}
        self._members: dict[tuple[str, str], list[Image]] = {}
        self._counted: dict[tuple[str, str], dict[str, int]] = {}

    def add(self, source: str, contributions: Contributions, evaluated: Evaluated) -> None:
        """Add the contributions of one item."""
        for rule, targets in contributions.items():
            for target, contributed in targets.items():
                amounts = self._amounts.setdefault((rule, target), {})
                for slot, amount in contributed.items():
                    if slot == "+":
                        self._members.setdefault((rule, target), []).extend(
                            _member(rule, target, member, source, evaluated.payloads.get((rule, target, member)))
                            for member in amount
                        )
                    elif slot == "%":
                        counted = self._counted.setdefault((rule, target), {})
                        for value, number in amount.items():
                            counted[value] = counted.get(value, 0) + number
                    else:
                        amounts[slot] = WIDE.add(amounts.get(slot, Decimal(0)), Decimal(amount))

    def view(self, scope: Scope, page: Page) -> None:
        """Add the groups to a page's views, as if they had been read from a ledger."""
        for (name, target), amounts in self._amounts.items():
            if is_range(target):
                continue
            part = {"sk": {"S": "0000|00"}, **{slot: {"N": number_text(amount)} for slot, amount in amounts.items()}}
            page.view(_view(name, target), GROUP_ROW, subject_text(TARGET, name, target), part)
        for (name, target), members in self._members.items():
            rule = scope.rule(name)
            assert rule is not None
            page.view(_view(name, target), MEMBERS_ROW, "", _first(rule, members))
        for (name, target), counted in self._counted.items():  # all, because pages have the same values
            counters = [_counter(name, target, value, number) for value, number in counted.items()]
            page.view(_view(name, target), MEMBERS_ROW, "", counters)


def counter_slot(value: str) -> str:
    """Return the slot under which the numbers of a value are compared: no group has such an amount."""
    return f"%|{value}"


def live_count(counter: Image) -> int | None:
    """Return how many contributions of entries a value counter holds; None if it is damaged."""
    held, kept = count_of(counter), count_of(counter, KEPT)
    described = "v" in counter and "o" in counter and has_its_value(counter)
    return held - kept if held is not None and kept is not None and held > 0 and described else None


def counter_postings(counter: Image) -> Iterator[tuple[Residues, int]]:
    """Yield what a value counter posts: what entries contributed to it, and one in the group's number of counters."""
    generation, slot = int(counter["sk"]["S"][:4]), slot_in(counter)
    live = live_count(counter)
    if live is None:
        yield digest(f"{_DAMAGED} {counter['sk']['S']}"), -1
        return
    order = counter["o"]["S"]
    yield residues(slot_residues(generation, counter_slot(f"{slot}|{order}")), live), -1
    yield slot_residues(generation, f"%{slot}"), 1


def member_digest(image: Image) -> Residues:
    """Return the residues of a stored member, which are equal to those that its entry posts."""
    order = image["o"]["S"] if "o" in image else ""
    payload = payload_digest(image["a"]["M"]) if "a" in image else ""
    if not has_its_value(image):
        payload += _AMISS
    return digest(f"{image['sk']['S']}\n{image['s']['S']}\n{order}\n{payload}")


def has_its_value(image: Image) -> bool:
    """Return whether a stored member has the value that it is ordered by, if it has an order."""
    value, order = image.get("v"), image["o"]["S"] if "o" in image else ""
    if not order:
        return True
    try:
        return value is not None and encode_order(value) == order
    except (BadInput, ArithmeticError):
        return False


def _member(rule: str, target: str, member: str, source: str, payload: Image | None) -> Image:
    """Return a member as a commit would store it."""
    order = member.partition("|")[2].partition(" ")[0]
    image: dict[str, Any] = {
        "sk": {"S": member_key(rule, target, 0, member, source).sort},
        "s": {"S": source},
    }
    if order:
        image |= {"o": {"S": order}, "v": decode_order(order)}
    if payload:
        image["a"] = {"M": payload}
    return image


def _counter(rule: str, target: str, value: str, number: int) -> Image:
    """Return a value counter as a commit would store it."""
    order = value.partition("|")[2]
    sort = counter_key((rule, target), 0, value).sort
    return {"sk": {"S": sort}, "o": {"S": order}, "v": decode_order(order), COUNT: {"N": str(number)}}


def _first(rule: LedgerRule, held: Sequence[Image]) -> list[Image]:
    """Return those members that a query of the rule can return. The members may be in any order."""
    ordered = sorted(held, key=member_order)
    found: dict[str, Image] = {}
    for query in rule.member_queries:
        slots: dict[str, list[Image]] = {}
        for image in ordered:
            generation, slot, _ = image["sk"]["S"].split("|", 2)
            if slot == escape(query.slot):
                slots.setdefault(generation, []).append(image)
        for of in slots.values():
            chosen = of[-query.limit :] if query.descending else of[: query.limit]
            found.update((image["sk"]["S"], image) for image in chosen)
    return list(found.values())


def bare(targets: Mapping[str, Contributed]) -> dict[str, Contributed]:
    """Return an entry's contributions to a rule's targets, without marks of settled amounts and of generations."""
    bare = {
        target: {slot: amount for slot, amount in contributed.items() if slot not in (SETTLED, GENERATION)}
        for target, contributed in targets.items()
    }
    return {target: contributed for target, contributed in bare.items() if contributed}


def _view(rule: str, target: str) -> str:
    return "P" + members_key(rule, target)[1:]


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def _image_text(image: Image) -> str:
    """Return a text that is the same for equal attributes."""
    return _encode({name: canonical(image[name]) for name in sorted(image)})


def _text(value: Value | None) -> str | None:
    """Return a string or number of a reference as a template would render it."""
    if value is None:
        return None
    kind, content = next(iter(value.items()))
    return key_text(kind, content) if kind in ("S", "N") else None

"""Compares groups with their entries exactly: sums and members.

Every commit raises the version of the groups that it changes. So the versions of the groups are read, then all entries, then
the versions again: if the version of a group is the same, none of its entries has changed, and their sum can be compared
with the group. The other groups are compared again, a few times.

All groups are compared like this first in the copy of the tables. Those that differ there are then compared in the ledger.
Without a ledger, the groups are computed in the same way from what the items contribute.

Groups that are counted by the shards of the stream have no entries. They are compared with the items in the same way; but
the versions are read again only after the longest time that a change takes to reach its group.

The values that the source items give are those of the entries, corrected by the drift of entries that was found before. So
neither a wrong entry nor a wrong group is reported as the expected value.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias

from projections.engine.changes import WIDE, combine
from projections.engine.groups import Group, read_groups
from projections.engine.ledger_items import (
    COUNT,
    LEDGER,
    Target,
    group_key,
    group_of,
    member_key,
    members_key,
    slot_in,
    source_of,
    whole_key,
)
from projections.engine.running import slices
from projections.engine.store import Image, ItemKey, Store
from projections.engine.value_counters import count_of, counter_key
from projections.errors import BadInput
from projections.language.contribution import Contributed, Contributions, Evaluated
from projections.language.contribution import digest as payload_digest
from projections.language.keys import encode_key, unescape
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.rules import AggregateRule, LedgerRule
from projections.language.values import decode_order, encode_order, number_text
from projections.operations.verify import showing
from projections.operations.verify.candidates import BUSY, DRIFTS, EXPLAINED, Candidates
from projections.operations.verify.drift import ENTRY, ITEM, Drift
from projections.operations.verify.drift import GROUP as GROUP_SIDE
from projections.operations.verify.drift import SOURCE as SOURCE_SIDE
from projections.operations.verify.scanning import Scanner, Scratch, patiently
from projections.operations.verify.verify_scope import GROUP, SOURCE, Scope, Subject
from projections.operations.verify.verify_scope import ITEM as ITEM_SUBJECT

_Row: TypeAlias = tuple[Any, ...]
"""Of a group: its account, rule, target and version."""

_MOST_ROUNDS = 3
_AT_ONCE = 100
_MOST = 1_000_000
"""Groups compared in one scan: each takes 16 bytes of memory."""


@dataclass(eq=False)
class Groups:
    """The groups that may differ from their entries, or from the items.

    `pause` waits until a change has usually reached its group. `numbers` has the groups by version that were compared with
    items, and `busy` those of them that kept changing.
    """

    scope: Scope
    store: Store
    scratch: Scratch
    candidates: Candidates
    scanner: Scanner
    pause: Callable[[], None]
    numbers: Counter[str] = field(default_factory=Counter, init=False)
    busy: Counter[str] = field(default_factory=Counter, init=False)
    _sources: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        rules = [self.scope.program.recorded[name] for name in self.scope.lanes]
        self.read_from = frozenset(source.table for rule in rules for source in rule.sources)
        """The tables with items that groups are compared with."""
        self._accounts = array("q")
        self.scratch.run("CREATE TABLE compared (account INTEGER PRIMARY KEY, rule TEXT, target TEXT, at TEXT)")
        self.scratch.run("CREATE TABLE amount (account INTEGER, slot TEXT, amount TEXT)")
        self.scratch.run("CREATE TABLE member (account INTEGER, sort TEXT, side INTEGER, content TEXT)")
        self.scratch.run("CREATE TABLE counter (account INTEGER, slot TEXT, number INTEGER)")

    def add(self, targets: Iterable[Target]) -> None:
        """Add groups to compare."""
        rows = [(account_of(members_key(rule, target)), rule, target) for rule, target in targets]
        change = "ON CONFLICT (account) DO UPDATE SET target = excluded.target"  # of members, it may be a hash
        self.scratch.fill(f"INSERT INTO compared (account, rule, target) VALUES (?, ?, ?) {change}", rows)

    def add_all(self, images: Sequence[Image]) -> None:
        """Add the groups on a page of the ledger, and those that its entries and members belong to."""
        targets: dict[Target, None] = {}
        members: dict[str, None] = {}
        for image in images:
            partition = image["pk"]["S"]
            kind = partition[:2]
            if kind == "E|":
                targets |= {(rule, target): None for rule, of in contributions_in(image).items() for target in of}
            elif kind == "G|":
                targets[group_of(image)] = None
            elif kind == "M|":
                members[partition] = None
        grouped = self.scope.grouped
        self.add(target for target in targets if target[0] in grouped | self.scope.lanes)
        rows = [(account_of(key), *key[2:].split("|", 1)) for key in members if key[2:].partition("|")[0] in grouped]
        self.scratch.fill("INSERT OR IGNORE INTO compared (account, rule, target) VALUES (?, ?, ?)", rows)

    def add_of_items(self, sources: Iterable[tuple[str, Evaluated]]) -> None:
        """Add the groups that are compared with items, and that these items contribute to."""
        self.add(dict.fromkeys((rule, target) for rule, target, _ in self._contributions(sources)))

    def screen(self, copy: Store) -> None:
        """Compare the groups of a copy of the tables. Those without a difference there are not compared again."""
        counts = self.scratch.rows("SELECT rule, count(*) FROM compared GROUP BY rule")
        self.numbers = Counter({rule: number for rule, number in counts if rule in self.scope.lanes})
        while self._round(copy, Scanner(copy, threads=1), lambda row, now: not any(self._differences(row, now, None))):
            pass

    def compare(self, *, sources: bool) -> None:
        """Compare the groups. Differences are drift; groups that keep changing are busy.

        `sources` if all entries were compared with their source items before.
        """
        self._sources = sources
        for _ in range(_MOST_ROUNDS):
            self.scratch.run("UPDATE compared SET at = NULL")
            while self._round(self.store, self.scanner, self._drifts):
                pass
            if not self.scratch.one("SELECT 1 FROM compared LIMIT 1"):
                return
        for rule, target, at in self.scratch.rows("SELECT rule, target, at FROM compared"):
            busy = Drift("group", rule, target, at=at)
            self.candidates.drift(Subject(GROUP, rule, target), [busy], BUSY)
            self.busy[rule] += rule in self.scope.lanes
        self.scratch.run("DELETE FROM compared")

    def _round(self, store: Store, scanner: Scanner, done: Callable[[_Row, Group], bool]) -> bool:
        """Compare as many groups as one scan allows. Return whether there were any.

        `done` is called for each with its row and the group as it is after the scan. It returns whether no other round is
        needed for the group.
        """
        self._accounts = array("q")
        rules: set[str] = set()
        query = "SELECT account, rule, target FROM compared WHERE at IS NULL ORDER BY account LIMIT ?"
        for rows in slices(self.scratch.rows(query, (_MOST,)), _AT_ONCE):
            groups = _read(store, rows)
            self._accounts.extend(account for account, _, _ in rows)
            rules.update(rule for _, rule, _ in rows)
            self.scratch.fill(
                "UPDATE compared SET at = ? WHERE account = ?",
                [(groups[rule, target].at, account) for account, rule, target in rows],
            )
        if not self._accounts:
            return False
        from_items = not rules.isdisjoint(self.scope.lanes)
        tables = self.read_from if from_items else ()
        scanner.whole([(table, partial(self._source_page, table)) for table in sorted(tables)])
        if not rules <= self.scope.lanes:
            scanner.whole([(LEDGER, self._page)])
        if from_items and store is self.store:
            self.pause()
        self._index()
        first, last = self._accounts[0], self._accounts[-1]
        query = (
            f"SELECT account, rule, target, at FROM compared WHERE account BETWEEN {first} AND {last} "
            "AND at IS NOT NULL ORDER BY account LIMIT ?"
        )
        for rows in slices(self.scratch.rows(query, (_MOST,)), _AT_ONCE):
            groups = _read(store, rows)
            rows = [row for row in rows if done(row, groups[row[1], row[2]])]
            self.scratch.fill("DELETE FROM compared WHERE account = ?", [row[:1] for row in rows])
        self._clear()
        return True

    def _index(self) -> None:
        self.scratch.run("CREATE INDEX amount_of ON amount (account)")
        self.scratch.run("CREATE INDEX member_of ON member (account, sort)")
        self.scratch.run("CREATE INDEX counter_of ON counter (account)")

    def _clear(self) -> None:
        for table in ("amount", "member", "counter"):
            self.scratch.run(f"DROP INDEX {table}_of")
            self.scratch.run(f"DELETE FROM {table}")

    # Without a ledger

    def contribute(self, sources: Iterable[tuple[str, Evaluated]]) -> list[Image]:
        """Add what items contribute to their groups, and return the members as commits would store them."""
        amounts: dict[tuple[int, str], Decimal] = {}
        members: list[Image] = []
        added: dict[Target, None] = {}
        for source, evaluated in sources:
            for rule in evaluated.contributions.keys() & self.scope.recorded:
                for target, contributed in evaluated.contributions[rule].items():
                    added[rule, target] = None
                    _sum(amounts, account_of(members_key(rule, target)), contributed)
                    for member in contributed.get("+", ()):
                        payload = evaluated.payloads.get((rule, target, member))
                        members.append(_member(member_key(rule, target, member, source), member, source, payload))
        self.add(added)
        self._keep(amounts)
        return members

    def computed_items(self) -> Iterator[Image]:
        """Yield the groups and value counters that all contributions give, as the ledger would store them."""
        self._index()
        for account, rule, target in self.scratch.rows("SELECT account, rule, target FROM compared"):
            sums = self._sums(account)
            _count_values(sums)
            key = group_key(rule, target)
            amounts = {slot: {"N": number_text(amount)} for slot, amount in sums.items() if not slot.startswith("%|")}
            yield {**LEDGER_SCHEMA.wire(key), **whole_key(key, target), "version": {"N": "1"}, **amounts}
            for slot, number in sums.items():
                if slot.startswith("%|") and number > 0:
                    value = slot.removeprefix("%|")
                    counter = LEDGER_SCHEMA.wire(counter_key((rule, target), value))
                    order = value.partition("|")[2]
                    yield {**counter, "o": {"S": order}, "v": decode_order(order), COUNT: {"N": number_text(number)}}
        self._clear()
        self.scratch.run("DELETE FROM compared")

    # The tables

    def _contributions(self, sources: Iterable[tuple[str, Evaluated]]) -> Iterator[tuple[str, str, Contributed]]:
        """Yield what items contribute to groups that are compared with items."""
        for _, evaluated in sources:
            for rule in evaluated.contributions.keys() & self.scope.lanes:
                for target, contributed in evaluated.contributions[rule].items():
                    yield rule, target, contributed

    def _source_page(self, table: str, images: Sequence[Image]) -> None:
        amounts: dict[tuple[int, str], Decimal] = {}
        sources, _ = evaluate_items(self.scope.program, table, images)
        for rule, target, contributed in self._contributions(sources):
            if self._is_compared(account := account_of(members_key(rule, target))):
                _sum(amounts, account, contributed)
        self._keep(amounts)

    def _is_compared(self, account: int) -> bool:
        place = bisect_left(self._accounts, account)
        return place < len(self._accounts) and self._accounts[place] == account

    def _page(self, images: Sequence[Image]) -> None:
        amounts: dict[tuple[int, str], Decimal] = {}
        members: list[tuple[int, str, int, str]] = []
        counters: list[tuple[int, str, int | None]] = []
        for image in images:
            kind = image["pk"]["S"][:2]
            if kind == "E|":
                self._entry(source_of(image), contributions_in(image), amounts, members)
            elif kind == "M|" and self._is_compared(account := account_of(image["pk"]["S"])):
                if COUNT in image:
                    counters.append(_counter_row(account, image))
                    continue
                payload = payload_digest(image["a"]["M"]) if "a" in image else ""
                order = image["o"]["S"] if "o" in image else ""
                value = showing.member(order, payload) if has_its_value(image) else showing.DAMAGED
                members.append((account, image["sk"]["S"], -1, _content(image["s"]["S"], value, order)))
        self._keep(amounts)
        if counters:
            self.scratch.fill("INSERT INTO counter VALUES (?, ?, ?)", counters)
        if members:
            self.scratch.fill("INSERT INTO member VALUES (?, ?, ?, ?)", members)

    def _keep(self, amounts: Mapping[tuple[int, str], Decimal]) -> None:
        rows = [(account, slot, number_text(amount)) for (account, slot), amount in amounts.items()]
        if rows:
            self.scratch.fill("INSERT INTO amount VALUES (?, ?, ?)", rows)

    def _entry(
        self,
        source: str,
        contributions: Contributions,
        amounts: dict[tuple[int, str], Decimal],
        members: list[tuple[int, str, int, str]],
    ) -> None:
        for rule in contributions.keys() & self.scope.grouped:
            for target, contributed in contributions[rule].items():
                account = account_of(members_key(rule, target))
                if not self._is_compared(account):
                    continue
                _sum(amounts, account, contributed)
                for member, payload in contributed.get("+", {}).items():
                    sort, content = _member_row(rule, target, member, source, payload)
                    members.append((account, sort, 1, content))

    # The comparison

    def _drifts(self, row: _Row, now: Group) -> bool:
        """Return whether a group of the ledger has not changed since its version was read: then differences are drift."""
        _, rule, target, at = row
        if now.at != at:
            return False
        corrections = self._corrections(rule, target)
        self.candidates.drift(Subject(GROUP, rule, target), list(self._differences(row, now, corrections)))
        return True

    def _differences(self, row: _Row, now: Group, corrections: _Corrections | None) -> Iterator[Drift]:
        """Yield the differences between a group and its entries, or the items."""
        account, rule, target, at = row
        known = self.scope.rule(rule)
        assert known is not None
        sums = self._sums(account)
        counters = self._counters(account)
        held_amounts = {"n": Decimal(now.totals.n), **now.totals.amounts}
        live = {**held_amounts, **{slot: Decimal(number or 0) for slot, number in counters.items()}}
        wanted = corrections.sums(sums) if corrections is not None else None
        for side in (sums, wanted):
            if side is not None:
                _count_values(side)
        common = Drift("group", rule, target, at=at)
        for slot in sorted(sums.keys() | live.keys() | now.damaged.keys() | (wanted or {}).keys()):
            summed = showing.number(sums.get(slot, Decimal(0)))
            held = showing.number(live.get(slot, Decimal(0)))
            if slot in counters and counters[slot] is None:
                held = showing.DAMAGED
            elif slot in now.damaged:  # not a number
                held = showing.value(now.damaged[slot])
            if held != summed:
                drift = replace(common, attribute=showing.measure(known, slot), actual=held, raw=slot)
                if rule in self.scope.lanes:
                    sides = {GROUP_SIDE: held, SOURCE_SIDE: summed}
                    yield replace(drift, expected=summed, sides=sides, wrong=(GROUP_SIDE,))
                    continue
                source = (showing.number(wanted.get(slot, Decimal(0))),) if wanted is not None else ()
                yield _with_sides(drift, summed, *source)
        yield from self._members(account, known, target, at, corrections)

    def _sums(self, account: int) -> dict[str, Decimal]:
        sums: dict[str, Decimal] = {}
        for slot, amount in self.scratch.rows("SELECT slot, amount FROM amount WHERE account = ?", (account,)):
            sums[slot] = WIDE.add(sums.get(slot, Decimal(0)), Decimal(amount))
        return sums

    def _counters(self, account: int) -> dict[str, int | None]:
        """Return the value counters of a group by slot, None if damaged."""
        return dict(self.scratch.rows("SELECT slot, number FROM counter WHERE account = ?", (account,)))

    def _members(
        self, account: int, rule: LedgerRule, target: str, at: str, corrections: _Corrections | None
    ) -> Iterator[Drift]:
        query = (
            "SELECT sort, max(CASE WHEN side < 0 THEN content END) held, max(CASE WHEN side > 0 THEN content END) entered "
            "FROM member WHERE account = ? GROUP BY sort HAVING held IS NOT entered"
        )
        for sort, *content in self.scratch.rows(query, (account,)):
            held, entered = (json.loads(text) if text is not None else None for text in content)
            kind = "member missing" if held is None else "member extra" if entered is None else "member stale"
            source = json.loads(content[1] or content[0])[0]
            slot = showing.members(rule, unescape(sort.split("|", 1)[0]))
            wanted = [corrections.members.get(sort, entered)] if corrections is not None else []
            sides = [side and side[1] for side in (held, entered, *wanted)]
            if sides[0] == sides[1]:  # of different sources
                sides = [side and {"source": side[0], "value": side[1]} for side in (held, entered, *wanted)]
            drift = Drift(kind, rule.name, target, slot, sides[0], None, source, at, raw=f"+{sort}")
            yield _with_sides(drift, *sides[1:])

    # The source items

    def _corrections(self, rule: str, target: str) -> _Corrections | None:
        """Return the corrections of a group's entries; None if they are not known."""
        if not self._sources or rule not in self.scope.recorded:
            return None
        if any(kind == SOURCE for kind, _ in self.candidates.about(rule, target, BUSY)):
            return None
        corrections = _Corrections()
        for kind, drift in self.candidates.about(rule, target):
            if kind == SOURCE:
                corrections.add(rule, target, drift)
        return corrections

    def with_source_side(self, drift: Drift) -> Drift:
        """Return the drift of a target with what the source items give: the values of its group, if the group is correct.

        Otherwise the values are not computed: the drift of the group shows what its totals should be.
        """
        if drift.kind not in ("value", "guard", "target missing", "target extra") or SOURCE_SIDE in drift.sides:
            return drift
        if drift.rule in self.scope.by_lanes - self.scope.lanes:
            return drift
        slot = _slot_of(self.scope.rule(drift.rule), drift.attribute)
        corrections, compared = _Corrections(), dict[str, Drift]()
        for table in (DRIFTS, EXPLAINED):
            for kind, cause in self.candidates.about(drift.rule, drift.target, table):
                if kind == SOURCE:
                    corrections.add(drift.rule, drift.target, cause)
                elif kind == GROUP:
                    compared[cause.raw] = cause
        entries = corrections.places()
        places = [place for place in entries | compared.keys() if slot is None or _name_of(place) == slot]
        wrong = {place for place in places if place not in compared or GROUP_SIDE in (compared[place].wrong or ())}
        if not wrong and not any(True for _ in self.candidates.about(drift.rule, drift.target, BUSY)):
            source = {} if drift.kind == "guard" else {SOURCE_SIDE: drift.expected}
            return replace(drift, sides={**drift.sides, **source}, wrong=(ITEM,))
        sides = {GROUP_SIDE: bool(wrong), ENTRY: not entries.isdisjoint(places)}
        return replace(drift, expected=None, wrong=tuple(side for side, is_wrong in sides.items() if is_wrong) or None)


def _slot_of(rule: LedgerRule | None, attribute: str | None) -> str | None:
    """Return the name of the only slots that an attribute depends on; None if it may depend on all."""
    if not isinstance(rule, AggregateRule):
        return None
    slots = {each.name: "n" if (each.function, each.where) == ("count", None) else each.slot for each in rule.measures}
    return slots.get(attribute or "")


def _name_of(place: str) -> str:
    """Return the name of a slot of amounts or counters, or of the slot in the sort key of a member."""
    if place[0] == "+":
        return unescape(place[1:].split("|", 1)[0])
    return place if place == "n" else place[1:].removeprefix("|").partition("|")[0]


class _Corrections:
    """The differences between the entries of a group and their source items."""

    def __init__(self) -> None:
        self._amounts: dict[str, Decimal] = {}
        self.members: dict[str, list[Any] | None] = {}
        """By sort key: source, value and order of an expected member; None for a member that should not exist."""

    def add(self, rule: str, target: str, drift: Drift) -> None:
        """Add the drift of one entry."""
        for contributed, sign in zip(drift.raw, (-1, 1), strict=True):
            for slot, amount in _amounts(contributed):
                change = WIDE.multiply(amount, Decimal(sign))
                self._amounts[slot] = WIDE.add(self._amounts.get(slot, Decimal(0)), change)
            for member, payload in contributed.get("+", {}).items():
                sort, content = _member_row(rule, target, member, drift.source or "", payload)
                self.members[sort] = json.loads(content) if sign > 0 else None

    def places(self) -> set[str]:
        """Return the slots of amounts that differ, and the sort keys of members after a `+`."""
        members = {f"+{sort}" for sort in self.members}
        return {slot for slot, amount in self._amounts.items() if amount} | members

    def sums(self, amounts: Mapping[str, Decimal]) -> dict[str, Decimal]:
        """Return the corrected sums of entries."""
        names = amounts.keys() | self._amounts.keys()
        return {name: WIDE.add(amounts.get(name, Decimal(0)), self._amounts.get(name, Decimal(0))) for name in names}


def evaluate_items(
    program: Program, table: str, images: Iterable[Image]
) -> tuple[list[tuple[str, Evaluated]], list[Subject]]:
    """Return what items contribute, by their encoded keys, and a subject for each whose content causes an error."""
    sources: list[tuple[str, Evaluated]] = []
    failing: list[Subject] = []
    for image in images:
        key = program.tables[table].key(table, image)
        try:
            sources.append((encode_key(key), program.evaluate(key, image)))
        except Exception:
            failing.append(Subject(ITEM_SUBJECT, "", encode_key(key)))
    return sources, failing


def contributions_in(entry: Image) -> Contributions:
    """Return what a stored entry contributes and keeps: what groups hold of it."""
    kept: Contributions = json.loads(entry["kept"]["S"]) if "kept" in entry else {}
    return combine(json.loads(entry["contributions"]["S"]), kept)


def _counter_row(account: int, image: Image) -> tuple[int, str, int | None]:
    order = image["o"]["S"] if "o" in image else image["sk"]["S"].split("|", 1)[1]
    return account, _counter_slot(f"{slot_in(image)}|{order}"), number_in(image)


def _count_values(sums: dict[str, Decimal]) -> None:
    """Add to sums how many different values they have, by the slot of the group."""
    for slot in [slot for slot, amount in sums.items() if slot.startswith("%|") and amount > 0]:
        name = "%" + slot[2:].partition("|")[0]
        sums[name] = sums.get(name, Decimal(0)) + 1


def _with_sides(drift: Drift, entered: Any, *source: Any) -> Drift:
    """Return the drift of a group with the value of its entries and, if known, what the source items give."""
    sides = {GROUP_SIDE: drift.actual, ENTRY: entered}
    if not source:
        return replace(drift, expected=entered, sides=sides)
    wrong = tuple(side for side, held in sides.items() if held != source[0])
    return replace(drift, expected=source[0], sides={**sides, SOURCE_SIDE: source[0]}, wrong=wrong)


def _member_row(rule: str, target: str, member: str, source: str, payload: str) -> tuple[str, str]:
    """Return the sort key and the content of the member that an entry expects."""
    sort = member_key(rule, target, member, source).sort or ""
    order = _order_of(member)
    return sort, _content(source, showing.member(order, payload), order)


def _content(source: str, value: object, order: str) -> str:
    """Return the content of a member as text: equal for equal members."""
    return json.dumps([source, value, order], ensure_ascii=False)


def _order_of(member: str) -> str:
    """Return the encoded value of a member of a contribution."""
    return member.partition("|")[2].partition(" ")[0]


def _member(key: ItemKey, member: str, source: str, payload: Image | None) -> Image:
    """Return a member as a commit would store it."""
    order = _order_of(member)
    ordered = {"o": {"S": order}, "v": decode_order(order)} if order else {}
    return {**LEDGER_SCHEMA.wire(key), "s": {"S": source}, **ordered, **({"a": {"M": payload}} if payload else {})}


def _amounts(contributed: Contributed) -> Iterator[tuple[str, Decimal]]:
    """Yield what a contribution adds to its group, by slot; the number of each value has a slot of its own."""
    for slot, amount in contributed.items():
        if slot == "%":
            yield from ((_counter_slot(value), Decimal(number)) for value, number in amount.items())
        elif slot != "+":
            yield slot, Decimal(amount)


def _sum(amounts: dict[tuple[int, str], Decimal], account: int, contributed: Contributed) -> None:
    """Add a contribution to the amounts of its group."""
    for slot, amount in _amounts(contributed):
        key = account, slot
        amounts[key] = WIDE.add(amounts.get(key, Decimal(0)), amount)


def _read(store: Store, rows: Sequence[tuple[Any, ...]]) -> dict[Target, Group]:
    targets = [(row[1], row[2]) for row in rows]
    return patiently(lambda: read_groups(store, targets))


def account_of(text: str) -> int:
    """Return the number of a group by the partition key of its members."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _counter_slot(value: str) -> str:
    """Return the slot under which the numbers of a value are compared: no group has such an amount."""
    return f"%|{value}"


def number_in(counter: Image) -> int | None:
    """Return the number in a value counter; None if it is damaged."""
    number = count_of(counter)
    described = "v" in counter and "o" in counter and has_its_value(counter)
    return number if number is not None and number > 0 and described else None


def has_its_value(image: Image) -> bool:
    """Return whether a stored member has the value that it is ordered by, if it has an order."""
    value, order = image.get("v"), image["o"]["S"] if "o" in image else ""
    if not order:
        return True
    try:
        return value is not None and encode_order(value) == order
    except (BadInput, ArithmeticError):
        return False

"""Compares groups with their entries exactly: sums and members.

Every commit raises the version of the groups that it changes. So the versions of the groups are read, then all entries, then
the versions again: if the version of a group is the same, none of its entries has changed, and their sum can be compared
with the group. The other groups are compared again, a few times.

The values that the source items give are those of the entries, corrected by the drift of entries that was found before. So
neither a wrong entry nor a wrong group is reported as the expected value.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import groupby
from typing import Any

from projections.engine.changes import GENERATION, SETTLED, WIDE
from projections.engine.groups import Generations, Group, read_groups
from projections.engine.ledger_items import (
    COUNT,
    KEPT,
    LEDGER,
    member_key,
    members_key,
    slot_in,
)
from projections.engine.store import Image, Store
from projections.engine.value_counters import count_of
from projections.language.contribution import Contributions
from projections.language.contribution import digest as payload_digest
from projections.language.keys import unescape
from projections.language.rules import LedgerRule
from projections.language.values import number_text
from projections.operations.verify import showing
from projections.operations.verify.candidates import BUSY, Candidates
from projections.operations.verify.drift import ENTRY, ITEM, Drift
from projections.operations.verify.drift import GROUP as GROUP_SIDE
from projections.operations.verify.drift import SOURCE as SOURCE_SIDE
from projections.operations.verify.reading import counter_slot, has_its_value, live_count, member_digest
from projections.operations.verify.scanning import Scanner, Scratch, account_of, digest, patiently
from projections.operations.verify.scope import GROUP, SOURCE, TARGET, Scope, Subject, source_of

_MOST_ROUNDS = 3
_AT_ONCE = 100
_MOST = 1_000_000
"""Groups compared in one scan: each takes 16 bytes of memory."""


class Groups:
    """The groups that may differ from their entries."""

    def __init__(self, scope: Scope, store: Store, scratch: Scratch, candidates: Candidates, scanner: Scanner) -> None:
        self._scope = scope
        self._store = store
        self._scratch = scratch
        self._candidates = candidates
        self._scanner = scanner
        self._accounts = array("q")
        self._generations = array("q")
        scratch.run(
            "CREATE TABLE compared (account INTEGER PRIMARY KEY, rule TEXT, target TEXT, generation INTEGER, at TEXT)"
        )
        scratch.run("CREATE TABLE amount (account INTEGER, slot TEXT, amount TEXT)")
        scratch.run("CREATE TABLE member (account INTEGER, sort TEXT, side INTEGER, digest INTEGER, content TEXT)")
        scratch.run("CREATE TABLE counter (account INTEGER, slot TEXT, live INTEGER, kept INTEGER)")
        self._sources = False

    def add(self, subjects: Sequence[Subject]) -> None:
        """Add groups to compare."""
        rows = [(account_of(members_key(s.rule, s.key)), s.rule, s.key) for s in subjects]
        self._scratch.fill("INSERT OR IGNORE INTO compared (account, rule, target) VALUES (?, ?, ?)", rows)

    def compare(self, *, sources: bool) -> None:
        """Compare the groups. Differences are drift; groups that keep changing are busy.

        `sources` if all entries were compared with their source items before.
        """
        self._sources = sources
        for _ in range(_MOST_ROUNDS):
            self._scratch.run("UPDATE compared SET at = NULL")
            while self._round():
                pass
            if not self._scratch.one("SELECT 1 FROM compared LIMIT 1"):
                return
        for rule, target, at in self._scratch.rows("SELECT rule, target, at FROM compared"):
            busy = Drift("group", rule, target, at=at)
            self._candidates.drift(Subject(GROUP, rule, target).text(), [busy], BUSY)
        self._scratch.run("DELETE FROM compared")

    def _round(self) -> bool:
        """Compare as many groups as one scan allows. Return whether there were any."""
        self._accounts, self._generations = array("q"), array("q")
        query = "SELECT account, rule, target FROM compared WHERE at IS NULL ORDER BY account LIMIT ?"
        for rows in self._batches(query, _MOST):
            groups = self._read(rows)
            for account, rule, target in rows:
                group = groups[rule, target]
                self._accounts.append(account)
                self._generations.append(group.generation)
            self._scratch.fill(
                "UPDATE compared SET generation = ?, at = ? WHERE account = ?",
                [(groups[rule, target].generation, groups[rule, target].at, account) for account, rule, target in rows],
            )
        if not self._accounts:
            return False
        self._scanner.whole([(LEDGER, self._page)])
        self._scratch.run("CREATE INDEX amount_of ON amount (account)")
        self._scratch.run("CREATE INDEX member_of ON member (account, sort)")
        self._scratch.run("CREATE INDEX counter_of ON counter (account)")
        first, last = self._accounts[0], self._accounts[-1]
        query = (
            f"SELECT account, rule, target, at FROM compared WHERE account BETWEEN {first} AND {last} "
            "AND at IS NOT NULL ORDER BY account LIMIT ?"
        )
        for rows in self._batches(query, _MOST):
            groups = self._read(rows)
            done = [(row[0],) for row in rows if self._compared(row, groups[row[1], row[2]])]
            self._scratch.fill("DELETE FROM compared WHERE account = ?", done)
        for index, table in (("amount_of", "amount"), ("member_of", "member"), ("counter_of", "counter")):
            self._scratch.run(f"DROP INDEX {index}")
            self._scratch.run(f"DELETE FROM {table}")
        return True

    def _batches(self, query: str, most: int) -> Iterator[list[tuple[Any, ...]]]:
        rows = self._scratch.rows(query, (most,))
        for _, some in groupby(enumerate(rows), key=lambda one: one[0] // _AT_ONCE):
            yield [row for _, row in some]

    def _read(self, rows: Sequence[tuple[Any, ...]]) -> dict[tuple[str, str], Group]:
        targets = [(row[1], row[2]) for row in rows]
        return patiently(lambda: read_groups(self._store, targets, Generations()))

    # The ledger

    def _place(self, account: int) -> int | None:
        place = bisect_left(self._accounts, account)
        return place if place < len(self._accounts) and self._accounts[place] == account else None

    def _page(self, images: Sequence[Image]) -> None:
        amounts: dict[tuple[int, str], Decimal] = {}
        members: list[tuple[int, str, int, int, str]] = []
        counters: list[tuple[int, str, int | None, int | None]] = []
        for image in images:
            kind = image["pk"]["S"][:2]
            if kind == "E|" and (text := image["contributions"]["S"]) != "{}":
                self._entry(source_of(image), json.loads(text), amounts, members)
            elif (
                kind == "M|"
                and (account := account_of(image["pk"]["S"]))
                and (place := self._place(account)) is not None
            ):
                if COUNT in image:
                    if int(image["sk"]["S"][:4]) == self._generations[place]:
                        counters.append(_counter_row(account, image))
                    continue
                payload = payload_digest(image["a"]["M"]) if "a" in image else ""
                order = image["o"]["S"] if "o" in image else ""
                value = showing.member(order, payload) if has_its_value(image) else showing.DAMAGED
                content = [image["s"]["S"], value, order]
                number = digest_number(member_digest(image))
                members.append((account, image["sk"]["S"], -1, number, json.dumps(content, ensure_ascii=False)))
        rows = [(account, slot, number_text(amount)) for (account, slot), amount in amounts.items()]
        if rows:
            self._scratch.fill("INSERT INTO amount VALUES (?, ?, ?)", rows)
        if counters:
            self._scratch.fill("INSERT INTO counter VALUES (?, ?, ?, ?)", counters)
        if members:
            self._scratch.fill("INSERT INTO member VALUES (?, ?, ?, ?, ?)", members)

    def _entry(
        self,
        source: str,
        contributions: Contributions,
        amounts: dict[tuple[int, str], Decimal],
        members: list[tuple[int, str, int, int, str]],
    ) -> None:
        for rule in contributions.keys() & self._scope.grouped:
            for target, contributed in contributions[rule].items():
                account = account_of(members_key(rule, target))
                place = self._place(account)
                if place is None:
                    continue
                generation = self._generations[place]
                for slot, amount in contributed.items():
                    if slot == "+":
                        for member, payload in amount.items():
                            members.append(_expected(account, rule, target, generation, member, source, payload))
                    elif slot == "%":
                        for value, number in amount.items():
                            key = account, counter_slot(value)
                            amounts[key] = WIDE.add(amounts.get(key, Decimal(0)), Decimal(number))
                    elif slot not in (SETTLED, GENERATION):
                        key = account, slot
                        amounts[key] = WIDE.add(amounts.get(key, Decimal(0)), Decimal(amount))

    # The comparison

    def _compared(self, row: tuple[Any, ...], now: Group) -> bool:
        """Return whether the group has not changed since its version was read: then differences are drift."""
        account, rule, target, at = row
        if now.rebuilding:
            return True  # reported as `rebuilding`, and not published
        if now.at != at:
            return False
        known = self._scope.rule(rule)
        assert known is not None
        sums: dict[str, Decimal] = {}
        for slot, amount in self._scratch.rows("SELECT slot, amount FROM amount WHERE account = ?", (account,)):
            sums[slot] = WIDE.add(sums.get(slot, Decimal(0)), Decimal(amount))
        counters = self._counters(account)
        live = {**now.live, **{slot: Decimal(number or 0) for slot, (number, _) in counters.items()}}
        corrections = self._corrections(rule, target, now.generation)
        wanted = corrections.sums(sums) if corrections is not None else None
        for one in (sums, wanted):
            if one is not None:
                _count_values(one, counters)
        common = Drift("group", rule, target, at=at)
        drifts = []
        for slot in sorted(sums.keys() | live.keys() | now.damaged.keys() | (wanted or {}).keys()):
            summed = showing.number(sums.get(slot, Decimal(0)))
            held = showing.number(live.get(slot, Decimal(0)))
            if slot in counters and counters[slot][0] is None:
                held = showing.DAMAGED
            elif slot in now.damaged:  # not a number
                held = showing.value(now.damaged[slot])
            if held != summed:
                drift = replace(common, attribute=showing.measure(known, slot), actual=held)
                source = (showing.number(wanted.get(slot, Decimal(0))),) if wanted is not None else ()
                drifts.append(_sided(drift, summed, *source))
        drifts += self._members(account, known, target, at, corrections)
        self._candidates.drift(Subject(GROUP, rule, target).text(), drifts)
        return True

    def _counters(self, account: int) -> dict[str, tuple[int | None, int]]:
        """Return the value counters of a group by slot: what entries contributed, None if damaged, and what has settled."""
        query = "SELECT slot, live, kept FROM counter WHERE account = ?"
        return {slot: (live, kept or 0) for slot, live, kept in self._scratch.rows(query, (account,))}

    def _members(
        self, account: int, rule: LedgerRule, target: str, at: str, corrections: _Corrections | None
    ) -> Iterator[Drift]:
        query = (
            "SELECT sort, sum(side), max(CASE WHEN side < 0 THEN content END), "
            "max(CASE WHEN side > 0 THEN content END) FROM member WHERE account = ? "
            "GROUP BY sort HAVING sum(side * digest) <> 0 OR sum(side) <> 0"
        )
        for sort, side, *content in self._scratch.rows(query, (account,)):
            held, entered = (json.loads(one) if one is not None else None for one in content)
            kind = "member stale" if side == 0 else "member missing" if side > 0 else "member extra"
            source = json.loads(content[1] or content[0])[0]
            slot = showing.members(rule, unescape(sort.split("|", 2)[1]))
            wanted = [corrections.members.get(sort, entered)] if corrections is not None else []
            shown = [one and one[1] for one in (held, entered, *wanted)]
            if shown[0] == shown[1]:  # of different sources
                shown = [one and {"source": one[0], "value": one[1]} for one in (held, entered, *wanted)]
            yield _sided(Drift(kind, rule.name, target, slot, shown[0], None, source, at), *shown[1:])

    # The source items

    def _corrections(self, rule: str, target: str, generation: int) -> _Corrections | None:
        """Return the corrections of a group's entries; None if they are not known."""
        if not self._sources or rule not in self._scope.recorded:
            return None
        if any(kind == SOURCE for kind, _ in self._candidates.about(rule, target, BUSY)):
            return None
        found = _Corrections()
        for kind, drift in self._candidates.about(rule, target):
            if kind == SOURCE:
                found.add(rule, target, generation, drift)
        return found

    def judged(self, drift: Drift) -> Drift:
        """Return the drift of a target with what the source items give: the values of its group, if the group is correct.

        Otherwise the values are not computed: the drift of the group shows what its totals should be.
        """
        if drift.kind not in ("value", "guard", "target missing", "target extra") or SOURCE_SIDE in drift.sides:
            return drift
        rule, target, guard = drift.rule, drift.target, drift.kind == "guard"
        ledger = [one for kind, one in self._candidates.about(rule, target) if kind != TARGET]
        busy = any(True for _ in self._candidates.about(rule, target, BUSY))
        if not ledger and not busy:
            source = {} if guard else {SOURCE_SIDE: drift.expected}
            return replace(drift, sides={**drift.sides, **source}, wrong=(ITEM,))
        if guard:
            return drift
        sides = tuple(dict.fromkeys(side for one in ledger for side in one.wrong or ()))
        return replace(drift, expected=None, wrong=sides or None)


class _Corrections:
    """The differences between the entries of a group and their source items."""

    def __init__(self) -> None:
        self._amounts: dict[str, Decimal] = {}
        self.members: dict[str, list[Any] | None] = {}
        """By sort key: source, value and order of an expected member; None for a member that should not exist."""

    def add(self, rule: str, target: str, generation: int, drift: Drift) -> None:
        """Add the drift of one entry."""
        for contributed, sign in zip(drift.raw, (-1, 1), strict=True):
            for slot, amount in contributed.items():
                if slot == "%":
                    for value, number in amount.items():
                        name = counter_slot(value)
                        self._amounts[name] = WIDE.add(self._amounts.get(name, Decimal(0)), Decimal(number * sign))
                elif slot != "+":
                    change = WIDE.multiply(Decimal(amount), Decimal(sign))
                    self._amounts[slot] = WIDE.add(self._amounts.get(slot, Decimal(0)), change)
                    continue
                for member, payload in amount.items():
                    _, sort, _, _, content = _expected(0, rule, target, generation, member, drift.source or "", payload)
                    self.members[sort] = json.loads(content) if sign > 0 else None

    def sums(self, amounts: Mapping[str, Decimal]) -> dict[str, Decimal]:
        """Return the corrected sums of entries."""
        names = amounts.keys() | self._amounts.keys()
        return {name: WIDE.add(amounts.get(name, Decimal(0)), self._amounts.get(name, Decimal(0))) for name in names}


def _counter_row(account: int, image: Image) -> tuple[int, str, int | None, int | None]:
    order = image["o"]["S"] if "o" in image else image["sk"]["S"].split("|", 2)[2]
    return account, counter_slot(f"{slot_in(image)}|{order}"), live_count(image), count_of(image, KEPT)


def _count_values(sums: dict[str, Decimal], counters: Mapping[str, tuple[int | None, int]]) -> None:
    """Add to sums how many different values they have, with what has settled, by the slot of the group."""
    present = {slot for slot, amount in sums.items() if slot.startswith("%|") and amount > 0}
    for slot in present | {slot for slot, (_, kept) in counters.items() if kept}:
        name = "%" + slot[2:].partition("|")[0]
        sums[name] = sums.get(name, Decimal(0)) + 1


def _sided(drift: Drift, entered: Any, *source: Any) -> Drift:
    """Return the drift of a group with the value of its entries and, if known, what the source items give."""
    sides = {GROUP_SIDE: drift.actual, ENTRY: entered}
    if not source:
        return replace(drift, expected=entered, sides=sides)
    wrong = tuple(side for side, held in sides.items() if held != source[0])
    return replace(drift, expected=source[0], sides={**sides, SOURCE_SIDE: source[0]}, wrong=wrong)


def _expected(
    account: int, rule: str, target: str, generation: int, member: str, source: str, payload: str
) -> tuple[int, str, int, int, str]:
    """Return the member that an entry expects in the open generation."""
    sort = member_key(rule, target, generation, member, source).sort or ""
    order = member.partition("|")[2].partition(" ")[0]
    said = digest(f"{sort}\n{source}\n{order}\n{payload}")
    content = [source, showing.member(order, payload), order]
    return account, sort, 1, digest_number(said), json.dumps(content, ensure_ascii=False)


def digest_number(residues: tuple[int, int]) -> int:
    """Return residues as one number. A few such numbers can be added."""
    return (residues[0] << 30) ^ residues[1]

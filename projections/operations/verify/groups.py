"""Groups against entries, exactly: the sums, and the members.

Every commit raises the version of the groups it touches. So the versions of the suspected groups are read, then all
entries, then the versions again: of a group whose version is the same, no entry has changed meanwhile, and what its entries
add up to can be compared with what it says. The others are tried again, a few times.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from itertools import groupby
from typing import Any

from projections.engine.delta import GENERATION, SETTLED, WIDE
from projections.engine.groups import Generations, Group, read_groups
from projections.engine.ledger_items import LEDGER, member_key, members_key
from projections.engine.store import Image, Store
from projections.language.contribution import Contributions
from projections.language.contribution import digest as payload_digest
from projections.language.rules import LedgerRule
from projections.language.values import number_text
from projections.operations.verify import showing
from projections.operations.verify.drift import Drift
from projections.operations.verify.facts import account_of, digest
from projections.operations.verify.reading import member_digest
from projections.operations.verify.scanning import Scanner, patiently
from projections.operations.verify.scope import Scope
from projections.operations.verify.scratch import Scratch
from projections.operations.verify.subject import GROUP, Subject, source_of
from projections.operations.verify.suspects import BUSY, Suspects

__all__ = ["Groups"]

_MOST_ROUNDS = 3
_AT_ONCE = 100
_MOST = 1_000_000
"""Groups compared in one scan: what is kept of them in memory is 16 bytes each."""


class Groups:
    """The groups that are suspected to disagree with the entries."""

    def __init__(self, scope: Scope, store: Store, scratch: Scratch, suspects: Suspects, scanner: Scanner) -> None:
        self._scope = scope
        self._store = store
        self._scratch = scratch
        self._suspects = suspects
        self._scanner = scanner
        self._accounts = array("q")
        self._generations = array("q")
        scratch.run(
            "CREATE TABLE suspected (account INTEGER PRIMARY KEY, rule TEXT, target TEXT, generation INTEGER, at TEXT)"
        )
        scratch.run("CREATE TABLE amount (account INTEGER, slot TEXT, amount TEXT)")
        scratch.run("CREATE TABLE member (account INTEGER, sort TEXT, side INTEGER, digest INTEGER, told TEXT)")

    def add(self, subjects: Sequence[Subject]) -> None:
        """Groups to be compared."""
        rows = [(account_of(members_key(s.rule, s.key)), s.rule, s.key) for s in subjects]
        self._scratch.fill("INSERT OR IGNORE INTO suspected (account, rule, target) VALUES (?, ?, ?)", rows)

    def settle(self) -> None:
        """Compares them. What differs becomes drift, what keeps changing is busy."""
        for _ in range(_MOST_ROUNDS):
            self._scratch.run("UPDATE suspected SET at = NULL")
            while self._round():
                pass
            if not self._scratch.one("SELECT 1 FROM suspected LIMIT 1"):
                return
        for rule, target, at in self._scratch.rows("SELECT rule, target, at FROM suspected"):
            busy = Drift("group", rule, target, at=at)
            self._suspects.drift(Subject(GROUP, rule, target).text(), [busy], BUSY)
        self._scratch.run("DELETE FROM suspected")

    def _round(self) -> bool:
        """Compares as many as one scan allows; whether there were any."""
        self._accounts, self._generations = array("q"), array("q")
        query = "SELECT account, rule, target FROM suspected WHERE at IS NULL ORDER BY account LIMIT ?"
        for rows in self._batches(query, _MOST):
            groups = self._read(rows)
            for account, rule, target in rows:
                group = groups[rule, target]
                self._accounts.append(account)
                self._generations.append(group.generation)
            self._scratch.fill(
                "UPDATE suspected SET generation = ?, at = ? WHERE account = ?",
                [(groups[rule, target].generation, groups[rule, target].at, account) for account, rule, target in rows],
            )
        if not self._accounts:
            return False
        self._scanner.whole([(LEDGER, self._page)])
        self._scratch.run("CREATE INDEX amount_of ON amount (account)")
        self._scratch.run("CREATE INDEX member_of ON member (account, sort)")
        first, last = self._accounts[0], self._accounts[-1]
        query = (
            f"SELECT account, rule, target, at FROM suspected WHERE account BETWEEN {first} AND {last} "
            "AND at IS NOT NULL ORDER BY account LIMIT ?"
        )
        for rows in self._batches(query, _MOST):
            groups = self._read(rows)
            done = [(row[0],) for row in rows if self._compared(row, groups[row[1], row[2]])]
            self._scratch.fill("DELETE FROM suspected WHERE account = ?", done)
        for index, table in (("amount_of", "amount"), ("member_of", "member")):
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

    # What the ledger holds of them

    def _place(self, account: int) -> int | None:
        place = bisect_left(self._accounts, account)
        return place if place < len(self._accounts) and self._accounts[place] == account else None

    def _page(self, images: Sequence[Image]) -> None:
        amounts: dict[tuple[int, str], Decimal] = {}
        members: list[tuple[int, str, int, int, str]] = []
        for image in images:
            kind = image["pk"]["S"][:2]
            if kind == "E|" and (text := image["contributions"]["S"]) != "{}":
                self._entry(source_of(image), json.loads(text), amounts, members)
            elif kind == "M|" and (account := account_of(image["pk"]["S"])) and self._place(account) is not None:
                payload = payload_digest(image["a"]["M"]) if "a" in image else ""
                told = [image["s"]["S"], showing.member(image["o"]["S"] if "o" in image else "", payload)]
                number = digest_number(member_digest(image))
                members.append((account, image["sk"]["S"], -1, number, json.dumps(told, ensure_ascii=False)))
        rows = [(account, slot, number_text(amount)) for (account, slot), amount in amounts.items()]
        if rows:
            self._scratch.fill("INSERT INTO amount VALUES (?, ?, ?)", rows)
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
                    elif slot not in (SETTLED, GENERATION):
                        key = account, slot
                        amounts[key] = WIDE.add(amounts.get(key, Decimal(0)), Decimal(amount))

    # The comparison

    def _compared(self, row: tuple[Any, ...], now: Group) -> bool:
        """Whether the group has not changed since its version was read: then what differs is drift."""
        account, rule, target, at = row
        if now.rebuilding:
            return True  # it is told as that, and nothing of it is published
        if now.at != at:
            return False
        known = self._scope.rule(rule)
        assert known is not None
        sums: dict[str, Decimal] = {}
        for slot, amount in self._scratch.rows("SELECT slot, amount FROM amount WHERE account = ?", (account,)):
            sums[slot] = WIDE.add(sums.get(slot, Decimal(0)), Decimal(amount))
        common = Drift("group", rule, target, at=at)
        drifts = []
        for slot in sorted(sums.keys() | now.live.keys()):
            held, summed = now.live.get(slot, Decimal(0)), sums.get(slot, Decimal(0))
            if held != summed:
                said, wanted = showing.number(held), showing.number(summed)
                drifts.append(replace(common, attribute=showing.measure(known, slot), actual=said, expected=wanted))
        text = Subject(GROUP, rule, target).text()
        self._suspects.drift(text, drifts)
        self._suspects.drift(text, self._members(account, known, target, at))
        return True

    def _members(self, account: int, rule: LedgerRule, target: str, at: str) -> Iterator[Drift]:
        query = (
            "SELECT sort, sum(side), max(CASE WHEN side < 0 THEN told END), "
            "max(CASE WHEN side > 0 THEN told END) FROM member WHERE account = ? "
            "GROUP BY sort HAVING sum(side * digest) <> 0 OR sum(side) <> 0"
        )
        for sort, side, held, wanted in self._scratch.rows(query, (account,)):
            kind = "member stale" if side == 0 else "member missing" if side > 0 else "member extra"
            source, value = json.loads(wanted or held)
            actual, expected = json.loads(held)[1] if held else None, value if wanted else None
            slot = showing.measure(rule, sort.split("|", 2)[1])
            yield Drift(kind, rule.name, target, slot, actual, expected, source, at)


def _expected(
    account: int, rule: str, target: str, generation: int, member: str, source: str, payload: str
) -> tuple[int, str, int, int, str]:
    """A member as the entry says it should be, in the open generation."""
    sort = member_key(rule, target, generation, member, source).sort or ""
    order = member.partition("|")[2].partition(" ")[0]
    said = digest(f"{sort}\n{source}\n{order}\n{payload}")
    told = [source, showing.member(order, payload)]
    return account, sort, 1, digest_number(said), json.dumps(told, ensure_ascii=False)


def digest_number(residues: tuple[int, int]) -> int:
    """Residues as one number, of which a few can be added."""
    return (residues[0] << 30) ^ residues[1]

"""Facts: what a scan found, reduced to what comparing needs, and how they are compared.

*Postings* are sums that must come to nothing, as in double-entry books: an item posts what it contributes, its entry
takes it off; entries post what they add up to, groups and members take it off; sources post their copies, copies take
themselves off. What is posted is a residue by two primes: of a number itself, or of a hash, so that sums of numbers can be
compared without adding them up. An account that does not come to nothing is suspected, with everyone who posted to it; one
that does is right, but for a chance of 2⁻⁶².

*Views* are what a plain sum cannot tell: the parts of a group and its target, a parent and its children. They are brought
together by sorting.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from projections.operations.verify.scratch import Scratch

__all__ = ["Facts", "Page", "Residues", "account_of", "digest", "residues", "slot_residues"]

Residues = tuple[int, int]

_P, _Q = 2_147_483_629, 2_147_483_587
"""Primes below 2³¹: 2³² of them can be added up in SQLite's 64 bits."""


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def digest(text: str) -> Residues:
    """The residues of a text's hash."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return number % _P, (number >> 31) % _Q


def residues(slot: Residues, amount: int | str) -> Residues:
    """The residues of an amount (a decimal number as text, or a whole one) of something, which has residues itself."""
    try:
        whole = int(amount)
    except ValueError:
        sign, digits, exponent = Decimal(amount).as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        return number * pow(10, exponent, _P) * slot[0] % _P, number * pow(10, exponent, _Q) * slot[1] % _Q
    return whole * slot[0] % _P, whole * slot[1] % _Q


@lru_cache(maxsize=4096)
def slot_residues(generation: int, slot: str) -> Residues:
    """The residues that stand for a slot of a group."""
    return digest(f"{generation}|{slot}")


def account_of(text: str) -> int:
    """The number of an account, by what it is of."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


class Page:
    """What one page of a scan says: added up as far as possible, then kept in one go."""

    __slots__ = ("postings", "views")

    def __init__(self) -> None:
        self.postings: dict[tuple[str, str], Residues] = {}
        """By account and subject: several subjects of one account are all examined, such as two sources of one copy."""
        self.views: list[tuple[str, int, str, str]] = []

    def post(self, account: str, subject: str, amount: Residues, sign: int) -> None:
        """Posts to an account, under the text of a subject that is to be examined if the account does not balance."""
        a, b = self.postings.get((account, subject), (0, 0))
        self.postings[account, subject] = a + sign * amount[0], b + sign * amount[1]

    def view(self, account: str, role: int, subject: str, content: Any) -> None:
        """Adds to a view; roles say in which order the rows of an account come."""
        self.views.append((account, role, subject, _encode(content)))


class Facts:
    """The facts of one pass through the tables."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        scratch.run("CREATE TABLE posting (account INTEGER, a INTEGER, b INTEGER, subject TEXT)")
        scratch.run("CREATE TABLE sight (account INTEGER, role INTEGER, subject TEXT, content TEXT)")

    def keep(self, page: Page) -> None:
        """Keeps what a page says."""
        if page.postings:
            self._scratch.fill(
                "INSERT INTO posting VALUES (?, ?, ?, ?)",
                [
                    (account_of(account), a % _P, b % _Q, subject)
                    for (account, subject), (a, b) in page.postings.items()
                ],
            )
        if page.views:
            self._scratch.fill(
                "INSERT INTO sight VALUES (?, ?, ?, ?)",
                [(account_of(account), role, subject, content) for account, role, subject, content in page.views],
            )

    def unbalanced(self) -> Iterator[list[str]]:
        """The accounts that do not come to nothing: of each, the texts of the subjects that posted to it."""
        self._scratch.run("CREATE TEMP TABLE unbalanced (account INTEGER PRIMARY KEY)")
        self._scratch.run(
            "INSERT INTO unbalanced SELECT account FROM posting GROUP BY account "
            f"HAVING sum(a) % {_P} <> 0 OR sum(b) % {_Q} <> 0"
        )
        if self._scratch.one("SELECT 1 FROM unbalanced LIMIT 1"):
            query = (
                "SELECT DISTINCT account, subject FROM posting WHERE account IN (SELECT account FROM unbalanced) "
                "ORDER BY account"
            )
            for _, rows in itertools.groupby(self._scratch.rows(query), key=lambda row: row[0]):
                yield [subject for _, subject in rows]
        self._scratch.run("DROP TABLE unbalanced")

    def views(self) -> Iterator[Iterator[tuple[int, str, Any]]]:
        """The rows of each account (role, subject, content), in the order of roles, to be read before the next account's."""
        query = "SELECT account, role, subject, content FROM sight ORDER BY account, role"
        for _, rows in itertools.groupby(self._scratch.rows(query), key=lambda row: row[0]):
            yield ((role, subject, json.loads(content)) for _, role, subject, content in rows)

    def clear(self) -> None:
        """Forgets everything."""
        self._scratch.run("DELETE FROM posting")
        self._scratch.run("DELETE FROM sight")

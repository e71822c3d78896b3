"""A plan as data: the requests that answer a query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from projections.language.access.questions import Query
from projections.language.templates import Field

__all__ = ["HIGHEST", "VERDICTS", "Buckets", "KeyEquals", "Periods", "Plan", "Request", "SortRange", "Text", "Verdict"]

HIGHEST = "\U0010ffff"
"""The last character in the order of UTF-8: a text with it at its end is greater than every continuation.

It is no character of any text (a noncharacter of Unicode): that values begin with it is not considered.
"""

Verdict: TypeAlias = Literal["one", "several", "filtered", "incomplete", "none"]

VERDICTS: tuple[Verdict, ...] = ("one", "several", "filtered", "incomplete", "none")
"""The best first.

- one: one request (per page) reads exactly the items of the answer.
- several: several requests do, and their results are joined or merged.
- filtered: the requests read items that are not part of the answer.
- incomplete: an index can be read, and it does not hold all items of the answer, or not all their attributes.
- none: only a scan could answer the query.
"""


@dataclass(frozen=True, slots=True)
class Buckets:
    """One request for each bucket, 0 to `count` - 1, of `field`."""

    field: Field
    count: int


@dataclass(frozen=True, slots=True)
class Periods:
    """One request for each period of the time in `field`, which the caller bounds."""

    field: Field


Text: TypeAlias = tuple["str | Field | Buckets | Periods", ...]
"""The text of a key: literals, the caller's values through pipes, buckets and periods."""


@dataclass(frozen=True, slots=True)
class KeyEquals:
    """A key attribute and the value that it must have."""

    attribute: str
    kind: str
    text: Text

    @property
    def fans(self) -> tuple[Buckets | Periods, ...]:
        """The parts for which several requests are made."""
        return tuple(part for part in self.text if isinstance(part, Buckets | Periods))


@dataclass(frozen=True, slots=True)
class SortRange:
    """A sort key attribute of which the beginning is known: `prefix`.

    `focus` is the field after it, which the caller's range bounds if `bounded`; `inverted` if it sorts the other way round.
    `rest` tells whether the key goes on after the focus, and `after` is the literal text there.
    """

    attribute: str
    kind: str
    prefix: Text
    focus: Field | None = None
    bounded: bool = False
    inverted: bool = False
    rest: bool = False
    after: str = ""
    until: Text | None = None
    """With several entities: the keys are from `prefix` to this text, and with `rest` to its last continuation."""


@dataclass(frozen=True, slots=True)
class Request:
    """A read of one partition, or with buckets and periods of several. `sort` is the range of the sort key.

    A `get` is a GetItem. The results are in the order of the sort key, descending or not.
    """

    entities: tuple[str, ...]
    index: str | None
    partition: tuple[KeyEquals, ...]
    fixed: tuple[KeyEquals, ...] = ()
    sort: SortRange | None = None
    get: bool = False
    descending: bool = False
    order: tuple[str, ...] = ()
    """The sort key attributes that the results are in the order of, for merging; empty if the order does not matter."""

    @property
    def fans(self) -> tuple[Buckets | Periods, ...]:
        """The parts for which several requests are made, each once."""
        return tuple(dict.fromkeys(fan for key in (*self.partition, *self.fixed) for fan in key.fans))


@dataclass(frozen=True, slots=True)
class Plan:
    """How a query is answered. The requests are joined in their order, or merged by their sort keys if `merged`.

    `reason` says why the verdict is not one. `entities` are those that the results belong to: the query's, or with `copy` (a
    rule) the target of the copy. `others` are entities whose items the requests also read, `tests` the conditions that
    results are filtered by. `assumes` are conditions on the data that the rules cannot show.
    """

    query: Query
    verdict: Verdict
    reason: str = ""
    requests: tuple[Request, ...] = ()
    entities: tuple[str, ...] = ()
    rule: str | None = None
    copy: str | None = None
    translated: Query | None = None
    """The query on the copy, if `copy` answers it."""
    merged: bool = False
    others: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()

    @property
    def asked(self) -> Query:
        """The query that the requests answer."""
        return self.translated or self.query

    @property
    def path(self) -> str:
        """The name of the table's path or of the index."""
        return self.requests[0].index or "table" if self.requests else ""

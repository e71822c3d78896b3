"""A query, and how it is answered, as data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from projections.language.patterns import EVERYTHING, Pattern
from projections.language.syntax import order_of, written_path
from projections.language.templates import Field, by_field

if TYPE_CHECKING:
    from projections.language import questions as models
    from projections.language.models import Rules


class Order(NamedTuple):
    """The order of results. Without a name, it is the order of the sort key that the query uses."""

    name: str | None
    descending: bool

    def __str__(self) -> str:
        return " ".join([*([written_path(self.name)] if self.name else []), "desc" if self.descending else "asc"])


@dataclass(frozen=True, slots=True)
class Query:
    """A query. Its answer are the items of `entities` that

    - have, for each field of `by`, the text that the field makes of the caller's value,
    - match `where`,
    - have the attribute `range`, within the bounds that the caller gives, and the attribute of `order`.

    They are in the order of `order`: numbers by value, texts by their UTF-8 bytes. `using` is the name of an index or
    `table`.
    """

    name: str
    entities: tuple[str, ...]
    get: bool = False
    by: tuple[Field, ...] = ()
    range: str | None = None
    where: Pattern = EVERYTHING
    order: Order | None = None
    limit: int | None = None
    attributes: tuple[str, ...] | None = None
    consistent: bool = False
    using: str | None = None
    id: str | None = None
    about: str | None = None
    expect: models.Expect = field(kw_only=True)

    @property
    def ordered_by(self) -> str | None:
        """The name that `order` sorts by, if it is not the order of a sort key."""
        if self.order is None:
            return None
        return self.order.name or self.range

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the values that the caller gives, without the bounds of `range`."""
        return tuple(dict.fromkeys(field.name for field in self.by))


def query_of(name: str, model: models.Query) -> Query:
    """Return a query of a rule file without mistakes."""
    return Query(
        name=name,
        entities=model.entities,
        get=model.get is not None,
        by=tuple(map(by_field, model.by)),
        range=model.range,
        where=model.where or EVERYTHING,
        order=None if model.order is None else Order(*order_of(model.order)),
        limit=model.limit,
        attributes=None if model.attributes is None else tuple(model.attributes),
        consistent=model.consistent,
        using=model.using,
        id=model.id,
        about=model.about,
        expect=model.expect,
    )


def queries_of(rules: Rules) -> dict[str, Query]:
    """Return the queries of a rule file without mistakes, by name."""
    return {name: query_of(name, model) for name, model in rules.queries.items()}


def query_form(query: Query) -> dict[str, Any]:
    """Return a query as a rule file has it."""
    names = query.entities[0] if len(query.entities) == 1 else [*query.entities]
    form: dict[str, Any] = {
        "id": query.id,
        "about": query.about,
        "get" if query.get else "find": names,
        "by": [str(field)[1:-1] for field in query.by],
        "range": query.range and written_path(query.range),
        "where": query.where.canonical,
        "order": None if query.order is None else str(query.order),
        "limit": query.limit,
        "attributes": query.attributes and [*map(written_path, query.attributes)],
        "consistent": query.consistent,
        "using": query.using,
        "expect": query.expect.model_dump(exclude_none=True),
    }
    return {name: value for name, value in form.items() if value}


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


class Periods(NamedTuple):
    """One request for each period of the time in `field`, which the caller bounds."""

    field: Field


Text: TypeAlias = tuple["str | Field | Buckets | Periods", ...]
"""The text of a key: literals, the caller's values through pipes, buckets and periods."""


class KeyEquals(NamedTuple):
    """A key attribute and the value that it must have."""

    attribute: str
    kind: str
    text: Text

    @property
    def fans(self) -> tuple[Buckets | Periods, ...]:
        """The parts for which several requests are made."""
        return tuple(part for part in self.text if isinstance(part, Buckets | Periods))


class SortRange(NamedTuple):
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

    table: str
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


class Plan(NamedTuple):
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

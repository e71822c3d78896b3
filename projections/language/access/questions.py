"""Queries and write patterns as typed values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from projections.language.patterns import Pattern
from projections.language.shapes import by_field, order_of
from projections.language.syntax import written_path
from projections.language.templates import Field

if TYPE_CHECKING:
    from projections.language import questions as models
    from projections.language.document import Rules

__all__ = [
    "Expect",
    "Operation",
    "Order",
    "Query",
    "Step",
    "WritePattern",
    "queries_of",
    "query_of",
    "write_of",
    "writes_of",
]

Operation: TypeAlias = Literal["put", "update", "delete", "check"]


@dataclass(frozen=True, slots=True)
class Order:
    """The order of results. Without a name, it is the order of the sort key that the query uses."""

    name: str | None
    descending: bool

    def __str__(self) -> str:
        return " ".join([*([written_path(self.name)] if self.name else []), "desc" if self.descending else "asc"])


@dataclass(frozen=True, slots=True)
class Expect:
    """Estimates: items returned and read, bytes of one item, requests per second."""

    items: int | None = None
    scanned: int | None = None
    bytes: int | None = None
    per_second: float | None = None


EVERYTHING = Pattern((), {})
"""The pattern that every item matches."""


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
    expect: Expect = Expect()

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


@dataclass(frozen=True, slots=True)
class Step:
    """One item of a write pattern: it must be absent or present, or its attribute `unchanged` as it was read."""

    operation: Operation
    entity: str
    condition: Literal["absent", "present"] | None = None
    unchanged: str | None = None
    set: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WritePattern:
    """Items that the application writes together."""

    name: str
    steps: tuple[Step, ...]
    transaction: bool = False
    id: str | None = None
    about: str | None = None


def query_of(name: str, model: models.Query) -> Query:
    """Return a query of a rule file without mistakes."""
    return Query(
        name=name,
        entities=model.entities,
        get=model.get is not None,
        by=tuple(map(by_field, model.by)),
        range=model.range,
        where=Pattern.parse(model.where or {}),
        order=None if model.order is None else Order(*order_of(model.order)),
        limit=model.limit,
        attributes=None if model.attributes is None else tuple(model.attributes),
        consistent=model.consistent,
        using=model.using,
        id=model.id,
        about=model.about,
        expect=Expect() if model.expect is None else Expect(**dict(model.expect)),
    )


def write_of(name: str, model: models.WritePattern) -> WritePattern:
    """Return a write pattern of a rule file without mistakes."""
    return WritePattern(name, tuple(_steps(model.steps)), model.transaction, model.id, model.about)


def queries_of(rules: Rules) -> dict[str, Query]:
    """Return the queries of a rule file without mistakes, by name."""
    return {name: query_of(name, model) for name, model in rules.queries.items()}


def writes_of(rules: Rules) -> dict[str, WritePattern]:
    """Return the write patterns of a rule file without mistakes, by name."""
    return {name: write_of(name, model) for name, model in rules.writes.items()}


def _steps(models: Iterable[models.WriteStep]) -> Iterable[Step]:
    for model in models:
        condition = model.if_
        unchanged = condition["unchanged"] if isinstance(condition, Mapping) else None
        word = None if isinstance(condition, Mapping) else condition
        yield Step(model.operation, model.entity, word, unchanged, tuple(model.set or ()))  # type: ignore[arg-type]

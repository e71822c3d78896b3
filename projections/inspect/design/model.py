"""The table design as data: what the page shows, without its form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from projections.inspect.access_patterns import AccessPattern
from projections.language.access.questions import WritePattern
from projections.language.canonical import Attributes as KeyAttributes
from projections.language.canonical import Document

__all__ = ["Attributes", "Check", "Design", "Entity", "Index", "ReadCost", "Status", "WriteCost"]

Status: TypeAlias = Literal["met", "not met", "decide", "accepted"]
"""`decide`: only a person can answer the question of the check."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity. `rule` creates its items, None if the application does. `sample` is an item as plain values."""

    name: str
    table: str
    key: tuple[tuple[str, str], ...]
    index_key: tuple[tuple[str, str], ...]
    match: str | None
    rule: str | None
    required: tuple[str, ...]
    expires: bool
    sample: Mapping[str, Any] | None
    sample_bytes: int | None
    expected_bytes: int | None
    """From `expect.bytes` of queries that return only this entity: the largest."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index with what it serves and who writes its keys.

    `queries` read it; `embeds` are rules that find children through it. `rules` and `entities` (by `index_key`) write its
    keys. `needed` are the attributes beside keys that the queries and rules need of it, None if they need all.
    """

    table: str
    name: str
    partition: KeyAttributes
    sort: KeyAttributes
    projection: str | tuple[str, ...]
    local: bool
    queries: tuple[str, ...]
    embeds: tuple[str, ...]
    rules: tuple[str, ...]
    entities: tuple[str, ...]
    needed: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Attributes:
    """Attributes of an entity with one writer: `rule`, or None for the application.

    `values` has for each attribute how the rule makes it, in the words of the rule file. `chain` are the rules, one after
    the other, that run between the application's write and the attributes. In the mode `shadow` or
    `disabled` the rule writes nothing.
    """

    entity: str
    rule: str | None
    values: Mapping[str, str]
    chain: tuple[str, ...] = ()
    mode: str = "live"


@dataclass(frozen=True, slots=True)
class ReadCost:
    """Read units of one page of a query. Without `items`, of each request that reads a page of 1 MB.

    `estimated` tells whether `expect` gives the size of an item, otherwise it is that of the sample items. `chain` are the
    rules that must run before an item is found, and through a global `index` it is found only then.
    """

    query: str
    items: int | None
    bytes: int
    estimated: bool
    consistent: bool
    requests: int
    units: float
    per_second: float | None
    chain: tuple[str, ...]
    index: bool


@dataclass(frozen=True, slots=True)
class WriteCost:
    """Write units of the application's write and of the rules that follow it; or why they cannot be estimated.

    `own` is of the table, `indexes` of the entries that the write itself changes. `rules` has all that the rule causes:
    ledger, target, index entries. In a transaction, `own` and `indexes` are doubled.
    """

    name: str
    own: float = 0.0
    indexes: Mapping[str, float] | None = None
    rules: Mapping[str, float] | None = None
    read_units: float = 0.0
    flaw: str | None = None

    @property
    def written(self) -> float:
        """The units that the application is charged for."""
        return self.own + sum((self.indexes or {}).values())

    @property
    def total(self) -> float:
        return self.written + sum((self.rules or {}).values())


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the checklist, with the facts that decide it, or the question that a person has to answer."""

    line: str
    status: Status
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Design:
    title: str
    document: Document
    entities: tuple[Entity, ...]
    indexes: tuple[Index, ...]
    patterns: tuple[AccessPattern, ...]
    writes: tuple[WritePattern, ...]
    attributes: tuple[Attributes, ...]
    reads: tuple[ReadCost, ...]
    costs: tuple[WriteCost, ...]
    checks: tuple[Check, ...] = ()

"""The interface of a store: reads, writes and conditions.

Attribute values are in DynamoDB's wire form (`{"S": "…"}`), numbers as decimal strings. Two implementations exist, in
`projections.stores`: DynamoDB and memory; one contract suite holds both to the same answers. `WrappedStore` is the base
class of stores that observe or withhold the writes of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, dataclass_transform

from projections.errors import ConditionFailed, InvalidRequest, StoreError, Transient
from projections.language.keys import Image as Image
from projections.language.keys import ItemKey as ItemKey
from projections.language.keys import Schema as Schema
from projections.language.keys import Value as Value

T = TypeVar("T")

Path: TypeAlias = tuple[str, ...]
"""Names leading to a value: `("likeCount",)`, or into maps: `("~likes", "at")`."""


Values: TypeAlias = Mapping[str, Value | None]
"""Attributes of an item, to be written or shown; None for one to be removed, or absent."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def _frozen(kind: type[T]) -> type[T]:
    """Make a dataclass whose instances only mypy keeps from being changed. At run time, that takes four times as long."""
    return dataclass(slots=True, unsafe_hash=True)(kind)


# Conditions are evaluated against the stored item; without an item, no attribute exists.


@_frozen
class Exists:
    path: Path


@_frozen
class Missing:
    path: Path


@_frozen
class Equal:
    """The value at `path` exists and equals `value` (numbers by value, sets and maps without order)."""

    path: Path
    value: Value


@_frozen
class NotEqual:
    """The value at `path` is absent or differs, as DynamoDB's `<>` has it."""

    path: Path
    value: Value


@_frozen
class Below:
    """The value at `path` exists, has the type of `value` and is less (strings by UTF-8 bytes, numbers by value)."""

    path: Path
    value: Value


@_frozen
class Above:
    """The value at `path` exists, has the type of `value` and is greater."""

    path: Path
    value: Value


@_frozen
class AllOf:
    conditions: tuple[Condition, ...]


@_frozen
class AnyOf:
    conditions: tuple[Condition, ...]


Condition: TypeAlias = Exists | Missing | Equal | NotEqual | Below | Above | AllOf | AnyOf


Records: TypeAlias = tuple[str, ...]
"""Sequence numbers of the stream records of a batch that a write follows from, in order."""

Role = Literal[
    "entry", "forget", "group", "member", "counter", "shards", "handover", "sweep", "fence", "link",
    "wait", "registry", "progress", "audit", "secret", "dismissal", "publish", "copy", "embed", "index",
    "compute", "release", "restore", "delete", "other",
]  # fmt: skip
"""The kind of a write. Those from `entry` to `dismissal` are writes to the ledger, as docs/ledger.md describes them."""


class Purpose(NamedTuple):
    """Why a write is made: its kind, the rules it is made for, the encoded key it is about, and the records it follows from.

    It is never stored or compared. The code that makes a write knows its purpose: to derive it later from the prefixes of
    keys and the names of guards fails when either changes. An entry is for all rules that its source contributes to, before
    or after. An empty `about` means the item that is written. `records` are sequence numbers of the batch that is processed;
    a backfill, a repair, or a page of a push that a worker makes has none.
    """

    kind: Role
    rules: tuple[str, ...] = ()
    about: str = ""
    records: Records = ()


OTHER = Purpose("other")
"""Of writes that the application makes, and tests."""


@_frozen
class Update:
    """One UpdateItem: creates the item where it is absent, unless the condition forbids it.

    `set` and `remove` name top-level attributes; `add` adds to numbers (absent counts as 0) or to sets; `discard` takes
    elements out of sets (a set that becomes empty is removed).
    """

    key: ItemKey
    set: Mapping[str, Value] = field(default_factory=dict)
    remove: Sequence[str] = ()
    add: Mapping[str, Value] = field(default_factory=dict)
    discard: Mapping[str, Value] = field(default_factory=dict)
    condition: Condition | None = None
    purpose: Purpose = field(default=OTHER, compare=False, repr=False)


@_frozen
class Delete:
    """One DeleteItem; deleting a missing item succeeds, unless the condition forbids it."""

    key: ItemKey
    condition: Condition | None = None
    purpose: Purpose = field(default=OTHER, compare=False, repr=False)


Write: TypeAlias = Update | Delete


class Page(NamedTuple):
    """One page of a query or scan. `after` continues it (opaque, JSON-able), None at the end."""

    items: Sequence[Image]
    after: Any = None


def all_items(read: Callable[..., Page]) -> Iterator[Image]:
    """Yield the items of all pages of a query or scan. `read` is called with `after` for each page."""
    page = read(after=None)
    yield from page.items
    while page.after is not None:
        page = read(after=page.after)
        yield from page.items


def rounds(writes: Sequence[Update]) -> list[list[int]]:
    """Return the positions of writes in rounds. No item occurs twice in a round, as a batch of statements requires."""
    seen: dict[ItemKey, int] = {}
    positions: list[list[int]] = []
    for place, write in enumerate(writes):
        number = seen[write.key] = seen.get(write.key, -1) + 1
        if number == len(positions):
            positions.append([])
        positions[number].append(place)
    return positions


class Store(Protocol):
    """Reads are strongly consistent unless an index is named. Every method may raise `errors.Transient`,
    `errors.Misconfigured` or `errors.InvalidRequest`.
    """

    def schema(self, table: str) -> Schema:
        """Return the schema of a table by its logical name."""
        ...

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        """Return the item, or None. `attributes` limits what is returned to these top-level attributes."""
        ...

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        """Return the items that exist, by key; any number of keys, read in as few requests as possible."""
        ...

    def query(
        self,
        table: str,
        values: Sequence[Value],
        *,
        index: str | None = None,
        prefix: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        attributes: Sequence[str] | None = None,
        after: Any = None,
    ) -> Page:
        """Return items of one partition in order of their sort key: `values` are the partition key's, in the schema's order.

        `prefix` keeps sort keys (strings) that begin with it. `limit` is the most items of this page.
        """
        ...

    def scan(
        self,
        table: str,
        *,
        segment: int = 0,
        segments: int = 1,
        limit: int | None = None,
        attributes: Sequence[str] | None = None,
        after: Any = None,
    ) -> Page:
        """Return one page of one segment of a parallel scan, consistent."""
        ...

    def write(self, write: Write) -> Image | None:
        """Make one conditional write. Raises `errors.ConditionFailed` with the stored item.

        Returns the item that a Delete removed; None for an Update, and where there was no item.
        """
        ...

    def transact(self, writes: Sequence[Write]) -> None:
        """Make all writes or none (at most 100 actions, no item twice). Raises `errors.TransactionCancelled`."""
        ...

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        """Make each update on its own, any number, in as few requests as possible; updates of one item keep their order.

        The answers are position by position: None where it is done, else `errors.ConditionFailed` (without the item, which
        is not asked for), `errors.InvalidRequest` or `errors.Transient`. Updates must require that their item exists:
        `Exists` of the partition key attribute, alone or in an `AllOf`; else ValueError. Where a request fails as a whole,
        all that is not answered yet is `Transient`, and may be done or not.
        """
        ...

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        """Make each update on its own, in as few requests as possible, and return each item as it is after it.

        No item may occur twice. An update creates its item, as `write` does. The answers are position by position: the item,
        or ConditionFailed with the item as it was, InvalidRequest or Transient (done or not).
        """
        ...


def answer_to(write: Callable[[Update], object], update: Update) -> StoreError | None:
    """Make one update, and return its answer as `Store.write_each` has it."""
    try:
        write(update)
    except ConditionFailed:
        return ConditionFailed()
    except (InvalidRequest, Transient) as error:
        return error.with_traceback(None)
    return None


class WrappedStore:
    """Passes reads on to a store. Subclasses define the writes, and `update_each` where an observer has to see it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def schema(self, table: str) -> Schema:
        return self._store.schema(table)

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        return self._store.get(key, attributes)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        return self._store.get_many(keys)

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        return self._store.query(table, values, **options)

    def scan(self, table: str, **options: Any) -> Page:
        return self._store.scan(table, **options)

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        return self._store.update_each(writes)

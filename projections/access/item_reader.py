"""Reading items that rules write to, in an application: without guards, with its own writes, and waiting for them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from projections.access.look import Look, Steps
from projections.access.own_reads import own_read, without_guards
from projections.access.waiting import look_at
from projections.engine.records import is_value
from projections.engine.registry import RegistrySnapshot
from projections.engine.store import Image, ItemKey, Schema, Value
from projections.errors import TransactionCancelled, Transient, UsageError
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES, encode_key, key_text
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import python_item, wire
from projections.language.values import size as size_of
from projections.stores.wire import from_boto, to_boto

T = TypeVar("T")

Key: TypeAlias = "Mapping[str, Any] | tuple[str, Mapping[str, Any]]"
"""The key attributes of an item, perhaps with its other attributes; with several tables, (logical name, key attributes)."""

WaitState: TypeAlias = Literal["reached", "late", "filling", "quarantined", "unknown"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks of `wait`: each pause is twice the one before."""

_LONGEST = 10**9
"""Seconds of the longest timeout: more, even an infinite one, is a mistake."""

_MOST_CONFLICTS = 8
"""Transactions with which a read may conflict before it fails."""


class ReadItem(dict[str, Any]):
    """An item without guards. A dictionary, with two attributes about the read of own writes.

    `corrected` names the attributes that include the caller's own writes. `uncorrected` names the others that these writes
    may change, with the reason: they are as they are stored. Both are about one step: a rule that reads what another rule
    writes to a third item is not followed.
    """

    def __init__(
        self, item: Mapping[str, Any], corrected: tuple[str, ...] = (), uncorrected: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(item)
        self.corrected = corrected
        self.uncorrected = dict(uncorrected or {})


@dataclass(frozen=True, slots=True)
class Waited:
    """How a wait ended, why, and after how many seconds.

    - `reached`: the rules have processed the source item as it is, and their targets show it.
    - `late`: not within the timeout. `reasons` has what is missing.
    - `filling`: a rule is filling: nothing of it is published before its fill is complete, which may not have begun.
    - `quarantined`: a rule cannot use the item. `reasons` has the mistakes.
    - `unknown`: the ledger does not show it. `reasons` has why.

    `not_covered` names rules of this item whose targets may not show it although the state is `reached`: those that embed it
    in children, or copy it under a key that depends on its attributes, for example.
    """

    state: WaitState
    reasons: tuple[str, ...]
    seconds: float
    not_covered: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether the targets show the item."""
        return self.state == "reached"


class ItemReader:
    """Reads items for an application. Make it with `projections.reader`. It writes nothing; safe for threads."""

    def __init__(
        self,
        program: Program,
        session: Session,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._program = program
        self._session = session
        self._clock = clock
        self._sleep = sleep
        self._registry: RegistrySnapshot | None = None
        """As the last read with `own` found it. Each read verifies it in its transaction."""

    def read(self, key: Key, own: Iterable[Key] = ()) -> ReadItem | None:
        """Return an item without guards, strongly consistent; None if there is none.

        With `own`, the keys of source items that the caller has just written, `count`, `sum` and `avg` include these items
        as they are now, whether the functions have processed them or not. An item that rules create is returned before they
        have created it. One GetItem; with `own` a TransactGetItems and a BatchGetItem, and one more request the first time
        and after a change of the rules. Raises UsageError, Transient and Misconfigured.
        """
        place = self._session.key(key)
        if not isinstance(own, Iterable) or isinstance(own, Mapping | str | bytes):
            raise UsageError(f"own is {own!r}. Pass a list of keys: own=[…]")
        sources = [self._session.key(own_key, f"own[{number}]") for number, own_key in enumerate(own)]
        if not sources:
            image = self._session.reads.get(place)
            return None if image is None else ReadItem(self._session.show(without_guards(self._program, image)))
        self._need_ledger("own")
        answer, self._registry = self._run(own_read(self._program, place, sources, self._registry))
        if answer.image is None:
            return None
        return ReadItem(self._session.show(answer.image), answer.corrected, answer.uncorrected)

    def without_guards(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return an item that the caller has read, for example with a query, without guards. Raises UsageError."""
        if not isinstance(item, Mapping):
            raise UsageError(f"the item is {item!r}. Pass a mapping of its attributes; for several items, pass each")
        return {name: value for name, value in item.items() if not name.startswith(self._program.guard_prefix)}

    def wait(self, source: Key, timeout: float = 5.0) -> Waited:
        """Wait until the targets of a source item show it as it is, at most `timeout` seconds, and return how this ended.

        Call it after a write. It covers the rules that read the item, and what it gets from its parents: not rules that
        read what these write, and not the lag of indexes. Rules in `not_covered` of the answer are not covered. It looks
        at least once. Each look takes up to four requests. An item that does not exist contributes nothing: a mistyped
        key is `reached` as a deleted item is. No look begins after the timeout; one that
        has begun ends. A failure that may pass is no end of the wait. Raises UsageError and Misconfigured.
        """
        self._need_ledger("wait")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= _LONGEST:
            raise UsageError(f"the timeout of `wait` is {timeout!r}. Pass a number of seconds, at least 0")
        key = self._session.key(source)
        if not self._program.entities_at(key):
            raise UsageError(f"no entity of the rules has the key {encode_key(key)}")
        began, pause = self._clock(), _FIRST_PAUSE
        while True:
            started = self._clock()
            try:
                look = self._run(look_at(self._program, key))
            except Transient as error:
                look = Look(missing={str(error): None})
            took, passed = self._clock() - started, self._clock() - began
            if _judge(look)[0] != "late":
                break
            remaining = timeout - passed - min(_FIRST_PAUSE, took)  # so that the last look may end in time
            if remaining <= 0:
                break
            self._sleep(min(pause, remaining))
            pause = min(_LONGEST_PAUSE, 2 * pause)
        state, reasons = _judge(look)
        return Waited(state, reasons, self._clock() - began, tuple(look.not_covered))

    def _need_ledger(self, what: str) -> None:
        if not self._session.ledger:
            raise UsageError(f"`{what}` reads the ledger. Pass ledger=NAME to `projections.reader`")

    def _run(self, steps: Steps[T]) -> T:
        """Make the requests of a protocol."""
        try:
            needed = next(steps)
            while True:
                keys = list(needed.keys)
                items = self._together(keys) if needed.together else self._session.reads.get_many(keys)
                needed = steps.send(items)
        except StopIteration as ended:
            value: T = ended.value
            return value

    def _together(self, keys: list[ItemKey]) -> Mapping[ItemKey, Any]:
        """Read items in one transaction. A commit of the functions may cancel it, and is over after milliseconds."""
        for attempt in range(_MOST_CONFLICTS):
            try:
                return self._session.reads.get_together(keys)
            except TransactionCancelled as error:
                problem = error
                self._sleep(random.uniform(0, 0.02 * 2**attempt))
        raise Transient(f"TransactGetItems: {problem}")


def _judge(look: Look) -> tuple[WaitState, tuple[str, ...]]:
    if look.unknown:
        return "unknown", tuple(look.unknown)
    if look.quarantined:
        return "quarantined", tuple(look.quarantined)
    if look.filling:
        return "filling", tuple(look.filling)
    return "late" if look.missing else "reached", tuple(look.missing)


# boto3

LEDGER = "ledger"


class Snapshots(Protocol):
    """Strongly consistent reads, as an `ItemReader` needs them."""

    def get(self, key: ItemKey) -> Image | None: ...

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]: ...

    def get_together(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        """Return the items that exist, all as they are at one moment. At most 100 keys. Raises TransactionCancelled."""
        ...


class Session(NamedTuple):
    """Reads, the conversions between images and the caller's form, and the tables' names in DynamoDB (a store has none)."""

    reads: Snapshots
    schemas: Mapping[str, Schema]
    image: Callable[[Mapping[str, Any]], Image]
    show: Callable[[Image], dict[str, Any]]
    ledger: bool
    names: Mapping[str, str] = MappingProxyType({})

    def key(self, argument: Any, what: str = "the key") -> ItemKey:
        """Return the key that a caller gives: a mapping, or a pair of a table's logical name and a mapping.

        The mapping may have other attributes, so that an item that was just written can be passed. `what` names the argument
        in messages. Raises UsageError.
        """
        table, attributes = argument if isinstance(argument, tuple) and len(argument) == 2 else (None, argument)
        own = [name for name in self.schemas if name != LEDGER]
        if table is None:
            if len(own) > 1:
                raise UsageError(f"the rules have the tables {', '.join(own)}. Pass {what} as (table, key)")
            table = own[0]
        if table not in own:
            raise UsageError(f"{what}: the rules have no table {table!r}; they have {', '.join(own)}")
        schema = self.schemas[table]
        if not isinstance(attributes, Mapping):
            raise UsageError(f"{what} is {attributes!r}. It is a mapping with {', '.join(schema.key_attributes)}")
        missing = [name for name in schema.key_attributes if name not in attributes]
        if missing:
            raise UsageError(f"{what} has no {', '.join(missing)}")
        try:
            image = self.image({name: attributes[name] for name in schema.key_attributes})
        except UsageError as error:
            raise UsageError(f"{what}: {error}") from None
        except Exception as error:  # of boto3's serializer, or of `wire`
            raise UsageError(f"{what} has a value that DynamoDB cannot store: {error}") from None
        texts = []
        parts = [(schema.partition, PARTITION_KEY_BYTES), *([(schema.sort, SORT_KEY_BYTES)] if schema.sort else [])]
        for (name, kind), most in parts:
            held = image[name]
            if not isinstance(held, Mapping) or kind not in held:
                type_name = next(iter(held), "none") if isinstance(held, Mapping) else type(held).__name__
                raise UsageError(f"{what}: {name} is of type {kind}, and the value is of type {type_name}")
            if not is_value(held):
                raise UsageError(f"{what}: {name} is {held[kind]!r}, which DynamoDB cannot store as type {kind}")
            if not held[kind]:
                raise UsageError(f"{what}: {name} is empty, and no item has an empty key. Pass the key of an item")
            if kind != "N" and (size := size_of(held)) > most:
                raise UsageError(f"{what}: {name} has {size} bytes, and no item has a key of more than {most}")
            texts.append(key_text(kind, held[kind]))
        return ItemKey(table, *texts)


def session_of(program: Program, dynamodb: Any, tables: Mapping[str, str] | str | None, ledger: str | None) -> Session:
    """Return the session of a boto3 table, resource or client of DynamoDB, or of a store. Raises UsageError."""
    schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
    if hasattr(dynamodb, "get_together"):
        if tables is not None or ledger is not None:
            raise UsageError("a store has its tables. Pass no names of tables")
        return Session(dynamodb, schemas, _plain_image, python_item, ledger=True)
    image: Callable[[Mapping[str, Any]], Image]
    show: Callable[[Image], dict[str, Any]]
    client: Any
    meta = getattr(dynamodb, "meta", None)
    own = list(program.tables)
    if meta is not None and hasattr(getattr(meta, "client", None), "transact_get_items"):  # a resource
        if hasattr(dynamodb, "table_name"):  # a table
            if tables is not None or len(own) > 1:
                raise UsageError(
                    "a boto3 table is enough for rules with one table, without other names. Pass a resource"
                )
            tables = str(dynamodb.table_name)
        python = _PythonValues()
        client = _ResourceClient(meta.client, python)
        image, show = python.image, python.show
    elif hasattr(dynamodb, "transact_get_items"):
        client, image, show = dynamodb, _typed_image, to_boto
    else:
        raise UsageError(
            f"expected a boto3 table, resource or client of DynamoDB, or a store, found {type(dynamodb).__name__}"
        )
    if tables is None:
        raise UsageError(f"no name of a table. Pass tables={{{', '.join(f'{name!r}: …' for name in own)}}}")
    names = {own[0]: tables} if isinstance(tables, str) and len(own) == 1 else tables
    if not isinstance(names, Mapping):
        raise UsageError(f"tables is {names!r}; the rules have {', '.join(own)}. Pass a mapping with the name of each")
    if names.keys() != set(own):
        raise UsageError(f"tables names {', '.join(map(str, names))}; the rules have {', '.join(own)}")
    from projections.stores.dynamodb import DynamoDBStore

    real = {**names, LEDGER: ledger} if ledger is not None else dict(names)
    for logical, name in real.items():
        if not isinstance(name, str) or not name:
            raise UsageError(f"the name of the table {logical} is {name!r}. Pass its name in DynamoDB")
    if ledger in names.values():
        raise UsageError(f"ledger={ledger!r}: this is a table of the application. The ledger is a separate table")
    schemas = {name: schema for name, schema in schemas.items() if name in real}
    store = DynamoDBStore(client, real, schemas, foreign=True)
    return Session(store, schemas, image, show, ledger is not None, names)


def _plain_image(attributes: Mapping[str, Any]) -> Image:
    return {name: cast("Value", wire(value)) for name, value in attributes.items()}


def _typed_image(attributes: Mapping[str, Any]) -> Image:
    for name, value in attributes.items():
        if not isinstance(value, Mapping):
            raise UsageError(f'{name} is {value!r}, without a type. With a client of boto3, pass {{"S": …}}')
    return from_boto(attributes)


class _PythonValues:
    """Images and items with the Python values of boto3's resources."""

    def __init__(self) -> None:
        from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

        self._serialize = TypeSerializer().serialize
        self._deserialize = TypeDeserializer().deserialize

    def image(self, item: Mapping[str, Any]) -> Image:
        return from_boto(self.wire(item))

    def show(self, image: Image) -> dict[str, Any]:
        return self.python(to_boto(image))

    def wire(self, item: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._serialize(value) for name, value in item.items()}

    def python(self, image: Mapping[str, Any]) -> dict[str, Any]:
        return {name: self._deserialize(value) for name, value in image.items()}


class _ResourceClient:
    """The client of a boto3 resource, which takes and returns Python values, as a client with attribute values."""

    def __init__(self, client: Any, values: _PythonValues) -> None:
        self._client = client
        self._values = values

    def get_item(self, **request: Any) -> dict[str, Any]:
        answer = self._client.get_item(**{**request, "Key": self._values.python(request["Key"])})
        return {**answer, "Item": self._values.wire(answer["Item"])} if "Item" in answer else answer

    def batch_get_item(self, **request: Any) -> dict[str, Any]:
        python, wire = self._values.python, self._values.wire
        asked = {
            table: {**gets, "Keys": [python(key) for key in gets["Keys"]]}
            for table, gets in request["RequestItems"].items()
        }
        answer = self._client.batch_get_item(**{**request, "RequestItems": asked})
        unprocessed = answer.get("UnprocessedKeys") or {}
        return {
            **answer,
            "Responses": {table: [wire(item) for item in items] for table, items in answer["Responses"].items()},
            "UnprocessedKeys": {
                table: {**gets, "Keys": [wire(key) for key in gets["Keys"]]} for table, gets in unprocessed.items()
            },
        }

    def transact_get_items(self, **request: Any) -> dict[str, Any]:
        asked = [
            {"Get": {**get["Get"], "Key": self._values.python(get["Get"]["Key"])}} for get in request["TransactItems"]
        ]
        answer = self._client.transact_get_items(**{**request, "TransactItems": asked})
        items = [{"Item": self._values.wire(raw["Item"])} if raw.get("Item") else {} for raw in answer["Responses"]]
        return {**answer, "Responses": items}

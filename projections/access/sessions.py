"""Reads as steps: a protocol yields which items it needs next, and a store or a boto3 object reads them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from decimal import Decimal
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from projections.engine.groups import Group, successor, summed
from projections.engine.ledger_items import CLOSED, SHARD_COUNT, Target, group_key
from projections.engine.records import is_value
from projections.engine.store import Image, ItemKey, Schema, Value
from projections.errors import Transient, UsageError
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES, key_text
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.rules import LedgerRule
from projections.language.values import python_item, wire
from projections.language.values import size as size_of
from projections.stores.wire import received, sent

__all__ = ["MOST_TOGETHER", "GroupReads", "Needed", "Session", "Snapshots", "Steps", "again", "session_of"]


T = TypeVar("T")

MOST_TOGETHER = 100
"""The most items that one TransactGetItems reads."""

_MOST_TRIES = 5


class Needed(NamedTuple):
    """Items to read: `together` as they are at one moment, else in any number of strongly consistent requests."""

    keys: Sequence[ItemKey]
    together: bool = False


Steps: TypeAlias = Generator[Needed, Mapping[ItemKey, Image], T]


class GroupReads:
    """The keys of groups, until a read has shown all their shards in their open generations."""

    def __init__(self, program: Program, targets: Sequence[Target]) -> None:
        self._generations = dict.fromkeys(targets, 0)
        self._shards = {
            (name, target): rule.shards_of(target)
            for name, target in targets
            if isinstance(rule := program.rules[name], LedgerRule)
        }

    def keys(self) -> list[ItemKey]:
        return [key for target in self._generations for key in self._of(target)]

    def _of(self, target: Target) -> list[ItemKey]:
        return [group_key(*target, self._generations[target], shard) for shard in range(self._shards[target])]

    def complete(self, items: Mapping[ItemKey, Image]) -> bool:
        """Return whether these items have all groups as a whole. If not, `keys` has more, or others."""
        whole = True
        for target, generation in self._generations.items():
            first = items.get(group_key(*target, generation))
            if first is None:
                continue
            if CLOSED in first:
                self._generations[target] = successor(generation, first)
                whole = False
            shards = int(Decimal(first[SHARD_COUNT]["N"])) if SHARD_COUNT in first else 1
            if shards > self._shards[target]:
                self._shards[target] = shards
                whole = False
        return whole

    def groups(self, items: Mapping[ItemKey, Image]) -> dict[Target, Group]:
        return {
            target: summed(generation, [items[key] for key in self._of(target) if key in items])
            for target, generation in self._generations.items()
        }


def again(reads: GroupReads, more: Sequence[ItemKey], *, together: bool) -> Steps[Mapping[ItemKey, Image]]:
    """Read groups and `more` until the groups are whole. All that is returned is of the last read. Raises Transient."""
    for _ in range(_MOST_TRIES):
        items = yield Needed([*more, *reads.keys()], together)
        if reads.complete(items):
            return items
    raise Transient("the groups of an item kept being rebuilt while they were read")


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
    get_many: Callable[[Sequence[ItemKey], Callable[[float], None]], Mapping[ItemKey, Image]]
    """Reads as `reads.get_many` does, with a function that sleeps before a request is repeated. It may raise."""
    schemas: Mapping[str, Schema]
    image: Callable[[Mapping[str, Any]], Image]
    shown: Callable[[Image], dict[str, Any]]
    ledger: bool
    names: Mapping[str, str] = MappingProxyType({})

    def key(self, given: Any, what: str = "the key") -> ItemKey:
        """Return the key that a caller gives: a mapping, or a pair of a table's logical name and a mapping.

        The mapping may have other attributes, so that an item that was just written can be passed. `what` names the argument
        in messages. Raises UsageError.
        """
        table, attributes = given if isinstance(given, tuple) and len(given) == 2 else (None, given)
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
                found = next(iter(held), "none") if isinstance(held, Mapping) else type(held).__name__
                raise UsageError(f"{what}: {name} is of type {kind}, and the value is of type {found}")
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
        return Session(
            dynamodb, lambda keys, pause: dynamodb.get_many(keys), schemas, _plain_image, python_item, ledger=True
        )
    image: Callable[[Mapping[str, Any]], Image]
    shown: Callable[[Image], dict[str, Any]]
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
        image, shown = python.image, python.shown
    elif hasattr(dynamodb, "transact_get_items"):
        client, image, shown = dynamodb, _typed_image, sent
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
    return Session(store, store.get_many, schemas, image, shown, ledger is not None, names)


def _plain_image(attributes: Mapping[str, Any]) -> Image:
    return {name: cast("Value", wire(value)) for name, value in attributes.items()}


def _typed_image(attributes: Mapping[str, Any]) -> Image:
    for name, value in attributes.items():
        if not isinstance(value, Mapping):
            raise UsageError(f'{name} is {value!r}, without a type. With a client of boto3, pass {{"S": …}}')
    return received(attributes)


class _PythonValues:
    """Images and items with the Python values of boto3's resources."""

    def __init__(self) -> None:
        from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

        self._serialize = TypeSerializer().serialize
        self._deserialize = TypeDeserializer().deserialize

    def image(self, item: Mapping[str, Any]) -> Image:
        return received(self.wire(item))

    def shown(self, image: Image) -> dict[str, Any]:
        return self.python(sent(image))

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
            table: {**one, "Keys": [python(key) for key in one["Keys"]]}
            for table, one in request["RequestItems"].items()
        }
        answer = self._client.batch_get_item(**{**request, "RequestItems": asked})
        left = answer.get("UnprocessedKeys") or {}
        return {
            **answer,
            "Responses": {table: [wire(item) for item in items] for table, items in answer["Responses"].items()},
            "UnprocessedKeys": {
                table: {**one, "Keys": [wire(key) for key in one["Keys"]]} for table, one in left.items()
            },
        }

    def transact_get_items(self, **request: Any) -> dict[str, Any]:
        asked = [
            {"Get": {**one["Get"], "Key": self._values.python(one["Get"]["Key"])}} for one in request["TransactItems"]
        ]
        answer = self._client.transact_get_items(**{**request, "TransactItems": asked})
        found = [{"Item": self._values.wire(one["Item"])} if one.get("Item") else {} for one in answer["Responses"]]
        return {**answer, "Responses": found}

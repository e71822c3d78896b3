"""The store on DynamoDB: our words in, requests out; its answers and its errors back in our words."""

from __future__ import annotations

import json
import random
import threading
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from projections.engine.store import (
    Action,
    AllOf,
    AnyOf,
    Below,
    Delete,
    Exists,
    Image,
    ItemKey,
    Missing,
    Page,
    Schema,
    Update,
    Value,
    Write,
    rounds,
)
from projections.errors import (
    ConditionFailed,
    InvalidRequest,
    Misconfigured,
    Reason,
    ReasonKind,
    StoreError,
    TransactionCancelled,
    Transient,
)
from projections.stores.conditions import Expressions, expressed, projection
from projections.stores.statements import (
    BATCH_BYTES,
    BATCH_STATEMENTS,
    parameters,
    require_items,
    statement,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

__all__ = ["DynamoDBStore", "Meter"]

_KEYS_PER_REQUEST = 100
_ATTEMPTS = 8


@dataclass(slots=True)
class Meter:
    """What a store has asked of DynamoDB. Units are as DynamoDB reports them; cancelled transactions report none.

    `statements` are the updates sent in batches, the trial included: DynamoDB charges each as the UpdateItem it stands
    for, but no emulator reports that. Safe for threads.
    """

    calls: Counter[str] = field(default_factory=Counter)
    statements: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def asked(self, operation: str, statements: int = 0) -> None:
        """Counts a call."""
        with self._lock:
            self.calls[operation] += 1
            self.statements += statements

    def answered(self, operation: str, consumed: Any) -> None:
        """Adds the consumed capacity of an answer: that of one table, or a list."""
        units = sum(each.get("CapacityUnits", 0.0) for each in ([consumed] if isinstance(consumed, dict) else consumed))
        with self._lock:
            if operation in _WRITES:
                self.write_units += units
            else:
                self.read_units += units


class DynamoDBStore:
    """`tables` gives the real name of each logical table, `schemas` its keys. Safe for threads, as its client is.

    `throttled` is called with each reason for which DynamoDB refused a request after botocore's own retries, as
    `TableWriteKeyRangeThroughputExceeded of table/app`.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        tables: Mapping[str, str],
        schemas: Mapping[str, Schema],
        meter: Meter | None = None,
        throttled: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._client = client
        self._tables = dict(tables)
        self._logical = {name: logical for logical, name in tables.items()}
        self._schemas = dict(schemas)
        self._meter = meter
        self._throttled = throttled
        self._actions: dict[tuple[str, Expressions, str], tuple[str, str, str]] = {}
        self._statements: bool | None = None
        """Whether the endpoint executes statements as DynamoDB does; None as long as nobody asked."""
        self._trial = threading.Lock()
        send_bodies_as_they_are(client)
        take_items_as_they_are(client)

    def schema(self, table: str) -> Schema:
        try:
            return self._schemas[table]
        except KeyError:
            raise Misconfigured(f"there is no table {table!r}; the store has {', '.join(self._schemas)}") from None

    # Reads

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        answer = self._call(
            "GetItem",
            TableName=self._name(key.table),
            Key=self._key(key),
            ConsistentRead=True,
            **self._projection(key.table, attributes),
        )
        if "Item" not in answer:
            return None
        return _received(answer["Item"]) if attributes is None or attributes else {}

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        unique = list(dict.fromkeys(keys))
        found: dict[ItemKey, Image] = {}
        for start in range(0, len(unique), _KEYS_PER_REQUEST):
            request: dict[str, Any] = {}
            for key in unique[start : start + _KEYS_PER_REQUEST]:
                name = self._name(key.table)
                request.setdefault(name, {"ConsistentRead": True, "Keys": []})["Keys"].append(self._key(key))
            for name, item in self._batches(request):
                table = self._logical[name]
                image = _received(item)
                found[self.schema(table).key(table, image)] = image
        return found

    def _batches(self, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """The items of one batch. What DynamoDB leaves unprocessed (throttled, or over 16 MB) is asked for again."""
        attempt = 0
        while True:
            answer = self._call("BatchGetItem", RequestItems=request)
            for name, items in answer["Responses"].items():
                for item in items:
                    yield name, item
            left: Mapping[str, Any] = answer.get("UnprocessedKeys") or {}
            if not left:
                return
            request = {name: {**one, "Keys": [_sent(key) for key in one["Keys"]]} for name, one in left.items()}
            attempt = 0 if any(answer["Responses"].values()) else attempt + 1
            if attempt == _ATTEMPTS:
                raise Transient(
                    f"BatchGetItem on {', '.join(request)} leaves keys unprocessed after {attempt} attempts"
                )
            time.sleep(random.uniform(0, min(2.0, 0.05 * 2**attempt)))

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
        partition, sort = self._key_attributes(table, index)
        if len(values) != len(partition):
            raise InvalidRequest(f"the partition key is {partition}, its values were {list(values)}")
        names = {f"#k{number}": name for number, (name, _) in enumerate(partition)}
        terms = [f"#k{number}=:k{number}" for number in range(len(partition))]
        sent = {f":k{number}": _sent_value(value) for number, value in enumerate(values)}
        if prefix:
            if not sort:
                raise InvalidRequest("begins_with needs a sort key that is a string")
            names["#s"], sent[":s"] = sort[0][0], {"S": prefix}
            terms.append("begins_with(#s,:s)")
        projected = self._projection(table, attributes)
        request: dict[str, Any] = {
            **projected,
            "KeyConditionExpression": " AND ".join(terms),
            "ExpressionAttributeNames": {**names, **projected.get("ExpressionAttributeNames", {})},
            "ExpressionAttributeValues": sent,
            "ScanIndexForward": not reverse,
        }
        if index is None:
            request["ConsistentRead"] = True
        else:
            request["IndexName"] = index
        return self._page("Query", table, request, limit, attributes, after)

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
        request = {**self._projection(table, attributes), "ConsistentRead": True}
        if segments != 1 or segment != 0:
            request |= {"Segment": segment, "TotalSegments": segments}
        return self._page("Scan", table, request, limit, attributes, after)

    def _page(
        self,
        operation: str,
        table: str,
        request: dict[str, Any],
        limit: int | None,
        attributes: Sequence[str] | None,
        after: Any,
    ) -> Page:
        if limit is not None:
            request["Limit"] = limit
        if after is not None:
            request["ExclusiveStartKey"] = _sent(after)
        answer = self._call(operation, TableName=self._name(table), **request)
        nothing = attributes is not None and not attributes
        items = [{} if nothing else _received(item) for item in answer["Items"]]
        last = answer.get("LastEvaluatedKey")
        return Page(items, _received(last) if last else None)

    # Writes

    def write(self, write: Write) -> Image | None:
        if isinstance(write, Update):
            self._call("UpdateItem", **self._action(write))
            return None
        answer = self._call("DeleteItem", **self._action(write), ReturnValues="ALL_OLD")
        return _received(answer["Attributes"]) if answer.get("Attributes") else None

    def transact(self, writes: Sequence[Action]) -> None:
        tables = ", ".join(sorted({self._name(write.key.table) for write in writes})) or "no table"
        capacity = ',"ReturnConsumedCapacity":"TOTAL"' if self._meter is not None else ""
        actions = ",".join(map(self._action_json, writes))
        # the token makes botocore's own repetition of a request, after a lost answer, no second transaction
        body = f'{{"TransactItems":[{actions}],"ClientRequestToken":"{uuid4().hex}"{capacity}}}'
        try:
            encoded = body.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(
                "a text holds half of a character (a lone surrogate), which DynamoDB cannot store"
            ) from None
        self._call("TransactWriteItems", tables, TransactItems=[], **{BODY: encoded})

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        for write in writes:
            require_items(self.schema(write.key.table), write)
        unanswered = Transient("not asked")
        answers: list[StoreError | None] = [unanswered] * len(writes)
        try:
            for places in rounds(writes):
                for batch in self._batched(writes, places):
                    self._execute(writes, batch, answers)
        except Transient as error:  # of a whole call: what is answered is done, the rest is to be asked again
            return [error if answer is unanswered else answer for answer in answers]
        return answers

    def _batched(self, writes: Sequence[Update], places: Sequence[int]) -> Iterator[dict[int, bytes]]:
        """Statements by the places of their writes, as many as fit into a call; empty where there is none."""
        batch: dict[int, bytes] = {}
        size = 0
        for place in places:
            said = self._statement_json(writes[place])
            if said is None or len(places) == 1:
                yield {place: b""}
                continue
            if len(batch) == BATCH_STATEMENTS or (batch and size + len(said) > BATCH_BYTES):
                yield batch
                batch, size = {}, 0
            batch[place] = said
            size += len(said)
        if batch:
            yield batch

    def _execute(self, writes: Sequence[Update], batch: Mapping[int, bytes], answers: list[StoreError | None]) -> None:
        """Answers the updates of a batch: one alone, and what is refused as a statement, is an UpdateItem."""
        tables = {writes[place].key.table for place in batch}
        if len(batch) > 1 and self._speaks_partiql(next(iter(tables))):
            told = self._statements_answer(list(batch.values()), tables)
        else:
            told = [InvalidRequest("not asked as a statement")] * len(batch)
        refused = []
        for place, answer in zip(batch, told, strict=True):
            if isinstance(answer, InvalidRequest):
                refused.append(place)
            else:
                answers[place] = answer
        for place in refused:  # the first that is throttled ends it: each has been tried for seconds by then
            answers[place] = self._answer(writes[place])

    def _statements_answer(self, statements: Sequence[bytes], tables: Collection[str]) -> list[StoreError | None]:
        names = ", ".join(sorted(map(self._name, tables)))
        capacity = b',"ReturnConsumedCapacity":"TOTAL"' if self._meter is not None else b""
        body = b'{"Statements":[' + b",".join(statements) + b"]" + capacity + b"}"
        try:
            answer = self._call("BatchExecuteStatement", names, len(statements), Statements=[], **{BODY: body})
        except InvalidRequest as error:  # one bad value condemns the call, which does nothing and does not say which
            return [error] * len(statements)
        told = [_of_statement(each["Error"], names) if "Error" in each else None for each in answer["Responses"]]
        for each in answer["Responses"]:
            self._note(throttling(each, names))
        for problem in told:
            if isinstance(problem, Misconfigured):
                raise problem
        return told

    def _answer(self, write: Update) -> StoreError | None:
        try:
            self.write(write)
        except ConditionFailed:
            return ConditionFailed()  # without the item, as of a statement
        except InvalidRequest as error:
            return error.with_traceback(None)
        return None

    def _speaks_partiql(self, table: str) -> bool:
        """Whether the endpoint executes statements; tried once, however many threads ask."""
        with self._trial:
            if self._statements is None:
                self._statements = self._tried(table)
            return self._statements

    def _tried(self, table: str) -> bool:
        """Emulators refuse such statements (MiniStack) or overlook their conditions (moto), so an update that must fail
        is tried: on an item that does not exist, it costs one write unit.
        """
        schema = self.schema(table)
        kinds = [schema.partition[1], schema.sort[1] if schema.sort else "S"]
        parts = [str(uuid4().int)[:38] if kind == "N" else uuid4().hex for kind in kinds]
        key = ItemKey(table, parts[0], parts[1] if schema.sort else None)
        at = ("~", "at")
        guard = AnyOf((Missing(at), Below(at, {"S": "0"})))
        condition = AllOf((Exists((schema.partition[0],)), guard))
        said = self._statement_json(Update(key, {"~": {"NULL": True}}, condition=condition))
        assert said is not None
        (answer,) = self._statements_answer([said], [table])
        if isinstance(answer, Transient):
            raise answer
        return isinstance(answer, ConditionFailed)

    def _statement_json(self, update: Update) -> bytes | None:
        """One statement of a batch as DynamoDB's JSON; None if it has to be an UpdateItem."""
        table = update.key.table
        schema = self.schema(table)
        text = statement(self._name(table), schema, update)
        if text is None:
            return None
        sent = ",".join(map(_value_json, parameters(schema, update)))
        try:
            return f'{{"Statement":{_QUOTED(text)},"Parameters":[{sent}]}}'.encode()
        except UnicodeEncodeError:  # half of a character must not condemn the whole call
            return None

    def _action_json(self, write: Action) -> str:
        """An action of a transaction as DynamoDB's JSON, which has binary as base64 text just as we do."""
        update = write if isinstance(write, Update) else None
        table = write.key.table
        texts, values = expressed(update, write.condition)
        kind = "Update" if update is not None else "Delete" if isinstance(write, Delete) else "ConditionCheck"
        known = self._actions.get((table, texts, kind))
        if known is None:
            if len(self._actions) >= 4096:  # copies of all attributes have as many shapes as their sources
                self._actions.clear()
            known = self._actions[table, texts, kind] = self._action_texts(table, texts, kind)
        before, between, after = known
        _, partition, sort = write.key
        key = f"{_QUOTED(partition)}{between}{_QUOTED(sort or '')}" if between else _QUOTED(partition)
        if not values:
            return f"{before}{key}{after}}}}}"
        sent = ",".join([f'":{number}":{_value_json(value)}' for number, value in enumerate(values)])
        return f'{before}{key}{after},"ExpressionAttributeValues":{{{sent}}}}}}}'

    def _action_texts(self, table: str, texts: Expressions, kind: str) -> tuple[str, str, str]:
        """What of an action does not depend on its key and values: before, between and after the two parts of its key."""
        request: dict[str, Any] = {"TableName": self._name(table)}
        names = dict(texts.names)
        if texts.update:
            request["UpdateExpression"] = texts.update
        elif kind == "Update":  # optional in UpdateItem, required here
            request["UpdateExpression"] = "REMOVE #nothing"
            names["#nothing"] = "~"
        if texts.condition:
            request["ConditionExpression"] = texts.condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if names:
            request["ExpressionAttributeNames"] = names
        schema = self.schema(table)
        name, of = schema.partition
        before = f'{{"{kind}":{_JSON(request)[:-1]},"Key":{{{_QUOTED(name)}:{{"{of}":'
        if schema.sort is None:
            return before, "", "}}"
        name, of = schema.sort
        return before, f'}},{_QUOTED(name)}:{{"{of}":', "}}"

    def _action(self, write: Write) -> dict[str, Any]:
        update = write if isinstance(write, Update) else None
        texts, values = expressed(update, write.condition)
        request: dict[str, Any] = {"TableName": self._name(write.key.table), "Key": self._key(write.key)}
        if texts.update:
            request["UpdateExpression"] = texts.update
        if texts.condition:
            request["ConditionExpression"] = texts.condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if texts.names:
            request["ExpressionAttributeNames"] = texts.names
        if values:
            sent = {f":{number}": _sent_value(value) for number, value in enumerate(values)}
            request["ExpressionAttributeValues"] = sent
        return request

    # What requests have in common

    def _name(self, table: str) -> str:
        try:
            return self._tables[table]
        except KeyError:
            raise Misconfigured(f"there is no table {table!r}; the store has {', '.join(self._tables)}") from None

    def _key(self, key: ItemKey) -> dict[str, Any]:
        return _sent(self.schema(key.table).wire(key))

    def _key_attributes(self, table: str, index: str | None) -> tuple[Sequence[tuple[str, str]], ...]:
        schema = self.schema(table)
        if index is None:
            return (schema.partition,), () if schema.sort is None else (schema.sort,)
        if index not in schema.indexes:
            raise Misconfigured(f"the table {table!r} has no index {index!r}; it has {', '.join(schema.indexes)}")
        return schema.indexes[index]

    def _projection(self, table: str, attributes: Sequence[str] | None) -> dict[str, Any]:
        """No attributes at all is a question for existence: DynamoDB must project something, so it is the key."""
        if attributes is None:
            return {}
        text, names = projection(tuple(attributes) or self.schema(table).key_attributes)
        return {"ProjectionExpression": text, "ExpressionAttributeNames": names}

    def _call(self, operation: str, tables: str = "", statements: int = 0, /, **request: Any) -> dict[str, Any]:
        meter = self._meter
        if meter is not None:
            meter.asked(operation, statements)
            request["ReturnConsumedCapacity"] = "TOTAL"
        try:
            answer: dict[str, Any] = getattr(self._client, _METHODS[operation])(**request)
        except ClientError as error:
            names = tables or _tables_of(request)
            self._note(throttling(error.response, names))
            raise translated(error, operation, names) from error
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
            raise Misconfigured(
                f"{operation} on {tables or _tables_of(request)}: {error}. Give this process credentials."
            ) from error
        except BotoCoreError as error:  # connections, time-outs, answers cut short
            raise Transient(f"{operation} on {tables or _tables_of(request)}: {error}") from error
        if meter is not None:
            meter.answered(operation, answer.get("ConsumedCapacity") or [])
        return answer

    def _note(self, reasons: Sequence[str]) -> None:
        for reason in reasons:
            self._throttled(reason)


_METHODS = {
    "BatchExecuteStatement": "batch_execute_statement",
    "BatchGetItem": "batch_get_item",
    "DeleteItem": "delete_item",
    "GetItem": "get_item",
    "Query": "query",
    "Scan": "scan",
    "TransactWriteItems": "transact_write_items",
    "UpdateItem": "update_item",
}
_WRITES = frozenset({"BatchExecuteStatement", "DeleteItem", "TransactWriteItems", "UpdateItem"})


def _tables_of(request: Mapping[str, Any]) -> str:
    """The tables a request names, for messages."""
    if "TableName" in request:
        return str(request["TableName"])
    return ", ".join(sorted(request["RequestItems"]))


# Bodies: botocore takes 3 ms to check, walk and write a transaction of 100 actions; written here it is a few tenths. Its
# own events let a body through, signed, sent and retried as any other.

BODY = "ProjectionsBody"
"""The parameter that carries a request's body past botocore's serializer."""


def send_bodies_as_they_are(client: DynamoDBClient) -> None:
    """Makes a client send the body that a call has in `BODY`, if it has one."""
    events = client.meta.events
    for operation in ("BatchExecuteStatement", "TransactWriteItems"):
        own = f"projections-{operation}"
        events.register(f"before-parameter-build.dynamodb.{operation}", _take_body, unique_id=f"{own}-take-body")
        events.register(f"before-call.dynamodb.{operation}", _give_body, unique_id=f"{own}-give-body")


def _take_body(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    if BODY in params:
        context[BODY] = params.pop(BODY)


def _give_body(params: dict[str, Any], context: dict[str, Any], **_: Any) -> None:
    if BODY in context:
        params["body"] = context[BODY]


def _value_json(value: Value) -> str:
    if "S" in value:
        return f'{{"S":{_QUOTED(value["S"])}}}'
    if "M" in value:  # a guard: half the time that the encoder takes, which json makes anew for each value
        return f'{{"M":{{{",".join([f"{_QUOTED(name)}:{_value_json(each)}" for name, each in value["M"].items()])}}}}}'
    if "N" in value:
        return f'{{"N":{_QUOTED(value["N"])}}}'
    return _JSON(value)


# Answers: botocore walks every value of every item, 35 µs for a small one; the JSON is our form already, and takes 4.


def take_items_as_they_are(client: DynamoDBClient) -> None:
    """Makes a client answer reads with the items of the body itself, whose binary values are base64 text."""
    for operation in ("BatchGetItem", "GetItem", "Query", "Scan"):
        client.meta.events.register(
            f"before-parse.dynamodb.{operation}", _take_items, unique_id=f"projections-{operation}-take-items"
        )


def _take_items(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] == 200:
        customized_response_dict.update(json.loads(response_dict["body"]))
        response_dict["body"] = b"{}"


_QUOTED = json.encoder.encode_basestring
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


# Values: binary is base64 text here and bytes in boto3, except where items are taken as they are. Whatever holds none is
# passed on as it is.

_PLAIN = frozenset(("S", "N", "BOOL", "NULL", "SS", "NS"))


def _sent(image: Image) -> dict[str, Any]:
    return {name: _sent_value(value) for name, value in image.items()}


def _sent_value(value: Value) -> Any:
    for kind, content in value.items():
        if kind in _PLAIN:
            break
        match kind:
            case "M":
                return {kind: _sent(content)}
            case "L":
                return {kind: [_sent_value(each) for each in content]}
            case "B":
                return {kind: b64decode(content)}
            case "BS":
                return {kind: [b64decode(each) for each in content]}
    return value


def _received(image: Mapping[str, Any]) -> dict[str, Value]:
    return {name: _received_value(value) for name, value in image.items()}


def _received_value(value: Mapping[str, Any]) -> Value:
    for kind, content in value.items():
        if kind in _PLAIN:
            break
        match kind:
            case "M":
                return {kind: _received(content)}
            case "L":
                return {kind: [_received_value(each) for each in content]}
            case "B" if isinstance(content, bytes):
                return {kind: b64encode(content).decode()}
            case "BS":
                return {kind: [b64encode(each).decode() if isinstance(each, bytes) else each for each in content]}
    return value


# Errors: every one that DynamoDB can answer with becomes one of ours here, and nowhere else.

_TRANSIENT = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "ReplicatedWriteConflictException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_INVALID = frozenset(
    {
        "DuplicateItem",
        "IdempotentParameterMismatchException",
        "ItemCollectionSizeLimitExceededException",
        "RequestEntityTooLarge",
        "SerializationException",
        "UnknownOperationException",
        "ValidationException",
    }
)
_WAYS_OUT = {
    "AccessDeniedException": "Allow dynamodb:{operation} on it to the role of this process.",
    "ExpiredTokenException": "Renew the credentials of this process.",
    "InvalidSignatureException": "Check the credentials and the clock of this process.",
    "ResourceNotFoundException": "Check the name of the table, the account and the Region.",
    "UnrecognizedClientException": "Check the credentials of this process and the Region.",
}
_TABLE_DIFFERS = (
    "does not have the specified index",
    "provided key element does not match the schema",
    "number of conditions on the keys is invalid",
    "Query condition missed key schema element",
)
"""Parts of validation messages which say that the table is not as its schema here has it: true of every request."""

_PERMISSIONS = {"BatchExecuteStatement": "PartiQLUpdate"}
"""The permission an operation needs, where it is not of its own name."""

_OF_STATEMENTS = {
    "AccessDenied": "AccessDeniedException",
    "ItemCollectionSizeLimitExceeded": "ItemCollectionSizeLimitExceededException",
    "ProvisionedThroughputExceeded": "ProvisionedThroughputExceededException",
    "ResourceNotFound": "ResourceNotFoundException",
    "ThrottlingError": "ThrottlingException",
    "TransactionConflict": "TransactionConflictException",
    "ValidationError": "ValidationException",
}

_REASONS: Mapping[str, ReasonKind] = {
    "ConditionalCheckFailed": "condition",
    "DuplicateItem": "condition",
    "TransactionConflict": "conflict",
    "ProvisionedThroughputExceeded": "throttled",
    "ThrottlingError": "throttled",
}

_THROTTLING = frozenset(
    {
        *(code for code, kind in _REASONS.items() if kind == "throttled"),
        *("ProvisionedThroughputExceededException", "RequestLimitExceeded", "Throttling", "ThrottlingException"),
    }
)


def throttling(response: Mapping[str, Any], tables: str) -> list[str]:
    """Return why an answer says that it was throttled, each reason once; nothing if it was not.

    Exceptions have the limit and the ARN of the table or index, under two spellings. Answers to statements and cancelled
    transactions have a code only.
    """
    code = response.get("Error", {}).get("Code")
    if code in _THROTTLING:
        given = response.get("ThrottlingReasons") or response.get("throttlingReasons") or []
        named = [f"{one['reason']} of {_resource(one, tables)}" for one in given if one.get("reason")]
        return list(dict.fromkeys(named)) or [f"{code} of {tables}"]
    codes = dict.fromkeys(reason.get("Code") for reason in response.get("CancellationReasons") or [])
    return [f"{each} of {tables}" for each in codes if each in _THROTTLING]


def _resource(reason: Mapping[str, Any], tables: str) -> str:
    """The table or index of a throttling reason, as `table/app/index/GSI1`."""
    return str(reason.get("resource") or tables).rpartition(":")[2]


def translated(error: ClientError, operation: str, tables: str) -> StoreError:
    """An error of DynamoDB in our words; what cannot be told is `Misconfigured`, since someone has to look at it."""
    response: Mapping[str, Any] = error.response
    code = str(response.get("Error", {}).get("Code", ""))
    message = str(response.get("Error", {}).get("Message", "")).rstrip(". ")
    if code == "ConditionalCheckFailedException":
        item = response.get("Item")
        return ConditionFailed(_received(item) if item else None)
    if code == "TransactionCanceledException" and response.get("CancellationReasons"):
        return TransactionCancelled([_reason(reason) for reason in response["CancellationReasons"]])
    if reasons := throttling(response, tables):
        message = f"{message} ({'; '.join(reasons)})".lstrip()
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return _told(code, message, operation, tables, status)


def _told(code: str, message: str, operation: str, tables: str, status: int = 400) -> StoreError:
    text = f"{operation} on {tables}: {code}: {message}"
    if code == "ValidationException":
        if any(part in text for part in _TABLE_DIFFERS):
            return Misconfigured(f"{text}. Compare the keys and indexes of the table with those in the rules.")
        if "backfilling" in text:
            return Transient(text)
    if code in _INVALID:
        return InvalidRequest(text)
    if code in _TRANSIENT or status >= 500:
        return Transient(text)
    way_out = _WAYS_OUT.get(code, "").format(operation=_PERMISSIONS.get(operation, operation))
    return Misconfigured(f"{text}. {way_out}".rstrip())


def _of_statement(error: Mapping[str, Any], tables: str) -> StoreError:
    """The error of one statement in a batch. Its codes are those of exceptions, cut short."""
    code = str(error.get("Code", ""))
    if code == "ConditionalCheckFailed":
        return ConditionFailed()
    message = str(error.get("Message", "")).rstrip(". ")
    return _told(_OF_STATEMENTS.get(code, code), message, "BatchExecuteStatement", tables)


def _reason(reason: Mapping[str, Any]) -> Reason | None:
    code = reason.get("Code") or "None"
    if code == "None":
        return None
    item = reason.get("Item")
    return Reason(_REASONS.get(code, "invalid"), _received(item) if item else None, str(reason.get("Message") or code))

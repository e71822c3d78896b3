"""The store on DynamoDB: sends the requests of `requests`, and returns images and the errors of `refusals`."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from projections.engine.running import slices
from projections.engine.store import AllOf, AnyOf, Below, Exists, Missing, Page, Update, Write, rounds
from projections.errors import ConditionFailed, InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.keys import Image, ItemKey, Schema, Value
from projections.stores.condition_expressions import holds
from projections.stores.refusals import of_statement, throttling, translate
from projections.stores.requests import BATCH_BYTES, BATCH_STATEMENTS, Requests, key_attributes, require_items
from projections.stores.wire import BODY, boto_value, from_boto, send_raw_bodies, take_raw_items, to_boto

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient


_KEYS_PER_REQUEST = 100
_ATTEMPTS = 8


@dataclass(slots=True)
class Meter:
    """Counts the calls of a store. Units are those that DynamoDB reports; it reports none for cancelled transactions.

    `statements` counts the updates sent in batches, with the one that tests the endpoint: DynamoDB charges each like an
    UpdateItem, but no emulator reports that. Safe for threads.
    """

    calls: Counter[str] = field(default_factory=Counter)
    statements: int = 0
    read_units: float = 0.0
    write_units: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def count_call(self, operation: str, statements: int = 0) -> None:
        """Count a call."""
        with self._lock:
            self.calls[operation] += 1
            self.statements += statements

    def add_units(self, operation: str, consumed: Any) -> None:
        """Add the consumed capacity of an answer: that of one table, or a list."""
        units = sum(each.get("CapacityUnits", 0.0) for each in ([consumed] if isinstance(consumed, dict) else consumed))
        with self._lock:
            if operation in _WRITES:
                self.write_units += units
            else:
                self.read_units += units


class DynamoDBStore:
    """A store of live tables. `tables` gives the real name of each logical table, `schemas` its keys. Safe for threads.

    `throttled` is called with each reason for which DynamoDB refused a request after botocore's own retries, such as
    `TableWriteKeyRangeThroughputExceeded of table/app`. `wrote` is called with each write that is sent, and its write units
    if its item has at most 1 KB. A `foreign` client belongs to an application: it is not changed, and used for reads only.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        tables: Mapping[str, str],
        schemas: Mapping[str, Schema],
        meter: Meter | None = None,
        throttled: Callable[[str], None] = lambda reason: None,
        wrote: Callable[[Write, int], None] = lambda write, units: None,
        *,
        foreign: bool = False,
    ) -> None:
        self._client = client
        self._requests = Requests(tables, schemas)
        self._logical = {name: logical for logical, name in tables.items()}
        self._meter = meter
        self._throttled = throttled
        self._wrote = wrote
        self._statements: bool | None = None
        """Whether the endpoint executes statements as DynamoDB does; None until it was tested."""
        self._testing = threading.Lock()
        if not foreign:
            send_raw_bodies(client)
            take_raw_items(client)

    def schema(self, table: str) -> Schema:
        return self._requests.schema(table)

    # Reads

    def table_name(self, table: str) -> str:
        """Return the name on AWS of a table."""
        return self._requests.name(table)

    def read(self, operation: Literal["GetItem", "Query"], parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Send a read with these parameters of boto3, and return the answer. Binary values are base64 text in both."""
        values = ("Key", "ExpressionAttributeValues", "ExclusiveStartKey")
        wire = {name: to_boto(value) if name in values else value for name, value in parameters.items()}
        return self._call(operation, **wire)

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        name, projected = self._requests.name(key.table), self._requests.projection(key.table, attributes)
        answer = self._call("GetItem", TableName=name, Key=self._requests.key(key), ConsistentRead=True, **projected)
        if "Item" not in answer:
            return None
        return from_boto(answer["Item"]) if attributes is None or attributes else {}

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        """Return the items that exist."""
        images: dict[ItemKey, Image] = {}
        for part in slices(dict.fromkeys(keys), _KEYS_PER_REQUEST):
            request: dict[str, Any] = {}
            for key in part:
                name = self._requests.name(key.table)
                request.setdefault(name, {"ConsistentRead": True, "Keys": []})["Keys"].append(self._requests.key(key))
            for name, item in self._batches(request):
                table = self._logical[name]
                image = from_boto(item)
                images[self.schema(table).key(table, image)] = image
        return images

    def get_together(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        """Return the items that exist, all as they are at one moment. At most 100 keys. Raises TransactionCancelled."""
        unique = list(dict.fromkeys(keys))
        name, wire = self._requests.name, self._requests.key
        gets = [{"Get": {"TableName": name(key.table), "Key": wire(key)}} for key in unique]
        tables = ", ".join(sorted({self._requests.name(key.table) for key in unique}))
        answer = self._call("TransactGetItems", tables, TransactItems=gets)
        items = zip(unique, answer["Responses"], strict=True)
        return {key: from_boto(response["Item"]) for key, response in items if response.get("Item")}

    def _batches(self, request: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the items of a batch. Keys that DynamoDB leaves unprocessed (throttled, over 16 MB) are requested again."""
        attempt = 0
        while True:
            answer = self._call("BatchGetItem", RequestItems=request)
            for name, items in answer["Responses"].items():
                for item in items:
                    yield name, item
            remaining: Mapping[str, Any] = answer.get("UnprocessedKeys") or {}
            if not remaining:
                return
            request = {name: {**get, "Keys": [to_boto(key) for key in get["Keys"]]} for name, get in remaining.items()}
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
        partition, sort = key_attributes(table, self.schema(table), index)
        if len(values) != len(partition):
            raise InvalidRequest(f"the partition key is {partition}, its values were {list(values)}")
        names = {f"#k{number}": name for number, (name, _) in enumerate(partition)}
        terms = [f"#k{number}=:k{number}" for number in range(len(partition))]
        sent = {f":k{number}": boto_value(value) for number, value in enumerate(values)}
        if prefix:
            if not sort:
                raise InvalidRequest("begins_with needs a sort key that is a string")
            names["#s"], sent[":s"] = sort[0][0], {"S": prefix}
            terms.append("begins_with(#s,:s)")
        projected = self._requests.projection(table, attributes)
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
        request = {**self._requests.projection(table, attributes), "ConsistentRead": True}
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
            request["ExclusiveStartKey"] = to_boto(after)
        answer = self._call(operation, TableName=self._requests.name(table), **request)
        nothing = attributes is not None and not attributes
        items = [{} if nothing else from_boto(item) for item in answer["Items"]]
        last = answer.get("LastEvaluatedKey")
        return Page(items, from_boto(last) if last else None)

    # Writes

    def write(self, write: Write) -> Image | None:
        self._wrote(write, 1)
        if isinstance(write, Update):
            self._call("UpdateItem", **self._requests.action(write))
            return None
        answer = self._call("DeleteItem", **self._requests.action(write), ReturnValues="ALL_OLD")
        return from_boto(answer["Attributes"]) if answer.get("Attributes") else None

    def transact(self, writes: Sequence[Write]) -> None:
        tables = ", ".join(sorted({self._requests.name(write.key.table) for write in writes})) or "no table"
        capacity = ',"ReturnConsumedCapacity":"TOTAL"' if self._meter is not None else ""
        actions = ",".join(map(self._requests.action_json, writes))
        for write in writes:
            self._wrote(write, 2)
        # with the token, a retry by botocore after a lost answer is not a second transaction
        body = f'{{"TransactItems":[{actions}],"ClientRequestToken":"{uuid4().hex}"{capacity}}}'
        try:
            encoded = body.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("a text contains an unpaired surrogate, which DynamoDB cannot store") from None
        self._call("TransactWriteItems", tables, TransactItems=[], **{BODY: encoded})

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        for write in writes:
            require_items(self.schema(write.key.table), write)
        unanswered = Transient("not sent")
        answers: list[StoreError | None] = [unanswered] * len(writes)
        try:
            for places in rounds(writes):
                for batch in self._statement_batches(writes, places):
                    self._execute(writes, batch, answers)
        except Transient as error:  # the whole call failed: only the updates without an answer have to be repeated
            return [error if answer is unanswered else answer for answer in answers]
        return answers

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        """Make each update: in statements, where the endpoint executes them; what no statement can make, alone."""
        answers: dict[int, Image | StoreError] = {}
        if len(writes) > 1 and self._supports_statements(writes[0].key.table):
            for places in slices(range(len(writes)), BATCH_STATEMENTS):
                answers.update(self._execute_returning(writes, places))
            failed = [place for place, answer in answers.items() if isinstance(answer, ConditionFailed)]
            answers.update(self._explain(writes, failed))
        for place, write in enumerate(writes):
            if place not in answers:
                answers[place] = self._update_returning(write)
        return [answers[place] for place in range(len(writes))]

    def _execute_returning(self, writes: Sequence[Update], places: Sequence[int]) -> dict[int, Image | StoreError]:
        """Execute updates as one batch. Return the answers by position, without those that no statement can make."""
        sent = {place: self._requests.statement_json(writes[place], returning=True) for place in places}
        received = self._statements_of(writes, {place: text for place, text in sent.items() if text is not None})
        lacking = Transient("the answer has no item")
        return {
            place: lacking if answer is None else answer
            for place, answer in received.items()
            if not isinstance(answer, InvalidRequest)
        }

    def _explain(self, writes: Sequence[Update], places: Sequence[int]) -> dict[int, Image | StoreError]:
        """Return the answers to updates that failed: a statement does not show if there is an item. If not, create it."""
        if not places:
            return {}
        try:
            images = self.get_many([writes[place].key for place in places])
        except Transient as error:
            return dict.fromkeys(places, error)
        answers: dict[int, Image | StoreError] = {}
        absent: dict[int, Image] = {}
        for place in places:
            write = writes[place]
            if write.key in images:
                answers[place] = ConditionFailed(images[write.key])
            elif write.condition is not None and not holds(write.condition, None):
                answers[place] = ConditionFailed()
            else:
                absent[place] = {**self.schema(write.key.table).wire(write.key), **write.set, **write.add}
        for part in slices(absent, BATCH_STATEMENTS):
            sent = {place: self._requests.insertion_json(writes[place].key.table, absent[place]) for place in part}
            for place, answer in self._statements_of(writes, sent).items():
                if not isinstance(answer, ConditionFailed | InvalidRequest):  # else there is an item now
                    answers[place] = absent[place] if answer is None else answer
        for place in absent.keys() - answers.keys():
            answers[place] = self._update_returning(writes[place])
        return answers

    def _statements_of(
        self, writes: Sequence[Update], statements: Mapping[int, bytes]
    ) -> dict[int, Image | StoreError | None]:
        """Execute the statements of writes, by position, in one batch. A single one is left to the caller."""
        if len(statements) < 2:
            return {}
        for place in statements:
            self._wrote(writes[place], 1)
        try:
            tables = {writes[place].key.table for place in statements}
            answers = self._statements_answers(list(statements.values()), tables)
        except Transient as error:
            return dict.fromkeys(statements, error)
        return dict(zip(statements, answers, strict=True))

    def _update_returning(self, write: Update) -> Image | StoreError:
        self._wrote(write, 1)
        try:
            answer = self._call("UpdateItem", **self._requests.action(write), ReturnValues="ALL_NEW")
        except (ConditionFailed, InvalidRequest, Transient) as error:
            return error.with_traceback(None)
        image: Image = from_boto(answer["Attributes"])
        return image

    def _statement_batches(self, writes: Sequence[Update], places: Sequence[int]) -> Iterator[dict[int, bytes]]:
        """Yield batches of statements by the positions of their writes; a statement is empty if it must be an UpdateItem."""
        batch: dict[int, bytes] = {}
        size = 0
        for place in places:
            statement = self._requests.statement_json(writes[place])
            if statement is None or len(places) == 1:
                yield {place: b""}
                continue
            if len(batch) == BATCH_STATEMENTS or (batch and size + len(statement) > BATCH_BYTES):
                yield batch
                batch, size = {}, 0
            batch[place] = statement
            size += len(statement)
        if batch:
            yield batch

    def _execute(self, writes: Sequence[Update], batch: Mapping[int, bytes], answers: list[StoreError | None]) -> None:
        """Execute a batch. A single update, or one that is refused as a statement, is sent as an UpdateItem."""
        tables = {writes[place].key.table for place in batch}
        if len(batch) > 1 and self._supports_statements(next(iter(tables))):
            for place in batch:
                self._wrote(writes[place], 1)
            received = self._statements_answers(list(batch.values()), tables)
        else:
            received = [InvalidRequest("not sent as a statement")] * len(batch)
        refused = []
        for place, answer in zip(batch, received, strict=True):
            if isinstance(answer, InvalidRequest):
                refused.append(place)
            else:
                answers[place] = answer if isinstance(answer, StoreError) else None
        for place in refused:  # Transient ends the loop: botocore has retried for seconds by then
            answers[place] = self._answer(writes[place])

    def _statements_answers(
        self, statements: Sequence[bytes], tables: Collection[str]
    ) -> list[Image | StoreError | None]:
        names = ", ".join(sorted(map(self._requests.name, tables)))
        capacity = b',"ReturnConsumedCapacity":"TOTAL"' if self._meter is not None else b""
        body = b'{"Statements":[' + b",".join(statements) + b"]" + capacity + b"}"
        try:
            answer = self._call("BatchExecuteStatement", names, len(statements), Statements=[], **{BODY: body})
        except InvalidRequest as error:  # DynamoDB refuses the whole call for one bad value, and does not report which
            return [error] * len(statements)
        answers: list[Image | StoreError | None] = []
        for each in answer["Responses"]:
            if "Error" in each:
                self._note(throttling(each, names))
                problem = of_statement(each["Error"], names)
                if isinstance(problem, Misconfigured):
                    raise problem
                answers.append(problem)
            else:
                answers.append(each.get("Item") or None)
        return answers

    def _answer(self, write: Update) -> StoreError | None:
        try:
            self.write(write)
        except ConditionFailed:
            return ConditionFailed()  # without the item, like the answer to a statement
        except InvalidRequest as error:
            return error.with_traceback(None)
        return None

    def _supports_statements(self, table: str) -> bool:
        """Return whether the endpoint executes statements. It is tested once, also with many threads."""
        with self._testing:
            if self._statements is None:
                self._statements = self._test_statement(table)
            return self._statements

    def _test_statement(self, table: str) -> bool:
        """Return whether an update of an item that does not exist fails as it should. It costs 1 write unit.

        MiniStack refuses such statements, and moto ignores their conditions.
        """
        schema = self.schema(table)
        kinds = [schema.partition[1], schema.sort[1] if schema.sort else "S"]
        parts = [str(uuid4().int)[:38] if kind == "N" else uuid4().hex for kind in kinds]
        key = ItemKey(table, parts[0], parts[1] if schema.sort else None)
        at = ("~", "at")
        guard = AnyOf((Missing(at), Below(at, {"S": "0"})))
        condition = AllOf((Exists((schema.partition[0],)), guard))
        statement = self._requests.statement_json(Update(key, {"~": {"NULL": True}}, condition=condition))
        assert statement is not None
        (answer,) = self._statements_answers([statement], [table])
        if isinstance(answer, Transient):
            raise answer
        return isinstance(answer, ConditionFailed)

    def _call(self, operation: str, tables: str = "", statements: int = 0, /, **request: Any) -> dict[str, Any]:
        meter = self._meter
        if meter is not None:
            meter.count_call(operation, statements)
            request["ReturnConsumedCapacity"] = "TOTAL"
        try:
            answer: dict[str, Any] = getattr(self._client, _METHODS[operation])(**request)
        except ClientError as error:
            names = tables or _tables_of(request)
            self._note(throttling(error.response, names))
            raise translate(error, operation, names) from error
        except (NoCredentialsError, PartialCredentialsError, CredentialRetrievalError) as error:
            raise Misconfigured(
                f"{operation} on {tables or _tables_of(request)}: {error}. Give this process credentials."
            ) from error
        except BotoCoreError as error:  # connections, timeouts, truncated answers
            raise Transient(f"{operation} on {tables or _tables_of(request)}: {error}") from error
        if meter is not None:
            meter.add_units(operation, answer.get("ConsumedCapacity") or [])
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
    "TransactGetItems": "transact_get_items",
    "TransactWriteItems": "transact_write_items",
    "UpdateItem": "update_item",
}
_WRITES = frozenset({"BatchExecuteStatement", "DeleteItem", "TransactWriteItems", "UpdateItem"})


def _tables_of(request: Mapping[str, Any]) -> str:
    """Return the tables of a request, for messages."""
    if "TableName" in request:
        return str(request["TableName"])
    return ", ".join(sorted(request["RequestItems"]))

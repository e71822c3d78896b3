"""Requests to DynamoDB: the arguments of each, and updates as PartiQL statements, of which one request takes 25."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from projections.engine.store import Above, AllOf, AnyOf, Below, Condition, Equal, Exists, NotEqual, Update, Write
from projections.errors import Misconfigured
from projections.language.keys import Image, ItemKey, Schema, Value
from projections.stores.condition_expressions import Expressions, Shape, express, projection, take_apart
from projections.stores.wire import JSON, QUOTED, boto_value, to_boto, value_json

BATCH_STATEMENTS = 25
BATCH_BYTES = 1024 * 1024
"""Our own limit: AWS documents none for a batch (DynamoDB Local takes 10 MB), and smaller requests are faster to retry."""
STATEMENT_BYTES = 8192

_QUOTED = lru_cache(maxsize=4096)(QUOTED)
"""Of the texts of statements, few are repeated many times."""


def require_items(schema: Schema, update: Update) -> None:
    """Raise ValueError if an update does not require that its item exists: a PartiQL UPDATE never creates an item."""
    name = schema.partition[0]
    if not _requires(update.condition, Exists((name,))):
        raise ValueError(
            f"the update of {update.key} does not require that its item exists; add Exists(({name!r},)) to its condition"
        )


Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Names and types of key attributes."""


def key_attributes(table: str, schema: Schema, index: str | None) -> tuple[Attributes, Attributes]:
    """Return the attributes of partition key and sort key of a table, or of an index of it."""
    if index is None:
        return (schema.partition,), () if schema.sort is None else (schema.sort,)
    if index not in schema.indexes:
        raise Misconfigured(f"the table {table!r} has no index {index!r}; it has {', '.join(schema.indexes)}")
    return schema.indexes[index]


def _requires(condition: Condition | None, term: Exists) -> bool:
    if isinstance(condition, AllOf):
        return term in condition.conditions or any(_requires(each, term) for each in condition.conditions)
    return condition == term


def statement(table: str, schema: Schema, update: Update, returning: bool = False) -> tuple[str, list[Value]] | None:
    """Return an update of the table of this name as text with question marks, and their values; None if PartiQL cannot
    express it.

    With `returning`, it returns the item after it, and may add to numbers that the item has.
    """
    if update.discard or not (update.set or update.remove or update.add) or (update.add and not returning):
        return None
    values = [*update.set.values(), *update.add.values(), {schema.partition[1]: update.key.partition}]
    if schema.sort is not None:
        values.append({schema.sort[1]: update.key.sort or ""})
    tree = take_apart(update.condition, values) if update.condition else ()
    names = tuple(update.set), tuple(update.add), tuple(update.remove)
    text = _compile(table, schema.key_attributes, *names, tree, returning)
    return None if text is None else (text, values)


@lru_cache(maxsize=4096)
def _compile(
    table: str,
    key: tuple[str, ...],
    set_: tuple[str, ...],
    add: tuple[str, ...],
    remove: tuple[str, ...],
    condition: Shape,
    returning: bool,
) -> str | None:
    terms = condition[1] if condition and condition[0] is AllOf else (condition,) if condition else ()
    changes = [f"SET {_name(name)}=?" for name in set_] + [f"SET {_name(name)}={_name(name)}+?" for name in add]
    changes += [f"REMOVE {_name(name)}" for name in remove]
    where = [f"{_name(name)}=?" for name in key]
    where += [_condition(term) for term in terms if term != (Exists, key[:1])]  # which UPDATE implies
    answer = " RETURNING ALL NEW *" if returning else ""
    text = f"UPDATE {_name(table)} {' '.join(changes)} WHERE {' AND '.join(where)}{answer}"
    return text if len(text.encode("utf-8", "surrogatepass")) <= STATEMENT_BYTES else None


def _condition(tree: Shape) -> str:
    kind, argument = tree
    if kind is AllOf or kind is AnyOf:
        parts = [_condition(each) for each in argument] or _CONSTANT
        return f"({(' AND ' if (kind is AllOf) == bool(argument) else ' OR ').join(parts)})"
    path = ".".join(map(_name, argument))
    if kind is NotEqual:  # in PartiQL, `<>` is not true of a missing attribute; in expressions it is
        return f"({path} IS MISSING OR {path}<>?)"
    if kind in _COMPARISONS:
        return f"{path}{_COMPARISONS[kind]}?"
    return f"{path} IS NOT MISSING" if kind is Exists else f"{path} IS MISSING"


_COMPARISONS: Mapping[Any, str] = {Equal: "=", Below: "<", Above: ">"}
_CONSTANT = ['"~" IS MISSING', '"~" IS NOT MISSING']
"""Joined with AND they are false, with OR true: DynamoDB's PartiQL has no constants."""


def _name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Requests:
    """Builds the requests of one store. `tables` gives the real name of each logical table, `schemas` its keys."""

    def __init__(self, tables: Mapping[str, str], schemas: Mapping[str, Schema]) -> None:
        self._tables = dict(tables)
        self._schemas = dict(schemas)
        self._actions: dict[tuple[str, Expressions, str], tuple[str, str, str]] = {}

    def schema(self, table: str) -> Schema:
        try:
            return self._schemas[table]
        except KeyError:
            raise Misconfigured(f"there is no table {table!r}; the store has {', '.join(self._schemas)}") from None

    def name(self, table: str) -> str:
        try:
            return self._tables[table]
        except KeyError:
            raise Misconfigured(f"there is no table {table!r}; the store has {', '.join(self._tables)}") from None

    def key(self, key: ItemKey) -> dict[str, Any]:
        return to_boto(self.schema(key.table).wire(key))

    def projection(self, table: str, attributes: Sequence[str] | None) -> dict[str, Any]:
        """Return the projection of a read; without attributes that of the key, because DynamoDB must project something."""
        if attributes is None:
            return {}
        text, names = projection(tuple(attributes) or self.schema(table).key_attributes)
        return {"ProjectionExpression": text, "ExpressionAttributeNames": names}

    def action_json(self, write: Write) -> str:
        """Return an action of a transaction as DynamoDB's JSON, in which binary is base64 text, as it is here."""
        update = write if isinstance(write, Update) else None
        table = write.key.table
        texts, values = express(update, write.condition)
        kind = "Update" if update is not None else "Delete"
        known = self._actions.get((table, texts, kind))
        if known is None:
            if len(self._actions) >= 4096:  # copies of all attributes have as many shapes as their sources have
                self._actions.clear()
            known = self._actions[table, texts, kind] = self._action_texts(table, texts, kind)
        before, between, after = known
        _, partition, sort = write.key
        key = f"{QUOTED(partition)}{between}{QUOTED(sort or '')}" if between else QUOTED(partition)
        if not values:
            return f"{before}{key}{after}}}}}"
        sent = ",".join([f'":{number}":{value_json(value)}' for number, value in enumerate(values)])
        return f'{before}{key}{after},"ExpressionAttributeValues":{{{sent}}}}}}}'

    def _action_texts(self, table: str, texts: Expressions, kind: str) -> tuple[str, str, str]:
        """Return the constant parts of an action: before, between and after the two parts of its key."""
        request: dict[str, Any] = {"TableName": self.name(table)}
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
        before = f'{{"{kind}":{JSON(request)[:-1]},"Key":{{{QUOTED(name)}:{{"{of}":'
        if schema.sort is None:
            return before, "", "}}"
        name, of = schema.sort
        return before, f'}},{QUOTED(name)}:{{"{of}":', "}}"

    def action(self, write: Write) -> dict[str, Any]:
        update = write if isinstance(write, Update) else None
        texts, values = express(update, write.condition)
        request: dict[str, Any] = {"TableName": self.name(write.key.table), "Key": self.key(write.key)}
        if texts.update:
            request["UpdateExpression"] = texts.update
        if texts.condition:
            request["ConditionExpression"] = texts.condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if texts.names:
            request["ExpressionAttributeNames"] = texts.names
        if values:
            sent = {f":{number}": boto_value(value) for number, value in enumerate(values)}
            request["ExpressionAttributeValues"] = sent
        return request

    def statement_json(self, update: Update, returning: bool = False) -> bytes | None:
        """Return one statement of a batch as DynamoDB's JSON; None if it must be an UpdateItem."""
        table = update.key.table
        schema = self.schema(table)
        parts = statement(self.name(table), schema, update, returning)
        if parts is None:
            return None
        sent = ",".join(map(value_json, parts[1]))
        try:
            return f'{{"Statement":{_QUOTED(parts[0])},"Parameters":[{sent}]}}'.encode()
        except UnicodeEncodeError:  # one unpaired surrogate must not fail the whole call
            return None

    def insertion_json(self, table: str, image: Image) -> bytes:
        """Return the statement that creates an item, and fails if there is one, as DynamoDB's JSON."""
        parts = ",".join("'" + name.replace("'", "''") + "':?" for name in image)
        text = f"INSERT INTO {_name(self.name(table))} VALUE {{{parts}}}"
        sent = ",".join(map(value_json, image.values()))
        return f'{{"Statement":{QUOTED(text)},"Parameters":[{sent}]}}'.encode()

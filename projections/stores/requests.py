"""Builds requests to DynamoDB from keys, updates and conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.store import Action, Delete, ItemKey, Schema, Update, Write
from projections.errors import Misconfigured
from projections.stores.conditions import Expressions, expressed, projection
from projections.stores.statements import parameters, statement
from projections.stores.wire import JSON, QUOTED, sent, sent_value, value_json

__all__ = ["Requests"]


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
        return sent(self.schema(key.table).wire(key))

    def key_attributes(self, table: str, index: str | None) -> tuple[Sequence[tuple[str, str]], ...]:
        schema = self.schema(table)
        if index is None:
            return (schema.partition,), () if schema.sort is None else (schema.sort,)
        if index not in schema.indexes:
            raise Misconfigured(f"the table {table!r} has no index {index!r}; it has {', '.join(schema.indexes)}")
        return schema.indexes[index]

    def projection(self, table: str, attributes: Sequence[str] | None) -> dict[str, Any]:
        """Return the projection of a read; without attributes that of the key, because DynamoDB must project something."""
        if attributes is None:
            return {}
        text, names = projection(tuple(attributes) or self.schema(table).key_attributes)
        return {"ProjectionExpression": text, "ExpressionAttributeNames": names}

    def action_json(self, write: Action) -> str:
        """Return an action of a transaction as DynamoDB's JSON, in which binary is base64 text, as it is here."""
        update = write if isinstance(write, Update) else None
        table = write.key.table
        texts, values = expressed(update, write.condition)
        kind = "Update" if update is not None else "Delete" if isinstance(write, Delete) else "ConditionCheck"
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
        texts, values = expressed(update, write.condition)
        request: dict[str, Any] = {"TableName": self.name(write.key.table), "Key": self.key(write.key)}
        if texts.update:
            request["UpdateExpression"] = texts.update
        if texts.condition:
            request["ConditionExpression"] = texts.condition
            request["ReturnValuesOnConditionCheckFailure"] = "ALL_OLD"
        if texts.names:
            request["ExpressionAttributeNames"] = texts.names
        if values:
            sent = {f":{number}": sent_value(value) for number, value in enumerate(values)}
            request["ExpressionAttributeValues"] = sent
        return request

    def statement_json(self, update: Update) -> bytes | None:
        """Return one statement of a batch as DynamoDB's JSON; None if it must be an UpdateItem."""
        table = update.key.table
        schema = self.schema(table)
        text = statement(self.name(table), schema, update)
        if text is None:
            return None
        sent = ",".join(map(value_json, parameters(schema, update)))
        try:
            return f'{{"Statement":{QUOTED(text)},"Parameters":[{sent}]}}'.encode()
        except UnicodeEncodeError:  # one unpaired surrogate must not fail the whole call
            return None

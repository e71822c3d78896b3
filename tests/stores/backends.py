"""The stores under contract: memory, and DynamoDB's client against each emulator, over the same tables."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from projections.aws.clients import client
from projections.aws.live_tables import create_table
from projections.engine.store import Image, Schema, Store
from projections.stores.dynamodb import DynamoDBStore
from projections.stores.memory import MemoryStore

SCHEMAS = {
    "app": Schema(("PK", "S"), ("SK", "S"), {"GSI1": ((("G", "S"),), (("H", "S"),))}),
    "plain": Schema(("PK", "S")),
    "numeric": Schema(("PK", "N"), ("SK", "N"), {"GSI1": ((("G", "N"),), (("H", "N"),))}),
    "projected": Schema(
        ("PK", "S"),
        ("SK", "S"),
        {
            "keys": ((("G", "S"),), ()),
            "some": ((("G", "S"),), (("H", "S"),)),
            "local": ((("PK", "S"),), (("at", "N"),)),
            "local-some": ((("PK", "S"),), (("H", "S"),)),
        },
        projected={"keys": frozenset(), "some": frozenset({"x"}), "local-some": frozenset({"x"})},
        local=frozenset({"local", "local-some"}),
    ),
    "binary": Schema(("PK", "B"), ("SK", "B")),
}
BACKENDS = ("memory", pytest.param("ministack", marks=pytest.mark.deep), "dynamodb-local")


@contextmanager
def backend(name: str, request: pytest.FixtureRequest) -> Iterator[Store]:
    """A store with all tables, empty."""
    if name == "memory":
        yield MemoryStore(SCHEMAS)
    else:
        url = request.getfixturevalue(f"{name.replace('-', '_')}_url")
        yield _over(client(endpoint_url=url))


def _over(dynamodb: Any) -> DynamoDBStore:
    names = {table: f"{table}-{uuid.uuid4().hex[:8]}" for table in SCHEMAS}
    for table, schema in SCHEMAS.items():
        create_table(dynamodb, names[table], schema)
    return DynamoDBStore(dynamodb, names, SCHEMAS)


def plain(image: Image | None) -> Any:
    """An item in a form that can be compared: sets without order, numbers by value."""
    return None if image is None else {name: _plain(value) for name, value in image.items()}


def _plain(value: Any) -> Any:
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return kind, Decimal(content)
        case "NS":
            return kind, {Decimal(text) for text in content}
        case "SS" | "BS":
            return kind, set(content)
        case "M":
            return kind, plain(content)
        case "L":
            return kind, [_plain(each) for each in content]
    return kind, content

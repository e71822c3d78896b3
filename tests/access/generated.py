"""Generated modules under test: loaded from their text, on tables of DynamoDB Local or moto."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from types import ModuleType
from typing import Any

import boto3
from boto3.dynamodb.types import TypeDeserializer

from projections.aws.live_tables import create_table
from projections.engine.store import Image, Schema

CREDENTIALS = {"region_name": "eu-central-1", "aws_access_key_id": "x", "aws_secret_access_key": "x"}


def module_of(text: str) -> ModuleType:
    """Return a generated module."""
    module = ModuleType(f"generated_{uuid.uuid4().hex}")
    sys.modules[module.__name__] = module  # for dataclasses
    try:
        exec(compile(text, "access.py", "exec"), module.__dict__)
    finally:
        del sys.modules[module.__name__]
    return module


def table_of(url: str | None, schema: Schema, images: Sequence[Image]) -> Any:
    """Return a table with these items in wire form. Without an address, moto must be active."""
    dynamodb = boto3.resource("dynamodb", endpoint_url=url, **CREDENTIALS)
    name = f"app-{uuid.uuid4().hex[:8]}"
    create_table(dynamodb.meta.client, name, schema, stream=False)
    table = dynamodb.Table(name)
    read = TypeDeserializer().deserialize
    with table.batch_writer() as batch:
        for image in images:
            batch.put_item(Item={attribute: read(value) for attribute, value in image.items()})
    return table


def without(schema: Schema, index: str) -> Schema:
    """Return a schema without an index."""
    return replace(schema, indexes={name: keys for name, keys in schema.indexes.items() if name != index})


def simple(value: Any) -> Any:
    """Return a value of boto3 as JSON has it."""
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, Mapping):
        return {name: simple(one) for name, one in value.items()}
    if isinstance(value, list):
        return [simple(one) for one in value]
    return value

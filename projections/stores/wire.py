"""Items and requests as DynamoDB's JSON. botocore's own serializers take most of a request's CPU time.

Values have DynamoDB's own form, except binary: base64 text here, bytes in boto3.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from projections.engine.store import Image, Value

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient


# Bodies: botocore takes 3 ms to serialize a transaction of 100 actions; this module takes a few tenths of that. botocore's
# events accept a body, and sign, send and retry it like any other.

BODY = "ProjectionsBody"
"""The parameter that passes a request's body around botocore's serializer."""


def send_raw_bodies(client: DynamoDBClient) -> None:
    """Make a client send the body that a call has in `BODY`, if it has one."""
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


def value_json(value: Value) -> str:
    if "S" in value:
        return f'{{"S":{QUOTED(value["S"])}}}'
    if "M" in value:  # a guard: half the time of the encoder, which json creates for each value
        return f'{{"M":{{{",".join([f"{QUOTED(name)}:{value_json(each)}" for name, each in value["M"].items()])}}}}}'
    if "N" in value:
        return f'{{"N":{QUOTED(value["N"])}}}'
    return JSON(value)


# Answers: botocore converts every value, 35 µs for a small item. Parsing the JSON takes 4 µs, and no conversion is needed.


def take_raw_items(client: DynamoDBClient) -> None:
    """Make a client answer with the items of the body itself, whose binary values are base64 text."""
    for operation in ("BatchExecuteStatement", "BatchGetItem", "GetItem", "Query", "Scan", "UpdateItem"):
        own = f"projections-{operation}-take-items"
        client.meta.events.register(f"before-parse.dynamodb.{operation}", _take_items, unique_id=own)


def _take_items(response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: Any) -> None:
    if response_dict["status_code"] == 200:
        customized_response_dict.update(json.loads(response_dict["body"]))
        response_dict["body"] = b"{}"


QUOTED = json.encoder.encode_basestring
JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


# Values: binary is base64 text here and bytes in boto3, except where items are taken from the body. Values without binary
# are passed on unchanged.

_PLAIN = frozenset(("S", "N", "BOOL", "NULL", "SS", "NS"))


def to_boto(image: Image) -> dict[str, Any]:
    return {name: boto_value(value) for name, value in image.items()}


def boto_value(value: Value) -> Any:
    return _with_binary(value, b64decode)


def from_boto(image: Mapping[str, Any]) -> dict[str, Value]:
    return {name: _with_binary(value, _base64) for name, value in image.items()}


def _base64(content: Any) -> str:
    return b64encode(content).decode() if isinstance(content, bytes) else content


def _with_binary(value: Mapping[str, Any], converted: Callable[[Any], Any]) -> Any:
    """Return a value with all binary in it converted."""
    for kind, content in value.items():
        if kind in _PLAIN:
            break
        match kind:
            case "M":
                return {kind: {name: _with_binary(each, converted) for name, each in content.items()}}
            case "L":
                return {kind: [_with_binary(each, converted) for each in content]}
            case "B":
                return {kind: converted(content)}
            case "BS":
                return {kind: [converted(each) for each in content]}
    return value

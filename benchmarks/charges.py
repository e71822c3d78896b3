"""What a client's requests cost: calls, the units the endpoint reports, and the units DynamoDB charges for the same.

Emulators underreport: MiniStack gives no units for a cancelled transaction, a failed condition or a BatchGetItem, all of
which DynamoDB charges. So what it charges is counted from the requests as they are sent, whatever becomes of them, for
items of at most 1 KB: a write is one unit, in a transaction two; a consistent read is one unit, another half of one. Where
nothing fails and nothing is read in batches, both counts must agree; the tests hold them to it.

Source: "Read/write capacity mode", "Amazon DynamoDB Transactions: how it works" in DynamoDB's developer guide.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.store import Exists, ItemKey, Store, Update

__all__ = ["Charges", "charged", "metered", "try_statements"]


@dataclass(slots=True)
class Charges:
    """Sums over requests. `reported_*` are the endpoint's account; the others are DynamoDB's."""

    calls: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    reported_write_units: float = 0.0
    reported_read_units: float = 0.0

    def take(self) -> Charges:
        """What there was since the last time."""
        taken = replace(self)
        self.calls = 0
        self.write_units = self.read_units = self.reported_write_units = self.reported_read_units = 0.0
        return taken


def charged(operation: str, request: Mapping[str, Any]) -> tuple[float, float]:
    """Write and read units of one request about items of at most 1 KB. ValueError for one that is not known here."""
    match operation:
        case "PutItem" | "UpdateItem" | "DeleteItem":
            return 1.0, 0.0
        case "TransactWriteItems":
            return 2.0 * len(request["TransactItems"]), 0.0
        case "BatchExecuteStatement":
            return float(len(request["Statements"])), 0.0  # updates, in whose place they stand
        case "BatchWriteItem":
            return float(sum(map(len, request["RequestItems"].values()))), 0.0
        case "GetItem":
            return 0.0, _read(request)
        case "BatchGetItem":
            return 0.0, sum(len(one["Keys"]) * _read(one) for one in request["RequestItems"].values())
    raise ValueError(f"what DynamoDB charges for {operation} does not follow from the request alone")


def _read(request: Mapping[str, Any]) -> float:
    return 1.0 if request.get("ConsistentRead") else 0.5


def metered(dynamodb: Any) -> Charges:
    """Counts all that a client sends from now on, one request after the other; what botocore repeats, too."""
    found = Charges()
    last = (0.0, 0.0)

    def ask(params: dict[str, Any], **_: Any) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def send(request: Any, **_: Any) -> None:
        nonlocal last
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        last = charged(operation, json.loads(request.body))
        found.calls += 1
        found.write_units += last[0]
        found.read_units += last[1]

    def answered(model: Any, parsed: dict[str, Any], **_: Any) -> None:
        if (
            parsed.get("Error", {}).get("Code") == "ValidationException"
        ):  # a request that is none is a call, and no more
            found.write_units -= last[0]
            found.read_units -= last[1]
        consumed = parsed.get("ConsumedCapacity") or []
        units = sum(one.get("CapacityUnits", 0.0) for one in ([consumed] if isinstance(consumed, dict) else consumed))
        if model.name in ("GetItem", "BatchGetItem"):
            found.reported_read_units += units
        else:
            found.reported_write_units += units

    events = dynamodb.meta.events
    events.register("before-parameter-build.dynamodb", ask)
    events.register("before-send.dynamodb", send)
    events.register("after-call.dynamodb", answered)
    return found


def try_statements(store: Store) -> None:
    """Lets a store find out whether its endpoint speaks PartiQL: one call in its life, which is not counted."""
    exists = Exists((store.schema(LEDGER).partition[0],))
    store.write_each([Update(ItemKey(LEDGER, name, "."), {"~": {"NULL": True}}, condition=exists) for name in "ab"])

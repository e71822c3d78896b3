"""All constants of the cost model in one place: prices, limits, what one step of the engine takes, and what was measured.

Prices are those of us-east-1, on demand, as FACTS.md of the project has them (2026-11). Everything measured says where.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = [
    "CALL_CPU_MS",
    "GROUP_WRITES_PER_SECOND",
    "PARTITION_WRITE_UNITS",
    "PRICES",
    "SECONDS_PER_MONTH",
]

PRICES: Mapping[str, tuple[float, str]] = {
    "write": (0.625, "million write units"),
    "read": (0.125, "million read units"),
    "request": (0.20, "million Lambda requests"),
    "gb-second": (0.0000133334, "GB-second of Lambda on arm64"),
    "sqs": (0.40, "million SQS requests"),
    "storage": (0.25, "GB-month"),
}
"""Dollars, and for what."""

SECONDS_PER_MONTH = 730 * 3600

# What DynamoDB allows.

PARTITION_WRITE_UNITS = 1000
"""Of one partition a second; a single item is in one partition."""

GROUP_WRITES_PER_SECOND = 500
"""Transactional writes of one item: each takes two units of its partition."""

# What takes time. CPU is that of one full core (1769 MB of Lambda).

RECORD_CPU_MS = 0.025
ACTION_CPU_MS = 0.03
CALL_CPU_MS = 0.5
"""Of planning one record, of one action of a transaction, and of one other call: together 63 µs for an event of a batch
of 1000 likes of 10 posts, as `make bench` measures it.
"""

NAIVE_CALL_CPU_MS = 0.35
IDEMPOTENCY_CPU_MS = 0.15
"""Of an UpdateItem by boto3, and of what Powertools adds to each record: 0.35 and 1.2 ms per event in `make bench`."""

CORE_MB = 1769
STORAGE_OVERHEAD_BYTES = 100
"""That DynamoDB adds to each item it stores."""

INVOCATION_MS = 2.0
"""What an invocation takes beside its work: the event's JSON, the answer."""

CALL_MS = 5.0
TRANSACTION_MS = 15.0
"""Round trips within a Region; assumed, not measured."""

# Sizes, where nobody said otherwise.

ITEM_BYTES = 500
VARIABLE_BYTES = 20
ATTRIBUTE_BYTES = 60
ENTRY_BYTES = 250
"""An item of the application, the value of one variable in a key, one attribute with its name, and what a ledger entry
has beside its contributions.
"""

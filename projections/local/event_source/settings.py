"""The settings of an event source mapping, with Lambda's names for them in messages and Lambda's limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projections.local.event_source.filters import Filter

__all__ = ["Settings"]

RETENTION = 24 * 3600
"""The seconds for which DynamoDB keeps a stream record."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a mapping. The defaults are Lambda's: retry as long as the stream keeps a record."""

    batch_size: int = 100
    starting_position: str = "TRIM_HORIZON"
    report_batch_item_failures: bool = False
    bisect: bool = False
    max_retries: int = -1
    max_age: float = -1
    parallelization: int = 1
    filters: tuple[Filter, ...] = ()
    retention: float = RETENTION

    def __post_init__(self) -> None:
        limits = {
            "BatchSize is 1 to 10000": 1 <= self.batch_size <= 10_000,
            "StartingPosition of a DynamoDB stream is TRIM_HORIZON or LATEST": self.starting_position
            in ("TRIM_HORIZON", "LATEST"),
            "MaximumRetryAttempts is -1 (no limit) to 10000": -1 <= self.max_retries <= 10_000,
            "MaximumRecordAgeInSeconds is -1 (no limit) or 60 to 604800": self.max_age == -1
            or 60 <= self.max_age <= 604_800,
            "ParallelizationFactor is 1 to 10": 1 <= self.parallelization <= 10,
            "a mapping has at most 10 filters": len(self.filters) <= 10,
        }
        for limit, holds in limits.items():
            if not holds:
                raise ValueError(limit)

    @classmethod
    def from_properties(cls, properties: Mapping[str, Any]) -> Settings:
        """Read the resolved properties of a SAM `DynamoDB` event or an `AWS::Lambda::EventSourceMapping`."""
        criteria = properties.get("FilterCriteria") or {}
        patterns = [entry["Pattern"] for entry in criteria.get("Filters") or ()]
        return cls(
            batch_size=int(properties.get("BatchSize", 100)),
            starting_position=properties.get("StartingPosition", "TRIM_HORIZON"),
            report_batch_item_failures="ReportBatchItemFailures" in (properties.get("FunctionResponseTypes") or ()),
            bisect=bool(properties.get("BisectBatchOnFunctionError", False)),
            max_retries=int(properties.get("MaximumRetryAttempts", -1)),
            max_age=float(properties.get("MaximumRecordAgeInSeconds", -1)),
            parallelization=int(properties.get("ParallelizationFactor", 1)),
            filters=tuple(Filter(json.loads(p) if isinstance(p, str) else p) for p in patterns),
        )

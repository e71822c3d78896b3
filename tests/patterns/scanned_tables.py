"""Tables at an endpoint whose stream is made from what they hold: each call tells what changed since the last.

The emulators' own streams are tested elsewhere. They have to be waited for, ten times in every pattern.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from endpoint_tables import EndpointTables

from projections.engine.store import Image, ItemKey, Schema
from projections.local.event_replay import LEDGER
from projections.local.event_source import Record

__all__ = ["ScannedTables"]

LABEL = "2027-01-01T00:00:00.000"
"""After those of all sample events."""


class ScannedTables(EndpointTables):
    def __init__(self, endpoint_url: str, schemas: Mapping[str, Schema]) -> None:
        super().__init__(endpoint_url, schemas)
        self._tables = {name: schema for name, schema in schemas.items() if name != LEDGER}
        self._known: dict[ItemKey, Image] = {}
        self._sequence = 10**30

    def settle(self, seeds: int) -> None:
        assert len(self.records()) == seeds

    def records(self) -> list[Record]:
        now = {s.key(name, image): image for name, s in self._tables.items() for image in self.items(name)}
        before, self._known = self._known, now
        changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        return [self._record(key, before.get(key), now.get(key)) for key in changed]

    def _record(self, key: ItemKey, old: Image | None, new: Image | None) -> dict[str, Any]:
        self._sequence += 1
        images = {"OldImage": old, "NewImage": new}
        image = new or old
        assert image is not None
        return {
            "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
            "eventSource": "aws:dynamodb",
            "dynamodb": {
                "Keys": {name: image[name] for name in self._tables[key.table].key_attributes},
                **{name: image for name, image in images.items() if image is not None},
                "SequenceNumber": str(self._sequence),
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
            "eventSourceARN": f"arn:aws:dynamodb:us-east-1:1:table/{self.names[key.table]}/stream/{LABEL}",
        }

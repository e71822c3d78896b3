"""Test filters with records that have only what the rules determine: do they match every record that the rules need?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.deploy.needs import entities_of
from projections.language.entity import Entity
from projections.language.keys import Schema
from projections.language.program import Program
from projections.local.event_source.filters import Filter

__all__ = ["Dropped", "dropped"]

Record = Mapping[str, Any]

_RARE = "\U0010fffd"
"""The value of variables: filters for certain values do not match it."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """Records of an entity that no filter matches. `key` has the templates of its key, `events` the dropped events.

    `blind` are the rules that read the entity, if all its records are dropped.
    """

    entity: str
    key: str
    events: tuple[str, ...]
    blind: tuple[str, ...]


def dropped(program: Program, table: str, filters: Sequence[Filter]) -> Iterator[Dropped]:
    """Yield the entities of which records may be dropped."""
    for entity in entities_of(program, table):
        records = list(_records(entity, entity.schema))
        lost = [event for event, record in records if not any(one.matches(record) for one in filters)]
        if lost:
            key = ", ".join(
                f"{attribute} {json.dumps(pattern.text, ensure_ascii=False)}"
                for attribute, pattern in zip(entity.schema.key_attributes, entity.patterns, strict=True)
            )
            readers = [name for name, rule in program.rules.items() if entity in rule.sources]
            blind = readers if len(lost) == len(records) else []
            yield Dropped(entity.name, key, tuple(dict.fromkeys(lost)), tuple(blind))


def _records(entity: Entity, schema: Schema) -> Iterator[tuple[str, Record]]:
    """Yield events of an item of an entity, with the record. Other attributes than the key may be missing."""
    for text, number in ((_RARE, "7"), ("7", "-12.5")):
        kinds = [kind for _, kind in (schema.partition, schema.sort or ("", "")) if kind]
        keys = {
            attribute: {kind: pattern.render(dict.fromkeys(pattern.names, number if kind == "N" else text))}
            for attribute, kind, pattern in zip(schema.key_attributes, kinds, entity.patterns, strict=True)
        }
        marked = {**keys, **entity.constants}
        images: dict[str, list[tuple[Any, Any]]] = {
            "INSERT": [(None, marked)],
            "MODIFY": [(marked, marked), (keys, marked), (marked, keys)],
            "REMOVE": [(marked, None)],
        }
        for event, pairs in images.items():
            for old, new in pairs:
                yield event, _record(event, keys, old, new)
        if schema.ttl:
            service = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
            yield "REMOVE by TTL", {**_record("REMOVE", keys, marked, None), "userIdentity": service}


def _record(event: str, keys: Any, old: Any, new: Any) -> Record:
    images = {name: image for name, image in (("OldImage", old), ("NewImage", new)) if image is not None}
    return {"eventName": event, "eventSource": "aws:dynamodb", "dynamodb": {"Keys": keys, **images}}

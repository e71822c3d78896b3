"""Stream records of random histories: an application that does everything the simulation knows, and rules that answer it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from projections.engine.processor import Processor
from projections.engine.store import Image, ItemKey
from projections.language.loader import load
from projections.language.program import Program
from projections.local.event_replay import LEDGER, schemas
from projections.stores.memory import MemoryStore
from projections.testing.pools import Pools
from projections.testing.simulation.application_writes import Application
from projections.testing.simulation.item_writer import ItemWriter

__all__ = ["ALL", "RULES", "compiled", "drain", "random_records", "settled"]

ROOT = Path(__file__).parents[2]
ALL = [ROOT / "projections/rules/social.yaml", *sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))]
KINDS = {"aggregates", "claims", "compute", "held", "embeds", "keep", "lists", "rank", "social", "tables"}
RULES = [path for path in ALL if path.stem in KINDS]
"""Of each kind of rule one file."""


def compiled(path: Path) -> Program:
    return Program.from_document(load(path).document())


def random_records(program: Program, seed: int, writes: int) -> list[dict[str, Any]]:
    """The records of so many writes of an application and of what the rules did in between."""
    rng = Random(seed)
    records: list[dict[str, Any]] = []
    items: dict[ItemKey, Image] = {}
    made: dict[str, dict[ItemKey, None]] = {}

    def on_record(table: str, record: dict[str, Any]) -> None:
        records.append(record)
        change = record["dynamodb"]
        key = program.tables[table].key(table, change["Keys"])
        if "NewImage" not in change:
            items.pop(key)
            return
        items[key] = change["NewImage"]
        found = program.recognise(key, change["NewImage"])
        if found is not None and found.entity.owned_by_rules:
            made.setdefault(found.entity.name, {})[key] = None

    names = [name for name in schemas(program) if name != LEDGER]
    store = MemoryStore(schemas(program), streams=names, on_record=on_record)
    writer = ItemWriter(program, tuple(program.rules.values()), Pools(program), store, rng, items, made)
    application = Application(writer)
    processor = Processor(
        program,
        store,
        tables={name: name for name in names},
        quarantine=lambda rejected: None,
        sleep=lambda s: None,
        chance=lambda: 0.5,
    )
    done = 0
    for _ in range(writes):
        application.write()
        if rng.random() < 0.4:
            new = records[done:]
            done = len(records)
            processor.process(new, remaining=lambda: 60.0)
    return records


def settled(path: Path, seed: int) -> tuple[Program, MemoryStore]:
    """Tables after a random history that came to rest."""
    program = compiled(path)
    store = MemoryStore(schemas(program), streams=list(program.tables))
    for raw in random_records(program, seed, 60):
        table = raw["eventSourceARN"].split("/")[1]
        image = raw["dynamodb"].get("NewImage")
        key = program.tables[table].key(table, raw["dynamodb"]["Keys"])
        item = program.recognise(key, image or raw["dynamodb"]["OldImage"])
        if item is None or item.entity.owned_by_rules:
            continue
        if image is None:
            store.remove(key)
            continue
        ours = program.derived_attributes(item.entity.name)
        own = {n: v for n, v in image.items() if n not in ours and not n.startswith(program.guard_prefix)}
        held = store.get(key) or {}
        store.put(table, {**{n: v for n, v in held.items() if n in ours or n.startswith(program.guard_prefix)}, **own})
    drain(program, store)
    return program, store


def drain(program: Program, store: MemoryStore, heard: Mapping[str, int] | None = None) -> None:
    """Delivers the streams of all tables, after the records `heard` already, until nothing comes any more."""
    processor = quiet(program, store)
    positions = dict(heard or dict.fromkeys(program.tables, 0))
    for _ in range(30):
        for table in program.tables:
            records = store.stream(table, positions[table])
            positions[table] += len(records)
            if records:
                processor.process(records, remaining=lambda: 60.0)


def quiet(program: Program, store: MemoryStore) -> Processor:
    """A processor that forgets what it rejects."""
    return Processor(
        program,
        store,
        tables={name: name for name in program.tables},
        quarantine=lambda rejected: None,
        sleep=lambda seconds: None,
        chance=lambda: 0.5,
    )

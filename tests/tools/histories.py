"""Stream records of random histories: an application that does everything the simulation knows, and rules that answer it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from projections.engine.processor import Processor
from projections.engine.store import Image, ItemKey
from projections.language.loader import load
from projections.language.program import Program
from projections.stores.memory import MemoryStore
from projections.tools.simulation.application import Application
from projections.tools.simulation.pools import Pools
from projections.tools.tables import LEDGER, schemas

__all__ = ["RULES", "compiled", "random_records"]

ROOT = Path(__file__).parents[2]
RULES = [ROOT / "projections/rules/social.yaml", *sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))]


def compiled(path: Path) -> Program:
    return Program.from_document(load(path).canonical())


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
    application = Application(program, tuple(program.rules.values()), Pools(program), store, rng, items, made)
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

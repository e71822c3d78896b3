"""docs/ledger.md lists every kind of item and attribute that this package stores, and no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from guide import ROOT
from ledger_page import ATTRIBUTES, KINDS, MESSAGE, kind_of

sys.path.append(str(ROOT / "tests/patterns"))

from catalogue import PATTERNS, Pattern

from projections.engine.ledger_items import LEDGER, entry_key, fence_key, group_key, member_key
from projections.engine.processor import Processor
from projections.engine.rejections import Rejected
from projections.engine.store import Delete, Role, Update, Write
from projections.language import contribution
from projections.language.loader import load
from projections.local.event_replay import MemoryTables, replay, schemas
from projections.operations.audit import AuditHandler
from projections.operations.dismissal import Decision, Wanted, dismiss
from projections.operations.quarantine import message
from projections.operations.redaction import Redaction
from projections.stores.limits import LEVELS
from projections.stores.memory import MemoryStore
from projections.testing.simulation.history import Setup
from tests.engine.scene import Scene
from tests.engine.test_guards import Two
from tests.operations.backfill.stage import ALL, Stage

SEEDS = {
    "lanes": 30, "adoption": 4, "chains": 25, "claims": 4, "compute": 1, "counted": 1, "expiry": 34, "lists": 2, "rank": 5
}  # fmt: skip
"""How many histories of these rule files of the simulation write all that histories can write."""

HEAD = """table: {key: [PK, SK]}
entities:
  Doc: {key: {PK: "DOC#{id}", SK: D}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
"""
TOP = "  first: {from: Doc, bind: {tag: all}, top: {into: Tag, as: docs, by: at, limit: 1, attributes: [big]}}\n"

GUARD, MARK = ATTRIBUTES


@dataclass
class Seen:
    """The names of kinds, with the attributes of each, and the purposes of all writes that stores have got."""

    attributes: dict[str, set[str]] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)
    roles: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    transacted: set[str] = field(default_factory=set)
    """The tables of transactions."""

    def note(self, write: Write) -> None:
        if isinstance(write, Update):
            names = frozenset({**write.set, **write.add, **write.discard})
            if write.key.table == LEDGER:
                self._ledger(write, names)
            else:
                self._application(write, names)
        if isinstance(write, Update | Delete):
            self.roles.add(write.purpose.kind)

    def _ledger(self, write: Update, names: frozenset[str]) -> None:
        role = write.purpose.kind
        if role == "other":  # damage that a history does
            return
        found = [
            one for one in KINDS
            if one.fits(write.key.partition, str(write.key.sort)) and role in one.roles and not one.unknown(names)
        ]  # fmt: skip
        if len(found) != 1:
            self.unknown.add(f"{role} {write.key[1:]} {sorted(names)}")
            return
        (kind,) = found
        self.attributes.setdefault(kind.name, set()).update(
            known for known in kind.attributes if any(kind.is_name(known, name) for name in names)
        )

    def _application(self, write: Update, names: frozenset[str]) -> None:
        for name in names:
            value = write.set.get(name, {})
            if name.startswith(GUARD.name[0]) and name != MARK.name and "M" in value:
                self.fields |= value["M"].keys()


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """All writes to stores in memory."""
    found = Seen()
    write, transact = MemoryStore.write, MemoryStore.transact

    def written(store: MemoryStore, one: Any) -> Any:
        found.note(one)
        return write(store, one)

    def transacted(store: MemoryStore, actions: Sequence[Write]) -> None:
        for one in actions:
            found.note(one)
            found.transacted.add(one.key.table)
        transact(store, actions)

    monkeypatch.setattr(MemoryStore, "write", written)
    monkeypatch.setattr(MemoryStore, "transact", transacted)
    return found


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_items_of_the_ledger_after_the_events_of_a_pattern_are_of_listed_kinds(pattern: Pattern, seen: Seen) -> None:
    tables = MemoryTables(schemas(pattern.program), pattern.records)
    replay(pattern.program, pattern.records, tables, engine=partial(Processor, sleep=lambda seconds: None))
    assert seen.unknown == set()
    items = tables.store.items(LEDGER)
    assert items
    for item in items:
        kind = kind_of(item)
        assert kind is not None, item
        assert kind.unknown(frozenset(item) - {"pk", "sk"}) == frozenset(), item
    assert seen.fields <= GUARD.fields.keys()


@dataclass
class Queue:
    """A quarantine with one message."""

    message: Any
    empty: bool = False

    def receive(self, seconds: int, *, wait: int = 2) -> list[Any]:
        return [] if self.empty else [self.message]

    def delete(self, messages: Sequence[Any]) -> None:
        self.empty = True

    def release(self, messages: Sequence[Any]) -> None:
        pass


@pytest.mark.deep
def test_every_listed_kind_and_attribute_is_written_by_histories_and_operations(
    seen: Seen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, histories in SEEDS.items():
        setup = Setup(load(ROOT / f"tests/simulation/rules/{name}.yaml").document())
        for seed in range(histories):
            setup.play(seed)
    small = {
        "recounts": 2,
        "actions": 4,
        "writes": 60,
        "faults": 10,
    }  # transactions: versions take over a part at a time
    Setup(load(ROOT / "tests/simulation/rules/counted_keep.yaml").document(), fixed=small).play(0)
    operate(monkeypatch)
    assert seen.unknown == set()
    assert seen.fields == GUARD.fields.keys()
    assert {kind.name: set(kind.attributes) - seen.attributes.get(kind.name, set()) for kind in KINDS} == {
        kind.name: set() for kind in KINDS
    }
    assert {role for kind in KINDS for role in kind.roles} == set(ledger_roles())
    assert seen.transacted == {LEDGER}


def operate(monkeypatch: pytest.MonkeyPatch) -> None:
    """What these histories do not do: long keys, refused lists, an audit, a hash of a key, a dismissed message, another
    secret, another ledger.
    """
    both = Two(2)
    both.first.put("USER#2", "LIKE#0")
    both.rounds()
    both.first.registry().rotate()
    stage = Stage(ALL)
    stage.fill()
    stage.filled()
    stage.put("USER#" + "u" * 1900, "LIKE#1", stars=1)
    stage.put("USER#9", "PROFILE", name="n" * 1900, city="x")
    stage.settle()
    nested: Any = "x"
    for _ in range(LEVELS - 1):
        nested = [nested]
    scene = Scene(TOP, HEAD)
    scene.put("DOC#1", "D", at=1, big=nested)
    with monkeypatch.context() as unlimited:
        unlimited.setattr(contribution, "MOST_LEVELS", 1000)
        scene.settle()
    AuditHandler(stage.program, stage.store, sleep=lambda seconds: None).handle({}, lambda: 60.0)
    rejected = Rejected("likes", "not a number", "main|USER#1|LIKE#1", target="main|POST#1|METADATA")
    now = datetime(2026, 4, 1, tzinfo=UTC)
    queue = Queue(SimpleNamespace(id="m1", body=json.dumps(message(rejected, now, None))))
    assert dismiss(queue, stage.store, Wanted(rule="likes"), Decision("a test", "ann", now), now) == (1, 0)
    assert Redaction("keys", {}, set(), stage.store).hash("main|USER#1|PROFILE")


def test_fields_of_a_message_are_listed() -> None:
    redaction = Redaction("keys", {}, set(), Stage(ALL).store)
    rejected = Rejected("likes", "not a number", "main|USER#1|LIKE#1")
    assert list(message(rejected, datetime(2026, 4, 1, tzinfo=UTC), None, redaction)) == list(MESSAGE)


def ledger_roles() -> Iterator[str]:
    for role in get_args(Role):
        yield role
        if role == "dismissal":
            return


def test_hashed_keys_are_of_the_kinds_of_readable_ones() -> None:
    source = "main|USER#" + "u" * 1800 + "|LIKE#1"
    keys = {
        "entry": entry_key(source), "group": group_key("likes.1", source), "fence": fence_key("author", source),
        "member": member_key("likes.1", source, "best|n1!", source),
    }  # fmt: skip
    for name, key in keys.items():
        item = {
            "pk": {"S": key.partition},
            "sk": {"S": str(key.sort)},
            **({"s": {"S": source}} if name == "member" else {}),
        }
        kind = kind_of(item)
        assert kind is not None
        assert kind.name == name

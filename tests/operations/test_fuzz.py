"""The handler answers, whatever it is given; what it cannot use is quarantined or reported, never dropped.

    FUZZ_EVENTS=10000 FUZZ_SEED=1 .venv/bin/python -m pytest tests/operations/test_fuzz.py

Sound records of some items, and between them records of other items that were mutated anywhere, or are not even records. The
sound ones must be applied exactly, as the oracle says, which shares nothing with the engine. Each event replays from its own
seed, which a failure names.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from json_parts import at, places

from projections.aws.wiring import StreamHandler
from projections.engine.processor import Processor
from projections.engine.records import decode
from projections.engine.rejections import Rejected
from projections.engine.stages import Outcome
from projections.engine.store import Image
from projections.errors import BadInput, Transient
from projections.language.loader import load, loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations.quarantine import Quarantine
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Oracle

ROOT = Path(__file__).parents[2]
EVENTS = int(os.environ.get("FUZZ_EVENTS", "600"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))

KINDS = """
table:
  key: {PK: S, SK: N}
  indexes: {GSI1: {partition: {g: S}, sort: {h: N}}}
  ttl: expiresAt
entities:
  Thing: {key: {PK: "THING#{thing}", SK: "{number}"}}
  Total: {key: {PK: "TOTAL#{kind}", SK: "{slot}"}, derived: true}
  Shelf: {key: {PK: "SHELF#{shelf}", SK: "{place}"}}
  Twin: {key: {PK: "TWIN#{thing}", SK: "{number}"}, match: {type: Twin}}
  Label: {key: {PK: "LABEL#{label}", SK: "{one}"}, match: {type: Label}}
projections:
  totals:
    from: Thing
    bind: {slot: "1"}
    aggregate:
      into: Total
      set:
        {n: count, sum: sum(amount), mean: avg(amount), most: max(number(amount)), least: min(number(amount)),
         worth: sum(amount * price)}
  shelves:
    from: Thing
    each: {shelf: shelves}
    bind: {place: "7"}
    aggregate: {into: Shelf, set: {things: count, weight: {sum: weight, where: {weight: [{numeric: [">", 1]}]}}}}
  newest:
    from: Thing
    bind: {shelf: "{kind}", place: "7"}
    top: {into: Shelf, as: newest, by: at, limit: 2, attributes: [at, note]}
  twin: {from: Thing, copy: {into: Twin, attributes: all}}
  label: {from: Thing, bind: {one: "1"}, copy: {into: Label, attributes: {note: note, thing: thing}}}
  indexed:
    from: Thing
    where: {$or: [{state: [live]}, {note: [{prefix: a}]}]}
    index: {g: "{kind}#{when|date(%Y-%m)}#{amount|pad(6)}", h: "{amount}"}
"""

HOLD = [
    *({"S": text} for text in ("", "live", "ä#|%{}~", "\U0001f600" * 9, "\x00", "x" * 3000)),
    *({"N": text} for text in ("0", "-0.5", "1E+125", "9" * 38, "0." + "0" * 129 + "1", "1690000000")),
    *({"B": "AAEC"}, {"B": ""}, {"BOOL": True}, {"BOOL": False}, {"NULL": True}),
    *({"SS": ["a", "b#c", "ä"]}, {"NS": ["1", "2.5"]}, {"BS": ["AAEC"]}, {"L": []}),
    {"L": [{"S": "a"}, {"N": "1"}, {"L": [{"S": "deep"}]}, {"NULL": True}]},
    *({"M": {}}, {"M": {"at": {"S": "9"}, "by": {"S": "main|X"}, "n": {"N": "1"}}}),
    {"M": {"S": {"S": "x"}, "": {"N": "1"}}},
]
"""Values that a table holds."""


def clone(value: Any) -> Any:
    return json.loads(json.dumps(value))


def nested(levels: int) -> Any:
    value: Any = {"S": "deep"}
    for _ in range(levels):
        value = {"L": [value]}
    return value


REFUSE: list[Any] = [
    *({"N": text} for text in ("NaN", "sNaN", "Infinity", "-Infinity", "1E+999999999", "1E-999999999999", "9" * 60)),
    *({"N": text} for text in ("١٢", " 1 ", "1_0", "", "five", 5, None)),
    *({"S": text} for text in (5, None, "half \ud83d", ["x"])),
    *({"B": "not base64!"}, {"BOOL": "true"}, {"NULL": False}),
    *({"SS": []}, {"SS": "ab"}, {"SS": [1]}, {"NS": ["NaN"]}, {"L": {}}, {"L": [1]}, {"M": []}, {"M": {"x": 1}}),
    *({"X": "unknown"}, {"S": "a", "N": "1"}, {}, nested(60), nested(100)),
]
"""Values that no table holds."""

JUNK = [
    None, True, False, 0, -1, 1.5, float("nan"), float("inf"), 10**40, "", "x", "\ud83d", "x" * 5000, [], {}, [[]], [None],
    {"": ""}, {"S": "x"}, {"Records": []}, {"dynamodb": {}}, {"dynamodb": None},
]  # fmt: skip
"""JSON that is neither a value nor a record."""

ARNS = [
    "",
    "arn:aws:dynamodb:us-east-1:000000000000:table/other/stream/2025-01-01T00:00:00.000",
    "arn:aws:dynamodb:us-east-1:000000000000:table/main",
    "arn:aws:dynamodb:us-east-1:000000000000:table/" + "x" * 5000,
    "arn:aws:sqs:us-east-1:000000000000:queue",
    "arn:aws:dynamodb:eu-west-1:999999999999:table/main/stream/2031-01-01T00:00:00.000",
    ":table/",
]


# Sound records, and what becomes of them.


@cache
def rules(name: str) -> tuple[Program, Oracle]:
    loaded = loads(KINDS) if name == "kinds" else load(ROOT / f"projections/rules/{name}.yaml")
    document = loaded.document()
    return Program.from_document(document), Oracle(document)


@cache
def recorded() -> tuple[Image, ...]:
    """Every source item in the sample events, as some record shows it."""
    found = []
    for path in sorted((ROOT / "tests/tools/expected").glob("*.json")):
        for record in json.loads(next((ROOT / "events").rglob(path.name)).read_text())["Records"]:
            image = record["dynamodb"].get("NewImage") or record["dynamodb"]["OldImage"]
            if image["SK"]["S"] != "METADATA":
                found.append(image)
    return tuple(found)


THINGS: list[Image] = [
    {
        "PK": {"S": f"THING#{thing}"},
        "SK": {"N": str(number)},
        "kind": {"S": kind},
        "amount": {"N": str(number * 3)},
        "price": {"N": "2.5"},
        "weight": {"N": str(number)},
        "shelves": {"SS": ["low", kind]},
        "at": {"S": f"2026-0{number}"},
        "when": {"S": f"2026-0{number}-01"},
        "label": {"S": kind},
        "state": {"S": "live"},
        "note": {"S": f"a{number}"},
        "lines": {"L": [{"M": {"sku": {"S": "p"}, "qty": {"N": "2"}}}]},
    }
    for thing, kind in (("t1", "red"), ("t2", "blue"), ("t3", "red"))
    for number in (1, 2)
]
THINGS += [{"PK": {"S": f"SHELF#{shelf}"}, "SK": {"N": "7"}} for shelf in ("low", "red")]


def sources(name: str) -> Sequence[Image]:
    return THINGS if name == "kinds" else recorded()


class Table:
    """One application table with the real handler on its stream."""

    def __init__(self, name: str, chance: random.Random, *, quarantine: bool = True) -> None:
        self.program, self.oracle = rules(name)
        self.store = MemoryStore({**self.program.tables, "ledger": LEDGER_SCHEMA}, streams=["main"])
        self.messages: list[str] = []
        self.fails = False
        self.outcomes: list[Outcome] = []
        self.position = 0
        sink = Quarantine(lambda: self, lambda: datetime(2026, 1, 1, tzinfo=UTC), {}) if quarantine else None
        processor = Processor(
            self.program,
            self.store,
            tables={"main": "main"},
            quarantine=sink,
            clock=lambda: 1_700_000_000.0,
            sleep=lambda seconds: None,
            chance=chance.random,
        )
        self.handler = StreamHandler(processor, quarantine=sink, observe=self.outcomes.append)

    def send(self, bodies: Sequence[str]) -> None:
        """Receives the quarantine's messages. Like SQS, it limits their size."""
        if self.fails:
            raise Transient("the queue does not answer")
        for body in bodies:
            assert len(body.encode()) < 262_144
            json.loads(body)
        self.messages.extend(bodies)

    def handle(self, event: Any) -> Outcome:
        """The answer has Lambda's form, and agrees with the outcome."""
        answer = self.handler.handle(event, lambda: 900.0)
        outcome = self.outcomes[-1]
        expected = [] if outcome.failed is None else [{"itemIdentifier": outcome.failed}]
        assert answer == {"batchItemFailures": expected}
        assert json.loads(json.dumps(answer)) == answer
        return outcome

    def fresh(self) -> list[dict[str, Any]]:
        records = self.store.stream("main", self.position)
        self.position += len(records)
        return records

    def settle(self) -> list[Rejected]:
        """Delivers what the writes of the rules themselves put into the stream, until nothing does."""
        rejected: list[Rejected] = []
        for _ in range(40):
            records = self.fresh()
            if not records:
                return rejected
            outcome = self.handle({"Records": clone(records)})
            assert outcome.failed is None, outcome.failed_reason
            rejected.extend(outcome.rejected)
        raise AssertionError(f"the stream does not come to rest: {records[:2]}")

    def wrong(self, mine: Callable[[str], bool] = lambda key: True) -> list[Any]:
        differences = self.oracle.compare({"main": self.store.items("main")})
        return [difference for difference in differences if mine(difference.key)]


# Mutations.


def strange(chance: random.Random) -> Any:
    return clone(chance.choice(chance.choice((HOLD, REFUSE, JUNK, ARNS))))


def mutated(record: Any, chance: random.Random) -> Any:
    """A record with one to three parts replaced, removed, added, exchanged or wrapped."""
    record = clone(record)
    for _ in range(chance.randint(1, 3)):
        path = chance.choice(list(places(record)))
        if not path:
            if chance.random() < 0.9:
                continue
            return strange(chance)
        holder = at(record, path[:-1])
        match chance.randrange(6):
            case 0:
                del holder[path[-1]]
            case 1 if isinstance(holder, dict):
                holder[chance.choice(("S", "N", "PK", "~engagement", "title", "", "\ud800"))] = strange(chance)
            case 2:
                holder[path[-1]] = [holder[path[-1]]]
            case 3 if path[-1] == "eventSourceARN":
                holder[path[-1]] = chance.choice(ARNS)
            case 4 if path[-1] in ("eventName", "SequenceNumber"):
                holder[path[-1]] = chance.choice(("INSERT", "MODIFY", "REMOVE", "1", "9" * 41, "-5", "٣", "0" * 40))
            case _:
                holder[path[-1]] = strange(chance)
    return record


def renamed(image: Image, prefix: str) -> Image:
    """An item of a world of its own: whatever names a user, a post or a thing gets a prefix."""
    text = json.dumps(image)
    names = ("ada", "ben", "cleo", "dan", "eve", "p1", "p2", "p3", "p4", "p5", "t1", "t2", "t3", "red", "blue", "low")
    for name in names:
        for before, after in (('"', '"'), ("#", '"'), ("#", "#")):
            text = text.replace(f"{before}{name}{after}", f"{before}{prefix}{name}{after}")
    found: Image = json.loads(text)
    return found


def writes(table: Table, prefix: str, chance: random.Random, name: str, number: int) -> list[dict[str, Any]]:
    """An application that puts and removes items of one world, at random; the records of it."""
    items = [renamed(image, prefix) for image in chance.choices(sources(name), k=number)]
    for item in items:
        key = table.program.tables["main"].key("main", item)
        if chance.random() < 0.2:
            table.store.remove(key)
        else:
            table.store.put("main", item)
    return table.fresh()


def replayable(test: Callable[[random.Random], Any], count: int, offset: int) -> list[Any]:
    """Run a test `count` times, each with its own seed. A failure prints how to repeat it."""
    results = []
    only = os.environ.get("FUZZ_ONLY")
    for seed in [int(only)] if only else range(SEED * 1_000_000 + offset, SEED * 1_000_000 + offset + count):
        try:
            results.append(test(random.Random(seed)))
        except BaseException as error:
            error.add_note(f"replay it alone by FUZZ_ONLY={seed}")
            raise
    return results


# Strange events.


def strange_event(chance: random.Random) -> tuple[int, int, int]:
    """Sound records of world `v`, mutated ones of world `m`: how many were usable, quarantined, reported."""
    name = chance.choice(("social", "kinds"))
    table = Table(name, chance)
    sound = writes(table, "v-", chance, name, chance.randint(1, 6))
    shadow = Table(name, chance)
    odd = [mutated(r, chance) for r in writes(shadow, "m-", chance, name, chance.randint(1, 5))]
    odd += [strange(chance) for _ in range(chance.randrange(2))]
    records: list[Any] = [*sound]
    for one in odd:
        records.insert(chance.randint(0, len(records)), one)
    if records and chance.random() < 0.3:  # a duplicate
        records.insert(chance.randint(0, len(records)), clone(chance.choice(records)))
    if not any(isinstance(r, dict) and r.get("eventSource") == "aws:dynamodb" for r in records):
        return 0, 0, 0
    event = {"Records": clone(records)}
    table.fails = chance.random() < 0.1
    outcome = table.handle(event)
    assert event == {"Records": records} or "nan" in repr(records)  # what was given is left as it was
    unusable = told(table, records, outcome)
    if table.fails:
        table.fails = False
        if outcome.rejected:
            assert outcome.failed is not None
        again = from_failed(records, outcome.failed)
        outcome = table.handle({"Records": clone(again)})
        told(table, again, outcome)
    assert outcome.failed is None, outcome.failed_reason
    assert len(table.messages) >= len(outcome.rejected)
    table.settle()
    assert table.wrong(lambda key: "v-" in key) == []
    return len(records) - unusable, unusable, int(outcome.failed is not None)


def told(table: Table, records: Sequence[Any], outcome: Outcome) -> int:
    """Return whether all unreadable values are rejected, and their number. Equal rejections are reported once."""
    unreadable = set()
    number = 0
    for record in records:
        try:
            decode(record, {"main": "main"}, table.program.tables)
        except BadInput as error:
            number += 1
            unreadable.add(str(error))
    assert unreadable <= {one.reason for one in outcome.rejected}
    assert outcome.counts["records"] == len(records)
    return number


def from_failed(records: Sequence[Any], failed: str | None) -> list[Any]:
    """Return the records that Lambda delivers again: from the first with this number; all if it is not there."""
    if failed is None:
        return []
    for number, record in enumerate(records):
        change = record.get("dynamodb") if isinstance(record, dict) else None
        if isinstance(change, dict) and change.get("SequenceNumber") == failed:
            return list(records[number:])
    return list(records)


@pytest.mark.deep
def test_strange_events_are_answered_and_the_sound_records_between_them_applied(capsys: Any) -> None:
    started = time.monotonic()
    results = replayable(strange_event, EVENTS, 0)
    usable, quarantined, _ = map(sum, zip(*results, strict=True))
    with capsys.disabled():
        print(
            f"\n{len(results)} strange events in {time.monotonic() - started:.1f} s: "
            f"{usable} records usable, {quarantined} quarantined"
        )
    if len(results) > 100:
        assert min(usable, quarantined) > len(results) / 2


def test_a_parent_that_has_become_unusable_is_reported_by_its_own_record() -> None:
    """A push reads the current parent. An invalid value there gives the children nothing, and its record is rejected."""
    table = Table("social", random.Random(SEED))
    profile = {"PK": {"S": "USER#ben"}, "SK": {"S": "PROFILE"}, "name": {"S": "Ben"}}
    table.store.put("main", profile)
    table.store.put("main", {**profile, "userId": {"N": "0"}})
    first, second = table.fresh()[:2]
    assert not table.handle({"Records": [first]}).rejected
    assert {one.rule for one in table.handle({"Records": [second]}).rejected} == {"commentAuthor"}


# No event at all.


def test_any_json_in_place_of_an_event_is_answered() -> None:
    chance = random.Random(SEED)
    for junk in [
        *JUNK,
        *HOLD,
        *REFUSE,
        {"Records": JUNK},
        {"Records": {"0": {}}},
        {"Records": [{}]},
        {"Records": [[]]},
    ]:
        for quarantine in (True, False):
            table = Table("social", chance, quarantine=quarantine)
            outcome = table.handle(junk)
            empty = isinstance(junk, dict) and junk.get("Records") == []
            assert bool(table.messages) == (quarantine and not empty)
            assert (outcome.failed is None) == (quarantine or empty)


@pytest.mark.parametrize("value", REFUSE, ids=lambda value: str(value)[:30])
def test_a_value_that_no_table_holds_is_quarantined_wherever_it_stands(value: Any) -> None:
    """At the top, in a list, in a map: the record is rejected in no time, its neighbours are applied."""
    for place in (value, {"L": [value]}, {"M": {"x": value}}):
        chance = random.Random(SEED)
        table = Table("kinds", chance)
        sound = writes(table, "v-", chance, "kinds", 3)
        bad = clone(sound[0])
        bad["dynamodb"]["SequenceNumber"] = "200000000000000000001"
        for part in ("Keys", "NewImage"):
            bad["dynamodb"][part]["PK"] = {"S": "THING#odd"}
        bad["dynamodb"]["NewImage"]["amount"] = place
        outcome = table.handle({"Records": [sound[0], bad, *sound[1:]]})
        assert outcome.failed is None
        assert [one.sequence for one in outcome.rejected if one.rule is None] == ["200000000000000000001"]
        table.settle()
        assert table.wrong() == []

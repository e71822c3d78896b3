"""Properties of the engine over random rules and random histories, judged by an oracle that shares nothing with it.

The profile `thorough` (HYPOTHESIS_PROFILE=thorough, with PROPERTY_EXAMPLES) looks further and at random; without it every
run tries the same examples, so that CI fails only for a reason.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from hypothesis import strategies as st

from projections.engine.ledger_items import Entry, member_key
from projections.engine.plan import plan
from projections.engine.processor import Processor
from projections.engine.records import decode
from projections.engine.rejections import Rejected
from projections.engine.store import Image, ItemKey, Value
from projections.errors import InvalidRequest, RulesError
from projections.language.document import Rules
from projections.language.keys import encode_key
from projections.language.loader import check
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Oracle
from tests.engine.strategies import KEYS, Op, histories, plain_histories, rule_files, whole

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]

settings.register_profile(
    "thorough",
    max_examples=int(os.environ.get("PROPERTY_EXAMPLES", "3000")),
    suppress_health_check=SLOW,
    deadline=None,
    print_blob=True,
)


def examples(number: int) -> settings:
    """As many examples, always the same; with the profile `thorough` PROPERTY_EXAMPLES of them, never the same."""
    if THOROUGH:
        return settings.get_profile("thorough")
    phases = [Phase.explicit, Phase.generate, Phase.shrink]
    return settings(max_examples=number, derandomize=True, database=None, phases=phases, suppress_health_check=SLOW)


class Story:
    """One rule file and one history: what the application does, and the stream fed to the engine."""

    def __init__(self, document: Mapping[str, Any], seed: int = 0, twice: bool = False) -> None:
        self.document = document
        self.program = Program.from_document(document)
        tables = self.program.tables
        self.stream: list[dict[str, Any]] = []
        self.store = MemoryStore(
            {**tables, "ledger": LEDGER_SCHEMA},
            streams=list(tables),
            on_record=lambda _, record: self.stream.append(record),
        )
        self.rejected: list[Rejected] = []
        self.random = random.Random(seed)
        self.processor = Processor(
            self.program,
            self.store,
            tables={name: name for name in tables},
            quarantine=self.rejected.extend,
            clock=lambda: 1_700_000_000.0,
            sleep=lambda seconds: None,
            chance=self.random.random,
        )
        self.twice = twice
        self.waiting = 0
        self.saved: tuple[str, Image] | None = None

    # The application

    def do(self, op: Op) -> None:
        if op.what == "deliver":
            self.deliver(op.at)
            return
        with suppress(InvalidRequest):  # what DynamoDB refuses to the application never happened
            getattr(self, "_" + op.what)(op)

    def _put(self, op: Op) -> None:
        key = KEYS[op.at][1]
        self._write(key, dict(op.values or {}))

    def _write(self, key: ItemKey, values: Mapping[str, Value]) -> None:
        self.store.put(key.table, {**values, **self.store.schema(key.table).wire(key)})

    def _edit(self, op: Op) -> None:
        key = KEYS[op.at][1]
        image = self.store.get(key)
        if image is not None:
            self._write(key, self._changed(image, op))

    def _changed(self, image: Image, op: Op) -> dict[str, Value]:
        """The image with one attribute set, or one of those that the application may have taken out."""
        if op.values:
            return {**image, **op.values}
        keys = ("PK", "SK", "board", "rank")
        names = sorted(name for name in image if name not in keys and not name.startswith("~"))
        gone = names[op.pick % len(names)] if names else ""
        return {name: value for name, value in image.items() if name != gone}

    def _remove(self, op: Op) -> None:
        self.store.remove(KEYS[op.at][1])

    def _expire(self, op: Op) -> None:
        self.store.remove(KEYS[op.at][1], by_ttl=True)

    def _touched(self, op: Op) -> tuple[ItemKey, Image] | None:
        """One of the items that rules have written to."""
        found = [
            (self.store.schema(table).key(table, image), image)
            for table in self.program.tables
            for image in self.store.items(table)
            if any(name.startswith(("~", "GSI")) for name in image)
        ]
        return found[op.at % len(found)] if found else None

    def _overwrite(self, op: Op) -> None:
        if found := self._touched(op):
            key, _ = found
            entity = {"ECHO": "Echo", "CELL": "Cell"}.get(key.partition[:4])
            constants: dict[str, Value] = {"kind": {"S": entity}, "size": {"N": "1"}} if entity and op.at % 3 else {}
            self._write(key, {**(op.values or {}), **constants})

    def _save(self, op: Op) -> None:
        if found := self._touched(op):
            self.saved = found[0].table, found[1]

    def _restore(self, op: Op) -> None:
        if self.saved is not None:
            self.store.put(self.saved[0], self._changed(self.saved[1], op) if op.pick % 2 else self.saved[1])

    def _meddle(self, op: Op) -> None:
        if found := self._touched(op):
            key, image = found
            names = sorted(image.keys() - {"PK", "SK", "board", "rank"})
            names = [name for name in names if not name.startswith("~")]
            value = next(iter((op.values or {}).values()), {"N": "999"})
            if names:
                self._write(key, {**image, names[op.pick % len(names)]: value})

    def _strip(self, op: Op) -> None:
        if found := self._touched(op):
            key, image = found
            names = sorted(image.keys() - {"PK", "SK", "board", "rank"})
            gone = names[op.pick % len(names)]
            self._write(key, {name: value for name, value in image.items() if name != gone})

    def _delete(self, op: Op) -> None:
        if found := self._touched(op):
            self.store.remove(found[0])

    # The stream

    def deliver(self, number: int) -> None:
        """The next records in order, as one batch."""
        batch = self.stream[self.waiting : self.waiting + number]
        self.waiting += len(batch)
        for _ in range(1 + self.twice):
            self.process(batch)

    def process(self, batch: Sequence[Mapping[str, Any]]) -> None:
        if batch:
            outcome = self.processor.process(batch, remaining=lambda: 900.0)
            assert outcome.failed is None, outcome.failed_reason

    def settle(self, size: int = 1000) -> None:
        """Delivers until nothing is left: the application has stopped, so the rules must come to rest."""
        for _ in range(200):
            if self.waiting == len(self.stream):
                return
            self.deliver(size)
        raise AssertionError(f"the stream does not come to rest: {self.stream[-3:]}")

    def settle_mixed(self, rng: random.Random) -> None:
        """Delivers until nothing is left, records of one item in order, those of different items in any."""
        queues: dict[str, list[Mapping[str, Any]]] = {}
        for _ in range(3000):
            for record in self.stream[self.waiting :]:
                queues.setdefault(json.dumps([record["eventSourceARN"], record["dynamodb"]["Keys"]]), []).append(record)
            self.waiting = len(self.stream)
            if not queues:
                return
            batch = []
            for _ in range(rng.choice([1, 2, 5, 20])):
                if queues:
                    key = rng.choice(sorted(queues))
                    batch.append(queues[key].pop(0))
                    if not queues[key]:
                        del queues[key]
            self.process(batch)
        raise AssertionError(f"the stream does not come to rest: {self.stream[-3:]}")

    # What must hold

    def items(self) -> dict[str, list[Image]]:
        return {table: self.store.items(table) for table in self.program.tables}

    def unguarded(self) -> list[Image]:
        return [
            {name: value for name, value in image.items() if not name.startswith("~")}
            for held in self.items().values()
            for image in held
        ]

    def expired(self) -> list[tuple[str, Mapping[str, Any]]]:
        """(rule, record) of each item that expired under a rule that keeps what it contributed."""
        return [
            (name, record)
            for record in self.stream
            if "userIdentity" in record
            for name, rule in self.document["projections"].items()
            if rule["expired"] == "keep"
        ]

    def check(self) -> None:
        settled = [(rule, record["dynamodb"]["OldImage"]) for rule, record in self.expired()]
        differences = Oracle(self.document).compare(self.items(), settled)
        assert not differences, "\n".join(map(str, differences))
        problems = list(self._ledger())
        assert not problems, "\n".join(problems)
        self._check_rejections()

    def _ledger(self) -> Iterator[str]:
        """What is wrong with the books: entries with items, groups and members with entries."""
        sums: dict[tuple[str, str], dict[str, Decimal]] = {}
        members: set[ItemKey] = set()
        entries: dict[str, Entry] = {}
        ledger = self.store.items("ledger")
        for item in ledger:
            if item["pk"]["S"].startswith("E|"):
                source = item["key"]["S"] if "key" in item else item["pk"]["S"][2:]
                entries[source] = entry = Entry.read(item)
                if entry.recent:
                    yield f"the entry of {source} still owes {sorted(entry.recent)}"
                for rule, target, slot, amount in _slots(entry.contributions):
                    if slot == "+":
                        members |= {member_key(rule, target, 0, member, source) for member in amount}
                    else:
                        _add(sums, rule, target, slot, amount)
        for table, held in self.items().items():
            for image in held:
                item_ = self.program.recognise(self.store.schema(table).key(table, image), image)
                source = encode_key(self.store.schema(table).key(table, image))
                known = entries.pop(source, None)
                contributions = self.program.contributions(item_).contributions
                if contributions != (known.contributions if known else {}):
                    yield f"{source} contributes {contributions}, its entry says {known}"
        yield from (f"{source} is gone, its entry is {e}" for source, e in entries.items() if e.contributions)
        for rule, record in self.expired():
            table = record["eventSourceARN"].split("/")[1]
            key = self.store.schema(table).key(table, record["dynamodb"]["Keys"])
            gone = self.program.contributions(self.program.recognise(key, record["dynamodb"]["OldImage"])).contributions
            for _, target, slot, amount in _slots({rule: gone.get(rule, {})}):
                if slot != "+":
                    _add(sums, rule, target, "~" + slot, amount)
        groups: dict[tuple[str, str], dict[str, Decimal]] = {}
        for item in ledger:
            if item["pk"]["S"].startswith("G|") and "order" not in item:
                rule, _, target = item["pk"]["S"][2:].partition("|")
                for slot, value in item.items():
                    if slot.strip("~")[:1] in ("n", "=", "#"):
                        _add(groups, rule, target, slot, value["N"])
        for group in sums.keys() | groups.keys():
            due = {slot: amount for slot, amount in sums.get(group, {}).items() if amount}
            found = {slot: amount for slot, amount in groups.get(group, {}).items() if amount}
            if due != found:
                yield f"the group {group} holds {found}, its entries and what has settled come to {due}"
        held_members = {ItemKey("ledger", i["pk"]["S"], i["sk"]["S"]) for i in ledger if i["pk"]["S"].startswith("M|")}
        if members != held_members:
            yield f"members without entry: {held_members - members}; entries without member: {members - held_members}"

    def _check_rejections(self) -> None:
        """Only what a rule cannot be evaluated on may be rejected: these values can all be stored. And occupied keys."""
        records = {record["dynamodb"]["SequenceNumber"]: record for record in self.stream}
        tables = {name: name for name in self.program.tables}
        for one in dict.fromkeys(self.rejected):
            record = decode(records[one.sequence or ""], tables, self.program.tables)
            if one.reason.startswith("occupied:"):
                assert self._was_of_another_kind(one.key or ""), f"there was never an item of another kind: {one}"
                continue
            assert one in plan(self.program, [record]).rejected, f"rejected without need: {one}"

    def _was_of_another_kind(self, key: str) -> bool:
        """Whether an item of no entity was ever under a key."""
        for record in self.stream:
            table = record["eventSourceARN"].split("/")[1]
            found = self.program.tables[table].key(table, record["dynamodb"]["Keys"])
            image = record["dynamodb"].get("NewImage")
            if encode_key(found) == key and image is not None and self.program.recognise(found, image) is None:
                return True
        return False


def _slots(contributions: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[tuple[str, str, str, Any]]:
    for rule, targets in contributions.items():
        for target, contributed in targets.items():
            for slot, amount in contributed.items():
                yield rule, target, slot, amount


def _add(sums: dict[tuple[str, str], dict[str, Decimal]], rule: str, target: str, slot: str, amount: Any) -> None:
    totals = sums.setdefault((rule, target), {})
    totals[slot] = totals.get(slot, Decimal(0)) + Decimal(amount)


def understood(rules: Mapping[str, Any]) -> dict[str, Any]:
    """The canonical document of drawn rules; discards those that the loader refuses."""
    try:
        found = check(Rules.model_validate(whole(rules), by_alias=True, by_name=False))
    except RulesError as refused:
        note(str(refused))
        assume(False)
        raise
    return found.canonical()


@examples(200)
@given(rule_files(), histories())
@pytest.mark.deep
def test_what_is_stored_is_what_the_items_say(rules: Mapping[str, Any], history: Sequence[Op]) -> None:
    story = Story(understood(rules))
    for op in history:
        story.do(op)
    story.settle()
    story.check()


@examples(90)
@given(rule_files(), histories(16), st.integers(1, 7))
def test_twice_equals_once(rules: Mapping[str, Any], history: Sequence[Op], size: int) -> None:
    """Every batch is delivered twice; when all is quiet the whole stream comes again, and changes nothing."""
    story = Story(understood(rules), twice=True)
    for op in history:
        story.do(op)
    story.settle(size)
    story.check()
    before, whole = story.unguarded(), len(story.stream)
    for start in range(0, whole, size):
        story.process(story.stream[start : start + size])
    story.settle()
    assert story.unguarded() == before
    story.check()


@examples(90)
@given(rule_files(), plain_histories(), st.lists(st.integers(0, 1000), min_size=3, max_size=3))
@pytest.mark.deep
def test_any_split_into_batches_ends_the_same(
    rules: Mapping[str, Any], history: Sequence[Op], seeds: Sequence[int]
) -> None:
    """One by one, all at once, or items interleaved at random: records of one item keep their order, no more."""
    document = understood(rules)
    ends = []
    for size in (1, 1000):
        story = Story(document)
        for op in history:
            story.do(op)
        story.settle(size)
        ends.append(story)
    for seed in seeds:
        story, rng = Story(document, seed), random.Random(seed)
        for op in history:
            story.do(op)
            if rng.random() < 0.4:
                story.deliver(rng.randint(1, 5))
        story.settle_mixed(rng)
        ends.append(story)
    for story in ends:
        story.check()
        assert story.unguarded() == ends[0].unguarded()


# What they found


def test_a_copy_of_all_attributes_from_another_table_has_the_keys_of_its_source() -> None:
    """`all` is all: only the key attributes of the target itself are its own."""
    story = Story(understood({"r": {"from": "Score", "bind": {"echo": "{game}-{level}"}, "copy": _ALL_INTO_ECHO}}))
    story.do(Op("put", 15, {"a": {"N": "1"}}))
    story.settle()
    story.check()
    copied = story.store.get(ItemKey("main", "ECHO#g-1", "E"))
    assert copied is not None
    assert (copied["board"], copied["rank"], copied["a"]) == ({"S": "SCORE#g"}, {"N": "1"}, {"N": "1"})


def test_an_item_that_is_no_longer_of_the_entity_is_left_alone() -> None:
    """Neither contributions nor a redelivery write on an item that has the key of a target, but does not fit `match`."""
    rule = {"from": "Post", "bind": {"doc": "x"}, "aggregate": {"into": "Page", "set": {"posts": "count"}}}
    story, page = Story(understood({"r": rule})), ItemKey("main", "DOC#x", "BODY")
    story.do(Op("put", 13, {"state": {"S": "live"}}))
    story.do(Op("put", 0, {}))
    story.settle()
    assert (story.store.get(page) or {})["posts"] == {"N": "1"}
    story.do(Op("put", 13, {"state": {"S": "draft"}}))
    story.do(Op("put", 1, {}))
    story.settle()
    assert (story.store.get(page) or {}).keys() == {"PK", "SK", "state"}
    story.process(story.stream)
    story.settle()
    assert (story.store.get(page) or {}).keys() == {"PK", "SK", "state"}
    story.do(Op("edit", 13, {"state": {"S": "live"}}))
    story.settle()
    assert (story.store.get(page) or {})["posts"] == {"N": "2"}


def test_elements_of_several_items_with_the_same_value_are_listed_by_item_first() -> None:
    """Ties are broken by source key; the position within the source comes after."""
    top = {"into": "Tag", "as": "first", "by": "a", "order": "asc", "limit": 3, "attributes": ["note", "e"]}
    story = Story(understood({"r": {"from": "Note", "each": {"e": "tags"}, "bind": {"tag": "x"}, "top": top}}))
    for at in (7, 8):
        story.do(Op("put", at, {"a": {"N": "1"}, "tags": {"L": [{"S": "y"}, {"S": "x"}]}}))
    story.settle()
    story.check()
    (first,) = [image["first"]["L"] for image in story.store.items("main") if "first" in image]
    assert [(one["M"]["note"]["S"], one["M"]["e"]["S"]) for one in first] == [("n", "y"), ("n", "x"), ("m", "y")]


_ALL_INTO_ECHO = {"into": "Echo", "attributes": "all"}

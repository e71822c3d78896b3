"""Delivery: what the handler makes of a store that fails, at every call of a batch in which everything happens.

A batch of aggregates, lists, claims, copies, index attributes and healing is delivered again and again; each time another
call of the store fails, in another way. Whatever happens, once the faults are over and what was reported has come again,
every derived value is what the oracle says, or the record that was to make it is in quarantine.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from projections.aws.wiring import StreamHandler
from projections.engine.registry import REGISTRY
from projections.engine.rejections import Rejected
from projections.engine.running import COUNTS
from projections.engine.stages import Outcome
from projections.engine.store import ItemKey, Update, Write
from projections.errors import (
    ConditionFailed,
    InvalidRequest,
    Misconfigured,
    Reason,
    StoreError,
    TransactionCancelled,
    Transient,
)
from projections.language.loader import loads
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Oracle
from projections.testing.oracle.oracle import Difference
from tests.engine import scene
from tests.engine.scene import HEAD
from tests.engine.world import World

ROOT = Path(__file__).parents[2]

RULES = scene.RULES.partition("  author:")[0]
READS = {"listed": {"postById", "likes"}, "tags": {"postById"}}
"""Return the attributes that a rule reads and other rules write."""


class FaultyStore(MemoryStore):
    """Asks `fault` before every call of the engine; what that returns is raised, `LOST` after the call is carried out."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.calls = 0
        self.fault: Fault = never

    def _asked(self, name: str, keys: Sequence[ItemKey], call: Callable[[], Any]) -> Any:
        self.calls += 1
        error = self.fault(self.calls, name, keys)
        if error is not None and error is not LOST:
            raise error
        result = call()
        if error is not None:
            raise error
        return result

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Any:
        return self._asked("get", [key], lambda: super(FaultyStore, self).get(key, attributes))

    def get_many(self, keys: Sequence[ItemKey]) -> Any:
        return self._asked("get_many", keys, lambda: super(FaultyStore, self).get_many(keys))

    def query(self, table: str, values: Any, **options: Any) -> Any:
        key = ItemKey(table, values[0]["S"])
        return self._asked("query", [key], lambda: super(FaultyStore, self).query(table, values, **options))

    def write(self, write: Write) -> None:
        self._asked("write", [write.key], lambda: super(FaultyStore, self).write(write))

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        """One call, in which each update may fail for itself."""
        self.calls += 1
        number, answers = self.calls, list[StoreError | None]()
        for write in writes:
            error = self.fault(number, "write_each", [write.key])
            if error is None or error is LOST:
                try:
                    super().write(write)
                except (ConditionFailed, InvalidRequest) as refused:
                    error = refused
            elif not isinstance(error, InvalidRequest | Transient):
                raise error
            answers.append(error)
        return answers

    def transact(self, writes: Sequence[Write]) -> None:
        keys = [write.key for write in writes]
        self._asked("transact", keys, lambda: super(FaultyStore, self).transact(writes))


Fault = Callable[[int, str, Sequence[ItemKey]], StoreError | None]
"""Number of the call, its name, the keys it names → what it fails with."""

LOST = Transient("the answer was lost")


def never(number: int, name: str, keys: Sequence[ItemKey]) -> StoreError | None:
    return None


def once(at: int, error: StoreError) -> Fault:
    return lambda number, name, keys: error if number == at else None


def from_then_on(at: int, error: StoreError) -> Fault:
    return lambda number, name, keys: error if number >= at else None


def poisoned(key: ItemKey, *, reads: bool) -> Fault:
    """DynamoDB refuses whatever names this item: an item that grew too large, or (reads too) an impossible key."""

    def fault(number: int, name: str, keys: Sequence[ItemKey]) -> StoreError | None:
        if key not in keys or (name.startswith(("get", "query")) and not reads):
            return None
        if name == "transact" and not reads:
            bad = Reason("invalid", message="Item size has exceeded the maximum")
            return TransactionCancelled([bad if one == key else None for one in keys])
        return InvalidRequest(f"{key} is refused")

    return fault


class Delivery(World):
    """The batch in which everything happens, about to be delivered. Time passes only while the engine waits, and
    `each_call` seconds with every call of the store."""

    def __init__(self, run: Any = None) -> None:
        self.seconds = 60.0
        self.each_call = 0.0
        self.outcomes: list[Outcome] = []
        self.quarantine_fails: StoreError | None = None
        super().__init__(RULES, HEAD, sleep=self._sleep, quarantine=self._quarantined, **({"run": run} if run else {}))
        self.store: FaultyStore
        names = [*self.program.tables]
        self.store = FaultyStore({name: self.store.schema(name) for name in (*names, "ledger")}, streams=names)
        self.processor = self.worker()
        self._before()
        self.settle()
        self._batch()
        self.batch = self.records()
        self.position += len(self.batch)
        self.store.calls = 0

    def _sleep(self, seconds: float) -> None:
        self.seconds -= seconds

    def _quarantined(self, rejected: Sequence[Rejected]) -> None:
        if self.quarantine_fails is not None:
            raise self.quarantine_fails
        self.rejected.extend(rejected)

    def _before(self) -> None:
        for user in "abc":
            self.put(f"USER#{user}", "PROFILE", name=user, email=f"{user}@example.com")
        for post in "1235":
            self.put("USER#a", f"POST#{post}", title=post, status="published", tags=["red", post])
            for user in "abc":
                self.put(f"USER#{user}", f"LIKE#{post}")
        for comment in range(3):
            self.put("POST#1", f"COMMENT#{comment}", text=str(comment), at=comment)

    def _batch(self) -> None:
        self.put("USER#d", "LIKE#1")
        self.remove("USER#a", "LIKE#1")
        self.put("USER#a", "LIKE#4")
        self.put("POST#1", "COMMENT#2", text="edited", at=7)
        self.remove("POST#1", "COMMENT#1")
        self.put("POST#2", "COMMENT#9", text="new", at=9)
        self.put("USER#a", "PROFILE", name="a", email="d@example.com")  # gives a claim up for another
        self.put("USER#b", "PROFILE", name="b", email="c@example.com")  # claims what is taken, and wins
        self.remove("USER#c", "PROFILE")
        self.put("USER#a", "POST#1", title="edited", status="draft", tags=["blue"])
        self.remove("USER#a", "POST#2")
        self.put("USER#a", "POST#4", title="4", status="published", tags=["red"])
        self.put("POST#1", "METADATA", type="PostMeta", title="1", status="published", likeCount=99, tags=["red"])
        self.remove("POST#3", "METADATA")
        self.remove("TAG#red", "STATS")
        self.put("EMAIL#b@example.com", "OWNER", type="Email", userId="nobody")
        listed = self.store.get(ItemKey("main", "POST#5", "METADATA"))
        self.store.put("main", {**(listed or {}), "GSI1SK": {"S": "elsewhere"}})
        self.put("UNKNOWN", "1")

    def handle(self, records: Sequence[Any], seconds: float = 60.0) -> Outcome:
        """Through a handler that has just been started, which answers and never raises but for `Misconfigured`."""
        self.seconds, start, calls = seconds, len(self.outcomes), self.store.calls

        def remaining() -> float:
            return self.seconds - self.each_call * (self.store.calls - calls)

        handler = StreamHandler(self.worker(), quarantine=self._quarantined, observe=self.outcomes.append)
        answer = handler.handle({"Records": list(records)}, remaining)
        (outcome,) = self.outcomes[start:]
        failures = [] if outcome.failed is None else [{"itemIdentifier": outcome.failed}]
        assert answer == {"batchItemFailures": failures}
        assert outcome.counts["rejected"] == len(outcome.rejected)
        return outcome

    def first(self, **settings: Any) -> Outcome:
        return self.handle(self.batch, **settings)

    def again(self, outcome: Outcome) -> None:
        """The faults are over: what was reported comes again, and then what the writes of it put into the stream."""
        self.store.fault, self.each_call = never, 0.0
        records: Sequence[Any] = self.batch
        if outcome.failed is not None:
            numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
            assert self.handle(records[numbers.index(outcome.failed) :]).failed is None
        self.rest()

    def rest(self) -> None:
        for _ in range(30):
            records = self.records()
            self.position += len(records)
            if not records:
                return
            assert self.handle(records).failed is None
        raise AssertionError("the stream does not come to rest")

    def differences(self) -> list[Difference]:
        return oracle().compare({"main": self.store.items("main")})


@cache
def oracle() -> Oracle:
    return Oracle(loads(HEAD + RULES).document())


@cache
def calls() -> int:
    """The calls that the batch takes where nothing fails."""
    delivery = Delivery()
    assert delivery.differences()
    assert delivery.first().failed is None
    number = delivery.store.calls
    delivery.rest()
    assert delivery.differences() == []
    return number


def touched() -> Iterator[ItemKey]:
    """Every item that the batch reads or writes, but the registry: without that one nothing is done."""
    delivery, found = Delivery(), dict[ItemKey, None]()

    def note(number: int, name: str, keys: Sequence[ItemKey]) -> None:
        if name != "query":
            found.update((key, None) for key in keys if key.partition != REGISTRY.partition)

    delivery.store.fault = note
    delivery.first()
    return iter(found)


def test_a_batch_in_which_everything_happens_is_exactly_right() -> None:
    """The batch of the other tests has all kinds of calls, and counts all kinds of work."""
    delivery, names = Delivery(), set[str]()
    delivery.store.fault = lambda number, name, keys: names.add(name)
    outcome = delivery.first()
    assert names == {"get", "get_many", "query", "write", "write_each", "transact"}
    done = {"records", "ignored", "applied", "transactions", "published", "copies", "indexed", "healed"}
    assert done <= {name for name in COUNTS if outcome.counts[name]}
    assert delivery.store.calls > 40


# Transient.


@pytest.mark.parametrize("error", [Transient("throttled"), LOST], ids=["refused", "answer lost"])
@pytest.mark.deep
def test_one_failure_of_any_call_is_overcome(error: StoreError) -> None:
    """Tried again at once, or reported; an answer that was lost counts nothing twice."""
    for number in range(1, calls() + 1):
        delivery = Delivery()
        delivery.store.fault = once(number, error)
        delivery.again(delivery.first())
        assert delivery.differences() == [], number
        assert not delivery.rejected, number


@pytest.mark.parametrize("error", [Transient("throttled"), LOST], ids=["refused", "answer lost"])
@pytest.mark.deep
def test_a_store_that_fails_from_any_call_on_is_reported_and_caught_up_with(error: StoreError) -> None:
    for number in range(1, calls() + 1):
        delivery = Delivery()
        delivery.store.fault = from_then_on(number, error)
        outcome = delivery.first()
        assert outcome.failed is not None, number
        assert outcome.failed_reason, number
        delivery.again(outcome)
        assert delivery.differences() == [], number
        assert not delivery.rejected, number


def test_a_failed_batch_returns_the_lowest_number_and_earlier_records_are_done() -> None:
    """An outage of one target: the records before its first one are not delivered again, and are effective."""
    delivery = Delivery()
    target = ItemKey("main", "POST#2", "METADATA")
    delivery.store.fault = lambda number, name, keys: Transient("hot") if target in keys and name == "write" else None
    outcome = delivery.first()
    first = next(r for r in delivery.batch if r["dynamodb"]["Keys"]["PK"]["S"] == "POST#2")
    assert outcome.failed == first["dynamodb"]["SequenceNumber"]
    assert outcome.counts["failed"] == 0  # everything is in the ledger
    assert delivery.differences()
    delivery.again(outcome)
    assert delivery.differences() == []


def test_a_batch_that_means_nothing_to_the_rules_is_not_acknowledged_before_they_are_known_to_be_active() -> None:
    delivery = Delivery()
    delivery.store.fault = from_then_on(1, Transient("throttled"))
    unknown = [record for record in delivery.batch if record["dynamodb"]["Keys"]["PK"]["S"] == "UNKNOWN"]
    assert len(unknown) == 1
    assert delivery.handle(unknown).failed == unknown[0]["dynamodb"]["SequenceNumber"]
    delivery.store.fault = never
    assert delivery.handle(unknown).failed is None


# Permanent.


def concerned(key: ItemKey) -> set[str | None]:
    """Return the rules that an item affects: only they may reject it or differ because of it."""
    program = Delivery().program
    if key.table == "ledger":
        named = {rule for rule in program.rules if f"|{rule}." in key.partition.replace("#", "|")}
        return {None, *(named or program.rules)}
    its = next(entity for entity in oracle().entities.values() if entity.read(key) is not None)
    ours = {rule for rule in program.rules if oracle().rules[rule].into is its}
    return {None, *ours, *(rule for rule in program.rules if oracle().rules[rule].source is its)}


def explained(difference: Difference, rejected: Sequence[Rejected]) -> bool:
    """Return whether a rejection explains a difference: by its rule, or by one that its rule reads."""
    rules = {name for one in rejected for name in (one.rule or "*").split(", ")}
    return bool(rules & {"*", difference.rule, *READS.get(difference.rule or "", ())})


@pytest.mark.parametrize(
    "reads", [pytest.param(False, marks=pytest.mark.deep, id="its writes"), pytest.param(True, id="whatever names it")]
)
def test_an_item_that_dynamodb_refuses_is_quarantined_and_all_else_is_applied(reads: bool) -> None:
    """For an item of the batch: the shard advances, and each difference is reported under a rule that the item affects."""
    for key in [*touched()][reads::4]:  # of a quarter of the items the writes, of another whatever names them
        delivery = Delivery()
        delivery.store.fault = poisoned(key, reads=reads)
        outcome = delivery.first()
        assert outcome.failed is None, (key, outcome.failed_reason)
        delivery.rest()
        for difference in delivery.differences():
            assert explained(difference, delivery.rejected), (key, difference, delivery.rejected)
        told = {name for one in delivery.rejected for name in (one.rule or "").split(", ")}
        assert {name or None for name in told} <= concerned(key), (key, told)
        for one in delivery.rejected:
            assert one.sequence, (key, one)
            assert one.key, (key, one)


@pytest.mark.deep
def test_one_refusal_of_any_call_loses_nothing() -> None:
    """If DynamoDB refuses a call once, its effects are applied later or reported."""
    for number in range(1, calls() + 1):
        delivery = Delivery()
        delivery.store.fault = once(number, InvalidRequest("refused"))
        delivery.again(delivery.first())
        for difference in delivery.differences():
            assert explained(difference, delivery.rejected), (number, difference, delivery.rejected)


# Misconfigured.


@pytest.mark.deep
def test_no_permission_at_any_call_fails_the_batch_loudly() -> None:
    """It raises, so that Lambda counts an error and delivers the whole batch again once somebody has acted."""
    for number in range(1, calls() + 1):
        delivery = Delivery()
        delivery.store.fault = from_then_on(number, Misconfigured("no permission"))
        with pytest.raises(Misconfigured, match="no permission"):
            delivery.first()
        delivery.again(Outcome(delivery.batch[0]["dynamodb"]["SequenceNumber"], None, (), {}))
        assert delivery.differences() == [], number
        assert not delivery.rejected, number


# The deadline.


def test_a_batch_ends_cleanly_whenever_its_time_is_up() -> None:
    """A second for each call: it stops before the last, answers, and the rest comes again."""
    for seconds in range(calls() + 2, -1, -3):
        delivery = Delivery()
        delivery.each_call = 1.0
        outcome = delivery.first(seconds=seconds)
        if seconds > calls() + 1:  # the time is checked before reads that need no call, too
            assert outcome.failed is None, seconds
        if outcome.failed is None:
            assert seconds >= delivery.store.calls - 3, seconds
        assert delivery.store.calls <= max(0, seconds - 1) + 4, seconds  # the piece of work that had begun
        delivery.again(outcome)
        assert delivery.differences() == [], seconds
        assert not delivery.rejected, seconds


# Metrics and alarms.


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcome], Mapping[str, Any]]:
    """Return the metrics that the deployed function writes for an outcome."""
    for name, value in {
        "TABLE_NAME": "app",
        "LEDGER_TABLE_NAME": "ledger",
        "RULES_FILE": str(ROOT / "projections/rules/social.yaml"),
        "POWERTOOLS_METRICS_NAMESPACE": "Projections",
    }.items():
        monkeypatch.setenv(name, value)
    stream, metrics = importlib.import_module("handlers.stream"), importlib.import_module("handlers.common").metrics

    def measured(outcome: Outcome) -> Mapping[str, Any]:
        metrics.clear_metrics()
        stream.observe(outcome)
        said: Mapping[str, Any] = metrics.serialize_metric_set()
        metrics.clear_metrics()
        return said

    return measured


def test_each_outcome_is_a_metric(measure: Callable[[Outcome], Mapping[str, Any]]) -> None:
    """Applied, duplicate, failed, rejected, reported: each by a number that is there from the start."""
    fine, slow, poison = Delivery(), Delivery(), Delivery()
    slow.store.fault = from_then_on(2, Transient("throttled"))  # the rules are known to be active
    poison.store.fault = poisoned(ItemKey("main", "POST#2", "METADATA"), reads=False)

    def numbers(outcome: Outcome) -> Mapping[str, float]:
        said = measure(outcome)
        names = {metric["Name"] for metric in said["_aws"]["CloudWatchMetrics"][0]["Metrics"]}
        return {name: sum(said[name]) for name in names if not name.startswith("freshness.")}

    done = numbers(fine.first())
    assert {*COUNTS, "failures", "throttled", "writesPerRecord"} == done.keys()
    assert (done["failures"], done["rejected"], done["failed"]) == (0, 0, 0)
    assert done["records"] == len(fine.batch)
    assert done["applied"] > 0
    twice = numbers(fine.first())
    assert (twice["applied"], twice["duplicates"]) == (0, done["applied"])
    late = numbers(slow.first())
    assert (late["failures"], late["failed"]) == (1, done["applied"])
    bad = numbers(poison.first())
    assert (bad["failures"], bad["rejected"]) == (0, len(poison.rejected))

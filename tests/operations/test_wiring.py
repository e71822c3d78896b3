"""Settings are checked once, with clear errors; events become batches, and outcomes become Lambda's answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from projections.aws.wiring import Settings, StreamHandler, stream_from_environment, worker_from_environment
from projections.engine.rejections import Rejected
from projections.engine.running import Pacer
from projections.engine.stages import Outcome
from projections.errors import Misconfigured, Transient
from projections.language.loader import load

RULES = Path(__file__).parents[2] / "projections/rules/social.yaml"
ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/app/stream/2026-01-01T00:00:00.000"
FINE = {"TABLE_NAME": "app", "LEDGER_TABLE_NAME": "ledger", "RULES_FILE": "rules.json"}


def without(name: str) -> dict[str, str]:
    return {key: value for key, value in FINE.items() if key != name}


def test_permissions_are_minimal() -> None:
    settings = Settings.read(FINE)
    assert (settings.tables, settings.ledger) == ({"main": "app"}, "ledger")
    assert (settings.stream_arns, settings.quarantine_url, settings.task_url) == ({}, None, None)
    assert settings.push_writes_per_second == 500


def test_streams_belong_to_the_tables_they_name() -> None:
    two = {"TABLES": '{"orders": "app", "users": "people"}', "STREAM_ARN": f"{ARN}, {ARN.replace('app', 'people')}"}
    settings = Settings.read({**without("TABLE_NAME"), **two})
    assert settings.stream_arns == {"orders": ARN, "users": ARN.replace("app", "people")}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (without("TABLE_NAME"), "TABLE_NAME is not set"),
        (without("LEDGER_TABLE_NAME"), "LEDGER_TABLE_NAME is not set"),
        (without("RULES_FILE"), "RULES_FILE is not set"),
        ({**FINE, "TABLE_NAME": ""}, "TABLE_NAME is not set"),
        ({**FINE, "TABLES": '{"a": "b"}'}, "TABLE_NAME and TABLES are both set"),
        ({**without("TABLE_NAME"), "TABLES": "app"}, "TABLES is 'app'. Set it to a JSON object"),
        ({**without("TABLE_NAME"), "TABLES": "{}"}, "TABLES is '{}'. Set it to a JSON object"),
        ({**without("TABLE_NAME"), "TABLES": '{"a": 1}'}, "Set it to a JSON object"),
        ({**without("TABLE_NAME"), "TABLES": '{"a": "x", "b": "x"}'}, "one table under two names"),
        ({**FINE, "LEDGER_TABLE_NAME": "app"}, "LEDGER_TABLE_NAME is 'app', an application table"),
        ({**FINE, "PUSH_WRITES_PER_SECOND": "many"}, "PUSH_WRITES_PER_SECOND is 'many'. Set it to a whole number"),
        ({**FINE, "PUSH_WRITES_PER_SECOND": "24"}, "25 or more"),
        (
            {**FINE, "RULE_WRITES_PER_MINUTE": "-1"},
            "RULE_WRITES_PER_MINUTE is '-1'. Set it to a whole number, 0 or more",
        ),
        ({**FINE, "STREAM_ARN": ARN.replace("app", "other")}, "is not the ARN of a stream of app"),
        ({**FINE, "STREAM_ARN": ARN.partition("/stream/")[0]}, "is not the ARN of a stream of app"),
    ],
)
def test_a_setting_that_is_wrong_is_named_with_the_way_out(environ: Mapping[str, str], message: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        Settings.read(environ)
    assert message in str(caught.value)


@pytest.mark.parametrize("queue", ["TASK_QUEUE_URL", "QUARANTINE_QUEUE_URL"])
def test_the_worker_needs_both_queues(queue: str) -> None:
    """One to send what is left, one for what can never be written: it has no other way to report a part of a task."""
    urls = {name: "https://queue" for name in ("TASK_QUEUE_URL", "QUARANTINE_QUEUE_URL") if name != queue}
    with pytest.raises(Misconfigured, match=f"{queue} is not set. Set it to the URL"):
        worker_from_environment({**FINE, **urls})


def test_tables_must_be_those_of_the_rules(tmp_path: Path) -> None:
    rules = compiled(tmp_path)
    with pytest.raises(Misconfigured, match=r"the rules set `table:`\. Set TABLE_NAME"):
        stream_from_environment({**without("TABLE_NAME"), "TABLES": '{"orders": "app"}', "RULES_FILE": rules})


def test_a_rule_file_is_wired_as_well() -> None:
    assert stream_from_environment({**FINE, "RULES_FILE": str(RULES)})


def compiled(directory: Path) -> str:
    path = directory / "rules.json"
    path.write_text(json.dumps(load(RULES).document()))
    return str(path)


# The handler.


class Engine:
    """Gives fixed answers, and keeps the records that it got."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.batches: list[Sequence[Any]] = []
        self.shards: list[str] = []

    def process(self, records: Sequence[Any], *, remaining: Callable[[], float], shard: str = "") -> Outcome:
        self.batches.append(records)
        self.shards.append(shard)
        return self.outcome


DONE = Outcome(None, None, (), {"records": 1})
RECORD = {"eventSource": "aws:dynamodb", "eventSourceARN": ARN, "dynamodb": {"SequenceNumber": "1"}}


def test_records_reach_the_engine_and_its_failure_reaches_lambda() -> None:
    engine = Engine(Outcome("100000000000000000007", "throttled", (), {"records": 1}))
    seen: list[Outcome] = []
    answer = StreamHandler(engine, observe=seen.append).handle({"Records": [RECORD]}, lambda: 60)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "100000000000000000007"}]}
    assert (engine.batches, engine.shards) == ([[RECORD]], [""])
    assert seen == [engine.outcome]


WINDOW = {
    "window": {"start": "2026-11-22T17:00:00Z", "end": "2026-11-22T17:15:00Z"},
    "state": {},
    "shardId": "shardId-00000001765000000000-f892479b",
    "eventSourceARN": ARN,
    "isFinalInvokeForWindow": False,
    "isWindowTerminatedEarly": False,
}
LAST = {**WINDOW, "isFinalInvokeForWindow": True}


@pytest.mark.parametrize("event", [WINDOW, LAST, {**LAST, "isWindowTerminatedEarly": True}])
def test_a_window_passes_its_shard_to_the_engine_and_gets_a_state_beside_failures(event: dict[str, Any]) -> None:
    engine = Engine(Outcome("7", "throttled", (), {"records": 1}))
    answer = StreamHandler(engine).handle({"Records": [RECORD], **event}, lambda: 60)
    assert answer == {"state": {}, "batchItemFailures": [{"itemIdentifier": "7"}]}
    assert (engine.batches, engine.shards) == ([[RECORD]], [WINDOW["shardId"]])


@pytest.mark.parametrize("event", [LAST, {**LAST, "Records": []}, {**LAST, "Records": None}])
def test_a_window_may_end_without_records(event: dict[str, Any]) -> None:
    engine = Engine(DONE)
    assert StreamHandler(engine).handle(event, lambda: 60) == {"state": {}, "batchItemFailures": []}
    assert engine.batches == []


STRANGE = [
    None,
    [],
    "text",
    {},
    {"Records": None},
    {"Records": {"0": RECORD}},
    {"Records": [{"eventSource": "aws:sqs", "body": "secret"}]},
    {"detail-type": "Scheduled Event"},
]


@pytest.mark.parametrize("event", STRANGE)
def test_an_event_that_no_stream_sent_is_quarantined_with_one_message(event: Any) -> None:
    kept: list[Rejected] = []
    engine = Engine(DONE)
    assert StreamHandler(engine, quarantine=kept.extend).handle(event, lambda: 60) == {"batchItemFailures": []}
    assert len(kept) == 1
    assert "DynamoDB stream" in kept[0].reason
    assert "secret" not in kept[0].reason
    assert engine.batches == []


@pytest.mark.parametrize("event", STRANGE)
def test_without_a_quarantine_such_an_event_has_failed(event: Any) -> None:
    """An empty identifier reports to Lambda that the whole batch failed."""
    seen: list[Outcome] = []
    answer = StreamHandler(Engine(DONE), observe=seen.append).handle(event, lambda: 60)
    assert answer == {"batchItemFailures": [{"itemIdentifier": ""}]}
    assert "there is no quarantine" in str(seen[0].failed_reason)


def test_a_quarantine_that_cannot_be_reached_makes_it_come_again() -> None:
    def unreachable(rejected: Sequence[Rejected]) -> None:
        raise Transient("the queue did not answer")

    answer = StreamHandler(Engine(DONE), quarantine=unreachable).handle({}, lambda: 60)
    assert answer == {"batchItemFailures": [{"itemIdentifier": ""}]}


def test_pushes_of_a_batch_end_before_the_invocation_does() -> None:
    """The pacer gets the time that is left, less that of a page."""
    told: list[Callable[[], float]] = []

    class Told(Pacer):
        def within(self, left: Callable[[], float]) -> None:
            told.append(left)

    StreamHandler(Engine(DONE), pacer=Told(500)).handle({"Records": [RECORD]}, lambda: 60.0)
    assert [left() for left in told] == [55.0]

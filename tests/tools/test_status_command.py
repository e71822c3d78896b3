"""`projections status` on real queues, buckets and metrics: one screen, and 1 where something needs attention."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from place import RULES, Place

from projections.aws.clients import client
from projections.cli.stack import Deployed
from projections.deploy.needs import Deployment


def levels(said: dict[str, Any]) -> dict[str, str]:
    return {one["subject"]: one["level"] for one in said["findings"]}


def finding(said: dict[str, Any], subject: str) -> dict[str, Any]:
    (found,) = [one for one in said["findings"] if one["subject"] == subject]
    return dict(found)


def measure(namespace: str, metric: str, value: float, minutes: int, **dimensions: str) -> None:
    """A point of a metric so many minutes ago."""
    named = [{"Name": key, "Value": text} for key, text in dimensions.items()]
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    point = {"MetricName": metric, "Dimensions": named, "Timestamp": at, "Value": value}
    client("cloudwatch").put_metric_data(Namespace=namespace, MetricData=[point])


def test_unreachable_queue_is_reported_with_all_other_findings(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    code, said = place.run("status", "--quarantine", place.quarantine + "-not", "--bucket", "not-" + place.bucket)
    assert code == 1
    assert [finding(said, name)["level"] for name in ("quarantine", "discarded", "rules")] == ["warn", "warn", "ok"]
    assert finding(said, "quarantine")["says"].startswith("not known: ")


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_stack_provides_all_resources_and_the_lag(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    name, outputs = place.stack()
    code, said = place.run("status", "--stack", name)
    assert (code, {subject for subject, level in levels(said).items() if level != "ok"}) == (0, {"alarms"})
    assert finding(said, "lag")["says"] == "CloudWatch reports no records in the last 15 minutes"
    for minutes, age in ((5, 900_000.0), (2, 90_000.0)):
        measure("AWS/Lambda", "IteratorAge", age, minutes, FunctionName=outputs["StreamFunctionName"])
    code, said = place.run("status", "--stack", name)
    assert (code, finding(said, "lag")["says"]) == (1, "records are 90 s old when they are processed")


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_throttling_is_reported_with_the_reasons_of_logs(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    name, outputs = place.stack()
    finding_before = finding(place.run("status", "--stack", name)[1], "throttling")
    assert (finding_before["level"], finding_before["value"]) == ("ok", 0)

    throttled = partial(measure, "AWS/DynamoDB")
    throttled("ReadProvisionedThroughputThrottleEvents", 3, 4, TableName=outputs["LedgerTableName"])
    throttled("WriteKeyRangeThroughputThrottleEvents", 1200, 4, TableName=place.table)
    throttled("WriteKeyRangeThroughputThrottleEvents", 34, 2, TableName=place.table)
    throttled("WriteAccountLimitThrottleEvents", 5, 2, TableName=place.table, GlobalSecondaryIndexName="GSI1")
    throttled("WriteAccountLimitThrottleEvents", 7, 30, TableName=place.table)  # long ago
    throttled("WriteAccountLimitThrottleEvents", 7, 2, TableName="of-somebody-else")
    code, said = place.run("status", "--stack", name)
    told = finding(said, "throttling")
    assert (code, told["level"], told["value"]) == (1, "warn", 1242)
    assert told["says"] == (
        f"in the last 15 minutes: 1,234 × TableWriteKeyRangeThroughputExceeded of table/{place.table}, "
        f"5 × IndexWriteAccountLimitExceeded of table/{place.table}/index/GSI1, "
        f"3 × TableReadProvisionedThroughputExceeded of table/{place.ledger}"
    )
    assert told["todo"].startswith("One partition gets too many requests")


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_values_that_another_process_overwrites_and_records_of_no_entity_are_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    place.put("POST#2", "METADATA", type="Draft")
    name, outputs = place.stack()
    said = place.run("status", "--stack", name)[1]
    assert finding(said, "external writes")["says"] == "no value was corrected in the last 24 hours"
    assert finding(said, "no entity")["says"] == "CloudWatch reports no records in the last 24 hours"
    now, group = datetime.now(UTC) - timedelta(minutes=3), f"/aws/lambda/{outputs['StreamFunctionName']}"
    for metric, value, minutes in (("healed", 4, 300), ("healed", 12, 3), ("records", 300, 3), ("ignored", 7, 3)):
        measure("Projections", metric, value, minutes, service=name)
    monkeypatch.setenv("AWS_ENDPOINT_URL_LOGS", "http://127.0.0.1:9")
    told = finding(place.run("status", "--stack", name)[1], "external writes")
    assert (told["level"], "the rules are not known: the function's log: " in told["says"]) == ("unknown", True)
    monkeypatch.delenv("AWS_ENDPOINT_URL_LOGS")
    logs, like = client("logs"), {"message": "healed: likes, values changed: likeCount", "key": "main|POST#1|METADATA"}
    put_back = {"message": "healed: author, put back: userName", "times": 1, "key": "main|POST#1|COMMENT#1"}
    rival = {"message": "healed: likes, another ledger: n", "times": 1, "key": "x"}
    lines = ["START", *map(json.dumps, (like | {"times": 5}, like | {"times": 6}, put_back, rival))]
    with suppress(logs.exceptions.ResourceAlreadyExistsException):  # the function makes it too
        logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="one")
    events = [{"timestamp": int(now.timestamp() * 1000), "message": line} for line in lines]
    logs.put_log_events(logGroupName=group, logStreamName="one", logEvents=events)
    code, said = place.run("status", "--stack", name)
    assert code == 1
    assert finding(said, "external writes")["value"] == 16
    told = finding(said, "rule likes")
    assert (told["level"], told["value"]) == ("warn", 11)
    assert "UTC, another process wrote likeCount 11 times, for example on main|POST#1|METADATA; " in told["says"]
    assert told["todo"].startswith("Find the code that writes likeCount, and remove these writes")
    assert "wrote back an item that it had read before once, for ex" in finding(said, "rule author")["says"]
    told = finding(said, "no entity")
    assert (told["level"], told["value"], told["todo"].startswith("If a rule should use such items")) == ("ok", 7, True)
    assert "7 of 300 records in the last 24 hours were of no entity" in told["says"]
    assert "; for example main|POST#2|METADATA (nearest is PostMeta: match: type is " in told["says"]


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_alarms_that_notify_nobody_are_reported_and_those_that_fire(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    name, _ = place.stack()
    cloudwatch = client("cloudwatch")

    def alarm(alarm_name: str, *receivers: str) -> None:
        cloudwatch.put_metric_alarm(
            AlarmName=alarm_name, Namespace="Projections", MetricName="internal", Statistic="Sum", Period=60, Threshold=1,
            EvaluationPeriods=1, ComparisonOperator="GreaterThanOrEqualToThreshold", TreatMissingData="notBreaching",
            AlarmActions=list(receivers),
        )  # fmt: skip

    def alarms() -> tuple[str, str]:
        found = finding(place.run("status", "--stack", name)[1], "alarms")
        return found["level"], found["says"]

    assert alarms() == ("unknown", "no alarms with names of this stack were found")
    alarm(f"{name}-ErrorsAlarm-1ABC")
    alarm(f"{name}-2-ErrorsAlarm-1ABC", "of another stack")
    assert alarms() == ("ok", "all alarms notify nobody: deploy with AlarmTopicArn, the ARN of an SNS topic")
    topic = "arn:aws:sns:us-east-1:000000000000:on-call"
    alarm(f"{name}-DroppedAlarmOrders-2DEF", topic)
    assert alarms() == ("warn", "1 of 2 alarms notify nobody: ErrorsAlarm")
    alarm(f"{name}-ErrorsAlarm-1ABC", topic)
    assert alarms() == ("ok", "2 alarms, each with a receiver")
    cloudwatch.set_alarm_state(AlarmName=f"{name}-ErrorsAlarm-1ABC", StateValue="ALARM", StateReason="test")
    assert alarms() == ("warn", "2 alarms, each with a receiver; in ALARM: ErrorsAlarm")


def test_where_cloudwatch_is_not_reached_the_lag_is_unknown_and_that_is_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", "http://127.0.0.1:9")
    code, said = place.run("status", "--function", "stream")
    assert (code, finding(said, "lag")["level"]) == (1, "unknown")
    for subject in ("lag", "throttling"):
        assert finding(said, subject)["says"].startswith("not known: CloudWatch: ")
    assert [one["subject"] for one in said["findings"] if one["level"] in ("warn", "action")] == ["stream"], (
        "of no function"
    )


# --- the stream of a stack ---


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_disabled_or_missing_mapping_needs_action(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    name, _ = place.stack()
    code, said = place.run("status", "--stack", name)
    assert (code, finding(said, "stream")["says"].startswith("Enabled, last result: ")) == (0, True)
    client("lambda").update_event_source_mapping(UUID=place.mapping, Enabled=False)
    code, said = place.run("status", "--stack", name)
    told = finding(said, "stream")
    assert (code, told["level"]) == (1, "action")
    assert told["says"].startswith(
        "the event source mapping is Disabled (USER_INITIATED), so no rule processes changes of table"
    )
    assert told["todo"] == f"Run `aws lambda update-event-source-mapping --uuid {place.mapping} --enabled`."
    client("lambda").delete_event_source_mapping(UUID=place.mapping)
    code, said = place.run("status", "--stack", name)
    told = finding(said, "stream")
    assert (code, told["level"]) == (1, "action")
    assert told["says"] == f"no event source mapping of the function reads table {place.table}"


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_filters_of_former_rules_are_found_before_anybody_misses_a_record(place: Place) -> None:
    """The rules are new, the template is not: the filters drop every item that only the new rule reads."""
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    name, _ = place.stack()

    def filters(rules: str) -> None:
        patterns = Deployment("", place.program(rules)).tables[0].filters.patterns
        criteria: Any = {"Filters": [{"Pattern": json.dumps(pattern)} for pattern in patterns]}
        client("lambda").update_event_source_mapping(UUID=place.mapping, FilterCriteria=criteria)

    filters(RULES)
    assert finding(place.run("status", "--stack", name)[1], "deployment") == {
        "subject": "deployment", "level": "ok", "says": "keys, indexes and filters agree with the rules", "todo": None,
    }  # fmt: skip
    place.deploy(
        RULES.replace("projections:", '  Shift: {key: {PK: "OP#{opId}", SK: "SHIFT#{day}"}}\nprojections:')
        + "  shifts: {from: Shift, aggregate: {into: User, set: {shifts: count}}}\n"
    )
    before = place.registry()
    code, out, err = place.say("apply", "--stack", name, "--yes")
    assert (code, place.registry()) == (2, before), out
    assert "rules that read them: shifts" in err
    _, _, err = place.say("apply", "--dry-run", "--stack", name)
    assert f"would be refused: table {place.table}: no filter matches all Shift items" in err
    filters(place.rules)
    assert finding(place.run("status", "--stack", name)[1], "deployment")["level"] == "ok"
    code, _, err = place.say("apply", "--stack", name, "--yes")
    assert (code, "no filter matches" in err) == (0, False)


def test_only_what_was_compared_is_said_to_agree(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    assert finding(place.run("status")[1], "deployment")["says"] == "keys and indexes agree with the rules"
    monkeypatch.setattr(Deployed, "compares_ttl", staticmethod(lambda live: True))  # as on AWS
    assert finding(place.run("status")[1], "deployment")["says"] == "keys, indexes and TTL agree with the rules"


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_advice_can_be_copied_and_is_printed_once_for_rules_with_the_same_advice(place: Place) -> None:
    more = "".join(
        f"  more{n}: {{from: Like, aggregate: {{into: PostMeta, set: {{n{n}: count}}}}}}\n" for n in range(3)
    )
    place.deploy(RULES + more)
    place.activate(fills=False)
    name, _ = place.stack()
    lines = place.say("status", "--stack", name)[1].splitlines()
    said = [number for number, line in enumerate(lines) if "filling: " in line]
    advice = f"Run `projections apply --stack {name} RULES`: it fills and publishes it."
    assert said == [said[0], said[0] + 1, said[0] + 2]
    assert [number for number, line in enumerate(lines) if line.strip() == advice] == [said[-1] + 1]


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_records_that_the_function_refuses_are_counted(place: Place) -> None:
    """It answers, but reports each record as failed: the result of its mapping may be OK all the same."""
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    name, _ = place.stack()

    counted = partial(measure, "AWS/Lambda", minutes=3, EventSourceMappingUUID=place.mapping)
    counted("InvokedEventCount", 1200)
    counted("FailedInvokeEventCount", 700)
    assert finding(place.run("status", "--stack", name)[1], "stream")["level"] == "ok"
    counted("FailedInvokeEventCount", 500)
    code, said = place.run("status", "--stack", name)
    told = finding(said, "stream")
    assert (code, told["level"], told["value"]) == (1, "action", 1200)
    assert "the function failed with all 1,200 records of the last 15 minutes" in told["says"]

"""The template is free of warnings, and has the settings that its parts need."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from emulators import ROOT, unavailable
from sam_cli import AWS, SAM, TEMPLATE

from projections.deploy.cloudformation import read_template
from projections.engine.registry import REGISTRY
from projections.language.loader import load
from projections.operations.audit import AUDIT


@pytest.mark.deep
def test_sam_validate_finds_nothing() -> None:
    if not SAM.exists():
        pytest.skip("the SAM command line is not installed: `make sam`")
    command, env = [str(SAM), "validate", "--lint"], {**os.environ, **AWS}
    done = subprocess.run(command, cwd=ROOT, env=env, text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


CHECKOV = ROOT / ".venv-checkov/bin/checkov"


@pytest.mark.deep
def test_checkov_finds_nothing_that_has_no_reason() -> None:
    """What it would have otherwise is done, or skipped beside the resource with a comment that says why."""
    if not CHECKOV.exists():
        unavailable("checkov is not installed: `make .venv-checkov/.ready`")
    arguments = ["--file", str(TEMPLATE), "--framework", "cloudformation", "--skip-download", "--compact"]
    done = subprocess.run(
        [str(CHECKOV), *arguments, "--output", "json"], text=True, capture_output=True, timeout=300, check=False
    )
    found = json.loads(done.stdout)
    failed = [f"{one['check_id']} {one['resource']}" for one in found["results"]["failed_checks"]]
    assert failed == []
    assert found["summary"]["passed"] > 50
    reasons = {one["check_id"]: one["check_result"]["suppress_comment"] for one in found["results"]["skipped_checks"]}
    assert reasons.keys() == {"CKV_AWS_18", "CKV_AWS_19", "CKV_AWS_21", "CKV_AWS_116", "CKV_AWS_117"}
    assert all(len(reason) > 30 for reason in reasons.values())


@cache
def parsed() -> Mapping[str, Any]:
    return read_template(TEMPLATE).data


def resources() -> Mapping[str, Any]:
    found: Mapping[str, Any] = parsed()["Resources"]
    return found


ROLES = ("StreamRole", "WorkerRole", "AuditRole")


def statements(role: str) -> list[Mapping[str, Any]]:
    documents = []
    for policy in resources()[role]["Properties"]["Policies"]:
        chosen = policy["Fn::If"][1] if "Fn::If" in policy else policy
        documents.append(chosen["PolicyDocument"])
    return [statement for document in documents for statement in document["Statement"]]


def actions(statement: Mapping[str, Any]) -> list[str]:
    return [statement["Action"]] if isinstance(statement["Action"], str) else list(statement["Action"])


@pytest.mark.parametrize("role", ROLES)
def test_a_role_names_every_action_and_never_a_put_on_a_table(role: str) -> None:
    """Stored items change by guarded updates only, so that a role cannot even overwrite one."""
    named = [action for statement in statements(role) for action in actions(statement)]
    assert not [action for action in named if "*" in action]
    assert not {"dynamodb:PutItem", "dynamodb:PartiQLInsert"} & set(named)
    assert ("dynamodb:Scan" in named) == (role != "StreamRole")  # for backfills and audits


@pytest.mark.parametrize("role", ROLES)
def test_only_tracing_has_no_resource_of_its_own(role: str) -> None:
    assert [statement["Sid"] for statement in statements(role) if statement["Resource"] == "*"] == ["Traces"]


def test_the_audit_may_read_and_write_nothing_but_its_place_in_the_ledger() -> None:
    writes = [one for one in statements("AuditRole") if {"dynamodb:UpdateItem"} & set(actions(one))]
    condition = {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": [AUDIT.partition]}}
    assert [one["Condition"] for one in writes] == [condition]
    assert AUDIT.partition != REGISTRY.partition
    named = {action for one in statements("AuditRole") for action in actions(one) if action.startswith("dynamodb:")}
    assert named == {f"dynamodb:{name}" for name in ("BatchGetItem", "GetItem", "Query", "Scan", "UpdateItem")}


def test_the_audit_runs_by_its_schedule_unless_that_is_off() -> None:
    event = resources()["AuditFunction"]["Properties"]["Events"]["Slice"]
    assert event["Type"] == "Schedule"
    assert event["Properties"]["Schedule"]["Fn::If"][:2] == ["IsAudited", {"Ref": "AuditSchedule"}]
    assert event["Properties"]["State"] == {"Fn::If": ["IsAudited", "ENABLED", "DISABLED"]}
    allowed = re.compile(parsed()["Parameters"]["AuditSchedule"]["AllowedPattern"])
    for text in ("off", "rate(1 hour)", "cron(0 3 * * ? *)", parsed()["Parameters"]["AuditSchedule"]["Default"]):
        assert allowed.fullmatch(text), text
    assert not allowed.fullmatch("hourly")


def test_all_functions_are_the_same_package_with_the_same_settings() -> None:
    """What differs is what starts them and what they may do."""
    functions = [one for one in resources().values() if one["Type"] == "AWS::Serverless::Function"]
    names = [one["Properties"]["Handler"] for one in functions]
    assert names == ["handlers.stream.handler", "handlers.worker.handler", "handlers.audit.handler"]
    own = {"Handler", "Role", "ReservedConcurrentExecutions", "LoggingConfig", "Events"}
    assert [set(one["Properties"]) - own for one in functions] == [set(), {"RecursiveLoop"}, set()]
    assert functions[1]["Properties"]["RecursiveLoop"] == "Allow"


def test_a_mapping_that_polls_nothing_raises_an_alarm_whether_or_not_there_are_writes() -> None:
    alarm = resources()["NotPolledAlarm"]["Properties"]
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "PolledEventCount")
    assert alarm["TreatMissingData"] == "breaching", "no poll, no data"
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 0), "an empty poll is fine"
    mapping = resources()["StreamFunction"]["Properties"]["Events"]["Changes"]["Properties"]
    assert mapping["MetricsConfig"] == {"Metrics": ["EventCount"]}, "without which there is no data"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True


def test_a_task_stays_invisible_for_six_times_the_workers_timeout() -> None:
    queue = resources()["TaskQueue"]["Properties"]
    assert queue["VisibilityTimeout"] >= 6 * parsed()["Globals"]["Function"]["Timeout"]
    kept = resources()["TaskDeadLetters"]["Properties"]["MessageRetentionPeriod"]
    assert kept > queue["MessageRetentionPeriod"]


def test_failed_tasks_have_an_alarm_and_few_workers_run_at_once() -> None:
    tasks = resources()["WorkerFunction"]["Properties"]["Events"]["Tasks"]["Properties"]
    assert tasks["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert 1 <= tasks["BatchSize"] <= 10
    assert tasks["ScalingConfig"] == {"MaximumConcurrency": 2}


@pytest.mark.parametrize("name", ["QuarantineQueue", "DiscardedBucket", "TaskDeadLetters"])
def test_queues_and_bucket_with_data_survive_the_stack_but_not_a_first_deployment_that_failed(name: str) -> None:
    resource = resources()[name]
    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


@pytest.mark.parametrize("name", ["ApplicationTable", "LedgerTable"])
def test_a_table_survives_the_stack_and_refuses_to_be_deleted(name: str) -> None:
    """Retain: to delete a protected table would fail, and the rollback of a first deployment with it."""
    resource = resources()[name]
    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("Retain", "Retain")
    assert resource["Properties"]["DeletionProtectionEnabled"] == {"Ref": "DeletionProtection"}


def test_queues_and_bucket_refuse_requests_without_tls() -> None:
    found = resources()
    queues = {name for name, one in found.items() if one["Type"] == "AWS::SQS::Queue"}
    assert {one["Ref"] for one in found["QueuePolicy"]["Properties"]["Queues"]} == queues
    for policy in ("QueuePolicy", "DiscardedBucketPolicy"):
        (statement,) = found[policy]["Properties"]["PolicyDocument"]["Statement"]
        assert (statement["Effect"], statement["Principal"]) == ("Deny", "*")
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_only_the_tasks_queue_may_send_its_dead_letters_to_ours() -> None:
    """Named by the same text, because the two queues would need each other's ARN."""
    found = resources()
    allowed = found["TaskDeadLetters"]["Properties"]["RedriveAllowPolicy"]
    (arn,) = allowed["sourceQueueArns"]
    assert allowed["redrivePermission"] == "byQueue"
    assert arn["Fn::Sub"].endswith(":" + found["TaskQueue"]["Properties"]["QueueName"]["Fn::Sub"])
    assert found["QuarantineQueue"]["Properties"]["RedriveAllowPolicy"] == {"redrivePermission": "denyAll"}


def test_no_concurrency_is_reserved_unless_asked_for_and_never_less_than_the_workers_need() -> None:
    """SQS counts a receipt for each invocation that was throttled, so that tasks would end among the dead letters."""
    for name, least in (("Stream", 1), ("Worker", 2), ("Audit", 1)):
        reserved = resources()[f"{name}Function"]["Properties"]["ReservedConcurrentExecutions"]
        assert reserved["Fn::If"] == [f"Reserve{name}", {"Ref": f"{name}Concurrency"}, {"Ref": "AWS::NoValue"}]
        parameter = parsed()["Parameters"][f"{name}Concurrency"]
        assert parameter["Default"] == ""
        allowed = [text for text in ("", *map(str, range(30))) if re.fullmatch(parameter["AllowedPattern"], text)]
        assert allowed == ["", *map(str, range(least, 30))]


def test_the_dashboard_is_json_once_its_names_are_in() -> None:
    body = json.loads(resources()["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"][0])
    assert len(body["widgets"]) == 14
    (log,) = (one["properties"]["query"] for one in body["widgets"] if one["type"] == "log")
    assert re.findall(r"sum\(`writes\.(.+?)`\)", log) == [
        "(entry)",
        *load(ROOT / "projections/rules/social.yaml").document()["projections"],
    ]
    (duration,) = (one["properties"] for one in body["widgets"] if "annotations" in one["properties"])
    (limit,) = duration["annotations"]["horizontal"]
    assert limit["value"] == 1000 * parsed()["Globals"]["Function"]["Timeout"]


def test_no_alarm_that_users_of_the_table_cause_pages_or_undoes_a_deployment() -> None:
    alarm = resources()["QuarantineAlarm"]["Properties"]
    assert alarm["AlarmActions"]["Fn::If"][0] == "HasTicketTopic"
    internal = resources()["InternalAlarm"]["Properties"]
    assert (internal["MetricName"], internal["AlarmActions"]["Fn::If"][0]) == ("internal", "HasAlarmTopic")


def test_an_audit_that_does_not_run_raises_an_alarm_unless_it_is_off() -> None:
    alarm = resources()["AuditMissingAlarm"]
    properties = alarm["Properties"]
    assert alarm["Condition"] == "IsAudited"
    assert (properties["MetricName"], properties["TreatMissingData"]) == ("audited", "breaching")
    assert properties["Period"] * properties["EvaluationPeriods"] == 24 * 3600, "CloudWatch allows no more than a day"

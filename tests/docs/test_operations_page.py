"""docs/operations.md, alarms.md, deployment.md: commands run, every alarm and parameter is there, and advice works."""

from __future__ import annotations

import importlib
import json
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from guide import DOCS, ROOT, blocks, headings
from place import MENDED, RULES, Place

from projections.aws.clients import client
from projections.aws.queues import Queue
from projections.cli.main import COMMANDS, main
from projections.deploy.cloudformation import read_template

PAGES = {name: (DOCS / f"{name}.md").read_text() for name in ("alarms", "operations", "deployment")}
PAGE = "\n".join(PAGES.values())
LINES = [(block.line, line) for block in blocks(PAGE) if block.language == "sh" for line in block.text.splitlines()]


@cache
def committed() -> Mapping[str, Any]:
    return read_template(ROOT / "template.yaml").data


def commands(program: str) -> list[list[str]]:
    """The arguments of each command of a program, once each, without settings before it and files after it."""
    found = [shlex.split(re.sub(r" > \S+$", "", re.sub(r"^([A-Z_]+=\S+ )+", "", line))) for _, line in LINES]
    return list({tuple(words): words[1:] for words in found if words[0] == program}.values())


def section(heading: str) -> str:
    found = re.search(rf"^(#+) {heading}\n(.*?)(?=^##? |^\1 |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    return found[2]


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    table = re.search(r"^\|.*?\n(?=\n|\Z)", section(heading), re.DOTALL | re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in table[0].splitlines()[2:]]


def tick(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


# --- nothing of the template is left out, and nothing is named that is not there ---


ALARMS = [text for level, text in headings(PAGES["alarms"]) if level == 2]


def test_every_alarm_has_its_section() -> None:
    found = [name for name, one in committed()["Resources"].items() if one["Type"] == "AWS::CloudWatch::Alarm"]
    assert sorted(ALARMS) == sorted(found)


@pytest.mark.parametrize("alarm", ALARMS)
def test_an_alarm_has_commands_and_the_severity_of_its_receiver(alarm: str) -> None:
    """`test_a_command_…` below parse the commands."""
    lines = [line for block in blocks(section(alarm)) if block.language == "sh" for line in block.text.splitlines()]
    assert [line for line in lines if line.startswith(("projections ", "aws "))]
    actions = committed()["Resources"][alarm]["Properties"]["AlarmActions"]
    receiver = {"HasAlarmTopic": "page", "HasTicketTopic": "ticket"}[actions["Fn::If"][0]]
    (row,) = (row for row in rows("Alarms") if row[0] == f"[{alarm}](#{alarm.lower()})")
    assert row[1] == receiver
    assert all(row)


def test_every_parameter_is_there_with_its_default() -> None:
    shown = {tick(name)[0]: next(iter(tick(default)), "") for name, default, _ in rows("Parameters")}
    assert shown == {name: str(one.get("Default", "")) for name, one in committed()["Parameters"].items()}


@pytest.mark.parametrize(("role", "actions"), [(tick(role)[0], tick(actions)) for role, actions in rows("Permissions")])
def test_a_role_has_no_more_than_the_page_says(role: str, actions: list[str]) -> None:
    statements = committed()["Resources"][role]["Properties"]["Policies"][0]["PolicyDocument"]["Statement"]
    granted = set()
    for one in statements:
        if one["Sid"].startswith("Application"):
            given = one["Action"]
            granted.update([given] if isinstance(given, str) else given)
    assert granted == {f"dynamodb:{action}" for action in actions}


def test_every_command_is_explained_that_keeps_live_tables_right() -> None:
    assert {"status", "verify", "apply", "backfill", "redrive", "explain"} <= set(
        re.findall(r"^\*\*(\w+)", PAGE, re.MULTILINE)
    )


@pytest.mark.parametrize("page", ["operations", "deployment"])
def test_the_list_at_the_top_links_the_headings(page: str) -> None:
    text = PAGES[page]
    titles = {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for level, one in headings(text) if level == 2}
    assert titles <= set(re.findall(r"\]\(#([\w-]+)\)", text))


# --- commands ---


@pytest.mark.parametrize("arguments", commands("projections"), ids=" ".join)
def test_a_command_has_the_options_the_page_gives_it(arguments: list[str]) -> None:
    name, *rest = arguments
    assert name in COMMANDS
    command = importlib.import_module(f"projections.cli.{name}").command
    command.make_context(name, rest, help_option_names=["-h", "--help"])


def operation(service: str, words: str) -> Any:
    import botocore.session

    model = botocore.session.get_session().get_service_model(service)
    return model.operation_model("".join(word.capitalize() for word in words.split("-")))


@pytest.mark.parametrize("arguments", commands("aws"), ids=lambda words: " ".join(words[:2]))
def test_a_command_of_aws_has_the_parameters_the_page_gives_it(arguments: list[str]) -> None:
    service, words, *rest = arguments
    service = {"s3api": "s3"}.get(service, service)
    known = {re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() for name in operation(service, words).input_shape.members}
    given = {re.sub(r"^--(no-)?", "", word) for word in rest if word.startswith("--")}
    assert given - {"query", "output"} <= {name.replace("u-u-i-d", "uuid") for name in known}


def test_what_is_deployed_has_the_parameters_the_page_gives_it() -> None:
    given = [word for words in commands("sam") for word in words if "=" in word]
    assert given
    assert {word.partition("=")[0] for word in given} <= set(committed()["Parameters"])
    assert {words[0] for words in commands("sam")} == {"build", "deploy"}


def test_no_other_programs_are_called() -> None:
    programs = {shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", line))[0] for _, line in LINES}
    assert programs == {"projections", "aws", "sam", "git"}


def test_parameters_of_several_tables_are_named_as_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "tables: {orders: {key: [pk]}, stock: {key: [sku]}}\n"
        "entities:\n  Line: {table: orders, key: {pk: 'LINE#{sku}#{line}'}}\n"
        "  Article: {table: stock, key: {sku: '{sku}'}}\n"
        "projections: {sold: {from: Line, aggregate: {into: Article, set: {sold: count}}}}\n"
    )
    with pytest.raises(SystemExit):
        main(["template", str(tmp_path / "rules.yaml"), "-o", str(tmp_path / "template.yaml")])
    template = read_template(tmp_path / "template.yaml").data
    named = set(re.findall(r"Existing\w+Orders", PAGE))
    assert len(named) == 2
    assert named <= set(template["Parameters"])


LIVE = [words for words in commands("projections") if "--stack" in words and not words[-1].startswith("key:")]
LOCAL = [words for words in commands("projections") if "--stack" not in words]


@pytest.mark.deep
def test_the_commands_work_on_a_deployment(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In the order of the page, on tables with a drift, a quarantined record and a discarded batch."""
    place.deliver(place.put("USER#a", "POST#p1", title="t"), place.put("USER#b", "LIKE#p1", weight=1))
    place.put("USER#c", "LIKE#p1", weight=1)  # of which nobody hears
    place.discard("1", place.put("USER#d", "LIKE#p1", weight=1))
    (tmp_path / "old.yaml").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    receive = Queue.receive  # an empty queue of the emulator stays empty
    monkeypatch.setattr(Queue, "receive", lambda queue, seconds, *, wait=2: receive(queue, seconds, wait=0))
    name, outputs = place.stack()
    for number in range(int(re.findall(r"(\d+) alarms, each", PAGE)[0])):
        client("cloudwatch").put_metric_alarm(
            AlarmName=f"{name}-Alarm{number}-1ABC", Namespace="Projections", MetricName="internal", Statistic="Sum",
            Period=60, EvaluationPeriods=1, Threshold=1, ComparisonOperator="GreaterThanOrEqualToThreshold",
            TreatMissingData="notBreaching", AlarmActions=["arn:aws:sns:us-east-1:000000000000:on-call"],
        )  # fmt: skip
    rejected = {"rule": "likes", "reason": "was corrected since", "key": "main|USER#b|LIKE#p1", "fault": "item"}
    place.sqs.send_message(QueueUrl=outputs["QuarantineQueueUrl"], MessageBody=json.dumps(rejected))
    shown_outputs = [block.text for block in blocks(PAGE) if block.language == "text"]
    printed = []

    def say(*arguments: str) -> None:
        code, out, err = place.say(*arguments)
        assert code in (0, 1), (arguments, out, err)
        out = re.sub(r"(last result: )(OK - .*|No records processed)", r"\1OK", out)  # AWS says no more than OK
        out = re.sub(r"epoch \d+", "epoch 1767225600", out)
        printed.append("\n".join(line.rstrip() for line in out.replace(name, "shop").splitlines()) + "\n")

    for words in LIVE:
        arguments = [{"shop": name}.get(word, word) for word in words]
        if words[0] == "rollback":  # of a rule that was changed
            place.deploy(RULES.replace("sum(weight)", "max(number(weight))"))
            place.apply()
            place.deliver(place.put("USER#e", "LIKE#p1", weight=5))
        say(*arguments, *{"verify": ["--patience", "0"], "apply": ["--yes"], "rollback": ["--yes"]}.get(words[0], []))
        if words[0] == "rollback":
            place.deploy(RULES)
    assert place.item("POST#p1", "METADATA")["total"] == 8
    assert place.right()
    assert [shown for shown in shown_outputs if not any(shown in one for one in printed)] == []


def test_the_commands_on_files_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.yaml").write_text(MENDED)
    (tmp_path / "old.yaml").write_text(RULES)
    for words in LOCAL:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code in (0, 1), (words, capsys.readouterr())
    assert {words[0] for words in LOCAL} == {"check", "template", "diff"}

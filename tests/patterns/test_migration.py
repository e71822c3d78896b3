"""The runbook of docs/patterns/migration.md, its commands as they stand there, while an application writes."""

from __future__ import annotations

import json
import re
import shlex
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from moving import Application, Deployed
from pages import DIRECTORY

from projections.aws.clients import client
from projections.aws.live_tables import LEDGER, create_table, delete_table
from projections.cli.main import main
from projections.cli.options import document_of, find_rules
from projections.language.loader import load
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.dynamodb import DynamoDBStore
from tests.yaml_text import yaml_data

PAGE = (DIRECTORY / "migration.md").read_text()
RULES = DIRECTORY.parents[1] / "projections" / "rules"
STEPS = [
    "1. Enable the streams",
    "2. Deploy",
    "3. Copy the items",
    "4. Verify",
    "5. Move reads",
    "6. Stop writes and retire the copies",
    "7. Move writes",
    "8. Keep a way back",
    "9. Go back",
    "10. Remove the old tables",
]
SOONER = {"verify": [["--patience", seconds] for seconds in ("2", "6", "20")]}
"""Nothing here runs as long as a function may at AWS. How long the functions lag depends on what else the machine does."""

PAUSE = 0.1
"""Seconds between writes of the application. It waits for the functions to follow, as they may be slow here."""


def steps() -> dict[str, str]:
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class Team:
    """Those who work through the runbook, on tables whose real names have a suffix."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.dynamodb: Any = client("dynamodb", url)
        self.deleted = 0
        self._suffix = uuid.uuid4().hex[:8]
        self._environment, self._capsys = monkeypatch, capsys
        self._rules = self._template = ""
        self.program = Program.from_document(load(RULES / "migration.yaml").document())
        self.names = {name: self.real(name) for name in (*self.program.tables, LEDGER)}
        self.names[LEDGER] = self.real("shop-ledger")
        self.application = Application(self.dynamodb, self.names, seed=7)
        self.functions = Deployed(url, self._store, self.names)

    def real(self, name: str) -> str:
        return f"{name}-{self._suffix}"

    def _store(self, program: Program) -> DynamoDBStore:
        return DynamoDBStore(self.dynamodb, self.names, {**program.tables, LEDGER: LEDGER_SCHEMA})

    def work_through(self, step: str) -> None:
        """The commands of a step; each must end well."""
        for block in blocks(steps()[step], "sh"):
            for line in block.replace("\\\n", "").splitlines():
                self._run(line)

    def _run(self, line: str) -> None:
        words = shlex.split(line)
        match words:
            case ["projections", *arguments]:
                self._projections(arguments)
            case [rules, "sam", "build"]:
                self._rules = rules.removeprefix("RULES=")
            case ["sam", "deploy", *options]:
                self._deploy(options)
            case ["export", *variables]:
                self._export(dict(variable.split("=", 1) for variable in variables))
            case ["aws", "dynamodb", "update-table", "--table-name", table, _, stream]:
                settings = dict(part.split("=") for part in stream.split(","))
                wanted = {
                    "StreamEnabled": settings["StreamEnabled"] == "true",
                    "StreamViewType": settings["StreamViewType"],
                }
                self.dynamodb.update_table(TableName=self.real(table), StreamSpecification=wanted)
            case ["aws", "dynamodb", "scan", "--table-name", table, _, condition, _, names]:
                self._delete(self.real(table), condition, json.loads(names))
            case ["aws", "dynamodb", "delete-table", "--table-name", table]:
                delete_table(self.dynamodb, self.real(table))
            case _:
                raise AssertionError(f"nobody knows how to do this: {line}")

    def _projections(self, arguments: list[str]) -> None:
        for more in SOONER.get(arguments[0], [[]]):
            self._capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main([*arguments, *more])
            said = "".join(self._capsys.readouterr())
            if ended.value.code == 0:
                break
        assert ended.value.code == 0, said
        if arguments[0] == "template":
            self._template = Path("template.yaml").read_text()

    def _deploy(self, options: list[str]) -> None:
        """What it is told must be parameters of the template, and the template that of the rules."""
        program = Program.from_document(document_of(find_rules(self._rules)))
        given = {option.split("=")[0] for option in options if "=" in option}
        assert given <= set(re.findall(r"^  (\w+):$", self._template, re.MULTILINE))
        assert {f"ApplicationTable{name.title()}" for name in program.tables} == set(
            re.findall(r"^  (ApplicationTable\w+):$", self._template, re.MULTILINE)
        )
        for name in ("shop", LEDGER):
            if self.names[name] not in self.dynamodb.list_tables()["TableNames"]:
                schema = LEDGER_SCHEMA if name == LEDGER else program.tables[name]
                create_table(self.dynamodb, self.names[name], schema, stream=name != LEDGER)
        self.functions.deploy(program)

    def _export(self, variables: dict[str, str]) -> None:
        tables = {logical: self.real(name) for logical, name in json.loads(variables["TABLES"]).items()}
        self._environment.setenv("TABLES", json.dumps(tables))
        self._environment.setenv("LEDGER_TABLE_NAME", self.real(variables["LEDGER_TABLE_NAME"]))

    def _delete(self, table: str, condition: str, names: dict[str, str]) -> None:
        """What a scan finds, as the text says."""
        keys = [key["AttributeName"] for key in self.dynamodb.describe_table(TableName=table)["Table"]["KeySchema"]]
        pages = self.dynamodb.get_paginator("scan").paginate(
            TableName=table, FilterExpression=condition, ExpressionAttributeNames=names, ConsistentRead=True
        )
        for item in [item for page in pages for item in page["Items"]]:
            self.dynamodb.delete_item(TableName=table, Key={name: item[name] for name in keys})
            self.deleted += 1

    def close(self) -> None:
        for name in set(self.names.values()) & set(self.dynamodb.list_tables()["TableNames"]):
            delete_table(self.dynamodb, name)


@pytest.fixture
def team(
    dynamodb_local_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Team]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", dynamodb_local_url)
    team = Team(dynamodb_local_url, monkeypatch, capsys)
    yield team
    team.close()


@pytest.mark.deep
def test_the_runbook_moves_everything_while_the_application_writes(team: Team) -> None:
    assert list(steps()) == STEPS
    application, functions = team.application, team.functions
    for kind in ("users", "orders", "lines"):
        create_table(team.dynamodb, team.names[kind], team.program.tables[kind], stream=False)
    for _ in range(60):  # before there are streams
        application.act()

    with functions.running(), application.at_work(PAUSE, lambda: functions.idle):
        for step in STEPS[:4]:
            team.work_through(step)
        with application.still():  # reads move
            functions.drain()
            assert functions.items("shop") == application.new_table()

        application.writes = "none"
        functions.drain()
        team.work_through(STEPS[5])
        assert functions.items("shop") == application.new_table()

        application.writes = "new"
        application.forget_order()  # while there is no way back
        team.work_through(STEPS[6])

        write_back(Path("way-back.yaml"))
        team.work_through(STEPS[7])
        application.forget_order(next(iter(application.orders)))  # the oldest: rules adopted its rows
        application.writes = "none"
        functions.drain()
        team.work_through(STEPS[8])
        for kind in ("users", "orders", "lines"):
            assert functions.items(kind) == application.old_table(kind)
        assert team.deleted

        application.writes = "new"  # the team stays with the new table
        write_off(Path("off.yaml"))
        team.work_through(STEPS[9])

        application.writes = "none"
        functions.drain()
        assert functions.items("shop") == application.new_table()
    left = {name for image in functions.images("shop") for name in image if name.startswith("~")}
    assert left == {"~", "~userRows", "~orderRows", "~lineRows", "~spending", "~contents"}, (
        "what is kept keeps its mark"
    )
    assert functions.rejected == functions.failed == []


def test_tables_that_are_both_written_are_compared_before_anything_is_deployed(
    team: Team, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, schema in team.program.tables.items():
        create_table(team.dynamodb, team.names[name], schema, stream=False)
    for row in ({"user_id": "7", "full_name": "Ines"}, {"user_id": "8", "full_name": "Tom"}):
        item = {name: {"S": value} for name, value in row.items()}
        team.dynamodb.put_item(TableName=team.names["users"], Item=item)
    for number, name in (("7", "Ines"), ("8", "Tim")):
        user = {"PK": f"USER#{number}", "SK": "PROFILE", "type": "User", "userId": number, "name": name}
        counts = {"orderCount": {"N": "0"}, "spent": {"N": "0"}}
        item = {name: {"S": value} for name, value in user.items()} | counts
        team.dynamodb.put_item(TableName=team.names["shop"], Item=item)
    tables = {name: team.names[name] for name in team.program.tables}
    monkeypatch.setenv("TABLES", json.dumps(tables))
    (command,) = re.findall(r"before you deploy anything, run `projections (.+?)`", " ".join(PAGE.split()))
    with pytest.raises(SystemExit) as ended:
        main([*shlex.split(command), "--patience", "0"])
    out = capsys.readouterr().out
    assert (ended.value.code, 'is "Tim", should be "Tom"' in out, "1 difference." in out) == (1, True, True), out


def write_back(path: Path) -> None:
    """As step 8 says."""
    before, rules = (yaml_data((RULES / f"{name}.yaml").read_text()) for name in ("migration", "migrated"))
    (added,) = blocks(steps()[STEPS[7]], "yaml")
    for part in ("tables", "entities"):
        rules[part] = before[part] | rules[part]
    rules["projections"] |= yaml_data(added)["projections"]
    path.write_text(json.dumps(rules))


def write_off(path: Path) -> None:
    """As step 10 says."""
    rules = yaml_data((RULES / "migrated.yaml").read_text())
    (added,) = blocks(steps()[STEPS[9]], "yaml")
    path.write_text(json.dumps(rules | yaml_data(added)))

"""docs/runbooks: every command is run on a deployed stack, in the order of the page, and the tables end right."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT, unavailable
from runbook import Block, Terminal, page_blocks
from sam_cli import SAM
from test_deploy import client, eventually

from projections.language.loader import loads
from projections.testing.oracle import Oracle

BUILD = {"LAMBDA_PLATFORM": "native", "PYTHON": sys.executable, "SAM_CLI_TELEMETRY": "0", "SAM_CLI_POLL_DELAY": "0.2"}


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `projections init shop` makes, built, and the programs that the pages call: once for all processes."""
    if shutil.which("aws") is None:
        unavailable("the AWS command line is not on PATH")
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "project"
    home.mkdir(exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (home / "shop/.aws-sam/build/template.yaml").exists():
            return home
        programs = home / "bin"
        programs.mkdir()
        (programs / "sam").symlink_to(SAM)
        (programs / "projections").symlink_to(Path(sys.executable).parent / "projections")
        environment = {**os.environ, **BUILD, "PATH": f"{programs}:{os.environ['PATH']}"}
        for command in (["projections", "init", "shop"], ["sam", "build"]):
            directory = home if command[1] == "init" else home / "shop"
            done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    return home


@dataclass
class Shop:
    """The stack `shop` in an account of its own, its table `app`, and a terminal in its project."""

    terminal: Terminal
    endpoint: str
    account: str
    region: str = "us-east-1"
    tags = ({"Key": "team", "Value": "shop"},)

    def stack(self) -> Any:
        return self.client("cloudformation").describe_stacks(StackName="shop")["Stacks"][0]

    def client(self, service: str, region: str = "") -> Any:
        return client(self.endpoint, service, region or self.region, self.account)

    def create_table(self, name: str = "app") -> None:
        keys = [("PK", "HASH"), ("SK", "RANGE")]
        index = [("GSI1PK", "HASH"), ("GSI1SK", "RANGE")]
        self.client("dynamodb").create_table(
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": one, "AttributeType": "S"} for one, _ in keys + index],
            KeySchema=[{"AttributeName": one, "KeyType": kind} for one, kind in keys],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "GSI1",
                    "KeySchema": [{"AttributeName": one, "KeyType": kind} for one, kind in index],
                    "Projection": {"ProjectionType": "ALL"},
                }
            ],
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
            Tags=[*self.tags],
        )

    def deploy(self, **parameters: str) -> None:
        """The stack before anything went wrong."""
        stream = self.client("dynamodb").describe_table(TableName="app")["Table"]["LatestStreamArn"]
        given = {"ExistingTableName": "app", "ExistingStreamArn": stream, "BatchingWindowSeconds": "0", **parameters}
        words = " ".join(f"{name}={value}" for name, value in given.items())
        self.do(f"sam deploy --no-confirm-changeset --parameter-overrides {words}")

    def begin(self) -> None:
        """The stack at work on the table `app`: one customer with one order."""
        self.deploy()
        self.do("projections apply rules.yaml --stack shop --yes")
        self.customer("ann")
        self.order("ann", "1")
        self.becomes_right()

    def do(self, commands: str) -> str:
        return self.terminal.run(Block("", "sh", commands, ""))

    def follow(self, page: str, heading: str) -> None:
        """What a page says below a heading."""
        for block in section(page, heading):
            print(self.terminal.run(block))

    # The application

    def customer(self, customer: str, table: str = "app", region: str = "") -> None:
        self.put(table, region, PK=f"CUSTOMER#{customer}", SK="PROFILE", name=f"Name of {customer}")

    def order(self, customer: str, order: str, total: int = 10, table: str = "app", region: str = "") -> None:
        at = f"2026-03-01T10:00:{total:02}Z"
        self.put(table, region, PK=f"CUSTOMER#{customer}", SK=f"ORDER#{order}", status="open", total=total, placedAt=at)

    def put(self, table: str, region: str, **item: str | int) -> None:
        wire = {name: {"N": str(one)} if isinstance(one, int) else {"S": one} for name, one in item.items()}
        self.client("dynamodb", region).put_item(TableName=table, Item=wire)

    def remove(self, partition: str, sort: str, table: str = "app") -> None:
        self.client("dynamodb").delete_item(TableName=table, Key={"PK": {"S": partition}, "SK": {"S": sort}})

    def items(self, table: str, region: str = "") -> list[Mapping[str, Any]]:
        pages = self.client("dynamodb", region).get_paginator("scan").paginate(TableName=table)
        return [item for page in pages for item in page["Items"]]

    def becomes_right(self, table: str = "app", region: str = "") -> None:
        """Wait until every derived value is what one computes from the items."""
        oracle = Oracle(loads((self.terminal.directory / "rules.yaml").read_text()).document())
        eventually(
            lambda: {"wrong": oracle.compare({"main": self.items(table, region)})}, lambda found: not found["wrong"], 60
        )


@pytest.fixture
def shop(emulator: str, project: Path, tmp_path: Path) -> Shop:
    directory = tmp_path / "shop"
    shutil.copytree(project / "shop", directory, symlinks=True)
    account = "111122223333"
    environment = {
        **BUILD,
        "PATH": f"{project / 'bin'}:{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": emulator,
        "AWS_ACCESS_KEY_ID": account,
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_PAGER": "",
    }
    return Shop(Terminal(directory, environment), emulator, account)


def section(page: str, heading: str) -> list[Block]:
    """The blocks of commands below a heading that can be run."""
    blocks = [one for one in page_blocks((ROOT / "docs/runbooks" / page).read_text()) if one.heading == heading]
    assert blocks, heading
    return [one for one in blocks if one.language == "sh" and not one.not_run]


def shown(page: str, heading: str, printed: str) -> None:
    """Each line that a page shows below a heading was printed, whatever the numbers are and whichever phase wrote."""

    def lines(text: str) -> set[str]:
        return {re.sub(r"\d+", "0", " ".join(line.split())) for line in text.splitlines() if line.strip()}

    for block in page_blocks((ROOT / "docs/runbooks" / page).read_text()):
        if block.language == "text" and block.heading == heading:
            assert lines(block.text) <= lines(printed), block.text


def test_the_application_table_is_restored_and_then_both_are(shop: Shop) -> None:
    shop.create_table()
    shop.deploy()
    shop.do("projections apply rules.yaml --stack shop --yes")
    shop.customer("ann")
    shop.order("ann", "1")
    shop.order("ann", "2", 20)
    shop.becomes_right()
    printed = ""
    for block in section("restore.md", "The application table"):
        printed += shop.terminal.run(block)
        if "wait table-exists --table-name app-restored\n" in block.text and "restore" in block.text:
            shop.order("ann", "3", 30)  # after the point
            shop.remove("CUSTOMER#ann", "ORDER#1")
            shop.becomes_right()
    shown("restore.md", "The application table", printed)
    shop.becomes_right("app-restored")
    shop.order("ann", "4", 40, "app-restored")
    shop.becomes_right("app-restored")
    given = {one["ParameterKey"]: one["ParameterValue"] for one in shop.stack()["Parameters"]}
    assert (given["ExistingTableName"], given["BatchingWindowSeconds"]) == ("app-restored", "0")
    table = shop.client("dynamodb").describe_table(TableName="app-restored")["Table"]
    assert table["DeletionProtectionEnabled"]
    assert shop.client("dynamodb").list_tags_of_resource(ResourceArn=table["TableArn"])["Tags"] == [*shop.tags]

    for block in section("restore.md", "The ledger")[:-3]:
        shop.terminal.run(block)
    shop.follow("restore.md", "Both tables")
    shop.order("ann", "5", 50, "app-restored")
    shop.becomes_right("app-restored")


def test_the_ledger_is_restored_and_a_new_one_is_made(shop: Shop) -> None:
    shop.create_table()
    shop.begin()
    for block in section("restore.md", "The ledger"):
        print(shop.terminal.run(block))
        if "restore-table-to-point-in-time" in block.text:
            shop.order("ann", "2", 20)  # which the restored ledger has not seen
            shop.remove("CUSTOMER#ann", "ORDER#1")
            shop.becomes_right()
    shop.becomes_right()
    shop.order("ann", "3", 30)
    shop.becomes_right()
    shop.follow("restore.md", "A new ledger")
    shop.order("ann", "4", 40)
    shop.becomes_right()


def test_a_region_is_lost_and_the_functions_move_and_return(shop: Shop) -> None:
    def run(heading: str, *numbers: int) -> None:
        blocks = section("region.md", heading)
        for block in [blocks[number] for number in numbers] or blocks:
            print(shop.terminal.run(block))

    other = "eu-west-1"
    shop.create_table()
    shop.client("dynamodb").update_table(TableName="app", ReplicaUpdates=[{"Create": {"RegionName": other}}])
    shop.begin()
    run("Prepare")

    run("Fail over")
    run("Stop the functions", 0)
    roles = [one["RoleName"] for one in shop.client("iam").list_roles()["Roles"]]
    denied = [one for one in roles if "stopped" in shop.client("iam").list_role_policies(RoleName=one)["PolicyNames"]]
    assert sorted(one.split("-")[1] for one in denied) == ["StreamRole", "WorkerRole"]
    run("Stop the functions", 1)  # the emulator does not enforce policies: so the Region is gone
    shop.order("ann", "2", 20)  # nobody hears of it
    shop.remove("CUSTOMER#ann", "ORDER#1")
    run("Start the functions")
    shop.becomes_right(region=other)
    shop.order("ann", "3", 30, region=other)
    shop.customer("ben", region=other)
    shop.becomes_right(region=other)

    run("Move back")
    run("Stop the functions", 1)
    run("Recreate a replica")
    shop.order("ben", "4", 40, region=other)
    run("Start the functions")
    shop.becomes_right()
    shop.order("ben", "5", 50)
    shop.customer("ann")
    shop.becomes_right()
    assert not [one for one in roles if "stopped" in shop.client("iam").list_role_policies(RoleName=one)["PolicyNames"]]


def test_a_rule_is_stopped_and_a_table_is_throttled(shop: Shop) -> None:
    shop.create_table()
    shop.begin()
    for block in section("cost.md", "Find the rule") + section("cost.md", "Stop one rule"):
        print(shop.terminal.run(block))
    shop.order("ann", "2", 20)
    eventually(lambda: {one["PK"]["S"]: one for one in shop.items("app")}, lambda found: "ORDER#2" in found)
    (profile,) = (one for one in shop.items("app") if one["SK"]["S"] == "PROFILE")
    assert profile["orderCount"] == {"N": "1"}
    again = "Start the rule again"
    shown("cost.md", again, "".join(map(shop.terminal.run, section("cost.md", again))))
    shop.becomes_right()
    shop.follow("cost.md", "Stop everything")
    shop.order("ann", "3", 30)
    for block in section("cost.md", "Stop everything"):
        text = block.text.replace("--no-enabled", "--enabled")
        assert text != block.text
        print(shop.do(text))
    shop.becomes_right()

    for heading in ("Find the cause", "Reduce the load", "Check the recovery"):
        shop.follow("throttled.md", heading)
    shop.becomes_right()


def test_the_package_is_upgraded_and_the_old_version_returns(shop: Shop) -> None:
    """A rule that changed in meaning is what a changed fingerprint looks like."""
    shop.create_table()
    shop.begin()
    rules = shop.terminal.directory / "rules.yaml"
    old = rules.read_text()
    for number, block in enumerate(section("upgrade.md", "Upgrade")):
        if number == 2:
            rules.write_text(old.replace("[cancelled]", "[cancelled, lost]"))
        print(shop.terminal.run(block))
    shop.order("ann", "2", 20)
    shop.becomes_right()
    rules.write_text(old)
    shop.follow("upgrade.md", "Return to the old version")
    shop.order("ann", "3", 30)
    shop.becomes_right()

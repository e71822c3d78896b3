"""The audit's role allows the requests that the audit makes, and no write to the ledger but in the audit's partition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from moto import mock_aws
from sam_cli import TEMPLATE

from projections.aws.clients import client
from projections.aws.live_tables import create_table
from projections.deploy.cloudformation import read_template
from projections.language.program import LEDGER_SCHEMA
from projections.operations.audit import AuditHandler
from projections.operations.redaction import Redaction
from projections.stores.dynamodb import DynamoDBStore
from tests.operations.verify_scene import edit, filled

pytestmark = pytest.mark.deep

APP, LEDGER = "app", "ledger"
NAMES = {"main": APP, "ledger": LEDGER}
READS = {"BatchGetItem", "GetItem", "Query", "Scan"}
ARNS = {APP: "ApplicationTable", LEDGER: "LedgerTable"}
"""The resources of the template that the tables of this test stand for."""


@dataclass(frozen=True)
class Asked:
    """One action on one table, with the partition keys it names, as IAM sees it."""

    action: str
    table: str
    partitions: frozenset[str]


def asked(operation: str, request: Mapping[str, Any]) -> Iterator[Asked]:
    """What IAM is asked for a request of the audit. Scans name no partition, queries are by parameters of expressions."""
    if operation == "BatchGetItem":
        for table, keys in request["RequestItems"].items():
            yield Asked("dynamodb:BatchGetItem", table, frozenset(map(partition, keys["Keys"])))
    elif operation in ("GetItem", "UpdateItem", "DeleteItem"):
        yield Asked(f"dynamodb:{operation}", request["TableName"], frozenset({partition(request["Key"])}))
    else:
        yield Asked(f"dynamodb:{operation}", request["TableName"], frozenset())


def partition(key: Mapping[str, Any]) -> str:
    return str(key["pk" if "pk" in key else "PK"]["S"])


@cache
def statements() -> list[Mapping[str, Any]]:
    policies = read_template(TEMPLATE).data["Resources"]["AuditRole"]["Properties"]["Policies"]
    named = {policy["PolicyName"]: policy for policy in policies if "PolicyName" in policy}
    found: list[Mapping[str, Any]] = named["audit"]["PolicyDocument"]["Statement"]
    return found


def allowed(one: Asked) -> bool:
    """IAM's decision. The only condition that the policy has is the one on partition keys."""
    for statement in statements():
        assert statement["Effect"] == "Allow"
        actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
        condition = statement.get("Condition")
        if one.action not in actions or ARNS[one.table] not in str(statement["Resource"]):
            continue
        if condition is None:
            return True
        assert condition.keys() == {"ForAllValues:StringEquals"}
        (values,) = [condition["ForAllValues:StringEquals"][key] for key in ["dynamodb:LeadingKeys"]]
        if one.partitions <= set(values):
            return True
    return False


@pytest.fixture(scope="module")
def requests() -> list[tuple[str, Mapping[str, Any]]]:
    """The requests of two runs of the audit over tables with drift, and of hashing a key. moto answers them."""
    world, made = filled(), list[tuple[str, Mapping[str, Any]]]()
    edit(world, "POST#1", "METADATA", likeCount=99)
    schemas = {"main": world.program.tables["main"], "ledger": LEDGER_SCHEMA}
    with mock_aws():
        dynamodb = client(region="us-east-1")
        for name, schema in schemas.items():
            create_table(dynamodb, NAMES[name], schema, stream=False)
            for item in world.store.items(name):
                dynamodb.put_item(TableName=NAMES[name], Item=item)
        store = DynamoDBStore(dynamodb, NAMES, schemas)

        def note(params: Mapping[str, Any], model: Any, **_: Any) -> None:
            made.append((model.name, dict(params)))

        dynamodb.meta.events.register("before-parameter-build.dynamodb.*", note)
        audit = AuditHandler(world.program, store, sleep=lambda seconds: None, segments=2)
        assert audit.handle({}, lambda: 60.0)["skipped"] is None
        assert audit.handle({}, lambda: 60.0)["drift"] == 1
        assert Redaction("keys", {}, (), store).key("main|a|b") != "key:unknown"  # it may be the first to hash a key
    return made


def test_every_request_of_the_audit_is_allowed(requests: list[tuple[str, Mapping[str, Any]]]) -> None:
    needed = {one for operation, request in requests for one in asked(operation, request)}
    assert {(one.action, one.table) for one in needed} >= {
        ("dynamodb:Scan", APP),
        ("dynamodb:BatchGetItem", APP),
        ("dynamodb:Scan", LEDGER),
        ("dynamodb:UpdateItem", LEDGER),
    }
    assert [one for one in needed if not allowed(one)] == []


def test_it_writes_one_partition_and_may_write_no_other(requests: list[tuple[str, Mapping[str, Any]]]) -> None:
    """Nothing of the registry, no entry, group, member or fence, and nothing of the application."""
    writes = [one for op, request in requests for one in asked(op, request) if op not in READS]
    assert set(writes) == {Asked("dynamodb:UpdateItem", LEDGER, frozenset({"A"}))}
    with_others = ["R", "E|main|USER#b|LIKE#p1", "G|likes|main|POST#p1|METADATA", "M|x|y", "F|x|y", "W|x|y", "A|", ""]
    for action in ("UpdateItem", "PutItem", "DeleteItem", "BatchWriteItem", "PartiQLUpdate", "PartiQLDelete"):
        for key in with_others:
            assert not allowed(Asked(f"dynamodb:{action}", LEDGER, frozenset({key})))
            assert not allowed(Asked(f"dynamodb:{action}", LEDGER, frozenset({"A", key})))
        assert not allowed(Asked(f"dynamodb:{action}", APP, frozenset({"A"})))

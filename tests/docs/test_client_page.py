"""The page about generated clients: its example runs on DynamoDB Local."""

from __future__ import annotations

import re
import sys
import uuid
from types import ModuleType
from typing import Any

import boto3
import pytest
from emulators import ROOT

from projections.api import loads
from projections.aws.live_tables import create_table
from projections.inspect.client import client_of

PAGE = (ROOT / "docs/client.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_example_runs(dynamodb_local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (text,) = blocks("yaml")
    rules = loads(text)
    client = client_of(rules, "rules.yaml")
    assert not client.missing
    access = ModuleType("access")
    monkeypatch.setitem(sys.modules, "access", access)
    exec(client.text, access.__dict__)
    dynamodb = boto3.resource("dynamodb", endpoint_url=dynamodb_local_url)
    name = f"page-{uuid.uuid4().hex[:8]}"
    create_table(dynamodb.meta.client, name, rules.program.tables["main"], stream=False)
    scope: dict[str, Any] = {"table": dynamodb.Table(name)}
    for block in blocks("python"):
        exec(block, scope)
    assert scope["profile"]["version"] == 2

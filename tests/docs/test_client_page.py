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
from guide import DOCS, apply_to_post, run_examples
from guide import blocks as examples_in

import projections
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


# docs/reading.md, the part about applications: its examples run on DynamoDB Local, with functions that run on call.


READING = (DOCS / "reading.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("posts")
def test_the_examples_of_the_reader_print_what_the_page_shows() -> None:
    examples = [block for block in examples_in(READING) if block.language == "python"]
    store, rules = apply_to_post(examples[0], title="Notes")

    def deliver() -> None:
        projections.verify(store, rules, patience=0, repair=True)

    assert run_examples(examples, {"deliver": deliver}, "docs/reading.md") > 10

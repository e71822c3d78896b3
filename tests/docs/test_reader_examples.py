"""docs/reading.md, the part about applications: its examples run on DynamoDB Local, with functions that run on call."""

from __future__ import annotations

import doctest
from pathlib import Path

import boto3
import pytest
from guide import DOCS, blocks

import projections
from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.language.program import LEDGER_SCHEMA

PAGE = (DOCS / "reading.md").read_text(encoding="utf-8")
EXAMPLES = [block for block in blocks(PAGE) if block.language == "python"]


def test_the_examples_of_the_reader_print_what_the_page_shows(
    dynamodb_local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local_url)
    rules = projections.loads("\n".join(line[4:] for line in EXAMPLES[0].text.splitlines() if line.startswith("... "))
                              .rpartition('"""')[0])  # fmt: skip
    dynamodb = client()
    create_table(dynamodb, "posts", rules.program.tables["main"], stream=False)
    create_table(dynamodb, "posts-ledger", LEDGER_SCHEMA, stream=False)
    try:
        item = {"PK": "POST#p1", "SK": "METADATA", "title": "Notes"}
        boto3.resource("dynamodb").Table("posts").put_item(Item=item)
        store = projections.aws.store(rules, {"main": "posts"}, "posts-ledger")
        projections.apply(store, rules)

        def deliver() -> None:
            projections.verify(store, rules, patience=0, repair=True)

        names: dict[str, object] = {"deliver": deliver}
        runner = doctest.DocTestRunner(verbose=False)
        said: list[str] = []
        for block in EXAMPLES:
            test = doctest.DocTestParser().get_doctest(block.text, names, block.heading, "docs/reading.md", block.line)
            runner.run(test, out=said.append, clear_globs=False)
            names.update(test.globs)
        assert not said, "".join(said)
        assert runner.summarize(verbose=False).attempted > 15
    finally:
        for name in ("posts", "posts-ledger"):
            delete_table(dynamodb, name)

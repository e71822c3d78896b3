"""A deployment for the commands that pages show, and tables for their examples."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from place import Place

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.language.keys import Schema
from projections.language.program import LEDGER_SCHEMA


@pytest.fixture
def posts(dynamodb_local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The tables `posts` and `posts-ledger`, which pages name; files are written into a directory of the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_local_url)
    dynamodb = client()
    create_table(dynamodb, "posts", Schema(("PK", "S"), ("SK", "S")))
    create_table(dynamodb, "posts-ledger", LEDGER_SCHEMA, stream=False)
    yield
    for name in ("posts", "posts-ledger"):
        delete_table(dynamodb, name)


@pytest.fixture
def place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, ministack_url: str
) -> Place:
    monkeypatch.setenv("AWS_ENDPOINT_URL", ministack_url)
    return Place(monkeypatch, capsys, tmp_path, ministack_url)

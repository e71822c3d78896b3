"""SECURITY.md: each promise names its tests, which exist; commands on files use no network."""

from __future__ import annotations

import ast
import re
import socket
from functools import lru_cache
from typing import Any

import pytest
from emulators import ROOT

from projections.cli.main import main

PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")


@lru_cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def promises() -> list[tuple[str, str]]:
    """The rows of the tables of promises: what is promised, and its tests."""
    return re.findall(r"^\| [^|\n]+ \| ([^|\n]+) \| ([^|\n]+) \|$", PAGE.partition("| --- |")[2], re.MULTILINE)


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise[0][:40])
def test_a_promise_has_tests(promise: tuple[str, str]) -> None:
    named = NAMED.findall(promise[1])
    assert named
    assert NAMED.sub("", promise[1]).strip(" ,") == "", "the column has tests only"
    for file, test in named:
        assert test in names_in(file), f"{file} has no {test}"


def test_everybody_in_the_threat_model_has_promises() -> None:
    assert len(promises()) == len(re.findall(r"^\| .*`tests/", PAGE, re.MULTILINE))
    about = set(re.findall(r"^\| ([^|\n]+) \| [^|\n]+ \| `tests/", PAGE, re.MULTILINE))
    everybody = {"AWS account", "secrets", "end user", "contributor", "neighbour", "functions", "audit", "build"}
    assert about == {*everybody, "operator, console"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "social"],
        ["diff", "social", "commerce"],
        ["template", "social"],
        ["explain", "--rules", "social", "events/like.json"],
        ["replay", "--rules", "social", "events/social.json"],
        ["simulate", "--rules", "social", "--histories", "1"],
        ["graph", "social"],
        ["queries", "--rules", "social"],
        ["cost", "--rules", "social", "--rate", "1"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_command_on_files_uses_no_network(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection")

    monkeypatch.chdir(ROOT)
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(SystemExit) as done:
        main(arguments)
    assert done.value.code in (0, 1), capsys.readouterr().err

"""Messages after usual mistakes: each names the way out, and none is an internal error. And the names of JSON keys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from projections.cli.main import main

PRINTED = Path(__file__).parents[1] / "goldens" / "printed"
FREE = {"check.json", "schema.json"}
"""Documents with the names of the rule language, and of JSON Schema."""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["bakfill"], "No such command 'bakfill' (did you mean \"backfill\"?)"),
        (["check", "socail"], 'no bundled rule file has this name (did you mean "social"?)'),
        (["check", "rulse.yaml"], 'rulse.yaml: no such file (did you mean "rules.yaml"?)'),
        (["check", "template.yaml"], "this is not a rule file, but a SAM or CloudFormation template."),
        (["replay", "--select", "lkies", "rules.yaml"], 'unknown rule "lkies"'),
        (["graph", "rules.yaml", "-o", "rules.svg"], "this command writes .mmd and .html"),
        (
            ["template", "rules.yaml", "-o", "p.ts"],
            "p.ts: the format sam is not for .ts files. Pass --format cdk-typescript",
        ),
        (["template", "rules.yaml", "-o", "t.json"], "Pass --format cloudformation, or"),
        (
            ["template", "rules.yaml", "--format", "cdk-typescript", "-o", "t.yaml"],
            "Pass --format sam, or write to a file",
        ),
        (
            ["status", "--table", "a", "--ledger", "b", "--endpoint-url", "localhost:8000"],
            "localhost:8000 is not a URL",
        ),
        (["redrive", "--rules", "rules.yaml", "--dismiss", "QK=1"], "'QK=1' is not a key. Write PK=…"),
        (["redrive", "--rules", "rules.yaml", "--because", "gone"], "--because requires --dismiss KEY|RULE|AGE"),
        (
            ["dev", "--rules", "rules.yaml", "--table", "lb", "--endpoint-url", "http://127.0.0.1:9"],
            "projections: table lb at http://127.0.0.1:9: Could not connect",
        ),
        (["explain", "--table", "a", "--ledger", "b", "--item", "key:12"], "not a URL"),
    ],
)
def test_messages_name_the_way_out(
    arguments: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "localhost:8000")
    (tmp_path / "rules.yaml").write_text(
        "table: {key: [PK]}\nentities: {A: {key: {PK: '{a}'}}}\nprojections: {likes: {from: A, compute: {set: {b: a}}}}\n"
    )
    (tmp_path / "template.yaml").write_text("Resources: {}\nTransform: x\n")
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code in (1, 2)
    said = capsys.readouterr()
    assert expected in said.out + said.err


def test_without_a_command_the_help_is_printed_in_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "\nWrite:\n  init  " in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(set(PRINTED.glob("*.json")) - {PRINTED / name for name in FREE}), ids=str)
def test_keys_of_printed_json_have_no_underscores(path: Path) -> None:
    assert [
        name for name in _names(json.loads(path.read_text())) if re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", name)
    ] == []


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _names(inner)

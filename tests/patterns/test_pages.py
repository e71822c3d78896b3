"""The pages say what the commands print, and name the access patterns that are tested."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from catalogue import PATTERNS, ROOT, Pattern
from pages import DIRECTORY, flaw, refreshed, shown, with_matrix

from projections.cli.main import main

patterns = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
COMMANDS = [(path, *one) for path in sorted(DIRECTORY.glob("*.md")) for one in shown(path.read_text())]


@pytest.mark.parametrize(("page", "command", "lines"), COMMANDS, ids=lambda value: getattr(value, "stem", ""))
def test_what_a_page_shows_is_what_the_command_prints(
    page: Path, command: str, lines: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("COLUMNS", raising=False)
    program, *arguments = shlex.split(command)
    assert program == "projections"
    with pytest.raises(SystemExit):
        main(arguments)
    output = [line.rstrip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert flaw(lines, output) is None, f"python tests/patterns/pages.py writes it again: {page}, {command}"


@pytest.mark.parametrize("path", sorted((DIRECTORY / "refused").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_questions_without_a_request_have_none(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["queries", "--rules", str(path)])
    assert ended.value.code == 1
    assert "no request" in capsys.readouterr().out


@patterns
def test_page_has_the_access_patterns_of_the_rules(pattern: Pattern) -> None:
    page = pattern.page.read_text()
    assert with_matrix(page, pattern.loaded) == page, "python tests/patterns/pages.py updates the pages"


@patterns
def test_a_page_names_no_rule_that_is_not_there(pattern: Pattern) -> None:
    named = set(re.findall(r"rule `(\w+)`", pattern.page.read_text()))
    assert named <= set(pattern.program.rules)


def test_the_index_has_every_page() -> None:
    linked = re.findall(r"\]\(([\w-]+)\.md\)", (DIRECTORY / "README.md").read_text())
    assert sorted(linked) == sorted(path.stem for path in DIRECTORY.glob("*.md") if path.stem != "README")
    assert {pattern.name for pattern in PATTERNS} <= set(linked)


PRINTED = ["a rule  1 units", "  how: much", "b rule  2 units", "in all: 3"]


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (PRINTED, None),
        (["a rule  1 units", "…", "in all: 3"], None),
        (["a rule  1 units", "…", "b rule  2 units"], "in all: 3"),
    ],
)
def test_lines_that_are_not_printed_there_are_told(lines: list[str], first: str | None) -> None:
    assert flaw(lines, PRINTED) == first


def test_a_page_is_written_again_with_the_lines_it_showed() -> None:
    page = "A\n```console\n$ projections check a\n…\na rule  7 units\n…\nin all: 9\n```\nB\n"
    assert refreshed(page, lambda _: PRINTED) == page.replace("…\na rule  7 units", "a rule  1 units").replace("9", "3")

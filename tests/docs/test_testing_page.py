"""docs/testing.md: its examples run, each on empty tables, and the case file on it passes."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest
from guide import DOCS, blocks

import projections
from projections.testing.cases import read_cases
from projections.testing.scenario import Scenario

PAGE = (DOCS / "testing.md").read_text(encoding="utf-8")
BLOCKS = list(blocks(PAGE))
RULES = projections.loads(next(block.text for block in BLOCKS if block.language == "yaml"))
EXAMPLES = {block.heading: block for block in BLOCKS if block.language == "pycon"}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_of_a_method_prints_what_the_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    block, said = EXAMPLES[name], list[str]()
    names = {"projections": Scenario(RULES)}
    test = doctest.DocTestParser().get_doctest(block.text, names, name, "docs/testing.md", block.line)
    result = doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append)
    assert not said, "".join(said)
    assert result.attempted > 0


def test_every_public_method_has_an_example() -> None:
    public = {name for name in vars(Scenario) if not name.startswith("_")}
    assert public == EXAMPLES.keys()


def test_the_test_and_the_cases_pass(tmp_path: Path) -> None:
    test = next(block.text for block in BLOCKS if block.language == "python")
    names: dict[str, object] = {}
    exec(test, names)
    names["test_a_like_counts"](Scenario(RULES))  # type: ignore[operator]
    file = tmp_path / "likes.projections.yaml"
    file.write_text(next(block.text for block in BLOCKS if block.language == "yml"))
    cases = read_cases(file).cases
    for case in cases:
        case.play(Scenario(RULES))
    assert len(cases) == 3

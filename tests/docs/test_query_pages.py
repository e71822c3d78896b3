"""docs/queries.md and docs/reading.md: their examples run, and the table of access patterns is what the command prints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from guide import DOCS, Example, blocks, examples, headings

import projections
from projections.cli.main import cli
from projections.inspect.access_patterns import WORDS
from projections.language.access.plan import VERDICTS
from projections.testing.cases import Case
from projections.testing.scenario import Scenario

PAGES = ("queries", "reading")


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text()


EXAMPLES = [pytest.param(one, id=f"{page}-{one.line}") for page in PAGES for one in examples(text_of(page))]


@pytest.mark.parametrize("redeliver", [False, True], ids=["once", "again"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_queries_give_what_the_page_shows(example: Example, redeliver: bool) -> None:
    assert example.case is not None
    case: dict[str, Any] = example.case
    rules = projections.loads(example.rules)
    assert case["asks"]
    Case(example.heading, example.line, case).play(Scenario(rules, redeliver=redeliver))


def test_the_table_is_what_the_command_prints(tmp_path: Path) -> None:
    (example,) = examples(text_of("queries"))
    (table,) = [block.text for block in blocks(text_of("queries")) if block.language == "console"]
    path = tmp_path / "rules.yaml"
    path.write_text(example.rules)
    done = CliRunner().invoke(cli, ["queries", "--rules", str(path)])
    printed = [line.rstrip() for line in done.output.splitlines()]
    assert printed[: len(table.splitlines())] == table.splitlines()
    assert any("the partition key of the table" in line for line in printed)
    assert any("index_key: { GSI1PK" in line for line in printed), "a proposal"


def test_the_mistake_of_half_a_key_is_as_shown() -> None:
    (example,) = examples(text_of("queries"))
    (text,) = [block.text for block in blocks(text_of("queries")) if block.language == "text"]
    with pytest.raises(projections.RulesError) as caught:
        projections.loads(example.rules + "  one: { get: Post, by: [userId] }\n")
    assert text.strip() in str(caught.value)


def test_the_bounds_of_a_range_are_printed_as_shown(tmp_path: Path) -> None:
    (example,) = examples(text_of("queries"))
    path = tmp_path / "rules.yaml"
    path.write_text(example.rules + "  some: { find: Post, by: [userId], range: postId }\n")
    done = CliRunner().invoke(cli, ["queries", "--rules", str(path)])
    condition = "PK = USER#{userId} and SK from POST#{postId.from} to POST#{postId.to}"
    assert condition in done.output
    assert f"`{condition}`" in text_of("queries")


def test_every_verdict_is_on_the_page() -> None:
    page = text_of("queries")
    assert [verdict for verdict in VERDICTS if f"| {WORDS[verdict]} | `{verdict}` |" not in page] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_list_at_the_top_links_the_headings(page: str) -> None:
    names = [text.lower().replace(" ", "-") for level, text in headings(text_of(page)) if level == 2]
    assert [name for name in names if f"](#{name})" not in text_of(page)] == []

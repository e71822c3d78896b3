"""docs/runbooks: what no test runs exists and is named, and tests/deploy/test_runbooks.py runs all other sections."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from guide import DOCS, ROOT, headings
from test_operations_page import PAGES as OPERATIONS
from test_operations_page import committed, operation

sys.path.append(str(ROOT / "tests/deploy"))

from runbook import Block, page_blocks

PAGES = sorted((DOCS / "runbooks").glob("*.md"))
BLOCKS = [(page.name, block) for page in PAGES for block in page_blocks(page.read_text()) if block.language == "sh"]
NOT_RUN = [line for _, block in BLOCKS if block.not_run for line in block.text.splitlines()]


def calls(line: str) -> list[tuple[str, str, set[str]]]:
    """The calls of aws in a line: service, operation, and the options that are not of every command."""
    found = re.findall(r"\baws ([\w-]+) ([\w-]+)([^)\n]*)", line)
    return [(service, name, {*re.findall(r"--([\w-]+)", rest)} - {"query", "output"}) for service, name, rest in found]


@pytest.mark.parametrize("line", NOT_RUN)
def test_a_command_that_no_test_runs_has_the_parameters_a_page_gives_it(line: str) -> None:
    for service, name, given in calls(line):
        members = operation(service, name).input_shape.members
        assert given <= {re.sub(r"(?<!^)(?=[A-Z])", "-", member).lower() for member in members}


def test_parameters_of_the_stack_exist() -> None:
    """`sam deploy` says nothing of a parameter that a template does not have."""
    texts = [line.partition("--parameter-overrides")[2] for _, block in BLOCKS for line in block.text.splitlines()]
    given = {name for text in texts for name in re.findall(r"(\w+)=", text)}
    assert (
        {"ExistingTableName", "ExistingStreamArn", "ExistingLedgerTableName"} <= given <= set(committed()["Parameters"])
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_is_not_run_is_named_at_the_end(page: Path) -> None:
    ends = page.read_text().partition("## Limits\n")[2]
    assert "MiniStack" in ends
    for block in page_blocks(page.read_text()):
        if block.not_run:
            for line in block.text.splitlines():
                named = {word for service, name, _ in calls(line) for word in (service, name)} or {"pip install"}
                assert "describe-stacks" in named or any(f"`{word}`" in ends for word in named), line


def test_every_section_with_commands_is_run() -> None:
    program = (ROOT / "tests/deploy/test_runbooks.py").read_text()
    assert [
        (page, block.heading)
        for page, block in BLOCKS
        if not block.not_run and not (f'"{page}"' in program and f'"{block.heading}"' in program)
    ] == []


def test_links_lead_to_headings_and_pages() -> None:
    def anchors(page: Path) -> set[str]:
        return {re.sub(r"[^\w -]", "", text).lower().replace(" ", "-") for _, text in headings(page.read_text())}

    for page in [*PAGES, *(DOCS / f"{name}.md" for name in OPERATIONS)]:
        for target, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", page.read_text())):
            if target.startswith("http"):
                continue
            found = (page.parent / target).resolve() if target else page
            assert found.exists(), (page.name, target)
            assert not anchor or anchor in anchors(found), (page.name, target, anchor)


def test_operations_lists_every_runbook() -> None:
    page = (DOCS / "operations.md").read_text()
    assert [one.name for one in PAGES if f"(runbooks/{one.name})" not in page] == []


def test_blocks_of_steps_lose_their_indent() -> None:
    page = "## A\n\n1. Do.\n\n   <!-- not run: no -->\n   ```sh\n   aws s3 ls\n   ```\n"
    assert page_blocks(page) == [Block("A", "sh", "aws s3 ls\n", "no")]

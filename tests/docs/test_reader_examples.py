"""docs/reading.md, the part about applications: its examples run on DynamoDB Local, with functions that run on call."""

from __future__ import annotations

import pytest
from guide import DOCS, apply_to_post, blocks, run_examples

import projections

PAGE = (DOCS / "reading.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("posts")
def test_the_examples_of_the_reader_print_what_the_page_shows() -> None:
    examples = [block for block in blocks(PAGE) if block.language == "python"]
    store, rules = apply_to_post(examples[0], title="Notes")

    def deliver() -> None:
        projections.verify(store, rules, patience=0, repair=True)

    assert run_examples(examples, {"deliver": deliver}, "docs/reading.md") > 15

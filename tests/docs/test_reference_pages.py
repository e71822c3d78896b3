"""Generated pages are up to date, and what they show is true."""

from __future__ import annotations

import re
import shlex

import pytest
from guide import DOCS
from reference import EXAMPLES, PAGES, command_of, findings_of_example, help_blocks

from projections.cli.main import COMMANDS


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), "python tests/docs/reference.py writes it"


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_of_a_kind_has_findings_of_that_kind_only(code: str) -> None:
    findings = findings_of_example(code)
    assert {one.code for one in findings} == {code}, "the example of the Kind needs findings of this kind only"
    assert {one.severity for one in findings} <= set(EXAMPLES[code].severities)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_begins_with_its_summary(name: str) -> None:
    assert help_blocks(command_of(name))[0] == (False, COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_ends_with_examples_that_are_valid(name: str) -> None:
    as_written, text = help_blocks(command_of(name))[-1]
    assert as_written
    assert text.startswith("Example")
    invocations = re.findall(rf"projections ({name}\b[^|&>\n]*)", text)
    assert invocations
    for invocation in invocations:
        command_of(name).make_context(name, shlex.split(invocation)[1:], help_option_names=["-h", "--help"])

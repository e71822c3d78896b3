"""docs/errors.md lists every reason in the code and every public error, and its example prints what it shows."""

from __future__ import annotations

import doctest
import re

from errors_page import WAYS_OUT, errors_page, exceptions, groups, reasons_in_code
from guide import ROOT, blocks

from projections.cli.main import COMMANDS


def test_every_reason_in_the_code_is_listed_once_and_no_other() -> None:
    listed = [reason for group in groups() for reason in group["reasons"]]
    assert sorted(listed) == sorted(reasons_in_code()), (
        "tests/docs/reasons.yaml has the text of each reason, with its cause"
    )


def test_reasons_are_listed_under_the_modules_that_give_them() -> None:
    for group in groups():
        for reason in group["reasons"]:
            modules = reasons_in_code()[reason]
            assert any(module.startswith(tuple(group["modules"])) for module in modules), (reason, modules)


def test_every_public_error_is_listed() -> None:
    assert {one.__name__ for one in exceptions()} == WAYS_OUT.keys()


def test_the_example_prints_what_it_shows() -> None:
    (example,) = [block.text for block in blocks(errors_page()) if block.language == "python"]
    test = doctest.DocTestParser().get_doctest(example, {}, "errors", "errors.md", 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


def test_every_command_that_exits_with_1_is_listed() -> None:
    """Those with `-o` are, in a sentence: they do not overwrite what a person has edited."""
    page = errors_page()
    for path in sorted((ROOT / "projections/cli").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.stem in COMMANDS and re.search(r"return (1\b|int\()", text) and "write_generated" not in text:
            assert f"| [{path.stem}](cli.md#{path.stem}) |" in page, "its help says: Exits with 1 if …"

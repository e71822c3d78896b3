"""docs/python.md: every public name is in it, and the examples in docstrings print what they show."""

from __future__ import annotations

import doctest
import inspect
from typing import Any

import pytest
from guide import DOCS, headings
from python_page import example_of, names

import projections
import projections.api

PAGE = (DOCS / "python.md").read_text(encoding="utf-8")


def test_every_public_name_has_an_entry() -> None:
    there = {text for level, text in headings(PAGE) if level == 3}
    assert [
        name
        for name, one in names()
        if name.removeprefix("projections.") not in there and f"`{getattr(one, '__name__', name)}`" not in PAGE
    ] == []


@pytest.mark.parametrize("name", [name for name, one in names() if inspect.isfunction(one)])
def test_a_function_says_which_errors_it_raises_and_has_an_example(name: str) -> None:
    assert example_of(name)


@pytest.mark.parametrize(("name", "one"), [(name, one) for name, one in names() if ">>>" in (one.__doc__ or "")])
def test_the_example_in_a_docstring_prints_what_it_shows(name: str, one: Any) -> None:
    test = doctest.DocTestParser().get_doctest(inspect.cleandoc(one.__doc__), dict(vars(projections.api)), name, "", 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0

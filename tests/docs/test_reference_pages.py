"""Generated pages are up to date, and what they show is true."""

from __future__ import annotations

import pytest
from guide import DOCS
from reference import PAGES, examples

from projections.language.findings import Finding, Kind


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), "python tests/docs/reference.py writes it"


@pytest.mark.parametrize(("kind", "findings"), [pytest.param(*one, id=one[0].code) for one in examples()])
def test_example_of_a_kind_has_findings_of_that_kind_only(kind: Kind, findings: tuple[Finding, ...]) -> None:
    assert {one.code for one in findings} == {kind.code}
    assert {one.severity for one in findings} <= set(kind.severities)

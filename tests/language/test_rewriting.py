"""A rule file made of canonical rules means these rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections.language.loader import check, load
from projections.language.models import Rules
from projections.language.rewriting import merged, written

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *ROOT.glob("projections/rules/*.yaml"),
    *ROOT.glob("tests/simulation/rules/*.yaml"),
    ROOT / "tests/language/rules/shop.yaml",
]


@pytest.mark.parametrize("path", sorted(FILES), ids=lambda path: path.stem)
def test_a_rule_file_made_of_canonical_rules_means_the_same(path: Path) -> None:
    document = load(path, executable=False).typed()
    again = check(Rules.model_validate(written(document), by_alias=True, by_name=False), executable=False)
    assert again.typed() == document


def test_an_addition_is_merged_into_the_parts_that_exist() -> None:
    data = {"a": {"b": [1], "c": 2}, "d": 3}
    assert merged(data, {"a": {"b": [2, 3], "e": {}}, "f": 4}) == {"a": {"b": [2, 3], "c": 2, "e": {}}, "d": 3, "f": 4}
    assert data == {"a": {"b": [1], "c": 2}, "d": 3}

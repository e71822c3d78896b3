"""A rule file made of canonical rules means these rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections.language.canonical import duration_of, seconds_of
from projections.language.document import Rules
from projections.language.loader import check, load, loads
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


@pytest.mark.parametrize("within", ["1s", "30s", "90s", "5m", "9999m", "2h", "9999h"])
def test_a_limit_of_freshness_is_written_as_it_can_be_read(within: str) -> None:
    document = loads(
        f"""
        table: {{ key: [PK] }}
        entities: {{ Post: {{ key: {{ PK: "POST#{{postId}}" }} }} }}
        projections: {{ title: {{ from: Post, within: {within}, compute: {{ set: {{ title: upper }} }} }} }}
        """
    ).typed()
    again = Rules.model_validate(written(document), by_alias=True, by_name=False)
    assert again.typed() == document
    seconds = seconds_of(within)
    assert seconds is not None
    assert seconds_of(duration_of(seconds)) == seconds


def test_an_addition_is_merged_into_the_parts_that_exist() -> None:
    data = {"a": {"b": [1], "c": 2}, "d": 3}
    assert merged(data, {"a": {"b": [2, 3], "e": {}}, "f": 4}) == {"a": {"b": [2, 3], "c": 2, "e": {}}, "d": 3, "f": 4}
    assert data == {"a": {"b": [1], "c": 2}, "d": 3}

"""What `make bench` prints and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.figures import Figure, lines, text


def test_the_table_has_a_row_for_each_case_and_a_column_for_each_way() -> None:
    figures = [
        Figure("charged", "write units", "a like", "ours", 5.0),
        Figure("charged", "write units", "a copy", "ours", 1.25),
        Figure("charged", "write units", "a like", "(a) plain ADD", 1.0),
        Figure("time", "microseconds", "a like", "(a) plain ADD", 430.4),
    ]
    assert [line.split() for line in lines(figures)] == [
        ["ours", "(a)"],
        ["charged:", "write", "units"],
        ["a", "like", "5", "1"],
        ["a", "copy", "1.25"],
        ["time:", "microseconds"],
        ["a", "like", "430"],
        ["(a)", "plain", "ADD"],
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (0.0114, "0.011"), (2.023, "2.02"), (17.46, "17.5"), (20757.4, "20,757"), (5.0, "5")],
)
def test_a_value_shows_the_digits_that_mean_something(value: float, shown: str) -> None:
    assert text(value) == shown


def test_the_results_say_when_where_and_with_what_each_figure_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "_beside_others", lambda: [Figure("CPU", "microseconds", "likes", "ours", 40.1)])
    monkeypatch.setattr(bench, "_alone", lambda: [Figure("cold start", "times", "ours", "value", 1.2)])
    monkeypatch.setattr(bench, "_grown", lambda sources: [Figure("growth", "megabytes", "", f"{sources:,}", 64.9)])
    file = tmp_path / "made" / "results.json"
    assert bench.main(["--sources", "2000", "--json", str(file)]) == 0
    results = json.loads(file.read_text())
    assert results.keys() == {"date", "machine", "versions", "seconds", "figures"}
    assert results["machine"].keys() >= {"processor", "cores", "memory_gigabytes", "load", "system"}
    assert results["versions"].keys() >= {"python", "botocore", "ministack", "dynamodb_local", "commit"}
    assert results["figures"][2] == {"group": "growth", "unit": "megabytes", "case": "", "way": "2,000", "value": 64.9}
    assert {"40.1", str(file)} <= set(capsys.readouterr().out.split())

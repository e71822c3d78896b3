"""docs/api.md: its examples print what it shows, and it names all that is public."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
from guide import DOCS, blocks, run_examples

import projections
import projections.api
import projections.testing

PAGE = (DOCS / "api.md").read_text(encoding="utf-8")
EXAMPLES = [block for block in blocks(PAGE) if block.language == "python"]


class Context:
    """Lambda's, as far as handlers read it."""

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


@pytest.mark.usefixtures("posts")
def test_the_examples_print_what_the_page_shows() -> None:
    assert run_examples(EXAMPLES, {"context": Context()}, "docs/api.md") > 20


def test_the_page_names_all_that_is_public() -> None:
    public = [*projections.__all__, *projections.aws.__all__, *projections.testing.__all__]
    assert [name for name in public if name not in PAGE and name != "__version__"] == []


@pytest.mark.parametrize(
    "name", [name for name in projections.__all__ if ">>>" in (getattr(projections, name).__doc__ or "")]
)
def test_the_example_in_a_docstring_prints_what_it_shows(name: str) -> None:
    text = inspect.cleandoc(getattr(projections, name).__doc__)
    test = doctest.DocTestParser().get_doctest(text, dict(vars(projections.api)), name, "", 0)
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0


SCRIPT = """
import projections
from projections.testing import Scenario

rules: projections.RuleSet = projections.load("rules.yaml")
places: list[tuple[str, int]] = [(finding.file, finding.line) for finding in projections.lint(rules)]
store: projections.Store = projections.aws.store(rules, {"main": "posts"}, "ledger")
drift: projections.Drift
for drift in projections.verify(store, rules, sample=0.01).drifts:
    print(drift.rule, drift.target)
done: projections.BackfillResult = projections.apply(Scenario(rules).store, rules, retire={"likes": "keep"})
explained: projections.ItemExplanation = projections.explain_item(store, rules, "PK=a,SK=b")
recorded: projections.LedgerStatus = projections.status(store, rules)
handler = projections.aws.stream_handler({"TABLE_NAME": "posts"}, observe=lambda outcome: print(outcome.counts))
"""

WRONG = """
projections.lod("rules.yaml")
projections.backfill(store, rules, sgements=3)
len(done)
"""


@pytest.mark.deep
def test_a_users_script_is_checked_by_mypy(tmp_path: Path) -> None:
    """As strictly as mypy can: what is right passes, and each wrong use is reported."""
    (tmp_path / "right.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text(SCRIPT + WRONG)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "right.py", "wrong.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    wrong = len(SCRIPT.splitlines()) + 1
    lines = [line.partition(": error:")[0] for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == [f"wrong.py:{wrong + number}" for number in range(1, 4)], done.stdout

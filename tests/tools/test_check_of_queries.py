"""Proposals for queries: the finding of `check`, and YAML to paste, which was tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

RULES = """\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
queries:
  newest: {find: Post, by: [userId], order: createdAt desc}
"""
OPEN = """\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities: {Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId, required: [createdAt, tag]}}
projections: {open: {from: Post, where: {status: [open]}, index: {GSI1PK: "TAG#{tag}", GSI1SK: "{postId}"}}}
queries: {tagged: {find: Post, by: [tag], order: createdAt desc}}
"""


def test_the_proposal_and_its_cost_are_printed_below_the_finding(run: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    code, output, _ = run("check", str(tmp_path / "rules.yaml"))
    assert code == 1
    assert "→ add the index GSI1 with Post items:\n" in output
    after = output.partition("with Post items:\n")[2].splitlines()
    assert [line.rstrip() for line in after[:4]] == [
        "      table:",
        "        indexes: { GSI1: [GSI1PK, GSI1SK] }",
        "      projections:",
        '        newestIndex: { from: Post, index: { GSI1PK: "POST#{userId}", GSI1SK: "{createdAt}" } }',
    ]


@pytest.mark.parametrize("command", [["check"], ["queries", "--rules"]])
def test_a_wrong_proposal_is_not_offered(
    command: list[str], run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner has an error: an index with a condition would hold all items."""
    monkeypatch.setattr("projections.language.access.attempt.implies", lambda known, pattern: True)
    (tmp_path / "rules.yaml").write_text(OPEN)
    code, output, _ = run(*command, str(tmp_path / "rules.yaml"))
    words = " ".join(output.split())
    lacks = r"with tag=\w+, it returns \d items, and reading all items returns \d; USER#\w+ · POST#\w+ is missing"
    way = "Write the keys yourself, and report this with the rule file as an error of the planner"
    assert re.search(
        f"no addition is offered, because the proposed one failed a test .*: {lacks} or out .*{way}", words
    )
    assert (code, "open:" in output) == (1, False)

"""`check` on queries: the finding, and YAML to paste."""

from __future__ import annotations

from pathlib import Path

import pytest

from projections.cli.main import main

RULES = """\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
queries:
  newest: {find: Post, by: [userId], order: createdAt desc}
"""


def checked(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> tuple[object, str]:
    with pytest.raises(SystemExit) as ended:
        main(["check", str(path), *options])
    return ended.value.code, capsys.readouterr().out


def test_the_proposal_and_its_cost_are_printed_below_the_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    code, output = checked(capsys, path)
    assert code == 1
    assert "→ add the index GSI1 with Post items:\n" in output
    after = output.partition("with Post items:\n")[2].splitlines()
    assert [line.rstrip() for line in after[:4]] == [
        "      table:",
        "        indexes: { GSI1: [GSI1PK, GSI1SK] }",
        "      projections:",
        '        newestIndex: { from: Post, index: { GSI1PK: "POST#{userId}", GSI1SK: "{createdAt}" } }',
    ]

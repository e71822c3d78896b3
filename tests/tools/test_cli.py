"""The command line: exit codes, messages instead of tracebacks, JSON for programs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from projections import __version__
from projections.cli.main import COMMANDS

Run = Callable[..., tuple[int, str, str]]

BROKEN = """\
table: {key: [PK, SK]}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
projections:
  oops:
    from: Usr
    aggregate: {into: User, set: {n: count}}
"""


def test_version_and_help(run: Run) -> None:
    assert run("--version") == (0, f"projections {__version__}\n", "")
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in COMMANDS)


def test_help_is_quick_because_commands_are_imported_when_called() -> None:
    heavy = ("pydantic", "boto3", "yaml", "projections.engine")
    script = (
        "import sys\nfrom projections.cli.main import main\ntry:\n main(['--help'])\nexcept SystemExit:\n pass\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy_ones = done.stderr.strip()
    assert heavy_ones == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_and_rules(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert "--json" in out or command in (
        "template",
        "graph",
        "dev",
    )  # files of other tools, pictures, and a session for people
    file = command in ("apply", "check", "graph", "diff", "template", "client")
    others = ("init", "promote", "rollback")  # which make rules, and which read them from the registry
    assert ("--rules" in out) == (not file and command not in others)
    assert not file or "[FILE]" in out or "[NEW]" in out


@pytest.mark.parametrize(
    "arguments", [("nonsense",), ("check", "--nonsense"), ("replay",), ("replay", "e", "--ask"), ("graph", "a", "b")]
)
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Error:" in err


def test_check_prints_each_rule_with_its_source_its_target_key_and_what_it_writes(run: Run) -> None:
    code, out, err = run("check", "social")
    assert (code, err) == (0, "")
    assert "postById  copy of Post → PostMeta  POST#{postId} · METADATA" in out
    assert "PUBLISHED#{publishedAt|date(%Y-%m)} or DRAFTS#{userId}" in out
    assert "praiseCount   count of Comment where stars is at least 4" in out
    assert "9 rules, no errors" in out
    assert "\x1b" not in out


def test_a_rule_that_reads_its_own_values_does_not_come_after_itself(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        "table: {key: [PK]}\n"
        "entities: {Visit: {key: {PK: 'VISIT#{visit}'}}}\n"
        "projections:\n"
        "  balance: {from: Visit, compute: {set: {balance: billed - paid, owes: balance * 2}}}\n"
        "  state: {from: Visit, compute: {set: {state: '{balance}', label: '{state}'}}}\n"
    )
    _, out, _ = run("check", str(path))
    assert out.count("after ") == 1
    assert "after balance: in the same write." in out


def test_check_prints_findings_with_corrections_below_their_rules(run: Run) -> None:
    code, out, _ = run("check", "tests/simulation/rules/chains.yaml")
    assert code == 1
    rule = out[out.index("\nlisted  ") : out.index("\ncards  ")]
    assert "path: 1 conditional write on the item itself" in rule
    assert "after meta, likes: 2 passes through the stream." in rule
    assert (
        "  tests/simulation/rules/chains.yaml:23:22: projections.listed.index.GSI1PK: warning [hot-partition]: " in rule
    )
    assert '    → if writes may come faster, spread them, for example with "PUBLISHED#{postId|bucket(8)}"' in rule
    assert out.endswith("! tests/simulation/rules/chains.yaml: 6 rules, no errors, 2 warnings, 1 note.\n")


def test_check_lists_variables_of_a_key_that_are_attributes(run: Run) -> None:
    code, out, _ = run("check", "tests/simulation/rules/aggregates.yaml")
    assert code == 0
    assert "key: {recommendedBy} of the attributes of Sale." in out


@pytest.mark.parametrize(
    ("name", "severity", "code"),
    [
        ("chains", "error", 0),
        ("chains", "warning", 1),
        ("derived", "warning", 0),
        ("derived", "note", 1),
        ("extremes", "note", 0),
    ],
)
def test_check_fails_on_the_severity_asked_for(run: Run, name: str, severity: str, code: int) -> None:
    assert run("check", f"tests/simulation/rules/{name}.yaml", "--fail-on", severity)[0] == code


def test_check_prints_every_mistake_with_its_place_and_exits_with_1(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    code, out, _ = run("check", str(path))
    assert code == 1
    assert f"{path}:6:" in out
    assert "User" in out
    code, out, _ = run("check", str(path), "--json")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert (finding["line"], finding["severity"], finding["rule"]) == (6, "error", "oops")
    assert json.loads(out)["rules"] == []


def test_check_reads_several_files_as_pre_commit_passes_them(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    code, out, _ = run("check", str(path), "social")
    assert code == 1
    assert f"{path}:6:" in out
    assert "projections/rules/social.yaml: 9 rules, no errors" in out
    assert run("check", "social", "tenants")[0] == 0
    code, _, err = run("check", "social", "tenants", "--json")
    assert (code, "--template and --json take one rule file" in err) == (2, True)


def test_a_broken_rule_file_is_exit_code_2_elsewhere(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(BROKEN)
    code, out, err = run("replay", "events/social.json", "--rules", str(path))
    assert (code, out) == (2, "")
    assert f"{path}:6:" in err


def test_missing_rules_are_an_error_with_bundled_names(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RULES", raising=False)
    code, _, err = run("check")
    assert code == 2
    assert "--rules FILE" in err
    assert "social" in err
    code, _, err = run("check", "nowhere.yaml")
    assert (code, "nowhere.yaml: no such file" in err) == (2, True)
    monkeypatch.setenv("RULES", "social")
    assert run("check")[0] == 0

"""What must not move while the code is rearranged: what commands accept and print, canonical rules, and every request.

A test compares with a file in this directory. `UPDATE_GOLDENS=1 pytest tests/goldens` writes the files anew; then look at
`git diff tests/goldens`, and say in the commit why each line changes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from emulators import ROOT

from projections.cli.main import COMMANDS, cli, main
from projections.language.loader import load
from projections.language.program import Program
from projections.language.review import review
from projections.testing.simulation.history import Setup

HERE = Path(__file__).parent
RULE_FILES = {
    str(path.relative_to(ROOT)): path
    for directory in ("projections/rules", "tests/simulation/rules")
    for path in sorted((ROOT / directory).glob("*.yaml"))
}
SEEDS = range(7_000, 7_004)


def same(name: str, found: str) -> None:
    path = HERE / name
    if os.environ.get("UPDATE_GOLDENS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8"), f"{name} differs; UPDATE_GOLDENS=1 writes it anew"


def text(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def digest(content: str) -> str:
    return blake2b(content.encode(), digest_size=12).hexdigest()


def test_names_options_and_help_of_every_command() -> None:
    shown = []
    context = cli.make_context("projections", [], resilient_parsing=True)
    for name in ("", *COMMANDS):
        if (command := cli.get_command(context, name)) is not None:
            command._help_option = None  # click keeps that of an earlier test, which may have had other names
        arguments = [*name.split(), "--help"]
        done = CliRunner().invoke(cli, arguments, prog_name="projections", terminal_width=100)
        assert done.exit_code == 0, done.output
        shown.append(f"$ projections {' '.join(arguments)}\n{done.output}")
    same("help.txt", "\n".join(shown))


def test_canonical_rules_and_their_fingerprints() -> None:
    """A deployed rule whose fingerprint changes fills again."""
    found = {}
    for name, path in RULE_FILES.items():
        document = load(path).document()
        program = Program.from_document(document)
        found[name] = {
            "document": digest(json.dumps(document, ensure_ascii=False)),
            "fingerprint": program.fingerprint,
            "rules": {name: rule.fingerprint for name, rule in program.rules.items()},
        }
    same("rules.json", text(found))


def test_good_rule_files_have_few_findings() -> None:
    """Each judged by hand. A file without findings is not listed."""
    paths = {**RULE_FILES, "tests/language/rules/shop.yaml": ROOT / "tests/language/rules/shop.yaml"}
    reviews = {name: review(path) for name, path in paths.items()}
    assert [name for name, reviewed in reviews.items() if reviewed.rules is None] == []
    found = {
        name: [f"{finding.line} {finding.code} {finding.severity}" for finding in reviewed.findings]
        for name, reviewed in reviews.items()
        if reviewed.findings
    }
    same("findings.json", text(found))


def test_canonical_form_of_every_construct() -> None:
    same("everything.json", text(load(ROOT / "tests/language/rules/everything.yaml").document()))


@pytest.mark.parametrize("name", [name for name in RULE_FILES if name.startswith("tests/")])
def test_every_request_of_the_engine_in_histories(name: str) -> None:
    """Keys and bytes of the ledger, guards, conditions, and the order of requests, under faults and changes of rules.

    Digests of traces: `projections simulate … --seed SEED --histories 1 --trace` on two commits shows where they part.
    """
    setup = Setup(load(RULE_FILES[name]).document())
    found = {}
    for seed in SEEDS:
        outcome = setup.play(seed, trace=True)
        assert outcome.problems == []
        found[str(seed)] = digest("\n".join(outcome.trace))
    same(f"requests/{RULE_FILES[name].stem}.json", text(found))


EVENTS = ("social", "publish", "like", "unlike", "edit", "delete", "hide-comment", "quarantined/bad-record")

COMMAND_LINES: Mapping[str, list[str]] = {
    "check": ["check", "social"],
    "check-findings": ["check", str(ROOT / "tests/simulation/rules/tables.yaml")],
    "cost": ["cost", "--rules", "social", "--rate", "100"],
    "cost-sample": ["cost", "--rules", "social", str(ROOT / "events/social.json")],
    "diff": ["diff", "social", str(HERE / "changed.yaml")],
    **{
        f"explain-{Path(name).name}": ["explain", "--rules", "social", str(ROOT / f"events/{name}.json")]
        for name in ("hide-comment", "quarantined/bad-record")
    },
    **{
        f"replay-{Path(name).name}": ["replay", "--rules", "social", str(ROOT / f"events/{name}.json")]
        for name in EVENTS
    },
    "queries": ["queries", "--rules", "social"],
    "schema": ["check", "--schema"],
    "simulate": ["simulate", "--rules", "social", "--histories", "5", "--seed", "3", "--jobs", "1"],
}


@pytest.mark.parametrize("name", COMMAND_LINES)
def test_what_commands_print_for_programs(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    arguments = COMMAND_LINES[name]
    with pytest.raises(SystemExit) as ended:
        main(arguments if "--json" in arguments else [*arguments, "--json"])
    captured = capsys.readouterr()
    printed = re.sub(r'("seconds": )[\d.]+', r"\1 0", captured.out.replace(str(ROOT), "."))
    printed = re.sub(r'"[0-9a-f]{8}"', '"(a random name)"', printed)
    printed = re.sub(r'"ledger": "[0-9a-z]{4}"', '"ledger": "(a random id)"', printed)
    out = json.loads(printed)
    if name == "check-findings":
        del out["document"]  # its digest is in rules.json
    same(f"printed/{name}.json", text({"code": ended.value.code, "err": captured.err, "out": out}))


def test_access_patterns_in_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["queries", "--rules", "social", "--markdown"])
    same("access-patterns.md", capsys.readouterr().out)

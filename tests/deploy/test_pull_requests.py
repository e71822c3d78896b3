"""The GitHub action and the hook of pre-commit: their commands, run on a repository with a change of rules."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT, unavailable
from sources import copy_sources

from tests.yaml_text import yaml_data

pytestmark = pytest.mark.deep

ACTION: dict[str, Any] = yaml_data((ROOT / "action.yml").read_text())
(HOOK,) = yaml_data((ROOT / ".pre-commit-hooks.yaml").read_text())
EXAMPLE = (ROOT / "projections/init/example/rules.yaml").read_text()
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}

# What `gh api` is asked is written to a file; it answers with the comments of another one, as `--jq` selects them.
GH = """#!/bin/sh
echo "$@" >> "$GH_LOG"
test -z "$GH_FAILS" || exit 1
case "$*" in *--paginate* | */tarball/*) cat "$GH_COMMENTS" ;; esac
"""


class Repository:
    """A clone with two commits, and what a runner gives to a step."""

    def __init__(self, place: Path, before: str, after: str) -> None:
        self.place = place
        self.tree = place / "repository"
        (self.tree / "app").mkdir(parents=True)
        self.git("init", "--quiet")
        self.commit(before)
        self.base = self.git("rev-parse", "HEAD").strip()
        self.commit(after)
        self.outputs: dict[str, str] = {}
        programs = place / "bin"
        programs.mkdir()
        (programs / "gh").write_text(GH)
        (programs / "gh").chmod(0o755)
        installed = place / "projections/bin/projections"
        installed.parent.mkdir(parents=True)
        installed.symlink_to(Path(sys.executable).parent / "projections")
        (place / "comments").write_text("")

    def git(self, *arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        command = ["git", *who, *arguments]
        return subprocess.run(command, cwd=self.tree, text=True, check=True, capture_output=True).stdout

    def commit(self, rules: str) -> None:
        if rules:
            (self.tree / "app/rules.yaml").write_text(rules)
        else:
            (self.tree / "README").write_text("none")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "rules")

    def step(self, name: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        """Run a step of the action as a runner does."""
        given = {name: one.get("default", "") for name, one in ACTION["inputs"].items()} | inputs
        context = {
            **{f"inputs.{name}": value for name, value in given.items()},
            "github.event.pull_request.base.sha": self.base,
            "github.event.pull_request.number": "7",
            "github.repository": "shop/app",
            "steps.report.outputs.file": self.outputs.get("file", ""),
        }
        variables = {
            name: re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda found: context[found[1]], text)
            for name, text in STEPS[name].get("env", {}).items()
        }
        files = {name: str(self.place / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GH_LOG")}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[name]["run"]],
            cwd=self.tree,
            env={
                **os.environ,
                **files,
                **variables,
                "GH_COMMENTS": str(self.place / "comments"),
                "RUNNER_TEMP": str(self.place),
                "GITHUB_ACTION_PATH": str(ROOT),
                "PATH": f"{self.place / 'bin'}:{os.environ['PATH']}",
            },
            text=True,
            capture_output=True,
            check=False,
        )
        output = Path(files["GITHUB_OUTPUT"])
        lines = output.read_text().splitlines() if output.exists() else []
        self.outputs |= dict(line.split("=", 1) for line in lines)
        return done


@pytest.fixture
def changed(tmp_path: Path) -> Repository:
    return Repository(
        tmp_path, EXAMPLE, EXAMPLE.replace("orderCount: count,", "orderCount: count, greatest: max(number(total)),")
    )


def test_a_change_is_reported_with_its_cost_in_one_comment(changed: Repository) -> None:
    assert changed.step("Check", rules="app/rules.yaml").returncode == 0
    done = changed.step("Report", rules="app/rules.yaml", rates="--rate Order=100")
    assert done.returncode == 0, done.stderr
    report = Path(changed.outputs["file"]).read_text()
    assert re.match(r"<!-- dynamodb-projections: [0-9a-f]{16} -->\n", report)
    assert "- set.greatest added: `max(number(total))`" in report
    assert "projections apply" in report
    assert re.search(r"#### Estimated cost\n\n    \S", report)
    assert (changed.place / "GITHUB_STEP_SUMMARY").read_text() == report

    assert changed.step("Comment").returncode == 0
    (changed.place / "comments").write_text("4711\n")
    assert changed.step("Comment").returncode == 0
    _, first, _, second = (changed.place / "GH_LOG").read_text().splitlines()
    body = f"--field body=@{changed.outputs['file']}"
    assert first == f"api --silent repos/shop/app/issues/7/comments {body}"
    assert second == f"api --silent --method PATCH repos/shop/app/issues/comments/4711 {body}"


def test_a_comment_that_cannot_be_written_does_not_fail_the_job(
    changed: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changed.step("Report", rules="app/rules.yaml").returncode == 0
    assert "1 event a second: " in Path(changed.outputs["file"]).read_text()
    monkeypatch.setenv("GH_FAILS", "yes")
    done = changed.step("Comment")
    assert (done.returncode, done.stdout.startswith("::warning title=Report::The comment was not written.")) == (
        0,
        True,
    )


def test_the_page_of_apply_is_reported_or_why_there_is_none(
    changed: Repository, monkeypatch: pytest.MonkeyPatch, ministack_url: str
) -> None:
    """Without a terminal, and without --yes, `apply` writes nothing."""
    for name, value in {"URL": ministack_url, "ID": "test"}.items():
        monkeypatch.setenv({"URL": "AWS_ENDPOINT_URL", "ID": "AWS_ACCESS_KEY_ID"}[name], value)
    assert changed.step("Report", rules="app/rules.yaml", stack="shop").returncode == 0
    report = Path(changed.outputs["file"]).read_text()
    assert "#### What apply would do\n\n    projections: stack shop: there is no such stack." in report
    assert "- set.greatest added" in report


def test_mistakes_fail_the_check(tmp_path: Path) -> None:
    repository = Repository(tmp_path, EXAMPLE, EXAMPLE.replace("from: Order", "from: Ordre", 1))
    done = repository.step("Check", rules="app/rules.yaml")
    assert done.returncode == 1
    assert 'unknown entity "Ordre" (did you mean "Order"?)' in done.stdout


def test_a_new_rule_file_is_reported(tmp_path: Path) -> None:
    repository = Repository(tmp_path, "", EXAMPLE)
    assert repository.step("Report", rules="app/rules.yaml").returncode == 0
    assert "is new: deploy it" in Path(repository.outputs["file"]).read_text()


def test_rules_of_the_base_that_are_invalid_do_not_prevent_their_correction(tmp_path: Path) -> None:
    repository = Repository(tmp_path, EXAMPLE.replace("from: Order", "from: Ordre", 1), EXAMPLE)
    done = repository.step("Report", rules="app/rules.yaml")
    assert done.returncode == 0, done.stderr
    assert 'unknown entity "Ordre"' in done.stderr
    report = Path(repository.outputs["file"]).read_text()
    assert "The rules of the base branch cannot be compared" in report
    assert "1 event a second: " in report


def test_a_change_that_retires_the_last_rule_is_reported(tmp_path: Path) -> None:
    before, _, _ = EXAMPLE.partition("projections:")
    rules = before + "projections:\n  orders: { from: Order, aggregate: { into: Customer, set: { n: count } } }\n"
    repository = Repository(tmp_path, rules, before + "projections: {}\nretired: { orders: remove }\n")
    done = repository.step("Report", rules="app/rules.yaml")
    assert done.returncode == 0, done.stderr
    report = Path(repository.outputs["file"]).read_text()
    assert "orders" in report.partition("#### Estimated cost")[0]
    assert "no rule reads an entity that the application writes" in report


def test_without_a_pull_request_there_is_a_summary(changed: Repository) -> None:
    changed.base = ""
    assert changed.step("Report", rules="app/rules.yaml").returncode == 0
    assert "No pull request" in (changed.place / "GITHUB_STEP_SUMMARY").read_text()


def test_the_texts_of_steps_hold_no_expressions() -> None:
    """An input that is inserted into a script could run commands: inputs are environment variables."""
    assert [name for name, step in STEPS.items() if "${{" in step["run"]] == []
    assert all(step["shell"] == "bash" for step in STEPS.values())


NAMES = (
    '"; touch owned; `touch owned`$(touch owned) ".yaml',
    '") | env.GH_TOKEN | ("',
    "--help",
    "a <img src=x> b.yaml",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_a_rule_file_is_never_part_of_a_program(changed: Repository, name: str) -> None:
    (changed.tree / name).write_text(EXAMPLE)
    assert changed.step("Check", rules=name).returncode == 0
    assert changed.step("Report", rules=name).returncode == 0
    assert changed.step("Comment").returncode == 0
    assert list(changed.tree.rglob("owned")) == []
    head, line = Path(changed.outputs["file"]).read_text().splitlines()[:2]
    assert re.fullmatch(r"<!-- dynamodb-projections: [0-9a-f]{16} -->", head)
    assert re.fullmatch(r"[a-zA-Z0-9./_?-]+ is new: deploy it, then run `projections apply`.", line)
    log = (changed.place / "GH_LOG").read_text()
    assert "--jq [.[] | select(.body | startswith(env.MARK)) | .id][0] // empty\n" in log


def test_nothing_of_the_pull_request_is_imported_when_the_action_is_installed(changed: Repository) -> None:
    """`python -m pip` imports a directory `pip` of the working directory first."""
    for module in ("pip", "venv", "ensurepip", "hatchling", "encodings", "sitecustomize"):
        (changed.tree / module).mkdir()
        (changed.tree / module / "__init__.py").write_text(f"open({str(changed.tree / 'owned')!r}, 'w')")
        (changed.tree / module / "__main__.py").write_text("")
    (changed.tree / "pyproject.toml").write_text("[build-system]\nrequires = []\nbuild-backend = 'pip'\n")
    done = changed.step("Install")
    assert done.returncode == 0, done.stderr
    assert not (changed.tree / "owned").exists()
    assert changed.step("Check", rules="app/rules.yaml").returncode == 0


def test_the_base_is_read_with_the_token_if_the_checkout_lacks_it(changed: Repository) -> None:
    """The checkout keeps no credentials: a script of the pull request would find them in its configuration."""
    archive = changed.place / "base.tar.gz"
    changed.git("archive", "--prefix", "shop-app-1/", "--output", str(archive), changed.base)
    changed.git("checkout", "--quiet", "--orphan", "alone")
    changed.commit((changed.tree / "app/rules.yaml").read_text())
    for branch in ("master", "main"):
        if changed.git("branch", "--list", branch):
            changed.git("branch", "--quiet", "-D", branch)
    changed.git("reflog", "expire", "--expire=all", "--all")
    changed.git("gc", "--quiet", "--prune=now")
    (changed.place / "comments").write_bytes(archive.read_bytes())
    done = changed.step("Report", rules="app/rules.yaml")
    assert done.returncode == 0, done.stderr
    assert f"api repos/shop/app/tarball/{changed.base}" in (changed.place / "GH_LOG").read_text()
    assert "- set.greatest added: `max(number(total))`" in Path(changed.outputs["file"]).read_text()


@pytest.mark.parametrize(
    ("path", "checked"),
    [
        ("rules.yaml", True),
        ("app/rules.json", True),
        ("app/overrules.yaml", False),
        ("tests/orders.projections.yaml", False),
    ],
)
def test_the_hook_is_for_rule_files(path: str, checked: bool) -> None:
    assert bool(re.search(HOOK["files"], path)) == checked


def test_pre_commit_refuses_a_mistake(tmp_path: Path) -> None:
    """pre-commit installs this package from a clone, as in a user's repository."""
    uv = Path(sys.executable).with_name("uv")
    if not uv.exists():
        unavailable("uv is not installed")
    package = tmp_path / "package"
    copy_sources(package, but=("tests/", "docs/"))
    repository = Repository(tmp_path, EXAMPLE, EXAMPLE.replace("from: Order", "from: Ordre", 1))
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "--quiet"], ["add", "--all"], [*who, "commit", "--quiet", "--message", "all"]):
        subprocess.run(["git", *command], cwd=package, check=True, capture_output=True)
    command = f"{uv} tool run --quiet pre-commit>=4,<5 try-repo {package} {HOOK['id']} --all-files".split()
    environment = {**os.environ, "PRE_COMMIT_HOME": str(tmp_path / "cache")}
    environment.pop("PYTHONPATH", None)

    done = subprocess.run(
        command, cwd=repository.tree, env=environment, text=True, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Ordre" in done.stdout

"""The functions' package: locked with hashes for every platform, the same bytes from every build, each licence known."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from emulators import unavailable
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from sam_cli import AWS
from sbom import BOM, LOCKS, PAGE, ROOT, licences, named, page, pins

from projections import __version__

UV = Path(sys.executable).with_name("uv")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS: dict[str, list[str]] = {**PROJECT["dependency-groups"], "cli": PROJECT["project"]["dependencies"]}
LICENCES = {
    *("Apache-2.0", "BSD-2-Clause", "MIT", "MIT-0", "PSF-2.0"),
    *("Apache Software License", "BSD License"),  # as older packages declare them
}
"""Permissive ones. Before you add another, read what it requires of those who deploy the functions."""


def make(*arguments: str, cwd: Path = ROOT, **environment: str) -> str:
    """Runs a target of the makefile without reinstalling the environment that runs the tests."""
    done = subprocess.run(
        ["make", "-s", "-o", ".venv/.ready", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def uv() -> Path:
    if not UV.exists():
        unavailable("uv is not installed: `make .venv/.ready` installs it")
    return UV


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("group", LOCKS)
def test_a_lock_pins_what_its_group_allows(group: str) -> None:
    locked = pins(LOCKS[group])
    for text in GROUPS[group]:
        wanted = Requirement(text)
        (pin,) = locked[canonicalize_name(wanted.name)].specifier
        assert pin.operator == "=="
        assert wanted.specifier.contains(pin.version), text


def test_the_groups_require_what_the_project_requires() -> None:
    assert set(GROUPS["functions"]) | set(GROUPS["boto3"]) < set(PROJECT["project"]["dependencies"])
    assert GROUPS["build"] == PROJECT["build-system"]["requires"]
    assert set(GROUPS) == set(LOCKS)


def test_locks_that_are_combined_pin_the_same_versions() -> None:
    together: dict[str, str] = {}
    for group in ("functions", "boto3", "tracing", "cli"):
        for name, pin in pins(LOCKS[group]).items():
            assert together.setdefault(name, str(pin)) == str(pin), name


@pytest.mark.deep
def test_locks_are_the_output_of_make_lock(tmp_path: Path, uv: Path) -> None:
    """With the versions kept: a newer release is no failure, a change of pyproject.toml without `make lock` is."""
    copies = {path.relative_to(ROOT): path.read_text() for path in LOCKS.values()}
    for name, text in copies.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    make("lock", "UPGRADE=", f"LOCKED={tmp_path}/")
    assert {name: (tmp_path / name).read_text() for name in copies} == copies


@pytest.mark.deep
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14", "3.15"])
@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_every_lambda_platform_has_a_wheel_of_each_part(machine: str, python: str, tmp_path: Path, uv: Path) -> None:
    locks = [argument for group in ("functions", "boto3", "tracing") for argument in ("-r", str(LOCKS[group]))]
    done = subprocess.run(
        [
            *(
                str(uv),
                "pip",
                "install",
                "--dry-run",
                "--target",
                str(tmp_path),
                "--only-binary=:all:",
                "--require-hashes",
            ),
            *("--python-platform", f"{machine}-manylinux2014", "--python-version", python, *locks),
        ],
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_build_installs_nothing_without_a_hash() -> None:
    planned = make("-n", "build-StreamFunction", "ARTIFACTS_DIR=/tmp/none", "BUNDLE_BOTO3=1", "TRACING=1")
    (install,) = [line for line in planned.replace("\\\n", " ").splitlines() if " -m pip install " in line]
    assert "--require-hashes" in install
    assert "--only-binary=:all:" in install
    assert [word for word in install.split() if word.endswith('.txt"')] == [
        f'"$ARTIFACTS_DIR/handlers/{LOCKS[group].name}"' for group in ("functions", "boto3", "tracing")
    ]


def build(directory: Path, seed: str) -> Path:
    directory.mkdir(parents=True)
    make(
        *("build-StreamFunction", f"ARTIFACTS_DIR={directory}", "LAMBDA_PLATFORM=native", "BUNDLE_BOTO3=1"),
        f"BUILD_PYTHON={sys.executable}",
        PYTHONHASHSEED=seed,
    )
    return directory


@pytest.mark.deep
def test_two_builds_in_different_directories_are_the_same_bytes_and_start_with_nothing_else(tmp_path: Path) -> None:
    """No pydantic, no YAML, no command line: with the standard library and the package alone the handlers are wired."""
    built = build(tmp_path / "one", "1")
    first, second = files(built), files(build(tmp_path / "another/deeper", "2"))
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert [name for name in first if name.startswith("projections/") and name.endswith(".pyc")]
    assert {"handlers/sbom.cdx.json", "rules.json"} <= first.keys()
    program = (
        "import sys; sys.path.append(sys.argv[1]); import handlers.audit, handlers.stream, handlers.worker; "
        "print([n for n in ('pydantic', 'yaml', 'click', 'aws_xray_sdk') if n in sys.modules])"
    )
    environment = {
        "TABLE_NAME": "app",
        "LEDGER_TABLE_NAME": "ledger",
        "RULES_FILE": str(built / "rules.json"),
        "QUARANTINE_QUEUE_URL": "http://127.0.0.1:1/queue",
        "TASK_QUEUE_URL": "http://127.0.0.1:1/tasks",
        "POWERTOOLS_SERVICE_NAME": "test",
        **AWS,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(built)],
        env=environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


@pytest.mark.deep
def test_a_package_whose_bytes_differ_from_the_lock_is_refused(tmp_path: Path) -> None:
    """As if the files on the package index had been replaced."""
    lock = tmp_path / "requirements.txt"
    lock.write_text(re.sub(r"sha256:\w+", "sha256:" + "0" * 64, LOCKS["functions"].read_text()))
    planned = make("-n", "build-StreamFunction", f"ARTIFACTS_DIR={tmp_path}", f"BUILD_PYTHON={sys.executable}")
    (install,) = [line for line in planned.replace("\\\n", " ").splitlines() if " -m pip install " in line]
    done = subprocess.run(
        shlex.split(
            install.replace("$ARTIFACTS_DIR/handlers/", f"{tmp_path}/").replace("$ARTIFACTS_DIR", str(tmp_path))
        ),
        text=True,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_sbom_lists_exactly_the_locked_packages() -> None:
    bom = json.loads(BOM.read_text())
    always = pins(LOCKS["functions"])
    locked = {name: pin for group in ("functions", "boto3", "tracing") for name, pin in pins(LOCKS[group]).items()}
    listed = named(bom)
    assert {name: f"=={one['version']}" for name, one in listed.items()} == {
        name: str(pin.specifier) for name, pin in locked.items()
    }, "run `make sbom`"
    assert {name for name, one in listed.items() if one["scope"] == "required"} == set(always)
    assert bom["metadata"]["component"]["version"] == __version__
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")


def test_every_part_has_a_licence_that_allows_deploying_it() -> None:
    found = {name: licences(one) for name, one in named(json.loads(BOM.read_text())).items()}
    assert {name: said for name, said in found.items() if not said or not set(said) <= LICENCES} == {}


def test_the_page_of_licences_is_current() -> None:
    assert PAGE.read_text() == page(json.loads(BOM.read_text())), "run `make sbom`"

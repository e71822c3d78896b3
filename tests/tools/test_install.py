"""The wheel in an environment of its own, right after `pip install`: no extras, nothing of this repository on the path."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from emulators import unavailable
from sources import copy_sources

from projections import __version__
from tests.yaml_text import yaml_data

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("install")]  # one wheel and one environment for all

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("AWS_", "LOCALSTACK_", "PYTEST_", "COV_")) and name not in ("PYTHONPATH", "EDGE_PORT")
}


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and without extras; commands run in `place`."""

    python: Path
    place: Path

    def run(self, *arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.python.with_name(arguments[0])), *arguments[1:]],
            cwd=cwd or self.place,
            env=CLEAN | environment,
            text=True,
            capture_output=True,
            timeout=120,
            check=False,
        )

    def projections(self, *arguments: str, cwd: Path | None = None, **environment: str) -> tuple[int, str, str]:
        done = self.run("projections", *arguments, cwd=cwd, **environment)
        return done.returncode, done.stdout, done.stderr


def built(directory: Path) -> dict[str, Path]:
    """Name → wheel and sdist, made by `make dist` from a copy of this repository's files."""
    copy_sources(directory)
    (directory / ".venv").symlink_to(Path(sys.executable).parents[1])
    made = subprocess.run(
        ["make", "-s", "-o", ".venv/.ready", "dist"],
        cwd=directory,
        env=CLEAN | {"SOURCE_DATE_EPOCH": "1767225600"},
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return {path.name: path for path in sorted((directory / "dist").glob("*-*"))}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    if not UV.exists():
        unavailable("uv is not installed: `make .venv/.ready` installs it")
    return built(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def installed(distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return environment(distributions, tmp_path_factory.mktemp("installed"))


def environment(distributions: dict[str, Path], place: Path, *others: str) -> Installed:
    python = place / "venv/bin/python"
    (wheel,) = [path for name, path in distributions.items() if name.endswith(".whl")]
    uv("venv", "--python", sys.executable, str(place / "venv"))
    uv("pip", "install", "--python", str(python), str(wheel), *others)
    return Installed(python, place)


@pytest.fixture(scope="module")
def project(installed: Installed) -> Path:
    code, _, err = installed.projections("init", "shop")
    assert code == 0, err
    return installed.place / "shop"


def uv(*arguments: str) -> None:
    subprocess.run([str(UV), *arguments], check=True, capture_output=True, timeout=300)


def test_wheel_and_sdist_are_the_same_bytes_from_another_directory(
    distributions: dict[str, Path], tmp_path: Path
) -> None:
    again = built(tmp_path / "another/place")
    sums = [
        {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in of.items()} for of in (again, distributions)
    ]
    assert sums[0] == sums[1]
    assert len(again) == 2
    (wheel,) = [path for name, path in again.items() if name.endswith(".whl")]
    metadata = zipfile.ZipFile(wheel).read(f"dynamodb_projections-{__version__}.dist-info/METADATA").decode()
    assert re.findall(r"\]\((?!https:)", metadata) == []
    assert "Licence: Apache-2.0, with the licences of the deployed packages." in metadata


@pytest.mark.parametrize(("tag", "code"), [(f"v{__version__}", 0), (f"v{__version__}0", 1)])
def test_a_release_has_the_version_of_its_tag_and_valid_metadata(
    distributions: dict[str, Path], tag: str, code: int
) -> None:
    (workflow,) = (ROOT / ".github/workflows").glob("*.yml")
    steps = {step["name"]: step.get("run") for step in yaml_data(workflow.read_text())["jobs"]["build"]["steps"]}
    script = f"{steps['Check the tag']}\n{steps['Check the metadata']}"
    place = next(iter(distributions.values())).parents[1]
    environment = CLEAN | {"GITHUB_REF_NAME": tag}
    done = subprocess.run(["bash", "-eo", "pipefail", "-c", script], cwd=place, env=environment, capture_output=True)
    assert done.returncode == code, done.stdout + done.stderr
    uv("tool", "run", "zizmor@1.32.0", "--offline", str(workflow), str(ROOT / "action.yml"))


COMMANDS = """check; check --template template.yaml; client rules.yaml; cost events/items.json; diff rules.yaml rules.yaml;
explain events/items.json; graph; graph --format html; replay events/items.json events/later-changes.json; check --schema;
template rules.yaml"""


@pytest.mark.parametrize("line", COMMANDS.split(";"))
def test_a_new_projects_commands_work(installed: Installed, project: Path, line: str) -> None:
    code, out, err = installed.projections(*line.split(), cwd=project)
    assert (code, err) == (0, "")
    assert out


def test_simulate_asks_for_its_extra(installed: Installed, project: Path) -> None:
    code, out, err = installed.projections("simulate", "--rules", "rules.yaml", cwd=project)
    assert (code, out) == (2, "")
    assert err == (
        "projections: The simulation needs the package greenlet, which is not installed. "
        "Install it: pip install 'dynamodb-projections[simulate]'\n"
    )


def test_a_colleague_installs_a_new_project_and_runs_its_tests(
    project: Path, distributions: dict[str, Path], tmp_path: Path
) -> None:
    """In another directory, from the project's files alone: the wheel that it came from may be gone."""
    (wheel,) = [path for name, path in distributions.items() if name.endswith(".whl")]
    (line,) = [one for one in (project / "requirements.txt").read_text().splitlines() if not one.startswith("#")]
    assert line == f"./vendor/{wheel.name}[test]"

    def contents(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}

    assert contents(project / "vendor" / wheel.name) == contents(wheel)
    clone = tmp_path / "clone"
    shutil.copytree(project, clone)
    python = clone / ".venv/bin/python"
    uv("venv", "--seed", "--python", sys.executable, str(clone / ".venv"))
    one = Installed(python, clone)
    done = one.run("python", "-m", "pip", "install", "--quiet", "-r", "requirements.txt")
    assert done.returncode == 0, done.stderr
    done = subprocess.run(["make"], cwd=clone, env=CLEAN, text=True, capture_output=True, timeout=120, check=False)
    assert (done.returncode, "5 passed" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize(("extra", "modules"), [("localstack", "localstack_client"), ("test", "pytest, greenlet")])
def test_the_sdist_installs_with_each_extra(
    distributions: dict[str, Path], extra: str, modules: str, tmp_path: Path
) -> None:
    (sdist,) = [path for name, path in distributions.items() if name.endswith(".tar.gz")]
    python = tmp_path / "venv/bin/python"
    uv("venv", "--python", sys.executable, str(tmp_path / "venv"))
    uv("pip", "install", "--python", str(python), f"dynamodb-projections[{extra}] @ {sdist.as_uri()}")
    done = Installed(python, tmp_path).run("python", "-c", f"import projections, {modules}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("version", ["3.13", "3.14", "3.15"])
def test_a_project_works_with_each_python(distributions: dict[str, Path], version: str, tmp_path: Path) -> None:
    """Checks, tests, and a short simulation of the same project, with each interpreter that this machine has."""
    (wheel,) = [path for name, path in distributions.items() if name.endswith(".whl")]
    python = tmp_path / "venv/bin/python"
    uv("venv", "--python", interpreter(version), str(tmp_path / "venv"))
    uv("pip", "install", "--python", str(python), f"dynamodb-projections[test] @ {wheel.as_uri()}")
    one = Installed(python, tmp_path)
    assert one.run("python", "--version").stdout.startswith(f"Python {version}.")
    assert one.projections("init", "shop")[0] == 0
    shop = tmp_path / "shop"
    for arguments in (("check",), ("replay", "events/items.json", "events/later-changes.json")):
        code, out, err = one.projections(*arguments, cwd=shop, PYTHONWARNINGS="error::DeprecationWarning:projections")
        assert (code, err) == (0, ""), err
        assert out
    code, out, err = one.projections("simulate", "--rules", "rules.yaml", "--histories", "20", "--seed", "1", cwd=shop)
    assert (code, err) == (0, ""), err + out
    done = one.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=shop)
    assert done.returncode == 0, done.stdout + done.stderr


def interpreter(version: str) -> str:
    """An interpreter of this version: the running one, on the path, or of pyenv. Skips if there is none."""
    if sys.version_info[:2] == tuple(int(part) for part in version.split(".")):
        return sys.executable
    places = [shutil.which(f"python{version}")]
    places += [str(path) for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), reverse=True)]
    for place in places:
        if place and subprocess.run([place, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return place
    pytest.skip(f"this machine has no Python {version}")


@pytest.mark.parametrize("name", ["LOCALSTACK_HOST", "EDGE_PORT"])
def test_localstacks_variables_ask_for_its_extra(installed: Installed, project: Path, name: str) -> None:
    asked = ("verify", "--rules", "rules.yaml", "--table", "app", "--ledger", "ledger")
    code, out, err = installed.projections(*asked, cwd=project, **{name: "4566"})
    assert (code, out) == (2, "")
    assert err == (
        f"projections: The environment variable {name} needs the package localstack-client, which is not installed. "
        "Install it: pip install 'dynamodb-projections[localstack]'\n"
    )


def test_the_functions_package_is_made_from_the_wheel(installed: Installed, project: Path, tmp_path: Path) -> None:
    done = installed.run("python", "-m", "projections.deploy.package", str(project / "rules.yaml"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "rules.json").read_text())["projections"]
    for path in (ROOT / "handlers").glob("*.*"):
        assert (tmp_path / "handlers" / path.name).read_bytes() == path.read_bytes()


def test_pytest_without_the_extra_runs_tests_of_rules_and_asks_for_it_in_a_simulation(
    distributions: dict[str, Path], project: Path, tmp_path: Path
) -> None:
    """The plugin is found by its entry point."""
    with_pytest, place = environment(distributions, tmp_path, "pytest>=8.4,<9.2"), tmp_path
    shutil.copyfile(project / "rules.yaml", place / "rules.yaml")
    (place / "test_rules.py").write_text(
        "def test_a_customer(projections):\n"
        "    projections.put({'PK': 'CUSTOMER#c1', 'SK': 'PROFILE', 'customerId': 'c1'})\n"
        "    assert projections.item(['CUSTOMER#c1', 'PROFILE'])\n\n"
        "def test_histories(projections):\n"
        "    projections.assert_simulation(histories=3)\n"
    )
    done = with_pytest.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_rules.py")
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "pip install 'dynamodb-projections[simulate]'" in done.stdout

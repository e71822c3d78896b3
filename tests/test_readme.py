"""The README and docs/start.md: what they show is what a reader gets."""

from __future__ import annotations

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from projections.aws.clients import client
from projections.aws.live_tables import create_table
from projections.cli.main import main
from projections.language.loader import load, loads
from projections.language.program import Program
from projections.language.values import wire

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
START = (ROOT / "docs/start.md").read_text()
PAGES = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def test_the_readme_is_short() -> None:
    assert len(README.split()) <= 814


def test_its_test_command_is_the_one_that_ci_runs() -> None:
    """`.ci/run` runs what a newcomer would."""
    assert "make test\n" in blocks("sh")
    assert re.search(r"\bmake test\b", (ROOT / ".ci/run").read_text())


def test_the_output_it_shows_is_the_demos() -> None:
    shown, _ = blocks("text")
    command = re.search(r"^demo:.*\n\t\$\(BIN\)/projections (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command is not None
    arguments = [str(ROOT / part) if "/" in part else part for part in command[1].split()]
    program = Path(sys.executable).parent / "projections"
    output = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    lines = [line.rstrip() for line in output.splitlines()]
    assert [line for line in shown.splitlines() if line.rstrip() not in lines] == []


def test_the_rules_it_shows_are_rules_and_those_of_the_shipped_file() -> None:
    shown, _ = blocks("yaml")
    rules = loads("table: {key: [PK, SK], indexes: {GSI2: [GSI2PK, GSI2SK]}}\n" + shown)
    shipped = load(ROOT / "projections/rules/social.yaml").document()
    for name, rule in rules.document()["projections"].items():
        assert rule == shipped["projections"][name], name


def test_the_test_that_start_shows_passes(tmp_path: Path) -> None:
    (shown,) = blocks("python", START)
    (tmp_path / "test_rules.py").write_text(shown)
    (tmp_path / "rules.yaml").write_text((ROOT / "projections/rules/social.yaml").read_text())
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


COMMANDS_OF_START = sorted(
    {
        line
        for line in [*"\n".join(blocks("sh", START)).splitlines(), *re.findall(r"`([^`]+)`", START)]
        if line.startswith("projections ") and "NAME" not in line
    }
)


@pytest.mark.parametrize("line", COMMANDS_OF_START)
def test_a_command_has_the_options_that_start_gives_it(line: str) -> None:
    name, *arguments = shlex.split(line.partition(" > ")[0])[1:]
    command = importlib.import_module(f"projections.cli.{name}").command
    command.make_context(name, arguments, resilient_parsing=True, help_option_names=["-h", "--help"])


def test_every_extra_that_a_page_names_exists() -> None:
    """Conversely, docs/start.md names every extra for users."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("projections/init/files/*")]
    named = {
        extra
        for page in pages
        for extras_named in re.findall(r"(?:dynamodb-projections|pip install '\.)\[([\w,]+)\]", page.read_text())
        for extra in extras_named.split(",")
    }
    assert named <= extras
    assert set(re.findall(r"pip install '\.\[(\w+)\]'", START)) == extras - {"dev"}


def test_the_wrong_counters_that_it_shows_are_found(
    dynamodb_local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (_, rules), (_, shown) = blocks("yaml"), blocks("text")
    (tmp_path / "rules.yaml").write_text(rules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", dynamodb_local_url)
    create_table(client(), "gym", Program.from_document(loads(rules).document()).tables["main"], stream=False)
    for name, booked, bookings in (("c008", 21, 20), ("c024", 17, 15), ("c030", 4, 4)):
        items = [{"sk": f"BOOKING#m{number}", "status": "booked"} for number in range(bookings)]
        for item in ({"sk": "INFO", "booked": booked}, {"sk": "BOOKING#x", "status": "cancelled"}, *items):
            image = {key: wire(value) for key, value in {"pk": f"CLASS#{name}", **item}.items()}
            client().put_item(TableName="gym", Item=image)
    (command,) = (line for line in "".join(blocks("sh")).splitlines() if "verify" in line)
    with pytest.raises(SystemExit):
        main([*command.split()[1:], "--patience", "0"])
    printed = capsys.readouterr()
    assert [line.rstrip() for line in printed.out.splitlines()][:3] == shown.splitlines()
    assert "warning" not in printed.err, "of what only a deployment needs"


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", "\n".join(blocks("sh")))) <= targets
    for name in ("CONTRIBUTING.md", "SECURITY.md", "docs/cost.md", "docs/licences.md"):
        assert set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text())) <= targets, name


GENERATED = {"cli.md", "findings.md", "testing.md"}
"""Pages in docs/ that a program writes."""


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_files_and_headings(page: str) -> None:
    text = (ROOT / page).read_text()
    for path, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([\w-]+))?\)", text):
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.name in GENERATED or target.exists(), path
        if anchor:
            assert anchor in {
                re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")
                for heading in re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            }, anchor


def test_the_picture_shows_the_rules_of_the_page() -> None:
    """The picture has a box for each of these rules."""
    (picture,) = re.findall(r"!\[[^]]+\]\((.+?)\)", README)
    drawn = (ROOT / picture).read_text()
    rules = re.search(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert rules is not None
    names = re.findall(r"^  (\w+):", rules[1], re.MULTILINE)
    assert len(names) == 6
    assert [name for name in names if f">{name}</text>" not in drawn] == []

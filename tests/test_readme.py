"""What the README shows is what a reader gets."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

from projections.language.loader import load, loads

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_output_it_shows_is_the_demos() -> None:
    (shown,) = blocks("text")
    command = re.search(r"^demo:.*\n\t\$\(BIN\)/projections (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert command is not None
    arguments = [str(ROOT / part) if "/" in part else part for part in command[1].split()]
    program = Path(sys.executable).parent / "projections"
    output = subprocess.run([program, *arguments], capture_output=True, text=True, check=True).stdout
    lines = [line.rstrip() for line in output.splitlines()]
    assert [line for line in shown.splitlines() if line.rstrip() not in lines] == []


def test_the_rules_it_shows_are_rules_and_those_of_the_shipped_file() -> None:
    (shown,) = blocks("yaml")
    rules = loads("table: {key: [PK, SK], indexes: {GSI2: [GSI2PK, GSI2SK]}}\n" + shown)
    shipped = load(ROOT / "projections/rules/social.yaml").canonical()
    for name, rule in rules.canonical()["projections"].items():
        assert rule == shipped["projections"][name], name


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z-]+)", "\n".join(blocks("sh")))) <= targets


def test_the_test_it_shows_passes(tmp_path: Path) -> None:
    (shown,) = blocks("python")
    (tmp_path / "test_rules.py").write_text(textwrap.dedent(shown))
    (tmp_path / "rules.yaml").write_text((ROOT / "projections/rules/social.yaml").read_text())
    done = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "1 passed" in done.stdout) == (0, True), done.stdout


def test_every_extra_that_a_page_names_exists() -> None:
    """And the other way round: the README names every extra for users."""
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("projections/init/files/*")]
    named = {
        extra
        for page in pages
        for extras_named in re.findall(r"(?:dynamodb-projections|pip install '\.)\[([\w,]+)\]", page.read_text())
        for extra in extras_named.split(",")
    }
    assert named <= extras
    assert set(re.findall(r"pip install '\.\[(\w+)\]'", README)) == extras - {"dev"}


def test_every_make_target_of_the_other_pages_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in ("CONTRIBUTING.md", "SECURITY.md", "docs/licences.md"):
        assert set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text())) <= targets, name

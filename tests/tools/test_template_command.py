"""Files that commands generate again (`template -o` and others): what was edited in one is not lost silently."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from projections.cli import options as command
from projections.deploy.checksum import UNSIGNED, is_as_written, with_checksum

RULES = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
"""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def generated(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A template of these rules, in the working directory."""
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    assert again(run) == (0, "", "Wrote template.yaml.\n")
    return Path("template.yaml")


def again(run: Run, *options: str) -> tuple[int, str, str]:
    return run("template", "rules.yaml", "-o", "template.yaml", *options)


def edit(path: Path) -> str:
    text = path.read_text().replace("MemorySize:", "MemorySize: # ours", 1)
    path.write_text(text)
    return text


def test_template_without_edits_follows_the_rules(run: Run, generated: Path) -> None:
    before = generated.read_text()
    Path("rules.yaml").write_text(RULES.replace("[PK, SK]", "[PK, SK], ttl: goneAt"))
    assert again(run) == (0, "", "Wrote template.yaml.\n")
    assert "AttributeName: goneAt" in generated.read_text()
    assert "AttributeName: goneAt" not in before
    generated.write_bytes(before.replace("\n", "\r\n").encode())
    assert again(run) == (0, "", "Wrote template.yaml.\n"), "other line ends are not an edit"


def test_edits_are_shown_and_kept(run: Run, generated: Path) -> None:
    edited = edit(generated)
    code, out, err = again(run)
    assert code == 2
    assert generated.read_text() == edited
    assert "--- template.yaml\n+++ template.yaml (new)\n" in out
    changed = [line for line in out.splitlines() if line.startswith(("-", "+")) and not line.startswith(("---", "+++"))]
    assert [line[:1] + line[1:].strip() for line in changed] == ["-MemorySize: # ours", "+MemorySize:"]
    assert "template.yaml was edited since it was written" in err
    assert "or pass --force" in err


def test_force_overwrites_edits(run: Run, generated: Path) -> None:
    before = generated.read_text()
    edit(generated)
    assert again(run, "--force") == (0, "", "Wrote template.yaml.\n")
    assert generated.read_text() == before


@pytest.mark.parametrize("agrees", [True, False])
def test_on_a_terminal_the_command_asks(
    run: Run, generated: Path, monkeypatch: pytest.MonkeyPatch, agrees: bool
) -> None:
    before, asked = generated.read_text(), []

    def confirm(question: str, default: bool) -> bool:
        asked.append((question, default))
        return agrees

    edited = edit(generated)
    monkeypatch.setattr(click, "confirm", confirm)
    monkeypatch.setattr(command, "interactive", lambda: True)
    code, out, _ = again(run)
    assert (code, generated.read_text()) == ((0, before) if agrees else (1, edited))
    assert "+++ template.yaml (new)" in out
    ((question, default),) = asked
    assert (question.endswith("Overwrite it?"), default) == (True, False)


@pytest.mark.parametrize("content", [b"Resources: {}\n", b"", b"\xff\xfe"])
def test_file_that_is_no_generated_template_is_kept(run: Run, generated: Path, content: bytes) -> None:
    generated.write_bytes(content)
    assert again(run)[0] == 2
    assert generated.read_bytes() == content


COMMANDS = {
    "SAM template": ("template",),
    "CloudFormation template": ("template", "--format", "cloudformation"),
    "template for CDK": ("template", "--format", "cdk"),
    "CDK construct": ("template", "--format", "cdk-typescript"),
    "client": ("client",),
}


@pytest.mark.parametrize("words", [*COMMANDS.values()][::2])
def test_generated_file_is_written_again_unless_it_was_edited(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    command, *options = words

    def write(*more: str) -> tuple[int, str, str]:
        return run(command, *options, "-o", "out", *more)

    assert write()[0] == 0
    written = Path("out").read_text()
    assert is_as_written(written)
    if written.startswith("{"):
        json.loads(written)
    Path("rules.yaml").write_text(RULES.replace("Like", "Clap").replace("[PK, SK]", "[PK, SK], ttl: goneAt"))
    assert write()[0] == 0, "a file without edits follows the rules"
    followed = Path("out").read_text()
    assert is_as_written(followed)
    edited = followed.replace("\n", "\nours\n", 1)
    Path("out").write_text(edited)
    code, out, err = write()
    assert (code, Path("out").read_text()) == (2, edited)
    assert "\n-ours\n" in out
    assert "out was edited since it was written. Overwriting it discards" in err
    assert "or pass --force" in err
    assert write("--force")[0] == 0
    assert is_as_written(Path("out").read_text())
    Path("out").write_text("ours\n")
    code, _, err = write()
    assert (code, Path("out").read_text()) == (2, "ours\n")
    assert "out was not written by this command" in err


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_printed_text_is_that_of_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text(RULES)
    command, *options = words
    code, out, _ = run(command, *options)
    assert code == 0
    assert is_as_written(out.rstrip("\n") + "\n")


def test_device_is_written_without_a_question(run: Run, generated: Path) -> None:
    assert run("template", "rules.yaml", "-o", "/dev/null") == (0, "", "Wrote /dev/null.\n")


def test_checksum_is_that_of_all_lines() -> None:
    text = with_checksum("a: 1\nb: 2\n")
    assert is_as_written(text)
    assert text.startswith("a: 1\nb: 2\n# Checksum")
    for other in (
        "",
        "a: 1\n",
        text.replace("1", "3", 1),
        text + "c: 3\n",
        text.rstrip("\n"),
        text.replace("b: 2\n", ""),
    ):
        assert not is_as_written(other), other


def test_checksum_of_a_text_that_quotes_one() -> None:
    text = with_checksum(f"{UNSIGNED}\n{with_checksum('a: 1')}")
    assert is_as_written(text)
    assert text.startswith(f"{UNSIGNED}\n")
    assert not is_as_written(text.replace("a: 1", "a: 2"))

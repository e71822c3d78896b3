"""The pages of the catalogue: what commands print in them, and the list of access patterns.

A block of type `console` holds commands after `$` and what each prints; a line `…` stands for lines left out.

    python tests/patterns/pages.py      # write what the commands print now into all pages
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

from projections.access.placeholders import condition_words, count_words
from projections.inspect.access_patterns import access_patterns
from projections.language.access.paths import TABLE
from projections.language.access.plan import queries_of
from projections.language.loader import load
from projections.language.models import Rules

__all__ = ["DIRECTORY", "Shown", "flaw", "matrix", "refreshed", "shown", "with_matrix"]

DIRECTORY = Path(__file__).parents[2] / "docs" / "patterns"
BLOCK = re.compile(r"(?<=```console\n).*?(?=^```)", re.DOTALL | re.MULTILINE)
LEFT_OUT = "…"

Shown = tuple[str, list[str]]
"""A command, as one line, and what a page shows of what it prints."""


def shown(page: str) -> Iterator[Shown]:
    """The commands of a page."""
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.replace("\\\n", "").splitlines()
            yield " ".join(command.split()), [line.rstrip() for line in lines if line.strip()]


def matrix(rules: Rules) -> str:
    """The access patterns of a rule file as a Markdown list: number, question, index, key conditions."""
    lines = []
    for one in access_patterns(rules.completed(), queries_of(rules)):
        conditions = " and ".join(f"`{condition_words(read)}`" for read in one.reads)
        where = "" if one.plan.path == TABLE else f"{one.plan.path} "
        count = count_words(one.plan)
        requests = "" if count == "1" else f" ({count} requests)"
        lines.append(f"- **{one.query.id}** {one.query.about}: {where}{conditions}{requests}")
    return "\n".join(lines) + "\n"


def with_matrix(page: str, rules: Rules) -> str:
    """The page with its list of access patterns replaced by those of the rules."""
    return re.sub(r"(?:^- \*\*AP-.*\n)+", lambda found: matrix(rules), page, count=1, flags=re.MULTILINE)


def flaw(lines: list[str], output: list[str]) -> str | None:
    """The first line that is shown and not printed there; None if all are, in order and nothing between them unsaid."""
    start = 0
    for left_out, chunk in groupby(lines, LEFT_OUT.__eq__):
        if left_out:
            continue
        wanted = list(chunk)
        at_start = lines[: len(wanted)] == wanted and start == 0
        places = [0] if at_start else range(start, len(output))
        found = next((place for place in places if output[place : place + len(wanted)] == wanted), None)
        if found is None:
            return wanted[0]
        start = found + len(wanted)
    return None if start == len(output) or lines[-1:] == [LEFT_OUT] else output[start]


def refreshed(page: str, run: Callable[[list[str]], list[str]]) -> str:
    """The page with what its commands print now. Of each line that is shown, the beginning says which it is."""

    def fresh(block: re.Match[str]) -> str:
        text = ""
        for part in re.split(r"^(?=\$ )", block[0], flags=re.MULTILINE)[1:]:
            command, *lines = re.split(r"(?<!\\)\n", part.rstrip("\n"))
            output = run(shlex.split(command.replace("\\\n", ""))[2:])
            text += "\n".join([command, *_again([line for line in lines if line.strip()], output)]) + "\n\n"
        return text.rstrip("\n") + "\n"

    return BLOCK.sub(fresh, page)


def _again(lines: list[str], output: list[str]) -> list[str]:
    if not lines:
        return output
    kept: list[str] = []
    place = 0
    for line in lines:
        words, *others = [_WORD.findall(text)[:5] for text in (line, *output[place:])]
        found = next((i for i, other in enumerate(others, place) if other[: len(words)] == words), None)
        if not words or found is None:
            continue
        if found > place:
            kept.append(LEFT_OUT)
        kept.append(output[found])
        place = found + 1
    return kept + [LEFT_OUT] * (place < len(output))


_WORD = re.compile(r"[^\W\d]+|[✓!✗]")
"""What tells which line it is are its first words, numbers aside."""


def main() -> None:
    import subprocess
    import sys

    def run(arguments: list[str]) -> list[str]:
        command = [sys.executable, "-m", "projections", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=DIRECTORY.parents[1])
        return [line.rstrip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]

    for path in sorted(DIRECTORY.glob("*.md")):
        page = path.read_text()
        rules = DIRECTORY.parents[1] / "projections" / "rules" / f"{path.stem}.yaml"
        path.write_text(refreshed(with_matrix(page, load(rules)) if rules.exists() else page, run))


if __name__ == "__main__":
    main()

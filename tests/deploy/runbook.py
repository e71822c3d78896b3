"""Runs the commands of a page of docs/runbooks as a reader would: copied into one shell, unchanged, section by section.

A block with a comment `<!-- not run: REASON -->` above it is what no emulator can execute. The page has to name its commands
under "Limits".
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Block", "Terminal", "page_blocks"]

_FENCE = re.compile(r"^( *)```(\w+)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\s*$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, without the indent of the list that it is in."""

    heading: str
    language: str
    text: str
    not_run: str
    """Why no test runs it; empty for one that is run."""


def page_blocks(page: str) -> list[Block]:
    found = []
    for fence in _FENCE.finditer(page):
        before = page[: fence.start()]
        headings = re.findall(r"^## (.*)$", before, re.MULTILINE)
        reason = _NOT_RUN.search(before)
        text = re.sub(rf"^{fence[1]}", "", fence[3], flags=re.MULTILINE)
        found.append(Block(headings[-1] if headings else "", fence[2], text, reason[1] if reason else ""))
    return found


@dataclass
class Terminal:
    """A shell whose variables last from block to block."""

    directory: Path
    environment: dict[str, str]
    ran: list[Block] = field(default_factory=list)

    def run(self, block: Block, *, patience: float = 300) -> str:
        """Run a block and return what it prints. A command that fails ends the test with all that was printed."""
        assert block.language == "sh"
        assert not block.not_run, block.not_run
        variables = self.directory / ".variables"
        variables.touch()
        script = f"set -aeo pipefail\n. {variables}\n{block.text}\nexport -p > {variables}\n"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env={**os.environ, **self.environment},
            text=True,
            capture_output=True,
            timeout=patience * float(os.environ.get("PATIENCE", "1")),
            check=False,
        )
        assert done.returncode == 0, f"{block.text}\n{done.stdout}\n{done.stderr}"
        self.ran.append(block)
        return done.stdout

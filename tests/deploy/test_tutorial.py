"""docs/tutorial.md: its commands run on MiniStack, in the order of the page, and print what the page shows."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

from emulators import ROOT, unavailable
from runbook import Block, Terminal, page_blocks
from sam_cli import SAM
from test_deploy import eventually
from test_runbooks import BUILD

PAGE = (ROOT / "docs/tutorial.md").read_text()


def test_the_tutorial_ends_with_verified_counters(emulator: str, tmp_path: Path) -> None:
    if shutil.which("aws") is None:
        unavailable("the AWS command line is not on PATH")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "sam").symlink_to(SAM)
    environment = {
        **BUILD,
        "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "AWS_ENDPOINT_URL": emulator,
        "AWS_ACCESS_KEY_ID": "111122224444",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_PAGER": "",
    }
    first, *others = (one for one in page_blocks(PAGE) if not one.not_run)
    Terminal(tmp_path, environment).run(first)
    terminal = Terminal(tmp_path / "shop", environment)
    rules = (tmp_path / "shop/rules.yaml").read_text()
    printed, last = "", first
    for block in others:
        if block.language == "sh":
            last = block
            printed = terminal.run(block)
        elif block.language == "text":
            becomes(terminal, last, block.text)
        elif block.language == "yaml":
            assert block.text in rules
    assert "✓ No drift." in printed, printed
    (reading,) = [one for one in others if "orderCount.N" in one.text]
    becomes(terminal, reading, "1 30\n")  # also after the faulty release
    average = replace(reading, text=reading.text.replace("totalSpent.N", "averageOrder.N"))
    becomes(terminal, average, "1 30\n")


def becomes(terminal: Terminal, block: Block, text: str) -> None:
    """Wait until the block prints the text."""
    eventually(lambda: {"printed": terminal.run(block).split()}, lambda found: found["printed"] == text.split(), 60)

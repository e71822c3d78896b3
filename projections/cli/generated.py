"""Files that commands write again and again: an edit in one is never lost silently."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, TypeVar

import click

from projections.cli.options import write_output
from projections.deploy.checksum import is_as_written, is_generated
from projections.errors import UsageError
from projections.terminal import count, interactive, print_line, print_text

__all__ = ["agreed", "force_option", "write_generated"]

MOST_LINES = 80
"""Lines of the difference of a file that are printed."""

F = TypeVar("F", bound=Callable[..., Any])


def force_option(function: F) -> F:
    """--force, for `write_generated`."""
    return click.option("--force", is_flag=True, help="Overwrite the file of -o even if it was edited.")(function)


def write_generated(output: str, text: str, *, force: bool) -> bool:
    """Write a text that has a checksum, and return True.

    If the file has no checksum or was edited since it was written, show the difference and ask; return False if the user
    declines. Raises UsageError without a terminal, and if the file cannot be written.
    """
    if not force and not _replaceable(Path(output), text):
        return False
    write_output(output, text)
    return True


def _replaceable(path: Path, text: str) -> bool:
    if not path.is_file():
        return True  # there is none, or it is a device or a pipe
    try:
        there = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        there = ""
    if is_as_written(there) or there == text:
        return True
    state = "was edited since it was written" if is_generated(there) else "was not written by this command"
    return agreed(
        {path: (there, text)},
        f"{path} {state}. Overwriting it discards the lines that begin with -",
        "Write to another file and merge the two, or pass --force to overwrite it",
        "Overwrite it?",
    )


def agreed(changes: Mapping[Path, tuple[str, str]], reason: str, instead: str, question: str) -> bool:
    """Show the differences between old and new texts of files, and return whether the user agrees to write the new ones.

    Without a terminal, raises UsageError with the reason, and with what to do instead.
    """
    for path, texts in changes.items():
        before, after = (text.splitlines(keepends=True) for text in texts)
        lines = list(unified_diff(before, after, str(path), f"{path} (new)"))
        print_text("".join(lines[:MOST_LINES]))
        if len(lines) > MOST_LINES:
            print_line(f"… and {count(len(lines) - MOST_LINES, 'more line', 'more lines')}")
    if not interactive():
        raise UsageError(f"{reason}. There is no terminal to ask, so nothing was written. {instead}")
    return click.confirm(f"{reason}. {question}", default=False)

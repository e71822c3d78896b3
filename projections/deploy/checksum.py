"""The checksum at the end of a generated template, which shows whether the file was edited since."""

from __future__ import annotations

import hashlib
import re

__all__ = ["is_as_written", "with_checksum"]

_LINE = re.compile(r"# Checksum of the lines above, as they were written: ([0-9a-f]{16})\n")


def with_checksum(text: str) -> str:
    """Return a generated text with a last line that has its checksum."""
    return f"{text}# Checksum of the lines above, as they were written: {_checksum(text)}\n"


def is_as_written(text: str) -> bool:
    """Return whether a text is as `with_checksum` returned it, whatever its line ends. Without a checksum it is not."""
    *lines, last = text.replace("\r\n", "\n").splitlines(keepends=True) or [""]
    found = _LINE.fullmatch(last)
    return found is not None and found[1] == _checksum("".join(lines))


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]

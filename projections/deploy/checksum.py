"""The checksum in a generated file, which shows whether the file was edited since it was written.

A file has it in a comment at its end, or in a value of a JSON document. It covers the whole text, with zeros in its place.
"""

from __future__ import annotations

import hashlib
import re

_MARK = "Checksum of this file, as it was written: "
_ZEROS = "0" * 16
UNSIGNED = _MARK + _ZEROS
"""What `signed` replaces: a value of a JSON document, or a part of a comment."""

_FOUND = re.compile(f"(?s:.*){_MARK}([0-9a-f]{{16}})")


def with_checksum(text: str, comment: str = "# {}") -> str:
    """Return a text with a last line that has its checksum, as a comment of its language."""
    return sign(f"{text}{comment.format(UNSIGNED)}\n")


def sign(text: str) -> str:
    """Return a text whose last `UNSIGNED` is replaced by the checksum."""
    before, _, after = text.rpartition(UNSIGNED)
    return f"{before}{_MARK}{_checksum(text)}{after}"


def is_generated(text: str) -> bool:
    """Return whether a text has a checksum, be it right or wrong."""
    return _FOUND.match(text) is not None


def is_as_written(text: str) -> bool:
    """Return whether a text is as `signed` returned it, whatever its line ends. Without a checksum it is not."""
    text = text.replace("\r\n", "\n")
    match = _FOUND.match(text)
    return match is not None and match[1] == _checksum(f"{text[: match.start(1)]}{_ZEROS}{text[match.end(1) :]}")


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

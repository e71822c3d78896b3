"""Files of unknown origin, read up to a limit, and the rule files in the package.

The limit keeps a device, a large file or a small archive from filling the memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

MOST_BYTES = 4 * 2**20
"""Bytes of a text that people write: rules, cases, a template."""


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def at_most(file: _Readable, most: int) -> bytes | None:
    """Return what a file, stream or archive member contains; None if this is more than `most` bytes."""
    parts, left = [], most + 1
    while left and (part := file.read(left)):  # a stream may return less than asked for
        parts.append(part)
        left -= len(part)
    return b"".join(parts) if left else None


def text_of_file(path: str | Path) -> str:
    """Return the text of a file. Raises OSError, or ValueError if it is not UTF-8 or has more than 4 MiB."""
    with Path(path).open("rb") as file:
        data = at_most(file, MOST_BYTES)
    if data is None:
        raise ValueError(f"it has more than {MOST_BYTES // 2**20} MiB")
    return data.decode("utf-8-sig")


SHIPPED = Path(__file__).parents[1] / "rules"


def bundled(name: str) -> Path | None:
    """Return the path of the bundled rule file of this name, None if there is none."""
    path = SHIPPED / f"{name}.yaml"
    return path if path.name == f"{name}.yaml" and path.is_file() else None

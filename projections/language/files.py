"""The text of rule files: reading it, and writing YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

from projections.language.values import number_text

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


def bundled_path(name: str) -> Path | None:
    """Return the path of the bundled rule file of this name, None if there is none."""
    path = SHIPPED / f"{name}.yaml"
    return path if path.name == f"{name}.yaml" and path.is_file() else None


_PLAIN = re.compile(r"[A-Za-z][\w.-]*")
_NOT_TEXT = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
_EXPRESSION = re.compile(r"[a-z]+\([\w.]+(?: \* [\w.]+)?\)", re.ASCII)


def scalar(text: str) -> str:
    """Return a text in YAML, quoted if YAML 1.1 would read another type."""
    if _PLAIN.fullmatch(text) and text.isascii() and text.lower() not in _NOT_TEXT:
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


def text(value: str) -> str:
    """Return a text, plain if every version of YAML reads it as a text, else in double quotes."""
    return value if _EXPRESSION.fullmatch(value) else scalar(value)


def flow(value: Any) -> str:
    """Return a value in flow style: `{ into: Post, set: { likeCount: count } }`."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{text(str(key))}: {flow(content)}" for key, content in value.items()) + " }"
            if value
            else "{}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(element) for element in value) + "]"
    if isinstance(value, str):
        return text(value)
    if isinstance(value, Decimal):
        return number_text(value)
    return json.dumps(value)


def block(value: Mapping[str, Any], width: int = 90, indent: str = "") -> str:
    """Return a mapping with a line for each key; a value that is a mapping is in flow style if it fits into `width`."""
    lines = []
    for key, content in value.items():
        line = f"{indent}{text(str(key))}: {flow(content)}"
        if isinstance(content, Mapping) and content and (len(line) > width or not indent):
            lines += [f"{indent}{text(str(key))}:", block(content, width, indent + "  ")]
        else:
            lines.append(line)
    return "\n".join(lines)

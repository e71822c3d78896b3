"""Parts of a rule file as YAML text on one line, in quotes only where they are needed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["flow", "name", "text"]

_PLAIN = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
_EXPRESSION = re.compile(r"[a-z]+\([\w.]+(?: \* [\w.]+)?\)", re.ASCII)


def text(value: str) -> str:
    """A text: plain where YAML reads it as a text whatever its version, else in double quotes."""
    if (_PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT) or _EXPRESSION.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable())


def name(value: str) -> str:
    """A key of a mapping."""
    return text(value)


def flow(value: Any) -> str:
    """A value in flow style: `{ into: Post, set: { likeCount: count } }`."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{name(str(key))}: {flow(one)}" for key, one in value.items()) + " }" if value else "{}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    if isinstance(value, str):
        return text(value)
    return json.dumps(value)

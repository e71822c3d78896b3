"""Parts of a rule file as YAML on one line, quoted only where necessary."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from projections.deploy.parts import scalar

__all__ = ["flow", "name", "text"]

_EXPRESSION = re.compile(r"[a-z]+\([\w.]+(?: \* [\w.]+)?\)", re.ASCII)


def text(value: str) -> str:
    """Return a text, plain if every version of YAML reads it as a text, else in double quotes."""
    return value if _EXPRESSION.fullmatch(value) else scalar(value)


def name(value: str) -> str:
    """Return a key of a mapping."""
    return text(value)


def flow(value: Any) -> str:
    """Return a value in flow style: `{ into: Post, set: { likeCount: count } }`."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{name(str(key))}: {flow(one)}" for key, one in value.items()) + " }" if value else "{}"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(one) for one in value) + "]"
    if isinstance(value, str):
        return text(value)
    return json.dumps(value)

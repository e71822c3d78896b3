"""The parts of `runtime` that a module needs, for boto3 or for aioboto3, and the imports of a module."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from projections.inspect.client.naming import WIDTH

__all__ = ["defined", "helpers", "imports", "names_in"]

IMPORTS = {
    "base64": "import base64",
    "hashlib": "import hashlib",
    "json": "import json",
    "re": "import re",
    "zlib": "import zlib",
    **dict.fromkeys(("AsyncIterator", "Callable", "Iterator", "Mapping", "Sequence"), "from collections.abc import"),
    "dataclass": "from dataclasses import",
    **dict.fromkeys(("UTC", "datetime", "timedelta", "tzinfo"), "from datetime import"),
    **dict.fromkeys(("ROUND_CEILING", "ROUND_FLOOR", "Decimal"), "from decimal import"),
    "cached_property": "from functools import",
    **dict.fromkeys(
        ("Any", "Generic", "NotRequired", "Protocol", "Required", "TypedDict", "TypeGuard", "TypeVar"),
        "from typing import",
    ),
    "ZoneInfo": "from zoneinfo import",
}
"""By name: the statement that imports it, or its beginning."""

WITHOUT_STUBS = "import-not-found, import-untyped, unused-ignore"
"""What mypy reports without boto3 or without its stubs, and with them."""

BOTO3 = ("ConditionExpressionBuilder", "Key")


class _Part(NamedTuple):
    name: str
    text: str
    needs: frozenset[str]
    simple: bool


@cache
def _parts() -> tuple[_Part, ...]:
    """Return the definitions of `runtime` in their order."""
    source = files(__package__).joinpath("runtime.py").read_text(encoding="utf-8")
    lines = source.split("\n")
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            name, simple = node.name, False
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            first, name, simple = node.lineno, node.targets[0].id, True
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, name, simple = node.lineno, node.target.id, True
        else:
            continue
        text = "\n".join(lines[first - 1 : node.end_lineno])
        found.append(_Part(name, text, names_in(text) - {name}, simple))
    return tuple(found)


def names_in(source: str) -> frozenset[str]:
    """Return the names that a text of Python uses."""
    return frozenset(node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))


def defined() -> frozenset[str]:
    """Return all names that a generated module may have without our giving them: helpers and imports."""
    return frozenset([*(part.name for part in _parts()), *IMPORTS, *BOTO3])


def helpers(used: Collection[str], guard_prefix: str, *, waits: bool) -> tuple[list[str], list[str]]:
    """Return the constants and the definitions that these names need. Without `waits`, they are for boto3."""
    by_name = {part.name: part for part in _parts()}
    wanted: set[str] = set()
    todo = [name for name in used if name in by_name]
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += by_name[name].needs & by_name.keys()
    chosen = [part for part in _parts() if part.name in wanted]
    texts = [(part, part.text if waits else _without_waiting(part.text)) for part in chosen]
    constants = [guard_prefix if part.name == "_GUARD" else text for part, text in texts if part.simple]
    return constants, [text for part, text in texts if not part.simple]


def _without_waiting(text: str) -> str:
    """Return the text of a helper for boto3."""
    text = re.sub(r"\b(?:async|await) ", "", text)
    text = text.replace("AsyncIterator", "Iterator").replace("__aiter__", "__iter__").replace("anext(", "next(")
    return _DEFINITION.sub(_on_one_line, text)


_DEFINITION = re.compile(r"(?m)^( *def \w+\()\n +(.*[^,])\n *(\) -> .*:)$")


def _on_one_line(found: re.Match[str]) -> str:
    joined = "".join(found.groups())
    return joined if len(joined) <= WIDTH else found[0]


def imports(used: Collection[str]) -> list[str]:
    """Return the import statements for these names, sorted."""
    modules: dict[str, list[str]] = {}
    for name, text in IMPORTS.items():
        if name in used:
            modules.setdefault(text, []).append(name)
    plain = [text for text in modules if text.startswith("import ")]
    lines = [*plain]
    for text, names in modules.items():
        if text not in plain:
            lines += _wrapped(text, sorted(names, key=lambda name: (not name.isupper(), name.lower())))
    boto3 = [name for name in BOTO3 if name in used]
    if boto3:
        listed = ", ".join(boto3)
        lines += ["", f"from boto3.dynamodb.conditions import {listed}  # type: ignore[{WITHOUT_STUBS}]"]
    return lines


def _wrapped(before: str, names: list[str]) -> list[str]:
    line = f"{before} {', '.join(names)}"
    return [line] if len(line) <= WIDTH else [f"{before} (", *(f"    {name}," for name in names), ")"]

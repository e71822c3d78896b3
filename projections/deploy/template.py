"""The SAM template for rules: `base.yaml` with its directives evaluated."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from projections.deploy import parts
from projections.deploy.checksum import with_checksum
from projections.deploy.needs import Deployment, TableNeeds
from projections.errors import UsageError

__all__ = ["BASE", "sam_template"]

BASE = Path(__file__).with_name("base.yaml")

_GRADUAL_TABLES = 4
"""With more tables, the name of a ledger does not fit into the 256 characters of a description."""

_DIRECTIVE = re.compile(r"(?P<indent> *)#: ?(?P<word>each|if|else|end|insert|#)(?: (?P<rest>.*))?")
_VALUE = re.compile(r"<([A-Za-z][A-Za-z ]*)>")


def sam_template(deployment: Deployment) -> str:
    """Return the text of the template with comments, and its checksum.

    Raises UsageError for names that AWS rejects, for more tables than the description of a version can name, and for keys
    that no condition can restrict.
    """
    if deployment.gradual and len(deployment.tables) > _GRADUAL_TABLES:
        raise UsageError(
            f"--gradual supports at most {_GRADUAL_TABLES} tables, and these rules have {len(deployment.tables)}: the "
            "description of a function's version names the streams in at most 256 characters. Omit --gradual"
        )
    reason = next((one.unrestricted for one in deployment.tables if one.unrestricted), "")
    if deployment.leading_keys and reason:
        raise UsageError(
            f"--leading-keys needs partition keys that begin with constant text: {reason}. Omit --leading-keys"
        )
    lines = BASE.read_text(encoding="utf-8").splitlines()
    return with_checksum("".join(f"{line}\n" for line in _written(lines, deployment, None)))


def _written(lines: list[str], deployment: Deployment, table: TableNeeds | None) -> Iterator[str]:
    facts, values = parts.facts(deployment, table), parts.values(deployment, table)
    position = 0
    while position < len(lines):
        line = lines[position]
        found = _DIRECTIVE.fullmatch(line)
        if found is None:
            yield from _line(line, facts, values)
        elif found["word"] == "each":
            position, inner, _ = _block(lines, position)
            for one in deployment.tables:
                yield from _written(inner, deployment, one)
        elif found["word"] == "if":
            position, inner, otherwise = _block(lines, position)
            yield from _written(inner if facts[found["rest"]] else otherwise, deployment, table)
        elif found["word"] == "insert":
            yield from ((found["indent"] + text).rstrip() for text in parts.part(found["rest"], deployment, table))
        position += 1


def _line(line: str, facts: dict[str, bool], values: dict[str, str]) -> Iterator[str]:
    """Yield a line with its values, if its fact holds; values of several lines are indented."""
    text, _, fact = line.partition(" #: if ")
    if fact and not facts[fact]:
        return
    indent = " " * (len(text) - len(text.lstrip()))
    first, *more = _VALUE.sub(lambda found: values[found[1]], text).split("\n")
    yield first.rstrip()
    yield from (indent + each for each in more)


def _block(lines: list[str], start: int) -> tuple[int, list[str], list[str]]:
    """Return the end of the block that begins at `start`, the lines in it, and those after its `else`."""
    depth, middle = 0, None
    for position in range(start, len(lines)):
        found = _DIRECTIVE.fullmatch(lines[position])
        word = found["word"] if found else ""
        depth += (word in ("each", "if")) - (word == "end")
        if word == "else" and depth == 1:
            middle = position
        if depth == 0:
            return position, lines[start + 1 : middle or position], lines[middle + 1 : position] if middle else []
    raise AssertionError(f"line {start + 1} of {BASE.name} is not ended")

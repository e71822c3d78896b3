"""Layout: expressions of generated code, broken into lines as ruff and Black break them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from projections.inspect.client.naming import WIDTH

__all__ = ["Call", "Every", "Expression", "Loop", "flat", "lines", "statement"]


@dataclass(frozen=True)
class Call:
    """Parts between brackets, separated by commas: a call, a list, a dictionary, the parameters of a function."""

    before: str
    parts: Sequence[Expression]
    after: str = ")"


@dataclass(frozen=True)
class Loop:
    """A list comprehension: an element, and its clauses."""

    element: Expression
    clauses: Sequence[str]


@dataclass(frozen=True)
class Every:
    """Conditions that are joined by `and`, or by another word."""

    conditions: Sequence[Expression]
    word: str = "and"


Expression: TypeAlias = "str | Call | Loop | Every"


def flat(expression: Expression) -> str:
    """Return an expression on one line."""
    match expression:
        case str():
            return expression
        case Call(before, parts, after):
            return before + ", ".join(map(flat, parts)) + after
        case Loop(element, clauses):
            return "[" + " ".join([flat(element), *clauses]) + "]"
        case Every(conditions, word):
            return f" {word} ".join(map(flat, conditions))


def lines(expression: Expression, indent: int, before: str = "", after: str = "") -> list[str]:
    """Return the lines of an expression between two texts, on one line if it fits."""
    margin = " " * indent
    whole = f"{margin}{before}{flat(expression)}{after}"
    if len(whole) <= WIDTH or isinstance(expression, str):
        return [whole]
    inner = indent + 4
    match expression:
        case Call(opening, parts, closing):
            if not parts:
                return [whole]
            together = " " * inner + ", ".join(map(flat, parts))
            entries = opening.endswith("{") and len(parts) > 1
            comma = "," if len(parts) > 1 or opening.endswith(("[", "{")) or closing.startswith(")") else ""
            single = len(parts) == 1 and not isinstance(parts[0], str)
            if len(together) <= WIDTH and not entries and not (len(parts) == 1 and opening.endswith(("[", "{"))):
                body = [together]
            elif single and isinstance(parts[0], Call) and closing == "]":
                body = lines(parts[0], inner, after=",")
            else:
                body = [line for part in parts for line in lines(part, inner, after=comma)]
            return [f"{margin}{before}{opening}", *body, f"{margin}{closing}{after}"]
        case Loop(element, clauses):
            body = [*lines(element, inner), *(" " * inner + clause for clause in clauses)]
            return [f"{margin}{before}[", *body, f"{margin}]{after}"]
        case Every():
            return _joined(expression, indent, before, after)


_CALL = re.compile(r"(\w+\()(.*)(\))")
_QUOTED = re.compile(r"""(["'])(?:(?!\1)[^\\]|\\.)*\1""")


def _call(source: str) -> Expression:
    """Return a call that is one as a whole as a `Call`."""
    found = _CALL.fullmatch(source)
    if found is None:
        return source
    depth = 0
    for letter in _QUOTED.sub("", found[2]):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            return source
    return Call(found[1], [found[2]], found[3])


def _joined(every: Every, indent: int, before: str, after: str) -> list[str]:
    """Return the lines of conditions that are too long for one line."""
    margin = " " * indent
    first, *rest = every.conditions
    word = f"{every.word} "
    if len(rest) == 1 and after in ("", ":"):  # as Black does: only the last call is broken
        last = _call(rest[0]) if isinstance(rest[0], str) else rest[0]
        if isinstance(last, Call) and len(margin + before + flat(first) + f" {word}" + last.before) <= WIDTH:
            opened = f"{before}{flat(first)} {word}"
            return lines(last, indent, opened, after)
    together = f"{margin}    {flat(every)}"
    if len(together) <= WIDTH:
        body = [together]
    else:
        body = [*lines(first, indent + 4), *(line for one in rest for line in lines(one, indent + 4, word))]
    return [f"{margin}{before}(", *body, f"{margin}){after}"]


def statement(before: str, expression: Expression, indent: int = 4, after: str = "") -> list[str]:
    """Return the lines of a statement, such as `return` with an expression."""
    return lines(expression, indent, before, after)

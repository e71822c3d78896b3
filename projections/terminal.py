"""Standard output and standard error: every command prints through this module, and nothing else does.

Whatever is printed is made printable here (`projections.printable`): a text is one line and cannot hold a control
character, a forged line, or markup. Colours are written by `styled`, whose first argument is a literal of ours.
"""

from __future__ import annotations

import json
import os
import string
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, LiteralString

import click

from projections.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


__all__ = ["Styled", "console", "count", "json_text", "print_grid", "print_line", "print_text", "styled"]

WIDTH = 110
"""Columns where the output is not a terminal, which has no width."""


class Styled(str):
    """A line with rich's markup in it. `styled` makes it; everything else is data, which has none."""

    __slots__ = ()

    def __add__(self, other: str) -> Styled:
        return Styled(str.__add__(self, _data(other)))

    def __radd__(self, other: str) -> Styled:
        return Styled(str.__add__(_data(other), self))

    def __format__(self, format_spec: str) -> str:
        raise TypeError(
            "a Styled text goes into styled(), which keeps its markup apart from data; not into an f-string"
        )


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return _data(value if isinstance(value, Styled) else format(value, format_spec))


def styled(template: LiteralString, *data: object) -> Styled:
    """A line with markup: `styled("[bold]{}[/] {:,}", key, number)`. Data comes out as it is, markup or not."""
    return Styled(_Formatter().vformat(template, data, {}))


_BRACKETS = str.maketrans("[\\", "\x01\x02")
_BACK = str.maketrans("\x01\x02", "[\\")
"""Data in a Styled line has no brackets and backslashes, which rich reads, until rich has read it: no two pieces of data
make a tag together. What stands for them is unique, because printable text has no control characters."""


def _data(text: str) -> str:
    return text if isinstance(text, Styled) else printable(text).translate(_BRACKETS)


def print_line(text: str, *, err: bool = False) -> None:
    """One line of plain text."""
    click.echo(printable(text), err=err)


def print_text(text: str, *, end: str = "\n") -> None:
    """A text of several lines whose line feeds are our own: JSON, YAML, Markdown and others that have escapes for data.

    `end` follows if it is not there already.
    """
    click.echo(printable(text if text.endswith(end) else text + end, lines=True), nl=False)


def console(*, stderr: bool = False) -> Console:
    """Colours on a terminal only, and not if NO_COLOR is set."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or WIDTH)
    made: Console = _console_type()(file=stream, width=width, highlight=False, emoji=False)
    return made


@cache
def _console_type() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        """Prints a text as data on one line, and markup only where it is Styled."""

        def render_str(self, text: str, **options: Any) -> Any:
            if not isinstance(text, Styled):
                return super().render_str(printable(text), **{**options, "markup": False})
            made = super().render_str(text, **{**options, "markup": True})
            made.plain = made.plain.translate(_BACK)
            return made

        def render(self, renderable: Any, options: Any = None) -> Iterable[Any]:
            """What progress bars and other parts of rich made of a text, too."""
            for segment in super().render(renderable, options):
                if segment.control:
                    yield segment
                else:
                    yield Segment(printable(segment.text, lines=True), segment.style)

    return SafeConsole


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def print_grid(out: Console, rows: Sequence[Sequence[tuple[str, str]]], indent: int = 2, after: str = "\n") -> None:
    """Rows of (text, style) in columns, then `after`. The last column may be as long as it likes."""
    from rich.cells import cell_len
    from rich.text import Text

    rows = [[(printable(text), style) for text, style in row] for row in rows]
    widths: dict[int, int] = {}
    for row in rows:
        for column, (text, _) in enumerate(row[:-1]):
            widths[column] = max(widths.get(column, 0), cell_len(text))
    for row in rows:
        line = Text(" " * indent)
        for column, (text, style) in enumerate(row):
            line.append(text, style or None)
            if column < len(row) - 1:
                line.append(" " * (widths[column] - cell_len(text) + 2))
        out.print(line, soft_wrap=True)
    out.print(end=after)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"

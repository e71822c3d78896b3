"""Standard output and standard error: every command prints through this module only.

It makes every text printable (`projections.printable`): a text is one line, without control characters, forged lines or
markup. `markup` adds colours; its first argument is a literal in our code.
"""

from __future__ import annotations

import json
import os
import string
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, LiteralString, Self

import click

from projections.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "Bar",
    "Styled",
    "console",
    "count",
    "interactive",
    "json_text",
    "markup",
    "parts_of",
    "print_first",
    "print_grid",
    "print_line",
    "print_text",
    "units",
]


WIDTH = 110
"""Columns of an output that is not a terminal."""


class Styled(str):
    """A line with rich's markup, made by `markup`. Every other text is data, without markup."""

    __slots__ = ()

    def __add__(self, other: str) -> Styled:
        return Styled(str.__add__(self, _data(other)))

    def __radd__(self, other: str) -> Styled:
        return Styled(str.__add__(_data(other), self))

    def __format__(self, format_spec: str) -> str:
        raise TypeError("pass a Styled text to markup(), which keeps markup apart from data; an f-string does not")


class _Formatter(string.Formatter):
    def format_field(self, value: Any, format_spec: str) -> str:
        return _data(value if isinstance(value, Styled) else format(value, format_spec))


def markup(template: LiteralString, *data: object) -> Styled:
    """Return a line with markup: `markup("[bold]{}[/] {:,}", key, number)`. Markup in the data is printed literally."""
    return Styled(_Formatter().vformat(template, data, {}))


_BRACKETS = str.maketrans("[\\", "\x01\x02")
_BACK = str.maketrans("\x01\x02", "[\\")
"""Brackets and backslashes of data are replaced until rich has parsed the markup, so that two pieces of data never form a
tag. The replacements are control characters, which printable text does not have."""


def _data(text: str) -> str:
    return text if isinstance(text, Styled) else printable(text).translate(_BRACKETS)


def print_line(text: str, *, err: bool = False) -> None:
    """Print one line of plain text."""
    click.echo(printable(text), err=err)


def print_text(text: str, *, end: str = "\n") -> None:
    """Print a text of several lines whose line feeds are ours: JSON, YAML, Markdown and other formats that escape data.

    Appends `end` unless the text ends with it.
    """
    click.echo(printable(text if text.endswith(end) else text + end, lines=True), nl=False)


def console(*, stderr: bool = False) -> Console:
    """Return a console with colours on a terminal only, unless NO_COLOR is set. Lines on standard output are not wrapped."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else int(os.environ.get("COLUMNS") or WIDTH)
    made: Console = _console_type()(file=stream, width=width, highlight=False, emoji=False, soft_wrap=not stderr)
    return made


@cache
def _console_type() -> Any:
    from rich.console import Console
    from rich.segment import Segment

    class SafeConsole(Console):
        """A console that prints a text as data on one line, unless it is Styled."""

        def render_str(self, text: str, **options: Any) -> Any:
            if not isinstance(text, Styled):
                return super().render_str(printable(text), **{**options, "markup": False})
            made = super().render_str(text, **{**options, "markup": True})
            made.plain = made.plain.translate(_BACK)
            return made

        def render(self, renderable: Any, options: Any = None) -> Iterable[Any]:
            """Make the output of progress bars and other parts of rich printable, too."""
            for segment in super().render(renderable, options):
                if segment.control:
                    yield segment
                else:
                    yield Segment(printable(segment.text, lines=True), segment.style)

    return SafeConsole


def parts_of(line: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line as `console` prints them, each with its style, such as `bold red`."""
    out = console()
    for segment in out.render_str(line).render(out):
        yield segment.text, str(segment.style or "")


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def print_grid(out: Console, rows: Sequence[Sequence[tuple[str, str]]], indent: int = 2, after: str = "\n") -> None:
    """Print rows of (text, style) in columns, then `after`. The last column has no maximum width."""
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
        out.print(line)
    out.print(end=after)


def units(number: float, noun: str) -> str:
    """Return a number of capacity units, which may be broken, with its noun: `1 read unit`, `2.5 write units`."""
    return f"{number:g} {noun}" + "s" * (number != 1)


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 record`, `1,200 records`, `2 copies`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def print_first(lines: Iterable[str], most: int = 30, *, err: bool = False) -> None:
    """Print the first lines, and how many more there are."""
    all_lines = list(lines)
    for line in all_lines[:most]:
        print_line(line, err=err)
    if len(all_lines) > most:
        print_line(f"… and {len(all_lines) - most:,} more (--json has all)", err=err)


def interactive() -> bool:
    """Return whether a person can answer a question at the terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


class Bar:
    """The progress of a command on standard error: a moving line on a terminal, otherwise a line for each step."""

    def __init__(self, text: str, *, quiet: bool = False) -> None:
        out = console(stderr=True)
        self.shown = out.is_terminal and not quiet
        self._quiet = quiet
        self._printed: dict[str, float] = {}
        if self.shown:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            self._progress = Progress(*columns, console=out, transient=True)
            self._task = self._progress.add_task(text, total=None)
            self._progress.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def update(self, text: str) -> None:
        """Show a text on a terminal."""
        if self.shown:
            self._progress.update(self._task, description=text)

    def step(self, text: str, done: int = 0, about: int = 0) -> None:
        """Show a step, and how many items of about how many are done. Without a terminal, print it every 5 s."""
        amount = f": {done:,}" + (f" of about {about:,}" if about >= done else "") if done else ""
        if self.shown:
            self.update(text + amount)
        elif not self._quiet and time.monotonic() > self._printed.get(text, -5.0) + 5:
            print_line(f"{text}{amount or ' …'}", err=True)
            self._printed[text] = time.monotonic()

    def print(self, text: str) -> None:
        """Print a line that stays."""
        if self.shown:
            self._progress.console.print(text)
        elif not self._quiet:
            print_line(text, err=True)

    def end(self) -> None:
        """Remove the line."""
        if self.shown:
            self._progress.stop()
            self.shown = False

"""Standard output and standard error: every command prints through this module only.

It makes every text printable (`projections.printable`): a text is one line, without control characters, forged lines or
markup. `markup` adds colours; its first argument is a literal in our code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import string
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, LiteralString, Self, TextIO

import click

from projections.printable import printable

__all__ = [
    "Bar",
    "Styled",
    "count",
    "interactive",
    "json_text",
    "markup",
    "parts_of",
    "print_first",
    "print_grid",
    "print_json",
    "print_line",
    "print_markup",
    "print_text",
    "units",
]


class Styled(str):
    """A line with tags of styles, made by `markup`. Every other text is data, without markup."""

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
"""Brackets and backslashes of data are replaced until the tags have been read, so that two pieces of data never form a tag.
The replacements are control characters, which printable text does not have."""
_TAG = re.compile(r"\[(/|[a-z ]*)\]")
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}


def _data(text: str) -> str:
    return text if isinstance(text, Styled) else printable(text).translate(_BRACKETS)


def print_line(text: str = "", *, err: bool = False) -> None:
    """Print one line. Its styles are visible on a terminal only, unless NO_COLOR is set."""
    stream = sys.stderr if err else sys.stdout
    colours = _is_terminal(stream) and not os.environ.get("NO_COLOR")
    click.echo("".join(_colour(*part) if colours else part[0] for part in parts_of(text)), err=err, color=colours)


def print_markup(template: LiteralString, *data: object) -> None:
    """Print one line as `markup` makes it."""
    print_line(markup(template, *data))


def _is_terminal(stream: TextIO) -> bool:
    return bool(os.environ.get("FORCE_COLOR")) or (stream.isatty() and os.environ.get("TERM") != "dumb")


def _colour(text: str, style: str) -> str:
    codes = ";".join(str(_CODES[name]) for name in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def parts_of(line: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a line, each with its style, such as `bold red`."""
    if not isinstance(line, Styled):
        yield printable(line), ""
        return
    styles: list[str] = []
    for place, part in enumerate(_TAG.split(line)):
        if place % 2 == 0:
            if part:
                yield part.translate(_BACK), " ".join(styles)
        elif part == "/":
            styles.pop()
        else:
            styles.append(part)


def print_text(text: str, *, end: str = "\n") -> None:
    """Print a text of several lines whose line feeds are ours: JSON, YAML, Markdown and other formats that escape data.

    Appends `end` unless the text ends with it.
    """
    click.echo(printable(text if text.endswith(end) else text + end, lines=True), nl=False)


def json_text(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def print_json(value: Any) -> None:
    print_text(json_text(value))


def print_grid(rows: Sequence[Sequence[tuple[str, str]]], indent: int = 2, after: str = "\n") -> None:
    """Print rows of (text, style) in columns, then `after`. The last column has no maximum width."""
    widths: dict[int, int] = {}
    for row in rows:
        for column, (text, _) in enumerate(row[:-1]):
            widths[column] = max(widths.get(column, 0), _width(printable(text)))
    for row in rows:
        line = Styled(" " * indent)
        for column, (text, style) in enumerate(row):
            space = widths[column] - _width(printable(text)) + 2 if column < len(row) - 1 else 0
            line += Styled(f"[{style}]{_data(text)}[/]{' ' * space}")
        print_line(line)
    print_text(after, end="")


def _width(text: str) -> int:
    """Return the number of columns of a printable text on a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) != 0 for character in text)


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
    """The progress of a command on standard error: one changing line on a terminal, otherwise a line for each step."""

    def __init__(self, text: str, *, quiet: bool = False) -> None:
        self.shown = _is_terminal(sys.stderr) and not quiet
        self._quiet = quiet
        self._printed: dict[str, float] = {}
        self._begun = time.monotonic()
        self.update(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def update(self, text: str) -> None:
        """Show a text and the time since the begin on a terminal."""
        if self.shown:
            minutes, seconds = divmod(int(time.monotonic() - self._begun), 60)
            columns = shutil.get_terminal_size().columns - 8
            self._show(f"{printable(text)[:columns]} {minutes}:{seconds:02}")

    def _show(self, text: str) -> None:
        click.echo(f"\r\x1b[K{text}", nl=False, err=True, color=True)

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
            self._show("")
        if not self._quiet:
            print_line(text, err=True)

    def end(self) -> None:
        """Remove the line."""
        if self.shown:
            self._show("")
            self.shown = False

"""Names and literals in generated code, from names and texts of a rule file, which may be anything."""

from __future__ import annotations

import builtins
import keyword
import re
import textwrap
import unicodedata
from collections.abc import Iterable

from projections.printable import printable

__all__ = ["WIDTH", "Names", "constant", "docstring", "inside", "literal", "pascal", "snake"]

WIDTH = 88
"""Columns of the generated code, as ruff and Black have them by default."""


class Names:
    """The names of one scope. `take` returns one that is not taken, not reserved, and a valid identifier."""

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = {*reserved, *keyword.kwlist, *keyword.softkwlist, *dir(builtins)}

    def take(self, wanted: str) -> str:
        name = wanted
        number = 2
        while name in self._taken:
            name = f"{wanted}_" if number == 2 else f"{wanted}_{number}"
            number += 1
        self._taken.add(name)
        return name


def _identifier(text: str) -> str:
    """Return the text with underscores for characters that an identifier cannot have. Python compares names by NFKC."""
    letters = [letter if f"x{letter}".isidentifier() else "_" for letter in unicodedata.normalize("NFKC", text)]
    found = unicodedata.normalize("NFKC", re.sub("_+", "_", "".join(letters)).strip("_"))
    return found if found.isidentifier() else f"x{found}"


def snake(text: str) -> str:
    """Return a name of functions and variables: `postsOf` becomes `posts_of`, `GSI1PK` becomes `gsi1_pk`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return _identifier(apart.lower())


def pascal(text: str) -> str:
    """Return a name of a class: `postMeta` becomes `PostMeta`."""
    name = _identifier("_".join(part[:1].upper() + part[1:] for part in re.split(r"\W+|_+", text) if part))
    return name.replace("_", "")


def constant(text: str) -> str:
    """Return a name of a constant: `postMeta` becomes `POST_META`."""
    return snake(text).upper()


def literal(text: str) -> str:
    """Return a text as Python source, in double quotes unless it contains some."""
    quote = "'" if '"' in text and "'" not in text else '"'
    return quote + _source(text, quote) + quote


def inside(text: str) -> str:
    """Return a text as a literal part of an f-string in double quotes."""
    return _source(text, '"').replace("{", "{{").replace("}", "}}")


_SHORT = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _source(text: str, quote: str) -> str:
    known = {**_SHORT, quote: "\\" + quote}
    return "".join(known.get(letter) or (letter if printable(letter) == letter else _escape(letter)) for letter in text)


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def docstring(indent: int, *paragraphs: str) -> list[str]:
    """Return the lines of a docstring, wrapped. The texts may be anything."""
    margin = " " * indent
    shown = [_shown(paragraph) for paragraph in paragraphs if paragraph]
    if len(shown) == 1 and len(margin) + len(shown[0]) + 6 <= WIDTH:
        return [f'{margin}"""{shown[0]}"""']
    lines: list[str] = []
    # `ruff format` joins the closing quotes with a single line, even if it is then too long.
    width = WIDTH - indent - 3 * (len(shown) == 1)
    for number, paragraph in enumerate(shown):
        lead = '"""' if number == 0 else ""
        wrapped = textwrap.wrap(lead + paragraph, width, break_long_words=False, break_on_hyphens=False)
        lines += [*([""] if number else []), *(margin + line for line in wrapped)]
    return [*lines, f'{margin}"""']


def _shown(text: str) -> str:
    """Return one line for a docstring, in which no quote or backslash of the text ends it."""
    line = " ".join(printable(" ".join(text.split())).replace("\\", "\\\\").replace('"""', '\\"\\"\\"').split())
    return line[:-1] + '\\"' if line.endswith('"') else line

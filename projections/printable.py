"""Text that is safe to print: characters that act on a terminal, or do not show, are written as `\\uXXXX`.

Keys and values of items are anybody's text. Printed raw, an escape character clears the screen or sets the window's title,
a line feed forges a line of our output, and a bidi control reorders what the reader sees. The notation is JSON's, so a JSON
text is the same JSON after it. Which characters are printed raw is decided here and nowhere else.
"""

from __future__ import annotations

import json
import re
import unicodedata

__all__ = ["printable", "unescape"]

_ACTING = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
"""Categories of Unicode: controls (C0, DEL, C1), formats (bidi, zero width, tags), surrogates, separators of lines."""

_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
"""Letters and marks that show as nothing."""

_CANDIDATE = re.compile(r"[^ -~]")
_ESCAPE = re.compile(r"(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\u[0-9a-f]{4}")


def printable(text: str, *, lines: bool = False) -> str:
    """The text on one line; with `lines`, line feeds stay, which only a text of our own making may have."""
    if text.isascii() and text.isprintable():
        return text
    return _CANDIDATE.sub(lambda match: match[0] if lines and match[0] == "\n" else _escape(match[0]), text)


def unescape(text: str) -> str:
    """The text that `printable` made this of: a name copied from our output is accepted where names are given.

    Only the escapes that `printable` writes are read, and `\\u005c`, a backslash: `\\u005cu001b` is what is no escape.
    """
    return _ESCAPE.sub(_character_of, text)


def _acts(character: str) -> bool:
    return unicodedata.category(character) in _ACTING or character in _BLANK


def _escape(character: str) -> str:
    if not _acts(character):
        return character
    # JSON's own \n and \t are not used: C:\new is a path
    return f"\\u{ord(character):04x}" if character <= "\uffff" else json.dumps(character)[1:-1]


def _character_of(escape: re.Match[str]) -> str:
    codes = [chr(int(code, 16)) for code in re.split(r"(?i)\\u", escape[0])[1:]]
    character = "".join(codes).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return character if character == "\\" or _acts(character) else escape[0]

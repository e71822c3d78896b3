"""Reads files of JSON values: one, several after each other, or JSON lines, also compressed by gzip. Each has its place.

A file has at most 512 MiB, also after decompression: a small archive may hold a thousand times its size.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import sys
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from projections.errors import UsageError
from projections.language.files import at_most

__all__ = ["Document", "documents", "parsed", "text_of"]

_DEEPEST = 200
"""Levels of nesting. DynamoDB has 32, which are 64 in JSON; later code may use recursion."""

_MOST = 512 * 2**20
"""Bytes of a file, after decompression. Its values take several times as much memory."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)|-?\d[\d.eE+-]*|[\[\]{}]', re.DOTALL)
_STREAM = 'a DynamoDB stream event looks like {"Records": [{"eventName": …, "dynamodb": {…}}]}'


@dataclass(frozen=True, slots=True)
class Document:
    """One JSON value of a file."""

    file: str
    text: str
    start: int
    value: Any
    ends: Sequence[int]
    """The positions of the ends of lines: counting them for each of many values takes quadratic time."""

    def place(self, offset: int) -> str:
        """Return file, line and column of a position in the text."""
        line = bisect_left(self.ends, offset)
        return f"{self.file}:{line + 1}:{offset - (self.ends[line - 1] if line else -1)}"

    def exact(self, offset: int) -> Any:
        """Return the value at a position, with all digits of its numbers."""
        return _EXACT.raw_decode(self.text, offset)[0]

    def starts(self, path: Sequence[str]) -> list[int]:
        """Return the position of each element of the document's list, or of that in a field of a field."""
        text, position = self.text, self.start
        for field in path:
            position = _skip(text, position + 1)
            while True:
                name, end = _DECODER.raw_decode(text, position)
                position = _skip(text, _skip(text, end) + 1)
                if name == field:
                    break
                position = _skip(text, _skip(text, _DECODER.raw_decode(text, position)[1]) + 1)
        starts, position = [], _skip(text, position + 1)
        while text[position] != "]":
            starts.append(position)
            position = _skip(text, _DECODER.raw_decode(text, position)[1])
            if text[position] == ",":
                position = _skip(text, position + 1)
        return starts


class _UnusableError(ValueError):
    """JSON that Python's decoder accepts or fails on, and that no event has. `_unusable` finds its place."""


def _number(text: str) -> int | float:
    if reason := _no_number(text):
        raise _UnusableError(reason)
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def _no_number(text: str) -> str | None:
    if text in ("NaN", "Infinity", "-Infinity"):
        return f"{text} is not JSON"
    return None if math.isfinite(float(text)) else "a number too large for JSON; DynamoDB has 38 digits"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _UnusableError("a name comes twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_number)
_EXACT = json.JSONDecoder(parse_float=Decimal)


def documents(path: str) -> Iterator[tuple[str, Any]]:
    """Return every JSON value of a file, `-` is standard input, with its place. Raises UsageError for anything else."""
    for document in parsed(path, text_of(path)):
        yield document.place(document.start), document.value


def text_of(path: str) -> str:
    """Return the text of a file, which may be compressed by gzip; `-` is standard input. Raises UsageError."""
    try:
        if path == "-":
            data = at_most(sys.stdin.buffer, _MOST)
        else:
            with Path(path).open("rb") as file:
                data = at_most(file, _MOST)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    if data is not None and data.startswith(b"\x1f\x8b"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
                data = at_most(unpacked, _MOST)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"{path}: cannot be decompressed by gzip: {error}; is the file complete?") from None
    if data is None:
        raise UsageError(f"{path}: has more than {_MOST // 2**20} MiB (of text, after decompression); split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}:{line}: not UTF-8 at byte {error.start}; save it as UTF-8, or compress it by gzip"
        ) from None


def parsed(file: str, text: str) -> Iterator[Document]:
    """Yield the JSON values of a text. Raises UsageError with the place of what is not JSON."""
    position, ends = _skip(text, 0), [found.start() for found in re.finditer("\n", text)]
    while position < len(text):
        document = Document(file, text, position, None, ends)
        try:
            value, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"{document.place(error.pos)}: not JSON: {error.msg}; an event file holds JSON or JSON lines"
            ) from None
        except (_UnusableError, RecursionError):
            raise _unusable(document) from None
        if _deep(value):
            raise _unusable(document)
        yield Document(file, text, position, value, ends)
        position = _skip(text, end)


def _deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            each
            for one in level
            if isinstance(one, dict | list)
            for each in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _unusable(document: Document) -> UsageError:
    """Return the first invalid number, repeated name or too deep level, with its place."""
    names: list[set[str]] = []
    for token in _TOKEN.finditer(document.text, document.start):
        text, reason = token[0], None
        if text in ("{", "["):
            names.append(set())
            reason = f"nested in more than {_DEEPEST} levels; {_STREAM}" if len(names) > _DEEPEST else None
        elif text in ("}", "]"):
            names.pop()
        elif not text.startswith('"'):
            reason = _no_number(text)
        elif document.text.startswith(":", _skip(document.text, token.end())):
            name = json.loads(text)
            reason = f"the name {text[:60]} comes twice in one object; remove one" if name in names[-1] else None
            names[-1].add(name)
        if reason:
            return UsageError(f"{document.place(token.start())}: {reason}")
    raise AssertionError("the decoder refused what has no flaw")


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position

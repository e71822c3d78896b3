"""Reads event files: events of Lambda functions, and other forms of stored stream records."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projections.engine.records import is_sequence, is_value
from projections.errors import UsageError

__all__ = ["Recorded", "documents", "flaw", "read"]

_DEEPEST = 200
"""Levels of nesting. DynamoDB has 32, which are 64 in JSON; later code may use recursion."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?(?:NaN|Infinity)|-?\d[\d.eE+-]*|[\[\]{}]', re.DOTALL)
_IMAGES = {"INSERT": ("NewImage",), "MODIFY": ("OldImage", "NewImage"), "REMOVE": ("OldImage",)}
_STREAM = 'a DynamoDB stream event looks like {"Records": [{"eventName": …, "dynamodb": {…}}]}'


@dataclass(frozen=True, slots=True)
class Recorded:
    """One record of an event file, unchanged, and its place."""

    record: Mapping[str, Any]
    place: str


@dataclass(frozen=True, slots=True)
class _Document:
    """One JSON value of a file, which may have several, like JSON lines."""

    file: str
    text: str
    start: int
    value: Any

    def place(self, offset: int) -> str:
        line = self.text.count("\n", 0, offset) + 1
        return f"{self.file}:{line}:{offset - self.text.rfind(chr(10), 0, offset)}"


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


def read(paths: Sequence[str]) -> list[Recorded]:
    """Return the records of event files in order; `-` is standard input.

    A file has Lambda's event (`{"Records": […]}`), a list of records, one record, or several of these. Of an object that
    Lambda wrote to S3 on failure, the payload is read. Raises UsageError if a file is something else, or if none of its
    records can be used. The handler quarantines an invalid record among valid ones.
    """
    return [recorded for path in paths for recorded in _file(path)]


def documents(path: str) -> Iterator[tuple[str, Any]]:
    """Return every JSON value of a file, `-` is standard input, with its place. Raises UsageError for anything else."""
    for document in _documents(path, _text(path)):
        yield document.place(document.start), document.value


def _file(path: str) -> list[Recorded]:
    found = [recorded for document in _documents(path, _text(path)) for recorded in _records(document)]
    flaws = [flaw(recorded.record) for recorded in found]
    if found and all(flaws):
        raise UsageError(f"{found[0].place}: {flaws[0]}")
    if not found:
        raise UsageError(f"{path}: no records in it; {_STREAM}")
    return found


def _text(path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    if data.startswith(b"\x1f\x8b"):
        raise UsageError(f"{path}: is compressed by gzip; decompress it first: gunzip -c FILE | projections … -")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not UTF-8 at byte {error.start}; save the file as UTF-8") from None


def _documents(file: str, text: str) -> Iterator[_Document]:
    position = _skip(text, 0)
    while position < len(text):
        document = _Document(file, text, position, None)
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
        yield _Document(file, text, position, value)
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


def _unusable(document: _Document) -> UsageError:
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


def _records(document: _Document) -> Iterator[Recorded]:
    value, path, offset, source = document.value, "", document.start, document
    if isinstance(value, dict) and "DDBStreamBatchInfo" in value:
        payload = value.get("payload")
        if not isinstance(payload, str):
            raise UsageError(
                f"{document.place(offset)}: has the position of failed records in their stream, but not the records; "
                "only the objects of an S3 destination have them (payload)"
            )
        (source, *_) = [*_documents(f"{document.file}: payload", payload)] or [document]
        value, offset = source.value, source.start
    if isinstance(value, dict) and "Records" in value:
        path, value = "Records", value["Records"]
        if not isinstance(value, list):
            raise UsageError(f"{source.place(offset)}: Records is not a list; {_STREAM}")
    elements = value if isinstance(value, list) else [value]
    starts = _starts(source, path) if isinstance(value, list) else [offset]
    for number, element in enumerate(elements):
        start = starts[number] if number < len(starts) else offset
        place = source.place(start) + (f": {path}[{number}]" if isinstance(value, list) else "")
        if not isinstance(element, dict) or not isinstance(element.get("dynamodb"), dict):
            raise UsageError(f"{place}: {_strange(element)}; {_STREAM}")
        yield Recorded(element, place)


def flaw(record: Mapping[str, Any]) -> str | None:
    """Return why a record cannot be used, and what to do; None if it can."""
    name, body = record.get("eventName"), record["dynamodb"]
    if not isinstance(name, str) or name not in _IMAGES:
        return f"eventName is {json.dumps(name)[:40]}; expected INSERT, MODIFY or REMOVE"
    if not is_sequence(body.get("SequenceNumber")):
        return "no SequenceNumber, the text of up to 40 digits by which versions of an item are ordered"
    for image in ("Keys", *_IMAGES[name]):
        if not isinstance(body.get(image), dict):
            view = body.get("StreamViewType", "not given")
            return (
                f"{name} without {image} (its StreamViewType: {view}); "
                "set the stream's view type to NEW_AND_OLD_IMAGES and record the event again"
            )
        for attribute, value in body[image].items():
            if not is_value({"M": {attribute: value}}):
                return (
                    f"{image}.{attribute} is {json.dumps(value, ensure_ascii=False)[:60]}, not an attribute value; "
                    'write it with its type, such as {"S": "text"} or {"N": "1"}'
                )
    return None


def _strange(element: Any) -> str:
    if isinstance(element, dict):
        source = element.get("eventSource", element.get("EventSource"))
        if source:
            return f"a record of {source}, not of a DynamoDB stream"
        return "not a stream record: it has no dynamodb part"
    return f"expected a stream record, found {json.dumps(element, ensure_ascii=False)[:40]}"


def _starts(document: _Document, field: str) -> list[int]:
    """Return the position of each element of the document's list, or of that in a field."""
    text, position = document.text, document.start
    if field:
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


def _skip(text: str, position: int) -> int:
    while position < len(text) and text[position] in " \t\r\n":
        position += 1
    return position

"""Reads event files: stream events in every form in which people have them, and items that become stream records.

| a file holds | its source | it becomes |
| --- | --- | --- |
| `{"Records": […]}`, records | Lambda, `aws dynamodbstreams get-records`, `sam local generate-event` | these records |
| `{"DDBStreamBatchInfo": …}` | an on-failure destination in S3 | the records in its `payload` |
| `{"Item": …}`, `{"Items": […]}` | a table export (DYNAMODB_JSON), `aws dynamodb scan`, `get-item` | inserts |
| `{"put": …}` and other steps | people, as in case files (`steps`) | the records of these writes |
| an item with all key attributes | people | an insert |

A file is JSON, JSON lines, or YAML (`.yaml`, `.yml`), and may be compressed by gzip; it has at most 512 MiB, also after
decompression. A directory is that of a full table export. The writes of all files run in order on one store in
memory, so the second put of a key is an edit. An absent image may be `null` or `{}`; if the rules have one table, the
table in `eventSourceARN` may be missing. The commands skip a file whose items all have other key attributes than the
tables of the rules, and report this, if there are others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from projections.errors import UsageError
from projections.language.files import text_of_file
from projections.language.mistakes import Location, Mistake
from projections.local.json_text import Document, parsed, text_of
from projections.local.recording import Recorded, Write, flaw, records_of, table_in, table_of
from projections.local.steps import STEPS, step_mistakes, suggest_step

if TYPE_CHECKING:
    from projections.language.program import Program
    from projections.language.source import Source

__all__ = ["Recorded", "read"]

_STREAM = 'a DynamoDB stream event looks like {"Records": [{"eventName": …, "dynamodb": {…}}]}'
_PLAIN = 'write an item as {"put": {"PK": …}}'
_Found: TypeAlias = "Recorded | Write"
_Path: TypeAlias = tuple[str, ...]


def read(paths: Sequence[str], program: Program, skipped: Callable[[str], None] | None = None) -> list[Recorded]:
    """Return the records of event files in order, as Lambda passes them; `-` is standard input.

    Raises UsageError if a file is something else, or if none of its records can be used. The handler quarantines an
    invalid record among valid ones.

    With `skipped`, a file is left out if all its records have keys of other tables, unless all files are such. `skipped` is
    called with a sentence for each.
    """
    files: list[tuple[str, list[_Found]]] = []
    for path, table in _files(paths):
        some = list(_file(path, program, table))
        flaws = [None if isinstance(one, Write) else flaw(one.record) for one in some]
        if some and all(flaws):
            raise UsageError(f"{some[0].place}: {flaws[0]}")
        if not some and Path(path).parent.name != "data":  # an export has an empty file for each empty partition
            raise UsageError(f"{path}: no records in it; {_STREAM}; {_PLAIN}")
        files.append((path, some))
    if not any(some for _, some in files):
        raise UsageError(f"{', '.join(paths)}: no items in the export")
    if skipped is not None:
        files = _of_tables(program, files, skipped)
    return list(records_of(program, [one for _, some in files for one in some]))


def _of_tables(
    program: Program, files: list[tuple[str, list[_Found]]], skipped: Callable[[str], None]
) -> list[tuple[str, list[_Found]]]:
    """Return the files without those of other tables, if there are others."""
    other = {path: keys for path, some in files if (keys := _other_keys(program, some))}
    if len(other) == sum(bool(some) for _, some in files):
        return files
    own = " or ".join(", ".join(schema.key_attributes) for schema in program.tables.values())
    for path, keys in other.items():
        skipped(f"{path} is skipped: its items have the key {keys}, and the tables of the rules have {own}")
    return [(path, some) for path, some in files if path not in other]


def _other_keys(program: Program, some: Sequence[_Found]) -> str:
    """Return the names of the key attributes of all records if no table of the rules has them; else the empty text."""
    own = [set(schema.key_attributes) for schema in program.tables.values()]
    found: dict[str, None] = {}
    for one in some:
        body = one.record.get("dynamodb") if isinstance(one, Recorded) and isinstance(one.record, dict) else None
        keys = body.get("Keys") if isinstance(body, dict) else None
        if not isinstance(keys, dict) or not keys or keys.keys() in own:
            return ""
        found[", ".join(sorted(map(str, keys)))] = None
    return " or ".join(found)


def _files(paths: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Yield the files, with the table of an export where its summary names it."""
    for path in paths:
        if path == "-" or not Path(path).is_dir():
            yield path, _table_of_export(path)
            continue
        present = sorted(Path(path).rglob("data/*.json.gz"))
        if not present:
            raise UsageError(
                f"{path}: is a directory without data/*.json.gz, the files of a table export in the format DYNAMODB_JSON"
            )
        if len({file.parent for file in present}) > 1:
            raise UsageError(f"{path}: has the files of several exports; pass the directory of each")
        yield from ((str(file), _table_of_export(str(file))) for file in present)


def _table_of_export(path: str) -> str | None:
    """Return the table of a data file of an export; None if there is no summary beside it."""
    try:
        summary = json.loads(text_of_file(Path(path).parent.parent / "manifest-summary.json"))
    except (OSError, ValueError, RecursionError):
        return None
    arn = summary.get("tableArn") if isinstance(summary, dict) else None
    return table_in(arn) if isinstance(arn, str) else None


@dataclass(frozen=True)
class _Element:
    """A value in a file that is a record or a write. `exact` has all digits of its numbers; `within` places its mistakes."""

    value: Any
    place: str
    exact: Callable[[], Any]
    within: Callable[[Mistake], str]


class _Json:
    """A value in a file of JSON."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self.value = document.value

    def place(self) -> str:
        return self._document.place(self._document.start)

    def elements(self, path: _Path | None) -> Iterator[_Element]:
        """Yield the elements of a list in the value, or the value itself."""
        document, value = self._document, self.value
        for step in path or ():
            value = value[step]
        starts = [document.start] if path is None else document.starts(path)
        for number, (one, start) in enumerate(zip([value] if path is None else value, starts, strict=True)):
            place = document.place(start) + ("" if path is None else _numbered(path, number))
            yield _Element(one, place, lambda start=start: document.exact(start), lambda _, place=place: place)  # type: ignore[misc]


class _Yaml:
    """The value of a YAML file."""

    def __init__(self, file: str, source: Source) -> None:
        self._file, self._source = file, source
        self.value: Any = [] if source.data is None else source.data

    def place(self) -> str:
        return self._at(Mistake((), ""))

    def _at(self, mistake: Mistake) -> str:
        return ":".join([self._file, *map(str, self._source.position(mistake))])

    def elements(self, path: _Path | None) -> Iterator[_Element]:
        value = self.value
        for step in path or ():
            value = value[step]
        for number, one in enumerate([value] if path is None else value):
            location: Location = () if path is None else (*path, number)
            shown = "" if path is None else _numbered(path, number)

            def within(mistake: Mistake, location: Location = location, shown: str = shown) -> str:
                return self._at(replace(mistake, path=(*location, *mistake.path))) + shown

            yield _Element(one, within(Mistake((), "")), lambda one=one: one, within)  # type: ignore[misc]


def _numbered(path: _Path, number: int) -> str:
    return f": {'.'.join(path)}[{number}]"


def _file(path: str, program: Program, table: str | None) -> Iterator[_Found]:
    for one in _yaml(path) if path.endswith((".yaml", ".yml")) else map(_Json, parsed(path, text_of(path))):
        inner = _payload(path, one)
        steps = _list_in(program, inner)
        for element in inner.elements(steps):
            if _is_record(element.value):
                yield Recorded(_floats(element.value), element.place)
            elif isinstance(element.value, dict):
                yield _write(program, element, table, within_items=steps == ("Items",))
            else:
                raise UsageError(f"{element.place}: {_strange(element.value)}; {_STREAM}; {_PLAIN}")


def _yaml(path: str) -> Iterator[_Yaml]:
    from projections.errors import Problem
    from projections.language.mistakes import dotted
    from projections.language.source import UnreadableError
    from projections.language.source import read as read_yaml

    try:
        source = read_yaml(text_of(path), exact=True)
    except UnreadableError as error:
        raise UsageError(f"{path}:{error.line}:{error.column}: {error.message}") from None
    if source.mistakes:
        raise UsageError(
            *(str(Problem(path, *source.position(one), dotted(one.path), one.message)) for one in source.mistakes)
        )
    if isinstance(source.data, dict) and "cases" in source.data:
        raise UsageError(f"{path}: is a case file, not an event file; run its cases with pytest")
    yield _Yaml(path, source)


def _payload(path: str, document: _Json | _Yaml) -> _Json | _Yaml:
    """Return the payload of an object that Lambda wrote to S3 on failure; any other document as it is."""
    value = document.value
    if not isinstance(value, dict) or "DDBStreamBatchInfo" not in value:
        return document
    if not isinstance(value.get("payload"), str):
        raise UsageError(
            f"{document.place()}: has the position of failed records in their stream, but not the records; "
            "only the objects of an S3 destination have them (payload)"
        )
    return next(map(_Json, parsed(f"{path}: payload", value["payload"])), document)


def _list_in(program: Program, document: _Json | _Yaml) -> _Path | None:
    """Return where a document has a list of records or items; None if it is itself one of these."""
    value = document.value
    if isinstance(value, list):
        return ()
    if not isinstance(value, dict) or _is_record(value) or ("Records" not in value and table_of(program, value)):
        return None
    for name in ("Records", "Items"):
        if isinstance(value.get(name), list):
            return (name,)
    if "Records" in value:
        raise UsageError(f"{document.place()}: Records is not a list; {_STREAM}")
    return None


def _floats(value: Any) -> Any:
    """Return a record with floats instead of Decimals, as in a record that was read from JSON."""
    if isinstance(value, dict):
        return {name: _floats(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_floats(one) for one in value]
    return float(value) if isinstance(value, Decimal) else value


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("dynamodb"), dict)


def _write(program: Program, element: _Element, table: str | None, *, within_items: bool) -> Write:
    """Return the write that an element which is not a record stands for. Raises UsageError if it is something else."""
    value, place = element.exact(), element.place
    if table_of(program, value) is not None:
        return Write({"put": value}, place, table)
    if isinstance(value.get("Item"), dict):
        return Write({"put": value["Item"]}, place, table)
    if within_items and not value.keys() & set(STEPS):
        return Write({"put": value}, place, table)
    if value.keys() & set(STEPS) or "remove" in value:
        if mistakes := list(step_mistakes(value, (), program)):
            raise UsageError(*(": ".join([element.within(one), *map(str, one.path), one.message]) for one in mistakes))
        return Write(value, place)
    near = next(filter(None, (suggest_step(name, STEPS) for name in value)), "")
    keys = " or ".join(" and ".join(schema.key_attributes) for schema in program.tables.values())
    raise UsageError(
        f"{place}: {_strange(value)}, and not an item or a step{near}: it lacks {keys}; {_PLAIN}, and a stream event as "
        '{"Records": […]}'
    )


def _strange(element: Any) -> str:
    if isinstance(element, dict):
        source = element.get("eventSource", element.get("EventSource"))
        if source:
            return f"a record of {source}, not of a DynamoDB stream"
        return "not a stream record: it has no dynamodb part"
    return f"expected a stream record, found {json.dumps(element, ensure_ascii=False, default=str)[:40]}"

"""Reads event files: stream events in every form in which people have them, and items that become stream records.

| a file holds | its source | it becomes |
| --- | --- | --- |
| `{"Records": […]}`, records | Lambda, `aws dynamodbstreams get-records`, `sam local generate-event` | these records |
| `{"DDBStreamBatchInfo": …}` | an on-failure destination in S3 | the records in its `payload` |
| `{"Item": …}`, `{"Items": […]}` | a table export (DYNAMODB_JSON), `aws dynamodb scan`, `get-item` | inserts |
| `{"Keys": …, "NewImage": …}` | an incremental export | inserts, edits, removals |
| `{"put": …}` and other steps | people, as in case files (`steps`) | the records of these writes |
| an item with all key attributes | people | an insert |

A file is JSON, JSON lines, or YAML (`.yaml`, `.yml`), and may be compressed. A directory is that of a table export. The
writes of all files run in order on one store in memory, so the second put of a key is an edit. The commands skip a file
whose items all have other key attributes than the tables of the rules, and report this, if there are others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from projections.errors import UsageError
from projections.language.mistakes import Location, Mistake
from projections.local.json_text import Document, parsed, text_of
from projections.local.recording import Recorded, Write, flaw, records_of, table_in, table_of
from projections.local.steps import STEPS, step_mistakes, suggest_step

if TYPE_CHECKING:
    from projections.language.program import Program

__all__ = ["Recorded", "flaw", "read"]

_STREAM = 'a DynamoDB stream event looks like {"Records": [{"eventName": …, "dynamodb": {…}}]}'
_PLAIN = 'write an item as {"put": {"PK": …}}'
_Found: TypeAlias = "Recorded | Write"


def read(
    paths: Sequence[str], program: Program | None = None, skipped: Callable[[str], None] | None = None
) -> list[Recorded]:
    """Return the records of event files in order; `-` is standard input.

    With the program of the rules, files may also hold items, and records may lack their table's ARN if the rules have one
    table. Raises UsageError if a file is something else, or if none of its records can be used. The handler quarantines an
    invalid record among valid ones.

    With `skipped`, a file is left out if all its records have keys of other tables, unless all files are such. `skipped` is
    called with a sentence for each.
    """
    files: list[tuple[str, list[_Found]]] = []
    for path in _files(paths):
        some = list(_file(path, program))
        flaws = [None if isinstance(one, Write) else flaw(one.record) for one in some]
        if some and all(flaws):
            raise UsageError(f"{some[0].place}: {flaws[0]}")
        if not some:
            raise UsageError(f"{path}: no records in it; {_STREAM}" + (f"; {_PLAIN}" if program else ""))
        files.append((path, some))
    if program is not None and skipped is not None:
        files = _of_tables(program, files, skipped)
    found = [one for _, some in files for one in some]
    if program is None:
        return [one for one in found if isinstance(one, Recorded)]
    return list(records_of(program, found))


def _of_tables(
    program: Program, files: list[tuple[str, list[_Found]]], skipped: Callable[[str], None]
) -> list[tuple[str, list[_Found]]]:
    """Return the files without those of other tables, if there are others."""
    other = {path: keys for path, some in files if (keys := _other_keys(program, some))}
    if len(other) == len(files):
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


def _files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        if path == "-" or not Path(path).is_dir():
            yield path
            continue
        files = sorted(str(file) for file in Path(path).rglob("data/*.json.gz"))
        if not files:
            raise UsageError(
                f"{path}: is a directory without data/*.json.gz, the files of a table export in the format DYNAMODB_JSON"
            )
        yield from files


def _file(path: str, program: Program | None) -> Iterator[_Found]:
    if path.endswith((".yaml", ".yml")):
        yield from _yaml(path, program)
        return
    table = _exported_table(path) if program is not None and path != "-" else None
    for document in parsed(path, text_of(path)):
        yield from _values(document, program, table)


def _exported_table(path: str) -> str | None:
    """Return the table's name in the summary of the export to which a file belongs."""
    summary = Path(path).parent.parent / "manifest-summary.json"
    try:
        arn = json.loads(summary.read_text()).get("tableArn", "")
    except (OSError, ValueError, AttributeError):
        return None
    return table_in(arn) if isinstance(arn, str) else None


def _values(document: Document, program: Program | None, table: str | None) -> Iterator[_Found]:
    value, path, offset, source = document.value, "", document.start, document
    if isinstance(value, dict) and "DDBStreamBatchInfo" in value:
        payload = value.get("payload")
        if not isinstance(payload, str):
            raise UsageError(
                f"{document.place(offset)}: has the position of failed records in their stream, but not the records; "
                "only the objects of an S3 destination have them (payload)"
            )
        (source, *_) = [*parsed(f"{document.file}: payload", payload)] or [document]
        value, offset = source.value, source.start
    list_of = _list_in(value, program)
    if list_of is not None:
        path, value = list_of, value[list_of]
        if not isinstance(value, list):
            raise UsageError(f"{source.place(offset)}: {path} is not a list; {_STREAM}")
    elements = value if isinstance(value, list) else [value]
    starts = source.starts(path) if isinstance(value, list) else [offset]
    for number, element in enumerate(elements):
        start = starts[number] if number < len(starts) else offset
        place = source.place(start) + (f": {path}[{number}]" if isinstance(value, list) else "")
        if _is_record(element):
            yield Recorded(element, place)
        elif program is not None and isinstance(element, dict):
            yield _write(program, source.exact(start), place, table, within_items=path == "Items")
        else:
            raise UsageError(f"{place}: {_strange(element)}; {_STREAM}")


def _list_in(value: Any, program: Program | None) -> str | None:
    """Return the field of a document that has the list of its records or items."""
    if not isinstance(value, dict) or _is_record(value):
        return None
    if "Records" in value:
        return "Records"
    scanned = program is not None and isinstance(value.get("Items"), list) and table_of(program, value) is None
    return "Items" if scanned else None


def _yaml(path: str, program: Program | None) -> Iterator[_Found]:
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
    data = source.data
    if isinstance(data, dict) and "cases" in data:
        raise UsageError(f"{path}: is a case file, not an event file; run its cases with pytest")
    field = _list_in(data, program)
    within: tuple[str, ...] = () if field is None else (field,)
    data = data if field is None else data[field]
    for number, element in enumerate(data if isinstance(data, list) else [] if data is None else [data]):
        location: Location = (*within, number) if isinstance(data, list) else within
        where = f": {field or ''}[{number}]" if isinstance(data, list) else ""

        def place_of(mistake: Mistake, location: Location = location, where: str = where) -> str:
            line, column = source.position(replace(mistake, path=(*location, *mistake.path)))
            return f"{path}:{line}:{column}{where}"

        place = place_of(Mistake((), ""))
        if _is_record(element):
            yield Recorded(_floats(element), place)
        elif program is not None and isinstance(element, dict):
            yield _write(program, element, place, None, place_of=place_of)
        else:
            raise UsageError(f"{place}: {_strange(element)}; {_STREAM}; {_PLAIN}")


def _floats(value: Any) -> Any:
    """Return a record with floats instead of Decimals, as in a record that was read from JSON."""
    if isinstance(value, dict):
        return {name: _floats(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_floats(one) for one in value]
    return float(value) if isinstance(value, Decimal) else value


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("dynamodb"), dict)


def _write(
    program: Program,
    element: dict[str, Any],
    place: str,
    table: str | None,
    *,
    within_items: bool = False,
    place_of: Callable[[Mistake], str] | None = None,
) -> Write:
    """Return the write that an element which is not a record stands for. Raises UsageError if it is something else.

    `place_of` returns the place of a mistake in the element, if more is known than the place of the element.
    """
    fitting = table_of(program, element)
    if fitting is not None or within_items:
        return Write({"put": element}, place, table)
    if isinstance(element.get("Item"), dict):
        return Write({"put": element["Item"]}, place, table)
    if isinstance(element.get("Keys"), dict) and ("Metadata" in element or "NewImage" in element):
        return Write(element, place, table, incremental=True)
    if element.keys() & set(STEPS) or "remove" in element:
        if mistakes := list(step_mistakes(element, (), program)):
            places = [place if place_of is None else place_of(one) for one in mistakes]
            raise UsageError(
                *(": ".join([at, *map(str, one.path), one.message]) for at, one in zip(places, mistakes, strict=True))
            )
        return Write(element, place)
    near = next(filter(None, (suggest_step(name, STEPS) for name in element)), "")
    keys = " or ".join(" and ".join(schema.key_attributes) for schema in program.tables.values())
    raise UsageError(
        f"{place}: {_strange(element)}, and not an item or a step{near}: it lacks {keys}; {_PLAIN}, and a stream event as "
        '{"Records": […]}'
    )


def _strange(element: Any) -> str:
    if isinstance(element, dict):
        source = element.get("eventSource", element.get("EventSource"))
        if source:
            return f"a record of {source}, not of a DynamoDB stream"
        return "not a stream record: it has no dynamodb part"
    return f"expected a stream record, found {json.dumps(element, ensure_ascii=False, default=str)[:40]}"

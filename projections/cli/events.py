"""`projections events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import as_json, note_written, output_option, program_of, rules_option, write_output
from projections.errors import UsageError
from projections.terminal import count, json_text, print_text

if TYPE_CHECKING:
    from projections.language.program import Program

__all__ = ["command"]


@click.command("events")
@click.argument("files", nargs=-1, required=True, metavar="FILES…")
@rules_option
@as_json
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="[LOGICAL=]NAME",
    help="Name this table in the records; repeat it for each of `tables:`.",
)
@output_option
def command(
    files: tuple[str, ...], rules: str | None, as_json: bool, tables: tuple[str, ...], output: str | None
) -> None:
    """Make stream events from plain items, table exports or other events.

    Prints one Lambda event with the records of all FILES. FILES are event files as for `replay`; - is standard input. For
    `sam local invoke`, name the function's table with --table, because the function rejects records of other tables.

    The records count as older than those of any real stream. If a function has processed real records of an item, it
    ignores these records of that item.

    \b
    A file of plain items, in YAML or JSON:
      - put: {PK: USER#bob, SK: "LIKE#POST#p1"}
      - update: {PK: "POST#p1", SK: METADATA, title: New}
        remove: [draft]
        add: {views: 1}
      - delete: {PK: USER#bob, SK: "LIKE#POST#p1"}

    \b
    Examples:
      projections events --rules social likes.yaml > event.json
      aws dynamodb scan --table-name shop | projections events --rules social - > event.json
    """
    from projections.local.events import read

    program = program_of(rules)
    names = _names(program, tables)
    records = [_named(one.record, names) for one in read(files, program)]
    text = json_text({"Records": records})
    if output is None:
        print_text(text)
    else:
        write_output(output, text + "\n")
        note_written(output, count(len(records), "record"))


def _names(program: Program, given: tuple[str, ...]) -> dict[str, str]:
    """Return the names of --table by logical name."""
    found = {}
    for one in given:
        logical, equals, real = one.partition("=")
        if not equals and len(program.tables) > 1:
            raise UsageError(f"--table {one}: the rules have several tables; write LOGICAL=NAME for each")
        if not equals:
            logical, real = next(iter(program.tables)), one
        if logical not in program.tables or not real:
            raise UsageError(f"--table {one}: expected LOGICAL=NAME, where LOGICAL is {' or '.join(program.tables)}")
        found[logical] = real
    return found


def _named(record: Any, names: dict[str, str]) -> Any:
    """Return a record with the given name of its table."""
    head, _, rest = str(record.get("eventSourceARN", "")).partition(":table/")
    name, _, label = rest.partition("/")
    if len(names) == 1 and name not in names:
        (name,) = names
    if name not in names or not rest:
        return record
    return {**record, "eventSourceARN": f"{head}:table/{names[name]}/{label}"}

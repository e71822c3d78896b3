"""`projections explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from projections.aws.tables import Live
from projections.cli.options import Tables, as_json, batch_size_option, note, program_of, stack_options
from projections.cli.stack import deployed
from projections.errors import UsageError
from projections.terminal import json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.language.program import Program

__all__ = ["command"]


@click.command("explain")
@click.argument("events", nargs=-1, metavar="[EVENTS…]")
@stack_options
@as_json
@click.option(
    "--item", metavar="KEY", help="Explain this item of a live table instead, such as PK=POST#p1,SK=METADATA."
)
@batch_size_option
@click.option("--reads", is_flag=True, help="With EVENTS, print the reads, too.")
def command(
    events: tuple[str, ...],
    given: Tables,
    as_json: bool,
    item: str | None,
    batch_size: int,
    reads: bool,
) -> int:
    """Explain what rules do with stream records, or where the derived values of an item come from.

    EVENTS are recorded stream events, as for `replay`. For each record, prints its entity, or why no entity matches, and the
    effect of each rule, or why the rule has no effect. Then prints every write that the real handler makes on tables in
    memory, with its condition, its records and its capacity units. The stream records of these writes are explained in
    the same way.

    --item KEY explains one item of a live table, and writes nothing. Prints every derived value with its rule, guard and
    sources, the differences that `verify` finds on the item, and what the item itself contributes. Only `verify` checks
    whether a group in the ledger matches all its source items. KEY is PK=POST#p1,SK=METADATA, or the form that logs and the
    quarantine show: main|POST#p1|METADATA, with escapes such as \\u001b for characters that cannot be printed. If the
    stack's parameter Redact is set, logs show hashes such as key:5f2a09…. KEY can also be such a hash: the command then
    searches for it in all tables, then among the deleted items in the ledger. The hash of the item is printed, too, so
    that you can search the logs for it.

    Exits with 1 if records were quarantined or failed, or if something on the item differs.

    \b
    Examples:
      projections explain --rules social events/like.json
      projections explain --stack shop --item PK=POST#p1,SK=METADATA
      projections explain --stack shop --item key:5f2a09c1d87be4a3f06c91e2
    """
    if bool(events) == bool(item):
        if item is None:
            raise UsageError("nothing to explain: pass event files or --item KEY")
        one = 'Its whole key is one argument, such as --item "PK=POST#p1,SK=METADATA"'
        raise UsageError(f"--item explains one item of a live table, and reads no events: omit {events[0]}. {one}")
    if item is not None:
        there = deployed(given)
        return _item(there.connect(there.document()), item, as_json)
    for option in ("table", "ledger", "endpoint-url", "region"):
        if getattr(given, {"table": "tables"}.get(option, option.replace("-", "_"))):
            raise UsageError(f"--{option} requires --item: events are replayed on tables in memory")
    return _events(program_of(given.rules), events, batch_size, reads, as_json)


def _events(program: Program, events: tuple[str, ...], batch_size: int, reads: bool, as_json: bool) -> int:
    from projections.cli.printing.explain import print_explanation
    from projections.inspect.explain.document import explain, explanation_document
    from projections.inspect.rehearsal.rehearse import rehearse
    from projections.local.events import read

    recorded = read(events, program, note)
    rehearsal = rehearse(program, [one.record for one in recorded], batch_size=batch_size)
    explanation = explain(program, rehearsal, [one.place for one in recorded])
    if as_json:
        print_text(json_text(explanation_document(explanation)))
    else:
        print_explanation(explanation, reads=reads)
    return 1 if explanation.rejected or explanation.failed else 0


def _item(live: Live, item: str, as_json: bool) -> int:
    from projections.cli.printing.explain_item import item_document, print_item
    from projections.inspect.explain.item import item_explanation
    from projections.inspect.explain.keys import read_key
    from projections.language.keys import encode_key
    from projections.operations.hashes import is_hash, key_of
    from projections.operations.redaction import key_hash, read_secret

    key = key_of(live.program, live.store, item) if is_hash(item) else read_key(live.program, item)
    report = item_explanation(live.program, live.store, key)
    secret = read_secret(live.store)
    hashed = key_hash(secret, encode_key(key)) if secret is not None else None
    if as_json:
        print_text(json_text({**item_document(report), "hash": hashed}))
    else:
        print_item(live.program, report)
        if hashed is not None:
            print_line(f"Logs can show the key as {hashed}.")
    return 0 if report.agrees else 1

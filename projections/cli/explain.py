"""`projections explain`."""

from __future__ import annotations

import click

from projections.aws.connection import Live, connect
from projections.cli.options import as_json, document_of, find_rules, live_options
from projections.cli.stack import deployed, stack_option
from projections.errors import UsageError
from projections.terminal import json_text, print_text

__all__ = ["command"]


@click.command("explain")
@click.argument("events", nargs=-1, metavar="[EVENTS…]")
@live_options
@stack_option
@as_json
@click.option("--item", metavar="KEY", help="Explain this item of a live table instead, as PK=POST#p1,SK=METADATA.")
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    default=100,
    show_default=True,
    help="Maximum records per delivery of EVENTS.",
)
@click.option("--reads", is_flag=True, help="Print the reads of EVENTS, too.")
def command(
    events: tuple[str, ...],
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    stack: str | None,
    as_json: bool,
    item: str | None,
    batch_size: int,
    reads: bool,
) -> int:
    """Explain what rules do with stream records, or where the derived values of an item come from.

    EVENTS are recorded stream events, as for `replay`. Prints the entity of each record, or why none matches, and what each
    rule does with it, or why nothing. Then prints every write of the batch, as the real handler makes it on tables in
    memory, with its condition, its records and its capacity units, and the effects of these writes through the tables' own
    stream.

    --item KEY explains one item of a live table, and writes nothing. Prints every derived value with its rule, guard and
    sources, the differences that `verify` finds on the item, and what the item itself contributes. Only `verify` checks
    whether a group in the ledger matches all its source items. KEY is PK=POST#p1,SK=METADATA, or the form that logs and the
    quarantine show: main|POST#p1|METADATA, with \\u001b for a character that cannot be printed. It can also be a hash that
    logs show with the parameter Redact: key:5f2a09…, which is searched for in all tables.

    Exits with 1 if records were quarantined or failed, or if something on the item differs.

    \b
    Examples:
      projections explain --rules social events/like.json
      projections explain --stack shop --item PK=POST#p1,SK=METADATA
    """
    if bool(events) == bool(item):
        raise UsageError("explain what? Name event files, or an item with --item KEY")
    if item is not None:
        names = deployed(stack, region)
        document = names.document(rules, writes=False)
        live = connect(document, names.tables(tables, document), names.ledger(ledger), endpoint_url, region)
        return _item(live, item, as_json)
    for option, given in (
        ("--table", tables),
        ("--ledger", ledger),
        ("--endpoint-url", endpoint_url),
        ("--region", region),
    ):
        if given:
            raise UsageError(f"{option} is for --item; events are played on tables in memory")
    return _events(document_of(find_rules(rules)), events, batch_size, reads, as_json)


def _events(document: dict[str, object], events: tuple[str, ...], batch_size: int, reads: bool, as_json: bool) -> int:
    from projections.cli.printing.explain import print_explanation
    from projections.inspect.explain.document import explain, explanation_document
    from projections.inspect.rehearsal.rehearse import rehearse
    from projections.language.program import Program
    from projections.local.events import read

    program = Program.from_document(document)
    recorded = read(events)
    rehearsal = rehearse(program, [one.record for one in recorded], batch_size=batch_size)
    explanation = explain(program, rehearsal, [one.place for one in recorded])
    if as_json:
        print_text(json_text(explanation_document(explanation)))
    else:
        print_explanation(explanation, reads=reads)
    return 1 if explanation.rejected or explanation.failed else 0


def _item(live: Live, item: str, as_json: bool) -> int:
    from projections.cli.printing.explain_item import item_document, print_item
    from projections.inspect.explain.item import tell_item
    from projections.inspect.explain.keys import read_key
    from projections.operations.hashes import is_hash, key_of

    key = key_of(live.program, live.store, item) if is_hash(item) else read_key(live.program, item)
    told = tell_item(live.program, live.store, key)
    if as_json:
        print_text(json_text(item_document(told)))
    else:
        print_item(live.program, told)
    return 0 if told.agrees else 1

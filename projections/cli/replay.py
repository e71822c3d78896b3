"""`projections replay`."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from projections.cli.options import (
    as_json,
    find_rules,
    note_missing,
    note_written,
    parameters_from,
    rules_option,
    select_option,
    selected_rules,
    write_output,
)
from projections.cli.queries import columns_of, print_items
from projections.engine.ledger_items import Entry
from projections.engine.store import Image, ItemKey
from projections.errors import UsageError
from projections.inspect.explain.words import encoded_words, key_words, value_text
from projections.language.keys import decode_key
from projections.language.rules import public_name
from projections.language.values import plain_item
from projections.terminal import count, json_text, markup, print_grid, print_json, print_line, print_markup

if TYPE_CHECKING:
    from projections.inspect.explain.matching import Unused
    from projections.inspect.explain.record_effects import RecordReport
    from projections.language.access.plan import Query
    from projections.language.facts import Origin
    from projections.language.program import Program
    from projections.language.ruleset import RuleSet
    from projections.local.event_replay import Replay


@click.command("replay")
@click.argument("events", nargs=-1, required=True, metavar="EVENTS…")
@rules_option
@as_json
@click.option(
    "--ask",
    "asks",
    multiple=True,
    metavar='"NAME PARAMETER=VALUE…"',
    help="Run this query of the rule file afterwards, and print its items; repeatable.",
)
@select_option
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Make N changes at a time, and run the functions in between. [default: all at once]",
)
@click.option("--save", metavar="FILE", help="Also write the records of EVENTS to this file, as one Lambda event.")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="[LOGICAL=]NAME",
    help="With --save, the name of this table in the records; repeat it for each of `tables:`.",
)
def command(
    events: tuple[str, ...],
    rules: str | None,
    as_json: bool,
    select: tuple[str, ...],
    asks: tuple[str, ...],
    batch_size: int | None,
    save: str | None,
    tables: tuple[str, ...],
) -> int:
    """Run recorded stream events through the real handler, and print the derived items.

    EVENTS are files, - is standard input. A file has stream records, as Lambda or `aws dynamodbstreams get-records` give
    them; an object that Lambda wrote to S3 on failure; or items, each as an insert: plain items, the output of `aws dynamodb
    scan`, or a table export (also its directory). Steps are writes. A file is JSON, JSON lines or YAML; gzip is read.

    \b
    A file of steps, and of a plain item:
      - put: {PK: USER#bob, SK: "LIKE#POST#p1"}
      - update: {PK: "POST#p1", SK: METADATA, title: New}
        remove: [draft]
        add: {views: 1}
      - delete: {PK: USER#bob, SK: "LIKE#POST#p1"}
      - {PK: USER#ann, SK: "LIKE#POST#p1"}

    First, puts the newest version of each recorded item of the application into temporary tables in memory. Then delivers
    the recorded events, and then the stream records of these tables, until nothing changes. So a rule with `once` reads the
    newest values. With --batch-size 1, it reads the values at the time.

    With --select, other rules do not run. If a selected rule reads values of other rules, a note is printed.

    With --ask, runs a query of the rule file on the temporary tables afterwards.

    With --save, writes the records as a Lambda event, for `sam local invoke`: name the function's table with --table,
    because the function rejects records of other tables. Records made of items count as older than those of any real
    stream, so a function ignores them for items of which it has processed real records.

    At the end, lists the items that belong to no entity, and the rules that apply to no item, with reasons and similar
    names.

    Exits with 1 if records were quarantined or failed.

    \b
    Examples:
      projections replay --rules social events/social.json
      projections replay --rules social events/social.json --ask "likers postId=p1"
      aws dynamodb scan --table-name shop | projections replay --rules social - --save event.json --table shop
    """
    from projections.api import ask, load
    from projections.aws.live_tables import real_names
    from projections.language.values import plain_items
    from projections.local.event_files import read
    from projections.local.event_replay import MemoryTables, replay, schemas

    if tables and save is None:
        raise UsageError("--table names the table in the records of --save: pass --save FILE")
    whole = load(find_rules(rules))
    note_missing(whole.program, selected_rules(whole.program, select))
    loaded = whole.only(select)
    program = loaded.program
    asked = [_parse_query(loaded, text) for text in asks]
    records = [recorded.record for recorded in read(events, program)]
    if save is not None:
        names = real_names(tables, [*program.tables]) if tables else {}
        write_output(save, json_text({"Records": [_rename_table(record, names) for record in records]}) + "\n")
        note_written(save, count(len(records), "record"))
    temporary = MemoryTables(schemas(program), records)
    result = replay(program, records, temporary, batch_size=batch_size or 100, stepwise=batch_size is not None)
    answers = [
        Asked(query, parameters, plain_items(ask(temporary.store, loaded, query.name, parameters).page().items))
        for query, parameters in asked
    ]
    if as_json:
        print_json(_document(result, program, answers))
    else:
        _print(result, program, answers)
    return 1 if result.quarantined or result.failures else 0


def _rename_table(record: Any, names: Mapping[str, str]) -> Any:
    """Return a record with the given name of its table."""
    head, _, rest = str(record.get("eventSourceARN", "")).partition(":table/")
    table, _, label = rest.partition("/")
    name = next(iter(names.values())) if len(names) == 1 else names.get(table)
    return {**record, "eventSourceARN": f"{head}:table/{name}/{label}"} if rest and name else record


def _parse_query(rules: RuleSet, text: str) -> tuple[Query, dict[str, str]]:
    """Return the query and the parameters of a text as `likers postId=p1`, in which quotes group words as in a shell."""
    from projections.access.query_reads import parameters_of

    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise UsageError(f"--ask {text}: expected a query and its parameters, such as `likers postId=p1`") from None
    query = rules.query(name)
    parameters = parameters_from(name, words)
    parameters_of(query, parameters)
    return query, parameters


MOST = 5
"""Items of no entity that are listed."""


class Asked(NamedTuple):
    """A query with the caller's values, and the items that it gave."""

    query: Query
    parameters: Mapping[str, str]
    items: Sequence[Mapping[str, Any]]


def _document(replay: Replay, program: Program, asked: Sequence[Asked]) -> dict[str, Any]:
    """Return what `replay --json` prints; `asks` has the queries that were run, if any."""
    from projections.local.event_source import change_in

    asks = [{"query": ask.query.name, "with": dict(ask.parameters), "items": list(ask.items)} for ask in asked]
    return {
        "items": [
            plain_item({name: value for name, value in image.items() if not name.startswith(program.guard_prefix)})
            for _, image in _in_order(replay.after, program)
        ],
        "ledger": [plain_item(image) for image in replay.ledger],
        "quarantined": [
            {
                "rule": rejection.rule,
                "reason": rejection.reason,
                "table": rejection.table,
                "key": rejection.key,
                "sequenceNumber": rejection.sequence,
            }
            for rejection in replay.quarantined
        ],
        "failures": [
            {
                "reason": failure.reason,
                "eventName": failure.record.get("eventName"),
                "key": _keys(failure.record),
                "sequenceNumber": change_in(failure.record).get("SequenceNumber"),
            }
            for failure in replay.failures
        ],
        "rounds": replay.rounds,
        "records": [
            {
                "eventName": report.raw.get("eventName"),
                "key": _keys(report.raw),
                "entity": report.entity,
                "rules": _rules_with_effects(report),
            }
            for report in _reports(replay, program)
        ],
        "missingTargets": [
            {"rule": rule, "target": target, "items": number}
            for (rule, target), number in sorted(_missing(replay, program).items())
        ],
        "unusedRules": [{"rule": rule, "reason": why} for rule, why in _find_unused(replay, program).rules],
        **({"asks": asks} if asks else {}),
    }


def _reports(replay: Replay, program: Program) -> list[RecordReport]:
    """Return the records that were played, each with the effect of the rules."""
    from projections.inspect.explain.record_effects import record_report
    from projections.inspect.rehearsal.rehearse import Decoded

    played = replay.records[: replay.recorded]
    return [record_report(program, Decoded.of(program, record, replay.names)) for record in played]


def _rules_with_effects(report: RecordReport) -> list[str]:
    return list(dict.fromkeys(rule.rule for rule in report.rules if rule.effect))


def _find_unused(replay: Replay, program: Program) -> Unused:
    """Return the rules that no item of the replay fits, with the items of its last rounds."""
    from projections.inspect.explain.matching import find_unused
    from projections.inspect.rehearsal.rehearse import Decoded

    decoded = (Decoded.of(program, raw, replay.names).record for raw in replay.records)
    changes = [(record.key, record.new, record.old) for record in decoded if record is not None]
    return find_unused(program, ((key, image) for key, *images in changes for image in images if image is not None))


def _print(replay: Replay, program: Program, asked: Sequence[Asked]) -> None:
    """Print the items with their derived values, the rule that wrote each, and the answers of queries."""
    from projections.language.facts import creators, origins

    reports = _reports(replay, program)
    written, created = origins(program.model), creators(program.model)
    items = [_Derived.of(program, written, created, key, image) for key, image in _in_order(replay.after, program)]
    derived = [item for item in items if item.origins or item.creator]
    for item in derived:
        _print_item(program, item)
    for key in sorted(set(replay.before) - set(replay.after)):
        print_markup("[red]- {}[/]  removed", key_words(key))
    if replay.after and not derived:
        silent = program.rules and all(rule.held for rule in program.rules.values())
        applied = dict.fromkeys(name for report in reports for name in _rules_with_effects(report))
        if silent:
            why = "all rules are held"
        elif applied:
            why = f"no item has values of the rules that apply ({', '.join(applied)})"
        else:
            why = "no rule applies to these events"
        print_markup("Nothing was derived: {}.", why)
    _print_problems(replay)
    for asking in asked:
        words = "".join(f" {name}={value}" for name, value in asking.parameters.items())
        print_markup("[bold cyan]{}[/]{}: {}", asking.query.name, words, count(len(asking.items), "item"))
        print_items(asking.items, columns_of(program, asking.query))
    untouched = Counter(item.entity for item in items if not (item.origins or item.creator))
    _print_summary(replay, len(derived), sum(len(item.origins) for item in derived), untouched)
    _print_missing(replay, program)
    _print_unused(_find_unused(replay, program))


class _Derived(NamedTuple):
    """An item with the origins of its derived attributes."""

    key: ItemKey
    image: Image
    entity: str
    creator: str
    """The rule that creates items of the entity; empty if the application does."""
    origins: Mapping[str, Origin]
    order: Sequence[str]
    """The attributes that rules write, as the rules list them."""

    @classmethod
    def of(
        cls,
        program: Program,
        written: Mapping[str, Mapping[str, Origin]],
        created: Mapping[str, str],
        key: ItemKey,
        image: Image,
    ) -> _Derived:
        from projections.language.kinds import EVERY

        recognised = program.recognise(key, image)
        entity = recognised.entity.name if recognised else "?"
        whence = written.get(entity, {})
        keys = program.tables[key.table].key_attributes
        origins = {
            name: whence.get(name) or whence[EVERY]
            for name in image
            if (name in whence or EVERY in whence) and name not in keys and not name.startswith(program.guard_prefix)
        }
        return cls(key, image, entity, created.get(entity, ""), origins, list(whence))


def _print_item(program: Program, item: _Derived) -> None:
    by = markup("[dim], created by[/] [cyan]{}[/]", item.creator) if item.creator else ""
    print_markup("[bold]{}[/]  {}{}", key_words(item.key), item.entity, by)
    rows = []
    for name in sorted(item.image, key=lambda name: item.order.index(name) if name in item.order else -1):
        value, origin = item.image[name], item.origins.get(name)
        if name in program.tables[item.key.table].key_attributes:
            continue
        if origin is not None:
            rows.append(
                [("+", "green"), (name, ""), (value_text(value), "bold"), (origin.rule, "cyan"), (origin.how, "dim")]
            )
        elif not name.startswith(program.guard_prefix):
            rows.append([(" ", ""), (name, "dim"), (value_text(value), "dim")])
    print_grid(rows)


def _print_unused(unused: Unused) -> None:
    """Print the rules that no item fits, and the items of no entity."""
    if unused.items:
        print_markup("[yellow]{} of no entity, which no rule reads:[/]", count(len(unused.items), "item"))
        for key, near in unused.items[:MOST]:
            print_markup("  [bold]{}[/]  [dim]{}[/]", key_words(key), near)
        if len(unused.items) > MOST:
            print_line(f"  and {len(unused.items) - MOST:,} more")
    if unused.rules:
        print_line("Rules that apply to no item:")
        print_grid([[(" ", ""), (rule, "cyan"), (why, "dim")] for rule, why in unused.rules], after="")


def _print_problems(replay: Replay) -> None:
    nameless = Counter((rejection.rule, rejection.reason) for rejection in replay.quarantined if rejection.key is None)
    for rejection in replay.quarantined:
        rule = markup(" [cyan]{}[/]", str(rejection.rule)) if rejection.rule else ""
        if rejection.key is not None:
            name = encoded_words(rejection.key)
        elif number := nameless.pop((rejection.rule, rejection.reason), 0):
            name = "a record" if number == 1 else f"{number:,} records"
        else:
            continue
        print_markup("[yellow]quarantined[/]{}  {}: {}", rule, name, rejection.reason)
    for failure in replay.failures:
        name = " · ".join(str(text) for text in _keys(failure.record).values())
        print_markup("[red]failed[/]  {}: {}", name, failure.reason)
    if replay.quarantined or replay.failures:
        print_line()


def _print_summary(replay: Replay, items: int, attributes: int, untouched: Mapping[str, int]) -> None:
    repeated = f" ({replay.repeated} redelivered)" if replay.repeated else ""
    print_markup(
        "{}{} in {}: [bold]{} on {}[/], {} quarantined, {} failed.",
        count(replay.recorded, "record"),
        repeated,
        count(replay.rounds, "round"),
        count(attributes, "derived attribute"),
        count(items, "item"),
        len(replay.quarantined),
        len(replay.failures),
    )
    if untouched:
        counts = ", ".join(f"{number} {entity}" for entity, number in sorted(untouched.items()))
        print_markup("[dim]Items without derived values: {}.[/]", counts)


def _missing(replay: Replay, program: Program) -> dict[tuple[str, str], int]:
    """Return how many items contribute to each target that does not exist, by rule and encoded key.

    Rules that create their targets are left out, and those that write nothing.
    """
    missing: Counter[tuple[str, str]] = Counter()
    for item in replay.ledger:
        if item["pk"]["S"].startswith("E|"):
            missing.update(
                (rule.name, target)
                for name, target in Entry.read(item).targets
                if (rule := program.rules.get(public_name(name))) is not None
                and rule.writes_items
                and not rule.creates
                and not rule.held
                and decode_key(target) not in replay.after
            )
    return dict(missing)


def _print_missing(replay: Replay, program: Program) -> None:
    """Print the targets that do not exist: their values are published when the application creates them."""
    missing = sorted(_missing(replay, program).items())
    for (rule, target), number in missing[:MOST]:
        print_markup(
            "[yellow]![/] [cyan]{}[/]: {} counted for {}, which does not exist. The rule writes to it when it exists.",
            rule,
            f"{count(number, 'item')} {'is' if number == 1 else 'are'}",
            encoded_words(target),
        )
    if len(missing) > MOST:
        print_line(f"  and {len(missing) - MOST} more such targets; --json lists them all.")


def _in_order(items: Mapping[ItemKey, Image], program: Program) -> Iterable[tuple[ItemKey, Image]]:
    """Return the items by table, partition key and sort key; numeric keys by value."""

    def place(entry: tuple[ItemKey, Image]) -> tuple[Any, ...]:
        key = entry[0]
        parts = [pair for value in program.tables[key.table].wire(key).values() for pair in value.items()]
        return key.table, *(Decimal(text) if kind == "N" else text for kind, text in parts)

    return sorted(items.items(), key=place)


def _keys(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key of a record, which may be malformed."""
    from projections.local.event_source import change_in

    keys = change_in(record).get("Keys")
    if not isinstance(keys, Mapping):
        return {}
    return {name: next(iter(value.values()), None) for name, value in keys.items() if isinstance(value, Mapping)}

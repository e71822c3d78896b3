"""`projections explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from projections.aws.live_tables import Live
from projections.cli.options import Tables, as_json, program_of, stack_options
from projections.cli.stack import find_deployed
from projections.cli.verify import difference
from projections.errors import UsageError
from projections.inspect.explain.words import (
    contribution_words,
    difference_words,
    encoded_words,
    json_words,
    key_words,
    version_words,
)
from projections.inspect.rehearsal.recorder import Spent
from projections.language.keys import ItemKey, encode_key
from projections.language.program import Program
from projections.language.rules import public_name
from projections.operations.verify.drift import KINDS, REPAIRS
from projections.terminal import Styled, count, markup, print_json, print_line, print_markup, units

if TYPE_CHECKING:
    from projections.inspect.explain.events import ActionReport, BatchReport, Explanation, RequestReport
    from projections.inspect.explain.item_facts import Attribute, Derived, ItemExplanation, Source
    from projections.inspect.explain.record_effects import RecordReport, RuleReport
    from projections.language.facts import Origin


@click.command("explain")
@click.argument("events", nargs=-1, metavar="[EVENTS…]")
@stack_options
@as_json
@click.option(
    "--item", metavar="KEY", help="Explain this item of a live table instead, such as PK=POST#p1,SK=METADATA."
)
def command(events: tuple[str, ...], options: Tables, as_json: bool, item: str | None) -> int:
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
        hint = 'Its whole key is one argument, such as --item "PK=POST#p1,SK=METADATA"'
        raise UsageError(f"--item explains one item of a live table, and reads no events: omit {events[0]}. {hint}")
    if item is not None:
        there = find_deployed(options)
        return _item(there.connect(there.document()), item, as_json)
    for option in ("table", "ledger", "endpoint-url", "region"):
        if getattr(options, {"table": "tables"}.get(option, option.replace("-", "_"))):
            raise UsageError(f"--{option} requires --item: events are replayed on tables in memory")
    return _events(program_of(options.rules), events, as_json)


def _events(program: Program, events: tuple[str, ...], as_json: bool) -> int:
    from projections.inspect.explain.events import explain, explanation_document
    from projections.inspect.rehearsal.rehearse import rehearse
    from projections.local.event_files import read

    recorded = read(events, program)
    rehearsal = rehearse(program, [event.record for event in recorded])
    explanation = explain(program, rehearsal, [event.place for event in recorded])
    if as_json:
        print_json(explanation_document(explanation))
    else:
        _print_explanation(explanation)
    return 1 if explanation.rejected or explanation.failed else 0


def _item(live: Live, item: str, as_json: bool) -> int:
    from projections.inspect.explain.item import item_explanation, read_key
    from projections.inspect.explain.item_facts import item_document
    from projections.operations.redaction import is_hash, key_hash, key_of, read_secret

    key = key_of(live.program, live.store, item) if is_hash(item) else read_key(live.program, item)
    report = item_explanation(live.program, live.store, key)
    secret = read_secret(live.store)
    hashed = key_hash(secret, encode_key(key)) if secret is not None else None
    if as_json:
        print_json({**item_document(report), "hash": hashed})
    else:
        for line in item_lines(live.program, report):
            print_line(line)
        if hashed is not None:
            print_line(f"Logs can show the key as {hashed}.")
    return 0 if report.agrees else 1


# Events


ALIKE = 6
"""Maximum writes of one kind that are printed of a transaction."""


def _print_explanation(explanation: Explanation) -> None:
    """Print each record, then the writes of each batch."""
    for number, report in enumerate(explanation.batches, 1):
        if report.batch.round == 0:
            for position, record in enumerate(report.records):
                _print_record(record, position + 1, report.places[position] if report.places else "")
        _print_batch(report, f"Batch {number}" if report.batch.round == 0 else "Then, from the stream of these writes")
    for keys, state in ((explanation.rehearsal.assumed, "exist"), (explanation.unknown, "be absent")):
        if keys:
            print_markup("[dim]Assumed to {}, because the events do not include it: {}.[/]", state, _names(keys))
    print_markup("[bold]Total[/]: {}.", _spent(explanation.rehearsal.spent))


def _names(keys: Sequence[ItemKey]) -> str:
    more = f" and {len(keys) - ALIKE} more" if len(keys) > ALIKE else ""
    return ", ".join(map(key_words, keys[:ALIKE])) + more


def _print_record(report: RecordReport, number: int, place: str) -> None:
    record = report.record
    if record is None:
        print_markup("[bold]{}[/]  [red]unusable record[/]  [dim]{}[/]", number, place)
        print_line(f"   {report.flaw!s}")
        print_line()
        return
    event = f"{record.event} (expired)" if record.expired else record.event
    variables = ", ".join(f"{name} {text}" for name, text in report.variables.items())
    entity = f"{report.was} → {report.entity}" if report.was else report.entity or "no entity"
    print_markup(
        "[bold]{}  {}  {}[/]  [cyan]{}[/]{}  [dim]record {}, {}[/]",
        number,
        event,
        key_words(record.key),
        entity,
        markup(" [dim]({})[/]", variables) if variables else "",
        record.sequence,
        place,
    )
    for name, misfits in report.nearest:
        print_markup("   not [cyan]{}[/]: {}", name, "; ".join(misfits))
    if not report.rules:
        what = "no rule applies" if report.nearest else "no rule reads or writes items of this entity"
        print_markup("   [dim]{}[/]", what)
    width = max((len(rule.rule) for rule in report.rules), default=0)
    for rule in report.rules:
        _print_rule(rule, width)
    print_line()


def _print_rule(rule: RuleReport, width: int) -> None:
    from projections.inspect.explain.record_effects import effect_words

    name, why = rule.rule.ljust(width), "; ".join(rule.reasons)
    if not rule.effects:
        print_markup("   [dim]– {}  no effect: {}[/]", name, why)
    for effect in rule.effects:
        mark = markup("[red]✗[/]") if effect.kind == "quarantine" else markup("[green]✓[/]")
        print_markup("   {} [cyan]{}[/]  {}", mark, name, effect_words(effect))
    if rule.effects and why:
        print_markup("{}[dim]because {}[/]", " " * (width + 7), why)


def _print_batch(report: BatchReport, title: str) -> None:
    print_markup("[bold]{}[/]: {}", title, report.summary)
    for request in report.requests:
        if request.actions:
            _print_request(request, report.batch.round)
    for rejection in report.batch.rejected:
        rule = markup("[cyan]{}[/]: ", rejection.rule) if rejection.rule else ""
        print_markup("   [yellow]quarantined[/] {}{}", rule, rejection.reason)
    if report.batch.outcome.failed is not None:
        print_markup("   [red]failed[/] {}", str(report.batch.outcome.failed_reason))
    if report.requests:
        print_markup("   [dim]{}[/]", _spent(report.batch.spent))
    print_line()


def _print_request(report: RequestReport, round_: int) -> None:
    request, indent = report.request, "   "
    if request.operation in ("TransactWriteItems", "BatchExecuteStatement"):
        failed = "" if request.outcome == "done" else markup(", [red]not done[/]")
        writes = count(len(report.actions), "write")
        print_markup("   {} of {}{}  [dim]{} units[/]", request.operation, writes, failed, request.write_units)
        indent = "     "
    seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for action in report.actions:
        alike = action.role.kind, action.role.rules
        seen[alike] += 1
        if seen[alike] <= ALIKE:
            _print_action(action, indent, round_)
    for (kind, _), number in seen.items():
        if number > ALIKE:
            print_markup("     [dim]and {} more of kind {}; --json has all[/]", number - ALIKE, kind)


def _print_action(action: ActionReport, indent: str, round_: int) -> None:
    rules = markup(" [cyan]{}[/]", ", ".join(action.role.rules)) if action.role.rules else ""
    records = ""
    if action.records and round_ == 0:
        noun = "record" if len(action.records) == 1 else "records"
        listed = ", ".join(map(str, action.records[:8])) + (", …" if len(action.records) > 8 else "")
        records = f", for {noun} {listed}"
    mark = "" if action.outcome == "done" else markup("[red]not done[/] ")
    cost = units(action.units, "unit") + "".join(f", {number} of {name}" for name, number in action.index_units.items())
    print_markup(
        "{}{}{}{} [bold]{}[/]: {}  [dim]{}{}[/]",
        *(indent, mark, action.role.kind, rules, action.on, action.does, cost, records),
    )
    if action.condition:
        print_markup("{}  [dim]if {}[/]", indent, action.condition)
    if action.why:
        print_markup("{}  [red]because[/] {}", indent, action.why)


def _spent(spent: Spent) -> str:
    redundant = f" ({spent.in_vain:g} for redundant writes)" if spent.in_vain else ""
    written, read = units(spent.write_units, "write unit"), units(spent.read_units, "read unit")
    return f"{written}{redundant}, {read}, {count(spent.call_count, 'call')}"


# An item


def item_lines(program: Program, report: ItemExplanation) -> Iterator[str]:
    """Yield the derived values with their sources, then the contributions of the item."""
    from projections.language.facts import origins

    if report.item is not None:
        variables = ", ".join(f"{name} {text}" for name, text in report.item.variables.items())
        of = markup("[cyan]{}[/]", report.item.entity.name) + (markup("  [dim]({})[/]", variables) if variables else "")
    else:
        of = markup("[yellow]{}[/]", "the item does not exist" if report.image is None else "no entity")
    yield markup("[bold]{}[/]  {}", key_words(report.key), of)
    written = origins(program.model)
    for value in report.derived:
        yield from _derived_lines(value, written)
    if report.source is not None:
        yield from _source_lines(report.source)
    for drift in report.left_over:
        yield markup("  [yellow]![/] [cyan]{}[/] {}", drift.rule, difference(drift))
        yield markup("      [dim]{}. `verify --repair` {}.[/]", KINDS[drift.kind], REPAIRS[drift.kind])
    if not (report.derived or report.source or report.left_over):
        yield markup("   [dim]no rule reads or writes this item[/]")
        yield ""
    for name in report.stale:
        yield markup("[yellow]![/] {} is not explained: it is stale, because a package is too old to read it.", name)
    yield from _verdict(report)


def _verdict(report: ItemExplanation) -> Iterator[Styled]:
    """Yield the result of the comparison, and what was not compared."""
    grouped = any(value.contributions is not None and value.compared for value in report.derived)
    if report.drifts:
        differences = count(len(report.drifts), "difference")
        yield markup("[red]✗[/] {}. Run this again before you act: a change may be pending.", differences)
        for kind in dict.fromkeys(drift.kind for drift in report.drifts):
            yield markup("  [dim]{}: {}. `verify --repair` {}.[/]", kind, KINDS[kind], REPAIRS[kind])
    elif report.image is None and report.source is None:
        yield markup(
            "[green]✓[/] Nothing shows that an item is missing here. Whether a copy is, only its source shows."
        )
    else:
        yield markup("[green]✓[/] {}", "The item and the ledger agree." if grouped else "No drift.")
    if grouped:
        yield markup("[dim]The groups were not compared with all source items. `projections verify` does that.[/]")


def _mark(agrees: bool, rejected: bool = False) -> Styled:
    if not agrees:
        return markup("[red]✗[/]")
    return markup("[yellow]![/]") if rejected else markup("[green]✓[/]")


def _derived_lines(value: Derived, written: Mapping[str, Mapping[str, Origin]]) -> Iterator[str]:
    from projections.language.kinds import EVERY

    sources = " and ".join(source.name for source in value.rule.sources)
    target = getattr(value.rule, "into", value.rule.source).name
    hows = written.get(target, {})
    name, active = public_name(value.rule.name), value.state == "active"
    state = "" if active else markup("  [yellow]{} {}[/]", value.version, value.state)
    mark = _mark(value.agrees, bool(value.problem)) if active else markup("[yellow]–[/]")
    yield markup("  {} [cyan]{}[/]  [dim]{} of {}[/]{}", mark, name, value.rule.kind, sources, state)
    if value.description:
        yield markup("      [dim]{}[/]", value.description)
    width = max((len(attribute.name) for attribute in value.attributes), default=0)
    for attribute in value.attributes:
        origin = hows.get(attribute.name, hows.get(EVERY))
        how = markup("  [dim]{}[/]", origin.how) if origin is not None and origin.rule == name else ""
        yield markup("      {}  {}{}", attribute.name.ljust(width), _value_words(attribute), how)
    for line in _origin(value):
        yield markup("      [dim]{}[/]", line)
    for drift in value.drifts:
        if drift.kind == "guard":
            yield markup("      [red]guard[/] {} {}", str(drift.attribute), difference(drift))
    for text in value.notes:
        yield markup("      [dim]{}[/]" if value.agrees else "      [yellow]{}[/]", text)
    if value.problem:
        yield markup("      [red]{}[/]", value.problem)
    yield ""


def _value_words(attribute: Attribute) -> Styled:
    if attribute.agrees or attribute.drift is None:
        return markup("[bold]{}[/]", json_words(attribute.shown))
    drift = replace(attribute.drift, actual=attribute.shown, expected=attribute.expected)
    if attribute.drift.attribute is None:  # the drift of the whole item: this attribute of each side
        sides = {side: (value or {}).get(attribute.name) for side, value in drift.sides.items()}
        drift = replace(drift, sides=sides)
    return markup("[bold red]{}[/]", difference(drift))


def _origin(value: Derived) -> Iterator[str]:
    if value.contributions is not None:
        suffix = ""
        if value.guarded:
            suffix = (
                ", which the item shows" if value.at == value.known else f", the item shows {version_words(value.at)}"
            )
        yield f"the ledger has {count(value.contributions, 'contribution')} as of {version_words(value.known)}{suffix}"
    elif value.guarded:
        newest = f", the newest is {version_words(value.known)}" if value.known and value.known != value.at else ""
        yield f"as of {version_words(value.at)}{newest}"
    if value.sources:
        named = [encoded_words(key) + (f" ({what})" if what else "") for key, what in value.sources]
        yield f"from {', '.join(named)}"
    if value.more:
        yield value.more


def _source_lines(source: Source) -> Iterator[str]:
    yield markup("  {} [bold]contributions of this item[/]", _mark(source.agrees, bool(source.problems)))
    entry = source.entry
    if entry is None and not all(part.copy for part in source.contributions):
        yield markup("      [dim]no ledger entry: no record of this item was processed[/]")
    elif entry is not None:
        yield markup("      [dim]ledger entry: as of {}[/]", version_words(entry.version))
    if source.expires is not None:
        goes = datetime.fromtimestamp(source.expires, UTC).isoformat(timespec="minutes")
        yield markup("      [dim]the item was deleted, and the entry expires at {}[/]", goes)
    for part in source.contributions:
        words = contribution_words(part.recorded) if part.drift is None else difference(part.drift)
        if part.copy and part.drift is not None and part.recorded != part.should:
            words = ", should be ".join(difference_words(part.recorded, part.should))
        why = markup(" [dim]({})[/]", part.excuse) if part.excuse else ""
        style, rule, target = "bold" if part.agrees else "bold red", part.rule, encoded_words(part.target)
        yield markup("      {} [cyan]{}[/] to {}: [{}]{}[/]{}", _mark(part.agrees), rule, target, style, words, why)
    for rule, version in source.fences:
        yield markup("      [cyan]{}[/] pushed to its children as of {}", rule, version_words(version))
    if entry is not None and entry.recent:
        owed = ", ".join(encoded_words(element.partition("|")[2]) for element in sorted(entry.recent))
        yield markup("      [yellow]pending publishes: {}[/]", owed)
    refused = entry.refused.items() if entry is not None else ()
    for rule, reason in (*((public_name(name), why) for name, why in refused), *source.problems):
        yield markup("      [red]rejected by[/] [cyan]{}[/]: {}", rule, reason)
    for rule, reason in source.unmet:
        yield markup("      [dim]– {}  does not apply: {}[/]", rule, reason)
    yield ""

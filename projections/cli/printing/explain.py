"""An explanation of events on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from projections.inspect.explain.document import BatchReport, Explanation, RecordReport
from projections.inspect.explain.requests import ActionReport, RequestReport
from projections.inspect.explain.sources import RuleReport
from projections.inspect.explain.words import encoded_words, key_words
from projections.inspect.rehearsal.recorder import Spent
from projections.language.keys import ItemKey
from projections.terminal import console, count, styled, units

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["print_explanation"]

_COLORS = {"bad input": "red", "heals": "magenta", "": "dim"}

ALIKE = 6
"""Maximum writes of one kind that are printed of a transaction."""


def print_explanation(explanation: Explanation, *, reads: bool = False) -> None:
    """Print each record, then the requests of each batch; with `reads`, the reads, too."""
    out = console()
    rounds = max((report.batch.round for report in explanation.batches), default=0)
    deliveries = sum(report.batch.round == 0 for report in explanation.batches)
    for number, report in enumerate(explanation.batches, 1):
        if report.batch.round == 0:
            title = f"Batch {number}" if deliveries > 1 else "The batch"
            for position, record in enumerate(report.records):
                place = report.places[position] if report.places else ""
                _print_record(out, record, position + 1, place)
        else:
            title = "Then, from the stream of these writes" if report.batch.round == 1 else "Then"
            if not report.requests and report.batch.round == rounds:
                out.print(styled("[bold]{}[/]: {}", title, report.summary))
                out.print()
                continue
        _print_batch(out, report, title, reads)
    if explanation.rehearsal.assumed:
        names = _names(explanation.rehearsal.assumed)
        out.print(styled("[dim]Assumed to exist, because the events do not include it: {}.[/]", names))
    if explanation.unknown:
        names = _names(explanation.unknown)
        out.print(styled("[dim]Assumed to be absent, because the events do not include it: {}.[/]", names))
    out.print(styled("[bold]Total[/]: {}.", _spent(explanation.rehearsal.spent)))


def _names(keys: Sequence[ItemKey]) -> str:
    more = f" and {len(keys) - ALIKE} more" if len(keys) > ALIKE else ""
    return ", ".join(map(key_words, keys[:ALIKE])) + more


def _print_record(out: Console, report: RecordReport, number: int, place: str) -> None:
    record = report.record
    if record is None:
        out.print(styled("[bold]{}[/]  [red]unusable record[/]  [dim]{}[/]", number, place))
        out.print(f"   {report.flaw!s}")
        out.print()
        return
    event = f"{record.event} (expired)" if record.expired else record.event
    variables = ", ".join(f"{name} {text}" for name, text in report.variables.items())
    entity = f"{report.was} → {report.entity}" if report.was else report.entity or "no entity"
    out.print(
        styled(
            "[bold]{}  {}  {}[/]  [cyan]{}[/]{}  [dim]record {}, {}[/]",
            number,
            event,
            key_words(record.key),
            entity,
            styled(" [dim]({})[/]", variables) if variables else "",
            record.sequence,
            place,
        ),
    )
    for name, misfits in report.nearest:
        out.print(styled("   not [cyan]{}[/]: {}", name, "; ".join(misfits)))
    if not report.rules:
        what = "no rule applies" if report.nearest else "no rule reads or writes items of this entity"
        out.print(styled("   [dim]{}[/]", what))
    width = max((len(rule.rule) for rule in report.rules), default=0)
    for rule in report.rules:
        _print_rule(out, rule, width)
    out.print()


def _print_rule(out: Console, rule: RuleReport, width: int) -> None:
    color = _COLORS.get(rule.effect, "green")
    name = styled("[{}]{}[/]", "dim" if not rule.effect else "cyan", rule.rule.ljust(width))
    what = rule.what
    if rule.reasons and not rule.changes:
        what += f": {'; '.join(rule.reasons)}"
    mark = {"": "–", "bad input": "✗"}.get(rule.effect, "✓")
    out.print(styled("   [{}]{}[/] {}  {}", color, mark, name, styled("[dim]{}[/]", what) if not rule.effect else what))
    if not rule.effect:
        return
    indent = " " * (width + 7)
    for target, before, after in rule.changes:
        out.print(styled("{}[dim]{}:[/] {} → [bold]{}[/]", indent, encoded_words(target), before, after))
    if rule.reasons and rule.changes:
        out.print(styled("{}[dim]because {}[/]", indent, "; ".join(rule.reasons)))


def _print_batch(out: Console, report: BatchReport, title: str, reads: bool) -> None:
    out.print(styled("[bold]{}[/]: {}", title, report.summary))
    for source, numbers in report.coalesced:
        listed = ", ".join(map(str, numbers))
        out.print(styled("   [dim]records {} of {} count as one change[/]", listed, encoded_words(source)))
    for request in report.requests:
        if request.actions or reads:
            _print_request(out, request, report.batch.round)
    for one in report.batch.rejected:
        rule = styled("[cyan]{}[/]: ", one.rule) if one.rule else ""
        out.print(styled("   [yellow]quarantined[/] {}{}", rule, one.reason))
    if report.batch.outcome.failed is not None:
        out.print(styled("   [red]failed[/] {}", str(report.batch.outcome.failed_reason)))
    if report.requests:
        out.print(styled("   [dim]{}[/]", _spent(report.batch.spent)))
    out.print()


OUTCOMES = {"condition": "a condition was false", "cancelled": "cancelled", "refused": "refused"}
"""What `outcome` of a request means, if it was not done."""


def _print_request(out: Console, report: RequestReport, round_: int) -> None:
    request = report.request
    units = f"{request.write_units} write" if request.actions else f"{request.read_units:g} read"
    if request.operation in ("TransactWriteItems", "BatchExecuteStatement"):
        noun = "action of a transaction" if request.operation == "TransactWriteItems" else "statement"
        plural = "actions of a transaction" if request.operation == "TransactWriteItems" else "statements"
        failed = (
            "" if request.outcome == "done" else styled(", [red]{}[/]", OUTCOMES.get(request.outcome, request.outcome))
        )
        out.print(styled("   {}{}  [dim]{} units[/]", count(len(report.actions), noun, plural), failed, units))
        seen: Counter[tuple[str, tuple[str, ...]]] = Counter()
        for action in report.actions:
            alike = action.role.kind, action.role.rules
            seen[alike] += 1
            if seen[alike] <= ALIKE:
                _print_action(out, action, "     ", round_)
        for (kind, _), number in seen.items():
            if number > ALIKE:
                out.print(styled("     [dim]and {} more of kind {}; --json has all[/]", number - ALIKE, kind))
    elif report.actions:
        for action in report.actions:
            _print_action(out, action, "   ", round_)
    else:
        found = ", ".join(report.reads[:4]) + (f" and {len(report.reads) - 4} more" if len(report.reads) > 4 else "")
        out.print(styled("   [dim]{} {}  {} units[/]", request.operation, found, units))


def _print_action(out: Console, action: ActionReport, indent: str, round_: int) -> None:
    rules = styled(" [cyan]{}[/]", ", ".join(action.role.rules)) if action.role.rules else ""
    records = ""
    if action.records and round_ == 0:
        noun = "record" if len(action.records) == 1 else "records"
        listed = ", ".join(map(str, action.records[:8])) + (", …" if len(action.records) > 8 else "")
        records = f", for {noun} {listed}"
    mark = "" if action.outcome == "done" else styled("[red]not done[/] ")
    indexes = "".join(f", {units} of them {index}" for index, units in action.index_units.items())
    unit = "unit" if action.units == 1 else "units"
    out.print(
        styled(
            "{}{}{}{} [bold]{}[/]: {}  [dim]{} {}{}{}[/]",
            indent,
            mark,
            action.role.kind,
            rules,
            action.on,
            action.does,
            action.units,
            unit,
            indexes,
            records,
        ),
    )
    if action.condition:
        out.print(styled("{}  [dim]if {}[/]", indent, action.condition))
    if action.why:
        out.print(styled("{}  [red]because[/] {}", indent, action.why))


def _spent(spent: Spent) -> str:
    redundant = f" ({spent.in_vain:g} for redundant writes)" if spent.in_vain else ""
    written, read = units(spent.write_units, "write unit"), units(spent.read_units, "read unit")
    return f"{written}{redundant}, {read}, {count(spent.call_count, 'call')}"

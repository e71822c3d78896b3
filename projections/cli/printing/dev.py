"""What `dev` prints: lines, or one JSON object per line."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from projections.cli.printing.changes import happened
from projections.cli.printing.diff import as_data, print_difference
from projections.dev.delivery import Delivery, Totals, Written
from projections.engine.store import ItemKey
from projections.inspect.diff.difference import Difference
from projections.inspect.explain.document import RecordReport
from projections.inspect.explain.words import encoded_words, key_words, value_words
from projections.language.findings import Finding
from projections.language.values import plain_item
from projections.terminal import Styled, console, count, print_line, styled, units

__all__ = ["Printer"]

MOST_WRITES = 20
"""Writes of a delivery that are printed one by one."""

MOST_ECHOES = 5
"""Records of our own writes in a delivery that are printed one by one."""


class Printer:
    """Reports on standard output."""

    def __init__(self, *, as_json: bool, guard_prefix: str = "~") -> None:
        self._json = as_json
        self._prefix = guard_prefix
        self._out = console()

    # The session

    def note(self, text: str, event: str, **fields: Any) -> None:
        """Print an event: its text, which may have markup, or its fields."""
        if self._json:
            self._line({"event": event, **fields})
        else:
            self._out.print(text)

    def trouble(self, reason: str) -> None:
        """Print why something does not work at the moment."""
        self.note(styled("[yellow]{}; will be retried[/]", reason), "trouble", reason=reason)

    def totals(self, totals: Totals, *, last: bool) -> None:
        event = "ends" if last else "totals"
        self.note(
            styled("[bold]{}.[/]", totals.words()) if last else styled("[dim]{}[/]", totals.words()),
            event,
            **{_camel(name): value for name, value in asdict(totals).items()},
        )

    # Records

    def delivered(self, delivery: Delivery) -> None:
        if self._json:
            self._delivered_json(delivery)
            return
        echoes = 0
        alone = len(delivery.records) == 1
        for report, own, due in zip(delivery.records, delivery.own, delivery.due, strict=True):
            echoes += own
            if not own or echoes <= MOST_ECHOES:
                self._record(report, own, due, delivery if alone else None)
        if echoes > MOST_ECHOES:
            self._out.print(styled("          [dim]and {} more of the rules' own writes[/]", echoes - MOST_ECHOES))
        for written in delivery.written[:MOST_WRITES]:
            self._out.print(styled("          [green]→[/] {}", _written(written)))
        if delivery.writes > MOST_WRITES:
            self._out.print(styled("          [green]→[/] and {:,} more writes", delivery.writes - MOST_WRITES))
        if not alone and (units := self._units(delivery)):
            self._out.print(styled("          [dim]{}[/]", units))
        for one in delivery.rejected:
            by = styled(" by [cyan]{}[/]", one.rule) if one.rule else ""
            key = encoded_words(one.key) if one.key else "a record"
            self._out.print(styled("          [yellow]quarantined[/]{}  {}", by, f"{key}: {one.reason}"))
        if delivery.failed is not None:
            self._out.print(styled("          [red]failed[/]  {}; will be retried", delivery.failed))

    def task(self, delivery: Delivery) -> None:
        """Print what tasks did."""
        if self._json:
            self._delivered_json(delivery, "task")
        elif delivery.written or delivery.rejected:
            self._out.print(styled("{}  task  [dim]the other pages of a push[/]", time.strftime("%H:%M:%S")))
            self.delivered(delivery)

    def discarded(self, key: ItemKey, event: str, reason: str) -> None:
        """Print a record that was retried too often."""
        self.note(
            styled("          [red]discarded[/]  {} {}: {}", event, key_words(key), reason),
            "discarded",
            eventName=event,
            table=key.table,
            key=_key(key),
            reason=reason,
        )

    def _record(self, report: RecordReport, own: bool, due: Sequence[str], alone: Delivery | None) -> None:
        """Print a record, with the rules that it is due to and those that it concerns, and its cost if it came alone."""
        record = report.record
        clock = time.strftime("%H:%M:%S")
        if record is None:
            self._out.print(styled("{}  [yellow]unreadable[/]  {}", clock, report.flaw or ""))
            return
        style = "dim" if own else "bold"
        entity = report.entity or "(no entity)"
        line = styled("{}  {:<6}  {}  [{}]{}[/]", clock, record.event, entity, style, key_words(record.key))
        rules = list(dict.fromkeys(rule.rule for rule in report.rules if rule.effect))
        if own:
            by = ", ".join(due) or "a rule"
            line += styled("  [dim]by {}: {}[/]", by, happened(record, self._prefix))
        if rules:
            line += styled("  {}[cyan]{}[/]", "→ " if own else "", ", ".join(rules))
        elif not own and report.entity is not None and not (alone and alone.written):
            line += styled("  [dim]nothing to do[/]")
        elif not own and report.nearest:
            name, reasons = report.nearest[0]
            line += styled("  [dim]nearest is {}: {}[/]", name, "; ".join(reasons[:1]))
        if alone is not None and (units := self._units(alone)):
            line += styled("  [dim]{}[/]", units)
        self._out.print(line)

    @staticmethod
    def _units(delivery: Delivery) -> str:
        parts = []
        if delivery.write_units:
            parts.append(units(delivery.write_units, "write unit"))
        if delivery.needless:
            parts.append(f"{count(delivery.needless, 'redundant write')}")
        if delivery.freshness:
            parts.append(f"{max(oldest for oldest, _ in delivery.freshness.values()):.1f} s old")
        return ", ".join(parts)

    def _delivered_json(self, delivery: Delivery, event: str = "delivered") -> None:
        for report, own, due in zip(delivery.records, delivery.own, delivery.due, strict=True):
            record = report.record
            self._line(
                {
                    "event": "record",
                    "eventName": report.raw.get("eventName"),
                    "entity": report.entity,
                    "table": record.key.table if record else None,
                    "key": _key(record.key) if record else None,
                    "ownWrite": own,
                    "dueTo": list(due),
                    "rules": {rule.rule: rule.effect for rule in report.rules if rule.effect},
                    "flaw": report.flaw,
                }
            )
        for written in delivery.written:
            self._line(
                {
                    "event": "write",
                    "table": written.key.table,
                    "key": _key(written.key),
                    "rules": list(written.rules),
                    "set": plain_item(written.set),
                    "removed": list(written.removed),
                    "deleted": written.deleted,
                }
            )
        for one in delivery.rejected:
            self._line({"event": "quarantined", "rule": one.rule, "key": one.key, "reason": one.reason})
        self._line(
            {
                "event": event,
                "records": len(delivery.records),
                "writes": delivery.writes,
                "needless": delivery.needless,
                "ledgerWrites": delivery.ledger_writes,
                "writeUnits": delivery.write_units,
                "readUnits": delivery.read_units,
                "failed": delivery.failed,
                "freshness": {rule: [round(age, 3) for age in ages] for rule, ages in delivery.freshness.items()},
            }
        )

    # Rules

    def findings(self, found: Sequence[Finding]) -> None:
        """Print errors and warnings of a rule file."""
        for one in found:
            if self._json:
                self._line({**asdict(one), "event": "finding"})
            else:
                colour = "red" if one.severity == "error" else "yellow"
                for line in str(one).split("\n"):
                    self._out.print(styled("[{}]{}[/]", colour, line))

    def refused(self, reason: str) -> None:
        """Print that the old rules stay active, and why."""
        self.note(styled("[red]The old rules stay active:[/] {}", reason), "rules refused", reason=reason)

    def changed(self, difference: Difference, name: str) -> None:
        """Print how the new rules differ."""
        if self._json:
            self._line({"event": "rules changed", "difference": as_data(difference)})
        else:
            print_difference(self._out, difference, f"{name} before", "now", brief=True)

    def _line(self, fields: Mapping[str, Any]) -> None:
        print_line(json.dumps(fields, ensure_ascii=False))


def _camel(name: str) -> str:
    """Return the name of a field as JSON has it: `writeUnits` of `write_units`."""
    first, *more = name.split("_")
    return first + "".join(part.capitalize() for part in more)


def _key(key: ItemKey) -> list[str]:
    return [part for part in key[1:] if part is not None]


def _written(written: Written) -> Styled:
    key = styled("[bold]{}[/]", key_words(written.key))
    by = styled("  [cyan]{}[/]", ", ".join(written.rules)) if written.rules else ""
    if written.deleted:
        return styled("{}  deleted{}", key, by)
    parts = [f"{name} {value_words(value, 40)}" for name, value in written.set.items()]
    parts += [f"without {name}" for name in written.removed]
    return styled("{}  {}{}", key, ", ".join(parts), by)

"""`projections console`."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import Sources, Tables, as_json, find_rules, source_options, stack_options
from projections.cli.stack import Deployed, find_deployed
from projections.errors import UsageError
from projections.language.rules import public_name
from projections.terminal import count, parts_of, print_json, print_line, units

if TYPE_CHECKING:
    from projections.console.console_pages import ItemView
    from projections.operations.health import Finding, LedgerStatus


_LEDGER_SECONDS = 2.0
_SERVICES_SECONDS = 60.0
"""How long the state in the ledger, and what services report, are shown before they are read again."""


@click.command("console")
@stack_options
@as_json
@click.option("--function", metavar="NAME", help="Stream function, to show its lag. [default: from --stack]")
@source_options
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port on 127.0.0.1. [default: any free port]")
@click.option("--open", "open_browser", is_flag=True, help="Open the page in the browser.")
def command(
    options: Tables, as_json: bool, function: str | None, sources: Sources, port: int | None, open_browser: bool
) -> int:
    """Serve a local, read-only page on live tables.

    The page draws the rules as `projections graph` does, and shows the findings of `projections status` beside them. While
    it is visible, it reads the ledger every 5 seconds, and CloudWatch, the queues and the bucket every minute. It also
    explains an item, as `explain --item` does, and shows how many requests to DynamoDB that took.

    Listens on 127.0.0.1 only, and reads with the credentials of this process. There is no password: other users of this
    machine can open the page. Press Ctrl-C to stop.

    \b
    Examples:
      projections console --stack shop --open
      projections console --rules rules.yaml --table app --ledger app-ledger --endpoint-url http://localhost:8000
    """
    from projections.console.console_pages import failure_answer, routes
    from projections.console.server import Server

    source = LiveSource(options, function, sources)
    with Server(port or 0, routes(source), failure_answer) as server:
        if as_json:
            print_json({"url": server.url, "place": source.place})
        else:
            print_line(f"{server.url} shows {source.place}. Press Ctrl-C to stop.")
        if open_browser:
            click.launch(server.url)
        with suppress(KeyboardInterrupt):
            server.serve_forever()
    return 0


class LiveSource:
    """Reads live tables for the pages, one page at a time, so that the reads of each are counted."""

    def __init__(self, options: Tables, function: str | None, sources: Sources) -> None:
        from projections.inspect.graph.graph_model import graph_of
        from projections.language import loader
        from projections.language.review import review
        from projections.stores.dynamodb import Meter

        path = find_rules(options.rules)
        self._there: Deployed = find_deployed(replace(options, rules=str(path)))
        self._chosen = self._there.rules()
        if self._chosen.note:
            print_line(f"note: {self._chosen.note}.", err=True)
        self._meter = Meter()
        self._live = self._there.connect(self._chosen.document, meter=self._meter)
        self._function, self._sources = function, sources
        self._reading = threading.Lock()
        self._services: tuple[float, str, list[Finding]] | None = None
        self._ages: Mapping[str, tuple[float, float]] = {}
        self._status: tuple[float, dict[str, Any]] | None = None
        self.graph = graph_of(loader.load(path), path.name, review(path, path.name).findings)
        self.program = self._live.program
        self.place = self._place(options)

    def _place(self, options: Tables) -> str:
        if self._there.stack is not None:
            return f"stack {self._there.stack.name}"
        names = [name for logical, name in self._live.names.items() if logical in self.program.tables]
        return f"table{'s' if len(names) > 1 else ''} {', '.join(names)} at {self._live.client.meta.endpoint_url}"

    # Status

    def status(self) -> dict[str, Any]:
        with self._reading:
            if self._status is None or monotonic() - self._status[0] > _LEDGER_SECONDS:
                self._status = monotonic(), self._gather_status()
            return self._status[1]

    def _gather_status(self) -> dict[str, Any]:
        from projections.cli.status import ledger_status, limits, plain_finding, rule_ages, service_findings
        from projections.operations import health
        from projections.operations.backfill.progress import PHASES, Progress

        now = datetime.now(UTC)
        recorded = ledger_status(self._there, self._chosen, self._live, now)
        if self._services is None or monotonic() - self._services[0] > _SERVICES_SECONDS:
            ages = rule_ages(self._there, self._live, now)
            fresh = service_findings(self._there, self._live, self._function, self._sources, now, ages, peek=False)
            self._services, self._ages = (monotonic(), _clock(now), fresh), ages
        findings = [*recorded.findings, *self._services[2]]
        if self._chosen.note:
            findings.insert(0, health.Finding("rule file", health.LOOK, self._chosen.note))
        run = None
        if any(finding.subject == "backfill" and finding.level != health.FINE for finding in findings):
            run = Progress(self._live.store).run()
        of_rules: dict[str, Finding] = {}
        for finding in _most_urgent_first(findings):
            of_rules.setdefault(public_name(finding.subject.removeprefix("rule ")), finding)
        within = limits(self.program)
        return {
            "at": _clock(now),
            "servicesAt": self._services[1],
            "attention": any(finding.level in (health.LOOK, health.ACT) for finding in findings),
            "epoch": recorded.epoch,
            "rules": {
                name: _rule(_state_of(recorded, name), of_rules.get(name), self._ages.get(name), within.get(name))
                for name in self.program.rules
            },
            "findings": [plain_finding(finding) for finding in _most_urgent_first(findings)],
            "backfill": {"phase": run.phase, "phases": PHASES[:-1]} if run is not None and not run.done else None,
            "reads": {"requests": self._meter.calls.total(), "units": self._meter.read_units},
        }

    # Items

    def item(self, key: str) -> ItemView:
        from projections.cli.explain import item_lines
        from projections.console.console_pages import ItemView
        from projections.inspect.explain.item import item_explanation, read_key
        from projections.operations.redaction import is_hash

        if is_hash(key):
            raise UsageError(
                "this is the hash of a key: `projections explain --item` reads all tables to find its item"
            )
        with self._reading:
            requests, read_units = self._meter.calls.total(), self._meter.read_units
            report = item_explanation(self.program, self._live.store, read_key(self.program, key))
            requests, read_units = self._meter.calls.total() - requests, self._meter.read_units - read_units
        related = [source for value in report.derived for source, _ in value.sources]
        related += [part.target for part in report.source.contributions] if report.source is not None else []
        lines = [[*parts_of(line)] for line in item_lines(self.program, report)]
        reads = f"{count(requests, 'request')} to DynamoDB, {units(read_units, 'read unit')}"
        return ItemView(report.key, lines, list(dict.fromkeys(related)), reads)


def _state_of(recorded: LedgerStatus, rule: str) -> str:
    """Return the state of a rule: of each version with its number, if there are several."""
    states = {name: state for name, state in recorded.versions.items() if public_name(name) == rule}
    several = (f"{name.rpartition('.')[2]} {state}" for name, state in states.items())
    return ", ".join(several) if len(states) > 1 else next(iter(states.values()), "not active")


def _rule(
    state: str, finding: Finding | None, ages: tuple[float, float] | None, within: float | None
) -> dict[str, Any]:
    """Return the state of a rule. `freshness` has p50 and p99 of the age of changes in seconds; null if not known."""
    from projections.operations.health import FINE, LOOK

    late = ages is not None and within is not None and ages[1] > within
    level = finding.level if finding is not None else FINE if state == "active" else LOOK
    return {
        "state": state,
        "level": LOOK if late and level == FINE else level,
        "says": finding.says if finding is not None else None,
        "todo": (finding.todo or None) if finding is not None else None,
        "freshness": {"p50": ages[0], "p99": ages[1]} if ages is not None else None,
        "within": within,
        "late": late,
    }


def _most_urgent_first(findings: Sequence[Finding]) -> list[Finding]:
    """Return the findings that need attention first, those that are not known last."""
    from projections.operations.health import ACT, FINE, LOOK, UNKNOWN

    return sorted(findings, key=lambda finding: (ACT, LOOK, FINE, UNKNOWN).index(finding.level))


def _clock(time: datetime) -> str:
    return time.strftime("%H:%M:%S UTC")

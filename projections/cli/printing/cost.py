"""An estimate, for programs and on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from projections.inspect.cost.estimate import MILLION, POLL_SECONDS, Estimate
from projections.inspect.cost.figures import PRICES, SECONDS_PER_MONTH, STORAGE_OVERHEAD_BYTES
from projections.inspect.cost.hot import HotKey
from projections.inspect.cost.terms import Sum, Term
from projections.language.program import Program
from projections.terminal import Styled, console, print_grid, styled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from projections.inspect.cost.writes import Worst

__all__ = ["estimate_document", "print_estimate", "print_worst"]

BUSY = 0.7
"""The part of a shard's time beyond which a burst makes records wait."""

WARM = 0.25
"""The part of a partition's capacity from which a key is worth telling of."""


# For programs


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """What `cost --json` prints. Terms are per event of the application."""
    assumed = estimate.assumptions
    rate = estimate.events_per_second or 0.0
    return {
        "sample": estimate.sampled,
        "changes": dict(estimate.changes),
        "eventsPerSecond": estimate.events_per_second,
        "eventsPerInvocation": estimate.events,
        "recordsPerInvocation": estimate.records,
        "millisecondsPerInvocation": estimate.milliseconds,
        "busy": estimate.busy,
        "ledgerEntryBytes": estimate.entry_bytes,
        "ways": [way.document(rate) for way in estimate.ways],
        "rules": {
            rule or "(of no single rule)": {
                **sums.document(estimate.events),
                "dollarsPerMillionEvents": _dollars(sums, estimate) * MILLION,
                "byHandWriteUnits": estimate.naive_rules.get(rule, 0.0) / estimate.events,
            }
            for rule, sums in estimate.rules.items()
        },
        "terms": [term.document(estimate.events) for term in estimate.terms],
        "hot": [key.document for key in estimate.hot],
        "assumptions": {
            "itemBytes": dict(assumed.item_bytes),
            "matching": dict(assumed.matching),
            "targets": dict(assumed.targets),
            "values": dict(assumed.values),
            "elements": dict(assumed.elements),
            "children": dict(assumed.children),
            "hottest": dict(assumed.hottest),
            "projections": {n: "all" if p is None else sorted(p) for n, p in assumed.projections.items()},
            "memoryMB": assumed.memory_mb,
            "callMilliseconds": assumed.call_ms,
            "transactionMilliseconds": assumed.transaction_ms,
            "batchSize": estimate.delivery.batch_size,
            "windowSeconds": estimate.delivery.window,
            "shards": estimate.delivery.shards,
            "parallelization": estimate.delivery.parallelization,
            "prices": {name: {"dollars": price, "per": PRICES[name][1]} for name, price in assumed.prices.items()},
        },
    }


def _dollars(sums: Sum, estimate: Estimate) -> float:
    """Of a rule's units alone, per event: Lambda is paid for all rules together."""
    prices = estimate.assumptions.prices
    units = sums.write_units * prices["write"] + sums.read_units * prices["read"]
    return units / MILLION / estimate.events


# On the terminal


def print_estimate(program: Program, estimate: Estimate, *, why: bool = False) -> None:
    """The whole beside what one would write by hand, then rule by rule, then what gets hot. `why` adds the terms."""
    out = console()
    _print_head(out, estimate)
    _print_ways(out, estimate)
    _print_rules(out, program, estimate)
    if why:
        _print_terms(out, estimate)
    _print_hot(out, estimate)
    _print_legend(out, estimate, why)


def print_worst(worst: Mapping[str, Worst]) -> None:
    """The most that a user can cause with one write of an item, by rule."""
    found = []
    for rule, one in sorted(worst.items(), key=lambda pair: -(pair[1].units or pair[1].per_child)):
        parts = [f"{one.units:,}"] if one.units else []
        parts += [f"{one.per_child:,} × children"] if one.per_child else []
        found.append(f"{rule} {' + '.join(parts)}")
    _line(console(), styled("[dim]Most write units of one write of an item of 400 KB: {}[/]", ", ".join(found)))


def _line(out: Console, text: str) -> None:
    out.print(text, soft_wrap=True)


def _number(value: float) -> str:
    """Three figures, and all of what is larger than them."""
    if value and abs(value) < 0.0005:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.4g}"


def _counted(value: float, noun: str) -> str:
    """Return a number with its noun: `1 unit`, `0.5 units`."""
    return f"{_number(value)} {noun}{'' if _number(value) == '1' else 's'}"


def _price(value: float) -> str:
    """Return a price without an exponent: `$0.40`, `$0.0000133334`."""
    return f"${value:.2f}" if round(value, 2) == value else "$" + f"{value:.10f}".rstrip("0")


def _money(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"


def _print_head(out: Console, estimate: Estimate) -> None:
    changes = ", ".join(f"{_number(rate)} × {change}" for change, rate in estimate.changes.items())
    title = "A sample" if estimate.sampled else ""
    if estimate.events_per_second is not None:
        rate = f"{_counted(estimate.events_per_second, 'event')} a second"
        title = f"{rate} like a sample" if estimate.sampled else rate
    _line(out, styled("[bold]{}[/]: {}", title, changes))
    delivery = estimate.delivery
    window = ""
    if not estimate.sampled and delivery.batch is None:
        seconds = _number(max(delivery.window, POLL_SECONDS))
        window = f" (the first record and those of the next {seconds} s, at most {delivery.batch_size} records)"
    _line(
        out,
        styled(
            "[dim]{} per invocation{}, with {} records of the rules' own writes; an invocation takes {} ms[/]",
            _counted(estimate.events, "event"),
            window,
            _number(estimate.records - estimate.events),
            _number(estimate.milliseconds),
        ),
    )
    if not estimate.ours.write_units:
        _line(out, styled("[yellow]These changes cause no writes: no rule reads what they change.[/]"))
    if estimate.busy is not None and estimate.busy > BUSY:
        _line(
            out,
            styled(
                "[yellow]A shard's invocations take {:.0%} of the time: records will wait. Raise the batch size, "
                "ParallelizationFactor or the memory, or let targets have more events in common.[/]",
                estimate.busy,
            ),
        )
    out.print()


def _print_ways(out: Console, estimate: Estimate) -> None:
    month = "$ per month" if estimate.events_per_second is not None else ""
    rows = [
        [(text, "dim") for text in ("per event", "write units", "read units", "calls", "$ per million", month)],
    ]
    for way in estimate.ways:
        monthly = ""
        if estimate.events_per_second is not None:
            monthly = _money(way.per_event * estimate.events_per_second * SECONDS_PER_MONTH)
        ours = way is estimate.ours
        cells = (
            way.name,
            _number(way.write_units),
            _number(way.read_units),
            _number(way.calls),
            _money(way.per_event * MILLION),
            monthly,
        )
        rows.append([(cell, "bold" if ours else "") for cell in cells])
    print_grid(out, rows)
    parts = {
        "write units": "writeUnits",
        "read units": "readUnits",
        "Lambda requests": "requests",
        "Lambda time": "gbSeconds",
        "queue": "sqsRequests",
    }
    dollars = estimate.ours.dollars
    told = ", ".join(f"{name} {_money(dollars[key] * MILLION)}" for name, key in parts.items() if dollars[key])
    _line(out, styled("[dim]A million events: {}.[/]", told))
    out.print()


def _print_rules(out: Console, program: Program, estimate: Estimate) -> None:
    titles = ("rule", "", "write units", "read units", "calls", "$ per million", "by hand: write units")
    rows = [[(text, "dim") for text in titles]]
    for name in [*program.rules, *(rule for rule in estimate.rules if rule not in program.rules)]:
        sums = estimate.rules.get(name)
        if sums is None or (not name and not sums.calls):
            continue
        kind = program.rules[name].kind if name in program.rules else "of no single rule"
        by_hand = estimate.naive_rules.get(name, 0.0) / estimate.events
        cells = (
            name,
            kind,
            _number(sums.write_units / estimate.events),
            _number(sums.read_units / estimate.events),
            _number(sums.calls / estimate.events),
            _money(_dollars(sums, estimate) * MILLION),
            _number(by_hand),
        )
        rows.append([(cell, "cyan" if number == 0 else "") for number, cell in enumerate(cells)])
    print_grid(out, rows)


def _print_terms(out: Console, estimate: Estimate) -> None:
    _line(out, styled("[bold]Why[/]  [dim]times per event · cost of each · purpose[/]"))
    for term in estimate.terms:
        if term.count and (term.write_units or term.read_units or term.calls):
            _line(out, styled("  {}", _term(term, estimate.events)))
    out.print()


def _term(term: Term, events: float) -> Styled:
    each = ", ".join(
        f"{_number(value)} {name if value != 1 else name.removesuffix('s')}"
        for name, value in (
            ("write units", term.write_units),
            ("read units", term.read_units),
            ("calls", term.calls),
        )
        if value
    )
    rules = styled("[cyan]{}[/] ", ", ".join(term.rules)) if term.rules else ""
    return styled("{} × {}  {}{}  [dim]{}[/]", _number(term.count / events), each, rules, term.what, term.why)


def _print_hot(out: Console, estimate: Estimate) -> None:
    if not estimate.hot:
        return
    timed = estimate.events_per_second is not None
    of = "units a second, of 1,000 that one partition accepts" if timed else "units that the sample used of each"
    _line(out, styled("[bold]The hottest keys[/]  [dim]{}[/]", of))
    for key in estimate.hot[:5]:
        _print_key(out, key, timed)
    out.print()


def _print_key(out: Console, key: HotKey, timed: bool) -> None:
    color = "red" if key.load > 1 else "yellow" if key.load > WARM else "green"
    told = ""
    if key.events_per_second and key.what in ("group", "target", "members"):
        told = f", at {_counted(key.events_per_second, 'event')} a second"
        if key.limit_events is not None:
            told += f"; the limit is {key.limit_events:,.0f} events a second"
    rate = f"{_counted(key.units_per_second, 'unit')}{' a second' if timed else ''}"
    _line(out, styled("  [{}]{}[/]  {}[dim]{}[/]", color, rate, key.key, told))
    if key.load > WARM and key.advice:
        _line(out, f"      {key.advice}")


def _print_legend(out: Console, estimate: Estimate, why: bool) -> None:
    if not estimate.sampled and not estimate.assumptions.targets:
        words = "The estimate assumes a different target for each event; --targets RULE=N sets the number of targets."
        _line(out, styled("[dim]{}[/]", words))
    prices = ", ".join(f"{_price(price)} per {PRICES[name][1]}" for name, price in estimate.assumptions.prices.items())
    _line(out, styled("[dim]Prices: {}.[/]", prices))
    if estimate.entry_bytes:
        size = estimate.entry_bytes + STORAGE_OVERHEAD_BYTES
        month = size * MILLION / 2**30 * estimate.assumptions.prices["storage"]
        stored = f"about {size:.0f} bytes for each source item, {_money(month)} a month for a million of them"
        _line(out, styled("[dim]Storage is not included: the ledger keeps {}.[/]", stored))
    if not why:
        _line(
            out, styled("[dim]--why shows how each number is calculated; --json has all terms and all assumptions.[/]")
        )

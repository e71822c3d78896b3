"""An estimate on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from projections.inspect.cost.estimate import MILLION, PRICES, SECONDS_PER_MONTH, Estimate, HotKey, dollars
from projections.language.program import Program
from projections.terminal import console, print_grid, styled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console

    from projections.inspect.cost.changes import Worst

__all__ = ["print_estimate"]

WARM = 0.25
"""The part of a partition's capacity from which a key is worth telling of."""


def print_estimate(program: Program, estimate: Estimate, worst: Mapping[str, Worst]) -> None:
    """Print the whole beside a handler by hand, then rule by rule, the hottest keys, and the most of one write by rule."""
    out = console()
    _print_head(out, estimate)
    _print_ways(out, estimate)
    _print_rules(out, program, estimate)
    _print_hot(out, estimate)
    found = []
    for rule, one in sorted(worst.items(), key=lambda pair: -(pair[1].units or pair[1].per_child)):
        parts = [f"{one.units:,}"] if one.units else []
        parts += [f"{one.per_child:,} × children"] if one.per_child else []
        found.append(f"{rule} {' + '.join(parts)}")
    prices = ", ".join(f"{_price(price)} per {unit}" for price, unit in PRICES.values())
    _line(out, styled("[dim]Prices of us-east-1: {}. Storage is not included.[/]", prices))
    _line(out, styled("[dim]Most write units of one write of an item of 400 KB: {}[/]", ", ".join(found)))


def _line(out: Console, text: str) -> None:
    out.print(text, soft_wrap=True)


def _number(value: float) -> str:
    """Return three figures, and all of what is larger than them."""
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
    _line(out, styled("[dim]{} per invocation[/]", _counted(estimate.events, "event")))
    if not estimate.ours.write_units:
        _line(out, styled("[yellow]These changes cause no writes: no rule reads what they change.[/]"))
    out.print()


def _print_ways(out: Console, estimate: Estimate) -> None:
    month = "$ per month" if estimate.events_per_second is not None else ""
    rows = [[(text, "dim") for text in ("per event", "write units", "read units", "calls", "$ per million", month)]]
    for way in estimate.ways:
        monthly = ""
        if estimate.events_per_second is not None:
            monthly = _money(way.per_event * estimate.events_per_second * SECONDS_PER_MONTH)
        numbers = (_number(way.write_units), _number(way.read_units), _number(way.calls))
        cells = (way.name, *numbers, _money(way.per_event * MILLION), monthly)
        rows.append([(cell, "bold" if way is estimate.ours else "") for cell in cells])
    print_grid(out, rows)
    names = ("write units", "read units", "Lambda requests", "Lambda time")
    parts = zip(names, estimate.ours.dollars.values(), strict=True)
    told = ", ".join(f"{name} {_money(price * MILLION)}" for name, price in parts if price)
    _line(out, styled("[dim]A million events: {}.[/]", told))
    out.print()


def _print_rules(out: Console, program: Program, estimate: Estimate) -> None:
    titles = ("rule", "", "write units", "read units", "calls", "$ per million", "by hand: write units")
    rows = [[(text, "dim") for text in titles]]
    for name, one in estimate.rules.items():
        cells = (
            name,
            program.rules[name].kind if name else "of no single rule",
            _number(one.write_units),
            _number(one.read_units),
            _number(one.calls),
            _money(dollars(one) * MILLION),
            _number(estimate.by_hand.get(name, 0.0)),
        )
        rows.append([(cell, "cyan" if number == 0 else "") for number, cell in enumerate(cells)])
    print_grid(out, rows)


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
    limit = f", of which it accepts {key.limit:,.0f} events a second" if key.limit is not None else ""
    rate = f"{_counted(key.units, 'unit')}{' a second' if timed else ''}"
    _line(out, styled("  [{}]{}[/]  {}[dim]{}[/]", color, rate, key.key, limit))
    if key.load > WARM and key.advice:
        _line(out, f"      {key.advice}")

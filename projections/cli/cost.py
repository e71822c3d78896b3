"""`projections cost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from projections.cli.options import as_json, document_of, find_rules, rules_option
from projections.errors import UsageError
from projections.language.program import Program
from projections.language.syntax import suggest
from projections.terminal import print_grid, print_json, print_line, print_markup

if TYPE_CHECKING:
    from projections.inspect.cost.change_costs import Flow, Worst
    from projections.inspect.cost.estimate import Estimate
    from projections.language.models import Rules


@click.command("cost")
@click.argument("events", nargs=-1, metavar="[EVENTS…]")
@rules_option
@as_json
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="[ENTITY=]N",
    help="New items per second; ENTITY:attribute,…=N for edits; N alone for all events. Can be repeated.",
)
@click.option(
    "--targets",
    type=click.FloatRange(1),
    metavar="N",
    help="Number of different targets of each rule in a batch. [default: one for each event]",
)
@click.option(
    "--children", type=click.FloatRange(0), default=100, metavar="N", show_default=True, help="Children of each parent."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Number of events in a batch. [default: from the rate, with the template's settings]",
)
def command(
    events: tuple[str, ...],
    rules: str | None,
    as_json: bool,
    rates: tuple[str, ...],
    targets: float | None,
    children: float,
    batch: int | None,
) -> int:
    """Estimate what rules cost on AWS, and find hot keys.

    From rates: --rate Like=500 sets the new items of an entity per second, and --rate Post:title=3 the edits of an
    attribute. --rate 100 is spread evenly over the entities that rules read. The estimate assumes items of up to 1 KB, and
    that each rule applies. A removed item costs about as much as a new one.

    From events: EVENTS are recorded stream events, as for `replay`. They run through the real handler on tables in memory,
    and every request is counted. --rate 100 scales the result to 100 events per second.

    \b
    Examples:
      projections cost --rules social --rate 100
      projections cost --rules social --rate Like=500 --rate Post:title=3
      projections cost --rules social events/social.json
    """
    from projections.inspect.cost.change_costs import worst_writes
    from projections.inspect.cost.estimate import estimate

    program = Program.from_document(document_of(find_rules(rules)))
    if events:
        from projections.inspect.cost.estimate import estimate_events
        from projections.local.event_files import read

        records = [event.record for event in read(events, program)]

        def estimate_rules(program: Program) -> Estimate:
            return estimate_events(program, records, batch, _total(rates))
    else:
        flows = read_rates(program.model, rates)

        def estimate_rules(program: Program) -> Estimate:
            return estimate(program.model, flows, targets=targets, children=children, batch=batch)

    total, worst = estimate_rules(program), worst_writes(program)
    names = [name for name in total.rules if name and program.model.projections[name].action.can_have_lanes]
    units = estimate_rules(_with_lanes(program, names)).spending.write_units if names else total.spending.write_units
    if as_json:
        maxima = {rule: write.document for rule, write in worst.items()}
        lanes = {"rules": names, "writeUnitsPerEvent": units}
        print_json({**total.document(), "withLanes": lanes, "worstWrite": maxima})
    else:
        _print_estimate(program, total, worst, names, units)
    return 0


def _with_lanes(program: Program, names: Sequence[str]) -> Program:
    """Return the rules with `ledger: lanes` for these of them."""
    rules = {**program.document["projections"]}
    for name in names:
        rules[name] = {**rules[name], "aggregate": {**rules[name]["aggregate"], "ledger": "lanes"}}
    return Program({**program.document, "projections": rules})


def _total(rates: Sequence[str]) -> float | None:
    """Return the rate of all recorded events."""
    if not rates:
        return None
    if len(rates) > 1 or "=" in rates[0]:
        raise UsageError("with EVENTS, --rate is the number of all events per second: write --rate 100")
    return _number(rates[0], rates[0])


def read_rates(rules: Rules, texts: Sequence[str]) -> dict[Flow, float]:
    """Return the changes per second. Raises UsageError with the nearest name."""
    from projections.inspect.cost.change_costs import Flow
    from projections.language.facts import creators

    made = creators(rules)
    own = [name for name in rules.entities if name not in made]
    changes: dict[Flow, float] = {}
    for text in texts:
        what, equals, number = text.rpartition("=")
        rate = _number(number, text)
        if not equals:
            read = {source for rule in rules.projections.values() for source in rule.sources}
            flows = [Flow(name) for name in own if name in read]
            if not flows:
                raise UsageError("no rule reads an entity that the application writes, so there is no cost to estimate")
        else:
            entity, _, attributes = what.partition(":")
            if entity not in own:
                hint = suggest(entity, own) or f"; the application writes {', '.join(own)}"
                reason = "only rules write" if entity in rules.entities else "unknown entity"
                raise UsageError(f'--rate {text}: {reason} "{entity}"{hint}')
            names = frozenset(filter(None, (name.strip() for name in attributes.split(","))))
            flows = [Flow(entity, names or None)]
        for flow in flows:
            changes[flow] = changes.get(flow, 0.0) + rate / len(flows)
    if not changes:
        raise UsageError("no rate: pass --rate N, --rate ENTITY=N, or files with recorded events")
    return changes


def _number(text: str, option: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e12:
        raise UsageError(f"--rate {option}: write Like=500, Post:title=3 or 100, a number per second above 0")
    return rate


WARM = 0.25
"""The part of a partition's capacity from which a key is worth telling of."""


def _print_estimate(
    program: Program, estimate: Estimate, worst: Mapping[str, Worst], names: Sequence[str], units: float
) -> None:
    """Print the whole, then rule by rule, the hottest keys, and the most of one write by rule.

    `units` are the write units of an event with `ledger: lanes` for `names`.
    """
    from projections.inspect.cost.estimate import PRICES

    _print_head(estimate)
    _print_spending(estimate)
    _print_rules(program, estimate)
    if units < estimate.spending.write_units:
        print_line(f"With `ledger: lanes` for {', '.join(names)}: {_count_words(units, 'write unit')} per event.")
        print_line()
    _print_hot(estimate)
    maxima = []
    for rule, write in sorted(worst.items(), key=lambda pair: -(pair[1].units or pair[1].per_child)):
        parts = [f"{write.units:,}"] if write.units else []
        parts += [f"{write.per_child:,} × children"] if write.per_child else []
        maxima.append(f"{rule} {' + '.join(parts)}")
    prices = ", ".join(f"{_price(price)} per {unit}" for price, unit in PRICES.values())
    print_markup("[dim]Prices of us-east-1: {}. Storage is not included.[/]", prices)
    print_markup("[dim]Most write units of one write of an item of 400 KB: {}[/]", ", ".join(maxima))


def _short(value: float) -> str:
    """Return three figures, and all of what is larger than them."""
    if value and abs(value) < 0.0005:
        return f"{value:.1e}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.4g}"


def _count_words(value: float, noun: str) -> str:
    """Return a number with its noun: `1 unit`, `0.5 units`."""
    return f"{_short(value)} {noun}{'' if _short(value) == '1' else 's'}"


def _price(value: float) -> str:
    """Return a price without an exponent: `$0.40`, `$0.0000133334`."""
    return f"${value:.2f}" if round(value, 2) == value else "$" + f"{value:.10f}".rstrip("0")


def _money(value: float) -> str:
    return f"${value:,.0f}" if value >= 100 else f"${value:,.2f}"


def _print_head(estimate: Estimate) -> None:
    changes = ", ".join(f"{_short(rate)} × {change}" for change, rate in estimate.changes.items())
    title = "A sample" if estimate.sampled else ""
    if estimate.events_per_second is not None:
        rate = f"{_count_words(estimate.events_per_second, 'event')} a second"
        title = f"{rate} like a sample" if estimate.sampled else rate
    print_markup("[bold]{}[/]: {}", title, changes)
    print_markup("[dim]{} per invocation[/]", _count_words(estimate.events, "event"))
    if not estimate.spending.write_units:
        print_markup("[yellow]These changes cause no writes: no rule reads what they change.[/]")
    print_line()


def _print_spending(estimate: Estimate) -> None:
    from projections.inspect.cost.estimate import MILLION, SECONDS_PER_MONTH

    spent = estimate.spending
    titles = ["write units", "read units", "calls", "$ per million"]
    cells = [
        _short(spent.write_units),
        _short(spent.read_units),
        _short(spent.calls),
        _money(spent.per_event * MILLION),
    ]
    if estimate.events_per_second is not None:
        titles.append("$ per month")
        cells.append(_money(spent.per_event * estimate.events_per_second * SECONDS_PER_MONTH))
    print_grid([[(text, "dim") for text in ("", *titles)], [("per event", ""), *((cell, "bold") for cell in cells)]])
    names = ("write units", "read units", "Lambda requests", "Lambda time")
    parts = zip(names, estimate.spending.dollars.values(), strict=True)
    costs = ", ".join(f"{name} {_money(price * MILLION)}" for name, price in parts if price)
    print_markup("[dim]A million events: {}.[/]", costs)
    print_line()


def _print_rules(program: Program, estimate: Estimate) -> None:
    from projections.inspect.cost.estimate import MILLION, dollars

    titles = ("rule", "", "write units", "read units", "calls", "$ per million")
    rows = [[(text, "dim") for text in titles]]
    for name, usage in estimate.rules.items():
        cells = (
            name,
            program.rules[name].kind if name else "of no single rule",
            _short(usage.write_units),
            _short(usage.read_units),
            _short(usage.calls),
            _money(dollars(usage) * MILLION),
        )
        rows.append([(cell, "cyan" if number == 0 else "") for number, cell in enumerate(cells)])
    print_grid(rows)


def _print_hot(estimate: Estimate) -> None:
    if not estimate.hot:
        return
    timed = estimate.events_per_second is not None
    of = "units a second, of 1,000 that one partition accepts" if timed else "units that the sample used of each"
    print_markup("[bold]The hottest keys[/]  [dim]{}[/]", of)
    for key in estimate.hot[:5]:
        color = "red" if key.load > 1 else "yellow" if key.load > WARM else "green"
        limit = f", of which it accepts {key.limit:,.0f} events a second" if key.limit is not None else ""
        rate = f"{_count_words(key.units, 'unit')}{' a second' if timed else ''}"
        print_markup("  [{}]{}[/]  {}[dim]{}[/]", color, rate, key.key, limit)
        if key.load > WARM and key.advice:
            print_line(f"      {key.advice}")
    print_line()

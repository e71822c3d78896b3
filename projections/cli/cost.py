"""`projections cost`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from projections.cli.options import as_json, document_of, find_rules, note, rules_option
from projections.errors import UsageError
from projections.language.syntax import suggest
from projections.terminal import json_text, print_text

if TYPE_CHECKING:
    from projections.inspect.cost.changes import Flow
    from projections.language.canonical import Document

__all__ = ["command", "read_rates"]


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
    """Estimate what rules cost on AWS, compared with a handler written by hand, and find hot keys.

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
    from projections.cli.printing.cost import print_estimate
    from projections.inspect.cost.changes import worst_writes
    from projections.inspect.cost.estimate import estimate
    from projections.language.program import Program

    program = Program.from_document(document_of(find_rules(rules)))
    if events:
        from projections.inspect.cost.recorded import estimate_events
        from projections.local.events import read

        records = [one.record for one in read(events, program, note)]
        found = estimate_events(program, records, batch, _total(rates))
    else:
        found = estimate(
            program.typed, read_rates(program.typed, rates), targets=targets, children=children, batch=batch
        )
    worst = worst_writes(program)
    if as_json:
        document = {**found.document(), "worstWrite": {rule: one.document for rule, one in worst.items()}}
        print_text(json_text(document))
    else:
        print_estimate(program, found, worst)
    return 0


def _total(rates: Sequence[str]) -> float | None:
    """Return the rate of all recorded events."""
    if not rates:
        return None
    if len(rates) > 1 or "=" in rates[0]:
        raise UsageError("with EVENTS, --rate is the number of all events per second: write --rate 100")
    return _number(rates[0], rates[0])


def read_rates(document: Document, given: Sequence[str]) -> dict[Flow, float]:
    """Return the changes per second. Raises UsageError with the nearest name."""
    from projections.inspect.cost.changes import Flow
    from projections.language.facts import creators

    made = creators(document)
    own = [name for name in document.entities if name not in made]
    found: dict[Flow, float] = {}
    for text in given:
        what, equals, number = text.rpartition("=")
        rate = _number(number, text)
        if not equals:
            read = {source for rule in document.rules.values() for source in rule.sources}
            entities = [name for name in own if name in read]
            flows = [Flow(name) for name in entities]
        else:
            entity, _, attributes = what.partition(":")
            if entity not in own:
                hint = suggest(entity, own) or f"; the application writes {', '.join(own)}"
                reason = "only rules write" if entity in document.entities else "unknown entity"
                raise UsageError(f'--rate {text}: {reason} "{entity}"{hint}')
            names = frozenset(filter(None, (name.strip() for name in attributes.split(","))))
            flows = [Flow(entity, names or None)]
        for flow in flows:
            found[flow] = found.get(flow, 0.0) + rate / len(flows)
    if not found:
        raise UsageError("no rate: pass --rate N, --rate ENTITY=N, or files with recorded events")
    return found


def _number(text: str, option: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < 1e12:
        raise UsageError(f"--rate {option}: write Like=500, Post:title=3 or 100, a number per second above 0")
    return rate

"""`projections cost`."""

from __future__ import annotations

import click

from projections.cli.options import as_json, document_of, find_rules, note, rules_option
from projections.errors import UsageError
from projections.terminal import json_text, print_text

__all__ = ["command"]


@click.command("cost")
@click.argument("events", nargs=-1, metavar="[EVENTS…]")
@rules_option
@as_json
@click.option(
    "--events-per-second",
    "total",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Changes per second, of all entities.",
)
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="ENTITY=N",
    help="New items per second; ENTITY:removed=N for removed ones, ENTITY:attribute,…=N for edits.",
)
@click.option("--why", is_flag=True, help="Print how each number is calculated.")
@click.option(
    "--targets",
    multiple=True,
    metavar="RULE=N",
    help="Number of different targets in a batch. [default: one for each event]",
)
@click.option(
    "--values",
    multiple=True,
    metavar="RULE=N",
    help="Number of different values of a target in `counts`, `distinct` and `values`. [default: one for each event]",
)
@click.option("--hottest", multiple=True, metavar="RULE=SHARE", help="Share of events that change the busiest target.")
@click.option(
    "--matching", multiple=True, metavar="RULE=SHARE", help="Share of items that the rule applies to. [default: 1]"
)
@click.option(
    "--elements",
    multiple=True,
    metavar="RULE=N",
    help="Number of elements of the list in `each`, or of references. [default: 3]",
)
@click.option("--children", multiple=True, metavar="RULE=N", help="Number of children of each parent. [default: 100]")
@click.option(
    "--item-bytes",
    multiple=True,
    metavar="ENTITY=N",
    help="Size in bytes of an item that the application writes. [default: 500]",
)
@click.option(
    "--projection",
    multiple=True,
    metavar="INDEX=WHAT",
    help="Projection of an index: all, keys, or names of attributes. [default: as in the rules]",
)
@click.option(
    "--batch",
    type=click.FloatRange(1),
    metavar="N",
    help="Number of events in a batch. [default: from rate and window, which begins with the first record]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    default=500,
    show_default=True,
    help="BatchSize of the event source mapping.",
)
@click.option(
    "--window", type=click.FloatRange(0, 300), default=1.0, show_default=True, help="Batching window in seconds."
)
@click.option("--shards", type=click.IntRange(1), default=1, show_default=True, help="Shards of the stream.")
@click.option(
    "--parallelization",
    type=click.IntRange(1, 10),
    default=1,
    show_default=True,
    help="ParallelizationFactor of the event source mapping.",
)
@click.option(
    "--memory", type=click.IntRange(128, 10_240), default=1024, show_default=True, help="Memory of the function, in MB."
)
@click.option(
    "--call-ms",
    type=click.FloatRange(0),
    default=None,
    help="Latency of a DynamoDB request in milliseconds. [default: 5]",
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="WHAT=DOLLARS",
    help="Price of write, read, request, gb-second or sqs.",
)
def command(
    events: tuple[str, ...],
    rules: str | None,
    as_json: bool,
    total: float | None,
    rates: tuple[str, ...],
    why: bool,
    targets: tuple[str, ...],
    values: tuple[str, ...],
    hottest: tuple[str, ...],
    matching: tuple[str, ...],
    elements: tuple[str, ...],
    children: tuple[str, ...],
    item_bytes: tuple[str, ...],
    projection: tuple[str, ...],
    batch: float | None,
    batch_size: int,
    window: float,
    shards: int,
    parallelization: int,
    memory: int,
    call_ms: float | None,
    prices: tuple[str, ...],
) -> int:
    """Estimate what rules cost on AWS, compared with a handler written by hand, and find hot keys.

    From rates: --events-per-second N is spread evenly over the entities that rules read. --rate Like=500 sets the new items
    of an entity per second, --rate Like:removed=20 the removed ones, and --rate Post:title=3 the edits of an attribute. The
    command generates items for such changes.

    From a sample: EVENTS are recorded stream events, as for `replay`, and come in batches of --batch. With
    --events-per-second the result is scaled to that rate.

    In both cases, the changes run through the real handler on tables in memory, and every request is counted.

    Options that take NAME=VALUE can be repeated; a value without a name applies to all names.

    \b
    Examples:
      projections cost --rules social --events-per-second 100
      projections cost --rules social --rate Like=500 --rate Post:title=3
      projections cost --rules social events/social.json
    """
    from projections.cli.printing.cost import estimate_document, print_estimate, print_worst
    from projections.inspect.cost.figures import CALL_MS, PRICES, TRANSACTION_MS
    from projections.inspect.cost.workload import Assumptions, Delivery, assuming, named_numbers, projections_of, shares
    from projections.inspect.cost.writes import worst_writes
    from projections.language.program import Program

    program = Program.from_document(document_of(find_rules(rules)))
    default = {name: price for name, (price, _) in PRICES.items()}
    assumed = Assumptions(
        item_bytes=named_numbers(item_bytes, program.entities, "--item-bytes", least=1),
        matching=shares(matching, program.rules, "--matching"),
        targets=named_numbers(targets, program.rules, "--targets", least=1),
        values=named_numbers(values, program.rules, "--values", least=1),
        elements=named_numbers(elements, program.rules, "--elements", least=1),
        children=named_numbers(children, program.rules, "--children"),
        hottest=shares(hottest, program.rules, "--hottest"),
        projections=projections_of(program, projection),
        memory_mb=memory,
        call_ms=CALL_MS if call_ms is None else call_ms,
        transaction_ms=TRANSACTION_MS if call_ms is None else 3 * call_ms,
        prices=default | named_numbers(prices, default, "--price"),
    )
    program = assuming(program, assumed.projections)
    delivery = Delivery(batch_size, window, shards, parallelization, batch)
    if events:
        if rates:
            raise UsageError("--rate is for estimates without EVENTS; give --events-per-second to scale a sample")
        from projections.inspect.cost.sample import sample_estimate
        from projections.local.events import read

        records = [one.record for one in read(events, program, note)]
        found = sample_estimate(program, records, assumed, delivery, total)
    else:
        from projections.inspect.cost.estimate import estimate
        from projections.inspect.cost.workload import read_workload

        found = estimate(program, assumed, read_workload(program, total, rates), delivery)
    if as_json:
        worst = {rule: one.document for rule, one in worst_writes(program).items()}
        print_text(json_text({**estimate_document(found), "worstWrite": worst}))
    else:
        print_estimate(program, found, why=why)
        print_worst(worst_writes(program))
    return 0

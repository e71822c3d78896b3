"""Capacity: read units of each query, and write units of each write with its index entries and the rules that follow it.

Writes are rehearsed on tables in memory, with generated items of the size that `expect.bytes` or the sample items have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from projections.access.placeholders import request_count
from projections.errors import ProjectionsError
from projections.inspect.access_patterns import AccessPattern
from projections.inspect.cost.batch import situations, spent
from projections.inspect.cost.reads import Shapes
from projections.inspect.cost.terms import totals
from projections.inspect.cost.workload import EDIT, INSERT, REMOVE, Assumptions, Flow
from projections.inspect.cost.writes import own_units
from projections.inspect.design.model import Attributes, Entity, ReadCost, WriteCost
from projections.language.access.questions import Step, WritePattern
from projections.language.keys import Image, Schema
from projections.stores.capacity import TRANSACTIONAL, read_units, write_units
from projections.stores.limits import PAGE_BYTES, item_size

__all__ = ["read_costs", "write_costs"]


# --- reads ---


def read_costs(
    shapes: Shapes,
    patterns: Iterable[AccessPattern],
    attributes: Sequence[Attributes],
    samples: Mapping[str, Sequence[Image]],
) -> Iterator[ReadCost]:
    """Yield the cost of each query that requests answer."""
    for one in patterns:
        if one.reads:
            yield _read_cost(shapes, one, _chain(shapes, one, attributes), samples)


def _chain(shapes: Shapes, one: AccessPattern, attributes: Iterable[Attributes]) -> tuple[str, ...]:
    """Return the longest chain of rules before the keys that a query reads by are written."""
    keys = {
        (entity, name)
        for read in one.reads
        for entity in read.entities
        for name in _key_names(shapes.program.tables[read.table], read.index)
    }
    chains = [group.chain for group in attributes if any((group.entity, name) in keys for name in group.values)]
    return max(chains, key=len, default=())


def _key_names(schema: Schema, index: str | None) -> tuple[str, ...]:
    if index is None:
        return schema.key_attributes
    partition, sort = schema.indexes[index]
    return (*schema.key_attributes, *(name for name, _ in (*partition, *sort)))


def _read_cost(
    shapes: Shapes, one: AccessPattern, chain: tuple[str, ...], samples: Mapping[str, Sequence[Image]]
) -> ReadCost:
    query, expected = one.query, one.query.expect
    size = expected.bytes if expected.bytes is not None else _sample_bytes(shapes, one, samples)
    known = [number for number in (expected.items, query.limit) if number is not None]
    items = 1 if one.reads[0].get else expected.scanned or min(known, default=None)
    requests = request_count(one.plan)
    page = PAGE_BYTES if items is None else min(items * size, PAGE_BYTES)
    units = requests * read_units(page, consistent=query.consistent)
    per_second = None if expected.per_second is None else expected.per_second * units
    return ReadCost(
        query=query.name,
        items=items,
        bytes=size,
        estimated=expected.bytes is not None,
        consistent=query.consistent,
        requests=requests,
        units=units,
        per_second=per_second,
        chain=chain,
        index=any(read.index not in (None, *shapes.program.tables[read.table].local) for read in one.reads),
    )


def _sample_bytes(shapes: Shapes, one: AccessPattern, samples: Mapping[str, Sequence[Image]]) -> int:
    """Return the mean size of the sample items as the table or index of a query has them."""
    sizes = []
    for read in one.reads:
        schema = shapes.program.tables[read.table]
        for image in (image for entity in read.entities for image in samples.get(entity, ())):
            sizes.append(item_size(image if read.index is None else schema.entry(read.index, image)))
    return round(fmean(sizes)) if sizes else 0


# --- writes ---


def write_costs(shapes: Shapes, entities: Iterable[Entity], writes: Iterable[WritePattern]) -> Iterator[WriteCost]:
    """Yield the cost of a new item of each entity that the application writes, then of each write pattern."""
    known = {one.name: one.expected_bytes or one.sample_bytes for one in entities}
    sizes = {name: size for name, size in known.items() if size}
    own = [name for name, entity in shapes.program.entities.items() if not entity.owned_by_rules]
    for name in own:
        yield _write_cost(shapes, sizes, f"put {name}", (Step("put", name),), transaction=False)
    for write in writes:
        yield _write_cost(shapes, sizes, write.name, write.steps, transaction=write.transaction)


_KINDS = {"put": INSERT, "update": EDIT, "delete": REMOVE}


def _write_cost(
    shapes: Shapes, sizes: Mapping[str, int], name: str, steps: Sequence[Step], *, transaction: bool
) -> WriteCost:
    flows = Counter(
        Flow(step.entity, _KINDS[step.operation], frozenset(step.set) or None)
        for step in steps
        if step.operation in _KINDS
    )
    factor = TRANSACTIONAL if transaction else 1
    checked = [write_units(sizes.get(step.entity, 0)) for step in steps if step.operation == "check"]
    table, indexes, rules, reads = float(factor * sum(checked)), Counter[str](), Counter[str](), 0.0
    try:
        for weight, rehearsal in situations(shapes, Assumptions(item_bytes=sizes), dict(flows)) if flows else ():
            for units in own_units(rehearsal):
                table += weight * factor * units.table
                indexes.update({index: weight * factor * number for index, number in units.indexes.items()})
            found = totals(spent(rehearsal).terms)
            reads += weight * found.all.read_units
            rules.update({rule: weight * sums.write_units for rule, sums in found.rules.items() if sums.write_units})
    except ProjectionsError as error:
        return WriteCost(name, flaw=str(error))
    return WriteCost(name, table, dict(indexes), dict(rules), reads)

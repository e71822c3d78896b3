"""The sections about capacity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from projections.inspect.design.blocks import Badge, Block, Cell, Code, line, table
from projections.inspect.design.cells import after, cell, line_of, prose
from projections.inspect.design.model import Design, ReadCost, WriteCost

__all__ = ["read_capacity", "write_capacity"]


def read_capacity(design: Design) -> Iterator[Block]:
    yield prose(
        "Read units of one page. The size of an item is that of `expect.bytes`, or of the sample items. Without `limit` and "
        "`expect.items`, a page has 1 MB."
    )
    columns = ("Query", "Items per page", "Bytes of an item", "Consistency", "Requests", "Read units", "Units per second",
               "An item is found")  # fmt: skip
    yield table(columns, map(_read_cost, design.reads))


def _read_cost(one: ReadCost) -> Sequence[Cell]:
    return (
        cell(Code(one.query)),
        cell("unlimited" if one.items is None else f"{one.items:,}"),
        cell(f"{one.bytes:,} ({'estimate' if one.estimated else 'sample'})"),
        cell("strong" if one.consistent else "eventual"),
        cell(str(one.requests)),
        cell(f"at most {one.units:g}" if one.items is None else f"{one.units:g}"),
        cell("" if one.per_second is None else f"{one.per_second:g}"),
        ((*after(one.chain), ", then the index" if one.index else ""),),
    )


def write_capacity(design: Design) -> Iterator[Block]:
    yield prose(
        "Write units of one write, rehearsed on tables in memory: the application's write with its index entries, then all "
        "that rules write because of it, with the ledger. It is assumed that every rule applies, and that a parent has 100 "
        "children. A batch of writes shares some of these units: `projections cost` estimates them for a rate."
    )
    columns = ("Write", "Table", "Its index entries", "Rules that follow", "Read units", "Total", "Amplification")
    yield table(columns, map(_write_cost, design.costs))


def _write_cost(one: WriteCost) -> Sequence[Cell]:
    name = cell(Code(one.name))
    if one.flaw is not None:
        return name, (), (), (line_of(one.flaw),), (), cell(Badge("not counted", "bad")), ()
    return (
        name,
        cell(f"{one.own:g}"),
        tuple(line(Code(index), f" {units:g}") for index, units in (one.indexes or {}).items()),
        tuple(line(Code(rule), f" {units:.3g}") for rule, units in (one.rules or {}).items()),
        cell(f"{one.read_units:.3g}"),
        cell(f"{one.total:.3g}"),
        cell(f"× {one.total / one.own:.3g}" if one.own else ""),
    )

"""Indexes of a table: how many there are, and what a local one entails."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import LOCAL_INDEX, MANY_INDEXES
from projections.language.mistakes import Location
from projections.language.shapes import is_local

__all__ = ["tables"]

_USUAL = 3
_GLOBAL, _LOCAL = 20, 5
"""DynamoDB's limits of indexes of a table; that of global indexes can be raised."""


def tables(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about the indexes of each table."""
    rules = facts.rules
    for name, table in rules.all_tables.items():
        place: Location = (*(("table",) if rules.table is not None else ("tables", name)), "indexes")
        local = [index for index, form in table.indexes.items() if is_local(form)]
        yield from _many(place, len(table.indexes) - len(local), len(local))
        if local:
            yield Remark(
                LOCAL_INDEX,
                (*place, local[0]),
                "with a local index, all items of one partition key can have at most 10 GB, and writes beyond that fail; it "
                "can be created only with the table, and not deleted",
                "if a partition may grow larger, or its reads need not be consistent, use a global index",
                at_key=True,
            )


def _many(place: Location, global_: int, local: int) -> Iterator[Remark]:
    for number, most, kind in ((global_, _GLOBAL, "global"), (local, _LOCAL, "local")):
        if number > most:
            yield Remark(
                MANY_INDEXES,
                place,
                f"the table has {number} {kind} indexes, and DynamoDB creates at most {most}",
                "let several kinds of items share the key attributes of one index, or remove indexes that no query uses",
                at_key=True,
                rated="error",
            )
            return
    if global_ + local > _USUAL:
        yield Remark(
            MANY_INDEXES,
            place,
            f"the table has {global_ + local} indexes, and each is written when an attribute that it projects changes",
            "let several kinds of items share the key attributes of one index, or project less",
            at_key=True,
        )

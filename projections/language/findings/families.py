"""All findings about rules apart from those about queries, which need proposals, and so these.

A family is a function from facts to remarks. It reports only what follows from the rules. What depends on the application
is not reported, or as a note.
"""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.findings.conditions import conditions, elements, held, quotients
from projections.language.findings.indexes import expiry, indexes, tables
from projections.language.findings.keys import lengths, sorting, times
from projections.language.findings.kinds import Remark
from projections.language.findings.meanings import meanings
from projections.language.findings.names import names
from projections.language.findings.partitions import few_partitions, partitions
from projections.language.findings.rule_facts import Facts
from projections.language.findings.targets import targets

_FAMILIES = (
    names,
    conditions,
    elements,
    meanings,
    sorting,
    times,
    lengths,
    partitions,
    held,
    quotients,
    targets,
    indexes,
    tables,
    expiry,
    few_partitions,
)


def rule_remarks(facts: Facts) -> Iterator[Remark]:
    """Yield the remarks about valid rules."""
    for family in _FAMILIES:
        yield from family(facts)

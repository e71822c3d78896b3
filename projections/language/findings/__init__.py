"""Findings: problems of valid rules that a careful reviewer would mention. Each family is a function from facts to remarks.

`kinds` lists and explains the kinds of findings.

| module | is about |
| --- | --- |
| `names` | unknown names, and names that are spelt in two ways |
| `conditions` | conditions that never match, or do not mean what they look like |
| `meanings` | values that do not mean what they look like |
| `sorting` | sort keys that do not sort |
| `lengths` | keys that can be too long |
| `partitions` | hot partitions and hot groups |
| `transactions` | changes that exceed a transaction |
| `chains` | rules that read what rules write |
| `history` | aggregates whose past changes with a parent |
| `quotients` | quotients with too many digits |
| `targets` | targets, copies and lists |
| `indexes` | keys of indexes, and what they project |
| `tables` | the number and the kinds of indexes |
| `expiry` | TTL |
| `queries` | queries, and indexes that they do not need |
| `static` | keys with few values, and keys that the application could write |

A family reports only what follows from the rules. What depends on the application is not reported, or as a note.
"""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.document import Rules
from projections.language.findings.chains import chains
from projections.language.findings.conditions import conditions
from projections.language.findings.expiry import expiry
from projections.language.findings.facts import Facts
from projections.language.findings.finding import Finding, Remark
from projections.language.findings.history import history
from projections.language.findings.indexes import indexes
from projections.language.findings.kinds import CODES, KINDS, SEVERITIES, Kind, Severity
from projections.language.findings.lengths import lengths
from projections.language.findings.meanings import meanings
from projections.language.findings.names import names
from projections.language.findings.partitions import partitions
from projections.language.findings.queries import queries
from projections.language.findings.quotients import quotients
from projections.language.findings.sorting import sorting
from projections.language.findings.static import static
from projections.language.findings.tables import tables
from projections.language.findings.targets import targets
from projections.language.findings.transactions import transactions

__all__ = ["CODES", "KINDS", "SEVERITIES", "Finding", "Kind", "Remark", "Severity", "remarks"]

_FAMILIES = (
    names,
    conditions,
    meanings,
    sorting,
    lengths,
    partitions,
    transactions,
    chains,
    history,
    quotients,
    targets,
    indexes,
    tables,
    expiry,
    queries,
    static,
)


def remarks(rules: Rules) -> Iterator[Remark]:
    """Yield all remarks about valid rules."""
    facts = Facts(rules)
    for family in _FAMILIES:
        yield from family(facts)

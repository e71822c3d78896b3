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

import re
from collections.abc import Iterator

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
from projections.language.lost import NOTHING, Lost
from projections.language.models import Rules

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


def remarks(rules: Rules, lost: Lost = NOTHING) -> Iterator[Remark]:
    """Yield all remarks about valid rules, or about the rest of rules of which parts have mistakes.

    Of these, only those are yielded that no correction of a lost part can change.
    """
    facts = Facts(rules)
    for family in _FAMILIES:
        for remark in family(facts):
            if not lost or not lost.concern(rules, _about(rules, remark), remark.kind.depends):
                yield remark


def _about(rules: Rules, remark: Remark) -> set[str]:
    """Return the entities that a remark is about, or names."""
    found = {
        entity for entity in rules.entities if re.search(rf"(?<![\w-]){re.escape(entity)}(?![\w-])", remark.reason)
    }
    section, name = str(remark.path[0]), str(remark.path[1]) if len(remark.path) > 1 else ""
    if section == "entities":
        found.add(name)
    elif section == "projections":
        found |= {*rules.projections[name].sources, rules.projections[name].into}
    elif section == "queries":
        found |= {*rules.queries[name].entities}
    else:
        found |= {entity for entity in rules.entities if section == "table" or rules.table_of(entity) == name}
    return found

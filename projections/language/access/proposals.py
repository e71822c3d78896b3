"""Proposals: the smallest addition to a rule file that answers a query exactly.

Each candidate is merged into the rules as a rule file has them, loaded, and the query is planned again. A proposal is
offered only if the plan is exact, the rules have no mistakes, and no finding of `check` that they did not have before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from projections.language.access.additions import Addition, additions
from projections.language.access.plan import VERDICTS, Plan, Query
from projections.language.access.planner import plan as planned
from projections.language.analysis import analyse
from projections.language.files import block
from projections.language.findings.families import rule_remarks
from projections.language.findings.rule_facts import Facts
from projections.language.models import SINGLE, Rules, once

EXACT = VERDICTS[:2]
"""The verdicts of plans that read exactly the items of the answer."""


class Proposal(NamedTuple):
    """An addition that answers a query.

    `text` is YAML to paste into the rule file: it extends or replaces parts that exist under the same names. `sentence` says
    what the addition does. `plan` is the plan of the query, which `text` may change, on the changed rules.
    """

    text: str
    sentence: str
    plan: Plan
    unused: str = ""
    """Why it does not use an index whose keys are free, if there is one."""


def proposal(rules: Rules, query: Query, plan: Plan, others: Collection[Query]) -> Proposal | None:
    """Return the smallest addition that answers a query, of which `plan` is the plan; None if it is exact or none is known.

    `others` are the further queries of the file: their verdicts stay as good as they are.
    """
    if plan.verdict in EXACT:
        return None
    unused: dict[str, str] = {}
    for addition in additions(rules, query, plan):
        changed = _with_addition(rules, addition)
        if isinstance(changed, str):
            if addition.index is not None:
                unused.setdefault(addition.index, f"{addition.index} is not used: {changed}")
            continue
        again = planned(changed, addition.query)
        if again.verdict in EXACT and all(
            VERDICTS.index(planned(changed, other_query).verdict) <= VERDICTS.index(planned(rules, other_query).verdict)
            for other_query in others
            if other_query != query
        ):
            shown = "" if addition.index is not None else next(iter(unused.values()), "")
            return Proposal(block(addition.data), addition.sentence, again, shown)
    return None


def _with_addition(rules: Rules, addition: Addition) -> Rules | str:
    """Return the rules with an addition, or the mistake, error or warning that they would have."""
    rest = {name: value for name, value in addition.data.items() if name != "queries"}
    if not rest:
        return rules
    try:
        changed = Rules.from_document(merge(file_data(rules), rest))
    except ValidationError:
        return "the rules would not be valid"
    if mistakes := analyse(changed):
        return mistakes[0].message
    new = (f"{words} [{code}]" for code, path, words in _warnings(changed) if (code, path) not in _complaints(rules))
    return next(new, changed)


@once
def _complaints(rules: Rules) -> frozenset[tuple[str, object]]:
    """Return the code and the place of each error and warning of `check`, as of rules that are loaded again."""
    return frozenset((code, path) for code, path, _ in _warnings(Rules.from_document(file_data(rules))))


def _warnings(rules: Rules) -> Iterator[tuple[str, object, str]]:
    """Yield the code, the place and the message of each error and warning of `check`."""
    for remark in rule_remarks(Facts(rules)):
        if remark.severity != "note":
            yield remark.kind.code, remark.path, remark.reason


def file_data(rules: Rules) -> dict[str, Any]:
    """Return the canonical document, with `table` if there is only the one of that name."""
    data = rules.document()
    tables = data.pop("tables")
    return {**data, "table": tables[SINGLE]} if list(tables) == [SINGLE] else {**data, "tables": tables}


def merge(data: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    """Return data with an addition: mappings are merged, any other value replaces the old one."""
    joined = dict(data)
    for name, value in addition.items():
        old = joined.get(name)
        joined[name] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return joined

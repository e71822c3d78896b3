"""Pages by number: the query that lists the items of a board in the order of their ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

from projections.language.access.attempt import known_of
from projections.language.access.plan import Order, Plan, Query
from projections.language.access.planner import plan
from projections.language.models import Projection, Rank, Rules
from projections.language.patterns import EVERYTHING
from projections.language.patterns.implication import implies
from projections.language.syntax import written_path
from projections.language.templates import Field


class Listing(NamedTuple):
    """A query that lists all items which a `rank` rule counts on a board, and only these, in the order of their ranks.

    `plan` is that of the query with a bound on the score. `board` has the board's variable for each parameter of the query.
    If `unsigned`, the sort key has padded scores, so that it lists no item with a negative one.
    """

    plan: Plan
    board: Mapping[str, str]
    unsigned: bool

    @property
    def query(self) -> Query:
        """The query, with a range of the score."""
        return self.plan.query

    @property
    def bound(self) -> Literal["from", "to"]:
        """The end of the range from which the items after a score are: `from`, or `to` in descending order."""
        return "to" if self.query.order is not None and self.query.order.descending else "from"


def board_listing(rules: Rules, name: str, queries: Mapping[str, Query]) -> Listing | None:
    """Return the first query that lists the items of a board of a `rank` rule, None if there is none."""
    rule = rules.projections[name]
    rank, names = rule.action, _names(rules, rule)
    if not isinstance(rank, Rank) or names is None or rule.each is not None or rule.expired == "keep":
        return None
    if len(rule.sources) > 1 or rank.by.path is None:
        return None
    for query in queries.values():
        bounded = replace(query, range=rank.by.path)
        if query.get or query.range not in (None, bounded.range) or not _lists(rules, rule, bounded, rank, names):
            continue
        planned = plan(rules, bounded)
        sorts = [request.sort for request in planned.requests]
        pads = [pipe for sort in sorts if sort and sort.focus for pipe in sort.focus.pipes]
        if not all(sort is not None and sort.bounded for sort in sorts) or not sorts:
            continue
        if pads and (rank.decimals or min(int(pipe.arguments[0]) for pipe in pads) < rank.digits):
            continue  # scores that the key cannot have
        board = {source: variable for variable, source in names.items()}
        return Listing(planned, board, unsigned=bool(pads))
    return None


def missing_listing(rules: Rules, name: str) -> str:
    """Return the words that offer a query which lists the items of a board."""
    rule = rules.projections[name]
    names, rank = _names(rules, rule), rule.action
    if not isinstance(rank, Rank) or names is None or rank.by.path is None or len(rule.sources) > 1 or rule.each:
        return f"{name}: no query can list the items of a board: its key or its score is not an attribute of one entity"
    query = f"find: {rule.source}, by: [{', '.join(names.values())}], order: {written_path(rank.by.path)} {rank.order}"
    return f"{name}: no query lists the items of a board in the order of their scores. Add one: `{{ {query} }}`"


def _names(rules: Rules, rule: Projection) -> dict[str, str] | None:
    """Return the name on the source for each variable of the board; None if one is not a name without pipes."""
    names: dict[str, str] = {}
    for variable in rules.entities[rule.into].variables:
        fields = rule.bind[variable].parts if variable in rule.bind else (Field(variable),)
        (field,) = fields if len(fields) == 1 else ("",)
        if not isinstance(field, Field) or not field.plain or field.name in names.values():
            return None
        names[variable] = field.name
    return names


def _lists(rules: Rules, rule: Projection, query: Query, rank: Rank, names: Mapping[str, str]) -> bool:
    """Return whether the items of a query are those that the rule counts, and in the order of the rule."""
    if query.entities != (rule.source,) or any(not field.plain for field in query.by):
        return False
    if query.ordered_by != rank.by.path or query.order != Order(query.order and query.order.name, rank.order == "desc"):
        return False
    if {*query.parameters} != {*names.values()}:
        return False
    where = rule.where or EVERYTHING
    counted = known_of(rules, replace(query, where=where), rule.source)
    return implies(known_of(rules, query, rule.source), where) and implies(counted, query.where)

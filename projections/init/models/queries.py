"""The queries that a model implies, as those of a rule file, if the planner finds requests that answer them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from projections.errors import RulesError
from projections.init.models.file import model_file
from projections.init.models.model import Model, Query, Unread
from projections.language.access.planner import plan
from projections.language.access.questions import queries_of
from projections.language.loader import loads

__all__ = ["keep_answered"]


def keep_answered(model: Model) -> None:
    """Keep the queries that requests answer exactly, each under one name; list the others as not read."""
    found, model.queries = _named(model.queries), []
    entities = {entity.name for proposal in model.proposals for entity in proposal.entities}
    for query in found:
        reason = "its entity is left out" if not entities.issuperset(query.find) else ""
        if not query.by:
            reason = "all its items are in one partition, and a query of a rule file needs `by`"
        if reason:
            model.unread.append(Unread(f"query {query.name}", reason))
        else:
            model.queries.append(query)
    while model.queries:
        try:
            rules = loads(model_file(model))
        except RulesError as error:
            names = {query.name for query in model.queries}
            wrong = {one.path.split(".")[1]: one.message for one in error.problems if one.path.startswith("queries.")}
            _drop(model, wrong if names & wrong.keys() else dict.fromkeys(names, str(error)))
            continue
        document = rules.typed()
        plans = {name: plan(document, query) for name, query in queries_of(rules).items()}
        _drop(model, {name: one.reason for name, one in plans.items() if one.verdict not in ("one", "several")})
        return


def _named(queries: Sequence[Query]) -> list[Query]:
    """Return the queries with a name, the first of each name."""
    return list({query.name: query for query in reversed(queries) if query.name}.values())[::-1]


def _drop(model: Model, reasons: dict[str, Any]) -> None:
    model.unread += [Unread(f"query {name}", reason) for name, reason in reasons.items()]
    model.queries = [query for query in model.queries if query.name not in reasons]

"""The planner: the requests that answer a query, or the reason why none do.

For each access path of the entity, `attempt` derives the key condition. The best path is taken: fewest requests, nothing
that a filter discards, the table before an index, an index before a copy. If no path answers the query exactly and `where`
lists several values of a name, the query is divided into one for each value, and the results are joined or merged.

Pure: it reads no table. What it claims holds for all items that the rules accept; what it cannot know is in `Plan.assumes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import product
from math import prod
from typing import Any, NamedTuple

from projections.language.access.attempt import PARTITION, Failure, attempt, known_of
from projections.language.access.paths import (
    TABLE,
    KeyPart,
    Path,
    access_paths,
    key_variables,
    neighbours,
    not_copied,
    sharing,
)
from projections.language.access.plan import HIGHEST, VERDICTS, Buckets, Periods, Plan, Query, Request, SortRange
from projections.language.models import Copy, Projection, Rules
from projections.language.patterns import Pattern, describe
from projections.language.patterns.implication import Known, implies, known_present
from projections.language.patterns.tree import Alternative, Condition, Either, Equals, Test
from projections.language.syntax import root
from projections.language.templates import Field, Template
from projections.language.values import wire

Renaming = Callable[[str], str]
"""Returns the name that a copy has for a name of the source. Raises KeyError if it has none."""


class Translated(NamedTuple):
    """A query about the target of a copy rule. `missing` says which items or attributes of the answer it lacks, if any.

    `padded` has the variables of the target's key to which the rule binds a padded number that the copy has, too: a key
    `{score}` with `bind: {score: "{score|pad(10)}"}` is in the order of the numbers.
    """

    rule: str
    query: Query
    missing: str
    padded: Mapping[str, Field]

    def paths(self, rules: Rules) -> Iterator[Path]:
        """Yield the paths to the copies."""
        for path in access_paths(rules, self.query.entities[0]):
            parts = [tuple(map(self._part, keys)) for keys in (path.partition, path.sort)]
            yield replace(path, partition=parts[0], sort=parts[1])

    def _part(self, part: KeyPart) -> KeyPart:
        fields = (self._field(piece) if isinstance(piece, Field) else piece for piece in part.template.parts)
        return part._replace(template=Template(part.template.text, tuple(fields)))

    def _field(self, field: Field) -> Field:
        return self.padded.get(field.name, field) if field.plain else field


def copied_queries(rules: Rules, query: Query) -> Iterator[Translated]:
    """Yield the query for each guarded copy of its entity: each item that the rule applies to has exactly one copy.

    A claimed copy is left out, because several sources may have the same target.
    """
    (entity,) = query.entities
    if query.consistent:
        return
    for name, rule in rules.projections.items():
        copy = rule.action
        if not isinstance(copy, Copy) or rule.source != entity or copy.claimed or rule.each or not rule.publishes:
            continue
        padded = _padded_variables(rules, rule, copy)
        renaming = _renaming(rules, rule, copy, padded)
        try:
            translated = _translate(query, rule, renaming)
        except KeyError:
            continue
        yield Translated(name, translated, _missing(rules, query, entity, rule, copy), padded)


def _padded_variables(rules: Rules, rule: Projection, copy: Copy) -> Mapping[str, Field]:
    """Return the fields, of the copy's own attributes, that make padded variables of its key."""
    padded = {}
    for variable in key_variables(rules, rule.into):
        fields = rule.bind[variable].parts if variable in rule.bind else ()
        (field,) = fields if len(fields) == 1 else ("",)
        if isinstance(field, Field) and [pipe.name for pipe in field.pipes] in (["pad"], ["invert"]):
            copied = {source.path: name for name, source in copy.carried.items()}
            copied |= {field.name: field.name} if copy.copies_all else {}
            if field.expression is None and field.name in copied and "." not in field.name:
                padded[variable] = Field(copied[field.name], field.pipes)
    return padded


def _renaming(rules: Rules, rule: Projection, copy: Copy, padded: Mapping[str, Field]) -> Renaming:
    names = {field.name: field.name for field in padded.values() if copy.copies_all}
    other = not_copied(rules, rule) if copy.copies_all else frozenset()
    for target, source in copy.carried.items():
        if source.path is not None:
            names.setdefault(source.path, target)
    for variable in key_variables(rules, rule.into):
        template = rule.bind.get(variable) or Template.parse("{" + variable + "}")
        if template.single is not None and template.fields[0].plain:
            names.setdefault(template.single, variable)
    if not copy.copies_all:
        return names.__getitem__

    def name_of_copy(name: str) -> str:
        if name not in names and root(name) in other:
            raise KeyError(name)
        return names.get(name, name)

    return name_of_copy


def _translate(query: Query, rule: Projection, name_of: Renaming) -> Query:
    order = query.order
    if order is not None and order.name is not None:
        order = order._replace(name=name_of(order.name))
    held = rule.where.conditions if rule.where is not None else ()
    return replace(
        query,
        entities=(rule.into,),
        by=tuple(Field(name_of(field.name), field.pipes) for field in query.by),
        where=Pattern(tuple(_rename_conditions(query.where.conditions, name_of, held)), {}),
        range=None if query.range is None else name_of(query.range),
        order=order,
        attributes=None if query.attributes is None else tuple(map(name_of, query.attributes)),
    )


def _rename_conditions(
    conditions: tuple[Condition, ...], name_of: Renaming, held: tuple[Condition, ...]
) -> Iterator[Condition]:
    """Yield conditions on the copy. One that all copied items match is left out if the copy does not have its name."""
    for condition in conditions:
        try:
            if isinstance(condition, Test):
                yield condition.rename(name_of)
            else:
                yield Either(tuple(tuple(_rename_conditions(branch, name_of, ())) for branch in condition.branches))
        except KeyError:
            if condition not in held:
                raise


def _missing(rules: Rules, query: Query, entity: str, rule: Projection, copy: Copy) -> str:
    known = known_of(rules, query, entity)
    if rule.where is not None and not implies(known, rule.where):
        return f"{rule.into} holds only copies of items where {describe(rule.where)}"
    made = [rule.bind.get(name) or Template.parse("{" + name + "}") for name in key_variables(rules, rule.into)]
    for template in (*made, *copy.templates.values()):
        if reason := _absent(template, known, rule):
            return reason
    if query.attributes is None and not copy.copies_all:
        copied = ", ".join(copy.carried) or "no attributes"
        return f"{rule.into} has copies of {copied} only; list those that the query needs in `attributes`"
    return ""


def _absent(template: Template, known: Known, rule: Projection) -> str:
    """Return which items have no copy because a template may lack a value; empty if none."""
    if template.suffices is None:
        return f"items for which {template.text} has no value have no copy in {rule.into}"
    lacking = [name for name in template.suffices if not known_present(known, name)]
    return f"items without {lacking[0]} have no copy in {rule.into}" if lacking else ""


MOST_VALUES = 32
"""The most combinations of values of `where` that a query is divided into."""


def plan(rules: Rules, query: Query) -> Plan:
    """Return the plan of a query without mistakes."""
    if len(query.entities) > 1:
        return _several_entities(rules, query)
    best, failures = _best_plan(rules, query)
    if best is None or best.verdict == "filtered":
        divided = _divide(rules, query)
        if divided is not None and (best is None or _rank(divided) < _rank(best)):
            return divided
    return best or _refusal(query, failures)


def _best_plan(rules: Rules, query: Query) -> tuple[Plan | None, list[Failure]]:
    """Return the best plan of one entity's query, None if there is none, and the paths that failed."""
    (entity,) = query.entities
    outcomes = [attempt(rules, query, path) for path in _paths(rules, query, entity)]
    plans = [outcome for outcome in outcomes if isinstance(outcome, Plan)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    if query.using is None:
        for copied in copied_queries(rules, query):
            outcomes = [attempt(rules, copied.query, path) for path in copied.paths(rules)]
            for outcome in outcomes:
                if isinstance(outcome, Failure):
                    if outcome.stage > PARTITION and not outcome.incomplete:
                        reason = f"{copied.query.entities[0]}, the copy: {outcome.reason}"
                        failures.append(outcome._replace(reason=reason))
                    continue
                if copied.missing:
                    path = next(iter(access_paths(rules, entity)))
                    failures.append(Failure(path, copied.missing, 4, incomplete=True))
                else:
                    plans.append(outcome._replace(query=query, copy=copied.rule, translated=copied.query))
    return min(plans, key=_rank, default=None), failures


def _paths(rules: Rules, query: Query, entity: str) -> Iterator[Path]:
    for path in access_paths(rules, entity):
        if query.using is None or query.using == path.name:
            yield path


def _rank(plan: Plan) -> tuple[int, int, int, bool, bool]:
    """Return the order of plans, the best first."""
    fans = [[fan.count if isinstance(fan, Buckets) else 2 for fan in request.fans] for request in plan.requests]
    beside = len(plan.others) + len(plan.tests)
    return VERDICTS.index(plan.verdict), sum(map(prod, fans)), beside, plan.copy is not None, plan.path != TABLE


def _refusal(query: Query, failures: list[Failure]) -> Plan:
    if not failures:
        entity = query.entities[0]
        return Plan(query, "none", f"{entity} has no keys in {query.using}", entities=(entity,))
    best = max(failures, key=lambda failure: (failure.incomplete, failure.stage))
    near = [failure for failure in failures if (failure.incomplete, failure.stage) == (best.incomplete, best.stage)]
    # A local index has the partition key of its table.
    near = [failure for failure in near if failure.stage != PARTITION or not failure.path.local] or near
    reason = "; ".join(dict.fromkeys(failure.reason for failure in near))
    return Plan(query, "incomplete" if best.incomplete else "none", reason, entities=query.entities)


# --- several values of one name ---


def _divide(rules: Rules, query: Query) -> Plan | None:
    """Return the plan of one request for each combination of values that `where` lists; None if there is none."""
    choices = {
        condition: condition.alternatives
        for condition in query.where.conditions
        if isinstance(condition, Test)
        and len(condition.alternatives) > 1
        and all(isinstance(alternative, Equals) for alternative in condition.alternatives)
    }
    combinations = list(product(*choices.values()))
    names = [condition.name for condition in choices]
    sorted_by = names.index(query.ordered_by) if query.ordered_by in names else None
    if sorted_by is not None and query.order is not None:  # one value in each request: the requests are in order
        combinations.sort(key=lambda values: _place(values[sorted_by]), reverse=query.order.descending)
    if query.get or not 1 < len(combinations) <= MOST_VALUES:
        return None
    plans = []
    for values in combinations:
        chosen = {name.name: Test(name.name, (value,)) for name, value in zip(choices, values, strict=True)}
        conditions = tuple(
            chosen.get(condition.name, condition) if isinstance(condition, Test) else condition
            for condition in query.where.conditions
        )
        best, _ = _best_plan(rules, replace(query, where=Pattern(conditions, {})))
        if best is None or best.verdict == "filtered" or best.copy is not None:
            return None
        plans.append(best)
    requests = tuple(dict.fromkeys(request for each_plan in plans for request in each_plan.requests))
    merged = query.order is not None and sorted_by is None
    if merged and len({_merge_key(request) for request in requests}) > 1:
        return None
    return Plan(
        query,
        "several" if len(requests) > 1 else plans[0].verdict,
        f"one request for each value of {', '.join(names)}",
        requests,
        query.entities,
        rule=plans[0].rule,
        merged=merged,
        assumes=tuple(dict.fromkeys(text for each_plan in plans for text in each_plan.assumes)),
    )


def _place(value: Alternative) -> tuple[str, Any]:
    """Return the place of a scalar in the order of its type."""
    assert isinstance(value, Equals)
    ((kind, content),) = wire(value.value).items()
    return kind, Decimal(content) if kind == "N" else content


def _merge_key(request: Request) -> tuple[object, ...]:
    """Return what requests must have in common so that their sort keys are in one order."""
    sort = request.sort
    periods = tuple(fan for fan in request.fans if isinstance(fan, Periods))
    prefix = None if sort is None else sort.prefix
    return request.index, request.order, request.descending, request.fixed, prefix, periods


# --- several entities ---


def _several_entities(rules: Rules, query: Query) -> Plan:
    """Return the plan of a read of several entities: one partition that has all of them, or a request for each entity."""
    if query.ordered_by is not None or query.range is not None:
        return Plan(query, "none", "a query of several entities has no `range`, and only the order of the sort key")
    together = _together(rules, query)
    if together is not None and together.verdict == "one":
        return together
    plans = []
    for entity in query.entities:
        best, failures = _best_plan(rules, replace(query, entities=(entity,), order=None))
        if best is None or best.copy is not None:
            refusal = _refusal(query, failures)
            return together or refusal._replace(reason=f"{entity}: {refusal.reason}")
        plans.append(best)
    if query.order is not None:
        return together or Plan(
            query, "none", f"no partition has {' and '.join(query.entities)}, so they have no common order"
        )
    apart = Plan(
        query,
        "filtered" if any(each_plan.verdict == "filtered" for each_plan in plans) else "several",
        "one request for each entity",
        tuple(request for each_plan in plans for request in each_plan.requests),
        query.entities,
        others=tuple(dict.fromkeys(other for each_plan in plans for other in each_plan.others)),
        tests=tuple(dict.fromkeys(test for each_plan in plans for test in each_plan.tests)),
        assumes=tuple(dict.fromkeys(text for each_plan in plans for text in each_plan.assumes)),
    )
    return min((candidate for candidate in (together, apart) if candidate is not None), key=_rank)


def _together(rules: Rules, query: Query) -> Plan | None:
    """Return the best plan that reads all entities from one partition."""
    candidates = []
    indexes = dict.fromkeys(path.index for path in access_paths(rules, query.entities[0]))
    for index in indexes:
        plans: list[Plan] = []
        for entity in query.entities:
            own = replace(query, entities=(entity,), order=None)
            tries = [attempt(rules, own, path) for path in _paths(rules, own, entity) if path.index == index]
            plans += [outcome for outcome in tries if isinstance(outcome, Plan)][:1]
        first = plans[0].requests[0] if plans else None
        if first is None or len(plans) < len(query.entities):
            continue
        requests = [each_plan.requests[0] for each_plan in plans]
        if any(request.partition != first.partition or request.fans for request in requests):
            continue
        path = next(path for path in access_paths(rules, query.entities[0]) if path.index == index)
        request = replace(
            first,
            entities=query.entities,
            get=False,
            fixed=(),
            sort=_common(requests, path),
            descending=query.order is not None and query.order.descending,
            order=() if query.order is None else tuple(part.attribute for part in path.sort),
        )
        whole = replace(request, sort=None)
        if not any(neighbours(rules, whole, path)):
            request = whole  # nothing else is in the partition
        others, absent = sharing(rules, request, path)
        tests = tuple(dict.fromkeys(test for each_plan in plans for test in each_plan.tests))
        reason = f"the partition also holds {' and '.join(others)}" if others else ""
        assumes = tuple(dict.fromkeys([*(text for each_plan in plans for text in each_plan.assumes), *absent]))
        verdict = "filtered" if others or tests else "one"
        candidates.append(
            Plan(query, verdict, reason, (request,), query.entities, others=others, tests=tests, assumes=assumes)  # type: ignore[arg-type]
        )
    return min(candidates, key=_rank, default=None)


def _common(requests: list[Request], path: Path) -> SortRange | None:
    """Return the range from the least to the greatest sort key of several requests."""
    if len(path.sort) != 1 or path.sort[0].kind != "S":
        return None
    texts = [request.sort.prefix if request.sort else request.fixed[0].text for request in requests]
    common: list[str | Field | Buckets | Periods] = []
    rests = [list(text) for text in texts]
    while all(rests) and all(rest[0] == rests[0][0] for rest in rests):
        common.append(rests[0][0])
        rests = [rest[1:] for rest in rests]
    literals = [rest[0] if rest and isinstance(rest[0], str) else "" for rest in rests]
    # Beyond its literal text, a key goes on: with a value, or because the request is for all keys that begin with it.
    goes_on = [
        len(rest) > 1 or request.sort is not None or bool(rest and not isinstance(rest[0], str))
        for rest, request in zip(rests, requests, strict=True)
    ]
    least = min(literals)
    most, on = max(zip(literals, goes_on, strict=True), key=lambda end: end[0] + HIGHEST * end[1])
    attribute = path.sort[0].attribute
    if least == most:
        prefix = (*common, *([least] if least else []))
        return SortRange(attribute, "S", prefix) if prefix else None
    if not common and not least:
        return None
    until = (*common, most)
    return SortRange(attribute, "S", (*common, *([least] if least else [])), rest=on, until=until)

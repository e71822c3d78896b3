"""Counterexamples: generated items for which an addition does not answer its query as reading all items does.

The planner proves that a proposal answers a query. Here its text is added to the rules, which run on a few items, and the
query is asked for values of these items. What has a counterexample is not offered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count, groupby, islice
from random import Random
from typing import Any

from projections.access.answers import text_of, values_of
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput, UsageError
from projections.language.access.plan import Query, queries_of, query_form
from projections.language.access.planner import plan
from projections.language.access.proposals import file_data, merge
from projections.language.attribute_types import types_of
from projections.language.entity import Item
from projections.language.loader import source_of, understand
from projections.language.models import Rules
from projections.language.program import Program
from projections.language.review import Review
from projections.language.ruleset import RuleSet
from projections.language.source import Source
from projections.language.syntax import root, shown_name
from projections.language.templates import Template
from projections.language.values import python
from projections.local.items import key_words
from projections.stores.condition_expressions import comparable
from projections.testing.pools import Kind, Pools, examples, put_at
from projections.testing.scenario import Scenario

MARK = "generatedNumber"
"""An attribute with another value in each item."""

ITEMS, ATTEMPTS, CALLS = 8, 96, 4
"""Items of an entity that the query reads, of how many, and values of the caller for which it is asked."""

ANY: list[Value] = [*({"S": text} for text in ("a", "b", "ab")), *({"N": text} for text in ("9", "10", "80", "100"))]
"""Values of any attribute: numbers in another order than their texts."""


def check_additions(review: Review) -> Review:
    """Return the findings of a rule file without additions that have a counterexample."""
    findings = []
    for finding in review.findings:
        if finding.paste and review.rules is not None:
            query = queries_of(review.rules)[finding.path.split(".")[1]]
            if reason := refusal(review.rules, query, finding.paste):
                finding = replace(finding, instead=reason, paste="")
        findings.append(finding)
    return review._replace(findings=tuple(findings))


def refusal(rules: Rules, query: Query, text: str) -> str:
    """Return why an addition to the rules, YAML, is not offered for a query, and what to do; empty if its test passes."""
    addition = dict(source_of(text, "the addition").data)
    form = {**addition.pop("queries", {}).get(query.name, query_form(query))}
    form.pop("limit", None)
    changed, mistakes = understand(Source("", {**merge(file_data(rules), addition), "queries": {query.name: form}}))
    if changed is None or mistakes:
        wrong = mistakes[0].message
    else:
        try:
            tried = RuleSet(changed.document(), queries=queries_of(changed))
            wrong = _counterexample(tried, query.name, addition.get("projections", ()))
        except AssertionError as error:  # of the scenario: the functions fail, or change items forever
            wrong = str(error)
    words = f"no addition is offered, because the proposed one failed a test with generated items: {wrong}"
    return wrong and f"{words}. Write the keys yourself, and report this with the rule file as an error of the planner"


def _counterexample(rules: RuleSet, name: str, added: Iterable[str]) -> str:
    """Return how the answer of a query differs from reading all items; empty if it does not. Rules were `added`."""
    query, program = rules.query(name), rules.program
    every = program.model.projections.items()
    scenario = Scenario(rules.only(n for n, rule in every if rule.into in query.entities or rule.action.makes_items))
    own = {*added, plan(program.model, query).rule, plan(program.model, query).copy}
    for table, image in _images(program, query, own):
        with suppress(UsageError):  # a key of an index has another type
            scenario.put(image, table=table)
    table = program.entities[query.entities[0]].table
    stored = [program.recognise(program.tables[table].key(table, each), each) for each in scenario.store.items(table)]
    asked = [item for item in stored if item and item.entity.name in query.entities]
    items = [item for item in asked if _is_accepted(program, item, own)]
    names = query.attributes or (MARK,)
    for arguments, expected in _calls(query, items):
        call = "with " + (", ".join(f"{key}={value}" for key, value in arguments.items()) or "no parameters")
        try:
            answer = [[item.get(shown_name(path)) for path in names] for item in scenario.query(name, **arguments)]
        except UsageError as error:
            return f"{call}: {error}"
        wrong = f"{call}, it returns {len(answer)} items, and reading all items returns {len(expected)}"
        for _, group in groupby(expected, lambda item: _place(item, query.ordered_by)):
            equal = list(group)
            rows, answer = answer[: len(equal)], answer[len(equal) :]
            for item in equal:
                row = [(value := values_of(item)(path, True)) and python(value) for path in names]
                if row not in rows:
                    return f"{wrong}; {key_words(item.key)} is missing or out of order"
                rows.remove(row)
        if answer:
            return wrong
    return ""


def _calls(query: Query, items: Sequence[Item]) -> Iterator[tuple[dict[str, Any], list[Item]]]:
    """Yield values of the caller, each with the items of the answer in order."""
    descending = query.order is not None and query.order.descending
    answers = defaultdict[tuple[str | None, ...], list[Item]](list)
    for item in sorted(items, key=lambda item: _place(item, query.ordered_by), reverse=descending):
        texts = tuple(text_of(Template("", (field,)), values_of(item)) for field in query.by)
        present = all(values_of(item)(name) for name in (query.range, query.ordered_by) if name)
        if present and None not in texts and query.where.matches(values_of(item)):
            answers[texts].append(item)
    for answer in islice(answers.values(), CALLS):
        arguments = {name: python(values_of(answer[0])(name) or {"S": ""}) for name in query.parameters}
        places = sorted(_place(item, query.range) for item in answer)
        third = 0 if query.range in query.where.names else len(places) // 3
        for low, high in ((places[0], places[-1]), (places[third], places[-1 - third]))[: 2 if query.range else 1]:
            bounds = {f"{query.range}.from": low[1], f"{query.range}.to": high[1]} if query.range else {}
            yield arguments | bounds, [item for item in answer if low <= _place(item, query.range) <= high]


def _place(item: Item, name: str | None) -> tuple[str, Any]:
    """Return what items are sorted by: the type and the value of an attribute."""
    ((kind, content),) = ((name and values_of(item)(name)) or {"S": ""}).items()
    return kind, comparable(kind, content) if kind in ("S", "N") else str(content)


def _is_accepted(program: Program, item: Item, names: Collection[str | None]) -> bool:
    """Return whether these rules reject no value of an item: it is assumed that the application writes none of these."""
    rules = [program.rules[name] for name in names if name in program.rules]
    with suppress(BadInput):
        return all(rule.applies(item) or True for rule in rules if rule.source is item.entity)
    return False


def _images(program: Program, query: Query, own: Collection[str | None]) -> Iterator[tuple[str, Image]]:
    """Yield items with the values that rules and the query use. Equal rules and queries give equal items."""
    pools, random, number = Pools(program), Random(query.name), count(1)
    read = {*query.entities, *(rule.source for _, rule in program.model.variants() if rule.into in query.entities)}
    for kind in (*pools.kinds.values(), *(pools.created[name] for name in query.entities if name in pools.created)):
        entity, values, declared = kind.entity, _values(program, query, kind), program.model.entities[kind.entity.name]
        always, left = {*declared.index_key, *declared.required}, ITEMS if entity.name in read else 1
        for attempt in range(ATTEMPTS):
            variables = {**random.choice(kind.keys[: len(kind.keys) // 2 + 1])[1]}
            variables |= {declared.id: str(next(number))} if declared.id else {}
            key = ItemKey(entity.table, *(pattern.render(variables) for pattern in entity.patterns))
            image: dict[str, Any] = {}
            for path, pool in values.items():
                if pool and (path in always or random.random() < 0.85):
                    put_at(image, path, random.choice(pool))
            image |= {**entity.constants, **entity.schema.wire(key), MARK: {"N": str(next(number))}}
            if (item := program.recognise_as(entity, key, image)) is None or not _is_accepted(
                program, item, program.rules
            ):
                continue
            for attribute, template in declared.index_key.items():
                if text := text_of(template, values_of(item)):
                    image[attribute] = {kind.index_key[attribute][0]: text}
            if attempt % 8 == 0 or query.where.matches(values_of(item)):
                yield entity.table, image
                if (left := left - 1) == 0:
                    break


def _values(program: Program, query: Query, kind: Kind) -> Mapping[str, list[Value]]:
    """Return the values that each attribute may have: numbers that are not negative, or only others."""
    name, types = kind.entity.name, types_of(program.model)
    declared = program.model.entities[name]
    own: dict[str, list[Value]] = {path: [{"S": text} for text in "cdefghi"] for path in query.attributes or ()}
    used = [*declared.required, *declared.index_key, *query.parameters, query.range, query.ordered_by]
    own |= {path: [] for path in used if path} | dict(examples(query.where.conditions))
    values, usual = dict[str, list[Value]](), {*query.parameters, *query.where.names}
    for path in {**kind.attributes, **own}:
        number = types.number(name, path) is not None or types.used_as_number(name, path) is not None
        known = [*own.get(path, ()), *kind.attributes.get(path, ()), *ANY]
        pool = [value for value in known if ("N" in value) == number and "-" not in value.get("N", "")]
        if path in (query.range, query.ordered_by) and path not in query.where.names:
            pool = pool[-7:]
        if root(path) not in {*declared.variables, *program.derived_attributes(name)}:
            values[path] = [*pool[:1] * len(pool), *pool] if path in usual else pool
    return values

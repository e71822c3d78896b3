"""What `check` and `queries` offer for queries without an exact answer: a proposal, and what it costs per write.

A proposal is offered only if its query, answered on a few generated items that the changed rules process in memory, returns
what reading all of them does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from projections.access.answers import answer_to
from projections.access.readers import StoreReader
from projections.errors import ProjectionsError
from projections.inspect.cost.examples import examples_of, put
from projections.inspect.cost.reads import Shapes
from projections.inspect.cost.writes import Change, WriteCost, write_cost
from projections.inspect.rehearsal.rehearse import play
from projections.language.access.additions import dated, looks_like_time, number_known
from projections.language.access.plan import Plan
from projections.language.access.proposals import Proposal, proposal
from projections.language.access.questions import Query
from projections.language.canonical import Document
from projections.language.entity import Item
from projections.language.facts import creators
from projections.language.patterns import Pattern
from projections.language.pipes import date_arguments
from projections.language.program import Program
from projections.language.templates import Template
from projections.language.values import Value, lookup, plain, plain_items
from projections.local.tables import MemoryTables, schemas
from projections.stores.memory import MemoryStore

__all__ = ["Offer", "offer"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A proposal, and the write units before and after it.

    `cost` is None if the proposal changes no rules, or if no items can be generated for them.
    """

    proposal: Proposal
    cost: WriteCost | None

    def document(self) -> dict[str, Any]:
        """Return the JSON."""
        return {
            "sentence": self.proposal.sentence,
            "yaml": self.proposal.text,
            "unused": self.proposal.unused or None,
            "writeUnits": None if self.cost is None else self.cost.document(),
        }


def offer(
    document: Document,
    query: Query,
    plan: Plan,
    others: Collection[Query] | None = None,
    costs: dict[str, tuple[Change, Change]] | None = None,
) -> Offer | None:
    """Return what is offered for a query with this plan, as `proposals.proposal` has it.

    `costs` keeps the write units under the rules as they are, for further queries.
    """
    found = proposal(document, query, plan, others, partial(_holds, document))
    if found is None:
        return None
    if found.document == document:
        return Offer(found, None)
    try:
        return Offer(found, write_cost(document, found.document, query.entities[0], costs))
    except ProjectionsError:
        return Offer(found, None)


# --- the trial of a proposal ---

_ITEMS = 6
_NUMBERS = (88, 9, 100, 7, 70, 10)
_TIMES = tuple(datetime(2026, month, 3 + month, 12, tzinfo=UTC) for month in (3, 1, 5, 2, 6, 4))
_ALIKE = 4
"""Items that have the values of the first one in `by`."""


def _holds(before: Document, offered: Proposal) -> bool:
    """Return whether the query's answer on generated items is what reading all of them gives.

    True if none can be generated: an entity whose items only rules write, or conditions that no example matches.
    """
    query, document = offered.query, offered.document
    program = Program.from_document(document.to_document())
    if any(name in creators(before) or program.entities[name].owned_by_rules for name in query.entities):
        return True
    made = [_item(program, query, name, number) for name in query.entities for number in range(_ITEMS)]
    items = {item.key: item for item in made if item is not None}
    tables = MemoryTables(schemas(program), [])
    assert isinstance(tables.store, MemoryStore)
    try:
        for item in items.values():
            tables.store.put(item.key.table, dict(item.image))
        done = play(program, tables, tables.records(), batch_size=10**9)
    except ProjectionsError:
        return True
    new = set(document.rules) - set(before.rules)
    if any(rejected.rule in new for batch in done.batches for rejected in batch.rejected):
        return False
    after = (program.recognise(key, tables.store.get(key) or {}) for key in items)
    answer = [item for item in after if item is not None and _matches(query, item)]
    if not answer:
        return True
    first = answer[0]
    given = {name: _plain(_value(first, name)) for name in query.parameters}
    if query.range is not None:
        ends = sorted((_plain(_value(item, query.range)) for item in answer), key=_sorting)
        given |= {f"{query.range}.from": ends[0], f"{query.range}.to": ends[-1]}
    asked = Template("", query.by)
    alike = [item for item in answer if asked.render(partial(_value, item)) == asked.render(partial(_value, first))]
    named = query.ordered_by
    if named is not None and query.order is not None:
        alike.sort(key=lambda item: _sorting(_plain(_value(item, named))), reverse=query.order.descending)
    reader = StoreReader(tables.store)
    found = plain_items(answer_to(program, offered.plan, given, reader, now=datetime(2027, 1, 1, tzinfo=UTC)))
    names = query.attributes or [name for name in (named, query.range) if name and name not in first.variables]
    shown = ({name: _plain(value) for name in names if (value := _value(item, name))} for item in alike)
    if len(found) != len(alike) or Counter(map(str, shown)) != Counter(str(_only(one, names)) for one in found):
        return False
    if named is None or query.order is None or named not in names:
        return True
    return [one[named] for one in found] == [_plain(_value(item, named)) for item in alike]


def _only(item: Mapping[str, Any], names: Collection[str]) -> Mapping[str, Any]:
    return {name: item[name] for name in names if name in item}


def _matches(query: Query, item: Item) -> bool:
    names = (*query.parameters, query.range, query.ordered_by)
    if any(_value(item, name) is None for name in names if name is not None):
        return False
    return query.where.compile()(partial(_value, item))


def _value(item: Item, name: str, stored: bool = False) -> Value | None:
    value = lookup(item.image, name, stored)
    if value is None and name in item.variables:
        return {"N" if name in item.entity.numeric else "S": item.variables[name]}
    return value


def _plain(value: Value | None) -> Any:
    return None if value is None else plain(value)


def _sorting(value: Any) -> tuple[bool, Any]:
    """Return the place of a value: numbers by value, texts by their bytes."""
    return (True, value.encode()) if isinstance(value, str) else (False, value)


def _item(program: Program, query: Query, entity: str, number: int) -> Item | None:
    """Return an item; None if none that is recognised was found."""
    declared = program.entities[entity]
    shapes = Shapes(program)
    given = {field.name for field in query.by}

    def value(name: str) -> Value:
        place = 0 if name in given and number < _ALIKE else number
        return _generated(shapes, query, entity, name, place)

    texts = {name: _plain(value(name)) for name in shapes.variables[entity]}
    keys = [one for one in (declared.schema.partition, declared.schema.sort) if one is not None]
    image: dict[str, Value] = {}
    names = [
        *shapes.paths(entity),
        *given,
        *(name for name in (query.range, query.ordered_by, *program.typed.entities[entity].required) if name),
    ]
    for name in dict.fromkeys(names):
        if name not in texts:
            put(image, name, value(name))
    for condition in (*query.where.conditions, *(declared.pattern.conditions if declared.pattern else ())):
        for name, examples in examples_of([condition]):
            if name not in texts and not Pattern((condition,), {}).compile()(partial(lookup, image)):
                put(image, name, next((one for one in examples if one is not None), {"S": "there"}))
    for (attribute, kind), key in zip(keys, declared.patterns, strict=True):
        try:
            image[attribute] = {kind: key.render({name: str(text) for name, text in texts.items()})}
        except ProjectionsError:
            return None
    try:
        item = program.recognise(declared.schema.key(declared.table, image), image)
    except KeyError:  # a condition on a key attribute put a value of another type there
        return None
    if item is None or item.entity is not declared:
        return None
    for attribute, text in program.typed.entities[entity].index_key.items():
        if attribute not in image and (made := Template.parse(text).render(partial(_value, item))) is not None:
            image[attribute] = {"S": made}
    return program.recognise(item.key, image)


def _generated(shapes: Shapes, query: Query, entity: str, name: str, number: int) -> Value:
    form, width = shapes.forms.get((entity, name), shapes.forms.get(("", name), ("", 0)))
    document = shapes.program.typed
    pipes = dated(document, entity, name)
    declared = date_arguments(pipes[-1])[2] if pipes else ""
    if form == "ms" or declared in ("seconds", "milliseconds"):
        return {"N": str(int(_TIMES[number].timestamp()) * (1 if declared == "seconds" else 1000))}
    if declared:
        return {"S": _TIMES[number].strftime(declared)}
    if form in ("pad", "invert", "number") or number_known(document, query, entity, name):
        return {"N": str(_NUMBERS[number] % 10 ** (width or 3))}
    if form == "ulid":
        return {"S": f"01KDWAA0Q0{_NUMBERS[number]:016d}"}
    if form == "date" or looks_like_time(name):
        return {"S": _TIMES[number].strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {"S": f"{name.rsplit('.', 1)[-1]}{'cafbed'[number]}"}

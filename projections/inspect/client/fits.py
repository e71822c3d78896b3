"""The function `fits` of a query: whether an item that was read is part of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from projections.inspect.client.conditions import Names as ItemNames
from projections.inspect.client.conditions import written
from projections.inspect.client.keys import EITHER, NUMBER, Variable, piped
from projections.inspect.client.layout import Call, Every, Expression, flat, statement
from projections.inspect.client.scope import Scope
from projections.language.access.plan import Plan, Request
from projections.language.patterns import Pattern
from projections.language.syntax import root
from projections.language.templates import Field

__all__ = ["Bounds", "Fits"]


@dataclass(frozen=True)
class Bounds:
    """The parameters that bound the range of a query."""

    low: Variable
    high: Variable
    beginning: str | None


class Fits:
    """Makes `fits`. `parameters` has the caller's values by the names that the plan's requests use."""

    def __init__(self, scope: Scope, plan: Plan, parameters: Mapping[str, Variable], bounds: Bounds | None) -> None:
        self._scope = scope
        self._plan = plan
        self._parameters = parameters
        self._bounds = bounds

    def function(self) -> tuple[str, list[str]]:
        """Return the expression of the function, and its definition if it needs one."""
        blocks = [self._block(entity) for entity in self._plan.asked.entities]
        if len(blocks) == 1 and blocks[0][1] == [f"{self._scope.recognisers[self._plan.asked.entities[0]]}(item)"]:
            return self._scope.recognisers[self._plan.asked.entities[0]], []
        lines = ["    def fits(item: Item) -> bool:"]
        if not any(first for first, _ in blocks):
            if len(blocks) == 1:
                return "fits", [*lines, *statement("return ", Every(blocks[0][1]), 8)]
            if all(len(conditions) == 1 for _, conditions in blocks):
                either = Every([conditions[0] for _, conditions in blocks], "or")
                return "fits", [*lines, *statement("return ", either, 8)]
        for number, (first, conditions) in enumerate(blocks):
            lines += first
            if number == len(blocks) - 1:
                lines += statement("return ", Every(conditions), 8)
            else:
                lines += [*statement("if ", Every(conditions), 8, ":"), "            return True"]
        return "fits", lines

    def _block(self, entity: str) -> tuple[list[str], list[Expression]]:
        """Return the statements before the conditions of an entity, and the conditions."""
        scope = self._scope
        names = scope.item_names(entity)
        requests = [request for request in self._plan.requests if entity in request.entities]
        match = Pattern.parse(scope.document.entities[entity].match or {})
        recognised = all(self._known(entity, name, requests, names) for name in match.names)
        found = self._conditions(entity, requests, names, match if recognised else Pattern((), {}))
        conditions = [*{flat(one): one for one in found}.values()]
        parsed = f"_variables(item, {scope.keys[entity]})"
        sure = f"{scope.recognisers[entity]}(item)"
        if not names.used:
            return [], [sure if recognised else f"{parsed} is not None", *conditions]
        more = [sure] if recognised and match.conditions else []
        return [f"        variables = {parsed}"], ["variables is not None", *more, *conditions]

    def _known(self, entity: str, name: str, requests: list[Request], names: ItemNames) -> bool:
        """Return whether an item shows a value, if it has it: not all indexes project all attributes."""
        table = self._scope.document.tables[self._scope.document.entities[entity].table]
        shown = [None if request.index is None else table.shown(request.index) for request in requests]
        return name in names.variables or all(one is None or root(name) in one for one in shown)

    def _conditions(
        self, entity: str, requests: list[Request], names: ItemNames, match: Pattern
    ) -> Iterator[Expression]:
        query = self._plan.asked
        needed = {names.stored(name) for name in (query.range, query.ordered_by) if name is not None}  # tested below
        for condition in query.where.conditions:
            read = Pattern((condition,), {}).names
            if condition in match.conditions or not all(self._known(entity, name, requests, names) for name in read):
                continue
            if (text := written(condition, names)) != "True" and text not in needed:
                yield text
        for field in query.by:
            if not self._sure(entity, field, requests) and self._known(entity, field.name, requests, names):
                yield from self._equal(entity, field, names)
        for name in dict.fromkeys(filter(None, (query.range, query.ordered_by))):
            if not self._known(entity, name, requests, names):
                continue
            if name == query.range and self._bounds is not None:
                bounds = [self._bounds.low.source, self._bounds.high.source, *filter(None, [self._bounds.beginning])]
                yield Call("_within(", [names.value(name), *bounds])
            elif (present := names.present(name)) is not None:
                yield present

    def _sure(self, entity: str, field: Field, requests: list[Request]) -> bool:
        """Return whether the key of the table determines a variable."""
        return field.name in self._scope.variables[entity] and all(
            request.index is None and any(Field(field.name) in key.text for key in (*request.partition, *request.fixed))
            for request in requests
        )

    def _equal(self, entity: str, field: Field, names: ItemNames) -> Iterator[str]:
        """Yield the conditions that a value is the caller's."""
        given = self._parameters[field.name]
        if field.name in self._scope.variables[entity]:
            own = self._scope.parameter(entity, field.name).type
            names.used.add(field.name)
            held = Variable(names.variables[field.name], own)
            if not field.pipes and own == given.type:
                yield f"{held.source} == {given.source}"
            else:
                yield f"{piped(held, field.pipes).text} == {piped(given, field.pipes).text}"
        elif field.pipes:
            held = Variable(names.value(field.name, sure=True), EITHER)
            yield str(names.present(field.name))
            yield f"{piped(held, field.pipes).text} == {piped(given, field.pipes).text}"
        elif given.type == NUMBER or self._is_key(entity, field.name):
            yield f"{names.value(field.name)} == {given.source}"
        else:
            yield f"_same({names.value(field.name)}, {given.source})"

    def _is_key(self, entity: str, name: str) -> bool:
        """Return whether an attribute is a key of an index that is read, so that its type is known."""
        table = self._scope.document.tables[self._scope.document.entities[entity].table]
        return all(
            request.index is not None and name in table.indexes[request.index].names for request in self._plan.requests
        )

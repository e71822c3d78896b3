"""The function of a query: its parameters, its reads, whether an item that was read fits, and the type of its results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from projections.access.query_reads import bucket_texts
from projections.inspect.client.entity_definitions import Attribute, signature
from projections.inspect.client.expressions import (
    EITHER,
    NUMBER,
    TEXT,
    Call,
    Code,
    Every,
    ItemNames,
    Loop,
    Names,
    Variable,
    apply_pipes,
    condition_source,
    docstring,
    flat,
    literal,
    number,
    pascal,
    period_list,
    snake,
    statement,
    text_expression,
)
from projections.inspect.client.module_scope import Scope, paragraphs
from projections.language.access.plan import Buckets, KeyEquals, Periods, Plan, Request, SortRange
from projections.language.patterns import Pattern
from projections.language.syntax import root, shown_name, steps
from projections.language.templates import Field


class Bounds(NamedTuple):
    """The parameters that bound the range of a query."""

    low: Variable
    high: Variable
    beginning: str | None


class QueryFunction:
    """Makes the function of a planned query. `waits`: for aioboto3. `kind`: the type of its results, if it exists."""

    def __init__(self, scope: Scope, plan: Plan, name: str, *, waits: bool, kind: str = "") -> None:
        self._scope = scope
        self.plan = plan
        self.name = name
        self._waits = waits
        self._table = scope.rules.entities[plan.asked.entities[0]].table
        reserved = ["table", "item", "variables", "fits", "show", "results", "bucket", "period", "periods"]
        reserved += [_variables_name(plan, entity) for entity in plan.asked.entities]
        self._own = Names((*reserved, *scope.recognisers.values()))
        self._parameters = {
            field.name: Variable(self._own.take(snake(parameter.name)), self._type(field))
            for parameter, field in zip(plan.query.by, plan.asked.by, strict=True)
        }
        self.bounds = self._bounding()
        self._periods: Code = ""
        self.type = kind or " | ".join(scope.classes[entity] for entity in plan.asked.entities)
        if plan.asked.attributes is not None and not kind:
            self.type = scope.names.take(pascal(plan.query.name) + "Item")

    # --- parameters ---

    def _type(self, field: Field) -> str:
        entities = self.plan.asked.entities
        if all(field.name in self._scope.variables[entity] for entity in entities):
            return self._scope.parameter(entities[0], field.name).type
        if self._scope.numeric(entities, field.name):
            return NUMBER
        parts = [part for request in self.plan.requests for key in _keys(request) for part in key]
        pipes = {
            part.pipes[0].name for part in parts if isinstance(part, Field) and part.name == field.name and part.pipes
        }
        return EITHER if pipes & {"pad", "invert", "date"} else TEXT

    def _bounding(self) -> Bounds | None:
        """Return the parameters that bound the range."""
        query = self.plan.asked
        if query.range is None or self.plan.query.range is None:
            return None
        kind = self._type(Field(query.range))
        bounded = [request.sort for request in self.plan.requests if request.sort is not None and request.sort.bounded]
        numbers = any(sort.kind == "N" or (sort.focus is not None and sort.focus.pipes) for sort in bounded)
        if numbers:
            kind = NUMBER
        elif kind == TEXT and query.range not in self._scope.variables[query.entities[0]]:
            sorts = [request.sort for request in self.plan.requests]
            kind = TEXT if sorts and sorts == bounded else EITHER
        name = snake(self.plan.query.range)
        low, high = (Variable(self._own.take(f"{name}_{end}"), kind) for end in ("from", "to"))
        return Bounds(low, high, None if kind == NUMBER else self._own.take(f"{name}_prefix"))

    def _signature(self) -> list[str]:
        parts: list[Code] = ["table: Table"]
        parts += [f"{parameter.source}: {parameter.type}" for parameter in self._parameters.values()]
        if self.bounds is not None:
            low, high = self.bounds.low, self.bounds.high
            needed = any(isinstance(fan, Periods) for request in self.plan.requests for fan in request.fans)
            optional = "" if needed else " | None = None"
            parts += ["*", f"{low.source}: {low.type}{optional}", f"{high.source}: {high.type} | None = None"]
            if self.bounds.beginning:
                parts.append(f"{self.bounds.beginning}: str | None = None")
        returned = f"{self.type} | None" if self.plan.query.get else f"Results[{self.type}]"
        waits = "async " if self._waits and self.plan.query.get else ""
        return signature(self.name, parts, returned, f"{waits}def")

    # --- the function ---

    def lines(self) -> list[str]:
        """Return the definition of the function."""
        plan = self.plan
        fits, body = self._fits()
        show, shown = self._show()
        separate = [""] if body and shown else []
        body = [*body, *separate, *shown]
        lines = [*self._signature(), *docstring(4, *paragraphs(self._scope.rules, plan))]
        lines += ["", *body, ""] if body else []
        options: list[Code] = [f"show={show}"] if show else []
        (request, *others) = plan.requests
        wait = "await " if self._waits else ""
        if plan.query.get and request.get and not others:
            parts = [
                f"{literal(key.attribute)}: {self._key_value(key)}" for key in (*request.partition, *request.fixed)
            ]
            arguments: list[Code] = ["table", Call("{", parts, "}"), fits, *options]
            arguments += ["consistent=True"] if plan.asked.consistent else []
            statements = statement(f"item: {self.type} | None = {wait}", Call("_get_item(", arguments))
            return [*lines, *statements, "    return item"]
        arguments = ["table", self._stages(), fits, *options]
        lines += statement("periods = ", self._periods) if self._periods else []
        if plan.merged:
            order = [literal(name) for name in request.order]
            arguments.append(Call("merge_by=[", order, "]"))
        if plan.query.limit is not None:
            arguments.append(f"limit={plan.query.limit}")
        if plan.asked.consistent:
            arguments.append("consistent=True")
        if not plan.query.get:
            return [*lines, *statement("return ", Call("Results(", arguments))]
        results = statement(f"results: Results[{self.type}] = ", Call("Results(", arguments))
        return [*lines, *results, f"    return {wait}results.first()"]

    # --- reads ---

    def _stages(self) -> Code:
        """Return the reads in stages: the reads of one stage are merged."""
        plan = self.plan
        if not plan.merged:
            reads = [self._apart(request) for request in plan.requests]
            if len(reads) == 1 and isinstance(reads[0], Loop):
                return reads[0]
            return Call("[", [_spread(read) for read in reads], "]")
        fans = plan.requests[0].fans
        in_order = [fan for fan in fans if isinstance(fan, Periods) and plan.asked.ordered_by == fan.field.name]
        outer = [self._clause(fan) for fan in in_order[:1]]
        inner: list[Code] = []
        for request in plan.requests:
            clauses = [self._clause(fan) for fan in request.fans if fan not in in_order]
            inner.append(Loop(self._read_call(request), clauses) if clauses else self._read_call(request))
        stage = inner[0] if len(inner) == 1 and isinstance(inner[0], Loop) else Call("[", [*map(_spread, inner)], "]")
        return Loop(stage, outer) if outer else Call("[", [stage], "]")

    def _apart(self, request: Request) -> Code:
        """Return the stages of a request whose reads are not merged."""
        read = Call("[", [self._read_call(request)], "]")
        clauses = [self._clause(fan) for fan in request.fans]
        return Loop(read, clauses) if clauses else read

    def _clause(self, fan: Buckets | Periods) -> str:
        if isinstance(fan, Periods):
            assert self.bounds is not None
            self._periods = period_list(fan, self.bounds.low, self.bounds.high)
            order = self.plan.asked.order
            newest_first = order is not None and order.descending
            return f"for period in {'reversed(periods)' if newest_first else 'periods'}"
        if fan.field.pipes[-1].name == "bucket":
            return f"for bucket in range({fan.count})"
        return f"for bucket in [{', '.join(map(literal, bucket_texts(fan)))}]"

    def _read_call(self, request: Request) -> Call:
        keys = (*request.partition, *request.fixed)
        parts: list[Code] = [self._scope.path(self._table, request.index)]
        parts += [f"Key({literal(key.attribute)}).eq({self._key_value(key)})" for key in keys]
        if request.sort is not None:
            parts += self._sort(request.sort)
        if request.descending:
            parts.append("descending=True")
        if any(other.entities != request.entities for other in self.plan.requests):
            (entity,) = request.entities
            parts.append(f"only={self._scope.recognisers[entity]}")
        return Call("Read(", parts)

    def _key_value(self, key: KeyEquals) -> str:
        if key.kind != "N":
            return self._text(key.text)
        if len(key.text) == 1 and isinstance(key.text[0], Field) and not key.text[0].pipes:
            value = self._parameters[key.text[0].name]
            return value.source if value.type == NUMBER else f"Decimal({value.text})"
        if all(isinstance(part, str) for part in key.text):
            return number("".join(map(str, key.text)))
        return f"Decimal({self._text(key.text)})"

    def _text(self, parts: Sequence[object]) -> str:
        """Return the expression of a key's text."""
        texts: list[tuple[bool, str]] = []
        for part in parts:
            if isinstance(part, str):
                texts.append((True, part))
            elif isinstance(part, Field):
                texts.append((False, apply_pipes(self._parameters[part.name], part.pipes).text))
            else:
                texts.append((False, "period" if isinstance(part, Periods) else "str(bucket)"))
        return text_expression(texts)

    def _sort(self, sort: SortRange) -> list[Code]:
        """Return the condition on the sort key: none, a prefix, or bounds."""
        name = literal(sort.attribute)
        if sort.until is not None:
            until = self._text(sort.until) + (" + _HIGHEST" if sort.rest else "")
            return [Call(f"Key({name}).between(", [self._text(sort.prefix), until])]
        bounds = self.bounds if sort.bounded else None
        if bounds is None or sort.focus is None:
            return [f"Key({name}).begins_with({self._text(sort.prefix)})"] if sort.prefix else []
        low, high = (self._bound(sort.focus, bound) for bound in (bounds.low, bounds.high))
        if sort.inverted:
            low, high = high, low
        if sort.kind != "S":
            return [f"*_number_between({name}, {low}, {high})"]
        arguments: list[Code] = [name, self._text(sort.prefix), low, high, *filter(None, [bounds.beginning])]
        if sort.rest:
            arguments += [] if bounds.beginning else ["None"]
            arguments.append(f"{literal(sort.after)} + _HIGHEST" if sort.after else "_HIGHEST")
        return [Call("_text_between(", arguments)]

    def _bound(self, focus: Field, value: Variable) -> str:
        if not focus.pipes:
            return value.source
        return f"None if {value.source} is None else {apply_pipes(value, focus.pipes).text}"

    # --- whether an item fits ---

    def _fits(self) -> tuple[str, list[str]]:
        """Return the expression of the function that tells what fits, and its definition if it needs one."""
        blocks = [self._block(entity) for entity in self.plan.asked.entities]
        if len(blocks) == 1 and blocks[0][1] == [f"{self._scope.recognisers[self.plan.asked.entities[0]]}(item)"]:
            return self._scope.recognisers[self.plan.asked.entities[0]], []
        lines = ["    def fits(item: Item) -> bool:"]
        if not any(first for first, _ in blocks):
            if len(blocks) == 1:
                return "fits", [*lines, *statement("return ", Every(blocks[0][1]), 8)]
            if all(len(conditions) == 1 for _, conditions in blocks):
                either = Every([conditions[0] for _, conditions in blocks], "or")
                return "fits", [*lines, *statement("return ", either, 8)]
        for place, (first, conditions) in enumerate(blocks, 1):
            lines += first
            if place == len(blocks):
                lines += statement("return ", Every(conditions), 8)
            else:
                lines += [*statement("if ", Every(conditions), 8, ":"), "            return True"]
        return "fits", lines

    def _block(self, entity: str) -> tuple[list[str], list[Code]]:
        """Return the statements before the conditions of an entity, and the conditions."""
        scope = self._scope
        variables = _variables_name(self.plan, entity)
        names = scope.item_names(entity, variables)
        requests = [request for request in self.plan.requests if entity in request.entities]
        match = scope.rules.entities[entity].conditions
        recognised = all(self._is_known(entity, name, requests, names) for name in match.names)
        tests = self._conditions(entity, requests, names, match if recognised else Pattern((), {}))
        conditions = [*{flat(test): test for test in tests}.values()]
        parsed = f"_key_variables(item, {scope.keys[entity]})"
        sure = f"{scope.recognisers[entity]}(item)"
        if not names.used:
            return [], [sure if recognised else f"{parsed} is not None", *conditions]
        more = [sure] if recognised and match.conditions else []
        return [f"        {variables} = {parsed}"], [f"{variables} is not None", *more, *conditions]

    def _is_known(self, entity: str, name: str, requests: list[Request], names: ItemNames) -> bool:
        """Return whether an item shows a value, if it has it: not all indexes project all attributes."""
        table = self._scope.rules.tables[self._scope.rules.entities[entity].table]
        kept = [None if request.index is None else table.shown(request.index) for request in requests]
        return name in names.variables or all(attributes is None or root(name) in attributes for attributes in kept)

    def _conditions(self, entity: str, requests: list[Request], names: ItemNames, match: Pattern) -> Iterator[Code]:
        query = self.plan.asked
        needed = {names.if_stored(name) for name in (query.range, query.ordered_by) if name is not None}  # tested below
        for condition in query.where.conditions:
            read = Pattern((condition,), {}).names
            if condition in match.conditions or not all(self._is_known(entity, name, requests, names) for name in read):
                continue
            if (text := condition_source(condition, names)) != "True" and text not in needed:
                yield text
        for field in query.by:
            if not self._sure(entity, field, requests) and self._is_known(entity, field.name, requests, names):
                yield from self._equal(entity, field, names)
        for name in dict.fromkeys(filter(None, (query.range, query.ordered_by))):
            if not self._is_known(entity, name, requests, names):
                continue
            if name == query.range and self.bounds is not None:
                bounds = [self.bounds.low.source, self.bounds.high.source, *filter(None, [self.bounds.beginning])]
                yield Call("_is_within(", [names.value(name), *bounds])
            elif (present := names.if_present(name)) is not None:
                yield present

    def _sure(self, entity: str, field: Field, requests: list[Request]) -> bool:
        """Return whether the key of the table determines a variable."""
        return field.name in self._scope.variables[entity] and all(
            request.index is None and any(Field(field.name) in key.text for key in (*request.partition, *request.fixed))
            for request in requests
        )

    def _equal(self, entity: str, field: Field, names: ItemNames) -> Iterator[str]:
        """Yield the conditions that a value is the caller's."""
        wanted = self._parameters[field.name]
        if field.name in self._scope.variables[entity]:
            own = self._scope.parameter(entity, field.name).type
            names.used.add(field.name)
            held = Variable(names.variables[field.name], own)
            if not field.pipes and own == wanted.type == TEXT:
                yield f"{held.source} == {wanted.source}"
            else:
                yield f"{apply_pipes(held, field.pipes).text} == {apply_pipes(wanted, field.pipes).text}"
        elif field.pipes:
            held = Variable(names.value(field.name, sure=True), EITHER)
            yield str(names.if_present(field.name))
            yield f"{apply_pipes(held, field.pipes).text} == {apply_pipes(wanted, field.pipes).text}"
        elif wanted.type == TEXT and self._is_key(entity, field.name):
            yield f"{names.value(field.name)} == {wanted.source}"
        else:
            yield f"_same_text({names.value(field.name)}, {wanted.source})"

    def _is_key(self, entity: str, name: str) -> bool:
        """Return whether an attribute is a key of an index that is read, so that its type is known."""
        table = self._scope.rules.tables[self._scope.rules.entities[entity].table]
        return all(
            request.index is not None and name in table.indexes[request.index].names for request in self.plan.requests
        )

    # --- what is shown ---

    def _show(self) -> tuple[str, list[str]]:
        """Return the expression of the function that makes results, if it is not the usual one, and its definition."""
        query = self.plan.asked
        if query.attributes is None:
            return "", []
        paths = dict(zip(self.plan.query.attributes or query.attributes, query.attributes, strict=True))
        chosen: list[Code] = [literal(root(path)) for path in paths]
        selected = "_pick"
        if any(shown != path or len(steps(path)) > 1 for shown, path in paths.items()):
            parts = [
                Call(f"{literal(shown_name(shown))}: [", list(map(literal, steps(path))), "]")
                for shown, path in paths.items()
            ]
            selected, chosen = "_values_at", [Call("{", parts, "}")]
        whole = Call(f"{selected}(", ["item", *chosen])
        lines = ["    def show(item: Item) -> Item:"]
        needed = {entity: [*self._variables(entity, paths.values())] for entity in query.entities}
        if not any(needed.values()):
            return "show", [*lines, *statement("return ", whole, 8)]
        for entity, entries in needed.items():
            indent = 8
            if len(needed) > 1:
                lines.append(f"        if {self._scope.recognisers[entity]}(item):")
                indent = 12
            if entries:
                lines.append(f"{' ' * indent}variables = _variables_of(item, {self._scope.keys[entity]})")
            values = Call("{", [*entries, "**item"], "}")
            lines += statement("return ", Call(f"{selected}(", [values, *chosen]), indent)
        return "show", lines if len(needed) == 1 else [*lines, *statement("return ", whole, 8)]

    def _variables(self, entity: str, paths: Iterable[str]) -> list[str]:
        """Return the entries of a dictionary with the key variables among these paths."""
        names = self._scope.item_names(entity)
        return [f"{literal(path)}: {names.variables[path]}" for path in paths if path in names.variables]

    def result_fields(self, attributes: Mapping[str, Mapping[str, Attribute]]) -> dict[str, str] | None:
        """Return the fields of the type of its results, if it lists attributes."""
        query = self.plan.asked
        if query.attributes is None:
            return None
        fields = {}
        for shown, path in zip(self.plan.query.attributes or query.attributes, query.attributes, strict=True):
            kinds = {self._kind(attributes[entity], entity, path) for entity in query.entities}
            fields[shown_name(shown)] = kinds.pop() if len(kinds) == 1 else "Any"
        return fields

    def _kind(self, attributes: Mapping[str, Attribute], entity: str, path: str) -> str:
        if path in attributes:
            return "Any" if attributes[path].list_of else attributes[path].type
        if path in self._scope.variables[entity]:
            return "str" if self._scope.parameter(entity, path).type == TEXT else "Decimal"
        return "Any"


def _variables_name(plan: Plan, entity: str) -> str:
    """Return the local variable with the variables in the key of an item."""
    return "variables" if len(plan.asked.entities) == 1 else f"{snake(entity)}_variables"


def _keys(request: Request) -> list[Sequence[object]]:
    texts: list[Sequence[object]] = [key.text for key in (*request.partition, *request.fixed)]
    return texts + ([request.sort.prefix] if request.sort else [])


def _spread(code: Code) -> Code:
    """Return an element of a list: a comprehension as its elements."""
    return "*" + flat(code) if isinstance(code, Loop) else code

"""A module of typed functions from the queries, ranks, write patterns and entities of a rule file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from projections.inspect.client.entity_definitions import (
    Attribute,
    attributes_of,
    input_type,
    item_builder,
    item_type,
    key_builder,
    key_patterns,
    recogniser,
    signature,
    typed_dict,
    variable_reader,
)
from projections.inspect.client.expressions import Call, Code, Names, constant, docstring, literal, snake, statement
from projections.inspect.client.module_scope import Scope, helpers, imports, names_in, sentence
from projections.inspect.client.query_functions import QueryFunction
from projections.inspect.client.typescript import Module, camel
from projections.language.access.board_listing import Listing, board_listing
from projections.language.access.plan import Plan
from projections.language.access.planner import plan
from projections.language.questions import WritePattern, WriteStep
from projections.language.ranks import RankRule
from projections.language.ruleset import RuleSet
from projections.language.syntax import an

REQUESTS = {"put": "Put", "update": "Update", "delete": "Delete", "check": "ConditionCheck"}
CONDITIONS = {"absent": "does not exist", "present": "exists"}


Form: TypeAlias = Literal["python", "aioboto3", "typescript"]

Attributes: TypeAlias = Mapping[str, Mapping[str, Attribute]]
"""The attributes of each entity."""

READ = {"str": "str", "Decimal": "int | Decimal", "bytes": "bytes", "bool": "bool"}
"""By the type of an attribute: that of a value of it that was read."""

ANY_READ = "Scalar | bool | bytes | None"


def tables_of(scope: Scope, pattern: WritePattern, own: Names | None = None) -> dict[str, str]:
    """Return the parameters for names of tables by table; none if the requests are no transaction."""
    own = own or Names()
    together = pattern.transaction or any(step.operation == "check" for step in pattern.steps)
    tables = [*dict.fromkeys(scope.rules.entities[step.entity].table for step in pattern.steps)] if together else []
    return {table: own.take("table_name" if len(tables) == 1 else f"{snake(table)}_table") for table in tables}


def write_function(scope: Scope, pattern: WritePattern, name: str, attributes: Attributes, form: Form) -> list[str]:
    """Return the function that makes the request of a write pattern."""
    typescript = form == "typescript"
    commands = [
        f"{REQUESTS[step.operation]}Command" if typescript else f"{step.operation}_item" for step in pattern.steps
    ]
    inputs = [f"{command}Input" if typescript else "Item" for command in commands]
    own = Names()
    tables = tables_of(scope, pattern, own)
    counts, seen = Counter(step.entity for step in pattern.steps), Counter[str]()
    writes = []
    for step in pattern.steps:
        seen[step.entity] += 1
        number = f"_{seen[step.entity]}" if counts[step.entity] > 1 else ""
        known = attributes[step.entity].get(step.unchanged or "")
        writes.append(_Write(scope, step, own, snake(step.entity) + number, known, alone=len(pattern.steps) == 1))
    returned: Code
    if tables:
        requests: list[Code] = []
        for step, write in zip(pattern.steps, writes, strict=True):
            table = tables[scope.rules.entities[step.entity].table]
            inner = Call("{", [f'"TableName": {table}', *write.arguments], "}")
            requests.append(Call("{", [_entry(REQUESTS[step.operation], inner)], "}"))
        returned = Call("{", [_entry("TransactItems", Call("[", requests, "]"))], "}")
        kind = "TransactWriteCommandInput" if typescript else "Item"
        python = "Arguments of `transact_write_items` of the table's client, `table.meta.client`."
        about = "Input of `TransactWriteCommand`." if typescript else python
    elif len(writes) == 1:
        returned, kind = Call("{", writes[0].arguments, "}"), inputs[0]
        about = ("Input of " if typescript else "Arguments of the table's ") + f"`{commands[0]}`."
    else:
        returned = Call("[", [Call("{", write.arguments, "}") for write in writes], "]")
        kind = f"tuple[{', '.join(inputs)}]" if typescript else "list[Item]"
        about = f"{'Inputs' if typescript else 'Arguments'} of one request for each item, which are no transaction: "
        about += ", ".join(map("`{}`".format, commands)) + "."
    parameters = [*map("{}: str".format, tables.values()), *(each for write in writes for each in write.parameters)]
    paragraphs = [*([sentence(pattern.about)] if pattern.about else []), about, _description(pattern)]
    return [*signature(name, parameters, kind), *docstring(4, *paragraphs), *statement("return ", returned)]


def _entry(name: str, value: Call) -> Call:
    """Return an entry of a dictionary."""
    return Call(f"{literal(name)}: {value.before}", value.parts, value.after)


def _description(pattern: WritePattern) -> str:
    words = []
    for step in pattern.steps:
        if step.condition:
            words.append(f"the {step.entity} {CONDITIONS[step.condition]}")
        elif step.unchanged:
            words.append(f"{step.unchanged} of the {step.entity} is as it was read")
    numbered = f"{pattern.id}. " if pattern.id else ""
    return numbered + (f"Fails unless {', and '.join(words)}." if words else "")


@dataclass
class _Write:
    """One request: the parameters of the function that it needs, and its arguments."""

    scope: Scope
    step: WriteStep
    own: Names
    word: str
    known: Attribute | None
    """What is known of the attribute that must be unchanged."""
    alone: bool
    parameters: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)
    """Placeholders of attributes, each with the attribute's name."""
    values: dict[str, str] = field(default_factory=dict)
    """Placeholders of values, each with its expression."""

    def __post_init__(self) -> None:
        step = self.step
        condition = self._condition()
        bumped = {step.unchanged: f"{self.expected} + 1"} if step.unchanged and self._counted else {}
        if step.operation == "put":
            item = self._parameter(self.word, "Mapping[str, Any]", first=True)
            changed = "".join(f", {literal(name)}: {value}" for name, value in bumped.items())
            first: list[Code] = [f'"Item": {{**{item}{changed}}}' if changed else f'"Item": {item}']
        else:
            key = self._parameter(f"{self.word}_key", "Mapping[str, Any]", first=True)
            first = [f'"Key": {key}']
        if step.operation == "update" and not step.set:
            self._any_update(first, bumped)
        elif step.operation == "update":
            changes = {name: self._parameter(self._variable_name(name), "Any") for name in step.set} | bumped
            terms = [f"{self._name(name)} = {self._value(name, value)}" for name, value in changes.items()]
            first.append(f'"UpdateExpression": {literal("SET " + ", ".join(terms))}')
        if condition:
            first.append(f'"ConditionExpression": {literal(condition)}')
        self.arguments = first
        if not (step.operation == "update" and not step.set):
            for name, placeholders in (("Names", self.names), ("Values", self.values)):
                if placeholders:
                    entries = Call("{", self._entries(placeholders), "}")
                    self.arguments.append(_entry(f"ExpressionAttribute{name}", entries))

    def _any_update(self, arguments: list[Code], bumped: dict[str, str]) -> None:
        """Add the arguments of an update that sets the attributes of a mapping."""
        changes = self._parameter("changes" if self.alone else f"{self.word}_changes", "Mapping[str, Any]")
        if bumped:
            changes = "{**" + changes + "".join(f", {literal(name)}: {value}" for name, value in bumped.items()) + "}"
        more: list[Code] = [Call("{", self._entries(part), "}") for part in (self.names, self.values) if part]
        arguments.append(Call("**_set_expression(", [changes, *more], ")"))

    def _entries(self, placeholders: dict[str, str]) -> Sequence[str]:
        values = placeholders is self.values
        return [f"{literal(place)}: {text if values else literal(text)}" for place, text in placeholders.items()]

    def _variable_name(self, attribute: str) -> str:
        return snake(attribute) if self.alone else f"{self.word}_{snake(attribute)}"

    def _parameter(self, name: str, kind: str, *, first: bool = False) -> str:
        taken = self.own.take(name)
        self.parameters.insert(0 if first else len(self.parameters), f"{taken}: {kind}")
        return taken

    @property
    def _counted(self) -> bool:
        """Whether the write adds 1 to the attribute that must be unchanged: a number, which the caller does not set."""
        step = self.step
        number = self.known is None or self.known.type in ("Any", "Decimal")
        return step.operation in ("put", "update") and step.unchanged not in step.set and number

    @property
    def _type(self) -> str:
        """The type of the value that was read."""
        known = READ.get(self.known.type, ANY_READ) if self.known else ANY_READ
        return READ["Decimal"] if self._counted else known

    def _condition(self) -> str:
        """Return the condition of the write, and add what it needs."""
        step = self.step
        if step.unchanged is not None:
            name = self._variable_name(step.unchanged)
            self.expected = self._parameter(f"expected_{name}" if step.unchanged in step.set else name, self._type)
            self.values[":expected"] = self.expected
            return f"{self._name(step.unchanged)} = :expected"
        if step.condition is None:
            return ""
        table = self.scope.rules.tables[self.scope.rules.entities[step.entity].table]
        function = "attribute_not_exists" if step.condition == "absent" else "attribute_exists"
        return f"{function}({self._name(table.partition[0])})"

    def _name(self, attribute: str) -> str:
        """Return the placeholder of an attribute."""
        for placeholder, name in self.names.items():
            if name == attribute:
                return placeholder
        wanted = snake(attribute)
        placeholder = f"#{wanted}" if wanted.isascii() and f"#{wanted}" not in self.names else f"#n{len(self.names)}"
        self.names[placeholder] = attribute
        return placeholder

    def _value(self, attribute: str, source: str) -> str:
        """Return the placeholder of a value."""
        placeholder = f":{self._name(attribute)[1:]}"
        if placeholder in self.values:
            placeholder = f":v{len(self.values)}"
        self.values[placeholder] = source
        return placeholder


def rank_constant(scope: Scope, rule: RankRule, name: str) -> list[str]:
    """Return the constant with a `rank` rule as it is now."""
    templates = scope.rules.entities[rule.into.name].key
    key = Call(
        "{", [f"{literal(attribute)}: {literal(template.text)}" for attribute, template in templates.items()], "}"
    )
    numbers = map(str, (rule.scale.digits, rule.scale.decimals, rule.descending, rule.amount is not None))
    return statement(f"{name} = ", Call("RankRule(", [literal(rule.name), literal(rule.fingerprint), key, *numbers]), 0)


def rank_functions(
    scope: Scope, rule: RankRule, names: tuple[str, str], listed: tuple[Listing, QueryFunction] | None, waits: bool
) -> Iterator[list[str]]:
    """Yield the functions of a `rank` rule: its ranks, and with a query that lists a board, items at positions.

    `names` are those of the first function, and of the rule's constant.
    """
    name, known = names
    entity, board = rule.into.name, an(rule.into.name)
    key = scope.key_builders[entity]
    own = Names(("table", "ledger", "first", "last", "ranking", "place", "results"))
    variables = {each: own.take(snake(each)) for each in scope.variables[entity]}
    parameters = [f"{variable}: {scope.parameter(entity, each).type}" for each, variable in variables.items()]
    about = scope.rules.projections[rule.name].description or f"The ranks of the scores on {board}"
    best = "greatest" if rule.descending else "least"
    yield [
        *signature(name, ["ledger: Table", *parameters], "Ranking"),
        *docstring(4, sentence(about), f"The {best} score has rank 1. `ledger` is the ledger's table."),
        *statement(
            "return ",
            Call("Ranking(", ["ledger", known, literal(rule.into.table), Call(f"{key}(", [*variables.values()])]),
        ),
    ]
    if listed is None:
        return
    listing, query = listed
    assert query.bounds is not None
    bound = query.bounds.low if listing.bound == "from" else query.bounds.high
    values = [variables[listing.board[parameter]] for parameter in listing.query.parameters]
    begins, wait, page = "async def" if waits else "def", "await " if waits else "", f"Positions[{query.type}]"
    many = f"{listing.query.entities[0]} items at the positions from `first` to `last` of {board}, the best at 1."
    single = f"A random item of {board}; None if it has none."
    read = f"Read by query {listing.query.name}. Scores may change between the reads of the ledger and of the query."
    for word, place, more, returned, helper, text in (
        ("positions", "first", ["first: int", "last: int"], page, "results, place, first, last", many),
        ("random", "None", [], f"{query.type} | None", "results, place", single),
    ):
        function = scope.names.take(f"{name}_{word}")
        yield [
            *signature(function, ["table: Table", "ledger: Table", *parameters, *more], returned, begins),
            *docstring(4, text, read),
            *statement("ranking = ", Call(f"{name}(", ["ledger", *variables.values()])),
            *statement(f"place = {wait}", Call("ranking.place(", [place, *["unsigned=True"] * listing.unsigned])),
            *statement("results = ", Call(f"{query.name}(", ["table", *values, f"{bound.source}=place.score"])),
            f"    return {wait}_{word}({helper})",
        ]


ACCESSED = "Each function runs one query of the rule file. It takes {} first."
TABLES = {
    "python": "a boto3 `Table`",
    "aioboto3": "an aioboto3 `Table`",
    "typescript": "a table and its document client",
}
"""By the form of a module: what its functions take."""

NUMBERS = (
    "Attributes that are read have the type `number`, as the document client returns them by default. With its option "
    "`wrapNumbers` they are `NumberValue`: convert them with `Number`. Functions take either."
)


class Client(NamedTuple):
    """A generated module. `functions` are the names of its functions by query, write pattern and `rank` rule.

    `missing` has the queries without a function, and `renamed` those whose function has another name, each with the reason.
    """

    text: str
    functions: Mapping[str, str]
    missing: Mapping[str, str]
    renamed: Mapping[str, str]


def client_of(rules: RuleSet, name: str, form: Form = "python") -> Client:
    """Return the module for a rule file of this name."""
    return _Generator(rules, form).client(name)


class _Generator:
    def __init__(self, rules: RuleSet, form: Form) -> None:
        self._rules = rules
        self._form = form
        self._waits = form != "python"
        self._program = rules.program
        plans = {name: plan(self._program.model, query) for name, query in rules.queries.items()}
        self._missing = {name: reason for name, each in plans.items() if (reason := self._refusal(each))}
        self._plans = {name: each for name, each in plans.items() if name not in self._missing}
        self._entities = [name for name in self._program.entities if not self._binary(name)]
        self._scope = Scope(self._program, self._entities)
        self._functions: dict[str, str] = {}

    def _refusal(self, plan: Plan) -> str:
        """Return why a query has no function; empty if it has one."""
        if not plan.requests or plan.verdict in ("incomplete", "none"):
            return plan.reason
        kinds = [key.kind for request in plan.requests for key in (*request.partition, *request.fixed)]
        kinds += [request.sort.kind for request in plan.requests if request.sort is not None]
        if "B" in kinds or any(self._binary(entity) for entity in plan.asked.entities):
            return "it reads by a binary key, which generated functions do not support"
        return ""

    def _binary(self, entity: str) -> bool:
        """Return whether the key of an entity's items has a binary attribute."""
        schema = self._program.tables[self._program.entities[entity].table]
        return "B" in {kind for _, kind in filter(None, (schema.partition, schema.sort))}

    def client(self, name: str) -> Client:
        scope = self._scope
        for named in dict.fromkeys((*self._plans, *self._rules.writes)):
            self._functions[named] = scope.names.take(snake(named))
        functions = [
            QueryFunction(scope, each, self._functions[query], waits=self._waits) for query, each in self._plans.items()
        ]
        types = [*self._types(functions)]
        queries = [function.lines() for function in functions]
        builders = [*self._builders()]
        rank_constants = self._ranks(functions, queries)
        used = _names_used(*queries, *builders, *types)
        recognised = [recogniser(scope, entity) for entity in self._entities if scope.recognisers[entity] in used]
        used |= _names_used(*recognised)
        parsed = [entity for entity in self._entities if scope.keys[entity] in used]
        constants = [*self._paths(), *rank_constants, *(key_patterns(scope, entity) for entity in parsed)]
        own = [*types, *queries, *builders, *recognised]
        if self._form == "typescript":
            writes = {
                self._functions[name]: [*tables_of(scope, pattern).values()]
                for name, pattern in self._rules.writes.items()
            }
            module = Module("\n".join(map("\n".join, [*own, *constants])), writes, scope)
            text = module.text(self._about(name), self._program.guard_prefix)
            camels = {query: module.name(name) for query, name in self._functions.items()}
            return Client(text, camels, self._missing, self._rename(camels, camel))
        used = _names_used(*constants, *own)
        guard = f"_GUARD = {literal(self._program.guard_prefix)}"
        values, shared = helpers(used, guard, waits=self._waits, ranks=scope.has_ranks)
        used |= _names_used(values, shared)
        lines = [*docstring(0, *self._about(name)), "", "from __future__ import annotations", "", *imports(used)]
        blocks = [["# --- helpers ---", "", *values], *(block.split("\n") for block in shared)]
        for number, block in enumerate([*own, *blocks, [line for each in constants for line in each]]):
            assigns = number == 0 and " = " in block[0]  # isort wants one empty line between imports and an assignment
            lines += ["", *([] if assigns else [""]), *block] if block else []
        return Client("\n".join(lines) + "\n", self._functions, self._missing, self._rename(self._functions, snake))

    def _rename(self, functions: Mapping[str, str], wanted: Callable[[str], str]) -> dict[str, str]:
        """Return the functions with another name than that of what they are for, each with the reason."""
        return {
            name: f"{wanted(name)} {self._scope.purpose(snake(name)) or 'is a reserved word, or a name of the module'}"
            for name, function in functions.items()
            if function != wanted(name)
        }

    def _about(self, name: str) -> list[str]:
        paragraphs = [f"Access to the items of {name}.", ACCESSED.format(TABLES[self._form])]
        if self._form == "typescript":
            paragraphs.append(NUMBERS)
        paragraphs.append("Generated by `projections client`: change the rule file, not this module.")
        if self._missing:
            reasons = "; ".join(f"{query} ({reason})" for query, reason in self._missing.items())
            paragraphs.append(f"Without a function, because no request answers them: {reasons}.")
        return paragraphs

    @cached_property
    def _attributes(self) -> dict[str, dict[str, Attribute]]:
        """The attributes of each entity."""
        plans, writes, scope = self._plans.values(), self._rules.writes.values(), self._scope
        return {
            entity: attributes_of(scope.rules, entity, plans, writes, scope.variables[entity])
            for entity in self._entities
        }

    def _types(self, functions: Iterable[QueryFunction]) -> Iterator[list[str]]:
        for entity in self._entities:
            yield from item_type(self._scope, entity, self._attributes[entity])
            if self._form == "typescript" and entity in self._scope.inputs:
                yield input_type(self._scope, entity, self._attributes[entity])
        for function in functions:
            fields = function.result_fields(self._attributes)
            if fields is not None:
                yield typed_dict(function.type, fields, f"An item of the results of {function.name}.")

    def _paths(self) -> Iterator[list[str]]:
        for (table, index), name in self._scope.paths.items():
            schema = self._program.tables[table]
            names = [*schema.key_attributes]
            if index is not None:
                partition, sort = schema.indexes[index]
                names = [*(attribute for attribute, _ in (*partition, *sort)), *names]
            keys = Call("(", [literal(attribute) for attribute in dict.fromkeys(names)], ")")
            if len(dict.fromkeys(names)) == 1:
                keys = Call("(", [literal(names[0]) + ","], ")")
            yield statement(f"{name} = ", Call("Path(", ["None" if index is None else literal(index), keys], ")"), 0)

    def _ranks(self, functions: Iterable[QueryFunction], blocks: list[list[str]]) -> list[list[str]]:
        """Add the functions of `rank` rules, and return their constants. `functions` are those of queries."""
        scope, constants = self._scope, []
        of_queries = {function.plan.query.name: function for function in functions}
        for rule in self._program.rules.values():
            if not isinstance(rule, RankRule) or rule.into.name not in scope.key_builders:
                continue
            name, known = scope.names.take(snake(rule.name)), scope.names.take(constant(rule.name))
            self._functions.setdefault(rule.name, name)
            constants.append(rank_constant(scope, rule, known))
            listing = board_listing(self._program.model, rule.name, self._rules.queries)
            query = of_queries.get(listing.query.name) if listing is not None else None
            if listing is not None and query is not None and query.bounds is None:
                bounded = scope.names.take(f"_{query.name}_bounded")  # the same query, with a range of the score
                query = QueryFunction(scope, listing.plan, bounded, waits=self._waits, kind=query.type)
                blocks.append(query.lines())
            listed = (listing, query) if listing is not None and query is not None else None
            blocks += rank_functions(scope, rule, (name, known), listed, self._waits)
        return constants

    def _builders(self) -> Iterator[list[str]]:
        """Yield the builders of each entity, then the requests of the write patterns."""
        scope = self._scope
        for entity in self._entities:
            yield key_builder(scope, entity)
            if entity in scope.item_builders:
                typed = self._form == "typescript" and any(each.own for each in self._attributes[entity].values())
                yield item_builder(scope, entity, scope.inputs[entity] if typed else "Any")
            if entity in scope.readers:
                yield from variable_reader(scope, entity)
        for name, pattern in self._rules.writes.items():
            yield write_function(scope, pattern, self._functions[name], self._attributes, self._form)


def _names_used(*blocks: list[str]) -> set[str]:
    return {*names_in("\n".join(map("\n".join, blocks)))}

"""A module of typed functions from the queries, write patterns, ranks and entities of a rule file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from projections.inspect.client.entities import (
    Attribute,
    attributes_of,
    item_builder,
    item_type,
    key_builder,
    key_patterns,
    recogniser,
    typed_dict,
)
from projections.inspect.client.expressions import Call, Code, statement
from projections.inspect.client.naming import Names, docstring, literal, snake
from projections.inspect.client.queries import QueryFunction
from projections.inspect.client.scope import Scope, helpers, imports, names_in
from projections.inspect.client.writes import write_function
from projections.language.access.plan import Plan
from projections.language.access.planner import plan
from projections.language.ranks import RankRule
from projections.language.ruleset import RuleSet
from projections.language.syntax import an

__all__ = ["Client", "client_of", "rank_function"]


def rank_function(scope: Scope, rule: RankRule, name: str, key_name: str) -> list[str]:
    """Return the function. `key_name` is that of the function which makes the key of the board."""
    entity = rule.into.name
    own = Names(("ledger", "consistent", "key"))
    given = [(own.take(snake(each)), scope.parameter(entity, each).type) for each in scope.variables[entity]]
    parameters: list[Code] = ["ledger: Table", *(f"{each}: {kind}" for each, kind in given)]
    parameters += ["*", "consistent: bool = False"]
    scale = rule.scale
    shown = f"{scale.digits}.{scale.decimals}" if scale.decimals else str(scale.digits)
    board = f"_board({literal(f'G|{rule.name}|{rule.into.table}')}, key, {literal(shown)})"
    first = "greatest" if rule.descending else "least"
    arguments: list[Code] = ["ledger", board, str(scale.digits), str(scale.decimals)]
    arguments += [f"descending={rule.descending}", "consistent=consistent"]
    return [
        *statement(f"def {name}", Call("(", parameters, ")"), 0, " -> Ranking:"),
        *docstring(
            4,
            f"Return the ranking of {an(entity)} by the rule {rule.name}: the {first} score has rank 1.",
            "`ledger` is the ledger table. Nothing is read before a method of the ranking is called.",
        ),
        *statement("key = ", Call(f"{key_name}(", [each for each, _ in given])),
        *statement("return ", Call("Ranking(", arguments)),
    ]


ACCESSED = "Each function runs one query of the rule file. It takes a boto3 `Table` first."
AWAITED = "Each function runs one query of the rule file. It takes an aioboto3 `Table` first."


@dataclass(frozen=True)
class Client:
    """A generated module. `functions` are the names of its functions by query and write pattern.

    `missing` has the queries without a function, each with the reason.
    """

    text: str
    functions: Mapping[str, str]
    missing: Mapping[str, str]


def client_of(rules: RuleSet, name: str, *, waits: bool = False) -> Client:
    """Return the module for a rule file of this name. With `waits`, it is for aioboto3."""
    return _Module(rules, waits).client(name)


class _Module:
    def __init__(self, rules: RuleSet, waits: bool) -> None:
        self._rules = rules
        self._waits = waits
        self._program = rules.program
        plans = {name: plan(self._program.typed, query) for name, query in rules.queries.items()}
        self._missing = {name: reason for name, one in plans.items() if (reason := self._refused(one))}
        self._plans = {name: one for name, one in plans.items() if name not in self._missing}
        self._entities = [name for name in self._program.entities if not self._binary(name)]
        self._scope = Scope(self._program, self._entities)
        self._functions: dict[str, str] = {}
        rules_ = self._program.recorded.items()
        self._ranks = {
            name: rule for name, rule in rules_ if isinstance(rule, RankRule) and not self._binary(rule.into.name)
        }
        self._readers: dict[str, str] = {}

    def _refused(self, one: Plan) -> str:
        """Return why a query has no function; empty if it has one."""
        if not one.requests:
            return one.reason
        if one.verdict in ("incomplete", "none"):
            return one.reason
        kinds = [key.kind for request in one.requests for key in (*request.partition, *request.fixed)]
        kinds += [request.sort.kind for request in one.requests if request.sort is not None]
        if "B" in kinds or any(self._binary(entity) for entity in one.asked.entities):
            return "it reads by a binary key, which generated functions do not support"
        return ""

    def _binary(self, entity: str) -> bool:
        """Return whether the key of an entity's items has a binary attribute."""
        schema = self._program.tables[self._program.entities[entity].table]
        return "B" in {kind for _, kind in filter(None, (schema.partition, schema.sort))}

    def client(self, name: str) -> Client:
        scope = self._scope
        for query in self._plans:
            self._functions[query] = scope.names.take(snake(query))
        for write in self._rules.writes:
            if write not in self._functions:
                self._functions[write] = scope.names.take(snake(write))
        functions = [
            QueryFunction(scope, one, self._functions[query], waits=self._waits) for query, one in self._plans.items()
        ]
        for name_of_rule, rule in self._ranks.items():
            key = name_of_rule if name_of_rule not in self._functions else f"{name_of_rule} (rank)"
            self._functions[key] = self._readers[rule.name] = scope.names.take(snake(name_of_rule))
        types = [*self._types(functions)]
        queries = [one.lines() for one in functions]
        builders = [*self._builders()]
        used = _used(line for block in (*queries, *builders, *types) for line in (*block, ""))
        recognised = [*self._recognisers(used)]
        used |= _used(line for block in recognised for line in (*block, ""))
        parsed = [entity for entity in self._entities if scope.keys[entity] in used]
        constants = [*self._paths(), *(key_patterns(scope, entity) for entity in parsed)]
        own = [*types, *recognised, *queries, *builders]
        used = _used(line for block in (*constants, *own) for line in (*block, ""))
        guard = f"_GUARD = {literal(self._program.guard_prefix)}"
        values, shared = helpers(used, guard, waits=self._waits)
        used |= _used([*values, *shared])
        header = [*docstring(0, *self._about(name)), "", "from __future__ import annotations", "", *imports(used)]
        lines = [*header, "", *values]
        for block in [*(one.split("\n") for one in shared), [line for one in constants for line in one], *own]:
            lines += ["", "", *block] if block else []
        return Client("\n".join(lines) + "\n", self._functions, self._missing)

    def _about(self, name: str) -> list[str]:
        found = [f"Access to the items of {name}.", AWAITED if self._waits else ACCESSED]
        found.append("Generated by `projections client`: change the rule file, not this module.")
        if self._missing:
            reasons = "; ".join(f"{query} ({reason})" for query, reason in self._missing.items())
            found.append(f"Without a function, because no request answers them: {reasons}.")
        return found

    @cached_property
    def _attributes(self) -> dict[str, dict[str, Attribute]]:
        """The attributes of each entity."""
        plans, writes, scope = self._plans.values(), self._rules.writes.values(), self._scope
        return {
            entity: attributes_of(scope.document, entity, plans, writes, scope.variables[entity])
            for entity in self._entities
        }

    def _types(self, functions: Iterable[QueryFunction]) -> Iterator[list[str]]:
        for entity in self._entities:
            yield from item_type(self._scope, entity, self._attributes[entity])
        for one in functions:
            fields = one.result_fields(self._attributes)
            if fields is not None:
                yield typed_dict(one.type, fields, f"An item of the results of {one.name}.")

    def _recognisers(self, used: set[str]) -> Iterator[list[str]]:
        for entity in self._entities:
            if self._scope.recognisers[entity] in used:
                yield recogniser(self._scope, entity)

    def _paths(self) -> Iterator[list[str]]:
        for (table, index), name in self._scope.paths.items():
            schema = self._program.tables[table]
            names = [*schema.key_attributes]
            if index is not None:
                partition, sort = schema.indexes[index]
                names = [*(one for one, _ in (*partition, *sort)), *names]
            keys = Call("(", [literal(one) for one in dict.fromkeys(names)], ")")
            if len(dict.fromkeys(names)) == 1:
                keys = Call("(", [literal(names[0]) + ","], ")")
            yield statement(f"{name} = ", Call("Path(", ["None" if index is None else literal(index), keys], ")"), 0)

    def _builders(self) -> Iterator[list[str]]:
        """Yield the builders of each entity, then the requests of the write patterns."""
        scope = self._scope
        for entity in self._entities:
            key = scope.names.take(f"{snake(entity)}_key")
            yield key_builder(scope, entity, key)
            for rule in self._ranks.values():
                if rule.into.name == entity:
                    yield rank_function(scope, rule, self._readers[rule.name], key)
            if not self._program.entities[entity].owned_by_rules:
                yield item_builder(scope, entity, scope.names.take(f"{snake(entity)}_item"), key)
        for name, pattern in self._rules.writes.items():
            yield write_function(scope, pattern, self._functions[name], self._attributes)


def _used(lines: Iterable[str]) -> set[str]:
    return {*names_in("\n".join(lines))}

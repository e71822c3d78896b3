"""The scope of a generated module: the document, and the names that its entities, paths and functions have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from projections.inspect.client.conditions import Names as ItemNames
from projections.inspect.client.fragments import defined
from projections.inspect.client.keys import NUMBER, TEXT, Variable
from projections.inspect.client.naming import Names, constant, pascal, snake
from projections.language.access.numbers import is_number
from projections.language.canonical import Document
from projections.language.program import Program
from projections.language.templates import Template

__all__ = ["Scope"]


class Scope:
    """Names of the module. Every name is taken once, so that no entity or query hides another or a helper."""

    def __init__(self, program: Program, entities: list[str]) -> None:
        self.program = program
        self.document: Document = program.typed
        self.names = Names(defined())
        self.classes = {entity: self.names.take(pascal(entity)) for entity in entities}
        self.keys = {entity: self.names.take(f"_{constant(entity)}") for entity in entities}
        self.recognisers = {entity: self.names.take(f"is_{snake(entity)}") for entity in entities}
        self._paths: dict[tuple[str, str | None], str] = {}

    def path(self, table: str, index: str | None) -> str:
        """Return the constant of a table or index."""
        wanted = constant(index or "table")
        if len(self.document.tables) > 1:
            wanted = f"{constant(table)}_{wanted}"
        if (table, index) not in self._paths:
            self._paths[table, index] = self.names.take(wanted)
        return self._paths[table, index]

    @property
    def paths(self) -> Mapping[tuple[str, str | None], str]:
        """The constants of paths that functions use."""
        return self._paths

    @cached_property
    def variables(self) -> dict[str, dict[str, str]]:
        """By entity: the variables of its key in the order of the key, each with its name in Python."""
        found = {}
        for entity in self.classes:
            scope = Names(("item", "variables", "attributes", "table"))
            texts = self.document.entities[entity].key.values()
            names = dict.fromkeys(name for text in texts for name in Template.parse(text).names)
            found[entity] = {name: scope.take(snake(name)) for name in names}
        return found

    def parameter(self, entity: str, name: str) -> Variable:
        """Return the parameter of a key variable."""
        numeric = name in self.program.entities[entity].numeric
        return Variable(self.variables[entity][name], NUMBER if numeric else TEXT)

    def item_names(self, entity: str) -> ItemNames:
        """Return how names of an entity are read from `item`, and from `variables`, those in its key."""
        expressions = {}
        for name, own in self.variables[entity].items():
            expressions[name] = f'variables["{own}"]'
            for attribute, text in self.document.entities[entity].key.items():
                if text == "{" + name + "}" and name in self.program.entities[entity].numeric:
                    expressions[name] = ItemNames({}).value(attribute, sure=True)
        return ItemNames(expressions)

    def numeric(self, entities: tuple[str, ...], name: str) -> bool:
        """Return whether a name is a number on all of these entities."""
        return all(is_number(self.document, entity, name) for entity in entities)

"""The requests of write patterns: the arguments of a single write, or of TransactWriteItems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from projections.inspect.client.entities import Attribute
from projections.inspect.client.expressions import Call, Code, statement
from projections.inspect.client.naming import Names, docstring, literal, snake
from projections.inspect.client.scope import Scope, sentence
from projections.language.access.plan import Step, WritePattern

__all__ = ["write_function"]

METHODS = {"put": "put_item", "update": "update_item", "delete": "delete_item"}
REQUESTS = {"put": "Put", "update": "Update", "delete": "Delete", "check": "ConditionCheck"}
CONDITIONS = {"absent": "does not exist", "present": "exists"}


Attributes: TypeAlias = Mapping[str, Mapping[str, Attribute]]
"""The attributes of each entity."""

READ = {"str": "str", "Decimal": "int | Decimal", "bytes": "bytes", "bool": "bool"}
"""By the type of an attribute: that of a value of it that was read."""

ANY_READ = "Scalar | bool | bytes | None"


def write_function(scope: Scope, pattern: WritePattern, name: str, attributes: Attributes) -> list[str]:
    """Return the function that makes the request of a write pattern."""
    together = pattern.transaction or any(step.operation == "check" for step in pattern.steps)
    own = Names()
    tables = {scope.document.entities[step.entity].table: "" for step in pattern.steps} if together else {}
    for table in tables:
        tables[table] = own.take("table_name" if len(tables) == 1 else f"{snake(table)}_table")
    counts, seen = Counter(step.entity for step in pattern.steps), Counter[str]()
    writes = []
    for step in pattern.steps:
        seen[step.entity] += 1
        number = f"_{seen[step.entity]}" if counts[step.entity] > 1 else ""
        known = attributes[step.entity].get(step.unchanged or "")
        writes.append(_Write(scope, step, own, snake(step.entity) + number, known, alone=len(pattern.steps) == 1))
    returned: Code
    if together:
        requests: list[Code] = []
        for step, write in zip(pattern.steps, writes, strict=True):
            table = tables[scope.document.entities[step.entity].table]
            inner = Call("{", [f'"TableName": {table}', *write.arguments], "}")
            requests.append(Call("{", [_entry(REQUESTS[step.operation], inner)], "}"))
        returned, kind = Call("{", [_entry("TransactItems", Call("[", requests, "]"))], "}"), "Item"
        about = "Arguments of `transact_write_items` of the table's client, `table.meta.client`."
    elif len(writes) == 1:
        returned, kind = Call("{", writes[0].arguments, "}"), "Item"
        about = f"Arguments of the table's `{METHODS[pattern.steps[0].operation]}`."
    else:
        returned, kind = Call("[", [Call("{", write.arguments, "}") for write in writes], "]"), "list[Item]"
        methods = ", ".join(f"`{METHODS[step.operation]}`" for step in pattern.steps)
        about = f"Arguments of one request for each item, which are no transaction: {methods}."
    parameters = [*(f"{one}: str" for one in tables.values()), *(one for write in writes for one in write.parameters)]
    paragraphs = [*([sentence(pattern.about)] if pattern.about else []), about, _described(pattern)]
    return [
        *statement(f"def {name}", Call("(", parameters, ")"), 0, f" -> {kind}:"),
        *docstring(4, *paragraphs),
        *statement("return ", returned),
    ]


def _entry(name: str, value: Code) -> Code:
    """Return an entry of a dictionary."""
    return (
        Call(f"{literal(name)}: {value.before}", value.parts, value.after)
        if isinstance(value, Call)
        else (f"{literal(name)}: {value}")
    )


def _described(pattern: WritePattern) -> str:
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
    step: Step
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
            changes = {name: self._parameter(self._named(name), "Any") for name in step.set} | bumped
            terms = [f"{self._name(name)} = {self._value(name, value)}" for name, value in changes.items()]
            first.append(f'"UpdateExpression": {literal("SET " + ", ".join(terms))}')
        if condition:
            first.append(f'"ConditionExpression": {literal(condition)}')
        self.arguments = first
        if not (step.operation == "update" and not step.set):
            for name, found in (("Names", self.names), ("Values", self.values)):
                if found:
                    entries = self._entries(found)
                    self.arguments.append(_entry(f"ExpressionAttribute{name}", Call("{", entries, "}")))

    def _any_update(self, arguments: list[Code], bumped: dict[str, str]) -> None:
        """Add the arguments of an update that sets the attributes of a mapping."""
        changes = self._parameter("changes" if self.alone else f"{self.word}_changes", "Mapping[str, Any]")
        if bumped:
            changes = "{**" + changes + "".join(f", {literal(name)}: {value}" for name, value in bumped.items()) + "}"
        more: list[Code] = [Call("{", self._entries(one), "}") for one in (self.names, self.values) if one]
        arguments.append(Call("**_set(", [changes, *more], ")"))

    def _entries(self, found: dict[str, str]) -> Sequence[str]:
        values = found is self.values
        return [f"{literal(place)}: {one if values else literal(one)}" for place, one in found.items()]

    def _named(self, attribute: str) -> str:
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
            name = self._named(step.unchanged)
            self.expected = self._parameter(f"expected_{name}" if step.unchanged in step.set else name, self._type)
            self.values[":expected"] = self.expected
            return f"{self._name(step.unchanged)} = :expected"
        if step.condition is None:
            return ""
        table = self.scope.document.tables[self.scope.document.entities[step.entity].table]
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

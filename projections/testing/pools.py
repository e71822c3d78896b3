"""The values that an application writes in tests, guessed from how rules use each name.

The pools are small, so that items meet in groups, move between them and come back. For each pattern there are values
that fit and values that do not; for each pipe and expression mostly values that it takes, and some that are bad input.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import islice, product
from typing import Any, assert_never

from projections.errors import BadInput
from projections.language.arithmetic import Expression
from projections.language.entity import Entity
from projections.language.keys import ItemKey, Value, key_text
from projections.language.measures import TYPED, Measure
from projections.language.models import Aggregate, Copy, Embed, Latest, Projection, Rank, Top
from projections.language.patterns import Pattern
from projections.language.patterns.tree import (
    Affix,
    Alternative,
    AnythingBut,
    Compares,
    Either,
    Equals,
    Exists,
    Named,
    Test,
)
from projections.language.program import Program
from projections.language.syntax import root, steps
from projections.language.templates import Template
from projections.language.values import Resolver, number_text, wire

FOREIGN = "remark"
"""An attribute that no rule reads."""

_KEYS = 40
"""Keys of one entity to choose from at most."""
_VALUES = 6
_TIMES = ("2025-01-31T12:00:00Z", "2025-02-01T00:00:00Z", "2025-02-28")
WRONG: tuple[Value, ...] = ({"BOOL": True}, {"M": {"inner": {"S": "x"}}}, {"L": [{"BOOL": False}]}, {"S": "not so"})
"""Values that hardly any rule takes."""


class Kind:
    """One entity as the application writes it."""

    def __init__(self, entity: Entity, keys: Sequence[tuple[ItemKey, Mapping[str, str]]]) -> None:
        self.entity = entity
        self.keys = keys
        """The keys of its items, with the variables in each."""
        self.attributes: dict[str, list[Value]] = {}
        """Path → values that it may have; being absent is always possible."""
        self.variables: list[str] = []
        """Key variables that rules read: the application may also keep them as attributes."""
        self.index_key: dict[str, tuple[str, Callable[[Resolver], str | None]]] = {}
        """Index key attributes that the application keeps: their types, and what renders them."""


class Pools:
    """The keys and attributes that the application of a program writes, by entity."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._values: dict[str, list[Value]] = {}
        self._reads: dict[str, dict[str, None]] = {name: {} for name in program.entities}
        self._elements: dict[str, dict[str, str]] = {name: {} for name in program.entities}
        for _, rule in program.model.variants():
            self._rule(rule)
        for name, kind in program.entities.items():
            if kind.pattern is not None:
                self._pattern(name, "", kind.pattern)
        self.meeting: set[str] = set()
        """The variables by which targets are found: with few values of these, items meet."""
        self.targets: list[str] = []
        """The application's entities that rules write to."""
        self.parts: dict[str, list[str]] = {}
        """By entity of children, the names by which they reference parents beside the parents' keys."""
        self._bound()
        self.kinds = {name: self._kind(name) for name, entity in program.entities.items() if not entity.owned_by_rules}
        self.created = {name: self._kind(name) for name, entity in program.entities.items() if entity.owned_by_rules}
        """Entities that rules create, where the application may put items of its own."""
        self.matches = {
            name: list(examples(entity.pattern.conditions))
            for name, entity in program.entities.items()
            if entity.pattern is not None
        }
        """Values that fit `match` of an entity, and values that do not, by path."""

    # What rules read

    def _rule(self, rule: Projection) -> None:
        source, each = rule.source, rule.each
        variable = each.variable if each else ""
        if each:
            self._elements[source][each.path] = "/" if each.ancestors else variable
            if each.ancestors:
                self._add(each.path, [{"S": each.separator.join(parts)} for parts in ("abx", "acx", "ax", "x")])
                self._reads[source][each.path] = None
        if rule.where:
            self._pattern(source, variable, rule.where)
        for template in rule.bind.values():
            self._template(source, variable, template)
        match action := rule.action:
            case Copy():
                for value in (*action.templates.values(), *action.carried.values()):
                    self._part(source, variable, value)
            case Aggregate():
                for measure in action.set.values():
                    self._measure(source, variable, measure)
            case Rank():
                for path in (*action.by.names, *(action.sum.names if action.sum is not None else ())):
                    self._read(source, variable, path)
                    self._add(
                        path, [{"N": text} for text in ("0", "7", "-1", "12.5", "5075", "-5099", "9999", "123456")]
                    )
            case Top() | Latest():
                self._read(source, variable, action.by)
                self._add(action.by, [{"N": "1"}, {"N": "20"}, {"N": "-3.5"}, {"S": "a"}, {"S": "b"}])
                for value in action.attributes.values():
                    self._part(source, variable, value)
            case Embed():
                for value in action.attributes.values():
                    self._part(source, variable, value)
            case _:
                for part in action.parts():
                    self._part(source, variable, part.value)
        if action.makes_key:
            for pattern in self._program.entities[rule.into].patterns:
                for name in pattern.names:
                    if name not in rule.bind:
                        self._read(source, variable, name)

    def _part(self, source: str, variable: str, part: Template | Expression | Pattern) -> None:
        match part:
            case Pattern():
                self._pattern(source, variable, part)
            case Template():
                self._template(source, variable, part)
            case Expression():
                self._expression(source, variable, part)

    def _expression(self, source: str, variable: str, expression: Expression) -> None:
        for factor in expression.factors:
            self._read(source, variable, factor.path)
            if factor.path in expression.calculated:
                self._add(factor.path, [{"N": "0"}, {"N": "2.5"}, {"N": "-3"}, {"N": "40"}])

    def _read(self, source: str, variable: str, path: str) -> None:
        if variable and root(path) == variable:
            self._elements[source].setdefault(path, "")  # a part of an element, not an attribute
        else:
            self._reads[source][path] = None

    def _pattern(self, source: str, variable: str, pattern: Pattern) -> None:
        for name, values in examples(pattern.conditions):
            self._read(source, variable, name)
            self._add(name, values)

    def _template(self, source: str, variable: str, template: Template) -> None:
        for field in template.fields:
            if field.expression is not None:
                self._expression(source, variable, field.expression)
                continue
            self._read(source, variable, field.name)
            if field.pipes:
                self._add(field.name, _piped_values(field.pipes[0].name))

    def _measure(self, source: str, variable: str, measure: Measure) -> None:
        if measure.where:
            self._pattern(source, variable, measure.where)
        if not measure.expression:
            return
        if measure.by is not None:
            by = measure.by.names[0]
            self._read(source, variable, by)
            self._add(by, [{"N": "1"}, {"N": "2.5"}, {"S": "a"}, {"S": "b"}])
        ordered = measure.function in TYPED
        for factor in measure.expression.factors:
            self._read(source, variable, factor.path)
            texts: list[Value] = [{"S": "2.5"}, {"S": "7"}, {"S": "seven"}]
            numbers: list[Value] = [{"N": "1"}, {"N": "2.5"}, {"N": "-3"}, {"N": "40"}]
            self._add(factor.path, [] if factor.as_text else numbers)
            self._add(factor.path, texts if factor.from_text else [])
            self._add(factor.path, [{"S": "*"}] if factor.as_text and measure.function == "counts" else [])
            if ordered and not factor.from_text:
                self._add(factor.path, [{"S": "a"}, {"S": "b"}, {"N": "5"}])

    def _add(self, name: str, values: Iterable[Value]) -> None:
        pool = self._values.setdefault(name, [])
        pool.extend(value for value in values if value not in pool)

    def _bound(self) -> None:
        """What `bind` makes of the sources' values becomes variables of the targets, so that they meet."""
        for _, rule in self._program.model.variants():
            into = self._program.entities[rule.into]
            action = rule.action
            if isinstance(action, Embed):
                source = self._program.entities[rule.source]
                variables = [name for pattern in source.patterns for name in pattern.names]
                self.meeting.update(variables)
                if not source.owned_by_rules and source.name not in self.targets:
                    self.targets.append(source.name)
                for name, template in action.match.items():
                    several = action.as_ is not None and action.references == name
                    others = [each for each in template.names if each not in variables]
                    self._reads[source.name].update(dict.fromkeys(others))
                    if others and not several and not into.owned_by_rules:
                        self.parts.setdefault(into.name, []).append(name)
                    elif not several:
                        self.meeting.add(name)
                    self._reference(rule.into, name, template, several)
            elif action.makes_key:
                self.meeting.update(name for pattern in into.patterns for name in pattern.names)
                if not into.owned_by_rules and into.name not in self.targets:
                    self.targets.append(into.name)
            for variable, template in rule.bind.items():
                self.meeting.update(template.names)
                if template.single and not template.fields[0].pipes:
                    shared = [*self._values.get(variable, ()), *self._values.get(template.single, ())]
                    shared = shared or [{"S": known} for known in self._texts(variable, "S")]
                    self._add(variable, shared)
                    self._add(template.single, shared)
                    continue
                pools = [self._bound_values(name, template) for name in template.names]
                for texts in islice(product(*pools), 4):
                    values = dict(zip(template.names, texts, strict=True))
                    try:
                        rendered = template.render(values.get)
                    except BadInput:
                        continue
                    if rendered:
                        self._add(variable, [{"S": rendered}])

    def _bound_values(self, name: str, template: Template) -> list[Value]:
        """Values of a name in a template of `bind`: of expressions also numbers."""
        calculated = {path for field in template.fields if field.expression for path in field.expression.calculated}
        numbers = [value for value in self._values.get(name, ()) if "N" in value] if name in calculated else []
        return numbers or [{"S": text} for text in self._texts(name, "S")]

    def _reference(self, child: str, name: str, template: Template, several: bool) -> None:
        """Add the attribute by which a child references its parent, or `several` parents."""
        self._reads[child][name] = None
        pools = [self._texts(variable, "S") for variable in template.names]
        references: list[Value] = []
        for texts in islice(product(*pools), 3):
            values = {variable: wire(text) for variable, text in zip(template.names, texts, strict=True)}
            if rendered := template.render(values.get):
                references.append({"S": rendered})
        self._add(name, _several(references) if several else references)

    # What the application writes

    def _texts(self, variable: str, kind: str) -> list[str]:
        """Values of a key variable."""
        pool = [value[tag] for value in self._values.get(variable, ()) for tag in ("S", "N") if tag in value]
        if kind == "N":
            pool = [key_text("N", text) for text in pool if _numeric(text)] or ["1", "2", "30"]
        elif kind == "B":
            pool = [b64encode(f"{variable} {number}".encode()).decode() for number in (1, 2, 3)]
        else:
            separators = [table.separator for table in self._program.model.tables.values()]
            pool = [text for text in pool if text and not any(separator in text for separator in separators)]
        return (pool or [f"{variable[:1]}{number}" for number in (1, 2, 3)])[:3]

    def _kind(self, name: str) -> Kind:
        entity = self._program.entities[name]
        written = self._program.model.entities[name]
        kinds = _kinds(entity)
        names = list(kinds)
        pools = [self._texts(n, kinds[n]) for n in names]
        choices = [dict(zip(names, texts, strict=True)) for texts in product(*pools)]
        if written.id:  # never used under another key: the other variables follow from it
            first: dict[str, dict[str, str]] = {}
            stride = len(choices) // len(pools[names.index(written.id)]) + 1
            for position in range(len(choices)):
                choice = choices[position * stride % len(choices)]
                first.setdefault(choice[written.id], choice)
            choices = list(first.values())
        keys = []
        for choice in choices[:_KEYS]:
            texts = [pattern.render(choice) for pattern in entity.patterns]
            keys.append((ItemKey(entity.table, *texts), choice))
        kind = Kind(entity, keys)
        derived = self._program.derived_attributes(name)
        for path in self._reads[name]:
            top = root(path)
            if path in names:
                kind.variables.append(path)
            elif top not in derived and top not in entity.schema.key_attributes and path not in kind.attributes:
                kind.attributes[path] = self._pool(path)
        for path, variable in self._elements[name].items():
            if variable and variable != "/" and path not in derived:
                kind.attributes[path] = self._lists(name, variable)
        for partition, sort in entity.schema.indexes.values():
            own = [attribute for attribute in (*partition, *sort) if attribute[0] not in entity.schema.key_attributes]
            if any(name in written.index_key for name, _ in own):
                for attribute, tag in own:  # what is not promised is there all the same
                    template = written.index_key.get(attribute) or Template.parse("0")
                    kind.index_key[attribute] = (tag, template.compile())
        for attribute in kind.index_key:
            kind.attributes.pop(attribute, None)
        return kind

    def _pool(self, path: str) -> list[Value]:
        pool = list(self._values.get(path, ()))[: 2 * _VALUES]
        for entity in self._program.entities.values():  # the name of a key's variable: what it may be there
            if tag := _kinds(entity).get(path):
                pool += [{tag: text} for text in self._texts(path, tag) if {tag: text} not in pool]
        return pool or [{"S": "a"}, {"S": "b"}, {"N": "3"}, {"L": [{"S": "a"}]}, {"M": {"a": {"N": "1"}}}]

    def _lists(self, name: str, variable: str) -> list[Value]:
        """Lists and sets whose elements are values of an `each` variable, or maps with what is read of them."""
        parts = [path.removeprefix(variable + ".") for path in self._elements[name] if path.startswith(variable + ".")]
        if parts:
            maps: list[Value] = []
            for number in range(3):
                fields = {
                    part: pool[number % len(pool)] for part in parts if (pool := self._pool(f"{variable}.{part}"))
                }
                maps.append({"M": _nest(fields)})
            maps.append({"M": _nest({parts[0]: self._pool(f"{variable}.{parts[0]}")[0]})})
            return [{"L": maps[:1]}, {"L": maps[1:3]}, {"L": [maps[0], maps[0]]}, {"L": [maps[3]]}, {"L": []}]
        texts = self._texts(variable, "S")
        first, second, *_ = [*texts, *texts]
        return [
            {"SS": sorted({first, second})},
            {"SS": [first]},
            {"L": [{"S": second}, {"S": first}, {"S": second}]},
            {"L": [{"S": second}]},
            {"L": []},
            {"NS": ["1", "2"]},
        ]


def _kinds(entity: Entity) -> dict[str, str]:
    """The variables of an entity's key with the types of their values."""
    return {name: next(iter(entity.variable(name, ""))) for pattern in entity.patterns for name in pattern.names}


def _several(references: Sequence[Value]) -> list[Value]:
    """Lists and sets of references in several orders; the last two have elements without a parent, or of a wrong type."""
    if not references:
        return [{"L": []}]
    first, last = references[0], references[-1]
    return [
        {"L": list(references)},
        {"L": [last]},
        {"L": [*reversed(references), last]},
        {"SS": sorted(reference["S"] for reference in references)},
        {"SS": [first["S"]]},
        {"L": [first, {"N": "7"}, last]},
        {"L": []},
        {"L": [first, {"BOOL": True}]},
    ]


def _nest(fields: Mapping[str, Value]) -> dict[str, Any]:
    """Paths and values as the contents of a map."""
    image: dict[str, Any] = {}
    for path, value in fields.items():
        put_at(image, path, value)
    return image


def _numeric(text: str) -> bool:
    return text.removeprefix("-").replace(".", "", 1).isdecimal()


def examples(conditions: Iterable[Test | Either]) -> Iterator[tuple[str, list[Value]]]:
    """For each name in a pattern: values that fit one of its alternatives, and values that fit none."""
    for condition in conditions:
        if isinstance(condition, Either):
            for branch in condition.branches:
                yield from examples(branch)
            continue
        values: list[Value] = []
        for alternative in condition.alternatives:
            values += _around(alternative)
        yield condition.name, values or [{"S": "there"}]
        for name in condition.names[1:]:
            yield name, [{"N": "1"}, {"N": "2"}, {"S": "m"}]


def _around(alternative: Alternative) -> list[Value]:
    match alternative:
        case Equals(value=bool() as value):
            return [{"BOOL": value}, {"BOOL": not value}]
        case Equals(value=str() as value):
            return [{"S": value}, {"S": value + "-"}]
        case Equals(value=Decimal() as value):
            return [{"N": number_text(value)}, {"N": number_text(value + 1)}]
        case Equals():
            return [{"NULL": True}, {"S": "null"}]
        case Affix(text=text):
            word = text or "x"
            return [{"S": word}, {"S": word + "x"}, {"S": "x" + word}, {"S": "other"}]
        case Compares():
            return _compared_values(alternative)
        case AnythingBut(excluded=excluded):
            return [value for constant in excluded for value in _around(constant)] + [{"S": "anything"}]
        case Exists():
            return [{"S": "there"}]
        case _:
            assert_never(alternative)


def _piped_values(pipe: str) -> list[Value]:
    """Values that a pipe takes first, and one that it refuses."""
    match pipe:
        case "pad" | "invert":
            return [{"N": "3"}, {"N": "42"}, {"S": "7"}, {"N": "-1"}]
        case "date":
            return [*({"S": time} for time in _TIMES), {"N": "1738324800"}, {"S": "soon"}]
    return [{"S": "Ab"}, {"S": "ab"}, {"S": "cD"}]


def put_at(image: dict[str, Value], path: str, value: Value) -> None:
    """Set the value at a dotted path of an item, in maps that replace other values. A map is kept for its elements."""
    *before, last = steps(path)
    place: Any = image
    for step in before:
        if "M" not in place.get(step, {}):
            place[step] = {"M": {}}
        place = place[step]["M"]
    if "M" not in place.get(last, {}):
        place[last] = value


def _compared_values(alternative: Compares) -> list[Value]:
    """Return values that are below, at, and above what an alternative compares with."""
    values: list[Value] = []
    differences = (-1, 0, 1) if alternative.is_numeric else (0, 1, -1)
    for _, operand in alternative.bounds:
        if isinstance(operand, Named):
            values += [{"N": "2"}, {"N": "1"}, {"N": "3"}, {"S": "m"}, {"S": "a"}, {"S": "z"}]
        elif isinstance(operand, str):
            values += [{"S": text} for text in (operand, operand + "0", operand[:-1] or "!")]
        else:
            values += [{"N": number_text(operand + difference)} for difference in differences]
    return values

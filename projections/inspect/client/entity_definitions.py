"""What a module has for each entity: its attributes with their types, and builders of keys and items."""

from __future__ import annotations

import keyword
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from projections.inspect.client.expressions import (
    NUMBER,
    TEXT,
    Call,
    Code,
    Every,
    Variable,
    apply_pipes,
    at,
    condition_source,
    docstring,
    literal,
    pascal,
    statement,
    text_expression,
    value_literal,
)
from projections.inspect.client.module_scope import Scope
from projections.language.access.plan import Plan
from projections.language.attribute_types import is_number
from projections.language.facts import reads
from projections.language.kinds import EVERY
from projections.language.models import Rules
from projections.language.questions import WritePattern
from projections.language.syntax import an, root, steps
from projections.language.templates import Field, KeyPattern, Template

TYPES = {"S": "str", "N": "Decimal", "B": "bytes", "SS": "set[str]", "NS": "set[Decimal]"}


class Attribute(NamedTuple):
    """An attribute: whether all items have it, and its type. `list_of` has the attributes of each element of a list.

    The application writes its `own` attributes; rules or builders write the others.
    """

    type: str
    required: bool = False
    list_of: tuple[str, ...] = ()
    own: bool = False


def attributes_of(
    rules: Rules, entity: str, plans: Iterable[Plan], writes: Iterable[WritePattern], variables: Iterable[str]
) -> dict[str, Attribute]:
    """Return the attributes of an entity by name: keys, what marks it, what rules write, what rules and queries read."""
    declared = rules.entities[entity]
    table = rules.tables[declared.table]
    attributes = {name: Attribute(TYPES[kind], True) for name, kind in table.key}
    for name, value in declared.conditions.constants.items():
        if len(steps(name)) == 1:
            kind = {str: "str", bool: "bool", type(None): "None"}.get(type(value), "Decimal")
            attributes.setdefault(root(name), Attribute(kind, True))
    kinds = {name: kind for keys in table.indexes.values() for name, kind in keys.attributes}
    for rule in rules.projections.values():
        if rule.into == entity and rule.publishes:
            elements = rule.action.elements
            for name, result in rule.action.results(rules, rule).items():
                other = "list" if elements else "dict[str, Decimal]" if result.function == "counts" else "Any"
                kind = TYPES.get(kinds.get(name) or result.type or "", other)
                attributes.setdefault(name, Attribute(kind, list_of=elements))
    for name in declared.index_key:
        attributes.setdefault(name, Attribute(TYPES[kinds[name]]))
    unknown = [*declared.required, *_names_read(rules, entity), *_names_queried(entity, plans)]
    unknown += [name for write in writes for step in write.steps if step.entity == entity for name in step.set]
    known = {*variables, ""}
    for path in unknown:
        name = root(path)
        if name not in attributes and path not in known:
            kind = TYPES[kinds[name]] if name in kinds else "Decimal" if is_number(rules, entity, name) else "Any"
            attributes[name] = Attribute(kind, own=True)
    for name in declared.required:
        if name in attributes:
            attributes[name] = attributes[name]._replace(required=True)
    return attributes


def _names_read(rules: Rules, entity: str) -> Iterator[str]:
    """Yield the names that rules read of an entity's items."""
    yield from (name for template in rules.entities[entity].index_key.values() for name in template.names)
    for rule in rules.projections.values():
        yield from sorted(name for source, name in reads(rules, rule) if source == entity and name != EVERY)


def _names_queried(entity: str, plans: Iterable[Plan]) -> Iterator[str]:
    """Yield the names that queries need of an entity's items."""
    for plan in plans:
        query = plan.asked
        if entity in query.entities:
            yield from (field.name for field in query.by)
            yield from query.where.names
            yield from filter(None, (query.range, query.order.name if query.order else None))
            yield from query.attributes or ()


# --- types ---


def item_type(scope: Scope, entity: str, attributes: Mapping[str, Attribute]) -> list[list[str]]:
    """Return the definitions of the type of an entity's items, and of the elements of its lists."""
    types = []
    fields = {}
    for name, attribute in attributes.items():
        kind = attribute.type
        if attribute.list_of:
            element = scope.names.take(f"{scope.classes[entity]}{pascal(name)}")
            types.append(typed_dict(element, dict.fromkeys(attribute.list_of, "Any"), f"An element of {name}."))
            kind = f"list[{element}]"
        fields[name] = f"Required[{kind}]" if attribute.required else kind
    return [*types, typed_dict(scope.classes[entity], fields, f"The attributes of {entity} items that the rules name.")]


def input_type(scope: Scope, entity: str, attributes: Mapping[str, Attribute]) -> list[str]:
    """Return the type of what the builder of an entity's items takes; nothing if the rules name no attribute of it."""
    fields = {}
    for name, attribute in attributes.items():
        if attribute.own:
            kind = attribute.type.replace("Decimal", "int | Decimal")
            fields[name] = f"Required[{kind}]" if attribute.required else kind
    about = f"The attributes of {entity} items that the application writes and the rules name."
    return typed_dict(scope.inputs[entity], fields, about) if fields else []


def typed_dict(name: str, fields: Mapping[str, str], about: str) -> list[str]:
    """Return the definition of a TypedDict: a class, if its names are identifiers."""
    if all(map(_plain_field, fields)):
        lines = [f"    {field}: {kind}" for field, kind in fields.items()]
        return [f"class {name}(TypedDict, total=False):", *docstring(4, about), "", *lines]
    parts = [f"{literal(field)}: {kind}" for field, kind in fields.items()]
    body = [line for part in parts for line in statement("", part, 8, ",")]
    return [f"{name} = TypedDict(", f"    {literal(name)},", "    {", *body, "    },", "    total=False,", ")"]


def _plain_field(name: str) -> bool:
    """Return whether a name can be a field of a class as it is; two underscores before it would make it private."""
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and not name.startswith("__")


# --- recognition ---


def key_patterns(scope: Scope, entity: str) -> list[str]:
    """Return the constant with a regular expression for each key attribute."""
    declared = scope.rules.entities[entity]
    separator = scope.rules.tables[declared.table].separator
    parts: list[Code] = []
    for attribute, template in declared.key.items():
        pattern = KeyPattern(template, separator)
        expression = "".join(_expression(part, scope.variables[entity], separator) for part in pattern.parts)
        parts.append(Call(f"{literal(attribute)}: re.compile(", [_raw(expression)]))
    return statement(f"{scope.keys[entity]} = ", Call("{", parts, "}"), 0)


_SPECIAL = frozenset(r"\.^$*+?{}[]|()")


def _expression(part: str | Field, names: Mapping[str, str], separator: str) -> str:
    if isinstance(part, str):
        return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in part)
    excluded = "".join(f"\\{letter}" if letter in r"\^]-" else letter for letter in separator)
    run = "(?s:.+)" if part.star else f"[^{excluded}]+"
    return f"(?P<{names[part.name]}>{run})"


def _raw(expression: str) -> str:
    if expression.isascii() and expression.isprintable() and '"' not in expression and "\\" in expression:
        return f'r"{expression}"'
    return literal(expression)


def recogniser(scope: Scope, entity: str) -> list[str]:
    """Return the function that tells the items of an entity from others."""
    names = scope.item_names(entity)
    pattern = scope.rules.entities[entity].conditions
    conditions = [condition_source(condition, names) for condition in pattern.conditions]
    variables = f"_key_variables(item, {scope.keys[entity]})"
    first = [f"    variables = {variables}"] if names.used else []
    conditions = [f"{'variables' if names.used else variables} is not None", *conditions]
    name, kind = scope.recognisers[entity], scope.classes[entity]
    return [
        f"def {name}(item: Mapping[str, Any]) -> TypeGuard[{kind}]:",
        *docstring(4, f"Return whether an item is {an(entity)}."),
        *first,
        *statement("return ", Every(conditions)),
    ]


def variable_reader(scope: Scope, entity: str) -> Iterator[list[str]]:
    """Yield the type of the variables in the key of an entity's items, and the function that reads them."""
    name, kind = scope.readers[entity], scope.variable_types[entity]
    types = {TEXT: "Required[str]", NUMBER: "Required[Decimal]"}
    fields = {
        source: types[variable]
        for source, variable in (scope.parameter(entity, each) for each in scope.variables[entity])
    }
    yield typed_dict(kind, fields, f"The variables in the key of {an(entity)}.")
    yield [
        *signature(name, ["item: Mapping[str, Any]"], kind),
        *docstring(4, f"Return the variables in the key of {an(entity)}. Raises ValueError for another key."),
        f"    variables: {kind} = _variables_of(item, {scope.keys[entity]})",
        "    return variables",
    ]


# --- builders ---


def key_builder(scope: Scope, entity: str) -> list[str]:
    """Return the function that makes the key of an item from the variables in it."""
    declared = scope.rules.entities[entity]
    separator = scope.rules.tables[declared.table].separator
    parts = [
        f"{literal(attribute)}: {_key(scope, entity, template, separator)}"
        for attribute, template in declared.key.items()
    ]
    return [
        *signature(scope.key_builders[entity], _parameters(scope, entity), "Item"),
        *docstring(4, f"Return the key of {an(entity)}. Raises ValueError for invalid parts."),
        *statement("return ", Call("{", parts, "}")),
    ]


def _key(scope: Scope, entity: str, template: Template, separator: str) -> str:
    parts = []
    for part in template.parts:
        if isinstance(part, str):
            parts.append((True, part))
            continue
        variable = scope.parameter(entity, part.name)
        if variable.type != "str":
            return variable.source  # a number is a key of its own
        more = ", None" if part.star else "" if separator == "#" else f", {literal(separator)}"
        parts.append((False, f"_key_part({variable.source}{more})"))
    return text_expression(parts)


def _parameters(scope: Scope, entity: str) -> list[str]:
    variables = [scope.parameter(entity, name) for name in scope.variables[entity]]
    return [f"{variable.source}: {variable.type}" for variable in variables]


def signature(name: str, parameters: Sequence[Code], returns: str, begins: str = "def") -> list[str]:
    """Return the first lines of a function."""
    return statement(f"{begins} {name}", Call("(", parameters, ")"), 0, f" -> {returns}:")


def item_builder(scope: Scope, entity: str, attributes: str) -> list[str]:
    """Return the function that makes an item to put: its attributes, of this type, its keys and what marks it."""
    declared = scope.rules.entities[entity]
    own = scope.variables[entity]
    marks = {
        root(attribute): value_literal(value)
        for attribute, value in declared.conditions.constants.items()
        if len(steps(attribute)) == 1 and attribute not in own
    }
    key = f"**{scope.key_builders[entity]}({', '.join(own.values())})"
    item = Call("{", ["**attributes", key, *(f"{literal(name)}: {text}" for name, text in marks.items())], "}")
    parameters = [*_parameters(scope, entity), f"attributes: Mapping[str, {attributes}]"]
    about = f"Return {an(entity)} to put: these attributes, its key"
    about += "".join(f", {name}" for name in (*marks, *declared.index_key)) + "."
    about += f" Rules need {' and '.join(declared.required)}." if declared.required else ""
    lines = [*signature(scope.item_builders[entity], parameters, "Item"), *docstring(4, about)]
    if not declared.index_key:
        return [*lines, *statement("return ", item)]
    lines += statement("item: Item = ", item)
    for attribute, template in declared.index_key.items():
        lines += _index_key(scope, entity, attribute, template)
    return [*lines, "    return item"]


def _index_key(scope: Scope, entity: str, attribute: str, template: Template) -> list[str]:
    """Return the statements that set a key attribute of an index, if the item has the values in it."""
    table = scope.rules.tables[scope.rules.entities[entity].table]
    kinds = {name: kind for keys in table.indexes.values() for name, kind in keys.attributes}
    own = scope.variables[entity]
    needed: list[str] = []
    parts = []
    for part in template.parts:
        if isinstance(part, str):
            parts.append((True, part))
            continue
        conditions: list[str] = []
        value = scope.parameter(entity, part.name) if part.name in own else _attribute(part.name, conditions)
        text = value.source if kinds[attribute] == "N" and not part.pipes else apply_pipes(value, part.pipes).text
        if conditions and (otherwise := part.absent) is not None:
            text, conditions = f"({text} if {conditions[0]} else {literal(otherwise)})", []
        parts.append((False, text))
        needed += (condition for condition in conditions if condition not in needed)
    setting = f"item[{literal(attribute)}] = "
    if not needed:
        return statement(setting, text_expression(parts))
    return [*statement("if ", Every(needed), 4, ":"), *statement(setting, text_expression(parts), 8)]


def _attribute(name: str, needed: list[str]) -> Variable:
    if len(steps(name)) > 1:
        source = at("attributes", name)
        needed.append(f"{source} not in (None, _ABSENT)")
    else:
        source = f"attributes[{literal(root(name))}]"
        needed.append(f"attributes.get({literal(root(name))}) is not None")
    return Variable(source, "Scalar")

"""What a module has for each entity: the type of its items, how they are recognised, and builders of keys and items."""

from __future__ import annotations

import keyword
from collections.abc import Mapping

from projections.inspect.client.attributes import Attribute
from projections.inspect.client.conditions import at, value_literal, written
from projections.inspect.client.keys import Variable, joined, piped
from projections.inspect.client.layout import Call, Every, Expression, statement
from projections.inspect.client.naming import docstring, literal, pascal
from projections.inspect.client.scope import Scope
from projections.language.patterns import Pattern
from projections.language.syntax import an, root, steps
from projections.language.templates import Field, KeyPattern, Template

__all__ = ["item_builder", "item_type", "key_builder", "key_patterns", "recogniser"]


# --- types ---


def item_type(scope: Scope, entity: str, attributes: Mapping[str, Attribute]) -> list[list[str]]:
    """Return the definitions of the type of an entity's items, and of the elements of its lists."""
    found = []
    fields = {}
    for name, attribute in attributes.items():
        kind = attribute.type
        if attribute.list_of:
            element = scope.names.take(f"{scope.classes[entity]}{pascal(name)}")
            found.append(typed_dict(element, dict.fromkeys(attribute.list_of, "Any"), f"An element of {name}."))
            kind = f"list[{element}]"
        fields[name] = f"Required[{kind}]" if attribute.required else kind
    return [*found, typed_dict(scope.classes[entity], fields, f"The attributes of {entity} items that the rules name.")]


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
    declared = scope.document.entities[entity]
    separator = scope.document.tables[declared.table].separator
    parts: list[Expression] = []
    for attribute, text in declared.key.items():
        pattern = KeyPattern(Template.parse(text), separator)
        expression = "".join(_expression(part, scope.variables[entity], separator) for part in pattern.parts)
        parts.append(Call(f"{literal(attribute)}: re.compile(", [_raw(expression)]))
    return statement(f"{scope.keys[entity]} = ", Call("{", parts, "}"), 0)


_SPECIAL = frozenset(r"\.^$*+?{}[]|()")


def _expression(part: str | Field, names: Mapping[str, str], separator: str) -> str:
    if isinstance(part, str):
        return "".join(f"\\{letter}" if letter in _SPECIAL else letter for letter in part)
    run = "(?s:.+)" if part.star else "[^" + "".join(f"\\{one}" if one in r"\^]-" else one for one in separator) + "]+"
    return f"(?P<{names[part.name]}>{run})"


def _raw(expression: str) -> str:
    if expression.isascii() and expression.isprintable() and '"' not in expression and "\\" in expression:
        return f'r"{expression}"'
    return literal(expression)


def recogniser(scope: Scope, entity: str) -> list[str]:
    """Return the function that tells the items of an entity from others."""
    names = scope.item_names(entity)
    pattern = Pattern.parse(scope.document.entities[entity].match or {})
    conditions = [written(condition, names) for condition in pattern.conditions]
    if names.used:
        first = ["    variables = " + f"_variables(item, {scope.keys[entity]})"]
        conditions = ["variables is not None", *conditions]
    else:
        first = []
        conditions = [f"_variables(item, {scope.keys[entity]}) is not None", *conditions]
    name, kind = scope.recognisers[entity], scope.classes[entity]
    return [
        f"def {name}(item: Mapping[str, Any]) -> TypeGuard[{kind}]:",
        *docstring(4, f"Return whether an item is {an(entity)}."),
        *first,
        *statement("return ", Every(conditions)),
    ]


# --- builders ---


def key_builder(scope: Scope, entity: str, name: str) -> list[str]:
    """Return the function that makes the key of an item from the variables in it."""
    declared = scope.document.entities[entity]
    separator = scope.document.tables[declared.table].separator
    parts = [
        f"{literal(attribute)}: {_key(scope, entity, text, separator)}" for attribute, text in declared.key.items()
    ]
    return [
        *_signature(scope, name, _parameters(scope, entity), "Item"),
        *docstring(4, f"Return the key of {an(entity)}. Raises ValueError for invalid parts."),
        *statement("return ", Call("{", parts, "}")),
    ]


def _key(scope: Scope, entity: str, text: str, separator: str) -> str:
    template = Template.parse(text)
    parts = []
    for part in template.parts:
        if isinstance(part, str):
            parts.append((True, part))
            continue
        variable = scope.parameter(entity, part.name)
        if variable.type != "str":
            return variable.source  # a number is a key of its own
        more = ", None" if part.star else "" if separator == "#" else f", {literal(separator)}"
        parts.append((False, f"_part({variable.source}{more})"))
    return joined(parts)


def _parameters(scope: Scope, entity: str) -> list[str]:
    variables = [scope.parameter(entity, name) for name in scope.variables[entity]]
    return [f"{variable.source}: {variable.type}" for variable in variables]


def _signature(scope: Scope, name: str, parameters: list[str], returns: str) -> list[str]:
    parts: list[Expression] = [*parameters]
    return statement(f"def {name}", Call("(", parts, ")"), 0, f" -> {returns}:")


def item_builder(scope: Scope, entity: str, name: str, key_name: str) -> list[str]:
    """Return the function that makes an item to put: its attributes, its keys and what marks it."""
    declared = scope.document.entities[entity]
    own = scope.variables[entity]
    marks = {
        root(attribute): value_literal(value)
        for attribute, value in Pattern.parse(declared.match or {}).constants.items()
        if len(steps(attribute)) == 1 and attribute not in own
    }
    key = f"**{key_name}({', '.join(own.values())})"
    item = Call("{", ["**attributes", key, *(f"{literal(one)}: {text}" for one, text in marks.items())], "}")
    parameters = [*_parameters(scope, entity), "attributes: Mapping[str, Any]"]
    about = f"Return {an(entity)} to put: these attributes, its key"
    about += "".join(f", {one}" for one in (*marks, *declared.index_key)) + "."
    lines = [*_signature(scope, name, parameters, "Item"), *docstring(4, about)]
    if not declared.index_key:
        return [*lines, *statement("return ", item)]
    lines += statement("item: Item = ", item)
    for attribute, text in declared.index_key.items():
        lines += _index_key(scope, entity, attribute, text)
    return [*lines, "    return item"]


def _index_key(scope: Scope, entity: str, attribute: str, text: str) -> list[str]:
    """Return the statements that set a key attribute of an index, if the item has the values in it."""
    table = scope.document.tables[scope.document.entities[entity].table]
    kinds = {name: kind for keys in table.indexes.values() for name, kind in (*keys.partition, *keys.sort)}
    own = scope.variables[entity]
    needed: list[str] = []
    parts = []
    for part in Template.parse(text).parts:
        if isinstance(part, str):
            parts.append((True, part))
            continue
        conditions: list[str] = []
        value = scope.parameter(entity, part.name) if part.name in own else _attribute(part.name, conditions)
        text = value.source if kinds[attribute] == "N" and not part.pipes else piped(value, part.pipes).text
        if conditions and (otherwise := part.absent) is not None:
            text, conditions = f"({text} if {conditions[0]} else {literal(otherwise)})", []
        parts.append((False, text))
        needed += (one for one in conditions if one not in needed)
    setting = f"item[{literal(attribute)}] = "
    if not needed:
        return statement(setting, joined(parts))
    return [*statement("if ", Every(needed), 4, ":"), *statement(setting, joined(parts), 8)]


def _attribute(name: str, needed: list[str]) -> Variable:
    if len(steps(name)) > 1:
        value = at("attributes", name)
        condition = f"{value} not in (None, _ABSENT)"
        source = value
    else:
        condition = f"attributes.get({literal(root(name))}) is not None"
        source = f"attributes[{literal(root(name))}]"
    needed.append(condition)
    return Variable(source, "Scalar")

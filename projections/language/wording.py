"""Messages for pydantic's errors: short, with what is expected."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from projections.language.document import Rules
from projections.language.mistakes import Location, Mistake
from projections.language.shapes import shown
from projections.language.syntax import nearest, suggest

__all__ = ["known_names", "mistakes_in", "optional_names"]

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "list_type": "a list",
}


def mistakes_in(error: ValidationError, data: Any) -> list[Mistake]:
    """Return the mistakes that pydantic found in the data.

    One message reports all names that a mapping lacks. If it also has an unknown name, that is probably the same mistake:
    then one message reports both.
    """
    found: list[Mistake] = []
    details = error.errors(include_url=False)
    unknown = {detail["loc"][:-1] for detail in details if detail["type"] == "extra_forbidden"}
    missing: dict[Location, list[str]] = {}
    for detail in details:
        if detail["type"] == "missing":
            missing.setdefault(detail["loc"][:-1], []).append(str(detail["loc"][-1]))
    for detail in details:
        path: Location = detail["loc"]
        at_key = bool(path) and path[-1] == "[key]"
        path = path[:-1] if at_key else path
        context = detail.get("ctx", {})
        if "mistakes" in context:
            comma = ". Inside { }, quote a value with a comma" if _is_cut(data, path) else ""
            found += [
                Mistake((*path, *inner.path), inner.message + comma, inner.offset, inner.at_key)
                for inner in context["mistakes"]
            ]
        elif detail["type"] == "missing":
            if path[:-1] not in unknown and (names := missing.pop(path[:-1], [])):
                example = _match(data, path[1]) if path[:1] == ("projections",) and "match" in names else ""
                found.append(Mistake(path[:-1], f"needs {_listed(names)}{example}", at_key=True))
        elif detail["type"] == "extra_forbidden":
            found.append(Mistake(path, _unknown(path, data, missing.pop(path[:-1], [])), at_key=True))
        else:
            found.append(
                Mistake(path, _message(detail["type"], detail["input"], context, detail["msg"]), at_key=at_key)
            )
    return found


def _message(kind: str, value: Any, context: Mapping[str, Any], otherwise: str) -> str:
    if kind in _EXPECTED:
        quotes = " (put quotes around it)" if kind == "string_type" and isinstance(value, int | float) else ""
        return f"expected {_EXPECTED[kind]}, found {shown(value)}{quotes}"
    if kind == "literal_error":
        choices = str(context["expected"]).replace("'", "")
        near = suggest(value, choices.replace(" or ", ", ").split(", ")) if isinstance(value, str) else ""
        return f"expected {choices}, found {shown(value)}{near}"
    if kind in ("greater_than_equal", "less_than_equal"):
        bound = f"at least {context['ge']}" if "ge" in context else f"at most {context['le']}"
        return f"expected a whole number, {bound}, found {shown(value)}"
    if kind in ("too_short", "string_too_short"):
        return "is empty"
    if kind == "too_long":
        return f"expected at most {context['max_length']} entries, found {context['actual_length']}"
    if kind == "string_too_long":
        return f"expected at most {context['max_length']} characters"
    return otherwise


def _unknown(path: Location, data: Any, missing: list[str]) -> str:
    """Return the message for a name that has no correction. `missing` are required names that its mapping lacks."""
    for step in path[:-1]:
        data = data[step]
    known = known_names(path[:-1])
    near = nearest(str(path[-1]), known)
    if near in data:
        return f'unknown (did you mean "{near}"?)'
    needs = f" ({_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing)" if missing else ""
    cut = data[path[-1]] is None and any(sign in str(path[-1]) for sign in "()")
    comma = ". Inside { }, a comma ends a value that has no quotes" if cut else ""
    return f"unknown: expected {', '.join(known)}{needs}{comma}"


def _is_cut(data: Any, path: Location) -> bool:
    """Return whether a text is the part of a value before a comma in `{ }`: the next name closes its parenthesis."""
    for step in path[:-1]:
        data = (
            data.get(step)
            if isinstance(data, dict)
            else data[step]
            if isinstance(data, list) and isinstance(step, int)
            else None
        )
    if not isinstance(data, dict):
        return False
    names = list(data)
    after = names[names.index(path[-1]) + 1 :] if path[-1] in data else []
    text = data.get(path[-1])
    opened = isinstance(text, str) and text.count("(") > text.count(")")
    return opened and bool(after) and data[after[0]] is None and ")" in str(after[0])


def _match(data: Any, rule: str | int) -> str:
    """Return an example of the `match` of an embed: the variables of its parent's key. Empty if the parent is unknown."""
    entities, source = data.get("entities"), data["projections"][rule].get("from")
    parent = entities.get(source) if isinstance(entities, dict) and isinstance(source, str) else None
    key = parent.get("key") if isinstance(parent, dict) else None
    texts = [text for text in key.values() if isinstance(text, str)] if isinstance(key, dict) else []
    names = dict.fromkeys(name for text in texts for name in re.findall(r"\{(\w+)\*?\}", text))
    pairs = ", ".join(f'{name}: "{{{name}}}"' for name in names)
    return f", such as match: {{{pairs}}}" if pairs else ""


def _listed(names: list[str]) -> str:
    *first, last = (f"`{name}`" for name in names)
    return f"{', '.join(first)} and {last}" if first else last


def known_names(path: Location) -> list[str]:
    """Return the names of the model at a place of a rule file; empty if there is no model."""
    model = _model_at(path)
    return [name.removesuffix("_") for name in model.model_fields] if model else []


def optional_names(path: Location) -> list[str]:
    """Return the names that are optional."""
    model = _model_at(path)
    fields = model.model_fields.items() if model else ()
    return [name.removesuffix("_") for name, field in fields if not field.is_required()]


def _model_at(path: Location) -> type[BaseModel] | None:
    model: type[BaseModel] | None = Rules
    steps = iter(path)
    for step in steps:
        if isinstance(step, int):  # an element of a list of models
            continue
        field = next((f for n, f in model.model_fields.items() if n.removesuffix("_") == step), None) if model else None
        annotation = field.annotation if field is not None else None
        model = next(iter(_models(annotation)), None)
        if get_origin(annotation) is dict and next(steps, None) is None:  # the name of an entry
            return None
    return model


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]

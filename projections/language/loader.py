"""Load rules from a file, or report every mistake in it at once, each with its place."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from projections.errors import Problem, RulesError
from projections.language.analysis import analyse
from projections.language.forms import shown
from projections.language.including import join, source_at
from projections.language.including import text_of as text_of
from projections.language.models import ACTIONS, Rules
from projections.language.source import Source
from projections.language.syntax import Location, Mistake, dotted, join_names, nearest, no_entity, suggest


def load(path: str | Path) -> Rules:
    """Return the rules of a YAML or JSON file. Raises RulesError with all mistakes."""
    return loads(text_of(path), str(path))


def loads(text: str, file: str = "<rules>") -> Rules:
    """Return the rules of a YAML or JSON text; `file` is its name in messages. Raises RulesError with all mistakes."""
    source = source_of(text, file)
    rules, mistakes = understand(source)
    if mistakes or rules is None:
        raise RulesError(problems(mistakes, source))
    return rules


def source_of(text: str, file: str, path: str | Path | None = None) -> Source:
    """Return the data of a text with the places of its parts, and of those of the files that it includes.

    `path` is where the text is, by default `file`. Raises RulesError if a file cannot be read or is not a mapping.
    """
    return join(source_at(text, file), Path(path or file))


def check(rules: Rules, file: str = "<python>") -> Rules:
    """Return rules that were built in Python, if they are valid. Raises RulesError with all mistakes, on line 1."""
    if mistakes := analyse(rules):
        raise RulesError(problems(mistakes, Source("", file=file)))
    return rules


def understand(source: Source) -> tuple[Rules | None, list[Mistake]]:
    """Return the rules without their invalid parts, and all mistakes in them and in the text.

    Invalid parts are removed and the rest is validated again, so that one mistake does not hide others. A misspelt name
    is corrected for this.
    """
    data, rules, mistakes = _corrected(source)
    data, empty = _filled(data, ())
    mistakes += [*empty, *source.mistakes]
    if empty:
        rules = _validate(data)
    while isinstance(rules, ValidationError):
        found = mistakes_in(rules, data)
        mistakes += found
        rest = without(data, [mistake.path for mistake in found])
        if rest is None:
            return None, mistakes
        data, more = rest
        mistakes += more
        rules = _validate(data)
    return rules, mistakes + analyse(rules, mistakes)


_KINDS = {alias: kind for kind, action in ACTIONS.items() for alias in action.aliases}
"""Names that other tools give to the kinds of rules."""


_MOST_CORRECTED = 50
"""Misspelt names. The rules are validated after each correction."""


def _corrected(source: Source) -> tuple[dict[str, Any], Rules | ValidationError, list[Mistake]]:
    """Return the data with misspelt names corrected, the rules or other mistakes in it, and those of the names.

    A name is only corrected if its value is of the kind that the correct name has: another name is unknown, not misspelt.
    """
    data: dict[str, Any] = source.data
    mistakes: list[Mistake] = []
    tried: set[Location] = set()
    rules = _validate(data)
    while isinstance(rules, ValidationError) and len(tried) < _MOST_CORRECTED:
        details = rules.errors(include_url=False)
        path = next(
            (one["loc"] for one in details if one["type"] == "extra_forbidden" and one["loc"] not in tried), None
        )
        if path is None:
            break
        tried.add(path)
        meant = _meant(data, path)
        if meant is None:
            continue
        renamed = _renamed(data, path, meant)
        after = _validate(renamed)
        remaining = mistakes_in(after, renamed) if isinstance(after, ValidationError) else []
        worse = (*path[:-1], meant) in {mistake.path for mistake in remaining}
        if _is_kind(path) or not worse:
            mistakes.append(Mistake(path, f'unknown (did you mean "{meant}"?)', at_key=True))
            source.rename(path, meant)
            data, rules = renamed, after
    return data, rules, mistakes


def _validate(data: Any) -> Rules | ValidationError:
    try:
        return Rules.model_validate(data, by_alias=True, by_name=False)
    except ValidationError as error:
        return error


def _meant(data: Any, path: Location) -> str | None:
    """Return the most similar name that is not also given."""
    beside = _at(data, path[:-1])
    if _is_kind(path):
        kind = _KINDS[str(path[-1]).lower()]
        return kind if kind not in beside else None
    return nearest(str(path[-1]), [name for name in known_names(path[:-1]) if name not in beside])


def _at(data: Any, path: Location) -> Any:
    """Return the part at a place; None if there is none."""
    for step in path:
        inside = step in data if isinstance(data, dict) else isinstance(data, list) and isinstance(step, int)
        data = data[step] if inside else None
    return data


def _is_kind(path: Location) -> bool:
    """Return whether the name is one that other tools give to a kind of rule."""
    return len(path) == 3 and path[0] == "projections" and str(path[-1]).lower() in _KINDS


def _renamed(data: Any, path: Location, name: str) -> Any:
    first, *rest = path
    if not rest:
        return {(name if key == first else key): value for key, value in data.items()}
    inner = _renamed(data[first], tuple(rest), name)
    if isinstance(data, list):
        return [inner if position == first else value for position, value in enumerate(data)]
    return {**data, first: inner}


def _filled(data: Any, path: Location) -> tuple[Any, list[Mistake]]:
    """Return the data without optional parts that are empty, and these mistakes."""
    if not isinstance(data, dict) or len(path) > 3:
        return data, []
    optional = {name for name, field in _fields(path).items() if not field.is_required()}
    filled: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for name, value in data.items():
        if value is None and name in optional:
            mistakes.append(Mistake((*path, name), "is empty: give it a value, or remove it", at_key=True))
        else:
            filled[name], inner = _filled(value, (*path, name))
            mistakes += inner
    return filled, mistakes


def problems(mistakes: Iterable[Mistake], source: Source) -> list[Problem]:
    """Return the mistakes with their places, in the order of their files, each once."""
    found = {Problem(*source.place(one), dotted(one.path), one.message) for one in map(source.locate, mistakes)}
    return sorted(found, key=lambda one: (one.file, one.line, one.column, one.path, one.message))


SECTIONS = ("entities", "projections", "retired", "queries", "writes")
"""The sections of a rule file that have entries by name."""

_OPERATIONS = ("get", "find", "put", "update", "delete", "check")
"""The names in queries and writes whose values are entities."""


def without(data: dict[str, Any], broken: Iterable[Location]) -> tuple[dict[str, Any], list[Mistake]] | None:
    """Return the data without its invalid parts and the parts that need them; None if nothing useful remains.

    Removed parts are not analysed later, so unknown entities in them are reported here.
    """
    data = dict(data)
    known: Collection[str] = tuple(data["entities"]) if isinstance(data.get("entities"), dict) else ()
    lost: set[str] = set()
    mistakes: list[Mistake] = []

    def remove(section: str, name: str) -> None:
        entries = data[section]
        found = entities_of(entries[name]) if section == "projections" else entities_read(entries[name])
        if section not in ("entities", "retired"):
            for inner, entity in found:
                if entity not in known:
                    mistakes.append(no_entity(entity, known, (section, name, *inner)))
        data[section] = {other: entry for other, entry in entries.items() if other != name}

    for path in broken:
        first = str(path[0]) if path else "table"
        entries = data.get(first)
        if first in ("table", "tables") or (first == "entities" and len(path) < 2):
            return None
        if first in SECTIONS and len(path) > 1 and isinstance(entries, dict):
            if path[1] in entries:
                remove(first, str(path[1]))
                if first == "entities":
                    lost.add(str(path[1]))
        else:
            data.pop(first, None)
    if not data.get("entities"):
        return None
    for section, named in (("projections", entities_of), ("queries", entities_read), ("writes", entities_read)):
        entries = data.get(section)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if not lost.isdisjoint(entity for _, entity in named(entry)):
                remove(section, name)
    return data, mistakes


def entities_of(rule: Any) -> Iterator[tuple[Location, str]]:
    """Yield the entities that a rule names, with their places, even if the rule is invalid."""
    if not isinstance(rule, dict):
        return
    yield from _texts(rule, "from", ())
    sources = rule.get("from")
    if isinstance(sources, dict):
        yield from ((("from", name), name) for name in sources if isinstance(name, str))
    for kind, action in rule.items():
        if isinstance(action, dict) and isinstance(action.get("into"), str):
            yield (kind, "into"), action["into"]


def entities_read(entry: Any) -> Iterator[tuple[Location, str]]:
    """Yield the entities that a query or a write names, with their places, even if it is invalid."""
    if not isinstance(entry, dict):
        return
    for name in _OPERATIONS:
        yield from _texts(entry, name, ())
    steps = entry.get("items")
    for position, step in enumerate(steps if isinstance(steps, list) else ()):
        for name in _OPERATIONS if isinstance(step, dict) else ():
            yield from _texts(step, name, ("items", position))


def _texts(form: dict[str, Any], name: str, place: Location) -> Iterator[tuple[Location, str]]:
    """Yield the texts of a part that is a text or a list of texts."""
    value = form.get(name)
    if isinstance(value, str):
        yield (*place, name), value
    for position, text in enumerate(value if isinstance(value, list) else ()):
        if isinstance(text, str):
            yield (*place, name, position), text


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
        quotes = " (put quotes around it)" if kind == "string_type" and isinstance(value, int | Decimal) else ""
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
    known = known_names(path[:-1])
    near = nearest(str(path[-1]), known)
    if near in _at(data, path[:-1]):
        return f'unknown (did you mean "{near}"?)'
    needs = f" ({_listed(missing)} {'is' if len(missing) == 1 else 'are'} missing)" if missing else ""
    cut = _at(data, path) is None and any(sign in str(path[-1]) for sign in "()")
    comma = ". Inside { }, a comma ends a value that has no quotes" if cut else ""
    return f"unknown: expected {', '.join(known)}{needs}{comma}"


def _is_cut(data: Any, path: Location) -> bool:
    """Return whether a text is the part of a value before a comma in `{ }`: the next name closes its parenthesis."""
    data = _at(data, path[:-1])
    if not isinstance(data, dict):
        return False
    names = list(data)
    after = names[names.index(path[-1]) + 1 :] if path[-1] in data else []
    text = data.get(path[-1])
    opened = isinstance(text, str) and text.count("(") > text.count(")")
    return opened and bool(after) and data[after[0]] is None and ")" in str(after[0])


def _match(data: Any, rule: str | int) -> str:
    """Return an example of the `match` of an embed: the variables of its parent's key. Empty if the parent is unknown."""
    source = data["projections"][rule].get("from")
    key = _at(data, ("entities", source, "key")) if isinstance(source, str) else None
    texts = [text for text in key.values() if isinstance(text, str)] if isinstance(key, dict) else []
    names = dict.fromkeys(name for text in texts for name in re.findall(r"\{(\w+)\*?\}", text))
    pairs = ", ".join(f'{name}: "{{{name}}}"' for name in names)
    return f", such as match: {{{pairs}}}" if pairs else ""


def _listed(names: list[str]) -> str:
    return join_names([f"`{name}`" for name in names])


def known_names(path: Location) -> list[str]:
    """Return the names of the model at a place of a rule file; empty if there is no model."""
    return [
        name for name in _fields(path) if name not in ("format", "claimed")
    ]  # only the canonical document has these


def _fields(path: Location) -> dict[str, FieldInfo]:
    """Return the fields of the model at a place of a rule file, by name; none if there is no model."""
    fields = _by_name(Rules)
    steps = iter(path)
    for step in steps:
        if isinstance(step, int):  # an element of a list of models
            continue
        annotation = fields[step].annotation if step in fields else None
        if get_origin(annotation) is dict and next(steps, None) is None:  # the name of an entry
            return {}
        fields = _by_name(*_models(annotation)[:1])
    return fields


def _by_name(*models: type[BaseModel]) -> dict[str, FieldInfo]:
    return {name.removesuffix("_"): field for model in models for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in _models(argument)]

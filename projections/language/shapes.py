"""The parts of a rule that have several forms: checks of them, and functions that read them.

A check returns every mistake in a value; a reader takes a value without mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from projections.language.expressions import Measure
from projections.language.mistakes import Location, Mistake
from projections.language.patterns import Pattern
from projections.language.syntax import PATH, LanguageError, LanguageErrors
from projections.language.templates import Template
from projections.language.values import wire

__all__ = [
    "attribute_map",
    "cases",
    "check_attribute_list",
    "check_case_list",
    "check_constant",
    "check_copied",
    "check_each",
    "check_index_key",
    "check_measure",
    "check_path",
    "check_pattern",
    "check_table_key",
    "check_template",
    "index_attributes",
    "key_attributes",
    "shown",
    "syntax",
]


def shown(value: object) -> str:
    """Return a value as text for a message, as a file would have it."""
    if isinstance(value, str):
        return f'"{value[:40]}"'
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "true", False: "false"}[value]
    return "a mapping" if isinstance(value, Mapping) else "a list" if isinstance(value, list) else str(value)[:40]


def syntax(parse: Callable[[], object], path: Location = ()) -> list[Mistake]:
    """Return the mistakes that a parser of the language finds in a text or document."""
    try:
        parse()
    except LanguageErrors as errors:
        return [Mistake((*path, *error.path), error.message, error.offset) for error in errors.errors]
    except LanguageError as error:
        return [Mistake((*path, *error.path), error.message, error.offset)]
    return []


# --- texts ---


def check_template(value: Any, path: Location = ()) -> list[Mistake]:
    if not isinstance(value, str):
        return [Mistake(path, f"expected a template, found {shown(value)} (text needs quotes here)")]
    if not value:
        return [Mistake(path, "the template is empty")]
    return syntax(lambda: Template.parse(value), path)


def check_path(value: Any, path: Location = ()) -> list[Mistake]:
    if not isinstance(value, str) or not value:
        return [Mistake(path, f"expected an attribute or a path such as address.city, found {shown(value)}")]
    return (
        []
        if PATH.fullmatch(value)
        else [Mistake(path, f'"{value[:40]}" is not an attribute or a path such as address.city')]
    )


def _name(value: Any, path: Location, at_key: bool = False) -> list[Mistake]:
    if isinstance(value, str) and 0 < len(value) <= 255:
        return []
    return [Mistake(path, f"expected the name of an attribute, found {shown(value)}", at_key=at_key)]


def check_pattern(value: Any, path: Location = ()) -> list[Mistake]:
    if not isinstance(value, dict):
        return [Mistake(path, f"expected a pattern such as {{status: [published]}}, found {shown(value)}")]
    return syntax(lambda: Pattern.parse(value), path)


# --- keys ---


def _named(value: Any, path: Location, most: int) -> list[Mistake]:
    """Return mistakes in `[PK, SK]` or `{PK: S, SK: N}`."""
    if isinstance(value, list):
        names = [problem for index, name in enumerate(value) for problem in _name(name, (*path, index))]
        twice = [Mistake((*path, i), f"{n} is listed twice") for i, n in enumerate(value) if n in value[:i]]
        found = names or twice
    elif isinstance(value, dict):
        found = [problem for name in value for problem in _name(name, (*path, name), at_key=True)]
        found += [
            Mistake((*path, name), f"expected a type, S (text), N (number) or B (binary), found {shown(kind)}")
            for name, kind in value.items()
            if kind not in ("S", "N", "B")
        ]
    else:
        return [Mistake(path, f"expected attributes, as [PK, SK] or {{PK: S, SK: N}}, found {shown(value)}")]
    if not 1 <= len(value) <= most:
        return [Mistake(path, f"expected 1 to {most} attributes, found {len(value)}"), *found]
    return found


def check_table_key(value: Any, path: Location = ()) -> list[Mistake]:
    return _named(value, path, 2)


def _several(form: Any) -> bool:
    return isinstance(form, dict) and not all(isinstance(kind, str) for kind in form.values())


def check_index_key(value: Any) -> list[Mistake]:
    if not _several(value):
        return _named(value, (), 2)
    found = [
        Mistake((name,), f"unknown: an index has `partition` and `sort`, not {shown(name)}", at_key=True)
        for name in value
        if name not in ("partition", "sort")
    ]
    if "partition" not in value:
        found.append(Mistake((), "an index needs `partition`"))
    for part in ("partition", "sort"):
        found += _named(value[part], (part,), 4) if part in value else []
    return found


def key_attributes(form: list[str] | dict[str, str]) -> list[tuple[str, str]]:
    """Return (name, type) of each attribute of a key form."""
    return list(form.items()) if isinstance(form, dict) else [(name, "S") for name in form]


def index_attributes(form: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the partition and the sort attributes of an index form, each (name, type)."""
    if _several(form):
        return key_attributes(form["partition"]), key_attributes(form.get("sort", []))
    attributes = key_attributes(form)
    return attributes[:1], attributes[1:]


# --- attributes, each, cases, measures ---


def check_attribute_list(value: Any, path: Location = ()) -> list[Mistake]:
    if value in ([], {}):
        return [Mistake(path, "is empty: name at least one attribute")]
    if isinstance(value, dict):
        names = [problem for name in value for problem in _name(name, (*path, name), at_key=True)]
        return names + [problem for name, source in value.items() for problem in check_path(source, (*path, name))]
    if not isinstance(value, list):
        return [Mistake(path, f"expected a list of attributes, or a mapping target: source, found {shown(value)}")]
    found: list[Mistake] = []
    for index, name in enumerate(value):
        place = (*path, index)
        problems = check_path(name, place)
        if not problems and name in value[:index]:
            problems = [Mistake(place, f"{name} is listed twice")]
        if not problems and "." in name:
            last = name.rpartition(".")[2]
            problems = [Mistake(place, f"set the name of the target attribute with a mapping: {{{last}: {name}}}")]
        found += problems
    return found


def check_copied(value: Any) -> list[Mistake]:
    if isinstance(value, str):
        return [] if value == "all" else [Mistake((), f'expected a list, a mapping or all, found "{value[:40]}"')]
    return [] if value in ([], {}) else check_attribute_list(value)


def attribute_map(form: Any) -> dict[str, str]:
    """Return target attribute → source path of a list or a mapping."""
    return dict(form) if isinstance(form, dict) else {name: name for name in form}


def check_each(value: Any) -> list[Mistake]:
    if not isinstance(value, dict) or len(value) != 1:
        return [Mistake((), f"expected one variable and its path, as {{tag: tags}}, found {shown(value)}")]
    ((variable, path),) = value.items()
    found = (
        []
        if PATH.fullmatch(variable) and "." not in variable
        else [Mistake((variable,), "not a valid name of a variable", at_key=True)]
    )
    if not isinstance(path, dict):
        return found + check_path(path, (variable,))
    for option in path.keys() - {"ancestors", "separator"}:
        found.append(Mistake((variable, option), "unknown: expected `ancestors` or `separator`", at_key=True))
    found += check_path(path.get("ancestors"), (variable, "ancestors"))
    separator = path.get("separator", "/")
    if not isinstance(separator, str) or not separator:
        found.append(Mistake((variable, "separator"), f"expected text such as /, found {shown(separator)}"))
    return found


def check_case_list(value: Any) -> list[Mistake]:
    if isinstance(value, dict):
        return _case(value, (), where=False)
    if not isinstance(value, list) or not value:
        return [Mistake((), f"expected index keys, as {{GSI1PK: …}}, or a list of cases, found {shown(value)}")]
    found = [problem for index, case in enumerate(value) for problem in _case(case, (index,), where=True)]
    for index, case in enumerate(value[:-1]):
        if isinstance(case, dict) and "where" not in case:
            found.append(Mistake((index,), "without `where` it always matches: the cases after it never apply"))
    return found


def _case(value: Any, path: Location, where: bool) -> list[Mistake]:
    if not isinstance(value, dict):
        return [Mistake(path, f"expected index keys and a `where`, found {shown(value)}")]
    keys = {name: template for name, template in value.items() if name != "where"}
    found = [problem for name, template in keys.items() for problem in check_template(template, (*path, name))]
    if "where" in value and where:
        found += check_pattern(value["where"], (*path, "where"))
    elif "where" in value:
        found.append(Mistake((*path, "where"), "a single case has no `where`: write it beside `index`", at_key=True))
    return found if keys else [*found, Mistake(path, "sets no index key")]


def cases(form: Any) -> list[tuple[Location, dict[str, Any] | None, dict[str, str]]]:
    """Return (place, where, attribute → template) of each case of an `index`."""
    if isinstance(form, dict):
        return [((), None, form)]
    return [((i,), c.get("where"), {n: t for n, t in c.items() if n != "where"}) for i, c in enumerate(form)]


def check_measure(value: Any) -> list[Mistake]:
    if not isinstance(value, str | dict):
        return [Mistake((), f"expected a measure such as count or sum(total), found {shown(value)}")]
    return syntax(lambda: Measure.parse("", value))


def check_constant(value: Any) -> list[Mistake]:
    return syntax(lambda: Template.parse(value) if isinstance(value, str) else wire(value))

"""The parts of a rule that have several forms: checks of them, and functions that read them.

A check returns every mistake in a value; a reader takes a value without mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.contribution import ELEMENTS, MOST_ELEMENTS
from projections.language.measures import Measure
from projections.language.mistakes import Location, Mistake
from projections.language.patterns import Pattern
from projections.language.syntax import (
    BRACES,
    PATH,
    LanguageError,
    LanguageErrors,
    joined,
    key_name,
    name_of,
    quote_it,
    root,
    steps,
    suggest,
    written_path,
)
from projections.language.templates import Field, Template
from projections.language.values import wire


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


def check_names_template(value: Any, path: Location = ()) -> list[Mistake]:
    """Return mistakes in a template that cannot have expressions, because its values are also compared or looked up."""
    found = check_template(value, path)
    if not found and (field := next((one for one in Template.parse(value).fields if one.expression), None)):
        message = (
            f"{field}: there are no expressions here, because references and keys are also compared with stored values; "
            "write the name of an attribute that has the value, such as one that a `compute` rule sets"
        )
        return [Mistake(path, message)]
    return found


def check_path(value: Any, path: Location = ()) -> list[Mistake]:
    if not isinstance(value, str) or not value:
        return [Mistake(path, f"expected an attribute or a path such as address.city, found {shown(value)}")]
    return [] if PATH.fullmatch(value) else [Mistake(path, _no_path(value))]


def _no_path(value: str) -> str:
    message = f'"{value[:40]}" is not an attribute or a path such as address.city'
    if value[0] in "'\"" and ("{" in value or "}" in value):
        return BRACES
    if "{" in value or len(value) > 255:
        return message
    return f'{message}; if it is a name, write it in quotes: "{written_path(joined([value]))}"'


def in_quotes(name: str) -> str:
    """Return the mistake in the name of a whole attribute: it is in quotes, as only paths need them; else empty."""
    if len(name) > 2 and name[0] in ("'", '"') and PATH.fullmatch(name) and len(steps(name)) == 1:
        return f"the name of an attribute needs no quotes here: write {root(name)}"
    return ""


def _name(value: Any, path: Location, at_key: bool = False) -> list[Mistake]:
    if isinstance(value, str) and 0 < len(value) <= 255:
        found = in_quotes(value)
        return [Mistake(path, found, at_key=at_key)] if found else []
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
        expected = f"1 to {most} attributes" if most > 1 else "one attribute"
        return [Mistake(path, f"expected {expected}, found {len(value)}"), *found]
    return found


def check_table_key(value: Any, path: Location = ()) -> list[Mistake]:
    return _named(value, path, 2)


_PARTS = ("partition", "sort", "projection", "local")
_PROJECTIONS = ("all", "keys_only")
_TYPES = ("S", "N", "B")


def _in_parts(form: Any) -> bool:
    """Return whether an index form has `partition`, `sort`, `projection` or `local`; `{partition: S, sort: N}` is a key."""
    if not isinstance(form, dict):
        return False
    texts = [value for value in form.values() if isinstance(value, str)]
    return len(texts) < len(form) or (not form.keys().isdisjoint(_PARTS) and any(text not in _TYPES for text in texts))


def check_index_key(value: Any) -> list[Mistake]:
    if not _in_parts(value):
        return _named(value, (), 2)
    found = [
        Mistake((name,), f"unknown{suggest(str(name), _PARTS)}: an index has {', '.join(_PARTS)}", at_key=True)
        for name in value
        if name not in _PARTS
    ]
    local = value.get("local", False)
    if not isinstance(local, bool):
        found.append(Mistake(("local",), f"expected true or false, found {shown(local)}"))
    elif local:
        if "partition" in value:
            message = "a local index has the partition key of its table: remove `partition`, or remove `local`"
            found.append(Mistake(("partition",), message, at_key=True))
        if "sort" not in value:
            found.append(Mistake((), "a local index needs `sort`: the attribute that sorts its items"))
    elif "partition" not in value:
        found.append(Mistake((), "an index needs `partition`; for a local index, add `local: true`"))
    for part, most in (("partition", 4), ("sort", 1 if local is True else 4)):
        if isinstance(value.get(part), str):
            found += _name(value[part], (part,))
        elif part in value:
            found += _named(value[part], (part,), most)
    return found + (_check_projection(value["projection"]) if "projection" in value else [])


def _check_projection(value: Any) -> list[Mistake]:
    place: Location = ("projection",)
    if value == []:
        return [Mistake(place, "is empty: list at least one attribute, or write keys_only")]
    if isinstance(value, list):
        names = [problem for index, name in enumerate(value) for problem in _name(name, (*place, index))]
        return names or [Mistake((*place, i), f"{n} is listed twice") for i, n in enumerate(value) if n in value[:i]]
    if isinstance(value, str) and value in _PROJECTIONS:
        return []
    hint = suggest(value, _PROJECTIONS) if isinstance(value, str) else ""
    return [Mistake(place, f"expected all, keys_only or a list of attributes, found {shown(value)}{hint}")]


def _listed(form: Any) -> Any:
    """Return a key form in which one attribute may be a text."""
    return [form] if isinstance(form, str) else form


def key_attributes(form: list[str] | dict[str, str]) -> list[tuple[str, str]]:
    """Return (name, type) of each attribute of a key form."""
    return list(form.items()) if isinstance(form, dict) else [(name, "S") for name in form]


def index_attributes(
    table_key: list[str] | dict[str, str], form: Any
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return the partition and the sort attributes of an index form, each (name, type)."""
    if _in_parts(form):
        partition = key_attributes(table_key)[:1] if is_local(form) else key_attributes(_listed(form["partition"]))
        return partition, key_attributes(_listed(form.get("sort", [])))
    attributes = key_attributes(form)
    return attributes[:1], attributes[1:]


def is_local(form: Any) -> bool:
    """Return whether an index form is that of a local index."""
    return _in_parts(form) and form.get("local", False)


def projected(form: Any) -> str | list[str]:
    """Return what an index form projects besides keys: `all`, `keys_only`, or the attributes that it lists."""
    return form.get("projection", "all") if _in_parts(form) else "all"


# --- attributes, each, cases, measures ---


def check_attribute_list(value: Any, path: Location = ()) -> list[Mistake]:
    if value in ([], {}):
        return [Mistake(path, "is empty: name at least one attribute")]
    if isinstance(value, dict):
        names = [problem for name in value for problem in _name(name, (*path, name), at_key=True)]
        return names + [problem for name, source in value.items() for problem in _source(source, (*path, name))]
    if not isinstance(value, list):
        return [Mistake(path, f"expected a list of attributes, or a mapping target: source, found {shown(value)}")]
    found: list[Mistake] = []
    for index, name in enumerate(value):
        place = (*path, index)
        problems = check_path(name, place)
        if problems and isinstance(name, str) and not _source(name, place):
            text = f'"{name}"' if "{" in name else name.strip()
            message = f"write a mapping to name the attribute that has this value, such as {{total: {text}}}"
            problems = [Mistake(place, message)]
        if not problems and name in value[:index]:
            problems = [Mistake(place, f"{name} is listed twice")]
        if not problems and (found_in := in_quotes(root(name))):
            problems = [Mistake(place, found_in)]
        if not problems and len(steps(name_of(name))) > 1:
            last = steps(name_of(name))[-1]
            problems = [Mistake(place, f"set the name of the target attribute with a mapping: {{{last}: {name}}}")]
        found += problems
    return found


def _source(value: Any, path: Location) -> list[Mistake]:
    if not isinstance(value, str) or not value.strip():
        message = "expected an attribute, a path such as address.city, an expression or a template"
        return [Mistake(path, f"{message}, found {shown(value)}")]
    return syntax(lambda: attribute_source(value), path)


def check_copied(value: Any) -> list[Mistake]:
    if isinstance(value, str):
        return [] if value == "all" else [Mistake((), f'expected a list, a mapping or all, found "{value[:40]}"')]
    return [] if value in ([], {}) else check_attribute_list(value)


def attribute_map(form: Any) -> dict[str, str]:
    """Return target attribute → source, a path, an expression or a template, of a list or a mapping."""
    return dict(form) if isinstance(form, dict) else {root(name): name for name in form}


def source_names(form: Any) -> set[str]:
    """Return the names that the sources of attributes read."""
    return {name for text in attribute_map(form).values() for name in attribute_source(text).names}


def check_match(value: Any) -> list[Mistake]:
    """Return mistakes in `match` of an embed: the names of a child, with templates over its parent."""
    if not isinstance(value, dict) or not value:
        message = f'expected a name of the child and its value, such as {{userId: "{{userId}}"}}, found {shown(value)}'
        return [Mistake((), message)]
    found: list[Mistake] = []
    for name, text in value.items():
        if not isinstance(name, str) or key_name(name) is None:
            found.append(Mistake((name,), quote_it(str(name)), at_key=True))
        found += check_names_template(text, (name,))
    return found


def match_named(form: dict[str, str]) -> dict[str, str]:
    return {str(key_name(name)): text for name, text in form.items()}


def each_named(form: dict[str, Any]) -> dict[str, Any]:
    """Return an `each` with names instead of paths."""
    variable, path, most = each_parts(form)
    named = {**path, "ancestors": name_of(path["ancestors"])} if isinstance(path, dict) else name_of(path)
    return {variable: named, "most": most}


def each_parts(form: Mapping[str, Any]) -> tuple[str, Any, int]:
    """Return the variable of an `each`, its path or `ancestors`, and how many elements one item may have."""
    ((variable, path),) = [one for one in form.items() if one[0] != "most"]
    return variable, path, form.get("most", ELEMENTS)


def sources_named(form: Any) -> Any:
    """Return a `from` with names instead of paths."""
    if not isinstance(form, dict):
        return form
    return {
        entity: {part: each_named(one) if part == "each" else one for part, one in parts.items()}
        for entity, parts in form.items()
    }


_SOURCE_PARTS = ("where", "bind", "each")


def check_sources(value: Any) -> list[Mistake]:
    """Return mistakes in `from`: the name of an entity, a list of names, or a mapping of names to parts of the rule."""
    if not isinstance(value, dict):
        return check_entities(value)
    found = [] if value else [Mistake((), "is empty: name at least one entity")]
    for name, parts in value.items():
        if not isinstance(name, str) or not name:
            found.append(Mistake((name,), f"expected the name of an entity, found {shown(name)}", at_key=True))
        elif not isinstance(parts, dict):
            message = f"expected a mapping with {', '.join(_SOURCE_PARTS)}, or {{}}, found {shown(parts)}"
            found.append(Mistake((name,), message, at_key=parts is None))
        else:
            found += _source_parts(parts, (name,))
    return found


def _source_parts(parts: dict[Any, Any], path: Location) -> list[Mistake]:
    found: list[Mistake] = []
    for part, form in parts.items():
        place = (*path, part)
        if part not in _SOURCE_PARTS:
            hint = suggest(str(part), _SOURCE_PARTS)
            message = f"unknown{hint}: a source has {', '.join(_SOURCE_PARTS)}; the rest is the same for all sources"
            found.append(Mistake(place, message, at_key=True))
        elif part == "where":
            found += check_pattern(form, place)
        elif part == "each":
            found += [replace(one, path=(*place, *one.path)) for one in check_each(form)]
        elif not isinstance(form, dict):
            found.append(
                Mistake(place, f'expected variable → template, such as {{userId: "{{author}}"}}, found {shown(form)}')
            )
        else:
            found += [one for name, text in form.items() for one in check_template(text, (*place, name))]
    return found


def source_parts(form: Any) -> dict[str, dict[str, Any]]:
    """Return for each source of `from` the parts that it states for itself: `where`, `bind`, `each`."""
    if isinstance(form, dict):
        return form
    return {name: {} for name in (form if isinstance(form, list) else [form])}


def check_each(value: Any) -> list[Mistake]:
    if not isinstance(value, dict) or len(value.keys() - {"most"}) != 1:
        return [Mistake((), f"expected one variable and its path, such as {{tag: tags}}, found {shown(value)}")]
    variable, path, most = each_parts(value)
    found = (
        [] if _VARIABLE.fullmatch(variable) else [Mistake((variable,), "not a valid name of a variable", at_key=True)]
    )
    if type(most) is not int or not 1 <= most <= MOST_ELEMENTS:
        message = f"expected the most elements that one item may have, 1 to {MOST_ELEMENTS:,}, found {shown(most)}"
        found.append(Mistake(("most",), message))
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
        return [Mistake((), f"expected index keys, such as {{GSI1PK: …}}, or a list of cases, found {shown(value)}")]
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


def check_expression(value: Any) -> list[Mistake]:
    if not isinstance(value, str):
        return [Mistake((), f"expected an expression such as score, found {shown(value)}")]
    return syntax(lambda: Expression.parse(value))


_VARIABLE = re.compile(r"[^\W\d][\w~$@:-]*|[~$@][\w~$@:-]*")
_COMPUTED = ("value", "constant", "where")


def check_computed(value: Any) -> list[Mistake]:
    if not isinstance(value, list):
        return _computed(value, ())
    if not value:
        return [Mistake((), "is empty: add at least one case")]
    found = [problem for index, case in enumerate(value) for problem in _computed(case, (index,))]
    for index, case in enumerate(value[:-1]):
        if isinstance(case, str) or (isinstance(case, dict) and "where" not in case):
            found.append(Mistake((index,), "without `where` it always matches: the cases after it never apply"))
    return found


def _computed(value: Any, path: Location) -> list[Mistake]:
    if isinstance(value, str):
        return _template_or_expression(value, path)
    if not isinstance(value, dict):
        message = f"expected a template or an expression, found {shown(value)}; for a fixed value write {{constant: …}}"
        return [Mistake(path, message)]
    found = [
        Mistake(
            (*path, name), f"unknown{suggest(str(name), _COMPUTED)}: a case has {', '.join(_COMPUTED)}", at_key=True
        )
        for name in value
        if name not in _COMPUTED
    ]
    if ("value" in value) == ("constant" in value):
        both = "has both `value` and `constant`: remove one" if "value" in value else "add `value` or `constant`"
        found.append(Mistake(path, both))
    elif "value" in value:
        found += _template_or_expression(value["value"], (*path, "value"))
    else:
        found += syntax(lambda: wire(value["constant"]), (*path, "constant"))
    return found + (check_pattern(value["where"], (*path, "where")) if "where" in value else [])


def _template_or_expression(value: Any, path: Location) -> list[Mistake]:
    if not isinstance(value, str) or not value.strip():
        return [Mistake(path, f"expected a template or an expression, found {shown(value)}")]
    return syntax(lambda: Template.parse(value) if "{" in value else Expression.parse(value, "value"), path)


def computed_cases(form: Any) -> list[tuple[Location, dict[str, Any] | None, str, Any]]:
    """Return (place, where, kind, content) of each case of a computed attribute.

    The kind is template, expression or constant. `place` is that of the content, which is text except for a constant.
    """
    if isinstance(form, list):
        return [((i, *place), *rest) for i, case in enumerate(form) for place, *rest in computed_cases(case)]
    if isinstance(form, str):
        return [((), None, "template" if "{" in form else "expression", form)]
    if "constant" in form:
        return [(("constant",), form.get("where"), "constant", form["constant"])]
    [(place, _, kind, text)] = computed_cases(form["value"])
    return [(("value", *place), form.get("where"), kind, text)]


def computed_names(form: Any) -> set[str]:
    """Return the names that the cases of a computed attribute read, with those in their conditions."""
    found: set[str] = set()
    for _, where, kind, content in computed_cases(form):
        found.update(Pattern.parse(where).names if where else ())
        if kind != "constant":
            found.update((Template.parse(content) if kind == "template" else Expression.parse(content, "value")).names)
    return found


def check_measure(value: Any) -> list[Mistake]:
    if not isinstance(value, str | dict):
        comma = ": inside { }, a comma ends a value that has no quotes" if value is None else ""
        return [Mistake((), f"expected a measure such as count or sum(total), found {shown(value)}{comma}")]
    return syntax(lambda: Measure.parse("", value))


def check_constant(value: Any) -> list[Mistake]:
    return syntax(lambda: Template.parse(value) if isinstance(value, str) else wire(value))


# --- queries ---


def check_by(value: Any) -> list[Mistake]:
    if not isinstance(value, list) or not value:
        return [Mistake((), f"expected a list of variables and attributes, as [userId], found {shown(value)}")]
    found: list[Mistake] = []
    for position, name in enumerate(value):
        place = (position,)
        if not isinstance(name, str) or not name:
            found.append(Mistake(place, f"expected a variable or an attribute, found {shown(name)}"))
        elif name in value[:position]:
            found.append(Mistake(place, f"{name} is listed twice"))
        else:
            found += syntax(lambda text=name: by_field(text), place)  # type: ignore[misc]
    return found


def by_field(text: str) -> Field:
    """Return a name in `by` with its pipes, as `mail|lower`. Raises LanguageError."""
    try:
        parts = Template.parse("{" + text + "}").parts
    except LanguageError as error:
        raise LanguageError(error.message, max(0, (error.offset or 1) - 1)) from None
    if len(parts) != 1 or not isinstance(parts[0], Field) or parts[0].star or parts[0].expression is not None:
        raise LanguageError("expected one variable or attribute, as userId or mail|lower", 0)
    return parts[0]


def check_entities(value: Any) -> list[Mistake]:
    names = value if isinstance(value, list) else [value]
    if not names:
        return [Mistake((), "is empty: name at least one entity")]
    for position, name in enumerate(names):
        place: Location = (position,) if isinstance(value, list) else ()
        if not isinstance(name, str) or not name:
            return [Mistake(place, f"expected the name of an entity, or a list of names, found {shown(name)}")]
        if name in names[:position]:
            return [Mistake(place, f"{name} is listed twice")]
    return []


def check_condition(value: Any) -> list[Mistake]:
    """Return mistakes in the condition of a write: `absent`, `present` or `{unchanged: attribute}`."""
    if isinstance(value, dict):
        if list(value) == ["unchanged"]:
            return _name(value["unchanged"], ("unchanged",))
    elif value in ("absent", "present"):
        return []
    hint = suggest(value, ["absent", "present"]) if isinstance(value, str) else ""
    return [Mistake((), f"expected absent, present or {{unchanged: attribute}}, found {shown(value)}{hint}")]


def check_order(value: Any) -> list[Mistake]:
    if isinstance(value, str):
        name, _ = order_of(value)
        if name is None or PATH.fullmatch(value.removesuffix(" asc").removesuffix(" desc")):
            return []
    return [Mistake((), f"expected `createdAt`, `createdAt desc`, `asc` or `desc`, found {shown(value)}")]


def order_of(text: str) -> tuple[str | None, bool]:
    """Return the name that an `order` sorts by, None if it gives only a direction, and whether it is descending."""
    *names, last = text.split(" ")
    if last in ("asc", "desc"):
        return name_of(" ".join(names)) or None, last == "desc"
    return name_of(text), False

"""The types of the parts of a rule that have a syntax or several spellings.

A type checks what a rule file has, reporting every mistake with its place in the value, keeps one parsed value for all
spellings, and writes that as the canonical document has it. The canonical spelling is itself valid input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    StringConstraints,
    ValidationInfo,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import AttributeSource, attribute_source
from projections.language.contribution import ELEMENTS, MOST_ELEMENTS
from projections.language.measures import Measure
from projections.language.patterns import Pattern
from projections.language.rules import Each
from projections.language.spelling import expression_text, measure_document, source_text, template_text
from projections.language.syntax import (
    BRACES,
    PATH,
    LanguageError,
    LanguageErrors,
    Location,
    Mistake,
    duration_of,
    joined,
    key_name,
    key_text,
    name_of,
    order_of,
    quote_it,
    root,
    seconds_of,
    steps,
    suggest,
    written_path,
)
from projections.language.templates import Template, by_field
from projections.language.values import plain, wire


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


def read_pattern(value: Any) -> Pattern | None:
    """Return a pattern; None for an empty one, which every item matches."""
    return Pattern.parse(value) if value else None


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


Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Key attributes, each with its type: S, N or B."""


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The key attributes of an index, and what it projects: `all`, `keys_only`, or these attributes by name.

    A local index has the partition key of its table.
    """

    partition: Attributes
    sort: Attributes
    projection: str | tuple[str, ...] = "all"
    local: bool = False

    @property
    def attributes(self) -> Attributes:
        return (*self.partition, *self.sort)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.attributes)


def read_key(form: list[str] | dict[str, str]) -> Attributes:
    return tuple(form.items()) if isinstance(form, dict) else tuple((name, "S") for name in form)


def read_index(form: Any) -> IndexKeys:
    """Return the keys of an index. A local one has no partition key yet: its table adds it."""
    if not _in_parts(form):
        attributes = read_key(form)
        return IndexKeys(attributes[:1], attributes[1:])
    projection = form.get("projection", "all")
    return IndexKeys(
        read_key(_listed(form.get("partition", []))),
        read_key(_listed(form.get("sort", []))),
        projection if isinstance(projection, str) else tuple(sorted(projection)),
        form.get("local", False),
    )


def index_document(keys: IndexKeys, *, write: Callable[[Attributes], Any] = dict) -> dict[str, Any]:
    """Return the canonical document of an index; what is as usual is left out. `write` gives the form of attributes."""
    document: dict[str, Any] = {"local": True} if keys.local else {"partition": write(keys.partition)}
    if keys.sort:
        document["sort"] = write(keys.sort)
    if keys.projection != "all":
        document["projection"] = keys.projection if isinstance(keys.projection, str) else [*keys.projection]
    return document


def index_form(keys: IndexKeys) -> Any:
    """Return an index as short as a rule file can have it."""
    if keys.projection == "all" and not keys.local and len(keys.partition) == 1 and len(keys.sort) < 2:
        return key_form((*keys.partition, *keys.sort))
    return index_document(keys, write=key_form)


def key_form(pairs: Attributes) -> Any:
    return [name for name, _ in pairs] if all(kind == "S" for _, kind in pairs) else dict(pairs)


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


def attributes_document(attributes: Mapping[str, AttributeSource]) -> dict[str, str]:
    return {name: source_text(source) for name, source in attributes.items()}


def check_copied(value: Any) -> list[Mistake]:
    if isinstance(value, str):
        return [] if value == "all" else [Mistake((), f'expected a list, a mapping or all, found "{value[:40]}"')]
    return [] if value in ([], {}) else check_attribute_list(value)


def read_attributes(form: Any) -> dict[str, AttributeSource]:
    """Return target attribute → source of a list or a mapping."""
    texts = form if isinstance(form, dict) else {root(name): name for name in form}
    return {name: attribute_source(text) for name, text in texts.items()}


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


def each_document(each: Each) -> dict[str, Any]:
    path = written_path(each.path)
    return {
        each.variable: {"ancestors": path, "separator": each.separator} if each.ancestors else path,
        "most": each.most,
    }


@dataclass(frozen=True, slots=True)
class Source:
    """The parts of a rule that hold for the items of one source entity."""

    where: Pattern | None = None
    bind: Mapping[str, Template] = field(default_factory=dict)
    each: Each | None = None


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
            found += [one._replace(path=(*place, *one.path)) for one in check_each(form)]
        elif not isinstance(form, dict):
            found.append(
                Mistake(place, f'expected variable → template, such as {{userId: "{{author}}"}}, found {shown(form)}')
            )
        else:
            found += [one for name, text in form.items() for one in check_template(text, (*place, name))]
    return found


def read_sources(form: Any) -> dict[str, dict[str, Any]]:
    """Return for each source of `from` the parts that it states for itself: `where`, `bind`, `each`."""
    if not isinstance(form, dict):
        return {name: {} for name in (form if isinstance(form, list) else [form])}
    readers: dict[str, Callable[[Any], Any]] = {"where": read_pattern, "bind": read_templates, "each": Each.of}
    return {name: {part: readers[part](value) for part, value in parts.items()} for name, parts in form.items()}


def sources_document(sources: Mapping[str, Source]) -> dict[str, Any]:
    documents = {}
    for name, source in sources.items():
        documents[name] = document = dict[str, Any]()
        if source.where is not None:
            document["where"] = source.where.canonical
        if source.bind:
            document["bind"] = templates_document(source.bind)
        if source.each is not None:
            document["each"] = each_document(source.each)
    return documents


def read_templates(form: Mapping[str, str]) -> dict[str, Template]:
    return {name: Template.parse(text) for name, text in form.items()}


def templates_document(templates: Mapping[str, Template]) -> dict[str, str]:
    return {name: template_text(template) for name, template in templates.items()}


def check_each(value: Any) -> list[Mistake]:
    if not isinstance(value, dict) or len(value.keys() - {"most"}) != 1:
        return [Mistake((), f"expected one variable and its path, such as {{tag: tags}}, found {shown(value)}")]
    ((variable, path),) = [(name, part) for name, part in value.items() if name != "most"]
    most = value.get("most", ELEMENTS)
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


@dataclass(frozen=True, slots=True)
class Case:
    """The index keys of items that match a pattern."""

    where: Pattern | None
    set: Mapping[str, Template]


def read_cases(form: Any) -> tuple[Case, ...]:
    return tuple(
        Case(
            read_pattern(case.get("where", {})),
            read_templates({name: text for name, text in case.items() if name != "where"}),
        )
        for case in ([form] if isinstance(form, dict) else form)
    )


def cases_document(cases: tuple[Case, ...]) -> list[dict[str, Any]]:
    return [_where(case.where) | templates_document(case.set) for case in cases]


def _where(pattern: Pattern | None) -> dict[str, Any]:
    return {} if pattern is None else {"where": pattern.canonical}


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


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is neither a template nor an expression, as `plain` returns it."""

    value: Any


@dataclass(frozen=True, slots=True)
class Computed:
    """One case of a computed attribute."""

    value: Template | Expression | Constant
    where: Pattern | None = None


def _read_computed(case: str | dict[str, Any]) -> Computed:
    form = {"value": case} if isinstance(case, str) else case
    where = read_pattern(form.get("where", {}))
    if "constant" in form:
        return Computed(Constant(plain(wire(form["constant"]))), where)
    text = form["value"]
    return Computed(Template.parse(text) if "{" in text else Expression.parse(text, "value"), where)


def computed_document(cases: tuple[Computed, ...]) -> list[dict[str, Any]]:
    documents = []
    for case in cases:
        match case.value:
            case Constant(value):
                document = {"constant": value}
            case Template() as template:
                document = {"value": template_text(template)}
            case Expression() as expression:
                document = {"value": expression_text(expression)}
        documents.append(document | _where(case.where))
    return documents


def check_measure(value: Any) -> list[Mistake]:
    if not isinstance(value, str | dict):
        comma = ": inside { }, a comma ends a value that has no quotes" if value is None else ""
        return [Mistake((), f"expected a measure such as count or sum(total), found {shown(value)}{comma}")]
    return syntax(lambda: Measure.parse(value))


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


def check_duration(value: Any) -> list[Mistake]:
    if isinstance(value, str) and seconds_of(value) is not None:
        return []
    return [Mistake((), "invalid duration: write a whole number from 1 to 9999 and a unit: 30s, 5m or 1h")]


# --- types ---


def _plain(name: str) -> str:
    """Raise PydanticCustomError for a name in quotes: the attribute of that name would have the quotes in it."""
    if found := in_quotes(name):
        raise PydanticCustomError("name", "{message}", {"message": found})
    return name


def rule_error(message: str) -> PydanticCustomError:
    """Return the error that parts of a mapping do not go together."""
    return PydanticCustomError("rule", message)


AttributeName = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_plain)]


VERSION = re.compile(r"[.@][0-9]+$")
"""The end of the name of a version of a rule, or of an older definition of an entity. As the context of a validation, it
allows such names.
"""


@dataclass(frozen=True, slots=True)
class TextForm:
    """The constraint that a pattern matches a text. `words` begin the message for another text."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.with_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str, info: ValidationInfo) -> str:
        if re.fullmatch(self.pattern, VERSION.sub("", text) if info.context == VERSION else text) is None:
            raise PydanticCustomError("form", "{words}, found {found}", {"words": self.words, "found": shown(text)})
        return text


def closed(properties: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the JSON Schema of a mapping that has no other names than these."""
    return {"type": "object", "properties": properties, **more, "additionalProperties": False}


_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_PATH = {"type": "string", "minLength": 1}
_NAMES_TEMPLATE = {
    "type": "string",
    "minLength": 1,
    "description": "Literal text and `{variable}`, with pipes as in `{score|pad(8)}`.",
}
_TEMPLATE = {
    **_NAMES_TEMPLATE,
    "description": "Literal text and `{variable}`, with pipes as in `{score|pad(8)}`, or `{qty * price}`.",
}
_PATTERN = {"x-ref": "Pattern"}
_LIST = {"type": "array", "items": _NAME, "minItems": 1, "uniqueItems": True}
_TYPED = {"type": "object", "additionalProperties": {"enum": ["S", "N", "B"]}, "minProperties": 1}
_MAP = {"type": "object", "additionalProperties": _PATH}
_SEVERAL = {"anyOf": [_NAME, {**_LIST, "maxItems": 4}, {**_TYPED, "maxProperties": 4}]}
_PROJECTED = {
    "anyOf": [{"enum": ["all", "keys_only"]}, _LIST],
    "default": "all",
    "description": "The attributes of an item that the index returns, besides keys.",
}
_LOCAL = {
    "type": "boolean",
    "default": False,
    "description": "It has the partition key of the table, and sorts by one other attribute.",
}


class Form:
    """A pydantic type whose values have several spellings.

    `check` returns all mistakes of a value, each with its place in it; `read` makes the value of a spelling without
    mistakes, and `write` its canonical spelling. `schema` is the JSON Schema of all spellings.
    """

    def __init__(
        self,
        check: Callable[[Any], list[Mistake]],
        schema: dict[str, Any],
        read: Callable[[Any], Any] | None = None,
        write: Callable[[Any], Any] | None = None,
    ) -> None:
        self.check, self.schema, self.read, self.write = check, schema, read, write

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        serialization = None
        if self.write is not None:
            serialization = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(self._validated, serialization=serialization)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return self.schema

    def _validated(self, value: Any) -> Any:
        mistakes = self.check(value)
        if mistakes:
            text = "; ".join(mistake.message for mistake in mistakes)
            raise PydanticCustomError("forms", "{message}", {"message": text, "mistakes": mistakes})
        return value if self.read is None else self.read(value)


_CASE = {"type": "object", "additionalProperties": _TEMPLATE, "minProperties": 1}
_MEASURE = {"x-ref": "Measure"}

TemplateText = Annotated[Template, Form(check_template, _TEMPLATE, Template.parse, template_text)]
NamesTemplateText = Annotated[Template, Form(check_names_template, _NAMES_TEMPLATE, Template.parse, template_text)]
ConstantForm = Annotated[
    Template | Constant,
    Form(
        lambda value: syntax(lambda: Template.parse(value) if isinstance(value, str) else wire(value)),
        {"description": "Text is a template; anything else a constant."},
        lambda value: Template.parse(value) if isinstance(value, str) else Constant(plain(wire(value))),
        lambda value: template_text(value) if isinstance(value, Template) else value.value,
    ),
]
ExpressionText = Annotated[Expression, Form(check_expression, _PATH, Expression.parse, expression_text)]
PathText = Annotated[str, Form(check_path, _PATH, name_of, written_path)]
PatternForm = Annotated[Pattern | None, Form(check_pattern, _PATTERN, read_pattern, attrgetter("canonical"))]
KeyForm = Annotated[
    Attributes,
    Form(
        lambda value: _named(value, (), 2),
        {"anyOf": [{**_LIST, "maxItems": 2}, {**_TYPED, "maxProperties": 2}]},
        read_key,
        dict,
    ),
]
IndexForm = Annotated[
    IndexKeys,
    Form(
        check_index_key,
        {
            "anyOf": [
                {**_LIST, "maxItems": 2},
                {**_TYPED, "maxProperties": 2},
                closed(
                    {"partition": _SEVERAL, "sort": _SEVERAL, "projection": _PROJECTED, "local": _LOCAL},
                    anyOf=[
                        {"required": ["partition"], "properties": {"local": {"const": False}}},
                        {"required": ["sort", "local"], "properties": {"partition": False, "local": {"const": True}}},
                    ],
                ),
            ]
        },
        read_index,
        index_document,
    ),
]
AttributesForm = Annotated[
    dict[str, AttributeSource],
    Form(check_attribute_list, {"anyOf": [_LIST, _MAP]}, read_attributes, attributes_document),
]
CopyForm = Annotated[
    dict[str, AttributeSource] | Literal["all"],
    Form(
        check_copied,
        {"anyOf": [{**_LIST, "minItems": 0}, _MAP, {"const": "all"}]},
        lambda form: form if form == "all" else read_attributes(form),
        lambda attributes: attributes if attributes == "all" else attributes_document(attributes),
    ),
]
_EACH = {
    "type": "object",
    "properties": {
        "most": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_ELEMENTS,
            "default": ELEMENTS,
            "description": "How many elements one item may have; with more, it contributes nothing and is quarantined.",
        }
    },
    "anyOf": [
        {"minProperties": 1, "maxProperties": 1, "properties": {"most": False}},
        {"minProperties": 2, "maxProperties": 2, "required": ["most"]},
    ],
    "additionalProperties": {
        "anyOf": [
            _PATH,
            closed(
                {
                    "ancestors": {**_PATH, "description": "The path of a text such as /a/b/c."},
                    "separator": {**_PATH, "default": "/"},
                },
                required=["ancestors"],
            ),
        ]
    },
}
EachForm = Annotated[Each, Form(check_each, _EACH, Each.of, each_document)]
_SOURCE = {
    "type": "object",
    "description": "The `where`, `bind` and `each` of this source, which replace those of the rule.",
    "properties": {"where": _PATTERN, "bind": {"type": "object", "additionalProperties": _TEMPLATE}, "each": _EACH},
    "additionalProperties": False,
}
SourcesForm = Annotated[
    dict[str, Source],
    Form(
        check_sources,
        {
            "anyOf": [
                _NAME,
                {**_LIST, "minItems": 1},
                {"type": "object", "additionalProperties": _SOURCE, "minProperties": 1},
            ]
        },
        read_sources,
        sources_document,
    ),
]
CaseForm = Annotated[
    tuple[Case, ...],
    Form(
        check_case_list,
        {"anyOf": [_CASE, {"type": "array", "minItems": 1, "items": {**_CASE, "properties": {"where": _PATTERN}}}]},
        read_cases,
        cases_document,
    ),
]
_COMPUTED_CASE = {
    "anyOf": [
        _PATH,
        closed(
            {"value": _PATH, "constant": {}, "where": _PATTERN},
            oneOf=[{"required": ["value"]}, {"required": ["constant"]}],
        ),
    ]
}
ComputedForm = Annotated[
    tuple[Computed, ...],
    Form(
        check_computed,
        {"anyOf": [*_COMPUTED_CASE["anyOf"], {"type": "array", "minItems": 1, "items": _COMPUTED_CASE}]},
        lambda form: tuple(map(_read_computed, form if isinstance(form, list) else [form])),
        computed_document,
    ),
]
MatchForm = Annotated[
    dict[str, Template],
    Form(
        check_match,
        {"type": "object", "additionalProperties": _NAMES_TEMPLATE, "minProperties": 1},
        lambda form: {str(key_name(name)): Template.parse(text) for name, text in form.items()},
        lambda match: {key_text(name): template_text(template) for name, template in match.items()},
    ),
]
MeasureForm = Annotated[Measure, Form(check_measure, _MEASURE, Measure.parse, measure_document)]
ByForm = Annotated[list[str], Form(check_by, {"type": "array", "items": _PATH, "minItems": 1, "uniqueItems": True})]
EntitiesForm = Annotated[str | list[str], Form(check_entities, {"anyOf": [_NAME, {**_LIST, "minItems": 1}]})]
ConditionForm = Annotated[
    str | dict[str, str],
    Form(
        check_condition,
        {"anyOf": [{"enum": ["absent", "present"]}, closed({"unchanged": _NAME}, required=["unchanged"])]},
    ),
]
OrderForm = Annotated[str, Form(check_order, {"type": "string", "pattern": r"^(asc|desc|\S.*( (asc|desc))?)$"})]
Duration = Annotated[
    int, Form(check_duration, {"type": "string", "pattern": "^[1-9][0-9]{0,3}[smh]$"}, seconds_of, duration_of)
]
"""Seconds."""


class Model(BaseModel):
    """The base of all models: strict, frozen, and without unknown names."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        defer_build=True,
        alias_generator=lambda name: name.removesuffix("_"),
    )

    def _completed(self, **parts: Any) -> Self:
        """Set fields, for validators that complete what was written."""
        self.__dict__.update(parts)
        return self

"""The scope of a generated module: the rules, names, the helpers and imports that it needs, docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache, cached_property
from importlib.resources import files
from typing import NamedTuple

from projections.access.placeholders import condition_words, placeholder_reads
from projections.access.query_reads import Read
from projections.inspect.client.expressions import (
    NUMBER,
    TEXT,
    WIDTH,
    ItemNames,
    Names,
    Variable,
    constant,
    pascal,
    snake,
)
from projections.language.access.plan import Plan
from projections.language.attribute_types import is_number
from projections.language.models import Rules
from projections.language.patterns import describe
from projections.language.program import Program

IMPORTS = {
    "base64": "import base64",
    "hashlib": "import hashlib",
    "json": "import json",
    "re": "import re",
    "zlib": "import zlib",
    **dict.fromkeys(("AsyncIterator", "Callable", "Iterator", "Mapping", "Sequence"), "from collections.abc import"),
    "dataclass": "from dataclasses import",
    **dict.fromkeys(("UTC", "datetime", "timedelta"), "from datetime import"),
    **dict.fromkeys(("ROUND_CEILING", "ROUND_FLOOR", "Context", "Decimal"), "from decimal import"),
    "cached_property": "from functools import",
    "randrange": "from random import",
    **dict.fromkeys(
        ("Any", "Generic", "NotRequired", "Protocol", "Required", "TypedDict", "TypeGuard", "TypeVar"),
        "from typing import",
    ),
    "ZoneInfo": "from zoneinfo import",
}
"""By name: the statement that imports it, or its beginning."""

WITHOUT_STUBS = "import-not-found, import-untyped, unused-ignore"
"""What mypy reports without boto3 or without its stubs, and with them."""

BOTO3 = ("ConditionExpressionBuilder", "Key")


class Part(NamedTuple):
    """A helper that a module may contain. `needs` has the names in its text, `simple` tells a constant from a definition."""

    name: str
    text: str
    needs: frozenset[str]
    simple: bool = False


def parts_needed(parts: Sequence[Part], used: Iterable[str]) -> list[Part]:
    """Return the helpers that these names need, and those that they need in turn, in their order."""
    by_name = {part.name: part for part in parts}
    wanted: set[str] = set()
    todo = [name for name in used if name in by_name]
    while todo:
        name = todo.pop()
        if name not in wanted:
            wanted.add(name)
            todo += by_name[name].needs & by_name.keys()
    return [part for part in parts if part.name in wanted]


@cache
def _parts(*, ranks: bool) -> tuple[Part, ...]:
    """Return the definitions of `runtime` in their order, and with `ranks` those of `rank_runtime`."""
    names = ("runtime.py", "rank_runtime.py") if ranks else ("runtime.py",)
    source = "\n".join(files(__package__).joinpath(name).read_text(encoding="utf-8") for name in names)
    lines = source.split("\n")
    parts = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            name, simple = node.name, False
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            first, name, simple = node.lineno, node.targets[0].id, True
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, name, simple = node.lineno, node.target.id, True
        else:
            continue
        text = "\n".join(lines[first - 1 : node.end_lineno])
        parts.append(Part(name, text, names_in(text) - {name}, simple))
    return tuple(parts)


def names_in(source: str) -> frozenset[str]:
    """Return the names that a text of Python uses."""
    return frozenset(node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))


def defined_names(*, ranks: bool) -> frozenset[str]:
    """Return all names that a generated module, or one with `ranks`, may have without our giving them."""
    return frozenset([*(part.name for part in _parts(ranks=ranks)), *IMPORTS, *BOTO3])


def helpers(used: Collection[str], guard_prefix: str, *, waits: bool, ranks: bool) -> tuple[list[str], list[str]]:
    """Return the constants and the definitions that these names need. Without `waits`, they are for boto3."""
    chosen = parts_needed(_parts(ranks=ranks), used)
    texts = [(part, part.text if waits else _without_waiting(part.text)) for part in chosen]
    constants = [guard_prefix if part.name == "_GUARD" else text for part, text in texts if part.simple]
    return constants, [text for part, text in texts if not part.simple]


def _without_waiting(text: str) -> str:
    """Return the text of a helper for boto3."""
    text = re.sub(r"\b(?:async|await) ", "", text)
    text = text.replace("AsyncIterator", "Iterator").replace("__aiter__", "__iter__").replace("anext(", "next(")
    return _DEFINITION.sub(_on_one_line, text)


_DEFINITION = re.compile(r"(?m)^( *def \w+\()\n +(.*[^,])\n *(\) -> .*:)$")


def _on_one_line(match: re.Match[str]) -> str:
    joined = "".join(match.groups())
    return joined if len(joined) <= WIDTH else match[0]


def imports(used: Collection[str]) -> list[str]:
    """Return the import statements for these names, sorted."""
    modules: dict[str, list[str]] = {}
    for name, text in IMPORTS.items():
        if name in used:
            modules.setdefault(text, []).append(name)
    plain = [text for text in modules if text.startswith("import ")]
    lines = [*plain]
    for text, names in modules.items():
        if text not in plain:
            names.sort(key=lambda name: (not name.isupper(), name.lower()))
            line = f"{text} {', '.join(names)}"
            lines += [line] if len(line) <= WIDTH else [f"{text} (", *(f"    {name}," for name in names), ")"]
    boto3 = [name for name in BOTO3 if name in used]
    if boto3:
        listed = ", ".join(boto3)
        lines += ["", f"from boto3.dynamodb.conditions import {listed}  # type: ignore[{WITHOUT_STUBS}]"]
    return lines


class Scope:
    """Names of the module. Every name is taken once, so that no entity or query hides another or a helper."""

    def __init__(self, program: Program, entities: list[str]) -> None:
        self.program = program
        self.rules: Rules = program.model
        self.has_ranks = any(rule.kind == "rank" for rule in program.rules.values())
        self.names = Names(defined_names(ranks=self.has_ranks))
        self.classes = {entity: self.names.take(pascal(entity)) for entity in entities}
        self.keys = {entity: self.names.take(f"_{constant(entity)}") for entity in entities}
        self.recognisers = {entity: self.names.take(f"is_{snake(entity)}") for entity in entities}
        self.key_builders = {entity: self.names.take(f"{snake(entity)}_key") for entity in entities}
        own = [entity for entity in entities if not program.entities[entity].owned_by_rules]
        self.item_builders = {entity: self.names.take(f"{snake(entity)}_item") for entity in own}
        self.inputs = {entity: self.names.take(f"{pascal(entity)}Attributes") for entity in own}
        variable = [entity for entity in entities if self.rules.entities[entity].variables]
        self.readers = {entity: self.names.take(f"{snake(entity)}_key_variables") for entity in variable}
        self.variable_types = {entity: self.names.take(f"{pascal(entity)}KeyVariables") for entity in variable}
        self.paths: dict[tuple[str, str | None], str] = {}
        """The constants of paths that functions use."""

    def path(self, table: str, index: str | None) -> str:
        """Return the constant of a table or index."""
        wanted = constant(index or "table")
        if len(self.rules.tables) > 1:
            wanted = f"{constant(table)}_{wanted}"
        if (table, index) not in self.paths:
            self.paths[table, index] = self.names.take(wanted)
        return self.paths[table, index]

    def purpose(self, name: str) -> str:
        """Return what a function does that a module has for an entity; empty for any other name."""
        for names, purpose in (
            (self.recognisers, "recognises {} items"),
            (self.key_builders, "makes keys of {}"),
            (self.item_builders, "makes {} items"),
            (self.readers, "reads the variables in keys of {}"),
        ):
            for entity, own in names.items():
                if own == name:
                    return purpose.format(entity)
        return ""

    @cached_property
    def variables(self) -> dict[str, dict[str, str]]:
        """By entity: the variables of its key in the order of the key, each with its name in Python."""
        variables = {}
        for entity in self.classes:
            scope = Names(("item", "variables", "attributes", "table"))
            variables[entity] = {name: scope.take(snake(name)) for name in self.rules.entities[entity].variables}
        return variables

    def parameter(self, entity: str, name: str) -> Variable:
        """Return the parameter of a key variable."""
        numeric = name in self.program.entities[entity].numeric
        return Variable(self.variables[entity][name], NUMBER if numeric else TEXT)

    def item_names(self, entity: str, variables: str = "variables") -> ItemNames:
        """Return how names of an entity are read from `item`, and from `variables`, those in its key."""
        expressions = {}
        for name, own in self.variables[entity].items():
            expressions[name] = f'{variables}["{own}"]'
            for attribute, template in self.rules.entities[entity].key.items():
                if template.text == "{" + name + "}" and name in self.program.entities[entity].numeric:
                    expressions[name] = ItemNames({}).value(attribute, sure=True)
        return ItemNames(expressions)

    def numeric(self, entities: tuple[str, ...], name: str) -> bool:
        """Return whether a name is a number on all of these entities."""
        return all(is_number(self.rules, entity, name) for entity in entities)


def paragraphs(rules: Rules, plan: Plan) -> list[str]:
    """Return the paragraphs of a docstring."""
    query = plan.query
    texts = [sentence(query.about or _question(plan))]
    number = f"{query.id}. " if query.id else ""
    reads = placeholder_reads(plan)
    requests = " ".join(dict.fromkeys(f"{_where(plan, read)}: {condition_words(read)}." for read in reads))
    texts.append(number + requests + (f" {sentence(plan.reason)}" if plan.reason else ""))
    texts.append(" ".join(_freshness(rules, plan)))
    if query.limit is not None:
        texts.append(f"`page` returns at most {query.limit} items, unless its `limit` is another number.")
    if plan.assumes:
        texts.append(f"Assumes that {'; '.join(plan.assumes)}.")
    return texts


def sentence(text: str) -> str:
    """Return a text as a sentence."""
    return f"{text[:1].upper()}{text[1:]}" + ("" if text.endswith((".", "?", "!")) else ".")


def _question(plan: Plan) -> str:
    query = plan.query
    words = f"the {query.entities[0]}" if query.get else f"{' and '.join(query.entities)} items"
    if query.by:
        words += f" with the given {' and '.join(query.parameters)}"
    return words + (f" of which {describe(query.where)}" if query.where.conditions else "")


def _where(plan: Plan, read: Read) -> str:
    return f"{'GetItem' if read.get and plan.query.get else 'Query'} of {read.index or 'the table'}"


def _freshness(rules: Rules, plan: Plan) -> Iterator[str]:
    if plan.copy is not None:
        yield f"Returns copies, which rule {plan.copy} updates after their sources."
    if plan.rule is not None:
        yield f"Rule {plan.rule} writes the index keys, after the items."
    tables = {rules.entities[entity].table for entity in plan.asked.entities}
    indexes = dict.fromkeys(request.index for request in plan.requests if request.index is not None)
    globals_ = [name for name in indexes if not any(rules.tables[table].indexes[name].local for table in tables)]
    if globals_:
        yield f"{' and '.join(globals_)} may lag behind the table."
    elif plan.asked.consistent:
        yield "The read is strongly consistent."
    else:
        yield "The read is eventually consistent."

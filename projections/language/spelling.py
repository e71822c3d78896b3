"""The canonical spelling of templates, expressions and measures: one text for each meaning.

Rules that differ only in how they are written have one document, so they have one fingerprint. In templates, arguments of
pipes have quotes only where they need them, and there are no spaces around names and pipes. In expressions, also in
templates, there are spaces around operators and after commas, and only the parentheses and quotes that are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from projections.language.arithmetic import Constant, Expression, Factor, Node, Operation
from projections.language.attribute_sources import AttributeSource
from projections.language.measures import Measure
from projections.language.pipes import Pipe
from projections.language.syntax import written_path
from projections.language.templates import Field, Template
from projections.language.values import number_text

_BARE = re.compile(r"""[^,()'"\s](?:[^,()'"]*[^,()'"\s])?""")
"""An argument of a pipe that needs no quotes."""


def measure_document(measure: Measure) -> dict[str, Any]:
    """Return the canonical document of a measure: its long form, such as `{"sum": "total", "where": {…}}`."""
    document: dict[str, Any] = {
        measure.function: True if measure.expression is None else expression_text(measure.expression)
    }
    if measure.digits is not None:
        document["round"] = measure.digits
    if measure.by is not None:
        document["by"] = expression_text(measure.by)
    if measure.where is not None:
        document["where"] = measure.where.canonical
    return document


def template_text(template: Template) -> str:
    """Return the canonical text of a template."""
    return "".join(_text(part) if isinstance(part, str) else _field(part) for part in template.parts)


def _field(field: Field) -> str:
    name = written_path(field.name) if field.expression is None else _written(_folded(field.expression.node), 0)
    return "{" + "|".join([name + "*" * field.star, *map(_pipe, field.pipes)]) + "}"


def _pipe(pipe: Pipe) -> str:
    arguments: Iterable[str] = pipe.arguments
    if pipe.name == "date":
        arguments = [one for one in pipe.arguments if one not in ("UTC", "Etc/UTC")]
    elif pipe.arguments and pipe.name != "default":
        arguments = [str(int(number)) for number in pipe.arguments]
    written = ", ".join(text if _BARE.fullmatch(text) else _quoted(text) for text in arguments)
    return f"{pipe.name}({written})" if written else pipe.name


def expression_text(expression: Expression) -> str:
    """Return the canonical text of an expression."""
    return _written(_folded(expression.node), 0)


def source_text(source: AttributeSource) -> str:
    """Return the canonical text of the source of an attribute."""
    if isinstance(source, Template):
        return template_text(source)
    return written_path(source.path) if source.path is not None else expression_text(source)


_BINDING = {"+": 1, "-": 1, "*": 2, "/": 2, "negate": 3}
"""How closely operators bind their operands."""


def _folded(node: Node) -> Node:
    """Return a tree in which `-` before a number is part of the number."""
    if not isinstance(node, Operation):
        return node
    inner = tuple(map(_folded, node.inner))
    if node.name == "negate" and isinstance(inner[0], Constant) and isinstance(inner[0].value, Decimal):
        return Constant(-inner[0].value)
    return Operation(node.name, inner, node.places)


def _written(node: Node, around: int) -> str:
    """Return the text of a tree. It is in parentheses if the operator around it binds more closely."""
    if isinstance(node, Constant):
        return number_text(node.value) if isinstance(node.value, Decimal) else _quoted(node.value)
    if isinstance(node, Factor):
        path = path_text(node.path)
        return f"number({path})" if node.from_text else f"text({path})" if node.as_text else path
    own = _BINDING.get(node.name)
    if own is None:
        return f"{node.name}({', '.join(_arguments(node))})"
    if node.name == "negate":
        text = "-" + _written(node.inner[0], own)
    else:
        left, right = node.inner
        text = f"{_written(left, own)} {node.name} {_written(right, own + 1)}"
    return f"({text})" if own < around else text


def _arguments(node: Operation) -> Iterable[str]:
    for one in node.inner:
        text = _written(one, 0)
        in_quotes = not isinstance(one, Constant) and text[0] in "'\""
        yield f"({text})" if node.name == "coalesce" and in_quotes else text  # without parentheses, it would be a text
    if node.name == "round":
        yield str(node.places)


def path_text(path: str) -> str:
    """Return a path as an expression has it: in quotes where it contains a dash or other signs."""
    return written_path(path, dashes=False)


def _quoted(text: str) -> str:
    return f'"{text}"' if "'" in text else f"'{text}'"


def _text(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")

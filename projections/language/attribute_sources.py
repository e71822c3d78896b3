"""Sources of attributes: what a copy, an embed, a list or the first item sets an attribute to.

A text with `{` is a template, any other a path or an expression. A path has the value itself, of any type; a template has
text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from projections.errors import BadInput
from projections.language.arithmetic import Expression, Factor
from projections.language.syntax import PATH, name_of
from projections.language.templates import Template
from projections.language.values import Resolver, Value

AttributeSource: TypeAlias = Expression | Template


def attribute_source(text: str) -> AttributeSource:
    """Parse the source of an attribute: a template, a path (also one with a dash), or an expression.

    Raises LanguageError.
    """
    if "{" in text:
        return Template.parse(text)
    return Expression(text, Factor(name_of(text))) if PATH.fullmatch(text) else Expression.parse(text, "attribute")


Pick: TypeAlias = Callable[[Resolver], dict[str, Value]]
"""Returns those attributes that have a value."""


def pick(sources: Mapping[str, str]) -> Pick:
    """Return a function for attributes, from the source of each.

    A template or an expression with wrong input has no value, as in `compute`.
    """
    parsed = [(name, attribute_source(text)) for name, text in sources.items()]
    paths = [(name, source.path) for name, source in parsed if source.path is not None]
    if len(paths) == len(parsed):
        return lambda resolve: {name: value for name, path in paths if (value := resolve(path)) is not None}
    parts = [(name, source.path, source.compile_value()) for name, source in parsed]

    def evaluate(resolve: Resolver) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for name, path, compute in parts:
            try:
                value = compute(resolve)
            except BadInput:
                if path is not None:
                    raise
                continue
            if value is not None:
                found[name] = value
        return found

    return evaluate

"""Lines and cells in words: names as code, texts with code between backticks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from projections.inspect.design.blocks import Cell, Code, Line, Paragraph, Span, line
from projections.language.canonical import Attributes as KeyAttributes

__all__ = ["after", "cell", "codes", "distinct", "line_of", "listed", "prose", "template", "typed"]


def prose(text: str) -> Paragraph:
    return Paragraph(line_of(text))


def line_of(text: str) -> Line:
    """Return a text with the parts between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return (text,)
    return line(*(Code(part) if number % 2 else part for number, part in enumerate(parts) if part))


def cell(*spans: Span) -> Cell:
    return (line(*spans),)


def codes(names: Iterable[str]) -> Cell:
    return (listed(names),)


def listed(names: Iterable[str], between: str = ", ") -> Line:
    """Return names as code, with commas between them."""
    spans: list[Span] = []
    for name in names:
        spans += [between, Code(name)]
    return tuple(spans[1:])


def template(attribute: str, text: str) -> Line:
    return (Code(attribute), " = ", Code(text))


def typed(attributes: KeyAttributes) -> Cell:
    return tuple(line(Code(name), f" ({kind})") for name, kind in attributes)


def distinct(spans: Iterable[Span]) -> Cell:
    return tuple((span,) for span in dict.fromkeys(spans))


def after(rules: Sequence[str]) -> Line:
    """Return how far an attribute is behind the application's write."""
    if not rules:
        return ("with the write",)
    return line(f"after {len(rules)} {'rule' if len(rules) == 1 else 'rules'}: ", *listed(rules, " → "))

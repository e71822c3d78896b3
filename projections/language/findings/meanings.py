"""Values that are probably meant as something else: templates that look like calculations, and text in calculations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from projections.language.arithmetic import OPERATIONS, Expression
from projections.language.findings.conditions import BOOLEANS, boolean
from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import READ_AS_WRITTEN
from projections.language.findings.reads import Computes, texts
from projections.language.syntax import LanguageError, name_of

__all__ = ["meanings"]

_FIELD = re.compile(r"\{([^{}|]*)\}")
_BETWEEN = re.compile(rf"(?=.*(?:\*|\s\+\s))(?:{'|'.join(OPERATIONS)}|\0|[\s().,\d*/+-])+")
_OPERAND = re.compile(r"""[-+*/]\s*('[^']+'|"[^"]+")|('[^']+'|"[^"]+")\s*[-+*/]""")


def meanings(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about values that rules make, rule by rule."""
    for name, rule in facts.projections.items():
        for text, place in texts(rule):
            if place[0] in ("compute", "copy", "latest", "top", "embed") and _calculates(text):
                yield Remark(
                    READ_AS_WRITTEN,
                    ("projections", name, *place),
                    f'"{text}" is a template: its value is the text with the values in it, and not a calculation',
                    f"write the calculation without braces: {_FIELD.sub(lambda found: found[1], text)}",
                )
        for attribute, value in (rule.copy_.values if rule.copy_ is not None else {}).items():
            if isinstance(value, str) and value.lower() in BOOLEANS:
                yield boolean(value, ("projections", name, "copy", "values", attribute))
    for one in facts.expressions:
        yield from _texts_in_calculation(one)


def _calculates(text: str) -> bool:
    """Return whether a template would be a calculation without its braces."""
    if _BETWEEN.fullmatch(_FIELD.sub("\0", text)) is None:
        return False
    try:
        Expression.parse(_FIELD.sub(lambda found: found[1], text), "value")
    except LanguageError:
        return False
    return True


def _texts_in_calculation(one: Computes) -> Iterator[Remark]:
    """Yield a remark for text in quotes that is added: it is read as the name of an attribute."""
    for found in _OPERAND.finditer(one.expression.text):
        quoted = found[1] or found[2]
        content = quoted[1:-1]
        if name_of(quoted) in one.expression.calculated and (content.isidentifier() or not re.search(r"\w", content)):
            yield Remark(
                READ_AS_WRITTEN,
                one.place,
                f"{quoted} is the name of an attribute here, and not text: + adds numbers",
                f'to join texts, write a template, such as "{{first}}{content}{{second}}"; if it is an attribute'
                + (f", write {content} without quotes" if content.isidentifier() else ", accept the finding"),
                max(one.text.find(quoted), 0),
            )
            return

"""Values that are probably meant as something else: templates that look like calculations, and text in calculations."""

from __future__ import annotations

import re
from collections.abc import Iterator

from projections.language.arithmetic import OPERATIONS, Expression
from projections.language.findings.conditions import BOOLEANS, boolean
from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import ONCE_AND_PUTS, READ_AS_WRITTEN
from projections.language.findings.reads import Computes, texts
from projections.language.models import Projection
from projections.language.syntax import LanguageError, an, name_of

__all__ = ["meanings"]

_FIELD = re.compile(r"\{([^{}|]*)\}")
_BETWEEN = re.compile(rf"(?=.*(?:\*|\s\+\s|\w\())(?:{'|'.join(OPERATIONS)}|\0|[\s().,\d*/+-])+")
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
        if rule.compute is not None and rule.compute.once and not facts.made_by_rules(rule.source):
            yield from _put_again(facts, name, rule)
    for one in facts.expressions:
        yield from _texts_in_calculation(one)


def _put_again(facts: Facts, name: str, rule: Projection) -> Iterator[Remark]:
    """Yield a remark for values that are recorded once, unless the declared writes do not remove them."""
    writes = [
        (pattern, step)
        for pattern, one in facts.rules.writes.items()
        for step in one.steps
        if step.operation in ("put", "update") and step.entity == rule.source
    ]
    put = next((pattern for pattern, step in writes if step.put is not None and step.if_ != "absent"), None)
    if writes and put is None:
        return
    assert rule.compute is not None
    values, which = " and ".join(rule.compute.set), "a put" if put is None else f"the put of write {put}"
    yield Remark(
        ONCE_AND_PUTS,
        ("projections", name, "compute", "once"),
        f"{which} that replaces {an(rule.source)} without {values} removes what was recorded, and the rule then records "
        "the current values",
        "change these items with UpdateItem, or include the recorded values in puts",
        at_key=True,
        rated=None if put is None else "warning",
    )


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
        is_name = content == content.strip() and re.search(r"\W.*\w|\w.*\W", content) is not None
        if name_of(quoted) in one.expression.calculated and not is_name:
            yield Remark(
                READ_AS_WRITTEN,
                one.place,
                f"{quoted} is the name of an attribute here, and not text: + adds numbers",
                f'to join texts, write a template, such as "{{first}}{content}{{second}}"; if it is an attribute'
                + (f", write {content} without quotes" if content.isidentifier() else ", accept the finding"),
                max(one.text.find(quoted), 0),
            )
            return

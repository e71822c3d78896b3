"""Values that rules make and that were probably meant as something else: calculations in templates, names and constants in
the syntax of other languages, and values recorded once that a put removes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from projections.language.arithmetic import OPERATIONS, Expression
from projections.language.attribute_types import types_of
from projections.language.findings.conditions import BOOLEANS, boolean
from projections.language.findings.kinds import ONCE_AND_PUTS, READ_AS_WRITTEN, Remark
from projections.language.findings.reads import Computes, expressions, reads
from projections.language.findings.rule_facts import Facts
from projections.language.forms import Constant
from projections.language.kinds import Action
from projections.language.models import Compute, Flag
from projections.language.syntax import LanguageError, Location, an, name_of
from projections.language.templates import Template

_FIELD = re.compile(r"\{([^{}|]*)\}")
_BETWEEN = re.compile(rf"(?=.*(?:\*|\s\+\s|\w\())(?:{'|'.join(OPERATIONS)}|\0|[\s().,\d*/+-])+")
_OPERAND = re.compile(r"""[-+*/]\s*('[^']+'|"[^"]+")|('[^']+'|"[^"]+")\s*[-+*/]""")


def meanings(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about values that rules make, rule by rule."""
    for name, rule in facts.projections.items():
        action, keys = rule.action, facts.table(rule.into).attribute_types.keys()
        yield from _constants(name, action)
        for part in action.parts():
            if not isinstance(part.value, Template) or not {*part.attributes} - keys:
                continue
            if _calculates(part.text):
                yield Remark(
                    READ_AS_WRITTEN,
                    ("projections", name, *part.place),
                    f'"{part.text}" is a template: its value is the text with the values in it, and not a calculation',
                    f"write the calculation without braces: {_FIELD.sub(lambda found: found[1], part.text)}",
                )
            if part.text.lower() in BOOLEANS:
                yield boolean(part.text, ("projections", name, *part.place))
        if isinstance(action, Compute) and action.once and not facts.made_by_rules(rule.source):
            yield from _put_again(facts, name, rule.source, action)
    for computed in expressions(facts.rules):
        yield from _texts_in_calculation(computed)
        for path in computed.expression.names:
            if path.lower() in _VALUES:
                yield Remark(
                    READ_AS_WRITTEN,
                    computed.place,
                    f"{path} is the name of an attribute here, and not a value",
                    _VALUES[path.lower()],
                    max(computed.text.find(path), 0),
                )
    yield from _braces(facts)
    for read in reads(facts.rules):
        for pipe in read.field.pipes if read.field is not None else ():
            if pipe.name == "default" and pipe.arguments[0].lower() in ("null", "nil", "undefined"):
                reason = f'{pipe} makes the text "{pipe.arguments[0]}"'
                yield Remark(READ_AS_WRITTEN, read.place, reason, "omit `default`, or write another text", read.offset)


_VALUES = {
    **dict.fromkeys(("null", "none", "nil", "undefined"), "omit it: without a value, the attribute is absent"),
    **dict.fromkeys(("true", "false"), "write cases: [{constant: true, where: {…}}, {constant: false}]"),
}


def _constants(name: str, action: Action) -> Iterator[Remark]:
    """Yield remarks about booleans of YAML 1.1 that a rule sets."""
    constants: list[tuple[Location, Any]] = []
    if isinstance(action, Flag):
        constants = [(("flag", "set", attribute), constant.value) for attribute, constant in action.set.items()]
    elif isinstance(action, Compute):
        constants = [
            (("compute", "set", attribute, number, "constant"), value.value)
            for attribute, cases in action.set.items()
            for number, value in enumerate(case.value for case in cases)
            if isinstance(value, Constant)
        ]
    for place, value in constants:
        if isinstance(value, str) and value.lower() in BOOLEANS:
            yield boolean(value, ("projections", name, *place))


_DOLLAR = re.compile(r"\$\{+([^{}|]+)")
_MONEY = re.compile(
    r"(?i)price|amount|cost|total|fee|fare|tax|usd|dollar|balance|value|pa(?:y|id)|spen[dt]|revenue|worth|budget"
)


def _braces(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about fields in the syntax of other languages: `${name}`, and `{{name}}` alone."""
    types = types_of(facts.rules)
    for place, entity, template, is_key in _templates(facts):
        dollar = _DOLLAR.search(template.text)
        is_price = dollar is not None and (types.used_as_number(entity, dollar[1]) or _MONEY.search(dollar[1]))
        if dollar is not None and (is_key or not is_price):
            reason = f'"{template.text}" has a $ before the value of {dollar[1]}'
            instead = template.text.replace("${", "{")
            yield Remark(READ_AS_WRITTEN, place, reason, f'write "{instead}"', dollar.start(1))
        elif not template.fields and (name := re.search(r"\{\{(\w+)\}\}", template.text)) is not None:
            reason = f'"{template.text}" is text with braces, and not the value of {name[1]}'
            yield Remark(READ_AS_WRITTEN, place, reason, f'write "{{{name[1]}}}"', name.start(1))


def _templates(facts: Facts) -> Iterator[tuple[Location, str, Template, bool]]:
    """Yield each template with its place, the entity whose values it has, and whether it makes a key."""
    for name, entity in facts.rules.entities.items():
        for where, templates in (("key", entity.key), ("index_key", entity.index_key)):
            for attribute, template in templates.items():
                yield ("entities", name, where, attribute), name, template, True
    for name, rule in facts.variants:
        keys = facts.table(rule.into).attribute_types.keys()
        for part in rule.parts():
            if isinstance(part.value, Template):
                is_key = part.place[0] in ("bind", "from") or bool({*part.attributes} & keys)
                yield ("projections", name, *part.place), rule.source, part.value, is_key


def _put_again(facts: Facts, name: str, source: str, compute: Compute) -> Iterator[Remark]:
    """Yield a remark for values that are recorded once, unless the declared writes do not remove them."""
    writes = [
        (pattern, step)
        for pattern, write in facts.rules.writes.items()
        for step in write.steps
        if step.operation in ("put", "update") and step.entity == source
    ]
    put = next((pattern for pattern, step in writes if step.put is not None and step.if_ != "absent"), None)
    if writes and put is None:
        return
    values, which = " and ".join(compute.set), "a put" if put is None else f"the put of write {put}"
    yield Remark(
        ONCE_AND_PUTS,
        ("projections", name, "compute", "once"),
        f"{which} that replaces {an(source)} without {values} removes what was recorded, and the rule then records "
        "the current values",
        "change these items with UpdateItem, or include the recorded values in puts",
        at_key=True,
        rated=None if put is None else "warning",
    )


def _calculates(text: str) -> bool:
    """Return whether a template would be a calculation without its braces."""
    text = text.removeprefix("=")
    if _BETWEEN.fullmatch(_FIELD.sub("\0", text)) is None:
        return False
    try:
        Expression.parse(_FIELD.sub(lambda found: found[1], text), "value")
    except LanguageError:
        return False
    return True


def _texts_in_calculation(computed: Computes) -> Iterator[Remark]:
    """Yield a remark for text in quotes that is added: it is read as the name of an attribute."""
    for found in _OPERAND.finditer(computed.expression.text):
        quoted = found[1] or found[2]
        content = quoted[1:-1]
        is_name = content == content.strip() and re.search(r"\W.*\w|\w.*\W", content) is not None
        if name_of(quoted) in computed.expression.calculated and not is_name:
            yield Remark(
                READ_AS_WRITTEN,
                computed.place,
                f"{quoted} is the name of an attribute here, and not text: + adds numbers",
                f'to join texts, write a template, such as "{{first}}{content}{{second}}"; if it is an attribute'
                + (f", write {content} without quotes" if content.isidentifier() else ", accept the finding"),
                max(computed.text.find(quoted), 0),
            )
            return

"""Values and conditions: conditions that never match, values probably meant as something else, values of held rules,
and quotients with too many digits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from projections.language.arithmetic import OPERATIONS, Constant, Expression, Factor, Node, Operation
from projections.language.attribute_types import Types, types_of
from projections.language.facts import inputs
from projections.language.findings.kinds import (
    NEVER_MATCHES,
    ONCE_AND_PUTS,
    READ_AS_WRITTEN,
    READS_HELD,
    UNROUNDED_QUOTIENT,
    Remark,
)
from projections.language.findings.reads import Computes, Tested, expressions, offset_of, tests
from projections.language.findings.rule_facts import Facts
from projections.language.models import Compute
from projections.language.patterns import Pattern
from projections.language.patterns.parsing import is_comparison
from projections.language.patterns.tree import Affix, Alternative, Compares, Equals, compared_type
from projections.language.syntax import LanguageError, Location, an, name_of
from projections.language.templates import Template
from projections.language.values import number_text


def conditions(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each condition whose alternatives all have the wrong type, and for texts that mean something."""
    types = types_of(facts.rules)
    for tested in tests(facts.rules):
        number = types.number(tested.entity, tested.test.name)
        if number is None and all(map(_is_quoted_number, tested.test.alternatives)):
            number = types.calculated(tested.entity, tested.test.name)
        text = types.text(tested.entity, tested.test.name)
        alternatives = tested.test.alternatives
        if number is not None and all(_only_text(one) for one in alternatives):
            yield _remark(tested, "a number", number, "text", _as_number(alternatives))
        elif text is not None and all(_only_number(one) for one in alternatives):
            yield _remark(tested, "text", text, "a number", "compare it with text, in quotes")
        elif alternatives and all(why := [_differing(types, tested, one) for one in alternatives]):
            yield Remark(NEVER_MATCHES, tested.place, f"{why[0]}, so the comparison never matches", _SAME, at_key=True)
    for document, place in _all_patterns(facts):
        for text, at, sign in _texts(document, place):
            if sign and (name := _name(text)) is not None:
                yield _name_as_text(text, name, at, sign)
            elif (meant := _meant(text) if sign else _wildcard(text)) is not None:
                instead = f"write the opposite of {meant}" if sign == "!=" else f"write {meant}"
                yield Remark(READ_AS_WRITTEN, at, f'"{text}" is compared as text, as it stands', instead)
            elif sign and text.lower() in BOOLEANS:
                yield boolean(text, at)


_SAME = "compare numbers with numbers, and text with text"


def _all_patterns(facts: Facts) -> Iterator[tuple[Mapping[str, Any], Location]]:
    for name, rule in facts.variants:
        for part in rule.parts():
            if isinstance(part.value, Pattern):
                yield part.value.document, ("projections", name, *part.place)
    for name, entity in facts.rules.entities.items():
        if entity.match is not None:
            yield entity.match.document, ("entities", name, "match")
    for name, query in facts.rules.queries.items():
        if query.where is not None:
            yield query.where.document, ("queries", name, "where")


def _texts(form: Any, place: Location, sign: str = "=") -> Iterator[tuple[str, Location, str]]:
    """Yield each text of a pattern that is compared as a whole, or by prefix or suffix, with its place.

    The sign is `=` or `!=`, and empty for a prefix or suffix.
    """
    if isinstance(form, Mapping):
        for key, value in form.items():
            if not is_comparison(key):
                operator = isinstance(place[-1], int) or place[-1] == "anything-but"
                yield from _texts(value, (*place, key), _OF_OPERATOR.get(key, sign) if operator else sign)
    elif isinstance(form, list):
        for position, value in enumerate(form):
            yield from _texts(value, (*place, position), sign)
    elif isinstance(form, str) and place[-2:-1] != ("numeric",):
        yield form, place, sign


_OF_OPERATOR = {"anything-but": "!=", "prefix": "", "suffix": ""}


def _name_as_text(text: str, name: str, place: Location, sign: str) -> Remark:
    compared, literal = f'{{"{sign}": "{text}"}}', f'{{"{sign}": "{{{text}}}"}}'
    return Remark(
        NEVER_MATCHES,
        place,
        f'"{text}" is text with braces here, not the value of {name}',
        f"write {compared} to compare with {name}, or {literal} for the text",
    )


_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?")
_SIGN = re.compile(r"(<=|>=|<>|!=|==|=|<|>|!)\s*(\w[\w .:@-]*)")
_WILD = re.compile(r"[\w.#@/ -]*[^\W_]{2}[\w.#@/ -]*")
_PRESENT = {"exists": "true", "not null": "true", "is not null": "true", "not exists": "false", "is null": "false"}
BOOLEANS = {"yes": "true", "on": "true", "no": "false", "off": "false"}
"""What YAML 1.1 reads as booleans, and YAML 1.2 as text."""


def _meant(text: str) -> str | None:
    """Return the form of a text that looks like an operator or a wildcard; None for any other text."""
    if text.lower() in _PRESENT:
        return f"[{{exists: {_PRESENT[text.lower()]}}}]"
    if (found := _SIGN.fullmatch(text.strip())) is not None:
        sign, operand = found.groups()
        if sign in ("=", "=="):
            return f"[{operand}]"
        if sign in ("!", "!=", "<>"):
            return f"[{{anything-but: {operand}}}]"
        return f'{{"{sign}": {operand}}}' if operand[0].isdecimal() else None
    return _wildcard(text)


def _wildcard(text: str) -> str | None:
    plain = text.replace(".*", "*")
    if re.fullmatch(r"%?[^\W\d]{3,}%?", text):
        plain = text.replace("%", "*")  # of SQL
    core = plain.strip("^$*")
    if "*" not in plain or _WILD.fullmatch(core.replace("*", "")) is None:
        return None
    if "**" in text:
        return None  # a mark of emphasis
    if "*" not in core and plain.endswith("*") != plain.startswith("*"):
        return f"[{{{'prefix' if plain.endswith('*') else 'suffix'}: {core}}}]"
    return "[{prefix: …}] or [{suffix: …}], there are no wildcards; or let the application set an attribute to test"


def boolean(text: str, place: Location) -> Remark:
    """Return a remark about a boolean of YAML 1.1 without quotes."""
    reason = f"{text} is text in YAML 1.2, and no boolean"
    instead = f'write {BOOLEANS[text.lower()]}, or "{text}" in quotes for the text'
    return Remark(READ_AS_WRITTEN, place, reason, instead, rated="note", unquoted=True)


def _name(value: str) -> str | None:
    """Return the name in `{name}`; None for any other text."""
    if not value.startswith("{"):
        return None
    try:
        return Template.parse(value).single
    except LanguageError:
        return None


def _remark(tested: Tested, is_: str, why: str, compared: str, instead: str) -> Remark:
    return Remark(
        NEVER_MATCHES,
        tested.place,
        f"{tested.test.name} is {is_} ({why}), so a comparison with {compared} never matches",
        instead,
        at_key=True,
    )


def _only_text(one: Alternative) -> bool:
    return (
        isinstance(one, Affix) or (isinstance(one, Equals) and isinstance(one.value, str)) or compared_type(one) == "S"
    )


def _is_quoted_number(one: Alternative) -> bool:
    found = [operand for _, operand in one.bounds] if isinstance(one, Compares) else [getattr(one, "value", None)]
    return all(isinstance(value, str) and _NUMBER.fullmatch(value) for value in found)


def _only_number(one: Alternative) -> bool:
    return compared_type(one) == "N" or (isinstance(one, Equals) and isinstance(one.value, Decimal))


def _differing(types: Types, tested: Tested, one: Alternative) -> str:
    """Return which of the values that an alternative compares have different types; empty if none is known to."""
    if not isinstance(one, Compares):
        return ""
    words: dict[str, str] = {}
    for name in (tested.test.name, *one.names):
        number, text = types.number(tested.entity, name), types.text(tested.entity, name)
        if number is not None or text is not None:
            words.setdefault("text" if number is None else "a number", f"{name} is {{}} ({number or text})")
    constant = compared_type(one)
    if constant is not None:
        what, other = ("a number", "text") if constant == "N" else ("text", "a number")
        if other in words:
            return f"{words[other].format(other)}, and a constant here is {what}"
    return ", and ".join(text.format(what) for what, text in words.items()) if len(words) == 2 else ""


def _as_number(alternatives: tuple[Alternative, ...]) -> str:
    found = [one.value for one in alternatives if isinstance(one, Equals) and isinstance(one.value, str)]
    try:
        texts = [number_text(Decimal(value)) for value in found]
    except ArithmeticError:
        texts = []
    if texts and len(texts) == len(alternatives):
        return f"remove the quotes: [{', '.join(texts)}]"
    return 'compare it as a number, such as [{numeric: [">=", 1]}]'


_FIELD = re.compile(r"\{([^{}|]*)\}")
_BETWEEN = re.compile(rf"(?=.*(?:\*|\s\+\s|\w\())(?:{'|'.join(OPERATIONS)}|\0|[\s().,\d*/+-])+")
_OPERAND = re.compile(r"""[-+*/]\s*('[^']+'|"[^"]+")|('[^']+'|"[^"]+")\s*[-+*/]""")


def meanings(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about values that rules make, rule by rule."""
    for name, rule in facts.projections.items():
        action, keys = rule.action, facts.table(rule.into).attribute_types.keys()
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
    for one in expressions(facts.rules):
        yield from _texts_in_calculation(one)


def _put_again(facts: Facts, name: str, source: str, compute: Compute) -> Iterator[Remark]:
    """Yield a remark for values that are recorded once, unless the declared writes do not remove them."""
    writes = [
        (pattern, step)
        for pattern, one in facts.rules.writes.items()
        for step in one.steps
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


def held(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about rules that read what a held rule does not keep up to date."""
    if not any(rule.hold for rule in facts.projections.values()):
        return
    for name, given in inputs(facts.complete).items():
        for other, attributes in given.items():
            if facts.projections[name].hold or not facts.projections[other].hold:
                continue
            entity = facts.projections[other].into
            what = ", ".join(f"{entity}.{attribute}" for attribute in attributes) or f"{entity} items"
            yield Remark(
                READS_HELD,
                ("projections", name),
                f"reads {what}, which rule {other} does not keep up to date, because it is held",
                f"remove `hold` of {other}, hold {name} as well, or accept that {name} derives outdated values",
                at_key=True,
            )


def quotients(facts: Facts) -> Iterator[Remark]:
    """Yield at most one remark for each expression."""
    for name, rule in facts.projections.items():
        for part in rule.action.parts():
            if (
                not part.limit
                or not isinstance(part.value, Expression)
                or not (quotient := _unrounded(part.value.node))
            ):
                continue
            words = _words(quotient)
            why = f"{part.limit}. Other numbers are bad input: the item contributes nothing to the rule"
            yield Remark(
                UNROUNDED_QUOTIENT,
                ("projections", name, *part.place),
                f"{words or 'the quotient'} can have 38 digits, and {why}",
                f"round the quotient first{f': round({words}, 4)' if words else ''}",
                offset_of(part, next(iter(Expression("", quotient).names), "")),
            )


def _unrounded(node: Node) -> Node | None:
    """Return a quotient that may be, or be a part of, the result, and has no rounding."""
    if isinstance(node, Factor | Constant) or node.name == "round":
        return None
    if node.name == "/" and not _comes_out_even(node.inner[1]):
        return node
    return next((found for inner in node.inner if (found := _unrounded(inner)) is not None), None)


def _comes_out_even(divisor: Node) -> bool:
    """Return whether a division by this constant adds few digits: its only prime factors are 2 and 5, as in 100 or 8."""
    if not isinstance(divisor, Constant) or not isinstance(divisor.value, Decimal) or not divisor.value:
        return False
    number = int("".join(map(str, divisor.value.as_tuple().digits)))
    for prime in (2, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


def _words(node: Node) -> str:
    """Return the text of a path, or of the quotient of two paths or constants."""
    if isinstance(node, Factor):
        return node.path
    if isinstance(node, Constant):
        return number_text(node.value) if isinstance(node.value, Decimal) else ""
    parts = [_words(inner) if not isinstance(inner, Operation) else "" for inner in node.inner]
    return " / ".join(parts) if node.name == "/" and all(parts) else ""

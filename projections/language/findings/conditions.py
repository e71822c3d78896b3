"""Conditions that never match, because what they compare has other types, or is a text that was meant as something else."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import NEVER_MATCHES, READ_AS_WRITTEN
from projections.language.findings.numbers import Numbers
from projections.language.findings.reads import Tested, patterns
from projections.language.mistakes import Location
from projections.language.patterns import Affix, Alternative, Compares, Equals, compared_type, is_comparison
from projections.language.syntax import LanguageError
from projections.language.templates import Template
from projections.language.values import number_text

__all__ = ["BOOLEANS", "boolean", "conditions"]


def conditions(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each condition whose alternatives all have the wrong type, and for texts that mean something."""
    numbers = Numbers(facts)
    for tested in facts.tests:
        number = numbers.number(tested.entity, tested.test.name)
        if number is None and all(map(_is_quoted_number, tested.test.alternatives)):
            number = numbers.calculated(tested.entity, tested.test.name)
        text = numbers.text(tested.entity, tested.test.name)
        alternatives = tested.test.alternatives
        if number is not None and all(_only_text(one) for one in alternatives):
            yield _remark(tested, "a number", number, "text", _as_number(alternatives))
        elif text is not None and all(_only_number(one) for one in alternatives):
            yield _remark(tested, "text", text, "a number", "compare it with text, in quotes")
        elif alternatives and all(why := [_differing(numbers, tested, one) for one in alternatives]):
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
    for _, _, document, place in patterns(facts.rules):
        yield document, place
    for name, entity in facts.rules.entities.items():
        if entity.match is not None:
            yield entity.match, ("entities", name, "match")
    for name, query in facts.rules.queries.items():
        if query.where is not None:
            yield query.where, ("queries", name, "where")


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


def _differing(numbers: Numbers, tested: Tested, one: Alternative) -> str:
    """Return which of the values that an alternative compares have different types; empty if none is known to."""
    if not isinstance(one, Compares):
        return ""
    types: dict[str, str] = {}
    for name in (tested.test.name, *one.names):
        number, text = numbers.number(tested.entity, name), numbers.text(tested.entity, name)
        if number is not None or text is not None:
            types.setdefault("text" if number is None else "a number", f"{name} is {{}} ({number or text})")
    constant = compared_type(one)
    if constant is not None:
        what, other = ("a number", "text") if constant == "N" else ("text", "a number")
        if other in types:
            return f"{types[other].format(other)}, and a constant here is {what}"
    return ", and ".join(words.format(what) for what, words in types.items()) if len(types) == 2 else ""


def _as_number(alternatives: tuple[Alternative, ...]) -> str:
    found = [one.value for one in alternatives if isinstance(one, Equals) and isinstance(one.value, str)]
    try:
        texts = [number_text(Decimal(value)) for value in found]
    except ArithmeticError:
        texts = []
    if texts and len(texts) == len(alternatives):
        return f"remove the quotes: [{', '.join(texts)}]"
    return 'compare it as a number, such as [{numeric: [">=", 1]}]'

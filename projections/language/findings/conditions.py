"""Conditions that never match, because what they compare has other types, or is a text that was meant to be a name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import NEVER_MATCHES
from projections.language.findings.numbers import Numbers
from projections.language.findings.reads import Tested, patterns
from projections.language.mistakes import Location
from projections.language.patterns import Affix, Alternative, Compares, Equals, compared_type, is_comparison
from projections.language.syntax import LanguageError
from projections.language.templates import Template
from projections.language.values import number_text

__all__ = ["conditions"]


def conditions(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each condition whose alternatives all have the wrong type, or that has a name as text."""
    numbers = Numbers(facts)
    for tested in facts.tests:
        number = numbers.number(tested.entity, tested.test.name)
        text = numbers.text(tested.entity, tested.test.name)
        alternatives = tested.test.alternatives
        if number is not None and all(_only_text(one) for one in alternatives):
            yield _remark(tested, "a number", number, "text", _as_number(alternatives))
        elif text is not None and all(_only_number(one) for one in alternatives):
            yield _remark(tested, "text", text, "a number", "compare it with text, in quotes")
        elif alternatives and all(why := [_differing(numbers, tested, one) for one in alternatives]):
            yield Remark(NEVER_MATCHES, tested.place, f"{why[0]}, so the comparison never matches", _SAME, at_key=True)
    for document, place in _all_patterns(facts):
        yield from _names_as_text(document, place)


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


def _names_as_text(form: Any, place: Location, sign: str = "=") -> Iterator[Remark]:
    """Yield a remark for each text in a pattern that is a name in braces."""
    if isinstance(form, Mapping):
        for key, value in form.items():
            if not is_comparison(key):
                yield from _names_as_text(value, (*place, key), sign)
    elif isinstance(form, list):
        for position, value in enumerate(form):
            if not isinstance(value, Mapping):
                yield from _names_as_text(value, (*place, position), sign)
            elif "anything-but" in value and not isinstance(value["anything-but"], Mapping):
                yield from _names_as_text(value["anything-but"], (*place, position, "anything-but"), "!=")
    elif (name := _name(form)) is not None:
        compared, text = f'{{"{sign}": "{form}"}}', f'{{"{sign}": "{{{form}}}"}}'
        yield Remark(
            NEVER_MATCHES,
            place,
            f'"{form}" is text with braces here, not the value of {name}',
            f"write {compared} to compare with {name}, or {text} for the text",
        )


def _name(value: Any) -> str | None:
    """Return the name in `{name}`; None for any other value."""
    if not isinstance(value, str) or not value.startswith("{"):
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

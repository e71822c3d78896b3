"""Conditions that never match, because the tested attribute has another type."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from projections.language.findings.facts import Facts
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import NEVER_FITS
from projections.language.findings.numbers import Numbers
from projections.language.findings.reads import Tested, tests
from projections.language.patterns import Affix, Alternative, Equals, Numeric
from projections.language.values import number_text

__all__ = ["conditions"]


def conditions(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each condition whose alternatives all have the wrong type."""
    numbers = Numbers(facts)
    for tested in tests(facts.rules):
        number = numbers.number(tested.entity, tested.test.name)
        text = numbers.text(tested.entity, tested.test.name)
        alternatives = tested.test.alternatives
        if number is not None and all(_only_text(one) for one in alternatives):
            yield _remark(tested, "a number", number, "text", _as_number(alternatives))
        elif text is not None and all(_only_number(one) for one in alternatives):
            yield _remark(tested, "text", text, "a number", "compare it with text, in quotes")


def _remark(tested: Tested, is_: str, why: str, compared: str, instead: str) -> Remark:
    return Remark(
        NEVER_FITS,
        tested.place,
        f"{tested.test.name} is {is_} ({why}), so a comparison with {compared} never matches",
        instead,
        at_key=True,
    )


def _only_text(one: Alternative) -> bool:
    return isinstance(one, Affix) or (isinstance(one, Equals) and isinstance(one.value, str))


def _only_number(one: Alternative) -> bool:
    return isinstance(one, Numeric) or (isinstance(one, Equals) and isinstance(one.value, Decimal))


def _as_number(alternatives: tuple[Alternative, ...]) -> str:
    found = [one.value for one in alternatives if isinstance(one, Equals) and isinstance(one.value, str)]
    try:
        texts = [number_text(Decimal(value)) for value in found]
    except ArithmeticError:
        texts = []
    if texts and len(texts) == len(alternatives):
        return f"remove the quotes: [{', '.join(texts)}]"
    return 'compare it as a number, such as [{numeric: [">=", 1]}]'

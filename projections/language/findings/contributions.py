"""What reaches a rule: values of disabled rules, and quotients with too many digits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from projections.language.arithmetic import Constant, Expression, Factor, Node, Operation
from projections.language.contribution import DIGITS_AFTER
from projections.language.facts import inputs
from projections.language.findings.kinds import (
    READS_DISABLED,
    UNROUNDED_QUOTIENT,
    Remark,
)
from projections.language.findings.reads import expression_place, offset_of
from projections.language.findings.rule_facts import Facts
from projections.language.measures import ROUNDED, Measure
from projections.language.mistakes import Location
from projections.language.models import Projection
from projections.language.values import number_text


def disabled(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about rules that read what a disabled rule no longer keeps up to date."""
    if all(rule.enabled for rule in facts.projections.values()):
        return
    for name, given in inputs(facts.typed).items():
        for other, attributes in given.items():
            if facts.projections[other].enabled or not facts.projections[name].publishes:
                continue
            entity = facts.projections[other].into
            what = ", ".join(f"{entity}.{attribute}" for attribute in attributes) or f"{entity} items"
            yield Remark(
                READS_DISABLED,
                ("projections", name),
                f"reads {what}, which rule {other} no longer keeps up to date, because it is disabled",
                f"enable {other}, disable {name} as well, or accept that {name} derives outdated values",
                at_key=True,
            )


@dataclass(frozen=True, slots=True)
class _Use:
    """An expression in a rule. `form` is the text or the measure that it is in.

    `limit` is what cannot take a quotient as it is.
    """

    place: Location
    form: Any
    node: Node
    limit: str = ""


def quotients(facts: Facts) -> Iterator[Remark]:
    """Yield at most one remark for each expression."""
    for name, rule in facts.projections.items():
        for use in _uses(name, rule):
            yield from _remarks(use)


def _uses(name: str, rule: Projection) -> Iterator[_Use]:
    place: Location = ("projections", name, rule.kind)
    if rule.aggregate is not None:
        for attribute, form in rule.aggregate.set.items():
            measure = Measure.parse(attribute, form)
            if measure.expression is not None:
                at = expression_place(form, (*place, "set", attribute))
                most = f"{measure.function} takes at most {DIGITS_AFTER} digits after the decimal point"
                limit = most if measure.function in ROUNDED else ""
                yield _Use(at, form, measure.expression.node, limit)
    elif rule.rank is not None:
        places = rule.rank.decimals
        limit = f"a score has at most {places} decimal places" if places else "a score is a whole number"
        yield _Use((*place, "by"), rule.rank.by, Expression.parse(rule.rank.by).node, limit)


def _remarks(use: _Use) -> Iterator[Remark]:
    found = _unrounded(use.node) if use.limit else None
    if found is None:
        return
    shown = _words(found) or "the quotient"
    why = f"{use.limit}. Other numbers are bad input: the item contributes nothing to the rule"
    reason = f"{shown} can have 38 digits, and {why}"
    example = f": round({shown}, 4)" if _words(found) else ""
    name = next(iter(Expression("", found).names), "")
    yield Remark(UNROUNDED_QUOTIENT, use.place, reason, f"round the quotient first{example}", offset_of(use.form, name))


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

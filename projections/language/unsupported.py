"""What the language has and this version's engine does not execute yet: one line each, to be removed as it learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from projections.language.binding import claimed
from projections.language.expressions import Measure
from projections.language.mistakes import Location, Mistake
from projections.language.models import Projection, Rules

__all__ = ["unsupported"]

Found = Iterator[tuple[Location, str]]
"""Where in a rule the construct stands, and what a message calls it."""


def _kind(kind: str) -> Callable[[Rules, Projection], Found]:
    def find(_: Rules, rule: Projection) -> Found:
        if rule.kind == kind:
            yield (kind,), f'"{kind}"'

    return find


def _extremes(_: Rules, rule: Projection) -> Found:
    for attribute, form in rule.aggregate.set.items() if rule.aggregate else ():
        function = Measure.parse(attribute, form).function
        if function in ("min", "max"):
            yield ("aggregate", "set", attribute), f'"{function}"'


def _shards(_: Rules, rule: Projection) -> Found:
    if rule.aggregate and rule.aggregate.shards > 1:
        yield ("aggregate", "shards"), '"shards"'


def _claims(rules: Rules, rule: Projection) -> Found:
    if rule.copy_ and rule.from_ in rules.entities and rule.copy_.into in rules.entities and claimed(rules, rule):
        yield ("copy", "into"), "copies whose target's key lacks variables of the source's key or its `id`"


def _kept(_: Rules, rule: Projection) -> Found:
    if rule.expired == "keep":
        yield ("expired",), '"expired: keep"'


def _shadow(_: Rules, rule: Projection) -> Found:
    if rule.mode == "shadow":
        yield ("mode",), '"mode: shadow"'


_IN_RULES: tuple[Callable[[Rules, Projection], Found], ...] = (
    _kind("top"),
    _kind("latest"),
    _kind("embed"),
    _extremes,
    _shards,
    _claims,
    _kept,
    _shadow,
)

_AT_TOP = ("retired",)


def unsupported(rules: Rules) -> list[Mistake]:
    """Every use of a construct that is not executed yet, with its place."""
    found = [
        Mistake(("projections", name, *place), _message(what), at_key=True)
        for name, rule in rules.projections.items()
        for find in _IN_RULES
        for place, what in find(rules, rule)
    ]
    return found + [Mistake((name,), _message(f'"{name}"'), at_key=True) for name in _AT_TOP if getattr(rules, name)]


def _message(what: str) -> str:
    return f"this version does not execute {what} yet; remove the rule or set it aside"

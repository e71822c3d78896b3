"""What the language has and this version's engine does not execute yet: one line each, to be removed as it learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from projections.language.mistakes import Location, Mistake
from projections.language.models import Projection, Rules

__all__ = ["unsupported"]

Found = Iterator[tuple[Location, str]]
"""Where in a rule the construct stands, and what a message calls it."""


def _kept(_: Rules, rule: Projection) -> Found:
    if rule.expired == "keep" and rule.copy_:
        yield ("expired",), '"expired: keep" of a copy'


_IN_RULES: tuple[Callable[[Rules, Projection], Found], ...] = (_kept,)


def unsupported(rules: Rules) -> list[Mistake]:
    """Every use of a construct that is not executed yet, with its place."""
    return [
        Mistake(("projections", name, *place), _message(what), at_key=True)
        for name, rule in rules.projections.items()
        for find in _IN_RULES
        for place, what in find(rules, rule)
    ]


def _message(what: str) -> str:
    return f"this version does not support {what} yet: remove the rule"

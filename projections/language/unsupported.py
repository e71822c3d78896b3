"""Constructs of the language that this version does not support yet, one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from projections.language.document import Rules
from projections.language.mistakes import Location, Mistake
from projections.language.models import Projection

__all__ = ["unsupported"]

Found = Iterator[tuple[Location, str]]
"""The place of each construct in a rule, and its name in messages."""


def _kept(_: Rules, rule: Projection) -> Found:
    if rule.expired == "keep" and rule.copy_:
        yield ("expired",), '"expired: keep" of a copy'


_IN_RULES: tuple[Callable[[Rules, Projection], Found], ...] = (_kept,)


def unsupported(rules: Rules) -> list[Mistake]:
    """Yield every use of an unsupported construct, with its place."""
    return [
        Mistake(("projections", name, *place), _message(what), at_key=True)
        for name, rule in rules.projections.items()
        for find in _IN_RULES
        for place, what in find(rules, rule)
    ]


def _message(what: str) -> str:
    return f"this version does not support {what} yet: remove the rule"

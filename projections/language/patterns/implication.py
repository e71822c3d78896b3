"""Whether what is known of an item implies a pattern, or excludes it.

The proof is sound and incomplete: True only if it holds for every item. Each test of a pattern is compared with the known
tests of the same name, alternative by alternative. A value that is a list or a set matches if one of its elements does,
so two different scalars exclude each other only for a name that has one value, as all names in a key have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from projections.language.patterns import Pattern
from projections.language.patterns.tree import (
    Affix,
    Alternative,
    AnythingBut,
    Compares,
    Condition,
    Either,
    Equals,
    Exists,
    Named,
    Operand,
    Scalar,
    Test,
    compared_type,
)
from projections.language.values import wire


class Known(NamedTuple):
    """What holds for an item: patterns that it matches, names that have a value, and names whose value is one scalar."""

    patterns: tuple[Pattern, ...]
    present: frozenset[str]
    scalar: frozenset[str]

    @property
    def tests(self) -> Iterator[Test]:
        return (test for pattern in self.patterns for test in pattern.conditions if isinstance(test, Test))

    @property
    def choices(self) -> Iterator[Either]:
        return (choice for pattern in self.patterns for choice in pattern.conditions if isinstance(choice, Either))

    def assuming(self, branch: tuple[Condition, ...], without: Either) -> Known:
        """Return what is known if this branch of a choice holds."""
        rest = (condition for pattern in self.patterns for condition in pattern.conditions if condition is not without)
        return self._replace(patterns=(Pattern((*rest, *branch), {}),))


def implies(known: Known, pattern: Pattern) -> bool:
    """Return whether every item of which this is known matches the pattern."""
    return all(_decide(known, condition, holds=True) for condition in pattern.conditions)


def excludes(known: Known, pattern: Pattern) -> bool:
    """Return whether no item of which this is known matches the pattern."""
    return any(_decide(known, condition, holds=False) for condition in pattern.conditions)


def known_present(known: Known, name: str) -> bool:
    """Return whether every item of which this is known has a value of this name."""
    return _decide(known, Test(name, (Exists(True),)), holds=True)


# --- conditions ---


def _decide(known: Known, condition: Condition, *, holds: bool) -> bool:
    """Return whether a condition holds for every item of which this is known, or if not `holds`, whether it fails."""
    if isinstance(condition, Either):
        branches = ([_decide(known, part, holds=holds) for part in branch] for branch in condition.branches)
        if any(map(all, branches)) if holds else all(map(any, branches)):
            return True
    elif _test_holds(known, condition) if holds else _test_fails(known, condition):
        return True
    return any(
        all(_decide(known.assuming(branch, choice), condition, holds=holds) for branch in choice.branches)
        for choice in known.choices
    )


def _test_holds(known: Known, test: Test) -> bool:
    present = test.name in known.present or any(path.startswith(test.name + ".") for path in known.present)
    if present and Exists(True) in test.alternatives:
        return True
    if Exists(True) in test.alternatives and any(
        test_known.alternatives and all(test.name in _names(alternative) for alternative in test_known.alternatives)
        for test_known in known.tests  # a value of this name is compared with theirs
    ):
        return True
    scalar = test.name in known.scalar
    return any(
        all(any(_implies(held, wanted, scalar) for wanted in test.alternatives) for held in test_known.alternatives)
        for test_known in known.tests
        if test_known.name == test.name and test_known.alternatives
    )


def _test_fails(known: Known, test: Test) -> bool:
    if test.name in known.present and all(alternative == Exists(False) for alternative in test.alternatives):
        return True
    scalar = test.name in known.scalar
    return any(
        all(_disjoint(held, other, scalar) for held in test_known.alternatives for other in test.alternatives)
        for test_known in known.tests
        if test_known.name == test.name
    )


# --- alternatives ---


def _implies(held: Alternative, wanted: Alternative, scalar: bool) -> bool:
    """Return whether a value that matches one alternative matches the other."""
    if held == wanted:
        return True
    if isinstance(held, Exists):
        return False
    if wanted == Exists(True):
        return True
    match held, wanted:
        case Equals(), Compares() if wanted.names:
            return False
        case Equals(), Equals() | Affix() | Compares():
            return _fits(held.value, wanted)
        case Equals(), AnythingBut() if scalar:
            return not any(_fits(held.value, constant) for constant in wanted.excluded)
        case Affix("prefix", text, False), Affix("prefix", shorter, False):
            return text.startswith(shorter)
        case Affix("suffix", text, False), Affix("suffix", shorter, False):
            return text.endswith(shorter)
        case Compares(), Compares():
            return all(_bound_holds(held, sign, bound) for sign, bound in wanted.bounds)
        case AnythingBut(), AnythingBut():
            return set(wanted.excluded) <= set(held.excluded)
    return False


def _disjoint(held: Alternative, other: Alternative, scalar: bool) -> bool:
    """Return whether no value matches both alternatives."""
    if held == Exists(False) or other == Exists(False):
        return held != other
    if not scalar or held == Exists(True) or other == Exists(True):
        return _excludes(held, other) or _excludes(other, held)
    match held, other:
        case (Compares(), Equals()) | (Equals(), Compares()) if _names(held) or _names(other):
            return False
        case Equals(), _:
            return not _fits(held.value, other)
        case _, Equals():
            return not _fits(other.value, held)
        case Affix("prefix", first, False), Affix("prefix", two, False):
            return not first.startswith(two) and not two.startswith(first)
        case Compares(), Compares():
            return _apart(held, other)
    return False


def _names(alternative: Alternative) -> tuple[str, ...]:
    return alternative.names if isinstance(alternative, Compares) else ()


def _excludes(held: Alternative, other: Alternative) -> bool:
    return isinstance(held, AnythingBut) and any(_implies(other, constant, False) for constant in held.excluded)


def _fits(value: Scalar, alternative: Alternative) -> bool:
    """Return whether one scalar matches an alternative."""
    return Test("x", (alternative,)).compile()(lambda name, stored=False: wire(value))


_IMPLIED: Mapping[str, tuple[str, ...]] = {
    "<": ("<", "<=", "!="),
    "<=": ("<=",),
    ">": (">", ">=", "!="),
    ">=": (">=",),
    "=": ("=", "<=", ">="),
    "!=": ("!=",),
}
"""By sign: the comparisons with the same value that it implies."""
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}


def _bound_holds(held: Compares, sign: str, bound: Operand) -> bool:
    """Return whether every value within the bounds of `held` is also within this one."""
    for own, limit in held.bounds:
        if isinstance(bound, Named) or isinstance(limit, Named) or limit == bound:
            if limit == bound and sign in _IMPLIED[own]:
                return True
        elif own == "=":
            if _fits(limit, Compares(((sign, bound),))):
                return True
        elif own != "!=" and sign[0] in (own[0], "!") and _fits(limit, Compares(((own, bound),))):
            return True  # `limit` is on that side of `bound`, so all values beyond it are, too
    return False


def _apart(first: Compares, other: Compares) -> bool:
    """Return whether no scalar is within both."""
    types = {compared_type(first), compared_type(other)}
    return types == {"N", "S"} or any(
        _bound_holds(first, _OPPOSITE[sign], bound)
        for first, second in ((first, other), (other, first))
        for sign, bound in second.bounds
    )


def compares_as_number(pattern: Pattern, name: str) -> bool:
    """Return whether every item that matches a pattern has a number in an attribute."""
    return any(
        isinstance(test, Test)
        and test.name == name
        and all(compared_type(alternative) == "N" for alternative in test.alternatives)
        for test in pattern.conditions
    )

"""Patterns: the language of Lambda's event filters, on items in wire form.

It differs where that would not suit DynamoDB: numbers compare as decimals, `exists` and
`anything-but` look at maps and lists too, and `anything-but` on a list or set means that *no* element is one of these
(in EventBridge: that *some* element is not one of them). A value of type NULL is a missing one, except to `exists` and
`null`, which match it as in EventBridge.

It adds comparisons (`{"<": "2026-01-01"}`, `{">=": "{lessons}"}`): of two numbers or two texts, with a constant or with
another value of the item. `{">": 10}` is parsed as `{numeric: [">", 10]}` is, and `{"=": "x"}` as `x`.

`parsing` makes the `tree`, which evaluates itself on an item and says itself in words. `implication` compares patterns.
`engine.application` makes DynamoDB's conditions of the tree, and `inspect.client.expressions` Python source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from projections.language.patterns.parsing import conditions_of, document_of
from projections.language.patterns.tree import Condition, Equals, Exists, Test, all_hold, names_in, sentence
from projections.language.values import Resolve


@dataclass(frozen=True)
class Pattern:
    """Conditions that must all hold. An empty pattern matches everything."""

    conditions: tuple[Condition, ...]
    document: Mapping[str, Any]
    """As it is written."""

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Pattern:
        """Parse a pattern. Raises LanguageErrors with every mistake, each with its path in the document."""
        return cls(conditions_of(document), document)

    @cached_property
    def canonical(self) -> dict[str, Any]:
        """The document of all patterns with these conditions, which fingerprints are computed from."""
        return document_of(self.conditions)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables and dotted paths it reads, in order, each once."""
        return names_in(self.conditions)

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The names that must equal one scalar (outside `$or`), with that scalar; `wire` converts it to a value."""
        return {
            condition.name: condition.alternatives[0].value
            for condition in self.conditions
            if isinstance(condition, Test)
            and len(condition.alternatives) == 1
            and isinstance(condition.alternatives[0], Equals)
        }

    def compile(self) -> Callable[[Resolve], bool]:
        return all_hold(self.conditions)

    @cached_property
    def matches(self) -> Callable[[Resolve], bool]:
        """Return whether the values that a resolver returns match."""
        return self.compile()

    def unmet(self, resolve: Resolve) -> list[Condition]:
        """Return the conditions that do not hold for the values that a resolver returns."""
        return [condition for condition in self.conditions if not condition.compile()(resolve)]


EVERYTHING = Pattern((), {})
"""The pattern that every item matches."""


def describe(pattern: Pattern) -> str:
    """Return a pattern in one line of English, such as `status is "published", and stars is at least 4`."""
    return sentence(pattern.conditions)


_ABSENT = Exists(False)


def listed_values(pattern: Pattern | None) -> dict[str, set[tuple[type, Any]]]:
    """Return the names that a pattern limits to certain values, as (type, value); `exists: false` for no value."""
    listed: dict[str, set[tuple[type, Any]]] = {}
    for condition in pattern.conditions if pattern is not None else ():
        if isinstance(condition, Test) and all(
            isinstance(each, Equals) or each == _ABSENT for each in condition.alternatives
        ):
            values: list[Any] = [each.value if isinstance(each, Equals) else _ABSENT for each in condition.alternatives]
            listed[condition.name] = {(type(value), value) for value in values}
    return listed


def are_apart(first: Pattern | None, second: Pattern | None) -> bool:
    """Return whether two patterns limit a name to different values: no item fits both."""
    ours, theirs = listed_values(first), listed_values(second)
    return any(not ours[name] & theirs[name] for name in ours.keys() & theirs.keys())

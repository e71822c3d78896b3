"""Compares views: groups with their targets, parents with their children. Differences are examined later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from projections.language.keys import decode_key
from projections.operations.verify import published
from projections.operations.verify.drift import Drift
from projections.operations.verify.facts import Facts
from projections.operations.verify.reading import (
    CHILD_ROW,
    FENCE_ROW,
    GROUP_ROW,
    MEMBERS_ROW,
    PARENT_ROW,
    TARGET_ROW,
)
from projections.operations.verify.scope import Scope
from projections.operations.verify.subject import GROUP, Subject

__all__ = ["mismatches"]

Rows = Iterable[tuple[int, str, Any]]


def mismatches(scope: Scope, facts: Facts) -> Iterator[tuple[str, list[Drift]]]:
    """Yield the texts of subjects to examine, with their differences as far as they are known."""
    for rows in facts.views():
        rows = iter(rows)
        first = next(rows)
        both = _again(first, rows)
        if first[0] > TARGET_ROW:
            yield from _children(scope, both)
            continue
        target = list(both)
        try:
            yield from list(_target(scope, target))
        except Exception:  # examined alone, each shows whether it is the cause
            yield from ((text, []) for text in dict.fromkeys(text for _, text, _ in target if text))


def _again(first: tuple[int, str, Any], rows: Rows) -> Iterator[tuple[int, str, Any]]:
    yield first
    yield from rows


def _target(scope: Scope, rows: Rows) -> Iterator[tuple[str, list[Drift]]]:
    parts, members, text = [], [], ""
    item, empty = None, False
    for role, named, content in rows:
        text = text or named
        if role == GROUP_ROW:
            parts.append(content)
        elif role == MEMBERS_ROW:
            members += content
        else:
            item, empty = content
    if not text:  # members without a group: the sums show them
        return
    subject = Subject.read(text)
    rule = scope.rule(subject.rule)
    assert rule is not None
    if published.lacks_first_part(parts):
        yield subject._replace(kind=GROUP).text(), []
    group, first = published.gathered(rule, parts, members)
    found = published.differences(scope, rule, decode_key(subject.key), item, group, first)
    unwanted = item is not None and empty and rule.creates and group.totals.n == 0 and not group.withheld
    if found or unwanted:
        yield text, found


def _children(scope: Scope, rows: Rows) -> Iterator[tuple[str, list[Drift]]]:
    given, match, there, fence = "", None, False, ""
    for role, text, content in rows:
        if role == PARENT_ROW:
            (given, match), there = content, True
        elif role == FENCE_ROW:
            fence = content
        elif role == CHILD_ROW:
            shown, theirs, own, at, keeps = content
            left = keeps and own and not there  # values of a deleted parent
            if not own or at > fence or not (left or shown == (given if there and theirs == match else "")):
                yield text, []

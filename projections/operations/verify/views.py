"""Compares views: groups with their targets, parents with their children. Differences are examined later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from projections.engine.groups import Group, first_members, summed
from projections.engine.guards import Guard
from projections.engine.ledger_items import CLOSED, COUNT, member_order
from projections.engine.store import Image, ItemKey, Value
from projections.language.keys import decode_key, encode_key, escape
from projections.language.rules import AggregateRule, LedgerRule, Member, Totals
from projections.language.values import differing
from projections.operations.verify import showing
from projections.operations.verify.drift import Drift
from projections.operations.verify.reading import CHILD_ROW, FENCE_ROW, GROUP_ROW, MEMBERS_ROW, PARENT_ROW, TARGET_ROW
from projections.operations.verify.scanning import Facts
from projections.operations.verify.scope import GROUP, Scope, Subject


def differences(
    scope: Scope,
    rule: LedgerRule,
    key: ItemKey,
    item: Image | None,
    group: Group,
    members: Mapping[str, Sequence[Member]],
) -> list[Drift]:
    """Return the differences between an item and its group, which was read later. The item is of the target entity, or None.

    An item that should not exist is not reported here, because that depends on the groups of other rules, too.
    """
    if group.withheld:
        return []
    shadow, makes, n = scope.shadow(rule), rule.creates, group.totals.n
    values = rule.published(group.totals, members)
    guard, target = scope.guards.read(rule.name, key, item), encode_key(key)
    at = guard.at or None if guard is not None else None
    common = Drift("", rule.name, target, at=at, source=_source(rule, members), shadow=shadow)
    if makes and n == 0 and item is None:
        return []
    unclaimed = rule.claimed and rule.claimant(members) is None
    if unclaimed and (guard is None or guard.n == 0):
        return []  # not the rule's item, or the rest of one
    if item is None:
        return [replace(common, kind="target missing", expected=showing.item(values))] if makes else []
    if rule.claimed:
        owned = rule.owned(item) if guard is None else scope.guards.owned(rule, key, item)
        if unclaimed:
            owned = set(owned) - rule.into.constants.keys()
        values = {**{name: None for name in owned if name not in values}, **values}
    values = {**rule.created_with, **values}
    found = wrong_values(replace(common, kind="value"), item, values)
    if not shadow:
        common = replace(common, kind="guard", attribute=scope.program.guard(rule.name))
        found += _guard(rule, common, item, guard, group, members, bool(found))
    return scope.attributed(rule, key, item, found)


def wrong_values(common: Drift, item: Image, desired: Mapping[str, Value | None]) -> list[Drift]:
    """Return a drift for each attribute that differs from the desired value; `common` has their common fields."""
    shown = {name: showing.both(item.get(name), value) for name, value in differing(item, desired).items()}
    return [replace(common, attribute=name, actual=actual, expected=wanted) for name, (actual, wanted) in shown.items()]


def _guard(
    rule: LedgerRule,
    common: Drift,
    item: Image,
    guard: Guard | None,
    group: Group,
    members: Mapping[str, Sequence[Member]],
    wrong: bool,
) -> Iterator[Drift]:
    """A guard with a future version is reported in addition to wrong values, another guard only if the values are
    correct.
    """
    held = item.get(common.attribute or "")
    if guard is not None and guard.at > group.at:
        yield replace(common, actual={"at": guard.at}, expected={"at": group.at})
    elif wrong:
        return
    elif guard is None:
        yield replace(common, actual=showing.guard(held, guard, "at"), expected={"at": group.at})
    elif (by := rule.claimant(members)) is not None and guard.by != by:
        yield replace(common, actual={"by": guard.by}, expected={"by": by})
    elif guard.at == group.at and guard.n != group.totals.n:
        yield replace(common, actual={"n": guard.n}, expected={"n": group.totals.n})


def _source(rule: LedgerRule, members: Mapping[str, Sequence[Member]]) -> str | None:
    """The source whose attributes are shown, where it is a single one."""
    if rule.carries and all(query.limit == 1 for query in rule.member_queries):
        return next((found[0].source for found in members.values() if found), None)
    return None


def gathered(
    rule: LedgerRule, parts: Sequence[Image], members: Sequence[Image]
) -> tuple[Group, dict[str, list[Member]]]:
    """The open generation of a group and its first members, from all its parts and the members that may be first.

    Without its first part a generation is empty to all who read the group (`lacks_first_part`).
    """
    generations: dict[int, list[Image]] = {}
    closed = -1
    for part in parts:
        generation = int(part["sk"]["S"].partition("|")[0])
        if CLOSED in part:
            closed = max(closed, generation)
        generations.setdefault(generation, []).append(part)
    opened = max([closed + 1, *generations])
    own = generations.get(opened, [])
    group = summed(opened, own if _has_first(own) else ())
    ordered = sorted(_merged(members), key=member_order)
    found = {}
    for query in rule.member_queries:
        prefix = f"{opened:04d}|{escape(query.slot)}|"
        own = [image for image in ordered if image["sk"]["S"].startswith(prefix)]
        first = own[::-1][: query.limit] if query.descending else own[: query.limit]
        found[query.name] = first_members(query, first, group)
    return _counted(rule, group, ordered), found


def _merged(members: Sequence[Image]) -> list[Image]:
    """Return members with each value counter once: without a ledger, pages of items have counters of the same values."""
    found: dict[str, Image] = {}
    for image in members:
        sort = image["sk"]["S"]
        if COUNT in image and sort in found:
            number = int(found[sort][COUNT]["N"]) + int(image[COUNT]["N"])
            image = {**image, COUNT: {"N": str(number)}}
        found[sort] = image
    return list(found.values())


def _counted(rule: LedgerRule, group: Group, members: Sequence[Image]) -> Group:
    """Return a group with the number of different values, which a group that was computed without a ledger lacks."""
    slots = rule.value_slots if isinstance(rule, AggregateRule) else ()
    lacking = [slot for slot in slots if "%" + slot not in group.totals.amounts]
    if not lacking:
        return group
    amounts = dict(group.totals.amounts)
    for slot in lacking:
        prefix = f"{group.generation:04d}|{escape(slot)}|"
        amounts["%" + slot] = Decimal(sum(image["sk"]["S"].startswith(prefix) for image in members if COUNT in image))
    return group._replace(totals=Totals(group.totals.n, amounts))


def lacks_first_part(parts: Sequence[Image]) -> bool:
    """Return whether a group has shards but lost its first part, so that its shards are not read."""
    opened = max(part["sk"]["S"].partition("|")[0] for part in parts) if parts else ""
    return not _has_first([part for part in parts if part["sk"]["S"].startswith(opened)])


def _has_first(parts: Sequence[Image]) -> bool:
    return not parts or any(part["sk"]["S"].endswith("|00") for part in parts)


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
    if lacks_first_part(parts):
        yield subject._replace(kind=GROUP).text(), []
    group, first = gathered(rule, parts, members)
    found = differences(scope, rule, decode_key(subject.key), item, group, first)
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

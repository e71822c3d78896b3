"""Changes of one item that exceed the actions of a transaction."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.canonical import Aggregate, Rule
from projections.language.contribution import ELEMENTS, ENTRY_BYTES
from projections.language.findings.facts import Facts, KeySet
from projections.language.findings.finding import Remark
from projections.language.findings.kinds import MANY_CONTRIBUTIONS
from projections.language.mistakes import Location
from projections.language.models import Projection
from projections.language.shapes import each_parts

__all__ = ["transactions"]

ACTIONS = 100
_VARIABLE_BYTES = 20
_ENTRY_BYTES = 30
_MEMBER_BYTES = 50


def transactions(facts: Facts) -> Iterator[Remark]:
    """Yield a remark for each `each` of a recorded rule with a high limit, unless its elements share few targets.

    The ancestors of a path are too few.
    """
    seen: set[Location] = set()
    for name, rule in facts.variants:
        place: Location = ("projections", name, *rule.place("each"))
        if rule.each is None or place in seen or not facts.typed.rules[name].recorded:
            continue
        _, path, limit = each_parts(rule.each)
        if isinstance(path, dict) or limit <= ELEMENTS:
            continue
        key = facts.target_keys[name, rule.source]
        groups = 1 if _own_target(key) else 0
        beside = _actions(facts.typed.rules[name])
        actions = groups + beside
        if not actions:
            continue
        fixed = sum(_fixed(facts, other, one) for other, one in facts.variants if one.source == rule.source)
        most = max((ACTIONS - 1 - fixed - (1 - groups)) // actions, 1)
        seen.add(place)
        yield Remark(
            MANY_CONTRIBUTIONS,
            place,
            f"a change of more than {most} elements of {path} takes several transactions, of {ACTIONS} actions each; "
            f"more than about {_entries(name, key, beside):,} elements exceed the limit of one item "
            f"({ENTRY_BYTES:,} bytes): the rule then contributes nothing for that item",
            f"keep {path} shorter, or write its elements as items of their own",
            at_key=True,
        )


def _own_target(key: KeySet) -> bool:
    slots = [slot for one in (*key.partition, *key.sort) for slot in one.slots if slot.origin == "each"]
    return any(slot.piped("bucket", "date") is None for slot in slots)


def _fixed(facts: Facts, name: str, variant: Projection) -> int:
    """Return the actions of the other rules of the same item, whose contributions change in the same transaction."""
    rule = facts.typed.rules[name]
    return 1 + _actions(rule) if variant.each is None and rule.recorded else 0


def _actions(rule: Rule) -> int:
    """Return the actions that one contribution takes beside those of entry and group."""
    return rule.members + (rule.counters if isinstance(rule, Aggregate) else 0)


def _entries(rule: str, key: KeySet, members: int) -> int:
    """Return about how many contributions one item can have, as a round number."""
    made = (*key.partition, *key.sort)
    target = sum(one.literal_bytes + _VARIABLE_BYTES * len(one.slots) for one in made)
    most = ENTRY_BYTES // (target + len(rule) + _ENTRY_BYTES + _MEMBER_BYTES * members)
    return most // 100 * 100 or most

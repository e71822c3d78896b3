"""Checks of the ledger at the end of a history: entries against items, groups against entries, nothing pending."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from projections.engine.changes import GENERATION, SETTLED, generation_of
from projections.engine.guards import at_of
from projections.engine.ledger_items import (
    CLOSED,
    COUNT,
    KEPT,
    REBUILDING,
    Entry,
    Target,
    group_at,
    member_key,
    rule_of_link,
    slot_in,
)
from projections.engine.store import Image, ItemKey, Value
from projections.engine.value_counters import counter_key
from projections.language.contribution import Contributions, canonical_text
from projections.language.embeds import ListEmbedRule
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program


@dataclass(slots=True)
class _Group:
    """The content of a group's items, by generation."""

    amounts: dict[int, dict[str, Decimal]] = field(default_factory=dict)
    versions: dict[int, int] = field(default_factory=dict)
    shards: dict[int, list[Image]] = field(default_factory=dict)
    counters: dict[int, dict[str, tuple[str, int, int]]] = field(default_factory=dict)
    """Value counters by sort key: slot, number, and how much of it has settled."""

    @property
    def open(self) -> int:
        return max(self.shards, default=0)


_NONE = _Group()


def problems(
    program: Program,
    items: Mapping[ItemKey, Image],
    ledger: Sequence[Image],
    genuine: Callable[[ItemKey, str, Value], bool] = lambda key, name, guard: True,
    unsettled: Collection[str] = (),
) -> Iterator[str]:
    """Yield a description of everything that is wrong."""
    ledger_rules = {rule.name for rules in program.ledger_rules.values() for rule in rules}
    entries = {
        item["key"]["S"] if "key" in item else item["pk"]["S"][2:]: item
        for item in ledger
        if item["pk"]["S"].startswith("E|")
    }
    groups, members = _read(ledger, ledger_rules)
    yield from _entries(program, items, entries, unsettled)
    yield from _groups(groups, members, entries, ledger_rules)
    yield from _guards(program, items, groups, genuine)
    yield from _links(program, ledger)


def _read(ledger: Sequence[Image], rules: set[str]) -> tuple[dict[Target, _Group], dict[Target, dict[int, set[str]]]]:
    """Return the groups of these rules, and the members of each by generation, without settled totals."""
    groups: dict[Target, _Group] = {}
    members: dict[Target, dict[int, set[str]]] = {}
    for item in ledger:
        kind, _, rest = item["pk"]["S"].partition("|")
        rule, _, target = rest.partition("|")
        if rule not in rules:
            continue
        generation = int(item["sk"]["S"][:4]) if kind in ("G", "M") else 0
        if kind == "M" and COUNT in item:
            group = groups.setdefault((rule, target), _Group())
            held, kept = (int(item[name]["N"]) if name in item else 0 for name in (COUNT, KEPT))
            group.counters.setdefault(generation, {})[item["sk"]["S"]] = (slot_in(item), held, kept)
        elif kind == "M":
            members.setdefault((rule, target), {}).setdefault(generation, set()).add(item["sk"]["S"])
        if kind != "G" or "order" in item:
            continue
        group = groups.setdefault((rule, target), _Group())
        group.shards.setdefault(generation, []).append(item)
        amounts = group.amounts.setdefault(generation, {})
        for name, value in item.items():
            if name == "version":
                group.versions[generation] = group.versions.get(generation, 0) + int(value["N"])
            elif name == "n" or name[:1] in ("=", "#", "%"):
                amounts[name] = amounts.get(name, Decimal(0)) + Decimal(value["N"])
    return groups, members


def _entries(
    program: Program, items: Mapping[ItemKey, Image], entries: Mapping[str, Image], unsettled: Collection[str]
) -> Iterator[str]:
    """Compare each entry with its item. Retired rules keep their contributions, unless they are to be removed."""
    remaining = dict(entries)
    for source, item in entries.items():
        entry = Entry.read(item)
        if entry.recent:
            yield f"ledger: the entry of {source} has a pending publish of {', '.join(sorted(entry.recent))}"
        if not entry.contributions and not entry.expires and decode_key(source) not in items:
            yield f"ledger: the entry of {source}, which is gone, never expires"
        removed = [rule for rule in entry.contributions if program.retired.get(rule) == "remove"]
        if removed:
            yield f"ledger: the entry of {source} still has contributions of {', '.join(removed)}, to be removed"
    for key, image in items.items():
        evaluated = program.contributions(program.recognise(key, image)).contributions
        source = encode_key(key)
        known = remaining.pop(source, None)
        recorded = _of_rules(program, Entry.read(known).contributions) if known else {}
        if canonical_text(evaluated) != canonical_text(recorded):
            yield f"ledger: {source} contributes {_show(evaluated)}, its entry records {_show(recorded)}"
    for source, item in remaining.items():
        entry = Entry.read(item)
        recorded = _of_rules(program, entry.contributions)
        if recorded and source not in unsettled and not entry.expired:  # it expired under rules that were not active
            yield f"ledger: {source} is gone, its entry records {_show(recorded)}"


def _links(program: Program, ledger: Sequence[Image]) -> Iterator[str]:
    """Find links of rules that do not exist, or that are no embeds of several parents."""
    lists = {name for name, rule in program.embeds.items() if isinstance(rule, ListEmbedRule)}
    for item in ledger:
        rule = rule_of_link(item)
        if rule is not None and rule not in lists:
            yield f"ledger: {rule} has a link to {item['child']['S']}, and is no embed of several parents"


def _of_rules(program: Program, contributions: Contributions) -> Contributions:
    """Return an entry's contributions to rules that exist, without generations."""
    return {
        rule: {
            target: {slot: amount for slot, amount in contributed.items() if slot != GENERATION}
            for target, contributed in targets.items()
        }
        for rule, targets in contributions.items()
        if rule in program.rules
    }


def _groups(
    groups: Mapping[Target, _Group],
    members: Mapping[Target, Mapping[int, set[str]]],
    entries: Mapping[str, Image],
    rules: set[str],
) -> Iterator[str]:
    sums: dict[Target, dict[str, Decimal]] = {}
    expected: dict[Target, set[str]] = {}
    values: dict[Target, dict[str, int]] = {}
    for source, item in entries.items():
        for rule, targets in Entry.read(item).contributions.items():
            for target, contributed in targets.items() if rule in rules else ():
                group = rule, target
                now = groups.get(group, _NONE).open
                if generation_of(contributed) != now:
                    yield f"ledger: {source} is counted in generation {generation_of(contributed)} of {group}, not {now}"
                totals = sums.setdefault(group, {})
                for slot, amount in contributed.items():
                    if slot == "+":
                        keys = [member_key(rule, target, now, member, source) for member in amount]
                        expected.setdefault(group, set()).update(key.sort or "" for key in keys)
                    elif slot == "%":
                        counted = values.setdefault(group, {})
                        for value, number in amount.items():
                            sort = counter_key(group, now, value).sort or ""
                            counted[sort] = counted.get(sort, 0) + number
                    elif slot == SETTLED:
                        yield f"ledger: the entry of {source} still has a mark of settled totals in {group}"
                    elif slot != GENERATION:
                        totals[slot] = totals.get(slot, Decimal(0)) + Decimal(amount)
    for group in dict.fromkeys([*sums, *groups]):
        known = groups.get(group, _NONE)
        due = {slot: amount for slot, amount in sums.get(group, {}).items() if amount}
        counters = known.counters.get(known.open, {})
        for slot, number, _ in counters.values():
            due["%" + slot] = due.get("%" + slot, Decimal(0)) + 1
            if number <= 0:
                yield f"ledger: the group {group} has a value counter of {number}"
        live = {sort: number - kept for sort, (_, number, kept) in counters.items() if number != kept}
        if live != values.get(group, {}):
            yield f"ledger: the value counters of {group} are {live}, its entries have {values.get(group, {})}"
        held = {slot: amount for slot, amount in known.amounts.get(known.open, {}).items() if amount}
        if due != held:
            yield f"ledger: the group {group} holds {_amounts(held)}, its entries sum up to {_amounts(due)}"
        for generation, shards in known.shards.items():
            if generation == known.open and any(CLOSED in shard or REBUILDING in shard for shard in shards):
                yield f"ledger: generation {generation} of the group {group} is not open"
            if generation != known.open and not all(CLOSED in shard for shard in shards):
                yield f"ledger: generation {generation} of the group {group} is not closed"
    for group in dict.fromkeys([*expected, *members]):
        due_members = expected.get(group, set())
        held_members = members.get(group, {}).get(groups.get(group, _NONE).open, set())
        if due_members != held_members:
            extra, missing = sorted(held_members - due_members), sorted(due_members - held_members)
            yield f"ledger: the group {group} has unexpected members {extra} and lacks {missing}"


def _guards(
    program: Program,
    items: Mapping[ItemKey, Image],
    groups: Mapping[Target, _Group],
    genuine: Callable[[ItemKey, str, Value], bool],
) -> Iterator[str]:
    """Yield guards that are ahead of their group, which would prevent later publishes.

    A guard of a guarded copy may be ahead: every later change of the source then reads the source.
    """
    for key, image in items.items():
        item = program.recognise(key, image)
        if item is None:
            continue
        for rule in program.ledger_rules_into.get(item.entity.name, ()):
            guard = image.get(program.guard(rule.name))
            at = at_of(guard) if guard is not None and genuine(key, program.guard(rule.name), guard) else ""
            group = groups.get((rule.name, encode_key(key)), _NONE)
            version = group_at(group.open, group.versions.get(group.open, 0))
            if at > version:
                yield f"{encode_key(key)}: the guard of {rule.name} is at {at}, its group only at {version}"


def _amounts(amounts: Mapping[str, Decimal]) -> str:
    return json.dumps({slot: str(amount) for slot, amount in sorted(amounts.items())})


def _show(contributions: Contributions) -> str:
    return json.dumps(contributions, ensure_ascii=False)

"""Checks of the ledger at the end of a history: entries against items, groups against entries, nothing pending."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from projections.engine.changes import combine
from projections.engine.groups import is_amount
from projections.engine.guards import at_of
from projections.engine.ledger_items import COUNT, Entry, Target, group_at, member_key, rule_of_link, slot_in
from projections.engine.registry import RegistrySnapshot
from projections.engine.store import Image, ItemKey, Value
from projections.engine.value_counters import counter_key
from projections.language.contribution import Contributions, canonical_text, without
from projections.language.embeds import ListEmbedRule
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program


@dataclass(slots=True)
class _Group:
    """The content of a group's items."""

    amounts: dict[str, Decimal] = field(default_factory=dict)
    version: int = 0
    counters: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Value counters by sort key: slot and number."""
    members: set[str] = field(default_factory=set)


_NONE = _Group()


def problems(
    program: Program,
    snapshot: RegistrySnapshot,
    items: Mapping[ItemKey, Image],
    ledger: Sequence[Image],
    genuine: Callable[[ItemKey, str, Value], bool] = lambda key, name, guard: True,
) -> Iterator[str]:
    """Yield a description of everything that is wrong. `program` has the versions that functions work with."""
    entries = {
        item["key"]["S"] if "key" in item else item["pk"]["S"][2:]: item
        for item in ledger
        if item["pk"]["S"].startswith("E|")
    }
    groups = _read(ledger, program)
    yield from _entries(program, snapshot, items, entries)
    yield from _groups(groups, entries, program)
    yield from _groups_of_lanes(groups, items, program, snapshot)
    yield from _guards(program, snapshot, items, groups, genuine)
    yield from _links(program, ledger)


def _read(ledger: Sequence[Image], program: Program) -> dict[Target, _Group]:
    """Return the groups of these rules."""
    groups: dict[Target, _Group] = {}
    for item in ledger:
        kind, _, rest = item["pk"]["S"].partition("|")
        rule, _, target = rest.partition("|")
        if kind not in ("G", "M") or rule not in program.recorded:
            continue
        group = groups.setdefault((rule, target), _Group())
        if kind == "M" and COUNT in item:
            group.counters[item["sk"]["S"]] = slot_in(item), int(item[COUNT]["N"])
        elif kind == "M":
            group.members.add(item["sk"]["S"])
        else:
            for name, value in item.items():
                if name == "version":
                    group.version += int(value["N"])
                elif is_amount(name):
                    group.amounts[name] = group.amounts.get(name, Decimal(0)) + Decimal(value["N"])
    return groups


def _entries(
    program: Program, snapshot: RegistrySnapshot, items: Mapping[ItemKey, Image], entries: Mapping[str, Image]
) -> Iterator[str]:
    """Compare each entry with its item."""
    evaluate = _evaluation(program)
    alone = {version.name for version in snapshot.versions.values() if version.lanes == 1}
    remaining = dict(entries)
    for source, item in entries.items():
        entry = Entry.read(item)
        if left := alone & entry.contributions.keys():
            yield f"ledger: the entry of {source} has a part of {', '.join(sorted(left))}, which lanes count alone"
        if entry.recent:
            yield f"ledger: the entry of {source} has a pending publish of {', '.join(sorted(entry.recent))}"
        if not (entry.contributions or entry.kept) and not entry.expires and decode_key(source) not in items:
            yield f"ledger: the entry of {source}, which is gone, never expires"
    for key, image in items.items():
        evaluated = without(evaluate(key, image), program.lanes)
        source = encode_key(key)
        known = remaining.pop(source, None)
        recorded = _of_rules(program, Entry.read(known).contributions) if known else {}
        if canonical_text(evaluated) != canonical_text(recorded):
            yield f"ledger: {source} contributes {_show(evaluated)}, its entry records {_show(recorded)}"
    for source, item in remaining.items():
        recorded = _of_rules(program, Entry.read(item).contributions)
        if recorded:
            yield f"ledger: {source} is gone, its entry records {_show(recorded)}"


def _evaluation(program: Program) -> Callable[[ItemKey, Image], Contributions]:
    """Return what evaluates an item. Where versions define an entity differently, each version does so alone."""
    if not program.alternates:
        return lambda key, image: program.evaluate(key, image).contributions
    alone = []
    for name in program.recorded:
        closed = json.loads(_ALTERNATE.sub(r'"\1"', json.dumps(program.closed_document(name))))
        entities = {entity: form for entity, form in program.document["entities"].items() if "@" not in entity}
        parts = {"entities": {**entities, **closed["entities"]}, "projections": {name: closed["rule"]}}
        alone.append(Program({**program.document, **parts}))

    def evaluate(key: ItemKey, image: Image) -> Contributions:
        evaluated: Contributions = {}
        for version in alone:
            evaluated = {**evaluated, **version.contributions(version.recognise(key, image)).contributions}
        return evaluated

    return evaluate


_ALTERNATE = re.compile(r'"(\w+)@\d+"')
"""The name of an alternate in a document."""


def _links(program: Program, ledger: Sequence[Image]) -> Iterator[str]:
    """Find links of rules that do not exist, or that are no embeds of several parents."""
    lists = {name for name, rule in program.embeds.items() if isinstance(rule, ListEmbedRule)}
    for item in ledger:
        rule = rule_of_link(item)
        if rule is not None and rule not in lists:
            yield f"ledger: {rule} has a link to {item['child']['S']}, and is no embed of several parents"


def _of_rules(program: Program, contributions: Contributions) -> Contributions:
    """Return an entry's contributions to versions that functions work with, and that lanes do not count."""
    return {
        rule: targets for rule, targets in contributions.items() if rule in program.rules and rule not in program.lanes
    }


def _groups_of_lanes(
    groups: Mapping[Target, _Group], items: Mapping[ItemKey, Image], program: Program, snapshot: RegistrySnapshot
) -> Iterator[str]:
    """Compare the groups that lanes count with the items. What has expired is on no item."""
    exact = {name for name, rule in program.lanes.items() if rule.expired != "keep" and not snapshot.versions[name].gap}
    sums: dict[Target, dict[str, Decimal]] = {target: {} for target in groups if target[0] in exact}
    evaluate = _evaluation(program)
    for key, image in items.items() if exact else ():
        for rule, targets in evaluate(key, image).items():
            for target, contributed in targets.items() if rule in exact else ():
                totals = sums.setdefault((rule, target), {})
                for slot, amount in contributed.items():
                    totals[slot] = totals.get(slot, Decimal(0)) + Decimal(amount)
    for group, totals in sums.items():
        held = groups.get(group, _NONE).amounts
        due, counted = ({slot: amount for slot, amount in each.items() if amount} for each in (totals, held))
        if due != counted:
            yield f"ledger: the group {group} holds {_amounts(counted)}, its items sum up to {_amounts(due)}"


def _groups(groups: Mapping[Target, _Group], entries: Mapping[str, Image], program: Program) -> Iterator[str]:
    sums: dict[Target, dict[str, Decimal]] = {}
    expected: dict[Target, set[str]] = {}
    values: dict[Target, dict[str, int]] = {}
    for source, item in entries.items():
        entry = Entry.read(item)
        for rule, targets in _of_rules(program, combine(entry.contributions, entry.kept)).items():
            for target, contributed in targets.items():
                group = rule, target
                totals = sums.setdefault(group, {})
                for slot, amount in contributed.items():
                    if slot == "+":
                        keys = [member_key(rule, target, member, source) for member in amount]
                        expected.setdefault(group, set()).update(key.sort or "" for key in keys)
                    elif slot == "%":
                        counted = values.setdefault(group, {})
                        for value, number in amount.items():
                            sort = counter_key(group, value).sort or ""
                            counted[sort] = counted.get(sort, 0) + number
                    else:
                        totals[slot] = totals.get(slot, Decimal(0)) + Decimal(amount)
    for group in dict.fromkeys([*sums, *groups]):
        if group[0] in program.lanes:
            continue
        known = groups.get(group, _NONE)
        due = {slot: amount for slot, amount in sums.get(group, {}).items() if amount}
        for slot, number in known.counters.values():
            due["%" + slot] = due.get("%" + slot, Decimal(0)) + 1
            if number <= 0:
                yield f"ledger: the group {group} has a value counter of {number}"
        counted = {sort: number for sort, (_, number) in known.counters.items()}
        if counted != values.get(group, {}):
            yield f"ledger: the value counters of {group} are {counted}, its entries have {values.get(group, {})}"
        held = {slot: amount for slot, amount in known.amounts.items() if amount}
        if due != held:
            yield f"ledger: the group {group} holds {_amounts(held)}, its entries sum up to {_amounts(due)}"
        due_members = expected.get(group, set())
        if due_members != known.members:
            extra, missing = sorted(known.members - due_members), sorted(due_members - known.members)
            yield f"ledger: the group {group} has unexpected members {extra} and lacks {missing}"


def _guards(
    program: Program,
    snapshot: RegistrySnapshot,
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
            version = group_at(snapshot.promotion(rule.name), group.version)
            if at > version:
                yield f"{encode_key(key)}: the guard of {rule.name} is at {at}, its group only at {version}"


def _amounts(amounts: Mapping[str, Decimal]) -> str:
    return json.dumps({slot: str(amount) for slot, amount in sorted(amounts.items())})


def _show(contributions: Contributions) -> str:
    return json.dumps(contributions, ensure_ascii=False)

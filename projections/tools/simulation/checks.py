"""What must hold when a history has come to rest: what the oracle says of the items, and what the ledger says of itself."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from projections.engine.guards import at_of, by_of
from projections.engine.ledger_items import Entry, group_at
from projections.engine.plan import Rejected, plan
from projections.engine.records import decode
from projections.engine.store import Image, ItemKey
from projections.errors import BadInput
from projections.language.contribution import canonical_text
from projections.language.embeds import EmbedRule
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.values import plain
from projections.tools.oracle import Oracle
from projections.tools.simulation.trace import image_text

__all__ = ["Checks", "Ended"]


@dataclass(frozen=True, slots=True)
class Ended:
    """Where a history came to rest, and what it went through."""

    items: Mapping[ItemKey, Image]
    ledger: Sequence[Image]
    expired: Sequence[Mapping[str, Any]]
    """Records of deletions by TTL."""
    records: Mapping[str, Mapping[str, Any]]
    """Every stream record, by sequence number."""
    rejected: Sequence[Rejected]


class Checks:
    """All checks for one rule file."""

    def __init__(self, program: Program, document: Mapping[str, Any]) -> None:
        self._program = program
        self._oracle = Oracle(document)
        self._group_guards = {program.guard(rule.name) for rules in program.ledger_rules.values() for rule in rules}

    def problems(self, ended: Ended) -> list[str]:
        """Everything that is wrong, in words; nothing if all is well."""
        return [*self._items(ended), *self._ledger(ended), *self._rejections(ended)]

    def written(self, key: ItemKey, before: Image | None, after: Image | None, *, tampered: bool) -> list[str]:
        """What is wrong with a write of the engine at the moment it is made, whatever becomes of it later.

        `tampered` says that the application has written guards, so that they may well go back.
        """
        item = self._program.recognise(key, after) if after is not None else None
        if before is None and (item is None or not item.entity.owned_by_rules):
            return [f"{encode_key(key)}: brought to life by the engine, which is the application's to do"]
        if item is None or after is None:
            return []
        if before is None:
            guards = [value for name, value in after.items() if name.startswith(self._program.guard_prefix)]
            if not item.entity.copied and all(guard["M"]["n"] == {"N": "0"} for guard in guards):
                return [f"{encode_key(key)}: brought to life by a rule to which nothing contributes"]
            return []
        problems = []
        for name in after if not tampered else ():
            back = name.startswith(self._program.guard_prefix) and at_of(after[name]) < at_of(before.get(name))
            if back and (by_of(after[name]) == by_of(before.get(name)) or name in self._group_guards):
                problems.append(f"{encode_key(key)}: the guard {name} went back from {before[name]} to {after[name]}")
        for rule in self._program.index_rules.get(item.entity.name, ()):
            names = [name for name, _, _ in rule.attributes if before.get(name) != after.get(name)]
            if not names:
                continue
            try:
                desired = rule.desired(item)
            except BadInput:
                desired = {}
            problems += [
                f"{encode_key(key)} {name}: {rule.name} wrote {_shown(after.get(name))} when other attributes said "
                f"{_shown(desired.get(name))}"
                for name in names
                if desired.get(name) != after.get(name)
            ]
        return problems

    # Items

    def _items(self, ended: Ended) -> Iterator[str]:
        program = self._program
        items: dict[str, list[Image]] = {name: [] for name in program.tables}
        for key, image in ended.items.items():
            items[key.table].append(image)
        for one in self._oracle.compare(items, self._settled(ended)):
            what = f"{one.key}" + (f" {one.attribute}" if one.attribute else "")
            yield f"{what}: is {_shown(one.actual)}, should be {_shown(one.expected)} (rule {one.rule})"

    def _settled(self, ended: Ended) -> list[tuple[str, Image]]:
        """What expired, for each rule that keeps what it contributed."""
        found = []
        for record in ended.expired:
            change = record["dynamodb"]
            table = record["eventSourceARN"].split("/")[1]
            key = self._program.tables[table].key(table, change["Keys"])
            item = self._program.recognise(key, change["OldImage"])
            if item is None:
                continue
            for rule in self._program.ledger_rules.get(item.entity.name, ()):
                if rule.expired == "keep":
                    found.append((rule.name, change["OldImage"]))
        return found

    # The ledger

    def _ledger(self, ended: Ended) -> Iterator[str]:
        program = self._program
        sums: dict[tuple[str, str], dict[str, Decimal]] = {}
        members: dict[str, set[str]] = {}
        entries: dict[str, Entry] = {}
        for item in ended.ledger:
            if not item["pk"]["S"].startswith("E|"):
                continue
            source = item["key"]["S"] if "key" in item else item["pk"]["S"][2:]
            entry = entries[source] = Entry.read(item)
            if entry.recent:
                yield f"ledger: the entry of {source} still owes {', '.join(sorted(entry.recent))}"
            if not entry.contributions and "ttl" not in item and decode_key(source) not in ended.items:
                yield f"ledger: the entry of {source}, which is gone, never expires"
            for rule, targets in entry.contributions.items():
                for target, contributed in targets.items():
                    totals = sums.setdefault((rule, target), {})
                    for slot, amount in contributed.items():
                        if slot == "+":
                            members.setdefault(f"M|{rule}|{target}", set()).update(f"{m}{source}" for m in amount)
                        else:
                            totals[slot] = totals.get(slot, Decimal(0)) + Decimal(amount)
        for key, image in ended.items.items():
            found = program.recognise(key, image)
            evaluated = program.contributions(found)
            source = encode_key(key)
            known = entries.pop(source, None)
            if canonical_text(evaluated.contributions) != canonical_text(known.contributions if known else {}):
                said = json.dumps(known.contributions if known else {}, ensure_ascii=False)
                yield f"ledger: {source} contributes {json.dumps(evaluated.contributions)}, its entry says {said}"
        for source, entry in entries.items():
            if entry.contributions:
                yield f"ledger: {source} is gone, its entry says {json.dumps(entry.contributions)}"
        yield from self._groups(ended, sums, members)

    def _groups(
        self,
        ended: Ended,
        sums: Mapping[tuple[str, str], Mapping[str, Decimal]],
        members: Mapping[str, set[str]],
    ) -> Iterator[str]:
        held: dict[tuple[str, str], dict[str, Decimal]] = {}
        versions: dict[tuple[str, str], int] = {}
        found: dict[str, set[str]] = {}
        for item in ended.ledger:
            kind, _, rest = item["pk"]["S"].partition("|")
            if kind == "M":
                _, slot, value = item["sk"]["S"].split("|", 2)
                found.setdefault(item["pk"]["S"], set()).add(f"{slot}|{value}")
            if kind != "G" or "order" in item:
                continue
            rule, _, target = rest.partition("|")
            target = item["key"]["S"] if "key" in item else target
            amounts = held.setdefault((rule, target), {})
            for name, value in item.items():
                if name == "version":
                    versions[rule, target] = versions.get((rule, target), 0) + int(value["N"])
                elif name == "n" or name[:1] in ("=", "#"):
                    amounts[name] = amounts.get(name, Decimal(0)) + Decimal(value["N"])
        for group in dict.fromkeys([*sums, *held]):
            expected = {slot: amount for slot, amount in sums.get(group, {}).items() if amount}
            actual = {slot: amount for slot, amount in held.get(group, {}).items() if amount}
            if expected != actual:
                yield f"ledger: the group {group} holds {_amounts(actual)}, its entries sum up to {_amounts(expected)}"
        for partition in dict.fromkeys([*members, *found]):
            expected_members, actual_members = members.get(partition, set()), found.get(partition, set())
            if expected_members != actual_members:
                extra, missing = sorted(actual_members - expected_members), sorted(expected_members - actual_members)
                yield f"ledger: {partition} has members too many {extra}, too few {missing}"
        yield from self._guards(ended, versions)

    def _guards(self, ended: Ended, versions: Mapping[tuple[str, str], int]) -> Iterator[str]:
        """No guard may be ahead of its group: it would lock out what the group says later.

        Of a guarded copy it may: every later change of the source then looks at the source.
        """
        program = self._program
        for key, image in ended.items.items():
            item = program.recognise(key, image)
            if item is None:
                continue
            for rule in program.ledger_rules_into.get(item.entity.name, ()):
                at = at_of(image.get(program.guard(rule.name)))
                version = group_at(0, versions.get((rule.name, encode_key(key)), 0))
                if at > version:
                    yield f"{encode_key(key)}: the guard of {rule.name} is at {at}, its group only at {version}"

    # Rejections

    def _rejections(self, ended: Ended) -> Iterator[str]:
        """Only what planning alone finds wrong with a record may be rejected, since all values here can be stored."""
        tables = {name: name for name in self._program.tables}
        for one in dict.fromkeys(ended.rejected):
            record = ended.records.get(one.sequence or "")
            if record is None:
                yield f"rejected, but there is no such record: {one}"
                continue
            alone = decode(record, tables, self._program.tables)
            expected = plan(self._program, [alone]).rejected
            if one not in expected and alone.new is not None:
                # an echo that came with the record that brought the mistake tells for both
                expected = [
                    replace(each, event=one.event) for each in plan(self._program, [replace(alone, old=None)]).rejected
                ]
            if one not in expected and not self._refers_badly(one, ended):
                yield f"rejected without need: {one.rule}, {one.key}: {one.reason}"

    def _refers_badly(self, one: Rejected, ended: Ended) -> bool:
        """Whether a child's reference was bad input at any time: a pull looks at what is there now, not at the record."""
        rule = self._program.rules.get(one.rule or "")
        key = decode_key(one.key or "|")
        if not isinstance(rule, EmbedRule):
            return False
        for record in ended.records.values():
            image = record["dynamodb"].get("NewImage")
            if image is not None and record["dynamodb"]["Keys"] == self._program.tables[key.table].wire(key):
                item = self._program.recognise(key, image)
                try:
                    if item is not None and item.entity is rule.into:
                        rule.reference(item)
                except BadInput as reason:
                    if str(reason) == one.reason:
                        return True
        return False


def _amounts(amounts: Mapping[str, Decimal]) -> str:
    return json.dumps({slot: str(amount) for slot, amount in sorted(amounts.items())})


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    if len(value) == 1 and next(iter(value)) in ("S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M"):
        return json.dumps(plain(value), ensure_ascii=False)
    return image_text(value)

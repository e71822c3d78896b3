"""Checks of a rule file: of each write of the engine, and of the tables at the end of a history against the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from projections.access.ranking import Published, Ranking
from projections.engine.guards import by_of, contributions_of, order_of
from projections.engine.indexes import index_write
from projections.engine.plan import plan
from projections.engine.records import decode
from projections.engine.registry import RegistrySnapshot
from projections.engine.rejections import Rejected
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.ranks import RankRule, range_of
from projections.language.rules import ItemRule
from projections.language.values import plain, same
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Expected, Oracle
from projections.testing.simulation import ledger_checks
from projections.testing.simulation.trace import image_text

OCCUPIED = "occupied:"
"""The beginning of the reason of a rejection because an item of another kind has the key."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a history, and what happened before."""

    items: Mapping[ItemKey, Image]
    ledger: Sequence[Image]
    expired: Sequence[Mapping[str, Any]]
    """Records of deletions by TTL."""
    records: Mapping[str, Mapping[str, Any]]
    """Every stream record, by sequence number."""
    rejected: Sequence[Rejected]
    refused: Sequence[Rejected]
    """Rejections of jobs."""
    programs: Sequence[Program]
    """All rules that were deployed."""
    genuine: Callable[[ItemKey, str, Value], bool]
    """Whether the engine wrote a guard on the item where it is."""
    touched: Collection[ItemKey] | None = ()
    """Items with values of rules that the application wrote. None if not every record was delivered to the same rules."""
    unheard: bool = False
    """Whether the stream was off for a while: the rule of a copy that lost its guard then is not known."""


class Checks:
    """All checks for one rule file."""

    def __init__(self, program: Program, document: Mapping[str, Any]) -> None:
        self._program = program
        self._oracle = Oracle(document)
        self._group_guards = {program.guard(rule.name) for rules in program.ledger_rules.values() for rule in rules}

    def problems(self, ended: Ended, program: Program, snapshot: RegistrySnapshot) -> list[str]:
        """Return a description of everything that is wrong. `program` has all versions that functions work with."""
        items: dict[str, list[Image]] = {name: [] for name in self._program.tables}
        for key, image in ended.items.items():
            items[key.table].append(image)
        expected = self._oracle.expect(items, self._settled_items(ended), ended.genuine)
        return [
            *self._items(ended, items, expected),
            *self._ranks(ended, expected, snapshot),
            *self._kept_values(ended),
            *ledger_checks.problems(program, snapshot, ended.items, ended.ledger, ended.genuine),
            *self._rejections(ended),
        ]

    def is_created_by_rules(self, key: ItemKey, image: Image) -> bool:
        """Whether an item is of an entity that only rules create."""
        item = self._program.recognise(key, image)
        return item is not None and item.entity.owned_by_rules

    def check_write(self, key: ItemKey, before: Image | None, after: Image | None, *, tampered: bool) -> list[str]:
        """Return what is wrong with a write of the engine when it is made.

        `tampered`: the application has written guards, so that guards may go back.
        """
        if before is None and after is not None and not self.is_created_by_rules(key, after):
            return [f"{encode_key(key)}: created by the engine, although only the application creates such items"]
        item = self._program.recognise(key, after)
        if item is None or after is None:
            return []
        if before is None:
            prefix = self._program.guard_prefix
            guards = [value for name, value in after.items() if name.startswith(prefix) and name != prefix]
            if not item.entity.copied and all(contributions_of(guard) == 0 for guard in guards):
                return [f"{encode_key(key)}: created by a rule without contributions"]
            return []
        problems = []
        for name in after if not tampered else ():
            back = name.startswith(self._program.guard_prefix) and order_of(after[name]) < order_of(before.get(name))
            if back and (by_of(after[name]) == by_of(before.get(name)) or name in self._group_guards):
                problems.append(f"{encode_key(key)}: the guard {name} went back from {before[name]} to {after[name]}")
        for rule in self._program.item_rules.get(item.entity.name, ()):
            names = [name for name in rule.owned() if before.get(name) != after.get(name)]
            if not names:
                continue
            read = item
            if not rule.removes:
                problems += [f"{encode_key(key)} {name}: {rule.name} set it again" for name in names if name in before]
                was = {name: value for name, value in after.items() if name not in rule.owned()}
                read = Item(item.entity, item.key, item.variables, was)
            try:
                desired = rule.desired(read)
            except BadInput:
                desired = {}
            problems += [
                f"{encode_key(key)} {name}: {rule.name} wrote {value_text(after.get(name))} instead of "
                f"{value_text(desired.get(name))}"
                for name in names
                if desired.get(name) != after.get(name)
            ]
        return problems

    # Items

    def _items(self, ended: Ended, items: Mapping[str, list[Image]], expected: Expected) -> Iterator[str]:
        reported = {bad.rule for bad in (*ended.rejected, *ended.refused) if bad.reason.startswith(OCCUPIED)}
        for key, rule in sorted(expected.occupied):
            if rule not in reported:
                yield f"{encode_key(key)}: the key is occupied, and no record of {rule} was rejected for it"
        for drift in self._oracle.differences(items, expected):
            guard = self._program.guard(drift.rule) if drift.rule is not None else ""
            if ended.unheard and guard and drift.attribute is None and drift.actual and guard not in drift.actual:
                continue
            what = f"{drift.key}" + (f" {drift.attribute}" if drift.attribute else "")
            yield f"{what}: is {value_text(drift.actual)}, should be {value_text(drift.expected)} (rule {drift.rule})"

    def _kept_values(self, ended: Ended) -> Iterator[str]:
        """Yield children of deleted parents, under `on_delete: keep`, that do not have the parent's last values.

        Only where the rule has written: where the guard names the parent. The others keep what they held.
        """
        rules = [rule for rule in self._oracle.embed_rules if rule.keep]
        if not rules or ended.touched is None:
            return
        parent_values: dict[tuple[str, ItemKey], tuple[object, Mapping[str, Value]]] = {}
        for record in ended.records.values():
            change = record["dynamodb"]
            table = record["eventSourceARN"].split("/")[1]
            key = self._program.tables[table].key(table, change["Keys"])
            known = self._oracle.recognise(key, change["NewImage"]) if "NewImage" in change else None
            for rule in rules:
                if known is not None and known[0] is rule.source:
                    image = change["NewImage"]
                    parent_values[rule.name, key] = rule.parent_reference(image, known[1]), rule.result(image, known[1])
        for key, image in ended.items.items():
            child = self._oracle.recognise(key, image) if key not in ended.touched else None
            for rule in rules if child is not None else ():
                guard = image.get(self._program.guard(rule.name))
                if (
                    child is None
                    or child[0] is not rule.into
                    or guard is None
                    or not ended.genuine(key, self._program.guard(rule.name), guard)
                ):
                    continue
                if "n" in guard["M"]:
                    continue  # it was put when its parent was gone, and the rule has written nothing else
                parent = decode_key(by_of(guard))
                there = self._oracle.recognise(parent, ended.items[parent]) if parent in ended.items else None
                reference, values = parent_values.get((rule.name, parent), (None, {}))
                gone = there is None or there[0] is not rule.source
                if not gone or reference is None or rule.references(image, child[1]) != reference:
                    continue
                for name in sorted(rule.attributes):
                    if not same(image.get(name), values.get(name)):
                        yield (
                            f"{encode_key(key)} {name}: is {value_text(image.get(name))}, but its deleted parent gave "
                            f"{value_text(values.get(name))} (rule {rule.name})"
                        )

    def _settled_items(self, ended: Ended) -> list[tuple[str, Image, str]]:
        """Return expired items with their tables, for each rule that keeps their contributions."""
        settled: list[tuple[str, Image, str]] = []
        for record in ended.expired:
            change = record["dynamodb"]
            table = record["eventSourceARN"].split("/")[1]
            key = self._program.tables[table].key(table, change["Keys"])
            item = self._program.recognise(key, change["OldImage"])
            if item is None:
                continue
            for rule in self._program.ledger_rules.get(item.entity.name, ()):
                if rule.expired == "keep":
                    settled.append((rule.name, change["OldImage"], table))
        return settled

    # Ranks

    def _ranks(self, ended: Ended, expected: Expected, snapshot: RegistrySnapshot) -> Iterator[str]:
        """Yield the boards whose ranks are not those of sorting."""
        rules = [rule for rule in self._program.recorded.values() if isinstance(rule, RankRule)]
        if not rules:
            return
        due = expected.scores
        store = MemoryStore({"ledger": LEDGER_SCHEMA})
        in_ledger: set[tuple[str, str]] = set()
        for image in ended.ledger:
            store.put("ledger", image)
            if image["pk"]["S"].startswith("G|") and is_range(image["pk"]["S"]):
                name, _, target = image["pk"]["S"][2:].partition("|")
                in_ledger.add((name, range_of(target)[0]))
        for rule in rules:
            boards = {encode_key(board): scores for (name, board), scores in due.items() if name == rule.name}
            version = replace(rule, name=snapshot.active[rule.name].name)
            boards = {**{board: [] for name, board in in_ledger if name == version.name}, **boards}
            for board, scores in sorted(boards.items()):
                wrong = _ranking_mistake(Ranking(store, Published(version, board)), scores, descending=rule.descending)
                if wrong is not None:
                    yield f"{board}: {wrong} (rule {rule.name}, scores {[[*map(str, score)] for score in scores]})"

    # Rejections

    def _rejections(self, ended: Ended) -> Iterator[str]:
        """Yield rejections without a reason: all values can be stored, so the plan of a record alone must reject it."""
        of_tasks: list[Rejected] = []
        for rejection in dict.fromkeys(ended.rejected):
            record = ended.records.get(rejection.sequence or "")
            if rejection.sequence is None and rejection.rule is not None:
                of_tasks.append(rejection)
            elif record is None:
                yield f"rejected, but there is no such record: {rejection}"
            elif not any(_is_due(program, rejection, record, ended) for program in ended.programs):
                yield f"rejected without a reason: {rejection.rule}, {rejection.key}: {rejection.reason}"
        for rejection in (*of_tasks, *ended.refused):
            if not any(_was_bad(program, rejection, ended) for program in ended.programs):
                yield f"rejected by a job without a reason: {rejection.rule}, {rejection.key}: {rejection.reason}"


def _ranking_mistake(ranking: Ranking, due: Sequence[tuple[Decimal, Decimal]], *, descending: bool) -> str | None:
    """Return the first answer of a ranking that is not that of sorting. `due` has scores, and what they add to sums."""
    scores = [score for score, _ in due]
    ordered = sorted(scores, reverse=descending)
    total = ranking.between().count
    if total != len(scores):
        return f"has {total} scores instead of {len(scores)}"
    for position, score in enumerate(ordered, 1):
        place, at = ranking.rank(score), ranking.at(position)
        first, last = ordered.index(score) + 1, len(ordered) - ordered[::-1].index(score)
        if (place.rank, place.equal) != (first, last - first + 1):
            return f"{score} has rank {place.rank} with {place.equal} equal scores, not {first} with {last - first + 1}"
        if at is None or (at.score, at.rank) != (score, first):
            return f"position {position} has {at} instead of {score}"
        least, most = sorted((score, ordered[0]))
        if (number := ranking.between(least, most).count) != last:
            return f"{number} scores are between {least} and {most} instead of {last}"
        if ranking.has_sums:
            total_due = sum((amount for each, amount in due if least <= each <= most), Decimal(0))
            if (amount := ranking.sum_between(least, most).sum) != total_due:
                return f"the sum between {least} and {most} is {amount} instead of {total_due}"
    return None


def _is_due(program: Program, rejection: Rejected, record: Mapping[str, Any], ended: Ended) -> bool:
    """Return whether a program has to reject a record."""
    alone = decode(record, {name: name for name in program.tables}, program.tables)
    expected = plan(program, [alone]).rejected
    if rejection not in expected and alone.new is not None:
        # the record of a derived value, in one batch with the record that brought the mistake, may report it too
        expected = [replace(each, event=rejection.event) for each in plan(program, [alone._replace(old=None)]).rejected]
    return rejection in expected or _refers_badly(program, rejection, ended) or _was_occupied(program, rejection, ended)


def _images(program: Program, key: ItemKey, ended: Ended) -> Iterator[Image]:
    """Yield all images of an item."""
    wire = program.tables[key.table].wire(key)
    for record in ended.records.values():
        image = record["dynamodb"].get("NewImage")
        if image is not None and record["dynamodb"]["Keys"] == wire:
            yield image


def _refers_badly(program: Program, rejection: Rejected, ended: Ended) -> bool:
    """Return whether a child's reference was ever bad input: a pull reads the current item, not the record."""
    rule = program.embeds.get(rejection.rule or "")
    key = decode_key(rejection.key or "|")
    if rule is None:
        return False
    for image in _images(program, key, ended):
        item = program.recognise(key, image)
        try:
            if item is not None and item.entity is rule.into:
                rule.references(item) if isinstance(rule, ListEmbedRule) else rule.reference(item)
        except BadInput as reason:
            if str(reason) == rejection.reason:
                return True
    return False


def _was_occupied(program: Program, rejection: Rejected, ended: Ended) -> bool:
    """Return whether there ever was an item of another kind under a key of the rule's targets."""
    if not rejection.reason.startswith(OCCUPIED):
        return False
    rules = [rule for rule in program.rules.values() if rejection.rule in (None, rule.name)]
    targets = {rule.into.name: rule.into for rule in rules if not isinstance(rule, ItemRule | EmbedRule)}
    for record in ended.records.values():
        change = record["dynamodb"]
        table = record["eventSourceARN"].split("/")[1]
        key = program.tables[table].key(table, change["Keys"])
        for into in targets.values() if "NewImage" in change else ():
            if into.at(key):
                item = program.recognise(key, change["NewImage"])
                if item is None or item.entity is not into:
                    return True
    return False


def _was_bad(program: Program, rejection: Rejected, ended: Ended) -> bool:
    """Return whether a rule could ever not be evaluated on the item, for this reason."""
    if _refers_badly(program, rejection, ended) or _was_occupied(program, rejection, ended):
        return True
    key = decode_key(rejection.key or "|")
    for image in _images(program, key, ended):
        item = program.recognise(key, image)
        if item is not None:
            problems = [*program.contributions(item).problems, *index_write(program, item)[1]]
            if (rejection.rule, rejection.reason) in problems:
                return True
    return False


def value_text(value: Any) -> str:
    """Return a value or an image for a message."""
    if value is None:
        return "absent"
    if len(value) == 1 and next(iter(value)) in ("S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS", "L", "M"):
        return json.dumps(plain(value), ensure_ascii=False)
    return image_text(value)

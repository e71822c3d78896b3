"""Partitions and ledger items that receive too many writes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

from projections.language.findings.kinds import FEW_PARTITIONS, HOT_GROUP, HOT_PARTITION, Remark, Severity
from projections.language.findings.rule_facts import Facts, KeySet, Made
from projections.language.models import Projection
from projections.language.syntax import Location
from projections.language.templates import Field

PARTITION_UNITS = 1000
"""Write units per second of one partition; it has three times as many read units."""
GROUP_TRANSACTIONS = 500
"""Transactions per second on one item: a transactional write costs two units."""

_BUCKETS = 8
_SHARDS = 10


def partitions(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about hot partitions of indexes and targets, and about hot groups."""
    for key in facts.index_keys:
        yield from _index(facts, key)
    yield from _inverted(facts)
    seen: set[str] = set()
    hot: set[str] = set()
    for name, rule in facts.variants:
        if name in hot or (name, rule.source) not in facts.target_keys:
            continue
        key = facts.target_keys[name, rule.source]
        few = _few(key, (*key.partition, *key.sort), f"{key.source} items")
        if few is not None:
            hot.add(name)
            yield from _group(facts, rule, key, few)
        elif rule.action.writes_items and key.entity not in seen and facts.made_by_rules(key.entity):
            found = list(_target(facts, key))
            if found:
                seen.add(key.entity)
            yield from found


class _Few(NamedTuple):
    """A key with few values: `items` describes the items that share one, `values` is the number of values."""

    items: str
    values: int
    severity: Severity

    def share(self, where: str) -> str:
        """Return `GSI1 has all items of one month in one partition, which accepts …`."""
        if self.values > 1:
            return f"{where} has {self.items} in {self.values} partitions, which accept {_UNITS} each"
        return f"{where} has {self.items} in one partition, which accepts {_UNITS}"


_UNITS = f"{PARTITION_UNITS:,} write units a second"


def _few(key: KeySet, made: Sequence[Made], noun: str = "items") -> _Few | None:
    """Return the limit of the values of these attributes together; None if one of them can have any number of values."""
    slots = [slot for one in made for slot in one.slots]
    dates = [pipe for slot in slots if (pipe := slot.piped("date"))]
    buckets = [int(pipe.arguments[0]) for slot in slots if (pipe := slot.piped("bucket"))]
    listed = {slot.name: len(key.listed[slot.name]) for slot in slots if slot.name in key.listed}
    if prod(buckets) > 1 or any(slot.name not in listed and not slot.piped("date", "bucket") for slot in slots):
        return None
    if dates:
        return _Few(f"all {noun} of one {_period(dates[0].arguments[0])}", 1, "note")
    count = prod(listed.values())
    if count > 1:
        return _Few(f"all {noun} (`where` allows {count} values of {' and '.join(listed)})", count, "warning")
    return _Few(f"all {noun}", 1, "warning")


def _period(form: str) -> str:
    """Return the period in which a date in this format stays the same."""
    periods = {
        "f": "moment",
        "S": "second",
        "M": "minute",
        "H": "hour",
        "d": "day",
        "j": "day",
        "u": "day",
        "V": "week",
    }
    return next((word for code, word in periods.items() if f"%{code}" in form), "month" if "%m" in form else "year")


def _index(facts: Facts, key: KeySet) -> Iterator[Remark]:
    few = _few(key, key.partition, f"{key.entity} items") if key.whole else None
    if few is not None and facts.variables(key.source):
        made = key.partition[0]
        yield Remark(
            HOT_PARTITION,
            made.place,
            f"{few.share(str(key.index))}; beyond that, writes to the table itself are throttled",
            _bucketed(facts, key, made),
            rated=few.severity,
        )


def _bucketed(facts: Facts, key: KeySet, made: Made) -> str:
    table = facts.table(key.source)
    text = f"{made.text}{table.separator}{{{facts.telling(key.source)}|bucket({_BUCKETS})}}"
    return (
        f'if writes may come faster, spread them, for example with "{text}": {_BUCKETS} partitions accept '
        f"{_BUCKETS * PARTITION_UNITS:,} a second; readers query all {_BUCKETS} and merge the results"
    )


def _inverted(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about indexes with the table's keys in reverse, if all targets of a rule share a partition there."""
    rules = (rule for rule in facts.projections.values() if rule.action.writes_items and not rule.action.on_source)
    for entity in dict.fromkeys(rule.into for rule in rules):
        table = facts.table(entity)
        keys = table.key_names
        template = facts.rules.entities[entity].key
        for index, made in table.indexes.items():
            if tuple(name for name, _ in made.partition) != keys[1:] or template[keys[1]].literal is None:
                continue
            if not template[keys[0]].fields:
                continue
            text = template[keys[1]].text
            yield Remark(
                HOT_PARTITION,
                ("entities", entity, "key", keys[1]),
                f'{index} has the keys of the table in reverse, and every {entity} has {keys[1]} "{text}": all are in '
                f"one partition of it, which accepts {PARTITION_UNITS:,} write units a second; beyond that, writes to the "
                "table itself are throttled",
                f"if writes may come faster, give {index} a partition key of its own, and set it only on items "
                f"that belong in the index",
                rated="note",
            )


def _target(facts: Facts, key: KeySet) -> Iterator[Remark]:
    few = _few(key, key.partition, f"{key.entity} items")
    bounded = all(slot.name in key.listed or slot.piped("date", "bucket") for made in key.sort for slot in made.slots)
    if few is not None and not bounded and facts.variables(key.source):
        made = key.partition[0]
        yield Remark(HOT_PARTITION, made.place, few.share("the table"), _bucketed(facts, key, made), rated=few.severity)


def _group(facts: Facts, rule: Projection, key: KeySet, few: _Few) -> Iterator[Remark]:
    if rule.action.makes_items or not facts.variables(key.source) or (rule.action.spread or 1) > 1:
        return
    sharded = rule.action.spread is not None
    made = next((one for one in (*key.partition, *key.sort) if "bind" in one.place), key.partition[0])
    into = "one item" if few.values == 1 else f"{few.values} items"
    its = "whose ledger item accepts" if few.values == 1 else "whose ledger items each accept"
    if sharded:
        place: Location = ("projections", str(key.rule), rule.kind)
        more = "the target stays one item" if rule.action.writes_items else "a rank reads more items"
        instead = (
            f"if {rule.source} items change faster, spread the totals with `shards: {_SHARDS}`: "
            f"{_SHARDS * GROUP_TRANSACTIONS:,} a second, and {more}"
        )
    else:
        place = made.place
        instead = (
            f"if {rule.source} items change faster, put a bucket into the target's key, such as "
            f"{{{facts.telling(rule.source)}|bucket({_BUCKETS})}}, and merge the results when reading"
        )
    yield Remark(
        HOT_GROUP,
        place,
        f"{few.items} contribute to {into}, {its} about {GROUP_TRANSACTIONS} transactions a second, each with up to 99 "
        "changes from one batch",
        instead,
        at_key=sharded,
        rated=few.severity if sharded else "note",
    )


_FEW = re.compile(
    r"(?i)(?:.*[._])?(?:is)?(?:country|countrycode|state|region|continent|status|type|kind|category|role|gender|language|"
    r"locale|currency|plan|tier|level|priority|stage|active|archived|enabled|published|visibility)"
)


def few_partitions(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about partition keys that probably have few values, of rule files that have queries."""
    if not facts.rules.queries:
        return
    for key in facts.index_keys:
        if key.whole and not key.listed.keys() & {slot.name for made in key.partition for slot in made.slots}:
            fields = [
                Field(slot.name, slot.pipes, expression=slot.expression)
                for made in key.partition
                for slot in made.slots
            ]
            yield from _few_values(fields, key.partition[0].place, f"{key.index} has {key.entity} items")
    for entity, declared in facts.rules.entities.items():
        if facts.made_by_rules(entity):
            continue  # its items are as many as the groups or sources of its rules
        attribute, *sort = facts.table(entity).key_names
        if sort and declared.key[sort[0]].names:
            fields = [*declared.key[attribute].fields]
            yield from _few_values(fields, ("entities", entity, "key", attribute), f"the table has {entity} items")


def _few_values(fields: list[Field], place: Location, what: str) -> Iterator[Remark]:
    names = [field.name for field in fields]
    if names and all(_FEW.fullmatch(field.name) and field.plain for field in fields):
        listed = " and ".join(names)
        yield Remark(
            FEW_PARTITIONS,
            place,
            f"{what} of one {listed} in one partition, and {listed} probably has few values, of which some are far more "
            "frequent",
            "add another attribute from `by` of the queries to the key, or a bucket; if there are few writes, accept this",
        )

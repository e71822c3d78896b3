"""The helpers of generated modules that read ranks: written as those in `runtime`, and copied with them."""

# fmt: off

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from random import randrange
from typing import Any, Generic

from boto3.dynamodb.conditions import Key

from projections.inspect.client.runtime import Item, Results, Scalar, T, Table, _text_of

_MAINTAINED = ("active", "filling", "ready", "standby")
_MOST_SKIPPED = 10_000
_EXACT = Context(prec=100)


@dataclass(frozen=True)
class RankRule:
    """A version of a rule that counts the scores of boards, and the key of a board."""

    name: str
    version: str
    board: Mapping[str, str]
    digits: int
    decimals: int
    descending: bool
    sums: bool

    def parts(self, score: Decimal) -> list[str]:
        """Return the digits of a score in twos, as the ledger counts them.

        Raises ValueError for a score that the rule does not count.
        """
        shifted = _shift(score, self.decimals)
        if score and (shifted.adjusted() >= self.digits or shifted != int(shifted)):
            raise ValueError(f"the rule {self.name} does not count the score {score}")
        width = (self.digits + 1) // 2 * 2
        text = f"{int(shifted) % 10**width:0{width}d}"
        first, *rest = (text[start : start + 2] for start in range(0, width, 2))
        return [f"-{first}" if shifted < 0 else first, *rest]

    def score(self, parts: Sequence[str]) -> Decimal:
        """Return the score of these digits."""
        text = "".join(parts)
        below = 10 ** (len(text) - 1) if text.startswith("-") else 0
        whole = int(text.removeprefix("-")) - below
        return Decimal(_text_of(_shift(Decimal(whole), -self.decimals)))

    def within(self, bound: Decimal, *, low: bool) -> list[str]:
        """Return the digits of the nearest score within a bound; none if there is none."""
        most = _shift(Decimal(10**self.digits - 1), -self.decimals)
        if abs(bound) > most:
            outside = (bound > 0) == low
            return [] if outside else self.parts(-most if low else most)
        shifted = _shift(bound, self.decimals)
        whole = shifted.to_integral_value(ROUND_CEILING if low else ROUND_FLOOR)
        return self.parts(_shift(whole, -self.decimals))


@dataclass(frozen=True)
class Ranked:
    """A score and its place: `rank` is 1 plus the number of better scores of the board.

    `equal` is how many have this score. With `complete` false, not all scores are
    counted: the rule fills, or a group is damaged.
    """

    score: Decimal
    rank: int
    equal: int
    total: int
    complete: bool

    @property
    def percentile(self) -> Decimal | None:
        """The percentage of scores that are equal or worse; None on an empty board."""
        covered = 100 * (self.total - self.rank + 1)
        return Decimal(covered) / self.total if self.total else None


@dataclass(frozen=True)
class ScoreCount:
    """The number of scores between two bounds, and of all. `complete` as in `Ranked`."""

    count: int
    total: int
    complete: bool


@dataclass(frozen=True)
class ScoreSum(ScoreCount):
    """A `ScoreCount`, with the exact sum over the counted scores."""

    sum: Decimal


@dataclass(frozen=True)
class Place:
    """A position, the score there, and how many equal ones are skipped before it."""

    position: int
    skipped: int
    score: Decimal | None
    total: int
    complete: bool
    ranked: Ranked | None = None


@dataclass(frozen=True)
class Positions(Generic[T]):
    """The items at consecutive positions of a board, from `first` on.

    `skipped` items with the score of the first one were read and left out: at most 10,000;
    after more, `first` is less than the position that was asked for. `complete` as in
    `Ranked`; also false if the rule has changed since this module was generated.
    """

    items: list[T]
    first: int
    skipped: int
    total: int
    complete: bool


class _Groups:
    """The groups of the ledger in which a version of a rule counts a board."""

    def __init__(self, ledger: Table, rule: RankRule, start: str, complete: bool):
        scale = f"{rule.digits}.{rule.decimals}" if rule.decimals else f"{rule.digits}"
        self._ledger = ledger
        self._start = f"{start}|%={scale}:"
        self.rule = rule
        self.complete = complete

    async def read(
        self, parts: Sequence[str]
    ) -> tuple[dict[str, int], int, dict[str, Decimal]]:
        """Return the scores that begin with these digits: counted by the next, and all.

        The last are their sums by the next digits, and under "" that of all.
        """
        key = Key("pk").eq(_ledger_key(self._start + "".join(parts)))
        arguments = {"KeyConditionExpression": key, "ConsistentRead": True}
        shards = await self._ledger.query(**arguments)
        counts: dict[str, int] = {"": 0}
        sums = {"": Decimal(0)}
        for name, value in [pair for item in shards["Items"] for pair in item.items()]:
            if name != "n" and name[0] not in "=+":
                continue
            if not isinstance(value, Decimal):
                self.complete = False
            elif name[0] == "+":
                for part in (name[1:], ""):
                    sums[part] = _EXACT.add(sums.get(part, Decimal(0)), value)
            else:
                counts[name[1:]] = counts.get(name[1:], 0) + int(value)
        return counts, counts.pop(""), sums

    async def beyond(
        self, parts: Sequence[str], *, greater: bool
    ) -> tuple[int, int, int, Decimal]:
        """Return how many scores are greater, or less, how many are equal, and all.

        The last is the sum over those that are greater, or less.
        """
        beyond = equal = total = 0
        amount = Decimal(0)
        for level, part in enumerate(parts):
            counts, number, sums = await self.read(parts[:level])
            total = total if level else number
            equal = counts.get(part, 0)
            for other in counts:
                if other != part and (other > part) == greater:
                    beyond += counts[other]
                    amount = _EXACT.add(amount, sums.get(other, Decimal(0)))
        return beyond, equal, total, amount

    async def between(self, low: Scalar | None, high: Scalar | None) -> ScoreSum:
        """Return the scores between two bounds."""
        _, total, sums = await self.read([])
        count, amount = total, sums[""]
        for bound, is_low in ((low, True), (high, False)):
            if bound is not None:
                parts = self.rule.within(_finite(bound), low=is_low)
                outside, _, _, beyond = await self.beyond(parts, greater=not is_low)
                count -= outside if parts else total
                amount = _EXACT.subtract(amount, beyond)
        exact = Decimal(_text_of(amount)) if count > 0 else Decimal(0)
        return ScoreSum(max(0, count), total, self.complete, exact)


class Ranking:
    """The ranks of one board. Each method reads the ledger, strongly consistently.

    That is a request for the registry, which names the published version of the rule, and
    one for each two digits of a score.
    """

    def __init__(self, ledger: Table, rule: RankRule, table: str, key: Item) -> None:
        texts = [_text_of(part) for part in key.values()]
        escaped = [text.replace("%", "%25").replace("|", "%7C") for text in texts]
        self._ledger = ledger
        self._rule = rule
        self._board = "|".join([table, *escaped])

    async def rank(self, score: Scalar) -> Ranked:
        """Return the rank of a score, which no item needs to have. Raises ValueError."""
        number = _finite(score)
        groups = await self._published()
        parts, greater = groups.rule.parts(number), groups.rule.descending
        better, equal, total, _ = await groups.beyond(parts, greater=greater)
        return Ranked(number, 1 + better, equal, total, groups.complete)

    async def between(
        self, low: Scalar | None = None, high: Scalar | None = None
    ) -> ScoreCount:
        """Return the number of scores from `low` to `high`, both included.

        None is no bound. A bound may have more digits than scores have.
        """
        groups = await self._published()
        between = await groups.between(low, high)
        return ScoreCount(between.count, between.total, between.complete)

    async def sum_between(
        self, low: Scalar | None = None, high: Scalar | None = None
    ) -> ScoreSum:
        """Return the sum over the scores that `between` counts, and their number.

        Raises ValueError if the published version of the rule has no `sum`.
        """
        groups = await self._published()
        if not groups.rule.sums:
            raise ValueError(f"the rule {groups.rule.name} has no `sum`")
        return await groups.between(low, high)

    async def at(self, position: int) -> Ranked | None:
        """Return the score at a position, 1 for the best; None if there are fewer."""
        place = await self.place(position)
        return place.ranked

    async def place(
        self, position: int | None = None, *, unsigned: bool = False
    ) -> Place:
        """Return a position, or a random one, with its score. Raises ValueError.

        With `unsigned`, the index has no items with negative scores.
        """
        if position is not None and position < 1:
            raise ValueError("the best score has position 1")
        groups = await self._published()
        rule, better, equal = groups.rule, 0, 0
        counts, total, _ = await groups.read([])
        first = randrange(total or 1) + 1 if position is None else position
        parts: list[str] = []
        while first <= total:
            for part in sorted(counts, reverse=rule.descending):
                equal = max(0, counts[part])
                if better + equal >= first:
                    break
                better += equal
            else:  # a score has changed since the first group was read
                return Place(first, 0, None, total, complete=False)
            parts.append(part)
            if 2 * len(parts) >= rule.digits:
                break
            counts, _, _ = await groups.read(parts)
        complete = groups.complete and rule == self._rule
        if first > total:
            return Place(first, 0, None, total, complete)
        ranked = Ranked(rule.score(parts), 1 + better, equal, total, groups.complete)
        skipped = first - ranked.rank
        if skipped > _MOST_SKIPPED:
            skipped = _MOST_SKIPPED if position else randrange(_MOST_SKIPPED + 1)
        first = ranked.rank + skipped
        if unsigned and ranked.score < 0:
            return Place(first, skipped, None, total, False, ranked)
        return Place(first, skipped, ranked.score, total, complete, ranked)

    async def _published(self) -> _Groups:
        """Return the groups of the published version; without one, of that which fills."""
        rule, number, fills = self._rule, 0, True
        registry = await self._item(".")
        known = registry.get("rules", {}).get(rule.name, {})
        versions = [
            (fields["s"] != "active", int(text), fields["f"])
            for text, fields in known.items()
            if text != "next" and fields["s"] in _MAINTAINED
        ]
        if versions:
            fills, number, version = min(versions)
            if version != rule.version:
                item = await self._item(f"rule|{rule.name}.{number}")
                rule = _rank_rule(rule.name, version, json.loads(item["document"]))
                if rule.board != self._rule.board:
                    raise ValueError("the key has changed: generate this module again")
        start = f"G|{rule.name}.{number}|{self._board}"
        return _Groups(self._ledger, rule, start, complete=not fills)

    async def _item(self, sort: str) -> Any:
        """Return an item of the registry, empty if there is none."""
        key = {"pk": "R", "sk": sort}
        response = await self._ledger.get_item(Key=key, ConsistentRead=True)
        return response.get("Item", {})


def _rank_rule(name: str, version: str, document: Item) -> RankRule:
    """Return another version of a rule than this module knows."""
    rank = document["rule"]["rank"]
    board, best = document["entities"][rank["into"]]["key"], rank["order"]
    digits, decimals, sums = rank["digits"], rank["decimals"], "sum" in rank
    return RankRule(name, version, board, digits, decimals, best == "desc", sums)


async def _positions(
    results: Results[T], place: Place, first: int, last: int
) -> Positions[T]:
    """Return the items from a place on: as many as there are positions."""
    items: list[T] = []
    if last < first:
        raise ValueError("the last position is less than the first one")
    if place.score is not None:
        most = place.skipped + 1 + last - first
        size = most - place.skipped + place.skipped // len(results._stages[0])
        async for _, _, item in results._items({}, min(size, 10_000)):
            items.append(results._show(item))
            if len(items) == most:
                break
    shown = items[place.skipped :]
    return Positions(shown, place.position, place.skipped, place.total, place.complete)


async def _random(results: Results[T], place: Place) -> T | None:
    """Return the first item from a place on; None if there is none."""
    page = await _positions(results, place, 1, 1)
    return page.items[0] if page.items else None


def _finite(score: Scalar) -> Decimal:
    """Return a number. Raises ValueError."""
    try:
        number = Decimal(score)
    except ArithmeticError:
        number = Decimal("NaN")
    if not number.is_finite():
        raise ValueError(f"not a number: {score!r}")
    return number


def _shift(number: Decimal, places: int) -> Decimal:
    """Return a number times a power of 10: exact, however many digits it has."""
    sign, digits, exponent = number.as_tuple()
    return Decimal((sign, digits, int(exponent) + places))


def _ledger_key(text: str) -> str:
    """Return the partition key of a group: a long one ends in a hash."""
    encoded = text.encode()
    head = text[: sum(byte & 0xC0 != 0x80 for byte in encoded[:1502])]
    return text if head == text else f"{head}#{hashlib.sha256(encoded).hexdigest()}"

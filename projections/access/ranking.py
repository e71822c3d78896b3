"""Ranks of scores, read from the groups that a `rank` rule keeps in the ledger.

A score is counted in one group for each two digits: `language.ranks` describes the groups. The number of better scores is
the sum, over these groups, of the counters of better parts. So a rank takes one request, which reads at most one item for
each two digits (in shards: one for each shard of the first two groups). The score at a rank takes one request for each
group, since the counters of one group select the next.

A request reads each group as it is at that moment. While scores change, two groups may be from different moments; a rank is
then that of a board on which some of these changes have happened. Each request also reads the registry: the groups are those
of the version of the rule that is published now, with its digits and its keys of boards.

The items at positions are read by a query that lists them in the order of their scores (`language.access.board_listing`):
from the score at the first position on, without the items of this score that come before it. Groups and index are from
different moments, so nothing ensures that the item at a position has the rank of that position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from decimal import Decimal, InvalidOperation
from functools import cache, partial, reduce
from random import randrange
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from projections.access.answers import Answer, answer_to, reader_of
from projections.access.look import GroupReads
from projections.engine.changes import WIDE
from projections.engine.groups import Group
from projections.engine.registry import REGISTRY, Registry, RegistrySnapshot
from projections.engine.store import Store, Value
from projections.errors import BadInput, Transient, UsageError
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.ranks import RankRule
from projections.language.rules import public_name
from projections.language.syntax import suggest
from projections.language.values import number_text, plain, wire

if TYPE_CHECKING:
    from projections.language.access.board_listing import Listing
    from projections.language.access.plan import Query

T = TypeVar("T")

_MOST_TRIES = 3

MOST_SKIPPED = 10_000
"""The most items of one score that are read and left out because they come before a position."""

_Score = Decimal | int | str


@dataclass(frozen=True, slots=True)
class Ranked:
    """A score and its place among all scores of a board.

    `rank` is 1 plus the number of better scores, so equal scores share a rank. `equal` is how many have this score, 0 if
    none has. With `complete` false, not all scores are counted: the rule fills, or a group is damaged.
    """

    score: Decimal
    rank: int
    equal: int
    total: int
    complete: bool = True

    @property
    def percentile(self) -> Decimal | None:
        """The percentage of scores that are equal or worse; None on a board without scores."""
        return Decimal(100 * (self.total - self.rank + 1)) / self.total if self.total else None

    def document(self) -> dict[str, Any]:
        """Return the JSON. The percentile has at most 4 decimal places."""
        percentile = None if self.percentile is None else float(round(self.percentile, 4))
        counts = {"rank": self.rank, "equal": self.equal, "total": self.total}
        score = plain({"N": number_text(self.score)})
        return {"score": score, **counts, "percentile": percentile, "complete": self.complete}


@dataclass(frozen=True, slots=True)
class ScoreCount:
    """The number of scores between two bounds, both included, and of all scores of the board. `complete` as in `Ranked`."""

    count: int
    total: int
    complete: bool = True

    def document(self) -> dict[str, Any]:
        """Return the JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ScoreSum(ScoreCount):
    """A `ScoreCount`, with the exact sum over the counted scores."""

    sum: Decimal = Decimal(0)

    def document(self) -> dict[str, Any]:
        """Return the JSON."""
        return {**asdict(self), "sum": plain({"N": number_text(self.sum)})}


@dataclass(frozen=True, slots=True)
class Positions:
    """The items at consecutive positions of a board, from `first` on, and the number of all scores.

    `skipped` items with the score of the first one were read and left out. They are at most 10,000: after more, `first` is
    less than the position that was asked for. `complete` as in `Ranked`; also false if the published version of the rule is
    not that of the rule file. While scores change, one page may repeat an item of another, or miss one.
    """

    items: list[dict[str, Any]]
    first: int
    total: int
    skipped: int = 0
    complete: bool = True


class _Place(NamedTuple):
    """A position, and the score there, None if there is none; with the number of all scores.

    `whole` is false if a score has changed while the groups were read, so that they do not agree.
    """

    position: int
    ranked: Ranked | None
    total: int
    whole: bool = True


class Published(NamedTuple):
    """The version of a rule that is read: the encoded key of the board under it, and whether all scores are counted.

    `declared` tells whether it is the rule as the rule file has it, so that a query of the file lists what it counts.
    """

    rule: RankRule
    board: str
    complete: bool = True
    declared: bool = True


class _Changed(Exception):
    """The registry has changed since the version was found."""


class Ranking:
    """The ranks of one board. Each method reads the ledger; `positions` and `random` also run a query on a table.

    `find` returns the version to read by the registry as it is. Without it, that is always the same. `items_from` returns
    the answer with the items from a score on, None if the query cannot list any; it raises UsageError if there is no query.
    """

    def __init__(
        self,
        store: Store,
        version: Published,
        snapshot: RegistrySnapshot | None = None,
        find: Callable[[RegistrySnapshot], Published] | None = None,
        items_from: Callable[[Decimal], Answer | None] | None = None,
    ) -> None:
        self._store = store
        self._version = version
        self._snapshot = snapshot
        self._find = find
        self._items_from = items_from

    @property
    def complete(self) -> bool:
        """Whether the rule was published, so that all scores are counted, when it was last read."""
        return self._version.complete

    @property
    def has_sums(self) -> bool:
        """Whether the version of the rule that was last read has a `sum`."""
        return self._rule.amount is not None

    @property
    def _rule(self) -> RankRule:
        return self._version.rule

    def _answer(self, work: Callable[[], T]) -> T:
        """Return an answer by the registry as it is."""
        for _ in range(_MOST_TRIES):
            with suppress(_Changed):
                return work()
        raise Transient("the registry keeps changing")

    def rank(self, score: _Score) -> Ranked:
        """Return the rank of a score, which no item needs to have. One request. Raises UsageError for an invalid score."""
        return self._answer(partial(self._rank, _number(score)))

    def _rank(self, value: Decimal) -> Ranked:
        parts = self._parts(value)
        groups = self._read(self._names(parts))
        better, equal = self._beyond(parts, groups, greater=self._rule.descending)
        return Ranked(value, 1 + better, equal, groups[0].totals.n, self._whole(groups))

    def at(self, position: int) -> Ranked | None:
        """Return the score at a position, 1 for the best, in the order of the board; None if there are fewer scores.

        Equal scores take as many positions as there are of them. One request for each two digits. Raises UsageError.
        """
        return self._place(_position(position)).ranked

    def positions(self, first: int, last: int) -> Positions:
        """Return the items at the positions from `first` to `last`, both included: fewer at the end of the board.

        Equal scores are in the order of the index. One request for each two digits, then those of the query, which also
        reads the items that are skipped (see `Positions`). Raises UsageError for invalid positions, and if no query of the
        rule file lists the items of the board in the order of their scores.
        """
        if last < _position(first):
            raise UsageError(f"the last position is {last}, and the first is {first}")
        return self._items(first, last - first + 1)

    def random(self) -> dict[str, Any] | None:
        """Return the item at a random position; None if the board is empty, or the item has just changed its score.

        All items are equally likely; of one score, only the first 10,001 are ever returned. Takes the requests of
        `positions`, and raises UsageError as it does.
        """
        items = self._items(None, 1).items
        return items[0] if items else None

    def _items(self, first: int | None, count: int) -> Positions:
        """Return items from a position on; without one, from a random position."""
        items_from = self._items_from
        if items_from is None:
            raise UsageError("this ranking reads no items")
        items_from(Decimal(0))  # reports mistakes before it reads
        place = self._place(first)
        ranked, total = place.ranked, place.total
        answer = items_from(ranked.score) if ranked is not None else None
        if ranked is None or answer is None:
            return Positions([], place.position, total, complete=self.complete and place.whole and ranked is None)
        skipped = place.position - ranked.rank
        if skipped > MOST_SKIPPED:
            skipped = MOST_SKIPPED if first is not None else randrange(MOST_SKIPPED + 1)
        complete = ranked.complete and self._version.declared
        return Positions(answer.after(skipped, count).items, ranked.rank + skipped, total, skipped, complete)

    def between(self, low: _Score | None = None, high: _Score | None = None) -> ScoreCount:
        """Return the number of scores from `low` to `high`, both included; None is no bound. One request.

        A bound may have more digits than scores have. Raises UsageError if it is not a number.
        """
        between = self._answer(partial(self._between, low, high))
        return ScoreCount(between.count, between.total, between.complete)

    def sum_between(self, low: _Score | None = None, high: _Score | None = None) -> ScoreSum:
        """Return the sum over the scores that `between` counts, and their number. One request.

        Raises UsageError as `between`, and if the published version of the rule has no `sum`.
        """
        between = self._answer(partial(self._between, low, high))
        if not self.has_sums:
            name = public_name(self._rule.name)
            raise UsageError(
                f"{name}: the published version has no `sum`. Add it to the rule, then run `projections apply`"
            )
        return between

    def _between(self, low: _Score | None, high: _Score | None) -> ScoreSum:
        bounds: list[tuple[str, ...] | None] = [None, None]
        none = False
        for place, bound in enumerate((low, high)):
            if bound is not None:
                within = self._rule.scale.bound(_number(bound), low=place == 0)
                bounds[place] = self._parts(within) if within is not None else None
                none = none or within is None
        names = [name for parts in bounds if parts is not None for name in self._names(parts)]
        groups = dict(zip(names, self._read(names), strict=True)) if names else {}
        first = groups.get(self._name(())) or self._read([self._name(())])[0]
        total = first.totals.n
        count = 0 if none else total
        sums = [*_amounts(first, "+").values()]
        for parts, above in zip(bounds, (False, True), strict=True):
            if parts is not None:
                path = [groups[name] for name in self._names(parts)]
                outside, _ = self._beyond(parts, path, greater=above)
                count -= outside
                for part, group in zip(parts, path, strict=True):
                    others = _amounts(group, "+").items()
                    sums += [each.copy_negate() for other, each in others if other != part and (other > part) == above]
        amount = Decimal(number_text(reduce(WIDE.add, sums, Decimal(0)))) if count > 0 else Decimal(0)
        return ScoreSum(max(0, count), total, self._whole([first, *groups.values()]), amount)

    # Scores

    def _parts(self, score: Decimal) -> tuple[str, ...]:
        try:
            return self._rule.scale.parts(score)
        except BadInput as error:
            raise UsageError(str(error).partition(": ")[0]) from None

    # Groups

    def _name(self, parts: Sequence[str]) -> str:
        return self._rule.scale.group(self._version.board, parts)

    def _names(self, parts: Sequence[str]) -> list[str]:
        return [self._name(parts[:level]) for level in range(len(parts))]

    def _read(self, names: Sequence[str]) -> list[Group]:
        """Return groups in the order of their names. One request, unless there are more shards."""
        reads, registry = GroupReads((self._rule, name) for name in names), [REGISTRY] if self._find is not None else []
        items = self._store.get_many([*registry, *reads.keys()])
        if self._find is not None and REGISTRY in items:
            snapshot = RegistrySnapshot.read(items[REGISTRY])
            if snapshot != self._snapshot:
                self._version, self._snapshot = self._find(snapshot), snapshot
                raise _Changed
        while not reads.complete(items):
            items = self._store.get_many(reads.keys())
        groups = reads.groups(items)
        return [groups[self._rule.name, name] for name in names]

    def _whole(self, groups: Iterable[Group]) -> bool:
        return self.complete and not any(group.damaged for group in groups)

    def _beyond(self, parts: Sequence[str], groups: Sequence[Group], *, greater: bool) -> tuple[int, int]:
        """Return the number of scores that are greater, or less, than a score, and of those that are equal."""
        beyond = equal = 0
        for part, group in zip(parts, groups, strict=True):
            counts = _counts(group)
            beyond += sum(count for other, count in counts.items() if (other > part if greater else other < part))
            equal = counts.get(part, 0)
        return beyond, equal

    def _place(self, position: int | None) -> _Place:
        """Return the score at a position, or at a random one."""
        for _ in range(_MOST_TRIES):
            place = self._answer(partial(self._walk, position))
            if place.whole:
                break
        return place

    def _walk(self, position: int | None) -> _Place:
        parts: list[str] = []
        better = total = remaining = equal = 0
        whole = self.complete
        for level in range(self._rule.scale.levels):
            (group,) = self._read([self._name(parts)])
            whole = whole and self._whole([group])
            if level == 0:
                total = group.totals.n
                position = randrange(max(1, total)) + 1 if position is None else position
                remaining = position
                if remaining > total:
                    return _Place(position, None, total)
            counts = [(part, count) for part, count in _counts(group).items() if count > 0]
            for part, equal in sorted(counts, reverse=self._rule.descending):
                if remaining <= equal:
                    parts.append(part)
                    break
                remaining -= equal
                better += equal
            else:
                return _Place(position or 1, None, total, whole=False)
        ranked = Ranked(self._rule.scale.score(parts), 1 + better, equal, total, whole)
        return _Place(position or 1, ranked, total)


def _counts(group: Group) -> Mapping[str, int]:
    """Return the counters of a group by part. Parts have the order of texts: a minus sign comes before all digits."""
    return {part: int(amount) for part, amount in _amounts(group, "=").items()}


def _amounts(group: Group, mark: str) -> Mapping[str, Decimal]:
    """Return the amounts of the slots that begin with a mark: by part `=` the counters, `+` the sums."""
    return {slot[1:]: amount for slot, amount in group.totals.amounts.items() if slot[0] == mark}


def _position(position: int) -> int:
    if position < 1:
        raise UsageError(f"the position is {position}. The best score has position 1")
    return position


def _number(value: _Score) -> Decimal:
    try:
        number = Decimal(value)
    except (InvalidOperation, ValueError, TypeError):
        number = Decimal("NaN")
    if not number.is_finite() or isinstance(value, bool | float):
        raise UsageError(f"the score is {value!r}. It is a number, such as 1250 or -3.5")
    return number


def ranking_of(
    program: Program, store: Store, name: str, board: Mapping[str, Any], queries: Mapping[str, Query] | None = None
) -> Ranking:
    """Return the ranking of the board with these key variables, by a `rank` rule. Reads the registry.

    `queries` are those of the rule file. Raises UsageError as `check_board`.
    """
    rule, key = check_board(program, name, board)
    registry = Registry(program, store, filled=False)

    def find(snapshot: RegistrySnapshot) -> Published:
        """Find the version that is published; without one, that which fills."""
        _, compiled = registry.readable(snapshot)
        versions = [each for each in compiled.recorded.values() if public_name(each.name) == name]
        version = min(versions, key=lambda each: each.held, default=None)
        if not isinstance(version, RankRule):
            raise UsageError(f"{name}: the registry has no rank that this package can read. Run `projections apply`")
        declared = version.fingerprint == rule.fingerprint
        return Published(version, _board_key(version, board), snapshot.publishes(version), declared)

    @cache
    def listing() -> Listing:
        from projections.language.access import board_listing

        first_listing = board_listing.board_listing(program.model, name, queries or {})
        if first_listing is None:
            raise UsageError(board_listing.missing_listing(program.model, name))
        return first_listing

    def items_from(score: Decimal) -> Answer | None:
        if listing().unsigned and score < 0:
            return None
        values = {parameter: board[variable] for parameter, variable in listing().board.items()}
        values[f"{listing().query.range}.{listing().bound}"] = score
        return answer_to(program, listing().plan, values, reader_of(store))

    snapshot = registry.read()
    published = find(snapshot) if snapshot is not None else Published(rule, key)
    return Ranking(store, published, snapshot, find, items_from)


def check_board(program: Program, name: str, board: Mapping[str, Any]) -> tuple[RankRule, str]:
    """Return a `rank` rule, and the encoded key of the board with these key variables.

    Raises UsageError for an unknown rule, and for other variables than those of the board's key.
    """
    ranks = [rule.name for rule in program.rules.values() if isinstance(rule, RankRule)]
    rule = program.rules.get(name)
    if not isinstance(rule, RankRule):
        known = f"rule {name} is of the kind {rule.kind}" if rule is not None else f'unknown rule "{name}"'
        raise UsageError(f"{known}{suggest(name, ranks)}. Rules of the kind rank: {', '.join(ranks) or 'none'}")
    return rule, _board_key(rule, board)


def _board_key(rule: RankRule, board: Mapping[str, Any]) -> str:
    variables = list(dict.fromkeys(name for pattern in rule.into.patterns for name in pattern.names))
    for name in board:
        if name not in variables:
            hint = suggest(name, variables) or f"; its variables are {', '.join(variables) or 'none'}"
            raise UsageError(f'the key of {rule.into.name} has no variable "{name}"{hint}')
    if missing := [name for name in variables if name not in board]:
        values_of = " ".join(f"{name}=VALUE" for name in missing)
        raise UsageError(f"the key of {rule.into.name} needs {', '.join(missing)}: pass {values_of}")
    values: dict[str, Value] = {name: wire(value) for name, value in board.items()}
    try:
        key = rule.into.target_key(values.get)
    except BadInput as error:
        raise UsageError(str(error)) from None
    assert key is not None
    return encode_key(key)

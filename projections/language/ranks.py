"""Compiled rules of kind `rank`: scores as digits, the groups in which they are counted, and the names of the groups.

A score is multiplied by 10 to the power of `decimals`, which must give a whole number of at most `digits` digits. These are
filled with zeros to an even number and divided into parts of two. Each part is counted in the group that is named after the
parts before it. So `1234` of 4 digits is counted in two groups: under `12` in the group of all scores of the board, and
under `34` in the group of the scores that begin with `12`. With a `sum`, a group also has the sum of what the scores of each
part bring: `+12` beside the counter `=12`.

A group has at most 100 counters, which fit into 1 KB. (The first group of a board with scores of both signs has up to 200.)
With a `sum` a full group has about 2 KB.
With one digit for each group there would be twice as many groups to update and to read; with three, a full group would have
7 KB.

Negative scores are counted by their complement, so that they are in order too: -1 of 4 digits is `-99`, `99`, and -9999 is
`-00`, `01`. Only the first part has the sign.

Pure. A reader needs only the names of the groups and their counters; it is independent of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import reduce
from typing import Any, NamedTuple

from projections.errors import BadInput
from projections.language.arithmetic import Expression
from projections.language.contribution import Contributed, check_amount, merge
from projections.language.entity import Item, Refused, Resolve, ignore
from projections.language.keys import RANGE, Image, Value, encode_key
from projections.language.rules import MOST_OF_A_KEY, LedgerRule, MemberQuery, Members, Totals
from projections.language.values import EXACT, number_text

MOST_DIGITS = 18

WIDTH = 2
"""The digits of a part."""


class Scale(NamedTuple):
    """The scores of a rule: at most `digits` digits, of which `decimals` are after the decimal point."""

    digits: int
    decimals: int = 0

    @property
    def levels(self) -> int:
        """The number of groups in which a score is counted."""
        return -(-self.digits // WIDTH)

    def parts(self, score: Decimal) -> tuple[str, ...]:
        """Return the parts of a score. Raises BadInput if it has too many digits, or is not a whole number of its steps."""
        if not score.is_finite() or (score and score.adjusted() >= self.digits - self.decimals):
            before = self.digits - self.decimals
            of = f"{before} digits before the decimal point" if self.decimals else f"{before} digits"
            shown = number_text(score)[:40]
            raise BadInput(
                f"the score {shown} has more than {of}: correct the item, or declare more `digits` in the rule"
            )
        whole = int(shifted := EXACT.scaleb(score, self.decimals))
        if whole != shifted:
            places = f"more than {self.decimals} decimal places" if self.decimals else "decimal places"
            raise BadInput(
                f"the score {number_text(score)} has {places}: correct the item, or declare more `decimals` in the rule"
            )
        width = self.levels * WIDTH
        text = f"{whole + 10**width if whole < 0 else whole:0{width}d}"
        first, *rest = (text[start : start + WIDTH] for start in range(0, width, WIDTH))
        return ("-" + first if whole < 0 else first, *rest)

    def bound(self, bound: Decimal, *, low: bool) -> Decimal | None:
        """Return the nearest score within a lower or upper bound, which may have more digits; None if there is none."""
        most = Decimal(10**self.digits - 1).scaleb(-self.decimals)
        if abs(bound) > most:
            return None if (bound > 0) == low else -most if low else most
        return bound.quantize(Decimal(1).scaleb(-self.decimals), ROUND_CEILING if low else ROUND_FLOOR)

    def score(self, parts: Sequence[str]) -> Decimal:
        """Return the score of these parts."""
        text = "".join(parts)
        whole = int(text[1:]) - 10 ** (self.levels * WIDTH) if text.startswith("-") else int(text)
        return Decimal(number_text(Decimal(whole).scaleb(-self.decimals)))

    def group(self, board: str, parts: Sequence[str]) -> str:
        """Return the name of the group of scores that begin with these parts, by the encoded key of the board."""
        scale = f"{self.digits}.{self.decimals}" if self.decimals else str(self.digits)
        return f"{board}{RANGE}{scale}:{''.join(parts)}"


def range_of(target: str) -> tuple[str, str]:
    """Return the encoded key of the board of a group, and the digits with which the scores in the group begin."""
    board, _, name = target.partition(RANGE)
    return board, name.partition(":")[2]


def level_of(target: str) -> int:
    """Return how many parts the name of a group has: 0 for the group of all scores of a board."""
    return len(range_of(target)[1].removeprefix("-")) // WIDTH


RANK_LEVELS_IN_SHARDS = 2
"""How many levels of a `rank` are in shards: the groups of a later one are each a small part of a board."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RankRule(LedgerRule):
    """Counters over the digits of scores, in groups that readers read. It writes to no item: see above."""

    carries = False
    has_guard = False
    writes_items = False

    evaluate: Callable[[Resolve], Decimal | str | None]
    amount: Callable[[Resolve], Decimal | str | None] | None
    """What is added up over the scores; None if nothing is."""
    scale: Scale
    descending: bool
    shards: int

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return ()

    def shards_of(self, target: str) -> int:
        return self.shards if level_of(target) < RANK_LEVELS_IN_SHARDS else 1

    @property
    def creates(self) -> bool:
        return False

    def contributions(
        self, item: Item, refused: Refused = ignore
    ) -> tuple[dict[str, Contributed], dict[tuple[str, str], Image]]:
        contributed: dict[str, Contributed] = {}
        for resolve, named in self.scopes(item, refused):
            key = self.into.target_key(named)
            if key is None:
                refused(("into",), named)
                continue
            score = self.evaluate(resolve)
            if score is None:
                refused(("by",), resolve)
                continue
            assert isinstance(score, Decimal)
            parts = self.scale.parts(score)
            if amount := self.amount(resolve) if self.amount is not None else None:
                assert isinstance(amount, Decimal)
                check_amount("sum", number_text(amount))
            group = self.scale.group(encode_key(key), ())
            for part in parts:
                counted: Contributed = {"n": 1, "=" + part: 1}
                if amount:
                    counted["+" + part] = number_text(amount)
                if group in contributed:
                    merge(contributed[group], counted)
                else:
                    contributed[group] = counted
                group += part
        return contributed, {}

    def scores(self, contributed: Mapping[str, Contributed]) -> dict[str, list[Decimal]]:
        """Return the scores that contributions count, by the encoded key of the board, the least first."""
        by_board: dict[str, list[Decimal]] = {}
        for target, counted in contributed.items():
            if level_of(target) == self.scale.levels - 1:
                board, digits = range_of(target)
                for slot, amount in counted.items():
                    if slot.startswith("="):
                        by_board.setdefault(board, []).extend([self.scale.score((digits, slot[1:]))] * int(amount))
        return {board: sorted(scores) for board, scores in by_board.items()}

    @staticmethod
    def sums(contributed: Mapping[str, Contributed]) -> dict[str, Decimal]:
        """Return what contributions add to sums, by the encoded key of the board."""
        boards = {range_of(target)[0]: counted for target, counted in contributed.items() if level_of(target) == 0}
        amounts = {board: [counted[slot] for slot in counted if slot[0] == "+"] for board, counted in boards.items()}
        return {board: reduce(EXACT.add, map(Decimal, added), Decimal(0)) for board, added in amounts.items()}

    @property
    def member_queries(self) -> tuple[MemberQuery, ...]:
        return ()

    def published(self, totals: Totals, members: Members) -> dict[str, Value | None]:
        return {}

    @property
    def most_of_one(self) -> int:
        return MOST_OF_A_KEY * self.scale.levels


def compile_rule(common: Mapping[str, Any], document: Mapping[str, Any]) -> RankRule:
    """Return the rule of a canonical document. `common` has the fields of all rules."""
    return RankRule(
        **common,
        evaluate=Expression.parse(document["by"]).compile(),
        amount=Expression.parse(document["sum"]).compile() if "sum" in document else None,
        scale=Scale(document["digits"], document["decimals"]),
        descending=document["order"] == "desc",
        shards=document["shards"],
    )

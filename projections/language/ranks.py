"""Compiled rules of kind `rank`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from projections.language.arithmetic import Expression
from projections.language.contribution import Contributed, merge
from projections.language.digits import Scale, level_of, range_of
from projections.language.entity import Item, Refused, Resolve
from projections.language.keys import Image, Value, encode_key
from projections.language.rules import MOST_OF_A_KEY, LedgerRule, MemberQuery, Members, Totals

__all__ = ["RankRule", "compiled"]

RANK_LEVELS_IN_SHARDS = 2
"""How many levels of a `rank` are in shards: the groups of a later one are each a small part of a board."""


@dataclass(frozen=True, slots=True)
class RankRule(LedgerRule):
    """Counters over the digits of scores, in groups that readers read. It writes to no item: see `language.digits`."""

    carries = False
    has_guard = False
    writes_items = False

    evaluate: Callable[[Resolve], Decimal | str | None]
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
        self, item: Item, refused: Refused | None = None
    ) -> tuple[dict[str, Contributed], dict[tuple[str, str], Image]]:
        contributed: dict[str, Contributed] = {}
        for resolve, named in self.scopes(item, refused):
            key = self.into.target_key(named)
            if key is None:
                if refused is not None:
                    refused(("into",), named)
                continue
            score = self.evaluate(resolve)
            if score is None:
                if refused is not None:
                    refused(("by",), resolve)
                continue
            assert isinstance(score, Decimal)
            parts = self.scale.parts(score)
            group = self.scale.group(encode_key(key), ())
            for part in parts:
                counted: Contributed = {"n": 1, "=" + part: 1}
                if group in contributed:
                    merge(contributed[group], counted)
                else:
                    contributed[group] = counted
                group += part
        return contributed, {}

    def counts_in(self, target: str) -> bool:
        """Return whether a group is one of these digits, and not of those that the rule had before."""
        return target.startswith(self.scale.group(range_of(target)[0], ()))

    def scores(self, contributed: Mapping[str, Contributed]) -> dict[str, list[Decimal]]:
        """Return the scores that contributions count, by the encoded key of the board, the least first."""
        found: dict[str, list[Decimal]] = {}
        for target, counted in contributed.items():
            if level_of(target) == self.scale.levels - 1:
                board, digits = range_of(target)
                for slot, amount in counted.items():
                    if slot.startswith("="):
                        found.setdefault(board, []).extend([self.scale.score((digits, slot[1:]))] * int(amount))
        return {board: sorted(scores) for board, scores in found.items()}

    @property
    def member_queries(self) -> tuple[MemberQuery, ...]:
        return ()

    def published(self, totals: Totals, members: Members) -> dict[str, Value | None]:
        return {}

    @property
    def most_of_one(self) -> int:
        return MOST_OF_A_KEY * self.scale.levels


def compiled(common: Mapping[str, Any], document: Mapping[str, Any]) -> RankRule:
    """Return the rule of a canonical document. `common` has the fields of all rules."""
    return RankRule(
        **common,
        evaluate=Expression.parse(document["by"]).compile(),
        scale=Scale(document["digits"], document["decimals"]),
        descending=document["order"] == "desc",
        shards=document["shards"],
    )

"""`rank`: counters over the digits of scores, kept in the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from projections.language.compiling import Kind
from projections.language.contribution import DIGITS_AFTER
from projections.language.forms import ExpressionText, Model, rule_error
from projections.language.kinds import (
    AnyProjection,
    AnyRules,
    LedgerAction,
    Order,
    Part,
    Picture,
    Result,
    Sources,
    WritePath,
)
from projections.language.ranks import MOST_DIGITS, RANK_LEVELS_IN_SHARDS, Scale
from projections.language.spelling import expression_text
from projections.language.syntax import Location


class Rank(Model, LedgerAction):
    """Counters over the digits of scores, kept in the ledger: they give the rank of a score in few reads."""

    kind: ClassVar[Kind] = "rank"
    aliases: ClassVar[tuple[str, ...]] = ("leaderboard", "ranking", "scores")
    writes_items: ClassVar[bool] = False

    into: str = Field(
        description="The entity whose key names the board. Its items are not written, and need not exist."
    )
    by: ExpressionText = Field(
        description="The score: a path or an expression, such as `number(points)` or `wins - losses`."
    )
    digits: Annotated[int, Field(ge=1, le=MOST_DIGITS)] = Field(
        description=f"The most digits of a score, those after the decimal point included, 1 to {MOST_DIGITS}."
    )
    decimals: Annotated[int, Field(ge=0, le=MOST_DIGITS)] = Field(
        default=0, description="How many of the digits are after the decimal point."
    )
    order: Order = Field(default="desc", description="`desc`: rank 1 is the greatest score. `asc`: the least.")
    sum: ExpressionText | None = Field(
        default=None,
        description="What to add up over the scores between two bounds: a path or an expression, such as `number(amount)`.",
    )
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="The number of ledger items that hold each group of the first two levels, 1 to 100."
    )

    @model_validator(mode="after")
    def _decimals_are_digits(self) -> Rank:
        if self.decimals > self.digits:
            raise rule_error(
                f"`decimals` is {self.decimals} and `digits` is {self.digits}: `digits` includes the decimals"
            )
        return self

    @property
    def members(self) -> int:
        return 0

    @property
    def scale(self) -> Scale:
        return Scale(self.digits, self.decimals)

    @staticmethod
    def picture() -> Picture:
        return Picture("#b3261e", "#ff8a80", '<path d="M2.5 13.5v-5h3.5v5M6 13.5v-11h4v11M10 13.5v-7h3.5v7"/>')

    @property
    def written(self) -> dict[str, Location]:
        return {}

    def parts(self) -> Iterator[Part]:
        places = self.decimals
        limit = f"a score has at most {places} decimal places" if places else "a score is a whole number"
        yield Part(self.by, ("rank", "by"), use="ranks it", limit=limit, fraction=self.decimals > 0)
        if self.sum is not None:
            limit = f"sum takes at most {DIGITS_AFTER} digits after the decimal point"
            yield Part(self.sum, ("rank", "sum"), use="adds it up", limit=limit, optional=True)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        return iter(())

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        return {}

    @property
    def ledger_actions(self) -> int:
        return self.scale.levels - 1

    @property
    def items_of_rank(self) -> int:
        """How many items of the ledger one request reads for a rank: the registry, and the shards of each group."""
        levels = self.scale.levels
        return 1 + levels + (self.shards - 1) * min(levels, RANK_LEVELS_IN_SHARDS)

    def gist(self, indexes: Sequence[str]) -> str:
        return f"ranks by {expression_text(self.by)}"

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        by, amount = expression_text(self.by), expression_text(self.sum) if self.sum is not None else None
        sums = f", and adds up {amount}" if amount else ""
        return f"Counts each {source} by the digits of {by} in the ledger, which gives its rank on the {target}{sums}."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        """Return the path of a score: a new one is counted in a group for each two digits, a moved one in more."""
        levels = self.scale.levels
        sums = f", with sums of {expression_text(self.sum)}," if self.sum is not None else ""
        groups = f"{levels} group{'s' * (levels > 1)} of {expression_text(self.by)}{sums}"
        moved = f"; a changed score moves between up to {2 * levels - 1} groups" if levels > 1 else ""
        read = f"To find a rank, 1 request reads {self.items_of_rank} items of the ledger"
        how = f"entry and {groups} in one transaction of the ledger{moved}; nothing is written to the tables. {read}"
        return WritePath(self.kind, how, 2 + 2 * levels, 2 * levels)

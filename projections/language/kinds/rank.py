"""`rank`: counters over the digits of scores, kept in the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from projections.language.forms import ExpressionText
from projections.language.kinds import Action, Model, Order, Part, Sources
from projections.language.ranks import MOST_DIGITS, Scale
from projections.language.syntax import Location


class Rank(Model, Action):
    """Counters over the digits of scores, kept in the ledger: they give the rank of a score in few reads.

    The rule writes nothing to the application's tables.
    """

    kind: ClassVar[str] = "rank"
    combines: ClassVar[bool] = True
    in_ledger: ClassVar[bool] = True
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
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="The number of ledger items that hold each group of the first two levels, 1 to 100."
    )

    @model_validator(mode="after")
    def _decimals_are_digits(self) -> Rank:
        if self.decimals > self.digits:
            raise PydanticCustomError(
                "rule",
                f"`decimals` is {self.decimals} and `digits` is {self.digits}: `digits` includes the decimals",
            )
        return self

    @property
    def members(self) -> int:
        return 0

    @property
    def scale(self) -> Scale:
        return Scale(self.digits, self.decimals)

    @property
    def written(self) -> dict[str, Location]:
        return {}

    def parts(self) -> Iterator[Part]:
        yield Part(self.by, ("rank", "by"), numeric=True)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        return iter(())

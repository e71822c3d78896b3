"""`flag`: attributes that the target item has while at least one source item fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from projections.language.compiling import Kind
from projections.language.forms import AttributeName, Constant, Form, Model, shown, syntax
from projections.language.kinds import (
    AnyProjection,
    AnyRules,
    LedgerAction,
    Part,
    Picture,
    Result,
    Sources,
    result_of,
    value_words,
)
from projections.language.syntax import Location, Mistake, an, join_names
from projections.language.values import plain, wire


def _check(value: Any) -> list[Mistake]:
    if value is None or value == "":
        return [Mistake((), f"expected a value such as true, found {shown(value)}")]
    if isinstance(value, str) and "{" in value:
        return [
            Mistake((), "the value of a flag is a constant, not a template: several source items can have one target")
        ]
    return syntax(lambda: wire(value))


FlagForm = Annotated[
    Constant,
    Form(
        _check,
        {"type": ["string", "number", "boolean", "array", "object"], "description": "A constant."},
        lambda value: Constant(plain(wire(value))),
        lambda constant: constant.value,
    ),
]


class Flag(Model, LedgerAction):
    """Attributes that the target item has while at least one source item contributes, and lacks otherwise."""

    kind: ClassVar[Kind] = "flag"
    aliases: ClassVar[tuple[str, ...]] = ("any", "has", "marker")

    into: str = Field(description="The entity whose items receive the attributes.")
    set: Annotated[dict[AttributeName, FlagForm], Field(min_length=1)] = Field(
        description="Attribute → its value, a constant: `{hasComments: true}`."
    )
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="The number of ledger items that hold the number of contributions, 1 to 100."
    )

    @property
    def written(self) -> dict[str, Location]:
        return self.places(self.set, "set")

    def parts(self) -> Iterator[Part]:
        return iter(())

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        for name, value in self.set.items():
            yield name, f"{value_words(value)} while there is {' or '.join(map(an, sources))}"

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        return {name: result_of(value) for name, value in self.set.items()}

    @property
    def members(self) -> int:
        return 0

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        return f"Sets {join_names(list(self.set))} on each {target} that has {source} items, and removes it from the others."

    @staticmethod
    def picture() -> Picture:
        return Picture("#4e6300", "#c2d45f", '<path d="M4 14V2.5h8.5l-2 3 2 3H4"/>')

"""`top` and `latest`: the first few source items by an order as a list, and attributes of the first one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from projections.language.attribute_sources import AttributeSource
from projections.language.compiling import Kind
from projections.language.forms import AttributeName, AttributesForm, Model, PathText
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
    path_expression,
    result_of,
    source_words,
)
from projections.language.syntax import Location


class Top(Model, LedgerAction):
    """The first few source items, as a list on the target item."""

    kind: ClassVar[Kind] = "top"
    aliases: ClassVar[tuple[str, ...]] = ("best", "topk", "topn")

    into: str = Field(description="The entity whose items receive the list.")
    as_: AttributeName = Field(description="The attribute that holds the list.")
    by: PathText = Field(description="The path of the value that orders the source items.")
    limit: Annotated[int, Field(ge=1, le=100)] = Field(description="The greatest length of the list, 1 to 100.")
    order: Order = Field(default="desc", description="`desc`: greatest first. `asc`: least first.")
    attributes: AttributesForm = Field(
        description="The attributes of each element: a list, or a mapping from name to path, expression or template."
    )

    @staticmethod
    def picture() -> Picture:
        return Picture("#00796b", "#5fd3c2", '<path d="M2.5 3.5h11M2.5 8h7.5M2.5 12.5h4.5"/>')

    @property
    def written(self) -> dict[str, Location]:
        return {self.as_: ("top", "as")}

    def parts(self) -> Iterator[Part]:
        yield Part(path_expression(self.by), ("top", "by"))
        yield from self.attribute_parts(self.attributes, self.as_)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        yield self.as_, f"{self.limit} of {' and '.join(sources)} by {self.by}"

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        return {self.as_: Result("L", "makes it a list")}

    @property
    def elements(self) -> tuple[str, ...]:
        return tuple(self.attributes)

    def gist(self, indexes: Sequence[str]) -> str:
        return f"{self.limit} as {self.as_}"

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        return f"Lists the {_FIRST[self.order]} {self.limit} {source} items by {self.by} on each {target}."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        return self._ledger_path(self.limit)


_FIRST = {"desc": "greatest", "asc": "least"}


class Latest(Model, LedgerAction):
    """Attributes of the one source item with the greatest `by`, as plain attributes of the target item."""

    kind: ClassVar[Kind] = "latest"
    aliases: ClassVar[tuple[str, ...]] = ("last", "newest", "recent")

    into: str = Field(description="The entity whose items receive the attributes.")
    by: PathText = Field(description="The path of the value that orders the source items.")
    order: Order = Field(default="desc", description="`desc`: the greatest. `asc`: the least.")
    attributes: AttributesForm = Field(
        description="The attributes to set: a list, or a mapping from name to path, expression or template."
    )

    @staticmethod
    def picture() -> Picture:
        return Picture("#9a5800", "#f2b45c", '<circle cx="8" cy="8" r="5.75"/><path d="M8 4.5V8l2.5 1.75"/>')

    @property
    def written(self) -> dict[str, Location]:
        return self.places(self.attributes, "attributes")

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        return self.attributes

    def parts(self) -> Iterator[Part]:
        yield Part(path_expression(self.by), ("latest", "by"))
        yield from self.attribute_parts(self.attributes)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        for name, attribute in self.attributes.items():
            made = " or ".join(source_words(attribute, source) for source in sources)
            yield name, f"{made}, latest by {self.by}"

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        return {name: result_of(source) for name, source in self.attributes.items()}

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        return f"Keeps attributes of the {source} with the {_FIRST[self.order]} {self.by} on each {target}."

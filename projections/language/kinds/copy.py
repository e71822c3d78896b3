"""`copy`: the source item under another key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from projections.language.attribute_sources import AttributeSource
from projections.language.forms import AttributeName, Constant, ConstantForm, CopyForm
from projections.language.kinds import (
    EVERY,
    Action,
    Model,
    Part,
    Sources,
    WritePath,
    attribute_parts,
    places,
    source_words,
)
from projections.language.spelling import template_text
from projections.language.syntax import Location, an
from projections.language.templates import Template


class Copy(Model, Action):
    """A copy of the source item under another key. The rule creates and deletes it."""

    kind: ClassVar[str] = "copy"
    colours: ClassVar[tuple[str, str]] = ("#1a66d6", "#82b1ff")
    icon: ClassVar[str] = (
        '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M10.5 2.5h-6a2 2 0 0 0-2 2v6"/>'
    )
    makes_items: ClassVar[bool] = True

    into: str = Field(
        description="The entity to create; it has one copy rule, and no other writer of the copied attributes."
    )
    attributes: CopyForm = Field(
        default={},
        description="The attributes to copy: a list, a mapping from name to path, expression or template, or `all`.",
    )
    values: dict[AttributeName, ConstantForm] = Field(
        default={}, description="Further attributes: text is a template, any other value a constant."
    )
    claimed: SkipJsonSchema[bool | None] = Field(
        default=None,
        description="Whether several source items can have the same target, so that the copy goes through the ledger. "
        "It follows from the keys.",
    )

    @property
    def recorded(self) -> bool:
        return bool(self.claimed)

    @property
    def copies_all(self) -> bool:
        return self.attributes == "all"

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        return {} if self.attributes == "all" else self.attributes

    @property
    def templates(self) -> dict[str, Template]:
        """The values that are templates."""
        return {name: value for name, value in self.values.items() if isinstance(value, Template)}

    @property
    def written(self) -> dict[str, Location]:
        return places(self.carried, "copy", "attributes") | places(self.values, "copy", "values")

    def parts(self) -> Iterator[Part]:
        yield from attribute_parts(self.carried, ("copy", "attributes"))
        for name, template in self.templates.items():
            yield Part(template, ("copy", "values", name), (name,))

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        (source,) = sources
        if self.copies_all:
            yield EVERY, f"{source}, all attributes"
        for name, attribute in self.carried.items():
            yield name, source_words(attribute, source)
        for name, value in self.values.items():
            yield name, constant_words(value) if isinstance(value, Constant) else template_text(value)

    def gist(self, indexes: Sequence[str]) -> str:
        return "all attributes" if self.copies_all else super().gist(indexes)

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        what = "all attributes of" if self.copies_all else "attributes of"
        return f"Keeps {what} each {source} under another key, as {an(target)}."

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        if not self.claimed:
            return WritePath("guarded copy", f"1 conditional write of the copy{each}", 1)
        how = "entry, group and claim in one transaction of the ledger, then 1 write of the copy; the least source key wins"
        return WritePath("claimed copy", how, 7)


def constant_words(constant: Constant) -> str:
    return json.dumps(constant.value, ensure_ascii=False, default=str)

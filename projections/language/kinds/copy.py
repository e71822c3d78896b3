"""`copy`: the source item under another key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import ClassVar

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from projections.language.attribute_sources import AttributeSource
from projections.language.forms import AttributeName, Constant, ConstantForm, CopyForm
from projections.language.kinds import EVERY, Action, Model, Part, Sources, attribute_parts, places, source_words
from projections.language.spelling import template_text
from projections.language.syntax import Location
from projections.language.templates import Template


class Copy(Model, Action):
    """A copy of the source item under another key. The rule creates and deletes it."""

    kind: ClassVar[str] = "copy"

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


def constant_words(constant: Constant) -> str:
    return json.dumps(constant.value, ensure_ascii=False, default=str)

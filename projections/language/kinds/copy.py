"""`copy`: the source item under another key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

from projections.language.attribute_sources import AttributeSource
from projections.language.compiling import Kind
from projections.language.forms import AttributeName, ConstantForm, CopyForm, Model
from projections.language.kinds import (
    EVERY,
    Action,
    AnyProjection,
    AnyRules,
    Part,
    Picture,
    Result,
    Sources,
    WritePath,
    result_of,
    source_words,
    value_words,
)
from projections.language.syntax import Location, Mistake, an, root
from projections.language.templates import Template


class Copy(Model, Action):
    """A copy of the source item under another key. The rule creates and deletes it."""

    kind: ClassVar[Kind] = "copy"
    aliases: ClassVar[tuple[str, ...]] = ("denormalize", "duplicate", "mirror", "project", "replicate")
    makes_items: ClassVar[bool] = True
    keeps_expired: ClassVar[bool] = False

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

    def complete(self, rules: AnyRules, rule: AnyProjection) -> Self:
        return self.model_copy(update={"claimed": is_claimed(rules, rule)})

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        return {} if self.attributes == "all" else self.attributes

    @property
    def templates(self) -> dict[str, Template]:
        """The values that are templates."""
        return {name: value for name, value in self.values.items() if isinstance(value, Template)}

    @staticmethod
    def picture() -> Picture:
        return Picture(
            "#1a66d6",
            "#82b1ff",
            '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M10.5 2.5h-6a2 2 0 0 0-2 2v6"/>',
        )

    @property
    def written(self) -> dict[str, Location]:
        return self.places(self.carried, "attributes") | self.places(self.values, "values")

    def parts(self) -> Iterator[Part]:
        yield from self.attribute_parts(self.carried)
        for name, template in self.templates.items():
            yield Part(template, ("copy", "values", name), (name,), decides=True)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        (source,) = sources
        if self.copies_all:
            yield EVERY, f"{source}, all attributes"
        for name, attribute in self.carried.items():
            yield name, source_words(attribute, source)
        for name, value in self.values.items():
            yield name, value_words(value)

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        return {name: result_of(value) for name, value in {**self.carried, **self.values}.items()}

    def mistakes(self, rules: AnyRules, rule: AnyProjection) -> Iterator[Mistake]:
        if rule.into == rule.source:
            yield Mistake(("copy", "into"), "the source and the target of a copy must be different entities")
        if not self.model_fields_set & {"attributes", "values"}:
            yield Mistake(("copy",), "copies nothing: add `attributes` or `values`", at_key=True)
        for name in self.values.keys() & self.carried.keys():
            yield Mistake(("copy", "values", name), "is also listed in `attributes`", at_key=True)
        if self.claimed is not None and self.claimed != is_claimed(rules, rule):
            yield Mistake(("copy", "claimed"), "follows from the keys: remove it", at_key=True)
        variables = rules.entities[rule.into].variables
        used = {root(name) for own in variables for name in (rule.bind[own].names if own in rule.bind else (own,))}
        if rule.each is not None and rule.each.variable not in used:
            message = (
                f"the key of {rule.into} does not include {{{rule.each.variable}}}: all elements would share one copy; "
                "use it in `bind`"
            )
            yield Mistake(rule.place("each"), message, at_key=True)

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


def is_claimed(rules: AnyRules, rule: AnyProjection) -> bool:
    """Return whether several source items can have the same target key, now or over time.

    They cannot if the target's key determines all variables of the source's key, or the variable that is its `id`. The
    variables of a key can be read back from it; a variable that `bind` makes, only if its template is reversible.
    """
    source = rules.entities[rule.source]
    separator = rules.table_of(rule.source).separator
    fields = [field for template in source.key.values() for field in template.fields]
    own = {field.name for field in fields} - {rule.each.variable if rule.each is not None else None}
    bare = own - {field.name for field in fields if field.star}
    told: set[str] = set()
    for name in rules.entities[rule.into].variables:
        told |= rule.bind[name].recoverable(bare, separator) if name in rule.bind else {name}
    told &= own
    return source.id not in told and not told.issuperset(source.variables)

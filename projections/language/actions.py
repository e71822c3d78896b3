"""The action of a rule, one model for each kind: `copy`, `aggregate`, `top`, `latest`, `rank`, `compute`, `embed`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from projections.language.forms import (
    AttributeName,
    AttributesForm,
    ComputedForm,
    ConstantForm,
    CopyForm,
    ExpressionText,
    MatchForm,
    MeasureForm,
    PathText,
)
from projections.language.measures import SHORT_FORMS
from projections.language.ranks import MOST_DIGITS

Order = Literal["desc", "asc"]


class Model(BaseModel):
    """The base of all models: strict, frozen, and without unknown names."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        alias_generator=lambda name: name.removesuffix("_"),
    )


class Copy(Model):
    """A copy of the source item under another key. The rule creates and deletes it."""

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


class Aggregate(Model):
    """Counters, sums and extremes of the source items, set on the target item."""

    into: str = Field(description="The entity whose items receive the results.")
    set: Annotated[dict[AttributeName, MeasureForm], Field(min_length=1)] = Field(
        description=f"Attribute → measure: {', '.join(f'`{form}`' for form in SHORT_FORMS)}, `{{sum: total, where: {{…}}}}`."
    )
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="The number of ledger items that hold the totals of one target, 1 to 100."
    )


class Compute(Model):
    """Attributes of the source item, computed from its other attributes."""

    set: Annotated[dict[AttributeName, ComputedForm], Field(min_length=1)] = Field(
        description="Attribute → template (text with `{`), expression, `{value: …, where: {…}}`, `{constant: …}`, or a list "
        "of such cases; the first that matches applies."
    )
    once: bool = Field(
        default=False,
        description="Set the attributes only where they are absent, and never change or remove them afterwards.",
    )


class Top(Model):
    """The first few source items, as a list on the target item."""

    into: str = Field(description="The entity whose items receive the list.")
    as_: AttributeName = Field(description="The attribute that holds the list.")
    by: PathText = Field(description="The path of the value that orders the source items.")
    limit: Annotated[int, Field(ge=1, le=100)] = Field(description="The greatest length of the list, 1 to 100.")
    order: Order = Field(default="desc", description="`desc`: greatest first. `asc`: least first.")
    attributes: AttributesForm = Field(
        description="The attributes of each element: a list, or a mapping from name to path, expression or template."
    )


class Latest(Model):
    """Attributes of the one source item with the greatest `by`, as plain attributes of the target item."""

    into: str = Field(description="The entity whose items receive the attributes.")
    by: PathText = Field(description="The path of the value that orders the source items.")
    order: Order = Field(default="desc", description="`desc`: the greatest. `asc`: the least.")
    attributes: AttributesForm = Field(
        description="The attributes to set: a list, or a mapping from name to path, expression or template."
    )


class Rank(Model):
    """Counters over the digits of scores, kept in the ledger: they give the rank of a score in few reads.

    The rule writes nothing to the application's tables.
    """

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


class Embed(Model):
    """Attributes of a parent (the source), kept in every child that references it."""

    into: str = Field(description="The entity of the children.")
    match: MatchForm = Field(
        description="How a child references its parent: its attribute or key variable → a template over the parent."
    )
    attributes: AttributesForm = Field(
        description="The attributes to embed: a list, or a mapping from name to path, expression or template."
    )
    on_delete: Literal["keep", "remove"] = Field(
        default="keep",
        description="Whether the embedded attributes stay when the parent is deleted. Not allowed with `as`.",
    )
    as_: AttributeName | None = Field(
        default=None,
        description="The attribute of the child that holds what its parents give, if it references several: the child holds "
        "a list or set of references.",
    )
    references: str | None = Field(
        default=None,
        description="With `as`: the name in `match` that holds the references, if `match` has several names.",
    )
    form: Literal["list", "map"] = Field(
        default="list",
        description="With `as`: `list`, in the order of the references, or `map`, from each reference to its parent's "
        "attributes.",
    )
    id: AttributeName | None = Field(
        default=None,
        description='With `as`: the name under which each element of the list holds its reference; default "id".',
    )
    missing: Literal["omit", "id"] = Field(
        default="omit",
        description="With `as`: `omit` leaves out a reference without a parent, `id` keeps its place without attributes.",
    )

    @model_validator(mode="after")
    def _list(self) -> Embed:
        given = self.model_fields_set
        if self.as_ is None:
            for name in ("references", "form", "id", "missing"):
                if name in given:
                    raise PydanticCustomError(
                        "rule", f"`{name}` is for children with several parents: add `as`, or remove `{name}`"
                    )
            return self
        if "on_delete" in given:
            raise PydanticCustomError(
                "rule", "`on_delete` is for children with one parent: with `as`, write `missing: omit` or `missing: id`"
            )
        if self.references is None and len(self.match) > 1:
            raise PydanticCustomError(
                "rule",
                f"`match` has several names: write which of them holds the references, such as "
                f"`references: {next(iter(self.match))}`",
            )
        if self.references is not None and self.references not in self.match:
            raise PydanticCustomError("rule", f"`references` must be a name in `match`: {', '.join(self.match)}")
        if self.form == "map" and self.id is not None:
            raise PydanticCustomError(
                "rule", "`id` is for `form: list`: in a map, the reference is the key; remove `id`"
            )
        if self.form == "list" and self.id_name in self.attributes:
            raise PydanticCustomError(
                "rule", f"`attributes` and `id` have the same name {self.id_name}: write another `id`"
            )
        return self

    @property
    def references_name(self) -> str:
        """The name in `match` that holds the references, of a rule with `as`."""
        return self.references or next(iter(self.match))

    @property
    def id_name(self) -> str:
        """The name under which each element of the list holds its reference."""
        return self.id or "id"

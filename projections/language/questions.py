"""Queries and write patterns of a rule file as pydantic models; `access.plan` has them as typed values."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from projections.language.forms import (
    AttributeName,
    ByForm,
    ConditionForm,
    EntitiesForm,
    Model,
    OrderForm,
    PathText,
    PatternForm,
    TextForm,
    rule_error,
)

Identifier = Annotated[str, StringConstraints(min_length=1, max_length=64), TextForm(r"^\S+$", "an id has no spaces")]
Positive = Annotated[int, Field(ge=1, strict=True)]


OPERATIONS = ("put", "update", "delete", "check")


class Expect(Model):
    """Estimates for `check`."""

    items: Positive | None = Field(default=None, description="Items that a query returns.")
    scanned: Positive | None = Field(
        default=None, description="Items that it reads, of which a filter may discard some."
    )


class Query(Model):
    """A query of the application: which items it needs, by what, in which order."""

    id: Identifier | None = Field(default=None, description="The number of the access pattern, as AP-007.")
    about: str | None = Field(default=None, description="The question in words.")
    get: str | None = Field(default=None, description="The entity of which it reads one item.")
    find: EntitiesForm | None = Field(
        default=None, description="The entity whose items it reads, or several entities that are read together."
    )
    by: ByForm = Field(
        default=[],
        description="Variables and attributes that the caller gives. With pipes, `mail|lower`, the results are compared.",
    )
    range: PathText | None = Field(
        default=None,
        description="An attribute or variable that the caller may bound: from, to, or a prefix. The upper bound 2026-04 "
        "includes April.",
    )
    where: PatternForm | None = Field(
        default=None, description="A pattern that all items match, as in Lambda's filters."
    )
    order: OrderForm | None = Field(
        default=None,
        description="`createdAt`, `createdAt desc`, or only `asc` or `desc`: by `range`, or else by the sort key.",
    )
    limit: Positive | None = Field(default=None, description="The most items of one page.")
    attributes: Annotated[list[PathText], Field(min_length=1)] | None = Field(
        default=None, description="The attributes that it needs; all if left out."
    )
    consistent: bool = Field(default=False, description="Whether the read must be strongly consistent.")
    using: str | None = Field(default=None, description="Use only this index; `table` for the table itself.")
    expect: Expect = Field(default_factory=Expect, description="Estimates of numbers of items.")

    @model_validator(mode="after")
    def _get_or_find(self) -> Query:
        if (self.get is None) == (self.find is None):
            which = "both `get` and `find`" if self.get is not None else "neither `get` nor `find`"
            raise rule_error(f"has {which}: write `get: Entity` for one item, `find: Entity` for several")
        if self.get is not None:
            for name in ("range", "order", "limit"):
                if getattr(self, name) is not None:
                    raise rule_error(f"a `get` reads one item and has no `{name}`: write `find`")
        return self

    @property
    def entities(self) -> tuple[str, ...]:
        """The entities whose items it reads."""
        names = self.get if self.find is None else self.find
        return (names,) if isinstance(names, str) else tuple(names or ())


class WriteStep(Model):
    """One item that the application writes, and the condition of the write."""

    put: str | None = Field(default=None, description="The entity of the item that is put.")
    update: str | None = Field(default=None, description="The entity of the item that is updated.")
    delete: str | None = Field(default=None, description="The entity of the item that is deleted.")
    check: str | None = Field(default=None, description="The entity of an item that is only checked, in a transaction.")
    if_: ConditionForm | None = Field(
        default=None,
        description="`absent`: only if the item does not exist. `present`: only if it exists. `{unchanged: version}`: "
        "only if this attribute has the value that was read.",
    )
    set: Annotated[list[AttributeName], Field(min_length=1)] = Field(
        default=[], description="The attributes that an update sets."
    )

    @model_validator(mode="after")
    def _one_operation(self) -> Self:
        self._check_operation()
        return self

    def _check_operation(self) -> None:
        operations = [name for name in OPERATIONS if getattr(self, name) is not None]
        if len(operations) != 1:
            which = " and ".join(operations) or "no operation"
            raise rule_error(f"has {which}: write exactly one of put, update, delete, check")
        if self.set and operations != ["update"]:
            raise rule_error(f"a {operations[0]} has no `set`: only an update sets attributes")
        if operations == ["check"] and self.if_ is None:
            raise rule_error("a check needs a condition: add `if`")

    @property
    def operation(self) -> str:
        return next(name for name in OPERATIONS if getattr(self, name) is not None)

    @property
    def entity(self) -> str:
        return str(getattr(self, self.operation))

    @property
    def condition(self) -> str | None:
        """`absent` or `present`, as the item must be; None without such a condition."""
        return self.if_ if isinstance(self.if_, str) else None

    @property
    def unchanged(self) -> str | None:
        """The attribute that must be as it was read, if any."""
        return self.if_["unchanged"] if isinstance(self.if_, dict) else None


class WritePattern(WriteStep):
    """Items that the application writes together. With one item, its operation stands beside `about`."""

    id: Identifier | None = Field(default=None, description="The number of the access pattern, as AP-010.")
    about: str | None = Field(default=None, description="What it is for, in words.")
    transaction: bool = Field(default=False, description="Whether all items are written in one transaction.")
    items: list[WriteStep] = Field(default=[], description="The items, each with its operation and its condition.")

    def _check_operation(self) -> None:
        if not self.items:
            super()._check_operation()
        elif self.set or any(getattr(self, name) is not None for name in (*OPERATIONS, "if_")):
            raise rule_error("has `items` and an operation: move the operation into `items`")

    @property
    def steps(self) -> tuple[WriteStep, ...]:
        return tuple(self.items) or (self,)

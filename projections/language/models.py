"""Rules as pydantic models, with the names of the rule file.

Names that Python reserves have a trailing underscore here (`from_`, `as_`, `copy_`) and none in the file. The models
hold the rules as they were written; `document.typed` makes the canonical form of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from projections.language.actions import Aggregate, Compute, Copy, Embed, Latest, Model, Rank, Top
from projections.language.canonical import seconds_of
from projections.language.forms import (
    AttributeName,
    CaseForm,
    EachForm,
    IndexForm,
    KeyForm,
    NamesTemplateText,
    PatternForm,
    SourcesForm,
    TemplateText,
    TextForm,
)
from projections.language.mistakes import Location
from projections.language.shapes import source_parts

__all__ = [
    "KINDS",
    "Aggregate",
    "Compute",
    "Copy",
    "Embed",
    "Entity",
    "Latest",
    "Projection",
    "Rank",
    "Table",
    "Top",
]

KINDS = ("copy", "aggregate", "top", "latest", "rank", "index", "compute", "embed")

Name = Annotated[
    str,
    StringConstraints(max_length=64),
    TextForm(r"^[A-Za-z][A-Za-z0-9_-]*$", "a name has letters, digits, _ and -, and begins with a letter"),
]
Tag = Annotated[
    str,
    StringConstraints(max_length=64),
    TextForm(
        r"^[A-Za-z0-9][A-Za-z0-9_./-]*$", "a tag has letters, digits and . _ - /, and begins with a letter or a digit"
    ),
]
Prefix = Annotated[
    str,
    StringConstraints(max_length=16),
    TextForm(r"^[^A-Za-z0-9\s]\S*$", "expected text that begins with a sign such as ~ or _"),
]
Separator = Annotated[str, TextForm(r"^[^{}]$", "expected one character, no brace")]


def _duration(text: str) -> str:
    if seconds_of(text) is None:
        raise PydanticCustomError(
            "duration", "invalid duration: write a whole number from 1 to 9999 and a unit: 30s, 5m or 1h"
        )
    return text


Duration = Annotated[str, AfterValidator(_duration)]
Prose = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


class Table(Model):
    """A DynamoDB table: its key attributes, its indexes, and which attribute expires items."""

    description: Prose | None = Field(default=None, description="A text about the table. It has no effect.")
    key: KeyForm = Field(
        description="The key attributes: `[PK, SK]` for strings, `{PK: S, SK: N}` for other types; or only one."
    )
    indexes: dict[AttributeName, IndexForm] = Field(
        default={},
        description="Secondary indexes by name: `[GSI1PK, GSI1SK]`, `{GSI1PK: S, GSI1SK: N}`, or of several attributes "
        "`{partition: [a, b], sort: [c]}`. `projection` lists the attributes that it returns, besides keys, or is "
        "all or keys_only. A local index is `{sort: x, local: true}`.",
    )
    ttl: AttributeName | None = Field(
        default=None, description="The attribute by which DynamoDB expires items, if any."
    )
    separator: Separator = Field(
        default="#", description="The character between the parts of a key; a variable never matches it."
    )


class Entity(Model):
    """A kind of item: how it is recognised, and the variables in its key."""

    description: Prose | None = Field(default=None, description="A text about the entity. It has no effect.")
    table: str | None = Field(
        default=None, description="The table that holds its items; required if there are several tables."
    )
    key: Annotated[dict[AttributeName, TemplateText], Field(min_length=1, max_length=2)] = Field(
        description="A template for each key attribute of the table: literal text and `{variable}`."
    )
    match: PatternForm | None = Field(
        default=None,
        description="A pattern that its items match, if the key does not identify them. Rules write its single "
        "values to items that they create.",
    )
    id: str | None = Field(
        default=None,
        description="The key variable that identifies an item alone: no other item of the entity ever has its value.",
    )
    derived: bool = Field(
        default=False,
        description="Only rules write the items: they create an item with the first contribution and delete it with "
        "the last.",
    )
    expires: bool = Field(
        default=False,
        description="DynamoDB deletes the items by TTL. Rules that read them need `expired`.",
    )
    index_key: dict[AttributeName, NamesTemplateText] = Field(
        default={},
        description="Index key attributes that the application writes, with their templates. An embed rule can find "
        "items through them.",
    )
    required: Annotated[list[AttributeName], Field(min_length=1)] | None = Field(
        default=None,
        description="Attributes that every item has. `check` and `queries` use them to decide whether an index holds all "
        "items.",
    )


class Projection(Model):
    """One rule: its sources, and one action.

    That is `copy`, `aggregate`, `top`, `latest`, `rank`, `index`, `compute` or `embed`.
    """

    from_: SourcesForm = Field(
        description="The entity whose items the rule reads; for aggregate, top, latest and rank also a list of entities, or "
        "a mapping from each to its own `where`, `bind` and `each`."
    )
    where: PatternForm | None = Field(
        default=None,
        description="A pattern, as in Lambda's filters: the rule applies to the source items that match it.",
    )
    bind: dict[str, TemplateText] = Field(
        default={},
        description="Variables of the target's key that the source does not have under the same name: variable → "
        "template.",
    )
    each: EachForm | None = Field(
        default=None,
        description="One contribution per element: `{variable: path}` of a list or set, or "
        '`{variable: {ancestors: path, separator: "/"}}`.',
    )
    expired: Literal["keep", "retract"] | None = Field(
        default=None,
        description="Whether the contribution of an item that TTL deleted stays; required if a source entity has "
        "`expires: true`.",
    )
    mode: Literal["live", "shadow"] = Field(
        default="live",
        description="`shadow`: maintain the ledger but write nothing to the tables, so that `verify` can compare.",
    )
    description: Prose | None = Field(default=None, description="A text about the rule. It has no effect.")
    owner: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = Field(
        default=None, description="Who is responsible for the rule: a team, an address, a channel."
    )
    tags: list[Tag] = Field(default=[], description="Names of groups of rules, for `--select tag:x`.")
    within: Duration | None = Field(
        default=None,
        description="How old a change may be when the rule has processed it, such as `30s`, `5m` or `1h`: the template gets "
        "an alarm.",
    )
    enabled: bool = Field(
        default=True,
        description="`false`: the rule writes nothing to the tables, and the values that it wrote stay. The ledger is "
        "maintained, as in shadow mode.",
    )
    copy_: Copy | None = Field(default=None, description="A denormalized copy under another key.")
    aggregate: Aggregate | None = Field(default=None, description="Counters, sums and extremes.")
    top: Top | None = Field(default=None, description="The first few source items as a list.")
    latest: Latest | None = Field(default=None, description="Attributes of the source item that is first by an order.")
    rank: Rank | None = Field(default=None, description="Ranks and percentiles of scores, kept in the ledger.")
    index: CaseForm | None = Field(
        default=None,
        description="Keys of sparse indexes on the source item itself: one mapping, or a list of cases, each with "
        "`where`; the first that matches applies.",
    )
    compute: Compute | None = Field(
        default=None, description="Attributes of the source item itself, computed from its other attributes."
    )
    embed: Embed | None = Field(default=None, description="Attributes of a parent kept in every child.")

    @model_validator(mode="after")
    def _one_kind(self) -> Projection:
        given = [kind for kind in KINDS if getattr(self, "copy_" if kind == "copy" else kind) is not None]
        if not given:
            raise PydanticCustomError("rule", "does nothing: add one of " + ", ".join(KINDS))
        if len(given) > 1:
            raise PydanticCustomError(
                "rule", f"does {' and '.join(given)}, and a rule can have only one of them: write {len(given)} rules"
            )
        return self

    @property
    def kind(self) -> str:
        """Which of `KINDS` the rule is."""
        return next(kind for kind in KINDS if getattr(self, "copy_" if kind == "copy" else kind) is not None)

    @property
    def publishes(self) -> bool:
        """Whether the rule writes to the tables."""
        return self.enabled and self.mode == "live"

    @property
    def action(self) -> Copy | Aggregate | Top | Latest | Rank | Embed | None:
        """The rule's action; None for an `index` or `compute`, whose target is the source."""
        return self.copy_ or self.aggregate or self.top or self.latest or self.rank or self.embed

    @property
    def on_source(self) -> bool:
        """Whether the target is the source item itself."""
        return self.index is not None or self.compute is not None

    @property
    def into(self) -> str:
        """The entity the rule writes to; of a `rank`, the one whose key names the board."""
        return self.source if self.action is None else self.action.into

    @property
    def sources(self) -> tuple[str, ...]:
        """The entities whose items the rule reads, in the order of the file."""
        return tuple(source_parts(self.from_))

    @property
    def source(self) -> str:
        """The only source; of a rule with several, the first: `variants` has a rule for each."""
        return self.sources[0]

    @property
    def variants(self) -> tuple[Projection, ...]:
        """The rule for each of its sources alone, with the `where`, `bind` and `each` that hold for it."""
        if isinstance(self.from_, str):
            return (self,)
        return tuple(
            self.model_copy(update={"from_": {name: parts}, **parts})
            for name, parts in source_parts(self.from_).items()
        )

    def place(self, part: str) -> Location:
        """Return the place of `where`, `bind` or `each` in a rule with one source: in the rule, or in its source."""
        own = isinstance(self.from_, dict) and part in self.from_[self.source]
        return ("from", self.source, part) if own else (part,)

"""Rules as pydantic models: the form of rules that all tools use, with the names of the rule file.

A model accepts each spelling of a rule file and holds one value for all of them. `Rules.document` is the canonical document,
plain JSON, that is deployed and that fingerprints are computed from; it is itself a valid rule file. The engine compiles it
without these classes, so that a cold start does not load pydantic.

Names that Python reserves have a trailing underscore here (`from_`, `as_`, `copy_`) and none in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, wraps
from typing import Annotated, Any, Concatenate, Final, Literal, ParamSpec, Self, TypeAlias, TypeVar, cast, get_args

from pydantic import Field, StringConstraints, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from projections.language.forms import (
    AttributeName,
    Duration,
    EachForm,
    IndexForm,
    KeyForm,
    NamesTemplateText,
    PatternForm,
    Source,
    SourcesForm,
    TemplateText,
    TextForm,
)
from projections.language.kinds import Model, Part
from projections.language.kinds.aggregate import Aggregate as Aggregate
from projections.language.kinds.compute import Compute as Compute
from projections.language.kinds.copy import Copy as Copy
from projections.language.kinds.embed import Embed as Embed
from projections.language.kinds.index import Index as Index
from projections.language.kinds.rank import Rank as Rank
from projections.language.kinds.top import Latest as Latest
from projections.language.kinds.top import Top as Top
from projections.language.measures import TYPED, Measure
from projections.language.patterns import Pattern
from projections.language.patterns.implication import compares_as_number
from projections.language.questions import Query, WritePattern
from projections.language.rules import Each
from projections.language.syntax import Location
from projections.language.templates import Template

FORMAT: Final = 1

AnyAction: TypeAlias = Copy | Aggregate | Top | Latest | Rank | Index | Compute | Embed
ACTIONS: Mapping[str, type[AnyAction]] = {action.kind: action for action in get_args(AnyAction)}
KINDS: tuple[str, ...] = tuple(ACTIONS)
COMBINING: tuple[str, ...] = tuple(kind for kind, action in ACTIONS.items() if action.combines)
"""The kinds of rules that can have several sources."""


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

    @model_validator(mode="after")
    def _local_indexes(self) -> Self:
        """Give local indexes the partition key of the table."""
        for name, keys in self.indexes.items():
            if keys.local:
                self.indexes[name] = replace(keys, partition=self.key[:1])
        return self

    @property
    def partition(self) -> tuple[str, str]:
        return self.key[0]

    @property
    def sort(self) -> tuple[str, str] | None:
        return self.key[1] if len(self.key) > 1 else None

    @property
    def key_names(self) -> tuple[str, ...]:
        """The attributes of the primary key."""
        return tuple(name for name, _ in self.key)

    @property
    def attribute_types(self) -> dict[str, str]:
        """The types of all attributes that are keys of the table or of its indexes."""
        return dict([*self.key, *(pair for keys in self.indexes.values() for pair in keys.attributes)])

    def shown(self, index: str) -> frozenset[str] | None:
        """Return the attributes of an item that an index returns; None for all."""
        keys = self.indexes[index]
        if keys.projection == "all":
            return None
        listed = keys.projection if isinstance(keys.projection, tuple) else ()
        return keys.names.union(listed, self.key_names)


def _is_empty(value: Collection[object]) -> bool:
    return not value


class Entity(Model):
    """A kind of item: how it is recognised, and the variables in its key."""

    description: Prose | None = Field(default=None, description="A text about the entity. It has no effect.")
    table: str = Field(default="", description="The table that holds its items; required if there are several tables.")
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
    required: Annotated[list[AttributeName], Field(min_length=1)] = Field(
        default=[],
        exclude_if=_is_empty,
        description="Attributes that every item has. `check` and `queries` use them to decide whether an index holds all "
        "items.",
    )

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables in its key, in order."""
        return tuple(dict.fromkeys(name for template in self.key.values() for name in template.names))

    @property
    def conditions(self) -> Pattern:
        """The pattern that its items match, which may be empty."""
        return self.match or EVERYTHING


EVERYTHING = Pattern((), {})
"""The pattern that every item matches."""


class Projection(Model):
    """One rule: its sources, and one action.

    That is `copy`, `aggregate`, `top`, `latest`, `rank`, `index`, `compute` or `embed`.
    """

    from_: SourcesForm = Field(
        description="The entity whose items the rule reads; for aggregate, top, latest and rank also a list of entities, or "
        "a mapping from each to its own `where`, `bind` and `each`."
    )
    where_: PatternForm | None = Field(
        default=None,
        exclude=True,
        description="A pattern, as in Lambda's filters: the rule applies to the source items that match it.",
    )
    bind_: dict[str, TemplateText] = Field(
        default={},
        exclude=True,
        description="Variables of the target's key that the source does not have under the same name: variable → "
        "template.",
    )
    each_: EachForm | None = Field(
        default=None,
        exclude=True,
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
    tags: list[Tag] = Field(
        default=[], exclude_if=_is_empty, description="Names of groups of rules, for `--select tag:x`."
    )
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
    index: Index | None = Field(
        default=None,
        description="Keys of sparse indexes on the source item itself: one mapping, or a list of cases, each with "
        "`where`; the first that matches applies.",
    )
    compute: Compute | None = Field(
        default=None, description="Attributes of the source item itself, computed from its other attributes."
    )
    embed: Embed | None = Field(default=None, description="Attributes of a parent kept in every child.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, _field(kind)) is not None]
        if not given:
            raise PydanticCustomError("rule", "does nothing: add one of " + ", ".join(KINDS))
        if len(given) > 1:
            raise PydanticCustomError(
                "rule", f"does {' and '.join(given)}, and a rule can have only one of them: write {len(given)} rules"
            )
        return self

    @model_validator(mode="after")
    def _sources(self) -> Self:
        """Give each source the parts that it does not state for itself."""
        shared = {"where": self.where_, "bind": self.bind_, "each": self.each_}
        stated = cast(
            dict[str, dict[str, Any] | Source], self.from_
        )  # a model that is part of another is validated twice
        sources = {
            name: one if isinstance(one := stated[name], Source) else Source(**{**shared, **one})
            for name in sorted(stated)
        }
        return self._completed(from_=sources, where_=None, bind_={}, each_=None)

    def document(self) -> dict[str, Any]:
        """Return the rule in the canonical document."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @cached_property
    def action(self) -> AnyAction:
        """What the rule does."""
        return cast(AnyAction, next(filter(None, (getattr(self, _field(kind)) for kind in KINDS))))

    @property
    def kind(self) -> str:
        """Which of `KINDS` the rule is."""
        return self.action.kind

    @property
    def publishes(self) -> bool:
        """Whether the rule writes to the tables."""
        return self.enabled and self.mode == "live"

    @property
    def mode_in_words(self) -> str:
        """The mode of the rule: `live`, `shadow` or `disabled`."""
        return self.mode if self.enabled else "disabled"

    @property
    def into(self) -> str:
        """The entity the rule writes to; of a `rank`, the one whose key names the board."""
        action = self.action
        return self.source if isinstance(action, Index | Compute) else action.into

    @property
    def sources(self) -> tuple[str, ...]:
        """The entities whose items the rule reads, sorted by name."""
        return tuple(self.from_)

    @property
    def source(self) -> str:
        """The only source; of a rule with several, the first: `variants` has a rule for each."""
        return next(iter(self.from_))

    @property
    def where(self) -> Pattern | None:
        return self.from_[self.source].where

    @property
    def bind(self) -> Mapping[str, Template]:
        return self.from_[self.source].bind

    @property
    def each(self) -> Each | None:
        return self.from_[self.source].each

    @property
    def variants(self) -> tuple[Projection, ...]:
        """The rule for each of its sources alone."""
        if len(self.from_) == 1:
            return (self,)
        return tuple(self.model_copy(update={"from_": {name: parts}}) for name, parts in self.from_.items())

    def place(self, *steps: str | int) -> Location:
        """Return the place of `where`, `bind` or `each` of a rule with one source."""
        return ("from", self.source, *steps)

    def parts(self) -> Iterator[Part]:
        """Yield the templates, expressions and patterns of a rule with one source that read its items."""
        if self.where is not None:
            yield Part(self.where, self.place("where"))
        for name, template in self.bind.items():
            yield Part(template, self.place("bind", name))
        yield from self.action.parts()


def _field(kind: str) -> str:
    return "copy_" if kind == "copy" else kind


class Rules(Model):
    """Projections for DynamoDB: tables, the entities in them, and the rules that derive data from data."""

    format: SkipJsonSchema[Literal[1]] = Field(default=FORMAT, description="The format of the canonical document.")
    include: list[str] = Field(
        default=[],
        exclude=True,
        description="Files with further parts of these rules, relative to this file, such as `[users.yaml, "
        "orders/*.yaml]`, or the names of bundled rule files.",
    )
    table: Table | None = Field(default=None, exclude=True, description="The table, if there is only one.")
    tables: dict[Name, Table] = Field(default={}, description="Tables by name, if there are several.")
    guard_prefix: Prefix = Field(
        default="~",
        description="The beginning of the names of guards, the attributes that rules write beside derived values. "
        "Its first character is a sign.",
    )
    entities: Annotated[dict[Name, Entity], Field(min_length=1)] = Field(description="Kinds of items, by name.")
    projections: dict[Name, Projection] = Field(default={}, description="The rules, by name.")
    retired: dict[Name, Literal["keep", "remove"]] = Field(
        default={}, description="Rules that were removed: whether the values that they wrote stay."
    )
    queries: dict[Name, Query] = Field(default={}, exclude=True, description="The application's queries, by name.")
    writes: dict[Name, WritePattern] = Field(default={}, exclude=True, description="The application's writes, by name.")

    @cached_property
    def answers(self) -> dict[tuple[Any, ...], Any]:
        """The results of functions with `once`, by function and arguments."""
        return {}

    @model_validator(mode="after")
    def _tables_or_table(self) -> Self:
        """Name a single `table` main, and give each entity without a table the only one."""
        if self.table is None and not self.tables:
            raise PydanticCustomError("rule", "no table: add `table: {key: [PK, SK]}`")
        if self.table is not None and self.tables:
            raise PydanticCustomError("rule", "has both `table` and `tables`: move the table into `tables`")
        tables = self.tables if self.table is None else {SINGLE: self.table}
        entities = self.entities
        if len(tables) == 1:
            (only,) = tables
            entities = {
                name: entity if entity.table else entity.model_copy(update={"table": only})
                for name, entity in entities.items()
            }
        return self._completed(table=None, tables=tables, entities=entities)

    def table_of(self, entity: str) -> Table:
        """Return the table of an entity."""
        return self.tables[self.entities[entity].table]

    def variants(self) -> Iterator[tuple[str, Projection]]:
        """Yield each rule with its name, once for each of its sources (`Projection.variants`)."""
        for name, rule in self.projections.items():
            for variant in rule.variants:
                yield name, variant

    def with_projections(self, projections: Mapping[str, Projection]) -> Rules:
        """Return these rules with other ones in place of `projections`."""
        other = self.model_copy(update={"projections": dict(projections)})
        other.__dict__.pop("answers", None)
        return other

    def document(self) -> dict[str, Any]:
        """Return the canonical document, as plain JSON. The rules must be valid."""
        rules = {name: rule.model_copy(update=completed(self, rule)) for name, rule in self.projections.items()}
        return self.with_projections(rules).model_dump(mode="json", by_alias=True, exclude_none=True)

    def completed(self) -> Rules:
        """Return the rules as their canonical document has them. The rules must be valid."""
        return Rules.from_document(self.document())

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Rules:
        """Return the rules of a canonical document."""
        return cls.model_validate(document, by_alias=True, by_name=False)


SINGLE = "main"
"""The name of the table of a rule file that has `table:`."""


def completed(rules: Rules, rule: Projection) -> dict[str, Any]:
    """Return what follows for a rule from other parts of the rules: whether a copy is claimed, and the types of extremes."""
    action = rule.action
    if isinstance(action, Copy):
        return {"copy_": action.model_copy(update={"claimed": is_claimed(rules, rule)})}
    if isinstance(action, Aggregate):
        measures = {name: typed_measure(rules, rule, measure) for name, measure in action.set.items()}
        return {"aggregate": action.model_copy(update={"set": measures})}
    return {}


def is_claimed(rules: Rules, rule: Projection) -> bool:
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


# --- the type of the values that `min` and `max` compare ---
#
# Numbers and text have no meaningful common order, so each measure takes one type. Values of the other are bad input.


def typed_measure(rules: Rules, rule: Projection, measure: Measure) -> Measure:
    """Return a measure in which `text(path)` stands wherever text is compared; any other expression is a number."""
    expression = measure.expression
    if expression is None or measure.function not in TYPED or expression.is_text:
        return measure
    return replace(measure, expression=expression.as_text()) if extreme_type(rules, rule, measure) == "S" else measure


def extreme_type(rules: Rules, rule: Projection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of a `min` or `max`: `N`, `S`, or None if it is unknown or not the same for all sources."""
    types = {_type_of(rules, variant, measure) for variant in rule.variants}
    return types.pop() if len(types) == 1 else None


def _type_of(rules: Rules, rule: Projection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of a `min` or `max` of the items of one source."""
    expression = measure.expression
    assert expression is not None
    if expression.is_text:
        return "S"
    path = expression.path
    if path is None:
        return "N"
    of_each = rule.each is not None and rule.each.variable == path
    if not of_each and path in rules.entities[rule.source].variables:
        return _of_variable(rules, rule.source, path)
    wheres = filter(None, (rule.where, measure.where))
    return "N" if any(compares_as_number(pattern, path) for pattern in wheres) else None


def declaration(measure: Measure) -> str:
    """Return what to write if the type is unknown: `max(number(x)) to compare numbers, or …`."""
    expression = measure.expression
    assert expression is not None
    written = expression.text.strip()
    number, text = (f"{measure.function}({kind}({written}))" for kind in ("number", "text"))
    return f"{number} to compare numbers, or {text} to compare text"


def _of_variable(rules: Rules, entity: str, variable: str) -> Literal["N", "S"] | None:
    """Return the type of a key variable; None for binary keys, which cannot be compared."""
    types: dict[str, Literal["N", "S"]] = {"N": "N", "S": "S"}
    for attribute, kind in rules.table_of(entity).key:
        if variable in rules.entities[entity].key[attribute].names:
            return types.get(kind)
    return None


_P = ParamSpec("_P")
_T = TypeVar("_T")


def once(function: Callable[Concatenate[Rules, _P], _T]) -> Callable[Concatenate[Rules, _P], _T]:
    """Make a function of rules compute each result once. The planner asks the same for each query and each entity."""

    @wraps(function)
    def known(rules: Rules, *arguments: _P.args, **named: _P.kwargs) -> _T:
        key = (function, *arguments, *named.values())
        if key not in rules.answers:
            rules.answers[key] = function(rules, *arguments, **named)
        found: _T = rules.answers[key]
        return found

    return cast(Callable[Concatenate[Rules, _P], _T], known)

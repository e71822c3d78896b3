"""What all kinds of rules have in common: tables, entities, sources, and the questions that a kind answers.

Each kind is a module of this package: its model, with all facts about it. What some part of the program asks of rules is a
method of `Action`. It is abstract, unless most kinds have the same answer: so the type checker reports a kind that lacks one
(`ACTIONS` in `models`). `rules` has the compiled forms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, wraps
from typing import (
    Annotated,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Literal,
    NamedTuple,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    get_args,
)

from pydantic import Field, StringConstraints, model_validator
from pydantic.json_schema import SkipJsonSchema

from projections.language.arithmetic import Expression, Factor
from projections.language.attribute_sources import AttributeSource
from projections.language.compiling import Kind
from projections.language.forms import (
    VERSION,
    AttributeName,
    Case,
    Constant,
    Duration,
    EachForm,
    IndexForm,
    KeyForm,
    Model,
    NamesTemplateText,
    PatternForm,
    Source,
    SourcesForm,
    TemplateText,
    TextForm,
    rule_error,
)
from projections.language.patterns import EVERYTHING, Pattern
from projections.language.questions import Query, WritePattern
from projections.language.rules import Each
from projections.language.spelling import source_text
from projections.language.syntax import Location, Mistake, written_path
from projections.language.templates import Template
from projections.language.values import plain_words, wire

FORMAT: Final = 1

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
        default=False, description="DynamoDB deletes the items by TTL. Rules that read them need `expired`."
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


Order = Literal["desc", "asc"]


class Part(NamedTuple):
    """A template, expression or pattern of a rule, which reads its source items, and its place in the rule."""

    value: Template | Expression | Pattern
    place: Location
    attributes: tuple[str, ...] = ()
    """The attributes of the target that depend on it; empty if all do."""
    use: str = ""
    """What the rule does with numbers, if its result is a number: `adds it up`."""
    limit: str = ""
    """The digits that it may have, in words, if any other result is bad input."""
    decides: bool = False
    """Whether bad input or a missing value affects everything that the rule writes."""
    fraction: bool = False
    """Whether its result is probably not a whole number."""
    optional: bool = False
    """Whether an item without a value for it contributes all else."""
    whole: str = ""
    """The text at the place, if it is more than the value."""

    @property
    def text(self) -> str:
        """What the file has at the place, if that is a text."""
        return self.whole or (self.value.text if not isinstance(self.value, Pattern) else "")


class Result(NamedTuple):
    """What is known about the value that a rule gives an attribute."""

    type: str | None = None
    """As in DynamoDB; None if it is unknown, or that of the attribute that is carried."""
    how: str = ""
    """What the rule does, in words: `makes it a count`."""
    function: str = ""
    """What computes it: `count`, `sum`, `avg`, `negative` (a sum below 0), `computed`, `counts`."""


def value_words(value: Template | Expression | Constant) -> str:
    """Return what makes a value, in the words of the rule file."""
    return plain_words(value.value) if isinstance(value, Constant) else source_text(value)


def result_of(source: AttributeSource | Constant) -> Result:
    """Return what is known about a value from its source."""
    if isinstance(source, Constant):
        return Result(next(iter(wire(source.value))), f"makes it {value_words(source)}")
    if isinstance(source, Template):
        return Result("S", "makes it of a template")
    return Result(source.type, f"computes it as {'a number' if source.type == 'N' else 'text'}", "computed")


Sources: TypeAlias = tuple[str, ...]
"""The names of a rule's source entities, sorted."""


class WritePath(NamedTuple):
    """The writes of a rule. Write units are those of items of up to 1 KB, with the index entries of an index rule; other
    entries of the target in secondary indexes cost one more each.

    `alone` is the cost of a single change for one target (one child, for an embed); `shared` the cost of each of many
    changes for one target in one batch, if that is less: 0 if all together cost as much as one. `lanes` is what a single
    change would cost with `ledger: lanes`, if the rule could have it.
    """

    name: str
    how: str
    alone: int
    shared: int | None = None
    lanes: int | None = None

    @property
    def units(self) -> str:
        """The cost as text: `5 write units alone, about 2 each in a large batch`."""
        text = f"{self.alone} write unit" + "s" * (self.alone != 1)
        if self.shared is not None:
            text += (
                f" alone, about {self.shared} each in a large batch" if self.shared else ", alone or for a whole batch"
            )
        return text + (f"; `ledger: lanes` would need {self.lanes}" if self.lanes else "")


class Picture(NamedTuple):
    """How pictures show a kind of rule: its colour on a light and on a dark ground, and SVG paths of 16 by 16."""

    light: str
    dark: str
    icon: str


class Action(ABC):
    """What a rule does. Places begin with the kind."""

    kind: ClassVar[Kind]
    aliases: ClassVar[tuple[str, ...]] = ()
    """Names that other tools have for it, which `check` corrects."""
    combines: ClassVar[bool] = False
    """Whether a rule of this kind can have several sources."""
    on_source: ClassVar[bool] = False
    """Whether its target is the source item itself."""
    in_ledger: ClassVar[bool] = False
    """Whether the ledger records the contributions of all rules of this kind."""
    writes_items: ClassVar[bool] = True
    """Whether it writes to items of its target entity."""
    makes_key: ClassVar[bool] = True
    """Whether it makes the key of its target from the source."""
    makes_items: ClassVar[bool] = False
    """Whether its targets are items that it creates and deletes, whatever their entity declares."""
    makes_index_keys: ClassVar[bool] = False
    """Whether the attributes that it writes are keys of indexes."""
    keeps_expired: ClassVar[bool] = True
    """Whether a rule of this kind can have `expired: keep`."""
    instead_of_parts: ClassVar[str] = ""
    """What to write in place of an attribute with a dot, such as `; write {}: counts(…)`; `{}` is its beginning."""
    without_key: ClassVar[tuple[str, str]] = ("", "")
    """Why a rule of this kind cannot have `each` and `bind`, and what stands for `expired`, if it makes no key."""

    @property
    @abstractmethod
    def written(self) -> dict[str, Location]:
        """The attributes of the target that the rule names and writes, each with its place."""

    @abstractmethod
    def parts(self) -> Iterator[Part]:
        """Yield what it reads of source items."""

    @abstractmethod
    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        """Yield the attributes that it writes, each with how it makes the value, in the words of the rule file."""

    @abstractmethod
    def results(self, rules: AnyRules, rule: AnyProjection) -> Mapping[str, Result]:
        """Return what is known about the values of `written`."""

    def mistakes(self, rules: AnyRules, rule: AnyProjection) -> Iterator[Mistake]:
        """Yield mistakes that only this kind can have. All entities and tables of the rule are known."""
        return iter(())

    def final_mistakes(self, rules: AnyRules, name: str) -> Iterator[Mistake]:
        """Yield those that can be found only in rules that are valid otherwise."""
        return iter(())

    def places(self, names: Iterable[str], part: str) -> dict[str, Location]:
        """Return the place of each name in a part of the action."""
        return {name: (self.kind, part, name) for name in names}

    def attribute_parts(self, attributes: Mapping[str, AttributeSource], into: str | None = None) -> Iterator[Part]:
        """Yield the sources of `attributes`; `into` is the attribute that has them all, if it is a list."""
        for name, place in self.places(attributes, "attributes").items():
            yield Part(attributes[name], place, (into or name,), optional=self.in_ledger)

    def advice_on_cycle(self, attribute: str) -> str:
        """Return what to do if an attribute depends on itself, as an addition to the message."""
        return ""

    @property
    def target(self) -> str | None:
        """The entity that it writes to; None if that is its source."""
        return None if self.on_source else str(self.__dict__["into"])

    def complete(self, rules: AnyRules, rule: AnyProjection) -> Self:
        """Return it with what follows from other parts of valid rules, as the canonical document has it."""
        return self

    @property
    def recorded(self) -> bool:
        """Whether the ledger records its contributions, from which it publishes."""
        return self.in_ledger

    @property
    def members(self) -> int:
        """The number of members in one contribution: one for a list, the first item or a claim."""
        return int(self.recorded)

    @property
    def counters(self) -> int:
        """The number of value counters that one contribution changes."""
        return 0

    @property
    def ledger_actions(self) -> int:
        """The actions of a contribution in a transaction, beside its entry and the group that targets share."""
        return self.members + self.counters

    @property
    def queries(self) -> int:
        """The number of queries for members and value counters that a publish makes."""
        return 0

    @property
    def spread(self) -> int | None:
        """The number of ledger items that hold the totals of one target; None if that cannot be set."""
        return None

    @property
    def by_lanes(self) -> bool:
        """Whether its groups are counted by the shards of the stream, without entries: `ledger: lanes`."""
        return False

    @property
    def can_have_lanes(self) -> bool:
        """Whether `ledger: lanes` could be added."""
        return False

    @property
    def first_only(self) -> bool:
        """Whether it writes an attribute only where it is absent."""
        return False

    @property
    def copies_all(self) -> bool:
        """Whether it writes all attributes of its source."""
        return False

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        """The attributes of the target that have the value of a source as it is."""
        return {}

    @property
    def matched(self) -> Mapping[str, Template]:
        """The names by which targets reference their source, if it makes no key: name → template over the source."""
        return {}

    @property
    def elements(self) -> tuple[str, ...]:
        """The attributes of each element, if it writes a list."""
        return ()

    @property
    def several_parents(self) -> bool:
        """Whether a target can reference several sources."""
        return False

    @property
    def cases(self) -> tuple[Case, ...]:
        """The index keys that it sets in each case."""
        return ()

    def gist(self, indexes: Sequence[str]) -> str:
        """Return what it writes, in a few words. `indexes` are those whose keys it makes."""
        names = list(self.written)
        text = ", ".join(names)
        return text if len(names) == 1 or len(text) <= _SHORT else f"{names[0]} and {len(names) - 1} more"

    @abstractmethod
    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        """Return what it does with the items of an entity, in a sentence."""

    @abstractmethod
    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        """Return its writes.

        `each` has the words about elements of a list, if the rule has `each`; `indexes` are those whose keys it makes, or by
        which it finds its targets.
        """

    @staticmethod
    @abstractmethod
    def picture() -> Picture:
        """Return how pictures show the kind."""


_SHORT = 22


class LedgerAction(Action):
    """A kind whose rules publish what contributions of several sources in the ledger come to."""

    combines = True
    in_ledger = True

    @property
    def queries(self) -> int:
        return self.members

    @property
    def spread(self) -> int | None:
        return self.__dict__.get("shards")

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        return self._ledger_path()

    def _ledger_path(self, longest: int = 1) -> WritePath:
        """Return the path through the ledger. In a transaction, entry, group and each member and counter cost two units."""
        group = self._group_words()
        more = [(self.members, "member"), (self.counters, "value counter")]
        words = [f"{number} {noun}s" if number > 1 else noun for number, noun in more if number]
        *first, last = ["entry", group, *words]
        target = "1 write of the target" if longest == 1 else f"1 write of the target, with the first {longest}"
        how = f"{', '.join(first)} and {last} in one transaction of the ledger, then {target}"
        return WritePath(self.kind, how, 5 + 2 * self.ledger_actions, 2 + 2 * self.ledger_actions)

    def _group_words(self) -> str:
        return f"one of {self.spread} shards of the group" if (self.spread or 1) > 1 else "group"


class ItemAction(Action):
    """A kind whose rules write on the source item itself."""

    on_source = True
    makes_key = False
    without_key = ("its target is the source item itself", "the item itself is deleted")


class AnyProjection(Model):
    """A rule without what it does: its sources, and what all kinds of rules can have."""

    from_: SourcesForm = Field(
        description="The entity whose items the rule reads; for kinds that combine sources also a list of entities, "
        "or a mapping from each to its own `where`, `bind` and `each`."
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
    hold: bool = Field(
        default=False,
        description="`true`: the rule is not published, and values that it has published stay. The ledger is maintained, so "
        "that `verify` can compare.",
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

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = [action.kind for action in self.actions]
        if not kinds:
            raise rule_error("does nothing: add one of " + ", ".join(get_args(Kind)))
        if len(kinds) > 1:
            raise rule_error(
                f"does {' and '.join(kinds)}, and a rule can have only one of them: write {len(kinds)} rules"
            )
        return self

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        return tuple(part for part in self.__dict__.values() if isinstance(part, Action))

    @property
    def action(self) -> Action:
        """What the rule does."""
        return self.actions[0]

    @property
    def kind(self) -> Kind:
        """Which of `Kind` the rule is."""
        return self.action.kind

    @property
    def into(self) -> str:
        """The entity the rule writes to; of a `rank`, the one whose key names the board."""
        return self.action.target or self.source

    def document(self) -> dict[str, Any]:
        """Return the rule in the canonical document."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @property
    def publishes(self) -> bool:
        """Whether the rule writes to the tables."""
        return not self.hold

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
    def variants(self) -> tuple[Self, ...]:
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


class AnyRules(Model):
    """Tables, the entities in them, and rules of any kind."""

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
    projections: Mapping[str, AnyProjection] = {}
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
            raise rule_error("no table: add `table: {key: [PK, SK]}`")
        if self.table is not None and self.tables:
            raise rule_error("has both `table` and `tables`: move the table into `tables`")
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

    def variants(self) -> Iterator[tuple[str, AnyProjection]]:
        """Yield each rule with its name, once for each of its sources (`AnyProjection.variants`)."""
        for name, rule in self.projections.items():
            for variant in rule.variants:
                yield name, variant

    def with_projections(self, projections: Mapping[str, AnyProjection]) -> Self:
        """Return these rules with other ones in place of `projections`."""
        other = self.model_copy(update={"projections": dict(projections)})
        other.__dict__.pop("answers", None)
        return other

    def document(self) -> dict[str, Any]:
        """Return the canonical document, as plain JSON. The rules must be valid."""
        return self.completed().model_dump(mode="json", by_alias=True, exclude_none=True)

    def completed(self) -> Self:
        """Return the rules with what follows for each from the others: claims, types. The rules must be valid."""
        rules = {}
        for name, rule in self.projections.items():
            action = rule.action.complete(self, rule)
            field = "copy_" if rule.kind == "copy" else rule.kind  # Python reserves `copy` for models
            rules[name] = rule.model_copy(update={field: action})
            rules[name].__dict__.pop("actions", None)
        return self.with_projections(rules)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        """Return the rules of a canonical document, which may have the names of versions."""
        return cls.model_validate(document, by_alias=True, by_name=False, context=VERSION)


SINGLE = "main"
"""The name of the table of a rule file that has `table:`."""


EVERY = "*"
"""Stands for all attributes, where a rule copies all."""


def path_expression(name: str) -> Expression:
    """Return the expression that reads a name."""
    return Expression(written_path(name), Factor(name))


def source_words(source: AttributeSource, entity: str) -> str:
    """Return the source of an attribute in words: `User.name`, `qty * price of Order` or `{first} {last} of User`."""
    text = source_text(source)
    return f"{entity}.{text}" if source.path is not None else f"{text} of {entity}"


_P = ParamSpec("_P")
_T = TypeVar("_T")
_R = TypeVar("_R", bound=AnyRules)


def once(function: Callable[Concatenate[_R, _P], _T]) -> Callable[Concatenate[_R, _P], _T]:
    """Make a function of rules compute each result once. The planner asks the same for each query and each entity."""

    @wraps(function)
    def known(rules: _R, *arguments: _P.args, **named: _P.kwargs) -> _T:
        key = (function, *arguments, *named.values())
        if key not in rules.answers:
            rules.answers[key] = function(rules, *arguments, **named)
        found: _T = rules.answers[key]
        return found

    return cast(Callable[Concatenate[_R, _P], _T], known)


def listed_once(function: Callable[[_R], Iterator[_T]]) -> Callable[[_R], tuple[_T, ...]]:
    """Make a function that yields results return them all, computed once."""

    def listed(rules: _R) -> tuple[_T, ...]:
        return tuple(function(rules))

    return once(listed)


@once
def plain_document(rules: AnyRules) -> dict[str, Any]:
    """Return the canonical document of rules, made once."""
    return rules.document()

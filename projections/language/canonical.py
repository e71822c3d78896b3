"""The canonical rules as typed values, for the tools.

The loader makes them from a rule file. `to_document` returns the JSON document that is deployed and that fingerprints are
computed from; `from_document` reads it back without any difference. The engine compiles the JSON without this module, so
that a cold start does not load these classes.

Patterns (`where`, `match`) are documents here, and templates and expressions are texts: `patterns`, `templates` and
`expressions` parse them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeAlias, TypeVar, cast

from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.ranks import Scale

FORMAT = 1

Pattern: TypeAlias = Mapping[str, Any]
Attributes: TypeAlias = tuple[tuple[str, str], ...]
"""Key attributes, each with its type: S, N or B."""


@dataclass(frozen=True, slots=True)
class IndexKeys:
    """The key attributes of an index, and what it projects: `all`, `keys_only`, or these attributes by name.

    A local index has the partition key of its table.
    """

    partition: Attributes
    sort: Attributes
    projection: str | tuple[str, ...] = "all"
    local: bool = False

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in (*self.partition, *self.sort))

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> IndexKeys:
        projection = document.get("projection", "all")
        return cls(
            _attributes(document["partition"]),
            _attributes(document["sort"]),
            projection if isinstance(projection, str) else tuple(projection),
            document.get("local", False),
        )

    def to_document(self) -> dict[str, Any]:
        """Return the index as a document. What is as usual is left out, so that older documents stay the same."""
        document: dict[str, Any] = {part: [[*one] for one in getattr(self, part)] for part in ("partition", "sort")}
        if self.projection != "all":
            document["projection"] = self.projection if isinstance(self.projection, str) else [*self.projection]
        return {**document, "local": True} if self.local else document


@dataclass(frozen=True, slots=True)
class Table:
    partition: tuple[str, str]
    sort: tuple[str, str] | None
    indexes: Mapping[str, IndexKeys]
    ttl: str | None
    separator: str

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Table:
        (partition,) = _attributes([document["partition"]])
        (sort,) = _attributes([document["sort"]]) if document["sort"] else (None,)
        indexes = {name: IndexKeys.from_document(keys) for name, keys in document["indexes"].items()}
        return cls(partition, sort, indexes, document["ttl"], document["separator"])

    def shown(self, index: str) -> frozenset[str] | None:
        """Return the attributes of an item that an index returns; None for all."""
        keys = self.indexes[index]
        if keys.projection == "all":
            return None
        listed = keys.projection if isinstance(keys.projection, tuple) else ()
        return keys.names.union(listed, (name for name, _ in filter(None, (self.partition, self.sort))))

    def to_document(self) -> dict[str, Any]:
        return {
            "partition": [*self.partition],
            "sort": [*self.sort] if self.sort else None,
            "indexes": {name: keys.to_document() for name, keys in self.indexes.items()},
            "ttl": self.ttl,
            "separator": self.separator,
        }


def _attributes(pairs: Any) -> Attributes:
    return tuple((name, kind) for name, kind in pairs)


@dataclass(frozen=True, slots=True)
class Entity:
    """A kind of item. `key` and `index_key` have a template for each key attribute."""

    table: str
    key: Mapping[str, str]
    match: Pattern | None
    id: str | None
    derived: bool
    expires: bool
    index_key: Mapping[str, str]
    required: tuple[str, ...] = ()
    """Attributes that every item has, as the application promises. For the planner of queries: no rule depends on it."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Entity:
        return cls(**{**document, "required": tuple(document.get("required", ()))})

    def to_document(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "key": dict(self.key),
            "match": self.match,
            "id": self.id,
            "derived": self.derived,
            "expires": self.expires,
            "index_key": dict(self.index_key),
            **({"required": [*self.required]} if self.required else {}),
        }


@dataclass(frozen=True, slots=True)
class Each:
    """One contribution per element of a list or set, or per ancestor of a path."""

    variable: str
    path: str
    ancestors: bool
    separator: str
    most: int
    """How many elements one item may have."""

    def to_document(self) -> dict[str, Any]:
        return {
            "variable": self.variable,
            "path": self.path,
            "ancestors": self.ancestors,
            "separator": self.separator,
            "most": self.most,
        }


@dataclass(frozen=True, slots=True)
class Source:
    """A source entity, and the parts of the rule that hold for it."""

    source: str
    where: Pattern | None
    bind: Mapping[str, str]
    each: Each | None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Source:
        each = Each(**document["each"]) if document["each"] else None
        return cls(document["from"], document["where"], document["bind"], each)

    def to_document(self) -> dict[str, Any]:
        return {
            "from": self.source,
            "where": self.where,
            "bind": dict(self.bind),
            "each": self.each.to_document() if self.each else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """The fields of all kinds. `into` is the entity that the rule writes to; for an index rule, the source.

    `source`, `where`, `bind` and `each` are those of the first source by name; `other_sources` has the others, sorted.
    """

    kind: ClassVar[str]

    source: str
    into: str
    where: Pattern | None
    bind: Mapping[str, str]
    each: Each | None
    expired: str | None
    mode: str
    other_sources: tuple[Source, ...] = ()

    def to_document(self) -> dict[str, Any]:
        first = Source(self.source, self.where, self.bind, self.each)
        others = [other.to_document() for other in self.other_sources]
        return {
            "kind": self.kind,
            **first.to_document(),
            **({"other_sources": others} if others else {}),
            "expired": self.expired,
            "mode": self.mode,
            **self._action(),
        }

    @property
    def sources(self) -> tuple[str, ...]:
        """The source entities, sorted by name."""
        return (self.source, *(other.source for other in self.other_sources))

    @property
    def variants(self) -> tuple[Self, ...]:
        """The rule for each of its sources alone."""
        if not self.other_sources:
            return (self,)
        first = Source(self.source, self.where, self.bind, self.each)
        return tuple(
            replace(self, source=one.source, where=one.where, bind=one.bind, each=one.each, other_sources=())
            for one in (first, *self.other_sources)
        )

    def _action(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def recorded(self) -> bool:
        """Whether the ledger records its contributions, from which it publishes."""
        return False

    @property
    def members(self) -> int:
        """The number of members in one contribution: one for a list, a latest item or a claim."""
        return int(self.recorded)

    @property
    def written(self) -> tuple[str, ...]:
        """The attributes of the target that the rule names and writes."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Constant:
    """A value that is not a template."""

    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy(_Rule):
    """`attributes` maps attributes of the target to paths of the source; None copies all attributes."""

    kind = "copy"

    attributes: Mapping[str, str] | None
    values: Mapping[str, str | Constant]
    claimed: bool

    def _action(self) -> dict[str, Any]:
        return {
            "into": self.into,
            "attributes": "all" if self.attributes is None else dict(self.attributes),
            "values": {
                name: {"template": value} if isinstance(value, str) else {"constant": value.value}
                for name, value in self.values.items()
            },
            "claimed": self.claimed,
        }

    @property
    def recorded(self) -> bool:
        return self.claimed

    @property
    def written(self) -> tuple[str, ...]:
        return (*(self.attributes or ()), *self.values)


@dataclass(frozen=True, slots=True)
class Measure:
    function: str
    expression: str | None
    where: Pattern | None
    round: int | None = None
    """The digits after the decimal point that are published; None for all."""
    by: str | None = None
    """The path that `first` and `last` order by."""

    def to_document(self) -> dict[str, Any]:
        """Return the measure as a document. What is as usual is left out, so that older documents stay the same."""
        document = {"function": self.function, "expression": self.expression, "where": self.where}
        more = {"round": self.round, "by": self.by}
        return {**document, **{name: value for name, value in more.items() if value is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate(_Rule):
    kind = "aggregate"

    set: Mapping[str, Measure]
    shards: int

    def _action(self) -> dict[str, Any]:
        measures = {name: measure.to_document() for name, measure in self.set.items()}
        return {"into": self.into, "set": measures, "shards": self.shards}

    @property
    def recorded(self) -> bool:
        return True

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(self.set)

    @property
    def ordered(self) -> tuple[Measure, ...]:
        """The measures that need the members of a group: `min`, `max`, `first` and `last`."""
        return tuple(measure for measure in self.set.values() if measure.function in (*EXTREMES, *PICKED))

    @property
    def members(self) -> int:
        """The number of members: measures of the same values, or by the same order, share one."""
        return len({_order(measure) for measure in self.ordered})

    @property
    def counters(self) -> int:
        """The number of value counters that one contribution changes: measures of the same values share one."""
        return len({_order(measure) for measure in self.set.values() if measure.function in VALUES})

    @property
    def queries(self) -> int:
        """The number of queries for members and value counters that a publish makes."""
        listed = {_order(measure) for measure in self.set.values() if measure.function in ("counts", "values")}
        return len({(_order(measure), measure.function in ("min", "first")) for measure in self.ordered}) + len(listed)


def _order(measure: Measure) -> tuple[str | None, bool, str]:
    """Return what orders the members of a measure: measures with the same order share them."""
    return measure.by or measure.expression, measure.by is None, str(measure.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class Top(_Rule):
    kind = "top"

    list_name: str
    by: str
    limit: int
    order: str
    attributes: Mapping[str, str]

    def _action(self) -> dict[str, Any]:
        return {
            "into": self.into,
            "as": self.list_name,
            "by": self.by,
            "limit": self.limit,
            "order": self.order,
            "attributes": dict(self.attributes),
        }

    @property
    def recorded(self) -> bool:
        return True

    @property
    def written(self) -> tuple[str, ...]:
        return (self.list_name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest(_Rule):
    kind = "latest"

    by: str
    order: str
    attributes: Mapping[str, str]

    def _action(self) -> dict[str, Any]:
        return {"into": self.into, "by": self.by, "order": self.order, "attributes": dict(self.attributes)}

    @property
    def recorded(self) -> bool:
        return True

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(self.attributes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank(_Rule):
    """It writes nothing: `into` is the entity whose key names the board."""

    kind = "rank"

    by: str
    digits: int
    decimals: int
    order: str
    shards: int

    def _action(self) -> dict[str, Any]:
        return {
            "into": self.into,
            "by": self.by,
            "digits": self.digits,
            "decimals": self.decimals,
            "order": self.order,
            "shards": self.shards,
        }

    @property
    def recorded(self) -> bool:
        return True

    @property
    def members(self) -> int:
        return 0

    @property
    def scale(self) -> Scale:
        return Scale(self.digits, self.decimals)

    @property
    def written(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, slots=True)
class Case:
    where: Pattern | None
    set: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Index(_Rule):
    kind = "index"

    cases: tuple[Case, ...]

    def _action(self) -> dict[str, Any]:
        return {"cases": [{"where": case.where, "set": dict(case.set)} for case in self.cases]}

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for case in self.cases for name in case.set))


@dataclass(frozen=True, slots=True)
class Computed:
    """One case of a computed attribute: `kind` is template, expression or constant."""

    kind: str
    value: Any
    where: Pattern | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Computed:
        (kind,) = document.keys() - {"where"}
        return cls(kind, document[kind], document.get("where"))

    def to_document(self) -> dict[str, Any]:
        return {self.kind: self.value} | ({"where": self.where} if self.where is not None else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(_Rule):
    """`set` has the cases of each attribute; the first that matches applies."""

    kind = "compute"

    set: Mapping[str, tuple[Computed, ...]]
    once: bool = False

    def _action(self) -> dict[str, Any]:
        cases = {name: [case.to_document() for case in cases] for name, cases in self.set.items()}
        return {"set": cases} | ({"once": True} if self.once else {})

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(self.set)


@dataclass(frozen=True, slots=True)
class Listed:
    """The form of what several parents give to a child, which holds their references under the name `references`."""

    list_name: str
    references: str
    form: str
    id: str | None
    """The name of the reference in each element of a list; None for a map."""
    missing: str

    def to_document(self) -> dict[str, Any]:
        return {
            "as": self.list_name,
            "references": self.references,
            "form": self.form,
            "id": self.id,
            "missing": self.missing,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Embed(_Rule):
    kind = "embed"

    match: Mapping[str, str]
    attributes: Mapping[str, str]
    on_delete: str
    listed: Listed | None = None
    """If a child references several parents."""

    def _action(self) -> dict[str, Any]:
        return {
            "into": self.into,
            "match": dict(self.match),
            "attributes": dict(self.attributes),
            "on_delete": self.on_delete,
            **({"listed": self.listed.to_document()} if self.listed is not None else {}),
        }

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(self.attributes) if self.listed is None else (self.listed.list_name,)


Rule: TypeAlias = Copy | Aggregate | Top | Latest | Rank | Index | Compute | Embed


def rule_of(document: Mapping[str, Any]) -> Rule:
    """Return a rule of the canonical document."""
    source = Source.from_document(document)
    common: dict[str, Any] = {
        "source": source.source,
        "into": document.get("into", source.source),
        "where": source.where,
        "bind": source.bind,
        "each": source.each,
        "other_sources": tuple(map(Source.from_document, document.get("other_sources", ()))),
        "expired": document["expired"],
        "mode": document["mode"],
    }
    match document["kind"]:
        case "copy":
            return Copy(
                **common,
                attributes=None if document["attributes"] == "all" else document["attributes"],
                values={
                    n: v["template"] if "template" in v else Constant(v["constant"])
                    for n, v in document["values"].items()
                },
                claimed=document["claimed"],
            )
        case "aggregate":
            measures = {name: Measure(**measure) for name, measure in document["set"].items()}
            return Aggregate(**common, set=measures, shards=document["shards"])
        case "top":
            order = {name: document[name] for name in ("by", "limit", "order", "attributes")}
            return Top(**common, list_name=document["as"], **order)
        case "latest":
            return Latest(**common, **{name: document[name] for name in ("by", "order", "attributes")})
        case "rank":
            return Rank(**common, **{name: document[name] for name in ("by", "digits", "decimals", "order", "shards")})
        case "index":
            return Index(**common, cases=tuple(Case(case["where"], case["set"]) for case in document["cases"]))
        case "compute":
            computed = {name: tuple(map(Computed.from_document, cases)) for name, cases in document["set"].items()}
            return Compute(**common, set=computed, once=document.get("once", False))
    listed = None
    if "listed" in document:
        form = document["listed"]
        listed = Listed(form["as"], form["references"], form["form"], form["id"], form["missing"])
    return Embed(**common, listed=listed, **{name: document[name] for name in ("match", "attributes", "on_delete")})


@dataclass(frozen=True, slots=True)
class About:
    """What people say about a table, an entity or a rule. No value and no fingerprint depends on it.

    A rule that is `disabled` has the mode `shadow`: this is what to call it.
    """

    description: str | None = None
    owner: str | None = None
    tags: tuple[str, ...] = ()
    disabled: bool = False
    within: int | None = None
    """How many seconds old a change may be when the rule has processed it."""

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> About:
        return cls(**{**document, "tags": tuple(document.get("tags", ()))})

    def to_document(self) -> dict[str, Any]:
        """Return what is given as a document."""
        parts = {
            "description": self.description,
            "owner": self.owner,
            "tags": [*self.tags],
            "disabled": self.disabled,
            "within": self.within,
        }
        return {name: value for name, value in parts.items() if value}


NOTHING = About()

_DURATION = re.compile(r"([1-9][0-9]{0,3})([smh])")
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds_of(duration: str) -> int | None:
    """Return the seconds of a duration such as `30s`, `5m` or `1h`; None for any other text."""
    found = _DURATION.fullmatch(duration)
    return int(found[1]) * _UNITS[found[2]] if found else None


def duration_of(seconds: int) -> str:
    """Return the duration that `seconds_of` reads as these seconds, in the largest unit that divides them."""
    unit = next(unit for unit in "hms" if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


@dataclass(frozen=True)
class Document:
    """Valid rules with all defaults. Tables, entities and rules are by name, in the order of the file.

    `about` has descriptions by part (`tables`, `entities`, `projections`) and name.
    """

    guard_prefix: str
    tables: Mapping[str, Table]
    entities: Mapping[str, Entity]
    rules: Mapping[str, Rule]
    retired: Mapping[str, str]
    about: Mapping[str, Mapping[str, About]] = field(default_factory=dict)

    @cached_property
    def answers(self) -> dict[tuple[Any, ...], Any]:
        """The results of functions with `once`, by function and arguments."""
        return {}

    def variants(self) -> Iterator[tuple[str, Rule]]:
        """Yield each rule with its name, once for each of its sources."""
        for name, rule in self.rules.items():
            for variant in rule.variants:
                yield name, variant

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Document:
        return cls(
            document["guard_prefix"],
            {name: Table.from_document(table) for name, table in document["tables"].items()},
            {name: Entity.from_document(entity) for name, entity in document["entities"].items()},
            {name: rule_of(rule) for name, rule in document["projections"].items()},
            document["retired"],
            {
                part: {name: About.from_document(one) for name, one in entries.items()}
                for part, entries in document.get("about", {}).items()
            },
        )

    def about_rule(self, name: str) -> About:
        """Return what is said about a rule."""
        return self.about.get("projections", {}).get(name, NOTHING)

    def mode(self, name: str) -> str:
        """Return the mode of a rule in words: `live`, `shadow` or `disabled`."""
        return "disabled" if self.about_rule(name).disabled else self.rules[name].mode

    def to_document(self) -> dict[str, Any]:
        about = {
            part: {name: one.to_document() for name, one in entries.items()} for part, entries in self.about.items()
        }
        return {
            "format": FORMAT,
            "guard_prefix": self.guard_prefix,
            "tables": {name: table.to_document() for name, table in self.tables.items()},
            "entities": {name: entity.to_document() for name, entity in self.entities.items()},
            "projections": {name: rule.to_document() for name, rule in self.rules.items()},
            "retired": dict(self.retired),
            **({"about": about} if about else {}),
        }


_P = ParamSpec("_P")
_T = TypeVar("_T")


def once(function: Callable[Concatenate[Document, _P], _T]) -> Callable[Concatenate[Document, _P], _T]:
    """Make a function of rules compute each result once. The planner asks the same for each query and each entity."""

    @wraps(function)
    def known(document: Document, *arguments: _P.args, **named: _P.kwargs) -> _T:
        key = (function, *arguments, *named.values())
        if key not in document.answers:
            document.answers[key] = function(document, *arguments, **named)
        found: _T = document.answers[key]
        return found

    return cast(Callable[Concatenate[Document, _P], _T], known)

"""What an application does, and what has to be assumed of it: rates, sizes, how many targets, how many children."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from projections.errors import UsageError
from projections.inspect.cost.figures import CALL_MS, ITEM_BYTES, PRICES, TRANSACTION_MS
from projections.language.program import Program
from projections.language.syntax import suggest

__all__ = [
    "EDIT",
    "INSERT",
    "REMOVE",
    "Assumptions",
    "Delivery",
    "Flow",
    "Workload",
    "assuming",
    "named_numbers",
    "projections_of",
    "read_rates",
    "read_workload",
    "shares",
]


INSERT, EDIT, REMOVE = "insert", "edit", "remove"


@dataclass(frozen=True, slots=True)
class Flow:
    """Changes of one kind: items of an entity that appear, that go, or of which some attributes change (None: all)."""

    entity: str
    kind: str
    attributes: frozenset[str] | None = None

    def __str__(self) -> str:
        if self.kind == INSERT:
            return f"a new {self.entity}"
        if self.kind == REMOVE:
            return f"a removed {self.entity}"
        return f"an edit of {self.entity}" + (f".{', '.join(sorted(self.attributes))}" if self.attributes else "")


@dataclass(frozen=True, slots=True)
class Delivery:
    """How Lambda gets the records: the template's own settings where nobody says otherwise.

    `batch` fixes how many of the application's events come at once; without it the rates and the window decide.
    """

    batch_size: int = 500
    window: float = 1.0
    shards: int = 1
    parallelization: int = 1
    batch: float | None = None


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Numbers by the name of an entity or rule, under "" for all others.

    `item_bytes` of items of an entity; `matching` the share of a source's items that a rule applies to; `targets` how many
    different targets the events of one batch have under a rule (without: each its own); `values` how many different values
    a target has under `counts`, `distinct` and `values` (without: each event its own); `elements` of an `each`, or
    references of a child; `children` of a parent under an embed; `hottest` the share of a rule's events that the busiest
    target gets. `projections` has, by index, the attributes that it projects besides keys if not those of the rules; None
    for all (see `assuming`).
    """

    item_bytes: Mapping[str, float] = field(default_factory=dict)
    matching: Mapping[str, float] = field(default_factory=dict)
    targets: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, float] = field(default_factory=dict)
    elements: Mapping[str, float] = field(default_factory=dict)
    children: Mapping[str, float] = field(default_factory=dict)
    hottest: Mapping[str, float] = field(default_factory=dict)
    projections: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    memory_mb: int = 1024
    call_ms: float = CALL_MS
    transaction_ms: float = TRANSACTION_MS
    prices: Mapping[str, float] = field(default_factory=lambda: {name: price for name, (price, _) in PRICES.items()})

    def bytes_of(self, entity: str) -> float:
        return _of(self.item_bytes, entity, ITEM_BYTES)

    def share(self, rule: str) -> float:
        return _of(self.matching, rule, 1.0)

    def targets_of(self, rule: str) -> float | None:
        return _of(self.targets, rule, math.nan) if rule in self.targets or "" in self.targets else None

    def values_of(self, rule: str) -> int | None:
        known = rule in self.values or "" in self.values
        return max(1, round(_of(self.values, rule, 1.0))) if known else None

    def elements_of(self, rule: str) -> float:
        return _of(self.elements, rule, 3.0)

    def children_of(self, rule: str) -> float:
        return _of(self.children, rule, 100.0)


def _of(numbers: Mapping[str, float], name: str, otherwise: float) -> float:
    return numbers.get(name, numbers.get("", otherwise))


@dataclass(frozen=True, slots=True)
class Workload:
    """The application's changes: how many a second of each kind."""

    rates: Mapping[Flow, float]

    @property
    def events_per_second(self) -> float:
        return math.fsum(self.rates.values())


def named_numbers(given: Sequence[str], known: Iterable[str], option: str, *, least: float = 0.0) -> dict[str, float]:
    """Options as `NAME=NUMBER`, or a number alone for all. Raises UsageError with the nearest name."""
    names = list(known)
    found: dict[str, float] = {}
    for text in given:
        name, equals, number = text.rpartition("=")
        if equals and name not in names:
            raise UsageError(
                f'{option} {text}: unknown name "{name}"'
                + (suggest(name, names) or f"; the names are {', '.join(names)}")
            )
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least:
            raise UsageError(f"{option} {text}: write NAME=NUMBER, or a number for all, {least:g} or more")
        found[name] = value
    return found


def shares(given: Sequence[str], known: Iterable[str], option: str) -> dict[str, float]:
    """Options as `NAME=SHARE`, from 0 to 1. Raises UsageError."""
    found = named_numbers(given, known, option)
    for name, share in found.items():
        if share > 1:
            raise UsageError(f"{option} {name}={share:g}: a share is 1 at most; write 0.2 for a fifth")
    return found


def projections_of(program: Program, given: Sequence[str]) -> dict[str, frozenset[str] | None]:
    """What indexes project: `GSI1=all`, `GSI1=keys` or `GSI1=title,status`. Raises UsageError."""
    indexes = sorted({index for schema in program.tables.values() for index in schema.indexes})
    found: dict[str, frozenset[str] | None] = {}
    for text in given:
        name, equals, what = text.partition("=")
        if not equals or name not in indexes or not what:
            known = ", ".join(indexes) or "none"
            raise UsageError(
                f"--projection {text}: write INDEX=all, INDEX=keys or INDEX=attribute,…; the indexes are {known}"
            )
        found[name] = None if what == "all" else frozenset() if what == "keys" else frozenset(what.split(","))
    return found


def assuming(program: Program, projections: Mapping[str, frozenset[str] | None]) -> Program:
    """Return the same rules for tables whose indexes project this."""
    document = copy.deepcopy(dict(program.document))
    for table in document["tables"].values():
        for name in table["indexes"].keys() & projections.keys():
            listed = projections[name]
            table["indexes"][name]["projection"] = "all" if listed is None else sorted(listed) or "keys_only"
    return Program.from_document(document)


def read_rates(program: Program, given: Sequence[str]) -> dict[Flow, float]:
    """Rates as `Like=500` (insertions a second), `Like:removed=20`, or `Post:title,status=3` (edits of these attributes).

    Raises UsageError.
    """
    own = [name for name, entity in program.entities.items() if not entity.owned_by_rules]
    rates: dict[Flow, float] = {}
    for text in given:
        what, equals, number = text.rpartition("=")
        entity, colon, detail = (what if equals else text).partition(":")
        if entity not in own:
            hint = suggest(entity, own) or f"; the application writes {', '.join(own)}"
            what = "only rules write" if entity in program.entities else "unknown entity"
            raise UsageError(f'--rate {text}: {what} "{entity}"{hint}')
        try:
            rate = float(number)
        except ValueError:
            rate = math.nan
        if not equals or not math.isfinite(rate) or rate < 0:
            raise UsageError(
                f"--rate {text}: write {entity}=500, {entity}:removed=20 or {entity}:attribute=3, a second"
            )
        flow = Flow(entity, INSERT)
        if detail == "removed":
            flow = Flow(entity, REMOVE)
        elif colon:
            attributes = frozenset(filter(None, (name.strip() for name in detail.split(","))))
            flow = Flow(entity, EDIT, attributes or None)
        rates[flow] = rates.get(flow, 0.0) + rate
    return rates


def read_workload(program: Program, total: float | None, given: Sequence[str]) -> Workload:
    """Rates from --events-per-second and --rate. What --rate leaves of the total is spread over the other entities.

    Raises UsageError if neither is given, or the rates exceed the total.
    """
    rates = read_rates(program, given)
    if total is None and not rates:
        raise UsageError("no rate: pass --events-per-second N, --rate ENTITY=N, or both")
    if total is not None:
        stated = math.fsum(rates.values())
        rest = total - stated
        named = {flow.entity for flow in rates}
        others = [name for name in _read_entities(program) if name not in named]
        if rest < -1e-9:
            raise UsageError(f"the rates add up to {stated:g}, more than --events-per-second {total:g}")
        if rest > 1e-9:
            if not others:
                raise UsageError(
                    f"the rates add up to {stated:g} of {total:g} events, and there is no other entity that "
                    "rules read; leave out --events-per-second, or raise a rate"
                )
            rates |= {Flow(name, INSERT): rest / len(others) for name in others}
    return Workload({flow: rate for flow, rate in rates.items() if rate > 0})


def _read_entities(program: Program) -> list[str]:
    """The entities that the application writes and some rule reads."""
    return [
        name
        for name, entity in program.entities.items()
        if not entity.owned_by_rules and any(rule.source is entity for rule in program.variants)
    ]

"""A table, a sample of its items, and the result of inference: entities, rules to try, and items not understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from projections.language.syntax import LanguageError
from projections.language.templates import KeyPattern, overlap
from projections.language.values import Image

Pairs = tuple[tuple[str, str], ...]
"""Attributes with their types, as (("PK", "S"),)."""


@dataclass(frozen=True)
class Table:
    """A table as DescribeTable and DescribeTimeToLive return it. `indexes` are (partition, sort); `bytes` and `items` are
    DynamoDB's counts, up to six hours old. `stream` is the view type of its stream, None if that is off. `projected` has
    the indexes that do not return all attributes, with `keys_only` or the attributes that they return besides keys.
    """

    name: str
    key: Pairs
    indexes: Mapping[str, tuple[Pairs, Pairs]] = field(default_factory=dict)
    ttl: str | None = None
    stream: str | None = None
    items: int = 0
    bytes: int = 0
    projected: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    local: frozenset[str] = frozenset()
    """The indexes that have the partition key of the table."""
    stream_arn: str | None = None
    """The ARN of the stream if it has both images."""

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.key)

    @property
    def index_names(self) -> frozenset[str]:
        """Key attributes of indexes that are not keys of the table."""
        return frozenset(
            name for keys in self.indexes.values() for part in keys for name, _ in part if name not in self.key_names
        )


@dataclass(frozen=True)
class Sample:
    """Items in wire form, binary values as base64. `complete`: these are all items of the table."""

    items: Sequence[Image]
    complete: bool = False
    cut: frozenset[str] | None = None
    """In a part of a table: the values of the partition key whose items may not all be in the sample; None if any may."""
    units: float = 0.0
    """The read units that DynamoDB charged for it."""
    requests: int = 0

    def has_all_of(self, partition: str) -> bool:
        """Return whether all items with this value of the partition key, as text, are in the sample."""
        return self.complete or (self.cut is not None and partition not in self.cut)


@dataclass(frozen=True)
class Attribute:
    """An attribute of an entity: its most frequent type in DynamoDB's notation, and how many items have it. It has no
    value of the sample.
    """

    name: str
    type: str
    seen: int = 0


@dataclass(frozen=True)
class Entity:
    """An entity as a rule file has it, with statistics of its items."""

    name: str
    key: Mapping[str, str]
    variables: tuple[str, ...]
    attributes: tuple[Attribute, ...]
    items: int
    match: tuple[str, str] | None = None
    index_key: Mapping[str, str] = field(default_factory=dict)
    kind: tuple[str, str] | None = None
    """The type attribute and its value, even if the key alone identifies the items."""
    expires: bool = False
    required: tuple[str, ...] = ()
    """Attributes that a model declares for every item."""
    notes: tuple[str, ...] = ()


def overlapping(first: Entity, second: Entity, separator: str) -> bool:
    """Return whether an item may have a key of both entities."""
    try:
        return all(
            overlap(KeyPattern.parse(first.key[name], separator), KeyPattern.parse(second.key[name], separator))
            is not None
            for name in first.key
        )
    except LanguageError:
        return False  # the loader reports the template


@dataclass(frozen=True)
class Contradiction:
    """The items that contradict a rule which holds on most: it is `right` on so many of `judged` items of `entity`.
    `examples` have key, stored and computed value of some of them. `changes`, `adds` and `removes` are the items of the
    sample whose attribute the rule would change, add or remove.
    """

    entity: str
    attribute: str
    right: int
    judged: int
    examples: tuple[Mapping[str, str], ...]
    changes: int
    adds: int
    removes: int
    unseen: int = 0
    """Items with the attribute that could not be judged: items that they depend on may be outside the sample."""

    @property
    def differences(self) -> list[str]:
        """A phrase for each example, with its key, and one for the number of others."""
        others = self.judged - self.right - len(self.examples)
        phrases = [f"{each['key']}: stored {each['stored']}, computed {each['computed']}" for each in self.examples]
        return [*phrases, *([f"{others} more"] if others else [])]

    @property
    def effect(self) -> str:
        """A sentence on what the published rule would do to the items of the sample, and on those not compared."""
        least = "at least " if self.unseen else ""
        changes = {
            f"change {self.attribute} of": self.changes,
            f"add {self.attribute} to": self.adds,
            f"remove {self.attribute} from": self.removes,
        }
        parts = [f"{verb} {least}{self._items(number)}" for verb, number in changes.items() if number]
        effect = f"Published, it would {' and '.join(parts) or f'change no {self.entity} item'}"
        if not self.unseen:
            return effect
        missing = "could not be compared: items that the value depends on may be outside the sample"
        return f"{self._items(self.unseen)} {missing}. {effect}"

    @property
    def doubt(self) -> str:
        """The counter-evidence and the effect for a file, without keys and values of the table."""
        wrong = self.judged - self.right
        return f"{wrong} contradict{'s' * (wrong == 1)} it. {self.effect}"

    def _items(self, number: int) -> str:
        return f"{number:,} {self.entity} item" + "s" * (number != 1)


@dataclass(frozen=True)
class Rule:
    """A rule to try. `body` is as in a rule file, without `hold`; `evidence` is the reason, with counts. With a `doubt` or a
    `contradiction` it is written as a comment.
    """

    name: str
    body: Mapping[str, Any]
    evidence: str
    doubt: str = ""
    refused: bool = False
    """It is invalid; the doubt is the reason."""
    contradiction: Contradiction | None = None

    @property
    def kind(self) -> str:
        return next(kind for kind in ("aggregate", "embed", "copy", "index") if kind in self.body)

    @property
    def into(self) -> str:
        """The entity that it writes to."""
        return str(self.body["from"] if self.kind == "index" else self.body[self.kind]["into"])

    @property
    def attributes(self) -> list[str]:
        """The attributes that it writes."""
        body = self.body[self.kind]
        return list(body if self.kind == "index" else body["set"] if self.kind == "aggregate" else body["attributes"])

    @property
    def state(self) -> str:
        """`held`: in the rule file, with `hold: true`. `uncertain` and `possible`: comments there, the first with items that
        contradict it.
        """
        if self.contradiction is not None:
            return "uncertain"
        return "possible" if self.doubt else "held"


@dataclass(frozen=True)
class Unknown:
    """Items that belong to no entity: their masked keys, their number, and the reason."""

    key: Mapping[str, str]
    items: int
    why: str


@dataclass(frozen=True)
class Proposal:
    """Everything inferred from a sample of `sampled` items."""

    table: Table
    separator: str
    entities: Sequence[Entity]
    rules: Sequence[Rule]
    unknown: Sequence[Unknown]
    sampled: int
    complete: bool
    recognised: int = 0
    """Items of the sample that belong to one of the entities."""
    deployed: tuple[str, ...] = ()
    """Deployed rules, by their guards on items: they maintain attributes that proposed rules may write, too."""

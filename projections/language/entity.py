"""Entities, the items that are recognised as theirs, and the values of names on an item."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from projections.errors import BadInput
from projections.language.keys import (
    PARTITION_KEY_BYTES,
    SORT_KEY_BYTES,
    Image,
    ItemKey,
    Schema,
    Value,
    check_target_key,
    key_text,
)
from projections.language.patterns import Pattern
from projections.language.syntax import root
from projections.language.templates import KeyPattern
from projections.language.values import Resolve as Resolve
from projections.language.values import Resolver, having, lookup

Refused: TypeAlias = Callable[[tuple[str | int, ...], Resolve], object]
"""Is called with each part of a rule that does not apply, and with the values on which it was evaluated.

The part is named by its place in the canonical rule, or in its action: `("where",)`, `(0, "where")`; `("into",)` is the
key of the target. `explain` puts the parts into words.
"""


def ignore(place: tuple[str | int, ...], resolve: Resolve) -> None:
    """Note nothing: the engine does not ask why a rule does not apply."""


@dataclass(frozen=True, slots=True, eq=False)
class Entity:
    """A kind of item: how it is recognised, and how its key is made."""

    name: str
    table: str
    schema: Schema
    patterns: tuple[KeyPattern, ...]
    """Of the partition key, then of the sort key if there is one."""
    match: Callable[[Resolve], bool] | None
    pattern: Pattern | None
    """`match` as it was parsed."""
    constants: Image
    """Attributes with one scalar in `match`. Rules write them to items that they create, so that these are recognised."""
    numeric: frozenset[str]
    """Variables that are the value of a key attribute of type N."""
    binary: frozenset[str]
    """Variables that are the value of a key attribute of type B. They have no text: templates refuse them."""
    derived: bool
    """Declared `derived: true`: only rules write its items."""
    copied: bool
    """The target of a copy rule, which creates and deletes it."""
    expires: bool

    @property
    def owned_by_rules(self) -> bool:
        return self.derived or self.copied

    @property
    def created_by_publishes(self) -> bool:
        """Whether publishes from the ledger create its items: it is derived, and has no copy rule."""
        return self.derived and not self.copied

    @property
    def public_name(self) -> str:
        """Its name in the rule file, also if it is one of the definitions that older versions of rules have."""
        return self.name.partition("@")[0]

    @property
    def match_names(self) -> tuple[str, ...]:
        """The variables and dotted paths that `match` reads."""
        return self.pattern.names if self.pattern is not None else ()

    @property
    def match_attributes(self) -> frozenset[str]:
        """The attributes, or variables, that `match` reads."""
        return frozenset(root(name) for name in self.match_names)

    @property
    def match_reads_key(self) -> bool:
        """Whether `match` reads a key attribute, or a name that is a variable of the key."""
        of_key = {*self.schema.key_attributes, *(name for pattern in self.patterns for name in pattern.names)}
        return not of_key.isdisjoint(self.match_names)

    def variable(self, name: str, text: str) -> Value:
        """Return the value of a variable of the key, by its text."""
        if name in self.numeric:
            return {"N": text}
        return {"B": text} if name in self.binary else {"S": text}

    def at(self, key: ItemKey) -> bool:
        """Return whether items of the entity can have this key, without regard to `match`."""
        return (
            key.table == self.table
            and self.patterns[0].match(key.partition) is not None
            and (len(self.patterns) == 1 or self.patterns[1].match(key.sort or "") is not None)
        )

    def target_key(self, resolve: Resolver) -> ItemKey | None:
        """Return the key with these variables; None if a variable is missing. Raises BadInput if it is not a valid key."""
        texts = []
        for position, pattern in enumerate(self.patterns):
            attribute, of = self.schema.sort if position and self.schema.sort else self.schema.partition
            text = pattern.literal
            if text is None:
                variables = {}
                for name in pattern.names:
                    value = resolve(name)
                    if value is None:
                        return None
                    kind, content = next(iter(value.items()))
                    if kind not in ("S", "N") if of != "B" else kind != "B":
                        needs = "a string or a number" if of != "B" else "binary"
                        raise BadInput(f'"{name}" is of type {kind}; the key attribute {attribute} needs {needs}')
                    variables[name] = key_text(kind, content) if kind == "N" else content
                text = pattern.render(variables)
            texts.append(check_target_key(attribute, of, text, SORT_KEY_BYTES if position else PARTITION_KEY_BYTES))
        return ItemKey(self.table, *texts)


class Item:
    """An item that was recognised: its entity, key and image, and the variables in its key."""

    __slots__ = ("entity", "image", "key", "variables")

    def __init__(self, entity: Entity, key: ItemKey, variables: Mapping[str, str], image: Image) -> None:
        self.entity = entity
        self.key = key
        self.variables = variables
        self.image = image


def resolver(item: Item, bound: Mapping[str, Value] | None = None) -> Resolve:
    """Return a function from names to values, in this order: `bound` by the rule, key variables, attributes (dotted paths).

    It raises BadInput if a key variable and an attribute of the same name differ, because either of them may be wrong.
    """
    variables, image = item.variables, item.image

    def resolve(name: str, stored: bool = False) -> Value | None:
        if bound is not None and root(name) in bound:
            return lookup(bound, name, stored)
        text = variables.get(name)
        if text is None:
            return lookup(image, name, stored)
        value = having(image.get(name))
        if value is None:
            return item.entity.variable(name, text)
        kind, content = next(iter(value.items()))
        same = content == text or (kind == "N" and key_text("N", content) == text)
        if not same or (kind not in ("S", "N") if name not in item.entity.binary else kind != "B"):
            raise BadInput(
                f'{name} is "{text}" in the key, and the attribute "{name}" has another value; '
                f"make them equal or rename one of them"
            )
        return value

    return resolve


def values_to_recognise(item: Item) -> Resolve:
    """Return a resolver for recognition: a difference between a key variable and an attribute is not bad input there."""

    def resolve(name: str, stored: bool = False) -> Value | None:
        value = lookup(item.image, name, stored and name not in item.variables)
        return {"S": item.variables[name]} if value is None and name in item.variables else value

    return resolve

"""Facts about rules that several families need: the keys that rules make, and the values in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

from projections.language.arithmetic import Expression
from projections.language.facts import copies
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES
from projections.language.models import Copy, Index, Projection, Rules, Table
from projections.language.patterns import Pattern, listed_values
from projections.language.patterns.tree import Exists
from projections.language.pipes import Pipe
from projections.language.syntax import Location, root
from projections.language.templates import Field, Template

Origin: TypeAlias = Literal["key", "each", "attribute"]


class Slot(NamedTuple):
    """A value in a key that a rule makes: its name on the source item, and its pipes.

    `place` is its place in the rule; `template` is the text there, None if the key's variable has the same name.
    """

    name: str
    pipes: tuple[Pipe, ...]
    origin: Origin
    """A variable of the source's key, an element of `each`, or an attribute of the source."""
    place: Location
    template: str | None = None
    star: bool = False
    """Whether the key's template allows the separator in it."""
    expression: Expression | None = None
    """What it is computed with: `name` is the text of this, then."""

    @property
    def is_calculated(self) -> bool:
        return self.expression is not None and self.expression.type == "N"

    def piped(self, *names: str) -> Pipe | None:
        """Return the last of its pipes with one of these names."""
        return next((pipe for pipe in reversed(self.pipes) if pipe.name in names), None)

    @property
    def offset(self) -> int | None:
        """Its offset in the text at `place`."""
        found = -1 if self.template is None else self.template.find("{" + self.name)
        return found + 1 if found >= 0 else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it reads."""
        return (self.name,) if self.expression is None else self.expression.names

    def rewritten(self, pipe: str) -> str:
        """Return it as text with one more pipe, such as `{likes|pad(10)}`."""
        text = "{" + "|".join([self.name, *map(str, self.pipes), pipe]) + "}"
        return text if self.template is not None else f'bind: {{{self.name}: "{text}"}}'

    def __str__(self) -> str:
        return "{" + "|".join([self.name, *map(str, self.pipes)]) + "}"


class Made(NamedTuple):
    """A key attribute that a rule or the application makes: its literal texts and values, in order.

    `place` is where to change it.
    """

    attribute: str
    kind: str
    parts: tuple[str | Slot, ...]
    place: Location

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(part for part in self.parts if isinstance(part, Slot))

    @property
    def text(self) -> str:
        return "".join(map(str, self.parts))

    @property
    def literal_bytes(self) -> int:
        return sum(len(part.encode()) for part in self.parts if isinstance(part, str))


@dataclass(frozen=True, slots=True)
class KeySet:
    """One key that a rule makes: of its target in the table, or of an item in an index, by one case of the rule.

    `rule` is None if the application makes it (`index_key`). `whole` is false if something else makes some attributes of
    the partition key.
    """

    entity: str
    source: str
    rule: str | None
    index: str | None
    partition: tuple[Made, ...]
    sort: tuple[Made, ...]
    place: Location
    whole: bool = True
    listed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    """The possible values of attributes that a condition of the rule limits."""

    @property
    def attributes(self) -> tuple[str, ...]:
        """The names in it that are attributes of the source, without variables of its key and elements of `each`."""
        slots = (slot for made in (*self.partition, *self.sort) for slot in made.slots)
        return tuple(dict.fromkeys(name for slot in slots if slot.origin == "attribute" for name in slot.names))

    @property
    def made(self) -> tuple[tuple[Made, int], ...]:
        """Each attribute with its size limit in bytes."""
        return (*((one, PARTITION_KEY_BYTES) for one in self.partition), *((one, SORT_KEY_BYTES) for one in self.sort))


class Facts:
    """Facts about valid rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    @cached_property
    def complete(self) -> Rules:
        """The rules as the canonical document has them: with the types of extremes, and claims of copies."""
        return self.rules.completed()

    @property
    def projections(self) -> Mapping[str, Projection]:
        return self.rules.projections

    @cached_property
    def variants(self) -> tuple[tuple[str, Projection], ...]:
        """Each rule with its name, once for each of its sources."""
        return tuple(self.rules.variants())

    @cached_property
    def _by_target(self) -> Mapping[str, list[tuple[str, Projection]]]:
        found: dict[str, list[tuple[str, Projection]]] = {}
        for name, rule in self.projections.items():
            found.setdefault(rule.into, []).append((name, rule))
        return found

    def into(self, entity: str) -> Sequence[tuple[str, Projection]]:
        """Return the rules that write to an entity, with their names."""
        return self._by_target.get(entity, ())

    def table(self, entity: str) -> Table:
        return self.rules.table_of(entity)

    def variables(self, entity: str) -> tuple[str, ...]:
        """Return the variables of an entity's key, in order."""
        return self.rules.entities[entity].variables

    def telling(self, entity: str) -> str | None:
        """Return the variable of a key that differs most between items: its `id`, else the last one."""
        return self.rules.entities[entity].id or next(reversed(self.variables(entity)), None)

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """The variables of keys that the application writes. They are short, because keys are."""
        own = (entity for entity in self.rules.entities if not self.made_by_rules(entity))
        return frozenset(name for entity in own for name in self.variables(entity))

    # Who creates what.

    def made_by_rules(self, entity: str) -> bool:
        """Return whether only rules create items of the entity."""
        return entity in copies(self.rules) or self.rules.entities[entity].derived

    # Keys.

    @cached_property
    def target_keys(self) -> Mapping[tuple[str, str], KeySet]:
        """By rule and source, if the rule makes the key of its target: that key, with values of the source."""
        return {
            (name, rule.source): self._target_key(name, rule) for name, rule in self.variants if rule.action.makes_key
        }

    @cached_property
    def index_keys(self) -> tuple[KeySet, ...]:
        """The keys of indexes that rules make, and those that `index_key` declares."""
        return tuple(self._index_keys())

    def _target_key(self, name: str, rule: Projection) -> KeySet:
        entity = self.rules.entities[rule.into]
        made = []
        for attribute, kind in self.table(rule.into).key:
            parts: list[str | Slot] = []
            place: Location = ("projections", name, rule.kind, "into")
            for part in entity.key[attribute].parts:
                if isinstance(part, str):
                    parts.append(part)
                elif part.name in rule.bind:
                    place = ("projections", name, *rule.place("bind", part.name))
                    parts += self._parts(rule.source, rule.bind[part.name], place, rule, part.star)
                else:
                    at = ("projections", name, rule.kind, "into")
                    parts.append(self._slot(rule.source, part, at, None, rule, part.star))
            made.append(Made(attribute, kind, _joined(parts), place))
        return KeySet(
            entity=rule.into,
            source=rule.source,
            rule=name,
            index=None,
            partition=tuple(made[:1]),
            sort=tuple(made[1:]),
            place=made[0].place,
            listed=self._listed(rule),
        )

    def _parts(
        self, source: str, template: Template, place: Location, rule: Projection | None, star: bool = False
    ) -> list[str | Slot]:
        return [
            part if isinstance(part, str) else self._slot(source, part, place, template.text, rule, star)
            for part in template.parts
        ]

    def _slot(
        self, source: str, field: Field, place: Location, template: str | None, rule: Projection | None, star: bool
    ) -> Slot:
        variable = rule.each.variable if rule is not None and rule.each is not None else None
        each = variable is not None and variable in {root(name) for name in field.names}
        key = field.expression is None and field.name in self.variables(source)
        origin: Origin = "each" if each else "key" if key else "attribute"
        return Slot(field.name, field.pipes, origin, place, template, star, field.expression)

    def _listed(self, rule: Projection, where: Pattern | None = None) -> dict[str, tuple[Any, ...]]:
        found: dict[str, tuple[Any, ...]] = {}
        for pattern in (self.rules.entities[rule.source].match, rule.where, where):
            found |= _values(pattern)
        return found

    def _index_keys(self) -> Iterator[KeySet]:
        for name, entity in self.rules.entities.items():
            place: Location = ("entities", name, "index_key")
            made = {a: self._plain(name, a, text, (*place, a)) for a, text in entity.index_key.items()}
            yield from self._by_index(KeySet(name, name, None, None, (), (), place, False, _values(entity.match)), made)
        for name, rule in self.projections.items():
            types, action = self.table(rule.into).attribute_types, rule.action
            forms: list[tuple[Location, Pattern | None, Mapping[str, Template]]] = []
            if isinstance(action, Index):
                forms = [(("index", number), case.where, case.set) for number, case in enumerate(action.cases)]
            elif isinstance(action, Copy):
                texts = {name: template for name, template in action.templates.items() if name in types}
                forms = [(("copy", "values"), None, texts)]
            for inner, where, templates in forms:
                place = ("projections", name, *inner)
                made = {a: self._plain(rule.source, a, text, (*place, a), rule) for a, text in templates.items()}
                listed = self._listed(rule, where)
                yield from self._by_index(
                    KeySet(rule.into, rule.source, name, None, (), (), place, False, listed), made
                )

    def _plain(
        self, source: str, attribute: str, template: Template, place: Location, rule: Projection | None = None
    ) -> Made:
        return Made(attribute, "S", tuple(self._parts(source, template, place, rule)), place)

    def _by_index(self, key: KeySet, made: Mapping[str, Made]) -> Iterator[KeySet]:
        """Yield the key of each index that has one of these attributes."""
        table = self.table(key.entity)
        for index, keys in table.indexes.items():
            if not keys.names.isdisjoint(made):
                yield replace(
                    key,
                    index=index,
                    partition=tuple(made[name]._replace(kind=kind) for name, kind in keys.partition if name in made),
                    sort=tuple(made[name]._replace(kind=kind) for name, kind in keys.sort if name in made),
                    whole=all(name in made for name, _ in keys.partition),
                )


def _joined(parts: list[str | Slot]) -> tuple[str | Slot, ...]:
    """Return the parts with adjacent texts joined."""
    joined: list[str | Slot] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined)


def _values(pattern: Pattern | None) -> dict[str, tuple[Any, ...]]:
    """Return the values that a pattern allows for each name, without absence."""
    return {
        name: tuple(value for _, value in values if not isinstance(value, Exists))
        for name, values in listed_values(pattern).items()
    }

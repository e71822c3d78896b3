"""From the items that tables hold now to the items they should hold, and the differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias, TypeVar

from projections.language.keys import Image, ItemKey, Value
from projections.testing.oracle.oracle_rules import (
    EVERYTHING,
    ComputeRule,
    Contribution,
    CopyRule,
    EmbedRule,
    GroupRule,
    IndexRule,
    ListEmbedRule,
    RankRule,
    make_rule,
)
from projections.testing.oracle.oracle_templates import Entity, Table
from projections.testing.oracle.scalar import exact, normal

T = TypeVar("T")

Items: TypeAlias = Mapping[str, Iterable[Image]]
"""The content of the tables: logical table name → items in wire form."""

Settled: TypeAlias = Iterable[tuple[str, Image] | tuple[str, Image, str]]
"""(rule, item as it was) of each item that expired under a rule with `expired: keep`. If the rule has sources in several
tables, add the item's table."""

Known: TypeAlias = tuple[Entity, Mapping[str, Value]]
"""An item's entity and key variables."""

Genuine: TypeAlias = Callable[[ItemKey, str, Value], bool]
"""Whether a guard was written for the item with this key, and not copied from another one by the application."""

_State: TypeAlias = dict[ItemKey, Image]


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected content of the tables, without guards."""

    items: Mapping[ItemKey, Image]
    creators: Mapping[ItemKey, str]
    """The rule that brought an item to life, for items of copies and derived entities."""
    incomparable: frozenset[tuple[ItemKey, str]] = frozenset()
    """(item, attribute) of values that today's items do not determine."""
    occupied: frozenset[tuple[ItemKey, str]] = frozenset()
    """(key, rule) of targets that are not created, because an item of another kind has their key."""
    scores: Mapping[tuple[str, ItemKey], Sequence[tuple[Decimal, Decimal]]] = field(default_factory=dict)
    """By rank rule and key of the board: the scores, in no order, each with what it adds to sums."""


class Oracle:
    """One set of rules, parsed once; `document` is canonical."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        document = exact(document)
        self.tables = {name: Table(name, form) for name, form in document["tables"].items()}
        self.entities = {n: Entity(n, form, self.tables[form["table"]]) for n, form in document["entities"].items()}
        self.rules = {name: make_rule(name, form, self.entities) for name, form in document["projections"].items()}
        self._prefix: str = document["guard_prefix"]
        live = [rule for rule in self.rules.values() if rule.live]
        self.group_rules = [rule for rule in live if isinstance(rule, GroupRule) and not isinstance(rule, RankRule)]
        self.rank_rules = [rule for rule in self.rules.values() if isinstance(rule, RankRule)]
        self.item_rules = [rule for rule in live if isinstance(rule, IndexRule | ComputeRule)]

        self.embed_rules = [rule for rule in live if isinstance(rule, EmbedRule)]
        self.owners: dict[str, dict[str, str]] = {name: {} for name in self.entities}
        """Entity → attribute → the live rule that owns it."""
        for rule in live:
            self.owners[rule.into.name].update(dict.fromkeys(rule.attributes, rule.name))
        self.creators = {name: self._creators(entity) for name, entity in self.entities.items()}
        for copy in self.group_rules:
            if isinstance(copy, CopyRule) and copy.everything:
                others = {a for a, owner in self.owners[copy.into.name].items() if owner != copy.name}
                copy.not_copied = others | {name for name, _ in copy.into.table.keys}
        self._keys: dict[ItemKey, list[Known]] = {}

    def _creators(self, entity: Entity) -> list[GroupRule]:
        """The rules whose contributions bring items of the entity to life; none for the application's own."""
        copies = [rule for rule in self.rules.values() if isinstance(rule, CopyRule) and rule.into is entity]
        if copies:  # a held one creates nothing: the items are someone else's
            return [rule for rule in self.group_rules if rule in copies]
        if not entity.derived:
            return []
        creators = [rule for rule in self.group_rules if rule.into is entity]
        for rule in creators:
            self.owners[entity.name].update(dict.fromkeys(entity.constants, rule.name))
        return creators

    def expect(self, items: Items, settled: Settled = (), genuine: Genuine = lambda key, name, guard: True) -> Expected:
        """Return the expected content of the tables, from their content."""
        return _Run(self, self.read(items), self._guards(items, genuine), settled).expect()

    def compare(
        self, items: Items, settled: Settled = (), genuine: Genuine = lambda key, name, guard: True
    ) -> list[Difference]:
        """Return the differences between the content of the tables and the expected content."""
        return self.differences(items, self.expect(items, settled, genuine))

    def differences(self, items: Items, due: Expected) -> list[Difference]:
        """Return what differs from the expected content. Numbers are compared by value, sets without order, guards never."""
        actual = self.read(items)
        return [
            difference
            for key in sorted(actual.keys() | due.items.keys(), key=_text)
            for difference in _of_item(self, key, actual.get(key), due)
        ]

    def _guards(self, items: Items, genuine: Genuine) -> dict[ItemKey, set[str]]:
        """The rules whose guards each item has; the mark has no name. Malformed ones are left out."""
        guards: dict[ItemKey, set[str]] = {}
        for table, held in items.items():
            for image in held:
                for name, value in image.items():
                    if not name.startswith(self._prefix):
                        continue
                    if "S" in value or (name != self._prefix and isinstance(value.get("M"), Mapping)):
                        key = self.tables[table].key_of(image)
                        if genuine(key, name, value):
                            guards.setdefault(key, set()).add(name.removeprefix(self._prefix))
        return guards

    def read(self, items: Items) -> _State:
        """Items by key, without guards."""
        return {
            self.tables[table].key_of(image): {n: value for n, value in image.items() if not n.startswith(self._prefix)}
            for table, held in items.items()
            for image in held
        }

    def recognise(self, key: ItemKey, item: Image) -> Known | None:
        """The entity an item belongs to, None if to none."""
        known = self._keys.get(key)
        if known is None:
            if len(self._keys) > 100_000:
                self._keys.clear()
            read = [(entity, entity.read(key)) for entity in self.entities.values()]
            known = self._keys[key] = [(entity, variables) for entity, variables in read if variables is not None]
        return next((candidate for candidate in known if candidate[0].fits(item, candidate[1])), None)

    def own_part(self, entity: Entity, item: Image, *, created: bool = True) -> dict[str, Value]:
        """Return what the application wrote on an item of an entity.

        A copy of all attributes owns everything on an item that it `created`; on another one, it owns what its source has.
        """
        owned = self.owners[entity.name]
        if EVERYTHING in owned and created:
            return {name: item[name] for name, _ in entity.table.keys}
        return {name: value for name, value in item.items() if name not in owned}


class _Run:
    """One computation. Unchanged items stay the same objects from step to step, so that results can be remembered."""

    def __init__(self, oracle: Oracle, actual: _State, guards: Mapping[ItemKey, set[str]], settled: Settled) -> None:
        self._oracle = oracle
        self._actual = actual
        self._guards = guards
        self._settled: dict[str, dict[ItemKey, list[Contribution]]] = {}
        self._memory: dict[tuple[str, ItemKey], tuple[Image, Any]] = {}
        self._incomparable: set[tuple[ItemKey, str]] = set()
        self._creators: dict[ItemKey, str] = {}
        self._occupied_by: set[tuple[ItemKey, str]] = set()
        for name, image, *table in settled:
            self._settle(name, image, *table)

    def _settle(self, name: str, image: Image, table: str | None = None) -> None:
        rule = self._oracle.rules[name]
        if not isinstance(rule, GroupRule):
            return
        for entity in map(self._oracle.entities.__getitem__, rule.sources):
            if table not in (None, entity.table.name):
                continue
            ((key, item),) = self._oracle.read({entity.table.name: [image]}).items()
            variables = entity.read(key)
            if variables is not None and entity.fits(item, variables):
                for part in rule.contributions(entity.name, key, item, variables):
                    kept = replace(part, position=part.position + 0.5)
                    self._settled.setdefault(name, {}).setdefault(part.target, []).append(kept)

    def expect(self) -> Expected:
        base = self._application()
        now: _State = base
        for _ in range(2 * len(self._oracle.rules) + 3):
            then = self._step(base, now)
            if then.keys() == now.keys() and all(then[key] is item for key, item in now.items()):
                unsure = frozenset(self._incomparable)
                return Expected(now, self._creators, unsure, frozenset(self._occupied_by), self._scores(now))
            now = then
        raise RuntimeError("the rules do not settle: do they form a cycle?")

    def _scores(self, items: _State) -> dict[tuple[str, ItemKey], list[tuple[Decimal, Decimal]]]:
        """The scores of each board, with what they add to sums."""
        sources = self._members(items) if self._oracle.rank_rules else {}
        return {
            (rule.name, board): [(each.content["score"], each.content["amount"]) for each in group]
            for rule in self._oracle.rank_rules
            for board, group in self._groups(rule, sources).items()
        }

    def _application(self) -> _State:
        """The items and attributes that are there without any contribution."""
        items: _State = {}
        for key, item in self._actual.items():
            known = self._oracle.recognise(key, item)
            if known is None:
                if self._unnamed_entity(key) is None:
                    items[key] = item
            elif not self._oracle.creators[known[0].name]:
                items[key] = self._oracle.own_part(known[0], item)
            else:
                remaining = self._item_without_contributions(key, item, known[0])
                if remaining is not None:
                    items[key] = remaining
        return items

    def _is_created(self, key: ItemKey) -> bool:
        """Whether the item is marked as created by a rule."""
        return "" in self._guards.get(key, ())

    def _item_without_contributions(self, key: ItemKey, item: Image, entity: Entity) -> Image | None:
        """Return an item of a created entity without contributions; None if it is deleted."""
        created = self._is_created(key)
        own = self._oracle.own_part(entity, item, created=created)
        names = {name for name, _ in entity.table.keys}
        if created and own.keys() <= names:
            return None
        guards = self._guards.get(key, ())
        gone: set[str] = set()
        for rule in [*self._oracle.group_rules, *self._oracle.item_rules, *self._oracle.embed_rules]:
            if rule.into is entity and (rule.name in guards or not isinstance(rule, GroupRule)):
                gone |= rule.attributes
        return {name: value for name, value in item.items() if name not in gone or name in entity.constants}

    def _unnamed_entity(self, key: ItemKey) -> Entity | None:
        """The created entity of an item that lacks only attributes by which it is recognised, and has none of its own."""
        item = self._actual[key]
        if not self._is_created(key):
            return None
        for entity in self._oracle.entities.values():
            if not self._oracle.creators[entity.name] or entity.read(key) is None:
                continue
            names = {name for name, _ in entity.table.keys}
            held = [item.get(name) for name in entity.constants]
            others = [value for name, value in entity.constants.items() if item.get(name) not in (None, value)]
            if None in held and not others and self._oracle.own_part(entity, item).keys() <= names:
                return entity
        return None

    def _is_occupied(self, key: ItemKey, entity: Entity, groups: Mapping[str, Any], base: _State) -> bool:
        """Whether the key of a target has an item of another kind, which stays."""
        if key not in self._actual:
            return False
        known = self._oracle.recognise(key, self._actual[key])
        if known is None:
            return self._unnamed_entity(key) not in (None, entity) or key in base
        if known[0] is entity:
            return False
        return key in base or any(groups[rule.name].get(key) for rule in self._oracle.creators[known[0].name])

    def _step(self, base: _State, now: _State) -> _State:
        """All rules applied once to the items as they are known now."""
        self._incomparable.clear()
        self._creators.clear()
        self._occupied_by.clear()
        sources = self._members(now)
        groups = {rule.name: self._groups(rule, sources) for rule in self._oracle.group_rules}
        then: dict[ItemKey, dict[str, Value]] = {key: dict(item) for key, item in base.items()}
        self._create(groups, base, then)
        members = self._members(then)
        for rule in self._oracle.group_rules:
            if not isinstance(rule, CopyRule):
                for key, _, _ in members.get(rule.into.name, ()):
                    then[key].update(rule.result(groups[rule.name].get(key, [])))
        for own in self._oracle.item_rules:
            for key, item, variables in sources.get(own.source.name, ()):
                if key in then:
                    then[key].update(self._remember(own, key, item, partial(own.result, item, variables)))
                    if isinstance(own, ComputeRule) and own.once:  # what is there stays, whatever it is
                        held = self._actual.get(key, {})
                        kept = {name: held[name] for name in own.attributes if name in held}
                        then[key].update({n: v for n, v in kept.items() if "NULL" not in v or n not in then[key]})
        for embed in self._oracle.embed_rules:
            self._embed(embed, sources, then)
        return {key: now[key] if now.get(key) == item else item for key, item in then.items()}

    def _members(self, items: Mapping[ItemKey, Image]) -> dict[str, list[tuple[ItemKey, Image, Mapping[str, Value]]]]:
        """The items of each entity."""
        members: dict[str, list[tuple[ItemKey, Image, Mapping[str, Value]]]] = {}
        for key, item in items.items():
            known = self._oracle.recognise(key, item)
            if known is not None:
                members.setdefault(known[0].name, []).append((key, item, known[1]))
        return members

    def _remember(self, rule: Any, key: ItemKey, item: Image, compute: Callable[[], T]) -> T:
        """Return what a rule makes of an item, computed once for each image of it."""
        remembered = self._memory.get((rule.name, key))
        if remembered is None or remembered[0] is not item:
            remembered = self._memory[rule.name, key] = item, compute()
        result: T = remembered[1]
        return result

    def _groups(self, rule: GroupRule, sources: Mapping[str, Any]) -> dict[ItemKey, list[Contribution]]:
        """The contributions to each target."""
        groups: dict[ItemKey, list[Contribution]] = {}
        for entity in rule.sources:
            for key, item, variables in sources.get(entity, ()):
                for each in self._remember(rule, key, item, partial(rule.contributions, entity, key, item, variables)):
                    groups.setdefault(each.target, []).append(each)
        for target, settled in self._settled.get(rule.name, {}).items():
            if not isinstance(rule, CopyRule):
                groups.setdefault(target, []).extend(settled)
            else:
                groups.setdefault(target, settled)
        return groups

    def _create(self, groups: Mapping[str, Any], base: _State, then: dict[ItemKey, dict[str, Value]]) -> None:
        """Brings the items of copies and derived entities to life, with what the application wrote on them."""
        for entity in self._oracle.entities.values():
            for rule in self._oracle.creators[entity.name]:
                for target, group in groups[rule.name].items():
                    if self._is_occupied(target, entity, groups, base):
                        self._occupied_by.add((target, rule.name))
                        continue
                    if self._creators.setdefault(target, rule.name) != rule.name:
                        continue
                    item: dict[str, Value] = {}
                    if target in self._actual:
                        item = self._oracle.own_part(entity, self._actual[target], created=self._is_created(target))
                    item.update(rule.result(group) if isinstance(rule, CopyRule) else entity.constants)
                    then[target] = {**item, **entity.table.attributes(target)}

    def _embed(self, rule: EmbedRule, sources: Mapping[str, Any], then: dict[ItemKey, dict[str, Value]]) -> None:
        if isinstance(rule, ListEmbedRule):
            self._embed_list(rule, sources, then)
            return
        parents: dict[tuple[str, ...], dict[str, Value]] = {}
        for key, item, variables in sorted(sources.get(rule.source.name, ()), key=lambda source: source[0]):
            reference = rule.parent_reference(item, variables)
            if reference is not None:
                parents.setdefault(reference, self._remember(rule, key, item, partial(rule.result, item, variables)))
        for key, item, variables in sources.get(rule.into.name, ()):
            reference = rule.references(item, variables)
            if key not in then:
                continue
            if reference in parents:
                then[key].update(parents[reference])
            elif rule.keep:  # the values when the parent was deleted, if it ever had one: the items do not show that
                held = self._actual.get(key, {})
                then[key].update({name: held[name] for name in rule.attributes if name in held})
                self._incomparable.update((key, name) for name in rule.attributes)

    def _embed_list(
        self, rule: ListEmbedRule, sources: Mapping[str, Any], then: dict[ItemKey, dict[str, Value]]
    ) -> None:
        parents: dict[tuple[str, ...], Mapping[str, Value] | None] = {}
        for _, item, variables in sorted(sources.get(rule.source.name, ()), key=lambda source: source[0]):
            reference = rule.parent_reference(item, variables)
            if reference is not None:
                parents.setdefault(reference, rule.parent_values(item, variables))
        for key, item, variables in sources.get(rule.into.name, ()):
            if key in then:
                then[key].update(rule.child_values(item, variables, parents))


@dataclass(frozen=True, slots=True)
class Difference:
    """One attribute that is not as it should be; `attribute` is None where the whole item should not, or should, be.

    `key` is the encoded key of the item; `actual` and `expected` are in wire form, None where there is nothing.
    """

    table: str
    key: str
    attribute: str | None
    actual: Mapping[str, Any] | None
    expected: Mapping[str, Any] | None
    rule: str | None
    """The rule that should have written it, if one is responsible."""


def _of_item(oracle: Oracle, key: ItemKey, actual: Image | None, expected: Expected) -> Iterator[Difference]:
    wanted = expected.items.get(key)
    if actual == wanted:
        return
    known = oracle.recognise(key, wanted if wanted is not None else actual or {})
    owners = oracle.owners[known[0].name] if known else {}
    creator = expected.creators.get(key)
    if creator is None and known and oracle.creators[known[0].name]:
        creator = oracle.creators[known[0].name][0].name
    if actual is None or wanted is None:
        yield Difference(key.table, _text(key), None, actual, wanted, creator)
        return
    for name in sorted(actual.keys() | wanted.keys()):
        held, due = actual.get(name), wanted.get(name)
        if (key, name) in expected.incomparable or held == due:
            continue
        if held is None or due is None or normal(held) != normal(due):
            yield Difference(key.table, _text(key), name, held, due, owners.get(name, owners.get("*")))


def _text(key: ItemKey) -> str:
    """A key as one text: `|` and `%` inside its parts are written %7C and %25."""
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in key if part is not None)

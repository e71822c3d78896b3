"""Programs: the compiled rules that the engine executes. They need neither pydantic nor YAML."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from projections.errors import BadInput
from projections.language.compiling import ABOUT, UNREAD, Compiled, fingerprint_of, into_of, kind_of, without
from projections.language.contribution import (
    ENTRY_BYTES,
    NOTHING,
    Contributed,
    Contributions,
    Evaluated,
    bytes_at_most,
    contributed_bytes,
)
from projections.language.embeds import EmbedRule
from projections.language.entity import Entity, Item, values_to_recognise
from projections.language.keys import Image, ItemKey, Schema
from projections.language.patterns import Pattern, are_apart
from projections.language.rules import (
    AggregateRule,
    CopyRule,
    GuardedCopyRule,
    ItemRule,
    LedgerRule,
    Rule,
    owned_on,
    public_name,
)
from projections.language.syntax import seconds_of
from projections.language.templates import KeyPattern, overlap
from projections.language.values import same

if TYPE_CHECKING:
    from projections.language.models import Rules


R = TypeVar("R", bound=Rule)
K = TypeVar("K", bound=Hashable)

Match: TypeAlias = Callable[[str], dict[str, str] | None]
"""Returns the variables in the text of a key attribute; None if the text has another form."""

LEDGER_SCHEMA = Schema(("pk", "S"), ("sk", "S"), ttl="ttl")
"""The keys of the ledger table, whose logical name is `ledger`."""


class Program:
    """The compiled rules of one document.

    `tables` has the schemas of the application's tables by logical name; `rules` are in the order of the file. `variants`
    has each rule once for each of its sources: what it reads differs between them, what it writes does not.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self._closed: dict[str, dict[str, Any]] = {}
        self.guard_prefix: str = document["guard_prefix"]
        self.retired: dict[str, str] = dict(document["retired"])
        compiled = Compiled(document)
        self.tables, self.entities, self.rules = compiled.tables, compiled.entities, compiled.rules
        self.variants = compiled.variants
        self.fingerprint = fingerprint_of({name: rule.fingerprint for name, rule in self.rules.items()})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Program:
        """Compile a canonical document, as `loader.load(path).document()` makes it or as JSON holds it."""
        return cls(document)

    @classmethod
    def assembled(cls, packaged: Program, versions: Mapping[str, tuple[Mapping[str, Any], bool]]) -> Program:
        """Return the program that runs these versions of rules, by name, with their documents and whether they are
        published.

        A version's document is that of `closed_document`. What no version has comes from the packaged rules. Where versions
        define an entity differently, or under another name, the newest one has its name; the others are `alternates`, such
        as `Post@1`.
        """
        return cls(cls.assemble(packaged.document, versions))

    @staticmethod
    def assemble(packaged: Mapping[str, Any], versions: Mapping[str, tuple[Mapping[str, Any], bool]]) -> dict[str, Any]:
        """Return the document of `assembled`. `packaged` is of the packaged rules. Raises ValueError for a newer format."""
        if any(document["format"] > packaged["format"] for document, _ in versions.values()):
            raise ValueError("a package with a newer format of rules has registered a version")
        tables: dict[str, Any] = dict(packaged["tables"])
        entities: dict[str, Any] = {}
        projections: dict[str, Any] = {}
        newest_first = [*versions.items()][::-1]
        # rules that record nothing first: only the others work with an alternate
        for name, (document, published) in sorted(newest_first, key=lambda each: "." in each[0]):
            tables |= {table: _merged(tables.get(table, form), form) for table, form in document["tables"].items()}
            names = {entity: _place(entities, tables, entity, form) for entity, form in document["entities"].items()}
            rule = {**document["rule"], "hold": not published}
            projections[name] = _with_entities(rule, names)
        projections = {name: projections[name] for name in versions}
        whole = {"tables": tables, "entities": entities, "projections": projections, "retired": {}}
        return {**packaged, **whole}

    def closed_document(self, rule: str) -> dict[str, Any]:
        """Return the document of a rule, as the registry keeps it: with the entities and tables that it uses."""
        if rule in self._closed:
            return self._closed[rule]
        projection = self.document["projections"][rule]
        names = {*projection["from"], into_of(projection)}
        entities = {name: form for name, form in self.document["entities"].items() if name in names}
        tables = {entity["table"] for entity in entities.values()}
        closed = self._closed[rule] = {
            "format": self.document["format"],
            "rule": projection,
            "entities": entities,
            "tables": {name: self.document["tables"][name] for name in sorted(tables)},
            "guard_prefix": self.document["guard_prefix"],
        }
        return closed

    @cached_property
    def carries(self) -> Mapping[str, Callable[[Contributions], dict[str, Contributed]]]:
        """By version of a rule that keeps what has expired: what it takes over of what other versions have kept.

        That is what is defined as before: the amounts of the same measures, of the same sources and targets.
        """
        carries = {}
        for name, rule in self.recorded.items():
            others = [
                (other, self._alike_slots(name, other))
                for other, known in reversed([*self.recorded.items()])
                if other != name and rule.expired == known.expired == "keep" and public_name(other) == public_name(name)
            ]
            if others:
                carries[name] = partial(_carry, others)
        return carries

    def not_carried(self, version: str) -> list[str]:
        """Return the attributes of a version that begin without what has expired under other versions that keep it.

        What expired under a version that lanes count is only in its groups, so nothing of it is taken over.
        """
        rule = self.recorded[version]
        others = [
            (lambda slot: False)
            if rule.expired != known.expired or other in self.lanes
            else self._alike_slots(version, other)
            for other, known in self.recorded.items()
            if other != version and known.expired == "keep" and public_name(other) == public_name(version)
        ]
        if not isinstance(rule, AggregateRule) or not rule.measures:
            return list(rule.owned()) if others and not any(is_alike("n") for is_alike in others) else []
        slots = {m.name: m.slot if m.evaluate or m.by or m.where else "n" for m in rule.measures}
        return [name for name, slot in slots.items() if others and not any(is_alike(slot) for is_alike in others)]

    def _alike_slots(self, name: str, other: str) -> Callable[[str], bool]:
        """Return whether a slot of contributions means the same under two versions of a rule."""
        rule, known = self.recorded[name], self.recorded[other]
        forms = [self.document["projections"][version] for version in (name, other)]
        actions = [form[kind_of(form)] for form in forms]
        if not isinstance(rule, AggregateRule) or not isinstance(known, AggregateRule):
            ours, theirs = (
                {**without(form, ABOUT), kind_of(form): without(action, (*_LIMITS, "sum"))}
                for form, action in zip(forms, actions, strict=True)
            )
            is_same, same_sum = ours == theirs, actions[0].get("sum") == actions[1].get("sum")
            return lambda slot: is_same and (same_sum or slot[0] != "+")
        if (
            type(rule) is not type(known)
            or forms[0]["from"] != forms[1]["from"]
            or actions[0]["into"] != actions[1]["into"]
        ):
            return lambda slot: False
        slots = [
            {measure.slot: actions[side]["set"][measure.name] for measure in each.measures}
            for side, each in enumerate((rule, known))
        ]
        alike = {slot for slot in slots[0] if slots[0][slot] == slots[1].get(slot)}
        return lambda slot: slot == "n" or slot in alike

    @cached_property
    def model(self) -> Rules:
        """The rules as models, for tools. The engine does not load their classes, because of cold starts."""
        from projections.language.models import Rules

        return Rules.from_document(self.document)

    @cached_property
    def within(self) -> Mapping[str, int]:
        """By rule: how many seconds old a change may be when the rule has processed it, if that is declared."""
        rules = self.document["projections"]
        return {name: seconds_of(rule["within"]) or 0 for name, rule in rules.items() if "within" in rule}

    def about(self, rule: str) -> str:
        """Return the owner and the description of a rule in one line; empty without them."""
        document = self.document["projections"].get(rule, {})
        owner = [f"owner: {document['owner']}"] if "owner" in document else []
        return "; ".join([*owner, *([document["description"]] if "description" in document else [])])

    def guard(self, rule: str) -> str:
        """Return the name of the attribute that holds a rule's guard."""
        return self.guard_prefix + public_name(rule)

    def recognise(self, key: ItemKey, image: Image | None) -> Item | None:
        """Return the item with its entity; None if there is none, or if it belongs to none, or only to `alternates`."""
        return _recognise(self._recognisers.get(key.table, ()), key, image) if image is not None else None

    def recognise_as(self, entity: Entity, key: ItemKey, image: Image | None) -> Item | None:
        """Return the item with this entity; None if there is none, or if it belongs to another one."""
        if image is None or entity.name not in self.alternates:
            item = self.recognise(key, image)
            return item if item is not None and item.entity is entity else None
        return _recognise([self.alternates[entity.name]], key, image) if entity.table == key.table else None

    @cached_property
    def alternates(self) -> Mapping[str, tuple[Entity, Sequence[Match]]]:
        """By name: entities as older versions of rules define them. An item may belong to one of them beside its entity."""
        return {
            name: (entity, [pattern.match for pattern in entity.patterns])
            for name, entity in self.entities.items()
            if "@" in name
        }

    def alternative_items(self, key: ItemKey, image: Image | None) -> list[Item]:
        """Return the item with each alternate that it belongs to."""
        if image is None or not self.alternates:
            return []
        entities = (entity for entity, _ in self.alternates.values())
        items = (self.recognise_as(entity, key, image) for entity in entities)
        return [item for item in items if item is not None]

    def evaluate(self, key: ItemKey, image: Image | None) -> Evaluated:
        """Return the contributions of an item under all versions, whichever entity each of them takes it for."""
        evaluated = self.contributions(self.recognise(key, image))
        for item in self.alternative_items(key, image):
            more = self.contributions(item)
            evaluated = Evaluated(
                {**evaluated.contributions, **more.contributions},
                {**evaluated.payloads, **more.payloads},
                [*evaluated.problems, *more.problems],
            )
        return evaluated

    def entities_at(self, key: ItemKey) -> list[Entity]:
        """Return the entities whose items can have this key, without regard to `match`."""
        return [entity for entity in self._by_table.get(key.table, ()) if entity.at(key)]

    def contributions(self, item: Item | None) -> Evaluated:
        """Return the contributions of an item under all rules that the ledger records.

        It depends only on the item and the rules. If all contributions together exceed the limit of an entry, those of
        published rules come first, earlier ones in the file before others, then those of newer versions before older ones;
        a rule whose contributions exceed the rest contributes nothing. Those of `lanes` have a limit of their own: what an
        item contributed before is known from its old image only, and so must not depend on other rules.
        """
        if item is None:
            return NOTHING
        rules = self.ledger_rules.get(item.entity.name)
        if not rules:
            return NOTHING
        contributions: Contributions = {}
        payloads: dict[tuple[str, str, str], Image] = {}
        problems: list[tuple[str, str]] = []
        for rule in rules:
            try:
                contributed, carried = rule.contributions(item)
            except BadInput as problem:
                problems.append((rule.name, str(problem)))
                continue
            if contributed:
                contributions[rule.name] = contributed
            for (target, member), payload in carried.items():
                payloads[rule.name, target, member] = payload
        if item.entity.name in self._may_contribute_much:
            most = sum(bytes_at_most(targets, name) for name, targets in contributions.items())
            if most > _LANES_BYTES:
                held = [name for name in contributions if self.rules[name].held]
                order = [*(name for name in contributions if name not in held), *reversed(held)]
                in_entries = {name: contributions[name] for name in order if name not in self.lanes}
                refused = dict(_beyond(in_entries, ENTRY_BYTES))
                for name in contributions.keys() & self.lanes.keys():
                    refused.update(_beyond({name: contributions[name]}, _LANES_BYTES))
                contributions = {name: some for name, some in contributions.items() if name not in refused}
                payloads = {place: payload for place, payload in payloads.items() if place[0] not in refused}
                problems.extend(refused.items())
        return Evaluated(contributions, payloads, problems)

    @cached_property
    def _may_contribute_much(self) -> frozenset[str]:
        """The source entities whose items may contribute more than the limit of an entry."""
        return frozenset(
            entity
            for entity, rules in self.ledger_rules.items()
            if any(rule.each is not None for rule in rules) or sum(rule.most_of_one for rule in rules) > _LANES_BYTES
        )

    @cached_property
    def _recognisers(self) -> Mapping[str, Sequence[tuple[Entity, Sequence[Match]]]]:
        """By table: its entities, each with the functions that read its key attributes."""
        return {
            table: [
                (entity, [pattern.match for pattern in entity.patterns])
                for entity in entities
                if "@" not in entity.name
            ]
            for table, entities in self._by_table.items()
        }

    @cached_property
    def _by_table(self) -> Mapping[str, tuple[Entity, ...]]:
        return {name: tuple(e for e in self.entities.values() if e.table == name) for name in self.tables}

    # Rules by kind, including held ones.

    @cached_property
    def recorded(self) -> Mapping[str, LedgerRule]:
        """By name: the rules that contribute to groups in the ledger."""
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, LedgerRule)}

    @cached_property
    def lanes(self) -> Mapping[str, AggregateRule]:
        """By name: the rules whose groups are counted by the shards of the stream."""
        return {name: rule for name, rule in self.recorded.items() if isinstance(rule, AggregateRule) and rule.lanes}

    @cached_property
    def lanes_from(self) -> Mapping[str, tuple[str, ...]]:
        """By table: the names of the rules that count its items by the shards of its stream."""
        return {
            table: tuple(n for n, rule in self.lanes.items() if any(source.table == table for source in rule.sources))
            for table in self.tables
        }

    @cached_property
    def published(self) -> Mapping[str, Rule]:
        """By the rule's name: the rules, or their versions, that are published."""
        return {public_name(name): rule for name, rule in self.rules.items() if not rule.held}

    @cached_property
    def guarded_copies(self) -> Mapping[str, GuardedCopyRule]:
        """By name: the copies that need no ledger."""
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, GuardedCopyRule)}

    @cached_property
    def on_items(self) -> Mapping[str, ItemRule]:
        """By name: the rules that write on their source items themselves."""
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, ItemRule)}

    @cached_property
    def embeds(self) -> Mapping[str, EmbedRule]:
        """By name: the rules that keep attributes of a parent in its children."""
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, EmbedRule)}

    # Rules by entity. Held rules are included only if the ledger records them.

    @cached_property
    def ledger_rules(self) -> Mapping[str, tuple[LedgerRule, ...]]:
        """By source entity: the variants of rules for this source."""
        variants = [rule for rule in self.variants if isinstance(rule, LedgerRule)]
        return grouped(variants, lambda rule: rule.source.name)

    @cached_property
    def ledger_rules_into(self) -> Mapping[str, tuple[LedgerRule, ...]]:
        """By target entity: the rules that publish to its items, each once."""
        names = dict.fromkeys(rule.name for rule in chain.from_iterable(self.ledger_rules.values()))
        rules = [self.recorded[name] for name in names]
        return grouped((rule for rule in writing(rules) if rule.writes_items), lambda rule: rule.into.name)

    @cached_property
    def embeds_from(self) -> Mapping[str, tuple[EmbedRule, ...]]:
        """By parent entity."""
        return grouped(writing(self.embeds.values()), lambda rule: rule.source.name)

    @cached_property
    def embeds_into(self) -> Mapping[str, tuple[EmbedRule, ...]]:
        """By child entity."""
        return grouped(writing(self.embeds.values()), lambda rule: rule.into.name)

    @cached_property
    def copy_rules(self) -> Mapping[str, tuple[GuardedCopyRule, ...]]:
        """By source entity."""
        return grouped(writing(self.guarded_copies.values()), lambda rule: rule.source.name)

    @cached_property
    def copy_rule_into(self) -> Mapping[str, GuardedCopyRule]:
        """By target entity: the only guarded copy that creates its items."""
        return {rule.into.name: rule for rule in writing(self.guarded_copies.values())}

    @cached_property
    def whole_copies(self) -> Mapping[str, CopyRule]:
        """By target entity: the copy of all attributes that creates its items."""
        copies = (rule for rule in self.rules.values() if isinstance(rule, CopyRule) and rule.copies_all)
        return {rule.into.name: rule for rule in writing(copies)}

    @cached_property
    def item_rules(self) -> Mapping[str, tuple[ItemRule, ...]]:
        """By source entity: the rules that write on its items themselves."""
        return grouped(writing(self.on_items.values()), lambda rule: rule.source.name)

    @cached_property
    def item_chains(self) -> Mapping[str, int]:
        """By entity whose `item_rules` read what they write: the greatest number of steps until nothing changes."""
        found = {}
        for entity, rules in self.item_rules.items():
            written = [name for rule in rules for name in rule.owned()]
            if any(not rule.reads.isdisjoint(written) for rule in rules):
                found[entity] = len(written) + 1
        return found

    @cached_property
    def copies_with_match(self) -> Mapping[Entity, GuardedCopyRule]:
        """The guarded copies into entities with `match`: under their keys there can be items of another kind."""
        found = {rule.into: rule for rule in self.copy_rule_into.values()}
        return {entity: rule for entity, rule in found.items() if entity.pattern is not None}

    @cached_property
    def created_with_match(self) -> Mapping[Entity, tuple[LedgerRule, ...]]:
        """By entity with `match` whose items publishes create: the rules that publish to its items."""
        rules = chain.from_iterable(self.ledger_rules_into.values())
        creating = (rule for rule in rules if rule.creates and rule.into.pattern is not None)
        return grouped(creating, lambda rule: rule.into)

    @cached_property
    def shared_keys(self) -> bool:
        """Whether keys of items that rules create can hold items of another kind."""
        return bool(self.created_with_match or self.copies_with_match)

    def overwrites(self, old: Item | None, new: Item | None) -> bool:
        """Return whether a change of an item changes values that rules write, no guard, and nothing else."""
        if old is None or new is None or old.entity is not new.entity:
            return False
        before, after, entity = old.image, new.image, new.entity.name
        owned = self.derived_attributes(entity, held=False)
        owned |= self.whole_copies[entity].owned(before, after) if entity in self.whole_copies else frozenset()
        return all(name in owned or same(before.get(name), after.get(name)) for name in before.keys() | after.keys())

    def derived_attributes(self, entity: str, *, held: bool = True) -> frozenset[str]:
        """Return the attributes that rules write on items of an entity, without guards, and without those of `copies_all`.

        Without `held`, those of held rules are left out: they belong to the application, unless another version of the
        rule publishes them on items of the entity, or of its other version.
        """
        if held:
            return owned_on(entity, self.rules.values())
        published = {slot for rule in writing(self.rules.values()) for slot in _slots(rule)}
        rules = [rule for rule in self.rules.values() if rule.into.name == entity]
        return frozenset(slot[2] for rule in rules for slot in _slots(rule) if slot in published)


def _slots(rule: Rule) -> list[tuple[str, str, str]]:
    """Return rule, entity and name of each attribute that a rule owns, each without its version."""
    return [(public_name(rule.name), rule.into.public_name, name) for name in rule.owned()]


def _recognise(recognisers: Iterable[tuple[Entity, Sequence[Match]]], key: ItemKey, image: Image) -> Item | None:
    """Return the item with the first of these entities that it belongs to."""
    _, partition, sort = key
    for entity, matches in recognisers:
        variables = matches[0](partition)
        if variables is None:
            continue
        if len(matches) > 1:
            more = matches[1](sort or "")
            if more is None:
                continue
            if not variables:
                variables = more
            elif more:
                if any(variables.get(name, text) != text for name, text in more.items()):
                    continue
                variables.update(more)
        item = Item(entity, key, variables, image)
        if entity.match is not None and not entity.match(values_to_recognise(item)):
            continue
        return item
    return None


def _merged(known: Mapping[str, Any], form: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table as these rules know it, with what only the rules of a version know, such as a new index."""
    return {**form, **known, "indexes": {**known["indexes"], **form["indexes"], **known["indexes"]}}


def _place(entities: dict[str, Any], tables: Mapping[str, Any], name: str, form: Mapping[str, Any]) -> str:
    """Add an entity, unless it is there, and return its name: `name@1` where another one has its name, or its items."""
    number, place = 0, name
    while place in entities or (place == name and _shares_items(entities, tables, form)):
        if place in entities and without(entities[place], UNREAD) == without(form, UNREAD):
            return place
        number += 1
        place = f"{name}@{number}"
    entities[place] = form
    return place


def _shares_items(entities: Mapping[str, Any], tables: Mapping[str, Any], form: Mapping[str, Any]) -> bool:
    """Return whether an item could be of an entity and of one of these. The entities of one file have no common items."""
    table = tables[form["table"]]

    def patterns(of: Mapping[str, Any]) -> list[KeyPattern]:
        return [KeyPattern.parse(of["key"][attribute], table["separator"]) for attribute in table["key"]]

    def pattern(of: Mapping[str, Any]) -> Pattern | None:
        return Pattern.parse(of["match"]) if "match" in of else None

    ours = patterns(form)
    return any(
        other["table"] == form["table"]
        and all(overlap(*pair) is not None for pair in zip(ours, patterns(other), strict=True))
        and not are_apart(pattern(form), pattern(other))
        for name, other in entities.items()
        if "@" not in name
    )


def _with_entities(rule: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a rule with other names of entities."""
    if all(name == place for name, place in names.items()):
        return rule
    kind = kind_of(rule)
    action = rule[kind]
    if isinstance(action, Mapping) and "into" in action:
        action = {**action, "into": names[action["into"]]}
    return {**rule, "from": {names[source]: parts for source, parts in rule["from"].items()}, kind: action}


def writing(rules: Iterable[R]) -> list[R]:
    """Return the rules that are not held."""
    return [rule for rule in rules if not rule.held]


def grouped(rules: Iterable[R], by: Callable[[R], K]) -> Mapping[K, tuple[R, ...]]:
    """Return rules by an entity or a name, each group in the order of `rules`."""
    found: dict[K, list[R]] = {}
    for rule in rules:
        found.setdefault(by(rule), []).append(rule)
    return {key: tuple(some) for key, some in found.items()}


_LIMITS = ("limit", "as", "shards")
"""The parts of an action on which no contribution depends."""


def _carry(others: Sequence[tuple[str, Callable[[str], bool]]], kept: Contributions) -> dict[str, Contributed]:
    """Return what a version takes over of what the first of these others has kept, by target."""
    for other, is_alike in others:
        if other in kept:
            carried = {target: _only(held, is_alike) for target, held in kept[other].items()}
            return {target: held for target, held in carried.items() if held}
    return {}


def _only(held: Contributed, is_alike: Callable[[str], bool]) -> Contributed:
    only: Contributed = {}
    for slot, amount in held.items():
        if slot in ("+", "%"):
            if members := {member: value for member, value in amount.items() if is_alike(member.partition("|")[0])}:
                only[slot] = members
        elif is_alike(slot.lstrip("=#")):
            only[slot] = amount
    return only


_LANES_BYTES = ENTRY_BYTES // 4


def _beyond(contributions: Contributions, most: int) -> Iterator[tuple[str, str]]:
    """Yield the rules whose contributions exceed a limit in bytes, each with the reason."""
    left = most
    for name, targets in contributions.items():
        size = contributed_bytes(name, targets)
        if size <= left:
            left -= size
            continue
        before = f", of which other rules, or versions of them, leave {left:,}" if left < most else ""
        yield (
            name,
            f"contributions to {len(targets):,} targets take {size:,} bytes; the limit of one item is "
            f"{most:,} bytes{before}: divide the item into several, or exclude some of its elements with a `where`",
        )

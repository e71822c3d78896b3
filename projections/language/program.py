"""Programs: the compiled rules that the engine executes. They need neither pydantic nor YAML."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from projections.errors import BadInput
from projections.language.compiling import Compiled, fingerprint_of
from projections.language.contribution import (
    ENTRY_BYTES,
    NOTHING,
    Contributions,
    Evaluated,
    bytes_at_most,
    contributed_bytes,
)
from projections.language.embeds import EmbedRule
from projections.language.entity import Entity, Item, values_to_recognise
from projections.language.keys import Image, ItemKey, Schema
from projections.language.rules import CopyRule, GuardedCopyRule, ItemRule, LedgerRule, Rule, owned_on
from projections.language.syntax import seconds_of

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

    @cached_property
    def model(self) -> Rules:
        """The rules as models, for tools. The engine does not load their classes, because of cold starts."""
        from projections.language.models import Rules

        return Rules.from_document(self.document)

    def disabled(self, rule: str) -> bool:
        """Return whether a rule has `enabled: false`. Then its mode is `shadow`."""
        return rule in self.rules and not self.document["projections"][rule]["enabled"]

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
        return self.guard_prefix + rule

    def recognise(self, key: ItemKey, image: Image) -> Item | None:
        """Return the item with its entity; None if it belongs to no entity."""
        table, partition, sort = key
        for entity, matches in self._recognisers.get(table, ()):
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

    def entities_at(self, key: ItemKey) -> list[Entity]:
        """Return the entities whose items can have this key, without regard to `match`."""
        return [entity for entity in self._by_table.get(key.table, ()) if entity.at(key)]

    def contributions(self, item: Item | None) -> Evaluated:
        """Return the contributions of an item under all rules that the ledger records.

        It depends only on the item and the rules. If all contributions together exceed the limit of an entry, those of
        earlier rules in the file come first; a rule whose contributions exceed the rest contributes nothing.
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
            if most > ENTRY_BYTES:
                refused = dict(_beyond_an_entry(contributions))
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
            if any(rule.each is not None for rule in rules) or sum(rule.most_of_one for rule in rules) > ENTRY_BYTES
        )

    @cached_property
    def _recognisers(self) -> Mapping[str, Sequence[tuple[Entity, Sequence[Match]]]]:
        """By table: its entities, each with the functions that read its key attributes."""
        return {
            table: [(entity, [pattern.match for pattern in entity.patterns]) for entity in entities]
            for table, entities in self._by_table.items()
        }

    @cached_property
    def _by_table(self) -> Mapping[str, tuple[Entity, ...]]:
        return {name: tuple(e for e in self.entities.values() if e.table == name) for name in self.tables}

    # Rules by kind, including shadow rules.

    @cached_property
    def recorded(self) -> Mapping[str, LedgerRule]:
        """By name: the rules that contribute to groups in the ledger."""
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, LedgerRule)}

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

    # Rules by entity. Shadow rules are included only if the ledger records them.

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
        return grouped((rule for rule in rules if rule.writes_items), lambda rule: rule.into.name)

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
        return grouped(writing(creating), lambda rule: rule.into)

    @cached_property
    def shared_keys(self) -> bool:
        """Whether keys of items that rules create can hold items of another kind."""
        return bool(self.created_with_match or self.copies_with_match)

    def derived_attributes(self, entity: str, *, shadow: bool = True) -> frozenset[str]:
        """Return the attributes that rules write on items of an entity, without guards, and without those of `copies_all`.

        Without `shadow`, those of shadow rules are left out: they belong to the application.
        """
        rules = self.rules.values()
        return owned_on(entity, rules if shadow else writing(rules))


def writing(rules: Iterable[R]) -> list[R]:
    """Return the rules without shadow rules."""
    return [rule for rule in rules if rule.mode != "shadow"]


def grouped(rules: Iterable[R], by: Callable[[R], K]) -> Mapping[K, tuple[R, ...]]:
    """Return rules by an entity or a name, each group in the order of `rules`."""
    found: dict[K, list[R]] = {}
    for rule in rules:
        found.setdefault(by(rule), []).append(rule)
    return {key: tuple(some) for key, some in found.items()}


def _beyond_an_entry(contributions: Contributions) -> Iterator[tuple[str, str]]:
    """Yield the rules whose contributions exceed the limit of an entry, each with the reason."""
    left = ENTRY_BYTES
    for name, targets in contributions.items():
        size = contributed_bytes(name, targets)
        if size <= left:
            left -= size
            continue
        before = f", of which earlier rules in the file leave {left:,}" if left < ENTRY_BYTES else ""
        yield (
            name,
            f"contributions to {len(targets):,} targets take {size:,} bytes; the limit of one item is "
            f"{ENTRY_BYTES:,} bytes{before}: divide the item into several, or exclude some of its elements with a `where`",
        )

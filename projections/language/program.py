"""The rules compiled: what the engine executes. Made from the canonical document; needs neither pydantic nor YAML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from projections.errors import BadInput
from projections.language.contribution import (
    ENTRY_BYTES,
    NOTHING,
    Contributions,
    Evaluated,
    bytes_at_most,
    contributed_bytes,
)
from projections.language.embeds import EmbedRule, children_of, parent_patterns
from projections.language.expressions import Measure as ParsedMeasure
from projections.language.keys import Image, ItemKey, Schema, Value, key_text
from projections.language.patterns import Pattern
from projections.language.rules import (
    PARTITION_KEY_BYTES,
    SORT_KEY_BYTES,
    AggregateRule,
    ClaimedCopyRule,
    CopyRule,
    Each,
    GuardedCopyRule,
    IndexRule,
    LedgerRule,
    Measure,
    PickRule,
    Rule,
    check_target_key,
)
from projections.language.scope import Item, Resolve
from projections.language.templates import KeyPattern, Template
from projections.language.values import lookup, wire

if TYPE_CHECKING:
    from projections.language import canonical

__all__ = ["LEDGER_SCHEMA", "Entity", "Program", "grouped"]

R = TypeVar("R", bound=Rule)
K = TypeVar("K", bound=Hashable)

Match: TypeAlias = Callable[[str], dict[str, str] | None]
"""Reads a key: gives the variables, or None if the text is not of this form."""

LEDGER_SCHEMA = Schema(("pk", "S"), ("sk", "S"), ttl="ttl")
"""The keys of the ledger table, whose logical name is `ledger`."""


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
    """Attributes with one scalar in `match`: written on items we create, so that they are recognised."""
    numeric: frozenset[str]
    """Variables that stand for a key attribute of type N."""
    derived: bool
    """Declared `derived: true`: exists only because of projections."""
    copied: bool
    """The target of a copy rule, which creates and deletes it."""
    expires: bool

    @property
    def owned_by_rules(self) -> bool:
        return self.derived or self.copied

    @property
    def created_by_publishes(self) -> bool:
        """Whether publishes from the ledger create its items: it is derived, and no copy rule creates them."""
        return self.derived and not self.copied

    @property
    def match_names(self) -> tuple[str, ...]:
        """The variables and dotted paths that `match` reads."""
        return self.pattern.names if self.pattern is not None else ()

    @property
    def match_reads_key(self) -> bool:
        """Whether `match` reads a key attribute, or a name that is a variable of the key."""
        of_key = {*self.schema.key_attributes, *(name for pattern in self.patterns for name in pattern.names)}
        return not of_key.isdisjoint(self.match_names)

    def at(self, key: ItemKey) -> bool:
        """Whether a key is one that its items have; `match` is not asked."""
        return (
            key.table == self.table
            and self.patterns[0].match(key.partition) is not None
            and (len(self.patterns) == 1 or self.patterns[1].match(key.sort or "") is not None)
        )

    def target_key(self, resolve: Resolve) -> ItemKey | None:
        """The key of the item these variables name; None if any is missing. Raises BadInput if it cannot be a key."""
        texts = []
        for position, pattern in enumerate(self.patterns):
            text = pattern.literal
            if text is None:
                variables = {}
                for name in pattern.names:
                    value = resolve(name)
                    if value is None:
                        return None
                    kind, content = next(iter(value.items()))
                    if kind not in ("S", "N"):
                        raise BadInput(f'"{name}" is of type {kind}; a key needs a string or a number')
                    variables[name] = content if kind == "S" else key_text(kind, content)
                text = pattern.render(variables)
            attribute, kind = self.schema.sort if position and self.schema.sort else self.schema.partition
            texts.append(check_target_key(attribute, kind, text, SORT_KEY_BYTES if position else PARTITION_KEY_BYTES))
        return ItemKey(self.table, *texts)


class Program:
    """All rules of one document, compiled.

    `tables` has the application's tables by logical name; `rules` are in the order of the file.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.guard_prefix: str = document["guard_prefix"]
        self.separators = {name: table["separator"] for name, table in document["tables"].items()}
        self.tables = {name: _schema(table) for name, table in document["tables"].items()}
        copied = {rule["into"] for rule in document["projections"].values() if rule["kind"] == "copy"}
        self.entities = {
            name: self._entity(name, entity, name in copied) for name, entity in document["entities"].items()
        }
        self.rules: dict[str, Rule] = {}
        self.retired: dict[str, str] = dict(document["retired"])
        rules: Mapping[str, Any] = document["projections"]
        for name in sorted(rules, key=lambda name: rules[name]["kind"] == "copy"):  # copies leave out what others write
            self.rules[name] = self._rule(name, rules[name])
        self.rules = {name: self.rules[name] for name in rules}
        self.fingerprint = _digest({name: rule.fingerprint for name, rule in self.rules.items()})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Program:
        """Compiles a canonical document, as `loader.load(path).canonical()` makes it or as JSON brought it here."""
        return cls(document)

    @cached_property
    def typed(self) -> canonical.Document:
        """The rules as tools read them. The engine does without: its classes would cost a cold start."""
        from projections.language.canonical import Document

        return Document.from_document(self.document)

    def guard(self, rule: str) -> str:
        """The attribute that holds a rule's guard."""
        return self.guard_prefix + rule

    # What the engine asks.

    def recognise(self, key: ItemKey, image: Image) -> Item | None:
        """The item as one of its entity, or None if it belongs to none."""
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
            if entity.match is not None and not entity.match(_attribute_or_variable(item)):
                continue
            return item
        return None

    def entities_at(self, key: ItemKey) -> list[Entity]:
        """The entities an item under this key could be of; `match` is not asked, because there is no item."""
        return [entity for entity in self._by_table.get(key.table, ()) if entity.at(key)]

    def contributions(self, item: Item | None) -> Evaluated:
        """What an item contributes under every rule that keeps a ledger.

        A function of the item and the rules alone. Where all contributions exceed what an entry holds, rules have room in
        the order of the file; one that does not fit contributes nothing.
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
        """The source entities of whose items the contributions may exceed what an entry holds."""
        return frozenset(
            entity
            for entity, rules in self.ledger_rules.items()
            if any(rule.each is not None for rule in rules) or sum(map(_most_of_one, rules)) > ENTRY_BYTES
        )

    @cached_property
    def _recognisers(self) -> Mapping[str, Sequence[tuple[Entity, Sequence[Match]]]]:
        """By table: its entities, each with what reads its key's attributes."""
        return {
            table: [(entity, [pattern.match for pattern in entity.patterns]) for entity in entities]
            for table, entities in self._by_table.items()
        }

    @cached_property
    def _by_table(self) -> Mapping[str, tuple[Entity, ...]]:
        return {name: tuple(e for e in self.entities.values() if e.table == name) for name in self.tables}

    # Rules by what they do; with those in the shadow, which write nothing.

    @cached_property
    def recorded(self) -> Mapping[str, LedgerRule]:
        """By name: the rules that contribute to groups in the ledger."""
        return self._of_kind(LedgerRule)

    @cached_property
    def guarded_copies(self) -> Mapping[str, GuardedCopyRule]:
        """By name: the copies that need no ledger."""
        return self._of_kind(GuardedCopyRule)

    @cached_property
    def indexes(self) -> Mapping[str, IndexRule]:
        """By name: the rules for index attributes."""
        return self._of_kind(IndexRule)

    @cached_property
    def embeds(self) -> Mapping[str, EmbedRule]:
        """By name: the rules that keep attributes of a parent in its children."""
        return self._of_kind(EmbedRule)

    def _of_kind(self, kind: type[R]) -> dict[str, R]:
        return {name: rule for name, rule in self.rules.items() if isinstance(rule, kind)}

    # The same by entity; except in the ledger, without rules in the shadow.

    @cached_property
    def ledger_rules(self) -> Mapping[str, tuple[LedgerRule, ...]]:
        """By source entity."""
        return grouped(self.recorded.values(), lambda rule: rule.source.name)

    @cached_property
    def ledger_rules_into(self) -> Mapping[str, tuple[LedgerRule, ...]]:
        """By target entity."""
        return grouped(chain.from_iterable(self.ledger_rules.values()), lambda rule: rule.into.name)

    @cached_property
    def embeds_from(self) -> Mapping[str, tuple[EmbedRule, ...]]:
        """By parent entity."""
        return grouped(_writing(self.embeds.values()), lambda rule: rule.source.name)

    @cached_property
    def embeds_into(self) -> Mapping[str, tuple[EmbedRule, ...]]:
        """By child entity."""
        return grouped(_writing(self.embeds.values()), lambda rule: rule.into.name)

    @cached_property
    def copy_rules(self) -> Mapping[str, tuple[GuardedCopyRule, ...]]:
        """By source entity."""
        return grouped(_writing(self.guarded_copies.values()), lambda rule: rule.source.name)

    @cached_property
    def copy_rule_into(self) -> Mapping[str, GuardedCopyRule]:
        """By target entity: the one guarded copy that makes it."""
        return {rule.into.name: rule for rule in _writing(self.guarded_copies.values())}

    @cached_property
    def index_rules(self) -> Mapping[str, tuple[IndexRule, ...]]:
        """By the entity whose items they index."""
        return grouped(_writing(self.indexes.values()), lambda rule: rule.source.name)

    @cached_property
    def copies_with_match(self) -> Mapping[Entity, GuardedCopyRule]:
        """The guarded copies into entities with `match`: only under their keys can there be items of another kind."""
        found = {rule.into: rule for rule in self.copy_rule_into.values()}
        return {entity: rule for entity, rule in found.items() if entity.pattern is not None}

    @cached_property
    def created_with_match(self) -> Mapping[Entity, tuple[LedgerRule, ...]]:
        """By entity with `match` whose items publishes create: the rules that publish onto it."""
        rules = chain.from_iterable(self.ledger_rules_into.values())
        creating = (rule for rule in rules if rule.creates and rule.into.pattern is not None)
        return grouped(_writing(creating), lambda rule: rule.into)

    @cached_property
    def shared_keys(self) -> bool:
        """Whether items of another kind may be under a key of items that rules create."""
        return bool(self.created_with_match or self.copies_with_match)

    def derived_attributes(self, entity: str, *, shadow: bool = True) -> frozenset[str]:
        """The attributes of an entity that projections write, without guards; not those of a copy of all attributes.

        Without `shadow` those of rules in the shadow are left out: what such a rule would write is the application's.
        """
        names: set[str] = set()
        for rule in self.rules.values():
            if rule.into.name == entity and (shadow or rule.mode != "shadow"):
                names.update(rule.owned())
        return frozenset(names)

    # Compilation.

    def _entity(self, name: str, document: Mapping[str, Any], copied: bool) -> Entity:
        schema = self.tables[document["table"]]
        separator = self.separators[document["table"]]
        patterns = tuple(KeyPattern.parse(document["key"][attribute], separator) for attribute in schema.key_attributes)
        pattern = Pattern.parse(document["match"]) if document["match"] else None
        constants = pattern.constants if pattern else {}
        types = (schema.partition, schema.sort)
        numeric = {n for p, kind in zip(patterns, types, strict=False) if kind and kind[1] == "N" for n in p.names}
        return Entity(
            name=name,
            table=document["table"],
            schema=schema,
            patterns=patterns,
            match=pattern.compile() if pattern else None,
            pattern=pattern,
            constants={name: wire(value) for name, value in constants.items() if "." not in name},
            numeric=frozenset(numeric),
            derived=document["derived"],
            copied=copied,
            expires=document["expires"],
        )

    def _rule(self, name: str, document: Mapping[str, Any]) -> Rule:
        kind = document["kind"]
        source = self.entities[document["from"]]
        into = self.entities[document.get("into", document["from"])]
        each = document["each"]
        common: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "source": source,
            "into": into,
            "where": Pattern.parse(document["where"]).compile() if document["where"] else None,
            "bind": tuple((variable, Template.parse(text).compile()) for variable, text in document["bind"].items()),
            "each": Each(each["variable"], each["path"], each["ancestors"], each["separator"]) if each else None,
            "expired": document["expired"],
            "mode": document["mode"],
            "fingerprint": self._fingerprint(document),
        }
        if kind == "index":
            return self._index(common, document)
        if kind == "copy":
            return self._copy(common, document)
        if kind == "aggregate":
            return AggregateRule(**common, measures=_measures(document["set"]), shards=document["shards"])
        if kind in ("top", "latest"):
            return PickRule(
                **common,
                by=document["by"],
                descending=document["order"] == "desc",
                limit=document["limit"] if kind == "top" else 1,
                list_name=document["as"] if kind == "top" else None,
                picked=tuple(document["attributes"].items()),
            )
        return self._embed(common, document)

    def _fingerprint(self, rule: Mapping[str, Any]) -> str:
        """Changes when what the rule makes of an item may change, or where its guards are found."""
        entities = [self.document["entities"].get(rule.get(role)) for role in ("from", "into")]
        tables = [self.document["tables"][entity["table"]] for entity in entities if entity]
        keys = [[table["partition"], table["sort"], table["separator"]] for table in tables]
        return _digest([rule, *entities, *keys, self.guard_prefix])

    def _embed(self, common: dict[str, Any], document: Mapping[str, Any]) -> EmbedRule:
        name, into = common["name"], common["into"]
        children = children_of(self.document, name)
        types = {attribute: kind for keys in into.schema.indexes.values() for side in keys for attribute, kind in side}
        types |= dict([into.schema.partition])
        return EmbedRule(
            **common,
            picked=tuple(document["attributes"].items()),
            match=tuple((child, Template.parse(text).compile()) for child, text in document["match"].items()),
            patterns=parent_patterns(self.document, name),
            children=children,
            partition=tuple((types[a], Template.parse(text).compile()) for a, text in children.partition.items()),
            on_delete=document["on_delete"],
            telling=self._telling(into.schema, into.table, document["match"]),
        )

    def _telling(self, schema: Schema, table: str, names: Iterable[str]) -> tuple[str, ...]:
        """The attributes that tell what an item of a table is, and those that these names may be."""
        found = [*schema.key_attributes, *names]
        for entity in self.document["entities"].values():
            if entity["table"] == table and entity["match"]:
                found += Pattern.parse(entity["match"]).names
        return tuple(dict.fromkeys(name.split(".", 1)[0] for name in found))

    def _copy(self, common: dict[str, Any], document: Mapping[str, Any]) -> CopyRule:
        into: Entity = common["into"]
        everything = document["attributes"] == "all"
        values = document["values"].items()
        return (ClaimedCopyRule if document["claimed"] else GuardedCopyRule)(
            **common,
            attributes=None if everything else tuple(document["attributes"].items()),
            templates=tuple((name, Template.parse(v["template"]).compile()) for name, v in values if "template" in v),
            constants={**into.constants, **{name: wire(v["constant"]) for name, v in values if "constant" in v}},
            not_copied=self.derived_attributes(into.name).union(into.schema.key_attributes),
            guard_prefix=self.guard_prefix,
        )

    def _index(self, common: dict[str, Any], document: Mapping[str, Any]) -> IndexRule:
        schema: Schema = common["source"].schema
        limits: dict[str, tuple[str, int]] = {}
        for partition, sort in schema.indexes.values():
            for attributes, most in ((partition, PARTITION_KEY_BYTES), (sort, SORT_KEY_BYTES)):
                for name, kind in attributes:
                    limits[name] = (kind, min(most, limits.get(name, (kind, most))[1]))
        cases, names, reads = [], dict[str, None](), set[str]()
        patterns = [document["where"], *(case["where"] for case in document["cases"])]
        for pattern in patterns:
            if pattern:
                reads.update(Pattern.parse(pattern).names)
        for case in document["cases"]:
            templates = {name: Template.parse(text) for name, text in case["set"].items()}
            names.update(dict.fromkeys(templates))
            for template in templates.values():
                reads.update(template.names)
            where = Pattern.parse(case["where"]).compile() if case["where"] else None
            cases.append((where, tuple((name, template.compile()) for name, template in templates.items())))
        return IndexRule(
            **common,
            cases=tuple(cases),
            attributes=tuple((name, *limits[name]) for name in names),
            reads=frozenset(path.split(".", 1)[0] for path in reads) - set(schema.key_attributes),
        )


def _writing(rules: Iterable[R]) -> list[R]:
    return [rule for rule in rules if rule.mode != "shadow"]


def grouped(rules: Iterable[R], by: Callable[[R], K]) -> Mapping[K, tuple[R, ...]]:
    """Return rules by an entity or a name, each group in the order of `rules`."""
    found: dict[K, list[R]] = {}
    for rule in rules:
        found.setdefault(by(rule), []).append(rule)
    return {key: tuple(some) for key, some in found.items()}


def _most_of_one(rule: LedgerRule) -> int:
    """An upper bound of the bytes that a rule contributes to one target.

    A key has at most 3,072 bytes, of which JSON makes at most six times as many.
    """
    return 20_000 + 3_000 * len(rule.measures if isinstance(rule, AggregateRule) else (rule,))


def _beyond_an_entry(contributions: Contributions) -> Iterator[tuple[str, str]]:
    """The rules that find no room in an entry, each with the reason."""
    left = ENTRY_BYTES
    for name, targets in contributions.items():
        size = contributed_bytes(name, targets)
        if size <= left:
            left -= size
            continue
        before = f", of which rules before it in the file leave {left:,}" if left < ENTRY_BYTES else ""
        yield (
            name,
            f"contributions to {len(targets):,} targets take {size:,} bytes; the limit of one item is "
            f"{ENTRY_BYTES:,}{before}: divide the item into several, or exclude some of its elements with a `where`",
        )


def _attribute_or_variable(item: Item) -> Resolve:
    """For recognition, where a contradiction between key and attribute is not yet anybody's mistake."""

    def resolve(name: str) -> Value | None:
        value = lookup(item.image, name)
        return {"S": item.variables[name]} if value is None and name in item.variables else value

    return resolve


def _schema(table: Mapping[str, Any]) -> Schema:
    def pairs(attributes: Any) -> tuple[tuple[str, str], ...]:
        return tuple((name, kind) for name, kind in attributes)

    indexes = {name: (pairs(index["partition"]), pairs(index["sort"])) for name, index in table["indexes"].items()}
    sort = table["sort"]
    return Schema(pairs([table["partition"]])[0], pairs([sort])[0] if sort else None, indexes, table["ttl"])


def _measures(document: Mapping[str, Any]) -> tuple[Measure, ...]:
    measures: list[Measure] = []
    slots: dict[str, str] = {}
    for name, parts in document.items():
        where, expression = parts["where"], parts["expression"]
        function = parts["function"]
        long_form = {function: expression or True, **({"where": where} if where else {})}
        parsed = ParsedMeasure.parse(name, long_form)
        slot = name
        if function in ("min", "max"):  # the least and the greatest of the same values share their members
            slot = slots.setdefault(json.dumps([expression, where], sort_keys=True), name)
        measures.append(
            Measure(
                name=name,
                function=function,
                evaluate=parsed.expression.compile() if parsed.expression else None,
                where=parsed.where.compile() if parsed.where else None,
                slot=slot,
            )
        )
    return tuple(measures)


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

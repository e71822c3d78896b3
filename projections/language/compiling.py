"""Compiles the canonical document to entities and rules. It needs neither pydantic nor YAML."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias, assert_never, get_args

from projections.language.attribute_sources import pick
from projections.language.embeds import (
    EmbedRule,
    ListEmbedRule,
    attributes_of_child,
    children_of,
    match_of,
    parent_patterns,
)
from projections.language.entity import Entity
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES, Schema, escape
from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.measures import Measure as ParsedMeasure
from projections.language.patterns import Pattern
from projections.language.rules import (
    AggregateRule,
    ClaimedCopyRule,
    CopyRule,
    Each,
    FlagRule,
    GuardedCopyRule,
    IndexRule,
    Measure,
    PickRule,
    Render,
    Rule,
    owned_on,
    public_name,
)
from projections.language.syntax import name_of, root, steps
from projections.language.templates import KeyPattern, Template
from projections.language.values import wire

Kind: TypeAlias = Literal["copy", "aggregate", "top", "latest", "flag", "rank", "index", "compute", "embed"]


def kind_of(rule: Mapping[str, Any]) -> Kind:
    """Return the kind of a rule of the canonical document."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    return next(kind for kind in kinds if kind in rule)


ABOUT = ("description", "owner", "tags", "within", "hold")
"""The parts of a rule on which no value depends, once it is published."""

UNREAD = ("required", "description")
"""The parts of an entity on which no rule depends: for the planner of queries, and for people."""


class Compiled:
    """The compiled parts of a document, by name: `tables` as schemas, `entities`, and `rules` in the order of the file."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._guard_prefix: str = document["guard_prefix"]
        rules: Mapping[str, Mapping[str, Any]] = document["projections"]
        copies = [name for name, rule in rules.items() if "copy" in rule]
        copied = {rules[name]["copy"]["into"] for name in copies}
        self.tables = {name: _schema(table) for name, table in document["tables"].items()}
        self.entities = {
            name: self._entity(name, entity, name in copied) for name, entity in document["entities"].items()
        }
        self.rules: dict[str, Rule] = {}
        """Each rule by name; of a rule with several sources the variant of the first."""
        for name in [
            *(one for one in rules if one not in copies),
            *copies,
        ]:  # a copy of all attributes leaves out those of other rules
            self.rules[name] = self._rule(name, rules[name])
        self.rules = {name: self.rules[name] for name in rules}
        self.variants: tuple[Rule, ...] = tuple(self._variants())
        """All rules, in the order of the file, once for each source."""

    def _variants(self) -> Iterator[Rule]:
        for name, rule in self.rules.items():
            yield rule
            for source, parts in [*self._document["projections"][name]["from"].items()][1:]:
                yield replace(rule, source=self.entities[source], **_source(parts))

    def _entity(self, name: str, document: Mapping[str, Any], copied: bool) -> Entity:
        schema = self.tables[document["table"]]
        separator = self._document["tables"][document["table"]]["separator"]
        patterns = tuple(KeyPattern.parse(document["key"][attribute], separator) for attribute in schema.key_attributes)
        pattern = Pattern.parse(document["match"]) if "match" in document else None
        constants = pattern.constants if pattern else {}
        types = [kind for _, kind in filter(None, (schema.partition, schema.sort))]
        numeric = {n for p, kind in zip(patterns, types, strict=True) if kind == "N" for n in p.names}
        binary = {n for p, kind in zip(patterns, types, strict=True) if kind == "B" for n in p.names}
        return Entity(
            name=name,
            table=document["table"],
            schema=schema,
            patterns=patterns,
            match=pattern.compile() if pattern else None,
            pattern=pattern,
            constants={root(name): wire(value) for name, value in constants.items() if len(steps(name)) == 1},
            numeric=frozenset(numeric),
            binary=frozenset(binary),
            derived=document["derived"],
            copied=copied,
            expires=document["expires"],
        )

    def _rule(self, name: str, document: Mapping[str, Any]) -> Rule:
        kind = kind_of(document)
        action = document[kind]
        sources = {source: self.entities[source] for source in document["from"]}
        first = next(iter(sources))
        common: dict[str, Any] = {
            "name": name,
            "kind": kind,
            "source": sources[first],
            "sources": tuple(sources.values()),
            "into": self.entities[into_of(document)],
            **_source(document["from"][first]),
            "expired": document.get("expired"),
            "held": document["hold"],
            "fingerprint": self._fingerprint(document),
        }
        match kind:
            case "copy":
                return self._copy(common, action)
            case "aggregate":
                lanes = action.get("ledger") == "lanes"
                return AggregateRule(**common, measures=_measures(action["set"]), shards=action["shards"], lanes=lanes)
            case "top":
                return PickRule(**common, **_pick(action), limit=action["limit"], list_name=action["as"])
            case "latest":
                return PickRule(**common, **_pick(action), limit=1, list_name=None)
            case "flag":
                values = {name: wire(value) for name, value in action["set"].items()}
                return FlagRule(**common, measures=(), shards=action["shards"], values=values)
            case "rank":
                from projections.language.ranks import compile_rule as ranked  # few rule files need it

                return ranked(common, action)
            case "index":
                return _index(common, document["from"][first].get("where"), action)
            case "compute":
                from projections.language.computed import compile_rule as computed  # few rule files need it

                return computed(common, document["from"][first].get("where"), action)
            case "embed":
                return self._embed(common, action)
        assert_never(kind)

    def _fingerprint(self, rule: Mapping[str, Any]) -> str:
        """Return a hash that changes when the rule may derive other values, or keep its guards elsewhere."""
        names = [*rule["from"], into_of(rule)]
        entities = [self._document["entities"][name] for name in names]
        tables = [self._document["tables"][entity["table"]] for entity in entities]
        keys = [[*table["key"].items(), table["separator"]] for table in tables]
        entities = [without(entity, UNREAD) for entity in entities]
        return fingerprint_of([without(rule, ABOUT), *entities, *keys, self._guard_prefix])

    def _copy(self, common: dict[str, Any], document: Mapping[str, Any]) -> CopyRule:
        into: Entity = common["into"]
        attributes, values = document["attributes"], document["values"].items()
        others = [rule for rule in self.rules.values() if public_name(rule.name) != public_name(common["name"])]
        return (ClaimedCopyRule if document["claimed"] else GuardedCopyRule)(
            **common,
            attributes=None if attributes == "all" else tuple(attributes),
            pick=pick({} if attributes == "all" else attributes),
            templates=_templates({name: value for name, value in values if isinstance(value, str)}),
            constants={**into.constants, **{name: wire(value) for name, value in values if not isinstance(value, str)}},
            not_copied=owned_on(into.name, others).union(into.schema.key_attributes),
            guard_prefix=self._guard_prefix,
        )

    def _embed(self, common: dict[str, Any], document: Mapping[str, Any]) -> EmbedRule:
        name, into = common["name"], common["into"]
        children = children_of(self._document, name)
        telling = attributes_of_child(self._document, name)
        shown = into.schema.projected_names(children.index) if children.index is not None else None
        types = {attribute: kind for keys in into.schema.indexes.values() for side in keys for attribute, kind in side}
        types |= dict([into.schema.partition])
        parts: dict[str, Any] = dict(
            **common,
            names=tuple(document["attributes"]),
            pick=pick(document["attributes"]),
            match=_templates(match_of(document)),
            patterns=parent_patterns(self._document, name),
            children=children,
            partition=tuple((types[a], Template.parse(text).compile()) for a, text in children.partition.items()),
            on_delete=document.get("on_delete", "remove"),
            telling=telling,
            projected=shown is None or shown.issuperset(telling),
        )
        if "as" not in document:
            return EmbedRule(**parts)
        return ListEmbedRule(
            **parts,
            list_name=document["as"],
            references_name=document["references"],
            as_map=document["form"] == "map",
            id_name=document.get("id"),
            missing=document["missing"],
        )


def into_of(rule: Mapping[str, Any]) -> str:
    """Return the target entity of a rule of the canonical document."""
    action = rule[kind_of(rule)]
    into: str = action["into"] if "into" in action else next(iter(rule["from"]))
    return into


def without(document: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return a part of a document without some of its parts."""
    return {name: part for name, part in document.items() if name not in names}


def _pick(document: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "by": name_of(document["by"]),
        "descending": document["order"] == "desc",
        "names": tuple(document["attributes"]),
        "pick": pick(document["attributes"]),
    }


def _index(common: dict[str, Any], where: Mapping[str, Any] | None, forms: Sequence[Mapping[str, Any]]) -> IndexRule:
    schema: Schema = common["source"].schema
    limits: dict[str, tuple[str, int]] = {}
    for partition, sort in schema.indexes.values():
        for attributes, most in ((partition, PARTITION_KEY_BYTES), (sort, SORT_KEY_BYTES)):
            for name, kind in attributes:
                limits[name] = (kind, min(most, limits.get(name, (kind, most))[1]))
    keys = [{name for name, _ in (*partition, *sort)} for partition, sort in schema.indexes.values()]
    cases, indexes, names, reads = [], [], dict[str, None](), set[str]()
    if where:
        reads.update(Pattern.parse(where).names)
    for case in forms:
        pattern = Pattern.parse(case["where"]) if "where" in case else None
        templates = {name: Template.parse(text) for name, text in case.items() if name != "where"}
        names.update(dict.fromkeys(templates))
        for part in (*templates.values(), *([pattern] if pattern else ())):
            reads.update(part.names)
        compiled = tuple((name, template.compile()) for name, template in templates.items())
        cases.append((pattern.compile() if pattern else None, compiled))
        indexes.append(tuple(frozenset(one & templates.keys()) for one in keys if one & templates.keys()))
    return IndexRule(
        **common,
        cases=tuple(cases),
        indexes=tuple(indexes),
        attributes=tuple((name, *limits[name]) for name in names),
        reads=frozenset(root(path) for path in reads) - set(schema.key_attributes),
    )


def _measures(document: Mapping[str, Any]) -> tuple[Measure, ...]:
    measures: list[Measure] = []
    slots: dict[str, str] = {}
    for name, form in document.items():
        parsed = ParsedMeasure.parse(form)
        function, where = parsed.function, form.get("where")
        expression = None if parsed.expression is None else form[function]
        slot = named = escape(name)  # contributions join a slot and a value by `|`
        if function in EXTREMES:  # `min` and `max` of the same values share their members
            slot = slots.setdefault(json.dumps([expression, where], sort_keys=True), named)
        elif function in VALUES:  # as measures of the same values share their counters
            slot = slots.setdefault(json.dumps(["values", expression, where], sort_keys=True), named)
        elif function in PICKED:  # as measures by the same order do
            slot = slots.setdefault(json.dumps(["by", form["by"], where], sort_keys=True), named)
        measures.append(
            Measure(
                name=name,
                function=function,
                evaluate=parsed.expression.compile() if parsed.expression and function not in PICKED else None,
                where=parsed.where.compile() if parsed.where else None,
                slot=slot,
                digits=parsed.digits,
                path=parsed.expression.path if parsed.expression and function in PICKED else None,
                by=parsed.by.path if parsed.by else None,
                text=parsed.expression is not None and parsed.expression.is_text,
            )
        )
    return tuple(measures)


def _source(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a rule that depend on its source."""
    return {
        "where": Pattern.parse(where).compile() if (where := parts.get("where")) else None,
        "bind": _templates(parts.get("bind", {})),
        "each": Each.of(parts["each"]) if "each" in parts else None,
    }


def _templates(texts: Mapping[str, str]) -> tuple[tuple[str, Render], ...]:
    return tuple((name, Template.parse(text).compile()) for name, text in texts.items())


def _schema(table: Mapping[str, Any]) -> Schema:
    partition, *sort = table["key"].items()
    indexes = {
        name: (tuple(index.get("partition", dict([partition])).items()), tuple(index.get("sort", {}).items()))
        for name, index in table["indexes"].items()
    }
    return Schema(
        partition,
        sort[0] if sort else None,
        indexes,
        table.get("ttl"),
        {
            name: frozenset(() if index["projection"] == "keys_only" else index["projection"])
            for name, index in table["indexes"].items()
            if index.get("projection", "all") != "all"
        },
        frozenset(name for name, index in table["indexes"].items() if index.get("local")),
    )


def fingerprint_of(value: Any) -> str:
    """Return 12 hexadecimal digits: the same for equal values, whatever the order of their names."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()

"""Data models of NoSQL Workbench for Amazon DynamoDB: tables, facets and sample items.

A facet shows the items of one access pattern, with an alias for each key attribute. An alias with a placeholder, such as
`USER#<userId>`, is read as the template of an entity's key, if it fits the sample items of the facet. Any other alias is
only a name: then entities are inferred from all sample items of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, combinations
from typing import Any

from projections.init.data_model import (
    KEY_TYPES,
    Keys,
    Model,
    Part,
    Unread,
    distinguish_entities,
    entity_name,
    key_variables,
    with_indexes,
)
from projections.init.infer import infer
from projections.init.inferred_entities import group_of
from projections.init.proposal import Attribute, Entity, Pairs, Proposal, Sample, Table
from projections.init.rows import SEPARATORS, common_separator, escape_braces, is_shouting, lower_camel, rows_of
from projections.language.keys import key_text
from projections.language.syntax import LanguageError
from projections.language.templates import KeyPattern
from projections.language.values import Image, exact_number

_PLACEHOLDER = re.compile(r"\$?\{\{?([^{}]+)\}?\}|<([^<>]+)>")


@dataclass(frozen=True)
class Facet:
    """A facet: the aliases of the key attributes and their place, and its sample items."""

    name: str
    place: str
    aliases: Mapping[str, str]
    attributes: Sequence[str]
    items: Sequence[Image]


@dataclass(frozen=True)
class FacetTable:
    """A table with its facets and the sample items outside of them. `types` are those of its attributes.

    What cannot be read is added to `unread`.
    """

    table: Table
    types: Mapping[str, str]
    facets: Sequence[Facet]
    others: Sequence[Image]
    unread: list[Unread]

    @cached_property
    def items(self) -> list[Image]:
        """All sample items, one for each key."""
        by_key: dict[str, Image] = {}
        for item in chain(self.others, *(facet.items for facet in self.facets)):
            key = "\0".join(key_text(kind, str(item[name][kind])) for name, kind in self.table.key)
            by_key.setdefault(key, item)
        return list(by_key.values())

    @cached_property
    def separator(self) -> str:
        if self.items:
            return common_separator(self.items, self.table)
        glued = "".join(alias for facet in self.facets for alias in facet.aliases.values() if _template(alias))
        return max(SEPARATORS, key=lambda sign: (glued.count(sign), -SEPARATORS.index(sign)))

    def proposal(self, taken: Sequence[str]) -> Proposal:
        """Return the entities that facets declare, and what the other sample items show."""
        declared: dict[str, tuple[Facet, Entity]] = {}
        names = list(taken)
        for facet in self.facets:
            key = self._declared_key(facet)
            if key is None:
                continue
            entity = self._entity(entity_name(facet.name, names), key, facet)
            names.append(entity.name)
            declared[entity.name] = (facet, entity)
        entities = distinguish_entities(self._with_kinds(declared), self.separator)
        patterns = [{name: KeyPattern.parse(t, self.separator) for name, t in each.key.items()} for each in entities]
        others = [
            item for item in self.items if not any(_fits(item, pattern, self.table) is not None for pattern in patterns)
        ]
        inferred = infer(self.table, Sample(others, complete=True), self.separator)
        renamed: dict[str, str] = {}
        for entity in inferred.entities:
            renamed[entity.name] = entity_name(entity.name, [*names, *renamed.values()])
        inferred = _rename_entities(inferred, renamed)
        return replace(
            inferred,
            entities=[*entities, *inferred.entities],
            sampled=len(self.items),
            recognised=len(self.items) - len(others) + inferred.recognised,
        )

    def _declared_key(self, facet: Facet) -> dict[str, str] | None:
        """Return the key templates in the aliases of a facet; None if they are only names."""
        templates = {name: _template(alias) for name, alias in facet.aliases.items()}
        constants = [name for name, text in templates.items() if not text]
        key = {name: text or escape_braces(facet.aliases[name]) for name, text in templates.items()}
        seen = [all(item[name].get("S") == facet.aliases[name] for name in constants) for item in facet.items]
        if len(constants) == len(templates):
            return key if seen and all(seen) else None
        reason = ""
        if not seen and any(not is_shouting(facet.aliases[name]) for name in constants):
            reason = f"{facet.aliases[constants[0]]} may be a name or a constant, and there is no sample item"
        try:
            patterns = {name: KeyPattern.parse(text, self.separator) for name, text in key.items()}
        except LanguageError as error:
            reason = f"no unambiguous template: {error}"
        else:
            unlike = next((item for item in facet.items if _fits(item, patterns, self.table) is None), None)
            if unlike is not None:
                stored = ", ".join(f"{name} = {unlike[name][kind]}" for name, kind in self.table.key)
                reason = f"the aliases do not fit the sample item with {stored}"
        if reason:
            self.unread.append(Unread(facet.place, f"{facet.name}: {reason}"))
        return None if reason else key

    def _entity(self, name: str, key: Mapping[str, str], facet: Facet) -> Entity:
        variables = key_variables(key, self.separator)
        if not facet.items:
            known = [name for name in facet.attributes if name not in {*self.table.key_names, *self.table.index_names}]
            attributes = tuple(Attribute(name, self.types.get(name, "S")) for name in known)
            return Entity(name, key, variables, attributes, 0)
        patterns = {name: KeyPattern.parse(text, self.separator) for name, text in key.items()}
        rows = rows_of(facet.items, self.table, self.separator)
        for row in rows:
            row.variables = _fits(row.item, patterns, self.table) or {}
        return group_of(name, key, variables, rows, self.table, self.separator).entity

    def _with_kinds(self, declared: Mapping[str, tuple[Facet, Entity]]) -> list[Entity]:
        """Return the entities, those with equal constants in all sample items of one facet with it as their kind."""
        constants = {name: _constants(facet.items) for name, (facet, _) in declared.items()}
        kinds: dict[str, tuple[str, str]] = {}
        for first, second in combinations(declared, 2):
            for attribute, text in constants[first].items():
                if constants[second].get(attribute, text) != text and attribute not in self.table.key_names:
                    kinds.setdefault(first, (attribute, text))
                    kinds.setdefault(second, (attribute, constants[second][attribute]))
        return [replace(entity, kind=kinds.get(name, entity.kind)) for name, (_, entity) in declared.items()]


def _template(alias: str) -> str:
    """Return an alias such as `USER#<userId>` with its placeholders as variables; empty if there is none."""
    text, start = "", 0
    for placeholder in _PLACEHOLDER.finditer(alias):
        name = (placeholder[1] or placeholder[2]).strip()
        star = "*" if name.endswith("*") else ""
        name = name.removesuffix("*")
        name = name if name.isidentifier() else lower_camel(name)
        if not name:
            return ""
        text += escape_braces(alias[start : placeholder.start()]) + "{" + name + star + "}"
        start = placeholder.end()
    return text + escape_braces(alias[start:]) if start else ""


def _fits(item: Image, patterns: Mapping[str, KeyPattern], table: Table) -> dict[str, str] | None:
    """Return the variables of an item's key; None if it does not fit the patterns."""
    known: dict[str, str] = {}
    for name, kind in table.key:
        text = str(item[name][kind])
        variables = patterns[name].match(key_text(kind, text))
        if variables is None or any(known.get(name, value) != value for name, value in variables.items()):
            return None
        known |= variables
    return known


def _constants(items: Sequence[Image]) -> dict[str, str]:
    """Return the texts that all of these items have."""
    if not items:
        return {}
    first = {name: value["S"] for name, value in items[0].items() if "S" in value}
    return {name: text for name, text in first.items() if all(item.get(name) == {"S": text} for item in items)}


def _rename_entities(proposal: Proposal, names: Mapping[str, str]) -> Proposal:
    rules = []
    for rule in proposal.rules:
        body = {**rule.body, "from": names[rule.body["from"]]}
        if rule.kind != "index":
            body[rule.kind] = {**body[rule.kind], "into": names[rule.into]}
        rules.append(replace(rule, body=body))
    return replace(
        proposal, entities=[replace(entity, name=names[entity.name]) for entity in proposal.entities], rules=rules
    )


SERVICE = "Amazon DynamoDB"


def read_workbench(document: Part) -> Model:
    """Return the tables of a model, with entities from facets and sample items. Raises UsageError."""
    metadata = document.get("ModelMetadata")
    service = metadata.get("AWSService") if metadata is not None else None
    if service is not None and service.value != SERVICE:
        raise service.wrong(f"a model of {service.value}: this command reads models of {SERVICE}")
    parts = document.need("DataModel").elements()
    if not parts:
        raise document.need("DataModel").wrong(
            "the model has no table: add one in NoSQL Workbench, and export it again"
        )
    model = Model("NoSQL Workbench model", document.file, [])
    taken: list[str] = []
    for part in parts:
        table = with_indexes(part.need("TableName").text(), part, None, "NEW_AND_OLD_IMAGES", _key)
        facets = _facets(part, table, model)
        proposal = facets.proposal(taken)
        taken += [entity.name for entity in proposal.entities]
        model.proposals.append(proposal)
    model.leave_out("(top)", "a model does not have the TTL of its tables: if items expire, add `ttl` to the table")
    return model


def _key(part: Part) -> Keys:
    keys = part.need("KeyAttributes")

    def pairs(name: str) -> Pairs:
        definition = keys.get(name)
        if definition is None:
            return ()
        return ((definition.need("AttributeName").text(), definition.need("AttributeType").one_of(*KEY_TYPES)),)

    return pairs("PartitionKey"), pairs("SortKey")


def _facets(part: Part, table: Table, model: Model) -> FacetTable:
    """Return the facets and sample items of a table."""
    capacity = part.get("ProvisionedCapacitySettings")
    if capacity is not None and (mode := part.get("BillingMode")) is not None and mode.value == "PROVISIONED":
        model.leave_out(capacity.place, "capacity is not part of a rule file: the template is on-demand")
    types = {
        each.need("AttributeName").text(): str(each.need("AttributeType").value)
        for each in part.all("NonKeyAttributes")
    }
    facets = [_facet(facet, table, model) for facet in part.all("TableFacets")]
    return FacetTable(table, types, facets, list(_items(part, table, model)), model.unread)


def _facet(part: Part, table: Table, model: Model) -> Facet:
    alias, aliases = part.need("KeyAttributeAlias"), {}
    for (name, _), called in zip(table.key, ("PartitionKeyAlias", "SortKeyAlias"), strict=False):
        alias_part = alias.get(called)
        aliases[name] = alias_part.text() if alias_part is not None and alias_part.value else name
    attributes = [attribute.text() for attribute in part.all("NonKeyAttributes")]
    items = list(_items(part, table, model))
    return Facet(part.need("FacetName").text(), alias.place, aliases, attributes, items)


def _items(part: Part, table: Table, model: Model) -> Iterator[Image]:
    """Yield the valid sample items of a table or facet."""
    for data in part.all("TableData"):
        if not isinstance(data.value, dict) or not all(map(_is_value, data.value.values())):
            model.leave_out(data.place, "a sample item with values that are not DynamoDB's JSON")
            continue
        lacking = [name for name, kind in table.key if kind not in data.value.get(name, {})]
        if lacking:
            model.leave_out(data.place, f"a sample item without the key attribute {', '.join(lacking)}")
        else:
            yield data.value


_LISTS = ("SS", "NS", "BS", "L")


def _is_value(value: Any) -> bool:
    """Return whether a value is in DynamoDB's JSON."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, content),) = value.items()
    if kind == "M":
        return isinstance(content, dict) and all(map(_is_value, content.values()))
    if kind in _LISTS:
        elements = content if isinstance(content, list) else [None]
        return all(_is_value(element if kind == "L" else {kind[0]: element}) for element in elements)
    if kind == "N" and isinstance(content, str):
        try:
            exact_number(content)
        except LanguageError:
            return False
    return isinstance(content, bool) if kind in ("BOOL", "NULL") else kind in KEY_TYPES and isinstance(content, str)

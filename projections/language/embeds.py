"""Embeds: attributes of a parent in every child that references it; how a child references its parent, and how the children
of a parent are found. A child of a `ListEmbedRule` references several parents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple

from projections.errors import BadInput
from projections.language.attribute_sources import Pick
from projections.language.contribution import check_levels
from projections.language.entity import Item, Refused, Resolve, ignore, resolver
from projections.language.keys import Image, ItemKey, Value, key_text
from projections.language.patterns import Pattern
from projections.language.rules import LIST_BYTES, Render, Rule
from projections.language.syntax import LanguageError, key_name, root
from projections.language.templates import KeyPattern, Template
from projections.language.values import having, size

MOST_REFERENCES = 100
"""How many references of a child count, from the first."""


@dataclass(frozen=True, slots=True)
class Children:
    """The query that finds a parent's children: partition key attributes with templates over the names in `match`.

    `index` is None for a query of the table, which is consistent; an index lags.
    """

    index: str | None
    partition: Mapping[str, str]
    prefix: str
    """The beginning of all sort keys; may be empty."""


def children_of(document: Mapping[str, Any], name: str) -> Children:
    """Return the query for the children of a parent. Raises LanguageError with an index rule that would allow one.

    If a child references several parents, the ledger finds its children, and the query is empty.
    """
    source, rule = _parts(document, name)
    if "as" in rule:
        return Children(None, {}, "")
    child = document["entities"][rule["into"]]
    table = document["tables"][child["table"]]
    separator = table["separator"]
    own = {name for text in document["entities"][source]["key"].values() for name in Template.parse(text).names}
    # Only variables of the parent's key: an attribute may change, and the query would no longer find the children.
    known = {name for name, text in match_of(rule).items() if set(Template.parse(text).names) <= own}

    def follows(text: str) -> bool:
        template = Template.parse(text)  # an expression may need numbers, and references are compared as text
        return set(template.names) <= known and all(field.expression is None for field in template.fields)

    partition, *sort = table["key"]
    if follows(child["key"][partition]):
        prefix = ""
        if sort and table["key"][sort[0]] == "S":
            prefix = KeyPattern.parse(child["key"][sort[0]], separator).literal_prefix
        return Children(None, {partition: child["key"][partition]}, prefix)
    kept = [child["index_key"]]  # by the application, or by an index rule without conditions
    holds = document["projections"][name]["hold"]
    for other in document["projections"].values():
        unused = other["hold"] and not holds
        if "index" in other and other["from"] == {rule["into"]: {}} and len(other["index"]) == 1 and not unused:
            kept += [case for case in other["index"] if "where" not in case]
    for index, keys in table["indexes"].items():
        attributes = list(keys.get("partition", [partition]))
        for templates in kept:
            if all(attribute in templates and follows(templates[attribute]) for attribute in attributes):
                return Children(index, {attribute: templates[attribute] for attribute in attributes}, "")
    index = next((index for index, keys in table["indexes"].items() if not keys.get("local")), "GSI1")
    attribute = next(iter(table["indexes"].get(index, {"partition": ["GSI1PK"]})["partition"]))
    wanted = f"{source.upper()}{separator}{{{next(iter(rule['match']))}}}"
    raise LanguageError(
        f"the rule cannot find the {rule['into']} items of a {source}: neither their partition key nor an index key "
        f"follows from the key of the {source}. If the application writes such an index key, declare it on "
        f'{rule["into"]}: index_key: {{{attribute}: "{wanted}"}}; otherwise add a rule that writes it: '
        f'{{from: {rule["into"]}, index: {{{attribute}: "{wanted}", …}}}}, and is not held'
    )


def attributes_of_child(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the attributes that determine the entity of a child and its parent, and the rule's guard."""
    _, rule = _parts(document, name)
    table = document["entities"][rule["into"]]["table"]
    names = [*document["tables"][table]["key"], *match_of(rule)]
    for entity in document["entities"].values():
        if entity["table"] == table and "match" in entity:
            names += Pattern.parse(entity["match"]).names
    return (*dict.fromkeys(root(name_in_match) for name_in_match in names), document["guard_prefix"] + name)


def parent_patterns(document: Mapping[str, Any], name: str) -> dict[str, str | KeyPattern]:
    """Return for each name in `match` the variable of the parent's key that it equals, or a pattern that reads variables.

    Raises LanguageError if a variable of the parent's key cannot be read from any name.
    """
    source, rule = _parts(document, name)
    parent = document["entities"][source]
    separator = document["tables"][parent["table"]]["separator"]
    variables = {variable for text in parent["key"].values() for variable in Template.parse(text).names}
    patterns: dict[str, str | KeyPattern] = {}
    readable: set[str] = set()
    for child_name, text in match_of(rule).items():
        template = Template.parse(text)
        if any(field.pipes for field in template.fields) or not set(template.names) & variables:
            continue
        if template.single is not None and template.text == f"{{{template.single}}}":
            patterns[child_name] = template.single
            readable.add(template.single)
            continue
        try:
            patterns[child_name] = KeyPattern.parse(text, separator)
        except LanguageError:
            continue
        readable.update(template.names)
    missing = sorted(variables - readable)
    if missing:
        raise LanguageError(
            f"`match` does not identify the {source} of a {rule['into']}: it has no value for "
            f"{', '.join(f'{{{variable}}}' for variable in missing)} of the parent's key; "
            f'add the attribute of the child that contains it, such as {missing[0]}: "{{{missing[0]}}}"'
        )
    return patterns


def _parts(document: Mapping[str, Any], name: str) -> tuple[str, Mapping[str, Any]]:
    """Return the parent's entity and the action of an embed rule."""
    rule = document["projections"][name]
    return next(iter(rule["from"])), rule["embed"]


def match_of(rule: Mapping[str, Any]) -> dict[str, str]:
    """Return `match` of an embed: the names of the child, which may be in quotes in the document, with their templates."""
    return {str(key_name(name)): text for name, text in rule["match"].items()}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class EmbedRule(Rule):
    """Attributes of a parent in every child that references it."""

    searches: ClassVar[bool] = True
    """Whether it queries for the children of a parent; the ledger links those that reference several."""

    names: tuple[str, ...]
    """The attributes of the child, or of the elements in its list."""
    pick: Pick
    """Returns their values in a parent."""
    match: tuple[tuple[str, Render], ...]
    """Pairs of the child's attribute or key variable, and the template of its value over the parent."""
    patterns: Mapping[str, str | KeyPattern]
    children: Children
    partition: tuple[tuple[str, Render], ...]
    """The types of the children's partition key attributes, with their templates over the names in `match`."""
    on_delete: str
    telling: tuple[str, ...]
    """The child's attributes that determine its entity and its parent, and its guard."""
    projected: bool
    """Whether the index of the query projects all of these; otherwise each child that it finds is read."""

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return self.names

    def applies(self, item: Item, refused: Refused = ignore) -> bool:
        return bool(self.parent_values(item, refused))

    def parent_values(self, parent: Item | None, refused: Refused = ignore) -> dict[str, Value] | None:
        """Return the attributes that a parent's children get; None without a parent, or if the rule does not apply."""
        if parent is None or parent.entity is not self.source:
            return None
        resolve = resolver(parent)
        if not self.fits(resolve, refused):
            return None
        values = self.pick(resolve)
        if not values:
            refused(("attributes",), resolve)
        return values

    def matched_by(self, parent: Item) -> tuple[str | None, ...]:
        """Return the values of the names in `match` in a child of this parent. Raises BadInput."""
        resolve = resolver(parent)
        return tuple(render(resolve) for _, render in self.match)

    def offered(self, parent: Item | None) -> tuple[dict[str, Value], tuple[str | None, ...]]:
        """Return what children depend on: `parent_values` and `matched_by` of their parent. Raises BadInput."""
        values = self.parent_values(parent)
        if values is None or parent is None:
            return {}, ()
        return values, self.matched_by(parent) if values else ()

    def reference(self, child: Item) -> ItemKey | None:
        """Return the key of the parent that a child references; None if it has no reference. Raises BadInput."""
        return self._reference(resolver(child))

    def _reference(self, resolve: Resolve) -> ItemKey | None:
        variables: dict[str, Value] = {}
        for name, _ in self.match:
            value = resolve(name)
            if value is None:
                return None
            if name not in self.patterns:
                continue
            kind, content = next(iter(value.items()))
            if kind not in ("S", "N"):
                raise BadInput(f'"{name}" is of type {kind}; a reference is a string or a number')
            text, pattern = key_text(kind, content), self.patterns[name]
            read = {pattern: text} if isinstance(pattern, str) else pattern.match(text)
            if read is None:
                return None
            for variable, variable_text in read.items():
                if variables.setdefault(variable, {"S": variable_text}) != {"S": variable_text}:
                    return None
        return self.source.target_key(variables.get)

    def read_by(self, child: Item) -> dict[str, Value | None]:
        """Return the child's attributes that are part of its reference, without key variables, which cannot change."""
        return {
            root(name): child.image.get(root(name))
            for name, _ in self.match
            if name not in child.variables or name in child.image
        }

    def belongs(self, child: Item, texts: Sequence[str | None]) -> bool:
        """Return whether the names in `match` have these values in a child (see `matched_by`). Raises BadInput."""
        return self._belongs(resolver(child), texts)

    def _belongs(self, resolve: Resolve, texts: Sequence[str | None]) -> bool:
        for (name, _), text in zip(self.match, texts, strict=True):
            value = resolve(name)
            if value is None or text is None:
                return False
            kind, content = next(iter(value.items()))
            if kind not in ("S", "N") or key_text(kind, content) != text:
                return False
        return True

    def partition_of(self, key: ItemKey) -> list[Value] | None:
        """Return the partition key values of the query for a parent's children; None if the key is not that of a parent."""
        variables: dict[str, str] = {}
        for pattern, text in zip(self.source.patterns, key[1:], strict=False):
            read = pattern.match(text or "")
            if read is None:
                return None
            variables.update(read)
        resolve = resolver(Item(self.source, key, variables, {}))
        values: dict[str, Value] = {
            name: {"S": text} for name, render in self.match if (text := render(resolve)) is not None
        }
        texts = [(kind, render(values.get)) for kind, render in self.partition]
        return [{kind: text} for kind, text in texts if text is not None]


class Reference(NamedTuple):
    """One reference of a child: its value, its text, and the key of the parent; None if no item can have that key."""

    value: Value
    text: str
    key: ItemKey | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ListEmbedRule(EmbedRule):
    """Attributes of several parents in every child that references them, as one list or map."""

    searches = False

    list_name: str
    references_name: str
    """The name in `match` that holds the references."""
    as_map: bool
    id_name: str | None
    """The name of the reference in each element of a list; None for a map."""
    missing: str

    def owned(self, *images: Image | None) -> tuple[str, ...]:
        return (self.list_name,)

    def applies(self, item: Item, refused: Refused = ignore) -> bool:
        return self.parent_values(item, refused) is not None  # also without any of the attributes

    def offered(self, parent: Item | None) -> tuple[dict[str, Value], tuple[str | None, ...]]:
        """Return the attributes and `matched_by` of a parent; the latter is empty without a parent. Raises BadInput."""
        values = self.parent_values(parent)
        check_levels(values or {}, 2)
        return (values, self.matched_by(parent)) if values is not None and parent is not None else ({}, ())

    def references(self, child: Item) -> list[Reference] | None:
        """Return the references of a child in order, each once and at most `MOST_REFERENCES`; None if it has no list of
        them. Raises BadInput.
        """
        return self._references(child)[0]

    def unusable(self, child: Item) -> str | None:
        """Return why a reference of a child has no element; None if all have one. Raises BadInput."""
        held = resolver(child)(self.references_name) if self.as_map else None
        if held is None or {"S": ""} not in self._elements(held):
            return None
        return f'"{self.references_name}" has an empty string, which cannot be a name in a map: it is left out'

    def has_more_references(self, child: Item) -> bool:
        """Return whether a child has more references than count. Raises BadInput."""
        return self._references(child)[1]

    def _references(self, child: Item) -> tuple[list[Reference] | None, bool]:
        plain = resolver(child)
        held = plain(self.references_name)
        if held is None or any(plain(name) is None for name, _ in self.match):
            return None, False
        references: dict[str, Reference] = {}
        for value in self._elements(held):
            ((kind, content),) = value.items()
            text = key_text(kind, content)
            if text in references or (self.as_map and not text):
                continue
            if len(references) == MOST_REFERENCES:
                return list(references.values()), True
            try:
                key = self._reference(self._resolver(plain, value))
            except BadInput:  # no item can have that key
                key = None
            references[text] = Reference(value, text, key)
        return list(references.values()), False

    def _elements(self, held: Value) -> list[Value]:
        ((kind, content),) = held.items()
        if kind == "SS":
            return [{"S": text} for text in sorted(content)]
        if kind == "NS":
            return [{"N": text} for text in sorted(content, key=Decimal)]
        if kind != "L":
            raise BadInput(
                f'"{self.references_name}" is of type {kind}; references are a list or a set of strings or numbers'
            )
        elements = [element for element in content if having(element) is not None]
        for element in elements:
            if not element.keys() & {"S", "N"}:
                of = next(iter(element))
                raise BadInput(
                    f'"{self.references_name}" has an element of type {of}; a reference is a string or a number'
                )
        return elements

    def _resolver(self, plain: Resolve, value: Value) -> Resolve:
        return lambda name, stored=False: value if name == self.references_name else plain(name, stored)

    def given(self, child: Item, reference: Reference, parent: Item | None) -> dict[str, Value] | None:
        """Return what a parent gives a child that references it; None if there is no parent."""
        try:
            values, texts = self.offered(parent)
            if not texts or not self._belongs(self._resolver(resolver(child), reference.value), texts):
                return None
        except BadInput:
            return None
        return values

    def listed(self, references: Sequence[Reference], offers: Sequence[dict[str, Value] | None]) -> tuple[Value, bool]:
        """Return the list or map for what the parent of each reference gives, and whether it lacks elements that would
        exceed `LIST_BYTES`.
        """
        elements: list[tuple[str, Value]] = []
        total = 3
        for reference, values in zip(references, offers, strict=True):
            if values is None:
                if self.missing == "omit":
                    continue
                values = {}
            content = values if self.id_name is None else {self.id_name: reference.value, **values}
            element: Value = {"M": content}
            total += size({"M": {reference.text: element}}) - 3 if self.as_map else 1 + size(element)
            if total > LIST_BYTES:
                return self._value(elements), True
            elements.append((reference.text, element))
        return self._value(elements), False

    def _value(self, elements: Sequence[tuple[str, Value]]) -> Value:
        return {"M": dict(elements)} if self.as_map else {"L": [element for _, element in elements]}

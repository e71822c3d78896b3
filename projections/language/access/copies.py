"""Queries that a copy answers: the same question about the target of a copy rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from projections.language.access.attempt import known_of
from projections.language.access.implication import Known, implies, known_present
from projections.language.access.paths import KeyPart, Path, access_paths, key_variables, not_copied
from projections.language.access.plan import Query
from projections.language.canonical import Copy, Document
from projections.language.patterns import Condition, Either, Pattern, Test, describe
from projections.language.syntax import root
from projections.language.templates import Field, Template

__all__ = ["Translated", "copied_queries"]

Renaming = Callable[[str], str]
"""Returns the name that a copy has for a name of the source. Raises KeyError if it has none."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A query about the target of a copy rule. `missing` says which items or attributes of the answer it lacks, if any.

    `padded` has the variables of the target's key to which the rule binds a padded number that the copy has, too: a key
    `{score}` with `bind: {score: "{score|pad(10)}"}` is in the order of the numbers.
    """

    rule: str
    query: Query
    missing: str
    padded: Mapping[str, Field]

    def paths(self, document: Document) -> Iterator[Path]:
        """Yield the paths to the copies."""
        for path in access_paths(document, self.query.entities[0]):
            parts = [tuple(map(self._part, keys)) for keys in (path.partition, path.sort)]
            yield replace(path, partition=parts[0], sort=parts[1])

    def _part(self, part: KeyPart) -> KeyPart:
        fields = (self._field(one) if isinstance(one, Field) else one for one in part.template.parts)
        return replace(part, template=Template(part.template.text, tuple(fields)))

    def _field(self, field: Field) -> Field:
        return self.padded.get(field.name, field) if field.plain else field


def copied_queries(document: Document, query: Query) -> Iterator[Translated]:
    """Yield the query for each guarded copy of its entity: each item that the rule applies to has exactly one copy.

    A claimed copy is left out, because several sources may have the same target.
    """
    (entity,) = query.entities
    if query.consistent:
        return
    for name, rule in document.rules.items():
        if (
            isinstance(rule, Copy)
            and rule.source == entity
            and not (rule.claimed or rule.each or rule.mode == "shadow")
        ):
            padded = _padded(document, rule)
            renaming = _renaming(document, rule, padded)
            try:
                translated = _translated(query, rule, renaming)
            except KeyError:
                continue
            yield Translated(name, translated, _missing(document, query, entity, rule), padded)


def _padded(document: Document, rule: Copy) -> Mapping[str, Field]:
    """Return the fields, of the copy's own attributes, that make padded variables of its key."""
    found = {}
    for variable in key_variables(document, rule.into):
        fields = Template.parse(rule.bind.get(variable, "")).parts
        (field,) = fields if len(fields) == 1 else ("",)
        if isinstance(field, Field) and [pipe.name for pipe in field.pipes] in (["pad"], ["invert"]):
            copied = {path: name for name, path in (rule.attributes or {field.name: field.name}).items()}
            if field.expression is None and field.name in copied and "." not in field.name:
                found[variable] = Field(copied[field.name], field.pipes)
    return found


def _renaming(document: Document, rule: Copy, padded: Mapping[str, Field]) -> Renaming:
    names = {field.name: field.name for field in padded.values() if rule.attributes is None}
    other = not_copied(document, rule) if rule.attributes is None else frozenset()
    for target, path in (rule.attributes or {}).items():
        names.setdefault(path, target)
    for variable in key_variables(document, rule.into):
        template = Template.parse(rule.bind.get(variable, "{" + variable + "}"))
        if template.single is not None and template.fields[0].plain:
            names.setdefault(template.single, variable)
    if rule.attributes is not None:
        return names.__getitem__

    def renamed(name: str) -> str:
        if name not in names and root(name) in other:
            raise KeyError(name)
        return names.get(name, name)

    return renamed


def _translated(query: Query, rule: Copy, name_of: Renaming) -> Query:
    order = query.order
    if order is not None and order.name is not None:
        order = replace(order, name=name_of(order.name))
    held = Pattern.parse(rule.where or {}).conditions
    return replace(
        query,
        entities=(rule.into,),
        by=tuple(Field(name_of(field.name), field.pipes) for field in query.by),
        where=Pattern(tuple(_renamed(query.where.conditions, name_of, held)), {}),
        range=None if query.range is None else name_of(query.range),
        order=order,
        attributes=None if query.attributes is None else tuple(map(name_of, query.attributes)),
    )


def _renamed(conditions: tuple[Condition, ...], name_of: Renaming, held: tuple[Condition, ...]) -> Iterator[Condition]:
    """Yield conditions on the copy. One that all copied items match is left out if the copy does not have its name."""
    for condition in conditions:
        try:
            if isinstance(condition, Test):
                yield condition.renamed(name_of)
            else:
                yield Either(tuple(tuple(_renamed(branch, name_of, ())) for branch in condition.branches))
        except KeyError:
            if condition not in held:
                raise


def _missing(document: Document, query: Query, entity: str, rule: Copy) -> str:
    known = known_of(document, query, entity)
    if rule.where and not implies(known, Pattern.parse(rule.where)):
        return f"{rule.into} holds only copies of items where {describe(Pattern.parse(rule.where))}"
    for variable in key_variables(document, rule.into):
        template = Template.parse(rule.bind.get(variable, "{" + variable + "}"))
        if reason := _absent(template, known, rule):
            return reason
    for text in rule.values.values():
        if isinstance(text, str) and (reason := _absent(Template.parse(text), known, rule)):
            return reason
    if query.attributes is None and rule.attributes is not None:
        copied = ", ".join(rule.attributes) or "no attributes"
        return f"{rule.into} has copies of {copied} only; list those that the query needs in `attributes`"
    return ""


def _absent(template: Template, known: Known, rule: Copy) -> str:
    """Return which items have no copy because a template may lack a value; empty if none."""
    if template.suffices is None:
        return f"items for which {template.text} has no value have no copy in {rule.into}"
    lacking = [name for name in template.suffices if not known_present(known, name)]
    return f"items without {lacking[0]} have no copy in {rule.into}" if lacking else ""

"""What a picture of rules shows: entities with their keys, and rules from one to another. Frozen values, no places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from projections.inspect.paths import Path, path_of
from projections.language.canonical import Aggregate, Copy, Document, Embed, Index, Top
from projections.language.canonical import Rule as CanonicalRule
from projections.language.facts import Origin, conditions, copied, indexes_fed, origins, resolved_key
from projections.language.findings import Finding
from projections.language.models import Rules
from projections.language.ownership import chains, follows

__all__ = ["Entity", "Graph", "Rule", "graph_of"]

_SHORT = 22

Key = tuple[tuple[str, str], ...]
"""(attribute, template) of each attribute of a key."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity. `role` is `application`, `copy` or `derived`: who creates its items.

    `attributes` are those that rules write: (name, how it comes about, rule).
    """

    name: str
    role: str
    table: str
    key: Key
    match: str | None
    id: str | None
    expires: bool
    index_key: Key
    attributes: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, with everything that is to be said of it.

    `gist` is what it makes, in a word or two; `sentence` says it in one; `where` and `each` are in words. `key` is that of
    its target as templates over its source, except for an embed, whose `match` says which children it is about; `indexes`
    are those that an index rule sets keys of, `cases` what it sets under which condition.
    """

    name: str
    kind: str
    source: str
    target: str
    gist: str
    sentence: str
    key: Key
    match: Key
    where: str | None
    each: str | None
    indexes: tuple[str, ...]
    cases: tuple[tuple[str | None, Key], ...]
    writes: tuple[tuple[str, str], ...]
    mode: str
    expired: str | None
    path: Path
    after: tuple[str, ...]
    passes: int
    findings: tuple[Finding, ...]

    @property
    def inside(self) -> bool:
        """Whether it writes on the items it reads, so that no line leads anywhere."""
        return self.source == self.target


@dataclass(frozen=True, slots=True)
class Graph:
    """Entities and rules by name, in the order of the file. `findings` are those that stand in no rule."""

    title: str
    entities: Mapping[str, Entity]
    rules: Mapping[str, Rule]
    findings: tuple[Finding, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entity.table for entity in self.entities.values()))

    def inside(self, entity: str) -> tuple[Rule, ...]:
        """The rules that work within an entity."""
        return tuple(rule for rule in self.rules.values() if rule.inside and rule.source == entity)

    def document(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "title": self.title,
            "entities": [asdict(entity) for entity in self.entities.values()],
            "rules": [asdict(rule) for rule in self.rules.values()],
            "findings": [asdict(finding) for finding in self.findings],
        }


def graph_of(rules: Rules, title: str, findings: Sequence[Finding] = ()) -> Graph:
    """The graph of rules without mistakes, with what was found in them."""
    document = rules.typed()
    written, copies = origins(document), copied(document)
    before, passes = follows(rules), chains(rules)
    return Graph(
        title=title,
        entities={name: _entity(document, name, written[name], name in copies) for name in document.entities},
        rules={
            name: Rule(
                name=name,
                kind=rule.kind,
                source=rule.source,
                target=rule.into,
                gist=_gist(rule, indexes_fed(document, rule)),
                sentence=_sentence(rule, indexes_fed(document, rule)),
                key=tuple(resolved_key(document, rule).items()),
                match=tuple(rule.match.items()) if isinstance(rule, Embed) else (),
                where=conditions(rule.where),
                each=_each(rule),
                indexes=indexes_fed(document, rule),
                cases=_cases(rule),
                writes=tuple((a, o.how) for a, o in written[rule.into].items() if o.rule == name),
                mode=rule.mode,
                expired=rule.expired,
                path=path_of(document, name),
                after=before[name],
                passes=len(passes[name]),
                findings=tuple(finding for finding in findings if finding.rule == name),
            )
            for name, rule in document.rules.items()
        },
        findings=tuple(finding for finding in findings if finding.rule is None),
    )


def _entity(document: Document, name: str, written: Mapping[str, Origin], is_copy: bool) -> Entity:
    entity = document.entities[name]
    return Entity(
        name=name,
        role="copy" if is_copy else "derived" if entity.derived else "application",
        table=entity.table,
        key=tuple(entity.key.items()),
        match=conditions(entity.match),
        id=entity.id,
        expires=entity.expires,
        index_key=tuple(entity.index_key.items()),
        attributes=tuple((attribute, origin.how, origin.rule) for attribute, origin in written.items()),
    )


def _cases(rule: CanonicalRule) -> tuple[tuple[str | None, Key], ...]:
    if not isinstance(rule, Index):
        return ()
    return tuple((conditions(case.where), tuple(case.set.items())) for case in rule.cases)


# --- in words ---


def _gist(rule: CanonicalRule, indexes: Sequence[str]) -> str:
    match rule:
        case Copy(attributes=None):
            return "all attributes"
        case Top():
            return f"{rule.limit} as {rule.list_name}"
        case Index():
            return ", ".join(indexes)
    return _some(rule.written)


def _some(names: Sequence[str]) -> str:
    """The names, or the first and how many more."""
    text = ", ".join(names)
    return text if len(names) == 1 or len(text) <= _SHORT else f"{names[0]} and {len(names) - 1} more"


def _sentence(rule: CanonicalRule, indexes: Sequence[str]) -> str:
    source, target = rule.source, rule.into
    match rule:
        case Copy():
            what = "all attributes of" if rule.attributes is None else "attributes of"
            return f"Keeps {what} each {source} under another key, as a {target}."
        case Aggregate():
            return f"Keeps {_and(list(rule.set))} on each {target}, computed from its {source} items."
        case Index():
            return f"Sets the keys of {_and(indexes)} on {source} items, so that they are found there."
        case Embed():
            return f"Keeps attributes of each {source} in all {target} items that reference it."
    extreme = "greatest" if rule.order == "desc" else "least"
    if isinstance(rule, Top):
        return f"Lists the {extreme} {rule.limit} {source} items by {rule.by} on each {target}."
    return f"Keeps attributes of the {source} with the {extreme} {rule.by} on each {target}."


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _each(rule: CanonicalRule) -> str | None:
    if rule.each is None:
        return None
    if rule.each.ancestors:
        return f"each folder above {rule.each.path}, as {{{rule.each.variable}}}"
    return f"each element of {rule.each.path}, as {{{rule.each.variable}}}"

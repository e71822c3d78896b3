"""The content of a picture of rules: entities with their keys, and rules between them; also as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from projections.inspect.paths import Path, path_of
from projections.language.canonical import Aggregate, Compute, Copy, Document, Embed, Index, Rank, Top
from projections.language.canonical import Rule as CanonicalRule
from projections.language.document import Rules
from projections.language.facts import (
    Origin,
    conditions,
    copied,
    indexes_fed,
    inputs,
    origins,
    resolved_key,
    where_text,
)
from projections.language.findings.kinds import Finding
from projections.language.ownership import chains
from projections.language.syntax import an
from projections.printable import printable

_SHORT = 22

COLOURS = {
    "copy": "#1a66d6",
    "aggregate": "#7b2fd0",
    "top": "#00796b",
    "latest": "#9a5800",
    "rank": "#b3261e",
    "index": "#bf1a66",
    "compute": "#5d4037",
    "embed": "#2e7d1f",
}
"""The colours of kinds of rules in Mermaid."""

Key = tuple[tuple[str, str], ...]
"""(attribute, template) of each attribute of a key."""


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity. `role` is `application`, `copy` or `derived`: what creates its items.

    `attributes` are those that rules write: (name, origin, rule).
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
    """A rule with its description.

    `gist` describes what it writes in a few words, `sentence` in a sentence; `where` and `each` are text. `key` is that of
    its target as templates over its source, except for an embed, whose `match` selects the children; `cases` are the
    keys that an index rule sets, with their conditions.
    """

    name: str
    kind: str
    sources: tuple[str, ...]
    target: str
    gist: str
    sentence: str
    key: Key
    match: Key
    where: str | None
    each: str | None
    cases: tuple[tuple[str | None, Key], ...]
    writes: tuple[tuple[str, str], ...]
    mode: str
    description: str | None
    owner: str | None
    tags: tuple[str, ...]
    within: int | None
    """Seconds."""
    expired: str | None
    path: Path
    after: tuple[str, ...]
    passes: int
    findings: tuple[Finding, ...]

    @property
    def remark(self) -> str:
        """Its mode and its freshness limit, in parentheses after a space; empty if it is live and has no limit."""
        remarks = [self.mode] if self.mode != "live" else []
        remarks += [f"within {self.within} s"] if self.within is not None else []
        return f" ({', '.join(remarks)})" if remarks else ""

    @property
    def inside(self) -> bool:
        """Whether it writes to the items that it reads, so that it has no line."""
        return {*self.sources} == {self.target}


@dataclass(frozen=True, slots=True)
class Graph:
    """Entities and rules by name, in the order of the file. `findings` are those outside of rules."""

    title: str
    entities: Mapping[str, Entity]
    rules: Mapping[str, Rule]
    findings: tuple[Finding, ...]

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(entity.table for entity in self.entities.values()))


def graph_of(rules: Rules, title: str, findings: Sequence[Finding] = ()) -> Graph:
    """Return the graph of valid rules, with their findings."""
    document = rules.typed()
    written, copies = origins(document), copied(document)
    before, passes = inputs(document), chains(rules)
    return Graph(
        title=title,
        entities={name: _entity(document, name, written[name], name in copies) for name in document.entities},
        rules={
            name: Rule(
                name=name,
                kind=rule.kind,
                sources=rule.sources,
                target=rule.into,
                gist=_gist(rule, indexes_fed(document, rule)),
                sentence=_sentence(rule, indexes_fed(document, rule)),
                key=tuple(resolved_key(document, rule).items()),
                match=tuple(rule.match.items()) if isinstance(rule, Embed) else (),
                where=where_text(rule),
                each=_each(rule),
                cases=_cases(rule),
                writes=tuple((a, o.how) for a, o in written[rule.into].items() if o.rule == name),
                mode=document.mode(name),
                description=document.about_rule(name).description,
                owner=document.about_rule(name).owner,
                tags=document.about_rule(name).tags,
                within=document.about_rule(name).within,
                expired=rule.expired,
                path=path_of(document, name),
                after=tuple(before[name]),
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


# Text


def _gist(rule: CanonicalRule, indexes: Sequence[str]) -> str:
    match rule:
        case Copy(attributes=None):
            return "all attributes"
        case Top():
            return f"{rule.limit} as {rule.list_name}"
        case Index():
            return ", ".join(indexes)
        case Rank():
            return f"ranks by {rule.by}"
    return _some(rule.written)


def _some(names: Sequence[str]) -> str:
    """Return the names, or the first one and the number of others."""
    text = ", ".join(names)
    return text if len(names) == 1 or len(text) <= _SHORT else f"{names[0]} and {len(names) - 1} more"


def _sentence(rule: CanonicalRule, indexes: Sequence[str]) -> str:
    source, target = _and(rule.sources), rule.into
    match rule:
        case Copy():
            what = "all attributes of" if rule.attributes is None else "attributes of"
            return f"Keeps {what} each {source} under another key, as {an(target)}."
        case Aggregate():
            return f"Keeps {_and(list(rule.set))} on each {target}, computed from its {source} items."
        case Compute(once=once):
            when = ", once: they stay as they are set first" if once else ""
            return f"Computes {_and(rule.written)} of {source} items from their other attributes{when}."
        case Rank():
            return (
                f"Counts each {source} by the digits of {rule.by} in the ledger, which gives its rank on the {target}."
            )
        case Index():
            return f"Sets the keys of {_and(indexes)} on {source} items, so that queries find them there."
        case Embed(listed=listed) if listed is not None:
            what = f"a {listed.form} of the {source} items"
            return f"Keeps {what} that each {target} references in {listed.references}, on the {target}."
        case Embed():
            return f"Keeps attributes of each {source} in all {target} items that reference it."
    extreme = "greatest" if rule.order == "desc" else "least"
    if isinstance(rule, Top):
        return f"Lists the {extreme} {rule.limit} {source} items by {rule.by} on each {target}."
    return f"Keeps attributes of the {source} with the {extreme} {rule.by} on each {target}."


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _each(rule: CanonicalRule) -> str | None:
    texts = {variant.source: _each_of(variant) for variant in rule.variants}
    if len({*texts.values()}) == 1:
        return texts[rule.source]
    return "; ".join(f"{source}: {text}" for source, text in texts.items() if text)


def _each_of(rule: CanonicalRule) -> str | None:
    if rule.each is None:
        return None
    if rule.each.ancestors:
        return f"each folder above {rule.each.path}, as {{{rule.each.variable}}}"
    return f"each element of {rule.each.path}, as {{{rule.each.variable}}}"


# Mermaid


def mermaid(graph: Graph) -> str:
    """Return the flowchart. Entities are boxes, rules are rounded boxes in the colour of their kind."""
    ids = {name: f"e{number}" for number, name in enumerate(graph.entities)}
    lines = ["flowchart LR"]
    lines += [f'  {ids[name]}["{_mermaid_entity(graph, entity)}"]' for name, entity in graph.entities.items()]
    for number, rule in enumerate(graph.rules.values()):
        node = f'r{number}(["{_mermaid_rule(rule)}"])'
        after = "" if rule.inside else f" --> {ids[rule.target]}"
        lines.append(f"  {ids[rule.sources[0]]} {'---' if rule.inside else '-->'} {node}{after}")
        lines += [f"  {ids[other]} --> r{number}" for other in rule.sources[1:]]
    kinds: dict[str, list[str]] = {}
    for number, rule in enumerate(graph.rules.values()):
        kinds.setdefault(rule.kind, []).append(f"r{number}")
    for kind, nodes in kinds.items():
        lines.append(f"  classDef {kind} stroke:{COLOURS[kind]},stroke-width:2px")
        lines.append(f"  class {','.join(nodes)} {kind}")
    made = [ids[name] for name, entity in graph.entities.items() if entity.role != "application"]
    if made:
        lines += ["  classDef made stroke-dasharray:4 3", f"  class {','.join(made)} made"]
    return "\n".join(lines) + "\n"


def _mermaid_entity(graph: Graph, entity: Entity) -> str:
    table = [f"in {_escaped(entity.table)}"] if len(graph.tables) > 1 else []
    return "<br/>".join([f"<b>{_escaped(entity.name)}</b>", *table, *(_escaped(text) for _, text in entity.key)])


def _mermaid_rule(rule: Rule) -> str:
    return f"<b>{_escaped(rule.name)}</b>{rule.remark}<br/>{rule.kind}: {_escaped(rule.gist)}"


_SPECIAL = {character: f"#{ord(character)};" for character in '#"&<>`\\*_~|[](){}'}


def _escaped(text: str) -> str:
    """Return a text with the markup of Mermaid replaced by character codes."""
    return "".join(_SPECIAL.get(character, character) for character in printable(text))

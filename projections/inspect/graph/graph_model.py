"""The content of a picture of rules: entities with their keys, and rules between them; also as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from projections.inspect.write_paths import path_of
from projections.language.facts import (
    Origin,
    chains,
    conditions,
    copies,
    indexes_fed,
    inputs,
    origins,
    resolved_key,
    where_text,
)
from projections.language.findings.kinds import Finding
from projections.language.kinds import WritePath
from projections.language.models import ACTIONS, Projection, Rules
from projections.language.spelling import template_text
from projections.language.syntax import join_names
from projections.language.templates import Template
from projections.printable import printable

Key = tuple[tuple[str, str], ...]
"""(attribute, template) of each attribute of a key."""


class Entity(NamedTuple):
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
    declared: Projection
    """The rule as the file has it."""
    path: WritePath
    after: tuple[str, ...]
    passes: int
    findings: tuple[Finding, ...]

    @property
    def remark(self) -> str:
        """Whether it is held and its freshness limit, in parentheses after a space; empty if neither."""
        remarks = ["held"] if self.declared.hold else []
        remarks += [f"within {self.declared.within} s"] if self.declared.within is not None else []
        return f" ({', '.join(remarks)})" if remarks else ""

    @property
    def inside(self) -> bool:
        """Whether it writes to the items that it reads, so that it has no line."""
        return {*self.sources} == {self.target}


class Graph(NamedTuple):
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
    rules = rules.completed()
    written = origins(rules)
    before, passes = inputs(rules), chains(rules)
    return Graph(
        title=title,
        entities={name: _entity(rules, name, written[name], name in copies(rules)) for name in rules.entities},
        rules={
            name: Rule(
                name=name,
                kind=rule.kind,
                sources=rule.sources,
                target=rule.into,
                gist=rule.action.gist(indexes_fed(rules, rule)),
                sentence=rule.action.sentence(join_names(rule.sources), rule.into, indexes_fed(rules, rule)),
                key=tuple(resolved_key(rules, rule).items()),
                match=_texts(rule.action.matched),
                where=where_text(rule),
                each=_each(rule),
                cases=tuple((conditions(case.where), _texts(case.set)) for case in rule.action.cases),
                writes=tuple((a, o.how) for a, o in written[rule.into].items() if o.rule == name),
                declared=rule,
                path=path_of(rules, name),
                after=tuple(before[name]),
                passes=len(passes[name]),
                findings=tuple(finding for finding in findings if finding.rule == name),
            )
            for name, rule in rules.projections.items()
        },
        findings=tuple(finding for finding in findings if finding.rule is None),
    )


def _entity(rules: Rules, name: str, written: Mapping[str, Origin], is_copy: bool) -> Entity:
    entity = rules.entities[name]
    return Entity(
        name=name,
        role="copy" if is_copy else "derived" if entity.derived else "application",
        table=entity.table,
        key=_texts(entity.key),
        match=conditions(entity.match),
        id=entity.id,
        expires=entity.expires,
        index_key=_texts(entity.index_key),
        attributes=tuple((attribute, origin.how, origin.rule) for attribute, origin in written.items()),
    )


def _texts(templates: Mapping[str, Template]) -> Key:
    return tuple((name, template_text(template)) for name, template in templates.items())


# Text


def _each(rule: Projection) -> str | None:
    texts = {variant.source: _each_of(variant) for variant in rule.variants}
    if len({*texts.values()}) == 1:
        return texts[rule.source]
    return "; ".join(f"{source}: {text}" for source, text in texts.items() if text)


def _each_of(rule: Projection) -> str | None:
    if rule.each is None:
        return None
    what = "folder above" if rule.each.ancestors else "element of"
    return f"each {what} {rule.each.path}, as {{{rule.each.variable}}}"


# Mermaid


def mermaid(graph: Graph) -> str:
    """Return the flowchart. Entities are boxes, rules are rounded boxes in the colour of their kind."""
    ids = {name: f"e{number}" for number, name in enumerate(graph.entities)}
    lines = ["flowchart LR"]
    lines += [f'  {ids[name]}["{_mermaid_entity(graph, entity)}"]' for name, entity in graph.entities.items()]
    kinds: dict[str, list[str]] = {}
    for number, rule in enumerate(graph.rules.values()):
        kinds.setdefault(rule.kind, []).append(f"r{number}")
        text = f"<b>{_escape(rule.name)}</b>{rule.remark}<br/>{rule.kind}: {_escape(rule.gist)}"
        node = f'r{number}(["{text}"])'
        after = "" if rule.inside else f" --> {ids[rule.target]}"
        lines.append(f"  {ids[rule.sources[0]]} {'---' if rule.inside else '-->'} {node}{after}")
        lines += [f"  {ids[other]} --> r{number}" for other in rule.sources[1:]]
    for kind, nodes in kinds.items():
        lines.append(f"  classDef {kind} stroke:{ACTIONS[kind].picture().light},stroke-width:2px")
        lines.append(f"  class {','.join(nodes)} {kind}")
    made = [ids[name] for name, entity in graph.entities.items() if entity.role != "application"]
    if made:
        lines += ["  classDef made stroke-dasharray:4 3", f"  class {','.join(made)} made"]
    return "\n".join(lines) + "\n"


def _mermaid_entity(graph: Graph, entity: Entity) -> str:
    table = [f"in {_escape(entity.table)}"] if len(graph.tables) > 1 else []
    return "<br/>".join([f"<b>{_escape(entity.name)}</b>", *table, *(_escape(text) for _, text in entity.key)])


_SPECIAL = {character: f"#{ord(character)};" for character in '#"&<>`\\*_~|[](){}'}


def _escape(text: str) -> str:
    """Return a text with the markup of Mermaid replaced by character codes."""
    return "".join(_SPECIAL.get(character, character) for character in printable(text))

"""The graph as a Mermaid flowchart, for places that draw one: GitHub, GitLab, wikis."""

from __future__ import annotations

from projections.inspect.graph.model import Entity, Graph, Rule
from projections.printable import printable

__all__ = ["mermaid"]

_COLOURS = {
    "copy": "#1a66d6",
    "aggregate": "#7b2fd0",
    "top": "#00796b",
    "latest": "#9a5800",
    "index": "#bf1a66",
    "embed": "#2e7d1f",
}


def mermaid(graph: Graph) -> str:
    """The flowchart's text. Entities are boxes, rules are round and in the colour of their kind."""
    ids = {name: f"e{number}" for number, name in enumerate(graph.entities)}
    lines = ["flowchart LR"]
    lines += [f'  {ids[name]}["{_entity(graph, entity)}"]' for name, entity in graph.entities.items()]
    for number, rule in enumerate(graph.rules.values()):
        node = f'r{number}(["{_rule(rule)}"])'
        after = "" if rule.inside else f" --> {ids[rule.target]}"
        lines.append(f"  {ids[rule.source]} {'---' if rule.inside else '-->'} {node}{after}")
    kinds: dict[str, list[str]] = {}
    for number, rule in enumerate(graph.rules.values()):
        kinds.setdefault(rule.kind, []).append(f"r{number}")
    for kind, nodes in kinds.items():
        lines.append(f"  classDef {kind} stroke:{_COLOURS[kind]},stroke-width:2px")
        lines.append(f"  class {','.join(nodes)} {kind}")
    made = [ids[name] for name, entity in graph.entities.items() if entity.role != "application"]
    if made:
        lines += ["  classDef made stroke-dasharray:4 3", f"  class {','.join(made)} made"]
    return "\n".join(lines) + "\n"


def _entity(graph: Graph, entity: Entity) -> str:
    table = [f"in {_escaped(entity.table)}"] if len(graph.tables) > 1 else []
    return "<br/>".join([f"<b>{_escaped(entity.name)}</b>", *table, *(_escaped(text) for _, text in entity.key)])


def _rule(rule: Rule) -> str:
    return f"<b>{_escaped(rule.name)}</b><br/>{rule.kind}: {_escaped(rule.gist)}"


_SPECIAL = {character: f"#{ord(character)};" for character in '#"&<>`\\*_~|[](){}'}


def _escaped(text: str) -> str:
    """Text that Mermaid shows as it is: what it would read as markup stands as a character code."""
    return "".join(_SPECIAL.get(character, character) for character in printable(text))

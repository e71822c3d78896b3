"""The graph as a Mermaid flowchart, for GitHub, GitLab and wikis."""

from __future__ import annotations

from projections.inspect.graph.model import COLOURS, Entity, Graph, Rule
from projections.printable import printable

__all__ = ["mermaid"]


def mermaid(graph: Graph) -> str:
    """Return the flowchart. Entities are boxes, rules are rounded boxes in the colour of their kind."""
    ids = {name: f"e{number}" for number, name in enumerate(graph.entities)}
    lines = ["flowchart LR"]
    lines += [f'  {ids[name]}["{_entity(graph, entity)}"]' for name, entity in graph.entities.items()]
    for number, rule in enumerate(graph.rules.values()):
        node = f'r{number}(["{_rule(rule)}"])'
        after = "" if rule.inside else f" --> {ids[rule.target]}"
        lines.append(f"  {ids[rule.source]} {'---' if rule.inside else '-->'} {node}{after}")
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


def _entity(graph: Graph, entity: Entity) -> str:
    table = [f"in {_escaped(entity.table)}"] if len(graph.tables) > 1 else []
    return "<br/>".join([f"<b>{_escaped(entity.name)}</b>", *table, *(_escaped(text) for _, text in entity.key)])


def _rule(rule: Rule) -> str:
    return f"<b>{_escaped(rule.name)}</b>{rule.remark}<br/>{rule.kind}: {_escaped(rule.gist)}"


_SPECIAL = {character: f"#{ord(character)};" for character in '#"&<>`\\*_~|[](){}'}


def _escaped(text: str) -> str:
    """Return a text with the markup of Mermaid replaced by character codes."""
    return "".join(_SPECIAL.get(character, character) for character in printable(text))

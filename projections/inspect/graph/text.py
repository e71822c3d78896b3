"""The graph as text: a Mermaid flowchart, and DOT for Graphviz."""

from __future__ import annotations

from projections.inspect.graph.model import COLOURS, Entity, Graph, Rule
from projections.printable import printable

__all__ = ["dot", "mermaid"]


def mermaid(graph: Graph) -> str:
    """Return the flowchart. Entities are boxes, rules are rounded boxes in the colour of their kind."""
    ids = {name: f"e{number}" for number, name in enumerate(graph.entities)}
    lines = ["flowchart LR"]
    lines += [f'  {ids[name]}["{_mermaid_entity(graph, entity)}"]' for name, entity in graph.entities.items()]
    for number, rule in enumerate(graph.rules.values()):
        node = f'r{number}(["{_mermaid_rule(rule)}"])'
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


def _mermaid_entity(graph: Graph, entity: Entity) -> str:
    table = [f"in {_escaped(entity.table)}"] if len(graph.tables) > 1 else []
    return "<br/>".join([f"<b>{_escaped(entity.name)}</b>", *table, *(_escaped(text) for _, text in entity.key)])


def _mermaid_rule(rule: Rule) -> str:
    return f"<b>{_escaped(rule.name)}</b>{rule.remark}<br/>{rule.kind}: {_escaped(rule.gist)}"


_SPECIAL = {character: f"#{ord(character)};" for character in '#"&<>`\\*_~|[](){}'}


def _escaped(text: str) -> str:
    """Return a text with the markup of Mermaid replaced by character codes."""
    return "".join(_SPECIAL.get(character, character) for character in printable(text))


def dot(graph: Graph) -> str:
    """Return the graph in DOT. Entities are boxes, rules are rounded boxes in the colour of their kind."""
    lines = [
        "digraph projections {",
        "  graph [rankdir=LR, nodesep=0.3, ranksep=0.7];",
        '  node [shape=box, fontname="Verdana,DejaVu Sans,sans-serif", fontsize=11, margin="0.15,0.08"];',
        '  edge [arrowsize=0.7, color="#7a828c"];',
    ]
    for entity in graph.entities.values():
        style = "solid" if entity.role == "application" else "dashed"
        lines.append(f"  {_quoted('entity ' + entity.name)} [label={_dot_entity(graph, entity)}, style={style}];")
    for rule in graph.rules.values():
        node, colour = _quoted("rule " + rule.name), _quoted(COLOURS[rule.kind])
        lines.append(f"  {node} [label={_dot_rule(rule)}, style=rounded, color={colour}, fontcolor={colour}];")
        source, target = _quoted("entity " + rule.source), _quoted("entity " + rule.target)
        if rule.inside:
            lines.append(f"  {source} -> {node} [color={colour}, arrowhead=none];")
        else:
            lines.append(f"  {source} -> {node} -> {target} [color={colour}];")
        for other in rule.sources[1:]:
            lines.append(f"  {_quoted('entity ' + other)} -> {node} [color={colour}];")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_entity(graph: Graph, entity: Entity) -> str:
    table = [f"in {entity.table}"] if len(graph.tables) > 1 else []
    return _quoted(*[entity.name, *table, *(f"{name}: {text}" for name, text in entity.key)])


def _dot_rule(rule: Rule) -> str:
    return _quoted(rule.name + rule.remark, f"{rule.kind}: {rule.gist}")


def _quoted(*lines: str) -> str:
    """Return a quoted string of DOT with left-aligned lines."""
    escaped = [printable(line).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return f'"{escaped[0]}"' if len(escaped) == 1 else '"' + "".join(line + "\\l" for line in escaped) + '"'

"""The graph in DOT, for Graphviz: `projections graph --format dot | dot -Tsvg`."""

from __future__ import annotations

from projections.inspect.graph.model import COLOURS, Entity, Graph, Rule
from projections.printable import printable

__all__ = ["dot"]


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
        lines.append(f"  {_quoted('entity ' + entity.name)} [label={_entity(graph, entity)}, style={style}];")
    for rule in graph.rules.values():
        node, colour = _quoted("rule " + rule.name), _quoted(COLOURS[rule.kind])
        lines.append(f"  {node} [label={_rule(rule)}, style=rounded, color={colour}, fontcolor={colour}];")
        source, target = _quoted("entity " + rule.source), _quoted("entity " + rule.target)
        if rule.inside:
            lines.append(f"  {source} -> {node} [color={colour}, arrowhead=none];")
        else:
            lines.append(f"  {source} -> {node} -> {target} [color={colour}];")
        for other in rule.sources[1:]:
            lines.append(f"  {_quoted('entity ' + other)} -> {node} [color={colour}];")
    return "\n".join([*lines, "}"]) + "\n"


def _entity(graph: Graph, entity: Entity) -> str:
    table = [f"in {entity.table}"] if len(graph.tables) > 1 else []
    return _quoted(*[entity.name, *table, *(f"{name}: {text}" for name, text in entity.key)])


def _rule(rule: Rule) -> str:
    return _quoted(rule.name + rule.remark, f"{rule.kind}: {rule.gist}")


def _quoted(*lines: str) -> str:
    """Return a quoted string of DOT with left-aligned lines."""
    escaped = [printable(line).replace("&", "&amp;").replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return f'"{escaped[0]}"' if len(escaped) == 1 else '"' + "".join(line + "\\l" for line in escaped) + '"'

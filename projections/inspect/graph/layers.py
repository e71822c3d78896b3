"""The layers of the vertices, from left to right: entities in the even ones, rules in the odd ones between them.

This is the layered drawing of Sugiyama, Tagawa and Toda: cycles are broken, every line leads from one layer to the next,
and a line that passes a layer has a bend in it, which reserves space.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Edge", "Layered", "Vertex", "components", "layered"]


@dataclass(frozen=True, slots=True, order=True)
class Vertex:
    """`kind` is `entity`, `rule` or `bend`; a bend belongs to the line of a rule and to a layer."""

    kind: str
    name: str
    layer: int = -1


@dataclass(frozen=True, slots=True)
class Edge:
    """A rule's line from its source entity to its target entity."""

    rule: str
    source: str
    target: str


@dataclass(slots=True)
class Layered:
    """Vertices by layer; `segments` join neighbours, the left one first; `lines` has each rule's vertices, source first."""

    layers: list[list[Vertex]]
    segments: list[tuple[Vertex, Vertex]] = field(default_factory=list)
    lines: dict[str, list[Vertex]] = field(default_factory=dict)


def components(entities: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """Return the groups of connected entities, in their order."""
    group = {name: name for name in entities}

    def find(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    for edge in edges:
        group[find(edge.target)] = find(edge.source)
    found: dict[str, list[str]] = {}
    for name in entities:
        found.setdefault(find(name), []).append(name)
    return list(found.values())


def layered(entities: Sequence[str], edges: Sequence[Edge]) -> Layered:
    """Return entities and the rules between them in layers."""
    turned = _turned(entities, edges)
    forward = [(e.target, e.source) if e.rule in turned else (e.source, e.target) for e in edges]
    ranks = _ranks(entities, forward)
    found = Layered([[] for _ in range(2 * max(ranks.values()) + 1)])
    for name in entities:
        found.layers[2 * ranks[name]].append(Vertex("entity", name))
    for edge, (left, right) in zip(edges, forward, strict=True):
        first, last = 2 * ranks[left], 2 * ranks[right]
        between = range(first + 1, last, 2)
        middle = min(between, key=lambda layer: (sum(v.kind == "rule" for v in found.layers[layer]), layer))
        line = [Vertex("entity", left)]
        for layer in range(first + 1, last):
            vertex = Vertex("rule", edge.rule) if layer == middle else Vertex("bend", edge.rule, layer)
            found.layers[layer].append(vertex)
            line.append(vertex)
        line.append(Vertex("entity", right))
        found.segments += pairwise(line)
        found.lines[edge.rule] = line[::-1] if edge.rule in turned else line
    return found


def _turned(entities: Sequence[str], edges: Sequence[Edge]) -> set[str]:
    """Return the rules whose lines close a cycle."""
    state: dict[str, str] = {}
    turned: set[str] = set()
    for start in _starts(entities, edges):
        walk = [(start, iter([edge for edge in edges if edge.source == start]))] if start not in state else []
        state.setdefault(start, "open")
        while walk:
            name, rest = walk[-1]
            edge = next(rest, None)
            if edge is None:
                state[name] = "done"
                walk.pop()
            elif state.get(edge.target) == "open":
                turned.add(edge.rule)
            elif edge.target not in state:
                state[edge.target] = "open"
                walk.append((edge.target, iter([e for e in edges if e.source == edge.target])))
    return turned


def _starts(entities: Sequence[str], edges: Sequence[Edge]) -> list[str]:
    """Return the entities, those without incoming lines first."""
    written = {edge.target for edge in edges}
    return sorted(entities, key=lambda name: name in written)


def _ranks(entities: Collection[str], forward: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """Return ranks: as far left as incoming lines allow, then entities with more outgoing lines as far right as possible."""
    ranks = dict.fromkeys(entities, 0)
    for _ in entities:
        for left, right in forward:
            ranks[right] = max(ranks[right], ranks[left] + 1)
    for _ in entities:
        for name in entities:
            ins = [ranks[left] for left, right in forward if right == name]
            outs = [ranks[right] for left, right in forward if left == name]
            if outs and len(outs) > len(ins):
                ranks[name] = max(ranks[name], min(outs) - 1)
    return ranks

"""The layers of the vertices from left to right, and their order within each layer: by barycentres."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

__all__ = ["Edge", "Layered", "Vertex", "components", "crossings", "layered", "order"]


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


_SWEEPS = 24


def order(graph: Layered) -> None:
    """Order the layers in place. It is deterministic."""
    right, left = _neighbours(graph)
    best, fewest = [list(layer) for layer in graph.layers], crossings(graph)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        indices = range(1, len(graph.layers)) if down else range(len(graph.layers) - 2, -1, -1)
        for index in indices:
            fixed = graph.layers[index - 1] if down else graph.layers[index + 1]
            _by_barycentre(graph.layers[index], fixed, left if down else right)
        count = crossings(graph)
        if count < fewest:
            best, fewest = [list(layer) for layer in graph.layers], count
    graph.layers[:] = best


def crossings(graph: Layered) -> int:
    """Return the number of crossings."""
    right, _ = _neighbours(graph)
    return sum(_between(one, other, right) for one, other in pairwise(graph.layers))


Neighbours = Mapping[Vertex, Sequence[Vertex]]


def _neighbours(graph: Layered) -> tuple[Neighbours, Neighbours]:
    right: dict[Vertex, list[Vertex]] = {vertex: [] for layer in graph.layers for vertex in layer}
    left: dict[Vertex, list[Vertex]] = {vertex: [] for layer in graph.layers for vertex in layer}
    for one, other in graph.segments:
        right[one].append(other)
        left[other].append(one)
    return right, left


def _by_barycentre(layer: list[Vertex], fixed: Sequence[Vertex], near: Neighbours) -> None:
    place = {vertex: index for index, vertex in enumerate(fixed)}
    own = {vertex: index for index, vertex in enumerate(layer)}

    def centre(vertex: Vertex) -> float:
        places = [place[other] for other in near[vertex]]
        return sum(places) / len(places) if places else own[vertex] * len(fixed) / max(len(layer), 1)

    layer.sort(key=centre)


def _between(one: Sequence[Vertex], other: Sequence[Vertex], right: Neighbours) -> int:
    place = {vertex: index for index, vertex in enumerate(other)}
    seen: list[int] = []
    count = 0
    for vertex in one:
        places = sorted(place[neighbour] for neighbour in right[vertex])
        count += sum(len(seen) - bisect_left(seen, at + 1) for at in places)
        for at in places:
            insort(seen, at)
    return count

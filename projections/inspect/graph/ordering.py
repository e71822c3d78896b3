"""The order of the vertices within each layer, with few crossings: by barycentres, then by exchanges."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from itertools import pairwise

from projections.inspect.graph.layers import Layered, Vertex

__all__ = ["crossings", "order"]

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
        _exchange(graph, left, right)
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


def _exchange(graph: Layered, left: Neighbours, right: Neighbours) -> None:
    """Exchange neighbours as long as that removes crossings."""
    for index, layer in enumerate(graph.layers):
        near: dict[Vertex, list[list[int]]] = {vertex: [] for vertex in layer}
        for beside, neighbours in ((index - 1, left), (index + 1, right)):
            if 0 <= beside < len(graph.layers):
                place = {vertex: at for at, vertex in enumerate(graph.layers[beside])}
                for vertex in layer:
                    near[vertex].append([place[other] for other in neighbours[vertex]])
        improved = True
        while improved:
            improved = False
            for at in range(len(layer) - 1):
                one, other = layer[at], layer[at + 1]
                if _crossed(near[other], near[one]) < _crossed(near[one], near[other]):
                    layer[at], layer[at + 1] = other, one
                    improved = True


def _crossed(above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> int:
    """Return the crossings of the lines of two neighbours, by the places of their ends on each side."""
    return sum(b < a for ours, theirs in zip(above, below, strict=True) for a in ours for b in theirs)


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

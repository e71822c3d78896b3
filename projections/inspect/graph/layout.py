"""The columns of a picture, from left to right: entities by depth, and between them the rules. A browser does the rest."""

from __future__ import annotations

from collections.abc import Mapping

from projections.inspect.graph.graph_model import Graph

_SWEEPS = 4


def columns_of(graph: Graph) -> list[list[tuple[str, str]]]:
    """Return the boxes of each column from top to bottom, as (`entity` or `rule`, name).

    A rule that writes to the entity that it reads is in the card of the entity, and has no box.
    """
    rules = [rule for rule in graph.rules.values() if not rule.inside]
    depths = _depths(graph)
    columns: list[list[tuple[str, str]]] = [[] for _ in range(2 * max(depths.values()) + 2)]
    near: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for name, depth in depths.items():
        columns[2 * depth].append(("entity", name))
        near["entity", name] = []
    for rule in rules:
        ends = dict.fromkeys((*rule.sources, rule.target))
        low, high = min(depths[name] for name in ends), max(depths[name] for name in ends)
        columns[max(2 * high - 1, 2 * low + 1)].append(("rule", rule.name))
        near["rule", rule.name] = [("entity", name) for name in ends]
        for name in ends:
            near["entity", name].append(("rule", rule.name))
    for _ in range(_SWEEPS):
        for column in (*columns, *columns[::-1]):
            level = {box: (at + 0.5) / len(boxes) for boxes in columns for at, box in enumerate(boxes)}
            wanted = {box: sum(level[o] for o in near[box]) / len(near[box]) if near[box] else 1.0 for box in column}
            column.sort(key=wanted.__getitem__)
    return [column for column in columns if column]


def _depths(graph: Graph) -> Mapping[str, int]:
    """Return how deep each entity is: deeper than those that rules read for it, unless they read each other in a circle."""
    sources: dict[str, set[str]] = {name: set() for name in graph.entities}
    for rule in graph.rules.values():
        sources[rule.target].update(source for source in rule.sources if source != rule.target)
    depths: dict[str, int] = {}
    rest = list(sources)
    while rest:
        name = next((name for name in rest if sources[name] <= depths.keys()), rest[0])
        depths[name] = max([depths[source] + 1 for source in sources[name] if source in depths], default=0)
        rest.remove(name)
    for name in sources:
        targets = [depths[other] for other, read in sources.items() if name in read]
        if not sources[name] and targets:  # what only the application writes is beside the first that is made of it
            depths[name] = min(targets) - 1
    return depths

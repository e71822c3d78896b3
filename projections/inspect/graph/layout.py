"""The layout in CSS pixels: sizes of cards, boxes for entities and rules, and curves between them that avoid all boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from unicodedata import east_asian_width

from projections.inspect.graph.layers import Edge, Layered, Vertex, components, layered, order
from projections.inspect.graph.model import Entity, Graph, Rule
from projections.language.templates import Template

__all__ = ["Box", "Card", "Layout", "Route", "card_of", "layout_of", "rule_size"]


_RULE_HEIGHT = 46
_MONO = 12 * 0.61  # no common fixed font is wider
_NAME = 15 * 1.12  # semi-bold
_RULE_NAME = 13 * 1.12
_GIST = 11.5
_LINE = 18
_HEAD = 40
_CHIP = 30
_NARROWEST_CARD, _WIDEST_CARD = 160, 320
_NARROWEST_RULE, _WIDEST_RULE = 110, 232
_CHARACTERS = 24


@dataclass(frozen=True, slots=True)
class Card:
    """An entity's card: its size, and its keys as (attribute, lines)."""

    width: float
    height: float
    label: float
    """The width of the column of attribute names."""
    keys: tuple[tuple[str, tuple[str, ...]], ...]
    table: str | None


def card_of(graph: Graph, entity: Entity) -> Card:
    """Return the card of an entity."""
    keys = tuple((attribute, _broken(template)) for attribute, template in entity.key)
    label = min(max(_fixed(attribute) for attribute, _ in keys), 120) + 12
    longest = max(_fixed(line) for _, lines in keys for line in lines)
    badges = 12 + (0 if entity.role == "application" else 62) + (40 if entity.expires else 0)
    table = entity.table if len(graph.tables) > 1 else None
    inside = graph.inside(entity.name)
    width = max(
        [
            _wide(entity.name, _NAME) + badges + 28,
            label + longest + 28,
            *(_wide(rule.name, _RULE_NAME) + _wide(rule.gist, _GIST) + 72 for rule in inside),
        ]
    )
    lines = sum(len(lines) for _, lines in keys)
    height = _HEAD + (_LINE if table else 0) + lines * _LINE + 10 + (len(inside) * _CHIP + 8 if inside else 0)
    return Card(min(max(width, _NARROWEST_CARD), _WIDEST_CARD), height, label, keys, table)


def rule_size(rule: Rule) -> tuple[float, float]:
    """Return width and height of a rule between two cards."""
    width = max(_wide(rule.name, _RULE_NAME), _wide(rule.gist, _GIST)) + 60
    return min(max(width, _NARROWEST_RULE), _WIDEST_RULE), _RULE_HEIGHT


_THIN, _THICK = frozenset("fijlrtI.,:;'|!()[]{}-/ "), frozenset("mwMW@%—…")


def _wide(text: str, size: float) -> float:
    """Return the estimated width of a text in a wide font."""
    return sum(size * _share(character) for character in text)


def _share(character: str) -> float:
    if east_asian_width(character) in "WF":
        return 1.1
    return 0.42 if character in _THIN else 1.0 if character in _THICK else 0.72 if character.isupper() else 0.64


def _fixed(text: str) -> float:
    return sum(_MONO * (2 if east_asian_width(character) in "WF" else 1) for character in text)


def _broken(template: str) -> tuple[str, ...]:
    """Return a key template in lines, broken before variables and separators where possible."""
    pieces: list[str] = []
    for part in Template.parse(template).parts:
        text = str(part) if not isinstance(part, str) else part.replace("{", "{{").replace("}", "}}")
        pieces += [text[start : start + _CHARACTERS] for start in range(0, len(text), _CHARACTERS)]
    lines: list[str] = [""]
    for piece in pieces:
        if lines[-1] and len(lines[-1]) + len(piece) > _CHARACTERS:
            lines.append("")
        lines[-1] += piece
    return tuple(_separators_first(lines))


def _separators_first(lines: Sequence[str]) -> list[str]:
    """Move separators at the end of a line to the next one, where they show that the key continues."""
    found = list(lines)
    for index in range(len(found) - 1):
        tail = len(found[index]) - len(found[index].rstrip("#|:/-_"))
        if 0 < tail < len(found[index]):
            found[index], found[index + 1] = found[index][:-tail], found[index][-tail:] + found[index + 1]
    return found


_LAYER_GAP = 40
_CARD_GAP = 30
_RULE_GAP = 14
_BEND = 10
_PORT = 18.0
_SWEEPS = 80
_STIFF, _FIXED = 8.0, 1e6
"""The weight of a bend relative to a box: during the iterations, and at the end."""
_COMPONENT_GAP = 48
_MARGIN = 8
_WINDOW = (1040.0, 820.0)
"""The size of the picture on a common screen."""


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def moved(self, x: float, y: float) -> Box:
        return Box(self.x + x, self.y + y, self.width, self.height)


Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Route:
    """A rule's line: the points from its source to the rule, and on to its target.

    It is alternately straight, within layers, where the boxes are, and a curve, between layers.
    """

    into: tuple[Point, ...]
    out: tuple[Point, ...]

    def moved(self, x: float, y: float) -> Route:
        return Route(*(tuple((px + x, py + y) for px, py in points) for points in (self.into, self.out)))


@dataclass(slots=True)
class Layout:
    """Boxes and routes by name. Rules that write to the entity that they read are in its card, and have neither."""

    down: bool = False
    """Whether lines lead downwards, not to the right."""
    width: float = 0
    height: float = 0
    cards: dict[str, Card] = field(default_factory=dict)
    entities: dict[str, Box] = field(default_factory=dict)
    rules: dict[str, Box] = field(default_factory=dict)
    routes: dict[str, Route] = field(default_factory=dict)


def layout_of(graph: Graph) -> Layout:
    """Return the layout of a graph, from left to right or downwards, whichever fits a window better. It is deterministic."""
    cards = {name: card_of(graph, entity) for name, entity in graph.entities.items()}
    edges = [Edge(name, rule.source, rule.target) for name, rule in graph.drawn.items() if not rule.inside]
    parts = []
    for names in components(list(graph.entities), edges):
        part = layered(names, [edge for edge in edges if edge.source in names])
        order(part)
        parts.append(part)
    both = [_shelved(cards, [_Part(graph, cards, part, down).layout() for part in parts]) for down in (False, True)]
    return max(both, key=_fit)


def _fit(layout: Layout) -> float:
    """Return a rating of a layout by its size. Vertical scrolling is better than horizontal."""
    width, height = _WINDOW
    return min(1.0, width / layout.width) * math.pow(min(1.0, height / layout.height), 0.3)


def _shelved(cards: dict[str, Card], parts: Sequence[Layout]) -> Layout:
    """Return unconnected parts side by side in rows, those with lines first."""
    found = Layout(cards=cards, down=parts[0].down)
    widest = max([_WINDOW[0], *(part.width for part in parts)])
    x = y = float(_MARGIN)
    row = 0.0
    for part in sorted(parts, key=lambda part: -len(part.routes)):
        if x > _MARGIN and x + part.width > widest + _MARGIN:
            x, y, row = float(_MARGIN), y + row + _COMPONENT_GAP, 0.0
        found.entities |= {name: box.moved(x, y) for name, box in part.entities.items()}
        found.rules |= {name: box.moved(x, y) for name, box in part.rules.items()}
        found.routes |= {name: route.moved(x, y) for name, route in part.routes.items()}
        row = max(row, part.height)
        found.width = max(found.width, x + part.width + _MARGIN)
        x += part.width + _COMPONENT_GAP
    found.height = y + row + _MARGIN
    return found


class _Part:
    """The layout of connected entities, its layers from left to right, or `down`.

    Coordinates are along the lines and across them; at the end, one of these becomes x.
    """

    def __init__(self, graph: Graph, cards: Mapping[str, Card], layers: Layered, down: bool) -> None:
        self._rules, self._cards, self._layers, self._down = graph.drawn, cards, layers, down
        self._size = {vertex: self._sized(vertex) for layer in layers.layers for vertex in layer}
        if not down:  # columns look tidy, rows need not
            for layer in layers.layers:
                widest = max(self._size[vertex][0] for vertex in layer)
                self._size.update({v: (widest, self._size[v][1]) for v in layer if v.kind != "bend"})
        self._across = self._middles()
        self._spans = self._placed()

    def _sized(self, vertex: Vertex) -> tuple[float, float]:
        """Along and across."""
        if vertex.kind == "bend":
            return 0, _BEND
        card = self._cards.get(vertex.name)
        size = (card.width, card.height) if vertex.kind == "entity" and card else rule_size(self._rules[vertex.name])
        return size[::-1] if self._down else size

    def _placed(self) -> list[tuple[float, float]]:
        """Return the beginning and end of each layer, along."""
        spans, along = [], 0.0
        for layer in self._layers.layers:
            end = along + max(self._size[vertex][0] for vertex in layer)
            spans.append((along, end))
            along = end + _LAYER_GAP
        return spans

    def layout(self) -> Layout:
        found = Layout(down=self._down)
        for (begin, end), layer in zip(self._spans, self._layers.layers, strict=True):
            for vertex in layer:
                along, across = self._size[vertex]
                x, y = self._point((begin + end - along) / 2, self._across[vertex] - across / 2)
                box = Box(x, y, *(self._point(along, across)))
                if vertex.kind == "entity":
                    found.entities[vertex.name] = box
                elif vertex.kind == "rule":
                    found.rules[vertex.name] = box
        boxes = (*found.entities.values(), *found.rules.values())
        found.width, found.height = max(box.right for box in boxes), max(box.bottom for box in boxes)
        ports = self._ports()
        found.routes = {rule: self._route(line, ports) for rule, line in self._layers.lines.items()}
        return found

    def _point(self, along: float, across: float) -> Point:
        return (across, along) if self._down else (along, across)

    # Across: each layer is as close to its neighbours as its order and its gaps allow.

    def _middles(self) -> dict[Vertex, float]:
        layers = self._layers.layers
        middles: dict[Vertex, float] = {}
        for layer in layers:
            middles.update(zip(layer, accumulate(self._apart(layer)), strict=True))
        runs = self._runs()
        for sweep in range(_SWEEPS):
            near = self._near(runs, straight=sweep >= _SWEEPS // 2)
            for layer in layers if sweep % 2 == 0 else reversed(layers):
                wanted = [
                    sum(middles[other] for other in near[v]) / len(near[v]) if near[v] else middles[v] for v in layer
                ]
                weights = [_STIFF if v.kind == "bend" else 1.0 for v in layer]
                middles.update(zip(layer, _settled(wanted, weights, self._apart(layer)), strict=True))
        self._straighten(middles, runs)
        top = min(middles[v] - self._size[v][1] / 2 for v in middles)
        return {vertex: middle - top for vertex, middle in middles.items()}

    def _runs(self) -> dict[Vertex, list[Vertex]]:
        """Return, for each bend, the sequence of bends of its line."""
        found: dict[Vertex, list[Vertex]] = {}
        for line in self._layers.lines.values():
            for bend, group in groupby(line, key=lambda vertex: vertex.kind == "bend"):
                run = list(group)
                found.update(dict.fromkeys(run, run) if bend else {})
        return found

    def _straighten(self, middles: dict[Vertex, float], runs: Mapping[Vertex, Sequence[Vertex]]) -> None:
        """Move the bends of each line to one level; boxes move aside."""
        level = {bend: sum(middles[other] for other in run) / len(run) for bend, run in runs.items()}
        for layer in self._layers.layers:
            wanted = [level.get(vertex, middles[vertex]) for vertex in layer]
            weights = [_FIXED if vertex in level else 1.0 for vertex in layer]
            middles.update(zip(layer, _settled(wanted, weights, self._apart(layer)), strict=True))

    def _near(self, runs: Mapping[Vertex, Sequence[Vertex]], straight: bool) -> dict[Vertex, list[Vertex]]:
        """Return the vertices that each vertex should be level with: its neighbours, or the other bends of a line."""
        near: dict[Vertex, list[Vertex]] = {vertex: [] for layer in self._layers.layers for vertex in layer}
        for one, other in self._layers.segments:
            near[one].append(other)
            near[other].append(one)
        if straight:
            near.update({bend: list(run) for bend, run in runs.items() if len(run) > 1})
        return near

    def _apart(self, layer: Sequence[Vertex]) -> list[float]:
        """Return the minimum distance of the middle of each vertex from that of the previous one."""
        return [0.0] + [
            (self._size[one][1] + self._size[other][1]) / 2 + _gap(one, other) for one, other in pairwise(layer)
        ]

    # Lines.

    def _ports(self) -> dict[tuple[Vertex, Vertex], float]:
        """Return, by (entity, its neighbour on a line), where across the line leaves the card."""
        ports: dict[tuple[Vertex, Vertex], float] = {}
        for side in (0, 1):
            lines: dict[Vertex, list[Vertex]] = {}
            for segment in self._layers.segments:
                if segment[side].kind == "entity":
                    lines.setdefault(segment[side], []).append(segment[1 - side])
            for vertex, others in lines.items():
                others.sort(key=lambda other: self._across[other])
                room = self._size[vertex][1] - 2 * _PORT
                step = min(_PORT, room / max(len(others) - 1, 1))
                low, high = self._across[vertex] - room / 2, self._across[vertex] + room / 2
                apart = [0.0, *[step] * (len(others) - 1)]
                wanted = [
                    min(max(self._across[other], low + step * index), high - step * (len(others) - 1 - index))
                    for index, other in enumerate(others)
                ]
                places = _settled(wanted, [1.0] * len(others), apart)
                ports.update(zip([(vertex, other) for other in others], places, strict=True))
        return ports

    def _route(self, line: Sequence[Vertex], ports: Mapping[tuple[Vertex, Vertex], float]) -> Route:
        at = next(index for index, vertex in enumerate(line) if vertex.kind == "rule")
        depth = {vertex: index for index, layer in enumerate(self._layers.layers) for vertex in layer}
        forwards = depth[line[0]] < depth[line[-1]]

        def ends(vertex: Vertex, far: bool, across: float) -> list[Point]:
            """Where a line meets a box, on the side towards its end or towards its beginning, and the edge of the layer."""
            begin, end = self._spans[depth[vertex]]
            half = self._size[vertex][0] / 2
            ahead = far == forwards
            met, edge = (begin + end) / 2 + (half if ahead else -half), end if ahead else begin
            return [self._point(along, across) for along in ((met, edge) if far else (edge, met))]

        def bends(vertices: Sequence[Vertex]) -> list[Point]:
            points: list[Point] = []
            for vertex in vertices:
                span = self._spans[depth[vertex]]
                points += [self._point(along, self._across[vertex]) for along in (span if forwards else span[::-1])]
            return points

        rule, source, target = line[at], line[0], line[-1]
        start, end = ends(source, True, ports[source, line[1]]), ends(target, False, ports[target, line[-2]])
        enter, leave = (ends(rule, far, self._across[rule]) for far in (False, True))
        return Route((*start, *bends(line[1:at]), *enter), (*leave, *bends(line[at + 1 : -1]), *end))


def _gap(one: Vertex, other: Vertex) -> float:
    return _CARD_GAP if one.kind == other.kind == "entity" else _RULE_GAP


def _settled(wanted: Sequence[float], weights: Sequence[float], apart: Sequence[float]) -> list[float]:
    """The places nearest to those wanted, by weighted squares, in their order and at least so far apart.

    Isotonic regression, by pooling adjacent violators: the distances are taken off first, and put back at the end.
    """
    offsets, total = [], 0.0
    for distance in apart:
        total += distance
        offsets.append(total)
    pools: list[tuple[float, float, int]] = []  # mean, weight, how many
    for place, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, size = place - offset, 1
        while pools and pools[-1][0] >= mean:
            before, heavy, count = pools.pop()
            mean = (before * heavy + mean * weight) / (heavy + weight)
            weight, size = heavy + weight, count + size
        pools.append((mean, weight, size))
    means = [mean for mean, _, size in pools for _ in range(size)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]

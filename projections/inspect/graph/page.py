"""The graph as one HTML page, which requires no network, fonts or libraries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from projections.inspect.graph.layout import Box, Card, Layout, Point, Route, layout_of
from projections.inspect.graph.model import Entity, Graph, Rule
from projections.inspect.graph.panels import entity_id, escape, icon, mark, panels, rule_id, template

__all__ = ["Frame", "page"]

KINDS = ("copy", "aggregate", "top", "latest", "rank", "index", "compute", "embed")
_HERE = Path(__file__).parent
_ARROW = 7


@dataclass(frozen=True, slots=True)
class Frame:
    """What a server adds to the page: HTML of links, style, script, and the nonce of the policy in its header.

    Without a nonce, the page has its own policy.
    """

    links: str = ""
    style: str = ""
    script: str = ""
    nonce: str = ""


_POLICY = (
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'\">"
)


_ALONE = Frame()


def page(graph: Graph, frame: Frame = _ALONE) -> str:
    """Return the page."""
    layout, drawn = layout_of(graph), graph.drawn
    texts = {name: (_HERE / name).read_text(encoding="utf-8") for name in ("page.html", "page.css", "page.js")}
    counted = f"{_count(len(graph.rules), 'rule')} between {_count(len(graph.entities), 'entity')}"
    filled = {
        "title": escape(graph.title),
        "counted": counted,
        "style": texts["page.css"],
        "script": texts["page.js"],
        "filters": _filters(graph),
        "markers": "".join(_marker(kind) for kind in KINDS),
        "width": f"{layout.width:.0f}",
        "height": f"{layout.height:.0f}",
        "edges": "\n".join(_edge(drawn[name], route, layout.down) for name, route in layout.routes.items()),
        "boxes": "\n".join(_boxes(graph, layout)),
        "panels": panels(graph),
    }
    text = texts["page.html"]
    filled |= {
        "policy": "" if frame.nonce else _POLICY,
        "nonce": f' nonce="{frame.nonce}"' if frame.nonce else "",
        "links": frame.links,
        "own style": frame.style,
        "own script": frame.script,
    }
    for name, value in filled.items():
        text = text.replace(f"<!--{name}-->", value)
    return text


def _count(number: int, noun: str) -> str:
    plural = "entities" if noun == "entity" else noun + "s"
    return f"{number} {noun if number == 1 else plural}"


def _filters(graph: Graph) -> str:
    counts = Counter(rule.kind for rule in graph.rules.values())
    return "".join(
        f'<button class="filter k-{kind}" data-kind="{kind}" aria-pressed="false" title="Show {kind} rules only">'
        f"{icon(kind)}{kind}<span>{counts[kind]}</span></button>"
        for kind in KINDS
        if counts[kind]
    )


def _marker(kind: str) -> str:
    return (
        f'<marker id="arrow-{kind}" class="k-{kind}" viewBox="0 0 8 8" refX="1" refY="4" markerWidth="{_ARROW}" '
        f'markerHeight="{_ARROW}" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 .5L8 4L0 7.5z"/></marker>'
    )


# Lines


def _edge(rule: Rule, route: Route, down: bool) -> str:
    related = escape(f"{entity_id(rule.source)} {entity_id(rule.target)}")
    into, out = _curve(route.into, down), _curve(_shortened(route.out, down), down)
    return (
        f'<g class="edge k-{rule.kind}" data-rule="{rule_id(rule.name)}" data-ends="{related}">'
        f'<path d="{into}"/><path d="{out}" marker-end="url(#arrow-{rule.kind})"/></g>'
    )


def _shortened(points: Sequence[Point], down: bool) -> tuple[Point, ...]:
    """Return the points with the end moved to the beginning of the arrow."""
    before, end = points[-3], points[-1]
    back = -_ARROW if before[down] < end[down] else _ARROW
    return (*points[:-2], *((x, y + back) if down else (x + back, y) for x, y in points[-2:]))


def _curve(points: Sequence[Point], down: bool) -> str:
    """Return a path: straight to the second point, a curve to the third, straight to the fourth, and so on."""
    text = "M" + _numbers(points[:1])
    for index, ((x, y), (to_x, to_y)) in enumerate(pairwise(points)):
        if index % 2 == 0:
            if (x, y) != (to_x, to_y):
                text += "L" + _numbers([(to_x, to_y)])
        elif down:
            half = (to_y - y) / 2
            text += "C" + _numbers([(x, y + half), (to_x, to_y - half), (to_x, to_y)])
        else:
            half = (to_x - x) / 2
            text += "C" + _numbers([(x + half, y), (to_x - half, to_y), (to_x, to_y)])
    return text


def _numbers(points: Sequence[Point]) -> str:
    return " ".join(f"{_number(x)} {_number(y)}" for x, y in points)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


# Boxes


def _boxes(graph: Graph, layout: Layout) -> list[str]:
    """Return cards and rules in reading order."""
    drawn = graph.drawn
    found = [
        (box, _card(graph, graph.entities[name], layout.cards[name], box)) for name, box in layout.entities.items()
    ]
    found += [(box, _box(drawn[name], box)) for name, box in layout.rules.items()]
    found.sort(key=lambda one: (one[0].y, one[0].x) if layout.down else (one[0].x, one[0].y))
    return [text for _, text in found]


def _place(box: Box) -> str:
    return f"left:{box.x:.1f}px;top:{box.y:.1f}px;width:{box.width:.1f}px;height:{box.height:.1f}px"


def _card(graph: Graph, entity: Entity, card: Card, box: Box) -> str:
    badges = "" if entity.role == "application" else f'<span class="badge r-{entity.role}">{entity.role}</span>'
    badges += '<span class="badge">TTL</span>' if entity.expires else ""
    table = f'<p class="table">in {escape(card.table)}</p>' if card.table else ""
    keys = "".join(
        f'<dt title="{escape(name)}">{escape(name)}</dt><dd>{"<br>".join(map(template, lines))}</dd>'
        for name, lines in card.keys
    )
    chips = "".join(
        f'<button class="chip k-{rule.kind}" {_controls(rule)}>{icon(rule.kind)}{_texts(rule)}{mark(rule.findings)}</button>'
        for rule in graph.inside(entity.name)
    )
    inside = f'<div class="inside">{chips}</div>' if chips else ""
    return (
        f'<article class="card r-{entity.role}" style="{_place(box)};--label:{card.label:.0f}px" '
        f'data-entity="{entity_id(entity.name)}">'
        f'<button class="head" data-go="{entity_id(entity.name)}" aria-controls="{entity_id(entity.name)}">'
        f'<span class="name" title="{escape(entity.name)}">{escape(entity.name)}</span>{badges}</button>'
        f'{table}<dl class="key">{keys}</dl>{inside}</article>'
    )


def _box(rule: Rule, box: Box) -> str:
    return (
        f'<button class="rule k-{rule.kind}" style="{_place(box)}" {_controls(rule)}>{icon(rule.kind)}'
        f'<span class="texts">{_texts(rule)}</span>{mark(rule.findings)}</button>'
    )


def _texts(rule: Rule) -> str:
    return f'<span class="name">{escape(rule.name)}</span><span class="gist">{escape(rule.gist)}</span>'


def _controls(rule: Rule) -> str:
    after = escape(" ".join(rule_id(name) for name in rule.after))
    ends = escape(f"{entity_id(rule.source)} {entity_id(rule.target)}")
    return (
        f'data-rule="{rule_id(rule.name)}" data-go="{rule_id(rule.name)}" data-kind="{rule.kind}" data-after="{after}" '
        f'data-ends="{ends}" aria-controls="{rule_id(rule.name)}" aria-expanded="false" '
        f'aria-label="{escape(f"{rule.kind} {rule.name}: {rule.sentence}")}" title="{escape(f"{rule.name}: {rule.gist}")}"'
    )

"""The graph as one HTML page, which requires no network, fonts or libraries: the picture, and a panel with details."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from projections.inspect.graph.graph_model import Entity, Graph, Rule
from projections.language.findings.kinds import Finding
from projections.language.models import ACTIONS
from projections.printable import printable

_HERE = Path(__file__).parent


class Frame(NamedTuple):
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
    text, style, script = ((_HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    filled = {
        "title": escape(graph.title),
        "counted": f"{_count(len(graph.rules), 'rule')} between {_count(len(graph.entities), 'entity')}",
        "style": style + "".join(map(_colours, ACTIONS)),
        "script": script,
        "filters": _filters(graph),
        "markers": "".join(_marker(kind) for kind in ACTIONS),
        "edges": "\n".join(_edge(rule) for rule in graph.rules.values() if not rule.inside),
        "boxes": "\n".join(_column(graph, column) for column in columns_of(graph)),
        "panels": panels(graph),
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
        for kind in ACTIONS
        if counts[kind]
    )


def _colours(kind: str) -> str:
    light, dark, _ = ACTIONS[kind].picture()
    return f".k-{kind} {{ --kind: light-dark({light}, {dark}) }}\n"


def _marker(kind: str) -> str:
    return (
        f'<marker id="arrow-{kind}" class="k-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 .5L8 4L0 7.5z"/></marker>'
    )


def _edge(rule: Rule) -> str:
    """Return the lines of a rule, which the script draws."""
    into = "".join(f'<path data-from="{entity_id(name)}" data-to="{rule_id(rule.name)}"/>' for name in rule.sources)
    return (
        f'<g class="edge k-{rule.kind}" data-rule="{rule_id(rule.name)}" data-ends="{_ends(rule)}">{into}'
        f'<path data-from="{rule_id(rule.name)}" data-to="{entity_id(rule.target)}" '
        f'marker-end="url(#arrow-{rule.kind})"/></g>'
    )


def _ends(rule: Rule) -> str:
    return escape(" ".join(map(entity_id, dict.fromkeys((*rule.sources, rule.target)))))


def _column(graph: Graph, column: Sequence[tuple[str, str]]) -> str:
    boxes = [
        _card(graph, graph.entities[name]) if kind == "entity" else _box(graph.rules[name]) for kind, name in column
    ]
    return f'<div class="column">{"".join(boxes)}</div>'


def _card(graph: Graph, entity: Entity) -> str:
    badges = "" if entity.role == "application" else f'<span class="badge r-{entity.role}">{entity.role}</span>'
    badges += '<span class="badge">TTL</span>' if entity.expires else ""
    table = f'<p class="table">in {escape(entity.table)}</p>' if len(graph.tables) > 1 else ""
    chips = "".join(
        f'<button class="chip k-{rule.kind}" {_controls(rule)}>{icon(rule.kind)}{_texts(rule)}{mark(rule.findings)}</button>'
        for rule in graph.rules.values()
        if rule.inside and rule.target == entity.name
    )
    inside = f'<div class="inside">{chips}</div>' if chips else ""
    return (
        f'<article class="card r-{entity.role}" data-entity="{entity_id(entity.name)}">'
        f'<button class="head" data-go="{entity_id(entity.name)}" aria-controls="{entity_id(entity.name)}">'
        f'<span class="name" title="{escape(entity.name)}">{escape(entity.name)}</span>{badges}</button>'
        f"{table}{key_rows(entity.key)}{inside}</article>"
    )


def _box(rule: Rule) -> str:
    return (
        f'<button class="rule k-{rule.kind}" {_controls(rule)}>{icon(rule.kind)}'
        f'<span class="texts">{_texts(rule)}</span>{mark(rule.findings)}</button>'
    )


def _texts(rule: Rule) -> str:
    return f'<span class="name">{escape(rule.name)}</span><span class="gist">{escape(rule.gist)}</span>'


def _controls(rule: Rule) -> str:
    after = escape(" ".join(rule_id(name) for name in rule.after))
    return (
        f'data-rule="{rule_id(rule.name)}" data-go="{rule_id(rule.name)}" data-kind="{rule.kind}" data-after="{after}" '
        f'data-ends="{_ends(rule)}" aria-controls="{rule_id(rule.name)}" aria-expanded="false" '
        f'aria-label="{escape(f"{rule.kind} {rule.name}: {rule.sentence}")}" title="{escape(f"{rule.name}: {rule.gist}")}"'
    )


_VARIABLE = re.compile(r"\{\{|\}\}|\{[^{}]*\}")


def escape(text: object) -> str:
    return html.escape(printable(str(text)), quote=True)


def icon(kind: str) -> str:
    return f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{ACTIONS[kind].picture().icon}</svg>'


def prose(text: str) -> str:
    """Return a sentence as HTML, with the text between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def template(text: str) -> str:
    """Return a template as HTML with its variables marked."""
    parts, position = [], 0
    for match in _VARIABLE.finditer(text):
        parts.append(escape(text[position : match.start()]))
        variable = match[0] not in ("{{", "}}")
        parts.append(f'<span class="var">{escape(match[0])}</span>' if variable else match[0][0])
        position = match.end()
    return "".join(parts) + escape(text[position:])


def key_rows(key: Sequence[tuple[str, str]]) -> str:
    """Return a key as a list of attributes and templates."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{template(text)}</dd>" for name, text in key)
    return f'<dl class="key">{rows}</dl>'


_ROLES = {
    "application": "The application writes these items.",
    "copy": "These items are copies: a rule creates and deletes them.",
    "derived": "Rules create these items with the first contribution, and delete them with the last.",
}
_EXPIRED = {"keep": "Contributions of expired items stay.", "retract": "Contributions of expired items are retracted."}


def rule_id(name: str) -> str:
    return f"rule-{name}"


def entity_id(name: str) -> str:
    return f"entity-{name}"


def panels(graph: Graph) -> str:
    """Return all panels, one of which is shown at a time."""
    parts = [_overview(graph)]
    parts += [_section(rule_id(rule.name), "".join(_rule(graph, rule))) for rule in graph.rules.values()]
    parts += [_section(entity_id(entity.name), "".join(_entity(graph, entity))) for entity in graph.entities.values()]
    return "\n".join(parts)


def _section(id_: str, content: str) -> str:
    return f'<section class="detail" id="{id_}" aria-labelledby="{id_}-title" hidden>{content}</section>'


def _overview(graph: Graph) -> str:
    findings = f"<h3>Findings of check</h3>{''.join(map(_finding, graph.findings))}" if graph.findings else ""
    if more := sum(len(rule.findings) for rule in graph.rules.values()):
        findings += f'<p class="quiet">{more} more {"finding" if more == 1 else "findings"} in the marked rules.</p>'
    return (
        '<section class="detail" id="overview" aria-labelledby="overview-title">'
        '<h2 id="overview-title">Rules</h2>'
        '<p class="quiet">Point at a rule to see its lines; select it for its keys, conditions and cost. '
        "Arrow keys move between boxes, <kbd>/</kbd> searches, <kbd>Esc</kbd> returns here.</p>"
        f"{_rows([*graph.rules.values()])}{findings}</section>"
    )


def mark(findings: Sequence[Finding]) -> str:
    """Return a mark for findings, in the colour of the highest severity."""
    worst = next((s for s in ("error", "warning", "note") if any(f.severity == s for f in findings)), None)
    if worst is None:
        return ""
    text = f"{len(findings)} findings: {worst}" if len(findings) > 1 else worst
    return f'<span class="mark s-{worst}" title="{text}"><span class="hidden">{text}</span></span>'


# Rules


def _rule(graph: Graph, rule: Rule) -> Iterator[str]:
    declared = rule.declared
    silent = '<span class="badge">held: publishes nothing</span>' if declared.hold else ""
    yield (
        f'<p class="kind k-{rule.kind}">{icon(rule.kind)}{rule.kind}{silent}</p>'
        f'<h2 id="{rule_id(rule.name)}-title">{escape(rule.name)}</h2><p class="lead">{escape(rule.sentence)}</p>'
    )
    if declared.description:
        yield f'<p class="about">{escape(declared.description)}</p>'
    facts = [("Owner", declared.owner or ""), ("Tags", ", ".join(declared.tags))]
    facts.append(("Within", f"{declared.within} s" if declared.within is not None else ""))
    if any(text for _, text in facts):
        yield "".join(f'<p class="about">{name}: {escape(text)}</p>' for name, text in facts if text)
    onto = "From and onto" if rule.inside else "From"
    for source in rule.sources:
        yield f"<h3>{onto} {_link(entity_id(source), source)}</h3>{key_rows(graph.entities[source].key)}"
    if rule.where:
        yield f'<h3>Where</h3><p class="where">{escape(_sentence(rule.where))}</p>'
    if rule.each:
        yield f'<h3>For each</h3><p class="where">{escape(_sentence(rule.each.removeprefix("each ")))}</p>'
    if declared.expired:
        yield f'<h3>Expiry</h3><p class="where">{_EXPIRED[declared.expired]}</p>'
    target = _link(entity_id(rule.target), rule.target)
    if rule.match:
        yield f"<h3>Into {target} items whose</h3>{key_rows(rule.match)}"
    elif not rule.inside:
        yield f"<h3>Into {target}</h3>{key_rows(rule.key)}"
    for number, (where, key) in enumerate(rule.cases):
        title = f"where {where}" if where else "otherwise" if number else ""
        yield f"<h3>{'Writes' if number == 0 else 'Or'} {escape(title)}</h3>{key_rows(key)}"
    if rule.writes and not rule.cases:
        yield f"<h3>Writes</h3>{_attribute_table((name, template(how)) for name, how in rule.writes)}"
    yield from _cost(rule)
    if rule.findings:
        yield "<h3>Findings of check</h3>" + "".join(map(_finding, rule.findings))


def _attribute_table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of attributes and, in HTML, their origins."""
    cells = "".join(
        f'<tr><th scope="row">{escape("all attributes" if name == "*" else name)}</th><td>{how}</td></tr>'
        for name, how in rows
    )
    return f'<table class="writes">{cells}</table>'


def _cost(rule: Rule) -> Iterator[str]:
    path = rule.path
    tiles = [(str(path.alone), "write unit" if path.alone == 1 else "write units", "a change by itself")]
    if path.shared:
        tiles.append((f"≈ {path.shared}", "write units", "each, in a large batch"))
    if rule.match:
        tiles = [("1", "write unit", "each child"), ("1", "write unit", "each push")]
    tiles.append((str(rule.passes), "pass" if rule.passes == 1 else "passes", "through the stream"))
    shown = "".join(
        f'<div class="tile"><b>{n}</b><span>{unit}</span><small>{what}</small></div>' for n, unit, what in tiles
    )
    name = f"{path.name}: " if path.name != rule.kind else ""
    yield f'<h3>Cost</h3><div class="tiles">{shown}</div><p class="quiet">{escape(_sentence(name + path.how))}</p>'
    if rule.after:
        links = ", ".join(_link(rule_id(name), name) for name in rule.after)
        yield f'<p class="quiet">Reads values of {links}.</p>'


def _sentence(text: str) -> str:
    """Return a text with a full stop. The first letter is unchanged, because it may begin the name of an attribute."""
    return text + "." if not text.endswith(".") else text


def _link(panel: str, name: str) -> str:
    return f'<button class="link" data-go="{panel}">{escape(name)}</button>'


def _finding(finding: Finding) -> str:
    instead = f'<p class="instead">{prose(finding.instead)}</p>' if finding.instead else ""
    return (
        f'<div class="finding s-{finding.severity}"><p><b>{finding.severity}</b> {escape(finding.code)}'
        f'<span class="place">{escape(finding.file)}:{finding.line}:{finding.column}</span></p>'
        f"<p>{prose(finding.reason)}</p>{instead}</div>"
    )


# Entities


def _entity(graph: Graph, entity: Entity) -> Iterator[str]:
    name = entity.name
    yield (
        f'<p class="kind">entity</p><h2 id="{entity_id(name)}-title">{escape(name)}</h2>'
        f'<p class="lead">{_ROLES[entity.role]}</p>'
    )
    table = f" in table {escape(entity.table)}" if len(graph.tables) > 1 else ""
    yield f"<h3>Key{table}</h3>{key_rows(entity.key)}"
    facts = []
    if entity.match:
        facts.append(f"Recognised by: {entity.match}.")
    if entity.id:
        facts.append(f"{{{entity.id}}} alone identifies the item.")
    if entity.expires:
        facts.append("Items are deleted by TTL.")
    if facts:
        yield "".join(f'<p class="where">{template(fact)}</p>' for fact in facts)
    if entity.index_key:
        yield f"<h3>Index keys of the application</h3>{key_rows(entity.index_key)}"
    if entity.attributes:
        rows = ((name, f"{template(how)}<br>{_link(rule_id(rule), rule)}") for name, how, rule in entity.attributes)
        yield f"<h3>Written by rules</h3>{_attribute_table(rows)}"
    if readers := [rule for rule in graph.rules.values() if name in rule.sources]:
        yield f"<h3>Read by</h3>{_rows(readers)}"


def _rows(rules: Sequence[Rule]) -> str:
    """Return a list of rules."""
    rows = "".join(
        f'<li><button class="row k-{rule.kind}" data-go="{rule_id(rule.name)}">{icon(rule.kind)}'
        f"{_texts(rule)}{mark(rule.findings)}</button></li>"
        for rule in rules
    )
    return f'<ul class="rows">{rows}</ul>'


# The columns of the picture, from left to right: entities by depth, and between them the rules. A browser does the rest.

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

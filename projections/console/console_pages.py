"""The pages of the console, their routes, and what they show, as their caller reads it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlencode

from projections.console.server import Answer, Route, json_answer
from projections.engine.registry import LIVE
from projections.inspect.explain.item_facts import Attribute, Derived, ItemExplanation
from projections.inspect.explain.item_facts import Source as Contributions
from projections.inspect.explain.words import difference_words, encoded_words, json_words, key_words, version_words
from projections.inspect.graph.graph_model import Graph
from projections.inspect.graph.page import Frame, escape, icon, page, prose
from projections.language.facts import EVERY, Origin, origins
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.values import plain
from projections.operations.verify.drift import KINDS


@dataclass(frozen=True, slots=True)
class Reads:
    """What an answer took: requests to DynamoDB, and the read units that it reports."""

    requests: int
    units: float


@dataclass(frozen=True, slots=True)
class ExplainedItem:
    """The explanation of an item. `ages` has p50 and p99 of the age of changes in seconds, by rule, as far as known."""

    report: ItemExplanation
    reads: Reads
    ages: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class Source(Protocol):
    """Reads what the pages show. Methods raise ProjectionsError."""

    graph: Graph
    program: Program
    place: str
    """The tables or the stack, for people."""

    def status(self) -> dict[str, Any]:
        """Return the state of rules, backfills and queues as JSON."""

    def item(self, key: str) -> ExplainedItem:
        """Explain an item."""


_HERE = Path(__file__).parent
_GRAPH = _HERE.parent / "inspect" / "graph"
_LONG = 400
"""Characters of a value that are shown."""


def routes(source: Source) -> Mapping[str, Route]:
    """Return the routes of the console."""
    return {
        "/": lambda parameters, nonce: Answer(_rules(source, nonce)),
        "/api/status": lambda parameters, nonce: json_answer(source.status()),
        "/item": lambda parameters, nonce: Answer(_item(source, parameters)),
    }


def failure_answer(path: str, message: str, status: int) -> Answer:
    """Return the answer for an error, in the form of the route."""
    if path.startswith("/api/"):
        return json_answer({"error": message}, status)
    form = _key_form("") if path == "/item" else ""
    return Answer(_document("Error", path, form + _message("error", message)), status=status)


# The frame


def _links(path: str) -> str:
    names = (("/", "Rules"), ("/item", "Item"))
    links = "".join(f'<a href="{to}"{" aria-current=page" if to == path else ""}>{name}</a>' for to, name in names)
    return f'<nav class="pages">{links}</nav>\n'


def _style() -> str:
    return (_HERE / "page.css").read_text(encoding="utf-8")


def _document(title: str, path: str, content: str, place: str = "") -> str:
    where = f"<p>{escape(place)}</p>" if place else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{(_GRAPH / "page.css").read_text(encoding="utf-8")}
{_style()}</style>
</head>
<body class="sheet">
<header class="bar">
<div class="what"><h1>{escape(title)}</h1>{where}</div>
{_links(path)}</header>
<main class="content">
{content}
</main>
</body>
</html>
"""


def _message(level: str, text: str) -> str:
    return f'<p class="message s-{level}" role="status">{prose(text)}</p>'


def _reads(reads: Reads) -> str:
    noun = "read unit" if reads.units == 1 else "read units"
    return (
        f'<p class="reads">Read with {_count(reads.requests, "request")} to DynamoDB, {reads.units:g} {noun}. '
        "Nothing was written.</p>"
    )


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else noun + 's'}"


# Rules


def _rules(source: Source, nonce: str) -> str:
    script = (_HERE / "live.js").read_text(encoding="utf-8")
    links = f'{_links("/")}<p class="place">{escape(source.place)}</p>\n'
    return page(source.graph, Frame(links, _style(), script, nonce))


# Items


def _key_form(key: str) -> str:
    return (
        '<form action="/item" class="ask"><label for="key">Key</label>'
        f'<input id="key" name="key" value="{escape(key)}" placeholder="PK=POST#p1,SK=METADATA" size="48" required '
        'autocomplete="off" spellcheck="false"><button>Explain</button></form>'
    )


def _item(source: Source, parameters: Mapping[str, str]) -> str:
    key = parameters.get("key", "").strip()
    if not key:
        hint = '<p class="quiet">Shows where each attribute of an item comes from, and how current it is.</p>'
        return _document("Item", "/item", _key_form("") + hint, source.place)
    view = source.item(key)
    report = view.report
    parts = [_key_form(encode_key(report.key)), *_explain(source.program, report, view.ages), _reads(view.reads)]
    return _document(key_words(report.key), "/item", "\n".join(parts), source.place)


def _explain(program: Program, report: ItemExplanation, ages: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    yield f'<p class="lead">{_subject(report)}</p>'
    yield _verdict(report)
    if report.other_rules:
        yield _message("warning", "Other rules than these are active. Run `projections backfill` to activate these.")
    written = origins(program.model)
    for derived in sorted(report.derived, key=lambda derived: derived.agrees):
        yield _rule_part(derived, written, ages.get(derived.rule.name))
    if report.image is not None:
        yield _own(program, report)
    if report.source is not None:
        yield _contributions(report.source)
    for drift in report.left_over:
        yield _message("warning", f"Rule {drift.rule}: {KINDS[drift.kind]}.")


def _subject(report: ItemExplanation) -> str:
    if report.image is None:
        return "The item does not exist."
    if report.item is None:
        return "No entity matches this item."
    variables = ", ".join(f"{name} {text}" for name, text in report.item.variables.items())
    return f"<b>{escape(report.item.entity.name)}</b>" + (f" with {escape(variables)}" if variables else "")


def _verdict(report: ItemExplanation) -> str:
    if report.drifts:
        text = f"{_count(len(report.drifts), 'difference')}. Reload before you act: a change may be pending."
        kinds = dict.fromkeys(drift.kind for drift in report.drifts)
        return _message("error", text) + "".join(
            f'<p class="quiet">{escape(f"{kind}: {KINDS[kind]}.")}</p>' for kind in kinds
        )
    if any(derived.contributions is not None and derived.compared for derived in report.derived):
        text = "The item and the ledger agree. `projections verify` also compares groups with all their source items."
        return _message("ok", text)
    return _message("ok", "No drift.")


def _own(program: Program, report: ItemExplanation) -> str:
    """Return the attributes of an item that no rule writes."""
    assert report.image is not None
    derived = {attribute.name for explained in report.derived for attribute in explained.attributes}
    keys = program.tables[report.key.table].key_attributes
    hidden = [name for name in report.image if name.startswith(program.guard_prefix)]
    names = [*keys, *sorted(name for name in report.image if name not in (*keys, *hidden, *derived))]
    rows = [(name, _value(plain(report.image[name])), "key" if name in keys else "application") for name in names]
    guards = f'<p class="quiet">{_count(len(hidden), "guard")} of rules not shown.</p>' if hidden else ""
    return _section("Key and attributes of the application", _table(("Attribute", "Value", "From"), rows) + guards)


def _rule_part(derived: Derived, written: Mapping[str, Mapping[str, Origin]], ages: tuple[float, float] | None) -> str:
    target = getattr(derived.rule, "into", derived.rule.source).name
    hows = written.get(target, {})
    state = "" if derived.state == LIVE else f' <span class="pill l-warn">{escape(derived.state)}</span>'
    rows = [(attr.name, _show(attr), _how(derived.rule.name, attr.name, hows)) for attr in derived.attributes]
    mark = '<span class="dot l-ok" title="no difference"></span>'
    if not derived.agrees:
        mark = '<span class="pill l-action">differs</span>'
    elif not derived.publishes:
        mark = '<span class="pill l-warn">publishes nothing</span>'
    parts = [_table(("Attribute", "Value", "From"), rows)] if rows else []
    parts.append(f'<p class="fresh">{_freshness(derived)}</p>')
    if ages is not None:
        text = f"In 15 minutes, changes were {ages[0]:.1f} s old when this rule had read them (p99: {ages[1]:.1f} s)."
        parts.append(f'<p class="quiet">{text}</p>')
    if derived.sources:
        parts.append(f"<p>Sources: {', '.join(_link(key, what) for key, what in derived.sources)}</p>")
    for text in (derived.description, derived.more, *derived.notes):
        parts.append(f'<p class="quiet">{prose(text)}</p>' if text else "")
    if derived.problem:
        parts.append(_message("error", derived.problem))
    name = (
        f'<a href="/#rule-{escape(derived.rule.name)}">{escape(derived.rule.name)}</a> '
        f"<small>{escape(derived.rule.kind)} of {escape(' and '.join(s.name for s in derived.rule.sources))}</small>"
    )
    title = f"<h2>{icon(derived.rule.kind)}{name}{state}{mark}</h2>"
    return f'<section class="box k-{derived.rule.kind}">{title}{"".join(parts)}</section>'


def _how(rule: str, attribute: str, hows: Mapping[str, Origin]) -> str:
    origin = hows.get(attribute, hows.get(EVERY))
    return escape(origin.how) if origin is not None and origin.rule == rule else ""


def _freshness(part: Derived) -> str:
    """Return how current the values of a rule are, by the versions of the guard and of the ledger or parent."""
    if not part.publishes:
        return "Not published."
    counted = f" from {_count(part.contributions, 'contribution')}" if part.contributions is not None else ""
    if part.guarded and part.known and part.at != part.known:
        at, newest = escape(version_words(part.at)), escape(version_words(part.known))
        return f"<b>Not current</b>: as of {at}; the newest is {newest}{counted}."
    if part.guarded and part.known:
        current = "Current" if part.agrees else "Its version is the newest"
        return f"{current}: as of {escape(version_words(part.at))}{counted}."
    if part.guarded:
        return f"As of {escape(version_words(part.at))}."
    if part.contributions is not None:
        return f"The ledger has {_count(part.contributions, 'contribution')} as of {escape(version_words(part.known))}."
    return "Without a version: written together with, or computed from, the item itself."


def _link(key: str, what: str = "") -> str:
    about = f" ({escape(what)})" if what else ""
    return f'<a href="/item?{escape(urlencode({"key": key}))}">{escape(encoded_words(key))}</a>{about}'


def _contributions(contributions: Contributions) -> str:
    rows = []
    for part in contributions.contributions:
        words, wanted = map(escape, difference_words(part.recorded, part.should))
        if not part.agrees:
            words = f'<del>{words}</del> <b class="wrong">should be {wanted}</b>'
        rows.append((part.rule, _link(part.target), words + (f" ({escape(part.excuse)})" if part.excuse else "")))
    parts = [_table(("Rule", "To", "Contribution"), rows)] if rows else ["<p>None.</p>"]
    entry = contributions.entry
    if entry is not None:
        parts.append(f'<p class="fresh">The ledger has this item as of {escape(version_words(entry.version))}.</p>')
        if entry.recent:
            owed = ", ".join(encoded_words(element.partition("|")[2]) for element in sorted(entry.recent))
            parts.append(_message("warning", f"Pending publishes: {owed}"))
        parts += [_message("error", f"Rule {rule} rejected it: {why}") for rule, why in entry.refused.items()]
    elif not all(part.copy for part in contributions.contributions):
        parts.append('<p class="fresh"><b>No ledger entry</b>: no record of this item was processed.</p>')
    parts += [_message("error", f"Rule {rule}: bad input: {why}") for rule, why in contributions.problems]
    return _section("Contributions of this item", "".join(parts))


def _show(attribute: Attribute) -> str:
    value = _value(attribute.shown)
    if attribute.agrees:
        return value
    return f'<del>{value}</del> <b class="wrong">expected {_value(attribute.expected)}</b>'


def _value(value: Any) -> str:
    return f"<code>{escape(json_words(value, _LONG))}</code>"


def _section(title: str, content: str) -> str:
    return f'<section class="box"><h2>{escape(title)}</h2>{content}</section>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table. The first cell of a row is text, the others are HTML."""
    titles = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'
        for first, *cells in rows
    )
    content = f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="grid">{content}</table></div>'

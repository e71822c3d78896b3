"""The pages of the console, their routes, and what they show, as their caller reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import urlencode

from projections.console.server import Answer, Route, json_answer
from projections.inspect.explain.words import encoded_words, key_words
from projections.inspect.graph.graph_model import Graph
from projections.inspect.graph.page import Frame, escape, page, prose
from projections.language.keys import ItemKey, encode_key


class ItemView(NamedTuple):
    """The explanation of an item in the lines of `explain --item`, and what it took.

    A line has parts, each with its style, such as `bold red`. `related` has the encoded keys of its sources and targets.
    """

    key: ItemKey
    lines: Sequence[Iterable[tuple[str, str]]]
    related: Sequence[str]
    reads: str
    """The requests to DynamoDB and their read units."""


class Source(Protocol):
    """Reads what the pages show. Methods raise ProjectionsError."""

    graph: Graph
    place: str
    """The tables or the stack, for people."""

    def status(self) -> dict[str, Any]:
        """Return the state of rules, backfills and queues as JSON."""

    def item(self, key: str) -> ItemView:
        """Explain an item."""


_HERE = Path(__file__).parent
_GRAPH = _HERE.parent / "inspect" / "graph"


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
    text = f'<p class="message s-error" role="status">{prose(message)}</p>'
    return Answer(_document("Error", path, form + text), status=status)


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
    lines = "\n".join("".join(_span(*part) for part in line) for line in view.lines)
    links = ", ".join(map(_link, view.related))
    content = f'{_key_form(encode_key(view.key))}<pre class="explained">{lines}</pre>'
    content += f"<p>Its sources and targets: {links}</p>" if links else ""
    content += f'<p class="reads">Read with {view.reads}. Nothing was written.</p>'
    return _document(key_words(view.key), "/item", content, source.place)


def _link(key: str) -> str:
    return f'<a href="/item?{escape(urlencode({"key": key}))}">{escape(encoded_words(key))}</a>'


def _span(text: str, style: str) -> str:
    """Return a part of a line. The style sheet has a class for each word of a style."""
    classes = " ".join(f"t-{word}" for word in style.split() if word != "none")
    return f'<span class="{classes}">{escape(text)}</span>' if classes else escape(text)

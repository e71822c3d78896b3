"""Pieces of HTML: escaped text, templates with their variables marked, icons."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from projections.printable import printable

__all__ = ["ICONS", "escape", "icon", "key_rows", "prose", "template"]

_VARIABLE = re.compile(r"\{\{|\}\}|\{[^{}]*\}")

ICONS = {
    "copy": '<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M10.5 2.5h-6a2 2 0 0 0-2 2v6"/>',
    "aggregate": '<path d="M12.5 4.5v-2h-9L8 8l-4.5 5.5h9v-2"/>',
    "top": '<path d="M2.5 3.5h11M2.5 8h7.5M2.5 12.5h4.5"/>',
    "latest": '<circle cx="8" cy="8" r="5.75"/><path d="M8 4.5V8l2.5 1.75"/>',
    "rank": '<path d="M2.5 13.5v-5h3.5v5M6 13.5v-11h4v11M10 13.5v-7h3.5v7"/>',
    "index": '<circle cx="6.75" cy="6.75" r="4.25"/><path d="M10 10l3.5 3.5"/>',
    "compute": '<path d="M4.5 2.5h7v11h-7zM6.5 5h3M6.5 8h.5M9 8h.5M6.5 11h.5M9 11h.5"/>',
    "embed": '<rect x="2.5" y="2.5" width="11" height="11" rx="2"/><path d="M6 6h4v4"/><path d="M10 6l-4 4"/>',
}
"""SVG paths of 16 by 16, by kind of rule."""


def escape(text: object) -> str:
    return html.escape(printable(str(text)), quote=True)


def icon(kind: str) -> str:
    return f'<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">{ICONS[kind]}</svg>'


def prose(text: str) -> str:
    """Return a sentence as HTML, with the text between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def template(text: str) -> str:
    """Return a template as HTML with its variables marked."""
    parts, position = [], 0
    for found in _VARIABLE.finditer(text):
        parts.append(escape(text[position : found.start()]))
        variable = found[0] not in ("{{", "}}")
        parts.append(f'<span class="var">{escape(found[0])}</span>' if variable else found[0][0])
        position = found.end()
    return "".join(parts) + escape(text[position:])


def key_rows(key: Sequence[tuple[str, str]]) -> str:
    """Return a key as a list of attributes and templates."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{template(text)}</dd>" for name, text in key)
    return f'<dl class="key">{rows}</dl>'

"""The table-design page as HTML, which requires no network, fonts or scripts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from projections.inspect.design.blocks import Badge, Block, Cell, Code, Heading, Line, Listing, Paragraph, Span, Table
from projections.inspect.design.content import content
from projections.inspect.design.model import Design
from projections.inspect.graph.panels import escape, template
from projections.printable import printable

__all__ = ["page"]

_STYLE = Path(__file__).parent / "page.css"


def page(design: Design) -> str:
    """Return the page."""
    title, *blocks = content(design)
    assert isinstance(title, Heading)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title.text)}</title>
<style>
{_STYLE.read_text(encoding="utf-8")}</style>
</head>
<body>
<header>
{_block(title)}
{_contents(blocks)}
</header>
<main>
{chr(10).join(map(_block, blocks))}
</main>
</body>
</html>
"""


def _contents(blocks: Sequence[Block]) -> str:
    links = [
        f'<a href="#{escape(one.anchor)}">{escape(one.text)}</a>'
        for one in blocks
        if isinstance(one, Heading) and one.anchor
    ]
    return f"<nav>{''.join(links)}</nav>"


def _block(block: Block) -> str:
    match block:
        case Heading():
            anchor = f' id="{escape(block.anchor)}"' if block.anchor else ""
            return f"<h{block.level}{anchor}>{escape(block.text)}</h{block.level}>"
        case Paragraph():
            return f"<p>{_line(block.line)}</p>"
        case Table():
            return _table(block)
        case Listing():
            lines = "\n".join(map(escape, printable(block.text, lines=True).split("\n")))
            return f'<pre tabindex="0"><code>{lines}</code></pre>'


def _table(block: Table) -> str:
    head = "".join(f'<th scope="col">{escape(column)}</th>' for column in block.columns)
    rows = "\n".join("<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    wide = ' class="wide"' if len(block.columns) > 9 else ""
    table = f"<table{wide}><thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0">{table}</div>'


def _cell(cell: Cell) -> str:
    return "".join(f"<div>{_line(line)}</div>" for line in cell)


def _line(line: Line) -> str:
    return "".join(map(_span, line))


def _span(span: Span) -> str:
    match span:
        case Code():
            return f"<code>{template(span.text)}</code>"
        case Badge():
            return f'<span class="badge {span.tone}">{escape(span.text)}</span>'
    return escape(span)

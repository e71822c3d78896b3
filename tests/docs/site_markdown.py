"""Markdown of GitHub as Markdown of Python: the pages of docs/ are read there, and MkDocs builds the site from them.

GitHub aligns the parts of a list item with its text. Python-Markdown needs four spaces: with fewer, a block of code ends the
list, and the numbers begin again. It takes bullets after a numbered list for more steps. In a table, GitHub needs `\\|` for
a bar in code. Python-Markdown would show the backslash.
"""

from __future__ import annotations

import re

__all__ = ["for_site"]

_ITEM = re.compile(r"^( *)([-*]|\d+\.) +(?=\S)")
_CODE = re.compile(r"`[^`]+`")


def for_site(markdown: str) -> str:
    """Return a page as MkDocs needs it."""
    lines, width, fenced, numbered = list[str](), 0, False, False
    for line in markdown.splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent < width and not fenced:
            width = 0
        item = _ITEM.match(line) if not fenced else None
        if width and line.strip():
            line = " " * (4 - width) + line
        elif item and not item[1]:
            if numbered and not item[2].endswith("."):
                lines += ["<!-- -->", ""]
            width, numbered = len(item[0]), item[2].endswith(".")
        elif line.strip() and not width:
            numbered = False
        if line.lstrip().startswith("```"):
            fenced = not fenced
        if line.startswith("|") and not fenced:
            line = _CODE.sub(lambda found: found[0].replace("\\|", "|"), line)
        lines.append(line)
    return "\n".join(lines) + "\n"

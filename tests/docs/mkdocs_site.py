"""A hook of MkDocs (`make docs`): the pages of docs/ become a site that works offline.

The pages also link to files of this repository outside docs/. Pages such as CHANGELOG.md become pages of the site, and so
does code, with line numbers. A link to a file that does not exist ends the build.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from emulators import SCRIPTS, browser_script
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from site_markdown import for_site

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(\[[^\]]*\])\(([^)#\s]+)(#[^)\s]*)?\)")
FENCED = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
OF_SITE = (".md", ".svg", ".png")  # of docs/, in the site as they are
LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".mk": "makefile"}


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every file outside docs/ that a page links to, and the scripts that Material would load from a CDN.

    mermaid draws the diagrams. With iframe-worker the search works in pages that are opened from a disk.
    """
    for path in sorted(linked()):
        files.append(File.generated(config, uri(path), content=text_of(path)))
    for name in SCRIPTS:
        files.append(File.generated(config, f"assets/{name}.js", abs_src_path=str(browser_script(name))))
    config.extra_javascript.append("assets/mermaid.js")
    return files


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Load iframe-worker from this site."""
    top = posixpath.relpath(".", posixpath.dirname(page.url) or ".")
    return offline(output, top + "/", page.file.src_uri)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Do the same for pages that have no Markdown, such as 404.html."""
    return offline(output_content, "/", template_name)


def offline(output: str, top: str, name: str) -> str:
    """Load iframe-worker from this site, which begins at `top`. No page loads anything from another host."""
    output = output.replace("https://unpkg.com/iframe-worker/shim", f"{top}assets/iframe-worker.js")
    if found := re.search(r"<(?:script|img|link|iframe)[^>]*(?:src|href)=\"?https?://[^>]*>", output):
        raise PluginError(f"{name} loads from another host: {found[0]}")
    return output


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links to files outside docs/ to their pages, and write lists and tables as MkDocs needs them."""
    name = page.file.src_uri
    place = origins().get(name, DOCS / name)

    def pointed(found: re.Match[str]) -> str:
        label, link, anchor = found[1], found[2], found[3] or ""
        if ":" in link:
            return found[0]
        target = posixpath.relpath(uri((place.parent / link).resolve()), posixpath.dirname(name) or ".")
        return f"{label}({target}{anchor})"

    return for_site(replaced(markdown, pointed))


def linked() -> set[Path]:
    """The files outside docs/ to which pages link, also those to which such pages link."""
    found: set[Path] = set()
    open_pages = sorted(DOCS.rglob("*.md"))
    while open_pages:
        page = open_pages.pop()
        for match in links(page.read_text()):
            target = outside(page, match)
            if target is not None and target not in found:
                found.add(target)
                if target.suffix == ".md":
                    open_pages.append(target)
    return found


@cache
def origins() -> dict[str, Path]:
    """Page of the site → the file outside docs/ from which it is made."""
    return {uri(path): path for path in linked()}


def outside(page: Path, link: str) -> Path | None:
    """The file of this repository outside docs/ to which a link leads; none for other links."""
    if ":" in link:
        return None
    target = (page.parent / link).resolve()
    if target.is_relative_to(DOCS) and target.suffix in OF_SITE:
        return None
    if not target.exists():
        raise PluginError(f"{page.relative_to(ROOT)} links to {link}, which does not exist")
    return target


def uri(path: Path) -> str:
    """The page of the site that shows a file or directory outside docs/, or inside it one that is not a page."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_relative_to(DOCS) and path.suffix in OF_SITE:
        return path.relative_to(DOCS).as_posix()
    return f"project/{name}" if path.suffix == ".md" else f"source/{name}.md"


def text_of(path: Path) -> str:
    """The page that shows a file or directory: pages as they are, code with line numbers."""
    if path.suffix == ".md":
        return path.read_text()
    title = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        return title + "".join(f"- `{one}`\n" for one in sorted(os.listdir(path)) if one != "__pycache__")
    text = path.read_text()
    fence = "`" * (3 + max(map(len, re.findall(r"`+", text)), default=0))
    return f'{title}{fence}{LANGUAGES.get(path.suffix, "text")} linenums="1"\n{text}\n{fence}\n'


def links(markdown: str) -> Iterator[str]:
    found: list[str] = []
    replaced(markdown, lambda match: found.append(match[2]) or match[0])
    return iter(found)


def replaced(markdown: str, change: Any) -> str:
    """Change the links outside of code blocks."""
    parts, end = [], 0
    for block in FENCED.finditer(markdown):
        parts += [LINK.sub(change, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, LINK.sub(change, markdown[end:])])

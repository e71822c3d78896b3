"""`make docs`: the documentation as a site, opened from the disk in Chromium."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
MKDOCS = ROOT / ".venv-docs/bin/mkdocs"

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not MKDOCS.exists() and not os.environ.get("REQUIRE_EMULATORS"):
        pytest.skip("MkDocs is not installed: `make docs` installs it")
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [str(MKDOCS), "build", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return place


def test_every_page_is_in_the_site_as_it_is_written_and_loads_nothing_from_elsewhere(
    site: Path, watched: Callable[..., Page]
) -> None:
    """Python-Markdown ends a numbered list at a block that has less than four spaces, and shows backslashes in tables."""
    tab = watched((site / "index.html").as_uri())
    for page in sorted((ROOT / "docs").rglob("*.md")):
        name = page.relative_to(ROOT / "docs").as_posix().replace("README.md", "index.md").replace(".md", ".html")
        tab.goto((site / name).as_uri())
        heading = page.read_text().splitlines()[0].removeprefix("# ")
        assert (tab.text_content("h1") or "").replace("¶", "").strip() == heading.replace("`", "")
        lists = "[...document.querySelectorAll('article ol')].filter(one => one.children.length === 1).length"
        assert tab.evaluate(lists) == 0, f"{name} has a numbered list of one step"
        assert "\\|" not in " ".join(tab.locator("article table code").all_text_contents()), name
    assert '"/assets/iframe-worker.js"' in (site / "404.html").read_text()


def test_diagrams_are_drawn(site: Path, watched: Callable[..., Page]) -> None:
    tab = watched((site / "how-it-works.html").as_uri())
    tab.wait_for_function("document.querySelectorAll('div.mermaid').length === 2", timeout=20_000)
    assert tab.query_selector_all("pre.mermaid") == []


def test_the_search_finds_a_section(site: Path, watched: Callable[..., Page]) -> None:
    tab = watched((site / "index.html").as_uri())
    tab.click(".md-search__input")
    tab.keyboard.type("Templates and pipes")
    tab.wait_for_selector(".md-search-result__item a[href*='rules-reference.html']", state="attached", timeout=20_000)


def test_links_to_code_lead_to_the_code(site: Path, watched: Callable[..., Page]) -> None:
    tab = watched((site / "walk.html").as_uri())
    link = tab.query_selector("a[href*='projections/engine/plan.py']")
    assert link is not None
    link.click()
    tab.wait_for_selector("h1")
    shown = tab.text_content("article code") or ""
    assert (ROOT / "projections/engine/plan.py").read_text().splitlines()[0] in shown

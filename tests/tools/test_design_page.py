"""The table-design page in a browser. With SCREENSHOTS=directory the pages are also written there as PNG."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_design import SHIPPED
from test_graph_page import CONTRAST, SCHEMES, shot
from test_printing import EVIL, asked

from projections.init.models.samples import sample_items
from projections.inspect.design import Design, design_of, page
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.review import reviewed

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SOCIAL = next(path for path in SHIPPED if path.stem == "social")


def design(path: Path, title: str) -> Design:
    text = path.read_text()
    rules = loads(text)
    samples = sample_items(Program.from_document(rules.canonical()))
    return design_of(rules, title, samples, reviewed(text))


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a design from a file. Anything on the console, and any request to the network, fails the test."""
    found: list[str] = []
    tabs: list[Page] = []

    def opened(path: Path, title: str = "rules.yaml", *, scheme: Any = "light", width: int = 1440) -> Page:
        target = tmp_path / "design.html"
        target.write_text(page(design(path, title)), encoding="utf-8")
        tab = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
        tab.on("console", lambda message: found.append(message.text))
        tab.on("pageerror", lambda error: found.append(str(error)))
        tab.on("dialog", lambda dialog: found.append(dialog.message))
        tab.on("request", lambda request: found.extend([] if request.url.startswith("file:") else [request.url]))
        tab.goto(target.as_uri())
        tabs.append(tab)
        return tab

    yield opened
    for tab in tabs:
        tab.close()
    assert found == []


def test_all_sections_and_queries_are_there(opened: Callable[..., Page]) -> None:
    tab, shown = opened(SOCIAL), design(SOCIAL, "social.yaml")
    links = tab.locator("nav a")
    assert links.count() == tab.locator("h2").count() == 9
    for address in links.evaluate_all("links => links.map((link) => link.getAttribute('href'))"):
        assert tab.locator(f"h2{address}").count() == 1
    matrix = tab.locator("table.wide")
    assert matrix.locator("tbody tr").count() == len(shown.patterns)
    row = matrix.locator("tr", has_text="AP-05").inner_text()
    for part in ("feed", "PUBLISHED#{period publishedAt|date(%Y-%m)}", "GSI1SK BETWEEN", "reads backward", "limit 20"):
        assert part in row
    assert tab.locator(".badge.bad").first.inner_text() == "not met"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_have_enough_contrast(opened: Callable[..., Page], scheme: str) -> None:
    tab = opened(SOCIAL, scheme=scheme)
    shot(tab, f"design-{scheme}")
    assert tab.evaluate(CONTRAST) == {}


@pytest.mark.parametrize("width", [1440, 420])
def test_page_fits_the_window_and_wide_tables_scroll(opened: Callable[..., Page], width: int) -> None:
    tab = opened(SOCIAL, width=width)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = tab.locator(".scroll", has=tab.locator("table.wide"))
    scrolls = wide.evaluate("one => one.scrollWidth > one.clientWidth")
    assert scrolls is (width == 420)
    wide.focus()
    assert tab.evaluate("document.activeElement.className") == "scroll"


def test_printed_page_shows_whole_tables_in_light_colours(opened: Callable[..., Page]) -> None:
    tab = opened(SOCIAL, scheme="dark", width=1030)  # as wide as a landscape page
    tab.emulate_media(media="print")
    shot(tab, "design-print")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert tab.locator("nav").is_hidden()
    cut = (
        "[...document.querySelectorAll('table')].filter((one) => one.getBoundingClientRect().right > innerWidth).length"
    )
    assert tab.evaluate(cut) == 0


def test_hostile_names_are_shown_as_text(opened: Callable[..., Page], tmp_path: Path) -> None:
    tab = opened(Path(asked(tmp_path)), EVIL)
    assert tab.locator("script, a[href^=http]").count() == 0
    assert "<script>alert(1)</script>" in tab.locator("h1").inner_text()
    assert "<script>alert(1)</script>" in tab.locator("table.wide").inner_text()

"""The graph's page in a browser: what a person sees, points at and reaches with the keyboard.

With SCREENSHOTS=directory the pages are also written there as PNG, light and dark, for looking at.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from projections.inspect.graph.graph_model import Graph, graph_of
from projections.inspect.graph.page import page
from projections.language.loader import loads
from projections.language.review import review_text

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "social": ROOT / "projections/rules/social.yaml",
    "shop": ROOT / "tests/language/rules/shop.yaml",
    "tables": ROOT / "tests/simulation/rules/tables.yaml",
}


def graph(name: str) -> Graph:
    text = FILES[name].read_text()
    return graph_of(loads(text), FILES[name].name, review_text(text, FILES[name].name).findings)


@pytest.fixture
def opened(watched: Callable[..., Page], tmp_path: Path) -> Callable[..., Page]:
    """Opens a graph's page from a file."""

    def opened(name: str, *, at: str = "", **view: Any) -> Page:
        path = tmp_path / f"{name}.html"
        path.write_text(page(graph(name)), encoding="utf-8")
        return watched(path.as_uri() + at, **view)

    return opened


def shot(tab: Page, name: str) -> None:
    directory = os.environ.get("SCREENSHOTS")
    if directory:
        tab.screenshot(path=Path(directory) / f"{name}.png")


BOXES = """() => [...document.querySelectorAll("#stage .card, #stage .rule")].map((one) => {
  const box = one.getBoundingClientRect();
  return [one.dataset.entity || one.dataset.rule, box.left, box.top, box.right, box.bottom];
})"""

LINES = """() => [...document.querySelectorAll(".edge path")].flatMap((path) => {
  const box = (id) => document.querySelector(`#stage :is(.card[data-entity="${id}"], .rule[data-rule="${id}"])`)
    .getBoundingClientRect();
  const matrix = path.getScreenCTM(), ends = [path.dataset.from, path.dataset.to];
  return [0, path.getTotalLength()].flatMap((at, index) => {
    const point = path.getPointAtLength(at).matrixTransform(matrix), end = box(ends[index]);
    const met = Math.min(Math.abs(point.x - end.left), Math.abs(point.x - end.right)) < 2 &&
      end.top < point.y && point.y < end.bottom;
    return met ? [] : [ends.join(" to ") + " misses " + ends[index]];
  });
})"""

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (colours) => rgb(colours).map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (one) => {
    const colours = [];
    for (; one; one = one.parentElement) colours.unshift(getComputedStyle(one).backgroundColor);
    return colours;
  };
  const found = {};
  for (const one of document.querySelectorAll("body *")) {
    const words = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!words || !one.checkVisibility() || one.matches("script, style, .hidden")) continue;
    const back = behind(one), a = light([...back, getComputedStyle(one).color]), b = light(back);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found[one.className + " " + one.textContent.slice(0, 20)] = ratio;
  }
  return found;
}"""


def overlapping(boxes: list[Any]) -> list[tuple[Any, Any]]:
    found = []
    for index, (one, left, top, right, bottom) in enumerate(boxes):
        for other, left_2, top_2, right_2, bottom_2 in boxes[index + 1 :]:
            if left < right_2 - 1 and left_2 < right - 1 and top < bottom_2 - 1 and top_2 < bottom - 1:
                found.append((one, other))
    return found


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("width", [1440, 800])
def test_everything_is_there_and_nothing_overlaps(opened: Callable[..., Page], name: str, width: int) -> None:
    tab, shown = opened(name, width=width), graph(name)
    boxes = tab.evaluate(BOXES)
    outside = [rule for rule in shown.rules.values() if not rule.inside]
    assert sorted(box[0] for box in boxes) == sorted(
        [f"entity-{entity}" for entity in shown.entities] + [f"rule-{rule.name}" for rule in outside]
    )
    assert overlapping(boxes) == []
    assert tab.evaluate(LINES) == []
    for rule in shown.rules.values():
        assert tab.locator(f"button:is(.rule, .chip)[data-rule=rule-{rule.name}] .name").inner_text() == rule.name
    for entity in shown.entities.values():
        key = tab.locator(f"[data-entity=entity-{entity.name}] > .key dd").all_inner_texts()
        assert [text.replace("\n", "") for text in key] == [template for _, template in entity.key]


def test_a_click_shows_keys_conditions_cost_and_findings(opened: Callable[..., Page]) -> None:
    tab = opened("social")
    assert tab.locator("#overview").is_visible()
    tab.click("button.rule[data-rule=rule-discussion]")
    panel = tab.locator("#rule-discussion")
    assert not tab.locator("#overview").is_visible()
    text = panel.inner_text()
    for part in (
        "Keeps commentCount, averageStars and praiseCount on each PostMeta",
        "COMMENT#{createdAt}#{commentId}",
        "POST#{postId}",
        "hidden is false or hidden is absent.",
        "avg(stars) of Comment",
        "5\nwrite units\na change by itself",
        "≈ 2\nwrite units\neach, in a large batch",
        "1\npass\nthrough the stream",
    ):
        assert part in text
    tab.click("button.chip[data-rule=rule-listed]")
    text = tab.locator("#rule-listed").inner_text()
    for part in (
        'where status is "draft"',
        "DRAFTS#{userId}",
        "2\npasses",
        "note hot-partition",
        "social.yaml:75:17",
        "→",
    ):
        assert part in text or part == "→"
    tab.click("button.chip[data-rule=rule-listed]")
    assert tab.locator("#overview").is_visible()


def test_an_entity_shows_what_rules_write_on_it(opened: Callable[..., Page]) -> None:
    tab = opened("social")
    tab.click("[data-entity=entity-PostMeta] .head")
    panel = tab.locator("#entity-PostMeta")
    text = re.sub(r"\s+", " ", panel.inner_text())
    assert "These items are copies: a rule creates and deletes them." in text
    assert 'Recognised by: EntityType is "PostMeta".' in text
    assert "likeCount count of Like engagement" in text
    panel.get_by_role("button", name="engagement").click()
    assert tab.locator("#rule-engagement").is_visible()
    assert "chosen" in str(tab.locator("button.rule[data-rule=rule-engagement]").get_attribute("class"))


def hot(tab: Page) -> set[str]:
    return set(
        tab.evaluate("[...document.querySelectorAll('.hot')].map((one) => one.dataset.rule || one.dataset.entity)")
    )


def test_one_gets_everywhere_by_keyboard(opened: Callable[..., Page]) -> None:
    tab = opened("social")
    focused = "document.activeElement.dataset.go"
    tab.locator("[data-entity=entity-Post] .head").focus()
    tab.keyboard.press("Tab")
    assert str(tab.evaluate(focused)).startswith("rule-")
    tab.locator("[data-entity=entity-User] .head").focus()
    tab.keyboard.press("ArrowDown")
    rule = tab.evaluate(focused)
    assert rule in {"rule-authorship", "rule-commentAuthor"}  # those that read User
    assert rule in hot(tab)
    tab.keyboard.press("Enter")
    assert tab.locator(f"#{rule}").is_visible()
    assert tab.url.endswith(f"#{rule}")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert tab.evaluate(outline) == "solid"
    tab.keyboard.press("Escape")
    assert tab.locator("#overview").is_visible()
    tab.keyboard.press("/")
    tab.keyboard.type("likecount")
    assert hot(tab) >= {"rule-engagement"}
    assert "rule-discussion" not in hot(tab)
    rows = tab.locator("#overview .row:visible .name").all_inner_texts()
    assert rows == ["engagement"]
    stops = tab.evaluate("[...document.querySelectorAll('#stage button')].every((one) => one.tabIndex === 0)")
    assert stops

"""docs/how-it-works.md: what it shows is what is stored, and what it names is there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from guide import DOCS, ROOT, blocks, examples, headings

from projections.engine import embed_lists, embeds, ledger, publishing, records
from projections.engine.store import Image
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.values import plain_item
from projections.local.event_replay import MemoryTables, schemas
from projections.local.functions import Functions
from projections.local.items import wire_item
from projections.stores.memory import MemoryStore

sys.path.append(str(Path(__file__).parents[1] / "simulation"))

from mutants import MUTANTS

PAGE = (DOCS / "how-it-works.md").read_text()
NOW = 1_735_689_600.0
"""2025-01-01."""


def shown() -> list[list[dict[str, Any]]]:
    """The items that the page shows, block by block."""
    return [[json.loads(line) for line in b.text.splitlines()] for b in blocks(PAGE) if b.language == "json"]


class Deployed:
    """The first rules of the guide to rules with an entity, deployed in memory."""

    def __init__(self, entity: str) -> None:
        first = next(one for one in examples((DOCS / "rules.md").read_text()) if f"  {entity}: " in one.rules)
        program = Program.from_document(loads(first.rules).document())
        self.tables = MemoryTables(schemas(program), [])
        assert isinstance(self.tables.store, MemoryStore)
        self.store = self.tables.store
        self.functions = Functions(
            program,
            self.store,
            tables={"main": "main"},
            quarantine=lambda rejected: None,
            clock=lambda: NOW,
            sleep=lambda seconds: None,
        )

    def settle(self) -> None:
        while found := self.tables.records():
            assert self.functions.stream({"Records": found}) == {"batchItemFailures": []}

    def ledger(self) -> list[dict[str, Any]]:
        return [plain_item(item) for item in self.store.items("ledger") if item["pk"]["S"] != "R"]


def put(store: MemoryStore, partition: str, sort: str) -> Image:
    image = {"PK": {"S": partition}, "SK": {"S": sort}}
    store.put("main", image)
    return image


def test_what_it_shows_is_stored() -> None:
    here = Deployed("Like")
    put(here.store, "POST#p1", "METADATA")
    here.settle()
    like = put(here.store, "USER#ann", "LIKE#p1")
    here.settle()
    liked, post, _, taken_back = shown()
    assert same(here.ledger()) == same(liked)
    assert same([item for item in map(plain_item, here.store.items("main")) if item["SK"] == "METADATA"]) == same(post)
    here.store.remove(here.store.schema("main").key("main", like))
    here.settle()
    assert same(here.ledger()) == same(taken_back)


def test_the_created_item_that_it_shows_is_stored() -> None:
    here = Deployed("Product")
    order = {"PK": "CUSTOMER#c1", "SK": "ORDER#1", "lines": [{"sku": "tea", "qty": 2, "price": 3}]}
    here.store.put("main", dict(wire_item(order, "the order")))
    here.settle()
    _, _, product, _ = shown()
    assert same([item for item in map(plain_item, here.store.items("main")) if item["SK"] == "SALES"]) == same(product)


def same(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs between streams and ledgers. Of sequence numbers, digests and checksums, only lengths count."""
    found = []
    for item in items:
        lengths: dict[str, Any] = {}
        if "." in str(item.get("version")):
            lengths["version"] = len(item["version"])
        for name, value in item.items():
            if name == "~":
                lengths[name] = len(value)
            elif name.startswith("~"):
                lengths[name] = (
                    len(value) if isinstance(value, str) else {**value, "d": len(value["d"]), "s": len(value["s"])}
                )
        found.append({**item, **lengths})
    return found


def test_the_tests_it_names_are_there() -> None:
    section = PAGE.partition("## What is never done to your data")[2].partition("\n## ")[0]
    promises = [promise for promise in section.split("\n- ")[1:] if promise.startswith("**")]
    assert len(promises) >= 10
    assert all("::" in promise for promise in promises), "every promise names a test"
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", section):
        assert f"\ndef {name}(" in (ROOT / path).read_text(), (path, name)
    assert section.count("::") == len(re.findall(r"`tests/[\w/]+\.py::test_\w+`", section))


def test_the_mutants_it_names_are_those_that_are_caught() -> None:
    section = PAGE.partition("## How it is tested")[2].partition("\n## ")[0]
    named = re.findall(r"^\|.*\| `(\w+)` \|$", section, re.MULTILINE)
    assert len(named) > 10
    assert set(named) <= {mutant.name for mutant in MUTANTS}


@pytest.mark.parametrize(
    ("words", "number"),
    [
        ("which is {} actions in one request", ledger.MOST_ACTIONS),
        ("the second time after {} seconds", int(embeds.SETTLE_SECONDS)),
        ("query the children, {} a page", embed_lists.CHILDREN_PER_PAGE),
        ("update children, {} a request", embed_lists._AT_ONCE),
        ("remains as a tombstone for {} days", publishing.TOMBSTONE_SECONDS // 86400),
        ("padded to {} digits", len(records.version_of("", "1")) - 1),
    ],
)
def test_its_numbers_are_those_of_the_code(words: str, number: int) -> None:
    assert words.format(number) in " ".join(PAGE.split())


def test_figures_of_cost_are_those_of_the_cost_page() -> None:
    measured = (DOCS / "cost.md").read_text()
    single = re.search(r"\| a single like \| ([\d.]+) \| (\d+) \|", measured)
    many = re.search(r"\| 1000 likes of one post, one batch \| ([\d.]+) \| ([\d.]+) \|", measured)
    assert single is not None
    assert many is not None
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert (
        f"a like takes {float(single[1]):g} write units alone, and {many[1]} in a batch of 1000 likes of one post"
        in readme
    )


@pytest.mark.parametrize("page", ["how-it-works.md", "operations.md", "rules.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (DOCS / page).read_text()
    for path, anchor in re.findall(r"\]\((?!https://)([^)#]*)(?:#([\w-]+))?\)", text):
        target = (DOCS / path) if path else DOCS / page
        assert target.is_file(), path
        if anchor:
            there = {
                re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for _, title in headings(target.read_text())
            }
            assert anchor in there, anchor

"""docs/rules.md and docs/rules-reference.md: their tables and examples show what rules do, and nothing is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
from guide import DOCS, ROOT, Example, examples, headings, said
from rules_reference_page import MARKED

import projections
from projections.language.findings.kinds import CODES
from projections.language.measures import FUNCTIONS
from projections.language.models import ACTIONS, Projection
from projections.language.patterns import Pattern
from projections.language.pipes import PIPES
from projections.language.schema import json_schema
from projections.language.templates import Template
from projections.language.values import lookup, plain_item, wire
from projections.local.items import value_of, wire_item
from projections.testing.cases import Case
from projections.testing.scenario import Scenario
from tests.operations.backfill.stage import Stage
from tests.yaml_text import yaml_data

GUIDE = (DOCS / "rules.md").read_text()
REFERENCE = (DOCS / "rules-reference.md").read_text()
EXAMPLES = [*examples(GUIDE), *examples((ROOT / "tests/docs/examples.md").read_text())]

of_examples = pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: f"{one.heading}-{one.line}")


@of_examples
def test_check_says_of_an_example_what_the_page_says_and_else_nothing(example: Example) -> None:
    assert said(example.rules) == (example.findings or []), "python tests/docs/guide.py writes it again"


@pytest.mark.parametrize("redeliver", [False, True], ids=["once", "again"])
@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.case and not one.before], ids=lambda one: f"{one.heading}-{one.line}"
)
def test_an_example_makes_of_items_what_the_page_shows(example: Example, redeliver: bool) -> None:
    assert example.case is not None
    assert example.case.keys() >= {"when", "then"}
    Case(example.heading, example.line, example.case).play(
        Scenario(projections.loads(example.rules), redeliver=redeliver)
    )


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.before], ids=lambda one: one.heading)
def test_rules_that_come_later_make_of_the_same_tables_what_the_page_shows(example: Example) -> None:
    assert example.before is not None
    assert example.before.case is not None
    assert example.case is not None
    stage = Stage(_tail(example.before.rules))
    for step in example.before.case["when"]:
        stage.store.put("main", wire_item(step["put"], "put"))
    stage.settle()
    assert sorted_items(stage) >= plainly(example.before.case["then"])
    later = stage.under(_tail(example.rules))
    later.filled()
    assert [one for one in sorted_items(later) if one["SK"] == "METADATA"] == plainly(example.case["then"])


def _tail(rules: str) -> str:
    """Without the table, which the stage has already."""
    return re.sub(r"^table:.*\n", "", rules, flags=re.MULTILINE)


def plainly(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((plain_item(wire_item(item, "then")) for item in items), key=str)


def sorted_items(stage: Stage) -> list[dict[str, Any]]:
    items = [
        {name: value for name, value in item.items() if not name.startswith("~")} for item in stage.store.items("main")
    ]
    return sorted(map(plain_item, items), key=str)


# --- tables of the page ---


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", REFERENCE, re.DOTALL | re.MULTILINE)
    assert section is not None
    table = re.search(r"^\|.*?\n\n", section[1], re.DOTALL | re.MULTILINE)
    assert table is not None
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in table[0].strip().splitlines()]
    return [[cell.strip().strip("`").replace("\\|", "|") for cell in row] for row in cells[2:]]


@pytest.mark.parametrize(("pattern", "fits", "not_"), rows("Patterns"), ids=lambda text: str(text))
def test_a_pattern_fits_what_the_page_says(pattern: str, fits: str, not_: str) -> None:
    matches = Pattern.parse(yaml_data(pattern)).matches

    def fitting(item: Mapping[str, Any]) -> bool:
        image = {name: value_of(value) for name, value in item.items()}
        return matches(lambda name, stored: lookup(image, name, stored))

    assert fitting(yaml_data(fits))
    assert not fitting(yaml_data(not_))


@pytest.mark.parametrize(("template", "value", "text"), rows("Templates and pipes"), ids=lambda text: str(text))
def test_a_template_makes_the_text_that_the_page_shows(template: str, value: str, text: str) -> None:
    number = re.fullmatch(r"[0-9.]+", value)
    given = {"N": value} if number else wire(value)
    assert Template.parse(template).render(lambda name: given if name == "x" else None) == text


# --- nothing is left out ---


def fields(model: type[Any]) -> list[str]:
    return [name.removesuffix("_") for name in model.model_fields]


def test_every_mapping_of_a_rule_file_has_its_list_of_keys() -> None:
    mappings = {name for name, one in json_schema()["$defs"].items() if "title" in one}
    assert set(MARKED.findall(REFERENCE)) == mappings | {"Rules"}, "write `<!-- keys: … -->` in docs/rules-reference.md"


@pytest.mark.parametrize("kind", ACTIONS)
def test_every_option_of_a_kind_is_in_an_example(kind: str) -> None:
    rules = [rule for _, rule in used() if kind in rule]
    assert rules, f"add an example of {kind} to docs/rules.md or tests/docs/examples.md"
    model, _ = get_args(Projection.model_fields["copy_" if kind == "copy" else kind].annotation)
    options = {*fields(model)} - {"root", "claimed"}
    given = {option for rule in rules for option in rule[kind]} if options else set()
    assert options <= given, f"examples of {kind} in docs/rules.md and tests/docs/examples.md have every option"


def used() -> Iterator[tuple[str, dict[str, Any]]]:
    for example in EXAMPLES:
        if not example.findings:
            yield from yaml_data(example.rules)["projections"].items()


def test_every_pipe_is_in_the_table_of_templates() -> None:
    templates = " ".join(row[0] for row in rows("Templates and pipes"))
    missing = [pipe for pipe in PIPES if not re.search(rf"\|{pipe}\b", templates)]
    assert missing == [], "add a row to the table under 'Templates and pipes' in docs/rules-reference.md"


def test_every_measure_is_in_an_example() -> None:
    measures = str([rule["aggregate"]["set"] for _, rule in used() if "aggregate" in rule])
    missing = [name for name in ("count", *(f"{name}(" for name in FUNCTIONS[1:]), "'where'") if name not in measures]
    assert missing == [], "add a measure to an example under 'aggregate' in tests/docs/examples.md"


@pytest.mark.parametrize("page", [GUIDE, REFERENCE], ids=["guide", "reference"])
def test_the_list_at_the_top_links_what_is_there(page: str) -> None:
    anchors = [(level, re.sub(r"[^\w -]", "", text).lower().replace(" ", "-")) for level, text in headings(page)]
    linked = set(re.findall(r"\]\(#([\w-]+)\)", page))
    assert linked >= {anchor for level, anchor in anchors if level == 2}
    assert linked <= {anchor for _, anchor in anchors}


def test_findings_that_the_guides_name_are_findings() -> None:
    named = {
        code
        for page in DOCS.glob("*.md")
        for code in re.findall(r"`(?:# check: ignore )?(hot-[a-z-]+)`", page.read_text())
    }
    assert named
    assert named <= set(CODES)

"""Generated pages are up to date, and what they show is true."""

from __future__ import annotations

import re
import shlex
import struct
from typing import Any

import pytest
from guide import DOCS
from metric_words import FRESHNESS, METRICS, NAMESPACE
from metrics_page import SHARED, alarms, emitted, graphs
from pictures import NAMES, PHONE, PICTURES, RULES, WIDE, items
from reference import EXAMPLES, PAGES, command_of, findings_of_example, help_blocks

from projections.cli.main import COMMANDS
from projections.engine.running import COUNTS
from projections.language.findings.kinds import Severity
from projections.language.review import review


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_up_to_date(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    assert page == PAGES[name](), "python tests/docs/reference.py writes it"


@pytest.mark.parametrize("code", EXAMPLES)
def test_example_of_a_kind_has_findings_of_that_kind_only(code: str) -> None:
    findings = findings_of_example(code)
    assert {one.code for one in findings} == {code}, "the example of the Kind needs findings of this kind only"
    assert {one.severity for one in findings} <= set(EXAMPLES[code].severities)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_begins_with_its_summary(name: str) -> None:
    assert help_blocks(command_of(name))[0] == (False, COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_ends_with_examples_that_are_valid(name: str) -> None:
    as_written, text = help_blocks(command_of(name))[-1]
    assert as_written
    assert text.startswith("Example")
    invocations = re.findall(rf"projections ({name}\b[^|&>\n]*)", text)
    assert invocations
    for invocation in invocations:
        command_of(name).make_context(name, shlex.split(invocation)[1:], help_option_names=["-h", "--help"])


# docs/metrics.md lists exactly the metrics that the functions emit. `test_reference_pages` compares the page itself.


def test_every_metric_that_a_function_emits_is_described_and_no_other() -> None:
    assert METRICS.keys() == emitted().keys()
    assert set(COUNTS) <= METRICS.keys()


def test_units_and_names_are_those_that_the_functions_write(monkeypatch: pytest.MonkeyPatch) -> None:
    from handlers import common

    written: list[tuple[str, Any]] = []
    monkeypatch.setattr(common.metrics, "add_metric", lambda name, unit, value: written.append((name, unit.value)))
    common.tell(dict.fromkeys(emitted().keys() - {FRESHNESS, *SHARED}, 1), (), {}, (), {"<rule>": (1.0, 2.0)})
    assert dict(written) == {name: one.unit for name, one in METRICS.items()}
    assert common.metrics.namespace == NAMESPACE


def test_alarms_and_graphs_use_metrics_that_exist() -> None:
    used = [one["MetricName"] for one in alarms().values() if one.get("Namespace") == NAMESPACE]
    assert {name.partition(".")[0] for name in used} <= {name.partition(".")[0] for name in METRICS}


def test_every_metric_is_on_the_dashboard() -> None:
    assert {name for _, names in graphs() for name in names} == METRICS.keys()


# The pictures of the console and of the site are in the documentation, small, and of the sizes that their script makes.


SHOWN = {"site": "README.md"}


@pytest.mark.parametrize("name", NAMES)
def test_picture_is_shown_and_small(name: str) -> None:
    content = (PICTURES / f"{name}.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert struct.unpack(">II", content[16:24]) == (PHONE if name == "console-phone" else WIDE)
    assert len(content) <= 160_000
    assert f"pictures/{name}.png" in (PICTURES.parent / SHOWN.get(name, "operations.md")).read_text()


def test_there_is_no_other_picture() -> None:
    assert {path.stem for path in PICTURES.iterdir()} == set(NAMES)


def test_rules_of_the_pictures_have_no_findings_and_their_items_have_entities() -> None:
    found = review(RULES, RULES.name)
    severe: tuple[Severity, ...] = ("error", "warning")
    assert [one for one in found.findings if one.severity in severe] == []
    assert found.rules is not None
    program = found.rules.completed()
    assert len({item["PK"] + item["SK"] for item in items()}) > 50
    assert {"Line", "Trip", "Ticket", "Driver", "Delay"} <= set(program.entities)

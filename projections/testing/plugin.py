"""The pytest plugin: the fixture `projections`, and the files `*.projections.yaml` as tests.

The rules under test are the first of: `@pytest.mark.projections(rules="FILE")` or `rules: FILE` in a case file (relative to
the test's file, or the rules themselves), `--projections-rules FILE`, `projections_rules = FILE` in pytest's configuration,
and `rules.yaml` in the root directory.

`--projections-select RULES` skips the cases of case files in which no selected rule has a source item. All rules run.

`--projections-update` rewrites what the cases in case files that fail expect. Comments and layout stay.

`redeliver=True` in the marker, `redeliver: true` in a case file, `--projections-redeliver` or `projections_redeliver = true`
in pytest's configuration: every batch is delivered twice, and at the end the whole stream once more.

Only pytest is imported at first, so that runs without such tests are not slower.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projections.language.ruleset import RuleSet
    from projections.testing.scenario import Scenario

__all__ = ["projections"]

MARKER = 'projections(rules="FILE", redeliver=False): the rules under test, and whether batches are delivered twice'


REDELIVER = "Deliver every batch twice, and the whole stream again at the end."


UPDATED = pytest.StashKey[list[str]]()
"""The cases that were rewritten, each with its file."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("projections", "rules of dynamodb-projections")
    group.addoption("--projections-rules", metavar="FILE", help="The rule file under test.")
    group.addoption(
        "--projections-redeliver",
        action="store_true",
        default=None,
        help=REDELIVER,
    )
    group.addoption(
        "--projections-select",
        action="append",
        metavar="RULES",
        default=[],
        help="Only cases of case files that concern these rules: `name`, `tag:x`, `+name`, `name+`, as in --select.",
    )
    group.addoption(
        "--projections-update",
        action="store_true",
        help="Rewrite what cases that fail expect, so that they pass.",
    )
    parser.addini("projections_rules", "The rule file under test, relative to the root directory.")
    parser.addini(
        "projections_redeliver",
        REDELIVER,
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if updated := config.stash.get(UPDATED, []):
        from projections.printable import printable

        terminalreporter.section("cases that were rewritten: review the changes")
        for line in updated:
            terminalreporter.write_line(printable(line))


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not file_path.name.endswith((".projections.yaml", ".projections.yml")):
        return None
    from projections.testing.collection import CaseFile

    return CaseFile.from_parent(parent, path=file_path)


@pytest.fixture
def projections(request: pytest.FixtureRequest) -> Scenario:
    """A scenario with empty tables: given, put, update, delete, expire, then, item, items, assert_simulation."""
    marker = request.node.get_closest_marker("projections")
    settings = _settings(marker) if marker is not None else {}
    from projections.errors import ProjectionsError
    from projections.printable import printable
    from projections.testing.scenario import Scenario

    try:
        rules = rules_for(request.config, settings.get("rules"), request.path.parent)
    except ProjectionsError as error:
        raise pytest.fail.Exception(printable(str(error), lines=True), pytrace=False) from None
    return Scenario(rules, redeliver=redeliver_for(request.config, settings.get("redeliver")))


def _settings(marker: pytest.Mark) -> Mapping[str, Any]:
    settings = {"rules": marker.args[0], **marker.kwargs} if marker.args else marker.kwargs
    if len(marker.args) > 1 or settings.keys() - {"rules", "redeliver"}:
        pytest.fail(f"@pytest.mark.{MARKER}", pytrace=False)
    return settings


def rules_for(config: pytest.Config, own: str | Path | Mapping[str, Any] | None, beside: Path) -> RuleSet:
    """Return the rules of a test: `own`, as a path relative to `beside`, or else the default. Raises ProjectionsError."""
    from projections.testing.rules_under_test import rules_of

    if own is not None:
        return rules_of(own, beside)
    if given := config.getoption("projections_rules"):
        return rules_of(given, config.invocation_params.dir)
    return rules_of(config.getini("projections_rules") or None, config.rootpath)


def redeliver_for(config: pytest.Config, own: bool | None) -> bool:
    """Return whether to deliver twice, by the command line, else by the test, else by the configuration."""
    if config.getoption("projections_redeliver"):
        return True
    return bool(config.getini("projections_redeliver") if own is None else own)

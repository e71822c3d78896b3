"""The pytest plugin: the fixture `projections`, and the files `*.projections.yaml` as tests.

The rules under test are the first of: `@pytest.mark.projections(rules="FILE")` or `rules: FILE` in a case file (relative to
the test's file, or the rules themselves), `projections_rules = FILE` in pytest's configuration, and `rules.yaml` in the
root directory.

`redeliver=True` in the marker, `redeliver: true` in a case file, `projections_redeliver = true` in pytest's configuration:
every batch is delivered twice, and at the end the whole stream once more.

Only pytest is imported at first, so that runs without such tests are not slower.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from projections.language.ruleset import RuleSet
    from projections.testing.cases import Case, Suite
    from projections.testing.scenario import Scenario


MARKER = 'projections(rules="FILE", redeliver=False): the rules under test, and whether batches are delivered twice'


REDELIVER = "Deliver every batch twice, and the whole stream again at the end."


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("projections_rules", "The rule file under test, relative to the root directory.")
    parser.addini("projections_redeliver", REDELIVER, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if not file_path.name.endswith((".projections.yaml", ".projections.yml")):
        return None
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


class CaseFile(pytest.File):
    """A file `*.projections.yaml`."""

    def collect(self) -> Iterator[pytest.Item]:
        from projections.errors import ProjectionsError
        from projections.printable import printable
        from projections.testing.cases import read_cases
        from projections.testing.scenario import Scenario

        try:
            suite = read_cases(self.path)
        except ProjectionsError as error:
            raise self.CollectError(printable(str(error), lines=True)) from None
        redeliver = redeliver_for(self.config, suite.redeliver)
        for case in suite.cases:

            def play(rules: RuleSet, case: Case = case) -> None:
                case.play(Scenario(rules, redeliver=redeliver))

            yield CaseItem.from_parent(self, name=case.about, suite=suite, play=play, line=case.line)
        if suite.simulate:

            def simulate(rules: RuleSet) -> None:
                Scenario(rules).assert_simulation(suite.simulate)

            yield CaseItem.from_parent(self, name="simulation", suite=suite, play=simulate, line=1)


class CaseItem(pytest.Item):
    """One test of a case file."""

    def __init__(self, *, suite: Suite, play: Callable[[RuleSet], None], line: int, **settings: Any) -> None:
        super().__init__(**settings)
        self._suite = suite
        self._play = play
        self._line = line

    def runtest(self) -> None:
        self._play(rules_for(self.config, self._suite.rules, self.path.parent))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from projections.errors import ProjectionsError
        from projections.printable import printable

        if isinstance(excinfo.value, AssertionError | ProjectionsError):
            text = str(excinfo.value).strip("\n")
            return printable(f"{self.path}:{self._line}: {self.name}\n{text}", lines=True)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._line - 1, self.name


# The rules under test


_LOADED = pytest.StashKey["dict[tuple[str, str], RuleSet]"]()
"""The rules that this run has loaded."""


def rules_for(config: pytest.Config, own: str | Path | Mapping[str, Any] | None, beside: Path) -> RuleSet:
    """Return the rules of a test: `own`, as a path relative to `beside`, or else the default. Raises ProjectionsError."""
    if own is None:
        own, beside = config.getini("projections_rules") or None, config.rootpath
    loaded, place = config.stash.setdefault(_LOADED, {}), (str(beside), repr(own))
    if place not in loaded:
        loaded[place] = rules_of(own, beside)
    return loaded[place]


def redeliver_for(config: pytest.Config, own: bool | None) -> bool:
    """Return whether to deliver twice, by the test, else by the configuration."""
    return bool(config.getini("projections_redeliver") if own is None else own)


DEFAULTS = ("rules.yaml", "rules.yml", "rules.json")


def rules_of(rules: str | Path | Mapping[str, Any] | None, beside: Path) -> RuleSet:
    """Return the rules of a test. `beside` is where relative paths begin, and where `rules.yaml` is the default.

    Raises UsageError if there is no such file, RulesError with every mistake in it.
    """
    from projections.api import load, loads
    from projections.language.values import json_of

    if rules is not None and not isinstance(rules, str | Path):
        return loads(json_of(rules), "<rules in the test>")
    return load(_find(rules, beside))


def _find(rules: str | Path | None, beside: Path) -> Path:
    from projections.errors import UsageError
    from projections.language.files import bundled_path

    if rules is None:
        rule_file = next((beside / name for name in DEFAULTS if (beside / name).is_file()), None)
        if rule_file is None:
            raise UsageError(
                f"no rule file: there is no rules.yaml in {beside}. Set projections_rules in pytest's configuration, or "
                'pass @pytest.mark.projections(rules="FILE"), or `rules: FILE` in a case file'
            )
        return rule_file
    path = beside / rules
    if path.is_file():
        return path
    shipped = bundled_path(str(rules))
    if shipped is not None:
        return shipped
    raise UsageError(f"no rule file {str(rules)!r}: {path} does not exist")

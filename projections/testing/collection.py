"""Case files as tests of pytest: one for each case, and one for the simulation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from projections.errors import ProjectionsError, UsageError
from projections.language.ruleset import RuleSet
from projections.language.selection import selected
from projections.printable import printable
from projections.testing.cases import Case, Suite, read_cases
from projections.testing.plugin import UPDATED, redeliver_for, rules_for
from projections.testing.scenario import Scenario
from projections.testing.simulated import assert_simulation

__all__ = ["CaseFile", "CaseItem"]


class CaseFile(pytest.File):
    """A file `*.projections.yaml`."""

    def collect(self) -> Iterator[pytest.Item]:
        try:
            suite = read_cases(self.path)
        except ProjectionsError as error:
            raise self.CollectError(printable(str(error), lines=True)) from None
        redeliver = redeliver_for(self.config, suite.redeliver)
        for number, case in enumerate(suite.cases):

            def play(rules: RuleSet, number: int = number, case: Case = case) -> None:
                try:
                    case.play(Scenario(rules, redeliver=redeliver))
                except AssertionError:
                    if not self.config.getoption("projections_update"):
                        raise
                    self._update(number, case, rules, redeliver)

            def concerns(rules: RuleSet, names: Collection[str], case: Case = case) -> bool:
                scenario = Scenario(rules)
                try:
                    case.write(scenario)
                except ProjectionsError:
                    return True  # playing the case reports this
                return scenario.concerns(names)

            yield CaseItem.from_parent(self, name=case.about, suite=suite, play=play, concerns=concerns, line=case.line)
        if suite.simulate:

            def simulate(rules: RuleSet) -> None:
                assert_simulation(rules.only(self.config.getoption("projections_select")), suite.simulate)

            yield CaseItem.from_parent(self, name="simulation", suite=suite, play=simulate, line=1)

    def _update(self, number: int, case: Case, rules: RuleSet, redeliver: bool) -> None:
        """Rewrite what a case expects."""
        from projections.testing.updating import update

        if hasattr(self.config, "workerinput"):
            raise UsageError("--projections-update changes files, so the tests must run in one process: add `-n 0`")
        update(self.path, number, case, Scenario(rules, redeliver=redeliver))
        self.config.stash.setdefault(UPDATED, []).append(f"{self.path}: {case.about}")


class CaseItem(pytest.Item):
    """One test of a case file."""

    def __init__(
        self,
        *,
        suite: Suite,
        play: Callable[[RuleSet], None],
        line: int,
        concerns: Callable[[RuleSet, Collection[str]], bool] = lambda rules, names: True,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self._concerns = concerns
        self._suite = suite
        self._play = play
        self._line = line

    def runtest(self) -> None:
        rules = rules_for(self.config, self._suite.rules, self.path.parent)
        select = self.config.getoption("projections_select")
        if select and not self._concerns(rules, selected(rules.program.typed, select)):
            pytest.skip("concerns no selected rule")
        self._play(rules)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, AssertionError | ProjectionsError):
            text = str(excinfo.value).strip("\n")
            return printable(f"{self.path}:{self._line}: {self.name}\n{text}", lines=True)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._line - 1, self.name

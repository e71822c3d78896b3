"""The context of the stages of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.engine.budget import Budget, Refresh
from projections.engine.deadline import Deadline
from projections.engine.embeds import Push
from projections.engine.groups import Generations
from projections.engine.guards import Guards
from projections.engine.publishing import Publisher
from projections.engine.registry import Registry, RegistrySnapshot
from projections.engine.rejections import Rejected
from projections.engine.report import Report
from projections.engine.running import Run
from projections.engine.store import Store
from projections.errors import InvalidRequest, Transient
from projections.language.program import Program

__all__ = ["Admitted", "Setup"]


@dataclass(frozen=True, slots=True)
class Setup:
    """The context of all batches of a processor; see `Processor` for the fields."""

    program: Program
    store: Store
    tables: Mapping[str, str]
    labels: Mapping[str, str]
    fixed_label: str
    quarantine: Callable[[Sequence[Rejected]], None] | None
    run: Run[Any]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    chance: Callable[[], float]
    tasks: Callable[[Push | Refresh, float], None] | None
    budget: Budget
    pace: Callable[[int], None]
    generations: Generations
    registry: Registry


@dataclass(frozen=True, slots=True)
class Admitted:
    """The context of the stages after the admission: the rules are active, as the registry was when it was read."""

    setup: Setup
    snapshot: RegistrySnapshot
    guards: Guards
    deadline: Deadline
    report: Report

    def publisher(self, run: Run[Any] | None = None) -> Publisher:
        """Return a publisher; `run` replaces that of the batch."""
        return Publisher(
            self.setup.program,
            self.setup.store,
            self.setup.generations,
            guards=self.guards,
            run=run or self.setup.run,
            counters=self.report.counters,
            publishes=self.snapshot.publishes,
        )

    def leave(self, task: Refresh) -> None:
        """Sign and send a task. What it does is then done for the batch."""
        assert self.setup.tasks is not None  # else there is no budget
        self.setup.tasks(task._replace(signature=self.guards.sign(task.text)), self.setup.budget.wait)

    def attempt(self, work: Callable[[], None], sequence: str, rule: str, key: str) -> None:
        """Do one independent piece of work for a record, again while it fails for a reason that passes, and report it."""
        if self.deadline.over:
            return self.report.fail([sequence], str(self.deadline.out_of_time))
        try:
            self.deadline.retry(work)
        except (Transient, InvalidRequest) as error:
            self.report.refuse([sequence], error, rule=rule, key=key)
        return None

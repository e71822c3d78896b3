"""Many histories, one seed after the other, over several processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from projections.language.ruleset import RuleSet
from projections.printable import printable
from projections.testing.simulation.harm import HARM
from projections.testing.simulation.history import Outcome, Setup

_CHUNK = 50
"""Histories that a process runs before it reports: one or two seconds."""


@dataclass(slots=True)
class Report:
    """The results of histories from `seed` on. `failures` are the outcomes with problems, the lowest seed first."""

    seed: int
    histories: int = 0
    writes: int = 0
    records: int = 0
    deliveries: int = 0
    calls: int = 0
    faults: int = 0
    seconds: float = 0.0
    wrong: int = 0
    """Histories with wrong derived values or a wrong ledger, at the end or on the way."""
    harm: int = 0
    """Histories in which the engine changed or removed data of the application."""
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        harm = [problem.startswith(HARM) for problem in outcome.problems]
        counts = outcome.writes, outcome.records, outcome.deliveries, outcome.calls, outcome.faults
        failures = [outcome] if outcome.problems else []
        self.merge(Report(outcome.seed, 1, *counts, wrong=int(not all(harm)), harm=int(any(harm)), failures=failures))

    def merge(self, other: Report) -> None:
        for name in ("histories", "writes", "records", "deliveries", "calls", "faults", "wrong", "harm"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.failures = sorted([*self.failures, *other.failures], key=lambda outcome: outcome.seed)


class Campaign:
    """Runs histories of one rule file, until one fails unless `keep_going`."""

    def __init__(self, document: Mapping[str, Any], *, keep_going: bool = False) -> None:
        self._document = document
        self._keep_going = keep_going

    def run(
        self, seed: int, histories: int, *, jobs: int = 1, progress: Callable[[Report], None] = lambda report: None
    ) -> Report:
        """Run the histories of the seeds from `seed` on. Finds the failure with the lowest seed, for any number of jobs."""
        report, started = Report(seed), time.perf_counter()
        chunks = [(first, min(_CHUNK, seed + histories - first)) for first in range(seed, seed + histories, _CHUNK)]
        for part in self._parts(chunks, jobs):
            report.merge(part)
            report.seconds = time.perf_counter() - started
            progress(report)
            if report.failures and not self._keep_going:
                break
        return report

    def _parts(self, chunks: list[tuple[int, int]], jobs: int) -> Iterator[Report]:
        if jobs <= 1 or len(chunks) < 2:
            setup = Setup(self._document)
            for first, count in chunks:
                yield _play(setup, first, count)
            return
        context = multiprocessing.get_context("spawn")
        with context.Pool(jobs, _begin, (self._document,)) as pool:
            yield from pool.imap(_chunk, chunks)


def _play(setup: Setup, first: int, count: int) -> Report:
    report = Report(first)
    for seed in range(first, first + count):
        report.add(setup.play(seed))
    return report


_setup: Setup | None = None
"""The setup of this process, made when it starts."""


def _begin(document: Mapping[str, Any]) -> None:
    global _setup
    _setup = Setup(document)
    gc.freeze()


def _chunk(chunk: tuple[int, int]) -> Report:
    assert _setup is not None
    return _play(_setup, *chunk)


# As an assertion

TRACED = 120
"""Events of a trace in a message: the last ones, where the failure is."""

LONGEST = 300
"""Characters of a line."""


def assert_simulation(rules: RuleSet, histories: int = 200, *, seed: int = 0) -> None:
    """Run random histories, of the seeds from `seed` on, with every kind of fault.

    Raises AssertionError with the first seed that fails, its problems and trace, and the command that runs it again.
    """
    __tracebackhide__ = True
    report = Campaign(rules.document).run(seed, histories)
    if not report.failures:
        return
    failure = report.failures[0]
    trace = Setup(rules.document).play(failure.seed, trace=True).trace
    left_out = max(0, len(trace) - TRACED)
    file = os.path.relpath(rules.path) if rules.path else "FILE"
    raise AssertionError(
        "\n".join(
            [
                f"Seed {failure.seed} failed (history {failure.seed - seed + 1} of {histories}):",
                *(f"  {printable(problem)}" for problem in failure.problems),
                f"Trace{f' (the last {TRACED} of {len(trace)} events)' if left_out else ''}:",
                *(f"  {short}" for line in trace[left_out:] for short in _lines(line)),
                f"To repeat it: projections simulate --rules {file} --seed {failure.seed} --histories 1 --trace",
            ]
        )
    )


def _lines(entry: str) -> list[str]:
    return [line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in map(printable, entry.split("\n"))]

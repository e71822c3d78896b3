"""A backfill left to the worker function: each message names a segment, whose progress the ledger knows.

Messages may come twice, late, or never be acknowledged. Who moves a run to its next phase sends that phase's messages; if it
dies in between, its own message comes again, finds the run ahead, and sends them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from projections.engine.effort import Effort
from projections.operations.backfill.backfill import Backfill
from projections.operations.backfill.progress import PHASES, Run, Segment
from projections.operations.tasks import BackfillTask

__all__ = ["TaskSender", "start", "work"]


class TaskSender(Protocol):
    def send(self, tasks: Sequence[tuple[BackfillTask, float]]) -> None: ...


def start(backfill: Backfill, run: Run, send: TaskSender) -> None:
    """Sends the messages of a run's phase: those of segments that are not done."""
    if run.phase == PHASES[-1]:
        return
    segments = [segment for segment in backfill.segments(run) if not segment.done]
    seconds = max(0.0, run.ready - backfill.now().timestamp())
    send.send([(_task(run, segment), seconds) for segment in segments])
    if not segments:
        _forward(backfill, run, send)


def work(backfill: Backfill, task: BackfillTask, effort: Effort, send: TaskSender) -> BackfillTask | None:
    """Does one page of a segment. Gives the task of the next page, None if there is none. Raises Transient."""
    run = backfill.progress.run()
    if run is None or run.name != task.run:
        return None  # given up for another
    if run.phase != task.phase:
        start(backfill, run, send)
        return None
    segment = backfill.progress.segment(run, task.phase, task.table, task.number)
    if not segment.done:
        segment = backfill.page(run, segment, effort).segment
    if not segment.done:
        return task
    if all(one.done for one in backfill.segments(run)):
        _forward(backfill, run, send)
    return None


def _forward(backfill: Backfill, run: Run, send: TaskSender) -> None:
    run, moved = backfill.forward(run)
    if moved:
        start(backfill, run, send)


def _task(run: Run, segment: Segment) -> BackfillTask:
    return BackfillTask(run.name, segment.phase, segment.table, segment.number)

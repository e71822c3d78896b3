"""A backfill done by the worker function: each message names a segment, whose progress is in the ledger.

Messages may be delivered twice, late, or after they were done. The process that advances a segment, or the run to its next
phase, acknowledges its message only after it has sent the next one. So a message that finds its segment advanced may be
dropped, and a message that finds its phase done sends the messages of the current phase.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from projections.engine.registry import Replaced
from projections.engine.running import Deadline, OutOfTime
from projections.errors import Transient
from projections.operations.backfill.backfill import Backfill
from projections.operations.backfill.progress import Run, Segment
from projections.operations.tasks import BackfillTask

__all__ = ["TaskSender", "start", "work"]


class TaskSender(Protocol):
    def send(self, tasks: Sequence[tuple[BackfillTask, float]]) -> None: ...


def start(backfill: Backfill, run: Run, send: TaskSender) -> None:
    """Send the messages of a run's phase: one for each segment that is not done."""
    name = run.name
    while run.name == name and not run.done:
        segments = [segment for segment in backfill.segments(run) if not segment.done]
        if segments:
            seconds = _early(backfill, run)
            return send.send([(_task(run, segment), seconds) for segment in segments])
        run, _ = backfill.forward(run)
    return None


def work(backfill: Backfill, task: BackfillTask, deadline: Deadline, send: TaskSender) -> BackfillTask | None:
    """Do one page of a segment. Return the task of the next page, None if there is none.

    Raises Transient if the page has to be repeated.
    """
    try:
        return _work(backfill, task, deadline, send)
    except Replaced:  # another backfill, or other rules, sends its own messages
        return None


def _work(backfill: Backfill, task: BackfillTask, deadline: Deadline, send: TaskSender) -> BackfillTask | None:
    run = backfill.progress.run()
    if run is None or run.name != task.run:
        return None  # replaced by another
    if run.program != backfill.fingerprint:
        raise Transient("this function has other rules than the backfill. Deploy the rules that it was started with")
    if run.phase != task.phase:
        start(backfill, run, send)
        return None
    if (seconds := _early(backfill, run)) > 0:
        send.send([(task, seconds)])
        return None
    segment = backfill.progress.segment(run, task.phase, task.table, task.number)
    if not segment.done:
        done = backfill.page(run, segment, deadline)
        if done.failed:
            key, reason = next(iter(done.failed.items()))
            kind = OutOfTime if deadline.over else Transient
            raise kind(f"a page could not be done, for example because of {key}: {reason}")
        segment = done.segment
        if not segment.done:
            return task if done.ours else None
    if all(one.done for one in backfill.segments(run)):
        start(backfill, run, send)
    return None


def _early(backfill: Backfill, run: Run) -> float:
    """Return the seconds until the phase may begin."""
    return max(0.0, run.ready - backfill.now().timestamp())


def _task(run: Run, segment: Segment) -> BackfillTask:
    return BackfillTask(run.name, segment.phase, segment.table, segment.number)

"""The quarantine: records a rule could not use, kept with rule, reason and keys until somebody redrives them.

Keys are told, and of contents no more than the value a reason is about, up to 40 characters: a quarantine is read by more
people than the table is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from projections.engine.rejections import GROUP, ITEM, Rejected

if TYPE_CHECKING:
    from projections.operations.redaction import Redaction

__all__ = ["MOST_TRIGGERS", "Quarantine", "Sender", "complaint", "message"]

MOST_TRIGGERS = 10
"""Source items that a message or a log names. There may be a whole batch of them."""

_LONGEST_REASON = 2_000
"""Characters. With the longest keys a message then stays far below what SQS takes."""


class Sender(Protocol):
    """What takes messages: `stores.queues.Queue`, or a list in tests."""

    def send(self, bodies: Sequence[str]) -> None: ...


class Quarantine:
    """Sends what was rejected to a queue. Called by the engine; what it raises makes the records be retried.

    `stream_arns` gives the stream of each logical table, as far as it is known. `connect` is called when there is
    something to send for the first time, which in most lives of a function is never. `redaction` redacts the reasons.
    """

    def __init__(
        self,
        connect: Callable[[], Sender],
        clock: Callable[[], datetime],
        stream_arns: Mapping[str, str] | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._stream_arns = dict(stream_arns or {})
        self._redaction = redaction
        self._queue: Sender | None = None

    def __call__(self, rejected: Sequence[Rejected]) -> None:
        now = self._clock()
        self._queue = self._queue or self._connect()
        arns, redaction = self._stream_arns, self._redaction
        self._queue.send([json.dumps(message(one, now, arns.get(one.table or ""), redaction)) for one in rejected])


def message(
    rejected: Rejected, now: datetime, stream_arn: str | None, redaction: Redaction | None = None
) -> dict[str, Any]:
    """The message about one rejected record. `now` is when it was rejected, with its zone.

    It has the key also where keys are redacted, because a redrive needs it; then with its hash.
    """
    shown = rejected if redaction is None else redaction.rejected(rejected)
    reason = shown.reason
    known = redaction.hash(rejected.key) if redaction is not None else None
    if len(reason) > _LONGEST_REASON:
        reason = reason[:_LONGEST_REASON] + "…"
    return {
        "rule": rejected.rule,
        "reason": reason,
        "table": rejected.table,
        "key": rejected.key,
        **({} if known is None else {"keyHash": known}),
        "eventName": rejected.event,
        "sequenceNumber": rejected.sequence,
        "streamArn": stream_arn,
        "time": now.isoformat(),
        "target": shown.target,
        "fault": shown.fault,
        "triggeredBy": list(shown.triggered_by[:MOST_TRIGGERS]),
        "triggeredByCount": len(shown.triggered_by),
    }


def complaint(rule: object, reason: object, *, key: object, target: object = None, fault: object = ITEM) -> str:
    """Return what is wrong in one line: the rule, the target if the cause is there and not in the item `key`, the reason."""
    where = f"group of {target}" if fault == GROUP else f"target {target}" if target not in (None, key) else ""
    return ": ".join(str(part) for part in (rule, where, reason) if part)

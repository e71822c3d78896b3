"""The quarantine: records that a rule could not use, with rule, reason and keys, until they are redriven.

More people read a quarantine than the table. So a message has keys, and of an item's contents only the value that the reason
is about, up to 40 characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from projections.engine.rejections import GROUP, ITEM, Rejected

if TYPE_CHECKING:
    from projections.operations.redaction import Redaction


MOST_TRIGGERS = 10
"""Source items to name in a message or a log. A whole batch can lead to one."""

_LONGEST_REASON = 2_000
"""Characters. With the longest keys, a message is still much smaller than the limit of SQS."""


class Sender(Protocol):
    """A queue to send messages to: `aws.queues.Queue`, or a fake in tests."""

    def send(self, bodies: Sequence[str]) -> None: ...


HELD_SECONDS = 300
"""The visibility timeout of messages that are being redriven or dismissed."""


class MessageQueue(Protocol):
    """A queue to receive messages from: `aws.queues.Queue`."""

    def receive(self, seconds: int, *, wait: int = 2) -> list[Any]: ...

    def delete(self, messages: Sequence[Any]) -> None: ...

    def release(self, messages: Sequence[Any]) -> None: ...


class Quarantine:
    """Sends rejected records to a queue. The engine calls it; if it raises, the records are retried.

    `stream_arns` has the stream of each logical table, as far as it is known. `connect` is called before the first message:
    most instances of a function never send one. `redaction` redacts the reasons.
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
        self._queue.send([json.dumps(message(item, now, arns.get(item.table or ""), redaction)) for item in rejected])


def message(
    rejected: Rejected, now: datetime, stream_arn: str | None, redaction: Redaction | None = None
) -> dict[str, Any]:
    """Return the message about one rejected record. `now` is the time of rejection, with its zone.

    It has the key also if keys are redacted, because a redrive needs it; then it also has its hash.
    """
    logged = rejected if redaction is None else redaction.redact_rejected(rejected)
    reason = logged.reason
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
        "target": logged.target,
        "fault": logged.fault,
        "triggeredBy": list(logged.triggered_by[:MOST_TRIGGERS]),
        "triggeredByCount": len(logged.triggered_by),
    }


def complaint(rule: object, reason: object, *, key: object, target: object = None, fault: object = ITEM) -> str:
    """Return the problem in one line: the rule, the target if the cause is there and not in the item `key`, the reason."""
    where = f"group of {target}" if fault == GROUP else f"target {target}" if target not in (None, key) else ""
    return ": ".join(str(part) for part in (rule, where, reason) if part)

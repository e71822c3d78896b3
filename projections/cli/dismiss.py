"""`projections redrive --list` and `--dismiss`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from projections.errors import UsageError
from projections.terminal import count, json_text, print_first, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.queues import Queue
    from projections.aws.tables import Live
    from projections.language.program import Program
    from projections.operations.redrive.dismissal import Dismissed, Quarantined, Wanted

__all__ = ["check", "dismiss", "show"]


def show(live: Live, queue: Queue, as_json: bool) -> int:
    """Print the messages of the quarantine and the dismissals. Return the exit code, 1 if there are messages."""
    from projections.operations.redrive.dismissal import dismissed, quarantined

    messages, records = list(quarantined(queue)), dismissed(live.store)
    if as_json:
        recorded = {one.message.id for one in records}
        listed = [{**_plain(one), "dismissalRecorded": one.id in recorded} for one in messages]
        print_text(json_text({"messages": listed, "dismissed": [_record(one) for one in records]}))
        return 1 if messages else 0
    print_line(f"quarantine: {count(len(messages), 'message')}")
    print_first(map(_line, messages))
    left = {one.id for one in messages}
    print_line(f"dismissed in the last 90 days: {count(len(records), 'message')}")
    lines = []
    for one in records:
        unfinished = " (still in the queue: dismiss it again)" if one.message.id in left else ""
        decision = one.decision
        lines.append(f"  {decision.at:%Y-%m-%d %H:%M} {decision.by}: {decision.because}{unfinished}")
        lines.append(f"    {_about(one.message)}")
    print_first(lines)
    return 1 if messages else 0


def check(program: Program, which: str, because: str | None) -> None:
    """Raise UsageError if the key of --dismiss is malformed, or --because is empty."""
    _wanted(program, which)
    if because is not None and not because.strip():
        raise UsageError("--because is empty. Write why these messages are dismissed: it is recorded")


def dismiss(
    live: Live, queue: Queue, which: str, because: str | None, dry_run: bool, region: str | None, as_json: bool
) -> int:
    """Dismiss messages, or print which would be. Return the exit code, 1 if any would be, or others remain."""
    from projections.operations.redrive.dismissal import Decision
    from projections.operations.redrive.dismissal import dismiss as dismissed

    now = datetime.now(UTC)
    wanted = _wanted(live.program, which)
    dry = dry_run or because is None
    decision = None if dry else Decision(str(because).strip(), _caller(region), now)
    done: list[Quarantined] = []
    number, others = dismissed(queue, live.store, wanted, decision, now, done.append)
    if wanted.rule is not None and not number and which not in live.program.rules:
        raise UsageError(
            f"--dismiss {which}: expected a key such as PK=POST#p1,SK=METADATA, an age such as 36h or 10d, or a rule. "
            f"The rules are {', '.join(sorted(live.program.rules))}, and no message names another"
        )
    if as_json:
        report = {"dryRun": dry, "dismissed": [_plain(one) for one in done], "others": others}
        report |= {} if decision is None else {"because": decision.because, "by": decision.by}
        print_text(json_text(report))
    else:
        print_first(map(_line, done))
        dismissals = "would be dismissed" if dry else "dismissed"
        print_line(f"quarantine: {count(number, 'message')} {dismissals}, {others:,} not selected")
        if number and because is None:
            print_line(
                "Nothing was written. Add --because TEXT to dismiss: the text and your name are recorded in the ledger."
            )
    return 1 if others or (dry and number) else 0


def _wanted(program: Program, which: str) -> Wanted:
    from projections.inspect.explain.keys import read_key
    from projections.operations.redrive.dismissal import Wanted, age

    if (older := age(which)) is not None:
        return Wanted(older=older)
    if "=" in which or "|" in which or "·" in which:
        return Wanted(item=read_key(program, which))
    return Wanted(rule=which)


def _caller(region: str | None) -> str:
    """Return the caller's ARN, or the user and host of the operating system."""
    import getpass
    import socket

    from botocore.exceptions import BotoCoreError, ClientError

    from projections.aws.clients import client

    try:
        return str(client("sts", region=region).get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError):
        return f"{getpass.getuser()}@{socket.gethostname()}"


def _about(message: Quarantined) -> str:
    from projections.operations.quarantine import complaint

    key = message.key or "no item"
    reason = message.reason or "not a message of this package"
    text = f"{key}: {complaint(message.rule, reason, key=key, target=message.target, fault=message.fault)}"
    if not message.triggered_by:
        return text
    more = message.triggers - len(message.triggered_by)
    return f"{text} (triggered by {', '.join(message.triggered_by)}{f' and {more:,} more' if more > 0 else ''})"


def _line(one: Quarantined) -> str:
    return f"  {f'{one.time:%Y-%m-%d %H:%M}' if one.time else 'no time'} {_about(one)}"


def _plain(one: Quarantined) -> dict[str, Any]:
    return {
        "id": one.id,
        "rule": one.rule,
        "key": one.key,
        "target": one.target,
        "fault": one.fault,
        "reason": one.reason,
        "triggeredBy": list(one.triggered_by),
        "time": one.time.isoformat() if one.time else None,
    }


def _record(one: Dismissed) -> dict[str, Any]:
    decision = one.decision
    return {**_plain(one.message), "because": decision.because, "by": decision.by, "at": decision.at.isoformat()}

"""Makes the handlers of the Lambda functions from environment variables, once for each cold start."""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from projections.engine.budget import Budget
from projections.engine.processor import Processor
from projections.engine.records import WHOLE_BATCH
from projections.engine.rejections import Rejected
from projections.engine.running import Pacer, at_once
from projections.engine.stages import Outcome
from projections.engine.store import Store, Write
from projections.errors import Misconfigured, StoreError, Transient
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.rules import public_name
from projections.operations.quarantine import Quarantine
from projections.operations.tasks import Tasks

if TYPE_CHECKING:
    from projections.aws.queues import Queue
    from projections.operations.audit import Audited
    from projections.operations.redaction import Handler, Redaction
    from projections.operations.worker import Work

T = TypeVar("T")


VARIABLES: Mapping[str, str] = {
    "TABLE_NAME": "the name of the application's table, for rules that set `table:`",
    "TABLES": "for rules that set `tables:`, a JSON object of logical to real names",
    "LEDGER_TABLE_NAME": "the name of the ledger table (keys pk and sk)",
    "RULES_FILE": "the path of the rules in the package: the rules.json that `sam build` writes, or a YAML file",
    "STREAM_ARN": "the ARN of the stream, or several separated by commas, for the quarantine",
    "STREAM_LABEL": "the label of all records, only for emulators whose stream ARN changes",
    "QUARANTINE_QUEUE_URL": "the URL of the queue for rejected records; without it, their batches fail",
    "TASK_QUEUE_URL": "the URL of the queue for tasks; without it, everything is done within the invocation",
    "REDACT": "what is removed from logs, messages and errors: none (default), keys, values or all",
    "PUSH_WRITES_PER_SECOND": "the most children that a function instance updates in a second, 25 or more (default: 500)",
    "RULE_WRITES_PER_MINUTE": "the most writes of a rule a minute for items with many targets; 0: no limit (default: 10000)",
}
"""The environment variables of the functions for stream records and tasks. AUDIT_ITEMS of the audit is not among them."""

MAIN = "main"
"""The logical name of the only table of rules that set `table:`."""

MARGIN = 3.0
"""Seconds before the end of an invocation: the requests in progress and the answer need them, so no new work begins."""

THREADS = 10
"""Concurrent requests to DynamoDB. More would not help: each takes about half a millisecond of Lambda's one core."""

PAGE_SECONDS = 5.0
"""The last page of a push begins at least so many seconds before the end of an invocation."""

_REDACT = ("none", "keys", "values", "all")

_WRITES_PER_SECOND = 500
"""Half of what a partition can take. The application keeps the other half."""

_RULE_WRITES_PER_MINUTE = 10_000
"""At most 600,000 writes an hour for a rule and a function instance, half of them of two units: $0.56 in us-east-1."""

_LEAST_AUDITED = 100
"""A run of fewer items is not worth an invocation."""

_LEAST_WRITES = 25
"""Slower, one page of 1000 children would take longer than an invocation."""


class Settings(NamedTuple):
    """The checked values of the environment variables."""

    tables: Mapping[str, str]
    ledger: str
    rules: Path
    stream_arns: Mapping[str, str]
    stream_label: str
    quarantine_url: str | None
    task_url: str | None
    push_writes_per_second: int
    rule_writes_per_minute: int
    redact: str

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Read the environment. Raises Misconfigured, which names the variable and valid values."""
        tables = tables_of(environ)
        redact = environ.get("REDACT") or "none"
        if redact not in _REDACT:
            raise Misconfigured(f"REDACT is {redact!r}. Set it to {', '.join(_REDACT[:-1])} or {_REDACT[-1]}.")
        ledger = _require(environ, "LEDGER_TABLE_NAME")
        if ledger in tables.values():
            raise Misconfigured(f"LEDGER_TABLE_NAME is {ledger!r}, an application table. Use a table of its own.")
        return cls(
            tables=tables,
            ledger=ledger,
            rules=Path(_require(environ, "RULES_FILE")),
            stream_arns=_stream_arns(environ, tables),
            stream_label=environ.get("STREAM_LABEL") or "",
            quarantine_url=environ.get("QUARANTINE_QUEUE_URL") or None,
            task_url=environ.get("TASK_QUEUE_URL") or None,
            push_writes_per_second=_number(environ, "PUSH_WRITES_PER_SECOND", _WRITES_PER_SECOND, _LEAST_WRITES),
            rule_writes_per_minute=_number(environ, "RULE_WRITES_PER_MINUTE", _RULE_WRITES_PER_MINUTE, 0),
            redact=redact,
        )


class Processing(Protocol):
    """What the handler uses of the engine: `engine.processor.Processor`, or a fake in tests."""

    def process(self, records: Sequence[Any], *, remaining: Callable[[], float], shard: str = "") -> Outcome: ...


class StreamHandler:
    """Processes events of stream records; returns the lowest sequence number that Lambda has to deliver again.

    Events of a mapping with a tumbling window have the shard's ID. Without a state in the answer to such an event, Lambda
    treats its invocation as failed; here it is always empty. The last event of a window may have no records.

    `observe` is called with the outcome of each event; `pacer` gets the time that is left.
    """

    def __init__(
        self,
        processor: Processing,
        *,
        quarantine: Callable[[Sequence[Rejected]], None] | None = None,
        observe: Callable[[Outcome], None] | None = None,
        pacer: Pacer | None = None,
    ) -> None:
        self._processor = processor
        self._quarantine = quarantine
        self._observe = observe
        self._pacer = pacer

    def handle(self, event: Any, remaining: Callable[[], float]) -> dict[str, Any]:
        """Process one event. `remaining` gives the seconds left. Raises Misconfigured, but never because of a record."""
        if self._pacer:
            self._pacer.within(lambda: remaining() - PAGE_SECONDS)
        windowed = isinstance(event, Mapping) and "window" in event
        state: dict[str, Any] = {"state": {}} if windowed else {}
        if windowed and not event.get("Records"):
            return {**state, "batchItemFailures": []}
        if reason := _unusable(event):
            outcome = self._refuse(reason)
        else:
            shard = event.get("shardId") or ""
            outcome = self._processor.process(event["Records"], remaining=remaining, shard=shard)
        if self._observe:
            self._observe(outcome)
        failures = [] if outcome.failed is None else [{"itemIdentifier": outcome.failed}]
        return {**state, "batchItemFailures": failures}

    def _refuse(self, reason: str) -> Outcome:
        """Quarantine an event that no stream sent; without a quarantine, the event fails."""
        refused = (Rejected(None, reason),)
        failed = None
        try:
            if self._quarantine is None:
                raise Transient("there is no quarantine")
            self._quarantine(refused)
        except StoreError as error:
            failed, reason = WHOLE_BATCH, f"{reason}, and {error}"
        return Outcome(failed, None if failed is None else reason, refused, {"rejected": 1})


class Tally:
    """Counts by name. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    def add_write(self, write: Write, units: int) -> None:
        """Count the units of a write for each rule that it is made for; of one that is for no single rule, by its kind."""
        for name in write.purpose.rules or (f"({write.purpose.kind})",):
            self.add(public_name(name), units)

    def take(self) -> dict[str, int]:
        """Return the counts since the last call, the greatest first."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts.most_common())


def stream_from_environment(
    environ: Mapping[str, str],
    *,
    observe: Callable[[Outcome], None] | None = None,
    throttled: Callable[[str], None] = lambda reason: None,
    wrote: Callable[[Write, int], None] = lambda write, units: None,
) -> Handler:
    """Return the handler of stream records. `throttled` and `wrote` are called as in `DynamoDBStore`.

    Raises Misconfigured or, for a rule file, RulesError.
    """
    parts = _parts(environ, throttled, wrote)
    settings = parts.settings
    processor = Processor(
        parts.program,
        parts.store,
        tables={_table_name(name): logical for logical, name in settings.tables.items()},
        fixed_label=settings.stream_label,
        quarantine=parts.quarantine,
        run=at_once(THREADS),
        tasks=parts.tasks,
        pace=parts.pacer,
        budget=Budget(settings.rule_writes_per_minute),
        margin=MARGIN,
        filled=False,
    )
    seen = parts.redact(observe, lambda redaction: redaction.outcome)
    return parts.guard(StreamHandler(processor, quarantine=parts.quarantine, observe=seen, pacer=parts.pacer))


def worker_from_environment(
    environ: Mapping[str, str],
    *,
    observe: Callable[[Work], None] | None = None,
    throttled: Callable[[str], None] = lambda reason: None,
    wrote: Callable[[Write, int], None] = lambda write, units: None,
) -> Handler:
    """Return the handler of tasks. The parameters and errors are as above."""
    for name in ("TASK_QUEUE_URL", "QUARANTINE_QUEUE_URL"):
        _require(environ, name)
    from projections.operations.dismissal import among  # not above: the stream function does not need these
    from projections.operations.worker import WorkerHandler, redact

    parts = _parts(environ, throttled, wrote)
    assert parts.tasks is not None
    assert parts.quarantine is not None
    handler = WorkerHandler(
        parts.program,
        parts.store,
        tasks=parts.tasks,
        quarantine=parts.quarantine,
        pacer=parts.pacer,
        dismissed=partial(among, parts.store),
        observe=parts.redact(observe, lambda redaction: partial(redact, redaction)),
        run=at_once(THREADS),
        filled=False,
    )
    return parts.guard(handler)


def audit_from_environment(
    environ: Mapping[str, str],
    *,
    observe: Callable[[Audited], None] | None = None,
    throttled: Callable[[str], None] = lambda reason: None,
    wrote: Callable[[Write, int], None] = lambda write, units: None,
) -> Handler:
    """Return the handler of the audit's schedule. The parameters and errors are as above."""
    from projections.operations.audit import ITEMS, AuditHandler  # not above: the other functions do not need it

    items = _number(environ, "AUDIT_ITEMS", ITEMS, _LEAST_AUDITED)
    parts = _parts(environ, throttled, wrote)
    seen = parts.redact(observe, lambda redaction: redaction.redact_audit)
    return parts.guard(AuditHandler(parts.program, parts.store, items=items, observe=seen, run=at_once(THREADS)))


class _Parts(NamedTuple):
    """The parts that all functions have."""

    settings: Settings
    program: Program
    store: Store
    quarantine: Quarantine | None
    tasks: Tasks | None
    pacer: Pacer
    redaction: Redaction | None

    def redact(
        self, observe: Callable[[T], None] | None, method: Callable[[Redaction], Callable[[T], T]]
    ) -> Callable[[T], None] | None:
        """Return `observe` for reports that are redacted by a method of Redaction, if REDACT requires it."""
        if self.redaction is None or observe is None:
            return observe
        redact = method(self.redaction)
        return lambda report: observe(redact(report))

    def guard(self, handler: Handler) -> Handler:
        """Return a handler whose errors are redacted, if REDACT requires it."""
        return handler if self.redaction is None else self.redaction.guarding(handler)


def _parts(environ: Mapping[str, str], throttled: Callable[[str], None], wrote: Callable[[Write, int], None]) -> _Parts:
    settings = Settings.read(environ)
    document = _document(settings.rules)
    program = Program.from_document(document)
    agree(settings.tables, program.tables)
    # botocore is imported here, so that a missing setting is reported before that takes its time.
    from projections.aws.clients import client
    from projections.stores.dynamodb import DynamoDBStore

    store = DynamoDBStore(
        client("dynamodb", max_pool_connections=THREADS),
        {**settings.tables, "ledger": settings.ledger},
        {**program.tables, "ledger": LEDGER_SCHEMA},
        throttled=throttled,
        wrote=wrote,
    )
    redaction = None
    if settings.redact != "none":
        from projections.operations.redaction import Redaction

        redaction = Redaction(settings.redact, document, {*settings.tables.values(), settings.ledger}, store)
    quarantine = tasks = None
    if url := settings.quarantine_url:
        quarantine = Quarantine(partial(_queue, url), lambda: datetime.now(UTC), settings.stream_arns, redaction)
    if url := settings.task_url:
        tasks = Tasks(partial(_queue, url))
    return _Parts(settings, program, store, quarantine, tasks, Pacer(settings.push_writes_per_second), redaction)


def _queue(url: str) -> Queue:
    """Return a queue. It is made when there is something to send: a client of SQS takes a tenth of a cold start."""
    from projections.aws.clients import client
    from projections.aws.queues import Queue

    return Queue(client("sqs", max_pool_connections=THREADS), url)


def collect_seldom() -> None:
    """Garbage collection as it suits functions, once all is wired: what is there by then is never looked at again.

    What a batch allocates lives until the batch is done, so that looking for cycles in it again and again finds nothing,
    and takes a tenth of the time.
    """
    gc.freeze()
    gc.set_threshold(50_000)
    gc.enable()


def _document(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise Misconfigured(f"RULES_FILE is {str(path)!r}, but there is no such file. Name one that is in the package.")
    if path.suffix == ".json":
        document: dict[str, Any] = json.loads(path.read_bytes())
        return document
    try:
        from projections.language.loader import load
    except ImportError as error:
        raise Misconfigured(
            f"RULES_FILE is {str(path)!r}, but {error.name} is not in the package. "
            "Set it to the rules.json that `sam build` compiles."
        ) from error
    return load(path).document()


def tables_of(environ: Mapping[str, str]) -> dict[str, str]:
    single, several = environ.get("TABLE_NAME"), environ.get("TABLES")
    if single and several:
        raise Misconfigured("TABLE_NAME and TABLES are both set. Keep TABLES only if the rules set `tables:`.")
    if not several:
        return {MAIN: _require(environ, "TABLE_NAME")}
    try:
        tables = json.loads(several)
    except ValueError:
        tables = None
    if not isinstance(tables, dict) or not tables or not all(isinstance(t, str) and t for t in tables.values()):
        raise Misconfigured(f'TABLES is {several!r}. Set it to a JSON object such as {{"orders": "prod-orders"}}.')
    if len(set(tables.values())) < len(tables):
        raise Misconfigured(f"TABLES is {several!r}, which has one table under two names. List each table once.")
    return tables


def _stream_arns(environ: Mapping[str, str], tables: Mapping[str, str]) -> dict[str, str]:
    logical = {_table_name(name): key for key, name in tables.items()}
    arns = {}
    for arn in filter(None, (part.strip() for part in environ.get("STREAM_ARN", "").split(","))):
        table = _table_name(arn)
        if "/stream/" not in arn or table not in logical:
            raise Misconfigured(
                f"STREAM_ARN has {arn!r}, which is not the ARN of a stream of {', '.join(sorted(logical))}. "
                "Set it to the table's LatestStreamArn."
            )
        arns[logical[table]] = arn
    return arns


def _number(environ: Mapping[str, str], name: str, default: int, least: int) -> int:
    text = environ.get(name) or str(default)
    if not text.isdecimal() or int(text) < least:
        raise Misconfigured(f"{name} is {text!r}. Set it to a whole number, {least} or more.")
    return int(text)


def agree(tables: Mapping[str, str], wanted: Collection[str]) -> None:
    """Raise Misconfigured unless the named tables are those of the rules."""
    named, known = set(tables), set(wanted)
    if named == known:
        return
    if known == {MAIN}:
        raise Misconfigured("TABLES is set, but the rules set `table:`. Set TABLE_NAME instead.")
    if named == {MAIN}:
        raise Misconfigured(f"TABLE_NAME is set, but the rules have {', '.join(sorted(known))}. Set TABLES instead.")
    missing, unknown = ", ".join(sorted(known - named)), ", ".join(sorted(named - known))
    raise Misconfigured(f"TABLES does not match the tables of the rules: missing: [{missing}]; unknown: [{unknown}].")


def _require(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise Misconfigured(f"{name} is not set. Set it to {VARIABLES[name]}.")
    return value


def _table_name(text: str) -> str:
    """Return the name in the ARN of a table or stream, or the name itself."""
    return text.split("/")[1] if text.startswith("arn:") and "/" in text else text


def _unusable(event: Any) -> str | None:
    """Return why an event is not one of a stream, or None. The engine reports what is wrong with single records."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        return "the event has no list of Records, so it is not from a DynamoDB stream"
    sources = {str(r.get("eventSource", "aws:dynamodb")) for r in records if isinstance(r, Mapping)}
    if sources and "aws:dynamodb" not in sources:
        names = ", ".join(sorted(sources))[:100]
        return f"the event comes from {names}, not from a DynamoDB stream. Remove that trigger"
    return None

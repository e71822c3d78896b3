"""What a Lambda function is made of, from its environment, once per cold start.

| variable | meaning |
| --- | --- |
| `TABLE_NAME` | the application's table, for rules that say `table:` |
| `TABLES` | instead, for rules that say `tables:`: a JSON object of logical to real names |
| `LEDGER_TABLE_NAME` | the ledger |
| `RULES_FILE` | canonical rules (`.json`, as `sam build` makes them) or a rule file (`.yaml`, which needs pydantic) |
| `STREAM_ARN` | the stream's ARN, several separated by commas: for the quarantine, and for records whose ARN has no label |
| `STREAM_LABEL` | only for emulators whose stream ARN changes: the label of all records, instead of the one in their ARN |
| `NEW_RULES` | `live` (if absent) or `fill`: how rules start where the registry is empty |
| `QUARANTINE_QUEUE_URL` | where records go that a rule cannot use; without it they are reported as failed |
| `TASK_QUEUE_URL` | where long work goes; without it everything is done at once; the worker needs both queues |
| `AUDIT_ITEMS` | how many items the audit reads in a run at most, at least 100; 10000 if absent |
| `REDACT` | what of items is removed from logs, messages and errors: `none` (if absent), `keys`, `values` or `all` |
| `PUSH_WRITES_PER_SECOND` | how many children a function instance updates in a second, at least 25; 500 if absent |
"""

from __future__ import annotations

import gc
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from projections.engine.processor import Outcome, Processor
from projections.engine.records import WHOLE_BATCH, stream_label
from projections.engine.registry import FILLING, LIVE, RuleState
from projections.engine.rejections import Rejected
from projections.engine.running import Run
from projections.engine.store import Store
from projections.errors import Misconfigured, StoreError, Transient
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations.pacing import Pacer
from projections.operations.quarantine import Quarantine
from projections.operations.tasks import Tasks

if TYPE_CHECKING:
    from projections.aws.queues import Queue
    from projections.operations.audit import Audited
    from projections.operations.redaction import Handler, Redaction
    from projections.operations.worker import Work

__all__ = [
    "MAIN",
    "THREADS",
    "Settings",
    "StreamHandler",
    "Throttles",
    "at_once",
    "audit_from_environment",
    "collect_seldom",
    "stream_from_environment",
    "worker_from_environment",
]

MAIN = "main"
"""The logical name of the one table of rules that say `table:`."""

MARGIN = 3.0
"""Seconds before the end of an invocation in which nothing new begins: the requests under way and the answer need some."""

THREADS = 10
"""Requests to DynamoDB at once. One core of Lambda has no work for more: a request costs about half a millisecond of it."""

PAGE_SECONDS = 5.0
"""The last page of a push begins to write no later before the end of an invocation."""

_REDACT = ("none", "keys", "values", "all")

_NEW_RULES = {"live": LIVE, "fill": FILLING}

_WRITES_PER_SECOND = 500
"""Half of what a partition takes; the other half is the application's."""

_LEAST_AUDITED = 100
"""Less is not worth an invocation."""

_LEAST_WRITES_PER_SECOND = 25
"""Below, a single page (1000 children) would take more than an invocation has."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The environment, read and checked."""

    tables: Mapping[str, str]
    ledger: str
    rules: Path
    stream_arns: Mapping[str, str]
    stream_label: str
    new_rules: RuleState
    quarantine_url: str | None
    task_url: str | None
    push_writes_per_second: int
    redact: str

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Raises `Misconfigured`, naming the variable and what to set it to."""
        tables = _tables(environ)
        new_rules = environ.get("NEW_RULES") or "live"
        if new_rules not in _NEW_RULES:
            raise Misconfigured(f"NEW_RULES is {new_rules!r}. Set it to `live`, or to `fill` where data exists.")
        redact = environ.get("REDACT") or "none"
        if redact not in _REDACT:
            raise Misconfigured(f"REDACT is {redact!r}. Set it to {', '.join(_REDACT[:-1])} or {_REDACT[-1]}.")
        ledger = _required(environ, "LEDGER_TABLE_NAME", "the name of the ledger table (keys pk and sk)")
        if ledger in tables.values():
            raise Misconfigured(f"LEDGER_TABLE_NAME is {ledger!r}, an application table. Give the ledger its own.")
        return cls(
            tables=tables,
            ledger=ledger,
            rules=Path(_required(environ, "RULES_FILE", "the path of the rules in the package, as rules.json")),
            stream_arns=_stream_arns(environ, tables),
            stream_label=environ.get("STREAM_LABEL") or "",
            new_rules=_NEW_RULES[new_rules],
            quarantine_url=environ.get("QUARANTINE_QUEUE_URL") or None,
            task_url=environ.get("TASK_QUEUE_URL") or None,
            push_writes_per_second=_rate(environ),
            redact=redact,
        )


class Processing(Protocol):
    """What the handler asks of the engine: `engine.processor.Processor`, or a fake in tests."""

    def process(self, records: Sequence[Mapping[str, Any]], *, remaining: Callable[[], float]) -> Outcome: ...


class StreamHandler:
    """Takes the events Lambda makes of stream records; answers with the lowest sequence number that has to come again.

    `observe` is told what became of every event; `pacer` is told of the time there is.
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
        """`remaining` gives the seconds left. Raises `Misconfigured`, never for the sake of a record."""
        if self._pacer:
            self._pacer.within(lambda: remaining() - PAGE_SECONDS)
        reason = _unusable(event)
        outcome = self._refuse(reason) if reason else self._processor.process(event["Records"], remaining=remaining)
        if self._observe:
            self._observe(outcome)
        failures = [] if outcome.failed is None else [{"itemIdentifier": outcome.failed}]
        return {"batchItemFailures": failures}

    def _refuse(self, reason: str) -> Outcome:
        """An event that no stream sent: one message in quarantine; where there is none, the event as a whole failed."""
        refused = (Rejected(None, reason),)
        failed = None
        try:
            if self._quarantine is None:
                raise Transient("there is no quarantine")
            self._quarantine(refused)
        except StoreError as error:
            failed, reason = WHOLE_BATCH, f"{reason}, and {error}"
        return Outcome(failed, None if failed is None else reason, refused, {"rejected": 1})


class Throttles:
    """Counts throttled requests until they are taken. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, reason: str) -> None:
        """Count a request. `reason` names the limit and the table or index, as in `DynamoDBStore`."""
        with self._lock:
            self._counts[reason] += 1

    def take(self) -> dict[str, int]:
        """Return the counts since the last call, the most frequent reason first."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts.most_common())


def stream_from_environment(
    environ: Mapping[str, str],
    *,
    observe: Callable[[Outcome], None] | None = None,
    throttled: Callable[[str], None] = lambda reason: None,
) -> Handler:
    """The handler of stream records. `throttled` is called with the reason of each request that DynamoDB throttled.

    Raises `Misconfigured` or, for a rule file, `RulesError`.
    """
    parts = _parts(environ, throttled)
    settings = parts.settings
    processor = Processor(
        parts.program,
        parts.store,
        tables={_table_name(name): logical for logical, name in settings.tables.items()},
        labels={logical: stream_label(arn) for logical, arn in settings.stream_arns.items()},
        fixed_label=settings.stream_label,
        quarantine=parts.quarantine,
        run=at_once(THREADS),
        tasks=parts.tasks,
        pace=parts.pacer,
        margin=MARGIN,
        new_rules=settings.new_rules,
    )
    redaction = parts.redaction
    seen = observe if redaction is None or observe is None else lambda outcome: observe(redaction.outcome(outcome))
    handler = StreamHandler(processor, quarantine=parts.quarantine, observe=seen, pacer=parts.pacer)
    return handler if redaction is None else redaction.guarding(handler)


def worker_from_environment(
    environ: Mapping[str, str],
    *,
    observe: Callable[[Work], None] | None = None,
    throttled: Callable[[str], None] = lambda reason: None,
) -> Handler:
    """The handler of tasks. `throttled` and what is raised are as above."""
    for name, meaning in (("TASK_QUEUE_URL", "tasks"), ("QUARANTINE_QUEUE_URL", "what can never be written")):
        _required(environ, name, f"the URL of the queue for {meaning}")
    from projections.operations.worker import WorkerHandler  # functions for records do without

    parts = _parts(environ, throttled)
    assert parts.tasks is not None
    assert parts.quarantine is not None
    redaction = parts.redaction
    seen = observe if redaction is None or observe is None else lambda work: observe(redaction.work(work))
    handler = WorkerHandler(
        parts.program,
        parts.store,
        send=parts.tasks,
        quarantine=parts.quarantine,
        pacer=parts.pacer,
        observe=seen,
        run=at_once(THREADS),
        new_rules=parts.settings.new_rules,
    )
    return handler if redaction is None else redaction.guarding(handler)


def audit_from_environment(
    environ: Mapping[str, str],
    *,
    observe: Callable[[Audited], None] | None = None,
    throttled: Callable[[str], None] = lambda reason: None,
) -> Handler:
    """The handler of the audit's schedule. `throttled` and what is raised are as above."""
    from projections.operations.audit import ITEMS, AuditHandler  # of which the other functions need nothing

    text = environ.get("AUDIT_ITEMS") or str(ITEMS)
    if not text.isdecimal() or int(text) < _LEAST_AUDITED:
        raise Misconfigured(f"AUDIT_ITEMS is {text!r}. Set it to a whole number, at least {_LEAST_AUDITED}.")
    parts = _parts(environ, throttled)
    redaction = parts.redaction
    seen = observe if redaction is None or observe is None else lambda audited: observe(redaction.audited(audited))
    handler = AuditHandler(parts.program, parts.store, items=int(text), observe=seen, run=at_once(THREADS))
    return handler if redaction is None else redaction.guarding(handler)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What every function is made of."""

    settings: Settings
    program: Program
    store: Store
    quarantine: Quarantine | None
    tasks: Tasks | None
    pacer: Pacer
    redaction: Redaction | None


def _parts(environ: Mapping[str, str], throttled: Callable[[str], None]) -> _Parts:
    settings = Settings.read(environ)
    document = _document(settings.rules)
    program = Program.from_document(document)
    _agree(settings.tables, program.tables)
    # botocore is imported here and not above, so that a setting that is missing is told at once and without it.
    from projections.aws.clients import client
    from projections.stores.dynamodb import DynamoDBStore

    store = DynamoDBStore(
        client("dynamodb", max_pool_connections=THREADS),
        {**settings.tables, "ledger": settings.ledger},
        {**program.tables, "ledger": LEDGER_SCHEMA},
        throttled=throttled,
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
    """Made when there is something to send for the first time: a client of SQS is a tenth of a cold start."""
    from projections.aws.clients import client
    from projections.aws.queues import Queue

    return Queue(client("sqs", max_pool_connections=THREADS), url)


def at_once(threads: int) -> Run[Any]:
    """Runs pieces of work in threads and waits for all of them, also if one raises: nothing may go on after an answer."""
    pool = ThreadPoolExecutor(threads)

    def run(pieces: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(pieces) < 2:
            return [piece() for piece in pieces]
        futures = [pool.submit(piece) for piece in pieces]
        wait(futures)
        return [future.result() for future in futures]

    return run


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
            "Name the rules.json that `sam build` makes of it."
        ) from error
    return load(path).canonical()


def _tables(environ: Mapping[str, str]) -> dict[str, str]:
    single, several = environ.get("TABLE_NAME"), environ.get("TABLES")
    if single and several:
        raise Misconfigured("TABLE_NAME and TABLES are both set. Keep TABLES only if the rules say `tables:`.")
    if not several:
        return {MAIN: _required(environ, "TABLE_NAME", "the name of the application's table")}
    try:
        tables = json.loads(several)
    except ValueError:
        tables = None
    if not isinstance(tables, dict) or not tables or not all(isinstance(t, str) and t for t in tables.values()):
        raise Misconfigured(f'TABLES is {several!r}. Set it to a JSON object, as {{"orders": "prod-orders"}}.')
    if len(set(tables.values())) < len(tables):
        raise Misconfigured(f"TABLES is {several!r}, which gives one table two names. Name each table once.")
    return tables


def _stream_arns(environ: Mapping[str, str], tables: Mapping[str, str]) -> dict[str, str]:
    logical = {_table_name(name): key for key, name in tables.items()}
    arns = {}
    for arn in filter(None, (part.strip() for part in environ.get("STREAM_ARN", "").split(","))):
        table = _table_name(arn)
        if "/stream/" not in arn or table not in logical:
            raise Misconfigured(
                f"STREAM_ARN has {arn!r}, which is no stream of {', '.join(sorted(logical))}. "
                "Set it to the table's LatestStreamArn."
            )
        arns[logical[table]] = arn
    return arns


def _rate(environ: Mapping[str, str]) -> int:
    text = environ.get("PUSH_WRITES_PER_SECOND") or str(_WRITES_PER_SECOND)
    if not text.isdecimal() or int(text) < _LEAST_WRITES_PER_SECOND:
        raise Misconfigured(
            f"PUSH_WRITES_PER_SECOND is {text!r}. Set it to a whole number, {_LEAST_WRITES_PER_SECOND} or more."
        )
    return int(text)


def _agree(tables: Mapping[str, str], wanted: Mapping[str, object]) -> None:
    named, known = set(tables), set(wanted)
    if named == known:
        return
    if known == {MAIN}:
        raise Misconfigured("TABLES is set, but the rules say `table:`. Set TABLE_NAME instead.")
    if named == {MAIN}:
        raise Misconfigured(f"TABLE_NAME is set, but the rules have {', '.join(sorted(known))}. Set TABLES instead.")
    missing, unknown = ", ".join(sorted(known - named)), ", ".join(sorted(named - known))
    raise Misconfigured(f"TABLES does not fit the rules: missing are [{missing}], unknown are [{unknown}].")


def _required(environ: Mapping[str, str], name: str, meaning: str) -> str:
    value = environ.get(name)
    if not value:
        raise Misconfigured(f"{name} is not set. Set it to {meaning}.")
    return value


def _table_name(text: str) -> str:
    """The name in a table's or stream's ARN, or the name itself."""
    return text.split("/")[1] if text.startswith("arn:") and "/" in text else text


def _unusable(event: Any) -> str | None:
    """Why this is no event of a stream. What is wrong with single records the engine tells."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        return "the event has no list of Records, so no DynamoDB stream sent it"
    sources = {str(r.get("eventSource", "aws:dynamodb")) for r in records if isinstance(r, Mapping)}
    if sources and "aws:dynamodb" not in sources:
        return (
            f"the event comes from {', '.join(sorted(sources))[:100]}, not from a DynamoDB stream; remove that trigger"
        )
    return None

"""A deployed stack, measured end to end: `python -m benchmarks.deployed --stack S`. It prints a page of Markdown.

The benchmark is the application: at a steady rate, it puts, edits and deletes likes of posts under the rules in
`benchmarks/deployed.yaml`. It does so twice: undisturbed, and while it restarts and stops the function and delivers records
again. Each time it waits until the posts show what its account of its writes requires. Then `verify` compares everything.

Latency: from DynamoDB's answer to a write until a reader finds the projection. A measured like is the only one of its post,
so its count and its copy can have no other cause. Writer and reader share a process, so a clock. Every `POLL` seconds, the
reader asks for the `KEYS` items that it has expected longest, with consistent reads: a figure is too long by at most that
pause and one request, and never too short.

It writes only to a table of its own: one that the stack created, that has exactly these rules, and that was empty before the
first run. Since then, a marker item is in it. The table of an application fails each of these tests.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil, inf
from pathlib import Path
from textwrap import fill
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

import projections
from benchmarks.figures import commit, text
from projections.api import VerifyResult, load, status, verify
from projections.aws.clients import client, is_emulated
from projections.aws.live_tables import Live
from projections.aws.streams import StreamReader
from projections.cli.options import Tables
from projections.cli.stack import find_deployed
from projections.engine.running import slices
from projections.errors import ProjectionsError, UsageError
from projections.inspect.cost.change_costs import Flow
from projections.inspect.cost.estimate import MILLION, PRICES, estimate

__all__ = ["MARKER", "RULES", "find_bench", "main"]

RULES = Path(__file__).with_suffix(".yaml")
MARKER = {"PK": {"S": "BENCHMARK"}, "SK": {"S": "MARKER"}}
PARTS = ("tables", "entities", "projections")
"""Of the rules: what has to be as in RULES."""
POSTS = 10
"""Posts that share the likes that are not measured."""
WRITERS, WAITING = 16, 500
"""Threads that write, and the most writes that wait for one of them."""
POLL, KEYS = 0.05, 100
DRAIN = 600.0
"""Seconds within which everything has to be projected, and within which CloudWatch has to have counted it."""
PAUSE = 5.0
"""Seconds for which the event source mapping is disabled, and after which a part ends."""
REDELIVERED = 1000
"""The most records that are delivered again at a time, the newest."""
METRICS = ("ConsumedWriteCapacityUnits", "ConsumedReadCapacityUnits", "WriteThrottleEvents", "ReadThrottleEvents")


@dataclass(frozen=True, slots=True)
class Bench:
    """The stack: its live tables, its function and the mapping of its stream, and the application's client."""

    stack: str
    region: str | None
    live: Live
    function: str
    mapping: Mapping[str, Any]
    dynamodb: Any

    @property
    def table(self) -> str:
        return self.live.names["main"]

    @property
    def emulated(self) -> bool:
        return is_emulated(self.dynamodb.meta.endpoint_url)

    def client(self, service: str) -> Any:
        return client(service, region=self.region)

    def configuration(self) -> dict[str, Any]:
        configuration: dict[str, Any] = self.client("lambda").get_function_configuration(FunctionName=self.function)
        return configuration

    def finish_minute(self) -> None:
        """Wait for the next minute, because CloudWatch counts by the minute. On an emulator, do not."""
        if not self.emulated:
            time.sleep(60 - time.time() % 60)


def find_bench(stack: str, region: str | None = None) -> Bench:
    """Return the stack. Writes nothing. Raises UsageError if its table is not the benchmark's, or nothing is projected."""
    refused = f"stack {stack} was not made for this benchmark, so nothing was written:"
    deployed = find_deployed(Tables(stack=stack, region=region))
    assert deployed.stack is not None
    outputs, rules, cloudformation = deployed.stack.outputs, load(RULES), deployed.client("cloudformation")
    for resource, output in (("ApplicationTable", "TableName"), ("LedgerTable", "LedgerTableName")):
        try:
            answer = cloudformation.describe_stack_resource(StackName=stack, LogicalResourceId=resource)
        except ClientError:
            raise UsageError(f"{refused} it has no {resource}") from None
        if answer["StackResourceDetail"]["PhysicalResourceId"] != outputs.get(output):
            raise UsageError(f"{refused} it did not create {outputs.get(output)}")
    registered = deployed.registered_rules(pending=True)
    if registered is None or any(registered[part] != rules.document[part] for part in PARTS):
        raise UsageError(f"{refused} it has other rules than {RULES}, or none that `projections apply` has published")
    live, dynamodb = deployed.connect(registered), client(region=region, max_pool_connections=WRITERS + 2)
    table: dict[str, Any] = {"TableName": outputs["TableName"], "ConsistentRead": True}
    if "Item" not in dynamodb.get_item(**table, Key=MARKER) and dynamodb.scan(**table, Limit=1)["Items"]:
        raise UsageError(f"{refused} table {outputs['TableName']} has items of an application")
    if waiting := sorted(name for name, state in status(live.store, rules).versions.items() if state != "active"):
        raise UsageError(f"{', '.join(waiting)}: not active. Run `projections apply {RULES} --stack {stack}`")
    mappings = deployed.mappings(live) or []
    if len(mappings) != 1 or mappings[0]["State"] != "Enabled":
        raise UsageError(f"stack {stack} needs one event source mapping that is enabled")
    return Bench(stack, region, live, outputs["StreamFunctionName"], mappings[0], dynamodb)


# The load


class Write(NamedTuple):
    """A like of a post, with its points before the write and after it; None where there is no like."""

    user: str
    post: str
    before: int | None
    points: int | None
    measured: bool = False


def plan_writes(part: str, events: int, every: int) -> Iterator[Write]:
    """Yield a load: of ten writes, one edits a like and one deletes one. Of `every` so many, one is measured."""
    chance, likes = random.Random(part), deque[Write]()
    for number in range(events):
        user, points = f"{part}-{number}", number % 100
        if number % 10 in (3, 7):
            like = likes.popleft()
            write = like._replace(before=like.points, points=points if number % 10 == 3 else None)
        elif number % every == 0:
            write = Write(user, f"{user}-measured", None, points, measured=True)
        else:
            write = Write(user, f"{part}-{chance.randrange(POSTS)}", None, points)
        if write.points is not None and not write.measured:
            likes.append(write)
        yield write


def post_key(post: str, sort: str = "METADATA") -> dict[str, Any]:
    return {"PK": {"S": f"BENCHMARK-POST#{post}"}, "SK": {"S": sort}}


@dataclass(slots=True)
class Part:
    """A part of the benchmark: a load, what the reader found of it, and the units that writer and reader consumed."""

    bench: Bench
    name: str
    rate: float
    events: int
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    ended: datetime = field(default_factory=lambda: datetime.now(UTC))
    written: int = 0
    write_seconds: float = 0.0
    seconds: float = 0.0
    drained: bool = False
    wrong: int = 0
    longest_pause: float = 0.0
    units: Counter[str] = field(default_factory=Counter)
    waits: dict[str, list[float]] = field(default_factory=lambda: {"count": [], "copy": []})
    expected: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Likes and points of each post."""
    pending: dict[tuple[str, str], float] = field(default_factory=dict)
    """Keys of expected items, with the time of the answer to the write."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, disturb: Callable[[float], None] = time.sleep) -> None:
        """Write the load, and wait until it is projected. `disturb` gets the seconds of the load, and runs beside it."""
        writes = list(plan_writes(self.name, self.events, 10 * max(1, round(self.rate / 100))))
        self.expected = {write.post: (0, 0) for write in writes}
        shared = [post for post in self.expected if not post.endswith("-measured")]
        for post in self.expected:
            self.bench.dynamodb.put_item(TableName=self.bench.table, Item=post_key(post))
        self.bench.finish_minute()
        self.began, started, over = datetime.now(UTC), time.monotonic(), threading.Event()
        with ThreadPoolExecutor(3) as pool:
            try:
                disturbing = pool.submit(disturb, self.events / self.rate)
                reading, writing = pool.submit(self._read, over), pool.submit(self._write_all, writes, over)
                writing.result()
                self.write_seconds, limit = time.monotonic() - started, time.monotonic() + DRAIN
                while not self.drained and time.monotonic() < limit and not reading.done():
                    time.sleep(0.25)
                    self.drained = not self.pending and not self._count_wrong(shared)
                self.seconds = time.monotonic() - started
                disturbing.result()
            finally:
                over.set()
            reading.result()
        for _, sort in self.pending:
            self.waits["count" if sort == "METADATA" else "copy"].append(inf)

    def end(self) -> None:
        """Compare each post, after a moment for the records of what the rules wrote."""
        time.sleep(PAUSE)
        self.wrong, self.ended = self._count_wrong(list(self.expected)), datetime.now(UTC)

    def _write_all(self, writes: Sequence[Write], over: threading.Event) -> None:
        """Write at the rate, for at most twice as long as planned. All writes of one like are made by one thread."""
        pools, waiting = [ThreadPoolExecutor(1) for _ in range(WRITERS)], threading.Semaphore(WAITING)
        sent: list[Future[None]] = []
        started = time.monotonic()
        for number, write in enumerate(writes):
            time.sleep(max(0.0, started + number / self.rate - time.monotonic()))
            waiting.acquire()
            if over.is_set() or time.monotonic() > started + 2 * self.events / self.rate + 1:
                break
            likes, points = self.expected[write.post]
            likes += (write.points is not None) - (write.before is not None)
            self.expected[write.post] = (likes, points + (write.points or 0) - (write.before or 0))
            sent.append(pools[hash(write.user) % WRITERS].submit(self._send, write))
            sent[-1].add_done_callback(lambda _: waiting.release())
        for pool in pools:
            pool.shutdown()
        for future in sent:
            future.result()
        self.written = len(sent)

    def _send(self, write: Write) -> None:
        options: dict[str, Any] = {"TableName": self.bench.table, "ReturnConsumedCapacity": "TOTAL"}
        like = {"PK": {"S": f"BENCHMARK-USER#{write.user}"}, "SK": {"S": f"LIKE#{write.post}"}}
        if write.points is None:
            answer = self.bench.dynamodb.delete_item(Key=like, **options)
        else:
            answer = self.bench.dynamodb.put_item(Item={**like, "points": {"N": str(write.points)}}, **options)
        answered = time.monotonic()
        with self.lock:
            self.units["write"] += answer["ConsumedCapacity"]["CapacityUnits"]
            for sort in ("METADATA", f"LIKER#{write.user}") if write.measured else ():
                self.pending[f"BENCHMARK-POST#{write.post}", sort] = answered

    def _read(self, over: threading.Event) -> None:
        """Look for the expected items until all is over."""
        seen = time.monotonic()
        while not over.wait(POLL):
            before = seen
            with self.lock:
                wanted = list(self.pending)[:KEYS]
            items = self._get([{"PK": {"S": partition}, "SK": {"S": sort}} for partition, sort in wanted])
            seen = time.monotonic()
            self.longest_pause = max(self.longest_pause, seen - before) if wanted else self.longest_pause
            for item in items:
                kind = "count" if item["SK"]["S"] == "METADATA" else "copy"
                if kind == "copy" or item.get("likeCount", {"N": "0"})["N"] == "1":  # a new post may show 0
                    with self.lock:
                        self.waits[kind].append(seen - self.pending.pop((item["PK"]["S"], item["SK"]["S"])))

    def _get(self, keys: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the items that exist, of at most 100 keys."""
        if not keys:
            return []
        wanted = {self.bench.table: {"Keys": keys, "ConsistentRead": True}}
        answer = self.bench.dynamodb.batch_get_item(RequestItems=wanted, ReturnConsumedCapacity="TOTAL")
        with self.lock:
            self.units["read"] += sum(each["CapacityUnits"] for each in answer.get("ConsumedCapacity", []))
        items: list[dict[str, Any]] = answer["Responses"][self.bench.table]
        return items + self._get(answer.get("UnprocessedKeys", {}).get(self.bench.table, {}).get("Keys", []))

    def _count_wrong(self, posts: Sequence[str]) -> int:
        """Return how many of these posts show other numbers than the writes require."""
        items = [item for page in slices(posts, KEYS) for item in self._get([post_key(post) for post in page])]
        numbers = {
            item["PK"]["S"]: tuple(int(item.get(name, {"N": "0"})["N"]) for name in ("likeCount", "points"))
            for item in items
        }
        return sum(numbers[f"BENCHMARK-POST#{post}"] != self.expected[post] for post in posts)


# Faults


class Faults:
    """Disturbs the function and its deliveries in the ways that an account has. `restore` undoes them."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._functions = bench.client("lambda")
        self._reader = StreamReader(bench.client("dynamodbstreams"), bench.mapping["EventSourceArn"])
        self._records: deque[dict[str, Any]] = deque(maxlen=REDELIVERED)
        self._variables: dict[str, str] = bench.configuration()["Environment"]["Variables"]
        self.done = Counter[str]()
        self.shards = {shard.id for shard in self._reader.shards()[1]}
        for shard in self.shards:
            self._reader.begin(shard, latest=True)
        if bench.emulated:  # MiniStack shows another label of the stream at each poll
            self._variables["STREAM_LABEL"] = bench.mapping["EventSourceArn"].rpartition("/")[2]
            self._configure({})

    def disturb(self, seconds: float) -> None:
        """Cause all faults, one after the other, within about so many seconds."""
        restart, deliver = self._restart, self.deliver_again
        faults = (restart, deliver, restart, self._pause, restart, deliver, restart)
        for fault in faults:
            time.sleep(seconds / (len(faults) + 1))
            fault()

    def restore(self) -> None:
        self._switch(on=True)
        self._configure({})

    def deliver_again(self) -> None:
        """Invoke the function with the newest records of the stream, in the order and the form in which it had them."""
        for shard in self._reader.shards()[1]:
            if shard.id not in self.shards:
                self.shards.add(shard.id)
                self._reader.begin(shard.id)
            short = 0
            while short < 2:  # a read may be empty although there are more
                stretch = self._reader.read(shard.id)
                self._records.extend(stretch.records)
                short = 2 if stretch.ended else short + 1 if len(stretch.records) < 100 else 0
        for records in slices(self._records, self._bench.mapping["BatchSize"]):
            payload = json.dumps({"Records": records}).encode()
            answer = self._functions.invoke(FunctionName=self._bench.function, Payload=payload)
            failed = json.loads(answer["Payload"].read()).get("batchItemFailures") or answer.get("FunctionError")
            self.done[f"{'failed' if failed else 'successful'} deliveries of a record again"] += len(records)

    def _restart(self) -> None:
        """Change an environment variable, so that Lambda starts new environments."""
        self.done["restarts of the function"] += 1
        self._configure({"BENCHMARK_RESTARTS": str(self.done["restarts of the function"])})

    def _pause(self) -> None:
        self._switch(on=False)
        time.sleep(PAUSE)
        self._switch(on=True)
        self.done["pause of the event source mapping"] += 1

    def _configure(self, variables: Mapping[str, str]) -> None:
        self._functions.update_function_configuration(
            FunctionName=self._bench.function, Environment={"Variables": {**self._variables, **variables}}
        )
        while self._bench.configuration().get("LastUpdateStatus") == "InProgress":
            time.sleep(0.5)

    def _switch(self, *, on: bool) -> None:
        """Enable or disable the mapping, and wait until it is: Lambda takes up to a minute."""
        wanted = "Enabled" if on else "Disabled"
        while (state := self._functions.get_event_source_mapping(UUID=self._bench.mapping["UUID"])["State"]) != wanted:
            if state in ("Enabled", "Disabled"):
                self._functions.update_event_source_mapping(UUID=self._bench.mapping["UUID"], Enabled=on)
            time.sleep(0.5)


# What AWS and the function count


def read_metrics(bench: Bench, part: Part) -> Counter[str]:
    """Return the sums of CloudWatch's metrics for a part. One without data is missing."""
    function = ("AWS/Lambda", "FunctionName", bench.function)
    names = {name.lower(): (*function, name) for name in ("Errors", "Throttles")}
    for table, real in bench.live.names.items():
        for metric in METRICS:
            names[f"{table}_{metric}"] = ("AWS/DynamoDB", "TableName", real, metric)
    queries: list[Mapping[str, Any]] = []
    for name, (namespace, dimension, value, metric) in names.items():
        dimensions = [{"Name": dimension, "Value": value}]
        identity = {"Namespace": namespace, "MetricName": metric, "Dimensions": dimensions}
        queries.append({"Id": name, "MetricStat": {"Metric": identity, "Period": 60, "Stat": "Sum"}})
    begin, end = (moment.replace(second=0, microsecond=0) for moment in (part.began, part.ended + timedelta(minutes=1)))
    answer = bench.client("cloudwatch").get_metric_data(MetricDataQueries=queries, StartTime=begin, EndTime=end)
    return Counter({each["Id"]: sum(each["Values"]) for each in answer["MetricDataResults"] if each["Values"]})


def wait_for_metrics(bench: Bench, parts: Sequence[Part]) -> list[Counter[str]]:
    """Return the metrics of all parts, as soon as CloudWatch has had three minutes and they do not change any more."""
    metrics, limit = [read_metrics(bench, part) for part in parts], time.monotonic() + DRAIN
    while not bench.emulated and time.monotonic() < limit:
        time.sleep(60)
        before, metrics = metrics, [read_metrics(bench, part) for part in parts]
        if metrics == before and datetime.now(UTC) - parts[-1].ended > timedelta(minutes=3):
            break
    return metrics


def read_log(bench: Bench, part: Part) -> Counter[str]:
    """Return the sums of what the function counted in a part, and its write units under `units`."""
    begin, end = (int(moment.timestamp() * 1000) for moment in (part.began, part.ended))
    group, counts = bench.configuration()["LoggingConfig"]["LogGroup"], Counter[str]()
    pages = bench.client("logs").get_paginator("filter_log_events")
    for page in pages.paginate(logGroupName=group, filterPattern="_aws", startTime=begin, endTime=end):
        for line in (event["message"] for event in page["events"]):
            fields = json.loads(line) if line.startswith("{") else {}
            counts.update({name: value[0] for name, value in fields.items() if isinstance(value, list) and value})
            counts["invocations"] += "records" in fields
            counts["units"] += sum(fields.get("writes", {}).values())
    return counts


# The page

_UNSEEN = """**Only an account shows** latency and throughput of AWS, the wait until a batch is full, units as CloudWatch
counts them, throttling, several shards and their splits, and retries of a part of a batch. The emulator ends a running
invocation when the configuration of its function changes; Lambda lets it finish."""
_SEEN = """**Not shown**: Lambda lets a running invocation finish when the configuration of its function changes, so none was
ended halfway. `projections simulate` does that at every call."""


def page(bench: Bench, parts: Sequence[Part], faults: Faults, verified: VerifyResult) -> str:
    """Return the page. It reads what CloudWatch and the function's log have of the parts."""
    metrics, logs = wait_for_metrics(bench, parts), [read_log(bench, part) for part in parts]
    columns = [_figures(*each) for each in zip(parts, metrics, logs, strict=True)]
    rows = [f"| {title} | {' | '.join(column[title] for column in columns)} |" for title in columns[0]]
    function, first, mapping = bench.configuration(), parts[0], bench.mapping
    emulator = ", on an **emulator, whose times say nothing about AWS**" if bench.emulated else ""
    read = " and ".join(f"{number:,} items of {table}" for table, number in verified.read.items())
    slowest = 1000 * max(part.longest_pause for part in parts)
    notes = (
        f"dynamodb-projections {projections.__version__} ({commit()}), {first.began:%Y-%m-%d}, "
        f"{bench.dynamodb.meta.region_name}{emulator}.",
        f"`verify` afterwards: {len(verified.drifts)} differences, {len(verified.busy)} undecided, in {read}.",
        f"- **Load**, twice: {first.events:,} writes at {first.rate:g} a second. Of ten, 8 are new likes, 1 is an edit, 1 "
        "a deletion. Rules count the likes of a post and add their points (`aggregate`), and copy each like (`copy`).",
        "- **Latency**: from DynamoDB's answer to a write until a consistent read finds the projection, by one clock, "
        f"for {len(first.waits['count']):,} likes that are each the only one of their post. The others share {POSTS} posts. "
        f"The reader looks every {1000 * POLL:.0f} ms, once after {slowest:,.0f} ms: figures are too long by up to that.",
        f"- **Faults**: {', '.join(f'{number:,} {what}' for what, number in faults.done.items())}. The units include them.",
        "- **Posts** were compared with the writer's account of its writes. `verify` compares the tables with the ledger.",
        "- **Records** are those of the writes and of what rules wrote. Duplicates are changes of likes that came again.",
        f"- **Function**: {function['Runtime']}, {function['MemorySize']} MB, batches of up to {mapping['BatchSize']} "
        f"records that wait up to {mapping['MaximumBatchingWindowInSeconds']} s, {mapping['ParallelizationFactor']} at a "
        f"time for each of {len(faults.shards)} shards.",
        _UNSEEN if bench.emulated else _SEEN,
    )
    head, drift, *others = (fill(note, 120, subsequent_indent="  " * note.startswith("-")) for note in notes)
    table = ["| | undisturbed | with faults |", "| --- | --- | --- |", *rows]
    bullets, limits = others[:-1], others[-1]
    return "\n".join(
        ("# From write to projection, measured\n", head, "", *table, "", drift, "", *bullets, "", limits, "")
    )


def _figures(part: Part, sums: Mapping[str, float], log: Mapping[str, float]) -> dict[str, str]:
    """Return the column of a part by the titles of the rows."""
    figures = {
        "writes per second": f"{part.written / part.write_seconds:,.1f}",
        "projected per second, until the last": f"{part.written / part.seconds:,.1f}",
    }
    for kind, waits in part.waits.items():
        ordered = sorted(waits)
        shares = (ordered[ceil(share * len(ordered)) - 1] for share in (0.5, 0.95, 0.99))
        figures[f"seconds to the {kind}: p50 / p95 / p99"] = " / ".join(f"{wait:.2f}" for wait in shares)
    figures |= {
        "posts with a wrong number": f"{part.wrong:,} of {len(part.expected):,}",
        "invocations": f"{log['invocations']:,.0f}",
        "records delivered / duplicates found": f"{log['records']:,.0f} / {log['duplicates']:,.0f}",
        "write units per event: of the write itself": text(part.units["write"] / part.written),
        "… of the rules, by the function's log": text(log["units"] / part.written),
    }
    if "ledger_ConsumedWriteCapacityUnits" in sums:
        for kind in ("Write", "Read"):
            main, ledger = (sums[f"{table}_Consumed{kind}CapacityUnits"] for table in ("main", "ledger"))
            own = (main - part.units[kind.lower()]) / part.written
            figures[f"{kind.lower()} units per event, of the rules, by CloudWatch: table / ledger"] = (
                f"{text(own)} / {text(ledger / part.written)}"
            )
        throttled = sum(sums[name] for name in sums if "ThrottleEvents" in name)
        figures["requests throttled by DynamoDB"] = f"{throttled:,.0f}"
        figures["invocations failed / throttled"] = f"{sums['errors']:,.0f} / {sums['throttles']:,.0f}"
    return figures


# The command


def run(bench: Bench, rate: float, events: int) -> tuple[str, bool]:
    """Run both parts. Return the page, and whether every value is right."""
    bench.dynamodb.put_item(TableName=bench.table, Item=MARKER)
    begun, faults = f"{time.time():.0f}", Faults(bench)
    warm, first, second = (Part(bench, f"{begun}-{part}", rate, events if part else 1) for part in range(3))
    try:
        for part, disturb in ((warm, time.sleep), (first, time.sleep), (second, faults.disturb)):
            print(f"writing {part.events:,} likes …", file=sys.stderr, flush=True)
            part.run(disturb)
            if part is warm and not part.drained:
                raise UsageError(f"nothing was projected. `projections status --stack {bench.stack}` shows the reason")
            if part is second:
                faults.deliver_again()
            part.end()
    finally:
        faults.restore()
    bench.finish_minute()
    print("verifying …", file=sys.stderr, flush=True)
    verified = verify(bench.live.store, load(RULES))
    right = verified.ok and not verified.busy and first.drained and second.drained and not first.wrong + second.wrong
    return page(bench, (first, second), faults, verified), right


def announce(bench: Bench, rate: float, events: int) -> str:
    """Return what a run does, and about what it costs: as if each write were alone in its batch."""
    spent = estimate(bench.live.program.model, {Flow("Like"): rate}, batch=1).spending
    delivered, looks = 2 * events + 3 * REDELIVERED, 2 * events / rate / POLL * KEYS
    writes, reads = delivered * spent.write_units + 2 * events, delivered * spent.read_units + looks
    dollars = delivered * spent.per_event + (2 * events * PRICES["write"][0] + looks * PRICES["read"][0]) / MILLION
    minutes = 2 * events / rate / 60 + (1 if bench.emulated else 10)
    return (
        f"This writes {2 * events:,} times to table {bench.table} in {bench.dynamodb.meta.region_name}. Until it ends, in "
        f"about {minutes:.0f} minutes, it changes function {bench.function} and its event source mapping.\n"
        f"It costs up to about ${dollars:,.2f} on demand in us-east-1: {writes:,.0f} write units, {reads:,.0f} read units, "
        "and Lambda. The alarms, metrics and tables of the stack cost money until you delete it."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.deployed", description="Measure a stack end to end.")
    parser.add_argument("--stack", required=True, help="a stack that was deployed for this benchmark")
    parser.add_argument("--endpoint-url", help="the endpoint of an emulator")
    parser.add_argument("--region", help="AWS Region")
    parser.add_argument("--rate", type=float, default=50.0, metavar="N", help="writes a second, up to 1000 (50)")
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="N", help="seconds of load, twice, up to 600 (60)"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    options = parser.parse_args(arguments)
    events = round(options.rate * options.seconds)
    if not (0 < options.rate <= 1000 and 0 < options.seconds <= 600 and events >= 10):
        parser.error("--rate is at most 1000, --seconds at most 600, and together they make at least 10 writes")
    if options.endpoint_url:
        os.environ["AWS_ENDPOINT_URL"] = options.endpoint_url
    try:
        bench = find_bench(options.stack, options.region)
        print(announce(bench, options.rate, events), file=sys.stderr)
        if not options.yes and not (sys.stdin.isatty() and input("Go on? [y/N] ").strip().lower() == "y"):
            print("Nothing was written. Without a terminal, pass --yes.", file=sys.stderr)
            return 2
        result, right = run(bench, options.rate, events)
    except ProjectionsError as error:
        print(error, file=sys.stderr)
        return 2
    print(result, end="")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())

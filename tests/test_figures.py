"""The figures that docs/cost.md quotes, exact and asserted: units and calls of batches of events, and per child of a push.

Of events they are what DynamoDB charges for the requests made, of pushes what MiniStack and DynamoDB Local report.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from benchmarks import cpu
from benchmarks.charges import charged
from benchmarks.figures import OURS
from benchmarks.push import Pushes
from benchmarks.rank import ANY, BACK, GONE, LAPS, NEW, SIGNED, SMALL, WHOLE, Boards, local, memory
from benchmarks.units import Units, measure_all
from benchmarks.workload import LIKES, TABLE, likes, program, removed
from projections.engine.embeds import Embedder
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.inspect.rehearsal.recorder import RecordingStore, Spent
from projections.language.program import LEDGER_SCHEMA
from projections.stores.limits import item_size
from projections.stores.memory import MemoryStore

pytestmark = pytest.mark.deep
UNITS, PUSHES = pytest.mark.xdist_group("units"), pytest.mark.xdist_group("pushes")
"""What takes long to measure is measured in one process."""


Measured = dict[tuple[str, str], Units]
"""By way and case."""


@pytest.fixture(scope="module")
def units(dynamodb_local_url: str) -> Measured:
    measured = measure_all(dynamodb_local_url)
    return {(each.way[:3] if each.way.startswith("(") else each.way, each.case): each for each in measured}


OTHERS = {"(a)": (100, 0, 100), "(b)": (300, 0, 300), "(c)": (400, 0, 100)}
EXACT = {
    # case, ways: write units, read units, calls
    "a lone like": {
        "lanes (100)": (2, 1, 3),
        "ours (100)": (5, 2, 3),
        "(a)": (1, 0, 1),
        "(b)": (3, 0, 3),
        "(c)": (4, 0, 1),
    },
    "likes of one post": {
        "lanes (100)": (2, 1, 3),
        "lanes (1000)": (2, 1, 3),
        "ours (100)": (205, 2, 5),
        "ours (1000)": (2023, 2, 14),
        **OTHERS,
    },
    "likes of 10 posts": {
        "lanes (100)": (20, 1, 3),
        "lanes (1000)": (20, 1, 3),
        "ours (100)": (230, 11, 5),
        "ours (1000)": (2050, 11, 14),
        **OTHERS,
    },
    "likes of 10 posts, delivered again": {
        "lanes (100)": (20, 21, 5),
        "lanes (1000)": (20, 21, 5),
        "ours (100)": (230, 21, 6),  # the publishes fail, and the posts are read
        "ours (1000)": (2050, 21, 15),
        "(a)": (100, 0, 100),  # and counts them twice
        "(b)": (100, 0, 100),
        "(c)": (400, 0, 100),
    },
    "likes of 10 posts, the first of most": {
        "lanes (100)": (29, 10, 5),
        "lanes (1000)": (20, 1, 3),
        "ours (100)": (230, 11, 5),
        "ours (1000)": (2050, 11, 14),
    },
    "likes of a post each, the first of most": {
        "lanes (100)": (290, 91, 17),
        "lanes (1000)": (2900, 901, 153),
        "ours (100)": (500, 101, 8),
        "ours (1000)": (5000, 1001, 71),
    },
    "likes of a post each": {
        "lanes (100)": (200, 1, 9),
        "lanes (1000)": (2000, 1, 81),
        "ours (100)": (500, 101, 8),
        "ours (1000)": (5000, 1001, 71),
        **OTHERS,
    },
    "edits that change nothing we keep": {
        "lanes (100)": (0, 1, 1),
        "lanes (1000)": (0, 1, 1),
        "ours (100)": (0, 1, 1),
        "ours (1000)": (0, 1, 1),
        "(a)": (0, 0, 0),
        "(b)": (0, 0, 0),
        "(c)": (0, 0, 0),
    },
    "unlikes of 10 posts": {
        "lanes (100)": (20, 1, 3),
        "lanes (1000)": (20, 1, 3),
        "ours (100)": (330, 111, 10),
        "ours (1000)": (3050, 1011, 64),
        **OTHERS,
    },
    "a lone like into 8 counters": {"ours (100)": (26, 9, 3), "(a)": (8, 0, 8), "(b)": (10, 0, 10), "(c)": (18, 0, 1)},
    "likes into the same 8 counters": {
        "ours (100)": (240, 9, 5),
        "ours (1000)": (2184, 9, 14),
        "(a)": (80, 0, 80),  # of ten
        "(b)": (100, 0, 100),
        "(c)": (180, 0, 10),
    },
    "a lone like into 8 counters of one item, the first": {"lanes (100)": (17, 9, 5), "ours (100)": (19, 9, 3)},
    "a lone like into 8 counters of one item": {"lanes (100)": (9, 1, 3), "ours (100)": (19, 9, 3)},
    "likes into 8 counters of one item": {
        "lanes (100)": (9, 1, 3),
        "lanes (1000)": (9, 1, 3),
        "ours (100)": (233, 9, 5),
        "ours (1000)": (2177, 9, 14),
    },
    "a lone copy": {"ours (100)": (1, 1, 2), "(d)": (1, 0, 1)},
    "copies": {"ours (100)": (100, 1, 101), "(d)": (100, 0, 100)},
    "copies, delivered again": {"ours (100)": (100, 1, 101), "(d)": (100, 0, 100)},
    "copies, edits of what is not copied": {"ours (100)": (0, 1, 1), "(d)": (0, 0, 0)},
}


@UNITS
@pytest.mark.parametrize("case", EXACT)
def test_units_and_calls(units: Measured, case: str) -> None:
    """What DynamoDB charges for a batch, in every way that is measured, and the calls it gets."""
    found = {way: each.spent for (way, of), each in units.items() if of == case}
    assert {way: (each.write_units, each.read_units, each.calls) for way, each in found.items()} == EXACT[case]


@UNITS
def test_what_is_charged_is_what_a_rehearsal_says(units: Measured) -> None:
    """The account of `explain` and `cost`, which knows the sizes of items, on the same records."""
    rules = program()
    memory = MemoryStore({**rules.tables, "ledger": LEDGER_SCHEMA})
    Registry(rules, memory).read_or_create()
    for post in range(10):
        memory.seed("main", {"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}, "title": {"S": "T"}})
    store = RecordingStore(memory)
    processor = Processor(rules, store, tables={TABLE: "main"})
    many = likes(100, 10)
    for case, records in (
        ("likes of 10 posts", many),
        ("likes of 10 posts, delivered again", many),
        ("unlikes of 10 posts", [removed(record) for record in many]),
    ):
        processor.process(records, remaining=lambda: 900.0)
        spent, wanted = Spent.of(store.take_requests()), units["ours (100)", case].spent
        assert (spent.write_units, spent.read_units, spent.call_count) == (
            wanted.write_units,
            wanted.read_units,
            wanted.calls,
        ), case


@pytest.mark.parametrize(
    ("shards", "update", "update_of_10"), [(1, 1, 1), (4, 2, 1), (8, 3, 1), (30, 9, 2), (100, 29, 4)]
)
def test_an_update_of_a_group_by_the_open_shards_of_a_stream(shards: int, update: int, update_of_10: int) -> None:
    """Write units of a busy post's group, which has a lane for each shard that has fed it in 25 hours: 7 for each open one.

    `update_of_10` is the largest of ten items, with `shards: 10`. A shard closes after about four hours.
    """
    for rules, units in (
        (program(lanes=True), update),
        (program(LIKES.replace("{into: Post,", "{into: Post, shards: 10,"), lanes=True), update_of_10),
    ):
        store = MemoryStore({**rules.tables, "ledger": LEDGER_SCHEMA})
        Registry(rules, store).read_or_create()
        processor = Processor(rules, store, tables={TABLE: "main"})
        for number in range(7 * shards + 1):
            (record,) = likes(1, 1, first=number)
            record["dynamodb"]["SequenceNumber"] = str(10**27 + number)  # as long as those of AWS
            outcome = processor.process([record], remaining=lambda: 900.0, shard=f"shardId-{number:020d}-{number:08x}")
            assert outcome.failed is None, outcome.failed_reason
        groups = store.query("ledger", [{"S": "G|engagement.1|main|POST#0|METADATA"}]).items
        assert sum(int(group["n"]["N"]) for group in groups) == 7 * shards + 1
        assert max(-(-item_size(group) // 1024) for group in groups) == units


def test_a_request_whose_charge_does_not_follow_from_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="Scan"):
        charged("Scan", {"TableName": "main"})


@pytest.fixture(scope="module")
def pushes(dynamodb_local_url: str) -> Iterator[Pushes]:
    with Pushes(dynamodb_local_url, 2100) as found:
        found.push()  # tries PartiQL; the emulator's compiler begins to work
        yield found


@PUSHES
def test_a_push_in_statements(pushes: Pushes) -> None:
    """One statement for each child, in as few calls as hold them; for each page the fence, the parent and the children."""
    pushed = pushes.push()
    members = list(pushes.members())
    assert [member["teamName"]["S"] for member in members] == [pushes.name] * 2100
    assert 1000 < max(map(item_size, members)) <= 1024
    assert (pushed.children, pushed.statements, pushed.calls) == (2100, 2100, 1 + 3 * 3 + 2100 // 25)
    assert pushed.calls < 0.05 * 2100
    assert pushed.write_units == 1.0, "the fence; DynamoDB Local does not price statements"


@PUSHES
def test_a_push_is_faster_than_a_loop(pushes: Pushes, record_property: Callable[[str, object], None]) -> None:
    """Some milliseconds away, as AWS is. On a quiet machine it is 9 times; a busy one slows the emulator down."""
    pushed = pushes.push(away=0.005, looped=30)
    ratio = pushed.per_second / pushed.looped_per_second
    record_property(
        "measured", f"a push, 5 ms from DynamoDB Local: {ratio:.1f} times as fast as single updates in a loop"
    )
    assert pushed.per_second > 3 * pushed.looped_per_second


@PUSHES
def test_the_memory_of_a_push_does_not_grow_with_its_pages(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    push_page, most = Embedder.push_page, []

    def measured(*arguments: Any) -> Any:
        tracemalloc.reset_peak()
        found = push_page(*arguments)
        most.append(tracemalloc.get_traced_memory()[1])
        return found

    monkeypatch.setattr(Embedder, "push_page", measured)
    tracemalloc.start()
    try:
        pushes.push()
    finally:
        tracemalloc.stop()
    assert len(most) == 3
    assert most[1] < 1.1 * most[0] < 30_000_000, most


MOST = {NEW: 10, SMALL: 4, ANY: 16, GONE: 11, BACK: 10}
"""Write units of one change by itself."""


def test_boards_in_memory() -> None:
    boards = memory(2000)
    costs_at_most(boards)
    assert set(boards.boards) == {WHOLE, SIGNED, *LAPS}
    assert any(score < 0 for score in boards.scores)
    assert len(set(boards.scores)) < 1990, "scores are tied"
    assert boards.compared > 2000


def test_a_board_on_dynamodb_local(dynamodb_local_url: str) -> None:
    costs_at_most(local(dynamodb_local_url, 600))


def costs_at_most(board: Boards) -> None:
    for kind, (changes, units) in board.units.items():
        assert 0 < units <= MOST[kind] * changes
    assert (board.reads.reads, board.reads.requests) == (5, 1), "the registry and a group for each two digits"
    assert board.largest <= 2048


Record = Callable[[str, object], None]
THOUSAND = OURS[1000]
CPU = pytest.mark.xdist_group("cpu")
"""Measured once, in one process."""


@pytest.fixture(scope="module")
def spent() -> Mapping[tuple[str, str], float]:
    """Microseconds of CPU per event, by case and way."""
    return cpu.measure_all(rounds=4)


@CPU
def test_an_event_takes_a_fraction_of_the_cpu_of_what_one_would_write_instead(
    spent: Mapping[tuple[str, str], float], record_property: Record
) -> None:
    """`python -m benchmarks.cpu` finds 6 times for a plain ADD, 21 for Powertools' idempotency, 7.5 for a claim in a
    transaction. Other processes disturb the measurement.
    """
    times = {}
    for (case, way), taken in spent.items():
        ratio = taken / spent[case, THOUSAND]
        record_property("measured", f"CPU per event, {case}, {way}: {taken:.0f} µs, {ratio:.1f} times {THOUSAND}")
        if case == cpu.TOGETHER:
            times[way[:3]] = ratio
    assert times["(a)"] > 4
    assert times["(b)"] > 14
    assert times["(c)"] > 5


@CPU
def test_a_core_leaves_a_shard_behind(spent: Mapping[tuple[str, str], float], record_property: Record) -> None:
    """A shard gives at most 1000 records a second."""
    for case, least in ((cpu.TOGETHER, 5), (cpu.SPREAD, 2)):
        times = 1e6 / spent[case, THOUSAND] / cpu.SHARD
        record_property(
            "measured", f"{case}, on a core: {times * cpu.SHARD:,.0f} a second, {times:.1f} times a shard's"
        )
        assert times > least

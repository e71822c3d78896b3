"""What operations do with versions that the shards of the stream count (`ledger: lanes`): they have no entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from projections.engine.goals import DiscardedRecord
from projections.engine.publishing import TOMBSTONE_SECONDS
from projections.engine.store import ItemKey, Update
from projections.errors import StoreError
from projections.inspect.explain.item import item_explanation
from projections.operations.backfill.runner import Runner
from projections.operations.failed_messages import FailedMessage, Reader
from projections.operations.health import rules
from projections.operations.message_redrive import Redrive
from projections.operations.verify.repair import verify_and_repair
from projections.stores.limits import cost_of
from tests.engine.scene import before
from tests.engine.world import HEAD, World
from tests.operations.verify_scene import Brief, brief, drifts, edit, ledger_edit, of, repaired, verified

LIKES = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, stars: sum(stars)}, ledger: lanes}}\n"
GROUP = "G|likes.1|main|POST#1|METADATA"


def counted(rules: str = LIKES, head: str = "") -> World:
    """Two posts with three likes each, counted by a shard."""
    w = World(rules, head)
    w.shard = "shard-1"
    for post in range(2):
        w.put(f"POST#{post}", "METADATA")
    for user in range(3):
        for post in range(2):
            w.like(user, post, stars=user)
    w.settle()
    assert w.post() == {"likeCount": 3, "stars": 3}
    assert not w.ledger("E|")
    return w


def gap(w: World) -> None:
    """A like is delivered without its shard."""
    w.shard = ""
    w.like(7, 1, stars=7)
    w.settle()
    w.shard = "shard-1"


DAMAGES: list[tuple[Callable[[World], Any], Sequence[Brief]]] = [
    (lambda w: edit(w, "USER#1", "LIKE#1", stars=9), [of("group", "likes", "POST#1|METADATA", "stars", 3, 11)]),
    (
        lambda w: ledger_edit(w, GROUP, n={"N": "5"}),
        [
            of("group", "likes", "POST#1|METADATA", "contributions", 5, 3),
            of("value", "likes", "POST#1|METADATA", "likeCount", 3, None),
        ],
    ),
    (
        lambda w: w.store.remove(ItemKey("ledger", GROUP, "00")),
        [
            of("group", "likes", "POST#1|METADATA", "contributions", 0, 3),
            of("group", "likes", "POST#1|METADATA", "stars", 0, 3),
            of("value", "likes", "POST#1|METADATA", "likeCount", 3, None),
            of("value", "likes", "POST#1|METADATA", "stars", 3, None),
            of("guard", "likes", "POST#1|METADATA", "~likes", {"at": "1700000000.000000000000001"}, None),
        ],
    ),
    (
        lambda w: edit(w, "POST#1", "METADATA", likeCount=8),
        [of("value", "likes", "POST#1|METADATA", "likeCount", 8, 3)],
    ),
]


@pytest.mark.parametrize(("damage", "wanted"), DAMAGES)
def test_groups_without_entries_are_compared_with_the_items_and_repaired(
    damage: Callable[[World], Any], wanted: Sequence[Brief]
) -> None:
    w = counted()
    assert drifts(w) == []
    damage(w)
    w.position = len(w.store.stream("main"))
    assert brief(drifts(w)) == set(wanted)
    assert repaired(w) == []
    assert drifts(w) == []


def test_groups_that_keep_moving_are_counted_and_not_decided() -> None:
    w = counted()
    ledger_edit(w, GROUP, n={"N": "5"})

    def move(seconds: float) -> None:
        """Somebody likes the post during each pause, and the group is raised."""
        w.like(w.position, 1, stars=0)
        w.settle()

    with verified(w, patience=1.0, sleep=move) as verification:
        assert [(drift.rule, drift.target) for drift in verification.busy()] == [("likes", "main|POST#1|METADATA")]
        assert verification.by_lanes() == {"likes": (2, 1)}


def test_a_change_on_its_way_to_a_group_is_no_drift() -> None:
    w = counted()
    w.like(7, 1, stars=7)
    assert brief(drifts(w)), "without a pause"
    with verified(w, patience=1.0, sleep=lambda seconds: w.settle()) as verification:
        assert (list(verification.drifts()), list(verification.busy())) == ([], [])


def test_groups_that_keep_what_expired_are_left_out() -> None:
    head = HEAD.replace('LIKE#{postId}"}}', 'LIKE#{postId}"}, expires: true}')
    w = counted(LIKES.replace("from: Like,", "from: Like, expired: keep,"), head + "projections:\n")
    w.remove("USER#1", "LIKE#1", by_ttl=True)
    w.settle()
    assert w.post() == {"likeCount": 3, "stars": 3}
    edit(w, "POST#1", "METADATA", likeCount=8)
    with verified(w) as verification:
        (drift,) = verification.drifts()
        assert (drift.attribute, drift.wrong, verification.by_lanes()) == ("likeCount", None, {})


@pytest.mark.parametrize(("former", "lost"), [(", ledger: lanes", ["likeCount", "stars"]), ("", ["stars"])])
def test_what_expired_under_lanes_is_not_carried_over(former: str, lost: list[str]) -> None:
    rules = LIKES.replace("from: Like,", "from: Like, expired: keep,").replace(", ledger: lanes", former)
    head = HEAD.replace('LIKE#{postId}"}}', 'LIKE#{postId}"}, expires: true}') + "projections:\n"
    then = World(rules, head).under(rules.replace("sum(stars)", "avg(stars)"), head)
    registry = then.registry()
    after = registry.preview(then.program).snapshot
    assert registry.program(after).not_carried("likes.2") == lost


def refilled() -> World:
    """Lanes take over from entries, which still have a part of what they counted."""
    w = counted().under(LIKES.replace("count,", "count, most: sum(stars),"))
    w.shard = "shard-1"
    w.apply()
    return w


def test_a_part_in_an_entry_is_not_compared_once_lanes_count() -> None:
    w = refilled()
    assert w.ledger("E|")
    assert drifts(w) == []
    w.remove("USER#1", "LIKE#1")
    w.like(8, 1, stars=1)
    w.settle()
    assert w.post()["likeCount"] == 3
    w.put("USER#2", "LIKE#1", stars=9)
    w.settle()
    assert drifts(w) == []
    explanation = item_explanation(w.program, w.store, ItemKey("main", "USER#2", "LIKE#1"))
    assert explanation.drifts == ()
    assert explanation.source is not None
    assert {each.excuse for each in explanation.source.contributions} == {
        "lanes count it (ledger: lanes), so entries need not have it"
    }


def test_entries_that_lanes_do_not_need_are_removed_for_one_write_each() -> None:
    first = "  first: {from: Like, where: {stars: [1]}, latest: {into: Post, by: stars, attributes: {first: userId}}}\n"
    w = counted().under(LIKES.replace("count,", "count, most: sum(stars),") + first)
    w.shard = "shard-1"
    w.apply()
    w.settle()
    groups, position = w.ledger("G|"), len(w.store.stream("main"))
    says = "rule likes.2: active: counted by lanes; entries have a part of it still"
    w.settings["clock"] = lambda: 1_700_000_000.0 + 27 * 3600 - 1
    assert w.operation().apply(w.program) is None
    assert ("ok", says) in status(w, 27 * 3600 - 1)
    w.settings["clock"] = lambda: 1_700_000_000.0 + 27 * 3600
    todo = "Run `projections apply --stack shop RULES`: it removes that, 1 write unit each."
    assert ("warn", f"{says} {todo}") in status(w, 27 * 3600)
    work = w.operation()
    run = work.apply(w.program)
    assert run is not None
    units: list[int] = []
    write_each = w.store.write_each

    def metered(writes: Sequence[Update]) -> list[StoreError | None]:
        before, answers = w.store.get_many([write.key for write in writes]), write_each(writes)
        units.extend(cost_of(image, w.store.get(key), w.store.schema("ledger")).table for key, image in before.items())
        return answers

    w.store.write_each = metered  # type: ignore[method-assign]
    w.store.transactions.clear()
    while not run.done:
        run = w.forward(work, run)
    entries = w.ledger("E|")
    assert (len(entries), sum(units), w.store.transactions) == (6, 6, [])
    kept = [(entry["pk"], "ttl" in entry) for entry in entries if entry["contributions"] != "{}"]
    assert kept == [("E|main|USER#1|LIKE#0", False), ("E|main|USER#1|LIKE#1", False)]
    assert all(entry["ttl"] == 1_700_000_000 + 27 * 3600 + TOMBSTONE_SECONDS for entry in entries if "ttl" in entry)
    assert (w.ledger("G|"), len(w.store.stream("main"))) == (groups, position)
    assert w.operation().apply(w.program) is None
    assert ("ok", "rule likes.2: active: counted by lanes") in status(w, 27 * 3600)
    w.remove("USER#1", "LIKE#1")
    w.like(9, 1, stars=4)
    w.settle()
    assert drifts(w) == []
    assert w.post() == {"likeCount": 3, "stars": 6, "most": 6}


KEEP = "  likes: {from: Like, expired: keep, aggregate: {into: Post, set: {likeCount: count}}}\n"
LATER = {
    "by lanes": KEEP.replace("into: Post", "into: Post, ledger: lanes"),
    "others, then more": KEEP.replace("from: Like", "from: Like, where: {stars: [5]}"),
}


@pytest.mark.parametrize("change", LATER)
def test_what_expired_outlives_a_clean_up_after_the_days_of_a_roll_back(change: str) -> None:
    head, now = (
        HEAD.replace('LIKE#{postId}"}}', 'LIKE#{postId}"}, expires: true}') + "projections:\n",
        [1_700_000_000.0],
    )
    w = World(KEEP, head, clock=lambda: now[0])
    w.put("POST#1", "METADATA")
    for user in range(3):
        w.like(user, 1, stars=1)
    w.settle()
    w.remove("USER#1", "LIKE#1", by_ttl=True)
    w.settle()
    w = w.under(LATER[change], head)
    w.apply()
    now[0] += 8 * 86400
    if change != "by lanes":
        w = w.under(KEEP.replace("count}", "count, stars: sum(stars)}"), head)
    for died in (True, False):  # the first run ends at once: the next continues it
        work = w.operation()
        run = work.apply(w.program)
        assert run is not None
        while not (died or run.done):
            run = w.forward(work, run)
    w.registry().recount(["likes"])
    w.carry_out()
    assert w.post()["likeCount"] == 3


def test_an_entry_that_changes_while_it_is_cleaned_stays_as_it_is_by_then() -> None:
    plain = "  plain: {from: Like, aggregate: {into: Post, set: {plain: count}}}\n"
    w = counted().under(LIKES.replace("count,", "count, most: sum(stars),") + plain)
    w.shard = "shard-1"
    w.apply()
    w.settle()
    w.settings["clock"] = lambda: 1_700_000_000.0 + 27 * 3600
    work = w.operation()
    run = work.apply(w.program)
    assert run is not None

    def unlike() -> None:
        w.remove("USER#1", "LIKE#1")
        w.settle()

    ours = "E|main|USER#1|LIKE#1"
    before(w, "write_each", unlike, when=lambda writes: any(write.key.partition == ours for write in writes))
    assert Runner(work, sleep=lambda seconds: None).work(run).done
    w.settle()
    assert w.post()["plain"] == 2


@pytest.mark.parametrize("text", ["[]", "null", '{"likes.1": 5}', '[["likes.1"]]'])
@pytest.mark.parametrize("attribute", ["contributions", "kept"])
def test_a_damaged_entry_stops_no_backfill(attribute: str, text: str) -> None:
    w = refilled()
    w.store.write(Update(ItemKey("ledger", "E|main|USER#1|LIKE#1", "."), set={attribute: {"S": text}}))
    assert w.carry_out().done


def test_a_gap_is_reported_and_repaired_by_a_recount() -> None:
    w = counted()
    gap(w)
    assert w.post() == {"likeCount": 3, "stars": 3}
    settings: dict[str, Any] = {"patience": 0.0, "segments": 1}
    ledger_edit(w, GROUP, n={"N": "4"}, **{"=stars": {"N": "10"}})
    with verify_and_repair(w.program, w.store, repair=True, **settings) as done:
        assert done.differences > 0
        assert done.repair is not None
        assert (done.repair.recounted, done.repair.failed) == (["likes"], {})
        assert done.verification.scope.gaps == {}
    assert w.post() == {"likeCount": 4, "stars": 10}


def test_a_gap_without_a_difference_is_repaired_too() -> None:
    w = counted()
    w.shard = ""
    w.like(2, 1, stars=2, note="the same contribution")
    w.settle()
    with verify_and_repair(w.program, w.store, repair=True, patience=0.0, segments=1) as done:
        assert (done.differences, done.repair and done.repair.recounted) == (0, ["likes"])
    assert w.registry().read_or_create().active["likes"].name == "likes.2"


# Backfills and promotions


def test_a_batch_that_is_older_than_a_version_is_given_back() -> None:
    """Its function would write an entry without the version, by which the record's next delivery is a duplicate."""
    w = counted().under(LIKES + "  all: {from: Like, aggregate: {into: Post, set: {all: count}}}\n")
    w.shard = "shard-1"
    w.apply()
    w.settle()
    w.like(7, 1)
    (record,) = records = w.records()

    def fill() -> None:
        w.registry().recount(["likes"])
        w.forward(work := w.operation(), work.begin())

    before(w, "transact", fill)
    outcome = w.deliver(records)
    assert (outcome.failed, outcome.failed_reason) == (
        record["dynamodb"]["SequenceNumber"],
        "a version of a rule with `ledger: lanes` was registered meanwhile",
    )
    w.settle()
    w.carry_out()
    assert w.post() == {"likeCount": 4, "stars": 3, "all": 4}


def test_a_backfill_counts_again_what_lanes_count() -> None:
    w = counted()
    w.like(7, 1, stars=7)
    w.position = len(w.store.stream("main"))  # the stream was off
    run = w.carry_out(promotes=False)
    assert run.versions == ("likes.2",)
    assert w.post() == {"likeCount": 4, "stars": 10}
    assert [v.state for v in w.registry().read_or_create().versions.values()] == ["gone", "active"]
    assert drifts(w) == []


def test_a_backfill_that_goes_on_does_not_begin_to_count_again() -> None:
    w = counted()
    work = w.operation()
    run = work.begin(promotes=False)
    assert work.begin(promotes=False) == run
    while run.phase != "groups":
        run = w.forward(work, run)
    assert w.registry().read_or_create().active["likes"].name == "likes.2"
    assert work.begin(promotes=False) == run


def test_a_version_with_a_gap_is_not_published_and_apply_fills_another() -> None:
    w = counted().under(LIKES.replace("count,", "count, most: sum(stars),"))
    w.shard = ""
    w.registry().register(w.program)
    w.like(7, 1, stars=7)
    w.settle()
    assert w.carry_out(["likes.2"]).done
    version = w.registry().read_or_create().versions["likes.2"]
    assert (version.state, version.gap) == (
        "ready",
        "a batch had no shard id: the event source mapping needs a tumbling window",
    )
    assert w.registry().read_or_create().active["likes"].name == "likes.1"
    w.shard = "shard-1"
    assert w.apply().versions == ("likes.3",)
    assert w.registry().read_or_create().active["likes"].name == "likes.3"
    assert w.post() == {"likeCount": 4, "stars": 10, "most": 10}


def test_a_rollback_to_a_version_with_a_gap_changes_nothing() -> None:
    w = refilled()
    registry = w.registry()
    registry.note_gaps({"likes.1": "a test"})
    w.carry_out(["likes.1"], fills=False)
    assert registry.read_or_create().active["likes"].name == "likes.2"
    assert registry.promote(["likes.1"]).active["likes"].name == "likes.2"


# Redrives, status, metrics


@pytest.mark.parametrize(
    ("key", "at", "gaps"),
    [
        (ItemKey("main", "USER#1", "LIKE#1"), 1_700_000_000.0, {"likes.1"}),
        (ItemKey("main", "USER#1", "LIKE#1"), 0.0, {"likes.1"}),
        (ItemKey("main", "USER#1", "LIKE#1"), 1_699_990_000.0, set()),
        (ItemKey("main", "POST#1", "METADATA"), 1_700_000_000.0, set()),
    ],
    ids=["after", "unknown", "before", "another kind"],
)
def test_a_redriven_batch_leaves_a_gap_unless_the_version_was_filled_after_it(
    key: ItemKey, at: float, gaps: set[str]
) -> None:
    w = counted()
    record = DiscardedRecord("1.2", w.store.get(key), None, False, at)
    message = FailedMessage("batch", {key: ()}, {key: ((1, ""), False)}, {key: [record]})
    redrive = Redrive(w.program, w.store, now=lambda: 1_700_000_000.0)
    (answer,) = redrive.work([message])
    snapshot = w.registry().read_or_create()
    assert (answer.left, redrive.gaps) == ({}, gaps)
    assert {version.name for version in snapshot.maintained if version.gap} == gaps


@pytest.mark.parametrize(("table", "at", "gaps"), [("app", 1_700_000_000, 1), ("app", 1_699_990_000, 0), ("b", 0, 0)])
def test_positions_of_discarded_records_leave_a_gap(table: str, at: int, gaps: int) -> None:
    """To a queue, Lambda sends only where the records are. The message stays, and leaves no gap in what is counted later."""
    w = counted()
    arn = f"arn:aws:dynamodb:us-east-1:1:table/{table}/stream/2026"
    batch = {"streamArn": arn, "approximateArrivalOfLastRecord": datetime.fromtimestamp(at, UTC).isoformat()}
    reader = Reader(w.program.tables, {"main": "app"})
    redrive = Redrive(w.program, w.store, now=lambda: 1_700_000_000.0)
    (answer,) = redrive.work([reader.value({"DDBStreamBatchInfo": batch}, "here")])
    assert "names no items" in answer.left[""][0]
    assert len(redrive.gaps) == gaps


def status(w: World, seconds: int = 0) -> list[tuple[str, str]]:
    now = datetime.fromtimestamp(1_700_000_000 + seconds, UTC)
    findings = list(rules(w.program, w.registry().read(), now, stack="shop"))
    return [(f.level, f"{f.subject}: {f.says} {f.todo}".rstrip()) for f in findings if f.subject.startswith("rule l")]


def test_status_names_gaps_and_how_a_version_is_counted() -> None:
    w = counted()
    assert status(w) == [("ok", "rule likes.1: active: counted by lanes")]
    w.registry().note_gaps({"likes.1": "a test"})
    assert status(w)[0] == (
        "action",
        "rule likes.1: active: it may have missed changes: a test Correct the cause, then run `projections verify --stack "
        "shop --repair`, which counts the rule again.",
    )
    w.registry().recount(["likes"])
    assert ("ok", "rule likes.2: filling: counted with entries, until it is filled") in status(w)
    w.registry().fill(["likes.2"])
    handover = "rule likes.2: ready: counted with entries; the shards of the stream are handed over to lanes in 45 min"
    assert ("ok", handover) in status(w, 900)


def test_gaps_are_a_metric_of_each_batch() -> None:
    w = counted()
    w.like(7, 1)
    assert w.deliver().counts["gaps"] == 0
    w.shard = ""
    w.like(8, 1)
    assert w.deliver().counts["gaps"] == 1
    w.shard = "shard-1"
    w.put("POST#1", "METADATA", title="x")
    assert w.deliver().counts["gaps"] == 1


def test_a_ledger_that_was_restored_is_a_gap() -> None:
    """The group is older than what the post shows, and there are no entries to count it from."""
    w = counted()
    for user in (4, 5):
        w.like(user, 1)
        w.settle()
    w.store.remove(ItemKey("ledger", GROUP, "00"))
    w.like(6, 1)
    w.settle()
    assert (snapshot := w.registry().read()) is not None
    assert "restored" in snapshot.versions["likes.1"].gap


def test_a_stream_that_was_replaced_before_its_first_batch_is_a_gap() -> None:
    """`apply` notes the stream. A recount begins with the one that is known, or with its first batch."""
    w = World(LIKES)
    w.shard = "shard-1"
    w.operation().apply(w.program, streams={"main": "2026-01-01T00:00:00.000"})
    w.put("POST#1", "METADATA")
    w.like(1, 1)
    w.settle()
    version = w.registry().read_or_create().versions["likes.1"]
    assert (version.gap, len(version.streams)) == ("the table main has another stream than before", 2)
    assert w.registry().recount(["likes"]).snapshot.versions["likes.2"].streams == frozenset()
    w = counted()
    known = w.registry().read_or_create().versions["likes.1"].streams
    assert len(known) == 1
    assert w.registry().recount(["likes"]).snapshot.versions["likes.2"].streams == known

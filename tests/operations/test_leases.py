"""Operators' processes stop when the active rules, or the state of one of them, change: their leases are closed."""

from __future__ import annotations

from typing import Any

import pytest

from projections.engine.registry import Registry, Replaced, close_leases
from projections.engine.store import Check, Delete, Exists, Image, ItemKey, Missing, Purpose, Update
from projections.errors import ConditionFailed
from projections.operations.dry import Cautious
from projections.operations.fenced import Fenced
from projections.operations.verify.repair import Repair
from projections.operations.verify.verification import Verification
from tests.operations.backfill.stage import LIKES, SIGHT, Stage, before, deadline
from tests.operations.verify_scene import verified

STARRED = LIKES.replace("from: Like,", "from: Like, where: {stars: [{numeric: ['>=', 5]}]},")
X = ItemKey("ledger", "T|x", ".")


def leases(stage: Stage) -> list[Image]:
    return [item for item in stage.store.items("ledger") if item["sk"]["S"].startswith("lease|")]


def fenced(stage: Stage, **settings: Any) -> Fenced:
    return Fenced(stage.store, stage.read_or_create(), "test", **{"clock": stage.clock, **settings})


def stage_of(rules: str = LIKES, **settings: Any) -> Stage:
    stage = Stage(rules, **settings)
    stage.fill()
    stage.registry().read_or_create()
    return stage


def liked() -> Stage:
    """Two posts with four likes. Later rules count only likes with 5 stars or more."""
    stage = Stage(LIKES)
    for post in range(2):
        stage.put(f"POST#{post}", "METADATA")
    for user in range(4):
        stage.like(user, user % 2, stars=user + 3)
    return stage


# The store.


def test_every_write_to_the_ledger_checks_an_open_lease() -> None:
    stage = stage_of()
    made: list[Any] = []
    transact = stage.store.transact
    stage.store.transact = lambda writes: (made.append(list(writes)), transact(writes))[1]  # type: ignore[method-assign]
    with fenced(stage) as store:
        store.write(Update(X, set={"a": {"S": "1"}}))
        store.transact([Update(X, set={"a": {"S": "2"}})])
        (answer,) = store.write_each([Update(X, set={"a": {"S": "3"}}, condition=Exists(("pk",)))])
        assert answer is None
        names = {lease["sk"]["S"] for lease in leases(stage)}
    opening, *writes = made
    assert isinstance(opening[0], Check)
    assert opening[0].key == ItemKey("ledger", "R", ".")
    assert len(writes) == 3
    assert {actions[-1].key.sort for actions in writes} <= names
    assert leases(stage) == [], "they are deleted at the end"


@pytest.mark.parametrize("change", ["activate", "complete", "forget"])
def test_a_change_of_rules_or_states_closes_all_leases(change: str) -> None:
    stage = stage_of(new_rules="filling")
    Registry(stage.under(STARRED).program, stage.store).activate()
    registry = Registry(stage.under(STARRED).program, stage.store)
    store = Fenced(stage.store, registry.read_or_create(), "test")
    store.write(Update(X, set={"a": {"S": "1"}}))
    match change:
        case "activate":
            stage.registry().activate()
        case "complete":
            registry.complete(["likes"])
        case "forget":
            registry.forget(registry.read_or_create().rules)
    assert leases(stage) == []
    for write in (lambda: store.write(Update(X, set={"a": {"S": "2"}})), lambda: store.write(_touch())):
        with pytest.raises(Replaced, match="This process stopped"):
            write()
    held = stage.store.get(X)
    assert held is not None
    assert held["a"] == {"S": "1"}


def _touch() -> Update:
    return Update(ItemKey("main", "POST#0", "METADATA"), set={"x": {"S": "x"}})


def test_a_lease_that_was_opened_while_rules_changed_is_closed_after_the_change() -> None:
    stage = stage_of()
    store, other = fenced(stage), Registry(stage.under(STARRED).program, stage.store)
    before(stage, "transact", lambda: store.write(Update(X, set={"a": {"S": "1"}})))
    other.activate()
    assert leases(stage) == []
    with pytest.raises(Replaced):
        store.write(Update(X, set={"a": {"S": "2"}}))


def test_leases_of_a_process_that_died_while_it_changed_the_rules_are_closed_by_the_next() -> None:
    stage = stage_of()
    fenced(stage).write(Update(X, set={"a": {"S": "1"}}))
    other, (lease,) = Registry(stage.under(STARRED).program, stage.store), leases(stage)
    other.activate()
    stage.store.put("ledger", lease)  # it died before it closed those that were opened meanwhile
    other.activate()
    assert leases(stage) == []


def test_items_of_the_application_are_never_part_of_a_transaction_and_the_lease_is_read_before_a_request() -> None:
    stage = stage_of()
    store, read = fenced(stage), []
    get = stage.store.get
    stage.store.get = lambda key, *rest: (read.append(key), get(key, *rest))[1]  # type: ignore[method-assign]
    touch = Update(ItemKey("main", "POST#0", "METADATA"), set={"x": {"S": "x"}}, condition=Exists(("PK",)))
    for _ in range(25):
        store.write(touch)
    assert len(read) == 1
    store.write(touch)
    assert len(read) == 2, "after as many writes as a request has"
    stage.clock.now += 2.0
    store.write(touch)
    assert len(read) == 3, "after a second"
    assert store.write_each([touch] * 60) == [None] * 60
    assert len(read) == 6, "before every 25"
    close_leases(stage.store)
    with pytest.raises(Replaced):
        store.write_each([touch] * 25)


def test_attributes_lost_in_a_deletion_are_put_back_although_the_lease_was_closed() -> None:
    stage = stage_of()
    store, post = fenced(stage), ItemKey("main", "POST#0", "METADATA")
    assert store.write(Delete(post)) is not None
    close_leases(stage.store)
    stage.clock.now += 60.0
    why, absent = Purpose("restore"), Missing(("PK",))
    store.write(Update(post, set={"title": {"S": "the application's"}}, condition=absent, purpose=why))
    assert stage.item("POST#0", "METADATA")["title"] == "the application's"
    with pytest.raises(ConditionFailed):
        store.write(Update(post, set={"x": {"S": "x"}}, condition=absent, purpose=why))
    store.write(Update(post, set={"x": {"S": "x"}}, condition=Missing(("x",)), purpose=why))
    assert stage.item("POST#0", "METADATA")["x"] == "x", "also where the first attempt failed"
    with pytest.raises(Replaced):
        store.write(Update(post, set={"x": {"S": "x"}}))


# The processes.


def right(stage: Stage) -> None:
    stage.settle()
    for post in range(2):
        stage.like(9, post, stars=9)
    stage.settle()
    stage.right()


@pytest.mark.parametrize("call", range(2))
def test_a_page_of_a_backfill_under_way_stops_when_other_rules_come_into_force(call: int) -> None:
    stage = liked()
    stage.store.write(Update(ItemKey("main", "POST#0", "METADATA"), set={"n": {"N": "0"}}))
    stage.settings["new_rules"] = "filling"
    stage = Stage(LIKES, of=stage, **stage.settings)
    stage.lose()
    after = stage.under(STARRED)
    backfill = stage.backfill(page=50)
    run = backfill.begin(segments=1)
    before(stage, "transact", after.filled, call)
    with pytest.raises(Replaced):
        backfill.page(run, backfill.segments(run)[0], deadline())
    right(after)


@pytest.mark.parametrize("method", ["get_many", "transact"])
@pytest.mark.parametrize("call", range(3))
def test_a_repair_under_way_stops_when_other_rules_come_into_force(method: str, call: int) -> None:
    stage = liked()
    stage.settle()
    stage.like(3, 0, stars=1)
    stage.like(2, 1, stars=2)
    stage.lose()
    after = stage.under(STARRED)

    def repair(one: Verification) -> None:
        Repair(one.scope, Cautious(stage.store, deletes=True), one.candidates, sleep=lambda s: None).all()

    with verified(stage) as one:
        before(stage, method, after.filled, call)
        try:
            repair(one)
        except Replaced:
            pass
        else:
            assert call, "it had ended before"
            if method in vars(stage.store):
                delattr(stage.store, method)
                after.filled()
    right(after)


def test_a_run_that_takes_the_place_of_another_closes_its_leases() -> None:
    stage = stage_of(LIKES + SIGHT)
    backfill = stage.backfill()
    run = backfill.begin(segments=1)
    backfill.page(run, backfill.segments(run)[0], deadline())
    assert leases(stage)
    other = stage.backfill()
    other.begin(segments=1, restart=True)
    assert leases(stage) == []


def test_a_run_continues_after_it_has_made_rules_live() -> None:
    """That raises the epoch, and the run is still the one of these rules."""
    stage = Stage(LIKES, new_rules="filling")
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=2)
    while run.phase != "targets":
        if run.ready > stage.clock.now:
            stage.clock.sleep(run.ready - stage.clock.now)
        stage.phase(backfill, run)
        run, _ = backfill.forward(run)
    assert (stage.read_or_create().epoch, stage.read_or_create().active_since) == (2, 1)
    again = stage.backfill()
    assert again.begin(segments=2) == run
    assert stage.work(again, run).done
    stage.right()

"""Rules of the protocol of versions that chance does not show: each in the one order of calls that needs it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from projections.engine.store import ItemKey, Update
from projections.operations.backfill.backfill_runs import Backfill
from tests.engine.scene import Scene, before
from tests.engine.test_versions import ALL, HEAD, heavy, liked, states


def test_the_first_commit_of_a_group_during_a_roll_back_is_published() -> None:
    """No scan has seen the group, and the function has read that the other version is published."""
    w = liked()
    w.put("POST#2", "METADATA")
    w.settle()
    other = w.under(ALL.replace("from: Like", "from: Like, where: {weight: [9]}"), HEAD)
    other.apply()
    w.settle()
    w.like(0, 2, weight=1)
    before(w, "transact", lambda: w.carry_out(["likes.1"], fills=False))
    w.settle()
    assert w.post(2) == {"likes": 1}


def test_a_heal_writes_nothing_over_a_newer_promotion() -> None:
    w = liked()
    w.store.write(Update(ItemKey("main", "POST#1", "METADATA"), remove=("~likes",)))
    wrote: list[Any] = []
    write = type(w.store).write

    def promote() -> None:
        heavy(w).apply()

        def noted(change: Any) -> Any:
            wrote.append(change)
            return write(w.store, change)

        w.store.write = noted  # type: ignore[method-assign]

    before(w, "write", promote)
    w.settle()
    assert w.post() == {"heavy": 1}
    assert [change for change in wrote if isinstance(change, Update) and "likes" in change.set] == []


def test_the_end_of_a_run_finishes_no_promotion_but_its_own() -> None:
    w = liked()
    late = Backfill(w.program, w.store, now=lambda: datetime.fromtimestamp(1_700_000_000.0, UTC))
    heavy(w).apply(promotes=False)
    run = late.begin(versions=["likes.2"], fills=False, restart=True)
    while run.phase != "targets":
        run, _ = late.forward(run)
    w.registry().promote(["likes.1"])
    late.forward(run)
    assert w.registry().read_or_create().versions["likes.1"].unfinished


def test_a_group_of_a_version_that_is_newer_than_the_registry_is_not_collected() -> None:
    """A page reads the registry, and then the ledger, where functions record a newer version by now."""
    w = liked()
    other = heavy(w)

    def register() -> None:
        other.registry().register(other.program)
        w.like(5, 1, weight=9)
        w.settle()

    before(w, "scan", register, 1)
    w.carry_out(segments=1)
    assert [(group["n"], group["version"]) for group in w.ledger("G|likes.2")] == [(2, 2)]


NAMED = HEAD.replace("Like:", 'Named: {key: {PK: "NAME#{name}", SK: N}MATCH}\n  Like:')


def test_a_retracted_copy_of_a_stale_version_leaves_with_the_constants_of_then() -> None:
    """Its guard says what that version wrote: by the entity of now, the former constant would be the application's."""
    copies = "  named: {from: Post, each: {name: names}, copy: {into: Named, attributes: all}}\n"
    w = Scene(copies, NAMED.replace("MATCH", ", match: {type: Old}"))
    w.put("POST#1", "METADATA", names=["a"], remark="b")
    w.settle()
    w.registry()._mark_stale(["named.1"])
    w.store.remove(ItemKey("main", "POST#1", "METADATA"))
    w.settle()
    assert [image["type"] for image in w.store.items("main")] == [{"S": "Old"}]
    now = w.under(copies, NAMED.replace("MATCH", ""))
    now.apply(allow_delete=True)
    now.settle()
    assert w.store.items("main") == []


def test_a_copy_of_a_stale_version_with_a_value_of_its_own_is_replaced_as_a_whole() -> None:
    copies = "  named: {from: Post, each: {name: names}, copy: {into: Named, attributes: all, values: {seen: 1}}}\n"
    w = Scene(copies, NAMED.replace("MATCH", ""))
    w.put("POST#1", "METADATA", names=["a"], remark="b")
    w.settle()
    w.registry()._mark_stale(["named.1"])
    w.put("POST#1", "METADATA", names=["a"])
    w.under(copies.replace(", values: {seen: 1}", ""), NAMED.replace("MATCH", "")).apply()
    assert w.item("NAME#a", "N") == {"PK": "NAME#a", "SK": "N", "names": ["a"]}
    assert states(w) == {"named.1": "gone", "named.2": "active"}


def test_a_roll_back_scans_for_targets_to_which_nothing_contributes() -> None:
    """Of these there is no group, and the versions show other attributes."""
    w = Scene(ALL, HEAD)
    heavy(w).apply()
    w.put("POST#3", "METADATA")
    w.settle()
    assert w.post(3) == {"heavy": 0}
    w.carry_out(["likes.1"], fills=False)
    assert w.post(3) == {"likes": 0}

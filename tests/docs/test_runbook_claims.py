"""What docs/runbooks says of the engine: of other streams, other ledgers, restored tables and rules that are stopped."""

from __future__ import annotations

import pytest

from projections.engine.store import Image
from tests.operations.backfill.stage import ALL, AUTHOR, LISTED, NAMES, SIGHT, TAGS, Stage

OLDER, NEWER = "2024-12-31T00:00:00.000", "2025-06-01T00:00:00.000"
"""Than the label of the streams of tests."""


def lived(rules: str = ALL) -> Stage:
    stage = Stage(rules)
    stage.fill()
    stage.filled()
    for user in range(4):
        stage.like(user, 1, stars=user)
    stage.settle()
    stage.right()
    return stage


def replaced(stage: Stage, table: str, items: list[Image]) -> None:
    """The table is as it was when it held these items, and no stream tells of that."""
    store = stage.store
    for item in store.items(table):
        store.remove(store.schema(table).key(table, item))
    for item in items:
        store.put(table, item)
    stage.lose()


# --- Regions


def test_records_of_a_stream_with_an_older_label_are_ignored_and_those_of_a_newer_one_are_not() -> None:
    stage = lived()
    stage.store.begin_stream(OLDER, 10**20)
    stage.remove("USER#1", "LIKE#1")
    stage.settle()
    with pytest.raises(AssertionError):
        stage.right()
    stage.filled()
    stage.right()
    stage.store.begin_stream(NEWER, 10**20)
    stage.remove("USER#2", "LIKE#1")
    stage.settle()
    stage.right()


# --- Restored tables


def test_a_restored_table_is_corrected_by_a_backfill() -> None:
    """The ledger has everything that came later."""
    stage = lived()
    before = stage.store.items("main")
    stage.like(5, 2, stars=50)
    stage.remove("USER#1", "LIKE#1")
    stage.put("POST#9", "METADATA", owner="u9", tags=["new"])
    stage.settle()
    replaced(stage, "main", before)
    stage.filled()
    stage.right()


def test_a_new_ledger_keeps_values_right_and_deletes_nothing_that_was_created_under_the_former_one() -> None:
    stage = lived()
    replaced(stage, "ledger", [])
    anew = stage.under(ALL)
    anew.filled()
    anew.right()
    anew.remove("USER#3", "LIKE#1")
    anew.settle()
    assert anew.item("SEEN#3#1", "X") == {"PK": "SEEN#3#1", "SK": "X"}


def test_a_restored_ledger_keeps_deleting_what_was_created_before() -> None:
    stage = lived()
    point = stage.store.items("ledger")
    stage.like(5, 2, stars=50)
    stage.remove("USER#1", "LIKE#1")
    stage.settle()
    replaced(stage, "ledger", point)
    after = stage.under(ALL)
    after.filled(restart=True)
    after.right()
    after.remove("USER#5", "LIKE#2")
    after.settle()
    after.right()
    assert after.item("SEEN#5#2", "X") is None


KEPT = """table: {key: [PK, SK], ttl: expiresAt}
entities:
  Point: {key: {PK: "SENSOR#{sensor}", SK: "POINT#{at}"}, expires: true}
  Sensor: {key: {PK: "SENSOR#{sensor}", SK: STATE}, derived: true}
projections:
  points: {from: Point, expired: keep, aggregate: {into: Sensor, set: {points: count}}}
"""


@pytest.mark.parametrize(
    ("tables", "points"),
    [(("main", "ledger"), 3), (("main",), 4), (("ledger",), 3)],
    ids=["the same point is exact", "a newer ledger counts expired items twice", "an older one keeps deleted items"],
)
def test_a_restore_of_rules_that_keep_what_expired(tables: tuple[str, ...], points: int) -> None:
    """Of three points one expires and one is deleted after the point to which tables are restored."""
    stage = Stage(KEPT)
    for point in ("POINT#1", "POINT#2", "POINT#3"):
        stage.put("SENSOR#s", point)
    stage.settle()
    before = {table: stage.store.items(table) for table in tables}
    stage.remove("SENSOR#s", "POINT#1", by_ttl=True)
    stage.remove("SENSOR#s", "POINT#2")
    stage.settle()
    assert stage.item("SENSOR#s", "STATE") == {"PK": "SENSOR#s", "SK": "STATE", "points": 2}
    for table, items in before.items():
        replaced(stage, table, items)
    after = stage.under(KEPT)
    after.filled(restart=True)
    assert after.item("SENSOR#s", "STATE") == {"PK": "SENSOR#s", "SK": "STATE", "points": points}


# --- One rule is stopped


REST = TAGS + NAMES + SIGHT + LISTED + AUTHOR
HELD = ALL.replace("likes: {from: Like,", "likes: {from: Like, hold: true,")


@pytest.mark.parametrize(
    ("rules", "retired", "ledger"), [(HELD, "", True), (REST, "{likes: keep}", False)], ids=["held", "taken out"]
)
def test_one_rule_is_stopped_and_started_again_by_apply(rules: str, retired: str, ledger: bool) -> None:
    stage = lived()
    was, groups = stage.post(1), stage.ledger("G|likes")
    stopped = stage.under(rules, retired)
    stopped.backfill().registry.register(stopped.program)
    stopped.like(5, 1, stars=99)
    stopped.put("POST#1", "METADATA", owner="u1", tags=["b"], likeCount=was["likeCount"], best=was["best"])
    stopped.remove("USER#1", "LIKE#1")
    stopped.settle()
    assert stopped.post(1)["likeCount"] == was["likeCount"]
    assert stopped.item("TAG#b", "STATS") is not None, "another rule goes on"
    assert stopped.item("SEEN#5#1", "X") is not None
    assert (stopped.ledger("G|likes") != groups) is ledger
    again = stopped.under(ALL)
    again.like(4, 1, stars=7)
    again.settle()
    again.filled(restart=True)
    again.right()
    assert again.post(1)["best"] == 99


@pytest.mark.parametrize(
    ("rules", "retired", "points"),
    [
        (KEPT.replace("expired:", "hold: true, expired:"), "", 3),
        (KEPT.partition("  Sensor:")[0] + "projections: {}\n", "{points: keep}", 2),
    ],
    ids=["held is exact", "what expired while a rule was taken out is not counted"],
)
def test_a_stopped_rule_that_keeps_what_expired(rules: str, retired: str, points: int) -> None:
    """Of four points one expires and one is deleted while the rule is stopped."""
    stage = Stage(KEPT)
    for point in ("POINT#1", "POINT#2", "POINT#3", "POINT#4"):
        stage.put("SENSOR#s", point)
    stage.settle()
    stopped = stage.under(rules, retired)
    stopped.backfill().registry.register(stopped.program)
    stopped.remove("SENSOR#s", "POINT#1", by_ttl=True)
    stopped.remove("SENSOR#s", "POINT#2")
    stopped.settle()
    again = stopped.under(KEPT)
    again.filled(restart=True)
    assert again.item("SENSOR#s", "STATE") == {"PK": "SENSOR#s", "SK": "STATE", "points": points}

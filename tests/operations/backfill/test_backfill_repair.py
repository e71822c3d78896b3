"""A backfill corrects what a disabled stream missed, leaves other values alone, and a dry run predicts it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from projections.engine.store import Image
from projections.operations.backfill.runner import Runner
from tests.operations.backfill.stage import LIKES, Stage, lived


def counted(report: dict[str, Counter[str]]) -> Counter[str]:
    return sum(report.values(), Counter())


def test_items_removed_while_the_stream_was_off_are_retracted_and_their_copies_deleted_only_if_allowed() -> None:
    stage = lived()
    for key in (("USER#4", "LIKE#1"), ("USER#4", "PROFILE"), ("USER#5", "PROFILE"), ("POST#3", "METADATA")):
        stage.remove(*key)
    stage.lose()
    for _ in range(2):
        total = counted(stage.filled(allow_delete=False))
        assert stage.post(1)["likeCount"] == 2
        assert stage.item("NAME#n2", "USER") is not None
        assert stage.item("SEEN#4#1", "X") is not None
        assert stage.item("TAG#t3", "STATS") == {"PK": "TAG#t3", "SK": "STATS", "posts": 0}
        withheld = {name: n for name, n in total.items() if name.startswith("withheld")}
        assert withheld == {"withheld|names": 1, "withheld|seen": 1, "withheld|tags": 1}
    total = counted(stage.filled())
    assert {name: n for name, n in total.items() if name.startswith("deleted")} == {
        "deleted|names": 1,
        "deleted|seen": 1,
        "deleted|tags": 1,
    }
    assert stage.item("NAME#n2", "USER") is stage.item("SEEN#4#1", "X") is stage.item("TAG#t3", "STATS") is None
    stage.right()


def test_wrong_values_on_items_without_a_record_are_corrected() -> None:
    stage = lived()
    stage.put("POST#1", "METADATA", owner="u9", tags=["new"])  # without what rules wrote on it
    stage.put("SEEN#4#1", "X", stars=0)
    stage.put("USER#4", "LIKE#1", stars=98, userCity="wrong")
    stage.put("TAG#a", "STATS", posts=77)
    stage.remove("TAG#t2", "STATS")
    stage.remove("NAME#n0", "USER")
    stage.lose()
    stage.filled()
    stage.right()


def test_what_only_the_ledger_shows_is_rejected_when_the_ledger_is_read() -> None:
    stage = lived()
    entry: Image = {"pk": {"S": "E|no key"}, "sk": {"S": "."}, "contributions": {"S": '{"likes.1": {}}'}}
    stage.store.put("ledger", entry)
    backfill = stage.backfill()
    runner = stage.runner(backfill)
    assert runner.work(stage.apply(backfill, restart=True)).done
    assert ["the key of a ledger entry cannot be read" in each.reason for each in runner.rejected] == [True]


@pytest.mark.parametrize("pages", [3, 7])
def test_an_item_that_became_another_kind_while_the_stream_was_off_loses_what_rules_set_on_it(pages: int) -> None:
    """It leaves other values, because the application may have set them since."""
    stage = Stage(
        'entities:\n  Book: {key: {PK: "BOOK#{bookId}", SK: X}, match: {type: Book}}\n'
        '  Loan: {key: {PK: "BOOK#{bookId}", SK: "LOAN#{n}"}}\n'
        "projections:\n  loans: {from: Loan, aggregate: {into: Book, set: {loans: count, pages: sum(pages)}}}\n"
    )
    stage.put("BOOK#1", "X", type="Book")
    stage.put("BOOK#1", "LOAN#1", pages=3)
    stage.filled()
    assert stage.item("BOOK#1", "X") == {"PK": "BOOK#1", "SK": "X", "type": "Book", "loans": 1, "pages": 3}
    guard = (stage.item("BOOK#1", "X", guards=True) or {})["~loans"]
    shows = {"loans": 1, "pages": pages, "~loans": guard}
    stage.put("BOOK#1", "X", type="Film", **shows)
    stage.lose()
    stage.filled()
    film = {"PK": "BOOK#1", "SK": "X", "type": "Film"}
    assert stage.item("BOOK#1", "X", guards=True) == (film if pages == 3 else film | shows)


def test_items_of_no_entity_and_invalid_guards_are_left_unchanged() -> None:
    stage = lived()
    strange = {"likeCount": 7, "~likes": {"by": "x", "at": "9", "n": 3}, "~unknown": 5, "GSI1PK": "mine"}
    stage.put("NOTE#1", "X", **strange)
    stage.put("NAME#n1", "ELSE", **{"~names": {"by": "main|USER#9|PROFILE", "at": "", "n": 1}})
    stage.lose()
    stage.filled()
    assert stage.item("NOTE#1", "X", guards=True) == {"PK": "NOTE#1", "SK": "X", **strange}
    assert stage.item("NAME#n1", "ELSE") is not None


def test_a_rejected_item_is_reported_and_counts_once_and_the_rest_is_done() -> None:
    rules = LIKES.replace("best: max(number(stars))", "stars: sum(stars)")
    stage = Stage(rules, filled=False)
    stage.fill()
    stage.like(7, 1, stars="many")
    stage.like(8, 1)
    stage.lose()
    told: list[Any] = []
    backfill = stage.backfill(quarantine=told.extend)
    runner = stage.runner(backfill)
    run = runner.work(backfill.begin(segments=2))
    assert run.done
    (one,) = runner.rejected
    assert (one.rule, one.key, told) == ("likes", "main|USER#7|LIKE#1", [one])
    assert counted(backfill.report(run))["rejected"] == 1
    assert stage.post(1)["likeCount"] == 4
    stage.right()


# Dry runs.


def rehearsed(stage: Stage, segments: int = 2, page: int = 5) -> tuple[Counter[str], Runner]:
    before = stage.store.items("main"), stage.store.items("ledger")
    backfill = stage.backfill(dry=True, page=page)
    runner = stage.runner(backfill)
    phases = runner.rehearse(backfill.unrecorded_run(backfill.registry.preview(stage.program).snapshot, segments))
    assert (stage.store.items("main"), stage.store.items("ledger")) == before
    assert runner.failed == {}
    return sum(phases.values(), Counter()), runner


def by_rule(total: Counter[str], *kinds: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, count in total.items():
        what, bar, rule = name.partition("|")
        if bar and what in kinds:
            found[rule] += count
    return found


@pytest.mark.parametrize("segments", [1, 3])
def test_a_dry_run_writes_nothing_and_counts_what_would_be_written(segments: int) -> None:
    stage = Stage(filled=False)
    stage.fill()
    total, _ = rehearsed(stage, segments=segments, page=1000)
    backfill = stage.backfill(page=1000)
    run = stage.work(backfill, backfill.begin(segments=segments))
    phases = backfill.report(run)
    real = counted(phases)
    for name in ("entries", "members"):
        assert total[name] == real[name] > 0
    items = by_rule(phases["items"], "written")
    assert items == by_rule(total, "created", "changed")
    assert items.keys() == {"seen", "listed", "author"}
    published = by_rule(phases["groups"] + phases["targets"], "written")
    assert published.keys() == {"likes", "tags", "names"}
    assert total["created|seen"] == items["seen"]
    assert total["changed|author"] == items["author"]
    assert total["publishable"] >= published["likes"]
    assert total["write units"] >= 2 * (real["entries"] + real["groups"] + real["members"]) + items.total()
    assert total["read units"] > len(stage.store.items("main"))


def test_a_dry_run_names_what_would_be_deleted_and_what_would_be_corrected() -> None:
    stage = lived()
    stage.remove("USER#4", "LIKE#1")
    stage.put("POST#2", "METADATA", owner="u0", tags=["a", "t2"])
    stage.lose()
    total, runner = rehearsed(stage)
    assert list(runner.withheld) == ["main|SEEN#4#1|X"]
    assert total["deleted|seen"] == 1
    assert (total["changed|likes"], total["changed|listed"]) == (1, 1)
    assert total["entries"] == 1


def test_the_units_of_a_dry_run_count_sizes_indexes_and_transactions() -> None:
    rules = """
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
projections:
  listed: {from: Post, index: {GSI1PK: "BY#{owner}", GSI1SK: "{postId}"}}
"""
    stage = Stage(rules)
    stage.put("POST#1", "METADATA", owner="a", text="x" * 2500)
    stage.put("POST#2", "METADATA", owner="a", GSI1PK="wrong", GSI1SK="2")
    stage.lose()
    total, _ = rehearsed(stage, segments=1, page=10)
    assert total["write units"] == (3 + 3) + (1 + 2), (
        "three KB and a new place in the index; one KB, taken from one place"
    )
    assert total["read units"] == 1 + 2, "one scan of the table, two of the ledger; nothing is counted"


def test_a_copy_without_what_match_reads_goes_with_its_source_though_without_a_record_either() -> None:
    stage = Stage(
        'entities:\n  Order: {key: {PK: "USER#{userId}", SK: "ORDER#{orderId}"}}\n'
        '  ById: {key: {PK: "ORDER#{orderId}", SK: X}, match: {type: Order}}\n'
        "projections:\n  byId: {from: Order, copy: {into: ById, attributes: [total]}}\n"
    )
    stage.put("USER#1", "ORDER#1", total=3)
    stage.filled()
    held = stage.item("ORDER#1", "X", guards=True) or {}
    stage.put("ORDER#1", "X", **{name: value for name, value in held.items() if name not in ("PK", "SK", "type")})
    stage.remove("USER#1", "ORDER#1")
    stage.lose()
    stage.filled()
    assert stage.item("ORDER#1", "X") is None

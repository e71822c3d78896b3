"""Expiries under rules with `expired: keep`: what an item contributed stays in its entry, under all versions of a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.engine import changes, ledger
from projections.engine.changes import Change
from projections.engine.store import ItemKey
from projections.language.contribution import MEMBER_BYTES, Evaluated
from tests.engine.scene import Scene, deadline
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Site: {key: {PK: "SITE#{site}", SK: S}}
  Visit: {key: {PK: "VISIT#{v}", SK: V}, expires: true}
projections:
"""
MEASURES = "visits: count, total: sum(at), last: max(number(at)), first: min(number(at)), pages: distinct(text(page))"
SET = f"aggregate: {{into: Site, set: {{{MEASURES}}}}}"
HUMANS = f"  visits: {{from: Visit, where: {{kind: [human]}}, expired: keep, {SET}}}\n"
ALL = f"  visits: {{from: Visit, expired: keep, {SET}}}\n"
MEMBERS = """
  newest: {from: Visit, expired: keep, top: {into: Site, as: newest, by: at, limit: 2, attributes: [page]}}
  last: {from: Visit, expired: keep, latest: {into: Site, by: at, attributes: {lastPage: page}}}
"""
SITE = ItemKey("main", "SITE#1", "S")


def visit(w: World, number: int, at: int, kind: str = "human", page: str = "") -> None:
    w.put(f"VISIT#{number}", "V", kind=kind, site="1", at=at, page=page or f"p{at}")


def expire(w: World, number: int) -> None:
    w.remove(f"VISIT#{number}", "V", by_ttl=True)


def kept(w: Scene, number: int) -> Any:
    return json.loads((w.entry(f"VISIT#{number}|V") or {}).get("kept", "{}"))


def shown(w: World) -> dict[str, Any]:
    return {name: value for name, value in (w.item("SITE#1", "S") or {}).items() if name not in ("PK", "SK")}


def site(rules: str, **settings: Any) -> Scene:
    w = Scene(rules, HEAD, **settings)
    w.put("SITE#1", "S")
    w.settle()
    return w


def visits(first: int, last: int, number: int, total: int, pages: int) -> dict[str, Any]:
    return {"visits": number, "total": total, "first": first, "last": last, "pages": pages}


def test_every_measure_keeps_what_expired_and_a_redelivery_adds_nothing() -> None:
    w = site(ALL + MEMBERS)
    for number, at in enumerate((5, 9, 1)):
        visit(w, number, at)
    w.settle()
    before = shown(w)
    members = {"newest": [{"page": "p9"}, {"page": "p5"}], "lastPage": "p9"}
    assert before == {**visits(1, 9, 3, 15, 3), **members}
    expire(w, 1), expire(w, 2)
    batch = w.records()
    w.settle()
    w.processor.process(batch, remaining=lambda: 900.0)
    w.settle()
    assert shown(w) == before
    assert w.contributed("VISIT#1|V") == {}
    assert kept(w, 1).keys() == {"visits.1", "newest.1", "last.1"}
    w.remove("VISIT#0", "V")
    w.settle()
    now = {**visits(1, 9, 2, 10, 2), "newest": [{"page": "p9"}, {"page": "p1"}], "lastPage": "p9"}
    assert shown(w) == now


def test_an_item_under_the_key_of_one_that_expired_counts_beside_it() -> None:
    w = site(ALL)
    visit(w, 0, at=7)
    expire(w, 0)
    visit(w, 0, at=5)
    w.settle()
    assert shown(w) == visits(5, 7, 2, 12, 2)
    expire(w, 0)
    visit(w, 0, at=7)
    w.settle()
    assert shown(w) == visits(5, 7, 3, 19, 2)
    w.remove("VISIT#0", "V")
    w.settle()
    assert shown(w) == visits(5, 7, 2, 12, 2)
    assert w.contributed("VISIT#0|V") == {}
    w.refresh(ItemKey("main", "VISIT#0", "V"))
    assert shown(w) == visits(5, 7, 2, 12, 2)


@pytest.mark.parametrize("when", ["before it is registered", "while it fills", "before it is promoted", "afterwards"])
def test_a_new_version_takes_over_what_is_defined_as_before(when: str) -> None:
    """At any moment; a measure that is new has what its version has seen."""
    w = site(ALL)
    visit(w, 0, at=7), visit(w, 1, at=5)
    w.settle()
    new = w.under(ALL.replace("visits: count", "visits: count, again: sum(at)"), HEAD)
    if when == "before it is registered":
        expire(w, 0)
        w.settle()
    new.registry().register(new.program)
    if when == "while it fills":
        expire(w, 0)
        w.settle()
    new.apply(promotes=False)
    if when == "before it is promoted":
        expire(w, 0)
        w.settle()
    new.apply()
    if when == "afterwards":
        expire(w, 0)
    w.settle()
    new_measure = {"again": 5 if when == "before it is registered" else 12}
    assert shown(w) == {**visits(5, 7, 2, 12, 2), **new_measure}
    w.carry_out(["visits.1"], fills=False)
    w.settle()
    assert shown(w) == visits(5, 7, 2, 12, 2)


class Died(BaseException):
    """The process dies."""


@pytest.mark.parametrize("lived", [None, 0, 1, 3, 5])
def test_a_new_version_takes_over_more_than_one_transaction_holds(lived: int | None) -> None:
    """Of an item that came back and expired again and again. A process that dies in between is continued, also by the record
    of the next expiry; nothing is taken over twice, or left out.
    """
    w = site(ALL + MEMBERS)
    for at in range(8):
        visit(w, 0, at)
        expire(w, 0)
        w.settle()
    assert shown(w) == {**visits(0, 7, 8, 28, 8), "newest": [{"page": "p7"}, {"page": "p6"}], "lastPage": "p7"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "MOST_ACTIONS", 6)
        versions = [version.name for version in w.registry().recount(["visits", "newest"]).versions.values()]
        if lived is not None:
            w.store.faults = [*[None] * lived, Died()]
            with pytest.raises(Died):
                w.carry_out(versions)
            assert ("carrying" in (w.entry("VISIT#0|V") or {})) == (lived > 0)
            visit(w, 0, 9)
            expire(w, 0)
            w.settle()
            assert "carrying" not in (w.entry("VISIT#0|V") or {})
        w.carry_out(versions)
        w.settle()
    last = 7 if lived is None else 9
    newest = [{"page": "p7"}, {"page": "p6"}] if lived is None else [{"page": "p9"}, {"page": "p7"}]
    number, total = (8, 28) if lived is None else (9, 37)
    assert shown(w) == {**visits(0, last, number, total, number), "newest": newest, "lastPage": f"p{last}"}
    assert kept(w, 0).keys() >= {"visits.2", "newest.2", "last.1"}
    assert w.rejected == []


@pytest.mark.parametrize("lived", range(6))
def test_an_expiry_in_several_transactions_is_finished_by_its_redelivery(lived: int) -> None:
    w = site(ALL + MEMBERS)
    visit(w, 0, 5)
    w.settle()
    before = shown(w)
    expire(w, 0)
    w.store.faults = [*[None] * lived, Died()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "MOST_ACTIONS", 4)
        with pytest.raises(Died):
            w.processor.process(w.records(), remaining=lambda: 900.0)
        w.settle()
    assert shown(w) == before
    assert w.contributed("VISIT#0|V") == {}


TAGGED = HEAD.replace("entities:", 'entities:\n  Tag: {key: {PK: "TAG#{tag}", SK: T}, derived: true}')
TAGS = "  tags: {from: Visit, each: {tag: tags}, expired: keep, aggregate: {into: Tag, set: {n: count}}}\n"


@pytest.mark.parametrize("lived", [0, 1, 2])
def test_a_new_version_takes_over_what_an_item_contributed_whose_expiry_was_lost(lived: int) -> None:
    w = Scene(TAGS, TAGGED)
    w.put("VISIT#0", "V", tags=[f"t{number}" for number in range(10)])
    w.settle()
    expire(w, 0)
    w.lose()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "MOST_ACTIONS", 6)
        versions = [version.name for version in w.registry().recount(["tags"]).versions.values()]
        w.store.faults = [*[None] * lived, Died()]
        with pytest.raises(Died):
            w.carry_out(versions)
        w.carry_out(versions)
        w.settle()
    assert [(w.item(f"TAG#t{number}", "T") or {}).get("n") for number in range(10)] == [1] * 10


def test_what_versions_that_are_gone_contributed_is_added_to_no_group_while_others_take_over() -> None:
    """With them, the writes would be more than a transaction holds."""
    w = Scene(TAGS, TAGGED)
    for letter in "ab":
        w.put("VISIT#0", "V", tags=[f"{letter}{number}" for number in range(70)])
        w.settle()
        expire(w, 0)
        w.settle()
    w.put("VISIT#0", "V", tags=[f"c{number}" for number in range(70)])
    w.settle()
    for _ in range(2):
        w.carry_out([version.name for version in w.registry().recount(["tags"]).versions.values()])
        w.settle()
    w.put("VISIT#0", "V", tags=[])
    w.settle()
    assert (w.ledger("G|tags.1|"), w.rejected) == ([], [])
    assert [(w.item(f"TAG#{tag}0", "T") or {}).get("n") for tag in "abc"] == [1, 1, None]


def test_a_rule_whose_group_refuses_loses_what_expired_and_no_other_does() -> None:
    other = "  other: {from: Visit, expired: keep, aggregate: {into: Site, set: {others: count}}}\n"
    w = site(ALL + other)
    w.store.put("ledger", {"pk": {"S": "G|other.1|main|SITE#1|S"}, "sk": {"S": "00"}, "n": {"S": "x"}})
    for at in (3, 4):
        visit(w, 0, at)
        w.deliver()
        expire(w, 0)
        w.settle()
    assert {name: shown(w)[name] for name in ("visits", "last")} == {"visits": 2, "last": 4}
    assert {rejected.rule for rejected in w.rejected} == {"other"}


def test_alike_items_that_have_no_room_are_all_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEPT_BYTES", 20)
    w = site("  visits: {from: Visit, expired: keep, aggregate: {into: Site, set: {visits: count}}}\n")
    for _ in range(2):
        for number in range(3):
            visit(w, number, 5)
        w.settle()
        for number in range(3):
            expire(w, number)
        w.settle()
    assert shown(w) == {"visits": 3}
    assert [rejected.key for rejected in w.rejected] == [f"main|VISIT#{number}|V" for number in range(3)]


def test_what_expired_and_has_no_room_is_rejected_by_rule_and_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "KEPT_BYTES", 200)
    w = site(ALL + "  online: {from: Visit, expired: retract, aggregate: {into: Site, set: {online: count}}}\n")
    for at in range(6):
        visit(w, 0, at)
        w.settle()
        assert shown(w)["online"] == 1
        expire(w, 0)
        w.settle()
    counted = shown(w)["visits"]
    assert 1 < counted < 6
    assert shown(w) == {**visits(0, counted - 1, counted, sum(range(counted)), counted), "online": 0}
    assert [(rejected.rule, rejected.key) for rejected in w.rejected] == [("visits", "main|VISIT#0|V")] * (6 - counted)
    assert "has no room to keep that" in w.rejected[0].reason
    w.processor.process(w.store.stream("main"), remaining=lambda: 900.0)
    w.settle()
    assert shown(w)["visits"] == counted
    visit(w, 1, 3)
    expire(w, 1)
    w.settle()
    assert shown(w)["visits"] == counted + 1


def test_the_size_of_a_member_is_in_bytes_also_where_it_is_not_known_yet() -> None:
    target = ("newest.1", "main|SITE#1|S")
    change = Change("s", "v", {}, Evaluated({}, {(*target, "pick|n1"): {"page": {"S": "漢" * 1000}}}))
    assert change.put_size(target, "pick|n1", "") > 3000
    assert change.put_size(target, "pick|n1 ~", "digest") == MEMBER_BYTES
    assert change.put_size(target, "last|n1 ~", "") == 0


def test_a_version_of_another_meaning_takes_nothing_over_and_keeps_what_it_has_seen() -> None:
    w = site(HUMANS)
    visit(w, 0, at=1), visit(w, 1, at=2, kind="robot"), visit(w, 2, at=3, kind="robot")
    w.settle()
    expire(w, 0), expire(w, 1)
    w.settle()
    new = w.under(ALL, HEAD)
    new.registry().register(new.program)
    expire(w, 2)
    w.settle()
    new.apply()
    assert shown(w) == visits(3, 3, 1, 3, 1)
    w.carry_out(["visits.1"], fills=False)
    assert shown(w) == visits(1, 1, 1, 1, 1)


def test_a_refresh_after_the_item_is_gone_leaves_its_contribution_to_the_record() -> None:
    w = site(ALL)
    visit(w, 0, at=7)
    w.settle()
    held = w.contributed("VISIT#0|V")
    expire(w, 0)
    w.refresher().sources({ItemKey("main", "VISIT#0", "V"): None}, deadline())
    assert w.contributed("VISIT#0|V") == held
    w.settle()
    assert (shown(w), w.contributed("VISIT#0|V")) == (visits(7, 7, 1, 7, 1), {})


def test_an_item_that_expires_before_a_filling_version_recorded_it_is_kept_by_its_record() -> None:
    w = site(ALL, filled=False)
    visit(w, 0, at=7)
    w.lose()
    expire(w, 0)
    w.settle()
    w.carry_out()
    assert shown(w) == visits(7, 7, 1, 7, 1)


def test_ranks_keep_the_scores_of_what_expired() -> None:
    head = HEAD.replace("projections:", '  Game: {key: {PK: "GAME#{game}", SK: G}, expires: true}\nprojections:')
    w = Scene(
        "  best: {from: Game, bind: {site: all}, expired: keep, rank: {into: Site, by: score, digits: 2}}\n", head
    )
    for game, score in ((1, 10), (2, 30)):
        w.put(f"GAME#{game}", "G", score=score)
    w.settle()
    ranges = [(group["pk"], group["n"]) for group in w.ledger("G|best.1|")]
    assert ranges
    w.remove("GAME#2", "G", by_ttl=True)
    w.settle()
    assert [(group["pk"], group["n"]) for group in w.ledger("G|best.1|")] == ranges
    w.remove("GAME#1", "G")
    w.settle()
    assert sum(group["n"] for group in w.ledger("G|best.1|")) < sum(n for _, n in ranges)

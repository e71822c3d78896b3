"""Expiries under rules with `expired: keep`: what an item contributed stays in its entry, under all versions of a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.engine.store import ItemKey
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

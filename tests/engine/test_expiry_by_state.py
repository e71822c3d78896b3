"""Expiries under rules with `expired: keep`: only active rules settle, other rules leave the ledger entry as it is."""

from __future__ import annotations

from typing import Any

import pytest

from projections.engine.changes import SETTLED
from projections.engine.registry import FILLING, LIVE, PROVISIONAL, SHADOW, Registered, RegistrySnapshot
from projections.engine.store import ItemKey
from tests.engine.scene import Scene, deadline

HEAD = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Site: {key: {PK: "SITE#{site}", SK: S}}
  Visit: {key: {PK: "VISIT#{v}", SK: V}, expires: true}
projections:
"""
SET = "aggregate: {into: Site, set: {visits: count, last: max(number(at)), first: min(number(at))}}"
HUMANS = f"  visits: {{from: Visit, where: {{kind: [human]}}, expired: keep, {SET}}}\n"
ALL = f"  visits: {{from: Visit, expired: keep, {SET}}}\n"
SHADOWED = ALL.replace("from: Visit,", "from: Visit, mode: shadow,")
EACH = """
  visits: {from: Visit, bind: {site: all}, expired: keep, aggregate: {into: Site, set: {visits: count}}}
  pages:
    from: Visit
    each: {page: pages, most: 10000}
    expired: keep
    aggregate: {into: Page, set: {views: count}}
"""


def visit(w: Scene, number: int, kind: str = "human", at: int = 1) -> None:
    w.put(f"VISIT#{number}", "V", kind=kind, site="1", at=at)


def expire(w: Scene, number: int) -> None:
    w.remove(f"VISIT#{number}", "V", by_ttl=True)


def entry(w: Scene, number: int) -> Any:
    return (w.contributed(f"VISIT#{number}|V") or {}).get("visits", {}).get("main|SITE#1|S")


def visits(w: Scene) -> int:
    found = w.item("SITE#1", "S")
    assert found is not None
    return int(found["visits"])


def settled_by(w: Scene) -> int:
    return sum(int(group.get(f"{SETTLED}n", 0)) for group in w.ledger("G|visits|"))


def backfill(w: Scene) -> None:
    """Puts the rules of `w` in force: items, then entries, then the rules are live and published."""
    w.registry().activate()
    w.settle()
    refresher = w.refresher()
    refresher.refresh_scanned(w.scanned(), deadline())
    for one in w.ledger("E|"):
        refresher.sources({w.store.schema("main").key("main", _image(one)): None}, deadline())
    w.registry().complete(w.program.rules)
    w.backfill()
    w.settle()


def _image(one: Any) -> Any:
    _, partition, sort = one["pk"].removeprefix("E|").split("|")
    return {"PK": {"S": partition}, "SK": {"S": sort}}


def site(rules: str, **settings: Any) -> Scene:
    w = Scene(rules, HEAD, **settings)
    w.put("SITE#1", "S")
    w.settle()
    return w


def deployed(rules: str, w: Scene, head: str = HEAD) -> Scene:
    """The same tables under other rules, as a deployment finds them."""
    other = Scene(rules, head, **w.settings)
    other.store, other.rejected, other.position = w.store, w.rejected, w.position
    other.processor = other.worker()
    return other


@pytest.mark.parametrize(
    ("state", "same", "expected"),
    [(LIVE, True, True), (LIVE, False, False), (FILLING, True, False), (PROVISIONAL, False, False)],
)
def test_only_the_active_version_of_a_rule_settles(state: str, same: bool, expected: bool) -> None:
    for rules in (ALL, SHADOWED):
        rule = Scene(rules, HEAD).program.rules["visits"]
        known = Registered(rule.fingerprint if same else "other", state)
        snapshot = RegistrySnapshot(1, "p", frozenset(), {"visits": known})
        assert snapshot.settles(rule) is expected
    assert snapshot.state(rule) == SHADOW  # a rule in shadow mode counts as it will when it is live


def test_a_rule_that_is_not_in_the_registry_does_not_settle() -> None:
    rule = Scene(ALL, HEAD).program.rules["visits"]
    assert not RegistrySnapshot(1, "p", frozenset(), {}).settles(rule)


def test_expiries_under_a_provisional_version_change_nothing_after_a_rollback() -> None:
    a = site(HUMANS)
    visit(a, 0), visit(a, 1, "robot"), visit(a, 2, "robot")
    a.settle()
    b = deployed(ALL, a)
    held = entry(b, 0)
    for number in range(3):
        expire(b, number)
    b.settle()
    assert entry(b, 0) == held
    assert entry(b, 1) is None
    assert settled_by(b) == 0
    c = deployed(HUMANS, b)
    backfill(c)
    assert visits(c) == 1


def test_expiries_under_a_provisional_version_are_kept_when_it_becomes_active() -> None:
    a = site(HUMANS)
    visit(a, 0), visit(a, 1, "robot")
    a.settle()
    b = deployed(ALL, a)
    visit(b, 2, "robot")
    b.settle()
    expire(b, 0), expire(b, 2)
    b.settle()
    assert visits(b) == 1
    assert settled_by(b) == 0
    backfill(b)
    assert visits(b) == 3
    expire(b, 1)
    b.settle()
    assert visits(b) == 3
    assert settled_by(b) == 1


def test_expiries_while_a_rule_fills_are_kept_and_settled_when_the_key_is_used_again() -> None:
    w = site(ALL, new_rules=FILLING)
    visit(w, 0, at=7)
    w.settle()
    expire(w, 0)
    w.settle()
    assert entry(w, 0) is not None
    assert settled_by(w) == 0
    backfill(w)
    assert visits(w) == 1
    assert settled_by(w) == 0
    visit(w, 0, at=5)
    w.settle()
    assert visits(w) == 2
    assert settled_by(w) == 1
    assert w.entry("VISIT#0|V") is not None
    assert "expired" not in (w.entry("VISIT#0|V") or {})
    expire(w, 0)
    w.settle()
    assert visits(w) == 2
    assert settled_by(w) == 2
    found = w.item("SITE#1", "S") or {}
    assert (found["first"], found["last"]) == (5, 7)
    assert entry(w, 0) is None


def test_a_refresh_settles_what_an_expiry_left_when_the_key_is_used_again() -> None:
    w = site(ALL, new_rules=FILLING)
    visit(w, 0, at=7)
    w.settle()
    expire(w, 0)
    w.settle()
    backfill(w)
    visit(w, 0, at=5)
    w.lose()
    w.refresh(ItemKey("main", "VISIT#0", "V"))
    w.settle()
    assert visits(w) == 2
    assert settled_by(w) == 1
    w.refresh(ItemKey("main", "VISIT#0", "V"))
    assert visits(w) == 2
    assert settled_by(w) == 1


def test_an_item_that_expires_before_a_filling_rule_recorded_it_is_not_counted() -> None:
    w = site(ALL, new_rules=FILLING)
    visit(w, 0)
    w.lose()
    expire(w, 0)
    w.settle()
    assert entry(w, 0) is None
    assert settled_by(w) == 0
    backfill(w)
    assert visits(w) == 0
    backfill(back := deployed(HUMANS, w))
    assert visits(back) == 0
    assert settled_by(back) == 0


def test_a_change_and_an_expiry_in_one_batch_leave_the_change_in_the_entry() -> None:
    a = site(HUMANS)
    visit(a, 0)
    a.settle()
    b = deployed(ALL, a)
    visit(b, 0, at=9)
    expire(b, 0)
    visit(b, 1, "robot", at=3)
    expire(b, 1)
    assert b.deliver().failed is None
    assert [sorted(entry(b, number)["+"]) for number in (0, 1)] != [[], []]
    assert entry(b, 0)["n"] == 1 == entry(b, 1)["n"]
    assert settled_by(b) == 0


def test_a_removal_by_the_application_is_retracted_whatever_the_state() -> None:
    w = site(ALL, new_rules=FILLING)
    visit(w, 0)
    w.settle()
    w.remove("VISIT#0", "V")
    w.settle()
    assert entry(w, 0) is None


def test_an_expiry_whose_record_comes_after_the_page_of_a_backfill_is_kept() -> None:
    head = HEAD.replace("projections:", '  Page: {key: {PK: "PAGE#{page}", SK: P}, derived: true}\nprojections:')
    w = Scene(EACH, head, new_rules=FILLING)
    w.put("SITE#all", "S")
    w.put("VISIT#1", "V", pages=["p1"])
    w.settle()
    held = w.contributed("VISIT#1|V")
    w.remove("VISIT#1", "V", by_ttl=True)
    w.refresher().sources({ItemKey("main", "VISIT#1", "V"): None}, deadline())
    assert w.contributed("VISIT#1|V") == held
    w.settle()
    backfill(w)
    assert w.item("PAGE#p1", "P") == {"PK": "PAGE#p1", "SK": "P", "views": 1}

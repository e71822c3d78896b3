"""An attribute of type NULL is a missing one: rules derive the same with it as without it."""

from __future__ import annotations

import projections
from projections.testing.scenario import Scenario

RULES_OF_A_SHOP = """
table: { key: [PK, SK], indexes: { GSI1: [GSI1PK, GSI1SK] } }
entities:
  Order: { key: { PK: "CUSTOMER#{customer}", SK: "ORDER#{order}" }, id: order }
  Customer: { key: { PK: "CUSTOMER#{customer}", SK: PROFILE } }
  ById: { key: { PK: "ORDER#{order}", SK: ORDER } }
projections:
  totals: { from: Order, aggregate: { into: Customer, set: { orders: count, spent: sum(total), mean: avg(total) } } }
  newest: { from: Order, top: { into: Customer, as: newest, by: at, limit: 2, attributes: [at, note] } }
  byId: { from: Order, copy: { into: ById, attributes: all } }
  shown: { from: Customer, compute: { set: { shown: "coalesce(nick, name)" } } }
  first: { from: Customer, compute: { set: { firstName: name }, once: true } }
  listed: { from: Order, index: { GSI1PK: "STATUS#{status|default(new)}", GSI1SK: "{at}" } }
"""
CUSTOMER = {"PK": "CUSTOMER#c", "SK": "PROFILE"}
ORDER = {"PK": "CUSTOMER#c", "SK": "ORDER#1"}


def test_a_null_that_the_application_writes_to_an_attribute_of_a_rule_is_overwritten() -> None:
    played = Scenario(projections.loads(RULES_OF_A_SHOP))
    played.put({**CUSTOMER, "name": "Ann", "nick": None})
    played.put({**ORDER, "total": 5, "at": 1, "note": None, "status": None})
    played.update({**CUSTOMER, "spent": None, "shown": None, "newest": None})
    played.update({**ORDER, "GSI1PK": "x", "GSI1SK": "y"})
    played.update({"PK": "ORDER#1", "SK": "ORDER", "total": None})
    customer = {"name": "Ann", "nick": None, "orders": 1, "spent": 5, "mean": 5, "newest": [{"at": 1}]}
    order = {"total": 5, "at": 1, "GSI1PK": "STATUS#new", "GSI1SK": "1"}
    played.then(
        {**CUSTOMER, **customer, "shown": "Ann", "firstName": "Ann"},
        {**ORDER, **order, "note": None, "status": None},
        {"PK": "ORDER#1", "SK": "ORDER", **order},
    )
    assert played.quarantined == []


def test_a_value_that_becomes_null_is_removed_where_it_was_copied() -> None:
    played = Scenario(projections.loads(RULES_OF_A_SHOP))
    played.put({**CUSTOMER, "name": "Ann", "nick": "Annie"})
    played.put({**ORDER, "total": 5, "at": 1, "note": "now"})
    played.update({**ORDER, "total": None, "at": None, "note": None})
    played.update({**CUSTOMER, "nick": None, "firstName": None})
    customer = played.item(CUSTOMER) or {}
    assert (customer["shown"], customer["firstName"]) == ("Ann", "Ann")
    assert (customer["orders"], customer["spent"], customer["newest"], "mean" in customer) == (1, 0, [], False)
    assert played.item({"PK": "ORDER#1", "SK": "ORDER"}) == {"PK": "ORDER#1", "SK": "ORDER"}
    assert "GSI1PK" not in (played.item(ORDER) or {})

"""What a change costs before and after a proposal."""

from __future__ import annotations

from projections.inspect.cost.change_costs import Change, write_cost
from projections.language.access.plan import queries_of
from projections.language.access.planner import plan
from projections.language.access.proposals import proposal
from projections.language.loader import loads

RULES = """\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post, required: [createdAt]}
  Meta: {key: {PK: "POST#{post}", SK: META}}
projections:
  meta: {from: Post, copy: {into: Meta, attributes: [createdAt]}}
queries:
  newest: {find: Post, by: [topic], order: createdAt desc}
  metas: {find: Meta, order: createdAt desc}
"""


def test_an_index_rule_costs_a_write_and_an_index_entry() -> None:
    rules = loads(RULES)
    document, query = rules.completed(), queries_of(rules)["newest"]
    found = proposal(document, query, plan(document, query), [])
    assert found is not None
    cost = write_cost(document, found.rules, "Post")
    # One unit each for the post and its copy; the rule then writes the index key (1) and its entry (1).
    assert cost.put == (Change(1, 1), Change(1, 3))
    # An edit replaces the entry (2): the item that the application writes keeps its old index key.
    assert cost.edit[0] == Change(1, 1)
    assert cost.edit[1].total > cost.edit[0].total
    assert str(cost).startswith("write units of a new Post: 2 → 4; of an edit of all its attributes: 2 → ")


def test_items_that_rules_make_cost_what_their_source_costs() -> None:
    rules = loads(RULES)
    document, query = rules.completed(), queries_of(rules)["metas"]
    found = proposal(document, query, plan(document, query), [])
    assert found is not None
    cost = write_cost(document, found.rules, "Meta")
    assert (cost.entity, cost.put) == ("Post", (Change(1, 1), Change(1, 3)))

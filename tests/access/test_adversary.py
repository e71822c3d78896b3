"""Tables that were made to mislead the planner: answers compared with the items that the query means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from projections.access.answers import StoreReader, answer_to
from projections.api import from_dict
from projections.language.access.plan import Plan
from projections.language.access.planner import plan
from projections.testing.scenario import Scenario

NOW = datetime(2026, 5, 20, tzinfo=UTC)


class Asked(NamedTuple):
    """A plan, and the `uid` of each item of its answer, also by pages of one item, and the number of items read."""

    plan: Plan
    uids: list[Any]
    pages: list[Any]
    scanned: int


def document(
    entities: Mapping[str, Any], indexes: Mapping[str, Any] | None = None, projections: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    table = {"key": ["PK", "SK"], "indexes": indexes or {}}
    return {"table": table, "entities": entities, "projections": projections or {}}


def ask(
    rules: Mapping[str, Any],
    items: Sequence[Mapping[str, Any]],
    query: Mapping[str, Any],
    given: Mapping[str, Any] | None = None,
) -> Asked:
    loaded = from_dict({**rules, "queries": {"q": query}})
    scenario = Scenario(loaded)
    scenario.given(*items)
    found = plan(loaded.program.model, loaded.queries["q"])
    if not found.requests:
        return Asked(found, [], [], 0)
    reader = StoreReader(scenario.store)
    answer = answer_to(loaded.program, found, given or {}, reader, now=NOW)
    uids = [item["uid"] for item in answer]
    pages: list[Any] = []
    token: str | None = None
    while len(pages) <= len(uids):
        page = answer_to(loaded.program, found, given or {}, reader, now=NOW).page(1, token)
        pages += [item["uid"] for item in page.items]
        token = page.token
        if token is None:
            break
    return Asked(found, uids, pages, answer.scanned)


E = {"key": {"PK": "E#{a}", "SK": "I#{b}"}, "match": {"kind": "E"}}


def e(uid: str, a: str = "1", **attributes: Any) -> dict[str, Any]:
    """Return an item of E."""
    return {"PK": f"E#{a}", "SK": f"I#{uid}", "kind": "E", "uid": uid, **attributes}


def index(partition: str, sort: str, projection: Any = "all", **required: Any) -> dict[str, Any]:
    """Return rules with an index rule of E."""
    return document(
        {"E": {**E, **required}},
        {"G1": {"partition": ["G1PK"], "sort": ["G1SK"], "projection": projection}},
        {"ix": {"from": "E", "index": {"G1PK": partition, "G1SK": sort}}},
    )


# --- conditions that an index cannot show ---


def test_a_filter_is_applied_to_an_item_without_the_attribute() -> None:
    rules = index("M#{m}", "{b}", ["uid", "kind", "s"])
    items = [e("p", m="Ma", s="x"), e("r", m="Ma")]
    query = {"find": "E", "by": ["m"], "where": {"s": [{"exists": False}]}, "attributes": ["uid"]}
    assert ask(rules, items, query, {"m": "Ma"}).uids == ["r"]
    query = {"find": "E", "by": ["m", "s"], "attributes": ["uid"]}
    assert ask(rules, items, query, {"m": "Ma", "s": "x"}).uids == ["p"]


def test_a_range_that_the_index_does_not_project_is_not_claimed() -> None:
    rules = index("M#{m}", "{b}", ["uid", "kind"])
    items = [e("p", m="Ma", n=1), e("q", m="Ma", n=9), e("r", m="Ma")]
    query = {"find": "E", "by": ["m"], "range": "n", "attributes": ["uid"]}
    found = ask(rules, items, query, {"m": "Ma", "n.from": 5})
    assert found.plan.verdict == "incomplete"
    assert "does not project n, which the filter needs" in found.plan.reason


def test_items_that_are_not_recognised_are_not_returned() -> None:
    rules = document({"E": E})
    stranger = {"PK": "E#1", "SK": "I#z", "uid": "z"}
    assert ask(rules, [e("p"), stranger], {"find": "E", "by": ["a"]}, {"a": "1"}).uids == ["p"]


def test_values_that_no_key_can_have_are_filtered() -> None:
    rules = document({"E": E})
    items = [e("p", s="x", n=5), e("q", s=["x"], n="five"), e("r", s=True, n=None), e("t", n=[5])]
    assert ask(rules, items, {"find": "E", "by": ["a", "s"]}, {"a": "1", "s": "x"}).uids == ["p"]
    assert ask(rules, items, {"find": "E", "by": ["a", "n|pad(3)"]}, {"a": "1", "n": 5}).uids == ["p"]


# --- the texts of keys ---


def test_texts_that_can_be_read_in_two_ways_are_assumed_not_to_occur() -> None:
    items = [e("p", s="x", m="y-z"), e("q", s="x-y", m="z")]
    rules = index("S#{s}-{m}", "{b}", ["uid", "kind"])
    found = ask(rules, items, {"find": "E", "by": ["s", "m"], "attributes": ["uid"]}, {"s": "x", "m": "y-z"})
    assert "s has no -" in found.plan.assumes or found.uids == ["p"]


def test_a_beginning_that_a_longer_value_has_too_is_assumed_not_to_occur() -> None:
    rules = index("M#{m}", "{s}-{t}", ["uid", "kind"], required=["s", "t"])
    items = [e("p", m="Ma", s="x", t="1"), e("q", m="Ma", s="x-y", t="1")]
    found = ask(rules, items, {"find": "E", "by": ["m", "s"], "attributes": ["uid"]}, {"m": "Ma", "s": "x"})
    assert "s has no -" in found.plan.assumes or found.uids == ["p"]


def test_a_key_variable_in_front_of_other_text_is_not_exact() -> None:
    rules = index("M#{m}", "{b}-{t}", required=["t"])
    items = [e("x", m="Ma", t="1"), e("x-y", m="Ma", t="1")]
    found = ask(rules, items, {"find": "E", "by": ["m", "b"]}, {"m": "Ma", "b": "x"})
    assert found.uids == ["x"]
    assert found.plan.verdict == "filtered" or "b has no -" in found.plan.assumes


def test_order_of_a_value_that_another_follows_directly_is_not_claimed() -> None:
    rules = index("M#{m}", "{s}{t}", required=["s", "t"])
    items = [e("p", m="Ma", s="x", t="2026"), e("q", m="Ma", s="x1", t="0")]
    found = ask(rules, items, {"find": "E", "by": ["m"], "order": "s"}, {"m": "Ma"})
    assert found.plan.verdict == "none"
    assert found.plan.reason == "G1 does not sort by s: another value follows it without text between them"


def test_order_by_a_name_that_only_a_pipe_fixes_is_not_claimed() -> None:
    rules = index("M#{m|lower}", "{t}", required=["m", "t"])
    items = [e("p", m="ma", t="1"), e("q", m="Ma", t="2")]
    found = ask(rules, items, {"find": "E", "by": ["m|lower"], "order": "m"}, {"m": "MA"})
    assert found.plan.verdict == "none"


def test_an_upper_bound_with_characters_below_the_separator_includes_shorter_values() -> None:
    rules = index("M#{m}", "{s}#{b}", required=["s"])
    items = [e("p", m="Ma", s="Ann"), e("q", m="Ma", s="Ben"), e("r", m="Ma", s="Al")]
    query = {"find": "E", "by": ["m"], "range": "s", "order": "s"}
    assert ask(rules, items, query, {"m": "Ma", "s.to": "Ann Z"}).uids == ["r", "p"]
    assert ask(rules, items, query, {"m": "Ma", "s.to": "Ann#"}).uids == ["r", "p"]


# --- several requests ---


def test_pages_of_several_single_items_continue_after_each() -> None:
    rules = document({"E": E})
    items = [e("p"), e("q"), e("r")]
    found = ask(rules, items, {"find": "E", "by": ["a"], "where": {"b": ["p", "q"]}}, {"a": "1"})
    assert found.uids == found.pages == ["p", "q"]


def test_periods_of_several_values_are_in_order() -> None:
    rules = index("S#{s}#T#{t|date(%Y-%m)}", "{t}#{b}", required=["s", "t"])
    items = [e(f"{s}{month}", s=s, t=f"2026-0{month}-1{day}") for day, s in enumerate("yx") for month in (1, 2, 3)]
    query: dict[str, Any] = {"find": "E", "where": {"s": ["x", "y"]}, "range": "t", "order": "t"}
    found = ask(rules, items, query, {"t.from": "2026-01-01"})
    assert found.uids == found.pages == ["y1", "x1", "y2", "x2", "y3", "x3"]
    found = ask(rules, items, {**query, "order": "t desc"}, {"t.from": "2026-01-01"})
    assert found.uids == found.pages == ["x3", "y3", "x2", "y2", "x1", "y1"]


def test_one_bucket_in_two_places_is_one_bucket() -> None:
    rules = index("K#{b|bucket(2)}#L#{b|bucket(2)}", "{t}", required=["t"])
    items = [e(uid, t=uid) for uid in "pqrs"]
    found = ask(rules, items, {"find": "E", "order": "t"})
    assert found.uids == found.pages == [*"pqrs"]


def test_a_range_of_two_entities_includes_the_continuations_of_the_shorter() -> None:
    entities = {"E": E, "F": {"key": {"PK": "E#{a}", "SK": "I#J"}, "match": {"kind": "F"}}}
    items = [e("K"), e("z"), {"PK": "E#1", "SK": "I#J", "kind": "F", "uid": "f"}]
    found = ask(document(entities), items, {"find": ["E", "F"], "by": ["a"], "order": "asc"}, {"a": "1"})
    assert found.uids == ["f", "K", "z"]


# --- copies ---


def copies(copy: Mapping[str, Any], key: Mapping[str, str], **rule: Any) -> dict[str, Any]:
    entities = {"E": {**E, "id": "b"}, "C": {"key": key, "match": {"kind": "C"}}}
    return document(entities, {}, {"c": {"from": "E", "copy": {"into": "C", **copy}, **rule}})


def test_a_copy_of_all_attributes_lacks_the_variables_of_the_key() -> None:
    rules = copies({"attributes": "all"}, {"PK": "C#{s}", "SK": "{b}"})
    rules["entities"]["E"]["required"] = ["s"]
    found = ask(rules, [e("p", s="x")], {"find": "E", "by": ["s", "a"]}, {"s": "x", "a": "1"})
    assert found.plan.copy is None


def test_a_copy_of_all_attributes_has_its_own_match() -> None:
    rules = copies({"attributes": "all"}, {"PK": "C#{s}", "SK": "{b}"})
    rules["entities"]["E"] |= {"required": ["s"], "match": {"uid": [{"exists": True}]}}
    rules["entities"]["C"]["match"] = {"kind": "C", "uid": [{"exists": True}]}
    found = ask(rules, [e("p", s="x")], {"find": "E", "by": ["s"], "where": {"kind": ["E"]}}, {"s": "x"})
    assert found.plan.copy is None


def test_a_copy_under_the_text_of_a_pipe_is_not_found_by_the_value() -> None:
    rules = copies({"attributes": "all"}, {"PK": "C#{s}", "SK": "{b}"}, bind={"s": "{s|lower}"})
    rules["entities"]["E"]["required"] = ["s"]
    found = ask(rules, [e("p", s="X")], {"find": "E", "by": ["s"]}, {"s": "X"})
    assert found.plan.copy is None or found.uids == ["p"]


def test_a_value_that_the_copy_sets_is_not_that_of_the_item() -> None:
    rules = copies({"attributes": "all", "values": {"m": "made"}}, {"PK": "C#{s}", "SK": "{b}"})
    rules["entities"]["E"]["required"] = ["s"]
    found = ask(rules, [e("p", s="x", m="Ma")], {"find": "E", "by": ["s", "m"]}, {"s": "x", "m": "Ma"})
    assert found.plan.copy is None


def test_an_item_that_lacks_a_value_of_the_copy_has_no_copy() -> None:
    rules = copies({"attributes": ["uid"], "values": {"label": "is {m}"}}, {"PK": "C#{s}", "SK": "{b}"})
    rules["entities"]["E"]["required"] = ["s"]
    query = {"find": "E", "by": ["s"], "attributes": ["uid"]}
    found = ask(rules, [e("p", s="x")], query, {"s": "x"})
    assert found.plan.verdict == "incomplete"
    assert found.plan.reason.endswith("items without m have no copy in C")


@pytest.mark.parametrize("word", ["asc", "desc"])
def test_an_order_without_a_name_is_that_of_the_sort_key(word: str) -> None:
    found = ask(document({"E": E}), [e("p"), e("q")], {"find": "E", "by": ["a"], "order": word}, {"a": "1"})
    assert found.uids == found.pages == sorted(found.uids, reverse=word == "desc")


def test_an_item_without_a_value_for_one_index_is_in_the_other_of_the_same_case() -> None:
    keys = {"G1PK": "S#{s}", "G1SK": "{b}", "G2PK": "M#{m}", "G2SK": "{b}"}
    rules = document({"E": E}, {"G1": ["G1PK", "G1SK"], "G2": ["G2PK", "G2SK"]}, {"ix": {"from": "E", "index": keys}})
    found = ask(rules, [e("p", s="x"), e("q", s="x", m="y")], {"find": "E", "by": ["s"]}, {"s": "x"})
    assert found.plan.verdict == "one"
    assert found.uids == ["p", "q"]


@pytest.mark.parametrize("given", ["none", "x"])
def test_an_item_without_a_value_is_under_the_default_and_not_found_by_it(given: str) -> None:
    keys = {"G1PK": "S#{s|default(none)}", "G1SK": "{b}"}
    rules = document({"E": E}, {"G1": ["G1PK", "G1SK"]}, {"ix": {"from": "E", "index": keys}})
    items = [e("p"), e("q", s="none"), e("r", s="x")]
    found = ask(rules, items, {"find": "E", "by": ["s"]}, {"s": given})
    assert found.plan.verdict != "scan"
    assert found.uids == found.pages == [item["uid"] for item in items if item.get("s") == given]


def test_items_without_a_value_are_found_by_the_default_where_the_query_names_it() -> None:
    keys = {"G1PK": "S#{s|default(none)}", "G1SK": "{b}"}
    rules = document({"E": E}, {"G1": ["G1PK", "G1SK"]}, {"ix": {"from": "E", "index": keys}})
    found = ask(
        rules, [e("p"), e("q", s="none"), e("r", s="x")], {"find": "E", "by": ["s|default(none)"]}, {"s": "none"}
    )
    assert found.plan.verdict == "one"
    assert found.uids == ["p", "q"]


def test_a_computed_attribute_is_found_in_an_index_of_it() -> None:
    compute = {"set": {"s": "coalesce(m, 'none')"}}
    rules = document(
        {"E": E},
        {"G1": ["G1PK", "G1SK"]},
        {"c": {"from": "E", "compute": compute}, "ix": {"from": "E", "index": {"G1PK": "S#{s}", "G1SK": "{b}"}}},
    )
    found = ask(rules, [e("p"), e("q", m="x")], {"find": "E", "by": ["s"]}, {"s": "none"})
    assert found.plan.verdict == "one"
    assert found.uids == ["p"]


def test_an_item_without_the_value_of_an_expression_is_not_in_its_index() -> None:
    rules = index("{s}", "{x / y}", required=["s", "x", "y"])
    items = [e("p", s="a", x=1, y=2), e("q", s="a", x=1, y=0)]
    found = ask(rules, items, {"find": "E", "by": ["s"], "using": "G1"}, {"s": "a"})
    assert "{x / y} has no value" in found.plan.reason
    assert found.plan.verdict not in ("one", "several", "filtered")
    rules = index("{s}", "{x / 2}", required=["s", "x"])
    found = ask(rules, items, {"find": "E", "by": ["s"], "using": "G1"}, {"s": "a"})
    assert (found.plan.verdict, sorted(found.uids)) == ("one", ["p", "q"])


def test_an_index_by_a_choice_does_not_show_which_attribute_an_item_has() -> None:
    rules = index("{coalesce(m, s)|bucket(2)}", "{b}", required=["s"])
    items = [e("p", s="a"), e("q", s="a", m="b"), e("r", s="c", m="b")]
    query = {"find": "E", "where": {"m": [{"exists": True}]}, "order": "b", "using": "G1"}
    found = ask(rules, items, query)
    assert found.plan.verdict == "filtered"
    assert found.uids == found.pages == ["q", "r"]
    assert ask(rules, items, {"find": "E", "order": "b", "using": "G1"}).uids == ["p", "q", "r"]
    assert ask(rules, items, {"find": "E", "by": ["m"], "using": "G1"}, {"m": "b"}).uids == ["q", "r"]


@pytest.mark.parametrize(
    ("value", "verdict"), [("{x * 2} EUR", "one"), ("{x / y} EUR", "incomplete"), ("{coalesce(z, x)}", "one")]
)
def test_a_copy_answers_only_if_its_templates_have_values_on_all_items(value: str, verdict: str) -> None:
    copy = {"into": "C", "attributes": ["uid"], "values": {"v": value}}
    rules = document(
        {"E": {**E, "required": ["x", "y"], "id": "b"}, "C": {"key": {"PK": "C#{b}", "SK": "C"}}},
        projections={"c": {"from": "E", "copy": copy}},
    )
    found = ask(
        rules, [e("p", x=1, y=2), e("q", x=1, y=0)], {"find": "E", "by": ["b"], "attributes": ["uid"]}, {"b": "p"}
    )
    assert (found.plan.verdict == "one") == (verdict == "one"), found.plan
    assert found.uids == (["p"] if verdict == "one" else [])

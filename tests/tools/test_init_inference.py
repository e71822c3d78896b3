"""What `projections init --table` makes of tables as people have them, and what it must not say."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import init_tables
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from init_tables import INDEXED, Item, item, proposed

from projections.init.infer import infer, without_rejected_parts
from projections.init.inferred_relations import value_of
from projections.init.project import project_of_table
from projections.init.proposal import Entity, Proposal, Rule, Sample, Table
from projections.init.rule_file import rule_file
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.review import review_text

TABLES: dict[str, Callable[[], tuple[Table, list[Item]]]] = {
    "social": lambda: (INDEXED, init_tables.social()),
    "social with types": lambda: (INDEXED, init_tables.social(types=True)),
    "shop": init_tables.shop,
    "tenants": init_tables.tenants,
    "typed": init_tables.typed,
    "copies": init_tables.copies,
    "readings": init_tables.readings,
    "junk": init_tables.junk,
}


@cache
def proposal(name: str, *, every: int = 1) -> Proposal:
    table, items = TABLES[name]()
    return proposed(items[::every], table, complete=every == 1)


def keys(of: Proposal) -> dict[str, tuple[str, ...]]:
    return {entity.name: tuple(entity.key.values()) for entity in of.entities}


def entity(of: Proposal, name: str) -> Entity:
    (found,) = [one for one in of.entities if one.name == name]
    return found


def rule(of: Proposal, name: str) -> Rule:
    (found,) = [one for one in of.rules if one.name == name]
    return found


# --- entities ---

SOCIAL = {
    "Post": ("POST#{postId}", "METADATA"),
    "User": ("USER#{userId}", "PROFILE"),
    "Like": ("POST#{postId}", "LIKE#{userId}"),
    "Order": ("USER#{userId}", "ORDER#{orderId}"),
    "Comment": ("POST#{postId}", "COMMENT#{createdAt}#{commentId}"),
}


@pytest.mark.parametrize("name", ["social", "social with types"])
@pytest.mark.parametrize("every", [1, 2])
def test_a_single_table_with_a_word_for_each_kind_of_item(name: str, every: int) -> None:
    """Names come from the keys' words; those of variables from attributes that say the same, or from whose ids they are."""
    found = proposal(name, every=every)
    assert keys(found) == SOCIAL
    assert not found.unknown
    assert found.recognised == found.sampled


def test_keys_of_an_index_that_look_like_templates_are_kept_by_the_application() -> None:
    assert entity(proposal("social"), "Comment").index_key == {"GSI1PK": "AUTHOR#{userId}", "GSI1SK": "{createdAt}"}


def test_tenants_names_are_values_though_they_are_words() -> None:
    found = proposal("tenants")
    assert keys(found) == {
        "User": ("{tenant}#user#{userId}", "profile"),
        "Project": ("{tenant}#user#{userId}", "project#{projectId}"),
    }
    assert rule(found, "projectsOfUser").body["aggregate"] == {"into": "User", "set": {"projectCount": "count"}}


def test_other_signs_between_the_parts_of_keys_other_names_and_expiring_items() -> None:
    found = proposal("shop")
    assert found.separator == "|"
    assert keys(found)["Line"] == ("ORDER|{order_id}", "LINE|{line_id}")
    assert entity(found, "CartLine").expires
    assert "CartLine" not in [one.body["from"] for one in found.rules]  # its numbers are those of Product by chance


def test_type_attribute_distinguishes_entities_with_overlapping_keys() -> None:
    found = proposal("typed")
    assert keys(found) == {"Todo": ("{id}",), "TodoList": ("{id}",)}
    assert [one.match for one in found.entities] == [("__typename", "Todo"), ("__typename", "TodoList")]


def test_a_type_attribute_is_no_condition_where_keys_suffice() -> None:
    assert all(one.match is None and one.kind is not None for one in proposal("social with types").entities)


def test_a_type_of_product_is_no_kind_of_item() -> None:
    items = [item(id=f"p{n}", type=("book", "game", "film")[n % 3], title="x", price=n) for n in range(30)]
    found = proposed(items, Table("products", (("id", "S"),)))
    assert keys(found) == {"Product": ("{id}",)}


def test_a_table_of_one_kind_of_item_is_named_after_itself() -> None:
    found = proposal("readings")
    assert keys(found) == {"Reading": ("{device}", "{at}")}
    assert found.entities[0].variables == ("device", "at")


@pytest.mark.parametrize("prefix", ["PROFILE#", "#METADATA#"])
def test_the_id_of_the_partition_key_is_recognised_after_another_prefix(prefix: str) -> None:
    items = [item(PK=f"USER#u{n}", SK=f"{prefix}u{n}", orders=n % 4 + 1) for n in range(8)]
    items += [item(PK=f"USER#u{n}", SK=f"ORDER#{n}x{m}", total=m) for n in range(8) for m in range(n % 4 + 1)]
    found = proposed(items)
    assert ("USER#{userId}", f"{prefix}{{userId}}") in keys(found).values()
    assert [one.body["aggregate"]["set"] for one in found.rules] == [{"orders": "count"}]


def test_status_in_a_key_is_a_variable_because_an_attribute_equals_it() -> None:
    states = ("OPEN", "PAID", "SENT")
    items = [
        item(PK="SHOP#1", SK=f"{states[n % 3]}#{n:04d}", status=states[n % 3], orderId=f"{n:04d}") for n in range(30)
    ]
    items += [item(PK=f"SHOP#{n}", SK="INFO", name="x") for n in range(3)]
    assert ("SHOP#{shopId}", "{status}#{orderId}") in keys(proposed(items)).values()


def test_variable_is_not_named_like_an_attribute_with_other_values() -> None:
    """Rules take a key variable and an attribute of one name that differ for bad input."""
    items = [item(PK=f"USER#{n}", SK="PROFILE", userId=f"USER#{n}", name=f"{n}") for n in range(6)]
    (found,) = proposed(items).entities
    assert found.key["PK"] != "USER#{userId}"
    assert Program.from_document(loads(rule_file(proposed(items, complete=False))).document())


def test_table_without_structure_gives_one_entity_for_any_item() -> None:
    found = proposal("junk")
    assert keys(found) == {"Item": ("{id*}",)}
    assert (found.recognised, found.rules) == (0, [])
    (unknown,) = found.unknown
    assert unknown.items == 30
    assert set(unknown.key["id"]) <= set("xX9-")


def test_unknown_items_are_listed_in_a_comment_with_masked_keys() -> None:
    strange = [item(PK=f"{n}9f-Q", SK=f"{n}z", secret=1) for n in range(4)]
    found = proposed([*init_tables.social(), *strange])
    assert keys(found) == SOCIAL
    assert [one.items for one in found.unknown] == [4]
    assert '# - 4 items such as PK "99x-X", SK "9x"' in rule_file(found)


# --- rules ---


def test_counters_kept_by_hand_become_held_rules() -> None:
    found = proposal("social")
    assert rule(found, "likesOfPost").body == {
        "from": "Like",
        "aggregate": {"into": "Post", "set": {"likeCount": "count"}},
    }
    posts = sum("likeCount" in one for one in init_tables.social())
    assert (
        rule(found, "likesOfPost").evidence == f"likeCount is the number of Like items in {posts} of {posts} Post items"
    )
    assert {one.name for one in found.rules if not one.doubt} == {
        *("likesOfPost", "commentsOfPost", "postsOfUser", "userInComment", "userInOrder")
    }
    active = loads(rule_file(found)).projections
    assert {one.hold for one in active.values()} == {True}


def test_evidence_from_a_part_of_a_table_has_no_exact_counts() -> None:
    evidence = rule(proposal("social", every=2), "likesOfPost").evidence
    assert "has the name of a counter, and is not less than the number of Like items in the sample" in evidence


def test_sums_are_found_by_their_values() -> None:
    measures = rule(proposal("shop"), "linesOfOrder").body["aggregate"]["set"]
    assert measures == {"num_lines": "count", "total": "sum(price)"}


def test_counters_and_sums_of_items_with_a_word_are_found_though_a_value_is_wrong() -> None:
    chance, items = random.Random(3), []
    for number in range(20):
        states = chance.choices(["booked", "waiting", "cancelled"], k=chance.randint(3, 12))
        bookings = [(state, chance.randint(5, 20)) for state in states]
        paid = sum(price for state, price in bookings if state != "cancelled")
        items += [item(PK=f"CLASS#{number}", SK="INFO", booked=states.count("booked") + (number == 7), paid=paid)]
        for each, (state, price) in enumerate(bookings):
            items += [item(PK=f"CLASS#{number}", SK=f"BOOKING#m{each}", state=state, price=price)]
    rules = {each.attributes[0]: each for each in proposed(items).rules}
    paid_rule, booked_rule = rules["paid"], rules["booked"]
    where = {"state": [{"anything-but": ["cancelled"]}]}
    assert paid_rule.body["aggregate"]["set"] == {"paid": {"sum": "price", "where": where}}
    assert booked_rule.body["aggregate"]["set"] == {"booked": {"count": {"where": {"state": ["booked"]}}}}
    text = "booked is the number of Booking items whose state is booked in 19 of 20 Class items"
    assert (paid_rule.state, booked_rule.state, booked_rule.evidence) == ("held", "uncertain", text)


def test_repeated_attributes_of_a_parent_become_an_embed_rule() -> None:
    found = rule(proposal("social"), "userInComment")
    assert found.body["embed"] == {
        "into": "Comment",
        "match": {"userId": "{userId}"},
        "attributes": {"userName": "name"},
    }
    assert rule(proposal("shop"), "productInLine").body["embed"]["match"] == {"product_id": "{product_id}"}


def test_nearly_constant_attributes_are_not_embedded() -> None:
    items = init_tables.social()
    chance = random.Random(7)
    for one in items:
        one["active"] = {"S": "yes" if chance.random() < 0.95 else "no"}
    assert "active" not in str([one.body for one in proposed(items).rules])


def test_embed_without_an_index_for_the_children_is_a_comment() -> None:
    table = Table("app", (("PK", "S"), ("SK", "S")))
    found = rule(proposed(init_tables.social(), table), "userInComment")
    assert "the rule cannot find the Comment items of a User" in found.doubt
    assert "GSI1" in found.doubt


def test_a_reference_under_another_name_is_bound() -> None:
    assert rule(proposal("typed"), "todosOfTodoList").body["bind"] == {"id": "{listId}"}


def test_a_copy_under_another_key_is_possible_but_not_done_unasked() -> None:
    found = rule(proposal("copies"), "userPostAsPost")
    assert found.body["copy"] == {"into": "Post", "attributes": ["postId", "title", "userId", "words"]}
    assert "creates and deletes its items" in found.doubt


# --- whatever the table ---


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("", [{"N": "1"}, {"S": "x"}], "2"),
        ("n", [], "0"),
        ("n", [{"N": "1.5"}, {"N": "2.50"}], "4"),
        ("n", [{"N": "1"}, {"S": "x"}, None], "1"),
    ],
)
def test_measures_of_a_sample_are_those_of_rules(name: str, values: list[Any], expected: str) -> None:
    assert value_of(name, [{"n": value} if value else {} for value in values]) == {"N": expected}


@pytest.mark.parametrize("name", TABLES)
def test_check_has_nothing_against_a_proposal_nor_against_its_rules_when_they_are_live(name: str) -> None:
    text = rule_file(proposal(name))
    for version in (text, text.replace("hold: true", "hold: false")):
        assert [str(one) for one in review_text(version).findings if one.severity != "note"] == []


@pytest.mark.parametrize("name", TABLES)
def test_rules_in_comments_can_be_used_as_the_comment_says(name: str) -> None:
    found = proposal(name)
    for doubtful in [one for one in found.rules if one.doubt and not one.refused]:
        text = rule_file(found)
        first = text.index(f"  # {doubtful.name}:")
        block = text[first:].split("\n\n")[0]
        changed = text.replace(block, block.replace("  # ", "  ")).replace("# projections:", "projections:")
        assert doubtful.name in loads(changed).projections


def texts_of(items: Sequence[Item], separator: str) -> Iterator[str]:
    for one in items:
        for value in one.values():
            if "S" in value:
                yield from (value["S"], *value["S"].split(separator))


@pytest.mark.parametrize("name", TABLES)
def test_no_value_of_the_table_is_in_the_project(name: str) -> None:
    """Of all texts in items, and the parts of them, only those are in a file that keys are made of, or name a kind."""
    table, items = TABLES[name]()
    found = proposal(name)
    files = project_of_table("new", found, {table.name: None})
    words = {word for one in found.entities for text in one.key.values() for word in text.split(found.separator)}
    kinds = {one.kind[1] for one in found.entities if one.kind}
    secret = {text for text in texts_of(items, found.separator) if len(text) > 4} - words - kinds
    secret.discard("AUTHOR")  # of a template of index keys
    ours = "\n".join(text for path, text in files.items() if path.startswith(("rules", "tests/")))
    assert [
        text for text in sorted(secret) if text in ours and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", ours)
    ] == []


def test_order_of_items_does_not_change_the_proposal() -> None:
    table, items = TABLES["social"]()
    again = list(items)
    random.Random(8).shuffle(again)
    assert rule_file(proposed(items, table)) == rule_file(proposed(again, table))


NAMES = [
    *("type", "status", "userId", "createdAt", "mail", "weird name", "a.b", "on", "0x"),
    *("entity", "likeCount", "g", "ttl"),
]
PARTS = st.one_of(
    st.sampled_from(
        ["USER", "ORDER", "user", "PROFILE", "on", "{a}", "ä", "2026-01-01T00:00:00Z", "#", "##", "http://x/y"]
    ),
    st.text(string.printable, min_size=1, max_size=6),
    st.lists(st.sampled_from(["USER", "acme", "1", "", "LINE"]), min_size=1, max_size=5).map("#".join),
    st.lists(st.sampled_from(["USER", "acme", "1", "2", "LINE"]), min_size=1, max_size=5).map("/".join),
)


@st.composite
def anything(draw: st.DrawFn) -> tuple[Table, Sample]:
    two: list[Any] = [(("PK", "S"), ("SK", "S")), (("userId", "S"), ("at", "N")), (("x y", "S"), ("on", "B"))]
    key = draw(st.sampled_from([*two, (("id", "S"),)]))
    indexes = draw(st.sampled_from([{}, {"GSI1": ((("g", "S"),), (("n", "N"),)), "by-mail": ((("mail", "S"),), ())}]))
    texts = draw(st.lists(PARTS, min_size=1, max_size=8).map(lambda found: [text or "z" for text in found]))
    values = st.one_of(st.sampled_from(texts).map(lambda text: {"S": text}), st.sampled_from([{"N": "2.5"}, {"L": []}]))
    contents = {"S": st.sampled_from(texts), "N": st.integers(-5, 5).map(str), "B": st.just("YWI=")}
    items = []
    for _ in range(draw(st.integers(1, 20))):
        one = {name: {kind: draw(contents[kind])} for name, kind in key}
        found = draw(st.dictionaries(st.sampled_from(NAMES), values, max_size=5))
        items.append({**{name: value for name, value in found.items() if name not in one}, **one})
    table = Table("any.table-1", key, indexes, draw(st.sampled_from([None, "ttl"])))
    if indexes and draw(st.booleans()):  # AWS may list key attributes as projected, too
        table = replace(
            table, projected={"GSI1": "keys_only", "by-mail": draw(st.sampled_from([("mail",), ("mail", "x")]))}
        )
    if indexes and len(key) == 2 and draw(st.booleans()):
        local = {**indexes, "Local": ((key[0],), (("madeAt", "N"),))}
        table = replace(table, indexes=local, local=frozenset({"Local"}))
    return table, Sample(items, draw(st.booleans()))


@settings(max_examples=8)
@given(anything())
def test_any_table_gives_a_proposal_that_check_accepts(given: tuple[Table, Sample]) -> None:
    accepted(without_rejected_parts(infer(*given)))


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("end", ["-at", ": a\u2028a: 1\x85a: 1\x00\n# a #'\"{a}"])
def test_names_of_attributes_may_contain_any_character(name: str, end: str) -> None:
    table, items = TABLES[name]()
    keys = {*table.key_names, *(attribute for parts in table.indexes.values() for one in parts for attribute, _ in one)}
    named = [{key if key in keys else key + end: value for key, value in one.items()} for one in items]
    accepted(proposed(named, table))


def test_no_variable_is_named_after_a_key_of_an_index() -> None:
    """Comments have no attribute that is always the time in their key, except GSI1SK: a rule cannot read what it writes."""
    items = init_tables.social()
    comment = next(one for one in items if "commentId" in one)
    comment["createdAt"] = {"S": "2020-01-01T00:00:00Z"}
    found = proposed(items)
    assert entity(found, "Comment").key["SK"] == "COMMENT#{time}#{commentId}"


def test_names_with_a_dash_are_quoted_in_expressions() -> None:
    table, items = init_tables.shop()
    dashed = [{"unit-price" if name == "price" else name: value for name, value in one.items()} for one in items]
    found = proposed(dashed, table)
    sums = [one.body["aggregate"]["set"].get("total") for one in found.rules if "aggregate" in one.body]
    assert "sum('unit-price')" in sums, sums


def accepted(found: Proposal) -> None:
    files = project_of_table("new", found, {"any": None})
    assert [str(one) for one in review_text(files["rules.yaml"]).findings if one.severity != "note"] == []


def test_guards_are_no_attributes_and_their_rules_are_named() -> None:
    guard = {"M": {name: {"S": "x"} for name in ("d", "at", "s")} | {"n": {"N": "2"}}}
    items = [
        {**one, "~likes": guard, "~": {"S": "abcdefgh"}} if one["SK"] == {"S": "METADATA"} else one
        for one in init_tables.social()
    ]
    found = proposed(items)
    names = {one.name for each in found.entities for one in each.attributes}
    assert [name for name in names if name.startswith("~")] == []
    text = " ".join(rule_file(found).replace("#", "").split())
    assert "Deployed rules have written guards to items of this table: likes." in text

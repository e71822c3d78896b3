"""The oracle against hand-computed cases: `oracle_cases/*.yaml`, the design's example, the rules that ship.

In a case, `then` lists the items that should be other than given, `gone` the keys of those that should not be, `before` what
was there and is gone, `settled` what has expired. The same cases are played through the engine.
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from projections.api import from_dict
from projections.language.keys import ItemKey
from projections.language.loader import load, loads
from projections.language.measures import FUNCTIONS
from projections.language.ruleset import RuleSet
from projections.local.items import wire_item
from projections.testing.cases import read_cases
from projections.testing.oracle import Difference, Oracle
from projections.testing.oracle.oracle_measures import Measure
from projections.testing.oracle.oracle_templates import KeyTemplate, Template, pattern
from projections.testing.oracle.scalar import Missing, Scope, Unfit, normal, plain
from projections.testing.scenario import Scenario

HERE = Path(__file__).parent
LANGUAGE = HERE.parent / "language"
RULES = HERE.parents[1] / "projections" / "rules"

Item = dict[str, Any]


def image(item: Item) -> Item:
    return dict(wire_item(item, "case"))


CASES = sorted((HERE / "oracle_cases").glob("*.yaml"))


@cache
def suite_of(path: Path) -> tuple[Item, tuple[Item, ...]]:
    """The rules of a file, and its cases."""
    suite = read_cases(path, extra_names=frozenset({"before", "settled"}))
    return json.loads(json.dumps(from_dict(suite.rules, path.name).document)), tuple(
        case.content for case in suite.cases
    )


def test_every_measure_has_a_case() -> None:
    documents = [suite_of(path)[0] for path in CASES]
    rules = [rule for document in documents for rule in document["projections"].values()]
    measures = [measure for rule in rules if "aggregate" in rule for measure in rule["aggregate"]["set"].values()]
    used = {name for measure in measures for name in measure} - {"where", "by", "round"}
    assert used == set(FUNCTIONS), "add a rule that uses the measure, and values, to tests/tools/oracle_cases/"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_oracle_computes_what_was_computed_by_hand(path: Path) -> None:
    document, cases = suite_of(path)
    for case in cases:
        oracle = Oracle(document)
        items = {"main": [image(item) for item in case["given"]]}
        settled = [(rule, image(item)) for rule, item in case.get("settled", ())]
        due = {**oracle.read(items), **oracle.read({"main": [image(item) for item in case.get("then", ())]})}
        for key in case.get("gone", ()):
            del due[ItemKey("main", *map(str, key))]
        found = oracle.expect(items, settled)
        assert normal({"M": {"|".join(map(str, k)): {"M": v} for k, v in found.items.items()}}) == normal(
            {"M": {"|".join(map(str, k)): {"M": v} for k, v in due.items()}}
        ), case["about"]
        again = {"main": list(found.items.values())}
        assert oracle.compare(again, settled) == [], f"{case['about']}: what should be is as it should be"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_engine_ends_where_the_oracle_says(path: Path) -> None:
    document, cases = suite_of(path)
    for case in cases:
        scenario = Scenario(RuleSet(document, None), redeliver=True)
        scenario.given(*case.get("before", ()), *case["given"])
        for item in case.get("before", ()):
            scenario.delete(item)
        for _, item in case.get("settled", ()):
            scenario.put(item).settle()
            scenario.expire(item)
        scenario.then(*case.get("then", ()), gone=case.get("gone", ()), quarantined="any")


def test_the_oracle_shares_no_code_with_what_it_judges() -> None:
    """It may name types of keys and values, and reads the canonical document; no function of the language or the engine."""
    paths = sorted((RULES.parent / "testing" / "oracle").rglob("*.py"))
    assert paths
    imported: set[tuple[str, str]] = set()
    for node in (node for path in paths for node in ast.walk(ast.parse(path.read_text()))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level
            imported |= {(node.module or "", one.name) for one in node.names}
        elif isinstance(node, ast.Import):
            imported |= {(one.name, "") for one in node.names}
    ours = {(module, name) for module, name in imported if module.partition(".")[0] == "projections"}
    own = {(module, name) for module, name in ours if module.startswith("projections.testing.oracle")}
    types = {("projections.language.keys", name) for name in ("Image", "ItemKey", "Value")}
    assert ours - own == {*types, ("projections.language.compiling", "Kind")}
    others = {module.partition(".")[0] for module, _ in imported - ours}
    assert others <= sys.stdlib_module_names - {"importlib"}, "nothing else that could import them"


def suites(name: str) -> Iterator[Any]:
    """The cases of the language that have an outcome, as (item, case)."""
    for suite in json.loads((LANGUAGE / "cases" / f"{name}.json").read_text()):
        for case in suite["cases"]:
            if not case.keys() & {"error", "errors"}:
                yield suite["given"], case


@pytest.mark.parametrize(
    ("item", "case"), [pytest.param(item, case, id=case["template"]) for item, case in suites("templates")]
)
def test_templates_mean_what_they_mean_to_the_engine(item: Item, case: Item) -> None:
    template, scope = Template.parse(case["template"]), Scope(item, {})
    if "bad" in case:
        with pytest.raises(Unfit):
            template.render(scope)
    elif case["result"] is None:
        with pytest.raises(Missing):
            template.render(scope)
    else:
        assert template.render(scope) == case["result"]


def test_patterns_mean_what_they_mean_to_the_engine() -> None:
    for item, case in suites("patterns"):
        assert pattern(case["pattern"])(Scope(item, {}).stored_value) is case["result"], case


def test_expressions_mean_what_they_mean_to_the_engine() -> None:
    for item, case in suites("expressions"):
        measure = Measure({"max": case["expression"]})
        if "bad" in case:
            with pytest.raises(Unfit):
                measure.amount(Scope(item, {}))
            continue
        amount = measure.amount(Scope(item, {}))
        found = plain(amount) if isinstance(amount, Decimal) else amount
        assert found == case.get("result", case.get("text")), case


def test_keys_are_read_as_the_engine_reads_them() -> None:
    for case in json.loads((LANGUAGE / "cases" / "keys.json").read_text()):
        if "error" in case:
            continue
        template = KeyTemplate(case["pattern"], "S", case.get("separator", "#"))
        for text, variables in case["matches"].items():
            wanted = None if variables is None else {name: {"S": value} for name, value in variables.items()}
            assert template.read(text) == wanted, (case, text)


def _written() -> list[Item]:
    """What the application of the design's example wrote."""
    post = {"title": "T", "status": "published", "publishedAt": "2024-05-06T07:08:09Z", "tags": ["x", "y"]}
    return [
        {"PK": "USER#1", "SK": "PROFILE", "name": "Ann", "avatar": "a.png"},
        {"PK": "USER#1", "SK": "POST#2024#p", **post},
        {"PK": "USER#2", "SK": "LIKE#POST#p"},
        {"PK": "USER#3", "SK": "LIKE#POST#p"},
        {"PK": "USER#3", "SK": "LIKE#POST#gone"},
        {"PK": "POST#p", "SK": "COMMENT#2025#c1", "userId": "1", "createdAt": "2025", "stars": 5, "text": "hi"},
        {"PK": "POST#p", "SK": "COMMENT#2026#c2", "userId": "9", "createdAt": "2026", "hidden": True, "text": "no"},
    ]


def test_the_example_of_the_design() -> None:
    """A copy, counters on it, a list, an index key made of a counter, tags counted from the copy, embedded names."""
    oracle = Oracle(load(LANGUAGE / "rules" / "design.yaml").document())
    items = oracle.expect({"main": [image(item) for item in _written()]}).items
    meta = {
        "PK": "POST#p",
        "SK": "METADATA",
        "EntityType": "PostMeta",
        "title": "T",
        "userId": "1",
        "status": "published",
        "publishedAt": "2024-05-06T07:08:09Z",
        "tags": ["x", "y"],
        "likeCount": 2,
        "commentCount": 1,
        "lastCommentAt": "2025",
        "praise": 1,
        "recentComments": [{"commentId": "c2", "text": "no"}, {"commentId": "c1", "userName": "Ann", "text": "hi"}],
        "GSI1PK": "PUBLISHED#2024-05",
        "GSI1SK": "2024-05-06T07:08:09Z",
        "GSI2PK": "LEADERBOARD#1",
        "GSI2SK": "SCORE#00000002#p",
    }
    assert items[ItemKey("main", "POST#p", "METADATA")] == image(meta)
    assert items[ItemKey("main", "TAG#x", "STATS")] == image({"PK": "TAG#x", "SK": "STATS", "posts": 1})
    comment = items[ItemKey("main", "POST#p", "COMMENT#2025#c1")]
    assert (comment["userName"], comment["userAvatar"]) == ({"S": "Ann"}, {"S": "a.png"})
    assert len(items) == len(_written()) + 3


def test_every_construct_loads_and_settles() -> None:
    oracle = Oracle(load(LANGUAGE / "rules" / "everything.yaml").document())
    order = {"pk": "c|1", "sk": "o|7", "createdAt": "2024-01-02", "total": 3, "lines": [{"sku": "s", "qty": 2}]}
    items = {
        "shop": [image(order), image({"pk": "c|1", "sk": "c", "name": "Ann", "mail": "a@x.org", "rank": 3})],
        "files": [image({"path": "file:f/g", "size": 1})],
    }
    found = oracle.expect(items)
    line = {"pk": "p|s", "sk": "l|7", "customer": "1", "qty": "2"}
    assert found.items[ItemKey("shop", "p|s", "l|7")] == image(line)
    assert found.items[ItemKey("shop", "c|1", "o|7")] == image({**order, "customerName": "Ann"})
    mail = found.items[ItemKey("shop", "m|a@x.org", "m")]
    assert (mail["kind"], mail["name"], mail["lastTotal"]) == ({"S": "mail"}, {"S": "Ann"}, {"N": "3"})
    assert "firstOrders" not in found.items[ItemKey("shop", "c|1", "c")], "a held rule publishes nothing"


def test_a_difference_names_the_rule_and_ignores_guards() -> None:
    oracle = Oracle(load(LANGUAGE / "rules" / "design.yaml").document())
    due = oracle.expect({"main": [image(item) for item in _written()]})
    held = {key: dict(item) for key, item in due.items.items()}
    meta, tag = ItemKey("main", "POST#p", "METADATA"), ItemKey("main", "TAG#x", "STATS")
    held[meta] |= {"likeCount": {"N": "2.0"}, "praise": {"N": "9"}, "~engagement": {"M": {}}}
    del held[tag]
    stray = image({"PK": "TAG#z", "SK": "STATS", "posts": 1, "~tagCounts": {"n": 0}, "~": "of a rule"})
    now = {"main": [*held.values(), stray]}
    assert oracle.differences(now, due) == [
        Difference("main", "main|POST#p|METADATA", "praise", {"N": "9"}, {"N": "1"}, "discussion"),
        Difference("main", "main|TAG#x|STATS", None, None, due.items[tag], "tagCounts"),
        Difference(
            "main", "main|TAG#z|STATS", None, image({"PK": "TAG#z", "SK": "STATS", "posts": 1}), None, "tagCounts"
        ),
    ]
    assert oracle.compare(now) == oracle.differences(now, due)


CREATED = """
table: { key: [PK, SK] }
entities:
  User: { key: { PK: "U#{user}", SK: U } }
  Mail: { key: { PK: "M#{mail}", SK: M }, match: { kind: mail } }
  Tag: { key: { PK: "T#{tag}", SK: T }, derived: true }
  Order: { key: { PK: "M#{mail}", SK: M }, match: { kind: order } }
projections:
  mails: { from: User, copy: { into: Mail, attributes: [name] } }
  tags: { from: User, each: { tag: tags }, aggregate: { into: Tag, set: { users: count } } }
  orders: { from: Order, bind: { tag: "{city}" }, aggregate: { into: Tag, set: { orders: count } } }
"""
MARK = {"~": "of a rule"}


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ([{"PK": "M#m", "SK": "M", "kind": "mail", "name": "A", **MARK}], []),
        ([{"PK": "T#t", "SK": "T", "users": 1, "orders": 0, "~tags": {"n": 0}, **MARK, "~orders": {"n": 0}}], []),
        (
            [{"PK": "M#m", "SK": "M", "kind": "mail", "name": "A", "note": "mine", "~mails": {"n": 0}, **MARK}],
            [{"PK": "M#m", "SK": "M", "kind": "mail", "note": "mine"}],
        ),
        (
            [{"PK": "T#t", "SK": "T", "users": 0, "orders": 7, "note": "mine", "~tags": {"n": 0}, **MARK}],
            [{"PK": "T#t", "SK": "T", "users": 0, "orders": 0, "note": "mine"}],
        ),
        (
            [{"PK": "T#t", "SK": "T", "users": 0, "orders": 7, "~tags": {"n": 0}}],
            [{"PK": "T#t", "SK": "T", "users": 0, "orders": 0}],
        ),
        (
            [{"PK": "T#t", "SK": "T", "users": 0, "~tags": "no guard", "~orders": {"n": 0}, "~": {}}],
            [{"PK": "T#t", "SK": "T", "users": 0, "orders": 0}],
        ),
        (
            [
                {"PK": "U#1", "SK": "U", "mail": "m", "name": "A"},
                {"PK": "M#m", "SK": "M", "name": "B", "~mails": {"n": 0}, **MARK},
            ],
            [{"PK": "U#1", "SK": "U", "mail": "m", "name": "A"}, {"PK": "M#m", "SK": "M", "kind": "mail", "name": "A"}],
        ),
        (
            [
                {"PK": "U#1", "SK": "U", "mail": "m", "name": "A"},
                {"PK": "M#m", "SK": "M", "kind": "order", "city": "b", "~mails": {"n": 0}, **MARK},
            ],
            [
                {"PK": "U#1", "SK": "U", "mail": "m", "name": "A"},
                {"PK": "M#m", "SK": "M", "kind": "order", "city": "b"},
                {"PK": "T#b", "SK": "T", "users": 0, "orders": 1},
            ],
        ),
    ],
    ids=[
        "a created copy without its source is deleted",
        "a created derived item without contributions is deleted",
        "a created copy with an attribute of the application loses only the rule's attributes",
        "a created derived item with an attribute of the application stays without contributions, with zeros",
        "an adopted item stays when the last contribution is gone",
        "malformed guards are ignored",
        "a created item that lacks its match attribute is restored",
        "a created item that became another kind is the application's",
    ],
)
def test_item_of_created_entity(given: list[Item], then: list[Item]) -> None:
    oracle = Oracle(loads(CREATED, "rules.yaml").document())
    found = oracle.expect({"main": [image(item) for item in given]}).items
    assert found == oracle.read({"main": [image(item) for item in then]})


def test_guard_copied_from_another_item_marks_nothing() -> None:
    oracle = Oracle(loads(CREATED, "rules.yaml").document())
    items = {"main": [image({"PK": "M#m", "SK": "M", "kind": "mail", "name": "A", "~mails": {"n": 0}, **MARK})]}
    assert oracle.expect(items).items == {}
    assert oracle.expect(items, genuine=lambda key, name, guard: False).items == oracle.read(items)


def test_numbers_beyond_the_limits_of_a_sum_contribute_nothing() -> None:
    rules = {
        "table": {"key": ["PK", "SK"]},
        "entities": {"A": {"key": {"PK": "A#{a}", "SK": "{s}"}}, "B": {"key": {"PK": "B#{a}", "SK": "B"}}},
        "projections": {"r": {"from": "A", "aggregate": {"into": "B", "set": {"n": "count", "x": "sum(x)"}}}},
    }
    oracle = Oracle(loads(json.dumps(rules)).document())
    added = ("999999999999999999.0000000001", "0.0000000001", "1e18", "1e-11", "1e30")
    items = [{"PK": "A#1", "SK": str(number), "x": Decimal(amount)} for number, amount in enumerate(added)]
    due = oracle.expect({"main": [image(item) for item in (*items, {"PK": "B#1", "SK": "B"})]})
    target = {"PK": "B#1", "SK": "B", "n": 2, "x": Decimal("999999999999999999.0000000002")}
    assert due.items[ItemKey("main", "B#1", "B")] == image(target)
    assert due.incomparable == frozenset()


def test_sets_are_compared_without_order() -> None:
    assert normal({"NS": ["1", "2.0"]}) == normal({"NS": ["2", "1.0"]})
    assert normal({"SS": ["1"]}) != normal({"NS": ["1"]})

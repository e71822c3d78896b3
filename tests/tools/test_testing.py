"""The pytest plugin for tests of rules, run by pytest itself."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from projections.errors import RulesError, UsageError
from projections.testing.cases import read_cases
from projections.testing.plugin import rules_of
from projections.testing.scenario import Scenario

pytest_plugins = ["pytester"]

PLUGIN = "projections.testing.plugin"
ROOT = Path(__file__).parents[2]

RULES = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK]}, ttl: ttl}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
  Meta: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#POST#{postId}"}, expires: true}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI1PK: "AUTHOR#{userId}"}}
  Month: {key: {PK: "MONTH#{month}", SK: STATS}, derived: true}
projections:
  byId: {from: Post, copy: {into: Meta, attributes: [title, tags]}}
  likes: {from: Like, expired: keep, aggregate: {into: Meta, set: {likeCount: count}}}
  months: {from: Post, bind: {month: "{at|date(%Y-%m)}"}, aggregate: {into: Month, set: {posts: count}}}
  author: {from: User, embed: {into: Comment, match: {userId: "{userId}"}, attributes: {userName: name}}}
"""
POST = '{"PK": "USER#a", "SK": "POST#1", "title": "T"}'
META = '{"PK": "POST#1", "SK": "METADATA", "title": "T", "likeCount": 0}'

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest on files in a directory that holds RULES, with our plugin and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for variable in ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS"):  # with the first two, pytest's summary is longer
        monkeypatch.delenv(variable, raising=False)
    (pytester.path / "rules.yaml").write_text(RULES)

    def run(*arguments: str, **files: str) -> pytest.RunResult:
        for name, text in files.items():
            suffix = ".projections.yaml" if name.endswith("cases") else ".py"
            (pytester.path / f"{name}{suffix}").write_text(text)
        return pytester.runpytest_inprocess("-p", PLUGIN, "-p", "no:cacheprovider", *arguments)

    return run


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "rules.yaml").write_text(RULES)
    return Scenario(rules_of("rules.yaml", tmp_path))


def told(result: pytest.RunResult) -> str:
    return "\n".join(result.outlines)


def test_given_when_then(run: Run) -> None:
    """Counters count, embeds reach children through the task queue, what is gone is gone."""
    result = run(
        test_rules=f"""
def test_counts(projections):
    projections.given({POST})
    projections.put({{"PK": "USER#b", "SK": "LIKE#POST#1"}})
    projections.put({{"PK": "USER#c", "SK": "LIKE#POST#1"}})
    projections.delete({{"PK": "USER#b", "SK": "LIKE#POST#1"}})
    projections.update({{"PK": "USER#a", "SK": "POST#1"}}, {{"title": "New", "tags": {{"x", "y"}}}})
    projections.then({{"PK": "POST#1", "SK": "METADATA", "title": "New", "tags": {{"y", "x"}}, "likeCount": 1}})
    assert projections.item(["POST#1", "METADATA"])["likeCount"] == 1
    assert [item["SK"] for item in projections.items()] == ["METADATA", "POST#1", "LIKE#POST#1"]

def test_embeds(projections):
    comment = {{"PK": "POST#1", "SK": "COMMENT#1", "userId": "a", "GSI1PK": "AUTHOR#a"}}
    projections.given({{"PK": "USER#a", "SK": "PROFILE", "name": "Ann"}}, comment)
    projections.put({{"PK": "USER#a", "SK": "PROFILE", "name": "Anna"}})
    projections.then({{**comment, "userName": "Anna"}})

def test_gone(projections):
    projections.given({POST}).delete(["USER#a", "POST#1"])
    projections.then(gone=[["POST#1", "METADATA"]])
"""
    )
    result.assert_outcomes(passed=3)


def test_a_difference_names_item_attribute_values_and_rule(run: Run) -> None:
    result = run(
        test_rules=f"""
def test_counts(projections):
    projections.given({POST}, {{"PK": "USER#a", "SK": "LIKES#1"}})
    projections.then({{"PK": "POST#1", "SK": "METADATA", "title": "T", "likeCount": 1}})

def test_missing(projections):
    projections.given({POST}).delete(["USER#a", "POST#1"])
    projections.then({META})

def test_unexpected(projections):
    projections.given({{**{POST}, "at": "2025-05-01"}}).then({META})
"""
    )
    result.assert_outcomes(failed=3)
    text = told(result)
    assert "POST#1 · METADATA  (Meta)" in text
    assert re.search(r"- likeCount: 1\nE? +\+ likeCount: 0    rule likes: count of Like", text)
    assert "Differences: - expected, + found" in text
    assert "(these items belong to no entity, so no rule reads them: USER#a · LIKES#1)" in text
    assert "POST#1 · METADATA  (Meta) is missing, rule byId should create it:" in text
    assert "MONTH#2025-05 · STATS  (Month) exists, created by rule months, but should not:" in text
    assert "scenario.py" not in text, "a failure points at the test, not into the plugin"


def test_what_rules_refuse_fails_a_test_that_does_not_expect_it(run: Run) -> None:
    written = f'projections.given({{**{POST}, "at": "yesterday"}})'
    result = run(
        test_rules=f"""
def test_unnoticed(projections):
    {written}.then({META})

def test_expected(projections):
    {written}.then({META}, quarantined=[{{"rule": "months", "key": ["USER#a", "POST#1"], "reason": "ISO 8601"}}])
    assert [refused["rule"] for refused in projections.quarantined] == ["months"]

def test_whatever(projections):
    {written}.then({META}, quarantined="any")

def test_in_vain(projections):
    projections.given({POST}).then({META}, quarantined=[{{"rule": "months"}}])
"""
    )
    result.assert_outcomes(passed=2, failed=2)
    assert "rule months rejected USER#a · POST#1: template" in told(result)
    assert "no rejection matches {'rule': 'months'}" in told(result)


def test_case_files_are_tests(run: Run) -> None:
    result = run(
        "-v",
        social_cases="""
rules: rules.yaml
cases:
  - about: likes stay when they expire
    given: [{PK: USER#a, SK: "POST#1", title: T}]
    when:
      - put: {PK: USER#b, SK: "LIKE#POST#1", ttl: 1}
      - put: {PK: USER#c, SK: "LIKE#POST#1", ttl: 1}
      - expire: {PK: USER#b, SK: "LIKE#POST#1"}
      - delete: [USER#c, "LIKE#POST#1"]
      - update: {PK: USER#a, SK: "POST#1", tags: {SS: [x]}}
        remove: [title]
        add: {edits: 1.10}
    then: [{PK: "POST#1", SK: METADATA, tags: {SS: [x]}, likeCount: 1}]
  - about: nobody can like twice
    given: [{PK: USER#a, SK: "POST#1"}]
    when: [{put: {PK: USER#b, SK: "LIKE#POST#1"}}, {put: {PK: USER#b, SK: "LIKE#POST#1", again: true}}]
    then: [{PK: "POST#1", SK: METADATA, likeCount: 2}]
""",
    )
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["social_cases.projections.yaml::likes stay when they expire PASSED*"])
    result.stdout.fnmatch_lines(["*social_cases.projections.yaml:15: nobody can like twice"])
    assert "- likeCount: 2\n  + likeCount: 1    rule likes: count of Like" in told(result)
    assert "Traceback" not in told(result)


ONCE = """
table: {key: [PK, SK]}
entities:
  Shop: {key: {PK: "SHOP#{shop}", SK: INFO}}
  Sale: {key: {PK: "SHOP#{shop}", SK: "SALE#{sale}"}}
projections:
  rate: {from: Shop, embed: {into: Sale, match: {shop: "{shop}"}, attributes: {rate: rate}}}
  paid: {from: Sale, compute: {set: {paid: rate}, once: true}}
"""
STEPS = """
- put: {PK: SHOP#1, SK: INFO, rate: 400}
- put: {PK: SHOP#1, SK: "SALE#1"}
- settle
- update: {PK: SHOP#1, SK: INFO, rate: 500}
"""


def test_functions_run_after_the_last_step_and_where_a_case_settles(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "rules.yaml").write_text(ONCE)
    together = STEPS.replace("- settle\n", "")
    text = "cases:\n" + "".join(
        f"- about: {about}\n  partial: true\n"
        f'  then: [{{PK: SHOP#1, SK: "SALE#1", rate: 500, paid: {paid}}}]\n'
        f"  when:{textwrap.indent(steps, '    ')}"
        for about, steps, paid in (("settled", STEPS, 400), ("together", together, 500))
    )
    run(suite_cases=text).assert_outcomes(passed=2)


def test_mistakes_in_case_files_are_told_with_their_places(run: Run) -> None:
    result = run(
        bad_cases="""
cases:
  - about: one
    when: [{putt: {PK: a}}, {put: {}, delete: {}}, {insert: {}}, {delete: USER#a}]
    thn: []
  - about: one
    given: {PK: a}
""",
        empty_cases="rules: rules.yaml\n",
    )
    result.assert_outcomes(errors=2)
    text = told(result)
    for mistake in (
        'bad_cases.projections.yaml:4:13: cases[0].when[0].putt: unknown (did you mean "put"?)',
        ":4:29: cases[0].when[1]: a step is one of put, update, delete, expire; this has put and delete",
        ':4:53: cases[0].when[2].insert: unknown (did you mean "put"?)',
        ":4:75: cases[0].when[3].delete: expected a key, as `{PK: …, SK: …}`",
        'bad_cases.projections.yaml:5:5: cases[0].thn: unknown (did you mean "then"?)',
        "bad_cases.projections.yaml:6:12: cases[1].about: case 1 has the same sentence; use another one",
        "bad_cases.projections.yaml:7:12: cases[1].given: expected a list, or lists by table",
        "empty_cases.projections.yaml:1:1: (top): nothing to test: give `cases`, or `simulate: 200`",
    ):
        assert mistake in text, text


def test_which_rules_are_meant(run: Run, pytester: pytest.Pytester) -> None:
    """A marker before the configuration, that before rules.yaml."""
    for name in ("marked", "configured"):
        (pytester.path / f"{name}.yaml").write_text(RULES.replace("likeCount", name))
    text = f"""
import pytest

def attribute(projections):
    projections.given({POST})
    return [name for name in projections.item(["POST#1", "METADATA"]) if name not in ("PK", "SK", "title")]

def test_default(projections):
    assert attribute(projections) == ["EXPECTED"]

@pytest.mark.projections(rules="marked.yaml")
def test_marked(projections):
    assert attribute(projections) == ["marked"]

@pytest.mark.projections("missing.yaml")
def test_missing(projections):
    pass
"""
    run(test_rules=text.replace("EXPECTED", "likeCount")).assert_outcomes(passed=2, errors=1)
    (pytester.path / "pytest.ini").write_text("[pytest]\nprojections_rules = configured.yaml\n")
    result = run("--strict-markers", test_rules=text.replace("EXPECTED", "configured"))
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*no rule file 'missing.yaml': *missing.yaml does not exist"])


def test_broken_rules_are_told_without_a_traceback(run: Run, pytester: pytest.Pytester) -> None:
    (pytester.path / "rules.yaml").write_text(RULES.replace("from: Like", "from: Likes"))
    result = run(test_rules="def test(projections): pass", a_cases="{cases: [{about: x}]}")
    result.assert_outcomes(failed=1, errors=1)
    assert told(result).count('rules.yaml:12:17: projections.likes.from: unknown entity "Likes"') == 2
    assert "exception" not in told(result)


def test_redelivery_changes_nothing(run: Run, pytester: pytest.Pytester) -> None:
    """By marker, configuration and case file; that it happens at all, the number of deliveries says."""
    text = f"""
import pytest

def deliveries(projections):
    seen = []
    stream = projections._local._functions.stream
    projections._local._functions.stream = lambda event: (seen.append(event), stream(event))[1]
    projections.given({POST}).then({META})
    return len(seen)

def test_plain(projections):
    assert deliveries(projections) == PLAIN

@pytest.mark.projections(redeliver=True)
def test_marked(projections):
    assert deliveries(projections) > 6
"""
    once = run(test_rules=text.replace("PLAIN", "3"))
    once.assert_outcomes(passed=2)
    again = text.replace("deliveries(projections) == PLAIN", "deliveries(projections) > 6")
    (pytester.path / "pytest.ini").write_text("[pytest]\nprojections_redeliver = true\n")
    run(test_rules=again).assert_outcomes(passed=2)


@pytest.mark.deep
def test_the_simulation_as_an_assertion(run: Run, pytester: pytest.Pytester) -> None:
    """Rules that are right pass; an engine that is wrong fails with seed, problems, trace and the command to replay."""
    (pytester.path / "rules.yaml").write_text((ROOT / "tests/simulation/rules/copies.yaml").read_text())
    text = "def test(projections):\n    projections.assert_simulation(histories=20, seed=7)\n"
    cases = "simulate: 10\n"
    run(test_rules=text, a_cases=cases).assert_outcomes(passed=2)
    broken = """
import pytest
from projections.engine import copies

@pytest.fixture(autouse=True)
def wrong(monkeypatch):
    monkeypatch.setattr(copies, "copies_of", lambda *arguments: {})
"""
    result = run(conftest=broken, test_rules=text)
    result.assert_outcomes(failed=1, passed=1)  # the fixture that breaks the engine is not for case files
    result.stdout.fnmatch_lines(
        [
            "*Seed * failed (history * of 20):",
            "*Trace*",
            "*To repeat it: projections simulate --rules rules.yaml --seed * --histories 1 --trace",
        ]
    )


def test_a_run_without_our_tests_loads_nothing_but_the_plugin() -> None:
    script = (
        f"import sys, {PLUGIN}\n"
        "heavy = {'boto3', 'pydantic', 'yaml', 'click', 'projections.engine', 'projections.language'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_the_entry_point_is_the_module_that_is_named() -> None:
    """So that `-p` with the module's name and the entry point are one plugin and not two."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
    assert any(package.startswith("pytest") for package in project["optional-dependencies"]["test"])


def test_wrong_use_is_told(scenario: Scenario) -> None:
    for wrong, message in (
        (lambda: scenario.put({"PK": "x"}), r"put: the key is PK \(text\) and SK \(text\), this has PK \"x\", no SK"),
        (lambda: scenario.put({"PK": "x", "SK": 1}), r"put: the key is .* this has PK \"x\", SK 1"),
        (lambda: scenario.put({"PK": "x", "SK": "y", "a": object()}), "put: a: object cannot be stored in DynamoDB"),
        (lambda: scenario.delete(["x"]), "delete: the key is .* this has 1 parts"),
        (lambda: scenario.expire(["x", "y"]), "expire x · y: there is no such item"),
        (
            lambda: scenario.put({"PK": "x", "SK": "y"}, table="other"),
            "put: the rules have no table 'other'; they have main",
        ),
        (lambda: scenario.update(["x", "y"], add={"n": "text"}), "update x · y: "),
        (lambda: scenario.do({"remove": {"PK": "x", "SK": "y"}}), "do: remove: .* to delete an item, write `delete`"),
        (lambda: scenario.do({"putt": {}}), r'do: putt: unknown \(did you mean "put"\?\)'),
        (lambda: scenario.do({}), "do: a step is one of put, update, delete, expire; this has none of them"),
        (lambda: scenario.do({"delete": "x"}), "do: delete: expected a key, as `{PK: …, SK: …}`"),
        (lambda: scenario.then({"PK": "x", "SK": "y"}, {"PK": "x", "SK": "y"}), "then: x · y is listed twice"),
    ):
        with pytest.raises(UsageError, match=message):
            wrong()  # type: ignore[no-untyped-call]


def test_update_sets_the_attributes_beside_the_key(scenario: Scenario) -> None:
    """As the same step in a case file does. They were dropped without a word."""
    scenario.given({"PK": "x", "SK": "y", "kept": 1, "category": "a"})
    scenario.update({"PK": "x", "SK": "y", "category": "b", "tags": {"p"}}, {"more": 2}, remove=["kept"])
    scenario.update({"PK": {"S": "x"}, "SK": {"S": "y"}, "wire": {"M": {}}}, add={"more": 1})
    scenario.update(["x", "z"], {"category": "c"})
    assert scenario.item(["x", "y"]) == {
        "PK": "x", "SK": "y", "category": "b", "tags": {"p"}, "more": 3, "wire": {}
    }  # fmt: skip
    assert scenario.item(["x", "z"]) == {"PK": "x", "SK": "z", "category": "c"}
    item = {"PK": "x", "SK": "y", "category": "b", "more": 3, "tags": {"p"}}
    scenario.update(item, {"category": "c"}, remove=["tags"], add={"more": 1})
    assert scenario.item(["x", "y"]) == {"PK": "x", "SK": "y", "category": "c", "more": 4, "wire": {}}


def test_values_are_compared_as_dynamodb_has_them(scenario: Scenario) -> None:
    """Numbers by value, sets without order, binary, nested; an item may be in wire form too."""
    written = {"n": 1.5, "d": Decimal("0.10"), "s": {2, 1}, "b": b"x", "m": {"l": [None, True, {"SS": ["a"]}]}}
    scenario.put({"PK": "x", "SK": "1", **written})
    scenario.put({"PK": {"S": "x"}, "SK": {"S": "2"}, "n": {"N": "1.0"}})
    scenario.then(
        {"PK": "x", "SK": "1", "n": Decimal("1.50"), "d": 0.1, "s": {1, 2}, "b": b"x", "m": {"l": [None, True, {"a"}]}},
        {"PK": "x", "SK": "2", "n": 1},
    )
    with pytest.raises(AssertionError, match=r'- n: "1"\n  \+ n: 1'):
        scenario.then({"PK": "x", "SK": "2", "n": "1"})


def test_a_list_or_map_that_differs_shows_its_parts(scenario: Scenario) -> None:
    scenario.put({"PK": "x", "SK": "y", "list": [{"a": 1, "b": 2}, "same", 3], "map": {"p": {"q": [1]}, "r": 1}})
    with pytest.raises(AssertionError) as failure:
        scenario.then({"PK": "x", "SK": "y", "list": [{"a": 1, "b": 3}, "same"], "map": {"p": {"q": [2]}, "s": 1}})
    lines = str(failure.value).split("\n")
    assert lines[3:-1] == [
        *("  - list[0].b: 3", "  + list[0].b: 2", "  + list[2]: 3", "  - map.p.q[0]: 2", "  + map.p.q[0]: 1"),
        *("  + map.r: 1", "  - map.s: 1"),
    ]


def test_partial_compares_the_attributes_that_are_named_and_no_other_items(scenario: Scenario) -> None:
    scenario.given({"PK": "USER#a", "SK": "POST#1", "title": "T", "at": "2025-05-01"})
    scenario.then({"PK": "POST#1", "SK": "METADATA", "likeCount": 0}, partial=True)
    scenario.then(partial=True)
    for item in ({"likeCount": 1}, {"likeCount": 0, "other": 1}):
        with pytest.raises(AssertionError, match=r"- (likeCount|other): 1"):
            scenario.then({"PK": "POST#1", "SK": "METADATA", **item}, partial=True)
    with pytest.raises(AssertionError, match="exists, created by rule byId, but should not"):
        scenario.then(gone=[["POST#1", "METADATA"]], partial=True)
    with pytest.raises(AssertionError, match="is missing"):
        scenario.then({"PK": "POST#2", "SK": "METADATA"}, partial=True)


def test_cases_may_be_partial(run: Run) -> None:
    result = run(
        a_cases=f"""
cases:
  - about: partial
    when: [{{put: {POST}}}]
    partial: true
    then: [{{PK: "POST#1", SK: METADATA, likeCount: 0}}]
  - about: of another value
    when: [{{put: {POST}}}]
    partial: true
    then: [{{PK: "POST#1", SK: METADATA, likeCount: 1}}]
"""
    )
    result.assert_outcomes(passed=1, failed=1)
    assert "- likeCount: 1\n  + likeCount: 0    rule likes: count of Like" in told(result)
    result = run(a_cases="cases: [{about: x, partial: 1}]")
    assert "cases[0].partial: expected true or false" in told(result)


def test_a_push_of_more_than_a_page_is_finished_by_the_worker(scenario: Scenario) -> None:
    comments = [
        {"PK": "POST#1", "SK": f"COMMENT#{number:04}", "userId": "a", "GSI1PK": "AUTHOR#a"} for number in range(1100)
    ]
    scenario.given(*comments)
    scenario.put({"PK": "USER#a", "SK": "PROFILE", "name": "Ann"})
    scenario.then(*({**comment, "userName": "Ann"} for comment in comments))


def test_rules_in_python_and_of_several_tables(tmp_path: Path) -> None:
    rules = {
        "tables": {"orders": {"key": ["id"]}, "customers": {"key": {"number": "N"}}},
        "entities": {
            "Order": {"table": "orders", "key": {"id": "{order}"}},
            "Customer": {"table": "customers", "key": {"number": "{customer}"}},
        },
        "projections": {"orders": {"from": "Order", "aggregate": {"into": "Customer", "set": {"orders": "count"}}}},
    }
    scenario = Scenario(rules_of(rules, tmp_path))
    scenario.given({"number": 7}, table="customers")
    scenario.put({"id": "o", "customer": 7}, table="orders")
    scenario.then({"number": 7, "orders": 1}, table="customers")
    with pytest.raises(AssertionError, match=r"customers: 7  \(Customer\)"):
        scenario.then_all({"customers": [{"number": 7, "orders": 2}], "orders": [{"id": "o", "customer": 7}]})
    with pytest.raises(UsageError, match="put: the rules have several tables"):
        scenario.put({"id": "p"})
    file = tmp_path / "x.projections.yaml"
    file.write_text(
        "cases: [{about: tables, given: {customers: [{number: 7}]}, when: [{table: orders, put: {id: o, customer: 7}}],"
        " then: {customers: [{number: 7, orders: 1}]}}]"
    )
    read_cases(file).cases[0].play(Scenario(rules_of(rules, tmp_path)))


def test_rules_with_mistakes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="rules in the test"):
        rules_of({"table": {"key": ["PK"]}}, tmp_path)
    with pytest.raises(UsageError, match="no rule file"):
        rules_of(None, tmp_path)
    assert rules_of("social", tmp_path).path is not None

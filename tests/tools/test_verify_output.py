"""What `verify` prints: only what differs, in words of the rule file, and a line for each step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import projections
from projections.cli.verify import Progress, difference, print_table
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations.verify.drift import ENTRY, GROUP, ITEM, SOURCE, Drift
from projections.operations.verify.repair import verified
from projections.operations.verify.showing import both
from projections.stores.memory import MemoryStore
from projections.testing import Scenario

if TYPE_CHECKING:
    from projections.aws.tables import Live

RULES = """
table: {key: [PK, SK]}
entities:
  Harbour: {key: {PK: "HARBOUR#{harbour}", SK: INFO}}
  Visit: {key: {PK: "HARBOUR#{harbour}", SK: "VISIT#{visit}"}}
projections:
  names: {from: Harbour, embed: {into: Visit, match: {harbour: "{harbour}"}, attributes: {harbourName: name}}}
  arrivals: {from: Visit, top: {into: Harbour, as: arrivals, by: at, limit: 3, attributes: [harbourName]}}
"""


def entry(actual: Any, expected: Any) -> str:
    return difference(
        Drift(
            "entry stale",
            "arrivals",
            "main|A|B",
            actual=actual,
            expected=expected,
            sides={ENTRY: actual, SOURCE: expected},
            wrong=(ENTRY,),
        )
    )


def test_a_difference_of_contributions_shows_only_the_parts_that_differ() -> None:
    assert entry({"contributions": 1, "nights": 3}, {"contributions": 1, "nights": 5}) == (
        'is {"nights": 3}, should be {"nights": 5}'
    )
    assert entry({"contributions": 1}, {"contributions": 1, "n": 2}) == 'is {}, should be {"n": 2}'


def test_a_difference_in_the_attributes_of_a_member_shows_no_hash() -> None:
    old, new = ({"contributions": 1, "members": [{"hash": one * 16, "value": "2026-05-01"}]} for one in "ab")
    assert entry(old, new) == (
        'the attributes that the ledger keeps differ from the source item\'s: {"members": ["2026-05-01"]}'
    )
    new["members"] = [{"hash": "b" * 16, "value": "2026-05-02"}]
    assert entry(old, new) == 'is {"members": ["2026-05-01"]}, should be {"members": ["2026-05-02"]}'


def test_one_sided_contributions_show_no_hash_and_values_of_the_application_are_whole() -> None:
    new = {"contributions": 1, "members": [{"hash": "a" * 16, "value": 3}]}
    assert entry(None, new) == 'is absent, should be {"contributions": 1, "members": [3]}'
    files = [[{"hash": one, "name": "a"}] for one in "ab"]
    copy = Drift(
        "copy stale", "r", "main|A|B", "files", *files, sides={ITEM: files[0], SOURCE: files[1]}, wrong=(ITEM,)
    )
    assert difference(copy) == 'is [{"hash": "a", "name": "a"}], should be [{"hash": "b", "name": "a"}]'


def test_versions_in_guards_are_printed_as_explain_does() -> None:
    versions = {ITEM: {"at": "0000.000000000000002"}, GROUP: {"at": "0001.000000000000001"}}
    assert difference(Drift("guard", "r", "main|A|B", "~r", sides=versions)) == (
        "item: at change 2 of its group, group: at change 1 of its group of generation 1; source items not compared"
    )


def guard(actual: Any, expected: Any) -> str:
    sides = {ITEM: actual, SOURCE: expected}
    return difference(Drift("guard", "r", "main|A|B", "~r", actual, expected, sides=sides, wrong=(ITEM,)))


def test_a_guard_is_printed_with_the_field_that_is_wrong() -> None:
    assert guard(None, {"by": "main|C|D"}) == "is absent, should be of source C · D"
    assert guard({"by": "main|A|D"}, {"by": "main|C|D"}) == "is of source A · D, should be of source C · D"
    assert guard("invalid", {"at": "2026/12"}) == "is invalid, should be at record 12"
    assert guard("invalid", None) == "is invalid, should be absent"
    assert guard({"n": 1}, {"n": 2}) == "is of 1 contribution, should be of 2 contributions"


def test_values_that_differ_are_never_printed_as_the_same_text() -> None:
    assert guard({"at": "2026/12"}, {"at": "2025/12"}) == 'is {"at": "2026/12"}, should be {"at": "2025/12"}'
    assert guard({"by": "a|A|B"}, {"by": "b|A|B"}) == 'is {"by": "a|A|B"}, should be {"by": "b|A|B"}'
    long = "x" * 500
    assert entry({"n": long + "a"}, {"n": long + "b"}) == (f'is …{"x" * 20}a"}}, should be …{"x" * 20}b"}}')
    assert entry({"n": "a  b"}, {"n": "a b"}) == 'is {"n": "a  b"}, should be {"n": "a b"}'
    assert both({"NULL": True}, None) == ({"NULL": True}, None)
    assert both({"BOOL": True}, {"N": "1"}) == (True, 1)
    alike = {"SS": ["a"]}, {"M": {"SS": {"L": [{"S": "a"}]}}}
    assert both(*alike) == alike


def test_a_repair_prints_its_steps_and_asks_to_be_repeated_for_values_that_follow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program.from_document(loads(RULES).canonical())
    scenario = Scenario(projections.loads(RULES))
    scenario.given({"PK": "HARBOUR#oban", "SK": "INFO", "name": "Oban"}).settle()
    store = scenario.store  # the functions never process this visit, nor the changes of a repair
    store.seed("main", {"PK": {"S": "HARBOUR#oban"}, "SK": {"S": "VISIT#1"}, "at": {"S": "2026-05-01"}})

    progress = Progress(cast("Live", SimpleNamespace(sizes={})), quiet=False)
    with verified(program, store, repair=True, patience=0.01, report=progress.reading) as done:
        print_table(done.verification, done.repair, done.withheld, None, done.found)
    captured = capsys.readouterr()
    steps = captured.err.splitlines()
    assert "waiting 0.01 s …" in steps
    assert "repairing …" in steps
    assert "2 differences found, 1 left." in captured.out
    assert captured.out.endswith(
        "Values that follow from repaired ones are repaired next: run the same command again.\n"
    )


COPIED = """
table: {key: [PK, SK]}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Resident: {key: {PK: "CITY#{city}", SK: "USER#{userId}"}, derived: true}
  City: {key: {PK: "CITY#{city}", SK: INFO}, derived: true}
projections:
  residents: {from: User, copy: {into: Resident, attributes: [name]}}
  population: {from: Resident, aggregate: {into: City, set: {population: count}}}
"""
FOLLOWS = "Values that follow from repaired ones are repaired next: run the same command again.\n"


@pytest.mark.parametrize(
    ("rules", "follows"),
    [(COPIED, True), (COPIED.replace("from: Resident", "from: User"), False)],
    ids=["a chain", "no chain"],
)
def test_a_repair_that_left_no_difference_asks_to_be_repeated_if_a_rule_reads_what_it_wrote(
    capsys: pytest.CaptureFixture[str], rules: str, follows: bool
) -> None:
    program = Program.from_document(loads(rules).canonical())
    scenario = Scenario(projections.loads(rules))
    scenario.given({"PK": "USER#ann", "SK": "PROFILE", "city": "Oban"}).settle()
    scenario.store.seed("main", {"PK": {"S": "USER#bo"}, "SK": {"S": "PROFILE"}, "city": {"S": "Oban"}})
    with verified(program, scenario.store, repair=True, patience=0.01) as done:
        print_table(done.verification, done.repair, done.withheld, None, done.found)
    out = capsys.readouterr().out
    assert f"{1 if follows else 2} difference{'' if follows else 's'} found, 0 left." in out
    assert out.endswith(FOLLOWS) == follows


def test_before_deployment_a_rule_is_compared_only_if_what_it_reads_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program.from_document(loads(COPIED).canonical())
    store = MemoryStore({**program.tables, "ledger": LEDGER_SCHEMA})
    store.seed("main", {"PK": {"S": "USER#ann"}, "SK": {"S": "PROFILE"}, "city": {"S": "Oban"}, "name": {"S": "Ann"}})

    def said() -> tuple[list[tuple[str, str]], dict[str, list[str]], str]:
        with verified(program, store, ledger=False, patience=0.0) as done:
            print_table(done.verification, None, [], None, done.found)
            found = [(drift.rule, drift.kind) for drift in done.verification.drifts()]
            return found, done.verification.uncompared, capsys.readouterr().out

    store.seed("main", {"PK": {"S": "CITY#Oban"}, "SK": {"S": "INFO"}, "population": {"N": "1"}})
    found, uncompared, out = said()
    assert (found, uncompared) == ([("residents", "copy missing")], {"population": ["residents"]})
    assert "population was not compared: it reads what residents would write, and these values are not in the" in out
    store.seed("main", {"PK": {"S": "CITY#Oban"}, "SK": {"S": "USER#ann"}, "name": {"S": "Ann"}})
    assert said()[:2] == ([], {})
    store.seed("main", {"PK": {"S": "CITY#Oban"}, "SK": {"S": "INFO"}, "population": {"N": "2"}})
    assert said()[:2] == ([("population", "value")], {})


def test_no_repair_is_promised_for_the_values_of_a_rule_in_shadow_mode(capsys: pytest.CaptureFixture[str]) -> None:
    rules = RULES.replace("arrivals: {from: Visit,", "arrivals: {from: Visit, mode: shadow,")
    program = Program.from_document(loads(rules).canonical())
    scenario = Scenario(projections.loads(rules))
    scenario.given({"PK": "HARBOUR#oban", "SK": "VISIT#1", "at": "2026-05-01"}).settle()
    scenario.given({"PK": "HARBOUR#oban", "SK": "INFO", "name": "Oban", "arrivals": []}).settle()
    for repair in (False, True):
        with verified(program, scenario.store, repair=repair, patience=0.01) as done:
            (drift,) = done.verification.drifts()
            assert drift.document()["repair"].startswith("changes nothing: a rule in shadow mode")
            print_table(done.verification, done.repair, done.withheld, None, done.found)
        out = capsys.readouterr().out
        assert "--repair changes nothing: a rule in shadow mode writes nothing to items." in out
        assert "--repair writes" not in out
    assert "1 difference found, 1 left, 1 of them in shadow mode." in out

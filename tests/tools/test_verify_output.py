"""What `verify` prints: only what differs, in words of the rule file, and a line for each step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import projections
from projections.cli.verify import Progress, difference, print_table
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations.verify.drift import ENTRY, ITEM, SOURCE, Drift
from projections.operations.verify.repair import verify_and_repair
from projections.operations.verify.showing import both
from projections.stores.memory import MemoryStore
from projections.testing import Scenario

if TYPE_CHECKING:
    from projections.aws.live_tables import Live

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


def guard(actual: Any, expected: Any) -> str:
    sides = {ITEM: actual, SOURCE: expected}
    return difference(Drift("guard", "r", "main|A|B", "~r", actual, expected, sides=sides, wrong=(ITEM,)))


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
    program = Program.from_document(loads(RULES).document())
    scenario = Scenario(projections.loads(RULES))
    scenario.given({"PK": "HARBOUR#oban", "SK": "INFO", "name": "Oban"}).settle()
    store = scenario.store  # the functions never process this visit, nor the changes of a repair
    store.seed("main", {"PK": {"S": "HARBOUR#oban"}, "SK": {"S": "VISIT#1"}, "at": {"S": "2026-05-01"}})

    progress = Progress(cast("Live", SimpleNamespace(sizes={})), quiet=False)
    with verify_and_repair(program, store, repair=True, patience=0.01, report=progress.reading) as done:
        print_table(done.verification, done.repair, done.withheld, None, done.differences, program)
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


def test_before_deployment_a_rule_is_compared_only_if_what_it_reads_is_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = Program.from_document(loads(COPIED).document())
    store = MemoryStore({**program.tables, "ledger": LEDGER_SCHEMA})
    store.seed("main", {"PK": {"S": "USER#ann"}, "SK": {"S": "PROFILE"}, "city": {"S": "Oban"}, "name": {"S": "Ann"}})

    def said() -> tuple[list[tuple[str, str]], dict[str, list[str]], str]:
        with verify_and_repair(program, store, ledger=False, patience=0.0) as done:
            print_table(done.verification, None, [], None, done.differences, program)
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


def test_no_repair_is_promised_for_the_values_of_a_held_rule(capsys: pytest.CaptureFixture[str]) -> None:
    rules = RULES.replace("arrivals: {from: Visit,", "arrivals: {from: Visit, hold: true,")
    program = Program.from_document(loads(rules).document())
    scenario = Scenario(projections.loads(rules))
    scenario.given({"PK": "HARBOUR#oban", "SK": "VISIT#1", "at": "2026-05-01"}).settle()
    scenario.given({"PK": "HARBOUR#oban", "SK": "INFO", "name": "Oban", "arrivals": []}).settle()
    for repair in (False, True):
        with verify_and_repair(program, scenario.store, repair=repair, patience=0.01) as done:
            (drift,) = done.verification.drifts()
            assert drift.document()["repair"].startswith("changes nothing: the version is not published")
            print_table(done.verification, done.repair, done.withheld, None, done.differences, program)
        out = capsys.readouterr().out
        assert "--repair changes nothing: the version is not published." in out
        assert "--repair writes" not in out
    assert "1 difference found, 1 left, 1 of them of versions that are not published." in out

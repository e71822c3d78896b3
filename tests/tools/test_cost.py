"""The cost of changes: what DynamoDB charges for them, and sums that are those of their rules."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from histories import compiled
from metered import Metered
from workloads import WORKLOADS, Workload

from benchmarks.workload import EIGHT_COUNTERS, LIKES, likes, program, removed
from projections.cli.cost import read_rates
from projections.errors import UsageError
from projections.inspect.cost.change_costs import BatchCost, Flow, worst_writes
from projections.inspect.cost.estimate import MILLION, Estimate, HotKey, estimate, estimate_events
from projections.inspect.rehearsal.rehearse import rehearse
from projections.language.loader import loads
from projections.language.program import Program

ROOT = Path(__file__).parents[2]
RULES = [*(ROOT / "tests/simulation/rules").glob("*.yaml"), *(ROOT / "projections/rules").glob("*.yaml")]
EVENTS = str(ROOT / "events/social.json")
Run = Callable[..., tuple[int, str, str]]
LIKE = Flow("Like")


def units_of(workload: Workload) -> float:
    cost = BatchCost(workload.program.model, workload.targets, workload.children)
    cost.add({workload.flow: workload.number})
    return cost.total.write_units


def measured(workload: Workload) -> float:
    """Write units of a batch, and of all that follows from it."""
    with Metered(workload.program) as metered:
        metered.settle(metered.write(puts=workload.before()))
        return sum(units for units, _, _ in metered.settle(metered.write(puts=workload.puts())))


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_changes_cost_what_the_engine_spends_on_them(workload: Workload) -> None:
    assert units_of(workload) == pytest.approx(measured(workload))


@pytest.mark.parametrize(
    ("rules", "lanes", "events", "targets", "write_units", "calls"),
    [
        (LIKES, False, 1, None, 5.0, 4),
        (LIKES, False, 1000, 1, 2023.0, 14),
        (LIKES, False, 1000, 10, 2050.0, 14),
        (LIKES, False, 1000, None, 5000.0, 71),
        (EIGHT_COUNTERS, False, 1, None, 26.0, 4),
        (LIKES, True, 1, None, 2.0, 3),
        (LIKES, True, 1000, 1, 2.0, 3),
        (LIKES, True, 1000, 10, 20.0, 3),
        (LIKES, True, 1000, None, 2000.0, 81),
    ],
)
def test_estimates_give_the_figures_of_the_cost_page(
    rules: str, lanes: bool, events: int, targets: int | None, write_units: float, calls: int
) -> None:
    """The same that tests/test_figures.py measures; rules on one item share calls there."""
    found = estimate(program(rules, lanes=lanes).model, {LIKE: 1.0}, targets=targets, batch=events).spending
    assert found.write_units * events == pytest.approx(write_units)
    assert found.read_units * events == 1 or not lanes, "the registry is all that is read"
    if rules is LIKES:
        assert found.calls * events == pytest.approx(calls, abs=0.5)


def test_rare_events_cost_what_an_event_alone_costs() -> None:
    cost = BatchCost(program().model)
    cost.add({LIKE: 0.01})
    assert (cost.total.write_units, cost.rules["engagement"].calls) == (pytest.approx(0.05), pytest.approx(0.03))


def test_shared_entries_are_borne_by_all_rules_that_have_contributions_in_them() -> None:
    cost = BatchCost(program(EIGHT_COUNTERS).model)
    cost.add({LIKE: 1.0})
    assert len(cost.rules) == 9, "the registry is read for none of them"
    assert {rule.write_units for name, rule in cost.rules.items() if name} == {2 / 8 + 2 + 1}


INDEXED = """
table: {key: [PK, SK], indexes: {G: GSI, L: LSI}}
entities:
  Like: {key: {PK: "POST#{post}", SK: "LIKE#{user}"}}
  Meta: {key: {PK: "POST#{post}", SK: META}, index_key: {board: ALL, at: "{date}"}}
projections:
  likes: {from: Like, aggregate: {into: Meta, set: {likes: count}}}
  byDate: {from: Like, index: {on: "{date}"}}
"""


def test_index_writes_are_those_of_its_projection() -> None:
    """A like changes a counter: only an index that projects it, and the local index of the like, is written."""
    units = {}
    for projection in ("all", "keys_only", "[likes]", "[title]"):
        form = f"{{partition: board, sort: at, projection: {projection}}}"
        text = INDEXED.replace("GSI", form).replace("LSI", "{sort: on, local: true, projection: keys_only}")
        cost = BatchCost(loads(text).completed())
        cost.add({LIKE: 1.0})
        units[projection] = {rule: cost.rules[rule].write_units for rule in ("likes", "byDate")}
    assert units["all"] == units["[likes]"] == {"likes": 2 + 2 + 2, "byDate": 1 + 1}
    assert units["keys_only"] == units["[title]"] == {"likes": 2 + 2 + 1, "byDate": 1 + 1}


# From rates


def social(*rates: str, targets: float | None = None, children: float = 100, batch: float | None = None) -> Estimate:
    rules = compiled(ROOT / "projections/rules/social.yaml").model
    return estimate(rules, read_rates(rules, rates), targets=targets, children=children, batch=batch)


def test_dollars_are_units_and_time_by_their_prices() -> None:
    found = social("Like=100", targets=5)
    ours = found.spending
    expected = (
        ours.write_units * 0.625 / MILLION
        + ours.read_units * 0.125 / MILLION
        + ours.invocations * 0.20 / MILLION
        + ours.gb_seconds * 0.0000133334
    )
    assert ours.per_event == pytest.approx(expected)
    assert ours.document(100.0)["dollarsPerMonth"] == pytest.approx(expected * 100 * 730 * 3600)


def test_batches_have_the_events_of_a_window_that_begins_with_the_first() -> None:
    assert social("Like=0.01").events == pytest.approx(1.01)
    assert social("Like=3").events == 4
    assert social("Like=2000").events == 500
    assert social("Like=5", batch=40).events == 40


def keys(found: Estimate) -> dict[str, HotKey]:
    return {key.key: key for key in found.hot}


def test_the_busiest_group_takes_one_write_of_each_transaction_that_touches_it() -> None:
    found = keys(social("Like=900", targets=2))
    group = found["the busiest group of engagement"]
    assert group.units == pytest.approx(2 * (250 / 99) * (900 / 500))
    assert group.limit == 49_500


def test_shards_are_advised_when_more_than_five_hundred_transactions_touch_a_group() -> None:
    calm = estimate(program().model, {LIKE: 40_000.0}, targets=1, batch=100).hot[0]
    hot = estimate(program().model, {LIKE: 90_000.0}, targets=1, batch=100).hot[0]
    assert calm.load < 1
    assert hot.load == pytest.approx(1.82, abs=0.01)
    assert "shards: 2" in hot.advice


def test_each_member_of_a_list_is_written_for_itself() -> None:
    listed = next(workload for workload in WORKLOADS if workload.name == "20 likes in a list").program
    members = keys(estimate(listed.model, {LIKE: 800.0}, targets=1))["members of newest"]
    assert (members.units, members.limit) == (pytest.approx(1600), 500)
    assert members.load > 1


def test_rates_name_entities_that_the_application_writes() -> None:
    rules = compiled(ROOT / "projections/rules/social.yaml").model
    found = read_rates(rules, ["Like=500", "Post:title,status=3", "Like=1"])
    assert found == {Flow("Like"): 501.0, Flow("Post", frozenset({"title", "status"})): 3.0}
    assert {flow.entity for flow in read_rates(rules, ["8"])} == {"User", "Post", "Like", "Comment"}
    for given, message in (
        ([], "no rate"),
        (["Lke=5"], "did you mean"),
        (["Like=many"], "Like=500"),
        (["Like=-1"], "above 0"),
        (["Like=nan"], "above 0"),
    ):
        with pytest.raises(UsageError, match=message):
            read_rates(rules, given)


# From events


def test_a_sample_costs_what_its_rehearsal_spent() -> None:
    rules, records = program(), likes(300, 6)
    found = estimate_events(rules, records, 100, 50.0)
    spent = rehearse(rules, records, batch_size=100).spent
    assert found.spending.write_units * 300 == pytest.approx(spent.write_units)
    assert sum(rule.write_units for rule in found.rules.values()) == pytest.approx(found.spending.write_units)
    assert sum(rule.calls for rule in found.rules.values()) == pytest.approx(found.spending.calls)
    assert found.events == 100


def test_events_and_rates_of_the_same_changes_cost_the_same() -> None:
    recorded = estimate_events(program(), likes(1000, 10), 100, None).spending
    stated = estimate(program().model, {LIKE: 100.0}, targets=10, batch=100).spending
    assert recorded.write_units == pytest.approx(stated.write_units)
    assert recorded.read_units == pytest.approx(stated.read_units)
    assert recorded.calls == pytest.approx(stated.calls)


def test_what_lanes_counted_before_the_events_has_no_entries() -> None:
    rehearsal = rehearse(program(lanes=True), [removed(like) for like in likes(10, 1)], batch_size=100)
    assert rehearsal.spent.write_units == 2
    assert sorted(item["pk"]["S"][:2] for item in rehearsal.tables.items("ledger")) == ["G|", "R", "R"]
    group = keys(estimate(program(lanes=True).model, {LIKE: 900.0}, targets=1))["the busiest group of engagement"]
    assert (group.units, group.limit) == (pytest.approx(900 / 500), None)


def test_cost_prints_rules_and_the_hottest_keys(run: Run) -> None:
    code, out, err = run("cost", "--rules", "social", "--rate", "Like=50", "--rate", "Post=2", "--targets", "50")
    assert (code, err) == (0, "")
    assert "52 events a second: 50 × a new Like, 2 × a new Post" in out
    assert "The hottest keys" in out
    assert "With `ledger: lanes` for engagement, discussion, authorship: 9.932 write units per event." in out
    _, out, _ = run("cost", "--rules", "social", "--rate", "Post:note=1")
    assert "no rule reads what they change" in out


def test_cost_of_sample_events(run: Run) -> None:
    code, out, err = run("cost", EVENTS, "--rules", "social")
    assert (code, err) == (0, "")
    assert "A sample: 6 × a new Like" in out
    assert "per month" not in out
    code, out, _ = run("cost", EVENTS, "--rules", "social", "--rate", "9", "--json")
    document = json.loads(out)
    assert document["eventsPerSecond"] == 9
    assert document["dollarsPerMonth"] > 0
    code, _, err = run("cost", EVENTS, "--rules", "social", "--rate", "Like=1")
    assert (code, "write --rate 100" in err) == (2, True)


@pytest.mark.parametrize("path", sorted(RULES)[::5], ids=lambda path: path.stem)
def test_every_kind_of_rule_has_a_cost(run: Run, path: Path) -> None:
    code, out, err = run("cost", "--rules", str(path), "--rate", "20", "--children", "10", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    ours = document["perEvent"]
    assert set(document["rules"]) - {"(of no single rule)"} <= set(compiled(path).rules)
    assert ours["writeUnits"] > 0
    for unit in ("writeUnits", "readUnits", "calls"):
        assert sum(rule[unit] for rule in document["rules"].values()) == pytest.approx(ours[unit])


def test_the_most_that_one_write_can_cause_follows_from_most() -> None:
    """Replacing 100 elements costs 707 units with short keys (`tests/engine/test_budget.py`): the entry is the rest."""
    doc, tag = '{key: {PK: "D#{doc}", SK: D}}', '{key: {PK: "T#{tag}", SK: T}, derived: true}'
    head = f"table: {{key: [PK, SK]}}\nentities:\n  Doc: {doc}\n  Tag: {tag}\n"
    for most, units in ((1, 752), (100, 3032), (10_000, 229_544)):
        rule = (
            f"  tags: {{from: Doc, each: {{tag: tags, most: {most}}}, aggregate: {{into: Tag, set: {{n: count}}}}}}\n"
        )
        program = Program.from_document(loads(f"{head}projections:\n{rule}").document())
        assert worst_writes(program)["tags"].units == units
        by_lanes = Program.from_document(
            loads(f"{head}projections:\n{rule.replace('{into', '{ledger: lanes, into')}").document()
        )
        assert worst_writes(by_lanes)["tags"].units == 2 * most * 3

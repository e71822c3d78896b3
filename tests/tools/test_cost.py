"""The cost of a workload: what DynamoDB charges for such items, and sums that are those of their terms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from histories import compiled
from metered import Metered, Round
from workloads import WORKLOADS, Workload, item, posts

from benchmarks.workload import EIGHT_COUNTERS, LIKES, likes, program
from projections.errors import ProjectionsError, UsageError
from projections.inspect.cost.batch import BatchCost, expected, situations
from projections.inspect.cost.by_hand import ByHand, by_hand
from projections.inspect.cost.estimate import MILLION, Estimate, estimate
from projections.inspect.cost.hot import HotKey
from projections.inspect.cost.reads import Shapes
from projections.inspect.cost.sample import sample_estimate
from projections.inspect.cost.terms import Sum, totals
from projections.inspect.cost.workload import (
    EDIT,
    INSERT,
    REMOVE,
    Assumptions,
    Delivery,
    Flow,
    assuming,
    named_numbers,
    projections_of,
    read_rates,
    read_workload,
)
from projections.inspect.cost.workload import Workload as Rates
from projections.inspect.cost.writes import worst_writes
from projections.inspect.rehearsal.rehearse import rehearse
from projections.language.loader import loads
from projections.language.program import Program

ROOT = Path(__file__).parents[2]
RULES = [*(ROOT / "tests/simulation/rules").glob("*.yaml"), *(ROOT / "projections/rules").glob("*.yaml")]
Run = Callable[..., tuple[int, str, str]]
LIKE, COMMENT = Flow("Like", INSERT), Flow("Comment", INSERT)
UNLISTED = {"likedBy": 0.0}
"""Likes that say no time, so that they are not in the index of who likes a post."""


def computed(workload: Workload) -> BatchCost:
    return batch(workload.program, workload.flows, workload.assumptions)


def batch(rules: Program, flows: Mapping[Flow, float], assumed: Assumptions | None = None) -> BatchCost:
    return expected(Shapes(rules), assumed or Assumptions(), flows)


def measured(workload: Workload, endpoint: str | None = None) -> list[Round]:
    with Metered(workload.program, endpoint) as metered:
        metered.settle(metered.write(puts=workload.before()))
        return metered.settle(metered.write(puts=workload.puts(), removes=workload.removes()))


REGISTRY = 1
"""Each invocation reads the registry first: one call, one unit."""


def in_vain(batch: BatchCost) -> float:
    return sum(term.count * term.write_units for term in batch.terms if term.what == "redundant")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_items_made_up_cost_what_these_items_cost(workload: Workload) -> None:
    """Write units, read units and calls, exact, of a batch and of all that follows from it."""
    rounds, found = measured(workload), computed(workload)
    sums = totals(found.terms).all
    assert sums.write_units - in_vain(found) == sum(units for units, _, _ in rounds)
    assert sums.read_units - REGISTRY == sum(units - REGISTRY for _, units, _ in rounds)
    assert sums.calls - REGISTRY == calls_of(rounds)


def calls_of(rounds: list[Round]) -> int:
    """Without what every invocation does first."""
    return sum(sum(calls.values()) - REGISTRY for _, _, calls in rounds)


ON_MINISTACK = [
    "a lone like",
    "1000 likes of 10 posts",
    "250 unlikes of 10 posts",
    "120 likes in a list and a counter",
    "30 posts with 3 of 5 tags",
    "10 posts that change a tag",
    "5 copies",
    "3 claims",
    "7 posts that change their index key",
    "40 likes of 4 posts that are ranked by them",
    "10 likes of large posts",
    "a parent of 60 children is renamed",
    "5 posts with computed attributes",
    "10 likes from which shares are computed",
    "3 posts whose state follows from views",
    "10 likes with a computed weight",
    "5 likes with an author set once",
    "12 likes with stars of their own",
    "12 likes with one of three stars",
    "12 likes whose stars change",
    "12 unlikes with stars",
    "8 likes whose text changes, of the newest and the oldest",
    "a like that is ranked",
    "a like whose rank changes",
    "an unlike that was ranked",
    "4 posts with 3 editors each",
    "an editor of 4 posts is renamed",
    "a social post",
    "12 social likes of one post",
    "a social post that is deleted",
]


@pytest.mark.deep
@pytest.mark.parametrize("name", ON_MINISTACK)
def test_items_made_up_cost_the_units_that_ministack_reports(name: str, ministack_url: str) -> None:
    """Exact. MiniStack reports nothing for conditions that fail."""
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    rounds, found = measured(workload, ministack_url), computed(workload)
    sums = totals(found.terms).all
    assert sums.write_units - in_vain(found) == sum(units for units, _, _ in rounds)


@pytest.mark.deep
@pytest.mark.parametrize("name", [*ON_MINISTACK, "a child appears"])
def test_items_made_up_take_the_calls_that_dynamodb_local_gets(name: str, dynamodb_local_url: str) -> None:
    """Statements too, which MiniStack refuses."""
    workload = next(workload for workload in WORKLOADS if workload.name == name)
    rounds = measured(workload, dynamodb_local_url)
    assert totals(computed(workload).terms).all.calls - REGISTRY == calls_of(rounds)


@pytest.mark.parametrize(
    ("rules", "events", "targets", "write_units", "calls"),
    [
        (LIKES, 1, None, 5.0, 4),
        (LIKES, 1000, 1, 2023.0, 14),
        (LIKES, 1000, 10, 2050.0, 14),
        (LIKES, 1000, None, 5000.0, 71),
        (EIGHT_COUNTERS, 1, None, 26.0, 4),
    ],
)
def test_estimates_give_the_figures_of_the_readme(
    rules: str, events: int, targets: int | None, write_units: float, calls: int
) -> None:
    """The same that tests/test_figures.py measures."""
    assumed = Assumptions(targets={"": targets} if targets else {})
    found = estimate(program(rules), assumed, Rates({LIKE: 1.0}), Delivery(batch=events)).ours
    assert (found.write_units * events, found.calls * events) == pytest.approx((write_units, calls))


def test_by_hand_costs_what_the_baselines_of_the_benchmark_cost() -> None:
    """(a) 100 units and 100 calls for 100 likes; (b) with Powertools' idempotency 300 and 300."""
    found = estimate(program(), Assumptions(), Rates({LIKE: 100.0}), Delivery(batch=100))
    _, add, powertools = found.ways
    assert (add.write_units, add.calls) == (1.0, 1.0)
    assert (powertools.write_units, powertools.calls) == (3.0, 3.0)


def test_a_broken_number_of_events_costs_something_between() -> None:
    assumed = Assumptions(targets={"": 3})
    units = [totals(batch(program(), {LIKE: n}, assumed).terms).all.write_units for n in (7, 7.5, 8)]
    assert units[0] < units[1] < units[2]
    assert units[1] == pytest.approx((units[0] + units[2]) / 2)
    rare = totals(batch(program(), {LIKE: 0.01}, assumed).terms).all
    assert rare.write_units == pytest.approx(0.05)
    assert rare.calls == pytest.approx(0.04)


def test_a_rule_that_applies_to_few_items_costs_little() -> None:
    rules = compiled(ROOT / "projections/rules/social.yaml")

    def spent(rule: str, flow: Flow = COMMENT, **matching: float) -> Sum:
        return totals(batch(rules, {flow: 1.0}, Assumptions(matching=matching)).terms).rules[rule]

    some, whole = spent("discussion", discussion=0.1, newest=0.1), spent("discussion")
    assert some.write_units == pytest.approx(whole.write_units / 10)
    half = spent("commentAuthor", commentAuthor=0.5)  # a child looks its parent up, and keeps what came of that
    assert half.calls == pytest.approx(spent("commentAuthor").calls)
    listed = spent("likedBy", LIKE, likedBy=0.5)
    assert listed.calls == pytest.approx(spent("likedBy", LIKE).calls / 2)


def test_shared_entries_are_borne_by_all_rules_that_have_contributions_in_them() -> None:
    sums = totals(batch(program(EIGHT_COUNTERS), {LIKE: 1.0}).terms)
    assert len(sums.rules) == 9, "the registry is read for none of them"
    assert {round(rule.write_units, 6) for name, rule in sums.rules.items() if name} == {2 / 8 + 2 + 1}
    assert sum(rule.write_units for rule in sums.rules.values()) == pytest.approx(sums.all.write_units)


def test_an_index_that_projects_keys_only_is_not_written_by_a_publish() -> None:
    rules = compiled(ROOT / "projections/rules/social.yaml")
    whole = totals(batch(rules, {LIKE: 1.0}).terms).rules
    keys: dict[str, frozenset[str] | None] = {"GSI1": frozenset(), "GSI2": frozenset()}
    little = totals(batch(assuming(rules, keys), {LIKE: 1.0}).terms).rules
    assert whole["engagement"].write_units - little["engagement"].write_units == 2
    assert whole["leaderboard"].write_units - little["leaderboard"].write_units == 1


def test_a_change_beyond_one_transaction_takes_several() -> None:
    rules = next(workload for workload in WORKLOADS if "3 of 5 tags" in workload.name).program
    terms = batch(rules, {Flow("Post", INSERT): 1.0}, Assumptions(elements={"": 100})).terms
    assert sum(term.count for term in terms if term.what == "transaction") == 2
    assert sum(term.count for term in terms if term.what == "entry") == 2


# From rates.


def social(*rates: str, total: float | None = None, delivery: Delivery | None = None, **assumed: Any) -> Estimate:
    rules = compiled(ROOT / "projections/rules/social.yaml")
    workload = read_workload(rules, total, rates)
    return estimate(rules, Assumptions(**assumed), workload, delivery or Delivery())


def test_dollars_are_units_and_time_by_their_prices() -> None:
    found = social("Like=100", targets={"": 5.0})
    ours = found.ours
    expected = (
        ours.write_units * 0.625 / MILLION
        + ours.read_units * 0.125 / MILLION
        + ours.invocations * 0.20 / MILLION
        + ours.gb_seconds * 0.0000133334
    )
    assert ours.per_event == pytest.approx(expected)
    sums = totals(found.terms).all
    assert ours.write_units == pytest.approx(sums.write_units / found.events)
    document = ours.document(100.0)
    assert document["dollarsPerMonth"] == pytest.approx(expected * 100 * 730 * 3600)
    assert sum(rule.write_units for rule in found.rules.values()) == pytest.approx(sums.write_units)


def test_batches_fill_with_events_and_with_what_comes_back_of_our_own_writes() -> None:
    slow, fast = social("Like=0.01"), social("Like=2000", targets={"": 1.0}, matching=UNLISTED)
    assert slow.events == pytest.approx(1.0, abs=0.05)
    assert slow.ours.write_units == pytest.approx(
        13.0, abs=0.2
    )  # entry 2, group 2, publish 3, index attributes 2 and 4
    assert fast.records == pytest.approx(500, rel=0.001)
    assert fast.events > 480
    assert fast.ours.write_units < 2.2
    assert social("Like=5", delivery=Delivery(batch=40)).events == 40


def test_a_shard_that_is_too_busy_is_told(run: Run) -> None:
    found = social("Like=5000")
    assert found.busy is not None
    assert found.busy > 1
    _, out, _ = run("cost", "--rules", "social", "--rate", "Like=5000")
    assert "records will wait" in out
    wider = social("Like=5000", delivery=Delivery(shards=10, parallelization=10))
    assert wider.busy is not None
    assert wider.busy < found.busy


def keys(found: Estimate, what: str) -> dict[str, HotKey]:
    return {key.rule: key for key in found.hot if key.what == what}


def test_the_busiest_group_takes_one_write_of_each_transaction_that_touches_it() -> None:
    found = social("Like=900", targets={"": 10.0}, hottest={"engagement": 0.5})
    group = keys(found, "group")["engagement"]
    batches = 900 / found.events
    transactions = max(1.0, found.events * 0.5 / 99) * batches
    assert group.units_per_second == pytest.approx(2 * transactions)
    assert group.limit_events == 49_500
    assert group.events_per_second == pytest.approx(450)
    partitions = keys(found, "index partition")  # a month, and four buckets, in which an item goes from key to key
    listed, ranked = (partitions[rule].units_per_second for rule in ("listed", "leaderboard"))
    assert listed / 2 == pytest.approx(4 * ranked / 3)


def test_shards_are_advised_when_more_than_five_hundred_transactions_touch_a_group() -> None:
    counted = program()
    delivery = Delivery(batch=100, shards=100, parallelization=10)
    assumed = Assumptions(targets={"": 1.0})
    calm = estimate(counted, assumed, Rates({LIKE: 40_000.0}), delivery)
    hot = estimate(counted, assumed, Rates({LIKE: 90_000.0}), delivery)
    assert keys(calm, "group")["engagement"].load < 1
    key = keys(hot, "group")["engagement"]
    assert key.load == pytest.approx(1.82, abs=0.01)
    assert "shards: 2" in key.advice


def test_each_member_of_a_list_is_written_for_itself() -> None:
    listed = next(workload for workload in WORKLOADS if workload.name == "50 unlikes from a list").program
    found = estimate(listed, Assumptions(targets={"": 1.0}), Rates({LIKE: 800.0}), Delivery())
    members = keys(found, "members")["newest"]
    assert members.units_per_second == pytest.approx(1600)
    assert members.limit_events == 500
    assert members.load > 1


def test_a_push_to_many_children_leaves_pages_to_the_worker() -> None:
    found = social("User:name=1", children={"": 1000.0}, matching={"newest": 0.0})
    assert found.ours.invocations > 3 / found.events
    assert found.ours.sqs_requests == pytest.approx(9.0)  # a full page and an empty one, twice, but for the first
    assert found.ours.write_units == pytest.approx(1 + 1000 * 2)


def test_the_registry_is_read_once_in_each_invocation() -> None:
    """Not for the records of the rules' own writes, which come with further events."""
    found = social("Like=1", delivery=Delivery(batch=10))
    reads = [term for term in found.terms if term.what in ("read", "GetItem") and not term.rules]
    assert [(term.count, term.read_units, term.calls) for term in reads] == [(1, 1, 0), (1, 0, 1)]


def test_by_hand_nothing_is_put_together() -> None:
    shapes = Shapes(compiled(ROOT / "projections/rules/social.yaml"))
    cost = ByHand()
    for weight, rehearsal in situations(shapes, Assumptions(targets={"": 1.0}), {LIKE: 1.0}):
        cost.add(by_hand(rehearsal), 100 * weight)
    assert cost.rules == {"engagement": 300.0, "leaderboard": 400.0, "likedBy": 200.0}
    assert cost.handled == 200  # the likes, and the records of the counter


def test_a_workload_costs_the_same_each_time() -> None:
    first, second = (social("Like=3", "Post:status=1", "Comment:removed=1") for _ in range(2))
    assert first.terms == second.terms
    assert first.hot == second.hot


def test_items_that_rules_cannot_use_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would be rejected, and seem to cost nothing."""
    monkeypatch.setattr(Shapes, "_all_forms", lambda shapes: {})
    with pytest.raises(ProjectionsError, match="discussion"):
        social("Comment=1")


# From a sample.


def test_a_sample_costs_what_its_rehearsal_spent() -> None:
    rules = program()
    records = likes(300, 6)
    found = sample_estimate(rules, records, Assumptions(), Delivery(batch=100), 50.0)
    rehearsal = rehearse(rules, records, batch_size=100)
    spent, echoes = rehearsal.spent, len(rehearsal.batches) - 3  # of an echo the registry alone is read
    assert echoes == 1
    assert found.ours.write_units * 300 == pytest.approx(spent.write_units)
    assert found.ours.read_units * 300 == pytest.approx(spent.read_units - echoes * REGISTRY)
    assert found.ours.calls * 300 == pytest.approx(spent.call_count - echoes * REGISTRY)
    assert sum(rule.write_units for rule in found.rules.values()) * 3 == pytest.approx(spent.write_units)
    assert found.changes == {"a new Like": 300.0}


def test_a_sample_and_a_workload_agree() -> None:
    """Likes as the sample has them, in batches of 100 on 6 posts."""
    rules = program()
    found = sample_estimate(rules, likes(300, 6), Assumptions(), Delivery(batch=100), 50.0)
    formula = estimate(rules, Assumptions(targets={"": 6.0}), Rates({LIKE: 50.0}), Delivery(batch=100))
    assert found.ours.write_units == pytest.approx(formula.ours.write_units, rel=0.01)
    assert found.ours.calls == pytest.approx(formula.ours.calls, rel=0.01)
    for ours, theirs in zip(found.ways, formula.ways, strict=True):
        assert ours.write_units == pytest.approx(theirs.write_units, rel=0.01)
        assert ours.per_event == pytest.approx(theirs.per_event, rel=0.1)
    assert found.hot[0].key.startswith("group of engagement for POST#")


# What is said and what is refused.


def test_rates_say_what_changes() -> None:
    rules = compiled(ROOT / "projections/rules/social.yaml")
    assert read_rates(rules, ["Like=5", "Like:removed=1", "Post:title, status=2", "Post:=3", "Like=1"]) == {
        Flow("Like", INSERT): 6.0,
        Flow("Like", REMOVE): 1.0,
        Flow("Post", EDIT, frozenset({"title", "status"})): 2.0,
        Flow("Post", EDIT): 3.0,
    }
    spread = read_workload(rules, 100, ["Like=70"]).rates
    assert spread[LIKE] == 70
    assert spread[Flow("Post", INSERT)] == pytest.approx(10)
    assert sum(spread.values()) == pytest.approx(100)


@pytest.mark.parametrize(
    ("total", "rates", "message"),
    [
        (None, [], "--events-per-second N, --rate"),
        (None, ["Lik=5"], "did you mean"),
        (None, ["PostMeta=5"], 'only rules write "PostMeta"'),
        (None, ["Like=many"], "Like:removed=20"),
        (None, ["Like=-1"], "a second"),
        (None, ["Like"], "--rate Like: write Like=500, Like:removed=20 or Like:attribute=3, a second"),
        (10, ["Like=20"], "more than --events-per-second 10"),
        (50, ["Like=1", "Post=1", "User=1", "Comment=1"], "no other entity"),
    ],
)
def test_wrong_rates_are_refused_with_the_way_out(total: float | None, rates: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_workload(compiled(ROOT / "projections/rules/social.yaml"), total, rates)


def test_wrong_options_are_refused_with_the_way_out() -> None:
    assert named_numbers(["engagement=3", "5"], ["engagement"], "--targets") == {"engagement": 3.0, "": 5.0}
    for given, message in (("engagment=3", "did you mean"), ("x", "NAME=NUMBER"), ("engagement=0", "1 or more")):
        with pytest.raises(UsageError, match=message):
            named_numbers([given], ["engagement"], "--targets", least=1)
    rules = compiled(ROOT / "projections/rules/social.yaml")
    assert projections_of(rules, ["GSI1=keys", "GSI2=all"]) == {"GSI1": frozenset(), "GSI2": None}
    with pytest.raises(UsageError, match="the indexes are GSI1, GSI2"):
        projections_of(rules, ["GSI3=all"])


LISTED = """
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
        text = LISTED.replace("GSI", form).replace("LSI", "{sort: on, local: true, projection: keys_only}")
        rules = Program.from_document(loads(text).canonical())
        found = batch(rules, {Flow("Like", INSERT): 1.0})
        units[projection] = {index: number for (_, index), number in found.index_units.items()}
        hot = estimate(rules, Assumptions(), Rates({Flow("Like", INSERT): 5000.0}), Delivery()).hot
        assert "index partition" not in {key.what for key in hot}, "those of a local index are the table's"
        keys = Program.from_document(
            loads(text.replace(f"projection: {projection}", "projection: keys_only")).canonical()
        )
        assert assuming(rules, {"G": frozenset()}).document == keys.document
    assert units == {"all": {"G": 1, "L": 1}, "keys_only": {"L": 1}, "[likes]": {"G": 1, "L": 1}, "[title]": {"L": 1}}


def test_cost_prints_rules_beside_a_handler_by_hand(run: Run) -> None:
    arguments = ("cost", "--rules", "social", "--rate", "Like=50", "--rate", "Post=2", "--targets", "engagement=50")
    code, out, err = run(*arguments)
    assert (code, err) == (0, "")
    assert "52 events a second: 50 × a new Like, 2 × a new Post" in out
    assert "one UpdateItem per record and rule" in out
    assert "The hottest keys" in out
    assert "× 2 write units" not in out
    code, out, _ = run(*arguments, "--why")
    assert "× 2 write units  engagement entry  the contributions of a source item, and its version" in out


def test_events_per_invocation_are_those_of_a_window_that_begins_with_the_first_record(
    run: Run, tmp_path: Path
) -> None:
    """At 3 events a second and a window of 1 s, a batch has 4: its first record, and 3 after it."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "table: {key: [PK]}\n"
        'entities: {Crate: {key: {PK: "CRATE#{crate}"}}, Tree: {key: {PK: "TREE#{tree}"}}}\n'
        "projections: {crates: {from: Crate, aggregate: {into: Tree, set: {crates: count}}}}\n"
    )
    arguments = ("cost", "--rules", str(rules), "--rate", "Tree:x=3")
    code, out, _ = run(*arguments)
    shown = "4 events per invocation (the first record and those of the next 1 s, at most 500 records), with 0 records"
    assert (code, shown in out) == (0, True)
    _, out, _ = run(*arguments, "--window", "0.1", "--batch-size", "20")
    assert "(the first record and those of the next 0.25 s, at most 20 records)" in out
    _, out, _ = run(*arguments, "--batch", "2")
    assert "2 events per invocation, with " in out


def test_every_number_of_cost_has_its_terms_in_json(run: Run) -> None:
    code, out, _ = run("cost", "--rules", "social", "--events-per-second", "20", "--json", "--price", "write=1.25")
    document = json.loads(out)
    assert code == 0
    ours = document["ways"][0]["perEvent"]
    for unit in ("writeUnits", "readUnits", "calls"):
        assert sum(term["count"] * term[unit] for term in document["terms"]) == pytest.approx(ours[unit])
        assert sum(rule[unit] for rule in document["rules"].values()) == pytest.approx(ours[unit])
    assert all(term["why"] for term in document["terms"])
    assert document["assumptions"]["prices"]["write"] == {"dollars": 1.25, "per": "million write units"}
    dollars = document["ways"][0]["dollarsPerMillionEvents"]
    assert dollars["writeUnits"] == pytest.approx(ours["writeUnits"] * 1.25)


def test_cost_of_sample_events(run: Run) -> None:
    code, out, err = run("cost", str(ROOT / "events/social.json"), "--rules", "social")
    assert (code, err) == (0, "")
    assert "A sample: 6 × a new Like" in out
    assert "per month" not in out
    code, out, _ = run(
        "cost", str(ROOT / "events/social.json"), "--rules", "social", "--events-per-second", "9", "--json"
    )
    document = json.loads(out)
    assert document["eventsPerSecond"] == 9
    assert document["ways"][0]["dollarsPerMonth"] > 0
    code, _, err = run("cost", str(ROOT / "events/social.json"), "--rules", "social", "--rate", "Like=1")
    assert (code, "--rate is for estimates" in err) == (2, True)


@pytest.mark.parametrize("path", sorted(RULES), ids=lambda path: path.stem)
def test_every_kind_of_rule_has_a_cost(run: Run, path: Path) -> None:
    code, out, err = run("cost", "--rules", str(path), "--events-per-second", "20", "--children", "10", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert set(document["rules"]) - {"(of no single rule)"} <= set(compiled(path).rules)
    assert document["ways"][0]["perEvent"]["writeUnits"] > 0


# In the long run.


def running(rules: Program, before: list[Any], prefix: str) -> tuple[float, float]:
    """Units and calls per like: 15 batches of 100 likes of random posts, each with the records that the writes of the one
    before brought about.
    """
    rng = Random(5)
    units = calls = 0.0
    with Metered(rules) as metered:
        metered.settle(metered.write(puts=before))
        for number in range(15):
            puts = [item(f"USER#{number}-{n}", f"LIKE#POST#{prefix}{rng.randrange(20)}", at=number) for n in range(100)]
            spent, _, asked = metered.play(metered.write(puts=puts))
            units, calls = units + spent, calls + sum(asked.values())
        for spent, _, asked in metered.settle(list(metered.tables.records())):
            units, calls = units + spent, calls + sum(asked.values())
    return units / 1500, calls / 1500


def test_a_running_stream_costs_what_the_estimate_says() -> None:
    workload = next(one for one in WORKLOADS if one.name == "120 likes in a list and a counter")
    units, calls = running(workload.program, list(workload.before()) + posts(20)(), "")
    found = estimate(workload.program, Assumptions(targets={"": 20.0}), Rates({LIKE: 100.0}), Delivery(batch=100))
    assert units == pytest.approx(found.ours.write_units, rel=0.02)
    assert calls == pytest.approx(found.ours.calls, rel=0.02)


def test_index_attributes_that_follow_a_counter_cost_at_most_what_the_estimate_says() -> None:
    """Of an item that changes in every batch they are written later, since by then a newer record is on its way."""
    rules = compiled(ROOT / "projections/rules/social.yaml")
    before = [
        item("USER#ada", "PROFILE", name="Ada"),
        *(
            item(
                "USER#ada",
                f"POST#2026-03-01T00:00:00Z#p{number}",
                status="published",
                publishedAt="2026-03-02T00:00:00Z",
            )
            for number in range(20)
        ),
    ]
    units, _ = running(rules, before, "p")
    found = estimate(
        rules, Assumptions(targets={"": 20.0}, matching=UNLISTED), Rates({LIKE: 100.0}), Delivery(batch=100)
    )
    assert 0.75 * found.ours.write_units < units < found.ours.write_units


USES = """
tables:
  main: { key: [PK, SK], indexes: { GSI1: { partition: { G: S } } } }
  by_time: { key: { PK: S, SK: N } }
entities:
  Booking: { table: main, key: { PK: "SCOPE#{scope}", SK: "AT#{start}#{booking}" } }
  Scope: { table: main, key: { PK: "SCOPE#{scope}", SK: INFO } }
  Site: { table: main, key: { PK: SITE, SK: STATS }, derived: true }
  Month: { table: main, key: { PK: "MONTH#{month}", SK: M }, derived: true }
  Tick: { table: by_time, key: { PK: "TICK#{tick}", SK: "{at}" } }
  Card: { table: main, key: { PK: "CARD#{booking}", SK: C } }
projections:
  last: { from: Booking, aggregate: { into: Scope, set: { last: max(start), first: "min(text(start))", n: count } } }
  months: { from: Booking, bind: { month: "{start|date(%Y-%m)}" }, aggregate: { into: Month, set: { n: count } } }
  listed: { from: Booking, index: { G: "ON#{start|date(%Y-%m-%d)}" } }
  ticks: { from: Tick, bind: { month: "{at|date(%Y)}" }, aggregate: { into: Month, set: { ticks: count, latest: max(at) } } }
  site: { from: Booking, aggregate: { into: Site, set: { spent: sum(paid.sum), n: count } } }
  card: { from: Booking, copy: { into: Card, attributes: { paid: paid, sum: paid.sum, currency: paid.currency } } }
"""


def test_generated_values_fit_every_use_of_a_name() -> None:
    """A date that is also an extreme, dates in text and number keys, a target without variables, a map and its parts."""
    program = Program.from_document(loads(USES).canonical())
    assert batch(program, {Flow("Booking", INSERT): 10.0, Flow("Tick", INSERT): 10.0})


def test_the_most_that_one_write_can_cause_follows_from_most() -> None:
    """Replacing 100 elements costs 707 units with short keys (`tests/engine/test_budget.py`): the entry is the rest."""
    doc, tag = '{key: {PK: "D#{doc}", SK: D}}', '{key: {PK: "T#{tag}", SK: T}, derived: true}'
    head = f"table: {{key: [PK, SK]}}\nentities:\n  Doc: {doc}\n  Tag: {tag}\n"
    for most, units in ((1, 752), (100, 3032), (10_000, 229_544)):
        rule = (
            f"  tags: {{from: Doc, each: {{tag: tags, most: {most}}}, aggregate: {{into: Tag, set: {{n: count}}}}}}\n"
        )
        program = Program.from_document(loads(f"{head}projections:\n{rule}").canonical())
        assert worst_writes(program)["tags"].units == units

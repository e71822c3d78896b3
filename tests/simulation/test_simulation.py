"""Thousands of histories of the real engine: whatever happens on the way, they end as the source items say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from random import Random
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import pytest
from adversary import adversary_of
from by_lanes import documents
from click.testing import CliRunner
from mutants import GUARDED, MUTANTS, Mutant, applied, changed_texts, rules_file

from projections.cli.simulate import command
from projections.engine.store import Update, Write
from projections.errors import RulesError, Transient
from projections.language.loader import load, loads
from projections.language.program import Program
from projections.stores.memory import MemoryStore
from projections.testing.pools import Pools, _several
from projections.testing.simulation import campaign, history
from projections.testing.simulation.campaign import Campaign
from projections.testing.simulation.history import Setup
from projections.testing.simulation.rule_changes import change
from projections.testing.simulation.rule_versions import RuleVersion, RuleVersions, roll_back

RULES = ["social", *sorted(path.stem for path in (Path(__file__).parent / "rules").glob("*.yaml"))]

FIRST, HISTORIES = 2, 24
"""Of each rule file, those of `make test` and all; the command plays as many as one likes."""

MOST = 4000
"""In how many histories each mutant has to be caught, from its seed on, whose history catches it."""


@pytest.mark.parametrize(
    ("first", "histories"), [(0, FIRST), pytest.param(FIRST, HISTORIES - FIRST, marks=pytest.mark.deep)]
)
@pytest.mark.parametrize("rules", RULES)
def test_histories_end_as_the_source_items_say(rules: str, first: int, histories: int) -> None:
    path = rules_file(rules)
    document = load(path).document()
    report = Campaign(document).run(first, histories)
    assert report.histories == histories
    if report.failures:
        failure = report.failures[0]
        trace = Setup(document).play(failure.seed, trace=True).trace
        pytest.fail("\n".join([f"{rules}, seed {failure.seed}:", *failure.problems, *trace]), pytrace=False)


@pytest.mark.deep
def test_histories_end_the_same_if_lanes_count_a_half_of_the_aggregates() -> None:
    for rules, document in documents():
        failures = Campaign(document).run(0, 6).failures
        assert [(rules, failure.seed, failure.problems) for failure in failures] == []


PAGES = [(Path(__file__).parents[2] / page).read_text() for page in ("docs/rules.md", "tests/docs/examples.md")]
BLOCKS = re.findall(r"```yaml[^\n]*\n(.*?)```", "\n".join(PAGES), re.DOTALL)
ODD = {
    "a target without variables": """
        table: { key: [PK, SK] }
        entities:
          View: { key: { PK: "PAGE#{page}", SK: "VIEW#{viewId}" } }
          Site: { key: { PK: SITE, SK: STATS }, derived: true }
        projections: { views: { from: View, aggregate: { into: Site, shards: 10, set: { views: count } } } }
    """,
    "binary keys": """
        table: { key: { PK: B, SK: S } }
        entities:
          Blob: { key: { PK: "{blob}", SK: "P#{part}" } }
          Total: { key: { PK: "{blob}", SK: T }, derived: true }
        projections: { parts: { from: Blob, aggregate: { into: Total, set: { parts: count, last: max(part) } } } }
    """,
    "another separator": """
        table: { key: [PK, SK], separator: "|" }
        entities:
          Line: { key: { PK: "O|{order}", SK: "L|{line}" } }
          Order: { key: { PK: "O|{order}", SK: O } }
        projections: { lines: { from: Line, top: { into: Order, as: lines, by: at, limit: 2, attributes: [sku] } } }
    """,
    "a map and its parts": """
        table: { key: [PK, SK] }
        entities:
          User: { key: { PK: "U#{user}", SK: U } }
          Card: { key: { PK: "C#{user}", SK: C } }
        projections: { card: { from: User, copy: { into: Card, attributes: { all: address, city: address.city } } } }
    """,
}


def simulated(document: Mapping[str, Any], histories: int) -> None:
    """Draw many changes of the rules, and play histories: these have writes, and end as they should."""
    pools = Pools(Program.from_document(document))
    for seed in range(15):
        for entities in (False, True):
            change(document, pools, Random(seed), entities=entities)
    report = Campaign(document).run(0, histories)
    assert [failure.problems for failure in report.failures] == []
    assert report.writes


@pytest.mark.parametrize("name", ODD)
def test_rules_with_odd_keys_can_be_simulated(name: str) -> None:
    simulated(loads(dedent(ODD[name])).document(), 6)


def test_nothing_expires_where_a_rule_that_keeps_what_expires_is_removed_and_comes_back() -> None:
    first = RuleVersion(load(rules_file("counted_keep")).document())
    others = {name: rule for name, rule in first.document["projections"].items() if name != "countries"}
    without = RuleVersion({**first.document, "projections": others, "retired": {"countries": "remove"}})
    assert not roll_back(RuleVersions(first, without, first.program, Pools(first.program))).expires


@pytest.mark.deep
@pytest.mark.parametrize("rules", ["counted_keep", "kept_picks"])
def test_new_versions_take_over_what_is_kept_in_several_transactions(rules: str) -> None:
    setup = Setup(load(rules_file(rules)).document(), fixed=SMALL_TRANSACTIONS)
    assert [problem for seed in range(80) for problem in setup.play(seed).problems] == []


@pytest.mark.deep
def test_every_rule_file_of_the_guide_can_be_simulated() -> None:
    played = 0
    for block in BLOCKS:
        with suppress(RulesError):  # parts of a file, and files with mistakes
            document = loads(block).document()
            if document["projections"]:
                simulated(document, 1)
                played += 1
    assert played > 20


SMALL_TRANSACTIONS = {"recounts": 2, "actions": 4, "writes": 60, "faults": 10}
"""Parts of a fault plan in which new versions take over more than a transaction holds."""

GUARDED_RULES = ["adoption", "aggregates", "chains", "claims", "copies", "derived", "embeds", "keep", "kinds", "lists"]


@pytest.mark.parametrize(("first", "histories"), [(0, 2), pytest.param(2, HISTORIES - 2, marks=pytest.mark.deep)])
@pytest.mark.parametrize("rules", GUARDED_RULES)
def test_an_adversary_who_knows_every_guard_gains_nothing_that_lasts(rules: str, first: int, histories: int) -> None:
    """It writes any attribute of any item; each history ends as the source items say, and nothing else is lost."""
    setup = Setup(load(rules_file(rules)).document(), attacker=adversary_of(0.3))
    for seed in range(first, first + histories):
        assert setup.play(seed).problems == [], f"{rules}, seed {seed}"


@pytest.mark.parametrize("projection", ["keys_only", ["author", "ownerId"]], ids=["keys", "some"])
@pytest.mark.parametrize("rules", ["embeds", "keep", "kinds"])
def test_histories_end_the_same_if_an_index_shows_little(rules: str, projection: str | list[str]) -> None:
    """Children are found through indexes that lack their guards, and parts of what determines kind and parent."""
    document = load(rules_file(rules)).document()
    for index in document["tables"]["main"]["indexes"].values():
        index["projection"] = projection
    report = Campaign(document).run(0, FIRST)
    assert [failure.problems for failure in report.failures] == []
    assert report.histories == FIRST


SOUGHT = [one for one in MUTANTS if not one.rare or "RARE_MUTANTS" in os.environ]
DEEP = [pytest.param(one, marks=pytest.mark.deep) for number, one in enumerate(SOUGHT) if number % 4]


def test_every_mutant_changes_the_engine_as_it_is() -> None:
    assert all(mutant.patched for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", [*map(pytest.param, SOUGHT[::4]), *DEEP], ids=lambda mutant: mutant.name)
def test_a_defect_of_the_engine_is_caught(
    mutant: Mutant, record_property: Callable[[str, object], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the history of its seed, or by a search, which costs more: its result is the seed to write into mutants.diff."""
    monkeypatch.setattr(history, "RESTLESS", 5000)  # what does not end is so for certain: without the defect it ends
    number = mutant.caught(MOST)
    assert number is not None, "the simulation proves nothing about this"
    if number > 1:
        record_property(
            "measured", f"mutant {mutant.name}: the first history that shows it has seed={mutant.seed + number - 1}"
        )


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.rare], ids=lambda mutant: mutant.name)
def test_a_defect_that_few_histories_show_fails_the_test_that_is_about_it(mutant: Mutant) -> None:
    module, name, *arguments = mutant.rare
    test = getattr(import_module(module), name)
    test(*arguments)
    with applied(changed_texts(mutant.patches)), pytest.raises((AssertionError, ValueError, Transient)):
        test(*arguments)


@pytest.mark.deep
@pytest.mark.parametrize("rules", ["copies", "aggregates", "index", "embeds"])
def test_guards_alone_suffice_where_nobody_meddles(rules: str) -> None:
    """What most mutants of guards are measured against: hardly anything heals, under an application that needs it not."""
    setup = Setup(load(rules_file(rules)).document(), GUARDED.without)
    with applied(changed_texts(GUARDED.patches)):
        assert [seed for seed in range(40) if setup.play(seed).problems] == []


@pytest.mark.deep
def test_seed_gives_the_same_history_in_every_process() -> None:
    script = (
        "import sys; from projections.language.loader import load; from projections.testing.simulation.history import Setup;"
        "from hashlib import sha256; document = load(sys.argv[1]).document();"
        "setups = [Setup(document), Setup(document, fixed={'verifies': 2, 'restore': True})];"
        "traces = [setup.play(seed, trace=True).trace for setup in setups for seed in range(12)];"
        "print(sha256(repr(traces).encode()).hexdigest())"
    )
    for rules in ("shards", "copies", "social"):
        digests = {
            subprocess.run(
                [sys.executable, "-c", script, str(rules_file(rules))],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(digests) == 1, rules


def test_a_history_that_goes_wrong_is_told_with_its_seed_and_its_trace() -> None:
    mutant = next(one for one in MUTANTS if one.name == "items_that_appear_are_not_healed")
    with applied(mutant.patched):
        found = CliRunner().invoke(command, "--rules social --histories 10 --trace", standalone_mode=False)
        again = CliRunner().invoke(command, "--rules social --histories 10 --json --trace", standalone_mode=False)
    assert found.return_value == again.return_value == 1
    document = json.loads(again.stdout)
    seed = document["failure"]["seed"]
    assert f"Seed {seed} of " in found.stdout
    assert f"--seed {seed} --histories 1 --trace" in found.stdout
    assert document["failure"]["problems"][0] in found.stdout
    assert "\n".join(document["trace"]) in found.stdout
    assert "application" in found.stdout


def test_wrong_and_harm_are_counted_separately() -> None:
    original = MemoryStore.write

    def write(self: MemoryStore, write: Write) -> Any:
        """Every push also sets an attribute that no rule owns."""
        if isinstance(write, Update) and "authorName" in write.set:
            write = replace(write, set={**write.set, "text": {"S": "of the engine"}})
        return original(self, write)

    with patch.object(MemoryStore, "write", write):
        report = Campaign(load(rules_file("embeds")).document(), keep_going=True).run(0, 12)
    assert report.harm > 0
    assert all(problem for outcome in report.failures for problem in outcome.problems)


def test_the_command_says_what_it_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "_CHUNK", 3)
    result = CliRunner().invoke(command, "--rules social --histories 5 --jobs 2 --json", standalone_mode=False)
    assert result.return_value == 0
    document = json.loads(result.stdout)
    assert document["histories"] == 5
    assert document["failure"] is None
    assert document["wrong"] == document["harm"] == 0
    assert document["writes"] > 0 < document["faults"]


# Lists of references in simulations, where rules leave few values for them.


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "b"], ["a", "b", "c"]])
def test_lists_are_made_of_any_number_of_references(texts: list[str]) -> None:
    found = _several([{"S": text} for text in texts])
    assert {"L": []} in found
    assert {"L": [{"S": text} for text in texts]} in found
    assert {"SS": []} not in found

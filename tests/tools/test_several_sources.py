"""What commands say about rules with several sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from projections.cli.check import command as check
from projections.cli.cost import command as cost
from projections.deploy.needs import entities_of
from projections.inspect.diff.changed_rules import reasons
from projections.inspect.diff.difference import difference
from projections.inspect.explain.matching import verdict
from projections.inspect.graph.graph_model import graph_of, mermaid
from projections.inspect.graph.page import page
from projections.language.keys import ItemKey
from projections.language.loader import loads
from projections.language.program import Program
from projections.local.items import wire_item

HEAD = """
tables: {media: {key: [PK, SK]}, press: {key: [PK, SK]}}
entities:
  Owner: {table: media, key: {PK: "OWNER#{owner}", SK: INFO}}
  Photo: {table: media, key: {PK: "ALBUM#{album}", SK: "PHOTO#{photo}"}}
  Clip: {table: press, key: {PK: "REEL#{reel}", SK: "CLIP#{clip}"}}
projections:
"""
ONE = "  uploads: {from: Photo, aggregate: {into: Owner, set: {uploads: count, bytes: sum(bytes)}}}\n"
TWO = """
  uploads:
    from: {Photo: {}, Clip: {each: {owner: crew}, where: {ready: true}}}
    aggregate: {into: Owner, set: {uploads: count, bytes: sum(bytes)}}
"""


def program(rules: str = TWO) -> Program:
    return Program.from_document(loads(HEAD + rules).document())


def run(tmp_path: Path, *arguments: str, rules: str = TWO) -> Any:
    path = tmp_path / "rules.yaml"
    path.write_text(HEAD + rules)
    command = {"check": check, "cost": cost}[arguments[0]]
    given = [str(path) if one == "RULES" else one for one in arguments[1:]]
    found = CliRunner().invoke(command, [*given, "--json"], catch_exceptions=False)
    return json.loads(found.stdout)


def test_check_lists_all_sources(tmp_path: Path) -> None:
    (row,) = run(tmp_path, "check", "RULES")["rules"]
    assert row["from"] == ["Clip", "Photo"]
    assert row["where"] == "Clip: ready is true; Photo: all items"
    assert row["writes"]["uploads"] == "count of Clip and Photo"
    (row,) = run(tmp_path, "check", "RULES", rules=ONE)["rules"]
    assert row["from"] == "Photo"


def units(tmp_path: Path, rules: str, *rates: str) -> float:
    arguments = [part for rate in rates for part in ("--rate", rate)]
    found = run(tmp_path, "cost", "--rules", "RULES", *arguments, rules=rules)
    return float(found["rules"]["uploads"]["writeUnits"])


def test_cost_of_a_source_does_not_depend_on_the_other_sources(tmp_path: Path) -> None:
    alone = units(tmp_path, ONE, "Photo=50")
    assert alone == units(tmp_path, TWO, "Photo=50") == 5
    clip = ONE.replace("from: Photo", "from: Clip, each: {owner: crew}, where: {ready: true}")
    assert units(tmp_path, TWO, "Clip=50") == units(tmp_path, clip, "Clip=50") > alone


def test_graphs_have_a_line_from_each_source() -> None:
    shown = graph_of(loads(HEAD + TWO), "title")
    assert shown.rules["uploads"].sources == ("Clip", "Photo")
    text = page(shown)
    for name in ("Clip", "Photo"):
        assert f'<path data-from="entity-{name}" data-to="rule-uploads"/>' in text
    assert {"e1 --> r0", "e2 --> r0"} <= {line.strip().partition("(")[0] for line in mermaid(shown).splitlines()}


def test_diff_names_the_source_that_differs() -> None:
    old, new = loads(HEAD + ONE).document(), loads(HEAD + TWO).document()
    (one,) = difference(old, new).rules
    assert [part.name for part in one.change.parts] == ["from"]
    assert reasons(one.change) == ["other items contribute"]
    later = loads(HEAD + TWO.replace("ready: true", "ready: false")).document()
    (one,) = difference(new, later).rules
    assert [part.name for part in one.change.parts] == ["where.Clip"]
    assert difference(new, loads(HEAD + TWO).document()).rules == ()


def test_explain_gives_the_reason_of_the_source_of_an_item() -> None:
    compiled = program()
    clip, photo = compiled.variants
    item = compiled.recognise(
        ItemKey("press", "REEL#1", "CLIP#1"), dict(wire_item({"crew": ["ann"], "ready": False}, ""))
    )
    assert item is not None
    assert verdict(compiled, clip, item).reasons == (
        "owner = a string, 'ann': where: ready is false; wanted: ready is true",
    )
    item = compiled.recognise(ItemKey("media", "ALBUM#1", "PHOTO#1"), {})
    assert item is not None
    assert verdict(compiled, photo, item).reasons == ("the key of Owner needs owner, which the item lacks",)


def test_deployments_have_the_streams_and_filters_of_all_sources() -> None:
    names = {table: [entity.name for entity in entities_of(program(), table)] for table in ("media", "press")}
    assert names == {"media": ["Owner", "Photo"], "press": ["Clip"]}

"""`projections model`: the export to NoSQL Workbench, compared with the structure of its models, and read back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.init.models.export import workbench_model
from projections.init.models.file import model_file
from projections.init.models.read import read_model
from projections.init.models.samples import sample_items
from projections.language.canonical import Document
from projections.language.loader import load, loads
from projections.language.program import Program

Run = Callable[..., tuple[int, str, str]]

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "projections" / "rules").glob("*.yaml"))
NOW = datetime(2026, 1, 5, 22, 4)


def exported(rules: Mapping[str, Any] | Path, name: str = "model") -> tuple[Document, dict[str, Any], dict[str, str]]:
    """The typed rules, the model as JSON, and what was left out."""
    made = load(rules) if isinstance(rules, Path) else loads(json.dumps(rules))
    found = workbench_model(name, Program.from_document(made.canonical()), NOW)
    document = json.loads(json.dumps(found.document))
    return made.typed(), document, {one.place: one.reason for one in found.left_out}


def read_back(document: Mapping[str, Any], tmp_path: Path) -> tuple[Document, dict[str, str]]:
    (tmp_path / "model.json").write_text(json.dumps(document))
    model = read_model(tmp_path / "model.json")
    return loads(model_file(model)).typed(), {one.place: one.reason for one in model.unread}


def comparable(rules: Document) -> tuple[Any, Any]:
    """Tables and entities as far as a model has them. One table has no name in a rule file."""
    several = len(rules.tables) > 1
    tables = {
        name if several else "": (one.partition, one.sort, one.indexes, one.separator)
        for name, one in rules.tables.items()
    }
    return tables, {name: (one.table if several else "", dict(one.key)) for name, one in rules.entities.items()}


# --- round trip ---


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_rules_have_the_same_tables_indexes_and_entities_after_a_round_trip(path: Path, tmp_path: Path) -> None:
    rules, document, _ = exported(path, path.stem)
    back, unread = read_back(document, tmp_path)
    assert comparable(back) == comparable(rules)
    assert [place for place in unread if not place.startswith("query ")] == ["(top)"]


def test_index_keys_of_the_application_and_type_attributes_survive(tmp_path: Path) -> None:
    rules, document, _ = exported(ROOT / "projections/rules/social.yaml")
    social, _ = read_back(document, tmp_path)
    assert rules.entities["Comment"].index_key
    assert social.entities["Comment"].index_key == rules.entities["Comment"].index_key
    tags, _ = read_back(exported(ROOT / "projections/rules/tags.yaml")[1], tmp_path)
    assert [tags.entities[name].match for name in ("Article", "Video")] == [{"type": "article"}, {"type": "video"}]


NAMES = st.sampled_from(["A", "B", "C", "D"])
TYPES = st.sampled_from(["S", "N"])


@st.composite
def rule_files(draw: st.DrawFn) -> dict[str, Any]:
    """A table with any key, global and local indexes, any projections, and entities of distinct prefixes."""
    sort = draw(st.none() | TYPES)
    key = {"PK": "S", **({"SK": sort} if sort else {})}
    indexes: dict[str, Any] = {}
    for number in range(draw(st.integers(0, 3))):
        projection = draw(st.sampled_from(["all", "keys_only", ["one"], ["one", "two"]]))
        parts: dict[str, Any] = {"projection": projection}
        if sort and draw(st.booleans()):
            parts |= {"sort": {f"L{number}": draw(TYPES)}, "local": True}
        else:
            parts["partition"] = {f"G{number}": draw(TYPES)}
            if draw(st.booleans()):
                parts["sort"] = {f"H{number}": draw(TYPES)}
        indexes[f"index{number}"] = parts
    separator = draw(st.sampled_from("#|/:"))
    entities = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        template: dict[str, Any] = {"PK": f"{name * 3}{separator}{{x{name}}}"}
        if sort == "N":
            template["SK"] = "{at}"
        elif sort:
            template["SK"] = draw(
                st.sampled_from(["ITEM", f"P{separator}{{y}}", f"Q{separator}{{y}}{separator}{{z*}}"])
            )
        entities[name] = {"key": template}
    return {"table": {"key": key, "indexes": indexes, "separator": separator}, "entities": entities}


@given(rules=rule_files())
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_table_is_the_same_after_a_round_trip(rules: dict[str, Any], tmp_path: Path) -> None:
    before, document, _ = exported(rules)
    back, _ = read_back(document, tmp_path)
    assert comparable(back) == comparable(before)


# --- the structure ---

STRUCTURE = {
    "": {"ModelName", "ModelMetadata", "DataModel"},
    "ModelMetadata": {"Author", "DateCreated", "DateLastModified", "Description", "AWSService", "Version"},
    "DataModel": {
        *("TableName", "KeyAttributes", "NonKeyAttributes", "TableFacets", "GlobalSecondaryIndexes", "DataAccess"),
        "BillingMode",
    },
    "KeyAttributes": {"PartitionKey", "SortKey"},
    "PartitionKey": {"AttributeName", "AttributeType"},
    "SortKey": {"AttributeName", "AttributeType"},
    "NonKeyAttributes": {"AttributeName", "AttributeType"},
    "TableFacets": {"FacetName", "KeyAttributeAlias", "TableData", "NonKeyAttributes", "DataAccess"},
    "KeyAttributeAlias": {"PartitionKeyAlias", "SortKeyAlias"},
    "GlobalSecondaryIndexes": {"IndexName", "KeyAttributes", "Projection"},
    "Projection": {"ProjectionType", "NonKeyAttributes"},
    "DataAccess": {"MySql"},
    "MySql": set(),
}
"""The members of each part, as in published models of version 3.0 that NoSQL Workbench exported."""
OPTIONAL = {"SortKey", "SortKeyAlias", "NonKeyAttributes"}


def structure(value: Any, part: str = "") -> None:
    if isinstance(value, list):
        for one in value:
            structure(one, part)
    elif isinstance(value, dict):
        known = STRUCTURE[part]
        assert value.keys() <= known, part
        assert known - OPTIONAL <= value.keys(), part
        for name, one in value.items():
            if name != "TableData":
                structure(one, name)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_models_have_the_structure_of_those_that_workbench_exports(path: Path) -> None:
    _, document, _ = exported(path, path.stem)
    structure(document)
    assert document["ModelMetadata"]["DateCreated"] == "Jan 05, 2026, 10:04 PM"
    assert (document["ModelMetadata"]["AWSService"], document["ModelMetadata"]["Version"]) == ("Amazon DynamoDB", "3.0")
    for table in document["DataModel"]:
        types = {one["AttributeName"]: one["AttributeType"] for one in table["NonKeyAttributes"]}
        keys = {one["AttributeName"]: one["AttributeType"] for one in table["KeyAttributes"].values()}
        assert not types.keys() & keys.keys()
        indexed = [one for index in table["GlobalSecondaryIndexes"] for one in index["KeyAttributes"].values()]
        assert all((types | keys)[one["AttributeName"]] == one["AttributeType"] for one in indexed)
        for facet in table["TableFacets"]:
            assert set(facet["NonKeyAttributes"]) <= types.keys()
            for row in facet["TableData"]:
                assert {name: next(iter(value)) for name, value in row.items()} == {
                    name: kind for name, kind in (types | keys).items() if name in row
                }


# --- sample items ---


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_samples_have_items_of_every_entity(path: Path) -> None:
    program = Program.from_document(load(path).canonical())
    samples = sample_items(program)
    assert [name for name, items in samples.items() if not items] == []
    for name, items in samples.items():
        table = program.entities[name].table
        found = [program.recognise(program.tables[table].key(table, item), item) for item in items]
        assert {one.entity.name if one else None for one in found} == {name}
        assert not any(attribute.startswith(program.guard_prefix) for item in items for attribute in item)


def test_samples_have_derived_values() -> None:
    rules = ROOT / "projections/rules/commerce.yaml"
    samples = sample_items(Program.from_document(load(rules).canonical()))
    customer = samples["Customer"][0]
    assert customer["orderCount"] == {"N": "1"}
    assert customer["GSI2PK"]["S"].startswith("SPENT#")
    assert samples["OrderById"][0]["customerId"] == {"S": "customer1"}


def test_rules_that_do_not_converge_leave_items_without_derived_values(monkeypatch: pytest.MonkeyPatch) -> None:
    from projections.errors import ProjectionsError
    from projections.init.models import samples

    def refuse(*_: object) -> None:
        raise ProjectionsError("the items do not converge")

    monkeypatch.setattr(samples, "replay", refuse)
    found = sample_items(Program.from_document(load(ROOT / "projections/rules/commerce.yaml").canonical()))
    assert found["Customer"]
    assert found["Totals"] == []


# --- what a model cannot have ---


def test_parts_that_a_model_cannot_have_are_listed() -> None:
    rules = {
        "table": {
            "key": ["PK", "SK"],
            "indexes": {"many": {"partition": ["a", "b"], "sort": "c"}, "near": {"sort": "d", "local": True}},
            "ttl": "until",
        },
        "entities": {
            "A": {"key": {"PK": "A#{a}", "SK": "A"}, "match": {"t": "x"}, "id": "a", "expires": True},
            "N": {"key": {"PK": "N#{a}", "SK": "N"}, "derived": True},
        },
        "projections": {"n": {"from": "A", "expired": "keep", "aggregate": {"into": "N", "set": {"n": "count"}}}},
    }
    _, document, left_out = exported(rules)
    (table,) = document["DataModel"]
    assert table["GlobalSecondaryIndexes"] == []
    assert [one["IndexName"] for one in table["LocalSecondaryIndexes"]] == ["near"]
    assert {"AttributeName": "until", "AttributeType": "N"} in table["NonKeyAttributes"]
    assert left_out == {
        "tables.main.ttl": "a model has no TTL",
        "tables.main.indexes.many": "a key of several attributes: the index is left out",
        "tables.main.indexes.near": left_out["tables.main.indexes.near"],
        "entities.A.match": "a facet cannot contain it",
        "entities.A.id": "a facet cannot contain it",
        "entities.A.expires": "a facet cannot contain it",
        "entities.N.derived": "a facet cannot contain it",
        "projections": "a model has no rules; the sample items have the values that rules derive",
    }
    assert "which AWS does not document" in left_out["tables.main.indexes.near"]


# --- the command ---


def test_the_command_prints_a_model_and_lists_the_rest_on_standard_error(run: Run, tmp_path: Path) -> None:
    code, out, err = run("model", "timeseries")
    document = json.loads(out)
    assert (code, document["ModelName"]) == (0, "timeseries")
    assert [one["FacetName"] for one in document["DataModel"][0]["TableFacets"]] == ["Sensor", "Point", "Hour", "Day"]
    assert "tables.main.ttl: a model has no TTL." in err
    code, out, err = run("model", "timeseries", "-o", tmp_path / "model.json")
    assert (code, out) == (0, "")
    assert "model.json: 1 table, 4 facets, 8 sample items." in err
    assert json.loads((tmp_path / "model.json").read_text())["DataModel"] == document["DataModel"]
    assert run("init", tmp_path / "new", "--from", tmp_path / "model.json")[0] == 0


def test_json_has_the_model_and_what_it_lacks(run: Run, tmp_path: Path) -> None:
    code, out, err = run("model", "timeseries", "--json", "-o", tmp_path / "model.json")
    said = json.loads(out)
    assert (code, err) == (0, "")
    assert said["model"]["DataModel"] == json.loads((tmp_path / "model.json").read_text())["DataModel"]
    assert {"place": "tables.main.ttl", "reason": "a model has no TTL"} in said["leftOut"]

"""`projections init --from`: models of other tools, written for these tests in their documented forms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from projections.deploy.cloudformation import template_of
from projections.errors import UsageError
from projections.init.data_model import Model
from projections.init.model_reading import FORMATS, model_file, read_model
from projections.init.project import PROPOSED
from projections.language.loader import loads
from projections.language.models import Rules
from projections.language.program import Program

Run = Callable[..., tuple[int, str, str]]

MODELS = Path(__file__).parent / "models"


def rules_of(model: Model) -> Rules:
    return loads(model_file(model))


def read(name: str) -> tuple[Model, Rules]:
    model = read_model(MODELS / name)
    return model, rules_of(model)


def unread(model: Model) -> dict[str, str]:
    return {one.place: one.reason for one in model.unread}


def wire(item: dict[str, Any]) -> dict[str, Any]:
    def value(one: Any) -> dict[str, Any]:
        return {"BOOL": one} if isinstance(one, bool) else {"S": one} if isinstance(one, str) else {"N": str(one)}

    return {name: value(one) for name, one in item.items()}


def variables(rules: Rules, entity: str, item: dict[str, Any]) -> dict[str, str]:
    """The variables of an item's key, which must be recognised as this entity."""
    program = Program.from_document(rules.document())
    table = program.entities[entity].table
    found = program.recognise(program.tables[table].key(table, wire(item)), wire(item))
    assert found is not None
    assert found.entity.name == entity
    return dict(found.variables)


def index_keys(rules: Rules, entity: str, item: dict[str, Any]) -> dict[str, str | None]:
    known = {name: {"S": text} for name, text in variables(rules, entity, item).items()} | wire(item)
    return {name: template.render(known.get) for name, template in rules.entities[entity].index_key.items()}


# --- NoSQL Workbench ---


def test_workbench_model_has_its_tables_and_indexes() -> None:
    model, rules = read("workbench.json")
    assert model.tables == ["library", "audit.log"]
    assert rules.document()["tables"] == {
        "library": {
            "key": {"PK": "S", "SK": "S"},
            "indexes": {"byDue": {"partition": {"GSI1PK": "S"}, "sort": {"GSI1SK": "S"}, "projection": ["dueOn"]}},
            "separator": "#",
        },
        "audit-log": {"key": {"day": "S", "at": "N"}, "indexes": {}, "separator": "#"},
    }


def test_facets_declare_entities_and_others_are_inferred_from_their_items() -> None:
    """Placeholders in three notations; a facet without templates, or with a wrong one, gives only the items."""
    _, rules = read("workbench.json")
    assert {name: entity["key"] for name, entity in rules.document()["entities"].items()} == {
        "Reader": {"PK": "READER#{readerId}", "SK": "PROFILE"},
        "Loan": {"PK": "READER#{readerId}", "SK": "LOAN#{copyId}"},
        "Fine": {"PK": "READER#{readerId}", "SK": "FINE#{at}"},
        "Book": {"PK": "SHELF#{shelfId}", "SK": "BOOK#{bookId}"},
        "Seat": {"PK": "TABLE#{tableId}", "SK": "SEAT#{seatId}"},
        "AuditLogItem": {"day": "{day*}", "at": "{at}"},
    }
    assert "weight N" in model_file(read_model(MODELS / "workbench.json"))


def test_what_a_workbench_model_has_beside_that_is_listed() -> None:
    found = unread(read("workbench.json")[0])
    assert found["DataModel[0].TableData[0]"] == "a sample item without the key attribute SK"
    wrong = "a sample item with values that are not DynamoDB's JSON"
    assert found["DataModel[0].TableData[1]"] == found["DataModel[0].TableData[2]"] == wrong
    assert (
        "do not fit the sample item with PK = TABLE#1, SK = SEAT#1"
        in found["DataModel[0].TableFacets[4].KeyAttributeAlias"]
    )
    assert "Metadata may be a name or a constant" in found["DataModel[0].TableFacets[5].KeyAttributeAlias"]
    assert "capacity is not part of a rule file" in found["DataModel[0].ProvisionedCapacitySettings"]


def test_facets_with_one_key_are_entities_by_a_type_attribute(tmp_path: Path) -> None:
    document = json.loads((MODELS / "workbench.json").read_text())
    (table, _) = document["DataModel"]

    def facet(name: str, number: int) -> dict[str, Any]:
        item = wire({"PK": "D#1", "SK": f"DOC#{number}", "sort": name.lower()})
        alias = {"PartitionKeyAlias": "D#{d}", "SortKeyAlias": "DOC#{doc}"}
        return {"FacetName": name, "KeyAttributeAlias": alias, "TableData": [item]}

    document["DataModel"] = [{**table, "TableFacets": [facet("Bill", 1), facet("Credit", 2)], "TableData": []}]
    (tmp_path / "model.json").write_text(json.dumps(document))
    rules = rules_of(read_model(tmp_path / "model.json"))
    assert {name: entity["match"] for name, entity in rules.document()["entities"].items()} == {
        "Bill": {"sort": "bill"},
        "Credit": {"sort": "credit"},
    }


def test_sparse_index_keys_of_sample_items_become_a_rule(tmp_path: Path) -> None:
    document = json.loads((MODELS / "workbench.json").read_text())
    (table, _) = document["DataModel"]
    items = []
    for number in range(30):
        own = {"PK": f"COPY#c{number}", "SK": "INFO", "due": f"2026-03-{number % 7 + 10}", "reader": f"r{number % 4}"}
        keys = {"GSI1PK": f"DUE#{own['reader']}", "GSI1SK": own["due"]} if number % 3 else {}
        items.append(wire(own | keys | {"state": "lent" if number % 3 else "here"}))
    document["DataModel"] = [{**table, "TableFacets": [], "TableData": items}]
    (tmp_path / "model.json").write_text(json.dumps(document))
    (rule,) = [rule for proposal in read_model(tmp_path / "model.json").proposals for rule in proposal.rules]
    keys = {"GSI1PK": "DUE#{reader}", "GSI1SK": "{due}"}
    assert rule.body == {"from": "Copy", "where": {"state": ["lent"]}, "index": keys}


# --- CloudFormation ---


def test_cloudformation_table() -> None:
    model, rules = read("template.yaml")
    assert (model.tables, model.existing) == (["shop"], True)
    assert rules.document()["tables"]["main"] == {
        "key": {"PK": "S", "SK": "N"},
        "indexes": {"byL": {"sort": {"L": "S"}, "projection": "keys_only", "local": True}},
        "ttl": "ttl",
        "separator": "#",
    }
    assert "The stream of shop is off" in model_file(model)


def test_a_table_of_a_template_that_cannot_be_read_is_listed(tmp_path: Path) -> None:
    document = json.loads(json.dumps(template_of((MODELS / "template.yaml").read_text()).data))
    document["Resources"]["Odd"] = {"Type": "AWS::DynamoDB::Table", "Properties": {"KeySchema": []}}
    (tmp_path / "t.json").write_text(json.dumps(document))
    model = read_model(tmp_path / "t.json")
    assert model.tables == ["shop"]
    assert unread(model) == {"Resources.Odd.Properties": "AttributeDefinitions is missing"}


@pytest.mark.parametrize(("form", "name"), [("sam", "template.yaml"), ("cloudformation", "template.json")])
def test_the_ledger_of_a_template_is_not_an_application_table(tmp_path: Path, run: Run, form: str, name: str) -> None:
    template = tmp_path / name
    assert run("template", "social", "--format", form, "-o", template)[0] == 0
    model = read_model(template)
    assert model.tables == ["ApplicationTable"]
    place, reason = "Resources.LedgerTable.Properties", "is the ledger of the rules (LEDGER_TABLE_NAME), not an"
    assert unread(model).keys() == {place}
    assert unread(model)[place].startswith(reason)


# --- ElectroDB ---

VARIABLES = {
    "Building": {"cityIdLower": "rome", "use": "homes", "buildingIdLower": "b1"},
    "Offer": {"cityId": "Rome", "offerId": "O1", "rent": "900"},
    "Notice": {"cityId": "Rome", "noticeId": "N1"},
    "Meter": {"meterId": "M1", "at": "17"},
    "Alone": {"aloneIdLower": "a1"},
}
"""The variables in the keys of electrodb-items.json, the items that ElectroDB 3.9.3 writes for electrodb.json."""


@pytest.mark.parametrize("entity", VARIABLES)
def test_items_that_electrodb_writes_are_recognised(entity: str) -> None:
    _, rules = read("electrodb.json")
    item = json.loads((MODELS / "electrodb-items.json").read_text())[entity]
    assert variables(rules, entity, item) == VARIABLES[entity]
    assert index_keys(rules, entity, item) == {name: item[name] for name in rules.entities[entity].index_key}


def test_electrodb_indexes_are_those_of_all_entities() -> None:
    model, rules = read("electrodb.json")
    assert rules.document()["tables"]["app1"]["indexes"] == {
        "gsi1": {"partition": {"gsi1pk": "S"}, "sort": {"gsi1sk": "S"}},
        "lsi1": {"partition": {"pk": "S"}, "sort": {"lsi1sk": "S"}, "projection": ["built_on", "cityId"]},
    }
    assert set(rules.entities["Building"].index_key) == {"gsi1pk", "gsi1sk"}
    found = unread(model)
    assert "may be a local index" in found["Building.indexes.byListing"]
    assert "listed is a boolean" in found["Building.indexes.byListing.sk"]
    assert "the attribute is left out" in found["Building.attributes.extra"]
    text = model_file(model)
    assert "# In keys, cityIdLower is cityId in lower case, as ElectroDB composes them." in text


def schema(**changes: Any) -> dict[str, Any]:
    index = {"pk": {"field": "pk", "composite": ["id"]}, "sk": {"field": "sk", "composite": []}}
    return {
        "model": {"service": "s", "entity": "E", "version": "1"},
        "attributes": {"id": {"type": "string"}, "ids": {"type": "list"}, "n": {"type": "number"}},
        "indexes": {"all": index},
        **changes,
    }


@pytest.mark.parametrize(
    ("pk", "place", "reason"),
    [
        ({"field": "pk", "composite": ["no"]}, "indexes.all.pk.composite[0]", "the schema has no attribute no"),
        ({"field": "pk", "composite": ["ids"]}, "attributes.ids.type", "E is left out: a key is composed of"),
        (
            {"field": "pk", "composite": ["id"], "casing": "x"},
            "indexes.all.pk.casing",
            "expected default, lower, upper",
        ),
        ({"field": "pk", "facets": "a#:id"}, "indexes.all.pk", "composite is missing"),
        ({"composite": ["id"]}, "indexes.all.pk", "field is missing"),
        (
            {"field": "pk", "composite": ["id"], "template": "${id}${id}"},
            "indexes.all",
            "E is left out: no unambiguous key template",
        ),
    ],
)
def test_electrodb_key_that_cannot_be_read(tmp_path: Path, pk: dict[str, Any], place: str, reason: str) -> None:
    """An invalid schema is an error; a key that a rule file cannot have leaves the entity out. Both name the place."""
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema(indexes={"all": {"pk": pk, "sk": {"field": "sk", "composite": ["n"]}}})))
    if "left out" in reason:
        model = read_model(path)
        assert reason in unread(model)[place]
        assert list(rules_of(model).entities) == ["Item"]
    else:
        with pytest.raises(UsageError) as raised:
            read_model(path)
        assert str(raised.value).startswith(f"{path}: {place}: {reason}")


# --- files that are no model ---


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"DataModel": [\n  {"TableName": }]}', ":2:17: not JSON: Expecting value. Export the model again"),
        ("[" * 100_000, ": nested too deeply"),
        ("{}", f": unknown format. Pass {FORMATS}"),
        ("[]", ": unknown format. Pass"),
        ("a: 1", "there is no mapping `Resources`. Pass a NoSQL Workbench data model"),
        ("a: [", ": not YAML"),
        ('{"DataModel": []}', ": DataModel: the model has no table"),
        ('{"DataModel": {}}', ": DataModel: expected a list, found a mapping"),
        ('{"DataModel": [{"TableName": "t"}]}', ": DataModel[0]: KeyAttributes is missing"),
        ('{"DataModel": [{"TableName": "t", "KeyAttributes": {}}]}', ": DataModel[0]: the partition key is missing"),
        (
            '{"DataModel": [{"TableName": "t", "KeyAttributes": {"PartitionKey": {"AttributeName": "a", "AttributeType":'
            ' "M"}}}]}',
            ': DataModel[0].KeyAttributes.PartitionKey.AttributeType: expected S, N or B, found "M"',
        ),
        (
            '{"ModelMetadata": {"AWSService": "Amazon Keyspaces"}, "DataModel": []}',
            ": ModelMetadata.AWSService: a model of Amazon Keyspaces: this command reads models of Amazon DynamoDB",
        ),
        (
            '{"Resources": {}}',
            ": no table could be read from this template: it has no resource of type AWS::DynamoDB::Table",
        ),
    ],
)
def test_file_that_is_no_model_is_one_message(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        read_model(path)
    assert f"{path}{message}" in str(raised.value) or message in str(raised.value)
    assert str(raised.value).startswith(str(path))


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_model(tmp_path / "no.json")
    (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')
    with pytest.raises(UsageError, match=r"latin.json: not UTF-8 at byte 2"):
        read_model(tmp_path / "latin.json")


# --- the command ---


@pytest.mark.parametrize("name", ["workbench.json", "electrodb.json", "template.yaml"])
def test_project_of_a_model_passes_its_checks(tmp_path: Path, run: Run, name: str) -> None:
    code, out, err = run("init", tmp_path / "new", "--from", MODELS / name)
    assert (code, err) == (0, "")
    assert f"Read {MODELS / name} (" in out
    rules = tmp_path / "new" / "rules.yaml"
    assert run("check", rules)[0] == 0
    assert run("check", rules, "--template", tmp_path / "new" / "template.yaml")[0] == 0


def test_json_lists_tables_entities_and_what_was_not_read(tmp_path: Path, run: Run) -> None:
    code, out, err = run("init", tmp_path, "--from", MODELS / "electrodb.json", "--json")
    said = json.loads(out)
    assert (code, err, said["tables"]) == (0, "", ["app1", "app2", "app3"])
    assert [one["name"] for one in said["entities"]] == [*read("electrodb.json")[1].entities]
    place = "Building.attributes.extra"
    assert {"place": place, "reason": unread(read("electrodb.json")[0])[place]} in said["unread"]
    assert {name for name in said["files"] if not name.startswith("vendor/")} == set(PROPOSED)


def test_model_and_table_are_not_combined(tmp_path: Path, run: Run) -> None:
    code, _, err = run("init", tmp_path, "--from", MODELS / "template.yaml", "--table", "app")
    assert (code, "--table and --from cannot be combined" in err) == (2, True)
    (tmp_path / "rules.yaml").write_text("mine")
    code, _, err = run("init", tmp_path, "--from", MODELS / "template.yaml")
    assert (code, "rules.yaml exists already, so nothing was written" in err) == (2, True)

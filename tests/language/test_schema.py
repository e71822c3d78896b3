"""The JSON Schema for editors: good files fit it, typical mistakes do not, and everything is explained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from projections.language.schema import json_schema
from projections.language.source import read

RULES = Path(__file__).parent / "rules"
GOOD = sorted(path for path in RULES.glob("*.yaml") if not path.name.startswith("broken"))
BROKEN = sorted(RULES.glob("broken-*.yaml"))
BASE = "table: {key: [PK]}\nentities: {A: {key: {PK: 'A#{a}'}}}\n"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(schema)


def test_it_is_a_schema_of_draft_2020_12(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_files_fit(path: Path, validator: Draft202012Validator) -> None:
    errors = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(read(path.read_text()).data)]
    assert errors == []


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_invalid_files_do_not_match_the_schema(path: Path, validator: Draft202012Validator) -> None:
    assert not validator.is_valid(read(path.read_text()).data)


def test_every_field_of_every_model_is_described(schema: dict[str, Any]) -> None:
    models = {"Rules": schema, **{name: model for name, model in schema["$defs"].items() if name[0].isupper()}}
    silent = [
        f"{name}.{field}"
        for name, model in models.items()
        if name != "IgnoreCase"
        for field, part in model.get("properties", {}).items()
        if not part.get("description")
    ]
    assert silent == []


def test_every_construct_appears(schema: dict[str, Any]) -> None:
    names = set(schema["properties"])
    for model in schema["$defs"].values():
        names |= set(model.get("properties", {}))
    assert names >= {"table", "tables", "entities", "projections", "retired", "guard_prefix"}
    assert names >= {"key", "indexes", "ttl", "separator", "match", "id", "derived", "expires", "index_key"}
    assert names >= {"from", "where", "bind", "each", "expired", "hold"}
    assert names >= {"copy", "aggregate", "top", "latest", "index", "embed"}
    assert names >= {"into", "attributes", "values", "set", "shards", "as", "by", "limit", "order", "on_delete"}
    assert names >= {"prefix", "suffix", "exists", "anything-but", "numeric", "equals-ignore-case", "$or"}


def test_nothing_refers_to_a_definition_that_is_missing(schema: dict[str, Any]) -> None:
    def references(part: object) -> set[str]:
        if isinstance(part, list):
            return {name for inner in part for name in references(inner)}
        if not isinstance(part, dict):
            return set()
        own = {str(part["$ref"])} if "$ref" in part else set()
        return own | {name for inner in part.values() for name in references(inner)}

    assert references(schema) == {f"#/$defs/{name}" for name in schema["$defs"]}


@pytest.mark.parametrize(
    "mistake",
    [
        "tabel: {key: [PK]}",
        "tables: {main: {key: [PK]}}",
        "projections: {1st: {from: A, index: {X: a}}}",
        "projections: {r: {from: A}}",
        "projections: {r: {from: A, index: {X: a}, copy: {into: B, attributes: all}}}",
        "projections: {r: {from: A, where: , index: {X: a}}}",
        "projections: {r: {from: A, index: {X: 1}}}",
        "projections: {r: {from: A, index: []}}",
        "projections: {r: {from: A, where: {x: {prefix: a}}, index: {X: a}}}",
        "projections: {r: {from: A, where: {x: [{prefx: a}]}, index: {X: a}}}",
        "projections: {r: {from: A, where: {x: [{numeric: ['~', 1]}]}, index: {X: a}}}",
        "projections: {r: {from: A, each: {a: b, c: d}, aggregate: {into: B, set: {n: count}}}}",
        "projections: {r: {from: A, aggregate: {into: B, set: {n: cuont}}}}",
        "projections: {r: {from: A, aggregate: {into: B, set: {n: sum}}}}",
        "projections: {r: {from: A, aggregate: {into: B, set: {n: {sum: a, max: b}}}}}",
        "projections: {r: {from: A, aggregate: {into: B, set: {n: count}, shards: 0}}}",
        "projections: {r: {from: A, top: {into: B, by: c, limit: 5, attributes: [d]}}}",
        "projections: {r: {from: A, latest: {into: B, by: c, attributes: all}}}",
        "projections: {r: {from: A, embed: {into: B, match: {}, attributes: [d]}}}",
        "retired: {r: maybe}",
    ],
)
def test_typical_mistakes_do_not_fit(mistake: str, validator: Draft202012Validator) -> None:
    assert validator.is_valid(read(BASE).data)
    assert not validator.is_valid(read(BASE + mistake).data)

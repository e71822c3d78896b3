"""Reading templates: YAML with short forms, JSON, whatever is broken; and what of their values they decide themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT

from projections.deploy.cloudformation import Document, Resolution, read_template, template_of
from projections.errors import RulesError

TEMPLATE = ROOT / "template.yaml"


@pytest.mark.deep
def test_the_committed_template_reads_as_cfn_lint_reads_it() -> None:
    from cfnlint.decode import decode  # half a second that only this test needs

    theirs, mistakes = decode(str(TEMPLATE))
    assert not mistakes
    ours = read_template(TEMPLATE).data
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


def test_places_are_lines_and_columns() -> None:
    document = template_of("Resources:\n  A:\n    Type: X\n    Properties: {Name: !Sub '${B}'}\n")
    assert document.place(("Resources", "A", "Properties", "Name")) == (4, 18)
    assert document.place(("Resources", "A", "Properties", "Absent", 3)) == (4, 5)


def test_json_is_read_with_its_places() -> None:
    document = template_of('{"Resources": {\n  "A": {"Type": "X"}}}')
    assert document.place(("Resources", "A")) == (2, 3)


def test_text_stays_text_as_cloudformation_has_it() -> None:
    text = "Resources: {A: {Type: X, Properties: {a: 2012-10-17, b: 0123, c: yes, d: 1_000, e: 0x1f, f: ~, g: 1.5}}}"
    properties = template_of(text).data["Resources"]["A"]["Properties"]
    assert properties == {"a": "2012-10-17", "b": 123, "c": "yes", "d": 1000, "e": 31, "f": None, "g": 1.5}


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join([*lines, "Resources: {}"])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no mapping `Resources`"),
        ("Resources: [1]", "no mapping `Resources`"),
        ("a: [", "not YAML"),
        ("{", "not YAML"),
        ('{"Resources": {"a": 1, "a": 2}}', "is defined twice"),
        ("Resources: {[1]: 2}", "a name must be plain text"),
        ("Resources: &a {x: *a}", "an alias refers to a value that contains it"),
        ("x: " + "[" * 500, "nested too deeply"),
        (bomb(), "too large"),
        ("\0", "not YAML"),
        ("%YAML 9.9\n---\nx", "not YAML"),
        ("x" * 5_000_001, "too large: more than 4 MiB of YAML"),
    ],
    ids=lambda value: str(value)[:20].strip(),
)
def test_invalid_template_is_an_error_with_its_place(text: str, reason: str) -> None:
    with pytest.raises(RulesError) as caught:
        template_of(text, "t.yaml")
    (problem,) = caught.value.problems
    assert reason in problem.message
    assert problem.file == "t.yaml"
    assert problem.line >= 1


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="cannot be read"):
        read_template(tmp_path / "none")
    with pytest.raises(RulesError, match="cannot be read"):
        read_template(tmp_path)
    (tmp_path / "latin").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(RulesError, match="not UTF-8"):
        read_template(tmp_path / "latin")


# Values

DATA: dict[str, Any] = {
    "Parameters": {
        "Name": {"Type": "String", "Default": "app"},
        "Open": {"Type": "String"},
        "Size": {"Type": "Number", "Default": 7},
        "List": {"Type": "CommaDelimitedList", "Default": "a, b"},
        "Secret": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/path"},
    },
    "Conditions": {
        "Yes": {"Fn::Equals": [{"Ref": "Name"}, "app"]},
        "No": {"Fn::Not": [{"Condition": "Yes"}]},
        "Unknown": {"Fn::Equals": [{"Ref": "Open"}, "x"]},
        "Circle": {"Fn::Or": [{"Condition": "Circle"}, {"Condition": "No"}]},
        "Either": {"Fn::Or": [{"Condition": "Unknown"}, {"Condition": "Yes"}]},
        "Both": {"Fn::And": [{"Condition": "Yes"}, {"Condition": "No"}]},
    },
    "Resources": {},
}


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ({"Ref": "Name"}, "app"),
        ({"Ref": "Open"}, "${Open}"),
        ({"Ref": "Size"}, 7),
        ({"Ref": "List"}, "${List}"),
        ({"Ref": "Secret"}, "${Secret}"),
        ({"Ref": "Table"}, "${Table}"),
        ({"a": {"Ref": "AWS::NoValue"}, "b": [1, {"Ref": "AWS::NoValue"}]}, {"b": [1]}),
        ({"Fn::GetAtt": ["Table", "Arn"]}, "${Table.Arn}"),
        ({"Fn::Sub": "${Name}-${Open}-${Table.Arn}-${AWS::Region}"}, "app-${Open}-${Table.Arn}-${AWS::Region}"),
        ({"Fn::Sub": ["${X}/${Name}", {"X": {"Ref": "Size"}}]}, "7/app"),
        ({"Fn::Join": ["-", ["a", {"Ref": "Name"}]]}, "a-app"),
        ({"Fn::If": ["Yes", 1, 2]}, 1),
        ({"Fn::If": ["No", 1, 2]}, 2),
        ({"Fn::If": ["Unknown", 1, 2]}, '${Fn::If ["Unknown",1,2]}'),
        ({"Fn::If": ["Circle", 1, 2]}, '${Fn::If ["Circle",1,2]}'),
        ({"Fn::If": ["Either", 1, 2]}, 1),
        ({"Fn::If": ["Both", 1, 2]}, '${Fn::If ["Both",1,2]}'),
        ({"Fn::FindInMap": ["M", "us", "size"]}, '${Fn::FindInMap ["M","us","size"]}'),
        ({"Fn::Select": [1, {"Fn::Split": ["/", "a/b"]}]}, "b"),
        ({"Fn::Select": [9, ["a"]]}, '${Fn::Select [9,["a"]]}'),
        ({"Fn::ImportValue": {"Fn::Sub": "${Name}-role"}}, "${Fn::ImportValue app-role}"),
        ({"Fn::Sub": 3}, "${Fn::Sub 3}"),
        ({"Ref": ["a"]}, "${['a']}"),
    ],
    ids=str,
)
def test_values_are_resolved_as_far_as_the_template_determines_them(value: Any, resolved: Any) -> None:
    assert Resolution(Document("t", DATA)).value(value) == resolved


def test_resources_whose_condition_fails_are_not_there_and_globals_are_merged() -> None:
    function = {
        "Type": "AWS::Serverless::Function",
        "Properties": {"Environment": {"Variables": {"B": 2}}, "Timeout": 9},
    }
    data = {
        **DATA,
        "Globals": {"Function": {"Timeout": 3, "MemorySize": 128, "Environment": {"Variables": {"A": 1, "B": 1}}}},
        "Resources": {
            "Here": {"Type": "X", "Condition": "Yes"},
            "Gone": {"Type": "X", "Condition": "No"},
            "Perhaps": {"Type": "X", "Condition": "Unknown"},
            "Function": function,
            "Junk": 3,
        },
    }
    found = Resolution(Document("t", data)).resources
    assert list(found) == ["Here", "Perhaps", "Function"]
    assert found["Function"].properties == {
        "Timeout": 9,
        "MemorySize": 128,
        "Environment": {"Variables": {"A": 1, "B": 2}},
    }


def test_conditions_that_name_each_other_twice_take_no_time() -> None:
    conditions = {f"C{n}": {"Fn::Or": [{"Condition": f"C{n + 1}"}] * 2} for n in range(200)}
    data = {"Conditions": {**conditions, "C200": {"Fn::Equals": ["a", "a"]}}, "Resources": {}}
    assert Resolution(Document("t", data)).condition("C0") is True

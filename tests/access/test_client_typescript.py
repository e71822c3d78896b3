"""Generated modules in TypeScript do what those in Python do: items, order, pages, keys, items to put, requests."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from emulators import ROOT
from generated import called, camel, compiled, module_of, simple, table_of
from test_board_positions import HEAD, boards, client, played
from test_client import EVIL, HOSTILE, as_boto3, cases_of, rules_with
from test_client_random import Case, cases

from projections.api import load, loads
from projections.inspect.client import client_of
from projections.language.ruleset import RuleSet

SOCIAL = load(ROOT / "tests/access/client/social.yaml")


def module(rules: RuleSet) -> str:
    return client_of(rules, "rules.yaml", "typescript").text


@pytest.mark.deep
def test_generated_functions_return_what_answers_do(tmp_path: Path, dynamodb_local_url: str) -> None:
    examples: list[tuple[str, Case]] = [(f"rules{n}", case) for n in range(16) for case in cases(n, dynamodb_local_url)]
    modules, calls = {}, []
    for name, case in examples:
        modules[name] = modules.get(name) or module(case.rules)
        given = {camel(word.replace(".", "_")): value for word, value in case.given.items()}
        call = {"module": name, "name": camel(case.function), "tables": [case.table.name], "limit": case.size}
        calls.append({**call, "parameters": [given] if given else []})
    compiled(tmp_path, modules)
    answers = called(tmp_path, calls, dynamodb_local_url)
    for (_, case), answer in zip(examples, answers, strict=True):
        assert "error" not in answer, (answer, case)
        case.compare(answer["items"], answer["pages"])
    assert sum(bool(answer["items"]) for answer in answers) >= 6
    assert sum(len(answer["pages"]) > 1 for answer in answers) >= 4


def test_modules_of_bundled_patterns_and_of_hostile_names_compile(tmp_path: Path) -> None:
    texts = {path.stem: module(load(path)) for path in sorted((ROOT / "projections/rules").glob("*.yaml"))}
    texts["hostile"] = client_of(loads(json.dumps(HOSTILE)), EVIL + "*/", "typescript").text
    assert all(letter.isprintable() or letter == "\n" for letter in texts["hostile"])
    compiled(tmp_path, texts)


BIKES = """
table: {key: {PK: S, SK: N}, indexes: {G: {status: S, price: N}}}
entities: {Bike: {key: {PK: "BIKE#{bikeId}", SK: "{no}"}, required: [status, price]}}
projections: {}
queries: {bikeKey: {get: Bike, by: [bikeId, no]}, partsOf: {find: Bike, by: [bikeId]}}
"""


def test_types_reject_mistakes_and_key_variables_are_read_from_items(tmp_path: Path) -> None:
    client = client_of(loads(BIKES), "rules.yaml", "typescript")
    assert client.functions == {"bikeKey": "bikeKey_", "partsOf": "partsOf"}
    assert client.renamed == {"bikeKey": "bikeKey makes keys of Bike"}
    usage = (ROOT / "tests/access/client/types.ts").read_text(encoding="utf-8")
    compiled(tmp_path, {"bikes": client.text, "types": usage})
    call = {"module": "types", "name": "made", "parameters": []}
    other = {"module": "bikes", "name": "bikeKeyVariables", "parameters": [{"PK": "CAR#1", "SK": 1}]}
    made, refused = called(tmp_path, [call, other])
    key = {"PK": "BIKE#b", "SK": 7}
    assert made["value"] == [{"status": "free", "price": 3, "colour": "red", **key}, {"bikeId": "b", "no": 7}, key]
    assert refused["error"] == "RangeError"
    python = module_of(client_of(loads(BIKES), "rules.yaml").text)
    assert python.bike_key_variables(python.bike_item("b", 7, {})) == {"bike_id": "b", "no": 7}
    with pytest.raises(ValueError, match="another form"):
        python.bike_key_variables({"PK": "CAR#1", "SK": 1})


PIPES = {
    "table": {"key": ["PK", "SK"], "indexes": {f"G{n}": [f"G{n}PK", f"G{n}SK"] for n in range(6)}},
    "entities": {
        "Event": {
            "key": {"PK": "E#{id}", "SK": "E#{rest*}"},
            "index_key": {
                "G0PK": "{at|date(%Y %m %d %H:%M:%S.%f %j %G-%V-%u)}",
                "G0SK": "{at|date(%Y-%m-%dT%H %j %G-%V-%u, Europe/Berlin)}`${{x}}\\",
                "G1PK": "{at|date(%H:%M, America/St_Johns)}",
                "G1SK": "{day|date(%G-W%V, from=%Y%m%d)}",
                "G2PK": "{week|date(%Y-%m-%d, from=%G-W%V)}",
                "G2SK": "{ms|date(%Y-%m-%d %H:%M:%S.%f, from=milliseconds)}",
                "G3PK": "{ulid|date(%Y-%m-%dT%H:%M:%S.%f, from=ulid)}",
                "G3SK": "{n|pad(12)}#{n|invert(12)}",
                "G4PK": "{text|bucket(1000)}",
                "G4SK": "{text|lower}/{text|upper}/{text|truncate(3)}",
                "G5PK": "{number}#{amount|default(none)}",
                "G5SK": "{number|bucket(7)}",
            },
        }
    },
}
TEXTS = ("a", "Ärger", "ΑΣ", "ß\U0001f600x", "\u2028`${x}", "İstanbul", "ŒUVRE", "x" * 9)
TIMES = (
    "2026-03-29T00:59:59.999999Z",
    "2026-03-29T01:00:00Z",
    "2026-10-25T02:30:00+02:00",
    "2024-12-30",
    "2027-01-03T23:59:59-11:30",
    "1969-12-31T23:59:59.5Z",
    "20260131T233000Z",
    "0999-01-01",
    "2026-02-30",
    "noon",
)


@pytest.mark.deep
def test_items_to_put_have_the_index_keys_of_python(tmp_path: Path) -> None:
    rules = loads(json.dumps(PIPES))
    python = module_of(client_of(rules, "pipes.yaml").text)
    random = Random(7)
    drawn = []
    for _ in range(400):
        attributes: dict[str, Any] = {
            "at": random.choice([*TIMES, random.randint(10**8, 4 * 10**9)]),
            "day": random.choice(["20260131", "20241230", "20261301", "2026"]),
            "week": random.choice(["2026-W01", "2020-W53", "2026-W53", "2026-W00"]),
            "ms": random.choice([-1, 0, 1767225600123, random.randint(0, 10**13)]),
            "ulid": random.choice(["01ARZ3NDEKTSV4RRFFQ69G5FAV", "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"]),
            "n": random.choice([0, 7, "0042", 10**12 - 1, 10**12, -1, "x", 1.5]),
            "text": random.choice(TEXTS),
            "number": random.choice([0, -0.5, 1e-7, 123456789012, 1e21, 0.1]),
        }
        kept = random.choices([*attributes], k=random.randint(1, 8))
        drawn.append({name: attributes[name] for name in kept})
    calls = [
        {"module": "pipes", "name": "eventItem", "parameters": [{"id": "1", "rest": "a#b"}, attributes]}
        for attributes in drawn
    ]
    compiled(tmp_path, {"pipes": module(rules)})
    keys = 0
    for attributes, answer in zip(drawn, called(tmp_path, calls), strict=True):
        exact = {
            name: Decimal(str(value)) if isinstance(value, int | float) else value for name, value in attributes.items()
        }
        try:
            expected = simple(python.event_item("1", "a#b", exact))
        except (ValueError, OverflowError):
            assert answer.get("error") == "RangeError", (attributes, answer)
        else:
            assert answer.get("value") == expected, (attributes, answer)
            keys += sum(name[0] == "G" for name in expected)
    assert keys > 400


@pytest.mark.deep
@pytest.mark.parametrize(("name", "field"), [("templates", "template"), ("patterns", "pattern")])
def test_the_cases_of_the_language_give_what_they_give_in_python(tmp_path: Path, name: str, field: str) -> None:
    examples = cases_of(name, field)
    entities = {f"E{number}": entity for number, (_, _, entity) in enumerate(examples)}
    rules = loads(json.dumps(rules_with(entities)))
    python = module_of(client_of(rules, "cases.yaml").text)
    calls: list[dict[str, Any]] = []
    expected: list[Any] = []
    for number, (_, item, _) in enumerate(examples):
        attributes = as_boto3(item)
        if name == "patterns":
            whole = {"PK": f"E{number}#1", "SK": "A", **attributes}
            calls.append({"module": "cases", "name": f"isE{number}", "parameters": [whole]})
            expected.append(getattr(python, f"is_e{number}")(whole))
            continue
        calls.append({"module": "cases", "name": f"e{number}Item", "parameters": [{"zz": "1"}, attributes]})
        try:
            expected.append(getattr(python, f"e{number}_item")("1", attributes).get("T"))
        except (ValueError, ArithmeticError, TypeError, AttributeError):
            expected.append(None)
    compiled(tmp_path, {"cases": module(rules)})
    for example, answer, wanted in zip(examples, called(tmp_path, calls), expected, strict=True):
        value = answer.get("value")
        if name == "templates" and "result" not in example[0]:
            continue  # a value that a pipe cannot take may be refused or left out
        assert (value.get("T") if isinstance(value, dict) else value) == wanted, (example, answer)


CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sign_up", {"user": {"PK": "USER#1", "SK": "PROFILE", "name": "Ann"}}),
    ("rename", {"user_key": {"PK": "USER#1", "SK": "PROFILE"}, "version": 3, "name": "Anna"}),
    ("edit", {"post_key": {"PK": "USER#1", "SK": "POST#2#3"}, "changes": {"title": "x", "a b": 1}}),
    ("forget", {"comment_key": {"PK": "POST#1", "SK": "COMMENT#1#2"}}),
    ("user_key", {"user_id": "1"}),
    ("post_key", {"user_id": "1", "created_at": "2026", "post_id": "p"}),
    ("post_key", {"user_id": "1#2", "created_at": "2026", "post_id": "p"}),
    ("post_key", {"user_id": "", "created_at": "2026", "post_id": "p"}),
)


def test_requests_and_keys_are_those_of_python(tmp_path: Path) -> None:
    compiled(tmp_path, {"social": module(SOCIAL)})
    python = module_of(client_of(SOCIAL, "social.yaml").text)
    writes = {"sign_up", "rename", "edit", "forget"}
    calls = [
        {
            "module": "social",
            "name": camel(name),
            "tables": ["app"] if name in writes else [],
            "parameters": [{camel(word): value for word, value in words.items()}],
        }
        for name, words in CALLS
    ]
    like = {"like": {"PK": "USER#1"}, "postKey": {"PK": "USER#2"}}
    calls.append({"module": "social", "name": "likeOnce", "tables": ["app"], "parameters": [like]})
    *answers, together = called(tmp_path, calls)
    for (name, words), answer in zip(CALLS, answers, strict=True):
        try:
            expected = getattr(python, name)(**words)
        except ValueError:
            assert answer["error"] == "RangeError"
            continue
        assert answer["value"] == {**({"TableName": "app"} if name in writes else {}), **expected}
    assert together["value"] == python.like_once("app", {"PK": "USER#1"}, {"PK": "USER#2"})


@pytest.mark.deep
def test_ranks_are_those_of_python(tmp_path: Path, dynamodb_local_url: str) -> None:
    modules, calls, expected = {}, [], []
    for seed in range(6):
        text, scores, _ = boards(seed)
        rules = loads(HEAD + text)
        board = client(dynamodb_local_url, rules, played(rules, scores).store)
        modules[f"rules{seed}"] = module(rules)
        bounds = [None, *scores.values(), Decimal("-1e40"), Decimal("0.123456"), Decimal("1e40")]
        asked: list[tuple[str, list[Any]]] = [("rank", [score]) for score in {*scores.values()}]
        pairs = [*zip(bounds, reversed(bounds), strict=True)]
        asked += [(method, [low, high]) for low, high in pairs for method in ("between", "sum_between")]
        asked += [("at", [position]) for position in (1, 2, len(scores), len(scores) + 1, 0)]
        names = {"module": f"rules{seed}", "tables": [board.ledger.name]}
        for method, values in asked:
            given = [value for value in values if value is not None or "between" in method]
            call = {**names, "name": "ranks", "parameters": [{"board": "b"}]}
            calls.append({**call, "method": camel(method), "values": given})
            expected.append(attempted(getattr(board.ranking, method), *values))
        for first, last in ((1, 3), (2, 2), (len(scores), len(scores) + 5), (len(scores) + 1, len(scores) + 2), (3, 2)):
            one = {"board": "b", "first": first, "last": last}
            tables = [board.table.name, board.ledger.name]
            calls.append({**names, "tables": tables, "name": "ranksPositions", "parameters": [one]})
            expected.append(attempted(board.positions, first, last))
    compiled(tmp_path, modules)
    for call, answer, wanted in zip(calls, called(tmp_path, calls, dynamodb_local_url), expected, strict=True):
        shown = answer.get("value", answer.get("error"))
        if isinstance(shown, dict):
            shown.pop("percentile", None)
            items = [item["points"] for item in shown.get("items", [])]
            shown |= {"items": items} if "items" in shown else {}
        assert shown == wanted, (call, answer)


def attempted(read: Callable[..., Any], *values: Any) -> Any:
    try:
        answer = read(*values)
    except ValueError:
        return "RangeError"
    if answer is None:
        return None
    fields = {field.name: simple(getattr(answer, field.name)) for field in dataclasses.fields(answer)}
    return fields | ({"items": [item["points"] for item in fields["items"]]} if "items" in fields else {})


def test_the_example_of_the_page_runs(tmp_path: Path, dynamodb_local_url: str) -> None:
    page = (ROOT / "docs/client.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```ts\n(.*?)```", page, re.DOTALL)
    declared = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0]
    rules = loads(declared)
    table = table_of(dynamodb_local_url, rules.program.tables["main"], [])
    python = module_of(client_of(rules, "rules.yaml").text)
    for day in range(1, 6):
        table.put_item(Item=python.order_item("ann", f"2026-05-0{day}", f"o{day}", {"status": "open"}))
    shown = example.replace('"app"', json.dumps(table.name)) + "console.log(items.length, token !== undefined);\n"
    compiled(tmp_path, {"access": module(rules), "example": shown})
    credentials = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "eu-central-1"}
    environment = {**os.environ, **credentials, "AWS_ENDPOINT_URL": dynamodb_local_url}
    run = subprocess.run(["node", "example.js"], cwd=tmp_path, env=environment, text=True, capture_output=True)
    orders = [f"ORDER#2026-05-0{day}#o{day}" for day in (5, 4, 3)]
    assert (run.stdout.split("\n")[:4], run.returncode) == ([*orders, "3 true"], 0), run.stderr
    assert table.get_item(Key=python.user_key("ann"))["Item"]["name"] == "Ann"

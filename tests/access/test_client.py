"""Generated modules: their text, their types, builders, write requests, hostile names, and the command."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from boto3.dynamodb.types import TypeDeserializer
from botocore.exceptions import ClientError
from emulators import ROOT
from generated import module_of, table_of
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from projections.api import load, loads
from projections.cli.main import main
from projections.deploy.checksum import with_checksum
from projections.errors import BadInput, RulesError
from projections.inspect.client import Client, client_of
from projections.inspect.client.expressions import docstring, inside, literal, pascal, snake
from projections.inspect.client.generate import Form
from projections.language import patterns
from projections.language.measures import FUNCTIONS, PICKED
from projections.language.patterns import Pattern
from projections.language.patterns.tree import Alternative, Either
from projections.language.pipes import PIPES
from projections.language.templates import Template
from projections.language.values import lookup
from projections.testing import Scenario

HERE = Path(__file__).parent / "client"
EVIL = '\x1b]0;o\x07\r\n\u2028\u202e"""\'\\{x}{}%s#!\\N{DASH}'

SOCIAL = load(HERE / "social.yaml")

HOSTILE = {
    "table": {"key": ["P-K", "S'K"], "indexes": {"class-1": ["1st", "se'c\"ond"]}},
    "entities": {
        "Page": {
            "key": {"P-K": 'it"s{class}', "S'K": "\\{import*}"},
            "match": {"kind-of": EVIL, "größe": True, "n": 5, "none": None},
            "index_key": {"1st": "{a-b}\"'\n", "se'c\"ond": "{class}"},
        },
        "None": {"key": {"P-K": "table#{table}", "S'K": "self#{item}#{variables}"}},
        "Results": {"key": {"P-K": "\u202e{größe}", "S'K": "await x def y async z"}},
    },
    "projections": {"Ranking": {"from": "None", "rank": {"into": "None", "by": "'a-b'", "digits": 3, "order": "asc"}}},
    "queries": {
        "class": {
            "get": "Page",
            "by": ["class", "import"],
            "about": 'x""" + __import__("os").system("touch /tmp/owned") + """\\',
        },
        "Results": {"find": "None", "by": ["table"], "range": "item", "about": EVIL},
        "is-page": {"find": "Page", "by": ["a-b"], "where": {"a-b": [{"exists": True}], "x-y": ['"', "'", EVIL]}},
        "T": {"find": "Results", "by": ["größe"], "attributes": ["größe", "from"]},
    },
    "writes": {"print": {"update": "Page", "set": ["a-b", "class"], "if": {"unchanged": "v-1"}}},
}


@pytest.fixture(scope="module")
def social() -> Client:
    return client_of(SOCIAL, "social.yaml")


@pytest.fixture(scope="module")
def module(social: Client) -> ModuleType:
    return module_of(social.text)


@pytest.fixture(scope="module")
def table(dynamodb_local_url: str) -> Any:
    return table_of(dynamodb_local_url, SOCIAL.program.tables["main"], [])


# --- text ---


@pytest.mark.parametrize(("form", "golden"), [("python", "social.py.txt"), ("typescript", "social.ts.txt")])
def test_the_module_of_the_social_rules_is_as_before(form: Form, golden: str) -> None:
    text = client_of(SOCIAL, "social.yaml", form).text
    if os.environ.get("UPDATE_GOLDENS"):
        (HERE / golden).write_text(text, encoding="utf-8")
    assert text == (HERE / golden).read_text(encoding="utf-8")


UNCHANGED = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Order:
    key: {PK: "USER#{userId}", SK: "ORDER#{orderId}"}
    match: {kind: order}
    index_key: {GSI1PK: "STATUS#{status}", GSI1SK: "{orderId}"}
  Spent: {key: {PK: "USER#{userId}", SK: SPENT}}
projections:
  spent: {from: Order, aggregate: {into: Spent, set: {total: "sum(price)"}}}
  label: {from: Order, compute: {set: {label: "{kind} {status}"}}}
writes:
  pay: {update: Order, set: [status], if: {unchanged: status}}
  take: {update: Order, set: [status], if: {unchanged: kind}}
  discount: {put: Order, if: {unchanged: price}}
  cancel: {delete: Order, if: {unchanged: label}}
  forget: {delete: Order, if: {unchanged: note}}
  both:
    items:
      - {update: Order, set: [status], if: {unchanged: status}}
      - {put: Order, if: {unchanged: version}}
"""

MEASURES = {
    name: f"{name}(x, at)" if name in PICKED else "count" if name == "count" else f"{name}(number(x))"
    for name in FUNCTIONS
}
"""Each measure, by an attribute of its name."""

EVERY_MEASURE = {
    "table": {"key": ["PK", "SK"]},
    "entities": {
        "Part": {"key": {"PK": "P#{p}", "SK": "PART#{part}"}},
        "Stats": {"key": {"PK": "P#{p}", "SK": "STATS"}},
    },
    "projections": {"stats": {"from": "Part", "aggregate": {"into": "Stats", "set": MEASURES}}},
    "queries": {
        "stats": {"get": "Stats", "by": ["p"], "attributes": [*MEASURES]},
        **{f"with_{name}": {"find": "Stats", "by": ["p"], "where": {name: [{"exists": True}]}} for name in MEASURES},
    },
}

RULE_FILES = {
    "social": HERE / "social.yaml",
    "measures": json.dumps(EVERY_MEASURE),
    "hostile": json.dumps(HOSTILE),
    "unchanged": UNCHANGED,
    **{f"shipped_{path.stem}": path for path in sorted((ROOT / "projections/rules").glob("*.yaml"))},
}


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the modules of many rule files, for boto3 and for aioboto3."""
    directory = tmp_path_factory.mktemp("modules")
    for name, written in RULE_FILES.items():
        rules = load(written) if isinstance(written, Path) else loads(written)
        for suffix, waits in (("", False), ("_async", True)):
            text = client_of(rules, f"{name}.yaml", "aioboto3" if waits else "python").text
            (directory / f"{name}{suffix}.py").write_text(text, encoding="utf-8")
    return directory


def test_modules_pass_ruff_and_are_formatted_as_ruff_and_black_do(modules: Path) -> None:
    run(["ruff", "check", "--isolated", "--no-cache", str(modules)])
    long = [f"--exclude=hostile{suffix}.py" for suffix in ("", "_async")]  # literals that have no place on a line
    run(["ruff", "format", "--isolated", "--no-cache", "--diff", *long, str(modules)])


@pytest.mark.deep
def test_modules_pass_mypy_strict_and_one_without_boto3(modules: Path) -> None:
    strict = ["mypy", "--strict", "--config-file=", f"--cache-dir={modules / 'cache'}"]
    run([*strict, str(modules)])
    run([*strict, "--no-site-packages", str(modules / "social.py")])


def run(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_does_not_import_this_package(social: Client) -> None:
    imported = [node.module for node in ast.walk(ast.parse(social.text)) if isinstance(node, ast.ImportFrom)]
    imported += [
        one.name for node in ast.walk(ast.parse(social.text)) if isinstance(node, ast.Import) for one in node.names
    ]
    assert "boto3.dynamodb.conditions" in imported
    assert not any(name and name.startswith("projections") for name in imported)


def test_a_module_has_only_the_helpers_that_it_uses() -> None:
    rules = loads('{"table": {"key": ["PK"]}, "entities": {"A": {"key": {"PK": "A#{a}"}}}, "projections": {}}')
    text = client_of(rules, "rules.yaml").text
    assert "Results" not in text
    assert "import json" not in text
    assert "def a_key(a: str) -> Item:" in text


# --- queries ---


def test_pages_follow_each_other_over_buckets(module: ModuleType, table: Any) -> None:
    for number in range(10):
        key = module.post_meta_key(f"p{number}")
        attributes = {"EntityType": "PostMeta", "likeCount": number, "~engagement": {"n": 1}}
        keys = {"GSI2PK": f"LEADERBOARD#{number % 4}", "GSI2SK": f"{number:08}#p{number}"}
        table.put_item(Item={**key, **attributes, **keys})
    results = module.top_posts(table)
    assert [item["likeCount"] for item in results] == list(range(9, -1, -1))
    assert "~engagement" not in results.first()
    first = results.page(4)
    second = module.top_posts(table).page(4, first.token)
    assert [item["likeCount"] for item in (*first.items, *second.items)] == list(range(9, 1, -1))
    assert module.top_posts(table).page(2, second.token).token is None
    with pytest.raises(ValueError, match="other arguments"):
        module.posts_of(table, "u").page(4, first.token)
    with pytest.raises(ValueError, match="invalid page token"):
        module.top_posts(table).page(4, "x")
    for limit in (0, -1):
        with pytest.raises(ValueError, match="limit must be at least 1"):
            module.top_posts(table).page(limit)


def test_items_that_an_index_shows_too_long_are_not_returned(module: ModuleType, table: Any) -> None:
    stale = {"EntityType": "PostMeta", "status": "draft", "publishedAt": "2026-05-03T00:00:00Z"}
    right = {**stale, "status": "published", "publishedAt": "2026-05-02T00:00:00Z"}
    for name, attributes in (("s", stale), ("r", right)):
        keys = {"GSI1PK": "PUBLISHED#2026-05", "GSI1SK": f"{attributes['publishedAt']}#{name}"}
        table.put_item(Item={**module.post_meta_key(name), **attributes, **keys})
    found = module.feed(table, published_at_from="2026-03-30", published_at_to="2026-06-01")
    assert [item["PK"] for item in found] == ["POST#r"]
    empty = module.feed(table, published_at_from="2026-06-01", published_at_to="2026-05-01")
    assert list(empty) == []


class Waiting:
    """A table of aioboto3, as far as modules use it."""

    def __init__(self, table: Any) -> None:
        self._table = table

    async def get_item(self, **arguments: Any) -> Any:
        return self._table.get_item(**arguments)

    async def query(self, **arguments: Any) -> Any:
        return self._table.query(**arguments)


def test_the_module_for_aioboto3_returns_the_same(table: Any) -> None:
    waiting = module_of(client_of(SOCIAL, "social.yaml", "aioboto3").text)
    for number in range(7):
        table.put_item(Item=waiting.post_item("async", f"2026-05-0{number + 1}", f"p{number}", {}))
    table.put_item(Item=waiting.user_item("async", {"name": "A"}))
    there = Waiting(table)

    async def read() -> tuple[Any, list[Any], list[Any]]:
        page = await waiting.posts_of(there, "async").page(4)
        rest = await waiting.posts_of(there, "async").page(4, page.token)
        everything = [item async for item in waiting.posts_of(there, "async")]
        return await waiting.profile(there, "async"), everything, [*page.items, *rest.items]

    profile, everything, paged = asyncio.run(read())
    assert profile["name"] == "A"
    assert [item["SK"] for item in everything] == [
        f"POST#2026-05-0{number}#p{number - 1}" for number in range(7, 0, -1)
    ]
    assert paged == everything


def test_a_get_does_not_return_an_item_of_another_kind(module: ModuleType, table: Any) -> None:
    table.put_item(Item={**module.post_meta_key("other"), "EntityType": "Else"})
    assert module.post(table, "other") is None
    assert module.post(table, "missing") is None


# --- builders ---


@given(values=st.lists(st.text(min_size=0, max_size=6), min_size=3, max_size=3))
def test_built_keys_are_those_of_the_engine(values: list[str]) -> None:
    module = _module()
    engine = SOCIAL.program.entities["Comment"]
    names = dict(zip(("postId", "createdAt", "commentId"), values, strict=True))
    try:
        key = engine.target_key(lambda name: {"S": names[name]})
    except BadInput:
        with pytest.raises(ValueError, match="in a key"):
            module.comment_key(*values)
        return
    assert key is not None
    assert module.comment_key(*values) == {"PK": key.partition, "SK": key.sort}


MODULES: list[ModuleType] = []


def _module() -> ModuleType:
    if not MODULES:
        MODULES.append(module_of(client_of(SOCIAL, "social.yaml").text))
    return MODULES[0]


# --- pipes, patterns and measures: the cases of the language run in generated modules ---

CASES = ROOT / "tests/language/cases"
READ = TypeDeserializer().deserialize


def cases_of(name: str, field: str) -> list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Return the cases of a file whose rules are valid: each with its item, and an entity with it in a field."""
    found = []
    for group in json.loads((CASES / f"{name}.json").read_text()):
        item = {one: value for one, value in group["given"].items() if one not in ("PK", "SK", "T", "zz")}
        for case in group["cases"]:
            if name == "templates" and isinstance(case["template"], str):
                entity = {"index_key": {"T": case["template"]}}
            elif name == "patterns":
                entity = {"match": case["pattern"]}
            else:
                continue
            number = len(found)
            entity |= {"key": {"PK": f"E{number}#{{zz}}", "SK": "A"}}
            try:
                loads(json.dumps(rules_with({f"E{number}": entity})))
            except RulesError:
                continue
            found.append((case, item, entity))
    return found


def rules_with(entities: dict[str, Any]) -> dict[str, Any]:
    table = {"key": ["PK", "SK"], "indexes": {"T": ["T"]}}
    queries = {f"get_{name}": {"get": name, "by": ["zz"]} for name in entities}
    return {"table": table, "entities": entities, "projections": {}, "queries": queries}


def module_with(cases: Sequence[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]) -> ModuleType:
    entities = {f"E{number}": entity for number, (_, _, entity) in enumerate(cases)}
    return module_of(client_of(loads(json.dumps(rules_with(entities))), "cases.yaml").text)


def as_boto3(item: dict[str, Any]) -> dict[str, Any]:
    """Return an item without binary values, which boto3 has in a type of its own."""
    return {name: READ(value) for name, value in item.items() if not {"B", "BS"} & value.keys()}


def test_every_pipe_gives_in_a_generated_module_what_it_gives_in_the_engine() -> None:
    cases = cases_of("templates", "template")
    module, ran = module_with(cases), set()
    for number, (case, item, _) in enumerate(cases):
        template = Template.parse(case["template"])
        expected = None
        with contextlib.suppress(BadInput):
            expected = template.render(lambda name, item=item: lookup(item, name))
        if expected == "" or (expected is None and "result" not in case):
            continue  # DynamoDB has no empty keys, and a value that a pipe cannot take may be refused or left out
        built = getattr(module, f"e{number}_item")("1", as_boto3(item))
        assert built.get("T") == expected, case
        ran |= {pipe.name for field in template.fields for pipe in field.pipes}
    assert ran == set(PIPES), "tests/language/cases/templates.json needs a case of each pipe with a text as its result"


def test_every_pattern_matches_in_a_generated_module_what_it_matches_in_the_engine() -> None:
    cases = cases_of("patterns", "pattern")
    module, ran = module_with(cases), set()
    for number, (case, item, _) in enumerate(cases):
        pattern = Pattern.parse(case["pattern"])
        whole = {"PK": {"S": f"E{number}#1"}, "SK": {"S": "A"}, **item}
        expected = pattern.matches(partial(lookup, whole))
        found = getattr(module, f"is_e{number}")(as_boto3(whole))
        assert found == expected, case
        tests = [one for one in pattern.conditions if isinstance(one, patterns.Test)]
        ran |= {type(alternative) for one in tests for alternative in one.alternatives}
        ran |= {Either for one in pattern.conditions if isinstance(one, Either)}
    assert ran == {*get_args(Alternative), Either}


def test_every_measure_is_read_by_a_generated_module() -> None:
    rules = loads(json.dumps(EVERY_MEASURE))
    module = module_of(client_of(rules, "measures.yaml").text)
    parts = [{"PK": "P#1", "SK": f"PART#{n}", "x": n, "at": str(n)} for n in (1, 2)]
    stats = Scenario(rules).given({"PK": "P#1", "SK": "STATS"}, *parts).item(["P#1", "STATS"])
    assert stats is not None
    assert stats.keys() >= MEASURES.keys(), "in MEASURES, measure what `parts` have: x, a number, and at, a text"
    assert module.is_stats(stats)
    assert module.Stats.__annotations__.keys() >= MEASURES.keys()
    assert all(callable(getattr(module, f"with_{name}")) for name in MEASURES)


# --- writes ---


def refused(write: Callable[..., Any], request: dict[str, Any]) -> str:
    with pytest.raises(ClientError) as refusal:
        write(**request)
    return str(refusal.value.response["Error"]["Code"])


def test_single_writes_have_their_conditions(module: ModuleType, table: Any) -> None:
    user = module.user_item("w", {"version": 1})
    assert refused(table.update_item, module.rename(module.user_key("w"), 1, "B")) == "ConditionalCheckFailedException"
    table.put_item(**module.sign_up(user))
    assert refused(table.put_item, module.sign_up(user)) == "ConditionalCheckFailedException"
    table.update_item(**module.rename(module.user_key("w"), 1, "B"))
    assert refused(table.update_item, module.rename(module.user_key("w"), 1, "C")) == "ConditionalCheckFailedException"
    found = module.profile(table, "w")
    assert (found["name"], found["version"]) == ("B", 2)
    comment = module.comment_item("w", "2026", "c", {})
    assert refused(table.delete_item, module.forget(module.comment_key("w", "2026", "c"))) == (
        "ConditionalCheckFailedException"
    )
    table.put_item(Item=comment)
    table.delete_item(**module.forget(module.comment_key("w", "2026", "c")))
    edited = module.edit(module.post_key("w", "2026", "p"), {"title": "T", "size": 1})
    assert refused(table.update_item, edited) == "ConditionalCheckFailedException"
    table.put_item(Item=module.post_item("w", "2026", "p", {}))
    table.update_item(**edited)
    assert [(item["title"], item["size"]) for item in module.posts_of(table, "w")] == [("T", 1)]


def test_a_transaction_writes_all_or_nothing(module: ModuleType, table: Any) -> None:
    client = table.meta.client
    like, post = module.like_item("t", "p", {"likedAt": "2026"}), module.post_key("t", "2026", "p")
    request = module.like_once(table.name, like, post)
    assert refused(client.transact_write_items, request) == "TransactionCanceledException"
    table.put_item(Item=module.post_item("t", "2026", "p", {}))
    client.transact_write_items(**request)
    assert table.get_item(Key=module.like_key("t", "p"))["Item"]["likedAt"] == "2026"
    assert refused(client.transact_write_items, request) == "TransactionCanceledException"


# --- hostile names ---


def test_hostile_names_make_a_module_that_works(dynamodb_local_url: str) -> None:
    rules = loads(json.dumps(HOSTILE))
    client = client_of(rules, EVIL)
    assert all(character.isprintable() or character == "\n" for character in client.text)
    module = module_of(client.text)
    assert client.functions["class"] == "class_"
    table = table_of(dynamodb_local_url, rules.program.tables["main"], [])
    page = module.page_item("c", "i#j", {"a-b": "A", "x-y": EVIL})
    assert page["1st"] == "A\"'\n"
    table.put_item(Item=page)
    assert module.class_(table, "c", "i#j")["kind-of"] == EVIL
    assert [item["x-y"] for item in getattr(module, client.functions["is-page"])(table, "A")] == [EVIL]
    key = module.page_key("c", "i#j")
    assert (
        refused(table.update_item, module.print_(key, v_1=1, a_b="B", class_="C")) == "ConditionalCheckFailedException"
    )
    table.put_item(Item={**page, "v-1": 1})
    table.update_item(**module.print_(key, v_1=1, a_b="B", class_="C"))
    assert [table.get_item(Key=key)["Item"][name] for name in ("v-1", "a-b", "class")] == [2, "B", "C"]
    none = module.none_item("T", "i1", "v", {})
    table.put_item(Item=none)
    results = getattr(module, client.functions["Results"])
    assert list(results(table, "T", item_from="i0")) == [none]
    assert list(results(table, "T", item_from="i2")) == []
    assert not Path("/tmp/owned").exists()


@pytest.mark.parametrize(
    "name", ["status#createdAt", "$type", "first name", "a/b", "1st", "a.b", "it's", '"q"', "a|b", "$or", "日本"]
)
def test_any_name_can_be_asked_for(name: str) -> None:
    quoted = "'" + name.replace("'", "''") + "'"
    rules = loads(
        json.dumps(
            {
                "table": {"key": ["PK", "SK"], "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}},
                "entities": {"Item": {"key": {"PK": "I#{item}", "SK": "-"}}},
                "projections": {"by": {"from": "Item", "index": {"GSI1PK": "K#{kind}", "GSI1SK": f"{{{quoted}}}"}}},
                "queries": {
                    "ranged": {"find": "Item", "by": ["kind"], "range": quoted, "order": "desc"},
                    "filtered": {"find": "Item", "by": ["kind"], "where": {quoted: ["b"]}, "order": f"{quoted} asc"},
                    "shown": {"find": "Item", "by": ["kind", quoted], "attributes": [quoted]},
                },
            }
        )
    )
    module, client = module_of(client_of(rules, "rules.yaml").text), client_of(rules, "rules.yaml")
    with mock_aws():
        scenario = Scenario(rules)
        scenario.given(*({"PK": f"I#{one}", "SK": "-", "kind": "k", name: one} for one in "abc"))
        table = table_of(None, rules.program.tables["main"], scenario.store.items("main"))
        asked = f"'{name}'" if "." in name or name[0] in "'\"" else name  # as parameters have it
        for query, values, expected in (
            ("ranged", {"kind": "k", f"{asked}.from": "b"}, ["c", "b"]),
            ("filtered", {"kind": "k"}, ["b"]),
            ("shown", {"kind": "k", asked: "c"}, ["c"]),
        ):
            assert [item[name] for item in scenario.query(query, **values)] == expected
            parameters = list(inspect.signature(getattr(module, client.functions[query])).parameters)[1:]
            arguments = dict(zip(parameters, values.values(), strict=False))
            assert [item[name] for item in getattr(module, client.functions[query])(table, **arguments)] == expected


@given(st.text())
def test_literals_are_the_texts(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text
    assert eval(f'f"{inside(text)}"') == text


@given(st.text())
def test_docstrings_are_strings_of_one_statement(text: str) -> None:
    source = "\n".join(docstring(0, "Begin " + text, text))
    (statement,) = ast.parse(source).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Constant)


@given(st.text(min_size=1))
def test_names_are_identifiers(text: str) -> None:
    assert snake(text).isidentifier()
    assert pascal(text).isidentifier()


# --- the command ---


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def say(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["client", *arguments])
        captured = capsys.readouterr()
        return int(str(ended.value.code)), captured.out, captured.err

    return say


def test_value_that_must_be_unchanged_has_the_type_of_its_attribute() -> None:
    text = client_of(loads(UNCHANGED), "orders.yaml").text
    module = module_of(text)
    found = {
        name: {one: kind for one, kind in getattr(module, name).__annotations__.items() if one != "return"}
        for name in ("pay", "take", "discount", "cancel", "forget", "both")
    }
    key, item, unknown = "Mapping[str, Any]", "Mapping[str, Any]", "Scalar | bool | bytes | None"
    assert found == {
        "pay": {"order_key": key, "expected_status": unknown, "status": "Any"},
        "take": {"order_key": key, "kind": "str", "status": "Any"},
        "discount": {"order": item, "price": "int | Decimal"},
        "cancel": {"order_key": key, "label": "str"},
        "forget": {"order_key": key, "note": unknown},
        "both": {
            "order_1_key": key,
            "expected_order_1_status": unknown,
            "order_1_status": "Any",
            "order_2": item,
            "order_2_version": "int | Decimal",
        },
    }
    assert module.pay({}, "open", "paid")["ExpressionAttributeValues"] == {":expected": "open", ":status": "paid"}
    assert module.take({}, "order", "paid")["UpdateExpression"] == "SET #status = :status"
    assert module.discount({"price": 3}, 4)["Item"] == {"price": 5}
    assert module.cancel({}, "order open")["ExpressionAttributeValues"] == {":expected": "order open"}


def test_the_command_writes_the_module_and_names_queries_without_a_function(
    say: Callable[..., tuple[int, str, str]], social: Client, tmp_path: Path
) -> None:
    target = tmp_path / "access.py"
    assert say(str(HERE / "social.yaml"), "-o", str(target), "--check")[0] == 1
    code, out, err = say(str(HERE / "social.yaml"), "-o", str(target))
    assert (code, out) == (1, "")
    assert say(str(HERE / "social.yaml"), "-o", str(target), "--check")[0] == 0
    assert target.read_text(encoding="utf-8") == with_checksum(social.text)
    assert "query drafts: no function, GSI2 does not hold items without likeCount" in err
    code, out, _ = say(str(HERE / "social.yaml"), "--json")
    assert json.loads(out)["functions"]["postsOf"] == "posts_of"
    assert list(json.loads(out)["missing"]) == ["drafts"]
    assert json.loads(out)["module"] == with_checksum(social.text)


def test_the_command_succeeds_if_every_query_has_a_function(
    say: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    rules = {**HOSTILE, "writes": {}}
    (tmp_path / "rules.json").write_text(json.dumps(rules), encoding="utf-8")
    code, out, err = say(str(tmp_path / "rules.json"), "--async")
    assert code == 0
    assert "class: the function is class_, because class is a reserved word" in err
    assert "async def class_(" in out

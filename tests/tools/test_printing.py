"""Nothing that an item, an event or a rule file contains acts on the terminal, forges a line, or is read as markup."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from shlex import quote
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from place import Place
from yaml import safe_load

from projections import terminal as render
from projections.cli.main import COMMANDS, cli
from projections.engine.rejections import Rejected
from projections.engine.store import ItemKey
from projections.language.keys import encode_key
from projections.operations.quarantine import Quarantine
from projections.operations.redaction import key_hash
from projections.printable import printable, unescape

ROOT = Path(__file__).parents[2]
FORGED = "✓ No drift, items read: none"
EVIL = (
    f"\x1b]0;owned\x07\x1b[2J\r\n{FORGED}\n\x9b31m\x7f\x85\x08\t\u2028\u2029\u202e\u2066\u200b\ufeff\u00ad\U000e0041"
    "[red]R[/red][/][link=https://evil]L[/link]<script>alert(1)</script>`\"'\\"
)
"""A window's title, a cleared screen, a line of ours, C1, DEL, separators, bidi, zero width, tags; markup and HTML."""
WRITTEN = EVIL.replace(".", "")
"""A name of an attribute that a rule writes, which cannot have a dot."""

ACTING = {"Cc", "Cf", "Cs", "Zl", "Zp"}

RULES = {
    "table": {"key": ["PK", "SK"], "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}},
    "entities": {
        "User": {"key": {"PK": "USER#{userId}", "SK": "PROFILE"}},
        "Post": {"key": {"PK": "USER#{userId}", "SK": "POST#{postId}"}, "id": "postId"},
        "PostMeta": {"key": {"PK": "POST#{postId}", "SK": "METADATA"}, "match": {"type": "PostMeta"}},
        "Like": {"key": {"PK": "USER#{userId}", "SK": "LIKE#{postId}"}},
        "Comment": {
            "key": {"PK": "POST#{postId}", "SK": "COMMENT#{commentId}"},
            "index_key": {"GSI1PK": "AUTHOR#{userId}"},
        },
    },
    "projections": {
        "postById": {"from": "Post", "copy": {"into": "PostMeta", "attributes": {"title": "title", WRITTEN: "title"}}},
        "likes": {
            "from": "Like",
            "where": {"mood": EVIL},
            "aggregate": {"into": "PostMeta", "set": {f"n{WRITTEN}": "count", "total": "sum(weight)"}},
        },
        "author": {
            "from": "User",
            "embed": {"into": "Comment", "match": {"userId": "{userId}"}, "attributes": {f"e{WRITTEN}": "name"}},
        },
    },
}


def rules(path: Path, **changes: Any) -> str:
    path.write_text(json.dumps({**RULES, **changes}), encoding="utf-8")
    return str(path)


def about(path: Path, document: dict[str, Any]) -> str:
    """A file of queries."""
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


def asked(path: Path) -> str:
    """The rules with hostile queries."""
    return rules(
        path / "asked.yaml",
        queries={
            "likesOf": {"find": "Like", "by": ["userId"], "about": EVIL},
            "moody": {"find": "Like", "where": {"mood": [EVIL]}, "about": EVIL},
        },
    )


def ranked(path: Path) -> str:
    """The rules with a board."""
    board = {"key": {"PK": "BOARD#{board}", "SK": "META"}}
    rank = {"from": "Like", "bind": {"board": "{mood}"}, "rank": {"into": "Board", "by": "weight", "digits": 3}}
    entities, projections = {**RULES["entities"], "Board": board}, {**RULES["projections"], "ranks": rank}
    return rules(path / "ranked.yaml", entities=entities, projections=projections)


def acting(text: str) -> list[str]:
    """The characters that a terminal would act on, or not show."""
    return [character for character in text if character != "\n" and unicodedata.category(character) in ACTING]


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)


def harmless(*outputs: str) -> None:
    for text in outputs:
        assert acting(text) == []
        assert not any(line.lstrip().startswith(FORGED) for line in text.split("\n"))


@pytest.fixture
def hostile(place: Place, tmp_path: Path) -> Place:
    """A deployment whose items, keys, quarantine and bucket are hostile, and some of whose values are wrong."""
    place.deploy(json.dumps(RULES))
    place.activate()
    attributes = {EVIL: EVIL, "title": EVIL}
    place.deliver(
        place.put("USER#" + EVIL, "PROFILE", name=EVIL),
        place.put("USER#" + EVIL, "POST#" + EVIL, **attributes),
        place.put("USER#" + EVIL, "LIKE#" + EVIL, mood=EVIL, weight=2),
        place.put("POST#" + EVIL, "COMMENT#" + EVIL, GSI1PK="AUTHOR#" + EVIL),
    )
    place.deliver(place.put("USER#b", "LIKE#" + EVIL, mood=EVIL, weight=EVIL))  # refused
    unseen = [place.put("USER#c", "LIKE#" + EVIL, mood=EVIL, weight=1)]
    place.discard(EVIL.replace("/", ""), *unseen)
    (tmp_path / "events.json").write_text(
        json.dumps({"Records": [place.put("USER#" + EVIL, "POST#" + EVIL, **attributes, more=EVIL), *unseen]})
    )
    place.dynamodb.update_item(
        TableName=place.table,
        Key={"PK": {"S": "POST#" + EVIL}, "SK": {"S": "METADATA"}},
        UpdateExpression="SET #n = :n, title = :t",
        ExpressionAttributeNames={"#n": f"n{WRITTEN}"},
        ExpressionAttributeValues={":n": {"N": "77"}, ":t": {"S": "x" + EVIL}},
    )
    return place


def hashed(place: Place, key: ItemKey) -> str:
    """The hash of a key, under a secret that is put into the ledger."""
    place.dynamodb.put_item(
        TableName=place.ledger, Item={"pk": {"S": "A"}, "sk": {"S": "secret"}, "secret": {"S": "known"}}
    )
    return key_hash("known", encode_key(key))


def hostile_model(path: Path) -> str:
    """A NoSQL Workbench model with hostile names, of which some cannot be read."""
    key = {"PartitionKey": {"AttributeName": EVIL, "AttributeType": "S"}}
    facet = {"FacetName": EVIL, "KeyAttributeAlias": {"PartitionKeyAlias": f"A#<{EVIL}>"}, EVIL: 1}
    facet["TableData"] = [{EVIL: {"S": EVIL}}, {EVIL: EVIL}]
    table = {"TableName": EVIL, "KeyAttributes": key, "TableFacets": [facet], EVIL: EVIL}
    path.write_text(json.dumps({"ModelName": EVIL, "DataModel": [table]}))
    return str(path)


Scene = Callable[[Place, Path], list[list[str]]]

LIVE: dict[str, Scene] = {
    "verify": lambda place, path: [["--patience", "0"], ["--patience", "0", "--repair"]],
    "explain": lambda place, path: (
        [
            ["--item", f"PK={key},SK={sort}"]
            for key, sort in (
                ("USER#" + EVIL, "POST#" + EVIL),
                ("POST#" + EVIL, "METADATA"),
                ("POST#" + EVIL, "COMMENT#" + EVIL),
                ("POST#none" + EVIL, "METADATA"),
                (EVIL, EVIL),
            )
        ]
        + [["--item", hashed(place, ItemKey("main", "USER#" + EVIL, "LIKE#" + EVIL))], ["--item", "key:" + EVIL]]
        + [[str(path / "events.json")], [EVIL], ["--item", EVIL]]
    ),
    "redrive": lambda place, path: [
        ["--quarantine", place.quarantine, "--list"],
        ["--quarantine", place.quarantine, "--dismiss", EVIL],
        ["--quarantine", place.quarantine, "--dismiss", "likes", "--because", EVIL, "--dry-run"],
        ["--quarantine", place.quarantine, "--bucket", place.bucket, "--dry-run"],
        ["--quarantine", place.quarantine, "--bucket", place.bucket],
        [str(path / "events.json"), "--dry-run"],
        ["--bucket", EVIL],
    ],
    "apply": lambda place, path: [["--dry-run"], ["--yes"], ["--retire", EVIL], [EVIL]],
    "promote": lambda place, path: [[EVIL]],
    "rollback": lambda place, path: [[EVIL]],
    "backfill": lambda place, path: [[]],
    "status": lambda place, path: [
        ["--quarantine", place.quarantine, "--bucket", place.bucket],
        ["--quarantine", EVIL],
    ],
    "init": lambda place, path: [
        ["--table", place.table, str(path / "new")],
        ["--table", EVIL, str(path / "other")],
        ["--from", hostile_model(path / "model.json"), str(path / "modelled")],
        ["--from", EVIL, str(path / "none")],
    ],
    "replay": lambda place, path: (
        [[str(path / "events.json"), "--save", str(path / "saved.json"), "--table", EVIL]]
        + [[str(path / "events.json")], [EVIL]]
        + [
            [str(path / "events.json"), "--rules", asked(path), "--ask", ask, *more]
            for ask in ("likesOf " + quote("userId=" + EVIL), EVIL, quote(EVIL))
            for more in ([], ["--json"])
        ]
    ),
    "cost": lambda place, path: [[str(path / "events.json")], [EVIL], ["--rate", EVIL]],
    "queries": lambda place, path: [
        ["ranks", "--rules", ranked(path), "board=" + EVIL, "--score", "5"],
        ["ranks", "--rules", ranked(path), "board=" + EVIL, "--at", "1", "--json"],
        ["ranks", "--rules", ranked(path), "board=" + EVIL, "--score", EVIL],
        ["ranks", "--rules", ranked(path), "board=" + EVIL, "--between", EVIL, EVIL],
        ["ranks", "--rules", ranked(path), f"{EVIL}={EVIL}"],
        ["ranks", "--rules", ranked(path), EVIL],
        ["--rules", asked(path), "likesOf", "userId=" + EVIL],
        ["--rules", asked(path), "likesOf", "userId=" + EVIL, "--json"],
        ["--rules", asked(path), "likesOf", "userId=" + EVIL, "--token", EVIL],
        ["--rules", asked(path), "likesOf", EVIL],
        ["--rules", asked(path), "likesOf", f"{EVIL}={EVIL}"],
        ["--rules", asked(path), EVIL],
        ["--rules", asked(path), "--markdown"],
        [EVIL],
    ],
    "dev": lambda place, path: [["--until-idle", "--endpoint-url", place.dynamodb.meta.endpoint_url]],
}
"""Commands that print what is in tables, events, queues and buckets."""

FILES: dict[str, Scene] = {
    "check": lambda place, path: [
        [str(path / "rules.yaml")],
        [rules(path / "b.yaml", entities={**RULES["entities"], EVIL: {"key": {"PK": EVIL, EVIL: EVIL}}})],
        [rules(path / "c.yaml", projections={EVIL: {"from": EVIL, "copy": {"into": EVIL}}, EVIL + "2": EVIL})],
        [rules(path / "d.yaml", **{EVIL: EVIL})],
        [about(path / "q.yaml", {"include": [EVIL], EVIL: EVIL})],
        [about(path / "p.yaml", {"include": ["rules.yaml"], "queries": {EVIL: {"find": EVIL}}})],
        [rules(path / f"{EVIL.replace('/', '')}.yaml"), "--template", str(ROOT / "template.yaml")],
        [EVIL],
    ],
    "client": lambda place, path: [
        [str(path / "rules.yaml")],
        [asked(path), "--async"],
        [asked(path), "-o", str(path / "access.py")],
        [EVIL],
    ],
    "console": lambda place, path: [["--rules", EVIL], ["--table", EVIL], ["--ledger", EVIL]],  # serves nothing
    "diff": lambda place, path: [
        [str(path / "rules.yaml"), rules(path / "n.yaml", projections=changed()), *options]
        for options in ([], ["--markdown"])
    ],
    "graph": lambda place, path: [[str(path / "rules.yaml"), "--format", form] for form in ("mermaid", "html")],
    "simulate": lambda place, path: [["--rules", str(path / "rules.yaml"), "--histories", "3"], ["--rules", EVIL]],
    "template": lambda place, path: [
        [str(path / "rules.yaml")],
        *([str(path / "rules.yaml"), "--format", form] for form in ("cloudformation", "cdk")),
        [str(path / "rules.yaml"), "--format", "cdk", "--set", f"{EVIL}={EVIL}", "--set", f"Redact={EVIL}"],
        [
            rules(
                path / "k.yaml",
                table={"key": [f"P{EVIL}", "SK"]},
                entities={"A": {"key": {f"P{EVIL}": "A#{a}", "SK": "A"}}},
                projections={},
            )
        ],
    ],
}
"""Commands that print what is in rule files."""


def changed() -> dict[str, Any]:
    made = json.loads(json.dumps(RULES["projections"]))
    made["likes"]["where"]["mood"] = "x" + EVIL
    made["likes"]["aggregate"]["set"][f"m{EVIL}"] = "count"
    made["postById"]["copy"]["attributes"] = {"title": "title"}
    return dict(made)


def test_every_command_has_its_hostile_input_here() -> None:
    assert {*LIVE, *FILES} == {*cli.list_commands(None), *COMMANDS}  # type: ignore[arg-type]


def print_all(place: Place, path: Path, name: str, scene: Scene) -> str:
    said = ""
    for arguments in scene(place, path):
        code, out, err = place.say(name, *arguments)
        assert code in (0, 1, 2), err
        harmless(out, err)
        said += out + err
    return said


@pytest.mark.deep
@pytest.mark.parametrize("name", LIVE)
def test_no_command_prints_raw_values_of_items(name: str, hostile: Place, tmp_path: Path) -> None:
    assert "\\u001b]0;owned" in print_all(hostile, tmp_path, name, LIVE[name])


@pytest.mark.parametrize("name", FILES)
def test_no_command_prints_raw_texts_of_rule_files(name: str, place: Place, tmp_path: Path) -> None:
    place.deploy(json.dumps(RULES))
    said = print_all(place, tmp_path, name, FILES[name])
    assert "u001b]0;owned" in said


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("verify", ["--patience", "0"]),
        ("explain", ["--item", f"PK=POST#{EVIL},SK=METADATA"]),
        ("redrive", ["--dry-run"]),
        ("apply", ["--dry-run"]),
        ("replay", ["events.json"]),
        ("explain", ["events.json"]),
        ("check", []),
        ("diff", ["social", "rules.yaml"]),
    ],
)
def test_json_is_printable_and_parses_to_the_stored_values(
    name: str, options: list[str], hostile: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, out, err = hostile.say(name, *options, "--json")
    harmless(out, err)
    assert any(EVIL in text for text in texts(json.loads(out)))


@pytest.mark.parametrize("name", ["replay", "explain", "check", "diff"])
def test_colours_are_ours_alone(name: str, hostile: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    for arguments in {**LIVE, **FILES}[name](hostile, tmp_path):
        _, out, err = hostile.say(name, *arguments)
        harmless(re.sub(r"\x1b\[[\d;]*m", "", out + err))
        tags = "[red]R[/red][/][link=https://evil]"
        assert {tags, tags.replace("/", "")} & {*re.findall(r"\[red\]R.*?evil\]", out + err)} or "owned" not in out


def test_a_key_is_copied_from_the_output_back_into_a_command(hostile: Place) -> None:
    code, out, _ = hostile.say("verify", "--patience", "0", "--json")
    key = next(one["target"] for one in json.loads(out)["drift"] if one["target"].endswith("|METADATA"))
    code, out, _ = hostile.say("explain", "--item", printable(key))
    assert code == 1, out
    assert printable(f"POST#{EVIL}") in out
    assert "the item does not exist" not in out
    assert hostile.say("explain", "--item", f"PK={printable('POST#' + EVIL)},SK=METADATA")[1] == out


def test_generated_formats_stay_valid(run: Any, tmp_path: Path) -> None:
    file = rules(tmp_path / "rules.yaml")
    template = safe_load(re.sub(r"!(\w+)", r"", run("template", file)[1]))
    assert template["AWSTemplateFormatVersion"] == "2010-09-09"
    page = run("graph", file, "--format", "html")[1]
    assert page.count("<script>") == 1
    assert "alert(1)" in page
    after = rules(tmp_path / "n.yaml", projections=changed())
    markdown = run("diff", file, after, "--markdown")[1]
    outside = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", markdown)
    assert "<script>" in markdown
    assert "<script>" not in outside
    assert "[link" not in outside


def test_logs_and_the_quarantine_are_ascii() -> None:
    """As `aws logs tail` and the console print them; CloudWatch takes each line for a message."""
    from handlers.common import logger

    said = {"key": f"main|POST#{EVIL}|METADATA", "reason": f"{EVIL} is no number", "rule": "likes", "table": "main"}
    line = logger.registered_formatter.serialize({"message": EVIL, **said})
    sent: list[str] = []
    bodies = SimpleNamespace(send=sent.extend)
    Quarantine(lambda: bodies, lambda: datetime.now(UTC))([Rejected(**said)])
    for text in (line, *sent):
        assert text.isascii()
        assert text.isprintable()
        assert EVIL in " ".join(texts(json.loads(text)))


def test_data_in_a_styled_line_is_never_markup(capsys: pytest.CaptureFixture[str]) -> None:
    line = render.markup("[bold]{}[/]{}{}", EVIL, "[", "red]x[/red]") + "[blue]y[/blue]"
    with pytest.raises(TypeError, match="markup"):
        f"{line}"
    render.print_line(line)
    render.print_line("[bold]data[/bold]\nsecond\x1b[2J")
    first, second, rest = capsys.readouterr().out.split("\n")
    assert first == printable(EVIL) + "[red]x[/red][blue]y[/blue]"
    assert second == "[bold]data[/bold]\\u000asecond\\u001b[2J"
    assert rest == ""


@given(st.text())
def test_printed_text_is_one_safe_line_and_can_be_read_back(text: str) -> None:
    shown = printable(text)
    assert acting(shown) == []
    assert "\n" not in shown
    assert printable(shown) == shown
    if "\\" not in text:
        assert unescape(shown) == text


@given(st.recursive(st.text() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_is_the_same_json_after_it(value: Any) -> None:
    text = printable(json.dumps(value, ensure_ascii=False, indent=2), lines=True)
    assert acting(text) == []
    assert json.loads(text) == value


def test_a_backslash_that_is_no_escape_can_be_written() -> None:
    assert unescape("C:\\new\\u0041\\temp") == "C:\\new\\u0041\\temp"
    assert unescape("\\u005cu001b") == "\\u001b"
    assert unescape("\\u001b\\u000a\\udb40\\udc41\\ud800") == "\x1b\n\U000e0041\ud800"

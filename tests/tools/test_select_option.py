"""`--select` of the commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

RULES = """\
table: {key: [PK, SK]}
entities:
  Like: {key: {PK: "POST#{post}", SK: "LIKE#{user}"}}
  Post: {key: {PK: "POST#{post}", SK: POST}}
  User: {key: {PK: "USER#{author}", SK: USER}}
projections:
  likes: {from: Like, tags: [feed], aggregate: {into: Post, set: {likes: count}}}
  karma: {from: Post, aggregate: {into: User, set: {karma: sum(likes)}}}
"""
NOTE = "note: karma reads Post.likes, which rule likes writes. likes is not selected"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    return tmp_path / "rules.yaml"


@pytest.fixture
def events(tmp_path: Path) -> Path:
    images = [
        {"PK": {"S": "USER#a"}, "SK": {"S": "USER"}},
        {"PK": {"S": "POST#p"}, "SK": {"S": "POST"}, "author": {"S": "a"}},
        {"PK": {"S": "POST#p"}, "SK": {"S": "LIKE#b"}},
    ]
    records = [
        {
            "eventName": "INSERT",
            "eventSourceARN": "arn:aws:dynamodb:eu-west-1:1:table/app/stream/x",
            "dynamodb": {
                "Keys": {name: image[name] for name in ("PK", "SK")},
                "NewImage": image,
                "SequenceNumber": str(number),
                "ApproximateCreationDateTime": 1,
            },
        }
        for number, image in enumerate(images, 1)
    ]
    (tmp_path / "events.json").write_text(json.dumps({"Records": records}))
    return tmp_path / "events.json"


@pytest.mark.parametrize(
    ("select", "derived", "noted"),
    [
        ((), {"likes", "karma"}, False),
        (("tag:feed",), {"likes"}, False),
        (("karma",), {"karma"}, True),
        (("likes,karma",), {"likes", "karma"}, False),
    ],
)
def test_replay_runs_the_selected_rules(
    run: Run, rules: Path, events: Path, select: tuple[str, ...], derived: set[str], noted: bool
) -> None:
    options = [part for term in select for part in ("--select", term)]
    code, out, err = run("replay", events, "--rules", rules, *options)
    assert code == 0
    assert {name for name in ("likes", "karma") if f"+ {name} " in " ".join(out.split()) + " "} == derived
    assert (NOTE in err) is noted


def test_simulate_runs_the_selected_rules(run: Run, rules: Path) -> None:
    code, out, err = run("simulate", "--rules", rules, "--select", "karma", "--histories", "10")
    assert (code, out.split(":")[0]) == (0, "✓ 10 histories passed")
    assert NOTE in err


@pytest.mark.parametrize("command", [("replay", "events.json"), ("simulate",)])
def test_unknown_rule_is_a_mistake(run: Run, rules: Path, command: tuple[str, ...]) -> None:
    code, _, err = run(*command, "--rules", rules, "--select", "like")
    assert (code, err) == (2, 'projections: unknown rule "like" (did you mean "likes"?)\n')

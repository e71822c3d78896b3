"""The public Python API: rules from files, texts and mappings, plans, operations on a store, and a Lambda handler."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import projections
from projections.engine.store import Delete, ItemKey, Update
from projections.errors import Misconfigured
from projections.language.program import LEDGER_SCHEMA
from projections.stores.memory import MemoryStore
from projections.testing import Scenario

HEAD: Mapping[str, Any] = {
    "table": {"key": ["PK", "SK"], "ttl": "expiresAt", "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}},
    "entities": {
        "User": {"key": {"PK": "USER#{userId}", "SK": "PROFILE"}},
        "Card": {"key": {"PK": "CARD#{userId}", "SK": "CARD"}},
        "Email": {"key": {"PK": "EMAIL#{email}", "SK": "OWNER"}},
        "Post": {"key": {"PK": "POST#{postId}", "SK": "METADATA"}},
        "Comment": {
            "key": {"PK": "POST#{postId}", "SK": "COMMENT#{commentId}"},
            "index_key": {"GSI1PK": "AUTHOR#{userId}"},
            "expires": True,
        },
    },
}
RULES: Mapping[str, Any] = {
    **HEAD,
    "projections": {
        "card": {"from": "User", "copy": {"into": "Card", "attributes": ["name"]}},
        "owner": {"from": "User", "copy": {"into": "Email", "attributes": ["name"]}},
        "discussion": {
            "from": "Comment",
            "expired": "keep",
            "aggregate": {
                "into": "Post",
                "set": {
                    "comments": "count",
                    "praise": {"count": {"where": {"stars": 5}}},
                    "stars": "sum(stars)",
                    "average": "avg(stars)",
                    "first": "min(text(at))",
                    "last": "max(text(at))",
                },
            },
        },
        "newest": {
            "from": "Comment",
            "expired": "retract",
            "top": {"into": "Post", "as": "recent", "by": "at", "limit": 2, "attributes": ["text"]},
        },
        "listed": {"from": "Post", "index": {"GSI1PK": "POSTS#{postId}", "GSI1SK": "{title}"}},
        "author": {
            "from": "User",
            "embed": {"into": "Comment", "match": {"userId": "{userId}"}, "attributes": {"userName": "name"}},
        },
    },
}
MORE = {**RULES, "projections": {**RULES["projections"]}}
MORE["projections"]["newest"] = json.loads(
    json.dumps(RULES["projections"]["newest"]).replace('"limit": 2', '"limit": 3')
)


def record(event: str, new: Mapping[str, Any] | None, old: Mapping[str, Any] | None = None, **more: Any) -> Any:
    """A stream record of items whose values are texts, and numbers where they are ints."""

    def image(item: Mapping[str, Any]) -> dict[str, Any]:
        return {name: {"N": str(value)} if isinstance(value, int) else {"S": value} for name, value in item.items()}

    shown = image(new if new is not None else old or {})
    change: dict[str, Any] = {"SequenceNumber": "100", "Keys": {name: shown[name] for name in ("PK", "SK")}}
    if new is not None:
        change["NewImage"] = image(new)
    if old is not None:
        change["OldImage"] = image(old)
    arn = "arn:aws:dynamodb:eu-west-1:111122223333:table/app/stream/2026-01-01T00:00:00.000"
    return {"eventName": event, "eventSourceARN": arn, "dynamodb": change, **more}


COMMENT = {"PK": "POST#p", "SK": "COMMENT#c", "userId": "u", "stars": 5, "at": "2026", "text": "Good"}


# Rules


@pytest.mark.parametrize("path", [None, {"table": {}}, 5, b"rules.yaml"])
def test_a_path_of_rules_that_is_no_path_is_a_usage_error(path: Any) -> None:
    message = re.escape(f"the path of the rule file is {path!r}. Pass text or a Path; for a mapping, use `projections")
    with pytest.raises(projections.UsageError, match=message):
        projections.load(path)


def test_a_mapping_a_text_and_a_file_make_the_same_rules(tmp_path: Path) -> None:
    text = json.dumps(RULES)
    (tmp_path / "rules.json").write_text(text)
    made = [projections.from_dict(RULES), projections.loads(text), projections.load(tmp_path / "rules.json")]
    assert [one.document for one in made] == [made[0].document] * 3
    assert [one.path for one in made] == [None, None, tmp_path / "rules.json"]
    assert made[0].names == ("card", "owner", "discussion", "newest", "listed", "author")


def test_mistakes_in_a_mapping_are_all_reported_by_path_and_without_lines() -> None:
    wrong = {
        **HEAD,
        "projections": {"a": {"from": "Pots", "index": {"GSI1PK": "x"}}, "b": {"from": "User", "copi": {}}},
    }
    with pytest.raises(projections.RulesError) as raised:
        projections.from_dict(wrong)
    with pytest.raises(projections.RulesError) as of_text:
        projections.loads(json.dumps(wrong))
    assert sorted((one.path, one.message) for one in raised.value.problems) == sorted(
        (one.path, one.message) for one in of_text.value.problems
    )
    assert len(raised.value.problems) > 1
    assert {(one.line, one.column) for one in raised.value.problems} == {(0, 0)}
    assert str(raised.value.problems[0]).startswith("<python>: projections.")


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        ({"table": {"key": {"PK"}}}, "table.key", "found set"),
        ({"entities": [{"a": object()}]}, "entities[0].a", "found object"),
        ({"entities": {1: {}}}, "entities", "the name 1 is not text"),
    ],
)
def test_values_that_no_rule_file_contains_are_reported_by_path(value: Any, path: str, message: str) -> None:
    with pytest.raises(projections.RulesError) as raised:
        projections.from_dict(value)
    (problem,) = raised.value.problems
    assert problem.path == path
    assert message in problem.message


def test_findings_have_lines_in_a_text_and_only_paths_in_a_mapping() -> None:
    rules = {**HEAD, "projections": {"all": {"from": "Post", "index": {"GSI1PK": "ALL", "GSI1SK": "{title}"}}}}
    of_text = projections.lint(projections.loads(json.dumps(rules, indent=1)))
    built = projections.lint(projections.from_dict(rules))
    assert [(one.code, one.path) for one in built] == [(one.code, one.path) for one in of_text]
    assert "hot-partition" in {one.code for one in built}
    assert {one.line for one in built} == {0}
    assert 0 not in {one.line for one in of_text}
    assert re.match(r"<python>: [\w.\[\]]+: (note|warning)", str(built[0]))


def test_a_comment_accepts_a_finding_of_a_loaded_file(tmp_path: Path) -> None:
    text = "\n".join(
        [
            "table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}",
            'entities: {Post: {key: {PK: "POST#{postId}", SK: METADATA}}}',
            "projections:",
            '  newest: {from: Post, index: {GSI1PK: ALL, GSI1SK: "{createdAt}"}} # check: ignore hot-partition',
        ]
    )
    (tmp_path / "rules.yaml").write_text(text)
    assert projections.lint(projections.load(tmp_path / "rules.yaml")) == ()


# Operations


@pytest.fixture
def scenario() -> Scenario:
    found = Scenario(projections.from_dict(RULES))
    found.given({"PK": "POST#p", "SK": "METADATA", "title": "Notes"}, COMMENT)
    return found


def test_apply_projects_what_was_there_and_publishes_the_rules() -> None:
    rules = projections.from_dict(RULES)
    store = MemoryStore({**rules.program.tables, "ledger": LEDGER_SCHEMA})
    store.put("main", {"PK": {"S": "POST#p"}, "SK": {"S": "METADATA"}, "title": {"S": "Notes"}})
    store.put("main", {"PK": {"S": "POST#p"}, "SK": {"S": "COMMENT#c"}, "stars": {"N": "4"}, "at": {"S": "2026"}})
    dry = projections.apply(store, rules, dry_run=True)
    assert (dry.ok, dry.counts["items"] > 0, projections.status(store, rules).epoch) == (True, True, None)
    done = projections.apply(store, rules)
    assert done.ok
    assert done.complete
    assert done.rules == {f"{name}.1": "active" for name in rules.program.rules}
    image = store.get(ItemKey("main", "POST#p", "METADATA"))
    assert image is not None
    assert image["comments"] == {"N": "1"}
    assert projections.verify(store, rules, patience=0).ok
    assert projections.status(store, rules).versions == done.rules
    held = projections.apply(store, projections.from_dict(MORE), hold=True)
    assert (held.ok, held.rules["newest.1"], held.rules["newest.2"]) == (True, "active", "ready")
    projections.apply(store, projections.from_dict(MORE))
    states = projections.status(store, rules).versions
    assert (states["newest.1"], states["newest.2"]) == ("standby", "active")
    assert projections.backfill(store, rules).ok


def test_verify_returns_drift_and_repair_what_is_left(scenario: Scenario) -> None:
    rules, store = scenario.rules, scenario.store
    store.write(Update(ItemKey("main", "POST#p", "METADATA"), set={"comments": {"N": "7"}}))
    found = projections.verify(store, rules, patience=0)
    assert [(one.rule, one.attribute, one.actual, one.expected) for one in found.drifts] == [
        ("discussion", "comments", 7, 1)
    ]
    assert (found.ok, found.repaired) == (False, {})
    assert projections.verify(store, rules, patience=0, only=["newest"]).ok
    assert not projections.explain_item(store, rules, "PK=POST#p,SK=METADATA").agrees
    mended = projections.verify(store, rules, patience=0, repair=True)
    assert (mended.ok, mended.drifts, mended.repaired["target"]) == (True, (), 1)


def test_redrive_refreshes_items_and_names_the_messages_that_are_left(scenario: Scenario) -> None:
    rules, store = scenario.rules, scenario.store
    store.write(Delete(ItemKey("main", "POST#p", "COMMENT#c")))
    body = json.dumps({"rule": "discussion", "reason": "…", "key": "main|POST#p|COMMENT#c"})
    discarded = json.dumps([record("REMOVE", None, COMMENT)])
    dry = projections.redrive(store, rules, [body], dry_run=True)
    assert (dry.ok, projections.verify(store, rules, patience=0).ok) == (True, False)
    done = projections.redrive(store, rules, [body, b"{", discarded], tables={"main": "app"})
    assert (done.items, sorted(done.left), done.ok) == (1, [1], False)
    assert projections.verify(store, rules, patience=0).ok


def test_an_invalid_key_and_an_unknown_rule_are_wrong_usage(scenario: Scenario) -> None:
    with pytest.raises(projections.UsageError, match="is not a key"):
        projections.explain_item(scenario.store, scenario.rules, "POST")
    with pytest.raises(projections.UsageError, match="nothing"):
        projections.verify(scenario.store, scenario.rules, only=["nothing"])


# AWS


def test_a_store_has_exactly_the_tables_of_the_rules() -> None:
    with pytest.raises(projections.UsageError, match="tables names posts; the rules have main"):
        projections.aws.store(projections.from_dict(RULES), {"posts": "app"}, "ledger")


def test_a_handler_takes_settings_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(projections.from_dict(RULES).document))
    monkeypatch.setenv("TABLE_NAME", "another")
    monkeypatch.setenv("RULES_FILE", str(tmp_path / "rules.json"))
    with pytest.raises(Misconfigured, match="LEDGER_TABLE_NAME is not set"):
        projections.aws.stream_handler()
    with pytest.raises(Misconfigured, match="LEDGER_TABLE_NAME is 'app', an application table"):
        projections.aws.stream_handler({"TABLE_NAME": "app", "LEDGER_TABLE_NAME": "app"})
    outcomes: list[Any] = []
    handler = projections.aws.stream_handler({"LEDGER_TABLE_NAME": "ledger"}, observe=outcomes.append)

    class Context:
        def get_remaining_time_in_millis(self) -> int:
            return 30_000

    assert handler({"not": "of a stream"}, Context()) == {"batchItemFailures": [{"itemIdentifier": ""}]}
    assert outcomes[0].counts == {"rejected": 1}


def test_a_handler_refuses_settings_that_do_not_exist() -> None:
    with pytest.raises(Misconfigured, match="there is no setting QUARANTINE_URL"):
        projections.aws.stream_handler({"QUARANTINE_URL": "https://…"})


# The package


def test_all_that_is_exported_exists_and_nothing_else() -> None:
    for name in projections.__all__:
        assert getattr(projections, name) is not None
    assert set(projections.__all__) <= set(dir(projections))
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        projections.lod  # type: ignore[attr-defined] # noqa: B018

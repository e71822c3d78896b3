"""REDACT: personal data in every kind of failure, and no piece of it in logs, metrics, errors or reasons of messages.

The output and messages are those of the real functions, see `redacted_functions`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import projections.stores.dynamodb  # noqa: F401  (its messages are known once it is loaded, as in a function)
from projections.aws.wiring import Settings
from projections.errors import Misconfigured, Transient
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA
from projections.operations.redaction import SECRET, Redaction, key_hash, read_secret
from projections.stores.memory import MemoryStore
from tests.operations.redacted_functions import IN_KEYS, IN_VALUES, MAIL

pytestmark = [pytest.mark.deep, pytest.mark.xdist_group("redaction")]  # one run of the functions for each mode

ROOT = Path(__file__).parents[2]
RULES = """
table:
  key: [PK, SK]
  indexes: {GSI1: [G, H]}
entities:
  User: {key: {PK: "USER#{email}", SK: PROFILE}}
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{email}", SK: "LIKE#{postId}"}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {G: "AUTHOR#{email}"}}
  ByPhone: {key: {PK: "PHONE#{phone}", SK: OWNER}, match: {type: ByPhone}}
  Month: {key: {PK: "MONTH#{month}", SK: STATS}, derived: true}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, total: sum(weight)}}}
  born: {from: User, bind: {month: "{born|date(%Y-%m)}"}, aggregate: {into: Month, set: {users: count}}}
  byPhone: {from: User, copy: {into: ByPhone, attributes: [name]}}
  author: {from: User, embed: {into: Comment, match: {email: "{email}"}, attributes: {userName: name}}}
"""
DOCUMENT = loads(RULES).document()


class Said:
    """The output and messages of the functions in one mode."""

    def __init__(self, mode: str) -> None:
        with TemporaryDirectory() as directory:
            rules, result = Path(directory, "rules.json"), Path(directory, "result.json")
            rules.write_text(json.dumps(DOCUMENT))
            done = subprocess.run(
                [sys.executable, "-m", "tests.operations.redacted_functions", str(rules), str(result)],
                cwd=ROOT,
                env={**os.environ, "REDACT": mode, "POWERTOOLS_LOG_LEVEL": "DEBUG", "POWERTOOLS_SERVICE_NAME": "shop"},
                text=True,
                capture_output=True,
                timeout=120,
                check=False,
            )
            assert done.returncode == 0, done.stderr
            self.printed = done.stdout + done.stderr
            self.lines: Sequence[Mapping[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
            self.sent: Mapping[str, Any] = json.loads(result.read_text())

    def logs(self, beginning: str) -> list[Mapping[str, Any]]:
        return [line for line in self.lines if line.get("message", "").startswith(beginning)]

    @property
    def reasons(self) -> str:
        """The messages of the quarantine without their keys."""
        return json.dumps([{**one, "key": None} for one in self.sent["quarantine"]], ensure_ascii=False)


said = cache(Said)


def words(some: Sequence[str], text: str) -> set[str]:
    """The words that a text has, in any case, also where JSON or Python escape them."""
    texts = [text.lower(), text.encode("ascii", "backslashreplace").decode().lower()]
    escaped = {word: word.encode("utf-16", "surrogatepass").decode("utf-16").lower() for word in some}
    return {word for word in some if any(escaped[word] in one or json.dumps(word)[1:-1] in one for one in texts)}


def test_without_redaction_all_of_it_is_somewhere() -> None:
    """So that the other tests look for what is there otherwise."""
    assert words(IN_KEYS + IN_VALUES, said("none").printed) == {*IN_KEYS, *IN_VALUES} - {"987654321"}
    assert words(IN_KEYS + IN_VALUES, said("none").reasons) > {"zoe", "xanthippe", "ziegelstra"}
    assert said("none").sent["secret"] is None
    assert not any("keyHash" in one for one in said("none").sent["quarantine"])


HIDDEN = {"keys": IN_KEYS, "values": IN_VALUES, "all": IN_KEYS + IN_VALUES}


@pytest.mark.parametrize("mode", HIDDEN)
def test_nothing_of_it_is_printed_or_in_reasons(mode: str) -> None:
    assert words(HIDDEN[mode], said(mode).printed) == set()
    assert words(HIDDEN[mode], said(mode).reasons) == set()
    kept = [word for word in HIDDEN["all"] if word not in HIDDEN[mode]]
    assert bool(words(kept, said(mode).printed)) == bool(kept)


@pytest.mark.parametrize("mode", HIDDEN)
def test_the_same_things_are_logged_as_without(mode: str) -> None:
    """Each kind of failure is still reported, with its rule and its fixed text."""

    def kinds(what: Said) -> list[tuple[Any, ...]]:
        shapes = [(one.get("level"), one.get("errorType"), one.get("rule"), one.get("table")) for one in what.lines]
        return sorted(shapes, key=str)

    assert kinds(said(mode)) == kinds(said("none"))
    for text in (
        'rejected: expression "weight": weight is a string, ',
        'rejected: template "{born|date(%Y-%m)}": born (a string, ',
        "rejected: occupied: an item of another kind has this key, so no ByPhone is created",
        "rejected: UpdateItem on app: ValidationException: ",
        "rejected: internal error of projections, the item is not the cause: KeyError: ",
        "internal error at an item, which is not the cause",
        'rejected: email is "',
        "to be retried: TransactWriteItems on ledger: ThrottlingException: ",
        "to be retried: Query on app: ValidationException: ",
        "to be retried: the message is not a task",
        "throttled: ThrottlingException of ledger",
        "drift: entry missing",
    ):
        assert said(mode).logs(text), text


def test_an_error_that_lambda_logs_keeps_its_kind_and_its_way_out() -> None:
    errors = [line["errorMessage"] for line in said("all").lines if "errorMessage" in line]
    assert any(
        text.startswith("GetItem on ledger: AccessDeniedException: ")
        and text.endswith("Allow dynamodb:GetItem on it to the role of this process.")
        for text in errors
    )


def test_metrics_have_counts_and_the_stack_only() -> None:
    metrics = [line for line in said("none").lines if "_aws" in line]
    assert metrics
    for line in metrics:
        for directive in line["_aws"]["CloudWatchMetrics"]:
            assert directive["Dimensions"] == [["service"]]
            names = {metric["Name"] for metric in directive["Metrics"]}
            assert all(isinstance(number, float) for name in names for number in line[name])
            assert set(line) == {"_aws", "service", "writes", *names}
            assert {name for name in line["writes"] if not name.startswith("(")} <= set(DOCUMENT["projections"])


def test_hashes_in_logs_and_messages_are_those_of_the_keys() -> None:
    secret = said("all").sent["secret"]
    expected = key_hash(secret, f"main|USER#{MAIL}|LIKE#p1")
    (message,) = [one for one in said("all").sent["quarantine"] if one["key"] == f"main|USER#{MAIL}|LIKE#p1"]
    assert message["keyHash"] == expected
    assert next(line["key"] for line in said("all").logs("rejected: expression")) == expected
    assert expected in {line["source"] for line in said("all").logs("drift: entry missing")}
    assert said("keys").sent["secret"] != secret


def test_a_message_keeps_the_key_that_a_redrive_needs_and_a_task_its_place() -> None:
    """As docs/deployment.md says of the queues."""
    for mode in ("none", "keys", "values", "all"):
        keys = [one["key"] for one in said(mode).sent["quarantine"]]
        assert f"main|USER#{MAIL}|PROFILE" in keys
    allowed = {"rule", "reason", "table", "key", "keyHash", "eventName", "sequenceNumber", "streamArn", "time"}
    allowed |= {"target", "fault", "triggeredBy", "triggeredByCount"}  # keys among them are hashes
    assert set().union(*said("all").sent["quarantine"]) == allowed


# The function that makes texts


def redaction(mode: str, store: MemoryStore | None = None) -> Redaction:
    return Redaction(mode, DOCUMENT, {"app", "ledger"}, store or MemoryStore({"ledger": LEDGER_SCHEMA}))


shared_redaction = cache(redaction)
"""One for each mode: each reads the texts of the whole package."""


@pytest.mark.parametrize(
    "text",
    [
        "Grace Hopper", "x: Grace does not fit", "'Grace", "Grace'", "\"Grace\\\"", "a string, 'Grace",
        "a string, 'it\\'s Grace'", "Grace on app: ValidationException", "\u202eecarG Grace", "😱Grace😱", "GRACE", "",
        "[Grace]", "{Grace}", "Grace\nGrace", "UpdateItem on Grace: Grace: Grace", "main|USER#Grace|PROFILE", "(Grace)",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["keys", "values", "all"])
def test_whatever_a_text_is_made_of_what_is_not_known_goes(mode: str, text: str) -> None:
    hiding = shared_redaction(mode)
    for around in ("{}", "weight ({}) does not fit date", 'email is "{}" in the key', "{} {}"):
        told = hiding.text(around.replace("{}", text), None)
        assert "grace" not in told.lower()
        assert "😱" not in told
        assert "\u202e" not in told


def test_texts_of_rules_and_tables_stay() -> None:
    text = "UpdateItem on app: ValidationException: ByPhone, likeCount, {born|date(%Y-%m)} and 42"
    kept = "UpdateItem on app: ValidationException: ByPhone, likeCount, {born|date(%Y-%m)} and …"
    assert redaction("all").text(text) == kept


def test_a_word_of_a_message_goes_where_a_quoted_value_begins_with_it() -> None:
    """Messages have pieces of one word, such as `is ` and `not `."""
    hiding = shared_redaction("values")
    for word in ("is", "not", "the", "no", "write", "unexpected"):
        text = f"publishedAt (a string, '{word} Zoe Quill') does not fit date(%Y-%m)"
        assert hiding.text(text).endswith(" (a string, '…') does not fit date(%Y-%m)")


def test_an_expression_in_a_template_of_the_rules_stays() -> None:
    rules = {"set": {"grams": [{"template": "{round(weight * 1000, 0)|pad(6)} g"}]}}
    known = Redaction("all", rules, (), MemoryStore({"ledger": LEDGER_SCHEMA}))
    text = "expression \"round(weight * 1000, 0)\": weight is a string, 'heavy'; a number is needed"
    assert known.text(text) == text.replace("heavy", "…")


def test_where_keys_are_removed_a_quoted_value_stays_unless_it_has_a_word_of_the_key() -> None:
    keys, about, fits = redaction("keys"), "main|USER#ann@example.org|LIKE#7", "does not fit date(%Y-%m)"
    assert keys.text(f"born (a string, 'much') {fits}", about) == f"born (a string, 'much') {fits}"
    for value in ("Ann", "qzx ANN@example", "7", "joann"):
        assert keys.text(f"born (a string, '{value}') {fits}", about) == f"born (a string, '…') {fits}"
    assert keys.text(f"born (a string, 'much') {fits}", None) == f"born (a string, '…') {fits}"


def test_one_secret_is_made_however_many_functions_need_it() -> None:
    store = MemoryStore({"ledger": LEDGER_SCHEMA})
    hashes = {redaction("keys", store).key("main|a|b") for _ in range(3)}
    assert hashes == {key_hash(str(read_secret(store)), "main|a|b")}
    assert len(str(read_secret(store))) == 64
    assert [item["pk"]["S"] for item in store.items("ledger")] == [SECRET.partition]


def test_another_function_that_makes_the_secret_first_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore({"ledger": LEDGER_SCHEMA})
    late = redaction("keys", store)
    first = redaction("keys", store).key("main|a|b")
    read, there = store.get, iter([False, True])  # it looked before the other one wrote
    monkeypatch.setattr(store, "get", lambda key: read(key) if next(there) else None)
    assert late.key("main|a|b") == first


def test_without_the_ledger_keys_are_unknown_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore({"ledger": LEDGER_SCHEMA})
    lost = redaction("keys", store)

    def throttled(key: Any) -> Any:
        raise Transient("throttled")

    monkeypatch.setattr(store, "get", throttled)
    assert lost.key("main|a|b") == "key:unknown"
    monkeypatch.undo()
    assert lost.key("main|a|b") == key_hash(str(read_secret(store)), "main|a|b")


def test_an_invalid_mode_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"REDACT is 'yes'\. Set it to none, keys, values or all"):
        Settings.read({"TABLE_NAME": "app", "LEDGER_TABLE_NAME": "ledger", "RULES_FILE": "r", "REDACT": "yes"})

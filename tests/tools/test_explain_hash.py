"""Hashes where a key is asked for: from a log to the item, and from an item to its log lines."""

from __future__ import annotations

import pytest
from place import RULES, Place

from projections.language.program import LEDGER_SCHEMA as LEDGER
from projections.operations.redaction import key_hash, read_secret
from projections.stores.dynamodb import DynamoDBStore

pytestmark = pytest.mark.deep  # a whole deployment for each test

LIKE = "main|USER#ann@example.org|LIKE#1"


@pytest.fixture
def redacted(place: Place) -> Place:
    """A deployment that redacts, with a quarantined record, an item that is gone, and one that never was."""
    place.environ["REDACT"] = "all"
    place.deploy(RULES)
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    place.deliver(place.put("USER#b", "LIKE#1", weight=1))
    place.deliver(place.put("USER#ann@example.org", "LIKE#1", weight="heavy"))
    return place


def store(place: Place) -> DynamoDBStore:
    schemas = place.program(RULES).tables
    return DynamoDBStore(place.dynamodb, {"main": place.table, "ledger": place.ledger}, {**schemas, "ledger": LEDGER})


def test_from_a_hash_in_the_log_to_the_item_and_back(redacted: Place) -> None:
    secret = read_secret(store(redacted))
    assert secret is not None
    made = key_hash(secret, LIKE)
    code, out, err = redacted.say("explain", "--item", "PK=USER#ann@example.org,SK=LIKE#1")
    assert (code, err) == (0, "")
    assert out.endswith(f"Logs can show the key as {made}.\n")
    code, said = redacted.run("explain", "--item", made)
    assert (said["key"], said["exists"], said["hash"]) == (LIKE, True, made)


def test_a_redrive_finds_the_item_of_a_redacted_message(redacted: Place) -> None:
    redacted.put("USER#ann@example.org", "LIKE#1", weight=5)
    code, said = redacted.run("redrive")
    assert (code, said["items"]) == (0, 1)
    assert redacted.item("POST#1", "METADATA")["total"] == 6


def test_an_item_that_is_gone_is_found_in_the_ledger(redacted: Place) -> None:
    redacted.deliver(redacted.remove("USER#b", "LIKE#1"))
    secret = read_secret(store(redacted))
    _, said = redacted.run("explain", "--item", key_hash(str(secret), "main|USER#b|LIKE#1"))
    assert (said["key"], said["exists"]) == ("main|USER#b|LIKE#1", False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"key:{'0' * 24}", "no item of the tables or of the ledger has a key with this hash"),
        ("user", "is not a key"),
        *((f"key:{digits}", "is not a whole hash") for digits in ("123", "XYZ", "0" * 25)),
    ],
)
def test_text_that_is_neither_key_nor_known_hash_is_an_error(redacted: Place, text: str, reason: str) -> None:
    code, _, err = redacted.say("explain", "--item", text)
    assert (code, reason in err) == (2, True)


def test_where_nothing_was_hashed_so_far(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    assert "Logs can show" not in place.say("explain", "--item", "PK=USER#a,SK=POST#1")[1]
    code, _, err = place.say("explain", "--item", f"key:{'0' * 24}")
    assert (code, "no function has hashed a key" in err) == (2, True)

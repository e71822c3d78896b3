"""`projections hash`, and hashes where a key is asked for: from a log to the item, and from an item to its log lines."""

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


@pytest.mark.deep
def test_from_a_hash_in_the_log_to_the_quarantined_message_and_the_item(redacted: Place) -> None:
    secret = read_secret(store(redacted))
    assert secret is not None
    made = key_hash(secret, LIKE)
    code, out, err = redacted.say("hash", "PK=USER#ann@example.org,SK=LIKE#1")
    assert (code, out, err) == (0, f"{made}\n", "")
    code, said = redacted.run("hash", made)
    assert (code, said["key"], said["place"]) == (0, LIKE, "main")
    (message,) = said["quarantined"]
    assert message["reason"] == "likes: expression \"weight\": weight is a string, '…'; a number is needed; " + (
        "write number(weight) if it holds numbers as text"
    )
    code, out, _ = redacted.say("hash", made)
    assert out.startswith(f"{LIKE} (an item of {redacted.table})\nquarantined: message ")
    code, said = redacted.run("explain", "--item", made)
    assert (said["key"], said["exists"]) == (LIKE, True)


def test_a_redrive_finds_the_item_of_a_redacted_message(redacted: Place) -> None:
    redacted.put("USER#ann@example.org", "LIKE#1", weight=5)
    code, said = redacted.run("redrive")
    assert (code, said["items"]) == (0, 1)
    assert redacted.item("POST#1", "METADATA")["total"] == 6


def test_an_item_that_is_gone_is_found_in_the_ledger(redacted: Place) -> None:
    redacted.deliver(redacted.remove("USER#b", "LIKE#1"))
    secret = read_secret(store(redacted))
    code, said = redacted.run("hash", key_hash(str(secret), "main|USER#b|LIKE#1"))
    assert (code, said["key"], said["place"]) == (0, "main|USER#b|LIKE#1", "ledger")


def test_a_hash_that_nothing_has(redacted: Place) -> None:
    nothing = f"key:{'0' * 24}"
    code, out, _ = redacted.say("hash", nothing)
    assert (code, out) == (
        1,
        f"{nothing}: no item of the tables, of the ledger or of the quarantine has a key with this hash\n",
    )
    code, _, err = redacted.say("explain", "--item", nothing)
    assert (code, "no item of the tables" in err) == (2, True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("user", "is not a key"), *((f"key:{digits}", "is not a whole hash") for digits in ("123", "XYZ", "0" * 25))],
)
def test_text_that_is_neither_key_nor_hash_is_an_error(redacted: Place, text: str, reason: str) -> None:
    code, _, err = redacted.say("hash", text)
    assert (code, reason in err) == (2, True)


def test_where_nothing_was_hashed_so_far(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    for text in (f"key:{'0' * 24}", "PK=USER#a,SK=POST#1"):
        code, out, err = place.say("hash", text)
        assert (code, out, "no function has hashed a key" in err) == (1, "", True)
    code, _, err = place.say("explain", "--item", f"key:{'0' * 24}")
    assert (code, "no function has hashed a key" in err) == (2, True)

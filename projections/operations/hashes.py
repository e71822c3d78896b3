"""Hashed keys, which logs have under `REDACT`: finds the key of a hash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from projections.engine.ledger_items import LEDGER
from projections.engine.store import ItemKey, Store, all_items
from projections.errors import UsageError
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.operations.redaction import HASH, key_hash, read_secret

__all__ = ["NO_HASHES", "Found", "find", "is_hash", "key_of"]

NO_HASHES = "no function has hashed a key: the ledger has no secret. Functions hash keys if the parameter Redact is set"

_WHOLE = "key"
"""The attribute of ledger items whose partition key does not have the whole key."""


@dataclass(frozen=True, slots=True)
class Found:
    """An encoded key, and where it was found: the logical name of a table, or `ledger` for an item that was deleted."""

    key: str
    place: str


def is_hash(text: str) -> bool:
    """Return whether a text is the hash of a key."""
    digits = text.removeprefix(HASH)
    return text.startswith(HASH) and len(digits) == 24 and set(digits) <= set("0123456789abcdef")


def find(program: Program, store: Store, secret: str, text: str) -> Found | None:
    """Return the key that has a hash; None if neither the tables nor the ledger have it. May read all of them."""
    made = partial(key_hash, secret)
    for table, schema in program.tables.items():
        for image in all_items(partial(store.scan, table, attributes=schema.key_attributes)):
            key = encode_key(schema.key(table, image))
            if made(key) == text:
                return Found(key, table)
    for image in all_items(partial(store.scan, LEDGER, attributes=("pk", _WHOLE))):
        key = _named(image)
        if key and made(key) == text:
            return Found(key, LEDGER)
    return None


def _named(item: Mapping[str, Mapping[str, str]]) -> str:
    """Return the encoded key that an item of the ledger is about; empty if there is none."""
    if _WHOLE in item:
        return item[_WHOLE].get("S", "")
    kind, _, rest = item["pk"]["S"].partition("|")
    return rest if kind == "E" else rest.partition("|")[2] if kind in ("G", "F", "W") else ""


def key_of(program: Program, store: Store, text: str) -> ItemKey:
    """Return the key of an item by its hash. Raises UsageError if there is none."""
    secret = read_secret(store)
    if secret is None:
        raise UsageError(NO_HASHES)
    found = find(program, store, secret, text)
    if found is None:
        raise UsageError(f"{text}: no item of the tables or of the ledger has a key with this hash")
    return decode_key(found.key)

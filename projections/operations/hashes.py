"""Hashed keys, which logs have under `REDACT`: finds the key of a hash."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from projections.engine.ledger_items import LEDGER
from projections.engine.store import ItemKey, Store, all_items
from projections.errors import UsageError
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.operations.redaction import HASH, key_hash, read_secret

__all__ = ["is_hash", "key_of"]

_WHOLE = "key"
"""The attribute of ledger items whose partition key does not have the whole key."""


def is_hash(text: str) -> bool:
    """Return whether a text is the hash of a key."""
    digits = text.removeprefix(HASH)
    return text.startswith(HASH) and len(digits) == 24 and set(digits) <= set("0123456789abcdef")


def _named(item: Mapping[str, Mapping[str, str]]) -> str:
    """Return the encoded key that an item of the ledger is about; empty if there is none."""
    if _WHOLE in item:
        return item[_WHOLE].get("S", "")
    kind, _, rest = item["pk"]["S"].partition("|")
    return rest if kind == "E" else rest.partition("|")[2] if kind in ("G", "F", "W") else ""


def key_of(program: Program, store: Store, text: str) -> ItemKey:
    """Return the key of an item by its hash. May read all items of the tables and of the ledger. Raises UsageError."""
    secret = read_secret(store)
    if secret is None:
        raise UsageError(
            "no function has hashed a key: the ledger has no secret. Functions hash keys if the parameter Redact is set"
        )
    made = partial(key_hash, secret)
    for table, schema in program.tables.items():
        for image in all_items(partial(store.scan, table, attributes=schema.key_attributes)):
            if made(encode_key(found := schema.key(table, image))) == text:
                return found
    for image in all_items(partial(store.scan, LEDGER, attributes=("pk", _WHOLE))):
        if (key := _named(image)) and made(key) == text:
            return decode_key(key)
    raise UsageError(f"{text}: no item of the tables or of the ledger has a key with this hash")

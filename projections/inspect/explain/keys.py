"""Keys on the command line: `PK=POST#p1,SK=METADATA`, or encoded as in logs and quarantine."""

from __future__ import annotations

import re

from projections.engine.store import ItemKey
from projections.errors import InvalidRequest, UsageError
from projections.language.keys import Schema, decode_key
from projections.language.program import Program
from projections.operations.redaction import HASH
from projections.printable import unescaped
from projections.stores.limits import checked_key

__all__ = ["read_key"]


def read_key(program: Program, text: str) -> ItemKey:
    """Return the key of an item.

    `PK=POST#p1,SK=METADATA` has each key attribute (a value may contain commas); `orders:PK=…` names the table if several
    have these attributes. `main|POST#p1|METADATA` is the encoded form. Escapes of our output such as `\\u001b` are
    accepted. Raises UsageError.
    """
    text = unescaped(text)
    tables = program.tables
    if "|" in text and text.partition("|")[0] in tables:
        return _checked(program, _encoded(program, text), text)
    table, colon, rest = text.partition(":")
    candidates = {table: tables[table]} if colon and table in tables else dict(tables)
    body = rest if colon and table in tables else text
    found = [key for name, schema in candidates.items() if (key := _named(name, schema, body)) is not None]
    if len(found) == 1:
        return _checked(program, found[0], text)
    if found:
        names = ", ".join(f"{key.table}:{body}" for key in found)
        raise UsageError(f"{text!r} fits several tables. Write one of {names}")
    if text.startswith(HASH):
        raise UsageError(f"{text} is not a whole hash. Write {HASH} and all 24 hexadecimal digits, as the log has them")
    raise UsageError(f"{text!r} is not a key. Write {_forms(program)}")


def _forms(program: Program) -> str:
    """Return the forms of a key of each table."""
    many = len(program.tables) > 1
    forms = []
    for name, schema in program.tables.items():
        body = ",".join(f"{attribute}=…" for attribute in schema.key_attributes)
        parts = "|".join(["…"] * len(schema.key_attributes))
        forms.append(f"{name + ':' if many else ''}{body} (or, encoded, {name}|{parts})")
    return " or ".join(forms)


def _named(table: str, schema: Schema, text: str) -> ItemKey | None:
    """Return the key with the values of `A=…,B=…` in any order; None unless exactly the key attributes are given."""
    names = schema.key_attributes
    choice = "|".join(re.escape(name) for name in names)
    places = list(re.finditer(rf"(?:^|,)\s*({choice})=", text))
    if not places or places[0].start() != 0:
        return None
    # a value may contain text like another attribute: the first place of each name counts
    first: dict[str, re.Match[str]] = {}
    for place in places:
        first.setdefault(place[1], place)
    if first.keys() != set(names):
        return None
    ordered = sorted(first.values(), key=lambda place: place.start())
    ends = [place.start() for place in ordered[1:]] + [len(text)]
    values = {place[1]: text[place.end() : end] for place, end in zip(ordered, ends, strict=True)}
    return ItemKey(table, *(values[name] for name in names))


def _encoded(program: Program, text: str) -> ItemKey:
    key = decode_key(text) if text.count("|") <= 2 else None
    parts = len(program.tables[text.partition("|")[0]].key_attributes)
    if key is None or (key.sort is None) != (parts == 1):
        raise UsageError(f"{text!r} is not an encoded key. Write {_forms(program)}; a | in a part is written %7C")
    return key


def _checked(program: Program, key: ItemKey, text: str) -> ItemKey:
    try:
        return checked_key(program.tables[key.table], key)
    except (InvalidRequest, ArithmeticError) as error:
        raise UsageError(f"{text!r} is not a key of table {key.table}: {error}") from None

"""How an item is named on the command line: `PK=POST#p1,SK=METADATA`, or encoded as logs and quarantine show it."""

from __future__ import annotations

import re

from projections.engine.store import ItemKey
from projections.errors import InvalidRequest, UsageError
from projections.language.keys import Schema, decode_key
from projections.language.program import Program
from projections.printable import unescaped
from projections.stores.limits import checked_key

__all__ = ["read_key"]


def read_key(program: Program, text: str) -> ItemKey:
    """The key of an item.

    `PK=POST#p1,SK=METADATA` names each key attribute (a value may hold commas); `orders:PK=…` says which table, where
    several have these attributes. `main|POST#p1|METADATA` is the encoded form. A character that our output shows as
    `\\u001b` may be written so. Raises UsageError.
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
        raise UsageError(f"{text!r} may be of several tables: write one of {names}")
    raise UsageError(f"{text!r} is no key: write {_forms(program)}")


def _forms(program: Program) -> str:
    """How a key of each table is written."""
    many = len(program.tables) > 1
    forms = []
    for name, schema in program.tables.items():
        body = ",".join(f"{attribute}=…" for attribute in schema.key_attributes)
        parts = "|".join(["…"] * len(schema.key_attributes))
        forms.append(f"{name + ':' if many else ''}{body} (or, encoded, {name}|{parts})")
    return " or ".join(forms)


def _named(table: str, schema: Schema, text: str) -> ItemKey | None:
    """The values of `A=…,B=…` for exactly the key attributes, in either order; None if it is not that."""
    names = schema.key_attributes
    choice = "|".join(re.escape(name) for name in names)
    places = list(re.finditer(rf"(?:^|,)\s*({choice})=", text))
    if not places or places[0].start() != 0:
        return None
    # a value may hold what looks like another attribute: the first place of each name counts
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
        raise UsageError(f"{text!r} is no encoded key: write {_forms(program)}; a | within a part is written %7C")
    return key


def _checked(program: Program, key: ItemKey, text: str) -> ItemKey:
    try:
        return checked_key(program.tables[key.table], key)
    except (InvalidRequest, ArithmeticError) as error:
        raise UsageError(f"{text!r} is no key of table {key.table}: {error}") from None

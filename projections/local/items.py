"""Conversions of items between plain values, as tests have them, and wire form, as the engine has them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.records import is_value
from projections.engine.store import Image, ItemKey, Schema, Value
from projections.errors import UsageError
from projections.language.program import Program
from projections.language.syntax import LanguageError
from projections.language.values import is_number_form, plain, plain_words, wire, wire_set

_SETS = ("SS", "NS", "BS")
_TAGS = frozenset({"S", "N", "B", "BOOL", "NULL", "L", "M", *_SETS})


def wire_item(item: object, what: str) -> Image:
    """Return an item in wire form; plain values are converted. Raises UsageError, which begins with `what`."""
    if not isinstance(item, Mapping):
        raise UsageError(f"{what}: an item is a mapping of attributes, this is {_show(item)}")
    if in_wire_form(item):
        for name, value in item.items():
            if not is_value({"M": {name: dict(value)}}):
                raise UsageError(
                    f"{what}: {name} is {_show(value)}, not a value of DynamoDB; if all attributes have types, numbers are "
                    'text: {"N": "1"}'
                )
        return dict(item)
    image = {}
    for name, value in item.items():
        try:
            image[str(name)] = value_of(value)
        except LanguageError as error:
            raise UsageError(f"{what}: {name}: {error}") from None
    return image


def in_wire_form(item: Mapping[Any, Any]) -> bool:
    """Return whether all values of an item have types: `{"PK": {"S": "POST#p1"}}`."""
    return bool(item) and all(
        isinstance(value, Mapping) and len(value) == 1 and next(iter(value)) in _TAGS for value in item.values()
    )


def value_of(value: object) -> Value:
    """Return a plain value in wire form. Sets are written as `{SS: […]}`, `{NS: […]}` or `{BS: […]}`, as YAML has none."""
    if isinstance(value, Mapping):
        if len(value) == 1:
            ((name, elements),) = value.items()
            if name in _SETS and isinstance(elements, Sequence) and not isinstance(elements, str):
                return wire_set(elements)
        if not (len(value) == 1 and ("$binary" in value or is_number_form(value))):
            return {"M": {str(name): value_of(element) for name, element in value.items()}}
    if isinstance(value, list | tuple):
        return {"L": [value_of(element) for element in value]}
    return wire(value)


def key_of(program: Program, table: str, item: object, what: str) -> ItemKey:
    """Return the key of an item, of a mapping with its key attributes, or of a list (partition key, sort key).

    Raises UsageError, which begins with `what`.
    """
    schema = program.tables[table]
    names = schema.key_attributes
    if isinstance(item, list | tuple):
        if len(item) != len(names):
            raise UsageError(f"{what}: the key is {_key_text(schema)}, this has {len(item)} parts")
        item = schema.wire(ItemKey(table, *map(str, item)))
    image = wire_item(item, what)
    try:
        return schema.key(table, image)
    except (KeyError, ValueError, ArithmeticError):
        raise UsageError(f"{what}: the key is {_key_text(schema)}, this has {_show_keys(image, names)}") from None


def _key_text(schema: Schema) -> str:
    kinds = {"S": "text", "N": "number", "B": "binary"}
    parts = [schema.partition, *([schema.sort] if schema.sort else [])]
    return " and ".join(f"{name} ({kinds[kind]})" for name, kind in parts)


def _show_keys(image: Image, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {value_words(image[name])}" if name in image else f"no {name}" for name in names)


def key_words(key: ItemKey, *, several: bool = False) -> str:
    """Return a key as `POST#p1 · METADATA`, after the table's name if there are several tables."""
    text = " · ".join(part for part in key[1:] if part is not None)
    return f"{key.table}: {text}" if several else text


def value_words(value: Value | None, most: int = 200) -> str:
    """Return a value on one line, "absent" for None."""
    return "absent" if value is None else json_words(plain(value), most)


def different_words(value: Value | None, other: Value | None, most: int = 200) -> tuple[str, str]:
    """Return two different values as `value_words` does; if these are equal, the parts from a little before they differ."""
    first, second = distinct(
        [value_words(each, most) for each in (value, other)],
        [value_words(each, sys.maxsize) for each in (value, other)],
        most,
    )
    return first, second


def distinct(texts: Sequence[str], whole: Sequence[str], most: int = 60) -> list[str]:
    """Return texts; if those of different `whole` ones are equal, the parts from a little before the first difference."""
    if len(set(texts)) == len(set(whole)):
        return list(texts)
    same = next(
        (n for n, letters in enumerate(zip(*whole, strict=False)) if len(set(letters)) > 1), min(map(len, whole))
    )
    begin = max(0, same - most // 3)
    while len({text[begin : begin + most] for text in whole}) < len(set(whole)):
        most *= 2
    return [
        f"{'…' if begin else ''}{text[begin : begin + most]}{'…' if begin + most < len(text) else ''}" for text in whole
    ]


def json_words(value: object, most: int = 200) -> str:
    """Return a plain value on one line."""
    text = plain_words(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"

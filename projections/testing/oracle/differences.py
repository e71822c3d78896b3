"""Differences between the actual and the expected content of tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from projections.language.keys import Image, ItemKey
from projections.testing.oracle.values import normal

if TYPE_CHECKING:
    from projections.testing.oracle.oracle import Expected, Oracle

__all__ = ["Difference", "compare", "of"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One attribute that is not as it should be; `attribute` is None where the whole item should not, or should, be.

    `key` is the encoded key of the item; `actual` and `expected` are in wire form, None where there is nothing.
    """

    table: str
    key: str
    attribute: str | None
    actual: Mapping[str, Any] | None
    expected: Mapping[str, Any] | None
    rule: str | None
    """The rule that should have written it, if one is responsible."""


def compare(document: Mapping[str, Any], items: Mapping[str, Iterable[Image]], expected: Expected) -> list[Difference]:
    """Numbers are compared by value, sets without order, guards not at all."""
    from projections.testing.oracle.oracle import Oracle  # it offers this comparison itself

    return of(Oracle(document), items, expected)


def of(oracle: Oracle, items: Mapping[str, Iterable[Image]], expected: Expected) -> list[Difference]:
    """The same, for rules that are parsed already."""
    actual = oracle.read(items)
    return [
        difference
        for key in sorted(actual.keys() | expected.items.keys(), key=_text)
        for difference in _of_item(oracle, key, actual.get(key), expected)
    ]


def _of_item(oracle: Oracle, key: ItemKey, actual: Image | None, expected: Expected) -> Iterator[Difference]:
    wanted = expected.items.get(key)
    if actual == wanted:
        return
    known = oracle.recognise(key, wanted if wanted is not None else actual or {})
    owners = oracle.owners[known[0].name] if known else {}
    creator = expected.creators.get(key)
    if creator is None and known and oracle.creators[known[0].name]:
        creator = oracle.creators[known[0].name][0].name
    if actual is None or wanted is None:
        yield Difference(key.table, _text(key), None, actual, wanted, creator)
        return
    for name in sorted(actual.keys() | wanted.keys()):
        held, due = actual.get(name), wanted.get(name)
        if (key, name) in expected.incomparable or held == due:
            continue
        if held is None or due is None or normal(held) != normal(due):
            yield Difference(key.table, _text(key), name, held, due, owners.get(name, owners.get("*")))


def _text(key: ItemKey) -> str:
    """A key as one text: `|` and `%` inside its parts are written %7C and %25."""
    return "|".join(part.replace("%", "%25").replace("|", "%7C") for part in key if part is not None)

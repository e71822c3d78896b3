"""Items of a sample with their keys split at separators, and the words in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import combinations
from typing import TypeVar

from projections.init.proposal import Entity, Table
from projections.language.keys import key_text
from projections.language.syntax import PATH
from projections.language.values import Image

TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?")

_MARKER = re.compile(r"[$@_]?[A-Za-z]+(?:[_-][A-Za-z]+)*(?:_?\d)?")
_SHOUTING = re.compile(r"[A-Z]{2,}(?:[_-][A-Z]+)*\d?|[A-Z]")
_LONGEST_MARKER = 32

GENERIC = frozenset(
    {"profile", "metadata", "meta", "info", "information", "details", "detail", "data", "root", "main", "self", "a"}
    | {"item", "record", "base", "header", "entity", "core", "attributes", "description", "doc", "document", "v"}
)
"""Sort keys of the item that gives its partition the name."""

_FORMS = (
    ("time", TIME),
    ("date", re.compile(r"\d{4}-\d\d-\d\d")),
    ("month", re.compile(r"\d{4}-\d\d")),
    ("uuid", re.compile(r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")),
    ("digits", re.compile(r"\d+")),
)


def is_marker(text: str) -> bool:
    """Return whether a part of a key could name a kind of item: a short word."""
    return len(text) <= _LONGEST_MARKER and _MARKER.fullmatch(text) is not None


def is_usable(name: str) -> bool:
    """Return whether rules can name an attribute; a name with a dot is a path into a map there."""
    return PATH.fullmatch(name) is not None and "." not in name


def is_shouting(text: str) -> bool:
    return len(text) <= _LONGEST_MARKER and _SHOUTING.fullmatch(text) is not None


def form_of(text: str) -> str:
    """Return the form of a text: `time`, `date`, `month`, `uuid`, `digits`, or `text`."""
    return next((name for name, pattern in _FORMS if pattern.fullmatch(text)), "text")


def words(text: str) -> list[str]:
    """Return the words of a name in any style: `lastCommentAt`, `last_comment_at`, `LAST-COMMENT-AT`."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+", text)
    return [word.lower() for word in parts]


def normal(text: str) -> str:
    """Return a name in lower case without separators."""
    return "".join(words(text))


def pascal(text: str) -> str:
    """Return a name for an entity, such as `OrderItem` for `ORDER-ITEM`; empty if the text has no letters."""
    joined = "".join(word.capitalize() for word in words(text))
    joined = re.sub(r"[^A-Za-z0-9]", "", joined)
    return re.sub(r"^\d+", "", joined)[:48]


def small_numbers(texts: Iterable[str]) -> bool:
    """Return whether texts are small numbers: attributes that share these need not be related."""
    return all(text.isdecimal() and len(text) < 4 for text in texts)


def lower_camel(text: str) -> str:
    name = pascal(text)
    return name[:1].lower() + name[1:]


def singular(word: str) -> str:
    lower = word.lower()
    if len(word) > 3 and lower.endswith("ies"):
        return word[:-3] + "y"
    if len(word) > 4 and lower.endswith(("sses", "xes", "ches", "shes")):
        return word[:-2]
    if len(word) > 2 and lower.endswith("s") and not lower.endswith(("ss", "us", "is", "news")):
        return word[:-1]
    return word


def plural(word: str) -> str:
    lower = word.lower()
    if lower.endswith("y") and lower[-2:-1] not in "aeiou":
        return word[:-1] + "ies"
    if lower.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    return word + "s"


def escape_braces(text: str) -> str:
    """Return a text as templates have it."""
    return text.replace("{", "{{").replace("}", "}}")


def mask(text: str) -> str:
    """Return a text with its letters replaced by x or X, and its digits by 9."""
    letters = "".join("x" if c.islower() else "X" if c.isupper() else c if c.isascii() else "x" for c in text[:80])
    return re.sub(r"\d", "9", letters) + ("…" if len(text) > 80 else "")


SEPARATORS = "#|/:"
"""Separators of the parts of keys, the most probable first. Other signs (`_`, `-`, `.`) are usually parts of ids."""

T = TypeVar("T")

Position = tuple[int, int]
"""A part of a key: the number of the key attribute, and the number of the part in it."""


@dataclass
class Row:
    """An item, and the parts of its keys."""

    item: Image
    parts: dict[Position, str]
    attributes: frozenset[str] = frozenset()
    """The names of attributes that rules can read and write, and that are not part of any key."""
    kind: str | None = None
    """The value of its type attribute, if the table has one."""
    variables: dict[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        """Return a key variable or an attribute as text, None if it is neither text nor number."""
        if name in self.variables:
            return self.variables[name]
        value = self.item.get(name, {})
        return key_text("N", value["N"]) if "N" in value else value.get("S")


@dataclass
class Group:
    """An entity and its rows, with `variables` for its key."""

    entity: Entity
    rows: list[Row]


_MOST_WORDS = 8


def few_words(group: Group) -> Iterator[tuple[str, Counter[str | bool]]]:
    """Yield attributes with few words as values, such as a status, and how often each word is there."""
    for attribute in group.entity.attributes:
        if attribute.type in ("S", "BOOL"):
            every = Counter(word for row in group.rows if (word := scalar(row.item, attribute.name)) is not None)
            if len(every) <= _MOST_WORDS and all(isinstance(word, bool) or is_marker(word) for word in every):
                yield attribute.name, every


def scalar(item: Image, name: str) -> str | bool | None:
    """Return the text or boolean of an attribute; None if it is absent or has another type."""
    value = item.get(name, {})
    content = value.get("S", value.get("BOOL"))
    return content if isinstance(content, str | bool) else None


def rows_of(items: Sequence[Image], table: Table, separator: str) -> list[Row]:
    """Return the rows of the items that have a key, as all items of a table do."""
    usable = [item for item in items if all(kind in item.get(name, {}) for name, kind in table.key)]
    no_attributes = {*table.key_names, *table.index_names, table.ttl}
    rows = []
    for item in usable:
        parts: dict[Position, str] = {}
        for attribute, (name, kind) in enumerate(table.key):
            texts = cut(item[name]["S"], separator) if kind == "S" else [key_text(kind, item[name][kind])]
            parts |= {(attribute, number): text for number, text in enumerate(texts)}
        rows.append(Row(item, parts, frozenset(filter(is_usable, item)) - no_attributes))
    return rows


def cut(text: str, separator: str) -> list[str]:
    """Return the parts of a key. A time is always one part."""
    whole = TIME.sub(lambda match: match[0].replace(separator, "\0"), text)
    return [part.replace("\0", separator) for part in whole.split(separator)]


def common_separator(items: Sequence[Image], table: Table) -> str:
    """Return the separator that follows a word in most keys, or `#`."""

    def score(separator: str) -> int:
        firsts: Counter[str] = Counter()
        for item in items:
            for name, kind in table.key:
                text = item.get(name, {}).get("S") if kind == "S" else None
                if text and separator in text and "://" not in text:
                    firsts.update(part for part in cut(text, separator)[:3] if is_marker(part))
        return sum(count for count in firsts.values() if count > 1) or min(len(firsts), 1)

    return max(SEPARATORS, key=lambda separator: (score(separator), -SEPARATORS.index(separator)))


def jaccard(first: Set[str], second: Set[str]) -> float:
    """Return the share of common elements of two sets, 0 to 1; 1 for two empty ones."""
    return len(first & second) / len(first | second) if first or second else 1.0


def attributes_of(rows: Iterable[Row]) -> frozenset[str]:
    """Return the attributes that any of the rows has."""
    return frozenset(name for row in rows for name in row.attributes)


def kinds_of(rows: Iterable[Row]) -> Counter[str]:
    """Return how many of the rows have each kind, without those of no kind."""
    return Counter(row.kind for row in rows if row.kind is not None)


def group_by(values: Iterable[T], key: Callable[[T], object]) -> Mapping[object, list[T]]:
    """Return the values by their keys."""
    groups: dict[object, list[T]] = {}
    for value in values:
        groups.setdefault(key(value), []).append(value)
    return groups


# The type attribute of a table, whose value is the kind of an item

_NAMES = (
    *("entitytype", "typename", "entity", "itemtype", "recordtype", "entityname", "modelname", "doctype"),
    *("documenttype", "objecttype", "discriminator", "edbe", "et", "type", "kind", "model", "class", "object"),
)
"""Names of type attributes in lower case without separators, the most probable first. `type` may be a type of product."""

_PRESENT = 0.7
_PURE = 0.8
_LIKE = 0.7
_MOST = 60


def set_kinds(rows: Sequence[Row]) -> str | None:
    """Set the kind of each row to the value of the type attribute, and return its name; None if there is no such attribute.

    It has few values, and keys or other attributes depend on it. It is no attribute of the rows any more.
    """
    names = {name for row in rows for name in row.attributes if normal(name) in _NAMES}
    ordered = sorted(names, key=lambda name: (_NAMES.index(normal(name)), name))
    attribute = next((name for name in ordered if _discriminates(rows, name)), None)
    if attribute is not None:
        for row in rows:
            row.kind = _value(row, attribute)
            row.attributes -= {attribute}
    return attribute


def _value(row: Row, name: str) -> str | None:
    text = row.item.get(name, {}).get("S")
    return text if text and len(text) <= 64 else None


def _discriminates(rows: Sequence[Row], name: str) -> bool:
    with_it = [row for row in rows if _value(row, name)]
    values = Counter(_value(row, name) for row in with_it)
    if len(with_it) < _PRESENT * len(rows) or not 2 <= len(values) <= min(_MOST, max(2, len(with_it) // 2)):
        return False
    shapes = group_by(with_it, lambda row: tuple((at, is_shouting(text) and text) for at, text in row.parts.items()))
    pure = sum(Counter(_value(row, name) for row in same).most_common(1)[0][1] for same in shapes.values())
    if len(shapes) > 1 and pure >= _PURE * len(with_it):
        return True
    by_value = group_by(with_it, lambda row: _value(row, name)).values()
    sets = [attributes_of(same) for same in by_value]
    likeness = [jaccard(first - {name}, second - {name}) for first, second in combinations(sets, 2)]
    return bool(likeness) and sum(likeness) / len(likeness) <= _LIKE

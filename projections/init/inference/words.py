"""Words: whether a text may name a kind of item, the form of texts, and names made of words."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = [
    "GENERIC",
    "ORDERED",
    "TIME",
    "form_of",
    "is_marker",
    "is_shouting",
    "lower_camel",
    "masked",
    "normal",
    "pascal",
    "plural",
    "singular",
    "small_numbers",
    "words",
]

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
    ("ulid", re.compile(r"[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}")),
    ("digits", re.compile(r"\d+")),
    ("number", re.compile(r"-?\d+(?:\.\d+)?")),
    ("email", re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}")),
    ("url", re.compile(r"[a-z][a-z0-9+.-]*://\S+")),
)


ORDERED = ("time", "date", "ulid")
"""Forms of texts whose order is that of time."""


def is_marker(text: str) -> bool:
    """Return whether a part of a key could name a kind of item: a short word."""
    return len(text) <= _LONGEST_MARKER and _MARKER.fullmatch(text) is not None


def is_shouting(text: str) -> bool:
    return len(text) <= _LONGEST_MARKER and _SHOUTING.fullmatch(text) is not None


def form_of(texts: Iterable[str]) -> str:
    """Return the form of texts: `time`, `date`, `month`, `uuid`, `ulid`, `digits`, `number`, `email`, `url`, or `text`."""
    sample = list(texts)
    for name, pattern in _FORMS:
        if sample and all(pattern.fullmatch(text) for text in sample):
            return name
    return "text"


def words(text: str) -> list[str]:
    """Return the words of a name in any style: `lastCommentAt`, `last_comment_at`, `LAST-COMMENT-AT`."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+", text)
    return [word.lower() for word in found]


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


def masked(text: str) -> str:
    """Return a text with its letters replaced by x or X, and its digits by 9."""
    shown = "".join("x" if c.islower() else "X" if c.isupper() else c if c.isascii() else "x" for c in text[:80])
    return re.sub(r"\d", "9", shown) + ("…" if len(text) > 80 else "")

"""Errors, mistakes and names, for templates, patterns and expressions."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from projections.errors import ProjectionsError

_QUOTED = r"""'(?:[^'{}]|'')+'|"(?:[^"{}]|"")+\""""
PATH = re.compile(rf"(?:[^\W\d][\w~$@:-]*|[~$@][\w~$@:-]*|{_QUOTED})(?:\.(?:[\w~$@:-]+|{_QUOTED}))*")
"""A variable, an attribute, or a dotted path into one, such as `address.city` or `tags.0`.

A step with other signs is in quotes, which are doubled inside: `'status#createdAt'`, `prices.'2026.5'`, `'it''s'`. It
has no braces, which make a text a template.
"""

BRACES = (
    "a name in quotes cannot contain braces: only a key of a mapping can have such a name, without quotes; let the "
    "application write the value under another name"
)
"""The message for a name that only mappings can have, because a text with braces is a template."""

_STEP = re.compile(rf"{_QUOTED}|[^.]+")
_BARE = re.compile(r"[\w~$@:-]+")
_BARE_FIRST = re.compile(r"[^\W\d][\w~$@:-]*|[~$@][\w~$@:-]*")

# The compiled rules name a value by its *name*: the steps of its path between dots. A step is as the item has it, and in
# single quotes only if it contains a dot or begins with a quote. So the name of an attribute is nearly always itself.


@lru_cache(maxsize=16_384)
def steps(name: str) -> tuple[str, ...]:
    """Return the steps of a name, or of a path as it is written: an attribute or variable, and what leads into it."""
    if "'" not in name and '"' not in name:
        return tuple(name.split("."))
    found, position = [], 0
    while position < len(name):
        step = _STEP.match(name, position)
        text = step[0] if step is not None else ""
        quote = text[:1]
        quoted = len(text) > 2 and quote in ("'", '"') and text[-1] == quote
        found.append(text[1:-1].replace(quote * 2, quote) if quoted else text)
        position += len(text) + 1
    return tuple(found)


def root(name: str) -> str:
    """Return the attribute or variable in which a name begins."""
    return steps(name)[0]


def shown_name(name: str) -> str:
    """Return a name as results have it: an attribute as it is, a path with dots."""
    return root(name) if len(steps(name)) == 1 else name


@lru_cache(maxsize=16_384)
def name_of(path: str) -> str:
    """Return the name that a path has, which is written as `PATH` or as a key of a mapping."""
    return path if "'" not in path and '"' not in path else joined(steps(path))


def joined(parts: Iterable[str]) -> str:
    """Return the name with these steps."""
    return ".".join(quoted_step(step) if "." in step or step[:1] in ("'", '"') else step for step in parts)


def join_names(names: Sequence[str]) -> str:
    """Return names as `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def written_path(name: str, dashes: bool = True) -> str:
    """Return a name as a path in a template; without `dashes`, as one in an expression, where a dash would subtract."""
    first, *rest = steps(name)
    parts = [first if _BARE_FIRST.fullmatch(first) else quoted_step(first)]
    parts += [step if _BARE.fullmatch(step) else quoted_step(step) for step in rest]
    return ".".join(quoted_step(step) if not dashes and "-" in step and step[0] != "'" else step for step in parts)


def key_name(key: str) -> str | None:
    """Return the name that a key of a mapping stands for; None if it must be in quotes.

    A name without dots needs none there, whatever other signs it has.
    """
    if PATH.fullmatch(key) or ("." not in key and key[:1] not in ("'", '"')):
        return name_of(key)
    return None


def key_text(name: str) -> str:
    """Return a name as a key of a mapping has it: without quotes if possible."""
    return name if key_name(name) == name else written_path(name)


def quote_it(key: str) -> str:
    """Return the message for a key that is no path: a name with a dot and other signs."""
    if "{" in key or "}" in key:
        return BRACES
    return f'a dot leads into a map, and a name that contains one is in quotes: write "{quoted_step(key)}" for one name'


def quoted_step(step: str) -> str:
    return "'" + step.replace("'", "''") + "'"


_VOWEL = re.compile("(?!u[^aeiou][aeiou]|eu|one)[aeiou]", re.IGNORECASE)
"""The beginning of a name with the article `an`."""


class LanguageError(ProjectionsError):
    """A template, pattern or expression is invalid.

    `offset` is the position of the mistake in the text (from 0). `path` is its place in a document of mappings and lists,
    `()` for a text.
    """

    def __init__(self, message: str, offset: int | None = None, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.path = path

    def within(self, *path: str | int) -> LanguageError:
        """Return the same error for a document that contains this one at `path`."""
        return LanguageError(self.message, self.offset, (*path, *self.path))


class LanguageErrors(ProjectionsError):
    """All errors of one document, in its order; at least one."""

    def __init__(self, errors: Sequence[LanguageError]) -> None:
        places = (f"{'.'.join(map(str, error.path))}: " if error.path else "" for error in errors)
        super().__init__("\n".join(place + error.message for place, error in zip(places, errors, strict=True)))
        self.errors = tuple(errors)


def an(name: str) -> str:
    """Return a name with its indefinite article: a User, an Update, an Order, a European."""
    return f"{'an' if _VOWEL.match(name) else 'a'} {name}"


def suggest(word: str, candidates: Iterable[str]) -> str:
    """Return ` (did you mean "x"?)` with the candidate nearest to a misspelt word, or an empty text."""
    near = nearest(word, candidates)
    return f' (did you mean "{near}"?)' if near is not None else ""


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate nearest to a misspelt word, None if none is similar."""
    from difflib import get_close_matches  # only needed for errors

    known = {candidate.lower(): candidate for candidate in candidates}
    near = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return known[near[0]] if near else None


# --- durations ---


_DURATION = re.compile(r"([1-9][0-9]{0,3})([smh])")
_UNITS = {"s": 1, "m": 60, "h": 3600}


def seconds_of(duration: str) -> int | None:
    """Return the seconds of a duration such as `30s`, `5m` or `1h`; None for any other text."""
    found = _DURATION.fullmatch(duration)
    return int(found[1]) * _UNITS[found[2]] if found else None


def duration_of(seconds: int) -> str:
    """Return the duration that `seconds_of` reads as these seconds, in the largest unit that divides them."""
    unit = next(unit for unit in "hms" if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


Location = tuple[str | int, ...]
"""A path in the document: names of mapping entries and positions in lists, from the top."""


class Mistake(NamedTuple):
    """A mistake at a place of the document.

    `offset` counts characters in the text at that place; `at_key` refers to the name of the entry instead of its value.
    `file` is the name of the file, if rules consist of several and the path does not say which one.
    """

    path: Location
    message: str
    offset: int | None = None
    at_key: bool = False
    file: str = ""
    others: tuple[Location, ...] = ()
    """Other parts that a correction could change instead: the second writer of an attribute."""


def no_entity(name: str, entities: Collection[str], place: Location) -> Mistake:
    """Return the mistake that a rule or query names an unknown entity."""
    hint = suggest(name, entities) or f"; the entities are {', '.join(entities)}"
    return Mistake(place, f'unknown entity "{name}"{hint}')


def dotted(path: Location) -> str:
    """Return a location as text: `projections.published.index[0].where`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(top)"


def order_of(text: str) -> tuple[str | None, bool]:
    """Return the name that an `order` sorts by, None if it gives only a direction, and whether it is descending."""
    *names, last = text.split(" ")
    if last in ("asc", "desc"):
        return name_of(" ".join(names)) or None, last == "desc"
    return name_of(text), False

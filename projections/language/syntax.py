"""Errors and names, for templates, patterns and expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from projections.errors import ProjectionsError

__all__ = ["PATH", "LanguageError", "LanguageErrors", "an", "nearest", "suggest"]

PATH = re.compile(r"[^\W\d][\w~$@:-]*(?:\.[\w~$@:-]+)*|[~$@][\w~$@:-]*(?:\.[\w~$@:-]+)*")
"""A variable, an attribute, or a dotted path into one, such as `address.city` or `tags.0`."""


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
        super().__init__("\n".join(_located(error) for error in errors))
        self.errors = tuple(errors)


def _located(error: LanguageError) -> str:
    return f"{'.'.join(map(str, error.path))}: {error.message}" if error.path else error.message


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

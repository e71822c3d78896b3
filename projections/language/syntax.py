"""What the small languages share: how a mistake is reported, and what a name looks like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from projections.errors import ProjectionsError

__all__ = ["PATH", "LanguageError", "LanguageErrors", "suggest"]

PATH = re.compile(r"[^\W\d][\w~$@:-]*(?:\.[\w~$@:-]+)*|[~$@][\w~$@:-]*(?:\.[\w~$@:-]+)*")
"""A variable, an attribute, or a dotted path into one, as `address.city` or `tags.0`."""


class LanguageError(ProjectionsError):
    """A template, pattern or expression cannot be read.

    `offset` is the character of the text where the mistake is (from 0). `path` leads to it inside a document of
    mappings and lists, `()` where the text stands alone.
    """

    def __init__(self, message: str, offset: int | None = None, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.path = path

    def within(self, *path: str | int) -> LanguageError:
        """The same mistake seen from a document that holds this one at `path`."""
        return LanguageError(self.message, self.offset, (*path, *self.path))


class LanguageErrors(ProjectionsError):
    """All mistakes of one document, in its order: never empty."""

    def __init__(self, errors: Sequence[LanguageError]) -> None:
        super().__init__("\n".join(_located(error) for error in errors))
        self.errors = tuple(errors)


def _located(error: LanguageError) -> str:
    return f"{'.'.join(map(str, error.path))}: {error.message}" if error.path else error.message


def suggest(word: str, candidates: Iterable[str]) -> str:
    """` (did you mean "x"?)` with the candidate nearest to a misspelt word, or nothing."""
    from difflib import get_close_matches  # only ever needed on the way to an error

    known = {candidate.lower(): candidate for candidate in candidates}
    near = get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f' (did you mean "{known[near[0]]}"?)' if near else ""

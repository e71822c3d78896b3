"""Failures of a refresh of many items: noted by item, so that one item does not stop the others.

An unexpected error is an internal error that the content of one item causes, as a rule. To find that item, work on many is
repeated on each half of them. Work that is done already is found done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from projections.engine.deadline import Deadline
from projections.engine.rejections import Rejected, rejected_by, rejection
from projections.engine.store import ItemKey
from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.keys import encode_key

__all__ = ["Failures"]

T = TypeVar("T")


class Failures:
    """The failures of a refresh: `failed` has the reasons by encoded key of what can be repeated, `rejected` the others."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.rejected: dict[Rejected, None] = {}

    def isolated(self, things: Sequence[T], work: Callable[[Sequence[T]], object], key: Callable[[T], str]) -> None:
        """Do work on many things. Reject those that cause an unexpected error; do the work on the others."""
        for thing, error in self.apart(things, work):
            self.rejected[rejection(error, key(thing))] = None

    def apart(self, things: Sequence[T], work: Callable[[Sequence[T]], object]) -> Iterator[tuple[T, Exception]]:
        """Do work on many things, and on each half of them if it fails unexpectedly. Yield each that fails alone.

        Raise Misconfigured and Transient.
        """
        if not things:
            return
        try:
            work(things)
        except (Misconfigured, Transient):
            raise
        except Exception as error:
            if len(things) == 1:
                yield things[0], error
                return
        else:
            return
        middle = len(things) // 2
        yield from self.apart(things[:middle], work)
        yield from self.apart(things[middle:], work)

    def attempt(self, what: str, deadline: Deadline, work: Callable[[], Any], rule: str | None = None) -> Any:
        """Return the result of a piece of work, of one rule perhaps; None if it failed, which is noted."""
        try:
            return deadline.retry(work)
        except Transient as error:
            self.failed[what] = str(error)
        except InvalidRequest as error:
            self.rejected[rejected_by(error, rule, what)] = None
        return None

    def note(self, rule: str, key: str, error: StoreError) -> None:
        """Note that a rule could not write to a target."""
        if isinstance(error, InvalidRequest):
            self.rejected[rejected_by(error, rule, key, target=key)] = None
        else:
            self.failed[key] = str(error)

    def reject(self, rule: str | None, reason: str, key: str) -> None:
        """Note that an item is rejected."""
        self.rejected[Rejected(rule, reason, key, table=key.partition("|")[0])] = None

    def fail(self, keys: Iterable[ItemKey], error: StoreError) -> None:
        """Note that these items could not be refreshed now."""
        self.failed.update((encode_key(key), str(error)) for key in keys)

"""The one tree of errors. A message names the rule or place, the value and the way out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

__all__ = [
    "BadInput",
    "ConditionFailed",
    "DamagedGroup",
    "InvalidRequest",
    "Misconfigured",
    "MissingExtra",
    "Occupied",
    "Problem",
    "ProjectionsError",
    "Reason",
    "ReasonKind",
    "RulesError",
    "StoreError",
    "TransactionCancelled",
    "Transient",
    "UsageError",
]


class ProjectionsError(Exception):
    """Anything this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake in rules: where it is, what is wrong, what to write instead.

    Line and column count from 1; both are 0 for rules that were built in Python, where only `path` says where it is.
    """

    file: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.path}: {self.message}"


class RulesError(ProjectionsError):
    """The rules cannot be used. `problems` holds every mistake found, in the order of the file."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class UsageError(ProjectionsError):
    """A command or function was called wrongly: an invalid argument, a missing file, an unknown name. Exit code 2.

    Of several `lines`, each is a message: what one of them quotes cannot end it.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


class MissingExtra(UsageError):
    """An optional dependency is not installed. The message names the extra to install."""

    def __init__(self, needed_by: str, package: str, extra: str) -> None:
        super().__init__(
            f"{needed_by} needs the package {package}, which is not installed. "
            f"Install it: pip install 'dynamodb-projections[{extra}]'"
        )


class BadInput(ProjectionsError):
    """A rule cannot be evaluated on this item: permanent, the rule contributes nothing, the record is quarantined.

    `key` is the encoded key of the item whose stream record is unusable, where the record names it.
    """

    key: str | None = None


class StoreError(ProjectionsError):
    """A store answered with a failure."""


class Transient(StoreError):
    """Throttling, a conflict, a timeout, a server fault: the same request may succeed later."""


class Misconfigured(StoreError):
    """No permission, no such table, an invalid setting: retrying does not help until somebody corrects it."""


class InvalidRequest(StoreError):
    """DynamoDB refused the request itself (ValidationException): the same request will never succeed.

    `target` is the encoded key of the item that was to be written, where the caller did not name it.
    """

    target: str | None = None


class DamagedGroup(InvalidRequest):
    """A group of the ledger holds a value that is not a number, so that nothing of it can be published."""


class Occupied(InvalidRequest):
    """The key of an item that a rule creates holds an item of another kind."""


class ConditionFailed(StoreError):
    """The condition of a single write did not hold. `item` is the stored item then, None if there was none."""

    def __init__(self, item: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        super().__init__("the condition of a write did not hold")
        self.item = item


ReasonKind = Literal["condition", "conflict", "throttled", "invalid"]


class Reason(NamedTuple):
    """Why one action of a cancelled transaction failed. `item` is what a condition found, None if there was no item."""

    kind: ReasonKind
    item: Mapping[str, Mapping[str, Any]] | None = None
    message: str = ""


class TransactionCancelled(StoreError):
    """A transaction was cancelled. `reasons` is positional, None where the action was fine."""

    def __init__(self, reasons: Sequence[Reason | None]) -> None:
        super().__init__("a transaction was cancelled: " + ", ".join(r.kind if r else "none" for r in reasons))
        self.reasons = tuple(reasons)

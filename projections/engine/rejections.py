"""Rejections as they are reported: each names the cause, and separately the items whose records led to it.

An exception that no code raises on purpose is an internal error. It is a rejection like the others, so that the stream goes
on, but with its own `fault`, so that no one searches the item for a mistake. The trace has only places in the code: the text
of an exception may quote values, and is in the reason, which is redacted.

DynamoDB's refusals are about requests: `refusal` names the limit that was exceeded, and what to change in the rules.

Failures of a refresh of many items are noted by item, so that one item does not stop the others. An unexpected error is one
that the content of one item causes, as a rule. To find that item, work on many is repeated on each half of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from traceback import format_tb
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from projections.engine.running import Deadline
from projections.engine.store import ItemKey
from projections.errors import BadInput, DamagedGroup, InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.keys import encode_key
from projections.language.rules import public_name

if TYPE_CHECKING:
    from projections.engine.changes import Refusal


_LIMITS = (
    (("Item size",), "an item can have at most 400 KB: {what} would have more; {instead}"),
    (
        ("38 ", "magnitude", "overflow", "underflow"),
        "a number has 38 significant digits and a magnitude from 1E-130 to 9.99E+125: the totals of this rule would need "
        "more; round the values, or give very large and very small ones different targets",
    ),
    (
        ("Expression size", "too many operators"),
        "an expression can have at most 4 KB and 300 operators: {what} has too many attributes for one write; list the "
        "attributes that are needed, or keep them in one map",
    ),
    (
        ("payload size", "4MB", "4 MB"),
        "a transaction can have at most 4 MB: {what} would need more; list fewer attributes",
    ),
)
"""Words in a refusal, and the limit that they report."""

_ENTRY = "the item's contribution, in its ledger entry,", 'let "each" give fewer elements, or shorten the target\'s key'
_TARGET = "the target", 'let the rule write fewer or shorter attributes, or lower its "limit"'


def refusal(message: str, *, entry: bool = False) -> str:
    """Return a refusal in terms of rules, followed by DynamoDB's message. `entry`: it was of a commit to the ledger."""
    what, instead = _ENTRY if entry else _TARGET
    own = re.sub(r"^\w+ on .*?: \w+: ", "", message)  # without the names of tables
    for words, limit in _LIMITS:
        if any(word in own for word in words):
            return f"{limit.format(what=what, instead=instead)} ({message})"
    return message


Fault = Literal["item", "target", "group", "internal"]
"""Where the cause of a rejection is; "internal": in this program, not in the data."""

ITEM: Fault = "item"
TARGET: Fault = "target"
GROUP: Fault = "group"
INTERNAL: Fault = "internal"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that a rule could not use: permanent. `rule` is None if no rule could use it at all; of a version, its rule.

    `key` is the item to refresh once the cause is removed. `fault` says where the cause is: in that "item" itself, in the
    "target" item, in the "group" that the ledger keeps for the target, or in this program ("internal"; then `trace` has the
    places in its code, without values). The sources whose records only led there are in `triggered_by`. Keys are encoded.
    `repeated`: the rule rejected the record's old image for the same reason, so there is a message about the item already.
    """

    rule: str | None
    reason: str
    key: str | None = None
    sequence: str | None = None
    table: str | None = None
    event: str | None = None
    target: str | None = None
    fault: Fault = ITEM
    triggered_by: tuple[str, ...] = ()
    trace: str = field(default="", compare=False)
    repeated: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.rule is not None and "." in self.rule:
            object.__setattr__(self, "rule", public_name(self.rule))


_MOST_FRAMES = 30
"""Calls of a trace, the innermost ones: those of an endless recursion are a thousand."""


def rejection_of(source: str, refusal: Refusal, sequence: str | None = None) -> Rejected:
    """Return the rejection of a change that the ledger cannot hold for a rule: by the item, or by a target's group."""
    rule, reason, target = refusal
    fault, led = (GROUP, (source,)) if target is not None else (ITEM, ())
    return Rejected(rule, reason, source, sequence, _table(source), target=target, fault=fault, triggered_by=led)


def rejected_by(
    error: InvalidRequest,
    rule: str | None,
    key: str,
    sequence: str | None = None,
    *,
    target: str | None = None,
    source: str | None = None,
) -> Rejected:
    """Return the rejection of a write that DynamoDB refused. `source` is the item whose record led to it, if not `key`."""
    target = error.target or target
    fault = ITEM if target is None else GROUP if isinstance(error, DamagedGroup) else TARGET
    source = source or key
    led = (source,) if target is not None and source != target else ()
    return Rejected(rule, refusal(str(error)), key, sequence, _table(key), target=target, fault=fault, triggered_by=led)


def is_internal(error: Exception) -> bool:
    """Return whether an exception is an internal error: neither a rule nor a store raises it on purpose."""
    return not isinstance(error, BadInput | InvalidRequest | Transient | Misconfigured)


def internal(error: Exception, key: str | None, sequence: str | None = None, *, event: str | None = None) -> Rejected:
    """Return the rejection of an item that caused an internal error."""
    table = _table(key) if key is not None else None
    reason, trace = internal_reason(error), trace_of(error)
    return Rejected(None, reason, key, sequence, table, event, fault=INTERNAL, trace=trace)


def rejection(error: Exception, key: str) -> Rejected:
    """Return the rejection of an item that caused any error that is not transient."""
    return internal(error, key) if is_internal(error) else Rejected(None, refusal(str(error)), key, table=_table(key))


def internal_reason(error: BaseException) -> str:
    """Return what messages report of an internal error."""
    return (
        f"internal error of projections, the item is not the cause: {type(error).__name__}: {error}. "
        "The function's log has the trace. Please report it, and redrive when a corrected version is deployed"
    )


def trace_of(error: BaseException) -> str:
    """Return the places in the code of an exception and of its causes, without their messages."""
    parts = []
    exception: BaseException | None = error
    while exception is not None:
        parts.append("".join([*format_tb(exception.__traceback__, -_MOST_FRAMES), type(exception).__name__]))
        exception = exception.__cause__ or (None if exception.__suppress_context__ else exception.__context__)
    return "\n\n".join(reversed(parts))


def of_child(rule: str, parent: str, key: ItemKey, reason: str, sequence: str | None = None) -> Rejected:
    """Return the rejection of a child that a push of its parent, an encoded key, cannot update."""
    child = encode_key(key)
    return Rejected(rule, reason, child, sequence, key.table, target=child, fault=TARGET, triggered_by=(parent,))


_VALUE = re.compile(
    r"""(a\ (?:string|number),\ )(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|.{40}…)  # as `language.values.shown` prints it
    |-?[\d,.…]+""",
    re.DOTALL | re.VERBOSE,
)
"""A value of an item, or a number, in a reason."""


def alike(reason: str, other: str | None) -> bool:
    """Return whether two reasons are the same apart from values and numbers: what an editor of an item can vary at will."""
    return other is not None and (reason == other or _VALUE.sub(r"\1", reason) == _VALUE.sub(r"\1", other))


def distinct(rejected: Iterable[Rejected]) -> list[Rejected]:
    """Return each rejection once. Several refusals of one target are one rejection, with all items that led to it.

    It keeps the lowest sequence number.
    """
    merged: dict[Rejected, Rejected] = {}
    for each in rejected:
        of_target = each.target is not None and each.key == each.target
        same = replace(each, sequence=None, triggered_by=()) if of_target else each
        known = merged.get(same)
        if known is None:
            merged[same] = each
        elif same is not each:
            lowest = min((known.sequence, each.sequence), key=lambda each: sequence_order(each or ""))
            led = tuple(dict.fromkeys(known.triggered_by + each.triggered_by))
            merged[same] = replace(known, sequence=lowest, triggered_by=led)
    return list(merged.values())


def sequence_order(sequence: str) -> tuple[int, str]:
    """Return a sort key that orders sequence numbers, which have no leading zeros, as numbers; "" comes first."""
    return len(sequence), sequence


def _table(key: str) -> str:
    return key.partition("|")[0]


T = TypeVar("T")


class Failures:
    """The failures of a refresh: `failed` has the reasons by encoded key of what can be repeated, `rejected` the others."""

    def __init__(self) -> None:
        self.failed: dict[str, str] = {}
        self.rejected: dict[Rejected, None] = {}

    def isolate(self, things: Sequence[T], work: Callable[[Sequence[T]], object], key: Callable[[T], str]) -> None:
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

"""Reading items that rules write to, in an application: without guards, with its own writes, and waiting for them."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from projections.access.look import Look
from projections.access.own_reads import own_read, without_guards
from projections.access.sessions import Session, Steps, session_of
from projections.access.waiting import look_at
from projections.engine.store import ItemKey
from projections.errors import TransactionCancelled, Transient, UsageError
from projections.language.keys import encode_key
from projections.language.program import Program, writing

__all__ = ["ItemReader", "Key", "ReadItem", "WaitState", "Waited", "item_reader"]

T = TypeVar("T")

Key: TypeAlias = "Mapping[str, Any] | tuple[str, Mapping[str, Any]]"
"""The key attributes of an item, perhaps with its other attributes; with several tables, (logical name, key attributes)."""

WaitState: TypeAlias = Literal["reached", "late", "filling", "quarantined", "stopped", "unknown"]

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between two looks of `wait`: each pause is twice the one before."""

_LONGEST = 10**9
"""Seconds of the longest timeout: more, even an infinite one, is a mistake."""

_MOST_CONFLICTS = 8
"""Transactions with which a read may conflict before it fails."""

_KEYS_AT_ONCE = 100
"""Keys that one request of a wait reads."""

_ENABLED = frozenset(("Enabled", "Enabling", "Creating", "Updating"))


class _TimeIsUp(Exception):
    """A wait may send no further request."""


class ReadItem(dict[str, Any]):
    """An item without guards. A dictionary, with two attributes about the read of own writes.

    `corrected` names the attributes that include the caller's own writes. `uncorrected` names the others that these writes
    may change, with the reason: they are as they are stored. Both are about one step: a rule that reads what another rule
    writes to a third item is not followed.
    """

    def __init__(
        self, item: Mapping[str, Any], corrected: tuple[str, ...] = (), uncorrected: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(item)
        self.corrected = corrected
        self.uncorrected = dict(uncorrected or {})


@dataclass(frozen=True, slots=True)
class Waited:
    """How a wait ended, why, and after how many seconds.

    - `reached`: the rules have processed the source item as it is, and their targets show it.
    - `late`: not within the timeout. `reasons` has what is missing.
    - `filling`: a rule is filling, and publishes nothing before its backfill is complete, which may not have begun.
    - `quarantined`: a rule cannot use the item. `reasons` has the mistakes.
    - `stopped`: Lambda does not read the stream. Only with `aws_lambda` and `function`.
    - `unknown`: the ledger does not show it. `reasons` has why.

    `not_covered` names rules of this item whose targets may not show it although the state is `reached`: those that embed it
    in children that `wait` was not given, or copy it under a key that depends on its attributes, for example.
    """

    state: WaitState
    reasons: tuple[str, ...]
    seconds: float
    not_covered: tuple[str, ...] = ()

    @property
    def reached(self) -> bool:
        """Whether the targets show the item."""
        return self.state == "reached"


class ItemReader:
    """Reads items for an application. Make it with `projections.reader`. It writes nothing; safe for threads."""

    def __init__(
        self,
        program: Program,
        session: Session,
        *,
        mappings: Callable[[], Iterable[Sequence[Mapping[str, Any]]]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._program = program
        self._session = session
        self._mappings = mappings
        self._clock = clock
        self._sleep = sleep

    def read(self, key: Key, own: Iterable[Key] = ()) -> ReadItem | None:
        """Return an item without guards, strongly consistent; None if there is none.

        With `own`, the keys of source items that the caller has just written, `count`, `sum` and `avg` include these items
        as they are now, whether the functions have processed them or not. An item that rules create is returned before they
        have created it. One GetItem; with `own` a TransactGetItems and a BatchGetItem. Raises UsageError, Transient and
        Misconfigured.
        """
        place = self._session.key(key)
        sources = [self._session.key(one, f"own[{number}]") for number, one in enumerate(_listed(own, "own"))]
        if not sources:
            image = self._session.reads.get(place)
            return None if image is None else ReadItem(self._session.shown(without_guards(self._program, image)))
        self._need_ledger("own")
        found = self._run(own_read(self._program, place, sources))
        if found.image is None:
            return None
        return ReadItem(self._session.shown(found.image), found.corrected, found.uncorrected)

    def without_guards(self, item: Mapping[str, Any]) -> dict[str, Any]:
        """Return an item that the caller has read, for example with a query, without guards. Raises UsageError."""
        if not isinstance(item, Mapping):
            raise UsageError(f"the item is {item!r}. Pass a mapping of its attributes; for several items, pass each")
        return {name: value for name, value in item.items() if not name.startswith(self._program.guard_prefix)}

    def wait(self, source: Key, timeout: float = 5.0, *, children: Iterable[Key] = ()) -> Waited:
        """Wait until the targets of a source item show it as it is, at most `timeout` seconds, and return how this ended.

        Call it after a write. It covers the rules that read the item, and what it gets from its parents: not rules that read
        what these write, and not the lag of indexes. Of the children that embed the item, it covers those in `children`.
        Rules in `not_covered` of the answer are not covered. It looks at least once. Each look takes up to four requests. An
        item that does not exist contributes nothing: a mistyped key is `reached` as a deleted item is. With a timeout of 0
        it looks once; otherwise no request begins after the timeout. A failure that may pass is no end of the
        wait. Raises UsageError and Misconfigured.
        """
        self._need_ledger("wait")
        _check_timeout(timeout)
        key = self._session.key(source)
        if not self._program.entities_at(key):
            raise UsageError(f"no entity of the rules has the key {encode_key(key)}")
        named = self._children(key, children)
        began, pause = self._clock(), _FIRST_PAUSE
        end = began + timeout if timeout else math.inf
        look, stopped, asked = Look(missing=(f"no look ended within {timeout:g} s",)), None, False
        while True:
            started = self._clock()
            try:
                look = self._run(look_at(self._program, key, named), end)
            except _TimeIsUp:
                break
            except Transient as error:
                look = Look(missing=(str(error),))
            took, passed = self._clock() - started, self._clock() - began
            if _judged(look)[0] != "late":
                break
            if not asked and 2 * passed >= timeout:
                asked, stopped = True, self._stopped(key.table, end)
                passed = self._clock() - began
            left = timeout - passed - min(_FIRST_PAUSE, took)  # so that the last look may end in time
            if left <= 0:
                break
            self._sleep(min(pause, left))
            pause = min(_LONGEST_PAUSE, 2 * pause)
        state, reasons = _judged(look)
        if state == "late" and stopped is not None:
            state, reasons = "stopped", (stopped,)
        return Waited(state, reasons, self._clock() - began, look.not_covered)

    def _children(self, source: ItemKey, children: Iterable[Key]) -> list[ItemKey]:
        """Return the keys of children. Raises UsageError if no rule embeds the source item in them."""
        sources = self._program.entities_at(source)
        rules = [rule for rule in writing(self._program.embeds.values()) if rule.source in sources]
        found = []
        for number, one in enumerate(_listed(children, "children")):
            key = self._session.key(one, f"children[{number}]")
            if not any(rule.into in self._program.entities_at(key) for rule in rules):
                into = ", ".join(dict.fromkeys(rule.into.name for rule in rules))
                hint = f"Pass keys of {into}" if into else "Leave out `children`"
                raise UsageError(
                    f"children[{number}]: no rule embeds {encode_key(source)} in {encode_key(key)}. {hint}"
                )
            found.append(key)
        return list(dict.fromkeys(found))

    def _pause(self, end: float, seconds: float = 0.0) -> None:
        """Sleep before a request of a wait. Raises _TimeIsUp if it may not begin any more."""
        left = end - self._clock()
        if left < 0:
            raise _TimeIsUp
        if seconds:
            self._sleep(min(seconds, left))
            self._pause(end)

    def _stopped(self, table: str, end: float) -> str | None:
        """Return why Lambda does not read the stream of a table; None if it does, or if this is not known at the end."""
        if self._mappings is None:
            return None
        found: list[Mapping[str, Any]] = []
        try:
            self._pause(end)
            for page in self._mappings():
                found += page
                self._pause(end)
        except (Transient, _TimeIsUp):
            return None
        if not found:
            return "the function has no event source mapping"
        if (name := self._session.names.get(table)) is not None:  # others may read the streams of other tables
            part = f"table/{name.rpartition('table/')[2]}/stream/"
            found = [one for one in found if part in str(one.get("EventSourceArn"))] or found
        off = [str(one.get("State")) for one in found if one.get("State") not in _ENABLED]
        return f"the event source mapping is {off[0]}" if len(off) == len(found) else None

    def _need_ledger(self, what: str) -> None:
        if not self._session.ledger:
            raise UsageError(f"`{what}` reads the ledger. Pass ledger=NAME to `projections.reader`")

    def _run(self, steps: Steps[T], end: float = math.inf) -> T:
        """Make the requests of a protocol. Raises _TimeIsUp if one would begin after the end."""
        pause = partial(self._pause, end)
        try:
            needed = next(steps)
            while True:
                keys = list(needed.keys)
                found = self._together(keys) if needed.together else self._many(keys, pause)
                needed = steps.send(found)
        except StopIteration as ended:
            value: T = ended.value
            return value

    def _many(self, keys: list[ItemKey], pause: Callable[..., None]) -> Mapping[ItemKey, Any]:
        found: dict[ItemKey, Any] = {}
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            pause()
            found |= self._session.get_many(keys[start : start + _KEYS_AT_ONCE], pause)
        return found

    def _together(self, keys: list[ItemKey]) -> Mapping[ItemKey, Any]:
        """Read items in one transaction. A commit of the functions may cancel it, and is over after milliseconds."""
        for attempt in range(_MOST_CONFLICTS):
            try:
                return self._session.reads.get_together(keys)
            except TransactionCancelled as error:
                problem = error
                self._sleep(random.uniform(0, 0.02 * 2**attempt))
        raise Transient(f"TransactGetItems: {problem}")


def _listed(keys: Iterable[Key], what: str) -> Iterable[Key]:
    """Raises UsageError."""
    if not isinstance(keys, Iterable) or isinstance(keys, Mapping | str | bytes):
        raise UsageError(f"{what} is {keys!r}. Pass a list of keys: {what}=[…]")
    return keys


def _check_timeout(timeout: object) -> None:
    """Raises UsageError."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= _LONGEST:
        raise UsageError(f"the timeout of `wait` is {timeout!r}. Pass a number of seconds, at least 0")


def _judged(look: Look) -> tuple[WaitState, tuple[str, ...]]:
    if look.unknown:
        return "unknown", look.unknown
    if look.quarantined:
        return "quarantined", look.quarantined
    if look.filling:
        return "filling", look.filling
    return ("late", look.missing) if look.missing else ("reached", ())


def item_reader(
    program: Program,
    dynamodb: Any,
    *,
    tables: Mapping[str, str] | str | None = None,
    ledger: str | None = None,
    aws_lambda: Any = None,
    function: str | None = None,
) -> ItemReader:
    """Return the reader of a boto3 table, resource or client, or of a store. Raises UsageError."""
    if (aws_lambda is None) != (function is None):
        raise UsageError("pass both aws_lambda and function, or neither")
    if aws_lambda is not None and not hasattr(aws_lambda, "list_event_source_mappings"):
        raise UsageError(f'aws_lambda is {aws_lambda!r}. Pass boto3.client("lambda")')
    if function is not None and not (isinstance(function, str) and function):
        raise UsageError(f"function is {function!r}. Pass the name of the stream function")
    mappings = None
    if aws_lambda is not None and function is not None:
        name = function

        def mappings() -> Iterable[Sequence[Mapping[str, Any]]]:
            from projections.aws.stack import pages_of_mappings

            return pages_of_mappings(aws_lambda, name)

    return ItemReader(program, session_of(program, dynamodb, tables, ledger), mappings=mappings)

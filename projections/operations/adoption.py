"""Values maintained by the application that rules would change. A dry run counts them, with examples for each rule.

The application maintains a value if the item has the attribute and no valid guard of the rule that writes it. This module
does not decide what would be written: the engine makes the writes on a store that writes nothing, and totals are computed as
`verify` computes them without a ledger.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from projections.engine.guards import Guards, Identity
from projections.engine.registry import FILLING, LIVE, RETIRING, RegistrySnapshot
from projections.engine.store import Image, ItemKey, Store
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.values import plain, same

if TYPE_CHECKING:
    from projections.operations.verify.drift import Drift

__all__ = ["MOST_CHANGES", "Adoption", "ValueChange", "compute"]

MOST_CHANGES = 5
"""Examples to keep for each rule."""

_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One value that a rule would change. `key` is the encoded key of the item; values are plain JSON, None if absent."""

    key: str
    attribute: str
    old: Any
    new: Any


class Adoption:
    """Counts by rule the values of the application that would change. Safe for threads.

    `before` is the registry before these rules, None if there is none.
    """

    def __init__(self, program: Program, before: RegistrySnapshot | None) -> None:
        self._program = program
        self._guards = Guards(program, before.identity if before is not None else Identity("", (b"",)))
        rules = before.rules if before is not None else {}
        self._known = {name.partition("@")[0] for name, one in rules.items() if one.state in (LIVE, RETIRING)}
        self._lock = threading.Lock()
        self.changed: Counter[str] = Counter()
        self.examples: dict[str, list[ValueChange]] = {}

    def by_hand(self, rule: str, key: ItemKey, image: Image) -> bool:
        """Return whether the application maintains a rule's attributes on an item.

        Attributes that rules write on their source items themselves have no guard: they are the rule's if a version of it
        was live.
        """
        if rule in self._program.on_items:
            return rule not in self._known
        return rule in self._program.rules and self._guards.read(rule, key, image) is None

    def written(self, rule: str, key: ItemKey, before: Image, after: Image) -> None:
        """Record what a write of a rule would change on an item."""
        if not self.by_hand(rule, key, before):
            return
        for name, old in before.items():
            new = after.get(name)
            if not name.startswith(self._program.guard_prefix) and not same(old, new):
                self.add(rule, ValueChange(encode_key(key), name, plain(old), None if new is None else plain(new)))

    def add(self, rule: str, change: ValueChange) -> None:
        with self._lock:
            self.changed[rule] += 1
            some = self.examples.setdefault(rule, [])
            if len(some) < MOST_CHANGES:
                some.append(change)


def compute(
    program: Program,
    store: Store,
    after: RegistrySnapshot,
    adoption: Adoption,
    *,
    only: tuple[str, ...] = (),
    threads: int = 4,
    report: Callable[[str, int], None] = lambda what, items: None,
) -> None:
    """Record which values of the application would change when filling rules publish from their groups.

    Reads the tables of these rules once. `after` is the registry as the backfill would write it. Raises Transient.
    """
    names = [
        name for name, rule in program.recorded.items() if after.state(rule) == FILLING and (not only or name in only)
    ]
    if not names:
        return
    # not above: the worker does not need them
    from projections.operations.verify.facts import Scratch
    from projections.operations.verify.scope import Scope
    from projections.operations.verify.verification import Verification

    with Scratch() as scratch:
        verification = Verification(Scope(program, None, names), store, scratch, threads=threads, report=report)
        some: list[Drift] = []
        for drift in verification.compared():
            if drift.attribute is not None and drift.actual is not None:
                some.append(drift)
            if len(some) == _AT_ONCE:
                _note(some, store, adoption)
                some = []
        _note(some, store, adoption)


def _note(drifts: list[Drift], store: Store, adoption: Adoption) -> None:
    keys = {drift.target: decode_key(drift.target) for drift in drifts}
    images: Mapping[Any, Image] = store.get_many(list(keys.values()))
    for drift in drifts:
        image = images.get(keys[drift.target], {})
        if drift.attribute in image and adoption.by_hand(drift.rule, keys[drift.target], image):
            key = encode_key(keys[drift.target])
            adoption.add(drift.rule, ValueChange(key, drift.attribute or "", drift.actual, drift.expected))

"""The application under simulation: random writes as applications make them, and external writes to what rules own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

from projections.engine.store import ItemKey
from projections.errors import InvalidRequest
from projections.testing.simulation import external_writes, kind_changes, ordinary_writes
from projections.testing.simulation.adversary import Adversary
from projections.testing.simulation.item_writer import ItemWriter

__all__ = ["OPERATIONS", "Application"]

_Operation = Callable[[ItemWriter], bool]

_WEIGHTS: dict[_Operation, int] = {
    ordinary_writes.put: 10,
    ordinary_writes.update: 10,
    ordinary_writes.annotate: 2,
    ordinary_writes.delete: 5,
    ordinary_writes.expire: 4,
    ordinary_writes.read: 5,
    ordinary_writes.put_back: 6,
    external_writes.change_derived: 3,
    external_writes.remove_guard: 2,
    external_writes.forge_guard: 2,
    external_writes.clone: 3,
    external_writes.delete_created: 2,
    external_writes.replace_created: 2,
    external_writes.recreate: 1,
    external_writes.change_constant: 1,
    kind_changes.occupy: 4,
    kind_changes.vacate: 2,
    kind_changes.change_kind: 6,
    kind_changes.adopt: 4,
    external_writes.malform_guard: 4,
    external_writes.clone_again: 4,
}
"""How often the application does what; each history leaves some operations out and prefers others."""

_APART: dict[_Operation, float] = {kind_changes.put_over: 0.3}
"""Operations with a generator of their own, so that histories without them stay as they are, with their probability."""

OPERATIONS = {operation.__name__: weight for operation, weight in (*_WEIGHTS.items(), *_APART.items())}
"""The names of all operations, with how often they occur."""


class Application:
    """Random writes to the tables of a program. `without` are names of operations.

    `apart` decides about operations that only some histories have; without it, there are none.
    """

    def __init__(
        self,
        writer: ItemWriter,
        without: frozenset[str] = frozenset(),
        adversary: Adversary | None = None,
        apart: Random | None = None,
    ) -> None:
        self._adversary = adversary
        rng = writer.rng
        self._random = rng.random
        self.writer = writer
        self._first = self.writer.targets() if rng.random() < 0.7 else []
        """What is written before all else."""
        self._operations: list[_Operation] = []
        for operation, weight in _WEIGHTS.items():
            times = 1 if operation is ordinary_writes.put else rng.choice((0, 1, 1, 3))
            if operation.__name__ not in without:
                self._operations += [operation] * (weight * times)
        self._apart_rng = apart
        self._apart = [
            (operation, chance)
            for operation, chance in _APART.items()
            if apart is not None and apart.random() < 0.3 and operation.__name__ not in without
        ]

    def write(self) -> str:
        """Make one write, or one read of an item that will be put back; return the name of the operation, or "nothing"."""
        writer = self.writer
        if self._first:
            kind, key, variables = self._first.pop()
            with suppress(InvalidRequest):
                writer.store.put(key.table, writer.new(kind, key, variables))
            return "put"
        if self._adversary is not None:
            with suppress(InvalidRequest):
                if attack := self._adversary.write():
                    return attack
        for apart, chance in self._apart:
            assert self._apart_rng is not None
            if self._apart_rng.random() < chance and self._done_apart(apart, self._apart_rng):
                return apart.__name__
        for _ in range(8):
            operation = self._operations[int(self._random() * len(self._operations))]
            try:
                if operation(writer):
                    return operation.__name__
            except InvalidRequest:  # DynamoDB refuses it, as a key of an index in the wrong type
                continue
        return "nothing"

    def _done_apart(self, operation: _Operation, rng: Random) -> bool:
        """Whether an operation was possible, with a generator of its own."""
        writer = self.writer
        writer.rng, usual = rng, writer.rng
        try:
            return operation(writer)
        except InvalidRequest:
            return False
        finally:
            writer.rng = usual

    def come_between(self, key: ItemKey, *, changes_kind: bool, adopts: bool) -> None:
        """Write to an item that the engine is about to write to."""
        kind_changes.come_between(self.writer, key, changes_kind=changes_kind, adopts=adopts)

"""A verification as a command or a program asks for it: everything or a sample, with or without a repair."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from projections.engine.registry import Registry
from projections.engine.running import at_once
from projections.engine.store import Store
from projections.errors import UsageError
from projections.language.program import Program
from projections.operations.verify.repair import Repair, repair_found
from projections.operations.verify.scope import Scope
from projections.operations.verify.scratch import Scratch
from projections.operations.verify.verification import PATIENCE, Verification

__all__ = ["Verified", "verified"]


@dataclass(frozen=True, slots=True)
class Verified:
    """A verification that has ended, and its repair. `found` counts the differences before the repair, `withheld` has the
    encoded keys of the first items that were not deleted.
    """

    verification: Verification
    found: int
    repair: Repair | None
    withheld: list[str]


@contextmanager
def verified(
    program: Program,
    store: Store,
    *,
    ledger: bool = True,
    only: Iterable[str] = (),
    sample: float | None = None,
    repair: bool = False,
    allow_delete: bool = False,
    patience: float = PATIENCE,
    segments: int = 4,
    report: Callable[[str, int], None] = lambda what, items: None,
) -> Iterator[Verified]:
    """Verify, and repair if asked to. The findings are in a temporary file until the context ends.

    `ledger` is whether there is one, `sample` the share of the tables to read. Raises UsageError if there is nothing to
    repair yet.
    """
    scope = Scope(program, Registry(program, store).read() if ledger else None, only)
    if repair and scope.offline:
        raise UsageError(
            "no active rules, so there is nothing to repair. If the rules are deployed, pass --ledger NAME or --stack NAME. "
            "Otherwise deploy them, or run `projections backfill`"
        )
    run = at_once(3 * segments)
    with Scratch() as scratch:
        one = Verification(scope, store, scratch, threads=segments, patience=patience, run=run, report=report)
        if sample is None:
            one.all()
        else:
            one.sample(sample)
        if scope.offline:
            _leave_out_followers(one)
        found = one.candidates.count()
        done, withheld = None, list[str]()
        if repair:
            done, withheld = repair_found(
                one, store, allow_delete=allow_delete, threads=segments, run=run, report=report
            )
        yield Verified(one, found, done, withheld)


def _leave_out_followers(one: Verification) -> None:
    """Report nothing of rules that read what other rules would write, where that is not yet, or not right, in the tables.

    The values that such a rule would write follow from values that no item has. If the first rules of a chain have no
    differences, the items have all that the following rule reads, and its comparison is exact.
    """
    from projections.language.selection import readers  # not above: the functions have no pydantic

    wrong = sorted(one.candidates.rules())
    causes: dict[str, dict[str, None]] = {}
    for first in wrong:
        following = [first]
        for name in following:
            following += [other for other in readers(one.scope.program.typed, [name]) if other not in following]
        for name in following[1:]:
            causes.setdefault(name, {})[first] = None
    one.uncompared = {name: list(found) for name, found in sorted(causes.items()) if name in one.scope.states}
    for name in one.uncompared:
        one.candidates.forget(name)

"""A process in which operators run a command: what it learnt when it started, and the operations it offers to jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from projections.engine.deadline import Deadline
from projections.engine.embeds import SETTLE_SECONDS, Push
from projections.engine.groups import Generations
from projections.engine.ledger_items import Entry
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry, RuleState
from projections.engine.rejections import Rejected
from projections.engine.running import Run
from projections.engine.store import ItemKey, Store
from projections.errors import Transient
from projections.language.keys import decode_key
from projections.local.tables import LEDGER
from projections.operations.backfill import backfill as operation
from projections.operations.fenced import RESERVED, Fenced
from projections.operations.tasks import Tasks
from projections.testing.simulation.workers import Invocation

if TYPE_CHECKING:
    from projections.testing.simulation.jobs import Checkpoint, Job
    from projections.testing.simulation.rule_versions import RuleVersion

__all__ = ["OperatorProcess", "lease_name"]


def lease_name(chance: Callable[[], float]) -> str:
    """Return a random name for a lease or a run, decided by the seed of the history."""
    return f"{int(chance() * 10**15):015d}"


class OperatorProcess:
    """A process of operators with the rules and the registry snapshot it was started with. It does pieces of one job."""

    def __init__(
        self,
        version: RuleVersion,
        store: Store,
        invocation: Invocation,
        *,
        run: Run[Any],
        chance: Callable[[], float],
        now: Callable[[], datetime],
        new_rules: RuleState,
        generations: Generations,
        tasks: Tasks | None,
        quarantine: Callable[[Sequence[Rejected]], None],
        page: int,
    ) -> None:
        self.program = version.program
        self.store = store
        self.deadline = Deadline(invocation.remaining, sleep=invocation.sleep, chance=chance)
        self.generations = generations
        self.chance = chance
        self.now = now
        self.named = partial(lease_name, chance)
        self.tasks = tasks
        self.run = run
        self.sleep = invocation.sleep
        self._quarantine = quarantine
        self.page = page
        self.snapshot = Registry(version.program, store, new_rules).admit()
        self.outdated = self.snapshot.outdated(version.program)
        self.fenced = Fenced(store, self.snapshot, "job", clock=self.clock, named=self.named)
        """A store that checks the lease, for jobs whose operation does not make one itself."""
        self.refresher = Refresher(
            version.program,
            self.fenced,
            self.snapshot,
            generations=generations,
            run=run,
            clock=self.clock,
            chance=chance,
            reserved=RESERVED,
        )

    def clock(self) -> float:
        return self.now().timestamp()

    def resume(self, invocation: Invocation) -> None:
        """Begin another piece in the same process, which keeps its registry snapshot."""
        self.deadline = Deadline(invocation.remaining, sleep=invocation.sleep, chance=self.chance)
        self.sleep = invocation.sleep

    def do(self, job: Job, checkpoint: Checkpoint) -> Checkpoint:
        """Do the piece of a job that begins at a checkpoint; return the checkpoint after it."""
        after = job.work(checkpoint, self)
        self.fenced.close()
        return after

    def entries(self, after: Any) -> tuple[dict[ItemKey, Entry], Any]:
        """Return the entries on a page of the ledger, by the key of their source, and where the scan continues."""
        page = self.store.scan(LEDGER, limit=4 * self.page, after=after)
        entries = {
            decode_key(item["key"]["S"] if "key" in item else item["pk"]["S"][2:]): Entry.read(item)
            for item in page.items
            if item["pk"]["S"].startswith("E|")
        }
        return entries, page.after

    def backfill(self) -> operation.Backfill:
        return operation.Backfill(
            self.program,
            self.store,
            now=self.now,
            run=self.run,
            page=self.page,
            quarantine=self._quarantine,
            named=self.named,
            chance=self.chance,
            sleep=self.sleep,
        )

    def push(self, push: Push) -> None:
        """Do a whole push, or its first page if a task can do the rest."""
        embedder = self.refresher.embedder
        embedder.raise_fence(push)
        page: Push | None = push
        while page is not None:
            more, _ = embedder.push_page(page, self.deadline)
            following = embedder.following(page, more)
            if following is None:
                break
            page, later = following
            if self.tasks is not None:
                self.tasks(page, SETTLE_SECONDS if later else 0.0)
                break
            if later:
                self.sleep(SETTLE_SECONDS)

    def require_refreshed(self) -> None:
        """Quarantine rejected items. Raises Transient if any item has to be refreshed again."""
        self._quarantine(list(self.refresher.rejected))
        if self.refresher.failed:
            raise Transient(f"not refreshed: {self.refresher.failed}")

"""What operators do beside the traffic: refreshes, rebuilds of groups, backfills, and the change from rules to others.

Each is a job, done in pieces. A piece is an invocation like any other: it may die, be repeated, overlap with its repetition,
or stand still between a read and what it does with it. Where it was is remembered as a checkpoint is: after the piece.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from projections.engine import rebuild
from projections.engine.deadline import Deadline
from projections.engine.embeds import Push
from projections.engine.groups import Generations
from projections.engine.ledger_items import Entry, Target
from projections.engine.plan import Rejected
from projections.engine.processor import SETTLE_SECONDS
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry, RuleState
from projections.engine.running import Run
from projections.engine.store import Image, ItemKey, Store
from projections.errors import Transient
from projections.language.keys import decode_key
from projections.local.tables import LEDGER
from projections.operations.backfill import backfill as operation
from projections.operations.backfill import queued
from projections.operations.backfill.backfill import Overtaken
from projections.operations.caution import Cautious
from projections.operations.fenced import RESERVED, Fenced
from projections.operations.redrive.letters import Letter
from projections.operations.tasks import Tasks
from projections.operations.verify.repair import Repair
from projections.operations.verify.scope import Scope
from projections.operations.verify.scratch import Scratch
from projections.operations.verify.verification import Verification
from projections.testing.simulation.workers import Invocation

if TYPE_CHECKING:
    from projections.testing.simulation.rule_versions import RuleVersion

__all__ = [
    "BEGIN",
    "DONE",
    "Backfill",
    "Bench",
    "Job",
    "Place",
    "Rebuild",
    "Refresh",
    "Verify",
    "groups_of",
    "lease_name",
]


class Place(NamedTuple):
    """Where a job is: the phase, what the phase is about, and where its scan goes on."""

    phase: str
    about: Any = None
    after: Any = None

    def __str__(self) -> str:
        return " ".join(str(part) for part in self if part is not None)


BEGIN = Place("begin")
"""Of a backfill, which puts rules in force, also such as were replaced."""
DONE = Place("done")


def lease_name(chance: Callable[[], float]) -> str:
    """The name of a lease or of a run, by the seed of the history."""
    return f"{int(chance() * 10**8):08d}"


class Bench:
    """What a piece works with: the rules it was started with, and how they stand in the registry."""

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
        """For what is written by the jobs that have no such store of their own."""
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

    def goes_on(self, invocation: Invocation) -> None:
        """The same process, in another piece: it knows what it knew."""
        self.deadline = Deadline(invocation.remaining, sleep=invocation.sleep, chance=self.chance)
        self.sleep = invocation.sleep

    def does(self, job: Job, place: Place) -> Place:
        """The piece of a job at a place; the place after it."""
        after = job.work(place, self)
        self.fenced.close()
        return after

    def entries(self, after: Any) -> tuple[dict[ItemKey, Entry], Any]:
        """The entries on a page of the ledger, by the key of their source, and where the scan goes on."""
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
        """A whole push, or its first page and a task for the rest."""
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

    def settle(self) -> None:
        """Raises Transient if a refresh has left anything to be done again. What was rejected goes into quarantine."""
        self._quarantine(list(self.refresher.rejected))
        if self.refresher.failed:
            raise Transient(f"not refreshed: {self.refresher.failed}")


class Job:
    """One thing to be done. It does not go on before it is `ready`, in seconds since 1970."""

    name = "job"

    def __init__(self, version: RuleVersion) -> None:
        self.version = version
        self.place = self.first()
        self.ready = 0.0
        self.busy = False
        """Whether a piece is under way whose answer is awaited."""
        self.generations = Generations()
        self.bench: Bench | None = None
        """What the process works with that did the last piece."""
        self.outlives = False
        """Whether it is a process of rules that were replaced, which nobody begins again."""

    def first(self) -> Place:
        raise NotImplementedError

    def work(self, place: Place, bench: Bench) -> Place:
        """Does the piece at a place; the place after it."""
        raise NotImplementedError

    def begun_again(self, version: RuleVersion) -> bool:
        """From the beginning, under other rules; whether there is anything to do under them."""
        self.version, self.place, self.generations, self.bench = version, self.first(), Generations(), None
        return True

    def left_behind(self) -> Job:
        """The process as it is now, which goes on after the job began again under other rules."""
        process = copy(self)
        process.outlives, process.busy = True, False
        return process


class Refresh(Job):
    """Some items by their keys, with images that they had, as a redrive or a repair knows them."""

    name = "refresh"

    def __init__(
        self,
        version: RuleVersion,
        keys: Sequence[ItemKey],
        known: Mapping[ItemKey, Sequence[Image]],
        letter: Letter | None = None,
    ) -> None:
        super().__init__(version)
        self._keys = keys
        self._known = known
        self._removed = [key for key, (_, removed) in letter.newest.items() if removed] if letter is not None else []
        self._told = letter.told if letter is not None else {}

    def first(self) -> Place:
        return Place("keys")

    def work(self, place: Place, bench: Bench) -> Place:
        for push in bench.refresher.keys(self._keys, bench.deadline, self._known, self._removed, self._told):
            bench.push(push)
        bench.settle()
        return DONE


class Rebuild(Job):
    """A group in a new generation."""

    name = "rebuild"

    def __init__(self, version: RuleVersion, target: Target) -> None:
        super().__init__(version)
        self.target = target

    def first(self) -> Place:
        return Place("close")

    def begun_again(self, version: RuleVersion) -> bool:
        super().begun_again(version)
        return any(rule.name == self.target[0] for rules in version.program.ledger_rules.values() for rule in rules)

    def work(self, place: Place, bench: Bench) -> Place:
        phase, generation, after = place
        if phase == "close":
            program = self.version.program
            return Place(
                "entries",
                rebuild.close(bench.fenced, program, self.target, bench.generations, bench.deadline, bench.clock),
            )
        bench.generations.at_least(self.target, generation)
        if phase == "entries":
            rule, target = self.target
            entries, after = bench.entries(after)
            keys = [key for key, entry in entries.items() if target in entry.contributions.get(rule, {})]
            bench.refresher.sources(dict.fromkeys(keys), bench.deadline)
            bench.settle()
            return Place("entries", generation, after) if after is not None else Place("reopen", generation)
        if phase == "reopen":
            rebuild.reopen(bench.fenced, self.target, generation)
            return Place("publish", generation)
        if phase == "publish":
            bench.refresher.publish([self.target], bench.deadline)
            bench.settle()
            return Place("sweep", generation)
        rebuild.sweep(bench.fenced, self.target, generation)
        return DONE


class Backfill(Job):
    """Everything there is, by the real operation: in pieces of this job, or by the worker as tasks of the queue.

    One that is limited to some rules goes on with all of them.
    """

    name = "backfill"

    def __init__(
        self, version: RuleVersion, *, rules: Sequence[str], queued: bool, restart: bool, **options: Any
    ) -> None:
        super().__init__(version)
        self._rules = rules
        self._queued = queued
        self._restart = restart
        self._options = options

    def first(self) -> Place:
        return BEGIN

    def work(self, place: Place, bench: Bench) -> Place:
        backfill = bench.backfill()
        if place == BEGIN:
            (rules, self._rules), (restart, self._restart) = (self._rules, ()), (self._restart, False)
            run = backfill.begin(rules=rules, restart=restart, allow_delete=True, **self._options)
            if self._queued and bench.tasks is not None:
                queued.start(backfill, run, bench.tasks)
                return DONE
            return Place("pages", run.name)
        newest = backfill.progress.run()
        if newest is None or newest.name != place.about:
            raise Overtaken
        if newest.done:
            return self.first() if newest.rules else DONE
        if newest.ready > bench.now().timestamp():
            self.ready = newest.ready
            return place
        left = [segment for segment in backfill.segments(newest) if not segment.done]
        if not left:
            backfill.forward(newest)
            return place
        done = backfill.page(newest, left[int(bench.chance() * len(left))], bench.deadline)
        backfill.release()
        if done.failed:
            raise Transient("not all of a page could be done")
        return place


class Verify(Job):
    """`verify --repair` of everything, in one process."""

    name = "verify"

    def first(self) -> Place:
        return Place("verify")

    def work(self, place: Place, bench: Bench) -> Place:
        scope = Scope(self.version.program, bench.snapshot)
        with Scratch() as scratch:
            options: dict[str, Any] = {"threads": 1, "sleep": bench.sleep, "run": bench.run}
            verification = Verification(scope, bench.store, scratch, patience=0, page=bench.page, **options)
            verification.all()
            store = Cautious(bench.store, self.version.program, deletes=True)
            repair = Repair(scope, store, verification.suspects, clock=bench.clock, named=bench.named, **options)
            repair.all()
            if repair.failed:
                raise Transient(f"not repaired: {repair.failed}")
        return DONE


def groups_of(items: Collection[Image]) -> list[Target]:
    """The groups on a page of the ledger."""
    found: dict[Target, None] = {}
    for item in items:
        kind, _, rest = item["pk"]["S"].partition("|")
        if kind == "G":
            rule, _, target = rest.partition("|")
            found[rule, item["key"]["S"] if "key" in item else target] = None
    return list(found)

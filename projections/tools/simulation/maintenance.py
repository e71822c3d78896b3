"""What operators do beside the traffic: refreshes, rebuilds of groups, backfills, and the change from rules to others.

Each is a job, done in pieces. A piece is an invocation like any other: it may die, be repeated, overlap with its repetition,
or stand still between a read and what it does with it. Where it was is remembered as a checkpoint is: after the piece.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from projections.engine import rebuild
from projections.engine.effort import Effort, Run
from projections.engine.embeds import Push
from projections.engine.groups import Generations
from projections.engine.ledger_items import CLOSED, REBUILDING, Entry, Target, group_key
from projections.engine.processor import SETTLE_SECONDS
from projections.engine.refresh import Refresher
from projections.engine.registry import FILLING, RETIRING, Registry
from projections.engine.store import Image, ItemKey, Page, Store
from projections.language.keys import decode_key
from projections.tools.simulation.workers import Invocation
from projections.tools.tables import LEDGER

if TYPE_CHECKING:
    from projections.tools.simulation.scene import Edition

__all__ = ["DONE", "Backfill", "Bench", "Job", "Place", "Rebuild", "Refresh", "groups_of", "is_rebuilding"]


class Place(NamedTuple):
    """Where a job is: the phase, what the phase is about, and where its scan goes on."""

    phase: str
    about: Any = None
    after: Any = None


DONE = Place("done")


class Bench:
    """What a piece works with: the rules it was started with, and how they stand in the registry."""

    def __init__(
        self,
        edition: Edition,
        store: Store,
        invocation: Invocation,
        *,
        run: Run[Any],
        chance: Callable[[], float],
        new_rules: str,
        generations: Generations,
        tasks: Callable[[Push, float], None] | None,
        clock: Callable[[], float],
    ) -> None:
        self.program = edition.program
        self.store = store
        self.effort = Effort(invocation.remaining, sleep=invocation.sleep, chance=chance)
        self.registry = Registry(edition.program, store, new_rules)
        self.generations = generations
        self.chance = chance
        self._sleep = invocation.sleep
        self._tasks = tasks
        self._standing = self.registry.standing()
        self.outdated = self._standing.outdated(edition.program)
        self.refresher = Refresher(
            edition.program,
            store,
            publishes=self._standing.publishes,
            generations=generations,
            run=run,
            clock=clock,
            chance=chance,
        )

    def page(self, table: str, after: Any, most: int) -> Page:
        """A few items of a scan, and often some time until they are used."""
        page = self.store.scan(table, limit=1 + int(self.chance() * most), after=after)
        if self.chance() < 0.5:
            self._sleep(1 + 4 * self.chance())
        return page

    def push(self, push: Push) -> None:
        """A whole push, or its first page and a task for the rest."""
        embedder = self.refresher.embedder
        embedder.raise_fence(push)
        page: Push | None = push
        while page is not None:
            more, _ = embedder.push_page(page, self.effort)
            following = embedder.following(page, more)
            if following is None:
                break
            page, later = following
            if self._tasks is not None:
                self._tasks(page, SETTLE_SECONDS if later else 0.0)
                break
            if later:
                self._sleep(SETTLE_SECONDS)


class Job:
    """One thing to be done. It waits as long as an invocation up to number `waits` is under way."""

    name = "job"

    def __init__(self, edition: Edition) -> None:
        self.edition = edition
        self.place = self.first()
        self.waits = 0
        self.busy = False
        """Whether a piece is under way whose answer is awaited."""
        self.generations = Generations()

    def first(self) -> Place:
        raise NotImplementedError

    def work(self, place: Place, bench: Bench) -> Place:
        """Does the piece at a place; the place after it."""
        raise NotImplementedError

    def begun_again(self, edition: Edition) -> bool:
        """From the beginning, under other rules; whether there is anything to do under them."""
        self.edition, self.place, self.generations = edition, self.first(), Generations()
        return True


class Refresh(Job):
    """Some items by their keys, with images that they had, as a redrive or a repair knows them."""

    name = "refresh"

    def __init__(self, edition: Edition, keys: Sequence[ItemKey], known: Mapping[ItemKey, Sequence[Image]]) -> None:
        super().__init__(edition)
        self._keys = keys
        self._known = known

    def first(self) -> Place:
        return Place("keys")

    def work(self, place: Place, bench: Bench) -> Place:
        for push in bench.refresher.keys(self._keys, bench.effort, self._known):
            bench.push(push)
        return DONE


class Rebuild(Job):
    """A group in a new generation."""

    name = "rebuild"

    def __init__(self, edition: Edition, target: Target) -> None:
        super().__init__(edition)
        self.target = target

    def first(self) -> Place:
        return Place("close")

    def begun_again(self, edition: Edition) -> bool:
        super().begun_again(edition)
        return any(rule.name == self.target[0] for rules in edition.program.ledger_rules.values() for rule in rules)

    def work(self, place: Place, bench: Bench) -> Place:
        phase, generation, after = place
        if phase == "close":
            return Place("entries", rebuild.close(bench.store, self.target, bench.generations, bench.effort))
        bench.generations.at_least(self.target, generation)
        if phase == "entries":
            rule, target = self.target
            page = bench.page(LEDGER, after, 12)
            entries = _entries(page.items)
            keys = [key for key, entry in entries.items() if target in entry.contributions.get(rule, {})]
            bench.refresher.sources(dict.fromkeys(keys), bench.effort)
            if page.after is not None:
                return Place("entries", generation, page.after)
            return Place("reopen", generation)
        if phase == "reopen":
            rebuild.reopen(bench.store, self.target, generation)
            return Place("publish", generation)
        if phase == "publish":
            bench.refresher.publish([self.target], bench.effort)
            return Place("sweep", generation)
        rebuild.sweep(bench.store, self.target, generation)
        return DONE


class Backfill(Job):
    """Everything there is, under these rules, which it puts in force first if `enforces`."""

    name = "backfill"

    def __init__(self, edition: Edition, *, enforces: bool) -> None:
        self._enforces = enforces
        super().__init__(edition)

    def first(self) -> Place:
        return Place("enforce") if self._enforces else self._items()

    def _items(self) -> Place:
        return Place("items", next(iter(self.edition.program.tables)))

    def _following(self, phase: str, table: str, then: Place) -> Place:
        """The next table, or what comes after all of them."""
        tables = list(self.edition.program.tables)
        position = tables.index(table) + 1
        return Place(phase, tables[position]) if position < len(tables) else then

    def work(self, place: Place, bench: Bench) -> Place:
        phase, about, after = place
        refresher, effort = bench.refresher, bench.effort
        if phase == "enforce":
            standing = bench.registry.enforce()
            if any(rule.state in (FILLING, RETIRING) for rule in standing.rules.values()):
                return Place("wait", self._items())
            return self._items()
        if phase == "wait":
            return about  # type: ignore[no-any-return]
        if phase == "items":
            page = bench.page(about, after, 4)
            schema = bench.program.tables[about]
            refresher.scanned({schema.key(about, image): image for image in page.items}, effort)
            return Place(phase, about, page.after) if page.after else self._following(phase, about, Place("entries"))
        if phase == "entries":
            page = bench.page(LEDGER, after, 12)
            refresher.sources(dict.fromkeys(_entries(page.items)), effort)
            if page.after:
                return Place(phase, None, page.after)
            return Place("complete") if self._enforces else Place("groups")
        if phase == "complete":
            before = bench.registry.standing()
            if bench.registry.complete(bench.program.rules) != before:
                return Place("wait", Place("groups"))
            return Place("groups")
        if phase == "groups":
            page = bench.page(LEDGER, after, 12)
            refresher.publish(groups_of(page.items), effort)
            if page.after:
                return Place(phase, None, page.after)
            return Place("targets", next(iter(bench.program.tables)))
        if phase == "targets":
            page = bench.page(about, after, 4)
            schema = bench.program.tables[about]
            images = {schema.key(about, image): image for image in page.items}
            known = {key: item for key, image in images.items() if (item := bench.program.recognise(key, image))}
            refresher.targets(images, effort, known)
            return Place(phase, about, page.after) if page.after else self._following(phase, about, Place("forget"))
        if self._enforces:
            bench.registry.forget(bench.program.retired)
        return DONE


def _entries(items: Sequence[Image]) -> dict[ItemKey, Entry]:
    """The entries on a page of the ledger, by the key of their source."""
    return {
        decode_key(item["key"]["S"] if "key" in item else item["pk"]["S"][2:]): Entry.read(item)
        for item in items
        if item["pk"]["S"].startswith("E|")
    }


def groups_of(items: Collection[Image]) -> list[Target]:
    """The groups on a page of the ledger."""
    found: dict[Target, None] = {}
    for item in items:
        kind, _, rest = item["pk"]["S"].partition("|")
        if kind == "G":
            rule, _, target = rest.partition("|")
            found[rule, item["key"]["S"] if "key" in item else target] = None
    return list(found)


def is_rebuilding(ledger: Collection[Image], target: Target) -> bool:
    """Whether a group was closed, and the one that replaces it is not open yet."""
    partition = group_key(*target).partition
    return any(item["pk"]["S"] == partition and REBUILDING in item and CLOSED not in item for item in ledger)

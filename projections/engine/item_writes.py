"""The writes of a batch to the application's items that need no ledger: copies, index attributes, releases, heals, embeds.

Each is one conditional write that is right whatever the others do, so they need no order among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial

from projections.engine.aggregation import PART
from projections.engine.application import ApplicationItems
from projections.engine.batch import Admitted
from projections.engine.budget import Refresh
from projections.engine.copier import Copier
from projections.engine.copies import CopyHeal, CopyWrite
from projections.engine.embeds import SETTLE_SECONDS, Embedder, Push
from projections.engine.indexes import IndexWrite, write_index
from projections.engine.ledger_items import Target
from projections.engine.plan import ListPull, Plan
from projections.engine.rejections import of_child
from projections.engine.releases import Release, Releaser
from projections.engine.running import one_by_one, slices
from projections.engine.store import ItemKey, Records, Value
from projections.errors import ConditionFailed
from projections.language.embeds import ListEmbedRule
from projections.language.keys import encode_key

__all__ = ["ItemWrites"]


class ItemWrites:
    """Makes the writes of a plan to application items. Failures are in the batch's report."""

    def __init__(self, batch: Admitted) -> None:
        setup = batch.setup
        self._batch = batch
        self._program = setup.program
        self._store = setup.store
        self._run = setup.run
        self._report = batch.report
        self._deadline = batch.deadline
        self._copier = Copier(setup.program, setup.store, batch.guards, batch.report.counters)
        self._items = ApplicationItems(setup.program, setup.store, batch.guards)
        self._releaser = Releaser(setup.program, setup.store, self._items)

    def steps(self, plan: Plan) -> Iterator[Callable[[], object]]:
        """Yield the steps of a plan."""
        yield partial(self._run, [partial(self._unmark, *mark) for mark in plan.unmarked])
        yield partial(self._run, [partial(self._release, release) for release in plan.releases])
        pieces: list[Callable[[], None]] = [partial(self._copy, copy) for copy in plan.copies]
        pieces += [partial(self._index, write) for write in plan.indexes]
        yield partial(self._run, pieces)
        yield partial(self._run, [partial(self._heal_copy, heal) for heal in _distinct(plan.copy_heals)])
        yield partial(self._heal, plan.heals)
        if plan.pushes or plan.pulls or plan.list_pulls:
            yield partial(self._embed, plan)

    def _release(self, release: Release) -> None:
        def apply() -> None:
            if self._releaser.release(release):
                self._report.counters.add("released")

        self._batch.attempt(apply, release.sequences[0], release.entity.name, encode_key(release.key))

    def _unmark(self, key: ItemKey, mark: Value, sequence: str) -> None:
        """Remove a mark that an update added, so that no rule deletes an item that the application has."""

        def apply() -> None:
            with suppress(ConditionFailed):
                self._items.unmark(key, mark, (sequence,))

        self._batch.attempt(apply, sequence, "", encode_key(key))

    def _copy(self, copy: CopyWrite) -> None:
        setup = self._batch.setup
        at_once = not copy.copies or setup.tasks is None or setup.budget.affords_copies(copy)
        work = partial(self._copier.write, copy, self._deadline) if at_once else partial(self._leave, copy)
        self._batch.attempt(work, copy.sequences[0], copy.rule.name, copy.source)

    def _leave(self, copy: CopyWrite) -> None:
        """Leave the copies of a source to the worker. The record is done when the task is sent."""
        self._copier.write(copy.removals, self._deadline)
        self._batch.leave(Refresh(copy.source, copy.version, rule=copy.rule.name))
        self._report.counters.add("deferred")

    def _index(self, write: IndexWrite) -> None:
        record, key = write.sequences[0], encode_key(write.key)

        def apply() -> None:
            written, refused = write_index(self._items, write)
            if written:
                self._report.counters.add("indexed")
            for rule, error in refused:
                self._report.refuse([record], error, rule=rule, key=key)

        self._batch.attempt(apply, record, ", ".join(write.rules), key)

    def _heal_copy(self, heal: CopyHeal) -> None:
        work = partial(self._copier.heal, heal, self._deadline)
        self._batch.attempt(work, heal.sequences[0], heal.rule.name, encode_key(heal.target))

    def _heal(self, heals: Mapping[Target, str]) -> None:
        publisher = self._batch.publisher()
        for some in slices(heals, PART):
            if self._deadline.over:
                self._report.fail([heals[target] for target in some], str(self._deadline.out_of_time))
                continue
            records = {target: (heals[target],) for target in some}
            for target, error in publisher.heal(some, self._deadline, records).items():
                self._report.refuse([heals[target]], error, rule=target[0], key=target[1], target=target[1])

    def _embed(self, plan: Plan) -> None:
        setup = self._batch.setup
        # many parents at once, or the children of one: never both, because what runs at once must not wait for itself
        inner = self._run if len(plan.pushes) == 1 else one_by_one
        embedder = Embedder(
            self._program,
            self._store,
            self._batch.guards,
            pace=setup.pace,
            counters=self._report.counters,
            run=inner,
        )
        waiting: list[tuple[Push, Records]] = []
        self._run([partial(self._push, embedder, push, records, waiting) for push, records in plan.pushes.items()])
        self._run([partial(self._pull, embedder, *pull, first) for pull, first in plan.pulls.items()])
        self._run([partial(self._pull_list, embedder, *pull, of) for pull, of in plan.list_pulls.items()])
        if waiting:  # without a queue the second pass over an index is made at once, as soon as it has settled
            if self._deadline.left <= SETTLE_SECONDS:  # next time the first pass has little left to do
                for push, records in waiting:
                    self._report.fail(records[:1], f"{push.rule}: not enough time left to wait for the index")
                return
            setup.sleep(SETTLE_SECONDS)
            self._run([partial(self._push, embedder, push, records, waiting) for push, records in waiting[:]])

    def _push(
        self,
        embedder: Embedder,
        push: Push,
        records: Records,
        waiting: list[tuple[Push, Records]],
    ) -> None:
        """Push the first page at once; the rest as tasks, or at once where there is no queue."""
        tasks = self._batch.setup.tasks

        def one(page: Push) -> Push | None:
            if page is push and not push.again:
                embedder.raise_fence(push, records)
            more, hopeless = embedder.push_page(page, self._deadline, records)
            for key, reason in hopeless:
                self._report.rejected.append(of_child(push, key, reason, records[0]))
            following = embedder.following(page, more)
            if following is None:
                return None
            step, later = following
            if tasks is not None:
                tasks(step, SETTLE_SECONDS if later else 0.0)
                return None
            if later:
                waiting.append((step, records))
                return None
            return step

        page: Push | None = push
        while page is not None:
            steps: list[Push | None] = [None]

            def work(now: Push = page, steps: list[Push | None] = steps) -> None:
                steps[0] = one(now)

            self._batch.attempt(work, records[0], push.rule, push.parent)
            page = steps[0]

    def _pull(self, embedder: Embedder, name: str, key: ItemKey, first: str) -> None:
        work = partial(embedder.pull, self._program.embeds[name], key, self._deadline, (first,))
        self._batch.attempt(work, first, name, encode_key(key))

    def _pull_list(self, embedder: Embedder, name: str, key: ItemKey, of: ListPull) -> None:
        rule = self._program.embeds[name]
        assert isinstance(rule, ListEmbedRule)
        work = partial(
            embedder.lists.pull,
            rule,
            key,
            self._deadline,
            (of.sequence,),
            added=of.added,
            removed=of.removed,
        )
        self._batch.attempt(work, of.sequence, name, encode_key(key))


def _distinct(heals: Iterable[CopyHeal]) -> list[CopyHeal]:
    """Return one heal per copy: all sources named, each with its newest version, and the records of all."""
    found: dict[ItemKey, CopyHeal] = {}
    for heal in heals:
        known = found.get(heal.target)
        if known is None:
            found[heal.target] = heal
            continue
        newest = {source: max(at, known.sources.get(source, "")) for source, at in heal.sources.items()}
        found[heal.target] = known._replace(
            sources={**known.sources, **newest},
            sequences=tuple(dict.fromkeys([*known.sequences, *heal.sequences])),
            freed=known.freed or heal.freed,
        )
    return list(found.values())

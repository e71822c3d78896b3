"""Pending publishes of targets from which something was retracted: entries record them, and forget them when they are made.

Once a contribution is removed from an entry, the entry does not name its target any more. If the process stops between
commit and publish, nothing would lead to that target. So a commit adds it to the entry (`Entry.recent`), and it is removed
after the publish, on condition that the revision of the entry is as it was before the publish: after a commit in between,
the target has to be published again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import MappingProxyType

from projections.engine.changes import Change, Result
from projections.engine.deadline import UNLIMITED, Deadline
from projections.engine.ledger_items import LEDGER, Entry, Target, entry_key, read_recent, recent_element
from projections.engine.running import Run, one_by_one, write_all
from projections.engine.store import AllOf, Equal, Exists, Purpose, Records, Store, Update, Value
from projections.errors import ConditionFailed, StoreError, Transient

__all__ = ["TOMBSTONE_SECONDS", "forget", "pending_entries", "relieved"]

_NO_RECORDS: Mapping[str, Records] = MappingProxyType({})

TOMBSTONE_SECONDS = 7 * 24 * 3600
"""How long the entry of a removed item is kept: well beyond the 24 hours for which a stream keeps its records."""


def pending_entries(store: Store, results: Sequence[Result], deadline: Deadline = UNLIMITED) -> dict[str, Entry]:
    """Return the entries with pending publishes, or that should expire, by source, as they are before publishing.

    Raises Transient; OutOfTime is one.
    """
    sources = [result.change.source for result in results if result.may_have_pending]
    if not sources:
        return {}
    deadline.check()
    items = store.get_many([entry_key(source) for source in sources])
    return {
        source: Entry.read(item)
        for source in deadline.checked(sources)
        if (item := items.get(entry_key(source))) is not None
    }


def relieved(
    store: Store,
    publish: Callable[[Iterable[Target], Deadline, Mapping[Target, Records]], Mapping[Target, StoreError]],
    change: Change,
    entry: Entry,
    now: float,
    deadline: Deadline,
) -> Entry | None:
    """Make the pending publishes of an entry and remove them, so that it has room for a change. `now` as in `forget`.

    Return the entry as it is then, None if none could be removed. Raises Transient.
    """
    source, records = change.source, change.sequences
    failures = dict(publish(entry.pending, deadline, dict.fromkeys(entry.pending, records)))
    published = entry.pending - failures.keys()
    if published:
        forgotten = forget(store, [(source, entry, published)], now, deadline, one_by_one, {source: records})
        failures.update({("", source): error for source, error in forgotten.items()})
    for failure in failures.values():
        if isinstance(failure, Transient):
            raise failure
    if not published or ("", source) in failures:
        return None
    return entry._replace(recent=entry.recent - {recent_element(target) for target in published})


def forget(
    store: Store,
    published: Iterable[tuple[str, Entry, Set[Target]]],
    now: float,
    deadline: Deadline,
    run: Run[list[StoreError | None]],
    records: Mapping[str, Records] = _NO_RECORDS,
) -> dict[str, StoreError]:
    """Remove published targets from `recent`, and let entries without contributions expire. `now` is in seconds since 1970.

    `published` has sources with their entries and the targets that were published. An entry with a newer commit is left as
    it is: that commit's invocation publishes. `records` has the sequence numbers of the records by source. Return the
    failures by source.
    """
    expiry: Value = {"N": str(int(now) + TOMBSTONE_SECONDS)}
    exists = Exists((store.schema(LEDGER).partition[0],))
    updates: dict[str, Update] = {}
    for source, entry, targets in published:
        done = {recent_element(target) for target in targets} & entry.recent
        ended = not entry.contributions and done == entry.recent and not entry.expires
        if not done and not ended:
            continue
        rules = tuple(sorted({read_recent(element)[0] for element in done}))
        some = done != entry.recent  # all of it is removed as a whole: while the revision stays, nothing is added
        updates[source] = Update(
            entry_key(source),
            set={"ttl": expiry} if ended else {},
            remove=("recent",) if done and not some else (),
            discard={"recent": {"SS": sorted(done)}} if some else {},
            condition=AllOf((exists, Equal(("revision",), {"N": str(entry.revision)}))),
            purpose=Purpose("forget", rules, source, records.get(source, ())),
        )
    answers = write_all(store, list(updates.values()), deadline, run)
    return {
        source: answer
        for source, answer in zip(updates, answers, strict=True)
        if answer is not None and not isinstance(answer, ConditionFailed)
    }

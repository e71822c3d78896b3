"""The checks of one history: of each write when it is made, and of the tables at the end."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from projections.engine.guards import Guards
from projections.engine.registry import PROVISIONAL, Registry
from projections.engine.rejections import Rejected
from projections.engine.store import Image, ItemKey, Value
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.operations.backfill.progress import Progress
from projections.testing.simulation.checks import Ended, Lived, value_text
from projections.testing.simulation.database import Database
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.harm import Harm
from projections.testing.simulation.item_writer import ItemWriter
from projections.testing.simulation.rule_versions import RuleVersion, RuleVersions
from projections.testing.simulation.workers import Invocation


class HistoryChecks:
    """Checks writes of the engine and notes what the checks at the end depend on; `problems` are those found so far."""

    def __init__(self, plan: FaultPlan, versions: RuleVersions, database: Database) -> None:
        self._plan = plan
        self._versions = versions
        self._database = database
        self._harm = Harm(versions.ownership)
        self._lived = Lived(database.store)
        self.problems: list[str] = []
        self.rejected: list[Rejected] = []
        """Rejections of functions, from records and tasks."""
        self.refused: dict[Rejected, None] = {}
        """Rejections of jobs."""
        self.damaged = False
        """Whether the ledger was damaged or restored: guards may go back."""
        self._since: set[ItemKey] | None = None
        """Items written since provisional rules were deployed; None before that."""
        self._unsettled: set[str] = set()
        """Encoded keys of items that expired since then."""
        self._unclear = False
        """Whether one of them was written under provisional rules: its contributions are not determined."""

    # On the way

    def activate(self, version: RuleVersion) -> None:
        """Let the rules that are deployed be active, as they are once a function has worked with them."""
        Registry(version.program, self._database.store, self._plan.new_rules).read_or_create()
        self._lived.look()

    def begin_provisional(self) -> None:
        """Note that provisional rules are deployed from now on."""
        self._since = set()

    def application_wrote(self, key: ItemKey, before: Image | None, after: Image | None, *, expired: bool) -> None:
        """Note a write of the application, or a deletion by TTL."""
        if self._since is not None:
            if expired:
                self._unsettled.add(encode_key(key))
                self._unclear = self._unclear or key in self._since
            self._since.add(key)
        self._harm.note_write(key, before, after)

    def engine_wrote(
        self,
        key: ItemKey,
        before: Image | None,
        after: Image | None,
        invocation: Invocation,
        *,
        answered: bool,
        tampered: bool,
    ) -> None:
        """Check a write of the engine. `tampered` is whether the application has written guards."""
        if self._since is not None:
            self._since.add(key)
        restored = before is None and self._harm.restores(key, after or {})
        self.problems += self._harm.check_write(key, before, after, invocation, answered=answered)
        self.problems += self._check_change(key, before, after)
        if not restored:
            self.problems += invocation.version.checks.check_write(
                key,
                before,
                after,
                tampered=tampered or self.damaged or self._versions.guards_change,
                lived=self._lived.look(),
            )

    def _check_change(self, key: ItemKey, before: Image | None, after: Image | None) -> Iterator[str]:
        """Find changes of values that were set once, also on items that have left their entity."""
        if before is None or after is None:
            return
        ownership = self._versions.ownership
        names = [name for name in ownership.lasting(key.table) & before.keys() if before[name] != after.get(name)]
        if names and not any(ownership.is_whole_copy(key, image) for image in (before, after)):
            yield from (
                f"{encode_key(key)} {name}: set once, and changed to {value_text(after.get(name))}" for name in names
            )

    def note_end(self, invocation: Invocation) -> None:
        self.problems += self._harm.check_end(invocation)

    def note_death(self, invocation: Invocation) -> None:
        self._harm.forget(invocation)

    # At the end

    def check_end(self, application: ItemWriter) -> None:
        """Compare the tables with the oracle, and look for values of former rules."""
        plan, versions, database = self._plan, self._versions, self._database
        last, outage = versions.last, database.outages > 0
        operations = (
            plan.fill, plan.outage, plan.restore, plan.discard, plan.refreshes, plan.backfills, plan.verifies
        )  # fmt: skip
        in_order = not versions.change and not any(operations)  # every record was delivered to the same rules
        ended = Ended(
            database.items,
            database.ledger(),
            database.expired,
            database.records,
            self.rejected,
            tuple(self.refused),
            tuple(version.program for version in versions.all),
            self._genuine,
            self._unsettled if versions.rolled_back else (),
            versions.rolled_back and self._unclear,
            application.touched | application.own if in_order else None,
            outage,
        )
        self.problems += last.checks.problems(ended)
        if not outage and not plan.discard:  # the records of marks that others wrote were processed
            self.problems += self._harm.planted_marks()
        if plan.fill or versions.change:
            self.problems += self._incomplete(application.touched | application.own)
        self.problems += self._harm.leftovers(database.items, application.touched, last.program, unheard=outage)

    def _genuine(self, key: ItemKey, name: str, value: Value) -> bool:
        """Whether the engine wrote a guard; of a mark, whether a rule created the item, and all that is on it is the rules'.

        Where the application has written since, this is judged as the engine judges it, by the guard.
        """
        if not self._harm.genuine(key, name, value):
            return False
        program, item = self._versions.last.program, self._database.items[key]
        if name != program.guard_prefix or not program.whole_copies or key not in self._harm.meddled:
            return True
        identity = Registry(program, self._database.store).read_or_create().identity
        return Guards(program, identity).is_created(key, item)

    def _incomplete(self, touched: Collection[ItemKey]) -> Iterator[str]:
        """Yield everything that the last backfill has left undone."""
        versions, store = self._versions, self._database.store
        last = versions.last.program
        run = Progress(store).run()
        if run is None or not run.done or run.rules or run.program != last.fingerprint:
            yield f"the backfill is not complete: {run}"
        elif versions.change:
            before = [version.program for version in (versions.first, versions.between) if version is not None]
            yield from traces(before, last, self._database.items, touched)
            rules = Registry(last, store).read_or_create().rules
            if provisional := [name for name, rule in rules.items() if rule.state == PROVISIONAL]:
                yield f"{', '.join(provisional)}: still provisional in the registry"


def traces(
    before: Sequence[Program],
    after: Program,
    items: Mapping[ItemKey, Image],
    touched: Collection[ItemKey],
) -> Iterator[str]:
    """Yield guards and attributes of rules that were changed, or retired with `remove`, except on items in `touched`.

    The first program of `before` was active. The others may have been provisional only: of these nothing stays unless it is
    listed as `keep`.
    """
    kept = [
        (before[0].guard(rule.name), rule.owned())
        for program in before
        for rule in program.rules.values()
        if rule.name not in after.rules and after.retired.get(rule.name) == "keep"
    ]
    for number, program in enumerate(before):
        yield from _of_program(program, after, items, touched, "remove" if number else "keep", kept)


def _of_program(
    before: Program,
    after: Program,
    items: Mapping[ItemKey, Image],
    touched: Collection[ItemKey],
    silence: str,
    kept: Sequence[tuple[str, Collection[str]]],
) -> Iterator[str]:
    for rule in before.rules.values():
        now = after.rules.get(rule.name)
        if rule.mode == "shadow" or (now is None and after.retired.get(rule.name, silence) != "remove"):
            continue
        if not rule.removes:
            continue
        entity, guard = rule.into.name, before.guard(rule.name)
        moved = now is None or now.into.name != entity
        gone = set(rule.owned()) - after.derived_attributes(entity)
        for key, image in items.items():
            item = after.recognise(key, image)
            if item is None or item.entity.name != entity or key in touched:
                continue
            keep = {*item.entity.schema.key_attributes, *item.entity.constants, *before.entities[entity].constants}
            keep.update(*(names for other, names in kept if other in image))
            names = [name for name in image if (name in gone and name not in keep) or (moved and name == guard)]
            if names:
                yield f"{encode_key(key)}: {', '.join(names)} of the former rule {rule.name} still exists"

"""The checks of one history: of each write when it is made, and of the tables at the end."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from projections.engine.guards import Guards, order_of
from projections.engine.ledger_items import promotion_in
from projections.engine.registry import REGISTRY, Registry, RegistrySnapshot, document_key, epoch_of
from projections.engine.rejections import Rejected
from projections.engine.store import Image, ItemKey, Value
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.operations.backfill.progress import Progress
from projections.testing.simulation.checks import Checks, Ended, value_text
from projections.testing.simulation.database import Database
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.harm import Harm
from projections.testing.simulation.item_writer import ItemWriter
from projections.testing.simulation.rule_versions import RuleVersions
from projections.testing.simulation.workers import Invocation


class HistoryChecks:
    """Checks writes of the engine and notes what the checks at the end depend on; `problems` are those found so far."""

    def __init__(self, plan: FaultPlan, versions: RuleVersions, database: Database) -> None:
        self._plan = plan
        self._versions = versions
        self._database = database
        self.harm = Harm(versions.ownership)
        self._documents: dict[tuple[str, int], Mapping[str, Any]] = {}
        """The documents of versions, by name and epoch."""
        self._of: dict[tuple[tuple[str, int], ...], Checks] = {}
        """The checks of published versions, by their names and epochs."""
        self.problems: list[str] = []
        self.rejected: list[Rejected] = []
        """Rejections of functions, from records and tasks."""
        self.refused: dict[Rejected, None] = {}
        """Rejections of jobs."""
        self.damaged = False
        """Whether the ledger was damaged or restored: guards may go back."""
        self.forgotten = False
        """Whether the ledger was restored from a time before its registry: it cannot contain the rules of then."""
        self._unread = False
        """Whether a published version was stale: what it had set stays on items that leave their entity meanwhile."""
        self._snapshot: tuple[Image, RegistrySnapshot] | None = None
        """The registry that the last write followed from, and what is in it."""
        self._late: set[ItemKey] = set()
        """Items on which late functions have set attributes that have no guard: these stay."""

    # On the way

    def _checks_of(self, snapshot: RegistrySnapshot) -> Checks:
        """Return what must hold for the published versions of a registry."""
        names = tuple(sorted((version.name, version.since) for version in snapshot.active.values()))
        if names not in self._of:
            document = self._published_document(snapshot)
            self._of[names] = Checks(Program.from_document(document), document)
        return self._of[names]

    def _published_document(self, snapshot: RegistrySnapshot) -> dict[str, Any]:
        """Return the published versions as one document, under the names of their rules."""
        for name, version in snapshot.versions.items():
            at = name, version.since
            if at not in self._documents and (item := self._database.store.get(document_key(name))) is not None:
                self._documents[at] = json.loads(item["document"]["S"])
        last = self._versions.last
        held = {name: "keep" for name, rule in last.program.rules.items() if rule.held}
        document: dict[str, Any] = {**last.document, "projections": {}, "retired": {**last.document["retired"], **held}}
        document["entities"] = dict(document["entities"])
        for version in snapshot.active.values():
            known = self._documents[version.name, version.since]
            document["entities"].update(known["entities"])
            document["projections"][version.rule] = {**known["rule"], "hold": False}
        return document

    def is_applied(self, snapshot: RegistrySnapshot) -> bool:
        """Whether the rules of the last file are published, as far as they are not held."""
        program = self._versions.last.program
        active = {rule: version.fingerprint for rule, version in snapshot.active.items()}
        held = {name for name, rule in program.rules.items() if rule.held}
        stale = {version.rule for version in snapshot.versions.values() if version.state == "stale"}
        doubted = any(version.doubted for version in snapshot.maintained)
        if active.keys() - program.rules.keys() or stale - held or doubted:
            return False
        return all(active.get(name) == rule.fingerprint for name, rule in program.rules.items() if name not in held)

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
        restored = before is None and self.harm.restores(key, after or {})
        self.problems += self.harm.check_write(key, before, after, invocation, answered=answered)
        self.problems += self._check_change(key, before, after)
        assert invocation.registry is not None
        if self._snapshot is None or self._snapshot[0] is not invocation.registry:
            self._snapshot = invocation.registry, RegistrySnapshot.read(invocation.registry)
        snapshot = self._snapshot[1]
        self._unread = self._unread or bool(snapshot.unreadable)
        self.problems += self._check_promotion(snapshot, key, before or {}, after or {})
        self._note_left(snapshot, key, before or {}, after or {})
        late = self._note_late(snapshot, key, before or {}, after or {})
        if not restored:
            checks = self._checks_of(snapshot)
            if before is None and after is not None and not checks.is_created_by_rules(key, after):
                # while two versions of an entity are published: the other one's
                others = (Checks(version.program, version.document) for version in self._versions.all)
                checks = next((other for other in others if other.is_created_by_rules(key, after)), checks)
            self.problems += checks.check_write(key, before, after, tampered=tampered or self.damaged or late)

    def _check_promotion(self, snapshot: RegistrySnapshot, key: ItemKey, before: Image, after: Image) -> Iterator[str]:
        """Find guards of versions that were neither published nor stale in the registry that their writer had read last."""
        rules = {version.rule for version in snapshot.versions.values()}
        prefix = self._versions.last.program.guard_prefix
        for name in after:
            rule = name.removeprefix(prefix)
            if not name.startswith(prefix) or rule not in rules or after[name] == before.get(name):
                continue
            published = {version.promoted for version in snapshot.of(rule) if version.state in ("active", "stale")}
            if promotion_in(order_of(after[name])) not in published:
                yield f"{encode_key(key)}: {rule} was published by a version that the writer's registry does not publish"

    def _note_late(self, snapshot: RegistrySnapshot, key: ItemKey, before: Image, after: Image) -> bool:
        """Note a late value without a guard. Return whether the rule of a guard was removed meanwhile: it may go back."""
        registry = self._database.store.get(REGISTRY)
        if registry is None or epoch_of(registry) == snapshot.epoch:
            return False
        now = {version.rule: version.name for version in RegistrySnapshot.read(registry).active.values()}
        replaced = {rule for rule, version in snapshot.active.items() if version.name != now.get(rule)}
        rules = [rule for rule in self._versions.rules if rule.name in replaced]
        free = {name for rule in rules if not rule.has_guard for name in rule.owned()}
        if any(after.get(name) not in (None, before.get(name)) for name in free):
            self._late.add(key)
        guards = {self._versions.last.program.guard(rule.name) for rule in rules if rule.name not in now}
        return any(after.get(name) != before.get(name) for name in guards)

    def _note_left(self, snapshot: RegistrySnapshot, key: ItemKey, before: Image, after: Image) -> None:
        """Note what stays on an item of another kind where a guard goes whose rule is removed or being changed."""
        prefix = self._versions.last.program.guard_prefix
        for rule in (name.removeprefix(prefix) for name in before.keys() - after.keys() if name.startswith(prefix)):
            if rule and (rule not in snapshot.active or snapshot.active[rule].unfinished):
                self.harm.stays.setdefault(key, set()).update(after)

    def _check_change(self, key: ItemKey, before: Image | None, after: Image | None) -> Iterator[str]:
        """Find changes of values that were set once, also on items that have left their entity."""
        if before is None or after is None:
            return
        ownership = self._versions.ownership
        names = [name for name in ownership.lasting(key.table) & before.keys() if before[name] != after.get(name)]
        if names and not ownership.is_whole_copy(key):
            yield from (
                f"{encode_key(key)} {name}: set once, and changed to {value_text(after.get(name))}" for name in names
            )

    # At the end

    def check_end(self, application: ItemWriter) -> None:
        """Compare the tables with the oracle, and look for values of former rules."""
        plan, versions, database = self._plan, self._versions, self._database
        outage = database.outages > 0
        operations = plan.fill, plan.outage, plan.restore, plan.discard, plan.refreshes, plan.backfills, plan.verifies
        in_order = not versions.change and not any(operations)  # every record was delivered to the same rules
        registry = Registry(versions.last.program, database.store)
        snapshot, program = registry.current()
        ended = Ended(
            database.items,
            database.ledger(),
            database.expired,
            database.records,
            self.rejected,
            tuple(self.refused),
            tuple(version.program for version in versions.all),
            self._genuine,
            application.touched | application.own if in_order else None,
            outage,
        )
        self.problems += self._checks_of(snapshot).problems(ended, program, snapshot)
        if not outage and not plan.discard:  # the records of marks that others wrote were processed
            self.problems += self.harm.planted_marks()
        published = Program.from_document(self._published_document(snapshot))
        if plan.fill or versions.change:
            touched = self._late.union(application.touched, application.own)
            self.problems += self._incomplete(snapshot, published, touched)
        if not outage and not self._unread:  # otherwise values of rules are not recognised
            self.problems += self.harm.leftovers(database.items, application.touched, versions.last.program)

    def _genuine(self, key: ItemKey, name: str, value: Value) -> bool:
        """Whether the engine wrote a guard; of a mark, whether a rule created the item, and all that is on it is the rules'.

        Where the application has written since, this is judged as the engine judges it, by the guard.
        """
        if not self.harm.genuine(key, name, value):
            return False
        program, item = self._versions.last.program, self._database.items[key]
        if name != program.guard_prefix or key not in self.harm.meddled:
            return True
        if any(entity.name in self._versions.returned_into for entity in program.entities_at(key)):
            return False  # its rule may have been removed when the application wrote it: `verify` lists it
        if not program.whole_copies:
            return True
        identity = Registry(program, self._database.store).read_or_create().identity
        return Guards(program, identity).is_created(key, item)

    def _incomplete(
        self, snapshot: RegistrySnapshot, published: Program, touched: Collection[ItemKey]
    ) -> Iterator[str]:
        """Yield everything that the last backfill has left undone."""
        versions = self._versions
        run = Progress(self._database.store).run()
        if run is None or not run.done or not self.is_applied(snapshot):
            yield f"the backfill is not complete: {run}"
        undone = [v.name for v in snapshot.versions.values() if v.unfinished or v.state in ("filling", "leaving")]
        if undone:
            yield f"the registry is not as it should be: {', '.join(undone)}"
        if versions.change and not self.forgotten:
            before = [version.program for version in (versions.first, versions.between) if version is not None]
            yield from traces(before, published, self._database.items, touched)


def traces(
    before: Sequence[Program], after: Program, items: Mapping[ItemKey, Image], touched: Collection[ItemKey]
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
        silence = "remove" if number else "keep"
        for rule in program.rules.values():
            now = after.rules.get(rule.name)
            if not rule.removes or rule.held or (now is None and after.retired.get(rule.name, silence) != "remove"):
                continue
            entity, guard = rule.into.name, program.guard(rule.name)
            moved = now is None or now.into.name != entity
            gone = set(rule.owned()) - after.derived_attributes(entity)
            for key, image in items.items():
                item = after.recognise(key, image)
                if item is None or item.entity.name != entity or key in touched:
                    continue
                keep = {*item.entity.schema.key_attributes, *item.entity.constants, *program.entities[entity].constants}
                keep.update(*(names for other, names in kept if other in image))
                names = [name for name in image if (name in gone and name not in keep) or (moved and name == guard)]
                if names:
                    yield f"{encode_key(key)}: {', '.join(names)} of the former rule {rule.name} still exists"

"""Deliberate defects of the engine, each a plausible shortcut. The simulation must catch every one of them.

Most replace one name that the engine looks up; where a defect is a change of a few words, these are changed in the
function's source. A mutant whose words are no longer there fails loudly: then the engine has changed, and it must too.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import projections
from projections.engine import (
    copies,
    embeds,
    groups,
    guards,
    indexes,
    ledger,
    plan,
    processor,
    publishing,
    rebuild,
    refresh,
    registry,
)
from projections.engine.store import AllOf, Below, Condition, Delete, Equal, Exists, Missing
from projections.errors import ConditionFailed
from projections.language.contribution import canonical_text
from projections.language.loader import load
from projections.language.rules import CopyRule
from projections.language.values import same
from projections.operations.backfill import pages
from projections.tools.simulation.application import OPERATIONS
from projections.tools.simulation.odds import Odds
from projections.tools.simulation.scene import Scene

__all__ = ["GUARDED", "MUTANTS", "Mutant", "rules_file"]

ALWAYS = AllOf(())
"""A condition that holds."""


@dataclass(frozen=True)
class Mutant:
    """A defect: `apply` is a context in which the engine has it. `rules` is a rule file that shows it soon.

    `base` takes a second safety away, and with it what the application would need it for: without the mutant, all still
    ends well. Healing puts right what most guards prevent, so the protocol is safe twice.
    """

    name: str
    rules: str
    base: Base
    odds: Mapping[str, Any]
    defect: Callable[[], Any]

    def scene(self) -> Scene:
        """Where it is to be caught."""
        odds = self.odds
        return Scene(
            load(rules_file(self.rules)).canonical(),
            self.base.without,
            lambda rng: replace(Odds.draw(rng), **odds),
        )

    def caught(self, most: int) -> int | None:
        """The number of histories until one goes wrong that goes right without the defect; None after `most`."""
        scene = self.scene()
        for seed in range(most):
            with self.apply():
                wrong = scene.play(seed).problems
            if wrong:
                with self.base.apply():
                    if not scene.play(seed).problems:
                        return seed + 1
        return None

    @contextmanager
    def apply(self) -> Iterator[None]:
        with self.base.apply(), self.defect():
            yield


@dataclass(frozen=True)
class Base:
    """What mutants are measured against, and what its application does not do."""

    without: frozenset[str] = frozenset()
    apply: Callable[[], Any] = nullcontext


GENTLE = frozenset(OPERATIONS) - {"put", "update", "delete", "expire"}
"""What a gentle application does not do."""

MUTANTS: list[Mutant] = []


def rules_file(name: str) -> Path:
    """One of our own rule files, or one that ships."""
    ours = Path(__file__).parent / "rules" / f"{name}.yaml"
    return ours if ours.exists() else Path(projections.__file__).parent / "rules" / f"{name}.yaml"


def mutant(
    rules: str, *, base: Base | None = None, **odds: Any
) -> Callable[[Callable[[], Iterator[None]]], Callable[[], Iterator[None]]]:
    def register(function: Callable[[], Iterator[None]]) -> Callable[[], Iterator[None]]:
        MUTANTS.append(Mutant(function.__name__, rules, base or Base(), odds, contextmanager(function)))
        return function

    return register


@contextmanager
def reworded(owner: Any, name: str, *changes: tuple[str, str]) -> Iterator[None]:
    """A function of a module or class, with some words of its source changed."""
    original = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(original))
    for before, after in changes:
        assert before in source, f"{name} no longer says: {before}"
        source = source.replace(before, after)
    module = inspect.getmodule(original)
    assert module is not None
    namespace = dict(vars(module))
    exec(compile(source, f"<mutant of {name}>", "exec"), namespace)
    with patch.object(owner, name, namespace[name]):
        yield


@contextmanager
def healing(judge: Callable[[str, Any, Any, Any], bool | None]) -> Iterator[None]:
    """Another judgement of what a record of a target asks for; None leaves it to the engine."""

    def needs_healing(guard: str, ours: Any, old: Any, new: Any) -> bool:
        names = tuple(ours)
        judged = judge(guard, names, old, new)
        return guards.needs_healing(guard, names, old, new) if judged is None else judged

    with (
        patch.object(plan, "needs_healing", needs_healing),
        patch.object(copies, "needs_healing", needs_healing),
        patch.object(embeds, "needs_healing", needs_healing),
    ):
        yield


@contextmanager
def unhealed() -> Iterator[None]:
    """Nothing heals but what appears or lost its guard. Under a gentle application all still ends well."""
    removed = copies.heals_of

    def judge(guard: str, ours: Any, old: Any, new: Any) -> bool | None:
        return False if old and new and guard in new else None

    def heals_of(program: Any, key: Any, old: Any, new: Any, sequence: str) -> Any:
        return [] if new is None else removed(program, key, old, new, sequence)

    with healing(judge), patch.object(plan, "heals_of", heals_of):
        yield


GUARDED = Base(GENTLE, unhealed)
FORGING = Base(GENTLE - {"forge", "clone"})


# Guards


@mutant("copies", base=GUARDED)
def copies_are_written_whatever_their_guard_says() -> Iterator[None]:
    with patch.object(copies, "older_or_foreign", lambda *_: ALWAYS):
        yield


@mutant("copies", base=GUARDED, abandon=0.1, faults=30)
def copies_are_deleted_whatever_version_their_guard_has() -> Iterator[None]:
    with patch.object(copies, "Below", lambda *_: ALWAYS):
        yield


@mutant("copies", base=GUARDED)
def copies_are_healed_without_a_condition() -> Iterator[None]:
    with patch.object(copies, "as_read", lambda *_: ALWAYS):
        yield


@mutant("aggregates", base=GUARDED)
def groups_are_published_whatever_the_guard_says() -> Iterator[None]:
    with patch.object(publishing, "older", lambda *_: ALWAYS):
        yield


@mutant("aggregates", base=GUARDED, freeze=0.1, faults=30, shards=3, invocations=4)
def targets_are_healed_without_a_condition() -> Iterator[None]:
    with patch.object(publishing, "as_read", lambda *_: ALWAYS):
        yield


@mutant("derived")
def an_empty_item_is_deleted_though_another_rule_contributes() -> Iterator[None]:
    def delete_empty(self: Any, rule: Any, key: Any, *_: Any) -> None:
        with suppress(ConditionFailed):
            self._store.write(Delete(key, Exists((self._store.schema(key.table).partition[0],))))

    with patch.object(publishing.Publisher, "_delete_empty", delete_empty):
        yield


@mutant("expiry", change=True, then="back")
def items_of_the_application_are_deleted_when_a_rule_that_makes_others_takes_back() -> Iterator[None]:
    with (
        reworded(publishing.Publisher, "_write_elsewhere", ("if not _all_are(entities, _made):", "if False:")),
        reworded(publishing.Publisher, "_delete_empty", ("if not _all_are(entities, _made):", "if False:")),
    ):
        yield


@mutant("index")
def index_attributes_are_written_without_conditions() -> Iterator[None]:
    with (
        patch.object(indexes, "Equal", lambda *_: ALWAYS),
        patch.object(indexes, "Missing", lambda *_: ALWAYS),
    ):
        yield


@mutant("index", base=GUARDED, freeze=0.1, faults=30)
def index_attributes_bring_items_back_to_life() -> Iterator[None]:
    with patch.object(indexes, "Exists", lambda *_: ALWAYS):
        yield


# The ledger


@contextmanager
def learning(learn: Callable[[ledger.Change, set[Any]], None]) -> Iterator[None]:
    """Something else to be learnt from a cancelled transaction: `learn` gets each change, and what it touched before."""
    original = ledger.Ledger._learn

    def instead(self: Any, cancelled: Any, roles: Any) -> None:
        changes = [(role, set(role.touched)) for role in roles if isinstance(role, ledger.Change)]
        original(self, cancelled, roles)
        for change, touched in changes:
            learn(change, touched)

    with patch.object(ledger.Ledger, "_learn", instead):
        yield


@mutant("aggregates")
def entries_are_committed_whatever_version_they_have() -> Iterator[None]:
    original = ledger._entry_condition

    def condition(change: ledger.Change) -> Condition:
        if change.known:
            return original(change)
        predicted = Equal(("contributions",), {"S": canonical_text(change.before)})
        return predicted if change.before else ledger.AnyOf((Missing(("pk",)), predicted))

    with patch.object(ledger, "_entry_condition", condition):
        yield


@mutant("aggregates")
def entries_are_committed_whatever_they_say() -> Iterator[None]:
    original = ledger._entry_condition

    def condition(change: ledger.Change) -> Condition:
        if change.known:
            return original(change)
        older = Below(("version",), {"S": change.version})
        return older if change.before else ledger.AnyOf((Missing(("pk",)), older))

    with patch.object(ledger, "_entry_condition", condition):
        yield


@mutant("aggregates")
def a_found_entry_is_overwritten_without_a_condition() -> Iterator[None]:
    original = ledger._entry_condition
    with patch.object(
        ledger, "_entry_condition", lambda change: Exists(("pk",)) if change.entry is not None else original(change)
    ):
        yield


@mutant("aggregates", abandon=0.1, faults=30)
def late_changes_are_applied() -> Iterator[None]:
    def learn(change: ledger.Change, touched: set[Any]) -> None:
        if change.entry is not None and change.entry.version > change.version:
            change.state = "pending"

    with learning(learn):
        yield


# Planning


@contextmanager
def planned(change: Callable[[Any], Any]) -> Iterator[None]:
    original = plan._changes

    def changes(*arguments: Any) -> Any:
        return [[one for one in wave if change(one)] for wave in original(*arguments)]

    with patch.object(plan, "_changes", changes):
        yield


@mutant("aggregates")
def changes_that_cancel_out_are_skipped() -> Iterator[None]:
    with planned(lambda one: one.before != one.after.contributions):
        yield


@mutant("aggregates", base=GUARDED, die=0.1, faults=30, batch=2)
def targets_between_the_first_and_the_last_are_neither_published_nor_found() -> Iterator[None]:
    def only(one: ledger.Change) -> bool:
        one.touched = plan._targets(one.before) | plan._targets(one.after.contributions)
        return True

    def learn(change: ledger.Change, touched: set[Any]) -> None:
        change.touched = touched

    with planned(only), patch.object(ledger, "_retracted", lambda *_: set()), learning(learn):
        yield


@mutant("expiry")
def changes_are_compacted_across_an_expiry() -> Iterator[None]:
    with reworded(
        plan, "_changes", ("if change is None or settle or left or change.settle or change.held:", "if change is None:")
    ):
        yield


@mutant("copies")
def a_copy_keeps_what_an_earlier_image_of_the_batch_had() -> Iterator[None]:
    original = CopyRule.owned
    with patch.object(CopyRule, "owned", lambda self, *images: original(self, *images[-1:])):
        yield


# Publishing


@mutant("aggregates")
def duplicates_are_not_published() -> Iterator[None]:
    original = processor._Batch._publish

    def publish(self: Any, changes: Any, publisher: Any) -> None:
        applied = [change for change in changes if change.state == "applied"]
        if applied:
            original(self, applied, publisher)

    with patch.object(processor._Batch, "_publish", publish):
        yield


@mutant("aggregates", base=GUARDED)
def the_group_is_read_before_the_guard_when_healing() -> Iterator[None]:
    read = "read_groups(self._store, [target], self._generations)[target]"
    with reworded(
        publishing.Publisher,
        "_heal_one",
        ("item = self._store.get(key)", f"early, item = {read}, self._store.get(key)"),
        (f"group = {read}", "group = early"),
    ):
        yield


@mutant("derived")
def zeros_create_items() -> Iterator[None]:
    with reworded(publishing.Publisher, "_write", ("elif n == 0:", "elif False:")):
        yield


@mutant("derived")
def constants_are_not_healed() -> Iterator[None]:
    with reworded(publishing.Publisher, "_write", ("if makes else {", "if makes and item is None else {")):
        yield


# Rules that change


@mutant("index", change=True, then="back")
def rules_that_were_tried_are_not_noted() -> Iterator[None]:
    with patch.object(registry.Registry, "admit", registry.Registry.standing):
        yield


@mutant("index", change=True, then="back")
def rules_that_were_tried_are_forgotten_without_a_backfill() -> Iterator[None]:
    after = registry.Registry._after

    def forgetful(self: Any, now: registry.Standing) -> registry.Standing:
        rules = {name: one for name, one in now.rules.items() if one.state != registry.TRIED}
        return after(self, replace(now, rules=rules))

    with patch.object(registry.Registry, "_after", forgetful):
        yield


@mutant("index", change=True, then="on")
def what_is_being_removed_is_forgotten_when_rules_change_again() -> Iterator[None]:
    after = registry.Registry._after

    def forgetful(self: Any, now: registry.Standing) -> registry.Standing:
        again = now.program != self._program.fingerprint
        rules = {name: one for name, one in now.rules.items() if not again or one.state != registry.RETIRING}
        return after(self, replace(now, rules=rules))

    with patch.object(registry.Registry, "_after", forgetful):
        yield


@mutant("shards", change=True, then="back", writes=60, burst=0.0, batch=1)
def items_are_made_where_another_version_of_a_rule_recorded() -> Iterator[None]:
    with reworded(publishing.Publisher, "_write", ("if not rule.into.at(key):", "if False:")):
        yield


# Healing


@mutant("social")
def nothing_heals_when_it_appears() -> Iterator[None]:
    with healing(lambda guard, ours, old, new: False if old is None else None):
        yield


@mutant("social")
def nothing_heals_when_it_loses_its_guard() -> Iterator[None]:
    with healing(lambda guard, ours, old, new: False if old and new and guard not in new else None):
        yield


@mutant("aggregates")
def values_changed_under_the_same_guard_do_not_heal() -> Iterator[None]:
    with healing(lambda guard, ours, old, new: False if old and new and same(old.get(guard), new.get(guard)) else None):
        yield


@mutant("aggregates")
def what_the_application_puts_back_does_not_heal() -> Iterator[None]:
    with healing(
        lambda guard, ours, old, new: (
            False if old and new and guard in old and guard in new and not same(old[guard], new[guard]) else None
        )
    ):
        yield


@mutant("aggregates")
def a_guard_from_the_future_does_not_heal() -> Iterator[None]:
    with healing(
        lambda guard, ours, old, new: (
            False if old and new and guards.at_of(old.get(guard)) < guards.at_of(new.get(guard)) else None
        )
    ):
        yield


@mutant("shards")
def what_the_application_removes_is_not_made_again() -> Iterator[None]:
    original = plan._heals
    with patch.object(plan, "_heals", lambda p, r, old, new: [] if new is None else original(p, r, old, new)):
        yield


@mutant("copies")
def a_copy_that_changed_hands_is_left_to_the_one_who_has_it() -> Iterator[None]:
    with reworded(copies.Copier, "heal", ('{*heal.sources, by_of(read)} - {""}', '{by_of(read)} - {""}')):
        yield


@mutant("copies", base=FORGING)
def a_guard_ahead_of_its_source_is_believed() -> Iterator[None]:
    with patch.object(copies.Copier, "_look_ahead", lambda *_: None):
        yield


# Embeds


@mutant("embeds", base=GUARDED, abandon=0.1, faults=30)
def children_are_pushed_to_whatever_their_guard_says() -> Iterator[None]:
    with patch.object(embeds, "older_or_foreign", lambda *_: ALWAYS):
        yield


@mutant("embeds", base=GUARDED, freeze=0.1, faults=30, shards=3, invocations=4)
def what_is_pulled_is_written_without_a_condition() -> Iterator[None]:
    with patch.object(embeds, "as_read", lambda *_: ALWAYS):
        yield


@mutant("embeds", base=GUARDED, freeze=0.1, faults=30, shards=3, invocations=4)
def no_fence_is_raised_before_a_push() -> Iterator[None]:
    with patch.object(embeds.Embedder, "raise_fence", lambda *_: None):
        yield


@mutant("embeds", base=GUARDED, lag=0.9, page=100, working=0.95, batch=1, burst=0.0)
def an_index_is_looked_through_only_once() -> Iterator[None]:
    original = embeds.Embedder.following

    def following(self: Any, push: Any, more: Any) -> Any:
        return None if more is None else original(self, push, more)

    with patch.object(embeds.Embedder, "following", following):
        yield


@mutant("embeds", page=1)
def a_push_ends_with_its_first_page() -> Iterator[None]:
    original = embeds.Embedder.following
    with patch.object(embeds.Embedder, "following", lambda self, push, more: original(self, push, None)):
        yield


@mutant("embeds", base=GUARDED)
def nothing_is_pulled_when_a_child_changes_its_parent() -> Iterator[None]:
    original = plan.needs_pull

    def needs_pull(rule: Any, guard: str, old: Any, new: Any) -> bool:
        return old is None and original(rule, guard, old, new)

    with patch.object(plan, "needs_pull", needs_pull):
        yield


# The answer


@mutant("social")
def failures_are_not_reported() -> Iterator[None]:
    with patch.object(processor._Batch, "_fail", lambda *_: None):
        yield


@mutant("social")
def the_highest_failure_is_reported() -> Iterator[None]:
    with patch.object(processor, "min", max, create=True):
        yield


# The registry


@mutant("aggregates", change=True, warm=10)
def functions_with_old_rules_go_on() -> Iterator[None]:
    with patch.object(registry.Standing, "outdated", lambda *_: False):
        yield


# Refreshes


@mutant("aggregates", base=GUARDED, refreshes=15, freeze=0.1, faults=30, shards=3, invocations=4)
def a_refresh_reads_the_item_before_its_entry() -> Iterator[None]:
    entries = "entries = self._store.get_many([entry_key(source) for source in sources.values()])"
    with reworded(
        refresh.Refresher,
        "_changes",
        (entries, f"early = self._store.get_many(list(images))\n    {entries}"),
        ("now = self._store.get_many(list(again))", "now = early"),
    ):
        yield


@mutant("aggregates", refreshes=5, freeze=0.1, faults=30)
def a_refresh_commits_whatever_the_entry_says_by_then() -> Iterator[None]:
    original = ledger._entry_condition

    def condition(change: ledger.Change) -> Condition:
        return ALWAYS if change.known and not change.version else original(change)

    with patch.object(ledger, "_entry_condition", condition):
        yield


# Rebuilds


@mutant("aggregates", rebuilds=3, damage=1.0)
def entries_move_without_their_generation() -> Iterator[None]:
    with patch.object(groups.Generations, "stamped", lambda self, contributions: contributions):
        yield


@mutant("aggregates", rebuilds=3, freeze=0.1, faults=30)
def a_group_is_rebuilt_and_the_old_one_not_closed() -> Iterator[None]:
    with patch.object(ledger, "_OPEN", ALWAYS):
        yield


@mutant("expiry", rebuilds=5, freeze=0.1, faults=30, shards=3, invocations=4)
def what_settles_while_a_group_is_closed_is_lost() -> Iterator[None]:
    with reworded(rebuild, "_close_shard", ("condition=AllOf(tuple(unchanged))", "condition=Missing((CLOSED,))")):
        yield


# Backfills


@mutant("aggregates", base=GUARDED, change=True)
def what_gone_items_contributed_under_old_rules_stays() -> Iterator[None]:
    with reworded(pages._Work, "do", ("return self.refresher.sources(", "return (lambda *_: None)(")):
        yield


@mutant("aggregates", change=True)
def what_is_filled_is_not_published() -> Iterator[None]:
    with patch.object(pages._Work, "_publish", lambda *_: None):
        yield


@mutant("derived", change=True)
def what_is_filled_creates_no_items() -> Iterator[None]:
    with patch.object(pages._Work, "_create", lambda *_: None):
        yield


@mutant("shards", base=GUARDED, change=True)
def what_retired_rules_wrote_stays() -> Iterator[None]:
    with patch.object(pages._Work, "_retire", lambda *_: None):
        yield


@mutant("copies", base=GUARDED, change=True)
def copies_that_nobody_makes_any_more_stay() -> Iterator[None]:
    with patch.object(copies.Copier, "orphans", lambda *_: []):
        yield

"""Deliberate defects of the engine, each a plausible shortcut. The simulation must catch every one of them.

Each replaces a method or function that the engine looks up by name: a condition, a predicate or a step. If that name is no
longer there, the mutant fails loudly: the engine has changed, and so must the mutant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import projections
from projections.access import ranks
from projections.engine import (
    application,
    attempts,
    budget,
    copier,
    copies,
    embed_lists,
    embeds,
    entry_refresh,
    goals,
    groups,
    guards,
    indexes,
    ledger,
    ledger_items,
    plan,
    publishing,
    rebuild,
    records,
    refresh,
    registry,
    releases,
    stages,
    targets,
    transactions,
    value_counters,
)
from projections.engine.attempts import Attempt
from projections.engine.changes import Change, targets_of
from projections.engine.rejections import sequence_order
from projections.engine.report import Report
from projections.engine.stages import Aggregation, Batch
from projections.engine.store import AllOf, AnyOf, Below, Condition, Equal, Exists, ItemKey, Missing
from projections.engine.transactions import Transactions
from projections.errors import BadInput, Occupied
from projections.language import arithmetic, attribute_sources, entity, templates, values
from projections.language import ranks as compiled_ranks
from projections.language import rules as compiled
from projections.language.computed import ComputeRule
from projections.language.contribution import canonical_text
from projections.language.loader import load
from projections.language.patterns.tree import Compares, Fits, Named
from projections.language.ranks import RankRule, Scale
from projections.language.rules import AggregateRule, CopyRule, IndexRule, LedgerRule, Rule
from projections.language.values import Resolver, Value, same
from projections.operations import fenced
from projections.operations.backfill import backfill, pages, retirement
from projections.operations.verify import scope
from projections.testing.simulation.application import OPERATIONS
from projections.testing.simulation.history import Setup

__all__ = ["GUARDED", "MUTANTS", "Mutant", "rules_file"]

ALWAYS = AllOf(())
"""A condition that holds."""

NEVER = AnyOf(())
"""A condition that does not hold."""


@dataclass(frozen=True)
class Mutant:
    """A defect: `apply` is a context in which the engine has it. `rules` is a rule file that shows it soon.

    `base` removes a second protection, and the application's writes that need it, so that histories without the mutant pass.
    Most mutants of guards need a base, because healing corrects the values that the guard protects.
    """

    name: str
    rules: str
    base: Base
    fixed: Mapping[str, Any]
    defect: Callable[[], Any]
    seed: int = 0
    """The seed of the first history that goes wrong."""
    rare: tuple[Any, ...] = ()
    """If so few histories show it that only the long search finds them (`make mutants`): a test that fails with it, as the
    name of its module, its own name and its arguments.
    """
    crashes: bool = False
    """Whether the engine raises TypeError with it. Otherwise an exception is a mistake in the mutant itself."""

    def setup(self) -> Setup:
        """Return the setup in which it is caught."""
        return Setup(load(rules_file(self.rules)).canonical(), self.base.without, self.fixed)

    def caught(self, most: int, first: int | None = None) -> int | None:
        """The number of histories until one goes wrong that goes right without the defect; None after `most`.

        The first of them is that of the mutant's `seed`, unless another is named.
        """
        setup = self.setup()
        first = self.seed if first is None else first
        for seed in range(first, first + most):
            with self.apply():
                wrong = self._goes_wrong(setup, seed)
            if wrong:
                with self.base.apply():
                    if not setup.play(seed).problems:
                        return seed - first + 1
        return None

    def _goes_wrong(self, setup: Setup, seed: int) -> bool:
        try:
            return bool(setup.play(seed).problems)
        except TypeError:
            if not self.crashes:
                raise
            return True

    @contextmanager
    def apply(self) -> Iterator[None]:
        with self.base.apply(), self.defect():
            yield


@dataclass(frozen=True)
class Base:
    """What mutants are compared with: an engine with less protection, and an application `without` some operations."""

    without: frozenset[str] = frozenset()
    apply: Callable[[], Any] = nullcontext


GENTLE = frozenset(OPERATIONS) - {"put", "update", "delete", "expire"}
"""The operations that a gentle application does not have."""


def rules_file(name: str) -> Path:
    """One of our own rule files, or one that ships."""
    ours = Path(__file__).parent / "rules" / f"{name}.yaml"
    return ours if ours.exists() else Path(projections.__file__).parent / "rules" / f"{name}.yaml"


def defect(
    rules: str,
    *changes: tuple[Any, str, Any] | Callable[[], Any],
    base: Base | None = None,
    seed: int = 0,
    rare: tuple[Any, ...] = (),
    crashes: bool = False,
    **fixed: Any,
) -> Mutant:
    """Return a mutant that makes `changes`: each is owner, name and replacement, or a context."""

    @contextmanager
    def apply() -> Iterator[None]:
        with ExitStack() as stack:
            for change in changes:
                stack.enter_context(patch.object(*change) if isinstance(change, tuple) else change())
            yield

    return Mutant("", rules, base or Base(), fixed, apply, seed, rare, crashes)


def mutant(rules: str, owner: Any = None, attribute: str = "", **options: Any) -> Callable[[Any], Mutant]:
    """Make a mutant of a function, which replaces `attribute` of `owner` and gets the original first; or of a context."""

    def made(function: Any) -> Mutant:
        @contextmanager
        def replaced() -> Iterator[None]:
            original = getattr(owner, attribute)
            with patch.object(owner, attribute, lambda *given, **named: function(original, *given, **named)):
                yield

        return defect(rules, replaced if attribute else contextmanager(function), **options)

    return made


@contextmanager
def healing(judge: Callable[[str, Any, Any], bool | None]) -> Iterator[None]:
    """Replaces the decision whether a record of a target requires a heal, by guard and images; None leaves it as it is."""

    def needs_healing(read: guards.Guards, rule: str, key: Any, ours: Any, old: Any, new: Any) -> Any:
        judged = judge(read.name(rule), old, new)
        return guards.needs_healing(read, rule, key, ours, old, new) if judged is None else judged or None

    with (
        patch.object(plan, "needs_healing", needs_healing),
        patch.object(copies, "needs_healing", needs_healing),
        patch.object(embeds, "needs_healing", needs_healing),
    ):
        yield


@contextmanager
def unhealed() -> Iterator[None]:
    """Only items that appear or lose their guard are healed. Histories with a gentle application still pass."""
    removed = copies.heals_of

    def judge(guard: str, old: Any, new: Any) -> bool | None:
        return False if old and new and guard in new else None

    def heals_of(program: Any, read: Any, key: Any, old: Any, new: Any, sequence: str) -> Any:
        return [] if new is None else removed(program, read, key, old, new, sequence)

    with healing(judge), patch.object(plan, "heals_of", heals_of):
        yield


GUARDED = Base(GENTLE, unhealed)


FROZEN: Mapping[str, Any] = {"freeze": 0.1, "faults": 30, "shards": 3, "invocations": 4}
"""Functions that stop for a while, beside others that work on the same items."""


def only(*operations: str) -> Base:
    """An application that does only these things, so that what they lead to is frequent."""
    return Base(frozenset(OPERATIONS) - {"put", *operations})


# Guards


copies_are_written_without_a_guard_condition = defect(
    "copies",
    (guards.Guards, "older_or_foreign", lambda *_: ALWAYS),
    (copier.Copier, "_is_written", lambda *_: False),
    base=GUARDED,
    seed=12,
)


@mutant("copies", copier.Copier, "_is_retracted", base=GUARDED, abandon=0.1, faults=30, seed=12)
def copies_are_deleted_without_a_version_check(
    _: Any, self: copier.Copier, copy: Any, target: Any, item: Any, guard: Any
) -> bool:
    return self.is_removed(copy.rule, target, item, guard, copy.owned)


copies_are_healed_without_a_condition = defect(
    "copies", (guards.Guards, "as_read", lambda *_: ALWAYS), base=GUARDED, seed=16
)
groups_are_published_without_a_guard_condition = defect(
    "aggregates", (guards.Guards, "older", lambda *_: ALWAYS), base=GUARDED, **FROZEN, seed=71
)
targets_are_healed_without_a_condition = defect(
    "aggregates", (guards.Guards, "as_read", lambda *_: ALWAYS), base=GUARDED, **FROZEN, seed=1
)
item_is_deleted_while_another_rule_contributes = defect(
    "derived", (targets.TargetWriter, "_contributes", lambda *_: False), seed=4
)
index_attributes_are_written_without_conditions = defect("index", (indexes, "as_read", lambda *_: ALWAYS), seed=8)
computed_attributes_are_written_without_conditions = defect("compute", (indexes, "as_read", lambda *_: ALWAYS), seed=5)
once_sets_a_value_again = defect(
    "compute", (ComputeRule, "without", lambda self, item: dict.fromkeys(self.owned())), seed=5
)


@mutant("compute", indexes, "index_update", seed=43)
def once_is_not_conditional_on_absence(update: Any, items: Any, write: Any) -> Any:
    return update(items, write._replace(reads={n: v for n, v in write.reads.items() if n not in write.values}))


@mutant("compute", indexes, "differing", seed=14)
def computed_attribute_without_a_value_stays(_: Any, image: Any, wanted: Any) -> Any:
    wrong = values.differing(image, wanted)
    return {name: value for name, value in wrong.items() if value is not None}


@mutant("compute", plan, "_indexes", seed=8)
def computed_attributes_follow_only_new_items(found: Any, program: Any, recognised: Any, reject: Any) -> Any:
    return found(program, [one for one in recognised if one[1] is None], reject)


released_items_lose_what_was_set_once = defect("compute", (ComputeRule, "removes", True), seed=70)
quotients_have_the_digits_of_floats = defect("expressions", (arithmetic, "_QUOTIENT", Context(prec=17)), seed=11)
null_is_a_value = defect(
    "expressions", (entity, "lookup", lambda image, path, stored=False: values.lookup(image, path, True)), seed=4
)
null_is_copied_with_all_attributes = defect("claims", (compiled, "valued", dict), seed=2)
template_of_an_attribute_with_wrong_input_stops_the_rule = defect(
    "braces", (attribute_sources, "BadInput", KeyError), seed=7
)


@mutant("braces", seed=96)
def wrong_value_in_an_expression_comes_before_a_missing_one() -> Iterator[None]:
    class Other(BadInput):
        """Nothing raises it."""

    with patch.object(templates, "BadInput", Other):
        yield


missing_value_removes_the_attributes_of_all_indexes = defect(
    "independent", (IndexRule, "_complete", lambda *_: ()), seed=8
)
index_attributes_recreate_deleted_items = defect(
    "index", (application.ApplicationItems, "exists", lambda *_: ALWAYS), base=GUARDED, freeze=0.1, faults=30, seed=240
)


# The ledger


@contextmanager
def learning(learn: Callable[[Attempt, set[Any]], None]) -> Iterator[None]:
    """Something else to be learnt from a cancelled transaction: `learn` gets each attempt, and what it touched before."""
    original = Transactions._learn

    def instead(self: Any, cancelled: Any, roles: Any) -> bool:
        attempts = [(role, set(role.touched)) for role in roles if isinstance(role, Attempt)]
        changed = original(self, cancelled, roles)
        for attempt, touched in attempts:
            learn(attempt, touched)
        return changed

    with patch.object(Transactions, "_learn", instead):
        yield


@contextmanager
def entry_conditions(condition: Callable[[Attempt, Callable[[Attempt], Condition]], Condition]) -> Iterator[None]:
    """Another condition on the entries that are written, from the attempt and the engine's own condition."""
    original = transactions.entry_condition
    with patch.object(transactions, "entry_condition", lambda attempt: condition(attempt, original)):
        yield


@mutant("aggregates", abandon=0.1, freeze=0.1, faults=30, batch=1, writes=60, seed=20)
def entries_are_committed_without_a_version_condition() -> Iterator[None]:
    def condition(attempt: Attempt, original: Callable[[Attempt], Condition]) -> Condition:
        if attempt.known:
            return original(attempt)
        predicted = Equal(("contributions",), {"S": canonical_text(attempt.before)})
        return predicted if attempt.before else AnyOf((Missing(("pk",)), predicted))

    with entry_conditions(condition):
        yield


@mutant("aggregates", seed=5)
def entries_are_committed_without_the_predicted_contributions() -> Iterator[None]:
    def condition(attempt: Attempt, original: Callable[[Attempt], Condition]) -> Condition:
        if attempt.known:
            return original(attempt)
        older = Below(("version",), {"S": attempt.change.version})
        return older if attempt.before else AnyOf((Missing(("pk",)), older))

    with entry_conditions(condition):
        yield


a_found_entry_is_overwritten_without_a_condition = defect(
    "aggregates",
    lambda: entry_conditions(lambda one, original: Exists(("pk",)) if one.entry is not None else original(one)),
    seed=142,
)


@mutant("aggregates", abandon=0.1, faults=30, seed=74)
def late_changes_are_applied() -> Iterator[None]:
    def learn(attempt: Attempt, touched: set[Any]) -> None:
        if attempt.entry is not None and attempt.entry.version > attempt.change.version:
            attempt.state = "pending"

    with learning(learn):
        yield


# Planning


@contextmanager
def planned(change: Callable[[Change], Change | None]) -> Iterator[None]:
    """Other changes than the planned ones; None for a change that is left out."""
    original = plan._changes

    def changes(*arguments: Any) -> Any:
        return [[one for one in map(change, some) if one is not None] for some in original(*arguments)]

    with patch.object(plan, "_changes", changes):
        yield


changes_that_cancel_out_are_skipped = defect(
    "aggregates",
    lambda: planned(lambda one: one if one.before != one.after.contributions else None),
    batch=10,
    burst=0.9,
    die=0.1,
    faults=30,
    seed=40,
)


@mutant(
    "aggregates",
    base=GUARDED,
    die=0.1,
    faults=30,
    batch=2,
    writes=60,
    seed=4797,
    rare=("tests.engine.test_refresh", "test_nothing_that_is_counted_is_published_by_a_scan_but_what_is_taken_back_is"),
)
def intermediate_targets_of_a_batch_are_not_published() -> Iterator[None]:
    def only(one: Change) -> Change:
        return one._replace(touched=targets_of(one.before) | targets_of(one.after.contributions))

    def learn(attempt: Attempt, touched: set[Any]) -> None:
        attempt.touched = touched

    def nothing(*_: Any) -> set[Any]:
        return set()

    with (
        planned(only),
        patch.object(attempts, "retracted", nothing),
        patch.object(ledger, "retracted", nothing),
        learning(learn),
    ):
        yield


changes_are_compacted_across_an_expiry = defect("expiry", (plan, "_is_kept", lambda change: False), seed=48)


@mutant("copies", batch=10, burst=0.9, writes=60, seed=646)
def copy_keeps_attributes_of_an_earlier_image_of_the_batch() -> Iterator[None]:
    original = CopyRule.owned
    with patch.object(CopyRule, "owned", lambda self, *images: original(self, *images[-1:])):
        yield


@mutant(
    "copies",
    rare=(
        "tests.engine.test_guards",
        "test_the_next_change_removes_from_a_copy_what_its_source_lost_while_the_stream_was_off",
        ItemKey("main", "NOTE#n", "OF#1"),
    ),
)
def who_wrote_attributes_is_lost_when_a_copy_is_written_unread() -> Iterator[None]:
    original = guards.Guards.older_or_foreign
    with patch.object(guards.Guards, "older_or_foreign", lambda *given: original(*given[:5])):
        yield


# Publishing


@mutant("aggregates", Aggregation, "publish", seed=16)
def duplicates_are_not_published(original: Any, self: Any, results: Any) -> Any:
    return original(self, [result for result in results if result.state == "applied"])


@mutant("aggregates", base=GUARDED, seed=68)
def the_group_is_read_before_the_guard_when_healing() -> Iterator[None]:
    def read_many(self: publishing.Publisher, keys: Any) -> Any:
        found = groups.read_groups(self._store, list(keys), self._generations)
        return self._writer.read_many(keys.values()), found

    def read_one(self: publishing.Publisher, target: Any, key: Any) -> Any:
        found = groups.read_groups(self._store, [target], self._generations)[target]
        return self._writer.read(key), found

    with (
        patch.object(publishing.Publisher, "_read_many", read_many),
        patch.object(publishing.Publisher, "_read_one", read_one),
    ):
        yield


zeros_create_items = defect(
    "derived", (targets.TargetWriter, "_may_create", lambda self, rule, group, members: rule.creates), seed=3
)
constants_are_not_healed = defect(
    "derived", (targets.TargetWriter, "_constants", lambda *_: {}), base=only("change_constant"), writes=60
)


# Rules that change


provisional_rules_are_not_recorded = defect(
    "index", (registry.Registry, "admit", registry.Registry.read_or_create), change=True, then="rolled back", seed=104
)


@mutant("index", registry.Registry, "_after", change=True, then="rolled back", seed=8)
def provisional_rules_are_forgotten_without_a_backfill(
    after: Any, self: Any, now: registry.RegistrySnapshot
) -> registry.RegistrySnapshot:
    rules = {name: one for name, one in now.rules.items() if one.state != registry.PROVISIONAL}
    return after(self, now._replace(rules=rules))


@mutant("index", registry.Registry, "_after", change=True, then="changed again", seed=42)
def retiring_rules_are_forgotten_when_rules_change_again(
    after: Any, self: Any, now: registry.RegistrySnapshot
) -> registry.RegistrySnapshot:
    again = now.program != self._program.fingerprint
    rules = {name: one for name, one in now.rules.items() if not again or one.state != registry.RETIRING}
    return after(self, now._replace(rules=rules))


items_are_created_under_targets_of_another_version = defect(
    "shards",
    (targets.TargetWriter, "_is_into", lambda *_: True),
    change=True,
    then="rolled back",
    writes=60,
    burst=0.0,
    batch=1,
    defer=0.0,
    seed=137,
)


# Healing


items_that_appear_are_not_healed = defect(
    "social", lambda: healing(lambda guard, old, new: False if old is None else None)
)
items_that_lose_their_guard_are_not_healed = defect(
    "social", lambda: healing(lambda guard, old, new: False if old and new and guard not in new else None), seed=17
)
values_changed_under_the_same_guard_do_not_heal = defect(
    "aggregates",
    lambda: healing(lambda guard, old, new: False if old and new and same(old.get(guard), new.get(guard)) else None),
    seed=57,
)
items_that_are_put_back_are_not_healed = defect(
    "aggregates",
    lambda: healing(
        lambda guard, old, new: (
            False if old and new and guard in old and guard in new and not same(old[guard], new[guard]) else None
        )
    ),
    seed=183,
)


@mutant("shards", base=only("delete_created"), writes=60, seed=442)
def removed_derived_items_are_not_recreated() -> Iterator[None]:
    original = plan._heals
    with patch.object(plan, "_heals", lambda p, g, r, old, new: [] if new is None else original(p, g, r, old, new)):
        yield


@mutant("copies", copier.Copier, "_sources", defer_copies=0.0, seed=311)
def copy_is_not_compared_with_its_earlier_source(
    original: Any, self: copier.Copier, heal: Any, waiting: Any, guard: Any
) -> set[str]:
    return original(self, heal._replace(sources={}), waiting, guard)


# Embeds


pushes_write_children_without_a_guard_condition = defect(
    "embeds", (guards.Guards, "older_or_foreign", lambda *_: ALWAYS), base=GUARDED, abandon=0.1, faults=30, seed=60
)
pulls_write_without_a_condition = defect(
    "embeds", (guards.Guards, "as_read", lambda *_: ALWAYS), base=GUARDED, **FROZEN, seed=73
)
no_fence_is_raised_before_a_push = defect(
    "embeds", (embeds.Embedder, "raise_fence", lambda *_: None), base=GUARDED, **FROZEN, seed=471
)


@mutant(
    "embeds",
    embeds.Embedder,
    "following",
    base=GUARDED,
    lag=0.9,
    page=100,
    any_thread=0.95,
    batch=1,
    burst=0.0,
    seed=2326,
    rare=("tests.engine.test_embeds", "test_each_child_is_written_once_by_a_push_that_looks_through_an_index_twice"),
)
def index_is_queried_only_once(original: Any, self: Any, push: Any, more: Any) -> Any:
    return None if more is None else original(self, push, more)


@mutant("embeds", page=1, seed=432)
def a_push_ends_with_its_first_page() -> Iterator[None]:
    original = embeds.Embedder.following
    with patch.object(embeds.Embedder, "following", lambda self, push, more: original(self, push, None)):
        yield


@mutant(
    "embeds",
    plan,
    "needs_pull",
    base=GUARDED,
    seed=1652,
    rare=(
        "tests.engine.test_embeds",
        "test_a_changed_reference_pulls_from_the_other_parent_even_if_it_flips_within_a_batch",
    ),
)
def changed_reference_does_not_pull(original: Any, rule: Any, read: Any, old: Any, new: Any) -> Any:
    return original(rule, read, old, new) if old is None else None


# Embeds of several parents

STEADY = Base(frozenset(OPERATIONS) - {"put", "update"}, unhealed)
"""An application that deletes nothing, so that children and parents meet."""


@mutant("lists", embed_lists.ListEmbedder, "_update", base=STEADY, writes=60, **FROZEN, seed=1)
def children_are_read_after_their_parents(
    original: Any, self: Any, rule: Any, child: Any, values: Any, why: Any
) -> Any:
    return original(self, rule, self._read(child.key, rule) or child, values, why)


lists_are_written_without_a_guard_condition = defect(
    "lists", (guards.Guards, "as_read", lambda *_: ALWAYS), base=STEADY, writes=60, **FROZEN, seed=1
)
references_in_another_order_do_not_pull = defect(
    "lists", (embeds, "_same_references", lambda *_: True), base=GUARDED, seed=13
)
added_references_get_no_link = defect(
    "lists", (embed_lists.ListEmbedder, "_link", lambda *_: None), base=STEADY, writes=60, **FROZEN, seed=19
)
parents_do_not_push_lists = defect(
    "lists",
    (embed_lists.ListEmbedder, "push_page", lambda *_: embed_lists.ListPage(None, [])),
    base=STEADY,
    writes=60,
    **FROZEN,
    seed=20,
)


# The answer


failures_are_not_reported = defect("social", (Report, "fail", lambda *_: None))
the_highest_failure_is_reported = defect(
    "social", (Report, "_first_failure", lambda self: max(self._failures, key=sequence_order, default=None)), seed=25
)


# The registry


functions_with_replaced_rules_continue = defect(
    "aggregates", (registry.RegistrySnapshot, "outdated", lambda *_: False), change=True, warm=10, seed=1
)


# Refreshes


@mutant("aggregates", base=GUARDED, refreshes=15, **FROZEN, seed=59)
def a_refresh_reads_the_item_before_its_entry() -> Iterator[None]:
    original = entry_refresh.EntryRefresher._entries
    early: dict[Any, Any] = {}

    def entries(self: entry_refresh.EntryRefresher, keys: Any) -> Any:
        early[self] = self._store.get_many(list(keys))
        return original(self, keys)

    with (
        patch.object(entry_refresh.EntryRefresher, "_entries", entries),
        patch.object(entry_refresh.EntryRefresher, "_items", lambda self, keys: early[self]),
    ):
        yield


refresh_commits_without_an_entry_condition = defect(
    "aggregates",
    lambda: entry_conditions(lambda one, original: ALWAYS if one.change.is_refresh else original(one)),
    refreshes=5,
    freeze=0.1,
    faults=30,
    seed=10,
)


# Conditions


@mutant("conditions", indexes, "as_read", race=0.5, seed=32)
def values_that_a_case_compares_with_may_change_before_the_write(
    original: Any, name: str, value: Value | None
) -> Condition:
    return ALWAYS if name in ("end", "lessons") else original(name, value)


@mutant("conditions", Compares, "fits", seed=3)
def a_missing_value_fits_a_comparison(original: Any, self: Compares, resolve: Resolver = lambda name: None) -> Fits:
    missing = any(isinstance(one, Named) and resolve(one.name) is None for _, one in self.bounds)
    return (lambda tag, data: True) if missing else original(self, resolve)


@mutant("conditions", Compares, "fits", seed=4)
def numbers_are_compared_as_text(original: Any, self: Compares, resolve: Resolver = lambda name: None) -> Fits:
    def as_text(name: str) -> Value | None:
        value = resolve(name)
        return value if value is None or "N" not in value else {"S": value["N"]}

    test = original(self, as_text)
    return lambda tag, data: test("S" if tag == "N" else tag, data)


# Rebuilds


entries_move_without_their_generation = defect(
    "aggregates",
    (groups.Generations, "stamped", lambda self, contributions: contributions),
    rebuilds=3,
    damage=1.0,
    seed=3,
)
rebuild_does_not_close_the_old_generation = defect(
    "aggregates", (transactions, "_OPEN", ALWAYS), rebuilds=3, freeze=0.1, faults=30, seed=3
)
totals_settled_during_a_close_are_lost = defect(
    "expiry", (rebuild, "_unchanged", lambda _: Missing((rebuild.CLOSED,))), rebuilds=5, **FROZEN, seed=298
)


# Backfills


entries_of_deleted_items_are_not_refreshed = defect(
    "aggregates", (pages._Work, "_refresh_sources", lambda *_: None), base=GUARDED, change=True, seed=135
)
backfill_does_not_publish = defect("aggregates", (pages._Work, "_publish", lambda *_: None), change=True, seed=3)
backfill_creates_no_items = defect("derived", (pages._Work, "_create", lambda *_: None), change=True, seed=3)
values_of_retired_rules_stay = defect(
    "shards", (pages._Work, "_retire", lambda *_: None), base=GUARDED, change=True, seed=43
)
links_of_removed_rules_stay = defect("lists", (pages._Work, "_unlink", lambda *_: None), change=True, seed=20)
copies_without_a_source_stay = defect(
    "copies", (copier.CopyRefresher, "orphans", lambda *_: []), base=GUARDED, change=True, seed=4
)


# The application's items: kinds


@contextmanager
def kindless(owner: Any, name: str) -> Iterator[None]:
    """A function that makes updates without the condition that the item is of the entity."""
    original = getattr(owner, name)

    def instead(*arguments: Any, **options: Any) -> Any:
        with (
            patch.object(application, "kind_condition", lambda *_: ALWAYS),
            patch.object(application, "kind_as_read", lambda *_: []),
        ):
            return original(*arguments, **options)

    with patch.object(owner, name, instead):
        yield


@contextmanager
def uncached() -> Iterator[None]:
    """Conditions are compiled anew."""
    application._static.cache_clear()
    try:
        yield
    finally:
        application._static.cache_clear()


publish_does_not_check_the_kind = defect(
    "kinds", lambda: kindless(targets.TargetWriter, "unread"), change_kind=True, race=0.2, seed=11
)
writes_to_read_items_do_not_check_the_kind = defect(
    "kinds", (application, "kind_as_read", lambda *_: []), change_kind=True, race=0.2
)
alternatives_in_match_are_not_in_the_condition = defect(
    "kinds", uncached, (application, "_either", lambda *_: ALWAYS), change_kind=True, seed=72
)
ranges_of_numbers_in_match_are_not_in_the_condition = defect(
    "kinds", uncached, (application, "_bound", lambda *_: ALWAYS), change_kind=True, seed=67
)
comparisons_with_text_in_match_are_not_in_the_condition = defect(
    "conditions", uncached, (application, "_bound", lambda *_: ALWAYS), change_kind=True, race=0.2, seed=220
)


@mutant("conditions", application, "as_read", change_kind=True, race=0.5, seed=21)
def values_that_match_compares_with_may_change_before_the_write(
    original: Any, name: str, value: Value | None
) -> Condition:
    return ALWAYS if name == "least" else original(name, value)


existence_in_match_is_not_in_the_condition = defect(
    "kinds", uncached, (application, "_presence", lambda *_: ALWAYS), change_kind=True, seed=187
)
lists_of_values_in_match_are_not_in_the_condition = defect(
    "kinds", uncached, (application, "_one_of", lambda *_: ALWAYS), change_kind=True, race=0.2, seed=11
)
prefixes_in_match_are_not_in_the_condition = defect(
    "kinds", uncached, (application, "_beginning", lambda *_: ALWAYS), change_kind=True, seed=20
)
excluded_values_in_match_are_not_in_the_condition = defect(
    "kinds",
    uncached,
    (application, "_anything_but", lambda *_: [ALWAYS]),
    defer_copies=0.0,
    change_kind=True,
    race=0.5,
    seed=73,
)
index_attributes_are_written_without_a_kind_check = defect(
    "kinds",
    lambda: kindless(indexes, "index_update"),
    base=only("update", "change_kind"),
    change_kind=True,
    race=0.5,
    writes=60,
    seed=1,
)
children_are_written_without_a_kind_check = defect(
    "kinds",
    lambda: kindless(embeds.Embedder, "_updates"),
    lambda: kindless(embeds.Embedder, "_update_as_read"),
    change_kind=True,
    race=0.2,
    seed=67,
)


# The application's items: keys that are occupied


a_copy_overwrites_an_item_of_another_kind = defect(
    "adoption", (copier.Copier, "_require_kind", lambda *_: None), occupy=True, seed=11
)


@contextmanager
def overwriting(judge: Callable[[Any], bool]) -> Iterator[None]:
    """Rules that are judged so write to items of another kind."""
    original = targets.TargetWriter._may_write

    def may_write(self: targets.TargetWriter, rule: Any, key: Any, item: Any) -> bool:
        return judge(rule) or original(self, rule, key, item)

    with patch.object(targets.TargetWriter, "_may_write", may_write):
        yield


a_claimed_copy_overwrites_an_item_of_another_kind = defect(
    "adoption", lambda: overwriting(lambda rule: rule.claimed), occupy=True, seed=3
)
a_derived_item_overwrites_an_item_of_another_kind = defect(
    "adoption", lambda: overwriting(lambda rule: not rule.claimed), occupy=True, seed=1
)


@mutant("adoption", Report, "refuse", occupy=True, seed=9)
def an_occupied_key_is_not_reported(refuse: Any, self: Any, sequences: Any, error: Any, **names: Any) -> None:
    if not isinstance(error, Occupied):
        refuse(self, sequences, error, **names)


a_key_that_becomes_free_creates_nothing = defect(
    "adoption",
    (plan, "freed_targets", lambda *_: []),
    (plan, "freed_by", lambda *_: []),
    base=only("occupy", "vacate"),
    occupy=True,
    writes=60,
    seed=59,
)
waiting_source_is_not_noted = defect(
    "adoption",
    (copier.Copier, "_note_waiting", lambda *_: None),
    base=only("occupy", "vacate"),
    occupy=True,
    writes=60,
    seed=20,
)


# The application's items: what rules created


@mutant("adoption", application.ApplicationItems, "_update", adopt=True, seed=3)
def items_that_were_adopted_are_marked_as_created(
    original: Any, self: application.ApplicationItems, key: Any, values: Any, conditions: Any, why: Any
) -> Any:
    return original(self, key, {**values, self.guards.mark: self.guards.mark_of(key)}, conditions, why)


@contextmanager
def deleting_adopted(name: str) -> Iterator[None]:
    """Items of an entity are deleted though no rule created them."""
    original = application.ApplicationItems.may_delete

    def may_delete(self: application.ApplicationItems, entity: Any, key: Any, item: Any, known: Any = ()) -> bool:
        if entity.name == name:
            return not self.foreign(entity, key, item, known)
        return original(self, entity, key, item, known)

    with patch.object(application.ApplicationItems, "may_delete", may_delete):
        yield


@mutant("adoption", copier.Copier, "_may_delete", adopt=True, seed=71)
def a_copy_that_was_adopted_is_deleted(
    _: Any, self: copier.Copier, rule: Any, target: Any, item: Any, known: Any = ()
) -> bool:
    return not self._items.foreign(rule.into, target, item, frozenset(known))


a_claimed_copy_that_was_adopted_is_deleted = defect(
    "adoption",
    lambda: deleting_adopted("Handle"),
    base=only("update", "delete", "adopt"),
    adopt=True,
    writes=60,
    seed=3,
)
a_derived_item_that_was_adopted_is_deleted = defect(
    "adoption", lambda: deleting_adopted("Team"), adopt=True, race=0.2, seed=3
)
an_item_with_attributes_of_the_application_is_deleted = defect(
    "derived",
    (application.ApplicationItems, "may_delete", lambda self, entity, key, item: self.created(key, item)),
    seed=173,
)
attributes_added_before_a_deletion_are_not_restored = defect(
    "derived", (application.ApplicationItems, "_restore", lambda *_: None), race=0.2, seed=3
)


# The application's items: such as left their entity


an_item_that_leaves_its_entity_keeps_values_of_rules = defect(
    "kinds", (releases, "_shows", lambda *_: False), change_kind=True, seed=159
)
an_item_that_leaves_its_entity_keeps_guards = defect(
    "kinds", (releases.Releaser, "_writes", lambda *_: True), change_kind=True, seed=85
)


@mutant("kinds", releases, "_shows", change_kind=True, seed=72)
def an_item_that_leaves_its_entity_loses_values_of_the_application(
    _: Any, value: Any, published: Any, held: Any
) -> bool:
    return any(guard is None or guard in held for guard, _ in published)


children_of_a_parent_that_is_gone_get_no_guard = defect(
    "keep",
    (embeds.Embedder, "_without_value", lambda *_: {}),
    rare=(
        "tests.engine.test_embeds",
        "test_a_late_page_of_an_older_push_gives_no_child_of_a_deleted_parent_an_older_value",
    ),
)


values_equal_to_the_rules_are_removed_from_an_item_that_was_put_whole = defect(
    "kinds",
    (guards.Guards, "valid", lambda *_: True),
    rare=(
        "tests.engine.test_no_harm",
        "test_an_item_that_was_put_whole_over_another_kind_keeps_every_value",
        "delivery",
    ),
)


attributes_of_one_index_are_released_one_by_one = defect(
    "kinds", (releases, "_complete", lambda names, *_: list(names)), seed=336
)
last_values_are_not_kept = defect(
    "keep",
    (plan, "last_offer", lambda *_: ""),
    base=Base(GENTLE),
    refreshes=0,
    discard=0.0,
    change=False,
    writes=60,
    seed=11,
)


# Guards are input


@contextmanager
def unchecked() -> Iterator[None]:
    """The checksums of guards are not compared."""
    with patch.object(guards.Guards, "_secret_of", lambda *_: 0):
        yield


edited_guards_are_accepted = defect("derived", unchecked, seed=3616)
cloned_marks_are_accepted = defect(
    "adoption", (guards.Guards, "_is_mark_of", lambda *_: True), adopt=True, clones=True, seed=497
)
cloned_guards_are_accepted = defect(
    "derived",
    unchecked,
    (guards.Guards, "_is_of", lambda *_: True),
    (guards.Guards, "_invalid", lambda *_: NEVER),
    clones=True,
    seed=517,
)
source_of_a_guard_is_not_checked = defect(
    "adoption", unchecked, (guards.Guards, "_names_item", lambda *_: True), malform=True, seed=67
)
version_of_a_guard_is_not_checked = defect(
    "kinds", unchecked, (guards, "_is_version", lambda _: True), malform=True, seed=89, crashes=True
)
count_of_a_guard_is_not_checked = defect(
    "kinds", unchecked, (guards, "_is_count", lambda _: True), malform=True, seed=374
)


# The adversary


guards_are_signed_with_a_secret_that_can_be_guessed = defect(
    "derived",
    (guards.Identity, "read", lambda item: guards.Identity(item["ledger"]["S"], (b"guess",))),
    adversary=0.3,
    seed=253,
)


FORGED = "tests.engine.test_guards"


@contextmanager
def unsigned(forget: Callable[[str, Any, guards.Guard], tuple[str, Any, guards.Guard]]) -> Iterator[None]:
    """What `forget` removes is neither in the signature of a guard nor in its digest; that of a mark has another rule."""
    signature, digest = guards.Guards._signature, guards._digest

    def sign(self: Any, secret: int, rule: str, key: Any, guard: guards.Guard = guards._UNSIGNED) -> str:
        return signature(self, secret, *(forget(rule, key, guard) if rule else (rule, key, guard)))

    def plain(ledger: str, rule: str, key: Any) -> str:
        return digest(ledger, *forget(rule, key, guards.Guard(""))[:2])

    with patch.object(guards.Guards, "_signature", sign), patch.object(guards, "_digest", plain):
        yield


signatures_of_guards_are_not_compared = defect("derived", unchecked, adversary=0.3, seed=20)
a_guard_is_valid_for_every_rule = defect(
    "aggregates",
    lambda: unsigned(lambda rule, key, guard: ("rule", key, guard)),
    adversary=0.2,
    rare=(FORGED, "test_a_forged_guard_is_healed", "with_the_guard_of_another_rule"),
)
a_guard_is_valid_on_every_item = defect(
    "aggregates",
    lambda: unsigned(lambda rule, key, guard: (rule, ItemKey("main", "all"), guard)),
    adversary=0.2,
    rare=(FORGED, "test_a_forged_guard_is_healed", "with_the_guard_of_another_item"),
)
the_version_of_a_guard_is_not_signed = defect(
    "derived", lambda: unsigned(lambda rule, key, guard: (rule, key, guard._replace(at=""))), adversary=0.2, seed=346
)
the_source_of_a_guard_is_not_signed = defect(
    "embeds",
    lambda: unsigned(lambda rule, key, guard: (rule, key, guard._replace(by=""))),
    adversary=0.2,
    rare=(FORGED, "test_an_edited_field_makes_a_guard_invalid", "by"),
)
the_count_of_a_guard_is_not_signed = defect(
    "derived",
    lambda: unsigned(lambda rule, key, guard: (rule, key, guard._replace(n=None))),
    adversary=0.2,
    rare=(FORGED, "test_an_edited_field_makes_a_guard_invalid", "n"),
)


@mutant(
    "adoption",
    guards.Guards,
    "_signature",
    adopt=True,
    clones=True,
    rare=(FORGED, "test_the_mark_of_another_item_licenses_no_deletion"),
)
def a_mark_is_valid_on_every_item(
    signature: Any, self: Any, secret: int, rule: str, key: Any, guard: guards.Guard = guards._UNSIGNED
) -> str:
    return signature(self, secret, rule, key if rule else ItemKey("main", "all"), guard)


marks_that_others_write_stay = defect(
    "adoption", (stages.ItemWrites, "_unmark", lambda *_: None), adversary=0.5, adopt=True, seed=20
)


@mutant("adoption", guards.Guards, "unproven", adversary=0.8, adopt=True, seed=11)
def a_mark_licenses_the_loss_of_what_no_rule_wrote(
    unproven: Any, self: guards.Guards, rule: Any, key: Any, item: Any, known: Any = ()
) -> set[str]:
    return set() if self.marked(key, item) else unproven(self, rule, key, item, known)


every_copy_of_all_attributes_wrote_what_its_item_has = defect(
    "adoption", (guards.Guards, "unproven", lambda *_: set()), adversary=0.8, adopt=True, seed=11
)
a_guard_that_is_repeated_is_not_healed = defect(
    "aggregates",
    lambda: healing(lambda guard, old, new: False if old and new and guard in old and guard in new else None),
    adversary=0.8,
    seed=14,
)


@mutant("aggregates", guards.Guards, "replaced", adversary=0.8, seed=31)
def guards_of_another_ledger_are_left(
    replaced: Any, self: guards.Guards, rule: str, key: Any, old: Any, new: Any
) -> Any:
    return None if self.other_ledger(rule, key, new) else replaced(self, rule, key, old, new)


ROTATION = (
    "tests.engine.test_guards",
    "test_a_new_secret_signs_all_guards_again_and_the_former_one_is_accepted_until_then",
)


@mutant("derived", rare=ROTATION)
def guards_with_a_former_secret_are_not_signed_again() -> Iterator[None]:
    secret_of = guards.Guards._secret_of
    with patch.object(guards.Guards, "_secret_of", lambda *given: None if secret_of(*given) is None else 0):
        yield


marks_with_a_former_secret_are_not_signed_again = defect(
    "derived", (guards.Guards, "renewed_mark", lambda *_: {}), rare=ROTATION
)


@mutant("derived", guards.Identity, "read", rare=ROTATION)
def only_the_new_secret_is_accepted(read: Any, item: Any) -> guards.Identity:
    return guards.Identity(item["ledger"]["S"], read(item).secrets[:1])


# What processes remember


lost_generation_is_used = defect(
    "aggregates",
    (Transactions, "_remembered", lambda *_: False),
    (groups, "_is_lost", lambda _: False),
    restore=True,
    reuse=0.9,
    rebuilds=3,
    seed=507,
)


@mutant("aggregates", outage=True, seed=458)
def new_stream_has_the_label_of_the_old_one() -> Iterator[None]:
    table_and_label = records._table
    with patch.object(records, "_table", lambda *given: (table_and_label(*given)[0], "")):
        yield


operators_write_without_a_lease = defect(
    "aggregates",
    (fenced.Fenced, "transact", lambda self, writes: self._store.transact(writes)),
    (fenced.Fenced, "_check_lease", lambda *_: None),
    outlive=0.9,
    change=True,
    freeze=0.1,
    faults=30,
    rare=("tests.operations.test_leases", "test_every_write_to_the_ledger_checks_an_open_lease"),
)
rules_settle_before_they_are_active = defect(
    "expiry",
    (registry.RegistrySnapshot, "settles", lambda *_: True),
    base=only("update", "expire"),
    expire_provisional=True,
    change=True,
    then="rolled back",
    writes=60,
    rare=("tests.engine.test_expiry_by_state", "test_a_rule_that_is_not_in_the_registry_does_not_settle"),
)
discarded_expiry_is_not_settled = defect(
    "expiry",
    (goals.Goals, "_first_unsettled", lambda *_: None),
    base=only("update", "expire"),
    discard=0.3,
    faults=30,
    writes=60,
    seed=1,
)
redrive_settles_an_expiry_again = defect(
    "expiry",
    (goals, "_is_settled", lambda *_: False),
    base=only("update", "expire"),
    discard=0.3,
    faults=30,
    writes=60,
    seed=1,
)
entry_older_than_a_redriven_expiry_is_kept = defect(
    "expiry",
    (goals._Expiry, "ended", lambda _, entry: entry is None),
    base=only("update", "expire"),
    discard=0.3,
    faults=30,
    writes=60,
    seed=1,
)
late_record_releases_an_item_again = defect(
    "social",
    (releases.Releaser, "_held", lambda _, release, image: release.guards.keys() & image.keys()),
    (releases.Releaser, "_adopted_again", lambda *_: set()),
    defer_copies=0.0,
    seed=1010366,
)
copy_without_match_attributes_is_not_healed = defect(
    "copies", (refresh.Refresher, "_without_kind", lambda *_: []), seed=1004499
)
redrive_does_not_release_items_of_another_kind = defect(
    "adoption", (refresh.Refresher, "_release", lambda *_: None), seed=1008837
)
retirement_removes_the_guard_of_an_item_that_left_its_entity = defect(
    "chains", (retirement.Past, "_writes_at", lambda *_: False), seed=1007116
)
retracted_claim_removes_the_guard_of_an_item_that_left_its_entity = defect(
    "claims", (targets.TargetWriter, "_knows_published", lambda *_: True), defer=0.0, seed=1010762
)


@mutant("claims", seed=1008126)
def guard_with_a_negative_count_is_invalid() -> Iterator[None]:
    original = guards._is_count
    with patch.object(guards, "_is_count", lambda number: original(number) and not number.startswith("-")):
        yield


claim_retracted_after_the_group_was_read_is_published = defect(
    "claims", (publishing, "contributed", lambda rule, group, members: group.totals.n > 0), defer=0.0, seed=1001487
)
claim_published_late_on_an_item_of_the_application_stays = defect(
    "learning", (plan, "_is_adopted", lambda *_: False), seed=5184
)


# Several sources


@mutant("sources", backfill.Backfill, "_tables", fill=True)
def backfill_of_a_rule_scans_the_table_of_its_first_source(_: Any, self: backfill.Backfill, rules: Any) -> list[str]:
    chosen = [self._program.rules[name] for name in rules or self._program.rules]
    return [name for name in self._program.tables if any(rule.source.table == name for rule in chosen)]


@mutant("sources", Rule, "fits", seed=9)
def condition_of_another_source_is_ignored(original: Any, self: Rule, resolve: Any, refused: Any) -> bool:
    return self.source is not self.sources[0] or original(self, resolve, refused)


@mutant("sources", seed=8)
def elements_of_the_first_source_are_those_of_all() -> Iterator[None]:
    original = LedgerRule.contributions

    def contributions(self: LedgerRule, item: Any, refused: Any = None) -> Any:
        one = replace(self, each=None) if self.source is not self.sources[0] else self
        return original(one, item, refused)

    with patch.object(AggregateRule, "contributions", contributions):
        yield


@mutant(
    "sources",
    scope.Scope,
    "__init__",
    rare=("tests.engine.test_sources", "test_verify_finds_a_lost_entry_of_any_source", "Video"),
)
def contributions_of_the_first_source_are_verified_only(original: Any, self: scope.Scope, *arguments: Any) -> None:
    original(self, *arguments)
    rules = [self.program.rules[name] for name in self.recorded]
    self.recorded_from = frozenset(rule.source.name for rule in rules)


# Ranks


elements_with_the_same_digits_count_once = defect("rank", (compiled_ranks, "merge", lambda *_: None), seed=42)


@mutant("rank", Scale, "parts", seed=10)
def scores_with_too_many_digits_are_cut(original: Any, self: Scale, score: Decimal) -> tuple[str, ...]:
    return original(self, score % 10 ** (self.digits - self.decimals))


ranks_are_read_from_groups_that_were_replaced = defect("rank", (ranks, "CLOSED", "never"), seed=16)
boards_get_a_guard = defect("rank", (RankRule, "writes_items", True))


# Disabled rules


@mutant("disabled", registry.RegistrySnapshot, "state")
def disabled_rule_publishes(_: Any, self: registry.RegistrySnapshot, rule: Any) -> Any:
    known = self.rules.get(rule.name)
    return known.state if known is not None and known.fingerprint == rule.fingerprint else registry.FILLING


@mutant(
    "disabled",
    retirement,
    "_owned",
    rare=(
        "tests.operations.test_disabled_rules",
        "test_values_stay_while_a_rule_is_disabled_and_are_right_after_it_is_enabled",
        "  seen: {from: Like, copy: {into: Seen, attributes: all}}\n",
        True,
    ),
)
def backfill_removes_what_a_disabled_copy_copied(_: Any, item: Any, today: Any) -> Any:
    if item is None:
        return frozenset()
    copier = today.copy_rule_into.get(item.entity.name)
    if copier is not None and copier.copies_all:
        return None
    return today.derived_attributes(item.entity.name) | item.entity.constants.keys()


# Value counters


value_that_exists_is_counted_again = defect("counted", (value_counters, "_ABSENT", ALWAYS), seed=12)


@mutant("counted", transactions, "_count", seed=3)
def retraction_leaves_its_value_counters(original: Any, attempt: Attempt, target: Any, piece: Any, into: Any) -> None:
    original(attempt, target, replace(piece, counted={v: n for v, n in piece.counted.items() if n > 0}), into)


@mutant("counted", seed=38)
def each_attempt_of_a_transaction_counts_a_new_value() -> Iterator[None]:
    merged: dict[int, int] = {}
    count, write = transactions._count, value_counters.ValueCounters.write

    def counting(attempt: Attempt, target: Any, piece: Any, into: Any) -> None:
        count(attempt, target, piece, into)
        for counter in into.values():
            merged[id(counter)] = merged.get(id(counter), 0) + (
                counter.target == target and counter.value in piece.counted
            )

    def writing(self: Any, counter: Any) -> Any:
        written, edge = write(self, counter)
        return written, edge * max(merged.pop(id(counter), 1), 1)

    with patch.object(transactions, "_count", counting), patch.object(value_counters.ValueCounters, "write", writing):
        yield


@mutant("counted", value_counters.ValueCounters, "write", seed=3)
def last_contribution_with_a_value_is_not_an_edge(original: Any, self: Any, counter: Any) -> Any:
    written, edge = original(self, counter)
    return written, max(edge, 0)


@mutant("counted", compiled, "_counts")
def values_that_counts_does_not_list_are_left_out(original: Any, counters: Any, number: int) -> Any:
    shown = original(counters, number)["M"]
    return {"M": {key: count for key, count in shown.items() if key != compiled.REST}}


@mutant("counted_keep", transactions, "_count", seed=8)
def values_that_settle_leave_their_counters(
    original: Any, attempt: Attempt, target: Any, piece: Any, into: Any
) -> None:
    left = {value: number - piece.kept.get(value, 0) for value, number in piece.counted.items()}
    original(attempt, target, replace(piece, counted=left, kept={}), into)


rebuilt_group_forgets_the_values_that_settled = defect(
    "counted_keep", (rebuild, "_carry_counters", lambda *arguments: None), seed=2154
)


@mutant("values", AggregateRule, "_hold", seed=3)
def measures_of_one_order_show_only_the_first_of_them(
    original: Any, self: AggregateRule, measure: Any, resolve: Any, position: int, held: Any
) -> None:
    before = dict(held)
    original(self, measure, resolve, position, held)
    held.update(before)


ties_compare_escaped_keys = defect("separators", (ledger_items, "source_order", lambda source: source), seed=51)


# Changes that are left to the worker


changes_that_are_left_are_forgotten = defect("counted", (Aggregation, "_defer", lambda *_: None), defer=0.5, queue=True)
copies_that_are_left_are_forgotten = defect(
    "copies", (Batch, "leave", lambda *_: None), defer_copies=0.5, queue=True, seed=10
)


@mutant("copies", defer_copies=0.9, queue=True, seed=1026)
def copies_stay_that_an_item_has_lost_when_the_others_are_left() -> Iterator[None]:
    without = property(lambda copy: copy._replace(copies={}, others=frozenset()))
    with patch.object(copies.CopyWrite, "removals", without):
        yield


@mutant(
    "aggregates",
    goals.Goals,
    "change",
    defer=0.5,
    queue=True,
    seed=63,
    abandon=0.3,
    freeze=0.1,
    faults=30,
    invocations=4,
)
def refreshes_do_not_record_the_version(
    original: Any, self: goals.Goals, *arguments: Any, version: str = "", **options: Any
) -> Any:
    return original(self, *arguments, **options)


changes_under_rules_that_keep_what_expired_are_left = defect(
    "expiry", (budget, "_keeps", lambda *_: False), defer=0.5, queue=True, seed=373
)


MUTANTS = [replace(found, name=name) for name, found in list(globals().items()) if isinstance(found, Mutant)]

"""The reasons why the record of a target makes a rule check it again.

Each function calls a predicate of the engine, and only adds the reason (tests/tools/test_explain.py).
"""

from __future__ import annotations

from collections.abc import Iterable

from projections.engine.copies import freed_by, heals_of
from projections.engine.embeds import needs_pull, reference_of
from projections.engine.guards import Guards, needs_healing
from projections.engine.plan import emptied, freed_targets, release_of
from projections.engine.records import Record
from projections.engine.releases import Release
from projections.engine.store import Image
from projections.inspect.explain.words import encoded_words, key_words, version_words
from projections.language.embeds import EmbedRule
from projections.language.entity import Item
from projections.language.keys import ItemKey, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, LedgerRule, Rule
from projections.language.values import changed_attributes, same

__all__ = ["copy_reason", "freed_reason", "group_reason", "healing_reason", "pull_reason", "release_reason", "released"]


def healing_reason(
    guards: Guards, rule: str, key: ItemKey, ours: Iterable[str], old: Image | None, new: Image | None
) -> str | None:
    """Return the reason for `guards.needs_healing`, or None."""
    ours, guard = tuple(ours), guards.name(rule)
    if new is None or not needs_healing(guards, rule, key, ours, old, new):
        return None
    if old is None:
        return "it was created"
    before, after = guards.read(rule, key, old), guards.read(rule, key, new)
    if after is None:
        return f"its guard {guard} is invalid" if guard in new else f"its guard {guard} was removed"
    if same(old.get(guard), new.get(guard)):
        changed = ", ".join(name for name in sorted(ours) if not same(old.get(name), new.get(name)))
        return f"{changed} changed, but the guard {guard} did not, so the rule did not write it"
    if before is not None and before.at >= after.at:
        return (
            f"the guard {guard} did not advance: {version_words(before.at)}, then {version_words(after.at)}; "
            "an old state of the item was written back"
        )
    known = {*ours, guard}
    foreign = sorted(set(changed_attributes(old, new)) - known)
    return f"the guard {guard} changed together with {', '.join(foreign[:5])}: the whole item was written back"


def group_reason(
    program: Program, guards: Guards, rule: LedgerRule, old: Item | None, new: Item | None, *, removed: bool = True
) -> str | None:
    """Return why the group of a target is published again, as `plan` decides, or None.

    `removed` is false if the item exists although `new` is None: then it belongs to no entity.
    """
    before = old.image if old is not None and old.entity is rule.into else None
    after = new.image if new is not None and new.entity is rule.into else None
    if before is None and after is None:
        return None
    if after is None:
        return f"{_gone(rule, new, removed)}, and the rule decides whether it exists" if rule.creates else None
    ours = rule.owned(before, after)
    assert new is not None
    reason = healing_reason(guards, rule.name, new.key, ours, before, after)
    if reason is None and before is not None and emptied(guards, rule, new.key, before, after):
        reason = f"{_lost(before, after)}, and nothing contributes to it: it may have existed for these attributes only"
    return reason


def copy_reason(
    program: Program,
    guards: Guards,
    rule: CopyRule,
    key: ItemKey,
    old: Item | None,
    new: Item | None,
    *,
    removed: bool = True,
) -> str | None:
    """Return why a copy is compared with its source, as `copies.heals_of` decides, or None."""
    if all(heal.rule is not rule for heal in heals_of(program, guards, key, old, new, "")):
        return None
    before = old.image if old is not None and old.entity is rule.into else None
    after = new.image if new is not None and new.entity is rule.into else None
    if after is None:
        return f"{_gone(rule, new, removed)}, and its source decides whether it exists"
    reason = healing_reason(guards, rule.name, key, rule.owned(before, after), before, after)
    if reason is not None:
        return reason
    named = [guard.by for image in (before, after) if (guard := guards.read(rule.name, key, image)) is not None]
    if len(set(filter(None, named))) > 1:
        return f"its owner changed from {encoded_words(named[0])} to {encoded_words(named[1])}"
    held = guards.read(rule.name, key, after)
    if before is not None and held is not None and held.n == 0:
        return f"{_lost(before, after)}, and it has no source: it may have existed for these attributes only"
    return "the item was not a copy before"


def freed_reason(program: Program, rule: Rule, record: Record, old: Item | None, new: Item | None) -> str | None:
    """Return why a rule may create its item now, as `copies.freed_by` and `plan.freed_targets` decide, or None."""
    if rule.name in program.guarded_copies:
        freed = any(heal.rule is rule for heal in freed_by(program, record, old, new))
    else:
        freed = (rule.name, encode_key(record.key)) in freed_targets(program, record, old, new)
    if not freed:
        return None
    if record.new is None:
        return "an item of another kind under this key was removed"
    return (
        f"the item under this key was of another kind and is {_article(new.entity.name if new is not None else '')} now"
    )


def released(program: Program, release: Release) -> list[Rule]:
    """Return the rules whose attributes a release removes."""
    return [program.rules[name] for name in release.rules]


def release_reason(
    program: Program, guards: Guards, rule: Rule, record: Record, old: Item | None, new: Item | None
) -> str | None:
    """Return why a rule's attributes are removed from an item, as `plan.release_of` decides, or None."""
    release = release_of(program, guards, record, old, new)
    if release is None or rule not in released(program, release):
        return None
    return f"it is no longer {_article(release.entity.name)}"


def _gone(rule: Rule, new: Item | None, removed: bool) -> str:
    there = new is not None or not removed
    return f"it is no longer {_article(rule.into.name)}" if there else "it was removed"


def _lost(before: Image, after: Image) -> str:
    return f"it lost {', '.join(sorted(before.keys() - after.keys())[:5])}"


def _article(name: str) -> str:
    if not name:
        return "of no entity"
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"


def pull_reason(rule: EmbedRule, guards: Guards, old: Item | None, new: Item | None) -> str | None:
    """Return why a child reads its parent, as `embeds.needs_pull` decides, or None."""
    if new is None or not needs_pull(rule, guards, old, new):
        return None
    if old is None:
        return "it was created"
    parent = reference_of(rule, new)[0]
    if (former := reference_of(rule, old)[0]) != parent:
        return f"its reference changed from {_named(former)} to {_named(parent)}"
    guard = guards.name(rule.name)
    held = guards.read(rule.name, new.key, new.image)
    if guard in new.image and held is None:
        return f"its guard {guard} is invalid"
    if held is not None and (parent is None or held.by != encode_key(parent)):
        return f"it references {_named(parent)}, its guard {guard} names {encoded_words(held.by) or 'no parent'}"
    if parent is None:
        return "it references no parent, but has embedded attributes"
    moved = [name for name in rule.children.partition if not same(old.image.get(name), new.image.get(name))]
    if moved:
        return f"{', '.join(moved)}, by which its parent finds it, changed"
    kind = {name.split(".", 1)[0] for name in rule.into.match_names}
    changed = sorted(name for name in kind if not same(old.image.get(name), new.image.get(name)))
    if changed:
        return f"{', '.join(changed)}, by which its entity is recognised, changed"
    return healing_reason(guards, rule.name, new.key, rule.owned(), old.image, new.image)


def _named(key: ItemKey | None) -> str:
    return "no parent" if key is None else key_words(key)

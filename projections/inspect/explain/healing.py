"""Why the record of a target makes a rule check it again, in words. The engine's predicates return why, as `Healing`."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from projections.engine.copies import freed_by, heals_of
from projections.engine.embed_lists import parents_of
from projections.engine.embeds import needs_pull, reference_of
from projections.engine.guards import Guards, Healing
from projections.engine.plan import freed_targets, target_healing
from projections.engine.records import Record
from projections.engine.store import Image
from projections.inspect.explain.words import encoded_words, key_words, version_words
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import ItemKey
from projections.language.program import Program
from projections.language.rules import CopyRule, LedgerRule, Rule
from projections.language.syntax import an
from projections.language.values import changed_attributes, same

__all__ = ["an", "freed_reason", "healing_reason", "pull_reason"]


def healing_reason(
    program: Program, guards: Guards, rule: Rule, record: Record, old: Item | None, new: Item | None
) -> str:
    """Return why a rule publishes to the item again, or compares its copy with the source; empty if it does not."""
    before = old.image if old is not None and old.entity is rule.into else None
    after = new.image if new is not None and new.entity is rule.into else None
    why: Healing | None = None
    if isinstance(rule, LedgerRule) and not before is after is None:
        why = target_healing(guards, rule, record.key, before, after)
    elif isinstance(rule, CopyRule):
        why = next(
            (heal.why for heal in heals_of(program, guards, record.key, old, new, "") if heal.rule is rule), None
        )
    if why is None:
        return ""
    if why == "gone":
        decides = "the rule" if rule.recorded else "its source"
        return f"{_gone(rule, record)}, and {decides} decides whether it exists"
    return _words(why, guards, rule, record.key, before or {}, after or {})


def _gone(rule: Rule, record: Record) -> str:
    return "it was removed" if record.new is None else f"it is no longer {an(rule.into.name)}"


def _words(why: Healing, guards: Guards, rule: Rule, key: ItemKey, old: Image, new: Image) -> str:
    guard, ours = guards.name(rule.name), rule.owned(old, new)
    before, after = guards.read(rule.name, key, old), guards.read(rule.name, key, new)
    match why:
        case "created":
            return "it was created"
        case "guard invalid":
            return f"its guard {guard} is invalid"
        case "guard removed":
            return f"its guard {guard} was removed"
        case "values changed":
            changed = ", ".join(_changed(ours, old, new))
            return f"{changed} changed, but the guard {guard} did not, so the rule did not write it"
        case "guard not advanced" if before is not None and after is not None:
            return (
                f"the guard {guard} did not advance: {version_words(before.at)}, then {version_words(after.at)}; "
                "an old state of the item was written back"
            )
        case "put back":
            foreign = sorted(set(changed_attributes(old, new)) - {*ours, guard})
            return f"the guard {guard} changed together with {', '.join(foreign[:5])}: the whole item was written back"
        case "emptied":
            nothing = "nothing contributes to it" if rule.recorded else "it has no source"
            lost = ", ".join(sorted(old.keys() - new.keys())[:5])
            return f"it lost {lost}, and {nothing}: it may have existed for these attributes only"
        case "owner changed" if before is not None and after is not None:
            return f"its owner changed from {encoded_words(before.by)} to {encoded_words(after.by)}"
        case "taken over":
            return "the item was not a copy before"
    raise NotImplementedError(why)


def _changed(names: Iterable[str], old: Image, new: Image) -> list[str]:
    return sorted(name for name in names if not same(old.get(name), new.get(name)))


def pull_reason(rule: EmbedRule, guards: Guards, old: Item | None, new: Item) -> str:
    """Return why a child reads its parent; empty if it does not."""
    why = needs_pull(rule, guards, old, new)
    if why is None and isinstance(rule, ListEmbedRule) and parents_of(rule, old).keys() - parents_of(rule, new).keys():
        why = "reference changed"  # it has nothing to remove, but its links have to go
    before, after = old.image if old is not None else {}, new.image
    match why:
        case None:
            return ""
        case "reference changed" if isinstance(rule, ListEmbedRule):
            return f"{' or '.join(rule.read_by(new) or [rule.references_name])} changed"
        case "reference changed":
            return f"its reference changed from {_parent(rule, old)} to {_parent(rule, new)}"
        case "other parent":
            guard = guards.read(rule.name, new.key, after)
            named = encoded_words(guard.by) if guard is not None else ""
            name = guards.name(rule.name)
            return f"it references {_parent(rule, new)}, its guard {name} names {named or 'no parent'}"
        case "no parent":
            if isinstance(rule, ListEmbedRule):
                return f"it has no valid {rule.references_name}, but has {rule.list_name} or the guard of the rule"
            return "it references no parent, but has embedded attributes"
        case "index key changed":
            names = [name for name in rule.children.partition if not same(before.get(name), after.get(name))]
            return f"{', '.join(names)}, by which its parent finds it, changed"
        case "kind changed":
            names = _changed(rule.into.match_attributes, before, after)
            return f"{', '.join(names)}, by which its entity is recognised, changed"
    return _words(why, guards, rule, new.key, before, after)


def _parent(rule: EmbedRule, child: Item | None) -> str:
    parent = reference_of(rule, child)[0] if child is not None else None
    return "no parent" if parent is None else key_words(parent)


def freed_reason(program: Program, rule: Rule, record: Record, old: Item | None, new: Item | None) -> str:
    """Return why a rule may create its item now; empty if it may not."""
    copies = (heal.rule.name for heal in freed_by(program, record, old, new))
    groups = (name for name, _ in freed_targets(program, record, old, new))
    if rule.name not in chain(copies, groups):
        return ""
    if record.new is None:
        return "an item of another kind under this key was removed"
    return f"the item under this key was of another kind and is {an(new.entity.name) if new else 'of no entity'} now"

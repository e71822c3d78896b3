"""What rules keep on an item, each value beside what the ledger, the source or the parent says it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projections.engine.copies import copies_of
from projections.engine.embeds import reference_of
from projections.engine.groups import Group, read_members
from projections.engine.ledger_items import LEDGER, fence_key, members_key
from projections.engine.publishing import creates
from projections.engine.registry import FILLING, SHADOW
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput
from projections.language.embeds import EmbedRule
from projections.language.keys import encode_key
from projections.language.rules import AggregateRule, CopyRule, IndexRule, LedgerRule, Member
from projections.tools.explain.facts import Attribute, Derived
from projections.tools.explain.matching import verdict
from projections.tools.explain.readings import Readings

__all__ = ["derived"]

SOURCES = 5
"""Contributing sources that are told of by name."""


def derived(read: Readings) -> tuple[Derived, ...]:
    """By rule, in the order of the file."""
    found: dict[str, Derived] = {rule.name: _from_group(read, rule) for rule in read.onto}
    if read.item is not None:
        name, program = read.item.entity.name, read.program
        copy = program.copy_rule_into.get(name)
        if copy is not None:
            found[copy.name] = _from_source(read, copy)
        found |= {rule.name: _from_parent(read, rule) for rule in program.embeds_into.get(name, ())}
        found |= {rule.name: _from_itself(read, rule) for rule in program.index_rules.get(name, ())}
    order = list(read.program.rules)
    return tuple(_standing(read, found[name]) for name in sorted(found, key=order.index))


def _standing(read: Readings, told: Derived) -> Derived:
    """With the rule's state, and what that means for what the item shows."""
    if read.standing is None:
        return told
    state, publishes = read.standing.state(told.rule), read.standing.publishes(told.rule)
    notes = told.notes
    if state == FILLING and not publishes:
        notes = ("the rule is filling: nothing is published until its backfill is complete",)
    elif state == SHADOW:
        notes = ("the rule is in the shadow: it publishes nothing, and what the item shows is somebody else's",)
    return replace(told, state=state, publishes=publishes, notes=notes)


def _attributes(read: Readings, expected: Mapping[str, Value | None]) -> tuple[Attribute, ...]:
    return tuple(Attribute(name, read.shown(name), value) for name, value in expected.items())


def _from_group(read: Readings, rule: LedgerRule) -> Derived:
    """An aggregate, a list or a claimed copy, beside its group in the ledger."""
    group, guard = read.groups[rule.name, read.text], read.guard(rule)
    n = group.totals.n
    told = Derived(rule, (), guard.there, guard.by, guard.at, group.at, guard.n, n)
    if read.image is None and (n == 0 or not creates(rule)):
        waits = ("published as soon as the item appears: the rule sets attributes of items that exist",)
        return replace(told, notes=waits if n else ())
    notes = []
    if group.rebuilding:
        notes.append("the group is being rebuilt: nothing is published until it is complete")
    if read.image is not None and not guard.there:
        notes.append("the item has no guard of this rule: nothing was published on it yet, or something removed it")
    elif guard.at > group.at:
        notes.append("the guard is ahead of the ledger: the item was cloned, or the ledger restored")
    elif guard.there and guard.at < group.at:
        notes.append("the ledger has changed since: a publish is on its way, or was missed")
    if guard.n is not None and guard.n != n and guard.at == group.at:
        notes.append(f"the guard speaks of {guard.n} contributions")
    members = read_members(read.store, rule, read.text, group)
    expected: Mapping[str, Value | None] = rule.published(group.totals, members)
    if isinstance(rule, CopyRule):
        expected = {name: expected.get(name) for name in sorted(rule.owned(read.image) | expected.keys())}
    sources, more = _contributors(read, rule, group, members)
    return replace(told, attributes=_attributes(read, expected), sources=sources, more=more, notes=tuple(notes))


def _contributors(
    read: Readings, rule: LedgerRule, group: Group, members: Mapping[str, list[Member]]
) -> tuple[tuple[tuple[str, str], ...], str]:
    """Those that members name. A counter knows only how many; its sources are found by looking at all of them."""
    found: dict[str, str] = {}
    settled = list(group.settled.values())
    for query in rule.member_queries:
        wanted: Sequence[Member] = members[query.name]
        if isinstance(rule, CopyRule) and wanted:
            wanted = _claims(read, rule, group)
        for member in wanted[:SOURCES]:
            what = f"the {query.name}" if isinstance(rule, AggregateRule) else ""
            if member not in settled:  # what has settled has no source any more
                found.setdefault(member.source, what)
    rest = group.totals.n - len(found)
    if rest <= 0:
        return tuple(found.items()), ""
    if isinstance(rule, AggregateRule):
        return tuple(
            found.items()
        ), f"{rest} contributions of unnamed sources: `projections verify` looks at all of them"
    return tuple(found.items()), f"{rest} more, in order, in the ledger under {members_key(rule.name, read.text)}"


def _claims(read: Readings, rule: CopyRule, group: Group) -> list[Member]:
    """The claims on a target in their order; the first has it."""
    partition: Value = {"S": members_key(rule.name, read.text)}
    page = read.store.query(LEDGER, [partition], prefix=f"{group.generation:04d}|", limit=SOURCES)
    return [Member({"NULL": True}, {}, item["s"]["S"]) for item in page.items]


def _from_source(read: Readings, rule: CopyRule) -> Derived:
    """A guarded copy, beside the source that its guard names."""
    guard = read.guard(rule)
    told = Derived(rule, (), guard.there, guard.by, guard.at)
    as_it_is = {name: read.shown(name) for name in sorted(rule.owned(read.image)) if read.shown(name) is not None}
    if not guard.sources:
        problem = "its guard names no source, so that nobody knows whose copy it is"
        return replace(told, attributes=_attributes(read, as_it_is), problem=problem)
    (source,) = guard.sources
    image = read.near.get(source)
    item = read.program.recognise(source, image) if image is not None else None
    wanted = copies_of(rule, item).get(read.key)
    told = replace(told, sources=((guard.by, "its source"),))
    if wanted is None:
        problem = "its source is gone: the removal of the copy is on its way, or was missed"
        if image is not None:
            why = "it is of another kind"
            if item is not None and item.entity is rule.source:
                why = "; ".join(verdict(read.program, rule, item).reasons) or "its copy has another key"
            problem = f"its source has no such copy any more: {why}"
        return replace(told, attributes=_attributes(read, as_it_is), problem=problem)
    expected = {name: wanted.get(name) for name in sorted(rule.owned(read.image, image))}
    expected = {name: value for name, value in expected.items() if value is not None or read.shown(name) is not None}
    return replace(told, attributes=_attributes(read, expected))


def _from_parent(read: Readings, rule: EmbedRule) -> Derived:
    """Embedded attributes, beside the parent that the item references."""
    assert read.item is not None
    guard = read.guard(rule)
    told = Derived(rule, (), guard.there, guard.by, guard.at)
    parent, flaw = reference_of(rule, read.item)
    if parent is None:
        note = f"it references no {rule.source.name}" + (f": {flaw}" if flaw else "")
        return replace(told, attributes=_attributes(read, dict.fromkeys(rule.attributes)), notes=(note,))
    by = encode_key(parent)
    image, fence = read.near.get(parent), read.near.get(fence_key(rule.name, by))
    known = fence["version"]["S"] if fence is not None else ""
    values, note = _given(read, rule, parent, image)
    notes = [note] if note else []
    if image is None and rule.on_delete == "keep" and guard.by == by:
        values = {name: value for name in rule.attributes if (value := read.shown(name)) is not None}
        notes.append("what it gave last is kept (on_delete: keep)")
    if guard.there and guard.by != by:
        notes.append("the guard names another parent: a pull is on its way, or was missed")
    elif guard.there and guard.at < known:
        notes.append("the parent has changed since: a push is on its way, or was missed")
    expected = {name: values.get(name) for name in rule.attributes}
    sources = ((by, "its parent"),)
    return replace(told, attributes=_attributes(read, expected), known=known, sources=sources, notes=tuple(notes))


def _given(read: Readings, rule: EmbedRule, key: ItemKey, image: Image | None) -> tuple[Mapping[str, Value], str]:
    """What a parent gives the item, and why it gives nothing."""
    assert read.item is not None
    if image is None:
        return {}, "its parent does not exist"
    parent = read.program.recognise(key, image)
    if parent is None or parent.entity is not rule.source:
        return {}, f"what it references is no {rule.source.name}"
    try:
        values = rule.embedded(parent)
        if values is None:
            return (
                {},
                f"the rule does not apply to its parent: {'; '.join(verdict(read.program, rule, parent).reasons)}",
            )
        if not rule.belongs(read.item, rule.matched_by(parent)):
            return {}, "`match` does not hold between it and its parent"
    except BadInput as reason:
        return {}, f"its parent cannot be evaluated: {reason}"
    return values, ""


def _from_itself(read: Readings, rule: IndexRule) -> Derived:
    """Index attributes: a function of the item's own attributes, so that they need no guard."""
    assert read.item is not None
    judged = verdict(read.program, rule, read.item)
    expected: Mapping[str, Value | None] = {name: None for name, _, _ in rule.attributes}
    if not judged.bad:
        expected = rule.desired(read.item)
    more = f"decided by {', '.join(sorted(rule.reads))} of the item itself" if rule.reads else ""
    problem = "; ".join(judged.reasons) if judged.bad else ""
    notes = () if judged.bad else judged.reasons
    return Derived(rule, _attributes(read, expected), more=more, notes=notes, problem=problem)

"""The derived values of an item: each with its drift and its sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projections.engine.embed_lists import references_of
from projections.engine.embeds import reference_of
from projections.engine.groups import Group, read_first, read_members
from projections.engine.ledger_items import fence_key, members_key
from projections.engine.registry import FILLING, SHADOW
from projections.engine.store import Image, ItemKey
from projections.errors import BadInput
from projections.inspect.explain.facts import Derived, Readings, attributes_of
from projections.inspect.explain.matching import verdict
from projections.inspect.explain.words import key_words
from projections.language.embeds import MOST_REFERENCES, EmbedRule, ListEmbedRule
from projections.language.keys import encode_key
from projections.language.rules import CopyRule, ItemRule, LedgerRule, Member
from projections.language.syntax import an
from projections.operations.verify.drift import GROUP, ITEM, KINDS, SOURCE, Drift
from projections.operations.verify.scope import CHILD, COPY, INDEX, REBUILD, TARGET

__all__ = ["derived"]

SOURCES = 5
"""Maximum contributing sources that are named."""


def derived(read: Readings) -> tuple[Derived, ...]:
    """Return the derived values by rule, in the order of the file."""
    found = {rule.name: _from_group(read, rule) for rule in read.onto}
    if read.item is not None:
        name, program = read.item.entity.name, read.program
        copy = program.copy_rule_into.get(name)
        if copy is not None:
            found[copy.name] = _from_source(read, copy)
        found |= {rule.name: _from_parent(read, rule) for rule in program.embeds_into.get(name, ())}
        found |= {rule.name: _from_itself(read, rule) for rule in program.item_rules.get(name, ())}
    for rule in read.scope.copy_into.values():  # its `match` attributes or its kind changed
        if rule.name not in found and any(read.drifts(rule.name, COPY)):
            found[rule.name] = _from_source(read, rule)
    order = list(read.program.rules)
    compared = [_snapshot(read, one) for one in found.values() if one is not None]
    return tuple(sorted(compared, key=lambda one: order.index(one.rule.name)))


def _snapshot(read: Readings, report: Derived) -> Derived:
    """Add what is said about the rule, its state, and its consequences."""
    report = replace(report, said=read.program.said_about(report.rule.name))
    if read.scope.offline:
        return report
    state, publishes = read.scope.states[report.rule.name], read.scope.publishes(report.rule)
    disabled = read.program.disabled(report.rule.name)
    if state == FILLING or disabled:
        report = replace(report, compared=())
    notes = report.notes
    if state == FILLING and not publishes:
        notes = ("the rule is filling: nothing is published until its backfill is complete",)
    elif disabled:
        notes = ("the rule is disabled: it publishes nothing, so these values are as they were then",)
    elif state == SHADOW:
        notes = ("the rule is in shadow mode: it publishes nothing, so another writer wrote these values",)
    return replace(report, state=state, publishes=publishes, notes=notes)


def _from_group(read: Readings, rule: LedgerRule) -> Derived | None:
    """Return the values of an aggregate, a list or a claimed copy, compared with its group in the ledger."""
    drifts = tuple(read.drifts(rule.name, TARGET, REBUILD))
    names = sorted(rule.owned(read.image)) if rule.claimed else rule.owned()
    if read.scope.offline:
        note = ("not compared, because there is no ledger yet: `projections verify` computes the expected value",)
        return Derived(rule, attributes_of([name for name in names if read.shown(name)], read.image, ()), notes=note)
    if rule.into.name not in read.entities and not drifts:
        return None
    group, guard = read.groups[rule.name, read.text], read.guard(rule)
    n = group.totals.n
    report = Derived(
        rule, (), drifts, (ITEM, GROUP), guard.there, guard.by, guard.at, group.at, guard.n, n, problem=_problem(drifts)
    )
    if read.image is None and (n == 0 or not rule.creates):
        waits = ("published when the item is created: the rule only updates existing items",)
        return replace(report, notes=waits if n else ())
    notes = []
    if group.rebuilding:
        notes.append("the group is being rebuilt: nothing is published until it is complete")
    if read.image is not None and not guard.there:
        notes.append("the item has no guard of this rule: nothing was published yet, or the guard was removed")
    elif guard.at > group.at:
        notes.append("the guard is newer than the ledger: the item was copied, or the ledger was restored")
    elif guard.there and guard.at < group.at:
        notes.append("the ledger has changed since: a publish is pending, or failed")
    members = read_members(read.store, rule, read.text, group)
    sources, more = _contributors(read, rule, group, members)
    if rule.claimed:
        names = [name for name in names if read.shown(name) is not None]
    attributes = attributes_of(names, read.image, drifts)
    return replace(report, attributes=attributes, sources=sources, more=more, notes=tuple(notes))


def _problem(drifts: tuple[Drift, ...]) -> str:
    """Return the problem of the whole item, if any."""
    for drift in drifts:
        if drift.kind in ("occupied", "error"):
            return f"{KINDS[drift.kind]}" + (f": {drift.actual}" if drift.kind == "error" else "")
    return ""


def _contributors(
    read: Readings, rule: LedgerRule, group: Group, members: Mapping[str, list[Member]]
) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the sources in members, and how to find the others: a counter does not record its sources."""
    found: dict[str, str] = {}
    settled = list(group.settled.values())
    for query in rule.member_queries:
        if query.counts:
            continue  # a value counter records how many sources have the value, not which
        wanted: Sequence[Member] = members[query.name]
        if rule.claimed and wanted:
            wanted = _claims(read, rule, group)
        for member in wanted[:SOURCES]:
            what = "" if rule.carries else query.name.replace(" ", " of ", 1)
            if member not in settled:  # settled members have no source any more
                found.setdefault(member.source, what)
    rest = group.totals.n - len(found)
    if rest <= 0:
        return tuple(found.items()), ""
    if not rule.carries:
        if not found:
            return (), "`projections verify` reads the sources of a group"
        noun = "contribution" if rest == 1 else "contributions"
        return tuple(found.items()), f"{rest:,} {noun} of other sources, which `projections verify` reads"
    return tuple(found.items()), f"{rest} more in the ledger, in order, under {members_key(rule.name, read.text)}"


def _claims(read: Readings, rule: LedgerRule, group: Group) -> list[Member]:
    """Return the claims on a target in their order; the first one wins."""
    (query,) = rule.member_queries
    claims = read_first(read.store, rule, read.text, group, replace(query, limit=SOURCES))
    return [Member({"NULL": True}, {}, item["s"]["S"]) for item in claims]


def _from_source(read: Readings, rule: CopyRule) -> Derived:
    """Return the values of a guarded copy, compared with the source in its guard."""
    guard, drifts = read.guard(rule), tuple(read.drifts(rule.name, COPY))
    valid = read.scope.guards.read(rule.name, read.key, read.image)
    names = [name for name in sorted(rule.owned(read.image)) if read.shown(name) is not None]
    attributes = attributes_of(names, read.image, drifts)
    problem = _problem(drifts)
    report = Derived(rule, attributes, drifts, (ITEM, SOURCE), guard.there, guard.by, guard.at, problem=problem)
    if valid is None or not valid.by:
        note = "not compared, because it has no valid guard, so its source is unknown: explain its source"
        return replace(report, compared=(), notes=(note,))
    report = replace(report, sources=((valid.by, "its source"),))
    if not any(drift.kind == "copy extra" for drift in drifts):
        return report
    (source,) = guard.sources
    image = read.near.get(source)
    item = read.program.recognise(source, image) if image is not None else None
    problem = "its source was deleted: the removal of the copy is pending, or failed"
    if image is not None:
        why = "it is an item of another kind"
        if item is not None and item.entity is rule.source:
            why = "; ".join(verdict(read.program, rule, item).reasons) or "its copy has another key"
        problem = f"its source no longer has this copy: {why}"
    return replace(report, problem=problem)


def _from_parent(read: Readings, rule: EmbedRule) -> Derived:
    """Return embedded attributes, compared with the parent that the item references."""
    assert read.item is not None
    guard, drifts = read.guard(rule), tuple(read.drifts(rule.name, CHILD))
    attributes = attributes_of(rule.owned(), read.image, drifts)
    report = Derived(
        rule, attributes, drifts, (ITEM, SOURCE), guard.there, guard.by, guard.at, problem=_problem(drifts)
    )
    if isinstance(rule, ListEmbedRule):
        return _from_parents(read, rule, report)
    parent, flaw = reference_of(rule, read.item)
    if parent is None:
        note = f"it references no {rule.source.name}" + (f": {flaw}" if flaw else "")
        return replace(report, notes=(note,))
    by = encode_key(parent)
    image, fence = read.near.get(parent), read.near.get(fence_key(rule.name, by))
    known = fence["version"]["S"] if fence is not None else ""
    note = _nothing_given(read, rule, parent, image)
    notes = [note] if note else []
    if image is None and rule.on_delete == "keep" and guard.by == by:
        notes.append("its last values are kept (on_delete: keep)")
    if guard.there and guard.by != by:
        notes.append("the guard names another parent: a pull is pending, or failed")
    elif guard.there and guard.at < known:
        notes.append("the parent has changed since: a push is pending, or failed")
    return replace(report, known=known, sources=((by, "its parent"),), notes=tuple(notes))


def _from_parents(read: Readings, rule: ListEmbedRule, report: Derived) -> Derived:
    """Return a list of what several parents give, with the parents."""
    assert read.item is not None
    references, flaw = references_of(rule, read.item)
    if references is None:
        note = f"it has no {rule.references_name}" if flaw is None else flaw
        return replace(report, notes=(note,))
    notes, sources = [flaw] if flaw is not None else [], list[tuple[str, str]]()
    for one in references:
        if one.key is None:
            notes.append(f'"{one.text}" in {rule.references_name} cannot be the key of {an(rule.source.name)}')
            continue
        image = read.near.get(one.key)
        parent = read.program.recognise(one.key, image) if image is not None else None
        given = rule.given(read.item, one, parent)
        sources.append((encode_key(one.key), "its parent" if given is not None else "not a parent"))
        if image is None:
            notes.append(f"{key_words(one.key)} does not exist")
        elif parent is None or parent.entity is not rule.source:
            notes.append(f"{key_words(one.key)} is not {an(rule.source.name)}")
        elif given is None:
            reasons = "; ".join(verdict(read.program, rule, parent).reasons) or "`match` does not hold for it"
            notes.append(f"the rule does not apply to {key_words(one.key)}: {reasons}")
    if rule.has_more_references(read.item):
        notes.append(f"only the first {MOST_REFERENCES} of {rule.references_name} count")
    more = f"and {len(sources) - SOURCES} more" if len(sources) > SOURCES else ""
    return replace(report, sources=tuple(sources[:SOURCES]), more=more, notes=tuple(notes[:SOURCES]))


def _nothing_given(read: Readings, rule: EmbedRule, key: ItemKey, image: Image | None) -> str:
    """Return why a parent has no attributes for the item, or an empty text."""
    assert read.item is not None
    if image is None:
        return "its parent does not exist"
    parent = read.program.recognise(key, image)
    if parent is None or parent.entity is not rule.source:
        return f"the item that it references is not {an(rule.source.name)}"
    try:
        if rule.embedded(parent) is None:
            return f"the rule does not apply to its parent: {'; '.join(verdict(read.program, rule, parent).reasons)}"
        if not rule.belongs(read.item, rule.matched_by(parent)):
            return "`match` does not hold for it and its parent"
    except BadInput as reason:
        return f"its parent cannot be evaluated: {reason}"
    return ""


def _from_itself(read: Readings, rule: ItemRule) -> Derived:
    """Return what a rule writes on its source item: it depends on the item's own attributes, and needs no guard."""
    assert read.item is not None
    judged, drifts = verdict(read.program, rule, read.item), tuple(read.drifts(rule.name, INDEX))
    attributes = attributes_of([*rule.owned()], read.image, drifts)
    inputs = rule.reads if rule.removes else rule.reads - {*rule.owned()}
    more = f"computed from {', '.join(sorted(inputs))} of the item itself" if inputs else ""
    more += "" if rule.removes else ", once: what is set stays"
    problem = "; ".join(judged.reasons) if judged.bad else _problem(drifts)
    notes = () if judged.bad else judged.reasons
    return Derived(rule, attributes, drifts, (ITEM, SOURCE), more=more, notes=notes, problem=problem)

"""One item of a live table: the sources of its derived values, and its own contributions. Writes nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from projections.engine.embed_lists import references_of
from projections.engine.embeds import reference_of
from projections.engine.groups import Group, read_first, read_groups, read_members
from projections.engine.ledger_items import entry_key, fence_key, promotion_in
from projections.engine.registry import Registry
from projections.engine.store import Image, ItemKey, Page, Store, Value, WrappedStore
from projections.errors import BadInput, InvalidRequest, UsageError
from projections.inspect.explain.item_facts import Derived, ItemExplanation, Readings, attributes_of, source
from projections.inspect.explain.matching import verdict
from projections.inspect.explain.words import key_words
from projections.language.embeds import MOST_REFERENCES, EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import Schema, decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, ItemRule, LedgerRule, Member, Rule, public_name
from projections.language.syntax import an
from projections.operations.redaction import HASH
from projections.operations.verify.drift import GROUP, KINDS, LEFT_OVER, Drift
from projections.operations.verify.drift import ITEM as THE_ITEM
from projections.operations.verify.drift import SOURCE as ITS_SOURCE
from projections.operations.verify.examine import Examiner
from projections.operations.verify.verify_scope import CHILD, COPY, INDEX, SOURCE, TARGET, Scope, Subject, of_items
from projections.printable import unescape
from projections.stores.limits import checked_key


def item_explanation(program: Program, store: Store, key: ItemKey) -> ItemExplanation:
    """Read and explain an item, by the versions in the registry, if there is one. Raises what a store raises."""
    text = encode_key(key)
    once = _ReadOnce(store)
    packaged, registry = program, Registry(program, cast(Store, once), filled=False)
    registered = registry.read()
    snapshot = None
    if registered is not None:
        snapshot, program = registry.readable(registered)
    fences = {
        fence_key(rule.name, text): rule.name
        for rules in program.embeds_from.values()
        for rule in rules
        if (rule.source.at(key) if isinstance(rule, ListEmbedRule) else rule.partition_of(key) is not None)
    }
    images = once.get_many([key, entry_key(text), *fences])
    image = images.get(key)
    item = program.recognise(key, image)
    scope = Scope(program, snapshot)
    read = Readings(program, packaged, cast(Store, once), scope, key, image, item)
    targets = [(rule.name, text) for rule in read.onto]
    if targets and not scope.offline:
        read.groups = read_groups(read.store, targets, scope.promotion)
    stored = images.get(entry_key(text))
    read.findings = Examiner(scope, read.store).examine(_subjects(read, stored))
    versions = tuple((rule, images[at]["version"]["S"]) for at, rule in fences.items() if at in images)
    drifts = tuple(
        replace(drift, rule=scope.shown_name(drift.rule))
        for finding in read.findings.values()
        for drift in finding.drifts
    )
    left = tuple(drift for drift in drifts if drift.kind == LEFT_OVER)
    drifts = tuple(drift for drift in drifts if drift.kind != LEFT_OVER)
    contributed = source(read, stored, versions)
    return ItemExplanation(key, image, item, derive(read), contributed, drifts, left, tuple(scope.stale))


def _subjects(read: Readings, entry: Image | None) -> Iterator[Subject]:
    """Yield everything that `verify` examines of an item."""
    if read.image is not None:
        yield from of_items(read.scope, read.key.table, [read.image])
    if entry is not None and not read.scope.offline:
        yield Subject(SOURCE, "", read.text)
    for target in read.groups:
        if target[0] in read.scope.published:
            yield Subject(TARGET, *target)


class _ReadOnce(WrappedStore):
    """A store that reads each item and each page once, so that all functions see the same state."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._items: dict[ItemKey, Image | None] = {}
        self._pages: dict[str, Page] = {}

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        if unread := [key for key in dict.fromkeys(keys) if key not in self._items]:
            images = self._store.get_many(unread)
            self._items |= {key: images.get(key) for key in unread}
        return {key: image for key in keys if (image := self._items[key]) is not None}

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        name = repr((table, values, sorted(options.items())))
        if name not in self._pages:
            self._pages[name] = self._store.query(table, values, **options)
        return self._pages[name]


SOURCES = 5
"""Maximum contributing sources that are named."""


def derive(read: Readings) -> tuple[Derived, ...]:
    """Return the derived values by rule, in the order of the file."""
    by_rule = {rule.name: _from_group(read, rule) for rule in read.onto}
    if read.item is not None:
        name, program = read.item.entity.name, read.program
        copy = program.copy_rule_into.get(name)
        if copy is not None:
            by_rule[copy.name] = _from_source(read, copy)
        by_rule |= {rule.name: _from_parent(read, rule) for rule in program.embeds_into.get(name, ())}
        by_rule |= {rule.name: _from_itself(read, rule) for rule in program.item_rules.get(name, ())}
    for rule in read.scope.copy_into.values():  # its `match` attributes or its kind changed
        if rule.name not in by_rule and any(read.drifts(rule.name, COPY)):
            by_rule[rule.name] = _from_source(read, rule)
    order = list(read.program.rules)
    compared = [_snapshot(read, value) for value in by_rule.values() if value is not None]
    return tuple(sorted(compared, key=lambda value: order.index(value.rule.name)))


def _snapshot(read: Readings, report: Derived) -> Derived:
    """Add what is said about the rule, its version and state, and its consequences."""
    name = report.rule.name
    report = replace(report, description=read.packaged.about(public_name(name)))
    snapshot = read.scope.snapshot
    version = snapshot.version(report.rule) if snapshot is not None else None
    if snapshot is None or version is None:
        return report
    notes = (f"{name} may have missed changes: {version.gap}",) if version.gap else ()
    report = replace(report, version=version.name, state=version.state, notes=(*report.notes, *notes))
    if version.state == "active":
        return report
    active = snapshot.active.get(version.rule)
    writer = "another writer" if active is None else active.name
    notes = (f"{name} is {version.state}: it publishes nothing, so {writer} wrote these values",)
    return replace(report, compared=() if version.state == "filling" else report.compared, notes=notes)


def _from_group(read: Readings, rule: LedgerRule) -> Derived | None:
    """Return the values of an aggregate, a list or a claimed copy, compared with its group in the ledger."""
    drifts = tuple(read.drifts(rule.name, TARGET))
    names = sorted(rule.owned(read.image)) if rule.claimed else rule.owned()
    if read.scope.offline:
        note = ("not compared, because there is no ledger yet: `projections verify` computes the expected value",)
        return Derived(rule, attributes_of([name for name in names if read.value_of(name)], read.image, ()), notes=note)
    if rule.into.name not in read.entities and not drifts:
        return None
    group, guard = read.groups[rule.name, read.text], read.guard(rule)
    n = group.totals.n
    report = replace(_comparison(read, rule, drifts, GROUP), known=group.at, contributions=n)
    if read.image is None and (n == 0 or not rule.creates):
        waits = ("published when the item is created: the rule only updates existing items",)
        return replace(report, notes=waits if n else ())
    notes = []
    if read.image is not None and not guard.there:
        notes.append("the item has no guard of this rule: nothing was published yet, or the guard was removed")
    elif guard.there and promotion_in(guard.at) < promotion_in(group.at):
        notes.append(
            "the item shows an earlier version or promotion of the rule: run `apply` until its promotion is complete"
        )
    elif guard.at > group.at:
        notes.append("the guard is newer than the ledger: the item was copied, or the ledger was restored")
    elif guard.there and guard.at < group.at:
        notes.append("the ledger has changed since: a publish is pending, or failed")
    members = read_members(read.store, rule, read.text)
    sources, more = _contributors(read, rule, group, members)
    if rule.claimed:
        names = [name for name in names if read.value_of(name) is not None]
    attributes = attributes_of(names, read.image, drifts)
    return replace(report, attributes=attributes, sources=sources, more=more, notes=tuple(notes))


def _comparison(read: Readings, rule: Rule, drifts: tuple[Drift, ...], side: str) -> Derived:
    """Return a rule with its guard and the differences between the item and the other side."""
    guard = read.guard(rule)
    sides = (THE_ITEM, side)
    return Derived(rule, (), drifts, sides, guard.there, guard.by, guard.at, problem=_problem(drifts))


def _problem(drifts: tuple[Drift, ...]) -> str:
    """Return the problem of the whole item, if any."""
    for drift in drifts:
        if drift.kind in ("occupied", "error"):
            return f"{KINDS[drift.kind]}" + (f": {drift.actual}" if drift.kind == "error" else "")
    return ""


def _contributors(
    read: Readings, rule: LedgerRule, group: Group, members: Mapping[str, list[Member]]
) -> tuple[tuple[tuple[str, str], ...], str]:
    """Return the sources in members and claims, and how many others there are: a counter does not record its sources."""
    sources: dict[str, str] = {}
    for query in rule.member_queries:
        if query.counts:
            continue  # a value counter records how many sources have the value, not which
        wanted: Sequence[Member] = members[query.name]
        if rule.claimed and wanted:  # the first claim wins
            claims = read_first(read.store, rule, read.text, query._replace(limit=SOURCES))
            wanted = [Member({"NULL": True}, {}, item["s"]["S"]) for item in claims]
        for member in wanted[:SOURCES]:
            sources.setdefault(member.source, "" if rule.carries else query.name.replace(" ", " of ", 1))
    rest = group.totals.n - len(sources)
    more = f"and {rest:,} more" if sources else "a counter does not record its sources: `projections verify` reads them"
    return tuple(sources.items()), more if rest > 0 else ""


def _from_source(read: Readings, rule: CopyRule) -> Derived:
    """Return the values of a guarded copy, compared with the source in its guard."""
    guard, drifts = read.guard(rule), tuple(read.drifts(rule.name, COPY))
    valid = read.scope.guards.read(rule.name, read.key, read.image)
    names = [name for name in sorted(rule.owned(read.image)) if read.value_of(name) is not None]
    report = replace(_comparison(read, rule, drifts, ITS_SOURCE), attributes=attributes_of(names, read.image, drifts))
    if valid is None or not valid.by:
        note = "not compared, because it has no valid guard, so its source is unknown: explain its source"
        return replace(report, compared=(), notes=(note,))
    report = replace(report, sources=((valid.by, "its source"),))
    if not any(drift.kind == "copy extra" for drift in drifts):
        return report
    (source,) = guard.sources
    image = read.store.get(source)
    item = read.program.recognise(source, image)
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
    report = replace(_comparison(read, rule, drifts, ITS_SOURCE), attributes=attributes)
    if isinstance(rule, ListEmbedRule):
        return _from_parents(read, rule, report)
    parent, flaw = reference_of(rule, read.item)
    if parent is None:
        note = f"it references no {rule.source.name}" + (f": {flaw}" if flaw else "")
        return replace(report, notes=(note,))
    by = encode_key(parent)
    image, fence = read.store.get(parent), read.store.get(fence_key(rule.name, by))
    known = fence["version"]["S"] if fence is not None else ""
    item = read.program.recognise(parent, image)
    note = _nothing_given(read, rule, parent, image, item)
    try:
        if not note and item is not None and not rule.belongs(read.item, rule.matched_by(item)):
            note = "`match` does not hold for it and its parent"
    except BadInput as flaw_of_parent:
        note = f"its parent: {flaw_of_parent}"
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
    for reference in references:
        if reference.key is None:
            notes.append(f'"{reference.text}" in {rule.references_name} cannot be the key of {an(rule.source.name)}')
            continue
        image = read.store.get(reference.key)
        parent = read.program.recognise(reference.key, image)
        attributes = rule.given(read.item, reference, parent)
        sources.append((encode_key(reference.key), "its parent" if attributes is not None else "not a parent"))
        if attributes is None:
            why = _nothing_given(read, rule, reference.key, image, parent)
            notes.append(why or f"`match` does not hold for {reference.text}")
    if rule.has_more_references(read.item):
        notes.append(f"only the first {MOST_REFERENCES} of {rule.references_name} count")
    more = f"and {len(sources) - SOURCES} more" if len(sources) > SOURCES else ""
    return replace(report, sources=tuple(sources[:SOURCES]), more=more, notes=tuple(notes[:SOURCES]))


def _nothing_given(read: Readings, rule: EmbedRule, key: ItemKey, image: Image | None, parent: Item | None) -> str:
    """Return why a parent has no attributes for its children, or an empty text."""
    if image is None:
        return f"{key_words(key)} does not exist"
    if parent is None or parent.entity is not rule.source:
        return f"{key_words(key)} is not {an(rule.source.name)}"
    judged = verdict(read.program, rule, parent)
    return "" if judged.applies else f"the rule does not apply to {key_words(key)}: {'; '.join(judged.reasons)}"


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
    return Derived(rule, attributes, drifts, (THE_ITEM, ITS_SOURCE), more=more, notes=notes, problem=problem)


def read_key(program: Program, text: str) -> ItemKey:
    """Return the key of an item.

    `PK=POST#p1,SK=METADATA` has each key attribute (a value may contain commas); `orders:PK=…` names the table if several
    have these attributes. `main|POST#p1|METADATA` is the encoded form. Escapes of our output such as `\\u001b` are
    accepted. Raises UsageError.
    """
    text = unescape(text)
    tables = program.tables
    if "|" in text and text.partition("|")[0] in tables:
        return _check_key(program, _decode_key(program, text), text)
    table, colon, rest = text.partition(":")
    candidates = {table: tables[table]} if colon and table in tables else dict(tables)
    body = rest if colon and table in tables else text
    keys = [key for name, schema in candidates.items() if (key := _key_of_names(name, schema, body)) is not None]
    if len(keys) == 1:
        return _check_key(program, keys[0], text)
    if keys:
        names = ", ".join(f"{key.table}:{body}" for key in keys)
        raise UsageError(f"{text!r} fits several tables. Write one of {names}")
    if text.startswith(HASH):
        raise UsageError(f"{text} is not a whole hash. Write {HASH} and all 24 hexadecimal digits, as the log has them")
    raise UsageError(f"{text!r} is not a key. Write {_forms(program)}")


def _forms(program: Program) -> str:
    """Return the forms of a key of each table."""
    many = len(program.tables) > 1
    forms = []
    for name, schema in program.tables.items():
        body = ",".join(f"{attribute}=…" for attribute in schema.key_attributes)
        parts = "|".join(["…"] * len(schema.key_attributes))
        forms.append(f"{name + ':' if many else ''}{body} (or, encoded, {name}|{parts})")
    return " or ".join(forms)


def _key_of_names(table: str, schema: Schema, text: str) -> ItemKey | None:
    """Return the key with the values of `A=…,B=…` in any order; None unless exactly the key attributes are given."""
    names = schema.key_attributes
    choice = "|".join(re.escape(name) for name in names)
    places = list(re.finditer(rf"(?:^|,)\s*({choice})=", text))
    if not places or places[0].start() != 0:
        return None
    # a value may contain text like another attribute: the first place of each name counts
    first: dict[str, re.Match[str]] = {}
    for place in places:
        first.setdefault(place[1], place)
    if first.keys() != set(names):
        return None
    ordered = sorted(first.values(), key=lambda place: place.start())
    ends = [place.start() for place in ordered[1:]] + [len(text)]
    values = {place[1]: text[place.end() : end] for place, end in zip(ordered, ends, strict=True)}
    return ItemKey(table, *(values[name] for name in names))


def _decode_key(program: Program, text: str) -> ItemKey:
    key = decode_key(text) if text.count("|") <= 2 else None
    parts = len(program.tables[text.partition("|")[0]].key_attributes)
    if key is None or (key.sort is None) != (parts == 1):
        raise UsageError(f"{text!r} is not an encoded key. Write {_forms(program)}; a | in a part is written %7C")
    return key


def _check_key(program: Program, key: ItemKey, text: str) -> ItemKey:
    try:
        return checked_key(program.tables[key.table], key)
    except (InvalidRequest, ArithmeticError) as error:
        raise UsageError(f"{text!r} is not a key of table {key.table}: {error}") from None

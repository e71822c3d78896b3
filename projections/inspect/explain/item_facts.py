"""The explanation of one item: what was read, its derived values, its contributions now and in its entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

from projections.engine.copies import copies_of
from projections.engine.groups import Group
from projections.engine.guards import at_of, by_of
from projections.engine.ledger_items import Entry, Target
from projections.engine.store import Image, ItemKey, Store, Value
from projections.inspect.explain.matching import verdict
from projections.inspect.explain.words import camel
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import ItemRule, LedgerRule, Rule, public_name
from projections.language.values import plain
from projections.operations.verify import showing
from projections.operations.verify.drift import Drift, Finding
from projections.operations.verify.examine import contributions_goal
from projections.operations.verify.verify_scope import COPY, SOURCE, Scope, Subject


@dataclass(frozen=True, slots=True)
class Attribute:
    """A derived attribute with the item's value as plain JSON, and its drift, if any."""

    name: str
    shown: Any
    drift: Drift | None = None

    @property
    def expected(self) -> Any:
        """The expected value, or that of the group if no source items were compared."""
        if self.drift is None:
            return self.shown
        if self.drift.attribute is None:  # the drift of the whole item
            return (self.drift.expected or {}).get(self.name)
        return self.drift.expected

    @property
    def agrees(self) -> bool:
        return self.drift is None or self.shown == self.expected


def attributes_of(names: Iterable[str], image: Image | None, drifts: Iterable[Drift]) -> tuple[Attribute, ...]:
    """Return these attributes of an item, and all others with drift."""
    wrong: dict[str, Drift] = {}
    for drift in drifts:
        if drift.attribute is None and drift.wrong is None and drift.kind == "copy extra":
            continue
        if drift.attribute is None and drift.kind != "occupied":
            wrong |= dict.fromkeys([*(drift.actual or {}), *(drift.expected or {})], drift)
        elif drift.attribute is not None and drift.kind != "guard":
            wrong[drift.attribute] = drift
    held: dict[str, Any] = {name: plain(value) for name, value in (image or {}).items()}
    held |= {name: drift.actual for name, drift in wrong.items() if drift.attribute is not None}
    return tuple(Attribute(name, held.get(name), wrong.get(name)) for name in dict.fromkeys([*names, *wrong]))


@dataclass(frozen=True, slots=True)
class Derived:
    """The derived values of one rule on the item.

    `drifts` are the differences, `compared` the compared sides, empty if nothing could be compared. `by` and `at` are those
    of the guard: encoded source or parent, and version. `known` is the current version of the group or parent.
    `contributions` is the number in the ledger. `sources` are some of them, `more` describes how to find the others.
    `problem` is why a value cannot be determined. `version` is that of the registry, with its `state`: only an active one is
    published.
    """

    rule: Rule
    attributes: tuple[Attribute, ...] = ()
    drifts: tuple[Drift, ...] = ()
    compared: tuple[str, ...] = ()
    guarded: bool = False
    by: str = ""
    at: str = ""
    known: str = ""
    contributions: int | None = None
    sources: tuple[tuple[str, str], ...] = ()
    more: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""
    version: str | None = None
    state: str = "active"
    description: str = ""
    """The owner and the description of the rule."""

    @property
    def agrees(self) -> bool:
        return not self.drifts


@dataclass(frozen=True, slots=True)
class Contribution:
    """What the item gives to one target under one rule: as stored, and of its current attributes.

    Of a copy, these are attributes; otherwise the ledger's contribution by name.
    """

    rule: str
    target: str
    recorded: dict[str, Any] | None
    should: dict[str, Any] | None
    drift: Drift | None = None
    excuse: str = ""
    """Why the ledger may differ."""
    copy: bool = False

    @property
    def agrees(self) -> bool:
        return self.drift is None


@dataclass(frozen=True, slots=True)
class Source:
    """The item as a source: its ledger entry, its contributions and copies.

    `problems` are bad input by rule, `unmet` why other rules do not apply to it.
    """

    entry: Entry | None
    expires: int | None
    contributions: tuple[Contribution, ...]
    fences: tuple[tuple[str, str], ...]
    problems: tuple[tuple[str, str], ...]
    unmet: tuple[tuple[str, str], ...]

    @property
    def agrees(self) -> bool:
        return all(contribution.agrees for contribution in self.contributions)


@dataclass(frozen=True, slots=True)
class ItemExplanation:
    """The explanation of one item. `drifts` are those that `verify` reports."""

    key: ItemKey
    image: Image | None
    item: Item | None
    derived: tuple[Derived, ...]
    source: Source | None
    drifts: tuple[Drift, ...] = ()
    left_over: tuple[Drift, ...] = ()
    """Values that no rule corrects any more; they are not drift."""
    stale: tuple[str, ...] = ()
    """The versions in the registry that are not explained, because this package, or that of a function, cannot read them."""

    @property
    def agrees(self) -> bool:
        return not self.drifts


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard on an item: encoded source or parent, and version."""

    there: bool = False
    by: str = ""
    at: str = ""

    @property
    def sources(self) -> list[ItemKey]:
        """The key in `by`, if it is valid."""
        try:
            return [decode_key(self.by)] if self.by else []
        except ValueError:
            return []


@dataclass(slots=True)
class Readings:
    """The item with its groups. `store` reads each item once: its sources, parents, copies and fences."""

    program: Program
    """The versions in the registry."""
    packaged: Program
    store: Store
    scope: Scope
    key: ItemKey
    image: Image | None
    item: Item | None
    findings: Mapping[Subject, Finding] = field(default_factory=dict)
    """The result of the comparison."""
    groups: dict[Target, Group] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return encode_key(self.key)

    @property
    def entities(self) -> list[str]:
        """The entity of the item, or all possible ones of its key if it does not exist."""
        if self.item is not None:
            return [self.item.entity.name]
        if self.image is not None:
            return []
        return [entity.name for entity in self.program.entities_at(self.key)]

    @property
    def onto(self) -> list[LedgerRule]:
        """The versions of rules that may publish from the ledger onto the item, or that would create another one there."""
        names = self.entities
        at = {entity.name for entity in self.program.entities_at(self.key)}
        rules = [rule for rule in self.program.recorded.values() if rule.writes_items]
        return [rule for rule in rules if rule.into.name in names] + [
            rule for rule in rules if rule.creates and not rule.held and rule.into.name in at.difference(names)
        ]

    def value_of(self, name: str) -> Value | None:
        return (self.image or {}).get(name)

    def drifts(self, rule: str, *kinds: str, target: str | None = None) -> Iterator[Drift]:
        """Yield the drift of one rule in these kinds of subjects, of this item or of a target."""
        for subject, finding in self.findings.items():
            for drift in finding.drifts:
                if subject.kind in kinds and drift.rule == rule and drift.target == (target or self.text):
                    yield replace(drift, rule=self.scope.shown_name(rule))

    def guard(self, rule: Rule) -> Guard:
        """Return the guard on the item."""
        held = self.value_of(self.program.guard(rule.name))
        return Guard() if held is None else Guard(True, by_of(held), at_of(held))


def source(read: Readings, stored: Image | None, fences: tuple[tuple[str, str], ...]) -> Source | None:
    """Return the contributions. `stored` is the entry, `fences` its versions as a parent. None if no rule reads it."""
    program = read.program
    concerned = any(
        name in rules
        for name in read.entities
        for rules in (program.ledger_rules, program.copy_rules, program.embeds_from)
    )
    if stored is None and not fences and not concerned:
        return None
    entry = Entry.read(stored) if stored is not None else None
    recorded = entry.contributions if entry is not None else {}
    goal = contributions_goal(read.scope, entry, read.key, read.image)
    contributions = []
    for rule in sorted(recorded.keys() | goal.keys()):
        olds, news = recorded.get(rule, {}), goal.get(rule, {})
        for target in sorted(olds.keys() | news.keys()):
            drift = next(read.drifts(rule, SOURCE, target=target), None)
            excuse = _excuse(read, rule) if drift is None else ""
            old, new = (showing.contribution(program.rules.get(rule), side.get(target)) for side in (olds, news))
            contributions.append(Contribution(read.scope.shown_name(rule), target, old, new, drift, excuse))
    problems = dict(program.contributions(read.item).problems)
    for copier in program.copy_rules.get(read.item.entity.name, ()) if read.item is not None else ():
        for key, attributes in copies_of(copier, read.item, problems).items():
            image, target = read.store.get(key), encode_key(key)
            stored_values = showing.item(image, copier.owned(image)) if image is not None else None
            drift = next(read.drifts(copier.name, COPY, target=target), None)
            contributions.append(
                Contribution(copier.name, target, stored_values, showing.item(attributes), drift, copy=True)
            )
    verdicts = [
        (rule.name, verdict(program, rule, read.item))
        for rule in program.variants
        if read.item is not None and rule.source is read.item.entity and not isinstance(rule, ItemRule)
    ]
    return Source(
        entry=entry,
        expires=int(stored["ttl"]["N"]) if stored is not None and "ttl" in stored else None,
        contributions=tuple(contributions),
        fences=fences,
        problems=tuple((read.scope.shown_name(name), reason) for name, reason in problems.items()),
        unmet=tuple(
            (read.scope.shown_name(name), "; ".join(its.reasons))
            for name, its in verdicts
            if not its.applies and not its.bad
        ),
    )


def _excuse(read: Readings, name: str) -> str:
    """Return why the ledger may differ from the item under a rule, or an empty text."""
    rule = read.program.rules.get(name)
    if rule is None:
        return "the registry does not have this version any more"
    if read.scope.offline:
        return "there is no ledger yet"
    if read.scope.states[name] == "filling":
        return "this version is filling: its fill records existing items"
    if name in read.scope.by_lanes:
        return "lanes count it (ledger: lanes), so entries need not have it"
    return ""


def item_document(report: ItemExplanation) -> dict[str, Any]:
    """Return what `explain --item --json` prints."""
    item = report.item
    known = {
        "exists": report.image is not None,
        "entity": item and item.entity.name,
        "variables": item and item.variables,
    }
    return {**known, **_fields(report, "image", "item")}


def _fields(part: Any, *hidden: str) -> dict[str, Any]:
    """Return the fields of a part of an explanation, and whether it agrees, as plain JSON with names in camelCase."""
    names = [*(each.name for each in fields(part)), *(["agrees"] if hasattr(part, "agrees") else [])]
    return {camel(name): _plain(getattr(part, name)) for name in names if name not in hidden}


def _plain(part: Any) -> Any:
    """Return a part as plain JSON: keys encoded, rules by name. Mappings are plain already."""
    match part:
        case Drift():
            return part.document()
        case Attribute():
            return {"name": part.name, "shown": part.shown, "expected": part.expected, "agrees": part.agrees}
        case Entry():
            return {
                "version": part.version,
                "revision": part.revision,
                "pending": sorted(f"{public_name(rule)}|{target}" for rule, target in part.pending),
                "refused": {public_name(rule): reason for rule, reason in part.refused.items()},
            }
        case Rule():
            return public_name(part.name)
        case ItemKey():
            return encode_key(part)
        case tuple():
            return [_plain(each) for each in part]
    return _fields(part) if is_dataclass(part) else part

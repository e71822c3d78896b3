"""The plan of a batch: records in, what to write out. Pure: nothing is read or written here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from projections.engine.changes import Change, Expiry, targets_of
from projections.engine.copies import CopyHeal, CopyWrite, freed_by, heals_of, writes_of
from projections.engine.embed_lists import parents_of
from projections.engine.embeds import Push, last_offer, needs_pull, offer_of, reference_of
from projections.engine.guards import Guards, Healing, needs_healing
from projections.engine.indexes import IndexWrite, index_attributes, index_write
from projections.engine.lanes import NO_LANES, Parts, Split, add_parts
from projections.engine.ledger_items import Target
from projections.engine.records import Record
from projections.engine.rejections import Rejected, alike
from projections.engine.releases import Release
from projections.engine.running import UNLIMITED, Deadline
from projections.engine.store import Image, Records, Value
from projections.language.contribution import NOTHING, Contributions, Evaluated, without
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Entity, Item
from projections.language.keys import ItemKey, decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, LedgerRule, Rule, public_name
from projections.language.values import same

T = TypeVar("T")

PushReason: TypeAlias = Literal["created", "changed", "removed", "replaced"]
"""What happened to a parent. `replaced`: it was created, and its children may show values of an earlier parent."""

Recognised = Sequence[tuple[Record, Item | None, Item | None]]
Reject = Callable[[Record, str, str, str | None], None]
"""Called with a record that a rule rejects: the record, the rule, the reason, and the reason to reject the old image."""


class _Checked(list[T]):
    """A list that checks the deadline while it is iterated over."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline

    def __iter__(self) -> Iterator[T]:
        return self._deadline.check_each(super().__iter__())


class Pull(NamedTuple):
    """Brings a child up to date, because of records from this sequence number on.

    `added` and `removed` are the encoded keys of parents that they add to its list of references, or remove from it.
    """

    sequence: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The work that a batch requires.

    `changes` has each source item once; `later` has those of records from which on lanes count for more versions. `heals`
    gives the first sequence number of the records that ask for each target to be healed, `pushes` all those of the records
    that ask for each parent's children to be brought up to date; `pulls` are those of single children, by rule and child.
    `ignored` counts the records that no rule reads.
    """

    changes: Sequence[Change] = ()
    copies: Sequence[CopyWrite] = ()
    copy_heals: Sequence[CopyHeal] = ()
    heals: Mapping[Target, str] = field(default_factory=dict)
    indexes: Sequence[IndexWrite] = ()
    releases: Sequence[Release] = ()
    pushes: Mapping[Push, Records] = field(default_factory=dict)
    pulls: Mapping[tuple[str, ItemKey], Pull] = field(default_factory=dict)
    rejected: Sequence[Rejected] = ()
    ignored: int = 0
    times: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By entity: when the oldest and the newest change of its items was made, as far as records show it."""
    rivals: Mapping[tuple[str, bool], int] = field(default_factory=dict)
    """How many guards of other ledgers the records show: `Guards.rivals`."""
    healing: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Of the heals, by rule, reason and attributes: how many there are, and the encoded key of one target."""
    overwritten: Mapping[ItemKey, Record] = field(default_factory=dict)
    """Items to correct of which a record changed nothing but values of rules, with the last such record."""
    strays: Sequence[tuple[ItemKey, str, str]] = ()
    """Items on which a late function with an older registry has written values of a removed rule, or of a former version,
    each with the rule and the sequence number of its record."""
    unmarked: Sequence[tuple[ItemKey, Value, str]] = ()
    """Marks that an update added, with the sequence number of its record: rules only create items with one."""
    parts: Parts = field(default_factory=dict)
    """What lanes count."""
    later: Sequence[Sequence[Change]] = ()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        written = (self.changes, self.copies, self.copy_heals, self.heals, self.indexes, self.releases)
        asked = (*written, self.unmarked, self.strays, self.parts, self.later)
        return not any(asked) and not self.pushes and not self.pulls and not self.rejected

    def without(self, keys: Collection[ItemKey]) -> Plan:
        """Return the plan without the corrections of these items."""
        return replace(
            self,
            copy_heals=[heal for heal in self.copy_heals if heal.target not in keys],
            heals={target: at for target, at in self.heals.items() if decode_key(target[1]) not in keys},
            indexes=[write for write in self.indexes if write.key not in keys],
            pulls={pull: at for pull, at in self.pulls.items() if pull[1] not in keys},
        )


def plan(
    program: Program,
    records: Iterable[Record],
    guards: Guards | None = None,
    deadline: Deadline = UNLIMITED,
    removed: Collection[str] = (),
    standby: Collection[str] = (),
    split: Split = NO_LANES,
) -> Plan:
    """Return the work that the records of a batch require; the records of an item come in the order of their versions.

    `guards` reads the guards of the ledger that the records are applied to; without it those of any ledger are valid.
    `removed` are the rules whose values are removed, `standby` the versions whose rejections are ignored. `split` is how the
    records are counted for rules with lanes. Raises OutOfTime.
    """
    guards = guards or Guards(program, None)
    guards.rivals.clear()
    unmarked: list[tuple[ItemKey, Value, str]] = []
    strays: list[tuple[ItemKey, str, str]] = []
    recognised: _Checked[tuple[Record, Item | None, Item | None]] = _Checked(deadline)
    everything: _Checked[tuple[Record, Item | None, Item | None]] = _Checked(deadline)
    """The records once more for each alternate of their items' entities."""
    copy_heals: list[CopyHeal] = []
    heals: dict[Target, str] = {}
    releases: list[Release] = []
    rejected: list[Rejected] = []
    ignored = 0
    times: dict[str, tuple[float, float]] = {}
    entities: set[str] = set()
    last: dict[ItemKey, tuple[Image, Item | None]] = {}
    for record in deadline.check_each(records):
        known = last.get(record.key)
        old = None
        if record.old is not None:
            # the old image of a record is most often the new image of the one before
            old = known[1] if known and known[0] == record.old else program.recognise(record.key, record.old)
        new = program.recognise(record.key, record.new)
        if record.new is not None:
            last[record.key] = (record.new, new)
            if record.old is not None and guards.adds_mark(record.key, record.old, record.new):
                unmarked.append((record.key, record.new[guards.mark], record.sequence))
            if [name for name in record.new if name.startswith(program.guard_prefix)]:
                strays.extend(_strays(program, guards, record, removed))
        if program.shared_keys and record.old is not None:
            if program.copies_with_match:
                copy_heals.extend(freed_by(program, record, old, new))
            for target in freed_targets(program, record, old, new):
                heals.setdefault(target, record.sequence)
        others = _alternatives(program, record) if program.alternates else ()
        if old is None and new is None and not others:
            ignored += 1
        else:
            recognised.append((record, old, new))
            everything.append((record, old, new))
            everything.extend(others)
            at = record.at
            for item in (old, new, *[item for _, *items in others for item in items]):
                if item is not None:
                    entities.add(name := item.entity.name)
                    if at is not None:
                        first, newest = times.get(name, (at, at))
                        times[name] = min(first, at), max(newest, at)

    def reject(record: Record, rule: str, reason: str, before: str | None) -> None:
        """Note a rejection. It is `repeated` if the old image was rejected for the same reason.

        The record that made the item bad reports it, or a backfill of the rule if it is newer than that record. No state is
        needed, so a redelivery decides the same.
        """
        if rule in standby:
            return
        key, again = encode_key(record.key), alike(reason, before)
        rejected.append(Rejected(rule, reason, key, record.sequence, record.key.table, record.event, repeated=again))

    parts: Parts = {}
    changes, *later = _changes(program, recognised, reject, split, parts) or [[]]
    copies = writes_of(program, recognised, reject) if not entities.isdisjoint(program.copy_rules) else ()
    copied = not entities.isdisjoint(program.copy_rule_into)
    published = not entities.isdisjoint(program.ledger_rules_into)
    pushes = _pushes(program, recognised, reject) if program.embeds_from else {}
    pulls = _pulls(program, guards, recognised, reject) if program.embeds_from else {}
    why: list[tuple[Record, Rule, Healing]] = []
    for record, old, new in everything:
        if copied:
            of_record = heals_of(program, guards, record, old, new)
            copy_heals.extend(of_record)
            why += [(record, heal.rule, heal.why) for heal in of_record if heal.why is not None]
        for target, reason in _heals(program, guards, record, old, new) if published else ():
            heals.setdefault(target, record.sequence)
            why.append((record, program.recorded[target[0]], reason))
        if old is not None and (new is None or new.entity is not old.entity):
            release = release_of(program, guards, record, old, new)
            if release is not None:
                releases.append(release)
    indexes = _indexes(program, recognised, reject) if program.item_rules else ()
    corrected: dict[ItemKey, list[Rule]] = {write.key: [program.rules[n] for n in write.rules] for write in indexes}
    for name, key in pulls:
        corrected.setdefault(key, []).append(program.embeds[name])
    for key in (*(heal.target for heal in copy_heals), *(decode_key(target) for _, target in heals)):
        corrected.setdefault(key, [])
    overwritten = {r.key: r for r, *items in recognised if r.key in corrected and program.overwrites(*items)}
    why += [(record, rule, "values changed") for key, record in overwritten.items() for rule in corrected[key]]
    made = Plan(changes, copies, copy_heals, heals, indexes, releases, pushes, pulls, rejected, ignored)
    made = replace(made, strays=strays, unmarked=unmarked, parts=parts, later=later, times=times)
    return replace(made, rivals=dict(guards.rivals), healing=_reasons(why), overwritten=overwritten)


def _indexes(program: Program, recognised: Recognised, reject: Reject) -> list[IndexWrite]:
    """Return the index attributes of each item, as its newest record has it."""
    writes = []
    newest: dict[ItemKey, tuple[Record, Item | None]] = {}
    olds: dict[ItemKey, list[Item | None]] = {}
    for record, old, new in recognised:
        newest[record.key] = (record, new)
        olds.setdefault(record.key, []).append(old)
    for record, item in newest.values():
        if item is None or item.entity.name not in program.item_rules:
            continue
        write, problems = index_write(program, item, (record.sequence,))
        if write is not None:
            writes.append(write)
        if not problems:
            continue
        # of several records of an item, one may have corrected it and a later one not: each must have been bad before
        known = [dict(index_write(program, old)[1]) if old is not None else {} for old in olds[record.key]]
        for rule, reason in problems:
            befores = [problems_before.get(rule) for problems_before in known]
            reject(record, rule, reason, befores[0] if all(alike(reason, before) for before in befores) else None)
    return writes


def _strays(
    program: Program, guards: Guards, record: Record, removed: Collection[str]
) -> Iterator[tuple[ItemKey, str, str]]:
    """Yield the item, the rule and the sequence number for each new guard that no published version has written."""
    key, old, new = record.key, record.old or {}, record.new or {}
    for name, value in new.items():
        if name == guards.mark or not guards.is_guard(name) or same(old.get(name), value):
            continue
        rule = guards.rule(name)
        published = program.published.get(rule)
        guard = guards.parse(rule, key, value) if rule in removed or published is not None else None
        if guard is not None and (rule in removed or guard.promotion < guards.promotion(rule)):
            yield key, rule, record.sequence


def _alternatives(program: Program, record: Record) -> list[tuple[Record, Item | None, Item | None]]:
    """Return a record with the items that it changes as older versions of rules define their entities."""
    olds = {item.entity.name: item for item in program.alternative_items(record.key, record.old)}
    news = {item.entity.name: item for item in program.alternative_items(record.key, record.new)}
    return [(record, olds.get(name), news.get(name)) for name in program.alternates if name in olds or name in news]


def _changes(
    program: Program, recognised: Recognised, reject: Reject, split: Split, parts: Parts
) -> list[list[Change]]:
    """Return the changes of contributions, each source item once. What lanes count is added to `parts`.

    The changes of records from which on lanes count for more versions are in another list: as one change, both would have
    the version of the last record, and a part that was counted before would not be known as a duplicate.

    A record that changes no contribution is dropped, except an expiry that rules keep. An item whose changes cancel out
    is not dropped, because a refresh may have committed a state in between.
    """
    if not program.ledger_rules:
        return []
    keeping = frozenset(name for name, rule in program.recorded.items() if rule.expired == "keep")
    changes: dict[tuple[frozenset[str], ItemKey], Change] = {}
    evaluated: dict[int, Evaluated] = {}

    def evaluate(item: Item | None, key: ItemKey, image: Image | None) -> Evaluated:
        if program.alternates:
            return program.evaluate(key, image)
        if item is None:
            return NOTHING
        known = evaluated.get(id(item))
        if known is None:
            known = evaluated[id(item)] = program.contributions(item)
        return known

    for record, old, new in recognised:
        before, after = evaluate(old, record.key, record.old), evaluate(new, record.key, record.new)
        for rule, reason in after.problems:
            reject(record, rule, reason, dict(before.problems).get(rule))
        by_lanes = split.uncounted
        if split.cuts:
            number = int(record.sequence)
            counted = [name for name, cut in split.cuts.items() if number > cut]
            add_parts(parts, record, number, counted, keeping, before.contributions, after.contributions)
            by_lanes = by_lanes.union(counted)
        if by_lanes:
            if by_lanes.issuperset((*before.contributions, *after.contributions)):
                continue
            before = before._replace(contributions=without(before.contributions, by_lanes))
            after = after._replace(contributions=without(after.contributions, by_lanes))
        expiry = Expiry.of(record.version, before, keeping) if record.expired else None
        if before.contributions == after.contributions and (expiry is None or not expiry.contributions):
            continue
        change = _change(record, before.contributions, after, expiry, by_lanes)
        earlier = changes.get((by_lanes, record.key))
        changes[by_lanes, record.key] = change if earlier is None else earlier.followed_by(change)
    lists: dict[frozenset[str], list[Change]] = {}
    for (by_lanes, _), change in changes.items():
        lists.setdefault(by_lanes, []).append(change)
    return [lists[by_lanes] for by_lanes in sorted(lists, key=len)]


def _change(
    record: Record, before: Contributions, after: Evaluated, expiry: Expiry | None, by_lanes: frozenset[str]
) -> Change:
    """Return the change that one record makes."""
    touched = targets_of(before) | targets_of(after.contributions)
    key, _, image, version, sequence, _, _ = record
    expiries = (expiry,) if expiry is not None and expiry.contributions else ()
    return Change(
        encode_key(key), version, before, after, None, touched, (sequence,), image is None, expiries, by_lanes
    )


def put_whole(guards: Guards, key: ItemKey, old: Image, new: Image) -> bool:
    """Whether the application put an item whole: it has lost all guards that it had. Then nothing on it is the rules'."""
    had = [name for name in old if guards.is_guard(name) and guards.valid(name, key, old)]
    return bool(had) and not any(guards.valid(name, key, new) for name in had)


def release_of(program: Program, guards: Guards, record: Record, old: Item | None, new: Item | None) -> Release | None:
    """Return the values to remove from an item that has left its entity: those that the rules of that entity set."""
    if old is None or record.new is None or (new is not None and new.entity is old.entity):
        return None
    name, image = old.entity.name, old.image
    if put_whole(guards, record.key, image, record.new):
        return None
    values: dict[str, list[tuple[str | None, Value]]] = {}
    held: dict[str, Value] = {}
    setters: list[str] = []
    copied: tuple[CopyRule, str] | None = None
    copier = program.copy_rule_into.get(name)
    rules: list[LedgerRule | EmbedRule] = [*program.ledger_rules_into.get(name, ()), *program.embeds_into.get(name, ())]
    for rule in [*rules, copier] if copier is not None else rules:
        guard = guards.read(rule.name, record.key, image)
        if guard is None:
            continue
        mark = guards.name(rule.name)
        held[mark] = image[mark]
        if isinstance(rule, EmbedRule) and guard.n == 0:
            continue  # it has set nothing
        setters.append(rule.name)
        if guards.is_created(record.key, image):
            for attribute, constant in old.entity.constants.items():
                values.setdefault(attribute, []).append((mark, constant))
        if isinstance(rule, CopyRule) and rule.copies_all and not guards.is_created(record.key, image):
            copied = rule, guard.by  # what else the image shows is the application's
            continue
        shown: list[Rule] = [rule]
        if guard.promotion < guards.promotion(rule.name):  # the item shows a version that was published before
            versions = [each for each in program.recorded.values() if guards.was_published_by(guard, each.name)]
            shown += [each for each in versions if each.into.name == name and guards.name(each.name) == mark]
        for attribute in dict.fromkeys(chain.from_iterable(each.owned(image) for each in shown)):
            if attribute in image:
                values.setdefault(attribute, []).append((mark, image[attribute]))
    for index in program.item_rules.get(name, ()):
        if not index.removes:
            continue  # what it set stays
        for attribute, value in index_attributes(index, old)[0].items():
            # only the record of its leaving shows what the rule had set before, from other values
            known = attribute in image and (record.sequence or same(image[attribute], value))
            values.setdefault(attribute, []).extend([(None, image[attribute])] if known else [])
        if not image.keys().isdisjoint(index.owned()):
            setters.append(index.name)
    if guards.is_marked(record.key, image):
        held[guards.mark] = image[guards.mark]
        if not setters:  # the mark alone: whichever of them created it
            setters = [rule.name for rule in (*rules, copier) if rule is not None and rule.creates]
    if not held and not values:
        return None
    by = tuple(name for name in program.rules if name in setters)
    sequences = (record.sequence,) if record.sequence else ()  # a refresh has no record
    return Release(record.key, old.entity, held, values, sequences, copied, record.new, rules=by)


def freed_targets(program: Program, record: Record, old: Item | None, new: Item | None) -> list[Target]:
    """Return the targets that rules may create now, because an item of another kind no longer has their key."""
    has_stayed = old is None or (new is not None and new.entity is old.entity)
    if record.old is None or (record.new is not None and has_stayed):
        return []
    return [
        (rule.name, encode_key(record.key))
        for entity, rules in program.created_with_match.items()
        if (old is None or old.entity is not entity) and entity.at(record.key)
        for rule in rules
    ]


def _reasons(why: Sequence[tuple[Record, Rule, Healing]]) -> dict[str, tuple[int, str]]:
    """Count the heals whose records show that another process wrote what a rule owns, by rule, reason and attributes.

    The record shows no more of that process: a stream record does not name who wrote.
    """
    counts: dict[str, tuple[int, str]] = {}
    for record, rule, reason in why:
        if reason not in _BY_OTHERS:
            continue
        old, new = record.old or {}, record.new or {}
        names = [name for name in sorted(rule.owned(old, new)) if not same(old.get(name), new.get(name))]
        attributes = ", ".join(name[:_MOST_SHOWN] for name in names[:5])
        text = f"{public_name(rule.name)}, {reason}" + (f": {attributes}" if attributes else "")
        if text not in counts and len(counts) == _MOST_SHOWN:
            continue
        counts[text] = (counts[text][0] + 1 if text in counts else 1, encode_key(record.key))
    return counts


_MOST_SHOWN = 40
"""The most reasons of heals in a plan, and characters of an attribute's name in one."""

_BY_OTHERS: frozenset[Healing] = frozenset(
    ("guard invalid", "another ledger", "guard removed", "guard not advanced", "values changed", "put back")
)


def _heals(
    program: Program, guards: Guards, record: Record, old: Item | None, new: Item | None
) -> list[tuple[Target, Healing]]:
    """Return the groups to be published again because of the record of a target, whatever version its guard has; and why."""
    target: str | None = None
    heals: list[tuple[Target, Healing]] = []
    into = program.ledger_rules_into
    entity: Entity | None = None
    for item in (old, new):
        if item is None or item.entity is entity:
            continue
        entity = item.entity
        for rule in into.get(entity.name, ()):
            before = old.image if old is not None and old.entity is entity else None
            after = new.image if new is not None and new.entity is entity else None
            reason = target_healing(guards, rule, record.key, before, after)
            if reason is not None:
                target = target or encode_key(record.key)
                heals.append(((rule.name, target), reason))
    return heals


def target_healing(
    guards: Guards, rule: LedgerRule, key: ItemKey, before: Image | None, after: Image | None
) -> Healing | None:
    """Return why the group of a target is published again, whatever version the target's guard has; None if it is not.

    `before` and `after` are the images that belong to the rule's target entity; at least one does.
    """
    if after is None:  # removed by the application: what the rules alone create, they create again
        return "gone" if rule.creates else None
    if healing := needs_healing(guards, rule.name, key, rule.owned(before, after), before, after):
        return healing
    if rule.claimed and before is not None and _is_adopted(guards, rule, key, before, after):
        return "taken over"
    # nothing contributes to it, and the attribute that it lost may have been the reason to keep it
    guard = guards.read(rule.name, key, after) if before is not None and rule.creates else None
    lost = guard is not None and guard.n == 0 and before is not None and not before.keys() <= after.keys()
    return "emptied" if lost else None


def _is_adopted(guards: Guards, rule: LedgerRule, key: ItemKey, before: Image, after: Image) -> bool:
    """Whether a record shows that a claim was published on an item that had no guard.

    It may be the late publish of a claim that is retracted by now. An item without claims gets no guard, which would show
    that the publish is late. Other rules publish zeros, with a guard.
    """
    adopted = guards.read(rule.name, key, before) is None and guards.read(rule.name, key, after) is not None
    return adopted and not guards.is_left(rule.name, key, before)


def push_reason(rule: EmbedRule, old: Item | None, new: Item | None, changed: bool) -> PushReason | None:
    """Return why a parent's record is pushed to its children; None if it is not. `changed`: what they get has changed."""
    keep = rule.on_delete == "keep"
    was, gone = old is not None and old.entity is rule.source, new is None or new.entity is not rule.source
    if keep and gone:
        return None
    if changed:
        return "removed" if gone else "changed" if was else "created"
    # its children may show what an earlier parent of this key gave them
    return "replaced" if keep and not was else None


def _pushes(program: Program, recognised: Recognised, reject: Reject) -> dict[Push, Records]:
    """Return one push per rule and parent whose embedded attributes a record changed, as of the last such record.

    Never dropped because changes cancel out: an earlier, interrupted delivery may have pushed some of them.
    """
    pushes: dict[tuple[str, ItemKey], tuple[str, str]] = {}
    sequences: dict[tuple[str, ItemKey], list[str]] = {}
    for record, old, new in recognised:
        for entity in {item.entity.name for item in (old, new) if item is not None}:
            for rule in program.embeds_from.get(entity, ()):
                (before, known), (after, problem) = offer_of(rule, old), offer_of(rule, new)
                if problem is not None:
                    reject(record, rule.name, problem, known)
                if push_reason(rule, old, new, before != after) is not None:
                    last = last_offer(after) if rule.on_delete == "keep" else ""
                    pushes[rule.name, record.key] = (record.version, last)
                    sequences.setdefault((rule.name, record.key), []).append(record.sequence)
    return {
        Push(rule, encode_key(key), version, last=last): tuple(sequences[rule, key])
        for (rule, key), (version, last) in pushes.items()
    }


def _pulls(program: Program, guards: Guards, recognised: Recognised, reject: Reject) -> dict[tuple[str, ItemKey], Pull]:
    """Return the children that need attributes of their parents, or whose links change: those of several parents last.

    Each record counts, because a reference may change back within.
    """
    pulls: dict[tuple[str, ItemKey], Pull] = {}
    of_lists: dict[tuple[str, ItemKey], Pull] = {}
    for record, old, new in recognised:
        for name in dict.fromkeys(item.entity.name for item in (old, new) if item is not None):
            for rule in program.embeds_into.get(name, ()):
                at = rule.name, record.key
                before = old if old is not None and old.entity is rule.into else None
                after = new if new is not None and new.entity is rule.into else None
                problem = reference_of(rule, after)[1] if after is not None else None
                if problem is not None:
                    reject(record, rule.name, problem, reference_of(rule, before)[1] if before is not None else None)
                if not isinstance(rule, ListEmbedRule):
                    if needs_pull(rule, guards, before, after):
                        pulls.setdefault(at, Pull(record.sequence))
                    continue
                were, are = parents_of(rule, before), parents_of(rule, after)
                removed = tuple(parent for parent in were if parent not in are)
                if removed or needs_pull(rule, guards, before, after):
                    known = of_lists.get(at, Pull(record.sequence))
                    of_lists[at] = known._replace(
                        added=tuple(dict.fromkeys((*known.added, *(parent for parent in are if parent not in were)))),
                        removed=tuple(dict.fromkeys((*known.removed, *removed))),
                    )
    return pulls | of_lists

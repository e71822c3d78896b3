"""The effect of each rule on a stream record, as the engine plans it, and why a rule has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from projections.engine.changes import Change, combine
from projections.engine.copies import freed_by, heals_of
from projections.engine.embeds import needs_pull, offer_of
from projections.engine.guards import Guards, Healing
from projections.engine.plan import Plan, freed_targets, plan, push_reason, target_healing
from projections.engine.records import Record
from projections.inspect.explain.matching import Verdict, nearest_entities, verdict
from projections.inspect.explain.words import encoded_words, json_words, short, without_hashes
from projections.inspect.rehearsal.rehearse import Decoded
from projections.language.contribution import Contributed, Contributions
from projections.language.embeds import EmbedRule
from projections.language.entity import Item
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.ranks import RankRule
from projections.language.rules import AggregateRule, CopyRule, LedgerRule, Rule
from projections.language.syntax import an
from projections.language.values import number_text, plain, plain_item, same
from projections.operations.verify import showing

EffectKind: TypeAlias = Literal[
    "contribution", "retain", "copy", "index", "compute", "push", "pull", "refresh", "release", "quarantine"
]


@dataclass(frozen=True, slots=True)
class Effect:
    """A write of the engine for a batch.

    | kind | what the engine writes | `values` |
    | --- | --- | --- |
    | contribution | the contribution of `source` to `target`, then the target's new values | by measure or attribute |
    | retain | nothing more: `source` expired, and its contribution to `target` stays (`expired: keep`) | None |
    | copy | the copy of `source` under `target` | its attributes |
    | index | index attributes of `target`, which is the source itself | None for each that is removed |
    | compute | computed attributes of `target`, which is the source itself, and its index attributes | the same |
    | push | the attributes of `source` onto all its children | None |
    | pull | the attributes of the parent onto `target` | None |
    | refresh | values of `target` that another writer changed or removed | None |
    | release | `target` has left its entity: the attributes that `rules` set are removed | None |
    | quarantine | a message: `rules` cannot use the record of `source`, for the `reason` | None |

    For contributions and copies, `values` is None if the contribution or copy is removed. Keys are encoded, as
    `main|POST#p1|METADATA`. Without the rules' ledger the totals of a target are unknown, so contributions have what the
    source gives, not what the target will show.
    """

    kind: EffectKind
    rules: tuple[str, ...]
    target: str | None
    source: str | None
    values: Mapping[str, Any] | None = field(default=None, hash=False)
    reason: str = ""


def effects_of(program: Program, made: Plan) -> Iterator[Effect]:
    """Yield the effects of a plan."""
    for change in made.changes:
        yield from _contributions(program, change)
    for write in made.copies:
        for key, image in write.copies.items():
            yield Effect("copy", (write.rule.name,), encode_key(key), write.source, plain_item(image))
        for key in sorted(write.others - write.copies.keys()):
            yield Effect("copy", (write.rule.name,), encode_key(key), write.source)
    for indexed in made.indexes:
        key_text = encode_key(indexed.key)
        values = {name: None if value is None else plain(value) for name, value in indexed.values.items()}
        for rule in indexed.rules:
            own = {name: value for name, value in values.items() if name in program.rules[rule].owned()}
            yield Effect("index" if indexed.kind == "index" else "compute", (rule,), key_text, key_text, own)
    for push in made.pushes:
        yield Effect("push", (push.rule,), None, push.parent)
    for rule, key in made.pulls:
        yield Effect("pull", (rule,), encode_key(key), None)
    for rule, target in made.heals:
        if program.rules[rule].held or not program.rules[rule].writes_items:
            continue
        yield Effect("refresh", (rule,), target, None)
    for heal in made.copy_heals:
        yield Effect("refresh", (heal.rule.name,), encode_key(heal.target), None)
    for release in made.releases:
        guarded = tuple(name for name in program.rules if program.guard(name) in release.guards)
        yield Effect("release", guarded, encode_key(release.key), None)
    for rejection in made.rejected:
        rules = (rejection.rule,) if rejection.rule is not None else tuple(program.rules)
        yield Effect("quarantine", rules, rejection.target, rejection.key, reason=rejection.reason)


def _contributions(program: Program, change: Change) -> Iterator[Effect]:
    """Yield the changed contributions of a source."""
    after, kept = change.after.contributions, _kept_contributions(change)
    for name in sorted(change.before.keys() | after.keys()):
        rule = program.recorded[name]
        if isinstance(rule, RankRule):
            yield from _scores(rule, change, kept)
            continue
        old, new = change.before.get(name, {}), after.get(name, {})
        for target in sorted(old.keys() | new.keys()):
            if target in kept.get(name, {}):
                yield Effect("retain", (name,), target, change.source)
            elif old.get(target) != new.get(target):
                values = None if target not in new else _values(rule, target, new[target], change)
                yield Effect("contribution", (name,), target, change.source, values)


def _kept_contributions(change: Change) -> Contributions:
    """Return what is kept of the item's expiries."""
    kept: Contributions = {}
    for expiry in change.expiries:
        kept = combine(expiry.contributions, kept)
    return kept


def _scores(rule: RankRule, change: Change, kept: Contributions) -> Iterator[Effect]:
    """Yield the changed scores of a source, by board."""
    sides = [side.get(rule.name, {}) for side in (change.before, change.after.contributions, kept)]
    before, after, stays = map(rule.scores, sides)
    old, new = map(rule.sums, sides[:2])
    for board in sorted(before.keys() | after.keys()):
        if board in stays:
            yield Effect("retain", (rule.name,), board, change.source)
        elif (before.get(board), old.get(board)) != (after.get(board), new.get(board)):
            scores = [plain({"N": number_text(score)}) for score in after.get(board, ())]
            values = {"score": scores[0]} if len(scores) == 1 else {"scores": scores} if scores else None
            if values and rule.amount is not None:
                values["sum"] = plain({"N": number_text(new[board])})
            yield Effect("contribution", (rule.name,), board, change.source, values)


def _values(rule: LedgerRule, target: str, contributed: Contributed, change: Change) -> dict[str, Any]:
    """Return the contributed values by measure or attribute."""
    if not isinstance(rule, AggregateRule):  # of the first member in the rule's order, if `each` makes several
        first = max if any(query.descending for query in rule.member_queries) else min
        members = [change.after.payloads[rule.name, target, first(contributed["+"])]] if "+" in contributed else []
        return {name: value for payload in members for name, value in plain_item(payload).items()}
    plain_values = without_hashes(showing.contribution(rule, contributed))
    values: dict[str, Any] = {}
    for measure in rule.measures:
        name = showing.members(rule, measure.slot)
        if measure.function == "count" and measure.where is None:
            values[measure.name] = contributed["n"]
        elif measure.by is not None:  # the attribute, not the value that it is ordered by
            held = [member for member in contributed.get("+", ()) if member.startswith(measure.slot + "|")]
            payload = change.after.payloads.get((rule.name, target, held[0]), {}) if held else {}
            values |= {measure.name: plain(payload[measure.name])} if measure.name in payload else {}
        elif name in plain_values:
            values[measure.name] = plain_values[name]
        else:
            values |= {each: value for each, value in plain_values.items() if each.startswith(f"{name} (")}
    return values


class RuleReport(NamedTuple):
    """The effects of one rule on one record, with reasons; without effects, the reasons are why there are none."""

    rule: str
    kind: str
    effects: tuple[Effect, ...]
    reasons: tuple[str, ...]

    @property
    def effect(self) -> str:
        """The kind of the first effect, or an empty text."""
        return self.effects[0].kind if self.effects else ""

    @property
    def document(self) -> dict[str, Any]:
        effects = [
            {"kind": effect.kind, "target": effect.target, "values": effect.values, "reason": effect.reason or None}
            for effect in self.effects
        ]
        return {"rule": self.rule, "kind": self.kind, "effects": effects, "reasons": list(self.reasons)}


@dataclass(frozen=True, slots=True)
class RecordReport:
    """One record, and all rules that it concerns. For an item of no entity, `nearest` has the most similar entities."""

    record: Record | None
    raw: Mapping[str, Any]
    flaw: str | None = None
    entity: str | None = None
    was: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    nearest: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rules: tuple[RuleReport, ...] = ()


def record_report(program: Program, decoded: Decoded) -> RecordReport:
    """Return a record with the effect of each rule."""
    record = decoded.record
    if record is None:
        return RecordReport(None, decoded.raw, flaw=decoded.flaw)
    old = program.recognise(record.key, record.old)
    new = program.recognise(record.key, record.new)
    rules = tuple(_rules(program, record, old, new))
    item = new or old
    if item is None:
        image = record.new if record.new is not None else record.old
        nearest = tuple((name, tuple(why)) for name, why in nearest_entities(program, record.key, image or {}))
        return RecordReport(record, decoded.raw, nearest=nearest, rules=rules)
    was = old.entity.name if old is not None and new is not None and old.entity is not new.entity else None
    return RecordReport(record, decoded.raw, None, item.entity.name, was, item.variables, (), rules)


def _rules(program: Program, record: Record, old: Item | None, new: Item | None) -> Iterator[RuleReport]:
    """Yield the rules that the record concerns, in the order of the file."""
    guards = Guards(program, None)
    planned: dict[str, list[Effect]] = {}
    for effect in effects_of(program, plan(program, [record], guards)):
        for name in effect.rules:
            planned.setdefault(name, []).append(effect)
    for name, rule in program.rules.items():
        effects = planned.get(name, [])
        judged = _verdict_of(program, name, old, new)
        if effects:
            why = dict.fromkeys(
                reason for effect in effects for reason in _why(program, guards, rule, effect, record, old, new, judged)
            )
            yield RuleReport(name, rule.kind, tuple(effects), tuple(why))
        elif judged is not None:
            idle = HELD if rule.held and not rule.recorded else ""
            same_as_before = "the item was removed" if record.new is None else "nothing that it reads changed"
            yield RuleReport(name, rule.kind, (), judged.reasons or (idle or same_as_before,))
        elif _wrote(program, rule, old, new):
            yield RuleReport(name, rule.kind, (), ("this is the rule's own write",))


HELD = "it publishes nothing, because it is held"


def _verdict_of(program: Program, name: str, old: Item | None, new: Item | None) -> Verdict | None:
    """Return the verdict of a rule on the new item, or on the old one if that is gone; None if it reads neither."""
    for item in (new, old):
        for variant in program.variants:
            if item is not None and variant.name == name and variant.source is item.entity:
                return verdict(program, variant, item)
    return None


def _wrote(program: Program, rule: Rule, old: Item | None, new: Item | None) -> bool:
    guard = program.guard(rule.name)
    both = old is not None and new is not None and rule.into is old.entity is new.entity
    return both and not same(old.image.get(guard) if old else None, new.image.get(guard) if new else None)


# Reasons


def _why(
    program: Program,
    guards: Guards,
    rule: Rule,
    effect: Effect,
    record: Record,
    old: Item | None,
    new: Item | None,
    judged: Verdict | None,
) -> Iterator[str]:
    """Yield the reasons of an effect, where the record alone does not show them."""
    match effect.kind:
        case "contribution" | "copy":
            if effect.values is None:
                reasons = judged.reasons if judged is not None else ()
                yield from ("the item was removed",) if record.new is None else reasons
            if rule.held:
                yield HELD
        case "index" | "compute":
            yield from judged.reasons if judged is not None else ()
        case "refresh":
            yield _refresh_reason(program, guards, rule, record, old, new)
        case "pull" if new is None:
            yield "the item was removed"
        case "pull" if isinstance(rule, EmbedRule):
            before = old if old is not None and old.entity is rule.into else None
            yield _words(needs_pull(rule, guards, before, new) or "reference changed", program, rule, before, new)
        case "push" if isinstance(rule, EmbedRule):
            changed = offer_of(rule, old)[0] != offer_of(rule, new)[0]
            yield f"the parent was {push_reason(rule, old, new, changed) or 'changed'}"
        case "release":
            yield f"it is no longer {an(rule.into.name)}"


def _refresh_reason(
    program: Program, guards: Guards, rule: Rule, record: Record, old: Item | None, new: Item | None
) -> str:
    """Return why a rule publishes to the item again, or compares its copy with the source."""
    before = old if old is not None and old.entity is rule.into else None
    after = new if new is not None and new.entity is rule.into else None
    images = [item.image if item is not None else None for item in (before, after)]
    why: Healing | None = None
    if isinstance(rule, LedgerRule) and (before or after):
        why = target_healing(guards, rule, record.key, *images)
    elif isinstance(rule, CopyRule):
        heals = heals_of(program, guards, record, old, new)
        why = next((heal.why for heal in heals if heal.rule is rule), None)
    if why is not None:
        return _words(why, program, rule, before, after)
    freed = {heal.rule.name for heal in freed_by(program, record, old, new)}
    freed |= {name for name, _ in freed_targets(program, record, old, new)}
    if rule.name in freed:
        return "an item of another kind was under this key, and is no longer there"
    return "its values may differ"


_REASONS: Mapping[Healing, str] = {
    "created": "it was created",
    "gone": "it was removed, or is no longer {into}",
    "guard invalid": "its guard {guard} is invalid",
    "another ledger": "its guard {guard} is of another ledger",
    "guard removed": "its guard {guard} was removed",
    "values changed": "{changed} changed, but the guard {guard} did not, so the rule did not write it",
    "guard not advanced": "the guard {guard} did not advance: an old state of the item was written back",
    "put back": "the guard {guard} changed together with other attributes: the whole item was written back",
    "emptied": "it lost attributes, and nothing contributes to it: it may have existed for these attributes only",
    "owner changed": "its guard {guard} names another source",
    "unknown version": "the guard {guard} had no version before",
    "taken over": "the item was not a copy before",
    "reference changed": "its reference changed",
    "other parent": "it references another parent than its guard {guard} names",
    "no parent": "it references no parent, but has embedded attributes",
    "index key changed": "the index key by which its parent finds it changed",
    "kind changed": "the attributes by which its entity is recognised changed",
}


def _words(why: Healing, program: Program, rule: Rule, old: Item | None, new: Item | None) -> str:
    before, after = (item.image if item is not None else {} for item in (old, new))
    changed = [name for name in rule.owned(before, after) if not same(before.get(name), after.get(name))]
    return _REASONS[why].format(
        into=an(rule.into.name), guard=program.guard(rule.name), changed=", ".join(sorted(changed))
    )


# Effects in words


def effect_words(effect: Effect) -> str:
    """Return an effect in a line: what the rule writes, and where."""
    target = encoded_words(effect.target) if effect.target is not None else ""
    values = effect.values or {}
    kept = [f"{name} {json_words(value, 40)}" for name, value in values.items() if value is not None]
    gone = [f"without {name}" for name, value in values.items() if value is None]
    text = short(", ".join([*kept, *gone]), 200)
    match effect.kind:
        case "contribution" if effect.values is None:
            return f"retracts its contribution to {target}"
        case "contribution":
            return f"contributes to {target}: {text}" if text else f"contributes to {target}"
        case "retain":
            return f"expired: its contribution to {target} stays (expired: keep)"
        case "copy":
            return f"removes its copy {target}" if effect.values is None else f"writes its copy {target}: {text}"
        case "index" | "compute":
            return f"updates the item: {text}"
        case "push":
            return "updates its children"
        case "pull":
            return "reads its parents, and updates the embedded attributes"
        case "refresh":
            return f"compares {target} with the ledger or its source, and corrects it"
        case "release":
            return "removes the rule's attributes, each only if it still has the rule's value"
        case "quarantine":
            return f"cannot use the record, which is quarantined: {effect.reason}"

"""The plan of a batch as data: the writes of the engine for stream records, by rule and target, without a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any, Literal, TypeAlias

from projections.engine.changes import Change
from projections.engine.plan import Plan
from projections.engine.registry import SHADOW
from projections.language.contribution import Contributed
from projections.language.keys import encode_key
from projections.language.measures import EXTREMES, VALUES
from projections.language.program import Program
from projections.language.ranks import RankRule
from projections.language.rules import AggregateRule, LedgerRule, PickRule
from projections.language.values import decode_order, number_text, plain, plain_item

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
    for change in chain(*made.changes):
        yield from _contributions(program, change)
    for write in made.copies:
        for key, image in write.copies.items():
            yield Effect("copy", (write.rule.name,), encode_key(key), write.source, plain_item(image))
        for key in sorted(write.others - write.copies.keys()):
            yield Effect("copy", (write.rule.name,), encode_key(key), write.source)
    for one in made.indexes:
        key_text = encode_key(one.key)
        values = {name: None if value is None else plain(value) for name, value in one.values.items()}
        yield Effect("index" if one.kind == "index" else "compute", one.rules, key_text, key_text, values)
    for push in made.pushes:
        yield Effect("push", (push.rule,), None, push.parent)
    for rule, key in made.pulled:
        yield Effect("pull", (rule,), encode_key(key), None)
    for rule, target in made.heals:
        if program.rules[rule].mode == SHADOW or not program.rules[rule].writes_items:
            continue
        yield Effect("refresh", (rule,), target, None)
    for heal in made.copy_heals:
        yield Effect("refresh", (heal.rule.name,), encode_key(heal.target), None)
    for release in made.releases:
        guarded = tuple(name for name in program.rules if program.guard(name) in release.guards)
        yield Effect("release", guarded, encode_key(release.key), None)
    for no in made.rejected:
        rules = (no.rule,) if no.rule is not None else tuple(program.rules)
        yield Effect("quarantine", rules, no.target, no.key, reason=no.reason)


def _contributions(program: Program, change: Change) -> Iterator[Effect]:
    """Yield the changed contributions of a source."""
    after = change.after.contributions
    for name in sorted(change.before.keys() | after.keys()):
        rule = program.recorded[name]
        old, new = change.before.get(name, {}), after.get(name, {})
        if isinstance(rule, RankRule):
            yield from _scores(rule, change, old, new)
            continue
        for target in sorted(old.keys() | new.keys()):
            if target in change.settle.get(name, {}):
                yield Effect("retain", (name,), target, change.source)
            elif old.get(target) != new.get(target):
                values = None if target not in new else _values(rule, target, new[target], change)
                yield Effect("contribution", (name,), target, change.source, values)


def _scores(
    rule: RankRule, change: Change, old: Mapping[str, Contributed], new: Mapping[str, Contributed]
) -> Iterator[Effect]:
    """Yield the changed scores of a source, by board."""
    before, after = rule.scores(old), rule.scores(new)
    settled = rule.scores(change.settle.get(rule.name, {}))
    for board in sorted(before.keys() | after.keys()):
        if board in settled:
            yield Effect("retain", (rule.name,), board, change.source)
        elif before.get(board) != after.get(board):
            scores = [plain({"N": number_text(score)}) for score in after.get(board, ())]
            shown = {"score": scores[0]} if len(scores) == 1 else {"scores": scores} if scores else None
            yield Effect("contribution", (rule.name,), board, change.source, shown)


def _values(rule: LedgerRule, target: str, contributed: Contributed, change: Change) -> dict[str, Any]:
    """Return the contributed values by measure or attribute."""
    if not isinstance(rule, AggregateRule):  # of the first member in the rule's order, if `each` makes several
        first = max if isinstance(rule, PickRule) and rule.descending else min
        member = first(contributed["+"])
        return plain_item(change.after.payloads[rule.name, target, member])
    found: dict[str, Any] = {}
    for measure in rule.measures:
        amount = contributed.get("=" + measure.slot)
        if measure.function == "count" and measure.where is None:
            found[measure.name] = contributed["n"]
        elif measure.by is not None:
            held = [one for one in contributed.get("+", ()) if one.startswith(measure.slot + "|")]
            if held:
                chosen = min(held) if measure.function == "first" else max(held)
                payload = change.after.payloads.get((rule.name, target, chosen), {})
                if measure.name in payload:
                    found[measure.name] = plain(payload[measure.name])
        elif measure.function in VALUES:
            prefix = measure.slot + "|"
            values = [one for one in contributed.get("%", ()) if one.startswith(prefix)]
            if values:
                found[measure.name] = [plain(decode_order(one.removeprefix(prefix))) for one in sorted(values)]
        elif measure.function in EXTREMES:
            held = [one for one in contributed.get("+", ()) if one.startswith(measure.slot + "|")]
            if held:
                chosen = min(held) if measure.function == "min" else max(held)
                found[measure.name] = plain(decode_order(chosen.removeprefix(measure.slot + "|")))
        elif amount is not None:
            number = Decimal(amount)
            if measure.function == "avg":
                number /= contributed["#" + measure.slot]
            found[measure.name] = plain({"N": number_text(number)})
    return found

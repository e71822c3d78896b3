"""The effects of a source item's change: contributions, copies, index attributes, pushes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from projections.engine.changes import SETTLED
from projections.engine.copies import copies_of
from projections.engine.indexes import index_write
from projections.engine.plan import PushReason, offered, push_reason
from projections.engine.records import Record
from projections.engine.registry import SHADOW
from projections.engine.store import Image
from projections.inspect.explain.matching import Verdict, verdict
from projections.inspect.explain.words import encoded_words, short, value_words
from projections.language.contribution import Contributed, Evaluated
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import encode_key
from projections.language.ordering import decode_order
from projections.language.program import Program
from projections.language.ranks import RankRule
from projections.language.rules import CopyRule, GuardedCopyRule, ItemRule, LedgerRule, Rule
from projections.language.values import changed_attributes, number_text

__all__ = ["Role", "RuleReport", "contribution_words", "difference_words", "source_report"]

Role: TypeAlias = Literal["source", "target", "parent", "child"]
Reasons: TypeAlias = Iterable[str]
Changes: TypeAlias = tuple[tuple[str, str, str], ...]
"""Targets, each with the contribution before and after in words."""


@dataclass(frozen=True, slots=True)
class RuleReport:
    """The effect of one rule on one record, and the item's role: source, target, parent or child.

    `effect` is a verb such as "changes" or "heals", "" for no effect, "bad input" if the rule cannot be evaluated. `what`
    describes it in a line, with `reasons`; `changes` has targets with their contributions before and after.
    """

    rule: str
    kind: str
    role: Role
    effect: str
    what: str
    reasons: tuple[str, ...] = ()
    changes: Changes = ()

    @classmethod
    def of(
        cls, rule: Rule, role: Role, effect: str, what: str, reasons: Reasons = (), changes: Changes = ()
    ) -> RuleReport:
        return cls(rule.name, rule.kind, role, effect, what, tuple(reasons), changes)

    @property
    def document(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "kind": self.kind,
            "as": self.role,
            "effect": self.effect or None,
            "what": self.what,
            "reasons": list(self.reasons),
            "changes": [{"target": t, "before": before, "after": after} for t, before, after in self.changes],
        }


def source_report(program: Program, rule: Rule, record: Record, old: Item | None, new: Item | None) -> RuleReport:
    """Return the effect of a rule on a record whose old or new image belongs to the rule's source entity."""
    if rule.mode == SHADOW and not rule.recorded:
        silent = "is disabled" if program.disabled(rule.name) else "is in shadow mode"
        return RuleReport.of(rule, "source", "", f"{silent}: it writes nothing")
    match rule:
        case ItemRule():
            return _index(program, rule, new)
        case EmbedRule():
            return _push(program, rule, old, new)
        case GuardedCopyRule():
            return _copy(program, rule, old, new)
        case LedgerRule():
            return _contribution(program, rule, record, old, new)
    raise NotImplementedError(rule.kind)


def _of(rule: Rule, item: Item | None) -> Item | None:
    return item if item is not None and item.entity is rule.source else None


def _verdict(program: Program, rule: Rule, old: Item | None, new: Item | None) -> Verdict:
    """Return the verdict on the new item, or on the old one if it was removed."""
    item = _of(rule, new) or _of(rule, old)
    return verdict(program, rule, item) if item is not None else Verdict(False)


def _none(rule: Rule, judged: Verdict) -> RuleReport:
    if judged.bad:
        what = "cannot be evaluated for this item, so the item contributes nothing and the record is quarantined"
        return RuleReport.of(rule, "source", "bad input", what, judged.reasons)
    return RuleReport.of(rule, "source", "", "does not apply", judged.reasons)


# The item as a source


def _contribution(program: Program, rule: LedgerRule, record: Record, old: Item | None, new: Item | None) -> RuleReport:
    was, now = program.contributions(_of(rule, old)), program.contributions(_of(rule, new))
    before, after = was.contributions.get(rule.name, {}), now.contributions.get(rule.name, {})
    judged = _verdict(program, rule, old, new)
    settles = record.expired and rule.expired == "keep" and before
    if isinstance(rule, RankRule):
        old_scores, new_scores = rule.scores(before), rule.scores(after)
        changes: Changes = tuple(
            (board, _score_words(old_scores.get(board)), _score_words(new_scores.get(board)))
            for board in sorted(old_scores.keys() | new_scores.keys())
        )
        moved = {board for board, _, _ in changes if old_scores.get(board) != new_scores.get(board)}
    else:
        changes = tuple(
            (target, *_change_words(rule, target, was, now)) for target in sorted(before.keys() | after.keys())
        )
        moved = {target for target, _, _ in changes if before.get(target) != after.get(target)}
    if before == after and not settles:
        if judged.bad or not after:
            return _none(rule, judged)
        what = "contributes the same as before: nothing to do"
        return RuleReport.of(rule, "source", "", what, (), changes)
    changed = tuple(change for change in changes if change[0] in moved or settles)
    if settles:
        what = f"expired: its contribution to {_targets(changed)} stays (expired: keep)"
    elif not after:
        what = f"retracts its contribution to {_targets(changed)}"
    elif not before:
        what = f"contributes to {_targets(changed)}"
    else:
        what = f"changes its contribution to {_targets(changed)}"
    if rule.mode == SHADOW:
        silent = "disabled" if program.disabled(rule.name) else "in shadow mode"
        what += f" in the ledger; nothing is published, because the rule is {silent}"
    effect = "bad input" if judged.bad else "changes"
    reasons = judged.reasons if judged.bad or not after else ()
    if record.new is None and not settles:
        reasons = ("the item was removed",)
    return RuleReport.of(rule, "source", effect, what, reasons, changed)


def _score_words(scores: Sequence[Decimal] | None) -> str:
    if not scores:
        return "nothing"
    return ("score " if len(scores) == 1 else "scores ") + ", ".join(map(number_text, scores))


def _targets(changes: Changes) -> str:
    names = [encoded_words(target) for target, _, _ in changes]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _change_words(rule: LedgerRule, target: str, was: Evaluated, now: Evaluated) -> tuple[str, str]:
    """Return the contribution to a target before and after as text.

    A member that both have is printed with the attributes that differ.
    """
    before, after = (one.contributions.get(rule.name, {}).get(target) for one in (was, now))
    old_held, new_held = {}, {}
    for member in (before or {}).get("+", {}).keys() & (after or {}).get("+", {}).keys():
        old, new = (one.payloads.get((rule.name, target, member), {}) for one in (was, now))
        if differing := sorted(changed_attributes(old, new)):
            old_held[member], new_held[member] = _listed(old, differing), _listed(new, differing)
    return contribution_words(before, old_held), contribution_words(after, new_held)


def _listed(image: Image, names: Sequence[str]) -> str:
    return short(", ".join(f"{name} {value_words(image.get(name), 30)}" for name in names), 160)


def difference_words(one: Contributed | None, other: Contributed | None) -> tuple[str, str]:
    """Return two contributions that differ, as text. If only attributes of members differ, the second says so."""
    first, second = contribution_words(one), contribution_words(other)
    return first, f"{second} with other attributes" if first == second else second


def contribution_words(contributed: Contributed | None, held: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the contribution of a source to a target as text: `count 1, total 12.5`, or "nothing".

    `held` has attributes to print after a member.
    """
    if not contributed:
        return "nothing"
    words = []
    for slot, amount in sorted(contributed.items(), key=lambda one: one[0] != "n"):
        if slot == "n":
            words.append(f"count {amount}")
        elif slot == "+":
            words += [
                _member(member) + (f" with {held[member]}" if member in held else "") for member in sorted(amount)
            ]
        elif slot == "%":
            for value, number in sorted(amount.items()):
                name, _, order = value.partition("|")
                words.append(f"{name} {value_words(decode_order(order))}" + (f" {number} times" if number > 1 else ""))
        elif slot[0] == "=":
            values = f" over {contributed['#' + slot[1:]]}" if "#" + slot[1:] in contributed else ""
            words.append(f"{slot[1:]} {amount}{values}")
        elif slot == SETTLED:
            words.append("settled")
    return ", ".join(words)


def _member(member: str) -> str:
    slot, _, rest = member.partition("|")
    order = rest.partition(" ")[0]
    if not order:
        return "a claim"
    return f"{'sort value' if slot == 'pick' else slot} {value_words(decode_order(order), 40)}"


def _copy(program: Program, rule: CopyRule, old: Item | None, new: Item | None) -> RuleReport:
    problems: dict[str, str] = {}
    before, after = copies_of(rule, _of(rule, old)), copies_of(rule, _of(rule, new), problems)
    judged = _verdict(program, rule, old, new)
    changes = tuple(
        (encode_key(target), _image_words(before.get(target)), _image_words(after.get(target)))
        for target in sorted(before.keys() | after.keys())
        if before.get(target) != after.get(target)
    )
    names = _targets(changes)
    if not changes:
        if judged.bad or not after:
            return _none(rule, judged)
        return RuleReport.of(rule, "source", "", "its copy is up to date: no copied attribute changed")
    if not after:
        reasons = judged.reasons if _of(rule, new) is not None else ("the item was removed",)
        effect = "bad input" if judged.bad else "copies"
        return RuleReport.of(rule, "source", effect, f"removes its copy {names}", reasons, changes)
    if not before:
        return RuleReport.of(rule, "source", "copies", f"creates its copy {names}", (), changes)
    differing = sorted({name for target in after for name in changed_attributes(before.get(target), after[target])})
    what = f"updates its copy {names}: {', '.join(differing)}"
    return RuleReport.of(rule, "source", "copies", what, (), changes)


def _image_words(image: Image | None) -> str:
    if image is None:
        return "nothing"
    return short(", ".join(f"{name} {value_words(value, 30)}" for name, value in sorted(image.items())), 160)


def _index(program: Program, rule: ItemRule, new: Item | None) -> RuleReport:
    item = _of(rule, new)
    if item is None:
        return RuleReport.of(rule, "source", "", "nothing to do: the item was deleted")
    names = set(rule.owned())
    write, _ = index_write(program, item)
    if write is not None:  # rules of one item see what the others write
        image = {name: value for name, value in {**item.image, **write.values}.items() if value is not None}
        item = Item(item.entity, item.key, item.variables, image)
    judged = verdict(program, rule, item)
    wrong = {n: value for n, value in write.values.items() if n in names} if write is not None else {}
    if not wrong:
        if not judged.applies:
            return _none(rule, judged)
        what = (
            "the index attributes are up to date" if rule.kind == "index" else "the computed attributes are up to date"
        )
        return RuleReport.of(rule, "source", "", what, judged.reasons if judged.applies else ())
    words = [
        f"{name} = {value_words(value)}" if value is not None else f"without {name}" for name, value in wrong.items()
    ]
    effect = "bad input" if judged.bad else "indexes" if rule.kind == "index" else "computes"
    what = f"updates the item: {', '.join(words)}"
    return RuleReport.of(rule, "source", effect, what, judged.reasons)


def _push(program: Program, rule: EmbedRule, old: Item | None, new: Item | None) -> RuleReport:
    (before, _), (after, _) = offered(rule, old), offered(rule, new)
    judged = _verdict(program, rule, old, new)
    if why := push_reason(rule, old, new, before != after):
        listed = isinstance(rule, ListEmbedRule)
        by = "links in the ledger" if listed else rule.children.index or "their own item collection"
        what = f"updates its children, found by {by}: "
        what += _image_words(after[0]) if after[0] else "no attributes" if listed and after[1] else "nothing"
        effect = "bad input" if judged.bad else "pushes"
        return RuleReport.of(rule, "parent", effect, what, (_PUSHED[why], *judged.reasons))
    if judged.bad:
        return _none(rule, judged)
    if rule.on_delete == "keep" and _of(rule, new) is None:
        what = "its children keep the embedded attributes (on_delete: keep)"
        return RuleReport.of(rule, "parent", "", what)
    return RuleReport.of(rule, "parent", "", "no embedded attribute changed", judged.reasons)


_PUSHED: Mapping[PushReason, str] = {
    "created": "the parent was created",
    "changed": "embedded attributes changed",
    "removed": "the parent was removed",
    "replaced": "the parent was created; its children may have values of an earlier parent",
}

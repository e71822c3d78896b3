"""What an item gives to others: by its entry in the ledger, and by its attributes as they are now."""

from __future__ import annotations

from projections.engine.copies import copies_of
from projections.engine.delta import GENERATION, unmarked
from projections.engine.ledger_items import Entry
from projections.engine.registry import FILLING
from projections.engine.store import Image, ItemKey
from projections.language.contribution import Contributed
from projections.language.rules import CopyRule
from projections.tools.explain.facts import Attribute, Contribution, Copied, Source
from projections.tools.explain.readings import Readings

__all__ = ["source"]


def source(read: Readings, stored: Image | None, fences: tuple[tuple[str, str], ...]) -> Source | None:
    """`stored` is its entry, `fences` its versions as a parent. None if nothing is known of it and no rule reads it."""
    program = read.program
    concerned = any(
        name in rules
        for name in read.entities
        for rules in (program.ledger_rules, program.copy_rules, program.embeds_from)
    )
    if stored is None and not fences and not concerned:
        return None
    entry = Entry.read(stored) if stored is not None else None
    evaluated = program.contributions(read.item)
    recorded = _recorded(entry) if entry is not None else {}
    contributions = []
    for rule in sorted(recorded.keys() | evaluated.contributions.keys()):
        olds, news = recorded.get(rule, {}), evaluated.contributions.get(rule, {})
        excuse = _excuse(read, rule)
        contributions += [
            Contribution(rule, target, olds.get(target), news.get(target), excuse)
            for target in sorted(olds.keys() | news.keys())
        ]
    problems = dict(evaluated.problems)
    copies = []
    for copier in program.copy_rules.get(read.item.entity.name, ()) if read.item is not None else ():
        for target, attributes in copies_of(copier, read.item, problems).items():
            copies.append(_copied(read, copier, target, attributes))
    return Source(
        entry=entry,
        expires=int(stored["ttl"]["N"]) if stored is not None and "ttl" in stored else None,
        other_rules=stored is not None and stored.get("rules", {}).get("S") != program.fingerprint,
        contributions=tuple(contributions),
        copies=tuple(copies),
        fences=fences,
        problems=tuple(problems.items()),
    )


def _excuse(read: Readings, name: str) -> str:
    """Why the ledger need not agree with the item under a rule."""
    rule = read.program.rules.get(name)
    if rule is None:
        fate = read.program.retired.get(name)
        return f"the rule is retired ({fate})" if fate else "these rules have no such rule"
    if read.standing is not None and read.standing.state(rule) == FILLING:
        return "the rule is filling: its backfill records what is there"
    return ""


def _recorded(entry: Entry) -> dict[str, dict[str, Contributed]]:
    """What an entry says was contributed, without marks, and without the generation in which it is counted."""
    return {
        rule: {
            target: {slot: amount for slot, amount in contributed.items() if slot != GENERATION}
            for target, contributed in unmarked(targets).items()
        }
        for rule, targets in entry.contributions.items()
    }


def _copied(read: Readings, rule: CopyRule, target: ItemKey, wanted: Image) -> Copied:
    image = read.near.get(target)
    held: Image = image or {}
    guard = read.guard(rule, held)
    names = sorted(rule.owned(image, read.image))
    attributes = tuple(Attribute(n, held.get(n), wanted.get(n)) for n in names if n in held or n in wanted)
    return Copied(rule.name, target, attributes, guard.by, guard.at, image is not None)

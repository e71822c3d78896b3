"""What an item gives to others: by its entry in the ledger, and by its attributes as they are now."""

from __future__ import annotations

from projections.engine.copies import copies_of
from projections.engine.delta import unmarked
from projections.engine.ledger_items import Entry
from projections.engine.store import Image, ItemKey
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
    recorded = {rule: unmarked(targets) for rule, targets in entry.contributions.items()} if entry is not None else {}
    contributions = []
    for rule in sorted(recorded.keys() | evaluated.contributions.keys()):
        olds, news = recorded.get(rule, {}), evaluated.contributions.get(rule, {})
        contributions += [Contribution(rule, t, olds.get(t), news.get(t)) for t in sorted(olds.keys() | news.keys())]
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


def _copied(read: Readings, rule: CopyRule, target: ItemKey, wanted: Image) -> Copied:
    image = read.near.get(target)
    held: Image = image or {}
    guard = read.guard(rule, held)
    names = sorted(rule.owned(image, read.image))
    attributes = tuple(Attribute(n, held.get(n), wanted.get(n)) for n in names if n in held or n in wanted)
    return Copied(rule.name, target, attributes, guard.by, guard.at, image is not None)

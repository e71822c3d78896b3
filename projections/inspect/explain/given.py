"""The contributions of an item: those in its ledger entry, and those of its current attributes."""

from __future__ import annotations

from projections.engine.copies import copies_of
from projections.engine.delta import unmarked
from projections.engine.ledger_items import Entry
from projections.engine.registry import FILLING
from projections.engine.store import Image, ItemKey
from projections.inspect.explain.facts import Contribution, Copied, Source, attributes_of
from projections.inspect.explain.readings import Readings
from projections.language.contribution import Contributions
from projections.language.keys import encode_key
from projections.language.rules import CopyRule
from projections.operations.verify.examine import contributions_goal
from projections.operations.verify.reading import bare
from projections.operations.verify.scope import COPY, SOURCE

__all__ = ["source"]


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
    recorded = _bare(entry.contributions) if entry is not None else {}
    goal = _bare(contributions_goal(read.scope, entry, read.item, gone=read.image is None))
    contributions = []
    for rule in sorted(recorded.keys() | goal.keys()):
        olds, news = recorded.get(rule, {}), goal.get(rule, {})
        for target in sorted(olds.keys() | news.keys()):
            drift = next(read.drifts(rule, SOURCE, target=target), None)
            excuse = _excuse(read, rule) if drift is None else ""
            contributions.append(Contribution(rule, target, olds.get(target), news.get(target), drift, excuse))
    problems = dict(program.contributions(read.item).problems)
    copies = []
    for copier in program.copy_rules.get(read.item.entity.name, ()) if read.item is not None else ():
        for key, attributes in copies_of(copier, read.item, problems).items():
            copies.append(_copied(read, copier, key, attributes))
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
    """Return why the ledger may differ from the item under a rule, or an empty text."""
    rule = read.program.rules.get(name)
    if rule is None:
        fate = read.program.retired.get(name)
        return f"the rule is retired ({fate})" if fate else "these rules do not have this rule"
    if read.scope.offline:
        return "there is no ledger yet"
    if read.scope.states[name] == FILLING:
        return "the rule is filling: its backfill records existing items"
    return ""


def _bare(contributions: Contributions) -> Contributions:
    """Return contributions without marks and generations."""
    return {rule: bare(unmarked(targets)) for rule, targets in contributions.items()}


def _copied(read: Readings, rule: CopyRule, target: ItemKey, wanted: Image) -> Copied:
    image = read.near.get(target)
    held: Image = image or {}
    guard = read.guard(rule, held)
    drifts = tuple(read.drifts(rule.name, COPY, target=encode_key(target)))
    attributes = attributes_of(sorted(wanted.keys() & held.keys()), image, drifts)
    return Copied(rule.name, target, attributes, drifts, guard.by, guard.at, image is not None)

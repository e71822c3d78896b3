"""The rules of a history: one version of a rule file, or two or three that are deployed one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

from projections.language.measures import ADDED
from projections.language.program import Program
from projections.language.rules import AggregateRule, Rule
from projections.testing.pools import Pools
from projections.testing.simulation.harm import Ownership
from projections.testing.simulation.rule_changes import change

_TRIES = 20
"""Attempts to find a second change."""


class RuleVersion:
    """One version of a rule file."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.program = Program.from_document(document)


@dataclass(frozen=True)
class RuleVersions:
    """The rules of a history. If they change, `first` and `last` differ, and `change` describes how.

    If they change twice or are rolled back, `between` is applied between the two.
    """

    first: RuleVersion
    last: RuleVersion
    application: Program
    """The rules of all versions in one program: the application writes for all of them."""
    pools: Pools
    change: str = ""
    expires: bool = True
    between: RuleVersion | None = None

    @cached_property
    def all(self) -> list[RuleVersion]:
        """All versions that are deployed."""
        return list({id(each): each for each in (self.first, self.between, self.last) if each is not None}.values())

    @cached_property
    def ownership(self) -> Ownership:
        return Ownership([version.program for version in self.all])

    @cached_property
    def rules(self) -> list[Rule]:
        """The rules of all versions."""
        return [rule for version in self.all for rule in version.program.rules.values()]

    @cached_property
    def newer(self) -> list[Mapping[str, Any]]:
        """The documents of rules that the first package does not have."""
        first = {rule.fingerprint for rule in self.first.program.rules.values()}
        return [
            version.program.closed_document(name)
            for version in self.all
            for name, rule in version.program.rules.items()
            if rule.fingerprint not in first
        ]

    @cached_property
    def keep_expired(self) -> bool:
        """Whether a rule keeps what expired items contributed."""
        return any(rule.expired == "keep" for rule in self.rules)

    @cached_property
    def returned_into(self) -> set[str]:
        """The entities into which a rule writes that was removed and is there again."""
        between = (self.between or self.last).program.rules
        back = self.last.program.rules.keys() & self.first.program.rules.keys() - between.keys()
        return {self.first.program.rules[name].into.name for name in back}

    @cached_property
    def lanes(self) -> bool:
        """Whether rules are counted by the shards of the stream."""
        return any(version.program.lanes for version in self.all)

    @cached_property
    def forgets_expired(self) -> bool:
        """Whether a rule that keeps what expired items contributed begins without it when it is counted again."""
        return any(rule.expired == "keep" for version in self.all for rule in version.program.lanes.values())

    @cached_property
    def indexed(self) -> bool:
        """Whether a rule reads an index."""
        embeds = [rule for version in self.all for rule in version.program.embeds.values()]
        return any(rule.children.index is not None for rule in embeds)


def edit_rules(versions: RuleVersions, rng: Random, *, entities: bool) -> RuleVersions:
    """Return versions that differ by a random change of one of `versions.first`, or `versions` if none was found."""
    edit = change(versions.first.document, versions.pools, rng, entities=entities)
    if edit is None:
        return versions
    before, after = (
        versions.first
        if document is versions.first.document
        else RuleVersion(_with_other_ledgers(versions, document, rng))
        for document in (edit.before, edit.after)
    )
    application = _merge(before, after)
    return RuleVersions(before, after, application, Pools(application), edit.words, edit.expires)


def _with_other_ledgers(versions: RuleVersions, document: Mapping[str, Any], rng: Random) -> Mapping[str, Any]:
    """Return a document in which some rules are counted with entries that were counted by lanes, or the other way round."""
    if not versions.lanes:
        return document
    rules = dict(document["projections"])
    for name, rule in Program.from_document(document).rules.items():
        if isinstance(rule, AggregateRule) and "aggregate" in rules[name] and rng.random() < 0.3:
            action = dict(rules[name]["aggregate"])
            if action.pop("ledger", None) is None and all(measure.function in ADDED for measure in rule.measures):
                action["ledger"] = "lanes"
            rules[name] = {**rules[name], "aggregate": action}
    return {**document, "projections": rules}


def edit_again(versions: RuleVersions, rng: Random) -> RuleVersions:
    """Return the versions with a second change after the first, or `versions` if none was found."""
    between, pools = versions.last, Pools(versions.last.program)
    for _ in range(_TRIES):
        edit = change(between.document, pools, rng)
        if edit is not None and edit.before is between.document:
            last = RuleVersion(edit.after)
            application = _merge(versions.first, between, last)
            words = f"{versions.change}; and then {edit.words}"
            expires = versions.expires and edit.expires
            return RuleVersions(versions.first, last, application, Pools(application), words, expires, between)
    return versions


def roll_back(versions: RuleVersions) -> RuleVersions:
    """Return the versions with their change rolled back before the history ends."""
    before, between = versions.first, versions.last
    added = between.program.rules.keys() - before.program.rules.keys()
    retired = {**before.document["retired"], **dict.fromkeys(added, "remove")}
    last = RuleVersion({**before.document, "retired": retired}) if added else before
    words = f"{versions.change}; and that is rolled back"
    removed = before.program.rules.keys() - between.program.rules.keys()  # with all that they kept
    expires = versions.expires and all(before.program.rules[name].expired != "keep" for name in removed)
    return replace(versions, last=last, change=words, expires=expires, between=between)


def _merge(*versions: RuleVersion) -> Program:
    """Return the rules of all versions in one program."""
    rules: dict[str, Any] = {}
    for version in versions:
        for name, rule in version.document["projections"].items():
            free = name
            while rules.get(free, rule) != rule:
                free += "-"
            rules[free] = rule
    return Program.from_document({**versions[0].document, "projections": rules})

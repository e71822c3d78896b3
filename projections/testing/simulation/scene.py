"""What histories are played with: the rules, in one version or in two, and the application that writes under them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

from projections.language.embeds import EmbedRule
from projections.language.program import Program
from projections.language.rules import CopyRule, Rule
from projections.local.tables import schemas
from projections.testing.simulation.changes import change
from projections.testing.simulation.checks import Checks
from projections.testing.simulation.harm import Ownership
from projections.testing.simulation.history import History, Outcome
from projections.testing.simulation.odds import Odds
from projections.testing.simulation.pools import Pools
from projections.testing.simulation.trace import Trace

__all__ = ["Cast", "Edition", "Scene"]

_CHANGES = 48
"""Changes of one rule file, made when they are first wanted."""
_SECONDS = 4
"""What may follow each of them, where rules change twice."""
_TRIES = 20


class Edition:
    """One version of the rules, with what must hold under it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.program = Program.from_document(document)

    @cached_property
    def checks(self) -> Checks:
        return Checks(self.program, self.document)


@dataclass(frozen=True)
class Cast:
    """The rules of a history. Where they change in its middle, `first` and `last` differ, by what `change` says.

    Where they change twice, `between` differs from both; also where they are rolled back. `retires` tells whether the rules
    at the end say what becomes of those that only it has, as they must if those were ever in force.
    """

    first: Edition
    last: Edition
    application: Program
    """The rules as the application knows them: those of both versions."""
    pools: Pools
    change: str = ""
    expires: bool = True
    between: Edition | None = None
    retires: bool = False
    rolled_back: bool = False
    """Whether the rules at the end are those at the beginning."""

    @cached_property
    def editions(self) -> list[Edition]:
        """All that are ever deployed."""
        return list({id(one): one for one in (self.first, self.between, self.last) if one is not None}.values())

    @cached_property
    def ownership(self) -> Ownership:
        return Ownership([edition.program for edition in self.editions])

    @cached_property
    def rules(self) -> list[Rule]:
        """All that anybody's rules ever were."""
        return [rule for edition in self.editions for rule in edition.program.rules.values()]

    @cached_property
    def regards(self) -> bool:
        """Whether a rule's guards begin to say something else: versions of a source, or of a group."""
        claimed: dict[str, set[bool]] = {}
        for rule in self.rules:
            if isinstance(rule, CopyRule):
                claimed.setdefault(rule.name, set()).add(rule.claimed)
        return any(len(kinds) > 1 for kinds in claimed.values())

    @cached_property
    def indexed(self) -> bool:
        """Whether anything is found through an index."""
        return any(isinstance(rule, EmbedRule) and rule.children.index is not None for rule in self.rules)


class Scene:
    """What all histories of one rule file share. `without` names what the application does not do."""

    def __init__(
        self,
        document: Mapping[str, Any],
        without: frozenset[str] = frozenset(),
        odds: Callable[[Random], Odds] = Odds.draw,
    ) -> None:
        edition = Edition(document)
        self._alone = Cast(edition, edition, edition.program, Pools(edition.program))
        self._changed: dict[tuple[int, bool], Cast] = {}
        self._rolled_back: dict[tuple[int, bool, bool], Cast] = {}
        self._onward: dict[tuple[int, bool, int], Cast] = {}
        self.schemas = schemas(edition.program)
        self.without = without
        self.odds = odds

    def cast(self, odds: Odds, rng: Random) -> Cast:
        """The rules of one history."""
        if not odds.change:
            return self._alone
        number = int(rng.random() * _CHANGES), odds.entities
        if number not in self._changed:
            self._changed[number] = self._change(*number)
        cast = self._changed[number]
        if odds.then == "back" and cast.change:
            retires = rng.random() < 0.5
            if (*number, retires) not in self._rolled_back:
                self._rolled_back[*number, retires] = _rolled_back(cast, retires)
            return self._rolled_back[*number, retires]
        if odds.then == "on" and cast.change:
            second = int(rng.random() * _SECONDS)
            if (*number, second) not in self._onward:
                rng = Random(f"change {number[0]} and {second}")
                self._onward[*number, second] = _changed_again(cast, rng)
            return self._onward[*number, second]
        return cast

    def _change(self, number: int, entities: bool) -> Cast:
        alone = self._alone
        words = f"change {number}" + (" of entities" if entities else "")
        found = change(alone.first.document, alone.pools, Random(words), entities=entities)
        if found is None:
            return alone
        before, after = (
            alone.first if document is alone.first.document else Edition(document)
            for document in (found.before, found.after)
        )
        application = _merged(before, after)
        return Cast(before, after, application, Pools(application), found.words, found.expires)

    def play(self, seed: int, *, trace: bool = False) -> Outcome:
        return History(self, seed, Trace() if trace else None).play()


def _merged(*editions: Edition) -> Program:
    """The rules of all versions in one program."""
    rules: dict[str, Any] = {}
    for edition in editions:
        for name, rule in edition.document["projections"].items():
            free = name
            while rules.get(free, rule) != rule:
                free += " "
            rules[free] = rule
    return Program.from_document({**editions[0].document, "projections": rules})


def _changed_again(cast: Cast, rng: Random) -> Cast:
    """The same change, and another after it; the same cast if none is found."""
    between, pools = cast.last, Pools(cast.last.program)
    for _ in range(_TRIES):
        found = change(between.document, pools, rng)
        if found is not None and found.before is between.document:
            last = Edition(found.after)
            application = _merged(cast.first, between, last)
            words = f"{cast.change}; and then {found.words}"
            expires = cast.expires and found.expires
            return Cast(cast.first, last, application, Pools(application), words, expires, between, retires=True)
    return cast


def _rolled_back(cast: Cast, retires: bool) -> Cast:
    """The same change, taken back before the history ends."""
    before, between = cast.first, cast.last
    added = between.program.rules.keys() - before.program.rules.keys()
    last = before
    if retires and added:
        last = Edition({**before.document, "retired": {**before.document["retired"], **dict.fromkeys(added, "remove")}})
    words = f"{cast.change}; and that is rolled back"
    return replace(cast, last=last, change=words, between=between, retires=retires or not added, rolled_back=True)

"""Whether a candidate that some items contradict is worth proposing, and these items.

A candidate computes an attribute of some items, which have a stored value. Small numbers and frequent values agree by
chance, and many candidates are compared, so a share of agreement alone gives wrong proposals. A candidate is accepted if

1. it agrees with at least 3 of 4 items;
2. the items that it agrees with have at least 3 different values;
3. without the items that have the most frequent stored value, it agrees with at least half: a constant does not explain
   it;
4. it is improbable by chance. The chance that a value agrees is the share of agreement between the stored value of one
   item and the computed value of another, over all pairs. By Chernoff's bound, the probability that this many of `n` items
   agree is at most exp(-n KL(share, chance)). This probability, times the number of candidates compared for the table, is
   at most 1:10,000.

A counter whose attribute has the name of one is one hypothesis, not one of many. It needs half of the items, 2 different
values, and 1:100. One that no item contradicts needs 1:20.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from projections.init.proposal import Contradiction, Rule, Table
from projections.init.rows import Row
from projections.language.values import Value, canonical, plain, plain_words, same

_MOSTLY = 0.75
_NAMED = 0.5
_BY_CHANCE = 1e-4
_BY_CHANCE_NAMED = 1e-2
_BY_CHANCE_ALL_RIGHT = 0.05
_LEAST_VALUES = 3
_MOST_EXAMPLES = 3
_LONGEST_SHOWN = 100


@dataclass(frozen=True)
class Case:
    """An item with its stored and its computed value; None where absent."""

    row: Row
    stored: Value | None
    computed: Value | None

    @property
    def agrees(self) -> bool:
        return same(self.stored, self.computed)


@dataclass(frozen=True)
class Verdict:
    """How many of the cases agree."""

    cases: Sequence[Case]
    right: int
    accepted: bool
    by_chance: float
    """An upper bound of the probability that any of the table's candidates agrees as well by chance."""

    @property
    def all_right(self) -> bool:
        return self.right == len(self.cases) and self.right > 0

    @property
    def certain(self) -> bool:
        """Whether all cases agree, not by chance."""
        return self.all_right and self.by_chance <= _BY_CHANCE_ALL_RIGHT

    @property
    def share(self) -> float:
        return self.right / len(self.cases)


def identity(value: Value | None) -> str | None:
    """Return a text that is equal for equal values."""
    return None if value is None else json.dumps(canonical(value))


def judge(cases: Sequence[Case], tries: int, *, named: bool = False) -> Verdict:
    """Return the verdict on cases that all have a stored value. `tries` is the number of candidates of the table."""
    stored = Counter(identity(case.stored) for case in cases)
    computed = Counter(identity(case.computed) for case in cases)
    agreeing = Counter(identity(case.stored) for case in cases if case.agrees)
    right = agreeing.total()
    if not right:
        return Verdict(cases, 0, False, 1.0)
    least_share, least_values, most, tries = (
        (_NAMED, 2, _BY_CHANCE_NAMED, 1) if named else (_MOSTLY, _LEAST_VALUES, _BY_CHANCE, tries)
    )
    share = right / len(cases)
    ((usual, usual_count),) = stored.most_common(1)
    beats_a_constant = 2 * (right - agreeing[usual]) >= len(cases) - usual_count > 0
    by_chance = 1.0
    if share >= least_share and beats_a_constant:
        chance = sum(count * computed[value] for value, count in stored.items()) / len(cases) ** 2
        by_chance = _probability(share, len(cases), chance) * tries
    return Verdict(cases, right, len(agreeing) >= least_values and by_chance <= most, by_chance)


def _probability(share: float, of: int, chance: float) -> float:
    """Return an upper bound of the probability that at least this share of items agrees if each does by this chance."""
    if share <= chance or chance >= 1:
        return 1.0
    divergence = share * math.log(share / chance)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - chance))
    return math.exp(-of * divergence)


def add_contradiction(rule: Rule, verdict: Verdict, every: Sequence[Case], table: Table, *, unseen: int = 0) -> Rule:
    """Return a rule with its counter-evidence. `every` are the cases of all items that it would write to; `unseen` is the
    number of items that could not be judged.
    """
    examples = sorted(
        (_example(case, table) for case in verdict.cases if not case.agrees), key=lambda each: each["key"]
    )
    contradiction = Contradiction(
        rule.into,
        " and ".join(rule.attributes),
        verdict.right,
        len(verdict.cases),
        tuple(examples[:_MOST_EXAMPLES]),
        changes=sum(None not in (case.stored, case.computed) and not case.agrees for case in every),
        adds=sum(case.stored is None and case.computed is not None for case in every),
        removes=sum(case.stored is not None and case.computed is None for case in every),
        unseen=unseen,
    )
    return replace(rule, doubt=contradiction.doubt, contradiction=contradiction)


def _example(case: Case, table: Table) -> dict[str, str]:
    key = " ".join(str(next(iter(case.row.item[name].values()))) for name in table.key_names)
    return {"key": key, "stored": _short_text(case.stored), "computed": _short_text(case.computed)}


def _short_text(value: Value | None) -> str:
    text = "nothing" if value is None else plain_words(plain(value))
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"

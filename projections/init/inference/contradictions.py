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
values, and 1:100.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from projections.init.inference.entities import Group
from projections.init.inference.proposal import Contradiction, Example
from projections.init.inference.rows import Row
from projections.init.inference.words import masked
from projections.init.table import Table
from projections.language.keys import key_text
from projections.language.values import Value

__all__ = [
    "Case",
    "Verdict",
    "contradiction",
    "differences",
    "doubt",
    "effect",
    "float_error",
    "identity",
    "judged",
    "others",
    "probability",
    "unjudged",
]

_MOSTLY = 0.75
_NAMED = 0.5
_BY_CHANCE = 1e-4
_BY_CHANCE_NAMED = 1e-2
_LEAST_VALUES = 3
_MOST_PAIRS = 200
_MOST_EXAMPLES = 3
_LONGEST_SHOWN = 40
_LONGEST_LIST = 120


@dataclass(frozen=True)
class Case:
    """An item with its stored and its computed value; None where absent."""

    row: Row
    stored: Value | None
    computed: Value | None

    @cached_property
    def agrees(self) -> bool:
        return identity(self.stored) == identity(self.computed)


Near = Callable[[Value, Value], bool]
"""Whether a stored value differs from the computed one only by rounding."""


@dataclass(frozen=True)
class Verdict:
    """How many of the cases agree, and how many of the others differ only by rounding."""

    cases: Sequence[Case]
    right: int
    near: int
    accepted: bool
    by_chance: float = 1.0
    """An upper bound of the probability that any of the table's candidates agrees as well by chance."""

    @property
    def all_right(self) -> bool:
        return self.right == len(self.cases) and self.right > 0

    @property
    def share(self) -> float:
        return (self.right + self.near) / len(self.cases)

    @property
    def rank(self) -> tuple[float, float]:
        """The better of two verdicts on an attribute is the greater one."""
        return self.right / len(self.cases), self.share


def identity(value: Value | None) -> object:
    """Return a text that is equal for equal values."""
    if value is None:
        return None
    ((kind, content),) = value.items()
    if kind == "N":
        try:
            return "N", key_text("N", str(content))
        except ArithmeticError:
            return "N", str(content)
    if kind == "L":
        return "L", tuple(identity(one) for one in content)
    if kind == "M":
        return "M", frozenset((name, identity(one)) for name, one in content.items())
    return kind, json.dumps(content, sort_keys=True) if isinstance(content, (list, dict)) else content


def judged(cases: Sequence[Case], tries: int, *, named: bool = False, near: Near | None = None) -> Verdict:
    """Return the verdict on cases that all have a stored value. `tries` is the number of candidates of the table."""

    def same(case: Case) -> bool:
        if case.agrees:
            return True
        both = case.stored is not None and case.computed is not None
        return near is not None and both and near(case.stored, case.computed)  # type: ignore[arg-type]

    agreeing = [case for case in cases if same(case)]
    right = sum(case.agrees for case in agreeing)
    share = len(agreeing) / len(cases) if cases else 0.0
    least_share, least_values, most, tries = (
        (_NAMED, 2, _BY_CHANCE_NAMED, 1) if named else (_MOSTLY, _LEAST_VALUES, _BY_CHANCE, tries)
    )
    usual = share < least_share or not _beats_a_constant(cases, agreeing)
    by_chance = 1.0 if usual else probability(len(agreeing), len(cases), _chance(cases, near)) * tries
    values = len({identity(case.computed) for case in agreeing})
    return Verdict(cases, right, len(agreeing) - right, values >= least_values and by_chance <= most, by_chance)


def probability(right: int, of: int, chance: float) -> float:
    """Return an upper bound of the probability that at least `right` of `of` items agree if each does by this chance."""
    share = right / of
    if share <= chance or chance >= 1:
        return 1.0
    divergence = share * math.log(share / chance)
    if share < 1:
        divergence += (1 - share) * math.log((1 - share) / (1 - chance))
    return math.exp(-of * divergence)


def _beats_a_constant(cases: Sequence[Case], agreeing: Sequence[Case]) -> bool:
    ((usual, _),) = Counter(identity(case.stored) for case in cases).most_common(1)
    others = sum(identity(case.stored) != usual for case in cases)
    return 2 * sum(identity(case.stored) != usual for case in agreeing) >= others > 0


def _chance(cases: Sequence[Case], near: Near | None) -> float:
    """Return the share of agreement between the stored and the computed values of any two items."""
    if near is None:
        stored, computed = (Counter(identity(value) for value in side) for side in zip(*map(_both, cases), strict=True))
        return sum(count * computed[value] for value, count in stored.items()) / len(cases) ** 2
    some = cases[:: max(1, len(cases) // _MOST_PAIRS)]
    pairs = [(one.stored, other.computed) for one in some for other in some]
    return sum(identity(a) == identity(b) or (a is not None and b is not None and near(a, b)) for a, b in pairs) / len(
        pairs
    )


def _both(case: Case) -> tuple[Value | None, Value | None]:
    return case.stored, case.computed


# What is reported


def contradiction(
    verdict: Verdict,
    every: Sequence[Case],
    group: Group,
    attribute: str,
    table: Table,
    *,
    unseen: int = 0,
    note: str = "",
) -> Contradiction:
    """Return the counter-evidence. `every` are the cases of all items that the rule would write to; `unseen` is the number
    of items that could not be judged.
    """
    wrong = [case for case in verdict.cases if not case.agrees]
    return Contradiction(
        group.entity.name,
        attribute,
        verdict.right,
        len(verdict.cases),
        verdict.near,
        tuple(
            _example(case, table)
            for case in sorted(wrong, key=lambda case: _shown_key(case.row, table))[:_MOST_EXAMPLES]
        ),
        sum(case.stored is not None and case.computed is not None and not case.agrees for case in every),
        sum(case.stored is None and case.computed is not None for case in every),
        sum(case.stored is not None and case.computed is None for case in every),
        unseen,
        note,
    )


def differences(found: Contradiction) -> list[str]:
    """Return a phrase for each example, with its key, and one for the number of others."""
    phrases = [f"{' '.join(one.key.values())}: stored {one.stored}, computed {one.computed}" for one in found.examples]
    return [*phrases, *([f"{_others(found)} more"] if _others(found) else [])]


def _others(found: Contradiction) -> int:
    return found.judged - found.right - len(found.examples)


def effect(found: Contradiction) -> str:
    """Return what the rule would do to the items of the sample if it were live."""
    listed = effects(found.entity, found.attribute, found.changes, found.adds, found.removes, least=found.unseen > 0)
    return f"live, it would {listed or f'change no {found.entity} item'}"


def effects(entity: str, attribute: str, changes: int, adds: int, removes: int, *, least: bool = False) -> str:
    """Return how many items a rule changes, as words; empty if none."""
    parts = [
        f"{verb} {'at least ' if least else ''}{_items(number, entity)}"
        for verb, number in (
            (f"change {attribute} of", changes),
            (f"add {attribute} to", adds),
            (f"remove {attribute} from", removes),
        )
        if number
    ]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def others(every: Sequence[Case], entity: str, attribute: str, *, least: bool) -> str:
    """Return what a rule that all compared items agree with would do to the other items, empty if nothing."""
    adds = sum(case.stored is None and case.computed is not None for case in every)
    removes = sum(case.stored is not None and case.computed is None for case in every)
    listed = effects(entity, attribute, 0, adds, removes, least=least)
    return f"; live, it would {listed}" if listed else ""


def doubt(found: Contradiction) -> str:
    """Return the counter-evidence and the effect as sentences for a file, without keys and texts of the table."""
    examples = "; ".join(
        f"stored {stored}, computed {computed}" for stored, computed in (one.hidden for one in found.examples)
    )
    wrong = found.judged - found.right
    sentences = [f"{wrong} contradict{'s' * (wrong == 1)} it{', such as' if _others(found) else ''}: {examples}"]
    sentences += [text for text in (found.note, unjudged(found)) if text]
    text = effect(found)
    return ". ".join([*sentences, text[0].upper() + text[1:]])


def unjudged(found: Contradiction) -> str:
    """Return a sentence on the items that could not be judged, empty if all were."""
    if not found.unseen:
        return ""
    items = _items(found.unseen, found.entity)
    return f"{items} could not be compared: items that the value depends on may be outside the sample"


def _items(number: int, entity: str) -> str:
    return f"{number:,} {entity} item" + "s" * (number != 1)


def _example(case: Case, table: Table) -> Example:
    return Example(
        {name: str(next(iter(case.row.item[name].values()))) for name in table.key_names},
        _shown(case.stored),
        _shown(case.computed),
        (_shown(case.stored, hidden=True), _shown(case.computed, hidden=True)),
    )


def _shown_key(row: Row, table: Table) -> str:
    return " ".join(str(next(iter(row.item[name].values()))) for name in table.key_names)


def _shown(value: Value | None, *, hidden: bool = False) -> str:
    """Return a value as a short text; `hidden` masks all except numbers."""
    if value is None:
        return "nothing"
    ((kind, content),) = value.items()
    if kind == "N":
        try:
            return key_text("N", str(content))
        except ArithmeticError:
            return str(content)
    if kind == "S":
        text = masked(content) if hidden else content
        return f'"{_cut(text, _LONGEST_SHOWN)}"'
    if kind == "L" and content and not hidden:
        return f"[{_cut(', '.join(map(_shown, content)), _LONGEST_LIST)}]"
    if kind == "L":
        return f"a list of {len(content)}"
    if kind == "M":
        return "{" + ", ".join(f"{name}: {_shown(one, hidden=hidden)}" for name, one in sorted(content.items())) + "}"
    if kind == "BOOL":
        return "true" if content else "false"
    return f"a value of type {kind}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def float_error(stored: Value, computed: Value) -> bool:
    """Return whether two numbers differ by no more than the error of a few floating-point operations."""
    if "N" not in stored or "N" not in computed:
        return False
    try:
        one, other = Decimal(stored["N"]), Decimal(computed["N"])
    except ArithmeticError:
        return False
    return one != other and abs(one - other) <= Decimal("1e-12") * max(abs(one), abs(other))

"""Whether what is known of an item implies a pattern, or excludes it.

The proof is sound and incomplete: True only if it holds for every item. Each test of a pattern is compared with the known
tests of the same name, alternative by alternative. A value that is a list or a set matches if one of its elements does,
so two different scalars exclude each other only for a name that has one value, as all names in a key have.

The last part asks which attributes are numbers, as far as rules show it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.canonical import Aggregate, Copy, Document, Embed, Index, Latest, Rank, Rule
from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.patterns import (
    Affix,
    Alternative,
    AnythingBut,
    Compares,
    Condition,
    Either,
    Equals,
    Exists,
    Named,
    Numeric,
    Operand,
    Pattern,
    Test,
    compared_type,
)
from projections.language.templates import Field, Template
from projections.language.values import wire


@dataclass(frozen=True, slots=True)
class Known:
    """What holds for an item: patterns that it matches, names that have a value, and names whose value is one scalar."""

    patterns: tuple[Pattern, ...]
    present: frozenset[str]
    scalar: frozenset[str]

    def tests(self, name: str) -> Iterator[Test]:
        for pattern in self.patterns:
            for condition in pattern.conditions:
                if isinstance(condition, Test) and condition.name == name:
                    yield condition

    @property
    def choices(self) -> Iterator[Either]:
        for pattern in self.patterns:
            for condition in pattern.conditions:
                if isinstance(condition, Either):
                    yield condition

    def assuming(self, branch: tuple[Condition, ...], without: Either) -> Known:
        """Return what is known if this branch of a choice holds."""
        rest = tuple(
            Pattern(tuple(one for one in pattern.conditions if one is not without), {}) for pattern in self.patterns
        )
        return Known((*rest, Pattern(branch, {})), self.present, self.scalar)


def implies(known: Known, pattern: Pattern) -> bool:
    """Return whether every item of which this is known matches the pattern."""
    return all(_condition_holds(known, condition) for condition in pattern.conditions)


def excludes(known: Known, pattern: Pattern) -> bool:
    """Return whether no item of which this is known matches the pattern."""
    return any(_condition_fails(known, condition) for condition in pattern.conditions)


def known_present(known: Known, name: str) -> bool:
    """Return whether every item of which this is known has a value of this name."""
    return _condition_holds(known, Test(name, (Exists(True),)))


# --- conditions ---


def _condition_holds(known: Known, condition: Condition) -> bool:
    if isinstance(condition, Either):
        if any(all(_condition_holds(known, one) for one in branch) for branch in condition.branches):
            return True
    elif _test_holds(known, condition):
        return True
    return any(
        all(_condition_holds(known.assuming(branch, choice), condition) for branch in choice.branches)
        for choice in known.choices
    )


def _condition_fails(known: Known, condition: Condition) -> bool:
    if isinstance(condition, Either):
        if all(any(_condition_fails(known, one) for one in branch) for branch in condition.branches):
            return True
    elif _test_fails(known, condition):
        return True
    return any(
        all(_condition_fails(known.assuming(branch, choice), condition) for branch in choice.branches)
        for choice in known.choices
    )


def _test_holds(known: Known, test: Test) -> bool:
    if known.present & {test.name, *_longer(known.present, test.name)} and Exists(True) in test.alternatives:
        return True
    if Exists(True) in test.alternatives and any(_compared_with(pattern, test.name) for pattern in known.patterns):
        return True
    scalar = test.name in known.scalar
    return any(
        all(any(_implies(held, wanted, scalar) for wanted in test.alternatives) for held in one.alternatives)
        for one in known.tests(test.name)
        if one.alternatives
    )


def _compared_with(pattern: Pattern, name: str) -> bool:
    """Return whether items match a pattern only if they have this value, because another one is compared with it."""
    return any(
        isinstance(one, Test)
        and one.alternatives != ()
        and all(isinstance(each, Compares) and name in each.names for each in one.alternatives)
        for one in pattern.conditions
    )


def _longer(names: Collection[str], name: str) -> list[str]:
    return [one for one in names if one.startswith(name + ".")]


def _test_fails(known: Known, test: Test) -> bool:
    if test.name in known.present and all(one == Exists(False) for one in test.alternatives):
        return True
    scalar = test.name in known.scalar
    return any(
        all(_disjoint(held, other, scalar) for held in one.alternatives for other in test.alternatives)
        for one in known.tests(test.name)
    )


# --- alternatives ---


def _implies(held: Alternative, wanted: Alternative, scalar: bool) -> bool:
    """Return whether a value that matches one alternative matches the other."""
    if held == wanted:
        return True
    if isinstance(held, Exists):
        return False
    if wanted == Exists(True):
        return True
    match held, wanted:
        case Equals(), Compares() if wanted.names:
            return False
        case Equals(), Equals() | Affix() | Numeric() | Compares():
            return _fits(held.value, wanted)
        case Equals(), AnythingBut() if scalar:
            return not any(_fits(held.value, one) for one in wanted.excluded)
        case Affix("prefix", text, False), Affix("prefix", shorter, False):
            return text.startswith(shorter)
        case Affix("suffix", text, False), Affix("suffix", shorter, False):
            return text.endswith(shorter)
        case Numeric() | Compares(), Numeric() | Compares():
            return all(_bound_holds(held, sign, bound) for sign, bound in wanted.bounds)
        case AnythingBut(), AnythingBut():
            return set(wanted.excluded) <= set(held.excluded)
    return False


def _disjoint(held: Alternative, other: Alternative, scalar: bool) -> bool:
    """Return whether no value matches both alternatives."""
    if held == Exists(False) or other == Exists(False):
        return held != other
    if not scalar or held == Exists(True) or other == Exists(True):
        return _excluded(held, other) or _excluded(other, held)
    match held, other:
        case (Compares(), Equals()) | (Equals(), Compares()) if _names(held) or _names(other):
            return False
        case Equals(), _:
            return not _fits(held.value, other)
        case _, Equals():
            return not _fits(other.value, held)
        case Affix("prefix", one, False), Affix("prefix", two, False):
            return not one.startswith(two) and not two.startswith(one)
        case Numeric() | Compares(), Numeric() | Compares():
            return _apart(held, other)
    return False


def _names(alternative: Alternative) -> tuple[str, ...]:
    return alternative.names if isinstance(alternative, Compares) else ()


def _excluded(held: Alternative, other: Alternative) -> bool:
    return isinstance(held, AnythingBut) and any(_implies(other, one, False) for one in held.excluded)


def _fits(value: Any, alternative: Alternative) -> bool:
    """Return whether one scalar matches an alternative."""
    return Pattern((Test("x", (alternative,)),), {}).matches(lambda name, stored=False: wire(value))


_IMPLIED: Mapping[str, tuple[str, ...]] = {
    "<": ("<", "<=", "!="),
    "<=": ("<=",),
    ">": (">", ">=", "!="),
    ">=": (">=",),
    "=": ("=", "<=", ">="),
    "!=": ("!=",),
}
"""By sign: the comparisons with the same value that it implies."""
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}


def _bound_holds(held: Numeric | Compares, sign: str, bound: Operand) -> bool:
    """Return whether every value within the bounds of `held` is also within this one."""
    for own, limit in held.bounds:
        if isinstance(bound, Named) or isinstance(limit, Named) or limit == bound:
            if limit == bound and sign in _IMPLIED[own]:
                return True
        elif own == "=":
            if _fits(limit, Compares(((sign, bound),))):
                return True
        elif own != "!=" and sign[0] in (own[0], "!") and _fits(limit, Compares(((own, bound),))):
            return True  # `limit` is on that side of `bound`, so all values beyond it are, too
    return False


def _apart(one: Numeric | Compares, other: Numeric | Compares) -> bool:
    """Return whether no scalar is within both."""
    types = {compared_type(one), compared_type(other)}
    return types == {"N", "S"} or any(
        _bound_holds(first, _OPPOSITE[sign], bound)
        for first, second in ((one, other), (other, one))
        for sign, bound in second.bounds
    )


def is_number(document: Document, entity: str, name: str) -> bool:
    """Return whether the items of an entity have only numbers in an attribute."""
    declared = document.entities[entity]
    table = document.tables[declared.table]
    pairs = [table.partition, *([table.sort] if table.sort else [])]
    for keys in table.indexes.values():
        pairs += [*keys.partition, *keys.sort]
    if (name, "N") in pairs:
        return True
    if any("{" + name + "}" == declared.key.get(attribute) for attribute, kind in pairs if kind == "N"):
        return True
    for rule in document.rules.values():
        if isinstance(rule, Aggregate) and rule.into == entity and name in rule.set:
            measure = rule.set[name]
            if measure.function in PICKED:
                return _of_sources(document, rule, entity, str(measure.expression))
            if measure.function in VALUES:
                return measure.function == "distinct"
            return measure.function not in EXTREMES or not str(measure.expression).startswith("text(")
        if isinstance(rule, Copy | Latest | Embed) and rule.into == entity and name in (rule.attributes or {}):
            if name not in rule.written:  # it is in the elements of a list
                continue
            assert rule.attributes is not None
            source = attribute_source(rule.attributes[name])
            if source.type == "N":
                return True
            if isinstance(rule, Latest) and source.path is not None and entity not in rule.sources:
                return _of_sources(document, rule, entity, source.path)
    return compares_as_number(Pattern.parse(declared.match or {}), name)


def used_as_number(document: Document, entity: str, name: str) -> str | None:
    """Return why an attribute is a number, if a rule that reads it rejects anything else; None if none does.

    The variables and attributes of a copy are what those of its source are.
    """
    return next(_uses(document, entity, name, ()), None)


def _uses(document: Document, entity: str, name: str, seen: tuple[str, ...]) -> Iterator[str]:
    for rule_name, rule in document.rules.items():
        if isinstance(rule, Copy) and rule.into == entity and rule.source not in (entity, *seen):
            path = _copied(rule, name)
            yield from _uses(document, rule.source, path, (*seen, entity)) if path is not None else ()
        if entity not in rule.sources:
            continue
        if isinstance(rule, Rank) and _reads(rule.by, name):
            yield f"rule {rule_name} ranks it"
        if isinstance(rule, Aggregate):
            added = (one.expression for one in rule.set.values() if one.function in ("sum", "avg"))
            if any(_reads(str(expression), name) for expression in added if expression):
                yield f"rule {rule_name} adds it up"
        for text in _texts(rule):
            if any(field.name == name and field.pipes[0].name in ("pad", "invert") for field in _piped(text)):
                yield f"rule {rule_name} pads it"


def _copied(rule: Copy, name: str) -> str | None:
    """Return the name that the source has for a name of the copy; None if it has another text, or if there is none."""
    if (text := rule.bind.get(name)) is not None:
        template = Template.parse(text)
        return template.single if template.single is not None and template.fields[0].plain else None
    return name if rule.attributes is None else rule.attributes.get(name, name)


def is_whole(document: Document, entity: str, name: str) -> bool:
    """Return whether `pad` can take a number: as far as rules show, it is neither a fraction nor negative."""
    for rule in document.rules.values():
        if isinstance(rule, Rank) and entity in rule.sources and rule.decimals and _reads(rule.by, name):
            return False
        if isinstance(rule, Aggregate) and rule.into == entity and name in rule.set:
            function, expression = rule.set[name].function, rule.set[name].expression
            if function == "avg" or (expression and Expression.parse(str(expression)).is_negative):
                return False
    return True


def _reads(expression: str, name: str) -> bool:
    factors = Expression.parse(expression).factors
    return any(factor.path == name and not factor.from_text for factor in factors)


def _texts(rule: Rule) -> Iterator[str]:
    yield from rule.bind.values()
    if isinstance(rule, Index):
        for case in rule.cases:
            yield from case.set.values()


def _piped(text: str) -> Iterator[Field]:
    return (field for field in Template.parse(text).fields if field.pipes and field.expression is None)


def _of_sources(document: Document, rule: Rule, entity: str, path: str) -> bool:
    """Return whether the items of all sources, none of which is `entity`, have only numbers at a path."""
    return entity not in rule.sources and all(is_number(document, source, path) for source in rule.sources)


def compares_as_number(pattern: Pattern, name: str) -> bool:
    """Return whether every item that matches a pattern has a number in an attribute."""
    return any(
        isinstance(one, Test) and one.name == name and all(compared_type(a) == "N" for a in one.alternatives)
        for one in pattern.conditions
    )

"""Whether a rule applies to an item, and why not.

The compiled rule decides. The reasons come from the same patterns, templates and expressions, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.errors import BadInput
from projections.language import canonical
from projections.language.embeds import EmbedRule
from projections.language.entity import Item, Resolve, resolver
from projections.language.keys import Value
from projections.language.patterns import Either, Pattern, Test
from projections.language.program import Program
from projections.language.rules import CopyRule, Each, IndexRule, LedgerRule, Rule
from projections.language.templates import Template
from projections.language.values import shown

__all__ = ["Verdict", "references", "unmet", "verdict"]

MOST_ELEMENTS = 5
"""Elements of an `each` that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a rule applies to an item as its source, and why not. `bad`: it cannot be evaluated for the item."""

    applies: bool
    reasons: tuple[str, ...] = ()
    bad: bool = False


def verdict(program: Program, rule: Rule, item: Item) -> Verdict:
    """Return whether a rule applies to an item of its source entity."""
    try:
        applies = _applies(rule, item)
        reasons = () if applies else tuple(_reasons(program, rule, item))
    except BadInput as problem:
        return Verdict(False, (str(problem),), bad=True)
    return Verdict(applies, reasons)


def _applies(rule: Rule, item: Item) -> bool:
    match rule:
        case IndexRule():
            return any(value is not None for value in rule.desired(item).values())
        case EmbedRule():
            return bool(rule.embedded(item))
        case CopyRule():
            return bool(rule.copies(item))
        case LedgerRule():
            return bool(rule.contributions(item)[0])
    raise NotImplementedError(rule.kind)


def unmet(pattern: Pattern, resolve: Resolve) -> Iterator[str]:
    """Yield the conditions of a pattern that do not hold, each with the item's value."""
    for condition in pattern.conditions:
        if condition.compile()(resolve):
            continue
        if isinstance(condition, Test):
            yield f"{condition.name} {_seen(resolve(condition.name))}; wanted: {condition}"
        else:
            yield f"neither holds of {_either(condition, resolve)}"


def _seen(value: Value | None) -> str:
    """Return a value, or its type for lists, maps and binary values."""
    if value is None:
        return "is absent"
    tag, content = next(iter(value.items()))
    if tag == "BOOL":
        return f"is {str(content).lower()}"
    return f"is {shown(value)}"


def _either(condition: Either, resolve: Resolve) -> str:
    names = Pattern((condition,), {}).names
    seen = ", ".join(f"{name} {_seen(resolve(name))}" for name in names)
    return f"{condition}: {seen}"


def _missing(names: Iterable[str], resolve: Resolve) -> list[str]:
    return [name for name in dict.fromkeys(names) if resolve(name) is None]


def _reasons(program: Program, rule: Rule, item: Item) -> Iterator[str]:
    match typed := program.typed.rules[rule.name]:
        case canonical.Index():
            yield from _index_reasons(typed, item)
        case canonical.Embed():
            yield from _embed_reasons(typed, item)
        case _:
            yield from _scope_reasons(program, typed, rule.each, item)


def _where(where: Mapping[str, Any] | None, resolve: Resolve, prefix: str = "where: ") -> list[str]:
    return [prefix + reason for reason in unmet(Pattern.parse(where), resolve)] if where else []


def _index_reasons(rule: canonical.Index, item: Item) -> Iterator[str]:
    resolve = resolver(item)
    failed = _where(rule.where, resolve)
    yield from failed
    if failed:
        return
    many = len(rule.cases) > 1
    for number, case in enumerate(rule.cases, 1):
        prefix = f"case {number}: " if many else ""
        unfit = _where(case.where, resolve, prefix + "where: ")
        yield from unfit
        if unfit:
            continue
        lacks = _missing((n for text in case.set.values() for n in Template.parse(text).names), resolve)
        yield f"{prefix}it applies, but the item has no {' and no '.join(lacks)}"
        return  # the first case that applies decides


def _embed_reasons(rule: canonical.Embed, item: Item) -> Iterator[str]:
    resolve = resolver(item)
    failed = _where(rule.where, resolve)
    yield from failed
    if not failed:
        yield f"the item does not have {' or '.join(rule.attributes.values())}"


def _scope_reasons(program: Program, rule: canonical.Rule, each: Each | None, item: Item) -> Iterator[str]:
    plain = resolver(item)
    if each is None:
        yield from _element_reasons(program, rule, item, {})
        return
    elements = list(each.elements(plain))
    if not elements:
        value = plain(each.path)
        yield f"each: {each.path} {'is absent' if value is None else 'has no element to count'}"
    for element in elements[:MOST_ELEMENTS]:
        reasons = "; ".join(_element_reasons(program, rule, item, {each.variable: element}))
        yield f"{each.variable} = {shown(element)}: {reasons}"
    if len(elements) > MOST_ELEMENTS:
        yield f"and {len(elements) - MOST_ELEMENTS} more elements"


def _element_reasons(program: Program, rule: canonical.Rule, item: Item, element: Mapping[str, Value]) -> Iterator[str]:
    resolve = resolver(item, element) if element else resolver(item)
    failed = _where(rule.where, resolve)
    yield from failed
    if failed:
        return
    wanted: list[tuple[str, list[str]]] = []
    bound = rule.bind
    for variable, text in bound.items():
        wanted.append((f"{variable} of the target's key", _missing(Template.parse(text).names, resolve)))
    into = program.entities[rule.into]
    free = [name for pattern in into.patterns for name in pattern.names if name not in bound]
    wanted.append((f"the key of {into.name}", _missing(free, resolve)))
    if isinstance(rule, canonical.Top | canonical.Latest):
        wanted.append(("`by`", _missing([rule.by], resolve)))
    if isinstance(rule, canonical.Copy):
        texts = [value for value in rule.values.values() if isinstance(value, str)]
        wanted.append(("`values`", _missing((n for text in texts for n in Template.parse(text).names), resolve)))
    for what, lacks in wanted:
        if lacks:
            yield f"{what} needs {' and '.join(lacks)}, which the item lacks"


def references(rule: EmbedRule, child: Item) -> str | None:
    """Return why a child references no parent, or None."""
    try:
        if rule.reference(child) is not None:
            return None
        resolve = resolver(child)
        lacks = _missing((name for name, _ in rule.match), resolve)
    except BadInput as problem:
        return str(problem)
    if lacks:
        return f"it has no {' and no '.join(lacks)}"
    seen = ", ".join(f"{name} {_seen(resolve(name))}" for name, _ in rule.match)
    return f"no {rule.source.name} has such a key: {seen}"

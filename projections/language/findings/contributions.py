"""What reaches a rule: values of disabled rules, a past that changes, and quotients with too many digits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from projections.language.arithmetic import Constant, Expression, Factor, Node, Operation
from projections.language.attribute_sources import attribute_source
from projections.language.contribution import DIGITS_AFTER
from projections.language.facts import inputs
from projections.language.findings.kinds import (
    MOVING_HISTORY,
    READS_DISABLED,
    UNROUNDED_QUOTIENT,
    Remark,
)
from projections.language.findings.reads import Read, expression_place, offset_of, reads
from projections.language.findings.rule_facts import Facts
from projections.language.measures import ROUNDED, Measure
from projections.language.mistakes import Location
from projections.language.models import Projection
from projections.language.shapes import attribute_map, computed_cases
from projections.language.syntax import an
from projections.language.values import number_text

__all__ = ["disabled", "history", "quotients"]


def disabled(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about rules that read what a disabled rule no longer keeps up to date."""
    if all(rule.enabled for rule in facts.projections.values()):
        return
    for name, given in inputs(facts.typed).items():
        for other, attributes in given.items():
            if facts.projections[other].enabled or not facts.projections[name].publishes:
                continue
            entity = facts.projections[other].into
            what = ", ".join(f"{entity}.{attribute}" for attribute in attributes) or f"{entity} items"
            yield Remark(
                READS_DISABLED,
                ("projections", name),
                f"reads {what}, which rule {other} no longer keeps up to date, because it is disabled",
                f"enable {other}, disable {name} as well, or accept that {name} derives outdated values",
                at_key=True,
            )


@dataclass(frozen=True, slots=True)
class _Moving:
    """Why an attribute changes with a parent: a rule embeds it, or computes it from `origin`, which is embedded."""

    embed: str
    parent: str
    computed: str | None = None
    origin: str | None = None


def history(facts: Facts) -> Iterator[Remark]:
    """Yield one remark for each attribute that changes with a parent, and that an aggregate groups by, or measures."""
    moving = {
        (rule.into, attribute): _Moving(name, rule.source)
        for name, rule in facts.projections.items()
        if rule.embed is not None
        for attribute, path in attribute_map(rule.embed.attributes).items()
        if not _is_fixed(facts, rule.source, path)
    }
    if not moving:
        return
    all_reads = [one for one in reads(facts.rules) if "where" not in one.place and "each" not in one.place]
    _add_computed(facts, moving, all_reads)
    seen: set[tuple[str, str, str]] = set()
    for read in all_reads:
        if facts.projections[read.rule].aggregate is None:
            continue
        found = moving.get((read.entity, read.root))
        if found is None or (read.rule, read.entity, read.root) in seen:
            continue
        seen.add((read.rule, read.entity, read.root))
        computed = f"rule {found.computed} computes {read.root} from {found.origin}, and " if found.computed else ""
        once = f"add `once: true` to rule {found.computed}, or " if found.computed else ""
        yield Remark(
            MOVING_HISTORY,
            read.place,
            f"{computed}rule {found.embed} keeps {found.origin or read.root} of {read.entity} items equal to that of their "
            f"{found.parent}: if {an(found.parent)} changes, the contributions of existing {read.entity} items change, too",
            f"if they must not change, {once}record the value once, and read the recorded attribute: "
            f"{{from: {read.entity}, compute: {{set: {{{read.root}Then: {read.root}}}, once: true}}}}",
            offset=read.offset,
        )


def _add_computed(facts: Facts, moving: dict[tuple[str, str], _Moving], all_reads: list[Read]) -> None:
    """Add what compute rules set, not once, from an attribute that changes with a parent."""
    found = True
    while found:
        found = False
        for read in all_reads:
            compute = facts.projections[read.rule].compute
            if compute is None or compute.once or (before := moving.get((read.entity, read.root))) is None:
                continue
            written = (read.entity, str(read.place[4]))  # projections, the rule, compute, set, the attribute
            if written not in moving:
                moving[written] = _Moving(before.embed, before.parent, read.rule, before.origin or read.root)
                found = True


def _is_fixed(facts: Facts, entity: str, source: str) -> bool:
    """Return whether an item never changes this value: it is of its key, or of the key of the item that it is a copy of."""
    return all(_is_of_key(facts, entity, path) for path in attribute_source(source).names)


def _is_of_key(facts: Facts, entity: str, path: str) -> bool:
    if path in facts.variables(entity):
        return True
    copy = facts.projections[facts.copies[entity]] if entity in facts.copies else None
    if copy is None or copy.copy_ is None or copy.copy_.attributes == "all":
        return False
    source = attribute_map(copy.copy_.attributes).get(path)
    return source is not None and set(facts.variables(copy.source)).issuperset(attribute_source(source).names)


@dataclass(frozen=True, slots=True)
class _Use:
    """An expression in a rule. `form` is the text or the measure that it is in.

    `limit` is what cannot take a quotient as it is.
    """

    place: Location
    form: Any
    node: Node
    limit: str = ""


def quotients(facts: Facts) -> Iterator[Remark]:
    """Yield at most one remark for each expression."""
    computed: dict[str, dict[str, str]] = {}
    for name, rule in facts.projections.items():
        if rule.compute is not None:
            of_entity = computed.setdefault(rule.source, {})
            for attribute, form in rule.compute.set.items():
                if any(_unrounded(node, ()) for node in _of_cases(form)):
                    of_entity[attribute] = name
    for name, rule in facts.projections.items():
        rules = {attribute: by for source in rule.sources for attribute, by in computed.get(source, {}).items()}
        for use in _uses(name, rule):
            yield from _remarks(use, rules)


def _uses(name: str, rule: Projection) -> Iterator[_Use]:
    place: Location = ("projections", name, rule.kind)
    if rule.aggregate is not None:
        for attribute, form in rule.aggregate.set.items():
            measure = Measure.parse(attribute, form)
            if measure.expression is not None:
                at = expression_place(form, (*place, "set", attribute))
                most = f"{measure.function} takes at most {DIGITS_AFTER} digits after the decimal point"
                limit = most if measure.function in ROUNDED else ""
                yield _Use(at, form, measure.expression.node, limit)
    elif rule.rank is not None:
        places = rule.rank.decimals
        limit = f"a score has at most {places} decimal places" if places else "a score is a whole number"
        yield _Use((*place, "by"), rule.rank.by, Expression.parse(rule.rank.by).node, limit)


def _of_cases(form: Any) -> Iterator[Node]:
    """Yield the expressions among the cases of a computed attribute."""
    for _, _, kind, content in computed_cases(form):
        if kind == "expression":
            yield Expression.parse(content, "value").node


def _remarks(use: _Use, computed: dict[str, str]) -> Iterator[Remark]:
    found = _unrounded(use.node, computed) if use.limit else None
    if found is None:
        return
    by = computed.get(found.path) if isinstance(found, Factor) else None
    shown = _words(found) or "the quotient"
    why = f"{use.limit}. Other numbers are bad input: the item contributes nothing to the rule"
    reason = f"{f'{shown}, which rule {by} computes,' if by else shown} can have 38 digits, and {why}"
    instead = f"round it in rule {by}" if by else "round the quotient first"
    example = f": round({shown}, 4)" if _words(found) and not by else ""
    name = next(iter(Expression("", found).names), "")
    yield Remark(UNROUNDED_QUOTIENT, use.place, reason, f"{instead}{example}", offset_of(use.form, name))


def _unrounded(node: Node, computed: Collection[str]) -> Node | None:
    """Return a quotient that may be, or be a part of, the result, and has no rounding; or a computed attribute that has."""
    if isinstance(node, Factor):
        return node if node.path in computed and not node.as_text else None
    if isinstance(node, Constant) or node.name == "round":
        return None
    if node.name == "/" and not _comes_out_even(node.inner[1]):
        return node
    return next((found for inner in node.inner if (found := _unrounded(inner, computed)) is not None), None)


def _comes_out_even(divisor: Node) -> bool:
    """Return whether a division by this constant adds few digits: its only prime factors are 2 and 5, as in 100 or 8."""
    if not isinstance(divisor, Constant) or not isinstance(divisor.value, Decimal) or not divisor.value:
        return False
    number = int("".join(map(str, divisor.value.as_tuple().digits)))
    for prime in (2, 5):
        while number % prime == 0:
            number //= prime
    return number == 1


def _words(node: Node) -> str:
    """Return the text of a path, or of the quotient of two paths or constants."""
    if isinstance(node, Factor):
        return node.path
    if isinstance(node, Constant):
        return number_text(node.value) if isinstance(node.value, Decimal) else ""
    parts = [_words(inner) if not isinstance(inner, Operation) else "" for inner in node.inner]
    return " / ".join(parts) if node.name == "/" and all(parts) else ""

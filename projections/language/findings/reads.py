"""The names that each rule reads, with the entity of the items and the place in the rule file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from projections.language.arithmetic import Expression
from projections.language.kinds import AnyProjection, AnyRules, Part, listed_once
from projections.language.patterns import Pattern
from projections.language.patterns.tree import Test, tests_in
from projections.language.syntax import Location, root
from projections.language.templates import Field, Template


class Read(NamedTuple):
    """A variable or dotted path that a rule reads on items of an entity."""

    rule: str
    entity: str
    name: str
    place: Location
    offset: int | None = None
    at_key: bool = False
    field: Field | None = None
    """The pipes, if it is in a template."""
    optional: bool = False
    """As of `Part`. With several sources, it is then enough that the items of one have the value."""

    @property
    def root(self) -> str:
        return root(self.name)


class Tested(NamedTuple):
    """A condition on one name of an entity's items."""

    rule: str
    entity: str
    test: Test
    place: Location
    optional: bool = False


class Computes(NamedTuple):
    """An expression of a rule, or one in braces in a template of it. `text` is what stands at `place`."""

    rule: str
    entity: str
    expression: Expression
    place: Location
    text: str
    numeric: bool = False
    """Whether its result must be a number."""


@listed_once
def reads(rules: AnyRules) -> Iterator[Read]:
    """Yield all names that rules read on items. For elements of `each` that is the path of the list."""
    tested: dict[str, list[Tested]] = {}
    for one in tests(rules):
        tested.setdefault(one.rule, []).append(one)
    for name, rule in rules.variants():
        variable = rule.each.variable if rule.each is not None else None
        for read in _reads(rules, name, rule, tested.get(name, [])):
            if read.root != variable:
                yield read


def _reads(rules: AnyRules, name: str, rule: AnyProjection, own: Sequence[Tested]) -> Iterator[Read]:
    place: Location = ("projections", name)
    source = rule.source
    for tested in own:
        if tested.entity == source:
            for position, read in enumerate(tested.test.names):
                yield Read(name, source, read, tested.place, at_key=position == 0, optional=tested.optional)
    if rule.each is not None:
        inner = ("ancestors",) if rule.each.ancestors else ()
        yield Read(name, source, rule.each.path, (*place, *rule.place("each", rule.each.variable, *inner)))
    if rule.action.makes_key:
        for variable in rules.entities[rule.into].variables:
            if variable not in rule.bind:
                yield Read(name, source, variable, (*place, rule.kind, "into"))
    for child in rule.action.matched:
        yield Read(name, rule.into, child, (*place, rule.kind, "match", child), at_key=True)
    for part in rule.parts():
        at = (*place, *part.place)
        if isinstance(part.value, Template):
            yield from _template(Read(name, source, "", at, optional=part.optional), part.value)
        elif isinstance(part.value, Expression):
            for path in part.value.names:
                yield Read(name, source, path, at, offset_of(part, path), optional=part.optional)


def _template(read: Read, template: Template) -> Iterator[Read]:
    text = template.text
    for field in template.fields:
        at = text.find("{" + field.name)
        if field.expression is None:
            yield read._replace(name=field.name, offset=at + 1 if at >= 0 else None, field=field)
            continue
        for path in field.names:  # its pipes apply to the result, and say nothing about these values
            yield read._replace(name=path, offset=max(text.find(path, max(text.find(field.name), 0)), 0))


def offset_of(part: Part, path: str) -> int | None:
    """Return where a path stands in the text at the place of a part."""
    at = part.text.find(path)
    return at if at > 0 else None


# --- expressions ---


@listed_once
def expressions(rules: AnyRules) -> Iterator[Computes]:
    """Yield every expression in a rule: of measures, ranks, computed and listed attributes, and in templates."""
    for name, rule in rules.variants():
        for part in rule.parts():
            place = ("projections", name, *part.place)
            if isinstance(part.value, Expression):
                yield Computes(name, rule.source, part.value, place, part.text, bool(part.limit))
            elif isinstance(part.value, Template):
                for field in part.value.fields:
                    if field.expression is not None:
                        yield Computes(name, rule.source, field.expression, place, part.text)


# --- conditions ---


@listed_once
def tests(rules: AnyRules) -> Iterator[Tested]:
    """Yield every condition in a rule, including those of cases and measures."""
    for name, rule in rules.variants():
        for part in rule.parts():
            for test in tests_in(part.value.conditions) if isinstance(part.value, Pattern) else ():
                place = ("projections", name, *part.place, *test.place)
                yield Tested(name, rule.source, test, place, part.optional)

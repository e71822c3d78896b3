"""The names that each rule reads, with the entity of the items and the place in the rule file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.language.arithmetic import Expression
from projections.language.attribute_sources import attribute_source
from projections.language.document import Rules, each_variable, key_variables
from projections.language.measures import FUNCTIONS, Measure
from projections.language.mistakes import Location
from projections.language.models import Projection
from projections.language.patterns import Pattern
from projections.language.patterns.tree import Test, tests_in
from projections.language.shapes import cases, computed_cases, each_parts
from projections.language.syntax import root
from projections.language.templates import Field, Template


@dataclass(frozen=True, slots=True)
class Read:
    """A variable or dotted path that a rule reads on items of an entity."""

    rule: str
    entity: str
    name: str
    place: Location
    offset: int | None = None
    at_key: bool = False
    field: Field | None = None
    """The pipes, if it is in a template."""

    @property
    def root(self) -> str:
        return root(self.name)


@dataclass(frozen=True, slots=True)
class Tested:
    """A condition on one name of an entity's items."""

    rule: str
    entity: str
    test: Test
    place: Location


@dataclass(frozen=True, slots=True)
class Computes:
    """An expression of a rule, or one in braces in a template of it. `text` is what stands at `place`."""

    rule: str
    entity: str
    expression: Expression
    place: Location
    text: str
    numeric: bool = False
    """Whether its result must be a number."""


def reads(rules: Rules) -> Iterator[Read]:
    """Yield all names that rules read on items. For elements of `each` that is the path of the list."""
    tested: dict[str, list[Tested]] = {}
    for one in tests(rules):
        tested.setdefault(one.rule, []).append(one)
    for name, rule in rules.variants():
        variable = each_variable(rule)
        for read in _reads(rules, name, rule, tested.get(name, [])):
            if read.root != variable:
                yield read


def _reads(rules: Rules, name: str, rule: Projection, own: Sequence[Tested]) -> Iterator[Read]:
    place: Location = ("projections", name)
    source = rule.source
    for tested in own:
        if tested.entity == source:
            for position, read in enumerate(tested.test.names):
                yield Read(name, tested.entity, read, tested.place, at_key=position == 0)
    for variable, text in rule.bind.items():
        yield from _template(name, source, text, (*place, *rule.place("bind"), variable))
    if rule.each is not None:
        variable, form, _ = each_parts(rule.each)
        if isinstance(form, dict):
            yield Read(name, source, form["ancestors"], (*place, *rule.place("each"), variable, "ancestors"))
        else:
            yield Read(name, source, form, (*place, *rule.place("each"), variable))
    if rule.kind != "embed" and not rule.on_source:
        for variable in key_variables(rules.entities[rule.into]):
            if variable not in rule.bind:
                yield Read(name, source, variable, (*place, rule.kind, "into"))
    yield from _action(name, rule, place)


def _action(name: str, rule: Projection, place: Location) -> Iterator[Read]:
    source = rule.source
    if rule.copy_ is not None:
        if rule.copy_.attributes != "all":
            yield from _paths(name, source, rule.copy_.attributes, (*place, "copy", "attributes"))
        for attribute, value in rule.copy_.values.items():
            if isinstance(value, str):
                yield from _template(name, source, value, (*place, "copy", "values", attribute))
    elif rule.aggregate is not None:
        for attribute, form in rule.aggregate.set.items():
            at = expression_place(form, (*place, "aggregate", "set", attribute))
            measure = Measure.parse(attribute, form)
            for part in (measure.expression, measure.by):
                for path in part.names if part is not None else ():
                    yield Read(name, source, path, at, offset_of(form, path))
    elif rule.rank is not None:
        for path in Expression.parse(rule.rank.by).names:
            yield Read(name, source, path, (*place, "rank", "by"), offset_of(rule.rank.by, path))
    elif rule.index is not None:
        for inner, _, templates in cases(rule.index):
            for attribute, text in templates.items():
                yield from _template(name, source, text, (*place, "index", *inner, attribute))
    elif rule.compute is not None:
        for attribute, cases_of in rule.compute.set.items():
            for inner, _, kind, content in computed_cases(cases_of):
                at = (*place, "compute", "set", attribute, *inner)
                if kind == "template":
                    yield from _template(name, source, content, at)
                elif kind == "expression":
                    for path in Expression.parse(content, "value").names:
                        yield Read(name, source, path, at, max(content.find(path), 0))
    elif rule.embed is not None:
        yield from _paths(name, source, rule.embed.attributes, (*place, "embed", "attributes"))
        for child, text in rule.embed.match.items():
            yield Read(name, rule.into, child, (*place, "embed", "match", child), at_key=True)
            yield from _template(name, source, text, (*place, "embed", "match", child))
    else:
        picked = rule.top or rule.latest
        assert picked is not None
        yield Read(name, source, picked.by, (*place, rule.kind, "by"))
        yield from _paths(name, source, picked.attributes, (*place, rule.kind, "attributes"))


def _paths(rule: str, entity: str, form: list[str] | dict[str, str] | str, place: Location) -> Iterator[Read]:
    if isinstance(form, dict):
        for target, text in form.items():
            for path in attribute_source(text).names:
                at = text.find(path)
                yield Read(rule, entity, path, (*place, target), at if at > 0 else None)
    else:
        for position, path in enumerate(form):
            yield Read(rule, entity, path, (*place, position))


def _template(rule: str, entity: str, text: str, place: Location) -> Iterator[Read]:
    for field in Template.parse(text).fields:
        at = text.find("{" + field.name)
        if field.expression is None:
            yield Read(rule, entity, field.name, place, at + 1 if at >= 0 else None, field=field)
            continue
        for path in field.names:  # its pipes apply to the result, and say nothing about these values
            yield Read(rule, entity, path, place, max(text.find(path, max(text.find(field.name), 0)), 0))


def expression_place(form: Any, place: Location) -> Location:
    """Return the place of a measure's expression: the measure itself, or the entry of its long form."""
    function = next((name for name in FUNCTIONS if name in form), None) if isinstance(form, dict) else None
    if function is None:
        return place
    inner = form[function]
    return (*place, function) if isinstance(inner, str) else place


def offset_of(form: Any, path: str) -> int | None:
    text = form if isinstance(form, str) else next((form[name] for name in FUNCTIONS if name in form), "")
    at = text.find(path) if isinstance(text, str) else -1
    return at if at > 0 else None


# --- expressions ---


def expressions(rules: Rules) -> Iterator[Computes]:
    """Yield every expression in a rule: of measures, ranks, computed and listed attributes, and in templates."""
    for name, rule in rules.variants():
        place: Location = ("projections", name)
        if rule.aggregate is not None:
            for attribute, form in rule.aggregate.set.items():
                measure = Measure.parse(attribute, form)
                at = expression_place(form, (*place, "aggregate", "set", attribute))
                for part in (measure.expression, measure.by):
                    if part is not None:
                        numeric = part is measure.expression and measure.function in ("sum", "avg")
                        yield Computes(name, rule.source, part, at, part.text, numeric)
        elif rule.rank is not None:
            expression = Expression.parse(rule.rank.by)
            yield Computes(name, rule.source, expression, (*place, "rank", "by"), rule.rank.by, numeric=True)
        for text, at in texts(rule):
            source = attribute_source(text)
            if isinstance(source, Expression):
                yield Computes(name, rule.source, source, (*place, *at), text)
            else:
                for field in source.fields:
                    if field.expression is not None:
                        yield Computes(name, rule.source, field.expression, (*place, *at), text)


def texts(rule: Projection) -> Iterator[tuple[str, Location]]:
    """Yield each template with values, and each expression, of which a rule makes a value, with its place in the rule."""
    yield from ((text, (*rule.place("bind"), name)) for name, text in rule.bind.items() if "{" in text)
    if rule.index is not None:
        for inner, _, made in cases(rule.index):
            yield from ((text, ("index", *inner, name)) for name, text in made.items() if "{" in text)
    elif rule.compute is not None:
        for attribute, form in rule.compute.set.items():
            for inner, _, kind, content in computed_cases(form):
                if kind != "constant":
                    yield content, ("compute", "set", attribute, *inner)
    elif (action := rule.copy_ or rule.latest or rule.top or rule.embed) is not None:
        if isinstance(action.attributes, dict):
            yield from ((text, (rule.kind, "attributes", name)) for name, text in action.attributes.items())
        if rule.copy_ is not None:
            made = {name: text for name, text in rule.copy_.values.items() if isinstance(text, str) and "{" in text}
            yield from ((text, ("copy", "values", name)) for name, text in made.items())


# --- conditions ---


def tests(rules: Rules) -> Iterator[Tested]:
    """Yield every condition in a rule, including those of cases and measures."""
    for name, source, document, place in patterns(rules):
        for test in tests_in(Pattern.parse(document).conditions):
            yield Tested(name, source, test, (*place, *test.place))


def patterns(rules: Rules) -> Iterator[tuple[str, str, Mapping[str, Any], Location]]:
    """Yield every pattern in a rule, with the rule, the source entity and its place."""
    for name, rule in rules.variants():
        place: Location = ("projections", name)
        source = rule.source
        if rule.where is not None:
            yield name, source, rule.where, (*place, *rule.place("where"))
        if rule.index is not None:
            for inner, where, _ in cases(rule.index):
                if where is not None:
                    yield name, source, where, (*place, "index", *inner, "where")
        elif rule.compute is not None:
            for attribute, cases_of in rule.compute.set.items():
                for inner, where, _, _ in computed_cases(cases_of):
                    if where is not None:
                        yield name, source, where, (*place, "compute", "set", attribute, *inner[:-1], "where")

        elif rule.aggregate is not None:
            for attribute, form in rule.aggregate.set.items():
                pattern = Measure.parse(attribute, form).where
                if pattern is not None:
                    at = _where_place(form, (*place, "aggregate", "set", attribute))
                    yield name, source, pattern.document, at


def _where_place(form: Any, place: Location) -> Location:
    if "where" in form:
        return (*place, "where")
    return (*place, next(name for name in FUNCTIONS if name in form), "where")

"""`aggregate`: counters, sums and extremes of the source items, set on the target item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field

from projections.language.attribute_sources import AttributeSource
from projections.language.compiling import Kind
from projections.language.contribution import DIGITS_AFTER
from projections.language.forms import AttributeName, MeasureForm, Model
from projections.language.kinds import AnyProjection, AnyRules, LedgerAction, Part, Picture, Result, Sources, WritePath
from projections.language.measures import ADDED, EXTREMES, PICKED, SHORT_FORMS, TYPED, VALUES, Measure
from projections.language.patterns import describe
from projections.language.patterns.implication import compares_as_number
from projections.language.spelling import expression_text
from projections.language.syntax import Location, Mistake, join_names


class Aggregate(Model, LedgerAction):
    """Counters, sums and extremes of the source items, set on the target item."""

    kind: ClassVar[Kind] = "aggregate"
    instead_of_parts: ClassVar[str] = "; for a map from values to numbers, write {}: counts(…)"
    aliases: ClassVar[tuple[str, ...]] = (
        *("average", "avg", "count", "counter", "counts", "group", "max", "min", "reduce", "rollup", "stats", "sum"),
    )

    into: str = Field(description="The entity whose items receive the results.")
    set: Annotated[dict[AttributeName, MeasureForm], Field(min_length=1)] = Field(
        description=f"Attribute → measure: {', '.join(f'`{form}`' for form in SHORT_FORMS)}, `{{sum: total, where: {{…}}}}`."
    )
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="The number of ledger items that hold the totals of one target, 1 to 100."
    )
    ledger: Literal["lanes"] | None = Field(
        default=None,
        description="`lanes`: counts by stream shard, without an item of the ledger for each source item. Only `count`, "
        "`sum` and `avg`.",
    )

    @staticmethod
    def picture() -> Picture:
        return Picture("#7b2fd0", "#c69cff", '<path d="M12.5 4.5v-2h-9L8 8l-4.5 5.5h9v-2"/>')

    @property
    def written(self) -> dict[str, Location]:
        return self.places(self.set, "set")

    def parts(self) -> Iterator[Part]:
        for name, measure in self.set.items():
            place: Location = ("aggregate", "set", name)
            for expression in (measure.expression, measure.by):
                if expression is not None:
                    added = expression is measure.expression and measure.function in ("sum", "avg")
                    number = measure.function in TYPED and not expression.is_text
                    use = "adds it up" if added else "compares it as a number" if number else ""
                    limit = f"{measure.function} takes at most {DIGITS_AFTER} digits after the decimal point"
                    at = place if measure.text else (*place, measure.function)
                    yield Part(
                        expression, at, (name,), use, limit if added else "", True, optional=True, whole=measure.text
                    )
            if measure.where is not None:
                yield Part(measure.where, (*place, "where"), (name,), decides=True, optional=True)

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        for name, measure in self.set.items():
            yield name, measure_words(measure, " and ".join(sources))

    def results(self, rules: AnyRules, rule: AnyProjection) -> dict[str, Result]:
        return {name: _result(measure, extreme_type(rules, rule, measure)) for name, measure in self.set.items()}

    def mistakes(self, rules: AnyRules, rule: AnyProjection) -> Iterator[Mistake]:
        for name, measure in self.set.items():
            place: Location = ("aggregate", "set", name)
            if measure.function in TYPED and extreme_type(rules, rule, measure) is None:
                assert measure.expression is not None
                written = measure.expression.text.strip()
                number, text = (f"{measure.function}({kind}({written}))" for kind in ("number", "text"))
                ways = f"{number} to compare numbers, or {text} to compare text"
                yield Mistake((*place, measure.function), f"the type of {written} is unknown: write {ways}")
            if self.ledger is not None and measure.function not in ADDED:
                message = (
                    f"`ledger: lanes` has no item for each source, which {measure.function} needs: move this measure to a "
                    f"rule without it, or use {', '.join(ADDED[:-1])} or {ADDED[-1]}"
                )
                yield Mistake(place if measure.text else (*place, measure.function), message)

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        return {
            name: measure.expression
            for name, measure in self.set.items()
            if measure.function in PICKED and measure.expression is not None
        }

    def complete(self, rules: AnyRules, rule: AnyProjection) -> Self:
        measures = {name: _typed_measure(rules, rule, measure) for name, measure in self.set.items()}
        return self.model_copy(update={"set": measures})

    @property
    def ordered(self) -> tuple[Measure, ...]:
        """The measures that need the members of a group: `min`, `max`, `first` and `last`."""
        return tuple(measure for measure in self.set.values() if measure.function in (*EXTREMES, *PICKED))

    @property
    def members(self) -> int:
        """The number of members: measures of the same values, or by the same order, share one."""
        return len({_order(measure) for measure in self.ordered})

    @property
    def counters(self) -> int:
        """The number of value counters that one contribution changes: measures of the same values share one."""
        return len({_order(measure) for measure in self.set.values() if measure.function in VALUES})

    @property
    def by_lanes(self) -> bool:
        return self.ledger is not None

    @property
    def can_have_lanes(self) -> bool:
        return not self.by_lanes and all(measure.function in ADDED for measure in self.set.values())

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        group = self._group_words()
        article = "the " if group == "group" else ""
        how = f"1 update of {article}{group}, by the lane of the stream's shard, then 1 write of the target"
        path = WritePath(self.kind, how, 2, 0)
        if self.by_lanes:
            return path
        return self._ledger_path()._replace(lanes=path.alone if self.can_have_lanes else None)

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        return f"Keeps {join_names(list(self.set))} on each {target}, computed from its {source} items."

    @property
    def queries(self) -> int:
        listed = {_order(measure) for measure in self.set.values() if measure.function in ("counts", "values")}
        return len({(_order(measure), measure.function in ("min", "first")) for measure in self.ordered}) + len(listed)


def _order(measure: Measure) -> tuple[str, bool, str]:
    """Return what orders the members of a measure: measures with the same order share them."""
    expression = measure.by or measure.expression
    where = None if measure.where is None else measure.where.canonical
    return expression_text(expression) if expression is not None else "", measure.by is None, str(where)


def _result(measure: Measure, extreme: str | None) -> Result:
    match measure.function:
        case "first" | "last":
            return Result()
        case "counts":
            return Result("M", "makes it a map", "counts")
        case "values":
            return Result("NS" if extreme == "N" else "SS", "makes it a set")
        case "distinct":
            return Result("N", "makes it a number of values", "count")
        case "min" | "max" if extreme != "N":
            return Result(extreme, "makes it text")
    negative = measure.function != "avg" and measure.expression is not None and measure.expression.is_negative
    words = {"count": "a count", "sum": "a sum", "avg": "an average"}.get(measure.function, "a number")
    return Result("N", f"makes it {words}", "negative" if negative else measure.function)


def measure_words(measure: Measure, source: str | None = None) -> str:
    """Return a measure in the words of the rule file, such as `max(stars) of Review where status is "published"`."""
    more = [expression_text(one) for one in (measure.expression, measure.by) if one is not None]
    more += [str(measure.digits)] if measure.digits is not None else []
    text = f"{measure.function}({', '.join(more)})" if more else measure.function
    text += f" of {source}" if source else ""
    return f"{text} where {describe(measure.where)}" if measure.where is not None else text


# --- the type of the values that `min` and `max` compare ---
#
# Numbers and text have no meaningful common order, so each measure takes one type. Values of the other are bad input.


def _typed_measure(rules: AnyRules, rule: AnyProjection, measure: Measure) -> Measure:
    """Return a measure in which `text(path)` stands wherever text is compared; any other expression is a number."""
    expression = measure.expression
    if expression is None or expression.is_text:
        return measure
    return replace(measure, expression=expression.as_text()) if extreme_type(rules, rule, measure) == "S" else measure


def extreme_type(rules: AnyRules, rule: AnyProjection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of the values of a `min`, `max`, `distinct`, `counts` or `values`.

    None if it is unknown, or not the same for all sources, and for other measures.
    """
    if measure.function not in TYPED:
        return None
    types = {_type_of(rules, variant, measure) for variant in rule.variants}
    return types.pop() if len(types) == 1 else None


def _type_of(rules: AnyRules, rule: AnyProjection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of a `min` or `max` of the items of one source."""
    expression = measure.expression
    assert expression is not None
    if expression.is_text:
        return "S"
    path = expression.path
    if path is None:
        return "N"
    of_each = rule.each is not None and rule.each.variable == path
    if not of_each and path in rules.entities[rule.source].variables:
        return _of_variable(rules, rule.source, path)
    wheres = filter(None, (rule.where, measure.where))
    return "N" if any(compares_as_number(pattern, path) for pattern in wheres) else None


def _of_variable(rules: AnyRules, entity: str, variable: str) -> Literal["N", "S"] | None:
    """Return the type of a key variable; None for binary keys, which cannot be compared."""
    types: dict[str, Literal["N", "S"]] = {"N": "N", "S": "S"}
    for attribute, kind in rules.table_of(entity).key:
        if variable in rules.entities[entity].key[attribute].names:
            return types.get(kind)
    return None

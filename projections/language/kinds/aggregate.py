"""`aggregate`: counters, sums and extremes of the source items, set on the target item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field

from projections.language.attribute_sources import AttributeSource
from projections.language.forms import AttributeName, MeasureForm
from projections.language.kinds import Action, Model, Part, Sources, places
from projections.language.measures import EXTREMES, PICKED, SHORT_FORMS, VALUES, Measure
from projections.language.patterns import describe
from projections.language.spelling import expression_text, pattern_document
from projections.language.syntax import Location, join_names


class Aggregate(Model, Action):
    """Counters, sums and extremes of the source items, set on the target item."""

    kind: ClassVar[str] = "aggregate"
    colours: ClassVar[tuple[str, str]] = ("#7b2fd0", "#c69cff")
    icon: ClassVar[str] = '<path d="M12.5 4.5v-2h-9L8 8l-4.5 5.5h9v-2"/>'
    combines: ClassVar[bool] = True
    in_ledger: ClassVar[bool] = True

    into: str = Field(description="The entity whose items receive the results.")
    set: Annotated[dict[AttributeName, MeasureForm], Field(min_length=1)] = Field(
        description=f"Attribute → measure: {', '.join(f'`{form}`' for form in SHORT_FORMS)}, `{{sum: total, where: {{…}}}}`."
    )
    shards: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="The number of ledger items that hold the totals of one target, 1 to 100."
    )

    @property
    def written(self) -> dict[str, Location]:
        return places(self.set, "aggregate", "set")

    def parts(self) -> Iterator[Part]:
        for name, measure in self.set.items():
            place: Location = ("aggregate", "set", name)
            for expression in (measure.expression, measure.by):
                if expression is not None:
                    numeric = expression is measure.expression and measure.function in ("sum", "avg")
                    at = place if measure.text else (*place, measure.function)
                    yield Part(expression, at, (name,), numeric, measure.text)
            if measure.where is not None:
                yield Part(measure.where, (*place, "where"), (name,))

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        for name, measure in self.set.items():
            yield name, measure_words(measure, " and ".join(sources))

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        return {
            name: measure.expression
            for name, measure in self.set.items()
            if measure.function in PICKED and measure.expression is not None
        }

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
    def spread(self) -> int:
        return self.shards

    def type_of(self, name: str) -> str | None:
        return self.set[name].type

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        return f"Keeps {join_names(list(self.set))} on each {target}, computed from its {source} items."

    @property
    def queries(self) -> int:
        listed = {_order(measure) for measure in self.set.values() if measure.function in ("counts", "values")}
        return len({(_order(measure), measure.function in ("min", "first")) for measure in self.ordered}) + len(listed)


def _order(measure: Measure) -> tuple[str, bool, str]:
    """Return what orders the members of a measure: measures with the same order share them."""
    expression = measure.by or measure.expression
    where = None if measure.where is None else pattern_document(measure.where)
    return expression_text(expression) if expression is not None else "", measure.by is None, str(where)


def measure_words(measure: Measure, source: str | None = None) -> str:
    """Return a measure in the words of the rule file, such as `max(stars) of Review where status is "published"`."""
    more = [expression_text(one) for one in (measure.expression, measure.by) if one is not None]
    more += [str(measure.digits)] if measure.digits is not None else []
    text = f"{measure.function}({', '.join(more)})" if more else measure.function
    text += f" of {source}" if source else ""
    return f"{text} where {describe(measure.where)}" if measure.where is not None else text

"""The measures of the children of each parent, as a rule would publish them."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import cache, partial

from projections.errors import BadInput
from projections.init.inference.contradictions import Verdict
from projections.init.inference.relations import Link
from projections.init.inference.rows import Row
from projections.init.table import Sample, Table
from projections.language.arithmetic import Expression
from projections.language.keys import ItemKey, encode_key
from projections.language.measures import Measure
from projections.language.ordering import encode_order
from projections.language.rules import rounded
from projections.language.values import CONTEXT, Value, lookup, number_text

__all__ = ["Family", "parsed", "path_of"]

_BAD = object()


class Family:
    """The parents and children of a relation. Values of children are evaluated once."""

    def __init__(self, link: Link, table: Table, sample: Sample) -> None:
        self.link = link
        self.parents = link.parent.rows
        children = link.children
        self.children = [children[number] for number in range(len(self.parents))]
        self._table = table
        partition = table.key[0][0]
        together = _with_its_parent(link, partition)
        self.seen = [
            sample.complete or (together and sample.has_all_of(_partition(row, partition))) for row in self.parents
        ]
        """For each parent, whether all its children are in the sample."""
        self._values: dict[str, dict[int, object]] = {}
        self.verdicts: dict[str, list[tuple[str, Verdict, str]]] = {}
        """By attribute of the parents, the measures that were compared with it, each with its verdict and a note."""
        self._published: dict[str, list[Value | None]] = {}

    def published(self, measure: str) -> list[Value | None]:
        """Return the value of a measure for each parent; None where it is absent."""
        if measure not in self._published:
            self._published[measure] = [self.of(parsed(measure), children) for children in self.children]
        return self._published[measure]

    def of(self, measure: Measure, children: Sequence[Row]) -> Value | None:
        """Return a measure of some children."""
        if measure.by is not None:
            return self._picked(measure, children)
        if measure.expression is None:
            return {"N": str(len(children))}
        found = [
            value
            for row in children
            if (value := self._value(measure.expression, row)) is not None and value is not _BAD
        ]
        if measure.function in ("sum", "avg"):
            numbers = [value for value in found if isinstance(value, Decimal)]
            if measure.function == "avg" and not numbers:
                return None
            total = Decimal(0)
            for number in numbers:
                total = CONTEXT.add(total, number)
            return {"N": rounded(total, 1 if measure.function == "sum" else len(numbers), measure.digits)}
        if not found:
            return None
        best = (max if measure.function == "max" else min)(found)  # type: ignore[type-var]
        return {"S": best} if isinstance(best, str) else {"N": number_text(best)}  # type: ignore[arg-type]

    def _value(self, expression: Expression, row: Row) -> object:
        values = self._values.setdefault(expression.text, {})
        if id(row) not in values:
            try:
                values[id(row)] = expression.evaluate(partial(lookup, row.item))
            except BadInput:
                values[id(row)] = _BAD
        return values[id(row)]

    def _picked(self, measure: Measure, children: Sequence[Row]) -> Value | None:
        assert measure.by is not None
        assert measure.expression is not None
        ordered = self.ordered(path_of(measure.by), children, descending=measure.function == "last")
        return lookup(ordered[0].item, path_of(measure.expression)) if ordered else None

    def not_shown(self, measure: Measure, children: Sequence[Row]) -> list[Row]:
        """Return the children that a `first` or `last` has, but does not show."""
        assert measure.by is not None
        return self.ordered(path_of(measure.by), children, descending=measure.function == "last")[1:]

    def ordered(self, by: str, children: Sequence[Row], *, descending: bool) -> list[Row]:
        """Return the children that have a value at `by` in its order; ties are broken by key."""
        orders = self._values.setdefault(f"order by {by}", {})
        for row in children:
            if id(row) not in orders:
                orders[id(row)] = self._order(row, by)
        usable = [row for row in children if orders[id(row)] is not None]
        return sorted(usable, key=lambda row: orders[id(row)], reverse=descending)  # type: ignore[arg-type, return-value]

    def _order(self, row: Row, by: str) -> tuple[str, str] | None:
        value = lookup(row.item, by)
        try:
            texts = [str(next(iter(row.item[name].values()))) for name in self._table.key_names]
            return (
                None
                if value is None
                else (encode_order(value), encode_key(ItemKey("", texts[0], *texts[1:], *([None] * (2 - len(texts))))))
            )
        except (BadInput, ArithmeticError):
            return None


def path_of(expression: Expression) -> str:
    """Return the path of an expression of `first` or `last`, which is one."""
    assert expression.path is not None
    return expression.path


@cache
def parsed(measure: str) -> Measure:
    return Measure.parse("it", measure)


def _partition(row: Row, name: str) -> str:
    return str(next(iter(row.item[name].values())))


def _with_its_parent(link: Link, partition: str) -> bool:
    """Return whether all children have the partition key of their parent."""
    template = link.parent.entity.key[partition]
    for variable, name in link.relation.binding.items():
        template = template.replace("{" + variable + "}", "{\0" + name + "}")
    return template.replace("\0", "") == link.child.entity.key[partition]

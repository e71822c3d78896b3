"""Rules: what one source item contributes to which targets, and what the contributions to a target come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, assert_never, get_args

from projections.language.compiling import Kind
from projections.language.keys import Image, ItemKey, Value
from projections.testing.oracle.oracle_expressions import Expression, pattern
from projections.testing.oracle.oracle_measures import MEMBER_BYTES, Measure, Picked, longest, rank
from projections.testing.oracle.oracle_templates import Entity, Template, numeric
from projections.testing.oracle.scalar import (
    EXACT,
    Missing,
    Scope,
    Unfit,
    is_path,
    levels,
    normal,
    size,
    steps,
    text,
    wire,
)

EVERYTHING = "*"
"""Represents every attribute that no other rule owns: a copy with `attributes: all` owns these."""

_Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of one source item, or one element of it, to one target."""

    target: ItemKey
    source: tuple[str, str]
    """What breaks ties: the key of the source item as one text; of two that are the same text, the partition key."""
    position: float
    """Of the element of `each` in the source item, and 0.5 more if the item has expired."""
    content: Mapping[str, Any]
    """Aggregates: the amount of each attribute. Others: the attributes in wire form."""
    by: tuple[Any, ...] = ()
    """What `top` and `latest` order by."""


class Rule:
    """The common part of all kinds of rules. `attributes` are those that it owns on items of `into`."""

    def __init__(self, name: str, document: _Document, source: Entity, into: Entity) -> None:
        self.name = name
        self.live: bool = not document["hold"]
        self.source, self.into = source, into
        self.sources = {entity: Source(form) for entity, form in document["from"].items()}
        self.fits = self.sources[source.name].fits
        self.attributes: set[str] = set()
        self._read(document)

    def _read(self, document: _Document) -> None:
        """Read the action, whose parts are in the same mapping as those of all rules."""

    def applies(self, scope: Scope) -> bool:
        """Whether `where` of the first source holds."""
        try:
            return self.fits(scope.stored_value)
        except Unfit:
            return False


class Source:
    """One source of a rule: which of its items contribute, how often, and to which targets."""

    def __init__(self, document: _Document) -> None:
        self.fits = pattern(document.get("where"))
        each: dict[str, Any] = dict(document.get("each", {}))
        self._most: int = each.pop("most", 0)
        self._each = next(iter(each.items()), None)
        self._bind = {variable: Template.parse(text) for variable, text in document.get("bind", {}).items()}

    def elements(self, scope: Scope) -> Iterator[dict[str, Value]]:
        """The variable of `each` for each element; once, without a variable, where there is no `each`."""
        if self._each is None:
            yield {}
            return
        seen, contributing = [], []
        variable, path = self._each
        above = not isinstance(path, str)
        held = scope.need(path["ancestors"] if above else path)
        for element in _ancestors(held, path["separator"]) if above else _list(held):
            if "M" not in element:
                if normal(element) in seen:
                    continue
                seen.append(normal(element))
            contributing.append({variable: element})
        if len(contributing) > self._most:
            raise Unfit(f"{len(contributing)} elements, more than {self._most}")
        yield from contributing

    def variable(self, name: str, scope: Scope) -> Value:
        """The value of a variable of the target's key."""
        return {"S": self._bind[name].render(scope)} if name in self._bind else scope.need(name)


class GroupRule(Rule):
    """A rule whose targets are found by their keys: each has what all contributions to it come to."""

    def contributions(
        self, entity: str, key: ItemKey, item: Image, variables: Mapping[str, Value]
    ) -> list[Contribution]:
        """Return the contributions of an item of one of the sources: none if any part of it is bad input."""
        contributions = []
        source, by = self.sources[entity], ("|".join(part for part in key if part is not None), key.partition)
        try:
            for position, element in enumerate(source.elements(Scope(item, variables))):
                scope = Scope(item, variables, element)
                try:
                    if source.fits(scope.stored_value):
                        target = self.into.key(partial(source.variable, scope=scope))
                        order = self._order(scope)
                        contributions.append(Contribution(target, by, position, self._content(scope), order))
                except Missing:
                    continue
            self._check(contributions)
        except (Unfit, Missing):
            return []
        return contributions

    def _order(self, scope: Scope) -> tuple[Any, ...]:
        """What the contributions to a target are ordered by."""
        return ()

    def _content(self, scope: Scope) -> Mapping[str, Any]:
        """What a contribution holds."""
        raise NotImplementedError

    def _check(self, contributions: Sequence[Contribution]) -> None:
        """Check the contributions of one item together. Raises Unfit."""

    def result(self, group: Sequence[Contribution]) -> dict[str, Value]:
        """The attributes on an existing target, from all contributions to it."""
        raise NotImplementedError


class CopyRule(GroupRule):
    """`copy`: of several sources with one target, the least key wins."""

    def _read(self, document: _Document) -> None:
        listed, values = document["attributes"], document["values"]
        self.everything = listed == "all"
        self.not_copied: set[str] = set()
        """With `attributes: all`: what other rules own on the target."""
        self._claimed: bool = document["claimed"]
        self._attributes = {} if self.everything else {name: _source(text) for name, text in listed.items()}
        self._templates = {name: Template.parse(value) for name, value in values.items() if isinstance(value, str)}
        self._constants = {name: wire(value) for name, value in values.items() if not isinstance(value, str)}
        self.attributes = {*self._attributes, *values, *self.into.constants, *([EVERYTHING] if self.everything else [])}

    def _content(self, scope: Scope) -> Mapping[str, Any]:
        content: dict[str, Value] = {}
        if self.everything:
            content = {
                name: value for name, value in scope.item.items() if name not in self.not_copied and "NULL" not in value
            }
        content |= _values_of(self._attributes, scope)
        for name, template in self._templates.items():
            content[name] = {"S": template.render(scope)}
        content |= self._constants
        return _within_member(content, 1) if self._claimed else _within_levels(content, 0)

    def result(self, group: Sequence[Contribution]) -> dict[str, Value]:
        least = min(group, key=lambda part: (part.source, part.position))
        return {**least.content, **self.into.constants}


class AggregateRule(GroupRule):
    """`aggregate`: each attribute is a measure of all contributions."""

    def _read(self, document: _Document) -> None:
        self._measures = {name: Measure(form) for name, form in document["set"].items()}
        self.attributes = set(self._measures)

    def _content(self, scope: Scope) -> Mapping[str, Any]:
        amounts = {name: measure.amount(scope) for name, measure in self._measures.items()}
        if any(isinstance(pick, Picked) and pick.value and levels(pick.value) > 31 for pick in amounts.values()):
            raise Unfit("more levels than a member can have")
        return amounts

    def _check(self, contributions: Sequence[Contribution]) -> None:
        """Check the sums of the amounts that elements of the source add to one target."""
        sums: dict[tuple[ItemKey, str], Decimal] = {}
        for part in contributions if len(contributions) > 1 else ():
            for name, amount in part.content.items():
                if isinstance(amount, Decimal) and self._measures[name].adds:
                    sums[part.target, name] = EXACT.add(sums.get((part.target, name), Decimal(0)), amount)
        for (_, name), amount in sums.items():
            self._measures[name].within(amount)

    def result(self, group: Sequence[Contribution]) -> dict[str, Value]:
        results = {
            name: measure.result([(part.content[name], part.source, part.position) for part in group])
            for name, measure in self._measures.items()
        }
        return {name: value for name, value in results.items() if value is not None}


class FlagRule(GroupRule):
    """`flag`: constants, while anything contributes."""

    def _read(self, document: _Document) -> None:
        self._constants = {name: wire(value) for name, value in document["set"].items()}
        self.attributes = set(self._constants)

    def _content(self, scope: Scope) -> Mapping[str, Any]:
        return {}

    def result(self, group: Sequence[Contribution]) -> dict[str, Value]:
        return dict(self._constants) if group else {}


class LatestRule(GroupRule):
    """`latest`: the attributes of the first contribution."""

    above = 1
    """The levels above a kept attribute."""

    def _read(self, document: _Document) -> None:
        self._by: str = document["by"]
        self._descending = document["order"] == "desc"
        self._attributes = {name: _source(text) for name, text in document["attributes"].items()}
        self.attributes = set(self._attributes)

    def _order(self, scope: Scope) -> tuple[Any, ...]:
        return rank(scope.need(self._by))

    def _content(self, scope: Scope) -> Mapping[str, Any]:
        return _within_member(_values_of(self._attributes, scope), self.above)

    def _in_order(self, group: Sequence[Contribution]) -> list[dict[str, Value]]:
        members = {(part.by, part.source, part.position): part for part in group}  # of equal ones the last that expired
        return [dict(members[order].content) for order in sorted(members, reverse=self._descending)]

    def result(self, group: Sequence[Contribution]) -> dict[str, Value]:
        return next(iter(self._in_order(group)), {})


class TopRule(LatestRule):
    """`top`: the attributes of the first few contributions, as a list."""

    above = 2

    def _read(self, document: _Document) -> None:
        super()._read(document)
        self._limit: int = document["limit"]
        self._as: str = document["as"]
        self.attributes = {self._as}

    def result(self, group: Sequence[Contribution]) -> dict[str, Value]:
        elements = [{"M": content} for content in self._in_order(group)[: self._limit]]
        return {self._as: longest(elements, lambda listed: {"L": listed})}


def _values_of(sources: Mapping[str, Callable[[Scope], Value | None]], scope: Scope) -> dict[str, Value]:
    values = {name: source(scope) for name, source in sources.items()}
    return {name: value for name, value in values.items() if value is not None}


def _within_levels(content: dict[str, Value], above: int) -> dict[str, Value]:
    """The attributes, with so many levels above them. Raises Unfit if these are too many for an item."""
    if any(levels(value) > 32 - above for value in content.values()):
        raise Unfit("more levels than an item can have")
    return content


def _within_member(content: dict[str, Value], above: int) -> dict[str, Value]:
    """The same for attributes that are kept of one source. Raises Unfit if they are too long."""
    if size({"M": _within_levels(content, above)}) - 3 - len(content) > MEMBER_BYTES:
        raise Unfit("more attributes than a member holds")
    return content


class RankRule(GroupRule):
    """`rank`: the scores of each board. It writes to no item."""

    def _read(self, document: _Document) -> None:
        self._score = Expression.parse(document["by"])
        self._digits, self._decimals = int(document["digits"]), int(document["decimals"])
        self.descending: bool = document["order"] == "desc"
        self._sum = Measure({"sum": document["sum"]}) if "sum" in document else None

    def _content(self, scope: Scope) -> Mapping[str, Any]:
        """The score, and what it adds to sums. Raises Unfit if it has too many digits."""
        score = self._score.number(scope)
        steps = EXACT.multiply(score, Decimal(10) ** self._decimals)
        if steps != steps.to_integral_value() or abs(steps) >= 10**self._digits:
            raise Unfit(f"a score with other digits: {score}")
        amount = self._sum.amount(scope) if self._sum is not None else None
        return {"score": score, "amount": amount if isinstance(amount, Decimal) else Decimal(0)}

    def result(self, group: Sequence[Contribution]) -> dict[str, Value]:
        return {}


def _ancestors(value: Value, separator: str) -> Iterator[Value]:
    if "S" not in value:
        raise Unfit(f"no path: {value}")
    parts = value["S"].split(separator)
    for depth in range(1, len(parts)):
        if parts[depth - 1]:  # a folder without a name does not count
            yield {"S": separator.join(parts[:depth])}


def _list(value: Value) -> list[Value]:
    ((kind, content),) = value.items()
    if kind not in ("L", "SS", "NS"):
        raise Unfit(f"neither list nor set of texts or numbers: {value}")
    elements: list[Value] = _without_null(content) if kind == "L" else [{kind[0]: member} for member in content]
    if any(element.keys().isdisjoint(("S", "N", "M")) for element in elements):
        raise Unfit(f"elements that are neither texts nor numbers nor maps: {value}")
    return elements


def _without_null(elements: list[Value]) -> list[Value]:
    return [element for element in elements if "NULL" not in element]


class IndexRule(Rule):
    """`index`: key attributes of indexes, on the source item itself."""

    def _read(self, document: _Document) -> None:
        self._cases = [
            (pattern(case.get("where")), {name: Template.parse(text) for name, text in case.items() if name != "where"})
            for case in document["cases"]
        ]
        self.attributes = {name for _, templates in self._cases for name in templates}

    def result(self, item: Image, variables: Mapping[str, Value]) -> dict[str, Value]:
        scope = Scope(item, variables)
        try:
            if not self.fits(scope.stored_value):
                return {}
            for fits, templates in self._cases:
                if fits(scope.stored_value):
                    made = {name: self._make(name, template, scope) for name, template in templates.items()}
                    lacking = {name for name, value in made.items() if value is None}
                    # only indexes that have every one of their attributes which the case sets
                    written = {name for keys in self.source.table.indexes for name in keys if not keys & lacking}
                    return {n: self._value(n, part) for n, part in made.items() if part is not None and n in written}
        except Unfit:
            pass
        return {}

    def _make(self, name: str, template: Template, scope: Scope) -> str | Value | None:
        try:
            if self.source.table.index_keys.get(name, ("S", 2048))[0] == "B":
                return scope.need(template.slots[0].path)
            return template.render(scope)
        except Missing:
            return None

    def _value(self, name: str, shown: str | Value) -> Value:
        kind, most = self.source.table.index_keys.get(name, ("S", 2048))
        if not isinstance(shown, str):
            if "B" not in shown:
                raise Unfit(f"not binary: {shown}")
            return shown
        if not 0 < len(shown.encode()) <= most:
            raise Unfit(f"not the size of a key: {shown[:80]!r}")
        return {"N": numeric(shown)} if kind == "N" else {"S": shown}


class ComputeRule(Rule):
    """`compute`: attributes of the source item itself, each from the first of its cases that fits."""

    def _read(self, document: _Document) -> None:
        self.once: bool = document.get("once", False)
        self._values = {
            name: [(pattern(case.get("where")), _compute(case)) for case in cases]
            for name, cases in document["set"].items()
        }
        self.attributes = set(self._values)

    def result(self, item: Image, variables: Mapping[str, Value]) -> dict[str, Value]:
        """Return the attributes that have a value. With `once` these are what items get that lack them."""
        scope, values = Scope(item, variables), {}
        for name, cases in self._values.items() if self.applies(scope) else ():
            try:
                compute = next((compute for fits, compute in cases if fits(scope.stored_value)), None)
                if compute is not None:
                    values[name] = compute(scope)
            except (Missing, Unfit):
                continue
        return values


def _compute(case: _Document) -> Callable[[Scope], Value]:
    if "constant" in case:
        constant = wire(case["constant"])
        return lambda scope: constant
    if "{" in case["value"]:
        template = Template.parse(case["value"])
        return lambda scope: {"S": template.render(scope)}
    return Expression.parse(case["value"]).value


def _source(written: str) -> Callable[[Scope], Value | None]:
    """The source of an attribute: a path, a template or an expression. The latter two have no value for wrong input."""
    if "{" not in written and is_path(written):
        return lambda scope: scope.get(written)
    compute = _compute({"value": written})

    def value(scope: Scope) -> Value | None:
        try:
            return compute(scope)
        except (Missing, Unfit):
            return None

    return value


class EmbedRule(Rule):
    """`embed`: attributes of the parent, which is the source, in each child that references it."""

    def _read(self, document: _Document) -> None:
        self._match = {name: Template.parse(text) for name, text in document["match"].items()}
        self._attributes = {name: _source(text) for name, text in document["attributes"].items()}
        self.keep = document.get("on_delete") == "keep"
        self.attributes = set(self._attributes)

    def parent_reference(self, item: Image, variables: Mapping[str, Value]) -> tuple[str, ...] | None:
        """By what children reference this parent, None if nothing can."""
        scope = Scope(item, variables)
        try:
            return tuple(template.render(scope) for template in self._match.values())
        except (Missing, Unfit):
            return None

    def references(self, item: Image, variables: Mapping[str, Value]) -> tuple[str, ...] | None:
        """Return the reference of a child, None if it has none."""
        scope = Scope(item, variables)
        try:
            return tuple(text(scope.need(name)) for name in self._match)
        except (Missing, Unfit):
            return None

    def result(self, item: Image, variables: Mapping[str, Value]) -> dict[str, Value]:
        """Return the attributes that a parent gives to its children."""
        scope = Scope(item, variables)
        try:
            return _values_of(self._attributes, scope) if self.applies(scope) else {}
        except Unfit:
            return {}


class ListEmbedRule(EmbedRule):
    """`embed` with `as`: the attributes of several parents in each child that references them, as a list or a map."""

    def _read(self, document: _Document) -> None:
        super()._read(document)
        self._list = next(name for name in self._match if steps(name) == steps(document["references"]))
        self._as, self._map = document["as"], document["form"] == "map"
        self._id, self._leaves_out = document.get("id"), document["missing"] == "omit"
        self.attributes = {self._as}

    def parent_values(self, item: Image, variables: Mapping[str, Value]) -> dict[str, Value] | None:
        """Return what a parent gives; None if the rule does not apply to it."""
        values = self.result(item, variables) if self.applies(Scope(item, variables)) else None
        return None if any(levels(value) > 30 for value in (values or {}).values()) else values

    def child_values(
        self, item: Image, variables: Mapping[str, Value], parents: Mapping[tuple[str, ...], Mapping[str, Value] | None]
    ) -> dict[str, Value]:
        """Return what a child has: `parents` gives by reference what each of them gives, None if `where` excludes it."""
        scope = Scope(item, variables)
        try:
            fixed = {name: scope.need(name) for name in self._match}
            references = self._all(fixed[self._list])
        except (Missing, Unfit):
            return {}
        elements: list[tuple[str, Value]] = []
        for reference in references:
            try:
                about = tuple(text(reference if name == self._list else fixed[name]) for name in self._match)
            except Unfit:
                about = ()
            values = parents.get(about)
            if values is None and self._leaves_out:
                continue
            content = {**({self._id: reference} if self._id else {}), **(values or {})}
            elements.append((text(reference), {"M": content}))
        if self._map:
            return {self._as: longest(elements, lambda listed: {"M": dict(listed)})}
        return {self._as: longest(elements, lambda listed: {"L": [element for _, element in listed]})}

    def _all(self, held: Value) -> list[Value]:
        """The references in order, each once, and 100 at most."""
        ((kind, content),) = held.items()
        if kind == "NS":
            elements: list[Value] = [{"N": member} for member in sorted(content, key=Decimal)]
        elif kind == "SS":
            elements = [{"S": member} for member in sorted(content)]
        elif kind == "L" and all("S" in element or "N" in element for element in _without_null(content)):
            elements = _without_null(content)
        else:
            raise Unfit(f"neither list nor set of texts or numbers: {held}")
        first: dict[str, Value] = {}
        for element in elements:
            if not (self._map and element == {"S": ""}):
                first.setdefault(text(element), element)
        return list(first.values())[:100]


def make_rule(
    name: str, document: _Document, entities: Mapping[str, Entity]
) -> GroupRule | IndexRule | ComputeRule | EmbedRule:
    """The rule that a part of the canonical document describes."""
    kind: Kind = next(kind for kind in get_args(Kind) if kind in document)
    form = {**document, **({"cases": document[kind]} if kind == "index" else document[kind])}
    source = entities[next(iter(document["from"]))]
    return _class_of(kind, form)(name, form, source, entities[form.get("into", source.name)])


def _class_of(kind: Kind, form: _Document) -> type[GroupRule | IndexRule | ComputeRule | EmbedRule]:
    match kind:
        case "copy":
            return CopyRule
        case "aggregate":
            return AggregateRule
        case "top":
            return TopRule
        case "latest":
            return LatestRule
        case "flag":
            return FlagRule
        case "rank":
            return RankRule
        case "index":
            return IndexRule
        case "compute":
            return ComputeRule
        case "embed":
            return ListEmbedRule if "as" in form else EmbedRule
    assert_never(kind)

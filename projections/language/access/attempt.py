"""One query on one access path: the request, or why the path does not answer the query.

From the path's templates and what the caller gives follows the key condition. A field of a template is determined if the
query has its value in `by`, or one value in `where`. The partition must be determined, or be one of a known number of
buckets or of the periods of a bounded time. In the sort key, the determined beginning is a prefix. The first field that is
not determined, the focus, is what the results are sorted by and what a range can bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from projections.errors import BadInput
from projections.language.access.paths import KeyPart, Path, always_present, bare_variables, key_variables, sharing
from projections.language.access.plan import Buckets, KeyEquals, Periods, Plan, Query, Request, SortRange
from projections.language.attribute_types import is_number, types_of
from projections.language.models import Rules
from projections.language.patterns import Pattern, describe
from projections.language.patterns.implication import Known, compares_as_number, excludes, implies, known_present
from projections.language.patterns.tree import Test
from projections.language.pipes import monotone
from projections.language.templates import Field, Template
from projections.language.values import wire


class Failure(NamedTuple):
    """Why a path does not answer a query. `stage` is greater if the path is nearer to an answer."""

    path: Path
    reason: str
    stage: int
    incomplete: bool = False


PARTITION, ORDER, CONSISTENCY, COVERAGE = range(4)


class _FailureError(Exception):
    def __init__(self, reason: str, stage: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stage = stage


def known_of(rules: Rules, query: Query, entity: str) -> Known:
    """Return what holds for every item of an entity that is part of the answer."""
    declared = rules.entities[entity]
    variables = key_variables(rules, entity)
    names = [*query.parameters, *(name for name in (query.range, query.ordered_by) if name)]
    patterns = [query.where, declared.conditions]
    present = frozenset([*always_present(rules, entity), *names])
    return Known(tuple(patterns), present, frozenset([*variables, *names]))


def attempt(rules: Rules, query: Query, path: Path) -> Plan | Failure:
    """Return the plan of a query on a path."""
    trial = _Attempt(rules, query, path)
    try:
        plan = trial.plan()
    except _FailureError as failure:
        return Failure(path, failure.reason, failure.stage)
    if reason := trial.missing():
        return Failure(path, reason, COVERAGE, incomplete=True)
    return plan


class _Attempt:
    def __init__(self, rules: Rules, query: Query, path: Path) -> None:
        self.rules = rules
        self.query = query
        self.path = path
        self.entity = path.entity
        self.known = known_of(rules, query, path.entity)
        self.exact: set[str] = set()
        """Names of which the key condition admits only the value that the query asks for, after the pipes of `by`."""
        self.single: set[str] = set()
        """Those of which it admits one value."""
        self.bounded = False
        """Whether the key condition has the bounds that the caller gives."""
        self.assumes: dict[str, None] = {}

    def plan(self) -> Plan:
        path, query = self.path, self.query
        partition = tuple(self._partition(part) for part in path.partition)
        if sum(isinstance(fan, Periods) for key in partition for fan in key.fans) > 1:
            raise _FailureError("the partition key has periods of two attributes", PARTITION)
        if query.consistent and path.index is not None and not path.local:
            raise _FailureError(f"{path.index} is a global index, which has no consistent reads", CONSISTENCY)
        if query.consistent and path.rule is not None:
            raise _FailureError(
                f"rule {path.rule} writes the keys of {path.index} after the item, so no read of it is consistent",
                CONSISTENCY,
            )
        fixed, sort = self._sort()
        descending, sort = self._order(sort)
        whole = sort is None and len(fixed) == len(path.sort)
        request = Request(
            table=self._table,
            entities=(self.entity,),
            index=path.index,
            partition=partition,
            fixed=fixed,
            sort=sort,
            get=whole and path.index is None and not any(key.fans for key in partition),
            descending=descending,
            order=() if query.order is None else tuple(part.attribute for part in path.sort),
        )
        tests = tuple(self._tests(request))
        others, absent = ((), ()) if request.get else sharing(self.rules, request, path)
        self.assumes.update(dict.fromkeys(absent))
        several = any(key.fans for key in partition)
        return Plan(
            query=query,
            verdict="filtered" if tests or others else "several" if several else "one",
            reason=self._why(request, tests, others),
            requests=(request,),
            entities=(self.entity,),
            rule=path.rule,
            merged=several and query.order is not None,
            others=others,
            tests=tests,
            assumes=tuple(self.assumes),
        )

    # --- the key condition ---

    @property
    def _table(self) -> str:
        return self.rules.entities[self.entity].table

    def _partition(self, part: KeyPart) -> KeyEquals:
        text: list[str | Field | Buckets | Periods] = []
        for piece in part.template.parts:
            if isinstance(piece, str):
                text.append(piece)
                continue
            text_part: str | Field | Buckets | Periods | None = self._value_of(piece)
            if text_part is None:
                text_part = self._fan(piece)
            if text_part is None:
                name = self.path.index or "the table"
                raise _FailureError(
                    f"the partition key of {name} is {part.attribute}"
                    if part.native
                    else f"the partition key of {name}, {part.attribute} = {part.template.text}, needs {piece.name}",
                    PARTITION,
                )
            text.append(text_part)
        self._note_exact(part.template)
        return KeyEquals(part.attribute, part.kind, tuple(text))

    def _value_of(self, field: Field) -> str | Field | None:
        """Return the value of a field: the caller's, or a text; None if it is not known, or computed."""
        if field.expression is not None:
            return None
        for parameter in self.query.by:
            if parameter.name == field.name and field.pipes[: len(parameter.pipes)] == parameter.pipes:
                return Field(field.name, field.pipes)
        value = self._constants.get(field.name)
        if value is None:
            return None
        try:
            return Template("", (field,)).render({field.name: value}.get)
        except BadInput:
            return None

    @cached_property
    def _constants(self) -> Mapping[str, Mapping[str, object]]:
        constants: dict[str, Mapping[str, object]] = {}
        for pattern in self.known.patterns:
            for name, value in pattern.constants.items():
                constants[name] = wire(value)
        return constants

    def _fan(self, field: Field) -> Buckets | Periods | None:
        for pipe in field.pipes:
            if pipe.name == "bucket":
                return Buckets(field, int(pipe.arguments[0]))
        if field.name == self.query.range and monotone(field.pipes):
            self.assumes[f"{field.name} and its bounds are times in one format, with one offset"] = None
            self.assumes[f"no {field.name} is in the future"] = None
            return Periods(field)
        return None

    def _note_exact(self, template: Template, *, prefix: bool = False) -> None:
        """Record the names whose value the text of a template determines; with `prefix`, a text that begins with it.

        Where a value may contain the text that follows it, a text may be read in two ways: that none does is assumed. Two
        values without text between them are not told apart.
        """
        separator = self.rules.tables[self._table].separator
        pieces = template.parts
        if prefix:
            pieces = pieces[:-1] if pieces and isinstance(pieces[-1], Field) else pieces
            pieces = (*pieces, Field("…", (), True))
        bare = bare_variables(self.rules, self.entity)
        sure = Template("", pieces).recoverable(bare, separator)
        by = {field.name: field for field in self.query.by}
        for position, field in enumerate(pieces):
            if isinstance(field, str) or field.star or field.expression is not None:
                continue
            before = pieces[position - 1] if position else ""
            after = pieces[position + 1] if position + 1 < len(pieces) else ""
            if field.name not in sure:
                if isinstance(before, Field) or isinstance(after, Field):
                    continue
                if after and not (field.pipes and field.pipes[-1].name in ("date", "bucket", "pad", "invert")):
                    self.assumes[f"{field.name} has no {after[0]}"] = None
            parameter = by.get(field.name)
            if field.pipes == ():
                self.single.add(field.name)
                self._note_type(field.name)
            if field.pipes == () or (parameter is not None and parameter.pipes == field.pipes):
                self.exact.add(field.name)

    def _note_type(self, name: str) -> None:
        """Record the type of a value that `where` compares with, because the number 5 and the text "5" have one text."""
        value = self.query.where.constants.get(name)
        if name in self.query.parameters or name in key_variables(self.rules, self.entity):
            return
        if isinstance(value, Decimal):
            self.assumes[f"{name} is a number"] = None
        elif isinstance(value, str) and value.lstrip("-").replace(".", "", 1).isdecimal():
            self.assumes[f"{name} is text"] = None

    def _sort(self) -> tuple[tuple[KeyEquals, ...], SortRange | None]:
        fixed: list[KeyEquals] = []
        for part in self.path.sort:
            text: list[str | Field | Buckets | Periods] = []
            pieces = part.template.parts
            for position, piece in enumerate(pieces):
                text_part = piece if isinstance(piece, str) else self._value_of(piece)
                if text_part is None:
                    assert isinstance(piece, Field)
                    following = pieces[position + 1] if position + 1 < len(pieces) else None
                    after = following if isinstance(following, str) else ""
                    self._note_exact(Template("", tuple(pieces[:position])), prefix=True)
                    return tuple(fixed), SortRange(
                        part.attribute, part.kind, tuple(text), piece, rest=following is not None, after=after
                    )
                text.append(text_part)
            self._note_exact(part.template)
            fixed.append(KeyEquals(part.attribute, part.kind, tuple(text)))
        return tuple(fixed), None

    # --- order and range ---

    def _order(self, sort: SortRange | None) -> tuple[bool, SortRange | None]:
        """Return the direction of the request, and the sort range with the bounds that the caller gives."""
        query = self.query
        name = query.ordered_by
        direction: int | None = None
        reason = ""
        if sort is not None and sort.focus is not None:
            direction, reason = self._direction(sort, sort.focus)
        if sort is not None and sort.focus is not None and query.range == sort.focus.name and direction is not None:
            sort = sort._replace(bounded=True, inverted=direction < 0)
            self.bounded = True
        descending = query.order is not None and query.order.descending
        if name is None or name in self.single:
            return descending, sort
        if sort is not None and sort.focus is not None and sort.focus.name == name:
            if direction is None:
                raise _FailureError(f"{self.path.name} does not sort by {name}: {reason}", ORDER)
            return descending ^ (direction < 0), sort
        if sort is None or sort.focus is None:
            raise _FailureError(f"{self.path.name} does not sort by {name}", ORDER)
        raise _FailureError(f"{self.path.name} sorts by {sort.focus}, not by {name}", ORDER)

    def _direction(self, sort: SortRange, focus: Field) -> tuple[int | None, str]:
        """Return 1 if a key sorts as its focus does, -1 for the other way round; None with the reason if neither."""
        names = [pipe.name for pipe in focus.pipes]
        if sort.kind == "N" and not names and not sort.prefix and not sort.rest:
            return 1, ""
        if sort.kind != "S":
            return None, f"{sort.attribute} has type {sort.kind}"
        if names in (["pad"], ["invert"]):
            digits = focus.pipes[0].arguments[0]
            self.assumes[f"{focus.name} is a whole number of at most {digits} digits"] = None
            if focus.name in key_variables(self.rules, self.entity):
                self.assumes[f"{focus.name} has the same number of digits on all items"] = None
            return (1 if names == ["pad"] else -1), ""
        if names:
            return None, f"{focus} does not keep its order"
        patterns = (*self.known.patterns, *self.path.conditions)
        why = types_of(self.rules).used_as_number(self.entity, focus.name)
        compared = why or any(compares_as_number(pattern, focus.name) for pattern in patterns)
        if compared or is_number(self.rules, self.entity, focus.name):
            name = f"{focus.name} is a number" + (f" ({why})" if why else "")
            return None, f"{name}, and as text 10 sorts before 9; write {{{focus.name}|pad(10)}}"
        if sort.rest and not sort.after:
            return None, "another value follows it without text between them"
        variable = focus.name in key_variables(self.rules, self.entity)
        self.assumes[f"{focus.name} {'sorts as' if variable else 'is'} text"] = None
        if sort.rest:
            self.assumes[f"{focus.name} has neither {sort.after[0]} nor a character below it"] = None
        return 1, ""

    # --- what the request reads beside the answer ---

    def _tests(self, request: Request) -> Iterator[str]:
        """Yield the conditions that an item that the request reads may fail to match."""
        query = self.query
        fixed = [  # that the key condition ensures
            Pattern((condition,), {})
            for condition in query.where.conditions
            if isinstance(condition, Test)
            and condition.name in self.exact - {*query.parameters}
            and len(condition.names) == 1
        ]
        held = Known(
            (*self.path.conditions, *fixed, *self.known.patterns[1:]),
            frozenset([*key_variables(self.rules, self.entity), *self.path.needs]),
            frozenset([*self.known.scalar, *self.path.needs]),
        )
        if not implies(held, query.where):
            open_ = [condition for condition in query.where.conditions if not implies(held, Pattern((condition,), {}))]
            yield describe(Pattern(tuple(open_), {}))
        for field in query.by:
            if field.name not in self.exact:
                yield f"{str(field)[1:-1]} is the given value"
        if query.range and not (request.sort and request.sort.bounded):
            yield f"{query.range} is within the given range"

    def _why(self, request: Request, tests: tuple[str, ...], others: tuple[str, ...]) -> str:
        words = []
        if others:
            words.append(f"the key range also holds {' and '.join(others)}")
        if tests:
            words.append("the filter keeps only items where " + ", and ".join(tests))
        if not words and request.fans:
            words.append(", ".join(_fan_words(fan) for fan in request.fans))
        return "; ".join(words)

    # --- what the path does not hold ---

    def missing(self) -> str:
        """Return which items or attributes of the answer the path does not hold; empty if it holds all."""
        path = self.path
        if path.index is not None:
            required = self.rules.entities[self.entity].required
            for name in (attribute for attribute in path.undeclared if attribute not in required):
                value = f"{{{name}}}" if name in key_variables(self.rules, self.entity) else "…"
                return (
                    f"it is not declared that {self.entity} items have the attribute {name}, a key of {path.index}; if the "
                    f'application writes it, add `index_key: {{{name}: "{value}"}}` to the entity'
                )
            if path.uncertain is not None:
                return (
                    f"{path.index} does not hold items for which {path.uncertain.text} has no value; if only the others are "
                    "meant, let a `compute` rule set an attribute to the expression, name this attribute in the key, and "
                    "require it in `where`"
                )
            for name in path.suffices:
                if not known_present(self.known, name):
                    return (
                        f"{path.index} does not hold items without {name}; if only items that have it are meant, add "
                        f"{name}: [{{exists: true}}] to `where`"
                    )
            for pattern in path.conditions:
                if not implies(self.known, pattern):
                    words = describe(pattern)
                    return f"{path.index} holds only items where {words}; if only these are meant, add this to `where`"
            for pattern in path.earlier:
                if not self._excludes(pattern):
                    words = describe(pattern)
                    return f"items where {words} have other keys in {path.index}, by an earlier case of {path.rule}"
        return self._projection_gap()

    def _excludes(self, pattern: Pattern) -> bool:
        if excludes(self.known, pattern):
            return True
        names = frozenset(pattern.names)
        if excludes(self.known._replace(scalar=self.known.scalar | names), pattern):
            for name in pattern.names:
                self.assumes[f"{name} has one value, not a list"] = None
            return True
        return False

    def _projection_gap(self) -> str:
        path, query = self.path, self.query
        if path.projection is None:
            return ""
        variables = key_variables(self.rules, self.entity)
        if query.attributes is None:
            return f"{path.index} does not project all attributes; list those that the query needs in `attributes`"
        lacking = [name for name in query.attributes if name not in variables and not path.projects(name)]
        if lacking:
            return f"{path.index} does not project {', '.join(lacking)}"
        match = self.rules.entities[self.entity].match
        tested = [*(match.names if match is not None else ())]
        tested += [name for name in query.where.names if name not in self.exact - {*query.parameters}]
        tested += [field.name for field in query.by if field.name not in self.exact]
        tested += [query.range] if query.range and not self.bounded else []
        lacking = [name for name in tested if name not in variables and not path.projects(name)]
        return f"{path.index} does not project {', '.join(lacking)}, which the filter needs" if lacking else ""


def _fan_words(fan: Buckets | Periods) -> str:
    if isinstance(fan, Buckets):
        return f"one request for each of the {fan.count} buckets of {fan.field.name}"
    return f"one request for each period of {str(fan.field)[1:-1]}"

"""Generate the items and changes of a batch from rules and assumptions, for a rehearsal on tables in memory.

Every item has a number, and every text in it leads back to that number. Conditions and target keys of rules are
set: in the program that is rehearsed, a rule applies to as many items as `--matching` says, and its targets are as
many as `--targets` says. All else (templates, expressions, keys of copies, references of children) is evaluated as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

from projections.errors import ProjectionsError
from projections.inspect.cost.reads import Reads, Shapes, fixed_targets
from projections.inspect.cost.workload import EDIT, INSERT, Assumptions, Flow
from projections.language import canonical
from projections.language.entity import Entity, Item, Resolve
from projections.language.keys import Image, Value
from projections.language.patterns import Affix, AnythingBut, Either, Equals, Exists, Numeric, Pattern, Test
from projections.language.program import Program
from projections.language.rules import AggregateRule, IndexRule, Rule
from projections.language.templates import Template
from projections.language.values import lookup, number_text, wire
from projections.stores.limits import item_size

__all__ = ["DIGITS", "Synthesis", "whole_number"]

# Digits of a number, from the right: six for a place in a flow, three for the flow, then these.
EDITED = 10**9
"""What an edit makes of a value, or where it moves a contribution to."""
KEPT = 10**10
"""Other sources of the same targets, so that a move neither creates nor empties one."""
ELEMENT = 10**11
"""Elements of an `each`."""

_FLOW = 10**6
_CHILDREN = 990
"""Stands for a flow in the numbers of children."""
_EPOCH = datetime(2001, 1, 1, tzinfo=UTC)
_CHARACTERS = 16
"""Of a text."""


DIGITS = 4
"""Of the fractions that are told apart."""


def whole_number(number: float, below: float) -> int:
    """Rounds up if the number's fraction is larger than `below`."""
    return int(round(number, DIGITS)) + (round(number % 1, DIGITS) % 1 > below)


class Synthesis:
    """The items of one batch: `before` is there already, `changes` come in the batch.

    `counts` are whole numbers. `below` in [0, 1) decides which way a broken number of matching items goes. In one half of
    all cases, edits make rules apply (`joining`); in the other they make them apply no longer.
    """

    def __init__(
        self, shapes: Shapes, assumed: Assumptions, counts: Mapping[Flow, int], below: float, *, joining: bool
    ) -> None:
        self._shapes = shapes
        self._original = shapes.program
        self._assumed = assumed
        self._below = below
        self._joining = joining
        self._numbers: dict[str, int] = {}
        self._flows = list(counts.items())
        self._sizes = [count for _, count in self._flows]
        self._targets = self._all_targets(sum(self._sizes))
        self._toggled = {1 + place: shapes.decided_by(flow) for place, (flow, _) in enumerate(self._flows)}
        self._toggled[_CHILDREN] = frozenset().union(*self._toggled.values())
        self.program = self._rehearsed()
        self.before: list[tuple[str, Image]] = []
        """Tables and items, parents and targets before sources."""
        self.seeds: list[tuple[str, Image]] = []
        """Items that are there before, and that no rule has to see for that."""
        self.changes: list[tuple[str, str, Image]] = []
        """What happens (insert, edit, remove), the table, and the item or what an edit sets of it."""
        self._made: set[tuple[str, int]] = set()
        self._followed: set[tuple[str, int, frozenset[str] | None, bool]] = set()
        self._children = _CHILDREN * _FLOW
        self._fill()

    # Values

    def _text(self, variable: str, number: int) -> str:
        """The value of a key's variable."""
        form, width = self._shapes.forms.get(("", variable), ("", 0))
        text = _digits(number)
        if form == "date":
            text = _time(number)
        elif form == "ulid":
            text = f"{number:026d}"
        elif form in ("pad", "invert", "ms"):
            text = str(1 + number % 10 ** (width or 13))
        self._numbers[text] = max(number, self._numbers.get(text, 0))
        return text

    def _value(self, entity: str, path: str, number: int, edited: bool) -> Value:
        if path in self._shapes.everywhere:
            return {"S": self._text(path, number + EDITED * edited)}
        form, width = self._shapes.forms.get((entity, path), ("", 0))
        if form in ("pad", "invert", "number", "ms"):
            most = 10 ** min(width or 3, 3) // 2 - 1
            return {"N": str(2 * (number % max(1, most)) + edited + (1_700_000_000_000 if form == "ms" else 0))}
        text = f"{path} {number}{'-' if edited else '+'}".rjust(_CHARACTERS)
        if form == "date":
            text = _time(number + 400_000_000 * edited)
        elif form == "ulid":
            text = f"{number + EDITED * edited:026d}"
        self._numbers[text] = number + EDITED * edited
        return {"S": text}

    def _number(self, value: Value | None) -> int:
        """The number that a value leads back to; -1 if it leads nowhere."""
        if value is None:
            return -1
        ((kind, content),) = value.items()
        if kind in ("S", "N"):
            return self._numbers.get(content, -1)
        parts: Iterable[Value] = content.values() if kind == "M" else content if kind == "L" else ()
        return max(map(self._number, parts), default=-1)

    def _edited(self, value: Value | None, derived: bool = False) -> bool:
        """Whether a value is what an edit makes of it; of derived numbers nobody can tell."""
        if value is None:
            return False
        ((kind, content),) = value.items()
        if kind == "N" and content not in self._numbers:
            return not derived and content.isdecimal() and int(content) % 2 == 1
        if kind in ("M", "L"):
            return any(map(self._edited, content.values() if kind == "M" else content))
        return kind == "S" and self._numbers.get(content, 0) // EDITED % 10 > 0

    # The rules that are rehearsed

    def _all_targets(self, events: int) -> dict[str, int]:
        """How many targets a rule has where it does not have one for each event."""
        found = {}
        for name, rule in self._shapes.rules.items():
            if rule.recorded:
                numbers = [self._assumed.targets_of(name), fixed_targets(self._original, rule)]
                known = [round(number) for number in numbers if number is not None]
                if known:
                    found[name] = max(1, min(*known, events * self._elements(name)))
        return found

    def _elements(self, rule: str) -> int:
        return max(1, round(self._assumed.elements_of(rule))) if self._shapes.rules[rule].each else 1

    def _rehearsed(self) -> Program:
        program = Program.from_document(self._original.document)
        for name, rule in program.rules.items():
            written, reads = self._shapes.rules[name], self._shapes.reads[name]
            changes: dict[str, Any] = {"where": self._where(rule, written, reads)}
            if rule.recorded:
                names = dict.fromkeys(variable for pattern in rule.into.patterns for variable in pattern.names)
                changes["bind"] = tuple((variable, self._bound(rule, reads, variable)) for variable in names)
            if isinstance(rule, IndexRule):
                changes["cases"] = ((None, rule.cases[0][1]),)
            if isinstance(rule, AggregateRule):
                assert isinstance(written, canonical.Aggregate)
                changes["measures"] = tuple(
                    replace(m, where=self._counted(written.set[m.name].where)) if m.where else m for m in rule.measures
                )
            program.rules[name] = replace(rule, **changes)
        return program

    def _own(self, entity: str, resolve: Resolve) -> int:
        return max((self._number(resolve(variable)) for variable in self._shapes.variables[entity]), default=-1)

    def _where(self, rule: Rule, written: canonical.Rule, reads: Reads) -> Callable[[Resolve], bool]:
        derived = self._original.derived_attributes(rule.source.name)
        names = sorted(name for name in reads.where if name not in self._shapes.variables[rule.source.name])
        needed = [n for n in names if n.split(".", 1)[0] in derived and not _may_be_absent(written, n)]

        def applies(resolve: Resolve) -> bool:
            if any(resolve(name) is None for name in needed):
                return False
            number = self._own(rule.source.name, resolve)
            if not self._matches(rule.name, number):
                return False
            if number // KEPT % 10 or rule.name not in self._toggled.get(number // _FLOW % 1000, ()):
                return True
            return self._joining == any(self._edited(resolve(name), name in derived) for name in names)

        return applies

    def _matches(self, rule: str, number: int) -> bool:
        share = self._assumed.share(rule)
        if share >= 1 or number < 0:
            return True
        flow, place = number // _FLOW % 1000, number % _FLOW
        size = self._sizes[flow - 1] if 0 < flow <= len(self._sizes) else self._targets.get(rule, 1)
        return place < whole_number(size * share, self._below)

    def _bound(self, rule: Rule, reads: Reads, variable: str) -> Callable[[Resolve], str]:
        names = sorted(name for name in reads.target if name not in self._shapes.variables[rule.source.name])

        def bound(resolve: Resolve) -> str:
            number = self._own(rule.source.name, resolve)
            if rule.each is not None:
                number = self._number(resolve(rule.each.variable))
            else:
                number += EDITED * any(self._edited(resolve(name)) for name in names)
            return self._text(variable, self._target(rule.name, number))

        return bound

    def _target(self, rule: str, number: int) -> int:
        targets = self._targets.get(rule)
        if targets is None:
            return number - number // KEPT % 10 * KEPT
        place = number % _FLOW * self._elements(rule) + number // ELEMENT + number // EDITED % 10
        return place % targets

    def _counted(self, pattern: Mapping[str, Any] | None) -> Callable[[Resolve], bool]:
        names = Pattern.parse(pattern or {}).names
        return lambda resolve: not any(self._edited(resolve(name)) for name in names)

    # Items

    def _item(
        self, name: str, number: int, edited: frozenset[str] = frozenset(), given: Mapping[str, str] | None = None
    ) -> dict[str, Value]:
        """An item of the application. `given` are names by which it references a parent."""
        entity = self._original.entities[name]
        references = self._references(name, number) | dict(given or {})
        texts = self._texts(name, number, references)
        image: dict[str, Value] = {}
        for (attribute, kind), pattern in zip(_key(entity), entity.patterns, strict=True):
            image[attribute] = {kind: pattern.render(texts)}
        for path in self._shapes.paths(name):
            text = references.get(path)
            value = (
                {"S": text} if text is not None else self._value(name, path, number, path.split(".", 1)[0] in edited)
            )
            _put(image, path, value)
        for path, value in self._lists(name, number, edited):
            _put(image, path, value)

        self._recognised(entity, image, texts)
        kept = self._original.typed.entities[name].index_key
        for partition, sort in entity.schema.indexes.values():
            if any(attribute in kept for attribute, _ in (*partition, *sort)):
                for attribute, kind in (*partition, *sort):
                    image[attribute] = {
                        kind: Template.parse(kept.get(attribute, "0")).render(partial(_resolved, image, texts)) or "0"
                    }
        return self.padded(name, image)

    def _texts(self, entity: str, number: int, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of an item's key."""
        return {v: given.get(v) or self._text(v, number) for v in self._shapes.variables[entity]}

    def padded(self, entity: str, image: Image) -> dict[str, Value]:
        """The item with as many bytes as items of its entity have."""
        rest = {name: value for name, value in image.items() if name != _PADDING}
        missing = round(self._assumed.bytes_of(entity)) - item_size(rest) - len(_PADDING)
        return {**rest, _PADDING: {"S": "x" * missing}} if missing > 0 else rest

    def _references(self, entity: str, number: int, rules: Iterable[canonical.Embed] | None = None) -> dict[str, str]:
        """By what the children of parents with this number reference them."""
        found: dict[str, str] = {}
        if rules is None:
            rules = [r for r in self._shapes.rules.values() if isinstance(r, canonical.Embed) and r.into == entity]
        for rule in rules:

            def resolve(path: str, parent: str = rule.source) -> Value | None:
                if path in self._shapes.variables[parent]:
                    return {"S": self._text(path, number)}
                return self._value(parent, path, number, edited=False)

            for name, text in rule.match.items():
                rendered = Template.parse(text).render(resolve)
                if rendered is not None:
                    found[name] = rendered
                    self._numbers.setdefault(rendered, number)
        return found

    def _lists(self, entity: str, number: int, edited: frozenset[str]) -> Iterator[tuple[str, Value]]:
        """The lists (or paths) that rules make one contribution for each element of."""
        for name, rule in self._shapes.rules.items():
            if rule.source != entity or rule.each is None:
                continue
            changed = rule.each.path.split(".", 1)[0] in edited
            count = self._elements(name)
            numbers = [number + k * ELEMENT + EDITED * (changed and k == count - 1) for k in range(count)]
            if rule.each.ancestors:
                steps: list[str] = []
                for one in numbers:
                    steps.append(_digits(one))
                    self._numbers[rule.each.separator.join(steps)] = one
                yield rule.each.path, {"S": rule.each.separator.join([*steps, "x"])}
                continue
            reads = self._shapes.reads[name]
            prefix = rule.each.variable + "."
            parts = sorted(path for path in reads.where | reads.target | reads.values if path.startswith(prefix))
            elements: list[Value] = []
            for one in numbers:
                if not parts:
                    elements.append({"S": self._text(rule.each.variable, one)})
                    continue
                fields: dict[str, Value] = {"number": {"S": self._text("", one)}}
                for path in parts:
                    _put(fields, path.removeprefix(prefix), self._value(entity, path, one, edited=False))
                elements.append({"M": fields})
            yield rule.each.path, {"L": elements}

    def _recognised(self, entity: Entity, image: dict[str, Value], texts: Mapping[str, str]) -> None:
        """Gives an item the attributes by which it is recognised."""
        if entity.pattern is not None:
            examples = list(_examples(entity.pattern.conditions))
            for values in product(*(values for _, values in examples)):
                tried = dict(image)
                for (path, _), value in zip(examples, values, strict=True):
                    if value is not None and path not in texts:
                        _put(tried, path, value)
                if entity.pattern.matches(partial(_resolved, tried, texts)):
                    image.update(tried)
                    break
        item = self._original.recognise(entity.schema.key(entity.table, image), image)
        if item is None or item.entity is not entity:
            raise ProjectionsError(f"the estimate cannot generate an item of {entity.name}: give sample events instead")

    # The batch

    def _fill(self) -> None:
        for position, (flow, count) in enumerate(self._flows):
            edited = self._shapes.editable(flow) if flow.kind == EDIT else frozenset()
            table = self._original.entities[flow.entity].table
            for place in range(count):
                number = (position + 1) * _FLOW + place
                if flow.kind == INSERT:
                    self._made.add((flow.entity, number))
                    self._follow(flow.entity, number, None, fresh=True)
                    self.changes.append((INSERT, table, self._item(flow.entity, number)))
                    continue
                self._need(flow.entity, number)
                item = self._item(flow.entity, number, edited)
                if flow.kind == EDIT:
                    if any(
                        self._moves(name, edited) for name, r in self._shapes.rules.items() if r.source == flow.entity
                    ):
                        self._need(flow.entity, number + KEPT)
                        self._need(flow.entity, number + 2 * KEPT, edited)
                    self._follow(flow.entity, number, edited)
                    keys = self._original.entities[flow.entity].schema.key_attributes
                    changed = {name: item.get(name, {"S": "changed"}) for name in edited}
                    item = {name: item[name] for name in keys} | changed
                else:
                    self._follow(flow.entity, number, None)
                self.changes.append((flow.kind, table, item))

    def _moves(self, rule: str, edited: frozenset[str]) -> bool:
        return self._shapes.rules[rule].recorded and any(
            p.split(".", 1)[0] in edited for p in self._shapes.reads[rule].target
        )

    def _need(self, entity: str, number: int, edited: frozenset[str] = frozenset(), path: tuple[str, ...] = ()) -> None:
        """Sees to it that an item is there before the batch, with what its own processing needs."""
        if (entity, number) in self._made:
            return
        self._made.add((entity, number))
        if self._original.entities[entity].owned_by_rules:
            for name, rule in self._shapes.rules.items():
                if rule.into == entity and self._original.rules[name].creates:
                    source = number // self._elements(name) if name in self._targets else number % ELEMENT
                    self._need(rule.source, source, path=path)
                    return
            return
        if entity not in path:
            self._follow(entity, number, None, path=path)
        self.before.append((self._original.entities[entity].table, self._item(entity, number, edited)))

    def _follow(
        self,
        entity: str,
        number: int,
        edited: frozenset[str] | None,
        *,
        fresh: bool = False,
        path: tuple[str, ...] | None = None,
    ) -> None:
        """What rules need for a change of an item: parents, targets, children. `fresh` items have no children yet.

        `path` has the entities on the way to an item that is there before and does not change itself.
        """
        if (entity, number, edited, path is None) in self._followed:
            return
        self._followed.add((entity, number, edited, path is None))
        way = (*(path or ()), entity)
        for name, rule in self._shapes.rules.items():
            if rule.mode == "shadow" and isinstance(rule, canonical.Embed):
                continue
            if isinstance(rule, canonical.Embed):
                if rule.into == entity and edited is None:
                    self._need(rule.source, number, path=way)
                if rule.source == entity and path is None and not fresh and self._shapes.reads[name].changed_by(edited):
                    self._add_children(name, rule, number)
            elif (
                rule.source == entity
                and not isinstance(rule, canonical.Index)
                and self._shapes.reads[name].changed_by(edited)
            ):
                for target, new, written in self._reached(name, rule, number, edited, path):
                    if rule.into not in way:
                        self._follow(
                            rule.into, target, written, fresh=fresh and new, path=None if path is None else way
                        )

    def _reached(
        self, name: str, rule: canonical.Rule, number: int, edited: frozenset[str] | None, path: tuple[str, ...] | None
    ) -> Iterator[tuple[int, bool, frozenset[str] | None]]:
        """The targets of an item, whether they come to be with it, and what changes on them (None: all)."""
        way = (*(path or ()), rule.source)
        numbers = [number + k * ELEMENT for k in range(self._elements(name))]
        if edited is not None and any(p.split(".", 1)[0] in edited for p in self._shapes.reads[name].target):
            numbers.append(numbers[-1] + EDITED)
        creates, shared = self._original.rules[name].creates, name in self._targets
        if rule.recorded:
            numbers = [self._target(name, one) for one in numbers]
        if shared and (creates or path is None):
            for target in range(self._targets[name]):
                self._need(rule.source, target, path=way)
        elif path is None and self._counted_before(rule):
            self._need(rule.source, number + KEPT, path=way)
        written: frozenset[str] | None = frozenset(rule.written)
        if isinstance(rule, canonical.Copy):
            carried = (rule.attributes or {}).items()
            named = {name for name, p in carried if edited is None or p.split(".", 1)[0] in edited}
            written = None if rule.attributes is None else frozenset({*named, *rule.values})
        for target in dict.fromkeys(numbers):
            if not creates and (path is None or rule.into not in way):
                self._need(rule.into, target, path=way)
            yield target, creates and not shared, written

    def _counted_before(self, rule: canonical.Rule) -> bool:
        """Whether targets have had contributions before: unless an item brings some of its targets to life."""
        others = [name for name, other in self._shapes.rules.items() if other.source == rule.source]
        fresh = any(self._original.rules[name].creates and name not in self._targets for name in others)
        return rule.recorded and not fresh and not self._original.entities[rule.source].owned_by_rules

    def _add_children(self, name: str, rule: canonical.Embed, parent: int) -> None:
        """The children of a parent that changes; children that are copies are made by their sources."""
        if (name, parent) in self._made:
            return
        self._made.add((name, parent))
        given, entity = self._references(rule.into, parent, [rule]), rule.into
        while self._original.entities[entity].owned_by_rules:
            copies = [r for r in self._shapes.rules.values() if isinstance(r, canonical.Copy) and r.into == entity]
            if not copies:
                return
            carried = copies[0].attributes or {}
            given, entity = {carried.get(name, name): text for name, text in given.items()}, copies[0].source
        numbers = range(self._children, self._children + round(self._assumed.children_of(name)))
        self._children = numbers.stop
        kind, written = self._original.entities[entity], frozenset(rule.written)
        reading = [n for n, r in self._shapes.rules.items() if r.source == entity and self._assumed.share(n)]
        reading = [n for n in reading if not isinstance(self._shapes.rules[n], canonical.Index)]
        alone = entity == rule.into and not any(self._shapes.reads[n].changed_by(written) for n in reading)
        shown = {n: self._value(rule.source, path, parent, edited=False) for n, path in rule.attributes.items()}
        for number in numbers:
            image = self._item(entity, number, given=given)
            if alone:  # no rule has to know it, but those that keep it in indexes
                image |= shown
                item = Item(kind, kind.schema.key(kind.table, image), self._texts(entity, number, given), image)
                for index in self.program.index_rules.get(entity, ()):
                    image |= {n: value for n, value in index.desired(item).items() if value is not None}
                self.seeds.append((kind.table, self.padded(entity, image)))
                continue
            self._made.add((entity, number))
            self.before.append((kind.table, image))
            self._follow(rule.into, number, written)


_PADDING = "padding"


def _key(entity: Entity) -> list[tuple[str, str]]:
    return [each for each in (entity.schema.partition, entity.schema.sort) if each is not None]


def _digits(number: int) -> str:
    """Twenty digits; those of items that others follow are lower, as of older items."""
    return str(number + (1 if number // KEPT % 10 else 2) * 10**19)


def _time(number: int) -> str:
    older = timedelta(days=10_000) if number // KEPT % 10 else timedelta()
    return (_EPOCH + timedelta(seconds=number % EDITED) - older).strftime("%Y-%m-%dT%H:%M:%SZ")


def _put(image: dict[str, Value], path: str, value: Value) -> None:
    *steps, last = path.split(".")
    place: Any = image
    for step in steps:
        place = place.setdefault(step, {"M": {}})["M"]
    place[last] = value


def _resolved(image: Image, texts: Mapping[str, str], path: str) -> Value | None:
    return {"S": texts[path]} if path in texts else lookup(image, path)


def _may_be_absent(rule: canonical.Rule, name: str) -> bool:
    """Whether a condition of a rule holds where an attribute is absent."""
    patterns = [rule.where, *(case.where for case in rule.cases)] if isinstance(rule, canonical.Index) else [rule.where]
    return any(
        isinstance(condition, Test) and condition.name == name and Exists(False) in condition.alternatives
        for pattern in patterns
        for condition in (Pattern.parse(pattern).conditions if pattern else ())
    )


def _examples(conditions: Iterable[Test | Either]) -> Iterator[tuple[str, list[Value | None]]]:
    """Values to try for each name in a pattern; None leaves it as it is."""
    for condition in conditions:
        if isinstance(condition, Either):
            for branch in condition.branches:
                yield from _examples(branch)
            continue
        values: list[Value | None] = [None]
        for alternative in condition.alternatives:
            match alternative:
                case Equals():
                    values.append(wire(alternative.value))
                case Affix():
                    values.append({"S": alternative.text})
                case Numeric():
                    values += [{"N": number_text(n + step)} for _, n in alternative.bounds for step in (0, 1, -1)]
                case Exists() | AnythingBut():
                    values.append({"S": "there"})
        yield condition.name, values

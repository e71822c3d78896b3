"""Generate the items and changes of a batch from rules and assumptions, for a rehearsal on tables in memory.

Every item has a number, and every text in it leads back to that number (`generated`). The rules that are rehearsed have
conditions and target keys of their own (`rehearsed_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import product

from projections.errors import ProjectionsError
from projections.inspect.cost.examples import examples_of, put
from projections.inspect.cost.generated import EDITED, ELEMENT, FLOW, KEPT, Values, digits
from projections.inspect.cost.reads import Shapes, carried, roots
from projections.inspect.cost.rehearsed_rules import RehearsedRules
from projections.inspect.cost.workload import EDIT, INSERT, Assumptions, Flow
from projections.language import canonical
from projections.language.attribute_sources import pick
from projections.language.entity import Entity, Item
from projections.language.keys import Image, Value
from projections.language.syntax import root
from projections.language.templates import Template
from projections.language.values import lookup
from projections.stores.limits import item_size

__all__ = ["Synthesis"]

_CHILDREN = 990
"""Stands for a flow in the numbers of children."""


class Synthesis:
    """The items of one batch: `before` exist already, `changes` are in the batch.

    `counts` are whole numbers; `below` and `joining` as in `RehearsedRules`.
    """

    def __init__(
        self, shapes: Shapes, assumed: Assumptions, counts: Mapping[Flow, int], below: float, *, joining: bool
    ) -> None:
        self._shapes = shapes
        self._original = shapes.program
        self._assumed = assumed
        self._flows = list(counts.items())
        self._values = Values(shapes)
        toggled = {1 + place: shapes.decided_by(flow) for place, (flow, _) in enumerate(self._flows)}
        toggled[_CHILDREN] = frozenset().union(*toggled.values())
        sizes = [count for _, count in self._flows]
        self._rules = RehearsedRules(shapes, assumed, self._values, sizes, toggled, below, joining=joining)
        self.program = self._rules.program
        self.before: list[tuple[str, Image]] = []
        """Tables and items, parents and targets before sources."""
        self.seeds: list[tuple[str, Image]] = []
        """Items that are there before, and that no rule has to see for that."""
        self.changes: list[tuple[str, str, Image]] = []
        """What happens (insert, edit, remove), the table, and the item or what an edit sets of it."""
        self._made: set[tuple[str, int]] = set()
        self._followed: set[tuple[str, int, frozenset[str] | None, bool]] = set()
        self._children = _CHILDREN * FLOW
        self._fill()

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
        several = self._several(name, number, edited, given or {})
        for path in self._shapes.paths(name):
            text = references.get(path)
            if path in several:
                value = several[path]
            elif text is not None:
                value = {"S": text}
            else:
                value = self._values.value(name, path, number, root(path) in edited)
            put(image, path, value)
        for path, value in self._lists(name, number, edited):
            put(image, path, value)

        self._recognised(entity, image, texts)
        kept = self._original.typed.entities[name].index_key
        for partition, sort in entity.schema.indexes.values():
            own = [one for one in (*partition, *sort) if one[0] not in entity.schema.key_attributes]
            if any(attribute in kept for attribute, _ in own):
                for attribute, kind in own:
                    image[attribute] = {
                        kind: Template.parse(kept.get(attribute, "0")).render(partial(_resolved, image, texts)) or "0"
                    }
        return self.padded(name, image)

    def _texts(self, entity: str, number: int, given: Mapping[str, str]) -> dict[str, str]:
        """The variables of an item's key."""
        return {v: given.get(v) or self._values.text(v, number) for v in self._shapes.variables[entity]}

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
                    return {"S": self._values.text(path, number)}
                return self._values.value(parent, path, number, edited=False)

            for name, text in rule.match.items():
                rendered = Template.parse(text).render(resolve)
                if rendered is not None:
                    found[name] = rendered
                    self._values.numbers.setdefault(rendered, number)
        return found

    def _several(self, entity: str, number: int, edited: frozenset[str], given: Mapping[str, str]) -> dict[str, Value]:
        """The lists of references of children of several parents, the first of them as `given`."""
        found: dict[str, Value] = {}
        for name, rule in self._shapes.rules.items():
            if not isinstance(rule, canonical.Embed) or rule.listed is None or rule.into != entity:
                continue
            path = rule.listed.references
            numbers = self._parents(name, number)
            numbers[-1] += EDITED * (root(path) in edited)
            texts = [self._references(entity, one, [rule]).get(path) for one in numbers]
            texts[0] = given.get(path, texts[0])
            found[path] = {"L": [{"S": text} for text in texts if text is not None]}
        return found

    def _parents(self, name: str, number: int) -> list[int]:
        """The numbers of the parents that a child references."""
        return [number + k * ELEMENT for k in range(self._rules.elements(name, self._shapes.rules[name].source))]

    def _lists(self, entity: str, number: int, edited: frozenset[str]) -> Iterator[tuple[str, Value]]:
        """The lists (or paths) that rules make one contribution for each element of."""
        for name, rule in self._shapes.variants:
            if rule.source != entity or rule.each is None:
                continue
            changed = root(rule.each.path) in edited
            count = self._rules.elements(name, entity)
            numbers = [number + k * ELEMENT + EDITED * (changed and k == count - 1) for k in range(count)]
            if rule.each.ancestors:
                steps: list[str] = []
                for one in numbers:
                    steps.append(digits(one))
                    self._values.numbers[rule.each.separator.join(steps)] = one
                yield rule.each.path, {"S": rule.each.separator.join([*steps, "x"])}
                continue
            reads = self._shapes.reads[name, entity]
            prefix = rule.each.variable + "."
            parts = sorted(path for path in reads.where | reads.target | reads.values if path.startswith(prefix))
            elements: list[Value] = []
            for one in numbers:
                if not parts:
                    elements.append({"S": self._values.text(rule.each.variable, one)})
                    continue
                fields: dict[str, Value] = {"number": {"S": self._values.text("", one)}}
                for path in parts:
                    put(fields, path.removeprefix(prefix), self._values.value(entity, path, one, edited=False))
                elements.append({"M": fields})
            yield rule.each.path, {"L": elements}

    def _recognised(self, entity: Entity, image: dict[str, Value], texts: Mapping[str, str]) -> None:
        """Gives an item the attributes by which it is recognised."""
        if entity.pattern is not None:
            examples = list(examples_of(entity.pattern.conditions))
            for values in product(*(values for _, values in examples)):
                tried = dict(image)
                for (path, _), value in zip(examples, values, strict=True):
                    if value is not None and path not in texts:
                        put(tried, path, value)
                if entity.pattern.matches(partial(_resolved, tried, texts)):
                    image.update(tried)
                    break
        try:
            item = self._original.recognise(entity.schema.key(entity.table, image), image)
        except KeyError:  # a condition on a key attribute put a value of another type there
            item = None
        if item is None or item.entity is not entity:
            raise ProjectionsError(f"the estimate cannot generate an item of {entity.name}: give sample events instead")

    # The batch

    def _fill(self) -> None:
        for position, (flow, count) in enumerate(self._flows):
            edited = self._shapes.editable(flow) if flow.kind == EDIT else frozenset()
            table = self._original.entities[flow.entity].table
            for place in range(count):
                number = (position + 1) * FLOW + place
                if flow.kind == INSERT:
                    self._made.add((flow.entity, number))
                    self._follow(flow.entity, number, None, fresh=True)
                    self.changes.append((INSERT, table, self._item(flow.entity, number)))
                    continue
                self._need(flow.entity, number)
                item = self._item(flow.entity, number, edited)
                if flow.kind == EDIT:
                    self._count_before(flow.entity, number)
                    if any(
                        self._moves(name, r, edited) for name, r in self._shapes.variants if r.source == flow.entity
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

    def _count_before(self, entity: str, number: int) -> None:
        """Sees to it that values of aggregates from which others are computed are not 0."""
        computed = [name for name, rule in self._shapes.rules.items() if isinstance(rule, canonical.Compute)]
        own = [name for name in computed if self._shapes.rules[name].source == entity]
        read = {path for name in own for path in self._shapes.reads[name, entity].values}
        for _, rule in self._shapes.variants:
            if isinstance(rule, canonical.Aggregate) and rule.into == entity and read.intersection(rule.written):
                self._need(rule.source, number + KEPT, path=(entity,))

    def _moves(self, name: str, rule: canonical.Rule, edited: frozenset[str]) -> bool:
        target = self._shapes.reads[name, rule.source].target
        return rule.recorded and any(root(p) in edited for p in target)

    def _need(self, entity: str, number: int, edited: frozenset[str] = frozenset(), path: tuple[str, ...] = ()) -> None:
        """Sees to it that an item is there before the batch, with what its own processing needs."""
        if (entity, number) in self._made:
            return
        self._made.add((entity, number))
        if self._original.entities[entity].owned_by_rules:
            for name, rule in self._shapes.rules.items():
                if rule.into == entity and self._original.rules[name].creates:
                    elements = self._rules.elements(name, rule.source)
                    source = number // elements if name in self._rules.targets else number % ELEMENT
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
        if edited is not None:
            edited = self._shapes.computed_from(entity, edited)
        if (entity, number, edited, path is None) in self._followed:
            return
        self._followed.add((entity, number, edited, path is None))
        way = (*(path or ()), entity)
        for name, rule in self._shapes.variants:
            if rule.mode == "shadow" and isinstance(rule, canonical.Embed):
                continue
            if isinstance(rule, canonical.Embed):
                if rule.into == entity and edited is None:
                    for parent in self._parents(name, number):
                        self._need(rule.source, parent, path=way)
                if (
                    rule.source == entity
                    and path is None
                    and not fresh
                    and self._shapes.reads[name, rule.source].changed_by(edited)
                ):
                    self._add_children(name, rule, number)
            elif (
                rule.source == entity
                and not isinstance(rule, canonical.Index | canonical.Compute)
                and self._shapes.reads[name, rule.source].changed_by(edited)
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
        numbers = [number + k * ELEMENT for k in range(self._rules.elements(name, rule.source))]
        if edited is not None and any(root(p) in edited for p in self._shapes.reads[name, rule.source].target):
            numbers.append(numbers[-1] + EDITED)
        creates, shared = self._original.rules[name].creates, name in self._rules.targets
        if rule.recorded:
            numbers = [self._rules.target(name, rule.source, one) for one in numbers]
        if shared and (creates or path is None):
            for target in range(self._rules.targets[name]):
                self._need(rule.source, target, path=way)
        elif path is None and self._counted_before(rule):
            self._need(rule.source, number + KEPT, path=way)
        written: frozenset[str] | None = frozenset(rule.written)
        if isinstance(rule, canonical.Copy):
            copied = (rule.attributes or {}).items()
            named = {name for name, text in copied if edited is None or not edited.isdisjoint(roots(text))}
            written = None if rule.attributes is None else frozenset({*named, *rule.values})
        for target in dict.fromkeys(numbers):
            if rule.kind != "rank" and not creates and (path is None or rule.into not in way):
                self._need(rule.into, target, path=way)
            yield target, creates and not shared, written

    def _counted_before(self, rule: canonical.Rule) -> bool:
        """Whether targets have had contributions before: unless an item brings some of its targets to life."""
        others = [name for name, other in self._shapes.variants if other.source == rule.source]
        fresh = any(self._original.rules[name].creates and name not in self._rules.targets for name in others)
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
            paths = carried(copies[0])
            given, entity = {paths.get(name, name): text for name, text in given.items()}, copies[0].source
        numbers = range(self._children, self._children + round(self._assumed.children_of(name)))
        self._children = numbers.stop
        kind, written = self._original.entities[entity], frozenset(rule.written)
        reading = [n for n, r in self._shapes.variants if r.source == entity and self._assumed.share(n)]
        reading = [n for n in reading if not isinstance(self._shapes.rules[n], canonical.Index | canonical.Compute)]
        # a push finds children of several parents only by what the rule has written
        alone = entity == rule.into and rule.listed is None
        alone = alone and not any(self._shapes.reads[n, entity].changed_by(written) for n in reading)
        shown = pick(rule.attributes)(lambda path: self._values.value(rule.source, path, parent, edited=False))
        for number in numbers:
            image = self._item(entity, number, given=given)
            if alone:  # no rule has to know it, but those that keep it in indexes
                image |= shown
                item = Item(kind, kind.schema.key(kind.table, image), self._texts(entity, number, given), image)
                for index in self.program.item_rules.get(entity, ()):
                    image |= {n: value for n, value in index.desired(item).items() if value is not None}
                self.seeds.append((kind.table, self.padded(entity, image)))
                continue
            self._made.add((entity, number))
            for other in self._parents(name, number)[1:]:
                self._need(rule.source, other, path=(rule.into,))
            self.before.append((kind.table, image))
            self._follow(rule.into, number, written)


_PADDING = "padding"


def _key(entity: Entity) -> list[tuple[str, str]]:
    return [each for each in (entity.schema.partition, entity.schema.sort) if each is not None]


def _resolved(image: Image, texts: Mapping[str, str], path: str, stored: bool = False) -> Value | None:
    return {"S": texts[path]} if path in texts else lookup(image, path, stored)

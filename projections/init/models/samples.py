"""Sample items of each entity of a rule file, with the values that its rules derive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product

from projections.errors import BadInput, ProjectionsError
from projections.init.events import record
from projections.init.inference.words import words
from projections.init.invent import text_of
from projections.inspect.cost.examples import examples_of, put
from projections.inspect.cost.reads import Shapes
from projections.language import canonical
from projections.language.entity import Entity
from projections.language.keys import Image, ItemKey, Value
from projections.language.patterns import Pattern
from projections.language.program import Program
from projections.language.templates import Template
from projections.language.values import lookup
from projections.local.replay import replay
from projections.local.tables import MemoryTables, schemas

__all__ = ["sample_items"]

_EACH = 2
"""Items of an entity that the application writes."""
_TRIED = 8
"""Numbers that are tried for them, because entities with equal key templates share the keys."""
_MOST = 3
"""Items of an entity in the samples; rules may create more."""

_FORMS = {"date": "time", "ulid": "ulid", "pad": "digits", "invert": "digits", "ms": "digits", "number": "digits"}


def sample_items(program: Program) -> dict[str, list[Image]]:
    """Return items by entity: those that the application would write, after the rules have run on them."""
    invented = _Samples(program).items()
    records = [
        record(table, program.tables[table].key_attributes, number, None, image)
        for number, (table, image) in enumerate(invented)
    ]
    try:
        after = replay(program, records, MemoryTables(schemas(program), records)).after
    except ProjectionsError:  # the samples are not worth an error: without derived values they are still items
        after = {program.tables[table].key(table, image): image for table, image in invented}
    found: dict[str, list[Image]] = {name: [] for name in program.entities}
    for key, image in after.items():
        item = program.recognise(key, image)
        if item is not None and len(found[item.entity.name]) < _MOST:
            found[item.entity.name].append(
                {name: value for name, value in image.items() if not name.startswith(program.guard_prefix)}
            )
    return found


class _Samples:
    """Items that the application would write. Items of different entities with one number refer to each other."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.shapes = Shapes(program)
        self.same = dict(self._references())

    def items(self) -> list[tuple[str, Image]]:
        found: dict[ItemKey, tuple[str, Image]] = {}
        for name, entity in self.program.entities.items():
            made = 0
            for number in range(1, _TRIED + 1) if not entity.owned_by_rules else ():
                image = self._item(name, entity, number) if made < _EACH else None
                if image is not None and (key := entity.schema.key(entity.table, image)) not in found:
                    found[key] = (entity.table, image)
                    made += 1
        return list(found.values())

    def _references(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the attributes and variables whose values are those of a variable of another entity."""
        for _, rule in self.program.typed.variants():
            if isinstance(rule, canonical.Embed):
                for path, text in rule.match.items():
                    if single := _variable(text):
                        yield (rule.into, path), single
            for variable, text in rule.bind.items():
                if single := _variable(text):
                    yield (rule.source, single), variable

    def _text(self, entity: str, name: str, number: int) -> str:
        name = self.same.get((entity, name), name)
        form, _ = self.shapes.forms.get(("", name), self.shapes.forms.get((entity, name), ("", 0)))
        return text_of(name, "time" if words(name)[-1:] == ["at"] and not form else _FORMS.get(form, "text"), number)

    def _item(self, name: str, entity: Entity, number: int) -> Image | None:
        """Return an item; None if none that is recognised was found."""
        texts = {variable: self._text(name, variable, number) for variable in self.shapes.variables[name]}
        keys = [one for one in (entity.schema.partition, entity.schema.sort) if one is not None]
        for (_, kind), template in zip(keys, entity.patterns, strict=True):
            if kind == "N":
                texts |= {variable: str(100 + number) for variable in template.names}
        image: dict[str, Value] = {}
        try:
            for (attribute, kind), template in zip(keys, entity.patterns, strict=True):
                image[attribute] = {kind: template.render(texts)}
        except BadInput:
            return None
        for path in self.shapes.paths(name):
            put(image, path, self._value(name, path, number))
        for path, value in self._lists(name, number):
            put(image, path, value)
        for pattern in self._conditions(name):
            image = self._fitting(image, texts, pattern)
        image = self._fitting(image, texts, entity.pattern) if entity.pattern is not None else image
        resolve = partial(_resolved, image, texts)
        for attribute, text in self.program.typed.entities[name].index_key.items():
            types = {n: kind for parts in entity.schema.indexes.values() for part in parts for n, kind in part}
            if attribute not in image and (rendered := Template.parse(text).render(resolve)) is not None:
                image[attribute] = {types[attribute]: rendered}
        try:
            item = self.program.recognise(entity.schema.key(entity.table, image), image)
        except KeyError:  # a condition on a key attribute put a value of another type there
            return None
        return image if item is not None and item.entity is entity else None

    def _conditions(self, entity: str) -> Iterator[Pattern]:
        """Yield the conditions of rules that read the entity, those of whole rules last."""
        rules = [rule for _, rule in self.shapes.variants if rule.source == entity]
        for rule in rules:
            if isinstance(rule, canonical.Index):
                yield from (Pattern.parse(case.where) for case in rule.cases[:1] if case.where)
            elif isinstance(rule, canonical.Aggregate):
                yield from (Pattern.parse(measure.where) for measure in rule.set.values() if measure.where)
        yield from (Pattern.parse(rule.where) for rule in rules if rule.where)

    def _value(self, entity: str, path: str, number: int) -> Value:
        form, _ = self.shapes.forms.get((entity, path), ("", 0))
        if form == "ms":
            return {"N": str(1_767_225_600_000 + number)}
        if form in ("pad", "invert", "number"):
            return {"N": str(10 * number)}
        return {"S": self._text(entity, path, number)}

    def _lists(self, entity: str, number: int) -> Iterator[tuple[str, Value]]:
        for embed in self.program.typed.rules.values():
            if isinstance(embed, canonical.Embed) and embed.listed is not None and embed.into == entity:
                path = embed.listed.references
                yield path, {"L": [{"S": self._text(entity, path, one)} for one in (1, 2)]}
        for name, rule in self.shapes.variants:
            if rule.source != entity or rule.each is None:
                continue
            each = rule.each
            if each.ancestors:
                yield each.path, {"S": each.separator.join(text_of(each.variable, "text", n) for n in (1, number))}
                continue
            reads = self.shapes.reads[name, entity]
            prefix = each.variable + "."
            parts = sorted(path for path in reads.where | reads.target | reads.values if path.startswith(prefix))
            elements: list[Value] = []
            for one in (1, 2):
                fields: dict[str, Value] = {}
                for path in parts:
                    put(fields, path.removeprefix(prefix), self._value(entity, path, one))
                elements.append({"M": fields} if parts else {"S": self._text(entity, each.variable, one)})
            yield each.path, {"L": elements}

    def _fitting(self, image: dict[str, Value], texts: Mapping[str, str], pattern: Pattern) -> dict[str, Value]:
        """Return the item with the attributes that a pattern requires; unchanged if none are found."""
        examples = list(examples_of(pattern.conditions))
        for values in product(*(values for _, values in examples)):
            tried = _with(image, texts, [(path, value) for (path, _), value in zip(examples, values, strict=True)])
            if pattern.matches(partial(_resolved, tried, texts)):
                return tried
        return image


def _variable(template: str) -> str | None:
    """Return the variable that a template consists of, without pipes."""
    parsed = Template.parse(template)
    return parsed.single if parsed.single and not parsed.fields[0].pipes else None


def _with(
    image: Mapping[str, Value], texts: Mapping[str, str], values: Sequence[tuple[str, Value | None]]
) -> dict[str, Value]:
    found = dict(image)
    for path, value in values:
        if value is not None and path not in texts and "." not in path:
            put(found, path, value)
    return found


def _resolved(image: Image, texts: Mapping[str, str], path: str, stored: bool = False) -> Value | None:
    return {"S": texts[path]} if path in texts else lookup(image, path, stored)

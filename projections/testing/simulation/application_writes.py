"""The application under simulation: its random writes, and those that change the kind of an item.

Each function is one write, or returns false if it is not possible now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random

from projections.engine.store import Image, ItemKey, Update, Value
from projections.errors import InvalidRequest
from projections.language.entity import Entity
from projections.language.syntax import root
from projections.testing.pools import FOREIGN
from projections.testing.simulation import external_writes
from projections.testing.simulation.item_writer import ItemWriter, place

_HELD = 6
"""The most items that are read and may be put back."""


def put(writer: ItemWriter) -> bool:
    kind = writer.pick(writer.kind_list)
    key, variables = writer.pick(kind.keys)
    writer.store.put(key.table, writer.new(kind, key, variables))
    return True


def update(writer: ItemWriter) -> bool:
    chosen = writer.existing(lambda entity: not entity.owned_by_rules)
    if chosen is None:
        return False
    key, entity = chosen
    kind, image = writer.kinds[entity.name], writer.items[key]
    change: dict[str, Value] = {}
    remove: list[str] = []
    for _ in range(writer.rng.choice((1, 1, 2))):
        if not kind.attributes or writer.rng.random() < 0.15:
            change[FOREIGN] = writer.remark()
            continue
        path = writer.pick(list(kind.attributes))
        top, value = root(path), writer.value(kind, path)
        if value is None or writer.rng.random() < 0.15:
            remove.append(top)
        else:
            change[top] = place(image.get(top), path, value)
    edited = {name: value for name, value in image.items() if name not in remove} | change
    edited = writer.keep_index_keys(key, edited)
    change = {name: value for name, value in edited.items() if image.get(name) != value}
    writer.store.write(Update(key, set=change, remove=[name for name in image if name not in edited]))
    return True


def refer(writer: ItemWriter) -> bool:
    """Change what a child references its parent by beside the parent's key to what another item has there."""
    chosen = writer.existing(lambda entity: entity.name in writer.pools.parts)
    if chosen is not None:
        name = writer.pick(writer.pools.parts[chosen[1].name])
        values = [image[name] for image in writer.items.values() if name in image] or [{"S": "x"}]
        writer.store.write(Update(chosen[0], set={name: writer.pick(values)}))
    return chosen is not None


def annotate(writer: ItemWriter) -> bool:
    """Add an attribute of the application to an item that rules created."""
    chosen = writer.existing(lambda entity: entity.owned_by_rules)
    if chosen is not None:
        writer.store.write(Update(chosen[0], set={FOREIGN: writer.remark()}))
    return chosen is not None


def delete(writer: ItemWriter) -> bool:
    return writer.remove(lambda entity: not entity.owned_by_rules)


def expire(writer: ItemWriter) -> bool:
    return writer.remove(lambda entity: entity.expires and not entity.owned_by_rules, by_ttl=True)


def read(writer: ItemWriter) -> bool:
    """Read a whole item, to put it back later."""
    chosen = writer.existing(lambda entity: True)
    if chosen is not None:
        writer.held = [*writer.held[-_HELD + 1 :], (chosen[0], writer.items[chosen[0]])]
    return chosen is not None


def put_back(writer: ItemWriter) -> bool:
    """Put back a whole item as it was read, with its derived values and guards, edited or not."""
    if not writer.held:
        return False
    key, image = writer.held.pop(int(writer.rng.random() * len(writer.held)))
    edited = dict(image)
    if writer.rng.random() < 0.7:
        edited[FOREIGN] = writer.remark()
        item = writer.program.recognise(key, image)
        kind = writer.kinds.get(item.entity.name) if item is not None else None
        if kind is not None and kind.attributes and writer.rng.random() < 0.5:
            path = writer.pick(list(kind.attributes))
            if (value := writer.value(kind, path)) is not None:
                edited[root(path)] = place(edited.get(root(path)), path, value)
    return writer.put_whole(key, edited)


def occupy(writer: ItemWriter) -> bool:
    """Put an item of another kind under a key that rules write to, whatever is there."""
    if not writer.target_keys:
        return False
    entity, key = writer.pick(writer.target_keys)
    plain = {**entity.schema.wire(key), FOREIGN: writer.remark()}
    image = _of_another_entity(writer, entity, key, 0.7) or writer.of_kind(entity, key, plain, fits=False)
    if image is None or writer.is_of(key, image, entity):
        return False
    writer.store.put(key.table, {**image, **writer.own_values(entity, key, 0.4)})
    return True


def _of_another_entity(writer: ItemWriter, entity: Entity, key: ItemKey, rate: float) -> Image | None:
    """Return an item of another entity whose items can have a key; None if there is none, or not this time."""
    others = [writer.kinds[known.name] for known in writer.program.entities_at(key) if known.name in writer.kinds]
    others = [kind for kind in others if kind.entity is not entity]
    if not others or writer.rng.random() >= rate:
        return None
    kind = writer.pick(others)
    variables: Mapping[str, str] = next((known for kind_key, known in kind.keys if kind_key == key), {})
    return writer.new(kind, key, {**dict.fromkeys(kind.variables, "x"), **variables})


def put_over(writer: ItemWriter) -> bool:
    """Put an item of another kind over one, whole and without guards, with some values that equal those of rules."""
    candidates: list[tuple[ItemKey, Entity, list[str]]] = []
    for key, image in writer.items.items():
        item = writer.program.recognise(key, image)
        if item is not None and item.entity.match is not None:
            names = [name for name in writer.derived_names(item.entity, image) if name in image]
            candidates += [(key, item.entity, names)] if names else []
    if not candidates:
        return False
    key, entity, names = writer.pick(candidates)
    image = writer.items[key]
    put = _of_another_entity(writer, entity, key, 0.5) or writer.of_kind(
        entity, key, {**entity.schema.wire(key), FOREIGN: writer.remark()}, fits=False
    )
    if put is None:
        return False
    read = {name for name, _ in writer.pools.matches.get(entity.name, ())}
    values: dict[str, Value] = {}
    for name in names:
        dice = writer.rng.random()
        if name not in read and dice < 0.8:
            kept = dice < 0.5
            values[name] = image[name] if kept else {"N": "77"} if "N" in image[name] else {"S": "mine"}
    if writer.is_of(key, put := {**put, **values}, entity):
        return False
    writer.own[key] = None
    writer.store.put(key.table, put)
    return True


def vacate(writer: ItemWriter) -> bool:
    """Delete an item that belongs to no entity."""
    keys = [key for key, image in writer.items.items() if writer.program.recognise(key, image) is None]
    if keys:
        writer.store.remove(writer.pick(keys))
    return bool(keys)


def adopt(writer: ItemWriter) -> bool:
    """Put an item of the application, of the right kind, under a key where rules create items, before or after they do."""
    if not writer.created_keys:
        return False
    entity, key = writer.pick(writer.created_keys)
    image: dict[str, Value] = {**entity.schema.wire(key), **entity.constants}
    if writer.rng.random() < 0.7:
        image[FOREIGN] = writer.remark()
    image.update(writer.own_values(entity, key, 0.3))
    of_kind = writer.of_kind(entity, key, image, fits=True)
    if of_kind is not None:
        writer.store.put(key.table, of_kind)
    return of_kind is not None


def change_kind(writer: ItemWriter) -> bool:
    """Change the kind of an item, or change it back, by an update or a put."""
    keys = [key for key in writer.items if any(entity.match is not None for entity in writer.program.entities_at(key))]
    if not keys:
        return False
    key = writer.pick(keys)
    entity = writer.pick([entity for entity in writer.program.entities_at(key) if entity.match is not None])
    image = writer.items[key]
    turned = writer.of_kind(entity, key, image, fits=not writer.is_of(key, image, entity))
    if turned is None:
        return False
    if own := writer.own_values(entity, key, 0.3):
        writer.touched[key] = None
    turned = {**turned, **own}
    if writer.rng.random() < 0.5:
        gone = [name for name in image if name not in turned]
        change = {name: value for name, value in turned.items() if image.get(name) != value}
        writer.store.write(Update(key, set=change, remove=gone))
        return True
    if writer.rng.random() < 0.7:
        turned = {name: value for name, value in turned.items() if not name.startswith(writer.program.guard_prefix)}
    writer.store.put(key.table, {**turned, FOREIGN: writer.remark()})
    return True


def come_between(writer: ItemWriter, key: ItemKey, *, changes_kind: bool, adopts: bool) -> None:
    """Write to an item that the engine is about to write to."""
    image = writer.items.get(key)
    if image is None:
        return
    made = [entity for entity in writer.program.entities_at(key) if entity.owned_by_rules]
    if adopts and writer.rng.random() < 0.4 and made:
        writer.store.put(key.table, {**made[0].schema.wire(key), **made[0].constants, FOREIGN: writer.remark()})
        return
    if changes_kind and writer.rng.random() < 0.4:
        entities = [entity for entity in writer.program.entities_at(key) if entity.match is not None]
        turned = writer.of_kind(writer.pick(entities), key, image, fits=False) if entities else None
        if turned is not None:
            with suppress(InvalidRequest):
                if writer.rng.random() < 0.5:
                    prefix = writer.program.guard_prefix
                    turned = {name: value for name, value in turned.items() if not name.startswith(prefix)}
                writer.store.put(key.table, {**turned, FOREIGN: writer.remark()})
            return
    writer.store.write(Update(key, set={FOREIGN: writer.remark()}))


_Operation = Callable[[ItemWriter], bool]

_WEIGHTS: dict[_Operation, int] = {
    put: 10,
    update: 10,
    annotate: 2,
    delete: 5,
    expire: 4,
    read: 5,
    put_back: 6,
    external_writes.change_derived: 3,
    external_writes.remove_guard: 2,
    external_writes.forge_guard: 2,
    external_writes.clone: 3,
    external_writes.delete_created: 2,
    external_writes.replace_created: 2,
    external_writes.recreate: 1,
    external_writes.change_constant: 1,
    occupy: 4,
    vacate: 2,
    change_kind: 6,
    adopt: 4,
    external_writes.malform_guard: 4,
    external_writes.clone_again: 4,
}
"""How often the application does what; each history leaves some operations out and prefers others."""

_APART: dict[_Operation, float] = {put_over: 0.3, refer: 0.4}
"""Operations with a generator of their own, so that histories without them stay as they are, with their probability."""

OPERATIONS = {operation.__name__: weight for operation, weight in (*_WEIGHTS.items(), *_APART.items())}
"""The names of all operations, with how often they occur."""


class Application:
    """Random writes to the tables of a program. `without` are names of operations.

    `apart` decides about operations that only some histories have; without it, there are none. `attack` perhaps makes a
    write instead, and returns its name.
    """

    def __init__(
        self,
        writer: ItemWriter,
        without: frozenset[str] = frozenset(),
        attack: Callable[[], str] = lambda: "",
        apart: Random | None = None,
    ) -> None:
        self._attack = attack
        rng = writer.rng
        self._random = rng.random
        self.writer = writer
        self._first = self.writer.targets() if rng.random() < 0.7 else []
        """What is written before all else."""
        self._operations: list[_Operation] = []
        for operation, weight in _WEIGHTS.items():
            times = 1 if operation is put else rng.choice((0, 1, 1, 3))
            if operation.__name__ not in without:
                self._operations += [operation] * (weight * times)
        self._apart_rng = apart
        self._apart = [
            (operation, chance)
            for operation, chance in _APART.items()
            if apart is not None
            and operation.__name__ not in without
            and (writer.pools.parts if operation is refer else apart.random() < 0.3)
        ]

    def write(self) -> str:
        """Make one write, or one read of an item that will be put back; return the name of the operation, or "nothing"."""
        writer = self.writer
        if self._first:
            kind, key, variables = self._first.pop()
            with suppress(InvalidRequest):
                writer.store.put(key.table, writer.new(kind, key, variables))
            return "put"
        with suppress(InvalidRequest):
            if attack := self._attack():
                return attack
        for apart, chance in self._apart:
            assert self._apart_rng is not None
            if self._apart_rng.random() < chance and self._done_apart(apart, self._apart_rng):
                return apart.__name__
        for _ in range(8):
            operation = self._operations[int(self._random() * len(self._operations))]
            try:
                if operation(writer):
                    return operation.__name__
            except InvalidRequest:  # DynamoDB refuses it, as a key of an index in the wrong type
                continue
        return "nothing"

    def _done_apart(self, operation: _Operation, rng: Random) -> bool:
        """Whether an operation was possible, with a generator of its own."""
        writer = self.writer
        writer.rng, usual = rng, writer.rng
        try:
            return operation(writer)
        except InvalidRequest:
            return False
        finally:
            writer.rng = usual

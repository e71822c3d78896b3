"""Writes that change which entity an item belongs to, or that put items of the application under keys of rules.

Each function is one write, or returns false if it is not possible now.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from projections.engine.store import Image, ItemKey, Update, Value
from projections.errors import InvalidRequest
from projections.language.entity import Entity
from projections.testing.simulation.item_writer import ItemWriter
from projections.testing.simulation.pools import FOREIGN

__all__ = ["adopt", "change_kind", "come_between", "occupy", "put_over", "vacate"]


def occupy(writer: ItemWriter) -> bool:
    """Put an item of another kind under a key that rules write to, whatever is there."""
    if not writer.target_keys:
        return False
    entity, key = writer.pick(writer.target_keys)
    others = [writer.kinds[one.name] for one in writer.program.entities_at(key) if one.name in writer.kinds]
    others = [kind for kind in others if kind.entity is not entity]
    image: Image | None = {**entity.schema.wire(key), FOREIGN: writer.remark()}
    if others and writer.rng.random() < 0.7:
        kind = writer.pick(others)
        variables: Mapping[str, str] = next((known for one, known in kind.keys if one == key), {})
        image = writer.new(kind, key, {**dict.fromkeys(kind.variables, "x"), **variables})
    elif image is not None:
        image = writer.of_kind(entity, key, image, fits=False)
    if image is None or writer.is_of(key, image, entity):
        return False
    writer.store.put(key.table, {**image, **writer.own_values(entity, key, 0.4)})
    return True


def put_over(writer: ItemWriter) -> bool:
    """Put an item of another kind over one, whole and without guards, with some values that equal those of rules."""
    found: list[tuple[ItemKey, Entity, list[str]]] = []
    for key, image in writer.items.items():
        item = writer.program.recognise(key, image)
        if item is not None and item.entity.match is not None:
            names = [name for name in writer.derived_names(item.entity, image) if name in image]
            found += [(key, item.entity, names)] if names else []
    if not found:
        return False
    key, entity, names = writer.pick(found)
    image = writer.items[key]
    others = [writer.kinds[one.name] for one in writer.program.entities_at(key) if one.name in writer.kinds]
    others = [kind for kind in others if kind.entity is not entity]
    put: Image | None
    if others and writer.rng.random() < 0.5:
        kind = writer.pick(others)
        variables: Mapping[str, str] = next((known for one, known in kind.keys if one == key), {})
        put = writer.new(kind, key, {**dict.fromkeys(kind.variables, "x"), **variables})
    else:
        put = writer.of_kind(entity, key, {**entity.schema.wire(key), FOREIGN: writer.remark()}, fits=False)
    if put is None:
        return False
    read = {name for name, _ in writer.pools.matches.get(entity.name, ())}
    values: dict[str, Value] = {}
    for name in names:
        dice = writer.rng.random()
        if name not in read and dice < 0.8:
            kept = dice < 0.5
            values[name] = image[name] if kept else {"N": "77"} if "N" in image[name] else {"S": "mine"}
    put = {**put, **values}
    if writer.is_of(key, put, entity):
        return False
    writer.own[key] = None
    writer.store.put(key.table, put)
    return True


def vacate(writer: ItemWriter) -> bool:
    """Delete an item that belongs to no entity."""
    keys = [key for key, image in writer.items.items() if writer.program.recognise(key, image) is None]
    if not keys:
        return False
    writer.store.remove(writer.pick(keys))
    return True


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
    if of_kind is None:
        return False
    writer.store.put(key.table, of_kind)
    return True


def change_kind(writer: ItemWriter) -> bool:
    """Change the kind of an item, or change it back, by an update or a put."""
    keys = [key for key in writer.items if any(one.match is not None for one in writer.program.entities_at(key))]
    if not keys:
        return False
    key = writer.pick(keys)
    entity = writer.pick([one for one in writer.program.entities_at(key) if one.match is not None])
    image = writer.items[key]
    turned = writer.of_kind(entity, key, image, fits=not writer.is_of(key, image, entity))
    if turned is None:
        return False
    own = writer.own_values(entity, key, 0.3)
    if own:
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
    if adopts and writer.rng.random() < 0.4:
        made = [one for one in writer.program.entities_at(key) if one.owned_by_rules]
        if made:
            own = {**made[0].schema.wire(key), **made[0].constants, FOREIGN: writer.remark()}
            writer.store.put(key.table, own)
            return
    if changes_kind and writer.rng.random() < 0.4:
        entities = [one for one in writer.program.entities_at(key) if one.match is not None]
        turned = writer.of_kind(writer.pick(entities), key, image, fits=False) if entities else None
        if turned is not None:
            with suppress(InvalidRequest):
                if writer.rng.random() < 0.5:
                    prefix = writer.program.guard_prefix
                    turned = {name: value for name, value in turned.items() if not name.startswith(prefix)}
                writer.store.put(key.table, {**turned, FOREIGN: writer.remark()})
            return
    writer.store.write(Update(key, set={FOREIGN: writer.remark()}))

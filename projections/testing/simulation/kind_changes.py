"""Writes that change which entity an item belongs to, or that put items of the application under keys of rules.

Each function is one write, or returns false if it is not possible now.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from projections.engine.store import Image, ItemKey, Update, Value
from projections.errors import InvalidRequest
from projections.testing.simulation.item_writer import ItemWriter
from projections.testing.simulation.pools import FOREIGN

__all__ = ["adopt", "change_kind", "come_between", "occupy", "vacate"]


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

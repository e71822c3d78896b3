"""What every application does: each function is one write, or returns false if it is not possible now."""

from __future__ import annotations

from projections.engine.store import Update, Value
from projections.language.syntax import root
from projections.testing.simulation.item_writer import ItemWriter, placed
from projections.testing.simulation.pools import FOREIGN

__all__ = ["annotate", "delete", "expire", "put", "put_back", "read", "update"]

_HELD = 6
"""The most items that are read and may be put back."""


def put(writer: ItemWriter) -> bool:
    kind = writer.pick(writer.kind_list)
    key, variables = writer.pick(kind.keys)
    writer.store.put(key.table, writer.new(kind, key, variables))
    return True


def update(writer: ItemWriter) -> bool:
    found = writer.existing(lambda entity: not entity.owned_by_rules)
    if found is None:
        return False
    key, entity = found
    kind = writer.kinds[entity.name]
    image = writer.items[key]
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
            change[top] = placed(image.get(top), path, value)
    edited = {name: value for name, value in image.items() if name not in remove} | change
    edited = writer.kept(key, edited)
    change = {name: value for name, value in edited.items() if image.get(name) != value}
    writer.store.write(Update(key, set=change, remove=[name for name in image if name not in edited]))
    return True


def annotate(writer: ItemWriter) -> bool:
    """Add an attribute of the application to an item that rules created."""
    found = writer.existing(lambda entity: entity.owned_by_rules)
    if found is not None:
        writer.store.write(Update(found[0], set={FOREIGN: writer.remark()}))
    return found is not None


def delete(writer: ItemWriter) -> bool:
    found = writer.existing(lambda entity: not entity.owned_by_rules)
    if found is not None:
        writer.store.remove(found[0])
    return found is not None


def expire(writer: ItemWriter) -> bool:
    found = writer.existing(lambda entity: entity.expires and not entity.owned_by_rules)
    if found is not None:
        writer.store.remove(found[0], by_ttl=True)
    return found is not None


def read(writer: ItemWriter) -> bool:
    """Read a whole item, to put it back later."""
    found = writer.existing(lambda entity: True)
    if found is not None:
        writer.held = [*writer.held[-_HELD + 1 :], (found[0], writer.items[found[0]])]
    return found is not None


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
            value = writer.value(kind, path)
            if value is not None:
                top = root(path)
                edited[top] = placed(edited.get(top), path, value)
    return writer.put_whole(key, edited)

"""Writes of others to what rules own: derived values, guards, items that rules created, and groups of the ledger.

Each function is one write, or returns false if it is not possible now. The stream alone corrects all of them, except what no
record shows: a guard with a later version, put together with other values of a rule and nothing else, looks like a publish.
So these functions also change an attribute of the application when they forge or clone guards; and where rules own all
attributes (a copy of all attributes), they never write a later guard.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from random import Random

from projections.engine.groups import is_amount
from projections.engine.ledger_items import COUNT, LEDGER, Target, group_key, members_key
from projections.engine.store import Delete, Image, ItemKey, Update, Value
from projections.language.values import number_text
from projections.stores.memory import MemoryStore
from projections.testing.pools import FOREIGN
from projections.testing.simulation.item_writer import ItemWriter


def change_derived(writer: ItemWriter) -> bool:
    """Change or remove a derived value, and leave its guard."""
    chosen = writer.existing(writer.derives)
    if chosen is None:
        return False
    key, entity = chosen
    if not (names := writer.derived_names(entity, writer.items[key])):
        return False
    writer.touched[key] = None
    name = writer.pick(names)
    value = writer.items[key].get(name)
    gone = value is not None and writer.rng.random() < 0.3
    other = {} if gone else {name: _other_value(value, writer.rng)}
    writer.store.write(Update(key, set=other, remove=(name,) if gone else ()))
    return True


def remove_guard(writer: ItemWriter) -> bool:
    """Remove a guard, with or without the values that it guards."""
    chosen = writer.any_guard()
    if chosen is None:
        return False
    key, entity, guard = chosen
    names = writer.derived_names(entity, writer.items[key]) if writer.rng.random() < 0.3 else []
    writer.touched[key] = None
    writer.store.write(Update(key, remove=[guard, *(name for name in names if name in writer.items[key])]))
    return True


def forge_guard(writer: ItemWriter) -> bool:
    """Change the fields of a guard, and an attribute of the application."""
    chosen = writer.any_guard()
    if chosen is None:
        return False
    key, entity, guard = chosen
    change = {guard: writer.forge(writer.items[key][guard])}
    if writer.rng.random() < 0.5:
        names = writer.derived_names(entity, {})[:1]
        change.update({name: _other_value(writer.items[key].get(name), writer.rng) for name in names})
    return writer.put_whole(key, {**writer.items[key], **change, FOREIGN: writer.remark()})


def clone(writer: ItemWriter) -> bool:
    """Put the attributes of an item, with its guards, under another key of its entity."""
    chosen = writer.existing(lambda entity: True)
    if chosen is None:
        return False
    key, entity = chosen
    kind = writer.kinds.get(entity.name)
    places = dict(kind.keys) if kind is not None else {made: {} for made in writer.made.get(entity.name, ())}
    places.pop(key, None)
    if not places:
        return False
    place = writer.pick(list(places))
    # an attribute that differs from the variable in the key would leave the clone without the promised index keys
    different = places[place] if kind is not None and kind.index_key else {}
    cloned = {name: value for name, value in writer.items[key].items() if name not in different}
    image = {**cloned, **entity.schema.wire(place), FOREIGN: writer.remark()}
    for name in [name for name in image if name.startswith(writer.program.guard_prefix)]:
        if writer.rng.random() < 0.5:
            image[name] = writer.forge(image[name])
    writer.clones += [(place, image)] * writer.pick([0, 1, 2])
    return writer.put_whole(place, image)


def clone_again(writer: ItemWriter) -> bool:
    """Put a clone again, whatever is under its key now."""
    if not writer.clones:
        return False
    place, image = writer.clones.pop()
    change = {FOREIGN: writer.remark()} if writer.rng.random() < 0.5 else {}
    return writer.put_whole(place, {**image, **change})


def malform_guard(writer: ItemWriter) -> bool:
    """Write a guard that does not parse, or that the engine would never write."""
    chosen = writer.existing(writer.derives)
    if chosen is None:
        return False
    key, entity = chosen
    if not (rules := [rule for rule in writer.rules_into(entity) if rule.has_guard]):
        return False
    rule = writer.pick(rules)
    name = writer.program.guard(rule.name)
    held = writer.items[key].get(name, {})
    writer.touched[key] = None
    writer.tampering = writer.forging = True
    value = writer.pick(_malformed_guards(held, key.table, forward=not rule.copies_all))
    writer.store.write(Update(key, set={name: value, FOREIGN: writer.remark()}))
    return True


def delete_created(writer: ItemWriter) -> bool:
    """Delete an item that rules created."""
    return writer.remove(lambda entity: entity.owned_by_rules)


def replace_created(writer: ItemWriter) -> bool:
    """Replace an item that rules created: without guards, with some of its values."""
    chosen = writer.existing(lambda entity: entity.owned_by_rules)
    if chosen is None:
        return False
    key, entity = chosen
    keep = {*entity.schema.key_attributes, *entity.constants}
    writer.touched[key] = None
    image = {
        name: value
        for name, value in writer.items[key].items()
        if name in keep or (not name.startswith(writer.program.guard_prefix) and writer.rng.random() < 0.5)
    }
    writer.store.put(key.table, {**image, FOREIGN: writer.remark()})
    return True


def recreate(writer: ItemWriter) -> bool:
    """Put an item of the application where rules created one that is gone."""
    if not (names := [name for name, keys in writer.made.items() if keys]):
        return False
    entity = writer.program.entities[writer.pick(names)]
    key = writer.pick(list(writer.made[entity.name]))
    if key in writer.items:
        return False
    writer.store.put(key.table, {**entity.schema.wire(key), **entity.constants, FOREIGN: writer.remark()})
    return True


def change_constant(writer: ItemWriter) -> bool:
    """Change or remove an attribute by which an item is recognised."""
    chosen = writer.existing(lambda entity: bool(entity.constants))
    if chosen is None:
        return False
    name = writer.pick(list(chosen[1].constants))
    gone = writer.rng.random() < 0.5
    writer.store.write(Update(chosen[0], remove=(name,)) if gone else Update(chosen[0], set={name: {"S": "Else"}}))
    return True


def _malformed_guards(held: Value, table: str, *, forward: bool) -> list[Value]:
    """Return guards that do not parse, and guards that no publish wrote. `forward`: their versions may be later."""
    shapes: list[Value] = [{"S": "x"}, {"N": "1"}, {"L": []}, {"M": {}}, {"NULL": True}, {"BOOL": True}]
    if text := held.get("S", ""):
        texts = (
            text[:8],
            text[:-1],
            f"{text}-",
            f"{text[:8]}~",
            f"AAAAAAAA{text[8:]}",
            f"{text[:8]}{'-z'[forward] * 32}",
        )
        return [*shapes, *({"S": each} for each in texts)]
    guard: Mapping[str, Value] = held.get("M", {"at": {"S": "1"}, "d": {"S": "AAAAAAAA"}})
    changes: list[dict[str, Value]] = [
        {"by": {"N": "1"}},
        {"by": {"L": [{"S": "x"}]}},
        {"by": {"S": "nowhere|x|y"}},
        {"by": {"S": "%|%|"}},
        {"by": {"S": ""}},
        {"by": {"S": f"{table}|x"}},
        {"at": {"N": "5"}},
        {"at": {"L": []}},
        {"d": {"S": "AAAAAAAA"}},
        {"d": {"N": "1"}},
        {"n": {"S": "many"}},
        {"n": {"N": "-1"}},
    ]
    if forward:
        changes.append({"at": {"S": "9" * 500}})
    shapes += [{"M": {**guard, **change}} for change in changes]
    shapes += [{"M": {name: value for name, value in guard.items() if name != gone}} for gone in ("at", "d")]
    return shapes


def _other_value(value: Value | None, rng: Random) -> Value:
    """Return another value of the same type."""
    for kind, content in (value or {}).items():
        if kind == "N":
            return {"N": rng.choice(("0", "999", content + "1"))}
        if kind == "S":
            return {"S": content + "!"}
    return {"N": "999"} if value is None else {"S": "999"}


def damage(store: MemoryStore, target: Target, rng: Random) -> str | None:
    """Damage a group in one way; return a description, or None if that is not possible."""
    shards = store.query(LEDGER, [{"S": group_key(*target).partition}]).items
    if not shards:
        return None
    members = store.query(LEDGER, [{"S": members_key(*target)}]).items
    dice = rng.random()
    if members and dice < 0.4:
        return _member(store, rng.choice(list(members)), rng)
    shard = rng.choice(list(shards))
    key = ItemKey(LEDGER, shard["pk"]["S"], shard["sk"]["S"])
    if dice < 0.5:
        store.write(Delete(key))
        return f"{key.partition} {key.sort} is deleted"
    slots = [name for name in shard if is_amount(name) and name != "version"] or ["n"]
    slot = rng.choice(slots)
    held = Decimal(shard[slot]["N"]) if slot in shard else Decimal(0)
    wrong = number_text(held + rng.choice((-5, -1, 1, 2)))
    store.write(Update(key, set={slot: {"N": wrong}}))
    return f"{key.partition} {key.sort} {slot} is {wrong}"


def _member(store: MemoryStore, member: Image, rng: Random) -> str | None:
    key = ItemKey(LEDGER, member["pk"]["S"], member["sk"]["S"])
    if COUNT in member:
        return _counter(store, key, member, rng)
    if rng.random() < 0.5 and not ("a" in member and member["sk"]["S"].endswith("\0~")):  # its source has expired
        store.write(Delete(key))
        return f"{key.partition} {key.sort} is deleted"
    source = member["s"]["S"] + "x"
    other_key = ItemKey(LEDGER, key.partition, (key.sort or "") + "x")
    held = {name: value for name, value in member.items() if name not in ("pk", "sk", "s")}
    store.write(Update(other_key, set={**held, "s": {"S": source}}))
    return f"{other_key.partition} {other_key.sort} is added"


def _counter(store: MemoryStore, key: ItemKey, counter: Image, rng: Random) -> str | None:
    """Damage a value counter."""
    dice = rng.random()
    if dice < 0.3:
        store.write(Delete(key))
        return f"{key.partition} {key.sort} is deleted"
    wrong: dict[str, str] = (
        {"N": str(int(counter[COUNT].get("N", 0)) + rng.choice((-2, -1, 1, 3)))} if dice < 0.8 else {"S": "many"}
    )
    store.write(Update(key, set={COUNT: wrong}))
    return f"{key.partition} {key.sort} {COUNT} is {wrong}"

"""Damage to a group, as a wrong write or a partly restored ledger does it."""

from __future__ import annotations

from decimal import Decimal
from random import Random

from projections.engine.ledger_items import CLOSED, COUNT, KEPT, LEDGER, REBUILDING, Target, group_key, members_key
from projections.engine.store import Delete, Image, ItemKey, Update
from projections.language.values import number_text
from projections.stores.memory import MemoryStore

__all__ = ["damage"]


def damage(store: MemoryStore, target: Target, rng: Random, *, keeps: bool) -> str | None:
    """Damage a group in one way; return a description, or None if that is not possible now.

    Settled amounts are not damaged, because no entry has them (`keeps`: there may be some), nor groups that are being
    rebuilt.
    """
    groups = store.query(LEDGER, [{"S": group_key(*target).partition}]).items
    generations = {item["sk"]["S"][:4]: item for item in groups if item["sk"]["S"].endswith("|00")}
    if not generations:
        return None
    generation, first = max(generations.items())
    if CLOSED in first or REBUILDING in first:
        return None
    shards = [item for item in groups if item["sk"]["S"].startswith(generation) and "order" not in item]
    members = store.query(LEDGER, [{"S": members_key(*target)}], prefix=generation + "|").items
    dice = rng.random()
    if members and dice < 0.4:
        return _member(store, rng.choice(list(members)), rng)
    shard = rng.choice(shards)
    key = ItemKey(LEDGER, shard["pk"]["S"], shard["sk"]["S"])
    if dice < 0.5 and not keeps:
        store.write(Delete(key))
        return f"{key.partition} {key.sort} is deleted"
    slots = [name for name in shard if name == "n" or name[:1] in ("=", "#", "%")] or ["n"]
    slot = rng.choice(slots)
    held = Decimal(shard[slot]["N"]) if slot in shard else Decimal(0)
    wrong = number_text(held + rng.choice((-5, -1, 1, 2)))
    store.write(Update(key, set={slot: {"N": wrong}}))
    return f"{key.partition} {key.sort} {slot} is {wrong}"


def _member(store: MemoryStore, member: Image, rng: Random) -> str | None:
    key = ItemKey(LEDGER, member["pk"]["S"], member["sk"]["S"])
    if COUNT in member:
        return _counter(store, key, member, rng)
    if rng.random() < 0.5:
        store.write(Delete(key))
        return f"{key.partition} {key.sort} is deleted"
    source = member["s"]["S"] + "x"
    other = ItemKey(LEDGER, key.partition, (key.sort or "") + "x")
    held = {name: value for name, value in member.items() if name not in ("pk", "sk", "s")}
    store.write(Update(other, set={**held, "s": {"S": source}}))
    return f"{other.partition} {other.sort} is added"


def _counter(store: MemoryStore, key: ItemKey, counter: Image, rng: Random) -> str | None:
    """Damage a value counter. What has settled in it is not damaged."""
    dice = rng.random()
    if KEPT in counter:
        return None
    if dice < 0.3:
        store.write(Delete(key))
        return f"{key.partition} {key.sort} is deleted"
    wrong: dict[str, str] = (
        {"N": str(int(counter[COUNT].get("N", 0)) + rng.choice((-2, -1, 1, 3)))} if dice < 0.8 else {"S": "many"}
    )
    store.write(Update(key, set={COUNT: wrong}))
    return f"{key.partition} {key.sort} {COUNT} is {wrong}"

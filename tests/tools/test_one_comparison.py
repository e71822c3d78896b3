"""`verify` and `explain --item` answer from one comparison: on every item the same verdict, with the same values."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from histories import RULES, drain, settled
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.engine.guards import Guards
from projections.engine.registry import Registry
from projections.engine.store import Image, ItemKey
from projections.errors import InvalidRequest
from projections.inspect.explain.item import item_explanation
from projections.inspect.explain.item_facts import Derived, ItemExplanation
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.program import Program
from projections.language.rules import public_name
from projections.operations.verify.drift import Drift
from projections.operations.verify.repair import verify_and_repair
from projections.stores.memory import MemoryStore
from tests.operations.test_verify import PLANTS
from tests.operations.verify_scene import filled

Shown = tuple[str, str, str, str | None, str, str, str | None]


def verified(program: Program, store: MemoryStore, *, repair: bool = False) -> tuple[list[Drift], list[Drift]]:
    """All drift, and what kept changing; after a repair, if asked for."""
    with verify_and_repair(program, store, repair=repair, allow_delete=repair, patience=0.0, segments=1) as done:
        return list(done.verification.drifts()), list(done.verification.busy())


def shown(drift: Drift) -> Shown:
    """What both commands print of a drift: what it is about, and the values of the item, its group and its entry."""
    sides = {side: value for side, value in drift.sides.items() if side != "source" or "group" not in drift.sides}
    if drift.kind == "copy extra":
        sides = {"item": drift.actual}
    values = json.dumps(sides, sort_keys=True, default=str)
    return (
        drift.kind,
        drift.rule,
        drift.target,
        drift.attribute,
        json.dumps(drift.actual, sort_keys=True),
        values,
        drift.source,
    )


def of_item(drifts: list[Drift], key: str) -> set[Shown]:
    """What `verify` reports of one item: its values, and its own entry."""
    return {
        shown(drift)
        for drift in drifts
        if drift.kind.partition(" ")[0] not in ("group", "member")
        and (drift.source if drift.kind.startswith("entry") else drift.target) == key
    }


def unknown(told: ItemExplanation) -> set[str]:
    """The rules under which `explain` says that it could not compare the item."""
    return {name_of(one) for one in told.derived if not one.compared}


def name_of(derived: Derived) -> str:
    """The rule, or the version that is not published, as drifts name it."""
    published = derived.state == "active" or derived.version is None
    return public_name(derived.rule.name) if published else derived.version or ""


def from_source(program: Program, store: MemoryStore, drift: Shown, key: ItemKey) -> bool:
    """Whether only its source tells that something is wrong: of a copy that is not there, or that has no valid guard."""
    kind, rule, *_ = drift
    snapshot = Registry(program, store).read()
    guard = Guards(program, snapshot.identity if snapshot else None).read(rule, key, store.get(key))
    return kind == "copy missing" or (kind == "occupied" and guard is None and rule in program.rules)


def assert_agree(program: Program, store: MemoryStore) -> int:
    """On every item of every table, and on those that should be there. Returns how many differ."""
    drifts, busy = verified(program, store)
    assert not busy
    keys = {program.tables[table].key(table, image) for table in program.tables for image in store.items(table)}
    keys |= {
        decode_key(drift.target) for drift in drifts if not is_range(drift.target)
    }  # a group of a rank has no item
    everything = {shown(drift) for drift in drifts}
    differing = 0
    for key in keys:
        text = encode_key(key)
        told = item_explanation(program, store, key)
        said, own = {shown(drift) for drift in told.drifts}, of_item(drifts, text)
        guessed = {shown(drift) for drift in told.drifts if drift.kind == "copy extra" and drift.wrong is None}
        assert guessed == set() or own, "that another item makes the copy is known from all items only"
        assert said - guessed <= everything, (text, said - everything, own)
        guesses = {one[1] for one in guessed} | unknown(told)
        missing = {one for one in own - said if one[1] not in guesses and not from_source(program, store, one, key)}
        assert missing == set(), (text, missing, said)
        assert told.agrees == (not said)
        differing += bool(said)
        for one in told.derived:
            assert one.agrees == (not any(drift.rule == name_of(one) for drift in one.drifts))
    return differing


@pytest.mark.parametrize("name", [*PLANTS][::3])
def test_on_every_item_of_a_damaged_table_the_verdict_is_the_same(name: str) -> None:
    world = filled()
    assert assert_agree(world.program, world.store) == 0
    PLANTS[name][0](world)
    assert_agree(world.program, world.store)


# Random tables, random damage


def damages(program: Program, store: MemoryStore, rng: Random) -> Iterator[str]:
    """Damages an item or an item of the ledger, and nobody hears of it."""
    ledger = rng.random() < 0.5
    table = "ledger" if ledger else rng.choice(list(program.tables))
    images = [image for image in store.items(table) if not ledger or image["pk"]["S"][:2] in ("E|", "G|", "M|")]
    if not images:
        return
    image = dict(rng.choice(images))
    key = ItemKey("ledger", image["pk"]["S"], image["sk"]["S"]) if ledger else program.tables[table].key(table, image)
    if rng.random() < 0.2:
        store.remove(key)
        yield f"{key} removed"
        return
    if ledger:
        yield from damaged_in_ledger(store, image, rng)
        return
    keys = program.tables[table].key_attributes
    names = [name for name in image if name not in keys]
    if not names:
        return
    name = rng.choice(names)
    what = rng.randrange(4)
    if what == 0:
        del image[name]
    elif what == 1:
        image[name] = rng.choice([{"N": "7"}, {"S": "else"}, {"M": {}}, {"NULL": True}])
    elif what == 2:
        image[name] = rng.choice(images).get(name, {"N": "3"})
    else:
        image |= {n: v for n, v in rng.choice(images).items() if n not in keys}
    with suppress(InvalidRequest):  # the type of an index's key
        store.put(table, image)
        yield f"{key} {name} {what}"


def damaged_in_ledger(store: MemoryStore, image: Image, rng: Random) -> Iterator[str]:
    """Changes a total of a group, a member's value, or what an entry holds."""
    image = dict(image)
    kind = image["pk"]["S"][:2]
    if kind == "E|":
        contributions: Any = json.loads(image["contributions"]["S"])
        given = [held for targets in contributions.values() for held in targets.values()]
        if not given:
            return
        held = rng.choice(given)
        slots = [slot for slot in held if slot == "n" or slot[0] in "=#"]
        if slots:
            slot = rng.choice(slots)
            held[slot] = 5 if slot == "n" else "5"
        image["contributions"] = {
            "S": json.dumps(contributions, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        }
    elif kind == "G|":
        slots = [slot for slot in image if slot == "n" or slot[0] in "=#"]
        if not slots:
            return
        image[rng.choice(slots)] = {"N": str(rng.randrange(12))}
    elif "a" in image:
        image["a"] = {"M": {"title": {"S": "damaged"}}}
    else:
        return
    store.put("ledger", image)
    yield f"{image['pk']['S']} {image['sk']['S']}"


@pytest.mark.deep
@example(path=next(path for path in RULES if path.stem == "claims"), seed=3072066, count=1)
@example(path=next(path for path in RULES if path.stem == "rank"), seed=1, count=1)
@example(path=next(path for path in RULES if path.stem == "held"), seed=0, count=1)
@example(path=next(path for path in RULES if path.stem == "tables"), seed=15402, count=1)  # only a deletion repairs it
@hypothesis_settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(RULES), seed=st.integers(0, 2**32), count=st.integers(1, 4))
def test_verify_and_explain_agree_on_any_damage_and_repair_removes_it(path: Path, seed: int, count: int) -> None:
    rng = Random(seed)
    program, store = settled(path, rng.randrange(12))
    assert_agree(program, store)
    done = [what for _ in range(count) for what in damages(program, store, rng)]
    heard = {table: len(store.stream(table)) for table in program.tables}
    assert_agree(program, store)
    left: list[Drift] = []
    for _ in range(4):
        verified(program, store, repair=True)
        drain(program, store, heard)
        heard = {table: len(store.stream(table)) for table in program.tables}
        left = verified(program, store)[0]
    assert [drift for drift in left if drift.kind not in ("occupied", "error") and not drift.unpublished] == [], done

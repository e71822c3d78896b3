"""Guards against somebody who may write any attribute of any item, and who knows every guard in the table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from projections.engine.guards import Guards, Identity, digits_of, new_secret, parts_of_text
from projections.engine.ledger_items import group_at
from projections.engine.registry import Registry
from projections.engine.rivals import AT_ONCE, BUDGET, QUIET, WAIT, forget, rivals
from projections.engine.running import Pacer
from projections.engine.store import Image, ItemKey, Schema, Update, Value, Write
from projections.errors import StoreError
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.backfill.runner import Runner
from projections.operations.tasks import Tasks, write
from projections.operations.worker import WorkerHandler
from projections.stores.memory import MemoryStore
from tests.engine.scene import Scene
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: M}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Note: {key: {PK: "USER#{userId}", SK: "NOTE#{noteId}"}}
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  ById: {key: {PK: "NOTE#{noteId}", SK: COPY}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
"""
RULES = """
  likes: {from: Like, aggregate: {into: Post, set: {likes: count}}}
  stars: {from: Note, bind: {postId: "{on}"}, aggregate: {into: Post, set: {stars: count}}}
  tags: {from: Note, bind: {tag: "{tag}"}, aggregate: {into: Tag, set: {uses: count}}}
  byId: {from: Note, copy: {into: ById, attributes: all}}
  author: {from: User, embed: {into: Note, match: {userId: "{userId}"}, attributes: {role: role}}}
  voters: {from: User, embed: {into: Like, match: {voters: "{userId}"}, as: names, attributes: [role]}}
"""
POST, NOTE = ItemKey("main", "POST#1", "M"), ItemKey("main", "USER#1", "NOTE#n")
COPY, TAG = ItemKey("main", "NOTE#n", "COPY"), ItemKey("main", "TAG#t", "STATS")
LIKE = ItemKey("main", "USER#1", "LIKE#1")


def deployed() -> World:
    w = World(RULES, HEAD)
    w.put("POST#1", "M", title="x")
    w.put("POST#2", "M", title="y")
    w.put("USER#1", "PROFILE", role="reader")
    w.put("USER#2", "PROFILE", role="writer")
    w.put("USER#1", "NOTE#n", on="1", tag="t", text="hello")
    for user in (1, 2, 3):
        w.put(f"USER#{user}", "LIKE#1", voters=["1", "2"])
    w.settle()
    return w


def image(w: World, key: ItemKey) -> Image:
    return w.store.get(key) or {}


def items(w: World) -> dict[ItemKey, Image]:
    """All items, without guards."""
    prefix = w.program.guard_prefix
    return {
        w.store.schema("main").key("main", item): {n: v for n, v in item.items() if not n.startswith(prefix)}
        for item in w.store.items("main")
    }


def overwrite(w: World, key: ItemKey, **attributes: Value) -> None:
    w.store.write(Update(key, set=attributes))


MILLION: Value = {"N": "1000000"}
OWNED = [
    (POST, "~likes", "likes"), (NOTE, "~author", "role"), (COPY, "~byId", "text"),
    (TAG, "~tags", "uses"), (LIKE, "~voters", "names"),
]  # fmt: skip


def with_the_id_of_the_ledger(w: World) -> None:
    """Sign with any secret but that of the ledger."""
    for secret in (b"", b"guess", new_secret()):
        guards = Guards(w.program, Identity(w.registry().read_or_create().ledger, (secret,)))
        for forged in (
            guards.stamp_group("likes", POST, "9999999999.9", 1_000_000),
            guards.stamp("likes", POST, "~", n=1),
        ):
            overwrite(w, POST, likes=MILLION, **{"~likes": forged})
    guards = Guards(w.program, Identity(w.registry().read_or_create().ledger, (b"guess",)))
    by = "main|USER#1|PROFILE"
    overwrite(w, NOTE, role={"S": "ADMIN"}, **{"~author": guards.stamp("author", NOTE, "~", by=by)})
    overwrite(w, COPY, text={"S": "forged"}, **{"~byId": guards.stamp("byId", COPY, "~", by="main|USER#1|NOTE#n")})


def with_the_guard_of_another_rule(w: World) -> None:
    """A guard of the same item, with the number and the version of another rule."""
    overwrite(w, POST, stars=MILLION, **{"~stars": image(w, POST)["~likes"]})
    assert w.guards().read("stars", POST, image(w, POST)) is None


def with_the_guard_of_another_item(w: World) -> None:
    overwrite(w, POST, stars=MILLION, **{"~stars": image(w, ItemKey("main", "POST#2", "M"))["~stars"]})
    assert w.guards().read("stars", POST, image(w, POST)) is None
    overwrite(w, NOTE, role={"S": "ADMIN"}, **{"~author": image(w, COPY)["~byId"]})


@pytest.mark.parametrize("field", ["d", "at", "by", "n", "w", "s"])
def test_an_edited_field_makes_a_guard_invalid(field: str) -> None:
    w = deployed()
    before = items(w)
    for key, name, attribute in OWNED:
        guard = image(w, key)[name]
        other: Value = {"N": "999"} if field == "n" else {"S": "main|USER#2|PROFILE" if field == "by" else "~" * 8}
        edited: Value = {"M": {**guard.get("M", {}), field: other}}
        if text := guard.get("S"):
            place = {"d": 7, "at": 22, "n": 31, "s": 39}.get(field, 13)  # the last character of each, of the promotion
            edited = {"S": f"{text[:place]}{'x' if text[place] != 'x' else 'y'}{text[place + 1 :]}"}
        overwrite(w, key, **{attribute: MILLION, name: edited})
        if text or field in guard["M"]:
            assert w.guards().read(name[1:], key, image(w, key)) is None
    w.settle()
    assert items(w) == before


@pytest.mark.parametrize(
    "attack", ["with_the_id_of_the_ledger", "with_the_guard_of_another_rule", "with_the_guard_of_another_item"]
)
def test_a_forged_guard_is_healed(attack: str) -> None:
    w = deployed()
    before = items(w)
    globals()[attack](w)
    w.settle()
    assert items(w) == before


VERSIONS = st.tuples(st.integers(0, 10**10 - 1), st.integers(0, 10**15 - 1), st.integers(-(10**15), 10**15))


@given(VERSIONS, VERSIONS)
@example((1, 51, 0), (1, 52, 0))
def test_texts_of_guards_sort_as_promotion_and_version(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    texts = [digits_of(group_at(*version), n) for *version, n in (one, other)]
    if one[:2] != other[:2]:
        assert (texts[0] < texts[1]) == (one < other)
    assert (texts[0][:15] == texts[1][:15]) == (one[:2] == other[:2])
    parts = parts_of_text({"S": f"12345678{texts[0]}12345678"})
    assert parts is not None
    assert (parts.guard.at, parts.guard.n) == (group_at(*one[:2]), one[2])


def test_a_guard_that_is_repeated_is_healed() -> None:
    """Each guard that the ledger ever wrote, with other values, on the item itself; also after the item lost its guard."""
    w = World(RULES, HEAD)
    w.put("POST#1", "M", title="x")
    seen: list[Value] = []
    for user in range(5):
        w.put(f"USER#{user}", "LIKE#1")
        w.settle()
        seen.append(image(w, POST)["~likes"])
    before = items(w)
    for guard in seen:
        for first in (False, True):
            if first:
                w.store.write(Update(POST, remove=("~likes",)))
            overwrite(w, POST, likes=MILLION, **{"~likes": guard})
            w.settle()
            assert items(w) == before
            for one in (guard, seen[-1]):  # two writes in one batch
                overwrite(w, POST, likes=MILLION, **{"~likes": one})
            w.settle()
            assert items(w) == before


def test_a_guard_of_a_former_list_is_healed_although_the_counter_of_lists_begins_again() -> None:
    w = deployed()
    w.put("USER#1", "PROFILE", role="author")
    w.settle()
    before, guard = items(w), image(w, LIKE)["~voters"]
    w.store.write(Update(LIKE, remove=("~voters",)))
    w.settle()
    overwrite(w, LIKE, names=MILLION, **{"~voters": guard})
    w.settle()
    assert items(w) == before


def test_a_mark_that_is_repeated_is_removed_and_no_attribute_of_the_application_is_lost() -> None:
    w = World(RULES, HEAD)
    w.put("USER#1", "NOTE#n", text="hello", tag="t")
    w.settle()
    marks = {key: image(w, key)["~"] for key in (COPY, TAG)}
    w.remove("USER#1", "NOTE#n")
    w.settle()
    assert not image(w, COPY)
    w.put("NOTE#n", "COPY", secret="of the application")
    w.put("TAG#t", "STATS", secret="of the application")
    w.put("USER#1", "NOTE#n", text="hello", tag="t")
    w.settle()
    for key in (COPY, TAG):
        overwrite(w, key, **{"~": marks[key]})
    w.settle()
    assert "~" not in image(w, COPY)
    w.remove("USER#1", "NOTE#n")
    w.settle()
    for key in (COPY, TAG):
        assert image(w, key)["secret"] == {"S": "of the application"}


WHOLE = """
  byId: {from: Note, copy: {into: ById, attributes: all}}
  byCode: {from: Note, bind: {tag: "{tag}"}, copy: {into: Tagged, attributes: all}}
"""
WHOLE_HEAD = (
    HEAD.replace("Tag: ", "Tagged: ")
    .replace("SK: STATS}, derived: true", "SK: COPY}")
    .replace('PK: "NOTE#{noteId}", SK: COPY', 'PK: "NOTE#{noteId}", SK: "OF#{userId}"')
)
GUARDED, CLAIMED = ItemKey("main", "NOTE#n", "OF#1"), ItemKey("main", "TAG#t", "COPY")


def test_a_copy_that_lost_its_guard_goes_with_its_source() -> None:
    w = World(WHOLE, WHOLE_HEAD)
    w.put("USER#1", "NOTE#n", text="private", tag="t")
    w.settle()
    w.store.write(Update(GUARDED, set={"text": {"S": "EVIL"}}, remove=("~byId",)))
    w.remove("USER#1", "NOTE#n")
    w.settle()
    assert not image(w, GUARDED)


def source_first(w: World) -> None:
    """Deliver what is new of the sources, and then the rest: streams of other partitions may be late."""
    records = w.records()
    w.position += len(records)
    assert w.deliver([one for one in records if one["dynamodb"]["Keys"]["PK"]["S"] == "USER#1"]).failed is None
    for some in (records, w.records()):
        assert w.deliver(some).failed is None


@pytest.mark.parametrize("key", [GUARDED, CLAIMED], ids=["guarded", "claimed"])
@pytest.mark.parametrize("planted", ["the mark", "mark and guard"])
@pytest.mark.parametrize("change", ["removed", "changed"])
def test_a_repeated_mark_licenses_no_loss_before_its_record_is_processed(
    key: ItemKey, change: str, planted: str
) -> None:
    """Nor together with the guard of the copy that was there before: it shows other attributes than the item has."""
    w = World(WHOLE, WHOLE_HEAD)
    w.put("USER#1", "NOTE#n", text="hello", tag="t")
    w.settle()
    seen = {name: value for name, value in image(w, key).items() if name.startswith("~")}
    assert len(seen) == 2
    w.remove("USER#1", "NOTE#n")
    w.settle()
    assert not image(w, key)
    w.put(key.partition, key.sort or "", secret="of the application", text="other")
    w.put("USER#1", "NOTE#n", text="hello", tag="t")
    w.settle()
    assert "~" not in image(w, key)
    overwrite(w, key, **({"~": seen["~"]} if planted == "the mark" else seen))
    if change == "removed":
        w.remove("USER#1", "NOTE#n")
    else:
        w.put("USER#1", "NOTE#n", tag="t", more=1)
    source_first(w)
    assert image(w, key)["secret"] == {"S": "of the application"}
    w.settle()
    assert image(w, key)["secret"] == {"S": "of the application"}
    assert "~" not in image(w, key)
    if change == "changed":
        assert image(w, key)["more"] == {"N": "1"}


def test_the_mark_of_another_item_licenses_no_deletion() -> None:
    """Not even before its record is processed."""
    w = World(RULES, HEAD)
    w.put("TAG#t", "STATS")
    w.put("USER#1", "NOTE#n", tag="t")
    w.settle()
    overwrite(w, TAG, **{"~": image(w, COPY)["~"]})
    w.remove("USER#1", "NOTE#n")
    source_first(w)
    assert w.item("TAG#t", "STATS") == {"PK": "TAG#t", "SK": "STATS", "uses": 0}


@pytest.mark.parametrize("key", [GUARDED, CLAIMED], ids=["guarded", "claimed"])
def test_a_copy_of_all_attributes_keeps_what_the_application_adds_and_goes_with_it(key: ItemKey) -> None:
    w = World(WHOLE, WHOLE_HEAD)
    w.put("USER#1", "NOTE#n", text="hello", tag="t")
    w.settle()
    overwrite(w, key, own={"S": "x"})
    w.settle()
    w.put("USER#1", "NOTE#n", tag="t", more=1)
    w.settle()
    assert w.item(key.partition, key.sort or "") is not None
    assert {"own", "more"} <= image(w, key).keys()
    w.store.write(Update(key, remove=("own", "text")))
    w.settle()
    w.remove("USER#1", "NOTE#n")
    w.settle()
    assert image(w, key) == {}


@pytest.mark.parametrize("key", [GUARDED, CLAIMED], ids=["guarded", "claimed"])
def test_the_next_change_removes_from_a_copy_what_its_source_lost_while_the_stream_was_off(key: ItemKey) -> None:
    """The guard shows which attributes the rule wrote."""
    w = World(WHOLE, WHOLE_HEAD)
    w.put("USER#1", "NOTE#n", text="hello", tag="t", lost=1)
    w.settle()
    w.put("USER#1", "NOTE#n", text="hello", tag="t")
    w.position += len(w.records())
    w.put("USER#1", "NOTE#n", text="hello", tag="t", more=1)
    w.settle()
    guard = f"~{'byId' if key == GUARDED else 'byCode'}"
    assert image(w, key).keys() - {"PK", "SK"} == {"text", "tag", "more", "~", guard}


def test_a_guard_of_a_former_copy_is_healed_although_a_backfill_gave_the_copy_no_version() -> None:
    w = Scene(WHOLE, WHOLE_HEAD)
    w.put("USER#1", "NOTE#n", text="hello", tag="t")
    w.settle()
    guard = image(w, GUARDED)["~byId"]
    w.remove("USER#1", "NOTE#n")
    w.settle()
    w.put("USER#1", "NOTE#n", text="again", tag="t")
    w.lose()
    w.backfill()
    w.settle()
    overwrite(w, GUARDED, text=MILLION, **{"~byId": guard})
    w.settle()
    assert image(w, GUARDED)["text"] == {"S": "again"}


# The secret


def test_the_secret_is_not_printed() -> None:
    w = deployed()
    snapshot = w.registry().read_or_create()
    (secret,) = snapshot.identity.secrets
    assert len(secret) == 32
    for text in (repr(snapshot), str(snapshot.identity), f"{snapshot}"):
        assert repr(secret)[2:10] not in text


def test_a_new_secret_signs_all_guards_again_and_the_former_one_is_accepted_until_then() -> None:
    w = deployed()
    before, first = items(w), Registry(w.program, w.store).read_or_create()
    backfill = Backfill(w.program, w.store, now=lambda: datetime.fromtimestamp(1_700_000_000, UTC))
    run = backfill.begin(new_secret=True)
    both = Registry(w.program, w.store).read_or_create()
    assert (both.ledger, both.identity.secrets[1:]) == (first.ledger, first.identity.secrets)
    overwrite(w, TAG, uses=MILLION)
    w.settle()
    assert items(w) == before
    assert image(w, TAG)["~"] == Guards(w.program, both.identity).mark_of(TAG)
    Runner(backfill).work(run)
    w.settle()
    after = Registry(w.program, w.store).read_or_create()
    assert after.identity.secrets == both.identity.secrets[:1]
    assert items(w) == before
    guards = Guards(w.program, after.identity)
    held = [
        (name, w.store.schema("main").key("main", item), value)
        for item in w.store.items("main")
        for name, value in item.items()
        if guards.is_guard(name)
    ]
    assert len(held) > 8
    for name, key, value in held:
        valid = value == guards.mark_of(key) if name == "~" else guards.parse(guards.rule(name), key, value)
        assert valid, (name, key)


# Shared writes

SHARED = (
    "\n".join(RULES.split("\n")[1:5:2])
    + "\n"
    + "".join(f"  r{n:02}: {{from: Like, aggregate: {{into: Post, set: {{n{n}: count}}}}}}\n" for n in range(1, 21))
)


def test_rules_that_publish_to_one_item_share_writes() -> None:
    """21 rules need two; if the record is delivered again, both fail, and nothing else is written."""
    w = World(SHARED, HEAD)
    w.put("POST#1", "M", title="x")
    w.settle()
    w.put("USER#1", "LIKE#1")
    start = w.position
    w.store.calls.clear()
    w.deliver()
    assert w.store.calls["update"] == 2
    assert {image(w, POST)[f"n{n}"]["N"] for n in range(1, 21)} == {"1"}
    w.position, before = start, image(w, POST)
    w.store.calls.clear()
    w.deliver()
    assert w.store.calls["update"] == 2
    assert image(w, POST) == before


def test_a_newer_guard_stops_no_other_rule_of_a_shared_write() -> None:
    w = World(SHARED, HEAD)
    w.put("POST#1", "M", title="x")
    w.settle()
    newer = w.guards().stamp_group("r01", POST, f"{w.guards().promotion('r01'):010}.000000000000099", 7)
    w.put("USER#1", "LIKE#1")
    w.store.seed("main", {**image(w, POST), "~r01": newer, "n1": {"N": "7"}})
    w.settle()
    assert [image(w, POST)[name]["N"] for name in ("likes", "n1", "n2", "n20")] == ["1", "7", "1", "1"]


def test_a_value_that_is_refused_stops_no_other_rule_of_a_shared_write() -> None:
    """The item has room for the attribute and the guard of two rules."""
    w = World(SHARED, HEAD)
    w.put("USER#1", "LIKE#1")
    w.store.seed("main", {"PK": {"S": "POST#1"}, "SK": {"S": "M"}, "x": {"S": "x" * (409_600 - 125)}})
    w.settle()
    assert len(image(w, POST)) == 3 + 2 * 2
    assert len(w.rejected) == 19


# Other ledgers


def test_imported_items_are_no_rival() -> None:
    """Items with guards of another ledger get the values and guards of this one."""
    other, w = deployed(), World(RULES, HEAD)
    for item in other.store.items("main"):
        w.store.put("main", {**item, "likes": MILLION} if "likes" in item else item)
    w.settle()
    assert items(w) == items(other)
    assert list(rivals(w.store)) == []
    assert w.guards().read("likes", POST, image(w, POST))


class Beside:
    """The application's table of one store, with a ledger of its own."""

    def __init__(self, first: MemoryStore, own: MemoryStore) -> None:
        self._first, self._own = first, own

    def _of(self, table: str) -> MemoryStore:
        return self._own if table == "ledger" else self._first

    def schema(self, table: str) -> Schema:
        return self._of(table).schema(table)

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        return self._of(key.table).get(key, attributes)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        return {key: found for key in keys if (found := self.get(key)) is not None}

    def write(self, write: Write) -> Image | None:
        return self._of(write.key.table).write(write)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        return [self._of(write.key.table).write_each([write])[0] for write in writes]

    def transact(self, writes: Sequence[Write]) -> None:
        self._own.transact(writes)

    def __getattr__(self, name: str) -> Any:
        return lambda table, *given, **named: getattr(self._of(table), name)(table, *given, **named)


class Two:
    """Two stacks with the same rules on one table. The second was deployed when the items were there already."""

    def __init__(self, posts: int) -> None:
        self.now = 1_700_000_000.0
        self.first = World(RULES, HEAD, clock=lambda: self.now)
        for post in range(posts):
            self.first.put(f"POST#{post}", "M")
            self.first.put("USER#1", f"LIKE#{post}")
        self.first.settle()
        self.second = World(RULES, HEAD, clock=lambda: self.now)
        self.second.store = Beside(self.first.store, self.second.store)  # type: ignore[assignment]
        self.second.processor = self.second.worker()
        self.second.position = self.first.position

    def rounds(self, most: int = 400) -> int:
        """Deliver what is new to both at the same time, until nothing is. Return how many records there were."""
        start = len(self.first.store.stream("main", 0))
        for _ in range(most):
            end = len(self.first.store.stream("main", 0))
            for stack in (self.first, self.second):
                new = stack.store.stream("main", stack.position)[: end - stack.position]
                stack.position = end
                outcome = stack.deliver(new)
                assert outcome.failed is None, outcome.failed_reason
            if not self.first.records() and not self.first.store.stream("main", self.second.position):
                return len(self.first.store.stream("main", 0)) - start
        raise AssertionError("they do not come to rest")


def test_a_guard_that_a_former_stack_left_does_not_show_that_it_is_alive() -> None:
    """The application goes on writing to items with guards of a stack that is gone."""
    both = Two(BUDGET + 1)
    for post in range(BUDGET + 1):
        both.first.put("USER#2", f"LIKE#{post}")
    both.rounds()
    (seen,) = [one.seen for one in rivals(both.first.store)]
    left = [post for post in range(BUDGET + 1) if not both.first.guards().read(*guarded(both.first, post))]
    assert left
    for _ in range(3):
        both.now += QUIET / 2
        for post in left[:5]:
            overwrite(both.first, ItemKey("main", f"POST#{post}", "M"), title={"S": str(both.now)})
        both.first.settle()
    assert [one.seen for one in rivals(both.first.store)] == [seen]
    assert [post for post in left[:5] if not both.first.guards().read(*guarded(both.first, post))] == []


def test_what_both_create_comes_to_rest() -> None:
    """Each finds the guard of the other on what it had just written, for ever. The mark stays that of the first."""
    both = Two(0)
    both.first.put("USER#1", "PROFILE", role="reader")
    for note in range(3):
        both.first.put("USER#1", f"NOTE#{note}", on="1", tag="t", text="hello")
        both.first.put("USER#1", f"LIKE#{note}", voters=["1", "2"])
    assert both.rounds() < 4 * BUDGET
    for note in range(3):
        assert both.first.store.get(ItemKey("main", f"NOTE#{note}", "COPY"), ["~"])


def guarded(world: World, post: int) -> tuple[str, ItemKey, Image | None]:
    key = ItemKey("main", f"POST#{post}", "M")
    return "likes", key, world.store.get(key)


def test_a_backfill_of_all_rules_forgets_rivals_that_were_not_seen_since() -> None:
    both = Two(BUDGET + 1)
    for post in range(BUDGET + 1):
        both.first.put("USER#2", f"LIKE#{post}")
    both.rounds()
    (rival,) = rivals(both.first.store)
    forget(both.first.store, rival.seen)
    assert list(rivals(both.first.store)) == [rival]
    forget(both.first.store, rival.seen + 1)
    assert list(rivals(both.first.store)) == []


def test_what_another_ledger_is_called_cannot_be_chosen_freely() -> None:
    """Its id is printed and stored, so it has 4 letters and digits."""
    w = deployed()
    before = items(w)
    for name in ("\x1b[2J", "a|b.", "....", "äöüß"):
        posing = Guards(w.program, Identity(name, (b"x",))).stamp_group("likes", POST, "1.1", 1)
        assert w.guards().other_ledger("likes", POST, {"~likes": posing}) == ""
        overwrite(w, POST, likes=MILLION, **{"~likes": posing})
        w.settle()
    assert items(w) == before
    assert list(rivals(w.store)) == []


def test_a_correction_is_reported_with_rule_attribute_and_reason() -> None:
    w = deployed()
    overwrite(w, POST, likes=MILLION)
    outcome = w.deliver()
    assert outcome.healing == {"likes, values changed: likes": (1, "main|POST#1|M")}
    assert outcome.counts["healed"] == 1
    assert w.deliver().healing == {}


@pytest.mark.parametrize(
    ("key", "name", "most"), [(POST, "likes", 5), (NOTE, "role", 5), (NOTE, "label", AT_ONCE), (COPY, "text", 5)]
)
def test_what_is_overwritten_without_end_is_corrected_later(key: ItemKey, name: str, most: int) -> None:
    now, sent = [1_700_000_000.0], list[tuple[Any, float]]()
    rules = RULES + "  label: {from: Note, compute: {set: {label: text}}}\n"
    w = World(rules, HEAD, clock=lambda: now[0], tasks=lambda task, seconds: sent.append((task, seconds)))
    for item in deployed().store.items("main"):
        w.store.put("main", {each: value for each, value in item.items() if not each.startswith("~")})
    w.settle()
    right = image(w, key)[name]

    def corrects(number: int) -> bool:
        overwrite(w, key, **{name: {"N": str(number)}})
        assert w.deliver().counts["healed"] == 1
        w.settle()
        return image(w, key)[name] == right

    assert [corrects(number) for number in range(50, most + 53)] == [True] * most + [False] * 3
    if key != COPY:  # of which every attribute is the rule's
        overwrite(w, key, **{name: MILLION, "other": MILLION})
        w.settle()
        assert image(w, key)[name] == right
    assert not corrects(99)
    ((task, seconds),) = sent
    assert seconds == WAIT
    send = Tasks(lambda: None)  # type: ignore[arg-type, return-value]
    worker = WorkerHandler(w.program, w.store, tasks=send, quarantine=w.rejected.extend, pacer=Pacer(1e6))
    worker.handle({"Records": [{"messageId": "1", "body": write(task)}]}, lambda: 900.0)
    assert image(w, key)[name] == right
    now[0] += QUIET
    assert corrects(100)

"""The registry: which versions of rules there are, and their states."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from projections.engine.registry import REGISTRY, Registry, RegistrySnapshot
from projections.engine.running import Reload
from projections.engine.store import ItemKey, Update, Write
from projections.errors import Misconfigured, Reason, TransactionCancelled, Transient
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.limits import item_size
from projections.stores.memory import MemoryStore
from tests.engine.scene import Scene
from tests.engine.world import HEAD, TAG, World

COUNT = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
HEAVY = "  likes: {from: Like, where: {weight: [9]}, aggregate: {into: Post, set: {likeCount: count}}}\n"
TAGS = "  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"
MORE = COUNT.replace("likes", "more").replace("likeCount", "moreCount")
NOW = 1_700_000_000
KINDS = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Email: {key: {PK: "EMAIL#{email}", SK: OWNER}}
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
  PostMeta: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
  owner: {from: User, MODE copy: {into: Email, attributes: [userId]}}
  postById: {from: Post, MODE copy: {into: PostMeta, attributes: [title]}}
  likes: {from: Like, MODE aggregate: {into: PostMeta, set: {likeCount: count}}}
  newest: {from: Like, MODE latest: {into: PostMeta, by: at, attributes: {lastLiker: userId}}}
  listed: {from: PostMeta, MODE index: {GSI1PK: "T#{title}", GSI1SK: x}}
  author: {from: User, MODE embed: {into: Post, match: {userId: "{userId}"}, attributes: {userName: name}, on_delete: keep}}
"""


def program(rules: str, tail: str = "") -> Program:
    head = HEAD + (TAG if "into: Tag" in rules else "") + "projections:\n"
    return Program.from_document(loads(head + rules + tail).document())


def memory() -> MemoryStore:
    return MemoryStore({**program(TAGS).tables, "ledger": LEDGER_SCHEMA})


def registry_of(rules: Program, store: MemoryStore, **settings: Any) -> Registry:
    return Registry(rules, store, now=lambda: NOW, **settings)


def states(snapshot: RegistrySnapshot) -> dict[str, str]:
    return {name: version.state for name, version in snapshot.versions.items()}


class Meddled(MemoryStore):
    """Somebody else does something just before the next write of the registry."""

    def __init__(self, rules: Program | None = None) -> None:
        super().__init__({**(rules or program(TAGS)).tables, "ledger": LEDGER_SCHEMA})
        self.meddlers: list[Callable[[], Any]] = []
        self.sizes: list[int] = []

    def _meddle(self) -> None:
        if self.meddlers:
            self.meddlers.pop(0)()

    def transact(self, writes: Any) -> None:
        self._meddle()
        self.sizes.append(len(writes))
        super().transact(writes)

    def write(self, write: Write) -> None:
        if write.key == REGISTRY:
            self._meddle()
        super().write(write)


# The first registration.


@pytest.mark.parametrize(("filled", "state"), [(True, "active"), (False, "filling")])
def test_the_first_to_ask_registers_the_rules_and_what_they_say(filled: bool, state: str) -> None:
    store, rules = memory(), program(COUNT + TAGS)
    registry = registry_of(rules, store, filled=filled)
    assert registry.read() is None
    snapshot = registry.read_or_create()
    assert (snapshot.epoch, states(snapshot)) == (NOW, {"likes.1": state, "tags.1": state})
    assert [snapshot.promotions.get(rule) for rule in ("likes", "tags")] == [NOW if filled else None] * 2
    assert registry.read_or_create() == registry.read() == snapshot
    document = registry.documents([snapshot.versions["likes.1"]])["likes.1"]
    assert document["rule"] == rules.document["projections"]["likes"]
    assert document["entities"].keys() == {"Like", "Post"}


@pytest.mark.parametrize("theirs", [COUNT, HEAVY], ids=["the same rules", "other rules"])
def test_of_two_that_register_at_once_the_second_finds_what_the_first_wrote(theirs: str) -> None:
    store = Meddled()
    first = registry_of(program(theirs), store)
    store.meddlers = [first.read_or_create]
    second = registry_of(program(COUNT), store, filled=False)
    snapshot, now = second.current()
    assert snapshot == first.read_or_create()
    assert (snapshot.epoch, states(snapshot)) == (NOW, {"likes.1": "active"})
    assert now.document["projections"]["likes.1"]["from"] == program(theirs).document["projections"]["likes"]["from"]


def many(number: int, weight: int) -> Program:
    source = f"from: Like, where: {{weight: [{weight}]}}"
    return program(
        "".join(
            f"  likesOfPosts{n}: {{{source}, aggregate: {{into: Post, set: {{c{n}: count}}}}}}\n" for n in range(number)
        )
    )


@pytest.mark.parametrize(("rules", "versions", "size"), [(24, 1, 1_778), (24, 2, 2_906), (300, 3, 54_810)])
def test_the_size_of_the_registry(rules: int, versions: int, size: int) -> None:
    """24 rules with two versions each take one read unit (4 KB) an invocation, and 2,000 with three each fit (400 KB)."""
    store = Meddled()
    for number in range(versions):
        registry = registry_of(many(rules, number), store)
        registry.promote(registry.read_or_create().versions)
        snapshot, _ = registry.register(many(rules, number))
        if number < versions - 1:
            registry.promote(registry.fill(snapshot.versions).versions)
    assert max(store.sizes) <= 100
    snapshot, compiled = registry_of(many(1, 0), store).current()
    assert len(snapshot.versions) == len(compiled.rules) == rules * versions
    item = store.get(REGISTRY)
    assert item is not None
    assert item_size(item) == size
    assert item_size(item) * 2000 // rules < 400 * 1024


def test_a_conflict_is_no_lost_race_and_is_told_as_transient() -> None:
    """The registry is one item that all workers may write at once in the first second of a deployment."""
    store = Meddled()

    def conflict() -> None:
        raise TransactionCancelled([Reason("conflict"), None])

    store.meddlers = [conflict]
    registry = registry_of(program(COUNT), store)
    with pytest.raises(Transient):
        registry.read_or_create()
    assert registry.read_or_create().epoch == NOW


# Versions.


def test_new_and_changed_rules_get_versions_and_the_others_keep_theirs() -> None:
    store = memory()
    first = registry_of(program(COUNT + TAGS), store).read_or_create()
    registry = registry_of(program(HEAVY + TAGS + MORE), store)
    snapshot, versions = registry.register(program(HEAVY + TAGS + MORE))
    expected = {"likes.1": "active", "tags.1": "active", "likes.2": "filling", "more.1": "filling"}
    assert (snapshot.epoch, states(snapshot)) == (first.epoch + 1, expected)
    assert {rule: version.name for rule, version in versions.items()} == {
        "likes": "likes.2", "tags": "tags.1", "more": "more.1"
    }  # fmt: skip
    assert registry.register(program(HEAVY + TAGS + MORE)).snapshot == snapshot, "to register again changes nothing"


def test_a_version_that_is_promoted_lets_the_one_before_stand_by_and_a_roll_back_promotes_that() -> None:
    store = memory()
    registry = registry_of(program(COUNT), store)
    registry.read_or_create()
    registry.register(program(HEAVY))
    assert states(registry.promote(["likes.2"])) == {"likes.1": "active", "likes.2": "filling"}, "it is not complete"
    registry.fill(["likes.2"])
    promoted = registry.promote(["likes.2"])
    assert states(promoted) == {"likes.1": "standby", "likes.2": "active"}
    assert (promoted.promotion("likes.2"), promoted.active["likes"].unfinished) == (promoted.epoch, True)
    finished = registry.finish(promoted.versions.values())
    assert not any(version.unfinished for version in finished.versions.values())
    back = registry.promote(["likes.1"])
    assert states(back) == {"likes.1": "active", "likes.2": "standby"}
    assert back.promotions["likes"] > promoted.promotions["likes"]


def test_numbers_are_never_used_again() -> None:
    registry = registry_of(program(COUNT), memory())
    registry.read_or_create()
    registry.register(program(HEAVY))
    registry.remove(["likes.2"])
    assert states(registry.register(program(HEAVY)).snapshot) == {"likes.1": "active", "likes.3": "filling"}


def test_numbers_of_rules_that_record_nothing_are_never_used_again() -> None:
    shows = "  listed: {from: Post, compute: {set: {shown: %s}}}\n"
    titles = [shows % "title", shows % "text"]
    registry = registry_of(program(titles[0]), memory())
    registry.read_or_create()
    for number in range(2, 6):
        snapshot, versions = registry.register(program(titles[(number - 1) % 2]))
        assert (versions["listed"].number, snapshot.next["listed"]) == (number, number + 1)


def test_two_copies_of_one_ledger_do_not_outbid_each_other() -> None:
    now = [NOW]
    registry = Registry(program(COUNT), memory(), now=lambda: now[0])
    registry.read_or_create()
    registry.overtake(Reload(NOW + 50, "likes"))
    assert registry.read_or_create().promotions["likes"] == NOW + 51
    now[0] += 200
    with pytest.raises(Misconfigured, match="likes: another copy of the ledger"):
        registry.overtake(Reload(NOW + 100, "likes"))
    now[0] += 200
    registry.overtake(Reload(NOW + 600, "likes"))
    assert registry.read_or_create().promotions["likes"] == NOW + 601


def test_a_version_that_is_counted_again_is_no_standby_and_apply_replaces_it() -> None:
    registry = registry_of(program(COUNT), memory())
    registry.read_or_create()
    registry.recount(["likes"])
    registry.remove(["likes.2"])  # another operator's apply, for instance
    assert states(registry.register(program(COUNT)).snapshot) == {"likes.1": "active", "likes.3": "filling"}
    registry.register(program(HEAVY))
    registry.fill(["likes.4"])
    assert states(registry.promote(["likes.4"])) == {"likes.1": "leaving", "likes.4": "active"}


def test_a_third_version_replaces_one_that_never_was_published() -> None:
    registry = registry_of(program(COUNT), memory())
    registry.read_or_create()
    registry.register(program(HEAVY))
    registry.fill(["likes.2"])
    third = program(HEAVY.replace("[9]", "[8]"))
    assert states(registry.register(third).snapshot) == {"likes.1": "active", "likes.3": "filling"}


def test_a_version_that_is_counted_again_replaces_the_damaged_one() -> None:
    registry = registry_of(program(COUNT + TAGS), memory())
    registry.read_or_create()
    snapshot, versions = registry.recount(["likes"])
    assert states(snapshot) == {"likes.1": "active", "tags.1": "active", "likes.2": "filling"}
    assert versions["likes"].fingerprint == snapshot.versions["likes.1"].fingerprint
    assert registry.documents([versions["likes"]])["likes.2"]["rule"] == program(COUNT).document["projections"]["likes"]
    registry.fill(["likes.2"])
    assert states(registry.promote(["likes.2"])) == {"likes.1": "leaving", "tags.1": "active", "likes.2": "active"}


def test_the_fate_of_a_rule_that_the_file_lacks_has_to_be_said() -> None:
    store = memory()
    registry = registry_of(program(COUNT + TAGS), store)
    registry.read_or_create()
    with pytest.raises(Misconfigured, match=r"likes, tags: these rules are active.*`retired: \{likes: remove\}`"):
        registry.register(program(MORE))
    with pytest.raises(Misconfigured, match=r"likes: this rule is active.*does not contain it"):
        registry.register(program(MORE, "retired: {tags: keep}\n"))
    assert registry.read_or_create().epoch == NOW
    left = registry.register(program(MORE, "retired: {tags: keep}\n"), {"likes": "remove"}).snapshot
    assert states(left) == {"likes.1": "leaving", "more.1": "filling"}
    again = registry.register(program(COUNT, "retired: {more: remove}\n")).snapshot
    assert states(again) == {"likes.1": "leaving", "likes.2": "filling"}
    assert states(registry.finish(again.versions.values())) == {"likes.1": "gone", "likes.2": "filling"}


def test_the_package_has_the_documents_of_its_own_rules() -> None:
    store = memory()
    first = registry_of(program(COUNT + TAGS), store).read_or_create()
    store.get_many = lambda keys: pytest.fail(f"{keys} are read")  # type: ignore[method-assign]
    package = program(COUNT.replace("from: Like", "description: Likes, from: Like") + TAGS)
    assert registry_of(package, store).current()[1].rules.keys() == first.versions.keys()


@pytest.mark.parametrize(("now", "later"), [('"count"', '"guess"'), ('"format": 1', '"format": 2')])
def test_a_document_that_this_code_cannot_read_is_stale_and_the_others_go_on(now: str, later: str) -> None:
    w = Scene(COUNT + MORE, HEAD + "projections:\n")
    w.put("POST#1", "METADATA")
    key = ItemKey("ledger", "R", "rule|likes.1")
    document = (w.store.get(key) or {})["document"]["S"]
    w.store.write(Update(key, set={"document": {"S": document.replace(now, later)}}))
    w.like(1, 1)
    w.processor = w.under(HEAVY + MORE, HEAD + "projections:\n").worker()
    outcome = w.deliver()
    assert outcome.counts["internal"] == 1, "an alarm fires"
    assert "likes.1 is stale" in outcome.internal[0]
    w.settle()
    assert states(w.registry().read_or_create()) == {"likes.1": "stale", "more.1": "active"}
    assert w.post() == {"moreCount": 1}
    assert w.contributed("USER#1|LIKE#1") == {"more.1": {"main|POST#1|METADATA": {"n": 1}}}


def test_a_package_from_before_an_index_reads_the_rules_that_use_it_beside_one_that_it_cannot_read() -> None:
    head = HEAD + "  User: {key: {PK: 'USER#{userId}', SK: PROFILE}}\nprojections:\n"
    w = World(COUNT, head)
    rules = """
  byUser: {from: Post, index: {GSI2PK: "{author}", GSI2SK: x}}
  author: {from: User, embed: {into: Post, match: {author: "{userId}"}, attributes: {name: name}, on_delete: keep}}
"""
    newer = w.under(COUNT + MORE + rules, head.replace("GSI1: ", "GSI2: [GSI2PK, GSI2SK], GSI1: "))
    newer.apply()
    key = ItemKey("ledger", "R", "rule|more.1")
    text = '{"format": 1, "rule": {"novelty": 1}, "entities": {}, "tables": {}}'
    w.store.write(Update(key, set={"document": {"S": text}}))
    registry = w.registry()
    registry.readable(registry.read_or_create())  # the request that marks it fails: the next batch has to mark it
    snapshot, _ = registry.current()
    assert [name for name, version in snapshot.versions.items() if version.state != "active"] == ["more.1"]


def test_numbers_are_not_used_again_where_the_registry_is_lost() -> None:
    w = Scene(COUNT, HEAD + "projections:\n", filled=False)
    w.put("POST#1", "METADATA")
    w.like(1, 1, weight=9)
    for _ in range(2):
        w.under(HEAVY, HEAD + "projections:\n").apply()
        w.settle()
        w.store.remove(REGISTRY)
    w.apply()
    assert w.post() == {"likeCount": 1}
    assert w.registry().read_or_create().active["likes"].number > 2


# What functions do.


def test_a_registry_that_conflicts_is_asked_again_within_the_invocation() -> None:
    w = World(COUNT)
    w.put("POST#1", "METADATA")
    w.like(1, 1)
    w.store.remove(REGISTRY)
    w.store.faults = [TransactionCancelled([Reason("conflict"), None])]
    assert w.deliver().failed is None
    assert w.post() == {"likeCount": 1}


def test_a_filling_version_publishes_nothing_until_it_is_promoted() -> None:
    w = World(COUNT, filled=False)
    w.put("POST#1", "METADATA", likeCount=5000)
    w.like(1, 1)
    w.settle()
    assert w.item("POST#1", "METADATA", guards=True) == {"PK": "POST#1", "SK": "METADATA", "likeCount": 5000}
    assert [group["n"] for group in w.ledger("G|")] == [1]
    w.registry().fill(["likes.1"])
    w.registry().promote(["likes.1"])
    w.like(2, 1)
    w.settle()
    assert w.post() == {"likeCount": 2}


def test_what_records_nothing_is_active_at_once() -> None:
    """Copies that no other source can claim, index attributes, embeds; but not what is published from groups."""
    w = World("", KINDS.replace("MODE", ""), filled=False)
    w.put("USER#a", "PROFILE", name="Ann", email="a@example.com")
    w.put("USER#a", "POST#1", title="t")
    w.put("USER#a", "LIKE#1", at=1)
    w.settle()
    assert w.post() == {"title": "t", "GSI1PK": "T#t", "GSI1SK": "x"}
    assert (w.item("USER#a", "POST#1") or {})["userName"] == "Ann"
    assert w.item("EMAIL#a@example.com", "OWNER") is None
    w.carry_out()
    w.put("USER#b", "PROFILE", email="b@example.com")
    w.settle()
    assert w.post() == {"title": "t", "GSI1PK": "T#t", "GSI1SK": "x", "likeCount": 1, "lastLiker": "a"}
    for user in "ab":
        owner = {"PK": f"EMAIL#{user}@example.com", "SK": "OWNER", "userId": user}
        assert w.item(f"EMAIL#{user}@example.com", "OWNER") == owner


def test_a_held_rule_keeps_books_and_writes_nothing() -> None:
    w = World("", KINDS.replace("MODE", "hold: true,"))
    snapshot = w.registry().read_or_create()
    assert states(snapshot) == dict.fromkeys(("owner.1", "likes.1", "newest.1"), "ready")
    w.put("USER#a", "PROFILE", name="Ann", email="a@example.com")
    w.put("USER#a", "POST#1", title="t")
    w.put("POST#1", "METADATA", title="by hand", likeCount=7)
    w.put("USER#a", "LIKE#1", at=1)
    before = w.store.items("main")
    w.settle()
    w.put("USER#a", "PROFILE", name="Anna", email="a@example.com")
    w.remove("USER#a", "POST#1")
    w.settle()
    changed = {item["SK"]["S"] for item in w.store.items("main") if item not in before}
    assert changed == {"PROFILE"}, "only what the application wrote"
    kept = [json.loads(entry["contributions"]) for entry in w.ledger("E|")]
    assert {rule for contributions in kept for rule in contributions} == {"owner.1", "likes.1", "newest.1"}


# Changes at once.


def test_changes_at_once_are_all_made() -> None:
    store = Meddled()
    registry = registry_of(program(COUNT + TAGS), store, filled=False)
    registry.read_or_create()
    store.meddlers = [lambda: registry_of(program(COUNT), store).fill(["tags.1"])]
    assert states(registry.fill(["likes.1"])) == {"likes.1": "ready", "tags.1": "ready"}
    store.meddlers = [lambda: registry_of(program(COUNT), store).promote(["tags.1"])]
    with pytest.raises(Misconfigured, match="tags: this rule is active"):
        registry.register(program(COUNT + MORE))
    assert store.meddlers == []


def test_a_registry_that_never_rests_is_given_up_for_now() -> None:
    store = Meddled()
    registry = registry_of(program(COUNT), store, filled=False)
    registry.read_or_create()

    def meddle() -> None:
        item = dict(store.get(REGISTRY) or {})
        store.put("ledger", {**item, "epoch": {"N": str(int(item["epoch"]["N"]) + 1)}})

    for work in (lambda: registry.fill(["likes.1"]), lambda: registry.register(program(HEAVY))):
        store.meddlers = [meddle] * 100
        with pytest.raises(Transient, match="keeps changing"):
            work()
        store.meddlers = []


def test_guard_prefix_cannot_change_while_there_are_rules() -> None:
    """Guards and marks with the former prefix would count as attributes of the application, and stay for good."""
    w = World(COUNT + TAGS)
    text, gone = 'guard_prefix: "_p."' + HEAD, "retired: {likes: remove, tags: remove}\nprojections: {}\n"
    for rules in (text + TAG + "projections:\n" + COUNT + TAGS, text + gone):
        other = Program.from_document(loads(rules).document())
        said = 'guard_prefix is "_p.", and the active rules use "~". It cannot change'
        with pytest.raises(Misconfigured, match=re.escape(said)):
            w.registry().register(other)
    left = w.registry().register(Program.from_document(loads(HEAD + gone).document())).snapshot
    w.registry().finish(left.versions.values())
    again = Program.from_document(loads(text + "projections:\n" + COUNT).document())
    assert states(w.registry().register(again).snapshot) == {"likes.2": "filling"}

"""The registry: which rules are in force, who may work under them, and when they publish."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from projections.engine.registry import (
    FILLING,
    LIVE,
    PROVISIONAL,
    REGISTRY,
    RETIRING,
    SHADOW,
    WITHOUT,
    Registry,
    RegistrySnapshot,
    former,
)
from projections.engine.store import Write
from projections.errors import Misconfigured, Reason, TransactionCancelled, Transient
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.memory import MemoryStore
from tests.engine.world import HEAD, TAG, World

COUNT = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
HEAVY = "  likes: {from: Like, where: {weight: [9]}, aggregate: {into: Post, set: {likeCount: count}}}\n"
TAGS = "  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"
RENAMED = COUNT.replace("likes:", "popularity:")
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


def states(snapshot: RegistrySnapshot) -> dict[str, str]:
    """Of rules as they are now."""
    return {name: rule.state for name, rule in snapshot.rules.items() if "@" not in name}


def formers(snapshot: RegistrySnapshot) -> dict[str, str]:
    """Of rules as they were."""
    return {name: rule.state for name, rule in snapshot.rules.items() if "@" in name}


def was(rules: Program, name: str = "likes") -> str:
    return former(name, rules.rules[name].fingerprint)


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


@pytest.mark.parametrize("state", [LIVE, FILLING])
def test_the_first_to_ask_registers_the_rules_and_what_they_say(state: str) -> None:
    store, rules = memory(), program(COUNT + TAGS)
    registry = Registry(rules, store, state)
    assert registry.read() is None
    snapshot = registry.read_or_create()
    assert (snapshot.epoch, snapshot.program, snapshot.past) == (1, rules.fingerprint, frozenset())
    assert states(snapshot) == {"likes": state, "tags": state}
    assert registry.read_or_create() == registry.read() == snapshot
    definition = registry.definition("likes")
    assert definition is not None
    assert definition["rule"] == rules.document["projections"]["likes"]
    assert definition["entities"].keys() == {"Like", "Post"}
    assert registry.definition("unknown") is None


@pytest.mark.parametrize("theirs", [COUNT, HEAVY], ids=["the same rules", "other rules"])
def test_of_two_that_register_at_once_the_second_finds_what_the_first_wrote(theirs: str) -> None:
    store = Meddled()
    first = Registry(program(theirs), store)
    store.meddlers = [first.read_or_create]
    second = Registry(program(COUNT), store, FILLING)
    assert second.read_or_create() == first.read_or_create()
    assert first.read_or_create().epoch == 1
    assert states(second.read_or_create()) == {"likes": LIVE}
    assert second.definition("likes") == first.definition("likes")
    assert (second.definition("likes") or {})["rule"] == program(theirs).document["projections"]["likes"]


def test_more_rules_than_a_transaction_takes_are_registered_too() -> None:
    store = Meddled()
    many = program("".join(COUNT.replace("likes", f"r{n}").replace("likeCount", f"c{n}") for n in range(250)))
    registry = Registry(many, store)
    assert len(registry.read_or_create().rules) == 250
    assert max(store.sizes) <= 100
    assert all(registry.definition(name) is not None for name in many.rules)


def test_a_conflict_is_no_lost_race_and_is_told_as_transient() -> None:
    """The registry is one item that all workers may write at once in the first second of a deployment."""
    many = program("".join(COUNT.replace("likes", f"r{n}").replace("likeCount", f"c{n}") for n in range(100)))
    for rules in (program(COUNT), many):
        store = Meddled()

        def conflict() -> None:
            raise TransactionCancelled([Reason("conflict"), None])

        store.meddlers = [conflict]
        registry = Registry(rules, store)
        with pytest.raises(Transient):
            registry.read_or_create()
        assert registry.read_or_create().epoch == 1


# Other rules.


def test_a_new_rule_and_a_changed_one_fill_and_the_others_stay_live() -> None:
    store = memory()
    before = Registry(program(COUNT + TAGS), store).read_or_create()
    added = COUNT.replace("likes", "more").replace("likeCount", "moreCount")
    after = program(HEAVY + TAGS + added)
    snapshot = Registry(after, store).activate()
    assert states(snapshot) == {"likes": FILLING, "tags": LIVE, "more": FILLING}
    assert (snapshot.epoch, snapshot.program, snapshot.past) == (2, after.fingerprint, {before.program})
    assert (Registry(after, store).definition("likes") or {})["rule"] == after.document["projections"]["likes"]
    assert (Registry(after, store).definition("more") or {})["rule"] == after.document["projections"]["more"]
    assert Registry(after, store).activate() == snapshot, "to enforce what is in force changes nothing"


def test_what_a_changed_file_has_not_enforced_is_filling_for_it_and_live_for_the_one_before() -> None:
    """A function that is deployed before its backfill began must not publish what only half contributed."""
    store, before, after = memory(), program(COUNT + TAGS), program(HEAVY + TAGS)
    Registry(before, store).read_or_create()
    snapshot = Registry(after, store).read_or_create()
    assert not snapshot.is_outdated(after)
    assert not snapshot.is_outdated(before)
    assert [snapshot.state(after.rules[name]) for name in ("likes", "tags")] == [FILLING, LIVE]
    assert [snapshot.state(before.rules[name]) for name in ("likes", "tags")] == [LIVE, LIVE]


def test_a_removed_rule_is_an_error_that_names_the_entry_to_add() -> None:
    store = memory()
    Registry(program(COUNT + TAGS), store).read_or_create()
    with pytest.raises(Misconfigured, match=r"likes, tags: these rules are active.*`retired: \{likes: remove\}`"):
        Registry(program(RENAMED), store).activate()
    with pytest.raises(Misconfigured, match=r"likes: this rule is active.*does not contain it"):
        Registry(program(RENAMED, "retired: {tags: keep}\n"), store).activate()
    assert Registry(program(COUNT + TAGS), store).read_or_create().epoch == 1


@pytest.mark.parametrize(("retired", "left"), [("keep", {}), ("remove", {"likes": RETIRING})])
def test_a_renamed_rule_retires_the_old_name(retired: str, left: dict[str, str]) -> None:
    store = memory()
    Registry(program(COUNT), store).read_or_create()
    renamed = Registry(program(RENAMED, f"retired: {{likes: {retired}}}\n"), store)
    assert states(renamed.activate()) == {"popularity": FILLING, **left}
    assert (renamed.definition("likes") or {})["rule"]["aggregate"]["set"].keys() == {"likeCount"}, (
        "needed to remove its traces"
    )
    renamed.complete(["popularity"])
    renamed.forget(["likes"])
    assert states(renamed.read_or_create()) == {"popularity": LIVE}
    assert (renamed.definition("likes") is None) == (retired == "remove")


def test_old_rules_are_put_in_force_again_by_enforcing_them() -> None:
    store, old, new = memory(), program(COUNT + TAGS), program(HEAVY + TAGS)
    Registry(old, store).read_or_create()
    assert Registry(new, store).activate().is_outdated(old)
    snapshot = Registry(old, store).activate()
    assert (snapshot.epoch, snapshot.is_outdated(old), snapshot.is_outdated(new)) == (3, False, True)
    assert states(snapshot) == {"likes": FILLING, "tags": LIVE}, "what it left is mixed with the other's"
    assert Registry(new, store).activate().past == {old.fingerprint}


# What rules were before they changed.


def test_a_changed_rule_is_remembered_as_it_was_until_its_traces_are_removed() -> None:
    store, old, new = memory(), program(COUNT + TAGS), program(HEAVY + TAGS)
    Registry(old, store).read_or_create()
    registry = Registry(new, store)
    assert formers(registry.activate()) == {was(old): RETIRING}
    assert (registry.definition(was(old)) or {})["rule"] == old.document["projections"]["likes"]
    assert formers(registry.activate()) == {was(old): RETIRING}
    registry.complete(["likes"])
    registry.forget([was(old)])
    assert registry.read_or_create().rules.keys() == {"likes", "tags"}
    assert registry.definition(was(old)) is None
    assert registry.definition("likes") is not None


def test_a_rule_that_is_as_it_was_again_is_no_former_one() -> None:
    store, old, new = memory(), program(COUNT), program(HEAVY)
    for rules, left in ((old, set[str]()), (new, {was(old)}), (old, {was(new)}), (new, {was(old)})):
        Registry(rules, store).read_or_create()
        assert formers(Registry(rules, store).activate()).keys() == left
    third = program(COUNT.replace("likeCount", "n"))
    assert formers(Registry(third, store).activate()).keys() == {was(old), was(new)}
    assert (Registry(third, store).definition(was(new)) or {})["rule"] == new.document["projections"]["likes"]


def test_a_rule_that_was_kept_may_be_removed_later() -> None:
    store = memory()
    Registry(program(COUNT + TAGS), store).read_or_create()
    assert states(Registry(program(TAGS, "retired: {likes: keep}\n"), store).activate()) == {"tags": LIVE}
    removing = Registry(program(TAGS, "retired: {likes: remove}\n"), store)
    assert states(removing.activate()) == {"likes": RETIRING, "tags": LIVE}
    removing.forget(["likes"])
    assert states(removing.activate()) == {"tags": LIVE}
    assert not removing.read_or_create().is_outdated(program(TAGS))


# What functions have tried without its being in force.

MORE = COUNT.replace("likes", "more").replace("likeCount", "moreCount")


def test_functions_note_what_of_their_rules_is_not_in_force_before_they_work() -> None:
    store, old, new = Meddled(), program(COUNT + TAGS), program(HEAVY + MORE, "retired: {tags: keep}\n")
    before = Registry(old, store).read_or_create()
    registry = Registry(new, store)
    snapshot = registry.admit()
    tried = {was(new): PROVISIONAL, was(new, "more"): PROVISIONAL, former("tags", WITHOUT): PROVISIONAL}
    assert formers(snapshot) == formers(registry.read_or_create()) == tried
    assert (snapshot.epoch, snapshot.program, states(snapshot)) == (1, before.program, states(before))
    assert registry.definition(was(new)) is registry.definition(was(new, "more")) is None, "they publish nothing"
    store.meddlers = [lambda: pytest.fail("once is enough")]
    assert registry.admit() == snapshot


def kinds(old: str = "", new: str = "", tail: str = "") -> Program:
    return Program.from_document(loads(KINDS.replace("MODE ", "").replace(old, new) + tail).document())


def test_of_what_may_leave_traces_on_items_the_definition_is_kept() -> None:
    old, new = kinds(), kinds("x}", "y}")
    store = MemoryStore({**old.tables, "ledger": LEDGER_SCHEMA})
    Registry(old, store).read_or_create()
    registry = Registry(new, store)
    registry.admit()
    listed = registry.definition(was(new, "listed")) or {}
    assert (listed["rule"], listed["tried"]) == (new.document["projections"]["listed"], True)
    registry.activate()
    assert registry.definition(was(new, "listed")) is None, "it is in force, and defined as such"
    assert (registry.definition("listed") or {}).keys() == listed.keys() - {"tried"}


def test_nothing_is_noted_of_rules_that_are_in_force_or_were_replaced() -> None:
    store, old, new = memory(), program(COUNT + TAGS), program(HEAVY + TAGS)
    assert formers(Registry(old, store).admit()) == {}
    snapshot = Registry(new, store).activate()
    assert Registry(new, store).admit() == Registry(old, store).admit() == snapshot
    assert snapshot.is_outdated(old)


def test_rules_that_were_tried_and_come_into_force_are_theirs_no_more() -> None:
    store, old, new = memory(), program(COUNT), program(HEAVY + MORE)
    Registry(old, store).read_or_create()
    Registry(new, store).admit()
    snapshot = Registry(new, store).activate()
    assert states(snapshot) == {"likes": FILLING, "more": FILLING}
    assert formers(snapshot) == {was(old): RETIRING}


def test_rules_that_were_tried_and_rolled_back_are_retired() -> None:
    """Nobody has to write down what becomes of a rule that was never in force."""
    store, old, new = memory(), program(COUNT + TAGS), program(HEAVY + MORE, "retired: {tags: remove}\n")
    registry = Registry(old, store)
    registry.read_or_create()
    Registry(new, store).admit()
    assert registry.preview() == registry.activate()
    snapshot = registry.read_or_create()
    names = [was(new), was(new, "more"), former("tags", WITHOUT)]
    assert formers(snapshot) == dict.fromkeys(names, RETIRING)
    assert (snapshot.epoch, states(snapshot)) == (2, {"likes": LIVE, "tags": LIVE})
    registry.forget(names)
    assert formers(registry.read_or_create()) == {}
    assert registry.activate().epoch == 3, "forgotten, and in force as before"


def test_what_is_tried_again_while_its_traces_are_removed_is_to_be_removed_once_more() -> None:
    """What its functions do behind the backfill's back is found by the next one."""
    store, old, new = memory(), program(COUNT), program(HEAVY)
    registry = Registry(old, store)
    registry.read_or_create()
    Registry(new, store).admit()
    registry.activate()
    assert formers(Registry(new, store).admit()) == {was(new): PROVISIONAL}
    registry.forget([was(new)])
    assert formers(registry.read_or_create()) == {was(new): PROVISIONAL}
    snapshot = registry.activate()
    assert (snapshot.epoch, formers(snapshot)) == (3, {was(new): RETIRING})


def test_a_function_notes_its_rules_before_it_records_by_them() -> None:
    w = World(COUNT)
    w.put("POST#1", "METADATA")
    w.settle()
    new = w.under(HEAVY)
    new.like(1, 1, weight=9)
    seen: list[dict[str, str]] = []
    transact = new.store.transact

    def watched(writes: Any) -> None:
        seen.append(formers(new.registry().read_or_create()))
        transact(writes)

    new.store.transact = watched  # type: ignore[method-assign]
    new.settle()
    assert seen
    assert all(noted == {was(new.program): PROVISIONAL} for noted in seen)


# Who may work.


def test_an_older_program_stops_and_reports_the_whole_batch() -> None:
    w = World(COUNT)
    w.put("POST#1", "METADATA")
    w.settle()
    new = w.under(HEAVY)
    new.registry().activate()
    w.like(1, 1, weight=9)
    w.put("POST#2", "METADATA", title=5)
    before = w.store.items("main"), w.store.items("ledger")
    records = w.records()
    outcome = w.deliver(records)
    assert outcome.failed == records[0]["dynamodb"]["SequenceNumber"]
    assert "the active rules are not the rules of this function" in (outcome.failed_reason or "")
    assert (w.store.items("main"), w.store.items("ledger"), w.rejected) == (*before, [])
    assert new.deliver(records).failed is None
    w.registry().activate()
    w.like(2, 1, weight=9)
    assert new.deliver(w.store.stream("main")[-1:]).failed is not None, "the newer ones are the outdated ones now"
    assert w.worker().process(w.records(), remaining=lambda: 900.0).failed is None


def test_a_registry_that_conflicts_is_asked_again_within_the_invocation() -> None:
    w = World(COUNT)
    w.put("POST#1", "METADATA")
    w.like(1, 1)
    w.store.put("ledger", {"pk": {"S": "R"}, "sk": {"S": "."}})  # so that it is there to be removed
    w.store.remove(REGISTRY)
    w.store.faults = [TransactionCancelled([Reason("conflict"), None])]
    assert w.deliver().failed is None
    assert w.post() == {"likeCount": 1}


# What publishes.


def test_a_filling_rule_publishes_nothing_until_it_is_complete() -> None:
    w = World(COUNT, new_rules=FILLING)
    w.put("POST#1", "METADATA", likeCount=5000)
    w.like(1, 1)
    w.settle()
    assert w.item("POST#1", "METADATA", guards=True) == {"PK": "POST#1", "SK": "METADATA", "likeCount": 5000}
    assert [group["n"] for group in w.ledger("G|")] == [1]
    w.registry().complete(["likes"])
    w.like(2, 1)
    w.settle()
    assert w.post() == {"likeCount": 2}


def test_what_is_right_one_by_one_is_not_held_back() -> None:
    """Copies that no other source can claim, index attributes, embeds; but not what is published from groups."""
    w = World("", KINDS.replace("MODE", ""), new_rules=FILLING)
    w.put("USER#a", "PROFILE", name="Ann", email="a@example.com")
    w.put("USER#a", "POST#1", title="t")
    w.put("USER#a", "LIKE#1", at=1)
    w.settle()
    assert w.post() == {"title": "t", "GSI1PK": "T#t", "GSI1SK": "x"}
    assert (w.item("USER#a", "POST#1") or {})["userName"] == "Ann"
    assert w.item("EMAIL#a@example.com", "OWNER") is None
    w.registry().complete(w.program.rules)
    w.put("USER#a", "LIKE#1", at=2)
    w.put("USER#a", "PROFILE", name="Ann", email="a@example.com", age=5)
    w.put("USER#b", "PROFILE", email="b@example.com")
    w.settle()
    assert w.post() == {"title": "t", "GSI1PK": "T#t", "GSI1SK": "x", "likeCount": 1, "lastLiker": "a"}
    assert w.item("EMAIL#b@example.com", "OWNER") == {"PK": "EMAIL#b@example.com", "SK": "OWNER", "userId": "b"}


def test_a_rule_in_the_shadow_keeps_books_and_writes_nothing() -> None:
    w = World("", KINDS.replace("MODE", "mode: shadow,"))
    w.registry().complete(w.program.rules)
    snapshot = w.registry().read_or_create()
    assert {snapshot.state(rule) for rule in w.program.rules.values()} == {SHADOW}
    assert not any(snapshot.publishes(rule) for rule in w.program.rules.values())
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
    kept = {source: json.loads(entry["contributions"]) for entry in w.ledger("E|") for source in [entry["pk"]]}
    assert {rule for contributions in kept.values() for rule in contributions} == {"owner", "likes", "newest"}


# The end of a backfill.


def test_a_backfill_of_rules_that_are_not_in_force_any_more_completes_nothing() -> None:
    store = memory()
    overtaken = Registry(program(COUNT, "retired: {tags: remove}\n"), store, FILLING)
    overtaken.read_or_create()
    Registry(program(HEAVY), store).activate()
    for work in (lambda: overtaken.complete(["likes"]), lambda: overtaken.forget(["tags"])):
        with pytest.raises(Misconfigured, match="other rules have been activated meanwhile"):
            work()


# Changes at once.


def test_changes_at_once_are_all_made() -> None:
    store = Meddled()
    registry = Registry(program(COUNT + TAGS), store, FILLING)
    registry.read_or_create()
    store.meddlers = [lambda: Registry(program(COUNT + TAGS), store).complete(["tags"])]
    assert states(registry.complete(["likes"])) == {"likes": LIVE, "tags": LIVE}
    new = Registry(program(TAGS, "retired: {likes: remove}\n"), store)
    more = COUNT.replace("likes", "more").replace("likeCount", "moreCount")
    between = Registry(program(COUNT + TAGS + more), store)
    store.meddlers = [between.activate]
    with pytest.raises(Misconfigured, match="more: this rule is active"):
        new.activate()
    assert store.meddlers == []
    store.meddlers = [lambda: between.complete(["more"])]
    newest = Registry(program(TAGS, "retired: {likes: remove, more: remove}\n"), store)
    assert states(newest.activate()) == {"likes": RETIRING, "more": RETIRING, "tags": LIVE}
    assert newest.read_or_create().epoch == 6, "two completed twice, two put in force"


def test_a_registry_that_never_rests_is_given_up_for_now() -> None:
    store = Meddled()
    registry = Registry(program(COUNT), store, FILLING)
    registry.read_or_create()

    def meddle() -> None:
        item = dict(store.get(REGISTRY) or {})
        store.put("ledger", {**item, "epoch": {"N": str(int(item["epoch"]["N"]) + 1)}})

    retiring = Registry(program(TAGS, "retired: {likes: remove}\n"), store)
    for work in (lambda: registry.complete(["likes"]), retiring.activate):
        store.meddlers = [meddle] * 100
        with pytest.raises(Transient, match="keeps changing"):
            work()
        store.meddlers = []
    retiring.activate()
    store.meddlers = [meddle] * 100
    with pytest.raises(Transient, match="keeps changing"):
        retiring.forget(["likes"])


# On DynamoDB.


def test_guard_prefix_cannot_change_while_rules_are_active() -> None:
    """Guards and marks with the former prefix would count as attributes of the application, and stay for good."""
    world = World(COUNT + TAGS)
    world.put("POST#1", "METADATA", tags=["a"])
    world.settle()
    head = HEAD + TAG + "projections:\n"
    for rules in (head + COUNT + TAGS, head + TAGS):
        other = Registry(loaded('guard_prefix: "_p."' + rules), world.store)
        for refused in (other.read, other.read_or_create, other.admit, other.activate, other.preview):
            text = 'guard_prefix is "_p.", and the active rules use "~". It cannot change'
            with pytest.raises(Misconfigured, match=re.escape(text)):
                refused()
    gone = "retired: {likes: remove, tags: remove}\nprojections: {}\n"
    last = Registry(loaded(HEAD + gone), world.store)
    last.activate()
    with pytest.raises(Misconfigured, match="guard_prefix"):  # a backfill has to remove the guards first
        Registry(loaded('guard_prefix: "_p."' + HEAD + gone), world.store).activate()
    last.forget(["likes", "tags"])
    again = Registry(loaded('guard_prefix: "_p."' + HEAD + "projections:\n" + COUNT), world.store)
    assert again.activate().rules["likes"].state == FILLING
    assert again.read() == again.activate()
    with pytest.raises(Misconfigured, match="guard_prefix"):
        last.read()


def loaded(text: str) -> Program:
    return Program.from_document(loads(text).document())

"""Explanations of an item: each derived value beside what the ledger, its source or its parent says. Nothing is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from histories import ALL, RULES, compiled, settled

import projections
from projections.engine.guards import Guards, digits_of
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.store import Delete, ItemKey, Update
from projections.errors import UsageError
from projections.inspect.explain.item import item_explanation, read_key
from projections.inspect.explain.item_facts import ItemExplanation, item_document
from projections.inspect.rehearsal.recorder import RecordingStore
from projections.language.embeds import ListEmbedRule
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.rules import public_name
from projections.local.event_replay import MemoryTables, replay, schemas
from projections.stores.memory import MemoryStore
from projections.testing import Scenario

ROOT = Path(__file__).parents[2]
Run = Callable[..., tuple[int, str, str]]
EVENTS = json.loads((ROOT / "events/social.json").read_text())["Records"]
META = ItemKey("main", "POST#p1", "METADATA")
POST = ItemKey("main", "USER#ada", "POST#2026-03-02T09:00:00Z#p1")
LIKE = ItemKey("main", "USER#ben", "LIKE#POST#p1")
COMMENT = ItemKey("main", "POST#p1", "COMMENT#2026-03-02T10:45:00Z#c2")


@pytest.fixture(scope="module")
def social() -> Program:
    return compiled(RULES[0])


@pytest.fixture
def tables(social: Program) -> MemoryTables:
    """The sample events, replayed."""
    made = MemoryTables(schemas(social), EVENTS)
    replay(social, EVENTS, made)
    return made


def rules_of(told: ItemExplanation) -> dict[str, Any]:
    return {public_name(one.rule.name): one for one in told.derived}


def shown(told: ItemExplanation) -> dict[str, tuple[Any, Any]]:
    return {
        attribute.name: (attribute.shown, attribute.expected) for one in told.derived for attribute in one.attributes
    }


def test_values_of_a_correct_item_agree_with_their_sources(social: Program, tables: MemoryTables) -> None:
    told = item_explanation(social, tables.store, META)
    assert told.agrees
    assert list(rules_of(told)) == ["postById", "engagement", "discussion", "newest", "listed", "leaderboard"]
    copy, likes = rules_of(told)["postById"], rules_of(told)["engagement"]
    assert copy.sources == (("main|USER#ada|POST#2026-03-02T09:00:00Z#p1", "its source"),)
    assert copy.at.endswith("1000000000000000009651")
    assert (likes.contributions, likes.at, likes.known) == (2, likes.known, likes.at)
    assert "projections verify" in likes.more
    assert shown(told)["likeCount"] == (2, 2)
    assert rules_of(told)["leaderboard"].more == "computed from likeCount, postId, status of the item itself"


def test_a_value_that_something_else_wrote_is_shown_beside_the_right_one(social: Program, tables: MemoryTables) -> None:
    tables.store.write(Update(META, set={"likeCount": {"N": "7"}, "title": {"S": "Mine"}, "GSI2SK": {"S": "SCORE#9"}}))
    told = item_explanation(social, tables.store, META)
    assert not told.agrees
    assert shown(told)["likeCount"] == (7, 2)
    assert shown(told)["title"] == ("Mine", "Notes on the Analytical Engine")
    assert shown(told)["GSI2SK"] == ("SCORE#9", "SCORE#00000007#p1")
    assert rules_of(told)["discussion"].agrees


def test_guard_shows_a_pending_publish_or_a_newer_version(social: Program, tables: MemoryTables) -> None:
    def guarded(at: str) -> Any:
        return Update(META, set={"~engagement": {"S": f"12345678{digits_of(at, 9)}12345678"}, "likeCount": {"N": "9"}})

    promotion = rules_of(item_explanation(social, tables.store, META))["engagement"].at.partition(".")[0]
    tables.store.write(guarded(f"{promotion}.000000000000001"))
    assert (
        "a publish is pending, or failed"
        in rules_of(item_explanation(social, tables.store, META))["engagement"].notes[0]
    )
    tables.store.write(guarded("0000000001.000000000000099"))
    assert "earlier version" in rules_of(item_explanation(social, tables.store, META))["engagement"].notes[0]
    tables.store.write(guarded(f"{promotion}.000000000000099"))
    assert "newer than the ledger" in rules_of(item_explanation(social, tables.store, META))["engagement"].notes[0]
    tables.store.write(Update(META, remove=("~engagement",)))
    assert "no guard of this rule" in rules_of(item_explanation(social, tables.store, META))["engagement"].notes[0]


def test_copy_whose_source_was_deleted_or_has_no_copy(social: Program, tables: MemoryTables) -> None:
    tables.store.write(Delete(POST))
    told = item_explanation(social, tables.store, META)
    assert "its source was deleted" in rules_of(told)["postById"].problem
    snapshot = Registry(social, tables.store).read()
    assert snapshot is not None
    guard = Guards(social, snapshot.identity, snapshot.promotions).stamp(
        "postById", META, "x", by="main|USER#ben|PROFILE"
    )
    tables.store.write(Update(META, set={"~postById": guard}))
    assert "of another kind" in rules_of(item_explanation(social, tables.store, META))["postById"].problem
    tables.store.write(Update(META, remove=("~postById",)))
    copy = rules_of(item_explanation(social, tables.store, META))["postById"]
    assert "so its source is unknown" in copy.notes[0]
    assert copy.compared == ()


def test_missing_target_shows_waiting_contributions(social: Program, tables: MemoryTables) -> None:
    told = item_explanation(social, tables.store, ItemKey("main", "POST#p2", "METADATA"))
    assert told.image is None
    assert rules_of(told)["engagement"].contributions == 1
    assert "published when the item is created" in rules_of(told)["engagement"].notes[0]
    assert told.agrees


def test_source_has_its_entry_and_expected_contributions(social: Program, tables: MemoryTables) -> None:
    told = item_explanation(social, tables.store, LIKE)
    assert told.source is not None
    assert told.source.entry is not None
    assert told.source.entry.version.endswith("1000000000000000001677")
    (given,) = told.source.contributions
    assert (given.rule, given.target, given.recorded, given.agrees) == (
        "engagement",
        "main|POST#p1|METADATA",
        {"contributions": 1},
        True,
    )
    assert isinstance(tables.store, MemoryStore)
    tables.store.seed("main", {"PK": {"S": "USER#new"}, "SK": {"S": "LIKE#POST#p1"}})
    told = item_explanation(social, tables.store, ItemKey("main", "USER#new", "LIKE#POST#p1"))
    assert told.source is not None
    assert told.source.entry is None
    assert [(c.recorded, c.should) for c in told.source.contributions] == [(None, {"contributions": 1})]
    assert not told.agrees


def test_the_entry_of_an_item_that_is_gone(social: Program, tables: MemoryTables) -> None:
    told = item_explanation(social, tables.store, ItemKey("main", "USER#ada", "LIKE#POST#p1"))
    assert told.image is None
    assert told.source is not None
    assert told.source.expires is not None
    assert told.source.contributions == ()
    assert told.agrees


def test_source_has_its_copies_with_their_drift(social: Program, tables: MemoryTables) -> None:
    told = item_explanation(social, tables.store, POST)
    assert told.source is not None
    copied = next(one for one in told.source.contributions if one.copy)
    assert (copied.rule, copied.target, copied.agrees) == ("postById", "main|POST#p1|METADATA", True)
    tables.store.write(Delete(META))
    told = item_explanation(social, tables.store, POST)
    assert told.source is not None
    assert next(one for one in told.source.contributions if one.copy).recorded is None
    assert not told.agrees


def test_bad_input_and_pending_and_rejected_publishes_are_listed(social: Program, tables: MemoryTables) -> None:
    tables.store.write(Update(COMMENT, set={"stars": {"S": "five"}}))
    entry = ItemKey("ledger", "E|main|POST#p1|COMMENT#2026-03-02T10:45:00Z#c2", ".")
    refused = {"M": {"discussion.1": {"S": "too large"}}}
    tables.store.write(
        Update(entry, set={"refused": refused}, add={"recent": {"SS": ["discussion.1|main|POST#p9|METADATA"]}})
    )
    told = item_explanation(social, tables.store, COMMENT)
    assert told.source is not None
    assert "write number(stars)" in dict(told.source.problems)["discussion"]
    assert told.source.entry is not None
    entry = item_document(told)["source"]["entry"]
    assert entry["pending"] == ["discussion|main|POST#p9|METADATA"]
    assert entry["refused"] == {"discussion": "too large"}
    assert not told.agrees


def test_child_is_compared_with_its_parent(social: Program, tables: MemoryTables) -> None:
    embed = rules_of(item_explanation(social, tables.store, COMMENT))["commentAuthor"]
    assert embed.agrees
    assert embed.sources == (("main|USER#cleo|PROFILE", "its parent"),)
    parent = ItemKey("main", "USER#cleo", "PROFILE")
    tables.store.write(Update(parent, set={"name": {"S": "C."}}))
    tables.store.write(
        Update(ItemKey("ledger", "F|commentAuthor|main|USER#cleo|PROFILE", "."), set={"version": {"S": "z"}})
    )
    embed = rules_of(item_explanation(social, tables.store, COMMENT))["commentAuthor"]
    assert "a push is pending, or failed" in embed.notes[0]
    assert [(a.name, a.shown, a.expected) for a in embed.attributes if not a.agrees] == [
        ("userName", "Cleo Marsh", "C.")
    ]
    tables.store.write(Delete(parent))
    embed = rules_of(item_explanation(social, tables.store, COMMENT))["commentAuthor"]
    assert "kept (on_delete: keep)" in embed.notes[1]
    tables.store.write(Update(COMMENT, remove=("userId",)))
    embed = rules_of(item_explanation(social, tables.store, COMMENT))["commentAuthor"]
    assert embed.notes == ("it references no User",)
    told = item_explanation(social, tables.store, ItemKey("main", "USER#ada", "PROFILE"))
    assert told.source is not None
    assert [rule for rule, _ in told.source.fences] == ["commentAuthor"]


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_everything_agrees_once_a_history_has_come_to_rest(path: Path) -> None:
    """Every item of every kind of rule; and explaining them reads a handful of requests and writes nothing."""
    derived = 0
    for seed in range(2):
        program, store = settled(path, seed)
        recorder = RecordingStore(store)
        for table in program.tables:
            for image in store.items(table):
                key = program.tables[table].key(table, image)
                told = item_explanation(program, recorder, key)
                bad = [one for one in told.derived if not one.agrees and not one.problem and one.state == "active"]
                assert not bad, (seed, key, bad)
                source = told.source
                assert source is None or all(one.agrees for one in source.contributions), (seed, key, source)
                requests = recorder.take_requests()
                assert not any(request.actions for request in requests)
                queries = sum(request.operation == "Query" for request in requests)
                lists = [rule for rule in (one.rule for one in told.derived) if isinstance(rule, ListEmbedRule)]
                # the registry and its rules; parents and links of each list
                assert len(requests) - queries <= 5 + 2 * len(lists[1:])
                derived += len(told.derived)
    assert derived


def test_members_name_their_sources() -> None:
    program, store = settled(next(path for path in ALL if path.stem == "extremes"), 1)
    named = [
        (one.rule.kind, what)
        for image in store.items("main")
        for one in item_explanation(program, store, program.tables["main"].key("main", image)).derived
        for _, what in one.sources
    ]
    assert named


def test_value_counters_name_no_source() -> None:
    rules = projections.loads(
        """
        table: { key: [PK, SK] }
        entities:
          Screening: { key: { PK: "SCREENING#{screening}", SK: STATE } }
          Ticket: { key: { PK: "SCREENING#{screening}", SK: "TICKET#{ticket}" } }
        projections:
          sold:
            from: Ticket
            aggregate: { into: Screening, set: { tariffs: counts(text(tariff)), lastSale: max(text(soldAt)) } }
        """
    )
    play = Scenario(rules).given({"PK": "SCREENING#s1", "SK": "STATE"})
    play.put({"PK": "SCREENING#s1", "SK": "TICKET#t1", "tariff": "full", "soldAt": "2026-04-01"})
    (sold,) = item_explanation(rules.program, play.store, ItemKey("main", "SCREENING#s1", "STATE")).derived
    assert sold.contributions == 1
    assert sold.sources == (("main|SCREENING#s1|TICKET#t1", "max of lastSale"),)


def test_claimed_copy_lists_the_other_claims() -> None:
    program = compiled(next(path for path in ALL if path.stem == "claims"))
    tables = MemoryTables(schemas(program), [])
    assert isinstance(tables.store, MemoryStore)
    for user in "abc":
        image = {"PK": f"USER#{user}", "SK": "USER", "userId": user, "email": "x@y.z", "name": user}
        tables.store.put("main", {name: {"S": text} for name, text in image.items()})
    processor = Processor(program, tables.store, tables={"main": "main"}, quarantine=lambda rejected: None)
    while records := tables.records():
        processor.process(records, remaining=lambda: 60.0)
    told = item_explanation(program, tables.store, ItemKey("main", "EMAIL#x@y.z", "USER"))
    (claim,) = told.derived
    assert claim.agrees
    assert claim.by == "main|USER#a|USER"
    assert [key for key, _ in claim.sources] == [f"main|USER#{user}|USER" for user in "abc"]


def test_rule_that_does_not_publish_is_not_compared_with_the_item(tables: MemoryTables) -> None:
    """Held, or filling: its values are told, and not held against the item."""
    text = RULES[0].read_text()
    held = Program.from_document(loads(text.replace("    from: Like\n", "    from: Like\n    hold: true\n")).document())
    Registry(held, tables.store).register(held)
    (likes,) = [one for one in item_explanation(held, tables.store, META).derived if one.rule.name == "engagement.1"]
    assert (likes.state, likes.agrees) == ("standby", True)
    assert "another writer wrote these values" in likes.notes[0]


def test_versions_of_a_rule_are_shown_side_by_side(tables: MemoryTables) -> None:
    """The rules are those of the registry, whatever the file has."""
    more = RULES[0].read_text().replace("likeCount: count", "likeCount: count, firstLike: min(text(likedAt))")
    changed = Program.from_document(loads(more).document())
    Registry(changed, tables.store).register(changed)
    told = item_explanation(changed, tables.store, META)
    likes = [one for one in told.derived if public_name(one.rule.name) == "engagement"]
    assert [(one.version, one.state, one.agrees) for one in likes] == [
        ("engagement.1", "active", True),
        ("engagement.2", "filling", True),
    ]
    assert likes[1].notes == ("engagement.2 is filling: it publishes nothing, so engagement.1 wrote these values",)
    told = item_explanation(changed, tables.store, LIKE)
    assert told.source is not None
    assert [(one.rule, one.excuse) for one in told.source.contributions] == [
        ("engagement", ""),
        ("engagement.2", "this version is filling: its fill records existing items"),
    ]
    assert told.agrees


# How an item is named.

SHOP = """
tables:
  shop: {key: {pk: S, sk: S}}
  old: {key: {pk: S, sk: N}}
  files: {key: [path]}
entities:
  Order: {table: shop, key: {pk: "o#{order}", sk: o}}
  File: {table: files, key: {path: "file:{file*}"}}
  Old: {table: old, key: {pk: "{a}", sk: "{b}"}}
projections:
  copied: {from: Order, copy: {into: File, attributes: [total]}, bind: {file: "{order}"}}
"""


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("PK=POST#p1,SK=METADATA", META),
        ("SK=METADATA,PK=POST#p1", META),
        ("main:PK=POST#p1, SK=METADATA", META),
        ("main|POST#p1|METADATA", META),
        ("PK=a,b,SK=c=d", ItemKey("main", "a,b", "c=d")),
        ("main|a%7Cb|c%25", ItemKey("main", "a|b", "c%")),
        ("PK=x:y,SK=z", ItemKey("main", "x:y", "z")),
    ],
)
def test_keys_are_read(social: Program, text: str, key: ItemKey) -> None:
    assert read_key(social, text) == key


@pytest.mark.parametrize(
    "text", ["", "POST#p1", "PK=a", "PK=a,SK=", "main|a", "main|a|b|c", "side|a|b", "XX=1,PK=a,SK=b"]
)
def test_invalid_key_is_an_error_with_the_expected_form(social: Program, text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_key(social, text)
    assert "PK=…,SK=…" in str(refused.value) or "is not a key of table main" in str(refused.value)


def test_keys_of_several_tables_require_the_table() -> None:
    document = loads(SHOP).document()
    program = Program.from_document(document)
    assert read_key(program, "path=file:a,b") == ItemKey("files", "file:a,b")
    assert read_key(program, "files|file:a").sort is None
    assert read_key(program, "old:pk=1,sk=02.0") == ItemKey("old", "1", "2")
    with pytest.raises(UsageError, match=r"fits several tables. Write one of shop:pk=1,sk=2, old:pk=1,sk=2"):
        read_key(program, "pk=1,sk=2")
    with pytest.raises(UsageError, match=r"shop:pk=…,sk=… .*or files:path=…"):
        read_key(program, "nothing")

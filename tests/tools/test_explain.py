"""Explanations of events: they say what the real processor does, and why it does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from histories import RULES, compiled, random_records

from projections.engine import registry
from projections.engine.guards import Guards, Identity, digits_of
from projections.engine.plan import plan
from projections.engine.processor import Processor
from projections.engine.records import decode
from projections.engine.registry import Registry
from projections.engine.store import Image, Update, Write
from projections.errors import StoreError
from projections.inspect.explain.events import BatchReport, Explanation, RequestReport, explain
from projections.inspect.explain.matching import verdict
from projections.inspect.explain.record_effects import effect_words, effects_of, record_report
from projections.inspect.rehearsal.rehearse import Decoded, _come_to_rest, _with_adopted_guards, rehearse, set_stage
from projections.language.keys import encode_key
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.rules import ItemRule
from projections.local.event_files import read
from projections.local.event_replay import MemoryTables, schemas
from projections.stores.memory import MemoryStore

ROOT = Path(__file__).parents[2]
SOCIAL = ROOT / "projections/rules/social.yaml"
EVENTS = sorted(
    next((ROOT / "events").rglob(path.name)) for path in (Path(__file__).parent / "expected").glob("*.json")
)
ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/main/stream/2026-03-02T08:00:00.000"


def told(program: Program, records: Sequence[Any], **settings: Any) -> Explanation:
    return explain(program, rehearse(program, records, **settings), ["here"] * len(records))


def record(number: int, old: dict[str, Any] | None, new: dict[str, Any] | None, *, ttl: bool = False) -> dict[str, Any]:
    """A record of an item whose images are written with plain texts, numbers and booleans."""
    from projections.language.values import wire

    images = [{name: wire(value) for name, value in image.items()} for image in (old, new) if image is not None]
    change: dict[str, Any] = {
        "Keys": {name: images[0][name] for name in ("PK", "SK")},
        "SequenceNumber": str(number),
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    if old is not None:
        change["OldImage"] = images[0]
    if new is not None:
        change["NewImage"] = images[-1]
    event = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
    made = {"eventName": event, "eventSource": "aws:dynamodb", "eventSourceARN": ARN, "dynamodb": change}
    if ttl:
        made["userIdentity"] = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
    return made


class Spy(MemoryStore):
    """Notes every write that reaches the store, and whether it was done."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.performed: list[tuple[str, bool, list[Any]]] = []
        self.watching = False

    def _watched(self, operation: str, writes: Sequence[Write], work: Callable[[], Any]) -> Any:
        done = True
        try:
            return work()
        except StoreError:
            done = False
            raise
        finally:
            if self.watching:
                self.performed.append((operation, done, [said(write) for write in writes]))

    def write(self, write: Write) -> Image | None:
        removed: Image | None = self._watched("single", [write], lambda: super(Spy, self).write(write))
        return removed

    def transact(self, writes: Sequence[Write]) -> None:
        self._watched("transaction", list(writes), lambda: super(Spy, self).transact(writes))


def said(write: Write) -> Any:
    """A write in a form that compares."""
    update = isinstance(write, Update)
    parts = [write.set, sorted(write.remove), write.add, write.discard] if isinstance(write, Update) else []
    return [update, encode_key(write.key), json.dumps(parts, sort_keys=True, default=dict), str(write.condition)]


def performed(program: Program, records: Sequence[Any], batch_size: int) -> list[Any]:
    """What a processor of its own writes for the recorded events, on tables staged in the same way."""
    with patch("projections.local.event_replay.MemoryStore", Spy):
        tables = MemoryTables(schemas(program), records)
    spy, names = tables.store, [*program.tables]
    assert isinstance(spy, Spy)
    snapshot, running = Registry(program, spy, now=lambda: 0.0).current()
    guards = Guards(running, snapshot.identity, snapshot.promotions)
    records = [_with_adopted_guards(program, guards, r, {name: name for name in names}) for r in records]
    known = [decode(r, {name: name for name in names}, program.tables) for r in records]
    set_stage(running, snapshot, tables, guards, known, plan(running, known, guards))
    _come_to_rest(program, tables, {record.key for record in known})
    processor = Processor(
        program,
        spy,
        tables={name: name for name in names},
        quarantine=lambda rejected: None,
        clock=lambda: 1_735_689_600.0,
        sleep=lambda seconds: None,
        chance=lambda: 0.5,
    )
    processor.process([], remaining=lambda: 60.0)  # it reads the rules
    spy.watching = True
    for start in range(0, len(records), batch_size):
        processor.process(records[start : start + batch_size], remaining=lambda: 60.0)
    return spy.performed


@pytest.mark.deep
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_explained_writes_are_those_of_the_processor(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Request by request, on random histories with every kind of meddling, from their beginning and from the middle."""
    monkeypatch.setattr(
        registry, "new_identity", lambda: Identity("test", (b"secret",))
    )  # or the guards of two runs would differ
    program = compiled(path)
    actions = 0
    for seed in range(12):
        records = random_records(program, seed, 30)
        for start in (0, len(records) // 2):
            some = records[start:]
            explanation = told(program, some, batch_size=15)
            assert list(explained(explanation)) == performed(program, some, 15)
            actions += sum(len(writes) for _, _, writes in explained(explanation))
    assert actions > 20


def explained(explanation: Explanation) -> Iterator[Any]:
    """Every write told of in the deliveries of the recorded events; statements of one batch are each on their own."""
    for batch in explanation.batches:
        for request in batch.requests if batch.batch.round == 0 else ():
            document = request.document
            writes = [(action.outcome, said(action.write)) for action in request.request.actions]
            assert [action["outcome"] for action in document["actions"]] == [outcome for outcome, _ in writes]
            if request.request.operation == "TransactWriteItems":
                yield "transaction", document["outcome"] == "done", [write for _, write in writes]
            else:
                for outcome, write in writes:
                    yield "single", outcome == "done", [write]


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_every_effect_of_a_record_is_one_of_its_plan_and_has_a_reason(path: Path) -> None:
    program = compiled(path)
    names = {name: name for name in program.tables}
    effects = 0
    for seed in range(3):
        for raw in random_records(program, seed, 30):
            report = record_report(program, Decoded.of(program, raw, names))
            reported = {(rule.rule, one.kind, one.target) for rule in report.rules for one in rule.effects}
            planned = effects_of(program, plan(program, [report.record], Guards(program, None)))
            assert reported == {(name, one.kind, one.target) for one in planned for name in one.rules}
            for rule in report.rules:
                assert all(effect_words(one) for one in rule.effects)
                assert all(rule.reasons), rule
                asked = {"refresh", "pull", "push", "release"}.intersection(one.kind for one in rule.effects)
                assert rule.reasons or (rule.effects and not asked), rule
            effects += len(reported)
    assert effects


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rule_without_effect_has_a_reason(path: Path) -> None:
    program = compiled(path)
    silent = 0
    for seed in range(8):
        for raw in random_records(program, seed, 20):
            one = decode(raw, {name: name for name in program.tables}, program.tables)
            item = program.recognise(one.key, one.new) if one.new is not None else None
            for rule in program.rules.values():
                if item is not None and item.entity is rule.source:
                    judged = verdict(program, rule, item)
                    assert judged.applies or judged.reasons, (rule.name, raw, judged)
                    if (
                        judged.applies and judged.reasons
                    ):  # some attributes are left out, or kept by `once` without `where`
                        assert isinstance(rule, ItemRule), (rule.name, raw, judged)
                        kept = getattr(rule, "once", False) and judged.reasons[0].startswith("where: ")
                        assert kept or None in rule.desired(item).values(), (rule.name, raw, judged)
                    silent += not judged.applies
                    contributed = program.contributions(item)
                    if rule.name in contributed.contributions:
                        assert judged.applies
                    if rule.name in dict(contributed.problems):
                        assert judged.bad
    assert silent


@pytest.fixture(scope="module")
def social() -> Program:
    return compiled(SOCIAL)


META = {"PK": "POST#p1", "SK": "METADATA", "EntityType": "PostMeta"}


def guarded(change: int, **attributes: Any) -> dict[str, Any]:
    return {**META, "likeCount": 41, "~engagement": recorded(change, 41), **attributes}


def recorded(change: int, n: int) -> str:
    """A guard of another ledger."""
    return f"recorded{digits_of(f'0000000001.{change}', n)}signed.."


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (None, META, "it was created"),
        (guarded(7), guarded(8, likeCount=42), "this is the rule's own write"),
        (guarded(7), guarded(7, **{"~engagement": 1}), "its guard ~engagement is invalid"),
        (guarded(7), META, "its guard ~engagement was removed"),
        (guarded(7), guarded(7, likeCount=9), "likeCount changed, but the guard ~engagement did not"),
        (guarded(7), guarded(6), "did not advance: an old state of the item was written back"),
        (guarded(7), guarded(8, title="T"), "changed together with other attributes"),
    ],
)
def test_record_of_a_target_has_the_reason_to_publish_again(
    social: Program, old: dict[str, Any] | None, new: dict[str, Any], words: str
) -> None:
    report = record_report(social, Decoded.of(social, record(100, old, new), {"main": "main"}))
    assert words in next(rule.reasons[0] for rule in report.rules if rule.rule == "engagement")


# What is said, by example.


def rules_of(explanation: Explanation, number: int = 0) -> dict[str, Any]:
    return {rule.rule: rule for rule in explanation.batches[0].records[number].rules}


def writing(batch: BatchReport) -> list[RequestReport]:
    return [request for request in batch.requests if request.actions]


def post(**attributes: Any) -> dict[str, Any]:
    key = {"PK": "USER#ada", "SK": "POST#2026-03-02#p1", "userId": "ada", "createdAt": "2026-03-02", "postId": "p1"}
    return {**key, "title": "T", "status": "draft", **attributes}


def like(user: str, target: str = "p1") -> dict[str, Any]:
    return {"PK": f"USER#{user}", "SK": f"LIKE#POST#{target}"}


def test_likes_of_one_post_share_a_transaction(social: Program) -> None:
    explanation = told(social, [record(100 + n, None, like(f"u{n}")) for n in range(3)])
    (batch, *_) = explanation.batches
    assert batch.summary == "3 records → 3 entry, 1 group, 1 publish"
    transaction = writing(batch)[0]
    group = transaction.actions[3]
    assert (group.role.kind, group.role.rules, group.on) == ("group", ("engagement",), "POST#p1 · METADATA")
    assert group.does == "contributions +3, version +1"
    assert group.records == (1, 2, 3)
    assert transaction.actions[1].records == (2,)
    (publish,) = batch.requests[-1].actions
    assert publish.does == "likeCount 0 → 3"
    assert publish.condition == (
        'the item exists, and EntityType is "PostMeta", '
        "and its guard ~engagement is absent, invalid or older than change 1 of its group"
    )
    assert [key.partition for key in explanation.rehearsal.assumed] == ["POST#p1"]
    assert batch.batch.spent.write_units == 3 * 2 + 2 + 1


def test_a_lane_is_the_condition_of_an_update_without_an_entry(social: Program) -> None:
    document = {**social.document, "projections": dict(social.document["projections"])}
    rule = document["projections"]["engagement"]
    document["projections"]["engagement"] = {**rule, "aggregate": {**rule["aggregate"], "ledger": "lanes"}}
    (batch, *_) = told(Program.from_document(document), [record(100, None, like("a"))]).batches
    (group,) = (action for request in batch.requests for action in request.actions if action.role.kind == "group")
    assert (group.does, group.condition) == (
        "contributions +1, version +1",
        "the group has counted no record of this shard from 100 on",
    )


def test_a_target_that_is_gone_is_the_reason_why_a_counter_does_not_move(social: Program) -> None:
    explanation = told(social, [record(100, META, None), record(101, None, like("a"))])
    publish = next(
        action
        for request in explanation.batches[0].requests
        for action in request.actions
        if action.role.kind == "publish"
    )
    assert (publish.outcome, publish.why) == ("condition", "the item does not exist")
    assert explanation.rehearsal.assumed == []


def test_a_guard_that_is_as_new_is_the_reason_why_a_publish_is_not_made(social: Program) -> None:
    """The record of the publish is in the same events as the like: it was delivered a second time."""
    before = {**META, "likeCount": 41, "~engagement": recorded(57, 41)}
    after = {**META, "likeCount": 42, "~engagement": recorded(58, 42)}
    explanation = told(social, [record(100, None, like("a")), record(101, before, after)])
    batch = explanation.batches[0]
    assert rules_of(explanation, 1)["engagement"].reasons == ("this is the rule's own write",)
    publish = next(a for request in batch.requests for a in request.actions if a.role.kind == "publish")
    assert publish.does == "likeCount 42 → 42" or publish.does == "likeCount = 42 (unchanged)"
    assert publish.why == (
        "not true: its guard ~engagement is absent, invalid or older than change 58 of its group "
        "(~engagement is at change 58 of its group)"
    )


def test_a_counter_that_something_else_changed_is_published_again_with_the_reason(social: Program) -> None:
    guard = {"~engagement": recorded(57, 41)}
    records = [record(100, {**META, "likeCount": 41, **guard}, {**META, "likeCount": 7, **guard})]
    explanation = told(social, records)
    rule = rules_of(explanation)["engagement"]
    assert rule.effect == "refresh"
    assert "likeCount changed, but the guard ~engagement did not" in rule.reasons[0]
    (publish,) = [a for r in explanation.batches[0].requests for a in r.actions if a.role.kind == "publish"]
    assert publish.does == "likeCount 7 → 41"


def test_each_rule_into_an_item_begins_with_what_its_own_guard_says() -> None:
    program = Program.from_document(
        loads("""
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{id}", SK: INFO}}
  Like: {key: {PK: "USER#{user}", SK: "LIKE#POST#{id}"}}
projections:
  a: {from: Like, aggregate: {into: Post, set: {kinds: counts(text(kind))}}}
  b: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
""").document()
    )
    guard = {"d": "recorded", "at": "0000000001.000000000000057", "n": 5}
    post = {"PK": "POST#p1", "SK": "INFO", "kinds": {"up": 5}, "likeCount": 5, "~a": guard, "~b": guard}
    records = [record(100, post, {**post, "title": "x"}), record(101, None, {**like("a"), "kind": "up"})]
    items = rehearse(program, records).tables.items("main")
    (shown,) = [item for item in items if item["PK"]["S"] == "POST#p1"]
    assert (shown["likeCount"], shown["kinds"]) == ({"N": "6"}, {"M": {"up": {"N": "6"}}})


def test_unknown_item_lists_the_most_similar_entities(social: Program) -> None:
    records = [record(100, None, like("a", "p#1")), record(101, None, {"PK": "POST#p1", "SK": "METADATA"})]
    first, second = told(social, records).batches[0].records
    assert first.entity is None
    assert first.nearest[0] == (
        "Like",
        ('SK "LIKE#POST#p#1" does not match LIKE#POST#{postId} (a variable cannot contain #, except {name*})',),
    )
    assert second.nearest[0] == ("PostMeta", ('match: EntityType is absent; wanted: EntityType is "PostMeta"',))


def test_missing_variable_and_unmet_case_are_explained() -> None:
    program = compiled(ROOT / "tests/simulation/rules/index.yaml")
    task = {"PK": "USER#u", "SK": "TASK#t"}
    rules = rules_of(told(program, [record(100, None, {**task, "state": "open"})]))
    assert rules["mine"].reasons == (
        "case 1: where: due is absent; wanted: due exists",
        "case 2: where: state is a string, 'open'; wanted: state exists and is not \"open\"",
    )
    assert "neither holds of" in rules["ranked"].reasons[0]
    rules = rules_of(told(program, [record(100, None, {**task, "pinned": True})]))
    assert rules["ranked"].reasons == ("the item has no rank",)


def test_rank_publishes_nothing_on_the_items_that_name_its_boards() -> None:
    program = compiled(ROOT / "projections/rules/learning.yaml")
    course = {"PK": "COURSE#sql", "SK": "INFO", "leadId": "ann"}
    rules = rules_of(told(program, [record(100, None, course)]))
    assert rules["newest"].effect == "refresh"
    assert "standing" not in rules


def test_a_change_of_what_a_rank_adds_up_is_shown_with_its_score() -> None:
    head = 'table: {key: [PK, SK]}\nentities: {Film: {key: {PK: "F#{f}", SK: I}}, Board: {key: {PK: B, SK: B}}}\n'
    rule = "projections: {ranks: {from: Film, rank: {into: Board, by: stars, digits: 3, sum: sold}}}"
    change = record(100, *({"PK": "F#1", "SK": "I", "stars": 5, "sold": sold} for sold in (7, 9)))
    (effect,) = rules_of(told(Program.from_document(loads(head + rule).document()), [change]))["ranks"].effects
    assert (effect.kind, effect.values) == ("contribution", {"score": 5, "sum": 9})


def test_held_rule_records_but_publishes_nothing() -> None:
    text = SOCIAL.read_text()
    for source in ("from: Like\n", "from: PostMeta\n    where"):
        text = text.replace(source, source.replace("\n", "\n    hold: true\n", 1))
    program = Program.from_document(loads(text).document())
    explanation = told(program, [record(100, None, like("a"))])
    assert rules_of(explanation)["engagement"].reasons == ("it publishes nothing, because it is held",)
    kinds = [action.role.kind for request in writing(explanation.batches[0]) for action in request.actions]
    assert kinds == ["entry", "group"]
    meta = {"PK": "POST#p1", "SK": "METADATA", "EntityType": "PostMeta", "status": "published", "likeCount": 1}
    rules = rules_of(told(program, [record(100, None, meta)]))
    assert rules["leaderboard"].reasons == ("it publishes nothing, because it is held",)


def test_kept_contribution_of_an_expired_item_is_explained() -> None:
    program = compiled(ROOT / "tests/simulation/rules/expiry.yaml")
    found = set()
    for seed in range(10):
        for batch in told(program, random_records(program, seed, 30)).batches:
            expired = [one for one in batch.records if one.record and one.record.expired]
            found |= {effect.kind for one in expired for rule in one.rules for effect in rule.effects}
    assert "retain" in found


def test_a_second_delivery_is_a_duplicate(social: Program) -> None:
    one = record(100, None, like("a"))
    first, second, *_ = told(social, [one, one], batch_size=1).batches
    assert writing(first)[0].request.outcome == "done"
    assert writing(second)[0].request.outcome == "condition"
    entry = writing(second)[0].actions[0]
    assert "version is before record 100" in entry.why
    assert second.batch.spent.in_vain > 0


def test_unreadable_record_is_explained(social: Program) -> None:
    bad = record(101, None, like("b"))
    bad["eventName"] = "UPSERT"
    explanation = told(social, [record(100, None, like("a")), bad])
    assert "UPSERT" in str(explanation.batches[0].records[1].flaw)


# The command.

Run = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("path", EVENTS, ids=lambda path: path.stem)
def test_the_sample_events_are_explained(run: Run, path: Path, social: Program) -> None:
    code, out, err = run("explain", str(path), "--rules", "social")
    assert (code, err) == (1 if path.stem == "bad-record" else 0, "")
    assert "Total: " in out
    assert ('quarantined: expression "stars": stars is a string' in out) == (path.stem == "bad-record")
    assert "\x1b" not in out
    for one in read([str(path)], social):
        assert one.place.split(": ")[0] in out


def test_many_writes_of_one_kind_are_cut_short_for_people_only(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "likes.json"
    path.write_text(json.dumps({"Records": [record(100 + n, None, like(f"u{n}")) for n in range(30)]}))
    _, out, _ = run("explain", str(path), "--rules", "social")
    assert "and 24 more of kind entry" in out
    _, out, _ = run("explain", str(path), "--rules", "social", "--json")
    assert max(len(request["actions"]) for request in json.loads(out)["batches"][0]["requests"]) == 31


def test_explain_needs_events_or_an_item(run: Run) -> None:
    code, _, err = run("explain", "--rules", "social")
    assert (code, "--item KEY" in err) == (2, True)
    code, _, err = run("explain", "SUMMARY", "--item", "VISIT#v1", "--rules", "social")
    assert (code, 'omit SUMMARY. Its whole key is one argument, such as --item "PK=POST#p1,SK=' in err) == (2, True)
    code, _, err = run("explain", str(EVENTS[0]), "--table", "t", "--rules", "social")
    assert (code, "--table requires --item" in err) == (2, True)

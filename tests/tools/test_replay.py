"""Replay: recorded events through the real handler, until nothing changes; the expected items are data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from stream_records import ARN, numbers, record

from projections.cli.main import main
from projections.engine.rejections import Rejected
from projections.engine.stages import Outcome
from projections.engine.store import ItemKey, Update
from projections.errors import ProjectionsError, UsageError
from projections.language.loader import load, loads
from projections.language.program import Program
from projections.local.event_files import read
from projections.local.event_replay import MemoryTables, Replay, replay, schemas, seeds

ROOT = Path(__file__).parents[2]
EXPECTED = Path(__file__).parent / "expected"
EVENTS = sorted(next((ROOT / "events").rglob(path.name)) for path in EXPECTED.glob("*.json"))

Run = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def program() -> Program:
    return Program.from_document(load(ROOT / "projections/rules/social.yaml").document())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: object) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["replay", "--rules", "social", *map(str, arguments)])
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().out

    return run


def replayed(run: Run, *arguments: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run("--json", *arguments)[1])
    return document


# What comes out


@pytest.mark.parametrize("event", EVENTS, ids=lambda path: path.stem)
def test_the_events_once_or_twice_end_in_the_expected_items(run: Run, event: Path) -> None:
    expected = json.loads((EXPECTED / event.name).read_text())
    actual = replayed(run, event)
    assert actual["items"] == replayed(run, event, event)["items"] == expected["items"]
    assert [one["rule"] for one in actual["quarantined"]] == expected["quarantined"]
    assert actual["failures"] == []


def test_all_events_together_end_in_the_same_whether_in_one_file_or_many(run: Run, tmp_path: Path) -> None:
    lines = tmp_path / "all.jsonl"
    lines.write_text("\n".join(json.dumps(json.loads(path.read_text())) for path in EVENTS))
    assert replayed(run, lines)["items"] == replayed(run, *EVENTS)["items"]


def test_the_story_of_the_social_events(run: Run) -> None:
    """Told by hand, not by a recorded result: what the events mean for posts, profiles and lists."""
    code, out = run("--json", ROOT / "events/social.json")
    items = {(item["PK"], item["SK"]): item for item in json.loads(out)["items"]}
    assert code == 0
    first = items["POST#p1", "METADATA"]
    assert first["title"] == "Notes on the Analytical Engine"
    assert (first["likeCount"], first["commentCount"], first["averageStars"], first["praiseCount"]) == (2, 2, 4.5, 2)
    assert (first["GSI1PK"], first["GSI1SK"]) == ("PUBLISHED#2026-03", "2026-03-02T10:00:00Z#p1")
    assert first["GSI2SK"] == "SCORE#00000002#p1"
    draft = items["POST#p3", "METADATA"]
    assert (draft["GSI1PK"], draft["likeCount"], "GSI2PK" in draft) == ("DRAFTS#ada", 0, False)
    assert ("POST#p2", "METADATA") not in items
    assert items["POST#p4", "COMMENT#2026-03-03T07:50:00Z#c4"]["userName"] == "Ada King"  # renamed since
    profiles = {user: items[f"USER#{user}", "PROFILE"] for user in ("ada", "ben", "cleo")}
    counts = {u: (p["postCount"], p["publishedCount"], p["wordsPublished"]) for u, p in profiles.items()}
    assert counts == {"ada": (2, 1, 1250), "ben": (0, 0, 0), "cleo": (1, 1, 640)}


def test_people_see_each_derived_attribute_with_the_rule_that_wrote_it(run: Run) -> None:
    code, out = run(ROOT / "events/social.json")
    assert code == 0
    assert "POST#p1 · METADATA  PostMeta, created by postById" in out
    assert any(line.split()[:4] == ["+", "likeCount", "2", "engagement"] for line in out.splitlines())
    assert "24 records (1 redelivered)" in out
    assert all(line == line.rstrip() for line in out.splitlines())


MISSPELT = """
table: {key: [PK, SK]}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{at}"}}
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{id}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
  active: {from: Like, where: {state: [active]}, aggregate: {into: User, set: {liked: count}}}
  received: {from: [Comment, Like], aggregate: {into: Post, set: {received: count}}}
  liked: {from: Like, aggregate: {into: User, set: {likes: count}}}
  off: {from: Like, hold: true, where: {x: [y]}, aggregate: {into: User, set: {ys: count}}}
"""


def exit_code(*arguments: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def test_records_have_their_rules_and_rules_that_no_item_fits_have_a_reason(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(MISSPELT)
    (tmp_path / "items.yaml").write_text(
        "[{PK: USER#a, SK: LIKE#1, PostId: p1, status: active}, {PK: USER#a, SK: LIKE#2, PostId: p2, status: active},"
        " {PK: USER#a, SK: PROFIL}, {PK: USER#a, SK: PROFILE}]"
    )
    arguments = ("--rules", tmp_path / "rules.yaml", tmp_path / "items.yaml")
    _, out = run(*arguments)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "1 item of no entity, which no rule reads:",
        'USER#a · PROFIL nearest is User: SK "PROFIL" does not match PROFILE',
        "likes 2 Like items: the key of Post needs postId, which the item lacks; it has PostId, not postId",
        'active 2 Like items: where: state is absent; wanted: state is "active"; it has status, not state',
        "received 2 Like items: the key of Post needs postId, which the item lacks; it has PostId, not postId; "
        "no item of Comment",
    ):
        assert line in lines, out
    assert not any(line.startswith(("liked ", "off ")) for line in lines)
    document = json.loads(run("--json", *arguments)[1])
    assert [one["rules"] for one in document["records"]] == [["liked"], ["liked"], [], ["active", "liked"]]
    assert [one["rule"] for one in document["unusedRules"]] == ["likes", "active", "received"]


def test_targets_that_do_not_exist_are_listed(run: Run) -> None:
    like = ROOT / "events/like.json"
    _, out = run(like)
    assert "! engagement: " not in out, "the target is recorded"
    _, out = run(ROOT / "events/social.json")
    assert (
        "! engagement: 1 item is counted for POST#p2 · METADATA, which does not exist. The rule writes to it when it exists."
        in out
    )


def test_rules_that_apply_without_a_target_are_named_if_nothing_is_derived(run: Run, tmp_path: Path) -> None:
    items = tmp_path / "items.json"
    items.write_text('[{"PK": "USER#ada", "SK": "LIKE#POST#p1"}]')
    _, out = run(items)
    assert "Nothing was derived: no item has values of the rules that apply (engagement).\n" in out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "likedBy 1 Like item: the item has no likedAt" in lines, "a rule of this list does not apply"


def test_attribute_with_nearly_the_name_of_match_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "items.json").write_text('[{"PK": "POST#p1", "SK": "METADATA", "entityType": "PostMeta"}]')
    _, out = run(tmp_path / "items.json")
    reason = 'match: EntityType is absent (the item has entityType); wanted: EntityType is "PostMeta"'
    assert f"nearest is PostMeta: {reason}" in " ".join(out.split())


def test_the_board_of_a_rank_needs_no_item(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(
        "table: { key: [PK, SK] }\n"
        'entities: { Film: { key: { PK: "FILM#{filmId}", SK: INFO } }, Board: { key: { PK: FESTIVAL, SK: BOARD } } }\n'
        "projections: { ranking: { from: Film, rank: { into: Board, by: stars, digits: 3, decimals: 2 } } }\n"
    )
    (tmp_path / "items.yaml").write_text("[{PK: FILM#f1, SK: INFO, stars: 4.5}]")
    arguments = ("--rules", tmp_path / "rules.yaml", tmp_path / "items.yaml")
    code, out = run(*arguments)
    assert code == 0
    assert "does not exist" not in out
    assert json.loads(run("--json", *arguments)[1])["missingTargets"] == []


def test_a_bad_record_is_quarantined_and_exits_with_1_while_the_rest_is_projected(run: Run) -> None:
    code, out = run("--json", ROOT / "events/quarantined/bad-record.json")
    document = json.loads(out)
    assert code == 1
    assert [one["rule"] for one in document["quarantined"]] == ["discussion"], "our own write of it tells nothing twice"
    counted = next(item for item in document["items"] if item["SK"] == "METADATA")
    assert counted["likeCount"] == 1
    assert "quarantined discussion" in run(ROOT / "events/quarantined/bad-record.json")[1]


# What it starts from


def test_items_are_seeded_in_their_newest_state_without_derived_values(program: Program) -> None:
    old = record(9, "USER#a") | {"eventName": "INSERT"}
    new = record(10, "USER#a")
    for entry, name in ((old, "old"), (new, "new")):
        entry["dynamodb"]["Keys"]["SK"] = {"S": "PROFILE"}
        entry["dynamodb"]["NewImage"] = {
            **entry["dynamodb"]["Keys"],
            "name": {"S": name},
            "postCount": {"N": "7"},
            "~authorship": {"M": {}},
        }
    copy = record(11, "POST#p")
    copy["dynamodb"]["Keys"]["SK"] = {"S": "METADATA"}
    copy["dynamodb"]["NewImage"] = {**copy["dynamodb"]["Keys"], "EntityType": {"S": "PostMeta"}}
    gone = record(12, "USER#b") | {"eventName": "REMOVE"}
    gone["dynamodb"]["Keys"]["SK"] = {"S": "PROFILE"}
    found = seeds(program, [new, old, copy, gone, record(13, "SOMETHING#else")], {"app": "main"})
    assert found == [("main", {"PK": {"S": "USER#a"}, "SK": {"S": "PROFILE"}, "name": {"S": "new"}})]


def test_a_recorded_value_of_a_rule_with_once_is_kept_and_other_derived_values_are_computed_again() -> None:
    program = Program.from_document(
        loads("""\
table: {key: [PK, SK]}
entities: {Enrolment: {key: {PK: "ITEM#{item}", SK: A}}}
projections:
  soldBy: {from: Enrolment, compute: {set: {soldBy: teacher}, once: true}}
  label: {from: Enrolment, compute: {set: {label: "{teacher}"}}}
""").document()
    )
    entries = [
        record(10, "ITEM#1", teacher={"S": "ann"}),
        record(11, "ITEM#1", teacher={"S": "ann"}, soldBy={"S": "ann"}, label={"S": "ann"}),
        record(12, "ITEM#1", teacher={"S": "ben"}, soldBy={"S": "ann"}, label={"S": "ann"}),
    ]
    after = replay(program, entries, MemoryTables(schemas(program), entries)).after
    (image,) = after.values()
    assert (image["soldBy"], image["label"]) == ({"S": "ann"}, {"S": "ben"})


@pytest.mark.parametrize(("options", "paid"), [([], 20), (["--batch-size", "3"], 20), (["--batch-size", "1"], 10)])
def test_small_batches_show_what_a_rule_with_once_read(run: Run, tmp_path: Path, options: list[str], paid: int) -> None:
    (tmp_path / "rules.yaml").write_text("""\
table: {key: [PK, SK]}
entities: {Course: {key: {PK: "C#{id}", SK: C}}, Seat: {key: {PK: "C#{id}", SK: "S#{student}"}}}
projections:
  price: {from: Course, embed: {into: Seat, match: {id: "{id}"}, attributes: [price]}}
  paid: {from: Seat, compute: {set: {paid: price}, once: true}}
""")
    course, seat, other = {"PK": "C#1", "SK": "C"}, {"PK": "C#1", "SK": "S#ann"}, {"PK": "C#1", "SK": "S#ben"}
    steps = [{"put": {**course, "price": 10}}, {"put": seat}, {"put": {**course, "price": 20}}, {"put": other}]
    (tmp_path / "events.json").write_text(json.dumps([*steps, {"update": {**seat, "level": 2}}, {"delete": other}]))
    document = replayed(run, "--rules", tmp_path / "rules.yaml", tmp_path / "events.json", *options)
    assert document["items"] == [{**course, "price": 20}, {**seat, "level": 2, "price": 20, "paid": paid}]


def test_a_newer_stream_beats_a_greater_sequence_number(program: Program) -> None:
    later = ARN.replace("2026-03", "2026-04")
    entries = [record(50, "USER#a"), record(1, "USER#a", arn=later)]
    for entry in entries:
        entry["dynamodb"]["Keys"]["SK"] = entry["dynamodb"]["NewImage"]["SK"] = {"S": "PROFILE"}
    entries[1]["dynamodb"]["NewImage"]["name"] = {"S": "newest"}
    ((_, image),) = seeds(program, entries, {"app": "main"})
    assert image["name"] == {"S": "newest"}


def test_the_tables_own_stream_comes_after_everything_recorded(program: Program) -> None:
    recorded = [record(10**24), record(5, arn=ARN.replace("2026-03-01T09:00:00.000", "2027-01-01T00:00:00.000"))]
    tables = MemoryTables(schemas(program), recorded)
    tables.store.write(Update(ItemKey("main", "POST#p", "METADATA"), set={"title": {"S": "t"}}))
    (own,) = tables.records()
    assert int(own["dynamodb"]["SequenceNumber"]) > 10**24
    assert own["eventSourceARN"].partition("/stream/")[2] == "2027-01-01T00:00:00.000"
    assert tables.records() == []


# How it goes, with an engine that does as it is told


class Told:
    """An engine that calls `does` with each batch, and has no opinion of its own."""

    def __init__(self, does: Callable[[Any, Sequence[Any]], Outcome | None]) -> None:
        self.does = does

    def __call__(self, program: Program, store: Any, *, quarantine: Any, **options: Any) -> Told:
        self.store, self.quarantine = store, quarantine
        return self

    def process(self, records: Sequence[Any], *, remaining: Callable[[], float], shard: str = "") -> Outcome:
        assert remaining() > 10
        return self.does(self, records) or Outcome(None, None, (), {})


def told(program: Program, records: Sequence[Any], does: Callable[[Any, Sequence[Any]], Any], **options: Any) -> Replay:
    return replay(program, records, MemoryTables(schemas(program), records), engine=Told(does), **options)


def test_records_are_delivered_as_recorded_with_duplicates_and_in_order(program: Program) -> None:
    seen: list[list[int]] = []
    records = [record(1), record(2), record(2), record(1), record(3)]
    before = json.dumps(records)
    result = told(program, records, lambda engine, batch: seen.append(numbers({"Records": list(batch)})), batch_size=2)
    assert [number for batch in seen for number in batch] == [1, 2, 2, 1, 3]
    assert json.dumps(records) == before
    assert (result.recorded, result.repeated, result.rounds) == (5, 2, 1)


def test_rules_that_never_settle_end_in_an_error_that_names_the_items(program: Program) -> None:
    def restless(engine: Any, batch: Sequence[Any]) -> None:
        engine.store.write(Update(ItemKey("main", "POST#p", "METADATA"), add={"n": {"N": "1"}}))

    with pytest.raises(ProjectionsError, match="after 5 rounds these still change: POST#p / METADATA"):
        told(program, [record(1)], restless, rounds=5)


def test_record_that_always_fails_is_reported_and_others_are_processed(program: Program) -> None:
    done = set()

    def does(engine: Any, batch: Sequence[Any]) -> Outcome | None:
        for number in numbers({"Records": list(batch)}):
            if number == 2:
                return Outcome("2", "throttled", (), {})
            done.add(number)
        return None

    result = told(program, [record(1), record(2), record(3)], does)
    assert done == {1, 3}
    assert [(f.record["dynamodb"]["SequenceNumber"], f.reason) for f in result.failures] == [("2", "throttled")]


def test_an_exception_of_the_engine_is_a_failure_with_its_text(program: Program) -> None:
    def does(engine: Any, batch: Sequence[Any]) -> None:
        raise RuntimeError("no such table")

    assert [f.reason for f in told(program, [record(1)], does).failures] == ["no such table"]


def test_repeated_rejection_is_reported_once(program: Program) -> None:
    def does(engine: Any, batch: Sequence[Any]) -> None:
        engine.quarantine([Rejected("r", "bad", "main|ITEM#1|A", "1", "main")])

    assert len(told(program, [record(1), record(1), record(1)], does).quarantined) == 1


def test_events_of_several_tables_need_their_logical_names() -> None:
    document = load(ROOT / "projections/rules/social.yaml").document()
    table = document["tables"]["main"]
    program = Program.from_document(document | {"tables": {"main": table, "other": table}})
    with pytest.raises(UsageError, match="from a table 'app', the rules have main, other"):
        told(program, [record(1)], lambda engine, batch: None)


def test_sample_events_are_what_lambda_delivers(program: Program) -> None:
    for path in EVENTS:
        event = json.loads(path.read_text())
        assert set(event) == {"Records"}
        assert [one.record for one in read([str(path)], program)] == event["Records"]
    lengths = {len(r["dynamodb"]["SequenceNumber"]) for p in EVENTS for r in json.loads(p.read_text())["Records"]}
    assert lengths == {21, 22}

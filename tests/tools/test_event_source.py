"""The event source mapping delivers, retries, splits and gives up as Lambda's does."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stream_records import ARN, numbers, record

from projections.deploy.comparison import passes
from projections.local.event_source import EventSourceMapping, Stream


def streamed(count: int, **options: Any) -> Stream:
    stream = Stream(ARN, **options)
    for number in range(1, count + 1):
        stream.append(record(number))
    return stream


class Function:
    """Remembers its events; answers with whatever `answers` holds for their turn, then with success."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.events: list[dict[str, Any]] = []

    @property
    def seen(self) -> list[list[int]]:
        return [numbers(event) for event in self.events]

    def __call__(self, event: dict[str, Any]) -> Any:
        self.events.append(event)
        answer = self.answers.pop(0) if self.answers else {"state": {}}
        if isinstance(answer, Exception):
            raise answer
        return answer


def whole(question: str, courses: int) -> int:
    """Retry a batch whole, where Lambda may also halve it."""
    return int("retry whole" in question)


def failing(*identifiers: Any) -> dict[str, Any]:
    return {"state": {}, "batchItemFailures": [{"itemIdentifier": identifier} for identifier in identifiers]}


def test_batches_are_cut_by_size_and_delivered_in_order() -> None:
    function = Function()
    EventSourceMapping(streamed(5), batch_size=2).run_until_idle(function)
    assert function.seen == [[1, 2], [3, 4], [5]]


def test_the_lowest_sequence_number_returned_is_the_checkpoint_and_all_from_it_on_is_retried() -> None:
    function = Function(failing("4", "2"))
    EventSourceMapping(streamed(5)).run_until_idle(function)
    assert function.seen == [[1, 2, 3, 4, 5], [2, 3, 4, 5]]


def test_sequence_numbers_are_compared_as_numbers_not_as_text() -> None:
    stream = Stream(ARN)
    for number in (99, 100, 101):
        stream.append(record(number))
    function = Function(failing("100", "99"))
    EventSourceMapping(stream, choose=whole).run_until_idle(function)
    assert function.seen[1] == [99, 100, 101]


@pytest.mark.parametrize("answer", [None, {}, {"batchItemFailures": None}, {"batchItemFailures": []}])
def test_an_empty_answer_is_success(answer: Any) -> None:
    function = Function(answer)
    EventSourceMapping(streamed(3)).run_until_idle(function)
    assert function.seen == [[1, 2, 3]]


@pytest.mark.parametrize(
    "answer",
    [
        failing(""),
        failing(None),
        failing("77"),
        failing("3", "no number"),
        {"batchItemFailures": [{"sequenceNumber": "2"}]},
        {"batchItemFailures": "2"},
        {"batchItemFailures": ["2"]},
        "2",
        RuntimeError("time-out"),
    ],
)
def test_a_malformed_identifier_and_an_exception_fail_the_whole_batch(answer: Any) -> None:
    function = Function(answer)
    EventSourceMapping(streamed(1)).run_until_idle(function)
    assert function.seen == [[1], [1]]


def test_n_retries_are_n_plus_1_deliveries_and_then_the_shard_moves_on() -> None:
    function = Function(*[failing("1")] * 3)
    discarded: list[Any] = []
    mapping = EventSourceMapping(
        streamed(3),
        batch_size=2,
        max_retries=2,
        choose=whole,
        on_failure=lambda records, error: discarded.append((len(records), error)),
    )
    mapping.run_until_idle(function)
    assert function.seen == [[1, 2], [1, 2], [1, 2], [3]]
    assert discarded == [(2, None)]


def test_bisect_isolates_a_poison_record_and_loses_nothing_else() -> None:
    seen: list[int] = []

    def function(event: dict[str, Any]) -> None:
        if 6 in numbers(event):
            raise RuntimeError("poison")
        seen.extend(numbers(event))

    discarded: list[list[int]] = []
    mapping = EventSourceMapping(
        streamed(9), max_retries=2, on_failure=lambda records, error: discarded.append(numbers({"Records": records}))
    )
    mapping.run_until_idle(function)
    assert seen == [1, 2, 3, 4, 5, 7, 8, 9]
    assert discarded == [[6]]


def test_children_wait_until_their_closed_parent_is_consumed() -> None:
    stream = streamed(2)
    (parent,) = stream.shards.values()
    children = stream.split(parent.id)
    for number in range(3, 9):
        stream.append(record(number))
    assert all(child.records for child in children)
    mapping = EventSourceMapping(stream, batch_size=1)
    assert mapping.runnable() == (parent.id,)
    mapping.finish(mapping.next_batch(parent.id))
    last = mapping.next_batch(parent.id)
    assert mapping.runnable() == ()
    mapping.finish(last, error=RuntimeError("again"))
    assert mapping.runnable() == (parent.id,)
    mapping.finish(mapping.next_batch(parent.id))
    assert set(mapping.runnable()) == {child.id for child in children}


def test_an_item_stays_on_one_shard_and_a_closed_shard_takes_no_more() -> None:
    stream = Stream(ARN, shards=4)
    assert len({stream.append(record(number, "same")).id for number in range(1, 20)}) == 1
    first = next(iter(stream.shards))
    (child,) = stream.split(first, into=1)
    assert child.parent == first
    with pytest.raises(ValueError, match="closed"):
        stream.split(first)


def test_rewinding_delivers_a_suffix_again_and_leaves_the_batch_in_flight_behind() -> None:
    stream = streamed(4)
    mapping = EventSourceMapping(stream, batch_size=3)
    (shard,) = mapping.runnable()
    overtaken = mapping.next_batch(shard)
    assert mapping.checkpoint(shard) == 0
    mapping.rewind(shard)
    function = Function()
    mapping.run_until_idle(function)
    mapping.rewind(shard, 3)
    mapping.run_until_idle(function)
    assert function.seen == [[1, 2, 3], [4], [3, 4]]
    assert mapping.checkpoint(shard) == 4
    with pytest.raises(ValueError, match="not in flight"):
        mapping.finish(overtaken)


def test_windows_name_the_shard_need_a_state_and_end_with_their_shard_before_its_children_begin() -> None:
    stream, function = streamed(3), Function({"batchItemFailures": []}, failing("2"))
    (shard,) = stream.shards
    mapping = EventSourceMapping(stream, batch_size=2, window=True)
    mapping.run_until_idle(function)
    assert function.seen == [[1, 2], [1, 2], [2], [3]]
    assert {event["shardId"] for event in function.events} == {shard}
    (child,) = stream.split(shard, into=1)
    stream.append(record(4))
    mapping.run_until_idle(function)
    ends = [(event["shardId"], event["isFinalInvokeForWindow"], numbers(event)) for event in function.events[3:]]
    assert ends == [(shard, False, [3]), (shard, True, []), (child.id, False, [4])]
    mapping.window = False  # as on an emulator without windows, or after a change of the mapping
    mapping.rewind(child.id)
    mapping.run_until_idle(function)
    assert function.events[-1] == {"Records": [record(4)]}


def test_failed_batch_of_a_window_is_retried_whole_or_its_beginning_first_and_a_window_may_end_early() -> None:
    courses = {"records left for a later retry": 2, "end the window with these records, or early": 2}
    for choose in (lambda question, n: 0, lambda question, n: courses.get(question, 0)):
        function = Function(RuntimeError("timeout"))
        EventSourceMapping(streamed(3), window=True, choose=choose).run_until_idle(function)
        assert function.seen[1:] in ([[1, 2, 3]], [[1], [2, 3]])
        assert {event["isWindowTerminatedEarly"] for event in function.events} == {len(function.seen) == 3}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_is_chosen_every_record_is_delivered_and_each_items_order_holds(data: st.DataObject) -> None:
    """Any choices, splits and failures: each item's newest delivered record never steps over an older one."""
    stream = Stream(ARN, shards=data.draw(st.integers(1, 2)))
    mapping = EventSourceMapping(
        stream,
        batch_size=data.draw(st.integers(1, 4)),
        window=data.draw(st.booleans()),
        choose=lambda question, n: data.draw(st.integers(0, n - 1)),
    )
    done: dict[str, list[int]] = defaultdict(list)
    number = 0
    for _ in range(data.draw(st.integers(1, 12))):
        step = data.draw(st.sampled_from(["append", "append", "split", "deliver", "deliver"]))
        if step == "append":
            for _ in range(3):
                number += 1
                stream.append(record(number, f"ITEM#{data.draw(st.integers(0, 3))}"))
        elif step == "split":
            open_shards = [shard.id for shard in stream.shards.values() if not shard.closed]
            stream.split(data.draw(st.sampled_from(open_shards)), into=data.draw(st.integers(1, 2)))
        elif shards := mapping.runnable():
            batch = mapping.next_batch(data.draw(st.sampled_from(shards)))
            failed = data.draw(st.integers(0, len(batch.records)))
            deliver(batch.records[:failed], done)
            if failed == len(batch.records):
                mapping.finish(batch, {"state": {}})
            else:
                mapping.finish(batch, failing(batch.records[failed]["dynamodb"]["SequenceNumber"]))

    def function(event: dict[str, Any]) -> dict[str, Any]:
        deliver(event["Records"], done)
        return {"state": {}}

    mapping.run_until_idle(function)
    assert sorted({n for ns in done.values() for n in ns}) == list(range(1, number + 1))


def deliver(records: Any, done: dict[str, list[int]]) -> None:
    """Take records as done; a record may come again, but none may come for the first time after a newer one."""
    for entry in records:
        item, number = entry["dynamodb"]["Keys"]["PK"]["S"], int(entry["dynamodb"]["SequenceNumber"])
        assert number in done[item] or number > max(done[item], default=0)
        done[item].append(number)


IMAGE = {
    "eventName": "MODIFY",
    "dynamodb": {
        "Keys": {"PK": {"S": "USER#1"}},
        "NewImage": {"status": {"S": "Published"}, "score": {"N": "150"}},
        "SizeBytes": 300,
    },
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"dynamodb": {"NewImage": {"status": {"S": ["published"]}}}}, False),
        # exists sees leaves only: an attribute is an object, its type is the leaf.
        ({"dynamodb": {"NewImage": {"status": [{"exists": True}]}}}, False),
        ({"dynamodb": {"NewImage": {"status": {"S": [{"exists": True}]}}}}, True),
        ({"dynamodb": {"NewImage": {"status": {"S": [{"exists": False}]}}}}, False),
        ({"dynamodb": {"NewImage": {"ghost": {"S": [{"exists": False}]}}}}, True),
        ({"dynamodb": {"OldImage": {"any": {"S": [{"exists": False}]}}}}, True),
        # N values are text in the event.
        ({"dynamodb": {"NewImage": {"score": {"N": ["150"]}}}}, True),
    ],
)
def test_filters_match_as_lambdas_do(pattern: dict[str, Any], expected: bool) -> None:
    assert passes(pattern, IMAGE) is expected

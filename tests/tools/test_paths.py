"""The paths of rules: what is said of their cost is what MiniStack's consumed capacity says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.inspect.write_paths import path_of
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.dynamodb import DynamoDBStore, Meter

RULES = """
table: {{key: [PK, SK], indexes: {{GSI1: [GSI1PK, GSI1SK]}}}}
entities:
  Event: {{key: {{PK: "EVENT#{{event}}", SK: E}}}}
  Copy: {{key: {{PK: "COPY#{{event}}", SK: C}}}}
  Mail: {{key: {{PK: "MAIL#{{mail}}", SK: M}}}}
  Total: {{key: {{PK: "TOTAL#{{mail}}", SK: T}}, derived: {derived}}}
  Child: {{key: {{PK: "EVENT#{{event}}", SK: "CHILD#{{child}}"}}}}
projections:
  r: {{from: Event, {rule}}}
"""

CASES: dict[str, tuple[str, int]] = {
    "guarded copy": ("copy: {into: Copy, attributes: [mail]}", 1),
    "claimed copy": ("copy: {into: Mail, attributes: [size]}", 7),
    "aggregate": ("aggregate: {into: Total, set: {n: count, size: sum(size)}}", 5),
    "aggregate in shards": ("aggregate: {into: Total, shards: 4, set: {n: count}}", 5),
    "aggregate by lanes": ("aggregate: {into: Total, ledger: lanes, set: {n: count, size: sum(size)}}", 2),
    "aggregate by lanes, held": ("hold: true, aggregate: {into: Total, ledger: lanes, set: {n: count}}", 1),
    "aggregate with an extreme": ("aggregate: {into: Total, set: {n: count, most: max(number(size))}}", 7),
    "aggregate with two extremes of one value": (
        "aggregate: {into: Total, set: {most: max(number(size)), least: min(number(size))}}",
        7,
    ),
    "aggregate with two extremes": (
        "aggregate: {into: Total, set: {most: max(number(size)), first: min(text(mail))}}",
        9,
    ),
    "aggregate with the last value": ("aggregate: {into: Total, set: {newest: 'last(mail, size)'}}", 7),
    "aggregate with value counters of one value": (
        "aggregate: {into: Total, set: {sizes: counts(number(size)), most: distinct(number(size))}}",
        7,
    ),
    "aggregate with value counters of two values": (
        "aggregate: {into: Total, set: {sizes: values(number(size)), mails: distinct(text(mail))}}",
        9,
    ),
    "rank": ("rank: {into: Total, by: size, digits: 8}", 10),
    "rank of few digits": ("rank: {into: Total, by: size, digits: 2}", 4),
    "compute": ("compute: {set: {double: size * 2, label: '{mail}: {size}'}}", 1),
    "compute, once": ("compute: {once: true, set: {first: size}}", 1),
    "top": ("top: {into: Total, as: list, by: size, limit: 3, attributes: [size]}", 7),
    "latest": ("latest: {into: Total, by: size, attributes: [size]}", 7),
    "index": ("index: {GSI1PK: '{mail}', GSI1SK: '{event}'}", 2),
    "guarded copy held": ("hold: true, copy: {into: Copy, attributes: [mail]}", 0),
    "claimed copy held": ("hold: true, copy: {into: Mail, attributes: [size]}", 6),
    "aggregate held": ("hold: true, aggregate: {into: Total, set: {n: count}}", 4),
    "index held": ("hold: true, index: {GSI1PK: '{mail}', GSI1SK: '{event}'}", 0),
}


def program(rule: str, entity: str = "") -> Program:
    text = RULES.format(rule=rule, derived="true" if "into: Total" in rule and "rank:" not in rule else "false")
    return Program.from_document(loads(text.replace("projections:", f"{entity}\nprojections:")).document())


@pytest.fixture
def tables(ministack_url: str) -> Iterator[Any]:
    """A DynamoDB client, with an empty application's table and a ledger."""
    dynamodb = client(endpoint_url=ministack_url)
    create_table(dynamodb, "paths-main", program(CASES["index"][0]).tables["main"], stream=True)
    create_table(dynamodb, "paths-ledger", LEDGER_SCHEMA, stream=False)
    yield dynamodb
    delete_table(dynamodb, "paths-main")
    delete_table(dynamodb, "paths-ledger")


@pytest.mark.parametrize("case", CASES)
def test_write_units_of_a_single_change_are_the_charged_ones(tables: Any, case: str) -> None:
    rule, units = CASES[case]
    rules = program(rule)
    path = path_of(rules.model, "r")
    assert path.alone == units
    assert case.startswith(path.name)
    keys = {"PK": {"S": "EVENT#1"}, "SK": {"S": "E"}}
    image = {**keys, "mail": {"S": "a@b.org"}, "size": {"N": "3"}}
    tables.put_item(TableName="paths-main", Item=image)
    meter = Meter()
    schemas = {**rules.tables, "ledger": LEDGER_SCHEMA}
    store = DynamoDBStore(tables, {"main": "paths-main", "ledger": "paths-ledger"}, schemas, meter)
    Registry(rules, store).read_or_create()  # the first invocation ever makes it
    record: dict[str, Any] = {
        "eventID": "1",
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:000000000000:table/paths-main/stream/2026-01-01T00:00:00.000",
        "dynamodb": {"Keys": keys, "NewImage": image, "SequenceNumber": "1" * 21},
    }
    processor = Processor(rules, store, tables={"paths-main": "main"})
    if rules.lanes:  # the first batch notes the stream, and a new target is read
        earlier = {**image, "PK": {"S": "EVENT#0"}}
        first = {"Keys": {**keys, "PK": {"S": "EVENT#0"}}, "NewImage": earlier, "SequenceNumber": "0" * 20 + "1"}
        processor.process([{**record, "dynamodb": first}], remaining=lambda: 900.0, shard="s")
    meter.write_units = 0.0
    outcome = processor.process([record], remaining=lambda: 900.0, shard="s")
    assert (outcome.failed, list(outcome.rejected)) == (None, [])
    shards = "shards" in rule  # the first transaction of all tells how many shards there are, in a write of its own
    assert meter.write_units == path.alone + shards


def test_what_lanes_would_save_is_said_of_rules_that_can_have_them() -> None:
    units = {case: path_of(program(rule).model, "r").units for case, (rule, _) in CASES.items()}
    assert units["aggregate"] == "5 write units alone, about 2 each in a large batch; `ledger: lanes` would need 2"
    assert units["aggregate held"].endswith("would need 1")
    assert units["aggregate by lanes"] == "2 write units, alone or for a whole batch"
    assert [case for case in units if "lanes" in units[case]] == ["aggregate", "aggregate in shards", "aggregate held"]


def test_path_of_an_embed_names_how_children_are_found() -> None:
    own = program("embed: {into: Child, match: {event: '{event}'}, attributes: [size]}")
    assert path_of(own.model, "r").how.endswith("children are found in their own item collection")
    indexed = program(
        "embed: {into: Other, match: {owner: '{event}'}, attributes: [size]}",
        '  Other: {key: {PK: "OTHER#{other}", SK: O}, index_key: {GSI1PK: "OWNER#{owner}"}}',
    )
    assert "through GSI1, which lags, so a second pass follows" in path_of(indexed.model, "r").how

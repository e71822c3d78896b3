"""The paths of rules: what is said of their cost is what the engine spends."""

from __future__ import annotations

import pytest
from metered import Metered
from workloads import item

from projections.inspect.write_paths import path_of
from projections.language.loader import loads
from projections.language.program import Program

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


@pytest.mark.parametrize("case", CASES)
def test_write_units_of_a_single_change_are_those_of_the_engine(case: str) -> None:
    """`test_rehearsal` compares the units of its requests with those that emulators report."""
    rule, units = CASES[case]
    rules = program(rule)
    path = path_of(rules.model, "r")
    assert path.alone == units
    assert case.startswith(path.name)
    event = item("EVENT#1", "E", mail="a@b.org", size=3)
    with Metered(rules) as metered:
        if rules.lanes:  # the first batch notes the stream, and a new target is read
            metered.play(metered.write(puts=[{**event, "PK": {"S": "EVENT#0"}}]))
        written, _, _ = metered.play(metered.write(puts=[event]))
    shards = "shards" in rule  # the first transaction of all tells how many shards there are, in a write of its own
    assert written == path.alone + shards


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

"""`projections queries --apply`: a proposal in the rule file, of which all other lines stay."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from projections.api import load
from projections.language.access.planner import plan
from projections.language.access.proposals import EXACT
from projections.language.editing import LayoutError, with_merged, without

Run = Callable[..., tuple[int, str, str]]

BLOCK = """\
# Shop
table:
  key: [PK, SK]     # both are text

entities:
  # Written by the application.
  User:  { key: { PK: "USER#{userId}", SK: PROFILE } }
  Order: { key: { PK: "USER#{userId}", SK: "ORDER#{orderId}" } }  # by user

queries:
  # By the shop's staff.
  byStatus:
    find: Order
    by: [status]   # open, paid
    order: placedAt desc
  orders: { find: Order, by: [userId] }
"""
FLOW = """\
{ table: { key: [PK, SK], indexes: { } }, # nothing yet
  entities: { Order: { key: { PK: "USER#{userId}", SK: "ORDER#{orderId}" } } },
  queries: { byStatus: { find: Order, by: [status], order: placedAt desc } } }
"""
JSON = json.dumps(
    {
        "table": {"key": ["PK", "SK"]},
        "entities": {"Order": {"key": {"PK": "USER#{userId}", "SK": "ORDER#{orderId}"}}},
        "queries": {"byStatus": {"find": "Order", "by": ["status"], "order": "placedAt desc"}},
    },
    indent=2,
)
MERGING = """\
table:
  key: [PK, SK]
  indexes:
    GSI1: [GSI1PK, GSI1SK]
    # The other one.
    GSI2:
      partition: GSI2PK
      projection: [orderId] # small
entities:
  Order:
    key: { PK: "USER#{userId}", SK: "ORDER#{orderId}" }
projections:
  paid:
    from: Order
    where: { status: paid }
    index: { GSI1PK: "PAID#{userId}", GSI1SK: "{orderId}" }

queries:
  byStatus: { find: Order, by: [status], order: placedAt desc }

writes:
  place: { put: Order }
"""
FILES = {"block.yaml": BLOCK, "flow.yaml": FLOW, "rules.json": JSON, "merging.yaml": MERGING}


def kept(old: str, new: str) -> bool:
    """Return whether a text has all characters of another, in their order."""
    rest = iter(new)
    return all(letter in rest for letter in old)


def verdict(path: Path, name: str = "byStatus") -> str:
    rules = load(path)
    return plan(rules.program.typed, rules.queries[name]).verdict


@pytest.mark.parametrize("ends", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", FILES)
def test_addition_is_written_and_all_other_characters_stay(run: Run, tmp_path: Path, name: str, ends: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name].replace("\n", ends).encode())
    assert verdict(path) not in EXACT
    code, out, _ = run("queries", str(path), "--apply", "byStatus", "--force")
    assert (code, out.splitlines()[-1]) == (0, f"Changed {path}.")
    text = path.read_bytes().decode()
    assert verdict(path) in EXACT
    assert text.count("\n") == text.count(ends)
    assert kept(FILES[name], text)
    if name.endswith(".json"):
        json.loads(text)
    if name == "block.yaml":
        assert [line for line in FILES[name].splitlines() if line not in text.splitlines()] == []
    code, out, _ = run("queries", str(path), "--apply", "byStatus")
    assert (code, out) == (0, "byStatus is answered already. Nothing was written.\n")


def test_without_a_terminal_the_difference_is_shown_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(BLOCK)
    code, out, err = run("queries", str(path), "--apply", "byStatus")
    assert code == 2
    assert f"+++ {path} (new)" in out
    assert [line for line in out.splitlines() if line.startswith("-") and not line.startswith("---")] == []
    assert "nothing was written. To write it, pass --force" in err
    assert path.read_text() == BLOCK


def test_parts_are_added_to_the_included_files_that_have_them(run: Run, tmp_path: Path) -> None:
    head, _, queries = BLOCK.partition("queries:")
    table, _, entities = head.partition("entities:")
    (tmp_path / "parts").mkdir()
    parts = {"table.yaml": table, "entities.yaml": f"entities:{entities}projections: {{}}\n"}
    for name, text in parts.items():
        (tmp_path / "parts" / name).write_text(text)
    path = tmp_path / "rules.yaml"
    root = f"include: [parts/*.yaml]\nqueries:{queries}"
    path.write_text(root)
    code, out, err = run("queries", str(path), "--apply", "byStatus", "--force")
    assert (code, err) == (0, "")
    assert verdict(path) in EXACT
    assert path.read_text() == root
    for name, text in parts.items():
        assert kept(text, (tmp_path / "parts" / name).read_text())
        assert f"Changed {tmp_path / 'parts' / name}." in out


def test_query_is_changed_where_the_proposal_changes_it(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(
        BLOCK.replace("key: [PK, SK]     #", "indexes: { GSI1: [GSI1PK] }\n  key: [PK, SK]     #").replace(
            "  orders: { find: Order, by: [userId] }", "  orders: { find: Order, using: GSI1, by: [userId] } # all"
        )
    )
    assert run("queries", str(path), "--apply", "orders", "--force")[0] == 0
    assert "  orders: { find: Order, by: [userId] } # all\n" in path.read_text()


SHARED = """\
tables:
  one: &table { key: [PK, SK], indexes: { GSI1: [GSI1PK] } }
  two: *table
entities:
  Order: { table: one, key: { PK: "USER#{userId}", SK: "ORDER#{orderId}" } }
  Note: { table: two, key: { PK: "USER#{userId}", SK: "NOTE#{noteId}" } }
queries:
  byStatus: { find: Order, by: [status], order: placedAt desc }
"""


def test_change_of_a_shared_part_is_refused_and_the_yaml_printed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(SHARED)
    code, out, err = run("queries", str(path), "--apply", "byStatus", "--force")
    assert (code, path.read_text()) == (2, SHARED)
    assert out.startswith("tables:\n  one:")
    assert "nothing was written: the changed file would not mean what is proposed. Add the YAML above" in err


def test_file_of_the_package_is_not_changed(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules.yaml").write_text(BLOCK)
    monkeypatch.setattr("projections.language.files.SHIPPED", tmp_path)
    code, _, err = run("queries", str(tmp_path / "rules.yaml"), "--apply", "byStatus", "--force")
    assert (code, (tmp_path / "rules.yaml").read_text()) == (2, BLOCK)
    assert "is part of this package. Copy it" in err


def test_open_queries_are_named_with_the_command(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(BLOCK + "  byMonth: { find: Order, by: [month], order: placedAt }\n")
    _, out, _ = run("queries", str(path))
    assert "Add one, then run the command again" in out
    assert "--apply byStatus" in out


@pytest.mark.parametrize(
    ("text", "path", "value", "found"),
    [
        ("a: 1\n", "b", 2, "a: 1\n\nb: 2\n"),
        ("a:\n  x: 1 # one\n# end\n", "a.w", 2, "a:\n  x: 1 # one\n  w: 2\n# end\n"),
        ("a: { x: 1 }\n", "a.w", 2, "a: { x: 1, w: 2 }\n"),
        ("a: {}\n", "a.w.z", 2, "a: { w: { z: 2 } }\n"),
        ("a:\n  x: |\n    text\n\nb: 1\n", "a.w", 2, "a:\n  x: |\n    text\n  w: 2\n\nb: 1\n"),
        ("a:\n  x: 1\n\n  y: 2\nb: 1", "a.z", 3, "a:\n  x: 1\n\n  y: 2\n\n  z: 3\nb: 1"),
        ("a:\n  x:\n  - 1\n  - 2\n  y: 1\n", "a.x", [3], "a:\n  x: [3]\n  y: 1\n"),
        ("a: [1] # one\n", "a", [1, 2], "a: [1, 2] # one\n"),
        ("a: 1", "b", 2, "a: 1\n\nb: 2\n"),
    ],
)
def test_change_of_a_text(text: str, path: str, value: object, found: str) -> None:
    assert with_merged(text, tuple(path.split(".")), value) == found


@pytest.mark.parametrize(
    ("text", "path"),
    [("a:\n  x: # why\n  - 1\n", "a.x"), ("a: 1\n", "a.b"), ("- 1\n", "a")],
)
def test_change_that_would_lose_something_is_refused(text: str, path: str) -> None:
    with pytest.raises(LayoutError):
        with_merged(text, tuple(path.split(".")), [2])


def test_entry_is_removed_with_its_line_or_comma() -> None:
    assert without("a: { x: 1, y: 2 }\n", ("a", "x")) == "a: { y: 2 }\n"
    assert without("a: { x: 1, y: 2 }\n", ("a", "y")) == "a: { x: 1 }\n"
    assert without("a:\n  x:\n  - 1\n  y: 2\n", ("a", "x")) == "a:\n  y: 2\n"
    with pytest.raises(LayoutError):
        without("a: { x: 1 }\n", ("a", "x"))

"""Whatever an event file holds, a command that reads it succeeds or says where it is wrong and why, in one message."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from projections.tools.cli import main

EVENTS = Path(__file__).parents[2] / "events"
DIGITS = "9" * 5_000

RAW = {
    "@digits@": DIGITS,
    "@negative@": "-" + DIGITS,
    "@exponent@": "1e999",
    "@large@": "1" + "0" * 300,
    "@nan@": "NaN",
    "@infinity@": "-Infinity",
    "@deep list@": "[" * 150 + "]" * 150,
    "@deeper list@": "[" * 5_000 + "]" * 5_000,
    "@deep map@": '{"M":' * 90 + "{}" + "}" * 90,
    "@deeper map@": '{"M":' * 400 + "{}" + "}" * 400,
    "@twice@": '{"S": "a", "S": "b"}',
    "@surrogate@": '"\\ud800"',
    "@control@": '"\\u001b[2J\\n\\u2713 No drift"',
}
"""JSON that Python does not write, by the text that stands for it in a document."""

VALUES: list[Any] = [
    *RAW,
    *(
        None,
        True,
        0,
        -1,
        1.5,
        "",
        [],
        {},
        "text",
        "0",
        DIGITS,
        "1E+999999999",
        "-1E-999999999",
        "NaN",
        "Infinity",
        "\u0661\u0662",
    ),
    *({"S": 1}, {"N": DIGITS}, {"N": "1E+999999999"}, {"N": "1_0"}, {"N": 1}, {"B": "%%"}, {"B": "a"}, {"SS": []}),
    *(
        {"SS": "a"},
        {"NS": ["1", "x"]},
        {"BS": ["%"]},
        {"M": []},
        {"L": {}},
        {"BOOL": "true"},
        {"NULL": False},
        {"X": "a"},
    ),
    *(
        {"S": "a", "N": "1"},
        {"S": "a|b%"},
        {"S": "\udfff"},
        {"N": "NaN"},
        {"N": ""},
        {"L": [{"S": None}]},
        "0001-01-01",
    ),
    *(
        1e300,
        -1e300,
        10**300,
        "1e400",
        "nan",
        "9999-12-31T23:59:59",
        ["a"],
        [[]],
        [None],
        [{}],
        {"": {}},
        "REMOVE",
        "INSERT",
    ),
]


def written(value: Any) -> str:
    text = json.dumps(value)
    for mark, raw in RAW.items():
        text = text.replace(json.dumps(mark), raw)
    return text


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in inner:
        yield from places(each, (*path, step))


def mutated(value: Any, rng: random.Random) -> Any:
    """The document with one part replaced, removed, repeated or renamed."""
    path = rng.choice(list(places(value)))
    if not path:
        return rng.choice(VALUES)
    value = json.loads(json.dumps(value))
    parent = value
    for step in path[:-1]:
        parent = parent[step]
    last = path[-1]
    match rng.randrange(5):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, dict):
            parent[rng.choice(["", "PK", "\udfff", "\x1b[2J", "a\n\u2713 No drift", "x" * 300])] = parent.pop(last)
        case 2 if isinstance(parent, list):
            parent.append(parent[last])
        case _:
            parent[last] = rng.choice(VALUES)
    return value


def damaged(text: bytes, rng: random.Random) -> bytes:
    """The file with its bytes changed."""
    at = rng.randrange(len(text) + 1)
    lines = b"".join(written(one).encode() + b"\n" for one in _records(text))
    match rng.randrange(12):
        case 0:
            return text[:at]
        case 1:
            return (
                text[:at] + rng.choice([b"\xff", b"\xed\xa0\x80", b"\x00", b"{", b"]", b'"', b",", b"\\u"]) + text[at:]
            )
        case 2:
            return b"\xef\xbb\xbf" + text
        case 3:
            return text.decode().encode("utf-16")
        case 4:
            return gzip.compress(text)[: rng.randrange(1, 60)]
        case 5:
            return b""
        case 6:
            return lines[: len(lines) // 2] + b"\nnot json\n" + lines
        case 7:
            return json.dumps({"DDBStreamBatchInfo": {}, "payload": text.decode()[:at]}).encode()
        case 8:
            return json.dumps({"DDBStreamBatchInfo": {}, "payload": text.decode()}).encode()
        case 9:
            return text.replace(b'"Records"', b'"Records": [], "Records"', 1)
    return text


def _records(text: bytes) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return found["Records"] if isinstance(found, dict) and isinstance(found.get("Records"), list) else []


def called(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code, out.getvalue(), err.getvalue()


def acceptable(arguments: tuple[str, ...], path: str) -> None:
    """The command succeeds, or ends in one line that begins with the file and the place in it."""
    code, out, err = called(*arguments)
    assert code in (0, 1, 2), err
    for character in out + err:
        assert character == "\n" or character.isprintable() or character in "\u00a0", repr(character)
    if code == 2:
        assert not out
        assert err.count("\n") == 1
        place = rf"projections: {re.escape(path)}(: payload)?(:\d+(:\d+)?)?(: (Records)?\[\d+\])?: .{{10,}}"
        assert re.match(place, err) or "the events are from a table" in err, err
    if "--json" in arguments and out:
        json.loads(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


@settings(max_examples=250, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    name=st.sampled_from(["like", "social", "tags", "bad-record", "timeseries"]),
    command=st.sampled_from(["replay", "explain", "cost", "replay --json", "explain --json", "cost --json"]),
)
@example(seed=0, name="like", command="replay")
def test_a_command_that_reads_events_succeeds_or_says_where_they_are_wrong(
    folder: Path, seed: int, name: str, command: str
) -> None:
    rng = random.Random(seed)
    document = json.loads((EVENTS / f"{name}.json").read_text())
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        document = mutated(document, rng)
    text = written(document).encode()
    if rng.random() < 0.3:
        text = damaged(text, rng)
    path = folder / f"{name}.json"
    path.write_bytes(text)
    rules = {"like": "social", "bad-record": "social"}.get(name, name)
    word, *options = command.split()
    acceptable((word, str(path), "--rules", rules, *options), str(path))

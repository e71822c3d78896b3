"""Whatever a rule file holds, a command that reads it succeeds or names its mistakes: never an internal error."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from json_parts import at, places

from projections.cli.main import main
from projections.language.source import read

ROOT = Path(__file__).parents[2]
FILES = [
    *sorted((ROOT / "projections/rules").glob("*.yaml")),
    *sorted((ROOT / "tests/simulation/rules").glob("*.yaml")),
    *sorted((ROOT / "tests/language/cases").glob("*.yaml")),
]
LIKE = ROOT / "events/like.json"

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", "RULES", "--json"),
    ("graph", "RULES", "--format", "html"),
    ("queries", "--rules", "RULES", "--json"),
    ("queries", "--rules", "RULES", "--markdown"),
    ("client", "RULES"),
    ("template", "RULES"),
    ("diff", "VALID", "RULES"),
    ("diff", "RULES", "VALID"),
    ("explain", "--rules", "RULES", str(LIKE)),
    ("replay", "--rules", "RULES", str(LIKE)),
    ("cost", "--rules", "RULES", "--rate", "10"),
    ("simulate", "--rules", "RULES", "--histories", "1"),
)
"""Commands that read rules and need no AWS. RULES is the file, VALID the one that it was made of."""

SLOW = ("cost", "simulate")
TEXTS = [
    *("", " ", "a b", "x", "PK", "SK", "~", "#", "1", "_", "-", "a.b", "a.b.c"),
    *("{x}", "{", "}", "{}", "{x|}", "{x|pad}"),
    *("{x|pad(8)}", "{x|date(%Y)}", "{x*}", "count", "sum(", "sum(x)", "min(a.b)", "count()", "x + 1", "1 / 0", "$x"),
    *("asc", "x desc", "%Y-%m", "9" * 300, "a" * 300, "é", "\u2028", "\x1b[2J", "true", "null", "1e999", "30s"),
]
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 1.5, 10**30, 1e300, [], {}, [None], [[]], {"": ""}, ["x", "x"], {"x": None}),
    *({"x": "x"}, [{"exists": True}], [{"numeric": [">", 1]}], [{"prefix": "x"}], {"PK": "x"}, ["PK", "SK"]),
    *TEXTS,
]


def changed_text(text: str, rng: random.Random) -> str:
    where = rng.randrange(len(text) + 1)
    match rng.randrange(4):
        case 0:
            return (
                text[:where]
                + rng.choice(["{", "}", "|", ".", "(", ")", " ", "#", "~", ",", "%", "é", "1"])
                + text[where:]
            )
        case 1:
            return text[:where] + text[where + 1 :]
        case 2:
            return text[:where]
    return text + text[:where]


def renamed(document: Any, rng: random.Random) -> Any:
    """Return the document with a word replaced in all places: often another valid file."""
    text = json.dumps(document)
    old = rng.choice(sorted(set(re.findall(r"[A-Za-z][A-Za-z0-9]+", text))))
    new = json.dumps(rng.choice([*TEXTS, *re.findall(r"[A-Za-z][A-Za-z0-9]+", text)]))[1:-1]
    try:
        return json.loads(re.sub(rf"\b{old}\b", lambda _: new, text))
    except ValueError:  # the word was part of an escape
        return document


def mutated(document: Any, rng: random.Random) -> Any:
    """Return the document with one part replaced, removed, renamed, copied from elsewhere, or with its text changed."""
    _, *every = places(document)
    if not every:
        return document
    if rng.random() < 0.4:
        return renamed(document, rng)
    document = json.loads(json.dumps(document))
    path = rng.choice(every)
    parent, last = at(document, path[:-1]), path[-1]
    match rng.randrange(8):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, dict):
            new = rng.choice([*TEXTS, *(one[-1] for one in every if isinstance(one[-1], str))])
            value = parent.pop(last)
            parent[new] = value
        case 2 if isinstance(parent, list):
            parent.insert(0, parent[last])
        case 3 | 4:
            parent[last] = json.loads(json.dumps(at(document, rng.choice(every))))
        case 5 | 6 if isinstance(parent[last], str):
            parent[last] = changed_text(parent[last], rng)
        case _:
            parent[last] = rng.choice(VALUES)
    return document


def called(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as ended:
        main(arguments)
    assert isinstance(ended.value.code, int)
    return ended.value.code, out.getvalue(), err.getvalue()


def documents() -> dict[str, Any]:
    """Return the data of valid rule files by name."""
    found: dict[str, Any] = {}
    for path in FILES:
        data = read(path.read_text()).data
        if isinstance(data, dict) and "projections" in data:
            found[f"{path.parent.name}-{path.stem}"] = data
    return found


def fuzz(folder: Path, seeds: range, slow: float = 0.1) -> Counter[str]:
    """Run commands on mutated rule files. Return how many files were accepted and refused, and commands run."""
    valid, ran = documents(), Counter[str]()
    rules, original = folder / "rules.yaml", folder / "valid.yaml"
    problems = []
    for seed in seeds:
        rng = random.Random(seed)
        data = valid[rng.choice(list(valid))]
        original.write_text(json.dumps(data))
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            data = mutated(data, rng)
        rules.write_text(json.dumps(data))
        names = {"RULES": str(rules), "VALID": str(original)}
        accepted = False
        for command in COMMANDS:
            if command[0] != "check" and not accepted and rng.random() > 0.03:  # they refuse it as `check` does
                continue
            if command[0] in SLOW and rng.random() > slow:
                continue
            code, out, err = called(*(names.get(word, word) for word in command))
            accepted = code in (0, 1) and '"mistake"' not in out if command[0] == "check" else accepted
            ran[command[0]] += 1
            if code not in (0, 1, 2) or (code == 2 and not err.strip()):
                problems.append(f"seed {seed}: {' '.join(command)}: {err.strip()[-300:]}")
        ran["accepted" if accepted else "refused"] += 1
    assert not problems, "\n".join(problems)
    return ran


def test_commands_answer_any_rule_file_without_an_internal_error(tmp_path: Path) -> None:
    ran = fuzz(tmp_path, range(14), slow=0.05)
    assert ran["accepted"] >= 2
    assert ran["refused"] >= 2


@pytest.mark.deep
def test_commands_answer_many_rule_files_without_an_internal_error(tmp_path: Path) -> None:
    start = int(os.environ.get("FUZZ_SEED", "1000"))
    fuzz(tmp_path, range(start, start + 300))

"""The loader: a file becomes rules, or every mistake in it at once, each with its place."""

from __future__ import annotations

import cProfile
import json
import pstats
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.errors import RulesError
from projections.language import including, loader, source
from projections.language.review import review_text

RULES = Path(__file__).parent / "rules"
GOOD = sorted(path for path in RULES.glob("*.yaml") if not path.name.startswith("broken"))
BROKEN = sorted(RULES.glob("broken-*.yaml"))

HEAD = "table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}\nentities:\n  A: {key: {PK: 'A#{a}', SK: A}}\n"


def problems(text: str) -> list[str]:
    """What the loader has against a text, without the file's name."""
    with pytest.raises(RulesError) as raised:
        loader.loads(text, "f")
    return [str(problem).removeprefix("f:") for problem in raised.value.problems]


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_files_load_and_their_document_is_plain_json(path: Path) -> None:
    document = loader.load(path).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_yaml_and_json_of_the_same_rules_have_the_same_document(path: Path) -> None:
    rules = loader.load(path)
    text = json.dumps(rules.document(), indent=1)
    assert loader.loads(text).document() == rules.document()
    assert loader.loads(text.replace(" ", "\t")) is not None


@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_invalid_files_report_exactly_the_messages_in_their_comments(path: Path) -> None:
    expected = [line[3:] for line in path.read_text().splitlines() if line.startswith("#! ")]
    with pytest.raises(RulesError) as raised:
        loader.load(path)
    found = [str(problem).removeprefix(f"{path}:") for problem in raised.value.problems]
    assert found == expected, f"the lines that begin with #! in {path.name} are the expected messages"


def test_a_comma_that_cuts_a_measure_is_explained_at_both_parts() -> None:
    with pytest.raises(RulesError) as raised:
        loader.loads(
            "table: {key: [PK]}\n"
            "entities: {A: {key: {PK: 'A#{a}'}}, B: {key: {PK: 'B#{a}'}}}\n"
            "projections: {mean: {from: A, aggregate: {into: B, set: {mean: avg(x, 1)}}}}\n"
        )
    first, second = (problem.message for problem in raised.value.problems)
    assert first.endswith(". Inside { }, quote a value with a comma")
    assert second.endswith("found nothing: inside { }, a comma ends a value that has no quotes")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: (top): expected a mapping with `table`, `entities` and `projections`, found nothing"),
        ("[1]", "1:1: (top): expected a mapping with `table`, `entities` and `projections`, found a list"),
        (
            "a: [",
            "1:5: (top): not YAML: while parsing a flow node, expected the node content, but found '<stream end>'",
        ),
        ("a: \x00", "1:4: (top): not YAML: "),
        ("a: &x [*x]", "1:4: (top): an alias refers to a value that contains it"),
        ("[" * 3000, "1:1: (top): nested too deeply"),
        ("entities: {A: {key: {PK: A#{a}, SK: A}}}", 'templates need quotes: "USER#{userId}"'),
        (HEAD + "projections:\n", "4:1: projections: is empty: give it a value, or remove it"),
        (HEAD + "table: {key: [PK]}\n", "4:1: table: is defined twice, first on line 1"),
        (HEAD + "? [a]\n: 1\n", "1:1: (top): a name must be plain text, not a list or a mapping"),
        (
            HEAD + "guard_prefix: p\n",
            '4:15: guard_prefix: expected text that begins with a sign such as ~ or _, found "p"',
        ),
        (
            HEAD + "projections: {r: {from: A, index: {GSI1PK: ''}}}",
            "4:44: projections.r.index.GSI1PK: the template is empty",
        ),
        (HEAD.replace("key:", "separator: '##', key:"), "table.separator: expected one character, no brace"),
        (HEAD + "guard_prefix: 1\n", "4:15: guard_prefix: expected text, found 1 (put quotes around it)"),
        (HEAD + "guard_prefix: 1.5\n", "4:15: guard_prefix: expected text, found 1.5 (put quotes around it)"),
        (
            HEAD + "projections: {r: {from: A, where: {v: 1.00000000000000000000000000000000000001}}}",
            "4:39: projections.r.where.v: 1.00000000000000000000000000000000000001 does not fit a DynamoDB number: at most "
            "38 significant digits, between 1E-130 and 9.99E+125; as text, it needs quotes",
        ),
        (HEAD + "guard_prefix: .inf\n", "4:15: guard_prefix: '.inf' is not a number; as text, it needs quotes"),
    ],
)
def test_texts_without_rules_are_rejected_with_our_messages(text: str, expected: str) -> None:
    assert any(expected in problem for problem in problems(text)), problems(text)


@pytest.mark.parametrize(
    ("first", "next_one"),
    [
        ("[x, x, x, x, x, x, x, x, x, x]", "[{all}]"),
        ("{k0: v}", "{{<<: [{all}], k{n}: 1}}"),  # each merges the same names again
        ("{k0: v}", "{{<<: [{all}]}}"),
    ],
)
def test_aliases_of_aliases_cannot_exhaust_memory_or_time(first: str, next_one: str) -> None:
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{n}: &a{n} " + next_one.format(all=", ".join([f"*a{n - 1}"] * 10), n=n) for n in range(1, 9)]
    (problem,) = problems("\n".join(lines))
    assert "too large" in problem


def test_more_values_than_the_limit_are_not_read_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tree of a text is built before its values are counted; four million would take minutes and gigabytes."""
    with monkeypatch.context() as patched:
        patched.setattr(source, "MOST_VALUES", 5_000)
        (problem,) = problems("a: [" + "x," * 1_000_000 + "]")
    assert "too large: more than 5,000 values" in problem
    (problem,) = problems("a: " + "x" * 5_000_000)
    assert "too large: more than 4 MiB" in problem
    (tmp_path / "rules.yaml").symlink_to("/dev/zero")
    with pytest.raises(RulesError, match="cannot be read: it has more than 4 MiB"):
        loader.load(tmp_path / "rules.yaml")


def many(count: int) -> str:
    """Rules with this number of parents and children, each with rules of four kinds and a query."""
    entities = "".join(
        f"  P{n}: {{key: {{PK: 'P{n}#{{p}}', SK: M}}}}\n  C{n}: {{key: {{PK: 'P{n}#{{p}}', SK: 'C#{{c}}'}}}}\n"
        for n in range(count)
    )
    rules = "".join(
        f"  n{n}: {{from: C{n}, aggregate: {{into: P{n}, set: {{n: count, s: sum(v)}}}}}}\n"
        f"  e{n}: {{from: P{n}, embed: {{into: C{n}, attributes: {{pn: title}}, match: {{p: '{{p}}'}}}}}}\n"
        f"  x{n}: {{from: C{n}, index: {{GSI1PK: 'X{n}#{{d}}', GSI1SK: '{{p}}'}}}}\n"
        f"  m{n}: {{from: P{n}, compute: {{set: {{t{n}: '{{title|lower}}'}}}}}}\n"
        for n in range(count)
    )
    queries = "".join(f"  q{n}: {{find: C{n}, by: [d]}}\n" for n in range(count))
    head = "table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}\n"
    return f"{head}entities:\n{entities}projections:\n{rules}queries:\n{queries}"


def test_a_check_takes_time_in_proportion_to_the_number_of_rules() -> None:
    """Calls of functions, which no other process changes. In quadratic time, twice the rules make four times the calls."""

    def calls(count: int) -> int:
        profile = cProfile.Profile()
        found = profile.runcall(review_text, many(count))
        assert found.findings == ()
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    assert calls(2) > 0, "imports are done"
    assert calls(40) < 2.5 * calls(20)


def test_a_section_has_a_limited_number_of_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(including, "_MOST_ENTRIES", 8)
    assert review_text(many(2)).findings == ()
    assert problems(many(3)) == [
        "18:3: projections: has 12 entries, and the limit is 8: divide the rules by table, and deploy each part as a stack"
    ]


@pytest.mark.deep
def test_many_misspelt_names_and_entities_with_one_key_are_reported_in_bounded_time() -> None:
    found = problems(many(40).replace("index: {GSI1PK", "indx: {GSI1PK").replace("aggregate:", "agregate:"))
    assert sum('did you mean "' in one for one in found) == 50
    assert sum(": unknown" in one for one in found) == 80
    same = "".join(f"  E{n}: {{key: {{PK: 'E#{{a}}', SK: M}}}}\n" for n in range(300))
    found = problems(f"table: {{key: [PK, SK]}}\nentities:\n{same}")
    assert len(found) == 299


def test_anchors_aliases_and_merges_are_read() -> None:
    rules = loader.loads(
        HEAD
        + "  B: &b {key: &k {PK: 'B#{b}', SK: B}, id: b}\n"
        + "  C: {<<: *b, key: {PK: 'C#{b}', SK: C}}\n"
        + "projections:\n  p: {from: B, bind: {a: '{b}'}, copy: {into: A, attributes: [x]}}\n"
    )
    assert rules.entities["C"].id == "b"
    assert rules.entities["C"].key["PK"].text == "C#{b}"


def test_yaml_1_2_has_no_booleans_but_true_and_false_and_no_dates() -> None:
    rules = loader.loads(
        HEAD
        + "  B: {key: {PK: 'B#{b}', SK: B}}\n"
        + "projections:\n  p: {from: A, bind: {b: '{a}'}, where: {x: [on, no, true], y: [2024-01-01]}, "
        + "copy: {into: B, attributes: [x]}}\n"
    )
    where = rules.projections["p"].where
    assert where is not None
    assert where.document == {"x": ["on", "no", True], "y": ["2024-01-01"]}


def test_json_escapes_beyond_the_basic_plane_are_one_character() -> None:
    text = json.dumps(loader.load(RULES / "design.yaml").document())
    rules = loader.loads(text.replace("PROFILE", "\\ud83d\\ude00"))
    assert rules.entities["User"].key["SK"].text == "😀"


@pytest.mark.parametrize(
    ("write", "expected"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xff\xfe\xfa", "cannot be read: it is not UTF-8"),
        (b"\xef\xbb\xbf[]", "expected a mapping"),
    ],
)
def test_files_that_cannot_be_read_are_problems_too(tmp_path: Path, write: bytes | None, expected: str) -> None:
    path = tmp_path / "rules.yaml"
    if write is not None:
        path.write_bytes(write)
    with pytest.raises(RulesError, match=expected):
        loader.load(path)
    with pytest.raises(RulesError, match="cannot be read"):
        loader.load(tmp_path)


def test_columns_point_into_values() -> None:
    text = HEAD + '  B: {key: {PK: "B#{b|pda(3)}", SK: B}}\n'
    assert problems(text)[0].startswith("4:23: entities.B.key.PK: unknown pipe")


_PIECES = [*"{}[]:\n'\"#|!%\t?", "  ", "- ", "&a", "*a", "null", "1e999"]


@given(
    st.sampled_from([path.read_text() for path in GOOD]),
    st.lists(
        st.tuples(
            st.floats(0, 1, exclude_max=True), st.integers(0, 12), st.sampled_from(_PIECES) | st.text(max_size=3)
        ),
        min_size=1,
        max_size=4,
    ),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_good_files_with_pieces_cut_out_or_put_in_load_or_raise_rules_error(
    text: str, edits: list[tuple[float, int, str]]
) -> None:
    for place, cut, piece in edits:
        at = int(place * len(text))
        text = text[:at] + piece + text[at + cut :]
    _survives(text)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["A", "all", "{a}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([path.name for path in GOOD]), st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_good_documents_with_a_part_replaced_load_or_raise_rules_error(name: str, data: st.DataObject) -> None:
    document = _DOCUMENTS[name]
    places = list(_places(document))
    place = data.draw(st.sampled_from(places))
    _survives(json.dumps(_replaced(document, place, data.draw(_JSON))))


_DOCUMENTS = {path.name: loader.load(path).model_dump(mode="json", by_alias=True, exclude_unset=True) for path in GOOD}


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, part in inner for place in _places(part, (*path, name)))]


def _replaced(value: object, path: tuple[str | int, ...], part: object) -> object:
    if not path:
        return part
    if isinstance(value, dict):
        return {**value, path[0]: _replaced(value[path[0]], path[1:], part)}
    assert isinstance(value, list)
    return [_replaced(old, path[1:], part) if index == path[0] else old for index, old in enumerate(value)]


def _survives(text: str) -> None:
    rules, problems = None, ()
    try:
        rules = loader.loads(text)
    except RulesError as error:
        problems = error.problems
    assert (rules is None) == bool(problems)
    assert all(problem.line >= 1 and problem.column >= 1 for problem in problems)
    assert not any("Input should" in problem.message for problem in problems)
    if rules is not None:
        json.dumps(rules.document(), allow_nan=False)

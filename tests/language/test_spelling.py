"""Rules that differ only in how they are written have one fingerprint; rules with other meanings have others."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.errors import BadInput
from projections.inspect.diff.difference import difference
from projections.language.arithmetic import Expression
from projections.language.loader import loads
from projections.language.patterns import Pattern
from projections.language.program import Program
from projections.language.spelling import expression_text, template_text
from projections.language.syntax import LanguageError, LanguageErrors, name_of
from projections.language.templates import Template
from projections.language.values import wire
from projections.testing.oracle.oracle_expressions import pattern as oracle_pattern
from projections.testing.oracle.scalar import exact

RULES = """\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "USER#%(key)s", SK: "POST#{post}"}, match: {kind: %(match)s}, index_key: {GSI1PK: "%(index_key)s"}}
  Child: {key: {PK: "USER#{user}", SK: "CHILD#{child}"}}
  Day: {key: {PK: "DAY#{day}", SK: D}, derived: true}
  Copy: {key: {PK: "COPY#{post}", SK: C}}
projections:
  days:
    from: Post
    where: %(where)s
    bind: {day: %(bind)s}
    aggregate: {into: Day, set: {some: {count: {where: %(where)s}}, total: "sum(%(sum)s)", most: "max(number(%(most)s))"}}
  copies: {from: Post, copy: {into: Copy, values: {text: %(bind)s, number: %(number)s, list: [{n: %(number)s}]}}}
  keys: {from: Child, index: [{where: %(where)s, GSI1PK: %(bind)s, GSI1SK: "{child}"}]}
  parents: {from: Post, embed: {into: Child, match: {user: "%(key)s", post: "%(post)s"}, attributes: {title: title}}}
"""
USUAL = {
    "key": "{user}",
    "match": "[a]",
    "index_key": "{user}",
    "where": "{a: [1]}",
    "bind": "'{at|date(%Y-%m)}'",
    "number": "1",
    "post": "{post}",
    "sum": "price",
    "most": "price",
}


def document(**parts: str) -> dict[str, Any]:
    return loads(RULES % {**USUAL, **parts}).document()


def fingerprints(document: dict[str, Any]) -> dict[str, str]:
    return {name: rule.fingerprint for name, rule in Program.from_document(document).rules.items()}


SAME = [  # other spaces, quotes, parentheses, orders and alternatives: see the generated texts below
    ("bind", "'{at|date(%Y-%m)}'", "\"{at|date('%Y-%m')}\""),
    ("bind", "'{at|date(%Y-%m)}'", "'{at|date(%Y-%m, UTC)}'"),
    ("bind", "'{at|date(%Y-%m)}'", "'{at|date(%Y-%m,Etc/UTC)}'"),
    ("bind", "'{at|date(%Y-%m, from=%Y%m%d)}'", "\"{at|date(%Y-%m, 'from = %Y%m%d', UTC)}\""),
    ("bind", "'{at|date(%Y-%m, Asia/Tokyo, from=seconds)}'", "'{at|date(%Y-%m,from=seconds,Asia/Tokyo)}'"),
    ("bind", "'{n|pad(8)}'", "'{n|pad(08)}'"),
    ("bind", "'{n-a}'", "\"{'n-a'}\""),
    ("bind", "'{round(n, 0)} {2 * a}'", "'{round( n )} {((2.0)*a)}'"),
    ("bind", "\"{coalesce(n, 'no')}\"", "'{coalesce(n,\"no\")}'"),
    ("key", "{user}", "{ user }"),
    ("index_key", "{user}", "{user }"),
    ("post", "{post}", "{ post}"),
    ("number", "5", "5.0"),
    ("number", "-2", "-2.0"),
    ("match", "5", "5.0"),
    ("sum", "2 * price", "2.0*price"),
    ("sum", "-2 * price", "- 2.0 * price"),
    ("sum", "coalesce(a, 0)", "coalesce(a,0.0)"),
    ("sum", "number(a) * b", "number( a )*b"),
    ("sum", "a", "'a'"),
    ("most", "price", " 'price' "),
    ("where", "{a: [{numeric: ['>', 5]}]}", "{a: {'>': 5}}"),
    ("where", "{a: [{numeric: ['>=', 5, '<', 7.5]}]}", "{a: {'<': 7.5, '>=': 5.0}}"),
    ("where", "{a: [5]}", "{a: {'=': 5}}"),
    ("where", "{a: {'<': b, '>=': '{c}'}}", "{a: [{'>=': '{c}', '<': b}]}"),
    ("where", "{a: {$or: [{b: 1}, {c: 1}]}}", "{$or: [{a.c: 1}, {$or: [{a: {b: 1}}, {a.c: 1}]}]}"),
    ("where", "{$or: [{a: 1}, {b: 1}], c: {$or: [{d: 1}, {e: 1}]}}", "{$or: [[{c.d: 1}, {c.e: 1}], [{b: 1}, {a: 1}]]}"),
    ("where", "{a: 9007199254740993.5}", "{a: [{$number: '9007199254740993.50'}]}"),
    ("number", "1.5", "{$number: '1.5'}"),
    ("match", "a", "[a]"),
]

DIFFERENT = [
    ("bind", "'{at|date(%Y-%m)}'", "\"{at|date(' %Y-%m')}\""),
    ("bind", "'{at|date(%Y-%m)}'", "'{at|date(%Y-%m, Europe/London)}'"),
    ("bind", "'{n}'", "'{n} '"),
    ("bind", "'{n}'", "'{{n}}'"),
    ("bind", "'{n|lower}'", "'{n|upper}'"),
    ("bind", "'{n|pad(8)}'", "'{n|pad(18)}'"),
    ("bind", "'{n-a}'", "'{n - a}'"),
    ("bind", "'{n*}'", "'{n * 1}'"),
    ("bind", "'{n * a}'", "'{a * n}'"),
    ("number", "1", "'1'"),
    ("number", "1", "true"),
    ("number", "1", "1.5"),
    ("where", "{a: 5}", "{a: '5'}"),
    ("sum", "a - (b - c)", "a - b - c"),
    ("sum", "a * (b + c)", "a * b + c"),
    ("sum", "a", "number(a)"),
    ("sum", "a * 'b-c'", "a * b - c"),
    ("sum", "round(a, 2)", "round(a, 1)"),
    ("where", "{a: 1}", "{a: true}"),
    ("where", "{a: {'>': 5}}", "{a: {'>=': 5}}"),
    ("where", "{a: {'>': 5}}", "{a: {'>': '5'}}"),
    ("where", "{a: {'!=': x}}", "{a: [{anything-but: [x]}]}"),
    ("where", "{a: {'=': '{b}'}}", "{a: {'=': '{{b}}'}}"),
    ("where", "{a: {'<': '{b}'}}", "{a: {'<': '{{b}}'}}"),
    ("where", "{a: {'<': '{b}'}}", "{a: {'>': '{b}'}}"),
    ("where", "{a: [{'>': 1, '<': '{b}'}]}", "{a: [{'>': 1}, {'<': '{b}'}]}"),
]


@pytest.mark.parametrize(("part", "one", "other"), SAME)
def test_the_same_rules_in_other_words_have_one_fingerprint(part: str, one: str, other: str) -> None:
    before, after = document(**{part: one}), document(**{part: other})
    assert before == after
    assert fingerprints(before) == fingerprints(after)
    assert not difference(before, after).findings


@pytest.mark.parametrize(("part", "one", "other"), DIFFERENT)
def test_rules_with_other_meanings_have_other_fingerprints(part: str, one: str, other: str) -> None:
    before, after = fingerprints(document(**{part: one})), fingerprints(document(**{part: other}))
    for name in {"number": ["copies"], "sum": ["days"]}.get(part, ["days", "keys"]):
        assert before[name] != after[name]
    assert difference(document(**{part: one}), document(**{part: other})).findings


def test_the_usual_texts_are_the_canonical_ones() -> None:
    """They are in fingerprints of rules that exist."""
    templates = ["USER#{user}", "{path*}", "{{x}}", "{line.sku|upper|truncate(2)}"]
    templates += ["{x|date(%Y-%m-%dT%H, Europe/Berlin)}", "{x|date(%Y-%m-%d, from=milliseconds)}#{y|pad(8)}"]
    assert [template_text(Template.parse(text)) for text in templates] == templates
    expressions = ["a * b", "-owed", "2 * line.price", "number(x)", "text(x)", "coalesce(a, 'x')"]
    expressions += ["(a + b) / 2", "a - b - c", "'a-b'"]
    assert [expression_text(Expression.parse(text, "value")) for text in expressions] == expressions
    for pattern in ({"a": "x"}, {"a": ["x", 5, None, True]}, {"a": [{"numeric": [">=", 1, "<", 5]}]}, {"a.b.c": 1.5}):
        assert Pattern.parse(pattern).canonical == pattern


def test_what_only_queries_read_changes_no_rule() -> None:
    texts = [RULES % USUAL, (RULES % USUAL).replace("match: {kind: [a]}", "match: {kind: [a]}, required: [at]")]
    for before, after in (texts, reversed(texts)):
        assert not difference(loads(before).document(), loads(after).document()).findings


# --- generated texts ---

_SPACES = st.sampled_from(["", "", " ", "  "])
_NAMES = st.sampled_from(["a", "b.c", "d-e", "f*"])
_QUOTES = st.sampled_from(["", "'", '"'])


@st.composite
def _pipes(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts of the same pipe."""
    name, *arguments = draw(
        st.sampled_from(
            [("lower",), ("pad", "8"), ("bucket", "16"), ("date", "%Y-%m"), ("date", "%d. %m (%Y), ", "Asia/Tokyo")]
        )
    )
    texts = []
    for _ in range(2):
        written = []
        for argument in arguments:
            quote = draw(_QUOTES) or ("'" if set(argument) & set(",()") else "")
            written.append(draw(_SPACES) + quote + argument + quote + draw(_SPACES))
        texts.append(name + (f"({','.join(written)})" if written else draw(st.sampled_from(["", "()", "( )"]))))
    return texts[0], texts[1]


@st.composite
def _two_templates(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts of the same template."""
    texts = ["", ""]
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            literal = draw(st.sampled_from(["#", "x y", " ", "{{", "}}", "'", "|"]))
            texts = [text + literal for text in texts]
            continue
        name, pipes = draw(_NAMES), draw(st.lists(_pipes(), max_size=2))
        for place in (0, 1):
            inner = "|".join(draw(_SPACES) + pipe[place] + draw(_SPACES) for pipe in pipes)
            texts[place] += "{" + draw(_SPACES) + name + draw(_SPACES) + ("|" + inner if inner else "") + "}"
    return texts[0], texts[1]


@given(_two_templates())
def test_spaces_and_quotes_do_not_change_the_canonical_text(texts: tuple[str, str]) -> None:
    one, other = texts
    canonical = template_text(Template.parse(one))
    assert canonical == template_text(Template.parse(other))
    assert template_text(Template.parse(canonical)) == canonical
    assert Template.parse(canonical).parts == Template.parse(one).parts


_PLAIN = st.sampled_from(["a", "b.c", "'d-e'", '"d-e"', "2", "2.0", ".5", "number(a)", "number( 'd-e' )"])


@st.composite
def _two_expressions(draw: st.DrawFn, depth: int = 3) -> tuple[str, str, int]:
    """Two texts of one expression, and how closely its operator binds."""
    kind = draw(st.sampled_from(["path", "binary", "binary", "negate", "call"])) if depth else "path"
    space = [draw(_SPACES) for _ in range(4)]
    if kind == "path":
        text = draw(_PLAIN)
        return text, space[0] + text + space[1], 4

    def operand(least: int) -> tuple[str, str]:
        one, other, binds = draw(_two_expressions(depth - 1))
        if binds < least:
            return f"({one})", f"({other})"
        return one, f"({other})" if draw(st.booleans()) else other

    if kind == "negate":
        one, other = operand(4)
        return f"-{one}", f"{space[0]}-{space[1]}{other}", 3
    if kind == "call":
        one, other = operand(0)
        function, rest = draw(st.sampled_from([("abs", ""), ("round", "2"), ("max", "a"), ("coalesce", "'x y'")]))
        more = (f", {rest}", f"{space[0]},{space[1]}{rest}{space[2]}") if rest else ("", "")
        if function == "coalesce" and one[0] in "'\"":
            one, other = f"({one})", f"({other})"  # without parentheses, it would be a text
        return f"{function}({one}{more[0]})", f"{function} ({other}{more[1]}){space[3]}", 4
    sign = draw(st.sampled_from("+-*/"))
    own = 1 if sign in "+-" else 2
    left, right = operand(own), operand(own + 1)
    before = " " if sign == "-" else space[0]  # a name may contain a dash
    return f"{left[0]} {sign} {right[0]}", f"{left[1]}{before}{sign}{space[1]}{right[1]}", own


@given(_two_expressions())
def test_expressions_in_braces_have_the_same_canonical_text(texts: tuple[str, str, int]) -> None:
    one, other, _ = texts
    try:
        canonical = template_text(Template.parse(f"{{{one}|lower}}"))
    except LanguageError:
        return
    assert (
        canonical == template_text(Template.parse(f"{{ {other} | lower}}")) == template_text(Template.parse(canonical))
    )
    assert Template.parse(canonical).names == Template.parse(f"{{{one}|lower}}").names


@given(_two_expressions())
def test_spaces_and_parentheses_do_not_change_the_canonical_expression(texts: tuple[str, str, int]) -> None:
    one, other, _ = texts
    try:
        Expression.parse(one, "value")
    except LanguageError:  # text in a calculation, or nothing that is read
        return
    canonical = expression_text(Expression.parse(one, "value"))
    assert expression_text(Expression.parse(other, "value")) == canonical
    assert expression_text(Expression.parse(canonical, "value")) == canonical
    again, before = Expression.parse(canonical, "value"), Expression.parse(one, "value")
    assert again.factors == before.factors
    for values in ((3, 4, 5), (Decimal("0.5"), -2, 7), (0, 1, None)):
        items = {
            name: wire(value) for name, value in zip(("a", "b.c", "d-e"), values, strict=True) if value is not None
        }
        assert result(again, items) == result(before, items)


def result(expression: Expression, items: dict[str, Any]) -> Any:
    try:
        return expression.compile_value()(items.get)
    except BadInput:
        return "bad input"


_VALUES = st.sampled_from(
    [
        *(None, {"N": "1"}, {"N": "2.5"}, {"N": "9007199254740993.5"}, {"S": "x"}, {"S": "{b}"}),
        *({"NULL": True}, {"SS": ["ab", "z"]}, {"L": [{"N": "2"}, {"S": "x"}]}, {"M": {}}),
    ]
)
_SPELLINGS: list[list[Any]] = [
    ["x", {"=": "x"}],
    ["{b}", {"=": "{{b}}"}],
    [1, 1.0, Decimal("1.0"), {"numeric": ["=", 1]}, {"$number": "1"}],
    [Decimal("9007199254740993.5"), {"=": {"$number": "9007199254740993.50"}}],
    [True],
    [None],
    [{"numeric": [">", 1, "<", 5]}, {">": 1, "<": 5}, {"numeric": ["<", 5.0, ">", 1]}],
    [{"<": "{b}"}, {"<": "{ b }"}],
    [{"!=": 2.5}],
    [{"prefix": "a"}],
    [{"suffix": {"equals-ignore-case": "B"}}],
    [{"anything-but": "x"}, {"anything-but": ["x"]}],
    [{"anything-but": ["x", 2]}, {"anything-but": [2.0, "x", 2]}],
    [{"anything-but": {"prefix": "a"}}, {"anything-but": {"prefix": ["a", "a"]}}],
    [{"exists": True}],
    [{"exists": False}],
]
_TESTED = ("a", "b", "c.d", "c.e", "c.exists", "'x.y'")


@st.composite
def _spelling(draw: st.DrawFn, tests: dict[str, list[int]], either: list[dict[str, list[int]]]) -> dict[str, Any]:
    """One of the documents of a pattern."""
    document: dict[str, Any] = {}
    for name in draw(st.permutations(list(tests))):
        numbers = draw(st.permutations(tests[name] + draw(st.sampled_from([[], tests[name][:1]]))))
        value: Any = [draw(st.sampled_from(_SPELLINGS[number])) for number in numbers]
        if len(value) == 1 and not isinstance(value[0], dict) and draw(st.booleans()):
            value = value[0]
        outer, dot, inner = name.partition(".")
        if dot and outer == "c" and inner != "exists" and draw(st.booleans()):
            document.setdefault("c", {})[inner] = value
        else:
            document[name] = value
    if either:
        branches = [draw(_spelling(branch, [])) for branch in draw(st.permutations(either))]
        document["$or"] = (
            [{"$or": branches[:2]}, *branches[2:]] if len(branches) > 2 and draw(st.booleans()) else branches
        )
    return document


_TESTS = st.dictionaries(
    st.sampled_from(_TESTED),
    st.lists(st.integers(0, len(_SPELLINGS) - 1), min_size=1, max_size=3, unique=True),
    min_size=1,
)


@pytest.mark.deep
@given(_TESTS, st.lists(_TESTS, max_size=3), st.data())
def test_spellings_of_one_pattern_have_one_document_and_one_meaning(
    tests: dict[str, list[int]], either: list[dict[str, list[int]]], data: st.DataObject
) -> None:
    written = [data.draw(_spelling(tests, either)) for _ in range(2)]
    try:
        patterns = [Pattern.parse(document) for document in written]
    except LanguageErrors as errors:  # `b` compared with itself, or an `$or` of one pattern
        known = ("this compares b with itself", "$or has one pattern")
        if all(error.message.startswith(known) for error in errors.errors):
            return
        raise
    canonical = json.loads(json.dumps(patterns[0].canonical))
    assert canonical == patterns[1].canonical
    again = Pattern.parse(canonical)
    assert again.canonical == canonical
    names = {name for pattern in (*patterns, again) for name in pattern.names}
    for _ in range(5):
        values = {name: data.draw(_VALUES) for name in sorted(names)}
        results = {pattern.matches(lambda name, stored=False, of=values: of[name]) for pattern in (*patterns, again)}
        assert results == {oracle_pattern(exact(canonical))(lambda path, of=values: of[name_of(path)])}

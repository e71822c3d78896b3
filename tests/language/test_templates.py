"""Templates and key patterns: data cases under `cases/`, and properties against brute force."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from projections.errors import BadInput, RulesError
from projections.language.loader import loads
from projections.language.pipes import PIPES
from projections.language.syntax import LanguageError
from projections.language.templates import KeyPattern, Template, overlap
from projections.language.values import lookup

CASES = Path(__file__).parent / "cases"


def _cases() -> Iterator[Any]:
    for suite in json.loads((CASES / "templates.json").read_text()):
        for case in suite["cases"]:
            yield pytest.param(suite["given"], case, id=f"{suite['about']}: {case['template']}")


@pytest.mark.parametrize(("image", "case"), list(_cases()))
def test_template(image: dict[str, Any], case: dict[str, Any]) -> None:
    if "error" in case:
        with pytest.raises(LanguageError) as mistake:
            Template.parse(case["template"])
        assert case["error"] in mistake.value.message
        assert mistake.value.offset == case["offset"]
        return
    template = Template.parse(case["template"])
    if "bad" in case:
        with pytest.raises(BadInput) as bad:
            template.render(partial(lookup, image))
        assert case["bad"] in str(bad.value)
    else:
        assert template.render(partial(lookup, image)) == case["result"]


def test_every_pipe_has_a_case() -> None:
    templates = [case.values[1]["template"] for case in _cases()]
    missing = [pipe for pipe in PIPES if not any(re.search(rf"\|{pipe}\b", template) for template in templates)]
    assert missing == [], "add cases to tests/language/cases/templates.json; tests/tools/test_oracle.py runs them too"


@pytest.mark.parametrize("case", json.loads((CASES / "keys.json").read_text()), ids=lambda case: case["pattern"])
def test_key_pattern(case: dict[str, Any]) -> None:
    separator = case.get("separator", "#")
    if "error" in case:
        with pytest.raises(LanguageError) as mistake:
            KeyPattern.parse(case["pattern"], separator)
        assert case["error"] in mistake.value.message
        return
    pattern = KeyPattern.parse(case["pattern"], separator)
    assert {text: pattern.match(text) for text in case["matches"]} == case["matches"]


def test_properties_of_a_template() -> None:
    template = Template.parse("A{{#{x}#{y.z|lower}#{x}")
    assert template.names == ("x", "y.z")
    assert template.literal_prefix == "A{#"
    assert (template.literal, template.single) == (None, None)
    assert [str(field) for field in template.fields] == ["{x}", "{y.z|lower}", "{x}"]
    assert Template.parse("{x|pad(3)}").single == "x"
    assert Template.parse("x").literal == "x"
    assert Template.parse("").literal == ""
    assert Template.parse("{x}").literal_prefix == ""


def test_values_are_recovered_only_if_no_other_values_give_the_same_text() -> None:
    """A copy is guarded instead of claimed on the strength of this, so it must never say too much."""
    recovered = {
        text: Template.parse(text).recoverable({name for name in ("a", "a.b", "b") if f"{name}*" not in text})
        for text in (
            "{a}",
            "X{a.b}",
            "{a}#{b}",
            "{a}{b}",
            "{a}-{b}",
            "{a|pad(3)}",
            "{a|lower}",
            "{a}#{b|lower}",
            "{a*}#{b}",
        )
    }
    assert recovered == {
        "{a}": {"a"},
        "X{a.b}": {"a.b"},
        "{a}#{b}": {"a", "b"},
        "{a}{b}": set(),
        "{a}-{b}": set(),
        "{a|pad(3)}": set(),
        "{a|lower}": set(),
        "{a}#{b|lower}": {"a"},
        "{a*}#{b}": {"a", "b"},
    }
    assert Template.parse("{attribute}#{key}").recoverable({"key"}) == {"attribute", "key"}
    assert Template.parse("{one}#{key}#{other}").recoverable({"key"}) == set()
    assert Template.parse("{a}|{b}").recoverable({"a", "b"}, "|") == {"a", "b"}


def test_a_key_is_not_rendered_from_values_that_could_not_be_read_back() -> None:
    pattern = KeyPattern.parse("USER#{userId}")
    assert pattern.render({"userId": "1"}) == "USER#1"
    with pytest.raises(BadInput, match="userId is empty"):
        pattern.render({"userId": ""})
    with pytest.raises(BadInput, match="contains the separator '#'"):
        pattern.render({"userId": "1#2"})
    assert KeyPattern.parse("DIR#{path*}").render({"path": "1#2"}) == "DIR#1#2"


_SHAPES = st.lists(
    st.sampled_from(["{a}", "{b}", "{c}", "{p*}", "{q*}", "#", "x", "y", "xy"]), min_size=1, max_size=6
).map("".join)
_TEXTS = ["".join(letters) for length in range(1, 7) for letters in itertools.product("#xy", repeat=length)]


def _readings(pattern: str, text: str) -> list[tuple[str, ...]]:
    """All ways to read a text by a pattern of these shapes, by trying every cut."""
    if not pattern:
        return [] if text else [()]
    if pattern[0] != "{":
        return _readings(pattern[1:], text[1:]) if text[:1] == pattern[0] else []
    end = pattern.index("}") + 1
    return [
        (text[:cut], *rest)
        for cut in range(1, len(text) + 1)
        if "*" in pattern[:end] or "#" not in text[:cut]
        for rest in _readings(pattern[end:], text[cut:])
    ]


@settings(max_examples=60, deadline=None)
@given(_SHAPES)
def test_exactly_the_ambiguous_keys_are_rejected(shape: str) -> None:
    fields = [part.split("}")[0] for part in shape.split("{")[1:]]
    assume(len(set(fields)) == len(fields))
    try:
        pattern = KeyPattern.parse(shape)
    except LanguageError as error:
        text = error.message.split("'")[1]
        assert len(_readings(shape, text)) > 1
        return
    for text in _TEXTS:
        readings = _readings(shape, text)
        assert len(readings) <= 1
        assert pattern.match(text) == (dict(zip(pattern.names, readings[0], strict=True)) if readings else None)


@settings(max_examples=60, deadline=None)
@given(_SHAPES, _SHAPES)
def test_overlap_gives_a_shortest_text_of_both_or_there_is_none(one: str, other: str) -> None:
    try:
        a, b = KeyPattern.parse(one), KeyPattern.parse(other)
    except LanguageError:
        assume(False)
    common = [text for text in _TEXTS if a.match(text) is not None and b.match(text) is not None]
    witness = overlap(a, b)
    if witness is None:
        assert not common
    else:
        assert a.match(witness) is not None
        assert b.match(witness) is not None
        assert not common or len(witness) == len(common[0])


_PLAIN = st.text(min_size=1, max_size=8).filter(lambda text: "#" not in text)


@given(
    st.sampled_from(["U#{a}", "{a}#{b}", "{p*}#{a}", "X{a}#Y#{p*}#{b}Z", "{{{a}}}", "{p*}", "{a}%#{b}"]),
    st.fixed_dictionaries({"a": _PLAIN, "b": _PLAIN, "p": st.text(min_size=1, max_size=8)}),
)
def test_a_rendered_key_is_read_back(text: str, variables: dict[str, str]) -> None:
    pattern = KeyPattern.parse(text)
    wanted = {name: variables[name] for name in pattern.names}
    assert pattern.match(pattern.render(wanted)) == wanted
    rendered = Template.parse(text).render(lambda name: {"S": variables[name]})
    assert rendered == pattern.render(wanted)


@given(st.text(alphabet="{}|()*,'\"%#ab.1 dateYpms-", max_size=20))
def test_any_text_is_a_template_or_a_language_error(text: str) -> None:
    offsets = []
    for parse in (Template.parse, KeyPattern.parse):
        try:
            parse(text)
        except LanguageError as error:
            offsets.append(error.offset or 0)
    assert all(0 <= offset <= len(text) for offset in offsets)


@given(st.integers(0, 10**8 - 1), st.integers(0, 10**8 - 1))
def test_pad_keeps_the_order_of_numbers_and_invert_reverses_it(a: int, b: int) -> None:
    pad, invert = Template.parse("{n|pad(8)}"), Template.parse("{n|invert(8)}")
    padded = [pad.render(lambda _, n=n: {"N": str(n)}) or "" for n in (a, b)]  # type: ignore[misc]
    inverted = [invert.render(lambda _, n=n: {"N": str(n)}) or "" for n in (a, b)]  # type: ignore[misc]
    assert (a < b) == (padded[0] < padded[1]) == (inverted[0] > inverted[1])


@pytest.mark.parametrize(
    ("text", "needs", "suffices"),
    [
        ("{a} {b|default(x)}", ("a",), ("a",)),
        ("{a * b}", ("a", "b"), ("a", "b")),
        ("{a / 2}", ("a",), ("a",)),
        ("{a / b}", ("a", "b"), None),
        ("{a / b|default(x)}", (), ()),
        ("{coalesce(a, b)}", (), ("b",)),
        ("{coalesce(a / b, 0)}", (), ()),
        ("{coalesce(a, b / c)} {d}", ("d",), ("a", "d")),
        ("{coalesce(a / b, b / c)}", (), None),
        ("{max(coalesce(a, 1), b)}", ("b",), ("b",)),
    ],
)
def test_names_that_a_template_needs_and_names_that_suffice(
    text: str, needs: tuple[str, ...], suffices: tuple[str, ...] | None
) -> None:
    template = Template.parse(text)
    assert (template.needs, template.suffices) == (needs, suffices)
    if suffices is not None:
        assert template.render({name: {"N": "2"} for name in suffices}.get) is not None
    for name in needs:
        assert template.render({other: {"N": "2"} for other in template.names if other != name}.get) is None


def test_no_value_in_an_expression_can_be_recovered() -> None:
    assert Template.parse("{a + 1}").recoverable({"a"}) == frozenset()
    assert Template.parse("{coalesce(a, b)}#{c}").recoverable({"a", "b", "c"}) == {"c"}
    assert Template.parse("{c}#{coalesce(a, b)}").recoverable({"a", "b", "c"}) == {"c"}
    assert Template.parse("{a + 1}").single is None


RULES_WITH_A_KEY = """\
table: {{key: [PK, SK], indexes: {{GSI1: [GSI1PK, GSI1SK]}}}}
entities:
  User: {{key: {{PK: "USER#{{userId}}", SK: PROFILE}}}}
  Post: {{key: {{PK: "POST#{{postId}}", SK: METADATA}}}}
  Copy: {{key: {{PK: "COPY#{{x}}", SK: C}}}}
projections:
  c: {{from: User, bind: {{x: "{bind}"}}, copy: {{into: Copy, attributes: [name]}}}}
  i: {{from: Post, index: {{GSI1PK: "AUTHOR#{author}", GSI1SK: "{{postId}}"}}}}
  e: {{from: User, embed: {{into: Post, match: {{authorId: "{{userId}}"}}, attributes: [name]}}}}
"""


@pytest.mark.parametrize(("bind", "claimed"), [("{userId}", False), ("{coalesce(userId, other)}", True)])
def test_a_key_with_a_variable_in_an_expression_only_is_claimed(bind: str, claimed: bool) -> None:
    rules = loads(RULES_WITH_A_KEY.format(bind=bind, author="{authorId}"))
    assert rules.document()["projections"]["c"]["copy"]["claimed"] == claimed


def test_an_index_with_the_reference_in_an_expression_does_not_find_children() -> None:
    with pytest.raises(RulesError, match="the rule cannot find the Post items of a User"):
        loads(RULES_WITH_A_KEY.format(bind="{userId}", author="{number(authorId) + 0}"))

"""Indexes in rule files: what they project, local indexes, and what tables cannot have."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from projections.errors import RulesError
from projections.language import loader
from projections.language.forms import IndexKeys
from projections.language.program import Program
from projections.language.schema import json_schema
from projections.language.source import read

ONE_OF = "expected all, keys_only or a list of attributes"
KEYS = "is a key attribute, and these are always projected: remove it"
ENTITIES = 'entities: {A: {key: {PK: "A#{a}", SK: "{b}"}}}\n'


def text(*indexes: str, key: str = "[PK, SK]") -> str:
    lines = "".join(f"    I{number}: {form}\n" for number, form in enumerate(indexes))
    entities = ENTITIES if "SK" in key else 'entities: {A: {key: {PK: "A#{a}"}}}\n'
    return f"table:\n  key: {key}\n  indexes:\n{lines}{entities}"


def mistakes(*indexes: str, key: str = "[PK, SK]") -> list[str]:
    try:
        loader.loads(text(*indexes, key=key))
    except RulesError as error:
        return [f"{problem.path.removeprefix('table.indexes.')}: {problem.message}" for problem in error.problems]
    return []


FORMS = {
    "[a, b]": IndexKeys((("a", "S"),), (("b", "S"),)),
    "{partition: S, sort: N}": IndexKeys((("partition", "S"),), (("sort", "N"),)),
    "{partition: a, sort: b}": IndexKeys((("a", "S"),), (("b", "S"),)),
    "{partition: [a], projection: all}": IndexKeys((("a", "S"),), ()),
    "{partition: [a], sort: {n: N}, projection: keys_only}": IndexKeys((("a", "S"),), (("n", "N"),), "keys_only"),
    "{partition: [a], projection: [title, about]}": IndexKeys((("a", "S"),), (), ("about", "title")),
    "{sort: at, local: true}": IndexKeys((("PK", "S"),), (("at", "S"),), "all", local=True),
    "{sort: {n: N}, local: true, projection: [x]}": IndexKeys((("PK", "S"),), (("n", "N"),), ("x",), local=True),
    "{partition: a, local: false}": IndexKeys((("a", "S"),), ()),
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_has_one_canonical_index(form: str) -> None:
    rules = loader.loads(text(form))
    assert rules.tables["main"].indexes["I0"] == FORMS[form]
    assert rules.completed().tables == rules.tables
    assert Draft202012Validator(json_schema()).is_valid(read(text(form)).data)


def test_usual_index_has_a_short_document() -> None:
    document = loader.loads(text("{partition: [a], projection: all}")).document()
    assert document["tables"]["main"]["indexes"]["I0"] == {"partition": {"a": "S"}}


def test_order_of_projected_attributes_has_no_meaning() -> None:
    one, other = (loader.loads(text(f"{{partition: a, projection: {listed}}}")) for listed in ("[x, y]", "[y, x]"))
    assert one.document() == other.document()


def test_index_shows_its_keys_and_those_of_the_table_besides_what_it_projects() -> None:
    rules = loader.loads(
        text("[a, b]", "{partition: a, projection: keys_only}", "{sort: n, local: true, projection: [x]}")
    )
    expected = {"I0": None, "I1": {"PK", "SK", "a"}, "I2": {"PK", "SK", "n", "x"}}
    table, schema = rules.completed().tables["main"], Program(rules.document()).tables["main"]
    assert {index: table.shown(index) for index in table.indexes} == expected
    assert {index: schema.projected_names(index) for index in schema.indexes} == expected
    assert schema.local == {"I2"}


MISTAKES = {
    "{partition: a, projection: key_only}": f'I0.projection: {ONE_OF}, found "key_only" (did you mean "keys_only"?)',
    "{partition: a, projection: KEYS_ONLY}": f'I0.projection: {ONE_OF}, found "KEYS_ONLY" (did you mean "keys_only"?)',
    "{partition: a, projection: 7}": f"I0.projection: {ONE_OF}, found 7",
    "{partition: a, projection: []}": "I0.projection: is empty: list at least one attribute, or write keys_only",
    "{partition: a, projection: [b, b]}": "I0.projection[1]: b is listed twice",
    "{partition: a, projection: [SK]}": f"I0.projection[0]: SK {KEYS}",
    "{partition: a, projection: [x, a]}": f"I0.projection[1]: a {KEYS}",
    "{partition: a, projecton: all}": 'I0.projecton: unknown (did you mean "projection"?): an index has partition, sort, '
    "projection, local",
    "{partition: a, sort: b, local: true}": "I0.partition: a local index has the partition key of its table: remove "
    "`partition`, or remove `local`",
    "{local: true}": "I0: a local index needs `sort`: the attribute that sorts its items",
    "{sort: [b, c], local: true}": "I0.sort: expected one attribute, found 2",
    "{sort: SK, local: true}": "I0.sort: SK is the sort key of the table: a local index sorts by another attribute",
    "{sort: PK, local: true}": "I0.sort: PK is the partition key of the table: a local index sorts by another attribute",
    "{sort: b, local: 1}": "I0.local: expected true or false, found 1",
    "{sort: b}": "I0: an index needs `partition`; for a local index, add `local: true`",
}


@pytest.mark.parametrize("form", MISTAKES)
def test_mistake_names_its_place_and_the_way_out(form: str) -> None:
    assert MISTAKES[form] in mistakes(form)


def test_local_index_needs_a_table_with_a_sort_key() -> None:
    message = "the table has no sort key, so it cannot have a local index: give it `partition` instead of `local`"
    assert mistakes("{sort: b, local: true}", key="[PK]") == [f"I0.local: {message}"]


def test_indexes_of_a_table_list_at_most_100_attributes_together() -> None:
    first, second = ("[" + ", ".join(f"{letter}{number}" for number in range(50)) + "]" for letter in "xy")
    forms = [f"{{partition: a, projection: {listed}}}" for listed in (first, second)]
    assert mistakes(*forms, "{partition: a, projection: keys_only}") == []
    (found,) = mistakes(*forms, "{partition: a, projection: [x1]}")
    assert found.endswith(
        "can list 100 attributes in `projection`, and these list 101: list fewer, or use `projection: all`"
    )

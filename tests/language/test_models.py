"""Rules built in Python from the same models, and the canonical document that both ways lead to."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from projections.errors import RulesError
from projections.language import loader
from projections.language.models import Aggregate, Copy, Entity, Projection, Rules, Table, Top

TABLE = Table(key=["PK", "SK"])
ENTITIES = {
    "Like": Entity(key={"PK": "USER#{userId}", "SK": "LIKE#{postId}"}),
    "Post": Entity(key={"PK": "POST#{postId}", "SK": "META"}),
}


def test_rules_built_in_python_are_those_of_a_file() -> None:
    built = Rules(
        table=TABLE,
        entities=ENTITIES,
        projections={"likes": Projection(from_="Like", aggregate=Aggregate(into="Post", set={"likeCount": "count"}))},
    )
    written = loader.loads(
        "table: {key: [PK, SK]}\n"
        "entities:\n"
        "  Like: {key: {PK: 'USER#{userId}', SK: 'LIKE#{postId}'}}\n"
        "  Post: {key: {PK: 'POST#{postId}', SK: META}}\n"
        "projections:\n  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
    )
    assert built == written
    assert loader.check(built).document() == written.document()


def test_reserved_names_have_an_underscore_in_python_only() -> None:
    rule = Projection(from_="Like", top=Top(into="Post", as_="recent", by="at", limit=3, attributes=["userId"]))
    assert rule.model_dump(by_alias=True, exclude_unset=True)["top"]["as"] == "recent"
    with pytest.raises(RulesError, match=r'from_: unknown \(did you mean "from"\?\)'):
        loader.loads("table: {key: [PK]}\nentities: {A: {key: {PK: a}}}\nprojections: {r: {from_: A, index: {X: a}}}")


def test_a_syntax_error_in_python_is_raised_where_it_is_written() -> None:
    with pytest.raises(ValidationError, match="not closed"):
        Entity(key={"PK": "USER#{userId", "SK": "A"})
    with pytest.raises(ValidationError, match="add one of copy, aggregate"):
        Projection(from_="Like")


def test_a_semantic_mistake_in_python_is_found_by_check() -> None:
    rules = Rules(
        table=TABLE,
        entities=ENTITIES,
        projections={"likes": Projection(from_="Like", copy_=Copy(into="Pots", attributes=["a"]))},
    )
    with pytest.raises(RulesError, match=r'<python>:1:1: projections\.likes\.copy\.into: unknown entity "Pots"'):
        loader.check(rules)


def test_models_cannot_be_changed_after_they_were_checked() -> None:
    with pytest.raises(ValidationError):
        TABLE.ttl = "at"


def test_a_single_table_is_called_main_and_everything_is_defaulted() -> None:
    rules = loader.loads("table: {key: [PK]}\nentities: {A: {key: {PK: 'A#{a}'}}}\n")
    assert rules.document() == {
        "format": 1,
        "guard_prefix": "~",
        "tables": {"main": {"key": {"PK": "S"}, "indexes": {}, "separator": "#"}},
        "entities": {
            "A": {"table": "main", "key": {"PK": "A#{a}"}, "derived": False, "expires": False, "index_key": {}}
        },
        "projections": {},
        "retired": {},
    }

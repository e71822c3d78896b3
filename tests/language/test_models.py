"""Rules built in Python from the same models, and the canonical document that both ways lead to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from projections.errors import RulesError
from projections.language import loader
from projections.language.models import Aggregate, Copy, Entity, Projection, Rules, Table, Top

RULES = Path(__file__).parent / "rules"

TABLE = Table(key=["PK", "SK"])
ENTITIES = {
    "Like": Entity(key={"PK": "USER#{userId}", "SK": "LIKE#{postId}"}),
    "Post": Entity(key={"PK": "POST#{postId}", "SK": "META"}),
}


def document(projection: str) -> dict[str, Any]:
    """The canonical form of one rule over the file with every construct."""
    return loader.load(RULES / "everything.yaml").document()["projections"][projection]


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
            "A": {
                "table": "main",
                "key": {"PK": "A#{a}"},
                "derived": False,
                "expires": False,
                "index_key": {},
            }
        },
        "projections": {},
        "retired": {},
    }


def test_keys_and_indexes_have_one_form() -> None:
    tables = loader.load(RULES / "everything.yaml").document()["tables"]
    assert tables["shop"] == {
        "key": {"pk": "S", "sk": "S"},
        "indexes": {
            "byStatus": {"partition": {"status": "S"}, "sort": {"total": "N"}},
            "byPlace": {"partition": {"country": "S", "city": "S"}, "sort": {"street": "S", "house": "N"}},
            "byMail": {"partition": {"mail": "S"}},
            "ranked": {"partition": {"board": "S"}, "sort": {"score": "N"}},
        },
        "ttl": "expiresAt",
        "separator": "|",
    }


COMMON = {"hold": False}
RETRACT = COMMON | {"from": {"Order": {}}, "expired": "retract"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "orderById",
            RETRACT
            | {
                "copy": {
                    "into": "OrderById",
                    "attributes": {"customer": "customer", "total": "total", "city": "address.city"},
                    "values": {
                        "label": "{customer}: {order}",
                        "version": 2,
                        "flags": ["a", 1.5, True, None],
                        "nothing": None,
                    },
                    "claimed": False,
                }
            },
        ),
        (
            "lines",
            RETRACT
            | {
                "from": {"Order": {"bind": {"sku": "{line.sku}"}, "each": {"line": "lines", "most": 100}}},
                "copy": {
                    "into": "Line",
                    "attributes": {"customer": "customer"},
                    "values": {"qty": "{line.qty}"},
                    "claimed": False,
                },
            },
        ),
        (
            "folders",
            COMMON
            | {
                "from": {"File": {"each": {"folder": {"ancestors": "path", "separator": "/"}, "most": 100}}},
                "aggregate": {
                    "into": "Folder",
                    "set": {"bytes": {"sum": "size"}, "files": {"count": True}},
                    "shards": 1,
                },
            },
        ),
        (
            "firstOrders",
            RETRACT
            | {
                "hold": True,
                "top": {
                    "into": "Customer",
                    "as": "firstOrders",
                    "by": "createdAt",
                    "limit": 100,
                    "order": "asc",
                    "attributes": {"order": "order", "total": "total"},
                },
            },
        ),
        (
            "lastOrder",
            RETRACT
            | {
                "latest": {
                    "into": "Customer",
                    "by": "createdAt",
                    "order": "desc",
                    "attributes": {"lastTotal": "total"},
                }
            },
        ),
        (
            "ranking",
            COMMON
            | {
                "from": {"OrderById": {}},
                "index": [
                    {"where": {"total": [{"numeric": [">=", 1000]}]}, "board": "large", "score": "{total}"},
                    {"board": "small", "score": "{total}"},
                ],
            },
        ),
        (
            "buyer",
            COMMON
            | {
                "from": {"Customer": {}},
                "embed": {
                    "into": "Order",
                    "match": {"customer": "{customer}"},
                    "attributes": {"customerName": "name"},
                    "on_delete": "remove",
                },
            },
        ),
    ],
)
def test_each_kind_of_rule_has_one_form(name: str, expected: dict[str, Any]) -> None:
    assert document(name) == expected


def test_measures_have_one_form() -> None:
    measures = document("months")["aggregate"]["set"]
    assert measures["orders"] == {"count": True}
    assert measures["revenue"] == {"sum": "total"}
    assert measures["paid"]["where"] == {"status": ["paid", {"prefix": "paid-"}]}
    assert measures["largeOnes"]["where"] == {"total": [{"numeric": [">", 100, "<=", 1000]}]}
    assert document("byMail")["copy"]["attributes"] == "all"

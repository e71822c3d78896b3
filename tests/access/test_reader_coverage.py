"""No wait reports `reached`, and no own read `corrected`, for what the reads cannot show."""

from __future__ import annotations

from typing import Any

import pytest
from test_item_reader import ReadScene

from projections.access.item_reader import ItemReader

DOC = {"PK": "C#1", "SK": "DOC#1"}
CUSTOMER = {"PK": "C#1", "SK": "PROFILE"}
HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Bill: {key: {PK: "C#{c}", SK: "DOC#{number}"}, match: {type: bill}}
  Credit: {key: {PK: "C#{c}", SK: "DOC#{number}"}, match: {type: credit}}
  Customer: {key: {PK: "C#{c}", SK: PROFILE}}
  ByStatus: {key: {PK: "STATUS#{status}", SK: "{number}"}}
  ByNumber: {key: {PK: "BILL#{c}", SK: "{number}"}}
  Tagged: {key: {PK: "TAG#{tag}", SK: "{c}#{number}"}}
"""
TAG = '  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}\n'
BY_STATUS = "  byStatus: {from: Bill, where: {status: [open, paid]}, copy: {into: ByStatus, attributes: [total]}}"
BY_DEFAULT = BY_STATUS.replace("where: {status: [open, paid]}", 'bind: {status: "{status|default(open)}"}')
BY_NUMBER = "  byNumber: {from: Bill, copy: {into: ByNumber, attributes: [total]}}"
ALL = "  byNumber: {from: Bill, copy: {into: ByNumber, attributes: all}}"
TAGGED = "  tagged: {from: Bill, each: {tag: tags}, copy: {into: Tagged, attributes: [total]}}"
LISTED = '  listed: {from: Bill, index: {GSI1PK: "BILLS#{c}", GSI1SK: "{number}"}}'
BILLED = "  billed: {from: Bill, aggregate: {into: Customer, set: {billed: sum(total)}}}"
NAMED = '  named: {from: Customer, embed: {into: Bill, match: {c: "{c}"}, attributes: {customerName: name}}}'


def scene_of(rules: str) -> ReadScene:
    return ReadScene(HEAD + (TAG if "into: Tag," in rules else "") + "projections:\n" + rules)


def before(rules: str, **attributes: Any) -> ReadScene:
    """A bill and its customer, which the functions have processed."""
    scene = scene_of(rules)
    scene.put(CUSTOMER, name="Ann")
    scene.put(DOC, type="bill", **attributes)
    scene.world.settle()
    assert scene.reader.wait(DOC, timeout=0).reached
    return scene


@pytest.mark.parametrize(
    ("rule", "attributes", "change"),
    [
        (BY_STATUS, {"status": "paid"}, {"status": "void"}),
        (BY_STATUS, {"status": "paid"}, {"status": "open"}),
        (BY_DEFAULT, {"status": "paid"}, {"status": None}),
        (TAGGED, {"tags": ["a", "b"]}, {"tags": ["b"]}),
        (ALL, {"due": 5}, {"due": None}),
        (LISTED, {}, {"type": "letter"}),
        (LISTED, {}, {"type": "credit"}),
    ],
)
def test_a_rule_whose_former_targets_cannot_be_known_is_not_covered(
    rule: str, attributes: dict[str, Any], change: dict[str, Any]
) -> None:
    scene = before(rule, **attributes)
    name = rule.split(":")[0].strip()
    scene.change(DOC, **change)
    ended = scene.reader.wait(DOC, timeout=0)
    assert name in ended.not_covered or any(reason.startswith(f"{name}:") for reason in ended.reasons)
    scene.world.settle()
    assert scene.reader.wait(DOC, timeout=0).reached


@pytest.mark.parametrize("rule", [BY_NUMBER, BILLED])
@pytest.mark.parametrize("kind", ["credit", "letter"])
def test_a_wait_covers_rules_of_the_former_entity(rule: str, kind: str) -> None:
    scene = before(rule, total=20)
    scene.change(DOC, type=kind)
    ended = scene.reader.wait(DOC, timeout=0)
    assert (ended.state, ended.not_covered) == ("late", ())
    scene.world.settle()
    ended = scene.reader.wait(DOC, timeout=0)
    assert (ended.state, ended.not_covered) == ("reached", ())


def test_a_copy_to_a_key_that_cannot_change_is_covered() -> None:
    assert before(BY_NUMBER, total=5).reader.wait(DOC, timeout=0).not_covered == ()
    scene = before(ALL, total=5)
    assert scene.reader.wait(DOC, timeout=0).not_covered == ()
    scene.change({"PK": "BILL#1", "SK": "1"}, note="of the application")
    assert scene.reader.wait(DOC, timeout=0).not_covered == ("byNumber",)


def test_a_wait_covers_the_attributes_that_the_item_gets_from_its_parent() -> None:
    scene = scene_of(NAMED)
    scene.put(CUSTOMER, name="Ann")
    scene.world.settle()
    scene.put(DOC, type="bill")
    ended = scene.reader.wait(DOC, timeout=0)
    assert ended.reasons == ("named: main|C#1|DOC#1 does not show it yet",)
    scene.world.settle()
    assert scene.reader.wait(DOC, timeout=0).reached
    scene.put({"PK": "C#2", "SK": "DOC#1"}, type="bill")  # without a parent
    scene.world.settle()
    assert scene.reader.wait({"PK": "C#2", "SK": "DOC#1"}, timeout=0).reached


def test_a_wait_for_a_target_that_the_application_replaced_ends_when_its_values_are_back() -> None:
    scene = before(BILLED, total=7)
    scene.put(CUSTOMER, name="Bea")
    assert scene.reader.wait(CUSTOMER, timeout=0).reasons == ("billed: its values of the item are not set yet",)
    own = scene.reader.read(CUSTOMER, own=[CUSTOMER])
    assert own.uncorrected == {"billed": "billed sets it when it sees the item"}
    scene.world.settle()
    assert scene.reader.wait(CUSTOMER, timeout=0).reached


def test_a_wait_covers_the_values_that_an_item_loses_with_its_reference() -> None:
    scene = ReadScene("""
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK]}}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Post: {key: {PK: "POST#{postId}", SK: M}, index_key: {GSI1PK: "{userId}"}}
projections:
  author: {from: User, embed: {into: Post, match: {userId: "{userId}"}, attributes: {by: name}, on_delete: keep}}
""")
    post = {"PK": "POST#1", "SK": "M"}
    scene.put({"PK": "USER#1", "SK": "PROFILE"}, name="Ann")
    scene.put(post, userId="1", GSI1PK="1")
    scene.world.settle()
    scene.change(post, userId=None, GSI1PK=None)
    assert scene.reader.wait(post, timeout=0).reasons == ("author: its values of the item are not removed yet",)
    scene.world.settle()
    assert scene.reader.wait(post, timeout=0).reached
    scene.change(post, by="the application")
    assert scene.reader.wait(post, timeout=0).reached


KINDS = """
table: {key: [PK, SK]}
entities:
  Bill: {key: {PK: "C#{c}", SK: "DOC#{number}"}, match: {type: bill}}
  Credit: {key: {PK: "C#{c}", SK: "DOC#{number}"}, match: {type: credit}}
  Left: {key: {PK: "BY#{c}", SK: "{number}"}, match: {kind: left}}
  Right: {key: {PK: "BY#{c}", SK: "{number}"}, match: {kind: right}}
projections:
  left: {from: Bill, copy: {into: Left, attributes: [total]}}
  right: {from: Credit, copy: {into: Right, attributes: [total]}}
"""


@pytest.mark.parametrize(("first", "second"), [("bill", "credit"), ("credit", "bill")])
def test_a_wait_covers_copies_under_one_key(first: str, second: str) -> None:
    scene = ReadScene(KINDS)
    for change in ({"type": first}, {"total": 2}, {"type": second}, {"type": "letter"}):
        scene.change({**DOC}, **DOC, **change)
        assert scene.reader.wait(DOC, timeout=0).state == "late"
        scene.world.settle()
        assert scene.reader.wait(DOC, timeout=0).reached


def test_a_wait_for_a_copy_whose_key_is_occupied_is_quarantined() -> None:
    scene = ReadScene(KINDS)
    scene.put({"PK": "BY#1", "SK": "1"}, kind="right")
    scene.put(DOC, type="bill")
    scene.world.settle()
    ended = scene.reader.wait(DOC, timeout=0)
    assert (ended.state, ended.reasons) == ("quarantined", ("left: an item of another kind has the key main|BY#1|1",))


@pytest.mark.parametrize("kind", ["credit", "letter"])
def test_values_that_an_item_has_of_its_former_entity_are_not_covered(kind: str) -> None:
    scene = before(NAMED)
    scene.change(DOC, type=kind)
    assert scene.reader.wait(DOC, timeout=0).not_covered == ("named",)
    scene.world.settle()
    assert scene.reader.wait(DOC, timeout=0).not_covered == ()


def test_rules_that_write_to_the_item_and_are_not_active_are_not_covered() -> None:
    scene = before(BILLED, total=7)
    changed = scene_of(BILLED.replace("sum(total)", "sum(due)"))
    assert ItemReader(changed.world.program, scene.session).wait(CUSTOMER, timeout=0).not_covered == ("billed",)
    filling = ReadScene(HEAD + "projections:\n" + BILLED, filled=False)
    filling.put(CUSTOMER)
    filling.world.settle()
    assert filling.reader.wait(CUSTOMER, timeout=0).not_covered == ("billed",)
    other = scene_of(NAMED.replace("customerName", "name"))
    other.put(DOC, type="bill")
    ended = ItemReader(scene_of(NAMED).world.program, other.session).wait(DOC, timeout=0)
    assert (ended.state, ended.not_covered) == ("reached", ("named",))


def test_a_held_rule_that_cannot_use_the_item_is_no_matter_of_a_wait() -> None:
    scene = before(BILLED.replace("from: Bill,", "from: Bill, hold: true,"), total=7)
    scene.change(DOC, total="many")
    scene.world.settle()
    assert scene.reader.wait(DOC, timeout=0).reached


def test_own_reads_name_all_attributes_that_a_copy_gets() -> None:
    scene = before(ALL, total=7)
    scene.change(DOC, note="new")
    read = scene.reader.read({"PK": "BILL#1", "SK": "1"}, own=[DOC])
    assert set(read.uncorrected) >= {"total", "note"}


def test_own_reads_name_what_other_rules_set_from_the_item_as_it_is_read() -> None:
    few = (
        BILLED
        + '\n  state: {from: Customer, compute: {set: {state: "{billed}"}}}\n'
        + NAMED
        + '\n  double: {from: Bill, compute: {set: {doubled: "total * 2"}}}'
    )
    scene = before(few, total=7)
    assert scene.reader.read(CUSTOMER, own=[DOC]).uncorrected == {}
    scene.put(DOC, type="bill", total=8)
    read = scene.reader.read(CUSTOMER, own=[DOC])
    assert (read["billed"], read.uncorrected) == (8, {"state": "state sets it from the item"})
    assert scene.reader.read(DOC, own=[DOC]).uncorrected == {
        "doubled": "double sets it from the item",
        "customerName": "named sets it from other items",
    }
    scene.world.settle()
    assert scene.reader.read(DOC, own=[DOC]).uncorrected == {}


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        (
            NAMED + "\n  named2: {from: Bill, each: {tag: tags}, where: {customerName: [Ann]},"
            " aggregate: {into: Tag, set: {bills: count}}}",
            "named2 reads customerName of the own item, which named sets",
        ),
        (
            NAMED + '\n  shown: {from: Bill, compute: {set: {label: "{customerName}!"}}}'
            "\n  shown2: {from: Bill, each: {tag: tags}, where: {label: [{exists: true}]},"
            " aggregate: {into: Tag, set: {bills: count}}}",
            "shown2 reads label of the own item, which shown sets",
        ),
    ],
)
def test_a_rule_that_reads_what_another_rule_sets_on_the_own_item_is_not_corrected(rules: str, reason: str) -> None:
    scene = before(rules, tags=["a"])
    tag = {"PK": "TAG#a", "SK": "STATS"}
    scene.put(DOC, type="bill", tags=["a"])  # without customerName
    read = scene.reader.read(tag, own=[DOC])
    assert (read.corrected, read.uncorrected) == ((), {"bills": reason})
    scene.world.settle()
    assert scene.reader.read(tag) == {**tag, "bills": 1}


def test_a_rule_that_reads_items_that_rules_create_is_not_corrected() -> None:
    rules = (
        "  tags: {from: Bill, each: {tag: tags}, aggregate: {into: Tag, set: {bills: count}}}\n"
        "  all: {from: Tag, bind: {c: '1'}, aggregate: {into: Customer, set: {tags: count}}}"
    )
    scene = before(rules, tags=["a"])
    read = scene.reader.read(CUSTOMER, own=[{"PK": "TAG#a", "SK": "STATS"}])
    assert read.uncorrected == {"tags": "all reads items of Tag, which rules create"}

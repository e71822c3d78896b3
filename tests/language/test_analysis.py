"""Analysis: mistakes that show only when rules, entities and tables are seen together."""

from __future__ import annotations

import re

import pytest

from projections.errors import RulesError
from projections.language import loader
from projections.language.kinds.copy import is_claimed

BASE = """
tables:
  main:
    key: [PK, SK]
    indexes: {GSI1: [GSI1PK, GSI1SK], Score: {board: S, score: N}}
  numbers: {key: {id: S, at: N}}
entities:
  Post:    {table: main, key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
  Meta:    {table: main, key: {PK: "POST#{post}", SK: META}, match: {type: meta}}
  Like:    {table: main, key: {PK: "POST#{post}", SK: "LIKE#{user}"}, index_key: {GSI1PK: "{user}"}}
  Session: {table: main, key: {PK: "SESSION#{session}", SK: S}, expires: true}
  Tag:     {table: main, key: {PK: "TAG#{tag}", SK: T}, derived: true}
  Event:   {table: numbers, key: {id: "{event}", at: "{time}"}}
"""
TAG = "  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"


def problems(rules: str, entities: str = "", top: str = "") -> list[str]:
    """`path: message` of everything wrong with the base and these further lines."""
    text = BASE + entities + "projections:\n" + TAG + rules + top
    try:
        loader.loads(text)
    except RulesError as error:
        return [f"{problem.path}: {problem.message}" for problem in error.problems]
    return []


def rule(text: str) -> str:
    return f"  r: {{{text}}}\n"


def test_the_base_of_these_tests_has_no_mistakes() -> None:
    assert problems("") == []


RULES = {
    "an unknown target": (
        "from: Post, copy: {into: Zzz, attributes: [a]}",
        'r.copy.into: unknown entity "Zzz"; the entities are Post, Meta, Like, Session, Tag, Event',
    ),
    "a copy of an item onto its own kind": (
        "from: Post, copy: {into: Post, attributes: [a]}",
        "r.copy.into: the source and the target of a copy must be different entities",
    ),
    "a copy of nothing": ("from: Post, copy: {into: Meta}", "r.copy: copies nothing: add `attributes` or `values`"),
    "a bound variable that the key lacks": (
        "from: Like, bind: {psot: '{x}'}, aggregate: {into: Meta, set: {n: count}}",
        'r.bind.psot: the key of Meta has no variable {psot} (did you mean "post"?)',
    ),
    "copies per element that all have one key": (
        "from: Post, each: {tag: tags}, copy: {into: Meta, attributes: [a]}",
        "r.each: the key of Meta does not include {tag}: all elements would share one copy; use it in `bind`",
    ),
    "an embed with `bind`": (
        "from: Post, bind: {post: '{x}'}, embed: {into: Like, match: {post: '{post}'}, attributes: [title]}",
        "r.bind: an embed rule cannot have `bind`: its `match` selects the children",
    ),
    "an embed with `expired`": (
        "from: Session, expired: keep, embed: {into: Like, match: {post: '{post}'}, attributes: [title]}",
        "r.expired: an embed rule cannot have `expired`: use `on_delete`",
    ),
    "an embed with `as` into the key of an index": (
        "from: Session, embed: {into: Like, match: {sessions: '{session}'}, as: board, attributes: [title]}",
        "r.embed.as: board is the key of an index and cannot hold a list",
    ),
    "an embed with `as` whose references are in the child's key": (
        "from: Session, embed: {into: Like, match: {user: '{session}'}, as: titles, attributes: [title]}",
        "r.embed.match.user: {user} is in the key of Like, so it cannot be a list or set of references: name an attribute, "
        "or remove `as`",
    ),
    "an embed with `as` whose references are the key of an index": (
        "from: Session, embed: {into: Like, match: {GSI1SK: '{session}'}, as: titles, attributes: [title]}",
        "r.embed.match.GSI1SK: GSI1SK is the key of an index, so it cannot be a list or set of references: name another "
        "attribute, or remove `as`",
    ),
    "an embed that writes its own references": (
        "from: Session, embed: {into: Like, match: {sessions: '{session}'}, as: sessions, attributes: [title]}",
        "r.embed.as: the rule cannot write sessions, because `match` reads it: write another name",
    ),
    "an embed with `as` and `on_delete`": (
        "from: Session, embed: {into: Like, match: {s: '{session}'}, as: t, on_delete: keep, attributes: [title]}",
        "r.embed: `on_delete` is for children with one parent: with `as`, write `missing: omit` or `missing: id`",
    ),
    "an embed with `missing` and without `as`": (
        "from: Session, embed: {into: Like, match: {s: '{session}'}, missing: id, attributes: [title]}",
        "r.embed: `missing` is for children with several parents: add `as`, or remove `missing`",
    ),
    "an embed with `as` and several names in `match`": (
        "from: Post, embed: {into: Like, match: {u: '{user}', p: '{post}'}, as: t, attributes: [title]}",
        "r.embed: `match` has several names: write which of them holds the references, such as `references: u`",
    ),
    "an embed whose `references` are not in `match`": (
        "from: Post, embed: {into: Like, match: {u: '{user}', p: '{post}'}, as: t, references: q, attributes: [title]}",
        "r.embed: `references` must be a name in `match`: u, p",
    ),
    "an embed with `id` in a map": (
        "from: Session, embed: {into: Like, match: {s: '{session}'}, as: t, form: map, id: key, attributes: [title]}",
        "r.embed: `id` is for `form: list`: in a map, the reference is the key; remove `id`",
    ),
    "an embed with `as` whose `id` is also an attribute": (
        "from: Session, embed: {into: Like, match: {s: '{session}'}, as: t, attributes: {id: title}}",
        "r.embed: `attributes` and `id` have the same name id: write another `id`",
    ),
    "part of a map in an aggregate": (
        "from: Like, aggregate: {into: Meta, set: {hist.five: count}}",
        "r.aggregate.set.hist.five: rules write whole attributes, not parts of a map: name the attribute without a dot, "
        "such as histFive; for a map from values to numbers, write hist: counts(…)",
    ),
    "a dot as a measure": (
        "from: Like, aggregate: {into: Meta, set: {.: count}}",
        "r.aggregate.set..: rules write whole attributes, not parts of a map: name the attribute without a dot",
    ),
    "a name that begins with a dot": (
        "from: Like, aggregate: {into: Meta, set: {.five: count}}",
        "r.aggregate.set..five: rules write whole attributes, not parts of a map: name the attribute without a dot, "
        "such as five; for a map from values to numbers, write five: counts(…)",
    ),
    "part of a map in a copy": (
        "from: Post, copy: {into: Meta, attributes: {author.name: name}}",
        "r.copy.attributes.author.name: rules write whole attributes, not parts of a map: name the attribute without a dot, "
        "such as authorName",
    ),
    "part of a map in a list": (
        "from: Like, top: {into: Meta, as: newest.likes, by: at, limit: 1, attributes: [a]}",
        "r.top.as: rules write whole attributes, not parts of a map: name the attribute without a dot, such as newestLikes",
    ),
    "a constant of the wrong type for an index key": (
        "from: Post, copy: {into: Meta, values: {board: 1}}",
        "r.copy.values.board: board is a key of type S, and this rule makes it 1: declare the key with type N",
    ),
    "a count in an index key of text": (
        "from: Like, aggregate: {into: Meta, set: {board: count}}",
        "r.aggregate.set.board: board is a key of type S, and this rule makes it a count: declare the key with type N",
    ),
    "a list in an index key": (
        "from: Like, top: {into: Meta, as: board, by: at, limit: 1, attributes: [a]}",
        "r.top.as: board is the key of an index and cannot hold a list",
    ),
    "the application's index key": (
        "from: Like, index: {GSI1PK: '{user}'}",
        "r.index.GSI1PK: Like.GSI1PK is already written by the application (`index_key` of Like): "
        "an attribute can have only one writer",
    ),
    "another rule's attribute": (
        "from: Like, aggregate: {into: Tag, set: {posts: count}}",
        "r.aggregate.set.posts: Tag.posts is already written by rule tags: an attribute can have only one writer",
    ),
}


@pytest.mark.parametrize(("text", "expected"), RULES.values(), ids=RULES)
def test_a_mistake_in_a_rule_is_named_with_its_way_out(text: str, expected: str) -> None:
    assert f"projections.{expected}" in problems(rule(text))


ENTITIES = {
    "no table": ("X: {key: {PK: X, SK: X}}", "X: needs `table`: one of main, numbers"),
    "an unknown table": ("X: {table: mian, key: {PK: X}}", 'X.table: unknown table "mian" (did you mean "main"?)'),
    "a key attribute more": (
        "X: {table: numbers, key: {id: 'x#{x}', att: '{y}'}}",
        'X.key.att: is not a key attribute of table numbers (did you mean "at"?)',
    ),
    "text as a number": (
        "X: {table: numbers, key: {id: 'x#{x}', at: 'n{y}'}}",
        "X.key.at: at is a number (N): its template must be one variable, nothing else",
    ),
    "a key that reads two ways": ("X: {table: main, key: {PK: '{a}{b}', SK: X}}", "X.key.PK: "),
    "an index key that is none": (
        "X: {table: main, key: {PK: X, SK: X}, index_key: {GSIPK: X}}",
        'X.index_key.GSIPK: is not a key attribute of an index of table main (did you mean "GSI1PK"?)',
    ),
    "an index key that is no number": (
        "X: {table: main, key: {PK: X, SK: X}, index_key: {score: 'x{x}'}}",
        "X.index_key.score: score is a number (N): its template must be one variable, nothing else",
    ),
    "items of two kinds": (
        "X: {table: main, key: {PK: 'POST#{p}', SK: '{any*}'}}",
        'X: an item with PK "POST#a", SK "META" could be Meta or X (X also shares keys with Like): use different keys, '
        "or give both a `match` on one attribute with different values",
    ),
    "derived by nobody": (
        "X: {table: main, key: {PK: X, SK: X}, derived: true}",
        "X.derived: no rule creates these items: add a copy or an aggregate into this entity, or remove `derived`",
    ),
}


@pytest.mark.parametrize(("text", "expected"), ENTITIES.values(), ids=ENTITIES)
def test_a_mistake_in_an_entity_is_named_with_its_way_out(text: str, expected: str) -> None:
    found = problems("", entities=f"  {text}\n")
    assert any(problem.startswith(f"entities.{expected}") for problem in found), found


@pytest.mark.parametrize(
    ("match", "apart"),
    [
        ("{type: other}", True),
        ("{type: [other, third]}", True),
        ("{type: [{exists: false}]}", True),
        ("{type: meta}", False),
        ("{type: [{prefix: o}]}", False),
        ("{kind: other}", False),
    ],
)
def test_entities_of_one_key_need_different_values_of_one_attribute(match: str, apart: bool) -> None:
    found = problems("", entities=f"  X: {{table: main, key: {{PK: 'POST#{{p}}', SK: META}}, match: {match}}}\n")
    assert (found == []) is apart, found


def test_one_and_true_are_different_values_but_one_and_one_point_zero_are_not() -> None:
    entity = "  {}: {{table: main, key: {{PK: P, SK: S}}, match: {{v: {}}}}}\n".format
    assert problems("", entities=entity("X", "1") + entity("Y", "true")) == []
    assert problems("", entities=entity("X", "1") + entity("Y", "1.0")) != []


def test_an_attribute_has_one_type_in_all_indexes() -> None:
    text = "table: {key: [PK], indexes: {a: [x], b: {x: N}}}\nentities: {A: {key: {PK: '{a}'}}}\n"
    with pytest.raises(RulesError, match=r"table\.indexes\.b: x has type N here and type S before"):
        loader.loads(text)


def test_an_entity_has_one_copy_rule() -> None:
    first = "  c: {from: Post, copy: {into: Meta, attributes: [a]}}\n"
    assert problems(first + "  d: {from: Like, copy: {into: Meta, values: {b: 1}}}\n") == [
        "projections.d.copy.into: Meta is already created by rule c: an entity can have only one copy rule"
    ]


def test_a_retired_rule_is_no_rule() -> None:
    assert problems("", top="retired: {tags: keep}\n") == [
        "retired.tags: is still a rule: remove it here or under `projections`"
    ]


CYCLES = {
    "through two entities": (
        "  up: {from: Like, aggregate: {into: Meta, set: {n: sum(w)}}}\n"
        "  down: {from: Meta, embed: {into: Like, match: {post: '{post}'}, attributes: {w: n}}}\n",
        "Meta.n → Like.w (rule down) → Meta.n (rule up)",
    ),
    "through a condition": (
        "  up: {from: Like, where: {w: [1]}, aggregate: {into: Meta, set: {n: count}}}\n"
        "  down: {from: Meta, embed: {into: Like, match: {post: '{post}'}, attributes: {w: n}}}\n",
        "Like.w → Meta.n (rule up) → Like.w (rule down)",
    ),
    "through everything": (
        "  all: {from: Post, copy: {into: Meta, attributes: all}}\n"
        "  back: {from: Meta, embed: {into: Post, match: {post: '{post}'}, attributes: {best: best}}}\n",
        "Meta.best → Post.best (rule back) → Meta.best (rule all)",
    ),
    "of existence": (
        "  self: {from: Tag, bind: {tag: '{parent}'}, aggregate: {into: Tag, set: {children: count}}}\n",
        "Tag(exists) → Tag(exists) (rule self)",
    ),
    "of an index key with itself": (
        "  self: {from: Meta, index: {GSI1PK: '{GSI1PK}x'}}\n",
        "Meta.GSI1PK → Meta.GSI1PK (rule self)",
    ),
    "of a reference on what it leads to": (
        "  author: {from: Like, embed: {into: Post, match: {post: '{post}', ref: '{user}'}, attributes: {w: w}}}\n"
        "  user: {from: Post, compute: {set: {ref: [{constant: x, where: {w: [{exists: false}]}}]}}}\n",
        "Post.ref → Post.w (rule author) → Post.ref (rule user)",
    ),
}


@pytest.mark.parametrize(("rules", "expected"), CYCLES.values(), ids=CYCLES)
def test_circular_dependencies_are_rejected_with_their_path(rules: str, expected: str) -> None:
    (problem,) = problems(rules)
    assert "circular dependency: " in problem
    shown = problem.partition("dependency: ")[2]
    steps = expected.split(" → ")
    nodes = {step.split(" (rule")[0] for step in steps}
    assert {step.split(" (rule")[0] for step in shown.split(" → ")} == nodes, shown
    assert sorted(step for step in shown.split(" → ") if "(rule" in step) == sorted(
        step for step in steps if "(rule" in step
    )


def test_a_rule_that_repeats_an_index_key_of_the_application_is_told_to_omit_it() -> None:
    (problem,) = problems("  self: {from: Meta, index: {GSI1PK: '{GSI1PK}'}}\n")
    assert problem.endswith(
        "Meta.GSI1PK → Meta.GSI1PK (rule self). Omit `GSI1PK` from the rule: items have it already, so it is a key of the "
        "index without a rule"
    )


def test_a_long_way_is_no_cycle() -> None:
    rules = (
        "  c: {from: Post, copy: {into: Meta, attributes: [title, tags]}}\n"
        "  n: {from: Like, where: {title: [a]}, aggregate: {into: Meta, set: {n: count}}}\n"
        "  e: {from: Post, embed: {into: Like, match: {post: '{post}', author: '{user}'}, attributes: [title]}}\n"
        "  i: {from: Meta, index: {board: b, score: '{n}'}}\n"
        "  s: {from: Meta, aggregate: {into: Post, set: {seen: count}}}\n"
    )
    assert problems(rules) == []


def test_an_index_of_items_that_rules_create_is_no_cycle_it_creates_none() -> None:
    assert problems("  i: {from: Tag, where: {n: [{exists: true}]}, index: {board: b, score: '{n}'}}\n") == []


@pytest.mark.parametrize(
    ("source", "target", "more", "expected"),
    [
        ("{PK: 'U#{u}', SK: 'P#{p}'}, id: p", "{PK: 'P#{p}', SK: M}", "", False),
        ("{PK: 'U#{u}', SK: 'P#{p}'}", "{PK: 'P#{p}', SK: M}", "", True),
        ("{PK: 'U#{u}', SK: 'P#{p}'}", "{PK: 'P#{p}', SK: 'U#{u}'}", "", False),
        ("{PK: 'U#{u}', SK: 'P#{p}'}", "{PK: 'P#{mail}', SK: M}", "", True),
        ("{PK: 'U#{u}', SK: U}", "{PK: 'X#{x}', SK: M}", "bind: {x: '{u}-{v}'},", True),
        ("{PK: 'U#{u}', SK: U}", "{PK: 'X#{x*}', SK: M}", "bind: {x: '{u}#{v}'},", False),
        ("{PK: 'U#{u}', SK: U}", "{PK: 'X#{x}', SK: M}", "bind: {x: '{u|lower}'},", True),
        ("{PK: 'U#{u}', SK: U}", "{PK: 'X#{x}', SK: M}", "bind: {x: '{u}'},", False),
        ("{PK: 'U#{u}', SK: U}", "{PK: 'X#{u}', SK: M}", "each: {u: us},", True),
        ("{PK: 'U#{u}', SK: U}", "{PK: 'T#{t}', SK: '{u}'}", "each: {t: ts},", False),
    ],
)
def test_a_copy_is_claimed_unless_its_key_determines_its_source(
    source: str, target: str, more: str, expected: bool
) -> None:
    rules = loader.loads(
        "table: {key: [PK, SK]}\n"
        f"entities:\n  A: {{key: {source}}}\n  B: {{key: {target}, match: {{type: b}}}}\n"
        f"projections:\n  r: {{from: A, {more} copy: {{into: B, attributes: [x]}}}}\n"
    )
    assert is_claimed(rules, rules.projections["r"]) is expected
    assert rules.document()["projections"]["r"]["copy"]["claimed"] is expected


def test_a_rule_with_a_measure_that_reads_what_it_writes_is_rejected() -> None:
    """Bad input for one measure takes the whole rule away, so each of its attributes depends on all it reads."""
    found = problems("  r: {from: Post, aggregate: {into: Post, set: {a: min(number(t)), b: sum(a)}}}\n")
    assert len(found) == 1
    assert "circular dependency" in found[0]


@pytest.mark.parametrize(
    ("projections", "way"),
    [
        ("  r: {from: C, compute: {set: {c: {constant: x}}}, where: {c: [a]}}\n", "C.c → C.c (rule r)"),
        (
            "  l: {from: C, where: {c: [{exists: true}]}, aggregate: {into: A, set: {n: count}}}\n"
            "  e: {from: A, embed: {into: C, match: {a: '{a}'}, attributes: {c: n}}}\n",
            "C.c → A.n (rule l) → C.c (rule e)",
        ),
    ],
)
def test_an_attribute_with_the_name_of_a_key_variable_is_part_of_a_circle(projections: str, way: str) -> None:
    """An item on which both differ is bad input, so that the value would be removed and written again for ever."""
    head = (
        "table: {key: [PK, SK]}\nentities:\n  A: {key: {PK: 'A#{a}', SK: A}}\n  C: {key: {PK: 'A#{a}', SK: 'C#{c}'}}\n"
    )
    with pytest.raises(RulesError, match=re.escape(f"circular dependency: {way}")):
        loader.loads(f"{head}projections:\n{projections}")


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("max(number(x))", "number(x)"),
        ("max(text(x))", "text(x)"),
        ("max(-x)", "-x"),
        ("max(1 * x)", "1 * x"),
        ("min(x * y)", "x * y"),
        ("max(name)", "text(name)"),
        ("max( name )", "text(name)"),
        ("max('name')", "text(name)"),
        ("max(no)", "no"),
        ("max(score)", "score"),
        ("{max: x, where: {x: [{numeric: ['>', 0]}]}}", "x"),
        ("{max: a.b, where: {a: {b: [{numeric: ['>', 0, '<', 9]}, {numeric: ['=', 12]}]}}}", "a.b"),
    ],
)
def test_min_and_max_compare_one_type(measure: str, expected: str) -> None:
    assert _extreme(measure) == expected


@pytest.mark.parametrize(
    "measure",
    [
        "max(x)",
        "max(name.x)",
        "max(tag)",
        "{max: x, where: {y: [{numeric: ['>', 0]}]}}",
        "{max: x, where: {x: [{numeric: ['>', 0]}, {exists: false}]}}",
        "{max: x, where: {$or: [{x: [{numeric: ['>', 0]}]}, {y: [1]}]}}",
        "{max: x, where: {x: [{prefix: a}]}}",
    ],
)
def test_min_and_max_of_an_unknown_type_are_rejected(measure: str) -> None:
    read = measure.split("(")[1].rstrip(")") if "(" in measure else "x"
    with pytest.raises(RulesError) as error:
        _extreme(measure)
    (problem,) = error.value.problems
    assert problem.message == (
        f"the type of {read} is unknown: write max(number({read})) to compare numbers, "
        f"or max(text({read})) to compare text"
    )


def _extreme(measure: str) -> str:
    """The expression in the canonical document, of which a lone path is a number."""
    rules = loader.loads(
        "table: {key: {PK: S, SK: N}}\n"
        'entities: {A: {key: {PK: "A#{name}", SK: "{no}"}}, B: {key: {PK: "B#{name}", SK: "{no}"}}}\n'
        "projections:\n  r:\n    from: A\n    where: {score: [{numeric: ['>', 0]}]}\n    each: {tag: tags}\n"
        f"    aggregate: {{into: B, set: {{m: {measure!s}}}}}\n"
    )
    (expression, *_) = rules.document()["projections"]["r"]["aggregate"]["set"]["m"].values()
    return str(expression)


def test_a_greatest_text_is_no_key_of_type_number() -> None:
    top = "table: {key: [PK, SK], indexes: {G: {a: S, b: N}}}\n"
    entities = 'entities: {A: {key: {PK: "A#{x}", SK: A}}, B: {key: {PK: "B#{x}", SK: B}}}\n'
    rules = "projections: {r: {from: A, aggregate: {into: B, set: {a: max(number(n)), b: min(text(t))}}}}\n"
    with pytest.raises(RulesError) as error:
        loader.loads(top + entities + rules)
    assert [problem.message for problem in error.value.problems] == [
        "a is a key of type S, and this rule makes it a number: declare the key with type N",
        "b is a key of type N, and this rule makes it text: write a path or an expression, or declare the key with type S",
    ]


@pytest.mark.parametrize(
    "action", ["aggregate: {into: A, set: {n: count}}", "latest: {into: A, by: at, attributes: {n: at}}"]
)
def test_a_rule_cannot_write_what_match_of_its_target_reads(action: str) -> None:
    text = f"""
table: {{key: [PK, SK]}}
entities:
  A: {{key: {{PK: "A#{{a}}", SK: X}}, match: {{n: [{{numeric: [">", 1]}}, {{exists: false}}]}}}}
  L: {{key: {{PK: "A#{{a}}", SK: "L#{{l}}"}}}}
projections:
  c: {{from: L, {action}}}
"""
    with pytest.raises(RulesError, match=r"circular dependency: A\.n → A\.n: `match` of A reads"):
        loader.loads(text)

"""`projections diff`: what a change of rules means, rule by rule, and what is to be done about it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT

from projections.cli.diff import as_data, as_markdown
from projections.inspect.diff.difference import Difference, RuleDifference, difference
from projections.language.compiling import kind_of
from projections.language.loader import load, loads
from projections.language.program import Program

SOCIAL = ROOT / "projections/rules/social.yaml"
RULE_FILES = [SOCIAL, *sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))[::4]]

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
  Meta: {key: {PK: "META#{postId}", SK: META}}
  Shop: {key: {PK: "SHOP#{shop}", SK: SHOP}}
  Tag: {key: {PK: "TAG#{tag}", SK: TAG}%s}
projections:
"""
META = "  meta: {from: Post, copy: {into: Meta, attributes: [title]}}\n"
LIKES = "  likes: {from: Like, aggregate: {into: Meta, set: {likes: count}}}\n"


def rules(text: str, head: str = HEAD) -> dict[str, Any]:
    derived = ", derived: true" if "into: Tag" in text else ""
    if not text.startswith(" "):
        head = head.replace("projections:", "projections: {}")
    return loads(head % derived + text).document()


def between(old: str, new: str) -> Difference:
    return difference(rules(old), rules(new))


def the_rule(found: Difference, name: str) -> RuleDifference:
    (one,) = [one for one in found.rules if one.change.rule == name]
    return one


def test_the_same_rules_need_nothing() -> None:
    found = between(META + LIKES, LIKES + META)
    assert not found.findings
    assert (found.unchanged, list(found.steps()), found.owners) == (2, [], ())


def test_new_rule_has_target_and_owners() -> None:
    one = the_rule(found := between(META, META + LIKES), "likes")
    assert (one.change.status, str(one.change.target_after)) == ("new", "Meta META#{postId} · META")
    assert one.fill == ("it is new, and has not processed existing items",)
    assert [(hand.attribute, hand.before, hand.after, hand.made) for hand in found.owners] == [
        ("likes", None, "likes", True)
    ]
    assert list(found.steps())[-1] == "Run `projections apply`: likes."


def test_attribute_that_a_rule_takes_over_from_the_application_is_listed() -> None:
    (hand,) = between(
        "", '  n: {from: Like, bind: {shop: "{shop}"}, aggregate: {into: Shop, set: {likes: count}}}\n'
    ).owners
    assert (hand.before, hand.after, hand.made) == (None, "n", False)
    assert "overwritten" in hand.note


def test_a_removed_rule_needs_an_entry_in_retired() -> None:
    found = between(META + LIKES, META)
    one = the_rule(found, "likes")
    assert (one.change.status, one.fill) == ("removed", ())
    assert "retired: {likes: keep}" in one.advice
    assert next(found.steps()).startswith("Keep the values of removed rules with `retired: {likes: keep}`")
    assert found.owners[0].note == "`retired` does not set what happens to its values"


@pytest.mark.parametrize(("fate", "note"), [("keep", "its values stay"), ("remove", "its values are removed")])
def test_a_retired_rule_is_no_error(fate: str, note: str) -> None:
    found = between(META + LIKES, META + f"retired: {{likes: {fate}}}\n")
    one = the_rule(found, "likes")
    assert (one.change.status, one.change.fate, one.advice) == ("retired", fate, "")
    assert note in found.owners[0].note
    assert "Run `projections apply`: likes." in found.steps()


@pytest.mark.parametrize(
    ("rule", "note"),
    [
        ("first: {from: Post, compute: {set: {x: title}, once: true}}", "its values stay, because it has `once`"),
        ("first: {from: Post, hold: true, compute: {set: {x: title}}}", "its values stay, because it was held"),
    ],
    ids=["once", "held"],
)
def test_values_that_are_never_removed_stay_whatever_retired_sets(rule: str, note: str) -> None:
    found = between(f"  {rule}\n", "retired: {first: remove}\n")
    assert [hand.note for hand in found.owners] == [note]
    one = the_rule(between(f"  {rule}\n", "  other: {from: Post, compute: {set: {y: title}}}\n"), "first")
    assert note in one.advice


def test_nothing_is_deleted_for_a_held_rule() -> None:
    held = META.replace("{from: Post,", "{from: Post, hold: true,")
    assert held != META
    assert the_rule(between(held, "retired: {meta: remove}\n"), "meta").deletions == ()


def test_copies_go_with_a_rule_that_is_removed_and_stay_with_one_that_is_kept() -> None:
    gone = between(META, "retired: {meta: remove}\n")
    assert the_rule(gone, "meta").deletions == ("all `Meta META#{postId} · META`",)
    assert any("--allow-delete" in step for step in gone.steps())
    assert the_rule(between(META, "retired: {meta: keep}\n"), "meta").deletions == ()


def test_derived_items_go_only_if_no_other_rule_makes_them() -> None:
    tags = "  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"
    more = "  more: {from: Like, aggregate: {into: Tag, set: {likes: count}}}\n"
    assert the_rule(between(tags, "retired: {tags: remove}\n"), "tags").deletions == ("all `Tag TAG#{tag} · TAG`",)
    assert the_rule(between(tags + more, more + "retired: {tags: remove}\n"), "tags").deletions == (
        "all `Tag TAG#{tag} · TAG` that no other rule contributes to",
    )


def test_a_rule_of_another_name_is_recognised() -> None:
    found = between(META + LIKES, META + LIKES.replace("likes:", "hearts:", 1))
    assert found.renamed == (("likes", "hearts", True),)
    assert "keep the old name" in the_rule(found, "likes").advice
    assert [(hand.before, hand.after) for hand in found.owners] == [("likes", "hearts")]
    changed = LIKES.replace("likes:", "hearts:", 1).replace("likes: count", "hearts: count")
    assert between(META + LIKES, META + changed).renamed == (("likes", "hearts", False),)
    removed = between(META + LIKES, META + changed + "retired: {likes: remove}\n")
    assert the_rule(removed, "likes").advice == ""
    assert between(META + LIKES, META + LIKES.replace("likes:", "x:", 1).replace("Meta", "Shop")).renamed == ()


def part(old: str, new: str, name: str = "likes") -> tuple[list[str], tuple[str, ...]]:
    """The parts that changed, and why the new version is filled."""
    one = the_rule(between(META + old, META + new), name)
    return [each.name for each in one.change.parts], one.fill


@pytest.mark.parametrize(
    ("change", "name", "why"),
    [
        (("from: Like,", "from: Like, where: {kind: [like]},"), "where", "other items contribute"),
        (("from: Like,", "from: Post,"), "from", "other items contribute"),
        (("from: Like,", 'from: Like, bind: {postId: "{other}"},'), "bind.postId", "targets have other keys"),
        (("likes: count", "likes: sum(n)"), "set.likes", "the values change"),
        (("likes: count", "likes: count, most: max(number(n))"), "set.most", "the values change"),
        (("set:", "shards: 3, set:"), "shards", "its values stay correct"),
        (("set:", "ledger: lanes, set:"), "ledger", "so `verify` compares its groups with the items"),
    ],
)
def test_each_changed_part_has_a_reason_to_fill_a_new_version(change: tuple[str, str], name: str, why: str) -> None:
    parts, fill = part(LIKES, LIKES.replace(*change))
    assert parts == [name]
    assert why in fill[0]


def test_what_lanes_give_up_and_what_entries_cost_is_said() -> None:
    lanes = LIKES.replace("set:", "ledger: lanes, set:")
    assert "with an entry for each source item: more write units" in part(lanes, LIKES)[1][0]
    head = HEAD.replace("]}}", "]}, ttl: ttl}").replace('LIKE#{userId}"}}', 'LIKE#{userId}"}, expires: true}')
    keeping = [rules(text.replace("from: Like,", "from: Like, expired: keep,"), head) for text in (LIKES, lanes)]
    assert "what has expired is lost when it is counted again" in the_rule(difference(*keeping), "likes").fill[0]


def test_a_target_that_moves_shows_both_keys_and_deletes_the_old_copies() -> None:
    copy = '  meta: {from: Post, bind: {postId: "%s"}, copy: {into: Meta, attributes: [title]}}\n'
    one = the_rule(between(copy % "{postId}", copy % "{slug}"), "meta")
    assert one.change.moved
    assert [str(target) for target in (one.change.target_before, one.change.target_after)] == [
        "Meta META#{postId} · META",
        "Meta META#{slug} · META",
    ]
    assert [part.name for part in one.change.parts] == ["bind.postId", "claimed"]
    assert one.deletions == ("`Meta META#{postId} · META` under keys that the rule no longer creates",)


def test_what_an_entity_with_another_key_had_is_deleted() -> None:
    """A version has the entities of its time, so that its items are found."""
    head = HEAD.replace("META#", "M#")
    gone = "`Meta META#{postId} · META` under keys that the rule no longer creates"
    one = the_rule(difference(rules(META), rules(META, head)), "meta")
    assert (one.deletions, one.advice) == ((gone,), "")
    assert the_rule(difference(rules(META + LIKES), rules(META + LIKES, head)), "likes").deletions == ()


def test_a_held_rule_is_not_published_and_what_records_nothing_is_filled_afterwards() -> None:
    held = LIKES.replace("from: Like,", "from: Like, hold: true,")
    one = the_rule(between(META + LIKES, META + held), "likes")
    assert (one.fill, one.advice[:32]) == ((), "It goes on in the ledger, and is")
    one = the_rule(between(META + held, META + LIKES), "likes")
    assert (one.fill, one.advice) == ((), "")
    one = the_rule(between(META.replace("from: Post,", "from: Post, hold: true,"), META), "meta")
    assert one.fill == ("it was held, and wrote nothing",)


def test_a_copy_with_fewer_sources_deletes_some() -> None:
    old, new = META, META.replace("from: Post,", "from: Post, where: {state: [public]},")
    assert the_rule(between(old, new), "meta").deletions == (
        "`Meta META#{postId} · META` of items that no longer contribute",
    )


def test_an_entity_that_changes_is_a_change_of_every_rule_that_knows_it() -> None:
    old = rules(META + LIKES)
    new = rules(META + LIKES, HEAD.replace("META#", "M#"))
    found = difference(old, new)
    assert {one.change.rule for one in found.rules} == {"meta", "likes"}
    assert all(part.shared and part.name == "Meta.key" for one in found.rules for part in one.change.parts)
    assert "keys are parsed and rendered differently" in the_rule(found, "likes").fill
    text = as_markdown(found, "a", "b")
    assert text.count('{"PK": "META#{postId}"') == 1


def test_attributes_of_an_index_are_parts_of_their_own() -> None:
    index = '  i: {from: Post, index: {GSI1PK: "A#{state}", GSI1SK: "%s"}}\n'
    parts, _ = part(index % "{at}", index % "{at}#{postId}", "i")
    assert parts == ["index.GSI1SK"]
    cases = "  i: {from: Post, index: [{where: {s: [%s]}, GSI1PK: A}, {GSI1PK: B}]}\n"
    assert part(cases % "x", cases % "y", "i")[0] == ["index[0].where"]


def test_a_rule_that_changes_its_kind() -> None:
    one = the_rule(
        between(META + LIKES, META + "  likes: {from: Like, latest: {into: Meta, by: at, attributes: {likes: n}}}\n"),
        "likes",
    )
    assert "its kind changes" in one.fill
    assert one.change.kind == "latest"


def test_once_says_what_happens_to_the_values_that_were_recorded() -> None:
    rule = "  c: {from: Post, compute: {set: {first: state}%s}}\n"
    always, once = META + rule % "", META + rule % ", once: true"
    assert the_rule(between(always, once), "c").fill == ("values that are there no longer change",)
    replaced = "recorded values are replaced by those of today, and no rule can restore them"
    assert the_rule(between(once, always), "c").fill == (replaced,)


# The deployment


def test_filters_indexes_ttl_permissions_and_tables() -> None:
    old = rules(META)
    tag = "  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n"
    found = difference(old, rules(META + tag))
    assert found.deployment == ("table main: the filters of the event source mapping match other keys",)
    head = HEAD.replace("GSI1: [GSI1PK, GSI1SK]", "GSI1: [GSI1PK], GSI2: [a], GSI3: [b]").replace(
        "}}\nent", "}, ttl: exp}\nent"
    )
    found = difference(old, rules(META, head))
    assert found.deployment == (
        "table main: index GSI2 is new",
        "table main: index GSI3 is new",
        "table main: items expire by exp, before by nothing",
    )
    assert found.indexes == (("main", "GSI2"), ("main", "GSI3"))
    assert found.impossible == (
        "the key of index GSI1 changes, which is impossible. Use a new index with another name",
    )
    assert any("one new index at a time" in step for step in found.steps())
    assert found.findings
    counts = rules('  n: {from: Like, bind: {shop: "{s}"}, aggregate: {into: Shop, set: {n: count}}}\n')
    assert any("need other permissions" in reason for reason in difference(old, counts).deployment)


def test_projection_of_an_index_cannot_change_and_local_indexes_come_with_their_table() -> None:
    old, new = (
        loads(f'table: {{key: [PK, SK], indexes: {{{indexes}}}}}\nentities: {{A: {{key: {{PK: "{{a}}", SK: A}}}}}}\n')
        for indexes in (
            "Same: {partition: x, projection: [b, a]}, Less: [x], Kind: {partition: PK, sort: at}",
            "Same: {partition: x, projection: [a, b]}, Less: {partition: x, projection: keys_only}, "
            "Kind: {sort: at, local: true}, New: {sort: on, local: true}",
        )
    )
    assert difference(old.document(), new.document()).impossible == (
        "the projection of index Less changes, which is impossible. If the table's index has it already, this only corrects "
        "the rules; otherwise use a new index with another name",
        "the key of index Kind changes, which is impossible. Use a new index with another name",
        "local index New is new, and a local index can be created only with its table. Make it global, or use a new table "
        "with another name",
    )
    assert difference(new.document(), new.document()).impossible == ()


def test_the_key_of_a_table_cannot_change() -> None:
    old = loads('table: {key: [PK]}\nentities: {A: {key: {PK: "A#{a}"}}}\n').document()
    new = loads('table: {key: {PK: N}}\nentities: {A: {key: {PK: "{a}"}}}\n').document()
    assert "the key of table main changes" in difference(old, new).impossible[0]


def test_tables_come_and_go() -> None:
    old = load(ROOT / "tests/simulation/rules/tables.yaml").document()
    new = deepcopy(old)
    new["projections"] = {"perDevice": old["projections"]["perDevice"]}
    new["retired"] = {"totals": "keep", "copies": "keep"}
    for name in ("Total", "Latest"):
        del new["entities"][name]
    del new["tables"]["stats"]
    assert any("table stats is no longer in the rules" in reason for reason in difference(old, new).deployment)
    assert "table stats is new" in difference(new, old).deployment


# For all rules we have


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_a_rule_differs_exactly_if_its_fingerprint_does(path: Path) -> None:
    """Each rule, entity and table changed a little, or taken away."""
    old = load(path).document()
    assert not difference(old, old).findings
    ours = Program.from_document(old).rules
    for new in variants(old):
        found = difference(old, new)
        differing = [one.change for one in found.rules if one.change.status == "changed"]
        changed = {change.rule for change in differing if not change.only_hold}
        theirs = Program.from_document(new).rules
        assert changed == {name for name in theirs if ours[name].fingerprint != theirs[name].fingerprint}
        json.dumps(as_data(found))
        assert as_markdown(found, "a", "b")


def variants(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name, rule in document["projections"].items():
        kind, source = kind_of(rule), next(iter(rule["from"]))
        other = {"keep": "remove", "remove": "keep"}
        for place, part, value in (
            (("from", source), "where", {"z": [1]}),
            ((), "hold", True),
            *([((kind,), "shards", 7)] if "shards" in rule[kind] else []),
            *([((kind,), "limit", 99)] if "limit" in rule[kind] else []),
            *([((kind,), "on_delete", other[rule[kind]["on_delete"]])] if "on_delete" in rule[kind] else []),
        ):
            new = deepcopy(dict(document))
            reduce(getitem, place, new["projections"][name])[part] = value
            found.append(new)
        new = deepcopy(dict(document))
        del new["projections"][name]
        found.append(new)
    for name in document["entities"]:
        for change in ({"match": {"z": "1"}}, {"expires": True}, {"id": "z"}):
            new = deepcopy(dict(document))
            new["entities"][name].update(change)
            found.append(new)
    return found


@pytest.mark.parametrize("old", RULE_FILES, ids=lambda path: path.stem)
def test_any_rules_can_be_compared_with_any_others(old: Path) -> None:
    for new in RULE_FILES:
        found = difference(load(old).document(), load(new).document())
        assert found.findings == (old != new)
        assert as_markdown(found, "a", "b")


# The command

Run = Callable[..., tuple[int, str, str]]


def edited(tmp_path: Path) -> Path:
    path = tmp_path / "new.yaml"
    path.write_text(SOCIAL.read_text().replace("commentCount: count", "commentCount: sum(weight)"))
    return path


def test_nothing_to_do_is_exit_code_0(run: Run) -> None:
    code, out, err = run("diff", "social", str(SOCIAL))
    assert (code, err) == (0, "")
    assert "9 unchanged. Nothing to do." in out


def test_something_to_do_is_exit_code_1_and_reads_well(run: Run, tmp_path: Path) -> None:
    code, out, err = run("diff", "social", str(edited(tmp_path)))
    assert (code, err) == (1, "")
    assert "~ discussion changed: aggregate of Comment → PostMeta POST#{postId} · METADATA" in out
    assert "set.commentCount: count → sum(weight)" in out
    assert "`" not in out


def test_markdown_and_json(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("diff", "social", str(edited(tmp_path)), "--markdown")
    assert code == 1
    assert out.startswith("### Rules: social.yaml → new.yaml\n")
    assert "- set.commentCount: `count` → `sum(weight)`" in out
    code, out, _ = run("diff", "social", str(edited(tmp_path)), "--json")
    found = json.loads(out)
    assert (code, found["needsDoing"]) == (1, True)
    (rule,) = found["rules"]
    assert (rule["rule"], rule["target"]["after"]["entity"]) == ("discussion", "PostMeta")


def test_the_rules_of_a_package_are_rules_too(run: Run, tmp_path: Path) -> None:
    printed = run("check", "social", "--json")[1]
    (tmp_path / "rules.json").write_text(json.dumps(json.loads(printed)["document"]))
    (tmp_path / "checked.json").write_text(printed)
    assert run("diff", str(tmp_path / "checked.json"), "social")[0] == 0
    assert run("diff", str(tmp_path / "rules.json"), "social")[0] == 0


def test_old_rules_may_come_through_a_pipe(run: Run, tmp_path: Path) -> None:
    """As by `projections diff <(git show main:rules.yaml) rules.yaml`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(SOCIAL.read_bytes()))
    writer.start()
    assert run("diff", str(pipe), "social")[0] == 0
    writer.join()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "table: 3",
        "\0",
        '{"format": 1}',
        '{"format": 99, "guard_prefix": "~"}',
        '{"format": 1, "guard_prefix": "~", "tables": {}}',
    ],
)
def test_a_wrong_file_is_exit_code_2(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    for arguments in ((str(path), "social"), ("social", str(path))):
        code, out, err = run("diff", *arguments)
        assert (code, out) == (2, "")
        assert str(path) in err
    assert run("diff", "social", str(tmp_path / "none.yaml"))[0] == 2
    assert run("diff", "social", str(tmp_path))[0] == 2


def test_a_changed_prefix_of_guards_is_impossible_while_rules_are_active() -> None:
    old = rules(META)
    found = difference(old, {**old, "guard_prefix": "_p."})
    assert found.impossible == (
        'guard_prefix changes from "~" to "_p.", which is impossible while rules are active. Remove all rules first, with '
        "`retired`",
    )
    assert (found.rules, found.findings) == ((), True)
    none = {**old, "projections": {}}
    assert difference(none, {**none, "guard_prefix": "_p."}).impossible == ()

"""Rule files that include others: they are one document, and messages name the right file, line and column."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from yaml import safe_load

import projections
from projections.deploy.package import HANDLERS, package
from projections.errors import RulesError
from projections.language import loader
from projections.language.including import Watched
from projections.language.review import review
from projections.language.schema import json_schema

RULES = """\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
  all: {from: Post, index: {GSI1PK: ALL}}
queries:
  post: {id: AP-1, get: Post, by: [postId]}
"""


@pytest.fixture(autouse=True)
def _in_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file can include files below its own directory, and below the current one."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "queries").mkdir()
    return tmp_path / "queries" / "app.yaml"


def test_has_the_rules_and_the_queries_of_both_files(file: Path) -> None:
    file.write_text(ABOUT + "queries:\n  likers: {find: Like, by: [postId]}\nwrites:\n  like: {put: Like}\n")
    found = projections.load(file)
    assert found.document == projections.loads(RULES).document
    assert list(found.queries) == ["post", "likers"]
    assert list(found.writes) == ["like"]


def test_may_name_a_bundled_file(file: Path) -> None:
    file.write_text("include: [social]\nqueries:\n  mine: {find: Like, by: [userId]}\n")
    found = projections.load(file)
    assert "engagement" in found.names
    assert "mine" in found.queries


ABOUT = "include: [../rules.yaml]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ABOUT + "queries:\n  q: {find: Lik, by: [postId]}\n", '3:13: queries.q.find: unknown entity "Lik"'),
        (ABOUT + "queries:\n  q: {fnd: Like}\n", '3:7: queries.q.fnd: unknown (did you mean "find"?)'),
        (ABOUT + "queries:\n  q: {id: AP-1, find: Like}\n", "3:11: queries.q.id: AP-1 is already the id of post"),
        (ABOUT + "writes:\n  w: {puts: Like}\n", "3:7: writes.w.puts: unknown"),
        (ABOUT + "writes:\n  post: {put: Like}\n", "3:3: writes.post: post is also a query: give them different names"),
        (
            ABOUT + "queries:\n  post: {get: Post, by: [postId]}\n",
            "3:3: queries.post: is also in {up}:9: keep one of the two",
        ),
        (
            ABOUT + "entities:\n  Like: {key: {PK: x, SK: y}}\n",
            "3:3: entities.Like: is also in {up}:4: keep one of the two",
        ),
        (ABOUT + "projections:\n  all: {from: Post}\n", "3:3: projections.all: is also in {up}:7: keep one of the two"),
        (ABOUT + "table: {key: [PK]}\n", "2:1: table: is also in {up}:1: keep one of the two"),
        (ABOUT + "query: {}\n", '2:1: query: unknown (did you mean "queries"?)'),
        (ABOUT + "queries: [a]\n", "2:10: queries: expected a mapping of names to queries, found a list"),
        ("include: a\n", '1:10: include: expected a list of files, such as [users.yaml, orders/*.yaml], found "a"'),
        ("include: []\n", "1:10: include: expected a list of files"),
        ("include: [{}]\n", "1:11: include[0]: expected a path that is relative to this file, found a mapping"),
        ("include: [/rules.yaml]\n", "1:11: include[0]: /rules.yaml is an absolute path: give one that is relative"),
        (
            "include: [../rule.yaml]\n",
            '1:11: include[0]: ../rule.yaml does not exist (did you mean "rules.yaml"?): give',
        ),
        ("include: [no/*.yaml]\n", "1:11: include[0]: no file matches no/*.yaml: correct the pattern"),
        ("include: [app.yaml]\n", "1:11: include[0]: files include each other: {own} → {own}"),
        (ABOUT + ABOUT, "2:1: include: is defined twice, first on line 1"),
    ],
)
def test_mistakes_have_their_places_in_this_file(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    with pytest.raises(RulesError) as raised:
        projections.load(file)
    (problem,) = raised.value.problems
    assert problem.file == str(file)
    up = str(file.parents[1] / "rules.yaml")
    assert expected.replace("{up}", up).replace("{own}", str(file)) in str(problem)


def test_mistakes_of_the_rule_file_name_that_file(file: Path) -> None:
    rules = file.parents[1] / "rules.yaml"
    rules.write_text(RULES.replace("from: Like", "from: Lik").replace("get: Post", "get: Pots"))
    file.write_text(ABOUT + "queries:\n  likers: {find: Likes, by: [postId]}\n")
    with pytest.raises(RulesError) as raised:
        projections.load(file)
    assert [(problem.file, problem.line) for problem in raised.value.problems] == [
        (str(file), 3),
        (str(rules), 6),
        (str(rules), 9),
    ]


def test_comments_accept_findings_of_their_own_file(file: Path) -> None:
    rules = file.parents[1] / "rules.yaml"
    file.write_text(ABOUT + "queries:\n  likers: {find: Like, by: [postId]} # check: ignore hot-partition\n")
    found = [(one.file, one.line, one.code) for one in review(file).findings]
    assert (str(rules), 7, "hot-partition") in found
    assert (str(file), 3, "unused-ignore") in found
    rules.write_text(RULES.replace("GSI1PK: ALL}}", "GSI1PK: ALL}} # check: ignore hot-partition"))
    assert "hot-partition" not in [one.code for one in review(file).findings]
    assert [one.code for one in projections.lint(projections.load(file))] == [one.code for one in review(file).findings]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("include: [a.yaml]\nqueries: {q: {find: Like}}", True),
        ("entities: {Post: {key: {PK: x}}}", True),
        ("include: a.yaml", False),
        ("include: [5]", False),
        (RULES, True),
        (RULES + "tables: {}", False),
    ],
)
def test_json_schema_is_for_files_that_are_included_as_well(text: str, valid: bool) -> None:
    assert Draft202012Validator(json_schema()).is_valid(safe_load(text)) is valid


PARTS = {
    "rules.yaml": "include: [users.yaml, orders/*.yaml]\ntable: {key: [PK, SK]}\n",
    "users.yaml": """\
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
queries:
  profile: {id: AP-1, get: User, by: [userId]}
""",
    "orders/a.yaml": """\
entities:
  Order: {key: {PK: "USER#{userId}", SK: "ORDER#{orderId}"}}
""",
    "orders/b.yaml": """\
include: [../users.yaml] # each file is read once
projections:
  orders: {from: Order, aggregate: {into: User, set: {orderCount: count}}}
""",
}


def written(directory: Path, **changes: str) -> Path:
    for name, text in PARTS.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(changes.get(path.stem, text))
    return directory / "rules.yaml"


def test_files_are_joined_in_the_order_in_which_they_are_named(tmp_path: Path) -> None:
    found = projections.load(written(tmp_path))
    assert list(found.document["entities"]) == ["User", "Order"]
    assert found.names == ("orders",)
    whole = "table: {key: [PK, SK]}\n" + PARTS["users.yaml"] + PARTS["orders/a.yaml"].replace("entities:\n", "")
    whole = whole.replace("queries:\n  profile: {id: AP-1, get: User, by: [userId]}\n", "")
    whole += PARTS["orders/b.yaml"].split("\n", 1)[1]
    assert found.document == projections.loads(whole).document


def test_messages_name_the_file_as_seen_from_the_file_that_the_user_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, b="projections:\n  orders: {from: Order, aggregat: {}}\n", a="entities:\n  Order: {key: 5}\n")
    monkeypatch.chdir(tmp_path)
    found = [
        (one.file, one.line, one.column, one.path) for one in review("rules.yaml").findings if one.severity == "error"
    ]
    assert ("orders/a.yaml", 2, 16, "entities.Order.key") in found
    assert ("orders/b.yaml", 2, 25, "projections.orders.aggregat") in found


def test_mistakes_of_every_file_are_reported_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, users="entities: [\n", a="- 1\n", b="include: [c.yaml]\n")
    with pytest.raises(RulesError) as raised:
        projections.load(path)
    assert [Path(one.file).name for one in raised.value.problems] == ["a.yaml", "b.yaml", "users.yaml"]


def test_names_that_are_twice_in_an_included_file_are_reported_there(tmp_path: Path) -> None:
    path = written(tmp_path, users=PARTS["users.yaml"].replace("queries:", "  User: {key: {PK: a, SK: b}}\nqueries:"))
    with pytest.raises(RulesError) as raised:
        projections.load(path)
    (problem,) = raised.value.problems
    assert (Path(problem.file).name, problem.line, problem.message) == (
        "users.yaml", 3, "is defined twice, first on line 2"
    )  # fmt: skip


def test_misspelt_part_of_an_included_file_hides_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, b=PARTS["orders/b.yaml"].replace("projections:", "projection:").replace("Order,", "Oder,"))
    with pytest.raises(RulesError) as raised:
        projections.load(path)
    assert [(Path(one.file).name, one.line, one.message) for one in raised.value.problems] == [
        ("b.yaml", 2, 'unknown (did you mean "projections"?)'),
        ("b.yaml", 3, 'unknown entity "Oder" (did you mean "Order"?)'),
    ]


def test_files_that_include_each_other_are_a_mistake(tmp_path: Path) -> None:
    path = written(tmp_path, a="include: [b.yaml]\n", b="include: [a.yaml]\n")
    with pytest.raises(RulesError, match=r"a\.yaml → .*b\.yaml → .*a\.yaml"):
        projections.load(path)


def test_pattern_leaves_out_the_file_that_has_it(tmp_path: Path) -> None:
    path = written(tmp_path, rules="include: ['*.yaml', 'orders/*.yaml']\ntable: {key: [PK, SK]}\n")
    assert projections.load(path).names == ("orders",)


def test_change_of_a_rule_file_or_of_an_included_file_is_noticed_when_it_is_stable_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    file = Watched(path)
    for change in (
        lambda: (tmp_path / "users.yaml").write_text(PARTS["users.yaml"] + "# more\n"),
        lambda: (tmp_path / "orders" / "c.yaml").write_text("projections: {}\n"),
        lambda: (tmp_path / "orders" / "c.yaml").write_text("projections: {} # changed\n"),
        lambda: (tmp_path / "orders" / "c.yaml").unlink(),
    ):
        assert [file.has_changed(), file.has_changed()] == [False, False]
        change()
        assert [file.has_changed(), file.has_changed(), file.has_changed()] == [False, True, False]
    path.unlink()
    assert not file.has_changed()
    path.write_text(PARTS["rules.yaml"] + "# more\n")
    assert [file.has_changed(), file.has_changed(), file.has_changed()] == [False, True, False]


def test_package_has_library_handlers_and_the_rules_of_all_files(tmp_path: Path) -> None:
    package(written(tmp_path), tmp_path / "package")
    assert sorted(path.name for path in (tmp_path / "package").iterdir()) == ["handlers", "projections", "rules.json"]
    assert (tmp_path / "package/handlers/stream.py").read_text() == (HANDLERS / "stream.py").read_text()
    document = json.loads((tmp_path / "package" / "rules.json").read_text())
    assert document == projections.load(tmp_path / "rules.yaml").document


def _included(tmp_path: Path, name: str) -> list[str]:
    """The names that a rule file takes from the file that it includes, or the messages."""
    (tmp_path / "app").mkdir(exist_ok=True)
    (tmp_path / "app/rules.yaml").write_text(f"include: [{json.dumps(name)}]\ntable: {{key: [PK, SK]}}\n")
    try:
        return list(loader.load(tmp_path / "app/rules.yaml").entities)
    except RulesError as error:
        return [one.message for one in error.problems]


@pytest.mark.parametrize(
    "name", ["../secret.yaml", "../*.yaml", "link.yaml", "*nk.yaml", "dir/secret.yaml", "../../../etc/*"]
)
def test_files_outside_of_the_project_are_not_read(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule file of a pull request must not show what else is on the machine that checks it."""
    project = tmp_path / "project"
    (project / "app").mkdir(parents=True)
    (tmp_path / "project/secret.yaml").write_text("entities: {Secret: {key: {PK: S, SK: X}}}\n")
    (project / "app/link.yaml").symlink_to(project / "secret.yaml")
    (project / "app/dir").symlink_to(project)
    monkeypatch.chdir(project / "app")
    (message,) = _included(project, name)[:1]
    assert "is outside of the directory of the first rule file" in message
    monkeypatch.chdir(project)
    if "etc" not in name:
        assert _included(project, name) == ["Secret"]


def test_the_values_of_all_files_are_counted_together(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    for number in range(3):
        (tmp_path / f"app/{number}.yaml").write_text(f"entities: {{E{number}: {{key: {{PK: [{'x,' * 17_000}]}}}}}}\n")
    (message,) = _included(tmp_path, "*.yaml")
    assert message == "too large: the rules of all files have more than 50,000 values"


@pytest.mark.parametrize("name", ["*/users.yaml", "**/users.yaml", "**"])
def test_only_the_name_of_a_file_can_be_a_pattern(tmp_path: Path, name: str) -> None:
    """Links to directories, and deep trees, would make a pattern compare names for ever."""
    assert _included(tmp_path, name) == [
        f"{name}: only the name of a file can be a pattern, as in orders/*.yaml; name each directory"
    ]
